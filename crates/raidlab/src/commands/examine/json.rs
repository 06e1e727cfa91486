//! A member as JSON: every field of its superblock as it is on disk, with units in the names.
//!
//! Invariant: numbers stay numbers, and no field is left out because its feature bit is off: the
//! reader has `feature_map`. The all-ones `resync_offset` of a clean array, which JavaScript
//! cannot represent, is null.
//! Called from `examine`.

use anyhow::Result;
use md::ondisk::bitmap::{BITMAP_VERSIONS, BitmapHeader};
use md::ondisk::superblock::{
    ByteOrder, Candidate, Checksum, DiskV0, Kernels, Outcome, Superblock, SuperblockV0,
    SuperblockV1, V0_DISK_STATES, V0_STATES, V1_FEATURES,
};
use md::ondisk::{Area, MemberMetadata, Role};
use serde_json::{Map, Value, json};

use super::foreign;
use super::found::{Found, FoundBitmap, Row, Table, User};
use crate::error::text_of;
use crate::mdadm;
use crate::members::map_json;

/// One member.
pub fn member(found: &Found) -> Value {
    let mut value = json!({
        "member": found.name,
        "device_sectors": found.sectors,
        "logical_block_bytes": found.logical_block,
        "candidates": found.detection.outcomes.iter().map(candidate).collect::<Vec<_>>(),
        "superblock": null,
        "rescue_map": map_json(found.unread.as_ref()),
        "in_use": found.in_use.as_ref().map(in_use),
    });
    match found.superblock() {
        Some((superblock, checksum)) => {
            value["superblock"] = fields(superblock);
            value["checksum"] = verdict(checksum);
            value["areas"] = areas(&superblock.metadata());
            value["kernel_refusals"] = refusals(found);
            value["bitmap"] = found.bitmap.as_ref().map_or(Value::Null, bitmap);
            value["bad_blocks"] = bad_blocks(found);
        }
        None => {
            value["holds"] = found.contents.iter().map(|sign| sign.to_string()).collect();
            value["packed_as"] = found.packed_as.into();
        }
    }
    value["foreign"] = foreign::json(&found.foreign);
    if let Some(table) = &found.table {
        value["partition_table"] = partition_table(table);
    }
    value
}

fn in_use(user: &User) -> Value {
    let holder = user.holder.as_ref();
    json!({
        "server": user.server, "process": holder.map(|it| it.process),
        "program": holder.map(|it| it.program.as_str()),
    })
}

