//! `raidlab report`.
//!
//! Invariant: with one of the formats on stdout (`-`), stdout holds it and nothing else; otherwise
//! the table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Result, bail};
use clap::Args;
use report::reproduced::Reproduction;
use report::runs::Report;
use results::host::Host;
use results::record::Record;
use spec::shown::Shown;

use crate::Ending;
use crate::commands::results::{DbArgument, Which, chosen, read_record, report_of_run};
use crate::console::{
    JsonOut, columns, has_colours, is_stdout, print_lines, print_raw, replace_record, say,
};
use crate::error::{Context, of_option};
use crate::output::json_of;

const EXAMPLES: &str = "\
Examples:
  raidlab report                               the newest run of the results file, as tables
  raidlab report --list                        all runs
  raidlab report --run last~1 --html run.html  the run before it, as one offline page with charts
  raidlab report a.json b.json --csv -         records that bench --json=FILE wrote

Exit status: 1 when data was wrong or requests failed.";

/// Without files: the newest run in the results. Without a format: a table.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArguments {
    /// Records that `bench --json=FILE` wrote; also bonnie++'s CSV and fio's JSON
    #[arg(value_name = "RECORD", conflicts_with_all = ["run", "list"])]
    records: Vec<PathBuf>,
    #[command(flatten)]
    db: DbArgument,
    /// Which run: its number, last, last~1 (the one before) or all
    #[arg(long, value_name = "RUN", default_value = "last")]
    run: Which,
    /// List the runs, with --json for programs
    #[arg(long, conflicts_with_all = ["published", "html", "markdown", "csv", "parquet",
                                      "fio_json", "histogram"])]
    list: bool,
    /// Published figures to show beside [default: those that the sweep names; none: no figures].
    /// Without NAME: how far all published tables come out, by the newest run of each sweep
    #[arg(long, value_name = "NAME", help_heading = "Results", num_args = 0..=1)]
    published: Option<Option<String>>,
    /// Write one offline HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown; - is stdout
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write one row per cell as CSV; - is stdout
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the shape of fio's json+ output, for tools that read that; - is stdout
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    fio_json: Option<PathBuf>,
    /// Print the latency distribution of each cell as bars, below the tables
    #[arg(long, help_heading = "Output",
          conflicts_with_all = ["html", "markdown", "csv", "parquet", "fio_json", "json"])]
    histogram: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Write one row per cell as Parquet
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    parquet: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &ReportArguments) -> Result<Ending> {
    if arguments.list {
        return list(arguments);
    }
    if arguments.published == Some(None) {
        return reproduced(arguments);
    }
    let mut report = Report::together(gather(arguments)?);
    match arguments.published.as_ref().and_then(Option::as_deref) {
        None => {}
        Some("none") => report.published = None,
        Some(name) => {
            let figures = report::published::named(name).context("--published")?;
            report.published = Some(figures);
        }
    }
    write(arguments, &report)?;
    Ok(if report.record.verified() { Ending::Fine } else { Ending::Finding })
}

