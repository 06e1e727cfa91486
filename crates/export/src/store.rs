//! What a front serves: sectors that are read and written in whole blocks. An array is a store;
//! what can be read of a damaged one is another ([`Rescued`]).
//!
//! Invariant: a read that succeeds returns the store's bytes, all of them; a range that cannot be
//! read is an error, never zeroes.

mod metered;
mod of_array;
mod rescued;

use array::{ArrayError, Completer, HostOp, Lease, RequestError};

pub use metered::{Meter, MeterReading, Metered};
pub use rescued::Rescued;

/// Size, block and abilities of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size in bytes.
    pub bytes: u64,
    /// Offsets and lengths are multiples of it; in bytes.
    pub block: u32,
    /// Longest read or write in bytes.
    pub request_bytes: usize,
    /// Number of buffers of that length that can be in use at a time.
    pub buffers: usize,
    /// Nothing can be written.
    pub read_only: bool,
    /// A discarded range reads as zeroes.
    pub discard_zeroes: bool,
}

/// Consecutive bytes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreExtent {
    /// How many, not 0.
    pub bytes: u64,
    /// Nothing is stored for them, and they read as zeroes. Otherwise there may be data.
    pub is_hole: bool,
}

/// The errno that fits an error of a store.
pub fn errno(error: &ArrayError) -> rustix::io::Errno {
    use rustix::io::Errno;
    match error {
        ArrayError::Request(error) => match error {
            RequestError::NoSpace => Errno::NOSPC,
            RequestError::NoMemory => Errno::NOMEM,
            RequestError::ReadOnly => Errno::ROFS,
            RequestError::Invalid => Errno::INVAL,
            RequestError::Io => Errno::IO,
        },
        ArrayError::Range { .. } => Errno::INVAL,
        ArrayError::Unclean | ArrayError::Lost { .. } => Errno::IO,
        ArrayError::Stopped => Errno::SHUTDOWN,
    }
}

/// Nothing can be written.
pub(crate) const READ_ONLY: ArrayError = ArrayError::Request(RequestError::ReadOnly);

/// What a front serves; see the module documentation. All methods may be called concurrently.
pub trait Store: Send + Sync {
    /// Its size, block and abilities, which do not change.
    fn limits(&self) -> Limits;

    /// A buffer of this length, at most [`Limits::request_bytes`]; blocks while all are in use.
    fn lease(&self, bytes: usize) -> Lease;

    /// A buffer of this length, or `None` while all are in use.
    fn try_lease(&self, bytes: usize) -> Option<Lease>;

    /// Reads or writes a lease's length of whole blocks from byte `offset` on, or makes all writes
    /// that have ended durable: [`HostOp::Read`], [`HostOp::Write`], [`HostOp::Flush`] (without a
    /// lease). Does not wait. A read of a lease that [borrows](Lease::borrow) may be given memory
    /// that changes with writes which end before the bytes are sent.
    fn submit(&self, op: HostOp, offset: u64, lease: Option<Lease>, to: Completer);

    /// Discards whole blocks; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), ArrayError>;

    /// What is known of whole blocks, at least one, without reading them: extents from `offset` on,
    /// at least one and at most `most`, which may end before the range does; blocks. A write that
    /// has ended is seen.
    ///
    /// # Errors
    /// See [`ArrayError`].
    fn allocation(
        &self,
        _offset: u64,
        bytes: u64,
        _most: usize,
    ) -> Result<Vec<StoreExtent>, ArrayError> {
        Ok(vec![StoreExtent { bytes, is_hole: false }])
    }

    /// Makes whole blocks read as zeroes; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), ArrayError>;
}
