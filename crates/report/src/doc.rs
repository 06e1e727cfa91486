//! A report as data: sections of paragraphs, lists, tables and figures.
//!
//! ```text
//!   records -> sections (`table`, `sections`, `reproduced`, `compare`, ..) -> Doc
//!                Doc -> terminal | markdown | html      one back end for each form
//! ```
//!
//! Invariant: every text in a document is plain. A back end escapes what its form gives a meaning
//! to, in one place; besides them only `charts` writes markup.

mod html;
mod markdown;
mod terminal;

use std::fmt;

use serde::{Serialize, Serializer};

pub use html::html;
pub use markdown::markdown;
pub use terminal::{WIDTH, terminal, wrap};

/// A document.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Doc {
    /// Title.
    pub title: String,
    /// What it is about, in a sentence; may be empty.
    pub subtitle: String,
    /// When its figures were measured; may be empty.
    pub started: String,
    /// Version of raidlab that measured them; empty: this one.
    pub version: String,
    /// What holds for all of it.
    pub facts: Vec<Fact>,
    /// The sections, in order.
    pub sections: Vec<Section>,
}

/// A short statement at the head of a page.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// The statement.
    pub text: String,
    /// `good`, `bad` or nothing.
    pub class: &'static str,
}

/// Blocks under a heading.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// The heading; may be empty.
    pub title: String,
    /// Letters and digits of the title, with `-` between them.
    pub id: String,
    /// What stands below it.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Sentences.
    Paragraph(String),
    /// Lines below a table: what its marks mean.
    Legend(Vec<String>),
    /// A list.
    Items(Items),
    /// A table.
    Table(Table),
    /// Charts side by side. The terminal and Markdown have their tables only.
    Charts(Vec<Chart>),
    /// What the colours and signs of the charts mean, each with its class in the style sheet.
    Key(Vec<(String, String)>),
    /// Lists of names and values side by side, each with its title. In pages only.
    Facts(Vec<(String, Vec<(String, String)>)>),
}

/// A list.
#[derive(Clone, Debug, Serialize)]
pub struct Items {
    /// What each of them is, for the terminal, where such a list has no heading: `warning`. Empty:
    /// each item begins with its own lead.
    pub each: &'static str,
    /// The items.
    pub items: Vec<Item>,
}

/// An item of a list.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Item {
    /// What it is about.
    pub lead: String,
    /// The rest of it.
    pub text: String,
    /// Figures that it follows from.
    pub evidence: String,
    /// A command to try.
    pub command: Option<String>,
    /// Where it holds.
    pub places: Vec<String>,
}

/// A chart, and the table with its figures if there is no other.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Unit and scale; may be empty.
    pub detail: String,
    /// The drawing; empty: the figure is its table.
    pub svg: String,
    /// Its figures.
    pub table: Option<Table>,
}

/// A table. Its first column names the rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Its heading; may be empty.
    pub title: String,
    /// A clause about it; may be empty.
    pub note: String,
    /// Heads that stand above several columns each, from the left; empty: there are none.
    pub groups: Vec<Group>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// A page shows its title, and the rest on demand.
    pub folded: bool,
}

/// A head above several columns.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its lines.
    pub lines: Vec<String>,
    /// How many columns it covers.
    pub columns: usize,
}

/// A column.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its head.
    pub head: String,
    /// Where its cells stand.
    pub align: Align,
    /// Least width in the terminal, with the gap before it.
    pub width_min: usize,
    /// It is the first below a head of several columns.
    pub edge: bool,
}

/// Where the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
    /// Long texts, broken between words where the form can.
    Prose,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// A heading of the rows below it.
    Part(String),
    /// As many as there are columns.
    Fields(Vec<Field>),
}

/// A field of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Field {
    /// What it says.
    pub value: Value,
    /// Doubts about it, the worst first.
    pub marks: Vec<Mark>,
    /// A remark, which pages show when it is pointed at; may be empty.
    pub note: String,
}

/// What a field says; each form writes it in its own way.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text, or a number with its digits.
    Text(String),
    /// A ratio: `1.88x`.
    Times(f64),
    /// A share, 0 to 1: `96 %`.
    Percent(f64),
    /// Not known, or not applicable.
    Missing,
}

/// A doubt about a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Wrong data was read.
    Wrong,
    /// There are warnings about it.
    Warned,
    /// It was not measured in steady state.
    Unsteady,
}

/// A form of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Terminal,
    Markdown,
    Html,
}

impl Doc {
    /// Sections without a title above them.
    pub fn of(sections: Vec<Section>) -> Doc {
        Doc { sections, ..Doc::default() }
    }
}

