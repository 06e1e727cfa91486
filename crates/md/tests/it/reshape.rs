//! Reshapes in memory, step by step as the plan says, cut anywhere: what is recorded is true.
//!
//! A device's sector holds a token: the array sector that it has, or the row and role of parity. So
//! nothing has to be computed to see that something was written over too early.

use std::ops::Range;

use raidlab_md::geometry::{Copy, DataStarts, Generation, ReshapeSpec, Reshaping};
use raidlab_md::reshape::{MovePlan, Step};
use raidlab_md::{Geometry, GeometrySpec, Kind, Layout, Level, MemberIdx, Sector, StripeNo};
use testkit::Rng;

const SECTORS: u64 = 480;
/// The data area begins here in the lower of both places.
const BASE: u64 = 40;

fn spec(level: Level, layout: i32, chunk: u64, members: usize) -> GeometrySpec {
    let layout = Layout::from_number(level, layout).expect("a layout");
    GeometrySpec { level, layout, chunk_sectors: chunk, member_sectors: vec![SECTORS; members] }
}

/// A reshape: both geometries, direction, and how far the data move down (forwards) or up.
pub(crate) struct Kindred {
    pub(crate) old: GeometrySpec,
    pub(crate) new: GeometrySpec,
    pub(crate) backwards: bool,
    pub(crate) shift: u64,
}

pub(crate) fn kinds() -> Vec<Kindred> {
    use Level::{Raid4, Raid5, Raid6, Raid10};
    let mut all = Vec::new();
    // Devices, chunk, layout, level by layout (5 and 6, 4 and 5); both ways, with room and without.
    let pairs = [
        (spec(Raid5, 2, 8, 3), spec(Raid5, 2, 8, 4)),
        (spec(Raid5, 2, 8, 3), spec(Raid5, 2, 8, 6)),
        (spec(Raid5, 0, 8, 2), spec(Raid5, 0, 8, 3)),
        (spec(Raid4, 0, 8, 3), spec(Raid4, 0, 8, 5)),
        (spec(Raid6, 2, 8, 4), spec(Raid6, 2, 8, 6)),
        (spec(Raid6, 9, 8, 5), spec(Raid6, 9, 16, 6)),
        (spec(Raid5, 2, 8, 4), spec(Raid5, 2, 16, 4)),
        (spec(Raid5, 2, 8, 4), spec(Raid5, 2, 32, 5)),
        (spec(Raid5, 2, 8, 4), spec(Raid5, 0, 8, 4)),
        (spec(Raid5, 5, 8, 4), spec(Raid5, 2, 8, 4)),
        (spec(Raid6, 18, 8, 5), spec(Raid6, 2, 8, 5)),
        (spec(Raid6, 8, 8, 5), spec(Raid6, 10, 32, 5)),
        (spec(Raid6, 18, 8, 4), spec(Raid6, 2, 16, 6)),
    ];
    for (one, other) in pairs {
        for (old, new) in [(one.clone(), other.clone()), (other, one)] {
            let (before, after) = (old.member_sectors.len(), new.member_sectors.len());
            for backwards in [false, true] {
                let is_possible = if backwards { after <= before } else { after >= before };
                for shift in [0, 8, 32].into_iter().filter(|_| is_possible) {
                    let (old, new) = (old.clone(), new.clone());
                    all.push(Kindred { old, new, backwards, shift });
                }
            }
        }
    }
    // RAID 10 moves only where the data move.
    let mirrors = [
        (spec(Raid10, 0x102, 8, 4), spec(Raid10, 0x102, 8, 5)),
        (spec(Raid10, 0x102, 8, 3), spec(Raid10, 0x102, 16, 4)),
        (spec(Raid10, 0x102, 8, 4), spec(Raid10, 0x10201, 8, 4)),
        (spec(Raid10, 0x103, 8, 4), spec(Raid10, 0x103, 8, 6)),
    ];
    for (one, other) in mirrors {
        for (old, new) in [(one.clone(), other.clone()), (other, one)] {
            let backwards = new.member_sectors.len() < old.member_sectors.len();
            for shift in [32, 40] {
                let (old, new) = (old.clone(), new.clone());
                all.push(Kindred { old, new, backwards, shift });
            }
        }
    }
    all
}

