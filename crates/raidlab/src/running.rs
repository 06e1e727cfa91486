//! An array that runs in this process.
//!
//! Invariant: requests go to the engine, which repairs, fails members and keeps the metadata as md
//! does; with an overlay the members are only read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use admin::serving::{ServeOptions, Serving};
use array::{Array, ArrayError, DriverOptions};

use crate::error::{Error, Kind, Result};
use crate::members::Members;

pub use admin::serving::api::{Export, Member, Pace, Status, Sync};

/// How an array is started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StartOptions {
    /// The array's UUID or name, if the members form several.
    pub array: Option<String>,
    /// A copy-on-write overlay: writes go to this file, and the members are only read. It is
    /// created if it does not exist; default: the one through which the members were opened.
    pub overlay: Option<PathBuf>,
    /// Start an array that is dirty and degraded: data may be wrong where a write was in flight.
    pub force: bool,
    /// Devices for empty slots, which are rebuilt while the array runs.
    pub add: Vec<OsString>,
    /// Also devices of `add` that hold data.
    pub overwrite: bool,
    /// Threads that run the array; 0 is 1.
    pub shards: u16,
}

/// An array that runs, until it is stopped. Dropped, it is as after a crash.
pub struct RunningArray {
    serving: Serving,
}

impl Members {
    /// Starts an array: closes the members, and opens those of the array for writing, unless there
    /// is an overlay. Nothing is written before the first write or repair.
    ///
    /// # Errors
    /// There is none or there are several, the array would lose or mix data, or a member is in use;
    /// the members were opened through another overlay ([`Kind::Usage`]).
    pub fn start(self, options: &StartOptions) -> Result<RunningArray> {
        let Members { names, overlay: below, opened, .. } = self;
        let overlay = match (&options.overlay, below) {
            (Some(overlay), Some(below)) if *overlay != below => {
                let (below, overlay) = (below.display(), overlay.display());
                let text = format!("{overlay}: the members were opened through {below}");
                return Err(Error::new(Kind::Usage, text));
            }
            (overlay, below) => below.or_else(|| overlay.clone()),
        };
        // Their locks would be in the way.
        drop(opened);
        let driver = DriverOptions { shards: options.shards.max(1), ..DriverOptions::default() };
        let start = admin::StartOptions { driver, ..admin::StartOptions::default() };
        let wanted = ServeOptions {
            array: options.array.clone(),
            force: options.force,
            overlay,
            add: options.add.clone(),
            overwrite: options.overwrite,
            start,
        };
        let serving = Serving::start(&names, &wanted);
        Ok(RunningArray { serving: serving.map_err(Error::from_error(Kind::Refused))? })
    }
}

impl RunningArray {
    /// The array's interface of leases, futures and completion queues: [`crate::io`].
    pub fn io(&self) -> &Arc<Array> {
        self.serving.array()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.io().len_bytes()
    }

    /// Fills `buffer` from byte `offset` on, and waits for it; offset and length are multiples of
    /// the logical block.
    ///
    /// # Errors
    /// The range is outside or not aligned, or is lost.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.io().read_at(buffer, offset).map_err(failed)
    }

    /// Writes `bytes` from byte `offset` on, and waits until they are on the members; offset and
    /// length are multiples of the logical block. They survive a power cut after [`Self::flush`].
    ///
    /// # Errors
    /// The range is outside or not aligned, or the array is read-only or failed.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.io().write_at(bytes, offset).map_err(failed)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// A member's flush fails that the array cannot run without.
    pub fn flush(&self) -> Result<()> {
        self.io().flush().map_err(failed)
    }

    /// Discards a range of bytes, as a hint.
    ///
    /// # Errors
    /// The range is outside or not aligned.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.io().discard(offset, bytes).map_err(failed)
    }

    /// The state of array, members and background work.
    pub fn status(&self) -> Status {
        self.serving.status()
    }

    /// Sentences about the start: degraded slots, members left out.
    pub fn notes(&self) -> &[String] {
        &self.serving.notes
    }

    /// Orders and events: fail, add, remove, replace, scrub.
    #[doc(hidden)]
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Completes requests in flight, flushes, and marks the metadata clean, unless a resync has not
    /// ended: that continues at the next start.
    ///
    /// # Errors
    /// The array could not be marked clean, as while a clone of [`Self::io`] is held, which may
    /// write: the next start finds it as after a crash.
    pub fn stop(self) -> Result<()> {
        self.serving.stop().map(drop).map_err(failed)
    }
}

fn failed(error: ArrayError) -> Error {
    let otherwise = match &error {
        ArrayError::Range { .. } => Kind::Usage,
        _ => Kind::Unreadable,
    };
    Error::from_error(otherwise)(error)
}
