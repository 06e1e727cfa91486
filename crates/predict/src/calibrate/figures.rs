//! What the probes of a machine have found.

use serde::{Deserialize, Serialize};

/// Figures of one disk, read only. `None`: not probed, or the probe has no figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFigures {
    /// Its size.
    pub bytes: u64,
    /// It has platters: a random read takes longer than 2 ms.
    pub rotates: bool,
    /// 4 KiB that its cache holds, read again, depth 1: least latency, us.
    pub cached_us: Option<f64>,
    /// 256 KiB that its cache holds, depth 1: least latency, us.
    pub cached_long_us: Option<f64>,
    /// 1 MiB reads in order, depth 4, at its beginning, MB/s.
    pub outer_mb_per_s: Option<f64>,
    /// In its middle.
    pub middle_mb_per_s: Option<f64>,
    /// At its end.
    pub inner_mb_per_s: Option<f64>,
    /// 4 KiB reads downwards, depth 1: latency, ms. A turn of a platter, nearly.
    pub backwards_ms: Option<f64>,
    /// 4 KiB reads anywhere in 1/1000 of it, depth 1: latency, ms.
    pub near_ms: Option<f64>,
    /// 4 KiB reads in turn near its beginning and near its end, depth 1: latency, ms.
    pub full_ms: Option<f64>,
    /// 4 KiB reads anywhere, depth 1: latency, ms.
    pub random_ms: Option<f64>,
    /// 4 KiB reads anywhere, depth 4, requests per second.
    pub random_q4_iops: Option<f64>,
    /// 4 KiB reads anywhere, depth 32, requests per second.
    pub random_q32_iops: Option<f64>,
    /// Four streams of 64 KiB reads, depth 1 each, together, MB/s.
    pub streams_mb_per_s: Option<f64>,
    /// Four streams of 1 MiB reads, depth 2 each, together, MB/s.
    pub long_streams_mb_per_s: Option<f64>,
    /// What skipping 64 KiB behind every 192 KiB of a stream costs, ms.
    pub gap_ms: Option<f64>,
    /// CPU time of a 4 KiB read, us.
    pub cpu_us_per_request: Option<f64>,
    /// CPU time of a KiB that is read in 1 MiB requests, us.
    pub cpu_us_per_kib: Option<f64>,
}

/// Figures of the scratch area, which is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScratchFigures {
    /// 1 MiB writes in order, depth 4, after what a cache takes, MB/s.
    pub write_mb_per_s: Option<f64>,
    /// What is acknowledged in the first half of a second of them, MB.
    pub burst_mb: Option<f64>,
    /// 4 KiB writes anywhere in it, depth 32, after what a cache takes, requests per second.
    pub random_write_iops: Option<f64>,
    /// 4 KiB writes anywhere in it, depth 1: latency of the first 8, us.
    pub cached_write_us: Option<f64>,
    /// A 4 KiB write anywhere in it, and a flush: latency of both, ms.
    pub sync_ms: Option<f64>,
    /// A megabyte read and a megabyte written in turn, 1 GiB apart, both together, MB/s.
    pub rewrite_mb_per_s: Option<f64>,
}

/// Disks that limit each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedBus {
    /// Indices of the disks.
    pub disks: Vec<usize>,
    /// What it carries, MB/s.
    pub mb_per_s: f64,
}

/// What the disks do together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WiringFigures {
    /// 1 MiB reads in order of all disks at a time: MB/s of each.
    pub together_mb_per_s: Vec<f64>,
    /// Groups of disks that limit each other.
    pub buses: Vec<SharedBus>,
}

impl WiringFigures {
    /// The buses as `--bus` of bench has them: `none*2+133.0MB/s*4`. `None`: there is none, or
    /// disks share one that are not adjacent.
    pub fn as_option(&self) -> Option<String> {
        let mut buses: Vec<&SharedBus> = self.buses.iter().collect();
        buses.sort_by_key(|bus| bus.disks.first().copied());
        let (mut next, mut parts) = (0, Vec::new());
        for bus in buses {
            let (first, last) = (*bus.disks.first()?, *bus.disks.last()?);
            let count = bus.disks.len();
            if first < next || last != first + count - 1 {
                return None;
            }
            if first > next {
                parts.push(format!("none*{}", first - next));
            }
            parts.push(format!("{:.1}MB/s*{count}", bus.mb_per_s));
            next = first + count;
        }
        (!parts.is_empty()).then(|| parts.join("+"))
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Of each disk: of the first one all, of the others the rate at the beginning.
    pub disks: Vec<DiskFigures>,
    /// Of the scratch area; `None` without one.
    pub scratch: Option<ScratchFigures>,
    /// Of all disks at a time; `None` of a single one.
    pub wiring: Option<WiringFigures>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buses_of_adjacent_disks_are_an_option() {
        let of = |buses: &[&[usize]]| {
            let buses =
                buses.iter().map(|disks| SharedBus { disks: disks.to_vec(), mb_per_s: 133.0 });
            WiringFigures { together_mb_per_s: Vec::new(), buses: buses.collect() }.as_option()
        };
        assert_eq!(of(&[&[2, 3], &[0, 1]]).as_deref(), Some("133.0MB/s*2+133.0MB/s*2"));
        assert_eq!(of(&[&[2, 3]]).as_deref(), Some("none*2+133.0MB/s*2"));
        assert_eq!(of(&[&[0, 2]]), None);
        assert_eq!(of(&[&[]]), None);
        assert_eq!(of(&[]), None);
    }
}
