//! Selects the metadata manager's next job, and defines the writes of each phase and the result of
//! each job.
//!
//! Invariant: a job begins only when the previous one has ended, and `on_disk` changes only when
//! all of an update is on every serving member. Called only from `manager`.

use std::sync::Arc;

use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::ondisk::{Role, Timestamp};

use super::{Asked, Lost, MetadataManager, OnDisk, is_passed_by};
use crate::metadata::bits::Bits;
use crate::metadata::event_counts::Turn;
use crate::metadata::job::{Goal, Job, Phase, Update, Why};
use crate::metadata::types::{
    ManagedDevice, MetaToken, MetadataEffect, MetadataMode, ReadOnlyReason, Record,
};
use crate::{Control, IoError};

/// Retry interval after a lack of space: 1 s.
const RETRY_NANOS: u64 = 1_000_000_000;

/// Fraction of a resync after which its position is recorded, as in md.
pub(super) const CHECKPOINT_PARTS: u64 = 16;

impl MetadataManager {
    pub(super) fn meta_done(
        &mut self,
        token: MetaToken,
        result: Result<(), IoError>,
        out: &mut Vec<MetadataEffect>,
    ) {
        // A completion of an abandoned job is ignored.
        let Some(job) = &mut self.job else { return };
        let Some(device) = job.done(token) else { return };
        let count = match &job.goal {
            Goal::Update(update) if job.writes_superblocks() => Some(update.state.events),
            _ => None,
        };
        if count.is_some() {
            self.devices[device].events = count.filter(|_| result.is_ok());
        }
        match result {
            Ok(()) => {}
            // A lack of space or memory does not take a device out of service: requests that depend
            // on the job fail or wait, and it is repeated. A spare may miss some updates.
            Err(error) if error.kind.lacks().is_some() => {
                if self.devices[device].kept.slot.is_some() {
                    job.spoiled = true;
                    job.lacking = true;
                    // Superblocks written one after the other may be torn now: at most one of them.
                    job.drop_rest_in_turn();
                    self.retry_at = self.now + RETRY_NANOS;
                }
            }
            Err(error) => self.lose(device, Some(error), Lost::Metadata, out),
        }
    }

    /// Runs until all effects that are possible now have been issued.
    pub(super) fn run_jobs(&mut self, out: &mut Vec<MetadataEffect>) {
        loop {
            self.answer(out);
            if let Some(job) = &mut self.job {
                let devices = &self.devices;
                job.send(&mut self.next_token, |at| devices[at].kept.number, out);
                if !job.is_quiet() {
                    return;
                }
                self.phase_done(out);
                continue;
            }
            self.take_out();
            self.forget();
            match self.choose(out) {
                Some(job) => self.job = Some(job),
                None => return,
            }
        }
    }

    /// All writes of a phase have completed or were given up: starts the next phase, or ends the
    /// job.
    fn phase_done(&mut self, out: &mut Vec<MetadataEffect>) {
        let mut job = self.job.take().expect("a phase belongs to a job");
        let pages = std::mem::take(&mut job.pages);
        if job.lacking {
            return self.no_space(job, out);
        }
        match (job.phase, &mut self.bits) {
            // A device that has joined in the meantime does not have them.
            (Some(Phase::Pages), Some(bits)) if !job.spoiled => {
                pages.iter().for_each(|page| bits.page_done(page));
            }
            (Some(Phase::Header), Some(bits)) => bits.header_done(),
            (Some(Phase::Superblocks), _) => return self.update_done(&job, out),
            _ => {}
        }
        if job.spoiled {
            return;
        }
        if let Some(phase) = job.phases.pop_front() {
            job.phase = Some(phase);
            self.fill(&mut job, phase);
            self.job = Some(job);
        }
    }

    /// A member had no room: waiting requests must get an answer.
    fn no_space(&mut self, job: Job, out: &mut Vec<MetadataEffect>) {
        if job.phase == Some(Phase::Flush) {
            // The data may be volatile for now; no request waits for this flush.
            return;
        }
        match (job.phase, job.goal, &mut self.bits) {
            (Some(phase), Goal::Update(update), _) if phase.is_of_superblocks() => {
                self.unfinished = Some(update);
            }
            (Some(Phase::Header), Goal::Clear, Some(bits)) => bits.counts.clearing_failed(),
            _ => {}
        }
        self.forget_asked(|Asked { shard, first_bit, bits }| {
            let control = Control::NotGranted { first_bit, bits };
            out.push(MetadataEffect::ToShard { shard, control });
        });
        for (shard, _) in &self.epochs {
            let control = Control::NoSpaceToRecord;
            out.push(MetadataEffect::ToShard { shard: *shard, control });
        }
        if self.holds_logs() {
            self.to_shards(Control::NoSpaceToRecord, out);
        }
    }

