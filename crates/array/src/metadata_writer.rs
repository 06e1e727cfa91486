//! Performs the effects of the engine's metadata manager, and drives the resync.
//!
//! Invariant: a record is durable on its device before its completion is reported to the metadata
//! manager; so the state after a crash follows from the manager's write order. Records are written
//! by the devices' own threads (`metadata_threads`): the shard does not wait for them. Called only
//! from `driver`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use engine::{
    Control, ControlEvent, DeviceNumber, IoError, MemberError, MetaToken, MetadataEffect,
    MetadataInput, MetadataManager, MetadataStatus, Record, RequestError, Resync,
};
use md::Sector;

use crate::executor::Event;
use crate::member::io_error_text;
use crate::metadata_threads::{DeviceMetadata, MetadataThreads};

/// Maximum of notes kept; the oldest are dropped first.
const MAX_NOTES: usize = 64;

/// Parts of an array that a resync logs, one line each.
const LOGGED_PARTS: u64 = 16;

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

/// Executes the metadata manager's effects; see the module documentation.
pub(crate) struct MetadataWriter {
    manager: MetadataManager,
    threads: MetadataThreads,
    inputs: Vec<MetadataInput>,
    effects: Vec<MetadataEffect>,
    timer: Option<u64>,
    resync: Option<Resync>,
    /// Positions per resync request at most, and a boundary that none may cross: see
    /// [`Resync::keep_within`].
    step: u64,
    unit: u64,
    /// A resync should begin when the running one has completed its requests in flight.
    wants_resync: bool,
    at_work: usize,
    /// Error and position of the last note about a stalled resync.
    stalled: Option<(RequestError, u64)>,
    /// Progress of the running resync as last logged, in parts of the whole.
    logged: u64,
    paused: bool,
    stopped: Option<bool>,
    notes: Notes,
    /// Members that the metadata manager took out of service: no shard has reported them.
    events: Vec<Event>,
}