impl Section {
    /// Blocks under a heading.
    pub fn new(title: impl Into<String>, blocks: Vec<Block>) -> Section {
        let title = title.into();
        let words = title.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let id = words.join("-").to_lowercase();
        Section { title, id, blocks }
    }
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: Vec<Column>) -> Table {
        Table { title: title.into(), columns, ..Table::default() }
    }

    /// Names to the left, all other columns to the right.
    pub fn of_texts<T: Into<String>>(
        title: &str,
        note: impl Into<String>,
        heads: impl IntoIterator<Item = T>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Table {
        let align = |at| if at == 0 { Align::Left } else { Align::Right };
        let heads = heads.into_iter().enumerate();
        let columns = heads.map(|(at, head)| Column::new(head, align(at))).collect();
        let mut table = Table { note: note.into(), ..Table::new(title, columns) };
        rows.into_iter().for_each(|row| table.push(row));
        table
    }

    /// Adds a row.
    pub fn push<T: Into<Field>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(Row::Fields(cells.into_iter().map(Into::into).collect()));
    }

    /// The table as a block; `None` without rows.
    pub fn block(self) -> Option<Block> {
        (!self.rows.is_empty()).then_some(Block::Table(self))
    }
}

impl Column {
    /// A column.
    pub fn new(head: impl Into<String>, align: Align) -> Column {
        Column { head: head.into(), align, width_min: 0, edge: false }
    }

    /// Columns by their heads; a head of names begins with `<`, one of long texts with `~`, all
    /// others are of numbers.
    pub fn all(heads: &[&str]) -> Vec<Column> {
        let column = |head: &str| match (head.strip_prefix('<'), head.strip_prefix('~')) {
            (Some(head), _) => Column::new(head, Align::Left),
            (_, Some(head)) => Column::new(head, Align::Prose),
            _ => Column::new(head, Align::Right),
        };
        heads.iter().map(|head| column(head)).collect()
    }
}

impl Items {
    /// A list as a block; `None` without items.
    pub fn block(each: &'static str, items: Vec<Item>) -> Option<Block> {
        (!items.is_empty()).then_some(Block::Items(Items { each, items }))
    }
}

impl Value {
    /// A ratio, if there is one.
    pub fn times(factor: Option<f64>) -> Value {
        factor.map_or(Value::Missing, Value::Times)
    }

    /// A share, if there is one.
    pub fn percent(share: Option<f64>) -> Value {
        share.map_or(Value::Missing, Value::Percent)
    }

    /// A text, if there is one.
    pub fn known(text: Option<impl Into<String>>) -> Value {
        text.map_or(Value::Missing, |text| Value::Text(text.into()))
    }

    fn text(&self, form: Form) -> String {
        match (self, form) {
            (Value::Text(text), _) => text.clone(),
            (Value::Times(factor), Form::Html) => format!("{factor:.2}×"),
            (Value::Times(factor), _) => format!("{factor:.2}x"),
            (Value::Percent(share), Form::Terminal) => format!("{:.0}%", share * 100.0),
            (Value::Percent(share), _) => format!("{:.0} %", share * 100.0),
            (Value::Missing, Form::Html) => "–".into(),
            (Value::Missing, _) => "-".into(),
        }
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::Text(String::new())
    }
}

/// As pages show it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Form::Html))
    }
}

/// For the template of pages.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Mark {
    /// Its sign, and what it means.
    pub fn sign(self) -> (&'static str, &'static str) {
        match self {
            Mark::Wrong => ("X", "reads returned data that differs from the data written"),
            Mark::Warned => ("!", "see the warnings"),
            Mark::Unsteady => (
                "~",
                "the last five samples are no steady window: measure longer (--seconds, --runs)",
            ),
        }
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.sign().serialize(serializer)
    }
}

impl<T: Into<String>> From<T> for Field {
    fn from(text: T) -> Field {
        Value::Text(text.into()).into()
    }
}

impl From<Value> for Field {
    fn from(value: Value) -> Field {
        Field { value, ..Field::default() }
    }
}

#[cfg(test)]
impl Table {
    /// The cells of each row, as a terminal shows them.
    pub(crate) fn texts(&self) -> Vec<Vec<String>> {
        let texts = |row: &Row| match row {
            Row::Part(title) => vec![title.clone()],
            Row::Fields(cells) => {
                cells.iter().map(|cell| cell.value.text(Form::Terminal)).collect()
            }
        };
        self.rows.iter().map(texts).collect()
    }
}
