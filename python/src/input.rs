//! Tables from Python: whatever has the Arrow PyCapsule interface, a dictionary of columns, or a
//! list of dictionaries.
//!
//! Invariant: a column that is not known is refused unless the caller said otherwise, so that a
//! misspelt name is not taken for a default; a value of another type is an error with its row.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString};
use pyo3_arrow::input::AnyRecordBatch;
use pyo3_arrow::{PyRecordBatch, PyTable};

use crate::errors::usage;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Texts; whole numbers are taken as their digits.
    Texts,
    /// Numbers.
    Numbers,
}

/// A table with known columns.
#[derive(Clone, Default)]
pub struct Input {
    rows: usize,
    columns: BTreeMap<String, ArrayRef>,
}

impl Input {
    /// Reads a table; of other columns than the known ones `others` says what becomes of them.
    pub fn read(
        given: &Bound<'_, PyAny>,
        known: &BTreeMap<String, Holds>,
        others: &str,
    ) -> PyResult<Input> {
        let py = given.py();
        if !["refuse", "ignore"].contains(&others) {
            return Err(usage(py, format!("others={others:?}: \"refuse\" or \"ignore\"")));
        }
        let check = |name: &str| match (known.get(name), others) {
            (Some(holds), _) => Ok(Some(*holds)),
            (None, _) if is_index(name) => Ok(None),
            (None, "ignore") => Ok(None),
            (None, _) => {
                let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let text = format!(
                    "column {name:?}: no such column (others=\"ignore\" leaves it out); known \
                     are {names}"
                );
                Err(usage(py, text))
            }
        };
        if let Some(batch) = arrow(given)? {
            return of_arrow(py, &batch, &check);
        }
        let columns = columns(given)?;
        of_objects(py, columns, &check)
    }

    /// The columns that are known, as a table.
    pub fn table(&self) -> Result<RecordBatch, ArrowError> {
        let field = |(name, column): (&String, &ArrayRef)| {
            Field::new(name, column.data_type().clone(), true)
        };
        let fields: Vec<Field> = self.columns.iter().map(field).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let columns = self.columns.values().cloned().collect();
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A text; `None` where it is null or there is no such column.
    pub fn text(&self, name: &str, row: usize) -> Option<&str> {
        let column = self.columns.get(name)?.as_string::<i32>();
        column.is_valid(row).then(|| column.value(row))
    }

    /// A number; `None` where it is null, NaN, or there is no such column.
    pub fn number(&self, name: &str, row: usize) -> Option<f64> {
        let column = self.columns.get(name)?.as_primitive::<Float64Type>();
        column.is_valid(row).then(|| column.value(row)).filter(|number| !number.is_nan())
    }
}

/// Whether a column is what pandas makes of the index of a table, such as one of filtered rows.
fn is_index(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| !level.is_empty() && level.bytes().all(|it| it.is_ascii_digit()))
}

type Check<'c> = dyn Fn(&str) -> PyResult<Option<Holds>> + 'c;

/// A table of Arrow as one batch; `None`: it is none.
fn arrow(given: &Bound<'_, PyAny>) -> PyResult<Option<RecordBatch>> {
    let table = if given.hasattr("__arrow_c_stream__")? {
        given.extract::<PyTable>()?
    } else if given.hasattr("__arrow_c_array__")? {
        AnyRecordBatch::RecordBatch(given.extract::<PyRecordBatch>()?).into_table()?
    } else {
        return Ok(None);
    };
    let (batches, schema) = table.into_inner();
    let joined = arrow_select::concat::concat_batches(&schema, &batches);
    joined.map(Some).map_err(|error| usage(given.py(), format!("the table: {error}")))
}

fn of_arrow(py: Python<'_>, batch: &RecordBatch, check: &Check<'_>) -> PyResult<Input> {
    let mut input = Input { rows: batch.num_rows(), columns: BTreeMap::new() };
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let name = field.name();
        let Some(holds) = check(name)? else { continue };
        let refused = |what: String| usage(py, format!("column {name:?}: {what}"));
        let (to, is_allowed) = match holds {
            Holds::Texts => (DataType::Utf8, is_text(field.data_type())),
            Holds::Numbers => (DataType::Float64, is_number(field.data_type())),
        };
        if !is_allowed {
            let wanted = if holds == Holds::Texts { "texts" } else { "numbers" };
            return Err(refused(format!("{wanted} are required, not {}", field.data_type())));
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast = cast_with_options(column, &to, &options);
        let cast = cast.map_err(|error| refused(error.to_string()))?;
        if input.columns.insert(name.clone(), cast).is_some() {
            return Err(refused("it is there twice".into()));
        }
    }
    Ok(input)
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_text(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => true,
        other => other.is_integer(),
    }
}

fn is_number(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_number(values),
        DataType::Null => true,
        other => other.is_numeric(),
    }
}

