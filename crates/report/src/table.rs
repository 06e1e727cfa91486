//! The tables of a record's cells, in the order of the Linux RAID wiki's.
//!
//! Invariant: every figure stands under a head with its unit, its doubts beside it ([`Mark`]).
//! Called by `bench`, and by the reports of every form.

use results::record::{Cell, Latency, MemberTraffic, Record};
use results::stats;
use spec::units;

use crate::charts::bars::unevenness;
use crate::doc::{self, Align, Block, Doc, Group, Mark, Section, Table, Value};
use crate::pivot::{self, Column, PivotTable, Row};
use crate::sections;
use crate::{directions, during};

/// The record as text, ending with a newline.
pub fn render(record: &Record, colour: bool) -> String {
    doc::terminal(&Doc::of(vec![section(record)]), colour)
}

/// The record for a terminal: few columns side by side, or a list; what the marks mean; warnings
/// and findings.
pub(crate) fn section(record: &Record) -> Section {
    let grid = PivotTable::new(record);
    let tables = match grid.side_by_side() {
        true => vec![speed(&grid), of_views(&grid, &COST), of_views(&grid, &BELOW)],
        false => vec![of_cells(&grid, "", &LIST)],
    };
    let mut blocks: Vec<Block> = tables.into_iter().map(Block::Table).collect();
    blocks.extend(
        [directions::table(&grid), during::table(&grid)].into_iter().filter_map(Table::block),
    );
    blocks.push(legend(&grid));
    blocks.extend([sections::warnings(&grid), sections::findings(&grid)].into_iter().flatten());
    Section::new("", blocks)
}

/// The findings of a record without its tables, for cells that are shown otherwise.
pub fn findings_of(record: &Record, colour: bool) -> String {
    let findings = sections::findings(&PivotTable::new(record));
    doc::terminal(&Doc::of(vec![Section::new("", findings.into_iter().collect())]), colour)
}

/// A table with some figures of every cell: workloads side by side.
struct View {
    title: &'static str,
    note: &'static str,
    figures: &'static [Figure],
}

/// A head, and the figure of a cell below it.
type Figure = (&'static str, fn(&Cell) -> doc::Field);

const SPEED: View = View {
    title: "Speed",
    note: "MB/s or IOPS ± half the range of samples (of runs), ratio to the ordinary disk, share \
           of the bound",
    figures: &[(RATE, rate), ("ratio", ratio), ("bound", bound)],
};
const COST: View = View {
    title: "Cost",
    note: "CPU seconds of this process per GiB; latency p50 and p99",
    figures: &[
        ("CPU-s/GiB", |cell| seconds(cell.derived.cpu_s_per_gib)),
        ("p50", |cell| short_latency(cell, |us| us.p50)),
        ("p99", |cell| short_latency(cell, |us| us.p99)),
    ],
};
const BELOW: View = View {
    title: "Below",
    note: "CPU seconds of the whole machine per GiB; bytes that members moved per byte, busiest \
           over idlest",
    figures: &[
        ("all CPU-s", |cell| seconds(cell.derived.machine_cpu_s_per_gib)),
        ("moved", moved),
        ("uneven", uneven),
    ],
};
/// The head of rates: each column has its own unit.
const RATE: &str = "MB/s or IOPS";
/// The first of the figures stands a little apart from the group before it.
const WIDTHS: [usize; 3] = [12, 7, 7];

/// Rates, with their ratios to the ordinary disk and to the bound.
pub(crate) fn speed(grid: &PivotTable<'_>) -> Table {
    of_views(grid, &SPEED)
}

fn of_views(grid: &PivotTable<'_>, view: &View) -> Table {
    let mut columns = vec![doc::Column { width_min: 12, ..doc::Column::new("array", Align::Left) }];
    let mut groups = vec![Group { lines: Vec::new(), columns: 1 }];
    let has_places = grid.columns.iter().any(|column| !column.stretch_of_disk.is_empty());
    let figures = shown(grid, view.figures);
    for column in &grid.columns {
        for (at, ((head, _), width_min)) in figures.iter().zip(WIDTHS).enumerate() {
            let head = if *head == RATE { unit(column) } else { head };
            let column = doc::Column::new(head, Align::Right);
            columns.push(doc::Column { width_min, edge: at == 0, ..column });
        }
        let mut lines = vec![column.title().to_string(), column.detail()];
        lines.extend(has_places.then(|| column.stretch_of_disk.clone()));
        groups.push(Group { lines, columns: figures.len() });
    }
    let note = match figures.len() == view.figures.len() {
        true => view.note.to_string(),
        false => view.note.replace(", ratio to the ordinary disk", ""),
    };
    let mut table = Table { groups, note, ..Table::new(view.title, columns) };
    for section in &grid.sections {
        table.rows.push(doc::Row::Part(section.title()));
        for row in &section.rows {
            let cells = row.cells.iter().flat_map(|cell| {
                figures.iter().enumerate().map(move |(at, (_, figure))| match (cell, at) {
                    (Some(cell), _) => figure(cell),
                    (None, 0) => Value::Missing.into(),
                    (None, _) => doc::Field::default(),
                })
            });
            table.push(std::iter::once(row.label.as_str().into()).chain(cells));
        }
    }
    table
}

/// The figures that there are: without an ordinary disk in the record nothing has a ratio to it.
fn shown<F: Copy>(grid: &PivotTable<'_>, figures: &[(&'static str, F)]) -> Vec<(&'static str, F)> {
    let has_ratio = grid.cells().any(|(_, _, cell)| cell.derived.ratio_to_single.is_some());
    figures.iter().filter(|(head, _)| has_ratio || *head != "ratio").copied().collect()
}