fn partition_table(table: &Table) -> Value {
    let row = |row: &Row| {
        json!({
            "number": row.number, "member": row.name, "sectors": row.sectors,
            "may_be_member": row.may_be_member,
        })
    };
    let (kind, block) = (table.kind.ok().map(|(kind, _)| kind), table.kind.ok().map(|it| it.1));
    json!({
        "kind": kind.map(|kind| kind.to_string()), "block_bytes": block,
        "problem": table.kind.err(), "partitions": table.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn verdict(checksum: Checksum) -> Value {
    match checksum {
        Checksum::Correct { stored } => json!({"correct": true, "stored": stored}),
        Checksum::Wrong { stored, computed } => {
            json!({"correct": false, "stored": stored, "computed": computed})
        }
    }
}

/// A place where a superblock can be, and what was there.
fn candidate((place, outcome): &(Candidate, Outcome)) -> Value {
    let (state, superblock) = match outcome {
        Outcome::Unreadable(_) => ("unreadable", None),
        Outcome::NoMagic => ("nothing", None),
        Outcome::Invalid(_) => ("invalid", None),
        Outcome::Misplaced { superblock, .. } => ("misplaced", Some(superblock)),
        Outcome::Found { superblock, .. } => ("found", Some(superblock)),
    };
    let mut value = json!({
        "version": place.version.name(), "sector": place.sector, "state": state,
        "says": outcome.to_string(),
    });
    if let Outcome::Invalid(error) = outcome {
        value["error"] = json!({
            "structure": error.structure, "field": error.field, "offset_bytes": error.offset,
            "problem": error.problem,
        });
    }
    if let Some(superblock) = superblock {
        let metadata = superblock.metadata();
        value["array_uuid"] = metadata.set_uuid.to_string().into();
        value["created_unix_s"] = metadata.created.seconds.into();
    }
    value
}

fn refusals(found: &Found) -> Value {
    let refusals = found.refusals.iter().map(|refusal| {
        let kernels = match refusal.kernels() {
            Kernels::All => "all",
            Kernels::UpTo6_18 => "up to 6.18",
        };
        json!({"reason": refusal.to_string(), "kernels": kernels})
    });
    refusals.collect()
}

fn fields(superblock: &Superblock) -> Value {
    match superblock {
        Superblock::V0(superblock) => v0(superblock),
        Superblock::V1(superblock) => v1(superblock),
    }
}

/// Joins groups of fields: the macro's recursion limit restricts the size of a group.
fn joined(groups: impl IntoIterator<Item = Value>) -> Value {
    let mut all = Map::new();
    for group in groups {
        let Value::Object(fields) = group else { continue };
        all.extend(fields);
    }
    Value::Object(all)
}

fn names(bits: u32, table: &[(&str, u64)]) -> Value {
    table.iter().filter(|(_, bit)| u64::from(bits) & bit != 0).map(|(name, _)| *name).collect()
}

fn v1(sb: &SuperblockV1) -> Value {
    let identity = json!({
        "version": sb.version.name(),
        "feature_map": sb.feature_map,
        "features": names(sb.feature_map, V1_FEATURES),
        "pad0": sb.pad0,
        "array_uuid": sb.set_uuid.to_string(),
        "name": sb.name(),
        "name_bytes": sb.set_name,
        "created_unix_s": sb.ctime.seconds,
        "created_micros": sb.ctime.micros,
        "level": sb.level,
        "level_name": mdadm::level(sb.level),
        "layout": sb.layout,
        "layout_name": mdadm::layout(sb.level, sb.layout),
        "used_sectors": sb.size,
        "chunk_sectors": sb.chunksize,
        "raid_disks": sb.raid_disks,
        "bitmap_offset_sectors": sb.bitmap_offset,
        "ppl_offset_sectors": sb.ppl_offset(),
        "ppl_sectors": sb.ppl_size(),
    });
    let reshape = json!({
        "new_level": sb.new_level,
        "reshape_position_sectors": sb.reshape_position,
        "delta_disks": sb.delta_disks,
        "new_layout": sb.new_layout,
        "new_chunk_sectors": sb.new_chunk,
        "new_offset_sectors": sb.new_offset,
    });
    let device = json!({
        "data_offset_sectors": sb.data_offset,
        "data_sectors": sb.data_size,
        "super_offset_sectors": sb.super_offset,
        "recovery_offset_sectors": sb.recovery_offset,
        "dev_number": sb.dev_number,
        "corrected_reads": sb.cnt_corrected_read,
        "device_uuid": sb.device_uuid.to_string(),
        "device_flags": sb.devflags,
        "write_mostly": sb.devflags & 1 != 0,
        "failfast": sb.devflags & 2 != 0,
        "bad_block_log_shift": sb.bblog_shift,
        "bad_block_log_sectors": sb.bblog_size,
        "bad_block_log_offset_sectors": sb.bblog_offset,
    });
    let state = json!({
        "updated_unix_s": sb.utime.seconds,
        "updated_micros": sb.utime.micros,
        "events": sb.events,
        "resync_offset_sectors": Some(sb.resync_offset).filter(|&at| at != u64::MAX),
        "clean": sb.resync_offset == u64::MAX,
        "max_dev": sb.dev_roles.len(),
        "logical_block_bytes": sb.logical_block_size,
        "pad3": sb.pad3,
        "role": role(&sb.metadata()),
        "slots": super::v1::slots(sb),
        "dev_roles": sb.dev_roles,
    });
    joined([identity, reshape, device, state])
}

/// The role of the device as a word, and its slot if it has one.
fn role(metadata: &MemberMetadata) -> Value {
    match metadata.role {
        Role::Slot(slot) if metadata.replacement => json!({"is": "replacement", "slot": slot}),
        Role::Slot(slot) => json!({"is": "active", "slot": slot}),
        Role::Spare => json!({"is": "spare"}),
        Role::Faulty => json!({"is": "faulty"}),
        Role::Journal => json!({"is": "journal"}),
    }
}

fn v0(sb: &SuperblockV0) -> Value {
    let identity = json!({
        "version": "0.90",
        "byte_order": match sb.byte_order {
            ByteOrder::Little => "little",
            ByteOrder::Big => "big",
        },
        "minor_version": sb.minor_version,
        "patch_version": sb.patch_version,
        "gvalid_words": sb.gvalid_words,
        "array_uuid": sb.set_uuid.to_string(),
        "created_unix_s": sb.ctime,
        "level": sb.level,
        "level_name": mdadm::level(sb.level),
        "used_kib": sb.size,
        "nr_disks": sb.nr_disks,
        "raid_disks": sb.raid_disks,
        "md_minor": sb.md_minor,
        "not_persistent": sb.not_persistent,
        "constant_reserved": sb.constant_reserved,
        "super_offset_sectors": sb.sector,
    });
    let state = json!({
        "updated_unix_s": sb.utime,
        "state": sb.state,
        "states": names(sb.state, V0_STATES),
        "clean": sb.state & 1 != 0,
        "active_disks": sb.active_disks,
        "working_disks": sb.working_disks,
        "failed_disks": sb.failed_disks,
        "spare_disks": sb.spare_disks,
        "events": sb.events,
        "checkpoint_events": sb.cp_events,
        "resync_checkpoint_sectors": sb.recovery_cp,
        "state_reserved": sb.state_reserved,
    });
    let geometry = json!({
        "reshape_position_sectors": sb.reshape_position,
        "new_level": sb.new_level,
        "delta_disks": sb.delta_disks,
        "new_layout": sb.new_layout,
        "new_chunk_bytes": sb.new_chunk,
        "layout": sb.layout,
        "layout_name": mdadm::layout(sb.level, sb.layout),
        "chunk_bytes": sb.chunk_size,
        "personality_reserved": sb.personality_reserved.as_slice(),
        "role": role(&sb.metadata()),
        "disks": sb.disks.iter().map(disk).collect::<Vec<_>>(),
        "this_disk": disk(&sb.this_disk),
    });
    joined([identity, state, geometry])
}

fn disk(disk: &DiskV0) -> Value {
    json!({
        "number": disk.number, "major": disk.major, "minor": disk.minor,
        "raid_disk": disk.raid_disk, "state": disk.state,
        "states": names(disk.state, V0_DISK_STATES), "reserved": disk.reserved.as_slice(),
    })
}

/// The areas on the device.
fn areas(metadata: &MemberMetadata) -> Value {
    let at = |area: Area| json!({"sector": area.sector, "sectors": area.sectors});
    let data = Area { sector: metadata.data_offset, sectors: metadata.data_sectors };
    json!({
        "superblock": {"sector": metadata.super_sector},
        "data": at(data),
        "bitmap": metadata.bitmap.map(at),
        "bad_block_log": metadata.bad_blocks.map(|log| at(log.area)),
        "ppl": metadata.ppl.map(|ppl| at(ppl.area)),
    })
}

fn bitmap(found: &Result<FoundBitmap>) -> Value {
    let found = match found {
        Ok(found) => found,
        Err(error) => return json!({"error": text_of(error)}),
    };
    let header = &found.header;
    let bits = match (&found.states, &found.bits) {
        (Some(Ok(states)), _) => json!({"states": {
            "unwritten": states.unwritten,
            "clean": states.clean,
            "dirty": states.dirty,
            "need_sync": states.need_sync,
            "syncing": states.syncing,
            "other": states.other,
        }}),
        (_, Ok(bits)) => json!({"bits": bits.shape().bits(), "dirty_bits": bits.count()}),
        (_, Err(error)) => json!({"bits_error": text_of(error)}),
    };
    let fields = json!({
        "version": header.version,
        "uuid": header.uuid.to_string(),
        "events": header.events,
        "events_cleared": header.events_cleared,
        "sync_sectors": header.sync_size,
        "state": header.state,
        "chunk_bytes": header.chunk_bytes,
        "daemon_sleep_s": header.daemon_sleep_s,
        "write_behind": header.write_behind,
        "sectors_reserved": header.sectors_reserved,
        "nodes": header.nodes,
        "kind": kind(header),
        "problem": found.wrong(),
    });
    joined([fields, bits])
}

fn kind(header: &BitmapHeader) -> Option<&'static str> {
    let named = |(_, number): &&(&str, u64)| *number == u64::from(header.version);
    BITMAP_VERSIONS.iter().find(named).map(|(name, _)| *name)
}

fn bad_blocks(found: &Found) -> Value {
    match &found.bad_blocks {
        None => Value::Null,
        Some(Err(error)) => json!({"error": text_of(error)}),
        Some(Ok(bad)) => {
            let ranges = bad.ranges().iter();
            let ranges = ranges
                .map(|range| json!({"sector": range.start, "sectors": range.end - range.start}));
            json!({"ranges": ranges.collect::<Vec<_>>(), "bad_sectors": bad.sectors()})
        }
    }
}
