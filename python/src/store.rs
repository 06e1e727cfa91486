//! Records, and the results file: what was measured, as tables and as the JSON of `bench --json`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cli::verbs::{self, failure};
use pyo3::prelude::*;
use pyo3::types::PyList;
use raidlab::{Error, Kind};
use results::record::Record as Measured;
use results::{RunInfo, Value, columns};

use crate::errors::{Raise, usage};
use crate::objects::{object, one_path};
use crate::table::{Columns, Table};
use crate::waiting::wait_for;

/// What a run has measured: the machine, and a cell for each measurement.
#[pyclass(frozen, module = "raidlab")]
pub struct Record(Arc<Kept>);

struct Kept {
    measured: Measured,
    /// Its number in a results file.
    run: Option<i64>,
    /// The file that it is from.
    source: String,
}

#[pymethods]
impl Record {
    /// Reads a record that `raidlab bench --json=FILE` wrote.
    #[staticmethod]
    fn read(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Record> {
        let Some(path) = one_path(path)? else {
            return Err(usage(py, "the path of a record is required".into()));
        };
        wait_for(py, move |_| read(PathBuf::from(path)))?.or_raise(py)
    }

    /// One row for each cell; see `raidlab.cells`.
    fn cells(&self, py: Python<'_>) -> Table {
        let kept = self.0.clone();
        py.detach(|| table(&[&kept]))
    }

    /// The record as the JSON of `raidlab bench --json` has it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let kept = self.0.clone();
        let value = py.detach(|| serde_json::from_str(&kept.measured.to_json()));
        object(py, &value.expect("a record's own JSON"))
    }

    /// When it was started, RFC 3339.
    #[getter]
    fn started(&self) -> &str {
        &self.0.measured.started
    }

    /// The version of raidlab that measured it.
    #[getter]
    fn version(&self) -> &str {
        &self.0.measured.raidlab
    }

    /// Name of the host that measured it; None where it is unknown.
    #[getter]
    fn host(&self) -> Option<&str> {
        self.0.measured.host.hostname.as_deref()
    }

    /// Its number in the results file; None of a record in a file of its own.
    #[getter]
    fn run(&self) -> Option<i64> {
        self.0.run
    }

    /// The file that it was read from.
    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether no cell has read data that differed from what was written.
    #[getter]
    fn verified(&self) -> bool {
        self.0.measured.verified()
    }

    fn __len__(&self) -> usize {
        self.0.measured.cells.len()
    }

    fn __repr__(&self) -> String {
        let Kept { measured, source, .. } = &*self.0;
        let cells = measured.cells.len();
        format!("<raidlab.Record of {}: {cells} cells, {source:?}>", measured.started)
    }
}

fn read(path: PathBuf) -> raidlab::Result<Record> {
    let measured = verbs::read_record(&path)?;
    let source = path.to_string_lossy().into_owned();
    Ok(Record(Arc::new(Kept { measured, run: None, source })))
}

/// A results file, opened for reading: what `bench --db` and `sweep` have stored.
#[pyclass(frozen, module = "raidlab")]
pub struct Store {
    path: PathBuf,
    store: Arc<Mutex<results::Store>>,
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Store> {
        let (path, store) = wait_for(py, move |_| verbs::store(path))?.or_raise(py)?;
        Ok(Store { path, store: Arc::new(Mutex::new(store)) })
    }

    /// The results file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// All runs, the oldest first, as `raidlab report --list --json` has them.
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let runs = self.with(py, |store| store.runs())?;
        object(py, &serde_json::to_value(runs).expect("plain data"))
    }

    /// The record of a run, by its number; of the newest one without.
    #[pyo3(signature = (run=None))]
    fn record(&self, py: Python<'_>, run: Option<i64>) -> PyResult<Record> {
        let mut records = self.kept(py, Chosen::one(run))?;
        Ok(Record(Arc::new(records.remove(0))))
    }

    /// The records of all runs, the oldest first.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let records = self.kept(py, Chosen::All)?;
        PyList::new(
            py,
            records
                .into_iter()
                .map(|kept| Record(Arc::new(kept)))
                .map(|it| Py::new(py, it).expect("memory for an object")),
        )
    }

    /// One row for each cell of all runs, or of one; see `raidlab.cells`.
    #[pyo3(signature = (run=None))]
    fn cells(&self, py: Python<'_>, run: Option<i64>) -> PyResult<Table> {
        let records = self.kept(py, run.map_or(Chosen::All, Chosen::Run))?;
        Ok(py.detach(|| table(&records.iter().collect::<Vec<_>>())))
    }

    /// What could not be measured in a run: descriptions and reasons.
    fn not_run(&self, py: Python<'_>, run: i64) -> PyResult<Vec<(String, String)>> {
        let all = self.with(py, move |store| {
            // An unknown run has no items, either, and is an error.
            store.record(run)?;
            store.not_run(run)
        })?;
        Ok(all.into_iter().map(|it| (it.what, it.reason)).collect())
    }

    fn __repr__(&self) -> String {
        format!("<raidlab.Store {:?}>", self.path)
    }
}

