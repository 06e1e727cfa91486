//! Arrays of which members are NBD exports, on other hosts: each network namespace is one.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nbd::Operation;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::killed_servers::Session;
use crate::support::{Dir, Ran, raidlab_with, until};

/// A server in a network namespace, or in that of the test; killed when it is dropped.
struct Server {
    child: Child,
    said: String,
}

impl Server {
    /// Starts one, and waits until it serves.
    fn start(dir: &Dir, namespace: Option<&str>, words: &str) -> Server {
        let mut command = match namespace {
            None => Command::new(env!("CARGO_BIN_EXE_raidlab")),
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}"));
                command.arg(env!("CARGO_BIN_EXE_raidlab"));
                command
            }
        };
        command.arg("serve").args(words.split_whitespace()).env("XDG_RUNTIME_DIR", dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
            let mut error = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut error).expect("UTF-8");
            panic!("serve {words}: {said}{error}");
        }
        Server { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Ends it by a signal; its exit code, and what it said to stderr.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let status = self.child.wait().expect("it ends");
        let mut error = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut error).expect("UTF-8");
        (status.code(), error)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `raidlab` with the runtime directory of the test.
fn order(dir: &Dir, words: &str) -> Ran {
    raidlab_with(words, &[("XDG_RUNTIME_DIR", dir.path())])
}

fn status(dir: &Dir) -> Value {
    // It ends with 1 while the array is degraded.
    let ran = order(dir, "status data --json");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
}

/// The states of the members, by slot.
fn states(dir: &Dir) -> Vec<String> {
    let status = status(dir);
    let slot = |slot: u64| {
        let members = status["members"].as_array().expect("a list");
        let mine = members.iter().filter(|it| it["slot"].as_u64() == Some(slot));
        let mut states = mine.map(|it| it["state"].as_str().expect("a word").to_owned());
        states.find(|state| state != "faulty").unwrap_or("gone".into())
    };
    (0..3).map(slot).collect()
}

fn is_in_sync(dir: &Dir) -> bool {
    states(dir).iter().all(|state| state == "in_sync") && status(dir)["sync"].is_null()
}

/// Bytes written to each member since the array was started, by slot.
fn written(dir: &Dir) -> Vec<u64> {
    let mut socket = UnixStream::connect(dir.file("raidlab/data.sock")).expect("a socket");
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    socket.write_all(request).expect("it is sent");
    let mut metrics = String::new();
    socket.read_to_string(&mut metrics).expect("UTF-8");
    let lines =
        metrics.lines().filter(|it| it.starts_with("raidlab_md_member_written_bytes_total"));
    lines.map(|it| it.rsplit(' ').next().expect("a value").parse().expect("a number")).collect()
}

/// Bytes that differ from place to place and from round to round.
fn pattern(len: usize, at: u64, round: u64) -> Vec<u8> {
    let word = |word: u64| {
        let value = (at + 8 * word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round << 56;
        value.rotate_left(23).to_le_bytes()
    };
    (0..len as u64 / 8).flat_map(word).collect()
}

const BLOCK: usize = 64 << 10;

/// What each block of a file that is an array holds: the round in which it was written.
struct Load {
    file: std::fs::File,
    rounds: Vec<u64>,
}

impl Load {
    fn open(path: &str, rounds: Vec<u64>) -> Load {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
        Load { file: file.expect("the file opens"), rounds }
    }

    /// Writes every `step`th of the blocks from `first` on, durably.
    fn write(&mut self, blocks: std::ops::Range<usize>, step: usize, round: u64) {
        for block in blocks.step_by(step) {
            let at = (block * BLOCK) as u64;
            self.file.write_all_at(&pattern(BLOCK, at, round), at).expect("it is written");
            self.rounds[block] = round;
        }
        self.file.sync_data().expect("it is durable");
    }

    fn verify(&self) {
        let mut bytes = vec![0; BLOCK];
        for (block, round) in self.rounds.iter().enumerate().filter(|(_, round)| **round > 0) {
            let at = (block * BLOCK) as u64;
            self.file.read_exact_at(&mut bytes, at).expect("it is read");
            assert!(bytes == pattern(BLOCK, at, *round), "block {block}, of round {round}");
        }
    }
}

/// Namespaces `a` and `b`, each with a link to `c`; deleted when dropped.
struct Hosts(Vec<String>);

impl Hosts {
    /// `None`, said as a skip, where the system does not permit it.
    fn new() -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: network namespaces need root");
            return None;
        }
        let name = |host: &str| format!("raidlab-{}-{host}", std::process::id());
        let mut hosts = Hosts(Vec::new());
        for host in ["a", "b", "c"] {
            if !ip(&format!("netns add {}", name(host))) {
                println!("skipped: no network namespaces here");
                return None;
            }
            hosts.0.push(name(host));
        }
        let c = name("c");
        for (number, host) in [(1, name("a")), (2, name("b"))] {
            for words in [
                format!("-n {host} link add net0 type veth peer name to{number} netns {c}"),
                format!(
                    "-n {host} address add 192.0.2.{number}/32 peer 192.0.2.{} dev net0",
                    number + 100
                ),
                format!(
                    "-n {c} address add 192.0.2.{}/32 peer 192.0.2.{number} dev to{number}",
                    number + 100
                ),
                format!("-n {host} link set net0 up"),
                format!("-n {c} link set to{number} up"),
            ] {
                assert!(ip(&words), "{words}");
            }
        }
        Some(hosts)
    }

    fn name(&self, host: usize) -> Option<&str> {
        Some(&self.0[host])
    }

    /// Cuts or restores the link of a host, at its end.
    fn link(&self, host: usize, state: &str) {
        assert!(ip(&format!("-n {} link set net0 {state}", self.0[host])));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| assert!(ip(&format!("netns delete {name}"))));
    }
}

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    match output {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                println!("ip {words}: {error}");
            }
            output.status.success()
        }
        Err(error) => {
            println!("ip: {error}");
            false
        }
    }
}

