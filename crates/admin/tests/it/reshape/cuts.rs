//! The power fails at any write or flush of a reshape; it is restarted until it is over.

use std::sync::atomic::AtomicBool;

use md::ondisk::superblock::Superblock;
use md::reshape::Goal;
use parity::Kernels;
use raidlab_admin::Opened;
use raidlab_admin::reshape::{
    ReshapeError, ReshapeJob, ReshapeReport, ReshapeState, reshape_members,
};
use testkit::Rng;

use super::arrays::{Kind2, dumped, kinds};
use super::world::World;

const SECTORS: u64 = 384;

/// Small, so that a run has many records.
const LIMITS: [u64; 3] = [48, 192, 192];

fn opened(world: &World) -> Vec<Opened> {
    world.disks().into_iter().map(|disk| Opened::disk(disk).expect("a superblock")).collect()
}

fn has_header(world: &World) -> bool {
    let mut magic = [0; 14];
    world.file().read(0, &mut magic).is_ok() && &magic == b"md_backup_data"
}

fn run(world: &World, goal: Goal) -> Result<ReshapeReport, ReshapeError> {
    run_until(world, goal, &AtomicBool::new(false))
}

fn run_until(world: &World, goal: Goal, stop: &AtomicBool) -> Result<ReshapeReport, ReshapeError> {
    let job = ReshapeJob {
        goal,
        // Nothing is under way before the backup has its first header.
        force: !has_header(world),
        array: None,
        backups: vec![world.file()],
        own: Some(world.file()),
        kernels: Kernels::best(),
        limits: Some(LIMITS),
    };
    reshape_members(&opened(world), &job, stop, &mut |_| {})
}

/// The array is settled in this geometry, holds its contents, and its redundancy is right.
fn is_over(world: &World, kind: &Kind2, contents: &[u8], goal: Goal, context: &str) {
    let disks = world.disks();
    let wanted = if goal == Goal::Revert { kind.old } else { kind.new };
    let mut events = Vec::new();
    // A superblock 0.90 has eight sectors, and may be torn: its member is lost then, as in Linux.
    let is_torn = |it: &Opened| kind.is_v0 && !it.checksum.is_correct();
    assert!(opened(world).iter().filter(|it| is_torn(it)).count() <= 1, "{context}");
    for opened in opened(world).into_iter().filter(|it| !is_torn(it)) {
        let metadata = opened.superblock.metadata();
        events.push(metadata.events);
        assert_eq!(metadata.reshape, None, "{context}");
        let found = (metadata.layout as i32, metadata.chunk_sectors, metadata.raid_disks);
        assert_eq!(found, wanted, "{context}");
        assert_eq!(metadata.recovery_offset, None, "{context}");
        if let Superblock::V1(superblock) = &opened.superblock {
            assert_eq!(superblock.data_offset + superblock.data_size, disks[0].sectors());
        }
    }
    assert!(events.iter().all(|it| *it == events[0]), "{context}: {events:?}");
    let (bytes, differing) = dumped(&disks).unwrap_or_else(|why| panic!("{context}: {why}"));
    assert!(bytes.len() >= contents.len(), "{context}: {} bytes", bytes.len());
    assert!(bytes[..contents.len()] == *contents, "{context}: the contents");
    assert_eq!(differing, [], "{context}");
    if goal == Goal::Continue && kind.level.has_parity() {
        assert!(bytes[contents.len()..].iter().all(|byte| *byte == 0), "{context}: behind them");
    }
}

/// Where the contents of what can be read are right; in a window whose old rows are half
/// overwritten only the backup has them.
fn is_readable(world: &World, contents: &[u8], has_room: bool, context: &str) {
    if !has_room {
        return;
    }
    let (bytes, _) = dumped(&world.disks()).unwrap_or_else(|why| panic!("{context}: {why}"));
    let len = bytes.len().min(contents.len());
    assert!(bytes[..len] == contents[..len], "{context}: what dump reads");
}

