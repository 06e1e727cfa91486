//! Reshapes as Linux carries them out, stopped anywhere: the position that it recorded may lag.
//! What is said to stand does stand.
//!
//! The rules of Linux are written down here once more, in its own terms, and not taken from the
//! code under test.

use raidlab_md::Level;
use raidlab_md::geometry::Generation;
use testkit::Rng;

use super::reshape::{World, data, kinds, places};

/// Linux's own variables: rows of the members, in sectors.
struct Linux {
    progress: u64,
    /// What it counts with as the distance of the data, new minus old.
    offset: i64,
}

impl Linux {
    /// Whether it records before it moves the step at its progress.
    fn records(&self, world: &World) -> bool {
        match world.kind.new.level {
            Level::Raid10 => self.mirrors_record(world),
            _ => self.parity_records(world),
        }
    }

    fn parity_records(&self, world: &World) -> bool {
        let [old, new] = [0, 1].map(|it| world.geometries[it].data_members() as i64);
        let chunk = world.kind.old.chunk_sectors.max(world.kind.new.chunk_sectors) as i64;
        let (at, recorded) = (self.progress as i64, world.position as i64);
        let (mut write, mut read, mut safe) = (at / new, at / old, recorded / old);
        if world.kind.backwards {
            write -= chunk;
            read += chunk;
            safe += chunk;
        } else {
            write += chunk;
            read -= read.min(chunk);
            safe -= safe.min(chunk);
        }
        if self.offset < 0 {
            safe -= self.offset;
            read -= self.offset;
        } else {
            write += self.offset;
        }
        match world.kind.backwards {
            true => safe > write && read < write,
            false => safe < write && read > write,
        }
    }

    /// Whether the places that it writes next reach those that it would read after a crash.
    fn mirrors_record(&self, world: &World) -> bool {
        let chunk = world.kind.old.chunk_sectors.max(world.kind.new.chunk_sectors);
        let backwards = world.kind.backwards;
        let around =
            |at: u64| if backwards { at.saturating_sub(chunk)..at } else { at..at + chunk };
        let end = world.reshaping().array_sectors();
        let sectors = |generation: Generation, at: u64| {
            let geometry = &world.geometries[usize::from(generation == Generation::New)];
            let range = around(at);
            let range = range.start..range.end.min(end);
            let start = world.start(generation);
            places(geometry, range).into_iter().map(move |place| start + place.1).collect()
        };
        let written: Vec<u64> = sectors(Generation::New, self.progress);
        let kept: Vec<u64> = sectors(Generation::Old, world.position);
        match backwards {
            true => written.iter().min() < kept.iter().max(),
            false => written.iter().max() > kept.iter().min(),
        }
    }

    /// Moves one step.
    fn moves(&mut self, world: &mut World) {
        let plan = world.plan([1, 1, 1]);
        let (step, end) = (plan.step(), plan.target());
        let range = match world.kind.backwards {
            true => (self.progress - 1) / step * step..self.progress,
            false => self.progress..(self.progress / step * step + step).min(end),
        };
        let start = world.start(Generation::New);
        for (member, sector, token) in places(&world.geometries[1], range.clone()) {
            world.devices[member.index()][(start + sector) as usize] = token;
        }
        self.progress = if world.kind.backwards { range.start } else { range.end };
    }
}

/// Whether a range of old rows is in its old places.
fn stands(world: &World, range: std::ops::Range<u64>) -> bool {
    let start = world.start(Generation::Old);
    places(&world.geometries[0], range).into_iter().all(|(member, sector, token)| {
        token & 0xff != 0 || world.devices[member.index()][(start + sector) as usize] == token
    })
}

#[test]
fn what_is_said_to_stand_stands_wherever_linux_stopped() {
    let (mut by_rule, mut by_rows, mut overwritten, mut unproven) = (0, 0, 0, 0);
    let seeds = if testkit::runs_all() { 60 } else { 6 };
    for seed in 0..seeds {
        for (index, kind) in kinds().into_iter().enumerate() {
            let mut rng = Rng::new(seed * 1000 + index as u64);
            let offset = kind.shift as i64 * if kind.backwards { 1 } else { -1 };
            let mut world = World::new(kind);
            let knows = rng.one_in(2) || world.kind.new.level == Level::Raid10;
            let offset = if knows { offset } else { 0 };
            let mut linux = Linux { progress: world.position, offset };
            let visible = world.reshaping().array_sectors();
            let end = world.plan([1, 1, 1]).target();
            for _ in 0..rng.below(60) {
                if linux.progress == end {
                    break;
                }
                // Its rule, or ten seconds.
                if linux.records(&world) || rng.one_in(12) {
                    world.position = linux.progress;
                }
                linux.moves(&mut world);
            }
            let plan = world.plan([1, 1, 1]);
            let position = world.position.min(visible);
            let kept = if world.kind.backwards { 0..position } else { position..visible };
            let is_whole = stands(&world, kept);
            let name = format!("seed {seed}: {}, at {} of it", world.name(), linux.progress);
            let rows = plan.doubled(8);
            for row in &rows {
                assert_eq!(data(row.start) % data(1), 0);
                let is_moved =
                    if world.kind.backwards { row.start >= position } else { row.end <= position };
                assert!(is_moved && row.end <= visible, "{name}: {row:?}");
            }
            if plan.linux_keeps(world.position) {
                assert!(is_whole, "{name}: kept by rule");
                by_rule += 1;
            } else if rows.into_iter().any(|row| stands(&world, row)) {
                assert!(is_whole, "{name}: old rows stand beside it");
                by_rows += 1;
            } else if is_whole {
                unproven += 1;
            } else {
                overwritten += 1;
            }
        }
    }
    println!(
        "{by_rule} kept by rule, {by_rows} by rows that stand, {overwritten} overwritten, \
         {unproven} whole and not shown to be"
    );
    assert!(by_rule > 100 && by_rows > 20 && overwritten > 50, "{by_rule} {by_rows} {overwritten}");
}
