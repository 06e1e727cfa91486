//! Finds foreign metadata on a disk.
//!
//! Invariant: a disk without them costs a few reads of its last sectors, and of its first for
//! dm-raid's; what cannot be read counts as not there, unless a part of the metadata is.

use std::fmt::Display;

use super::{ddf, dm_raid, imsm};

/// Metadata whose volumes can be assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// Intel's.
    Imsm(imsm::Table),
    /// SNIA's.
    Ddf(ddf::Tables),
}

impl Metadata {
    /// In a few words, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Metadata::Imsm(_) => "Intel metadata (IMSM)",
            Metadata::Ddf(_) => "DDF metadata",
        }
    }
}

/// What there is on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// Metadata that were decoded.
    pub metadata: Option<Metadata>,
    /// Their signature is there, but they cannot be read: a sentence without its end.
    pub problem: Option<String>,
    /// A superblock of dm-raid, which makes LVM's RAID volumes.
    pub dm_raid: Option<dm_raid::Superblock>,
}

/// Looks for them; `read` fills whole sectors from one of the disk on.
pub fn detect<E: Display>(
    device_sectors: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Detected {
    let mut found = Detected::default();
    let imsm = imsm::read(device_sectors, &mut read).map(|it| it.map(Metadata::Imsm));
    let ddf = || ddf::read(device_sectors, &mut read).map(|it| it.map(Metadata::Ddf));
    match imsm.or_else(ddf) {
        Some(Ok(metadata)) => found.metadata = Some(metadata),
        Some(Err(problem)) => found.problem = Some(problem.to_string()),
        None => {}
    }
    let mut start = vec![0; dm_raid::READ_BYTES];
    let fits = device_sectors >= dm_raid::READ_BYTES as u64 / 512;
    if fits && read(0, &mut start).is_ok() {
        found.dm_raid = dm_raid::Superblock::decode(&start).ok();
    }
    found
}
