//! The structures of one copy of the metadata: bytes to plain values.
//!
//! Invariant: what decodes has a right CRC, or is said to have a wrong one; lists end where their
//! bytes end, whatever their counts say.

use std::fmt::{self, Write};

use serde::{Serialize, Serializer};

use super::format::*;
use crate::foreign::text::{part, text};
use crate::ondisk::Field;

/// A GUID: 8 bytes of a vendor's name, the rest as the vendor likes.
pub type Guid = [u8; GUID_BYTES];

/// Its bytes as hexadecimal digits, in words of four: `4C696E75:782D4D44:...`.
pub fn guid_text(guid: &Guid) -> String {
    let mut text = String::with_capacity(guid.len() * 9 / 4);
    for (at, byte) in guid.iter().enumerate() {
        let separator = if at > 0 && at % 4 == 0 { ":" } else { "" };
        write!(text, "{separator}{byte:02X}").expect("a string");
    }
    text
}

fn as_text<S: Serializer>(guid: &Guid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&guid_text(guid))
}

/// An element of a configuration: a disk, and where its part begins.
#[derive(Serialize)]
struct Element {
    disk: u32,
    sector: u64,
}

fn as_elements<S: Serializer>(elements: &[(u32, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(elements.iter().map(|&(disk, sector)| Element { disk, sector }))
}

/// Why a structure cannot be used: `header, field crc at byte 4: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeProblem {
    /// The structure.
    pub structure: &'static str,
    /// The field.
    pub field: &'static str,
    /// Its first byte in the structure.
    pub offset: usize,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for DecodeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeProblem { structure, field, offset, problem } = self;
        write!(f, "ddf {structure}, field {field} at byte {offset}: {problem}")
    }
}

impl std::error::Error for DecodeProblem {}

fn problem(structure: &'static str, field: Field, problem: impl Into<String>) -> DecodeProblem {
    let (field, offset) = (field.name, field.offset);
    DecodeProblem { structure, field, offset, problem: problem.into() }
}

/// A header: the anchor, or that of one of the two copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// GUID of the container.
    pub guid: Guid,
    /// As text, `01.02.00`.
    pub revision: String,
    /// Counts the writes of the metadata; without meaning in the anchor.
    pub sequence: u32,
    /// Seconds since 1980.
    pub timestamp: u32,
    /// Not 0: the copy was being written.
    pub open: u8,
    /// Where the copies are.
    pub primary: u64,
    /// The second one; all ones: there is none.
    pub secondary: u64,
    /// 0: anchor, 1: primary, 2: secondary.
    pub kind: u8,
    /// First block of the space that the controller works in.
    pub workspace: u64,
    /// Sectors of a configuration record.
    pub record_sectors: u16,
    /// Entries of its lists.
    pub max_elements: u16,
    /// Offset from the header, and length, of each section in sectors.
    pub disks: (u32, u32),
    /// Of the list of virtual disks.
    pub virtuals: (u32, u32),
    /// Of the configuration records.
    pub configs: (u32, u32),
    /// Of the disk's own record.
    pub own: (u32, u32),
}

/// A physical disk of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhysicalDisk {
    /// GUID of the disk, 24 bytes.
    #[serde(serialize_with = "as_text")]
    pub guid: Guid,
    /// What configurations call it.
    pub reference: u32,
    /// Type bits.
    #[serde(rename = "type")]
    pub kind: u16,
    /// State bits, [`DISK_STATES`].
    pub state: u16,
    /// Sectors that can be used for data.
    pub sectors: u64,
}

impl PhysicalDisk {
    /// Whether it does not serve.
    pub fn failed(&self) -> bool {
        self.state & ONLINE == 0 || self.state & (FAILED | MISSING) != 0
    }

    /// Whether it is being filled.
    pub fn rebuilding(&self) -> bool {
        self.state & REBUILDING != 0
    }
}

/// A virtual disk of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VirtualDisk {
    /// GUID of the virtual disk, 24 bytes.
    #[serde(serialize_with = "as_text")]
    pub guid: Guid,
    /// Number of the virtual disk in the container.
    pub number: u16,
    /// State, [`VIRTUAL_STATES`].
    pub state: u8,
    /// Low bits: 0 not initialised, 1 quickly, 2 all of it.
    pub init: u8,
    /// Name of the virtual disk.
    pub name: String,
}

