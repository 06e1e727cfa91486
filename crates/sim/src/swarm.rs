//! Random scenarios on many seeds, in several threads, for a while.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use crate::finding::{Finding, try_run};
use crate::marks::Mark;
use crate::mutant::Mutant;
use crate::random;
use crate::scenario::Scenario;
use crate::tally::Tally;

/// A scenario takes milliseconds. One that takes so long does not end.
pub const LONGEST_SCENARIO: Duration = Duration::from_secs(120);

/// What happens beside a swarm.
pub trait Observer: Sync {
    /// Called now and then with the time and the number of scenarios.
    fn progress(&self, _elapsed: Duration, _scenarios: u64) {}

    /// Whether no further scenario is to be begun.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Called by each thread of the swarm after its last scenario.
    fn thread_ends(&self) {}

    /// A scenario does not end, and no thread can be ended that never returns: the swarm does not
    /// end either, unless this ends the process. Called every second from then on.
    fn stuck(&self, scenario: &Scenario, limit: Duration);
}

/// What to run.
pub struct Swarm {
    /// First seed.
    pub first: u64,
    /// Number of seeds; `None`: until the time is over.
    pub count: Option<u64>,
    /// How long.
    pub time: Duration,
    /// Threads.
    pub jobs: u64,
    /// A planted bug.
    pub mutant: Option<Mutant>,
    /// Only arrays with this in their description.
    pub only: Option<String>,
    /// Findings after which it ends.
    pub most_findings: usize,
}

/// What a swarm has seen.
pub struct Outcome {
    /// First seed.
    pub first: u64,
    /// Number of scenarios.
    pub seeds: u64,
    /// Their totals.
    pub tally: Tally,
    /// Time of all threads.
    pub busy: Duration,
    /// Findings, those with few actions first.
    pub findings: Vec<Finding>,
}

/// A seed that no other run has.
pub fn seed_of_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) * 1_000_000
}

impl Swarm {
    /// Whether a finding is that of the planted bug.
    fn is_expected(&self, finding: &Finding) -> bool {
        self.mutant.is_none_or(|mutant| mutant.explains(&finding.message))
    }

    /// Runs it.
    pub fn run(&self, observer: &dyn Observer) -> Outcome {
        let shapes = random::shapes();
        let begin = Instant::now();
        let next = AtomicU64::new(self.first);
        let total = Mutex::new((Tally::default(), Vec::new(), Duration::ZERO));
        let running: Vec<Running> = (0..self.jobs).map(|_| Running::default()).collect();
        std::thread::scope(|scope| {
            let (ended, is_over) = channel::<()>();
            let all = &running;
            scope.spawn(move || watch(all, observer, is_over));
            for running in &running {
                let ended = ended.clone();
                let (begin, next, total, shapes) = (&begin, &next, &total, &shapes);
                scope.spawn(move || {
                    let _ended = ended;
                    let mut tally = Tally::default();
                    while begin.elapsed() < self.time && !observer.is_stopped() {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        let done = seed - self.first;
                        if self.count.is_some_and(|count| done >= count) {
                            next.fetch_sub(1, Ordering::Relaxed);
                            break;
                        }
                        if done.is_multiple_of(64) {
                            observer.progress(begin.elapsed(), done);
                        }
                        let scenario = random::scenario(shapes, seed);
                        if !scenario.is_of(self.only.as_deref()) {
                            continue;
                        }
                        running.begin(&scenario);
                        let result = try_run(&scenario, self.mutant, &mut tally);
                        running.end();
                        let mut total = total.lock().expect("no thread panics while it has it");
                        let finding = result.err().map(|finding| *finding);
                        total.1.extend(finding.filter(|it| self.is_expected(it)));
                        if total.1.len() >= self.most_findings {
                            break;
                        }
                    }
                    observer.thread_ends();
                    let mut total = total.lock().expect("no thread panics while it has it");
                    total.0.add(&tally);
                    total.2 += begin.elapsed();
                });
            }
            drop(ended);
        });
        let (tally, mut findings, busy) = total.into_inner().expect("no thread has panicked");
        findings.sort_by_key(|finding: &Finding| finding.scenario.actions.len());
        let seeds = next.into_inner() - self.first;
        Outcome { first: self.first, seeds, tally, busy, findings }
    }
}