    fn update_done(&mut self, job: &Job, out: &mut Vec<MetadataEffect>) {
        let Goal::Update(update) = &job.goal else { unreachable!("only updates end so") };
        let (state, before) = (&update.state, self.on_disk.state.clone());
        let lost = self.wanted.losses != update.revision.losses;
        let repeats = self.counts.written(state.events, update.turn, lost);
        self.on_disk = OnDisk {
            state: state.clone(),
            dirty: update.dirty,
            resync_offset: state.resync_offset,
            policy: state.policy,
            taken_back: repeats.then_some(before),
        };
        self.recorded.losses = update.revision.losses;
        self.recorded.changes = update.revision.changes;
        self.logs_emptied |= update.dirty && update.why != Why::CatchUp;
        self.checkpoint_at = self.now;
        if update.flushes {
            self.recorded.checkpoints = update.revision.checkpoints;
        }
        let settles = update.flushes || update.state.policy != Policy::Ppl;
        if self.holds_logs() && settles && update.revision.doubts == self.wanted.doubts {
            self.recorded.doubts = self.wanted.doubts;
            out.extend((0..self.shards).zip(&self.reports).map(|(shard, &reports)| {
                let control = Control::DoubtRecorded { reports };
                MetadataEffect::ToShard { shard, control }
            }));
        }
        if update.why != Why::CatchUp {
            self.rebuilt_recorded(update, out);
            self.put_back(update);
        }
        self.have_left(out);
    }

    /// Collects the writes of a phase.
    fn fill(&mut self, job: &mut Job, phase: Phase) {
        let serving: Vec<usize> = self.serving().collect();
        match phase {
            Phase::Flush => serving.iter().for_each(|at| job.add(*at, None)),
            // Devices that have joined were prepared, and may have a log that is in use.
            Phase::EndPpl | Phase::EmptyPpl => {
                let ends = matches!(&job.goal, Goal::Update(update) if update.why == Why::Stop);
                let older = serving.iter().filter(|at| ends || !self.devices[**at].has_joined);
                let record = if phase == Phase::EndPpl { Record::EndPpl } else { Record::EmptyPpl };
                older.for_each(|at| job.add(*at, Some(record.clone())));
            }
            Phase::Header | Phase::Pages => self.fill_pages(job, phase, &serving),
            Phase::First | Phase::Superblocks => self.fill_superblocks(job, phase, serving),
        }
    }

    fn fill_superblocks(&mut self, job: &mut Job, phase: Phase, serving: Vec<usize>) {
        let Goal::Update(update) = &job.goal else { unreachable!("others have none") };
        let (state, turn) = (update.state.clone(), update.turn);
        let catches_up = update.why == Why::CatchUp;
        self.counts.sent(state.events);
        job.in_turn = self.in_turn;
        // A member with this event count has the same contents: see `choose`.
        let is_behind = |at: &usize| self.devices[*at].events != Some(state.events);
        let is_first =
            |at: &usize| self.takes_over(*at, &state) || self.devices[*at].recorded_too_far;
        let gets = |at: &usize| {
            let is_out = self.is_faulty_in(*at, &state) || !self.is_listed(*at, &state);
            !is_out && (!catches_up || self.has_its_slot(*at))
        };
        let spares = |at: &usize| {
            let device = &self.devices[*at];
            // A device with a slot is failed when it falls behind.
            let is_updated = turn == Turn::Other || is_passed_by(&device.kept, &self.states);
            let is_listed = !self.is_new(*at) && self.is_known_in(*at, &state);
            let is_spare = !device.failed && device.kept.slot.is_none();
            is_spare && !catches_up && is_updated && is_listed
        };
        let members = serving.into_iter().filter(is_behind);
        let at: Vec<usize> = match phase {
            Phase::First => members.filter(is_first).collect(),
            _ => members.filter(gets).chain((0..self.devices.len()).filter(spares)).collect(),
        };
        at.into_iter().for_each(|at| job.add(at, Some(Record::Superblock(state.clone()))));
    }

