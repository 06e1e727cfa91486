//! The record: what `bench --json` writes, and what reports, comparisons and other tools read.
//!
//! Invariant: the names and meanings here are stable. Fields are only ever added; a field that is
//! missing in an older record reads as unknown, an unknown field is ignored.
//! Unknown values are `null`, never a made-up number. Bytes and seconds are stored; rates are
//! 10^6 bytes per second.
//!
//! Written by the runner; read by `pivot`, `table` and `html`.

mod cell;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use cell::{Cell, CellCase, CellDerived, CellMeasured};

pub use crate::bins::LatencyBins;
pub use crate::foreground::ForegroundAlone;
use crate::host::Host;
pub use crate::load::{ItemTimes, Load, LoadPoint, LoadWindow};
pub use crate::series::{MemberSeries, Series};
pub use crate::stats::{Latency, LatencyPoint};

/// A run of `bench`: host, start time, and every measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of raidlab that wrote the record.
    pub raidlab: String,
    /// The machine.
    pub host: Host,
    /// Start time of the run, RFC 3339 in UTC ([`rfc3339`]).
    pub started: String,
    /// The cells, in the order measured.
    pub cells: Vec<Cell>,
    /// Where several machines have measured: each of them, by host name; `host` is empty then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
}

/// The reads or the writes of a mixed block workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectionFigures {
    /// Their part of each sample of the cell, over its whole time.
    pub samples: Vec<Sample>,
    /// Their part of the cell's `mb_per_s`, by their share of the bytes of its samples: those of
    /// reads and writes add up to it.
    pub mb_per_s: f64,
    /// Their part of the cell's `iops`.
    pub iops: f64,
    /// Their latency, as the cell's `latency_us` is defined.
    pub latency_us: Option<Latency>,
    /// The distribution of `latency_us`.
    pub latency_bins: Option<LatencyBins>,
}

/// Utilization of a member; `None` where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberLoad {
    /// Share of the time with at least one operation in flight, 0 to 1.
    pub busy: Option<f64>,
    /// Mean number of operations in flight.
    pub in_flight: Option<f64>,
}

/// Background work of an array of Linux md while a cell ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncRun {
    /// md's word: `idle`, `resync`, `recover`, `check`, `repair`, `reshape`.
    pub action: String,
    /// Progress at the start of the cell, 0 to 1; `None` when nothing ran.
    pub begin: Option<f64>,
    /// Progress at its end, 0 to 1.
    pub end: Option<f64>,
}

/// The stripe cache of an array of Linux md while a cell ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StripeCacheUse {
    /// `stripe_cache_size` at the start of the cell: the minimum of entries that md keeps, each of
    /// one page per member.
    pub entries_begin: u64,
    /// `stripe_cache_size` at the end of the cell.
    pub entries_end: u64,
    /// Maximum of entries in use: more than the above where md allocated more when it ran out.
    pub active_max: Option<u64>,
}

/// The place of a cell that was not measured on the engine in process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// As on the command line, without directories of the user: `fs:ext4,data=journal`.
    pub name: String,
    /// `ext4`.
    pub file_system: Option<String>,
    /// Command line of mkfs.
    pub mkfs_options: Option<String>,
    /// Options of the mount, as the kernel shows them.
    pub mount_options: Option<String>,
    /// Block of the file system, bytes.
    pub block_bytes: Option<u64>,
    /// Location of an external journal: `raid1 of 2`.
    pub journal: Option<String>,
    /// Whether LVM is between array and file system.
    pub lvm: Option<bool>,
    /// Read-ahead of the block device, KiB.
    pub read_ahead_kib: Option<u64>,
    /// Its I/O scheduler.
    pub scheduler: Option<String>,
    /// Other knobs that were set, by their names in sysfs.
    pub knobs: std::collections::BTreeMap<String, String>,
    /// Memory of the machine, bytes, for comparison with file sizes.
    pub memory_bytes: Option<u64>,
    /// The disks below it, in slot order; none below an array of the engine.
    pub drives: Vec<DriveFacts>,
    /// Version of md's metadata, where an array of md is below: `1.2`.
    pub metadata: Option<String>,
    /// Location of that array's write-intent bitmap: `+8` sectors behind the superblock, or `none`.
    pub bitmap: Option<String>,
    /// Version of the kernel that ran it, in model time on modelled disks: `6.12.117`; `None`: the
    /// host's kernel, or none.
    pub kernel: Option<String>,
}

