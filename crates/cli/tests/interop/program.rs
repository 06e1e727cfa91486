//! The program itself, beside mdadm: `raidlab create`, `examine`, `dump`, `rebuild` and `scrub`.
//!
//! Invariant: nothing of the program's code is used here but through its command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::matrix::Shape;

fn raidlab<'a>(words: &str, images: impl IntoIterator<Item = &'a Path>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    // The guest's time zone.
    command.args(words.split_whitespace()).args(images).env("TZ", "UTC");
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "raidlab {words}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn paths(images: &[PathBuf]) -> impl Iterator<Item = &Path> {
    images.iter().map(PathBuf::as_path)
}

/// Makes the array over images of zeroes.
pub fn create(shape: &Shape, images: &[PathBuf]) {
    create_as(&format!("{} --name interop", shape.create_options()), images);
}

/// The same, with options of one's own; `images` are the members and then the spares.
pub fn create_as(options: &str, images: &[PathBuf]) {
    raidlab(&format!("create {options} --assume-clean --homehost none"), paths(images));
}

/// Makes the array over images that hold anything; no resync runs yet.
pub fn create_unsynced(options: &str, images: &[PathBuf]) {
    raidlab(&format!("create {options} --force --no-resync --homehost none"), paths(images));
}

/// What `raidlab rebuild` has done, which is all that was to be done.
pub fn rebuild(options: &str, images: &[PathBuf], add: &[PathBuf]) -> Value {
    let new = add.iter().flat_map(|image| [Path::new("--add"), image]);
    let said = raidlab(&format!("rebuild {options} --json"), paths(images).chain(new));
    serde_json::from_str(&said).expect("JSON")
}

/// Why `raidlab rebuild` refuses an array.
pub fn rebuild_refused(images: &[PathBuf]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    let output = command.arg("rebuild").args(paths(images)).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

/// SHA-256 of the contents, from those members that can serve them.
pub fn dumped_sha256(images: &[PathBuf]) -> String {
    let said = raidlab("dump --sha256", paths(images));
    said.split_whitespace().next().expect("a hash").into()
}

/// Writes the contents into a file.
pub fn dump(images: &[PathBuf], to: &Path) {
    let to = to.to_str().expect("UTF-8");
    raidlab(&format!("dump -o {to}"), paths(images));
}

/// SHA-256 of one of the volumes of these members, or what is said instead.
pub fn volume(name: &str, images: &[&PathBuf]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(["dump", "--sha256", "--array", name]).args(images);
    let output = command.output().expect("the program starts");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.split_whitespace().next().expect("a hash").into())
}

/// What `raidlab scrub --check` finds, which is something.
pub fn scrub_finds(images: &[PathBuf]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    let output = command.args(["scrub", "--check", "--json"]).args(paths(images)).output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What `raidlab scrub` finds.
pub fn scrub(options: &str, images: &[PathBuf]) -> Value {
    let said = raidlab(&format!("scrub {options} --json"), paths(images));
    serde_json::from_str(&said).expect("JSON")
}

/// What `raidlab examine` says about a member, as text and as JSON.
pub struct Examined {
    text: String,
    json: Value,
}

/// Examines a member as it is now.
pub fn examine(image: &Path) -> Examined {
    let json = raidlab("examine --homehost elsewhere --json", [image]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    Examined {
        text: raidlab("examine --homehost elsewhere", [image]),
        json: json["members"][0].clone(),
    }
}

/// The lines behind the device's name, without what differs between the guest and this machine: the
/// device nodes in the table of a 0.90 superblock, and whose array it is.
fn lines(text: &str) -> Vec<String> {
    let lines = text.trim_end().lines().skip_while(|line| !line.contains(" : "));
    let without = |line: &str, behind| line.split(behind).next().unwrap_or_default().to_string();
    let lines = lines.map(|line| without(&without(line, "   /dev/"), " (local to host "));
    lines.map(|line| line.trim_end().to_string()).collect()
}

impl Examined {
    /// mdadm has examined the same superblock: it must have said the same, line by line.
    pub fn compare(&self, mdadm: &str, context: &str) {
        assert_eq!(lines(&self.text), lines(mdadm), "{context}: raidlab (left), mdadm (right)");
        let shown = |label: &str| {
            let of = |line: &&str| line.split(" : ").next().is_some_and(|l| l.trim() == label);
            let line = mdadm.lines().find(of);
            let line = line.unwrap_or_else(|| panic!("{context}: no {label} in {mdadm}"));
            line.split_once(" : ").expect("a value").1.trim().to_string()
        };
        let sb = &self.json["superblock"];
        // mdadm shows a 0.90 count of 64 bits in two halves, unless the upper is 0.
        assert_eq!(shown("Events"), sb["events"].to_string(), "{context}");
        assert_eq!(shown("State") == "clean", sb["clean"] == true, "{context}");
        assert_eq!(shown("Raid Devices"), sb["raid_disks"].to_string(), "{context}");
        assert!(shown("Checksum").ends_with("correct"), "{context}: {mdadm}");
        assert_eq!(self.json["checksum"]["correct"], true, "{context}");
        assert_eq!(self.json["kernel_refusals"], Value::Array(Vec::new()), "{context}");
    }
}
