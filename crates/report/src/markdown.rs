//! A report as Markdown, for a wiki, an issue or a page of documentation.
//!
//! Invariant: the same facts as on the HTML page, without its charts; no text can break the table
//! that it stands in. Called by `raidlab report`.

use results::record::Cell;
use spec::units;

use crate::apart;
use crate::during;
use crate::pivot::{self, PivotTable};
use crate::published::{Beside, Ratios};
use crate::runs::{Axis, ByPlace, Curve, Report, by_place, curves};
use crate::summary;
use crate::works::work;

/// The report.
pub fn render(report: &Report) -> String {
    let mut out = format!("# {}\n", plain(&report.title));
    for source in &report.sources {
        out.push_str(&format!("\n{}\n", provenance(source)));
    }
    summarised(report, &mut out);
    speed(report, &mut out);
    for (axis, title) in Axis::TITLES {
        along(&curves(&report.record, axis), title, &mut out);
    }
    by_place(&report.record).iter().for_each(|table| beside_places(table, &mut out));
    beside(report, &mut out);
    let grid = PivotTable::new(&report.record);
    let findings = grid.findings();
    if !findings.is_empty() {
        out.push_str("\n## Findings\n\n");
    }
    for (finding, places) in findings {
        let command = finding.command.as_ref().map(|command| format!(" Try `{command}`."));
        let (name, text, places) = (&finding.name, &finding.text, plain(&places.join("; ")));
        let command = command.unwrap_or_default();
        out.push_str(&format!("- **{}**: {} ({places}){command}\n", plain(name), plain(text)));
    }
    let warnings = grid.warnings();
    if !warnings.is_empty() {
        out.push_str("\n## Warnings\n\n");
    }
    for (text, places) in warnings {
        out.push_str(&format!("- {} ({})\n", plain(&text), plain(&pivot::some(&places))));
    }
    if !report.not_run.is_empty() {
        out.push_str("\n## Not run\n\n");
    }
    for not_run in &report.not_run {
        out.push_str(&format!("- {}: {}\n", plain(&not_run.what), plain(&not_run.reason)));
    }
    out
}

fn summarised(report: &Report, out: &mut String) {
    for group in &report.summary().groups {
        out.push_str(&format!("\n## Summary: {}\n\n", plain(&group.conditions)));
        for line in summary::lines(group, usize::MAX) {
            out.push_str(&format!("- **{}**: {}\n", line.lead, plain(&line.text)));
        }
    }
}

fn provenance(source: &crate::runs::Source) -> String {
    let host = &source.host;
    let cores = host.cores.map(|cores| format!("{cores} CPUs"));
    let memory = host.memory_bytes.map(units::bytes);
    let kernel = host.parity_kernel.as_ref().map(|kernel| format!("parity by {kernel}"));
    let parts = [
        Some(source.name.clone()).filter(|name| !name.is_empty()),
        Some(format!("raidlab {}", source.raidlab)),
        Some(source.started.clone()),
        host.hostname.clone(),
        host.cpu.clone(),
        cores,
        memory,
        host.kernel.clone(),
        kernel,
    ];
    plain(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

const HEADS: [&str; 10] = [
    "array",
    "disks",
    "workload",
    "median",
    "unit",
    "samples from .. to",
    "of one disk",
    "of the bound",
    "CPU-s/GiB",
    "of the machine",
];

fn speed(report: &Report, out: &mut String) {
    let grid = PivotTable::new(&report.record);
    out.push_str("\n## Speed\n\n");
    row(out, HEADS.map(str::to_string));
    out.push_str("|---|---:|---|---:|---|---:|---:|---:|---:|---:|\n");
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    for (place, column, cell) in grid.cells() {
        let median = if cell.did_something() { units::digits(cell.rate()) } else { "-".into() };
        row(
            out,
            [
                place.label.clone(),
                pivot::disks(cell),
                format!("{} {}", column.title(), column.detail_and_place()),
                format!("{median}{}", mark(cell)),
                if column.counts_requests { "/s" } else { "MB/s" }.to_string(),
                samples(cell),
                known(cell.ratio_to_single.map(|ratio| format!("{ratio:.2}x"))),
                known(cell.bound_share.map(|share| format!("{:.0} %", share * 100.0))),
                known(cell.cpu_s_per_gib.map(units::digits)),
                known(cell.machine_cpu_s_per_gib.map(units::digits)),
            ],
        );
    }
    out.push_str(
        "\nX: data differed from what was written. ~: no steady window (the last five samples).\n",
    );
    apart(&grid, out);
    during(&grid, out);
}

fn mark(cell: &Cell) -> &'static str {
    match cell {
        _ if cell.verified == Some(false) => " X",
        _ if cell.steady == Some(false) => " ~",
        _ => "",
    }
}

fn samples(cell: &Cell) -> String {
    let rates: Vec<f64> = cell.samples.iter().map(|sample| cell.rate_of(sample)).collect();
    match results::stats::range(&rates) {
        Some((low, high)) => {
            format!("{}: {} .. {}", rates.len(), units::digits(low), units::digits(high))
        }
        None => "-".into(),
    }
}

fn apart(grid: &PivotTable<'_>, out: &mut String) {
    let lines = apart::lines(grid);
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("\n### {}\n\n", apart::TITLE));
    row(out, apart::HEADS.map(str::to_string));
    out.push_str("|---|---:|---|---|---:|---:|---:|---:|\n");
    lines.into_iter().for_each(|line| row(out, line));
}

