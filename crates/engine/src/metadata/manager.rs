//! The metadata manager: its state, its inputs, and the answers to shards when metadata are
//! durable.
//!
//! It runs one job at a time; `work` picks the next one from the pending requests and the state of
//! the members.
//!
//! Invariant: `on_disk` is what every serving member durably holds, and an answer (`Granted`,
//! `Recorded`, `Stopped`) is sent only when the metadata that it promises are durable. Called by an
//! executor, with batches of inputs; performs no I/O itself.

mod devices;
mod lacking;
mod rebuilds;
mod removals;
mod replacements;
mod work;

use std::ops::Range;
use std::sync::Arc;

use md::ondisk::Role;
use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::{Geometry, Kind, Level, MemberIdx, StripeNo};

use self::devices::{Device, in_service, is_passed_by};
use self::rebuilds::Joining;
use self::removals::Leaving;
use super::bits::Bits;
use super::event_counts::EventCounts;
use super::job::{Goal, Job, Phase, Revision, Update};
use super::types::{
    ManagedDevice, MetadataConfig, MetadataEffect, MetadataInput, MetadataMode, MetadataStatus,
    ReadOnlyReason,
};
use crate::{Control, ControlEvent, IntentMap, IoError, MemberSet, RequestError, Walk};

/// Contents of the members' superblocks.
struct OnDisk {
    /// What the last update wrote, or the start found.
    state: Arc<ArrayState>,
    dirty: bool,
    resync_offset: Option<u64>,
    policy: Policy,
    /// To be written again before a loss is recorded: see [`EventCounts::written`].
    taken_back: Option<Arc<ArrayState>>,
}

struct Asked {
    shard: u16,
    first_bit: u32,
    bits: u32,
}

/// The last run of a resync, or of rebuilds: reports of earlier ones are ignored.
#[derive(Default)]
struct Run {
    number: u32,
    /// Its error, if it is stalled.
    stalled: Option<RequestError>,
}

impl Run {
    /// A new run; returns its number.
    fn begin(&mut self) -> u32 {
        *self = Run { number: self.number + 1, stalled: None };
        self.number
    }
}

/// The metadata manager; see the module documentation.
pub struct MetadataManager {
    geometry: Geometry,
    map: IntentMap,
    shards: u16,
    /// By shard: number of its out-of-sync reports.
    reports: Vec<u64>,
    devices: Vec<Device>,
    /// By device number: its current state.
    states: Vec<Option<DeviceState>>,
    in_turn: bool,
    /// Policy of the stopped array.
    policy: Policy,
    checkpoint_nanos: u64,
    bits_ahead_nanos: u64,
    bits: Option<Bits>,
    on_disk: OnDisk,
    counts: EventCounts,
    /// State of the freshest superblock at the start, for members that are behind it.
    found: Arc<ArrayState>,
    /// What has happened, and what of it the superblocks record.
    wanted: Revision,
    recorded: Revision,
    /// Devices that are to leave the array.
    leaving: Vec<Leaving>,
    /// A shard relies on the superblocks: before that, a start leaves no trace.
    touched: bool,
    resync: Option<u64>,
    resync_run: Run,
    rebuild_run: Run,
    joining: Vec<Joining>,
    /// Places of replacements that have taken over by the superblocks, which shards get when the
    /// former members are stale for certain.
    taken_over: Vec<MemberIdx>,
    /// Members have lost completed writes, and the array cannot run without them: it is out of sync
    /// everywhere, no resync can change that, and it never stops clean.
    not_durable: bool,
    /// The areas of partial parity logs hold none of an earlier life.
    logs_emptied: bool,
    checkpoint_at: u64,
    /// By bit: number of shards that hold it.
    held: Vec<u16>,
    held_total: u64,
    asked: Vec<Asked>,
    /// Failures that shards wait for: (shard, epoch).
    epochs: Vec<(u16, u64)>,
    mode: MetadataMode,
    stopping: bool,
    job: Option<Job>,
    /// A superblock update for which some members had no room: written again before any other job.
    unfinished: Option<Update>,
    retry_at: u64,
    next_token: u64,
    now: u64,
    timer: Option<u64>,
}

