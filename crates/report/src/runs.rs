//! Reports over one or several records: cells, items not run, published figures.
//!
//! ```text
//!   records, runs -> Report -> table (terminal), markdown, html
//!                       \-> curves: by number of disks, by chunk; by file system
//! ```
//!
//! Invariant: plain data, read only; every record in it keeps its provenance. Built by the command
//! line.

mod curves;
mod places;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use results::NotRun;
use results::host::Host;
use results::record::{Cell, Record};
use results::settings::{SETTINGS, ShownIn};
use spec::program::canonical_id;

use crate::pivot;
use crate::published::{Beside, Published};

pub use curves::{Axis, Curve, curves};
#[cfg(test)]
pub(crate) use places::tests::record as places_for_tests;
pub use places::{ByPlace, by_place};
pub use text::text;

/// A report over one or several records.
#[derive(Clone, Debug)]
pub struct Report {
    /// Title for display.
    pub title: String,
    /// All cells; the head is that of the newest record.
    pub record: Record,
    /// The source records, the oldest first.
    pub sources: Vec<Source>,
    /// Items that could not be measured.
    pub not_run: Vec<NotRun>,
    /// Published figures to show beside the cells.
    pub published: Option<Published>,
}

/// One record of a report.
#[derive(Clone, Debug)]
pub struct Source {
    /// `run 12`, or the file's name.
    pub name: String,
    /// Version of raidlab that wrote it.
    pub raidlab: String,
    /// Start time of the run.
    pub started: String,
    /// The machine.
    pub host: Host,
    /// Number of cells.
    pub cells: usize,
}

impl Report {
    /// One record and nothing else.
    pub fn of(record: Record) -> Report {
        let source = Source {
            name: String::new(),
            raidlab: record.raidlab.clone(),
            started: record.started.clone(),
            host: record.host.clone(),
            cells: record.cells.len(),
        };
        let title = "Linux software RAID, measured".to_string();
        let (sources, not_run) = (vec![source], Vec::new());
        Report { title, record, sources, not_run, published: None }
    }

    /// Several reports as one: all cells, one after the other. The first published figures count.
    ///
    /// # Panics
    /// Without any.
    pub fn together(reports: Vec<Report>) -> Report {
        let several = reports.len() > 1;
        let mut reports = reports.into_iter();
        let mut all = reports.next().expect("a report of nothing");
        for mut next in reports {
            std::mem::swap(&mut all.record.cells, &mut next.record.cells);
            let older = std::mem::replace(&mut all.record, next.record);
            // The newer head; the older cells, which were swapped into it, stay first.
            all.record.cells.extend(older.cells);
            all.sources.extend(next.sources);
            all.not_run.extend(next.not_run);
            all.published = all.published.or(next.published);
        }
        if several {
            all.title = format!("{} records", all.sources.len());
        }
        all
    }

    /// Label of each array beside a published figure, with all settings that differ.
    pub fn beside_labels(&self, beside: &[Beside<'_>]) -> Vec<String> {
        let labels = pivot::labels(&self.record.cells, true);
        let label = |one: &Beside<'_>| {
            let at = self.record.cells.iter().position(|cell| std::ptr::eq(cell, one.cell));
            let label = &labels[at.expect("it is a cell of this record")];
            pivot::with_disks(label, one.cell)
        };
        beside.iter().map(label).collect()
    }

    /// Published figures beside our cells.
    pub fn beside(&self) -> Vec<Beside<'_>> {
        self.published.as_ref().map_or(Vec::new(), |published| published.beside(&self.record))
    }
}

/// The name of each cell's work: [`work`], with the settings that distinguish it from cells of the
/// same name. A program that was run with several options has these in its name. So equal names
/// mean equal work, up to the rounding of sizes.
pub fn works(cells: &[&Cell]) -> Vec<String> {
    let mut names = works_of_any_size(cells);
    let of_size = SETTINGS.iter().filter_map(|setting| match setting.shown_in {
        ShownIn::WorkOfSize(short) => Some(short),
        _ => None,
    });
    for short in of_size {
        name_apart(cells, &mut names, short, |_, name, said| format!("{name}, {said}"));
    }
    names
}

