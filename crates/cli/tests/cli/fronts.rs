//! What a server does whichever front is used, and what it says of its end and of its members.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nbd::Operation;
use rustix::process::Signal;

use crate::killed_servers::Session;
use crate::serve::{Server, has_fuse, make, open, order, pattern, status};
use crate::support::{Dir, until};

/// Writes to a part of a block, [`ROUNDS`] times, and reads it back: how often it was not there.
fn lost(part: Range<u64>, mut write: impl FnMut(&[u8], u64), read: impl Fn(&mut [u8], u64)) -> u64 {
    let (mut lost, len) = (0, (part.end - part.start) as usize);
    for round in 0..ROUNDS {
        let (data, mut back) = (vec![round as u8; len], vec![0; len]);
        write(&data, part.start);
        read(&mut back, part.start);
        lost += u64::from(back != data);
    }
    lost
}

/// Writes by each front.
const ROUNDS: u32 = 2000;

fn lost_by_file(path: &str, part: Range<u64>) -> u64 {
    let file = open(path);
    let write = |data: &[u8], at| file.write_all_at(data, at).expect("it is written");
    lost(part, write, |back, at| file.read_exact_at(back, at).expect("it is read"))
}

fn lost_by_nbd(socket: &str, part: Range<u64>) -> u64 {
    let session = RefCell::new(Session::connect_to(socket, "data"));
    let write = |data: &[u8], offset| {
        let length = data.len() as u32;
        let mut session = session.borrow_mut();
        session.send(Operation::Write { offset, length, fua: false }, data).expect("it is there");
        session.receive().expect("it answers");
    };
    let read = |back: &mut [u8], at| {
        let read = session.borrow_mut().read(at as usize, back.len());
        back.copy_from_slice(&read);
    };
    lost(part, write, read)
}

#[test]
fn parts_of_a_block_that_two_fronts_write_are_both_kept() {
    if !has_fuse() {
        return;
    }
    let dir = Dir::new();
    let (one, other, socket) = (dir.file("one"), dir.file("other"), dir.file("nbd"));
    let words = "--level raid5 --members mem*4 --size 1M --name data";
    let fronts = format!("--fuse {one} --fuse {other} --nbd unix:{socket}");
    let server = Server::start(&dir, &format!("{words} {fronts}"));
    let lost = std::thread::scope(|scope| {
        let first = scope.spawn(|| lost_by_file(&one, 0..96));
        let second = scope.spawn(|| lost_by_file(&other, 256..352));
        let third = scope.spawn(|| lost_by_nbd(&socket, 400..496));
        [first, second, third].map(|it| it.join().expect("it ends"))
    });
    assert_eq!(lost, [0; 3], "acknowledged writes, of {ROUNDS} each, are lost");
    assert_eq!(server.end(Signal::INT).0, Some(0));
}

/// The lines of the program that is run for each event, of one kind.
fn lines(log: &str, event: &str) -> Vec<String> {
    let all = std::fs::read_to_string(log).unwrap_or_default();
    all.lines().filter(|line| line.starts_with(event)).map(str::to_owned).collect()
}

/// A program that logs its arguments, and the log.
fn logger(dir: &Dir) -> (String, String) {
    let (log, program) = (dir.file("events"), dir.file("program"));
    std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {log}\n")).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    (program, log)
}

#[test]
fn events_name_the_device_that_failed_and_not_the_one_that_has_its_slot_now() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "");
    let (program, log) = logger(&dir);
    let socket = dir.file("nbd");
    let words = format!("{} --nbd unix:{socket} --program {program}", disks.join(" "));
    let server = Server::start(&dir, &words);
    let spare = |name: &str| {
        let path = dir.file(name);
        std::fs::File::create(&path).expect("an image").set_len(16 << 20).expect("its size");
        path
    };
    // A spare has the slot at once.
    let first = spare("first.img");
    order(&dir, &format!("add data {first}")).code(0);
    order(&dir, "fail data 1").code(0);
    until("the rebuild", || status(&dir)["degraded"] == 0);
    // And a device that is added at once.
    let second = spare("second.img");
    order(&dir, "fail data 2").code(0);
    order(&dir, &format!("add data {second}")).code(0);
    until("the rebuild", || status(&dir)["degraded"] == 0);
    until("the events", || lines(&log, "SpareActive").len() == 2);
    let expected = |event: &str, names: [&str; 2]| names.map(|name| format!("{event} data {name}"));
    assert_eq!(lines(&log, "Fail "), expected("Fail", [&disks[1], &disks[2]]));
    assert_eq!(lines(&log, "SpareActive"), expected("SpareActive", [&first, &second]));
    assert_eq!(lines(&log, "DegradedArray").len(), 2);
    // The slot's former device is still meant by its number, until another one of it fails.
    order(&dir, "remove data 1").code(0);
    order(&dir, "remove data 2").code(0);
    until("the events", || lines(&log, "Removed").len() == 2);
    assert_eq!(lines(&log, "Removed"), expected("Removed", [&disks[1], &disks[2]]));
    let detail = order(&dir, "detail data").code(0).stdout;
    assert!(!detail.contains("faulty") && detail.contains("second.img"), "{detail}");
    assert_eq!(server.end(Signal::INT).0, Some(0));
}

