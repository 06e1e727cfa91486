//! `raidlab sweep FILE.toml`.
//!
//! ```text
//!   file -> tables of texts -> the parser of `bench` -> plans -> items -> results
//! ```
//!
//! Invariant: a sweep accepts every option of `bench` that describes a matrix, because the same
//! parser reads it; options of the command line override the file.

mod cluster;
mod plan;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};
use bench::Progress;
use bench::RunError;
use bench::program::session::RunResult;
use bench::sweep::{HostError, SweepCase, SweepHost, Task, check_devices, run_tasks};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory};
use host::Access;
use results::record::Record;
use results::{NewRun, Store};
use serde::Serialize;
use spec::program::ProgramError;
use spec::shown::counted;
use spec::sweep::{Item, ItemKey, TargetLabels};
use spec::target::TargetExpr;

use crate::commands::bench::{
    HostOptions, MatrixOptions, ResultOptions, check_memory, check_plan, hold_to_cores, run_program,
};
use crate::commands::web::{Page, SweptFeed, WebOptions};
use crate::console::say;
use crate::error::{Context, reworded, text_of};
use crate::output::json_of;
use crate::progress::{Reporter, Status};
use crate::{Ending, signal};
use cluster::ClusterOptions;

use plan::MatrixParser;
pub use plan::{Given, Planned, known};

const EXAMPLES: &str = "\
Examples:
  raidlab sweep sweeps/wiki-2-disks.toml && raidlab report    measure, then show
  raidlab sweep sweeps/wiki-2-disks.toml --dry-run            the items, and how long they take
  raidlab sweep my.toml --members mem --runs 2                options override the file
  raidlab sweep my.toml --web                                 with a page for browsers

The file has the options of `raidlab bench` by their names; every list multiplies. What is stored
is not measured again: run the same command to resume. With --web the command does not end with the
sweep: the page shows the report until Ctrl-C.";

/// Measure the cases of a file one after the other, and store each result when it is final.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("web", |it| it.conflicts_with("dry_run")))]
pub struct SweepArguments {
    /// A TOML file with options of `bench`, as in sweeps/wiki-2-disks.toml
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Start over, as a new run, instead of resuming the newest
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    results: ResultOptions,
    #[command(flatten)]
    web: WebOptions,
    /// Options that override the file's.
    #[command(flatten)]
    matrix: MatrixOptions,
    #[command(flatten)]
    host: HostOptions,
}

/// Options of the command line that override the file: values by key.
fn given(matches: &ArgMatches) -> Vec<Given> {
    let command = MatrixParser::command();
    let mut found = Vec::new();
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        if matches.value_source(id) == Some(ValueSource::CommandLine) {
            // A flag has no values.
            let valued = argument.get_action().takes_values();
            let values = matches.get_raw(id).filter(|_| valued).into_iter().flatten();
            let values = values.map(|value| value.to_string_lossy().into_owned());
            found.push((long.to_string(), values.collect()));
        }
    }
    found
}

/// Runs a sweep, or shows what it would run.
pub fn run(arguments: &SweepArguments, matches: &ArgMatches) -> Result<Ending> {
    let (file, host) = (arguments.file.as_path(), &arguments.host);
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("{}: cannot be read", file.display()))?;
    let given = given(matches);
    let mut planned = Planned::new(file, &text, &given, host)?;
    planned.notes.iter().for_each(|note| say(format_args!("{note}")));
    if let Some(scheduler) = &arguments.cluster.scheduler {
        return cluster::run(scheduler, arguments, &given, &planned);
    }
    if arguments.cluster.hosts.is_some() || arguments.cluster.dataset.is_some() {
        bail!("--hosts and --dataset are of a sweep over several hosts: give --scheduler, too");
    }
    leave_to_others(&mut planned);
    let sweeping = Sweeping { arguments, planned: &planned };
    if arguments.results.dry_run { sweeping.show() } else { sweeping.run_sweep() }
}

/// Takes out the cases that other machines are to measure.
fn leave_to_others(planned: &mut Planned) {
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let others = |case: &SweepCase| case.host.as_ref().is_some_and(|host| *host != here);
    let hosts: BTreeSet<&String> = planned
        .cases
        .iter()
        .filter(|case| others(case))
        .filter_map(|it| it.host.as_ref())
        .collect();
    if !hosts.is_empty() {
        let names = hosts.into_iter().cloned().collect::<Vec<_>>().join(", ");
        let count = planned.cases.iter().filter(|case| others(case)).count();
        say(format_args!(
            "left out: {} of other hosts ({names}); this is {here}; --scheduler runs them there",
            counted(count, "item")
        ));
    }
    planned.cases.retain(|case| !others(case));
}

