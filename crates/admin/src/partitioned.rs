//! The members among the partitions of a disk without a superblock, or of an image of one.
//!
//! Invariant: everything is opened read-only. A disk with a superblock of its own is a member,
//! whatever table it holds: that table is the array's. Only 0.90 does not say where it belongs, and
//! is in the same place for a disk and for a partition that ends with it; an array does not reach
//! as far as the superblocks of its members, so there a partition that holds it owns it.
//!
//! Called from `members`, and by programs that show disks.

use device::{
    Device, DeviceError, Location, PartitionTable, foreign, partition_tables, signatures,
    superblocks,
};
use md::SECTOR_BYTES;
use md::ondisk::Version;
use md::ondisk::superblock::{Detection, Outcome};

/// A disk with a partition table.
pub struct Inside {
    /// The table, or the reason why it is invalid.
    pub table: Result<PartitionTable, &'static str>,
    /// Its partitions, in the order of the table.
    pub parts: Vec<Part>,
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
    /// The version and the place on the disk of its superblock.
    superblock: Option<(Version, u64)>,
}

impl Inside {
    /// Looks at the partition table of what was opened; nothing where it is a member itself, or has
    /// no table.
    pub fn of(device: &Device) -> Option<Inside> {
        let detection = superblocks(device);
        let own = detection.superblock().map(|(it, _)| (it.version(), it.sector()));
        if own.is_some_and(|(version, _)| version != Version::V0_90) {
            return None;
        }
        // The table is that of the first volume, which begins where the disk does.
        if own.is_none() && foreign(device).metadata.is_some() {
            return None;
        }
        let tables = partition_tables(device).into_iter().map(|table| {
            let parts = table.partitions.iter().map(|it| part(device, it.number, &it.sectors));
            Inside { parts: parts.collect(), table: Ok(table) }
        });
        let mut tables: Vec<Inside> = tables.collect();
        if own.is_some() {
            let owns = |part: &Part| part.superblock == own;
            return tables.into_iter().find(|table| table.parts.iter().any(owns));
        }
        let fits = tables.iter().position(Inside::has_members).unwrap_or(0);
        if fits < tables.len() {
            return Some(tables.swap_remove(fits));
        }
        let is_table = |what: &str| what.ends_with("partition table");
        let damaged = signatures(device).iter().any(|sign| is_table(sign.what));
        let why = "it is damaged; PATH@OFFSET names a partition";
        damaged.then_some(Inside { table: Err(why), parts: Vec::new() })
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

fn part(disk: &Device, number: u32, sectors: &std::ops::Range<u64>) -> Part {
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
    let superblock = detection.as_ref().and_then(Detection::superblock);
    let superblock = superblock.map(|(it, _)| (it.version(), sectors.start + it.sector()));
    Part { number, location, device, may_be_member, superblock }
}