#[test]
fn stop_says_that_the_array_could_not_be_marked_clean() {
    if !has_fuse() {
        return;
    }
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "");
    let file = dir.file("array");
    let server = Server::start(&dir, &format!("{} --fuse {file}", disks.join(" ")));
    open(&file).write_all_at(&pattern(1 << 20, 5), 0).expect("it is written");
    for disk in &disks {
        std::fs::File::options().write(true).open(disk).expect("an image").set_len(0).expect("cut");
    }
    let ran = order(&dir, "stop data").code(1);
    let is_said = ran.stdout.starts_with("the server has ended, but the array is not clean: ");
    assert!(is_said, "{}", ran.stdout);
    drop(server);
    // A healthy one.
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "").join(" ");
    let _server = Server::start(&dir, &format!("{disks} --nbd unix:{}", dir.file("nbd")));
    assert_eq!(order(&dir, "stop data").code(0).stdout, "stopped\n");
}

#[test]
fn a_server_that_is_gone_without_an_answer_has_not_stopped() {
    let dir = Dir::new();
    std::fs::create_dir(dir.file("raidlab")).expect("the place of control sockets");
    let path = dir.file("raidlab/gone.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let gone = path.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = stream.read(&mut [0; 4096]);
        std::fs::remove_file(&gone).expect("it is there");
    });
    let ran = order(&dir, "stop gone").code(1);
    assert!(!ran.stdout.contains("stopped") && ran.stderr.contains("not known"), "{}", ran.stderr);
    server.join().expect("it ends");
    // One of another version lacks fields.
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = stream.read(&mut [0; 4096]);
        let body = r#"{"name": "old", "level": "raid1", "state": "clean"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).expect("it is sent");
    });
    let text = order(&dir, "detail gone").code(0).stdout;
    assert!(text.contains("raid1"), "{text}");
    server.join().expect("it ends");
}

/// Whether any user can enter the directories above a file.
fn is_reachable(path: &str) -> bool {
    let mut above = Path::new(path).ancestors().skip(1);
    above.all(|it| std::fs::metadata(it).is_ok_and(|it| it.permissions().mode() & 0o001 != 0))
}

#[test]
fn a_file_that_a_killed_server_of_an_ordinary_user_has_left_is_replaced() {
    const NOBODY: u32 = 65534;
    let program = env!("CARGO_BIN_EXE_raidlab");
    let dir = Dir::new();
    let file = dir.file("array");
    // runs: fusermount3
    let has_tool = Command::new("fusermount3").arg("-V").output().is_ok();
    if !rustix::process::geteuid().is_root() || !has_fuse() || !has_tool {
        return println!("skipped: needs root, /dev/fuse and fusermount3");
    }
    if !is_reachable(program) || !is_reachable(&file) {
        return println!("skipped: {program} or {file} is out of reach of other users");
    }
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        let words = "serve --level raid5 --members mem*4 --size 1M --name data --fuse";
        command.args(words.split(' ')).arg(&file).stdin(Stdio::null());
        command.uid(NOBODY).gid(NOBODY);
        Server::start_by(&dir, command)
    };
    // It leaves its mount.
    let killed = start().end(Signal::KILL);
    assert_eq!(killed.0, None, "{}", killed.1);
    assert!(std::fs::metadata(&file).is_err());
    let server = start();
    let (code, error) = server.end(Signal::INT);
    assert_eq!(code, Some(0), "{error}");
    assert!(std::fs::symlink_metadata(&file).is_err(), "what was made for a mount goes with it");
    // A program that has it open is waited for, and then it goes all the same.
    let server = start();
    // runs: sh, sleep
    let mut user = Command::new("sh");
    user.args(["-c", "exec 9<\"$0\" && echo open && exec sleep 60", &file]);
    let user = user.uid(NOBODY).gid(NOBODY).stdout(Stdio::piped()).spawn();
    let mut user = user.expect("a shell");
    let mut said = [0; 5];
    user.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("the file opens");
    let (code, error) = server.end(Signal::INT);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("by force"), "{error}");
    assert!(std::fs::symlink_metadata(&file).is_err());
    user.kill().and_then(|()| user.wait()).expect("it sleeps");
}

#[test]
fn uris_that_are_printed_are_encoded_and_an_open_port_is_warned_of() {
    let dir = Dir::new();
    let socket = dir.file("a+b");
    let words = "--level raid1 --members mem*2 --size 1M --name <a&b>";
    let fronts = format!("--nbd unix:{socket} --nbd tcp:127.0.0.1:0");
    let server = Server::start(&dir, &format!("{words} {fronts}"));
    let uri = format!("nbd+unix:///%3Ca%26b%3E?socket={}", socket.replace('+', "%2B"));
    assert!(server.said().contains(&uri), "{}", server.said());
    let (code, error) = server.end(Signal::INT);
    assert_eq!(code, Some(0));
    assert!(error.contains("every user of this machine can write"), "{error}");
}
