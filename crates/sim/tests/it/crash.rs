//! Power cuts at any moment: ranges that the metadata do not mark are in sync, and durable data are
//! kept.
//!
//! A run writes at random to an array with a metadata manager, loses members, and resyncs, until a
//! power cut. Of the writes in flight or in a member's cache, any part survives. The state after
//! the cut is judged by md's rules alone (`Wreck::accepted`, `Wreck::is_marked`), then assembled
//! again for the next life: written to while it resyncs, until the next power cut. After the last
//! one it is resynced by the engine and compared to the last sector. Arrays have one shard, two or
//! three; some have a bitmap of two pages, which may be stale when the run begins; some have bad
//! sectors and members without space, and some lose a member while its metadata operations hang.
//!
//! Every case is a function of its seed. `RAIDLAB_TEST=all` runs many more, `RAIDLAB_SEED=n` one.

use std::collections::BTreeMap;

use engine::{
    BITMAP_PAGE_BYTES, BitmapHeader, DEFAULT_CHECKPOINT_NANOS, DeviceNumber, HostOp, IntentMap,
    ManagedBitmap, ManagedDevice, MemberSet, MetadataConfig, MetadataInput, MetadataManager,
    RequestError, ShardConfig, Sharding,
};
use md::geometry::Copy;
use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::ondisk::{Role, Timestamp};
use md::{
    Geometry, Kind, Layout, Level, MemberIdx, Raid5Layout, Raid6Layout, Raid10Layout, Sector,
    StripeNo,
};
use parity::{Block, Kernels};
use testkit::{Rng, for_seeds};

use crate::common::kept::{Disk, Kept};
use crate::common::member::{Platter, SECTOR};
use crate::common::model::Model;
use crate::common::{self, World};

const DAEMON_NANOS: u64 = 3_000_000;

/// Bits of a bitmap's first page: the header is in front of them.
const FIRST_PAGE_BITS: usize = (BITMAP_PAGE_BYTES - 256) * 8;

/// One array in this many is that large, which takes longer.
const LARGE_ONE_IN: u64 = 40;

#[derive(Clone)]
struct Shape {
    geometry: Geometry,
    map: IntentMap,
    /// Bits of this many positions; `None`: no bitmap.
    bitmap: Option<u64>,
    torn: bool,
    shards: u16,
}

impl Shape {
    fn pick(levels: &[(Level, Layout, usize)], shards: u16, rng: &mut Rng) -> Shape {
        let (level, layout, members) = levels[rng.below(levels.len() as u64) as usize];
        let chunk = rng.pick(&[8, 16, 32]);
        let large = rng.one_in(LARGE_ONE_IN);
        let rows = match large {
            true => {
                let positions = FIRST_PAGE_BITS as u64 + rng.within(100, 600);
                let copies = if level == Level::Raid10 { 2 * positions } else { positions };
                let of_each = if level == Level::Raid10 { members as u64 } else { 1 };
                copies.div_ceil(of_each).div_ceil(chunk)
            }
            false => rng.within(4, 10),
        };
        let unit = if level == Level::Raid1 { 0 } else { chunk };
        let geometry = common::geometry(level, layout, unit, &vec![rows * chunk; members]);
        let bitmap = if large { Some(1) } else { rng.pick(&[None, Some(8), Some(32)]) };
        let map = match bitmap {
            Some(chunk) => IntentMap::bitmap(&geometry, chunk).expect("levels with redundancy"),
            None => IntentMap::whole_array(&geometry),
        };
        Shape { geometry, map, bitmap, torn: rng.one_in(3), shards }
    }

    fn config(&self, manager: &MetadataManager, missing: MemberSet, rng: &mut Rng) -> ShardConfig {
        let least = ShardConfig::least_stripe_cache_bytes(&self.geometry);
        ShardConfig {
            missing,
            // Small units, so that requests span shards.
            sharding: Sharding::with_least_unit(&self.geometry, self.shards, rng.pick(&[1, 64])),
            stripe_cache_bytes: rng.pick(&[least, 8 * least]),
            discard_zeroes: rng.one_in(2),
            max_requests: if self.shards == 1 { 64 } else { 1 << 10 },
            intents: manager.intent_map(),
            safe_mode_nanos: rng.pick(&[100_000, 1_000_000]),
            in_sync_below: manager.in_sync_below(),
            out_of_sync: manager.out_of_sync(),
            ..ShardConfig::new(self.geometry.clone())
        }
    }

