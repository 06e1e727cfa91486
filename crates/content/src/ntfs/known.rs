//! What is known of one NTFS, and its blocks in windows.
//!
//! A record of the MFT states its number; where that lies, the first record says, which describes
//! the MFT itself. The first records have a copy elsewhere.

use std::collections::BTreeMap;

use super::boot::Boot;
use super::record::{self, Attribute, DATA, INDEX_ALLOCATION};
use super::runs::Runs;
use crate::bytes::{Bytes, take};
use crate::field::{le16, le32, le64};
use crate::witness::{Block, Fact, FactKind, Finds, Place, WitnessKind};

/// Records of the MFT that are there before it has to be extended: their place follows from the
/// boot sector.
const FIRST_RECORDS: u64 = 64;
/// Records in the copy, which fill at least a cluster.
const COPIED_RECORDS: u64 = 4;
/// Records that are kept.
const RECORDS_MAX: usize = 1 << 15;

/// A volume and what was learned of it.
#[derive(Clone, Debug)]
pub struct Ntfs {
    pub boot: Boot,
    /// The runs of the MFT.
    pub mft: Option<Runs>,
    /// What records say of files and directories.
    pub records: BTreeMap<u64, Entry>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The data of a file.
    File(Runs),
    /// The index of a directory.
    Directory(Runs),
}

impl Ntfs {
    /// A volume of which only the boot sector is known.
    pub fn new(boot: Boot) -> Ntfs {
        Ntfs { boot, mft: None, records: BTreeMap::new() }
    }

    /// Whether another boot sector is of the same volume.
    pub fn is(&self, other: &Boot) -> bool {
        self.boot == *other
    }

    /// Looks at a place, a multiple of 512 bytes; `rest` is the window from there on.
    pub fn scan_sector(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        if rest.starts_with(b"FILE") {
            self.scan_record(rest, at, index, finds);
        } else if rest.starts_with(b"INDX")
            && let Some(number) = of_directory(&self.boot, rest)
        {
            let (kind, len) = (WitnessKind::Index, 512);
            finds.block(Block { at, file_system: index, len, kind, number });
        }
    }

