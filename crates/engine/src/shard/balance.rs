//! Chooses the copy that a mirrored read is served from.
//!
//! ```text
//! copies in sync --> not write-mostly --> as fast as the others --> least busy --> nearest head
//!                    (if there is one)    (or soonest in spite)
//! ```
//! A member is *slow* where it takes more than three times as long for a read as the fastest one
//! that has a copy. Differences below that are what seeks and caches make of equal disks, whose
//! reads are spread by their load and their heads alone. A slow member is read only where it would
//! have the data sooner all the same, and now and then, to notice that it has recovered.
//!
//! ```text
//! a deep stream:   copy 0   |=======|- - - -|=======|- - - -      long runs in turn: a jump over
//!                  copy 1   - - - - |=======|- - - -|=======      one takes less than reading it
//! ```
//!
//! Invariant: a heuristic; any in-sync copy would be correct. Called only from `non_parity`, which
//! reports every operation's begin and end.

use md::geometry::Copy;

use crate::MemberSet;

/// How many times as long as another a slow member takes.
const SLOW: u64 = 3;
/// Differences up to this are none.
const EQUAL_NANOS: u64 = 50_000;
/// Reads of a member before it is called slow; of a stream, all of which it would slow down.
const LEAST_READS: u32 = 16;
const LEAST_STREAMED: u32 = 4;
/// What a member has still to read before a stream continues on another copy, in sectors (1 MiB),
/// where it is not known what a jump takes.
const LEAST_AHEAD_SECTORS: u64 = 2048;
/// A mean is over about as many reads.
const MEAN_OF: u64 = 16;
/// A slow member is tried again after this time, and this many times what a read of it takes: so
/// that trying it costs 2 % at most.
const RETRY_NANOS: u64 = 250_000_000;
const RETRY_READS: u64 = 64;

/// How long reads of a member take, as a moving mean.
#[derive(Clone, Copy, Default)]
struct Mean {
    nanos: u64,
    reads: u32,
}

impl Mean {
    /// `weight`: the new value's is 1 / `weight`.
    fn add(&mut self, nanos: u64, weight: u64) {
        self.reads = self.reads.saturating_add(1);
        self.nanos = match weight.min(u64::from(self.reads)) {
            // Nearly always: without a division.
            MEAN_OF => self.nanos - self.nanos / MEAN_OF + nanos / MEAN_OF,
            weight => self.nanos - self.nanos / weight + nanos / weight,
        };
    }
}

#[derive(Clone, Copy, Default)]
struct Load {
    in_flight: u32,
    /// End sector of the member's last I/O, and its length.
    head: u64,
    sectors: u64,
    /// When its last operation ended.
    ended_at: u64,
    /// When its last read ended.
    read_at: u64,
    /// Reads that continue a stream on the copy that it stays on.
    streamed: Mean,
    /// All others.
    single: Mean,
}

impl Load {
    /// When one more read would end, from now.
    fn expected(&self) -> u64 {
        u64::from(self.in_flight + 1) * self.single.nanos.max(1)
    }

    fn is_known(&self) -> bool {
        self.single.reads >= LEAST_READS
    }

    /// Whether a read that takes `nanos` here takes far longer than `other` does.
    fn is_slower(nanos: u64, other: u64) -> bool {
        nanos > SLOW.saturating_mul(other).saturating_add(EQUAL_NANOS)
    }

    /// Whether it is to be tried, however slow it is.
    fn is_due(&self, now: u64) -> bool {
        self.in_flight == 0 && self.is_unread(now)
    }

    /// Whether it has not been read for long.
    fn is_unread(&self, now: u64) -> bool {
        let nanos = self.single.nanos.max(self.streamed.nanos);
        now > self.read_at + RETRY_NANOS.max(RETRY_READS * nanos)
    }
}

pub(crate) struct Balance {
    /// Empty where there is nothing to choose.
    loads: Vec<Load>,
    /// Far layouts: the first copy lies in the first section of each member, where a stream reads
    /// like RAID 0 and an arm moves least.
    prefer_first: bool,
    write_mostly: MemberSet,
}

