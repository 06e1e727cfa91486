//! The contents of one member: its superblock, and the areas that the superblock points to.
//!
//! Invariant: the member is opened read-only and stays as it is. An area that cannot be read or
//! decoded is a result of its own, so that the rest of the member is still shown. Called from
//! `examine`.

use std::fmt;

use admin::{Inside, Part, in_another_unit};
use anyhow::{Error, Result, bail};
use host::{
    Device, Disk, Holder, MemberName, RescueMap, Signature, TableKind, Unread, packed_as,
    read_area, read_bad_blocks, signatures, superblocks,
};
use md::SECTOR_BYTES;
use md::foreign::Detected;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::bitmap::{
    Bitmap, BitmapHeader, BitmapKind, BitmapProblem, BitmapShape, LocklessStates, uuid_on_disk,
};
use md::ondisk::superblock::{Checksum, Detection, Refusal, Superblock};
use md::ondisk::{Area, Uuid};
use serde::Serialize;

#[cfg(feature = "served")]
use crate::commands::served::server_of_process;
use crate::error::text_of;

/// This build has no servers.
#[cfg(not(feature = "served"))]
fn server_of_process(_process: u32) -> Option<String> {
    None
}

/// No bitmap that md makes is longer: 128 KiB.
const BITMAP_BYTES_MAX: u64 = 64 << 20;

/// How often a superblock in use is read again until its checksum is right.
const READS_IN_USE: u32 = 5;

/// See the module.
pub struct Found {
    /// As it was named.
    pub name: String,
    /// Its length.
    pub sectors: u64,
    /// Its logical block, in bytes.
    pub logical_block: u32,
    /// Every place where a superblock can be.
    pub detection: Detection,
    /// Why the kernel would refuse it.
    pub refusals: Vec<Refusal>,
    /// The write-intent bitmap, if the superblock has one.
    pub bitmap: Option<Result<FoundBitmap>>,
    /// The log of bad blocks, if the superblock has one.
    pub bad_blocks: Option<Result<BadBlocks>>,
    /// Metadata of other formats than md's.
    pub foreign: Detected,
    /// Other signatures on it; searched only without a superblock.
    pub contents: Vec<Signature>,
    /// The compression or image format that its first bytes announce.
    pub packed_as: Option<&'static str>,
    /// A hint at an offset that has a superblock.
    pub elsewhere: Option<String>,
    /// Its partition table; looked for only where there is no superblock.
    pub table: Option<Table>,
    /// What it does not have, if it is a copy with a map.
    pub unread: Option<Unread>,
    /// What writes to it now.
    pub in_use: Option<User>,
}

/// What writes to a member now.
#[derive(Clone)]
pub struct User {
    /// The process, if this user may see it.
    pub holder: Option<Holder>,
    /// The name of that process, if it is a server of this user.
    pub server: Option<String>,
}

/// A partition table.
pub struct Table {
    /// Its kind and block size in bytes; or the reason why it is invalid.
    pub kind: Result<(TableKind, u64), &'static str>,
    /// Its partitions.
    pub rows: Vec<Row>,
}

/// A partition.
#[derive(Serialize)]
pub struct Row {
    /// As the kernel counts.
    pub number: u32,
    /// Its name as a member.
    #[serde(rename = "member")]
    pub name: String,
    /// Its length.
    pub sectors: u64,
    /// Whether it is looked at as a member.
    pub may_be_member: bool,
}

/// A bitmap.
pub struct FoundBitmap {
    /// Its header.
    pub header: BitmapHeader,
    /// Why md would refuse to start the array with it.
    pub problem: Option<BitmapProblem>,
    /// Its bits, counted as its header says.
    pub bits: Result<Bitmap>,
    /// Of a lockless one, how many chunks are in which state; it has no bits then.
    pub states: Option<Result<LocklessStates>>,
}

impl FoundBitmap {
    /// Errors in it; that it is lockless is none.
    pub fn wrong(&self) -> Option<String> {
        match &self.states {
            Some(states) => states.as_ref().err().map(text_of),
            None => {
                let problem = self.problem.map(|problem| problem.to_string());
                problem.or_else(|| self.bits.as_ref().err().map(text_of))
            }
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.server, &self.holder) {
            (Some(server), Some(holder)) => write!(f, "server {server} ({holder})"),
            (Some(server), None) => write!(f, "server {server}"),
            (None, Some(holder)) => write!(f, "{holder}"),
            (None, None) => f.write_str("another process"),
        }
    }
}

