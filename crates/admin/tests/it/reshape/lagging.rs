//! Linux recorded less than it moved: the contents are right afterwards, or it is refused.

use std::sync::atomic::{AtomicBool, Ordering};

use md::geometry::Generation;
use md::ondisk::reshape_backup::{BackupCopy, ReshapeBackup};
use md::ondisk::superblock::Superblock;
use md::reshape::{Goal, ReshapeRefusal, Subject, subject};
use parity::Kernels;
use raidlab_admin::Opened;
use raidlab_admin::reshape::{
    ReshapeError, ReshapeEvent, ReshapeJob, ReshapeState, reshape_members,
};

use super::arrays::{Kind2, SECTOR, doubted, dumped, kinds};
use super::world::World;

const SECTORS: u64 = 384;

/// Moves are single steps, so that any of them can be the last.
const LIMITS: [u64; 3] = [1, 1 << 20, 1];

fn opened(world: &World) -> Vec<Opened> {
    world.disks().into_iter().map(|disk| Opened::disk(disk).expect("a superblock")).collect()
}

/// Runs so many moves, or to the end.
fn run(
    world: &World,
    goal: Goal,
    force: bool,
    moves: u32,
) -> Result<(ReshapeState, u64), ReshapeError> {
    let job = ReshapeJob {
        goal,
        force,
        array: None,
        backups: vec![world.file()],
        own: Some(world.file()),
        kernels: Kernels::best(),
        limits: Some(LIMITS),
    };
    let (mut left, stop) = (moves, AtomicBool::new(false));
    let mut observe = |event: ReshapeEvent| {
        if matches!(event, ReshapeEvent::Progress { .. }) {
            left = left.saturating_sub(1);
            stop.fetch_or(left == 0, Ordering::Relaxed);
        }
    };
    let report = reshape_members(&opened(world), &job, &stop, &mut observe)?;
    Ok((report.state, report.position))
}

/// An array at a position, as it is on the disks.
struct Stage {
    position: u64,
    images: Vec<Vec<u8>>,
    superblocks: Vec<Superblock>,
}

fn of_linux(superblock: &Superblock) -> Superblock {
    let mut superblock = superblock.clone();
    match &mut superblock {
        Superblock::V1(superblock) => superblock.utime.micros = 0,
        Superblock::V0(superblock) => superblock.state_reserved[0] = 0,
    }
    superblock
}

/// All positions of a reshape, from its start on.
fn stages(kind: &Kind2) -> Vec<Stage> {
    let made = kind.make(SECTORS);
    let world = World::new(&made.images, 1 << 20);
    let mut stages = Vec::new();
    let stage = |world: &World, position| Stage {
        position,
        images: world.images(),
        superblocks: opened(world).iter().map(|it| of_linux(&it.superblock)).collect(),
    };
    let metadata = opened(&world)[0].superblock.metadata();
    stages.push(stage(&world, metadata.reshape.expect("it begins").position));
    loop {
        let (state, position) =
            run(&world, Goal::Continue, true, 1).unwrap_or_else(|why| panic!("{why}"));
        if state == ReshapeState::Finished {
            return stages;
        }
        stages.push(stage(&world, position));
    }
}

/// What was moved up to `moved`, and recorded up to `recorded`.
fn lagging(recorded: &Stage, moved: &Stage) -> World {
    let mut images = moved.images.clone();
    for (image, superblock) in images.iter_mut().zip(&recorded.superblocks) {
        let bytes = superblock.encode(SECTOR);
        image[superblock.sector() as usize * SECTOR..][..bytes.len()].copy_from_slice(&bytes);
    }
    World::new(&images, 1 << 20)
}

#[derive(Default)]
struct Count {
    right: u32,
    refused: u32,
}

impl Count {
    /// Right, or refused with the need of force; never wrong.
    fn ends(&mut self, world: &World, goal: Goal, contents: &[u8], context: &str) {
        match run(world, goal, false, u32::MAX) {
            Ok((state, _)) => {
                assert_eq!(state, ReshapeState::Finished, "{context}");
                let (bytes, differing) = dumped(&world.disks()).expect(context);
                assert!(bytes[..contents.len()] == *contents, "{context}: wrong, with success");
                assert_eq!(differing, [], "{context}");
                self.right += 1;
            }
            Err(ReshapeError::Refused { why: ReshapeRefusal::NeedsForce(_), .. }) => {
                self.refused += 1;
            }
            Err(error) => panic!("{context}: {error}"),
        }
    }
}

fn pairs(stages: usize) -> Vec<(usize, usize)> {
    let all = (0..stages).flat_map(|from| (from..stages).map(move |to| (from, to)));
    if testkit::runs_all() {
        return all.collect();
    }
    all.filter(|(from, to)| (from * 3 + to) % 41 == 0 || to - from < 2 && from % 9 == 0).collect()
}

