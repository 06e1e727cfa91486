//! Golden arrays, unpacked once for all tests: each test is a process, and they share a directory.
//!
//! The slice in the crate `md` is always there; the whole corpus where the environment variable
//! RAIDLAB_MD_CORPUS says, or beside the project.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

/// One golden array.
pub struct Case {
    pub name: String,
    pub json: Value,
    /// The images, as files.
    pub images: Vec<String>,
}

impl Case {
    pub fn text(&self, key: &str) -> &str {
        self.json[key].as_str().unwrap_or_else(|| panic!("{}: {key}", self.name))
    }

    /// What `mdadm --examine` printed about a member.
    pub fn examined(&self, member: usize) -> String {
        let text = self.text("mdadm_examine");
        let parts: Vec<&str> = match text.contains("@@EXAMINE") {
            true => text.split("@@EXAMINE ").collect(),
            // Of members examined outside of a guest, together.
            false => text.split("disk").filter(|part| part.contains("Magic")).collect(),
        };
        let part = if parts.len() > 1 { parts[member] } else { text };
        let start = part.find("          Magic").expect("an examined superblock");
        part[start..].to_string()
    }

    pub fn members(&self) -> &[Value] {
        self.json["members"].as_array().expect("a list")
    }

    /// The sha256 of the contents.
    pub fn sha256(&self) -> &str {
        self.text("sha256_of_array_contents")
    }
}

/// The committed slice.
pub fn slice() -> &'static [Case] {
    static SLICE: OnceLock<Vec<Case>> = OnceLock::new();
    SLICE.get_or_init(|| {
        unpack(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/tests/corpus"), "slice")
    })
}

/// Arrays with metadata of other formats than md's. Images are named after the serial numbers of
/// their disks.
pub fn foreign() -> &'static [Case] {
    static FOREIGN: OnceLock<Vec<Case>> = OnceLock::new();
    FOREIGN.get_or_init(|| {
        unpack(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/tests/foreign"), "foreign")
    })
}

/// The whole corpus, where it is.
pub fn whole() -> Option<&'static [Case]> {
    static WHOLE: OnceLock<Option<Vec<Case>>> = OnceLock::new();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/md-corpus");
    let unpacked = WHOLE.get_or_init(|| {
        let path = std::env::var_os("RAIDLAB_MD_CORPUS").map_or(beside, PathBuf::from);
        path.is_dir().then(|| unpack(&path, "whole"))
    });
    unpacked.as_deref()
}

/// Everything that is there; says so when that is the slice alone.
pub fn all() -> &'static [Case] {
    whole().unwrap_or_else(|| {
        eprintln!(
            "whole corpus skipped: it is not beside the project, RAIDLAB_MD_CORPUS names none"
        );
        slice()
    })
}

/// A golden array of the slice.
pub fn case(name: &str) -> &'static Case {
    slice().iter().find(|case| case.name == name).expect("a case of the slice")
}

/// The cases of a corpus, whose images lie unpacked in a directory of the build. They are unpacked
/// when a packed file or an image has changed since: tests do not write to them.
fn unpack(corpus: &Path, name: &str) -> Vec<Case> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("md-corpus-{name}"));
    fs::create_dir_all(&directory).expect("a directory");
    let lock = File::create(directory.join("lock")).expect("a lock");
    lock.lock().expect("locked");
    let (cases, packed) = cases(corpus, &directory);
    let manifest = directory.join("manifest");
    let is_current = fs::read_to_string(&manifest).is_ok_and(|text| text == state(&packed));
    if !is_current {
        for (from, to) in &packed {
            write_sparse(to, &decompress(from));
        }
        fs::write(&manifest, state(&packed)).expect("the manifest");
    }
    cases
}

/// The cases, and each packed file with the image that it becomes.
fn cases(corpus: &Path, directory: &Path) -> (Vec<Case>, Vec<(PathBuf, PathBuf)>) {
    let entries = fs::read_dir(corpus).expect("the corpus");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("case.json").is_file())
        .collect();
    paths.sort();
    let mut packed = Vec::new();
    let cases = paths.iter().map(|path| {
        let text = fs::read_to_string(path.join("case.json")).expect("case.json");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let name = json["case"].as_str().expect("a name").to_string();
        let members = json["members"].as_array().expect("a list");
        let images = members.iter().map(|member| {
            let file = member["file"].as_str().expect("a file");
            let image = directory.join(format!("{name}-{}", file.trim_end_matches(".zst")));
            packed.push((path.join(file), image.clone()));
            image.into_os_string().into_string().expect("a path in UTF-8")
        });
        Case { images: images.collect(), name, json }
    });
    (cases.collect(), packed)
}

/// Sizes and times of change of all files.
fn state(packed: &[(PathBuf, PathBuf)]) -> String {
    let mut text = String::new();
    for path in packed.iter().flat_map(|(from, to)| [from, to]) {
        let found = fs::metadata(path);
        let stamp = found.map(|it| (it.len(), it.mtime(), it.mtime_nsec()));
        writeln!(text, "{} {:?}", path.display(), stamp.ok()).expect("text grows");
    }
    text
}

/// Writes a file without its blocks of zeroes.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = File::create(path).expect("an image");
    file.set_len(bytes.len() as u64).expect("room");
    for (number, block) in (0u64..).zip(bytes.chunks(4096)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, number * 4096).expect("an image");
        }
    }
}

fn decompress(path: &Path) -> Vec<u8> {
    let file = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice()).expect("zstd");
    let mut image = Vec::new();
    decoder.read_to_end(&mut image).expect("zstd");
    image
}

/// Lists these sectors of the device (start, length) as bad in the log of a member with a
/// superblock 1.2. A length of 0 makes a damaged entry.
pub fn list_bad_blocks(image: &mut [u8], entries: &[(u64, u64)]) {
    use md::ondisk::Version;
    use md::ondisk::superblock::{SuperblockV1, feature};
    let (mut sb, _) = SuperblockV1::decode(&image[4096..8192], Version::V1_2).expect("it");
    sb.feature_map |= feature::BAD_BLOCKS;
    let bytes = sb.encode(512);
    image[4096..4096 + bytes.len()].copy_from_slice(&bytes);
    let log = 4096 + sb.bblog_offset as usize * 512;
    image[log..log + 4096].fill(0xff);
    for (index, (start, length)) in entries.iter().enumerate() {
        let entry = (start << 10 | length).to_le_bytes();
        image[log + 8 * index..log + 8 * index + 8].copy_from_slice(&entry);
    }
}
