//! Linux software RAID (md) in user space: open members, read an array that is damaged, run it,
//! create one, predict its speed.
//!
//! ```text
//! open --> Members --> FoundArray --read--> Contents   read-only; what is lost is an error
//!             '------------start--> RunningArray       the engine: reads, writes, rebuilds
//! create                       a new array
//! predict                      what Linux md would deliver
//! ```
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let disks: Vec<_> = (0..3).map(|disk| dir.path().join(format!("disk{disk}.img"))).collect();
//! let mut options = raidlab::CreateOptions::new(raidlab::Level::Raid5);
//! options.file_bytes = Some(16 << 20);
//! raidlab::create(&disks, &options)?;
//!
//! let array = raidlab::open(&disks)?.start(&raidlab::StartOptions::default())?;
//! array.write_at(&[7; 4096], 1 << 20)?;
//! array.stop()?;
//!
//! // A disk is lost: its part is recovered from parity.
//! let members = raidlab::open(&disks[1..])?;
//! let contents = members.array()?.read(&raidlab::ReadOptions::default())?;
//! let mut back = [0; 4096];
//! contents.read_at(&mut back, 1 << 20)?;
//! assert_eq!(back, [7; 4096]);
//!
//! let array = raidlab::Configuration::new(raidlab::Level::Raid5, 4, 512.0);
//! let expected = raidlab::predict(&array, "hdd-2016", "seq-read")?;
//! println!("{:.0} {}, limited by {}", expected.rate, expected.unit, expected.limit);
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: a function that reads opens members read-only; what is refused says why, and an error
//! has a [`Kind`], the member and its causes.

#![forbid(unsafe_code)]

mod contents;
mod create;
mod error;
mod members;
mod prediction;
mod running;

pub use contents::{Contents, NotRead, ReadOptions};
pub use create::{CreateOptions, Created, create};
pub use error::{Error, Kind, Result};
pub use md::{Layout, Level};
pub use members::{FoundArray, FoundMember, Members, open, open_overlaid};
pub use prediction::{Configuration, Copies, Prediction, predict};
pub use running::{Export, Member, Pace, RunningArray, StartOptions, Status, Sync};

/// Requests without waiting: buffers that are leased, futures, and completion queues, in which a
/// request ends by the number that its submitter gave it.
pub mod io {
    pub use array::{
        Array, ArrayError, Completer, CompletionQueue, HostOp, Lease, Pending, RequestResult,
    };
}
