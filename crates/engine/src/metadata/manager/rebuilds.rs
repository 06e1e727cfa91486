//! Members that are being rebuilt: which, how far, what is recorded of it; devices that join.
//!
//! Invariant: the superblocks record no more of a member than what is durable on it, and it counts
//! as in sync when they record all of it. A device has its slot when every shard has bound it.
//! Called only from `manager` and `work`.

use std::ops::Range;

use md::MemberIdx;
use md::ondisk::Role;
use md::ondisk::superblock::DeviceState;

use super::work::CHECKPOINT_PARTS;
use super::{Device, Lost, MetadataManager, in_service, lacking};
use crate::metadata::bits::Bits;
use crate::metadata::job::Update;
use crate::metadata::types::{
    DeviceNumber, JoinRefusal, ManagedDevice, MetadataEffect, MetadataMode,
};
use crate::{BackgroundRun, Control, IoError, MemberFlags};

/// A device that the executor binds to a place of a slot.
pub(super) struct Joining {
    pub(super) device: usize,
    pub(super) slot: MemberIdx,
    pub(super) place: MemberIdx,
    /// It is to replace the slot's member.
    pub(super) replaces: bool,
    pub(super) flags: MemberFlags,
    /// It was the slot's member, in sync, until this event count.
    pub(super) former: Option<u64>,
    /// The executor binds it.
    pub(super) is_ordered: bool,
    /// Shards that have bound it.
    pub(super) bound: Vec<u16>,
    /// It is lost as soon as all have: by one of them, or on request.
    pub(super) dropped: Option<(Lost, Option<IoError>)>,
}

impl MetadataManager {
    /// The members that are being rebuilt, with the ranges of their data areas out of sync; for
    /// [`crate::ShardConfig::rebuilding`].
    pub fn rebuilding(&self) -> Vec<(MemberIdx, Vec<Range<u64>>)> {
        self.lacking(false)
            .filter_map(|(device, ranges)| Some((device.kept.slot?, ranges)))
            .collect()
    }