impl MetadataManager {
    /// Takes over an array's metadata. Nothing is written before the first write of a host.
    ///
    /// # Panics
    /// If a bitmap is given to a level that can have none, or with a chunk that [`IntentMap`]
    /// refuses, or two devices have one number: the assembly has checked that.
    pub fn new(config: MetadataConfig) -> MetadataManager {
        let MetadataConfig { geometry, state, found, .. } = config;
        let found = Arc::new(found);
        let ArrayState { events, resync_offset, policy, devices: mut states, .. } = state;
        let map = match &config.bitmap {
            Some(kept) => IntentMap::bitmap(&geometry, kept.chunk_sectors)
                .expect("the assembly has checked the bitmap"),
            None => IntentMap::whole_array(&geometry),
        };
        let bits = config.bitmap.as_ref().map(|kept| Bits::new(kept, &map, resync_offset));
        let device = |kept: ManagedDevice| {
            let state = states.get(kept.number.0 as usize).and_then(Option::as_ref);
            let mut device = in_service(kept, state.and_then(|state| state.recovery_offset));
            device.place = replacements::place(&geometry, &kept);
            if let Some((member, from)) = device.kept.slot.zip(device.rebuilt) {
                let by_bitmap = state.is_some_and(|state| state.recovery_by_bitmap);
                let all = from..geometry.member_used_sectors(member);
                device.out_of_sync = match bits.as_ref().filter(|_| by_bitmap) {
                    Some(bits) => lacking::under(&geometry, &map, member, all, |bit| bits.has(bit)),
                    None => vec![all],
                };
            }
            device
        };
        let devices: Vec<Device> = config.devices.into_iter().map(device).collect();
        let mut numbers: Vec<u32> = devices.iter().map(|it| it.kept.number.0).collect();
        numbers.sort_unstable();
        let is_unique = numbers.windows(2).all(|two| two[0] != two[1]);
        assert!(is_unique, "devices of an array have numbers of their own: {numbers:?}");
        let mut bits = bits;
        // A degraded array may have nothing to resync, and yet writes were in flight.
        let from = resync_offset.into_iter().chain(found.resync_offset).min();
        let doubtful = replacements::Doubtful { geometry: &geometry, map: &map, from };
        let mut devices = devices;
        for device in devices.iter_mut().filter(|device| device.kept.replaces) {
            doubtful.copy_again(device, bits.as_ref(), &mut states);
        }
        // A missing member that the superblocks do not record: it must be recorded before writes
        // rely on it.
        let mut losses = 0;
        for (number, state) in (0u32..).zip(&mut states) {
            let here = devices.iter().any(|device| device.kept.number.0 == number);
            let lost = |state: &&mut DeviceState| !here && matches!(state.role, Role::Slot(_));
            if let Some(state) = state.as_mut().filter(lost) {
                *state = DeviceState::new(Role::Faulty);
                losses += 1;
            }
        }
        if devices.iter().any(|device| device.rebuilt.is_some()) {
            bits.iter_mut().for_each(Bits::write_all);
        }
        let serving = devices.iter().filter(|device| device.is_in_sync()).count();
        // A device that is being rebuilt, or is to replace another, records the position up to
        // which it is in sync: it gets no writes, and its superblock may never be updated.
        let passed_by = devices.iter().any(|device| is_passed_by(&device.kept, &states));
        let is_incomplete = serving < geometry.members() || passed_by;
        let counts = devices.iter().map(|device| device.kept.events);
        let counts = EventCounts::start(events, counts, is_incomplete);
        // A start that has replayed logs leaves the array dirty, as it was found. Who was not there
        // missed the replay, so a loss is recorded before the superblocks say clean.
        let replayed =
            policy == Policy::Ppl && resync_offset.is_none() && found.resync_offset.is_some();
        MetadataManager {
            shards: config.shards,
            reports: vec![0; usize::from(config.shards)],
            states,
            in_turn: config.superblocks_in_turn,
            policy,
            checkpoint_nanos: config.checkpoint_nanos,
            bits_ahead_nanos: config.bits_ahead_nanos,
            bits,
            on_disk: OnDisk {
                state: found.clone(),
                dirty: replayed,
                resync_offset: if replayed { found.resync_offset } else { resync_offset },
                policy,
                taken_back: None,
            },
            counts,
            found,
            wanted: Revision { losses, ..Revision::default() },
            recorded: Revision::default(),
            leaving: Vec::new(),
            touched: replayed,
            resync: resync_offset,
            resync_run: Run::default(),
            rebuild_run: Run::default(),
            joining: Vec::new(),
            taken_over: Vec::new(),
            not_durable: false,
            logs_emptied: false,
            checkpoint_at: 0,
            held: vec![0; map.bits() as usize],
            held_total: 0,
            asked: Vec::new(),
            epochs: Vec::new(),
            mode: MetadataMode::Running,
            stopping: false,
            job: None,
            unfinished: None,
            retry_at: 0,
            next_token: 0,
            now: 0,
            timer: None,
            devices,
            geometry,
            map,
        }
    }

