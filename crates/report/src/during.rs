//! Background work (rebuild, scrub, resync) beside workloads, a line for each cell.
//!
//! Invariant: the work's rates are of each member, and the foreground's share is of its rate on the
//! same array without the work. Called by `table` and by the reports.

use results::record::{Cell, Latency};
use spec::units;
use spec::workload::AccessKind;

use crate::doc::{Column, Table, Value};
use crate::pivot::{self, PivotTable};

const HEADS: [&str; 9] = [
    "<array",
    "disks",
    "<work",
    "<beside",
    "MB/s alone",
    "MB/s beside",
    "foreground keeps",
    "p99 alone",
    "p99 beside",
];

/// A row for each cell that has background work.
pub fn table(grid: &PivotTable<'_>) -> Table {
    let mut table = Table::new("Background work", Column::all(&HEADS));
    table.note =
        "rates of each member; the foreground keeps a share of its rate on the same array \
                  without the work: a member missing (rebuild), or redundancy not trusted (resync)"
            .into();
    for (row, column, cell) in grid.cells() {
        let Some(work) = cell.case.background.clone() else { continue };
        let is_alone = cell.case.workload == AccessKind::None;
        let beside = match is_alone {
            true => "nothing".to_string(),
            false => format!("{} {}", column.title(), column.detail()),
        };
        let percent = cell.case.foreground_percent.map(|percent| format!(", {percent} % for it"));
        let beside = beside + &percent.unwrap_or_default();
        let name = [row.label.clone(), pivot::disks(cell), work, beside];
        table.push(name.map(Value::Text).into_iter().chain(figures(cell, is_alone)));
    }
    table
}

fn figures(cell: &Cell, is_alone: bool) -> [Value; 5] {
    let rate = |rate: Option<f64>| Value::known(rate.map(units::digits));
    let p99 = |us: Option<Latency>| Value::known(us.map(|us| units::latency(us.p99)));
    let alone = cell.measured.foreground_alone.as_ref().and_then(|alone| alone.latency_us);
    [
        rate(cell.measured.background_idle_mb_per_s),
        rate(cell.measured.background_mb_per_s),
        Value::percent(cell.derived.foreground_share),
        p99(alone),
        p99(cell.measured.latency_us.filter(|_| !is_alone)),
    ]
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::record::{ForegroundAlone, Record};

    use super::*;
    use crate::runs::Report;
    use crate::{html, runs};

    fn rebuilt() -> Record {
        let mut record = fixture::record();
        record.cells.truncate(2);
        let latency = record.cells[0].measured.latency_us;
        let [cell, none] = &mut record.cells[..] else { panic!("two cells") };
        cell.case.background = Some("rebuild".into());
        cell.case.foreground_percent = Some(75);
        cell.measured.background_mb_per_s = Some(12.5);
        cell.measured.background_idle_mb_per_s = Some(80.0);
        cell.derived.foreground_share = Some(0.74);
        let latency_us = latency.map(|us| Latency { p99: 31_000.0, ..us });
        cell.measured.foreground_alone =
            Some(ForegroundAlone { mb_per_s: 1.0, iops: 240.0, latency_us });
        none.case.background = Some("scrub".into());
        none.case.workload = AccessKind::None.into();
        none.measured.background_idle_mb_per_s = Some(81.0);
        record
    }

    #[test]
    fn background_work_has_a_line_in_all_forms() {
        let record = rebuilt();
        let lines = table(&PivotTable::new(&record)).texts();
        let work = |work: &str| lines.iter().find(|line| line[2] == work).expect("a line");
        assert!(work("rebuild")[3].ends_with(", 75 % for it"), "{lines:?}");
        assert_eq!(work("rebuild")[4..8], ["80.0", "12.5", "74%", "31.0 ms"]);
        assert_eq!(work("scrub")[3..], ["nothing", "81.0", "-", "-", "-", "-"]);
        let report = Report::of(record.clone());
        for text in
            [crate::table::render(&record, false), runs::markdown(&report), html::render(&record)]
        {
            assert!(text.contains("Background work") && text.contains("31.0 ms"), "{text}");
        }
        for text in
            [crate::table::render(&fixture::record(), false), html::render(&fixture::record())]
        {
            assert!(!text.contains("Background work"));
        }
    }
}
