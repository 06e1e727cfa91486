//! What a member lacks that had its slot before: the sectors under the bitmap's set bits.
//!
//! Invariant: every sector of the member whose contents a write under a set bit may have changed is
//! in a range. Called only from `manager`.

use std::ops::Range;

use md::{Geometry, Kind, MemberIdx, Sector};

use crate::IntentMap;

/// The sectors `within` a member's data area that are under set bits: ascending ranges, as few as
/// possible.
pub(super) fn under(
    geometry: &Geometry,
    map: &IntentMap,
    member: MemberIdx,
    within: Range<u64>,
    is_set: impl Fn(u32) -> bool,
) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut add = |range: Range<u64>| {
        let range = range.start.max(within.start)..range.end.min(within.end);
        match ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end >= range.start => last.end = range.end.max(last.end),
            _ => ranges.push(range),
        }
    };
    let Kind::Mirrored(mirrored) = geometry.kind() else {
        let set = (0..map.bits()).filter(|bit| is_set(*bit));
        set.for_each(|bit| add(map.positions(bit)));
        return ranges;
    };
    // Positions are sectors of the array: the member is walked by runs that follow each other in
    // both.
    let mut at = within.start;
    while at < within.end {
        let run = mirrored.member_run(Sector(at)).min(within.end - at).max(1);
        if let Some(Sector(array)) = mirrored.array_sector_of(member, Sector(at)) {
            let end = (array + run).min(map.span());
            let mut position = array;
            while position < end {
                let bit = map.bit_at(position);
                let next = map.positions(bit).end.min(end);
                if is_set(bit) {
                    add(at + (position - array)..at + (next - array));
                }
                position = next;
            }
        }
        at += run;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use md::{GeometrySpec, Layout, Level, Raid5Layout, Raid10Layout};

    use super::*;

    fn geometry(level: Level, layout: Layout, chunk_sectors: u64, members: usize) -> Geometry {
        let member_sectors = vec![4096 + 40; members];
        Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors })
            .expect("sound")
    }

    /// Whatever a write may have changed on a member is in the ranges, and nothing that no set bit
    /// covers.
    fn check(geometry: &Geometry, bit_sectors: u64) {
        let map = IntentMap::bitmap(geometry, bit_sectors).expect("a bitmap");
        for seed in 1..20u32 {
            let is_set = |bit: u32| bit.wrapping_mul(2_654_435_761).wrapping_add(seed) % 7 == 0;
            for member in (0..geometry.members() as u16).map(MemberIdx) {
                let used = geometry.member_used_sectors(member);
                let ranges = under(geometry, &map, member, 0..used, is_set);
                assert!(ranges.is_sorted_by(|a, b| a.end < b.start), "{ranges:?}");
                for sector in 0..used {
                    let position = match geometry.kind() {
                        Kind::Mirrored(mirrored) => {
                            mirrored.array_sector_of(member, Sector(sector)).map(|at| at.0)
                        }
                        _ => Some(sector),
                    };
                    let should = position.is_some_and(|position| is_set(map.bit_at(position)));
                    let is = ranges.iter().any(|range| range.contains(&sector));
                    assert_eq!(is, should, "{member} {sector}");
                }
            }
        }
    }

    #[test]
    fn ranges_are_what_writes_under_set_bits_may_have_changed() {
        let raid10 = |layout, members| geometry(Level::Raid10, Layout::Raid10(layout), 64, members);
        check(&geometry(Level::Raid1, Layout::None, 0, 2), 128);
        check(&geometry(Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 64, 3), 128);
        for bit_sectors in [8, 128, 1024] {
            check(&raid10(Raid10Layout::near(2), 3), bit_sectors);
            check(&raid10(Raid10Layout::far(2), 4), bit_sectors);
            check(&raid10(Raid10Layout::offset(2), 4), bit_sectors);
        }
    }

    #[test]
    fn nothing_below_the_recorded_position_is_lacking() {
        let raid1 = geometry(Level::Raid1, Layout::None, 0, 2);
        let map = IntentMap::bitmap(&raid1, 128).expect("a bitmap");
        let ranges = under(&raid1, &map, MemberIdx(1), 200..1000, |bit| bit < 4 || bit == 6);
        assert_eq!(ranges, [200..512, 768..896]);
    }
}
