//! Reshapes that the kernel began: finished and reverted here, and begun there, carried on here and
//! ended there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use admin::reshape::{ReshapeError, ReshapeEvent, ReshapeOptions, ReshapeState, Where};
use md::ondisk::Version;
use md::ondisk::superblock::{SuperblockV1, feature};
use md::reshape::{Goal, ReshapeRefusal};

use super::support::{assembled_whole, guest_of_the_whole, is_right, run};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::ours;
use crate::program;
use crate::reader::sha256;
use crate::scratch::Scratch;

/// Half of a member is data, and half is room in front of them: what the kernel has moved without
/// recording it (6.12 does) overwrites nothing.
const DISK_BYTES: u64 = 16 << 20;

/// First byte of a superblock 1.2.
const SUPERBLOCK: usize = 4096;

/// Where a reshape begins.
enum Begins {
    /// In the guest, with these words for mdadm.
    There(&'static str),
    /// By the superblocks alone, which get another layout to come: in the guest it is over too soon
    /// for a position in the middle, or has moved more than mdadm's backup and its superblocks say.
    Here { new_layout: u32 },
}

/// A reshape of an array of the kernel's.
struct Kind {
    name: &'static str,
    create: &'static str,
    members: usize,
    /// Disks that join.
    more: usize,
    /// Before the array is filled.
    before: &'static str,
    begins: Begins,
    has_backup: bool,
    /// Bytes that keep their contents.
    bytes: usize,
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "devices",
        create: "--level=5 --raid-devices=3 --chunk=64 --metadata=1.2 --data-offset=8M",
        members: 3,
        more: 1,
        before: "",
        begins: Begins::There("--raid-devices=4"),
        has_backup: false,
        bytes: 16 << 20,
    },
    Kind {
        name: "fewer",
        create: "--level=5 --raid-devices=4 --chunk=64 --metadata=1.2 --data-offset=8M",
        members: 4,
        more: 0,
        before: "--array-size=16384K",
        begins: Begins::There("--raid-devices=3"),
        has_backup: true,
        bytes: 16 << 20,
    },
    Kind {
        name: "chunk",
        create: "--level=5 --raid-devices=4 --chunk=64 --metadata=1.2 --data-offset=8M",
        members: 4,
        more: 0,
        before: "",
        begins: Begins::There("--chunk=32"),
        has_backup: false,
        bytes: 24 << 20,
    },
    Kind {
        name: "level",
        create: "--level=6 --layout=left-symmetric-6 --raid-devices=5 --chunk=64 --metadata=1.2 \
                 --data-offset=64K",
        members: 5,
        more: 0,
        before: "",
        begins: Begins::Here { new_layout: 2 },
        has_backup: true,
        bytes: 28 << 20,
    },
    Kind {
        name: "mirrors",
        create: "--level=10 --raid-devices=4 --chunk=64 --metadata=1.2 --data-offset=8M",
        members: 4,
        more: 1,
        before: "",
        begins: Begins::There("--raid-devices=5"),
        has_backup: false,
        bytes: 16 << 20,
    },
    Kind {
        name: "layout",
        create: "--level=5 --raid-devices=4 --chunk=64 --metadata=1.2 --data-offset=64K",
        members: 4,
        more: 0,
        before: "",
        begins: Begins::Here { new_layout: 0 },
        has_backup: true,
        bytes: 28 << 20,
    },
    Kind {
        name: "old",
        create: "--level=5 --raid-devices=3 --chunk=64 --metadata=0.90",
        members: 3,
        more: 1,
        before: "",
        begins: Begins::There("--raid-devices=4"),
        has_backup: true,
        bytes: 16 << 20,
    },
];

fn command(words: &str) -> Step {
    Step::Command(words.into())
}

impl Kind {
    /// Not more than the guest has room for.
    fn disk_bytes(&self) -> u64 {
        let has_room = self.create.contains("--data-offset=8M");
        if has_room { DISK_BYTES } else { 10 << 20 }
    }

    fn disks(&self) -> usize {
        self.members + self.more
    }

