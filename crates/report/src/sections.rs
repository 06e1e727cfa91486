//! Sections that reports of every form have: warnings, findings, figures along an axis and by file
//! system, published figures, what was not run, where the figures are from.
//!
//! Invariant: plain data ([`crate::doc`]); a section without content is left out.

use results::host::Host;
use results::record::Finding;
use spec::units;

use crate::charts::{bars, lines};
use crate::doc::{Block, Chart, Column, Item, Items, Section, Table, Value};
use crate::pivot::PivotTable;
use crate::published::Ratios;
use crate::runs::{Axis, ByPlace, Curve, Report, Source, by_place, curves};
use crate::work_names::work_name;
use spec::shown::{counted, distinct};

/// Warnings, each once, with their places.
pub(crate) fn warnings(grid: &PivotTable<'_>) -> Option<Block> {
    let item = |(lead, places)| Item { lead, places, ..Item::default() };
    Items::block("warning", grid.warnings().into_iter().map(item).collect())
}

/// Findings, each kind once, with their places.
pub(crate) fn findings(grid: &PivotTable<'_>) -> Option<Block> {
    let item = |(finding, places): (Finding, Vec<String>)| {
        let evidence = finding.evidence.iter();
        let evidence = evidence.map(|(name, value)| format!("{name} {}", units::digits(*value)));
        Item {
            evidence: evidence.collect::<Vec<_>>().join(", "),
            lead: finding.name,
            text: finding.text,
            command: finding.command,
            places,
        }
    };
    Items::block("finding", grid.findings().into_iter().map(item).collect())
}

/// Items that could not be measured.
pub(crate) fn not_run(report: &Report) -> Option<Block> {
    let items = report.not_run.iter().map(|not_run| Item {
        lead: not_run.what.clone(),
        text: not_run.reason.clone(),
        ..Item::default()
    });
    Items::block("not run", items.collect())
}

/// A section of one block, if there is one.
pub(crate) fn titled(title: &str, block: Option<Block>) -> Option<Section> {
    block.map(|block| Section::new(title, vec![block]))
}

/// Figures by number of disks, chunk, stated load and place, where there are several.
pub(crate) fn along(report: &Report) -> Vec<Section> {
    let record = &report.record;
    let axes = Axis::ALL.map(|(axis, title, name)| {
        let curves = curves(record, axis);
        let works = distinct(curves.iter().map(|curve| curve.work.as_str()));
        let of = |work: &str| curves.iter().filter(|curve| curve.work == work).collect();
        (title, works.into_iter().map(|work| along_axis(name, of(work))).collect::<Vec<_>>())
    });
    let places = by_place(record, report.published.as_ref());
    let places = ("By place", places.iter().map(along_places).collect());
    let all = axes.into_iter().chain([places]);
    all.filter(|(_, figures)| !figures.is_empty())
        .map(|(title, figures)| Section::new(title, vec![Block::Charts(figures)]))
        .collect()
}

/// A row for each curve, a column for each place on the axis.
fn along_axis(axis: &str, curves: Vec<&Curve>) -> Chart {
    let mut places: Vec<u64> =
        curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    places.sort_unstable();
    places.dedup();
    let (title, unit) = (curves[0].work.clone(), curves[0].unit);
    let heads = std::iter::once("array".to_string()).chain(places.iter().map(u64::to_string));
    let mut table = Table::of_texts("", "", heads, []);
    for curve in &curves {
        let points = places.iter().map(|place| point(curve, *place));
        table.push(std::iter::once(Value::Text(curve.label.clone())).chain(points));
    }
    Chart {
        svg: lines::lines(&format!("{title} by {axis}, {unit}"), axis, &places, &curves),
        title,
        detail: unit.to_string(),
        table: Some(table),
    }
}

/// `230 (+48 %)`: the figure, and what the step to it adds.
fn point(curve: &Curve, place: u64) -> Value {
    let at = curve.points.iter().position(|point| point.0 == place);
    let text = at.map(|at| {
        let figure = units::digits(curve.points[at].1);
        match at.checked_sub(1) {
            Some(before) => format!("{figure} ({:+.0} %)", curve.gains()[before] * 100.0),
            None => figure,
        }
    });
    Value::known(text)
}

