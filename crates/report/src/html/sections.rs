//! The parts of the page that stand beside the grid: figures along an axis, published figures,
//! findings, maps of members over time.
//!
//! Invariant: plain data for the template; every chart has a table, or the samples, with its
//! figures.

use results::record::{Finding, Record};
use serde::Serialize;
use spec::units;

use super::{chart, heat_map, line_chart};
use crate::markdown::point;
use crate::pivot::{self, PivotTable};
use crate::published::Ratios;
use crate::runs::{Axis, ByPlace, Curve, Report, by_place, curves};
use crate::summary::{self, Summary};
use crate::works::work;

/// Maximum of maps: more make the page slow in browsers.
const MAPS_MAX: usize = 40;

/// The summary of the arrays under the same conditions.
#[derive(Serialize)]
pub(super) struct SummaryGroup {
    conditions: String,
    lines: Vec<(&'static str, String)>,
}

/// The groups of a summary.
pub(super) fn summary(summary: &Summary) -> Vec<SummaryGroup> {
    let group = |group: &summary::Group| SummaryGroup {
        conditions: group.conditions.clone(),
        lines: summary::lines(group, usize::MAX)
            .into_iter()
            .map(|line| (line.lead, line.text))
            .collect(),
    };
    summary.groups.iter().map(group).collect()
}

/// The charts along one axis.
#[derive(Serialize)]
pub(super) struct Along {
    id: &'static str,
    title: &'static str,
    charts: Vec<AlongChart>,
}

#[derive(Serialize)]
struct AlongChart {
    title: String,
    unit: &'static str,
    svg: String,
    heads: Vec<String>,
    rows: Vec<AlongRow>,
}

#[derive(Serialize)]
struct AlongRow {
    label: String,
    fields: Vec<String>,
}

/// The axes, where there is more than one place on them.
pub(super) fn along(record: &Record) -> Vec<Along> {
    let axes = [
        (Axis::Disks, "by-disks", "By number of disks", "disks"),
        (Axis::Chunk, "by-chunk", "By chunk", "chunk, KiB"),
        (Axis::Load, "by-load", "By stated load", "requests/s"),
    ];
    let of = |(axis, id, title, name)| {
        let curves = curves(record, axis);
        let mut works: Vec<&str> = Vec::new();
        for curve in &curves {
            if !works.contains(&curve.work.as_str()) {
                works.push(&curve.work);
            }
        }
        let charts = works
            .into_iter()
            .map(|work| chart_of(name, curves.iter().filter(|curve| curve.work == work).collect()));
        Along { id, title, charts: charts.collect() }
    };
    let file_systems = Along {
        id: "by-file-system",
        title: "By file system",
        charts: by_place(record).iter().map(table_of).collect(),
    };
    let all = axes.into_iter().map(of).chain([file_systems]);
    all.filter(|along| !along.charts.is_empty()).collect()
}

/// File systems have no order for an axis: a table shows them.
fn table_of(table: &ByPlace) -> AlongChart {
    let row = |(label, figures): &(String, Vec<Option<f64>>)| AlongRow {
        label: label.clone(),
        fields: (0..figures.len()).map(|place| ByPlace::text(figures, place)).collect(),
    };
    AlongChart {
        title: table.work.clone(),
        unit: table.unit,
        svg: String::new(),
        heads: table.places.clone(),
        rows: table.rows.iter().map(row).collect(),
    }
}

fn chart_of(axis: &str, curves: Vec<&Curve>) -> AlongChart {
    let mut places: Vec<u64> =
        curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    places.sort_unstable();
    places.dedup();
    let (title, unit) = (curves[0].work.clone(), curves[0].unit);
    let row = |curve: &&Curve| AlongRow {
        label: curve.label.clone(),
        fields: places.iter().map(|place| point(curve, *place)).collect(),
    };
    AlongChart {
        svg: line_chart::lines(&format!("{title} by {axis}, {unit}"), axis, &curves),
        heads: places.iter().map(u64::to_string).collect(),
        rows: curves.iter().map(row).collect(),
        title,
        unit,
    }
}

/// The section of published figures.
#[derive(Serialize)]
pub(super) struct Published {
    title: String,
    source: String,
    system: String,
    notes: String,
    svg: String,
    rows: Vec<PublishedRow>,
}

#[derive(Serialize)]
struct PublishedRow {
    array: String,
    work: String,
    ours: String,
    theirs: String,
    unit: &'static str,
    ratio_of: String,
    our_ratio: String,
    their_ratio: String,
    cpu: String,
    note: String,
}

/// The published figures; `None` where none matches a cell.
pub(super) fn published(report: &Report) -> Option<Published> {
    let published = report.published.as_ref()?;
    let beside = report.beside();
    if beside.is_empty() {
        return None;
    }
    let mut bars = Vec::new();
    let mut rows = Vec::new();
    for (one, array) in beside.iter().zip(report.beside_labels(&beside)) {
        let ratio = |pick: fn(&Ratios) -> f64| {
            one.ratios.as_ref().map_or(String::new(), |both| format!("{:.2}×", pick(both)))
        };
        bars.push((format!("{array}, {}", work(one.cell)), one.ours, one.theirs));
        rows.push(PublishedRow {
            array,
            work: work(one.cell),
            ours: units::digits(one.ours),
            theirs: units::digits(one.theirs),
            unit: one.unit,
            ratio_of: one.ratios.as_ref().map_or(String::new(), |both| both.of.clone()),
            our_ratio: ratio(|both| both.ours),
            their_ratio: ratio(|both| both.theirs),
            cpu: one.figure.cpu_percent.map_or(String::new(), |cpu| format!("{cpu} %")),
            note: one.figure.details(),
        });
    }
    Some(Published {
        title: published.title.clone(),
        source: published.source.clone(),
        system: published.system.clone(),
        notes: published.notes.clone(),
        svg: chart::pairs("Here and published", &bars),
        rows,
    })
}

/// A finding with its places.
#[derive(Serialize)]
pub(super) struct FindingRow {
    name: String,
    text: String,
    evidence: String,
    command: Option<String>,
    places: String,
    /// All of them, where `places` has only the first.
    all_places: Option<String>,
}

/// More places of a finding are folded.
const PLACES_MAX: usize = 24;

/// The findings, each kind once.
pub(super) fn findings(grid: &PivotTable<'_>) -> Vec<FindingRow> {
    let row = |(finding, places): (Finding, Vec<String>)| {
        let evidence = finding.evidence.iter();
        let evidence = evidence.map(|(name, value)| format!("{name} {}", units::digits(*value)));
        let all = places.join("; ");
        let is_long = places.len() > PLACES_MAX;
        FindingRow {
            name: finding.name.clone(),
            text: finding.text.clone(),
            evidence: evidence.collect::<Vec<_>>().join(", "),
            command: finding.command.clone(),
            places: if is_long { pivot::some(&places) } else { all.clone() },
            all_places: is_long.then_some(all),
        }
    };
    grid.findings().into_iter().map(row).collect()
}

/// A map of members over time.
#[derive(Serialize)]
pub(super) struct Map {
    title: String,
    svg: String,
}

/// The maps of the first cells that have series, and how many more there are.
pub(super) fn maps(record: &Record) -> (Vec<Map>, usize) {
    let labels = pivot::labels(&record.cells, true);
    let mut maps = Vec::new();
    let mut left_out = 0;
    for (cell, label) in record.cells.iter().zip(labels) {
        let Some(series) = &cell.series else { continue };
        if maps.len() == MAPS_MAX {
            left_out += 1;
            continue;
        }
        let title = format!("{}, {}", pivot::with_disks(&label, cell), work(cell));
        maps.extend(heat_map::map(&title, series).map(|svg| Map { title, svg }));
    }
    (maps, left_out)
}
