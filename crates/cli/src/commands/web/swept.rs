//! The page of `sweep`: the running cell with its curves beside its bound, cells that were
//! measured, findings, and at the end the report.
//!
//! ```text
//!   the sweep's thread --(a lock, a few times a second)--> State --copied--> the page's thread
//!   generators --(counters)-----------------------------------> Course <------'
//! ```
//! Invariant: a generator that measures is not waited for by the page; the sweep's thread takes the
//! lock for as long as a comparison takes, the page's for a copy of what is shown: counters and
//! their histograms are read without it. The page reads the counters that the terminal's live
//! line reads; the record has exact figures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bench::Progress;
use bench::live::{LiveCounts, LiveState};
use export::page::{Bound, Cell, Curve, Feed, Measured, Running, Severity, Sweep, View};
use results::record;
use spec::shown::counted;

use super::{Events, now};

/// Readings that a figure covers: as the terminal's.
const WINDOW: usize = 4;
/// Seconds between two readings, as the page has its frames.
const INTERVAL: f64 = 0.25;
/// Cells that are listed.
const MAX_MEASURED: usize = 40;

#[derive(Clone)]
struct RunningCell {
    number: u64,
    cell: Cell,
    live: Arc<LiveCounts>,
    began: Instant,
    bound: Option<Bound>,
}

/// What a cell has done over its time.
#[derive(Default)]
struct Course {
    /// The cell's number.
    number: u64,
    readings: VecDeque<LiveState>,
    curve: Curve,
}

#[derive(Default)]
struct State {
    sweep: Sweep,
    running: Option<RunningCell>,
    measured: VecDeque<Measured>,
    number: u64,
    events: Events,
    report: Option<Arc<str>>,
}

/// What the page shows of a sweep.
pub struct SweptFeed {
    title: String,
    began: Instant,
    state: Mutex<State>,
    /// Of the page's thread.
    course: Mutex<Course>,
}

impl SweptFeed {
    /// A sweep that begins.
    pub fn new(title: &str) -> SweptFeed {
        let (state, course) = (Mutex::default(), Mutex::default());
        SweptFeed { title: title.into(), began: Instant::now(), state, course }
    }

    /// Items that are to be measured; `failed`: those besides that cannot be planned.
    pub fn planned(&self, items: usize, failed: usize) {
        let mut state = self.state();
        (state.sweep.items, state.sweep.failed) = (items + failed, failed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is locked")
    }

    /// What the sweep does.
    pub fn progress(&self, progress: &Progress<'_>) {
        // These are called by threads that generate load: they must not wait for a view, which a
        // thread of low priority takes. The next call follows soon.
        let mut state = match progress {
            Progress::Running { .. } | Progress::Phase { .. } => match self.state.try_lock() {
                Ok(state) => state,
                Err(_) => return,
            },
            _ => self.state(),
        };
        match progress {
            Progress::Running { array, workload, live, bound_mb_per_s, bound_note, .. } => {
                state.runs(live, || {
                    let (mb_per_s, note) = (*bound_mb_per_s, bound_note.map(str::to_string));
                    let bound =
                        (mb_per_s.is_some() || note.is_some()).then_some(Bound { mb_per_s, note });
                    (cell(array, workload), bound)
                });
            }
            Progress::Ready => {}
            Progress::Phase { program, phase, live, .. } => {
                state.runs(live, || (cell(program, phase), None));
            }
            Progress::Filling { array, done } => {
                state.rests(format!("{array}: filling {:.0} %", done * 100.0));
            }
            Progress::InKernel { what, seconds, model_time } => {
                let kind = if *model_time { "of model time" } else { "in the kernel" };
                state.rests(format!("{what}, {seconds:.0} s {kind}"));
            }
            Progress::Checking { program, file } => {
                state.rests(format!("{program}: comparing file {file}"));
            }
            Progress::Measured(cell) => {
                state.running = None;
                state.measured(cell);
            }
            Progress::Final { cells, .. } => {
                state.running = None;
                state.sweep.done += 1;
                cells.iter().for_each(|cell| state.findings(cell));
            }
        }
    }

    /// A program has ended.
    pub fn program(&self, cells: &[record::Cell]) {
        let mut state = self.state();
        state.running = None;
        state.sweep.done += 1;
        for cell in cells {
            state.measured(cell);
            state.findings(cell);
        }
    }

    /// An item could not be measured; a cell of it that ran no longer does.
    pub fn failed(&self, what: &str, why: &str) {
        let mut state = self.state();
        state.running = None;
        state.sweep.doing = None;
        state.sweep.failed += 1;
        let text = format!("{what}: could not be run: {why}");
        state.events.put(now(), "Failed", Severity::Bad, what, text);
    }

    /// The time that remains, as text.
    pub fn left(&self, left: String) {
        self.state().sweep.left = Some(left);
    }

    /// The sweep has ended so; `failed`: items without a measurement.
    pub fn ended(&self, how: &'static str, failed: usize, report: Option<String>) {
        let mut state = self.state();
        state.running = None;
        state.sweep.doing = None;
        state.sweep.ended = Some(how);
        state.sweep.elapsed_s = self.began.elapsed().as_secs_f64();
        state.sweep.failed = failed;
        state.report = report.map(Arc::from);
        let severity = if failed > 0 { Severity::Warning } else { Severity::Notice };
        let without = match failed {
            0 => String::new(),
            failed => format!("; {} could not be run", counted(failed, "item")),
        };
        state.events.put(now(), "Sweep", severity, "", format!("the sweep has {how}{without}"));
    }
}

fn cell(array: &str, workload: &str) -> Cell {
    Cell { array: array.into(), workload: workload.into() }
}

impl State {
    /// A cell or phase runs. Only the first call for it does more than compare.
    fn runs(&mut self, live: &Arc<LiveCounts>, what: impl FnOnce() -> (Cell, Option<Bound>)) {
        if self.running.as_ref().is_some_and(|running| Arc::ptr_eq(&running.live, live)) {
            return;
        }
        self.sweep.doing = None;
        self.number += 1;
        let (cell, bound) = what();
        self.running = Some(RunningCell {
            number: self.number,
            cell,
            live: live.clone(),
            began: Instant::now(),
            bound,
        });
    }

