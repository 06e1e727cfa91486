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
use std::ops::Range;

use md::ondisk::Version;
use md::{Layout, Level, Raid5Layout, Raid6Layout, Raid10Layout};
use testkit::{Rng, mix};

use crate::assembly::{Begins, NewArray};
use crate::crash_images::{Alike, Hashes};
use crate::life::Life;
use crate::member::SECTOR;
use crate::random::Shape;
use crate::scenario::{Action, Extent, Scenario};
use crate::tally::Tally;

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
    /// Those of them at which too many writes were pending: their subsets are sampled.
    pub sampled: u64,
    /// States that a power cut may leave, as far as they were enumerated.
    pub states: u64,
    /// Different ones, each of which was checked.
    pub checked: u64,
    /// Those of them that are a named exemption.
    pub exempt: u64,
    /// Those of them that were started again, resynced, stopped and compared.
    pub recovered: u64,
}

impl ScopeTally {
    /// Adds another one.
    pub fn add(&mut self, other: ScopeTally) {
        self.scopes += other.scopes;
        self.crash_points += other.crash_points;
        self.states += other.states;
        self.sampled += other.sampled;
        self.checked += other.checked;
        self.exempt += other.exempt;
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
            let logs = if level == Level::Raid5 { &[None, Some(48)][..] } else { &[None] };
            let bitmaps = [None, Some(4096)].map(|chunk| (chunk, None));
            let options =
                bitmaps.into_iter().chain(logs.iter().flatten().map(|it| (None, Some(*it))));
            for (bitmap_chunk, log) in options {
                let chunk_sectors = if level == Level::Raid1 { 0 } else { 8 };
                let is_small = level != Level::Raid1 && bitmap_chunk.is_none();
                let array = NewArray {
                    level,
                    layout,
                    members,
                    chunk_sectors,
                    used_sectors: if is_small { 16 } else { 128 },
                    version: Version::V1_2,
                    block: 512,
                    bitmap_chunk,
                    roles: None,
                    log,
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
    let mut exhaust = Exhaust {
        scope,
        recover_one_in,
        seen: HashSet::new(),
        alike: Alike::default(),
        tally,
        rng,
    };
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
            assert!(exhaust.step(&mut life), "nothing is in flight, but the queue is full");
        }
        life.act(*action, &mut exhaust.rng, &mut Tally::default());
        exhaust.crash_point(&life);
    }
    while exhaust.step(&mut life) {}
    // Everything must have completed.
    life.world.quiesce();
}

struct Exhaust<'a> {
    scope: &'a Scenario,
    recover_one_in: u64,
    /// Images and what may be true of them: hashes.
    seen: HashSet<u64>,
    alike: Alike,
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
        let volatile = (0..pending.len()).filter(|at| !pending[*at].is_durable);
        let volatile: Vec<usize> = volatile.collect();
        let count = volatile.len();
        let data: Vec<Range<u64>> = (0..base.len()).map(|device| life.data_of(device)).collect();
        let mut states = States::new(&base, &data, &pending, &volatile);
        if count <= MOST_PENDING {
            for subset in 0..1u64 << count {
                self.state(life, &mut states, subset, None);
            }
        } else {
            self.tally.sampled += 1;
            for _ in 0..1 << MOST_PENDING {
                let subset = self.rng.draw();
                self.state(life, &mut states, subset, None);
            }
        }
        for (bit, torn) in volatile.iter().enumerate() {
            let sectors = (pending[*torn].bytes.len() / SECTOR) as u64;
            let few = count <= MOST_PENDING_BESIDE_A_TEAR;
            let others: Vec<u64> = if few { (0..1 << count).collect() } else { vec![0, u64::MAX] };
            for first in 1..sectors {
                for subset in others.iter().filter(|subset| !few || *subset >> bit & 1 == 0) {
                    self.state(life, &mut states, *subset, Some((*torn, first)));
                }
            }
        }
    }

    /// One state: the pending writes of a subset, one of them torn: its first sectors are there.
    fn state(
        &mut self,
        life: &Life,
        states: &mut States<'_>,
        subset: u64,
        torn: Option<(usize, u64)>,
    ) {
        self.tally.states += 1;
        let mut hashes = states.hashes(subset, torn);
        hashes.data ^= mix(life.model_version());
        let key = mix(hashes.metadata ^ mix(hashes.data));
        if !self.seen.insert(key) {
            return;
        }
        states.make(subset, torn);
        self.tally.checked += 1;
        if !self.rng.one_in(self.recover_one_in) {
            let checked = life.check_alike(&self.alike, hashes, &states.images);
            self.tally.exempt += u64::from(checked.is_none());
        } else if let Some(offline) = life.offline_with(states.images.clone()) {
            self.tally.recovered += 1;
            let mut rng = Rng::new(key);
            offline.recover(self.scope, &mut rng, &mut Tally::default());
        }
    }
}

