//! Selects the method for updating parity, or for recovering lost data, for one range of a chunk
//! row.
//!
//! Invariant: a plan reads only readable blocks, and it is the possible one with the fewest member
//! reads. Where parity does not match the data, nothing is recovered from it, and it is generated
//! rather than modified wherever all data of the row are available. Pure; called only from `ops`.
//!
//! Positions number the blocks of a row: data blocks 0..d by data index, then P = d, then Q = d+1.

use crate::MemberSet;

/// The execution plan of an operation, by position.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExecPlan {
    /// `None` for reads.
    pub(super) parity: Option<ParityWork>,
    pub(super) reads: MemberSet,
    /// Lost blocks to be recovered; of a scrub also those to be written.
    pub(super) recover: MemberSet,
    /// Parity to be computed and written.
    pub(super) parity_out: MemberSet,
    /// Requested positions that are unrecoverable.
    pub(super) unrecoverable: MemberSet,
    /// Of a rebuild: what cannot be computed, and is added to bad-block logs.
    pub(super) unreadable: MemberSet,
    /// Positions in the row's cache that the operation uses in place.
    pub(super) borrow: MemberSet,
    /// Positions that need newly allocated stripe memory.
    pub(super) own: MemberSet,
}

/// Input of a plan: a range in which every position is either completely covered by the request or
/// not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripeState {
    /// Data blocks in a row.
    pub(crate) data: u16,
    pub(crate) has_q: bool,
    /// Data positions to write or to read.
    pub(crate) covered: MemberSet,
    /// Positions whose member is out of service: neither readable nor writable.
    pub(crate) failed: MemberSet,
    /// Positions whose member could not read this range: still writable.
    pub(crate) read_failed: MemberSet,
    /// Positions whose contents are already in the stripe memory.
    pub(crate) cached: MemberSet,
    /// Whether more of the row is about to be written.
    pub(crate) stream: bool,
    /// Whether parity matches the data in the whole range.
    pub(crate) in_sync: bool,
    /// Whether all rows have their parity on the same members, as in RAID 4: these limit the
    /// array's throughput.
    pub(crate) fixed_parity: bool,
}

/// Method for the parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParityWork {
    /// No parity is in service: only data are written.
    None,
    /// Generated from all data blocks of the row: full stripe, or reconstruct-write with some
    /// reads.
    Generate,
    /// Updated from old data and old parity: read-modify-write.
    Update,
}

/// A plan for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WritePlan {
    pub(crate) parity: ParityWork,
    /// Positions to read from members.
    pub(crate) reads: MemberSet,
    /// Data positions to recover, from all others, before parity is generated.
    pub(crate) recover: MemberSet,
}

/// A plan for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    pub(crate) reads: MemberSet,
    pub(crate) recover: MemberSet,
}

impl StripeState {
    fn data_positions(&self) -> MemberSet {
        MemberSet::range(0, self.data)
    }

    pub(crate) fn parity_positions(&self) -> MemberSet {
        MemberSet::range(self.data, self.data + 1 + u16::from(self.has_q))
    }

    /// Positions that are neither on a member nor in memory.
    fn lost(&self) -> MemberSet {
        self.failed.union(self.read_failed).minus(self.cached)
    }

    /// The smallest set of parity blocks that recovers `lost` data blocks, or `None`.
    fn parity_for(&self, lost_data: usize) -> Option<MemberSet> {
        let usable = self.parity_positions().minus(self.lost());
        match lost_data {
            0 => Some(MemberSet::EMPTY),
            // P before Q: XOR is cheaper than a division in the field.
            1 => usable.iter().next().map(MemberSet::one),
            2 if usable.len() == 2 => Some(usable),
            _ => None,
        }
    }
}

