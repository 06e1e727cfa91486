//! Starts an array after the assembly decision.
//!
//! Invariant: an array that would lose or mix data is refused, with the decision's reason. In
//! order: logs are replayed into the members and made durable, then the engine and its metadata
//! manager take over. Nothing else is written before the first write of a host: a start leaves no
//! trace.

use std::ops::Range;
use std::sync::Arc;

use array::{
    ArrayMetadata, ArraySpec, BadBlockList, BadBlockMember, BuildError, DataPlaneConfig, Driver,
    DriverOptions, MemberSpec, MetadataDevice, PartialParityArea, UnwrittenMember,
};
use engine::{DeviceNumber, MetadataConfig, MetadataManager};
use host::{Access, AreaError, Device, Disk};
use md::assemble::{
    Array, Candidate, Member, Options, Source, StartBitmap, StartDevice, StartPlan, StartRebuild,
    StartRefusal,
};
use md::ondisk::bitmap::BitmapHeader;
use md::ondisk::ppl::PplHeader;
use md::ondisk::{Area, MemberMetadata};
use md::{Level, MemberIdx, SECTOR_BYTES};
use parity::Kernels;
use thiserror::Error;

use crate::addition::{JoinError, NewDevice, NewDevices};
use crate::bitmap::{self, BitmapFailed};
use crate::on_paper::{Before, on_paper};
use crate::rescue::LogReplay;
use crate::worse::Worse;
use crate::{Opened, opened, rescue};

/// Options for starting an array.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// Options of the engine.
    pub driver: DriverOptions,
    /// Memory and limits of the data plane.
    pub data_plane: DataPlaneConfig,
}

