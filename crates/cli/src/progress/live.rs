//! The live line of a terminal: what the running cell or phase does now.
//!
//! ```text
//!   ▂▅▇█▇▇▆▇▇▇  118 MB/s  28800 IOPS  p50 0.51 ms  p99 1.2 ms  CPU 98 %
//! ```
//! Invariant: it is drawn by a thread of its own, which reads counters; a generator that measures
//! neither draws nor waits. Called from `progress`, on terminals only.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::live::{LiveCounts, LiveInterval, LiveState};
use bench::metrics::meter::process_s;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use spec::units::{digits, latency};

use super::Eta;

/// Interval of the line.
const TICK: Duration = Duration::from_millis(250);
/// Ticks that a figure covers: a slow disk completes few requests in one.
const WINDOW: usize = 4;
/// Ticks of the spark line.
const SPARKS: usize = 24;

/// What is running.
#[derive(Clone)]
struct Running {
    /// In words.
    what: String,
    live: Arc<LiveCounts>,
    /// Share of the bar and remaining time; `None`: the head shows the words only.
    eta: Option<Eta>,
    began: Instant,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// Counts the cells, so that the thread sees that another one runs.
    number: u64,
    over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the state is locked")
    }
}

/// The head, a bar or a line of words, and the live line below it.
pub struct LiveView {
    head: ProgressBar,
    line: ProgressBar,
    shared: Arc<Shared>,
    /// What the caller has shown last: compared without a lock.
    known: Option<Arc<LiveCounts>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveView {
    /// A view on stderr, which is a terminal.
    pub fn new(head: ProgressBar) -> LiveView {
        let both = MultiProgress::new();
        let (head, line) = (both.add(head), both.add(ProgressBar::new_spinner()));
        line.set_style(style("  {wide_msg}"));
        let shared = Arc::new(Shared::default());
        let (own_head, own_line, own_shared) = (head.clone(), line.clone(), shared.clone());
        let body = move || draw(&own_shared, &own_head, &own_line);
        // Without a thread there is no live line.
        let thread = std::thread::Builder::new().name("live".into()).spawn(body).ok();
        LiveView { head, line, shared, known: None, thread }
    }

    /// A cell or phase runs. Called by the measuring thread, ten times a second: only the first
    /// call for a cell does more than compare.
    pub fn runs(
        &mut self,
        live: &Arc<LiveCounts>,
        what: &mut dyn FnMut() -> String,
        eta: Option<&Eta>,
    ) {
        if self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, live)) {
            return;
        }
        self.known = Some(live.clone());
        let mut state = self.shared.state();
        state.number += 1;
        state.running = Some(Running {
            what: what(),
            live: live.clone(),
            eta: eta.cloned(),
            began: Instant::now(),
        });
    }

    /// Something else is done, which only the head shows.
    pub fn rests(&mut self, what: &str, eta: Option<&Eta>) {
        self.ends();
        show_head(&self.head, what, eta, 0.0);
    }

    /// The cell or phase has ended.
    pub fn ends(&mut self) {
        if self.known.take().is_some() {
            self.shared.state().running = None;
            self.line.set_message("");
        }
    }

    /// Removes both lines.
    pub fn finish(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_all();
        self.thread.take().map(JoinHandle::join);
        self.line.finish_and_clear();
        self.head.finish_and_clear();
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A style whose message is cut to the terminal.
pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// `begun`: seconds of the running cell.
fn show_head(head: &ProgressBar, what: &str, eta: Option<&Eta>, begun: f64) {
    let Some(eta) = eta else { return head.set_message(what.to_string()) };
    let begun = eta.begun(begun);
    head.set_position((eta.share(begun) * 1000.0) as u64);
    head.set_message(format!("{} left  {what}", eta.left(begun)));
}

/// The thread: reads the counters every [`TICK`]. It draws without the lock: a terminal that was
/// stopped (Ctrl-S) would hold up the measuring thread, which takes it at the start of a cell.
fn draw(shared: &Shared, head: &ProgressBar, line: &ProgressBar) {
    let mut history = History::default();
    let (mut number, mut shown) = (0, false);
    loop {
        let state = shared.state();
        if state.over {
            return;
        }
        let (running, current) = (state.running.clone(), state.number);
        drop(state);
        if let Some(running) = running {
            if number != current {
                (history, number) = (History::default(), current);
                line.set_message("");
            }
            history.note(running.live.read(), process_s());
            let begun = running.began.elapsed().as_secs_f64();
            show_head(head, &running.what, running.eta.as_ref(), begun);
            if let Some(text) = history.line() {
                line.set_message(text);
                shown = true;
            }
        } else if shown {
            // The cell may have ended while its line was drawn.
            line.set_message("");
            shown = false;
        }
        let state = shared.state();
        if state.over {
            return;
        }
        let waited = shared.changed.wait_timeout(state, TICK);
        drop(waited.expect("no panic while the state is locked"));
    }
}

/// The last ticks of a cell.
#[derive(Default)]
struct History {
    /// Counters and CPU seconds, the newest last.
    states: VecDeque<(LiveState, f64)>,
    /// Rates of the ticks.
    rates: VecDeque<f64>,
}

impl History {
    fn note(&mut self, state: LiveState, cpu: f64) {
        if let Some((before, _)) = self.states.back() {
            let tick = state.since(before);
            self.rates.push_back(per_second(tick.bytes.max(tick.ops), tick.seconds));
        }
        if self.rates.len() > SPARKS {
            self.rates.pop_front();
        }
        self.states.push_back((state, cpu));
        if self.states.len() > WINDOW + 1 {
            self.states.pop_front();
        }
    }

    /// The line; `None` before the second tick.
    fn line(&self) -> Option<String> {
        let ((first, cpu_before), (last, cpu)) = (self.states.front()?, self.states.back()?);
        let window = last.since(first);
        if self.states.len() < 2 || window.seconds <= 0.0 {
            return None;
        }
        let cpus = (cpu - cpu_before) / window.seconds;
        Some(format!("{:SPARKS$}  {}", spark(self.rates.iter().copied()), figures(&window, cpus)))
    }
}

fn figures(window: &LiveInterval, cpus: f64) -> String {
    let mut parts = Vec::new();
    if window.bytes > 0 || window.ops == 0 {
        parts.push(format!("{} MB/s", digits(per_second(window.bytes, window.seconds) / 1e6)));
    }
    // What moves no bytes works on names.
    let unit = if window.bytes > 0 { "IOPS" } else { "files/s" };
    if window.ops > 0 {
        parts.push(format!("{} {unit}", digits(per_second(window.ops, window.seconds))));
    }
    if let Some((p50, p99)) = window.latency_us {
        parts.push(format!("p50 {}", latency(p50)));
        parts.push(format!("p99 {}", latency(p99)));
    }
    parts.push(format!("CPU {:.0} %", cpus * 100.0));
    parts.join("  ")
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// One character for each value, by its share of the largest.
fn spark(values: impl Iterator<Item = f64> + Clone) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.clone().fold(0.0, f64::max);
    let bar = |value: f64| match most > 0.0 {
        true => BARS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => BARS[0],
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spark_line_is_scaled_to_its_largest_value() {
        let line = |values: &[f64]| spark(values.iter().copied());
        assert_eq!(line(&[0.0, 1.0, 4.0, 8.0]), "▁▁▄█");
        assert_eq!(line(&[0.0, 0.0]), "▁▁");
        assert_eq!(line(&[]), "");
    }

    #[test]
    fn the_figures_are_of_what_there_is() {
        let window = LiveInterval {
            seconds: 2.0,
            bytes: 400_000_000,
            ops: 50_000,
            latency_us: Some((512.0, 1234.0)),
        };
        assert_eq!(
            figures(&window, 0.98),
            "200 MB/s  25000 IOPS  p50 512 us  p99 1.23 ms  CPU 98 %"
        );
        let names = LiveInterval { bytes: 0, latency_us: None, ..window };
        assert_eq!(figures(&names, 0.0), "25000 files/s  CPU 0 %");
        let stalled = LiveInterval { ops: 0, ..names };
        assert_eq!(figures(&stalled, 0.0), "0 MB/s  CPU 0 %");
    }

    #[test]
    fn the_line_is_of_the_last_ticks() {
        let live = LiveCounts::new(1);
        let mut history = History::default();
        history.note(live.read(), 0.0);
        assert_eq!(history.line(), None, "nothing to compare with");
        for _ in 0..2 * SPARKS {
            live.of(0).count(1 << 20, 1, 1000);
            std::thread::sleep(Duration::from_micros(10));
            history.note(live.read(), 0.0);
        }
        assert_eq!((history.rates.len(), history.states.len()), (SPARKS, WINDOW + 1));
        let line = history.line().expect("a line");
        assert!(line.contains("MB/s") && line.contains("p99 ") && line.contains('█'), "{line}");
    }
}
