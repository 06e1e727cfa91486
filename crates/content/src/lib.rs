//! Decoders of what file systems, partition tables and volume managers record of themselves: which
//! they are, and where each of their blocks belongs.
//!
//! Owns the decoders of foreign formats, as far as they say *what* lies here ([`identify`]) and
//! *where* it must lie ([`Witness`], [`Prediction`]). The contents of files are not read.
//!
//! Invariant: everything takes any bytes. No length, count or offset of a decoded structure is used
//! before it is checked, nothing panics, and memory is bounded by what was passed in. No file is
//! opened here: bytes come in as [`Bytes`] or slices.
//!
//! # What it is for
//!
//! `guess` finds an array's geometry from blocks that prove their own address:
//!
//! 1. Each window of a member that was read goes through [`FileSystems::find`], which collects
//!    superblocks and tables. The same file system found twice is one entry.
//! 2. The windows go through [`FileSystems::scan`], which finds blocks of these file systems into a
//!    [`Scan`]; several can be filled side by side and joined by [`Scan::append`].
//! 3. [`FileSystems::learn`] takes from scans what later addresses depend on: group descriptors,
//!    the map of btrfs chunks, the runs of an MFT. [`FileSystems::learn_through`] reads the same
//!    through a hypothesis of the array.
//! 4. [`FileSystems::witnesses`] gives the blocks found with the address at which each must stand,
//!    by what is known until then.
//! 5. [`FileSystems::predictions`] says what must stand where, from what was found;
//!    [`FileSystems::predictions_through`] from what is read through a hypothesis. Of file systems
//!    without checksums (ext2, ext3, ext4 before `metadata_csum`, XFS 4) most witnesses come from
//!    [`Prediction::then`]: an inode that names a block which names the inode proves both places.
//! 6. [`FileSystems::cross_checks`] compares what a file system says twice, which differs when a
//!    member is out of date.
//!
//! Addresses are bytes from the start of the file system or table that they belong to, never from
//! the start of an array: tables name [`Region`]s, and each is a place where another may start.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![warn(missing_docs)]

mod btrfs;
mod bytes;
mod crc;
mod ext;
mod field;
mod file_systems;
mod files;
mod format;
mod identified;
mod identify;
mod kind;
pub mod lvm;
mod ntfs;
mod prediction;
mod scan;
mod tables;
mod text;
mod undo;
mod volume_groups;
mod witness;
mod xfs;

pub use bytes::{Bytes, Part, Unreadable};
pub use file_systems::{FileSystem, FileSystems, Sighting};
pub use identified::{Checksum, Identified};
pub use identify::identify;
pub use kind::Kind;
pub use prediction::{CrossChecks, Disagreement, Prediction, PredictionKind};
pub use scan::Scan;
pub use tables::Region;
pub use witness::{Witness, WitnessKind};