/// Members that are exports: of arrays in memory, each the only one of its server.
fn host(dir: &Dir, namespace: Option<&str>, name: &str, address: &str) -> Server {
    let words = format!(
        "--level linear --members mem*1 --size 64M --name {name} --nbd {address} --insecure"
    );
    Server::start(dir, namespace, &words)
}

#[test]
fn an_export_is_a_member_wherever_members_are_named() {
    let dir = Dir::new();
    let (mut servers, mut uris) = (Vec::new(), Vec::new());
    for name in ["m0", "m1", "m2", "m3"] {
        let socket = dir.file(name);
        servers.push(host(&dir, None, name, &format!("unix:{socket}")));
        uris.push(format!("nbd+unix:///{name}?socket={socket}"));
    }
    let all = uris[..3].join(" ");
    let image = dir.file("contents");
    order(&dir, &format!("create --level 5 -n 3 --chunk 64K --name data --homehost none {all}"))
        .code(0);
    let examined = order(&dir, &format!("examine {}", uris[1])).code(0).stdout;
    assert!(examined.contains(&format!("{}:", uris[1])) && examined.contains("Active device 1"));
    let detail = order(&dir, &format!("detail {all}")).stdout;
    assert!(uris[..3].iter().all(|uri| detail.contains(uri)), "{detail}");
    let scrubbed = order(&dir, &format!("scrub --repair {all}"));
    assert_eq!(scrubbed.code, 0, "{}{}", scrubbed.stdout, scrubbed.stderr);
    // Served by its own NBD front, and filled by another program of the same house.
    let front = dir.file("front");
    let server = Server::start(&dir, None, &format!("{all} --nbd unix:{front}"));
    let twice = order(&dir, &format!("create --level 1 -n 2 {0} {0}", uris[3])).code(2);
    assert!(twice.stderr.contains("given twice"), "{}", twice.stderr);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    order(&dir, &format!("dump {all} -o {image}")).code(0);
    let whole = std::fs::read(&image).expect("the contents");
    assert_eq!(whole.len(), 126 << 20);
    // Without one of them, rebuilt on another.
    let two = format!("{} {}", uris[0], uris[2]);
    order(&dir, &format!("dump {two} -o {image}2")).code(0);
    assert!(std::fs::read(format!("{image}2")).expect("the contents") == whole);
    order(&dir, &format!("rebuild {two} --add {}", uris[3])).code(0);
    let rebuilt = format!("{two} {}", uris[3]);
    order(&dir, &format!("scrub --check {rebuilt}")).code(0);
    order(&dir, &format!("zero-superblock {}", uris[1])).code(0);
    // What is not there, and what cannot be a URI.
    for (words, error) in [
        (format!("examine nbd+unix:///x?socket={}", dir.file("m0")), "it has no such export"),
        (format!("examine nbd+unix:///?socket={}", dir.file("none")), "cannot connect to"),
        ("examine nbd://localhost:0/x".into(), "port is not a number"),
        ("examine nbd+unix:///x".into(), "?socket=PATH"),
        ("examine nbd://user@localhost/x".into(), "pre-shared keys"),
    ] {
        let ran = order(&dir, &words).code(2);
        assert!(ran.stderr.contains(error), "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_host_whose_link_is_cut_fails_in_time_and_gets_what_it_missed_by_the_bitmap() {
    if !std::path::Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let dir = Dir::new();
    let _a = host(&dir, hosts.name(0), "a", "tcp:192.0.2.1:10809");
    let _b = host(&dir, hosts.name(1), "b", "tcp:192.0.2.2:10809");
    let (a, b, local) = ("nbd://192.0.2.1/a", "nbd://192.0.2.2/b", dir.file("local.img"));
    let here = |words: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", hosts.0[2])).arg(env!("CARGO_BIN_EXE_raidlab"));
        let output = command.args(words.split_whitespace()).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {error}");
    };
    here(&format!(
        "create --level 5 -n 3 --chunk 64K --name data --homehost none --bitmap internal \
         --bitmap-chunk 4K --file-size 64M {a} {b} {local}"
    ));
    let file = dir.file("array");
    let serve = |members: &str| {
        let words = format!("{members} --fuse {file} --member-timeout 2");
        Server::start(&dir, hosts.name(2), &words)
    };
    let server = serve(&format!("{a} {b} {local}"));
    until("the first resync ends", || is_in_sync(&dir));
    let mut load = Load::open(&file, vec![0; 1024]);
    load.write(0..1024, 1, 1);
    load.verify();
    // The stop clears the bitmap, which otherwise takes its time.
    let Load { file: open, rounds } = load;
    drop(open);
    let (code, error) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{error}");
    let server = serve(&format!("{a} {b} {local}"));
    let mut load = Load::open(&file, rounds);
    // Writes go on while the link is down: the first of them waits for the deadline.
    let cut = Instant::now();
    hosts.link(1, "down");
    load.write(0..64, 8, 2);
    let waited = cut.elapsed();
    assert!(waited >= Duration::from_secs(1), "{waited:?}: nothing was lost");
    assert_eq!(states(&dir), ["in_sync", "missing", "in_sync"]);
    load.write(512..576, 8, 3);
    load.verify();
    // The link is there again: nothing connects by itself, and nothing of the old connection
    // reaches the member.
    hosts.link(1, "up");
    load.write(640..648, 1, 4);
    assert_eq!(states(&dir), ["in_sync", "missing", "in_sync"]);
    // Put back, while the array runs.
    order(&dir, &format!("remove data {b}")).code(0);
    let back = order(&dir, &format!("add data {b}")).code(0).stdout;
    assert!(back.contains("back in slot 1") && back.contains("by the bitmap"), "{back}");
    load.write(620..650, 1, 5);
    until("the member is in sync", || is_in_sync(&dir));
    load.verify();
    order(&dir, &format!("fail data {local}")).code(0);
    load.verify();
    order(&dir, &format!("remove data {local}")).code(0);
    let back = order(&dir, &format!("add data {local}")).code(0).stdout;
    assert!(back.contains("back in slot 2") && back.contains("by the bitmap"), "{back}");
    until("the member is in sync", || is_in_sync(&dir));
    // Away once more, and put back at a start: only what was written since is copied.
    order(&dir, &format!("fail data {b}")).code(0);
    load.write(0..64, 8, 6);
    let Load { file: open, rounds } = load;
    drop(open);
    let (code, error) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{error}");
    let server = serve(&format!("{a} {local} --add {b}"));
    assert!(server.said.starts_with("data: "), "{}", server.said);
    until("the member is in sync", || is_in_sync(&dir));
    let copied = written(&dir)[1];
    // Three areas were written, of 2 MiB of this member at most; where bits are set slowly, up to
    // 1024 of them are set ahead of a write. All that was ever written are 32 MiB of it, and whole
    // it has 63.
    let most = 3 * ((2 << 20) + 1024 * 4096) + (1 << 20);
    assert!(copied > 0 && copied <= most, "{copied} of {most} bytes were copied");
    let load = Load::open(&file, rounds);
    load.verify();
    // The member that was away serves: another one can be lost.
    order(&dir, &format!("fail data {local}")).code(0);
    load.verify();
    drop(load);
    let (code, error) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("is put back into slot 1"), "{error}");
}

