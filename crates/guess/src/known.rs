//! What is known of the array and narrows the search.

use md::ondisk::MemberMetadata;
use md::{Layout, Level};

/// What the caller knows; `None` for what must be found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// The level.
    pub level: Option<Level>,
    /// The layout, of that level.
    pub layout: Option<Layout>,
    /// The chunk in bytes.
    pub chunk: Option<u64>,
    /// Bytes before the data area of each member.
    pub data_offset: Option<u64>,
    /// The number of slots.
    pub raid_devices: Option<usize>,
}

/// How the search is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is known.
    pub known: Known,
    /// Compare all redundancy, and read all stages.
    pub thorough: bool,
    /// The superblock of each member, where it has one.
    pub superblocks: Vec<Option<MemberMetadata>>,
}

impl Known {
    /// Whether a level, layout and number of slots agree with what is known.
    pub(crate) fn allows(&self, level: Level, layout: Layout, slots: usize) -> bool {
        self.level.is_none_or(|known| known == level)
            && self.layout.is_none_or(|known| known == layout)
            && self.raid_devices.is_none_or(|known| known == slots)
    }
}
