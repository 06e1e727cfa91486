//! The worked examples of the documents run as they are printed.

use std::path::Path;
use std::process::Command;

use crate::support::Dir;

/// The lines of the first block of commands behind a heading.
fn block<'a>(page: &'a str, heading: &str) -> &'a str {
    let from = page.find(heading).unwrap_or_else(|| panic!("no '{heading}'"));
    let block = page[from..].split("```sh\n").nth(1).expect("a block of commands");
    block.split("```").next().expect("its end")
}

/// Runs the lines in an empty directory; gives what each of them printed, and its exit code.
fn run(lines: &str, dir: &Dir) -> Vec<(String, String, Option<i32>)> {
    let bin = Path::new(env!("CARGO_BIN_EXE_raidlab")).parent().expect("a directory");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    let run = lines.map(|line| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(dir.path()).env("PATH", &path);
        let output = command.output().expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (line.to_string(), text, output.status.code())
    });
    run.collect()
}

/// The text of a document.
pub fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_rescue_example_gives_the_contents_back() {
    let dir = Dir::new();
    let ran = run(block(&page("docs/rescue.md"), "## Try it"), &dir);
    let mut hashes = Vec::new();
    for (line, text, code) in &ran {
        // Two of five are gone: a finding.
        let expected = if line.contains("status") { 1 } else { 0 };
        assert_eq!(*code, Some(expected), "{line}: {text}");
        if line.contains("--sha256") {
            let hash = text.lines().find_map(|line| line.strip_suffix("  -"));
            hashes.push(hash.unwrap_or_else(|| panic!("{line}: {text}")).to_string());
        }
    }
    assert_eq!(hashes.len(), 2);
    assert_eq!(hashes[0], hashes[1]);
    let names = dir.names();
    assert!(names.contains(&"array.img".to_string()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with('n')), "a dry run left files: {names:?}");
}

#[test]
fn the_minute_without_disks_runs() {
    let dir = Dir::new();
    let ran = run(block(&page("README.md"), "An array on image files"), &dir);
    assert!(ran.len() >= 4);
    for (line, text, code) in ran {
        let expected = if line.contains("status") { 1 } else { 0 };
        assert_eq!(code, Some(expected), "{line}: {text}");
    }
}
