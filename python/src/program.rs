//! The console script: the whole program, in the process of Python.
//!
//! Invariant: it ends as the program does, with the same codes; also after a panic (101). Signals
//! were given back to the system before (`raidlab.__main__`).

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

/// What Rust's own programs end with after a panic.
const PANICKED: u8 = 101;

/// Runs the program with these words, the program itself first; returns its exit code.
#[pyfunction]
pub fn program(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| catch_unwind(AssertUnwindSafe(|| cli::main(words))).unwrap_or(PANICKED))
}