/// Selects among full-stripe, reconstruct-write, read-modify-write and recover-then-write. `None`:
/// too many blocks are lost, or parity that does not match the data would be needed.
pub(crate) fn plan_write(s: &StripeState) -> Option<WritePlan> {
    let data = s.data_positions();
    let lost = s.lost();
    let parity = s.parity_positions().minus(s.failed);
    if parity.is_empty() {
        let stored = s.covered.intersection(s.failed).is_empty();
        let plan = WritePlan {
            parity: ParityWork::None,
            reads: MemberSet::EMPTY,
            recover: MemberSet::EMPTY,
        };
        return stored.then_some(plan);
    }
    let uncovered = data.minus(s.covered);
    let generate = uncovered.intersection(lost).is_empty().then(|| WritePlan {
        parity: ParityWork::Generate,
        reads: uncovered.minus(s.cached),
        recover: MemberSet::EMPTY,
    });
    let old = s.covered.union(parity);
    let update = old.intersection(lost).is_empty().then(|| WritePlan {
        parity: ParityWork::Update,
        reads: old.minus(s.cached),
        recover: MemberSet::EMPTY,
    });
    let best = match (generate, update) {
        // Modified parity would stay wrong, and one lost member would turn that into wrong data: as
        // in md, reconstruct-write until a resync has passed.
        (Some(g), _) if !s.in_sync => Some(g),
        // At equal reads, a stream reconstructs: the blocks that it read stay valid for the next
        // write to the row. So do arrays with fixed parity members: those would have to read first.
        // Other writes modify: the written block has just been read, and no other member is used.
        (Some(g), Some(u)) => {
            let (fewer, same) = (u.reads.len() < g.reads.len(), u.reads.len() == g.reads.len());
            let modify = fewer || same && !s.stream && !s.fixed_parity;
            Some(if modify { u } else { g })
        }
        (g, u) => g.or(u),
    };
    best.or_else(|| {
        if !s.in_sync {
            return None;
        }
        let recover = data.intersection(lost);
        let helpers = s.parity_for(recover.len())?;
        let reads = data.minus(recover).union(helpers).minus(s.cached);
        Some(WritePlan { parity: ParityWork::Generate, reads, recover })
    })
}

/// Generates all parity from all data; where it `compares`, parity is read first, if all that is in
/// service can be read from members. `None`: some data are unavailable, and parity does not match,
/// so that the right parity is unknown.
pub(crate) fn plan_resync(s: &StripeState, compares: bool) -> Option<WritePlan> {
    let data = s.data_positions();
    let complete = data.intersection(s.lost()).is_empty();
    let nothing =
        WritePlan { parity: ParityWork::None, reads: MemberSet::EMPTY, recover: MemberSet::EMPTY };
    let in_service = s.parity_positions().minus(s.failed);
    match (complete, in_service.len()) {
        (true, 0) => Some(nothing),
        (true, _) => {
            let unread = in_service.intersection(s.read_failed.union(s.cached));
            let compared = match compares && unread.is_empty() {
                true => in_service,
                false => MemberSet::EMPTY,
            };
            let reads = data.union(compared).minus(s.cached);
            Some(WritePlan { parity: ParityWork::Generate, reads, ..nothing })
        }
        (false, _) if !s.in_sync => None,
        // P defines the lost block, and Q may be generated from it: after a start by force.
        (false, 2) => {
            let recover = data.intersection(s.lost());
            let helpers = s.parity_for(recover.len())?;
            let reads = data.minus(recover).union(helpers).minus(s.cached);
            Some(WritePlan { parity: ParityWork::Generate, reads, recover })
        }
        // The only parity defines the lost block: it is right by definition.
        (false, _) => Some(nothing),
    }
}

/// A plan for a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RebuildPlan {
    pub(crate) reads: MemberSet,
    pub(crate) recover: MemberSet,
    /// Parity to be generated from the data.
    pub(crate) parity_out: MemberSet,
}

