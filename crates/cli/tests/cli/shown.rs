//! What is printed for people: names from disks move no terminal and forge no line, a stdout that
//! takes nothing is an error, and a member without a superblock is one exit code.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Dir, raidlab};

const NAME: &str = "x\u{1b}[2J\u{7}\nState : false";
const SHOWN: &str = r"x\x1b[2J\x07\nState : false";

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    program(words).output().expect("it starts")
}

/// Two members of an array whose name, like their own, holds control characters.
fn evil(dir: &Dir) -> [String; 2] {
    let members = ["a", "b"].map(|file| dir.file(&format!("{file}\u{1b}]0;\u{7}\nName : good")));
    let [a, b] = &members;
    let words = ["create", "-l", "1", "-n", "2", "--homehost", "none", "--file-size", "8M"];
    harmless("create", &run(&[&words[..], &["-N", NAME, a, b]].concat()));
    let made = run(&[&words[..], &[a, b]].concat());
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    harmless("create", &made);
    members.iter().for_each(|member| rename(member));
    members
}

/// Puts the name, which `create` refuses, into a superblock 1.2 and mends the checksum.
fn rename(member: &str) {
    let file = File::options().read(true).write(true).open(member).expect("a member");
    let mut block = [0; 1024];
    file.read_exact_at(&mut block, 4096).expect("read");
    block[32..64].fill(0);
    block[32..32 + NAME.len()].copy_from_slice(NAME.as_bytes());
    block[216..220].fill(0);
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four"));
    let len = 256 + 2 * word(220) as usize;
    let sum: u64 = (0..len / 4).map(|index| u64::from(word(4 * index))).sum();
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&block, 4096).expect("written");
}

fn harmless(what: &str, output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(bytes);
        let bad = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(bad), "{what}: {text:?}");
        let forged = |line: &str| ["State : false", "Name : good"].contains(&line.trim());
        assert!(!text.lines().any(forged), "{what}: {text}");
    }
}

#[test]
fn names_from_disks_and_of_files_move_no_terminal_and_forge_no_line() {
    let dir = Dir::new();
    let [a, b] = &evil(&dir);
    let (out, stranger) = (dir.file("out\u{1b}[2J"), dir.file("s\u{1b}[2J\nName : good"));
    std::fs::write(&stranger, [0; 4096]).expect("written");
    for words in [
        &["examine", a, b, &stranger][..],
        &["examine", "--bitmap", a],
        &["examine", "--bad-blocks", a],
        &["detail", a, b],
        &["detail", a, &stranger],
        &["detail", a, "--array", "none\u{1b}[2J"],
        &["status", a, b, &stranger],
        &["status", dir.path()],
        &["dump", a, b, "--sha256"],
        &["dump", a, &stranger, "-o", &out],
        &["dump", a, a, "-o", &out],
        &["create", "-l", "1", "-n", "2", a, b],
        &["create", "-l", "1", "-n", "2", "--force", "--dry-run", a, b],
        &["report", &stranger],
        &["compare", &stranger, &stranger],
        &["bench", "--no-such\u{1b}[2J"],
    ] {
        harmless(&format!("{words:?}"), &run(words));
    }
    let text = String::from_utf8(run(&["examine", a]).stdout).expect("UTF-8");
    assert!(text.contains(&format!("Name : {SHOWN}")), "{text}");
    let json: Value = serde_json::from_slice(&run(&["examine", "--json", a]).stdout).expect("JSON");
    let member = &json["members"][0];
    assert_eq!((&member["member"], &member["superblock"]["name"]), (&a[..].into(), &NAME.into()));
}

#[test]
fn a_stdout_that_is_closed_or_full_is_an_error() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    raidlab(&format!("create -l 1 -n 2 --file-size 8M {a} {b}")).code(0);
    let words = [
        format!("examine {a}"),
        format!("examine --json {a}"),
        format!("detail {a} {b}"),
        format!("status {a} {b}"),
        format!("dump --sha256 {a} {b}"),
        format!("create -l 1 -n 2 --dry-run --force {a} {b}"),
        "--help".into(),
        "bench --help".into(),
        "--version".into(),
    ];
    for words in words {
        let words: Vec<&str> = words.split(' ').collect();
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let full = program(&words).stdout(full).output().expect("it starts");
        let stderr = String::from_utf8_lossy(&full.stderr);
        assert_eq!(full.status.code(), Some(2), "{words:?} > /dev/full: {stderr}");
        assert!(stderr.contains("stdout: No space left"), "{words:?} > /dev/full: {stderr}");
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_raidlab")]).args(&words);
        let closed = shell.output().expect("sh");
        let stderr = String::from_utf8_lossy(&closed.stderr);
        assert_eq!(closed.status.code(), Some(2), "{words:?} >&-: {stderr}");
        assert!(stderr.contains("stdout: it is closed"), "{words:?} >&-: {stderr}");
        // As other programs open it for what they start.
        let both = File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
        let both = program(&words).stdout(both).output().expect("it starts");
        assert_eq!(both.status.code(), Some(0), "{words:?} > /dev/null");
    }
}

#[test]
fn a_named_member_without_a_superblock_is_one_exit_code() {
    let dir = Dir::new();
    let (a, b, none) = (dir.file("a"), dir.file("b"), dir.file("none"));
    raidlab(&format!("create -l 1 -n 2 --file-size 8M {a} {b}")).code(0);
    std::fs::write(&none, vec![0; 1 << 20]).expect("written");
    for verb in ["examine", "status"] {
        let ran = raidlab(&format!("{verb} {none}")).code(1);
        assert!(ran.stdout.contains(&none), "{verb}: {}", ran.stdout);
    }
    // There is no array; the exit code of an error never comes without a line that says what.
    for verb in ["detail", "dump --sha256"] {
        let ran = raidlab(&format!("{verb} {none}")).code(2);
        assert!(ran.stderr.contains("no array among the members"), "{verb}: {}", ran.stderr);
    }
    for verb in ["examine", "detail", "status"] {
        let ran = raidlab(&format!("{verb} {a} {b} {none}")).code(1);
        assert!(ran.stdout.contains(&none), "{verb}: {}", ran.stdout);
        let ran = raidlab(&format!("{verb} {a} {b} {none}-not-there")).code(2);
        assert!(ran.stderr.contains("No such file"), "{verb}: {}", ran.stderr);
        raidlab(&format!("{verb} {a} {b}")).code(0);
    }
    // What was only found in a directory was not called a member.
    raidlab(&format!("status {}", dir.path())).code(0);
}
