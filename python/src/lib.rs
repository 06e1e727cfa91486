//! The Python package `raidlab`: what the verbs find, as functions; figures as Arrow tables.
//!
//! ```text
//! raidlab/__init__.py -- names, exceptions --> _native (this) --> crate raidlab: verbs
//!                                                         '-----> results: columns of cells
//! ```
//! *Invariant*: nothing of the program's output is parsed; a number is what the JSON of the verb
//! says, or null with the reason. Python's lock is not held while files are read or anything is
//! computed. No panic is meant to cross: one would be a defect, and comes as `PanicException`.
#![forbid(unsafe_code)]

mod program;

use pyo3::prelude::*;

/// What is written in Rust: use it by `raidlab`, which names it.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::program::program;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("BUILD", raidlab::VERSION)
    }
}
