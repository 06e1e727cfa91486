//! A member as JSON: every field of its superblock as it is on disk, with units in the names.
//!
//! Invariant: numbers stay numbers, and no field is left out because its feature bit is off: the
//! reader has `feature_map`. The all-ones `resync_offset` of a clean array, which JavaScript
//! cannot represent, is null.
//! Called from `examine`.

use std::ffi::OsString;

use anyhow::Result;
use host::{Signature, Unread};
use md::ondisk::bitmap::{BITMAP_VERSIONS, BitmapHeader, LocklessStates};
use md::ondisk::superblock::{
    Candidate, Checksum, DiskV0, Kernels, Outcome, Superblock, SuperblockV0, SuperblockV1,
    V0_DISK_STATES, V0_STATES, V1_FEATURES,
};
use md::ondisk::{Area, DecodeError, MemberMetadata, Role, Uuid, Version};
use serde::Serialize;

use super::foreign::ForeignDocument;
use super::found::{Found, FoundBitmap, Row, Table, User};
use crate::error::text_of;
use crate::mdadm;

/// All that was named.
#[derive(Serialize)]
pub struct Examined<'a> {
    members: Vec<Entry<'a>>,
}

/// A member, or why it cannot be looked at.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Member(Box<MemberDocument<'a>>),
    Failed { member: String, error: String },
}

impl<'a> Examined<'a> {
    pub fn of(all: &'a [(OsString, Result<Found>)]) -> Examined<'a> {
        let each = all.iter().map(|(name, found)| match found {
            Ok(found) => Entry::Member(Box::new(MemberDocument::of(found))),
            Err(error) => {
                Entry::Failed { member: name.to_string_lossy().into(), error: text_of(error) }
            }
        });
        Examined { members: each.collect() }
    }
}

#[derive(Serialize)]
struct MemberDocument<'a> {
    member: &'a str,
    device_sectors: u64,
    logical_block_bytes: u32,
    candidates: Vec<Place<'a>>,
    rescue_map: Option<&'a Unread>,
    in_use: Option<InUse<'a>>,
    #[serde(flatten)]
    holds: Holds<'a>,
    foreign: Option<ForeignDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_table: Option<PartitionTable<'a>>,
}

/// A superblock and what it points to, or what else there is.
#[derive(Serialize)]
#[serde(untagged)]
enum Holds<'a> {
    Superblock(Box<SuperblockDocument<'a>>),
    Other { superblock: (), holds: Vec<String>, packed_as: Option<&'static str> },
}

#[derive(Serialize)]
struct SuperblockDocument<'a> {
    superblock: Fields<'a>,
    checksum: ChecksumDocument,
    areas: Areas,
    kernel_refusals: Vec<KernelRefusal>,
    bitmap: Option<BitmapDocument<'a>>,
    bad_blocks: Option<BadBlocksDocument>,
}

impl<'a> MemberDocument<'a> {
    fn of(found: &'a Found) -> MemberDocument<'a> {
        let holds = match found.superblock() {
            Some((superblock, checksum)) => Holds::Superblock(Box::new(SuperblockDocument {
                superblock: Fields::of(superblock),
                checksum: checksum.into(),
                areas: Areas::of(&superblock.metadata()),
                kernel_refusals: refusals(found),
                bitmap: found.bitmap.as_ref().map(BitmapDocument::of),
                bad_blocks: bad_blocks(found),
            })),
            None => Holds::Other {
                superblock: (),
                holds: found.contents.iter().map(Signature::to_string).collect(),
                packed_as: found.packed_as,
            },
        };
        MemberDocument {
            member: &found.name,
            device_sectors: found.sectors,
            logical_block_bytes: found.logical_block,
            candidates: found.detection.outcomes.iter().map(Place::of).collect(),
            rescue_map: found.unread.as_ref(),
            in_use: found.in_use.as_ref().map(InUse::of),
            holds,
            foreign: ForeignDocument::of(&found.foreign),
            partition_table: found.table.as_ref().map(PartitionTable::of),
        }
    }
}

#[derive(Serialize)]
struct InUse<'a> {
    server: Option<&'a str>,
    process: Option<u32>,
    program: Option<&'a str>,
}

impl<'a> InUse<'a> {
    fn of(user: &'a User) -> InUse<'a> {
        let holder = user.holder.as_ref();
        InUse {
            server: user.server.as_deref(),
            process: holder.map(|it| it.process),
            program: holder.map(|it| it.program.as_str()),
        }
    }
}

#[derive(Serialize)]
struct PartitionTable<'a> {
    kind: Option<String>,
    block_bytes: Option<u64>,
    problem: Option<&'static str>,
    partitions: &'a [Row],
}

