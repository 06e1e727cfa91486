//! Arrays on images of devices: created, examined, assembled and started by the code that does it
//! for real devices.
//!
//! Invariant: everything goes through md's codecs and decisions (`md::create`, `md::assemble`,
//! `md::ondisk`) and `engine::MetadataConfig::of_start`.

use std::ops::Range;

use engine::{BadBlockLog, MemberSet, MetadataConfig, MetadataManager};
use md::assemble::{
    Array, BitmapRefusal, Candidate, Options, StartBitmap, StartMember, StartPlan, StartRefusal,
    assemble,
};
use md::create::{Addition, BitmapOption, CreateError, Device, Request, addition, plan};
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::bitmap::{Bitmap, BitmapHeader, HEADER_BYTES, sync_sectors};
use md::ondisk::ppl::{MemberLog, PplHeader, PplStep, PplVerdict, UNUSED, plan_recovery};
use md::ondisk::superblock::{Checksum, Superblock, detect, feature};
use md::ondisk::{
    Area, BadBlockArea, MemberMetadata, MetadataEncoder, Role, Timestamp, Uuid, Version, Write,
};
use md::{Geometry, Layout, Level, MemberIdx};

use crate::member::SECTOR;

/// Where data begin on devices with superblocks at the start: room for a bitmap of three pages.
const DATA_OFFSET: u64 = 64;
/// Where a partial parity log begins.
const LOG_SECTOR: u64 = 16;
/// What devices have behind their data for superblocks at the end.
const TAIL: u64 = 256;

/// An array to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArray {
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Number of members.
    pub members: usize,
    /// Chunk; 0 on RAID 1.
    pub chunk_sectors: u64,
    /// Sectors of each member.
    pub used_sectors: u64,
    /// Version of the metadata.
    pub version: Version,
    /// Logical block of every device in bytes: 512 or 4096.
    pub block: u32,
    /// Bytes per bit of a bitmap; `None`: without one.
    pub bitmap_chunk: Option<u32>,
    /// Entries in the superblocks' table of roles; `None`: as many as mdadm makes. With more than
    /// 128 a superblock is longer than a sector.
    pub roles: Option<u16>,
    /// Sectors of the area of a partial parity log on each device; `None`: without one.
    pub log: Option<u16>,
    /// How it begins.
    pub begins: Begins,
}

/// Whether an array is in sync when its first life begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// All members are zero.
    InSync,
    /// Redundancy is wrong everywhere, and a resync is to be done.
    OutOfSync,
    /// In sync, with a bitmap that is older than the superblocks.
    StaleBitmap,
    /// Redundancy is wrong everywhere, and the bitmap is older than the superblocks.
    OutOfSyncStaleBitmap,
}

impl Begins {
    /// Whether redundancy is wrong.
    pub fn is_out_of_sync(self) -> bool {
        matches!(self, Begins::OutOfSync | Begins::OutOfSyncStaleBitmap)
    }

    fn is_stale(self) -> bool {
        matches!(self, Begins::StaleBitmap | Begins::OutOfSyncStaleBitmap)
    }
}