/// A disk, as reported by its driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveFacts {
    /// `sda1`.
    pub name: String,
    /// `ST3500418AS`.
    pub model: Option<String>,
    /// Its firmware.
    pub firmware: Option<String>,
    /// Its link: `SATA 3.0 Gbps`, `PCIe 8.0 GT/s x4`, `virtio`.
    pub link: Option<String>,
    /// Size of the whole disk, bytes.
    pub bytes: Option<u64>,
    /// A rotating disk.
    pub rotational: Option<bool>,
    /// Queue depth of the disk or its driver.
    pub queue_depth: Option<u64>,
    /// Its I/O scheduler.
    pub scheduler: Option<String>,
    /// Its own read-ahead, KiB.
    pub read_ahead_kib: Option<u64>,
    /// `write back` where it has a volatile write cache.
    pub write_cache: Option<String>,
    /// Logical block size, bytes.
    pub block_bytes: Option<u64>,
}

/// CPU time of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// Its name: `lane-0`, `md127_raid5`, `iou-wrk-4711`.
    pub name: String,
    /// User and system, seconds.
    pub seconds: f64,
}

/// A finding: a conclusion from the evidence, and the option that would change it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name: `page-cache`, `shared-bus`, `read-modify-write`.
    pub name: String,
    /// One sentence with the numbers in it.
    pub text: String,
    /// The numbers by name, for programs.
    pub evidence: std::collections::BTreeMap<String, f64>,
    /// The command that would change it, where there is one.
    pub command: Option<String>,
}

/// One timed stretch of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Duration, seconds.
    pub seconds: f64,
    /// Bytes that the requests moved.
    pub bytes: u64,
    /// Number of completed requests.
    pub ops: u64,
}

/// Traffic of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberTraffic {
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
}

/// The range of the samples' rates, MB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The slowest sample.
    pub min: f64,
    /// The fastest sample.
    pub max: f64,
}

impl Record {
    /// An empty record of this build, begun at `started`.
    pub fn new(host: Host, started: SystemTime) -> Record {
        let raidlab = env!("CARGO_PKG_VERSION").to_string();
        Record { raidlab, host, started: rfc3339(started), cells: Vec::new(), hosts: Vec::new() }
    }

    /// The document: indented JSON with a newline at its end.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists only: there is nothing in it that could fail.
        let mut text = serde_json::to_string_pretty(self).expect("a record is plain data");
        text.push('\n');
        text
    }

    /// Reads a document.
    ///
    /// # Errors
    /// A field that is missing or of another type, with line and column; of a cell the field by its
    /// name, and where the cell ends.
    pub fn from_json(text: &str) -> Result<Record, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Whether no cell read data that differs from the written data.
    pub fn verified(&self) -> bool {
        self.cells.iter().all(|cell| cell.measured.verified != Some(false))
    }
}

impl Sample {
    /// Its rate in MB/s (10^6 bytes); 0 for a sample without duration.
    pub fn mb_per_s(&self) -> f64 {
        per_second(self.bytes as f64 / 1e6, self.seconds)
    }

    /// Its requests per second; 0 for a sample without duration.
    pub fn iops(&self) -> f64 {
        per_second(self.ops as f64, self.seconds)
    }
}

fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

impl MemberTraffic {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

/// A moment as RFC 3339 in UTC, to the second: `2009-02-13T23:31:30Z`. Moments before 1970 are
/// written as 1970.
pub fn rfc3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let moment = i64::try_from(seconds).ok().and_then(|it| Timestamp::from_second(it).ok());
    moment.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_until_steady_is_the_mean_of_the_window_and_not_of_what_was_before() {
        let sample = |mb: u64| Sample { seconds: 0.25, bytes: mb * 250_000, ops: mb };
        // A drive with a large write cache, as it was measured: full after fourteen samples.
        let rates = [293, 307, 298, 302, 298, 302, 298, 302, 298, 294, 302, 298, 302, 235];
        let samples: Vec<Sample> =
            rates.into_iter().chain([84, 84, 84, 84, 80]).map(sample).collect();
        let mut cell = Cell::default().with(|it| {
            it.measured.samples = samples;
            it.case.rounds_max = Some(40);
        });
        cell.summarise();
        assert_eq!(cell.derived.steady, Some(true));
        assert!((cell.derived.mb_per_s - 83.2).abs() < 1e-9, "{}", cell.derived.mb_per_s);
        assert!((cell.derived.iops - 4.0 * 83.2).abs() < 1e-9, "{}", cell.derived.iops);
        assert_eq!(cell.derived.spread, Some(Spread { min: 80.0, max: 84.0 }));
        cell.case.rounds_max = None;
        cell.summarise();
        assert_eq!(cell.derived.mb_per_s, 298.0, "the median of all samples that were asked for");
    }

