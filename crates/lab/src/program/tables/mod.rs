//! The original tools' own tables, made from the cells of one run.
//!
//! Invariant: a figure in a tool's table means what it means in that tool's; what is not measured
//! is left empty. Called by whoever shows a record with programs in it.

mod bonnie;
mod bonnie_plus_plus;
mod dd;
mod fio;
mod iozone;
mod tiobench;

pub use bonnie_plus_plus::csv as bonnie_plus_plus_csv;

use crate::grid::digits;
use crate::record::{Cell, Record};

/// All runs of programs in a record, each as its tool shows it, with what must be known of it.
pub fn render(record: &Record) -> String {
    let machine = record.host.hostname.as_deref().unwrap_or("localhost");
    let mut out = String::new();
    for run in runs(&record.cells) {
        out.push_str(&heading(run[0]));
        out.push_str(&match run[0].program.as_deref().unwrap_or_default() {
            "bonnie++-2.00" => bonnie_plus_plus::text(&run, machine),
            "bonnie-1.2" => bonnie::text(&run, machine),
            "dd" => dd::text(&run),
            "fio" => fio::text(&run),
            "iozone-3" => iozone::text(&run),
            "tiobench" => tiobench::text(&run),
            _ => plain(&run),
        });
        out.push_str(&warnings(&run));
        out.push('\n');
    }
    out
}

/// The cells of each run of a program, in order.
pub fn runs(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut runs: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.program.is_some()) {
        let goes_on = |run: &&mut Vec<&Cell>| {
            let first = run[0];
            let is_new = run.iter().any(|other| other.phase == cell.phase);
            first.item == cell.item && of_what(first) == of_what(cell) && !is_new
        };
        match runs.last_mut().filter(goes_on) {
            Some(run) => run.push(cell),
            None => runs.push(vec![cell]),
        }
    }
    runs
}

/// What it ran on, in a few words.
fn of_what(cell: &Cell) -> String {
    match &cell.place {
        Some(place) => place.name.clone(),
        None => match &cell.array {
            Some(array) => format!("{array} of {}", cell.members),
            None => {
                let layout = cell.layout.as_deref().map(|l| format!(",{l}")).unwrap_or_default();
                format!("{}{layout} x{} of {}", cell.level, cell.disks, cell.members)
            }
        },
    }
}

fn heading(cell: &Cell) -> String {
    format!("{} on {}\n", cell.item.as_deref().unwrap_or_default(), of_what(cell))
}

/// Each warning once, with the phases that it is of.
fn warnings(run: &[&Cell]) -> String {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for cell in run {
        for warning in &cell.warnings {
            let phase = cell.phase.as_deref().unwrap_or_default();
            match seen.iter_mut().find(|(text, _)| text == warning) {
                Some((_, phases)) => phases.push(phase),
                None => seen.push((warning, vec![phase])),
            }
        }
    }
    let line = |(text, phases): (&str, Vec<&str>)| format!("! {}: {text}\n", phases.join(", "));
    seen.into_iter().map(line).collect()
}

/// Phase by phase, for tools that have no table of their own.
fn plain(run: &[&Cell]) -> String {
    let mut out = format!(
        "{:<16}{:>10}{:>6}{:>6}{:>11}{:>12}{:>7}{:>12}{:>12}\n",
        "phase", "KiB", "depth", "jobs", "MB/s", "ops/s", "%CPU", "p50 us", "p99 us"
    );
    for cell in run {
        let latency = |us: Option<f64>| us.map_or("-".into(), digits);
        out.push_str(&format!(
            "{:<16}{:>10}{:>6}{:>6}{:>11}{:>12}{:>7}{:>12}{:>12}\n",
            cell.phase.as_deref().unwrap_or_default(),
            digits(cell.block_kib),
            cell.depth,
            cell.jobs,
            digits(cell.mb_per_s),
            digits(cell.iops),
            cell.cpu_process_share.map_or("-".into(), |share| format!("{:.0}", share * 100.0)),
            latency(cell.latency_us.map(|latency| latency.p50)),
            latency(cell.latency_us.map(|latency| latency.p99)),
        ));
    }
    out
}

/// The cell of a phase that was measured.
fn phase<'c>(run: &[&'c Cell], name: &str) -> Option<&'c Cell> {
    let named = run.iter().find(|cell| cell.phase.as_deref() == Some(name));
    named.copied().filter(|cell| !cell.samples.is_empty())
}

/// Rates in KiB/s.
fn kib_per_s(cell: &Cell) -> f64 {
    cell.mb_per_s * 1e6 / 1024.0
}

/// Percent of a CPU.
fn cpu_percent(cell: &Cell) -> f64 {
    cell.cpu_process_share.unwrap_or(0.0) * 100.0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{Latency, Sample};

    /// A cell of a run: `seconds` for `bytes` in `ops`.
    pub(crate) fn cell(item: &str, phase: &str, seconds: f64, bytes: u64, ops: u64) -> Cell {
        let name = item.split(':').next().unwrap_or(item);
        let mut cell = Cell {
            program: Some(name.into()),
            phase: Some(phase.into()),
            item: Some(item.into()),
            samples: vec![Sample { seconds, bytes, ops }],
            latency_us: Some(Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4567.8 }),
            cpu_process_share: Some(0.256),
            file_bytes: Some(256 << 20),
            block_kib: 8.0,
            ..Cell::default()
        };
        cell.summarise();
        cell
    }

    #[test]
    fn runs_are_told_apart_by_item_target_and_repeated_phases() {
        let dd = |phase| cell("dd:bs=1M", phase, 1.0, 1, 1);
        let mut elsewhere = dd("write");
        elsewhere.members = "mem".into();
        let cells =
            [dd("write"), dd("read"), dd("write"), elsewhere, cell("dd", "write", 1.0, 1, 1)];
        let lengths: Vec<usize> = runs(&cells).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, 1]);
    }

    #[test]
    fn a_warning_is_shown_once_with_its_phases() {
        let mut cells = [cell("x", "a", 1.0, 1, 1), cell("x", "b", 1.0, 1, 1)];
        cells.iter_mut().for_each(|cell| cell.warnings.push("look out".into()));
        let run: Vec<&Cell> = cells.iter().collect();
        assert_eq!(warnings(&run), "! a, b: look out\n");
    }
}
