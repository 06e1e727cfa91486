//! What happens to a served array: events in the words of `mdadm --monitor`, numbered.
//!
//! Invariant: every event has a number of its own, in the order in which they were observed; the
//! last [`KEPT`] are kept, and a reader that is further behind gets the number that it missed. The
//! device and the time of an event are those of the happening: by the time at which it is
//! collected, a spare may have the slot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use array::{
    BackgroundState, BackgroundStatus, BackgroundWork, Event as ArrayEvent, Report, io_error_text,
};
use md::MemberIdx;

use super::Shared;

/// Events that are kept.
const KEPT: usize = 1000;
/// How often the array's reports are collected.
const STEP: Duration = Duration::from_millis(200);

/// Kinds of events; the names are those of `mdadm --monitor` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The array is served now.
    NewArray,
    /// A member was taken out of service.
    Fail,
    /// A spare, or what was to replace a member, was taken out of service.
    FailSpare,
    /// A member that was rebuilt, or has replaced another, is in service.
    SpareActive,
    /// A device has left the array.
    Removed,
    /// The array lacks members.
    DegradedArray,
    /// A resync, a rebuild or a scrub has begun.
    RebuildStarted,
    /// It has come past 20, 40, 60 or 80 %.
    RebuildNN(u8),
    /// It has ended.
    RebuildFinished,
    /// A scrub has found redundancy that differs.
    MismatchFound,
    /// A range that a member could not read was recovered and written back.
    ReadErrorCorrected,
    /// A range was lost: nothing can be read that it could be computed from.
    BadBlocks,
    /// A member does not complete an operation, and the array cannot run without it.
    MemberLate,
    /// It has completed it.
    MemberBack,
    /// Anything else, as a sentence.
    Note,
}

impl EventKind {
    /// Name of the event.
    pub fn name(self) -> String {
        match self {
            EventKind::RebuildNN(percent) => format!("Rebuild{percent}"),
            other => format!("{other:?}"),
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it happened; of background work, when it was observed.
    pub at: SystemTime,
    /// Kind of the event.
    pub kind: EventKind,
    /// The device that it concerned when it happened, as it was named.
    pub device: Option<String>,
    /// The same as a sentence.
    pub text: String,
}

/// What a reader gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Events, in order.
    pub events: Vec<Event>,
    /// Number of events before them that are not kept any more.
    pub missed: u64,
    /// No more will come: the array is being stopped.
    pub ended: bool,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Event>,
    last: u64,
    stopping: bool,
}

#[derive(Default)]
struct Log {
    kept: Mutex<Kept>,
    changed: Condvar,
}

impl Log {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("the log's lock is not poisoned")
    }

    fn put(&self, kind: EventKind, text: String) {
        self.put_at(SystemTime::now(), kind, None, text);
    }

    fn put_at(&self, at: SystemTime, kind: EventKind, device: Option<String>, text: String) {
        let mut kept = self.kept();
        kept.last += 1;
        let number = kept.last;
        kept.events.push_back(Event { number, at, kind, device, text });
        if kept.events.len() > KEPT {
            kept.events.pop_front();
        }
        drop(kept);
        self.changed.notify_all();
    }
}

/// The thread that collects what the array reports.
pub(super) struct Monitor {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Monitor> {
        let log = Arc::new(Log::default());
        let slots = 0..shared.served.geometry.members() as u16;
        let observer = Observer {
            shared,
            log: log.clone(),
            syncs: BTreeMap::new(),
            in_service: slots.map(MemberIdx).collect(),
        };
        let thread = std::thread::Builder::new()
            .name("raidlab-monitor".into())
            .spawn(move || observer.run())?;
        Ok(Monitor { log, thread: Some(thread) })
    }

