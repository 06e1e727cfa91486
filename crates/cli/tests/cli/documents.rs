//! The worked examples of the documents run as they are printed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use admin::serving::{ServeOptions, Serving};
use snapbox::assert_data_eq;

use crate::support::{Dir, raidlab};

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
    let mut hashes = Vec::new();
    for (line, text, code) in ran {
        let expected = if line.contains("status") { 1 } else { 0 };
        assert_eq!(code, Some(expected), "{line}: {text}");
        let words = text.split_whitespace();
        hashes.extend(words.filter(|word| word.len() == 64).map(str::to_string));
    }
    assert_eq!(hashes.len(), 2);
    assert_eq!(hashes[0], hashes[1]);
}

/// An array with an ext4 in it, in members of these names, 16 MiB each, that are in a directory.
fn array(dir: &Dir, level: &str, members: usize) -> Vec<String> {
    let disks: Vec<String> = (0..members).map(|disk| dir.file(&format!("d{disk}.img"))).collect();
    raidlab(&format!(
        "create --level {level} --raid-devices {members} --chunk 64K --file-size 16M --name data \
         --homehost none {}",
        disks.join(" ")
    ))
    .code(0);
    let files = dir.0.join("files");
    std::fs::create_dir(&files).expect("a directory");
    for number in 0..60_u8 {
        let text: Vec<u8> = (0..100_000).map(|at: u32| (at / 7) as u8 ^ number).collect();
        std::fs::write(files.join(format!("photo{number}.raw")), text).expect("a file");
    }
    let image = dir.file("fs.img");
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-L", "photos", "-d"]).arg(&files).args([&image, "45M"]);
    assert!(mkfs.status().expect("mkfs.ext4 runs").success());
    let contents = std::fs::read(&image).expect("an image");
    let serving = serving(&disks);
    serving.array().write_at(&contents, 0).expect("it is written");
    serving.stop().expect("it stops clean");
    std::fs::remove_dir_all(files).expect("it goes");
    std::fs::remove_file(image).expect("it goes");
    disks
}

fn serving(disks: &[String]) -> Serving {
    let names: Vec<OsString> = disks.iter().map(OsString::from).collect();
    Serving::start(&names, &ServeOptions::default()).expect("it starts")
}

fn change(path: &str, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("it opens");
    file.write_all_at(bytes, at).expect("it is written");
}

/// What each command of a heading's block prints is what the block says.
fn check(heading: &str, prepare: impl FnOnce(&Dir)) {
    let dir = Dir::new();
    prepare(&dir);
    let page = page("docs/rescue.md");
    let from = page.find(heading).unwrap_or_else(|| panic!("no '{heading}'"));
    let block = page[from..].split("```console\n").nth(1).expect("a block");
    let block = block.split("```").next().expect("its end");
    let mut steps = block.split("$ ");
    assert_eq!(steps.next(), Some(""), "a block begins with a command");
    for step in steps {
        let (line, expected) = step.split_once('\n').expect("a command is a line");
        // Both streams as a terminal shows them.
        let (_, text, _) = &run(&format!("{line} 2>&1"), &dir)[0];
        assert_data_eq!(format!("{line}\n{text}"), format!("{line}\n{expected}"));
    }
}

#[test]
fn a_disk_that_is_gone_is_shown_as_the_page_shows_it() {
    check("## A disk is gone", |dir| {
        array(dir, "5", 4);
        std::fs::remove_file(dir.file("d3.img")).expect("it goes");
    });
}

#[test]
fn a_disk_that_was_dropped_is_shown_as_the_page_shows_it() {
    check("## A disk was dropped some time ago", |dir| {
        let disks = array(dir, "5", 4);
        let old = std::fs::read(&disks[3]).expect("an image");
        let (others, new) = (disks[..3].join(" "), dir.file("new.img"));
        std::fs::write(&new, vec![0; 16 << 20]).expect("an image");
        raidlab(&format!("rebuild {others} --add {new}")).code(0);
        std::fs::write(&disks[3], old).expect("an image");
        std::fs::remove_file(&disks[0]).expect("it goes");
    });
}

#[test]
fn an_array_that_was_not_stopped_is_shown_as_the_page_shows_it() {
    check("## It was not stopped, and a disk is missing", |dir| {
        let disks = array(dir, "5", 4);
        let serving = serving(&disks);
        serving.array().write_at(&[7; 65536], 40 << 20).expect("it is written");
        // Not stopped: as after a crash.
        drop(serving);
        std::fs::remove_file(&disks[3]).expect("it goes");
    });
}

#[test]
fn superblocks_that_are_lost_are_guessed_as_the_page_shows_it() {
    check("## The superblocks are lost, or wrong", |dir| {
        let disks = array(dir, "5", 4);
        std::fs::remove_file(&disks[3]).expect("it goes");
        raidlab(&format!("zero-superblock {}", disks[..3].join(" "))).code(0);
    });
}

#[test]
fn a_copy_with_a_hole_is_read_as_the_page_shows_it() {
    check("## A disk cannot be read everywhere", |dir| {
        let disks = array(dir, "5", 4);
        std::fs::remove_file(&disks[3]).expect("it goes");
        change(&disks[1], 0x32_0000, &[0; 1 << 20]);
        let map = "# Mapfile. Created by GNU ddrescue version 1.27\n0x0 + 1\n0x0 0x320000 +\n\
                   0x320000 0x100000 -\n0x420000 0xBE0000 +\n";
        std::fs::write(dir.file("d1.map"), map).expect("a map");
    });
}

#[test]
fn a_wrong_block_is_corrected_as_the_page_shows_it() {
    check("## Redundancy and data contradict each other", |dir| {
        let disks = array(dir, "6", 5);
        let wrong: Vec<u8> = (0..8192_u32).map(|at| (at * 7 / 3) as u8 | 1).collect();
        change(&disks[2], 600 * 4096, &wrong);
    });
}
