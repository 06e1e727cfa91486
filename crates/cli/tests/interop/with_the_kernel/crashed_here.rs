//! Arrays of ours whose process is killed while it writes: the kernel mends them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use md::geometry::Copy;
use md::{Geometry, Kind, Level, Sector};

use super::support::{guest, run, sampled};
use crate::guest::{Job, Step, pattern};
use crate::killed::{self, BLOCK, BUSY, FLUSHED, VERSIONS};
use crate::matrix::{Log, Shape};
use crate::ours;
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;

/// Where in the pattern the contents begin that an array has before.
const SKIP_MIB: usize = 2;

/// What is lost before the crash, where anything is.
const LOST: usize = 1;

/// When a member is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Never,
    /// Before the crash: the superblocks say so.
    Before,
    /// By the crash.
    After,
}

impl Loss {
    fn name(self) -> &'static str {
        match self {
            Loss::Never => "whole",
            Loss::Before => "degraded",
            Loss::After => "then-degraded",
        }
    }
}

/// An array, and when it loses a member. Arrays of one shape have one UUID, and the guest runs
/// several at once: two of one shape are far apart, and the first of each two have different ones.
fn cases() -> Vec<(Shape, Loss)> {
    let shape = |level, layout, disks, log| {
        let chunk_kib = if level == Level::Raid1 { 0 } else { 64 };
        Shape { level, layout, disks, chunk_kib, metadata: "1.2", log }
    };
    let raid5 = |log| shape(Level::Raid5, "left-symmetric", 4, log);
    vec![
        (raid5(Log::Ppl), Loss::Before),
        (shape(Level::Raid6, "right-asymmetric", 5, Log::Bitmap), Loss::Never),
        (raid5(Log::None), Loss::Before),
        (shape(Level::Raid10, "f2", 3, Log::Bitmap), Loss::Never),
        (raid5(Log::Bitmap), Loss::Never),
        (raid5(Log::Ppl), Loss::Never),
        (shape(Level::Raid1, "", 2, Log::None), Loss::Never),
        (raid5(Log::None), Loss::Never),
        (shape(Level::Raid5, "right-symmetric", 4, Log::Ppl), Loss::After),
        (raid5(Log::Bitmap), Loss::Before),
        (shape(Level::Raid1, "", 3, Log::Bitmap), Loss::Before),
    ]
}

#[test]
fn what_dies_while_it_writes_the_kernel_mends() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("crashed-here");
    let cases = sampled("arrays that die while they write", 2, cases());
    let mut jobs = Vec::new();
    for (shape, loss) in &cases {
        let mut job = shape.job(&scratch, steps(shape, *loss));
        job.name += &format!("-{}", loss.name());
        // The shapes repeat: each case has its images.
        for disk in &mut job.disks {
            let own = disk.with_extension(format!("{}.img", loss.name()));
            fs::rename(&*disk, &own).expect("an image is renamed");
            *disk = own;
        }
        crashed(shape, &job.disks, *loss, &scratch);
        jobs.push(job);
    }
    let job = Job::new("crashed-here", jobs);
    let report = run(&guest, &job, &scratch);
    for ((shape, loss), array) in cases.iter().zip(&job.arrays) {
        let (name, said) = (&array.name, report.array(&array.name));
        let log = said.kernel_logs()[0];
        let has_log = matches!(shape.log, Log::Ppl);
        if has_log {
            // The kernel replays it, and says nothing.
            assert!(!log.contains("cannot start dirty degraded array"), "{name}: {log}");
        } else if *loss == Loss::Never {
            assert!(log.contains("resync of RAID array"), "{name}: {log}");
            assert!(log.contains("resync done"), "{name}: {log}");
        } else if shape.level == Level::Raid5 {
            assert!(log.contains("cannot start dirty degraded array"), "{name}: {log}");
        }
        let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checks.len(), 1, "{name}");
        assert_eq!(checks[0].mismatches, 0, "{name}: {checks:?}");
        let facts = said.facts().pop().expect("facts");
        let contents = Stopped::open(&facts, &array.disks).contents();
        let hash = (contents.len() as u64, sha256(&contents));
        assert!(said.hashes().iter().all(|found| *found == hash), "{name}: {:?}", said.hashes());
        if *loss == Loss::Never {
            let member = &facts.members[0];
            println!("{name}: {} sectors written to member 0", member.sectors_written);
        }
        // Without a log, what is recovered for the lost member may be wrong. With one, only what
        // was being written there.
        let geometry = ours::plan(shape, true).geometry;
        let is_lost = |at: usize| match geometry.kind() {
            Kind::Parity(parity) if *loss != Loss::Never => {
                let place = parity.locate(Sector(at as u64 / 512));
                parity.row(place.stripe).data[usize::from(place.index)].index() == LOST
            }
            _ => false,
        };
        if *loss == Loss::Never || has_log || shape.level == Level::Raid1 {
            what_was_flushed_is_there(&contents, name, is_lost);
        }
    }
}