/// Why an array was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The assembly decided against it, or it needs an unsupported feature.
    #[error(transparent)]
    Refused(#[from] StartRefusal),
    /// A superblock is not what the decision was made from.
    #[error(
        "{name}: its superblock has changed since it was examined, or cannot be read any more. \
         Examine the members again."
    )]
    Changed {
        /// Name of the member.
        name: String,
    },
    /// A member's list of bad blocks cannot be used.
    #[error("{name}: its list of bad blocks: {source}.")]
    BadBlocks {
        /// Name of the member.
        name: String,
        /// The reason.
        source: AreaError,
    },
    /// The bitmap cannot be used.
    #[error("{name}: its bitmap cannot be used: {problem}.")]
    Bitmap {
        /// Name of the member that has it.
        name: String,
        /// The reason.
        #[source]
        problem: BitmapFailed,
    },
    /// A member cannot be read or written.
    #[error("{name}: cannot {doing}: {}", host::sys::reason(source))]
    Member {
        /// Name of the member.
        name: String,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A device cannot be put into a slot.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The array would serve less with the superblocks of new devices.
    #[error(
        "with the superblocks of the new devices the array would serve less; nothing was written: \
         {0}"
    )]
    Worse(#[from] Worse),
    /// The specification is invalid, or a system resource is missing.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Starts the array by its read-write plan, in one shard. `members` are the devices that the
/// decision was made from, in that order, opened for writing. Their superblocks are read again: if
/// one differs from what the decision was made from, the array is not started.
///
/// # Errors
/// See [`StartError`].
///
/// # Panics
/// When a member of the plan is not among `members`.
pub fn start(
    array: &Array,
    members: &[Opened],
    options: &StartOptions,
) -> Result<Driver, StartError> {
    let driver = DriverOptions { shards: 1, ..options.driver.clone() };
    let options = StartOptions { driver, ..options.clone() };
    Ok(start_shards(array, members, &options)?.pop().expect("one shard"))
}

/// Like [`start`], in [`DriverOptions::shards`] shards. Shard 0 keeps the metadata.
///
/// # Errors
/// See [`StartError`].
///
/// # Panics
/// When a member of the plan is not among `members`.
pub fn start_shards(
    array: &Array,
    members: &[Opened],
    options: &StartOptions,
) -> Result<Vec<Driver>, StartError> {
    noted(assembled(array, members, None, options))
}

/// Like [`start`], with members that are rebuilt while the array runs: rebuilds that had begun are
/// continued, spares are taken for empty slots, and new devices are put into those that are left.
/// `overwrite`: also devices that hold data.
///
/// # Errors
/// See [`StartError`].
///
/// # Panics
/// When a member of the plan is not among `members`.
pub fn start_rebuilding(
    array: &Array,
    members: &[Opened],
    add: &[Arc<Device>],
    overwrite: bool,
    options: &StartOptions,
) -> Result<(Vec<Driver>, Vec<RebuildingMember>), StartError> {
    let new = NewDevices { add, overwrite, ..NewDevices::default() };
    start_replacing(array, members, &new, options)
}

/// Like [`start_rebuilding`]; new devices also replace members, and are filled while these serve.
///
/// # Errors
/// See [`StartError`].
///
/// # Panics
/// When a member of the plan is not among `members`.
pub fn start_replacing(
    array: &Array,
    members: &[Opened],
    new: &NewDevices<'_>,
    options: &StartOptions,
) -> Result<(Vec<Driver>, Vec<RebuildingMember>), StartError> {
    let new = NewDevice::of(array, members, new)?;
    let mut rebuilding = Vec::new();
    let started = assembled(array, members, Some((&new, &mut rebuilding)), options);
    noted(started).map(|shards| (shards, rebuilding))
}

/// An array that runs as it was found: nothing is recorded, resynced or rebuilt.
pub(crate) struct AsFound {
    pub(crate) driver: Driver,
    /// Positions at which redundancy may not match the data, ascending.
    pub(crate) out_of_sync: Vec<Range<u64>>,
    /// Notes of the assembly's decision.
    pub(crate) notes: Vec<String>,
}

/// Starts the array by its read-write plan without its metadata manager: superblocks and bitmap
/// stay as they are, and nothing is resynced. With [`Access::ReadOnly`] nothing at all reaches the
/// members but reads: logs are replayed in memory, and what the engine would write is dropped.
///
/// # Errors
/// See [`StartError`].
///
/// # Panics
/// When a member of the plan is not among `members`.
pub(crate) fn start_as_found(
    array: &Array,
    members: &[Opened],
    access: Access,
    options: &StartOptions,
) -> Result<AsFound, StartError> {
    let is_read_only = access == Access::ReadOnly;
    let metadata: Vec<MemberMetadata> =
        members.iter().map(|member| member.superblock.metadata()).collect();
    let labels: Vec<String> = members.iter().map(|member| member.disk.name()).collect();
    let mut found = opened::start_members(members, &metadata, &labels);
    if is_read_only {
        found.iter_mut().for_each(|member| member.read_only = false);
    }
    let plan = StartPlan::new(array, found)?;
    let first_new = members.len();
    let mut it = Starting { array, plan, members, first_new, metadata: &metadata };
    it.is_as_examined()?;
    let mut bad_blocks = it.read_bad_blocks()?;
    let bitmap = it.read_bitmap()?;
    let laid_over;
    let resync_offset = match it.log_replay(options)? {
        Some(log) if is_read_only => {
            laid_over = with_log(members, &log);
            it.members = &laid_over;
            it.plan.resync_offset(log.verdict)
        }
        log => it.replay(log)?,
    };
    let manager = MetadataManager::new(MetadataConfig::of_start(
        &it.plan,
        resync_offset,
        &[],
        bitmap.as_ref().map(|(bitmap, bits)| (bitmap, bits.clone())),
        1,
    ));
    let mut specs = it.member_specs(&mut bad_blocks);
    if is_read_only {
        for spec in &mut specs {
            let missing = MemberSpec::Missing { sectors: 0 };
            *spec = match std::mem::replace(spec, missing) {
                MemberSpec::Ready(member) => MemberSpec::ready(UnwrittenMember::new(member)),
                other => other,
            };
        }
    }
    let geometry = it.plan.geometry();
    let spec = ArraySpec {
        level: geometry.level(),
        layout: geometry.layout(),
        chunk_sectors: it.plan.defining().chunk_sectors.into(),
        members: specs,
        data_plane: it.data_plane(options.data_plane),
    };
    let driver = Driver::new(spec, &options.driver).map_err(StartError::Build)?;
    Ok(AsFound { driver, out_of_sync: manager.out_of_sync(), notes: it.plan.notes() })
}

/// Members as they would be after a replay of their logs.
fn with_log(members: &[Opened], log: &LogReplay) -> Vec<Opened> {
    let member = |(candidate, member): (usize, &Opened)| {
        let own = log.writes.iter().filter(|write| write.candidate == candidate);
        let mut own = own.map(|write| (write.sector, &write.bytes[..])).peekable();
        if own.peek().is_none() {
            return member.clone();
        }
        member.on(rescue::laid_over(member.disk.clone(), own))
    };
    members.iter().enumerate().map(member).collect()
}

/// A member that is rebuilt while the array runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildingMember {
    /// The slot that it fills.
    pub slot: MemberIdx,
    /// Name of the device, as it was opened.
    pub name: String,
    /// First sector of its data area.
    pub data_offset: u64,
    /// Sectors of the data area below this one were in sync at the start.
    pub from: u64,
    /// The device had the slot before, and lacks only what the bitmap's set bits cover.
    pub by_bitmap: bool,
    /// Name of the member that it replaces.
    pub replaces: Option<String>,
    /// Number of sectors of the data area that were out of sync at the start.
    pub lacking: u64,
}