pub(crate) fn data(at: u64) -> u64 {
    at << 8
}

/// Tokens of all places of array sectors, whole rows with their parity: (member, sector, token).
pub(crate) fn places(geometry: &Geometry, range: Range<u64>) -> Vec<(MemberIdx, u64, u64)> {
    let mut all = Vec::new();
    match geometry.kind() {
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            for at in range {
                mirrored.locate(Sector(at), &mut copies);
                all.extend(copies.iter().map(|copy| (copy.member, copy.sector.0, data(at))));
            }
        }
        Kind::Parity(parity) => {
            let row = parity.chunk_sectors() * parity.data_disks() as u64;
            for stripe in range.start / row..range.end.div_ceil(row) {
                let of = parity.row(StripeNo(stripe));
                for offset in 0..parity.chunk_sectors() {
                    let sector = parity.member_sector(StripeNo(stripe), offset).0;
                    for (index, member) in of.data.iter().enumerate() {
                        let at = parity.array_sector(StripeNo(stripe), index as u16, offset).0;
                        all.push((*member, sector, data(at)));
                    }
                    let token = data(stripe * row + offset);
                    all.push((of.p, sector, token | 1));
                    all.extend(of.q.map(|member| (member, sector, token | 2)));
                }
            }
        }
        Kind::Striped(_) => unreachable!("no reshape"),
    }
    all
}

pub(crate) struct World {
    pub(crate) kind: Kindred,
    pub(crate) geometries: [Geometry; 2],
    pub(crate) devices: Vec<Vec<u64>>,
    pub(crate) position: u64,
    /// What the backup holds: array sectors with their tokens.
    backup: Option<(Range<u64>, Vec<u64>)>,
}

impl World {
    pub(crate) fn new(kind: Kindred) -> World {
        let geometries = [&kind.old, &kind.new].map(|spec| Geometry::new(spec).expect("sound"));
        let slots = geometries[0].members().max(geometries[1].members());
        let length = (BASE + 64 + SECTORS + 64) as usize;
        let mut world = World {
            devices: vec![vec![u64::MAX; length]; slots],
            position: 0,
            backup: None,
            kind,
            geometries,
        };
        let visible = world.reshaping().array_sectors();
        let old = world.geometries[0].array_sectors();
        world.position = if world.kind.backwards { visible } else { 0 };
        for (member, sector, token) in places(&world.geometries[0], 0..old) {
            let start = world.start(Generation::Old);
            world.devices[member.index()][(start + sector) as usize] = token;
        }
        world
    }

    pub(crate) fn start(&self, generation: Generation) -> u64 {
        match (generation, self.kind.backwards) {
            (Generation::Old, false) | (Generation::New, true) => BASE + self.kind.shift,
            _ => BASE,
        }
    }

    pub(crate) fn reshaping(&self) -> Reshaping {
        let (old, new) = (self.start(Generation::Old), self.start(Generation::New));
        Reshaping::new(&ReshapeSpec {
            old: self.kind.old.clone(),
            new: self.kind.new.clone(),
            position: Sector(self.position),
            backwards: self.kind.backwards,
            data_starts: vec![Some(DataStarts { old, new }); self.devices.len()],
        })
        .expect("sound")
    }

    pub(crate) fn name(&self) -> String {
        let Kindred { backwards, shift, .. } = self.kind;
        let change = self.reshaping().change();
        let level = self.kind.new.level;
        format!("{level} {change}, backwards {backwards}, moved by {shift}, at {}", self.position)
    }