impl Balance {
    pub(crate) fn new(members: usize, prefer_first: bool, write_mostly: MemberSet) -> Balance {
        Balance { loads: vec![Load::default(); members], prefer_first, write_mostly }
    }

    /// Of an array with one copy.
    pub(crate) fn none() -> Balance {
        Balance::new(0, false, MemberSet::EMPTY)
    }

    fn load_mut(&mut self, member: u16) -> Option<&mut Load> {
        let at = usize::from(member);
        debug_assert!(self.loads.is_empty() || at < self.loads.len(), "no member {member}");
        self.loads.get_mut(at)
    }

    /// Another member has the slot: nothing is known of it.
    pub(crate) fn forget(&mut self, member: u16) {
        let Some(load) = self.load_mut(member) else { return };
        *load = Load { in_flight: load.in_flight, ..Load::default() };
    }

    pub(crate) fn set_write_mostly(&mut self, member: u16, write_mostly: bool) {
        match write_mostly {
            true => self.write_mostly.insert(member),
            false => self.write_mostly.remove(member),
        }
    }

    pub(crate) fn write_mostly(&self) -> MemberSet {
        self.write_mostly
    }

    pub(crate) fn issued(&mut self, member: u16, end: u64, sectors: u64) {
        let Some(load) = self.load_mut(member) else { return };
        load.in_flight += 1;
        (load.head, load.sectors) = (end, sectors);
    }

    pub(crate) fn done(&mut self, now: u64, member: u16) {
        let Some(load) = self.load_mut(member) else { return };
        debug_assert!(load.in_flight > 0, "member {member} finishes more than it was given");
        load.in_flight = load.in_flight.saturating_sub(1);
        load.ended_at = now;
    }

    /// A read has ended that was issued at `begun_at`. Its service time is what has passed since
    /// then, or since the member ended the operation before it.
    pub(crate) fn read_done(&mut self, now: u64, member: u16, begun_at: u64, is_streamed: bool) {
        let Some(load) = self.load_mut(member) else { return };
        let nanos = now.saturating_sub(begun_at.max(load.ended_at));
        // After a long time without reads, the past says little.
        let weight = match load.is_unread(begun_at) {
            true => 2,
            false => MEAN_OF,
        };
        match is_streamed {
            true => load.streamed.add(nanos, weight),
            false => load.single.add(nanos, weight),
        }
        load.read_at = now;
        self.done(now, member);
    }

    /// The index of the best of `copies`, or `None` when all of their members have failed.
    ///
    /// A stream stays on its copy: a head that passes over blocks it does not need takes as long as
    /// one that reads them, so that two mirrors that read its blocks in turn gain nothing; but see
    /// [`Balance::beside`]. It leaves a slow member. Otherwise the least busy member wins, and
    /// among equals the one whose head is nearest.
    pub(crate) fn choose(
        &self,
        now: u64,
        copies: &[Copy],
        failed: MemberSet,
        stay: Option<u8>,
    ) -> Option<usize> {
        if let [only] = copies {
            return (!failed.contains(only.member.0)).then_some(0);
        }
        let excluded = self.excluded(copies, failed);
        let may = |at: &usize| !excluded.contains(copies[*at].member.0);
        let stay = stay.map(usize::from).filter(|at| *at < copies.len()).filter(may);
        if let Some(stay) = stay {
            let all = (0..copies.len()).filter(may);
            return Some(self.other_than(now, copies, stay, all).unwrap_or(stay));
        }
        let (mut fastest, mut slowest, mut best) = (u64::MAX, 0, None);
        for at in (0..copies.len()).filter(may) {
            let load = self.load(copies, at);
            if load.is_known() {
                fastest = fastest.min(load.single.nanos);
                slowest = slowest.max(load.single.nanos);
            }
            let key = self.key(copies, at);
            if best.is_none_or(|(_, least)| key < least) {
                best = Some((at, key));
            }
        }
        if Load::is_slower(slowest, fastest) {
            return self.choose_beside_slow(now, copies, excluded, fastest);
        }
        best.map(|(at, _)| at)
    }

