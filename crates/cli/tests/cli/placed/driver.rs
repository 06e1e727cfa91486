//! The whole command line at random, by two drivers at once, over a pool of disks with several
//! arrays, a former one and partitions, with servers and rebuilds that are killed.
//!
//! The model is the contents of each array, as its clients wrote them, and who owns which bytes of
//! the disks. The drivers stop after each round; then everything is compared: bytes that no array
//! owns are what they were, and an array that is read with exit code 0 has its contents. Of writes
//! in flight when their server was killed, each sector is old or new.
//!
//! `RAIDLAB_TEST=all` runs [`STEPS`], else [`SAMPLED`]; `RAIDLAB_SEED=n` chooses the seed.

use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nbd::Operation;
use rustix::process::Signal;
use testkit::Rng;

use crate::killed_servers::{DEPTH, Session};
use crate::serve::{Server, order};
use crate::support::{Dir, Ran, raidlab};
use crate::tables::{boot_record, write};

const STEPS: u64 = 10_000;
const SAMPLED: u64 = 120;
const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Bytes of a disk.
const DISK: usize = 10 * MIB;
const DISKS: usize = 6;
/// Steps of each driver in a round.
const ROUND: u64 = 10;

/// How an array of the pool is made.
struct Made {
    name: &'static str,
    uuid: &'static str,
    options: &'static str,
    /// The disks of its slots, then its spares.
    disks: &'static [usize],
    spares: usize,
    window: Range<usize>,
}

/// Partition 1 of five disks: RAID 5 and a spare. Partition 2: a mirror, and RAID 6 of others. The
/// last disk is a whole member of nothing but a former array.
const ARRAYS: [Made; 4] = [
    Made {
        name: "five",
        uuid: "00000001:5bcc534c:4fcf7945:6db0c327",
        options: "-l 5 -c 64K -e 1.2 --data-offset 1M -z 1M --bitmap internal",
        disks: &[0, 1, 2, 3],
        spares: 1,
        window: MIB..4 * MIB,
    },
    Made {
        name: "mirror",
        uuid: "00000002:5bcc534c:4fcf7945:6db0c327",
        options: "-l 1 -e 0.90 -z 1M --bitmap none",
        disks: &[0, 1],
        spares: 0,
        window: 4 * MIB..6 * MIB + 4096,
    },
    Made {
        name: "six",
        uuid: "00000003:5bcc534c:4fcf7945:6db0c327",
        options: "-l 6 -c 64K -e 1.0 -z 512K --bitmap none",
        disks: &[2, 3, 4, 5],
        spares: 0,
        window: 4 * MIB..6 * MIB + 4096,
    },
    Made {
        name: "far",
        uuid: "00000004:5bcc534c:4fcf7945:6db0c327",
        options: "-l 10 -p f2 -c 64K -e 1.1 --data-offset 512K -z 512K --bitmap none",
        disks: &[0, 1, 2, 3, 4],
        spares: 1,
        window: 7 * MIB..9 * MIB,
    },
];

/// An array of the pool, and what it must hold.
struct Array {
    made: &'static Made,
    members: Vec<String>,
    contents: Vec<u8>,
    /// Blocks that were in flight when a server was killed: what else they may hold.
    either: Vec<(usize, Vec<u8>)>,
    /// A server was killed while a member was absent: rows in flight may have lost blocks.
    may_have_lost: bool,
}

struct Pool {
    dir: Dir,
    paths: Vec<String>,
    /// What the disks held at first.
    images: Vec<Vec<u8>>,
    arrays: Vec<Mutex<Array>>,
    names: Vec<Vec<String>>,
    verbs: [AtomicU64; VERBS],
}

const VERBS: usize = 12;

