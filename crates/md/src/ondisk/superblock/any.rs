//! A superblock of either version: what the assembly, the control plane and `examine` hold.

use super::{ArrayState, Checksum, Refusal, StateError, SuperblockV0, SuperblockV1};
use crate::ondisk::{MemberMetadata, Version};

/// A superblock, of whichever version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Superblock {
    /// 0.90.
    V0(Box<SuperblockV0>),
    /// 1.0, 1.1 or 1.2.
    V1(Box<SuperblockV1>),
}

impl From<SuperblockV0> for Superblock {
    fn from(superblock: SuperblockV0) -> Superblock {
        Superblock::V0(Box::new(superblock))
    }
}

impl From<SuperblockV1> for Superblock {
    fn from(superblock: SuperblockV1) -> Superblock {
        Superblock::V1(Box::new(superblock))
    }
}

impl Superblock {
    /// Version of the metadata.
    pub fn version(&self) -> Version {
        match self {
            Superblock::V0(_) => Version::V0_90,
            Superblock::V1(superblock) => superblock.version,
        }
    }

    /// Sector of the device where it is written.
    pub fn sector(&self) -> u64 {
        match self {
            Superblock::V0(superblock) => superblock.sector,
            Superblock::V1(superblock) => superblock.super_offset,
        }
    }

    /// Its contents, independent of the version.
    pub fn metadata(&self) -> MemberMetadata {
        match self {
            Superblock::V0(superblock) => superblock.metadata(),
            Superblock::V1(superblock) => superblock.metadata(),
        }
    }

    /// The bytes to write at [`Superblock::sector`], with their checksum. 1.x: a multiple of the
    /// device's logical block (bytes); 0.90: 4096, whatever the block.
    ///
    /// The caller orders the writes. More than one sector can tear, so members are written in
    /// turn, never concurrently: a crash leaves at most one superblock with a wrong checksum.
    pub fn encode(&self, logical_block: usize) -> Vec<u8> {
        match self {
            Superblock::V0(superblock) => superblock.encode(),
            Superblock::V1(superblock) => superblock.encode(logical_block),
        }
    }

    /// The next superblock of device `dev_number` of an array in this state. What does not change
    /// while an array runs is kept from this one.
    pub fn with_state(
        &self,
        state: &ArrayState,
        dev_number: usize,
    ) -> Result<Superblock, StateError> {
        match self {
            Superblock::V0(superblock) => {
                superblock.with_state(state, dev_number).map(Superblock::from)
            }
            Superblock::V1(superblock) => {
                superblock.with_state(state, dev_number).map(Superblock::from)
            }
        }
    }

    /// The superblock of an array with this number of slots, otherwise the same: of RAID 1, where
    /// each member has all data.
    #[must_use]
    pub fn with_slots(&self, slots: u32) -> Superblock {
        let mut superblock = self.clone();
        match &mut superblock {
            Superblock::V0(superblock) => superblock.raid_disks = slots,
            Superblock::V1(superblock) => superblock.raid_disks = slots,
        }
        superblock
    }

    /// As of a member that is being rebuilt from its begin on, of what the bitmap marks: no start
    /// takes it for in sync.
    #[must_use]
    pub fn recovering_by_bitmap(&self) -> Superblock {
        let number = self.metadata().dev_number as usize;
        let mut state = self.state();
        if let Some(Some(own)) = state.devices.get_mut(number) {
            own.recovery_offset = Some(0);
            own.recovery_by_bitmap = true;
        }
        self.with_state(&state, number).unwrap_or_else(|_| self.clone())
    }

    /// The array state in this superblock: complete for its own device; for the others only their
    /// roles (0.90: also their flags).
    pub fn state(&self) -> ArrayState {
        match self {
            Superblock::V0(superblock) => superblock.state(),
            Superblock::V1(superblock) => superblock.state(),
        }
    }

    /// Everything for which the kernel would not take this member.
    pub fn kernel_refusals(
        &self,
        checksum: Checksum,
        device_sectors: u64,
        logical_block: usize,
    ) -> Vec<Refusal> {
        match self {
            Superblock::V0(superblock) => superblock.kernel_refusals(checksum, device_sectors),
            Superblock::V1(superblock) => {
                superblock.kernel_refusals(checksum, device_sectors, logical_block)
            }
        }
    }
}
