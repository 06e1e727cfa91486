//! An opened device with its superblock.

use std::ops::Range;
use std::sync::Arc;

use md::assemble::{Candidate, StartMember};
use md::ondisk::superblock::{Checksum, Detection, Superblock};
use md::ondisk::{Area, MemberMetadata};

use array::{DiskMember, FileMember, Member, MemberFlags, NbdMember};
use host::{Device, Disk, superblocks};

/// A device with a superblock.
#[derive(Clone)]
pub struct Opened {
    /// The device, or an overlay over it.
    pub disk: Arc<dyn Disk>,
    /// The device, if nothing is laid over it: its data then are read and written asynchronously.
    pub device: Option<Arc<Device>>,
    /// Superblock of the member.
    pub superblock: Superblock,
    /// Whether the superblock's checksum is right.
    pub checksum: Checksum,
    /// The sector of a superblock that is not its own, but a partition's that ends with it.
    lent: Option<u64>,
    /// The number of slots that the superblock was given, which is not the one on the device yet.
    grown_to: Option<u32>,
}

impl Opened {
    /// Opens a plain device; `None` if it has no superblock: [`superblocks`] says what was found.
    pub fn device(device: Arc<Device>) -> Option<Opened> {
        Opened::device_without(None, device)
    }

    /// The same; what is at the sector `lent` is not its own.
    pub(crate) fn device_without(lent: Option<u64>, device: Arc<Device>) -> Option<Opened> {
        let opened = Opened::disk_without(lent, device.clone())?;
        Some(Opened { device: Some(device), ..opened })
    }

    /// Opens any disk, such as one with an overlay.
    pub fn disk(disk: Arc<dyn Disk>) -> Option<Opened> {
        Opened::disk_without(None, disk)
    }

    /// The same; what is at the sector `lent` is not its own.
    pub(crate) fn disk_without(lent: Option<u64>, disk: Arc<dyn Disk>) -> Option<Opened> {
        let detection = superblocks(&*disk).without(lent);
        let (superblock, checksum) = detection.superblock()?;
        let superblock = superblock.clone();
        Some(Opened { disk, device: None, superblock, checksum, lent, grown_to: None })
    }

    /// The superblocks that it carries.
    pub(crate) fn superblocks(&self) -> Detection {
        superblocks(&*self.disk).without(self.lent)
    }

    /// The same member on a disk that is laid over its own.
    pub(crate) fn on(&self, disk: Arc<dyn Disk>) -> Opened {
        Opened { disk, device: None, ..self.clone() }
    }

    /// A new device, whose superblock is not on it yet.
    pub(crate) fn new_device(device: &Arc<Device>, superblock: Superblock) -> Opened {
        Opened {
            disk: device.clone(),
            device: Some(device.clone()),
            superblock,
            checksum: Checksum::Correct { stored: 0 },
            lent: None,
            grown_to: None,
        }
    }

    /// Gives the superblock in memory more slots; the device gets it with the first update.
    pub(crate) fn grow(&mut self, slots: u32) {
        self.superblock = self.superblock.with_slots(slots);
        self.grown_to = Some(slots);
    }

    /// Gives the superblock in memory flags besides its own; the device gets it with the first
    /// update.
    pub(crate) fn add_flags(&mut self, flags: MemberFlags) {
        let (mut state, number) =
            (self.superblock.state(), self.superblock.metadata().dev_number as usize);
        if let Some(Some(own)) = state.devices.get_mut(number) {
            own.write_mostly |= flags.write_mostly;
            own.failfast |= flags.failfast;
            self.superblock = self.superblock.with_state(&state, number).expect("it had the state");
        }
    }

    /// Records durably that a former member lacks what the bitmap marks: what it gets from now on
    /// makes a mixture of it, which no start may take for a member in sync.
    pub(crate) fn mark_recovering(&self) -> std::io::Result<()> {
        let superblock = self.superblock.recovering_by_bitmap();
        let bytes = superblock.encode(self.disk.logical_block() as usize);
        self.disk.write(superblock.sector(), &bytes)?;
        self.disk.sync()
    }

    /// Whether the device still has the superblock that this one is, or was made from; `None`: it
    /// has none that can be read.
    pub(crate) fn is_as_examined(&self) -> Option<bool> {
        let mut now = Opened::disk_without(self.lent, self.disk.clone())?;
        self.grown_to.into_iter().for_each(|slots| now.grow(slots));
        Some(now.superblock == self.superblock && now.checksum == self.checksum)
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
    pub(crate) fn member(&self, area: Range<u64>, log: Option<Area>) -> Box<dyn Member> {
        let log = log.map_or(0..0, |log| log.sector..log.sector + log.sectors);
        let export = self.device.as_ref().and_then(|device| {
            Some(NbdMember::of_device(device, area.clone())?.with_log(device, log.clone()))
        });
        if let Some(export) = export {
            return Box::new(export);
        }
        match &self.device {
            Some(device) => Box::new(FileMember::of_device(device, area).with_log(device, log)),
            None => Box::new(DiskMember::new(self.disk.clone(), area).with_log(log)),
        }
    }
}

/// Members as a start finds them, in the order of `members`.
pub(crate) fn start_members<'a>(
    members: &'a [Opened],
    metadata: &'a [MemberMetadata],
    labels: &'a [String],
) -> Vec<StartMember<'a>> {
    let found = members.iter().zip(metadata).zip(labels);
    let found = found.map(|((member, metadata), label)| StartMember {
        label,
        logical_block: member.disk.logical_block(),
        read_only: member.disk.is_read_only(),
        superblock: &member.superblock,
        metadata,
    });
    found.collect()
}
