//! An opened device with its superblock.

use std::sync::Arc;

use md::assemble::Candidate;
use md::ondisk::superblock::{Checksum, Detection, READ_BYTES, Superblock, detect};

use crate::member::{DiskMember, FileMember, Member};
use crate::store::{Device, Disk};

/// Reads all places of a disk where superblocks can be.
pub fn look(disk: &dyn Disk) -> Detection {
    detect(disk.sectors(), |candidate| {
        let mut bytes = vec![0; READ_BYTES];
        disk.read(candidate.sector, &mut bytes).map(|()| bytes)
    })
}

/// A device with a superblock.
#[derive(Clone)]
pub struct Opened {
    /// The device, or an overlay over it.
    pub disk: Arc<dyn Disk>,
    /// The device, if nothing is laid over it: its data then go through io_uring.
    pub device: Option<Arc<Device>>,
    /// Its decoded superblock.
    pub superblock: Superblock,
    /// Whether the superblock's checksum is right.
    pub checksum: Checksum,
}

impl Opened {
    /// Opens a plain device; `None` if it has no superblock ([`look`] returns what was found).
    pub fn device(device: Arc<Device>) -> Option<Opened> {
        let opened = Opened::disk(device.clone())?;
        Some(Opened { device: Some(device), ..opened })
    }

    /// Opens any disk, such as one with an overlay.
    pub fn disk(disk: Arc<dyn Disk>) -> Option<Opened> {
        let detection = look(&*disk);
        let (superblock, checksum) = detection.superblock()?;
        let superblock = superblock.clone();
        Some(Opened { disk, device: None, superblock, checksum })
    }

    /// Input of the assembly.
    pub fn candidate(&self) -> Candidate {
        Candidate::new(
            &self.disk.name(),
            self.disk.sectors(),
            self.disk.logical_block() as usize,
            &self.superblock,
            self.checksum,
        )
    }

    /// A member for its data area.
    pub(super) fn member(&self, area: std::ops::Range<u64>) -> Box<dyn Member> {
        match &self.device {
            Some(device) => Box::new(FileMember::of_device(device, area)),
            None => Box::new(DiskMember::new(self.disk.clone(), area)),
        }
    }
}