impl<'a> PartitionTable<'a> {
    fn of(table: &'a Table) -> PartitionTable<'a> {
        PartitionTable {
            kind: table.kind.ok().map(|(kind, _)| kind.to_string()),
            block_bytes: table.kind.ok().map(|(_, bytes)| bytes),
            problem: table.kind.err(),
            partitions: &table.rows,
        }
    }
}

#[derive(Serialize)]
struct ChecksumDocument {
    correct: bool,
    stored: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    computed: Option<u32>,
}

impl From<Checksum> for ChecksumDocument {
    fn from(checksum: Checksum) -> ChecksumDocument {
        match checksum {
            Checksum::Correct { stored } => {
                ChecksumDocument { correct: true, stored, computed: None }
            }
            Checksum::Wrong { stored, computed } => {
                ChecksumDocument { correct: false, stored, computed: Some(computed) }
            }
        }
    }
}

/// A place where a superblock can be, and what was there.
#[derive(Serialize)]
struct Place<'a> {
    version: Version,
    sector: u64,
    state: &'static str,
    says: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a DecodeError>,
    #[serde(flatten)]
    array: Option<ArrayOfPlace>,
}

#[derive(Serialize)]
struct ArrayOfPlace {
    array_uuid: Uuid,
    created_unix_s: u64,
}

