//! `raidlab sweep FILE.toml`.
//!
//! ```text
//!   file -> tables of texts -> the parser of `bench` -> plans -> items -> results
//! ```
//!
//! Invariant: a sweep accepts every option of `bench` that describes a matrix, because the same
//! parser reads it; options of the command line override the file.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};
use bench::Progress;
use bench::RunError;
use bench::program::session::RunResult;
use bench::sweep::{HostError, SweepCase, SweepHost, Task, check_devices, run_tasks, tasks};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};
use results::record::Record;
use results::{NewRun, Store};
use serde::Serialize;
use spec::case::{Case, RunConfig};
use spec::program::ProgramError;
use spec::sweep::{Item, ItemKey, SweepFile, SweepTable, TargetLabels};
use spec::target::TargetExpr;

use crate::commands::bench::{
    HostOptions, Matrix, MatrixOptions, ResultOptions, check_memory, check_plan, hold_to_cores,
    run_program,
};
use crate::commands::web::{Page, SweptFeed, WebOptions};
use crate::console::say;
use crate::error::{Context, reworded, text_of};
use crate::output::json_of;
use crate::progress::{Reporter, Status};
use crate::{Ending, commands, one_line, signal};

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
    results: ResultOptions,
    #[command(flatten)]
    web: WebOptions,
    /// Options that override the file's.
    #[command(flatten)]
    matrix: MatrixOptions,
    #[command(flatten)]
    host: HostOptions,
}

/// A parser for the options of a file.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct MatrixParser {
    #[command(flatten)]
    options: MatrixOptions,
}

/// The options that a file may set.
fn known() -> Vec<String> {
    let command = MatrixParser::command();
    command.get_arguments().filter_map(|argument| argument.get_long()).map(String::from).collect()
}

/// Options of the command line that override the file: values by key.
fn given(matches: &ArgMatches) -> Vec<(String, Vec<String>)> {
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
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let names = known();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sweep = SweepFile::parse(&text, &stem.unwrap_or_default(), &names)
        .with_context(|| format!("{}", file.display()))?;
    if let Some(name) = &sweep.published {
        report::published::named(name).with_context(|| format!("{}", file.display()))?;
    }
    let given = given(matches);
    let mut tables = Vec::new();
    for table in &sweep.runs {
        let read = read(table, &given).with_context(|| format!("{}", file.display()))?;
        let checked = read.options.check_programs();
        checked.with_context(|| format!("{}: line {}", file.display(), table.line))?;
        tables.push(read);
    }
    unused_options(&tables, host, &given).with_context(|| format!("{}", file.display()))?;
    let labels = TargetLabels::new(tables.iter().flat_map(|table| &table.options.target));
    // Calibrated once, so that all tables have the same.
    let kernels = host.kernels();
    let mut all = Vec::new();
    let mut impossible = Vec::new();
    for (table, read) in sweep.runs.iter().zip(&tables) {
        let planned = cases(&read.options, &read.options.run_config(host, kernels), &labels);
        let (cases, left_out) = planned.unwrap_or_else(|why| {
            impossible.push((unplanned(table), text_of(&why)));
            Default::default()
        });
        for left_out in &left_out {
            let (file, line) = (file.display(), table.line);
            say(format_args!("{file}: line {line}: left out: {left_out}"));
        }
        all.extend(cases);
    }
    let sweeping = Sweeping { arguments, sweep: &sweep, cases: all, labels, impossible };
    if arguments.results.dry_run { sweeping.show() } else { sweeping.run_sweep() }
}

/// Refuses options of the command line without effect. Options of the file without effect are only
/// noted: a target or workload of the command line overrides the file's and may make them unused.
fn unused_options(
    tables: &[Matrix],
    host: &HostOptions,
    given: &[(String, Vec<String>)],
) -> Result<()> {
    let unused = commands::bench::unused_options(tables, host);
    let in_file = |option: &str| {
        let overridden = given.iter().any(|(key, _)| key == option);
        !overridden && tables.iter().any(|table| table.has(option))
    };
    if let Some(refused) = unused.iter().find(|found| !in_file(&found.option)) {
        bail!("{refused}");
    }
    let keys: Vec<&str> = unused.iter().map(|found| found.option.as_str()).collect();
    if !keys.is_empty() {
        say(format_args!(
            "note: ignored: {} of the sweep file: no effect with this target or workload",
            keys.join(", ")
        ));
    }
    Ok(())
}

