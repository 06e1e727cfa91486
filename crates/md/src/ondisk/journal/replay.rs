//! Replay of a journal: the walk along the ring, and the writes to apply.
//!
//! ```text
//!   ring  | ... |meta 7|D|D|P|meta 8|D|meta 9|flush|meta 10 D ...|  old or nothing  |
//!                ^ tail                                           ^ end
//! ```
//!
//! Data and parity of a row together are a set, written to the members as they are. Data alone is
//! newer than what the members have (write-back): it is the array's contents, and parity must be
//! made from it. A row that was flushed is forgotten.
//!
//! Invariant: only blocks with right checksums are in the result; a walk reads no more blocks than
//! the ring has. Rules: docs/format/journal.md, Replay.

use std::collections::BTreeMap;
use std::fmt;

use super::meta_block::{
    BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload, block_checksum, journal_seed, longer_than_ring,
    not_next,
};
use crate::geometry::{Geometry, Kind, Parity};
use crate::level::Level;
use crate::ondisk::{DecodeError, Uuid};
use crate::units::{MemberIdx, Sector};

/// md's increment of the sequence number after a replay, so that old meta blocks do not match.
pub const SEQ_STEP_AFTER_REPLAY: u64 = 10000;

/// The journal of an array.
#[derive(Clone, Copy, Debug)]
pub struct Journal<'a> {
    parity: &'a Parity,
    seed: u32,
    ring_sectors: u64,
}

/// Why a journal cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalRefused {
    /// Only RAID 4, 5 and 6 have one.
    Level(Level),
    /// No room for a meta block and a block behind it.
    TooSmall {
        /// Sectors of the journal's data area.
        sectors: u64,
    },
}

impl fmt::Display for JournalRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalRefused::Level(level) => {
                write!(f, "journal: raid4, raid5 and raid6 only, the array is {level}")
            }
            JournalRefused::TooSmall { sectors } => write!(f, "journal: only {sectors} sectors"),
        }
    }
}

impl std::error::Error for JournalRefused {}

/// A block of the journal that belongs on a member. 4 KiB, as all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberWrite {
    /// The member.
    pub member: MemberIdx,
    /// Position on it, in sectors of its data area.
    pub sector: Sector,
    /// Position in the journal, in sectors from its data offset.
    pub journal_sector: u64,
}

/// A block that is newer than on the members; the parity of its row does not include it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewestData {
    /// Array sector.
    pub at: Sector,
    /// Position in the journal, in sectors from its data offset.
    pub journal_sector: u64,
}

/// An ignored meta block: its blocks do not match its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Sequence number of the meta block.
    pub seq: u64,
    /// Its position, in sectors from the journal's data offset.
    pub position: u64,
    /// The block that is wrong, or the payload.
    pub problem: IgnoredBecause,
}

/// Why a meta block is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredBecause {
    /// The block at this position has another checksum.
    Checksum {
        /// Sectors from the journal's data offset.
        position: u64,
    },
    /// A payload's place is not in this array, or not of its kind.
    Location {
        /// As given.
        at: Sector,
    },
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Writes to members, sorted; each place once, with its newest contents. A
    /// missing member is skipped by the caller that writes.
    pub writes: Vec<MemberWrite>,
    /// The newest contents, sorted; each block once. They override `writes`.
    pub newest: Vec<NewestData>,
    /// Number of valid meta blocks from the tail, including ignored ones.
    pub meta_blocks: u64,
    /// The ignored ones. A row that depends on one of them may stay inconsistent.
    pub ignored: Vec<Ignored>,
    /// Where the walk ended: there the meta block that empties the journal is written.
    pub end: u64,
    /// The sequence number that was expected there; `None`: there was no meta block at the tail.
    pub next_seq: Option<u64>,
    /// Why the walk ended there.
    pub stop: DecodeError,
}

impl Replay {
    /// The meta block that follows once all is written and flushed; only when it is safe may the
    /// superblock's tail be moved to its position. Without any meta block there is no sequence to
    /// be continued: `seq` is then the caller's.
    pub fn after(&self, seq: u64) -> MetaBlock {
        let next = self.next_seq.map_or(seq, |next| next.wrapping_add(SEQ_STEP_AFTER_REPLAY));
        MetaBlock::empty(next, self.end)
    }

    /// Where the newest contents of the block at array sector `at` are, if the journal has it.
    pub fn newest_at(&self, at: Sector) -> Option<u64> {
        let index = self.newest.binary_search_by_key(&at, |newest| newest.at).ok()?;
        Some(self.newest[index].journal_sector)
    }

