//! A made-up record in the shape of the default matrix, for the tests here and those of `report`,
//! which includes this file: a feature for it would have this crate, and all above it, compiled
//! twice.
//!
//! Invariant: compiled for tests only. Its figures are computed, not measured; they must never be
//! shown as a result.

use std::time::{Duration, UNIX_EPOCH};

use crate::host::{Backing, Host};
use crate::record::{Cell, Latency, MemberTraffic, Record, Sample};

/// Workload, block KiB, depth, MB/s of the ordinary disk, p50 in us.
const WORKLOADS: [(&str, f64, u32, f64, f64); 4] = [
    ("seq-read", 1024.0, 4, 82.0, 50_000.0),
    ("rand-read", 4.0, 16, 0.63, 100_000.0),
    ("seq-write", 1024.0, 4, 81.0, 51_000.0),
    ("rand-write", 4.0, 16, 0.67, 96_000.0),
];

/// Level, layout, disks, lost, ratios to the ordinary disk, bytes written per byte of a write.
type Array = (&'static str, Option<&'static str>, u32, u32, [f64; 4], f64);

const ARRAYS: [Array; 13] = [
    ("single", None, 1, 0, [1.0, 1.0, 1.0, 1.0], 1.0),
    ("raid0", Some("original"), 2, 0, [1.94, 1.66, 1.97, 1.9], 1.0),
    ("raid1", None, 2, 0, [0.98, 1.67, 0.97, 1.02], 2.0),
    ("raid10", Some("n2"), 2, 0, [0.97, 1.67, 0.98, 1.02], 2.0),
    ("raid10", Some("f2"), 2, 0, [1.88, 2.09, 0.94, 1.0], 2.0),
    ("raid10", Some("o2"), 2, 0, [0.97, 1.68, 0.98, 1.0], 2.0),
    ("raid0", Some("original"), 4, 0, [3.9, 2.6, 3.9, 3.8], 1.0),
    ("raid4", None, 4, 0, [2.95, 2.2, 2.9, 0.7], 4.0 / 3.0),
    ("raid5", Some("left-symmetric"), 4, 0, [2.95, 2.6, 2.93, 0.72], 4.0 / 3.0),
    ("raid6", Some("left-symmetric"), 4, 0, [1.95, 2.6, 1.93, 0.6], 2.0),
    ("raid10", Some("n2"), 4, 0, [1.95, 2.7, 1.95, 1.95], 2.0),
    ("raid5", Some("left-symmetric"), 4, 1, [2.7, 1.5, 2.8, 0.75], 1.0),
    ("raid6", Some("left-symmetric"), 4, 1, [1.9, 1.2, 1.9, 0.5], 1.5),
];

/// Three samples a cell, a few unsteady, late and warned about.
pub fn record() -> Record {
    let started = UNIX_EPOCH + Duration::from_secs(1_234_567_890);
    let mut record = Record::new(host(), started);
    for (index, array) in ARRAYS.iter().enumerate() {
        for (at, _) in WORKLOADS.iter().enumerate() {
            record.cells.push(cell(index, at, array));
        }
    }
    record.set_ratios();
    record
}

fn host() -> Host {
    Host {
        hostname: Some("<made-up> & co".into()),
        kernel: Some("Linux 0.0.0".into()),
        cpu: Some("No CPU at all".into()),
        cores: Some(2),
        memory_bytes: Some(8 << 30),
        load_average: Some([0.25, 0.5, 0.75]),
        parity_kernel: Some("portable".into()),
        backing: Some(Backing {
            file_system: Some("ext4".into()),
            free_bytes: Some(100 << 30),
            ..Backing::default()
        }),
        ..Host::default()
    }
}

fn cell(index: usize, at: usize, array: &Array) -> Cell {
    let &(level, layout, disks, degraded, ratios, written) = array;
    let (workload, block_kib, depth, single, p50) = WORKLOADS[at];
    let rate = single * ratios[at];
    let write = workload.ends_with("write");
    let random = workload.starts_with("rand");
    let wobble = [1.0, 0.97 - 0.01 * (index % 4) as f64, 1.02];
    let samples = wobble.map(|wobble| {
        let bytes = (rate * wobble * 2e6) as u64;
        Sample { seconds: 2.0, bytes, ops: bytes / (block_kib * 1024.0) as u64 }
    });
    let mut cell = Cell::default().with(|it| {
        it.case.target = "engine".into();
        it.case.level = level.into();
        it.case.layout = layout.map(Into::into);
        it.case.disks = disks;
        it.case.members = "paced:hdd-2007".into();
        it.case.chunk_kib = (disks > 1 && level != "raid1").then_some(64);
        it.case.degraded = degraded;
        it.case.workload = workload.into();
        it.case.block_kib = block_kib;
        it.case.depth = depth;
        it.case.jobs = 1;
        it.measured.samples = samples.to_vec();
        it.measured.latency_us = Some(Latency {
            p50: p50 / ratios[at],
            p99: p50 * 2.5 / ratios[at],
            p999: p50 * 4.0 / ratios[at],
            max: p50 * 5.0 / ratios[at],
        });
        it.measured.cpu_process_s =
            Some(0.004 * (index + 2) as f64 * if random { 0.1 } else { 1.0 });
        it.derived.steady = None;
        it.measured.verified = Some(true);
        it.derived.bound_mb_per_s = Some(rate * 1.04);
        it.derived.bound_note = Some("streaming: members move 1.00 bytes per byte".into());
        it.case.member_bytes = Some(128 << 20);
        it.case.placement = Some(if random { "stretch".into() } else { "window@0".into() });
        it.measured.late_ops = Some(if index == 9 { 12 } else { 0 });
    });
    cell.summarise();
    let parity = ["raid4", "raid5", "raid6"].contains(&level);
    let before = if write && random && parity { 2.0 } else { 0.0 };
    let (read, written) = if write { (before, written.max(before)) } else { (1.0, 0.0) };
    cell.measured.per_member = traffic(&cell, read, written);
    if index == 9 && at == 0 {
        cell.derived.warnings.push("12 operations were late: use a faster directory".into());
        cell.derived.steady = Some(false);
    }
    cell
}

/// Traffic of `read` and `written` bytes per byte of the workload, growing slightly by slot.
fn traffic(cell: &Cell, read: f64, written: f64) -> Vec<MemberTraffic> {
    let each = cell.user_bytes() as f64 / f64::from(cell.case.disks - cell.case.degraded);
    let member = |slot: u32| {
        if slot < cell.case.degraded {
            return MemberTraffic::default();
        }
        let more = 1.0 + f64::from(slot) / 50.0;
        let read_bytes = (each * read * more) as u64;
        let written_bytes = (each * written * more) as u64;
        MemberTraffic {
            read_bytes,
            written_bytes,
            reads: read_bytes >> 16,
            writes: written_bytes >> 16,
        }
    };
    (0..cell.case.disks).map(member).collect()
}