/// A sweep as JSON, for `--dry-run`.
#[derive(Serialize)]
struct Shown {
    sweep: String,
    title: String,
    items: Vec<ShownItem>,
    impossible: Vec<Impossible>,
    /// Estimate for the items left, without programs, whose duration is unknown.
    seconds_left: f64,
    programs_left: usize,
}

#[derive(Serialize)]
struct ShownItem {
    key: String,
    what: String,
    done: bool,
}

#[derive(Serialize)]
struct Impossible {
    what: String,
    reason: String,
}

struct Sweeping<'a> {
    arguments: &'a SweepArguments,
    planned: &'a Planned,
}

impl Sweeping<'_> {
    fn all(&self) -> Vec<Task> {
        self.left(&HashSet::new())
    }

    fn left(&self, finished: &HashSet<ItemKey>) -> Vec<Task> {
        self.planned.tasks(finished)
    }

    /// The run to resume, and its finished items.
    fn begun(&self, store: &Store) -> Result<Option<(i64, HashSet<ItemKey>)>> {
        let all = self.all();
        let Some(head) = bench::sweep::head(&all).filter(|_| !self.arguments.again) else {
            return Ok(None);
        };
        match store.newest_of(&self.planned.sweep.name, &head)? {
            Some(run) => Ok(Some((run, store.finished(run)?))),
            None => Ok(None),
        }
    }

    /// `--dry-run`: prints items, finished ones and the remaining time. Creates nothing.
    fn show(&self) -> Result<Ending> {
        let path = self.arguments.results.db.path()?;
        let (mut begun, mut took) = (None, HashMap::new());
        if path.exists() {
            let store = self.arguments.results.db.open()?;
            begun = self.begun(&store)?;
            took = store.programs_took()?;
        }
        let finished = begun.map(|(_, finished)| finished).unwrap_or_default();
        let shown = self.shown(&finished);
        let mut out = format!("{}\n", spec::shown::Shown(&shown.title));
        for item in &shown.items {
            let mark = if item.done { "done" } else { "" };
            out.push_str(&format!("{mark:4}  {}  {}\n", item.key, item.what));
        }
        for item in &shown.impossible {
            out.push_str(&format!("cannot be run: {}: {}\n", item.what, item.reason));
        }
        out.push_str(&self.summary(&finished, &took));
        let outputs = self.arguments.results.outputs_of_a_list()?;
        outputs.write_texts(&(out + "\n"), &json_of(&shown), None)?;
        Ok(if self.planned.impossible.is_empty() { Ending::Fine } else { Ending::Finding })
    }

    /// The items of the sweep, for JSON output.
    fn shown(&self, finished: &HashSet<ItemKey>) -> Shown {
        let rest = self.left(finished);
        let item = |item: &Item| ShownItem {
            key: item.key.0.clone(),
            what: item.what.clone(),
            done: finished.contains(&item.key),
        };
        let impossible = |(item, reason): &(Item, String)| Impossible {
            what: item.what.clone(),
            reason: reason.clone(),
        };
        Shown {
            sweep: self.planned.sweep.name.clone(),
            title: self.planned.sweep.title.clone(),
            items: self.all().iter().flat_map(|task| &task.items).map(item).collect(),
            impossible: self.planned.impossible.iter().map(impossible).collect(),
            seconds_left: seconds(&rest),
            programs_left: programs(&rest),
        }
    }

    /// `24 item(s), 4 of them done, left: about 2m30s and 2 program(s) of unknown duration`. `took`
    /// has the duration of programs that were measured before, in seconds, phases only.
    fn summary(&self, finished: &HashSet<ItemKey>, took: &HashMap<ItemKey, f64>) -> String {
        let count = |tasks: &[Task]| tasks.iter().map(|task| task.items.len()).sum::<usize>();
        let (all, rest) = (count(&self.all()), self.left(finished));
        let programs = programs(&rest);
        let estimate = seconds(&rest);
        let mut time = match estimate < 1.0 {
            true if rest.is_empty() => "nothing".to_string(),
            true => "under 1s".to_string(),
            false => format!("about {}", spec::units::show_seconds(estimate)),
        };
        if programs > 0 {
            let programs = counted(programs, "program");
            time = match estimate > 0.0 {
                true => format!("{time} and {programs} of unknown duration"),
                false => format!("{programs} of unknown duration"),
            };
            let keys = rest.iter().filter(|task| task.is_program()).map(|task| &task.items[0].key);
            let known: Vec<f64> = keys.filter_map(|key| took.get(key).copied()).collect();
            if !known.is_empty() {
                let seconds = spec::units::show_seconds(known.iter().sum());
                let known = known.len();
                time.push_str(&format!(" (phases of {known} of them took {seconds} before)"));
            }
        }
        let done = all - count(&rest);
        format!("{}, {done} of them done, left: {time}", counted(all, "item"))
    }

    fn run_sweep(&self) -> Result<Ending> {
        let arguments = self.arguments;
        let results = &arguments.results;
        let all = self.all();
        let stop = signal::watch()?;
        let outputs = results.outputs()?;
        hold_to_cores(arguments.host.cores)?;
        let page = SweepPage::start(&arguments.web, &self.planned.sweep.title)?;
        let mut store = results.db.create()?;
        let head = bench::sweep::head(&all).ok_or_else(|| self.nothing())?;
        let new = NewRun {
            title: &self.planned.sweep.title,
            sweep: Some(&self.planned.sweep.name),
            published: self.planned.sweep.published.as_deref(),
        };
        let begun = self.begun(&store)?;
        let finished = begun.as_ref().map(|(_, finished)| finished.clone()).unwrap_or_default();
        let resumed = begun.map(|(run, _)| (&mut store, run));
        let left = self.left(&finished);
        check_devices(&left, resumed, arguments.host.destroy_contents, Access::ReadWrite)??;
        let run = match arguments.again {
            true => store.begin(&new, &head),
            false => store.go_on(&new, &head),
        };
        let run = run?;
        let finished = store.finished(run)?;
        let took = store.programs_took()?;
        let rest = self.left(&finished);
        say(format_args!("{}: {}", self.planned.sweep.name, self.summary(&finished, &took)));
        say(format_args!("run {run} in {}", store.path().display()));
        for (item, why) in &self.planned.impossible {
            store.put_not_run(run, item, why)?;
        }
        let cells = rest.iter().map(|task| task.items.len()).sum();
        page.feed.planned(cells, self.planned.impossible.len());
        let mut here = Here {
            arguments,
            labels: &self.planned.labels,
            feed: page.is_served().then(|| page.feed.clone()),
            reporter: Reporter::new(cells, programs(&rest), seconds(&rest)),
            stop: &stop,
            waits_for: Vec::new(),
        };
        let ended = run_tasks(&rest, &mut store, run, &mut here);
        here.reporter.finish();
        // Stored items are not measured again after an error.
        let resumable = |text| format!("{text}; run the same command to resume");
        let ended = ended.map_err(|error| reworded(error, resumable))?;
        let record = store.record(run)?;
        let failed: Vec<_> = self.planned.impossible.iter().chain(&ended.failed).collect();
        for (item, why) in &failed {
            say(format_args!("could not be run: {}: {why}", item.what));
        }
        if record.cells.is_empty() && !ended.stopped {
            return Err(failed
                .first()
                .map_or_else(|| self.nothing(), |(item, why)| anyhow!("{}: {why}", item.what)));
        }
        outputs.write(&record)?;
        if ended.stopped {
            if let Some(problem) = &ended.interrupted {
                say(format_args!("raidlab: {problem}"));
            }
            say(format_args!(
                "raidlab: stopped; {} of {} measured; run the same command to resume",
                ended.measured,
                counted(cells, "item")
            ));
            return Ok(Ending::Stopped);
        }
        if rest.is_empty() {
            say(format_args!("all items were measured before; use --again to measure them again"));
        }
        page.stay(&record, failed.len(), &stop);
        let fine = failed.is_empty() && record.verified();
        Ok(if fine { Ending::Fine } else { Ending::Finding })
    }

    fn nothing(&self) -> Error {
        match self.planned.impossible.first() {
            Some((_, why)) => anyhow!("{why}"),
            None => anyhow!("{}: nothing to run", self.planned.sweep.name),
        }
    }
}