fn during(grid: &PivotTable<'_>, out: &mut String) {
    let lines = during::lines(grid);
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("\n### {}\n\n", during::TITLE));
    row(out, during::HEADS.map(str::to_string));
    out.push_str("|---|---:|---|---|---:|---:|---:|---:|---:|\n");
    lines.into_iter().for_each(|line| row(out, line));
}

/// A table for each workload: a row for each curve, a column for each place on the axis.
fn along(curves: &[Curve], title: &str, out: &mut String) {
    let mut works: Vec<&str> = curves.iter().map(|curve| curve.work.as_str()).collect();
    works.dedup();
    works.sort_unstable();
    works.dedup();
    for work in works {
        let mine: Vec<&Curve> = curves.iter().filter(|curve| curve.work == work).collect();
        let mut places: Vec<u64> =
            mine.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
        places.sort_unstable();
        places.dedup();
        out.push_str(&format!("\n## {title}: {}, {}\n\n", plain(work), mine[0].unit));
        let heads = places.iter().map(u64::to_string);
        row(out, std::iter::once("array".to_string()).chain(heads));
        row(out, std::iter::once("---").chain(places.iter().map(|_| "---:")));
        for curve in mine {
            let fields = places.iter().map(|place| point(curve, *place));
            row(out, std::iter::once(curve.label.clone()).chain(fields));
        }
    }
}

/// A row for each array, a column for each file system.
fn beside_places(table: &ByPlace, out: &mut String) {
    let (work, unit) = (plain(&table.work), table.unit);
    out.push_str(&format!("\n## By file system: {work}, {unit}, and times the first\n\n"));
    row(out, std::iter::once("array".to_string()).chain(table.places.iter().cloned()));
    row(out, std::iter::once("---").chain(table.places.iter().map(|_| "---:")));
    for (label, figures) in &table.rows {
        let fields = (0..figures.len()).map(|place| ByPlace::text(figures, place));
        row(out, std::iter::once(label.clone()).chain(fields));
    }
}

/// `230 (+48 %)`: the figure, and what the step to it adds.
pub(crate) fn point(curve: &Curve, place: u64) -> String {
    let Some(at) = curve.points.iter().position(|point| point.0 == place) else {
        return "-".into();
    };
    let figure = units::digits(curve.points[at].1);
    match at.checked_sub(1) {
        Some(before) => format!("{figure} ({:+.0} %)", curve.gains()[before] * 100.0),
        None => figure,
    }
}

fn beside(report: &Report, out: &mut String) {
    let found = report.beside();
    let Some(published) = report.published.as_ref().filter(|_| !found.is_empty()) else { return };
    out.push_str(&format!("\n## Beside published figures: {}\n\n", plain(&published.title)));
    for text in [&published.source, &published.system, &published.notes] {
        out.push_str(&format!("{}\n", plain(text)));
    }
    out.push('\n');
    let heads = ["array", "workload", "here", "published", "unit", "ratio of", "here", "published"];
    row(out, heads);
    out.push_str("|---|---|---:|---:|---|---|---:|---:|\n");
    let labels = report.beside_labels(&found);
    for (Beside { cell, figure, ours, theirs, unit, ratios }, label) in found.iter().zip(labels) {
        let details = figure.details();
        let details = if details.is_empty() { details } else { format!(" ({details})") };
        let none = || "-".to_string();
        let ratio = |pick: fn(&Ratios) -> f64| {
            ratios.as_ref().map_or_else(none, |both| format!("{:.2}x", pick(both)))
        };
        row(
            out,
            [
                label,
                format!("{}{details}", work(cell)),
                units::digits(*ours),
                units::digits(*theirs),
                unit.to_string(),
                ratios.as_ref().map_or_else(none, |both| both.of.clone()),
                ratio(|both| both.ours),
                ratio(|both| both.theirs),
            ],
        );
    }
}

fn row<T: AsRef<str>>(out: &mut String, fields: impl IntoIterator<Item = T>) {
    let fields = fields.into_iter().map(|field| plain(field.as_ref()));
    out.push_str(&format!("| {} |\n", fields.collect::<Vec<_>>().join(" | ")));
}

/// A text that is nothing but text in Markdown: one line, no table cell, no tag, no emphasis by
/// chance.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '*' | '<' | '`' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::fixture;

    use super::*;

    #[test]
    fn every_cell_has_its_row_and_every_table_its_columns() {
        let mut report = Report::of(fixture::record());
        report.sources[0].host.cpu = Some("evil | <b> `cpu`\n".into());
        report.published = Some(crate::published::named("wiki-2-disks").expect("the wiki"));
        let page = render(&report);
        let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("MB/s"));
        assert!(rows.count() >= report.record.cells.len() / 2);
        assert!(page.contains("evil \\| \\<b> \\`cpu\\` "));
        assert!(page.contains("## By number of disks: seq-read, MB/s"));
        let places = render(&Report::of(crate::runs::places_for_tests()));
        assert!(places.contains("| RAID 5 x4 | 100 | 52.0 (0.52x) |"), "{places}");
        // Every line of a table has as many columns as the heading of the table.
        let mut wanted = None;
        for line in page.lines() {
            let columns = line.replace("\\|", "").matches('|').count();
            wanted = if line.starts_with('|') { wanted.or(Some(columns)) } else { None };
            assert_eq!(columns, wanted.unwrap_or(0), "{line}");
        }
    }
}
