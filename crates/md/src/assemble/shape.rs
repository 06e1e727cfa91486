//! From the defining superblock and the members' sizes to a geometry.
//!
//! Invariant: md's numbers are taken literally; what this project cannot map, or md could not have
//! written, is refused with the field's name.

use super::types::{Candidate, Source};
use crate::geometry::{DataStarts, Geometry, GeometrySpec, ReshapeSpec, Reshaping};
use crate::layout::Layout;
use crate::level::Level;
use crate::ondisk::{MemberMetadata, ReshapeState};
use crate::units::{MemberIdx, Sector};

/// The geometry of an array, or both of a reshape.
#[derive(Clone, Debug)]
pub enum Shape {
    /// One geometry.
    Settled(Geometry),
    /// Two, and a position between them.
    Reshaping(Reshaping),
}

impl Shape {
    /// Sectors that the array offers.
    pub fn array_sectors(&self) -> u64 {
        match self {
            Shape::Settled(geometry) => geometry.array_sectors(),
            Shape::Reshaping(reshaping) => reshaping.array_sectors(),
        }
    }

    /// Slots; in a reshape of the wider geometry.
    pub fn members(&self) -> usize {
        match self {
            Shape::Settled(geometry) => geometry.members(),
            Shape::Reshaping(reshaping) => reshaping.members(),
        }
    }

    /// Whether all data can be served when each member has the first `valid` sectors of its data
    /// area; `u64::MAX`: all.
    pub fn enough(&self, valid: impl Fn(MemberIdx) -> u64) -> bool {
        match self {
            Shape::Settled(geometry) => geometry.enough(|slot| valid(slot) == u64::MAX),
            Shape::Reshaping(reshaping) => reshaping.enough(valid),
        }
    }
}

/// The shape that `metadata` describes, over these sources by slot.
pub(super) fn shape(
    metadata: &MemberMetadata,
    all: &[Candidate],
    slots: &[Option<Source>],
) -> Result<Shape, String> {
    let level = level(metadata.level)?;
    let chunk = u64::from(metadata.chunk_sectors);
    let text = |error: crate::geometry::GeometryError| format!("The superblock says: {error}.");
    let Some(reshape) = metadata.reshape else {
        let count = metadata.raid_disks as usize;
        let layout = layout(level, metadata.layout)?;
        let member_sectors = member_sectors(level, metadata, all, &slots[..count])?;
        let spec = GeometrySpec { level, layout, chunk_sectors: chunk, member_sectors };
        return Geometry::new(&spec).map(Shape::Settled).map_err(text);
    };
    let spec = reshape_spec(metadata, &reshape, level, slots)?;
    Reshaping::new(&spec).map(Shape::Reshaping).map_err(text)
}

fn reshape_spec(
    metadata: &MemberMetadata,
    reshape: &ReshapeState,
    level: Level,
    slots: &[Option<Source>],
) -> Result<ReshapeSpec, String> {
    let new_level = self::level(reshape.new_level)?;
    if matches!(level, Level::Raid1 | Level::Linear) {
        return Err(format!(
            "According to the superblock a {level} is in a reshape, which md does not support."
        ));
    }
    let new_count = i64::from(metadata.raid_disks);
    let old_count = new_count - i64::from(reshape.delta_disks);
    if !(1..=i64::from(u16::MAX)).contains(&old_count) {
        let delta = reshape.delta_disks;
        return Err(format!("The superblock says: {new_count} slots, {delta} more than before."));
    }
    let used = metadata.used_sectors;
    let old = GeometrySpec {
        level,
        layout: layout(level, metadata.layout)?,
        chunk_sectors: metadata.chunk_sectors.into(),
        member_sectors: vec![used; old_count as usize],
    };
    let new = GeometrySpec {
        level: new_level,
        layout: layout(new_level, reshape.new_layout)?,
        chunk_sectors: reshape.new_chunk_sectors.into(),
        member_sectors: vec![used; new_count as usize],
    };
    let starts =
        |source: &Source| DataStarts { old: source.data_offset, new: source.new_data_offset };
    Ok(ReshapeSpec {
        old,
        new,
        position: Sector(reshape.position),
        backwards: reshape.backwards,
        data_starts: slots.iter().map(|slot| slot.as_ref().map(starts)).collect(),
    })
}

pub(super) fn level(number: i32) -> Result<Level, String> {
    Level::from_number(number).ok_or_else(|| match number {
        -4 => "The level is multipath (-4), which Linux has dropped.".to_string(),
        -5 => "The level is faulty (-5), which holds no data of its own.".to_string(),
        _ => format!("The superblock says level {number}, which md does not have."),
    })
}

fn layout(level: Level, number: u32) -> Result<Layout, String> {
    let text = |error: crate::layout::LayoutError| format!("The superblock says: {error}.");
    Layout::from_number(level, number as i32).map_err(text)
}

/// Linear and RAID 0 use each member's own size; of a missing one it is only known if all others
/// have the same.
fn member_sectors(
    level: Level,
    metadata: &MemberMetadata,
    all: &[Candidate],
    slots: &[Option<Source>],
) -> Result<Vec<u64>, String> {
    if !matches!(level, Level::Linear | Level::Raid0) {
        return Ok(vec![metadata.used_sectors; slots.len()]);
    }
    let size = |source: &Source| all[source.candidate].metadata.data_sectors;
    let mut known = slots.iter().flatten().map(size);
    let first = known.next();
    let guess = first.filter(|&first| known.all(|size| size == first));
    let of = |slot: &Option<Source>| slot.as_ref().map(size).or(guess);
    slots.iter().map(of).collect::<Option<Vec<u64>>>().ok_or_else(|| {
        format!(
            "A member of this {level} is missing, and as the others have different sizes, the \
             location of its data is unknown: find it, or give the geometry explicitly."
        )
    })
}