impl Pool {
    fn new(rng: &mut Rng) -> Pool {
        let dir = Dir::new();
        let paths: Vec<String> = (0..DISKS).map(|at| dir.file(&format!("disk{at}"))).collect();
        for path in &paths {
            let file = std::fs::File::create(path).expect("an image");
            file.set_len(DISK as u64).expect("its size");
        }
        // A former array of the whole disks; its superblocks are in sector 8.
        let create = "create --homehost none --assume-clean";
        let former = format!("{create} -l 5 -n 6 -c 64K -N former {}", paths.join(" "));
        raidlab(&former).code(0);
        std::thread::sleep(Duration::from_millis(1100));
        for path in &paths {
            write(path, 8192, &rng.bytes(DISK - 8192));
            let sectors =
                |range: Range<usize>| ((range.start / 512) as u64, range.len() as u64 / 512);
            let windows = [MIB..4 * MIB, 4 * MIB..6 * MIB + 4096, 7 * MIB..9 * MIB];
            let entries = windows.map(|range| {
                let (start, length) = sectors(range);
                (0xfd, start, length)
            });
            write(path, 0, &boot_record(&entries));
        }
        let mut arrays = Vec::new();
        for made in &ARRAYS {
            let Range { start, end } = made.window;
            let name = |disk: &usize| format!("{}@{start}+{}", paths[*disk], end - start);
            let members: Vec<String> = made.disks.iter().map(name).collect();
            let active = made.disks.len() - made.spares;
            let words = format!(
                "{create} --force -n {active} -x {} {} -u {} {}",
                made.spares,
                made.options,
                made.uuid,
                members.join(" ")
            );
            raidlab(&words).code(0);
            // Assumed to be in sync, which the bytes below are not.
            raidlab(&format!("scrub --repair --policy {} {}", made.policy(), members.join(" ")));
            let contents = made.read(&dir, &members.join(" "));
            let (either, may_have_lost) = (Vec::new(), false);
            arrays.push(Array { made, members, contents, either, may_have_lost });
        }
        let names = arrays.iter().map(|array| array.members.clone()).collect();
        let images = paths.iter().map(|path| std::fs::read(path).expect("an image")).collect();
        let arrays = arrays.into_iter().map(Mutex::new).collect();
        Pool { dir, paths, images, arrays, names, verbs: Default::default() }
    }

    fn step(&self, rng: &mut Rng) {
        let at = rng.index(ARRAYS.len());
        let (made, verb) = (&ARRAYS[at], rng.index(VERBS));
        self.verbs[verb].fetch_add(1, Ordering::Relaxed);
        let mut named = self.names[at].clone();
        if rng.one_in(4) {
            named = self.paths.clone();
        }
        if rng.one_in(4) {
            rng.shuffle(&mut named);
        }
        if rng.one_in(4) {
            named.pop();
        }
        let all = format!("--array {} {}", made.uuid, named.join(" "));
        let is_killed = rng.one_in(5);
        match verb {
            0 => drop(raidlab(&format!("{} {}", rng.pick(&["status", "detail"]), all))),
            1 => drop(raidlab(&format!("examine {}", named.join(" ")))),
            2 => drop(raidlab(&format!("volumes {}", self.paths.join(" ")))),
            3 => drop(raidlab(&format!("dump --sha256 {all}"))),
            4 => self.run(&format!("scrub --check {all}"), is_killed, rng),
            5 => self.run(&format!("scrub --repair {all}"), is_killed, rng),
            6 => {
                let policy = made.policy();
                self.run(&format!("scrub --repair --policy {policy} {all}"), is_killed, rng);
            }
            7 => self.run(&format!("rebuild {all}"), is_killed, rng),
            8 => {
                // A disk that holds other things, a spare, and a member of its own.
                let new = rng.pick(&[0, 1, 2, 3, 4, 5]);
                let new = match rng.one_in(2) {
                    true => self.paths[new].clone(),
                    false => self.names[at].last().expect("members").clone(),
                };
                self.run(&format!("rebuild {all} --add {new}"), is_killed, rng);
            }
            9 => drop(raidlab(&format!("create -l 1 -n 2 {} {}", self.paths[0], self.paths[5]))),
            10 => {
                let verb =
                    rng.pick(&["reshape --continue --in-place", "reshape --revert --in-place"]);
                drop(raidlab(&format!("{verb} {all}")));
            }
            _ => self.live(at, rng),
        }
    }

