//! A member as JSON: every field of its superblock as it is on disk, with units in the names.
//!
//! Invariant: numbers stay numbers, and no field is left out because its feature bit is off: the
//! reader has `feature_map`. The all-ones `resync_offset` of a clean array, which JavaScript
//! cannot represent, is null.
//! Called from `examine`.

use std::ffi::OsString;

use anyhow::Result;
use md::ondisk::bitmap::{BITMAP_VERSIONS, BitmapHeader};
use md::ondisk::superblock::{
    Candidate, Checksum, DiskV0, Kernels, Outcome, Superblock, SuperblockV0, SuperblockV1,
    V0_DISK_STATES, V0_STATES, V1_FEATURES,
};
use md::ondisk::{Area, MemberMetadata, Role};
use serde_json::{Map, Value, json};

use super::foreign;
use super::found::{Found, FoundBitmap, Table, User};
use crate::error::text_of;
use crate::mdadm;

/// All that was named: members, or why they cannot be looked at.
pub fn members(all: &[(OsString, Result<Found>)]) -> Value {
    let each = all.iter().map(|(name, found)| match found {
        Ok(found) => member(found),
        Err(error) => json!({"member": name.to_string_lossy(), "error": text_of(error)}),
    });
    json!({"members": each.collect::<Vec<_>>()})
}

fn member(found: &Found) -> Value {
    let mut value = json!({
        "member": found.name,
        "device_sectors": found.sectors,
        "logical_block_bytes": found.logical_block,
        "candidates": found.detection.outcomes.iter().map(candidate).collect::<Vec<_>>(),
        "superblock": null,
        "rescue_map": found.unread,
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
    let (kind, block) = (table.kind.ok().map(|(kind, _)| kind), table.kind.ok().map(|it| it.1));
    json!({
        "kind": kind.map(|kind| kind.to_string()), "block_bytes": block,
        "problem": table.kind.err(), "partitions": table.rows,
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
        "version": place.version, "sector": place.sector, "state": state,
        "says": outcome.to_string(),
    });
    if let Outcome::Invalid(error) = outcome {
        value["error"] = json!(error);
    }
    if let Some(superblock) = superblock {
        let metadata = superblock.metadata();
        value["array_uuid"] = json!(metadata.set_uuid);
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

/// The fields as they are on disk, and what they mean.
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
    let more = json!({
        "features": names(sb.feature_map, V1_FEATURES),
        "name": sb.name(),
        "created_unix_s": sb.ctime.seconds,
        "created_micros": sb.ctime.micros,
        "level_name": mdadm::level(sb.level),
        "layout_name": mdadm::layout(sb.level, sb.layout),
        "ppl_offset_sectors": sb.ppl_offset(),
        "ppl_sectors": sb.ppl_size(),
        "write_mostly": sb.devflags & 1 != 0,
        "failfast": sb.devflags & 2 != 0,
        "updated_unix_s": sb.utime.seconds,
        "updated_micros": sb.utime.micros,
        "resync_offset_sectors": Some(sb.resync_offset).filter(|&at| at != u64::MAX),
        "clean": sb.resync_offset == u64::MAX,
        "max_dev": sb.dev_roles.len(),
        "role": role(&sb.metadata()),
        "slots": super::v1::slots(sb),
    });
    joined([json!(sb), more])
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
    let more = json!({
        "version": "0.90",
        "level_name": mdadm::level(sb.level),
        "states": names(sb.state, V0_STATES),
        "clean": sb.state & 1 != 0,
        "layout_name": mdadm::layout(sb.level, sb.layout),
        "role": role(&sb.metadata()),
        "disks": sb.disks.iter().map(disk).collect::<Vec<_>>(),
        "this_disk": disk(&sb.this_disk),
    });
    joined([json!(sb), more])
}

fn disk(disk: &DiskV0) -> Value {
    joined([json!(disk), json!({"states": names(disk.state, V0_DISK_STATES)})])
}

/// The areas on the device.
fn areas(metadata: &MemberMetadata) -> Value {
    let data = Area { sector: metadata.data_offset, sectors: metadata.data_sectors };
    json!({
        "superblock": {"sector": metadata.super_sector},
        "data": data,
        "bitmap": metadata.bitmap,
        "bad_block_log": metadata.bad_blocks.map(|log| log.area),
        "ppl": metadata.ppl.map(|ppl| ppl.area),
    })
}

fn bitmap(found: &Result<FoundBitmap>) -> Value {
    let found = match found {
        Ok(found) => found,
        Err(error) => return json!({"error": text_of(error)}),
    };
    let header = &found.header;
    let bits = match (&found.states, &found.bits) {
        (Some(Ok(states)), _) => json!({"states": states}),
        (_, Ok(bits)) => json!({"bits": bits.shape().bits(), "dirty_bits": bits.count()}),
        (_, Err(error)) => json!({"bits_error": text_of(error)}),
    };
    let more = json!({"kind": kind(header), "problem": found.wrong()});
    joined([json!(header), more, bits])
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
            let ranges: Vec<Area> = bad.ranges().iter().map(Area::from).collect();
            json!({"ranges": ranges, "bad_sectors": bad.sectors()})
        }
    }
}
