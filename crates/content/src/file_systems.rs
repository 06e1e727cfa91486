//! The file systems and tables of which pieces were found.

use crate::bytes::Bytes;
use crate::ext;
use crate::format::{Own, Super};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::prediction::{CrossChecks, Prediction, spread};
use crate::scan::Scan;
use crate::tables::{self, Region, Table};
use crate::volume_groups;
use crate::witness::{Block, Finds, Witness, WitnessKind};

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

/// Blocks with one claim that are counted: zeroes in place of a file system can be many.
const SHARES_MAX: usize = 64;

/// All file systems and tables found on a set of members. An index, once given, stays valid.
#[derive(Clone, Debug, Default)]
pub struct FileSystems {
    list: Vec<FileSystem>,
    /// Physical volumes of groups of which no label was seen yet.
    physical: Vec<Table>,
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
            if let Some(area) = volume_groups::decode(&window[from..]) {
                sightings.extend(self.enter_area(area, at + from as u64));
                continue;
            }
            let Some(found) = Super::decode(&window[from..]) else { continue };
            let (address, written) = (found.address(), found.written());
            let checksum = found.identified().checksum;
            let Some(file_system) = self.enter(found) else { continue };
            let at = at + from as u64;
            sightings.push(Sighting { at, file_system, address, checksum, written });
        }
        sightings
    }

    /// Takes the volumes of a metadata area of LVM; a sighting if it is clear of which physical
    /// volume it is.
    fn enter_area(&mut self, area: volume_groups::Area, at: u64) -> Option<Sighting> {
        let is_only = area.tables.len() == 1;
        for table in area.tables.iter() {
            let found = tables::Found { table: table.clone(), address: 0, checksum: true };
            let found = Super::Table(found);
            if is_only || self.list.iter().any(|known| found.is_of(&known.own)) {
                self.enter(found);
            } else if self.physical.len() < FileSystems::MAX {
                self.physical.push(table.clone());
            }
        }
        let (file_system, address) = (self.index_of_area(&area)?, Some(area.address));
        Some(Sighting { at, file_system, address, checksum: Checksum::Good, written: None })
    }

    /// The one physical volume of a group that is known, which the area must be of.
    fn index_of_area(&self, area: &volume_groups::Area) -> Option<usize> {
        let is_of = |known: &FileSystem| match &known.own {
            Own::Table(own) => area.tables.iter().any(|table| own.is(table)),
            _ => false,
        };
        let mut known = self.list.iter().enumerate().filter(|(_, known)| is_of(known));
        let (index, _) = known.next()?;
        known.next().is_none().then_some(index)
    }

    /// The index of the file system that a superblock is of; a new one while there is room.
    fn enter(&mut self, found: Super) -> Option<usize> {
        let Some(index) = self.list.iter().position(|known| found.is_of(&known.own)) else {
            if self.list.len() == FileSystems::MAX {
                return None;
            }
            self.list.push(FileSystem::of(found));
            self.learn_area();
            return Some(self.list.len() - 1);
        };
        let known = &mut self.list[index];
        if found.is_newer(&known.own) {
            known.renew(found);
        }
        Some(index)
    }

    /// Gives the last of the list what an area that was seen before it says of it.
    fn learn_area(&mut self) {
        let Some(FileSystem { own: Own::Table(own), regions, .. }) = self.list.last_mut() else {
            return;
        };
        for table in self.physical.iter().filter(|table| own.is(table)).cloned().collect::<Vec<_>>()
        {
            own.renew(table);
        }
        *regions = own.regions.clone();
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
        if let Some(area) = volume_groups::decode(rest) {
            if let Some(index) = self.index_of_area(&area) {
                let (file_system, kind) = (index as u32, WitnessKind::Table);
                finds.block(Block { at, file_system, len: 512, kind, number: area.address });
            }
            return;
        }
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
    /// [`FileSystems::learn`]. One that claims the same place as others of this scan shares its
    /// weight with them: all but one are copies, as a journal has them.
    pub fn witnesses(&self, scan: &Scan) -> Vec<Witness> {
        let claim = |block: &Block| (block.file_system, block.kind, block.number, block.at);
        let mut claims: Vec<_> = scan.blocks().iter().map(claim).collect();
        claims.sort_unstable();
        claims.dedup();
        let share = |block: &Block, places: usize| {
            let (file_system, kind, number, _) = claim(block);
            let from = claims.partition_point(|it| *it < (file_system, kind, number, 0));
            let same = claims[from..].iter();
            let same = same.take_while(|it| (it.0, it.1, it.2) == (file_system, kind, number));
            places as f32 / same.take(SHARES_MAX).count().max(places) as f32
        };
        let witness = |block: &Block| {
            let place = self.list.get(block.file_system as usize)?.own.place(block)?;
            let share = share(block, 1 + usize::from(place.also.is_some()));
            Some(Witness {
                at: block.at,
                len: block.len,
                file_system: block.file_system as usize,
                address: place.address,
                also: place.also,
                weight: if place.strong { share } else { share / 2.0 },
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
        if let Own::Table(own) = &self.own {
            self.bytes = own.bytes;
        }
        self.regions = self.own.regions().to_vec();
    }
}
