//! Chooses the copy that a mirrored read is served from.
//!
//! Invariant: a heuristic; any in-sync copy would be correct. Called only from `non_parity`, which
//! passes the number of requests in flight per member.

use md::geometry::Copy;

use crate::MemberSet;

#[derive(Clone, Copy, Default)]
struct Load {
    in_flight: u32,
    /// End sector of the member's last I/O.
    head: u64,
}

pub(crate) struct Balance {
    loads: Vec<Load>,
    /// Far layouts: the first copy lies in the first section of each member, where a stream reads
    /// like RAID 0 and an arm moves least.
    prefer_first: bool,
}

impl Balance {
    pub(crate) fn new(members: usize, prefer_first: bool) -> Balance {
        Balance { loads: vec![Load::default(); members], prefer_first }
    }

    pub(crate) fn issued(&mut self, member: u16, end: u64) {
        let load = &mut self.loads[usize::from(member)];
        load.in_flight += 1;
        load.head = end;
    }

    pub(crate) fn done(&mut self, member: u16) {
        let load = &mut self.loads[usize::from(member)];
        debug_assert!(load.in_flight > 0, "member {member} finishes more than it was given");
        load.in_flight = load.in_flight.saturating_sub(1);
    }

    /// The index of the best of `copies`, or `None` when all of their members have failed.
    ///
    /// A stream stays on the copy it began with: a head that passes over blocks it does not need
    /// takes as long as one that reads them, so that spreading a stream over two mirrors gains
    /// nothing. Otherwise the least busy member wins, and among equals the one whose head is
    /// nearest.
    pub(crate) fn choose(
        &self,
        copies: &[Copy],
        failed: MemberSet,
        stay: Option<u8>,
    ) -> Option<usize> {
        let alive = |at: &usize| !failed.contains(copies[*at].member.0);
        let stay = stay.map(usize::from).filter(|at| *at < copies.len());
        if let Some(stay) = stay.filter(alive) {
            return Some(stay);
        }
        (0..copies.len()).filter(alive).min_by_key(|at| {
            let copy = copies[*at];
            let load = self.loads[usize::from(copy.member.0)];
            // Far copies: each chunk's first copy lies in the outer half of another member, so that
            // heads stay there and members share the load by chunks; md chooses so, too.
            match self.prefer_first {
                true => (0, copy.sector.0),
                false => (load.in_flight, load.head.abs_diff(copy.sector.0)),
            }
        })
    }

    /// The copy that a new stream begins on.
    pub(crate) fn choose_for_stream(&self, copies: &[Copy], failed: MemberSet) -> Option<usize> {
        let stay = self.prefer_first.then_some(0);
        self.choose(copies, failed, stay)
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
        let mut balance = Balance::new(2, false);
        balance.issued(0, 1000);
        balance.issued(1, 90_000);
        let both = copies([80_000, 80_000]);
        assert_eq!(balance.choose(&both, MemberSet::EMPTY, None), Some(1));
        balance.done(0);
        assert_eq!(balance.choose(&both, MemberSet::EMPTY, None), Some(0));
        assert_eq!(balance.choose(&both, [0].into_iter().collect(), None), Some(1));
        assert_eq!(balance.choose(&both, [0, 1].into_iter().collect(), None), None);
    }

    #[test]
    fn a_stream_stays_unless_its_member_fails() {
        let mut balance = Balance::new(2, false);
        balance.issued(1, 10);
        balance.issued(1, 20);
        let both = copies([20, 20]);
        assert_eq!(balance.choose(&both, MemberSet::EMPTY, Some(1)), Some(1));
        assert_eq!(balance.choose(&both, [1].into_iter().collect(), Some(1)), Some(0));
    }

    #[test]
    fn far_copies_are_read_from_the_outer_half_however_busy() {
        let mut balance = Balance::new(2, true);
        (0..9).for_each(|_| balance.issued(0, 64));
        let both = copies([64, 4096]);
        assert_eq!(balance.choose(&both, MemberSet::EMPTY, None), Some(0));
        assert_eq!(balance.choose(&both, [0].into_iter().collect(), None), Some(1));
    }

    #[test]
    fn far_streams_begin_in_the_first_section() {
        let balance = Balance::new(2, true);
        let both = copies([64, 4096]);
        assert_eq!(balance.choose_for_stream(&both, MemberSet::EMPTY), Some(0));
    }
}
