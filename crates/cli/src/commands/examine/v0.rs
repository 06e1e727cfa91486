//! A superblock 0.90 as `mdadm --examine` shows it.
//!
//! Invariant: the descriptors are shown as they are, with the device numbers that the machine had
//! when they were written; a name for such a number would be a guess. Called from `examine`.

use std::fmt::Write;

use md::ondisk::Timestamp;
use md::ondisk::superblock::{Checksum, DISKS_MAX, DiskV0, SuperblockV0};
use spec::shown::Shown;

use crate::mdadm;

/// All lines, each with its end.
pub fn text(sb: &SuperblockV0, checksum: Checksum, home_host: &str) -> String {
    let mut out = String::new();
    identity(&mut out, sb, home_host);
    out.push('\n');
    reshape(&mut out, sb);
    state(&mut out, sb, checksum);
    out.push('\n');
    if let Some(layout) = mdadm::layout(sb.level, sb.layout).filter(|_| sb.level > 0) {
        line(&mut out, "Layout", layout);
    }
    match sb.level {
        0 | 4 | 5 | 6 | 10 => line(&mut out, "Chunk Size", kib(sb.chunk_size)),
        -1 => line(&mut out, "Rounding", kib(sb.chunk_size)),
        _ => {}
    }
    out.push('\n');
    disks(&mut out, sb);
    out
}

fn line(out: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{label:>15} : {}", Shown(value));
}

fn kib(bytes: u32) -> String {
    format!("{}K", bytes / 1024)
}

fn identity(out: &mut String, sb: &SuperblockV0, home_host: &str) {
    line(out, "Magic", "a92b4efc");
    let minor = sb.minor_version;
    line(out, "Version", format_args!("0.{minor:02}.{:02}", sb.patch_version));
    let local = mdadm::local_to_v0(sb.set_uuid, home_host);
    line(out, "UUID", format_args!("{}{local}", sb.set_uuid));
    line(out, "Creation Time", time(sb.ctime));
    line(out, "Raid Level", mdadm::level(sb.level));
    if sb.level > 0 {
        line(out, "Used Dev Size", mdadm::kib(u128::from(sb.size) * 2));
        if let Some(sectors) = array_sectors(sb) {
            line(out, "Array Size", mdadm::kib(sectors));
        }
    }
    line(out, "Raid Devices", sb.raid_disks.cast_signed());
    line(out, "Total Devices", sb.nr_disks.cast_signed());
    line(out, "Preferred Minor", sb.md_minor.cast_signed());
}

fn array_sectors(sb: &SuperblockV0) -> Option<u128> {
    let disks = u128::from(sb.raid_disks);
    let (numerator, denominator) = match sb.level {
        1 => (1, 1),
        4 | 5 => (disks.checked_sub(1)?, 1),
        6 => (disks.checked_sub(2)?, 1),
        10 => (disks, u128::from((sb.layout & 0xff) * (sb.layout >> 8 & 0xff))),
        _ => return None,
    };
    let sectors = u128::from(sb.size) * 2 * numerator;
    (numerator > 0).then(|| sectors.checked_div(denominator)).flatten()
}

fn time(seconds: u32) -> String {
    mdadm::time(Timestamp { seconds: seconds.into(), micros: 0 })
}

fn reshape(out: &mut String, sb: &SuperblockV0) {
    if sb.minor_version <= 90 {
        return;
    }
    line(out, "Reshape pos'n", mdadm::kib(sb.reshape_position.into()));
    if sb.delta_disks != 0 {
        let after = sb.raid_disks.cast_signed();
        let before = after.wrapping_sub(sb.delta_disks);
        line(out, "Delta Devices", format_args!("{} ({before}->{after})", sb.delta_disks));
    }
    if sb.new_level != sb.level {
        line(out, "New Level", mdadm::level(sb.new_level));
    }
    if sb.level > 0
        && sb.new_layout != sb.layout
        && let Some(layout) = mdadm::layout(sb.level, sb.new_layout)
    {
        line(out, "New Layout", layout);
    }
    if sb.new_chunk != sb.chunk_size {
        line(out, "New Chunksize", sb.new_chunk);
    }
    out.push('\n');
}

fn state(out: &mut String, sb: &SuperblockV0, checksum: Checksum) {
    line(out, "Update Time", time(sb.utime));
    line(out, "State", if sb.state & 1 != 0 { "clean" } else { "active" });
    if sb.state & (1 << 8) != 0 {
        line(out, "Internal Bitmap", "present");
    }
    line(out, "Active Devices", sb.active_disks.cast_signed());
    line(out, "Working Devices", sb.working_disks.cast_signed());
    line(out, "Failed Devices", sb.failed_disks.cast_signed());
    line(out, "Spare Devices", sb.spare_disks.cast_signed());
    line(out, "Checksum", checksum);
    line(out, "Events", sb.events);
}

fn disks(out: &mut String, sb: &SuperblockV0) {
    out.push_str("      Number   Major   Minor   RaidDevice State\n");
    disk(out, "this", &sb.this_disk);
    out.push('\n');
    // As mdadm does: a failed disk whose descriptor lies behind slots and spares is not listed.
    let slots = sb.raid_disks.saturating_add_signed(leaving(sb));
    let listed = DISKS_MAX.min(slots.saturating_add(sb.spare_disks) as usize);
    for (number, entry) in sb.disks[..listed].iter().enumerate() {
        disk(out, &number.to_string(), entry);
    }
}

fn leaving(sb: &SuperblockV0) -> i32 {
    if sb.minor_version > 90 && sb.delta_disks < 0 { sb.delta_disks.saturating_neg() } else { 0 }
}

fn disk(out: &mut String, name: &str, disk: &DiskV0) {
    const STATES: [(u32, &str); 6] = [
        (1 << 0, " faulty"),
        (1 << 1, " active"),
        (1 << 2, " sync"),
        (1 << 3, " removed"),
        (1 << 9, " write-mostly"),
        (1 << 10, " failfast"),
    ];
    let set = STATES.into_iter().filter(|(bit, _)| disk.state & bit != 0);
    let mut states: String = set.map(|(_, name)| name).collect();
    if disk.state & 0b1111 == 0 {
        states.push_str(" spare");
    }
    let [number, major, minor, slot] =
        [disk.number, disk.major, disk.minor, disk.raid_disk].map(u32::cast_signed);
    let _ =
        writeln!(out, "{name:>4} {number:>5}   {major:>5}    {minor:>5}    {slot:>5}     {states}");
}
