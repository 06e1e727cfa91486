//! Random scenarios: each seed is another array, another load, other faults at other rates.

use md::ondisk::Version;
use md::{FarSets, Layout, Level, Raid5Layout, Raid6Layout, Raid10Layout};
use testkit::Rng;

use crate::assembly::{Begins, NewArray};
use crate::scenario::{Action, Extent, Scenario};

/// Bits of a bitmap's first page: the header is in front of them.
const FIRST_PAGE_BITS: u64 = (4096 - 256) * 8;

/// One array in this many has a bitmap of two pages, which takes longer.
const LARGE_ONE_IN: u64 = 200;

/// RAID 1 sizes are whole 64 KiB, and smaller members have no room for a bitmap.
const UNIT: u64 = 128;

/// Level, layout and number of members.
pub type Shape = (Level, Layout, usize);

/// All levels with redundancy, in all layouts.
pub fn shapes() -> Vec<Shape> {
    [mirrored_shapes(), parity_shapes()].concat()
}

/// RAID 1 and 10.
pub fn mirrored_shapes() -> Vec<Shape> {
    let raid10 = |layout, members| (Level::Raid10, Layout::Raid10(layout), members);
    let both = Raid10Layout { near: 2, far: 2, offset: false, far_sets: FarSets::None };
    vec![
        (Level::Raid1, Layout::None, 2),
        (Level::Raid1, Layout::None, 3),
        (Level::Raid1, Layout::None, 4),
        raid10(Raid10Layout::near(2), 2),
        raid10(Raid10Layout::near(2), 4),
        raid10(Raid10Layout::near(2), 5),
        raid10(Raid10Layout::near(3), 4),
        raid10(Raid10Layout::far(2), 3),
        raid10(Raid10Layout::far(2), 4),
        raid10(Raid10Layout::offset(2), 4),
        raid10(Raid10Layout::offset(2), 5),
        raid10(both, 5),
    ]
}

/// RAID 4, 5 and 6.
pub fn parity_shapes() -> Vec<Shape> {
    let mut shapes = vec![(Level::Raid4, Layout::None, 3), (Level::Raid4, Layout::None, 5)];
    for layout in Raid5Layout::all() {
        shapes.extend([3, 5].map(|members| (Level::Raid5, Layout::Raid5(layout), members)));
    }
    shapes.push((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 2));
    for layout in Raid6Layout::all() {
        shapes.extend([4, 6].map(|members| (Level::Raid6, Layout::Raid6(layout), members)));
    }
    shapes
}

/// The scenario of a seed, with an array of one of these shapes.
pub fn scenario(shapes: &[Shape], seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let array = array(shapes, &mut rng);
    let troubled = rng.one_in(3);
    let mut load = Load {
        size: array_sectors(&array),
        members: array.members as u64,
        used: array.used_sectors,
        troubled,
        losses: rng.pick(&[20, 40, 200]),
        cuts: rng.within(1, 4),
        aside: rng.clone(),
        spares: Rng::new(seed ^ 0x5ba7_e500),
        former: Rng::new(seed ^ 0xf0a3_e200),
        rng,
    };
    let actions = load.actions();
    let mut rng = load.rng;
    Scenario {
        array,
        shards: rng.within(1, 3) as u16,
        depth: rng.pick(&[1, 4, 24]),
        seed: rng.draw() >> 16,
        troubled,
        actions,
    }
}

fn array(shapes: &[Shape], rng: &mut Rng) -> NewArray {
    let (level, layout, members) = rng.pick(shapes);
    let chunk_sectors = if level == Level::Raid1 { 0 } else { rng.pick(&[8, 16, 32]) };
    let is_large = rng.one_in(LARGE_ONE_IN);
    let used_sectors = if is_large {
        let positions = FIRST_PAGE_BITS + rng.within(100, 600);
        let per_member = if level == Level::Raid10 { members as u64 } else { 2 };
        (2 * positions / per_member).next_multiple_of(UNIT)
    } else if rng.one_in(4) {
        2 * UNIT
    } else {
        UNIT
    };
    let log = match level == Level::Raid5 && !is_large && rng.one_in(3) {
        // One log at a time, or a ring of them.
        true => Some(rng.pick(&[48, 536])),
        false => None,
    };
    let bitmap_chunk = if log.is_some() {
        None
    } else if is_large {
        Some(512)
    } else {
        rng.pick(&[None, Some(4096), Some(16384)])
    };
    let version = match is_large || log.is_some() {
        true => rng.pick(&[Version::V1_1, Version::V1_2]),
        false => rng.pick(&Version::ALL),
    };
    let stale = bitmap_chunk.is_some() && rng.one_in(4);
    let begins = match (rng.one_in(4), stale) {
        (false, false) => Begins::InSync,
        (true, false) => Begins::OutOfSync,
        (false, true) => Begins::StaleBitmap,
        (true, true) => Begins::OutOfSyncStaleBitmap,
    };
    // As older versions of mdadm made them. DATA_OFFSET leaves no room for both at the start.
    let roles = (!is_large && log.is_none() && rng.one_in(4)).then_some(384);
    NewArray {
        level,
        layout,
        members,
        chunk_sectors,
        used_sectors,
        version,
        block: rng.pick(&[512, 512, 512, 4096]),
        bitmap_chunk,
        roles,
        log,
        begins,
    }
}

