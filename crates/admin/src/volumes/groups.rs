//! Volume groups: the physical volumes of all arrays, the newest metadata, the logical volumes.
//!
//! Invariant: a logical volume is read only from physical volumes that carry the UUIDs of its
//! group's metadata, once each; what is missing or contradicts is said of the volumes that need it.

use std::sync::Arc;

use content::lvm::{LogicalVolume, VolumeGroup};
use thiserror::Error;

use super::finder::{Finder, Physical, Place};
use super::names::{Draft, Root, of_volumes};
use super::view::Layer;
use super::volume::{Access, Kind, Volume};

/// A volume group, and which of its physical volumes are there.
pub(super) struct Group {
    pub(super) newest: VolumeGroup,
    /// By index of physical volume.
    on: Vec<Result<Found, Missing>>,
    /// About all of its volumes.
    doubts: Vec<String>,
}

/// Why a physical volume is not there, or a logical volume not read: a clause.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
struct Missing(String);

/// A physical volume of a group that is there.
struct Found {
    layer: Arc<Layer>,
    under: usize,
    /// Why what lies on it may be old.
    doubt: Option<String>,
}

/// The groups of physical volumes. `notes`: physical volumes without a group, copies of metadata
/// that are not used.
pub(super) fn groups(physical: Vec<Physical>, notes: &mut Vec<String>) -> Vec<Group> {
    let mut uuids: Vec<&str> = Vec::new();
    for copy in physical.iter().flat_map(|it| &it.copies) {
        if !uuids.contains(&copy.uuid.as_str()) {
            uuids.push(&copy.uuid);
        }
    }
    for it in &physical {
        let uuid = &it.uuid;
        notes.extend(it.problems.iter().map(|why| format!("physical volume {uuid}: {why}")));
    }
    let groups: Vec<Group> = uuids.iter().map(|uuid| group(uuid, &physical)).collect();
    let is_in_one = |it: &Physical| {
        let mut named = groups.iter().flat_map(|group| &group.newest.physical);
        named.any(|named| named.uuid == it.uuid)
    };
    let alone = physical.iter().filter(|it| !is_in_one(it)).map(|it| &it.uuid);
    notes.extend(alone.map(|uuid| format!("physical volume {uuid}: it is in no volume group")));
    for group in &groups {
        let name = &group.newest.name;
        let why = group.on.iter().filter_map(|found| found.as_ref().err());
        notes.extend(why.map(|why| format!("volume group {name}: {why}")));
    }
    groups
}

fn group(uuid: &str, physical: &[Physical]) -> Group {
    let copies = physical.iter().flat_map(|it| &it.copies).filter(|copy| copy.uuid == uuid);
    let newest = copies.clone().map(|copy| copy.seqno).max().unwrap_or(0);
    let newest: Vec<&VolumeGroup> = copies.filter(|copy| copy.seqno == newest).collect();
    let count = |copy: &&VolumeGroup| newest.iter().filter(|other| **other == *copy).count();
    // Of several with the most copies, the first.
    let best = newest.iter().rev().max_by_key(|copy| count(copy)).expect("the group has a copy");
    let mut doubts = Vec::new();
    if newest.iter().any(|copy| copy != best) {
        let (name, seqno) = (&best.name, best.seqno);
        doubts.push(format!(
            "copies of the metadata of the volume group {name} differ, and have one sequence \
             number ({seqno}); what most of them say is used"
        ));
    }
    let on = best.physical.iter().map(|wanted| found(wanted, best, physical)).collect();
    Group { newest: (*best).clone(), on, doubts }
}

/// The physical volume that the metadata name.
fn found(
    wanted: &content::lvm::PhysicalVolume,
    group: &VolumeGroup,
    physical: &[Physical],
) -> Result<Found, Missing> {
    let (key, uuid) = (&wanted.key, &wanted.uuid);
    let with: Vec<&Physical> = physical.iter().filter(|it| it.uuid == *uuid).collect();
    let it = match with.as_slice() {
        [only] => *only,
        [] => {
            let hint = wanted.device.as_ref().map(|device| format!(", last seen as {device},"));
            let hint = hint.unwrap_or_default();
            return Err(Missing(format!("the physical volume {key} ({uuid}){hint} is missing")));
        }
        several => {
            let count = several.len();
            return Err(Missing(format!(
                "{count} arrays hold the physical volume {key} ({uuid}); --array names one"
            )));
        }
    };
    let own = it.copies.iter().max_by_key(|copy| copy.seqno);
    if let Some(other) = own.filter(|own| own.uuid != group.uuid) {
        let other = &other.name;
        let what = "the physical volume";
        return Err(Missing(format!("{what} {key} ({uuid}) is in the group {other} now")));
    }
    let name = &group.name;
    let is_old = own.filter(|own| own.seqno < group.seqno);
    let doubt = if wanted.was_missing {
        let what = "was changed while the physical volume";
        Some(format!("the volume group {name} {what} {key} was missing: its data may be old"))
    } else {
        is_old.map(|own| {
            let (old, new) = (own.seqno, group.seqno);
            format!(
                "the metadata on the physical volume {key} are older than those of the volume \
                 group {name} ({old}, {new}): its data may be old, too"
            )
        })
    };
    Ok(Found { layer: it.layer.clone(), under: it.under, doubt })
}