    /// Members that are not read: those that have failed, and write-mostly ones where another has a
    /// copy.
    fn excluded(&self, copies: &[Copy], failed: MemberSet) -> MemberSet {
        if self.write_mostly.is_empty() {
            return failed;
        }
        let either = failed.union(self.write_mostly);
        let is_served = copies.iter().any(|copy| !either.contains(copy.member.0));
        if is_served { either } else { failed }
    }

    fn load(&self, copies: &[Copy], at: usize) -> &Load {
        &self.loads[usize::from(copies[at].member.0)]
    }

    /// The best copy has the least.
    fn key(&self, copies: &[Copy], at: usize) -> (u32, u64) {
        let (load, copy) = (self.load(copies, at), copies[at]);
        // Far copies: each chunk's first copy lies in the outer half of another member, so that
        // heads stay there and members share the load by chunks; md chooses so, too.
        match self.prefer_first {
            true => (0, copy.sector.0),
            false => (load.in_flight, load.head.abs_diff(copy.sector.0)),
        }
    }

    /// As [`Balance::choose`], where a member is slow.
    #[cold]
    fn choose_beside_slow(
        &self,
        now: u64,
        copies: &[Copy],
        excluded: MemberSet,
        fastest: u64,
    ) -> Option<usize> {
        let load = |at: usize| self.load(copies, at);
        let all = || (0..copies.len()).filter(|at| !excluded.contains(copies[*at].member.0));
        let is_slow =
            |at: &usize| load(*at).is_known() && Load::is_slower(load(*at).single.nanos, fastest);
        if let Some(due) = all().filter(is_slow).find(|at| load(*at).is_due(now)) {
            return Some(due);
        }
        let best = all().filter(|at| !is_slow(at)).min_by_key(|at| self.key(copies, *at))?;
        let sooner = |at: &usize| load(*at).expected() < load(best).expected();
        all().filter(is_slow).filter(sooner).min_by_key(|at| load(*at).expected()).or(Some(best))
    }

    /// The copy that a read of a stream goes to instead of the one that the stream stays on.
    fn other_than(
        &self,
        now: u64,
        copies: &[Copy],
        stay: usize,
        all: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        let load = |at: usize| &self.loads[usize::from(copies[at].member.0)];
        let Load { streamed, .. } = *load(stay);
        if streamed.reads < LEAST_STREAMED || load(stay).is_due(now) {
            return None;
        }
        let is_faster = |at: usize| Load::is_slower(streamed.nanos, load(at).single.nanos);
        let is_unknown = |at: usize| load(at).single.reads == 0 && load(at).in_flight == 0;
        let mut others = all.filter(|at| *at != stay);
        others.find(|at| is_unknown(*at) || is_faster(*at))
    }

    /// Where a deep stream is read beside the copy that it is on: at an idle member, when that of
    /// `stay` has to read for long enough to make the jump worth its time. As the queue of the one
    /// drains, that of the other grows to all that is in flight, while it reads as much again: so
    /// runs are about twice as long as what is left, and may take no less than a jump. What is
    /// known of a member that has not been read for long does not count: it is tried again.
    pub(crate) fn beside(
        &self,
        now: u64,
        copies: &[Copy],
        failed: MemberSet,
        stay: u8,
    ) -> Option<u8> {
        let stay = usize::from(stay);
        if self.prefer_first || stay >= copies.len() {
            return None;
        }
        let busy = self.load(copies, stay);
        if busy.in_flight < 2 {
            return None;
        }
        let excluded = self.excluded(copies, failed);
        let is_better = |at: &usize| {
            let other = self.load(copies, *at);
            if other.in_flight > 0 || excluded.contains(copies[*at].member.0) {
                return false;
            }
            let is_known = !other.is_unread(now);
            // A host that takes the data in order would wait for it.
            let is_as_fast = !is_known
                || other.streamed.reads < LEAST_STREAMED
                || other.streamed.nanos <= busy.streamed.nanos / 2 * 3 + EQUAL_NANOS;
            let left = u64::from(busy.in_flight);
            is_as_fast
                && match is_known && other.single.reads > 0 && busy.streamed.reads > 0 {
                    true => {
                        let jump = other.single.nanos.saturating_sub(busy.streamed.nanos);
                        2 * left * busy.streamed.nanos >= jump
                    }
                    false => left * busy.sectors >= LEAST_AHEAD_SECTORS,
                }
        };
        (0..copies.len()).find(is_better).map(|at| at as u8)
    }

