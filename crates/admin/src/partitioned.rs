//! What lies in the partitions of a disk, or of an image of one.
//!
//! Invariant: everything is opened read-only. Where the members of a disk are is decided by
//! [`crate::placement`].
//!
//! Called from `opening`, and by programs that show disks.

use device::{
    Device, DeviceError, Location, Partition, PartitionTable, foreign, partition_tables,
    signatures, superblocks,
};
use md::SECTOR_BYTES;
use md::ondisk::Version;
use md::ondisk::superblock::{Detection, Outcome, Superblock};

use crate::placement::{Choice, OnDisk, Place, Record, Spot, choose};

/// A disk with a partition table.
pub struct Inside {
    /// The table, or the reason why it is invalid.
    pub table: Result<PartitionTable, &'static str>,
    /// Its partitions, in the order of the table.
    pub parts: Vec<Part>,
    /// Whether all of the disk is, or was, a member as well.
    pub is_beside: bool,
}

/// A partition.
pub struct Part {
    /// As the kernel counts.
    pub number: u32,
    /// Its place on the disk.
    pub location: Location,
    /// It, or why it cannot be opened.
    pub device: Result<Device, DeviceError>,
    /// Whether it has a superblock, or something that may have been one.
    pub may_be_member: bool,
    /// What is decided from.
    spot: Spot,
}

/// All that was found on a disk: what is decided from, and each reading of its table.
pub(crate) struct FoundOn {
    pub(crate) on_disk: OnDisk,
    readings: Vec<Inside>,
    /// There is a table that cannot be read.
    is_damaged: bool,
}

impl FoundOn {
    /// Looks at a disk that was opened.
    pub(crate) fn of(device: &Device) -> FoundOn {
        let detection = superblocks(device);
        let own = detection.superblock().map(|(it, _)| Record::of(it, 0));
        let is_foreign = own.is_none() && foreign(device).metadata.is_some();
        let is_exact = device.location().size.is_some();
        let tables = match is_exact && own.is_some() {
            true => Vec::new(),
            false => partition_tables(device),
        };
        let readings = tables.into_iter().map(|table| {
            let parts = table.partitions.iter().map(|it| part(device, it)).collect();
            Inside { parts, table: Ok(table), is_beside: false }
        });
        let readings: Vec<Inside> = readings.collect();
        let spots = |inside: &Inside| inside.parts.iter().map(|part| part.spot.clone()).collect();
        let tables = readings.iter().map(spots).collect();
        let is_table = |what: &str| what.ends_with("partition table");
        let is_damaged = own.is_none()
            && !is_foreign
            && readings.is_empty()
            && signatures(device).iter().any(|sign| is_table(sign.what));
        FoundOn { on_disk: OnDisk { own, is_foreign, is_exact, tables }, readings, is_damaged }
    }

    /// What is in a reading of the table, which is taken out.
    pub(crate) fn inside(&mut self, reading: usize) -> Inside {
        self.readings.swap_remove(reading)
    }

    /// Where the members of another array are that was made after that of the whole disk, or may
    /// have been.
    pub(crate) fn newer_than_own(&self) -> Option<&Location> {
        let choice = choose(std::slice::from_ref(&self.on_disk)).pop()?.ok()?;
        let reading = match choice {
            Choice { place: Place::Parts(at), former: Some(Place::Whole) } => at,
            Choice { place: Place::Both(at), .. } => at,
            _ => return None,
        };
        let mut parts = self.readings[reading].parts.iter();
        parts.find(|part| part.may_be_member).map(|part| &part.location)
    }

    /// The partition of a reading.
    pub(crate) fn part(&self, reading: usize, part: usize) -> &Location {
        &self.readings[reading].parts[part].location
    }

    /// The partition that may own a superblock at the end of the disk.
    pub(crate) fn owner_of(&self, record: &Record) -> Option<&Location> {
        let mut parts = self.readings.iter().flat_map(|reading| &reading.parts);
        parts.find(|part| part.spot.may_own(record)).map(|part| &part.location)
    }