    /// The bits that shards must request; for [`crate::ShardConfig::intents`]. `None`: this level
    /// has no redundancy, and its superblocks are never updated.
    pub fn intent_map(&self) -> Option<IntentMap> {
        self.updates().then_some(self.map)
    }

    /// Above this position reads must use one fixed copy; for
    /// [`crate::ShardConfig::in_sync_below`]. Later changes are sent to the shards as [`Control`].
    pub fn in_sync_below(&self) -> u64 {
        self.resync.unwrap_or(u64::MAX)
    }

    /// Out-of-sync ranges (redundancy may not match the data), as ascending ranges of positions;
    /// for [`crate::ShardConfig::out_of_sync`].
    pub fn out_of_sync(&self) -> Vec<Range<u64>> {
        let Some(from) = self.resync else { return Vec::new() };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in self.in_need(from) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// The missing members of a parity array whose redundancy is in doubt: it has been started by
    /// force, which takes for their data what parity makes of them, as `mdadm --assemble --force`
    /// does; for [`crate::ShardConfig::missing_by_force`]. Empty for arrays that only lack parity:
    /// these are started without force.
    pub fn missing_by_force(&self) -> MemberSet {
        match self.resync.is_some() && self.lacks_data() {
            true => MemberSet::range(0, self.geometry.members() as u16).minus(self.in_sync()),
            false => MemberSet::EMPTY,
        }
    }

    /// Whether a data block of some row is on a member that is not in sync.
    fn lacks_data(&self) -> bool {
        let Kind::Parity(parity) = self.geometry.kind() else { return false };
        let here = self.in_sync();
        let lacks = |row: u64| parity.row(StripeNo(row)).data.iter().any(|at| !here.contains(at.0));
        (0..parity.rotation() as u64).any(lacks)
    }

    /// The ranges for a resync from this position.
    fn in_need(&self, from: u64) -> Box<dyn Iterator<Item = Range<u64>> + '_> {
        let Some(bits) = &self.bits else {
            // The position comes from a superblock: it may lie behind the end.
            let rest = from..self.map.span();
            return Box::new(Some(rest).filter(|rest| !rest.is_empty()).into_iter());
        };
        let needed = (0..self.map.bits()).filter(|bit| bits.is_needed(*bit));
        Box::new(needed.map(|bit| self.map.positions(bit)))
    }

    /// The resync that the array needs, if any: from the position up to which it is in sync, or
    /// over the bitmap bits that need one. It replaces an earlier one.
    pub fn resync(&mut self) -> Option<Walk> {
        let from = self.resync?;
        if !self.updates() || self.mode != MetadataMode::Running || self.not_durable {
            return None;
        }
        let run = self.resync_run.begin();
        Some(Walk::of_ranges(run, self.in_need(from), self.map.span()))
    }

    /// The current status.
    pub fn status(&self) -> MetadataStatus {
        MetadataStatus {
            mode: self.mode,
            events: self.counts.on_disk(),
            dirty: self.on_disk.dirty,
            found_active: self.on_disk.resync_offset.is_none()
                && self.on_disk.state.resync_offset.is_some(),
            resync_offset: self.resync,
            resync_stalled: self.resync_run.stalled,
            rebuilding: self.rebuilt().map(|(member, _)| member.0).collect(),
            replacing: self.replaced(),
            rebuild_sectors: self.rebuild_sectors(),
            rebuild_stalled: self.rebuild_run.stalled,
            joining: self.joining.len(),
            degraded: self.degraded(),
            held: self.held_total,
            bits_set: self.bits.as_ref().map(Bits::set_bits),
        }
    }

