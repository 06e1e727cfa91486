//! Metadata of arrays that are not md's own: Intel's of BIOS RAID (IMSM) and SNIA's DDF, whose
//! volumes have md's geometries, and dm-raid's, which is only named.
//!
//! ```text
//!   bytes of a disk --detect--> Metadata --candidates--> assemble::Candidate, one for each volume
//!                                                        that the disk is a member of
//! ```
//!
//! Invariant: decoding takes any bytes, never panics, and allocates nothing by an unchecked number.
//! A volume becomes candidates of the same assembly decision as md's arrays: what is not mapped
//! exactly, is in the middle of a migration, or contradicts itself carries the reason with it.
//! Formats: docs/format/imsm.md, docs/format/ddf.md.
//!
//! Called by `device` (which reads the disks) and `admin` (which assembles the members).

mod candidates;
pub mod ddf;
mod detect;
pub mod dm_raid;
pub mod imsm;
mod text;
mod unusable;
mod uuid;
mod volume;

pub use candidates::{ForeignMember, candidates};
pub use detect::{Detected, Metadata, detect};
pub use unusable::Unusable;