/// The states of a crash point, one after the other.
struct States<'a> {
    base: &'a [Vec<u8>],
    pending: &'a [Pending],
    /// Those of `pending` that may be lost: a bit of a subset each.
    volatile: &'a [usize],
    images: Vec<Vec<u8>>,
    /// Ranges in which `images` differ from `base`: (device, first byte, end).
    changed: Vec<(usize, usize, usize)>,
    /// By device: sectors that are no metadata.
    data: &'a [Range<u64>],
    /// Of the base: sums over all sectors.
    base_hashes: Hashes,
    /// Of each sector of each pending write: what it adds to its sum.
    deltas: Vec<Vec<u64>>,
    /// By device and sector: what the last write there has added; zeroes between two states.
    added: Vec<Vec<u64>>,
}

impl<'a> States<'a> {
    fn new(
        base: &'a [Vec<u8>],
        data: &'a [Range<u64>],
        pending: &'a [Pending],
        volatile: &'a [usize],
    ) -> States<'a> {
        let mut base_hashes = Hashes { metadata: 0, data: 0 };
        for (device, image) in base.iter().enumerate() {
            for (sector, bytes) in image.chunks_exact(SECTOR).enumerate() {
                let sum = sum_of(&mut base_hashes, data[device].contains(&(sector as u64)));
                *sum = sum.wrapping_add(hash(device, sector, bytes));
            }
        }
        let delta = |write: &Pending| {
            let sectors = (write.first as usize..).zip(write.bytes.chunks_exact(SECTOR));
            let delta = |(sector, new)| {
                let old = &base[write.device][sector * SECTOR..][..SECTOR];
                let (old, new) = (hash(write.device, sector, old), hash(write.device, sector, new));
                new.wrapping_sub(old)
            };
            sectors.map(delta).collect()
        };
        States {
            base,
            pending,
            volatile,
            images: base.to_vec(),
            changed: Vec::new(),
            data,
            base_hashes,
            deltas: pending.iter().map(delta).collect(),
            added: base.iter().map(|image| vec![0; image.len() / SECTOR]).collect(),
        }
    }

    /// The hashes of a state, sums over all sectors, without its images: most states are known.
    fn hashes(&mut self, subset: u64, torn: Option<(usize, u64)>) -> Hashes {
        let mut hashes = self.base_hashes;
        for (at, write, length) in writes(self.pending, self.volatile, subset, torn) {
            let added = &mut self.added[write.device][write.first as usize..][..length / SECTOR];
            let deltas = (write.first..).zip(&self.deltas[at]);
            for (added, (sector, delta)) in added.iter_mut().zip(deltas) {
                let is_data = self.data[write.device].contains(&sector);
                let sum = sum_of(&mut hashes, is_data);
                *sum = sum.wrapping_sub(*added).wrapping_add(*delta);
                *added = *delta;
            }
        }
        for (_, write, length) in writes(self.pending, self.volatile, subset, torn) {
            self.added[write.device][write.first as usize..][..length / SECTOR].fill(0);
        }
        hashes
    }

    /// Makes the images of a state.
    fn make(&mut self, subset: u64, torn: Option<(usize, u64)>) {
        for (device, from, to) in self.changed.drain(..) {
            self.images[device][from..to].copy_from_slice(&self.base[device][from..to]);
        }
        for (_, write, length) in writes(self.pending, self.volatile, subset, torn) {
            let from = write.first as usize * SECTOR;
            let to = from + length;
            self.images[write.device][from..to].copy_from_slice(&write.bytes[..length]);
            self.changed.push((write.device, from, to));
        }
    }
}

