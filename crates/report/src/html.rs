//! The report as one page, with charts and every sample.
//!
//! Invariant: as of all pages ([`crate::doc`]); every chart has a title, a description and a table
//! with the same figures. Called by `bench --html` and `report`.

use results::record::{Cell, Record};
use results::settings::SETTINGS;

use crate::charts::{bars, distribution, heat_map};
use crate::doc::{self, Block, Chart, Doc, Fact, Section, Table};
use crate::pivot::{self, PivotTable};
use crate::repeat::folded;
use crate::runs::{Report, measured};
use crate::sections::{self, titled};
use crate::summary::{self, Summary};
use crate::work_names::work_name;
use crate::{directions, during, table};
use spec::shown::{counted, distinct};

/// Maximum of maps: more make the page slow in browsers.
const MAPS_MAX: usize = 40;

/// A record as an HTML document, its repetitions folded.
pub fn render(record: &Record) -> String {
    page(&Report::of(folded(record)), &Summary::of(record))
}

/// A report as an HTML document.
pub fn render_report(report: &Report) -> String {
    page(report, &report.summary())
}

fn page(report: &Report, summary: &Summary) -> String {
    let record = &report.record;
    let grid = PivotTable::new(record);
    let mut sections = Vec::new();
    if record.cells.is_empty() {
        let none = Block::Paragraph("No cells were measured.".into());
        sections.push(Section::new("", vec![none]));
    } else {
        sections.extend(titled("Warnings", sections::warnings(&grid)));
        sections.extend(summary::sections(summary));
        sections.extend(titled("Findings", sections::findings(&grid)));
        sections.push(speed(&grid, &crate::runs::measured_on(&record.cells)));
        sections.extend(sections::along(report));
        sections.extend(sections::published(report));
        sections.push(latency(&grid));
        sections.push(cpu(&grid));
        sections.push(members(&grid, record));
        sections.extend(titled("Every sample", table::every_sample(&grid).block()));
    }
    sections.extend(titled("Not run", sections::not_run(report)));
    sections.push(provenance(report));
    doc::html(&Doc {
        title: report.title.clone(),
        subtitle: subtitle(record),
        started: record.started.clone(),
        // That which measured it.
        version: record.raidlab.clone(),
        facts: facts(record),
        sections,
    })
}

fn subtitle(record: &Record) -> String {
    let machines = record.machines();
    if machines.len() > 1 {
        let names = machines.iter().filter_map(|host| host.hostname.as_deref());
        return format!("{} hosts: {}", machines.len(), names.collect::<Vec<_>>().join(", "));
    }
    let host = &machines[0];
    let parts = [host.hostname.clone(), host.cpu.clone(), host.kernel.clone()];
    let host = parts.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let host = if host.is_empty() { host } else { format!("run on {host}") };
    let parts = [measured(&record.cells), host].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("; ")
}

fn facts(record: &Record) -> Vec<Fact> {
    let all_checked = record.cells.iter().all(|cell| cell.measured.verified.is_some());
    let (class, text) = match (record.verified(), all_checked) {
        (true, true) => ("good", "every byte verified"),
        (true, false) => ("", "null members: not everything could be verified"),
        (false, _) => ("bad", "data differed"),
    };
    let cells = Fact { text: counted(record.cells.len(), "cell"), class: "" };
    vec![cells, Fact { text: text.into(), class }]
}

