//! Advice as plain tables: what the page of `advise --html` shows.
//!
//! Invariant: plain data, without markup.

use serde::Serialize;

/// A page of tables.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// Title.
    pub title: String,
    /// What it is about, in a sentence.
    pub summary: String,
    /// The tables, in order.
    pub tables: Vec<Table>,
    /// Lines below them: assumptions, what was left out.
    pub notes: Vec<String>,
}

/// A table of a page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// A sentence below the heading; may be empty.
    pub note: String,
    /// Names of the columns; the first names the rows.
    pub heads: Vec<String>,
    /// Cells, as many in each row as there are heads.
    pub rows: Vec<Vec<String>>,
}
