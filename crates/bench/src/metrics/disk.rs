//! Block devices' counters: `/proc/diskstats`, and rates between two readings of it.
//!
//! ```text
//!   8 0 sda 4 1 32 7   5 0 64 9     0       12     16
//!           |   |  |   |   |  |     |        |     '- weighted ms: ms x operations in flight
//!           |   |  ms  |   |  ms    |        '- ms with at least one in flight
//!           |   sectors|   sectors  '- in flight now
//!           reads      writes           (behind them: discards, since 4.18; flushes, since 5.5)
//! ```
//! Fields: the kernel's Documentation/admin-guide/iostats.rst. Sectors are 512 bytes whatever the
//! disk's own block is.
//!
//! Invariant: pure. Called from `snapshot` and `recorder`.

use std::time::Duration;

use serde::Serialize;

use super::error::FormatError;

/// What a block device has counted since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Milliseconds with at least one operation in flight (32 bits that wrap).
    pub busy_ms: u64,
    /// Milliseconds, weighted by the operations in flight (32 bits that wrap).
    pub weighted_ms: u64,
    /// Flushes completed; `None` before Linux 5.5, which does not count them.
    pub flushes: Option<u64>,
}

/// A line of `/proc/diskstats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// `sda`, `nvme0n1p1`, `cciss/c0d0`.
    pub name: String,
    /// Its counters.
    pub counters: DiskCounters,
}

/// What a disk did per second between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiskRates {
    /// Reads per second.
    #[serde(rename = "reads_per_s")]
    pub reads: f64,
    /// Writes per second.
    #[serde(rename = "writes_per_s")]
    pub writes: f64,
    /// MB (10^6 bytes) read per second.
    #[serde(rename = "read_mb_per_s")]
    pub read_mb: f64,
    /// MB written per second.
    #[serde(rename = "write_mb_per_s")]
    pub write_mb: f64,
    /// Mean size of an operation, KiB; `None` without operations.
    pub request_kib: Option<f64>,
    /// Mean number of operations in flight.
    pub queue: f64,
    /// Share of the time with at least one operation in flight, 0 to 1.
    pub busy: f64,
}

/// Reads the text of `/proc/diskstats`. Short lines, as kernels before 2.6.25 wrote for
/// partitions, are passed over.
///
/// # Errors
/// The line and the field that is no number.
pub(super) fn parse(text: &str) -> Result<Vec<Disk>, FormatError> {
    let mut disks = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() < 14 {
            continue;
        }
        let field = |at: usize| {
            let word = words[at];
            word.parse::<u64>().map_err(|_| FormatError::NotANumber {
                line: number,
                field: at + 1,
                text: word.to_string(),
            })
        };
        disks.push(Disk {
            name: words[2].to_string(),
            counters: DiskCounters {
                reads: field(3)?,
                read_bytes: field(5)?.saturating_mul(512),
                writes: field(7)?,
                written_bytes: field(9)?.saturating_mul(512),
                busy_ms: field(12)?,
                weighted_ms: field(13)?,
                flushes: if words.len() > 18 { Some(field(18)?) } else { None },
            },
        });
    }
    Ok(disks)
}

impl DiskCounters {
    /// What was counted since `before`. Milliseconds wrap after 49 days; counters that went back
    /// otherwise are those of a new disk by the same name, which began at 0.
    #[must_use]
    pub fn since(&self, before: &DiskCounters) -> DiskCounters {
        let began_again = self.reads < before.reads || self.writes < before.writes;
        let before = if began_again { DiskCounters::default() } else { *before };
        let wrapped = |now: u64, then: u64| u64::from((now as u32).wrapping_sub(then as u32));
        DiskCounters {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            busy_ms: wrapped(self.busy_ms, before.busy_ms),
            weighted_ms: wrapped(self.weighted_ms, before.weighted_ms),
            flushes: self
                .flushes
                .map(|flushes| flushes.saturating_sub(before.flushes.unwrap_or(0))),
        }
    }

    /// Counters of a stretch of time as rates.
    pub fn rates(&self, over: Duration) -> DiskRates {
        let seconds = over.as_secs_f64();
        let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let (ops, bytes) = (self.reads + self.writes, self.read_bytes + self.written_bytes);
        DiskRates {
            reads: per_second(self.reads as f64),
            writes: per_second(self.writes as f64),
            read_mb: per_second(self.read_bytes as f64 / 1e6),
            write_mb: per_second(self.written_bytes as f64 / 1e6),
            request_kib: (ops > 0).then(|| bytes as f64 / 1024.0 / ops as f64),
            queue: per_second(self.weighted_ms as f64 / 1e3),
            // The kernel's clock is coarser than ours: a little over 1 means 1.
            busy: per_second(self.busy_ms as f64 / 1e3).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_any_age_is_read_field_by_field() {
        let text = "   8       0 sda 4 1 32 7 5 2 64 9 3 12 16\n\
                    \x20 8 1 sda1 1 2 3 4\n\
                    259 0 nvme0n1 1 0 8 0 2 0 16 0 0 1 1 7 0 8 1 3 4\n";
        let disks = parse(text).unwrap();
        assert_eq!(disks.len(), 2, "the short line is of an old kernel's partition");
        let sda = DiskCounters {
            reads: 4,
            read_bytes: 32 * 512,
            writes: 5,
            written_bytes: 64 * 512,
            busy_ms: 12,
            weighted_ms: 16,
            flushes: None,
        };
        assert_eq!(disks[0], Disk { name: "sda".into(), counters: sda });
        assert_eq!((disks[1].name.as_str(), disks[1].counters.writes), ("nvme0n1", 2));
        assert_eq!(disks[1].counters.flushes, Some(3));
        assert_eq!(parse("").unwrap(), []);
        let error = parse("8 0 sda 4 1 x 7 5 2 64 9 3 12 16").unwrap_err();
        assert_eq!(error.to_string(), "line 1: field 6, 'x', is no number");
    }

    #[test]
    fn rates_are_per_second_and_sizes_per_operation() {
        let counted = DiskCounters {
            reads: 100,
            read_bytes: 2_000_000,
            writes: 100,
            written_bytes: 2_096_000,
            busy_ms: 500,
            weighted_ms: 3000,
            flushes: Some(8),
        };
        let rates = counted.rates(Duration::from_secs(2));
        assert_eq!((rates.reads, rates.writes), (50.0, 50.0));
        assert_eq!((rates.read_mb, rates.write_mb), (1.0, 1.048));
        assert_eq!(rates.request_kib, Some(20.0));
        assert_eq!((rates.queue, rates.busy), (1.5, 0.25));
        let idle = DiskCounters::default().rates(Duration::ZERO);
        assert_eq!(idle, DiskRates::default());
        assert_eq!(counted.rates(Duration::from_millis(499)).busy, 1.0);
    }

    #[test]
    fn milliseconds_wrap_and_a_new_disk_begins_at_nothing() {
        let before = DiskCounters { reads: 5, busy_ms: (1 << 32) - 10, ..DiskCounters::default() };
        let now = DiskCounters { reads: 7, busy_ms: 15, ..DiskCounters::default() };
        assert_eq!((now.since(&before).reads, now.since(&before).busy_ms), (2, 25));
        let new = DiskCounters { reads: 1, busy_ms: 3, ..DiskCounters::default() };
        assert_eq!((new.since(&before).reads, new.since(&before).busy_ms), (1, 3));
    }
}
