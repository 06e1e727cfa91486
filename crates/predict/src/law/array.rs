//! The array of a prediction: level, copies, members, chunk.

use md::Level;

/// How RAID 10 places its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copies {
    /// The copies of a chunk on neighbouring members.
    Near(u32),
    /// The copies in far parts of the members: data is striped as in RAID 0 in each.
    Far(u32),
    /// The copies in the next row.
    Offset(u32),
}

impl Copies {
    /// How many there are.
    pub fn count(self) -> u32 {
        match self {
            Copies::Near(count) | Copies::Far(count) | Copies::Offset(count) => count,
        }
    }
}

/// An array of Linux md.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array {
    /// The level; linear has no equation.
    pub level: Level,
    /// Of RAID 10; otherwise without meaning.
    pub copies: Copies,
    /// Members that hold data, parity or copies; spares are none.
    pub members: u32,
    /// Chunk, KiB; RAID 1 has none, and its value is not read.
    pub chunk_kib: f64,
    /// Members that are missing.
    pub missing: u32,
}

impl Array {
    /// Members at most.
    pub const MEMBERS_MAX: u32 = 1920;

    /// Whether its numbers are those of a possible array: 1 to [`Array::MEMBERS_MAX`] members,
    /// 2 to 16 copies, a chunk of 1 KiB to 4 GiB.
    pub fn is_possible(&self) -> bool {
        (1..=Self::MEMBERS_MAX).contains(&self.members)
            && (2..=16).contains(&self.copies.count())
            && (1.0..=4_194_304.0).contains(&self.chunk_kib)
    }

    /// A healthy array; RAID 10 with two near copies.
    pub fn new(level: Level, members: u32, chunk_kib: f64) -> Array {
        Array { level, copies: Copies::Near(2), members, chunk_kib, missing: 0 }
    }

    /// Members of parity in each row.
    pub fn parities(&self) -> u32 {
        match self.level {
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            _ => 0,
        }
    }

    /// Copies of each block: 1 without mirroring.
    pub fn copy_count(&self) -> u32 {
        match self.level {
            Level::Raid1 => self.members,
            Level::Raid10 => self.copies.count(),
            _ => 1,
        }
    }

    /// Members' worth of data, which is also the capacity in members of equal size.
    pub fn data_members(&self) -> f64 {
        match self.level {
            Level::Raid1 => 1.0,
            Level::Raid10 => f64::from(self.members) / f64::from(self.copies.count()),
            _ => f64::from(self.members - self.parities().min(self.members)),
        }
    }

    /// Disk operations that a small write costs, by read-modify-write on parity.
    pub fn small_write_operations(&self) -> f64 {
        match self.level {
            Level::Raid4 | Level::Raid5 => 4.0,
            Level::Raid6 => 6.0,
            _ => f64::from(self.copy_count()),
        }
    }

    /// What md counts for a sector of each member in the background, in rates and in limits: a
    /// resync or a check of RAID 10 passes the sectors of the array (`resync_max_sectors`), with
    /// all copies; a rebuild those of its member, as does all work of the other levels.
    pub fn counted_by_md(&self, is_rebuild: bool) -> f64 {
        match self.level {
            Level::Raid10 if !is_rebuild => self.data_members(),
            _ => 1.0,
        }
    }

    /// Whether md permits so few members.
    pub fn has_enough_members(&self) -> bool {
        let least = match self.level {
            Level::Raid0 | Level::Raid1 | Level::Raid5 | Level::Raid4 => 2,
            Level::Raid6 => 4,
            Level::Raid10 => self.copies.count().max(2),
            Level::Linear => 1,
        };
        self.members >= least
    }
}