fn noted(started: Result<Vec<Driver>, StartError>) -> Result<Vec<Driver>, StartError> {
    match &started {
        Ok(shards) => {
            let geometry = shards[0].geometry();
            let missing = shards[0].failed().len();
            let resync_offset = shards[0].metadata().and_then(|status| status.resync_offset);
            tracing::info!(
                level = %geometry.level(), members = geometry.members(), missing, resync_offset,
                rebuilding = shards[0].lacking().len() - missing, shards = shards.len(),
                "array started"
            );
        }
        Err(error) => tracing::error!("array not started: {error}"),
    }
    started
}

/// `new`: members are rebuilt, which are added to the list, and these devices are put into empty
/// slots.
fn assembled(
    array: &Array,
    members: &[Opened],
    new: Option<(&[NewDevice], &mut Vec<RebuildingMember>)>,
    options: &StartOptions,
) -> Result<Vec<Driver>, StartError> {
    // New devices come behind the candidates of the assembly.
    let joining = new.as_ref().map_or(&[][..], |(new, _)| *new);
    let members = members.iter().chain(joining.iter().map(|device| &device.opened)).cloned();
    let members: Vec<Opened> = members.collect();
    let metadata: Vec<MemberMetadata> =
        members.iter().map(|member| member.superblock.metadata()).collect();
    let labels: Vec<String> = members.iter().map(|member| member.disk.name()).collect();
    let mut found = opened::start_members(&members, &metadata, &labels);
    let added = found.split_off(members.len() - joining.len());
    let mut plan = StartPlan::new(array, found)?;
    if new.is_some() {
        plan = plan.with_rebuilds()?;
    }
    for (member, device) in added.into_iter().zip(joining) {
        plan = match device.is_by_bitmap() {
            _ if device.replaces => plan.with_replacement(member, device.slot)?,
            true => plan.with_readdition(member, device.slot)?,
            false => plan.with_addition(member, device.slot)?,
        };
    }
    let geometry = plan.geometry();
    let mut rebuilds = None;
    if let Some((_, rebuilding)) = new {
        let member = |it: &StartRebuild| {
            let StartRebuild { slot, from, by_bitmap, .. } = *it;
            let name = labels[it.source.candidate].clone();
            let data_offset = it.source.data_offset;
            let (replaces, lacking) = (None, 0);
            RebuildingMember { slot, name, data_offset, from, by_bitmap, replaces, lacking }
        };
        rebuilding.extend(plan.rebuilding().iter().map(member));
        for replacing in plan.replacing() {
            let mut serving = plan.serving().iter();
            let old = serving.find(|(slot, _)| *slot == replacing.slot);
            let replaces = old.map(|(_, source)| labels[source.candidate].clone());
            rebuilding.push(RebuildingMember { replaces, ..member(replacing) });
        }
        rebuilds = Some(rebuilding);
    }
    let first_new = members.len() - joining.len();
    let it = Starting { array, plan, members: &members, first_new, metadata: &metadata };
    it.is_as_examined()?;
    let mut bad_blocks = it.read_bad_blocks()?;
    let log = it.log_replay(options)?;
    let resync_offset = it.replay(log)?;
    let log = it.log();
    let mut driver = options.driver.clone();
    let mut notes = it.plan.notes();
    if log.is_some() && driver.shards > 1 {
        // Only the newest log of a member counts: there is one writer.
        driver.shards = 1;
        notes.push("With a partial parity log the array runs in one shard.".into());
    }
    let bitmap = it.read_bitmap()?;
    let devices = it.metadata_devices(bitmap.as_ref().map(|(bitmap, _)| &bitmap.header));
    let listed = bad_blocks.iter().filter(|(_, list)| !list.is_empty());
    let with_bad_blocks: Vec<usize> = listed.map(|(of, _)| *of).collect();
    let manager = MetadataManager::new(MetadataConfig::of_start(
        &it.plan,
        resync_offset,
        &with_bad_blocks,
        bitmap.as_ref().map(|(bitmap, bits)| (bitmap, bits.clone())),
        driver.shards.max(1),
    ));
    let (lacking, replacing) = (manager.rebuilding(), manager.replacing());
    for member in rebuilds.into_iter().flatten() {
        let lacking = if member.replaces.is_some() { &replacing } else { &lacking };
        let mut ranges = lacking.iter().filter(|(slot, _)| *slot == member.slot);
        let ranges = ranges.next().map_or(&[][..], |(_, ranges)| ranges);
        member.lacking = ranges.iter().map(|range| range.end - range.start).sum();
    }
    let spec = ArraySpec {
        level: geometry.level(),
        layout: geometry.layout(),
        chunk_sectors: it.plan.defining().chunk_sectors.into(),
        members: it.member_specs(&mut bad_blocks),
        data_plane: it.data_plane(options.data_plane),
    };
    let spares = it.spares(&mut bad_blocks);
    let replacements = it.replacements(&mut bad_blocks);
    let metadata = ArrayMetadata { manager, devices, spares, replacements, log, notes };
    let shards = Driver::managed(spec, &driver, metadata).map_err(StartError::Build)?;
    let (is, should) = (shards[0].geometry().array_sectors(), geometry.array_sectors());
    assert_eq!(is, should, "the members give the geometry that the superblocks describe");
    if !joining.is_empty() {
        joins_on_paper(array, &members[..first_new], joining, options.driver.kernels)?;
    }
    // Last: nothing can be refused any more, and nothing is written before the first poll.
    for device in joining {
        device.prepare().map_err(|(doing, source)| {
            let name = device.opened.disk.name();
            StartError::Member { name, doing, source }
        })?;
    }
    Ok(shards)
}

