//! Meta blocks: what the 4 KiB blocks behind each of them are, and their checksums.
//!
//! Invariant: a meta block that decodes has the right checksum, is complete, and each of its
//! payloads is understood: what is not understood is not replayed.

use crate::ondisk::{DecodeError, Field, Uuid, crc, fields};
use crate::units::Sector;

/// Bytes of every block, meta or payload.
pub const BLOCK_BYTES: usize = 4096;
/// The same in sectors.
pub const BLOCK_SECTORS: u64 = 8;

const MAGIC_NUMBER: u32 = 0x6433_c509;
const VERSION_NUMBER: u8 = 1;

fields! {
    /// All fields of a meta block.
    pub const META_BLOCK_FIELDS = {
        MAGIC: "magic" at 0, 4;
        CHECKSUM: "checksum" at 4, 4;
        VERSION: "version" at 8, 1;
        PAD_1: "pad1" at 9, 1;
        PAD_2: "pad2" at 10, 2;
        META_SIZE: "meta_size" at 12, 4;
        SEQ: "seq" at 16, 8;
        POSITION: "position" at 24, 8;
        PAYLOADS: "payloads" at 32, 4064;
    }
}

fields! {
    /// The fields that begin a payload; checksums (data, parity) or rows (flush) follow. A flush
    /// has its first row in the place of `location`.
    pub const PAYLOAD_FIELDS = {
        TYPE: "type" at 0, 2;
        FLAGS: "flags" at 2, 2;
        SIZE: "size" at 4, 4;
        LOCATION: "location" at 8, 8;
    }
}

/// Bytes of data's and parity's fields.
const LOCATED_BYTES: usize = 16;
/// Bytes of flush's fields.
const FLUSH_BYTES: usize = 8;

const TYPE_DATA: u16 = 0;
const TYPE_PARITY: u16 = 1;
const TYPE_FLUSH: u16 = 2;

/// The values of `type`, as `docs/format` names them.
pub const PAYLOAD_TYPES: &[(&str, u64)] =
    &[("data", TYPE_DATA as u64), ("parity", TYPE_PARITY as u64), ("flush", TYPE_FLUSH as u64)];

/// What a meta block announces. The blocks of data and parity follow it in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// New data.
    Data {
        /// Array sector of the first block; further ones follow it.
        at: Sector,
        /// The blocks' checksums: at least one.
        checksums: Vec<u32>,
    },
    /// New parity of a row of blocks.
    Parity {
        /// Sector in the members' data areas.
        at: Sector,
        /// Of P, and on RAID 6 of Q.
        checksums: Vec<u32>,
    },
    /// Rows whose data and parity have arrived on the members.
    Flush {
        /// Sectors in the members' data areas.
        rows: Vec<Sector>,
    },
}

impl Payload {
    /// Blocks that follow the meta block.
    pub fn blocks(&self) -> u64 {
        self.checksums().len() as u64
    }

    pub(super) fn checksums(&self) -> &[u32] {
        match self {
            Payload::Data { checksums, .. } | Payload::Parity { checksums, .. } => checksums,
            Payload::Flush { .. } => &[],
        }
    }

    /// Bytes that it takes in the meta block.
    pub fn bytes(&self) -> usize {
        match self {
            Payload::Data { checksums, .. } | Payload::Parity { checksums, .. } => {
                LOCATED_BYTES + checksums.len() * 4
            }
            Payload::Flush { rows } => FLUSH_BYTES + rows.len() * 8,
        }
    }
}

/// A meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaBlock {
    /// One more than the one before it.
    pub seq: u64,
    /// Its position, in sectors from the journal's data offset.
    pub position: u64,
    /// Descriptions of the blocks that follow.
    pub payloads: Vec<Payload>,
}

/// What the checksums of an array's journal start from.
pub fn journal_seed(set_uuid: Uuid) -> u32 {
    crc::of_array(set_uuid)
}

/// The checksum of a block of data or parity.
pub fn block_checksum(seed: u32, block: &[u8]) -> u32 {
    crc::raw(seed, block)
}

