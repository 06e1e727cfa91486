//! A superblock 1.x as `mdadm --examine` shows it: the same labels, order and formats.
//!
//! Invariant: what the kernel would not interpret (a field whose feature bit is off) is not shown;
//! mdadm does the same. Called from `examine`.

use std::fmt::Write;

use md::ondisk::Version;
use md::ondisk::bitmap::BitmapHeader;
use md::ondisk::superblock::{Checksum, SuperblockV1, feature};
use spec::shown::Shown;

use crate::mdadm;

/// Distance in sectors that kernels keep between moved data and a superblock.
const SUPERBLOCK_ROOM_SECTORS: u64 = 72;

/// The role that is the journal's.
const ROLE_JOURNAL: u16 = 0xfffd;

/// All lines, each with its end.
pub fn text(
    sb: &SuperblockV1,
    checksum: Checksum,
    device_sectors: u64,
    bitmap: Option<&BitmapHeader>,
    home_host: &str,
) -> String {
    let mut out = String::new();
    identity(&mut out, sb, home_host);
    sizes(&mut out, sb, device_sectors, bitmap);
    out.push('\n');
    areas(&mut out, sb);
    reshape(&mut out, sb);
    state(&mut out, sb, checksum);
    out.push('\n');
    shape(&mut out, sb);
    out.push('\n');
    roles(&mut out, sb);
    out
}

fn line(out: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{label:>15} : {}", Shown(value));
}

fn identity(out: &mut String, sb: &SuperblockV1, home_host: &str) {
    line(out, "Magic", "a92b4efc");
    line(out, "Version", sb.version);
    line(out, "Feature Map", format_args!("{:#x}", sb.feature_map));
    line(out, "Array UUID", sb.set_uuid);
    let name = sb.name();
    line(out, "Name", format_args!("{name}{}", mdadm::local_to(&name, home_host)));
    line(out, "Creation Time", mdadm::time(sb.ctime));
    line(out, "Raid Level", mdadm::level(sb.level));
    line(out, "Raid Devices", sb.raid_disks.cast_signed());
    out.push('\n');
}

fn sizes(out: &mut String, sb: &SuperblockV1, device_sectors: u64, bitmap: Option<&BitmapHeader>) {
    line(out, "Avail Dev Size", mdadm::sectors(sb.data_size));
    if let Some(sectors) = array_sectors(sb) {
        let size = mdadm::sector_size(sectors);
        line(out, "Array Size", format_args!("{} KiB{size}", sectors / 2));
    }
    if sb.size != sb.data_size && sb.level != 0 {
        line(out, "Used Dev Size", mdadm::sectors(sb.size));
    }
    if sb.data_offset != 0 {
        line(out, "Data Offset", format_args!("{} sectors", sb.data_offset));
    }
    if sb.new_offset != 0 && sb.has(feature::NEW_OFFSET) {
        let offset = sb.data_offset.wrapping_add_signed(sb.new_offset.into());
        line(out, "New Offset", format_args!("{offset} sectors"));
    }
    line(out, "Super Offset", format_args!("{} sectors", sb.super_offset));
    if sb.has(feature::RECOVERY_OFFSET) {
        line(out, "Recovery Offset", format_args!("{} sectors", sb.recovery_offset));
    }
    let (before, after) = unused_sectors(sb, device_sectors, bitmap);
    let moves = sb.has(feature::NEW_OFFSET);
    if !moves && (before != 0 || after != 0) {
        let text = format!("before={before} sectors, after={after} sectors");
        line(out, "Unused Space", text);
    }
    line(out, "State", if sb.resync_offset == u64::MAX { "clean" } else { "active" });
    line(out, "Device UUID", sb.device_uuid);
}

/// The array's size in sectors, where it follows from one member.
fn array_sectors(sb: &SuperblockV1) -> Option<u128> {
    let disks = u128::from(sb.raid_disks);
    let (numerator, denominator) = match sb.level {
        1 => (1, 1),
        4 | 5 => (disks.checked_sub(1)?, 1),
        6 => (disks.checked_sub(2)?, 1),
        10 => (disks, u128::from((sb.layout & 0xff) * (sb.layout >> 8 & 0xff))),
        _ => return None,
    };
    if numerator == 0 || denominator == 0 {
        return None;
    }
    Some(u128::from(sb.size) * numerator / denominator)
}

/// Sectors in front of and behind the data that nothing uses: room for a reshape. Negative behind
/// data that are longer than the device.
fn unused_sectors(
    sb: &SuperblockV1,
    device_sectors: u64,
    bitmap: Option<&BitmapHeader>,
) -> (u64, i128) {
    let has_ppl = sb.feature_map & (feature::PPL | feature::MULTIPLE_PPLS) != 0;
    let bitmap_offset =
        if sb.has(feature::BITMAP_OFFSET) { i64::from(sb.bitmap_offset) } else { 0 };
    let bad_blocks = i64::from(sb.bblog_offset);
    let is_journal = sb.dev_roles.get(sb.dev_number as usize) == Some(&ROLE_JOURNAL);
    let used = if sb.level > 0 { sb.size } else { sb.data_size };
    if sb.version == Version::V1_0 {
        let ppl = if has_ppl { i64::from(sb.ppl_offset()) } else { 0 };
        let first = [bitmap_offset, bad_blocks, ppl].into_iter().min().unwrap_or(0).min(0);
        let end = sb.super_offset.saturating_add_signed(first);
        let after = end.saturating_sub(sb.data_offset.saturating_add(used));
        return (sb.data_offset, after.into());
    }
    let mut earliest = SUPERBLOCK_ROOM_SECTORS.cast_signed();
    if bitmap_offset > 0 {
        earliest = earliest.max(bitmap_offset + bitmap.map_or(0, bitmap_sectors));
    }
    if bad_blocks > 0 {
        earliest = earliest.max(bad_blocks + i64::from(sb.bblog_size));
    }
    if has_ppl {
        earliest = earliest.max(i64::from(sb.ppl_offset()) + i64::from(sb.ppl_size()));
    }
    let metadata_end = sb.super_offset.saturating_add_signed(earliest);
    let after = i128::from(device_sectors) - i128::from(sb.data_offset) - i128::from(used);
    // A journal is used to its end.
    let after = if is_journal { 0 } else { after };
    (sb.data_offset.saturating_sub(metadata_end), after)
}

