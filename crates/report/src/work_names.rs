//! Names of the work of each cell: its workload, or the phase of its program.
//!
//! Invariant: within one list, equal names mean equal work. Called by `runs`, `compare`, `summary`
//! and the reports.

use std::collections::{BTreeMap, BTreeSet};

use results::record::Cell;
use results::settings::{SETTINGS, ShownIn};
use spec::program::canonical_id;

/// The name of each cell's work: [`work_name`], with the settings that distinguish it from cells of
/// the same name. A program that was run with several options has these in its name. So equal names
/// mean equal work, up to the rounding of sizes.
pub fn work_names(cells: &[&Cell]) -> Vec<String> {
    let mut names = work_names_of_any_size(cells);
    let of_size = SETTINGS.iter().filter_map(|setting| match setting.shown_in {
        ShownIn::WorkOfSize(short) => Some(short),
        _ => None,
    });
    for short in of_size {
        distinguish(cells, &mut names, short, |_, name, said| format!("{name}, {said}"));
    }
    names
}

/// As [`work_names`], independent of block, depth and size of files.
pub fn work_names_of_any_size(cells: &[&Cell]) -> Vec<String> {
    let mut names: Vec<String> = cells.iter().map(|cell| work_name(cell)).collect();
    // A renamed job file is the same job, named by its first name.
    let mut first: BTreeMap<_, &str> = BTreeMap::new();
    for item in cells.iter().filter_map(|cell| cell.case.item.as_deref()) {
        first.entry(canonical_id(item)).or_insert(item);
    }
    let item = |cell: &Cell| {
        let own = canonical_id(cell.case.item.as_deref()?);
        first.get(&own).map(ToString::to_string)
    };
    distinguish(cells, &mut names, item, |cell, name, item| {
        let phase = cell.case.program.as_deref().and_then(|program| name.strip_prefix(program));
        format!("{item} {}", phase.unwrap_or(name).trim_start())
    });
    let of_work = SETTINGS.iter().filter_map(|setting| match setting.shown_in {
        ShownIn::Work(short) => Some(short),
        _ => None,
    });
    for short in of_work {
        distinguish(cells, &mut names, short, |_, name, said| format!("{name}, {said}"));
    }
    names
}

/// Adds a setting to the names of those cells of one name that differ in it.
fn distinguish(
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
pub fn work_name(cell: &Cell) -> String {
    match (&cell.case.program, &cell.case.phase) {
        (Some(program), Some(phase)) => format!("{program} {phase}"),
        _ => cell.case.workload.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_one_work() {
        let dd = |options: &str, block_kib, depth, gib: u64| {
            Cell::default().with(|it| {
                it.case.program = Some("dd".into());
                it.case.phase = Some("write".into());
                it.case.item = Some(format!("dd{options}"));
                it.case.block_kib = block_kib;
                it.case.depth = depth;
                it.case.jobs = 1;
                it.case.file_bytes = Some(gib << 30);
            })
        };
        let names = |cells: &[Cell]| work_names(&cells.iter().collect::<Vec<_>>());
        let alike = [dd("", 64.0, 1, 1), dd("", 64.0, 1, 1)];
        assert_eq!(names(&alike), ["dd write"; 2]);
        let options = [dd("", 64.0, 1, 1), dd(":bs=1M:fdatasync", 1024.0, 1, 1)];
        assert_eq!(names(&options), ["dd write", "dd:bs=1M:fdatasync write"]);
        let fio =
            |job: &str| dd("", 4.0, 1, 1).with(|it| it.case.item = Some(format!("fio:{job}")));
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
}
