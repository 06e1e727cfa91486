//! The parameters of a geometry, their limits, and the errors of invalid ones.
//!
//! Invariant: a refused spec is named by its field and problem in one line. Limits are md's unless
//! the constant says otherwise.

use crate::layout::Layout;
use crate::level::Level;
use crate::units::{MemberIdx, show_size};
use std::fmt;

/// Most members of a linear, RAID 0, 1 or 10 array: the roles that a 1.x superblock has room for.
pub const MAX_MEMBERS: usize = 1920;

/// Most members of a RAID 4, 5 or 6 array. For RAID 6 it is a law: the generator of GF(2^8) has
/// order 255, and DDF layouts use the slot number as exponent, so 255 slots are the most whose
/// exponents differ. For RAID 4 and 5 it is this project's choice (md has none below
/// [`MAX_MEMBERS`]): the row table grows with the square of the members.
pub const MAX_PARITY_MEMBERS: usize = 255;

/// Smallest chunk, 4 KiB (md: the page size).
pub const MIN_CHUNK_SECTORS: u64 = 8;

/// Largest chunk, 64 MiB. Larger ones are this project's refusal, not md's.
pub const MAX_CHUNK_SECTORS: u64 = 64 << 11;

/// Largest member and array: a signed 64-bit byte offset reaches every sector.
pub const MAX_SECTORS: u64 = 1 << 54;

/// The parameters of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeometrySpec {
    /// The level.
    pub level: Level,
    /// The layout, of the level's kind.
    pub layout: Layout,
    /// Chunk size in sectors. RAID 4, 5, 6, 10: a power of two. RAID 0: any multiple of 4 KiB.
    /// RAID 1: ignored, as md does. Linear: 0, or the unit that member sizes are rounded down to.
    pub chunk_sectors: u64,
    /// Sectors of each member's data area, in slot order; its length is the number of members.
    /// Linear and RAID 0 use each member's own size (md: `data_size`); the other levels use the
    /// smallest for all (md: the superblock's `size`, so give that once per slot).
    pub member_sectors: Vec<u64>,
}

/// An invalid [`GeometrySpec`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// Fewer members than the level works with.
    TooFewMembers {
        /// The level.
        level: Level,
        /// Members given.
        members: usize,
        /// The fewest it works with.
        least: usize,
    },
    /// More members than the level can address.
    TooManyMembers {
        /// The level.
        level: Level,
        /// Members given.
        members: usize,
        /// The most it can address.
        most: usize,
    },
    /// The layout is of another level's kind.
    LayoutOfOtherLevel {
        /// The level.
        level: Level,
        /// The layout given.
        layout: Layout,
    },
    /// The layout would lose or overwrite data with this many members.
    LayoutUnsafe {
        /// The layout given.
        layout: Layout,
        /// Members given.
        members: usize,
        /// Consequence of the layout.
        problem: &'static str,
    },
    /// RAID 0 over members of different sizes, whose layout was not recorded, and it matters.
    Raid0LayoutUnrecorded,
    /// RAID 10 needs more copies than there are members, or none or one.
    Copies {
        /// The layout given.
        layout: Layout,
        /// Copies it makes.
        copies: usize,
        /// Members given.
        members: usize,
    },
    /// The chunk size does not suit the level.
    Chunk {
        /// The level.
        level: Level,
        /// Chunk size given, in sectors.
        chunk_sectors: u64,
        /// The problem.
        problem: &'static str,
    },
    /// A member does not hold the smallest unit of the array.
    MemberTooSmall {
        /// The member.
        member: MemberIdx,
        /// Size of the member in sectors.
        sectors: u64,
        /// The fewest that would do.
        least: u64,
    },
    /// A member or the array would be larger than [`MAX_SECTORS`].
    TooLarge {
        /// The member, or `None` for the array.
        member: Option<MemberIdx>,
        /// Size in sectors.
        sectors: u128,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::TooFewMembers { level, members, least } => {
                write!(f, "members: {level} needs at least {least}, given {members}")
            }
            GeometryError::TooManyMembers { level, members, most } => {
                write!(f, "members: {level} takes at most {most}, given {members}")
            }
            GeometryError::LayoutOfOtherLevel { level, layout } => {
                write!(f, "layout: '{layout}' ({layout:?}) is not a layout of {level}")
            }
            GeometryError::LayoutUnsafe { layout, members, problem } => {
                write!(f, "layout: '{layout}' with {members} members: {problem}")
            }
            GeometryError::Raid0LayoutUnrecorded => write!(
                f,
                "layout: not recorded, but member sizes differ so that it matters: \
                 say 'original' or 'alternate'"
            ),
            GeometryError::Copies { layout, copies, members } => write!(
                f,
                "layout: '{layout}' makes {copies} copies, which is not between 2 and the \
                 number of members, {members}"
            ),
            GeometryError::Chunk { level, chunk_sectors, problem } => {
                write!(f, "chunk: {chunk_sectors} sectors for {level}: {problem}")
            }
            GeometryError::MemberTooSmall { member, sectors, least } => {
                let (size, room) = (show_size(*sectors), show_size(*least));
                write!(
                    f,
                    "member {member}: {sectors} sectors ({size}), needs at least {least} ({room})"
                )
            }
            GeometryError::TooLarge { member: Some(member), sectors } => {
                write!(f, "member {member}: {sectors} sectors, more than {MAX_SECTORS}")
            }
            GeometryError::TooLarge { member: None, sectors } => {
                write!(f, "array: {sectors} sectors, more than {MAX_SECTORS}")
            }
        }
    }
}