/// Runs that are read.
#[derive(Clone, Copy)]
enum Chosen {
    All,
    Last,
    Run(i64),
}

impl Chosen {
    fn one(run: Option<i64>) -> Chosen {
        run.map_or(Chosen::Last, Chosen::Run)
    }
}

impl Store {
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&results::Store) -> Result<T, results::StoreError> + Send + 'static,
    ) -> PyResult<T> {
        let store = self.store.clone();
        let result = wait_for(py, move |_| {
            let store = store.lock().unwrap_or_else(PoisonError::into_inner);
            read(&store).map_err(|error| failure::of(&error.into(), Kind::Invalid))
        })?;
        result.or_raise(py)
    }

    fn kept(&self, py: Python<'_>, chosen: Chosen) -> PyResult<Vec<Kept>> {
        let source = self.path.to_string_lossy().into_owned();
        let missing = Error::new(Kind::NotFound, format!("{source}: there are no runs"));
        let missing = missing.about(source.clone());
        let records = self.with(py, move |store| {
            let runs: Vec<RunInfo> = store.runs()?;
            let ids: Vec<i64> = match chosen {
                Chosen::All => runs.iter().map(|run| run.id).collect(),
                Chosen::Last => runs.last().map(|run| run.id).into_iter().collect(),
                Chosen::Run(run) => vec![run],
            };
            let record = |id: i64| {
                let measured = store.record(id)?;
                Ok(Kept { measured, run: Some(id), source: source.clone() })
            };
            ids.into_iter().map(record).collect::<Result<Vec<_>, _>>()
        })?;
        match (records.is_empty(), chosen) {
            (true, Chosen::Last) => Err(missing).or_raise(py),
            _ => Ok(records),
        }
    }
}

/// Records, results files and paths of records, as records.
fn gathered(given: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<Kept>>> {
    let py = given.py();
    if let Ok(record) = given.cast::<Record>() {
        return Ok(vec![record.get().0.clone()]);
    }
    if let Ok(store) = given.cast::<Store>() {
        return Ok(store.get().kept(py, Chosen::All)?.into_iter().map(Arc::new).collect());
    }
    if let Some(path) = one_path(given)? {
        let record = wait_for(py, move |_| read(PathBuf::from(path)))?.or_raise(py)?;
        return Ok(vec![record.0]);
    }
    let none = || {
        let text = "a Record, a Store, the path of a record, or an iterable of them is required";
        usage(py, text.into())
    };
    let mut all = Vec::new();
    for item in given.try_iter().map_err(|_| none())? {
        let item = item?;
        let is_one = item.cast::<Record>().is_ok()
            || item.cast::<Store>().is_ok()
            || one_path(&item)?.is_some();
        if !is_one {
            return Err(none());
        }
        all.extend(gathered(&item)?);
    }
    Ok(all)
}

/// One row for each cell of records, as an Arrow table.
///
/// `source` is a Record, a Store, the path of a file that `raidlab bench --json=FILE` wrote, or an
/// iterable of them. The columns are those of `raidlab report --csv`, with their units (`KiB`,
/// `MB/s`, `us`, `s`, `1` for counts and ratios), and behind them `run`, the number in the results
/// file, and `source`, the file. Null where there is no figure.
#[pyfunction]
pub fn cells(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Table> {
    let records = gathered(source)?;
    Ok(py.detach(|| table(&records.iter().map(Arc::as_ref).collect::<Vec<_>>())))
}

fn table(records: &[&Kept]) -> Table {
    let rows: Vec<_> = records
        .iter()
        .flat_map(|kept| kept.measured.cells.iter().map(move |cell| (*kept, cell)))
        .collect();
    let mut made = Columns::default();
    for column in columns() {
        let value = |row: usize| column.value(&rows[row].0.measured, rows[row].1);
        let all = 0..rows.len();
        let unit = column.unit().unwrap_or("1");
        match column.kind() {
            Value::Text(_) => made.texts(
                column.name,
                all.map(|row| match value(row) {
                    Value::Text(text) => text,
                    _ => None,
                }),
            ),
            Value::Whole(_) => made.wholes(
                column.name,
                unit,
                all.map(|row| match value(row) {
                    Value::Whole(number) => number,
                    _ => None,
                }),
            ),
            Value::Number(_) => made.numbers(
                column.name,
                unit,
                all.map(|row| match value(row) {
                    Value::Number(number) => number,
                    _ => None,
                }),
            ),
            Value::Flag(_) => made.flags(
                column.name,
                all.map(|row| match value(row) {
                    Value::Flag(flag) => flag,
                    _ => None,
                }),
            ),
        }
    }
    made.wholes("run", "1", rows.iter().map(|(kept, _)| kept.run));
    made.texts("source", rows.iter().map(|(kept, _)| Some(&kept.source)));
    made.table()
}
