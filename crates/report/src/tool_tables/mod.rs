//! The original tools' own tables, made from the cells of one run.
//!
//! Invariant: a figure in a table has the same meaning as in the tool's own table; figures that are
//! not measured are left empty. Called by every output of records with programs.

mod bonnie;
mod bonnie_plus_plus;
mod dd;
mod fio;
mod iozone;
mod tiobench;

pub use bonnie_plus_plus::csv as bonnie_plus_plus_csv;

use crate::pivot::array_label;
use results::record::{Cell, Record};
use spec::units::{digits, kib};

/// All runs of programs in a record, each as its tool shows it, with its warnings.
pub fn render(record: &Record) -> String {
    let mut out = String::new();
    let runs = runs(&record.cells);
    let everywhere = of_all(&runs);
    for run in &runs {
        let machine = record.host_name(run[0]).unwrap_or("localhost");
        out.push_str(&heading(run[0]));
        out.push_str(&match run[0].case.program.as_deref().unwrap_or_default() {
            "bonnie++-2.00" => bonnie_plus_plus::text(run, machine),
            "bonnie-1.2" => bonnie::text(run, machine),
            "dd" => dd::text(run),
            "fio" => fio::text(run),
            "iozone-3" => iozone::text(run),
            "tiobench" => tiobench::text(run),
            _ => plain(run),
        });
        out.push_str(&warnings(run, &everywhere));
        out.push('\n');
    }
    for text in everywhere {
        out.push_str(&format!("! all of these: {text}\n"));
    }
    out
}

/// The cells of each run of a program, in order.
pub fn runs(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut runs: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.case.program.is_some()) {
        let goes_on = |run: &&mut Vec<&Cell>| {
            let first = run[0];
            let is_new = run.iter().any(|other| other.case.phase == cell.case.phase);
            first.case.item == cell.case.item && of_what(first) == of_what(cell) && !is_new
        };
        match runs.last_mut().filter(goes_on) {
            Some(run) => run.push(cell),
            None => runs.push(vec![cell]),
        }
    }
    runs
}

/// Short name of array and place: `RAID 5 x4, 64 KiB, mem, fs:ext4`, `path:DIR`.
fn of_what(cell: &Cell) -> String {
    // A directory or a device on an unknown array has no members.
    let array = (!cell.case.members.is_empty()).then(|| {
        match (cell.case.array.is_some(), cell.case.disks) {
            (false, 2..) => format!("{} x{}", array_label(cell), cell.case.disks),
            _ => array_label(cell),
        }
    });
    let members = array.is_some().then(|| cell.case.members.clone());
    let chunk = cell.case.chunk_kib.map(|size| kib(size as f64));
    let parts = [array, chunk, members, cell.place_shown()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn heading(cell: &Cell) -> String {
    format!("{} on {}\n", cell.case.item.as_deref().unwrap_or_default(), of_what(cell))
}

/// Warnings that all cells of several runs share: they concern the machine.
fn of_all<'c>(runs: &[Vec<&'c Cell>]) -> Vec<&'c str> {
    let [first, _, ..] = runs else { return Vec::new() };
    let in_all = |text: &&str| {
        runs.iter().flatten().all(|cell| cell.derived.warnings.iter().any(|w| w == text))
    };
    first[0].derived.warnings.iter().map(String::as_str).filter(in_all).collect()
}

/// Each warning once, with its phases, except for those printed `elsewhere`.
fn warnings(run: &[&Cell], elsewhere: &[&str]) -> String {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for cell in run {
        let warnings = cell.derived.warnings.iter();
        for warning in warnings.filter(|warning| !elsewhere.contains(&warning.as_str())) {
            let phase = cell.case.phase.as_deref().unwrap_or_default();
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
            cell.case.phase.as_deref().unwrap_or_default(),
            digits(cell.case.block_kib),
            cell.case.depth,
            cell.case.jobs,
            digits(cell.derived.mb_per_s),
            digits(cell.derived.iops),
            cell.derived
                .cpu_process_share
                .map_or("-".into(), |share| format!("{:.0}", share * 100.0)),
            latency(cell.measured.latency_us.map(|latency| latency.p50)),
            latency(cell.measured.latency_us.map(|latency| latency.p99)),
        ));
    }
    out
}

