//! Latency by percentile, from the fastest request to the slowest, as inline SVG: a line per array.
//!
//! ```text
//!   latency |                  ___/        both axes are logarithmic: the tail of one request in
//!           | ________________/            a thousand gets as much space as the median
//!             50 %  90 %  99 %  99.9 %
//! ```
//!
//! Invariant: a logarithmic axis is labelled so; the table of the page has the same figures.
//! Called by `html`.

use results::record::{Cell, LatencyPoint};
use results::stats::LatencyRecorder;
use spec::units;

use super::frame::{Frame, HEIGHT, LEFT, RIGHT};
use super::svg::Axis;
use crate::doc::{Column, Table, Value};
use crate::pivot::{self, PivotTable};

/// Percentiles that are labelled below the axis.
const NAMED: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
/// Powers of ten from all requests to one in 10^n; the slowest request is one further.
const DECADES: f64 = 5.0;

/// All arrays of one column of the grid; `None` without distributions, as in older records.
pub(crate) fn distribution(grid: &PivotTable<'_>, column: usize) -> Option<String> {
    let of_column = |cells: &[Option<&'_ Cell>]| cells[column].is_some();
    let rows = grid.sections.iter().flat_map(|section| &section.rows);
    let curves: Vec<(String, &[LatencyPoint])> = rows
        .filter(|row| of_column(&row.cells))
        .filter_map(|row| Some((row, row.cells[column]?)))
        .filter(|(_, cell)| !cell.measured.latency_curve.is_empty())
        .map(|(row, cell)| (pivot::with_disks(&row.label, cell), &cell.measured.latency_curve[..]))
        .collect();
    let times = || curves.iter().flat_map(|(_, curve)| curve.iter().map(|point| point.us));
    let (low, high) = (times().reduce(f64::min)?, times().reduce(f64::max)?);
    let scale = Axis::logarithmic(low, high, HEIGHT);
    let title = format!("{}: distribution of latency", grid.columns[column].title());
    let desc = "One line for each array; both axes are logarithmic. Horizontal axis: percentile \
                of requests. Vertical axis: latency. The table below has the figures.";
    let mut frame = Frame::new(&title, desc, "percentile of requests", scale);
    NAMED.iter().for_each(|percent| frame.labelled_line(x(*percent), &share(*percent)));
    for (label, curve) in &curves {
        let named = curve.iter().filter(|point| NAMED.contains(&point.percent));
        let named =
            named.map(|point| format!("{} {}", share(point.percent), units::latency(point.us)));
        let tooltip = format!("{label}: {}", named.collect::<Vec<_>>().join(", "));
        let points: Vec<(f64, f64)> =
            curve.iter().map(|point| (x(point.percent), point.us)).collect();
        frame.curve(label, &points, Some(&tooltip), &[]);
    }
    Some(frame.finish())
}

/// Where a share lies: 90 % one step from the left, 99 % two, and so on.
fn x(percent: f64) -> f64 {
    let rest = 1.0 - (percent / 100.0).clamp(0.0, 1.0);
    let steps = if rest > 0.0 { (-rest.log10()).clamp(0.0, DECADES) } else { DECADES };
    LEFT + steps / DECADES * (RIGHT - LEFT)
}

/// `99.9 %`, `slowest`.
fn share(percent: f64) -> String {
    if percent >= 100.0 { "slowest".to_string() } else { format!("{percent} %") }
}

/// The figures of all cells that have them.
pub(crate) fn table(grid: &PivotTable<'_>) -> Table {
    let shares = LatencyRecorder::CURVE.map(share);
    let heads = ["<array", "disks", "<workload"].into_iter();
    let heads: Vec<&str> = heads.chain(shares.iter().map(String::as_str)).collect();
    let title = "The figures of the distributions";
    let mut table = Table { folded: true, ..Table::new(title, Column::all(&heads)) };
    let cells = grid.cells().filter(|(_, _, cell)| !cell.measured.latency_curve.is_empty());
    for (row, column, cell) in cells {
        let at = |percent: f64| {
            let point = cell.measured.latency_curve.iter().find(|point| point.percent == percent);
            Value::known(point.map(|point| units::latency(point.us)))
        };
        let workload = format!("{}, {}", column.title(), column.detail());
        let name = [row.label.clone(), pivot::disks(cell), workload].map(Value::Text);
        table.push(name.into_iter().chain(LatencyRecorder::CURVE.map(at)));
    }
    table
}

#[cfg(test)]
mod tests {
    use crate::doc::Row;
    use crate::fixture;

    use super::*;

    #[test]
    fn rarer_is_further_to_the_right_and_the_slowest_at_the_end() {
        let places = LatencyRecorder::CURVE.map(x);
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        let step = x(99.0) - x(90.0);
        assert!((x(99.9) - x(99.0) - step).abs() < 1e-6, "each nine has as much room");
        assert_eq!((x(0.0), x(100.0)), (LEFT, RIGHT));
    }

    #[test]
    fn each_array_with_a_distribution_has_a_line_and_others_none() {
        let mut record = fixture::record();
        assert_eq!(distribution(&PivotTable::new(&record), 0), None, "an older record");
        let point = |percent, us| LatencyPoint { percent, us };
        let curve = vec![point(50.0, 100.0), point(99.0, 1000.0), point(100.0, 10_000.0)];
        record.cells[0].measured.latency_curve.clone_from(&curve);
        record.cells[4].measured.latency_curve = curve;
        record.cells[4].case.layout = Some("<evil>".into());
        let grid = PivotTable::new(&record);
        let of = grid.columns.iter().position(|of| of.workload == record.cells[4].case.workload);
        let chart = distribution(&grid, of.expect("its column")).expect("a chart");
        assert_eq!(chart.matches("<polyline").count(), 2, "{chart}");
        assert!(chart.contains("50 % 100 us, 99 % 1.00 ms, slowest 10.0 ms"), "{chart}");
        assert!(
            chart.contains("logarithmic") && !chart.contains("<evil>") && !chart.contains("NaN")
        );
        let table = table(&grid);
        let [Row::Fields(fields), Row::Fields(_)] = &table.rows[..] else { panic!("two cells") };
        assert_eq!(fields.len(), table.columns.len());
        let missing = fields.iter().filter(|field| field.value == Value::Missing).count();
        assert_eq!(missing, fields.len() - 3 - 3);
    }
}
