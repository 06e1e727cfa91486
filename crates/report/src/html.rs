//! The report: one self-contained HTML file.
//!
//! ```text
//!   Report -> Grid -> Page (plain data) -> html/report.html (template: escapes every text)
//!                 \-> chart, lines, heat (SVG; escape their own texts) --^
//! ```
//!
//! Invariant: no script, no font, no image and no address from outside; every text of the record is
//! escaped; every chart has a title, a description and a table with the same figures. Called by
//! `bench --html` and `report`.

mod advised;
mod chart;
mod distribution;
mod heat_map;
mod line_chart;
mod predicted;
mod published;
mod sections;

use minijinja::{AutoEscape, Environment, Value, context};
use results::host::Host;
use results::record::{Cell, MemberTraffic, Record};
use results::settings::SETTINGS;
use serde::Serialize;
use spec::units;

use crate::apart;
use crate::during;
use crate::pivot::{self, Column, PivotTable, Row};
use crate::repeat::folded;
use crate::runs::Report;
use crate::summary::Summary;

pub use advised::render_advised;
pub use predicted::render_predicted;
pub use published::render_published;

const TEMPLATE: &str = include_str!("html/report.html");
const FRAME: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/report.css");

/// A record as an HTML document, its repetitions folded.
pub fn render(record: &Record) -> String {
    page(&Report::of(folded(record)), &Summary::of(record))
}

/// A report as an HTML document.
pub fn render_report(report: &Report) -> String {
    page(report, &report.summary())
}

fn page(report: &Report, summary: &Summary) -> String {
    rendered(TEMPLATE, Page::of(report, summary))
}

/// A page in the frame of all pages.
///
/// Templates are part of the program and pages are plain data: a failure here is a bug.
fn rendered(template: &str, page: impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("page.html", FRAME).expect("the frame parses");
    // A page of a record has the version that measured it.
    let page = context! {
        ..Value::from_serialize(page),
        ..context! { style => STYLE, version => env!("CARGO_PKG_VERSION") }
    };
    environment.render_str(template, page).expect("the page has what the template uses")
}

