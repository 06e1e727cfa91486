//! Performs the effects of the engine's metadata manager and of its background loops.
//!
//! Invariant: a record is durable on its device before its completion is reported to the metadata
//! manager; so the state after a crash follows from the manager's write order. Records are written
//! by the devices' own threads (`metadata_threads`): the shard does not wait for them. Called only
//! from `driver`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use engine::{
    BackgroundEffect, BackgroundLoop, BackgroundRange, BackgroundRun, BackgroundWork, Control,
    ControlEvent, DeviceNumber, DeviceStatus, HostOp, IoError, JoinRefusal, MemberError, MetaToken,
    MetadataEffect, MetadataInput, MetadataManager, MetadataStatus, RESYNC_PARTS, Record,
    RemoveRefusal, ReplaceRefusal, RequestError,
};
use host::sys::Looks;
use md::ondisk::bitmap::BitmapHeader;
use md::ondisk::superblock::Superblock;
use md::{Geometry, MemberIdx};

use crate::executor::{Event, Report};
use crate::member::late_text;
use crate::metadata_threads::{DeviceMetadata, MetadataDevice, MetadataThreads};

/// Maximum of notes kept; the oldest are dropped first.
const MAX_NOTES: usize = 64;

/// Notes for the administrator, one sentence each, without duplicates.
#[derive(Default)]
struct Notes(VecDeque<String>);

impl Notes {
    fn push(&mut self, note: String) {
        if self.0.contains(&note) {
            return;
        }
        tracing::warn!("{note}");
        if self.0.len() == MAX_NOTES {
            self.0.pop_front();
        }
        self.0.push_back(note);
    }
}

/// A device that the metadata manager has chosen for a place of a slot.
#[derive(Clone, Copy)]
pub(crate) struct ChosenDevice {
    pub(crate) number: DeviceNumber,
    pub(crate) place: MemberIdx,
    /// It is to replace the slot's member.
    pub(crate) replaces: bool,
}

/// A device that has the metadata of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayDevice {
    /// Name of the device.
    pub name: String,
    /// Its number, its slot, and what it does for the array.
    pub status: DeviceStatus,
}

/// What the superblocks of devices that join a running array are made from.
#[derive(Clone, Debug)]
pub struct MetadataTemplate {
    /// The freshest superblock at the start. Its event count, roles and resync position are those
    /// of then.
    pub superblock: Superblock,
    /// The header of its bitmap, if the array has one.
    pub bitmap: Option<BitmapHeader>,
}

/// Executes the metadata manager's effects; see the module documentation.
pub(crate) struct MetadataWriter {
    manager: MetadataManager,
    threads: MetadataThreads,
    /// How long an operation may take.
    limit: Option<Duration>,
    /// Time of the present turn.
    now: u64,
    looks: Looks,
    inputs: Vec<MetadataInput>,
    effects: Vec<MetadataEffect>,
    timer: Option<u64>,
    /// The resyncs and the rebuilds, by their turn.
    pub(crate) loops: [BackgroundLoop; 2],
    loop_effects: Vec<BackgroundEffect>,
    /// Devices that the metadata manager has chosen for slots.
    joins: Vec<ChosenDevice>,
    /// Devices that are out of service since the last call.
    retired: Vec<DeviceNumber>,
    /// Places of devices that have left the array since the last call.
    unbound: Vec<MemberIdx>,
    /// What superblocks of new devices are made from.
    template: Option<MetadataTemplate>,
    /// The metadata can record a replacement.
    records_replacements: bool,
    stopped: Option<bool>,
    notes: Notes,
    /// Members that the metadata manager took out of service: no shard has reported them.
    events: Vec<Report>,
}

