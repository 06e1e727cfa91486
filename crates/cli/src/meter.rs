//! Progress of data transfers, on stderr: a bar with rate and ETA on a terminal, a line every 10 s
//! elsewhere.
//!
//! Invariant: nothing of it goes to stdout. Called from `dump`, `create`, `scrub` and `rebuild`.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use array::RateMeter;
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
    /// Sectors done and the time at the last call.
    last: Option<(u64, u64)>,
    rate: RateMeter,
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
        let rate = RateMeter::default();
        Meter { bar, done, sectors, started: now, last_line: now, last: None, rate }
    }

    /// Sets the number of sectors done. What was done before the first call counts for no rate.
    pub fn set(&mut self, sectors: u64) {
        let now = self.started.elapsed().as_nanos() as u64;
        let (before, began) = self.last.replace((sectors, now)).unwrap_or((sectors, now));
        if sectors > before {
            self.rate.add(began, now, sectors - before);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(sectors * SECTOR_BYTES);
        } else if self.last_line.elapsed() >= PAUSE {
            self.last_line = Instant::now();
            let share = sectors as f64 / self.sectors.max(1) as f64 * 100.0;
            let (here, all) = (show_size(sectors), show_size(self.sectors));
            let rest = self.rate.sectors_per_s(now).map(|rate| {
                let seconds = self.sectors.saturating_sub(sectors) as f64 / rate;
                let left = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                let left = indicatif::HumanDuration(left);
                let rate = spec::units::digits(rate * SECTOR_BYTES as f64 / 1e6);
                format!(", {rate} MB/s, {left} left")
            });
            let rest = rest.unwrap_or_default();
            say(format_args!("{here} of {all} {} ({share:.0} %){rest}", self.done));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress of work in stages, a meter for each.
#[derive(Default)]
pub struct Stages(Option<Meter>);

impl Stages {
    /// Sets the number of sectors done of a stage, which is named by its participle.
    pub fn set(&mut self, stage: &'static str, done: u64, sectors: u64) {
        if let Some(meter) = self.0.take_if(|meter| meter.done != stage) {
            meter.finish();
        }
        self.0.get_or_insert_with(|| Meter::new(stage, sectors)).set(done);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(meter) = &self.0 {
            meter.finish();
        }
    }
}