impl NewArray {
    /// The geometry, and an image of each device.
    ///
    /// # Errors
    /// The request cannot be fulfilled.
    ///
    /// # Panics
    /// If a plan has more than it should.
    pub fn create(&self) -> Result<(Geometry, Vec<Vec<u8>>), CreateError> {
        let at_start = matches!(self.version, Version::V1_1 | Version::V1_2);
        let data_offset = match self.log {
            Some(sectors) => (LOG_SECTOR + u64::from(sectors)).next_multiple_of(8),
            None => DATA_OFFSET,
        };
        let offset = if at_start { data_offset } else { 0 };
        // 0.90 counts in 64 KiB; superblocks at the start leave nothing to do for the rest.
        let sectors = match at_start {
            true => offset + self.used_sectors,
            false => self.used_sectors.next_multiple_of(128) + TAIL,
        };
        let device = |at: usize| Device {
            label: format!("device {at}"),
            sectors,
            logical_block: self.block,
            uuid: Uuid([at as u8 + 1; 16]),
            data_offset: None,
            write_mostly: false,
            failfast: false,
        };
        let devices = (0..self.members).map(device).collect();
        let mut request = Request::new(self.level, devices, Uuid([0xa5; 16]), Timestamp::default());
        request.layout = Some(self.layout);
        request.chunk_sectors = (self.level != Level::Raid1).then_some(self.chunk_sectors);
        request.version = self.version;
        request.used_sectors = Some(self.used_sectors);
        request.data_offset = at_start.then_some(data_offset);
        request.bitmap = match self.bitmap_chunk {
            // Finer ones than mdadm makes are set below.
            Some(bytes) => BitmapOption::Internal { chunk_bytes: Some(u64::from(bytes.max(4096))) },
            None => BitmapOption::None,
        };
        request.assume_clean = !self.begins.is_out_of_sync();
        let mut plan = plan(&request)?;
        self.adapt_bitmap(&mut plan.bitmap, &plan.geometry);
        let mut images = Vec::new();
        for (place, superblock) in plan.places.iter().zip(&plan.superblocks) {
            let mut image = vec![0; sectors as usize * SECTOR];
            let mut place = place.clone();
            if self.log.is_some() || self.bitmap_chunk.is_some_and(|bytes| bytes < 4096) {
                place.bad_blocks = None;
            }
            for write in plan.preparations(&place) {
                apply(&mut image, write);
            }
            let superblock = self.adapt_superblock(superblock);
            let bytes = superblock.encode(self.block as usize);
            apply(&mut image, Write::Bytes { sector: superblock.sector(), bytes });
            let uuid = superblock.metadata().set_uuid;
            self.empty_log(uuid).into_iter().for_each(|write| apply(&mut image, write));
            images.push(image);
        }
        Ok((plan.geometry, images))
    }

    /// What makes the log of a device empty; nothing without logs.
    pub(crate) fn empty_log(&self, set_uuid: Uuid) -> Vec<Write> {
        let Some(sectors) = self.log else { return Vec::new() };
        let bytes = PplHeader::empty(set_uuid).encode();
        let area = Area { sector: LOG_SECTOR, sectors: sectors.into() };
        vec![Write::Zeroes(area), Write::Bytes { sector: LOG_SECTOR, bytes }]
    }

    /// A finer chunk, and an old bitmap, whose bits mean nothing.
    fn adapt_bitmap(&self, bitmap: &mut Option<Bitmap>, geometry: &Geometry) {
        let Some(plain) = bitmap else { return };
        let mut header = plain.header.clone();
        header.chunk_bytes = self.bitmap_chunk.expect("it has one");
        if self.begins.is_stale() {
            header.events = header.events.saturating_sub(1);
        }
        let sync = sync_sectors(geometry).expect("a level with a bitmap");
        let set = self.begins == Begins::OutOfSync;
        *bitmap = Some(Bitmap::new(header, sync, set).expect("the header is valid"));
    }

    /// A log, or a bitmap of more than a page, takes the room of the bad-block log.
    fn adapt_superblock(&self, superblock: &Superblock) -> Superblock {
        let mut superblock = superblock.clone();
        let sector = superblock.sector();
        let Superblock::V1(v1) = &mut superblock else { return superblock };
        if let Some(sectors) = self.log {
            v1.set_ppl((LOG_SECTOR - sector) as i16, sectors);
            v1.feature_map |= feature::PPL;
        }
        if self.log.is_some() || self.bitmap_chunk.is_some_and(|bytes| bytes < 4096) {
            v1.bblog_offset = 0;
            v1.bblog_size = 0;
        }
        if let Some(roles) = self.roles {
            v1.dev_roles.resize(usize::from(roles), u16::MAX);
        }
        superblock
    }
}

pub(crate) fn apply(image: &mut [u8], write: Write) {
    let (sector, bytes) = match write {
        Write::Zeroes(area) => (area.sector, vec![0; area.sectors as usize * SECTOR]),
        Write::Bytes { sector, bytes } => (sector, bytes),
    };
    let at = sector as usize * SECTOR;
    image[at..at + bytes.len()].copy_from_slice(&bytes);
}

/// A device with a superblock.
pub struct Found {
    /// Index of its image: its place.
    pub device: usize,
    /// Its superblock.
    pub superblock: Superblock,
    /// The contents of it.
    pub metadata: MemberMetadata,
    /// Whether it is what an encoder would write: not torn, by another test than its checksum.
    pub is_whole: bool,
    label: String,
    pub(crate) candidate: Candidate,
}

