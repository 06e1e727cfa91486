//! Servers that are killed while a client writes: what was acknowledged is there afterwards, and an
//! array that was left dirty and degraded is refused unless its log says what was in flight.
//!
//! Each state of an array is killed [`KILLS`] times with `RAIDLAB_TEST=all`, else [`SAMPLED`].
//! A kill is no power cut: what members have completed stays, so also what no flush covers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nbd::client::{Event, Handshake, Received, Requests, Wanted};
use nbd::{Operation, Request, Style};
use rustix::process::Signal;
use serde_json::Value;
use testkit::Rng;

use crate::serve::{Server, make, order, status};
use crate::support::{Dir, raidlab, until};

const KILLS: u64 = 50;
const SAMPLED: u64 = 3;
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Blocks of the array that are written, from its start.
const BLOCKS: usize = 512;
/// Writes in flight.
pub const DEPTH: usize = 8;

fn kills() -> u64 {
    if std::env::var("RAIDLAB_TEST").is_ok_and(|what| what == "all") {
        return KILLS;
    }
    println!("kills skipped: {} of {KILLS}; RAIDLAB_TEST=all runs them", KILLS - SAMPLED);
    SAMPLED
}

/// A session with a server; everything ends with `None` once the server is gone.
pub struct Session {
    stream: UnixStream,
    requests: Requests,
    style: Style,
    input: Vec<u8>,
}

impl Session {
    fn connect(socket: &str) -> Session {
        Session::connect_to(socket, "data")
    }

    /// A session with the export of this name.
    pub fn connect_to(socket: &str, export: &str) -> Session {
        let mut stream = UnixStream::connect(socket).expect("a server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let style = Style::Structured;
        let wanted = Wanted { export: export.into(), style, allocation: false, tls: false };
        let mut handshake = Handshake::new(wanted).expect("it is a name");
        let (mut input, mut out) = (Vec::new(), Vec::new());
        let session = loop {
            let progress = handshake.receive(&input, &mut out);
            input.drain(..progress.consumed);
            stream.write_all(&out).expect("the server reads");
            out.clear();
            match progress.event {
                Event::NeedMore => more(&mut stream, &mut input).expect("the server answers"),
                Event::Handled => {}
                Event::Ready(session) => break session,
                event => panic!("{event:?}"),
            }
        };
        let requests = Requests::new(session, DEPTH as u32 + 1);
        Session { stream, requests, style: session.style, input }
    }

    pub fn send(&mut self, operation: Operation, payload: &[u8]) -> Option<u64> {
        let (cookie, header) = self.requests.start(operation).expect("it is permitted");
        self.stream.write_all(&header[..Request::header_bytes(self.style)]).ok()?;
        self.stream.write_all(payload).ok()?;
        Some(cookie)
    }

    /// The next request that ends, and what it has read.
    pub fn receive(&mut self) -> Option<(u64, Vec<u8>)> {
        let mut data = Vec::new();
        loop {
            let (consumed, received) = self.requests.receive(&self.input).expect("a good server");
            self.input.drain(..consumed);
            match received {
                Received::NeedMore => more(&mut self.stream, &mut self.input)?,
                Received::Handled | Received::Status { .. } => {}
                Received::Data { at, length, .. } => {
                    let (at, length) = (at as usize, length as usize);
                    while self.input.len() < length {
                        more(&mut self.stream, &mut self.input)?;
                    }
                    data.resize(data.len().max(at + length), 0);
                    data[at..at + length].copy_from_slice(&self.input[..length]);
                    self.input.drain(..length);
                }
                Received::Zeroes { at, length, .. } => {
                    data.resize(data.len().max((at + length) as usize), 0);
                }
                Received::Done { cookie, result } => {
                    result.expect("no request fails");
                    return Some((cookie, data));
                }
            }
        }
    }

    pub fn read(&mut self, offset: usize, length: usize) -> Vec<u8> {
        let (offset, length) = (offset as u64, length as u32);
        self.send(Operation::Read { offset, length, one_piece: false }, &[]).expect("it is there");
        self.receive().expect("it answers").1
    }
}

fn more(stream: &mut UnixStream, input: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 65536];
    let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
    input.extend_from_slice(&bytes[..count]);
    Some(())
}

/// What the array must hold.
struct Model {
    bytes: Vec<u8>,
    /// Writes in flight when the server was killed: block, contents.
    in_flight: Vec<(usize, Vec<u8>)>,
    acknowledged: u64,
    flushes: u64,
    version: u64,
}