/// The page of a sweep, if there is one.
struct SweepPage {
    page: Option<Page>,
    feed: Arc<SweptFeed>,
}

impl SweepPage {
    fn start(options: &WebOptions, title: &str) -> Result<SweepPage> {
        let feed = Arc::new(SweptFeed::new(title));
        let page = options.start(false, feed.clone())?;
        page.iter().for_each(|page| say(format_args!("page: {}", page.url)));
        Ok(SweepPage { page, feed })
    }

    fn is_served(&self) -> bool {
        self.page.is_some()
    }

    /// Shows the report until the user ends it.
    fn stay(&self, record: &Record, failed: usize, stop: &AtomicBool) {
        let Some(page) = &self.page else { return };
        let report = (!record.cells.is_empty()).then(|| report::html::render(record));
        self.feed.ended("finished", failed, report);
        say(format_args!("the sweep has finished; its page stays until Ctrl-C: {}", page.url));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(STAY_STEP);
        }
    }
}

/// How often Ctrl-C is looked for while the page stays.
const STAY_STEP: Duration = Duration::from_millis(50);

fn programs(tasks: &[Task]) -> usize {
    tasks.iter().filter(|task| task.is_program()).count()
}

/// The reason why a program could not be run, without the program's name, which the item has.
pub fn without_name(error: RunError) -> RunError {
    match error {
        RunError::Program(ProgramError::Spec { problem, .. }) => RunError::Program(*problem),
        RunError::TooLarge { problem, .. } => RunError::ProgramTooLarge(problem),
        error => error,
    }
}