/// One reshape, cut at this operation and then, with luck, again.
fn cut(kind: &Kind2, goal: Goal, at: u64, seed: u64, lies: bool) -> Result<(), String> {
    let made = kind.make(SECTORS);
    let world = World::new(&made.images, 1 << 20);
    if lies {
        world.flushes_lie();
    }
    let mut rng = Rng::new(seed);
    let context = format!("{}, {goal:?}, cut at {at}, seed {seed}", kind.name);
    let mut goal_now = goal;
    let mut next = Some(at);
    for _ in 0..6 {
        world.cut_at(next);
        match run(&world, goal_now) {
            Ok(report) => {
                assert_eq!(report.state, ReshapeState::Finished, "{context}");
                is_over(&world, kind, &made.contents, goal, &context);
                return Ok(());
            }
            Err(error) if error.to_string().contains("the power is cut") => {
                world.restart(&mut rng);
                is_readable(&world, &made.contents, kind.shift > 0, &context);
                if goal == Goal::Revert && has_turned(&world, kind) {
                    goal_now = Goal::Continue;
                }
                next = rng.one_in(2).then(|| world.operations() + 1 + rng.below(40));
            }
            Err(error) if error.to_string().contains("no reshape is in progress") => {
                is_over(&world, kind, &made.contents, goal, &context);
                return Ok(());
            }
            Err(error) => return Err(format!("{context}: {error}")),
        }
    }
    world.cut_at(None);
    run(&world, goal_now).map_err(|error| format!("{context}: {error}"))?;
    is_over(&world, kind, &made.contents, goal, &context);
    Ok(())
}

/// Whether the freshest superblock goes back, or has gone back.
fn has_turned(world: &World, kind: &Kind2) -> bool {
    let metadata = opened(world).into_iter().map(|opened| opened.superblock.metadata());
    let freshest = metadata.max_by_key(|metadata| metadata.events).expect("a member");
    freshest.reshape.is_none_or(|reshape| reshape.backwards != kind.backwards)
}

/// How many operations an uncut run has.
fn operations(kind: &Kind2, goal: Goal) -> u64 {
    let made = kind.make(SECTORS);
    let world = World::new(&made.images, 1 << 20);
    run(&world, goal).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    is_over(&world, kind, &made.contents, goal, kind.name);
    world.operations()
}

/// A reshape that is carried half way, and then reverted.
fn half_way_back(kind: &Kind2, part: u64) {
    let made = kind.make(SECTORS);
    let world = World::new(&made.images, 1 << 20);
    let all = operations(kind, Goal::Continue);
    let stop = AtomicBool::new(false);
    world.cut_at(Some(all * part / 8));
    let cut = run_until(&world, Goal::Continue, &stop);
    assert!(cut.is_err(), "{}", kind.name);
    world.restart(&mut Rng::new(part));
    let report = run(&world, Goal::Revert);
    let report = report.unwrap_or_else(|error| panic!("{} at {part}/8: {error}", kind.name));
    assert_eq!(report.state, ReshapeState::Finished, "{}", kind.name);
    is_over(&world, kind, &made.contents, Goal::Revert, kind.name);
}

pub(super) fn can_revert(kind: &Kind2) -> bool {
    !(kind.is_v0 && kind.old.2 == kind.new.2) && kind.empty.is_empty()
}

#[test]
fn a_reshape_that_is_cut_anywhere_is_finished_with_its_contents() {
    let count = if testkit::runs_all() { 50 } else { 6 };
    testkit::print_sample("cuts of each reshape", count, 50);
    for kind in kinds() {
        let all = operations(&kind, Goal::Continue);
        let mut rng = Rng::new(all);
        for number in 0..count {
            let at = rng.below(all);
            cut(&kind, Goal::Continue, at, number, false).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

#[test]
fn a_reshape_is_reverted_from_anywhere() {
    let parts: &[u64] = if testkit::runs_all() { &[0, 1, 2, 3, 4, 5, 6, 7] } else { &[0, 3, 6] };
    testkit::print_sample("positions of each revert", parts.len() as u64, 8);
    for kind in kinds().into_iter().filter(can_revert) {
        parts.iter().for_each(|&part| half_way_back(&kind, part));
    }
}

#[test]
fn a_revert_that_is_cut_is_carried_out() {
    let count = if testkit::runs_all() { 50 } else { 3 };
    testkit::print_sample("cuts of each revert", count, 50);
    for kind in kinds().into_iter().filter(can_revert) {
        let mut rng = Rng::new(7);
        for number in 0..count {
            let at = rng.below(60);
            cut(&kind, Goal::Revert, at, number, false).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// The harness sees a superblock that is ahead of the data.
#[test]
fn a_record_before_the_data_are_durable_is_found_out() {
    let kind = kinds().into_iter().find(|kind| kind.shift > 0).expect("one that moves");
    let mut found = 0;
    for seed in 0..20 {
        let at = 20 + 5 * seed;
        let cut = || cut(&kind, Goal::Continue, at, seed, true).is_err();
        found += u32::from(std::panic::catch_unwind(cut).unwrap_or(true));
    }
    assert!(found > 5, "{found} of 20 cuts");
}