/// The hash to which a sector belongs.
fn sum_of(hashes: &mut Hashes, is_data: bool) -> &mut u64 {
    if is_data { &mut hashes.data } else { &mut hashes.metadata }
}

/// The writes of a state in their order, and how many bytes of each are there.
fn writes<'a>(
    pending: &'a [Pending],
    volatile: &'a [usize],
    subset: u64,
    torn: Option<(usize, u64)>,
) -> impl Iterator<Item = (usize, &'a Pending, usize)> {
    let mut bits = 0;
    pending.iter().enumerate().filter_map(move |(at, write)| {
        let is_volatile = volatile.get(bits) == Some(&at);
        let keeps = !is_volatile || subset >> (bits % 64) & 1 == 1;
        bits += usize::from(is_volatile);
        match torn {
            Some((torn, first)) if torn == at => Some((at, write, first as usize * SECTOR)),
            _ => keeps.then_some((at, write, write.bytes.len())),
        }
    })
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
        control_plane.writes_in_flight(world).map(|(at, first, bytes)| (at, first, bytes.to_vec()))
    });
    let in_flight = |(device, first, bytes)| Pending { device, first, bytes, is_durable: false };
    pending.extend(data.chain(metadata).map(in_flight));
    (base, pending)
}

/// Of a sector and its place.
fn hash(device: usize, sector: usize, bytes: &[u8]) -> u64 {
    let mut hash = (device as u64) << 32 | sector as u64;
    for word in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    mix(hash)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A wrong sector on each device, beside states that are right: with the metadata of those, and
    /// with metadata that differ in a sector that says nothing.
    #[test]
    fn what_was_right_in_one_state_hides_no_wrong_sector_of_another() {
        let all = scopes();
        let kinds = [(Level::Raid1, true), (Level::Raid5, false), (Level::Raid6, true)];
        for (level, has_bitmap) in kinds {
            let is_wanted = |scope: &&Scenario| {
                let array = &scope.array;
                array.level == level
                    && array.bitmap_chunk.is_some() == has_bitmap
                    && array.begins == Begins::InSync
                    && scope.actions.len() == 1
            };
            let scope = all.iter().find(is_wanted).expect("there is one");
            let mut rng = Rng::new(1);
            let life = Life::of_new_array(scope, &mut rng, &mut Tally::default());
            let tally = &mut ScopeTally::default();
            let (seen, alike) = (HashSet::new(), Alike::default());
            let mut exhaust = Exhaust { scope, recover_one_in: u64::MAX, seen, alike, tally, rng };
            let (base, _) = pending(&life);
            let data: Vec<Range<u64>> = (0..base.len()).map(|it| life.data_of(it)).collect();
            for (device, area) in data.iter().enumerate().take(scope.array.members) {
                let write = |first, is_durable| {
                    let bytes = vec![0xa5; SECTOR];
                    Pending { device, first, bytes, is_durable }
                };
                let pending = [write(area.start - 1, false), write(area.start + 3, false)];
                let mut states = States::new(&base, &data, &pending, &[0, 1]);
                for (subset, is_right) in [(0b00, true), (0b01, true), (0b10, false), (0b11, false)]
                {
                    let check = || exhaust.state(&life, &mut states, subset, None);
                    let found = catch_unwind(AssertUnwindSafe(check)).is_err();
                    assert_eq!(found, !is_right, "{level} {device} {subset:b}");
                }
            }
            assert_eq!(
                exhaust.tally.checked,
                exhaust.tally.states - scope.array.members as u64 + 1
            );
        }
    }
}
