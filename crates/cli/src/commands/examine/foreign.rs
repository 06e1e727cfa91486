//! Metadata of other formats than md's, as text and as JSON: Intel's, SNIA's, and the superblock of
//! dm-raid.
//!
//! Invariant: everything that comes from the disk is escaped. Called from `examine`.

use std::fmt::{Display, Write};

use md::SECTOR_BYTES;
use md::foreign::{Detected, Metadata, ddf, dm_raid, imsm};
use md::ondisk::Timestamp;
use serde::Serialize;
use spec::shown::Shown;

use crate::mdadm;

/// Lines of `label : value`.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, label: &str, value: impl Display) {
        let _ = writeln!(self.0, "{label:>15} : {}", Shown(value));
    }

    fn head(&mut self, text: impl Display) {
        let _ = writeln!(self.0, "\n[{}]:", Shown(text));
    }
}

/// What there is, without the name of the member; empty if there is nothing.
pub fn text(found: &Detected) -> String {
    let mut out = Lines::default();
    match &found.metadata {
        Some(Metadata::Imsm(table)) => imsm_text(&mut out, table),
        Some(Metadata::Ddf(tables)) => ddf_text(&mut out, tables),
        None => {}
    }
    if let Some(problem) = &found.problem {
        out.line("BIOS RAID", format_args!("its metadata cannot be read: {problem}"));
    }
    if let Some(superblock) = &found.dm_raid {
        dm_raid_text(&mut out, superblock);
    }
    out.0
}

/// Whether something is wrong with the metadata.
pub fn has_findings(found: &Detected) -> bool {
    let wrong = match &found.metadata {
        Some(Metadata::Imsm(table)) => !table.checksum.is_correct(),
        Some(Metadata::Ddf(tables)) => !tables.checksum_ok || !tables.problems.is_empty(),
        None => false,
    };
    wrong || found.problem.is_some()
}

/// The names of the bits that are set.
fn bits(of: u64, names: &[(&str, u64)]) -> String {
    let set = names.iter().filter(|(_, bit)| *bit != 0 && of & bit == *bit);
    let words: Vec<&str> = set.map(|(name, _)| *name).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

fn name_of(number: u8, names: &[(&str, u64)]) -> String {
    let known = names.iter().find(|(_, known)| *known == u64::from(number));
    known.map_or_else(|| format!("{} ({number})", mdadm::UNKNOWN), |(name, _)| name.to_string())
}

fn time(seconds: u64) -> String {
    match seconds {
        0 => mdadm::UNKNOWN.into(),
        seconds => mdadm::time(Timestamp { seconds, micros: 0 }),
    }
}

fn imsm_text(out: &mut Lines, table: &imsm::Table) {
    out.line("Magic", "Intel Raid ISM Cfg Sig.");
    out.line("Version", &table.version);
    out.line("Orig Family", format_args!("{:08x}", table.orig_family));
    out.line("Family", format_args!("{:08x}", table.family));
    out.line("Generation", table.generation);
    out.line("Creation Time", time(table.created));
    out.line("Block Size", format_args!("{} bytes", table.block_bytes));
    out.line("Sector", table.sector);
    out.line("Checksum", table.checksum);
    if let Some(count) = table.bad_blocks {
        out.line("Bad Blocks", format_args!("{count} ranges"));
    }
    for (index, disk) in table.disks.iter().enumerate() {
        out.0.push('\n');
        out.line(&format!("Disk {index:02}"), &disk.serial);
        out.line("State", bits(disk.status.into(), imsm::DISK_STATES));
        out.line("Size", mdadm::sectors(disk.sectors));
    }
    for volume in &table.volumes {
        imsm_volume(out, volume, table);
    }
}

fn imsm_volume(out: &mut Lines, volume: &imsm::Volume, table: &imsm::Table) {
    let map = &volume.map;
    out.head(&volume.name);
    out.line("RAID Level", map.level);
    out.line("Array Size", mdadm::sectors(volume.sectors));
    out.line("Data Offset", mdadm::sectors(map.offset));
    out.line("Room", mdadm::sectors(map.member_sectors));
    out.line("Chunk Size", format_args!("{}K", map.strip_sectors / 2));
    out.line("Stripes", map.stripes);
    out.line("Map State", name_of(map.state, imsm::MAP_STATES));
    if volume.migrating {
        let (kind, at) = (name_of(volume.migration, imsm::MIGRATIONS), volume.migration_unit);
        out.line("Migration", format_args!("{kind}, at unit {at}"));
    }
    out.line("Dirty State", if volume.dirty & 1 == 0 { "clean" } else { "dirty" });
    for (slot, entry) in map.slots.iter().enumerate() {
        let serial = table.disks.get(entry.disk as usize).map_or("?", |disk| &disk.serial);
        let state = if entry.rebuild { ", does not hold its data" } else { "" };
        out.line(&format!("Slot {slot}"), format_args!("disk {:02} {serial}{state}", entry.disk));
    }
}

fn ddf_text(out: &mut Lines, tables: &ddf::Tables) {
    let (copy, header) = (&tables.copy, &tables.copy.header);
    out.line("Magic", "de11de11 (DDF)");
    out.line("Version", &header.revision);
    out.line("Container GUID", ddf::guid_text(&header.guid));
    out.line("Sequence", header.sequence);
    out.line("Sector", format_args!("{}, header in use {}", tables.sector, tables.copy_sector));
    let verdict = if tables.checksum_ok { "all correct" } else { "wrong" };
    out.line("Checksums", verdict);
    for problem in &tables.problems {
        out.line("Problem", problem);
    }
    out.line("This Disk", format_args!("{:08x}", copy.own.1));
    for disk in &copy.disks {
        let (reference, state) = (disk.reference, bits(disk.state.into(), ddf::DISK_STATES));
        out.line("Disk", format_args!("{reference:08x}, {state}, {} sectors", disk.sectors));
    }
    if copy.spares > 0 {
        out.line("Spare Records", copy.spares);
    }
    for config in &copy.configs {
        let entry = copy.virtuals.iter().find(|entry| entry.guid == config.guid);
        out.head(entry.map_or("?", |entry| &entry.name));
        out.line("GUID", ddf::guid_text(&config.guid));
        out.line("RAID Level", ddf::level_name(config));
        out.line("Array Size", mdadm::sectors(config.array_blocks));
        out.line("Room", mdadm::sectors(config.blocks));
        if config.strip_shift < 32 {
            out.line("Chunk Size", format_args!("{}K", (1_u64 << config.strip_shift) / 2));
        }
        if let Some(entry) = entry {
            let state = name_of(entry.state & 7, &ddf::VIRTUAL_STATES[..7]);
            let more = bits(u64::from(entry.state & 0x18), &ddf::VIRTUAL_STATES[7..]);
            out.line("State", format_args!("{state}; flags: {more}"));
            out.line(
                "Initialised",
                ["no", "quickly", "all of it", "?"][usize::from(entry.init & 3)],
            );
        }
        for (place, (reference, start)) in config.elements.iter().enumerate() {
            let text = format_args!("disk {reference:08x} from sector {start}");
            out.line(&format!("Place {place}"), text);
        }
    }
}

fn dm_raid_text(out: &mut Lines, superblock: &dm_raid::Superblock) {
    let dm_raid::Superblock { devices, position, events, failed, level, .. } = superblock;
    out.line("Magic", "DmRd (dm-raid)");
    let level = mdadm::level(*level);
    out.line(
        "LVM RAID",
        format_args!("metadata of leg {position} of {devices} of a {level} volume"),
    );
    out.line("Events", events);
    out.line("Failed Legs", format_args!("{failed:#x}"));
    out.line(
        "Note",
        "the volume's data are in other logical volumes: its LVM volume group names them",
    );
}

/// The same as JSON.
#[derive(Serialize)]
pub struct ForeignDocument<'a> {
    metadata: Option<MetadataDocument<'a>>,
    problem: Option<&'a str>,
    dm_raid: Option<dm_raid::Superblock>,
}

