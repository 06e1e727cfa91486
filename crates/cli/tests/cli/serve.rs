//! Arrays that are served: as files of other programs, managed by name, over overlays, read-only.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Dir, Ran, raidlab, raidlab_within, until};

/// A server. One that a failed test has not ended is killed, and its files are unmounted.
pub struct Server {
    child: Child,
    said: String,
    /// Files of `--fuse`.
    files: Vec<String>,
    has_ended: bool,
}

/// How long an order to a server may take.
const ORDER_LIMIT: Duration = Duration::from_secs(300);

/// The sockets of a test's servers.
fn runtime(dir: &Dir) -> [(&'static str, &str); 1] {
    [("XDG_RUNTIME_DIR", dir.path())]
}

/// `raidlab` with the runtime directory of the test.
pub fn order(dir: &Dir, words: &str) -> Ran {
    raidlab_within(ORDER_LIMIT, words, &runtime(dir))
}

impl Server {
    /// Starts one, and waits until it serves.
    pub fn start(dir: &Dir, words: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        command.arg("serve").args(words.split_whitespace()).stdin(Stdio::null());
        Server::start_by(dir, command)
    }

    /// Starts one, or what it said in place of serving.
    pub fn try_start(dir: &Dir, words: &str) -> Result<Server, Ran> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        command.arg("serve").args(words.split_whitespace()).stdin(Stdio::null());
        Server::started(dir, &mut command)
    }

    /// Starts one by a command of this kind.
    pub fn start_by(dir: &Dir, mut command: Command) -> Server {
        Server::started(dir, &mut command)
            .unwrap_or_else(|ran| panic!("{command:?}: {}{}", ran.stdout, ran.stderr))
    }

    fn started(dir: &Dir, command: &mut Command) -> Result<Server, Ran> {
        command.envs(runtime(dir)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        for line in lines.by_ref() {
            let line = line.expect("UTF-8");
            said += &(line.clone() + "\n");
            if line.starts_with("  control") {
                break;
            }
        }
        if !said.contains("  control") {
            let mut stderr = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
            let code = child.wait().expect("it ends").code().unwrap_or(-1);
            return Err(Ran { code, stdout: said, stderr });
        }
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let files = words.windows(2).filter(|pair| pair[0] == "--fuse");
        let files = files.map(|pair| pair[1].to_string()).collect();
        Ok(Server { child, said, files, has_ended: false })
    }

    /// What it said when it served.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Ends it by a signal; its exit code, and what it said to stderr.
    pub fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).expect("it runs");
        let status = self.child.wait().expect("it ends");
        self.has_ended = true;
        let mut error = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut error).expect("UTF-8");
        (status.code(), error)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The kernel leaves the mount of a killed server. Only root may remove it so.
        for file in &self.files {
            // runs: umount
            let _ = Command::new("umount").args(["-l", file]).output();
        }
    }
}

/// Whether FUSE works here; said as a skip where it does not.
pub fn has_fuse() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        println!("skipped: no /dev/fuse");
    }
    there
}

pub fn make(dir: &Dir, level: &str, members: usize, more: &str) -> Vec<String> {
    make_sized(dir, level, members, more, "16M")
}

/// The same, with members of this size.
pub fn make_sized(dir: &Dir, level: &str, members: usize, more: &str, size: &str) -> Vec<String> {
    let disks: Vec<String> = (0..members).map(|disk| dir.file(&format!("d{disk}.img"))).collect();
    let all = disks.join(" ");
    let words = format!(
        "create --level {level} --raid-devices {members} --file-size {size} --name data \
         --homehost none {more} {all}"
    );
    raidlab(&words).code(0);
    disks
}

pub fn open(path: &str) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("the file opens")
}

/// Bytes that differ from block to block.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(seed | 1).rotate_left(17).to_le_bytes();
    (0..len as u64 / 8).flat_map(word).collect()
}

fn sha256_of(dir: &Dir, words: &str) -> String {
    let ran = order(dir, &format!("dump --sha256 {words}")).code(0);
    ran.stdout.split_whitespace().next().expect("a hash").to_string()
}

