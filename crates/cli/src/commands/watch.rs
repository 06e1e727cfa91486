//! `raidlab watch`: live statistics of disks, members and CPUs.
//!
//! Invariant: reads `/proc` and `/sys` and nothing else; needs no root. Ends with 0 on Ctrl-C and
//! when the reader goes away. With `--web` it writes nothing but the address of its page.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use bench::metrics::{Frame, Roots, Selection, Snapshot, render};
use clap::Args;
use spec::units::parse_any_seconds;

use crate::commands::web::{WatchedFeed, WebOptions};
use crate::console::{JsonOut, check_replaceable, has_colours, is_stdout, replace_record};
use crate::error::{Context, of_option};
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab watch                   every array with its members, and every other disk
  raidlab watch md0 nvme0n1       an array with its members, and a disk
  raidlab watch --count 1 --json  one report for a program: a line of JSON for each
  raidlab watch --web             a page for browsers instead, until Ctrl-C

r/s, w/s: operations per second; rMB/s, wMB/s: 10^6 bytes per second; KiB/op: mean size of an
operation; queue: mean number in flight; util%: time with at least one in flight. A disk that works
on several operations concurrently may not be saturated at 100.0.";

/// Show disk statistics as iostat -x does, with members grouped below their array.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("web", |it| it.conflicts_with_all(["json", "count"])))]
pub struct WatchArguments {
    /// Disks, partitions or arrays, by name or by path [default: all]
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    /// Time between two reports
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1")]
    interval: f64,
    /// Stop after N reports [default: on Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    json: JsonOut,
    #[command(flatten)]
    web: WebOptions,
    /// Reads proc and sys below this directory instead of /
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<f64> {
    let seconds = parse_any_seconds(text)?;
    if (0.01..=86_400.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err(anyhow!("an interval is 10ms to 86400s (a day)"))
}

/// Polling interval of the stop flag (Ctrl-C).
const NAP: Duration = Duration::from_millis(50);

/// Runs the command.
pub fn run(arguments: &WatchArguments) -> Result<Ending> {
    let roots = arguments.root.as_deref().map_or_else(Roots::default, Roots::below);
    if arguments.web.is_given() {
        return serve_page(arguments, roots);
    }
    let selection = Selection::find(&roots, &arguments.devices)?;
    let mut aside = Aside::open(&arguments.json)?;
    let stop = signal::watch()?;
    let colour = has_colours(&std::io::stdout());
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut before = Snapshot::take(&roots)?;
    let mut next = Instant::now();
    let mut shown = 0;
    while arguments.count.is_none_or(|count| shown < count) {
        next += interval;
        while !stop.load(Ordering::Relaxed) && Instant::now() < next {
            std::thread::sleep(NAP.min(next.saturating_duration_since(Instant::now())));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = Snapshot::take(&roots)?;
        let frame = Frame::between(&before, &now, &selection, &selection.arrays());
        let json = || format!("{}\n", frame.to_json());
        aside.put(json)?;
        let text = match arguments.json.is_stdout() {
            true => json(),
            // Reports are paragraphs.
            false if shown > 0 => format!("\n{}", render(&frame, colour)),
            false => render(&frame, colour),
        };
        if !put(&text)? {
            break;
        }
        (before, shown) = (now, shown + 1);
        // After a suspend, missed reports are skipped.
        next = next.max(Instant::now() - interval);
    }
    Ok(Ending::Fine)
}

/// `--web`.
fn serve_page(arguments: &WatchArguments, roots: Roots) -> Result<Ending> {
    let window = Duration::from_secs_f64(arguments.interval);
    let feed = WatchedFeed::new(roots, &arguments.devices, window)?;
    let stop = signal::watch()?;
    let page = arguments.web.start(false, Arc::new(feed))?;
    let url = page.as_ref().map_or("", |page| &page.url);
    if !put(&format!("page: {url}\n"))? {
        return Ok(Ending::Fine);
    }
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(NAP);
    }
    Ok(Ending::Fine)
}

/// The file of `--json=FILE`.
struct Aside<'a>(Option<(&'a Path, File)>);

impl Aside<'_> {
    fn open(json: &JsonOut) -> Result<Aside<'_>> {
        let Some(path) = json.path().filter(|path| !is_stdout(path)) else {
            return Ok(Aside(None));
        };
        check_replaceable(path, b"{").map_err(of_option("--json"))?;
        replace_record(path, "").map_err(of_option("--json"))?;
        let file = OpenOptions::new().append(true).open(path);
        let failed = || format!("--json {}: cannot write", path.display());
        Ok(Aside(Some((path, file.with_context(failed)?))))
    }

    fn put(&mut self, line: impl FnOnce() -> String) -> Result<()> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let written = file.write_all(line().as_bytes());
        written.with_context(|| format!("--json {}: cannot write", path.display()))
    }
}

/// Prints; `false` when the reader has gone away.
fn put(text: &str) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("stdout"),
    }
}
