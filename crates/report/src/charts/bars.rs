//! The report's charts, as inline SVG that takes its colours from the page's style sheet.
//!
//! ```text
//!   label | bar ======o=o==|  value     one row for each array, a heading for each number of disks
//!         0                          o sample, | bound
//! ```
//!
//! Invariant: a scale begins at 0, except latency's, which is logarithmic and labelled so. Called
//! by `html`.

use results::record::{Cell, MemberTraffic};
use spec::units;

use super::svg::{Axis, Svg, WIDTH, first_of, shorten};
use crate::doc::Value;
use crate::pivot::PivotTable;

/// Geometry of a chart, in SVG units.
const LABEL: f64 = 168.0;
const PLOT_END: f64 = 486.0;
const PLOT: f64 = PLOT_END - LABEL;
const ROW: f64 = 24.0;
const HEADING: f64 = 22.0;
const AXIS: f64 = 24.0;

/// One line of a chart: a heading or an array.
enum Line<'a> {
    Heading(String),
    Array(&'a str, Option<&'a Cell>),
}

fn lines<'a>(grid: &'a PivotTable<'a>, column: usize) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for section in &grid.sections {
        let rows: Vec<_> = section.rows.iter().filter(|row| row.cells[column].is_some()).collect();
        if !rows.is_empty() {
            lines.push(Line::Heading(section.title()));
        }
        lines.extend(rows.into_iter().map(|row| Line::Array(&row.label, row.cells[column])));
    }
    lines
}

/// Medians as bars, samples as dots, the bound as a tick.
pub(crate) fn speed(grid: &PivotTable<'_>, column: usize) -> String {
    let random = grid.columns[column].counts_requests;
    let unit = if random { "requests per second" } else { "MB/s" };
    // Factor from MB/s to the chart's unit.
    let scale_of = |cell: &Cell| {
        if random { cell.derived.iops / cell.derived.mb_per_s.max(1e-12) } else { 1.0 }
    };
    let all = grid.cells_of(column);
    let tops = all.flat_map(|cell| {
        let samples = cell.measured.samples.iter().map(|sample| sample.mb_per_s());
        samples.chain(cell.derived.bound_mb_per_s).map(move |mb_per_s| mb_per_s * scale_of(cell))
    });
    let axis = Axis::linear(tops.fold(0.0, f64::max), PLOT);
    let title = format!("{}, {unit}", grid.columns[column].title());
    let desc = "A bar for each array: the median. Dots: every sample. Tick: what the members could \
                deliver together. Right: the median and its ratio to the ordinary disk.";
    Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let scale = scale_of(cell);
        let value = cell.rate();
        let class =
            if cell.measured.verified == Some(false) { "bar wrong" } else { bar_class(cell) };
        chart.bar(y, axis.length(value), class);
        if let Some(bound) = cell.derived.bound_mb_per_s {
            let x = LABEL + axis.length(bound * scale);
            chart.svg.line("bound", (x, y + 2.0), (x, y + ROW - 2.0));
        }
        for sample in &cell.measured.samples {
            let value = cell.rate_of(sample);
            let x = LABEL + axis.length(value);
            let tooltip = format!("{} {unit} in {:.2} s", units::digits(value), sample.seconds);
            chart.svg.dot("dot", (x, y + ROW / 2.0), 2.3, Some(&tooltip));
        }
        let ratio = cell.derived.ratio_to_single.filter(|_| !cell.is_spoiled());
        let ratio = ratio.map(|ratio| format!("{ratio:.2}×")).unwrap_or_default();
        chart.values(y, &units::digits(value), &ratio);
    })
}

fn bar_class(cell: &Cell) -> &'static str {
    if cell.is_single() {
        "bar single"
    } else if cell.case.degraded > 0 {
        "bar degraded"
    } else {
        "bar"
    }
}

/// From p50 over p99 and p99.9 to the slowest, on a logarithmic scale. `None` without latencies.
pub(crate) fn latency(grid: &PivotTable<'_>, column: usize) -> Option<String> {
    let all = grid.cells_of(column);
    let known = all.filter_map(|cell| cell.measured.latency_us);
    let ends = known.map(|latency| (latency.p50, latency.max));
    let (low, high) = ends.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))?;
    let axis = Axis::logarithmic(low, high, PLOT);
    let title = format!("{}: latency", grid.columns[column].title());
    let desc = "Logarithmic scale. Filled dot: p50. Thick \
                line to p99, thin line to p99.9, open dot: the slowest. Right: p50 and p99.";
    let chart = Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let Some(latency) = cell.measured.latency_us else { return };
        let middle = y + ROW / 2.0;
        let x = |us: f64| LABEL + axis.length(us);
        for (class, to) in [("thin", latency.max), ("thick", latency.p99)] {
            chart.svg.line(class, (x(latency.p50), middle), (x(to), middle));
        }
        for (class, us, radius) in
            [("p50", latency.p50, 4.0), ("p999", latency.p999, 2.5), ("max", latency.max, 3.0)]
        {
            chart.svg.dot(class, (x(us), middle), radius, None);
        }
        chart.values(y, &units::latency(latency.p50), &units::latency(latency.p99));
    });
    Some(chart)
}

/// CPU seconds of the process per GiB. `None` when no cell has them.
pub(crate) fn cpu(grid: &PivotTable<'_>, column: usize) -> Option<String> {
    let all = grid.cells_of(column);
    let top = all.filter_map(|cell| cell.derived.cpu_s_per_gib).reduce(f64::max)?;
    let axis = Axis::linear(top, PLOT);
    let title = format!("{}: CPU seconds per GiB", grid.columns[column].title());
    let desc = "A bar for each array: CPU time of the process, user and system, for each GiB that \
                the workload moved.";
    let chart = Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let Some(cpu) = cell.derived.cpu_s_per_gib else { return };
        chart.bar(y, axis.length(cpu), "bar cpu");
        chart.values(y, &units::digits(cpu), "");
    });
    Some(chart)
}

