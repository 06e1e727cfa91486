//! Figures by place: arrays under a workload, with the places side by side: the engine, Linux md,
//! file systems; and the published figure.
//!
//! Invariant: the figures of a row differ in the place (target, file system, its mount options, its
//! journal) and in nothing else that distinguishes cells: cells with other options of the program,
//! block, depth, jobs or size of the files are in separate tables. Figures measured at the members
//! include more than the program's bytes, different on each place: they are left out. Cells of the
//! same place are one figure, their median. Pure.

use results::record::{Cell, Record};
use results::stats;
use spec::target::TargetKind;
use spec::units;

use crate::pivot;
use crate::published::Published;
use spec::shown::distinct;

/// One workload on several places.
#[derive(Clone, Debug, PartialEq)]
pub struct ByPlace {
    /// The phase, and the settings that distinguish its cells from other tables
    /// ([`crate::work_names`]).
    pub work: String,
    /// `MB/s` or `per second`.
    pub unit: &'static str,
    /// The places, in the order of the record: `engine`, `fs:ext4,data=journal`; last `published`,
    /// where a figure is.
    pub places: Vec<String>,
    /// Arrays, with a figure for each place where there is one.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

impl ByPlace {
    /// The figure of a row on a place, with its ratio to the row's first one: `61.2 (0.48x)`.
    pub fn text(figures: &[Option<f64>], place: usize) -> String {
        let Some(figure) = figures[place] else { return "-".into() };
        let first = figures.iter().position(Option::is_some).filter(|first| *first < place);
        let of = first.and_then(|first| figures[first]).filter(|of| *of > 0.0);
        let ratio = of.map_or(String::new(), |of| format!(" ({:.2}x)", figure / of));
        format!("{}{ratio}", units::digits(figure))
    }
}

/// The place of the published figures.
const PUBLISHED: &str = "published";

/// All workloads that were measured on at least two places, in the order of the cells; beside them
/// what was published of the same.
pub fn by_place(record: &Record, published: Option<&Published>) -> Vec<ByPlace> {
    type Samples = Vec<(String, String, f64)>;
    let labels = pivot::labels_but_for_places(&record.cells);
    let mut works: Vec<(String, &'static str, Samples)> = Vec::new();
    let placed = record.cells.iter().zip(labels);
    let placed: Vec<_> = placed.filter(|(cell, _)| place(cell).is_some()).collect();
    let beside = published.map_or(Vec::new(), |published| published.beside(record));
    let names =
        crate::work_names::work_names(&placed.iter().map(|(cell, _)| *cell).collect::<Vec<_>>());
    for ((cell, label), work) in placed.into_iter().zip(names) {
        let (place, unit) = (place(cell).unwrap_or_default(), cell.unit());
        let value = cell.rate();
        if value <= 0.0 || cell.measured.program_bytes.is_some() {
            continue;
        }
        let at = works
            .iter()
            .position(|known| (&known.0, known.1) == (&work, unit))
            .unwrap_or_else(|| {
                works.push((work, unit, Vec::new()));
                works.len() - 1
            });
        // Of what lies below such a place nothing is known, nor that it is the same.
        let array = match cell.case.level.is_empty() {
            true => "as it is".to_string(),
            false => pivot::with_disks(&label, cell),
        };
        let figure = beside.iter().find(|one| std::ptr::eq(one.cell, cell) && one.unit == unit);
        works[at].2.extend(figure.map(|one| (array.clone(), PUBLISHED.to_string(), one.theirs)));
        works[at].2.push((array, place, value));
    }
    let tables = works.into_iter().map(|(work, unit, samples)| {
        let mut places = distinct(samples.iter().map(|(_, place, _)| place.clone()));
        // Last: sorting keeps the order of the others.
        places.sort_by_key(|place| place == PUBLISHED);
        let figure = |label: &str, place: &str| {
            let mine =
                samples.iter().filter(|(l, p, _)| (l.as_str(), p.as_str()) == (label, place));
            let mine: Vec<f64> = mine.map(|(_, _, value)| *value).collect();
            // Places of several published figures have none in common.
            let several = place == PUBLISHED && mine.iter().any(|value| *value != mine[0]);
            (!several).then(|| stats::median(&mine)).flatten()
        };
        let row = |label: String| {
            let figures = places.iter().map(|place| figure(&label, place)).collect();
            (label, figures)
        };
        let rows = distinct(samples.iter().map(|(label, _, _)| label.clone())).into_iter().map(row);
        ByPlace { work, unit, rows: rows.collect(), places }
    });
    let measured =
        |table: &ByPlace| table.places.iter().filter(|place| *place != PUBLISHED).count();
    tables.filter(|table| measured(table) > 1).collect()
}

/// The place of a cell; the engine is one, too.
fn place(cell: &Cell) -> Option<String> {
    let engine = cell.case.target == TargetKind::Engine;
    cell.place_shown().or_else(|| engine.then(|| cell.target_shown()))
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::fixture;
    use results::record::{Place, Sample};

    use super::*;

    /// A record of dd on two arrays and two file systems.
    pub(crate) fn record() -> Record {
        let cell = |level: &str, name: &str, mb_per_s: f64| {
            let bytes = (mb_per_s * 1e6) as u64;
            let mut cell = Cell::default().with(|it| {
                it.case.target = "fs".into();
                it.case.level = level.into();
                it.case.disks = 4;
                it.case.program = Some("dd".into());
                it.case.phase = Some("write".into());
                it.case.workload = "seq-write".into();
                it.measured.samples = vec![Sample { seconds: 1.0, bytes, ops: 10 }];
                it.case.place = Some(Place { name: name.into(), ..Place::default() });
            });
            cell.summarise();
            cell
        };
        let cells = vec![
            cell("raid0", "fs:ext4", 200.0),
            cell("raid5", "fs:ext4", 100.0),
            cell("raid5", "fs:ext4,data=journal", 50.0),
            cell("raid5", "fs:ext4,data=journal", 54.0),
        ];
        Record { cells, ..fixture::record() }
    }

    #[test]
    fn places_stand_side_by_side_and_the_first_is_what_the_others_are_of() {
        let tables = by_place(&record(), None);
        assert_eq!(tables.len(), 1);
        assert_eq!((tables[0].work.as_str(), tables[0].unit), ("dd write", "MB/s"));
        assert_eq!(tables[0].places, ["fs:ext4", "fs:ext4,data=journal"]);
        let rows = [
            ("RAID 0 x4".to_string(), vec![Some(200.0), None]),
            ("RAID 5 x4".to_string(), vec![Some(100.0), Some(52.0)]),
        ];
        assert_eq!(tables[0].rows, rows);
        let fields = [0, 1].map(|place| ByPlace::text(&rows[1].1, place));
        assert_eq!(fields, ["100", "52.0 (0.52x)"]);
        assert_eq!(ByPlace::text(&rows[0].1, 1), "-");
        assert!(by_place(&fixture::record(), None).is_empty(), "blocks have no place");
    }

    #[test]
    fn the_engine_linux_and_what_was_published_stand_side_by_side() {
        let cell = |target: TargetKind, name: Option<&str>, rate: f64| {
            let mut cell = Cell::default().with(|it| {
                it.case.target = target.into();
                it.case.level = "raid1".into();
                it.case.disks = 2;
                it.case.workload = "seq-read".into();
                it.measured.samples =
                    vec![Sample { seconds: 1.0, bytes: (rate * 1e6) as u64, ops: 10 }];
                it.case.place = name.map(|name| Place { name: name.into(), ..Place::default() });
            });
            cell.summarise();
            cell
        };
        let engine = cell(TargetKind::Engine, None, 83.0);
        let cells = vec![engine.clone(), cell(TargetKind::Linux, Some("linux"), 81.0)];
        let wiki = crate::published::named("wiki-2-disks").expect("the wiki");
        let tables = by_place(&Record { cells, ..fixture::record() }, Some(&wiki));
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].places, ["engine", "linux", "published"]);
        let figures = vec![Some(83.0), Some(81.0), Some(80.0)];
        assert_eq!(tables[0].rows, [("RAID 1 x2".to_string(), figures)]);
        // Two figures of one row are no figure of it.
        let mut two = wiki.clone();
        two.figures.iter_mut().for_each(|figure| {
            figure.cell.insert("target".into(), "engine".into());
        });
        let of_linux = two.figures.iter().map(|figure| {
            let cell = std::collections::BTreeMap::from([("target".into(), "linux".into())]);
            crate::published::Figure { cell, value: figure.value + 1.0, ..figure.clone() }
        });
        let of_linux: Vec<_> = of_linux.collect();
        two.figures.extend(of_linux);
        let cells = vec![engine.clone(), cell(TargetKind::Linux, Some("linux"), 81.0)];
        let tables = by_place(&Record { cells, ..fixture::record() }, Some(&two));
        assert_eq!(tables[0].rows[0].1, [Some(83.0), Some(81.0), None]);
        let alone = Record { cells: vec![engine], ..fixture::record() };
        assert!(by_place(&alone, Some(&wiki)).is_empty(), "one place stands beside none");
    }

