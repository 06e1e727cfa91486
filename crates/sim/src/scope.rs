//! Small scopes, exhausted: every crash point of up to three operations, and at each of them every
//! subset of the writes that may be lost, and each of them torn at each sector.
//!
//! ```text
//! scope: array x state x operations ── every event ──> crash point
//!        crash point ── subsets of pending writes, tears ──> states ── new ones ──> check
//! ```
//! Invariant: what is left out is counted: a scope reports how many states it has checked of how
//! many, and in how many of them the array was started again and resynced.

use std::collections::HashSet;

use md::ondisk::Version;
use md::{Layout, Level, Raid5Layout, Raid6Layout, Raid10Layout};
use testkit::{Rng, mix};

use crate::assembly::{Begins, NewArray};
use crate::life::{Life, Tally};
use crate::member::SECTOR;
use crate::random::Shape;
use crate::scenario::{Action, Extent, Scenario};

/// Subsets of more pending writes than this are sampled.
const MOST_PENDING: usize = 10;
/// Of more pending writes than this, a tear is tried with all of the others and with none.
const MOST_PENDING_BESIDE_A_TEAR: usize = 4;

/// A write that a power cut may lose.
struct Pending {
    device: usize,
    first: u64,
    bytes: Vec<u8>,
    is_durable: bool,
}

/// What a scope has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeTally {
    /// Scopes.
    pub scopes: u64,
    /// Crash points: moments between two events.
    pub crash_points: u64,
    /// States that a power cut may leave there.
    pub states: u64,
    /// Those that were not enumerated: too many writes were pending.
    pub left_out: u64,
    /// Different ones, each of which was checked.
    pub checked: u64,
    /// Those of them that were started again, resynced, stopped and compared.
    pub recovered: u64,
}

impl ScopeTally {
    /// Adds another one.
    pub fn add(&mut self, other: ScopeTally) {
        self.scopes += other.scopes;
        self.crash_points += other.crash_points;
        self.states += other.states;
        self.left_out += other.left_out;
        self.checked += other.checked;
        self.recovered += other.recovered;
    }
}

/// The operations of a scope: one of each kind that is decided differently.
fn operations(row: u64) -> Vec<Action> {
    vec![
        Action::Write(Extent(1, 2)),
        Action::Write(Extent(0, row)),
        Action::WriteFua(Extent(7, 2)),
        Action::WriteZeroes(Extent(0, row)),
        Action::Flush,
    ]
}

/// The arrays of the scopes.
fn shapes() -> Vec<Shape> {
    let raid10 = |layout, members| (Level::Raid10, Layout::Raid10(layout), members);
    vec![
        (Level::Raid1, Layout::None, 3),
        raid10(Raid10Layout::near(2), 4),
        raid10(Raid10Layout::far(2), 3),
        (Level::Raid4, Layout::None, 3),
        (Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 3),
        (Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 4),
        (Level::Raid6, Layout::Raid6(Raid6Layout::LeftSymmetric), 4),
    ]
}

/// All scopes: each array, in sync, degraded, and resyncing, with a bitmap and without, and each
/// sequence of up to three operations, in flight together or one after the other.
pub fn scopes() -> Vec<Scenario> {
    let mut scopes = Vec::new();
    for (level, layout, members) in shapes() {
        for (begins, is_degraded) in
            [(Begins::InSync, false), (Begins::InSync, true), (Begins::OutOfSync, false)]
        {
            for bitmap_chunk in [None, Some(4096)] {
                let chunk_sectors = if level == Level::Raid1 { 0 } else { 8 };
                let is_small = level != Level::Raid1 && bitmap_chunk.is_none();
                let array = NewArray {
                    level,
                    layout,
                    members,
                    chunk_sectors,
                    used_sectors: if is_small { 16 } else { 128 },
                    version: Version::V1_2,
                    bitmap_chunk,
                    roles: None,
                    begins,
                };
                for_sequences(&array, is_degraded, &mut scopes);
            }
        }
    }
    scopes
}

fn for_sequences(array: &NewArray, is_degraded: bool, scopes: &mut Vec<Scenario>) {
    let data = array.members as u64 - if array.level == Level::Raid6 { 2 } else { 1 };
    let row = if array.level.has_parity() { 8 * data } else { 16 };
    let operations = operations(row);
    let mut sequences: Vec<Vec<Action>> = vec![Vec::new()];
    for _ in 0..3 {
        let longer: Vec<Vec<Action>> = sequences
            .iter()
            .flat_map(|sequence| {
                operations.iter().map(move |operation| [&sequence[..], &[*operation]].concat())
            })
            .collect();
        sequences = longer;
        for sequence in &sequences {
            for depth in [1, 3] {
                if depth == 3 && sequence.len() == 1 {
                    continue;
                }
                let mut actions = Vec::new();
                if is_degraded {
                    actions.extend([Action::Fail(1), Action::Step(60), Action::Stop(1)]);
                }
                actions.extend_from_slice(sequence);
                scopes.push(Scenario {
                    array: array.clone(),
                    shards: 1,
                    depth,
                    seed: scopes.len() as u64,
                    troubled: false,
                    actions,
                });
            }
        }
    }
}