    /// The copy that a stream is on at this place: `stay`, or another one whose member has read up
    /// to less than `sectors` before it, for groups of mirrors change their copies at different
    /// times. After a write all members of a group are there.
    pub(crate) fn continued(&self, copies: &[Copy], sectors: u64, stay: u8) -> u8 {
        let behind = |at: &usize| copies[*at].sector.0.checked_sub(self.load(copies, *at).head);
        let is_near = |at: &usize| behind(at).is_some_and(|it| it < sectors);
        if self.prefer_first || usize::from(stay) >= copies.len() || is_near(&usize::from(stay)) {
            return stay;
        }
        let near = (0..copies.len()).filter(is_near).min_by_key(behind);
        near.map_or(stay, |at| at as u8)
    }

    /// The copy that a new stream begins on.
    pub(crate) fn choose_for_stream(
        &self,
        now: u64,
        copies: &[Copy],
        failed: MemberSet,
    ) -> Option<usize> {
        let stay = self.prefer_first.then_some(0);
        self.choose(now, copies, failed, stay)
    }
}

#[cfg(test)]
mod tests {
    use md::{MemberIdx, Sector};

    use super::*;

    fn copies(sectors: [u64; 2]) -> [Copy; 2] {
        [0, 1].map(|at| Copy { member: MemberIdx(at as u16), sector: Sector(sectors[at]) })
    }

    #[test]
    fn random_reads_go_to_the_less_busy_then_to_the_nearer_head() {
        let mut balance = Balance::new(2, false, MemberSet::EMPTY);
        balance.issued(0, 1000, 8);
        balance.issued(1, 90_000, 8);
        let both = copies([80_000, 80_000]);
        assert_eq!(balance.choose(0, &both, MemberSet::EMPTY, None), Some(1));
        balance.done(0, 0);
        assert_eq!(balance.choose(0, &both, MemberSet::EMPTY, None), Some(0));
        assert_eq!(balance.choose(0, &both, [0].into_iter().collect(), None), Some(1));
        assert_eq!(balance.choose(0, &both, [0, 1].into_iter().collect(), None), None);
    }

    #[test]
    fn a_stream_stays_unless_its_member_fails() {
        let mut balance = Balance::new(2, false, MemberSet::EMPTY);
        balance.issued(1, 10, 8);
        balance.issued(1, 20, 8);
        let both = copies([20, 20]);
        assert_eq!(balance.choose(0, &both, MemberSet::EMPTY, Some(1)), Some(1));
        assert_eq!(balance.choose(0, &both, [1].into_iter().collect(), Some(1)), Some(0));
    }

    /// `count` reads of a stream in flight at member 0, each of `sectors`.
    fn streaming(count: u64, sectors: u64) -> Balance {
        let mut balance = Balance::new(2, false, MemberSet::EMPTY);
        (1..=count).for_each(|read| balance.issued(0, read * sectors, sectors));
        balance
    }