/// A column as Python has it.
enum Given<'py> {
    One(Bound<'py, PyAny>),
    Many(Vec<Option<Bound<'py, PyAny>>>),
}

/// The columns of a dictionary, or of dictionaries, which are rows.
fn columns<'py>(given: &Bound<'py, PyAny>) -> PyResult<BTreeMap<String, Given<'py>>> {
    let py = given.py();
    let none = || {
        let text = "a table is required: an object with __arrow_c_stream__ (pandas, polars, \
                    pyarrow), a dict of columns, or a list of dicts";
        usage(py, text.into())
    };
    let name = |key: &Bound<'py, PyAny>| {
        key.extract::<String>().map_err(|_| usage(py, format!("column {key}: a name is a str")))
    };
    let mut columns = BTreeMap::new();
    if let Ok(dict) = given.cast::<PyDict>() {
        for (key, values) in dict {
            let is_one = values.is_instance_of::<PyString>() || values.is_none();
            let column = match values.try_iter() {
                Ok(values) if !is_one => {
                    Given::Many(values.map(|value| value.map(Some)).collect::<PyResult<_>>()?)
                }
                _ => Given::One(values),
            };
            columns.insert(name(&key)?, column);
        }
        return Ok(columns);
    }
    let list = given.cast::<PyList>().map_err(|_| none())?;
    for (row, item) in list.iter().enumerate() {
        for (key, value) in item.cast::<PyDict>().map_err(|_| none())? {
            let column = columns.entry(name(&key)?);
            let Given::Many(values) = column.or_insert_with(|| {
                Given::Many(std::iter::repeat_with(|| None).take(list.len()).collect())
            }) else {
                continue;
            };
            if let Some(place) = values.get_mut(row) {
                *place = Some(value);
            }
        }
    }
    Ok(columns)
}

fn of_objects(
    py: Python<'_>,
    columns: BTreeMap<String, Given<'_>>,
    check: &Check<'_>,
) -> PyResult<Input> {
    let mut rows = None;
    for (name, column) in &columns {
        if let Given::Many(values) = column {
            match rows {
                Some(rows) if rows != values.len() => {
                    let text = format!("column {name:?}: {} values, not {rows}", values.len());
                    return Err(usage(py, text));
                }
                _ => rows = Some(values.len()),
            }
        }
    }
    // Of scalars alone: one row. Without columns: none.
    let rows = rows.unwrap_or(usize::from(!columns.is_empty()));
    let mut input = Input { rows, columns: BTreeMap::new() };
    for (name, column) in columns {
        let Some(holds) = check(&name)? else { continue };
        let value = |row: usize| match &column {
            Given::One(value) => Some(value),
            Given::Many(values) => values[row].as_ref(),
        };
        let of_row = |error: &str, row: usize| usage(py, format!("row {row}: {name:?}: {error}"));
        let made: ArrayRef = match holds {
            Holds::Texts => {
                let text = |row| text(value(row)).map_err(|what| of_row(&what, row));
                Arc::new((0..rows).map(text).collect::<PyResult<StringArray>>()?)
            }
            Holds::Numbers => {
                let number = |row| number(value(row)).map_err(|what| of_row(&what, row));
                Arc::new((0..rows).map(number).collect::<PyResult<Float64Array>>()?)
            }
        };
        input.columns.insert(name, made);
    }
    Ok(input)
}

/// What is wrong with a value.
type Wrong = std::borrow::Cow<'static, str>;

/// Whether a value stands for none: None, NaN, and what pandas has for them.
fn is_null(value: &Bound<'_, PyAny>) -> bool {
    let is_nan = |value: &Bound<'_, PyAny>| value.ne(value).is_ok_and(|it| it);
    value.is_none()
        || value.get_type().name().is_ok_and(|name| name == "NAType")
        || value.is_instance_of::<PyFloat>() && is_nan(value)
}

fn text(value: Option<&Bound<'_, PyAny>>) -> Result<Option<String>, Wrong> {
    let Some(value) = value.filter(|value| !is_null(value)) else { return Ok(None) };
    if let Ok(text) = value.extract::<String>() {
        return Ok(Some(text));
    }
    let is_whole = !value.is_instance_of::<PyBool>() && !value.is_instance_of::<PyFloat>();
    match value.extract::<i64>() {
        Ok(number) if is_whole => Ok(Some(number.to_string())),
        _ => Err("a str is required".into()),
    }
}

fn number(value: Option<&Bound<'_, PyAny>>) -> Result<Option<f64>, Wrong> {
    let Some(value) = value.filter(|value| !is_null(value)) else { return Ok(None) };
    match value.extract::<f64>() {
        Ok(number) if !value.is_instance_of::<PyBool>() => Ok(Some(number)),
        _ => Err("a number is required".into()),
    }
}