impl std::error::Error for GeometryError {}

impl GeometrySpec {
    /// The checks that need no placement: counts, kinds, chunk, member sizes.
    pub(super) fn check(&self) -> Result<(), GeometryError> {
        if !self.layout.fits(self.level) {
            return Err(GeometryError::LayoutOfOtherLevel {
                level: self.level,
                layout: self.layout,
            });
        }
        self.check_members()?;
        self.check_chunk()?;
        for (index, &sectors) in self.member_sectors.iter().enumerate() {
            if sectors > MAX_SECTORS {
                let member = Some(MemberIdx(index as u16));
                return Err(GeometryError::TooLarge { member, sectors: sectors.into() });
            }
        }
        Ok(())
    }

    fn check_members(&self) -> Result<(), GeometryError> {
        let (level, members) = (self.level, self.member_sectors.len());
        let (least, most) = match level {
            Level::Linear | Level::Raid0 | Level::Raid1 => (1, MAX_MEMBERS),
            Level::Raid4 | Level::Raid5 => (2, MAX_PARITY_MEMBERS),
            Level::Raid6 => (4, MAX_PARITY_MEMBERS),
            Level::Raid10 => (2, MAX_MEMBERS),
        };
        if members < least {
            return Err(GeometryError::TooFewMembers { level, members, least });
        }
        if members > most {
            return Err(GeometryError::TooManyMembers { level, members, most });
        }
        Ok(())
    }

    fn check_chunk(&self) -> Result<(), GeometryError> {
        let (level, chunk_sectors) = (self.level, self.chunk_sectors);
        let problem = if !level.has_chunks() {
            return Ok(());
        } else if chunk_sectors < MIN_CHUNK_SECTORS {
            "smaller than 8 sectors (4 KiB)"
        } else if chunk_sectors > MAX_CHUNK_SECTORS {
            "larger than 131072 sectors (64 MiB)"
        } else if level == Level::Raid0 {
            if chunk_sectors.is_multiple_of(MIN_CHUNK_SECTORS) {
                return Ok(());
            }
            "not a multiple of 8 sectors (4 KiB)"
        } else if chunk_sectors.is_power_of_two() {
            return Ok(());
        } else {
            "not a power of two"
        };
        Err(GeometryError::Chunk { level, chunk_sectors, problem })
    }

    /// The slot and sectors of the smallest member, the first of several.
    pub(super) fn smallest_member(&self) -> (MemberIdx, u64) {
        let smallest = self.member_sectors.iter().enumerate().min_by_key(|&(_, sectors)| sectors);
        let (index, &sectors) = smallest.expect("check_members saw at least one");
        (MemberIdx(index as u16), sectors)
    }
}

/// The array size if it is one that can be addressed.
pub(super) fn checked_array_sectors(sectors: u128) -> Result<u64, GeometryError> {
    if sectors > u128::from(MAX_SECTORS) {
        return Err(GeometryError::TooLarge { member: None, sectors });
    }
    Ok(sectors as u64)
}