/// Blocks that may hold anything after a start by force: those of the last member, which is lost,
/// in rows that were being written. The array is RAID 5, left-symmetric.
struct Hole {
    /// Bytes of a chunk.
    chunk: usize,
    members: usize,
}

impl Hole {
    /// The row of a block's data and the offset in its chunk; the member of the block.
    fn place(&self, block: usize) -> ((usize, usize), usize) {
        let (chunk, offset) = (block * BLOCK / self.chunk, block * BLOCK % self.chunk);
        let (row, number) = (chunk / (self.members - 1), chunk % (self.members - 1));
        let parity = self.members - 1 - row % self.members;
        ((row, offset), (parity + 1 + number) % self.members)
    }

    /// Whether a block is lost when these others were being written.
    fn contains(&self, block: usize, mut in_flight: impl Iterator<Item = usize>) -> bool {
        let (row, member) = self.place(block);
        member == self.members - 1 && in_flight.any(|other| self.place(other).0 == row)
    }
}

impl Model {
    fn contents(&mut self, block: usize) -> Vec<u8> {
        self.version += 1;
        let word = |at: u64| (at ^ self.version << 20 ^ (block as u64) << 44 | 1).to_le_bytes();
        (0..BLOCK as u64 / 8).flat_map(word).collect()
    }

    /// Writes and flushes until the server is gone.
    fn write_until_killed(&mut self, socket: &str, rng: &mut Rng, begun: &AtomicBool) {
        let mut session = Session::connect(socket);
        let mut writing: Vec<(u64, usize, Vec<u8>)> = Vec::new();
        let mut flush = None;
        loop {
            if flush.is_none() && rng.one_in(20) {
                let Some(cookie) = session.send(Operation::Flush, &[]) else { break };
                flush = Some(cookie);
            }
            while writing.len() < DEPTH {
                let block = rng.below(BLOCKS as u64) as usize;
                if writing.iter().any(|(_, other, _)| *other == block) {
                    continue;
                }
                let contents = self.contents(block);
                let (offset, length) = ((block * BLOCK) as u64, BLOCK as u32);
                let fua = rng.one_in(16);
                let sent = session.send(Operation::Write { offset, length, fua }, &contents);
                // A part of it may have come.
                writing.push((sent.unwrap_or(u64::MAX), block, contents));
                if sent.is_none() {
                    break;
                }
            }
            let Some((cookie, _)) = session.receive() else { break };
            if flush == Some(cookie) {
                self.flushes += 1;
                flush = None;
                continue;
            }
            let at = writing.iter().position(|(other, ..)| *other == cookie);
            let (_, block, contents) = writing.swap_remove(at.expect("it was sent"));
            self.bytes[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&contents);
            self.acknowledged += 1;
            begun.store(true, Ordering::Relaxed);
        }
        self.in_flight =
            writing.into_iter().map(|(_, block, contents)| (block, contents)).collect();
    }

    /// Everything is there; of what was in flight each sector is old or new. `hole`: the array was
    /// started by force.
    fn check(&mut self, socket: &str, hole: Option<&Hole>) {
        let mut session = Session::connect(socket);
        let found = session.read(0, BLOCKS * BLOCK);
        let in_flight = std::mem::take(&mut self.in_flight);
        for at in (0..BLOCKS * BLOCK).step_by(SECTOR) {
            let (block, sectors) = (at / BLOCK, at..at + SECTOR);
            let own = in_flight.iter().find(|(other, _)| *other == block);
            let (old, now) = (&self.bytes[sectors.clone()], &found[sectors.clone()]);
            let new = own.map(|(_, contents)| &contents[at % BLOCK..at % BLOCK + SECTOR]);
            let others = in_flight.iter().map(|(other, _)| *other);
            let is_lost = hole.is_some_and(|hole| hole.contains(block, others));
            let ok = now == old || Some(now) == new || is_lost;
            assert!(ok, "block {block} is lost, at byte {at}; in flight: {}", own.is_some());
            self.bytes[sectors.clone()].copy_from_slice(&found[sectors]);
        }
    }
}

/// A state of an array in which its server is killed.
struct Series<'a> {
    level: &'a str,
    members: usize,
    /// Options of its creation.
    options: &'a str,
    /// The last member is lost from the start on.
    is_degraded: bool,
    /// The last member is being rebuilt all the time.
    rebuilds: bool,
    /// A start after a kill needs force.
    needs_force: bool,
}

