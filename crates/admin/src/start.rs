//! Starts an array after the assembly decision.
//!
//! Invariant: an array that would lose or mix data is refused, with the decision's reason. In
//! order: logs are replayed into the members and made durable, then the engine and its metadata
//! manager take over. Nothing else is written before the first write of a host: a start leaves no
//! trace.

use array::{
    ArrayMetadata, ArraySpec, BadBlockList, BadBlockMember, BuildError, Driver, DriverOptions,
    MemberSpec, MetadataDevice,
};
use engine::{DeviceNumber, ManagedBitmap, ManagedDevice, MetadataConfig, MetadataManager};
use md::assemble::{Array, Member, MemberState, Plan, Replay, Shape, Source, only_parity};
use md::ondisk::bitmap::{BitmapHeader, BitmapKind, sync_sectors, uuid_on_disk};
use md::ondisk::ppl::PplVerdict;
use md::ondisk::superblock::DeviceState;
use md::ondisk::{MemberMetadata, Role};
use md::{Geometry, Level, MemberIdx};
use thiserror::Error;

use crate::{Opened, rescue};

/// Options for starting an array.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Options of the engine.
    pub driver: DriverOptions,
    /// Memory for stripe work, in bytes.
    pub stripe_cache_bytes: u64,
    /// Operations in flight per member.
    pub queue_depth: usize,
}

impl Default for StartOptions {
    fn default() -> StartOptions {
        StartOptions {
            driver: DriverOptions::default(),
            stripe_cache_bytes: engine::DEFAULT_STRIPE_CACHE_BYTES,
            queue_depth: usize::MAX,
        }
    }
}

/// Why an array was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The assembly decided against it, or it needs an unsupported feature: sentences.
    #[error("{0}")]
    Refused(String),
    /// A member cannot be read or written.
    #[error("{name}: cannot {doing}: {}", sys::reason(source))]
    Member {
        /// Name of the member.
        name: String,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// It cannot be assembled.
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
    let plan = &array.read_write;
    if !plan.verdict.runs() {
        return Err(StartError::Refused(why_not(plan)));
    }
    let geometry = match &array.shape {
        Ok(Shape::Settled(geometry)) => geometry,
        Ok(Shape::Reshaping(_)) => {
            return refused("The array is in the middle of a reshape: it can only be read.");
        }
        Err(why) => return refused(why),
    };
    let metadata: Vec<MemberMetadata> =
        members.iter().map(|member| member.superblock.metadata()).collect();
    let mut it =
        Starting { array, plan, geometry, members, metadata: &metadata, bad_blocks: Vec::new() };
    it.check()?;
    it.bad_blocks = it.read_bad_blocks()?;
    let resync_offset = it.replay(options)?;
    let manager = it.manager(resync_offset, options.driver.shards.max(1))?;
    let devices = it.metadata_devices()?;
    let bad_blocks = std::mem::take(&mut it.bad_blocks);
    let spec = ArraySpec {
        level: geometry.level(),
        layout: geometry.layout(),
        chunk_sectors: it.defining().chunk_sectors.into(),
        members: it.member_specs(bad_blocks),
        stripe_cache_bytes: options.stripe_cache_bytes,
        queue_depth: options.queue_depth,
    };
    let metadata = ArrayMetadata { manager, devices, notes: it.notes() };
    let shards = Driver::managed(spec, &options.driver, metadata).map_err(StartError::Build)?;
    let (is, should) = (shards[0].geometry().array_sectors(), geometry.array_sectors());
    assert_eq!(is, should, "the members give the geometry that the superblocks describe");
    Ok(shards)
}

fn refused<T>(why: impl Into<String>) -> Result<T, StartError> {
    Err(StartError::Refused(why.into()))
}

