//! Files that a test adds to the guest: an archive behind the initramfs's own, which the kernel
//! unpacks over it (its Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Invariant: a directory comes before what is in it, and once. Used by the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// See the module. In cpio's format `newc`.
#[derive(Default)]
pub struct Overlay {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

impl Overlay {
    /// A file that may be run, by its absolute path in the guest.
    pub fn file(&mut self, path: &str, contents: &[u8]) {
        let name = path.strip_prefix('/').expect("an absolute path");
        for (at, _) in name.match_indices('/') {
            if self.directories.insert(name[..at].to_string()) {
                self.entry(&name[..at], DIRECTORY, &[]);
            }
        }
        self.entry(name, PROGRAM, contents);
    }

    /// A program of this machine without its debug information, and the libraries that it needs.
    ///
    /// # Errors
    /// Which tool or file is missing.
    pub fn program(&mut self, path: &str, program: &Path, scratch: &Path) -> Result<(), String> {
        let stripped = scratch.join("stripped");
        let tool = |name: &str, command: &mut Command| {
            let output = command.output().map_err(|error| format!("{name}: {error}"))?;
            let said = String::from_utf8_lossy(&output.stderr);
            output.status.success().then_some(output.stdout).ok_or(format!("{name}: {said}"))
        };
        tool("strip", Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
        let libraries = tool("ldd", Command::new("ldd").arg(program))?;
        let libraries = String::from_utf8_lossy(&libraries).into_owned();
        let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            self.file(library, &read(Path::new(library))?);
        }
        self.file(path, &read(&stripped)?);
        fs::remove_file(&stripped).map_err(|error| error.to_string())
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let length = u32::try_from(contents.len()).expect("a small file");
        let named = u32::try_from(name.len() + 1).expect("a short name");
        // inode, mode, user, group, links, time, length, two device numbers, two more, name, sum
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, named, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_headers_names_and_contents_on_multiples_of_four() {
        let mut overlay = Overlay::default();
        overlay.file("/a/b", b"hello");
        overlay.file("/a/c", b"");
        let bytes = overlay.finish();
        let text = String::from_utf8_lossy(&bytes);
        let wanted = concat!(
            "0707010000000100",
            "0041ed",
            "0000000000000000",
            "00000001",
            "00000000",
            "00000000",
            "00000000000000000000000000000000",
            "00000002",
            "00000000",
            "a\0",
            "0707010000000200",
            "0081ed",
            "0000000000000000",
            "00000001",
            "00000000",
            "00000005",
            "00000000000000000000000000000000",
            "00000004",
            "00000000",
            "a/b\0\0\0",
            "hello\0\0\0",
        );
        assert!(text.starts_with(wanted), "{text}");
        assert_eq!(text.matches("070701").count(), 4, "one directory, two files, the end");
        assert!(text.contains("TRAILER!!!\0") && bytes.len() % 4 == 0);
    }
}
