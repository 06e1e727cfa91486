//! The report's charts, as inline SVG that takes its colours from the page's style sheet.
//!
//! ```text
//!   label | bar ======o=o==|  value     one row for each array, a heading for each number of disks
//!         0                          o sample, | bound
//! ```
//!
//! Invariant: a scale begins at 0, except latency's, which is logarithmic and labelled so. Called
//! by `html`.

use std::fmt::Write;
use std::ops::Range;

use results::record::{Cell, MemberTraffic};
use spec::units;

use crate::doc::Value;
use crate::pivot::PivotTable;
use crate::table::unevenness;

/// Geometry of all charts, in SVG units; the page scales them.
const WIDTH: f64 = 620.0;
const LABEL: f64 = 168.0;
const PLOT_END: f64 = 486.0;
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
    let scale_of = |cell: &Cell| if random { cell.iops / cell.mb_per_s.max(1e-12) } else { 1.0 };
    let all = grid.cells_of(column);
    let tops = all.flat_map(|cell| {
        let samples = cell.samples.iter().map(|sample| sample.mb_per_s());
        samples.chain(cell.bound_mb_per_s).map(move |mb_per_s| mb_per_s * scale_of(cell))
    });
    let axis = Axis::linear(tops.fold(0.0, f64::max));
    let title = format!("{}, {unit}", grid.columns[column].title());
    let desc = "A bar for each array: the median. Dots: every sample. Tick: what the members could \
                deliver together. Right: the median and its ratio to the ordinary disk.";
    Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let scale = scale_of(cell);
        let value = cell.rate();
        let class = if cell.verified == Some(false) { "bar wrong" } else { bar_class(cell) };
        chart.bar(y, axis.length(value), class);
        if let Some(bound) = cell.bound_mb_per_s {
            let x = LABEL + axis.length(bound * scale);
            chart.line("bound", (x, y + 2.0), (x, y + ROW - 2.0));
        }
        for sample in &cell.samples {
            let value = cell.rate_of(sample);
            let x = LABEL + axis.length(value);
            let tooltip = format!("{} {unit} in {:.2} s", units::digits(value), sample.seconds);
            chart.dot("dot", x, y + ROW / 2.0, 2.3, Some(&tooltip));
        }
        let ratio = cell.ratio_to_single.filter(|_| !cell.is_spoiled());
        let ratio = ratio.map(|ratio| format!("{ratio:.2}×")).unwrap_or_default();
        chart.values(y, &units::digits(value), &ratio);
    })
}

fn bar_class(cell: &Cell) -> &'static str {
    if cell.is_single() {
        "bar single"
    } else if cell.degraded > 0 {
        "bar degraded"
    } else {
        "bar"
    }
}

/// From p50 over p99 and p99.9 to the slowest, on a logarithmic scale. `None` without latencies.
pub(crate) fn latency(grid: &PivotTable<'_>, column: usize) -> Option<String> {
    let all = grid.cells_of(column);
    let known = all.filter_map(|cell| cell.latency_us);
    let ends = known.map(|latency| (latency.p50, latency.max));
    let (low, high) = ends.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))?;
    let axis = Axis::logarithmic(low, high);
    let title = format!("{}: latency", grid.columns[column].title());
    let desc = "Logarithmic scale. Filled dot: p50. Thick \
                line to p99, thin line to p99.9, open dot: the slowest. Right: p50 and p99.";
    let chart = Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let Some(latency) = cell.latency_us else { return };
        let middle = y + ROW / 2.0;
        let x = |us: f64| LABEL + axis.length(us);
        for (class, to) in [("thin", latency.max), ("thick", latency.p99)] {
            chart.line(class, (x(latency.p50), middle), (x(to), middle));
        }
        for (class, us, radius) in
            [("p50", latency.p50, 4.0), ("p999", latency.p999, 2.5), ("max", latency.max, 3.0)]
        {
            chart.dot(class, x(us), middle, radius, None);
        }
        chart.values(y, &units::latency(latency.p50), &units::latency(latency.p99));
    });
    Some(chart)
}