    fn rests(&mut self, doing: String) {
        self.running = None;
        self.sweep.doing = Some(doing);
    }

    fn measured(&mut self, cell: &record::Cell) {
        self.sweep.cells += 1;
        self.measured.push_back(Measured {
            cell: self::cell(&crate::progress::name(cell), &cell.case.workload.to_string()),
            mb_per_s: cell.derived.mb_per_s,
            iops: cell.derived.iops,
            p99_ms: cell.measured.latency_us.as_ref().map(|latency| latency.p99 / 1e3),
            bound_share: cell.derived.bound_share,
            verified: cell.measured.verified,
            warnings: cell.derived.warnings.len(),
        });
        if self.measured.len() > MAX_MEASURED {
            self.measured.pop_front();
        }
    }

    fn findings(&mut self, cell: &record::Cell) {
        let name = format!("{} {}", crate::progress::name(cell), cell.case.workload);
        if cell.measured.verified == Some(false) {
            let text = format!("{name}: wrong data");
            self.events.put(now(), "WrongData", Severity::Bad, &name, text);
        }
        for finding in &cell.derived.findings {
            let text = finding.text.clone();
            self.events.put(now(), &finding.name, Severity::Notice, &name, text);
        }
    }
}

impl Course {
    /// Reads the counters of the cell.
    fn now(&mut self, running: RunningCell) -> Running {
        let RunningCell { number, cell, live, began, bound } = running;
        if self.number != number {
            let curve = Curve::whole(&["mb", "p50", "p99"], INTERVAL);
            *self = Course { number, readings: VecDeque::new(), curve };
        }
        let seconds = began.elapsed().as_secs_f64();
        let reading = live.read();
        let window = self.readings.front().map(|before| reading.since(before));
        self.readings.push_back(reading);
        if self.readings.len() > WINDOW {
            self.readings.pop_front();
        }
        let window = window.filter(|window| window.seconds > 0.0);
        let rate = |count: u64, seconds: f64| count as f64 / seconds;
        let mb_per_s = window.map(|it| rate(it.bytes, it.seconds) / 1e6);
        let latency = window.and_then(|it| it.latency_us);
        let (p50_ms, p99_ms) = latency.map(|(p50, p99)| (p50 / 1e3, p99 / 1e3)).unzip();
        if window.is_some() {
            self.curve.push(seconds, &[mb_per_s, p50_ms, p99_ms]);
        }
        Running {
            number,
            cell,
            seconds,
            mb_per_s,
            iops: window.map(|it| rate(it.ops, it.seconds)),
            p50_ms,
            p99_ms,
            curve: self.curve.clone(),
            bound,
        }
    }
}

impl Feed for SweptFeed {
    fn view(&self) -> View {
        let (mut view, mut sweep, running) = {
            let state = self.state();
            let view = View {
                title: self.title.clone(),
                source: "sweep",
                at_ms: now(),
                events: state.events.all(),
                has_report: state.report.is_some(),
                ..View::default()
            };
            let measured = state.measured.iter().cloned().collect();
            (view, Sweep { measured, ..state.sweep.clone() }, state.running.clone())
        };
        if sweep.ended.is_none() {
            sweep.elapsed_s = self.began.elapsed().as_secs_f64();
        }
        let mut course = self.course.lock().expect("no panic while it is locked");
        sweep.running = running.map(|running| course.now(running));
        view.sweep = Some(sweep);
        view
    }