impl MetadataWriter {
    /// `notes`: notes to be reported from the start on.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub(crate) fn new(
        manager: MetadataManager,
        kept: Vec<DeviceMetadata>,
        notes: Vec<String>,
        step: u64,
        unit: u64,
    ) -> io::Result<MetadataWriter> {
        let mut all = Notes::default();
        notes.into_iter().for_each(|note| all.push(note));
        Ok(MetadataWriter {
            manager,
            threads: MetadataThreads::start(kept)?,
            inputs: Vec::new(),
            effects: Vec::new(),
            timer: None,
            resync: None,
            step,
            unit,
            wants_resync: true,
            at_work: 0,
            stalled: None,
            logged: 0,
            paused: false,
            stopped: None,
            notes: all,
            events: Vec::new(),
        })
    }

    pub(crate) fn status(&self) -> MetadataStatus {
        self.manager.status()
    }

    /// Problems with the metadata since the last call, one sentence each.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        self.notes.0.drain(..).collect()
    }

    /// Members that it has taken out of service since the last call.
    pub(crate) fn take_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// When it must be called next.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let resync = self.resync.as_ref().filter(|_| !self.paused);
        self.timer.into_iter().chain(resync.and_then(Resync::retry_at)).min()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.inputs.is_empty()
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
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.inputs.push(MetadataInput::Timer);
        }
        if let Some(resync) = &mut self.resync {
            resync.tick(now);
        }
        while !self.inputs.is_empty() {
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
            MetadataEffect::DeviceFailed { device, slot, error, by } => {
                if let (Some(member), None) = (slot, by) {
                    let (device, _) = self.threads.name(device);
                    let errno = error.and_then(|error| error.errno).map(|errno| errno.get());
                    tracing::error!(member = member.0, device, errno, "member failed");
                    self.events.push(Event::MemberFailed { member, error });
                }
                self.threads.retire(device);
                let (name, data_offset) = self.threads.name(device);
                let why = error.map(|error| format!(": {}", io_error_text(&error, data_offset)));
                let why = why.unwrap_or_default();
                self.notes.push(format!("{name} (device {}) is out of service{why}.", device.0));
            }
            MetadataEffect::ResyncNeeded => self.wants_resync = true,
            MetadataEffect::BecameReadOnly { why } => {
                self.resync = None;
                self.notes.push(format!("The array is read-only now: {why}."));
            }
            MetadataEffect::Stopped { clean } => self.stopped = Some(clean),
        }
    }

    fn log_write(&self, device: DeviceNumber, record: &Record) {
        let (device, _) = self.threads.name(device);
        match record {
            Record::Superblock(state) => {
                tracing::debug!(device, events = state.events, "superblock write");
            }
            Record::Bitmap(page) => tracing::debug!(device, page = page.page, "bitmap write"),
            Record::EmptyPpl => tracing::debug!(device, "partial parity log write"),
        }
    }

    fn submit(&mut self, device: DeviceNumber, token: MetaToken, record: Option<Record>) {
        if !self.threads.submit(device, token, record) {
            let result = Err(IoError::of_metadata(MemberError::Gone, None));
            self.inputs.push(MetadataInput::MetaDone { token, result });
        }
    }

    // ---- resync

    /// The next range of the resync, if there is one.
    pub(crate) fn next_resync(&mut self) -> Option<(Sector, u64)> {
        if self.wants_resync && self.at_work == 0 && self.stopped.is_none() && !self.paused {
            self.wants_resync = false;
            self.resync = self.manager.resync();
            self.logged = 0;
            if let Some(resync) = &self.resync {
                let (run, position) = (resync.run(), resync.position());
                tracing::info!(run, position, "resync begins");
            }
            if let Some(resync) = &mut self.resync {
                resync.set_pace(self.step, engine::DEFAULT_RESYNC_DEPTH);
                resync.keep_within(self.unit);
            }
            self.report();
        }
        let resync = self.resync.as_mut().filter(|_| !self.paused && !self.wants_resync)?;
        let mut next = Vec::new();
        resync.next(1, &mut next);
        let next = next.pop()?;
        self.at_work += 1;
        Some(next)
    }

    pub(crate) fn resync_done(&mut self, now: u64, at: Sector, result: Result<(), RequestError>) {
        self.at_work -= 1;
        let Some(resync) = &mut self.resync else { return };
        resync.done(now, at, result);
        if let Some(why) = resync.stalled() {
            let reported = self.stalled.replace((why, resync.failed()));
            if reported != self.stalled {
                let note = format!("The resync is stalled: {why}. It is retried.");
                self.notes.push(note);
            }
        }
        self.report();
    }

    /// Reports the resync's position to the metadata manager, and drops a resync that has ended.
    fn report(&mut self) {
        let Some(resync) = &self.resync else { return };
        let (run, position, stalled) = (resync.run(), resync.position(), resync.stalled());
        self.inputs.push(MetadataInput::ResyncAt { run, position, stalled });
        let parts = position / (resync.span() / LOGGED_PARTS).max(1);
        if resync.is_done() {
            tracing::info!(run, "resync completed");
            self.resync = None;
        } else if parts > self.logged {
            self.logged = parts;
            tracing::info!(run, position, "resync: {parts} of {LOGGED_PARTS} parts in sync");
        }
    }

    /// Pauses or resumes the resync.
    pub(crate) fn pause_resync(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether resync ranges are in flight.
    pub(crate) fn resync_is_at_work(&self) -> bool {
        self.at_work > 0
    }

    /// Whether there is a resync that has not ended, running or paused.
    pub(crate) fn resyncs(&self) -> bool {
        self.resync.is_some() || self.wants_resync
    }

    /// Whether a resync range could be issued now.
    pub(crate) fn may_resync(&self) -> bool {
        let has_next = self.wants_resync || self.resync.as_ref().is_some_and(Resync::has_next);
        has_next && !self.paused && self.at_work == 0 && self.stopped.is_none()
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