pub fn status(dir: &Dir) -> Value {
    let ran = order(dir, "status data --json");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
}

#[test]
fn an_array_is_a_file_until_it_is_stopped_and_then_clean() {
    if !has_fuse() {
        return;
    }
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--chunk 64K");
    let (all, file) = (disks.join(" "), dir.file("array"));
    let server = Server::start(&dir, &format!("{all} --fuse {file}"));
    assert!(server.said.starts_with("data: "), "{}", server.said);
    let data = pattern(3 << 20, 7);
    let array = open(&file);
    assert_eq!(array.metadata().expect("it is there").len(), 30 << 20);
    array.write_all_at(&data, 12_345).expect("it is written");
    array.sync_all().expect("it is flushed");
    let mut back = vec![0; data.len()];
    array.read_exact_at(&mut back, 12_345).expect("it is read");
    assert!(back == data);
    // The members are locked, the socket is private, and the name is taken.
    let second = order(&dir, &format!("serve {all} --fuse {file}2")).code(2);
    assert!(second.stderr.contains("has it open"), "{}", second.stderr);
    let socket = dir.file("raidlab/data.sock");
    let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = order(&dir, "serve --level 0 --members mem*2 --size 1M --name data --fuse x");
    assert!(second.code(2).stderr.contains("another server uses this socket"));
    assert!(!Path::new("x").exists());
    let text = order(&dir, "status data").code(0).stdout;
    assert!(text.contains("[3/3] [UUU]"), "{text}");
    drop(array);
    let (code, said) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(!Path::new(&file).exists() && !Path::new(&socket).exists());
    let text = order(&dir, &format!("status {all}")).code(0).stdout;
    assert!(text.contains("data : clean raid5"), "{text}");
    // The contents are what dump reads, and what the next server serves.
    let hash = sha256_of(&dir, &all);
    let server = Server::start(&dir, &format!("{all} --fuse {file} --read-only"));
    let mut whole = Vec::new();
    File::open(&file).expect("it opens").read_to_end(&mut whole).expect("it is read");
    assert!(whole[12_345..12_345 + data.len()] == data);
    let refused = OpenOptions::new().write(true).open(&file).expect_err("it is read-only");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    drop(server);
    // Killed: what is left of the mount is replaced.
    let server = Server::start(&dir, &format!("{all} --fuse {file} --read-only"));
    assert_eq!(order(&dir, "stop data").code(0).stdout, "stopped\n");
    // It is: the members can be used at once.
    raidlab(&format!("scrub --check {all}")).code(0);
    drop(server);
    assert_eq!(sha256_of(&dir, &all), hash);
}

