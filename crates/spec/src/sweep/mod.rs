//! Sweeps: many items from one file, each with a key by which its result is found again.
//!
//! ```text
//!   file (parsed sweep file) --the command line's parser--> cases --> key of each
//! ```
//!
//! Invariant: equal measurements have equal keys; a key never depends on the order of the file.

mod disambiguate;
mod file;
mod item;
pub mod key;

pub use disambiguate::TargetLabels;
pub use file::{SweepError, SweepFile, SweepOption, SweepProblem, SweepTable};
pub use item::{Item, ItemKey};
