//! An array without superblocks: the caller describes its geometry.
//!
//! Invariant: always read-only. The description cannot be verified; check the contents of such an
//! array first.

use super::candidate::Source;
use super::shape::Shape;
use super::types::{Plan, Repairs, Verdict};
use crate::geometry::{Geometry, GeometryError, GeometrySpec};
use crate::layout::Layout;
use crate::level::Level;
use crate::units::MemberIdx;
use std::fmt;

/// What every description leaves open.
pub const AS_GIVEN: &str =
    "The geometry is as given and cannot be verified: check whether the contents make sense.";

/// A member as described by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplicitMember {
    /// The caller's name for it, used in messages.
    pub label: String,
    /// Size of the device in sectors.
    pub device_sectors: u64,
    /// Data offset in sectors; `None`: [`ExplicitSpec::data_offset`].
    pub data_offset: Option<u64>,
    /// Sectors of its data; `None`: as [`ExplicitSpec::used_sectors`] says, else to its end.
    pub data_sectors: Option<u64>,
}

/// The array as described by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplicitSpec {
    /// The level.
    pub level: Level,
    /// The layout; `None`: md's default.
    pub layout: Option<Layout>,
    /// Chunk; 0 where the level has none.
    pub chunk_sectors: u64,
    /// Slots; must be the length of `members`. Given twice because a forgotten `missing` shifts
    /// every member behind it.
    pub raid_disks: usize,
    /// Data offset in sectors, of members without their own.
    pub data_offset: u64,
    /// Sectors used on each member; `None`: those of the smallest member.
    pub used_sectors: Option<u64>,
    /// By slot; `None`: missing.
    pub members: Vec<Option<ExplicitMember>>,
}

/// An array that was described.
#[derive(Clone, Debug)]
pub struct Explicit {
    /// Geometry of the array.
    pub shape: Shape,
    /// How to read it; `candidate` in its sources is the slot.
    pub read_only: Plan,
}

/// An error in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplicitError {
    /// As many members (with missing ones) as slots must be named.
    Count {
        /// Number of slots.
        raid_disks: usize,
        /// Number of named members.
        named: usize,
    },
    /// All members are missing.
    NoMember,
    /// The data would begin behind the device's end.
    Offset {
        /// The member.
        label: String,
        /// The data offset in sectors.
        data_offset: u64,
        /// Size of the device in sectors.
        device_sectors: u64,
    },
    /// The data would end behind the device's end.
    Size {
        /// The member.
        label: String,
        /// Sectors from its data's start on.
        has: u64,
        /// Sectors that it would need.
        needs: u64,
    },
    /// The size of a missing member of linear or RAID 0 is unknown.
    UnknownSize {
        /// The slot.
        slot: MemberIdx,
    },
    /// No such array.
    Geometry(GeometryError),
}

impl fmt::Display for ExplicitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExplicitError::Count { raid_disks, named } => write!(
                f,
                "members: {raid_disks} slots, but {named} members are named; name every slot, \
                 'missing' where there is none"
            ),
            ExplicitError::NoMember => write!(f, "members: all of them are missing"),
            ExplicitError::Offset { label, data_offset, device_sectors } => {
                write!(f, "{label}: data offset {data_offset}, but it has {device_sectors} sectors")
            }
            ExplicitError::Size { label, has, needs } => {
                write!(f, "{label}: has {has} sectors from its data offset on, and needs {needs}")
            }
            ExplicitError::UnknownSize { slot } => write!(
                f,
                "slot {slot}: missing, and members have different sizes; give the used size"
            ),
            ExplicitError::Geometry(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExplicitError {}

/// Makes an array of a description.
///
/// # Errors
/// An invalid description. Too many missing members are no error but a verdict of the plan.
pub fn explicit(spec: &ExplicitSpec) -> Result<Explicit, ExplicitError> {
    if spec.members.len() != spec.raid_disks {
        let (raid_disks, named) = (spec.raid_disks, spec.members.len());
        return Err(ExplicitError::Count { raid_disks, named });
    }
    let sizes: Vec<Option<u64>> = spec
        .members
        .iter()
        .map(|member| member.as_ref().map(|member| data_sectors(spec, member)).transpose())
        .collect::<Result<_, _>>()?;
    let smallest = sizes.iter().flatten().min().copied().ok_or(ExplicitError::NoMember)?;
    let geometry = Geometry::new(&GeometrySpec {
        level: spec.level,
        layout: spec.layout.unwrap_or(Layout::default_for(spec.level)),
        chunk_sectors: spec.chunk_sectors,
        member_sectors: member_sectors(spec, &sizes, smallest)?,
    })
    .map_err(ExplicitError::Geometry)?;
    let source = |(slot, member): (usize, &Option<ExplicitMember>)| {
        let data_offset = member.as_ref()?.data_offset.unwrap_or(spec.data_offset);
        Some(Source {
            candidate: slot,
            data_offset,
            new_data_offset: data_offset,
            valid_sectors: u64::MAX,
            stale: false,
        })
    };
    let slots: Vec<Option<Source>> = spec.members.iter().enumerate().map(source).collect();
    let verdict = verdict(&geometry, &slots);
    let warnings = vec![AS_GIVEN.to_string()];
    let repairs = Repairs::default();
    let read_only = Plan { verdict, slots, journal: None, warnings, doubts: Vec::new(), repairs };
    Ok(Explicit { shape: Shape::Settled(geometry), read_only })
}

fn data_sectors(spec: &ExplicitSpec, member: &ExplicitMember) -> Result<u64, ExplicitError> {
    let label = || member.label.clone();
    let device_sectors = member.device_sectors;
    let data_offset = member.data_offset.unwrap_or(spec.data_offset);
    let has = device_sectors
        .checked_sub(data_offset)
        .filter(|&has| has > 0)
        .ok_or_else(|| ExplicitError::Offset { label: label(), data_offset, device_sectors })?;
    let needs = member.data_sectors.or(spec.used_sectors).unwrap_or(has);
    if needs > has {
        return Err(ExplicitError::Size { label: label(), has, needs });
    }
    Ok(needs)
}

fn member_sectors(
    spec: &ExplicitSpec,
    sizes: &[Option<u64>],
    smallest: u64,
) -> Result<Vec<u64>, ExplicitError> {
    if !matches!(spec.level, Level::Linear | Level::Raid0) {
        return Ok(vec![spec.used_sectors.unwrap_or(smallest); sizes.len()]);
    }
    let equal = sizes.iter().flatten().all(|&size| size == smallest);
    let missing = spec.used_sectors.or(equal.then_some(smallest));
    let of = |(slot, size): (usize, &Option<u64>)| {
        let slot = MemberIdx(slot as u16);
        size.or(missing).ok_or(ExplicitError::UnknownSize { slot })
    };
    sizes.iter().enumerate().map(of).collect()
}

fn verdict(geometry: &Geometry, slots: &[Option<Source>]) -> Verdict {
    let missing: Vec<MemberIdx> = (0..slots.len() as u16)
        .map(MemberIdx)
        .filter(|slot| slots[slot.index()].is_none())
        .collect();
    if missing.is_empty() {
        return Verdict::Run;
    }
    if geometry.enough(|slot| slots[slot.index()].is_some()) {
        return Verdict::RunDegraded { missing };
    }
    let lost = format!(
        "{} cannot serve all data without {}: reads of lost data fail.",
        geometry.level(),
        super::messages::slots(&missing)
    );
    Verdict::RunPartial { lost }
}