#[derive(Serialize)]
struct Page {
    title: String,
    version: String,
    started: String,
    subtitle: String,
    /// What was measured, for the key of the charts: `modelled disks`, `disks`.
    measured: String,
    verified: bool,
    all_checked: bool,
    cells: usize,
    summary: Vec<sections::SummaryGroup>,
    warnings: Vec<Warning>,
    workloads: Vec<Workload>,
    heads: Vec<Head>,
    sections: Vec<Section>,
    apart_title: &'static str,
    apart_heads: [&'static str; 8],
    apart: Vec<[String; 8]>,
    during_title: &'static str,
    during_heads: [&'static str; 9],
    during: Vec<[String; 9]>,
    samples: Vec<SampleRow>,
    latency_heads: Vec<String>,
    latencies: Vec<LatencyRow>,
    members: Vec<MemberRow>,
    sources: Vec<SourceRow>,
    settings: Vec<(String, String)>,
    along: Vec<sections::Along>,
    beside: Option<sections::Published>,
    findings: Vec<sections::FindingRow>,
    maps: Vec<sections::Map>,
    maps_left_out: usize,
    not_run: Vec<(String, String)>,
}

/// The provenance of a record of the report.
#[derive(Serialize)]
struct SourceRow {
    name: String,
    provenance: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Warning {
    text: String,
    places: String,
}

/// A column of the grid: its charts.
#[derive(Serialize)]
struct Workload {
    title: String,
    unit: &'static str,
    detail: String,
    speed: String,
    latency: Option<String>,
    distribution: Option<String>,
    cpu: Option<String>,
    traffic: Option<String>,
}

#[derive(Serialize)]
struct Head {
    title: String,
    detail: String,
    unit: &'static str,
}

#[derive(Serialize)]
struct Section {
    title: String,
    rows: Vec<TableRow>,
}

#[derive(Serialize)]
struct TableRow {
    label: String,
    cells: Vec<Option<Figures>>,
}

/// A cell of the table.
#[derive(Serialize)]
struct Figures {
    rate: String,
    ratio: String,
    share: String,
    note: String,
    cpu: String,
    p50: String,
    p99: String,
    verified: bool,
    warned: bool,
    unsteady: bool,
}

#[derive(Serialize)]
struct SampleRow {
    array: String,
    workload: String,
    disks: String,
    median: String,
    spread: String,
    samples: String,
    p50: String,
    p99: String,
    p999: String,
    max: String,
    cpu_process: String,
    cpu_system: String,
    cpu_per_gib: String,
    machine_cpu_per_gib: String,
    steady: &'static str,
    verified: bool,
    checked: &'static str,
}

/// The distribution of a cell's latencies.
#[derive(Serialize)]
struct LatencyRow {
    array: String,
    disks: String,
    workload: String,
    fields: Vec<String>,
}

#[derive(Serialize)]
struct MemberRow {
    array: String,
    disks: String,
    workload: String,
    moved: String,
    uneven: String,
    members: Vec<String>,
}

impl Page {
    fn of(report: &Report, summary: &Summary) -> Page {
        let record = &report.record;
        let grid = PivotTable::new(record);
        let (maps, maps_left_out) = sections::maps(record);
        let warnings = grid.warnings().into_iter();
        Page {
            title: report.title.clone(),
            version: record.raidlab.clone(),
            started: record.started.clone(),
            subtitle: subtitle(record),
            measured: crate::runs::measured_on(&record.cells),
            verified: record.verified(),
            all_checked: record.cells.iter().all(|cell| cell.verified.is_some()),
            cells: record.cells.len(),
            summary: sections::summary(summary),
            warnings: warnings
                .map(|(text, places)| Warning { text, places: places.join("; ") })
                .collect(),
            workloads: workloads(&grid),
            heads: grid.columns.iter().map(head).collect(),
            sections: sections(&grid),
            apart_title: apart::TITLE,
            apart_heads: apart::HEADS,
            apart: apart::lines(&grid),
            during_title: during::TITLE,
            during_heads: during::HEADS,
            during: during::lines(&grid),
            samples: grid
                .cells()
                .map(|(row, column, cell)| sample_row(row, column, cell))
                .collect(),
            latency_heads: distribution::heads(),
            latencies: grid.cells().filter_map(latency_row).collect(),
            members: grid
                .cells()
                .map(|(row, column, cell)| member_row(row, column, cell))
                .collect(),
            sources: report.sources.iter().map(source_row).collect(),
            settings: settings(record),
            along: sections::along(record),
            beside: sections::published(report),
            findings: sections::findings(&grid),
            maps,
            maps_left_out,
            not_run: report
                .not_run
                .iter()
                .map(|not_run| (not_run.what.clone(), not_run.reason.clone()))
                .collect(),
        }
    }
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
    if host.is_empty() { host } else { format!("run on {host}") }
}

fn head(column: &Column) -> Head {
    Head {
        title: column.title().to_string(),
        detail: column.detail_and_place(),
        unit: unit(column),
    }
}

fn unit(column: &Column) -> &'static str {
    if column.counts_requests { "IOPS" } else { "MB/s" }
}

fn workloads(grid: &PivotTable<'_>) -> Vec<Workload> {
    let workload = |(at, column): (usize, &Column)| Workload {
        title: column.title().to_string(),
        unit: unit(column),
        detail: column.detail(),
        speed: chart::speed(grid, at),
        latency: chart::latency(grid, at),
        distribution: distribution::distribution(grid, at),
        cpu: chart::cpu(grid, at),
        traffic: chart::traffic(grid, at),
    };
    grid.columns.iter().enumerate().map(workload).collect()
}

fn sections(grid: &PivotTable<'_>) -> Vec<Section> {
    let row = |row: &Row<'_>| TableRow {
        label: row.label.clone(),
        cells: row.cells.iter().map(|cell| cell.map(figures)).collect(),
    };
    let section = |section: &pivot::Section<'_>| Section {
        title: section.title(),
        rows: section.rows.iter().map(row).collect(),
    };
    grid.sections.iter().map(section).collect()
}

