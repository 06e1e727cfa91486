//! Cells of `raidlab bench --target linux` as tables: what the law's constants are fitted to.
//!
//! Invariant: each figure is a cell's rate as it was measured; a cell that the law has no word for
//! is left out. Drives of one profile, on one file system, with and without a bitmap, are a
//! system each, which has the figures of the single disk.

use std::collections::BTreeMap;

use drive::{Kind, Profile};
use results::record::{Cell, Record};
use serde_json::{Value, json};
use spec::members::RecordedMembers;
use spec::target::TargetExpr;
use spec::workload::AccessKind;

/// The document of `raidlab predict --tables`.
pub fn document(records: &[Record]) -> Value {
    let cells: Vec<&Cell> = records.iter().flat_map(|record| &record.cells).collect();
    let mut systems = serde_json::Map::new();
    let mut rows = Vec::new();
    for (name, own) in by_system(&cells) {
        let Some(facts) = facts(own[0]) else { continue };
        systems.insert(name.clone(), json!({ "facts": facts }));
        rows.extend(own.iter().enumerate().filter_map(|(at, cell)| row(&name, at, cell)));
    }
    json!({ "systems": systems, "records": rows })
}

/// Drive, file system and bitmap of a system's arrays; the single disks of the same drive and file
/// system are in each.
fn by_system<'c>(cells: &[&'c Cell]) -> BTreeMap<String, Vec<&'c Cell>> {
    let mut systems: BTreeMap<String, Vec<&Cell>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| !cell.is_single()) {
        let bitmap = if has_bitmap(cell) { ", bitmap" } else { "" };
        systems.entry(base(cell) + bitmap).or_default().push(cell);
    }
    for own in systems.values_mut() {
        let same = base(own[0]);
        own.extend(cells.iter().filter(|cell| cell.is_single() && base(cell) == same));
    }
    systems
}

fn base(cell: &Cell) -> String {
    let drive = RecordedMembers(&cell.case.members).first().trim_start_matches("paced:");
    let place = cell.case.place.as_ref();
    let fs = place.and_then(|place| place.file_system.as_deref()).unwrap_or("raw");
    // Requests past the page cache, and a program's.
    let is_direct =
        cell.case.program.is_none() && cell.case.workload.known() == Some(AccessKind::SeqRead);
    format!("{drive}, {fs}{}", if is_direct { ", direct" } else { "" })
}

fn has_bitmap(cell: &Cell) -> bool {
    let of = cell.case.place.as_ref().and_then(|place| place.bitmap.as_deref());
    of.is_some_and(|bitmap| bitmap != "none")
}

fn bitmap_chunk_kib(cell: &Cell) -> Option<u64> {
    let place: TargetExpr = cell.case.place.as_ref()?.name.parse().ok()?;
    Some(place.kernel()?.bitmap_chunk_bytes? / 1024)
}

/// What is known of the system before anything is measured: the class of its disks, md's settings.
fn facts(cell: &Cell) -> Option<Value> {
    let drive = RecordedMembers(&cell.case.members).first();
    let name = drive.trim_start_matches("paced:").split(['@', ':']).next()?;
    let profile = Profile::named(name)?;
    let number = |field: &str| {
        profile.numbers().iter().find(|number| number.field == field).map(|number| number.value)
    };
    let disk = match profile.kind() {
        Kind::Rotating => json!({
            "rpm": number("rpm"),
            "seek_ms": number("seek_average_ms"),
            "shingled": profile.is_shingled(),
        }),
        Kind::Solid => json!({ "type": "ssd" }),
    };
    let place = cell.case.place.as_ref()?;
    Some(json!({
        "kernel": place.kernel,
        "fs": place.file_system,
        "disks": [disk],
        "bitmap": has_bitmap(cell),
        "bitmap_chunk_kib": bitmap_chunk_kib(cell),
        "member_bytes": cell.case.member_bytes,
        "tool": cell.case.program,
        // What the modelled CPU takes for a page that is copied, and enters or leaves the cache,
        // and for a request.
        "cpu_read_us_per_kib": 0.55,
        "cpu_write_us_per_kib": 0.95,
        "request_us": 2.1,
    }))
}

fn row(system: &str, at: usize, cell: &Cell) -> Option<Value> {
    let case = &cell.case;
    let (workload, unit, value) = figure(cell)?;
    let place = case.place.as_ref()?;
    let knob = |name: &str| place.knobs.get(name).and_then(|text| text.parse::<f64>().ok());
    let degraded = (case.degraded > 0).then_some(case.degraded);
    let has_depth = matches!(workload, "random read" | "random write" | "large direct read");
    Some(json!({
        "id": format!("{system}/{at}"),
        "system_id": system,
        "level": case.level.to_string(),
        "layout": case.layout.as_ref().map(ToString::to_string),
        "disks": case.disks,
        "chunk_kib": case.chunk_kib,
        "missing": degraded,
        "workload": workload,
        "unit": unit,
        "value": value,
        "block_kib": case.block_kib,
        "depth": has_depth.then_some(case.depth),
        "jobs": has_depth.then_some(case.jobs),
        "read_ahead_kib": place.read_ahead_kib,
        "stripe_cache": knob("stripe_cache_size"),
        "group_threads": knob("group_thread_cnt"),
        "sync_speed_max": knob("sync_speed_max"),
    }))
}

/// The law's word for the workload, the unit and the rate.
fn figure(cell: &Cell) -> Option<(&'static str, &'static str, f64)> {
    let case = &cell.case;
    if let Some(work) = case.background.as_deref() {
        let word = match work {
            "scrub" => "check",
            "rebuild" | "resync" => "resync",
            _ => return None,
        };
        return Some((word, "MB/s", cell.measured.background_mb_per_s?));
    }
    let (rate, operations) = (cell.derived.mb_per_s, cell.derived.iops);
    let mb = |word| Some((word, "MB/s", rate)).filter(|(_, _, rate)| *rate > 0.0);
    let per_s = |word| Some((word, "/s", operations)).filter(|(_, _, rate)| *rate > 0.0);
    let kind = case.workload.known()?;
    let Some(program) = case.program.as_deref() else {
        return match kind {
            AccessKind::RandRead => per_s("random read"),
            AccessKind::RandWrite => per_s("random write"),
            AccessKind::SeqRead => mb("large direct read"),
            _ => None,
        };
    };
    let program = program.split('-').next().unwrap_or(program);
    match (program, case.phase.as_deref()?) {
        ("bonnie++", "put-block") | ("dd", "write") => mb("seq write"),
        ("bonnie++", "get-block") | ("dd", "read") => mb("seq read"),
        ("bonnie++", "rewrite") => mb("rewrite"),
        ("bonnie++", "seeks") => per_s("seeks"),
        ("streams", phase) if phase.contains("read") => mb("streams read"),
        ("streams", phase) if phase.contains("write") => mb("streams write"),
        _ => None,
    }
}
