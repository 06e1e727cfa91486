//! How a figure changes with the number of disks, with the chunk, or with the stated load.
//!
//! Invariant: the points of a curve differ in its axis and in nothing else that tells cells apart;
//! cells of the same place are one point, their median. Figures measured at the members are left
//! out: the more members, the more copies and parity they may include. Pure.

use results::record::{Cell, Record};
use results::stats;
use spec::workload::AccessKind;

use crate::pivot;

/// What a curve runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Number of disks.
    Disks,
    /// Chunk, KiB.
    Chunk,
    /// Stated load, requests per second. The figures are response times, where the load is met:
    /// otherwise they grow with the length of the run.
    Load,
}

impl Axis {
    /// All axes with the titles of their sections, and what their places are.
    pub const ALL: [(Axis, &'static str, &'static str); 3] = [
        (Axis::Disks, "By number of disks", "disks"),
        (Axis::Chunk, "By chunk, KiB", "chunk, KiB"),
        (Axis::Load, "By stated load, requests/s", "requests/s"),
    ];
}

/// One array under one workload along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The workload, or the phase of a program.
    pub work: String,
    /// `MB/s`, `per second` or `ms`.
    pub unit: &'static str,
    /// The array.
    pub label: String,
    /// (disks or KiB, figure), ascending.
    pub points: Vec<(u64, f64)>,
}

impl Curve {
    /// What each step adds, as a share of the point before: 0.3 is 30 % more.
    pub fn gains(&self) -> Vec<f64> {
        let pairs = self.points.windows(2);
        pairs.map(|pair| if pair[0].1 > 0.0 { pair[1].1 / pair[0].1 - 1.0 } else { 0.0 }).collect()
    }
}

/// All curves with at least two points, in the order of the cells.
pub fn curves(record: &Record, axis: Axis) -> Vec<Curve> {
    let labels = match axis {
        Axis::Disks => pivot::labels(&record.cells, true),
        Axis::Chunk => pivot::labels(&record.cells, false),
        Axis::Load => pivot::labels_but_for_load(&record.cells),
    };
    let mut found: Vec<(String, Curve)> = Vec::new();
    let works = crate::work_names::work_names_of_any_size(&record.cells.iter().collect::<Vec<_>>());
    for ((cell, label), work) in record.cells.iter().zip(labels).zip(works) {
        let Some(x) = place(cell, axis).filter(|_| cell.measured.program_bytes.is_none()) else {
            continue;
        };
        // One level along the disks; along the others each number of disks is a curve of its own.
        let label = match axis {
            Axis::Disks => label,
            Axis::Chunk | Axis::Load => pivot::with_disks(&label, cell),
        };
        // A sequential write comes in whole stripes, whose length follows disks and chunk.
        let block = if cell.case.workload == AccessKind::SeqWrite {
            0
        } else {
            cell.case.block_kib.to_bits()
        };
        for (figure, unit, value) in figures(cell, axis) {
            let (work, label) = (format!("{work}{figure}"), label.clone());
            let key = format!("{work} {block} {} {} {label}", cell.case.depth, cell.case.jobs);
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, curve)) => curve.points.push((x, value)),
                None => found.push((key, Curve { work, unit, label, points: vec![(x, value)] })),
            }
        }
    }
    let curves =
        found.into_iter().map(|(_, curve)| Curve { points: medians(curve.points), ..curve });
    curves.filter(|curve| curve.points.len() > 1).collect()
}

/// What is drawn of a cell: the end of its name, unit and value.
fn figures(cell: &Cell, axis: Axis) -> Vec<(&'static str, &'static str, f64)> {
    match (axis, cell.measured.latency_us) {
        (Axis::Disks | Axis::Chunk, _) => vec![("", cell.unit(), cell.rate())],
        (Axis::Load, None) => Vec::new(),
        (Axis::Load, Some(us)) => vec![
            (", response time p50", "ms", us.p50 / 1e3),
            (", response time p99", "ms", us.p99 / 1e3),
        ],
    }
}

fn place(cell: &Cell, axis: Axis) -> Option<u64> {
    match axis {
        Axis::Disks => {
            let known = !cell.is_single() && cell.case.disks > 0;
            known.then_some(u64::from(cell.case.disks))
        }
        Axis::Chunk => cell.case.chunk_kib,
        Axis::Load => {
            cell.case.rate_iops.filter(|_| cell.meets_load() == Some(true)).map(u64::from)
        }
    }
}