/// As [`works`], independent of block, depth and size of files.
pub fn works_of_any_size(cells: &[&Cell]) -> Vec<String> {
    let mut names: Vec<String> = cells.iter().map(|cell| work(cell)).collect();
    // A renamed job file is the same job, named by its first name.
    let item = |cell: &Cell| {
        let own = canonical_id(cell.item.as_deref()?);
        let mut items = cells.iter().filter_map(|cell| cell.item.as_deref());
        items.find(|item| canonical_id(item) == own).map(str::to_string)
    };
    name_apart(cells, &mut names, item, |cell, name, item| {
        let phase = cell.program.as_deref().and_then(|program| name.strip_prefix(program));
        format!("{item} {}", phase.unwrap_or(name).trim_start())
    });
    let of_work = SETTINGS.iter().filter_map(|setting| match setting.shown_in {
        ShownIn::Work(short) => Some(short),
        _ => None,
    });
    for short in of_work {
        name_apart(cells, &mut names, short, |_, name, said| format!("{name}, {said}"));
    }
    names
}

/// Adds a setting to the names of those cells of one name that differ in it.
fn name_apart(
    cells: &[&Cell],
    names: &mut [String],
    setting: impl Fn(&Cell) -> Option<String>,
    add: impl Fn(&Cell, &str, &str) -> String,
) {
    let mut said: BTreeMap<String, BTreeSet<Option<String>>> = BTreeMap::new();
    for (cell, name) in cells.iter().zip(&*names) {
        said.entry(name.clone()).or_default().insert(setting(cell));
    }
    for (cell, name) in cells.iter().zip(names) {
        if let Some(own) = setting(cell).filter(|_| said[name].len() > 1) {
            *name = add(cell, name, &own);
        }
    }
}

/// Short name of the work: the phase of a program, or the workload.
pub fn work(cell: &Cell) -> String {
    match (&cell.program, &cell.phase) {
        (Some(program), Some(phase)) => format!("{program} {phase}"),
        _ => cell.workload.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use results::fixture;

    use super::*;

    #[test]
    fn one_name_is_one_work() {
        let dd = |options: &str, block_kib, depth, gib: u64| Cell {
            program: Some("dd".into()),
            phase: Some("write".into()),
            item: Some(format!("dd{options}")),
            block_kib,
            depth,
            jobs: 1,
            file_bytes: Some(gib << 30),
            ..Cell::default()
        };
        let names = |cells: &[Cell]| works(&cells.iter().collect::<Vec<_>>());
        let alike = [dd("", 64.0, 1, 1), dd("", 64.0, 1, 1)];
        assert_eq!(names(&alike), ["dd write"; 2]);
        let options = [dd("", 64.0, 1, 1), dd(":bs=1M:fdatasync", 1024.0, 1, 1)];
        assert_eq!(names(&options), ["dd write", "dd:bs=1M:fdatasync write"]);
        let fio = |job: &str| Cell { item: Some(format!("fio:{job}")), ..dd("", 4.0, 1, 1) };
        let renamed = ["a.fio@00000000000000aa", "b.fio@00000000000000aa"].map(fio);
        assert_eq!(names(&renamed), ["dd write"; 2], "one job, whatever it is called");
        let [one, same] = renamed;
        let apart = names(&[one, same, fio("b.fio@00000000000000bb")]);
        assert!(apart[0] == apart[1] && apart[1] != apart[2], "{apart:?}");
        let sizes = [dd("", 64.0, 1, 1), dd("", 64.0, 1, 8), dd("", 64.0, 4, 8)];
        let named = ["depth 1 x 1, 1 GiB", "depth 1 x 1, 8 GiB", "depth 4 x 1"];
        let named = named.map(|said| match said.contains("GiB") {
            true => format!("dd write, {said} of files"),
            false => format!("dd write, {said}"),
        });
        assert_eq!(names(&sizes), named);
        let blocks = [dd("", 4.0, 1, 1), dd("", 1024.0, 1, 1)];
        assert_eq!(names(&blocks), ["dd write, 4 KiB", "dd write, 1 MiB"]);
    }

    #[test]
    fn records_together_keep_all_cells_in_order_and_every_source() {
        let (mut one, mut two) = (fixture::record(), fixture::record());
        one.cells.truncate(2);
        two.cells = two.cells.split_off(4);
        two.started = "2010-01-01T00:00:00Z".into();
        let order: Vec<_> = one.cells.iter().chain(&two.cells).cloned().collect();
        let all = Report::together(vec![Report::of(one), Report::of(two)]);
        assert_eq!(all.record.cells, order);
        assert_eq!(all.record.started, "2010-01-01T00:00:00Z");
        assert_eq!(all.sources.len(), 2);
        assert_eq!(all.sources[0].started, "2009-02-13T23:31:30Z");
    }
}