fn why_not(plan: &Plan) -> String {
    use md::assemble::Verdict;
    match &plan.verdict {
        Verdict::NeedsForce { risk, .. } => risk.clone(),
        Verdict::Refused { why } => why.clone(),
        Verdict::RunPartial { lost } => lost.clone(),
        Verdict::Run | Verdict::RunDegraded { .. } => unreachable!("the plan runs"),
    }
}

struct Starting<'a> {
    array: &'a Array,
    plan: &'a Plan,
    geometry: &'a Geometry,
    members: &'a [Opened],
    /// By candidate.
    metadata: &'a [MemberMetadata],
    /// The members that serve and have bad blocks.
    bad_blocks: Vec<(usize, BadBlockList)>,
}

impl Starting<'_> {
    fn defining(&self) -> &MemberMetadata {
        &self.metadata[self.array.defining]
    }

    /// The in-sync members, with their slots: those that the engine uses.
    fn serving(&self) -> impl Iterator<Item = (MemberIdx, &Source)> {
        let slots = self.plan.slots.iter().enumerate();
        slots.filter_map(|(slot, source)| {
            let source = source.as_ref().filter(|source| source.is_whole())?;
            Some((MemberIdx(slot as u16), source))
        })
    }

    /// Refuses features that the engine does not support and would silently get wrong.
    fn check(&self) -> Result<(), StartError> {
        if self.defining().has_journal {
            return refused(
                "The array has a journal: it can be read here, including data that is only in the \
                 journal, but not written.",
            );
        }
        for (_, source) in self.serving() {
            let disk = &self.members[source.candidate].disk;
            if disk.is_read_only() {
                return refused(format!("{} was opened read-only.", disk.name()));
            }
        }
        self.is_in_blocks()?;
        self.is_as_examined()
    }

    /// Whether the array uses whole blocks of its members: the engine works in blocks, and would
    /// compute another geometry from members that are rounded down.
    fn is_in_blocks(&self) -> Result<(), StartError> {
        let disk = |source: &Source| &self.members[source.candidate].disk;
        let widest = self.serving().max_by_key(|(_, source)| disk(source).logical_block());
        let Some((_, widest)) = widest else { return Ok(()) };
        let block = disk(widest).logical_block();
        for (slot, source) in self.serving() {
            let sectors = self.geometry.member_used_sectors(slot);
            if (sectors * md::SECTOR_BYTES).is_multiple_of(block.into()) {
                continue;
            }
            let field = match self.geometry.level() {
                Level::Linear | Level::Raid0 => "data_size",
                _ => "size",
            };
            let (name, other) = (disk(source).name(), disk(widest).name());
            return refused(format!(
                "{name}: the array uses {sectors} sectors of it ({field}), which is not a multiple \
                 of the logical block of {block} bytes that {other} has."
            ));
        }
        Ok(())
    }

    /// Whether the superblocks are still those that the decision was made from: another start from
    /// the same state may have left a member behind since. The devices are locked, so that nothing
    /// changes after this.
    fn is_as_examined(&self) -> Result<(), StartError> {
        let devices = self.devices();
        for Member { candidate, .. } in &self.array.members {
            let member = &self.members[*candidate];
            let is_needed = *candidate == self.array.defining
                || devices.iter().any(|(device, _)| device == candidate);
            let is_same = match Opened::disk(member.disk.clone()) {
                Some(now) => now.superblock == member.superblock && now.checksum == member.checksum,
                // A member that is left out may be damaged by now.
                None => !is_needed,
            };
            if !is_same {
                return refused(format!(
                    "{}: its superblock has changed since it was examined, or cannot be read any \
                     more. Examine the members again.",
                    member.disk.name()
                ));
            }
        }
        Ok(())
    }

    /// The bad block lists that are not empty, by candidate.
    fn read_bad_blocks(&self) -> Result<Vec<(usize, BadBlockList)>, StartError> {
        let mut lists = Vec::new();
        for (_, source) in self.serving() {
            let candidate = source.candidate;
            let Some(place) = self.metadata[candidate].bad_blocks else { continue };
            let disk = &self.members[candidate].disk;
            let list =
                BadBlockList::read(disk.clone(), place, source.data_offset).map_err(|problem| {
                    let name = disk.name();
                    StartError::Refused(format!("{name}: its list of bad blocks: {problem}."))
                })?;
            if !list.is_empty() {
                lists.push((candidate, list));
            }
        }
        Ok(lists)
    }

    /// Replays the partial parity log, durably. Returns the position from which on redundancy is in
    /// doubt afterwards.
    ///
    /// A crash in the middle leaves logs and members unchanged or partly replayed: the next start
    /// repeats the replay.
    fn replay(&self, options: &StartOptions) -> Result<Option<u64>, StartError> {
        let resync = self.plan.repairs.resync.map(|resync| resync.from);
        if self.plan.repairs.replay != Some(Replay::Ppl) {
            return Ok(resync);
        }
        let candidates: Vec<_> = self.members.iter().map(Opened::candidate).collect();
        let disks: Vec<_> = self.members.iter().map(|member| member.disk.clone()).collect();
        let kernels = options.driver.kernels;
        let log =
            rescue::ppl_writes(self.array, self.plan, &candidates, &disks, self.geometry, kernels);
        self.is_covered(&log.gaps)?;
        let mut written = Vec::new();
        for rescue::LogWrite { candidate, sector, bytes } in log.writes {
            let disk = &disks[candidate];
            disk.write(sector, &bytes).map_err(self.failed(candidate, "replay its log"))?;
            written.push(candidate);
        }
        written.sort_unstable();
        written.dedup();
        for candidate in written {
            disks[candidate].sync().map_err(self.failed(candidate, "replay its log"))?;
        }
        Ok(if log.verdict == Some(PplVerdict::Clean) { None } else { resync })
    }

    /// Whether the parity is valid after the replay. It does not matter for a member that is not in
    /// sync: nothing is recovered from its parity, since its data are missing too.
    fn is_covered(&self, gaps: &[(MemberIdx, String)]) -> Result<(), StartError> {
        let serving: Vec<_> = self.serving().collect();
        let slots = (0..self.geometry.members() as u16).map(MemberIdx);
        let missing: Vec<MemberIdx> =
            slots.filter(|slot| serving.iter().all(|(of, _)| of != slot)).collect();
        if only_parity(self.geometry, &missing) {
            return Ok(());
        }
        for (slot, source) in serving {
            let Some((_, problem)) = gaps.iter().find(|(of, _)| *of == slot) else { continue };
            let name = self.members[source.candidate].disk.name();
            return refused(format!(
                "{name}: {problem}. The array was dirty when it stopped, and slot {} is missing: \
                 without that log, data recovered for the slot may be wrong in stripes with writes \
                 in flight, including blocks that were not written. Find the missing member; the \
                 array can be read without it.",
                missing[0]
            ));
        }
        Ok(())
    }

    fn failed(
        &self,
        candidate: usize,
        doing: &'static str,
    ) -> impl FnOnce(std::io::Error) -> StartError {
        let name = self.members[candidate].disk.name();
        move |source| StartError::Member { name, doing, source }
    }

    /// The devices to keep metadata on, by candidate: members in sync with their slots, and spares.
    /// A rebuild that had begun is not continued here: see [`Starting::manager`].
    fn devices(&self) -> Vec<(usize, Option<MemberIdx>)> {
        let mut devices: Vec<_> =
            self.serving().map(|(slot, source)| (source.candidate, Some(slot))).collect();
        for member in &self.array.members {
            let is_spare = matches!(
                member.state,
                MemberState::Spare
                    | MemberState::Recovering { .. }
                    | MemberState::Replacement { .. }
            );
            let known = devices.iter().any(|(candidate, _)| *candidate == member.candidate);
            if is_spare && !known {
                devices.push((member.candidate, None));
            }
        }
        devices
    }

    /// The slot that a candidate is being rebuilt for, or is to take over, and the sector up to
    /// which it is in sync; `None`: completely.
    fn rebuilt(&self, candidate: usize) -> Option<(MemberIdx, Option<u64>)> {
        let mut members = self.array.members.iter();
        match members.find(|member| member.candidate == candidate)?.state {
            MemberState::Recovering { slot, up_to } => Some((slot, Some(up_to))),
            MemberState::Replacement { slot, up_to } => Some((slot, up_to)),
            _ => None,
        }
    }

    /// Rebuild progress that is lost once the array is written to: a sentence for each rebuild that
    /// had begun.
    fn notes(&self) -> Vec<String> {
        let begun = self.devices().into_iter().filter_map(|(candidate, serves)| {
            let (slot, up_to) = self.rebuilt(candidate).filter(|_| serves.is_none())?;
            let far = match up_to {
                Some(0) => return None,
                Some(sector) => format!("up to sector {sector} of its data"),
                None => "completely".into(),
            };
            let name = self.members[candidate].disk.name();
            Some(format!(
                "{name} is in sync {far} for slot {slot}, but not used: its rebuild starts from \
                 the beginning once the array has been written to."
            ))
        });
        begun.collect()
    }

    fn manager(
        &self,
        resync_offset: Option<u64>,
        shards: u16,
    ) -> Result<MetadataManager, StartError> {
        let mut state = self.members[self.array.defining].superblock.state();
        let mut found = state.clone();
        state.resync_offset = resync_offset;
        let mut devices = Vec::new();
        for (candidate, slot) in self.devices() {
            let number = self.metadata[candidate].dev_number;
            // State that only its own superblock has.
            let own = self.members[candidate].superblock.state();
            let own = own.devices.get(number as usize).cloned().flatten();
            // A device under rebuild gets no writes, so its data are out of date from the first
            // write on. It keeps its slot, in sync up to sector 0: Linux restarts its rebuild.
            let rebuilt = self.rebuilt(candidate);
            let role = slot.or(rebuilt.map(|(slot, _)| slot));
            let role = role.map_or(Role::Spare, |slot| Role::Slot(slot.0));
            let mut device = own.unwrap_or_else(|| DeviceState::new(role));
            if let Some(Some(listed)) = found.devices.get_mut(number as usize) {
                *listed = DeviceState { role: listed.role, ..device.clone() };
            }
            device.role = role;
            device.recovery_offset = (slot.is_none() && rebuilt.is_some()).then_some(0);
            device.recovery_by_bitmap = false;
            device.replacement &= slot.is_none() && rebuilt.is_some();
            device.bad_blocks_in_use = self.bad_blocks.iter().any(|(of, _)| *of == candidate);
            if state.devices.len() <= number as usize {
                state.devices.resize(number as usize + 1, None);
            }
            state.devices[number as usize] = Some(device);
            let events = self.metadata[candidate].events;
            devices.push(ManagedDevice { number: DeviceNumber(number), slot, events });
        }
        let in_turn = devices.iter().zip(self.devices()).any(|(_, (candidate, _))| {
            let member = &self.members[candidate];
            let block = member.disk.logical_block() as usize;
            member.superblock.encode(block).len() > block
        });
        Ok(MetadataManager::new(MetadataConfig {
            geometry: self.geometry.clone(),
            shards,
            devices,
            state,
            found,
            bitmap: self.bitmap()?,
            superblocks_in_turn: in_turn,
            checkpoint_nanos: engine::DEFAULT_CHECKPOINT_NANOS,
        }))
    }

    /// The bitmap of the member that defines the array; bits that are not valid count as set.
    fn bitmap(&self) -> Result<Option<ManagedBitmap>, StartError> {
        let defining = self.defining();
        let Some((header, bits)) = self.read_bitmap(self.array.defining)? else { return Ok(None) };
        let by_bitmap = self.plan.repairs.resync.is_none_or(|resync| resync.by_bitmap);
        let stale = header.is_stale(defining.events);
        Ok(Some(ManagedBitmap {
            chunk_sectors: u64::from(header.chunk_bytes) / md::SECTOR_BYTES,
            daemon_sleep_nanos: u64::from(header.daemon_sleep_s) * 1_000_000_000,
            events_cleared: header.events_cleared,
            bits,
            stale: stale || !by_bitmap,
        }))
    }

    /// Header and bits of a member's bitmap.
    fn read_bitmap(&self, candidate: usize) -> Result<Option<(BitmapHeader, Vec<u8>)>, StartError> {
        let metadata = &self.metadata[candidate];
        let Some(area) = metadata.bitmap.filter(|_| self.geometry.level() > Level::Raid0) else {
            return Ok(None);
        };
        let failed = |problem: String| {
            let name = self.members[candidate].disk.name();
            StartError::Refused(format!("{name}: its bitmap cannot be used: {problem}."))
        };
        let disk = &self.members[candidate].disk;
        let mut head = vec![0; 4096];
        let read = disk.read(area.sector, &mut head);
        read.map_err(|error| failed(error.to_string()))?;
        let header = BitmapHeader::decode(&head).map_err(|error| failed(error.to_string()))?;
        let checked = header.check(uuid_on_disk(metadata.set_uuid, metadata.version));
        checked.map_err(|error| failed(error.to_string()))?;
        if header.kind() != Some(BitmapKind::Plain) {
            return Err(failed("bitmaps of this type are supported for reading only".into()));
        }
        let covered = sync_sectors(self.geometry).unwrap_or(0);
        let chunk = u64::from(header.chunk_bytes) / md::SECTOR_BYTES;
        let len = 256 + covered.div_ceil(chunk.max(1)).div_ceil(8);
        let sectors = len.div_ceil(md::SECTOR_BYTES);
        if sectors > area.sectors {
            return Err(failed("it is longer than the area reserved for it".into()));
        }
        let mut file = vec![0; (sectors * md::SECTOR_BYTES) as usize];
        let read = disk.read(area.sector, &mut file);
        read.map_err(|error| failed(error.to_string()))?;
        Ok(Some((header, file[256..len as usize].to_vec())))
    }

    fn metadata_devices(&self) -> Result<Vec<MetadataDevice>, StartError> {
        let defining = self.read_bitmap(self.array.defining)?.map(|(header, _)| header);
        let device = |(candidate, _): (usize, Option<MemberIdx>)| {
            let (member, metadata) = (&self.members[candidate], &self.metadata[candidate]);
            MetadataDevice {
                number: DeviceNumber(metadata.dev_number),
                disk: member.disk.clone(),
                superblock: member.superblock.clone(),
                bitmap: metadata.bitmap.zip(defining.clone()),
                ppl: metadata.ppl.map(|ppl| ppl.area),
            }
        };
        Ok(self.devices().into_iter().map(device).collect())
    }

    fn member_specs(&self, mut bad_blocks: Vec<(usize, BadBlockList)>) -> Vec<MemberSpec> {
        let defining = self.defining();
        let missing = || MemberSpec::Missing { sectors: defining.used_sectors };
        let mut specs: Vec<MemberSpec> = (0..self.geometry.members()).map(|_| missing()).collect();
        for (slot, source) in self.serving() {
            let metadata = &self.metadata[source.candidate];
            let sectors = match self.geometry.level() {
                Level::Linear | Level::Raid0 => metadata.data_sectors,
                _ => defining.used_sectors,
            };
            let area = source.data_offset..source.data_offset + sectors;
            let mut member = self.members[source.candidate].member(area);
            if let Some(at) = bad_blocks.iter().position(|(of, _)| *of == source.candidate) {
                member = Box::new(BadBlockMember::new(member, bad_blocks.swap_remove(at).1));
            }
            specs[slot.index()] = MemberSpec::Ready(member);
        }
        specs
    }
}
