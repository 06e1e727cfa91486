//! Scripted faults of a drive, for tests and rehearsals.
//!
//! Invariant: pure data; a member performs them.

use std::ops::Range;

/// One scripted fault. Byte addresses are relative to the member; ranges are half open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every read of this byte returns it with a flipped bit, without an error.
    FlipRead {
        /// Byte address.
        at: u64,
    },
    /// Reads of the range fail with a medium error, until it is written.
    ReadError {
        /// Bytes that fail.
        range: Range<u64>,
    },
    /// Writes to the range fail.
    WriteError {
        /// Bytes that fail.
        range: Range<u64>,
    },
    /// After this number of operations the member is gone.
    Gone {
        /// Number of operations that still succeed.
        after: u64,
    },
    /// Writes that cover this byte store only the data before it, without an error.
    TornWrite {
        /// The byte at which the write tears; torn at its sector.
        at: u64,
    },
    /// Operations with these numbers, counted from 0, begin only after this time: until then they
    /// move no data and do not complete.
    Hang {
        /// Numbers of operations.
        ops: Range<u64>,
        /// In nanoseconds.
        nanos: u64,
    },
    /// Every operation is delayed.
    Delay {
        /// Delay in nanoseconds.
        nanos: u64,
    },
}