    /// All that can be read at the recorded position is right, with all of its parity.
    fn is_whole(&self, missed: &str) {
        let reshaping = self.reshaping();
        let visible = reshaping.array_sectors();
        let position = self.position.min(visible);
        let (low, high) = match self.kind.backwards {
            false => (Generation::New, Generation::Old),
            true => (Generation::Old, Generation::New),
        };
        for (generation, range) in [(low, 0..position), (high, position..visible)] {
            let geometry = reshaping.geometry(generation);
            let start = self.start(generation);
            let mut kept = range.clone();
            if generation == Generation::Old
                && let Some((saved, tokens)) = &self.backup
            {
                let covers = saved.contains(&position)
                    || self.kind.backwards && saved.start < position && position <= saved.end;
                if covers {
                    assert!(saved.clone().zip(tokens).all(|(at, token)| data(at) == *token));
                    match self.kind.backwards {
                        false => kept.start = saved.end.min(visible),
                        true => kept.end = saved.start,
                    }
                }
            }
            if kept.is_empty() {
                continue;
            }
            for (member, sector, token) in places(geometry, kept) {
                let found = self.devices[member.index()][(start + sector) as usize];
                assert_eq!(found, token, "{}: {generation:?} {missed}", self.name());
            }
        }
    }

    /// The old contents of an array sector, as a step that moves it reads them.
    fn read(&self, at: u64, from_backup: bool) -> u64 {
        let old = &self.geometries[0];
        if at >= self.reshaping().array_sectors().max(old.array_sectors()) {
            return data(at);
        }
        if from_backup {
            let (range, tokens) = self.backup.as_ref().expect("a backup");
            return tokens[(at - range.start) as usize];
        }
        let token = places(old, at..at + 1).into_iter().find(|place| place.2 == data(at));
        let (member, sector, _) = token.expect("it has a place");
        self.devices[member.index()][(self.start(Generation::Old) + sector) as usize]
    }

    /// The writes of a move, in an order.
    pub(crate) fn writes(&self, range: &Range<u64>, from_backup: bool) -> Vec<(usize, usize, u64)> {
        let start = self.start(Generation::New);
        for at in range.clone() {
            assert_eq!(self.read(at, from_backup), data(at), "{}: read {at}", self.name());
        }
        let places = places(&self.geometries[1], range.clone());
        places
            .into_iter()
            .map(|(member, sector, token)| (member.index(), (start + sector) as usize, token))
            .collect()
    }

    pub(crate) fn plan(&self, limits: [u64; 3]) -> MovePlan {
        MovePlan::new(&self.reshaping()).expect("a reshape of md's").with_limits(limits)
    }

    /// Runs the reshape, with a crash in one of `cuts` moves, until its end.
    fn run(&mut self, rng: &mut Rng, cuts: u64, limits: [u64; 3]) -> u64 {
        let mut plan = self.plan(limits);
        let mut crashes = 0;
        loop {
            match plan.next().unwrap_or_else(|error| panic!("{}: {error}", self.name())) {
                Step::Done => return crashes,
                Step::Save(range) => {
                    let tokens = range.clone().map(|at| self.read(at, false)).collect();
                    self.backup = Some((range.clone(), tokens));
                    plan.saved(range);
                }
                Step::Move(range) => {
                    let mut writes = self.writes(&range, plan.is_saved(&range));
                    let is_cut = rng.one_in(cuts);
                    if is_cut {
                        rng.shuffle(&mut writes);
                        writes.truncate(rng.index(writes.len() + 1));
                    }
                    for (member, sector, token) in writes {
                        self.devices[member][sector] = token;
                    }
                    self.is_whole("after a move");
                    if is_cut {
                        crashes += 1;
                        plan = self.plan(limits);
                        let saved: Vec<_> =
                            self.backup.iter().map(|(range, _)| range.clone()).collect();
                        let is_used = plan.use_saved(&saved);
                        assert!(
                            !plan.is_critical() || is_used || !self.covers(),
                            "{}",
                            self.name()
                        );
                    } else {
                        plan.moved(&range);
                    }
                }
                Step::Record(position) => {
                    self.position = position;
                    plan.recorded_moved();
                    self.is_whole("after a record");
                }
            }
        }
    }

    fn covers(&self) -> bool {
        let position = self.position;
        self.backup.as_ref().is_some_and(|(range, _)| match self.kind.backwards {
            false => range.contains(&position),
            true => range.start < position && position <= range.end,
        })
    }
}

