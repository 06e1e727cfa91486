//! Predictions and advice for tables of configurations.
//!
//! Invariant: one answer for each row of a prediction, in the order of the rows; where there is no
//! number there is a reason. A row that makes no sense is an error that names it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_schema::{DataType, Field, Fields};
use cli::verbs::{
    Advised, Adviser, Configuration, Figures, Options, Predicted, Predictor, workloads,
};
use pyo3::prelude::*;
use raidlab::{Error, Kind};

use crate::errors::{Raise, usage};
use crate::input::{Holds, Input};
use crate::table::{Columns, Table};
use crate::waiting::wait_for;

/// Columns that describe the machine: options of both verbs.
const MACHINE_TEXTS: [&str; 7] = ["members", "disk", "calibration", "facts", "fs", "kernel", "bus"];
const MACHINE_NUMBERS: [&str; 5] =
    ["read_ahead_kib", "stripe_cache_pages", "group_threads", "depth", "jobs"];
/// Columns of what is predicted.
const ARRAY_TEXTS: [&str; 3] = ["level", "layout", "workload"];
const ARRAY_NUMBERS: [&str; 3] = ["disks", "chunk_kib", "degraded"];
/// Columns of what is advised on.
const ADVICE_TEXTS: [&str; 3] = ["mix", "workload", "sizes"];
const ADVICE_NUMBERS: [&str; 11] = [
    "disks",
    "size_bytes",
    "survive",
    "usable_bytes",
    "years",
    "budget",
    "price",
    "annual_failures_percent",
    "read_errors_per_bit",
    "correlation",
    "replacement_hours",
];

/// Columns of figures of one disk: their name, and the workload.
fn measured() -> Vec<(String, String)> {
    let column = |(work, unit): (String, &str)| {
        let unit = if unit == "MB/s" { "mb_per_s" } else { "iops" };
        (format!("one_{}_{unit}", work.replace('-', "_")), work)
    };
    workloads().into_iter().map(column).collect()
}

fn known(texts: &[&[&str]], numbers: &[&[&str]]) -> BTreeMap<String, Holds> {
    let of = |lists: &[&[&str]], holds| -> Vec<(String, Holds)> {
        lists.iter().flat_map(|list| list.iter()).map(|it| (it.to_string(), holds)).collect()
    };
    let mut known: BTreeMap<_, _> = of(texts, Holds::Texts).into_iter().collect();
    known.extend(of(numbers, Holds::Numbers));
    known.extend(measured().into_iter().map(|(name, _)| (name, Holds::Numbers)));
    known
}

/// The options of the machine of a row.
fn machine(input: &Input, row: usize, measured: &[(String, String)]) -> Options {
    let kib = |name| input.number(name, row).map(|kib| format!("{kib}K"));
    let number = |name| input.number(name, row).map(|number| number.to_string());
    let mut options = Options::default()
        .with("members", input.text("members", row))
        .with("disk", input.text("disk", row))
        .with("calibration", input.text("calibration", row))
        .with("facts", input.text("facts", row))
        .with("fs", input.text("fs", row))
        .with("kernel", input.text("kernel", row))
        .with("bus", input.text("bus", row))
        .with("read-ahead", kib("read_ahead_kib"))
        .with("stripe-cache", number("stripe_cache_pages"))
        .with("group-threads", number("group_threads"))
        .with("depth", number("depth"))
        .with("jobs", number("jobs"));
    for (column, work) in measured {
        let rate = input.number(column, row).map(|rate| format!("{work}={rate}"));
        options = options.with("measured", rate);
    }
    options
}

fn in_row(row: usize, mut failure: Error) -> Error {
    failure.text = format!("row {row}: {}", failure.text);
    failure
}

/// A whole number of a row, of at most 32 bits.
fn count(input: &Input, name: &str, row: usize) -> raidlab::Result<Option<u32>> {
    match input.number(name, row) {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) => {
            Ok(Some(number as u32))
        }
        Some(number) => {
            Err(Error::new(Kind::Usage, format!("{name} {number}: a whole number is required")))
        }
    }
}

