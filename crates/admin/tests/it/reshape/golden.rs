//! Arrays that the kernel left in mid-reshape: finished and reverted from where they are, and from
//! every position at which a run of ours can be stopped.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use md::reshape::Goal;
use parity::Kernels;
use raidlab_admin::Opened;
use raidlab_admin::reshape::{
    ReshapeEvent, ReshapeJob, ReshapeReport, ReshapeState, reshape_members,
};
use sha2::{Digest, Sha256};

use super::arrays::dumped;
use super::world::World;

const CASES: [&str; 3] =
    ["raid5-4d-reshape-3to4", "raid5-4d-reshape-shrink-4to3", "raid10-5d-reshape-4to5"];

fn corpus() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let beside = beside.join("../../../shared/reference/md-corpus");
    let path = std::env::var_os("RAIDLAB_MD_CORPUS").map_or(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

/// Runs until it is over, or until the first record after `moves` moves.
fn run(world: &World, goal: Goal, moves: Option<u32>) -> ReshapeReport {
    let disks = world.disks().into_iter();
    let opened: Vec<Opened> = disks.map(|disk| Opened::disk(disk).expect("a superblock")).collect();
    let job = ReshapeJob {
        goal,
        // The backup of the one that shrinks was not kept; it was stopped in order.
        force: true,
        array: None,
        backups: vec![world.file()],
        own: Some(world.file()),
        kernels: Kernels::best(),
        limits: Some([6144, 12288, 6144]),
    };
    let stop = AtomicBool::new(moves == Some(0));
    let mut left = moves.unwrap_or(u32::MAX);
    let mut observe = |event: ReshapeEvent| {
        if matches!(event, ReshapeEvent::Progress { .. }) {
            left = left.saturating_sub(1);
            stop.fetch_or(left == 0, Ordering::Relaxed);
        }
    };
    reshape_members(&opened, &job, &stop, &mut observe).unwrap_or_else(|error| panic!("{error}"))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The array as it is dumped: its first bytes, and all redundancy right.
fn holds(world: &World, wanted: &[u8], context: &str) {
    let (found, differing) =
        dumped(&world.disks()).unwrap_or_else(|why| panic!("{context}: {why}"));
    assert!(found[..wanted.len()] == *wanted, "{context}: the contents");
    assert_eq!(differing, [], "{context}");
}

fn finishes(world: &World, goal: Goal, wanted: &[u8], context: &str) {
    let report = run(world, goal, None);
    assert_eq!(report.state, ReshapeState::Finished, "{context}");
    assert!(report.array_sectors as usize * 512 >= wanted.len(), "{context}");
    holds(world, wanted, &format!("{context}, {goal:?}"));
}

#[test]
fn the_kernels_reshapes_are_finished_and_reverted_from_every_position() {
    let Some(corpus) = corpus() else {
        println!("skipped: the whole corpus is not there, RAIDLAB_MD_CORPUS names none");
        return;
    };
    for name in CASES {
        let case = crate::golden::load(&corpus.join(name));
        let hash = case.json["sha256_of_array_contents"].as_str().expect("a hash").to_string();
        let bytes = case.json["array_size_bytes"].as_u64().expect("a size") as usize;
        let images: Vec<Vec<u8>> = case
            .disks
            .iter()
            .map(|disk| {
                let mut bytes = vec![0; disk.sectors() as usize * 512];
                disk.read(0, &mut bytes).expect("memory");
                bytes
            })
            .collect();
        let world = World::new(&images, 4 << 20).copy();
        let (mut wanted, _) = dumped(&world.disks()).expect("it is readable");
        wanted.truncate(bytes);
        assert_eq!(sha256(&wanted), hash, "{name}");
        let mut positions = 0;
        let every = if testkit::runs_all() { 1 } else { 3 };
        loop {
            if positions % every == 0 {
                for goal in [Goal::Continue, Goal::Revert] {
                    let copy = world.copy();
                    let context = format!("{name}, after {positions} steps");
                    finishes(&copy, goal, &wanted, &context);
                }
            }
            let report = run(&world, Goal::Continue, Some(1));
            positions += 1;
            if positions % every == 0 {
                holds(&world, &wanted, &format!("{name} at {}", report.position));
            }
            if report.state == ReshapeState::Finished {
                break;
            }
        }
        testkit::print_sample("positions", positions / every + 1, positions);
        assert!(positions > 3, "{name}: {positions} positions");
    }
}

/// A RAID 0 of two that Linux made grow to three, reset at about a third.
#[test]
fn a_raid0_that_grows_goes_on_and_is_not_turned_round() {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let case = cases.join("../../../shared/reference/field-cases/reshape-revert-raid0");
    if !case.is_dir() {
        println!("skipped: no {}", case.display());
        return;
    }
    let image = |number: u32| {
        let packed = std::fs::File::open(case.join(format!("k{number}.img.zst"))).expect("it");
        let mut bytes = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).expect("zstd");
        std::io::Read::read_to_end(&mut decoder, &mut bytes).expect("zstd");
        bytes
    };
    let images: Vec<Vec<u8>> = (0..3).map(image).collect();
    let world = World::new(&images, 16 << 20);
    let contents = dumped(&world.disks()).expect("it can be read").0;
    assert!(sha256(&contents).starts_with("90ce49b0"));
    let disks = world.disks().into_iter();
    let opened: Vec<Opened> = disks.map(|disk| Opened::disk(disk).expect("a superblock")).collect();
    let job = ReshapeJob {
        goal: Goal::Revert,
        force: true,
        array: None,
        backups: vec![world.file()],
        own: Some(world.file()),
        kernels: Kernels::best(),
        limits: None,
    };
    let refused = reshape_members(&opened, &job, &AtomicBool::new(false), &mut |_| {});
    let why = refused.expect_err("the way back would serve less").to_string();
    assert!(why.contains("would serve less"), "{why}");
    assert!(world.images() == images, "{why}: something was written");
    assert_eq!(run(&world, Goal::Continue, None).state, ReshapeState::Finished);
    let (found, _) = dumped(&world.disks()).expect("it can be read");
    assert!(found[..contents.len()] == contents, "the contents");
}
