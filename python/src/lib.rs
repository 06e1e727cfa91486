//! The Python package `raidlab`: what the verbs find, as functions; figures as Arrow tables.
//!
//! ```text
//! raidlab/__init__.py -- names, exceptions --> _native (this) --> crate raidlab: verbs
//!                                                         '-----> results, sim
//! ```
//! *Invariant*: nothing of the program's output is parsed; a number is what the JSON of the verb
//! says, or null with the reason. Python's lock is not held while files are read or anything is
//! computed. No panic is meant to cross: one would be a defect, and comes as `PanicException`.
#![forbid(unsafe_code)]

mod cells;
mod errors;
mod input;
mod members;
mod objects;
mod predictions;
mod program;
mod simulator;
mod store;
mod sweep;
mod table;
mod waiting;

use pyo3::prelude::*;

/// What is written in Rust: use it by `raidlab`, which names it.
#[pymodule(name = "_native")]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::members::{Contents, detail, examine, guess};
    #[pymodule_export]
    use crate::predictions::{advise, configurations, predict};
    #[pymodule_export]
    use crate::program::program;
    #[pymodule_export]
    use crate::simulator::{Finding, Simulation, replay, simulate};
    #[pymodule_export]
    use crate::store::{Record, Store, cells};
    #[pymodule_export]
    use crate::sweep::{Stop, SweepRun, sweep_measure, sweep_plan};
    #[pymodule_export]
    use crate::table::Table;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("BUILD", cli::VERSION)
    }
}
