//! Predicted figures beside measured ones: the page of `predict --html`.
//!
//! Invariant: a point carries its unit, its table and whether it is scored; each chart has its
//! table.

use spec::units::digits;

use crate::charts::scatter::{Dot, scatter};
use crate::doc::{self, Block, Chart, Column, Doc, Section, Table, Value};

/// A page of predictions.
#[derive(Clone, Debug)]
pub struct Page {
    /// Title.
    pub title: String,
    /// The scores in a sentence; may be empty.
    pub summary: String,
    /// Rows that have both figures.
    pub points: Vec<Point>,
}

/// A measured figure and its prediction, in the unit of its table.
#[derive(Clone, Debug)]
pub struct Point {
    /// The row.
    pub name: String,
    /// The table.
    pub table: String,
    /// The workload.
    pub workload: String,
    /// The unit of the figures.
    pub unit: String,
    /// Whether it is a rate of operations, not of bytes.
    pub operations: bool,
    /// From the row's unit to MB/s or operations per second; `None`: the figure is a time.
    pub to_rate: Option<f64>,
    /// Measured.
    pub measured: f64,
    /// Predicted.
    pub predicted: f64,
    /// Low end of the 80 % interval.
    pub low: f64,
    /// High end of it.
    pub high: f64,
    /// The naive rule.
    pub naive: Option<f64>,
    /// What limits.
    pub limit: String,
    /// Whether it is scored.
    pub scored: bool,
}

const HEADS: [&str; 12] = [
    "<row",
    "<table",
    "<workload",
    "measured",
    "predicted",
    "low",
    "high",
    "error",
    "naive rule",
    "<unit",
    "<limit",
    "<scored",
];

/// The page.
pub fn html(page: &Page) -> String {
    let mut tables: Vec<&str> = page.points.iter().map(|point| point.table.as_str()).collect();
    tables.sort_unstable();
    tables.dedup();
    let colour = |point: &Point| tables.iter().position(|table| *table == point.table);
    let charts = [("Throughput, MB/s", false), ("Operations per second", true)].into_iter();
    let charts = charts.filter_map(|(title, operations)| {
        let points = page.points.iter().filter(|point| point.operations == operations);
        let dots: Vec<Dot<'_>> =
            points.filter_map(|point| dot(point, colour(point)? % 8)).collect();
        let (svg, title) = (scatter(title, &dots), title.to_string());
        (!dots.is_empty()).then(|| Chart { title, detail: String::new(), svg, table: None })
    });
    let key = tables
        .iter()
        .enumerate()
        .map(|(at, table)| (format!("swatch-dot own c{}", at % 8), table.to_string()));
    let about = "On the dashed line both are equal. The bar of a point is its 80 % interval for a \
                 healthy machine. Faint points are not scored.";
    let mut rows = Table::new("", Column::all(&HEADS));
    page.points.iter().for_each(|point| rows.push(row(point)));
    let blocks = vec![
        Block::Paragraph(about.into()),
        Block::Key(key.collect()),
        Block::Charts(charts.collect()),
    ];
    let sections = vec![
        Section::new("Predicted against measured", blocks),
        Section::new("Rows", vec![Block::Table(rows)]),
    ];
    let (title, subtitle) = (page.title.clone(), page.summary.clone());
    doc::html(&Doc { title, subtitle, ..Doc::of(sections) })
}

/// The point as rates; `None` where it is none, or cannot be on a logarithmic axis.
fn dot(point: &Point, colour: usize) -> Option<Dot<'_>> {
    let rate = point.to_rate?;
    let all = [point.measured, point.predicted, point.low, point.high].map(|one| one * rate);
    let [measured, predicted, low, high] = all;
    let drawn = all.iter().all(|one| one.is_finite() && *one > 0.0);
    let (name, scored) = (point.name.as_str(), point.scored);
    drawn.then_some(Dot { name, scored, colour, measured, predicted, low, high })
}

fn row(point: &Point) -> [Value; 12] {
    let error = |value: f64| format!("{:+.0} %", (value / point.measured - 1.0) * 100.0);
    let scored = match (point.scored, (point.low..=point.high).contains(&point.measured)) {
        (false, _) => "no",
        (true, true) => "yes",
        (true, false) => "yes, outside its interval",
    };
    let text = |text: &str| Value::Text(text.to_string());
    [
        text(&point.name),
        text(&point.table),
        text(&point.workload),
        Value::Text(digits(point.measured)),
        Value::Text(digits(point.predicted)),
        Value::Text(digits(point.low)),
        Value::Text(digits(point.high)),
        Value::Text(error(point.predicted)),
        Value::known(point.naive.map(error)),
        text(&point.unit),
        text(&point.limit),
        text(scored),
    ]
}
