//! Findings: scenarios that end with a panic, and their smallest form.
//!
//! Invariant: a smaller scenario counts only if it panics at the same place.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, Instant};

use md::ondisk::Version;

use crate::assembly::Begins;
use crate::life;
use crate::mutant::Mutant;
use crate::scenario::{Action, Extent, Scenario};
use crate::tally::Tally;

thread_local! {
    /// Where this thread has panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether a panic of this thread is a finding.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// A scenario that fails.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The scenario.
    pub scenario: Scenario,
    /// The planted bug that it ran with.
    pub mutant: Option<Mutant>,
    /// File and line of the check that failed.
    pub place: String,
    /// What it says.
    pub message: String,
}

impl Finding {
    /// The command that runs it again.
    pub fn command(&self) -> String {
        format!("cargo xtask sim --replay '{}'", self.scenario)
    }

    /// A test that runs it again.
    pub fn as_rust(&self) -> String {
        let mut text = String::from("#[test]\nfn named_after_what_it_would_cost_a_user() {\n");
        text.push_str("    let scenario = \"\\\n");
        let words = self.scenario.to_string();
        let mut line = String::new();
        for word in words.split(' ') {
            if line.len() + word.len() > 80 {
                text.push_str(&format!("        {line} \\\n"));
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
        text.push_str(&format!("        {line}\";\n"));
        text.push_str("    life::run(&scenario.parse().expect(\"a scenario\"));\n}\n");
        text
    }
}

/// From now on panics of scenarios are silent: they are findings. Others stay what they were.
pub fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let other = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_RUNNING.get() {
                return other(info);
            }
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            PLACE.with(|cell| *cell.borrow_mut() = place.unwrap_or_default());
        }));
    });
}

/// Runs what a panic of is a finding.
///
/// # Errors
/// What it panicked with.
pub fn caught<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = IS_RUNNING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    IS_RUNNING.set(before);
    result
}

/// Runs a scenario, with a planted bug or without; what it has seen is added to `tally`.
///
/// # Errors
/// It fails.
pub fn try_run(
    scenario: &Scenario,
    mutant: Option<Mutant>,
    tally: &mut Tally,
) -> Result<(), Box<Finding>> {
    let trace = tally.trace.take();
    let mut seen = Tally { trace, ..Tally::default() };
    let run = || life::run_into(scenario, mutant, &mut seen);
    let result = caught(run);
    tally.add(&seen);
    tally.trace = seen.trace;
    result.map_err(|payload| {
        let place = place_of_panic();
        let message = message(&*payload);
        Box::new(Finding { scenario: scenario.clone(), mutant, place, message })
    })
}

/// File and line of this thread's last panic, after [`silence_panics`].
pub fn place_of_panic() -> String {
    PLACE.with(|cell| cell.borrow().clone())
}

/// What a panic says.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".into())
}

/// The smallest scenario that fails at the same place, within this time.
pub fn shrink(finding: Finding, time: Duration) -> Finding {
    let mut shrinking = Shrinking { best: finding, end: Instant::now() + time };
    loop {
        let before = shrinking.best.scenario.clone();
        shrinking.remove_actions();
        shrinking.simplify_array();
        shrinking.simplify_actions();
        if shrinking.best.scenario == before || Instant::now() > shrinking.end {
            return shrinking.best;
        }
    }
}

struct Shrinking {
    best: Finding,
    end: Instant,
}

impl Shrinking {
    /// Takes a scenario that fails at the same place for the best.
    fn offer(&mut self, scenario: Scenario) -> bool {
        if scenario == self.best.scenario || Instant::now() > self.end {
            return false;
        }
        match try_run(&scenario, self.best.mutant, &mut Tally::default()) {
            Err(finding) if finding.place == self.best.place => {
                self.best = *finding;
                true
            }
            _ => false,
        }
    }

    /// Removes runs of actions, long ones first.
    fn remove_actions(&mut self) {
        let mut length = self.best.scenario.actions.len();
        while length > 0 {
            let mut at = 0;
            while at < self.best.scenario.actions.len() {
                let mut scenario = self.best.scenario.clone();
                let end = (at + length).min(scenario.actions.len());
                scenario.actions.drain(at..end);
                if !self.offer(scenario) {
                    at += length;
                }
            }
            length /= 2;
        }
    }

    fn simplify_array(&mut self) {
        let changes: [fn(&mut Scenario); 12] = [
            |it| it.troubled = false,
            |it| it.array.bitmap_chunk = None,
            |it| it.array.log = None,
            |it| it.array.begins = Begins::InSync,
            |it| it.array.block = 512,
            |it| it.array.roles = None,
            |it| it.array.version = Version::V1_2,
            |it| it.array.used_sectors = 128,
            |it| it.array.chunk_sectors = it.array.chunk_sectors.min(8),
            |it| it.shards = 1,
            |it| it.depth = 1,
            |it| it.array.members = it.array.members.max(2) - 1,
        ];
        for change in changes {
            let mut scenario = self.best.scenario.clone();
            change(&mut scenario);
            if scenario.array.create().is_ok() {
                self.offer(scenario);
            }
        }
    }

    fn simplify_actions(&mut self) {
        for at in 0..self.best.scenario.actions.len() {
            let smaller = |extent: Extent| {
                [Extent(0, 1), Extent(extent.0, 1), Extent(extent.0, extent.1 / 2)]
            };
            let simpler: Vec<Action> = match self.best.scenario.actions[at] {
                Action::Write(extent) => smaller(extent).map(Action::Write).into(),
                Action::WriteFua(extent) => smaller(extent).map(Action::Write).into(),
                Action::WriteZeroes(extent) => smaller(extent).map(Action::Write).into(),
                Action::Read(extent) => smaller(extent).map(Action::Read).into(),
                Action::Discard(extent) => smaller(extent).map(Action::Discard).into(),
                Action::Step(count) => {
                    [1, count / 2, count.saturating_sub(1)].map(Action::Step).into()
                }
                Action::Cut(shards, _) if shards > 1 => vec![Action::Cut(1, 0)],
                Action::Lose(member, _) => vec![Action::Lose(member, 0)],
                Action::Hang(member, after) => vec![Action::Lose(member, after)],
                _ => Vec::new(),
            };
            for action in simpler {
                let mut scenario = self.best.scenario.clone();
                scenario.actions[at] = action;
                self.offer(scenario);
            }
        }
    }
}