impl MetaBlock {
    /// A meta block that announces nothing: a new journal's first one, and the one that follows a
    /// replay.
    pub fn empty(seq: u64, position: u64) -> MetaBlock {
        MetaBlock { seq, position, payloads: Vec::new() }
    }

    /// The meta block at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than 4096 bytes; another magic number or version; a wrong checksum; a payload that is
    /// not complete, of an unknown type, or with flags (unused on disk).
    pub fn decode(bytes: &[u8], seed: u32) -> Result<MetaBlock, DecodeError> {
        let Some(bytes) = bytes.get(..BLOCK_BYTES) else {
            return Err(error(PAYLOADS, format!("{} bytes, a block has 4096", bytes.len())));
        };
        let magic = MAGIC.u32(bytes);
        if magic != MAGIC_NUMBER {
            return Err(error(MAGIC, format!("{magic:#010x}, not {MAGIC_NUMBER:#010x}")));
        }
        let version = VERSION.u8(bytes);
        if version != VERSION_NUMBER {
            return Err(error(VERSION, format!("{version}, not {VERSION_NUMBER}")));
        }
        let (stored, right) = (CHECKSUM.u32(bytes), checksum_of(bytes, seed));
        if stored != right {
            return Err(error(CHECKSUM, format!("{stored:#010x}, the block has {right:#010x}")));
        }
        let size = META_SIZE.u32(bytes) as usize;
        let Some(used) = bytes.get(PAYLOADS.offset..size) else {
            return Err(error(META_SIZE, format!("{size}, not between 32 and 4096")));
        };
        let (seq, position) = (SEQ.u64(bytes), POSITION.u64(bytes));
        let mut payloads = Vec::new();
        let mut rest = used;
        while !rest.is_empty() {
            let at = size - rest.len();
            let (payload, length) = decode_payload(rest).map_err(|(field, problem)| {
                let field = Field { offset: at + field.offset, ..field };
                error(field, problem)
            })?;
            payloads.push(payload);
            rest = &rest[length..];
        }
        Ok(MetaBlock { seq, position, payloads })
    }

    /// The meta block's bytes, with the right checksum.
    ///
    /// # Panics
    /// If the payloads do not fit ([`MetaBlock::meta_size`] above 4096), or one of data or parity
    /// has no blocks.
    pub fn encode(&self, seed: u32) -> Vec<u8> {
        let size = self.meta_size();
        assert!(size <= BLOCK_BYTES, "{size} bytes of payloads");
        let mut bytes = vec![0; BLOCK_BYTES];
        MAGIC.put(&mut bytes, &MAGIC_NUMBER.to_le_bytes());
        VERSION.put(&mut bytes, &[VERSION_NUMBER]);
        META_SIZE.put(&mut bytes, &(size as u32).to_le_bytes());
        SEQ.put(&mut bytes, &self.seq.to_le_bytes());
        POSITION.put(&mut bytes, &self.position.to_le_bytes());
        let mut at = PAYLOADS.offset;
        for payload in &self.payloads {
            encode_payload(payload, &mut bytes[at..at + payload.bytes()]);
            at += payload.bytes();
        }
        let checksum = checksum_of(&bytes, seed);
        CHECKSUM.put(&mut bytes, &checksum.to_le_bytes());
        bytes
    }

    /// Bytes of the block that are used, with its fixed fields.
    pub fn meta_size(&self) -> usize {
        PAYLOADS.offset + self.payloads.iter().map(Payload::bytes).sum::<usize>()
    }

    /// Blocks of payload that follow it.
    pub fn payload_blocks(&self) -> u64 {
        self.payloads.iter().map(Payload::blocks).sum()
    }
}