    /// Processes a batch of inputs at time `now` (nanoseconds of any monotonic clock) and appends
    /// effects to `out`. `inputs` is left empty.
    pub fn handle(
        &mut self,
        now: u64,
        inputs: &mut Vec<MetadataInput>,
        out: &mut Vec<MetadataEffect>,
    ) {
        self.now = now;
        for input in inputs.drain(..) {
            if self.mode == MetadataMode::Stopped {
                continue;
            }
            match input {
                MetadataInput::FromShard { shard, event } => self.event(shard, event, out),
                MetadataInput::MetaDone { token, result } => self.meta_done(token, result, out),
                MetadataInput::Timer => self.timer = None,
                MetadataInput::ResyncAt { run, position, stalled } => {
                    self.resync_at(run, position, stalled, out);
                }
                MetadataInput::RebuildAt { run, member, position, stalled } => {
                    if run == self.rebuild_run.number {
                        self.rebuild_run.stalled = stalled;
                        self.rebuild_at(member, position, out);
                    }
                }
                MetadataInput::Checkpoint => self.wanted.checkpoints += 1,
                MetadataInput::Join { number, member, flags, former } => {
                    self.join(number, member, flags, former);
                }
                MetadataInput::AddSpare { number, flags } => self.add_spare(number, flags),
                MetadataInput::Remove { number } => self.remove(number, out),
                MetadataInput::Replace { number, member, flags } => {
                    self.replace(number, member, flags);
                }
                MetadataInput::CancelReplacement { member } => {
                    self.cancel_replacement(member, out);
                }
                MetadataInput::JoinFailed { place } => self.join_failed(place, out),
                MetadataInput::Stop => self.close(true, out),
                MetadataInput::ReadOnly => self.close(false, out),
            }
        }
        self.tick();
        self.run_jobs(out);
        self.order_joins(out);
        self.set_timer(out);
    }

    /// Superblocks of levels without redundancy are written clean at creation, and never again.
    fn updates(&self) -> bool {
        !matches!(self.geometry.level(), Level::Linear | Level::Raid0)
    }

    // ---- what shards say

    fn event(&mut self, shard: u16, event: ControlEvent, out: &mut Vec<MetadataEffect>) {
        match event {
            ControlEvent::Intent { first_bit, bits } => self.intent(shard, first_bit, bits, out),
            ControlEvent::Released { first_bit, bits } => self.released(first_bit, bits),
            ControlEvent::OutOfSync { first_bit, bits } => {
                self.reports[usize::from(shard)] += 1;
                self.redundancy_lost(first_bit, bits, out);
            }
            ControlEvent::MemberFailed { member, error, epoch } => {
                self.touched = true;
                self.epochs.push((shard, epoch));
                let device = self.device_at(member);
                if let Some(at) = device {
                    self.lose(at, error, Lost::ByShard(shard), out);
                }
                let mut joining = self.joining.iter_mut();
                let joining = joining.find(|joining| joining.place == member);
                // Of a shard that has not bound it, this is of the device that was there before.
                if let Some(joining) = joining.filter(|joining| joining.bound.contains(&shard)) {
                    joining.dropped.get_or_insert((Lost::ByShard(shard), error));
                }
            }
            // Metadata cannot record lost writes of a level without redundancy.
            ControlEvent::NotDurable { .. } if self.updates() => {
                self.touched = true;
                self.not_durable = true;
                self.to_shards(Control::NotDurable, out);
                self.redundancy_lost(0, self.map.bits(), out);
            }
            ControlEvent::RebuildBegan { member: place } => self.bound(shard, place, out),
            ControlEvent::BadBlocksAdded { member, .. } => self.bad_blocks_added(member),
            ControlEvent::NotDurable { .. }
            | ControlEvent::Corrected { .. }
            | ControlEvent::Mismatch(_)
            | ControlEvent::CollectDirtyMembers
            | ControlEvent::Written { .. } => {}
        }
    }

