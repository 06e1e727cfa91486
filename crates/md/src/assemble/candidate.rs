//! What an array is assembled from: devices with superblocks, and the member that serves a slot.

use crate::ondisk::MemberMetadata;
use crate::ondisk::superblock::{Checksum, Refusal, Superblock};

/// A device with a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The caller's name for it, used in messages.
    pub label: String,
    /// Size of the device in sectors.
    pub device_sectors: u64,
    /// The contents of its superblock.
    pub metadata: MemberMetadata,
    /// Whether the superblock's checksum is right.
    pub checksum_ok: bool,
    /// Reasons why the kernel would refuse this superblock; reported in
    /// [`super::Array::other_verdicts`], not evaluated here.
    pub kernel_refuses: Vec<String>,
}

impl Candidate {
    /// The candidate with this superblock, found with this checksum on a device of this size and
    /// logical block (bytes).
    pub fn new(
        label: &str,
        device_sectors: u64,
        logical_block: usize,
        superblock: &Superblock,
        checksum: Checksum,
    ) -> Candidate {
        let refusals = superblock.kernel_refusals(checksum, device_sectors, logical_block);
        Candidate {
            label: label.to_string(),
            device_sectors,
            metadata: superblock.metadata(),
            checksum_ok: checksum.is_correct(),
            kernel_refuses: refusals.iter().map(Refusal::to_string).collect(),
        }
    }
}

/// The member that serves a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Index of the candidate.
    pub candidate: usize,
    /// Data offset, in sectors of the device. In a reshape: of the old geometry.
    pub data_offset: u64,
    /// In the new geometry of a reshape; else the same.
    pub new_data_offset: u64,
    /// Sectors at the start of its data area that can be trusted: all (`u64::MAX`), the rebuilt
    /// part, or the remaining part of a truncated device.
    pub valid_sectors: u64,
    /// Its event count is behind: its data may be stale.
    pub stale: bool,
}

impl Source {
    /// Whether all of the member can be trusted to be there.
    pub fn is_whole(&self) -> bool {
        self.valid_sectors == u64::MAX
    }
}

/// The member of each slot.
pub(super) type Slots = Vec<Option<Source>>;
