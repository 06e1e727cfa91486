//! Background work of an array in its own threads: how fast it runs, how far it has come; pause,
//! resume, cancel; scrubs. And devices that join: they are rebuilt in the background.
//!
//! Invariant: shard 0 has all background work and the metadata; what it finds, every shard reports.
//! Part of `api`.

use engine::{
    BackgroundStatus, BackgroundWork, DeviceNumber, MemberFlags, Mismatch, Pace, ScrubMode,
};
use md::MemberIdx;

use super::Array;
use crate::driver::{AddError, Driver, JoinAs, RemoveError, ScrubStatus};
use crate::executor::Report;
use crate::member::{Member, MemberInfo};
use crate::metadata_threads::MetadataDevice;
use crate::metadata_writer::{ArrayDevice, MetadataTemplate};

impl Array {
    /// All background work that has not ended, in the order in which it runs.
    pub fn background(&self) -> Vec<BackgroundStatus> {
        self.call(0, |driver| driver.background()).unwrap_or_default()
    }

    /// Sets how fast background work runs, now and later. One pace for all kinds, of which one runs
    /// at a time.
    pub fn set_pace(&self, pace: Pace) {
        self.call(0, move |driver| driver.set_pace(pace));
    }

    /// How fast background work runs.
    pub fn pace(&self) -> Pace {
        self.call(0, |driver| driver.pace()).unwrap_or_default()
    }

    /// Pauses or resumes background work of a kind. Ranges in flight complete.
    pub fn pause_background(&self, work: BackgroundWork, paused: bool) {
        self.call(0, move |driver| driver.pause_background(work, paused));
    }

    /// Cancels background work of a kind; see [`Driver::cancel_background`].
    pub fn cancel_background(&self, work: BackgroundWork) {
        self.call(0, move |driver| driver.cancel_background(work));
    }

    /// Begins a resync or rebuilds again that were cancelled; see [`Driver::begin_background`].
    pub fn begin_background(&self, work: BackgroundWork) -> bool {
        self.call(0, move |driver| driver.begin_background(work)).unwrap_or(false)
    }

    /// See [`Driver::start_scrub`]. `false` also when the array has been stopped.
    pub fn start_scrub(&self, mode: ScrubMode, from: u64) -> bool {
        self.call(0, move |driver| driver.start_scrub(mode, from)).unwrap_or(false)
    }

    /// How far the last scrub has come.
    pub fn scrub(&self) -> Option<ScrubStatus> {
        self.call(0, |driver| driver.scrub()).flatten()
    }

    /// Cancels a scrub. Its ranges in flight complete; [`ScrubStatus::position`] is where another
    /// can continue.
    pub fn stop_scrub(&self) {
        self.call(0, Driver::stop_scrub);
    }

    /// What scrubs have found since the last call.
    pub fn take_mismatches(&self) -> Vec<Report<Mismatch>> {
        let shards = 0..self.shards.len();
        let found = |shard| self.call(shard, Driver::take_mismatches).unwrap_or_default();
        shards.flat_map(found).collect()
    }

    /// See [`Driver::start_resync`]. `false` also when the array has been stopped.
    pub fn start_resync(&self) -> bool {
        self.call(0, Driver::start_resync).unwrap_or(false)
    }

    /// See [`Driver::add_member`]. `None`: the array has been stopped.
    pub fn add_member(
        &self,
        slot: MemberIdx,
        member: Box<dyn Member>,
    ) -> Option<Result<(), AddError>> {
        self.add_member_as(slot, member, MemberFlags::default())
    }

    /// See [`Driver::add_member_as`]. `None`: the array has been stopped.
    pub fn add_member_as(
        &self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        flags: MemberFlags,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.add_member_as(slot, member, flags))
    }

    /// See [`Driver::devices`].
    pub fn devices(&self) -> Vec<ArrayDevice> {
        self.call(0, |driver| driver.devices()).unwrap_or_default()
    }

    /// See [`Driver::add_device`]. `None`: the array has been stopped.
    pub fn add_device(
        &self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.add_device(slot, member, device))
    }

    /// See [`Driver::re_add_device`]. `None`: the array has been stopped.
    pub fn re_add_device(
        &self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
        events: u64,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.re_add_device(slot, member, device, events))
    }

    /// See [`Driver::bitmap_covers`]. `None`: the array has been stopped.
    pub fn bitmap_covers(&self, events: u64) -> Option<bool> {
        self.call(0, move |driver| driver.bitmap_covers(events))
    }

    /// See [`Driver::add_spare`]. `None`: the array has been stopped.
    pub fn add_spare(
        &self,
        member: Box<dyn Member>,
        device: MetadataDevice,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.add_spare(member, device))
    }

    /// See [`Driver::remove_device`]. `None`: the array has been stopped.
    pub fn remove_device(&self, number: DeviceNumber) -> Option<Result<(), RemoveError>> {
        self.call(0, move |driver| driver.remove_device(number))
    }

    /// See [`Driver::may_take`]. `None`: the array has been stopped.
    pub fn may_take(
        &self,
        joins: JoinAs,
        number: DeviceNumber,
        has: MemberInfo,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.may_take(joins, number, has))
    }

    /// See [`Driver::metadata_template`].
    pub fn metadata_template(&self) -> Option<MetadataTemplate> {
        self.call(0, |driver| driver.metadata_template().cloned()).flatten()
    }

    /// See [`Driver::free_number`].
    pub fn free_number(&self) -> Option<DeviceNumber> {
        self.call(0, |driver| driver.free_number()).flatten()
    }

    /// See [`Driver::replace_device`]. `None`: the array has been stopped.
    pub fn replace_device(
        &self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.replace_device(slot, member, device))
    }

    /// See [`Driver::replace_by_spare`]. `None`: the array has been stopped.
    pub fn replace_by_spare(
        &self,
        slot: MemberIdx,
        number: DeviceNumber,
    ) -> Option<Result<(), AddError>> {
        self.call(0, move |driver| driver.replace_by_spare(slot, number))
    }

    /// See [`Driver::cancel_replacement`].
    pub fn cancel_replacement(&self, slot: MemberIdx) {
        self.call(0, move |driver| driver.cancel_replacement(slot));
    }
}
