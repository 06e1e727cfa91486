//! Images of file systems, made by their own tools in a temporary directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::Rng;

/// A directory for an image, deleted at the end.
pub struct Image {
    /// Deletes it.
    _directory: TempDir,
    pub path: PathBuf,
}

impl Image {
    /// A file of zeroes.
    pub fn new(bytes: u64) -> Image {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("image");
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        Image { _directory: directory, path }
    }

    /// Its contents.
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the image is readable")
    }
}

/// Runs a tool with the image's path behind its arguments; false, with a line that says so, if it
/// is not installed.
pub fn run(tool: &str, arguments: &[&str], image: &Path) -> bool {
    // runs: callers of run
    let mut command = Command::new(tool);
    let command = command.args(arguments).arg(image).stdout(Stdio::null()).stderr(Stdio::piped());
    // mkfs.xfs refuses less than 300 MB but for its own tests, which these variables announce.
    let command = command.envs(["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"].map(|name| (name, "1")));
    match command.env("PATH", path()).output() {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {arguments:?}: {error}");
            true
        }
        Err(_) => {
            println!("{tool} skipped: it is not installed");
            false
        }
    }
}

/// What a tool prints.
pub fn output(tool: &str, arguments: &[&str], image: &Path) -> Option<String> {
    // runs: callers of output
    let output = Command::new(tool).args(arguments).arg(image).env("PATH", path()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Tools that make file systems are often not in the path of users.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// A tree of files: directories in directories, files of all sizes, text and noise.
pub fn tree(seed: u64, files: usize) -> TempDir {
    let top = tempfile::tempdir().expect("a temporary directory");
    let mut rng = Rng::new(seed);
    let mut directories = vec![top.path().to_path_buf()];
    for number in 0..files {
        if number % 10 == 0 {
            let parent = &directories[rng.index(directories.len())];
            let directory = parent.join(format!("directory-{number}"));
            fs::create_dir(&directory).expect("a directory");
            directories.push(directory);
        }
        let size = rng.pick(&[10, 700, 5_000, 20_000, 60_000]) + rng.index(4096);
        let mut bytes = vec![0; size];
        rng.fill(&mut bytes);
        if number % 2 == 0 {
            bytes.iter_mut().for_each(|byte| *byte = b' ' + *byte % 64);
        } else {
            bytes[..4].copy_from_slice(b"\x1f\x8b\x08\0");
        }
        let directory = &directories[rng.index(directories.len())];
        fs::write(directory.join(format!("file-{number}")), bytes).expect("a file");
    }
    top
}

/// An ext file system of some MiB with such a tree; `None` without mke2fs.
pub fn ext(seed: u64, mib: u64, arguments: &[&str]) -> Option<Image> {
    let (image, tree) = (Image::new(mib << 20), tree(seed, 12 * mib as usize));
    let uuid = format!("c0ffee00-0000-4000-8000-{seed:012x}");
    let from = tree.path().to_str().expect("a path in UTF-8");
    let fixed = ["-q", "-F", "-U", &uuid, "-E", "nodiscard,lazy_itable_init=1", "-d", from];
    run("mke2fs", &[&fixed, arguments].concat(), &image.path).then_some(image)
}

/// An XFS with such a tree; `None` without mkfs.xfs.
pub fn xfs(seed: u64, mib: u64, arguments: &[&str]) -> Option<Image> {
    let (image, tree) = (Image::new(mib << 20), tree(seed, 300));
    let mut prototype = String::from("x\n0 0\nd--755 0 0\n");
    describe(tree.path(), &mut prototype);
    prototype += "$\n";
    let path = tree.path().join("prototype");
    fs::write(&path, prototype).expect("a prototype");
    let path = path.to_str().expect("a path in UTF-8");
    let fixed = ["-q", "-f", "-K", "-d", "agcount=4", "-p", path];
    run("mkfs.xfs", &[&fixed, arguments].concat(), &image.path).then_some(image)
}

/// The lines of a directory in a prototype of mkfs.xfs.
fn describe(directory: &Path, prototype: &mut String) {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        if path.is_dir() {
            *prototype += &format!("{name} d--755 0 0\n");
            describe(&path, prototype);
            *prototype += "$\n";
        } else {
            *prototype += &format!("{name} ---644 0 0 {}\n", path.display());
        }
    }
}

/// A btrfs with such a tree; `None` without mkfs.btrfs.
pub fn btrfs(seed: u64, mib: u64, arguments: &[&str]) -> Option<Image> {
    let (image, tree) = (Image::new(mib << 20), tree(seed, 300));
    let from = tree.path().to_str().expect("a path in UTF-8");
    let fixed = ["-q", "-f", "--rootdir", from];
    run("mkfs.btrfs", &[&fixed, arguments].concat(), &image.path).then_some(image)
}

/// An NTFS with files in its root; `None` without ntfs-3g's tools.
pub fn ntfs(seed: u64, mib: u64, arguments: &[&str]) -> Option<Image> {
    let image = Image::new(mib << 20);
    let fixed = ["-F", "-Q", "-q"];
    if !run("mkntfs", &[&fixed, arguments].concat(), &image.path) {
        return None;
    }
    let (mut rng, source) = (Rng::new(seed), image.path.with_extension("source"));
    for number in 0..60 {
        let mut bytes = vec![0; rng.pick(&[700, 5_000, 60_000]) + rng.index(4096)];
        rng.fill(&mut bytes);
        bytes[..4].copy_from_slice(b"\x1f\x8b\x08\0");
        fs::write(&source, bytes).expect("a file");
        // runs: ntfscp
        let copied = Command::new("ntfscp")
            .args(["-q", "-f"])
            .args([&image.path, &source])
            .arg(format!("a file with number {number}"))
            .env("PATH", path())
            .output();
        assert!(copied.expect("ntfscp is where mkntfs is").status.success());
    }
    Some(image)
}
