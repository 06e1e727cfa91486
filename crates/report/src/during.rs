//! Background work (rebuild, scrub, resync) beside workloads, a line for each cell.
//!
//! Invariant: the work's rates are of each member, and the foreground's share is of its rate on the
//! same array without the work. Called by `table`, `markdown` and `html`.

use results::record::{Cell, Latency};
use spec::units;
use spec::workload::AccessKind;

use crate::pivot::{self, PivotTable};

/// Above the lines.
pub const TITLE: &str = "Background work";

/// The heads of a line.
pub const HEADS: [&str; 9] = [
    "array",
    "disks",
    "work",
    "beside",
    "MB/s alone",
    "MB/s beside",
    "foreground keeps",
    "p99 alone",
    "p99 beside",
];

/// The lines of all cells that have background work, with their dashes.
pub fn lines(grid: &PivotTable<'_>) -> Vec<[String; 9]> {
    let cells = grid.cells().filter_map(|(row, column, cell)| {
        let work = cell.background.clone()?;
        let is_alone = cell.workload == AccessKind::None;
        let beside = match is_alone {
            true => "nothing".to_string(),
            false => format!("{} {}", column.title(), column.detail()),
        };
        let percent = cell.foreground_percent.map(|percent| format!(", {percent} % for it"));
        let beside = beside + &percent.unwrap_or_default();
        let [idle, rate, share, alone, p99] = figures(cell, is_alone);
        let disks = pivot::disks(cell);
        Some([row.label.clone(), disks, work, beside, idle, rate, share, alone, p99])
    });
    cells.collect()
}

fn figures(cell: &Cell, is_alone: bool) -> [String; 5] {
    let rate = |rate: Option<f64>| rate.map_or(dash(), units::digits);
    let p99 = |us: Option<Latency>| us.map_or(dash(), |us| units::latency(us.p99));
    let share = cell.foreground_share.map_or(dash(), |share| format!("{:.0}%", share * 100.0));
    let alone = cell.foreground_alone.as_ref().and_then(|alone| alone.latency_us);
    [
        rate(cell.background_idle_mb_per_s),
        rate(cell.background_mb_per_s),
        share,
        p99(alone),
        p99(cell.latency_us.filter(|_| !is_alone)),
    ]
}

fn dash() -> String {
    "-".to_string()
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::record::{ForegroundAlone, Record};

    use super::*;
    use crate::runs::Report;
    use crate::{html, markdown, table};

    fn rebuilt() -> Record {
        let mut record = fixture::record();
        record.cells.truncate(2);
        let latency = record.cells[0].latency_us;
        let [cell, none] = &mut record.cells[..] else { panic!("two cells") };
        cell.background = Some("rebuild".into());
        cell.foreground_percent = Some(75);
        cell.background_mb_per_s = Some(12.5);
        cell.background_idle_mb_per_s = Some(80.0);
        cell.foreground_share = Some(0.74);
        let latency_us = latency.map(|us| Latency { p99: 31_000.0, ..us });
        cell.foreground_alone = Some(ForegroundAlone { mb_per_s: 1.0, iops: 240.0, latency_us });
        none.background = Some("scrub".into());
        none.workload = AccessKind::None.into();
        none.background_idle_mb_per_s = Some(81.0);
        record
    }

    #[test]
    fn background_work_has_a_line_in_all_forms() {
        let record = rebuilt();
        let lines = lines(&PivotTable::new(&record));
        let work = |work: &str| lines.iter().find(|line| line[2] == work).expect("a line");
        assert!(work("rebuild")[3].ends_with(", 75 % for it"), "{lines:?}");
        assert_eq!(work("rebuild")[4..8], ["80.0", "12.5", "74%", "31.0 ms"]);
        assert_eq!(work("scrub")[3..], ["nothing", "81.0", "-", "-", "-", "-"]);
        let report = Report::of(record.clone());
        for text in
            [table::render(&record, false), markdown::render(&report), html::render(&record)]
        {
            assert!(text.contains(TITLE) && text.contains("31.0 ms"), "{text}");
        }
        for text in [table::render(&fixture::record(), false), html::render(&fixture::record())] {
            assert!(!text.contains(TITLE));
        }
    }
}
