//! What a front serves: sectors that are read and written in whole blocks. An array is a store;
//! what can be read of a damaged one is another ([`Rescued`]).
//!
//! Invariant: a read that succeeds returns the store's bytes, all of them; a range that cannot be
//! read is an error, never zeroes.

mod metered;
mod of_array;
mod rescued;

use array::{ArrayError, Filled, Lease, RequestError};
use sys::OutSlice;
use thiserror::Error;

pub use metered::{Meter, MeterReading, Metered};
pub use rescued::Rescued;

use rescued::Counted;

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

/// Why a request of a store failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The array refused or failed it.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// No member can serve a part of the range.
    #[error("sectors {first} to {last} can be read from no member")]
    Lost {
        /// The first sector that is lost.
        first: u64,
        /// The last sector of that part.
        last: u64,
    },
    /// Nothing can be written.
    #[error("it is served read-only")]
    ReadOnly,
    /// The range is not inside, or not in whole blocks.
    #[error("{bytes} bytes at {offset} are not whole blocks inside of it")]
    Range {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// The front or the store has been stopped.
    #[error("it has been stopped")]
    Stopped,
}

impl StoreError {
    /// The errno that fits it.
    pub fn errno(&self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            StoreError::Array(ArrayError::Request(error)) => match error {
                RequestError::NoSpace => Errno::NOSPC,
                RequestError::NoMemory => Errno::NOMEM,
                RequestError::ReadOnly => Errno::ROFS,
                RequestError::Invalid => Errno::INVAL,
                RequestError::Io => Errno::IO,
            },
            StoreError::Array(ArrayError::Range { .. }) | StoreError::Range { .. } => Errno::INVAL,
            StoreError::Array(ArrayError::Unclean) | StoreError::Lost { .. } => Errno::IO,
            StoreError::Array(ArrayError::Stopped) | StoreError::Stopped => Errno::SHUTDOWN,
            StoreError::ReadOnly => Errno::ROFS,
        }
    }
}

/// The bytes of a read or a write. Dropping it returns it to its store.
pub struct Buffer(Memory);

enum Memory {
    Lease(Lease),
    Counted(Counted),
}

impl Buffer {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Memory::Lease(lease) => lease.bytes(),
            Memory::Counted(counted) => counted.bytes(),
        }
    }

    /// Its bytes, to fill.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Lease(lease) => lease.bytes_mut(),
            Memory::Counted(counted) => counted.bytes_mut(),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
}

/// What a read returns that only sends the bytes.
pub enum ToSend {
    /// They are in the buffer.
    Buffer(Buffer),
    /// They may be in members' memory.
    Filled(Filled),
}

impl ToSend {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            ToSend::Buffer(buffer) => buffer.len(),
            ToSend::Filled(filled) => filled.len(),
        }
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with its bytes, in order, until that says to stop.
    pub(crate) fn each_slice<'a>(&'a self, mut each: impl FnMut(OutSlice<'a>) -> bool) -> bool {
        match self {
            ToSend::Buffer(buffer) => each(OutSlice::new(buffer.bytes())),
            ToSend::Filled(filled) => filled.out_slices().all(each),
        }
    }
}

/// What is done with the outcome of [`Store::read_to_send`]; as [`Then`].
pub type ThenSend = Box<dyn FnOnce(Result<ToSend, StoreError>) + Send>;

/// How a request ended; reads and writes return their buffer.
pub type Outcome = Result<Option<Buffer>, StoreError>;

/// What is done with the outcome. It runs on a thread of the store, or on the caller's before the
/// call returns: it must not block, must not drop the store, and must not lock what its caller has
/// locked.
pub type Then = Box<dyn FnOnce(Outcome) + Send>;

/// What a front serves; see the module documentation. All methods may be called concurrently.
pub trait Store: Send + Sync {
    /// Its size, block and abilities, which do not change.
    fn limits(&self) -> Limits;

    /// A buffer of this length, at most [`Limits::request_bytes`]; blocks while all are in use.
    fn buffer(&self, bytes: usize) -> Buffer;

    /// A buffer of this length, or `None` while all are in use.
    fn try_buffer(&self, bytes: usize) -> Option<Buffer>;

    /// Fills the buffer, whole blocks, from byte `offset` on. Does not wait.
    fn read(&self, buffer: Buffer, offset: u64, then: Then);

    /// Reads as [`Store::read`] does, for bytes that are only sent: they may stay where they are
    /// instead of being copied into the buffer. A write that ends before they are sent may be seen
    /// in them.
    fn read_to_send(&self, buffer: Buffer, offset: u64, then: ThenSend) {
        let answer = |outcome: Outcome| {
            let buffer = outcome.map(|buffer| buffer.expect("a read has a buffer"));
            then(buffer.map(ToSend::Buffer));
        };
        self.read(buffer, offset, Box::new(answer));
    }

    /// Writes the buffer, whole blocks, at byte `offset`; durable at its end if `fua`. Does not
    /// wait.
    fn write(&self, buffer: Buffer, offset: u64, fua: bool, then: Then);

    /// Makes all writes that have ended durable. Does not wait.
    fn flush(&self, then: Then);

    /// Discards whole blocks; blocks.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), StoreError>;

    /// What is known of whole blocks, at least one, without reading them: extents from `offset` on,
    /// at least one and at most `most`, which may end before the range does; blocks. A write that
    /// has ended is seen.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn allocation(
        &self,
        _offset: u64,
        bytes: u64,
        _most: usize,
    ) -> Result<Vec<StoreExtent>, StoreError> {
        Ok(vec![StoreExtent { bytes, is_hole: false }])
    }

    /// Makes whole blocks read as zeroes; blocks.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), StoreError>;
}
