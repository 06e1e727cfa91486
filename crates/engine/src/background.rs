//! Background work (resync, rebuild, scrub) as an administrator sees it: kinds, their order, how
//! far each has come, how fast, and how long it will take.
//!
//! Invariant: one kind runs at a time, in md's order: redundancy is made true before a member is
//! rebuilt from it, and complete before it is compared. Work that cannot continue holds back no
//! other. Pure; the executor gives positions and time.

use core::time::Duration;
use std::collections::VecDeque;

use crate::{HostOp, RequestError, ScrubMode};

/// A kind of background work, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackgroundWork {
    /// Redundancy is made true after a crash.
    Resync,
    /// Members are rebuilt from the others; what replaces members is filled in the same pass.
    Rebuild,
    /// Devices that replace members are filled while these serve, and none is rebuilt. The same
    /// work as [`BackgroundWork::Rebuild`] otherwise.
    Replace,
    /// Redundancy is compared with the data.
    Check,
    /// The same, and what is proven wrong is repaired.
    Repair,
}

impl BackgroundWork {
    /// All kinds.
    pub const ALL: [BackgroundWork; 5] = [
        BackgroundWork::Resync,
        BackgroundWork::Rebuild,
        BackgroundWork::Replace,
        BackgroundWork::Check,
        BackgroundWork::Repair,
    ];

    /// The work whose ranges have this operation.
    ///
    /// # Panics
    /// If it is an operation of hosts.
    pub fn of(op: HostOp) -> BackgroundWork {
        match op {
            HostOp::Resync => BackgroundWork::Resync,
            HostOp::Rebuild => BackgroundWork::Rebuild,
            HostOp::Scrub(ScrubMode::Check) => BackgroundWork::Check,
            HostOp::Scrub(_) => BackgroundWork::Repair,
            _ => unreachable!("{op:?} is no background work"),
        }
    }

    /// Its turn: resyncs 0, rebuilds 1, scrubs 2.
    pub const fn turn(self) -> usize {
        match self {
            BackgroundWork::Resync => 0,
            BackgroundWork::Rebuild | BackgroundWork::Replace => 1,
            BackgroundWork::Check | BackgroundWork::Repair => 2,
        }
    }

    /// md's word for it, as in `sync_action`.
    pub const fn name(self) -> &'static str {
        match self {
            BackgroundWork::Resync => "resync",
            BackgroundWork::Rebuild | BackgroundWork::Replace => "recover",
            BackgroundWork::Check => "check",
            BackgroundWork::Repair => "repair",
        }
    }

    /// Whether this kind begins no range while `other` is in this state. Paused work keeps its
    /// turn; what is stalled or cancelled gives it away.
    pub fn waits_for(self, other: BackgroundWork, state: BackgroundState) -> bool {
        let gives_way = matches!(state, BackgroundState::Stalled(_) | BackgroundState::Cancelled);
        other < self && !gives_way
    }
}

/// Why background work makes progress, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundState {
    /// It runs, at the pace that is set.
    Running,
    /// It was paused.
    Paused,
    /// It begins when earlier work has ended.
    Waiting,
    /// It was cancelled: it begins again by order, or at the next start of the array, which still
    /// needs it.
    Cancelled,
    /// All of it was tried, and something could not be done. It is tried again now and then.
    Stalled(RequestError),
}

/// How far a piece of work has come. In positions: sectors of a member on levels with parity and in
/// rebuilds, sectors of the array in resyncs and scrubs of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundProgress {
    /// Everything below is done.
    pub position: u64,
    /// The end of all positions.
    pub total: u64,
    /// Positions that are not done, of those that the work visits at all.
    pub remaining: u64,
}

/// The state of one piece of background work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackgroundStatus {
    /// Kind of the work.
    pub work: BackgroundWork,
    /// Whether it makes progress.
    pub state: BackgroundState,
    /// How far it has come.
    pub progress: BackgroundProgress,
    /// Positions per second over the last seconds; `None`: nothing was done in them.
    pub sectors_per_s: Option<f64>,
}

impl BackgroundStatus {
    /// The rate in bytes per second, of positions.
    pub fn bytes_per_s(&self) -> Option<f64> {
        Some(self.sectors_per_s? * md::SECTOR_BYTES as f64)
    }

    /// How long it takes at this rate; `None`: not known.
    pub fn eta(&self) -> Option<Duration> {
        let rate = self.sectors_per_s.filter(|_| self.state == BackgroundState::Running)?;
        Duration::try_from_secs_f64(self.progress.remaining as f64 / rate).ok()
    }
}

