//! Images of file systems, made by their own tools in a temporary directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

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
