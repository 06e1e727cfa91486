//! One run of a rebuild: which ranges of its members are next.
//!
//! Invariant: as of [`crate::Resync`]. Made by the metadata manager, driven by `rebuild_loop`.

use std::ops::Range;

use md::{Geometry, Kind, MemberIdx};

use crate::Resync;

/// One run: the ranges that are out of sync, in sectors of the members' data areas.
pub struct Rebuild {
    /// The member's place; `None`: all that are being rebuilt.
    pub(crate) member: Option<MemberIdx>,
    pub(crate) ranges: Resync,
}

impl Rebuild {
    /// The runs for these members, each with the ascending ranges that are out of sync.
    pub(crate) fn runs(
        run: u32,
        geometry: &Geometry,
        members: impl Iterator<Item = (MemberIdx, Vec<Range<u64>>)>,
    ) -> Vec<Rebuild> {
        let slot = |place: MemberIdx| MemberIdx(place.0 % geometry.members() as u16);
        let end = |place| geometry.member_used_sectors(slot(place));
        if let Kind::Parity(_) = geometry.kind() {
            let mut all = members.map(|(_, ranges)| ranges);
            let Some(mut ranges) = all.next() else { return Vec::new() };
            all.for_each(|more| ranges.extend(more));
            ranges.sort_unstable_by_key(|range| range.start);
            let ranges = Resync::of_ranges(run, ranges, end(MemberIdx(0)));
            return vec![Rebuild { member: None, ranges }];
        }
        let of = |(member, ranges): (MemberIdx, Vec<Range<u64>>)| Rebuild {
            member: Some(member),
            ranges: Resync::of_ranges(run, ranges, end(member)),
        };
        members.map(of).collect()
    }
}
