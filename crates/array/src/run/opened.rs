//! A device that was opened, and what it says of itself.

use std::sync::Arc;

use md::assemble::Candidate;
use md::ondisk::superblock::{Checksum, Detection, READ_BYTES, Superblock, detect};

use crate::member::{DiskMember, FileMember, Member};
use crate::store::{Device, Disk};

/// Reads what a disk says of itself: all places where superblocks can be.
pub fn look(disk: &dyn Disk) -> Detection {
    detect(disk.sectors(), |candidate| {
        let mut bytes = vec![0; READ_BYTES];
        disk.read(candidate.sector, &mut bytes).map(|()| bytes)
    })
}

/// A device with a superblock.
#[derive(Clone)]
pub struct Opened {
    /// It, or what lies over it: an overlay.
    pub disk: Arc<dyn Disk>,
    /// It, where nothing lies over it: its data then go through io_uring.
    pub device: Option<Arc<Device>>,
    /// What its superblock says.
    pub superblock: Superblock,
    /// Whether the superblock is whole.
    pub checksum: Checksum,
}

impl Opened {
    /// A device by itself; `None` where it has no superblock ([`look`] says what it has).
    pub fn device(device: Arc<Device>) -> Option<Opened> {
        let opened = Opened::disk(device.clone())?;
        Some(Opened { device: Some(device), ..opened })
    }

    /// Any disk, such as one with an overlay.
    pub fn disk(disk: Arc<dyn Disk>) -> Option<Opened> {
        let detection = look(&*disk);
        let (superblock, checksum) = detection.superblock()?;
        let superblock = superblock.clone();
        Some(Opened { disk, device: None, superblock, checksum })
    }

    /// What the assembly decides from.
    pub fn candidate(&self) -> Candidate {
        Candidate::new(
            &self.disk.name(),
            self.disk.sectors(),
            self.disk.logical_block() as usize,
            &self.superblock,
            self.checksum,
        )
    }

    /// Its data area as a member.
    pub(super) fn member(&self, area: std::ops::Range<u64>) -> Box<dyn Member> {
        match &self.device {
            Some(device) => Box::new(FileMember::of_device(device, area)),
            None => Box::new(DiskMember::new(self.disk.clone(), area)),
        }
    }
}