/// The cell of a phase that was measured.
fn phase<'c>(run: &[&'c Cell], name: &str) -> Option<&'c Cell> {
    let named = run.iter().find(|cell| cell.case.phase.as_deref() == Some(name));
    named.copied().filter(|cell| !cell.measured.samples.is_empty())
}

/// Rates in KiB/s.
fn kib_per_s(cell: &Cell) -> f64 {
    cell.derived.mb_per_s * 1e6 / 1024.0
}

/// Percent of a CPU.
fn cpu_percent(cell: &Cell) -> f64 {
    cell.derived.cpu_process_share.unwrap_or(0.0) * 100.0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use results::record::{Latency, Sample};

    /// A cell of a run: `seconds` for `bytes` in `ops`.
    pub(crate) fn cell(item: &str, phase: &str, seconds: f64, bytes: u64, ops: u64) -> Cell {
        let name = item.split(':').next().unwrap_or(item);
        let mut cell = Cell::default().with(|it| {
            it.case.program = Some(name.into());
            it.case.phase = Some(phase.into());
            it.case.item = Some(item.into());
            it.measured.samples = vec![Sample { seconds, bytes, ops }];
            it.measured.latency_us = Some(Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4567.8 });
            it.derived.cpu_process_share = Some(0.256);
            it.case.file_bytes = Some(256 << 20);
            it.case.block_kib = 8.0;
        });
        cell.summarise();
        cell
    }

    #[test]
    fn runs_are_distinguished_by_item_target_and_repeated_phases() {
        let dd = |phase| cell("dd:bs=1M", phase, 1.0, 1, 1);
        let mut elsewhere = dd("write");
        elsewhere.case.members = "mem".into();
        let cells =
            [dd("write"), dd("read"), dd("write"), elsewhere, cell("dd", "write", 1.0, 1, 1)];
        let lengths: Vec<usize> = runs(&cells).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, 1]);
    }

    #[test]
    fn a_run_is_called_by_its_array_and_its_place() {
        let place = results::record::Place { name: "fs:ext4".into(), ..Default::default() };
        let mut one = cell("dd", "write", 1.0, 1, 1).with(|it| it.case.place = Some(place));
        assert_eq!(heading(&one), "dd on fs:ext4\n");
        (one.case.level, one.case.disks, one.case.chunk_kib) = ("raid5".into(), 4, Some(64));
        one.case.members = "mem".into();
        assert_eq!(heading(&one), "dd on RAID 5 x4, 64 KiB, mem, fs:ext4\n");
        (one.case.array, one.case.place, one.case.degraded) =
            (Some("raid1(raid0(2),raid0(2))".into()), None, 1);
        assert_eq!(heading(&one), "dd on raid1(raid0(2),raid0(2)), 1 lost, 64 KiB, mem\n");
    }

    #[test]
    fn a_warning_is_shown_once_with_its_phases() {
        let mut cells = [cell("x", "a", 1.0, 1, 1), cell("x", "b", 1.0, 1, 1)];
        cells.iter_mut().for_each(|cell| cell.derived.warnings.push("look out".into()));
        let run: Vec<&Cell> = cells.iter().collect();
        assert_eq!(warnings(&run, &[]), "! a, b: look out\n");
        // Of one run it is said there; of several with the same, once for all.
        assert_eq!(of_all(std::slice::from_ref(&run)), [""; 0]);
        let elsewhere = of_all(&[run.clone(), run.clone()]);
        assert_eq!(elsewhere, ["look out"]);
        assert_eq!(warnings(&run, &elsewhere), "");
        let other = cell("x", "c", 1.0, 1, 1);
        assert_eq!(of_all(&[run, vec![&other]]), [""; 0]);
    }
}