#[test]
fn a_member_fails_another_is_added_and_the_array_is_whole_again() {
    if !has_fuse() {
        return;
    }
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--chunk 64K");
    let (all, file) = (disks.join(" "), dir.file("array"));
    let log = dir.file("events");
    let program = dir.file("program");
    std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {log}\n")).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let server = Server::start(&dir, &format!("{all} --fuse {file} --program {program}"));
    let data = pattern(20 << 20, 99);
    let array = open(&file);
    array.write_all_at(&data, 0).expect("it is written");
    // Wrong orders.
    let ran = order(&dir, "fail data nowhere.img").code(2);
    assert!(ran.stderr.contains("no device of data is named so"), "{}", ran.stderr);
    let ran = order(&dir, "fail other 1").code(2);
    assert!(ran.stderr.contains("no server named"), "{}", ran.stderr);
    // A member by its path, and one that is needed.
    let failed = order(&dir, &format!("fail data {}", disks[1])).code(0).stdout;
    assert!(failed.contains("set faulty"), "{failed}");
    let ran = order(&dir, "fail data 0").code(2);
    assert!(ran.stderr.contains("not failed"), "{}", ran.stderr);
    let json = status(&dir);
    assert_eq!((&json["name"], &json["level"]), (&"data".into(), &"raid5".into()));
    assert_eq!(json["state"].as_str().map(|it| it.contains("degraded")), Some(true), "{json}");
    assert_eq!(json["members"][1]["state"], "missing");
    let text = order(&dir, "status data").code(1).stdout;
    assert!(text.contains("[3/2] [U_U]") && text.contains("(F)"), "{text}");
    array.write_all_at(&data[..1 << 20], 4096).expect("it is written, degraded");
    // Nothing would be proven, and `mismatch_cnt` must not say 0.
    let ran = order(&dir, "scrub --check data").code(2);
    assert!(ran.stderr.contains("degraded, 1 of 3 members missing"), "{}", ran.stderr);
    assert_eq!(status(&dir)["mismatch_cnt"], Value::Null);
    // A device that holds data is refused; then a new one is taken.
    let used = dir.file("used.img");
    let image = File::create(&used).expect("an image");
    image.set_len(16 << 20).expect("its size");
    image.write_all_at(&[0x53, 0xef], 1080).expect("ext4's magic");
    image.write_all_at(&[1, 0, 0, 0, 0, 4], 1024).expect("more of it");
    let new = dir.file("new.img");
    File::create(&new).expect("an image").set_len(16 << 20).expect("its size");
    order(&dir, &format!("add data {new}")).code(0);
    until("the rebuild", || status(&dir)["degraded"] == 0);
    order(&dir, &format!("remove data {}", disks[1])).code(0);
    let detail = order(&dir, "detail data").code(0).stdout;
    assert!(detail.contains("new.img") && !detail.contains("d1.img"), "{detail}");
    // A scrub finds what was changed behind its back.
    order(&dir, "scrub --check data").code(0);
    until("the scrub", || status(&dir)["sync"].is_null());
    assert_eq!(status(&dir)["mismatch_cnt"], 0);
    order(&dir, "set data --foreground-share 50 --speed-limit-max 10MB/s").code(0);
    let pace = &status(&dir)["pace"];
    assert_eq!(pace["foreground_share"], 50.0);
    assert!(pace["speed_limit_max_kib_s"].as_u64().is_some_and(|it| it > 9000), "{pace}");
    assert!(order(&dir, "set data").code(2).stderr.contains("nothing to set"));
    assert!(order(&dir, "set data --foreground-share 100").code(2).stderr.contains("0 to 99"));
    let mut expected = data.clone();
    expected[4096..4096 + (1 << 20)].copy_from_slice(&data[..1 << 20]);
    let mut back = vec![0; data.len()];
    array.read_exact_at(&mut back, 0).expect("it is read");
    assert!(back == expected);
    drop(array);
    let (code, said) = server.end(Signal::INT);
    assert_eq!(code, Some(0), "{said}");
    let now = format!("{} {new} {}", disks[0], disks[2]);
    let text = order(&dir, &format!("status {now}")).code(0).stdout;
    assert!(text.contains("data : clean raid5") && text.contains("[UUU]"), "{text}");
    let events = std::fs::read_to_string(&log).expect("the program ran");
    for event in ["NewArray data", "Fail data", "DegradedArray data", "SpareActive data"] {
        assert!(events.contains(event), "{event}: {events}");
    }
}

#[test]
fn writes_over_an_overlay_leave_the_members_as_they_were() {
    if !has_fuse() {
        return;
    }
    let dir = Dir::new();
    let disks = make(&dir, "1", 2, "");
    let (all, file, overlay) = (disks.join(" "), dir.file("array"), dir.file("try.ovl"));
    let before: Vec<Vec<u8>> =
        disks.iter().map(|disk| std::fs::read(disk).expect("an image")).collect();
    let data = pattern(1 << 20, 3);
    for round in 0..2 {
        let words = format!("{all} --overlay {overlay} --fuse {file}");
        let server = Server::start(&dir, &words);
        let array = open(&file);
        let mut back = vec![0; data.len()];
        array.read_exact_at(&mut back, 4096).expect("it is read");
        assert_eq!(back == data, round == 1);
        let mode = std::fs::metadata(&overlay).expect("it is made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it holds what the array holds");
        array.write_all_at(&data, 4096).expect("it is written");
        drop(array);
        assert_eq!(server.end(Signal::TERM).0, Some(0));
    }
    for (disk, before) in disks.iter().zip(&before) {
        assert!(std::fs::read(disk).expect("an image") == *before, "{disk} has changed");
    }
}