    /// Devices that are being rebuilt, or that replace members, with what they lack.
    pub(super) fn lacking(
        &self,
        replaces: bool,
    ) -> impl Iterator<Item = (&Device, Vec<Range<u64>>)> {
        let devices = self.serving().map(|at| &self.devices[at]);
        let lacks = |device: &'_ Device| {
            let below = device.rebuilt?;
            let of = |range: &Range<u64>| range.start.max(below)..range.end;
            let ranges = device.out_of_sync.iter().map(of).filter(|range| !range.is_empty());
            Some(ranges.collect())
        };
        let devices = devices.filter(move |device| device.kept.replaces == replaces);
        devices.filter_map(move |device| Some((device, lacks(device)?)))
    }

    /// Sectors of members that were out of sync when their rebuilds began, and how many of them are
    /// in sync.
    pub(super) fn rebuild_sectors(&self) -> (u64, u64) {
        let (mut all, mut done) = (0, 0);
        for device in self.serving().map(|at| &self.devices[at]) {
            let Some(below) = device.rebuilt else { continue };
            for range in &device.out_of_sync {
                all += range.end - range.start;
                done += below.clamp(range.start, range.end) - range.start;
            }
        }
        (all, done)
    }

    /// The members that are being rebuilt, and the sectors below which they are in sync.
    pub(super) fn rebuilt(&self) -> impl Iterator<Item = (MemberIdx, u64)> + '_ {
        let devices = self.serving().map(|at| &self.devices[at]);
        let devices = devices.filter(|device| !device.kept.replaces);
        devices.filter_map(|device| device.kept.slot.zip(device.rebuilt))
    }

    /// The runs of rebuilds that the array needs. They replace earlier ones.
    pub fn rebuilds(&mut self) -> Vec<BackgroundRun> {
        if !self.updates() || self.mode != MetadataMode::Running || self.not_durable {
            return Vec::new();
        }
        let run = self.rebuild_run.begin();
        let both = self.lacking(false).chain(self.lacking(true));
        let both: Vec<_> = both.map(|(device, ranges)| (device.place, ranges)).collect();
        BackgroundRun::of_rebuild(run, &self.geometry, both.into_iter())
    }

    pub(super) fn rebuild_at(
        &mut self,
        member: Option<MemberIdx>,
        position: u64,
        out: &mut Vec<MetadataEffect>,
    ) {
        self.touched = true;
        for at in self.serving().collect::<Vec<usize>>() {
            let Device { kept, place, rebuilt, .. } = &mut self.devices[at];
            let (Some(slot), Some(before)) = (kept.slot, *rebuilt) else { continue };
            let (place, position) = (*place, position.min(self.geometry.member_used_sectors(slot)));
            if member.is_some_and(|member| member != place) || position <= before {
                continue;
            }
            *rebuilt = Some(position);
            self.to_shards(Control::RebuiltBelow { member: place, sector: position }, out);
        }
    }

    /// A device's bad-block log lists sectors that could not be computed. From now on every update
    /// says that the log is in use, so also the first one that records the range as in sync: both
    /// are in the device's own superblock, within one sector. After a crash before that, the log is
    /// not read, and the range is rebuilt again.
    pub(super) fn bad_blocks_added(&mut self, place: MemberIdx) {
        let Some(at) = self.device_at(place) else { return };
        self.touched = true;
        let number = self.devices[at].kept.number.0 as usize;
        if let Some(Some(state)) = self.states.get_mut(number) {
            state.bad_blocks_in_use = true;
        }
    }

    // ---- devices that join

    /// Whether a slot has no member, and none is being put into it.
    fn is_empty(&self, member: MemberIdx) -> bool {
        self.device_of(member).is_none()
            && self.joining.iter().all(|joining| joining.slot != member)
            && member.index() < self.geometry.members()
    }

    /// Whether a device is being put into a slot and no superblock lists it.
    pub(super) fn is_new(&self, at: usize) -> bool {
        !self.devices[at].kept.is_spare && self.joining.iter().any(|it| it.device == at)
    }

    /// Takes a spare for the first empty slot.
    pub(super) fn take_spare(&mut self) {
        if self.mode != MetadataMode::Running || !self.updates() {
            return;
        }
        let mut slots = (0..self.geometry.members() as u16).map(MemberIdx);
        let Some(member) = slots.find(|slot| self.is_empty(*slot)) else { return };
        let mut devices = 0..self.devices.len();
        let Some(device) = devices.find(|at| self.is_free_spare(*at)) else { return };
        self.want(device, member, member, self.flags(device));
    }

    /// Whether a device is a spare that may take a slot.
    pub(super) fn is_free_spare(&self, at: usize) -> bool {
        let Device { kept, failed, .. } = &self.devices[at];
        let mut joining = self.joining.iter();
        kept.is_spare && kept.slot.is_none() && !failed && joining.all(|it| it.device != at)
    }

    /// Whether a device with this number can be put into a slot now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_join(&self, number: DeviceNumber, slot: MemberIdx) -> Result<(), JoinRefusal> {
        self.takes_devices(number)?;
        if self.is_empty(slot) { Ok(()) } else { Err(JoinRefusal::NotEmpty) }
    }

    /// Whether the running array takes a new device with this number.
    pub(super) fn takes_devices(&self, number: DeviceNumber) -> Result<(), JoinRefusal> {
        if !self.updates() {
            return Err(JoinRefusal::NoRedundancy);
        }
        if self.mode != MetadataMode::Running || self.not_durable {
            return Err(JoinRefusal::NotRunning);
        }
        let mut devices = self.devices.iter();
        let has_number = devices.any(|device| device.kept.number == number && !device.failed);
        match has_number || self.is_leaving(number) {
            true => Err(JoinRefusal::Number),
            false => Ok(()),
        }
    }

    pub(super) fn join(
        &mut self,
        number: DeviceNumber,
        member: MemberIdx,
        flags: MemberFlags,
        former: Option<u64>,
    ) {
        if self.may_join(number, member).is_err() {
            return;
        }
        let device = self.add_device(number);
        self.want(device, member, member, flags);
        self.joining.last_mut().expect("just made").former = former;
    }

    /// Whether the bitmap marks all that a member has missed since this event count: no bit was
    /// cleared after that.
    pub fn bitmap_covers(&self, events: u64) -> bool {
        self.bits.as_ref().is_some_and(|bits| bits.covers(events))
    }

    /// What a former member lacks, if the bitmap covers that: with the bits of all writes that
    /// shards may have in flight, none of which was sent to it.
    fn missed(&self, slot: MemberIdx, former: Option<u64>) -> Option<Vec<Range<u64>>> {
        let bits = self.bits.as_ref().filter(|bits| former.is_some_and(|at| bits.covers(at)))?;
        let all = 0..self.geometry.member_used_sectors(slot);
        Some(lacking::under(&self.geometry, &self.map, slot, all, |bit| bits.has(bit)))
    }

    /// A device that no superblock lists.
    pub(super) fn add_device(&mut self, number: DeviceNumber) -> usize {
        let events = self.counts.on_disk();
        let kept = ManagedDevice { number, slot: None, replaces: false, events, is_spare: false };
        // It has no superblock, so that the next update is written to it, whatever its count.
        self.devices.push(Device { events: None, ..in_service(kept, None) });
        self.devices.len() - 1
    }

    /// Puts a device into a place of a slot: that of its member, or the other one.
    pub(super) fn want(
        &mut self,
        device: usize,
        slot: MemberIdx,
        place: MemberIdx,
        flags: MemberFlags,
    ) {
        self.touched = true;
        let replaces = self.device_of(slot).is_some();
        let (former, is_ordered, bound, dropped) = (None, false, Vec::new(), None);
        let joining =
            Joining { device, slot, place, replaces, flags, former, is_ordered, bound, dropped };
        self.joining.push(joining);
    }

    /// The flags of a device, as the superblocks are to have them.
    pub(super) fn flags(&self, at: usize) -> MemberFlags {
        let number = self.devices[at].kept.number.0 as usize;
        let state = self.states.get(number).and_then(Option::as_ref);
        state.map_or(MemberFlags::default(), |state| MemberFlags {
            write_mostly: state.write_mostly,
            failfast: state.failfast,
        })
    }

    /// Shards get the flags of a device that has its slot now.
    pub(super) fn flags_to_shards(&self, at: usize, out: &mut Vec<MetadataEffect>) {
        let (member, flags) = (self.devices[at].place, self.flags(at));
        self.to_shards(Control::SetFlags { member, flags }, out);
    }

    /// Has devices bound to their slots once the losses of the former members are on record: no
    /// superblock that still gives them the slots is written after that.
    pub(super) fn order_joins(&mut self, out: &mut Vec<MetadataEffect>) {
        let is_running = self.mode == MetadataMode::Running;
        if !is_running || !self.is_recorded() || self.unfinished.is_some() {
            return;
        }
        for Joining { device, place, replaces, is_ordered, .. } in &mut self.joining {
            if !std::mem::replace(is_ordered, true) {
                let device = self.devices[*device].kept.number;
                out.push(MetadataEffect::Join { device, place: *place, replaces: *replaces });
            }
        }
    }

    /// The executor cannot bind a device to its place.
    pub(super) fn join_failed(&mut self, place: MemberIdx, out: &mut Vec<MetadataEffect>) {
        let mine = self.joining.iter().position(|joining| joining.place == place);
        if let Some(at) = mine {
            let Joining { device, .. } = self.joining.swap_remove(at);
            self.not_joined(device, out);
            self.take_spare();
        }
    }

    /// A device that was to join is out of service, and had no slot.
    pub(super) fn not_joined(&mut self, device: usize, out: &mut Vec<MetadataEffect>) {
        self.devices[device].failed = true;
        let device = self.devices[device].kept.number;
        let (slot, replaces, error, by) = (None, false, None, None);
        out.push(MetadataEffect::DeviceFailed { device, slot, replaces, error, by });
    }

    /// A shard has bound a device to its place. From the last one on it has the slot; so what
    /// shards still report of the slot's former member cannot concern it. One that a shard has
    /// dropped in the meantime is lost at once: it would never be written there. What was to
    /// replace a member that is lost by then is its slot's member.
    pub(super) fn bound(&mut self, shard: u16, place: MemberIdx, out: &mut Vec<MetadataEffect>) {
        let mine = self.joining.iter().position(|joining| joining.place == place);
        let Some(at) = mine else { return };
        self.joining[at].bound.push(shard);
        if self.joining[at].bound.len() < usize::from(self.shards) {
            return;
        }
        let joining = self.joining.swap_remove(at);
        let Joining { device, slot: member, flags, former, dropped, .. } = joining;
        let is_over = !matches!(self.mode, MetadataMode::Running | MetadataMode::Closing);
        if self.devices[device].failed || is_over {
            self.to_shards(Control::FailMember(place), out);
            return self.take_spare();
        }
        let replaces = self.device_of(member).is_some();
        let missed = self.missed(member, former.filter(|_| !replaces));
        if let Some(missed) = &missed {
            let (member, ranges) = (place, missed.clone().into());
            self.to_shards(Control::OutOfSyncOnly { member, ranges }, out);
        }
        let Device { kept, place: at, rebuilt, rebuilt_recorded, out_of_sync, has_joined, .. } =
            &mut self.devices[device];
        *has_joined = true;
        *at = place;
        kept.slot = Some(member);
        kept.replaces = replaces;
        kept.is_spare = false;
        (*rebuilt, *rebuilt_recorded) = (Some(0), Some(0));
        let all = 0..self.geometry.member_used_sectors(member);
        let is_by_bitmap = missed.is_some();
        *out_of_sync = missed.unwrap_or_else(|| std::iter::once(all).collect());
        let number = kept.number.0 as usize;
        if self.states.len() <= number {
            self.states.resize(number + 1, None);
        }
        let role = Role::Slot(member.0);
        let own = self.states[number].take().unwrap_or_else(|| DeviceState::new(role));
        let (recovery_offset, recovery_by_bitmap, replacement) = (Some(0), is_by_bitmap, replaces);
        let MemberFlags { write_mostly, failfast } = flags;
        let state = DeviceState { role, recovery_offset, recovery_by_bitmap, replacement, ..own };
        self.states[number] = Some(DeviceState { write_mostly, failfast, ..state });
        self.flags_to_shards(device, out);
        self.leave_with_next_update();
        self.bits.iter_mut().for_each(Bits::write_all);
        self.touched = true;
        // Reports of the running rebuilds do not account for it.
        self.rebuild_run.number += 1;
        out.push(MetadataEffect::RebuildNeeded);
        if let Some(job) = &mut self.job {
            // It lacks what the job has written so far; superblocks do not list it yet.
            job.spoiled |= !job.writes_superblocks();
        }
        if let Some((lost, error)) = dropped {
            self.lose(device, error, lost, out);
        }
    }

    /// An update is durable: takes over what it records of rebuilds.
    pub(super) fn rebuilt_recorded(&mut self, update: &Update, out: &mut Vec<MetadataEffect>) {
        for at in self.serving().collect::<Vec<usize>>() {
            let taken_over = self.takes_over(at, &update.state).then(|| self.take_over(at));
            self.devices[at].recorded_too_far = false;
            let Device { kept, place, rebuilt, rebuilt_recorded, out_of_sync, .. } =
                &mut self.devices[at];
            let (place, ManagedDevice { number, slot, .. }) = (*place, *kept);
            let state = update.state.devices.get(number.0 as usize).and_then(Option::as_ref);
            let (Some(member), Some(state)) = (slot, state) else { continue };
            if rebuilt_recorded.is_none() || state.role != Role::Slot(member.0) {
                continue;
            }
            *rebuilt_recorded = state.recovery_offset;
            if state.recovery_offset.is_none() {
                *rebuilt = None;
                *out_of_sync = Vec::new();
                if taken_over.is_none() {
                    self.to_shards(Control::EndRebuild(place), out);
                }
                out.push(MetadataEffect::MemberInSync { device: number, member });
            }
            if let Some(Some(state)) = self.states.get_mut(number.0 as usize) {
                state.recovery_offset = self.devices[at].rebuilt_recorded;
                state.recovery_by_bitmap &= state.recovery_offset.is_some();
                state.replacement &= taken_over.is_none();
            }
        }
    }

    /// What a device that is being rebuilt is recorded as, once its data are durable.
    pub(super) fn rebuilt_now(&self, at: usize) -> Option<u64> {
        let Device { kept, rebuilt, .. } = &self.devices[at];
        let end = kept.slot.map_or(0, |slot| self.geometry.member_used_sectors(slot));
        rebuilt.filter(|rebuilt| *rebuilt < end)
    }

    /// Whether members are in sync further than the superblocks record.
    pub(super) fn has_rebuilt_more(&self) -> bool {
        self.serving().any(|at| {
            let recorded = self.devices[at].rebuilt_recorded;
            recorded.is_some() && recorded != self.rebuilt_now(at)
        })
    }

    /// Whether the progress of a rebuild is to be recorded: its end at once, the rest from time to
    /// time.
    pub(super) fn wants_rebuild_recorded(&self) -> bool {
        let is_due = self.is_checkpoint_due();
        self.serving().any(|at| {
            let Device { kept, rebuilt_recorded: Some(recorded), .. } = &self.devices[at] else {
                return false;
            };
            let end = kept.slot.map_or(0, |slot| self.geometry.member_used_sectors(slot));
            let far = (end / CHECKPOINT_PARTS).max(1);
            match self.rebuilt_now(at) {
                None => true,
                Some(now) => now > *recorded && (is_due || now - recorded >= far),
            }
        })
    }
}
