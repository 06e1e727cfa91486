//! Sweeps: many items from one file, measured one by one, and resumed after any kind of end.
//!
//! ```text
//!   file (parsed sweep file) --the command line's own parser--> Part (plan + settings)
//!                                                                  |
//!                  key (the key of each item) --> runner: skip, run, store
//! ```
//!
//! Invariant: an item is measured once in a run; a stored item is never measured again unless
//! requested. Called by the command line.

mod disambiguate;
mod file;
mod key;
mod runner;

pub use disambiguate::TargetLabels;
pub use file::{SweepError, SweepFile, SweepOption, SweepTable};
pub use key::{program_elsewhere, program_on_array};
pub use runner::{Ended, Part, ProgramItem, SweepHost, Task, head, run_tasks, tasks};
