//! Why a state is not written: found by `on_paper`, part of the errors of its callers.

use thiserror::Error;

/// Why a state is not made: a clause about what would be left.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Worse(pub String);