/// The devices with superblocks, torn ones too; `None`: a device that is not there. `block`: their
/// logical block in bytes.
pub fn examine(images: &[Option<&[u8]>], block: u32) -> Vec<Found> {
    let mut found = Vec::new();
    for (device, image) in images.iter().enumerate() {
        let Some(image) = image else { continue };
        let sectors = (image.len() / SECTOR) as u64;
        let detection = detect(sectors, |place| {
            let at = place.sector as usize * SECTOR;
            Ok::<_, String>(&image[at..at + md::ondisk::superblock::READ_BYTES])
        });
        let Some((superblock, checksum)) = detection.superblock() else { continue };
        let encoded = superblock.encode(block as usize);
        let is_whole = image[superblock.sector() as usize * SECTOR..].starts_with(&encoded);
        let label = format!("device {device}");
        let candidate = Candidate::new(&label, sectors, block as usize, superblock, checksum);
        let superblock = superblock.clone();
        let metadata = superblock.metadata();
        found.push(Found { device, superblock, metadata, is_whole, label, candidate });
    }
    found
}

/// The superblocks on images of devices: a line for each.
pub fn describe(images: &[Vec<u8>], block: u32) -> String {
    let all: Vec<Option<&[u8]>> = images.iter().map(|image| Some(&image[..])).collect();
    let found = examine(&all, block);
    let line = |at: usize| {
        let Some(found) = found.iter().find(|found| found.device == at) else {
            return format!("  place {at}: no superblock\n");
        };
        let MemberMetadata { events, resync_offset, roles, .. } = &found.metadata;
        let torn = if found.is_whole { "" } else { ", torn" };
        let role = |role: &Role| match role {
            Role::Slot(slot) => slot.to_string(),
            Role::Faulty => "F".into(),
            _ => "-".into(),
        };
        let last = roles.iter().rposition(|role| *role != Role::Spare);
        let roles = roles[..last.map_or(0, |last| last + 1)].iter().map(role);
        let (roles, number) = (roles.collect::<Vec<String>>(), found.metadata.dev_number);
        let dirty = resync_offset.map_or("clean".into(), |from| format!("dirty from {from}"));
        let log = found.metadata.ppl.map_or("", |_| ", log");
        let roles = roles.join(" ");
        format!(
            "  place {at}: device {number}, events {events}, {dirty}{log}, roles {roles}{torn}\n"
        )
    };
    let is_there = |at: &usize| !images[*at].is_empty();
    (0..images.len()).filter(is_there).map(line).collect()
}

/// The bitmap on an image of this device: its header and its bits. `covered`: sectors that it
/// covers.
pub fn bitmap_of(found: &Found, image: &[u8], covered: u64) -> Option<(BitmapHeader, Vec<u8>)> {
    let area = found.metadata.bitmap?;
    let bytes = &image[area.sector as usize * SECTOR..];
    let header = BitmapHeader::decode(bytes).ok()?;
    let bits = covered.div_ceil(u64::from(header.chunk_bytes) / md::SECTOR_BYTES);
    let length = bits.div_ceil(8) as usize;
    Some((header, bytes[HEADER_BYTES..HEADER_BYTES + length].to_vec()))
}

/// Why an array is not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No device has a valid superblock, or they make several arrays.
    Arrays(usize),
    /// The assembly decided against it.
    Start(StartRefusal),
    /// The bitmap cannot be used.
    Bitmap(BitmapRefusal),
}

/// How to start an array.
#[derive(Clone, Copy, Debug)]
pub struct StartOptions {
    /// Number of shards.
    pub shards: u16,
    /// Interval of resync checkpoints.
    pub checkpoint_nanos: u64,
    /// See [`MetadataConfig::bits_ahead_nanos`].
    pub bits_ahead_nanos: u64,
    /// Dirty and degraded arrays, too.
    pub force: bool,
    /// Devices to be put into the slots of their numbers, if these are empty; whatever is on them
    /// is overwritten.
    pub add: u16,
    /// Former members to be put into their slots again, by the bitmap: those that
    /// [`may_be_readded`] allows.
    pub readd: u16,
    /// Slots whose members are to be replaced by new devices: those behind the slots' own.
    pub replace: u16,
}