/// The first payload, and its length.
fn decode_payload(bytes: &[u8]) -> Result<(Payload, usize), (Field, String)> {
    let cut_off = |field: Field| (field, format!("cut off after {} bytes", bytes.len()));
    if bytes.len() < FLUSH_BYTES {
        return Err(cut_off(TYPE));
    }
    let (kind, flags, size) = (TYPE.u16(bytes), FLAGS.u16(bytes), SIZE.u32(bytes));
    if flags != 0 {
        return Err((FLAGS, format!("{flags:#x}, not 0")));
    }
    if kind == TYPE_FLUSH {
        if size % 8 != 0 {
            return Err((SIZE, format!("{size} bytes, not whole rows")));
        }
        let length = FLUSH_BYTES + size as usize;
        let rows = bytes.get(FLUSH_BYTES..length).ok_or_else(|| cut_off(SIZE))?;
        let row = |row: &[u8]| Sector(u64::from_le_bytes(row.try_into().expect("chunks of 8")));
        return Ok((Payload::Flush { rows: rows.chunks_exact(8).map(row).collect() }, length));
    }
    if ![TYPE_DATA, TYPE_PARITY].contains(&kind) {
        return Err((TYPE, format!("{kind}, none of 0, 1, 2")));
    }
    if size == 0 || !u64::from(size).is_multiple_of(BLOCK_SECTORS) {
        return Err((SIZE, format!("{size} sectors, not whole blocks")));
    }
    let length = LOCATED_BYTES + (u64::from(size) / BLOCK_SECTORS) as usize * 4;
    let checksums = bytes.get(LOCATED_BYTES..length).ok_or_else(|| cut_off(SIZE))?;
    let checksum = |sum: &[u8]| u32::from_le_bytes(sum.try_into().expect("chunks of 4"));
    let checksums = checksums.chunks_exact(4).map(checksum).collect();
    let at = Sector(LOCATION.u64(bytes));
    let payload = match kind {
        TYPE_DATA => Payload::Data { at, checksums },
        _ => Payload::Parity { at, checksums },
    };
    Ok((payload, length))
}

fn encode_payload(payload: &Payload, bytes: &mut [u8]) {
    let (kind, size) = match payload {
        Payload::Data { checksums, .. } => (TYPE_DATA, checksums.len() * BLOCK_SECTORS as usize),
        Payload::Parity { checksums, .. } => {
            (TYPE_PARITY, checksums.len() * BLOCK_SECTORS as usize)
        }
        Payload::Flush { rows } => (TYPE_FLUSH, rows.len() * 8),
    };
    TYPE.put(bytes, &kind.to_le_bytes());
    SIZE.put(bytes, &(size as u32).to_le_bytes());
    match payload {
        Payload::Data { at, checksums } | Payload::Parity { at, checksums } => {
            assert!(!checksums.is_empty(), "a payload without blocks");
            LOCATION.put(bytes, &at.0.to_le_bytes());
            for (place, sum) in bytes[LOCATED_BYTES..].chunks_exact_mut(4).zip(checksums) {
                place.copy_from_slice(&sum.to_le_bytes());
            }
        }
        Payload::Flush { rows } => {
            for (place, row) in bytes[FLUSH_BYTES..].chunks_exact_mut(8).zip(rows) {
                place.copy_from_slice(&row.0.to_le_bytes());
            }
        }
    }
}

/// The checksum of a meta block, its own field counted as 0.
fn checksum_of(block: &[u8], seed: u32) -> u32 {
    let end = CHECKSUM.offset + CHECKSUM.size;
    let register = crc::raw(crc::raw(seed, &block[..CHECKSUM.offset]), &[0; 4]);
    crc::raw(register, &block[end..BLOCK_BYTES])
}

/// An error at a field of a meta block or, with the offset moved, of one of its payloads.
pub(super) fn error(field: Field, problem: String) -> DecodeError {
    DecodeError {
        structure: "journal",
        field: field.name,
        offset: field.offset,
        problem: problem.into(),
    }
}

/// A meta block that is right in itself, but not the next one.
pub(super) fn not_next(block: &MetaBlock, position: u64, seq: Option<u64>) -> Option<DecodeError> {
    if block.position != position {
        return Some(error(POSITION, format!("{}, it is at {position}", block.position)));
    }
    let seq = seq.filter(|&seq| seq != block.seq)?;
    Some(error(SEQ, format!("{}, not {seq}", block.seq)))
}

/// A walk that would go around the ring.
pub(super) fn longer_than_ring(blocks: u64, left: u64) -> DecodeError {
    error(META_SIZE, format!("{blocks} blocks, {left} of the ring are left"))
}
