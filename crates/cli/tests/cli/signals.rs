//! Ctrl-C in the middle: what was measured is shown, and nothing is left behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Dir, warnings};

/// A bench of a cell for each workload on paced files, each of them longer than any test should
/// wait.
fn start(dir: &Dir, workloads: &str, more: &str) -> Child {
    let words = format!(
        "bench --real-time --members paced:hdd-2007 --level raid0 --disks 2 --size 16M --dir {} \
         --workload {workloads} {more}",
        dir.path()
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// What is left of a bench that was stopped in its first cell: the record and stderr. Nothing says
/// from outside that a sample was taken, so it is given more time until one was.
fn stopped_in_a_cell(dir: &Dir, workloads: &str, signal: Signal) -> (serde_json::Value, String) {
    for wait_ms in (0..7).map(|attempt| 250 << attempt) {
        let mut child = start(dir, workloads, "--warm-up 0 --seconds 0.1 --runs 5000 --json");
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut rest = wait_for(&mut child, ", about ");
        std::thread::sleep(Duration::from_millis(wait_ms));
        send(&child, signal);
        let (mut out, mut err) = (String::new(), String::new());
        rest.read_to_string(&mut err).expect("UTF-8");
        stdout.read_to_string(&mut out).expect("UTF-8");
        assert_eq!(child.wait().expect("a child").code(), Some(130), "{err}");
        let record: serde_json::Value = serde_json::from_str(&out).expect("a record");
        if !record["cells"].as_array().expect("a list").is_empty() {
            return (record, err);
        }
    }
    panic!("no sample of 0.1 s within 16 s");
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
    let (record, err) = stopped_in_a_cell(&dir, "seq-read,seq-write", Signal::INT);
    let cells = record["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 1, "{err}");
    let samples = cells[0]["samples"].as_array().expect("a list").len();
    assert!((1..5000).contains(&samples), "{samples} samples");
    assert_eq!(cells[0]["verified"], true, "every read was checked while the clock ran");
    assert!(warnings(&cells[0]).contains("stopped early"), "{record}");
    assert!(err.contains("stopped; 1 of 2 cells measured") && err.contains("RAID 0"), "{err}");
    assert_eq!(dir.names(), [""; 0], "member files are left behind");
}

#[test]
fn what_was_written_and_not_read_back_is_not_called_verified() {
    let dir = Dir::new();
    let (record, err) = stopped_in_a_cell(&dir, "rand-write,seq-read", Signal::TERM);
    let cells = record["cells"].as_array().expect("a list");
    assert_eq!((cells.len(), cells[0]["workload"].as_str()), (1, Some("rand-write")), "{err}");
    assert!(cells[0]["verified"].is_null(), "{record}");
    assert!(warnings(&cells[0]).contains("not verified"), "{record}");
}

#[test]
fn ctrl_c_before_anything_was_measured_ends_in_order() {
    let dir = Dir::new();
    let json = dir.file("record.json");
    let mut child = start(&dir, "seq-read,seq-write", &format!("--warm-up 600 --json={json}"));
    let mut stdout = child.stdout.take().expect("a pipe");
    let _rest = wait_for(&mut child, ", about ");
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

/// Twice the memory may be an unexpectedly large amount to write.
#[test]
fn a_program_without_a_size_says_how_much_it_will_write() {
    let dir = Dir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(["bench", "--workload", "bonnie++", "--target", &format!("path:{}", dir.path())]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let _rest = wait_for(&mut child, "creates files of ");
    send(&child, Signal::INT);
    assert_eq!(child.wait().expect("a child").code(), Some(130));
}

#[test]
fn killing_it_leaves_no_file() {
    let dir = Dir::new();
    let mut child =
        start(&dir, "seq-read,seq-write", "--warm-up 0 --seconds 0.05 --runs 1 --size 32M");
    let _rest = wait_for(&mut child, "[1/4");
    send(&child, Signal::KILL);
    assert_eq!(child.wait().expect("a child").signal(), Some(9));
    assert_eq!(dir.names(), [""; 0], "member files are left behind");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = Dir::new();
    let mut child = start(&dir, "seq-read,seq-write", "--warm-up 0 --seconds 0.05 --runs 1");
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}