    pub(super) fn watch(&self, seen: u64, patience: Duration) -> Watched {
        let until = Instant::now() + patience;
        let mut kept = self.log.kept();
        while kept.last <= seen && !kept.stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.log.changed.wait_timeout(kept, left);
            kept = woken.expect("the log's lock is not poisoned").0;
        }
        let first = kept.events.front().map_or(kept.last + 1, |event| event.number);
        let events = kept.events.iter().filter(|event| event.number > seen).cloned().collect();
        Watched { events, missed: first.saturating_sub(seen + 1), ended: kept.stopping }
    }

    /// Ends the thread, and everything that waits for events.
    pub(super) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.log.kept().stopping = true;
        self.log.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

/// State of the monitor's thread.
struct Observer {
    shared: Arc<Shared>,
    log: Arc<Log>,
    /// Background work that runs: the last 20 % that were reported.
    syncs: BTreeMap<BackgroundWork, u8>,
    /// Slots whose members are in service, and in sync, as the events say.
    in_service: BTreeSet<MemberIdx>,
}

impl Observer {
    fn run(mut self) {
        let text = format!("{} is served", self.shared.served.name);
        self.log.put(EventKind::NewArray, text);
        loop {
            self.collect();
            let kept = self.log.kept();
            if kept.stopping {
                return;
            }
            let waits = |kept: &mut Kept| !kept.stopping;
            let woken = self.log.changed.wait_timeout_while(kept, STEP, waits);
            if woken.expect("the log's lock is not poisoned").0.stopping {
                return;
            }
        }
    }

    fn collect(&mut self) {
        let array = self.shared.array.clone();
        let there = self.shared.in_service();
        let reports = array.take_reports();
        let is_quiet = reports.is_empty();
        for report in reports {
            let Report { what: event, at, .. } = report;
            self.of_array(report);
            match event {
                // A small array may be rebuilt already: what is counted is what there was then.
                ArrayEvent::MemberFailed { member, .. } if self.in_service.remove(&member) => {
                    self.degraded(at);
                }
                ArrayEvent::MemberInSync { member, .. } => drop(self.in_service.insert(member)),
                _ => {}
            }
        }
        for note in array.take_notes() {
            self.log.put(EventKind::Note, note);
        }
        self.mismatches();
        // First: what begins in between is running, or over, in the other.
        let mut findings = self.shared.findings.lock().expect("the list lock is not poisoned");
        let begun = findings.begun.take();
        drop(findings);
        let background = array.background();
        self.background(begun, &background);
        if is_quiet {
            // What the array lacked from the start, and what has no event.
            let has_less = !there.is_superset(&self.in_service);
            self.in_service = there;
            if has_less {
                self.degraded(SystemTime::now());
            }
        }
    }

    fn degraded(&self, at: SystemTime) {
        let (slots, there) = (self.shared.served.geometry.members(), self.in_service.len());
        let text = format!("{there} of {slots} members are in service");
        self.log.put_at(at, EventKind::DegradedArray, None, text);
    }

    fn of_array(&self, report: Report) {
        let Report { what: event, device, at } = report;
        let why = |error: Option<array::IoError>| match error {
            Some(error) => format!("in its data area: {}", io_error_text(&error, 0)),
            None => "on request".into(),
        };
        let slot = slot_of(&event);
        let (kind, text) = match event {
            ArrayEvent::MemberFailed { member, error } => {
                (EventKind::Fail, format!("slot {member}: {}", why(error)))
            }
            ArrayEvent::ReplacementFailed { member, error } => {
                let text = format!("replacement of slot {member}: {}", why(error));
                (EventKind::FailSpare, text)
            }
            ArrayEvent::MemberInSync { member, .. } => {
                (EventKind::SpareActive, format!("slot {member}: in sync"))
            }
            ArrayEvent::MemberLate { member, error } => {
                let text = format!("slot {member}: in its data area: {}", io_error_text(&error, 0));
                (EventKind::MemberLate, text)
            }
            ArrayEvent::MemberBack { member } => {
                let text = format!("slot {member}: late operations have completed");
                (EventKind::MemberBack, text)
            }
            ArrayEvent::Corrected { member, sector, sectors } => {
                let text = format!(
                    "slot {member}: {sectors} sectors at {} of its data were recovered and written \
                     back",
                    sector.0
                );
                (EventKind::ReadErrorCorrected, text)
            }
            ArrayEvent::DeviceRemoved { device } => {
                (EventKind::Removed, format!("device {} has left the array", device.0))
            }
            ArrayEvent::BadBlocksAdded { member, sector, sectors, .. } => {
                let text = format!(
                    "slot {member}: {sectors} sectors at {} of its data are lost: listed as bad \
                     blocks",
                    sector.0
                );
                (EventKind::BadBlocks, text)
            }
        };
        let device = device.or_else(|| self.shared.name_in_memory(slot?));
        self.log.put_at(at, kind, device, text);
    }

