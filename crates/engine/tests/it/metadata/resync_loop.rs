//! The background loop with its metadata manager: when a run begins, what is reported of it.

use md::Level;
use raidlab_engine::{
    BackgroundEffect, BackgroundLoop, BackgroundRange, BackgroundRun, BackgroundState, HostOp,
    MetadataInput, RequestError,
};

use super::harness::{Harness, config};

/// A RAID 5 of three members with 1024 positions, out of sync everywhere, and its loop.
struct Looped {
    harness: Harness,
    resync: BackgroundLoop,
    /// In flight.
    ranges: Vec<BackgroundRange>,
    /// Events since the last call of [`Looped::events`], and the latest reported position.
    events: Vec<String>,
    position: u64,
}

impl Looped {
    fn new(step: u64) -> Looped {
        let mut config = config(Level::Raid5, 3, 0);
        config.state.resync_offset = Some(0);
        let resync = BackgroundLoop::new(HostOp::Resync, config.geometry.clone(), step, u64::MAX);
        let (ranges, events) = (Vec::new(), Vec::new());
        Looped { harness: Harness::new(config), resync, ranges, events, position: 0 }
    }

    fn next(&mut self) -> Option<u64> {
        let mut effects = Vec::new();
        let manager = &mut self.harness.manager;
        let next =
            self.resync.next_range(|| BackgroundRun::of_resync(manager.resync()), &mut effects);
        self.perform(effects);
        self.ranges.extend(next);
        next.map(|range| range.at.0)
    }

    fn done(&mut self, at: u64, result: Result<(), RequestError>) {
        let mut effects = Vec::new();
        let mine = self.ranges.iter().position(|range| range.at.0 == at);
        let range = self.ranges.swap_remove(mine.expect("it is in flight"));
        self.resync.done(self.harness.now, range, result, &mut effects);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<BackgroundEffect>) {
        for effect in effects {
            match effect {
                BackgroundEffect::Report(input) => {
                    match input {
                        MetadataInput::ResyncAt { position, .. } => self.position = position,
                        MetadataInput::Checkpoint => self.events.push("checkpoint".into()),
                        _ => panic!("reports {input:?}"),
                    }
                    self.harness.tell(input);
                }
                BackgroundEffect::Began { run, position, .. } => {
                    self.events.push(format!("run {run} from {position}"));
                }
                BackgroundEffect::Progress { parts, .. } => self.events.push(format!("{parts}/16")),
                BackgroundEffect::Stalled { why, .. } => {
                    self.events.push(format!("stalled: {why:?}"))
                }
                BackgroundEffect::Completed { run } => {
                    self.events.push(format!("run {run} completed"))
                }
            }
        }
    }

    fn events(&mut self) -> String {
        std::mem::take(&mut self.events).join(", ")
    }
}

#[test]
fn a_run_begins_with_the_array_reports_its_parts_and_ends() {
    let mut looped = Looped::new(256);
    assert!(looped.resync.is_active() && looped.resync.has_next());
    for (at, events) in [(0, "run 1 from 0"), (256, "4/16"), (512, "8/16"), (768, "12/16")] {
        assert_eq!(looped.next(), Some(at));
        assert_eq!(looped.events(), events);
        assert!(looped.resync.is_in_flight() && !looped.resync.has_next(), "one is enough");
        looped.done(at, Ok(()));
        assert_eq!(looped.position, at + 256);
    }
    assert_eq!(looped.events(), "run 1 completed");
    assert_eq!(looped.harness.manager.status().resync_offset, None);
    assert!(!looped.resync.is_active() && looped.next().is_none());
    // Nothing is out of sync: the manager has none to give.
    looped.resync.needed();
    assert!(looped.resync.is_active() && looped.next().is_none());
    assert!(!looped.resync.is_active());
    assert_eq!(looped.events(), "");
}

#[test]
fn a_new_run_waits_for_the_ranges_in_flight_of_the_old_one() {
    let mut looped = Looped::new(256);
    assert_eq!((looped.next(), looped.next()), (Some(0), Some(256)));
    looped.resync.needed();
    assert_eq!(looped.next(), None);
    looped.done(256, Ok(()));
    assert_eq!(looped.next(), None);
    looped.done(0, Ok(()));
    assert_eq!(looped.position, 512, "the old run still counts");
    assert_eq!(looped.next(), Some(512));
    assert_eq!(looped.events(), "run 1 from 0, 8/16, run 2 from 512, 8/16");
}

