//! `raidlab bench SWEEP.toml`.
//!
//! ```text
//!   file -> tables of texts -> the parser of `bench` -> plans -> items -> results
//! ```
//!
//! Invariant: a sweep knows every option that `bench` has, because `bench` reads them; what the
//! command line says besides wins over the file. Called from `bench`.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};
use lab::bench::Settings;
use lab::results::{Item, ItemKey, NewRun, Store};
use lab::sweep::{Part, SweepFile, SweepTable, Task, carry, tasks};

use crate::bench::{self, BenchArguments};
use crate::console::{print_all, say};
use crate::output::Outputs;
use crate::progress::Reporter;
use crate::{Ending, one_line};

/// `bench` by itself, to read the options of a file with.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Alone {
    #[command(flatten)]
    bench: BenchArguments,
}

/// Options that are about this run of the program, not about what is measured.
#[rustfmt::skip]
const NOT_IN_A_FILE: [&str; 14] = [
    "db", "dry-run", "again", "json", "html", "kernels", "engine", "kernel", "dir", "cores",
    // Programs, and what they run on: not yet.
    "programs", "target", "drop-caches", "destroy-contents",
];

/// The options that a file may set.
fn known() -> Vec<String> {
    let command = Alone::command();
    let names = command.get_arguments().filter_map(|argument| argument.get_long());
    names.filter(|name| !NOT_IN_A_FILE.contains(name)).map(str::to_string).collect()
}

/// What the command line says besides the file: `--key=value` by key.
fn given(matches: &ArgMatches) -> Vec<(String, Vec<String>)> {
    let command = Alone::command();
    let known = known();
    let mut found = Vec::new();
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        let said = matches.value_source(id) == Some(ValueSource::CommandLine);
        if said && known.iter().any(|name| name == long) {
            let values = matches.get_raw(id).into_iter().flatten();
            let values = values.map(|value| value.to_string_lossy().into_owned());
            found.push((long.to_string(), values.collect()));
        }
    }
    found
}

/// Runs a sweep, or shows what it would run.
pub fn run(
    arguments: &BenchArguments,
    file: &Path,
    matches: &ArgMatches,
) -> Result<Ending, String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|e| format!("{}: cannot be read: {e}", file.display()))?;
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let names = known();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sweep = SweepFile::parse(&text, &stem.unwrap_or_default(), &names)
        .map_err(|e| format!("{}: {e}", file.display()))?;
    if let Some(name) = &sweep.published {
        lab::published::named(name).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let given = given(matches);
    let mut tables = Vec::new();
    for table in &sweep.runs {
        tables.push(read(table, &given).map_err(|e| format!("{}: {e}", file.display()))?);
    }
    let directory = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let kernels = bench::kernels_of(arguments)?;
    let mut parts = Vec::new();
    let mut impossible = Vec::new();
    for (table, read) in sweep.runs.iter().zip(&tables) {
        match lab::matrix::plan(&read.options()) {
            Ok(plan) => {
                for left_out in &plan.left_out {
                    say(format_args!("left out: {left_out}"));
                }
                let settings = read.settings(&directory, kernels);
                let settings = Settings { cores: arguments.cores, ..settings };
                parts.push(Part { plan, settings });
            }
            Err(why) => impossible.push((unplanned(table), why)),
        }
    }
    let sweeping = Sweeping { arguments, sweep: &sweep, parts: &parts, impossible };
    if arguments.dry_run { sweeping.show() } else { sweeping.carry() }
}

/// A matrix of which nothing can be run.
fn unplanned(table: &SweepTable) -> Item {
    let option =
        |option: &lab::sweep::SweepOption| format!("{} = {}", option.key, option.values.join(","));
    let what = table.options.iter().map(option).collect::<Vec<_>>().join("; ");
    Item { key: ItemKey(format!("matrix: {what}")), what }
}

/// One table's options, as `bench` reads them.
fn read(table: &SweepTable, given: &[(String, Vec<String>)]) -> Result<BenchArguments, String> {
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
        // Alone first: so what is wrong is known to be on this line.
        if let Err(error) = Alone::try_parse_from(&own) {
            return Err(format!("line {}: {}", option.line, one_line(&error.to_string())));
        }
        all.extend(own);
    }
    all.extend(given.iter().flat_map(|(key, values)| words(key, values)));
    let alone = Alone::try_parse_from(&all);
    let read = alone
        .map(|alone| alone.bench)
        .map_err(|error| format!("line {}: {}", table.line, one_line(&error.to_string())))?;
    match read.choices().first() {
        None => Ok(read),
        Some(choice) => Err(format!(
            "line {}: {choice}: a program; sweeps run workloads of blocks so far",
            table.line
        )),
    }
}

struct Sweeping<'a> {
    arguments: &'a BenchArguments,
    sweep: &'a SweepFile,
    parts: &'a [Part<'a>],
    impossible: Vec<(Item, String)>,
}