/// An array that starts.
pub struct Start {
    /// Its metadata manager.
    pub manager: MetadataManager,
    /// Its geometry.
    pub geometry: Geometry,
    /// Slots that nothing serves.
    pub missing: MemberSet,
    /// Number and place of each device that keeps metadata.
    pub numbers: Vec<(u32, usize)>,
    /// Spares that have got slots: slot, and place as a spare.
    pub taken: Vec<(usize, usize)>,
    /// By place; `None`: without metadata to keep.
    pub encoders: Vec<Option<MetadataEncoder>>,
    /// By slot, the data area of its member in sectors of the device; `None`: missing.
    pub data_areas: Vec<Option<Range<u64>>>,
    /// By slot: members that are being rebuilt, and the sector below which they are in sync.
    pub rebuilding: Vec<(usize, u64)>,
    /// Those of them that follow the bitmap.
    pub by_bitmap: Vec<usize>,
    /// Slots whose members are being replaced, by the devices in the slots' second places.
    pub replacing: Vec<usize>,
    /// Sectors that the member of a slot without one would have.
    pub missing_sectors: u64,
    /// It has a bitmap that is older than the superblocks.
    pub has_stale_bitmap: bool,
    /// What the replay of logs writes.
    pub replayed: Vec<DeviceWrite>,
    /// Size of the areas of partial parity logs, if it has any.
    pub log: Option<u64>,
    /// By place: its bad-block log, if there is room for one.
    pub bad_block_logs: Vec<Option<BadBlockLog>>,
}

/// The list in the bad-block log on an image of this device; empty if it is not in use.
pub fn bad_blocks_of(found: &Found, image: &[u8]) -> BadBlocks {
    let place = found.metadata.bad_blocks.filter(|place| place.in_use);
    let decode = |place: BadBlockArea| {
        let from = place.area.sector as usize * SECTOR;
        let bytes = &image[from..from + place.area.sectors as usize * SECTOR];
        BadBlocks::decode(bytes, place.shift).expect("a bad-block log")
    };
    place.map(decode).unwrap_or_default()
}

/// Device, first sector of it, bytes.
pub type DeviceWrite = (usize, u64, Vec<u8>);

/// Replays the logs of an array that is started.
fn replay(
    plan: &StartPlan<'_>,
    found: &[&Found],
    images: &[Option<&[u8]>],
) -> Result<(Vec<DeviceWrite>, Option<PplVerdict>), Refusal> {
    if !plan.replays_ppl() {
        return Ok((Vec::new(), None));
    }
    let bytes = |device: usize, sector: u64, sectors: u64| {
        let image = images[device].expect("it was examined");
        &image[sector as usize * SECTOR..(sector + sectors) as usize * SECTOR]
    };
    let sources: Vec<(MemberIdx, &Found, u64)> = plan
        .serving()
        .iter()
        .map(|(slot, source)| (*slot, u64::MAX, source))
        .chain(plan.rebuilding().iter().map(|it| (it.slot, it.from, &it.source)))
        .map(|(slot, up_to, source)| (slot, found[source.candidate], up_to))
        .collect();
    let (mut logs, mut gaps) = (Vec::new(), Vec::new());
    for (slot, found, _) in &sources {
        let Some(area) = found.metadata.log_area else {
            gaps.push((*slot, "no log".to_string()));
            continue;
        };
        let read = |sector: u64, into: &mut [u8]| {
            let sectors = (into.len() / SECTOR) as u64;
            into.copy_from_slice(bytes(found.device, area.sector + sector, sectors));
            Ok::<_, String>(())
        };
        let log = MemberLog::load(*slot, found.metadata.set_uuid, area.sectors, read);
        logs.push(log.expect("images can be read"));
    }
    let in_sync = |member: MemberIdx| {
        let source = sources.iter().find(|(slot, ..)| *slot == member);
        source.map_or(0, |(_, _, up_to)| *up_to)
    };
    let resync_offset = plan.defining().resync_offset;
    let recovery = plan_recovery(plan.geometry(), &logs, resync_offset, in_sync).expect("raid5");
    let mismatches = recovery.mismatches.iter().filter(|mismatch| !mismatch.is_torn());
    gaps.extend(mismatches.map(|mismatch| (mismatch.member(), mismatch.problem())));
    if recovery.is_unused() {
        gaps.extend(sources.iter().map(|(slot, ..)| (*slot, UNUSED.to_string())));
    }
    plan.check_logs(&gaps).map_err(Refusal::Start)?;
    let of = |member: MemberIdx| {
        let source = sources.iter().find(|(slot, ..)| *slot == member);
        source.expect("it was in sync there").1
    };
    let mut writes: Vec<DeviceWrite> = Vec::new();
    for PplStep { sectors, parity, data, partial_parity, .. } in &recovery.steps {
        let (length, parity) = (sectors.end - sectors.start, of(*parity));
        let area = parity.metadata.log_area.expect("it has a log");
        let mut sum = match partial_parity {
            Some(at) => bytes(parity.device, area.sector + at, length).to_vec(),
            None => vec![0; length as usize * SECTOR],
        };
        for member in data {
            let it = of(*member);
            let from = it.metadata.data_offset + sectors.start;
            let block = bytes(it.device, from, length);
            sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
        }
        writes.push((parity.device, parity.metadata.data_offset + sectors.start, sum));
    }
    let is_complete = logs.len() == sources.len();
    Ok((writes, Some(recovery.verdict).filter(|_| is_complete)))
}

