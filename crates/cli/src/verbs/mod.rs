//! What the verbs find, as functions: for programs that have no terminal, such as the Python
//! package.
//!
//! Invariant: the same code as the verb's, up to the point where it would print; a function that
//! looks at members opens them read-only.

mod contents;
pub mod failure;
mod members;
mod predictions;
mod records;
mod words;

pub use contents::contents;
pub use members::{detail, examine, guess};
pub use predictions::{Advised, Adviser, Configuration, Figures, Predicted, Predictor, workloads};
pub use records::{read_record, store};
pub use words::Options;
