//! Sweeps: many items from one file, measured one by one, and gone on with after any kind of end.
//!
//! ```text
//!   file (what the file says) --the command line's own parser--> Part (plan + settings)
//!                                                                   |
//!            key (what each item is called) --> carry: skip, run, store
//! ```
//!
//! Invariant: an item is measured once in a run; what is stored is never measured again unless
//! asked for. Called by the command line.

mod disambiguate;
mod file;
mod key;
mod runner;

pub use disambiguate::TargetLabels;
pub use file::{SweepError, SweepFile, SweepOption, SweepTable};
pub use key::{program_elsewhere, program_on_array};
pub use runner::{Ended, Part, ProgramItem, SweepHost, Task, head, run_tasks, tasks};
