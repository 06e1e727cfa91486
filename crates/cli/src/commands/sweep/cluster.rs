//! `raidlab sweep --scheduler`: starts the sweep of the Python package on a Dask cluster.
//!
//! ```text
//!   raidlab --request, JSON, a line--> python3 -m raidlab.dask --tasks--> scheduler --> workers
//!           <--result, JSON-----------            |
//!        '--------- the results file -------------'
//! ```
//!
//! Invariant: what is measured is in the results file before it is counted here; a stop, and the
//! end of this process in any way, ends the other one, by the end of its standard input.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use spec::shown::counted;

use super::{Given, Planned, SweepArguments};
use crate::console::say;
use crate::error::Context;
use crate::{Ending, signal};

/// The interpreter, where the environment names none.
const PYTHON: &str = "python3";
/// The module that is run.
const MODULE: &str = "raidlab.dask";
/// Interval at which a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Options of sweeps over several hosts.
#[derive(Args)]
pub struct ClusterOptions {
    /// Measure on the hosts of a Dask cluster: tcp://HOST:PORT, tls://HOST:PORT; needs the Python
    /// package raidlab with Dask here and on its workers
    #[arg(long, value_name = "ADDRESS", conflicts_with = "web", help_heading = "Hosts")]
    pub scheduler: Option<String>,
    /// Start each item on N hosts at one time, against one target that they share
    #[arg(long, value_name = "N", help_heading = "Hosts",
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub hosts: Option<u32>,
    /// Write a Parquet data set besides, a file for each item
    #[arg(long, value_name = "DIR", help_heading = "Hosts")]
    pub dataset: Option<PathBuf>,
}

/// What the other process is to do.
#[derive(Serialize)]
struct Request<'a> {
    scheduler: &'a str,
    file: &'a Path,
    given: &'a [Given],
    db: PathBuf,
    dataset: Option<&'a Path>,
    hosts: Option<u32>,
    again: bool,
    directory: Option<&'a Path>,
    cores: Option<u32>,
    parity_impl: Option<&'static str>,
    destroy_contents: bool,
}

/// How it ended.
#[derive(Deserialize)]
struct Reply {
    /// Why nothing could be done, or not all of it.
    error: Option<String>,
    run: Option<i64>,
    #[serde(default)]
    measured: usize,
    #[serde(default)]
    items: usize,
    #[serde(default)]
    stopped: bool,
    /// Items that could not be run, with the reason.
    #[serde(default)]
    failed: Vec<(String, String)>,
}

/// Runs a sweep over several hosts.
pub fn run(
    scheduler: &str,
    arguments: &SweepArguments,
    given: &[Given],
    planned: &Planned,
) -> Result<Ending> {
    let results = &arguments.results;
    if results.dry_run {
        bail!("--dry-run shows the items of a sweep without its hosts: leave out --scheduler");
    }
    let stop = signal::watch()?;
    let outputs = results.outputs()?;
    let python = std::env::var_os("PYTHON").filter(|name| !name.is_empty());
    let python = PathBuf::from(python.unwrap_or_else(|| PYTHON.into()));
    check_python(&python)?;
    let host = &arguments.host;
    let request = Request {
        scheduler,
        file: &arguments.file,
        given,
        db: results.db.path()?,
        dataset: arguments.cluster.dataset.as_deref(),
        hosts: arguments.cluster.hosts,
        again: arguments.again,
        directory: host.dir.as_deref(),
        cores: host.cores,
        parity_impl: host.parity_impl.map(|kernels| kernels.name()),
        destroy_contents: host.destroy_contents,
    };
    let mut child = start(&python)?;
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        let line = serde_json::to_string(&request).expect("plain data") + "\n";
        // A process that has ended already says why below.
        let _ = input.write_all(line.as_bytes());
    }
    let reply = wait(&mut child, input, &|| stop.load(Ordering::Relaxed));
    let reply = reply.with_context(|| format!("{} -m {MODULE}", python.display()))?;
    for (what, why) in &reply.failed {
        say(format_args!("could not be run: {}: {}", shown(what), shown(why)));
    }
    let Some(run) = reply.run else {
        bail!("{}", reply.error.as_deref().map_or("it gave no reason".into(), shown));
    };
    let store = results.db.open()?;
    let record = store.record(run)?;
    outputs.write(&record)?;
    if let Some(error) = &reply.error {
        bail!("{}; run the same command to resume", shown(error));
    }
    if reply.stopped {
        let (measured, items) = (reply.measured, counted(reply.items, "item"));
        say(format_args!(
            "raidlab: stopped; {measured} of {items} measured; run the same command to resume"
        ));
        return Ok(Ending::Stopped);
    }
    let fine = reply.failed.is_empty() && planned.impossible.is_empty() && record.verified();
    Ok(if fine { Ending::Fine } else { Ending::Finding })
}

/// Text of another process, for a terminal.
fn shown(text: &str) -> String {
    spec::shown::Shown(text).to_string()
}

/// Checks that the interpreter is there and has the package: before anything else is done.
fn check_python(python: &Path) -> Result<()> {
    let name = python.display();
    let other = "PYTHON names another interpreter";
    // runs: python3
    let probe = Command::new(python).args(["-c", &format!("import {MODULE}")]).output();
    let probe = probe.with_context(|| {
        format!("--scheduler needs Python with raidlab and Dask: {name} ({other})")
    })?;
    if probe.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&probe.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
    bail!(
        "--scheduler: {name} cannot import {MODULE}: {}; install the packages raidlab and dask \
         there ({other})",
        shown(last)
    );
}

/// Starts it in a process group of its own: a Ctrl-C of the terminal comes here alone, and is
/// passed on as the end of its input.
fn start(python: &Path) -> Result<Child> {
    // runs: python3
    let mut command = Command::new(python);
    command.args(["-m", MODULE]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    command.spawn().with_context(|| format!("{}: cannot be started", python.display()))
}

/// Waits for its reply; a stop closes its input.
fn wait(
    child: &mut Child,
    mut input: Option<ChildStdin>,
    stopped: &dyn Fn() -> bool,
) -> Result<Reply> {
    let mut output = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stopped() {
            input = None;
        }
        std::thread::sleep(LOOK);
    };
    drop(input);
    let text = reader.join().map_err(|_| anyhow!("its output could not be read"))??;
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| anyhow!("it ended with {status} and without a result"))
}