    fn fill_pages(&mut self, job: &mut Job, phase: Phase, serving: &[usize]) {
        let events = match &job.goal {
            Goal::Update(update) => update.state.events,
            _ => self.counts.on_disk(),
        };
        let Some(bits) = &mut self.bits else { return };
        let mut pages = match (phase, &job.goal) {
            (Phase::Header, Goal::Update(_)) => vec![0],
            (Phase::Header, _) if bits.counts.clear(events) => vec![0],
            (Phase::Header, _) => vec![],
            (_, Goal::Clear) => {
                let held = &self.held;
                bits.clear(|bit| held[bit as usize] > 0)
            }
            (_, Goal::Bits) => bits.pages_to_set(),
            // The header is written with every update, before the superblocks.
            (_, Goal::Update(_)) => [vec![0], bits.pages_to_set()].concat(),
        };
        pages.dedup();
        // A crash in between leaves a stale bitmap stale: its header is written in a separate
        // phase.
        let events = (phase == Phase::Header || !bits.is_stale()).then_some(events);
        for page in pages {
            let page = bits.page(page, events);
            serving.iter().for_each(|at| job.add(*at, Some(Record::Bitmap(page.clone()))));
            if phase == Phase::Pages {
                job.pages.push(page);
            }
        }
    }

    // ---- what comes next

    pub(super) fn is_recorded(&self) -> bool {
        self.wanted.losses == self.recorded.losses && self.counts.lost_are_stale()
    }

    fn choose(&mut self, out: &mut Vec<MetadataEffect>) -> Option<Job> {
        let closing = self.mode == MetadataMode::Closing;
        match self.mode {
            MetadataMode::Running | MetadataMode::Closing => {}
            MetadataMode::ReadOnly(_) | MetadataMode::Stopped => {
                self.end(out);
                return None;
            }
        }
        if !self.updates() {
            if closing {
                self.end(out);
            }
            return None;
        }
        // A request does not wait for the timer: if there is still no space, it is refused.
        let may_try = self.now >= self.retry_at || !self.asked.is_empty();
        if let Some(update) = self.unfinished.take_if(|_| may_try) {
            // The same event count and contents: see `event_counts`.
            return Some(Job::new(Goal::Update(update), &[Phase::First, Phase::Superblocks]));
        }
        if self.touched && may_try && self.lags() {
            return Some(self.catch_up());
        }
        let is_lost = self.wanted.losses != self.recorded.losses;
        if let Some(state) = self.on_disk.taken_back.clone().filter(|_| is_lost && may_try) {
            return Some(self.step_up(state));
        }
        if !self.asked.is_empty() && (!self.on_disk.dirty || !self.may_log()) {
            return Some(self.update(Why::Dirty));
        }
        if self.touched && !self.is_recorded() && may_try {
            return Some(self.update(Why::Loss));
        }
        if self.wanted.changes != self.recorded.changes && may_try {
            return Some(self.update(Why::Table));
        }
        if !self.asked.is_empty() {
            // Not granted by `answer`: the bits are not durable.
            self.set_bits_ahead();
            return Some(Job::new(Goal::Bits, &[Phase::Pages]));
        }
        if self.now >= self.retry_at && !closing && self.wants_rebuild_recorded() {
            return Some(self.update(Why::Checkpoint));
        }
        if self.now < self.retry_at {
            if closing && self.held_total == 0 {
                // A failed attempt: the next start will handle it.
                self.end(out);
            }
            return None;
        }
        if self.wants_policy() || self.on_disk.dirty && self.holds_logs() {
            return Some(self.update(Why::Checkpoint));
        }
        if self.held_total > 0 {
            return self.clear(false);
        }
        if closing {
            return self.clear(true).or_else(|| self.stop(out));
        }
        if self.on_disk.dirty {
            return Some(self.update(Why::Clean));
        }
        if self.wants_checkpoint() {
            return Some(self.update(Why::Checkpoint));
        }
        self.clear(false)
    }

    /// Sets bits that requests will need soon together with those that they wait for.
    fn set_bits_ahead(&mut self) {
        let MetadataManager { bits: Some(bits), asked, now, bits_ahead_nanos, .. } = self else {
            return;
        };
        let around = bits.ahead(*now, *bits_ahead_nanos);
        for Asked { first_bit, bits: count, .. } in asked {
            bits.set_around(*first_bit..*first_bit + *count, around);
        }
    }

    /// Whether a member is behind the freshest, after a crash or a lack of space.
    fn lags(&self) -> bool {
        let events = Some(self.counts.on_disk());
        self.serving().any(|at| self.devices[at].events != events && self.has_its_slot(at))
    }

