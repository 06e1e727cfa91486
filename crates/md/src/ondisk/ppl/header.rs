//! The header of one log: the array, the generation, and the writes in flight.
//!
//! Invariant: a header that decodes has a right checksum and at most [`ENTRIES_MAX`] entries. Its
//! entries are not judged here: that takes the geometry, see `recovery`.

use crate::ondisk::{DecodeError, Field, Uuid, crc, fields};

/// Bytes of a header.
pub const PPL_HEADER_BYTES: usize = 4096;
/// The same in sectors.
pub const PPL_HEADER_SECTORS: u64 = 8;
/// Most entries of a log.
pub const ENTRIES_MAX: usize = 148;
const ENTRY_BYTES: usize = 24;

fields! {
    /// All fields of the header.
    pub const PPL_HEADER_FIELDS = {
        RESERVED: "reserved" at 0, 512;
        SIGNATURE: "signature" at 512, 4;
        PADDING: "padding" at 516, 4;
        GENERATION: "generation" at 520, 8;
        ENTRIES_COUNT: "entries_count" at 528, 4;
        CHECKSUM: "checksum" at 532, 4;
        ENTRIES: "entries" at 536, ENTRIES_MAX * ENTRY_BYTES;
        PAD: "pad" at 4088, 8;
    }
}

fields! {
    /// All fields of an entry.
    pub const PPL_ENTRY_FIELDS = {
        DATA_SECTOR: "data_sector" at 0, 8;
        PP_SIZE: "pp_size" at 8, 4;
        DATA_SIZE: "data_size" at 12, 4;
        PARITY_DISK: "parity_disk" at 16, 4;
        ENTRY_CHECKSUM: "checksum" at 20, 4;
    }
}

/// One write in flight: consecutive sectors of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PplEntry {
    /// Array sector of the first data that is written.
    pub data_sector: u64,
    /// Bytes of partial parity; 0: all data of the row's part is written.
    pub pp_bytes: u32,
    /// Bytes of data that are written, in all data chunks together.
    pub data_bytes: u32,
    /// Slot of the member with the parity, which is the one that has this log.
    pub parity_slot: u32,
    /// [`partial_parity_checksum`] of the partial parity.
    pub checksum: u32,
}

/// One log's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplHeader {
    /// [`PplHeader::signature_of`] the array.
    pub signature: u32,
    /// Increases with every log that any member of the array gets; begins again at each assembly.
    pub generation: u64,
    /// The writes. Their partial parities follow the header in this order, without gaps.
    pub entries: Vec<PplEntry>,
}

/// The checksum of an entry's partial parity; of none, 0.
pub fn partial_parity_checksum(partial_parity: &[u8]) -> u32 {
    !crc::raw(!0, partial_parity)
}

impl PplHeader {
    /// What headers of this array carry.
    pub fn signature_of(set_uuid: Uuid) -> u32 {
        !crc::of_array(set_uuid)
    }

    /// A header without writes in flight. Before the array is written to, the member's
    /// area must be zeroed and begin with it: generations begin again, and what an earlier assembly
    /// left behind would look newer.
    pub fn empty(set_uuid: Uuid) -> PplHeader {
        let signature = PplHeader::signature_of(set_uuid);
        PplHeader { signature, generation: 0, entries: Vec::new() }
    }

    /// A header that ends the use of an area: it has no writes in flight, and whatever is behind it
    /// is older.
    pub fn last(set_uuid: Uuid) -> PplHeader {
        PplHeader { generation: u64::MAX, ..PplHeader::empty(set_uuid) }
    }

