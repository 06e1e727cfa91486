//! Sweeps over several hosts: the parts of `raidlab.dask` that measure and store.
//!
//! ```text
//!   raidlab.dask (Python): Dask's tasks, workers that come and go
//!        | JSON                                          | JSON
//!   sweep_plan, SweepRun: where it is directed      sweep_measure: on a worker
//! ```
//! *Invariant*: Python's lock is not held while anything is measured or stored, and the thread that
//! measures takes it for the rendezvous of a load alone, before its first request.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cli::sweeping::{
    self, AgreedStart, ClockOffset, MeasuredTask, Rendezvous, SweepSource, text_of,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// An exception of `raidlab.errors`.
fn exception(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let raised = py.import("raidlab.errors").and_then(|errors| errors.getattr(class));
    match raised.and_then(|class| class.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Of an error in the arguments.
fn usage<T>(py: Python<'_>, result: anyhow::Result<T>) -> PyResult<T> {
    result.map_err(|error| exception(py, "UsageError", &text_of(&error)))
}

/// Of an error of a results file.
fn unreadable<T>(py: Python<'_>, result: anyhow::Result<T>) -> PyResult<T> {
    result.map_err(|error| exception(py, "UnreadableError", &text_of(&error)))
}

/// Stops a measurement from another thread.
#[pyclass(frozen)]
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }

    /// Stops it.
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped.
    fn is_set(&self) -> bool {
        self.is_stopped()
    }
}

/// The plan of a sweep, JSON in and out.
#[pyfunction]
pub fn sweep_plan(py: Python<'_>, source: &str) -> PyResult<String> {
    let source = usage(py, SweepSource::from_json(source))?;
    let plan = py.detach(|| source.plan());
    Ok(usage(py, plan)?.to_json())
}

/// Measures the items of a task; JSON. `clock` is this host's offset and its error, seconds;
/// `rendezvous` gets the number of a workload that is ready, and returns the agreed start, seconds
/// since 1970 by the director's clock, and the hosts.
#[pyfunction]
#[pyo3(signature = (source, keys, stop, clock=None, rendezvous=None))]
pub fn sweep_measure<'py>(
    py: Python<'py>,
    source: &str,
    keys: Vec<String>,
    stop: &Stop,
    clock: Option<(f64, f64)>,
    rendezvous: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let source = usage(py, SweepSource::from_json(source))?;
    let (stop, clock) =
        (stop.0.clone(), clock.map(|(offset_s, error_s)| ClockOffset { offset_s, error_s }));
    let rendezvous = rendezvous.map(|call| -> Rendezvous<'static> {
        Box::new(move |entry| {
            Python::attach(|py| {
                let agreed = call.call1(py, (entry,)).and_then(|agreed| agreed.extract(py));
                let (start_unix_s, hosts) = agreed.map_err(|error| error.value(py).to_string())?;
                Ok(AgreedStart { start_unix_s, hosts })
            })
        })
    });
    let measured = py.detach(|| source.measure(&keys, clock, rendezvous, &stop));
    Ok(PyBytes::new(py, usage(py, measured)?.to_json().as_bytes()))
}

/// The run of a sweep over several hosts, in a results file.
#[pyclass(frozen)]
pub struct SweepRun {
    /// `None`: it has ended.
    run: Mutex<Option<sweeping::SweepRun>>,
    /// Its number.
    #[pyo3(get)]
    number: i64,
    /// The results file.
    #[pyo3(get)]
    path: PathBuf,
}

impl SweepRun {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut sweeping::SweepRun) -> anyhow::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
            run.as_mut().map(work)
        });
        match done {
            Some(done) => unreadable(py, done),
            None => Err(exception(py, "UsageError", "the run has ended")),
        }
    }
}

#[pymethods]
impl SweepRun {
    #[new]
    #[pyo3(signature = (source, db=None, hosts=None, again=false))]
    fn new(
        py: Python<'_>,
        source: &str,
        db: Option<PathBuf>,
        hosts: Option<&str>,
        again: bool,
    ) -> PyResult<SweepRun> {
        let source = usage(py, SweepSource::from_json(source))?;
        let run = py.detach(|| sweeping::SweepRun::begin(db.as_deref(), &source, hosts, again));
        let run = unreadable(py, run)?;
        let (number, path) = (run.number(), run.path().to_path_buf());
        Ok(SweepRun { run: Mutex::new(Some(run)), number, path })
    }

    /// Keys of the items that were measured.
    fn finished(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |run| run.finished())
    }

    /// Stores what a worker measured; returns the keys of the stored items.
    fn put(&self, py: Python<'_>, measured: &[u8]) -> PyResult<Vec<String>> {
        self.with(py, |run| run.put(&MeasuredTask::from_json(measured)?))
    }

    /// Stores the parts of a load; returns keys, and why rates could not be added.
    fn put_load(
        &self,
        py: Python<'_>,
        measured: Vec<Vec<u8>>,
    ) -> PyResult<Vec<(String, Option<String>)>> {
        self.with(py, |run| {
            let parts = measured.iter().map(|part| MeasuredTask::from_json(part));
            run.put_load(&parts.collect::<anyhow::Result<Vec<_>>>()?)
        })
    }

    /// Records why items, (key, what), could not be run.
    fn put_not_run(&self, py: Python<'_>, items: Vec<(String, String)>, why: &str) -> PyResult<()> {
        self.with(py, |run| run.put_not_run(&items, why))
    }

    /// A stored item as a Parquet file.
    fn parquet<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |run| run.parquet(key))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The record of the run, JSON.
    fn record(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |run| Ok(run.record()?.to_json()))
    }

    /// Ends it; `complete`: nothing is left to be measured. A second call does nothing.
    fn end(&self, py: Python<'_>, complete: bool) -> PyResult<()> {
        let ended = py.detach(|| {
            let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
            run.map_or(Ok(()), |run| run.end(complete))
        });
        unreadable(py, ended)
    }
}