#[test]
fn more_moved_than_recorded_ends_right_or_is_refused() {
    let mut sampled = (0_u64, 0_u64);
    let mut all = Count::default();
    for kind in kinds() {
        let contents = kind.make(SECTORS).contents;
        let stages = stages(&kind);
        let pairs = pairs(stages.len());
        sampled.0 += pairs.len() as u64;
        sampled.1 += (stages.len() * (stages.len() + 1) / 2) as u64;
        let mut count = Count::default();
        for (from, to) in pairs {
            let (recorded, moved) = (&stages[from], &stages[to]);
            let context =
                format!("{}: recorded {}, moved {}", kind.name, recorded.position, moved.position);
            let world = lagging(recorded, moved);
            // Linux would have recorded more: `reshape_of_linux` in the tests of md.
            if from != to && as_subject(&world).plan().linux_keeps(recorded.position) {
                continue;
            }
            // What dump reads is right, or it says that it may be wrong.
            if !doubted(&world.disks()) {
                let (bytes, _) = dumped(&world.disks()).expect(&context);
                let len = bytes.len().min(contents.len());
                assert!(bytes[..len] == contents[..len], "{context}: what dump reads");
            }
            let goals = if from == to && super::cuts::can_revert(&kind) {
                vec![Goal::Continue, Goal::Revert]
            } else {
                vec![Goal::Continue]
            };
            for goal in goals {
                count.ends(&world.copy(), goal, &contents, &format!("{context}, {goal:?}"));
            }
        }
        println!("{}: {} right, {} refused", kind.name, count.right, count.refused);
        all.right += count.right;
        all.refused += count.refused;
    }
    testkit::print_sample("pairs of positions", sampled.0, sampled.1);
    assert!(all.right > 100 && all.refused > 50, "{} right, {} refused", all.right, all.refused);
}

fn as_subject(world: &World) -> Subject {
    let candidates: Vec<_> = opened(world).iter().map(Opened::candidate).collect();
    let found = md::assemble::assemble(&candidates, &Default::default());
    subject(&found.arrays[0], &candidates, Goal::Continue, true).expect("a reshape")
}

/// mdadm's backup covers the position: with it the end is right, wherever in it Linux stopped; and
/// if Linux went beyond it, that is noticed or does no harm.
#[test]
fn with_a_backup_of_mdadms_it_is_right_or_the_backup_is_found_out() {
    let mut inside = Count::default();
    let mut beyond = Count::default();
    for kind in kinds().into_iter().filter(|kind| kind.shift == 0 && !kind.backwards) {
        let made = kind.make(SECTORS);
        let stages = stages(&kind);
        let every = if testkit::runs_all() { 1 } else { 5 };
        for (from, recorded) in stages.iter().enumerate().step_by(every) {
            let lag = lagging(recorded, recorded);
            let visible = as_subject(&lag).reshaping.array_sectors();
            let Some(end) = stages.get(from + 4).map(|it| it.position.min(visible)) else { break };
            let old = as_subject(&lag).reshaping.geometry(Generation::Old).clone();
            let row = old.chunk_sectors() * old.data_members() as u64;
            let end = end / row * row;
            for (to, moved) in stages.iter().enumerate().skip(from).take(7) {
                let world = lagging(recorded, moved);
                let array = recorded.position / row * row..end;
                if array.is_empty() {
                    continue;
                }
                let bytes = array.start as usize * SECTOR..array.end as usize * SECTOR;
                let metadata = opened(&world)[0].superblock.metadata();
                let header = ReshapeBackup {
                    set_uuid: md::ondisk::reshape_backup::backup_uuid(
                        metadata.set_uuid,
                        kind.is_v0,
                    ),
                    written: metadata.updated.seconds,
                    copies: vec![BackupCopy { array: array.clone(), at: 8 }],
                    events: None,
                };
                world.file().write(0, &header.encode()).expect("memory");
                world.file().write(4096, &made.contents[bytes]).expect("memory");
                let is_inside = moved.position <= array.end;
                // Linux would have recorded more, as in the other test.
                let plan = as_subject(&world).plan();
                if !is_inside && plan.linux_keeps(array.end / plan.step() * plan.step()) {
                    continue;
                }
                let context = format!(
                    "{}: recorded {}, moved {} (stage {to}), backup to {}",
                    kind.name, recorded.position, moved.position, array.end
                );
                let count = if is_inside { &mut inside } else { &mut beyond };
                count.ends(&world, Goal::Continue, &made.contents, &context);
            }
        }
    }
    println!("inside: {} right, {} refused", inside.right, inside.refused);
    println!("beyond: {} right, {} refused", beyond.right, beyond.refused);
    assert!(inside.right > 50 && inside.right > inside.refused && beyond.refused > 20);
}
