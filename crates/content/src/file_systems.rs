//! The file systems and tables of which pieces were found.

use crate::bytes::Bytes;
use crate::identified::Checksum;
use crate::kind::Kind;
use crate::prediction::{CrossChecks, Prediction};
use crate::scan::{Scan, Witness};

/// A file system, table or volume manager that was found by its superblock.
#[derive(Clone, Debug)]
pub struct FileSystem {
    /// What it is.
    pub kind: Kind,
    /// Its UUID as blkid prints it.
    pub uuid: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Size in bytes, by what it says of itself.
    pub bytes: u64,
    /// Bytes of a block (XFS, ext), cluster (NTFS), sector (btrfs, tables).
    pub block: u32,
    /// When its superblock was last written, in seconds since 1970; of several the newest.
    pub written: Option<u64>,
    /// Of tables: where others may start. Empty for file systems.
    pub regions: Vec<Region>,
}

/// A part of what a table divides: a partition, a segment of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Byte address from the start of what the table divides.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Its name: `p1`, `vg/lv`.
    pub name: String,
}

/// A superblock or table at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Byte offset in the scanned member.
    pub at: u64,
    /// Index into [`FileSystems::list`].
    pub file_system: usize,
    /// The address that it states of itself.
    pub address: u64,
    /// Whether its own checksum holds.
    pub checksum: Checksum,
    /// When it was written, in seconds since 1970, if it says so. Of mirrors, the older is stale.
    pub written: Option<u64>,
}

/// All file systems and tables found on a set of members. An index, once given, stays valid.
#[derive(Clone, Debug, Default)]
pub struct FileSystems {
    list: Vec<FileSystem>,
}

impl FileSystems {
    /// The most that are kept: images inside files can be many.
    pub const MAX: usize = 256;

    /// None found yet.
    pub fn new() -> FileSystems {
        FileSystems::default()
    }

    /// What was found, in the order of discovery.
    pub fn list(&self) -> &[FileSystem] {
        &self.list
    }

    /// Looks for superblocks and tables at every multiple of 512 bytes of a window of a member that
    /// begins at byte `at`. Planned: finds nothing yet.
    pub fn find(&mut self, window: &[u8], at: u64) -> Vec<Sighting> {
        let _ = (window, at);
        Vec::new()
    }

    /// Looks for blocks of the known file systems in a window of a member that begins at byte `at`.
    /// Windows that cut a block miss it: let them overlap by 64 KiB, or be at least as long.
    /// Planned: finds nothing yet.
    pub fn scan(&self, window: &[u8], at: u64, into: &mut Scan) {
        let _ = (window, at, into);
    }

    /// Takes from a scan what addresses and predictions depend on. Planned.
    pub fn learn(&mut self, scan: &Scan) {
        let _ = scan;
    }

    /// Reads the same through a hypothesis: `through` is the file system from its start on. True if
    /// something became known that was not. Planned.
    pub fn learn_through(&mut self, file_system: usize, through: &dyn Bytes) -> bool {
        let _ = (file_system, through);
        false
    }

    /// The blocks of a scan whose address is known by now. More may be after
    /// [`FileSystems::learn`]. Planned: none yet.
    pub fn witnesses(&self, scan: &Scan) -> Vec<Witness> {
        let _ = scan;
        Vec::new()
    }

    /// At most `limit` predictions from what was learned, spread over the file system. Planned.
    pub fn predictions(&self, file_system: usize, limit: usize) -> Vec<Prediction> {
        let _ = (file_system, limit);
        Vec::new()
    }

    /// At most `limit` predictions from what is read through a hypothesis, spread over the file
    /// system. Planned.
    pub fn predictions_through(
        &self,
        file_system: usize,
        through: &dyn Bytes,
        limit: usize,
    ) -> Vec<Prediction> {
        let _ = (file_system, through, limit);
        Vec::new()
    }

    /// Compares what the file system says twice, at most `limit` comparisons, read through a
    /// hypothesis. Planned.
    pub fn cross_checks(
        &self,
        file_system: usize,
        through: &dyn Bytes,
        limit: usize,
    ) -> CrossChecks {
        let _ = (file_system, through, limit);
        CrossChecks::default()
    }
}