    /// The table that cannot be read, if there is one.
    pub(crate) fn damaged(&self) -> Option<Inside> {
        let why = "it is damaged; PATH@OFFSET names a partition";
        self.is_damaged.then_some(Inside { table: Err(why), parts: vec![], is_beside: false })
    }
}

impl Inside {
    /// Looks at the partition table of what was opened; nothing where it is a member itself and
    /// nothing else, or has no table.
    pub fn of(device: &Device) -> Option<Inside> {
        let mut found = FoundOn::of(device);
        let (reading, is_beside) = match choose(std::slice::from_ref(&found.on_disk))[0] {
            Ok(Choice { place: Place::Whole, former: Some(Place::Parts(at)) }) => (at, true),
            Ok(Choice { place: Place::Whole, .. }) => return found.damaged(),
            Ok(Choice { place: Place::Parts(at), former }) => (at, former.is_some()),
            Ok(Choice { place: Place::Both(at), .. }) => (at, true),
            Err(two) => (two.table, true),
        };
        Some(Inside { is_beside, ..found.inside(reading) })
    }

    /// Whether one of its partitions is, or may be, a member.
    pub fn has_members(&self) -> bool {
        self.parts.iter().any(|part| part.may_be_member)
    }

    /// The reason why a disk with this table is not a member.
    pub fn instead(&self) -> String {
        match &self.table {
            Ok(table) => {
                let (kind, count) = (table.kind, self.parts.len());
                format!("its {kind} lists {count} partition(s), none with an md superblock")
            }
            Err(why) => format!("its partition table cannot be read: {why}"),
        }
    }
}

/// Of a part of a disk without a superblock: that there is one where its offset would be in another
/// unit. Partition tools list sectors, and mdadm's options are KiB.
pub fn in_another_unit(device: &Device) -> Option<String> {
    let Location { path, offset, size } = device.location();
    [(512, 's'), (1024, 'K')].into_iter().find_map(|(bytes, unit)| {
        let there =
            Location { path: path.clone(), offset: offset.checked_mul(bytes)?, size: *size };
        let there = device.open_part(&there).ok().filter(|_| *offset > 0)?;
        superblocks(&there).superblock()?;
        Some(format!("{offset} are bytes; {}@{offset}{unit} has one", path.display()))
    })
}

fn part(disk: &Device, partition: &Partition) -> Part {
    let Partition { number, sectors, .. } = partition;
    let on = disk.location();
    let location = Location {
        path: on.path.clone(),
        offset: on.offset + sectors.start * SECTOR_BYTES,
        size: Some((sectors.end - sectors.start) * SECTOR_BYTES),
    };
    let device = disk.open_part(&location);
    let detection = device.as_ref().ok().map(|device| superblocks(device));
    let other = device.as_ref().is_ok_and(|device| foreign(device).metadata.is_some());
    let may_be_member = detection.as_ref().is_none_or(|detection| {
        let mut outcomes = detection.outcomes.iter();
        other || outcomes.any(|(_, outcome)| !matches!(outcome, Outcome::NoMagic))
    });
    let record = |superblock: &Superblock| Record::of(superblock, sectors.start);
    let own = detection.as_ref().and_then(Detection::superblock).map(|(it, _)| record(it));
    let ending = detection.as_ref().and_then(|detection| {
        let of_all = detection.superblock().map(|(it, _)| it).into_iter();
        let mut of_all = of_all.chain(detection.others().map(|(_, it, _)| it));
        of_all.find(|it| it.version() == Version::V0_90).map(record)
    });
    let (first, is_cut) = (sectors.start, partition.is_cut());
    let spot = Spot { first, is_cut, may_be_member, record: own, ending };
    Part { number: *number, location, device, may_be_member: spot.is_member(), spot }
}