/// `--published` without a name: all sets, and how far they come out.
fn reproduced(arguments: &ReportArguments) -> Result<Ending> {
    if arguments.csv.is_some() || arguments.parquet.is_some() {
        bail!("--published without a name has no rows for --csv and --parquet");
    }
    if arguments.fio_json.is_some() || arguments.histogram {
        bail!("--published without a name has no cells for --fio-json and --histogram");
    }
    let mut sets = Vec::new();
    let mut fine = true;
    let mut measured: BTreeSet<String> = BTreeSet::new();
    for name in report::published::names() {
        let set = report::published::named(name).context("--published")?;
        let mut record = Record::new(Host::default(), SystemTime::UNIX_EPOCH);
        let runs = records_for(arguments, name)?;
        measured.extend(runs.iter().map(report::reproduced::provenance));
        record.cells = runs.into_iter().flat_map(|run| run.cells).collect();
        fine &= record.verified();
        // Wrong data has no speed.
        record.cells.retain(|cell| cell.measured.verified != Some(false));
        sets.push((set, record));
    }
    let all = Reproduction::of(&sets, measured.into_iter().collect());
    let texts: [(&str, Option<&Path>, Render<'_>); 3] = [
        ("--html", arguments.html.as_deref(), &|| report::reproduced::html(&all)),
        ("--markdown", arguments.markdown.as_deref(), &|| report::reproduced::markdown(&all)),
        ("--json", arguments.json.path(), &|| json_of(&all)),
    ];
    if !write_texts(&texts)? {
        print_lines(&report::reproduced::text(&all))?;
    }
    Ok(if fine { Ending::Fine } else { Ending::Finding })
}

/// The records that stand beside a set: those given, or of the newest run of each sweep that names
/// the set.
fn records_for(arguments: &ReportArguments, set: &str) -> Result<Vec<Record>> {
    if !arguments.records.is_empty() {
        return Ok(gather(arguments)?.into_iter().map(|report| report.record).collect());
    }
    let store = arguments.db.open()?;
    let runs = match &arguments.run {
        Which::Last => store.runs()?,
        which => chosen(&store, which)?,
    };
    let of_set = runs.iter().filter(|run| run.published.as_deref() == Some(set));
    let newest: BTreeMap<&Option<String>, i64> = of_set.map(|run| (&run.sweep, run.id)).collect();
    let records = newest.values().map(|run| Ok(store.record(*run)?));
    records.collect()
}

fn gather(arguments: &ReportArguments) -> Result<Vec<Report>> {
    if arguments.records.is_empty() {
        let store = arguments.db.open()?;
        let runs = chosen(&store, &arguments.run)?;
        return runs.iter().map(|run| report_of_run(&store, run)).collect();
    }
    let read = |path: &PathBuf| {
        let mut report = Report::of(read_record(path)?);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        report.sources.iter_mut().for_each(|source| source.name.clone_from(&name));
        Ok(report)
    };
    arguments.records.iter().map(read).collect()
}

/// Makes a text format.
type Render<'a> = &'a dyn Fn() -> String;

fn write(arguments: &ReportArguments, report: &Report) -> Result<()> {
    let records = std::slice::from_ref(&report.record);
    let texts: [(&str, Option<&Path>, Render<'_>); 5] = [
        ("--html", arguments.html.as_deref(), &|| report::html::render_report(report)),
        ("--markdown", arguments.markdown.as_deref(), &|| report::runs::markdown(report)),
        ("--csv", arguments.csv.as_deref(), &|| results::csv(records)),
        ("--fio-json", arguments.fio_json.as_deref(), &|| report::fio_json::render(&report.record)),
        ("--json", arguments.json.path(), &|| report.record.to_json()),
    ];
    let files = write_texts(&texts)? || arguments.parquet.is_some();
    if let Some(path) = &arguments.parquet {
        put_parquet(path, report)?;
    }
    if files {
        return Ok(());
    }
    let mut text = report::runs::text(report, has_colours(&std::io::stdout()));
    if arguments.histogram {
        text.push_str(&report::histogram::text(&report.record));
    }
    print_lines(&text)
}

/// Writes the formats that were requested; whether there were any.
fn write_texts(texts: &[(&str, Option<&Path>, Render<'_>)]) -> Result<bool> {
    let to_stdout = texts.iter().filter(|(_, path, _)| path.is_some_and(is_stdout));
    let to_stdout = to_stdout.count();
    if to_stdout > 1 {
        bail!("only one format can go to stdout");
    }
    for (option, path, render) in texts {
        match path {
            None => {}
            Some(path) if is_stdout(path) => print_raw(&render())?,
            Some(path) => {
                replace_record(path, render().as_bytes()).map_err(of_option(option))?;
                say(format_args!("{}: {}", &option[2..], path.display()));
            }
        }
    }
    Ok(texts.iter().any(|(_, path, _)| path.is_some()))
}

fn put_parquet(path: &Path, report: &Report) -> Result<()> {
    if is_stdout(path) {
        bail!("--parquet -: it goes to a file; name one");
    }
    let bytes = results::parquet(std::slice::from_ref(&report.record));
    let bytes = bytes.with_context(|| format!("--parquet {}", path.display()))?;
    replace_record(path, &bytes).map_err(of_option("--parquet"))?;
    say(format_args!("parquet: {}", path.display()));
    Ok(())
}

/// `--list`.
fn list(arguments: &ReportArguments) -> Result<Ending> {
    let runs = arguments.db.open()?.runs()?;
    match arguments.json.path() {
        None => {}
        Some(path) if is_stdout(path) => {
            return print_raw(&json_of(&runs)).map(|()| Ending::Fine);
        }
        Some(path) => {
            replace_record(path, json_of(&runs)).map_err(of_option("--json"))?;
            say(format_args!("json: {}", path.display()));
            return Ok(Ending::Fine);
        }
    }
    let rows = runs.iter().map(|run| {
        let state = match (&run.ended, run.not_run) {
            (Some(_), 0) => String::new(),
            (Some(_), failed) => format!("{failed} could not be run"),
            (None, 0) => "not ended".into(),
            (None, failed) => format!("not ended, {failed} could not be run"),
        };
        let host = run.hostname.as_ref().map(|host| Shown(host).to_string()).unwrap_or_default();
        let title = Shown(&run.title).to_string();
        [run.id.to_string(), run.started.clone(), host, run.cells.to_string(), title, state]
    });
    let header = ["run", "started", "host", "cells", "title", "state"];
    print_lines(&columns(header, rows, &[0, 3]))?;
    Ok(Ending::Fine)
}