    /// Whether the freshest superblock gives a device the slot that it serves. A device that serves
    /// by force gets it with the first update; the freshest superblock would call it failed.
    fn has_its_slot(&self, at: usize) -> bool {
        let ManagedDevice { number, slot, .. } = self.devices[at].kept;
        if self.devices[at].has_joined {
            return false;
        }
        let found = self.found.devices.get(number.0 as usize).and_then(Option::as_ref);
        slot.is_some_and(|slot| found.is_some_and(|found| found.role == Role::Slot(slot.0)))
    }

    /// Brings members that are behind to the event count of the freshest before any count
    /// increases. They get the contents of the freshest superblock: the decisions of the start
    /// apply from the first update on.
    fn catch_up(&self) -> Job {
        let state = self.found.clone();
        let (why, dirty, revision) = (Why::CatchUp, self.on_disk.dirty, self.recorded);
        let update = Update { why, dirty, state, revision, turn: Turn::Other, flushes: false };
        Job::new(Goal::Update(update), &[Phase::Superblocks])
    }

    /// Writes the contents again whose event count was taken back: a lost member may still have
    /// them, and the loss is recorded with the next count.
    fn step_up(&self, state: Arc<ArrayState>) -> Job {
        let (why, dirty, revision) = (Why::Dirty, true, self.recorded);
        let mut phases = self.bitmap_phases();
        phases.push(Phase::Superblocks);
        let update = Update { why, dirty, state, revision, turn: Turn::Other, flushes: false };
        Job::new(Goal::Update(update), &phases)
    }

    /// What an update writes of the bitmap, before the superblocks.
    fn bitmap_phases(&self) -> Vec<Phase> {
        let Some(bits) = &self.bits else { return Vec::new() };
        let header = bits.is_stale().then_some(Phase::Header);
        std::iter::once(Phase::Pages).chain(header).collect()
    }

    fn clear(&mut self, at_once: bool) -> Option<Job> {
        let may = self.touched && self.degraded() == 0;
        let may = move |bits: &&mut Bits| may && !bits.is_stale() && bits.has_faded(at_once);
        let bits = self.bits.as_mut().filter(may)?;
        bits.begin_clearing(at_once);
        Some(Job::new(Goal::Clear, &[Phase::Flush, Phase::Header, Phase::Pages]))
    }

    fn stop(&mut self, out: &mut Vec<MetadataEffect>) -> Option<Job> {
        let said = self.on_disk.dirty
            || self.on_disk.resync_offset != self.resync
            || self.has_rebuilt_more()
            || self.on_disk.policy != self.policy;
        if said {
            return Some(self.update(Why::Stop));
        }
        self.end(out);
        None
    }

    /// Ends the closing, or completes the stop of an array that is read-only already.
    fn end(&mut self, out: &mut Vec<MetadataEffect>) {
        let broken =
            matches!(self.mode, MetadataMode::ReadOnly(why) if why != ReadOnlyReason::Ordered);
        let recorded = !self.on_disk.dirty && self.unfinished.is_none();
        let clean = !broken && recorded && !self.not_durable;
        if self.mode == MetadataMode::Closing && !self.stopping {
            let why = ReadOnlyReason::Ordered;
            self.mode = MetadataMode::ReadOnly(why);
            out.push(MetadataEffect::BecameReadOnly { why });
            self.answer(out);
        } else if self.stopping {
            self.mode = MetadataMode::Stopped;
            out.push(MetadataEffect::Stopped { clean });
        }
    }

    fn wants_checkpoint(&self) -> bool {
        let (recorded, now) = (self.on_disk.resync_offset, self.resync);
        match (recorded, now) {
            _ if recorded == now => false,
            (Some(recorded), Some(now)) if now > recorded => {
                let far = now - recorded >= (self.map.span() / CHECKPOINT_PARTS).max(1);
                far || self.is_checkpoint_due()
            }
            _ => true,
        }
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.wanted.checkpoints != self.recorded.checkpoints || self.now >= self.checkpoint_due()
    }

    pub(super) fn checkpoint_due(&self) -> u64 {
        self.checkpoint_at + self.checkpoint_nanos
    }