/// Bytes that a server has in memory besides its program.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()));
    let status = status.expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number") << 10
}

#[test]
fn memory_grows_with_load_up_to_its_bound() {
    let dir = Dir::new();
    let all = make(&dir, "5", 3, "--chunk 64K").join(" ");
    let refused = order(&dir, &format!("serve {all} --nbd unix:x --memory 15M")).code(2);
    assert!(refused.stderr.contains("memory for data is 16M to 64G"), "{}", refused.stderr);
    let socket = dir.file("nbd");
    let server = Server::start(&dir, &format!("{all} --nbd unix:{socket} --memory 80M"));
    let memory = |which: &str| status(&dir)[which].as_u64().expect("a number");
    assert_eq!((memory("memory_bytes"), memory("memory_max_bytes")), (24 << 20, 80 << 20));
    let idle = resident(&server);
    assert!(idle < 40 << 20, "{idle} bytes");
    // More requests at once than there are buffers at first: 16 of each client.
    let uri = format!("nbd+unix:///data?socket={socket}");
    let load = || {
        let client = |number: usize| {
            let mut command = Command::new("qemu-io"); // runs: qemu-io
            command.args(["-f", "raw", &uri]).stdout(Stdio::null());
            for at in (0..30).map(|at| (at + number) % 30) {
                command.args(["-c", &format!("aio_write -q -P 3 {at}M 1M")]);
            }
            command.args(["-c", "aio_flush"]).spawn().expect("qemu-io")
        };
        let clients: Vec<Child> = (0..8).map(client).collect();
        for mut client in clients {
            assert!(client.wait().expect("it ends").success());
        }
    };
    until("memory grows", || {
        load();
        memory("memory_bytes") > 24 << 20
    });
    assert!(memory("memory_bytes") <= 80 << 20);
    let text = order(&dir, "detail data").code(0).stdout;
    assert!(text.contains("for data, 80 MiB at most"), "{text}");
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn what_is_lost_of_an_array_is_an_error_when_it_is_served_read_only() {
    if !has_fuse() {
        return;
    }
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--chunk 64K --data-offset 1M");
    let file = dir.file("array");
    // A copy of disk 1 with an unread range, and no disk 2.
    std::fs::write(
        dir.file("d1.map"),
        "# Mapfile. Created by GNU ddrescue version 1.27\n0x0 + 1\n0x0 0x200000 +\n\
         0x200000 0x10000 -\n0x210000 0xdf0000 +\n",
    )
    .expect("a map");
    let words = format!("{} {} --read-only --fuse {file}", disks[0], disks[1]);
    let server = Server::start(&dir, &words);
    let json = status(&dir);
    assert_eq!(
        (&json["state"], &json["members"][2]["state"]),
        (&"read-only".into(), &"missing".into())
    );
    let array = File::open(&file).expect("it opens");
    let mut block = vec![0; 65536];
    let mut lost = 0;
    for chunk in 0..array.metadata().expect("it is there").len() / 65536 {
        match array.read_exact_at(&mut block, chunk * 65536) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
                lost += 1;
            }
        }
    }
    // Its own chunk or parity's row: one or two chunks of the array.
    assert!((1..=2).contains(&lost), "{lost} chunks are lost");
    let ran = order(&dir, "fail data 0").code(2);
    assert!(ran.stderr.contains("read-only"), "{}", ran.stderr);
    drop(array);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn wrong_usage_of_serve_says_why() {
    let dir = Dir::new();
    let disks = make(&dir, "1", 2, "").join(" ");
    let says = |words: String, text: &str| {
        let ran = order(&dir, &words).code(2);
        assert!(ran.stderr.contains(text), "{words}: {}", ran.stderr);
    };
    says(format!("serve {disks}"), "no front selected");
    says(format!("serve {disks} --fuse {} --guess", dir.file("a")), "only with --read-only");
    says(format!("serve {disks} --fuse {}", dir.file("d0.img")), "is a file that is not empty");
    says(format!("serve {disks} --fuse {}", dir.path()), "is no regular file");
    says("serve --members mem --level 1 --size 1M --fuse x".into(), "how many?");
    says(format!("status {disks} --watch"), "only for an array that a server runs");
    says(format!("serve {disks} --fuse {} --name a/b", dir.file("a")), "a name has no slash");
    assert!(!Path::new(&dir.file("a")).exists());
}