/// Computes the blocks of `targets`, whose members are being rebuilt and count as failed, and gets
/// those of `copies`, whose members are being replaced: read where they can be read. `None`: too
/// many blocks are lost, or data would be recovered from parity that does not match.
pub(crate) fn plan_rebuild(
    s: &StripeState,
    targets: MemberSet,
    copies: MemberSet,
) -> Option<RebuildPlan> {
    let unread = copies.intersection(s.lost());
    let readable = copies.minus(unread);
    let computed = targets.union(unread);
    if computed.is_empty() {
        let (recover, parity_out) = (MemberSet::EMPTY, MemberSet::EMPTY);
        return Some(RebuildPlan { reads: readable, recover, parity_out });
    }
    let data = s.data_positions();
    let recover = data.intersection(s.lost());
    if s.in_sync {
        let parity_out = computed.intersection(s.parity_positions());
        let helpers = s.parity_for(recover.len())?;
        let reads = data.minus(recover).union(helpers).minus(s.cached).union(readable);
        return Some(RebuildPlan { reads, recover, parity_out });
    }
    // All parity is made to match, so that the row is in sync.
    let parity_out = s.parity_positions().minus(s.failed.minus(targets));
    let reads = data.minus(s.cached).union(readable.minus(parity_out));
    // What is unreadable of parity that does not match is nothing's copy.
    let is_known = recover.is_empty() && unread.is_empty();
    is_known.then_some(RebuildPlan { reads, recover, parity_out })
}