impl MetadataWriter {
    /// `notes`: notes to be reported from the start on. `step`, `unit`: see
    /// [`BackgroundLoop::new`].
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub(crate) fn new(
        manager: MetadataManager,
        kept: Vec<DeviceMetadata>,
        notes: Vec<String>,
        geometry: &Geometry,
        step: u64,
        unit: u64,
        limit: Option<Duration>,
    ) -> io::Result<MetadataWriter> {
        let mut all = Notes::default();
        notes.into_iter().for_each(|note| all.push(note));
        let mut superblocks = kept.iter().map(|device| &device.encoder.superblock);
        let records_replacements = superblocks.all(|it| matches!(it, Superblock::V1(_)));
        let freshest = kept.iter().max_by_key(|it| it.encoder.superblock.metadata().events);
        let template = freshest.map(|device| MetadataTemplate {
            superblock: device.encoder.superblock.clone(),
            bitmap: device.encoder.bitmap.as_ref().map(|(_, header)| header.clone()),
        });
        Ok(MetadataWriter {
            template,
            manager,
            threads: MetadataThreads::start(kept, limit)?,
            limit,
            now: 0,
            looks: Looks::new(limit, 0),
            inputs: Vec::new(),
            effects: Vec::new(),
            timer: None,
            loops: [HostOp::Resync, HostOp::Rebuild]
                .map(|op| BackgroundLoop::new(op, geometry.clone(), step, unit)),
            loop_effects: Vec::new(),
            joins: Vec::new(),
            retired: Vec::new(),
            unbound: Vec::new(),
            records_replacements,
            stopped: None,
            notes: all,
            events: Vec::new(),
        })
    }

    pub(crate) fn status(&self) -> MetadataStatus {
        self.manager.status()
    }

    /// The devices of the array.
    pub(crate) fn devices(&self) -> Vec<ArrayDevice> {
        let named = |status: DeviceStatus| {
            let name = self.threads.name(status.number).0.to_string();
            ArrayDevice { name, status }
        };
        self.manager.devices().into_iter().map(named).collect()
    }

