//! Tables in Arrow's memory format, which other libraries read where they are.
//!
//! Invariant: a table never changes; what is exported are its own buffers, shared by counting. A
//! null stands where there is no figure, never a 0. Units are in the metadata of the fields.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, StructArray,
    UInt64Array,
};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList};
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};

use crate::cells;
use crate::errors::usage;

/// Name of a field's metadata that holds its unit.
const UNIT: &str = "unit";

/// A table of Arrow: columns of one length, with a unit for those that hold numbers.
///
/// Any library with the Arrow PyCapsule interface reads it without a copy of the columns:
/// `polars.DataFrame(table)`, `pyarrow.table(table)`, `pandas.DataFrame.from_arrow(table)`.
#[pyclass(frozen, module = "raidlab")]
pub struct Table(RecordBatch);

impl From<RecordBatch> for Table {
    fn from(batch: RecordBatch) -> Table {
        Table(batch)
    }
}

/// Columns that a table is made of.
#[derive(Default)]
pub struct Columns(Vec<(Field, ArrayRef)>);

impl Columns {
    /// Adds a column; without a unit it holds no numbers.
    pub fn push(&mut self, name: &str, unit: Option<&str>, column: ArrayRef) {
        let unit = unit.map(|unit| (UNIT.to_string(), unit.to_string()));
        let metadata: HashMap<String, String> = unit.into_iter().collect();
        let field = Field::new(name, column.data_type().clone(), true).with_metadata(metadata);
        self.0.push((field, column));
    }

    /// Adds texts.
    pub fn texts<T: AsRef<str>>(&mut self, name: &str, values: impl Iterator<Item = Option<T>>) {
        self.push(name, None, Arc::new(values.collect::<StringArray>()));
    }

    /// Adds numbers.
    pub fn numbers(&mut self, name: &str, unit: &str, values: impl Iterator<Item = Option<f64>>) {
        self.push(name, Some(unit), Arc::new(values.collect::<Float64Array>()));
    }

    /// Adds whole numbers.
    pub fn wholes(&mut self, name: &str, unit: &str, values: impl Iterator<Item = Option<i64>>) {
        self.push(name, Some(unit), Arc::new(values.collect::<Int64Array>()));
    }

    /// Adds counts that may be as large as a disk.
    pub fn sizes(&mut self, name: &str, unit: &str, values: impl Iterator<Item = Option<u64>>) {
        self.push(name, Some(unit), Arc::new(values.collect::<UInt64Array>()));
    }

    /// Adds flags.
    pub fn flags(&mut self, name: &str, values: impl Iterator<Item = Option<bool>>) {
        self.push(name, None, Arc::new(values.collect::<BooleanArray>()));
    }

    /// The table.
    ///
    /// # Panics
    /// When columns have different lengths.
    pub fn table(self) -> Table {
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = self.0.into_iter().unzip();
        let schema = Arc::new(Schema::new(fields));
        Table(RecordBatch::try_new(schema, columns).expect("columns of one length"))
    }
}

impl Table {
    /// It as a stream of Arrow's IPC.
    fn to_stream(&self) -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::new(), &self.0.schema())?;
        writer.write(&self.0)?;
        writer.into_inner()
    }

    fn of_stream(stream: &[u8]) -> Result<Table, ArrowError> {
        let reader = StreamReader::try_new(stream, None)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        arrow_select::concat::concat_batches(&schema, &batches).map(Table)
    }
}

#[pymethods]
impl Table {
    /// The Arrow PyCapsule interface: a stream of the columns, which are not copied.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let schema = self.0.schema();
        let metadata = schema.metadata().clone();
        let fields = DataType::Struct(schema.fields().clone());
        let field = Arc::new(Field::new_struct("", schema.fields().clone(), false));
        let field = Arc::new(Field::new("", fields, field.is_nullable()).with_metadata(metadata));
        let array: ArrayRef = Arc::new(StructArray::from(self.0.clone()));
        let arrays = std::iter::once(Ok::<ArrayRef, ArrowError>(array));
        let reader = Box::new(ArrayIterator::new(arrays.collect::<Vec<_>>(), field));
        to_stream_pycapsule(py, reader, requested_schema)
    }

    /// The Arrow PyCapsule interface: the names, types and units of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.0.schema().as_ref())
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    /// The unit of a column's numbers: `MB/s` (1e6 bytes per second), `KiB`, `us`, `1` for counts
    /// and ratios; None of a column without numbers.
    fn unit(&self, column: &str) -> PyResult<Option<String>> {
        let schema = self.0.schema();
        let field = schema.field_with_name(column);
        let field = field.map_err(|_| PyKeyError::new_err(column.to_string()))?;
        Ok(field.metadata().get(UNIT).cloned())
    }

    /// The rows as dictionaries; None where there is no figure.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        let schema = self.0.schema();
        for row in 0..self.0.num_rows() {
            let dict = PyDict::new(py);
            for (field, column) in schema.fields().iter().zip(self.0.columns()) {
                dict.set_item(field.name(), cells::object(py, column, row)?)?;
            }
            rows.append(dict)?;
        }
        Ok(rows)
    }

    /// The values of a column; None where there is no figure.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let column = self.0.column_by_name(name);
        let column = column.ok_or_else(|| PyKeyError::new_err(name.to_string()))?;
        let values = PyList::empty(py);
        for row in 0..column.len() {
            values.append(cells::object(py, column, row)?)?;
        }
        Ok(values)
    }

    /// `length` rows from row `offset` on, of the same buffers; fewer where the table ends before.
    fn slice(&self, offset: usize, length: usize) -> Table {
        let offset = offset.min(self.0.num_rows());
        Table(self.0.slice(offset, length.min(self.0.num_rows() - offset)))
    }

    /// Tables of the same columns as one, in this order.
    #[staticmethod]
    fn concat(py: Python<'_>, tables: Vec<PyRef<'_, Table>>) -> PyResult<Table> {
        let refused = |text: String| usage(py, text);
        let first = tables.first().ok_or_else(|| refused("no table is given".into()))?;
        let schema = first.0.schema();
        if tables.iter().any(|table| table.0.schema() != schema) {
            return Err(refused("the tables have different columns".into()));
        }
        let batches = tables.iter().map(|table| &table.0);
        let joined = arrow_select::concat::concat_batches(&schema, batches);
        joined.map(Table).map_err(|error| refused(error.to_string()))
    }

    /// For pickles: Arrow's IPC stream, and what reads it.
    fn __reduce__<'py>(
        slf: &Bound<'py, Table>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let py = slf.py();
        let stream = slf.get().to_stream().map_err(|error| usage(py, error.to_string()))?;
        Ok((slf.get_type().getattr("_of_stream")?, (PyBytes::new(py, &stream),)))
    }

    /// The table of an IPC stream.
    #[staticmethod]
    fn _of_stream(py: Python<'_>, stream: &[u8]) -> PyResult<Table> {
        Table::of_stream(stream).map_err(|error| usage(py, format!("no table: {error}")))
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        let (rows, columns) = (self.0.num_rows(), self.0.num_columns());
        format!("<raidlab.Table: {rows} rows, {columns} columns>")
    }
}
