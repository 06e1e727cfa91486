//! From the defining superblock and the members' sizes to a geometry.
//!
//! Invariant: md's numbers are taken literally; what this project cannot map, or md could not have
//! written, is refused with the field's name.

use super::candidate::{Candidate, Source};
use crate::geometry::{DataStarts, Geometry, GeometryError, GeometrySpec, ReshapeSpec, Reshaping};
use crate::layout::{Layout, LayoutError};
use crate::level::Level;
use crate::ondisk::{MemberMetadata, ReshapeState};
use crate::units::{MemberIdx, Sector};
use std::fmt;

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

/// Why an array has no geometry. As text: sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// No member with a slot is among the candidates.
    NoSlots,
    /// Members contradict each other, and none is preferred: a sentence for each contradiction.
    Tied(Vec<String>),
    /// The superblock gives a number of slots that no array has.
    SlotCount(usize),
    /// md has no such level, or Linux has dropped it.
    Level(i32),
    /// The level has no such layout.
    Layout(LayoutError),
    /// The numbers make no geometry.
    Geometry(GeometryError),
    /// A reshape of a level that md does not reshape.
    Reshape(Level),
    /// A reshape from a number of slots that no array has.
    ReshapeSlots {
        /// Slots of the new geometry.
        slots: i64,
        /// How many more they are than before.
        added: i32,
    },
    /// A member is missing whose size is not that of all others.
    MissingSize(Level),
    /// Metadata of another format than md's give no geometry: sentences.
    Foreign(String),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::NoSlots => f.write_str(
                "No member with a slot is among the candidates: only spares, failed or unusable \
                 ones. Find the members that held the data.",
            ),
            ShapeError::Tied(ties) => f.write_str(&ties.join(" ")),
            ShapeError::SlotCount(slots) => {
                write!(f, "The superblock says that the array has {slots} slots.")
            }
            ShapeError::Level(-4) => {
                f.write_str("The level is multipath (-4), which Linux has dropped.")
            }
            ShapeError::Level(-5) => {
                f.write_str("The level is faulty (-5), which holds no data of its own.")
            }
            ShapeError::Level(number) => {
                write!(f, "The superblock says level {number}, which md does not have.")
            }
            ShapeError::Layout(error) => write!(f, "The superblock says: {error}."),
            ShapeError::Geometry(error) => write!(f, "The superblock says: {error}."),
            ShapeError::Reshape(level) => write!(
                f,
                "According to the superblock a {level} is in a reshape, which md does not support."
            ),
            ShapeError::ReshapeSlots { slots, added } => {
                write!(f, "The superblock says: {slots} slots, {added} more than before.")
            }
            ShapeError::Foreign(why) => f.write_str(why),
            ShapeError::MissingSize(level) => write!(
                f,
                "A member of this {level} is missing, and as the others have different sizes, the \
                 location of its data is unknown: find it, or give the geometry explicitly."
            ),
        }
    }
}

impl std::error::Error for ShapeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ShapeError::Layout(error) => Some(error),
            ShapeError::Geometry(error) => Some(error),
            _ => None,
        }
    }
}

/// The shape that `metadata` describes, over these sources by slot.
pub(super) fn shape(
    metadata: &MemberMetadata,
    all: &[Candidate],
    slots: &[Option<Source>],
) -> Result<Shape, ShapeError> {
    if let Some(why) = metadata.foreign.as_ref().and_then(|it| it.refused.clone()) {
        return Err(ShapeError::Foreign(why));
    }
    let level = level(metadata.level)?;
    let chunk = u64::from(metadata.chunk_sectors);
    let Some(reshape) = metadata.reshape else {
        let count = metadata.raid_disks as usize;
        let layout = layout(level, metadata.layout)?;
        let member_sectors = member_sectors(level, metadata, all, &slots[..count])?;
        let spec = GeometrySpec { level, layout, chunk_sectors: chunk, member_sectors };
        return Geometry::new(&spec).map(Shape::Settled).map_err(ShapeError::Geometry);
    };
    let spec = reshape_spec(metadata, &reshape, level, slots)?;
    Reshaping::new(&spec).map(Shape::Reshaping).map_err(ShapeError::Geometry)
}

fn reshape_spec(
    metadata: &MemberMetadata,
    reshape: &ReshapeState,
    level: Level,
    slots: &[Option<Source>],
) -> Result<ReshapeSpec, ShapeError> {
    let new_level = self::level(reshape.new_level)?;
    if matches!(level, Level::Raid1 | Level::Linear) {
        return Err(ShapeError::Reshape(level));
    }
    let new_count = i64::from(metadata.raid_disks);
    let old_count = new_count - i64::from(reshape.delta_disks);
    if !(1..=i64::from(u16::MAX)).contains(&old_count) {
        return Err(ShapeError::ReshapeSlots { slots: new_count, added: reshape.delta_disks });
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

fn level(number: i32) -> Result<Level, ShapeError> {
    Level::from_number(number).ok_or(ShapeError::Level(number))
}

fn layout(level: Level, number: u32) -> Result<Layout, ShapeError> {
    Layout::from_number(level, number as i32).map_err(ShapeError::Layout)
}

/// Linear and RAID 0 use each member's own size; of a missing one it is only known if all others
/// have the same.
fn member_sectors(
    level: Level,
    metadata: &MemberMetadata,
    all: &[Candidate],
    slots: &[Option<Source>],
) -> Result<Vec<u64>, ShapeError> {
    if !matches!(level, Level::Linear | Level::Raid0) {
        return Ok(vec![metadata.used_sectors; slots.len()]);
    }
    let size = |source: &Source| all[source.candidate].metadata.data_sectors;
    let mut known = slots.iter().flatten().map(size);
    let first = known.next();
    let guess = first.filter(|&first| known.all(|size| size == first));
    let of = |slot: &Option<Source>| slot.as_ref().map(size).or(guess);
    slots.iter().map(of).collect::<Option<Vec<u64>>>().ok_or(ShapeError::MissingSize(level))
}
