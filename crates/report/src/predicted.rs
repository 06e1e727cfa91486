//! Predicted figures beside measured ones: what the page of `predict --html` draws.
//!
//! Invariant: plain data; a point carries its unit, its table and whether it is scored.

use serde::Serialize;

/// A page of predictions.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Title.
    pub title: String,
    /// The scores in a sentence; may be empty.
    pub summary: String,
    /// Rows that have both figures.
    pub points: Vec<Point>,
}

/// A measured figure and its prediction, in the unit of its table.
#[derive(Clone, Debug, Serialize)]
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
