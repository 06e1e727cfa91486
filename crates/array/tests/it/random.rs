//! Random requests against a plain byte array, through the driver: every level on every store, lost
//! members, scripted faults, arrays inside arrays, little memory and short queues.
//!
//! `RAIDLAB_SEED=n` runs one seed, `RAIDLAB_TEST=all` many more.

use engine::MemberSet;
use md::{Layout, Level, MemberIdx, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};
use raidlab_array::{ArraySpec, DataPlaneConfig, Fault, FaultMember, Member, MemberSpec};
use testkit::{Rng, print_replay, seeds};

use crate::common::host::Host;
use crate::common::store::{Kind, Store};
use crate::common::{Shards, options};

/// An array to be: its level and layout over `members` leaves, or over other arrays.
enum Shape {
    Flat(Level, Layout, usize),
    Nested(Level, Vec<Shape>),
}

fn plain(level: Level, members: usize) -> Shape {
    Shape::Flat(level, Layout::default_for(level), members)
}

fn shape(rng: &mut Rng) -> Shape {
    let raid10 = |layout, members| Shape::Flat(Level::Raid10, Layout::Raid10(layout), members);
    let raid5: Vec<_> = Raid5Layout::all().collect();
    let raid6: Vec<_> = Raid6Layout::all().collect();
    match rng.below(11) {
        0 => plain(Level::Linear, 3),
        1 => Shape::Flat(Level::Raid0, Layout::Raid0(Raid0Layout::Original), 4),
        2 => plain(Level::Raid1, 2),
        3 => plain(Level::Raid1, 3),
        4 => plain(Level::Raid4, 4),
        5 | 6 => Shape::Flat(Level::Raid5, Layout::Raid5(rng.pick(&raid5)), 5),
        7 | 8 => Shape::Flat(Level::Raid6, Layout::Raid6(rng.pick(&raid6)), 6),
        9 => raid10(rng.pick(&[Raid10Layout::near(2), Raid10Layout::offset(2)]), 5),
        _ => raid10(Raid10Layout::far(2), 4),
    }
}

fn nested_shape(seed: u64) -> Shape {
    let two = |outer, inner, members| {
        Shape::Nested(outer, vec![plain(inner, members), plain(inner, members)])
    };
    match seed % 7 {
        0 => two(Level::Raid1, Level::Raid0, 2),
        1 => two(Level::Raid0, Level::Raid1, 2),
        2 => two(Level::Raid0, Level::Raid5, 3),
        3 => two(Level::Raid0, Level::Raid6, 4),
        4 => two(Level::Raid1, Level::Raid5, 3),
        5 => {
            let inner = (0..4).map(|_| plain(Level::Raid1, 2)).collect();
            Shape::Nested(Level::Raid5, inner)
        }
        _ => Shape::Nested(
            Level::Raid1,
            vec![
                Shape::Nested(Level::Raid0, vec![plain(Level::Raid1, 2), plain(Level::Raid1, 2)]),
                plain(Level::Raid0, 3),
            ],
        ),
    }
}

/// What is wrong with the members of one array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// As many as the array can do without are missing.
    Missing,
    /// As many as the array can do without misbehave.
    Faults,
}

struct Maker<'a> {
    rng: &'a mut Rng,
    store: &'a mut Store,
    chunk: u64,
    wrong: Wrong,
}

impl Maker<'_> {
    fn array(&mut self, shape: &Shape, rows: u64) -> ArraySpec {
        let (level, layout, members) = match shape {
            Shape::Flat(level, layout, members) => {
                (*level, *layout, self.leaves(*level, *members, rows))
            }
            Shape::Nested(level, inner) => {
                let inner = inner.iter().map(|shape| MemberSpec::Array(self.array(shape, rows)));
                (*level, Layout::default_for(*level), inner.collect())
            }
        };
        let unit = if level == Level::Linear { 0 } else { self.chunk };
        ArraySpec {
            level,
            layout,
            chunk_sectors: unit,
            members,
            data_plane: DataPlaneConfig {
                stripe_cache_bytes: self.rng.pick(&[0, 0, 100_000, 1 << 20]),
                stripe_bytes_at_first: self.rng.pick(&[0, u64::MAX]),
                queue_depth: self.rng.pick(&[1, 2, usize::MAX]),
                // One of the two at most, so that copies are left to read.
                write_mostly: MemberSet::one(self.rng.below(4) as u16),
                failfast: MemberSet::EMPTY,
            },
        }
    }

    fn leaves(&mut self, level: Level, members: usize, rows: u64) -> Vec<MemberSpec> {
        let uneven = level == Level::Linear;
        let sizes: Vec<u64> = (0..members as u64)
            .map(|at| rows * self.chunk + if uneven { at * 5 + 3 } else { 3 })
            .collect();
        let spare = match level {
            Level::Raid6 => 2,
            Level::Linear | Level::Raid0 => 0,
            _ => 1,
        };
        let first = self.rng.below(members as u64) as usize;
        let bad = |at: usize| (at + members - first) % members < spare;
        let mut list = Vec::new();
        for (at, sectors) in sizes.into_iter().enumerate() {
            list.push(match self.wrong {
                Wrong::Missing if bad(at) => MemberSpec::Missing { sectors },
                Wrong::Faults if bad(at) => {
                    let inner = self.store.member(sectors);
                    MemberSpec::ready(self.faulty(inner, sectors))
                }
                _ => MemberSpec::Ready(self.store.member(sectors)),
            });
        }
        list
    }

    /// A member that cannot read here and there, may refuse writes, and may die.
    fn faulty(&mut self, inner: Box<dyn Member>, sectors: u64) -> FaultMember {
        let rng = &mut *self.rng;
        let mut faults = Vec::new();
        for _ in 0..rng.below(6) {
            let start = rng.below(sectors) * 512;
            let range = start..start + (1 + rng.below(20)) * 512;
            faults.push(Fault::ReadError { range });
        }
        match rng.below(4) {
            0 => faults.push(Fault::Gone { after: rng.below(400) }),
            1 => {
                let start = rng.below(sectors) * 512;
                faults.push(Fault::WriteError { range: start..start + 512 });
            }
            2 => faults.push(Fault::Delay { nanos: rng.below(200_000) }),
            _ => {}
        }
        FaultMember::new(inner, faults)
    }
}

