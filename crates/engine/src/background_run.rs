//! One run of a resync, a rebuild or a scrub: which ranges are next, and of which member.
//!
//! Invariant: as of [`crate::Walk`]. Made by the metadata manager, or where there is none by the
//! failure coordinator; driven by `background_loop`.

use std::ops::Range;

use md::{Geometry, Kind, MemberIdx};

use crate::Walk;

/// One run: the ranges that are out of sync, or to be compared. Of a rebuild, in sectors of the
/// members' data areas.
pub struct BackgroundRun {
    /// The place of the member that is rebuilt; `None`: all that are, or other work.
    pub(crate) member: Option<MemberIdx>,
    pub(crate) ranges: Walk,
}

impl BackgroundRun {
    /// A resync, if there is one.
    pub fn of_resync(resync: Option<Walk>) -> Vec<BackgroundRun> {
        resync.into_iter().map(|ranges| BackgroundRun { member: None, ranges }).collect()
    }

    /// The rebuilds of these members, each with the ascending ranges that are out of sync.
    pub(crate) fn of_rebuild(
        run: u32,
        geometry: &Geometry,
        members: impl Iterator<Item = (MemberIdx, Vec<Range<u64>>)>,
    ) -> Vec<BackgroundRun> {
        let slot = |place: MemberIdx| MemberIdx(place.0 % geometry.members() as u16);
        let end = |place| geometry.member_used_sectors(slot(place));
        if let Kind::Parity(_) = geometry.kind() {
            let mut all = members.map(|(_, ranges)| ranges);
            let Some(mut ranges) = all.next() else { return Vec::new() };
            all.for_each(|more| ranges.extend(more));
            ranges.sort_unstable_by_key(|range| range.start);
            let ranges = Walk::of_ranges(run, ranges, end(MemberIdx(0)));
            return vec![BackgroundRun { member: None, ranges }];
        }
        let of = |(member, ranges): (MemberIdx, Vec<Range<u64>>)| BackgroundRun {
            member: Some(member),
            ranges: Walk::of_ranges(run, ranges, end(member)),
        };
        members.map(of).collect()
    }
}