/// A configuration record: one basic virtual disk, which is all of a virtual disk, or one of
/// several that a secondary level joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Config {
    /// GUID of the virtual disk.
    #[serde(serialize_with = "as_text")]
    pub guid: Guid,
    /// Seconds since 1980.
    #[serde(skip)]
    pub timestamp: u32,
    /// Counts the changes of the record.
    pub sequence: u32,
    /// Chunk: 2 to the power of this, in sectors.
    pub strip_shift: u8,
    /// Primary level.
    pub level: u8,
    /// Its qualifier: what of the level's layouts.
    pub qualifier: u8,
    /// Number of basic virtual disks.
    pub secondary_elements: u8,
    /// Which of them this is.
    pub secondary_number: u8,
    /// The level that joins them.
    pub secondary_level: u8,
    /// Sectors of the part on each disk.
    #[serde(rename = "sectors")]
    pub blocks: u64,
    /// Sectors of the virtual disk.
    #[serde(rename = "array_sectors")]
    pub array_blocks: u64,
    /// Bytes of a block since revision 2, 65535 or 0 before.
    #[serde(skip)]
    pub block_size: u16,
    /// By place: the disk's reference, and the first sector of its part.
    #[serde(serialize_with = "as_elements")]
    pub elements: Vec<(u32, u64)>,
}

/// One copy of the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Header of this copy.
    pub header: Header,
    /// The disks of the container.
    pub disks: Vec<PhysicalDisk>,
    /// Virtual disks of the container.
    pub virtuals: Vec<VirtualDisk>,
    /// What this disk knows of their configurations.
    pub configs: Vec<Config>,
    /// Number of records of spares.
    pub spares: usize,
    /// The disk itself: its GUID and its reference.
    pub own: (Guid, u32),
    /// Structures with a wrong CRC, and others that are left out.
    pub wrong: Vec<DecodeProblem>,
}

/// Whether the CRC of a structure, a field of it, is right. It is computed with the field as all
/// ones; mdadm's form leaves out both inversions of the usual CRC-32.
fn crc(structure: &'static str, field: Field, bytes: &[u8]) -> Result<(), DecodeProblem> {
    let stored = be32(field, bytes);
    let (before, behind) = (&bytes[..field.offset], &bytes[field.offset + field.size..]);
    let mut hash = crc32fast::Hasher::new_with_initial(!0);
    let mut usual = crc32fast::Hasher::new();
    for part in [before, &[0xff; 4], behind] {
        hash.update(part);
        usual.update(part);
    }
    let bare = !hash.finalize();
    if stored == bare || stored == usual.finalize() {
        return Ok(());
    }
    Err(problem(structure, field, format!("{stored:08x}, computed {bare:08x}")))
}

impl Header {
    /// A header, and whether its CRC is right.
    ///
    /// # Errors
    /// The magic, or too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Header, Result<(), DecodeProblem>), DecodeProblem> {
        let name = "header";
        let bytes = part(bytes, 0, HEADER_BYTES);
        let bytes = bytes.ok_or_else(|| problem(name, MAGIC, "it is cut off"))?;
        if be32(MAGIC, bytes) != MAGIC_HEADER {
            return Err(problem(name, MAGIC, format!("{:08x}", be32(MAGIC, bytes))));
        }
        let section = |field: Field| {
            let word = |at: usize| {
                u32::from_be_bytes(field.bytes(bytes)[at..at + 4].try_into().expect("four bytes"))
            };
            (word(0), word(4))
        };
        let header = Header {
            guid: GUID.array(bytes),
            revision: text(REVISION.bytes(bytes)),
            sequence: be32(SEQUENCE, bytes),
            timestamp: be32(TIMESTAMP, bytes),
            open: OPEN.u8(bytes),
            primary: be64(PRIMARY, bytes),
            secondary: be64(SECONDARY, bytes),
            kind: TYPE.u8(bytes),
            workspace: be64(WORKSPACE, bytes),
            record_sectors: be16(RECORD_LENGTH, bytes),
            max_elements: be16(MAX_ELEMENTS, bytes),
            disks: section(DISKS),
            virtuals: section(VIRTUALS),
            configs: section(CONFIGS),
            own: section(OWN),
        };
        Ok((header, crc(name, CRC, bytes)))
    }
}

/// An entry of a list that is in use.
fn in_use(entry: &&[u8]) -> bool {
    let guid = &entry[..GUID_BYTES];
    !guid.iter().all(|&byte| byte == 0xff) && !guid.iter().all(|&byte| byte == 0)
}

/// The entries in use of a section with a list.
fn entries<'a>(
    name: &'static str,
    magic: u32,
    bytes: &'a [u8],
    wrong: &mut Vec<DecodeProblem>,
) -> Result<Vec<&'a [u8]>, DecodeProblem> {
    if bytes.len() < SECTION_BYTES || be32(SECTION_MAGIC, bytes) != magic {
        return Err(problem(name, SECTION_MAGIC, "it is another one"));
    }
    wrong.extend(crc(name, SECTION_CRC, bytes).err());
    Ok(bytes[SECTION_BYTES..].chunks_exact(ENTRY_BYTES).filter(in_use).collect())
}