/// Predicts what Linux md delivers, for each row of a table of configurations.
///
/// `table` is anything with `__arrow_c_stream__` (pandas, polars, pyarrow, raidlab.Table), a dict
/// of columns, in which a single value holds for all rows, or a list of dicts. Columns: `level` and
/// `workload`, required; `disks`, `layout` (of RAID 10: "n2", "f2", "o2"), `chunk_kib` (512),
/// `degraded` (members that are missing); of the machine, the options of `raidlab predict`:
/// `members` ("hdd-2016*6"), `disk` ("IronWolf 8 TB*6"), `calibration`, `facts`, `fs`, `kernel`,
/// `bus` ("400MB/s"), `depth`, `jobs`, `read_ahead_kib`, `stripe_cache_pages`, `group_threads`; and
/// figures of one disk as `one_seq_read_mb_per_s`, `one_random_read_iops` and so forth. Null is the
/// default. Other columns are refused, or left out with `others="ignore"`.
///
/// Returns a row for each row: `unit` ("MB/s" or "/s"), `value` with `lower` and `upper`, between
/// which 80 % of healthy machines are, `naive`, the naive rule, `limit`, `next_limit` and
/// `next_value`, and `why_not`: the reason where there is no value. `constants` is a file of
/// constants of the law, as `make law` writes it; without it, those of this build. `first_row` is
/// the number of the first row in messages: for a part of a table.
#[pyfunction]
#[pyo3(signature = (table, *, constants=None, others="refuse", first_row=0))]
pub fn predict(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    constants: Option<PathBuf>,
    others: &str,
    first_row: usize,
) -> PyResult<Table> {
    let input = configurations_of(table, others)?;
    wait_for(py, move |stop| {
        let mut predictor = Predictor::new(constants.as_deref())?;
        let measured = measured();
        let mut all = Vec::with_capacity(input.rows());
        for row in 0..input.rows() {
            if stop.is_set() {
                break;
            }
            let predicted = predicted(&mut predictor, &input, row, &measured);
            all.push(predicted.map_err(|failure| in_row(first_row + row, failure))?);
        }
        Ok(prediction_table(&all))
    })?
    .or_raise(py)
}

fn configurations_of(table: &Bound<'_, PyAny>, others: &str) -> PyResult<Input> {
    let texts: [&[&str]; 2] = [&MACHINE_TEXTS, &ARRAY_TEXTS];
    let numbers: [&[&str]; 2] = [&MACHINE_NUMBERS, &ARRAY_NUMBERS];
    Input::read(table, &known(&texts, &numbers), others)
}

/// The columns of a table that `predict` reads, texts and numbers, as a Table: for its parts.
#[pyfunction]
#[pyo3(signature = (table, *, others="refuse"))]
pub fn configurations(py: Python<'_>, table: &Bound<'_, PyAny>, others: &str) -> PyResult<Table> {
    let batch = configurations_of(table, others)?.table();
    batch.map(Table::from).map_err(|error| usage(py, error.to_string()))
}

fn predicted(
    predictor: &mut Predictor,
    input: &Input,
    row: usize,
    measured: &[(String, String)],
) -> raidlab::Result<Predicted> {
    let required = |name| {
        let text = input.text(name, row);
        text.ok_or_else(|| Error::new(Kind::Usage, format!("{name} is required")))
    };
    let configuration = Configuration {
        level: required("level")?,
        layout: input.text("layout", row),
        disks: count(input, "disks", row)?,
        chunk_kib: input.number("chunk_kib", row),
        missing: count(input, "degraded", row)?.unwrap_or(0),
        workload: required("workload")?,
    };
    predictor.predict(&machine(input, row, measured), &configuration)
}

fn prediction_table(all: &[Predicted]) -> Table {
    const UNIT: &str = "see the column unit";
    let mut made = Columns::default();
    made.texts("unit", all.iter().map(|it| Some(it.unit)));
    made.numbers("value", UNIT, all.iter().map(|it| it.value));
    made.numbers("lower", UNIT, all.iter().map(|it| it.interval.map(|(low, _)| low)));
    made.numbers("upper", UNIT, all.iter().map(|it| it.interval.map(|(_, high)| high)));
    made.numbers("naive", UNIT, all.iter().map(|it| it.naive));
    made.texts("limit", all.iter().map(|it| it.limit));
    made.texts("next_limit", all.iter().map(|it| it.next.map(|(limit, _)| limit)));
    made.numbers("next_value", UNIT, all.iter().map(|it| it.next.map(|(_, rate)| rate)));
    made.texts("why_not", all.iter().map(|it| it.why_not.as_deref()));
    made.table()
}