/// Whole pages of a bitmap, as its own header has it.
fn bitmap_sectors(header: &BitmapHeader) -> i64 {
    let chunk_sectors = u64::from(header.chunk_bytes / 512).max(1);
    let bytes = (header.sync_size / chunk_sectors).div_ceil(8).saturating_add(256);
    (bytes.div_ceil(4096).saturating_mul(8)).try_into().unwrap_or(i64::MAX >> 1)
}

fn areas(out: &mut String, sb: &SuperblockV1) {
    if sb.has(feature::BITMAP_OFFSET) {
        let text = format!("{} sectors from superblock", sb.bitmap_offset);
        line(out, "Internal Bitmap", text);
    }
    if sb.feature_map & (feature::PPL | feature::MULTIPLE_PPLS) != 0 {
        let (sectors, offset) = (sb.ppl_size(), sb.ppl_offset());
        line(
            out,
            "PPL",
            format_args!("{sectors} sectors at offset {offset} sectors from superblock"),
        );
    }
}

fn reshape(out: &mut String, sb: &SuperblockV1) {
    if !sb.has(feature::RESHAPE_ACTIVE) {
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
    if sb.new_chunk != sb.chunksize {
        line(out, "New Chunksize", format_args!("{}K", sb.new_chunk / 2));
    }
    out.push('\n');
}

fn state(out: &mut String, sb: &SuperblockV1, checksum: Checksum) {
    if sb.devflags != 0 {
        let flags = [(1, " write-mostly"), (2, " failfast")];
        let set = flags.into_iter().filter(|(bit, _)| sb.devflags & bit != 0);
        let _ = writeln!(out, "{:>15} :{}", "Flags", set.map(|(_, name)| name).collect::<String>());
    }
    line(out, "Update Time", mdadm::time(sb.utime));
    if sb.bblog_size != 0 && sb.bblog_offset != 0 {
        let entries = u32::from(sb.bblog_size) * 64;
        let present = if sb.has(feature::BAD_BLOCKS) { " - bad blocks present." } else { "" };
        let offset = sb.bblog_offset;
        let text = format!("{entries} entries available at offset {offset} sectors{present}");
        line(out, "Bad Block Log", text);
    }
    line(out, "Checksum", checksum);
    line(out, "Events", sb.events);
}

fn shape(out: &mut String, sb: &SuperblockV1) {
    // A RAID 0 stores a number even where nothing says that it holds.
    let holds = sb.level != 0 || sb.has(feature::RAID0_LAYOUT);
    if let Some(layout) = mdadm::layout(sb.level, sb.layout).filter(|_| holds) {
        line(out, "Layout", layout);
    }
    match sb.level {
        0 | 4 | 5 | 6 | 10 => line(out, "Chunk Size", format_args!("{}K", sb.chunksize / 2)),
        -1 => line(out, "Rounding", format_args!("{}K", sb.chunksize / 2)),
        _ => {}
    }
}

fn roles(out: &mut String, sb: &SuperblockV1) {
    let role = sb.dev_roles.get(sb.dev_number as usize).copied().unwrap_or(0xffff);
    let is_replacement = sb.has(feature::REPLACEMENT);
    let text = match role {
        0xfffe.. => "spare".into(),
        ROLE_JOURNAL => "Journal".into(),
        slot if is_replacement => format!("Replacement device {slot}"),
        slot => format!("Active device {slot}"),
    };
    // One column further left than all the rest.
    let _ = writeln!(out, "   Device Role : {text}");
    let legend = "('A' == active, '.' == missing, 'R' == replacing)";
    let _ = writeln!(out, "   Array State : {} {legend}", slots(sb));
}

/// Maximum number of slots: the number of roles in a superblock.
const SLOTS_SHOWN: u32 = 1920;

/// A letter for each slot, those that a shrinking array is about to lose included. Damage can
/// claim four billion slots: those that no superblock can describe are only counted.
pub fn slots(sb: &SuperblockV1) -> String {
    let leaving = match sb.has(feature::RESHAPE_ACTIVE) && sb.delta_disks < 0 {
        true => sb.delta_disks.unsigned_abs(),
        false => 0,
    };
    let count = sb.raid_disks.saturating_add(leaving);
    let shown = count.min(SLOTS_SHOWN);
    let mut members = vec![0_u32; shown as usize];
    for &role in &sb.dev_roles {
        if let Some(members) = members.get_mut(usize::from(role)) {
            *members += 1;
        }
    }
    let letter = |members: u32| match members {
        0 => '.',
        1 => 'A',
        2 => 'R',
        _ => '?',
    };
    let mut text: String = members.into_iter().map(letter).collect();
    if count > shown {
        let _ = write!(text, " and {} more", count - shown);
    }
    text
}