    /// Where the contents of a member's block are, if the journal has a write for it.
    pub fn write_at(&self, member: MemberIdx, sector: Sector) -> Option<u64> {
        let key = |write: &MemberWrite| (write.member, write.sector);
        let index = self.writes.binary_search_by_key(&(member, sector), key).ok()?;
        Some(self.writes[index].journal_sector)
    }
}

/// What the journal has of one row of blocks. Positions in the journal.
#[derive(Default)]
struct CachedRow {
    /// By data index.
    data: BTreeMap<u16, u64>,
    /// P, then Q.
    parity: Vec<u64>,
}

#[derive(Default)]
struct Cache {
    /// By member sector.
    rows: BTreeMap<Sector, CachedRow>,
    writes: BTreeMap<(MemberIdx, Sector), u64>,
}

impl<'a> Journal<'a> {
    /// The journal of an array on a device with `data_sectors` behind its data offset.
    ///
    /// # Errors
    /// The level has no journal, or the device no room.
    pub fn new(
        geometry: &'a Geometry,
        set_uuid: Uuid,
        data_sectors: u64,
    ) -> Result<Journal<'a>, JournalRefused> {
        let Kind::Parity(parity) = geometry.kind() else {
            return Err(JournalRefused::Level(geometry.level()));
        };
        let ring_sectors = data_sectors / BLOCK_SECTORS * BLOCK_SECTORS;
        if ring_sectors < 2 * BLOCK_SECTORS {
            return Err(JournalRefused::TooSmall { sectors: data_sectors });
        }
        Ok(Journal { parity, seed: journal_seed(set_uuid), ring_sectors })
    }

    /// Sectors of the ring.
    pub fn ring_sectors(&self) -> u64 {
        self.ring_sectors
    }

    /// What checksums start from.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Where the walk begins: the superblock's tail, or 0 if that is no position of the ring.
    pub fn start(&self, tail: u64) -> u64 {
        if tail < self.ring_sectors && tail.is_multiple_of(BLOCK_SECTORS) { tail } else { 0 }
    }

    /// The position `blocks` further on in the ring.
    pub fn advance(&self, position: u64, blocks: u64) -> u64 {
        let ring = u128::from(self.ring_sectors);
        let at = u128::from(position) + u128::from(blocks) * u128::from(BLOCK_SECTORS);
        (at % ring) as u64
    }

    /// Walks the ring from the superblock's `tail`. `read(sector, buffer)` fills the buffer from
    /// that sector of the journal's data area.
    ///
    /// A journal without a meta block at its tail gives an empty result with `next_seq` `None`: md
    /// reinitializes such a journal, and its contents are lost; a rescue tool should report this.
    ///
    /// # Errors
    /// What `read` returned.
    pub fn replay<E>(
        &self,
        tail: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Replay, E> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut cache = Cache::default();
        let mut ignored = Vec::new();
        let (mut at, mut seq, mut meta_blocks) = (self.start(tail), None, 0);
        let mut left = self.ring_sectors / BLOCK_SECTORS;
        let stop = loop {
            read(at, &mut block)?;
            let meta = match MetaBlock::decode(&block, self.seed) {
                Ok(meta) => meta,
                Err(error) => break error,
            };
            if let Some(error) = not_next(&meta, at, seq) {
                break error;
            }
            let length = 1 + meta.payload_blocks();
            if length > left {
                break longer_than_ring(length, left);
            }
            match self.wrong_payload(&meta, &mut block, &mut read)? {
                Some(problem) => ignored.push(Ignored { seq: meta.seq, position: at, problem }),
                None => self.remember(&meta, &mut cache),
            }
            left -= length;
            at = self.advance(at, length);
            seq = Some(meta.seq.wrapping_add(1));
            meta_blocks += 1;
            if left == 0 {
                break longer_than_ring(1, left);
            }
        };
        let (writes, newest) = cache.finish(self.parity);
        Ok(Replay { writes, newest, meta_blocks, ignored, end: at, next_seq: seq, stop })
    }

    /// What is wrong with a meta block's payloads, if anything is. Uses `block` to read into.
    fn wrong_payload<E>(
        &self,
        meta: &MetaBlock,
        block: &mut [u8],
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<IgnoredBecause>, E> {
        let mut position = self.advance(meta.position, 1);
        for payload in &meta.payloads {
            if let Some(at) = self.misplaced(payload) {
                return Ok(Some(IgnoredBecause::Location { at }));
            }
            for &checksum in payload.checksums() {
                read(position, block)?;
                if block_checksum(self.seed, block) != checksum {
                    return Ok(Some(IgnoredBecause::Checksum { position }));
                }
                position = self.advance(position, 1);
            }
        }
        Ok(None)
    }

    /// The place of a payload, if this array has no such place.
    fn misplaced(&self, payload: &Payload) -> Option<Sector> {
        let used = self.parity.stripes() * self.parity.chunk_sectors();
        let (at, blocks, end) = match payload {
            Payload::Data { at, checksums } => {
                (*at, checksums.len() as u64, used * self.parity.data_disks() as u64)
            }
            Payload::Parity { at, checksums } => {
                if checksums.len() != if self.parity.has_q() { 2 } else { 1 } {
                    return Some(*at);
                }
                (*at, 1, used)
            }
            // Forgetting a row that is not there does nothing.
            Payload::Flush { .. } => return None,
        };
        let fits = at.0 < end && blocks * BLOCK_SECTORS <= end - at.0;
        (!fits || !at.0.is_multiple_of(BLOCK_SECTORS)).then_some(at)
    }

    /// Takes a meta block's payloads into the rows, in order.
    fn remember(&self, meta: &MetaBlock, cache: &mut Cache) {
        let mut position = self.advance(meta.position, 1);
        for payload in &meta.payloads {
            match payload {
                Payload::Flush { rows } => {
                    rows.iter().for_each(|&row| cache.forget(self.parity, row));
                }
                Payload::Parity { at, checksums } => {
                    let row = cache.rows.entry(*at).or_default();
                    row.parity.clear();
                    for _ in checksums {
                        row.parity.push(position);
                        position = self.advance(position, 1);
                    }
                }
                Payload::Data { at, checksums } => {
                    for block in 0..checksums.len() as u64 {
                        let pos = self.parity.locate(*at + block * BLOCK_SECTORS);
                        let sector = self.parity.member_sector(pos.stripe, pos.offset);
                        cache.add_data(self.parity, sector, pos.index, position);
                        position = self.advance(position, 1);
                    }
                }
            }
        }
    }
}

