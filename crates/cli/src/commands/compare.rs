//! `raidlab compare A B`.
//!
//! Invariant: exit 1 means that something is slower than allowed, and that the runs show it.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use report::compare::Comparison;
use results::record::Record;

use crate::Ending;
use crate::commands::results::{DbArgument, Which, chosen, read_record};
use crate::console::{JsonOut, check_replaceable, is_stdout, replace_record};
use crate::error::of_option;

const EXAMPLES: &str = "\
Examples:
  raidlab compare last~1 last                    the two newest runs of the results file
  raidlab compare before.json after.json --max-slowdown 3%
  raidlab compare a1.json,a2.json b1.json,b2.json --markdown -    several records on each side

Exit status: 1 when a cell is slower than --max-slowdown allows and the runs show it.";

/// Two records side by side: the ratio B/A of each cell with its 99 % interval, from a rank test
/// over runs that holds for any noise. Samples of one run are one value: bench --repeat makes
/// several. Exit 1 when a cell is slower than --max-slowdown allows and the runs show it, corrected
/// for the number of cells.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArguments {
    /// The record to compare with: a file (also bonnie++'s CSV or fio's JSON), or a run in the
    /// results: its number, last, last~1; several with commas between them are one record
    #[arg(value_name = "A")]
    a: String,
    /// The record that is compared
    #[arg(value_name = "B")]
    b: String,
    /// Maximum slowdown of B
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, default_value = "5%")]
    max_slowdown: f64,
    #[command(flatten)]
    db: DbArgument,
    #[command(flatten)]
    json: JsonOut,
    /// Write Markdown, for an issue or a wiki; - is stdout, instead of text
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

fn parse_percent(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(anyhow!("a percentage from 0 up to 100 is required, as in 5%")),
    }
}

/// Runs the command.
pub fn run(arguments: &CompareArguments) -> Result<Ending> {
    let page = arguments.markdown.as_deref();
    let page_to_stdout = page.is_some_and(is_stdout);
    if page_to_stdout && arguments.json.is_stdout() {
        bail!("only one format can go to stdout");
    }
    if let Some(page) = page.filter(|_| !page_to_stdout) {
        check_replaceable(page, b"").map_err(of_option("--markdown"))?;
        if arguments.json.is(page) {
            bail!("--json and --markdown: name two files");
        }
    }
    let a = records(&arguments.a, &arguments.db)?;
    let b = records(&arguments.b, &arguments.db)?;
    let comparison = Comparison::new(&a, &b, arguments.max_slowdown);
    if comparison.pairs.is_empty() {
        bail!(
            "{} and {} have no cell in common: arrays, members and workloads must be the same",
            arguments.a,
            arguments.b
        );
    }
    let text = match page_to_stdout {
        true => report::compare::markdown(&comparison),
        false => report::compare::text(&comparison),
    };
    arguments.json.put(&text, || &comparison)?;
    if let Some(page) = page.filter(|_| !page_to_stdout) {
        replace_record(page, report::compare::markdown(&comparison))
            .map_err(of_option("--markdown"))?;
    }
    Ok(if comparison.failed() { Ending::Finding } else { Ending::Fine })
}

/// All cells of a list of records, with the head of the first.
fn records(names: &str, db: &DbArgument) -> Result<Record> {
    if Path::new(names).exists() {
        return record(names, db);
    }
    let mut all = names.split(',').map(|name| record(name, db));
    let mut first = all.next().expect("a list has a first part")?;
    for next in all {
        first.append(next?);
    }
    Ok(first)
}

/// A file, or a run in the results.
fn record(name: &str, db: &DbArgument) -> Result<Record> {
    let path = Path::new(name);
    let which = match (path.exists(), name.parse::<Which>()) {
        (true, _) => return read_record(path),
        (false, Ok(Which::All)) => bail!("all: two records are compared; name one run"),
        (false, Ok(which)) => which,
        (false, Err(_)) => {
            let name = if name.is_empty() { "''" } else { name };
            bail!("{name}: no such file or run (examples: 12, last, last~1)");
        }
    };
    let store = db.open()?;
    let runs = chosen(&store, &which)?;
    Ok(store.record(runs[0].id)?)
}
