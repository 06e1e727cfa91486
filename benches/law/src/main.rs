//! `law-fit`: the constants of the law of `raidlab predict`, from cells of Linux md in model time.
//!
//! ```text
//!   sweeps/*.toml --raidlab sweep, report--> records --cells--> cells.json --fit--> constants
//!                                    published, collected tables --judge--> intervals, scores
//! ```
//!
//! Nothing is fitted to the published tables: they judge. Called by `make law`.
#![forbid(unsafe_code)]

mod ablation;
mod cells;
mod fit;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use predict::fitted::Fitted;
use predict::intervals::Intervals;
use predict::score::{Score, evaluate};
use predict::tables::{self, Table};
use results::record::Record;

/// The cells that are kept.
const CELLS: &str = include_str!("../cells.json");
/// Tables of forums and mailing lists, as they were posted.
const COLLECTED: &str = include_str!("../collected.json");

/// The law of `raidlab predict`: its cells, its constants, what its effects are worth.
#[derive(Parser)]
#[command(name = "law-fit")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print records of `raidlab bench --target linux` as the document that is fitted to
    Cells {
        /// Records, as `raidlab report --json=FILE` writes them
        #[arg(required = true)]
        records: Vec<PathBuf>,
    },
    /// Print the constants that fit the cells, and the intervals by the tables that judge
    Fit {
        /// Another document of cells
        #[arg(long, value_name = "FILE")]
        cells: Option<PathBuf>,
    },
    /// Print tables beside the law with the built-in constants, the cells where none are named
    Judge {
        /// Documents of tables
        tables: Vec<PathBuf>,
        /// Other constants
        #[arg(long, value_name = "FILE")]
        constants: Option<PathBuf>,
    },
    /// Print what each effect is worth on the published tables
    Ablation {
        /// Another document of cells
        #[arg(long, value_name = "FILE")]
        cells: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Cells { records } => {
            let records = records.iter().map(|path| record(path)).collect::<Result<Vec<_>>>()?;
            println!("{}", lines(&cells::document(&records)));
        }
        What::Fit { cells } => {
            let judges = judges()?;
            let constants = fit::fit(&training(cells.as_deref())?, &[]);
            let intervals = Intervals::of(&fit::residuals(&judges, &constants));
            let fitted = Fitted { constants, intervals };
            println!("{:#}", fitted.document("cells of Linux md in model time: benches/law"));
        }
        What::Judge { tables, constants } => {
            let fitted = match constants {
                Some(path) => Fitted::parse(&text(&path)?)?,
                None => Fitted::built_in(),
            };
            let tables = match tables.is_empty() {
                true => training(None)?,
                false => {
                    let each = tables.iter().map(|path| training(Some(path)));
                    each.collect::<Result<Vec<_>>>()?.concat()
                }
            };
            judge(&tables, &fitted);
        }
        What::Ablation { cells } => {
            let all = ablation::ablation(&training(cells.as_deref())?, &tables::published());
            println!("{:42} median %  mean %  order %", "without");
            for (name, score) in all {
                let order = 100.0 * score.ordered as f64 / score.pairs.max(1) as f64;
                let (median, mean) = (100.0 * score.median, 100.0 * score.mean);
                println!("{name:42} {median:8.1} {mean:7.1} {order:8.1}");
            }
        }
    }
    Ok(())
}

/// The rows beside the law, and the errors of each table.
fn judge(tables: &[Table], fitted: &Fitted) {
    let all = evaluate(tables, fitted);
    for one in &all {
        let row = &tables[one.table].rows[one.row];
        let (Some(value), Ok(found)) = (row.value, &one.predicted) else { continue };
        let array = row.case.as_ref().map(|case| case.array);
        let array = array.map_or(String::new(), |it| {
            format!(
                "{} {:?} x{} {}K -{}",
                it.level, it.copies, it.members, it.chunk_kib, it.missing
            )
        });
        let depth = row.case.as_ref().map_or(0.0, |case| case.access.depth);
        let error = 100.0 * (found.value / value - 1.0);
        let (id, work, limit) = (&row.id, &row.workload, found.law.limit().name());
        println!(
            "{id:40} {array:30} {work} {depth}: {value:.1} {:.1} {error:+.0} % {limit}",
            found.value
        );
    }
    for (at, table) in tables.iter().enumerate() {
        let score = Score::of(tables, &all, |one| one.table == at && one.counts);
        let Score { rows, predicted, median, mean, covered, .. } = score;
        let (median, mean) = (100.0 * median, 100.0 * mean);
        println!(
            "{:40} {predicted}/{rows}: median {median:.1} mean {mean:.1} % covered {covered}",
            table.id
        );
    }
    let score = Score::of(tables, &all, |one| one.counts && one.predicted.is_ok());
    println!("{score:?}");
}

fn record(path: &Path) -> Result<Record> {
    Record::from_json(&text(path)?).with_context(|| path.display().to_string())
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn training(path: Option<&Path>) -> Result<Vec<Table>> {
    let text = path.map_or_else(|| Ok(CELLS.to_string()), text)?;
    Ok(tables::parse(&text)?)
}

fn judges() -> Result<Vec<Table>> {
    let mut all = tables::published();
    all.extend(tables::parse(COLLECTED)?);
    Ok(all)
}

/// A document with a line for each record.
fn lines(document: &serde_json::Value) -> String {
    let part = |name: &str| document[name].to_string();
    let records = document["records"].as_array().into_iter().flatten();
    let records: Vec<String> = records.map(|record| record.to_string()).collect();
    format!("{{\"systems\": {},\n\"records\": [\n{}\n]}}", part("systems"), records.join(",\n"))
}