/// Traffic of each member per byte of the workload, a bar per member. `None` without counters.
pub(crate) fn traffic(grid: &PivotTable<'_>, column: usize) -> Option<String> {
    let all = || grid.cells_of(column);
    let per_user = |cell: &Cell, bytes: u64| bytes as f64 / cell.user_bytes().max(1) as f64;
    let tops = all().filter_map(|cell| {
        cell.measured
            .per_member
            .iter()
            .map(MemberTraffic::bytes)
            .max()
            .map(|top| per_user(cell, top))
    });
    let top = tops.reduce(f64::max)?;
    let title = format!("{}: traffic of each member", grid.columns[column].title());
    let desc = "A group of bars for each array, one for each member: bytes read (lower part) and \
                written (upper part) per byte of the workload. Right: the sum of all members, and \
                the busiest over the idlest, or how many were idle.";
    let axis = Axis::none();
    let chart = Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let members = cell.measured.per_member.len().max(1) as f64;
        let step = (PLOT / members).min(40.0);
        let full = ROW - 4.0;
        for (slot, member) in cell.measured.per_member.iter().enumerate() {
            let x = LABEL + slot as f64 * step;
            let height = |bytes: u64| full * per_user(cell, bytes) / top.max(1e-12);
            let (read, written) = (height(member.read_bytes), height(member.written_bytes));
            let bottom = y + ROW - 2.0;
            let parts = [
                ("slot", bottom - full, full),
                ("read", bottom - read, read),
                ("written", bottom - read - written, written),
            ];
            for (class, top, height) in parts {
                chart.svg.rectangle(class, (x, top), (step - 3.0, height));
            }
        }
        let moved = Value::times(cell.amplification()).to_string();
        chart.values(y, &moved, &unevenness(cell).to_string());
    });
    Some(chart)
}

/// `1.25x`, or `1 idle` where a member moved nothing.
pub(crate) fn unevenness(cell: &Cell) -> Value {
    match cell.idle_members() {
        0 => Value::times(cell.imbalance()),
        idle => Value::Text(format!("{idle} idle")),
    }
}

/// A chart under construction.
struct Chart {
    svg: Svg,
}

impl Chart {
    fn new(title: &str, desc: &str) -> Chart {
        Chart { svg: Svg::new(title, desc) }
    }

    fn bar(&mut self, y: f64, length: f64, class: &str) {
        self.svg.rectangle(class, (LABEL, y + 5.0), (length, ROW - 10.0));
    }

    /// The two figures at the right of a row.
    fn values(&mut self, y: f64, first: &str, second: &str) {
        self.svg.text("value", 552.0, y + ROW / 2.0 + 4.0, first);
        self.svg.text("second", WIDTH - 4.0, y + ROW / 2.0 + 4.0, second);
    }

    /// Draws the lines below each other and closes the document.
    fn draw(
        mut self,
        lines: Vec<Line<'_>>,
        axis: &Axis,
        mut row: impl FnMut(&mut Chart, f64, &Cell),
    ) -> String {
        let height_of = |line: &Line<'_>| match line {
            Line::Heading(_) => HEADING,
            Line::Array(..) => ROW,
        };
        let plot: f64 = lines.iter().map(height_of).sum();
        let ticks = if axis.ticks.is_empty() { 0.0 } else { AXIS };
        for (value, label) in &axis.ticks {
            let x = LABEL + axis.length(*value);
            self.svg.line("grid", (x, 0.0), (x, plot));
            self.svg.text("tick", x, plot + 15.0, label);
        }
        let mut y = 0.0;
        for line in &lines {
            match line {
                Line::Heading(text) => self.svg.text("heading", 0.0, y + HEADING - 6.0, text),
                Line::Array(label, cell) => {
                    self.svg.text("label", 8.0, y + ROW / 2.0 + 4.0, &shorten(label));
                    if let Some(cell) = cell {
                        row(&mut self, y, cell);
                    }
                }
            }
            y += height_of(line);
        }
        self.svg.finish(WIDTH, plot + ticks)
    }
}

/// Two bars for each label, ours and the published one, on one scale.
pub(crate) fn pairs(title: &str, bars: &[(String, f64, f64)]) -> String {
    const LABELS: f64 = 250.0;
    const BAR: f64 = 9.0;
    let top = bars.iter().map(|(_, ours, theirs)| ours.max(*theirs)).fold(0.0, f64::max);
    let scale = Axis::linear(top, PLOT_END - LABELS);
    let desc = "Two bars for each figure: here above, published below.";
    let mut chart = Chart::new(title, desc);
    for (at, (label, ours, theirs)) in bars.iter().enumerate() {
        let y = at as f64 * (ROW + 2.0);
        chart.svg.text("label", 0.0, y + ROW / 2.0 + 4.0, &first_of(label, 42));
        for (class, top, value) in [("bar", 2.0, ours), ("bar published", 2.0 + BAR, theirs)] {
            chart.svg.rectangle(class, (LABELS, y + top), (scale.length(*value), BAR));
        }
        chart.values(y, &units::digits(*ours), &units::digits(*theirs));
    }
    chart.svg.finish(WIDTH, bars.len() as f64 * (ROW + 2.0) + 4.0)
}
