//! Ctrl-C in the middle: what was measured is shown, and nothing is left behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Dir, warnings};

/// A bench of two cells on paced files, each of them longer than any test should wait.
fn start(dir: &Dir, more: &str) -> Child {
    let words = format!(
        "bench --members paced:hdd-2007 --level raid0 --disks 2 --size 16M --dir {} \
         --workload seq-read,seq-write --warm-up 0 {more}",
        dir.path()
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Reads stderr until a line holds `text`; gives back what comes after it, to be read at the end.
fn wait_for(child: &mut Child, text: &str) -> BufReader<std::process::ChildStderr> {
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(lines.read_line(&mut line).expect("UTF-8") > 0, "ended before '{text}'");
    }
    lines
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the program is there");
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let dir = Dir::new();
    let mut child = start(&dir, "--seconds 0.3 --runs 20 --json -");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut rest = wait_for(&mut child, "array(s)");
    std::thread::sleep(std::time::Duration::from_secs(2));
    send(&child, Signal::INT);
    let (mut out, mut err) = (String::new(), String::new());
    rest.read_to_string(&mut err).expect("UTF-8");
    stdout.read_to_string(&mut out).expect("UTF-8");
    assert_eq!(child.wait().expect("a child").code(), Some(130), "{err}");
    let record: serde_json::Value = serde_json::from_str(&out).expect("a record");
    let cells = record["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 1, "{err}");
    let samples = cells[0]["samples"].as_array().expect("a list").len();
    assert!((1..20).contains(&samples), "{samples} samples");
    assert_eq!(cells[0]["verified"], true, "every read was checked while the clock ran");
    assert!(warnings(&cells[0]).contains("stopped early"), "{out}");
    assert!(err.contains("stopped; 1 of 2 cells measured") && err.contains("RAID 0"), "{err}");
    assert_eq!(dir.names(), [""; 0], "member files are left behind");
}

#[test]
fn what_was_written_and_not_read_back_is_not_called_verified() {
    let dir = Dir::new();
    let mut child = start(&dir, "--seconds 0.2 --runs 100 --json - --workload rand-write");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut rest = wait_for(&mut child, "array(s)");
    std::thread::sleep(std::time::Duration::from_secs(2));
    send(&child, Signal::TERM);
    let (mut out, mut err) = (String::new(), String::new());
    rest.read_to_string(&mut err).expect("UTF-8");
    stdout.read_to_string(&mut out).expect("UTF-8");
    assert_eq!(child.wait().expect("a child").code(), Some(130), "{err}");
    let record: serde_json::Value = serde_json::from_str(&out).expect("a record");
    let cells = record["cells"].as_array().expect("a list");
    let writing = cells.iter().filter(|cell| cell["workload"] != "seq-read");
    for cell in writing {
        assert!(cell["verified"].is_null(), "{cell}");
        assert!(warnings(cell).contains("not verified"), "{cell}");
    }
}

#[test]
fn ctrl_c_before_anything_was_measured_ends_in_order() {
    let dir = Dir::new();
    let json = dir.file("record.json");
    let mut child = start(&dir, &format!("--json {json}"));
    let mut stdout = child.stdout.take().expect("a pipe");
    let _rest = wait_for(&mut child, "array(s)");
    send(&child, Signal::INT);
    let mut out = String::new();
    stdout.read_to_string(&mut out).expect("UTF-8");
    assert_eq!(child.wait().expect("a child").code(), Some(130));
    assert_eq!(out, "nothing was measured\n", "and no empty table");
    let record = std::fs::read_to_string(&json).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!(record["cells"].as_array().expect("a list").len(), 0);
    assert_eq!(dir.names(), ["record.json"]);
}

#[test]
fn killing_it_leaves_no_file() {
    let dir = Dir::new();
    let mut child = start(&dir, "--seconds 0.05 --runs 1 --size 32M");
    let _rest = wait_for(&mut child, "[1/4");
    send(&child, Signal::KILL);
    assert_eq!(child.wait().expect("a child").signal(), Some(9));
    assert_eq!(dir.names(), [""; 0], "member files are left behind");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = Dir::new();
    let mut child = start(&dir, "--seconds 0.05 --runs 1");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}