/// Places have no order for an axis: a row for each array, a column for each of them.
fn along_places(table: &ByPlace) -> Chart {
    let heads = std::iter::once("array").chain(table.places.iter().map(String::as_str));
    let rows = table.rows.iter().map(|(label, figures)| {
        let fields = (0..figures.len()).map(|place| ByPlace::text(figures, place));
        std::iter::once(label.clone()).chain(fields).collect()
    });
    let detail = format!("{}, and times the first", table.unit);
    let shown = Some(Table::of_texts("", "", heads, rows));
    Chart { title: table.work.clone(), detail, svg: String::new(), table: shown }
}

/// Published figures beside ours; `None` where none matches a cell.
pub(crate) fn published(report: &Report) -> Option<Section> {
    let published = report.published.as_ref()?;
    let beside = report.beside();
    if beside.is_empty() {
        return None;
    }
    let heads = [
        "<array",
        "<workload",
        "here",
        "published",
        "<unit",
        "<ratio of",
        "here",
        "published",
        "published CPU",
        "~note",
    ];
    let mut table = Table::new("", Column::all(&heads));
    let mut pairs = Vec::new();
    for (one, array) in beside.iter().zip(report.beside_labels(&beside)) {
        let ratio = |pick: fn(&Ratios) -> f64| Value::times(one.ratios.as_ref().map(pick));
        pairs.push((format!("{array}, {}", work_name(one.cell)), one.ours, one.theirs));
        table.push([
            Value::Text(array),
            Value::Text(work_name(one.cell)),
            Value::Text(units::digits(one.ours)),
            Value::Text(units::digits(one.theirs)),
            Value::Text(one.unit.to_string()),
            Value::known(one.ratios.as_ref().map(|both| both.of.clone())),
            ratio(|both| both.ours),
            ratio(|both| both.theirs),
            Value::known(one.figure.cpu_percent.map(|cpu| format!("{cpu} %"))),
            Value::Text(one.figure.details()),
        ]);
    }
    let about = format!(
        "{}: {}. {}. {} Other machines give other figures: compare the ratios: to the ordinary \
         disk where both have one, else to the first array of the table.",
        published.title, published.source, published.system, published.notes
    );
    let figure = Chart {
        title: "Here and published".into(),
        detail: "each in its unit, longest bar: the largest of both".into(),
        svg: bars::pairs("Here and published", &pairs),
        table: None,
    };
    let blocks = vec![Block::Paragraph(about), Block::Charts(vec![figure]), Block::Table(table)];
    Some(Section::new("Beside published figures", blocks))
}

/// `run 12, 2026-11-23T10:00:00Z, host, Linux 6.18, 4 CPUs, 52 cells`.
pub(crate) fn source(source: &Source) -> String {
    let host = &source.host;
    let parts = [
        Some(source.name.clone()).filter(|name| !name.is_empty()),
        Some(source.started.clone()),
        Some(host.hostname.clone().unwrap_or_else(|| "unknown host".into())),
        host.cpu.clone(),
        host.cores.map(|cores| format!("{cores} CPUs")),
        host.memory_bytes.map(units::bytes),
        host.kernel.clone(),
        host.parity_kernel.as_ref().map(|kernel| format!("parity by {kernel}")),
        Some(format!("raidlab {}", source.raidlab)),
        Some(counted(source.cells, "cell")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Names and values: all that is known of where a record is from.
pub(crate) fn provenance(source: &Source) -> Vec<(String, String)> {
    let Host { backing, load_average, .. } = &source.host;
    let host = &source.host;
    let backing = backing.clone().unwrap_or_default();
    let load = load_average.map(|load| load.map(|load| format!("{load:.2}")).join(" "));
    let yes_no = |flag: bool| if flag { "yes" } else { "no" }.to_string();
    let all = [
        ("begun", Some(source.started.clone())),
        ("raidlab", Some(source.raidlab.clone())),
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