fn seconds(tasks: &[Task]) -> f64 {
    tasks.iter().filter_map(Task::estimate_seconds).sum()
}

/// The command line's side of a running sweep: progress, signals and programs.
struct Here<'a> {
    arguments: &'a SweepArguments,
    labels: &'a TargetLabels,
    reporter: Reporter,
    /// What the page shows, if there is one.
    feed: Option<Arc<SweptFeed>>,
    stop: &'a AtomicBool,
    /// Processes already reported as being waited for.
    waits_for: Vec<u32>,
}

/// Whether a task has space and memory here.
///
/// # Errors
/// What is missing.
pub fn check_room(task: &Task, host: &HostOptions) -> Result<(), HostError> {
    // What others' devices hold takes no space here; block workloads take memory anywhere.
    let target = &task.case().target;
    let on_path = matches!(target, TargetExpr::Path(_)) && !task.is_program();
    let checked = match target.makes_members() || on_path {
        true => check_plan(&task.plan(), host, false),
        false if task.is_program() => Ok(()),
        false => check_memory(&task.plan(), host),
    };
    checked.map_err(|error| text_of(&error).into())
}

impl SweepHost for Here<'_> {
    fn ready(&mut self, task: &Task) -> Result<(), HostError> {
        check_room(task, &self.arguments.host)
    }

    fn program(&mut self, task: &Task) -> RunResult {
        let case = task.case();
        let status = Status::default();
        let stopped = || self.stop.load(Ordering::Relaxed);
        let left = format!("{} left  ", self.reporter.left());
        let feed = self.feed.clone();
        let show = |progress: &Progress<'_>| {
            status.show(&left, progress);
            feed.iter().for_each(|feed| feed.progress(progress));
        };
        let begun = Instant::now();
        let destroy = self.arguments.host.destroy_contents;
        let label = self.labels.of(&case.target);
        let (cells, ended) = run_program(case, label, destroy, &stopped, &show);
        status.finish();
        if ended.is_ok() && !stopped() {
            self.reporter.done(&task.items[0].what, begun.elapsed());
            if let Some(feed) = &self.feed {
                feed.program(&cells);
                feed.left(self.reporter.left());
            }
        }
        (cells, ended.map_err(without_name))
    }

    fn label(&self, task: &Task) -> String {
        self.labels.of(&task.case().target).to_string()
    }

    fn progress(&mut self, event: Progress<'_>) {
        self.reporter.show(&event);
        let Some(feed) = &self.feed else { return };
        feed.progress(&event);
        if matches!(event, Progress::Measured(_)) {
            feed.left(self.reporter.left());
        }
    }

    fn not_measured(&mut self, item: &Item, why: &str) {
        self.feed.iter().for_each(|feed| feed.failed(&item.what, why));
    }

    fn waits(&mut self, items: usize, processes: &[u32]) {
        if self.waits_for != processes {
            let names: Vec<String> = processes.iter().map(u32::to_string).collect();
            say(format_args!(
                "waiting for process {}, which is measuring {} of this run",
                names.join(", "),
                counted(items, "item")
            ));
            self.waits_for = processes.to_vec();
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