    fn scan_record(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        let len = self.boot.record;
        let Some(number) = stated(&self.boot, rest) else { return };
        let Some(block) = rest.get(..len as usize) else { return };
        let mut block = block.to_vec();
        if !record::undo_fix_up(&mut block) {
            return;
        }
        let kind = WitnessKind::FileRecord;
        finds.block(Block { at, file_system: index, len, kind, number });
        let names_others = |attribute: Attribute<'_>| {
            !attribute.resident && matches!(attribute.kind, DATA | INDEX_ALLOCATION)
        };
        if record::attributes(&block).any(names_others) {
            finds.fact(index, FactKind::FileRecord, number, &block);
        }
    }

    /// Takes a fact.
    pub fn learn(&mut self, fact: &Fact) {
        if fact.kind == FactKind::FileRecord {
            self.learn_record(fact.number, &fact.bytes);
        }
    }

    fn learn_record(&mut self, number: u64, record: &[u8]) {
        let Some(entry) = self.entry(record) else { return };
        match entry {
            // The copy of the first records has the same bytes; an old one may be shorter.
            Entry::File(runs) if number == 0 => {
                let longer = self.mft.take().filter(|known| known.bytes >= runs.bytes);
                self.mft = Some(longer.unwrap_or(runs));
            }
            entry if self.records.len() < RECORDS_MAX => drop(self.records.insert(number, entry)),
            _ => {}
        }
    }

    /// What a record whose fix-up is undone says; `None` if it is not in use or an extension.
    pub fn entry(&self, record: &[u8]) -> Option<Entry> {
        let (flags, base) = (le16(record, 22), le64(record, 32));
        if flags & 1 == 0 || base != 0 {
            return None;
        }
        let wanted = if flags & 2 != 0 { INDEX_ALLOCATION } else { DATA };
        // The data without a name, and the index of names.
        let is = |attribute: &Attribute<'_>| {
            attribute.kind == wanted && (wanted == INDEX_ALLOCATION || !attribute.named)
        };
        let attribute = record::attributes(record).find(is)?;
        let runs = Runs::of(&self.boot, &attribute)?;
        Some(if flags & 2 != 0 { Entry::Directory(runs) } else { Entry::File(runs) })
    }

    /// Reads the record of the MFT through a hypothesis; true if its runs are new.
    pub fn learn_through(&mut self, through: &dyn Bytes) -> bool {
        if self.mft.is_some() {
            return false;
        }
        if let Some(record) = self.record(through, 0) {
            self.learn_record(0, &record);
        }
        self.mft.is_some()
    }

    /// A record read through a hypothesis, its fix-up undone.
    pub fn record(&self, through: &dyn Bytes, number: u64) -> Option<Vec<u8>> {
        let at = self.record_address(number)?;
        let mut bytes = take(through, at, self.boot.record as usize)?;
        let is = stated(&self.boot, &bytes) == Some(number) && record::undo_fix_up(&mut bytes);
        is.then_some(bytes)
    }

    /// Number of records, as far as it is known.
    pub fn record_count(&self) -> u64 {
        let bytes = self.mft.as_ref().map_or(0, |mft| mft.bytes);
        (bytes / u64::from(self.boot.record)).max(FIRST_RECORDS.min(27))
    }

    /// The byte address of a record.
    pub fn record_address(&self, number: u64) -> Option<u64> {
        let at = number.checked_mul(self.boot.record.into())?;
        match &self.mft {
            Some(mft) if at < mft.bytes => mft.address(&self.boot, at),
            Some(_) => None,
            None if number < FIRST_RECORDS => {
                (self.boot.mft * u64::from(self.boot.cluster)).checked_add(at)
            }
            None => None,
        }
    }

    /// Where a block that was found must stand.
    pub fn place(&self, block: &Block) -> Option<Place> {
        match block.kind {
            WitnessKind::Superblock => {
                let last = self.boot.bytes() - u64::from(self.boot.sector);
                Some(Place { address: 0, also: Some(last), strong: true })
            }
            WitnessKind::FileRecord => {
                let address = self.record_address(block.number)?;
                let copied = u64::from(self.boot.cluster / self.boot.record).max(COPIED_RECORDS);
                let copy = block.number < copied;
                let mirror = self.boot.mft_mirror * u64::from(self.boot.cluster);
                let also = mirror + block.number * u64::from(self.boot.record);
                Some(Place { address, also: copy.then_some(also), strong: true })
            }
            WitnessKind::Index => match self.records.get(&block.number)? {
                Entry::Directory(runs) => runs.address(&self.boot, 0).map(Place::at),
                Entry::File(_) => None,
            },
            _ => None,
        }
    }
}

/// The number that a record states; `rest` begins with it. Records from before Windows XP state
/// none.
pub fn stated(boot: &Boot, rest: &[u8]) -> Option<u64> {
    let head = rest.first_chunk::<64>()?;
    let is = head.starts_with(b"FILE")
        && le16(head, 4) == 48
        && le32(head, 28) == boot.record
        && le32(head, 24) <= boot.record
        && le16(head, 22) & !0xf == 0;
    let (number, in_use) = (le32(head, 44), le16(head, 22) & 1 != 0);
    // mkntfs leaves reserved records without their number.
    (is && (number != 0 || in_use)).then(|| number.into())
}

/// The directory of which this is the first index block: its first entry names its parent.
pub fn of_directory(boot: &Boot, rest: &[u8]) -> Option<u64> {
    let head = rest.first_chunk::<512>()?;
    let (first, used) = (24 + le32(head, 24) as usize, le32(head, 28));
    let is_first = head.starts_with(b"INDX")
        && le64(head, 16) == 0
        && le16(head, 6) as u32 == boot.index / 512 + 1
        && used <= boot.index
        && first <= 512 - 24;
    // Not the entry that ends the index.
    if !is_first || le16(head, first + 12) & 2 != 0 || le16(head, first + 10) < 66 {
        return None;
    }
    let parent = le64(head, first + 16) & ((1 << 48) - 1);
    (parent != 0 && parent <= u64::from(u32::MAX)).then_some(parent)
}