/// A figure of each workload that the chart can be drawn for.
fn figures(
    grid: &PivotTable<'_>,
    detail: impl Fn(&pivot::Column) -> String,
    chart: fn(&PivotTable<'_>, usize) -> Option<String>,
) -> Block {
    let figure = |(at, column): (usize, &pivot::Column)| {
        let (title, svg) = (column.title().to_string(), chart(grid, at)?);
        Some(Chart { title, detail: detail(column), svg, table: None })
    };
    Block::Charts(grid.columns.iter().enumerate().filter_map(figure).collect())
}

fn key<const N: usize>(of: [(&str, &str); N]) -> Block {
    Block::Key(of.iter().map(|(class, text)| (class.to_string(), text.to_string())).collect())
}

fn paragraph(text: &str) -> Block {
    Block::Paragraph(text.into())
}

fn speed(grid: &PivotTable<'_>, measured: &str) -> Section {
    let detail = |column: &pivot::Column| {
        let unit = if column.counts_requests { "IOPS" } else { "MB/s" };
        let parts = [unit.to_string(), column.detail_and_place()].into_iter();
        let parts = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>();
        format!("{}; {measured}", parts.join(", "))
    };
    let mut blocks = vec![
        key([
            ("swatch single", "ordinary disk"),
            ("swatch", "array"),
            ("swatch degraded", "degraded array"),
            ("swatch-dot", "one sample"),
            ("swatch-tick", "bound: what the members could deliver together"),
            ("", &format!("measured: {measured}")),
        ]),
        figures(grid, detail, |grid, at| Some(bars::speed(grid, at))),
        Block::Table(Table { title: "The same as a table".into(), ..table::speed(grid) }),
        table::legend(grid),
        paragraph(
            "MB/s are 10^6 bytes per second, medians of the samples. Ratio: to the ordinary disk \
             under the same workload. Bound: share of what the members could deliver together for \
             that access pattern, computed from geometry and drive models.",
        ),
    ];
    blocks.extend(
        [directions::table(grid), during::table(grid)].into_iter().filter_map(Table::block),
    );
    Section::new("Speed", blocks)
}

fn latency(grid: &PivotTable<'_>) -> Section {
    let mut blocks = vec![
        key([
            ("swatch-dot p50", "median (p50)"),
            ("swatch-line", "to p99"),
            ("swatch-dot p999", "p99.9"),
            ("swatch-dot max", "slowest request"),
        ]),
        figures(grid, |_| "p50 and p99, logarithmic".into(), bars::latency),
    ];
    if let Some(table) = distribution::table(grid).block() {
        blocks.push(paragraph(
            "Distribution: latency by percentile, from the fastest request to the slowest. Each \
             step to the right leaves a tenth of the slower requests: p90, p99, p99.9.",
        ));
        let detail = |_: &pivot::Column| "both axes logarithmic".to_string();
        blocks.extend([figures(grid, detail, distribution::distribution), table]);
    }
    Section::new("Latency", blocks)
}

fn cpu(grid: &PivotTable<'_>) -> Section {
    let about = "Seconds of CPU time of this process, user and system, for each GiB that the \
                 workload moved.";
    let charts = figures(grid, |_| "CPU-s/GiB".into(), bars::cpu);
    Section::new("CPU", vec![paragraph(about), charts])
}

fn members(grid: &PivotTable<'_>, record: &Record) -> Section {
    let mut blocks = vec![
        key([
            ("swatch read", "read"),
            (
                "swatch written",
                "written, at each member, per byte of the workload. Right: all members together, \
                 and the busiest over the idlest.",
            ),
        ]),
        figures(grid, |_| "counted below the engine".into(), bars::traffic),
    ];
    let (maps, left_out) = maps(record);
    if !maps.is_empty() {
        let more = match left_out {
            0 => String::new(),
            more => format!(" {more} more cells have such a map; the record has their figures."),
        };
        let about = format!("Over time: bytes that each member moved, step by step.{more}");
        blocks.extend([Block::Paragraph(about), Block::Charts(maps)]);
    }
    blocks.extend(table::members(grid).block());
    Section::new("Members", blocks)
}

/// The maps of the first cells that have series, and how many more there are.
fn maps(record: &Record) -> (Vec<Chart>, usize) {
    let labels = pivot::labels(&record.cells, true);
    let mut maps = Vec::new();
    let mut left_out = 0;
    for (cell, label) in record.cells.iter().zip(labels) {
        let Some(series) = &cell.measured.series else { continue };
        if maps.len() == MAPS_MAX {
            left_out += 1;
            continue;
        }
        let title = format!("{}, {}", pivot::with_disks(&label, cell), work_name(cell));
        let svg = heat_map::map(&title, series);
        maps.extend(svg.map(|svg| Chart { title, detail: String::new(), svg, table: None }));
    }
    (maps, left_out)
}

/// Where each record is from, and the settings of all.
fn provenance(report: &Report) -> Section {
    let sources = report.sources.iter();
    let sources = sources.map(|source| (source.name.clone(), sections::provenance(source)));
    let settings = (String::new(), settings(&report.record));
    let facts = Block::Facts(sources.chain([settings]).collect());
    Section::new("Provenance", vec![facts])
}

/// The settings of the run: each with its values, where it has any; and what the generator costs.
fn settings(record: &Record) -> Vec<(String, String)> {
    let listed = SETTINGS.iter().filter(|setting| setting.listed);
    let settings = listed.map(|setting| {
        let values = record.cells.iter().filter_map(|cell| setting.shown(cell));
        (setting.label, distinct(values))
    });
    let cost =
        |cell: &Cell| cell.measured.generator_ns_per_op.map(|ns| format!("{ns:.0} ns per request"));
    let cost = distinct(record.cells.iter().filter_map(cost));
    let all = settings.chain([("generator's own cost", cost)]);
    let known = all.filter(|(_, values)| !values.is_empty());
    known.map(|(name, values)| (name.to_string(), values.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use spec::units;

    use crate::fixture;

    use super::*;

    #[test]
    fn the_page_needs_nothing_from_outside() {
        let page = render(&fixture::record());
        for forbidden in ["<script", "src=", "http:", "https:", "url(", "@import", "<link"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.starts_with("<!doctype html>"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn every_text_is_escaped() {
        let mut record = fixture::record();
        let evil = "<b onload=\"x\">&'";
        record.host.hostname = Some(evil.into());
        for cell in &mut record.cells {
            cell.case.members = evil.into();
            cell.case.level = format!("raid{evil}").into();
            cell.case.workload = evil.into();
            cell.derived.warnings = vec![evil.into()];
            cell.derived.bound_note = Some(evil.into());
            cell.case.layout = Some(evil.into());
        }
        record.cells.truncate(4);
        let page = render(&record);
        assert!(!page.contains("<b "), "a text came through");
        assert!(page.contains("&lt;b onload=") || page.contains("&lt;b onload&#x3d;"));
    }

    #[test]
    fn every_chart_says_what_it_shows_and_every_sample_is_there() {
        let record = fixture::record();
        let page = render(&record);
        let charts = page.matches("<svg").count();
        assert_eq!(charts, 20, "four charts of four workloads, and each by number of disks");
        let points = page.matches("class=\"point").count();
        assert_eq!(points, 16, "RAID 0 and RAID 10,n2 with two disks and four");
        assert_eq!(page.matches("<title").count(), 1 + charts + dots(&record) + points);
        assert_eq!(page.matches("<desc").count(), charts);
        assert_eq!(page.matches("class=\"dot\"").count(), dots(&record));
        for cell in &record.cells {
            let rates = cell.measured.samples.iter().map(|sample| units::digits(sample.mb_per_s()));
            assert!(page.contains(&rates.collect::<Vec<_>>().join(", ")));
        }
    }

    #[test]
    fn distributions_of_latency_are_drawn_where_the_record_has_them() {
        let mut record = fixture::record();
        for cell in &mut record.cells {
            let mut latencies = results::stats::LatencyRecorder::new();
            (1..=1000).for_each(|us| latencies.record(us * 1000));
            cell.measured.latency_curve = latencies.curve();
        }
        let page = render(&record);
        assert_eq!(page.matches("distribution of latency</title>").count(), 4);
        let lines = page.matches("class=\"curve c").count();
        assert!(lines >= 2 * record.cells.len(), "a line and a legend for each: {lines}");
        assert!(page.contains("<th scope=\"col\" class=\"right\">99.99 %</th>"));
        assert_eq!(page.matches("<td class=\"right\">990 us</td>").count(), record.cells.len());
        let older = render(&fixture::record());
        assert!(!older.contains("distribution of latency") && !older.contains("99.99 %"));
    }

    fn dots(record: &Record) -> usize {
        record.cells.iter().map(|cell| cell.measured.samples.len()).sum()
    }

    #[test]
    fn sparse_and_empty_records_make_pages() {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.measured.latency_us, cell.derived.cpu_s_per_gib, cell.derived.ratio_to_single) =
            (None, None, None);
        (cell.derived.bound_mb_per_s, cell.derived.bound_share) = (None, None);
        cell.measured.samples.clear();
        cell.measured.per_member.clear();
        (cell.derived.mb_per_s, cell.derived.iops) = (0.0, 0.0);
        assert!(!render(&record).contains("NaN"));
        record.cells.clear();
        assert!(render(&record).contains("No cells"));
    }
}
