//! Progress of data transfers, on stderr: a bar with an ETA on a terminal, a line every 10 s
//! elsewhere.
//!
//! Invariant: nothing of it goes to stdout. Called from `dump`, `create`, `scrub` and `rebuild`.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use md::SECTOR_BYTES;

use crate::console::say;
use md::show_size;

/// Interval of the lines without a terminal.
const PAUSE: Duration = Duration::from_secs(10);

/// The progress bar, or the lines in its place.
pub struct Meter {
    bar: Option<ProgressBar>,
    /// The verb in the past participle, as in `read`.
    done: &'static str,
    sectors: u64,
    started: Instant,
    last_line: Instant,
}

impl Meter {
    /// Progress of a transfer of `sectors` sectors.
    pub fn new(done: &'static str, sectors: u64) -> Meter {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(sectors * SECTOR_BYTES);
            let template = "{bar:30} {percent:>3} % {binary_bytes} of {binary_total_bytes}, \
                            {binary_bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let now = Instant::now();
        Meter { bar, done, sectors, started: now, last_line: now }
    }

    /// Sets the number of sectors done.
    pub fn set(&mut self, sectors: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(sectors * SECTOR_BYTES);
        } else if self.last_line.elapsed() >= PAUSE {
            self.last_line = Instant::now();
            let share = sectors as f64 / self.sectors.max(1) as f64;
            let passed = self.started.elapsed().as_secs_f64();
            let left = Duration::from_secs_f64(passed / share.max(1e-9) * (1.0 - share));
            let (here, all) = (show_size(sectors), show_size(self.sectors));
            let left = indicatif::HumanDuration(left);
            say(format_args!(
                "{here} of {all} {} ({:.0} %), {left} left",
                self.done,
                share * 100.0
            ));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