/// Whether the array is found as it was beside the superblocks that new devices get.
fn joins_on_paper(
    array: &Array,
    members: &[Opened],
    joining: &[NewDevice],
    kernels: Kernels,
) -> Result<(), Worse> {
    let mut candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
    let mut disks: Vec<Arc<dyn Disk>> = members.iter().map(|member| member.disk.clone()).collect();
    let mut planned = Vec::new();
    for device in joining {
        let (disk, superblock) = device.on_paper();
        planned.push((candidates.len(), superblock));
        candidates.push(device.opened.candidate());
        disks.push(disk);
    }
    let options = &Options { force: array.forced, ..Options::default() };
    let before = Before { array, candidates: &candidates, disks: &disks, options };
    on_paper(&before, &planned, &(0..0), kernels).map(|_| ())
}

struct Starting<'a> {
    array: &'a Array,
    plan: StartPlan<'a>,
    members: &'a [Opened],
    /// From here on they are new devices: nothing on them means anything.
    first_new: usize,
    /// By candidate.
    metadata: &'a [MemberMetadata],
}

impl Starting<'_> {
    /// Whether the superblocks are still those that the decision was made from: another start from
    /// the same state may have left a member behind since. The devices are locked, so that nothing
    /// changes after this.
    fn is_as_examined(&self) -> Result<(), StartError> {
        for Member { candidate, .. } in &self.array.members {
            let member = &self.members[*candidate];
            // A member that is left out may be damaged by now.
            let is_damaged = || !self.plan.needs(*candidate);
            if !member.is_as_examined().unwrap_or_else(is_damaged) {
                return Err(StartError::Changed { name: member.disk.name() });
            }
        }
        Ok(())
    }

    /// The bad block lists, by candidate: those that are not empty, and all of devices that are
    /// filled or may be, which may get entries.
    fn read_bad_blocks(&self) -> Result<Vec<(usize, BadBlockList)>, StartError> {
        let mut lists = Vec::new();
        let filled = self.plan.rebuilding().iter().chain(self.plan.replacing());
        let filled = filled.map(|it| {
            // What is written from the start on has no bad blocks, whatever it had listed.
            let is_new = it.source.candidate >= self.first_new && !it.by_bitmap;
            let has_list = !is_new && (it.from > 0 || it.by_bitmap);
            (it.source.candidate, it.source.data_offset, true, has_list)
        });
        let serving = self.plan.serving().iter();
        let serving = serving.map(|(_, it)| (it.candidate, it.data_offset, false, true));
        let spares = self.plan.devices().into_iter().filter(|device| device.is_spare);
        let spares = spares.map(|StartDevice { candidate, .. }| {
            (candidate, self.metadata[candidate].data_offset, true, false)
        });
        for (candidate, data_offset, is_filled, has_list) in serving.chain(filled).chain(spares) {
            let Some(mut place) = self.metadata[candidate].bad_blocks else { continue };
            place.in_use &= has_list;
            let disk = &self.members[candidate].disk;
            let list = BadBlockList::read(disk.clone(), place, data_offset)
                .map_err(|source| StartError::BadBlocks { name: disk.name(), source })?;
            if is_filled || !list.is_empty() {
                lists.push((candidate, list));
            }
        }
        Ok(lists)
    }

    /// What a replay of the partial parity log writes; `None`: there is none to be replayed.
    fn log_replay(&self, options: &StartOptions) -> Result<Option<LogReplay>, StartError> {
        if !self.plan.replays_ppl() {
            return Ok(None);
        }
        let candidates: Vec<_> = self.members.iter().map(Opened::candidate).collect();
        let disks: Vec<_> = self.members.iter().map(|member| member.disk.clone()).collect();
        let kernels = options.driver.kernels;
        let (plan, geometry) = (&self.array.read_write, self.plan.geometry());
        let log = rescue::ppl_writes(self.array, plan, &candidates, &disks, geometry, kernels);
        self.plan.check_logs(&log.gaps)?;
        Ok(Some(log))
    }

    /// Replays the partial parity log, durably. Returns the position from which on redundancy is in
    /// doubt afterwards.
    ///
    /// A crash in the middle leaves logs and members unchanged or partly replayed: the next start
    /// repeats the replay.
    fn replay(&self, log: Option<LogReplay>) -> Result<Option<u64>, StartError> {
        let Some(log) = log else { return Ok(self.plan.resync_offset(None)) };
        let mut written = Vec::new();
        for rescue::LogWrite { candidate, sector, bytes } in log.writes {
            let disk = &self.members[candidate].disk;
            disk.write(sector, &bytes).map_err(self.failed(candidate, "replay its log"))?;
            written.push(candidate);
        }
        let writes = written.len();
        written.sort_unstable();
        written.dedup();
        let members = written.len();
        for candidate in written {
            let disk = &self.members[candidate].disk;
            disk.sync().map_err(self.failed(candidate, "replay its log"))?;
        }
        tracing::info!(writes, members, "partial parity log replayed");
        Ok(self.plan.resync_offset(log.verdict))
    }

    fn failed(
        &self,
        candidate: usize,
        doing: &'static str,
    ) -> impl FnOnce(std::io::Error) -> StartError {
        let name = self.members[candidate].disk.name();
        move |source| StartError::Member { name, doing, source }
    }

    /// The partial parity log, if the array has one: writes must be logged while it runs.
    fn log(&self) -> Option<PartialParityArea> {
        let defining = self.plan.defining();
        if self.plan.geometry().level() != Level::Raid5 || defining.ppl.is_none() {
            return None;
        }
        // A device without an area, or with one between its blocks, cannot be written to.
        let sectors = |device: &StartDevice| {
            let block = u64::from(self.members[device.candidate].disk.logical_block());
            let area = self.log_area(device.candidate);
            let area = area.filter(|it| (it.sector * SECTOR_BYTES).is_multiple_of(block));
            area.map_or(0, |area| area.sectors)
        };
        let sectors = self.plan.devices().iter().map(sectors).min()?;
        Some(PartialParityArea { sectors, signature: PplHeader::signature_of(defining.set_uuid) })
    }

    /// The area of a device's partial parity log, if the array has one: a device whose superblock
    /// is behind may only keep the place.
    fn log_area(&self, candidate: usize) -> Option<Area> {
        self.plan.defining().ppl?;
        let area = self.metadata[candidate].log_area?;
        let sectors = self.members[candidate].disk.sectors();
        area.sector.checked_add(area.sectors).filter(|end| *end <= sectors)?;
        Some(area)
    }

    /// The bitmap that the start uses, and its bits.
    fn read_bitmap(&self) -> Result<Option<(StartBitmap, Vec<u8>)>, StartError> {
        let Some((candidate, _)) = self.plan.bitmap() else { return Ok(None) };
        let name = || self.members[candidate].disk.name();
        let failed = |problem| StartError::Bitmap { name: name(), problem };
        bitmap::whole(&self.plan, self.members).map_err(failed)
    }

    /// `bitmap`: the header of the member that defines the array.
    ///
    /// A RAID 1 may have been interrupted while it grew: all members get the number of slots that
    /// the freshest has.
    fn metadata_devices(&self, bitmap: Option<&BitmapHeader>) -> Vec<MetadataDevice> {
        let slots = self.plan.defining().raid_disks;
        let is_mirror = self.plan.geometry().level() == Level::Raid1;
        let device = |StartDevice { candidate, .. }| {
            let (member, metadata): (&Opened, &MemberMetadata) =
                (&self.members[candidate], &self.metadata[candidate]);
            MetadataDevice {
                number: DeviceNumber(metadata.dev_number),
                disk: member.disk.clone(),
                superblock: match is_mirror {
                    true => member.superblock.with_slots(slots),
                    false => member.superblock.clone(),
                },
                bitmap: metadata.bitmap.zip(bitmap.cloned()),
                ppl: self.log_area(candidate),
            }
        };
        self.plan.devices().into_iter().map(device).collect()
    }

    /// Members for spares that may get a slot while the array runs.
    fn spares(
        &self,
        bad_blocks: &mut Vec<(usize, BadBlockList)>,
    ) -> Vec<(DeviceNumber, Box<dyn array::Member>)> {
        let devices = self.plan.devices().into_iter().filter(|device| device.is_spare);
        let member = |StartDevice { candidate, number, .. }: StartDevice| {
            let from = self.metadata[candidate].data_offset;
            let area = from..from + self.plan.missing_sectors();
            (DeviceNumber(number), self.member_of(candidate, area, bad_blocks))
        };
        devices.map(member).collect()
    }

    /// The settings with what the superblocks say of each member.
    fn data_plane(&self, given: DataPlaneConfig) -> DataPlaneConfig {
        let rebuilding = self.plan.rebuilding().iter().map(|it| (it.slot, &it.source));
        let serving = self.plan.serving().iter().map(|(slot, source)| (*slot, source));
        let mut plane = given;
        for (slot, source) in serving.chain(rebuilding) {
            let member = &self.metadata[source.candidate];
            if member.write_mostly {
                plane.write_mostly.insert(slot.0);
            }
            if member.failfast {
                plane.failfast.insert(slot.0);
            }
        }
        plane
    }

    fn member(
        &self,
        source: &Source,
        bad_blocks: &mut Vec<(usize, BadBlockList)>,
    ) -> Box<dyn array::Member> {
        self.member_of(source.candidate, self.plan.data_area(source), bad_blocks)
    }

    fn member_of(
        &self,
        candidate: usize,
        area: Range<u64>,
        bad_blocks: &mut Vec<(usize, BadBlockList)>,
    ) -> Box<dyn array::Member> {
        let member = self.members[candidate].member(area, self.log_area(candidate));
        match bad_blocks.iter().position(|(of, _)| *of == candidate) {
            Some(at) => Box::new(BadBlockMember::new(member, bad_blocks.swap_remove(at).1)),
            None => member,
        }
    }

    /// What replaces the members of slots.
    fn replacements(
        &self,
        bad_blocks: &mut Vec<(usize, BadBlockList)>,
    ) -> Vec<(MemberIdx, Box<dyn array::Member>)> {
        let replacing = self.plan.replacing().iter();
        replacing.map(|it| (it.slot, self.member(&it.source, bad_blocks))).collect()
    }

    fn member_specs(&self, bad_blocks: &mut Vec<(usize, BadBlockList)>) -> Vec<MemberSpec> {
        let missing = || MemberSpec::Missing { sectors: self.plan.missing_sectors() };
        let mut specs: Vec<MemberSpec> =
            (0..self.plan.geometry().members()).map(|_| missing()).collect();
        let rebuilding = self.plan.rebuilding().iter().map(|it| (it.slot, &it.source));
        let serving = self.plan.serving().iter().map(|(slot, source)| (*slot, source));
        for (slot, source) in serving.chain(rebuilding) {
            specs[slot.index()] = MemberSpec::Ready(self.member(source, bad_blocks));
        }
        specs
    }
}