impl Cache {
    fn add_data(&mut self, parity: &Parity, sector: Sector, index: u16, position: u64) {
        // Data behind a row's parity begins a new set; the one before it is complete.
        if self.rows.get(&sector).is_some_and(|row| !row.parity.is_empty()) {
            let complete = self.rows.remove(&sector).expect("it was just there");
            self.write(parity, sector, complete);
        }
        self.rows.entry(sector).or_default().data.insert(index, position);
    }

    /// All that came before of this row is on the members, also sets that newer ones replaced: they
    /// must not be written over what came later.
    fn forget(&mut self, parity: &Parity, sector: Sector) {
        self.rows.remove(&sector);
        let members = parity.row(parity.row_of(sector).0).role.len() as u16;
        for member in 0..members {
            self.writes.remove(&(MemberIdx(member), sector));
        }
    }

    /// A set goes to the members. Parity alone does not: its data was flushed before, and so was
    /// it.
    fn write(&mut self, parity: &Parity, sector: Sector, set: CachedRow) {
        if set.data.is_empty() {
            return;
        }
        let row = parity.row(parity.row_of(sector).0);
        for (index, position) in set.data {
            self.writes.insert((row.data[usize::from(index)], sector), position);
        }
        for (member, position) in [Some(row.p), row.q].into_iter().flatten().zip(set.parity) {
            self.writes.insert((member, sector), position);
        }
    }

    fn finish(mut self, parity: &Parity) -> (Vec<MemberWrite>, Vec<NewestData>) {
        let mut newest = Vec::new();
        for (sector, set) in std::mem::take(&mut self.rows) {
            if !set.parity.is_empty() {
                self.write(parity, sector, set);
                continue;
            }
            let (stripe, offset) = parity.row_of(sector);
            newest.extend(set.data.into_iter().map(|(index, journal_sector)| NewestData {
                at: parity.array_sector(stripe, index, offset),
                journal_sector,
            }));
        }
        newest.sort_unstable();
        let write =
            |((member, sector), journal_sector)| MemberWrite { member, sector, journal_sector };
        (self.writes.into_iter().map(write).collect(), newest)
    }
}
