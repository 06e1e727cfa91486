//! `raidlab watch`: live statistics of disks, members and CPUs.
//!
//! Invariant: reads `/proc` and `/sys` and nothing else; needs no root. Ends with 0 on Ctrl-C and
//! when the reader goes away.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use lab::quantity::parse_seconds;
use lab::watch::{Frame, Roots, Selection, Snapshot, render};

use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab watch                   every array with its members, and every other disk
  raidlab watch md0 nvme0n1       an array with its members, and a disk
  raidlab watch --count 1 --json  one report for a program

r/s, w/s: operations per second; rMB/s, wMB/s: 10^6 bytes per second; KiB/op: mean size of an
operation; queue: mean number in flight; util%: time with at least one in flight. A disk that works
on several operations concurrently may not be saturated at 100.0.";

/// Show disk statistics as iostat -x does, with members grouped below their array.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
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
    /// Print one line of JSON per report instead of the table
    #[arg(long)]
    json: bool,
    /// Reads proc and sys below this directory instead of /
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds = parse_seconds(text).map_err(|e| e.to_string())?;
    if (0.01..=86_400.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err("an interval is 10ms to 86400s (a day)".into())
}

/// Polling interval of the stop flag (Ctrl-C).
const NAP: Duration = Duration::from_millis(50);

/// Runs the command.
pub fn run(arguments: &WatchArguments) -> Result<Ending, String> {
    let roots = arguments.root.as_deref().map_or_else(Roots::default, Roots::below);
    let selection = Selection::find(&roots, &arguments.devices)?;
    let stop = signal::watch()?;
    let terminal = std::io::stdout().is_terminal();
    let colour = lab::table::colour_wanted(terminal);
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
        let text = match arguments.json {
            true => format!("{}\n", frame.to_json()),
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

/// Prints; `false` when the reader has gone away.
fn put(text: &str) -> Result<bool, String> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("stdout: {error}")),
    }
}