    fn manager(
        &self,
        state: ArrayState,
        here: &[(usize, u64)],
        bitmap: Option<ManagedBitmap>,
    ) -> MetadataManager {
        let device = |(at, events): &(usize, u64)| ManagedDevice {
            number: DeviceNumber(*at as u32),
            slot: Some(MemberIdx(*at as u16)),
            events: *events,
        };
        MetadataManager::new(MetadataConfig {
            geometry: self.geometry.clone(),
            shards: self.shards,
            devices: here.iter().map(device).collect(),
            found: state.clone(),
            state,
            bitmap,
            superblocks_in_turn: self.torn,
            checkpoint_nanos: DEFAULT_CHECKPOINT_NANOS,
        })
    }

    fn kept_bitmap(
        &self,
        header: BitmapHeader,
        bits: Vec<u8>,
        stale: bool,
    ) -> Option<ManagedBitmap> {
        self.bitmap.map(|chunk_sectors| ManagedBitmap {
            chunk_sectors,
            daemon_sleep_nanos: DAEMON_NANOS,
            events_cleared: header.events_cleared,
            bits,
            stale,
        })
    }
}

/// What a power cut leaves.
struct Wreck {
    shape: Shape,
    disks: Vec<Disk>,
    members: Vec<Vec<u8>>,
    /// Copies differed and parity was wrong when the first run began.
    began_out_of_sync: bool,
    troubled: bool,
    next_tag: u64,
    legal: Model,
}

/// A kernel's rule for which members belong to the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// By the event count: before 6.8.
    Count,
    /// By the count, and by the freshest member's roles.
    CountAndRoles,
}

impl Wreck {
    fn state(&self, at: usize) -> Option<&ArrayState> {
        self.disks[at].superblock.as_ref()
    }

    fn freshest(&self) -> &ArrayState {
        let states = (0..self.disks.len()).filter_map(|at| self.state(at));
        states.max_by_key(|state| state.events).expect("at most one superblock is torn")
    }

    fn accepted(&self, rule: Rule) -> Vec<usize> {
        let freshest = self.freshest();
        let listed = |at: usize| {
            let state = freshest.devices[at].as_ref();
            state.is_some_and(|state| state.role == Role::Slot(at as u16))
        };
        let counts =
            |at: usize| self.state(at).is_some_and(|state| state.events + 1 >= freshest.events);
        let all = 0..self.disks.len();
        all.filter(|at| counts(*at) && (rule == Rule::Count || listed(*at))).collect()
    }

    /// A member's bitmap, and whether it is older than the superblocks.
    fn bitmap(&self, at: usize) -> (BitmapHeader, Vec<u8>, bool) {
        let pages = &self.disks[at].pages;
        let header = pages[&0].0.expect("page 0 has the header");
        let bits = pages.values().flat_map(|(_, bits)| bits.clone()).collect();
        (header, bits, header.events < self.freshest().events)
    }

    /// Whether the metadata mark that this position may be out of sync, whichever member's bitmap
    /// is read.
    fn is_marked(&self, position: u64, accepted: &[usize]) -> bool {
        let Some(from) = self.freshest().resync_offset else { return false };
        if self.shape.bitmap.is_none() {
            return position >= from;
        }
        let bit = self.shape.map.bit_at(position);
        let marked = |at: &usize| {
            let (_, bits, stale) = self.bitmap(*at);
            stale || bits[bit as usize / 8] >> (bit % 8) & 1 == 1
        };
        self.shape.map.positions(bit).end > from && accepted.iter().all(marked)
    }

    fn sector(&self, member: MemberIdx, at: Sector) -> &[u8] {
        let from = at.0 as usize * SECTOR;
        &self.members[member.index()][from..from + SECTOR]
    }