    /// The reshape runs for a moment, slowly, and is stopped in order.
    fn begun(&self, scratch: &Scratch) -> ArrayJob {
        let name = self.name;
        let words = |disks: std::ops::Range<usize>| {
            disks.map(|disk| format!("@{disk}")).collect::<Vec<_>>().join(" ")
        };
        let create = format!(
            "--create @md --run --assume-clean --bitmap=none {} {}",
            self.create,
            words(0..self.members)
        );
        let mut steps = vec![Step::mdadm(create)];
        if !self.before.is_empty() {
            steps.push(Step::mdadm(format!("--grow @md {}", self.before)));
        }
        steps.push(Step::Fill { skip_mib: 3 });
        for disk in self.members..self.disks() {
            steps.push(Step::mdadm(format!("@md --add @{disk}")));
        }
        let backup = format!("/tmp/{name}.backup");
        if let Begins::There(words) = self.begins {
            steps.push(command("eval echo 1000 >$sysfs/sync_speed_max"));
            steps.push(command("eval echo 1000 >$sysfs/sync_speed_min"));
            let file =
                if self.has_backup { format!("--backup-file={backup}") } else { String::new() };
            steps.push(Step::mdadm(format!("--grow @md {words} {file}")));
            let wait = if self.has_backup { "sleep 1" } else { "usleep 300000" };
            steps.push(command(wait));
            if self.has_backup {
                // Otherwise it takes the freezing for an end, and the kernel runs without a limit.
                steps.push(command("eval pkill -9 -f grow.$md || true"));
                steps.push(command("sleep 1"));
            }
            steps.push(command("eval echo frozen >$sysfs/sync_action"));
            steps.push(command("sleep 1"));
        }
        steps.push(Step::stop());
        let mut disks: Vec<PathBuf> = (0..self.disks())
            .map(|disk| scratch.image(&format!("{name}.{disk}.img"), self.disk_bytes()))
            .collect();
        if self.has_backup && matches!(self.begins, Begins::There(_)) {
            // mdadm removes it behind the critical section of a growth.
            let copy = format!("dd if={backup} of=@{} bs=1M conv=fsync", self.disks());
            steps.push(command(&format!("eval [ ! -e {backup} ] || {copy}")));
            disks.push(scratch.image(&format!("{name}.backup.img"), 48 << 20));
        }
        ArrayJob { name: name.into(), disks, steps }
    }

    /// Gives the superblocks a reshape that is about to begin.
    fn begin_here(&self, members: &[PathBuf]) {
        let Begins::Here { new_layout } = self.begins else { return };
        for path in members {
            let mut image = std::fs::read(path).expect("an image");
            let read = &image[SUPERBLOCK..][..4096];
            let (mut superblock, _) =
                SuperblockV1::decode(read, Version::V1_2).expect("a superblock");
            superblock.feature_map |= feature::RESHAPE_ACTIVE;
            (superblock.new_level, superblock.new_layout) = (superblock.level, new_layout);
            (superblock.new_chunk, superblock.delta_disks) = (superblock.chunksize, 0);
            superblock.reshape_position = 0;
            let bytes = superblock.encode(512);
            image[SUPERBLOCK..][..bytes.len()].copy_from_slice(&bytes);
            std::fs::write(path, image).expect("an image");
        }
    }

    fn wanted(&self) -> &'static [u8] {
        &pattern()[3 << 20..][..self.bytes]
    }
}

/// What is done here with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    Finished,
    Reverted,
    /// Only so many moves; the kernel does the rest.
    PartOf(Goal, u32),
}

fn copies(scratch: &Scratch, from: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let copy = |(number, image): (usize, &PathBuf)| {
        let to = scratch.path().join(format!("{name}.{number}.img"));
        std::fs::copy(image, &to).expect("an image is copied");
        to
    };
    from.iter().enumerate().map(copy).collect()
}

/// Forced only where Linux has recorded too little for it to be believed: here it has stopped where
/// nothing is overwritten.
fn reshape(members: &[PathBuf], goal: Goal, backup: Option<PathBuf>, moves: u32) -> ReshapeState {
    let names: Vec<_> = members.iter().map(|path| path.clone().into_os_string()).collect();
    let stop = AtomicBool::new(false);
    let mut left = moves;
    let mut observe = |event: ReshapeEvent| {
        if matches!(event, ReshapeEvent::Progress { .. }) {
            left = left.saturating_sub(1);
            stop.fetch_or(left == 0, Ordering::Relaxed);
        }
    };
    let mut run = |force| {
        let backup_file = backup.clone();
        let options = ReshapeOptions { goal, to: Where::InPlace, backup_file, force, array: None };
        admin::reshape::reshape(&names, &options, &stop, &mut observe)
    };
    let report = match run(false) {
        Err(ReshapeError::Refused { why: ReshapeRefusal::NeedsForce(why), .. }) => {
            println!("forced: {why}");
            run(true)
        }
        other => other,
    };
    report.unwrap_or_else(|error| panic!("{members:?}: {error}")).state
}

/// The array as `raidlab dump` writes it, whose first bytes are what it was filled with.
fn dumped(kind: &Kind, members: &[PathBuf], scratch: &Path) -> Vec<u8> {
    let out = scratch.join("contents.img");
    program::dump(members, &out);
    let bytes = std::fs::read(&out).expect("it was written");
    std::fs::remove_file(&out).expect("it is there");
    let len = kind.bytes.min(bytes.len());
    assert!(bytes[..len] == kind.wanted()[..len], "{}: the contents", kind.name);
    bytes
}