/// Selects the reads that deliver all covered positions. `None`: too many blocks are lost, or
/// parity does not match the data.
pub(crate) fn plan_read(s: &StripeState) -> Option<ReadPlan> {
    // A covered position is read into the host's buffer, so a copy in memory is not used.
    let s = StripeState { cached: s.cached.minus(s.covered), ..*s };
    let lost = s.lost();
    if s.covered.intersection(lost).is_empty() {
        return Some(ReadPlan { reads: s.covered, recover: MemberSet::EMPTY });
    }
    if !s.in_sync {
        return None;
    }
    let data = s.data_positions();
    let recover = data.intersection(lost);
    let helpers = s.parity_for(recover.len())?;
    Some(ReadPlan { reads: data.minus(recover).union(helpers).minus(s.cached), recover })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(positions: &[u16]) -> MemberSet {
        positions.iter().copied().collect()
    }

    fn raid5(data: u16, covered: &[u16]) -> StripeState {
        StripeState {
            data,
            has_q: false,
            covered: set(covered),
            failed: MemberSet::EMPTY,
            read_failed: MemberSet::EMPTY,
            cached: MemberSet::EMPTY,
            stream: false,
            in_sync: true,
            fixed_parity: false,
        }
    }

    fn raid6(data: u16, covered: &[u16]) -> StripeState {
        StripeState { has_q: true, ..raid5(data, covered) }
    }

    #[test]
    fn healthy_writes_take_the_fewest_reads() {
        let full = plan_write(&raid5(5, &[0, 1, 2, 3, 4])).expect("healthy");
        assert_eq!((full.parity, full.reads), (ParityWork::Generate, MemberSet::EMPTY));
        let small = plan_write(&raid5(5, &[2])).expect("healthy");
        assert_eq!((small.parity, small.reads), (ParityWork::Update, set(&[2, 5])));
        let large = plan_write(&raid5(5, &[0, 1, 2, 3])).expect("healthy");
        assert_eq!((large.parity, large.reads), (ParityWork::Generate, set(&[4])));
        let six = plan_write(&raid6(8, &[0])).expect("healthy");
        assert_eq!((six.parity, six.reads), (ParityWork::Update, set(&[0, 8, 9])));
        // Two of four: read two others (generate) or two old and one parity (update).
        let odd = plan_write(&raid5(4, &[0, 1])).expect("healthy");
        assert_eq!((odd.parity, odd.reads), (ParityWork::Generate, set(&[2, 3])));
    }

    #[test]
    fn at_equal_reads_streams_reconstruct_and_others_modify() {
        for (situation, others, old) in [
            (raid5(3, &[1]), set(&[0, 2]), set(&[1, 3])),
            (raid6(4, &[1]), set(&[0, 2, 3]), set(&[1, 4, 5])),
        ] {
            let one = plan_write(&situation).expect("healthy");
            assert_eq!((one.parity, one.reads), (ParityWork::Update, old));
            let stream = plan_write(&StripeState { stream: true, ..situation }).expect("healthy");
            assert_eq!((stream.parity, stream.reads), (ParityWork::Generate, others));
        }
    }

    #[test]
    fn at_equal_reads_fixed_parity_is_not_read() {
        let raid4 = StripeState { fixed_parity: true, ..raid5(3, &[1]) };
        let plan = plan_write(&raid4).expect("healthy");
        assert_eq!((plan.parity, plan.reads), (ParityWork::Generate, set(&[0, 2])));
        let wide = StripeState { fixed_parity: true, ..raid5(5, &[1]) };
        assert_eq!(plan_write(&wide).expect("healthy").parity, ParityWork::Update);
    }

    #[test]
    fn parity_that_does_not_agree_is_generated_and_nothing_is_recovered_from_it() {
        for healthy in [raid5(5, &[2]), raid6(8, &[0]), raid5(3, &[0, 1])] {
            let plan = plan_write(&StripeState { in_sync: false, ..healthy }).expect("healthy");
            assert_eq!(plan.parity, ParityWork::Generate);
            let others = MemberSet::range(0, healthy.data).minus(healthy.covered);
            assert_eq!(plan.reads, others);
        }
        // The lost block is written: all data are available afterwards.
        let lost = StripeState { in_sync: false, failed: set(&[1]), ..raid5(5, &[1]) };
        assert_eq!(plan_write(&lost).expect("covered").parity, ParityWork::Generate);
        assert_eq!(plan_resync(&lost, true), None);
        assert_eq!(plan_read(&lost), None);
        let others = StripeState { covered: set(&[0, 2]), ..lost };
        assert_eq!(plan_read(&others).expect("healthy blocks").reads, set(&[0, 2]));
        // Another block is lost and not written.
        assert_eq!(plan_write(&others).expect("stored").parity, ParityWork::Update);
        let two = StripeState { in_sync: false, failed: set(&[0, 3]), ..raid6(4, &[0]) };
        assert_eq!(plan_write(&two), None);
        // Parity matches: it defines the lost block, so there is nothing to resync.
        let held = StripeState { in_sync: true, ..lost };
        assert_eq!(plan_resync(&held, true).expect("in sync").parity, ParityWork::None);
        let by_force = StripeState { failed: set(&[1]), ..raid6(4, &[]) };
        let plan = plan_resync(&by_force, true).expect("P has it");
        assert_eq!((plan.parity, plan.recover), (ParityWork::Generate, set(&[1])));
        assert_eq!(plan.reads, set(&[0, 2, 3, 4]));
        // All that is in service is compared, or nothing.
        let doubtful = StripeState { in_sync: false, ..raid6(4, &[]) };
        let reads = |s: &StripeState, compares| plan_resync(s, compares).expect("complete").reads;
        assert_eq!(reads(&doubtful, true), set(&[0, 1, 2, 3, 4, 5]));
        assert_eq!(reads(&doubtful, false), set(&[0, 1, 2, 3]));
        let without_p = StripeState { failed: set(&[4]), ..doubtful };
        assert_eq!(reads(&without_p, true), set(&[0, 1, 2, 3, 5]));
        let unreadable = StripeState { read_failed: set(&[4]), ..doubtful };
        assert_eq!(reads(&unreadable, true), set(&[0, 1, 2, 3]));
        // What is in memory says nothing of the member.
        let cached = StripeState { cached: set(&[1, 4]), ..doubtful };
        assert_eq!(reads(&cached, true), set(&[0, 2, 3]));
    }

    #[test]
    fn a_rebuild_reads_what_defines_the_targets() {
        let one = StripeState { failed: set(&[1]), ..raid5(4, &[]) };
        let plan = plan_rebuild(&one, set(&[1]), MemberSet::EMPTY).expect("one lost");
        assert_eq!((plan.reads, plan.recover), (set(&[0, 2, 3, 4]), set(&[1])));
        assert_eq!(plan.parity_out, MemberSet::EMPTY);
        let parity = StripeState { failed: set(&[4]), ..raid5(4, &[]) };
        let plan = plan_rebuild(&parity, set(&[4]), MemberSet::EMPTY).expect("parity lost");
        assert_eq!((plan.reads, plan.parity_out), (set(&[0, 1, 2, 3]), set(&[4])));
        // Two members in one pass; and Q while a data block is lost that is not rebuilt.
        let two = StripeState { failed: set(&[1, 4]), ..raid6(4, &[]) };
        let plan = plan_rebuild(&two, set(&[1, 4]), MemberSet::EMPTY).expect("two lost");
        assert_eq!((plan.reads, plan.recover), (set(&[0, 2, 3, 5]), set(&[1])));
        assert_eq!(plan.parity_out, set(&[4]));
        let other = StripeState { failed: set(&[1, 5]), ..raid6(4, &[]) };
        let plan = plan_rebuild(&other, set(&[5]), MemberSet::EMPTY).expect("two lost");
        assert_eq!((plan.recover, plan.parity_out), (set(&[1]), set(&[5])));
        // A source that cannot be read, with and without more redundancy.
        let bad = StripeState { failed: set(&[1]), read_failed: set(&[0]), ..raid6(4, &[]) };
        assert_eq!(
            plan_rebuild(&bad, set(&[1]), MemberSet::EMPTY).expect("two lost").recover,
            set(&[0, 1])
        );
        let bad = StripeState { failed: set(&[1]), read_failed: set(&[0]), ..raid5(4, &[]) };
        assert_eq!(plan_rebuild(&bad, set(&[1]), MemberSet::EMPTY), None);
        // Out of sync, data cannot be recovered, and all parity is generated.
        let stale = StripeState { in_sync: false, failed: set(&[1]), ..raid6(4, &[]) };
        assert_eq!(plan_rebuild(&stale, set(&[1]), MemberSet::EMPTY), None);
        let stale = StripeState { in_sync: false, failed: set(&[4]), ..raid6(4, &[]) };
        assert_eq!(
            plan_rebuild(&stale, set(&[4]), MemberSet::EMPTY).expect("data").parity_out,
            set(&[4, 5])
        );
    }

    #[test]
    fn cached_blocks_are_not_read() {
        let warm = StripeState { cached: set(&[5]), ..raid5(5, &[1]) };
        assert_eq!(plan_write(&warm).expect("healthy").reads, set(&[1]));
        let warm = StripeState { cached: set(&[1, 2]), ..raid5(3, &[0]) };
        assert_eq!(plan_write(&warm).expect("healthy").reads, MemberSet::EMPTY);
    }

    #[test]
    fn degraded_writes_find_the_way_that_is_left() {
        // The lost block is written: only generating works.
        let lost = StripeState { failed: set(&[1]), ..raid5(5, &[1]) };
        let plan = plan_write(&lost).expect("one lost");
        assert_eq!((plan.parity, plan.reads), (ParityWork::Generate, set(&[0, 2, 3, 4])));
        // Another block is lost: only updating works, however many are written.
        let lost = StripeState { failed: set(&[4]), ..raid5(5, &[0, 1, 2, 3]) };
        let plan = plan_write(&lost).expect("one lost");
        assert_eq!((plan.parity, plan.reads), (ParityWork::Update, set(&[0, 1, 2, 3, 5])));
        // Parity is lost: nothing to keep up to date.
        let lost = StripeState { failed: set(&[5]), ..raid5(5, &[0]) };
        assert_eq!(plan_write(&lost).expect("one lost").parity, ParityWork::None);
        // RAID 6, one lost block written and one not: recover both, then generate.
        let lost = StripeState { failed: set(&[0, 3]), ..raid6(4, &[0]) };
        let plan = plan_write(&lost).expect("two lost");
        assert_eq!(plan.recover, set(&[0, 3]));
        assert_eq!((plan.parity, plan.reads), (ParityWork::Generate, set(&[1, 2, 4, 5])));
        // Too many lost blocks.
        let lost = StripeState { failed: set(&[0, 3]), ..raid5(4, &[0]) };
        assert_eq!(plan_write(&lost), None);
    }

    #[test]
    fn degraded_reads_prefer_p() {
        let lost = StripeState { failed: set(&[1]), ..raid6(4, &[1]) };
        let plan = plan_read(&lost).expect("one lost");
        assert_eq!((plan.reads, plan.recover), (set(&[0, 2, 3, 4]), set(&[1])));
        let lost = StripeState { failed: set(&[1, 4]), ..raid6(4, &[1]) };
        assert_eq!(plan_read(&lost).expect("two lost").reads, set(&[0, 2, 3, 5]));
        let lost = StripeState { failed: set(&[1, 2]), ..raid6(4, &[1]) };
        assert_eq!(plan_read(&lost).expect("two lost").recover, set(&[1, 2]));
        let lost = StripeState { failed: set(&[1]), read_failed: set(&[2]), ..raid5(4, &[1]) };
        assert_eq!(plan_read(&lost), None);
        let healthy = raid5(4, &[1, 2]);
        assert_eq!(plan_read(&healthy).expect("healthy").reads, set(&[1, 2]));
    }

    /// All combinations of covered, failed, unreadable and cached positions of small rows: a plan
    /// reads no lost block, covers all requested ones, and exists whenever at most two (one) blocks
    /// are lost.
    #[test]
    fn every_small_situation() {
        for (data, has_q) in [(2u16, false), (3, false), (2, true), (3, true)] {
            let row = StripeState { has_q, ..raid5(data, &[]) };
            let positions = data + 1 + u16::from(has_q);
            let subsets = |of: u16| {
                (0..1u32 << of).map(move |bits| {
                    (0..of).filter(|at| bits >> at & 1 == 1).collect::<MemberSet>()
                })
            };
            for covered in subsets(data).skip(1) {
                for absent in subsets(positions) {
                    for unread in subsets(positions) {
                        let cached = [MemberSet::EMPTY, set(&[0]), set(&[data])].into_iter();
                        for (cached, stream) in cached.flat_map(|set| [(set, false), (set, true)]) {
                            let here = StripeState {
                                covered,
                                failed: absent,
                                read_failed: unread,
                                cached,
                                stream,
                                ..row
                            };
                            check(&here);
                            check_out_of_sync(&StripeState { in_sync: false, ..here });
                        }
                    }
                }
            }
        }
    }

    fn check_out_of_sync(s: &StripeState) {
        if let Some(plan) = plan_write(s) {
            assert!(plan.recover.is_empty(), "{s:?} {plan:?}");
            let known = s.data_positions().minus(s.covered).intersection(s.lost()).is_empty();
            assert!(!known || plan.parity != ParityWork::Update, "{s:?} {plan:?}");
        }
        let unreadable = s.covered.intersection(s.failed.union(s.read_failed));
        assert_eq!(plan_read(s).is_some(), unreadable.is_empty(), "{s:?}");
    }

    fn check(s: &StripeState) {
        let lost = s.lost();
        let tolerated = 1 + usize::from(s.has_q);
        let write = plan_write(s);
        assert!(write.is_some() || lost.union(s.failed).len() > tolerated, "{s:?}");
        if let Some(plan) = write {
            let uncovered = s.data_positions().minus(s.covered);
            assert!(plan.reads.intersection(lost).is_empty(), "{s:?} {plan:?}");
            let known = plan.reads.union(s.cached).union(plan.recover);
            match plan.parity {
                ParityWork::None => assert!(s.covered.intersection(s.failed).is_empty()),
                ParityWork::Generate => assert!(uncovered.minus(known).is_empty()),
                ParityWork::Update => {
                    let writable = s.parity_positions().minus(s.failed);
                    assert!(s.covered.union(writable).minus(known).is_empty());
                }
            }
        }
        let read = plan_read(s);
        assert!(
            read.is_some() || lost.union(s.failed).union(s.read_failed).len() > tolerated,
            "{s:?}"
        );
        if let Some(plan) = read {
            assert!(plan.reads.intersection(s.failed.union(s.read_failed)).is_empty());
            assert!(s.covered.minus(plan.reads).minus(plan.recover).is_empty());
        }
    }
}