    fn intent(&mut self, shard: u16, first_bit: u32, bits: u32, out: &mut Vec<MetadataEffect>) {
        if self.mode != MetadataMode::Running {
            // The command crosses the shard's request.
            return out.push(MetadataEffect::ToShard { shard, control: Control::ReadOnly });
        }
        self.touched = true;
        if let Some(image) = &mut self.bits {
            (first_bit..first_bit + bits).for_each(|bit| image.want(bit));
        }
        self.asked.push(Asked { shard, first_bit, bits });
    }

    fn released(&mut self, first_bit: u32, bits: u32) {
        for bit in first_bit..first_bit + bits {
            let held = &mut self.held[bit as usize];
            assert!(*held > 0, "intent {bit} is given back by a shard that does not hold it");
            *held -= 1;
            self.held_total -= 1;
            if let Some(image) = self.bits.as_mut().filter(|_| *held == 0) {
                image.fade(bit);
            }
        }
    }

    /// A write failed half-way: its range must be resynced, regardless of the progress of a resync.
    fn redundancy_lost(&mut self, first_bit: u32, bits: u32, out: &mut Vec<MetadataEffect>) {
        let first = match &mut self.bits {
            Some(image) => {
                (first_bit..first_bit + bits).for_each(|bit| image.need(bit));
                self.map.positions(first_bit).start
            }
            None => 0,
        };
        let position = self.resync.map_or(first, |at| at.min(first));
        self.resync = Some(position);
        self.wanted.doubts += 1;
        // Reports of the running resync do not account for it.
        self.resync_run.number += 1;
        if let Some(job) = &mut self.job {
            job.redundancy_lost();
        }
        self.tell_in_sync(position, out);
        out.push(MetadataEffect::ResyncNeeded);
    }

    fn resync_at(
        &mut self,
        run: u32,
        position: u64,
        stalled: Option<RequestError>,
        out: &mut Vec<MetadataEffect>,
    ) {
        let Some(before) = self.resync.filter(|_| run == self.resync_run.number) else { return };
        self.resync_run.stalled = stalled;
        let end = self.map.span();
        self.touched = true;
        let position = position.max(before).min(end);
        self.resync = (position < end).then_some(position);
        if let Some(image) = &mut self.bits {
            for bit in self.map.bit_at(before)..self.map.bits() {
                if self.map.positions(bit).end > position {
                    break;
                }
                image.resynced(bit, self.held[bit as usize] > 0);
            }
        }
        self.tell_in_sync(self.in_sync_below(), out);
    }

    fn tell_in_sync(&self, position: u64, out: &mut Vec<MetadataEffect>) {
        out.extend((0..self.shards).zip(&self.reports).map(|(shard, &reports)| {
            let control = Control::InSyncBelow { position, reports };
            MetadataEffect::ToShard { shard, control }
        }));
    }

    fn close(&mut self, stop: bool, out: &mut Vec<MetadataEffect>) {
        self.stopping |= stop;
        if self.mode == MetadataMode::Running {
            self.mode = MetadataMode::Closing;
            // Shards refuse writes that have not begun.
            self.forget_asked(|_| ());
            self.retry_at = 0;
            self.to_shards(Control::ReadOnly, out);
        }
    }

    /// Drops all pending requests.
    fn forget_asked(&mut self, mut tell: impl FnMut(Asked)) {
        for asked in self.asked.drain(..) {
            if let Some(image) = &mut self.bits {
                let range = asked.first_bit..asked.first_bit + asked.bits;
                range.for_each(|bit| image.fade(bit));
            }
            tell(asked);
        }
    }

    fn to_shards(&self, control: Control, out: &mut Vec<MetadataEffect>) {
        let to = |shard| MetadataEffect::ToShard { shard, control: control.clone() };
        out.extend((0..self.shards).map(to));
    }

    // ---- members

    fn device_of(&self, member: MemberIdx) -> Option<usize> {
        let is_member = |device: &Device| {
            !device.failed && device.kept.slot == Some(member) && !device.kept.replaces
        };
        self.devices.iter().position(is_member)
    }

    /// Devices that serve slots or are to serve them: metadata must be durable on all of them.
    fn serving(&self) -> impl Iterator<Item = usize> {
        let serves =
            |at: &usize| !self.devices[*at].failed && self.devices[*at].kept.slot.is_some();
        (0..self.devices.len()).filter(serves)
    }

