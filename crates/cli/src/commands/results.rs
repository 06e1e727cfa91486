//! The results file on the command line: its path, storing cells, selecting runs.
//!
//! Invariant: reading creates no file. Called from `bench`, `sweep`, `report`,
//! `compare`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use clap::Args;
use report::runs::Report;
use results::record::{Cell, Record};
use results::{NewRun, RunInfo, Store, StoreError, record_of_parquet, tell_of_waits};
use spec::shown::counted;
use spec::sweep::{Item, ItemKey};

use crate::console::say;
use crate::error::Context;

/// Maximum size of a record; one of 10,000 samples has about 1 MiB.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// `--db`.
#[derive(Args, Clone)]
pub struct DbArgument {
    /// The results file [default: raidlab/results.db in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    db: Option<Option<PathBuf>>,
}

impl DbArgument {
    /// Whether the option was given.
    pub fn is_given(&self) -> bool {
        self.db.is_some()
    }

    /// The path of the file, given or default.
    pub fn path(&self) -> Result<PathBuf> {
        self.db
            .clone()
            .flatten()
            .or_else(results::default_path)
            .context("--db FILE: no default path: neither XDG_DATA_HOME nor HOME is set")
    }

    /// Opens it for reading.
    pub fn open(&self) -> Result<Store> {
        tell_of_waits(say_wait);
        Ok(Store::open(&self.path()?)?)
    }

    /// Opens it for writing, creates it if necessary.
    pub fn create(&self) -> Result<Store> {
        tell_of_waits(say_wait);
        Ok(Store::create(&self.path()?)?)
    }
}

fn say_wait(most: Duration) {
    let seconds = most.as_secs();
    say(format_args!("the results file is locked by another process; waiting up to {seconds} s"));
}

/// Stores the cells of a bench without a sweep, each when it is final.
pub struct RunRecorder {
    store: Store,
    run: i64,
    cells: usize,
    problem: Option<StoreError>,
}

impl RunRecorder {
    /// Begins a run, if `--db` was given.
    pub fn begin(db: &DbArgument, head: impl FnOnce() -> Record) -> Result<Option<RunRecorder>> {
        if !db.is_given() {
            return Ok(None);
        }
        let store = db.create()?;
        let new = NewRun { title: "bench", sweep: None, published: None };
        let run = store.begin(&new, &head())?;
        Ok(Some(RunRecorder { store, run, cells: 0, problem: None }))
    }

    /// Stores final cells. After a failure nothing more is stored; `end` returns the error.
    pub fn put(&mut self, cells: &[Cell]) {
        if self.problem.is_some() {
            return;
        }
        self.cells += 1;
        let key = ItemKey(format!("{:06}", self.cells));
        let item = Item { key, what: String::new() };
        self.problem = self.store.put(self.run, &item, cells).err();
    }

    /// Ends the run. Returns its number and file.
    pub fn end(self, complete: bool) -> Result<String> {
        if let Some(problem) = self.problem {
            return Err(problem.into());
        }
        if complete {
            self.store.end(self.run)?;
        }
        Ok(format!("run {} in {}", self.run, self.store.path().display()))
    }
}

/// The value of `--run`.
#[derive(Clone, Debug, PartialEq)]
pub enum Which {
    /// The newest run.
    Last,
    /// The n-th run before the newest.
    Before(usize),
    /// The run with this number.
    Id(i64),
    /// All runs.
    All,
}

impl std::str::FromStr for Which {
    type Err = Error;

    fn from_str(text: &str) -> Result<Which> {
        let wanted =
            || anyhow!("'{text}': a run is a number, last, last~1 (the one before) or all");
        match text {
            "last" => Ok(Which::Last),
            "all" => Ok(Which::All),
            _ => match text.strip_prefix("last~") {
                Some(back) => back.parse().map(Which::Before).map_err(|_| wanted()),
                None => text.parse().map(Which::Id).map_err(|_| wanted()),
            },
        }
    }
}

