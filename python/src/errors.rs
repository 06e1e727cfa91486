//! Exceptions: the classes of `raidlab.errors`, made from the kinds of the crate `raidlab`.
//!
//! Invariant: an exception has the text that the program would print, its causes and its path.

use std::ops::Range;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use raidlab::{Error, Kind};

/// A class of `raidlab.errors`.
struct Class(&'static str, PyOnceLock<Py<PyType>>);

static USAGE: Class = Class("UsageError", PyOnceLock::new());
static NOT_FOUND: Class = Class("NotFoundError", PyOnceLock::new());
static UNREADABLE: Class = Class("UnreadableError", PyOnceLock::new());
static INVALID: Class = Class("InvalidError", PyOnceLock::new());
static REFUSED: Class = Class("RefusedError", PyOnceLock::new());
static LOST: Class = Class("LostError", PyOnceLock::new());
static DIFFERS: Class = Class("DiffersError", PyOnceLock::new());
static BASE: Class = Class("Error", PyOnceLock::new());

impl Class {
    fn raised<'py>(&'static self, py: Python<'py>, arguments: impl PyCallArgs<'py>) -> PyErr {
        let class = self.1.import(py, "raidlab.errors", self.0);
        match class.and_then(|class| class.call1(arguments)) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }
}

/// The exception of a failure.
pub fn raised(py: Python<'_>, failure: Error) -> PyErr {
    let class = match failure.kind {
        Kind::Usage => &USAGE,
        Kind::NotFound => &NOT_FOUND,
        Kind::Unreadable => &UNREADABLE,
        Kind::Invalid => &INVALID,
        _ => &REFUSED,
    };
    class.raised(py, (failure.text, failure.context, failure.path))
}

/// Arguments that make no sense.
pub fn usage(py: Python<'_>, text: String) -> PyErr {
    raised(py, Error::new(Kind::Usage, text))
}

/// An error of no other kind.
pub fn other(py: Python<'_>, text: String) -> PyErr {
    BASE.raised(py, (text,))
}

type Path = Option<String>;

/// Ranges of bytes that are lost.
pub fn lost(py: Python<'_>, text: String, ranges: Vec<Range<u64>>) -> PyErr {
    let ranges: Vec<(u64, u64)> = ranges.into_iter().map(|it| (it.start, it.end)).collect();
    LOST.raised(py, (text, Vec::<String>::new(), Path::None, ranges))
}

/// Ranges of bytes that contradict their redundancy.
pub fn differs(py: Python<'_>, text: String, ranges: Vec<Range<u64>>) -> PyErr {
    let ranges: Vec<(u64, u64)> = ranges.into_iter().map(|it| (it.start, it.end)).collect();
    DIFFERS.raised(py, (text, Vec::<String>::new(), Path::None, ranges))
}

/// For `map_err` where Python's lock is held.
pub trait Raise<T> {
    /// The exception in place of the failure.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for raidlab::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|failure| raised(py, failure))
    }
}
