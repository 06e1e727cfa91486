//! Whether a member's data area lies on its device as those of the others do.
//!
//! Invariant: only of members that cannot be replaced by redundancy: of all others the data
//! themselves show it. Nothing is decided here; what is odd is a contradiction to be looked at.

use super::candidate::{Candidate, Slots};
use super::shape::Shape;

use crate::ondisk::Version;

/// Where a data area starts and ends, in sectors of the device, and how much room is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    candidate: usize,
    start: u64,
    end: u64,
    left: u64,
}

impl Area {
    fn of(all: &[Candidate], candidate: usize) -> Option<Area> {
        let Candidate { metadata, device_sectors, .. } = &all[candidate];
        let limit = match metadata.version {
            Version::V0_90 => return None,
            Version::V1_0 => metadata.super_sector,
            _ => *device_sectors,
        };
        let start = metadata.data_offset;
        let end = start.saturating_add(metadata.data_sectors);
        Some(Area { candidate, start, end, left: limit.saturating_sub(end) })
    }

    fn len(self) -> u64 {
        self.end - self.start
    }
}

/// A sentence about each member without redundancy whose data area starts elsewhere or is of
/// another length than the others', and does not end at the same distance from the device's end:
/// one field of its superblock may be wrong. (A larger device has a longer area, which ends there.)
pub(super) fn odd(all: &[Candidate], shape: &Shape, slots: &Slots) -> Vec<String> {
    let Shape::Settled(_) = shape else { return Vec::new() };
    let areas = slots.iter().flatten().map(|source| Area::of(all, source.candidate));
    let Some(areas) = areas.collect::<Option<Vec<Area>>>() else { return Vec::new() };
    let alike = |areas: &[Area], by: &dyn Fn(&Area) -> (u64, u64)| {
        areas.windows(2).all(|two| by(&two[0]) == by(&two[1]))
    };
    if alike(&areas, &|area| (area.start, area.len())) || alike(&areas, &|area| (area.left, 0)) {
        return Vec::new();
    }
    let irreplaceable = |area: &&Area| {
        !shape.enough(|slot| match &slots[slot.index()] {
            Some(source) if source.candidate != area.candidate => source.valid_sectors,
            _ => 0,
        })
    };
    let with = |left: u64| areas.iter().filter(|area| area.left == left).count();
    let most = areas.iter().map(|area| with(area.left)).max().unwrap_or(0);
    let common = areas.iter().find(|area| with(area.left) == most && most > areas.len() / 2);
    let is_odd = |area: &&Area| common.is_none_or(|common| area.left != common.left);
    let sentence = |area: &Area| {
        let Area { candidate, start, end, left } = area;
        let label = &all[*candidate].label;
        let theirs = common.map_or("other distances".into(), |it| it.left.to_string());
        format!(
            "{label}: its data area, sectors {start} to {end}, ends {left} sectors before the end \
             of the room for it, those of the others {theirs}, and no redundancy is left that \
             would show whether that is right."
        )
    };
    areas.iter().filter(is_odd).filter(irreplaceable).map(sentence).collect()
}
