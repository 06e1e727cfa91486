//! Decode errors of on-disk structures.
//!
//! Invariant: an error names the structure, the field, its offset and the problem, so that one line
//! is enough to find the place with a hex editor.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// Why bytes do not decode to a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecodeError {
    /// The structure, as `docs/format` names it: `superblock-1`.
    pub structure: &'static str,
    /// The field of it.
    pub field: &'static str,
    /// Its first byte, from the start of the structure.
    #[serde(rename = "offset_bytes")]
    pub offset: usize,
    /// The problem.
    pub problem: Cow<'static, str>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeError { structure, field, offset, problem } = self;
        write!(f, "{structure}, field {field} at byte {offset}: {problem}")
    }
}

impl std::error::Error for DecodeError {}