    const LITERAL: &str = r#"{"raidlab": "0.1.0", "host": {}, "started": "2009-02-13T23:31:30Z",
        "cells": [{"target": "engine", "level": "raid5", "layout": "left-symmetric", "disks": 4,
        "members": "paced:hdd-2007", "chunk_kib": 64, "degraded": 0, "workload": "seq-read",
        "block_kib": 1024, "depth": 4, "jobs": 1,
        "samples": [{"seconds": 2.0, "bytes": 480000000, "ops": 458}],
        "mb_per_s": 240.0, "iops": 229.0,
        "latency_us": {"p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0},
        "cpu_process_s": 0.5, "cpu_system_s": null, "cpu_s_per_gib": 1.1, "steady": null,
        "verified": true,
        "per_member": [{"read_bytes": 1, "written_bytes": 2, "reads": 3, "writes": 4}],
        "warnings": ["page cache"], "of_a_later_version": 1}]}"#;

    #[test]
    fn a_literal_record_is_read_field_by_field() {
        let record = Record::from_json(LITERAL).unwrap();
        assert_eq!(record.host, Host::default());
        let cell = &record.cells[0];
        assert_eq!(cell.case.layout, Some("left-symmetric".into()));
        assert_eq!(
            (cell.case.disks, cell.case.chunk_kib, cell.case.block_kib),
            (4, Some(64), 1024.0)
        );
        assert_eq!(cell.measured.samples, [Sample { seconds: 2.0, bytes: 480_000_000, ops: 458 }]);
        assert_eq!(
            cell.measured.latency_us,
            Some(Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4.0 })
        );
        assert_eq!(
            (cell.measured.cpu_process_s, cell.measured.cpu_system_s, cell.derived.steady),
            (Some(0.5), None, None)
        );
        let traffic = MemberTraffic { read_bytes: 1, written_bytes: 2, reads: 3, writes: 4 };
        assert_eq!(cell.measured.per_member, [traffic]);
        assert_eq!((cell.derived.bound_mb_per_s, cell.case.array.as_deref()), (None, None));
        assert!(cell.measured.latency_curve.is_empty(), "an older record");
    }

    #[test]
    fn what_is_written_reads_back_and_unknown_is_null() {
        let mut record = Record::from_json(LITERAL).unwrap();
        record.cells[0].derived.steady = Some(false);
        record.cells[0].derived.spread = Some(Spread { min: 1.5, max: 2.5 });
        let text = record.to_json();
        assert_eq!(Record::from_json(&text).unwrap(), record);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let cell = &value["cells"][0];
        assert_eq!(cell["block_kib"], serde_json::json!(1024));
        assert_eq!(cell["steady"], serde_json::json!(false));
        for unknown in ["cpu_system_s", "array", "bound_mb_per_s", "late_ops"] {
            assert!(cell.as_object().unwrap().contains_key(unknown), "{unknown}");
            assert!(cell[unknown].is_null(), "{unknown}");
        }
    }

    /// Words of other tools and of newer versions, and other forms of ours.
    #[test]
    fn unknown_words_are_kept_byte_for_byte() {
        let words = [
            ("target", "engine", "nvme-of"),
            ("level", "raid5", "RAID5"),
            ("level", "raid5", "raidz2"),
            ("level", "raid5", ""),
            ("layout", "left-symmetric", "ls"),
            ("layout", "left-symmetric", "Left-Symmetric"),
            ("layout", "left-symmetric", "d4"),
            ("workload", "seq-read", "seq-append"),
            ("workload", "seq-read", "seq-\u{fc}bel"),
        ];
        let ours = Record::from_json(LITERAL).expect("a record").to_json();
        for (field, known, unknown) in words {
            let quoted = |word: &str| format!("\"{field}\": \"{word}\"");
            let text = ours.replacen(&quoted(known), &quoted(unknown), 1);
            assert_ne!(text, ours, "{field}");
            let record = Record::from_json(&text).expect(unknown);
            assert_eq!(record.to_json(), text, "{field} {unknown}");
            let cell = &record.cells[0];
            assert!(!(cell.writes() || cell.counts_requests()), "nothing is derived: {unknown}");
        }
    }

    #[test]
    fn a_field_of_a_cell_is_named_and_unknown_ones_may_hold_anything() {
        for (field, wrong) in
            [("\"disks\": 4", "\"disks\": \"4\""), ("\"p50\": 1.0", "\"p50\": []")]
        {
            let error = Record::from_json(&LITERAL.replace(field, wrong)).unwrap_err().to_string();
            let name = field.split('"').nth(1).expect("a name");
            assert!(error.contains(&format!("{name}: ")), "{error}");
            assert_eq!(error.matches(" line ").count(), 1, "{error}");
        }
        let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
        for unknown in ["1e999", &deep, "{\"queue_depth\": []}"] {
            let text = LITERAL.replace(": 1}]}", &format!(": {unknown}}}]}}"));
            assert_eq!(Record::from_json(&text).unwrap().cells[0].case.disks, 4, "{unknown}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = Record::from_json(r#"{"raidlab": "0", "host": {}, "cells": []}"#).unwrap_err();
        assert!(error.to_string().contains("started"), "{error}");
    }

    #[test]
    fn summaries_follow_from_the_samples() {
        let sample = |bytes| Sample { seconds: 2.0, bytes, ops: 10 };
        let mut cell = Cell::default().with(|it| {
            it.measured.samples =
                vec![sample(200_000_000), sample(100_000_000), sample(600_000_000)];
            it.measured.cpu_process_s = Some(1.0);
            it.derived.bound_mb_per_s = Some(200.0);
        });
        cell.summarise();
        assert_eq!((cell.derived.mb_per_s, cell.derived.iops), (100.0, 5.0));
        assert_eq!(cell.derived.spread, Some(Spread { min: 50.0, max: 300.0 }));
        assert_eq!(cell.derived.bound_share, Some(0.5));
        // No share of a bound that the stated load does not reach.
        cell.case.block_kib = 1000.0;
        cell.case.rate_iops = Some(100);
        cell.put_bound_share();
        assert_eq!(cell.derived.bound_share, None);
        cell.case.rate_iops = Some(300);
        cell.put_bound_share();
        assert_eq!(cell.derived.bound_share, Some(0.5), "more arrives than the members can serve");
        assert_eq!(cell.derived.steady, None);
        assert_eq!(
            (cell.derived.interval, cell.derived.interval_coverage),
            (None, None),
            "three are too few"
        );
        cell.measured.samples.extend([sample(300_000_000), sample(400_000_000)]);
        cell.summarise();
        assert_eq!(
            (cell.derived.interval, cell.derived.interval_coverage),
            (cell.derived.spread, Some(0.9375))
        );
        cell.measured.samples.truncate(3);
        cell.summarise();
        assert_eq!(cell.derived.cpu_s_per_gib, Some(f64::from(1 << 30) / 9e8));
    }

    #[test]
    fn what_is_random_or_moves_no_bytes_is_counted_in_requests() {
        let cell = |workload: &str, bytes, ops| {
            let samples = vec![Sample { seconds: 1.0, bytes, ops }];
            let mut cell = Cell::default().with(|it| {
                it.case.workload = workload.into();
                it.measured.samples = samples;
            });
            cell.summarise();
            cell.unit()
        };
        assert_eq!(cell("seq-read", 4096, 1), "MB/s");
        assert_eq!(cell("rand-mixed", 4096, 1), "per second");
        assert_eq!(cell("seq-create", 0, 1), "per second");
        // A phase in which nothing was done has the same unit as one that ran.
        assert_eq!(cell("seq-read", 0, 0), "MB/s");
        for names in ["create", "stat", "delete"] {
            assert_eq!(cell(names, 0, 0), cell(names, 0, 1), "{names} that could not be run");
        }
        let sample = Sample { seconds: 2.0, bytes: 4_000_000, ops: 10 };
        for (workload, figure) in [("seq-read", 2.0), ("rand-read", 5.0)] {
            let samples = vec![sample];
            let mut cell = Cell::default().with(|it| {
                it.case.workload = workload.into();
                it.measured.samples = samples;
            });
            cell.summarise();
            assert_eq!((cell.rate(), cell.rate_of(&sample)), (figure, figure), "{workload}");
        }
    }

    #[test]
    fn members_that_move_nothing_are_idle_not_imbalance() {
        let moved = |read_bytes, written_bytes| MemberTraffic {
            read_bytes,
            written_bytes,
            reads: 0,
            writes: 0,
        };
        let cell = Cell::default().with(|it| {
            it.measured.samples = vec![Sample { seconds: 1.0, bytes: 100, ops: 1 }];
            it.measured.per_member = vec![moved(100, 0), moved(100, 100), moved(0, 0), moved(0, 0)];
            it.case.degraded = 1;
        });
        assert_eq!(cell.amplification(), Some(3.0));
        let read_off = cell.clone().with(|it| it.measured.program_bytes = Some(150));
        assert_eq!(read_off.amplification(), Some(2.0), "per byte of the program");
        assert_eq!((cell.imbalance(), cell.idle_members()), (None, 1));
        let two_lost = cell.clone().with(|it| it.case.degraded = 2);
        assert_eq!((two_lost.imbalance(), two_lost.idle_members()), (Some(2.0), 0));
    }

    #[test]
    fn moments_are_written_in_utc() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