    fn check(&self, rule: Rule) {
        let accepted = self.accepted(rule);
        let here = |member: MemberIdx| accepted.contains(&member.index());
        assert!(self.shape.geometry.enough(here), "{rule:?} leaves too few: {accepted:?}");
        match self.shape.geometry.kind() {
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                for at in 0..self.shape.geometry.array_sectors() {
                    mirrored.locate(Sector(at), &mut copies);
                    let marked = self.is_marked(at, &accepted);
                    let there: Vec<&Copy> =
                        copies.iter().filter(|copy| here(copy.member)).collect();
                    let first = self.sector(there[0].member, there[0].sector);
                    for copy in &there {
                        let bytes = self.sector(copy.member, copy.sector);
                        assert!(marked || bytes == first, "unmarked copies of {at} differ");
                        let blank = marked && self.began_out_of_sync && bytes != first;
                        assert!(
                            blank || self.legal.allows(at, bytes),
                            "sector {at} lost: {}",
                            self.legal.describe(at, bytes)
                        );
                    }
                }
            }
            Kind::Parity(parity) => {
                for stripe in 0..parity.stripes() {
                    for offset in 0..parity.chunk_sectors() {
                        self.check_row(parity, StripeNo(stripe), offset, &accepted);
                    }
                }
            }
            Kind::Striped(_) => unreachable!("no redundancy"),
        }
    }

    fn check_row(&self, parity: &md::Parity, stripe: StripeNo, offset: u64, accepted: &[usize]) {
        let row = parity.row(stripe);
        let place = parity.member_sector(stripe, offset);
        let here = |member: MemberIdx| accepted.contains(&member.index());
        let marked = self.is_marked(place.0, accepted);
        let mut data: Vec<(u8, u64, Option<Vec<u8>>)> = Vec::new();
        for index in &row.by_exponent {
            let member = row.data[usize::from(*index)];
            let at = parity.array_sector(stripe, *index, offset).0;
            let bytes = here(member).then(|| self.sector(member, place).to_vec());
            if let Some(bytes) = &bytes {
                assert!(
                    self.legal.allows(at, bytes),
                    "sector {at} lost: {}",
                    self.legal.describe(at, bytes)
                );
            }
            data.push((row.exponent[usize::from(*index)], at, bytes));
        }
        if marked {
            return;
        }
        let p = here(row.p).then(|| self.sector(row.p, place).to_vec());
        // One lost block is had back from P, where there is one; then parity must be true.
        let lost: Vec<usize> = (0..data.len()).filter(|at| data[*at].2.is_none()).collect();
        if let (&[one], Some(p)) = (&lost[..], &p) {
            let mut bytes = p.clone();
            for other in data.iter().filter_map(|(_, _, bytes)| bytes.as_ref()) {
                bytes.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
            }
            assert!(self.legal.allows(data[one].1, &bytes), "sector {} lost", data[one].1);
            data[one].2 = Some(bytes);
        }
        if data.iter().any(|(_, _, bytes)| bytes.is_none()) {
            return;
        }
        let block = |(exponent, _, bytes): &'_ (u8, u64, Option<Vec<u8>>)| {
            (*exponent, bytes.clone().expect("all are there"))
        };
        let held: Vec<(u8, Vec<u8>)> = data.iter().map(block).collect();
        let blocks: Vec<Block<'_>> =
            held.iter().map(|(exponent, bytes)| Block { exponent: *exponent, bytes }).collect();
        let (mut right_p, mut right_q) = ([0; SECTOR], [0; SECTOR]);
        Kernels::best().pq_gen(&mut right_p, &mut right_q, &blocks);
        assert!(p.is_none_or(|p| p == right_p), "unmarked P of row {stripe:?} at {offset}");
        let q = row.q.filter(|member| here(*member)).map(|member| self.sector(member, place));
        assert!(q.is_none_or(|q| q == right_q), "unmarked Q of row {stripe:?} at {offset}");
    }

    /// Puts the array together again, lets the engine resync it, stops it cleanly, and checks that
    /// nothing is marked or different any more.
    fn recover(self, rng: &mut Rng) {
        let Some(Case { shape, mut world, .. }) = self.start(rng, false) else { return };
        world.feed_resync();
        world.hand_over();
        world.quiesce();
        stop(&mut world);
        let disks = world.kept.as_ref().expect("put there").disks.clone();
        let members = world.members.iter().map(|member| member.bytes.clone()).collect();
        let legal = world.kept.take().expect("put there").durable;
        let after = Wreck {
            shape,
            disks,
            members,
            began_out_of_sync: false,
            troubled: false,
            next_tag: 0,
            legal,
        };
        assert_eq!(after.freshest().resync_offset, None, "the resync has passed everything");
        after.check(Rule::CountAndRoles);
        after.check(Rule::Count);
    }

    /// Whether some row of an array with parity lacks a data block.
    fn lacks_data(&self, accepted: &[usize]) -> bool {
        let Kind::Parity(parity) = self.shape.geometry.kind() else { return false };
        let rows = (0..parity.stripes()).map(|stripe| parity.row(StripeNo(stripe)));
        rows.flat_map(|row| &row.data).any(|member| !accepted.contains(&member.index()))
    }

    /// Puts the array together again. `None`: it is refused.
    fn start(mut self, rng: &mut Rng, troubled: bool) -> Option<Case> {
        self.shape.shards = rng.pick(&[1, 2, 3]);
        let accepted = self.accepted(Rule::CountAndRoles);
        let complete = accepted.len() == self.shape.geometry.members();
        if self.freshest().resync_offset.is_some() && self.lacks_data(&accepted) {
            // Dirty and degraded: refused without force, as by md.
            return None;
        }
        let bitmap = self.shape.bitmap.and_then(|_| {
            let (header, bits, stale) = self.bitmap(rng.pick(&accepted));
            self.shape.kept_bitmap(header, bits, stale)
        });
        let count = |at: &usize| self.state(*at).map_or(0, |state| state.events);
        let counts: Vec<(usize, u64)> = accepted.iter().map(|at| (*at, count(at))).collect();
        let manager = self.shape.manager(self.freshest().clone(), &counts, bitmap);
        let lost = (0..self.disks.len()).filter(|at| !accepted.contains(at)).map(|at| at as u16);
        let missing: MemberSet = lost.collect();
        let config = self.shape.config(&manager, missing, rng);
        let discard_zeroes = config.discard_zeroes;
        let mut world = World::new(config, rng.draw());
        let Wreck { shape, disks, members, began_out_of_sync, next_tag, legal, .. } = self;
        for (member, bytes) in world.members.iter_mut().zip(members) {
            member.platter = Some(Platter { bytes: bytes.clone(), ..Platter::default() });
            member.bytes = bytes;
        }
        world.next_tag = next_tag;
        world.model = legal.next_life(discard_zeroes);
        let out_of_sync = manager.status().resync_offset.is_some();
        let durable = legal.next_life(discard_zeroes);
        let mut kept = Kept::new(manager, disks, durable, world.resync_unit());
        kept.torn = shape.torn;
        world.model.tolerated = tolerated(troubled, out_of_sync && !complete);
        world.kept = Some(kept);
        let rng = Rng::new(rng.draw());
        Some(Case { shape, world, rng, out_of_sync, began_out_of_sync, troubled })
    }
}

