//! What lies in the partitions of a disk, or of an image of one.
//!
//! Invariant: everything is opened read-only. Where the members of a disk are is decided by
//! [`crate::placement`].
//!
//! Called from `opening`, and by programs that show disks.

use std::cmp::Reverse;

use host::{
    Device, DeviceError, Location, Partition, PartitionTable, foreign, partition_tables,
    signatures, superblocks,
};
use md::SECTOR_BYTES;
use md::ondisk::Version;
use md::ondisk::superblock::{Detection, Outcome, Superblock};

use crate::members::MembersError;
use crate::placement::{At, Choice, OnDisk, Place, Record, Spot, TwoReadings, choose};

/// A disk with a partition table.
pub struct Inside {
    /// The table, or the reason why it is invalid.
    pub table: Result<PartitionTable, &'static str>,
    /// Its partitions, in the order of the table.
    pub parts: Vec<Part>,
    /// Whether all of the disk is, or was, a member as well.
    pub is_beside: bool,
    /// The sector of a superblock at the end of the disk that is a partition's.
    pub lent: Option<u64>,
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
        let found = detection.superblock().into_iter().map(|(superblock, _)| superblock);
        let found = found.chain(detection.others().map(|(_, superblock, _)| superblock));
        let mut own: Vec<Record> = found.map(|it| Record::of(it, 0)).collect();
        own.sort_by_key(|record| Reverse(record.created));
        let is_foreign = own.is_empty() && foreign(device).metadata.is_some();
        let is_exact = device.location().size.is_some();
        let tables = match is_exact && !own.is_empty() {
            true => Vec::new(),
            false => partition_tables(device),
        };
        let readings = tables.into_iter().map(|table| {
            let parts = table.partitions.iter().map(|it| part(device, it)).collect();
            Inside { parts, table: Ok(table), is_beside: false, lent: None }
        });
        let readings: Vec<Inside> = readings.collect();
        let spots = |inside: &Inside| inside.parts.iter().map(|part| part.spot.clone()).collect();
        let tables = readings.iter().map(spots).collect();
        let is_table = |what: &str| what.ends_with("partition table");
        let is_damaged = own.is_empty()
            && !is_foreign
            && readings.is_empty()
            && signatures(device).iter().any(|sign| is_table(sign.what));
        FoundOn { on_disk: OnDisk { own, is_foreign, is_exact, tables }, readings, is_damaged }
    }

    /// What is in a reading of the table, which is taken out.
    pub(crate) fn inside(&mut self, reading: usize) -> Inside {
        self.readings.swap_remove(reading)
    }

    /// The decision about this disk alone.
    pub(crate) fn choice(&self) -> Result<Choice, TwoReadings> {
        choose(std::slice::from_ref(&self.on_disk)).pop().expect("one for each disk")
    }

    /// The partition.
    pub(crate) fn part(&self, at: At) -> &Location {
        &self.readings[at.table].parts[at.part].location
    }

    /// The superblocks in the partitions of all readings.
    pub(crate) fn in_partitions(&self) -> impl Iterator<Item = Detection> {
        let parts = self.readings.iter().flat_map(|reading| &reading.parts);
        parts.filter_map(|part| part.device.as_ref().ok()).map(|device| superblocks(device))
    }

    /// The first member among the partitions of a reading.
    pub(crate) fn first_member(&self, reading: usize) -> Option<&Location> {
        let mut parts = self.readings[reading].parts.iter();
        parts.find(|part| part.may_be_member).map(|part| &part.location)
    }

    /// The sector of the superblock 0.90 at the end of a partition.
    pub(crate) fn ending(&self, at: At) -> Option<u64> {
        let record = &self.readings[at.table].parts[at.part].spot.ending;
        record.as_ref().map(|record| record.sector)
    }

    /// The sector of the superblock at the end, where that is a partition's.
    pub(crate) fn lent(&self, choice: &Choice) -> Option<u64> {
        choice.owner.and_then(|at| self.ending(at))
    }

    /// That the members of this disk are not known, with the choices.
    pub(crate) fn two_readings(&self, device: &Device, two: TwoReadings) -> MembersError {
        let disk = device.location().path.display().to_string();
        let (part, other, why) = match two {
            TwoReadings::End(at) => {
                let why = "the superblock at its end can be that of the whole disk or of the \
                           partition that ends there, and the size that it states does not tell";
                (at, None, why)
            }
            TwoReadings::Copy(at) => {
                (at, None, "the whole disk and a partition of it have superblocks of one array")
            }
            TwoReadings::Tables(at, other) => {
                let why = "its partition table can be one of blocks of 512 bytes and one of 4096, \
                           and there are superblocks in the partitions of both";
                (at, Some(other), why)
            }
        };
        let part = self.part(part).to_string();
        let other = other.map(|at| self.part(at).to_string());
        let other = other.unwrap_or_else(|| format!("{disk}@0+{}", device.bytes()));
        MembersError::TwoReadings { disk, why, part, other }
    }

    /// The table that cannot be read, if there is one.
    pub(crate) fn damaged(&self) -> Option<Inside> {
        let why = "it is damaged; PATH@OFFSET names a partition";
        self.is_damaged.then_some(Inside {
            table: Err(why),
            parts: vec![],
            is_beside: false,
            lent: None,
        })
    }
}

impl Inside {
    /// Looks at the partition table of what was opened; nothing where it is a member itself and
    /// nothing else, or has no table.
    pub fn of(device: &Device) -> Option<Inside> {
        let mut found = FoundOn::of(device);
        let choice = found.choice();
        let lent = choice.as_ref().ok().and_then(|choice| found.lent(choice));
        let (reading, is_beside) = match choice {
            Ok(Choice { place: Place::Whole, former: Some(Place::Parts(at)), .. }) => (at, true),
            Ok(Choice { place: Place::Whole, .. }) => return found.damaged(),
            Ok(Choice { place: Place::Parts(at), former, .. }) => (at, former.is_some()),
            Ok(Choice { place: Place::Both(at), .. }) => (at, true),
            Err(TwoReadings::End(at) | TwoReadings::Copy(at) | TwoReadings::Tables(at, _)) => {
                (at.table, true)
            }
        };
        Some(Inside { is_beside, lent, ..found.inside(reading) })
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

/// Where a partition of a disk is.
pub(crate) fn location_of(disk: &Device, partition: &Partition) -> Location {
    let (on, sectors) = (disk.location(), &partition.sectors);
    Location {
        path: on.path.clone(),
        offset: on.offset.saturating_add(sectors.start.saturating_mul(SECTOR_BYTES)),
        size: Some((sectors.end - sectors.start).saturating_mul(SECTOR_BYTES)),
    }
}

fn part(disk: &Device, partition: &Partition) -> Part {
    let Partition { number, sectors, .. } = partition;
    let location = location_of(disk, partition);
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
    let (sectors, is_cut) = (sectors.clone(), partition.is_cut());
    let spot = Spot { sectors, is_cut, may_be_member, record: own, ending };
    Part { number: *number, location, device, may_be_member: spot.is_member(), spot }
}