    /// Runs a verb, which is killed on the way if that is asked for.
    fn run(&self, words: &str, is_killed: bool, rng: &mut Rng) {
        if !is_killed {
            drop(raidlab(words));
            return;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        command.args(words.split_whitespace()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        std::thread::sleep(Duration::from_millis(rng.within(1, 120)));
        let _ = child.kill();
        child.wait().expect("it ends");
    }

    /// The life of a server: writes, a member that fails and comes back, an end in order or not.
    fn live(&self, at: usize, rng: &mut Rng) {
        // One driver writes to an array at a time, as the model has to know who wrote last.
        let Ok(mut array) = self.arrays[at].try_lock() else { return };
        let array = &mut *array;
        let name = format!("{}{}", array.made.name, rng.below(1 << 32));
        let socket = self.dir.file(&format!("{name}.nbd"));
        let words = format!(
            "--name {name} --array {} --nbd unix:{socket} {}",
            array.made.uuid,
            array.members.join(" ")
        );
        let started = Server::try_start(&self.dir, &words).or_else(|ran| {
            // It was killed while it was degraded. Else another driver's verb has it open.
            array.may_have_lost |= ran.stderr.contains("--force");
            Server::try_start(&self.dir, &format!("{words} --force"))
        });
        let Ok(server) = started else { return };
        let mut session = Session::connect_to(&socket, &name);
        let blocks = array.contents.len() / BLOCK;
        let found = session.read(0, array.contents.len());
        array.compare(&found, "a server");
        let order_of = |words: String| order(&self.dir, &words);
        let slot = rng.below(array.made.disks.len() as u64);
        let fails = rng.one_in(3);
        let mut was_degraded = is_degraded(&order_of(format!("status {name} --json")));
        if fails && !was_degraded {
            drop(order_of(format!("fail {name} {slot}")));
            was_degraded = true;
        }
        let mut in_flight: Vec<(u64, usize, Vec<u8>)> = Vec::new();
        for _ in 0..rng.within(1, 24) {
            let block = rng.index(blocks);
            if in_flight.iter().any(|(_, other, _)| *other == block) {
                continue;
            }
            let bytes = rng.bytes(BLOCK);
            let (offset, length) = ((block * BLOCK) as u64, BLOCK as u32);
            let write = Operation::Write { offset, length, fua: rng.one_in(8) };
            let cookie = session.send(write, &bytes).expect("the server reads");
            in_flight.push((cookie, block, bytes));
            if in_flight.len() == DEPTH || rng.one_in(2) {
                array.receive(&mut session, &mut in_flight);
            }
        }
        let is_killed = rng.one_in(3);
        if !is_killed {
            while !in_flight.is_empty() {
                array.receive(&mut session, &mut in_flight);
            }
        }
        if fails {
            let member = &array.members[slot as usize];
            drop(order_of(format!("remove {name} {member}")));
            if rng.one_in(2) {
                drop(order_of(format!("add {name} {member}")));
            }
        }
        drop(session);
        if is_killed {
            server.end(Signal::KILL);
            array.may_have_lost |= was_degraded && !in_flight.is_empty();
            array.either.extend(in_flight.into_iter().map(|(_, block, bytes)| (block, bytes)));
        } else {
            server.end(Signal::TERM);
        }
        let _ = std::fs::remove_file(&socket);
    }

    /// Compares everything while no driver runs.
    fn compare(&self) {
        for (path, before) in self.paths.iter().zip(&self.images) {
            let after = std::fs::read(path).expect("an image");
            let disk = self.paths.iter().position(|other| other == path).expect("it");
            let is_owned = |at: &usize| {
                let owns = |made: &Made| made.disks.contains(&disk) && made.window.contains(at);
                ARRAYS.iter().any(owns)
            };
            let changed = (0..DISK).filter(|at| before[*at] != after[*at]);
            let first = changed.into_iter().find(|at| !is_owned(at));
            assert_eq!(first, None, "{path}: a byte that no array owns has changed");
        }
        for array in &self.arrays {
            let mut array = array.lock().expect("no panic");
            let all = array.members.join(" ");
            let out = self.dir.file("out");
            let words = format!("dump --overwrite -o {out} --array {} {all}", array.made.uuid);
            let ran = until_free(&words);
            assert!(ran.code <= 1, "{}: {}", array.made.name, ran.stderr);
            if ran.code == 0 {
                let found = std::fs::read(&out).expect("it");
                array.compare(&found, "a dump");
            }
        }
    }
}

/// The kernel closes the files of a killed process some time after it.
fn until_free(words: &str) -> Ran {
    let mut ran = raidlab(words);
    for _ in 0..50 {
        if !ran.stderr.contains("has it open") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        ran = raidlab(words);
    }
    ran
}

fn is_degraded(ran: &Ran) -> bool {
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    json["degraded"] != 0
}

impl Made {
    fn policy(&self) -> &'static str {
        match self.options.starts_with("-l 1") {
            true => "first",
            false => "parity",
        }
    }

    fn read(&self, dir: &Dir, members: &str) -> Vec<u8> {
        let out = dir.file("out");
        let words = format!("dump --no-check --overwrite -o {out} --array {} {members}", self.uuid);
        raidlab(&words).code(0);
        std::fs::read(out).expect("it")
    }
}

impl Array {
    /// Takes one answer; the write that it ends is what the array holds.
    fn receive(&mut self, session: &mut Session, in_flight: &mut Vec<(u64, usize, Vec<u8>)>) {
        let (cookie, _) = session.receive().expect("the server answers");
        let at = in_flight.iter().position(|(other, ..)| *other == cookie).expect("it was sent");
        let (_, block, bytes) = in_flight.swap_remove(at);
        self.contents[block * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        self.either.retain(|(other, _)| *other != block);
    }

    /// Everything is there; of what was in flight each sector is old or new. What is seen is what
    /// stays.
    fn compare(&mut self, found: &[u8], what: &str) {
        assert_eq!(found.len(), self.contents.len(), "{}: {what}", self.made.name);
        for at in (0..found.len()).step_by(512) {
            let (sector, block) = (at..at + 512, at / BLOCK);
            let is_either = self.either.iter().any(|(other, bytes)| {
                *other == block && bytes[at % BLOCK..][..512] == found[sector.clone()]
            });
            let ok = found[sector.clone()] == self.contents[sector.clone()] || is_either;
            assert!(
                ok || self.may_have_lost,
                "{}: {what} has other bytes at {at}; in flight: {:?}",
                self.made.name,
                self.either.iter().map(|(block, _)| block).collect::<Vec<_>>()
            );
            self.contents[sector.clone()].copy_from_slice(&found[sector]);
        }
        self.either.clear();
        self.may_have_lost = false;
    }
}

#[test]
fn two_drivers_of_all_verbs_lose_nothing_and_write_nowhere_else() {
    let steps = match std::env::var("RAIDLAB_TEST").is_ok_and(|what| what == "all") {
        true => STEPS,
        false => {
            println!("steps skipped: {} of {STEPS}; RAIDLAB_TEST=all runs them", STEPS - SAMPLED);
            SAMPLED
        }
    };
    let seed = std::env::var("RAIDLAB_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("RAIDLAB_SEED={seed}");
    let mut rng = Rng::new(seed);
    let pool = Pool::new(&mut rng);
    for _ in 0..steps / (2 * ROUND) {
        let mut drivers = [Rng::new(rng.draw()), Rng::new(rng.draw())];
        std::thread::scope(|scope| {
            for driver in &mut drivers {
                let pool = &pool;
                scope.spawn(move || (0..ROUND).for_each(|_| pool.step(driver)));
            }
        });
        pool.compare();
    }
    let counts: Vec<u64> = pool.verbs.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    println!("steps by verb: {counts:?}");
}
