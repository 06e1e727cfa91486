//! Progress of a bench on stderr: on a terminal a bar with an ETA and a live line of the running
//! cell, a line per finished cell elsewhere.
//!
//! Invariant: nothing of it goes to stdout. Called from `bench`.

mod live;

use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use bench::Progress;
use indicatif::ProgressBar;
use live::LiveView;
use results::record::Cell;
use spec::shown::counted;
use spec::units::show_seconds;

use crate::console::say;

/// The bar and the live line, or the lines in their place.
pub struct Reporter {
    view: Option<LiveView>,
    eta: Eta,
}

/// How far a run is.
#[derive(Clone)]
pub struct Eta {
    cells: usize,
    estimate_seconds: f64,
    started: Instant,
    done: usize,
    programs: Programs,
}

/// Programs among the cells. Their duration is unknown until the first one is measured.
#[derive(Clone, Default)]
struct Programs {
    all: usize,
    done: usize,
    /// Total duration of the finished ones.
    took: Duration,
}

/// What is being done, in one line.
fn line(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Filling { array, done } => {
            Some(format!("{array}: filling {:.0} %", done * 100.0))
        }
        Progress::Running { array, workload, .. } => Some(format!("{array}: {workload}")),
        Progress::InKernel { what, seconds, model_time } => {
            let kind = if *model_time { "of model time" } else { "in the kernel" };
            Some(format!("{what}, {seconds:.0} s {kind}"))
        }
        Progress::Phase { program, phase, .. } => Some(format!("{program}: {phase}")),
        Progress::Checking { program, file } => Some(format!("{program}: comparing file {file}")),
        Progress::Ready | Progress::Measured(_) | Progress::Final { .. } => None,
    }
}

/// Shows it in a view. A cell that runs costs its thread a comparison.
fn show_in(view: &mut LiveView, progress: &Progress<'_>, left: &str, eta: Option<&Eta>) {
    let text = || line(progress).map(|line| format!("{left}{line}"));
    match progress {
        Progress::Running { live, .. } | Progress::Phase { live, .. } => {
            view.runs(live, &mut || text().unwrap_or_default(), eta);
        }
        Progress::Ready => {}
        Progress::Measured(_) | Progress::Final { .. } => view.ends(),
        Progress::Filling { .. } | Progress::Checking { .. } | Progress::InKernel { .. } => {
            text().iter().for_each(|text| view.rests(text, eta));
        }
    }
}

impl Reporter {
    /// Progress of `cells` cells, `programs` of them programs. `estimate_seconds` is the estimate
    /// for the others.
    pub fn new(cells: usize, programs: usize, estimate_seconds: f64) -> Reporter {
        let programs = Programs { all: programs, ..Programs::default() };
        let view = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            bar.set_style(live::style("{bar:30} {percent:>3} % {wide_msg}"));
            LiveView::new(bar)
        });
        let started = Instant::now();
        Reporter { view, eta: Eta { cells, estimate_seconds, started, done: 0, programs } }
    }

    /// Shows the current activity.
    pub fn show(&mut self, progress: &Progress<'_>) {
        if let Progress::Measured(cell) = progress {
            self.eta.done += 1;
            if self.view.is_none() {
                self.line(cell);
            }
        }
        if let Some(view) = &mut self.view {
            show_in(view, progress, "", Some(&self.eta));
        }
    }

    /// Counts a finished program; `took` is its duration.
    pub fn done(&mut self, what: &str, took: Duration) {
        self.eta.done += 1;
        self.eta.programs.done += 1;
        self.eta.programs.took += took;
        if self.view.is_none() {
            let left = self.left();
            say(format_args!("[{}/{}, {left} left] {what}", self.eta.done, self.eta.cells));
        }
    }

    /// The remaining time, as text.
    pub fn left(&self) -> String {
        self.eta.left(0.0)
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        self.view = None;
    }

    fn line(&self, cell: &Cell) {
        say(format_args!(
            "[{}/{}, {} left] {} {}: {:.1} MB/s, {:.0} ops/s",
            self.eta.done,
            self.eta.cells,
            self.left(),
            name(cell),
            cell.case.workload,
            cell.derived.mb_per_s,
            cell.derived.iops,
        ));
    }
}

/// The array of a cell: `raid10,f2 x4`; where there is none, its place: `path:/srv`.
pub fn name(cell: &Cell) -> String {
    if let Some(array) = &cell.case.array {
        return array.clone();
    }
    if cell.case.level.is_empty() {
        return cell.place_shown().unwrap_or_else(|| cell.target_shown());
    }
    let layout = cell.case.layout.as_ref().map(|l| format!(",{l}")).unwrap_or_default();
    let degraded = match cell.case.degraded {
        0 => String::new(),
        count => format!(" -{count}"),
    };
    format!("{}{layout} x{}{degraded}", cell.case.level, cell.case.disks)
}