impl<'a> Place<'a> {
    fn of((place, outcome): &'a (Candidate, Outcome)) -> Place<'a> {
        let (state, superblock) = match outcome {
            Outcome::Unreadable(_) => ("unreadable", None),
            Outcome::NoMagic => ("nothing", None),
            Outcome::Invalid(_) => ("invalid", None),
            Outcome::Misplaced { superblock, .. } => ("misplaced", Some(superblock)),
            Outcome::Found { superblock, .. } => ("found", Some(superblock)),
        };
        let array = superblock.map(|superblock| {
            let metadata = superblock.metadata();
            ArrayOfPlace { array_uuid: metadata.set_uuid, created_unix_s: metadata.created.seconds }
        });
        let error = match outcome {
            Outcome::Invalid(error) => Some(error),
            _ => None,
        };
        let (version, sector) = (place.version, place.sector);
        Place { version, sector, state, says: outcome.to_string(), error, array }
    }
}

#[derive(Serialize)]
struct KernelRefusal {
    reason: String,
    kernels: &'static str,
}

fn refusals(found: &Found) -> Vec<KernelRefusal> {
    let refusals = found.refusals.iter().map(|refusal| KernelRefusal {
        reason: refusal.to_string(),
        kernels: match refusal.kernels() {
            Kernels::All => "all",
            Kernels::UpTo6_18 => "up to 6.18",
        },
    });
    refusals.collect()
}

/// The fields as they are on disk, and what they mean. What stands later replaces a field of the
/// same name.
#[derive(Serialize)]
#[serde(untagged)]
enum Fields<'a> {
    V0(V0Fields<'a>),
    V1(V1Fields<'a>),
}

impl<'a> Fields<'a> {
    fn of(superblock: &'a Superblock) -> Fields<'a> {
        match superblock {
            Superblock::V0(superblock) => Fields::V0(V0Fields::of(superblock)),
            Superblock::V1(superblock) => Fields::V1(V1Fields::of(superblock)),
        }
    }
}

type Names = Vec<&'static str>;

fn names(bits: u32, table: &[(&'static str, u64)]) -> Names {
    table.iter().filter(|(_, bit)| u64::from(bits) & bit != 0).map(|(name, _)| *name).collect()
}

#[derive(Serialize)]
struct V1Fields<'a> {
    #[serde(flatten)]
    stored: &'a SuperblockV1,
    features: Names,
    name: String,
    created_unix_s: u64,
    created_micros: u32,
    level_name: &'static str,
    layout_name: Option<String>,
    ppl_offset_sectors: i16,
    ppl_sectors: u16,
    write_mostly: bool,
    failfast: bool,
    updated_unix_s: u64,
    updated_micros: u32,
    resync_offset_sectors: Option<u64>,
    clean: bool,
    max_dev: usize,
    role: RoleDocument,
    slots: String,
}

impl<'a> V1Fields<'a> {
    fn of(sb: &'a SuperblockV1) -> V1Fields<'a> {
        V1Fields {
            stored: sb,
            features: names(sb.feature_map, V1_FEATURES),
            name: sb.name(),
            created_unix_s: sb.ctime.seconds,
            created_micros: sb.ctime.micros,
            level_name: mdadm::level(sb.level),
            layout_name: mdadm::layout(sb.level, sb.layout),
            ppl_offset_sectors: sb.ppl_offset(),
            ppl_sectors: sb.ppl_size(),
            write_mostly: sb.devflags & 1 != 0,
            failfast: sb.devflags & 2 != 0,
            updated_unix_s: sb.utime.seconds,
            updated_micros: sb.utime.micros,
            resync_offset_sectors: Some(sb.resync_offset).filter(|&at| at != u64::MAX),
            clean: sb.resync_offset == u64::MAX,
            max_dev: sb.dev_roles.len(),
            role: RoleDocument::of(&sb.metadata()),
            slots: super::v1::slots(sb),
        }
    }
}

/// The role of the device as a word, and its slot if it has one.
#[derive(Serialize)]
struct RoleDocument {
    is: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u16>,
}

impl RoleDocument {
    fn of(metadata: &MemberMetadata) -> RoleDocument {
        let (is, slot) = match metadata.role {
            Role::Slot(slot) if metadata.replacement => ("replacement", Some(slot)),
            Role::Slot(slot) => ("active", Some(slot)),
            Role::Spare => ("spare", None),
            Role::Faulty => ("faulty", None),
            Role::Journal => ("journal", None),
        };
        RoleDocument { is, slot }
    }
}

#[derive(Serialize)]
struct V0Fields<'a> {
    #[serde(flatten)]
    stored: &'a SuperblockV0,
    version: &'static str,
    level_name: &'static str,
    states: Names,
    clean: bool,
    layout_name: Option<String>,
    role: RoleDocument,
    disks: Vec<V0Disk<'a>>,
    this_disk: V0Disk<'a>,
}

#[derive(Serialize)]
struct V0Disk<'a> {
    #[serde(flatten)]
    stored: &'a DiskV0,
    states: Names,
}

impl<'a> V0Fields<'a> {
    fn of(sb: &'a SuperblockV0) -> V0Fields<'a> {
        V0Fields {
            stored: sb,
            version: "0.90",
            level_name: mdadm::level(sb.level),
            states: names(sb.state, V0_STATES),
            clean: sb.state & 1 != 0,
            layout_name: mdadm::layout(sb.level, sb.layout),
            role: RoleDocument::of(&sb.metadata()),
            disks: sb.disks.iter().map(V0Disk::of).collect(),
            this_disk: V0Disk::of(&sb.this_disk),
        }
    }
}

impl<'a> V0Disk<'a> {
    fn of(disk: &'a DiskV0) -> V0Disk<'a> {
        V0Disk { stored: disk, states: names(disk.state, V0_DISK_STATES) }
    }
}

/// The areas on the device.
#[derive(Serialize)]
struct Areas {
    superblock: SuperblockArea,
    data: Area,
    bitmap: Option<Area>,
    bad_block_log: Option<Area>,
    ppl: Option<Area>,
}

#[derive(Serialize)]
struct SuperblockArea {
    sector: u64,
}

impl Areas {
    fn of(metadata: &MemberMetadata) -> Areas {
        Areas {
            superblock: SuperblockArea { sector: metadata.super_sector },
            data: Area { sector: metadata.data_offset, sectors: metadata.data_sectors },
            bitmap: metadata.bitmap,
            bad_block_log: metadata.bad_blocks.map(|log| log.area),
            ppl: metadata.ppl.map(|ppl| ppl.area),
        }
    }
}

/// A bitmap, or why it cannot be read.
#[derive(Serialize)]
#[serde(untagged)]
enum BitmapDocument<'a> {
    Failed {
        error: String,
    },
    Found {
        #[serde(flatten)]
        header: &'a BitmapHeader,
        kind: Option<&'static str>,
        problem: Option<String>,
        #[serde(flatten)]
        bits: Bits<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Bits<'a> {
    Lockless { states: &'a LocklessStates },
    Counted { bits: u64, dirty_bits: u64 },
    Failed { bits_error: String },
}

impl<'a> BitmapDocument<'a> {
    fn of(found: &'a Result<FoundBitmap>) -> BitmapDocument<'a> {
        let found = match found {
            Ok(found) => found,
            Err(error) => return BitmapDocument::Failed { error: text_of(error) },
        };
        let header = &found.header;
        let bits = match (&found.states, &found.bits) {
            (Some(Ok(states)), _) => Bits::Lockless { states },
            (_, Ok(bits)) => Bits::Counted { bits: bits.shape().bits(), dirty_bits: bits.count() },
            (_, Err(error)) => Bits::Failed { bits_error: text_of(error) },
        };
        BitmapDocument::Found { header, kind: kind(header), problem: found.wrong(), bits }
    }
}

fn kind(header: &BitmapHeader) -> Option<&'static str> {
    let named = |(_, number): &&(&str, u64)| *number == u64::from(header.version);
    BITMAP_VERSIONS.iter().find(named).map(|(name, _)| *name)
}

/// A log of bad blocks, or why it cannot be read.
#[derive(Serialize)]
#[serde(untagged)]
enum BadBlocksDocument {
    Failed { error: String },
    Listed { ranges: Vec<Area>, bad_sectors: u64 },
}

fn bad_blocks(found: &Found) -> Option<BadBlocksDocument> {
    Some(match found.bad_blocks.as_ref()? {
        Err(error) => BadBlocksDocument::Failed { error: text_of(error) },
        Ok(bad) => BadBlocksDocument::Listed {
            ranges: bad.ranges().iter().map(Area::from).collect(),
            bad_sectors: bad.sectors(),
        },
    })
}
