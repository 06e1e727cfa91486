//! The file systems and tables of which pieces were found.

use crate::bytes::Bytes;
use crate::ext;
use crate::format::{Own, Super};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::prediction::{CrossChecks, Prediction, spread};
use crate::scan::Scan;
use crate::tables::Region;
use crate::witness::{Block, Finds, Witness};

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
    own: Own,
}

/// A superblock or table at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Byte offset in the scanned member.
    pub at: u64,
    /// Index into [`FileSystems::list`].
    pub file_system: usize,
    /// The address that it states of itself; `None` if it does not.
    pub address: Option<u64>,
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
    /// begins at byte `at`. Damaged ones are left out.
    pub fn find(&mut self, window: &[u8], at: u64) -> Vec<Sighting> {
        let mut sightings = Vec::new();
        for from in (0..window.len()).step_by(512) {
            let Some(found) = Super::decode(&window[from..]) else { continue };
            let (address, written) = (found.address(), found.written());
            let checksum = found.identified().checksum;
            let Some(file_system) = self.enter(found) else { continue };
            let at = at + from as u64;
            sightings.push(Sighting { at, file_system, address, checksum, written });
        }
        sightings
    }

    /// The index of the file system that a superblock is of; a new one while there is room.
    fn enter(&mut self, found: Super) -> Option<usize> {
        let Some(index) = self.list.iter().position(|known| found.is_of(&known.own)) else {
            if self.list.len() == FileSystems::MAX {
                return None;
            }
            self.list.push(FileSystem::of(found));
            return Some(self.list.len() - 1);
        };
        let known = &mut self.list[index];
        if found.is_newer(&known.own) {
            known.renew(found);
        }
        Some(index)
    }

    /// Looks for blocks of the known file systems in a window of a member that begins at byte `at`,
    /// a multiple of 512. Windows that cut a block miss it: let them overlap by 64 KiB, or begin
    /// and end at multiples of it.
    pub fn scan(&self, window: &[u8], at: u64, into: &mut Scan) {
        let finds = &mut into.finds;
        for from in (0..window.len()).step_by(512) {
            let rest = &window[from..];
            let place = at + from as u64;
            self.scan_superblock(rest, place, finds);
            for (index, known) in (0..).zip(&self.list) {
                known.own.scan_sector(rest, place, index, finds);
            }
            for half in [0, 256] {
                if rest.len() < half + 256 || !ext::may_be_inode(&rest[half..]) {
                    continue;
                }
                for (index, known) in (0..).zip(&self.list) {
                    known.own.scan_inode(&rest[half..], place + half as u64, index, finds);
                }
            }
        }
    }

    fn scan_superblock(&self, rest: &[u8], at: u64, finds: &mut Finds) {
        let Some(found) = Super::decode(rest) else { return };
        let index = self.list.iter().position(|known| found.is_of(&known.own));
        let Some(index) = index else { return };
        // NTFS's boot sector does not say which of two it is.
        let is_either = matches!(found, Super::Ntfs(_));
        let Some(number) = found.address().or(is_either.then_some(0)) else { return };
        let (file_system, kind) = (index as u32, found.witness_kind());
        finds.block(Block { at, file_system, len: 512, kind, number });
    }

    /// Takes from a scan what addresses and predictions depend on.
    pub fn learn(&mut self, scan: &Scan) {
        for fact in &scan.finds.facts {
            if let Some(known) = self.list.get_mut(fact.file_system as usize) {
                known.own.learn(fact);
            }
        }
    }

    /// Reads the same through a hypothesis: `through` is the file system from its start on. True if
    /// something became known that was not.
    pub fn learn_through(&mut self, file_system: usize, through: &dyn Bytes) -> bool {
        let Some(known) = self.list.get_mut(file_system) else { return false };
        let is_more = known.own.learn_through(through);
        known.regions = known.own.regions().to_vec();
        is_more
    }

    /// The blocks of a scan whose address is known by now. More may be after
    /// [`FileSystems::learn`].
    pub fn witnesses(&self, scan: &Scan) -> Vec<Witness> {
        let witness = |block: &Block| {
            let place = self.list.get(block.file_system as usize)?.own.place(block)?;
            Some(Witness {
                at: block.at,
                len: block.len,
                file_system: block.file_system as usize,
                address: place.address,
                also: place.also,
                weight: if place.strong { 1.0 } else { 0.5 },
                strong: place.strong,
                kind: block.kind,
            })
        };
        scan.blocks().iter().filter_map(witness).collect()
    }

    /// At most `limit` predictions from what was learned, spread over the file system.
    pub fn predictions(&self, file_system: usize, limit: usize) -> Vec<Prediction> {
        let known = self.list.get(file_system);
        let found = known.map(|known| known.own.predictions()).unwrap_or_default();
        numbered(found, file_system, limit)
    }

    /// At most `limit` predictions from what is read through a hypothesis, spread over the file
    /// system: of an undamaged one that is read right, nearly all hold. A wrong hypothesis may give
    /// few, because what they follow from is not there: then [`FileSystems::predictions`] say
    /// more.
    pub fn predictions_through(
        &self,
        file_system: usize,
        through: &dyn Bytes,
        limit: usize,
    ) -> Vec<Prediction> {
        let known = self.list.get(file_system);
        let found = known.map(|known| known.own.predictions_through(through, limit));
        let found = found.unwrap_or_default();
        numbered(found, file_system, limit)
    }

    /// Compares what the file system says twice, at most about `limit` comparisons, read through a
    /// hypothesis.
    pub fn cross_checks(
        &self,
        file_system: usize,
        through: &dyn Bytes,
        limit: usize,
    ) -> CrossChecks {
        let known = self.list.get(file_system);
        known.map(|known| known.own.cross_checks(through, limit)).unwrap_or_default()
    }
}

/// Some predictions of a file system.
fn numbered(found: Vec<Prediction>, file_system: usize, limit: usize) -> Vec<Prediction> {
    let mut found = spread(found, limit);
    found.iter_mut().for_each(|prediction| prediction.file_system = file_system);
    found
}

impl FileSystem {
    fn of(found: Super) -> FileSystem {
        let Identified { kind, label, uuid, bytes, .. } = found.identified();
        let (block, written) = (found.block(), found.written());
        let own = found.into_own();
        let regions = own.regions().to_vec();
        FileSystem { kind, uuid, label, bytes: bytes.unwrap_or(0), block, written, regions, own }
    }

    /// Takes what a newer superblock says.
    fn renew(&mut self, newer: Super) {
        let Identified { kind, label, bytes, .. } = newer.identified();
        (self.kind, self.label, self.bytes) = (kind, label, bytes.unwrap_or(0));
        self.written = newer.written();
        self.own.renew(newer);
        self.regions = self.own.regions().to_vec();
    }
}
