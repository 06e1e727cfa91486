//! `watch`: live figures from `/proc` and `/sys`, or from directories in their place.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{self, Dir, raidlab};

/// An array of two members and a disk.
fn machine() -> Dir {
    let disks = ["sda1", "sdb1", "sdc", "md7"].iter().enumerate();
    let lines = disks.map(|(at, name)| format!("8 {at} {name} 1 0 8 1 1 0 8 1 0 2 2\n"));
    support::machine(&[
        ("proc/diskstats", &lines.collect::<String>()),
        ("sys/block/sdc/size", "8"),
        ("sys/block/sda/sda1/size", "8"),
        ("sys/block/md7/size", "8"),
        ("sys/block/md7/slaves/sda1/size", "8"),
        ("sys/block/md7/slaves/sdb1/size", "8"),
        ("sys/block/md7/md/level", "raid1"),
        ("sys/block/md7/md/dev-sda1/slot", "1"),
        ("sys/block/md7/md/dev-sdb1/slot", "0"),
    ])
}

#[test]
fn members_stand_below_their_array() {
    let dir = machine();
    let words = format!("watch --root {} --interval 10ms --count 2", dir.path());
    let ran = raidlab(&words).code(0);
    let reports: Vec<&str> = ran.stdout.split("\n\n").collect();
    assert_eq!(reports.len(), 2, "{}", ran.stdout);
    let first = |line: &str| line.split_whitespace().next().unwrap_or("").to_string();
    let names: Vec<String> = reports[1].lines().map(first).collect();
    assert_eq!(names, ["cpu", "device", "md7", "sdb1", "sda1", "sdc"]);
    assert!(!ran.stdout.contains('\x1b'), "no terminal, no colour");
    let ran = raidlab(&format!("{words} --json md7")).code(0);
    let frames: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0]["groups"].as_array().expect("a list").len(), 1);
    assert_eq!(frames[0]["groups"][0]["disks"][0]["slot"], 0);
    assert_eq!(frames[0]["groups"][0]["array"]["reads_per_s"], 0.0);
    let aside = Dir::new();
    let file = aside.file("watch.json");
    std::fs::write(&file, "no earlier output").expect("a file");
    raidlab(&format!("{words} --json={file} md7")).code(2);
    std::fs::write(&file, "{\"from\": \"before\"}").expect("a file");
    let ran = raidlab(&format!("{words} --json={file} md7")).code(0);
    assert!(ran.stdout.contains("device"), "{}", ran.stdout);
    let lines = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let frame: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(frame["groups"].as_array().expect("a list").len(), 1);
}

#[test]
fn colours_follow_the_environment() {
    let dir = machine();
    for (set, wanted) in [("CLICOLOR_FORCE", true), ("NO_COLOR", false), ("UNSET", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        command.args(["watch", "--interval", "10ms", "--count", "1", "--root", dir.path()]);
        command.env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR").env(set, "1");
        let output = command.stdin(Stdio::null()).output().expect("the program starts");
        assert_eq!(output.stdout.contains(&0x1b), wanted, "{set}");
    }
}

#[test]
fn what_is_no_disk_is_named() {
    let dir = machine();
    let ran = raidlab(&format!("watch --root {} /dev/sdz", dir.path())).code(2);
    let expected = "raidlab: /dev/sdz: no such block device; there are sda1, sdb1, sdc, md7\n";
    assert_eq!(ran.stderr, expected);
    std::fs::write(dir.0.join("proc/diskstats"), "8 0 sda 1 0 x 1 1 0 8 1 0 2 2\n").expect("wrote");
    let ran = raidlab(&format!("watch --root {}", dir.path())).code(2);
    assert!(ran.stderr.contains("diskstats: line 1: field 6, 'x', is no number"), "{}", ran.stderr);
    let ran = raidlab("watch --interval 0").code(2);
    assert!(ran.stderr.contains("--interval"), "{}", ran.stderr);
}

#[test]
fn it_runs_until_ctrl_c_and_exits_with_0() {
    let dir = machine();
    let mut child = Command::new(env!("CARGO_BIN_EXE_raidlab"))
        .args(["watch", "--root", dir.path(), "--interval", "20ms"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let seen = lines.by_ref().take(20).count();
    assert_eq!(seen, 20, "it continues");
    kill_process(Pid::from_child(&child), Signal::INT).expect("the program is there");
    lines.for_each(drop);
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let dir = machine();
    let mut child = Command::new(env!("CARGO_BIN_EXE_raidlab"))
        .args(["watch", "--root", dir.path(), "--interval", "10ms"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn this_machine_can_be_watched_without_root() {
    let Ok(disks) = std::fs::read_to_string("/proc/diskstats") else {
        println!("skipped: no /proc/diskstats here");
        return;
    };
    let Some(name) = disks.lines().find_map(|line| line.split_whitespace().nth(2)) else {
        println!("skipped: no disks here");
        return;
    };
    let ran = raidlab(&format!("watch {name} --count 1 --interval 50ms --json")).code(0);
    let frame: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let seconds = frame["seconds"].as_f64().expect("a number");
    assert!(seconds >= 0.04, "{frame}");
    assert!(frame["cpu"]["user"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)));
}

#[test]
fn a_page_for_other_hosts_needs_a_token_and_tls() {
    let dir = machine();
    let refused = |words: &str| {
        let words = format!("watch --root {} {words}", dir.path());
        raidlab(&words).code(2).stderr
    };
    let open = refused("--web=0.0.0.0:0");
    assert!(open.contains("needs a token and a certificate"), "{open}");
    dir.write("token", "0123456789abcdef\n");
    let token = dir.file("token");
    let open = refused(&format!("--web=[::]:0 --web-token {token}"));
    assert!(open.contains("others can read it: chmod 600"), "{open}");
    let name = refused("--web=nas:80");
    assert!(name.contains("no address"), "{name}");
    refused("--web --json");
    refused("--web-token x");
}