fn figures(cell: &Cell) -> Figures {
    Figures {
        rate: units::digits(cell.rate()),
        ratio: cell
            .ratio_to_single
            .filter(|_| !cell.is_spoiled())
            .map_or(String::new(), |ratio| format!("{ratio:.2}×")),
        share: cell.bound_share.map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
        note: cell.bound_note.clone().unwrap_or_default(),
        cpu: or_dash(cell.cpu_s_per_gib.map(units::digits)),
        p50: or_dash(cell.latency_us.map(|latency| units::latency(latency.p50))),
        p99: or_dash(cell.latency_us.map(|latency| units::latency(latency.p99))),
        verified: cell.verified != Some(false),
        warned: !cell.warnings.is_empty(),
        unsteady: cell.steady == Some(false),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_string())
}

fn sample_row(row: &Row<'_>, column: &Column, cell: &Cell) -> SampleRow {
    let rates = cell.samples.iter().map(|sample| units::digits(sample.mb_per_s()));
    let latency = |pick: fn(&results::record::Latency) -> f64| {
        or_dash(cell.latency_us.as_ref().map(|latency| units::latency(pick(latency))))
    };
    let seconds = |cpu: Option<f64>| or_dash(cpu.map(units::digits));
    SampleRow {
        array: row.label.clone(),
        workload: format!("{}, {}", column.title(), column.detail()),
        disks: pivot::disks(cell),
        median: units::digits(cell.mb_per_s),
        spread: or_dash(cell.spread.map(|spread| {
            format!("{} – {}", units::digits(spread.min), units::digits(spread.max))
        })),
        samples: rates.collect::<Vec<_>>().join(", "),
        p50: latency(|latency| latency.p50),
        p99: latency(|latency| latency.p99),
        p999: latency(|latency| latency.p999),
        max: latency(|latency| latency.max),
        cpu_process: seconds(cell.cpu_process_s),
        cpu_system: seconds(cell.cpu_system_s),
        cpu_per_gib: seconds(cell.cpu_s_per_gib),
        machine_cpu_per_gib: seconds(cell.machine_cpu_s_per_gib),
        steady: match cell.steady {
            Some(true) => "yes",
            Some(false) => "no",
            None => "–",
        },
        verified: cell.verified != Some(false),
        checked: match cell.verified {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "cannot be",
        },
    }
}

fn latency_row((row, column, cell): (&Row<'_>, &Column, &Cell)) -> Option<LatencyRow> {
    Some(LatencyRow {
        array: row.label.clone(),
        disks: pivot::disks(cell),
        workload: format!("{}, {}", column.title(), column.detail()),
        fields: distribution::figures(cell)?,
    })
}

fn member_row(row: &Row<'_>, column: &Column, cell: &Cell) -> MemberRow {
    let times = |factor: Option<f64>| or_dash(factor.map(|factor| format!("{factor:.2}×")));
    MemberRow {
        array: row.label.clone(),
        disks: pivot::disks(cell),
        workload: column.title().to_string(),
        moved: times(cell.amplification()),
        uneven: crate::table::uneven(cell).replace('x', "×").replace('-', "–"),
        members: cell.per_member.iter().map(member_text).collect(),
    }
}

/// `442 MiB read in 7072, 1.2 MiB written in 19`.
fn member_text(traffic: &MemberTraffic) -> String {
    let part = |bytes: u64, ops: u64, did: &str| {
        (ops > 0 || bytes > 0).then(|| format!("{} {did} in {ops}", units::bytes(bytes)))
    };
    let read = part(traffic.read_bytes, traffic.reads, "read");
    let written = part(traffic.written_bytes, traffic.writes, "written");
    let parts: Vec<String> = read.into_iter().chain(written).collect();
    if parts.is_empty() { "idle".to_string() } else { parts.join(", ") }
}

fn source_row(source: &crate::runs::Source) -> SourceRow {
    let of = |name: &str, value: &str| (name.to_string(), value.to_string());
    let mut all = vec![of("begun", &source.started), of("raidlab", &source.raidlab)];
    all.extend(provenance(&source.host));
    SourceRow { name: source.name.clone(), provenance: all }
}

fn provenance(host: &Host) -> Vec<(String, String)> {
    let backing = host.backing.clone().unwrap_or_default();
    let load = host.load_average.map(|load| load.map(|load| format!("{load:.2}")).join(" "));
    let yes_no = |flag: bool| if flag { "yes" } else { "no" }.to_string();
    let all = [
        ("host", host.hostname.clone()),
        ("kernel", host.kernel.clone()),
        ("system", host.system.clone()),
        ("architecture", host.architecture.clone()),
        ("CPU", host.cpu.clone()),
        ("logical CPUs", host.cores.map(|cores| cores.to_string())),
        ("virtual machine", host.virtual_machine.map(yes_no)),
        ("memory", host.memory_bytes.map(units::bytes)),
        ("frequency governor", host.governor.clone()),
        ("load average at the start", load),
        ("parity kernel", host.parity_kernel.clone()),
        ("file system of the members", backing.file_system),
        ("its device", backing.device),
        ("its mount options", backing.options),
        ("its free space", backing.free_bytes.map(units::bytes)),
        ("rotating device", backing.rotational.map(yes_no)),
        ("I/O scheduler", backing.scheduler),
    ];
    let known = all.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?)));
    known.collect()
}