/// What the guest does with an array, and what it must find.
type Ready<T> = (ArrayJob, (&'static Kind, T));

/// Two lanes take turns, and copies of one array have one UUID: all of a kind are for one lane.
fn in_lanes<T>(all: impl Iterator<Item = Ready<T>>) -> Vec<Ready<T>> {
    let mut kinds: Vec<Vec<Ready<T>>> = Vec::new();
    for one in all {
        match kinds.last_mut().filter(|kind| kind[0].1.0.name == one.1.0.name) {
            Some(kind) => kind.push(one),
            None => kinds.push(vec![one]),
        }
    }
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.len()));
    let mut lanes = [Vec::new(), Vec::new()];
    for kind in kinds {
        let shorter = usize::from(lanes[1].len() < lanes[0].len());
        lanes[shorter].extend(kind);
    }
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.len()));
    let [first, second] = lanes;
    assert!(first.len() - second.len() <= 1, "the lanes cannot take turns");
    let mut second = second.into_iter();
    first.into_iter().flat_map(|one| std::iter::once(one).chain(second.next())).collect()
}

#[test]
fn reshapes_of_the_kernel_are_finished_and_reverted_and_taken_back() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("reshape");
    let begun = Job::new("begun", KINDS.iter().map(|kind| kind.begun(&scratch)).collect());
    run(&guest, &begun, &scratch);

    let mut jobs = Vec::new();
    let mut wanted = Vec::new();
    let mut in_the_middle = 0;
    for (kind, job) in KINDS.iter().zip(&begun.arrays) {
        let (members, backup) = job.disks.split_at(kind.disks());
        kind.begin_here(members);
        let superblock = ours::superblocks(members).swap_remove(0);
        let Some(state) = superblock.reshape else {
            println!("{}: the kernel has finished it", kind.name);
            continue;
        };
        println!("{}: at {}", kind.name, state.position);
        in_the_middle += 1;
        let mut ways = vec![Here::Finished, Here::Reverted];
        if !kind.has_backup {
            ways.extend([Here::PartOf(Goal::Continue, 2), Here::PartOf(Goal::Revert, 1)]);
        }
        for how in ways {
            let name = format!("{}-{how:?}", kind.name).replace(['(', ')', ',', ' '], "-");
            println!("{name}");
            let members = copies(&scratch, members, &name);
            let backup = match kind.begins {
                Begins::Here { .. } => Some(scratch.path().join(format!("{name}.backup"))),
                Begins::There(_) => {
                    copies(&scratch, backup, &format!("{name}.backup")).into_iter().next()
                }
            };
            let (goal, moves) = match how {
                Here::Finished => (Goal::Continue, u32::MAX),
                Here::Reverted => (Goal::Revert, u32::MAX),
                Here::PartOf(goal, moves) => (goal, moves),
            };
            // Where there is a backup, only it has what was under way; and of another chunk, Linux
            // may have moved more than it recorded, so that `dump` ends with 1.
            if !kind.has_backup && kind.name != "chunk" {
                dumped(kind, &members, scratch.path());
            }
            let state = reshape(&members, goal, backup, moves);
            let is_over = state == ReshapeState::Finished;
            assert!(is_over || matches!(how, Here::PartOf(..)), "{name}: {state:?}");
            let is_settled = is_over.then(|| {
                let bytes = dumped(kind, &members, scratch.path());
                (bytes.len() as u64, sha256(&bytes))
            });
            let disks = (0..members.len()).map(|disk| format!("@{disk}"));
            let disks = disks.collect::<Vec<_>>().join(" ");
            let steps = assembled_whole(&disks);
            let disks = members;
            jobs.push(ArrayJob { name, disks, steps });
            wanted.push((kind, is_settled));
        }
    }
    assert!(3 * in_the_middle >= 2 * KINDS.len(), "{in_the_middle} are in mid-reshape");
    let (jobs, wanted): (Vec<_>, Vec<_>) =
        in_lanes(jobs.into_iter().zip(wanted)).into_iter().unzip();
    let job = Job::new("reshaped", jobs);
    let report = run(&guest, &job, &scratch);
    for ((kind, wanted), job) in wanted.iter().zip(&job.arrays) {
        let said = report.array(&job.name);
        if let Some(wanted) = wanted {
            is_right(said, wanted);
            continue;
        }
        // Ended by the kernel: what it reads is what we read of it.
        let bytes = dumped(kind, &job.disks, scratch.path());
        is_right(said, &(bytes.len() as u64, sha256(&bytes)));
        assert!(bytes.len() >= kind.bytes, "{}", job.name);
    }
}