#[test]
fn a_paused_loop_issues_nothing_and_has_no_deadline() {
    let mut looped = Looped::new(1024);
    looped.resync.pause(true);
    assert!(looped.resync.is_active() && !looped.resync.has_next() && looped.next().is_none());
    looped.resync.pause(false);
    assert_eq!(looped.next(), Some(0));
    looped.resync.pause(true);
    looped.done(0, Err(RequestError::NoSpace));
    assert_eq!(looped.resync.deadline(), None);
    looped.resync.pause(false);
    let at = looped.resync.deadline().expect("a retry");
    assert_eq!(looped.next(), None);
    looped.resync.tick(at);
    assert!(looped.resync.has_next());
    assert_eq!(looped.next(), Some(0));
}

#[test]
fn a_cancelled_run_has_its_position_recorded_and_goes_on_from_there_by_order() {
    // Below the sixteenth after which a position is recorded anyhow.
    let mut looped = Looped::new(8);
    let cancel = |looped: &mut Looped| {
        let mut effects = Vec::new();
        looped.resync.cancel(&mut effects);
        looped.perform(effects);
    };
    assert_eq!((looped.next(), looped.next(), looped.next()), (Some(0), Some(8), Some(16)));
    looped.done(0, Ok(()));
    looped.harness.run();
    assert!(looped.harness.superblocks.is_empty(), "not recorded yet");
    cancel(&mut looped);
    assert_eq!((looped.next(), looped.events()), (None, "run 1 from 0".into()));
    assert!(looped.resync.is_active(), "ranges are in flight");
    looped.done(16, Ok(()));
    assert_eq!(looped.events(), "");
    looped.done(8, Ok(()));
    assert_eq!(looped.events(), "checkpoint");
    looped.harness.run();
    let positions: Vec<_> =
        looped.harness.superblocks.values().map(|state| state.resync_offset).collect();
    assert_eq!(positions, [Some(24); 3]);
    assert!(looped.harness.done.starts_with("FFFS"), "flushed before: {}", looped.harness.done);
    let (state, progress) = looped.resync.progress().expect("it has not ended");
    assert_eq!((state, progress.position), (BackgroundState::Cancelled, 24));
    assert!(!looped.resync.is_active() && !looped.resync.has_next());
    // Not even what is needed in the meantime.
    looped.resync.needed();
    assert!(looped.next().is_none() && !looped.resync.is_active());
    cancel(&mut looped);
    assert_eq!(looped.events(), "", "it is cancelled already");
    assert!(looped.resync.begin_again() && !looped.resync.begin_again());
    assert_eq!((looped.next(), looped.events()), (Some(24), "run 2 from 24".into()));
}

#[test]
fn a_stall_is_reported_once_for_the_same_ranges_and_reason() {
    let mut looped = Looped::new(512);
    let mut events = Vec::new();
    let (io, full) = (Err(RequestError::Io), Err(RequestError::NoSpace));
    for results in [[io, io], [io, io], [full, full], [full, Ok(())]] {
        if let Some(at) = looped.resync.deadline() {
            looped.resync.tick(at);
        }
        assert_eq!((looped.next(), looped.next()), (Some(0), Some(512)));
        looped.done(0, results[0]);
        assert_eq!(looped.harness.manager.status().resync_stalled, None);
        looped.done(512, results[1]);
        let why = results[0].expect_err("of these");
        assert_eq!(looped.harness.manager.status().resync_stalled, Some(why));
        events.push(looped.events());
    }
    assert_eq!(
        events,
        ["run 1 from 0, stalled: Io", "", "stalled: NoSpace", "stalled: NoSpace"],
        "the last one: of fewer ranges"
    );
}

#[test]
fn a_read_only_array_drops_its_run_and_a_stopped_one_begins_none() {
    let mut looped = Looped::new(512);
    assert_eq!(looped.next(), Some(0));
    looped.resync.became_read_only();
    assert!(!looped.resync.is_active() && looped.resync.is_in_flight());
    looped.done(0, Ok(()));
    assert_eq!((looped.position, looped.next()), (0, None));

    let mut looped = Looped::new(512);
    looped.resync.stopped();
    assert!(!looped.resync.has_next() && looped.next().is_none());
    assert_eq!(looped.events(), "");
}

#[test]
fn a_stopped_loop_begins_no_range() {
    let mut looped = Looped::new(256);
    assert_eq!(looped.next(), Some(0));
    assert!(looped.resync.has_room());
    looped.resync.stopped();
    assert!(!looped.resync.has_room() && looped.next().is_none());
    looped.done(0, Ok(()));
    assert_eq!((looped.position, looped.resync.has_next()), (256, false));
}
