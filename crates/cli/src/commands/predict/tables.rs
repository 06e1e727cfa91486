//! `--tables`: every row of a document of tables.
//!
//! Invariant: one answer per record, in the order of the tables; texts of the document are printed
//! with what could steer a terminal made visible.

use std::path::Path;

use anyhow::{Result, bail};
use predict::fitted::Fitted;
use predict::score::{self, Evaluated};
use predict::tables::{self, Role, Row, Table};
use report::predicted::{Page, Point};
use serde::Serialize;
use spec::units::digits;

use super::read_text;
use crate::Ending;
use crate::console::{JsonOut, check_replaceable, columns, is_stdout, replace_record};
use crate::error::{Context, of_option};

/// Where results are written besides the terminal.
pub struct Outputs<'a> {
    pub json: &'a JsonOut,
    pub html: Option<&'a Path>,
}

impl Outputs<'_> {
    /// Refuses, before anything is computed, what cannot be written.
    pub fn check(&self) -> Result<()> {
        let Some(html) = self.html else { return Ok(()) };
        if is_stdout(html) {
            bail!("--html -: the page is written to a file; name one");
        }
        if self.json.is(html) {
            bail!("--json and --html: name two files");
        }
        check_replaceable(html, b"<").map_err(of_option("--html"))
    }

    /// Writes all of them.
    pub fn put<T: Serialize>(
        &self,
        text: &str,
        json: impl FnOnce() -> T,
        page: impl FnOnce() -> Page,
    ) -> Result<()> {
        self.json.put(text, json)?;
        if let Some(html) = self.html {
            let page = report::predicted::html(&page());
            replace_record(html, page).map_err(of_option("--html"))?;
        }
        Ok(())
    }
}

/// The tables of a file.
pub fn read(path: &Path) -> Result<Vec<Table>> {
    tables::parse(&read_text(path)?).with_context(|| format!("{}", path.display()))
}

/// Runs `raidlab predict --tables FILE`.
pub fn run(path: &Path, fitted: &Fitted, outputs: &Outputs<'_>) -> Result<Ending> {
    let tables = read(path)?;
    let all = score::evaluate(&tables, fitted);
    let document = || TablesDocument { rows: rows(&tables, &all) };
    let title = format!("Predictions for {}", path.display());
    outputs.put(&text(&tables, &all), document, || page(&tables, &all, title, String::new()))?;
    Ok(Ending::Fine)
}

/// The rows as JSON.
pub fn rows<'a>(tables: &'a [Table], all: &'a [Evaluated]) -> Vec<RowDocument<'a>> {
    all.iter().map(|one| RowDocument::of(&tables[one.table], one)).collect()
}

#[derive(Serialize)]
struct TablesDocument<'a> {
    rows: Vec<RowDocument<'a>>,
}

/// A row of a table, and its prediction in the row's unit.
#[derive(Serialize)]
pub struct RowDocument<'a> {
    id: &'a str,
    system_id: &'a str,
    level: &'a str,
    disks: Option<u32>,
    workload: &'a str,
    unit: &'a str,
    value: Option<f64>,
    predicted: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    limit: Option<&'static str>,
    next: Option<&'static str>,
    naive: Option<f64>,
    input: Option<&'static str>,
    why_not: Option<&'static str>,
    scored: bool,
    not_scored: Option<String>,
}

impl<'a> RowDocument<'a> {
    fn of(table: &'a Table, one: &'a Evaluated) -> RowDocument<'a> {
        let row = &table.rows[one.row];
        let predicted = one.predicted.as_ref().ok();
        RowDocument {
            id: &row.id,
            system_id: &table.id,
            level: &row.level,
            disks: row.disks,
            workload: &row.workload,
            unit: &row.unit,
            value: row.value,
            predicted: predicted.map(|found| found.value),
            low: one.interval.map(|(low, _)| low),
            high: one.interval.map(|(_, high)| high),
            limit: predicted.map(|found| found.law.limit().name()),
            next: predicted.and_then(|found| found.law.next()).map(|(next, _)| next.name()),
            naive: predicted.and_then(|found| found.naive),
            input: predicted.map(|found| found.source.name()),
            why_not: one.predicted.as_ref().err().map(|why| why.name()),
            scored: one.counts,
            not_scored: not_scored(table, row, one),
        }
    }
}