/// Exhausts a scope. One of `recover_one_in` new states is started again.
///
/// # Panics
/// When something is not as it should be.
pub fn run(scope: &Scenario, recover_one_in: u64, tally: &mut ScopeTally) {
    let mut rng = Rng::new(scope.seed);
    let mut life = Life::of_new_array(scope, &mut rng, &mut Tally::default());
    let mut exhaust = Exhaust { scope, recover_one_in, seen: HashSet::new(), tally, rng };
    exhaust.tally.scopes += 1;
    let mut actions = scope.actions.as_slice();
    // What comes before the operations is not what is exhausted.
    if let Some(stop) = actions.iter().position(|action| matches!(action, Action::Stop(_))) {
        for action in &actions[..stop] {
            life.act(*action, &mut exhaust.rng, &mut Tally::default());
        }
        life = life.restart(scope, &mut exhaust.rng);
        actions = &actions[stop + 1..];
    }
    for action in actions {
        while life.is_full() {
            exhaust.step(&mut life);
        }
        life.act(*action, &mut exhaust.rng, &mut Tally::default());
        exhaust.crash_point(&life);
    }
    while exhaust.step(&mut life) {}
}

struct Exhaust<'a> {
    scope: &'a Scenario,
    recover_one_in: u64,
    /// Images and what may be true of them: hashes.
    seen: HashSet<u64>,
    tally: &'a mut ScopeTally,
    rng: Rng,
}

impl Exhaust<'_> {
    fn step(&mut self, life: &mut Life) -> bool {
        let goes_on = life.world.step();
        if goes_on {
            self.crash_point(life);
        }
        goes_on
    }

    fn crash_point(&mut self, life: &Life) {
        self.tally.crash_points += 1;
        let (base, pending) = pending(life);
        let volatile: Vec<usize> =
            (0..pending.len()).filter(|at| !pending[*at].is_durable).collect();
        let count = volatile.len();
        let keep = |subset: u64| {
            let position = |at: usize| volatile.iter().position(|other| *other == at);
            move |at: usize| position(at).is_none_or(|bit| subset >> bit & 1 == 1)
        };
        if count <= MOST_PENDING {
            for subset in 0..1u64 << count {
                self.state(life, &base, &pending, &keep(subset), None);
            }
        } else {
            let all = 1u64.checked_shl(count as u32).unwrap_or(u64::MAX);
            self.tally.left_out += all - (1 << MOST_PENDING);
            self.tally.states += all - (1 << MOST_PENDING);
            for _ in 0..1 << MOST_PENDING {
                let subset = self.rng.draw();
                self.state(life, &base, &pending, &keep(subset), None);
            }
        }
        for torn in &volatile {
            let sectors = (pending[*torn].bytes.len() / SECTOR) as u64;
            let few = count <= MOST_PENDING_BESIDE_A_TEAR;
            let others: Vec<u64> = if few { (0..1 << count).collect() } else { vec![0, u64::MAX] };
            for first in 1..sectors {
                for subset in &others {
                    self.state(life, &base, &pending, &keep(*subset), Some((*torn, first)));
                }
            }
        }
    }

    /// One state: the pending writes for which `keeps` holds, one of them torn: its first sectors
    /// are there.
    fn state(
        &mut self,
        life: &Life,
        base: &[Vec<u8>],
        pending: &[Pending],
        keeps: &dyn Fn(usize) -> bool,
        torn: Option<(usize, u64)>,
    ) {
        self.tally.states += 1;
        let mut images = base.to_vec();
        for (at, write) in pending.iter().enumerate() {
            let length = match torn {
                Some((torn, first)) if torn == at => first as usize * SECTOR,
                _ if keeps(at) => write.bytes.len(),
                _ => continue,
            };
            let from = write.first as usize * SECTOR;
            images[write.device][from..from + length].copy_from_slice(&write.bytes[..length]);
        }
        let key = mix(hash(&images) ^ mix(life.model_version()));
        if !self.seen.insert(key) {
            return;
        }
        self.tally.checked += 1;
        let Some(remains) = life.remains_of(images) else { return };
        if self.rng.one_in(self.recover_one_in) {
            self.tally.recovered += 1;
            let mut rng = Rng::new(key);
            remains.recover(self.scope, &mut rng, &mut Tally::default());
        }
    }
}

/// The devices without what may be lost, and what may be lost, in the order in which it must be
/// applied.
fn pending(life: &Life) -> (Vec<Vec<u8>>, Vec<Pending>) {
    let world = &life.world;
    let (mut base, mut pending) = (Vec::new(), Vec::new());
    for (device, member) in world.members.iter().enumerate() {
        let Some(cache) = &member.cache else {
            base.push(member.image().to_vec());
            continue;
        };
        base.push(cache.durable().to_vec());
        pending.extend(cache.writes().iter().map(|write| Pending {
            device,
            first: write.first,
            bytes: write.bytes.clone(),
            is_durable: write.is_durable,
        }));
    }
    let data = world.writes_in_flight();
    let metadata = world.control_plane.iter().flat_map(|control_plane| {
        control_plane.writes_in_flight().map(|(at, first, bytes)| (at, first, bytes.to_vec()))
    });
    let in_flight = |(device, first, bytes)| Pending { device, first, bytes, is_durable: false };
    pending.extend(data.chain(metadata).map(in_flight));
    (base, pending)
}

fn hash(images: &[Vec<u8>]) -> u64 {
    let mut hash = 0u64;
    for word in images.iter().flat_map(|image| image.chunks_exact(8)) {
        let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    mix(hash)
}