    /// Problems with the metadata since the last call, one sentence each.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        self.notes.0.drain(..).collect()
    }

    /// Members that it has taken out of service since the last call.
    pub(crate) fn take_reports(&mut self) -> impl Iterator<Item = Report> + '_ {
        self.events.drain(..)
    }

    /// When it must be called next.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let retries = self.loops.iter().filter_map(BackgroundLoop::deadline);
        self.timer.into_iter().chain(retries).chain(self.threads.deadline(&self.looks)).min()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.inputs.is_empty() || !self.effects.is_empty()
    }

    /// Readable when a metadata write has completed; `None` while none is in flight.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.threads.fd()
    }

    /// Resets `fd`, after a wait for it.
    pub(crate) fn woke(&self) {
        self.threads.woke();
    }

    pub(crate) fn stop(&mut self) {
        self.inputs.push(MetadataInput::Stop);
    }

    /// Whether it has stopped, and whether the superblocks are clean.
    pub(crate) fn stopped(&self) -> Option<bool> {
        self.stopped
    }

    /// Passes shard events to the metadata manager, performs its effects, and appends its commands,
    /// each with its shard, to `controls`.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        looks: Looks,
        events: impl Iterator<Item = (u16, ControlEvent)>,
        controls: &mut Vec<(u16, Control)>,
    ) {
        for (shard, event) in events {
            if let ControlEvent::NotDurable { member } = event {
                self.notes.push(format!(
                    "Slot {}: a flush failed, and the array cannot run without the member. Writes \
                     since the previous flush may be lost; the array will not be stopped clean.",
                    member.0
                ));
            }
            self.inputs.push(MetadataInput::FromShard { shard, event });
        }
        while let Some(completion) = self.threads.completion() {
            let (token, result) = (completion.token, completion.result);
            if self.threads.is_idle() {
                tracing::debug!("metadata writes completed");
            }
            completion.note.into_iter().for_each(|note| self.notes.push(note));
            self.inputs.push(MetadataInput::MetaDone { token, result });
        }
        (self.now, self.looks) = (now, looks);
        for token in self.threads.take_late(&looks) {
            let result = Err(IoError::of_metadata(MemberError::Timeout, None));
            self.inputs.push(MetadataInput::MetaDone { token, result });
        }
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.inputs.push(MetadataInput::Timer);
        }
        self.loops.iter_mut().for_each(|background| background.tick(now));
        while self.has_work() {
            let mut effects = std::mem::take(&mut self.effects);
            self.manager.handle(now, &mut self.inputs, &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect, controls);
            }
            self.effects = effects;
        }
    }

    fn perform(&mut self, effect: MetadataEffect, controls: &mut Vec<(u16, Control)>) {
        match effect {
            MetadataEffect::WriteMeta { token, device, record } => {
                self.log_write(device, &record);
                self.submit(device, token, Some(record));
            }
            MetadataEffect::Flush { token, device } => self.submit(device, token, None),
            MetadataEffect::SetTimer { at } => self.timer = Some(at),
            MetadataEffect::ToShard { shard, control } => controls.push((shard, control)),
            MetadataEffect::DeviceFailed { device, slot, replaces, error, by } => {
                if let (Some(member), None) = (slot, by) {
                    let (device, _) = self.threads.name(device);
                    let errno = error.and_then(|error| error.errno).map(|errno| errno.get());
                    tracing::error!(member = member.0, device, errno, "member failed");
                    let event = match replaces {
                        true => Event::ReplacementFailed { member, error },
                        false => Event::MemberFailed { member, error },
                    };
                    self.events.push(Report::now(event, Some(device.to_string())));
                }
                self.threads.retire(device);
                self.retired.push(device);
                let (name, data_offset) = self.threads.name(device);
                let text = |error| late_text(&error, data_offset, self.limit);
                let why = error.map(|error| format!(": {}", text(error)));
                let why = why.unwrap_or_default();
                self.notes.push(format!("{name} (device {}) is out of service{why}.", device.0));
            }
            MetadataEffect::Removed { device, place } => {
                let (name, _) = self.threads.name(device);
                tracing::info!(number = device.0, device = name, "device removed");
                let report = Report::now(Event::DeviceRemoved { device }, Some(name.to_string()));
                self.events.push(report);
                self.threads.remove(device);
                self.retired.push(device);
                self.unbound.extend(place);
            }
            MetadataEffect::ResyncNeeded => self.loops[0].needed(),
            MetadataEffect::RebuildNeeded => self.loops[1].needed(),
            MetadataEffect::Join { device, place, replaces } => {
                self.joins.push(ChosenDevice { number: device, place, replaces });
            }
            MetadataEffect::MemberInSync { device, member } => {
                let number = Some(device);
                let (device, _) = self.threads.name(device);
                tracing::info!(member = member.0, device, "member rebuilt and in sync");
                let event = Event::MemberInSync { member, device: number };
                self.events.push(Report::now(event, Some(device.to_string())));
            }
            MetadataEffect::BecameReadOnly { why } => {
                self.loops.iter_mut().for_each(BackgroundLoop::became_read_only);
                self.notes.push(format!("The array is read-only now: {why}."));
            }
            MetadataEffect::Stopped { clean } => {
                self.loops.iter_mut().for_each(BackgroundLoop::stopped);
                self.stopped = Some(clean);
            }
        }
    }

    fn log_write(&self, device: DeviceNumber, record: &Record) {
        let (device, _) = self.threads.name(device);
        match record {
            Record::Superblock(state) => {
                tracing::debug!(device, events = state.events, "superblock write");
            }
            Record::Bitmap(page) => tracing::debug!(device, page = page.page, "bitmap write"),
            Record::EndPpl | Record::EmptyPpl => {
                tracing::debug!(device, "partial parity log write")
            }
        }
    }

    fn submit(&mut self, device: DeviceNumber, token: MetaToken, record: Option<Record>) {
        if !self.threads.submit(device, token, record, self.looks.time()) {
            let result = Err(IoError::of_metadata(MemberError::Gone, None));
            self.inputs.push(MetadataInput::MetaDone { token, result });
        }
    }

    // ---- resync and rebuilds

    /// The next range of the resync or of a rebuild, if there is one.
    pub(crate) fn next_range(&mut self, work: BackgroundWork) -> Option<BackgroundRange> {
        let MetadataWriter { loops: [resync, rebuild], manager, loop_effects, .. } = self;
        let next = match work {
            BackgroundWork::Resync => {
                resync.next_range(|| BackgroundRun::of_resync(manager.resync()), loop_effects)
            }
            _ => rebuild.next_range(|| manager.rebuilds(), loop_effects),
        };
        self.perform_background(work);
        next
    }

    /// A range has ended.
    pub(crate) fn range_done(
        &mut self,
        now: u64,
        range: BackgroundRange,
        result: Result<(), RequestError>,
    ) {
        let work = BackgroundWork::of(range.op);
        self.loops[work.turn()].done(now, range, result, &mut self.loop_effects);
        self.perform_background(work);
    }

    fn perform_background(&mut self, work: BackgroundWork) {
        let name = match work {
            BackgroundWork::Resync => "resync",
            _ => "rebuild",
        };
        for effect in self.loop_effects.drain(..) {
            match effect {
                BackgroundEffect::Report(input) => self.inputs.push(input),
                BackgroundEffect::Began { run, position, sectors } => {
                    tracing::info!(run, position, sectors, "{name} begins");
                }
                BackgroundEffect::Progress { run, position, parts } => {
                    tracing::info!(
                        run,
                        position,
                        "{name}: {parts} of {RESYNC_PARTS} parts in sync"
                    );
                }
                BackgroundEffect::Completed { run } => tracing::info!(run, "{name} completed"),
                BackgroundEffect::Stalled { why, sectors } => self.notes.push(match work {
                    BackgroundWork::Resync => {
                        format!("The resync is stalled: {why}. It is retried.")
                    }
                    _ => format!(
                        "The rebuild is stalled: {sectors} sectors cannot be rebuilt: {why}. \
                         They are retried."
                    ),
                }),
            }
        }
    }

    /// Cancels the resync, or rebuilds: positions are recorded, and they begin again by order.
    pub(crate) fn cancel(&mut self, work: BackgroundWork) {
        let Some(background) = self.loops.get_mut(work.turn()) else { return };
        background.cancel(&mut self.loop_effects);
        self.perform_background(work);
    }

    /// Starts to keep the metadata of one more device.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn add(&mut self, device: MetadataDevice) -> io::Result<()> {
        self.threads.add(device.into())
    }

    /// Has the metadata manager follow an order at once: what it decides is known afterwards. Its
    /// effects are performed in the next turn.
    pub(crate) fn order(&mut self, order: MetadataInput) {
        self.inputs.push(order);
        self.manager.handle(self.now, &mut self.inputs, &mut self.effects);
    }

    /// Devices that the metadata manager has chosen for slots since the last call.
    pub(crate) fn take_joins(&mut self) -> Vec<ChosenDevice> {
        std::mem::take(&mut self.joins)
    }

    /// Devices that are out of service since the last call.
    pub(crate) fn take_retired(&mut self) -> Vec<DeviceNumber> {
        std::mem::take(&mut self.retired)
    }

    /// Places of devices that have left the array since the last call.
    pub(crate) fn take_unbound(&mut self) -> Vec<MemberIdx> {
        std::mem::take(&mut self.unbound)
    }

    /// What superblocks of new devices are made from.
    pub(crate) fn template(&self) -> Option<&MetadataTemplate> {
        self.template.as_ref()
    }

    /// See [`MetadataManager::free_number`].
    pub(crate) fn free_number(&self) -> DeviceNumber {
        self.manager.free_number()
    }

    /// Whether the bitmap marks all that a member has missed since this event count.
    pub(crate) fn bitmap_covers(&self, events: u64) -> bool {
        self.manager.bitmap_covers(events)
    }

    /// Whether a device can leave the array.
    pub(crate) fn may_remove(&self, number: DeviceNumber) -> Result<(), RemoveRefusal> {
        self.manager.may_remove(number)
    }

    /// Whether a device with this number can be a spare.
    pub(crate) fn may_add_spare(&self, number: DeviceNumber) -> Result<(), JoinRefusal> {
        self.manager.may_add_spare(number)
    }

    /// Whether a device with this number can be put into a slot.
    pub(crate) fn may_join(
        &self,
        number: DeviceNumber,
        slot: MemberIdx,
    ) -> Result<(), JoinRefusal> {
        self.manager.may_join(number, slot)
    }

    /// Whether a device can replace the member of a slot; `None`: metadata 0.90 cannot record it.
    pub(crate) fn may_replace(&self, slot: MemberIdx) -> Option<Result<(), ReplaceRefusal>> {
        self.records_replacements.then(|| self.manager.may_replace(slot))
    }

    /// Whether a resync is at work, which rebuilds wait for.
    pub(crate) fn is_before_rebuild(&self) -> bool {
        let status = self.manager.status();
        let resyncs = self.loops[0].is_active() && status.resync_offset.is_some();
        resyncs && status.resync_stalled.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_and_said_once() {
        let mut notes = Notes::default();
        for _ in 0..1000 {
            notes.push("no space".into());
        }
        assert_eq!(notes.0, ["no space"]);
        for number in 0..1000 {
            notes.push(format!("note {number}"));
        }
        assert_eq!(notes.0.len(), MAX_NOTES);
        assert_eq!(notes.0[MAX_NOTES - 1], "note 999");
    }
}