/// Errors that requests may end with: where blocks are bad or space is short, and where what is
/// lost was not in sync.
fn tolerated(troubled: bool, lost_out_of_sync: bool) -> Vec<RequestError> {
    match (troubled, lost_out_of_sync) {
        (true, _) => vec![RequestError::Io, RequestError::NoSpace],
        (false, true) => vec![RequestError::Io],
        (false, false) => Vec::new(),
    }
}

fn stop(world: &mut World) {
    world.quiesce();
    world.kept.as_mut().expect("a manager").tell(MetadataInput::Stop);
    world.hand_over();
    world.quiesce();
    assert_eq!(world.has_stopped(), Some(true));
}

struct Case {
    shape: Shape,
    world: World,
    rng: Rng,
    /// A resync is to be done.
    out_of_sync: bool,
    /// See [`Wreck::began_out_of_sync`].
    began_out_of_sync: bool,
    /// Bad sectors, and members without space.
    troubled: bool,
}

impl Case {
    fn new(levels: &[(Level, Layout, usize)], seed: u64) -> Case {
        Case::with(levels, seed, |_| ())
    }

    fn with(
        levels: &[(Level, Layout, usize)],
        seed: u64,
        change: impl FnOnce(&mut ShardConfig),
    ) -> Case {
        let mut rng = Rng::new(seed);
        let shape = Shape::pick(levels, 1 + (seed % 3) as u16, &mut rng);
        let members = shape.geometry.members();
        let large = shape.map.bits() as usize > FIRST_PAGE_BITS;
        let out_of_sync = rng.one_in(if large { 2 } else { 4 });
        let stale = shape.bitmap.is_some() && rng.one_in(if large { 2 } else { 4 });
        let policy = if shape.bitmap.is_some() { Policy::Bitmap } else { Policy::Resync };
        let role = |at: usize| Some(DeviceState::new(Role::Slot(at as u16)));
        let state = ArrayState {
            events: 10,
            updated: Timestamp::default(),
            resync_offset: out_of_sync.then_some(0),
            policy,
            devices: (0..members).map(role).collect(),
        };
        // The bits of a stale bitmap are meaningless.
        let header = BitmapHeader { events: if stale { 9 } else { 10 }, events_cleared: 5 };
        let fill = if out_of_sync && !stale { 0xff } else { 0 };
        let bits = vec![fill; shape.map.bits().div_ceil(8) as usize];
        let here: Vec<(usize, u64)> = (0..members).map(|at| (at, 10)).collect();
        let bitmap = shape.kept_bitmap(header, bits.clone(), stale);
        let manager = shape.manager(state.clone(), &here, bitmap);
        let mut config = shape.config(&manager, MemberSet::EMPTY, &mut rng);
        change(&mut config);
        let durable = Model::new(shape.geometry.array_sectors(), config.discard_zeroes);
        let mut world = World::new(config, rng.draw());
        let (first, second) = bits.split_at(bits.len().min(FIRST_PAGE_BITS / 8));
        let mut pages = BTreeMap::from([(0, (Some(header), first.to_vec()))]);
        if !second.is_empty() {
            pages.insert(1, (None, second.to_vec()));
        }
        let disk = Disk { superblock: Some(state), pages };
        let mut kept = Kept::new(manager, vec![disk; members], durable, world.resync_unit());
        kept.torn = shape.torn;
        if out_of_sync {
            spoil(&shape.geometry, &mut world, &mut rng);
        }
        for member in &mut world.members {
            let bytes = member.bytes.clone();
            member.platter = Some(Platter { bytes, ..Platter::default() });
        }
        world.kept = Some(kept);
        let troubled = rng.one_in(3);
        world.model.tolerated = tolerated(troubled, false);
        let began_out_of_sync = out_of_sync;
        if out_of_sync
            && matches!(shape.geometry.kind(), Kind::Mirrored(_))
            && (troubled || rng.one_in(2))
        {
            // The copy that is read may be lost or bad: then another one, which differs, is what
            // there is.
            world.model.begin_with_anything();
            let kept = world.kept.as_mut().expect("just put there");
            kept.durable.begin_with_anything();
        }
        Case { shape, world, rng, out_of_sync, began_out_of_sync, troubled }
    }