fn unit(column: &Column) -> &'static str {
    if column.counts_requests { "IOPS" } else { "MB/s" }
}

/// A cell where it stands.
struct Place<'g> {
    row: &'g Row<'g>,
    column: &'g Column,
    cell: &'g Cell,
}

/// A column of a table with one row for each cell: its head, as [`doc::Column::all`] reads it.
type Field = (&'static str, fn(&Place<'_>) -> doc::Field);

const ARRAY: Field = ("<array", |place| place.row.label.as_str().into());
const DISKS: Field = ("disks", |place| pivot::disks(place.cell).into());
const WORKLOAD: Field = ("<workload", |place| {
    format!("{} {}", place.column.title(), place.column.detail_and_place()).into()
});
const RATIO: Field = ("ratio", |place| ratio(place.cell));
const BOUND: Field = ("bound", |place| bound(place.cell));
const CPU: Field = ("CPU-s/GiB", |place| seconds(place.cell.derived.cpu_s_per_gib));
const ALL_CPU: Field = ("all CPU-s/GiB", |place| seconds(place.cell.derived.machine_cpu_s_per_gib));
const P50: Field = ("p50", |place| latency(place.cell, |us| us.p50));
const P99: Field = ("p99", |place| latency(place.cell, |us| us.p99));
const MOVED: Field = ("moved", |place| moved(place.cell));
const UNEVEN: Field = ("uneven", |place| uneven(place.cell));