/// Ranks levels, layouts and chunks, for each row of a table of disks and mixes of workloads.
///
/// `table` is as for `predict`. Columns: `members` ("hdd-2016*6", or "hdd-2016" and `disks`),
/// `disk` ("IronWolf 8 TB*6"), `calibration`, `facts` or figures of one disk
/// (`one_seq_read_mb_per_s` ...) with `disks` and `size_bytes` (of each), or `sizes` ("8T,8T,18T");
/// `mix` ("seq-read=30,random-write=70"; equal weights) or `workload` ("file-server"); what is
/// needed: `survive`, `usable_bytes`, `years`, `budget`; `price` of a disk,
/// `annual_failures_percent`, `read_errors_per_bit`, `correlation`, `replacement_hours`, and the
/// machine's as for `predict`.
///
/// Returns rows for each row of the table, whose number from 0 is in `row`: first the ranked
/// arrays, `place` 1 is the best, then those that are not ranked, with `why_not`. Figures:
/// `capacity_bytes`, `stacked_bytes`, `score` (of one disk's speed, geometric mean over the mix),
/// `confidence` that the best is better, `speeds` (a list: workload, unit, healthy, degraded),
/// `tolerates`, `rebuild_hours`, `loss_in_rebuild`, `unreadable_in_rebuild`,
/// `second_failure_loses`, `loss_in_year`, `anything_in_year` (chances, 0 to 1), `cost_per_tb`;
/// `no_rebuild` says why there is none. `recommended` is true of one array, `members` are its
/// disks.
#[pyfunction]
#[pyo3(signature = (table, *, constants=None, others="refuse"))]
pub fn advise(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    constants: Option<PathBuf>,
    others: &str,
) -> PyResult<Table> {
    let texts: [&[&str]; 2] = [&MACHINE_TEXTS, &ADVICE_TEXTS];
    let numbers: [&[&str]; 2] = [&MACHINE_NUMBERS, &ADVICE_NUMBERS];
    let input = Input::read(table, &known(&texts, &numbers), others)?;
    wait_for(py, move |stop| {
        let adviser = Adviser::new(constants.as_deref())?;
        let measured = measured();
        let mut all = Vec::new();
        for row in 0..input.rows() {
            if stop.is_set() {
                break;
            }
            let advised = question(&input, row, &measured).and_then(|it| adviser.advise(&it));
            let advised = advised.map_err(|failure| in_row(row, failure))?;
            all.extend(advised.into_iter().map(|one| (row as i64, one)));
        }
        Ok(advice_table(&all))
    })?
    .or_raise(py)
}

fn question(input: &Input, row: usize, measured: &[(String, String)]) -> raidlab::Result<Options> {
    let number = |name| input.number(name, row).map(|number| number.to_string());
    let disks = count(input, "disks", row)?;
    let mut members = input.text("members", row).map(str::to_string);
    let mut sizes = input.text("sizes", row).map(str::to_string);
    if let Some(size) = input.number("size_bytes", row) {
        let (Some(disks), None) = (disks, &sizes) else {
            return Err(Error::new(Kind::Usage, "size_bytes: with disks, and without sizes"));
        };
        if !(1..=1920).contains(&disks) {
            return Err(Error::new(Kind::Usage, format!("disks {disks}: 1 to 1920")));
        }
        sizes = Some(vec![format!("{size}B"); disks as usize].join(","));
    }
    match (&mut members, disks) {
        (Some(members), Some(disks)) if !members.contains(['*', '+']) => {
            *members += &format!("*{disks}");
        }
        (Some(_), Some(_)) => {
            return Err(Error::new(Kind::Usage, "disks: members counts them already"));
        }
        (None, Some(_)) if sizes.is_none() => {
            return Err(Error::new(Kind::Usage, "disks: with members, or with size_bytes"));
        }
        _ => {}
    }
    // What the machine's options have, but with the members counted.
    let machine = machine(input, row, measured).without("members");
    Ok(machine
        .with("members", members)
        .with("size", sizes)
        .with("mix", input.text("mix", row))
        .with("workload", input.text("workload", row))
        .with("survive", number("survive"))
        .with("usable", input.number("usable_bytes", row).map(|bytes| format!("{bytes}B")))
        .with("years", number("years"))
        .with("budget", number("budget"))
        .with("price", number("price"))
        .with("annual-failures", number("annual_failures_percent"))
        .with("read-errors", number("read_errors_per_bit"))
        .with("correlation", number("correlation"))
        .with("replacement", number("replacement_hours")))
}