/// The cases of one matrix, and what was left out of it.
fn cases(
    table: &MatrixOptions,
    run: &RunConfig,
    labels: &TargetLabels,
) -> Result<(Vec<SweepCase>, Vec<String>)> {
    let work = commands::bench::plan(table)?;
    let sweep_case = |case: Case, label: &str| SweepCase { item: case.item(label), case };
    let mut cases: Vec<SweepCase> = Vec::new();
    for target in &work.blocks {
        let label = labels.of(&target.place);
        cases.extend(target.cases(run).map(|case| sweep_case(case, label)));
    }
    for target in &work.targets {
        let label = labels.of(&target.place);
        let programs = work.cases(target, run);
        cases.extend(programs.into_iter().map(|case| sweep_case(case, label)));
    }
    // The list of arrays left out is the same for every target.
    let left_out = work.plans().next().map_or(&[][..], |plan| &plan.left_out);
    Ok((cases, left_out.iter().map(ToString::to_string).collect()))
}

/// The item of a matrix that cannot be planned.
fn unplanned(table: &SweepTable) -> Item {
    let option =
        |option: &spec::sweep::SweepOption| format!("{} = {}", option.key, option.values.join(","));
    let what = table.options.iter().map(option).collect::<Vec<_>>().join("; ");
    Item { key: ItemKey(format!("matrix: {what}")), what }
}

/// The options of one table, with those of the command line over them.
fn read(table: &SweepTable, given: &[(String, Vec<String>)]) -> Result<Matrix> {
    let words = |key: &str, values: &[String]| -> Vec<String> {
        match values {
            [] => vec![format!("--{key}")],
            values => values.iter().map(|value| format!("--{key}={value}")).collect(),
        }
    };
    let mut all = Vec::new();
    for option in &table.options {
        if given.iter().any(|(key, _)| *key == option.key) {
            continue;
        }
        let own = words(&option.key, &option.values);
        // Parsed separately first, so that an error can be attributed to this line.
        if let Err(error) = MatrixParser::try_parse_from(&own) {
            bail!("line {}: {}", option.line, one_line(&error.to_string()));
        }
        all.extend(own);
    }
    all.extend(given.iter().flat_map(|(key, values)| words(key, values)));
    let matches = MatrixParser::command().try_get_matches_from(&all);
    let parsed = matches.and_then(|matches| {
        let MatrixParser { options } = MatrixParser::from_arg_matches(&matches)?;
        Ok(Matrix::new(options, &matches))
    });
    parsed.map_err(|error| anyhow!("line {}: {}", table.line, one_line(&error.to_string())))
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
    sweep: &'a SweepFile,
    cases: Vec<SweepCase>,
    labels: TargetLabels,
    impossible: Vec<(Item, String)>,
}

