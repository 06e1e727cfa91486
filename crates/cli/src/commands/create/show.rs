//! The plan of a new array, as text and as JSON.
//!
//! Called from `create`.

use std::fmt::Write;

use md::create::{DeviceLayout, Plan, Request};
use md::ondisk::{Area, Role, Uuid, Version};
use serde::Serialize;
use spec::shown::Shown;

use crate::commands::detail::policy_name;
use crate::mdadm;

/// The plan as text: properties of the array, and the areas on its members.
pub fn text(request: &Request, plan: &Plan, dry_run: bool) -> String {
    let mut out = String::new();
    let mut line = |label: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{label:>18} : {}", Shown(value));
    };
    let geometry = &plan.geometry;
    line("Version", &plan.version);
    line("Raid Level", &request.level);
    line("Array Size", &mdadm::kib(geometry.array_sectors().into()));
    if plan.used_sectors > 0 {
        line("Used Dev Size", &mdadm::kib(plan.used_sectors.into()));
    }
    line("Raid Devices", &request.raid_devices);
    line("Spare Devices", &(request.devices.len() - request.raid_devices));
    let layout = mdadm::layout(request.level.number(), geometry.layout().number().cast_unsigned());
    if let Some(layout) = layout {
        line("Layout", &layout);
    }
    if request.level.has_chunks() {
        line("Chunk Size", &format_args!("{}K", geometry.chunk_sectors() / 2));
    }
    line("Consistency Policy", &policy_name(plan.policy));
    if let Some(bitmap) = &plan.bitmap {
        line("Bitmap Chunk", &mdadm::bitmap_chunk(bitmap.header.chunk_bytes));
    }
    if !request.name.is_empty() {
        line("Name", &request.name);
    }
    line("UUID", &request.set_uuid);
    let zeroes = request.members_are_zero && !request.assume_clean;
    let first_sync = match (plan.resync_offset, zeroes) {
        (Some(_), _) => "pending",
        (None, true) => "none: all members are new files of zeroes",
        (None, false) if request.assume_clean => "none: the members are assumed to be in sync",
        (None, false) => "none",
    };
    line("First Resync", &first_sync);
    out.push_str("\n    Number   RaidDevice   Data Offset   Data Size       Member\n");
    for place in &plan.places {
        let slot = match place.role {
            Role::Slot(slot) => slot.to_string(),
            _ => "spare".into(),
        };
        let (offset, size) = (place.data_offset, place.data_sectors);
        let number = place.dev_number;
        let label = Shown(label(request, place));
        let _ =
            writeln!(out, "    {number:>6}   {slot:>10}   {offset:>8} s    {size:>12} s   {label}");
    }
    for warning in &plan.warnings {
        let _ = writeln!(out, "Mind: {}", Shown(warning));
    }
    if dry_run {
        out.push_str("Nothing was written (--dry-run).\n");
    }
    out
}

fn label<'a>(request: &'a Request, place: &DeviceLayout) -> &'a str {
    request.devices[place.device].as_ref().map_or("missing", |device| device.label.as_str())
}

/// The plan as JSON.
#[derive(Serialize)]
pub struct PlanDocument<'a> {
    dry_run: bool,
    array_uuid: Uuid,
    name: &'a str,
    version: Version,
    level: &'static str,
    layout: Option<String>,
    chunk_sectors: u64,
    raid_disks: usize,
    array_sectors: u64,
    used_sectors: u64,
    consistency_policy: &'static str,
    resync: bool,
    members: Vec<MemberDocument<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct MemberDocument<'a> {
    member: &'a str,
    dev_number: u32,
    slot: Option<u16>,
    data_offset_sectors: u64,
    data_sectors: u64,
    super_offset_sectors: u64,
    bitmap: Option<Area>,
    bad_block_log: Option<Area>,
    ppl: Option<Area>,
}

impl<'a> PlanDocument<'a> {
    pub fn of(request: &'a Request, plan: &'a Plan, dry_run: bool) -> PlanDocument<'a> {
        let members = plan.places.iter().map(|place| MemberDocument {
            member: label(request, place),
            dev_number: place.dev_number,
            slot: match place.role {
                Role::Slot(slot) => Some(slot),
                _ => None,
            },
            data_offset_sectors: place.data_offset,
            data_sectors: place.data_sectors,
            super_offset_sectors: place.super_sector,
            bitmap: place.bitmap,
            bad_block_log: place.bad_blocks,
            ppl: place.ppl,
        });
        let layout = plan.geometry.layout().number().cast_unsigned();
        PlanDocument {
            dry_run,
            array_uuid: request.set_uuid,
            name: &request.name,
            version: plan.version,
            level: request.level.name(),
            layout: mdadm::layout(request.level.number(), layout),
            chunk_sectors: plan.geometry.chunk_sectors(),
            raid_disks: request.raid_devices,
            array_sectors: plan.geometry.array_sectors(),
            used_sectors: plan.used_sectors,
            consistency_policy: policy_name(plan.policy),
            resync: plan.resync_offset.is_some(),
            members: members.collect(),
            warnings: &plan.warnings,
        }
    }
}