#[test]
fn what_is_recorded_is_true_after_every_cut() {
    let (mut crashes, mut saves) = (0, 0);
    let seeds = if testkit::runs_all() { 40 } else { 2 };
    for seed in 0..seeds {
        for (index, kind) in kinds().into_iter().enumerate() {
            let mut rng = Rng::new(seed * 1000 + index as u64);
            let mut world = World::new(kind);
            world.is_whole("before");
            let limits = rng.pick(&[[1, 1, 1], [64, 256, 128], [1 << 20; 3]]);
            crashes += world.run(&mut rng, 4, limits);
            saves += u64::from(world.backup.is_some());
            let end = if world.kind.backwards { 0 } else { world.plan(limits).target() };
            assert_eq!(world.position, end, "{}", world.name());
            // With parity all of the new geometry has its rows.
            if world.kind.new.level.has_parity() && !world.kind.backwards {
                let all = world.geometries[1].array_sectors();
                for (member, sector, token) in places(&world.geometries[1], 0..all) {
                    let at = (world.start(Generation::New) + sector) as usize;
                    assert_eq!(world.devices[member.index()][at], token, "{}", world.name());
                }
            }
        }
    }
    assert!(crashes > 500 && saves > 40, "{crashes} crashes, {saves} with a backup");
}

#[test]
fn a_move_that_nothing_makes_room_for_is_refused() {
    // The data move up although the reshape goes forwards: no copy reaches beyond the old rows.
    let starts = DataStarts { old: BASE, new: BASE + 8 };
    let reshaping = Reshaping::new(&ReshapeSpec {
        old: spec(Level::Raid5, 2, 8, 4),
        new: spec(Level::Raid5, 0, 8, 4),
        position: Sector(0),
        backwards: false,
        data_starts: vec![Some(starts); 4],
    })
    .expect("sound");
    let plan = MovePlan::new(&reshaping).expect("geometries of md's").with_limits([64, 256, 128]);
    assert!(plan.is_critical());
    assert_eq!(plan.next().map_err(|error| error.position), Err(0));
}

/// Whatever the superblocks say, the plan makes progress or refuses, and never more than asked.
#[test]
fn any_reshape_of_sound_geometries_ends_or_is_refused() {
    let (mut ended, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let level = rng.pick(&[Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10]);
        let mut draw = || {
            let layout = match level {
                Level::Raid4 => 0,
                Level::Raid5 => rng.pick(&[0, 1, 2, 3, 4, 5]),
                Level::Raid6 => rng.pick(&[0, 2, 5, 8, 10, 16, 18, 20]),
                _ => rng.pick(&[0x102, 0x10201, 0x103]),
            };
            spec(level, layout, 8 << rng.below(4), rng.within(4, 8) as usize)
        };
        let (old, new) = (draw(), draw());
        let slots = old.member_sectors.len().max(new.member_sectors.len());
        let starts = DataStarts { old: rng.below(200), new: rng.below(200) };
        let backwards = rng.one_in(2);
        let position = rng.below(40) * 64;
        let reshaping = Reshaping::new(&ReshapeSpec {
            old,
            new,
            position: Sector(position),
            backwards,
            data_starts: vec![Some(starts); slots],
        });
        let Ok(reshaping) = reshaping else { continue };
        let Some(plan) = MovePlan::new(&reshaping) else { continue };
        let mut plan = plan.with_limits([64, 256, 128]);
        if position > reshaping.array_sectors() {
            continue;
        }
        let mut left = plan.left();
        for step in 0.. {
            assert!(step < 4000, "seed {seed}: no end");
            match plan.next() {
                Err(_) => {
                    refused += 1;
                    break;
                }
                Ok(Step::Done) => {
                    ended += 1;
                    break;
                }
                Ok(Step::Save(range)) => {
                    assert!(range.start < range.end, "seed {seed}");
                    plan.saved(range);
                }
                Ok(Step::Move(range)) => {
                    assert!(range.start < range.end, "seed {seed}");
                    plan.moved(&range);
                    assert!(plan.left() < left, "seed {seed}: {range:?}");
                    left = plan.left();
                }
                Ok(Step::Record(_)) => plan.recorded_moved(),
            }
        }
    }
    assert!(ended > 50 && refused > 20, "{ended} ended, {refused} refused");
}