/// Not below the size of the array: longer requests are cut.
fn array_sectors(array: &NewArray) -> u64 {
    match array.level {
        Level::Raid1 => array.used_sectors,
        Level::Raid10 => array.used_sectors * array.members as u64 / 2,
        Level::Raid6 => array.used_sectors * (array.members as u64 - 2),
        _ => array.used_sectors * (array.members as u64 - 1),
    }
}

struct Load {
    rng: Rng,
    /// For what was added later: the rest of a seed's scenario stays as it was.
    aside: Rng,
    /// The same for spares, and for devices that leave.
    spares: Rng,
    /// The same for former members that come back.
    former: Rng,
    size: u64,
    members: u64,
    used: u64,
    troubled: bool,
    /// One request in this many loses a member.
    losses: u64,
    /// Power cuts before the last.
    cuts: u64,
}

impl Load {
    fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        for life in 0..=self.cuts {
            if life > 0 {
                self.starve(3, None, &mut actions);
            }
            while self.spares.one_in(3) {
                actions.push(Action::AddSpare);
            }
            for _ in 0..self.rng.within(5, 120) {
                self.request(&mut actions, self.cuts - life);
            }
            actions.push(Action::Step(self.rng.below(60) as u32));
            if self.rng.one_in(3) {
                actions.extend((0..self.members).map(|at| Action::Space(at as u16)));
                actions.push(Action::ReadAll);
                actions.push(Action::Step(self.rng.below(400) as u32));
            }
            if life < self.cuts {
                let shards = self.rng.within(1, 3) as u16;
                actions.push(match self.rng.below(10) {
                    0 => Action::Stop(shards),
                    1 => Action::Cut(shards, 1 << self.rng.below(self.members)),
                    _ => Action::Cut(shards, 0),
                });
            }
        }
        actions
    }

    fn request(&mut self, actions: &mut Vec<Action>, cuts_left: u64) {
        let extent = self.extent();
        actions.push(match self.rng.below(16) {
            0 | 1 => Action::Flush,
            2 => Action::WriteZeroes(extent),
            3 => Action::Discard(extent),
            4 => Action::Read(extent),
            5 => Action::WriteFua(extent),
            _ => Action::Write(extent),
        });
        if self.troubled && self.rng.one_in(12) {
            actions.push(self.trouble());
        }
        let steps = if self.rng.one_in(8) { 400 } else { self.rng.below(8) };
        if steps > 0 {
            actions.push(Action::Step(steps as u32));
        }
        if self.rng.one_in(60) {
            let nanos = self.rng.pick(&[300_000, 2_000_000, 6_000_000_000]);
            actions.push(Action::Idle(nanos));
        }
        let member = self.rng.below(self.members) as u16;
        self.starve(60, Some(member), actions);
        if self.rng.one_in(self.losses) {
            let after = self.rng.below(500_000);
            actions.push(match self.rng.below(10) {
                0 => Action::Fail(member),
                8 | 9 => Action::HangIo(member, after),
                1 | 2 => Action::Hang(member, after),
                3 => Action::ReadTimeout(member),
                4 => Action::WriteError(member),
                5 => Action::WriteTimeout(member),
                _ => Action::Lose(member, after),
            });
            let is_hung = matches!(actions.last(), Some(Action::HangIo(..)));
            if is_hung && self.rng.one_in(2) {
                // What hangs is late, and another device comes for the slot.
                let extent = self.extent();
                let late = Action::Idle(crate::world::MEMBER_TIMEOUT + 2_000_000_000);
                actions.extend([Action::Write(extent), late, Action::Join(member)]);
            }
            // While the loss is being recorded.
            if cuts_left > 0 && self.rng.one_in(3) {
                actions.push(Action::Step(self.rng.within(1, 30) as u32));
                actions.push(Action::Cut(self.rng.within(1, 3) as u16, 0));
            }
        }
        if self.rng.one_in(2000) {
            actions.push(Action::FlushError(member));
        }
        if self.rng.one_in(4000) {
            actions.push(match self.rng.below(3) {
                0 => Action::FlushLies(member),
                1 => Action::Misdirect(member),
                _ => Action::CorruptReads(member),
            });
        }
        if self.rng.one_in(1500) {
            for member in 0..self.members {
                if self.rng.one_in(2) {
                    actions.push(Action::Destroy(member as u16, self.rng.below(500_000)));
                }
            }
        }
        if self.rng.one_in(150) {
            let extent = Extent(self.rng.below(self.used), self.rng.within(1, 24));
            actions.push(match self.rng.one_in(2) {
                true => Action::Check,
                false => Action::Corrupt(member, extent),
            });
        }
        if self.rng.one_in(14) {
            self.join(member, actions);
        }
        if self.aside.one_in(50) {
            actions.push(Action::Cancel);
        }
        if self.aside.one_in(50) {
            actions.push(Action::Begin);
        }
        if self.spares.one_in(40) {
            actions.push(Action::AddSpare);
        }
        if self.spares.one_in(30) {
            actions.push(Action::Remove(self.spares.below(4) as u16));
        }
        if self.former.one_in(25) {
            let back = Action::Readd(self.former.below(self.members) as u16);
            let until = Action::Step(self.former.pick(&[20, 100, 400]));
            let at = self.former.below(self.size);
            let write = Action::Write(Extent(at, self.former.within(1, 24).min(self.size - at)));
            actions.extend([back, until, write, back]);
        }
        if self.rng.one_in(100) {
            actions.push(Action::Slow(member, self.rng.pick(&[1, 10, 100])));
        }
    }

    /// Now and then the same range of most members is unreadable while devices are filled: those
    /// that came at the start, or one that joins.
    fn starve(&mut self, one_in: u64, joins: Option<u16>, actions: &mut Vec<Action>) {
        // From a generator of its own, so that what else a seed decides stays as it was.
        let mut aside = self.rng.clone();
        if !self.troubled || !aside.one_in(one_in) {
            return;
        }
        let extent = Extent(aside.below(self.used), aside.within(1, 24));
        let mut bad: Vec<u16> = (0..self.members as u16).collect();
        bad.retain(|member| Some(*member) != joins && !aside.one_in(8));
        actions.extend(joins.map(|member| Action::Lose(member, 0)));
        actions.extend(joins.map(|_| Action::Step(aside.below(80) as u32)));
        actions.extend(bad.into_iter().map(|member| Action::Bad(member, extent)));
        actions.extend(joins.map(Action::Join));
        actions.push(Action::Step(aside.below(80) as u32));
    }

    /// Devices come for slots, or fail that replace members.
    fn join(&mut self, member: u16, actions: &mut Vec<Action>) {
        let after = self.rng.below(500_000);
        actions.push(match self.rng.below(7) {
            0 => Action::Add(member),
            1 => Action::Join(member),
            2 => Action::Replace(member),
            3 if self.rng.one_in(2) => Action::LoseReplacement(member, after),
            3 => Action::CancelReplace(member),
            4 if self.rng.one_in(3) => Action::HangReplacement(member, after),
            _ => Action::JoinReplace(member),
        });
        let is_hung = matches!(actions.last(), Some(Action::HangReplacement(..)));
        if is_hung && self.rng.one_in(2) {
            let late = Action::Idle(crate::world::MEMBER_TIMEOUT + 2_000_000_000);
            actions.extend([Action::Write(self.extent()), late, Action::JoinReplace(member)]);
        }
    }

    fn extent(&mut self) -> Extent {
        let at = match self.rng.one_in(2) {
            true => self.rng.below(self.size),
            false => self.rng.below(16),
        };
        let most = self.rng.pick(&[4, 24, 80]);
        Extent(at, self.rng.within(1, most).min(self.size - at))
    }

    /// A bad block, a member that is full in some place, or space on it again.
    fn trouble(&mut self) -> Action {
        let member = self.rng.below(self.members) as u16;
        let from = self.rng.below(self.used);
        let (kind, length) = (self.rng.below(6), self.rng.within(1, 24));
        let short = if self.rng.one_in(2) { self.rng.within(1, 6) as u32 } else { 0 };
        match kind {
            0 => Action::Bad(member, Extent(from, length)),
            1 if self.rng.one_in(3) => Action::Flaky(member, Extent(from, length)),
            1 => Action::Full(member, Extent(from, length), short),
            2 => Action::Full(member, Extent(0, self.used), short),
            3 => Action::MetadataFull(member),
            _ => Action::Space(member),
        }
    }
}