    /// Several lives, each but the last of which ends with a power cut in the middle of things.
    fn run(mut self) {
        for _ in 0..self.rng.within(1, 4) {
            let Some(wreck) = self.live() else { return };
            let mut rng = Rng::new(wreck.next_tag ^ 0x5eed);
            let troubled = wreck.troubled;
            let Some(next) = wreck.start(&mut rng, troubled) else { return };
            self = next;
        }
        let Some(wreck) = self.live() else { return };
        let mut rng = Rng::new(wreck.next_tag ^ 0xfeed);
        wreck.recover(&mut rng);
    }

    /// How many members may go. Copies that differ are alike in that each of them may be the truth
    /// only where the model has it so.
    fn failures(&self) -> u64 {
        let mirrored = matches!(self.shape.geometry.kind(), Kind::Mirrored(_));
        let anything = self.world.model.allows_anything();
        let degraded = self.world.shard.status().failed.len();
        match mirrored && self.began_out_of_sync && !anything {
            true => 0,
            false => (self.shape.geometry.tolerates() - degraded) as u64,
        }
    }

    /// One life; what the power cut at its end leaves. `None`: md would be lost too.
    fn live(mut self) -> Option<Wreck> {
        let mut lives = self.failures();
        if self.out_of_sync {
            self.world.feed_resync();
            self.world.hand_over();
        }
        let depth = self.rng.pick(&[1, 4, 24]);
        let requests = self.rng.within(5, 120);
        for _ in 0..requests {
            while self.world.outstanding() >= depth {
                assert!(self.world.step(), "nothing is in flight, but the queue is full");
            }
            let (op, at, sectors) = self.request();
            self.world.submit(op, at, sectors);
            if self.troubled && self.rng.one_in(12) {
                self.trouble();
            }
            let steps = if self.rng.one_in(8) { 400 } else { self.rng.below(8) };
            for _ in 0..steps {
                self.world.step();
            }
            if lives > 0 && self.rng.one_in(40) {
                lives -= 1;
                let lost = self.rng.below(self.shape.geometry.members() as u64) as usize;
                let at = self.world.now + self.rng.below(500_000);
                let at = *self.world.members[lost].gone_at.get_or_insert(at);
                // Superblocks that are written in turn wait for one that hangs.
                if !self.shape.torn && self.rng.one_in(2) {
                    self.world.hang_metadata(lost, at);
                }
                if self.out_of_sync {
                    self.world.model.tolerated = tolerated(self.troubled, true);
                }
            }
        }
        for _ in 0..self.rng.below(60) {
            self.world.step();
        }
        let degraded = !self.world.shard.status().failed.is_empty();
        for member in &mut self.world.members {
            member.bad.clear();
            member.full = 0..0;
            member.metadata_full = false;
        }
        if self.rng.one_in(3) {
            self.read_all();
        }
        // A resync that cannot be finished has no end.
        if self.rng.one_in(10) && !degraded {
            stop(&mut self.world);
        }
        self.crash()
    }