/// Writes to an array by its NBD front, several at once; a write that fails is a panic.
struct Writes {
    ending: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Writes {
    fn start(front: &str) -> Writes {
        let (ending, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts, front) = (ending.clone(), written.clone(), front.to_owned());
        let thread = std::thread::spawn(move || {
            let mut session = Session::connect_to(&front, "data");
            let (mut begun, length) = (0, 16 << 10);
            while begun > counts.load(Ordering::SeqCst) || !ends.load(Ordering::SeqCst) {
                if begun < counts.load(Ordering::SeqCst) + 8 && !ends.load(Ordering::SeqCst) {
                    let offset = begun * 37 % 4096 * u64::from(length);
                    let write = Operation::Write { offset, length, fua: false };
                    session.send(write, &[begun as u8; 16 << 10]).expect("the server is there");
                    begun += 1;
                } else {
                    session.receive().expect("the server answers");
                    counts.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Writes { ending, written, thread }
    }

    /// Waits until as many more have completed, all of which were begun after some of them.
    fn go_on(&self) {
        let before = self.written.load(Ordering::SeqCst);
        until("writes", || {
            assert!(!self.thread.is_finished(), "a write has failed");
            self.written.load(Ordering::SeqCst) > before + 100
        });
    }

    fn end(self) {
        self.ending.store(true, Ordering::SeqCst);
        self.thread.join().expect("no write fails");
    }
}

#[test]
fn a_server_that_was_stopped_for_a_while_keeps_its_members_and_drops_one_that_hangs() {
    let dir = Dir::new();
    let (mut servers, mut uris) = (Vec::new(), Vec::new());
    for name in ["m0", "m1", "m2"] {
        let socket = dir.file(name);
        servers.push(host(&dir, None, name, &format!("unix:{socket}")));
        uris.push(format!("nbd+unix:///{name}?socket={socket}"));
    }
    let all = uris.join(" ");
    order(&dir, &format!("create --level 5 -n 3 --chunk 64K --name data --homehost none {all}"))
        .code(0);
    let front = dir.file("front");
    let limit = Duration::from_secs(2);
    let server = Server::start(&dir, None, &format!("{all} --nbd unix:{front} --member-timeout 2"));
    let writes = Writes::start(&front);
    // As a container that is paused, or a debugger; twice, and once for hardly longer.
    for more in [Duration::from_secs(3), Duration::from_millis(200), Duration::from_secs(4)] {
        writes.go_on();
        server.signal(Signal::STOP);
        std::thread::sleep(limit + more);
        server.signal(Signal::CONT);
        writes.go_on();
        assert_eq!(states(&dir), ["in_sync"; 3], "{more:?} longer than operations may take");
    }
    // The server of a member is stopped: that is the member's time.
    servers[1].signal(Signal::STOP);
    let began = Instant::now();
    until("the member fails", || states(&dir)[1] == "gone" || states(&dir)[1] == "missing");
    let taken = began.elapsed();
    assert!(taken >= limit && taken < 10 * limit, "{taken:?}");
    writes.go_on();
    assert_eq!(states(&dir)[2], "in_sync");
    writes.end();
    servers[1].signal(Signal::CONT);
    let (code, error) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{error}");
}

/// A directory with the certificate of an authority, and what it has signed for `localhost`.
fn certificates(
    dir: &Dir,
    name: &str,
    authority: &CertifiedIssuer<'_, KeyPair>,
    whose: &str,
) -> String {
    let directory = dir.file(name);
    std::fs::create_dir(&directory).expect("a directory");
    let file = |file: &str, text: String| {
        std::fs::write(format!("{directory}/{file}.pem"), text).expect("a file");
    };
    file("ca-cert", authority.pem());
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, authority).expect("it is signed");
    file(&format!("{whose}-cert"), certificate.pem());
    file(&format!("{whose}-key"), key.serialize_pem());
    directory
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("it signs itself")
}

#[test]
fn a_member_inside_tls_needs_the_right_certificates_on_both_sides() {
    let dir = Dir::new();
    let (ours, theirs) = (authority(), authority());
    let server = certificates(&dir, "server", &ours, "server");
    let client = certificates(&dir, "client", &ours, "client");
    let stranger = certificates(&dir, "stranger", &theirs, "client");
    let words = format!(
        "--level linear --members mem*1 --size 64M --name far --nbd tcp:127.0.0.1:0 \
         --tls-certificates {server} --tls-verify-peer"
    );
    let far = Server::start(&dir, None, &words);
    let (_, rest) = far.said.split_once("nbds://127.0.0.1:").expect("its URI");
    let port = rest.split('/').next().expect("a port");
    let uri = |host: &str, more: &str| format!("nbds://{host}:{port}/far?tls-certificates={more}");
    let member = uri("localhost", &client);
    let local = dir.file("local.img");
    let members = format!("{member} {local}");
    order(
        &dir,
        &format!("create --level 1 -n 2 --name data --homehost none --file-size 64M {members}"),
    )
    .code(0);
    let front = dir.file("front");
    let array = Server::start(&dir, None, &format!("{members} --nbd unix:{front}"));
    assert_eq!(array.end(Signal::TERM).0, Some(0));
    order(&dir, &format!("scrub --check {members}")).code(0);
    for (uri, error) in [
        (format!("nbd://localhost:{port}/far"), "it requires TLS"),
        (uri("127.0.0.1", &client), "TLS: invalid peer certificate"),
        (format!("{}&tls-hostname=localhost", uri("127.0.0.1", &client)), ""),
        (uri("localhost", &stranger), "TLS: invalid peer certificate"),
        (uri("localhost", &dir.file("none")), "ca-cert.pem: cannot read it"),
    ] {
        let ran = order(&dir, &format!("examine {uri}"));
        let is_right = if error.is_empty() { ran.code == 0 } else { ran.stderr.contains(error) };
        assert!(is_right, "{uri}: {}", ran.stderr);
    }
}
