//! Work on a thread of its own, while Python's lock is free and signals are looked at.
//!
//! Invariant: Ctrl-C raises KeyboardInterrupt within a tenth of a second; the work then ends by
//! itself, as soon as it looks at its flag, and what it would have returned is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How long a signal waits.
const LOOK: Duration = Duration::from_millis(50);

/// Stack of the thread: that of a program's first one.
const STACK: usize = 8 << 20;

/// Set when the result is of no use any more.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether the work is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where a thread puts its result.
struct Place<T>(Mutex<Option<thread::Result<T>>>, Condvar);

impl<T> Place<T> {
    /// Waits for it a moment.
    fn taken(&self) -> Option<thread::Result<T>> {
        let result = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.1.wait_timeout_while(result, LOOK, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// Does the work.
///
/// # Errors
/// What a signal handler of Python raised, or no thread can be started.
pub fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Stop::default();
    let place = Arc::new(Place(Mutex::new(None), Condvar::new()));
    let (its_stop, its_place) = (stop.clone(), place.clone());
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(&its_stop)));
        *its_place.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        its_place.1.notify_all();
    };
    let started = thread::Builder::new().name("raidlab".into()).stack_size(STACK).spawn(body);
    if let Err(error) = started {
        return Err(PyRuntimeError::new_err(format!("no thread can be started: {error}")));
    }
    loop {
        match py.detach(|| place.taken()) {
            Some(Ok(result)) => return Ok(result),
            Some(Err(payload)) => resume_unwind(payload),
            None => {
                if let Err(raised) = py.check_signals() {
                    stop.0.store(true, Ordering::Relaxed);
                    return Err(raised);
                }
            }
        }
    }
}