/// CPU seconds of the process per GiB. `None` when no cell has them.
pub(crate) fn cpu(grid: &PivotTable<'_>, column: usize) -> Option<String> {
    let all = grid.cells_of(column);
    let top = all.filter_map(|cell| cell.cpu_s_per_gib).reduce(f64::max)?;
    let axis = Axis::linear(top);
    let title = format!("{}: CPU seconds per GiB", grid.columns[column].title());
    let desc = "A bar for each array: CPU time of the process, user and system, for each GiB that \
                the workload moved.";
    let chart = Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let Some(cpu) = cell.cpu_s_per_gib else { return };
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
        cell.per_member.iter().map(MemberTraffic::bytes).max().map(|top| per_user(cell, top))
    });
    let top = tops.reduce(f64::max)?;
    let title = format!("{}: traffic of each member", grid.columns[column].title());
    let desc = "A group of bars for each array, one for each member: bytes read (lower part) and \
                written (upper part) per byte of the workload. Right: the sum of all members, and \
                the busiest over the idlest, or how many were idle.";
    let axis = Axis::none();
    let chart = Chart::new(&title, desc).draw(lines(grid, column), &axis, |chart, y, cell| {
        let members = cell.per_member.len().max(1) as f64;
        let step = ((PLOT_END - LABEL) / members).min(40.0);
        let full = ROW - 4.0;
        for (slot, member) in cell.per_member.iter().enumerate() {
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
                chart.rectangle(class, (x, top), (step - 3.0, height));
            }
        }
        let moved = Value::times(cell.amplification()).to_string();
        chart.values(y, &moved, &unevenness(cell).to_string());
    });
    Some(chart)
}

/// A scale from values to lengths inside the plot.
struct Axis {
    ticks: Vec<(f64, String)>,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    fn none() -> Axis {
        Axis { ticks: Vec::new(), from: 0.0, to: 1.0, logarithmic: false }
    }

    /// From 0 to `top` or a little more, with round ticks.
    fn linear(top: f64) -> Axis {
        let top = if top > 0.0 { top } else { 1.0 };
        let power = 10_f64.powf((top / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| step * 4.5 >= top).unwrap_or(10.0 * power);
        let count = (top / step).floor() as usize;
        let digits = (-step.log10().floor()).max(0.0) as usize
            + usize::from((step / power - 2.5).abs() < 1e-9 && step < 10.0);
        let tick = |at: usize| (at as f64 * step, format!("{:.digits$}", at as f64 * step));
        let ticks = (0..=count).map(tick).collect();
        Axis { ticks, from: 0.0, to: top * 1.02, logarithmic: false }
    }

    /// Whole powers of ten around both ends.
    fn logarithmic(low: f64, high: f64) -> Axis {
        let from = 10_f64.powf(low.max(0.1).log10().floor());
        let to = 10_f64.powf(high.max(low.max(0.1)).log10().ceil()).max(from * 10.0);
        let (mut ticks, mut at) = (Vec::new(), from);
        while at <= to * 1.001 {
            let label = match at {
                _ if at >= 999_999.0 => format!("{:.0} s", at / 1e6),
                _ if at >= 999.0 => format!("{:.0} ms", at / 1e3),
                _ if at >= 0.99 => format!("{at:.0} us"),
                _ => format!("{at:.1} us"),
            };
            ticks.push((at, label));
            at *= 10.0;
        }
        Axis { ticks, from, to, logarithmic: true }
    }

    fn length(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            value / self.to
        };
        share.clamp(0.0, 1.0) * (PLOT_END - LABEL)
    }
}

/// An SVG document under construction.
struct Chart {
    title: String,
    desc: String,
    body: String,
}

impl Chart {
    fn new(title: &str, desc: &str) -> Chart {
        Chart { title: escape(title), desc: escape(desc), body: String::new() }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(element);
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.push(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A dot with an optional tooltip.
    fn dot(&mut self, class: &str, x: f64, y: f64, radius: f64, tooltip: Option<&str>) {
        let title =
            tooltip.map(|text| format!("<title>{}</title>", escape(text))).unwrap_or_default();
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\">{title}</circle>"
        ));
    }

    fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64)) {
        let ((x, y), (width, height)) = (at, size);
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        ));
    }

    fn bar(&mut self, y: f64, length: f64, class: &str) {
        self.rectangle(class, (LABEL, y + 5.0), (length, ROW - 10.0));
    }

    /// The two figures at the right of a row.
    fn values(&mut self, y: f64, first: &str, second: &str) {
        self.text("value", 552.0, y + ROW / 2.0 + 4.0, first);
        self.text("second", WIDTH - 4.0, y + ROW / 2.0 + 4.0, second);
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
            self.line("grid", (x, 0.0), (x, plot));
            self.text("tick", x, plot + 15.0, label);
        }
        let mut y = 0.0;
        for line in &lines {
            match line {
                Line::Heading(text) => self.text("heading", 0.0, y + HEADING - 6.0, text),
                Line::Array(label, cell) => {
                    self.text("label", 8.0, y + ROW / 2.0 + 4.0, &shorten(label));
                    if let Some(cell) = cell {
                        row(&mut self, y, cell);
                    }
                }
            }
            y += height_of(line);
        }
        let Chart { title, desc, body } = self;
        format!(
            "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {:.0}\"><title>{title}</title>\
             <desc>{desc}</desc>{body}</svg>",
            plot + ticks
        )
    }
}