fn run_case(seed: u64, kind: Kind, wrong: Wrong, nested: bool, requests: usize) {
    let Some(mut store) = Store::new(kind) else { return };
    let mut rng = Rng::new(seed);
    let shape = if nested { nested_shape(seed) } else { shape(&mut rng) };
    let chunk = rng.pick(&[8, 16, 64, 128, 256]);
    let mut maker = Maker { rng: &mut rng, store: &mut store, chunk, wrong };
    let spec = maker.array(&shape, 9);
    let mut driver = Shards::new(spec, &options()).expect("a valid array");
    let depth = rng.pick(&[1, 4, 32, 60]);
    let mut host = Host::new(&mut driver, depth);
    host.run(&mut rng, requests);
    host.check_all();
    if wrong == Wrong::Nothing {
        // What the redundancy holds must be as good as the data.
        let members = host.driver.geometry().members() as u64;
        for _ in 0..host.driver.geometry().tolerates() {
            host.driver.fail_member(MemberIdx(rng.below(members) as u16));
        }
        host.check_all();
        host.run(&mut rng, requests / 4);
        host.check_all();
    }
}

fn run(test: &str, kinds: &[Kind], wrong: Wrong, nested: bool, cases: u64, requests: usize) {
    for seed in seeds(cases) {
        for kind in kinds {
            print_replay!(test, seed);
            run_case(seed, *kind, wrong, nested, requests);
        }
    }
}

const FILES: [Kind; 3] = [Kind::Direct, Kind::Buffered, Kind::Tmpfs];

#[test]
fn memory_keeps_written_data() {
    run("memory_keeps_written_data", &[Kind::Mem], Wrong::Nothing, false, 120, 400);
}

#[test]
fn files_keep_written_data() {
    run("files_keep_written_data", &FILES, Wrong::Nothing, false, 8, 150);
}

#[test]
fn degraded_arrays_keep_written_data() {
    let name = "degraded_arrays_keep_written_data";
    run(name, &[Kind::Mem], Wrong::Missing, false, 120, 400);
}

#[test]
fn degraded_arrays_of_files_keep_written_data() {
    let name = "degraded_arrays_of_files_keep_written_data";
    run(name, &[Kind::Direct, Kind::Tmpfs], Wrong::Missing, false, 8, 150);
}

#[test]
fn failing_members_lose_nothing() {
    run("failing_members_lose_nothing", &[Kind::Mem], Wrong::Faults, false, 120, 400);
}

#[test]
fn failing_files_lose_nothing() {
    run("failing_files_lose_nothing", &FILES, Wrong::Faults, false, 8, 150);
}

#[test]
fn nested_arrays_keep_written_data() {
    run("nested_arrays_keep_written_data", &[Kind::Mem], Wrong::Nothing, true, 42, 300);
}

#[test]
fn nested_arrays_of_files_keep_written_data() {
    let name = "nested_arrays_of_files_keep_written_data";
    run(name, &[Kind::Direct, Kind::Tmpfs], Wrong::Nothing, true, 7, 120);
}

#[test]
fn nested_arrays_with_failing_members_lose_nothing() {
    let name = "nested_arrays_with_failing_members_lose_nothing";
    run(name, &[Kind::Mem], Wrong::Faults, true, 42, 300);
}

testkit::repeat_in_shards! {
    memory_keeps_written_data,
    files_keep_written_data,
    degraded_arrays_keep_written_data,
    degraded_arrays_of_files_keep_written_data,
    failing_members_lose_nothing,
    failing_files_lose_nothing,
    nested_arrays_keep_written_data,
    nested_arrays_of_files_keep_written_data,
    nested_arrays_with_failing_members_lose_nothing,
}