/// The selected runs, the oldest first.
pub fn chosen(store: &Store, which: &Which) -> Result<Vec<RunInfo>> {
    let runs = store.runs()?;
    let path = store.path().display();
    let back = |back: usize| {
        let at = runs.len().checked_sub(back + 1);
        let missing = || match runs.len() {
            0 => anyhow!("{path}: there are no runs"),
            1 => anyhow!("{path}: there is 1 run; `raidlab report --list` shows it"),
            all => anyhow!("{path}: there are {all} runs; `raidlab report --list` shows them"),
        };
        at.map(|at| vec![runs[at].clone()]).ok_or_else(missing)
    };
    match which {
        Which::Last => back(0),
        Which::Before(count) => back(*count),
        Which::All if runs.is_empty() => back(0),
        Which::All => Ok(runs),
        Which::Id(id) => {
            let found = runs.iter().find(|run| run.id == *id).cloned();
            found.map(|run| vec![run]).ok_or_else(|| {
                anyhow!("{path}: there is no run {id}; `raidlab report --list` shows all")
            })
        }
    }
}

/// One run as a report.
pub fn report_of_run(store: &Store, run: &RunInfo) -> Result<Report> {
    let record = store.record(run.id)?;
    let mut report = Report::of(record);
    report.title.clone_from(&run.title);
    report.sources.iter_mut().for_each(|source| source.name = format!("run {}", run.id));
    report.not_run = store.not_run(run.id)?;
    report.published = match &run.published {
        Some(name) => report::published::named(name).ok(),
        None => None,
    };
    Ok(report)
}

/// Files of a data set: it has one for each item of its sweeps.
const DATASET_FILES_MAX: usize = 100_000;

/// A record that `bench --json` wrote, or a data set of `sweep --dataset`: a directory of Parquet
/// files, or one of them.
pub fn read_record(path: &Path) -> Result<Record> {
    let failed = || format!("{}: cannot be read", path.display());
    if path.is_dir() {
        return read_dataset(path);
    }
    if path.extension().is_some_and(|extension| extension == "parquet") {
        return read_parquet(path);
    }
    let is_not = |why: &str| anyhow!("{}: not a record: {why}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(failed)?);
    // A disk or an image named by mistake is rejected without reading all of it.
    let begins = file.fill_buf().with_context(failed)?;
    let is_record = begins.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    // A letter may be cut at its end.
    let is_utf8 = std::str::from_utf8(begins).map_or_else(|e| e.error_len().is_none(), |_| true);
    let is_text = is_utf8 && !begins.is_empty() && !begins.contains(&0);
    let other = "it does not begin with `{`; `bench --json=FILE` writes records (bonnie++'s CSV \
                 and fio's JSON are read, too)";
    if !is_record && !is_text {
        return Err(is_not(other));
    }
    let mut text = Vec::new();
    file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut text).with_context(failed)?;
    if text.len() as u64 > RECORD_BYTES_MAX {
        return Err(is_not(&format!("it is longer than {} MiB", RECORD_BYTES_MAX >> 20)));
    }
    let text = String::from_utf8(text).map_err(|_| is_not("it is no text in UTF-8"))?;
    if let Some(imported) = report::imported::record(&text) {
        return imported.with_context(|| format!("{}", path.display()));
    }
    if !is_record {
        return Err(is_not(other));
    }
    Record::from_json(&text).with_context(|| format!("{}: not a record", path.display()))
}

fn read_parquet(path: &Path) -> Result<Record> {
    let failed = || format!("{}: cannot be read", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(failed)?;
    file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(failed)?;
    if bytes.len() as u64 > RECORD_BYTES_MAX {
        bail!("{}: it is longer than {} MiB", path.display(), RECORD_BYTES_MAX >> 20);
    }
    record_of_parquet(bytes).with_context(|| format!("{}", path.display()))
}

/// All items of a data set as one record, in the order in which they were measured.
fn read_dataset(path: &Path) -> Result<Record> {
    let failed = || format!("{}: cannot be read", path.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).with_context(failed)? {
        let file = entry.with_context(failed)?.path();
        // What is being written has another name.
        if file.extension().is_some_and(|extension| extension == "parquet") {
            files.push(file);
        }
    }
    if files.is_empty() || files.len() > DATASET_FILES_MAX {
        let count = counted(files.len(), "Parquet file");
        bail!("{}: not a data set: {count} in it", path.display());
    }
    files.sort();
    let mut items = files.iter().map(|file| read_parquet(file)).collect::<Result<Vec<_>>>()?;
    let begun = |item: &Record| {
        let times = item.cells.iter().filter_map(|cell| cell.measured.times);
        times.map(|times| times.began_unix_s).fold(f64::INFINITY, f64::min)
    };
    items.sort_by(|one, other| begun(one).total_cmp(&begun(other)));
    let mut all = items.remove(0);
    for item in items {
        if item.started < all.started {
            all.started.clone_from(&item.started);
        }
        all.append(item);
    }
    all.set_ratios();
    Ok(all)
}
