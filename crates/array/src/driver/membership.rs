//! Members that join an array while it runs: bound to their slots in every shard, and rebuilt.
//!
//! ```text
//! spare of the metadata manager --+
//! Driver::add_member, add_device -+--> join: a handle for each shard --> Control::BeginRebuild
//! Driver::replace_device ---------+                                 or Control::BeginReplacement
//! ```
//! Invariant: a member is bound to its place in a shard when none of its operations on the device
//! that was there before is in flight, and its rebuild begins when all shards have bound it. What
//! replaces a member has the other place of its slot. Part of `driver`.

use engine::{
    BackgroundEffect, BackgroundLoop, BackgroundWork, Control, DeviceNumber, FailureCoordinator,
    HostOp, JoinRefusal, MemberFlags, MetadataInput, RemoveRefusal, ReplaceRefusal,
};
use md::ondisk::MemberMetadata;
use md::{Kind, MemberIdx};
use thiserror::Error;

use super::Driver;
use crate::build::{BuildError, refuse_shared_files};
use crate::executor::{Event, JoiningMember};
use crate::member::{Member, MemberInfo, Ring};
use crate::metadata_threads::MetadataDevice;
use crate::metadata_writer::{ArrayDevice, ChosenDevice, MetadataTemplate, MetadataWriter};
use crate::shard_channels::{Message, ShardChannels};

/// Why a member cannot be put into a slot.
#[derive(Debug, Error)]
pub enum AddError {
    /// The slot has a member that is in service, or is being put into it.
    #[error("slot {0} is not empty")]
    NotEmpty(MemberIdx),
    /// Nothing of the level can be rebuilt.
    #[error("a level without redundancy has nothing to rebuild a member from")]
    NoRedundancy,
    /// It is too small.
    #[error("the member has {has} sectors, and the array uses {used}")]
    TooSmall {
        /// Its size in sectors.
        has: u64,
        /// What the array uses of each member.
        used: u64,
    },
    /// A device of the array has its number.
    #[error("the array has a device {} already", .0.0)]
    Number(DeviceNumber),
    /// The array is read-only, is being stopped, or cannot make its data durable.
    #[error("the array takes no writes any more")]
    NotRunning,
    /// Its logical block is larger than that of the array.
    #[error("the member's logical block of {has} bytes is larger than the array's, {used}")]
    Block {
        /// Its logical block in bytes.
        has: u32,
        /// That of the array.
        used: u32,
    },
    /// It discards without leaving zeroes, which all members of this array do.
    #[error("the member does not guarantee zeroes after a discard, as the others do")]
    Discard,
    /// It has no further handles for the other shards.
    #[error("an array as a member runs in one shard only")]
    NestedShards,
    /// Only shard 0 takes members.
    #[error("members are added to shard 0")]
    Shard,
    /// The array has metadata: it takes devices with superblocks.
    #[error("the array has metadata, and the member has none")]
    Metadata,
    /// The array has no metadata, which would record the device.
    #[error("the array has no metadata, which would record the device")]
    NoMetadata,
    /// The metadata have no place for a replacement.
    #[error(
        "metadata 0.90 cannot record a replacement: let the member fail, and rebuild it on another \
         device"
    )]
    Version,
    /// The slot's member cannot be replaced now.
    #[error("the member of slot {0} is not replaced: {1}")]
    NotReplaceable(MemberIdx, ReplaceRefusal),
    /// It is none of the array's spares, or is being put into a slot.
    #[error("device {} is no spare of the array that is free", .0.0)]
    NoSpare(DeviceNumber),
    /// A system resource is missing.
    #[error("cannot {doing}: {}", host::sys::reason(source))]
    System {
        /// What could not be done.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl AddError {
    fn of(why: JoinRefusal, slot: MemberIdx, number: DeviceNumber) -> AddError {
        match why {
            JoinRefusal::NotEmpty => AddError::NotEmpty(slot),
            JoinRefusal::Number => AddError::Number(number),
            JoinRefusal::NoRedundancy => AddError::NoRedundancy,
            JoinRefusal::NotRunning => AddError::NotRunning,
        }
    }
}