/// Why a row with a number is not scored.
pub fn not_scored(table: &Table, row: &Row, one: &Evaluated) -> Option<String> {
    if one.counts || one.predicted.is_err() {
        return None;
    }
    Some(match (&row.role, &table.health) {
        (Role::StandIn, _) => "stands in for the single disk".to_string(),
        (Role::NotScored(reason), _) => reason.clone(),
        (Role::Asked, _) => "no measured value".to_string(),
        (_, tables::Health::Old) => "kernel before 2.6.20".to_string(),
        (_, tables::Health::Sick(reason)) => format!("not healthy: {reason}"),
        _ => return None,
    })
}

/// The rows as a list.
pub fn text(tables: &[Table], all: &[Evaluated]) -> String {
    let rows = all.iter().map(|one| {
        let table = &tables[one.table];
        let row = &table.rows[one.row];
        let of = |value: Option<f64>| value.map_or("-".to_string(), digits);
        let error = |value: Option<f64>| match value.zip(row.value) {
            Some((value, measured)) => format!("{:+.0} %", (value / measured - 1.0) * 100.0),
            None => "-".to_string(),
        };
        let predicted = one.predicted.as_ref().ok();
        let naive = predicted.and_then(|found| found.naive);
        let value = predicted.map(|found| found.value);
        let limit = match &one.predicted {
            Ok(found) => found.law.limit().name().to_string(),
            Err(why) => why.to_string(),
        };
        [
            shown(&row.id),
            of(row.value),
            of(value),
            one.interval
                .map_or("-".into(), |(low, high)| format!("{} to {}", digits(low), digits(high))),
            shown(&row.unit),
            error(value),
            error(naive),
            limit + not_scored(table, row, one).map_or("", |_| " *"),
        ]
    });
    let header =
        ["row", "measured", "predicted", "80 %", "unit", "error", "naive", "limit, or why not"];
    let mut out = columns(header, rows, &[1, 2, 3, 5, 6]);
    let marked: Vec<String> = all
        .iter()
        .filter_map(|one| {
            let table = &tables[one.table];
            let row = &table.rows[one.row];
            let why = not_scored(table, row, one).filter(|_| row.role != Role::Asked)?;
            Some(format!("  {}: {}\n", shown(&row.id), shown(&why)))
        })
        .collect();
    if !marked.is_empty() {
        out += "\n* not scored:\n";
        out += &marked.concat();
    }
    out
}

/// A text of the document, without what could steer a terminal or break a column.
fn shown(text: &str) -> String {
    spec::shown::Shown(text).to_string()
}

/// What the page draws.
pub fn page(tables: &[Table], all: &[Evaluated], title: String, summary: String) -> Page {
    let point = |one: &Evaluated| {
        let table = &tables[one.table];
        let row = &table.rows[one.row];
        let predicted = one.predicted.as_ref().ok()?;
        let (low, high) = one.interval?;
        Some(Point {
            name: shown(&row.id),
            table: shown(&table.id),
            workload: shown(&row.workload),
            unit: shown(&row.unit),
            operations: row.case.as_ref().ok()?.access.work.is_rate_of_operations(),
            to_rate: (!predicted.is_time).then_some(predicted.law.value / predicted.value),
            measured: row.value?,
            predicted: predicted.value,
            low,
            high,
            naive: predicted.naive,
            limit: predicted.law.limit().name().to_string(),
            scored: one.counts,
        })
    };
    Page { title, summary, points: all.iter().filter_map(point).collect() }
}