    /// A curve begins with its cell, not with the first viewer.
    fn is_always_on(&self) -> bool {
        self.state().sweep.ended.is_none()
    }

    fn report(&self) -> Option<Arc<str>> {
        self.state().report.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed() -> SweptFeed {
        let feed = SweptFeed::new("a sweep");
        feed.planned(2, 0);
        feed
    }

    fn runs(feed: &SweptFeed, live: &Arc<LiveCounts>) {
        let (array, workload) = ("raid5 x4", "seq-read");
        let (bound_mb_per_s, bound_note) = (Some(200.0), Some("the disks"));
        let seconds = 0.1;
        feed.progress(&Progress::Running {
            array,
            workload,
            seconds,
            live,
            bound_mb_per_s,
            bound_note,
        });
    }

    #[test]
    fn a_cell_has_a_curve_beside_its_bound() {
        let feed = feed();
        let live = Arc::new(LiveCounts::new(1));
        for _ in 0..3 {
            live.of(0).count(1 << 20, 1, 1_000_000);
            std::thread::sleep(std::time::Duration::from_millis(2));
            runs(&feed, &live);
            feed.view();
        }
        live.of(0).count(1 << 20, 1, 1_000_000);
        let running = feed.view().sweep.expect("a sweep").running.expect("a cell");
        assert_eq!((running.number, running.curve.len()), (1, 3));
        assert!(running.mb_per_s.expect("a rate") > 0.0);
        assert!((running.p50_ms.expect("a latency") - 1.0).abs() < 0.1);
        let bound = running.bound.expect("a bound");
        assert_eq!((bound.mb_per_s, bound.note.as_deref()), (Some(200.0), Some("the disks")));
        runs(&feed, &Arc::new(LiveCounts::new(1)));
        assert_eq!(feed.view().sweep.unwrap().running.unwrap().number, 2, "another cell");
    }

    #[test]
    fn measured_cells_are_listed_up_to_a_number() {
        let feed = feed();
        let cell = record::Cell::default().with(|it| {
            it.case.level = "raid5".into();
            it.case.disks = 4;
        });
        (0..10_000).for_each(|_| feed.progress(&Progress::Measured(&cell)));
        let sweep = feed.view().sweep.expect("a sweep");
        assert_eq!((sweep.cells, sweep.measured.len()), (10_000, MAX_MEASURED));
        assert!(feed.is_always_on() && feed.report().is_none());
        feed.ended("finished", 0, Some("<html>".into()));
        assert!(!feed.is_always_on() && feed.view().has_report);
    }

    #[test]
    fn what_fails_does_not_run_on() {
        let feed = SweptFeed::new("a sweep");
        feed.planned(2, 1);
        let live = Arc::new(LiveCounts::new(1));
        runs(&feed, &live);
        assert!(feed.view().sweep.unwrap().running.is_some());
        feed.failed("fs:/data bonnie", "the file system is full");
        let view = feed.view();
        let sweep = view.sweep.expect("a sweep");
        assert!(sweep.running.is_none());
        assert_eq!((sweep.items, sweep.done, sweep.failed), (3, 0, 2));
        let event = view.events.last().expect("an event");
        assert_eq!((event.kind.as_str(), event.severity), ("Failed", Severity::Bad));
        assert_eq!(event.text, "fs:/data bonnie: could not be run: the file system is full");
        runs(&feed, &Arc::new(LiveCounts::new(1)));
        assert_eq!(feed.view().sweep.unwrap().running.expect("the next").number, 2);
    }

    #[test]
    fn the_sweep_goes_on_while_counters_are_read() {
        let feed = feed();
        let live = Arc::new(LiveCounts::new(1));
        runs(&feed, &live);
        // As while the page's thread is among the histograms.
        let course = feed.course.lock().unwrap();
        let viewed = std::thread::scope(|scope| {
            let viewing = scope.spawn(|| feed.view());
            for _ in 0..100 {
                let begun = Instant::now();
                while feed.state.try_lock().is_err() {
                    assert!(begun.elapsed().as_secs() < 30, "the sweep waits for a view");
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert!(!viewing.is_finished());
            drop(course);
            viewing.join().expect("no panic")
        });
        assert!(viewed.sweep.is_some());
    }
}