impl Group {
    /// Adds the logical volumes; `index` is the group's.
    pub(super) fn add_volumes(&self, index: usize, finder: &mut Finder) {
        let logical = &self.newest.logical;
        let names = of_volumes(logical.iter().map(|it| (it.name.as_str(), it.uuid.as_str())));
        // Those for users first.
        let mut order: Vec<usize> = (0..logical.len()).collect();
        order.sort_by_key(|&at| !logical[at].is_visible);
        for at in order {
            let place =
                |under| Place { root: Root::Group(index), rest: format!("/{}", names[at]), under };
            let it = &logical[at];
            match self.layer(it) {
                Ok(layer) => {
                    let access = self.access(it, &layer);
                    let under = layer.arrays().first().copied().unwrap_or(self.under());
                    let mut volume = finder.volume(&layer, Kind::Logical, access);
                    volume.doubts.extend(self.doubts_of(it));
                    volume.part_of.clone_from(&it.part_of);
                    finder.add_with_table(layer, place(under), volume);
                }
                Err(why) => {
                    let Place { root, rest, under } = place(self.under());
                    let volume = unread(it, why.0);
                    finder.drafts.push(Draft { root, rest, under, volume });
                }
            }
        }
    }

    /// The array with which volumes are listed that begin on none.
    fn under(&self) -> usize {
        self.on.iter().flatten().map(|found| found.under).next().unwrap_or(0)
    }

    /// Where a volume lies, or why it is not read.
    fn layer(&self, volume: &LogicalVolume) -> Result<Layer, Missing> {
        let mapping = volume.mapping.as_ref().map_err(|why| Missing(why.to_string()))?.clone();
        let on = self.on.iter().map(|found| Some(found.as_ref().ok()?.layer.clone())).collect();
        let layer = Layer::Logical { mapping, on };
        match layer.arrays().is_empty() {
            true => Err(Missing(self.missing(volume).join("; "))),
            false => Ok(layer),
        }
    }

    fn access(&self, volume: &LogicalVolume, layer: &Layer) -> Access {
        let missing = self.missing(volume);
        if !missing.is_empty() {
            return Access::InPart(missing.join("; "));
        }
        let Layer::Logical { mapping, on } = layer else { return Access::Readable };
        let short = mapping.areas().find(|(physical, range)| {
            on[*physical].as_ref().is_none_or(|below| below.sectors() < range.end)
        });
        short.map_or(Access::Readable, |(physical, _)| {
            let key = &self.newest.physical[physical].key;
            Access::InPart(format!("the physical volume {key} ends before its extents do"))
        })
    }

    /// The indexes of the physical volumes that a logical volume needs, once each.
    fn needed(&self, volume: &LogicalVolume) -> Vec<usize> {
        let mut needed: Vec<usize> =
            volume.mapping.iter().flat_map(|it| it.areas()).map(|(physical, _)| physical).collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    fn missing(&self, volume: &LogicalVolume) -> Vec<String> {
        let needed = self.needed(volume).into_iter();
        needed.filter_map(|physical| Some(self.on[physical].as_ref().err()?.0.clone())).collect()
    }

    fn doubts_of(&self, volume: &LogicalVolume) -> Vec<String> {
        let needed = self.needed(volume).into_iter();
        let old = needed.filter_map(|physical| self.on[physical].as_ref().ok()?.doubt.clone());
        self.doubts.iter().cloned().chain(old).collect()
    }
}

fn unread(volume: &LogicalVolume, why: String) -> Volume {
    Volume {
        name: String::new(),
        kind: Kind::Logical,
        offset: None,
        sectors: volume.sectors,
        content: None,
        access: Access::No(why),
        note: None,
        doubts: Vec::new(),
        part_of: volume.part_of.clone(),
        on: Vec::new(),
        layer: None,
    }
}