    fn mismatches(&self) {
        let found = self.shared.array.take_mismatches();
        let (Some(first), sectors) =
            (found.first(), found.iter().map(|it| it.what.sectors).sum::<u64>())
        else {
            return;
        };
        let Report { what: first, device, at } = first.clone();
        let device = device.or_else(|| self.shared.name_in_memory(first.member?));
        let text = format!("{sectors} sectors differ, the first at {}", first.array_sector.0);
        let mut findings = self.shared.findings.lock().expect("the list lock is not poisoned");
        found.iter().for_each(|it| findings.counts.add(&it.what));
        let room = crate::MAX_FINDINGS.saturating_sub(findings.list.len());
        findings.list.extend(found.into_iter().map(|it| it.what).take(room));
        drop(findings);
        self.log.put_at(at, EventKind::MismatchFound, device, text);
    }

    /// `begun`: a scrub since the last look.
    fn background(&mut self, begun: Option<BackgroundWork>, now: &[BackgroundStatus]) {
        let is_scrub = |work| matches!(work, BackgroundWork::Check | BackgroundWork::Repair);
        let is_running = |it: &BackgroundStatus| it.state == BackgroundState::Running;
        let array = &self.shared.array;
        if now.iter().any(|it| is_scrub(it.work) && is_running(it)) && !array.failed().is_empty() {
            // Nothing is proven by redundancy that is not there. One that waits for a rebuild may
            // be of a whole array.
            array.stop_scrub();
        }
        if let Some(work) = begun
            && !self.syncs.contains_key(&work)
        {
            self.log.put(EventKind::RebuildStarted, format!("{} has begun", work.name()));
            self.syncs.insert(work, 0);
        }
        for status in now.iter().filter(|it| is_running(it)) {
            let done = status.progress.position * 100 / status.progress.total.max(1);
            let fifth = (done / 20 * 20).min(80) as u8;
            let action = status.work.name();
            match self.syncs.get(&status.work) {
                None => {
                    let text = format!("{action} has begun");
                    self.log.put(EventKind::RebuildStarted, text);
                }
                Some(last) if *last < fifth => {
                    let text = format!("{action} is past {fifth} %");
                    self.log.put(EventKind::RebuildNN(fifth), text);
                }
                Some(_) => continue,
            }
            self.syncs.insert(status.work, fifth);
        }
        let is_there = |work: &BackgroundWork| now.iter().any(|it| it.work == *work);
        let ended: Vec<_> = self.syncs.keys().copied().filter(|work| !is_there(work)).collect();
        for work in ended {
            self.syncs.remove(&work);
            let text = match is_scrub(work) && !self.shared.array.failed().is_empty() {
                true => format!("{} was stopped: the array is degraded", work.name()),
                false => format!("{} has ended", work.name()),
            };
            self.log.put(EventKind::RebuildFinished, text);
        }
    }
}

/// The slot that an event is about.
fn slot_of(event: &ArrayEvent) -> Option<MemberIdx> {
    match *event {
        ArrayEvent::MemberFailed { member, .. }
        | ArrayEvent::ReplacementFailed { member, .. }
        | ArrayEvent::MemberInSync { member, .. }
        | ArrayEvent::MemberLate { member, .. }
        | ArrayEvent::MemberBack { member }
        | ArrayEvent::Corrected { member, .. }
        | ArrayEvent::BadBlocksAdded { member, .. } => Some(member),
        ArrayEvent::DeviceRemoved { .. } => None,
    }
}
