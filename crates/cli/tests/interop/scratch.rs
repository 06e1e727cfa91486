//! A directory for the images of one test.
//!
//! Invariant: it is empty at the start, and gone at the end unless the test failed: then its images
//! and logs are what there is to look at.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Removed when it is dropped, but not by a panic.
pub struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// `name` is unique among the tests of this program.
    pub fn new(name: &str) -> Scratch {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(name);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("{}: {error}", directory.display())
            }
            _ => fs::create_dir_all(&directory).expect("a directory for the test"),
        }
        Scratch { directory }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// A sparse image of zeroes.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.directory.join(name);
        let file = File::create(&path).expect("an image is created");
        file.set_len(bytes).expect("an image is sized");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("left for you to look at: {}", self.directory.display());
        } else {
            // A directory that stays costs space and nothing else.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}
