//! Measurement of one pass of a phase: the workers' sums, or the samples in a steady window.
//!
//! Invariant: a figure covers the members or the workers, never both. Called by `run`.

use crate::metrics::meter::CpuUsed;
use array::Counters;
use results::record::Sample;
use spec::program::types::{Phase, ReadOff};

use super::workers::{Done, PhaseBarrier};
use crate::measurement::{Measurement, add_counters};
use crate::program::backend::IoBackend;

/// Periodic samples of the bytes moved: those of the members, or of the workers if no member was
/// known at the start of the phase.
#[derive(Default)]
pub(super) struct Watch {
    marks: Vec<Mark>,
}

struct Mark {
    at: u64,
    /// Bytes of the workers up to then.
    worked: u64,
    /// Counters of each member at that time; empty where they could not be read.
    members: Vec<Counters>,
    running: usize,
}

/// Differences of the members' counters.
pub(super) fn since(after: &[Counters], before: &[Counters]) -> Vec<Counters> {
    after.iter().zip(before).map(|(after, before)| after.since(before)).collect()
}

impl Watch {
    /// Number of samples.
    pub(super) fn count(&self) -> u64 {
        self.marks.len() as u64
    }

    /// Takes a sample.
    pub(super) fn note(&mut self, backend: &dyn IoBackend, field: &PhaseBarrier, at: u64) {
        let (worked, members) = (field.bytes(), backend.members());
        self.marks.push(Mark { at, worked, members, running: field.running() });
    }

    /// Intervals in which all of `workers` were active. If there were members at the start, only
    /// intervals at whose ends all of them could be read: a figure never mixes members and workers.
    fn steady(&self, workers: usize) -> Window {
        let known = self.marks.first().map_or(0, |mark| mark.members.len());
        let mut window = Window { of_members: known > 0, ..Window::default() };
        for pair in self.marks.windows(2).filter(|pair| pair[1].running == workers) {
            let read_off = pair.iter().all(|mark| mark.members.len() == known);
            if known > 0 && !read_off {
                continue;
            }
            let worked = pair[1].worked.saturating_sub(pair[0].worked);
            let moved = match known {
                0 => Vec::new(),
                _ => since(&pair[1].members, &pair[0].members),
            };
            let bytes = match known {
                0 => worked,
                _ => moved.iter().map(|member| member.read_bytes + member.written_bytes).sum(),
            };
            let seconds = (pair[1].at - pair[0].at) as f64 / 1e9;
            window.samples.push(Sample { seconds, bytes, ops: 0 });
            window.worked += worked;
            add_counters(&mut window.members, &moved);
        }
        window
    }
}

/// The intervals of a steady window.
#[derive(Default)]
struct Window {
    samples: Vec<Sample>,
    /// Whether bytes are counted at the members, as in the Linux RAID wiki.
    of_members: bool,
    /// Bytes of the workers in them.
    worked: u64,
    /// Counters of each member in them.
    members: Vec<Counters>,
}

/// One pass of a phase.
pub(super) struct Pass {
    pub(super) measured: Measurement,
    pub(super) seconds: f64,
    pub(super) workers: Vec<f64>,
    pub(super) no_window: bool,
    /// Counters of the members in its steady window, where the samples cover that.
    pub(super) window: Option<Vec<Counters>>,
    /// Their counters at the end of the timed part, where workers continue after it.
    pub(super) after: Option<Vec<Counters>>,
    pub(super) windowed: bool,
    pub(super) worked_bytes: Option<u64>,
    /// It was stopped before its end.
    pub(super) cut: bool,
}

impl Pass {
    pub(super) fn new(phase: &Phase, done: Vec<Done>, cpu: Option<CpuUsed>, watch: &Watch) -> Pass {
        let start = done.iter().map(|done| done.start).min().unwrap_or(0);
        let end = done.iter().map(|done| done.end).max().unwrap_or(0);
        let seconds = (end - start) as f64 / 1e9;
        let whole = Sample {
            seconds,
            bytes: done.iter().map(|done| done.bytes).sum(),
            ops: done.iter().map(|done| done.ops).sum(),
        };
        let mut measured = Measurement { samples: vec![whole], cpu, ..Measurement::none() };
        let (mut window, mut worked_bytes) = (None, None);
        let steady_wanted = phase.read_off == ReadOff::SteadyWindow;
        if steady_wanted {
            let steady = watch.steady(phase.workers.len());
            if !steady.samples.is_empty() {
                worked_bytes = steady.of_members.then_some(steady.worked);
                (measured.samples, window) = (steady.samples, Some(steady.members));
            }
        }
        for done in &done {
            measured.latency.merge(&done.latency);
            measured.errors.add(&done.errors);
        }
        let rate = |done: &Done| done.bytes as f64 * 1e9 / (done.end - done.start).max(1) as f64;
        let workers = done.iter().map(rate).collect();
        Pass {
            measured,
            seconds,
            workers,
            no_window: steady_wanted && window.is_none(),
            windowed: window.is_some(),
            window,
            after: None,
            worked_bytes,
            cut: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_window_holds_only_intervals_in_which_all_worked() {
        // Two copies of everything.
        let mark = |at, worked: u64, running| Mark {
            at,
            worked,
            members: vec![Counters { written_bytes: worked, ..Counters::default() }; 2],
            running,
        };
        let watch = Watch {
            marks: vec![
                mark(0, 0, 3),
                mark(10_000_000_000, 500, 3),
                mark(20_000_000_000, 1500, 3),
                mark(30_000_000_000, 1600, 2),
            ],
        };
        let window = watch.steady(3);
        let written: Vec<u64> = window.members.iter().map(|member| member.written_bytes).collect();
        assert_eq!(written, [1500; 2], "nor what the members moved later");
        assert_eq!((window.worked, window.of_members), (1500, true));
        let bytes = |window: &Window| -> Vec<u64> {
            window.samples.iter().map(|sample| sample.bytes).collect()
        };
        assert_eq!(bytes(&window), [1000, 2000]);
        assert!(window.samples.iter().all(|sample| sample.seconds == 10.0));
        // Members that can no longer be read do not count as members that moved nothing.
        let mut gone = watch;
        gone.marks[2].members.clear();
        let window = gone.steady(3);
        assert_eq!((bytes(&window), window.worked), (vec![1000], 500));
        gone.marks[1].members.clear();
        assert!(gone.steady(3).samples.is_empty());
        // Without members at the start the workers count, even if members are added.
        gone.marks[0].members.clear();
        gone.marks[2].members = vec![Counters::default()];
        let window = gone.steady(3);
        assert_eq!((bytes(&window), window.of_members), (vec![500, 1000], false));
        assert!(window.members.is_empty());
    }
}