#[derive(Serialize)]
#[serde(tag = "format", rename_all = "lowercase")]
enum MetadataDocument<'a> {
    Imsm(&'a imsm::Table),
    Ddf(DdfDocument<'a>),
}

#[derive(Serialize)]
struct DdfDocument<'a> {
    version: &'a str,
    sector: u64,
    header_sector: u64,
    checksum_correct: bool,
    problems: &'a [String],
    guid: String,
    sequence: u32,
    own_reference: u32,
    spare_records: usize,
    physical_disks: &'a [ddf::PhysicalDisk],
    virtual_disks: &'a [ddf::VirtualDisk],
    configurations: &'a [ddf::Config],
    block_bytes: u64,
}

impl<'a> ForeignDocument<'a> {
    /// `None`: there is nothing.
    pub fn of(found: &'a Detected) -> Option<ForeignDocument<'a>> {
        let metadata = found.metadata.as_ref().map(|metadata| match metadata {
            Metadata::Imsm(table) => MetadataDocument::Imsm(table),
            Metadata::Ddf(tables) => MetadataDocument::Ddf(DdfDocument::of(tables)),
        });
        let (problem, dm_raid) = (found.problem.as_deref(), found.dm_raid);
        let is_any = metadata.is_some() || problem.is_some() || dm_raid.is_some();
        is_any.then_some(ForeignDocument { metadata, problem, dm_raid })
    }
}

impl<'a> DdfDocument<'a> {
    fn of(tables: &'a ddf::Tables) -> DdfDocument<'a> {
        let (copy, header) = (&tables.copy, &tables.copy.header);
        DdfDocument {
            version: &header.revision,
            sector: tables.sector,
            header_sector: tables.copy_sector,
            checksum_correct: tables.checksum_ok,
            problems: &tables.problems,
            guid: ddf::guid_text(&header.guid),
            sequence: header.sequence,
            own_reference: copy.own.1,
            spare_records: copy.spares,
            physical_disks: &copy.disks,
            virtual_disks: &copy.virtuals,
            configurations: &copy.configs,
            block_bytes: SECTOR_BYTES,
        }
    }
}