/// The settings of the run: each with its values, where it has any; and what the generator costs.
fn settings(record: &Record) -> Vec<(String, String)> {
    let listed = SETTINGS.iter().filter(|setting| setting.listed);
    let settings = listed.map(|setting| {
        let values = record.cells.iter().filter_map(|cell| setting.shown(cell));
        (setting.label, distinct(values))
    });
    let cost = record.cells.iter().filter_map(|cell| cell.generator_ns_per_op);
    let cost = distinct(cost.map(|ns| format!("{ns:.0} ns per request")));
    let all = settings.chain([("generator's own cost", cost)]);
    let known = all.filter(|(_, values)| !values.is_empty());
    known.map(|(name, values)| (name.to_string(), values.join(", "))).collect()
}

/// Each value once, in the order of the first.
fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
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
            cell.members = evil.into();
            cell.level = format!("raid{evil}").into();
            cell.workload = evil.into();
            cell.warnings = vec![evil.into()];
            cell.bound_note = Some(evil.into());
            cell.layout = Some(evil.into());
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
            let rates = cell.samples.iter().map(|sample| units::digits(sample.mb_per_s()));
            assert!(page.contains(&rates.collect::<Vec<_>>().join(", ")));
        }
    }

    #[test]
    fn distributions_of_latency_are_drawn_where_the_record_has_them() {
        let mut record = fixture::record();
        for cell in &mut record.cells {
            let mut latencies = results::stats::LatencyRecorder::new();
            (1..=1000).for_each(|us| latencies.record(us * 1000));
            cell.latency_curve = latencies.curve();
        }
        let page = render(&record);
        assert_eq!(page.matches("distribution of latency</title>").count(), 4);
        let lines = page.matches("class=\"curve c").count();
        assert!(lines >= 2 * record.cells.len(), "a line and a legend for each: {lines}");
        assert!(page.contains("<th scope=\"col\">99.99 %</th>"));
        assert_eq!(page.matches("<td>990 us</td>").count(), record.cells.len());
        let older = render(&fixture::record());
        assert!(!older.contains("distribution of latency") && !older.contains("99.99 %"));
    }

    fn dots(record: &Record) -> usize {
        record.cells.iter().map(|cell| cell.samples.len()).sum()
    }

    #[test]
    fn sparse_and_empty_records_make_pages() {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.latency_us, cell.cpu_s_per_gib, cell.ratio_to_single) = (None, None, None);
        (cell.bound_mb_per_s, cell.bound_share) = (None, None);
        cell.samples.clear();
        cell.per_member.clear();
        (cell.mb_per_s, cell.iops) = (0.0, 0.0);
        assert!(!render(&record).contains("NaN"));
        record.cells.clear();
        assert!(render(&record).contains("No cells"));
    }
}
