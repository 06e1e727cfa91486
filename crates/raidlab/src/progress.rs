//! Progress of a bench on stderr: a bar with an ETA on a terminal, a line per cell elsewhere.
//!
//! Invariant: nothing of it goes to stdout. Called from `bench`.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use lab::bench::Progress;
use lab::quantity::show_seconds;
use lab::record::Cell;

use crate::console::say;

/// See the module.
pub struct Reporter {
    bar: Option<ProgressBar>,
    cells: usize,
    estimate_seconds: f64,
    started: Instant,
    done: usize,
}

impl Reporter {
    /// For a plan of `cells` cells that is reckoned to take `estimate_seconds`.
    pub fn new(cells: usize, estimate_seconds: f64) -> Reporter {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Reporter { bar, cells, estimate_seconds, started: Instant::now(), done: 0 }
    }

    /// Shows what is happening.
    pub fn show(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Filling { array, done } => {
                self.draw(0.0, &format!("{array}: filling {:.0} %", done * 100.0));
            }
            Progress::Running { array, workload, seconds } => {
                self.draw(*seconds, &format!("{array}: {workload}"));
            }
            Progress::Measured(cell) => {
                self.done += 1;
                if self.bar.is_none() {
                    self.line(cell);
                }
            }
            Progress::Final { .. } => {}
        }
    }

    /// Something is done that is no cell of blocks.
    pub fn done(&mut self, what: &str) {
        self.done += 1;
        if self.bar.is_none() {
            say(format_args!("[{}/{}] {what}", self.done, self.cells));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn draw(&self, seconds: f64, what: &str) {
        let Some(bar) = &self.bar else { return };
        let cells = self.cells.max(1) as f64;
        let per_cell_seconds = self.estimate_seconds / cells;
        let share = (self.done as f64 + (seconds / per_cell_seconds).min(1.0)) / cells;
        bar.set_position((share * 1000.0) as u64);
        let left = self.left_seconds(share);
        bar.set_message(format!("{} left  {what}", show_seconds(left)));
    }

    /// By the plan at first, by what has passed later.
    fn left_seconds(&self, share: f64) -> f64 {
        let passed = self.started.elapsed().as_secs_f64();
        let planned = self.estimate_seconds * (1.0 - share);
        if share < 0.02 { planned } else { passed / share * (1.0 - share) }
    }

    fn line(&self, cell: &Cell) {
        let layout = cell.layout.as_deref().map(|l| format!(",{l}")).unwrap_or_default();
        let degraded = match cell.degraded {
            0 => String::new(),
            count => format!(" -{count}"),
        };
        let name = match &cell.array {
            Some(array) => array.clone(),
            None => format!("{}{layout} x{}{degraded}", cell.level, cell.disks),
        };
        let left = self.left_seconds(self.done as f64 / self.cells.max(1) as f64);
        say(format_args!(
            "[{}/{}, {} left] {name} {}: {:.1} MB/s, {:.0} ops/s",
            self.done,
            self.cells,
            show_seconds(left),
            cell.workload,
            cell.mb_per_s,
            cell.iops,
        ));
    }
}

/// One line on a terminal that says what is going on; nothing elsewhere.
#[derive(Default)]
pub struct Status(std::sync::OnceLock<Option<ProgressBar>>);

impl Status {
    /// Shows what is happening.
    pub fn show(&self, line: &str) {
        let bar =
            self.0.get_or_init(|| std::io::stderr().is_terminal().then(ProgressBar::new_spinner));
        if let Some(bar) = bar {
            bar.set_message(line.to_string());
            bar.tick();
        }
    }

    /// Takes the line away.
    pub fn finish(&self) {
        if let Some(Some(bar)) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}