    #[test]
    fn what_was_done_otherwise_has_a_table_of_its_own() {
        let plain = record();
        let with = |change: fn(&mut Cell), name: &str| {
            let mut cells = plain.cells.clone();
            cells.iter_mut().for_each(change);
            let cells = plain.cells.iter().cloned().chain(cells).collect();
            let tables = by_place(&Record { cells, ..plain.clone() }, None);
            assert_eq!(tables.len(), 2, "{name}: {tables:?}");
            assert_ne!(tables[0].work, tables[1].work, "{name}");
            let rows = &by_place(&plain, None)[0].rows;
            assert!(tables.iter().all(|table| table.rows == *rows), "{name}: {tables:?}");
        };
        with(|cell| cell.case.item = Some("dd:bs=1M:fdatasync".into()), "options");
        with(|cell| cell.case.block_kib = 1024.0, "block");
        with(|cell| cell.case.depth = 4, "depth");
        with(|cell| cell.case.jobs = 4, "jobs");
        with(|cell| cell.case.file_bytes = Some(1 << 30), "size");
        with(|cell| cell.case.caches_dropped = Some(true), "caches");
        let mut read_off = plain.clone();
        read_off.cells.iter_mut().for_each(|cell| cell.measured.program_bytes = Some(1));
        assert!(by_place(&read_off, None).is_empty(), "the members'");
    }
}