fn medians(mut values: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    values.sort_by(|one, two| one.0.cmp(&two.0).then(one.1.total_cmp(&two.1)));
    let groups = values.chunk_by(|one, two| one.0 == two.0);
    let middle = |group: &[(u64, f64)]| {
        let of: Vec<f64> = group.iter().map(|(_, value)| *value).collect();
        Some((group[0].0, stats::median(&of)?))
    };
    groups.filter_map(middle).collect()
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::record::{Latency, Sample};

    use super::*;

    fn cell(level: &str, disks: u32, chunk: u64, workload: &str, mb_per_s: f64) -> Cell {
        let bytes = (mb_per_s * 1e6) as u64;
        let mut cell = Cell::default().with(|it| {
            it.case.level = level.into();
            it.case.disks = disks;
            it.case.chunk_kib = Some(chunk);
            it.case.workload = workload.into();
            it.case.block_kib =
                if workload == "seq-write" { 64.0 * f64::from(disks) } else { 1024.0 };
            it.case.depth = 4;
            it.case.jobs = 1;
            it.measured.samples = vec![Sample { seconds: 1.0, bytes, ops: 10 }];
        });
        cell.summarise();
        cell
    }

    #[test]
    fn each_added_disk_has_its_gain() {
        let mut record = fixture::record();
        record.cells = vec![
            cell("raid0", 4, 64, "seq-read", 260.0),
            cell("raid0", 2, 64, "seq-read", 100.0),
            cell("raid0", 3, 64, "seq-read", 150.0),
            cell("raid0", 3, 64, "seq-read", 250.0),
            cell("raid5", 3, 64, "seq-read", 100.0),
            cell("raid0", 2, 64, "seq-write", 80.0),
            cell("raid0", 3, 64, "seq-write", 60.0),
        ];
        let curves = curves(&record, Axis::Disks);
        assert_eq!(curves.len(), 2, "{curves:?}");
        assert_eq!(curves[0].points, [(2, 100.0), (3, 200.0), (4, 260.0)]);
        let gains: Vec<i64> =
            curves[0].gains().iter().map(|g| (g * 100.0).round() as i64).collect();
        assert_eq!(gains, [100, 30]);
        assert_eq!(curves[1].work, "seq-write");
        assert_eq!(curves[1].gains(), [-0.25]);
        assert!(super::curves(&record, Axis::Chunk).is_empty());
    }

    #[test]
    fn a_program_with_other_options_is_another_curve() {
        let with = |item: &str, disks, mb_per_s| {
            cell("raid0", disks, 64, "seq-write", mb_per_s).with(|it| {
                it.case.program = Some("dd".into());
                it.case.phase = Some("write".into());
                it.case.item = Some(item.into());
            })
        };
        let mut record = fixture::record();
        record.cells = vec![
            with("dd", 2, 100.0),
            with("dd:fdatasync", 2, 50.0),
            with("dd", 3, 150.0),
            with("dd:fdatasync", 3, 75.0),
        ];
        let curves = curves(&record, Axis::Disks);
        let works: Vec<&str> = curves.iter().map(|curve| curve.work.as_str()).collect();
        assert_eq!(works, ["dd write", "dd:fdatasync write"]);
        assert_eq!(curves[1].points, [(2, 50.0), (3, 75.0)]);
        record.cells.iter_mut().for_each(|cell| cell.measured.program_bytes = Some(1));
        assert!(super::curves(&record, Axis::Disks).is_empty(), "the members'");
    }

    #[test]
    fn a_stated_load_makes_a_curve_of_response_times_where_it_is_met() {
        let at = |rate, p99: f64| {
            cell("raid5", 3, 64, "rand-read", 1.0).with(|it| {
                it.case.rate_iops = Some(rate);
                it.measured.arrivals = Some(if rate > 100 { 1000 } else { 10 });
                it.measured.latency_us = Some(Latency { p50: 1000.0, p99, p999: p99, max: p99 });
            })
        };
        let mut record = fixture::record();
        record.cells = vec![at(100, 5000.0), at(50, 2000.0), at(400, 900_000.0)];
        let curves = curves(&record, Axis::Load);
        let works: Vec<&str> = curves.iter().map(|curve| curve.work.as_str()).collect();
        assert_eq!(works, ["rand-read, response time p50", "rand-read, response time p99"]);
        assert_eq!((curves[1].label.as_str(), curves[1].unit), ("RAID 5 x3", "ms"));
        assert_eq!(curves[1].points, [(50, 2.0), (100, 5.0)], "400 were not served");
        assert!(super::curves(&record, Axis::Disks).is_empty());
    }

    #[test]
    fn chunks_make_a_curve_for_each_number_of_disks() {
        let mut record = fixture::record();
        record.cells = Vec::new();
        for disks in [3, 4] {
            for chunk in [256, 64] {
                record.cells.push(cell("raid5", disks, chunk, "seq-read", chunk as f64));
            }
        }
        let curves = curves(&record, Axis::Chunk);
        let labels: Vec<&str> = curves.iter().map(|curve| curve.label.as_str()).collect();
        assert_eq!(labels, ["RAID 5 x3", "RAID 5 x4"]);
        assert_eq!(curves[0].points, [(64, 64.0), (256, 256.0)]);
        let disks = super::curves(&record, Axis::Disks);
        let labels: Vec<&str> = disks.iter().map(|curve| curve.label.as_str()).collect();
        assert_eq!(labels, ["RAID 5 256KiB", "RAID 5 64KiB"]);
    }
}