impl Sweeping<'_> {
    fn all(&self) -> Vec<Task<'_>> {
        tasks(self.parts, &HashSet::new())
    }

    /// The run that is to be gone on with, and what is finished in it.
    fn begun(&self, store: &Store) -> Result<Option<(i64, HashSet<ItemKey>)>, String> {
        let all = self.all();
        let Some(head) = lab::sweep::head(&all).filter(|_| !self.arguments.again) else {
            return Ok(None);
        };
        let told = |e: lab::results::StoreError| e.to_string();
        match store.newest_of(&self.sweep.name, &head).map_err(told)? {
            Some(run) => Ok(Some((run, store.finished(run).map_err(told)?))),
            None => Ok(None),
        }
    }

    /// `--dry-run`: items, what is finished, and how long the rest will take. Makes nothing.
    fn show(&self) -> Result<Ending, String> {
        let path = self.arguments.db.path()?;
        let begun = match path.exists() {
            true => self.begun(&self.arguments.db.open()?)?,
            false => None,
        };
        let finished = begun.map(|(_, finished)| finished).unwrap_or_default();
        let mut out = format!("{}\n", self.sweep.title);
        for task in self.all() {
            for item in &task.items {
                let mark = if finished.contains(&item.key) { "done" } else { "" };
                out.push_str(&format!("{mark:4}  {}  {}\n", item.key.0, item.what));
            }
        }
        for (item, why) in &self.impossible {
            out.push_str(&format!("cannot be run: {}: {why}\n", item.what));
        }
        out.push_str(&self.summary(&finished));
        print_all(&(out + "\n"))?;
        Ok(if self.impossible.is_empty() { Ending::Fine } else { Ending::Finding })
    }

    /// `24 items, 4 of them done, about 2m30s for the rest`.
    fn summary(&self, finished: &HashSet<ItemKey>) -> String {
        let count = |tasks: &[Task<'_>]| tasks.iter().map(|task| task.items.len()).sum::<usize>();
        let (all, rest) = (count(&self.all()), tasks(self.parts, finished));
        let seconds: f64 = rest.iter().map(Task::estimate_seconds).sum();
        let time = lab::quantity::show_seconds(seconds);
        format!("{all} item(s), {} of them done, about {time} for the rest", all - count(&rest))
    }

    fn carry(&self) -> Result<Ending, String> {
        let arguments = self.arguments;
        let told = |e: lab::results::StoreError| e.to_string();
        let all = self.all();
        let stop = bench::stop_on_signal()?;
        let outputs = Outputs::open(arguments.json.as_deref(), arguments.html.as_deref())?;
        bench::hold_to_cores(arguments)?;
        let mut store = arguments.db.create()?;
        let (run, finished) = match self.begun(&store)? {
            Some(begun) => begun,
            None => {
                let head = lab::sweep::head(&all).ok_or_else(|| self.nothing())?;
                let new = NewRun {
                    title: &self.sweep.title,
                    sweep: Some(&self.sweep.name),
                    published: self.sweep.published.as_deref(),
                };
                (store.begin(&new, &head).map_err(told)?, HashSet::new())
            }
        };
        let rest = tasks(self.parts, &finished);
        say(format_args!("{}: {}", self.sweep.name, self.summary(&finished)));
        say(format_args!("run {run} in {}", store.path().display()));
        for (item, why) in &self.impossible {
            store.put_not_run(run, item, why).map_err(told)?;
        }
        let cells = rest.iter().map(|task| task.items.len()).sum();
        let mut reporter = Reporter::new(cells, rest.iter().map(Task::estimate_seconds).sum());
        let stopped = || stop.load(Ordering::Relaxed);
        let ready = |plan: &lab::matrix::Plan| bench::check_plan(plan, arguments);
        let mut show = |progress: lab::bench::Progress<'_>| reporter.show(&progress);
        let ended = carry(&rest, &mut store, run, &ready, &stopped, &mut show).map_err(told)?;
        reporter.finish();
        let record = store.record(run).map_err(told)?;
        let failed: Vec<_> = self.impossible.iter().chain(&ended.failed).collect();
        for (item, why) in &failed {
            say(format_args!("could not be run: {}: {why}", item.what));
        }
        if record.cells.is_empty() && !ended.stopped {
            return Err(failed.first().map_or_else(|| self.nothing(), |(_, why)| why.clone()));
        }
        outputs.write(&record)?;
        if ended.stopped {
            say(format_args!(
                "raidlab: stopped; {} of {cells} item(s) measured; the same command goes on",
                ended.measured
            ));
            return Ok(Ending::Stopped);
        }
        if rest.is_empty() {
            say(format_args!("all were measured before; --again measures them once more"));
        }
        let fine = failed.is_empty() && record.verified();
        Ok(if fine { Ending::Fine } else { Ending::Finding })
    }

    fn nothing(&self) -> String {
        match self.impossible.first() {
            Some((_, why)) => why.clone(),
            None => format!("{}: nothing to run", self.sweep.name),
        }
    }
}