/// For a terminal, where the workloads do not fit side by side.
const LIST: [Field; 14] = [
    ARRAY,
    DISKS,
    ("<workload", |place| place.column.phase.clone().unwrap_or_else(|| word(place.cell)).into()),
    ("<block x depth", |place| {
        place.column.detail().replace(" KiB", "K").replace(" MiB", "M").into()
    }),
    ("MB/s", |place| rate_of(place.cell, place.cell.moves_data(), place.cell.derived.mb_per_s)),
    ("IOPS", |place| {
        Value::known(place.cell.did_something().then(|| units::digits(place.cell.derived.iops)))
            .into()
    }),
    RATIO,
    BOUND,
    ("CPU/GiB", CPU.1),
    ("all", ALL_CPU.1),
    ("p50", |place| short_latency(place.cell, |us| us.p50)),
    ("p99", |place| short_latency(place.cell, |us| us.p99)),
    MOVED,
    UNEVEN,
];
/// For Markdown.
const MEDIANS: [Field; 14] = [
    ARRAY,
    DISKS,
    WORKLOAD,
    ("median", |place| rate(place.cell)),
    ("<unit", |place| unit(place.column).into()),
    ("samples from .. to", |place| samples(place.cell)),
    RATIO,
    BOUND,
    CPU,
    ALL_CPU,
    P50,
    P99,
    MOVED,
    UNEVEN,
];
/// For pages.
const SAMPLES: [Field; 16] = [
    ARRAY,
    DISKS,
    WORKLOAD,
    ("median MB/s", |place| units::digits(place.cell.derived.mb_per_s).into()),
    ("min – max", |place| {
        let ends = place.cell.derived.spread;
        let ends = ends.map(|of| format!("{} – {}", units::digits(of.min), units::digits(of.max)));
        Value::known(ends).into()
    }),
    ("<samples MB/s", |place| {
        let rates =
            place.cell.measured.samples.iter().map(|sample| units::digits(sample.mb_per_s()));
        rates.collect::<Vec<_>>().join(", ").into()
    }),
    P50,
    P99,
    ("p99.9", |place| latency(place.cell, |us| us.p999)),
    ("max", |place| latency(place.cell, |us| us.max)),
    ("CPU-s process", |place| seconds(place.cell.measured.cpu_process_s)),
    ("CPU-s machine", |place| seconds(place.cell.measured.cpu_system_s)),
    CPU,
    ALL_CPU,
    ("steady", |place| {
        Value::known(place.cell.derived.steady.map(|steady| if steady { "yes" } else { "no" }))
            .into()
    }),
    ("verified", |place| match place.cell.measured.verified {
        Some(true) => "yes".into(),
        Some(false) => doc::Field { marks: vec![Mark::Wrong], ..doc::Field::from("NO") },
        None => "cannot be".into(),
    }),
];
const MEMBERS: [Field; 6] = [
    ARRAY,
    DISKS,
    WORKLOAD,
    MOVED,
    UNEVEN,
    ("~members: bytes and operations", |place| {
        let members = place.cell.measured.per_member.iter().enumerate();
        let members = members.map(|(at, moved)| format!("{at}: {}", member_text(moved)));
        members.collect::<Vec<_>>().join("; ").into()
    }),
];

/// A row for each cell.
fn of_cells(grid: &PivotTable<'_>, title: &str, fields: &[Field]) -> Table {
    let fields = shown(grid, fields);
    let heads: Vec<&str> = fields.iter().map(|(head, _)| *head).collect();
    let mut table = Table::new(title, doc::Column::all(&heads));
    for (row, column, cell) in grid.cells() {
        table.push(fields.iter().map(|(_, field)| field(&Place { row, column, cell })));
    }
    table
}

/// The median of each cell, for Markdown.
pub(crate) fn medians(grid: &PivotTable<'_>) -> Table {
    of_cells(grid, "", &MEDIANS)
}

/// Every sample, for pages.
pub(crate) fn every_sample(grid: &PivotTable<'_>) -> Table {
    let title = "Samples, latencies and CPU time of each cell";
    Table { folded: true, ..of_cells(grid, title, &SAMPLES) }
}

/// What each member did, for pages.
pub(crate) fn members(grid: &PivotTable<'_>) -> Table {
    Table { folded: true, ..of_cells(grid, "Every member's bytes and operations", &MEMBERS) }
}

/// Below the tables: what the marks in them mean.
pub(crate) fn legend(grid: &PivotTable<'_>) -> Block {
    let any = |of: &dyn Fn(&Cell) -> bool| grid.cells().any(|(_, _, cell)| of(cell));
    let marks = [Mark::Wrong, Mark::Warned, Mark::Unsteady].into_iter();
    let marks = marks.filter(|mark| any(&|cell| marks_of(cell).first() == Some(mark)));
    let marks = marks.map(|mark| format!("{}  {}", mark.sign().0, mark.sign().1));
    let others = [
        (any(&Cell::is_spoiled), "busy machine, and samples far apart: no ratio, and no winner"),
        (
            any(&Cell::is_of_window),
            "--until-steady: a figure is the mean of the last five samples, its spread theirs",
        ),
        (
            any(&|cell| cell.derived.bound_share.is_some_and(|share| share > 1.1)),
            "bound over 100%: the sample profits from a cache that the bound does not model",
        ),
    ];
    let others = others.into_iter().filter(|(there, _)| *there);
    Block::Legend(marks.chain(others.map(|(_, text)| text.to_string())).collect())
}

