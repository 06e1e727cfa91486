//! Metadata of other formats than md's, as text and as JSON: Intel's, SNIA's, and the superblock of
//! dm-raid.
//!
//! Invariant: everything that comes from the disk is escaped. Called from `examine`.

use std::fmt::{Display, Write};

use md::SECTOR_BYTES;
use md::foreign::{Detected, Metadata, ddf, dm_raid, imsm};
use md::ondisk::Timestamp;
use serde_json::{Value, json};
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

fn guid(guid: &[u8]) -> String {
    let digits: Vec<String> = guid
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02X}")).collect::<String>())
        .collect();
    digits.join(":")
}

fn ddf_text(out: &mut Lines, tables: &ddf::Tables) {
    let (copy, header) = (&tables.copy, &tables.copy.header);
    out.line("Magic", "de11de11 (DDF)");
    out.line("Version", &header.revision);
    out.line("Container GUID", guid(&header.guid));
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
        out.line("GUID", guid(&config.guid));
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

/// The same as JSON; null if there is nothing.
pub fn json(found: &Detected) -> Value {
    let metadata = match &found.metadata {
        Some(Metadata::Imsm(table)) => {
            let mut value = json!(table);
            value["format"] = "imsm".into();
            value
        }
        Some(Metadata::Ddf(tables)) => ddf_json(tables),
        None => Value::Null,
    };
    let dm_raid = found.dm_raid.as_ref().map(|it| {
        json!({
            "devices": it.devices, "position": it.position, "events": it.events,
            "failed_devices": it.failed, "level": it.level, "layout": it.layout,
            "chunk_sectors": it.chunk_sectors,
        })
    });
    if metadata.is_null() && found.problem.is_none() && dm_raid.is_none() {
        return Value::Null;
    }
    json!({"metadata": metadata, "problem": found.problem, "dm_raid": dm_raid})
}

fn ddf_json(tables: &ddf::Tables) -> Value {
    let (copy, header) = (&tables.copy, &tables.copy.header);
    let disks = copy.disks.iter().map(|disk| {
        json!({
            "guid": guid(&disk.guid), "reference": disk.reference, "type": disk.kind,
            "state": disk.state, "sectors": disk.sectors,
        })
    });
    let virtuals = copy.virtuals.iter().map(|it| {
        json!({
            "guid": guid(&it.guid), "number": it.number, "state": it.state, "init": it.init,
            "name": it.name,
        })
    });
    let configs = copy.configs.iter().map(|it| {
        let elements = it.elements.iter();
        let elements = elements.map(|(disk, start)| json!({"disk": disk, "sector": start}));
        json!({
            "guid": guid(&it.guid), "sequence": it.sequence, "strip_shift": it.strip_shift,
            "level": it.level, "qualifier": it.qualifier,
            "secondary_elements": it.secondary_elements,
            "secondary_number": it.secondary_number, "secondary_level": it.secondary_level,
            "sectors": it.blocks, "array_sectors": it.array_blocks,
            "elements": elements.collect::<Vec<_>>(),
        })
    });
    json!({
        "format": "ddf", "version": header.revision, "sector": tables.sector,
        "header_sector": tables.copy_sector, "checksum_correct": tables.checksum_ok,
        "problems": tables.problems, "guid": guid(&header.guid), "sequence": header.sequence,
        "own_reference": copy.own.1, "spare_records": copy.spares,
        "physical_disks": disks.collect::<Vec<_>>(),
        "virtual_disks": virtuals.collect::<Vec<_>>(),
        "configurations": configs.collect::<Vec<_>>(),
        "block_bytes": SECTOR_BYTES,
    })
}