impl Eta {
    /// The finished share of the cell in progress, 0 to 1, after `seconds` of it.
    fn begun(&self, seconds: f64) -> f64 {
        (seconds / (self.estimate_seconds / self.blocks())).min(1.0)
    }

    /// The finished share of all cells.
    fn share(&self, begun: f64) -> f64 {
        (self.done as f64 + begun) / self.cells.max(1) as f64
    }

    /// The remaining time, as text. `begun` is the finished share of the cell in progress.
    fn left(&self, begun: f64) -> String {
        let (seconds, unknown) = self.left_after(self.started.elapsed(), begun);
        let seconds = show_seconds(seconds);
        match unknown {
            0 => seconds,
            programs => format!("{seconds} and {}", counted(programs, "program")),
        }
    }

    /// Number of cells with block workloads, at least 1.
    fn blocks(&self) -> f64 {
        (self.cells - self.programs.all).max(1) as f64
    }

    /// Remaining seconds, and the number of programs not included. Block workloads: by the plan at
    /// first, later extrapolated from the elapsed time. Programs: the mean of the finished ones.
    fn left_after(&self, passed: Duration, begun: f64) -> (f64, usize) {
        let Programs { all, done, took } = self.programs;
        let blocks_done = (self.done - done) as f64 + begun;
        let share = match self.cells - all {
            0 => 1.0,
            _ => blocks_done / self.blocks(),
        };
        let of_blocks = passed.saturating_sub(took).as_secs_f64();
        let blocks = match share < 0.02 {
            true => self.estimate_seconds * (1.0 - share),
            false => of_blocks / share * (1.0 - share),
        };
        match (all - done, done) {
            (left, 0) => (blocks, left),
            (left, _) => (blocks + took.as_secs_f64() / done as f64 * left as f64, 0),
        }
    }
}

/// What a program does, on a terminal; nothing elsewhere.
#[derive(Default)]
pub struct Status(RefCell<Option<LiveView>>);

impl Status {
    /// Shows the current activity, behind `left`.
    pub fn show(&self, left: &str, progress: &Progress<'_>) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let mut view = self.0.borrow_mut();
        let view = view.get_or_insert_with(|| {
            let head = ProgressBar::new_spinner();
            head.set_style(live::style("{spinner} {wide_msg}"));
            LiveView::new(head)
        });
        show_in(view, progress, left, None);
    }

    /// Removes the lines.
    pub fn finish(&self) {
        self.0.take();
    }
}

#[cfg(test)]
mod tests {
    use results::record::Place;

    use super::*;

    #[test]
    fn a_line_names_the_array_or_the_place_without_one() {
        let mut cell = Cell::default().with(|it| {
            it.case.level = "raid5".into();
            it.case.disks = 4;
            it.case.degraded = 1;
        });
        assert_eq!(name(&cell), "raid5 x4 -1");
        cell.case.array = Some("raid1(raid0(2),raid0(2))".into());
        assert_eq!(name(&cell), "raid1(raid0(2),raid0(2))");
        let mut cell = Cell::default().with(|it| it.case.target = "path".into());
        assert_eq!(name(&cell), "path");
        let place = Place { name: "path:/srv".into(), ..Place::default() };
        cell.case.place = Some(place);
        assert_eq!(name(&cell), "path:/srv");
    }

    #[test]
    fn programs_take_as_long_as_those_before() {
        let seconds = Duration::from_secs;
        let mut eta = Reporter::new(7, 3, 40.0).eta;
        assert_eq!(eta.left_after(seconds(0), 0.0), (40.0, 3));
        (eta.done, eta.programs.done) = (1, 1);
        eta.programs.took = seconds(100);
        assert_eq!(eta.left_after(seconds(100), 0.0), (240.0, 0));
        // Two of four block cells have taken 30 s: the estimate of the plan is no longer used.
        eta.done = 3;
        assert_eq!(eta.left_after(seconds(130), 0.0), (230.0, 0));
        (eta.done, eta.programs.done) = (7, 3);
        assert_eq!(eta.left_after(seconds(400), 0.0), (0.0, 0));
        let only = Reporter::new(2, 2, 0.0).eta;
        assert_eq!(only.left_after(seconds(5), 0.0), (0.0, 2));
    }
}
