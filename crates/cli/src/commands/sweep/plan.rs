//! The plan of a sweep: a file and the options over it, as tasks.
//!
//! ```text
//!   file -> tables of texts -> the parser of `bench` -> plans -> cases -> tasks
//! ```
//!
//! Invariant: the same text, options and profiles make the same keys on every machine: workers that
//! plan a sweep again find its items. Nothing is created here. Called by the verb, and by
//! `sweeping` for sweeps over several hosts.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use bench::sweep::{SweepCase, Task, tasks};
use clap::{CommandFactory, FromArgMatches, Parser};
use spec::case::{Case, RunConfig};
use spec::sweep::{Item, ItemKey, SweepFile, SweepOption, SweepTable, TargetLabels};

use crate::commands::bench::{self as verb, HostOptions, Matrix, MatrixOptions};
use crate::error::{Context, text_of};
use crate::one_line;

/// An option over the file's, without dashes, and its values; none: it has no value.
pub type Given = (String, Vec<String>);

/// A parser for the options of a file.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct MatrixParser {
    #[command(flatten)]
    options: MatrixOptions,
}

/// The options that a file may set.
pub fn known() -> Vec<String> {
    let command = MatrixParser::command();
    command.get_arguments().filter_map(|argument| argument.get_long()).map(String::from).collect()
}

/// A planned sweep.
pub struct Planned {
    /// The file.
    pub sweep: SweepFile,
    /// What is to be measured.
    pub cases: Vec<SweepCase>,
    /// What tells its targets apart.
    pub labels: TargetLabels,
    /// Matrices that cannot be planned, with the reason.
    pub impossible: Vec<(Item, String)>,
    /// What was left out or ignored, a line each.
    pub notes: Vec<String>,
}

impl Planned {
    /// Plans the text of a file, `given` over it. `file` is its name in messages, and its stem that
    /// of the sweep, if the text gives none.
    pub fn new(file: &Path, text: &str, given: &[Given], host: &HostOptions) -> Result<Planned> {
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let names = known();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let file = file.display();
        let sweep = SweepFile::parse(text, &stem.unwrap_or_default(), &names);
        let sweep = sweep.with_context(|| format!("{file}"))?;
        if let Some(name) = &sweep.published {
            report::published::named(name).with_context(|| format!("{file}"))?;
        }
        let mut tables = Vec::new();
        for table in &sweep.runs {
            let read = read(table, given).with_context(|| format!("{file}"))?;
            let checked = read.options.check_programs();
            checked.with_context(|| format!("{file}: line {}", table.line))?;
            tables.push(read);
        }
        let mut notes = unused_options(&tables, host, given).with_context(|| format!("{file}"))?;
        let labels = TargetLabels::new(tables.iter().flat_map(|table| &table.options.target));
        // Calibrated once, so that all tables have the same.
        let kernels = host.kernels();
        let (mut all, mut impossible) = (Vec::new(), Vec::new());
        for (table, read) in sweep.runs.iter().zip(&tables) {
            let run = read.options.run_config(host, kernels);
            let planned = cases(&read.options, &run, &labels, &table.hosts);
            let (cases, left_out) = planned.unwrap_or_else(|why| {
                impossible.push((unplanned(table), text_of(&why)));
                Default::default()
            });
            let note = |why: String| format!("{file}: line {}: left out: {why}", table.line);
            notes.extend(left_out.into_iter().map(note));
            all.extend(cases);
        }
        Ok(Planned { sweep, cases: all, labels, impossible, notes })
    }

    /// All tasks, but for the items that are `finished`.
    pub fn tasks(&self, finished: &HashSet<ItemKey>) -> Vec<Task> {
        tasks(&self.cases, finished)
    }
}

/// Refuses options of the command line without effect. Options of the file without effect are only
/// noted: a target or workload of the command line overrides the file's and may make them unused.
fn unused_options(tables: &[Matrix], host: &HostOptions, given: &[Given]) -> Result<Vec<String>> {
    let unused = verb::unused_options(tables, host);
    let in_file = |option: &str| {
        let overridden = given.iter().any(|(key, _)| key == option);
        !overridden && tables.iter().any(|table| table.has(option))
    };
    if let Some(refused) = unused.iter().find(|found| !in_file(&found.option)) {
        bail!("{refused}");
    }
    let keys: Vec<&str> = unused.iter().map(|found| found.option.as_str()).collect();
    let note = || {
        let keys = keys.join(", ");
        format!("note: ignored: {keys} of the sweep file: no effect with this target or workload")
    };
    Ok((!keys.is_empty()).then(note).into_iter().collect())
}

/// The cases of one matrix, on each of `hosts` if there are any, and what was left out of it.
fn cases(
    table: &MatrixOptions,
    run: &RunConfig,
    labels: &TargetLabels,
    hosts: &[String],
) -> Result<(Vec<SweepCase>, Vec<String>)> {
    let work = verb::plan(table)?;
    let hosts: Vec<Option<&str>> = match hosts {
        [] => vec![None],
        hosts => hosts.iter().map(|host| Some(host.as_str())).collect(),
    };
    let mut cases: Vec<SweepCase> = Vec::new();
    for host in hosts {
        let sweep_case = |case: Case, label: &str| SweepCase::new(case, label, host);
        for target in &work.blocks {
            let label = labels.of(&target.place);
            cases.extend(target.cases(run).map(|case| sweep_case(case, label)));
        }
        for target in &work.targets {
            let label = labels.of(&target.place);
            let programs = work.cases(target, run);
            cases.extend(programs.into_iter().map(|case| sweep_case(case, label)));
        }
    }
    // The list of arrays left out is the same for every target.
    let left_out = work.plans().next().map_or(&[][..], |plan| &plan.left_out);
    Ok((cases, left_out.iter().map(ToString::to_string).collect()))
}

/// The item of a matrix that cannot be planned.
fn unplanned(table: &SweepTable) -> Item {
    let option = |option: &SweepOption| format!("{} = {}", option.key, option.values.join(","));
    let what = table.options.iter().map(option).collect::<Vec<_>>().join("; ");
    Item { key: ItemKey(format!("matrix: {what}")), what }
}

/// The options of one table, with those of the command line over them.
fn read(table: &SweepTable, given: &[Given]) -> Result<Matrix> {
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