#[test]
fn arrays_and_all_volumes_are_nbd_exports() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--chunk 64K");
    let (all, socket) = (disks.join(" "), dir.file("nbd"));
    let client = |program: &str, words: &str| {
        // runs: nbdcopy, nbdinfo
        let output = Command::new(program).args(words.split_whitespace()).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{program} {words}: {text}{output:?}");
        text
    };
    let server = Server::start(&dir, &format!("{all} --nbd unix:{socket}"));
    let uri = format!("nbd+unix:///data?socket={socket}");
    assert!(server.said.contains(&format!("  nbd     {uri}")), "{}", server.said);
    let data = dir.file("data.raw");
    std::fs::write(&data, pattern(30 << 20, 11)).expect("a file");
    client("nbdcopy", &format!("{data} {uri}"));
    order(&dir, "fail data 2").code(0);
    let back = dir.file("back.raw");
    client("nbdcopy", &format!("{uri} {back}"));
    assert!(std::fs::read(&back).expect("it is there") == pattern(30 << 20, 11));
    assert!(order(&dir, "detail data").code(1).stdout.contains(&uri));
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    assert!(!Path::new(&socket).exists());
    // Read-only: every volume is an export, also of several arrays.
    let two = format!("{} {}", disks[0], disks[1]);
    let words = format!("{two} --read-only --all-volumes --nbd unix:{socket} --name box");
    let server = Server::start(&dir, &words);
    let list = client("nbdinfo", &format!("--list nbd+unix:///?socket={socket}"));
    assert!(list.contains("export=\"data\"") && list.contains("is_read_only: true"), "{list}");
    client("nbdcopy", &format!("nbd+unix:///data?socket={socket} {back}"));
    assert!(std::fs::read(&back).expect("it is there") == pattern(30 << 20, 11));
    drop(server);
    let ran = order(&dir, &format!("serve {all} --nbd tcp:0.0.0.0:0 --control none")).code(2);
    assert!(ran.stderr.contains("--insecure"), "{}", ran.stderr);
    let ran = order(&dir, &format!("serve {all} --nbd somewhere")).code(2);
    assert!(ran.stderr.contains("unix:PATH or tcp:HOST:PORT"), "{}", ran.stderr);
}

#[test]
fn a_socket_for_virtual_machines_is_private_and_goes_with_the_server() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--assume-clean").join(" ");
    let socket = dir.file("disk.sock");
    let server = Server::start(&dir, &format!("{disks} --vhost-user {socket}"));
    let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let export = status(&dir)["exports"][0].clone();
    assert_eq!((&export["kind"], &export["address"]), (&"vhost-user".into(), &socket.into()));
    let (code, said) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(!Path::new(&dir.file("disk.sock")).exists());
}

#[test]
fn a_ublk_device_without_the_driver_is_refused() {
    if Path::new("/dev/ublk-control").exists() {
        return println!("skipped: this machine has ublk; the guest's test covers it");
    }
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--assume-clean").join(" ");
    let refused = order(&dir, &format!("serve {disks} --ublk")).code(2);
    assert!(refused.stderr.contains("modprobe ublk_drv"), "{}", refused.stderr);
    let refused = order(&dir, &format!("serve {disks} --ublk --recover")).code(2);
    assert!(refused.stderr.contains("--ublk-id"), "{}", refused.stderr);
    // The members are free again.
    order(&dir, &format!("dump --sha256 {disks}")).code(0);
}

