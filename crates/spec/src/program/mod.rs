//! Programs: the operations of bonnie, bonnie++, dd, IOzone and other tools, as values.
//!
//! ```text
//! spec ("bonnie++:n=16") -> Program: stages of phases of workers of acts
//! ```
//!
//! Invariant: programs are independent of the backend that performs them, and pure.

mod error;
pub mod names;
pub mod options;
pub mod spec;
pub mod timing;
pub mod tools;
pub mod types;

pub use error::{JobError, JobProblem, OptionError, ProgramError, SizingError};
pub use options::Sizing;
pub use spec::{ProgramSpec, canonical_id};
pub use types::{Act, Order, Phase, Program, Stage, Step, Worker};
