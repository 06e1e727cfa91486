//! What a scan of a member found.

use crate::witness::{Block, Finds};

/// Blocks of known file systems found in windows of one member, and what they say of others. Filled
/// by [`FileSystems::scan`](crate::FileSystems::scan); one for each member.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    pub(crate) finds: Finds,
}

impl Scan {
    /// The most blocks that are kept.
    pub const BLOCKS_MAX: usize = Finds::BLOCKS_MAX;

    /// A scan that has found nothing yet.
    pub fn new() -> Scan {
        Scan::default()
    }

    /// Blocks found until now.
    pub fn len(&self) -> usize {
        self.finds.blocks.len()
    }

    /// Whether nothing is found yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds what another scan of the same member found.
    pub fn append(&mut self, other: Scan) {
        let room = Finds::BLOCKS_MAX.saturating_sub(self.finds.blocks.len());
        self.finds.blocks.extend(other.finds.blocks.into_iter().take(room));
        let room = Finds::FACTS_MAX.saturating_sub(self.finds.facts.len());
        self.finds.facts.extend(other.finds.facts.into_iter().take(room));
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.finds.blocks
    }
}