/// The assembly of the devices that are there; `force`: dirty and degraded arrays, too.
///
/// # Errors
/// They are not one array.
pub fn assembled(found: &[Found], force: bool) -> Result<Array, Refusal> {
    let candidates: Vec<Candidate> = found.iter().map(|found| found.candidate.clone()).collect();
    let mut arrays = assemble(&candidates, &Options { force, ..Options::default() }).arrays;
    match arrays.pop() {
        Some(array) if arrays.is_empty() => Ok(array),
        last => Err(Refusal::Arrays(arrays.len() + usize::from(last.is_some()))),
    }
}

impl Found {
    fn as_member(&self, block: u32) -> StartMember<'_> {
        StartMember {
            label: &self.label,
            logical_block: block,
            read_only: false,
            superblock: &self.superblock,
            metadata: &self.metadata,
        }
    }
}

/// The devices of a bit mask, as they join the array. `given`: numbers that others have got.
fn additions(
    plan: &StartPlan<'_>,
    found: &[Found],
    images: &[Option<&[u8]>],
    add: u16,
    given: &mut Vec<u32>,
) -> Vec<Found> {
    let defining = &found[plan.defining_candidate()].superblock;
    let empty = plan.empty_slots();
    let asked = empty.iter().map(|slot| slot.index()).filter(|slot| add >> slot & 1 == 1);
    let new = |slot| new_device(defining, images, slot, next_number(plan, given));
    asked.filter_map(new).collect()
}

/// The devices that are to replace the members of these slots.
fn replacements(
    plan: &StartPlan<'_>,
    found: &[Found],
    images: &[Option<&[u8]>],
    replace: u16,
    given: &mut Vec<u32>,
) -> Vec<Found> {
    let defining = &found[plan.defining_candidate()].superblock;
    let slots = plan.geometry().members();
    let asked = (0..slots).filter(|slot| replace >> slot & 1 == 1);
    let asked = asked.filter(|slot| plan.may_be_replaced(MemberIdx(*slot as u16)));
    let new = |slot| new_device(defining, images, slots + slot, next_number(plan, given));
    asked.filter_map(new).collect()
}

fn next_number(plan: &StartPlan<'_>, given: &mut Vec<u32>) -> u32 {
    let number = plan.free_number(given);
    given.push(number);
    number
}

fn new_device(
    defining: &Superblock,
    images: &[Option<&[u8]>],
    device: usize,
    number: u32,
) -> Option<Found> {
    let image = images[device]?;
    let sectors = (image.len() / SECTOR) as u64;
    let label = format!("device {device}");
    // What it is filled with tells it from others.
    let superblock = joining(defining, number, sectors, u64::from(image[image.len() - 1]));
    let checksum = Checksum::Correct { stored: 0 };
    let candidate = Candidate::new(&label, sectors, 512, &superblock, checksum);
    let metadata = superblock.metadata();
    Some(Found { device, superblock, metadata, is_whole: true, label, candidate })
}