impl Copy {
    /// A copy from its header and the bytes of its sections, in the order of the fields.
    ///
    /// # Errors
    /// A structure that is not there.
    pub fn decode(header: Header, sections: [&[u8]; 4]) -> Result<Copy, DecodeProblem> {
        let [disks, virtuals, configs, own] = sections;
        let mut wrong = Vec::new();
        let disks = entries("physical disks", MAGIC_DISKS, disks, &mut wrong)?;
        let virtuals = entries("virtual disks", MAGIC_VIRTUALS, virtuals, &mut wrong)?;
        let name = "own disk";
        let own = part(own, 0, 512).ok_or_else(|| problem(name, OWN_MAGIC, "it is cut off"))?;
        if be32(OWN_MAGIC, own) != MAGIC_OWN {
            return Err(problem(name, OWN_MAGIC, "it is another one"));
        }
        wrong.extend(crc(name, OWN_CRC, own).err());
        let (configs, spares) = records(&header, configs, &mut wrong);
        Ok(Copy {
            disks: disks.into_iter().map(physical).collect(),
            virtuals: virtuals.into_iter().map(virtual_disk).collect(),
            configs,
            spares,
            own: (OWN_GUID.array(own), be32(OWN_REFERENCE, own)),
            wrong,
            header,
        })
    }
}

fn physical(entry: &[u8]) -> PhysicalDisk {
    PhysicalDisk {
        guid: DISK_GUID.array(entry),
        reference: be32(DISK_REFERENCE, entry),
        kind: be16(DISK_TYPE, entry),
        state: be16(DISK_STATE, entry),
        sectors: be64(DISK_SIZE, entry),
    }
}

fn virtual_disk(entry: &[u8]) -> VirtualDisk {
    VirtualDisk {
        guid: VIRTUAL_GUID.array(entry),
        number: be16(VIRTUAL_NUMBER, entry),
        state: VIRTUAL_STATE.u8(entry),
        init: VIRTUAL_INIT.u8(entry),
        name: text(VIRTUAL_NAME.bytes(entry)),
    }
}

/// The configuration records, and the number of records of spares.
fn records(header: &Header, bytes: &[u8], wrong: &mut Vec<DecodeProblem>) -> (Vec<Config>, usize) {
    let length = usize::from(header.record_sectors) * 512;
    let (mut configs, mut spares) = (Vec::new(), 0);
    if length < CONFIG_BYTES {
        let what = format!("{length} bytes, at least {CONFIG_BYTES}");
        wrong.push(problem("header", RECORD_LENGTH, what));
        return (configs, spares);
    }
    for record in bytes.chunks_exact(length) {
        match be32(CONFIG_MAGIC, record) {
            MAGIC_CONFIG => match config(header, record) {
                Ok((config, verdict)) => {
                    wrong.extend(verdict.err());
                    configs.push(config);
                }
                Err(error) => wrong.push(error),
            },
            MAGIC_SPARES => spares += 1,
            _ => {}
        }
    }
    (configs, spares)
}

fn config(
    header: &Header,
    record: &[u8],
) -> Result<(Config, Result<(), DecodeProblem>), DecodeProblem> {
    let name = "configuration";
    let (count, max) = (usize::from(be16(ELEMENTS, record)), usize::from(header.max_elements));
    let references = part(record, CONFIG_BYTES, max * 4);
    let starts = part(record, CONFIG_BYTES + max * 4, max * 8);
    let (Some(references), Some(starts)) = (references, starts) else {
        return Err(problem(name, ELEMENTS, format!("no room for lists of {max} elements")));
    };
    if count > max {
        return Err(problem(name, ELEMENTS, format!("{count}, at most {max}")));
    }
    let references = references.chunks_exact(4);
    let references = references.map(|it| u32::from_be_bytes(it.try_into().expect("four bytes")));
    let starts = starts.chunks_exact(8);
    let starts = starts.map(|it| u64::from_be_bytes(it.try_into().expect("eight bytes")));
    let config = Config {
        guid: CONFIG_GUID.array(record),
        timestamp: be32(CONFIG_TIMESTAMP, record),
        sequence: be32(CONFIG_SEQUENCE, record),
        strip_shift: STRIP.u8(record),
        level: LEVEL.u8(record),
        qualifier: QUALIFIER.u8(record),
        secondary_elements: SECONDARY_COUNT.u8(record),
        secondary_number: SECONDARY_SEQUENCE.u8(record),
        secondary_level: SECONDARY_LEVEL.u8(record),
        blocks: be64(BLOCKS, record),
        array_blocks: be64(ARRAY_BLOCKS, record),
        block_size: be16(CONFIG_BLOCK, record),
        elements: references.zip(starts).take(count).collect(),
    };
    Ok((config, crc(name, CONFIG_CRC, record)))
}
