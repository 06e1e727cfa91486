//! The file systems and tables of which pieces were found.

use crate::bytes::Bytes;
use crate::ext::{self, Ext};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::prediction::{CrossChecks, Prediction, spread};
use crate::scan::Scan;
use crate::witness::{Block, Fact, Finds, Place, Witness, WitnessKind};
use crate::xfs::{self, Xfs};

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

/// What each format has of its own.
#[derive(Clone, Debug)]
enum Own {
    Ext(Box<Ext>),
    Xfs(Box<Xfs>),
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
    /// The address that it states of itself; `None` if it does not.
    pub address: Option<u64>,
    /// Whether its own checksum holds.
    pub checksum: Checksum,
    /// When it was written, in seconds since 1970, if it says so. Of mirrors, the older is stale.
    pub written: Option<u64>,
}

/// A superblock of any format.
enum Super {
    Ext(ext::Superblock),
    /// With the group, which the next sector states.
    Xfs(xfs::Superblock, Option<u32>),
}

impl Super {
    /// Decodes the one that begins at the start of `rest`. `None` also if it is damaged.
    fn decode(rest: &[u8]) -> Option<Super> {
        let found = if rest.get(56..58) == Some(&[0x53, 0xef]) {
            Super::Ext(ext::Superblock::decode(rest)?)
        } else if rest.starts_with(b"XFSB") {
            let found = xfs::Superblock::decode(rest)?;
            let group = found.group(rest);
            Super::Xfs(found, group)
        } else {
            return None;
        };
        let identified = found.identified();
        let counts = identified.checksum != Checksum::Bad && identified.kind != Kind::ExtJournal;
        counts.then_some(found)
    }

    fn identified(&self) -> Identified {
        match self {
            Super::Ext(found) => found.identified(),
            Super::Xfs(found, _) => found.identified(),
        }
    }

    fn address(&self) -> Option<u64> {
        match self {
            Super::Ext(found) => Some(found.address()),
            Super::Xfs(found, group) => group.map(|group| u64::from(group) * found.group_bytes()),
        }
    }

    fn written(&self) -> Option<u64> {
        match self {
            Super::Ext(found) => found.written,
            Super::Xfs(..) => None,
        }
    }

    /// Whether it is of a known file system.
    fn is_of(&self, known: &FileSystem) -> bool {
        match (self, &known.own) {
            (Super::Ext(found), Own::Ext(own)) => own.is(found),
            (Super::Xfs(found, _), Own::Xfs(own)) => own.is(found),
            _ => false,
        }
    }

    fn into_file_system(self) -> FileSystem {
        let identified = self.identified();
        let (block, own) = match self {
            Super::Ext(ref found) => (found.block, Own::Ext(Box::new(Ext::new(found.clone())))),
            Super::Xfs(ref found, _) => (found.block, Own::Xfs(Box::new(Xfs::new(found.clone())))),
        };
        FileSystem {
            kind: identified.kind,
            uuid: identified.uuid,
            label: identified.label,
            bytes: identified.bytes.unwrap_or(0),
            block,
            written: self.written(),
            regions: Vec::new(),
            own,
        }
    }
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
        let Some(index) = self.list.iter().position(|known| found.is_of(known)) else {
            if self.list.len() == FileSystems::MAX {
                return None;
            }
            self.list.push(found.into_file_system());
            return Some(self.list.len() - 1);
        };
        let known = &mut self.list[index];
        if found.written() > known.written {
            let newer = found.into_file_system();
            known.renew(newer);
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
            for (index, known) in self.list.iter().enumerate() {
                known.scan_sector(rest, place, index as u32, finds);
            }
            for half in [0, 256] {
                if rest.len() >= half + 256 && ext::may_be_inode(&rest[half..]) {
                    for (index, known) in self.list.iter().enumerate() {
                        let Own::Ext(own) = &known.own else { continue };
                        own.scan_inode(&rest[half..], place + half as u64, index as u32, finds);
                    }
                }
            }
        }
    }

    fn scan_superblock(&self, rest: &[u8], at: u64, finds: &mut Finds) {
        let Some(found) = Super::decode(rest) else { return };
        let Some(number) = found.address() else { return };
        let Some(index) = self.list.iter().position(|known| found.is_of(known)) else { return };
        let (file_system, kind) = (index as u32, WitnessKind::Superblock);
        finds.block(Block { at, file_system, len: 512, kind, number });
    }

    /// Takes from a scan what addresses and predictions depend on.
    pub fn learn(&mut self, scan: &Scan) {
        for fact in &scan.finds.facts {
            if let Some(known) = self.list.get_mut(fact.file_system as usize) {
                known.learn(fact);
            }
        }
    }

    /// Reads the same through a hypothesis: `through` is the file system from its start on. True if
    /// something became known that was not.
    pub fn learn_through(&mut self, file_system: usize, through: &dyn Bytes) -> bool {
        match self.list.get_mut(file_system).map(|known| &mut known.own) {
            Some(Own::Ext(own)) => own.learn_through(through),
            Some(Own::Xfs(_)) | None => false,
        }
    }

    /// The blocks of a scan whose address is known by now. More may be after
    /// [`FileSystems::learn`].
    pub fn witnesses(&self, scan: &Scan) -> Vec<Witness> {
        let witness = |block: &Block| {
            let place = self.list.get(block.file_system as usize)?.place(block)?;
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
        let found = match self.list.get(file_system).map(|known| &known.own) {
            Some(Own::Ext(own)) => own.predictions(),
            Some(Own::Xfs(own)) => own.predictions(),
            None => Vec::new(),
        };
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
        let found = match self.list.get(file_system).map(|known| &known.own) {
            Some(Own::Ext(own)) => own.predictions_through(through, limit),
            Some(Own::Xfs(own)) => own.predictions_through(through, limit),
            None => Vec::new(),
        };
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
        match self.list.get(file_system).map(|known| &known.own) {
            Some(Own::Ext(own)) => own.cross_checks(through, limit),
            Some(Own::Xfs(own)) => own.cross_checks(through, limit),
            None => CrossChecks::default(),
        }
    }
}

/// Some predictions of a file system.
fn numbered(found: Vec<Prediction>, file_system: usize, limit: usize) -> Vec<Prediction> {
    let mut found = spread(found, limit);
    found.iter_mut().for_each(|prediction| prediction.file_system = file_system);
    found
}

impl FileSystem {
    /// Takes what a newer superblock says.
    fn renew(&mut self, newer: FileSystem) {
        match (&mut self.own, newer.own) {
            (Own::Ext(own), Own::Ext(newer)) => own.superblock = newer.superblock,
            (Own::Xfs(own), Own::Xfs(newer)) => own.superblock = newer.superblock,
            _ => {}
        }
        self.kind = newer.kind;
        (self.label, self.bytes, self.written) = (newer.label, newer.bytes, newer.written);
    }

    fn scan_sector(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        match &self.own {
            Own::Ext(own) => own.scan_sector(rest, at, index, finds),
            Own::Xfs(own) => own.scan_sector(rest, at, index, finds),
        }
    }

    fn learn(&mut self, fact: &Fact) {
        match &mut self.own {
            Own::Ext(own) => own.learn(fact),
            Own::Xfs(own) => own.learn(fact),
        }
    }

    fn place(&self, block: &Block) -> Option<Place> {
        match &self.own {
            Own::Ext(own) => own.place(block),
            Own::Xfs(own) => own.place(block),
        }
    }
}