/// What the superblocks of a new device are made from, that gets this number. `id`: another one for
/// each device.
pub(crate) fn joining(defining: &Superblock, number: u32, sectors: u64, id: u64) -> Superblock {
    let mut uuid = [number as u8 + 0x81; 16];
    uuid[8..].copy_from_slice(&id.to_le_bytes());
    let new = Device {
        label: format!("device {number}"),
        sectors,
        logical_block: 512,
        uuid: Uuid(uuid),
        data_offset: None,
        write_mostly: number % 3 == 1,
        failfast: number.is_multiple_of(2),
    };
    let added = addition(defining, number, &new);
    let Addition { superblock, .. } = added.expect("a device of the same size");
    superblock
}

/// The images of the devices that are chosen.
fn split<'a>(images: &[Option<&'a [u8]>], is_in: impl Fn(usize) -> bool) -> Vec<Option<&'a [u8]>> {
    images.iter().enumerate().map(|(at, image)| image.filter(|_| is_in(at))).collect()
}

/// Whether a device that was a member can be put into its slot again by the bitmap, when the array
/// starts on the other devices.
pub fn may_be_readded(images: &[Option<&[u8]>], device: usize, block: u32) -> bool {
    let others = examine(&split(images, |at| at != device), block);
    let own = examine(&split(images, |at| at == device), block);
    let (Some(own), Ok(array)) = (own.first(), assembled(&others, false)) else { return false };
    let members = others.iter().map(|found| found.as_member(block)).collect();
    let plan = StartPlan::new(&array, members).and_then(StartPlan::with_rebuilds);
    let Ok(plan) = plan else { return false };
    let Some((candidate, area)) = plan.bitmap() else { return false };
    let image = images[others[candidate].device].expect("it was examined");
    let bitmap = plan.check_bitmap(area, &image[area.sector as usize * SECTOR..]);
    let slot = bitmap.ok().and_then(|bitmap| plan.readdition(&own.candidate, &bitmap));
    own.is_whole && slot == Some(MemberIdx(device as u16))
}

