//! Progress of a bench on stderr: a bar with an ETA on a terminal, a line per cell elsewhere.
//!
//! Invariant: nothing of it goes to stdout. Called from `bench`.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use bench::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use results::record::Cell;
use spec::units::show_seconds;

use crate::console::say;

/// The progress bar, or the lines in its place.
pub struct Reporter {
    bar: Option<ProgressBar>,
    cells: usize,
    estimate_seconds: f64,
    started: Instant,
    done: usize,
    programs: Programs,
}

/// Programs among the cells. Their duration is unknown until the first one is measured.
#[derive(Default)]
struct Programs {
    all: usize,
    done: usize,
    /// Total duration of the finished ones.
    took: Duration,
}

/// What is being done, in one line.
pub fn line(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Filling { array, done } => {
            Some(format!("{array}: filling {:.0} %", done * 100.0))
        }
        Progress::Running { array, workload, .. } => Some(format!("{array}: {workload}")),
        Progress::Phase { program, phase, bytes } => {
            Some(format!("{program}: {phase}, {} MB", bytes / 1_000_000))
        }
        Progress::Checking { program, file } => Some(format!("{program}: comparing file {file}")),
        Progress::Measured(_) | Progress::Final { .. } => None,
    }
}

impl Reporter {
    /// Progress of `cells` cells, `programs` of them programs. `estimate_seconds` is the estimate
    /// for the others.
    pub fn new(cells: usize, programs: usize, estimate_seconds: f64) -> Reporter {
        let programs = Programs { all: programs, ..Programs::default() };
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Reporter { bar, cells, estimate_seconds, started: Instant::now(), done: 0, programs }
    }

    /// Shows the current activity.
    pub fn show(&mut self, progress: &Progress<'_>) {
        if let Progress::Measured(cell) = progress {
            self.done += 1;
            if self.bar.is_none() {
                self.line(cell);
            }
        }
        let seconds = match progress {
            Progress::Running { seconds, .. } => *seconds,
            _ => 0.0,
        };
        line(progress).iter().for_each(|line| self.draw(seconds, line));
    }

    /// Counts a finished program; `took` is its duration.
    pub fn done(&mut self, what: &str, took: Duration) {
        self.done += 1;
        self.programs.done += 1;
        self.programs.took += took;
        if self.bar.is_none() {
            let left = self.left(0.0);
            say(format_args!("[{}/{}, {left} left] {what}", self.done, self.cells));
        }
    }

    /// The remaining time, as text. `begun` is the finished share of the cell in progress, 0 to 1.
    pub fn left(&self, begun: f64) -> String {
        let (seconds, unknown) = self.left_after(self.started.elapsed(), begun);
        let seconds = show_seconds(seconds);
        match unknown {
            0 => seconds,
            programs => format!("{seconds} and {programs} program(s)"),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn draw(&self, seconds: f64, what: &str) {
        let Some(bar) = &self.bar else { return };
        let per_cell_seconds = self.estimate_seconds / self.blocks();
        let begun = (seconds / per_cell_seconds).min(1.0);
        let share = (self.done as f64 + begun) / self.cells.max(1) as f64;
        bar.set_position((share * 1000.0) as u64);
        bar.set_message(format!("{} left  {what}", self.left(begun)));
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

    fn line(&self, cell: &Cell) {
        let layout = cell.layout.as_ref().map(|l| format!(",{l}")).unwrap_or_default();
        let degraded = match cell.degraded {
            0 => String::new(),
            count => format!(" -{count}"),
        };
        let name = match &cell.array {
            Some(array) => array.clone(),
            None => format!("{}{layout} x{}{degraded}", cell.level, cell.disks),
        };
        say(format_args!(
            "[{}/{}, {} left] {name} {}: {:.1} MB/s, {:.0} ops/s",
            self.done,
            self.cells,
            self.left(0.0),
            cell.workload,
            cell.mb_per_s,
            cell.iops,
        ));
    }
}

/// A status line on a terminal; nothing elsewhere.
#[derive(Default)]
pub struct Status(std::sync::OnceLock<Option<ProgressBar>>);

impl Status {
    /// Shows the current activity.
    pub fn show(&self, line: &str) {
        let bar =
            self.0.get_or_init(|| std::io::stderr().is_terminal().then(ProgressBar::new_spinner));
        if let Some(bar) = bar {
            bar.set_message(line.to_string());
            bar.tick();
        }
    }

    /// Removes the line.
    pub fn finish(&self) {
        if let Some(Some(bar)) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_take_as_long_as_those_before() {
        let seconds = Duration::from_secs;
        let mut reporter = Reporter::new(7, 3, 40.0);
        assert_eq!(reporter.left_after(seconds(0), 0.0), (40.0, 3));
        (reporter.done, reporter.programs.done) = (1, 1);
        reporter.programs.took = seconds(100);
        assert_eq!(reporter.left_after(seconds(100), 0.0), (240.0, 0));
        // Two of four block cells have taken 30 s: the estimate of the plan is no longer used.
        reporter.done = 3;
        assert_eq!(reporter.left_after(seconds(130), 0.0), (230.0, 0));
        (reporter.done, reporter.programs.done) = (7, 3);
        assert_eq!(reporter.left_after(seconds(400), 0.0), (0.0, 0));
        let only = Reporter::new(2, 2, 0.0);
        assert_eq!(only.left_after(seconds(5), 0.0), (0.0, 2));
    }
}
