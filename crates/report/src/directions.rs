//! The reads and the writes of mixed block workloads, a line each.
//!
//! Invariant: the rates of the two lines of a cell add up to the cell's. Called by `table`
//! and by the reports.

use results::record::{Cell, DirectionFigures, Latency};
use spec::units;

use crate::doc::{Column, Table, Value};
use crate::pivot::{self, PivotTable};

/// A row for the reads and one for the writes of each cell that has both.
pub fn table(grid: &PivotTable<'_>) -> Table {
    let heads = ["<array", "disks", "<workload", "<", "MB/s", "IOPS", "p50", "p99"];
    let mut table = Table::new("Reads and writes apart", Column::all(&heads));
    table.note = "they add up to the rates above".into();
    for (row, column, cell) in grid.cells() {
        let Some((reads, writes)) = cell.directions() else { continue };
        for (direction, part) in [("reads", reads), ("writes", writes)] {
            let workload = format!("{} {}", column.title(), column.detail());
            let name = [row.label.clone(), pivot::disks(cell), workload, direction.into()];
            table.push(name.map(Value::Text).into_iter().chain(figures(cell, part)));
        }
    }
    table
}

fn figures(cell: &Cell, part: &DirectionFigures) -> [Value; 4] {
    let rate = |rate: f64| Value::known(cell.did_something().then(|| units::digits(rate)));
    let latency = |of: fn(&Latency) -> f64| {
        Value::known(part.latency_us.as_ref().map(|us| units::latency(of(us))))
    };
    [rate(part.mb_per_s), rate(part.iops), latency(|us| us.p50), latency(|us| us.p99)]
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::record::{Record, Sample};
    use results::stats::LatencyRecorder;

    use super::*;
    use crate::histogram;
    use crate::repeat::folded;
    use crate::runs::Report;
    use crate::{html, runs};

    /// A cell of 4 KiB x 16 with three samples, of which three quarters of the requests read.
    fn mixed() -> Record {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.case.workload, cell.case.read_percent) = ("rand-mixed".into(), Some(75));
        (cell.case.block_kib, cell.case.depth) = (4.0, 16);
        let samples = |ops: u64| vec![Sample { seconds: 2.0, bytes: ops * 4096, ops }; 3];
        let part = |ops, ns| {
            let mut latencies = LatencyRecorder::new();
            (0..3 * ops).for_each(|_| latencies.record(ns));
            Some(DirectionFigures {
                samples: samples(ops),
                latency_us: latencies.latency(),
                latency_bins: Some(latencies.bins()),
                ..DirectionFigures::default()
            })
        };
        cell.measured.samples = samples(400);
        (cell.measured.reads_apart, cell.measured.writes_apart) =
            (part(300, 7_000_000), part(100, 250_000));
        cell.measured.latency_bins = Some(Default::default());
        cell.summarise();
        record
    }

    #[test]
    fn reads_and_writes_have_a_line_each_in_all_forms_and_add_up() {
        let record = mixed();
        let (reads, writes) = record.cells[0].directions().expect("it is mixed");
        assert_eq!((reads.iops, writes.iops, record.cells[0].derived.iops), (150.0, 50.0, 200.0));
        assert_eq!(reads.mb_per_s + writes.mb_per_s, record.cells[0].derived.mb_per_s);
        let grid = PivotTable::new(&record);
        assert_eq!(grid.columns[0].title(), "random, 75 % reads");
        let [reads, writes] = &table(&grid).texts()[..] else { panic!("two rows") };
        assert_eq!(reads[2..4], ["random, 75 % reads 4 KiB x 16", "reads"]);
        assert_eq!(reads[5..], ["150", "7.00 ms", "7.00 ms"]);
        assert_eq!(writes[3..], ["writes", "0.20", "50.0", "250 us", "250 us"]);
        let report = Report::of(record.clone());
        for text in
            [crate::table::render(&record, false), runs::markdown(&report), html::render(&record)]
        {
            assert!(text.contains("Reads and writes apart") && text.contains("250 us"), "{text}");
        }
        for text in
            [crate::table::render(&fixture::record(), false), html::render(&fixture::record())]
        {
            assert!(!text.contains("Reads and writes apart"));
        }
    }

    #[test]
    fn a_histogram_is_of_reads_or_of_writes() {
        let mut record = mixed();
        let bins = record.cells[0].measured.reads_apart.clone().and_then(|part| part.latency_bins);
        record.cells[0].measured.latency_bins = bins;
        let text = histogram::text(&record);
        assert!(
            text.contains("latency of 900 reads\n") && text.contains("latency of 300 writes\n")
        );
    }

    #[test]
    fn shares_of_reads_are_columns_of_their_own() {
        let mut record = mixed();
        let other = record.cells[0].clone().with(|it| it.case.read_percent = Some(50));
        record.cells.push(other);
        let grid = PivotTable::new(&record);
        assert_eq!((grid.columns.len(), grid.cells().count()), (2, 2));
    }

    #[test]
    fn runs_of_a_mixed_workload_fold_into_one_whose_parts_add_up() {
        let mut record = mixed();
        let mut again = record.cells[0].clone();
        record.cells[0].case.repetition = Some(1);
        again.case.repetition = Some(2);
        again.measured.samples.iter_mut().for_each(|sample| sample.seconds = 1.0);
        for part in [&mut again.measured.reads_apart, &mut again.measured.writes_apart]
            .into_iter()
            .flatten()
        {
            part.samples.iter_mut().for_each(|sample| sample.seconds = 1.0);
        }
        again.summarise();
        record.cells.push(again);
        let folded = folded(&record);
        let cell = &folded.cells[0];
        let (reads, writes) = cell.directions().expect("it is mixed");
        assert_eq!((cell.derived.iops, reads.iops, writes.iops), (300.0, 225.0, 75.0));
        assert_eq!(reads.latency_us.map(|us| us.p50), Some(7000.0));
        assert_eq!(reads.latency_bins, None, "of no run alone");
    }
}