/// Why a device cannot leave the array.
#[derive(Debug, Error)]
pub enum RemoveError {
    /// The array has no metadata, which would list it.
    #[error("the array has no metadata, which would list the device")]
    NoMetadata,
    /// Not now, or not at all.
    #[error("device {}: {why}", number.0)]
    Refused {
        /// Number of the device.
        number: DeviceNumber,
        /// Reason of the refusal.
        why: RemoveRefusal,
    },
}

/// What a device is for an array that it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinAs {
    /// The member of an empty slot.
    Member(MemberIdx),
    /// It replaces the member of a slot.
    Replacement(MemberIdx),
    /// A spare.
    Spare,
}

impl Driver {
    /// The devices that have the array's metadata, those that have failed included: by number.
    /// Empty for an array without metadata. In shard 0.
    pub fn devices(&self) -> Vec<ArrayDevice> {
        self.metadata_writer.as_ref().map_or_else(Vec::new, MetadataWriter::devices)
    }

    /// Puts a member into a slot whose member is out of service, on an array without metadata: it
    /// is rebuilt while the array runs. [`Event::MemberInSync`] reports the end.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_member(&mut self, slot: MemberIdx, member: Box<dyn Member>) -> Result<(), AddError> {
        self.add_member_as(slot, member, MemberFlags::default())
    }

    /// Like [`Driver::add_member`], of a member that has flags.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_member_as(
        &mut self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        flags: MemberFlags,
    ) -> Result<(), AddError> {
        if self.metadata_writer.is_some() {
            return Err(AddError::Metadata);
        }
        self.check_joining(slot, member.info())?;
        let handles = self.handles(member)?;
        if self.failures.is_none() {
            let (geometry, missing) = (self.geometry().clone(), self.failed());
            self.failures = Some(FailureCoordinator::new(geometry, 1, missing));
            self.executor.enable_control_plane();
        }
        let failures = self.failures.as_mut().expect("just made");
        if !failures.join(slot, flags) {
            return Err(AddError::NotEmpty(slot));
        }
        self.join(slot.0, false, handles);
        Ok(())
    }

    /// Puts a device that no superblock lists into an empty slot of an array with metadata: it is
    /// rebuilt while the array runs, and its superblocks are made from `device.superblock`, with
    /// the flags that this has. The caller has erased old ones and written empty logs.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_device(
        &mut self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
    ) -> Result<(), AddError> {
        self.put_in(slot, member, device, None)
    }

    /// Puts a device into the slot that it had until this event count, in sync: what the bitmap
    /// marks is rebuilt, as after `mdadm --re-add`. Its superblock and bad-block log are its own.
    /// If the bitmap does not cover what it has missed ([`Driver::bitmap_covers`]), all of it is
    /// rebuilt. In shard 0.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn re_add_device(
        &mut self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
        events: u64,
    ) -> Result<(), AddError> {
        self.put_in(slot, member, device, Some(events))
    }

    fn put_in(
        &mut self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
        former: Option<u64>,
    ) -> Result<(), AddError> {
        self.may_take(JoinAs::Member(slot), device.number, member.info())?;
        let (number, flags) = self.keep_metadata(device)?;
        self.spares.push((number, member));
        self.metadata_order(MetadataInput::Join { number, member: slot, flags, former });
        Ok(())
    }

    /// Whether the bitmap marks all that a member has missed since this event count. In shard 0.
    pub fn bitmap_covers(&self, events: u64) -> bool {
        self.metadata_writer.as_ref().is_some_and(|writer| writer.bitmap_covers(events))
    }

    /// Makes a device that no superblock lists a spare of an array with metadata, which it is when
    /// the superblocks record it: then [`Driver::devices`] calls it a spare. It takes the slot of a
    /// member that fails, or of one that is missing, at once. Its superblocks are made from
    /// `device.superblock`. The caller has erased old ones and written empty logs. In shard 0.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_spare(
        &mut self,
        member: Box<dyn Member>,
        device: MetadataDevice,
    ) -> Result<(), AddError> {
        self.may_take(JoinAs::Spare, device.number, member.info())?;
        let (number, flags) = self.keep_metadata(device)?;
        self.spares.push((number, member));
        self.metadata_order(MetadataInput::AddSpare { number, flags });
        Ok(())
    }

    /// Has a failed device or a spare leave the array. It is closed, with its lock, when the
    /// superblocks of the others do not list it any more ([`Event::DeviceRemoved`]) and the
    /// operations that it has in flight have ended. In shard 0.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub fn remove_device(&mut self, number: DeviceNumber) -> Result<(), RemoveError> {
        let writer = self.metadata_writer.as_ref().ok_or(RemoveError::NoMetadata)?;
        writer.may_remove(number).map_err(|why| RemoveError::Refused { number, why })?;
        self.metadata_order(MetadataInput::Remove { number });
        Ok(())
    }

    /// A number for a new device: the first one behind the slots that is free. `None`: the array
    /// has no metadata. In shard 0.
    pub fn free_number(&self) -> Option<DeviceNumber> {
        self.metadata_writer.as_ref().map(MetadataWriter::free_number)
    }

    /// Has a device that no superblock lists replace the member of a slot of an array with
    /// metadata: it is filled while that serves, and takes the slot when all of it is in sync
    /// ([`Event::MemberInSync`]). If the member fails before, the device has the slot, rebuilt from
    /// where it is; if the device fails, the member serves on ([`Event::ReplacementFailed`]). Its
    /// superblocks are made from `device.superblock`. The caller has erased old ones and written
    /// empty logs. In shard 0.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn replace_device(
        &mut self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        device: MetadataDevice,
    ) -> Result<(), AddError> {
        self.may_take(JoinAs::Replacement(slot), device.number, member.info())?;
        let (number, flags) = self.keep_metadata(device)?;
        self.spares.push((number, member));
        self.metadata_order(MetadataInput::Replace { number, member: slot, flags });
        Ok(())
    }

    /// Like [`Driver::replace_device`], with a spare of the array.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn replace_by_spare(
        &mut self,
        slot: MemberIdx,
        number: DeviceNumber,
    ) -> Result<(), AddError> {
        let spare = self.spares.iter().find(|(spare, _)| *spare == number);
        let (_, member) = spare.ok_or(AddError::NoSpare(number))?;
        self.check_replacement(slot, member.info())?;
        // It has its own.
        let flags = MemberFlags::default();
        self.metadata_order(MetadataInput::Replace { number, member: slot, flags });
        Ok(())
    }

    /// Takes what replaces a slot's member, or is to do so, out of service: the member serves on. A
    /// device that has taken the slot by then keeps it. In shard 0.
    pub fn cancel_replacement(&mut self, slot: MemberIdx) {
        if self.metadata_writer.is_some() {
            self.metadata_order(MetadataInput::CancelReplacement { member: slot });
        }
    }

    /// Whether a member of this kind, with a device of this number, is taken. Nothing is changed: a
    /// device can be prepared when it is. In shard 0, of an array with metadata.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn may_take(
        &self,
        joins: JoinAs,
        number: DeviceNumber,
        has: MemberInfo,
    ) -> Result<(), AddError> {
        let writer = self.metadata_writer.as_ref().ok_or(AddError::NoMetadata)?;
        let (may, slot) = match joins {
            JoinAs::Member(slot) => {
                self.check_joining(slot, has)?;
                (writer.may_join(number, slot), slot)
            }
            JoinAs::Replacement(slot) => {
                self.check_replacement(slot, has)?;
                (writer.may_add_spare(number), slot)
            }
            JoinAs::Spare => {
                // It may get any slot.
                let mut slots = (0..self.geometry().members() as u16).map(MemberIdx);
                slots.try_for_each(|slot| self.check_fit(slot, has))?;
                (writer.may_add_spare(number), MemberIdx::default())
            }
        };
        may.map_err(|why| AddError::of(why, slot, number))
    }

    /// What the superblocks of new devices are made from; `None`: the array has no metadata. In
    /// shard 0.
    pub fn metadata_template(&self) -> Option<&MetadataTemplate> {
        self.metadata_writer.as_ref().and_then(MetadataWriter::template)
    }

    fn check_replacement(&self, slot: MemberIdx, has: MemberInfo) -> Result<(), AddError> {
        let writer = self.metadata_writer.as_ref().ok_or(AddError::NoMetadata)?;
        if slot.index() >= self.geometry().members() {
            return Err(AddError::NotReplaceable(slot, ReplaceRefusal::NoMember));
        }
        let may = writer.may_replace(slot).ok_or(AddError::Version)?;
        may.map_err(|why| AddError::NotReplaceable(slot, why))?;
        self.check_fit(slot, has)
    }

    /// Starts to keep the metadata of one more device; returns its number and its flags.
    fn keep_metadata(
        &mut self,
        device: MetadataDevice,
    ) -> Result<(DeviceNumber, MemberFlags), AddError> {
        let number = device.number;
        let MemberMetadata { write_mostly, failfast, .. } = device.superblock.metadata();
        let flags = MemberFlags { write_mostly, failfast };
        let writer = self.metadata_writer.as_mut().ok_or(AddError::NoMetadata)?;
        let doing = "start a metadata thread";
        writer.add(device).map_err(|source| AddError::System { doing, source })?;
        Ok((number, flags))
    }

    fn metadata_order(&mut self, order: MetadataInput) {
        self.metadata_writer.as_mut().expect("it has metadata").order(order);
    }

    /// Binds what replaces a slot's member in all shards, before they run.
    pub(crate) fn bind_replacement(
        shards: &mut [Driver],
        slot: MemberIdx,
        member: Box<dyn Member>,
    ) -> Result<(), BuildError> {
        let count = shards.len() as u16;
        let others: Option<Vec<_>> = (1..count).map(|_| member.share()).collect();
        let mut handles = others.ok_or(BuildError::NestedShards { shards: count })?;
        handles.insert(0, member);
        for (driver, member) in shards.iter_mut().zip(handles) {
            if member.info().uses_ring && driver.io.ring.is_none() {
                let system = |source| BuildError::System { doing: "set up io_uring", source };
                driver.io.ring = Some(Ring::new().map_err(system)?);
            }
            driver.executor.bind_replacement(slot, member, &mut driver.io);
        }
        refuse_shared_files(&shards[0].executor)
    }

    /// Spares that the metadata manager may put into slots.
    pub(crate) fn keep_spares(&mut self, spares: Vec<(DeviceNumber, Box<dyn Member>)>) {
        self.spares = spares;
    }

    fn check_joining(&self, slot: MemberIdx, has: MemberInfo) -> Result<(), AddError> {
        let geometry = self.geometry();
        if self.channels.as_ref().is_some_and(|channels| channels.number() > 0) {
            return Err(AddError::Shard);
        }
        if matches!(geometry.kind(), Kind::Striped(_)) {
            return Err(AddError::NoRedundancy);
        }
        if slot.index() >= geometry.members() || !self.failed().contains(slot.0) {
            return Err(AddError::NotEmpty(slot));
        }
        self.check_fit(slot, has)
    }

    /// Whether a device can take what the member of a slot gets.
    fn check_fit(&self, slot: MemberIdx, has: MemberInfo) -> Result<(), AddError> {
        let (geometry, info) = (self.geometry(), self.info());
        let used = geometry.member_used_sectors(slot);
        if has.sectors < used {
            return Err(AddError::TooSmall { has: has.sectors, used });
        }
        if has.logical_block > info.logical_block {
            let (has, used) = (has.logical_block, info.logical_block);
            return Err(AddError::Block { has, used });
        }
        match self.executor.discards_leave_zeroes() && !has.discard_zeroes {
            true => Err(AddError::Discard),
            false => Ok(()),
        }
    }

    /// A handle on a member for each shard.
    fn handles(&self, member: Box<dyn Member>) -> Result<Vec<Box<dyn Member>>, AddError> {
        let others = self.channels.iter().flat_map(ShardChannels::others);
        let handles: Option<Vec<_>> = others.map(|_| member.share()).collect();
        let mut handles = handles.ok_or(AddError::NestedShards)?;
        handles.insert(0, member);
        Ok(handles)
    }

    /// Sends each shard its handle.
    fn join(&mut self, place: u16, replaces: bool, handles: Vec<Box<dyn Member>>) {
        let slot = place % self.geometry().members() as u16;
        tracing::info!(slot, replaces, "member joins, to be rebuilt");
        let joining = |member| JoiningMember { place, replaces, member };
        let mut handles = handles.into_iter().map(joining);
        let own = handles.next().expect("one for this shard");
        if let Some(channels) = &mut self.channels {
            let others: Vec<u16> = channels.others().collect();
            for (shard, joining) in others.into_iter().zip(handles) {
                channels.send_member(shard, joining);
            }
        }
        self.bind(own);
    }

    /// Gives the executor a member for a place.
    fn bind(&mut self, joining: JoiningMember) {
        if joining.member.info().uses_ring && self.io.ring.is_none() {
            match Ring::new() {
                Ok(ring) => self.io.ring = Some(ring),
                Err(error) => {
                    // It is never bound, and the place stays empty.
                    let place = joining.place;
                    return tracing::error!(place, "member not bound: no io_uring: {error}");
                }
            }
        }
        self.executor.join(joining);
    }

    /// Members that shard 0 has sent.
    pub(super) fn bind_sent(&mut self) {
        let Some(channels) = &mut self.channels else { return };
        for joining in channels.take_members() {
            self.bind(joining);
        }
    }

    /// The metadata manager has chosen devices for slots.
    pub(super) fn join_chosen(&mut self) {
        let Some(writer) = &mut self.metadata_writer else { return };
        let retired = writer.take_retired();
        self.spares.retain(|(number, _)| !retired.contains(number));
        for MemberIdx(place) in writer.take_unbound() {
            if let Some(channels) = &mut self.channels {
                let others: Vec<u16> = channels.others().collect();
                others
                    .into_iter()
                    .for_each(|shard| channels.send(shard, Message::Unbind { place }));
            }
            self.executor.unbind(place);
        }
        for ChosenDevice { number: device, place, replaces } in writer.take_joins() {
            let at = self.spares.iter().position(|(number, _)| *number == device);
            let member = at.map(|at| self.spares.swap_remove(at).1);
            let handles = member.map(|member| self.handles(member));
            match handles {
                Some(Ok(handles)) => {
                    self.join(place.0, replaces, handles);
                    continue;
                }
                Some(Err(error)) => tracing::error!(number = device.0, "not bound: {error}"),
                None => tracing::error!(number = device.0, "not bound: it is no spare"),
            }
            self.metadata_order(MetadataInput::JoinFailed { place });
        }
    }

    /// Processes what the coordinator of an array without metadata has to say of rebuilds, and
    /// appends its commands.
    pub(super) fn local_rebuilds(&mut self) {
        let failures = self.failures.as_mut();
        if failures.is_some_and(FailureCoordinator::take_rebuild_needed) {
            let (geometry, unit) = (self.executor.geometry(), self.background_unit());
            let step = self.background_step(1);
            let new = || BackgroundLoop::new(HostOp::Rebuild, geometry.clone(), step, unit);
            let local = &mut self.background.local[BackgroundWork::Rebuild.turn()];
            local.get_or_insert_with(new).needed();
        }
        if self.background.reports.is_empty() {
            return;
        }
        let Some(failures) = &mut self.failures else { return };
        for effect in self.background.reports.drain(..) {
            match effect {
                BackgroundEffect::Report(MetadataInput::RebuildAt {
                    run,
                    member,
                    position,
                    ..
                }) => {
                    let in_sync = failures.rebuild_at(run, member, position, &mut self.commands);
                    for member in in_sync {
                        tracing::info!(member = member.0, "member rebuilt and in sync");
                        let name = self.executor.device_at(member);
                        let event = Event::MemberInSync { member, device: None };
                        self.executor.report(event, name);
                    }
                }
                BackgroundEffect::Stalled { why, sectors } => {
                    tracing::warn!(sectors, "rebuild stalled: {why}");
                }
                _ => {}
            }
        }
        for (shard, control) in std::mem::take(&mut self.commands) {
            self.command(shard, control);
        }
    }

    pub(super) fn command(&mut self, shard: u16, control: Control) {
        match &mut self.channels {
            Some(channels) if shard > 0 => {
                channels.send(shard, crate::shard_channels::Message::Control(control));
            }
            _ => self.executor.command(control),
        }
    }
}