    /// A bad block, a member that is full in some place, or room on it again.
    fn trouble(&mut self) {
        let members = self.shape.geometry.members() as u64;
        let at = self.rng.below(members) as usize;
        let used = self.shape.geometry.member_used_sectors(MemberIdx(at as u16));
        let from = self.rng.below(used);
        let (kind, length) = (self.rng.below(6), self.rng.within(1, 24));
        let short = if self.rng.one_in(2) { self.rng.within(1, 6) } else { 0 };
        let member = &mut self.world.members[at];
        match kind {
            0 => member.bad.extend(from..(from + length).min(used)),
            1 => (member.full, member.short) = (from..from + length, short),
            2 => (member.full, member.short) = (0..used, short),
            3 => member.metadata_full = true,
            4 => member.metadata_full = false,
            _ => member.full = 0..0,
        }
    }

    /// Everything is read once, and compared with the model.
    fn read_all(&mut self) {
        let size = self.shape.geometry.array_sectors();
        for at in (0..size).step_by(64) {
            while self.world.outstanding() >= 24 {
                assert!(self.world.step(), "nothing is in flight, but the queue is full");
            }
            self.world.submit(HostOp::Read, at, 64.min(size - at));
        }
        for _ in 0..self.rng.below(400) {
            self.world.step();
        }
    }

    fn request(&mut self) -> (HostOp, u64, u64) {
        let size = self.shape.geometry.array_sectors();
        let op = match self.rng.below(16) {
            0 | 1 => return (HostOp::Flush, 0, 0),
            2 => HostOp::WriteZeroes,
            3 => HostOp::Discard,
            4 => HostOp::Read,
            5 => HostOp::Write { fua: true },
            _ => HostOp::Write { fua: false },
        };
        let at = if self.rng.one_in(2) { self.rng.below(size) } else { self.rng.below(16) };
        let most = self.rng.pick(&[4, 24, 80]);
        (op, at, self.rng.within(1, most).min(size - at))
    }