/// The scenario that a thread runs, and since when.
#[derive(Default)]
struct Running(Mutex<Option<(Scenario, Instant)>>);

impl Running {
    fn begin(&self, scenario: &Scenario) {
        *self.0.lock().expect("no thread panics while it has it") =
            Some((scenario.clone(), Instant::now()));
    }

    fn end(&self) {
        *self.0.lock().expect("no thread panics while it has it") = None;
    }
}

/// Says so when a scenario does not end.
fn watch(running: &[Running], observer: &dyn Observer, is_over: Receiver<()>) {
    while is_over.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        for running in running {
            let scenario = running.0.lock().expect("no thread panics while it has it").clone();
            let since = |(_, since): &&(Scenario, Instant)| since.elapsed() > LONGEST_SCENARIO;
            if let Some((scenario, _)) = scenario.as_ref().filter(since) {
                observer.stuck(scenario, LONGEST_SCENARIO);
            }
        }
    }
}

impl Outcome {
    /// Simulated operations of members per second and core.
    pub fn per_second(&self) -> f64 {
        self.tally.operations as f64 / self.busy.as_secs_f64()
    }

    /// The smallest finding of each place.
    pub fn different_findings(&self) -> Vec<&Finding> {
        let mut different: Vec<&Finding> = Vec::new();
        for finding in &self.findings {
            if different.iter().all(|other| other.place != finding.place) {
                different.push(finding);
            }
        }
        different
    }

    /// How often each state of the engine was reached: a line for each.
    pub fn marks(&self) -> String {
        let line = |mark: &Mark| format!("{:>12}  {mark}\n", self.tally.marks.count(*mark));
        Mark::ALL.iter().map(line).collect()
    }

    /// The totals as JSON.
    pub fn to_json(&self) -> String {
        let Tally { crashes, generations, requests, operations, .. } = &self.tally;
        let Tally { faults, refusals, exemptions, destroyed, marks, .. } = &self.tally;
        let reached: serde_json::Map<String, serde_json::Value> =
            Mark::ALL.iter().map(|mark| (mark.to_string(), marks.count(*mark).into())).collect();
        let findings = self.findings.iter().map(|finding| {
            serde_json::json!({
                "place": finding.place,
                "message": finding.message,
                "scenario": finding.scenario.to_string(),
            })
        });
        serde_json::json!({
            "first_seed": self.first,
            "scenarios": self.seeds,
            "power_cuts": crashes,
            "starts": generations,
            "requests": requests,
            "member_operations": operations,
            "faults": faults,
            "refused_starts": refusals,
            "exemptions": exemptions,
            "destroyed": destroyed,
            "member_operations_per_second_and_core": self.per_second(),
            "marks": reached,
            "findings": findings.collect::<Vec<_>>(),
        })
        .to_string()
    }
}

/// The totals, and the marks that were not reached: one line for each.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { crashes, generations, requests, operations, .. } = &self.tally;
        let Tally { faults, refusals, exemptions, destroyed, marks, .. } = &self.tally;
        let (first, last) = (self.first, self.first + self.seeds.max(1) - 1);
        writeln!(
            f,
            "seeds {first} to {last}: {} scenarios, {crashes} power cuts, {generations} starts, \
             {refusals} refused as dirty and degraded, {destroyed} ended with too many members \
             lost, {exemptions} at a torn superblock",
            self.seeds
        )?;
        writeln!(
            f,
            "{requests} requests, {operations} member operations, {faults} faults; {:.0} member \
             operations per second and core",
            self.per_second()
        )?;
        for mark in marks.missing() {
            writeln!(f, "not reached: {mark}")?;
        }
        Ok(())
    }
}