    /// Slots whose members are in sync, and recorded so.
    fn in_sync(&self) -> MemberSet {
        let whole = self.devices.iter().filter(|device| device.is_in_sync());
        whole.filter_map(|device| device.kept.slot).map(|slot| slot.0).collect()
    }

    fn degraded(&self) -> usize {
        self.geometry.members() - self.in_sync().len()
    }

    /// Takes a device out of service, unless the array cannot run without it.
    fn lose(
        &mut self,
        at: usize,
        error: Option<IoError>,
        lost: Lost,
        out: &mut Vec<MetadataEffect>,
    ) {
        if self.devices[at].failed || matches!(self.mode, MetadataMode::ReadOnly(_)) {
            return;
        }
        let ManagedDevice { number, slot, replaces, .. } = self.devices[at].kept;
        let left = slot.map_or(self.in_sync(), |slot| self.in_sync().minus(MemberSet::one(slot.0)));
        let is_member = slot.is_some() && !replaces;
        if is_member && !self.geometry.enough(|member| left.contains(member.0)) {
            let why = match lost {
                Lost::ByShard(_) => ReadOnlyReason::TooFewMembers { device: number },
                Lost::Metadata => ReadOnlyReason::MetadataUnwritable { device: number },
            };
            return self.give_up(why, out);
        }
        let takes_over = self.job.as_ref().is_some_and(
            |job| matches!(&job.goal, Goal::Update(update) if self.takes_over(at, &update.state)),
        );
        // It had no room for its superblock, which comes first: nothing gives it the slot so far.
        let is_void = |update: &Update| {
            self.takes_over(at, &update.state) && self.no_device_has(at, &update.state)
        };
        if self.unfinished.as_ref().is_some_and(is_void) {
            self.unfinished = None;
        }
        self.devices[at].failed = true;
        self.bits.iter_mut().for_each(Bits::member_lost);
        if self.devices[at].rebuilt.take().is_some() {
            out.push(MetadataEffect::RebuildNeeded);
        }
        if let Some(Some(state)) = self.states.get_mut(number.0 as usize) {
            *state = DeviceState::new(Role::Faulty);
        }
        self.touched = true;
        self.wanted.losses += 1;
        self.counts.lost();
        if let Some(job) = &mut self.job {
            job.drop_device(at);
            // Writes that the job has omitted or added may be wrong now. A superblock phase is
            // completed: it is safe on the remaining devices. But no member gives its slot to a
            // replacement that is out. The loss of another one does not end that phase: what takes
            // over may have the event count already, and contents of an update that others lack.
            let is_first = job.phase == Some(Phase::First);
            job.spoiled |= !job.writes_superblocks() || takes_over && is_first;
        }
        let (device, by) = (number, lost.by());
        out.push(MetadataEffect::DeviceFailed { device, slot, replaces, error, by });
        if slot.is_none() {
            return self.take_spare();
        }
        for shard in (0..self.shards).filter(|shard| lost != Lost::ByShard(*shard)) {
            let control = Control::FailMember(self.devices[at].place);
            out.push(MetadataEffect::ToShard { shard, control });
        }
        if is_member {
            self.replacement_gets(slot, out);
        }
        self.take_spare();
    }

    /// Too few members can hold the metadata: the array becomes read-only.
    fn give_up(&mut self, why: ReadOnlyReason, out: &mut Vec<MetadataEffect>) {
        self.mode = MetadataMode::ReadOnly(why);
        self.job = None;
        self.asked.clear();
        self.to_shards(Control::ReadOnly, out);
        out.push(MetadataEffect::BecameReadOnly { why });
    }

    // ---- answers

