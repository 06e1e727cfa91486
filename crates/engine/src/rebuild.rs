//! One run of a rebuild: which ranges of its members are next.
//!
//! Invariant: as of [`crate::Resync`]. Made by the metadata manager, driven by `rebuild_loop`.

use md::{Geometry, Kind, MemberIdx};

use crate::Resync;

/// One run: the ranges that are out of sync, in sectors of the members' data areas.
pub struct Rebuild {
    /// The member; `None`: all that are being rebuilt.
    pub(crate) member: Option<MemberIdx>,
    pub(crate) ranges: Resync,
}

impl Rebuild {
    /// The runs for these members, each in sync below the sector beside it.
    pub(crate) fn runs(
        run: u32,
        geometry: &Geometry,
        members: impl Iterator<Item = (MemberIdx, u64)>,
    ) -> Vec<Rebuild> {
        let of = |member: Option<MemberIdx>, from: u64, end: u64| {
            let ranges = Resync::of_ranges(run, std::iter::once(from.min(end)..end), end);
            Rebuild { member, ranges }
        };
        let end = |member| geometry.member_used_sectors(member);
        if let Kind::Parity(_) = geometry.kind() {
            let from = members.map(|(_, from)| from).min();
            return from.map(|from| of(None, from, end(MemberIdx(0)))).into_iter().collect();
        }
        members.map(|(member, from)| of(Some(member), from, end(member))).collect()
    }
}