    fn crash(mut self) -> Option<Wreck> {
        let members = self.world.cut_members(&mut self.rng);
        let kept = self.world.kept.take().expect("a manager");
        let disks = kept.cut(&mut self.rng);
        let torn = disks.iter().any(|disk| disk.superblock.is_none());
        let lost = |number| !self.world.shard_of(number).status().failed.is_empty();
        if torn && ((0..self.shape.shards).any(lost) || kept.manager.status().degraded > 0) {
            // The named exemption: a superblock torn on an array that has lost members already.
            // Writing them in turn loses one at most, and here that may be the last one that is
            // fresh, as in md.
            return None;
        }
        let legal = kept.durable;
        let wreck = Wreck {
            shape: self.shape,
            disks,
            members,
            began_out_of_sync: self.began_out_of_sync,
            troubled: self.troubled,
            next_tag: self.world.next_tag,
            legal,
        };
        wreck.check(Rule::CountAndRoles);
        wreck.check(Rule::Count);
        Some(wreck)
    }
}

/// Makes all redundancy wrong: every copy but the first, and all parity.
fn spoil(geometry: &Geometry, world: &mut World, rng: &mut Rng) {
    let mut spoil = |member: MemberIdx, at: u64| {
        let from = at as usize * SECTOR;
        world.members[member.index()].bytes[from..from + SECTOR].fill(1 + rng.below(255) as u8);
    };
    match geometry.kind() {
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            for at in 0..geometry.array_sectors() {
                mirrored.locate(Sector(at), &mut copies);
                copies[1..].iter().for_each(|copy| spoil(copy.member, copy.sector.0));
            }
        }
        Kind::Parity(parity) => {
            for stripe in 0..parity.stripes() {
                let row = parity.row(StripeNo(stripe)).clone();
                for offset in 0..parity.chunk_sectors() {
                    let at = parity.member_sector(StripeNo(stripe), offset).0;
                    [Some(row.p), row.q].into_iter().flatten().for_each(|m| spoil(m, at));
                }
            }
        }
        Kind::Striped(_) => {}
    }
}

fn run_family(name: &str, levels: &[(Level, Layout, usize)], count: u64) {
    for_seeds!(name, count, |seed| Case::new(levels, seed).run());
}

#[test]
fn power_cuts_leave_mirrors_in_sync_or_marked() {
    let raid10 = |layout, members| (Level::Raid10, Layout::Raid10(layout), members);
    let levels = [
        (Level::Raid1, Layout::None, 2),
        (Level::Raid1, Layout::None, 3),
        raid10(Raid10Layout::near(2), 4),
        raid10(Raid10Layout::far(2), 3),
        raid10(Raid10Layout::offset(2), 5),
    ];
    run_family("power_cuts_leave_mirrors_in_sync_or_marked", &levels, 100);
}

#[test]
fn power_cuts_leave_parity_true_or_marked() {
    let raid5 = Layout::Raid5(Raid5Layout::LeftSymmetric);
    let raid6 = Layout::Raid6(Raid6Layout::LeftSymmetric);
    let levels = [
        (Level::Raid4, Layout::None, 3),
        (Level::Raid5, raid5, 3),
        (Level::Raid5, raid5, 5),
        (Level::Raid6, raid6, 4),
        (Level::Raid6, raid6, 6),
        (Level::Raid6, Layout::Raid6(Raid6Layout::DdfNContinue), 5),
        (Level::Raid6, Layout::Raid6(Raid6Layout::LeftSymmetric6), 5),
        (Level::Raid6, Layout::Raid6(Raid6Layout::ParityFirst), 5),
    ];
    run_family("power_cuts_leave_parity_true_or_marked", &levels, 100);
}

/// The checker's own check: an array whose shard asks for no intents marks nothing, and is found
/// out.
#[test]
fn the_checker_finds_an_array_that_marks_nothing() {
    let levels = [(Level::Raid1, Layout::None, 2)];
    let found = (0..80).filter(|seed| {
        let blind = || Case::with(&levels, *seed, |config| config.intents = None).run();
        std::panic::catch_unwind(blind).is_err()
    });
    let found = found.count();
    assert!(found > 10, "only {found} are found");
}