    fn answer(&mut self, out: &mut Vec<MetadataEffect>) {
        self.answer_taken_over(out);
        // Nothing is recorded any more: waiting shards get a negative answer.
        let never = |why| why != ReadOnlyReason::Ordered || !self.is_recorded();
        if matches!(self.mode, MetadataMode::ReadOnly(why) if never(why)) {
            for (shard, epoch) in self.epochs.drain(..) {
                let control = Control::NotRecorded { epoch };
                out.push(MetadataEffect::ToShard { shard, control });
            }
            if self.holds_logs() {
                self.recorded.doubts = self.wanted.doubts;
                self.to_shards(Control::NotRecorded { epoch: 0 }, out);
            }
            return;
        }
        if self.is_recorded() {
            for (shard, epoch) in self.epochs.drain(..) {
                let control = Control::Recorded { epoch };
                out.push(MetadataEffect::ToShard { shard, control });
            }
        }
        if self.asked.is_empty() {
            return;
        }
        if !self.updates() {
            return self.grant_where(out, |_| true);
        }
        let sure = self.on_disk.dirty && self.unfinished.is_none() && self.may_log();
        if !sure || !self.is_recorded() || !self.may_stay_dirty() {
            return;
        }
        match self.bits.take() {
            None => self.grant_where(out, |_| true),
            Some(bits) => {
                self.grant_where(out, |bit| bits.is_durable(bit));
                self.bits = Some(bits);
            }
        }
    }

    /// Whether shards may write logs, if the array has them.
    fn may_log(&self) -> bool {
        self.policy != Policy::Ppl || self.logs_emptied
    }

    /// Whether shards keep logs until the superblocks account for rows in doubt.
    fn holds_logs(&self) -> bool {
        self.policy == Policy::Ppl && self.recorded.doubts != self.wanted.doubts
    }

    /// Whether the current job leaves the array dirty, or has not begun to mark it clean: then it
    /// is cancelled.
    fn may_stay_dirty(&mut self) -> bool {
        let Some(job) = &mut self.job else { return true };
        match &job.goal {
            Goal::Update(update) if !update.dirty => {
                job.spoiled |= job.phase == Some(Phase::Flush);
                job.phase == Some(Phase::Flush)
            }
            _ => true,
        }
    }

    fn grant_where(&mut self, out: &mut Vec<MetadataEffect>, ready: impl Fn(u32) -> bool) {
        let MetadataManager { asked, held, held_total, .. } = self;
        asked.retain(|Asked { shard, first_bit, bits }| {
            let range = *first_bit..*first_bit + *bits;
            if !range.clone().all(&ready) {
                return true;
            }
            for bit in range {
                held[bit as usize] += 1;
                *held_total += 1;
            }
            let control = Control::Granted { first_bit: *first_bit, bits: *bits };
            out.push(MetadataEffect::ToShard { shard: *shard, control });
            false
        });
    }

    // ---- time

    fn tick(&mut self) {
        let now = self.now;
        let Some(bits) = self.bits.as_mut() else { return };
        if let Some(at) = bits.next_tick.filter(|at| *at <= now) {
            let held = &self.held;
            bits.tick(|bit| held[bit as usize] > 0);
            // Missed ticks are not repeated: each stands for a whole period.
            bits.next_tick = Some((at + bits.sleep_nanos).max(now + 1));
        }
    }

    fn set_timer(&mut self, out: &mut Vec<MetadataEffect>) {
        if matches!(self.mode, MetadataMode::ReadOnly(_) | MetadataMode::Stopped) {
            return;
        }
        let now = self.now;
        let may_clear = self.touched && self.degraded() == 0;
        let tick = self.bits.as_mut().and_then(|bits| {
            if !may_clear || !bits.is_fading() {
                bits.next_tick = None;
            } else if bits.next_tick.is_none() {
                bits.next_tick = Some(now + bits.sleep_nanos);
            }
            bits.next_tick
        });
        let waits = !self.on_disk.dirty && self.resync != self.on_disk.resync_offset
            || self.has_rebuilt_more();
        let checkpoint = waits.then(|| self.checkpoint_due()).filter(|at| *at > now);
        let retry = (self.retry_at > now).then_some(self.retry_at);
        let Some(at) = tick.into_iter().chain(checkpoint).chain(retry).min() else { return };
        if self.timer != Some(at) {
            self.timer = Some(at);
            out.push(MetadataEffect::SetTimer { at });
        }
    }
}

/// The cause of a device's failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    ByShard(u16),
    Metadata,
}

impl Lost {
    fn by(self) -> Option<u16> {
        match self {
            Lost::ByShard(shard) => Some(shard),
            Lost::Metadata => None,
        }
    }
}
