//! The simulator: arrays in a simulated world, by seeds.
//!
//! Invariant: the same seeds give the same findings. A scenario that does not end raises an error
//! with its text instead of waiting for ever; where it is one of those that `shrink` tries, the
//! finding stays as it was.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use sim::finding::{shrink, silence_panics, try_run};
use sim::mutant::Mutant;
use sim::scenario::Scenario;
use sim::swarm::{LONGEST_SCENARIO, Observer, Outcome, Swarm};
use sim::tally::Tally;

use crate::errors::{other, usage};
use crate::objects::object;
use crate::sweep;
use crate::waiting::{Stop, wait_for};

/// Threads, at most.
const JOBS_MAX: u64 = 1024;

/// Longest run, s: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// A scenario that fails: what the simulator has found.
#[pyclass(frozen, module = "raidlab", get_all, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct Finding {
    /// File and line of the check that failed.
    place: String,
    /// What it says.
    message: String,
    /// The scenario as text, for `raidlab.replay` and `cargo xtask sim --replay`.
    scenario: String,
}

#[pymethods]
impl Finding {
    #[new]
    fn new(place: String, message: String, scenario: String) -> Finding {
        Finding { place, message, scenario }
    }

    /// For pickles.
    fn __getnewargs__(&self) -> (&str, &str, &str) {
        (&self.place, &self.message, &self.scenario)
    }

    fn __repr__(&self) -> String {
        format!("<raidlab.Finding at {}: {}>", self.place, self.message)
    }
}

impl From<sim::finding::Finding> for Finding {
    fn from(found: sim::finding::Finding) -> Finding {
        let scenario = found.scenario.to_string();
        Finding { place: found.place, message: found.message, scenario }
    }
}

/// What a run of the simulator has seen.
#[pyclass(frozen, module = "raidlab")]
pub struct Simulation {
    totals: serde_json::Value,
    #[pyo3(get)]
    /// Findings, those with few actions first.
    findings: Vec<Py<Finding>>,
    #[pyo3(get)]
    /// The first seed.
    first_seed: u64,
    #[pyo3(get)]
    /// Number of seeds that were taken, from the first on; fewer than requested where the time was
    /// over before.
    seeds: u64,
    #[pyo3(get)]
    /// CPU time of the threads that ran them, seconds; without that of making findings smaller.
    cpu_seconds: f64,
}

#[pymethods]
impl Simulation {
    /// Totals, as `cargo xtask sim --json` prints them: power cuts, requests, operations of
    /// members, faults, and how often each state of the engine was reached.
    #[getter]
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.totals)
    }

    fn __repr__(&self) -> String {
        let Simulation { first_seed, seeds, findings, .. } = self;
        let findings = findings.len();
        format!("<raidlab.Simulation of {seeds} seeds from {first_seed} on: {findings} findings>")
    }
}

/// Why a swarm has no outcome.
struct NoOutcome(String);

/// Lets a swarm end with the flag, and reports a scenario that does not.
struct Watching<'s> {
    stop: &'s Stop,
    /// That of the caller.
    other_stop: Option<&'s sweep::Stop>,
    /// CPU time of threads that have ended.
    cpu: Mutex<Duration>,
    stuck: Mutex<mpsc::Sender<Result<(Outcome, Duration), NoOutcome>>>,
}

impl Observer for Watching<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_set() || self.other_stop.is_some_and(sweep::Stop::is_stopped)
    }

    fn thread_ends(&self) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let spent = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        *self.cpu.lock().unwrap_or_else(PoisonError::into_inner) += spent;
    }

    fn stuck(&self, scenario: &Scenario, limit: Duration) {
        let stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("a scenario does not end in {} s: {scenario}", limit.as_secs());
        // The other end has gone after the first time.
        let _ = stuck.send(Err(NoOutcome(text)));
    }
}

/// Runs seeds of the simulator: an array each, with power cuts, lost members, bad blocks, any order
/// of events, and every check.
///
/// `count` seeds from `first_seed` on, with `seconds` at most that long, on `jobs` threads. One of
/// `count` and `seconds` is required. `only` leaves out arrays without this text in their
/// description ("raid6", "bitmap="). It ends after `most_findings`; each is made smaller for up to
/// `shrink_seconds`. The same seeds give the same findings; another version of raidlab may draw
/// other scenarios. `planted` is a bug, by the words of `cargo xtask sim --mutants`, that shows how
/// one is found; other findings are left out. Ctrl-C raises KeyboardInterrupt; `stop`, set by
/// another thread, ends it with what it has.
#[pyfunction]
#[pyo3(signature = (first_seed=0, count=None, *, seconds=None, jobs=1, only=None, most_findings=5,
                    shrink_seconds=0.0, planted=None, stop=None))]