impl Sweeping<'_> {
    fn all(&self) -> Vec<Task> {
        tasks(&self.cases, &HashSet::new())
    }

    /// The run to resume, and its finished items.
    fn begun(&self, store: &Store) -> Result<Option<(i64, HashSet<ItemKey>)>> {
        let all = self.all();
        let Some(head) = bench::sweep::head(&all).filter(|_| !self.arguments.again) else {
            return Ok(None);
        };
        match store.newest_of(&self.sweep.name, &head)? {
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
        let mut out = format!("{}\n", report::shown::Shown(&shown.title));
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
        Ok(if self.impossible.is_empty() { Ending::Fine } else { Ending::Finding })
    }

    /// The items of the sweep, for JSON output.
    fn shown(&self, finished: &HashSet<ItemKey>) -> Shown {
        let rest = tasks(&self.cases, finished);
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
            sweep: self.sweep.name.clone(),
            title: self.sweep.title.clone(),
            items: self.all().iter().flat_map(|task| &task.items).map(item).collect(),
            impossible: self.impossible.iter().map(impossible).collect(),
            seconds_left: seconds(&rest),
            programs_left: programs(&rest),
        }
    }

    /// `24 item(s), 4 of them done, left: about 2m30s and 2 program(s) of unknown duration`. `took`
    /// has the duration of programs that were measured before, in seconds, phases only.
    fn summary(&self, finished: &HashSet<ItemKey>, took: &HashMap<ItemKey, f64>) -> String {
        let count = |tasks: &[Task]| tasks.iter().map(|task| task.items.len()).sum::<usize>();
        let (all, rest) = (count(&self.all()), tasks(&self.cases, finished));
        let programs = programs(&rest);
        let estimate = seconds(&rest);
        let mut time = match estimate < 1.0 {
            true if rest.is_empty() => "nothing".to_string(),
            true => "under 1s".to_string(),
            false => format!("about {}", spec::units::show_seconds(estimate)),
        };
        if programs > 0 {
            time = match estimate > 0.0 {
                true => format!("{time} and {programs} program(s) of unknown duration"),
                false => format!("{programs} program(s) of unknown duration"),
            };
            let keys = rest.iter().filter(|task| task.is_program()).map(|task| &task.items[0].key);
            let known: Vec<f64> = keys.filter_map(|key| took.get(key).copied()).collect();
            if !known.is_empty() {
                let seconds = spec::units::show_seconds(known.iter().sum());
                let known = known.len();
                time.push_str(&format!(" (phases of {known} of them took {seconds} before)"));
            }
        }
        format!("{all} item(s), {} of them done, left: {time}", all - count(&rest))
    }

    fn run_sweep(&self) -> Result<Ending> {
        let arguments = self.arguments;
        let results = &arguments.results;
        let all = self.all();
        let stop = signal::watch()?;
        let outputs = results.outputs()?;
        hold_to_cores(arguments.host.cores)?;
        let page = SweepPage::start(&arguments.web, &self.sweep.title)?;
        let mut store = results.db.create()?;
        let head = bench::sweep::head(&all).ok_or_else(|| self.nothing())?;
        let new = NewRun {
            title: &self.sweep.title,
            sweep: Some(&self.sweep.name),
            published: self.sweep.published.as_deref(),
        };
        let begun = self.begun(&store)?;
        let finished = begun.as_ref().map(|(_, finished)| finished.clone()).unwrap_or_default();
        let resumed = begun.map(|(run, _)| (&mut store, run));
        let left = tasks(&self.cases, &finished);
        check_devices(&left, resumed, arguments.host.destroy_contents)??;
        let run = match arguments.again {
            true => store.begin(&new, &head),
            false => store.go_on(&new, &head),
        };
        let run = run?;
        let finished = store.finished(run)?;
        let took = store.programs_took()?;
        let rest = tasks(&self.cases, &finished);
        say(format_args!("{}: {}", self.sweep.name, self.summary(&finished, &took)));
        say(format_args!("run {run} in {}", store.path().display()));
        for (item, why) in &self.impossible {
            store.put_not_run(run, item, why)?;
        }
        let cells = rest.iter().map(|task| task.items.len()).sum();
        page.feed.planned(cells, self.impossible.len());
        let mut here = Here {
            arguments,
            labels: &self.labels,
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
        let failed: Vec<_> = self.impossible.iter().chain(&ended.failed).collect();
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
                "raidlab: stopped; {} of {cells} item(s) measured; run the same command to resume",
                ended.measured
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
        match self.impossible.first() {
            Some((_, why)) => anyhow!("{why}"),
            None => anyhow!("{}: nothing to run", self.sweep.name),
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
fn without_name(error: RunError) -> RunError {
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

impl SweepHost for Here<'_> {
    fn ready(&mut self, task: &Task) -> Result<(), HostError> {
        // What others' devices hold takes no space here; block workloads take memory anywhere.
        let (target, host) = (&task.case().target, &self.arguments.host);
        let on_path = matches!(target, TargetExpr::Path(_)) && !task.is_program();
        let checked = match target.uses_engine() || on_path {
            true => check_plan(&task.plan(), host, false),
            false if task.is_program() => Ok(()),
            false => check_memory(&task.plan(), host),
        };
        checked.map_err(|error| text_of(&error).into())
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

    fn waits(&mut self, items: usize, processes: &[u32]) {
        if self.waits_for != processes {
            let names: Vec<String> = processes.iter().map(u32::to_string).collect();
            say(format_args!(
                "waiting for process {}, which is measuring {items} item(s) of this run",
                names.join(", ")
            ));
            self.waits_for = processes.to_vec();
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