/// Assembles and starts the array on these devices, and continues rebuilds.
///
/// # Errors
/// The array is refused.
///
/// # Panics
/// If a device serves a slot whose place it does not have.
#[expect(clippy::too_many_lines, reason = "the steps of a start, in their order")]
pub fn start(
    images: &[Option<&[u8]>],
    block: u32,
    options: StartOptions,
) -> Result<Start, Refusal> {
    let StartOptions { shards, checkpoint_nanos, bits_ahead_nanos, force, add, readd, replace } =
        options;
    let found = examine(&split(images, |at| at >= 16 || readd >> at & 1 == 0), block);
    let array = assembled(&found, force)?;
    let members = found.iter().map(|found| found.as_member(block)).collect();
    let mut plan = StartPlan::new(&array, members).map_err(Refusal::Start)?;
    plan = plan.with_rebuilds().map_err(Refusal::Start)?;
    let former = examine(&split(images, |at| at < 16 && readd >> at & 1 == 1), block);
    let mut given: Vec<u32> = former.iter().map(|found| found.metadata.dev_number).collect();
    let additions = additions(&plan, &found, images, add, &mut given);
    for (at, found) in additions.iter().enumerate() {
        let slot = MemberIdx(found.device as u16);
        plan = plan.with_addition(additions[at].as_member(block), slot).map_err(Refusal::Start)?;
    }
    for found in &former {
        let slot = MemberIdx(found.device as u16);
        plan = plan.with_readdition(found.as_member(block), slot).map_err(Refusal::Start)?;
    }
    let seconds = replacements(&plan, &found, images, replace, &mut given);
    for second in &seconds {
        let slot = MemberIdx((second.device % plan.geometry().members()) as u16);
        plan = plan.with_replacement(second.as_member(block), slot).map_err(Refusal::Start)?;
    }
    let found: Vec<&Found> =
        found.iter().chain(&additions).chain(&former).chain(&seconds).collect();
    let image = |candidate: usize| images[found[candidate].device].expect("it was examined");
    let slots = plan.geometry().members();
    // A spare that has got a slot has its place.
    let mut places: Vec<usize> = found.iter().map(|found| found.device).collect();
    let mut taken = Vec::new();
    for it in plan.rebuilding() {
        let place = &mut places[it.source.candidate];
        if *place >= 2 * slots {
            taken.push((it.slot.index(), std::mem::replace(place, it.slot.index())));
        }
    }
    let mut bitmap: Option<(StartBitmap, Vec<u8>)> = None;
    if let Some((candidate, area)) = plan.bitmap() {
        let bytes = &image(candidate)[area.sector as usize * SECTOR..];
        let checked = plan.check_bitmap(area, bytes).map_err(Refusal::Bitmap)?;
        let bits = checked.bits(&bytes[..checked.sectors as usize * SECTOR]).to_vec();
        bitmap = Some((checked, bits));
    }
    let (replayed, verdict) = replay(&plan, &found, images)?;
    let resync_offset = plan.resync_offset(verdict);
    let with_bits = bitmap.as_ref().map(|(bitmap, bits)| (bitmap, bits.clone()));
    // What is written from the start on has no bad blocks, whatever it had listed.
    let filled = plan.rebuilding().iter().chain(plan.replacing());
    let blank = filled.filter(|it| it.from == 0 && !it.by_bitmap).map(|it| it.source.candidate);
    let blank: Vec<usize> = blank.collect();
    let mut bad_block_logs: Vec<Option<BadBlockLog>> = images.iter().map(|_| None).collect();
    let mut with_bad_blocks = Vec::new();
    for (candidate, it) in found.iter().enumerate() {
        let Some(place) = it.metadata.bad_blocks else { continue };
        let bad = match blank.contains(&candidate) {
            true => BadBlocks::new(),
            false => bad_blocks_of(it, image(candidate)),
        };
        if !bad.is_empty() {
            with_bad_blocks.push(candidate);
        }
        let log = BadBlockLog::new(bad, place, it.metadata.data_offset);
        // A spare comes after what had its slot.
        bad_block_logs[places[candidate]] = Some(log);
    }
    let listed = &with_bad_blocks;
    let config = MetadataConfig::of_start(&plan, resync_offset, listed, with_bits, shards);
    let header = bitmap.as_ref().map(|(bitmap, _)| &bitmap.header);
    let mut encoders: Vec<Option<MetadataEncoder>> = images.iter().map(|_| None).collect();
    let mut numbers = Vec::new();
    for device in plan.devices() {
        let (it, place) = (&found[device.candidate], places[device.candidate]);
        numbers.push((device.number, place));
        encoders[place] = Some(MetadataEncoder {
            superblock: it.superblock.clone(),
            number: device.number,
            logical_block: block,
            bitmap: it.metadata.bitmap.zip(header.cloned()),
            ppl: it.metadata.log_area,
        });
    }
    let log = plan.defining().ppl.map(|ppl| ppl.area.sectors);
    let geometry = plan.geometry().clone();
    let mut data_areas: Vec<Option<Range<u64>>> = vec![None; geometry.members()];
    let mut rebuilding = Vec::new();
    let rebuilt = plan.rebuilding().iter().map(|it| (&it.slot, &it.source));
    for (slot, source) in plan.serving().iter().map(|(slot, source)| (slot, source)).chain(rebuilt)
    {
        assert_eq!(slot.index(), places[source.candidate], "the device of a slot");
        data_areas[slot.index()] = Some(plan.data_area(source));
    }
    rebuilding.extend(plan.rebuilding().iter().map(|it| (it.slot.index(), it.from)));
    let by_bitmap = plan.rebuilding().iter().filter(|it| it.by_bitmap);
    let by_bitmap = by_bitmap.map(|it| it.slot.index()).collect();
    let replacing: Vec<usize> = plan.replacing().iter().map(|it| it.slot.index()).collect();
    for it in plan.replacing() {
        let device = found[it.source.candidate].device;
        assert_eq!(device, it.slot.index() + geometry.members(), "the replacement of a slot");
    }
    let missing = (0..data_areas.len()).filter(|slot| data_areas[*slot].is_none());
    let missing: MemberSet = missing.map(|slot| slot as u16).collect();
    let missing_sectors = plan.missing_sectors();
    let manager =
        MetadataManager::new(MetadataConfig { checkpoint_nanos, bits_ahead_nanos, ..config });
    let has_stale_bitmap = bitmap.is_some_and(|(bitmap, _)| bitmap.stale);
    Ok(Start {
        manager,
        geometry,
        missing,
        numbers,
        taken,
        encoders,
        data_areas,
        rebuilding,
        by_bitmap,
        replacing,
        missing_sectors,
        has_stale_bitmap,
        replayed,
        log,
        bad_block_logs,
    })
}