fn marks_of(cell: &Cell) -> Vec<Mark> {
    let all = [
        (cell.measured.verified == Some(false), Mark::Wrong),
        (!cell.derived.warnings.is_empty(), Mark::Warned),
        (cell.derived.steady == Some(false), Mark::Unsteady),
    ];
    all.into_iter().filter(|(there, _)| *there).map(|(_, mark)| mark).collect()
}

fn rate(cell: &Cell) -> doc::Field {
    rate_of(cell, cell.did_something(), cell.rate())
}

fn rate_of(cell: &Cell, is_known: bool, rate: f64) -> doc::Field {
    let text = is_known.then(|| format!("{}{}", units::digits(rate), spread(cell)));
    doc::Field { marks: marks_of(cell), ..Value::known(text).into() }
}

/// `±3%`: half of the range of the samples' rates, of the median; nothing where there is one.
fn spread(cell: &Cell) -> String {
    let single = cell.measured.samples.len() < 2 || cell.derived.mb_per_s <= 0.0;
    cell.derived.spread.filter(|_| !single).map_or(String::new(), |spread| {
        let half = (spread.max - spread.min) / 2.0 / cell.derived.mb_per_s * 100.0;
        match half {
            _ if half < 1.0 => format!("±{half:.1}%"),
            // More than the figure itself: it is none.
            _ if half > 100.0 => "±>100%".to_string(),
            _ => format!("±{half:.0}%"),
        }
    })
}

/// `5: 100 .. 120`: how many samples, the lowest and the highest.
fn samples(cell: &Cell) -> doc::Field {
    let rates: Vec<f64> = cell.measured.samples.iter().map(|sample| cell.rate_of(sample)).collect();
    let range = stats::range(&rates).map(|(low, high)| {
        format!("{}: {} .. {}", rates.len(), units::digits(low), units::digits(high))
    });
    Value::known(range).into()
}

fn ratio(cell: &Cell) -> doc::Field {
    Value::times(cell.derived.ratio_to_single.filter(|_| !cell.is_spoiled())).into()
}

fn bound(cell: &Cell) -> doc::Field {
    let note = cell.derived.bound_note.clone().unwrap_or_default();
    doc::Field { note, ..Value::percent(cell.derived.bound_share).into() }
}

fn moved(cell: &Cell) -> doc::Field {
    Value::times(cell.amplification()).into()
}

fn uneven(cell: &Cell) -> doc::Field {
    unevenness(cell).into()
}

fn seconds(cpu: Option<f64>) -> doc::Field {
    Value::known(cpu.map(units::digits)).into()
}

fn latency(cell: &Cell, pick: fn(&Latency) -> f64) -> doc::Field {
    Value::known(cell.measured.latency_us.as_ref().map(|us| units::latency(pick(us)))).into()
}

/// Without a blank: the terminal has little room.
fn short_latency(cell: &Cell, pick: fn(&Latency) -> f64) -> doc::Field {
    let text =
        cell.measured.latency_us.as_ref().map(|us| units::latency(pick(us)).replace(' ', ""));
    Value::known(text).into()
}

/// `rand-mixed 70%`: with the share of reads of a mixed block workload.
fn word(cell: &Cell) -> String {
    let share = cell.case.read_percent.map_or(String::new(), |percent| format!(" {percent}%"));
    format!("{}{share}", cell.case.workload)
}

