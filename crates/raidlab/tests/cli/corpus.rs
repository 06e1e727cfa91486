//! Golden arrays, unpacked once for all tests of this program.
//!
//! The slice in the crate `md` is always there; the whole corpus where the environment variable
//! RAIDLAB_MD_CORPUS says, or beside the project.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Dir, remove_leftovers};

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

struct Corpus {
    _directory: Dir,
    cases: Vec<Case>,
}

/// The committed slice.
pub fn slice() -> &'static [Case] {
    static SLICE: OnceLock<Corpus> = OnceLock::new();
    let unpacked = SLICE
        .get_or_init(|| unpack(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/tests/corpus")));
    &unpacked.cases
}

/// The whole corpus, where it is.
pub fn whole() -> Option<&'static [Case]> {
    static WHOLE: OnceLock<Option<Corpus>> = OnceLock::new();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/md-corpus");
    let unpacked = WHOLE.get_or_init(|| {
        let path = std::env::var_os("RAIDLAB_MD_CORPUS").map_or(beside, PathBuf::from);
        path.is_dir().then(|| unpack(&path))
    });
    unpacked.as_ref().map(|corpus| corpus.cases.as_slice())
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

fn unpack(corpus: &Path) -> Corpus {
    remove_leftovers();
    let directory = Dir::new();
    let entries = std::fs::read_dir(corpus).expect("the corpus");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("case.json").is_file())
        .collect();
    paths.sort();
    let cases = paths.iter().map(|path| {
        let text = std::fs::read_to_string(path.join("case.json")).expect("case.json");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let name = json["case"].as_str().expect("a name").to_string();
        let members = json["members"].as_array().expect("a list");
        let images = members.iter().map(|member| {
            let packed = member["file"].as_str().expect("a file");
            let image = directory.file(&format!("{name}-{}", packed.trim_end_matches(".zst")));
            std::fs::write(&image, decompress(&path.join(packed))).expect("an image");
            image
        });
        Case { images: images.collect(), name, json }
    });
    Corpus { cases: cases.collect(), _directory: directory }
}

fn decompress(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice()).expect("zstd");
    let mut image = Vec::new();
    decoder.read_to_end(&mut image).expect("zstd");
    image
}