    /// The header at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than 4096 bytes, a wrong checksum, or more entries than fit.
    pub fn decode(bytes: &[u8]) -> Result<PplHeader, DecodeError> {
        let Some(bytes) = bytes.get(..PPL_HEADER_BYTES) else {
            return Err(error(PAD, format!("{} bytes, the header has 4096", bytes.len())));
        };
        let (stored, right) = (CHECKSUM.u32(bytes), checksum_of(bytes));
        if stored != right {
            return Err(error(CHECKSUM, format!("{stored:#010x}, the header has {right:#010x}")));
        }
        let count = ENTRIES_COUNT.u32(bytes);
        if count as usize > ENTRIES_MAX {
            return Err(error(ENTRIES_COUNT, format!("{count}, more than {ENTRIES_MAX}")));
        }
        let entries = ENTRIES.bytes(bytes).chunks_exact(ENTRY_BYTES).take(count as usize);
        Ok(PplHeader {
            signature: SIGNATURE.u32(bytes),
            generation: GENERATION.u64(bytes),
            entries: entries.map(PplEntry::decode).collect(),
        })
    }

    /// Whether bytes that are no header look like one of this array that was damaged: they carry
    /// its signature, or begin as every header does.
    pub(super) fn was_one(bytes: &[u8], signature: u32) -> bool {
        let ones = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0xff);
        // Partial parity may be all ones as well.
        let begins = ones(RESERVED.bytes(bytes)) && !ones(bytes);
        begins || SIGNATURE.u32(bytes) == signature
    }

    /// The header's bytes, with the right checksum.
    ///
    /// # Panics
    /// With more than [`ENTRIES_MAX`] entries.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() <= ENTRIES_MAX, "{} entries", self.entries.len());
        let mut bytes = vec![0; PPL_HEADER_BYTES];
        RESERVED.put(&mut bytes, &[0xff; 512]);
        SIGNATURE.put(&mut bytes, &self.signature.to_le_bytes());
        GENERATION.put(&mut bytes, &self.generation.to_le_bytes());
        ENTRIES_COUNT.put(&mut bytes, &(self.entries.len() as u32).to_le_bytes());
        let places = bytes[ENTRIES.offset..].chunks_exact_mut(ENTRY_BYTES);
        for (place, entry) in places.zip(&self.entries) {
            entry.encode(place);
        }
        let checksum = checksum_of(&bytes);
        CHECKSUM.put(&mut bytes, &checksum.to_le_bytes());
        bytes
    }

    /// Sectors of partial parity behind the header, as md adds them up.
    pub fn partial_parity_sectors(&self) -> u64 {
        self.entries.iter().map(PplEntry::sectors).sum()
    }
}

impl PplEntry {
    fn decode(bytes: &[u8]) -> PplEntry {
        PplEntry {
            data_sector: DATA_SECTOR.u64(bytes),
            pp_bytes: PP_SIZE.u32(bytes),
            data_bytes: DATA_SIZE.u32(bytes),
            parity_slot: PARITY_DISK.u32(bytes),
            checksum: ENTRY_CHECKSUM.u32(bytes),
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        DATA_SECTOR.put(bytes, &self.data_sector.to_le_bytes());
        PP_SIZE.put(bytes, &self.pp_bytes.to_le_bytes());
        DATA_SIZE.put(bytes, &self.data_bytes.to_le_bytes());
        PARITY_DISK.put(bytes, &self.parity_slot.to_le_bytes());
        ENTRY_CHECKSUM.put(bytes, &self.checksum.to_le_bytes());
    }

    /// Sectors of partial parity.
    pub fn sectors(&self) -> u64 {
        u64::from(self.pp_bytes) / 512
    }
}

/// The checksum of a header, its own field counted as 0.
fn checksum_of(header: &[u8]) -> u32 {
    let end = CHECKSUM.offset + CHECKSUM.size;
    let register = crc::raw(!0, &header[..CHECKSUM.offset]);
    let register = crc::raw(register, &[0; 4]);
    !crc::raw(register, &header[end..PPL_HEADER_BYTES])
}

pub(super) fn error(field: Field, problem: String) -> DecodeError {
    DecodeError {
        structure: "ppl",
        field: field.name,
        offset: field.offset,
        problem: problem.into(),
    }
}

/// Errors of a header that is right in itself and of another array.
pub(super) fn foreign(found: u32, expected: u32) -> DecodeError {
    error(SIGNATURE, format!("{found:#010x}, this array's is {expected:#010x}"))
}