/// A rate looks back so far: 5 s.
const WINDOW_NANOS: u64 = 5_000_000_000;
/// Completions are counted together for so long: 50 ms.
const STEP_NANOS: u64 = 50_000_000;

/// The rate of a piece of work over the last seconds.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    /// When, and how much had been done then: the first is where the window begins.
    points: VecDeque<(u64, u64)>,
    done: u64,
}

impl RateMeter {
    /// `sectors` more were done at time `now`, by a range that had begun at `began`.
    pub fn add(&mut self, began: u64, now: u64, sectors: u64) {
        if self.points.back().is_none_or(|(last, _)| began.saturating_sub(*last) > WINDOW_NANOS) {
            // It begins, or continues after a break.
            self.points.clear();
            self.points.push_back((began, self.done));
        }
        self.done += sectors;
        let is_open = self.points.len() > 1;
        match self.points.back_mut() {
            Some((at, done)) if is_open && now.saturating_sub(*at) < STEP_NANOS => {
                *done = self.done;
            }
            _ => self.points.push_back((now, self.done)),
        }
        while self.points.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW_NANOS) {
            self.points.pop_front();
        }
    }

    /// All that was done, in sectors.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Sectors per second over the last seconds; `None`: nothing was done in them.
    pub fn sectors_per_s(&self, now: u64) -> Option<f64> {
        let (from, before) = *self.points.front()?;
        let (last, _) = *self.points.back()?;
        let from = from.max(now.saturating_sub(WINDOW_NANOS));
        let is_recent = now.saturating_sub(last) < WINDOW_NANOS && now > from;
        let done = (self.done - before) as f64;
        (is_recent && done > 0.0).then(|| done * 1e9 / (now - from) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_waits_for_earlier_work_that_can_continue() {
        use BackgroundWork::{Check, Rebuild, Repair, Resync};
        let full = BackgroundState::Stalled(RequestError::NoSpace);
        for state in [BackgroundState::Running, BackgroundState::Paused, BackgroundState::Waiting] {
            assert!(Rebuild.waits_for(Resync, state) && Check.waits_for(Rebuild, state));
            assert!(Repair.waits_for(Resync, state));
            assert!(!Resync.waits_for(Rebuild, state) && !Rebuild.waits_for(Rebuild, state));
        }
        for state in [full, BackgroundState::Cancelled] {
            assert!(!Rebuild.waits_for(Resync, state) && !Check.waits_for(Rebuild, state));
        }
    }

    #[test]
    fn a_rate_is_of_the_last_seconds_and_ends_with_the_work() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.sectors_per_s(7), None);
        // 1024 sectors in 10 ms each, and half as fast from 10 s on.
        let mut now = 1000 * MS;
        let mut run = |meter: &mut RateMeter, step: u64, until: u64| {
            while now < until {
                meter.add(now, now + step, 1024);
                now += step;
            }
            now
        };
        let at = run(&mut meter, 10 * MS, 11_000 * MS);
        let fast = meter.sectors_per_s(at).expect("it runs");
        assert!((fast / 102_400.0 - 1.0).abs() < 0.02, "{fast}");
        let at = run(&mut meter, 20 * MS, 21_000 * MS);
        let slow = meter.sectors_per_s(at).expect("it runs");
        assert!((slow / 51_200.0 - 1.0).abs() < 0.02, "{slow}");
        assert!(meter.points.len() < 200, "{}", meter.points.len());
        assert_eq!(meter.sectors_per_s(at + WINDOW_NANOS), None, "it has rested");
        // After a break, only what is new counts.
        let later = at + 100 * WINDOW_NANOS;
        meter.add(later, later + 10 * MS, 1024);
        let again = meter.sectors_per_s(later + 10 * MS).expect("it runs");
        assert!((again / 102_400.0 - 1.0).abs() < 0.02, "{again}");
    }

    #[test]
    fn the_time_left_is_known_while_it_runs() {
        let status = BackgroundStatus {
            work: BackgroundWork::Rebuild,
            state: BackgroundState::Running,
            progress: BackgroundProgress { position: 0, total: 9000, remaining: 6000 },
            sectors_per_s: Some(2000.0),
        };
        assert_eq!(status.eta(), Some(Duration::from_secs(3)));
        assert_eq!(status.bytes_per_s(), Some(1_024_000.0));
        let paused = BackgroundStatus { state: BackgroundState::Paused, ..status };
        assert_eq!(paused.eta(), None);
        assert_eq!(BackgroundStatus { sectors_per_s: None, ..status }.eta(), None);
    }
}