    #[test]
    fn a_deep_stream_continues_at_an_idle_member() {
        let (both, none) = (copies([0, 0]), MemberSet::EMPTY);
        // 1 MiB is enough; one read that is longer is not a queue.
        assert_eq!(streaming(3, 512).beside(0, &both, none, 0), None);
        assert_eq!(streaming(4, 512).beside(0, &both, none, 0), Some(1));
        assert_eq!(streaming(1, 16384).beside(0, &both, none, 0), None);
        let deep = streaming(9, 2048);
        assert_eq!(deep.beside(0, &both, [1].into_iter().collect(), 0), None, "it has failed");
        let mut busy = streaming(9, 2048);
        busy.issued(1, 5, 5);
        assert_eq!(busy.beside(0, &both, none, 0), None);
        let mut far = Balance::new(2, true, none);
        (0..9).for_each(|_| far.issued(0, 64, 2048));
        assert_eq!(far.beside(0, &both, none, 0), None, "the other copy is in the inner half");
    }

    #[test]
    fn a_jump_is_made_where_it_takes_less_than_twice_what_is_left_to_read() {
        let (both, none) = (copies([0, 0]), MemberSet::EMPTY);
        let measured_at = |now: u64, jump: u64, other: u64| {
            let mut balance = streaming(12, 2048);
            // Reads of the stream took 4 ms each at member 0.
            for read in 1..=4 {
                balance.read_done(read * 4_000_000, 0, 0, true);
                balance.issued(1, 0, 2048);
                balance.read_done(read * other, 1, (read - 1) * other, true);
            }
            balance.issued(1, 0, 2048);
            balance.read_done(100_000_000, 1, 100_000_000 - jump, false);
            balance.beside(now, &both, none, 0)
        };
        let measured = |jump, other| measured_at(100_000_000, jump, other);
        // 8 are left: 64 ms. A read with a jump takes 4 ms more than the jump.
        assert_eq!(measured(68_000_000, 4_000_000), Some(1));
        assert_eq!(measured(69_000_000, 4_000_000), None);
        assert_eq!(measured(1_000_000, 5_900_000), Some(1));
        assert_eq!(measured(1_000_000, 7_000_000), None, "who reads in order would wait for it");
        let later = 100_000_000 + RETRY_READS * 69_000_000 + 1;
        assert_eq!(measured_at(later, 69_000_000, 4_000_000), Some(1), "it is tried again");
    }

    #[test]
    fn a_stream_is_on_the_copy_whose_member_has_read_up_to_it() {
        let mut balance = Balance::new(2, false, MemberSet::EMPTY);
        balance.issued(0, 1000, 8);
        balance.issued(1, 2000, 8);
        let on = |balance: &Balance, sector, stay| {
            balance.continued(&copies([sector, sector]), 128, stay)
        };
        assert_eq!((on(&balance, 2000, 0), on(&balance, 1000, 1)), (1, 0));
        assert_eq!(on(&balance, 1127, 1), 0, "a chunk was passed over");
        assert_eq!((on(&balance, 1128, 1), on(&balance, 999, 1)), (1, 1), "none is near");
        balance.issued(0, 2000, 8);
        assert_eq!((on(&balance, 2000, 0), on(&balance, 2000, 1)), (0, 1), "both are");
        let mut far = Balance::new(2, true, MemberSet::EMPTY);
        far.issued(1, 2000, 8);
        assert_eq!(on(&far, 2000, 0), 0, "the second copy is in the inner half");
    }

    #[test]
    fn far_copies_are_read_from_the_outer_half_however_busy() {
        let mut balance = Balance::new(2, true, MemberSet::EMPTY);
        (0..9).for_each(|_| balance.issued(0, 64, 8));
        let both = copies([64, 4096]);
        assert_eq!(balance.choose(0, &both, MemberSet::EMPTY, None), Some(0));
        assert_eq!(balance.choose(0, &both, [0].into_iter().collect(), None), Some(1));
    }

    #[test]
    fn far_streams_begin_in_the_first_section() {
        let balance = Balance::new(2, true, MemberSet::EMPTY);
        let both = copies([64, 4096]);
        assert_eq!(balance.choose_for_stream(0, &both, MemberSet::EMPTY), Some(0));
    }
}