    /// The policy and the resync position in the superblocks of a dirty array.
    ///
    /// With a partial parity log the position stays true: rows below it are in sync but for those
    /// in the logs. At 0 it does not: a recovery takes the array for in sync everywhere once it has
    /// replayed the logs. So as long as a resync is needed from 0 on, the log is not named.
    fn promise(&self, flushes: bool) -> (Policy, Option<u64>) {
        if self.policy != Policy::Ppl {
            return (self.policy, Some(0));
        }
        let OnDisk { dirty, policy, resync_offset, .. } = self.on_disk;
        let durable = match (resync_offset, self.resync) {
            // Of the resync's progress since then only what was flushed counts.
            (_, now) if flushes || now == Some(0) => now,
            _ if dirty => return (policy, resync_offset),
            (Some(before), Some(now)) => Some(before.min(now)),
            (before, now) => before.or(now),
        };
        match durable {
            Some(0) => (Policy::Resync, Some(0)),
            position => (Policy::Ppl, position.or(Some(0))),
        }
    }

    /// Whether the superblocks of a dirty array name the log and should not, or the reverse.
    fn wants_policy(&self) -> bool {
        self.on_disk.dirty && self.on_disk.policy != self.promise(true).0
    }

    /// The resync position that records a loss. The first update after a start leaves the array as
    /// dirty as it was found, also where nothing is left to resync: the lost member is one event
    /// behind then, and kernels before 6.8 would take it, of an array that is clean.
    fn position_beside_a_loss(&self) -> Option<u64> {
        self.on_disk.resync_offset.or(self.on_disk.state.resync_offset)
    }

    fn update(&mut self, why: Why) -> Job {
        let dirty = match why {
            Why::Dirty => true,
            Why::Clean | Why::Stop => false,
            Why::CatchUp | Why::Loss | Why::Table | Why::Checkpoint => self.on_disk.dirty,
        };
        let complete = self.degraded() == 0
            && self.wanted.losses == self.recorded.losses
            && self.wanted.changes == self.recorded.changes
            && self.replaced().is_empty();
        let turn = match why {
            Why::Dirty if complete => Turn::Dirty,
            // A clean array that needs a resync is not as it was before it became dirty.
            Why::Clean if complete && self.resync.is_none() => Turn::Clean,
            _ => Turn::Other,
        };
        let events = self.counts.next(turn);
        let flushes = matches!(why, Why::Clean | Why::Checkpoint | Why::Stop);
        let (policy, resync_offset) = match why {
            _ if dirty => self.promise(flushes),
            // The resync's progress since then may not be durable.
            Why::Loss | Why::Table => (self.on_disk.policy, self.position_beside_a_loss()),
            _ if why == Why::Stop => (self.policy, self.resync),
            _ => (self.promise(flushes).0, self.resync),
        };
        let mut devices = self.states.clone();
        let mut takes_over = None;
        for at in self.serving().filter(|_| flushes) {
            let number = self.devices[at].kept.number.0 as usize;
            if let Some(Some(state)) = devices.get_mut(number)
                && self.devices[at].rebuilt_recorded.is_some()
            {
                let recovery_offset = self.rebuilt_now(at);
                let is_complete = self.devices[at].kept.replaces && recovery_offset.is_none();
                // One by one: the superblock of the first would call the former members of all of
                // them faulty, before those of the others say that they have the slots.
                if is_complete && takes_over.is_some() {
                    continue;
                }
                state.recovery_offset = recovery_offset;
                if is_complete {
                    // As md: the replacement has the slot, and what it has replaced is faulty.
                    state.replacement = false;
                    takes_over = Some(Phase::First);
                    let former = self.devices[at].kept.slot.and_then(|slot| self.device_of(slot));
                    let former = former.map(|at| self.devices[at].kept.number.0 as usize);
                    if let Some(state) = former.and_then(|number| devices.get_mut(number)) {
                        *state = Some(DeviceState::new(Role::Faulty));
                    }
                }
            }
        }
        let state =
            ArrayState { events, updated: Timestamp::default(), resync_offset, policy, devices };
        let mut phases = Vec::new();
        if flushes {
            phases.push(Phase::Flush);
        }
        phases.extend(self.bitmap_phases());
        let begins = dirty && self.policy == Policy::Ppl && !self.logs_emptied;
        // Without entries: a recovery must not take the array for in sync.
        let ends = why == Why::Stop && policy == Policy::Ppl && self.resync == Some(0);
        if begins || ends {
            phases.extend([Phase::EndPpl, Phase::EmptyPpl]);
        }
        let recorded_too_far = self.serving().any(|at| self.devices[at].recorded_too_far);
        phases.extend(takes_over.or(recorded_too_far.then_some(Phase::First)));
        phases.push(Phase::Superblocks);
        let (state, revision) = (Arc::new(state), self.wanted);
        let update = Update { why, dirty, state, revision, turn, flushes };
        Job::new(Goal::Update(update), &phases)
    }
}