/// Makes, fills and stops an array, and runs it in a process that is killed.
fn crashed(shape: &Shape, disks: &[PathBuf], loss: Loss, scratch: &Scratch) {
    let degraded = loss == Loss::Before;
    let name = shape.name();
    let plan = ours::plan(shape, true);
    ours::create(&plan, disks);
    let array = ours::start(disks);
    let bytes = array.len_bytes() as usize;
    array.write_at(&pattern()[SKIP_MIB << 20..][..bytes], 0).expect("the engine fills the array");
    array.stop().expect("the engine stops");
    assert_eq!(dirty(&disks[0]), [0xff; 8], "{name}: clean before");
    killed::kill_while_writing(scratch, disks, degraded.then_some(LOST));
    for (member, disk) in disks.iter().enumerate() {
        if !(degraded && member == LOST) {
            assert_eq!(dirty(disk), [0; 8], "{name}: member {member} is dirty");
        }
    }
    if !degraded && !matches!(shape.log, Log::Ppl) {
        scar(&plan.geometry, disks, plan.places[0].data_offset);
    }
}

/// `resync_offset` of a superblock 1.2, at 4 KiB: 0 while an array is active, all ones when it is
/// clean.
fn dirty(disk: &PathBuf) -> [u8; 8] {
    let mut bytes = [0; 8];
    let file = fs::File::open(disk).expect("an image");
    file.read_exact_at(&mut bytes, 4096 + 208).expect("an image is read");
    bytes
}

/// Writes over what makes the first block of [`BUSY`] redundant, as a crash between two writes can
/// leave it: a check must find that, unless a resync comes first.
fn scar(geometry: &Geometry, disks: &[PathBuf], data_offset: u64) {
    let at = Sector(BUSY.start as u64 / 512);
    let (member, sector) = match geometry.kind() {
        Kind::Parity(parity) => {
            let place = parity.locate(at);
            (parity.row(place.stripe).p, parity.member_sector(place.stripe, place.offset))
        }
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); geometry.members()];
            mirrored.locate(at, &mut copies);
            let last = copies[mirrored.copies() - 1];
            (last.member, last.sector)
        }
        Kind::Striped(_) => unreachable!("nothing is redundant"),
    };
    let file = OpenOptions::new().write(true).open(&disks[member.index()]).expect("an image");
    let junk = &pattern()[90 << 20..][..BLOCK];
    file.write_all_at(junk, (data_offset + sector.0) * 512).expect("an image is written");
}

fn steps(shape: &Shape, loss: Loss) -> Vec<Step> {
    let members = match loss {
        Loss::After => {
            let left = (0..shape.disks).filter(|at| *at != LOST);
            left.map(|at| format!("@{at}")).collect::<Vec<_>>().join(" ")
        }
        _ => shape.members(),
    };
    let assemble = |options: &str| format!("--assemble @md {options} {members}");
    let mut steps = Vec::new();
    if loss == Loss::Never {
        steps.extend([Step::mdadm(assemble("")), Step::Settle { degraded: 0 }, Step::Sha256]);
    } else {
        if shape.level == Level::Raid5 && !matches!(shape.log, Log::Ppl) {
            steps.push(Step::mdadm_refused(assemble("--run")));
            steps.push(Step::mdadm(assemble("--run --force")));
        } else {
            // Mirrors have no parity that could be wrong; a log makes it right.
            steps.push(Step::mdadm(assemble("--run")));
        }
        steps.extend([
            Step::Settle { degraded: 1 },
            Step::Sha256,
            Step::mdadm(format!("@md --add @{LOST}")),
            Step::Settle { degraded: 0 },
            Step::Sha256,
        ]);
    }
    steps.extend([Step::Check, Step::Facts, Step::stop(), Step::KernelLog]);
    steps
}

/// All that was not being written when the process died is as it was, and what was being written is
/// one of its versions, unless it was on a lost member.
fn what_was_flushed_is_there(contents: &[u8], name: &str, is_lost: impl Fn(usize) -> bool) {
    let mut wanted = pattern()[SKIP_MIB << 20..][..contents.len()].to_vec();
    wanted[FLUSHED].copy_from_slice(killed::flushed());
    for block in 0..BUSY.len() / BLOCK {
        let at = BUSY.start + block * BLOCK;
        let found = &contents[at..][..BLOCK];
        let mut versions = (0..VERSIONS).map(|version| killed::version(block, version));
        let is_one = versions.any(|version| version == found) || is_lost(at);
        assert!(is_one, "{name}: block {block} is torn");
        wanted[at..][..BLOCK].copy_from_slice(found);
    }
    assert!(wanted == contents, "{name}: what was not being written has changed");
}