fn advice_table(all: &[(i64, Advised)]) -> Table {
    let figures = || all.iter().map(|(_, one)| one.ranked.as_ref().map(|(_, figures)| figures));
    let rebuild = |at: usize| figures().map(move |it| it?.rebuild.map(|rebuild| rebuild[at]));
    let mut made = Columns::default();
    made.wholes("row", "1", all.iter().map(|(row, _)| Some(*row)));
    let place = |(_, one): &(i64, Advised)| one.ranked.as_ref().map(|(place, _)| *place as i64);
    made.wholes("place", "1", all.iter().map(place));
    made.texts("array", all.iter().map(|(_, one)| one.array.as_deref()));
    made.texts("level", all.iter().map(|(_, one)| one.level));
    made.flags("recommended", all.iter().map(|(_, one)| Some(one.is_recommended)));
    made.wholes("members", "1", figures().map(|it| Some(i64::from(it?.members))));
    made.numbers("chunk_kib", "KiB", figures().map(|it| it?.chunk_kib));
    made.sizes("capacity_bytes", "B", figures().map(|it| Some(it?.capacity_bytes)));
    made.sizes("stacked_bytes", "B", figures().map(|it| Some(it?.stacked_bytes)));
    made.numbers("score", "1", figures().map(|it| Some(it?.score)));
    made.texts("confidence", figures().map(|it| Some(it?.confidence)));
    speeds(&mut made, figures());
    made.wholes("tolerates", "1", figures().map(|it| Some(i64::from(it?.tolerates))));
    made.numbers("rebuild_hours", "h", rebuild(0));
    made.numbers("loss_in_rebuild", "1", rebuild(1));
    made.numbers("unreadable_in_rebuild", "1", rebuild(2));
    made.numbers("second_failure_loses", "1", rebuild(3));
    made.texts("no_rebuild", figures().map(|it| it?.no_rebuild.as_deref()));
    made.numbers("loss_in_year", "1", figures().map(|it| it?.loss_in_year));
    made.numbers("anything_in_year", "1", figures().map(|it| it?.anything_in_year));
    made.numbers("cost_per_tb", "price/TB", figures().map(|it| it?.cost_per_tb));
    made.texts("why_not", all.iter().map(|(_, one)| one.why_not.as_deref()));
    made.table()
}

/// The speeds of each array: a list of workloads.
fn speeds<'f>(made: &mut Columns, figures: impl Iterator<Item = Option<&'f Figures>>) {
    let fields = Fields::from(vec![
        Field::new("workload", DataType::Utf8, true),
        Field::new("unit", DataType::Utf8, true),
        Field::new("healthy", DataType::Float64, true),
        Field::new("degraded", DataType::Float64, true),
    ]);
    let columns = StructBuilder::from_fields(fields, 0);
    let mut lists = ListBuilder::new(columns);
    for of_array in figures {
        for (work, unit, healthy, degraded) in of_array.iter().flat_map(|it| &it.speeds) {
            let row = lists.values();
            for (at, text) in [(0, work.as_str()), (1, *unit)] {
                let column = row.field_builder::<StringBuilder>(at);
                column.expect("a text").append_value(text);
            }
            for (at, number) in [(2, Some(*healthy)), (3, *degraded)] {
                let column = row.field_builder::<Float64Builder>(at);
                column.expect("a number").append_option(number);
            }
            row.append(true);
        }
        lists.append(of_array.is_some());
    }
    made.push("speeds", None, Arc::new(lists.finish()));
}
