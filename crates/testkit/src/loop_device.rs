//! Loop devices and their partitions, as `losetup` and `addpart` make them.
//!
//! *Invariant*: what is made here is detached when it is dropped. Where the kernel or the user may
//! not have one, the constructors say so and give `None`: the test is skipped.

use std::path::Path;
use std::process::Command;

/// A loop device by its name, `/dev/loop0`.
#[derive(Debug)]
pub struct Loop(pub String);

impl Loop {
    /// Of a whole file.
    pub fn over(file: impl AsRef<Path>) -> Option<Loop> {
        Loop::with(&[&file.as_ref().display().to_string()])
    }

    /// Of `bytes` bytes of a file, from byte `from` on.
    pub fn over_part(file: impl AsRef<Path>, from: u64, bytes: u64) -> Option<Loop> {
        let (from, bytes) = (from.to_string(), bytes.to_string());
        let file = file.as_ref().display().to_string();
        Loop::with(&["--offset", &from, "--sizelimit", &bytes, &file])
    }

    /// With these arguments of `losetup`, the file among them.
    pub fn with(arguments: &[&str]) -> Option<Loop> {
        let made = run("losetup", &[&["--show", "-f"], arguments].concat());
        if made.is_none() {
            println!("skipped: no loop device can be had here");
        }
        made.map(Loop)
    }

    /// Its partition of that number, with first byte and length: `/dev/loop0p1`.
    pub fn partition(&self, number: u32, from: u64, bytes: u64) -> Option<String> {
        let [text, from, sectors] =
            [u64::from(number), from / 512, bytes / 512].map(|number| number.to_string());
        let name = format!("{}p{number}", self.0);
        let made = run("addpart", &[&self.0, &text, &from, &sectors]);
        if made.is_none() || !Path::new(&name).exists() {
            println!("partitions skipped: they cannot be made here");
            return None;
        }
        Some(name)
    }

    /// Looks at the size of the file again.
    pub fn set_capacity(&self) {
        run("losetup", &["-c", &self.0]);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for number in ["1", "2"] {
            run("delpart", &[&self.0, number]);
        }
        run("losetup", &["-d", &self.0]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    // runs: losetup, addpart, delpart
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