/// `442 MiB read in 7072, 1.2 MiB written in 19`.
fn member_text(traffic: &MemberTraffic) -> String {
    let part = |bytes: u64, ops: u64, did: &str| {
        (ops > 0 || bytes > 0).then(|| format!("{} {did} in {ops}", units::bytes(bytes)))
    };
    let read = part(traffic.read_bytes, traffic.reads, "read");
    let written = part(traffic.written_bytes, traffic.writes, "written");
    let parts: Vec<String> = read.into_iter().chain(written).collect();
    if parts.is_empty() { "idle".to_string() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use crate::doc::WIDTH;
    use crate::fixture;

    use super::*;

    #[test]
    fn the_default_matrix_fits_and_lines_up() {
        let record = fixture::record();
        let text = render(&record, false);
        println!("{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(!text.contains('\x1b'));
        let row = text.lines().find(|line| line.starts_with("RAID 10,f2")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(words[2].starts_with("154±"), "{row}");
        assert_eq!(words[3..5], ["1.88x", "96%"], "{row}");
        assert_eq!(words[..2], ["RAID", "10,f2"], "{row}");
        let heads: Vec<&str> = text.lines().filter(|line| line.contains("MB/s  ratio")).collect();
        assert!(text.contains("128 MiB at the outer edge") && text.contains("the whole disk"));
        // Figures end where their headings end.
        let end = |line: &str, word: &str| {
            line.find(word).map(|at| line[..at].chars().count() + word.len())
        };
        assert_eq!(end(heads[0], "ratio"), end(row, "1.88x"), "{text}");
    }

    #[test]
    fn a_warning_is_printed_once_with_its_places_and_wrong_data_stands_out() {
        let mut record = fixture::record();
        record.cells[5].measured.verified = Some(false);
        let text = render(&record, true);
        assert!(text.contains("! 160"), "{text}");
        assert_eq!(text.matches("12 operations were late").count(), 1);
        assert!(text.contains("(RAID 6 x4, sequential read)"));
        assert!(text.contains("DATA DIFFERED") && text.contains("\x1b[31m"));
    }

    #[test]
    fn a_finding_is_a_line_with_its_places_and_what_to_try() {
        let mut record = fixture::record();
        let finding = results::record::Finding {
            name: "shared-bus".into(),
            text: "it is full".into(),
            command: Some("--bus 266MB/s".into()),
            ..Default::default()
        };
        for cell in [0, 1, 4, 8, 12] {
            record.cells[cell].derived.findings = vec![finding.clone()];
        }
        let text = render(&record, false);
        let shown = text.lines().skip_while(|line| !line.starts_with("finding:"));
        let shown = shown.collect::<Vec<_>>().join(" ");
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.starts_with("finding: shared-bus: it is full ("), "{text}");
        assert!(shown.ends_with("; and 2 more); try --bus 266MB/s"), "{text}");
        assert_eq!(text.matches("shared-bus").count(), 1);
    }

    #[test]
    fn what_was_not_done_has_no_speed() {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.derived.iops, cell.derived.mb_per_s, cell.measured.samples) = (0.0, 0.0, Vec::new());
        cell.case.workload = "delete".into();
        let zero =
            |text: &str| text.lines().any(|line| line.contains("RAID") && line.contains(" 0 "));
        let listed = |record: &Record| {
            let table = Block::Table(of_cells(&PivotTable::new(record), "", &LIST));
            doc::terminal(&Doc::of(vec![Section::new("", vec![table])]), false)
        };
        let (matrix, list) = (render(&record, false), listed(&record));
        assert!(!zero(&matrix), "{matrix}");
        assert!(!zero(&list), "{list}");
        let same = crate::compare::Comparison::new(&record, &record, 0.05);
        assert!(same.pairs.is_empty(), "{:?}", same.pairs);
        // Files that are created move no bytes, but are counted.
        record.cells[0].derived.iops = 1234.0;
        let list = listed(&record);
        assert!(list.contains("1234") && !zero(&list), "{list}");
    }

    #[test]
    fn a_list_names_phases_by_their_program() {
        let mut record = fixture::record();
        record.cells.truncate(5);
        for (at, cell) in record.cells.iter_mut().enumerate() {
            (cell.case.program, cell.case.phase) = (Some("dd".into()), Some(format!("phase-{at}")));
        }
        let text = render(&record, false);
        assert!((0..5).all(|at| text.contains(&format!(" dd phase-{at} "))), "{text}");
    }

    #[test]
    fn a_matrix_with_more_columns_becomes_a_list() {
        let mut record = fixture::record();
        let mut deeper = record.cells[..4].to_vec();
        deeper.iter_mut().for_each(|cell| cell.case.depth *= 2);
        record.cells.extend(deeper);
        let text = render(&record, false);
        println!("{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let rows = text.lines().filter(|line| line.contains("seq-read") || line.contains("rand-"));
        assert_eq!(rows.count() + 13 + 1, record.cells.len());
    }

    #[test]
    fn an_empty_record_is_no_accident() {
        let mut record = fixture::record();
        record.cells.clear();
        assert!(render(&record, false).len() < 1000);
    }
}