#[test]
fn status_without_a_name_is_that_of_all_servers() {
    let dir = Dir::new();
    let none = order(&dir, "status").code(0);
    assert!(none.stdout.starts_with("no servers in "), "{}", none.stdout);
    let disks = make(&dir, "5", 3, "--assume-clean").join(" ");
    let nbd = |name: &str| format!("--name {name} --nbd unix:{}", dir.file(name));
    let whole = Server::start(&dir, &format!("{disks} {}", nbd("whole")));
    let memory = format!("--members mem*2 --level raid1 --size 1M {}", nbd("memory"));
    let _memory = Server::start(&dir, &memory);
    let all = order(&dir, "status").code(0);
    assert!(all.stdout.contains("memory : ") && all.stdout.contains("whole : "), "{}", all.stdout);
    order(&dir, "status --watch").code(2);
    // A server that was killed leaves its socket.
    assert_eq!(whole.end(Signal::KILL).0, None);
    let rest = order(&dir, "status --json").code(1);
    let rest: Value = serde_json::from_str(&rest.stdout).expect("JSON");
    assert_eq!(rest["servers"].as_array().map(Vec::len), Some(1));
    assert_eq!(rest["servers"][0]["name"], "memory");
    assert_eq!(rest["unreachable"][0]["name"], "whole");
}

#[test]
fn a_server_is_named_by_the_path_of_its_socket_too() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--assume-clean").join(" ");
    let (socket, nbd) = (dir.file("own.sock"), dir.file("nbd"));
    let _server = Server::start(&dir, &format!("{disks} --control {socket} --nbd unix:{nbd}"));
    for verb in ["status", "detail", "scrub --check", "set --foreground-share 50"] {
        order(&dir, &format!("{verb} {socket}")).code(0);
    }
    let found = order(&dir, &format!("diagnose --measured seq-read=90MB/s {socket}"));
    assert!(found.stdout.contains("3 members"), "{found:?}");
    for option in ["--array data", "--member-timeout 9", "--from 8", "--speed-limit-max 9MB/s"] {
        let refused = order(&dir, &format!("scrub --check {option} {socket}")).code(2);
        assert!(refused.stderr.contains("not for an array that a server runs"), "{option}");
    }
    let refused = order(&dir, &format!("status {nbd}")).code(2);
    assert!(refused.stderr.contains("no control socket of a server"), "{}", refused.stderr);
}

#[test]
fn the_name_of_a_server_is_refused_where_members_are_needed() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--assume-clean").join(" ");
    let socket = dir.file("nbd");
    let _server = Server::start(&dir, &format!("{disks} --name runs-here --nbd unix:{socket}"));
    for verb in ["examine", "volumes", "dump --sha256", "rebuild", "zero-superblock", "guess"] {
        let refused = order(&dir, &format!("{verb} runs-here")).code(2);
        let says = "runs-here: no such file; it is the name of a server: name its members";
        assert!(refused.stderr.contains(says), "{verb}: {}", refused.stderr);
        let refused = order(&dir, &format!("{verb} runs-nowhere")).code(2);
        assert!(!refused.stderr.contains("server"), "{verb}: {}", refused.stderr);
    }
}

#[test]
fn members_in_memory_must_fit_into_it() {
    let dir = Dir::new();
    let words = format!("serve --members mem*4 --level 5 --size 10T --nbd unix:{}", dir.file("n"));
    let refused = order(&dir, &words).code(2);
    assert!(refused.stderr.contains("40 TiB of memory are needed"), "{}", refused.stderr);
}

#[test]
fn an_overlay_that_is_a_member_or_for_nothing_is_refused_and_not_left() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--assume-clean");
    let (all, nbd, new) = (disks.join(" "), dir.file("nbd"), dir.file("new.ovl"));
    let words = format!("serve {all} --overlay {} --nbd unix:{nbd}", disks[0]);
    let refused = order(&dir, &words).code(2);
    assert!(refused.stderr.contains(&format!("it is the member {}", disks[0])), "{refused:?}");
    for verb in [
        format!("reshape --continue --overlay {new} {all}"),
        format!("serve --overlay {new} --nbd unix:{nbd} {}", disks[0]),
    ] {
        order(&dir, &verb).code(2);
        assert!(!std::path::Path::new(&new).exists(), "{verb}");
    }
}