impl Series<'_> {
    fn run(&self, seed: u64) {
        let dir = Dir::new();
        let disks = make(&dir, self.level, self.members, self.options);
        let (last, others) = disks.split_last().expect("members");
        let socket = dir.file("nbd");
        let front = format!("--nbd unix:{socket}");
        let front = match self.rebuilds {
            // 15 MiB in 15 seconds: a kill comes before the end.
            true => format!("{front} --speed-limit-max 1MB/s"),
            false => front,
        };
        let all = match self.is_degraded {
            true => others.join(" "),
            false => disks.join(" "),
        };
        let mut rng = Rng::new(seed);
        let mut model = Model {
            bytes: vec![0; BLOCKS * BLOCK],
            in_flight: Vec::new(),
            acknowledged: 0,
            flushes: 0,
            version: seed << 32,
        };
        let (kills, mut refused, mut rebuilding) = (kills(), 0, 0);
        let hole = Hole { chunk: 64 << 10, members: self.members };
        for kill in 0..=kills {
            let words = format!("{all} {front}");
            let is_dirty = self.needs_force && kill > 0;
            if is_dirty {
                let ran = order(&dir, &format!("serve {words}")).code(2);
                assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
                refused += 1;
            }
            let force = if is_dirty { "--force" } else { "" };
            let server = Server::start(&dir, &format!("{words} {force}"));
            model.check(&socket, Some(&hole).filter(|_| is_dirty));
            if kill == kills {
                let text = server.end(Signal::TERM);
                // Nothing was written since the start by force: the superblocks are as they were.
                assert_eq!(text.0, Some(i32::from(is_dirty)), "{}", text.1);
                break;
            }
            if self.rebuilds {
                self.begin_rebuild(&dir, last);
            }
            let begun = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let mut writes = Rng::new(rng.draw());
                let (model, socket, begun) = (&mut model, &socket, &begun);
                let writer =
                    scope.spawn(move || model.write_until_killed(socket, &mut writes, begun));
                until("the first write", || begun.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(rng.within(60, 250)));
                if self.rebuilds {
                    rebuilding += u64::from(is_rebuilding(&status(&dir)));
                }
                let (code, _) = server.end(Signal::KILL);
                assert_eq!(code, None, "it was killed");
                writer.join().expect("the client ends when the server does");
            });
        }
        println!(
            "{kills} kills: {} writes acknowledged, {} flushes, {refused} starts refused",
            model.acknowledged, model.flushes
        );
        if self.rebuilds {
            // One that continues near its end may reach it first.
            assert!(rebuilding >= kills - kills / 8, "{rebuilding} of {kills} in a rebuild");
        }
        // Nothing is left that redundancy contradicts.
        if !self.is_degraded && !self.rebuilds {
            raidlab(&format!("scrub --check {all}")).code(0);
        }
    }

    /// The last member is lost and rebuilt, if it is in sync. Returns while it is being rebuilt.
    fn begin_rebuild(&self, dir: &Dir, last: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let status = status(dir);
            // A resync comes first where one is needed.
            if is_rebuilding(&status) {
                return;
            }
            assert!(Instant::now() < end, "no rebuild within a minute: {status}");
            if status["degraded"] == 0 {
                order(dir, &format!("fail data {}", self.members - 1)).code(0);
                order(dir, &format!("remove data {last}")).code(0);
                // It is closed when the superblocks of the others do not list it.
                while order(dir, &format!("add data {last}")).code != 0 {
                    assert!(Instant::now() < end, "the former member does not come back");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_rebuilding(status: &Value) -> bool {
    status["degraded"] == 1 && !status["sync"].is_null()
}

const RAID5: Series<'_> = Series {
    level: "5",
    members: 3,
    options: "--chunk 64K --assume-clean --bitmap none",
    is_degraded: false,
    rebuilds: false,
    needs_force: false,
};

#[test]
fn what_a_whole_array_acknowledged_is_there_after_its_server_was_killed() {
    RAID5.run(1);
}

#[test]
fn what_an_array_with_a_bitmap_acknowledged_is_there_after_its_server_was_killed() {
    Series { options: "--chunk 64K --assume-clean --bitmap internal", ..RAID5 }.run(2);
}

#[test]
fn a_degraded_array_whose_server_was_killed_needs_force_and_loses_no_other_row() {
    Series { is_degraded: true, needs_force: true, ..RAID5 }.run(3);
}

#[test]
fn a_degraded_array_with_a_bitmap_needs_force_too() {
    let options = "--chunk 64K --assume-clean --bitmap internal";
    Series { options, is_degraded: true, needs_force: true, ..RAID5 }.run(4);
}

#[test]
fn a_degraded_array_with_a_log_starts_and_has_lost_nothing() {
    let options = "--chunk 64K --assume-clean --consistency-policy ppl";
    Series { options, is_degraded: true, ..RAID5 }.run(5);
}

#[test]
fn a_mirror_that_is_being_rebuilt_has_lost_nothing_after_its_server_was_killed() {
    Series { level: "1", options: "--assume-clean --bitmap none", rebuilds: true, ..RAID5 }.run(6);
}

#[test]
fn an_array_with_a_log_that_is_being_rebuilt_has_lost_nothing_after_its_server_was_killed() {
    let options = "--chunk 64K --assume-clean --consistency-policy ppl";
    Series { options, rebuilds: true, ..RAID5 }.run(7);
}

/// With `--write-behind` md acknowledges a write before write-mostly members have it: the copy of
/// slot 0 lags. Servers of ours never do, so it is put back.
#[test]
fn a_write_mostly_copy_that_lags_is_not_what_others_are_made_of() {
    let verbs = [
        ("rebuild {}", 0),
        ("scrub --repair {}", 0),
        ("scrub --repair --policy first {}", 0),
        ("dump {} -o {out} --no-check --overwrite", 0),
    ];
    for (copies, (verb, code)) in [2, 3].iter().flat_map(|count| verbs.map(|verb| (count, verb))) {
        let dir = Dir::new();
        let members: Vec<String> = (0..*copies).map(|at| dir.file(&format!("{at}.img"))).collect();
        let (last, mostly) = members.split_last().expect("members");
        let old = dir.file("old.img");
        // Slot by slot, because the flag is for all devices that follow.
        raidlab(&format!(
            "create -l 1 -n {copies} --bitmap internal --write-behind=256 --file-size 16M --name \
             data --homehost none {}--write-mostly {old}",
            "missing ".repeat(copies - 1)
        ))
        .code(0);
        let mut there = old;
        for member in mostly {
            std::fs::File::create(member).expect("a file").set_len(16 << 20).expect("a size");
            let ran = raidlab(&format!("rebuild {there} --add {member} --write-mostly"));
            assert!(ran.stdout.contains(": in sync"), "{}", ran.stderr);
            there = format!("{there} {member}");
        }
        std::fs::File::create(last).expect("a file").set_len(16 << 20).expect("a size");
        let all = members.join(" ");
        raidlab(&format!("rebuild {} --add {last}", mostly.join(" "))).code(0);
        let socket = dir.file("nbd");
        let server = Server::start(&dir, &format!("{all} --nbd unix:{socket}"));
        let lag: Vec<Vec<u8>> =
            mostly.iter().map(|member| std::fs::read(member).expect("a member")).collect();
        let mut session = Session::connect(&socket);
        let (offset, length) = (1 << 20, 65536);
        let new = vec![7; length as usize];
        session.send(Operation::Write { offset, length, fua: true }, &new).expect("it is sent");
        session.receive().expect("it is acknowledged");
        server.end(Signal::KILL);
        for (member, lag) in mostly.iter().zip(lag) {
            let data = 2048 * SECTOR + offset as usize;
            let lagging = &lag[data..data + length as usize];
            let file = crate::serve::open(member);
            std::os::unix::fs::FileExt::write_all_at(&file, lagging, data as u64).expect("written");
        }
        let out = dir.file("out");
        let verb = verb.replace("{}", &all).replace("{out}", &out);
        let alone = raidlab(&format!("dump {} -o {out}", mostly.join(" "))).code(1);
        assert!(alone.stderr.contains("write-mostly"), "{}", alone.stderr);
        raidlab(&verb).code(code);
        if verb.starts_with("dump") {
            let found = std::fs::read(&out).expect("an output");
            assert_eq!(found[offset as usize..][..length as usize], new, "{verb}");
            continue;
        }
        for member in &members {
            raidlab(&format!("dump {member} -o {out} --overwrite")).code(0);
            let found = std::fs::read(&out).expect("an output");
            assert_eq!(found[offset as usize..][..length as usize], new, "{verb}, {member}");
        }
    }
}