/// Two bars for each label, ours and the published one, on one scale.
pub(crate) fn pairs(title: &str, bars: &[(String, f64, f64)]) -> String {
    const LABELS: f64 = 250.0;
    const BAR: f64 = 9.0;
    let top = bars.iter().map(|(_, ours, theirs)| ours.max(*theirs)).fold(0.0, f64::max);
    let scale = Scale::linear(top, PLOT_END - LABELS);
    let desc = "Two bars for each figure: here above, published below.";
    let mut chart = Chart::new(title, desc);
    for (at, (label, ours, theirs)) in bars.iter().enumerate() {
        let y = at as f64 * (ROW + 2.0);
        chart.text("label", 0.0, y + ROW / 2.0 + 4.0, &first_of(label, 42));
        for (class, top, value) in [("bar", 2.0, ours), ("bar published", 2.0 + BAR, theirs)] {
            chart.rectangle(class, (LABELS, y + top), (scale.length(*value), BAR));
        }
        chart.values(y, &units::digits(*ours), &units::digits(*theirs));
    }
    let Chart { title, desc, body } = chart;
    let height = bars.len() as f64 * (ROW + 2.0) + 4.0;
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\"><title>{title}</title>\
         <desc>{desc}</desc>{body}</svg>"
    )
}

/// A scale for other charts.
pub(crate) struct Scale(Axis, f64);

impl Scale {
    /// From 0 to `top` or a little more, over `length`.
    pub(crate) fn linear(top: f64, length: f64) -> Scale {
        Scale(Axis::linear(top), length)
    }

    /// Whole powers of ten around both ends, over `length`.
    pub(crate) fn logarithmic(low: f64, high: f64, length: f64) -> Scale {
        Scale(Axis::logarithmic(low, high), length)
    }

    /// Position of a value, from 0 to the length.
    pub(crate) fn length(&self, value: f64) -> f64 {
        self.0.length(value) / (PLOT_END - LABEL) * self.1
    }

    /// A line with its label at each round value, from left to right; `y`: its place.
    pub(crate) fn horizontal_lines(&self, across: Range<f64>, y: &dyn Fn(f64) -> f64) -> String {
        let Range { start, end } = across;
        let line = |(value, label): &(f64, String)| {
            let (y, left) = (y(*value), start - 6.0);
            format!(
                "<line class=\"grid\" x1=\"{start}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\"/>\
                 <text class=\"value plain\" x=\"{left:.1}\" y=\"{:.1}\">{label}</text>",
                y + 4.0
            )
        };
        self.0.ticks.iter().map(line).collect()
    }
}

/// Labels have room for some 25 characters; the tables have them in full.
pub(crate) fn shorten(label: &str) -> String {
    first_of(label, 25)
}

fn first_of(label: &str, room: usize) -> String {
    if label.chars().count() <= room {
        return label.to_string();
    }
    label.chars().take(room - 1).chain(['…']).collect()
}

/// Text escaped for XML and HTML, in content and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML at all.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let table: [(f64, &[&str]); 6] = [
            (330.0, &["0", "100", "200", "300"]),
            (82.0, &["0", "20", "40", "60", "80"]),
            (4.2, &["0", "1", "2", "3", "4"]),
            (0.7, &["0.0", "0.2", "0.4", "0.6"]),
            (10.5, &["0.0", "2.5", "5.0", "7.5", "10.0"]),
            (0.0, &["0.00", "0.25", "0.50", "0.75", "1.00"]),
        ];
        for (top, ticks) in table {
            let axis = Axis::linear(top);
            let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
            assert_eq!(labels, ticks, "{top}");
            assert!(axis.length(top) <= PLOT_END - LABEL);
        }
    }

    #[test]
    fn logarithmic_ends_are_powers_of_ten() {
        let axis = Axis::logarithmic(80.0, 2_500_000.0);
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
        assert_eq!(axis.length(10.0), 0.0);
        assert_eq!(Axis::logarithmic(0.0, 0.0).ticks.len(), 2);
    }

    #[test]
    fn what_xml_forbids_does_not_come_through() {
        assert_eq!(
            escape("a<b> & \"c\" 'd'\u{1}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}"
        );
        assert_eq!(shorten("raid1(raid0(2),raid0(2)) 64KiB").chars().count(), 25);
    }
}