impl Found {
    /// Reads all of it; a disk with a partition table is followed by the members in it, or by why
    /// one cannot be looked at.
    pub fn read(name: &MemberName) -> Result<Vec<Result<Found>>> {
        let device = Device::look(&name.location, RescueMap::of(name)?)?;
        let mut whole = Found::on(&device);
        let Some(inside) = Inside::of(&device) else { return Ok(vec![Ok(whole)]) };
        if whole.superblock().is_some() && !inside.is_beside {
            // It is the partition's that ends with the disk.
            whole = Found { detection: Detection { chosen: None, ..whole.detection }, ..whole };
            whole.bitmap = None;
            whole.refusals.clear();
            whole.contents = signatures(&device);
        }
        let row = |part: &Part| {
            let (number, name) = (part.number, part.location.to_string());
            let sectors = part.location.size.unwrap_or(0) / SECTOR_BYTES;
            Row { number, name, sectors, may_be_member: part.may_be_member }
        };
        let kind = inside.table.as_ref().map(|table| (table.kind, table.block_bytes));
        let rows = inside.parts.iter().map(row).collect();
        whole.table = Some(Table { kind: kind.map_err(|why| *why), rows });
        let members = inside.parts.into_iter().filter(|part| part.may_be_member);
        let members =
            members.map(|part| part.device.map(|device| Found::on(&device)).map_err(Error::new));
        Ok(std::iter::once(Ok(whole)).chain(members).collect())
    }

    /// Whether nothing here is a member.
    pub fn is_no_member(&self) -> bool {
        self.superblock().is_none() && self.foreign.metadata.is_none() && !self.has_members()
    }

    /// Whether members are among its partitions.
    pub fn has_members(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.rows.iter().any(|row| row.may_be_member))
    }

    fn on(device: &Device) -> Found {
        let sectors = device.sectors();
        let mut detection = superblocks(device);
        // One that is being written may be read in two halves.
        for _ in 0..READS_IN_USE {
            let is_whole = detection.superblock().is_some_and(|(_, it)| it.is_correct());
            if is_whole || device.in_use().is_none() {
                break;
            }
            detection = superblocks(device);
        }
        let in_use = device.in_use().map(|it| User {
            server: it.holder.as_ref().and_then(|it| server_of_process(it.process)),
            holder: it.holder.clone(),
        });
        let mut found = Found {
            name: device.location().to_string(),
            sectors,
            logical_block: device.logical_block(),
            refusals: Vec::new(),
            bitmap: None,
            bad_blocks: None,
            foreign: host::foreign(device),
            contents: Vec::new(),
            packed_as: None,
            elsewhere: None,
            table: None,
            unread: device.unread().cloned(),
            in_use,
            detection,
        };
        match found.superblock().map(|(superblock, checksum)| (superblock.clone(), checksum)) {
            Some((superblock, checksum)) => found.read_areas(device, &superblock, checksum),
            None => {
                found.contents = signatures(device);
                found.elsewhere = in_another_unit(device);
                found.packed_as = packed_as(device);
            }
        }
        found
    }

    /// The superblock that is the member's.
    pub fn superblock(&self) -> Option<(&Superblock, Checksum)> {
        self.detection.superblock()
    }

    fn read_areas(&mut self, device: &Device, superblock: &Superblock, checksum: Checksum) {
        let block = self.logical_block as usize;
        self.refusals = superblock.kernel_refusals(checksum, self.sectors, block);
        let metadata = superblock.metadata();
        let uuid = uuid_on_disk(metadata.set_uuid, metadata.version);
        self.bitmap = metadata.bitmap.map(|area| read_bitmap(device, area, uuid));
        self.bad_blocks =
            metadata.bad_blocks.map(|area| read_bad_blocks(device, area).map_err(Error::new));
    }
}

fn read_bitmap(device: &Device, area: Area, uuid: Uuid) -> Result<FoundBitmap> {
    let first = read_area(device, Area { sectors: 1, ..area })?;
    let header = BitmapHeader::decode(&first)?;
    let problem = header.check(uuid).err();
    let bits = read_bits(device, area, &header);
    let lockless = header.kind() == Some(BitmapKind::Lockless);
    let states = lockless.then(|| read_states(device, area, &header, uuid));
    Ok(FoundBitmap { header, problem, bits, states })
}

fn read_states(
    device: &Device,
    area: Area,
    header: &BitmapHeader,
    uuid: Uuid,
) -> Result<LocklessStates> {
    if header.uuid != uuid {
        bail!(BitmapProblem::Uuid { found: header.uuid, expected: uuid });
    }
    let bytes = LocklessStates::file_bytes(header)?;
    let sectors = bytes.div_ceil(SECTOR_BYTES);
    if sectors > area.sectors {
        bail!("{sectors} sectors of bitmap, there is room for {}", area.sectors);
    }
    let file = read_area(device, Area { sectors, ..area })?;
    Ok(LocklessStates::count(&file)?)
}

fn read_bits(device: &Device, area: Area, header: &BitmapHeader) -> Result<Bitmap> {
    let shape = BitmapShape::new(header.sync_size, header.chunk_bytes);
    let shape = shape?;
    let bytes = shape.file_bytes();
    let sectors = bytes.div_ceil(SECTOR_BYTES);
    if sectors > area.sectors || bytes > BITMAP_BYTES_MAX {
        bail!("{sectors} sectors of bitmap, there is room for {}", area.sectors);
    }
    let file = read_area(device, Area { sectors, ..area })?;
    Ok(Bitmap::decode(&file, header.sync_size)?)
}