pub fn simulate(
    py: Python<'_>,
    first_seed: u64,
    count: Option<u64>,
    seconds: Option<f64>,
    jobs: u64,
    only: Option<String>,
    most_findings: usize,
    shrink_seconds: f64,
    planted: Option<&str>,
    stop: Option<&sweep::Stop>,
) -> PyResult<Simulation> {
    let is_time = |seconds: f64| (0.0..=SECONDS_MAX).contains(&seconds);
    let problem = match (count, seconds) {
        (None, None) => Some("count or seconds is required".to_string()),
        (Some(count), _) if first_seed.checked_add(count).is_none() => {
            Some("first_seed + count: seeds are below 2^64".to_string())
        }
        (_, Some(seconds)) if !is_time(seconds) => Some(format!("seconds {seconds}: 0 to a year")),
        _ if !is_time(shrink_seconds) => {
            Some(format!("shrink_seconds {shrink_seconds}: 0 to a year"))
        }
        _ if !(1..=JOBS_MAX).contains(&jobs) => Some(format!("jobs {jobs}: 1 to {JOBS_MAX}")),
        _ if most_findings == 0 => Some("most_findings 0: 1 or more".to_string()),
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(usage(py, problem));
    }
    let mutant = planted.map(|words| mutant_of(py, words)).transpose()?;
    let swarm = Swarm {
        first: first_seed,
        count,
        time: Duration::from_secs_f64(seconds.unwrap_or(SECONDS_MAX)),
        jobs,
        mutant,
        only,
        most_findings,
    };
    let (of_caller, again) = (stop.cloned(), stop.cloned());
    let outcome = wait_for(py, move |stop| run(swarm, stop, of_caller))?;
    let (outcome, cpu) = outcome.map_err(|NoOutcome(text)| other(py, text))?;
    let totals = serde_json::from_str(&outcome.to_json()).expect("its own JSON");
    let (first_seed, seeds) = (outcome.first, outcome.seeds);
    let small = Duration::from_secs_f64(shrink_seconds);
    let findings = outcome.findings;
    let findings = match small.is_zero() {
        true => findings,
        false => wait_for(py, move |stop| {
            let is_stopped =
                || stop.is_set() || again.as_ref().is_some_and(sweep::Stop::is_stopped);
            let smaller = |it| if is_stopped() { it } else { smaller(it, small) };
            findings.into_iter().map(smaller).collect()
        })?,
    };
    let findings = findings.into_iter().map(|found| Py::new(py, Finding::from(found)));
    let findings = findings.collect::<PyResult<_>>()?;
    Ok(Simulation { totals, findings, first_seed, seeds, cpu_seconds: cpu.as_secs_f64() })
}

/// A planted bug by its words.
fn mutant_of(py: Python<'_>, words: &str) -> PyResult<Mutant> {
    Mutant::ALL.into_iter().find(|mutant| mutant.text() == words).ok_or_else(|| {
        let known = Mutant::ALL.map(Mutant::text).join("; ");
        usage(py, format!("planted {words:?}: no such bug; there are: {known}"))
    })
}

/// Runs the swarm on a thread of its own: one with a scenario that does not end is left behind.
fn run(
    swarm: Swarm,
    stop: &Stop,
    other_stop: Option<sweep::Stop>,
) -> Result<(Outcome, Duration), NoOutcome> {
    silence_panics();
    let (ended, result) = mpsc::channel();
    let stop = stop.clone();
    let body = move || {
        let observer = Watching {
            stop: &stop,
            other_stop: other_stop.as_ref(),
            cpu: Mutex::default(),
            stuck: Mutex::new(ended.clone()),
        };
        let outcome = swarm.run(&observer);
        let cpu = *observer.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.send(Ok((outcome, cpu)));
    };
    let started = std::thread::Builder::new().name("raidlab-sim".into()).spawn(body);
    started.map_err(|error| NoOutcome(format!("no thread can be started: {error}")))?;
    result.recv().unwrap_or_else(|_| Err(NoOutcome("the simulator has panicked".into())))
}

/// Runs a scenario, or several, on a thread of its own; `None`: it has not ended in this time, and
/// is left behind.
fn limited<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, NoOutcome> {
    silence_panics();
    let (ended, result) = mpsc::channel();
    let started = std::thread::Builder::new().name("raidlab-sim".into()).spawn(move || {
        let _ = ended.send(work());
    });
    started.map_err(|error| NoOutcome(format!("no thread can be started: {error}")))?;
    match result.recv_timeout(time) {
        Ok(done) => Ok(Some(done)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(NoOutcome("the simulator has panicked".into())),
    }
}

/// A finding made smaller; as it was where one of the scenarios that are tried does not end.
fn smaller(finding: sim::finding::Finding, time: Duration) -> sim::finding::Finding {
    let tried = finding.clone();
    let found = limited(time + LONGEST_SCENARIO, move || shrink(tried, time));
    found.ok().flatten().unwrap_or(finding)
}

/// Runs one scenario of the simulator again, which a Finding or `cargo xtask sim` gave as text.
///
/// Returns the finding, or None where every check holds. One that does not end within two minutes
/// is an error. `planted` is the bug that it was found with. Ctrl-C raises KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (scenario, *, planted=None))]
pub fn replay(py: Python<'_>, scenario: &str, planted: Option<&str>) -> PyResult<Option<Finding>> {
    let mutant = planted.map(|words| mutant_of(py, words)).transpose()?;
    let parsed = scenario.parse::<Scenario>();
    let parsed = parsed.map_err(|error| usage(py, format!("the scenario: {error}")))?;
    if let Err(error) = parsed.array.create() {
        return Err(usage(py, format!("the scenario: {error}")));
    }
    let found = wait_for(py, move |_| {
        limited(LONGEST_SCENARIO, move || try_run(&parsed, mutant, &mut Tally::default()))
    })?;
    let found = found.map_err(|NoOutcome(text)| other(py, text))?.ok_or_else(|| {
        let limit = LONGEST_SCENARIO.as_secs();
        other(py, format!("the scenario does not end in {limit} s: {scenario}"))
    })?;
    Ok(found.err().map(|found| Finding::from(*found)))
}
