//! Arranges a record for display: sections by number of disks, rows by array, columns by workload.
//!
//! ```text
//!   columns          sequential read | random read | sequential write | random write
//!   4 disks  RAID 0        cell      |     cell    |       cell       |     cell
//!            RAID 5        cell      |      -      |       cell       |     cell
//! ```
//!
//! A column is a workload with its block, depth and jobs; everything else that differs between
//! cells distinguishes rows and appears in their labels. A record with more than four columns is a
//! list.
//!
//! Invariant: every cell of the record is in exactly one place. Called by `table` and `html`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use results::record::{Cell, Finding, Record};
use results::settings::{self, SETTINGS, Setting, Short, ShownIn};
use results::words::{LayoutName, Word};
use spec::program::canonical_id;
use spec::units;
use spec::workload::{AccessKind, Kind};

/// Maximum of columns that are shown side by side.
pub const COLUMNS_MAX: usize = 4;

/// A record's cells, arranged as a table.
#[derive(Debug)]
pub struct PivotTable<'a> {
    /// The workloads.
    pub columns: Vec<Column>,
    /// One section for each number of disks, the fewest first.
    pub sections: Vec<Section<'a>>,
    /// How many columns have each title.
    titles: HashMap<String, usize>,
}

/// A workload with its block, depth and jobs.
#[derive(Clone, Debug)]
pub struct Column {
    /// `seq-read` and so on.
    pub workload: Word<AccessKind>,
    /// Block in KiB; `None` where it depends on the array, as for writes of whole stripes.
    pub block_kib: Option<f64>,
    /// Requests in flight per job.
    pub depth: u32,
    /// Number of jobs.
    pub jobs: u32,
    /// Of a mixed block workload: the share of requests that read, percent.
    pub read_percent: Option<u8>,
    /// Program and phase: `bonnie++-2.00 put-block`; with its options if there is also a column of
    /// other options: `dd:fdatasync write`. `None`: a block workload.
    pub phase: Option<String>,
    /// The program with its options: `dd:fdatasync`.
    item: Option<String>,
    /// Whether the figure is in requests per second ([`Cell::counts_requests`]).
    pub counts_requests: bool,
    /// Which part of a modelled disk its cells use, where all use the same; otherwise empty.
    pub stretch_of_disk: String,
}

/// What distinguishes a column from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ColumnKey {
    workload: Word<AccessKind>,
    /// The bits of `block_kib`.
    block_kib: Option<u64>,
    depth: u32,
    jobs: u32,
    read_percent: Option<u8>,
    phase: Option<String>,
    /// By its canonical name.
    item: Option<String>,
    counts_requests: bool,
}

/// The arrays with the same number of disks.
#[derive(Debug)]
pub struct Section<'a> {
    /// Number of disks.
    pub disks: u32,
    /// The arrays, in the order of the record.
    pub rows: Vec<Row<'a>>,
}

/// One array.
#[derive(Debug)]
pub struct Row<'a> {
    /// `RAID 10,f2`, and the settings that distinguish it from other rows.
    pub label: String,
    /// Its cell in each column.
    pub cells: Vec<Option<&'a Cell>>,
}

impl Column {
    fn of(cell: &Cell) -> Column {
        Column {
            workload: cell.case.workload.clone(),
            block_kib: Some(cell.case.block_kib),
            depth: cell.case.depth,
            jobs: cell.case.jobs,
            read_percent: cell.case.read_percent,
            phase: cell.case.program.as_ref().map(|program| {
                let phase = cell.case.phase.as_deref().map(Cow::Borrowed);
                format!("{program} {}", phase.unwrap_or_else(|| cell.case.workload.text()))
            }),
            item: cell.case.item.clone(),
            counts_requests: cell.counts_requests(),
            stretch_of_disk: String::new(),
        }
    }

    /// `sequential read`; `random, 70 % reads`.
    pub fn title(&self) -> Cow<'_, str> {
        match (&self.phase, self.workload.known()) {
            (Some(phase), _) => phase.into(),
            (None, Some(AccessKind::SeqRead)) => "sequential read".into(),
            (None, Some(AccessKind::RandRead)) => "random read".into(),
            (None, Some(AccessKind::SeqWrite)) => "sequential write".into(),
            (None, Some(AccessKind::RandWrite)) => "random write".into(),
            (None, Some(AccessKind::None)) => "background alone".into(),
            (None, Some(kind)) if kind.is_mixed() && self.read_percent.is_some() => {
                let order = if kind.is_sequential() { "sequential" } else { "random" };
                format!("{order}, {} % reads", self.read_percent.unwrap_or_default()).into()
            }
            _ => self.workload.text(),
        }
    }

    /// `1 MiB x 4`: block, requests in flight per job, and jobs if there are several.
    pub fn detail(&self) -> String {
        let jobs = if self.jobs == 1 { String::new() } else { format!(" x {} jobs", self.jobs) };
        if self.workload == AccessKind::None {
            return String::new();
        }
        let block = self.block_kib.map_or("whole stripes".to_string(), units::kib);
        format!("{block} x {}{jobs}", self.depth)
    }

    /// [`Column::detail`], with the part of the disk.
    pub fn detail_and_place(&self) -> String {
        match self.stretch_of_disk.is_empty() {
            true => self.detail(),
            false => format!("{}, {}", self.detail(), self.stretch_of_disk),
        }
    }

    fn key(&self) -> ColumnKey {
        ColumnKey {
            workload: self.workload.clone(),
            block_kib: self.block_kib.map(f64::to_bits),
            depth: self.depth,
            jobs: self.jobs,
            read_percent: self.read_percent,
            phase: self.phase.clone(),
            item: self.canonical_item(),
            counts_requests: self.counts_requests,
        }
    }

    /// The program with its options, the same under any name of its job file.
    fn canonical_item(&self) -> Option<String> {
        self.item.as_deref().map(|item| canonical_id(item).to_string())
    }

    /// The column without its block size.
    fn of_any_block(&self) -> Column {
        Column { block_kib: None, ..self.clone() }
    }

    /// The order of the Linux RAID wiki's table; all others in the order of the record.
    fn rank(&self) -> usize {
        let known = Kind::DEFAULT.map(AccessKind::from);
        known.iter().position(|kind| self.workload == *kind).unwrap_or(known.len())
    }
}

impl<'a> PivotTable<'a> {
    /// The places of a record's cells.
    pub fn new(record: &'a Record) -> PivotTable<'a> {
        let labels = labels_of(&record.cells, &varying(&record.cells));
        let own = columns_of(&record.cells, &labels);
        let mut columns: Vec<Column> = Vec::new();
        let mut known = HashSet::new();
        for column in &own {
            if known.insert(column.key()) {
                columns.push(column.clone());
            }
        }
        columns.sort_by_key(Column::rank);
        let keys = columns.iter().enumerate().map(|(at, column)| (column.key(), at));
        let places: HashMap<ColumnKey, usize> = keys.collect();
        let mut sections: BTreeMap<u32, SectionBuilder<'a>> = BTreeMap::new();
        for ((cell, label), column) in record.cells.iter().zip(labels).zip(&own) {
            let section = sections.entry(cell.case.disks).or_default();
            section.put(label, places[&column.key()], columns.len(), cell);
        }
        let section = |(disks, rows): (u32, SectionBuilder<'a>)| Section { disks, rows: rows.rows };
        let sections: Vec<Section<'a>> = sections.into_iter().map(section).collect();
        tell_apart(&mut columns);
        for (at, column) in columns.iter_mut().enumerate() {
            let rows = sections.iter().flat_map(|section| &section.rows);
            let mut used = rows.filter_map(|row| row.cells[at]).map(stretch_of_disk);
            let first = used.next().unwrap_or_default();
            let same = used.all(|other| other == first);
            column.stretch_of_disk = if same { first } else { String::new() };
        }
        let mut titles = HashMap::new();
        columns
            .iter()
            .for_each(|column| *titles.entry(column.title().into_owned()).or_default() += 1);
        PivotTable { columns, sections, titles }
    }

    /// Whether there are few enough columns to stand side by side.
    pub fn side_by_side(&self) -> bool {
        self.columns.len() <= COLUMNS_MAX
    }

    /// Every cell with its row's label and its column, row by row.
    pub fn cells(&self) -> impl Iterator<Item = (&Row<'a>, &Column, &'a Cell)> {
        self.sections.iter().flat_map(|section| &section.rows).flat_map(|row| {
            let columns = row.cells.iter().zip(&self.columns);
            columns.filter_map(move |(cell, column)| cell.map(|cell| (row, column, cell)))
        })
    }

    /// The cells of a column.
    pub fn cells_of(&self, column: usize) -> impl Iterator<Item = &'a Cell> {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.filter_map(move |row| row.cells[column])
    }

    /// `RAID 5 x4, sequential read`: how many disks only where that differs, and block and depth
    /// where several columns have one title.
    fn place(&self, row: &Row<'_>, column: &Column, cell: &Cell) -> String {
        let array = match self.sections.len() {
            1 => row.label.clone(),
            _ => with_disks(&row.label, cell),
        };
        match self.titles.get(&*column.title()) {
            None | Some(1) => format!("{array}, {}", column.title()),
            _ => format!("{array}, {} {}", column.title(), column.detail()),
        }
    }

    /// Warnings, each once, with the cells that have it; first the cells with wrong data. Warnings
    /// that differ only in their numbers are merged, with the first cell's numbers. A warning of
    /// the place is in every cell of a process, and is listed once.
    pub fn warnings(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        let wrong = self.cells().filter(|(_, _, cell)| cell.measured.verified == Some(false)).map(
            |(row, column, cell)| {
                let text = "DATA DIFFERED from what was written: do not trust these members; \
                        test their memory, cables and firmware";
                (text.to_string(), self.place(row, column, cell))
            },
        );
        let warned = self.cells().flat_map(|(row, column, cell)| {
            let place = self.place(row, column, cell);
            cell.derived.warnings.iter().map(move |text| (text.clone(), place.clone()))
        });
        let mut known: HashMap<String, usize> = HashMap::new();
        for (text, place) in wrong.chain(warned) {
            let at = *known.entry(but_for_numbers(&text)).or_insert(found.len());
            match found.get_mut(at) {
                Some((_, places)) => places.push(place),
                None => found.push((text, vec![place])),
            }
        }
        let all = self.cells().count();
        for (_, places) in found.iter_mut().filter(|(_, places)| all > 1 && places.len() == all) {
            *places = vec!["every cell".into()];
        }
        found
    }

    /// Findings, with all cells that have them. Findings that differ only in their numbers are
    /// merged; each number of the text is then a range over the cells: `read 1.00 to 2.00`. So the
    /// text is true of every named cell. Evidence is given for a single cell only.
    pub fn findings(&self) -> Vec<(Finding, Vec<String>)> {
        let mut found: Vec<(&Finding, Ranges<'_>, Vec<String>)> = Vec::new();
        let mut known = HashMap::new();
        for (row, column, cell) in self.cells() {
            let place = self.place(row, column, cell);
            for finding in &cell.derived.findings {
                let ranges = Ranges::of(&finding.text);
                // A finding about another member is a separate one.
                let member = finding.evidence.get("member").map(|member| member.to_bits());
                let key = (&finding.name, &finding.command, member, ranges.words.clone());
                let at = *known.entry(key).or_insert(found.len());
                match found.get_mut(at) {
                    Some((_, known, places)) => {
                        known.widen(&ranges);
                        places.push(place.clone());
                    }
                    None => found.push((finding, ranges, vec![place.clone()])),
                }
            }
        }
        let whole = |(finding, ranges, places): (&Finding, Ranges<'_>, Vec<String>)| {
            let mut whole = Finding { text: ranges.text(), ..finding.clone() };
            if places.len() > 1 {
                whole.evidence.clear();
            }
            (whole, places)
        };
        found.into_iter().map(whole).collect()
    }
}

/// A sentence whose numbers are ranges: words, and between each two of them a number.
struct Ranges<'t> {
    words: Vec<&'t str>,
    /// As written, the smallest and the largest.
    numbers: Vec<(&'t str, &'t str)>,
}

impl<'t> Ranges<'t> {
    /// Digits inside names (`raid5`, `lane-0`) are words.
    fn of(text: &'t str) -> Ranges<'t> {
        let (mut words, mut numbers, mut start, mut at) = (Vec::new(), Vec::new(), 0, 0);
        let bytes = text.as_bytes();
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        while at < bytes.len() {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.".contains(&byte);
            if !digit(at) || (at > 0 && inside(bytes[at - 1])) {
                at += 1;
                continue;
            }
            let first = at;
            while digit(at) || (matches!(bytes.get(at), Some(b'.' | b',')) && digit(at + 1)) {
                at += 1;
            }
            words.push(&text[start..first]);
            numbers.push((&text[first..at], &text[first..at]));
            start = at;
        }
        words.push(&text[start..]);
        Ranges { words, numbers }
    }

    fn widen(&mut self, other: &Ranges<'t>) {
        let value = |text: &str| text.replace(',', "").parse::<f64>().unwrap_or(0.0);
        for (mine, theirs) in self.numbers.iter_mut().zip(&other.numbers) {
            if value(theirs.0) < value(mine.0) {
                mine.0 = theirs.0;
            }
            if value(theirs.1) > value(mine.1) {
                mine.1 = theirs.1;
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (word, (low, high)) in self.words.iter().zip(&self.numbers) {
            text.push_str(word);
            text.push_str(low);
            if low != high {
                text.push_str(&format!(" to {high}"));
            }
        }
        text.push_str(self.words.last().unwrap_or(&""));
        text
    }
}

/// The words of a text, without its numbers.
fn but_for_numbers(text: &str) -> String {
    let number = |letter: char| letter.is_ascii_digit() || letter == '.';
    text.split(number).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\0")
}

/// The rows of a section while cells are added.
#[derive(Default)]
struct SectionBuilder<'a> {
    rows: Vec<Row<'a>>,
    /// The rows with each label.
    by_label: HashMap<String, Vec<usize>>,
}

impl<'a> SectionBuilder<'a> {
    fn put(&mut self, label: String, column: usize, columns: usize, cell: &'a Cell) {
        let rows = self.by_label.entry(label.clone()).or_default();
        // A cell that was measured twice gets a row of its own.
        if let Some(row) = rows.iter().find(|row| self.rows[**row].cells[column].is_none()) {
            self.rows[*row].cells[column] = Some(cell);
            return;
        }
        rows.push(self.rows.len());
        let mut cells = vec![None; columns];
        cells[column] = Some(cell);
        self.rows.push(Row { label, cells });
    }
}

impl Section<'_> {
    /// `1 disk`, `4 disks`.
    pub fn title(&self) -> String {
        match self.disks {
            0 => "disks unknown".to_string(),
            1 => "1 disk".to_string(),
            disks => format!("{disks} disks"),
        }
    }
}

/// Display name of an array: `ordinary disk`, `RAID 10,f2`, `RAID 5, 1 lost`, `raid1(raid0(2),..)`;
/// a directory or device whose array is unknown is named by its place: `path:DIR`.
pub fn array_label(cell: &Cell) -> String {
    if cell.case.level.is_empty() && cell.case.array.is_none() {
        let target = Some(cell.target_shown()).filter(|target| !target.is_empty());
        let place = cell.place_shown().or(target);
        return place.unwrap_or_else(|| "unknown place".to_string());
    }
    let usual = |layout: &Word<LayoutName>| layout.known().is_some_and(LayoutName::is_usual);
    let layout = cell.case.layout.as_ref().filter(|layout| !usual(layout));
    let name = match &cell.case.array {
        Some(array) => array.clone(),
        None if cell.is_single() => "ordinary disk".to_string(),
        None => {
            let level = level_name(&cell.case.level.text());
            layout.map_or(level.clone(), |layout| format!("{level},{layout}"))
        }
    };
    match cell.case.degraded {
        0 => name,
        lost => format!("{name}, {lost} lost"),
    }
}

/// `RAID 5` of `raid5`, and of the words of others: `RAID Z2` of `raidZ2`.
fn level_name(word: &str) -> String {
    word.strip_prefix("raid").map_or(word.to_string(), |number| format!("RAID {number}"))
}

/// An array with its number of disks, where that is known: `RAID 5 x4`.
pub fn with_disks(label: &str, cell: &Cell) -> String {
    match cell.case.disks {
        0 => label.to_string(),
        disks => format!("{label} x{disks}"),
    }
}

/// The number of disks for a column of a table.
pub fn disks(cell: &Cell) -> String {
    if cell.case.disks == 0 { "-".to_string() } else { cell.case.disks.to_string() }
}

/// Names columns of one program and phase by the program's options where these differ.
fn tell_apart(columns: &mut [Column]) {
    let mut options: HashMap<Option<String>, HashSet<Option<String>>> = HashMap::new();
    for column in columns.iter() {
        options.entry(column.phase.clone()).or_default().insert(column.canonical_item());
    }
    for column in columns.iter_mut().filter(|column| options[&column.phase].len() > 1) {
        let Column { phase: Some(phase), item: Some(item), .. } = column else { continue };
        // Versions of programs have no spaces.
        let name = phase.split_once(' ').map_or(phase.as_str(), |(_, name)| name);
        column.phase = Some(format!("{item} {name}"));
    }
}

/// The column of each cell. Blocks that differ from array to array but not within one (sequential
/// writes of whole stripes) are one column.
fn columns_of(cells: &[Cell], labels: &[String]) -> Vec<Column> {
    /// The blocks of the columns that differ in nothing else.
    #[derive(Default)]
    struct Blocks<'l> {
        by_row: HashMap<(u32, &'l str), u64>,
        differ: bool,
        differ_in_a_row: bool,
    }
    let own: Vec<Column> = cells.iter().map(Column::of).collect();
    let groups: Vec<ColumnKey> = own.iter().map(|column| column.of_any_block().key()).collect();
    let mut blocks: HashMap<&ColumnKey, Blocks<'_>> = HashMap::new();
    for ((cell, label), group) in cells.iter().zip(labels).zip(&groups) {
        let group = blocks.entry(group).or_default();
        let block = cell.case.block_kib.to_bits();
        group.differ |= group.by_row.values().next().is_some_and(|first| *first != block);
        let of_row = *group.by_row.entry((cell.case.disks, label)).or_insert(block);
        group.differ_in_a_row |= of_row != block;
    }
    let merged = |group: &ColumnKey| blocks[group].differ && !blocks[group].differ_in_a_row;
    let columns = own.into_iter().zip(&groups).zip(cells).map(|((own, group), cell)| {
        let stripes = [AccessKind::SeqWrite, AccessKind::SeqMixed];
        let any = stripes.iter().any(|kind| cell.case.workload == *kind) && merged(group);
        if any { own.of_any_block() } else { own }
    });
    columns.collect()
}

/// The label of each cell's row.
fn labels_of(cells: &[Cell], settings: &[&Setting]) -> Vec<String> {
    cells.iter().map(|cell| row_label(cell, settings)).collect()
}

fn row_label(cell: &Cell, settings: &[&Setting]) -> String {
    let name = array_label(cell);
    // An array named by its place does not repeat it.
    let in_name =
        |said: &str| cell.case.level.is_empty() && name.split(':').any(|part| part == said);
    let said = settings.iter().filter_map(|setting| in_row(setting)?(cell));
    let said = said.filter(|said| !said.is_empty() && *said != name && !in_name(said));
    let said: Vec<String> = said.collect();
    std::iter::once(name.clone()).chain(said).collect::<Vec<_>>().join(" ")
}

/// How a setting is shown in the label of a row.
fn in_row(setting: &Setting) -> Option<Short> {
    match setting.shown_in {
        ShownIn::Row(short) | ShownIn::RowOrAbsent(short) => Some(short),
        _ => None,
    }
}

/// Which part of a modelled disk a cell uses: `over the whole stroke`, `128 MiB at the edge`. Empty
/// where there is no such disk. Flash has no places: it is empty, or scaled to the member.
pub fn stretch_of_disk(cell: &Cell) -> String {
    let size =
        cell.case.member_bytes.map_or(String::new(), |size| format!("{} ", units::bytes(size)));
    match cell.case.placement.as_deref() {
        Some("stretch") => "the whole disk".to_string(),
        Some("window@0") => format!("{size}at the outer edge"),
        Some("fresh") => "empty flash".to_string(),
        Some("scaled") => "a whole drive, scaled".to_string(),
        Some(other) => match other.strip_prefix("window@") {
            Some(at) => format!("{size}at {at} of the stroke"),
            None => other.to_string(),
        },
        None => String::new(),
    }
}

/// Labels of the arrays, unique among these cells; `with_chunk`: including the chunk size.
pub fn labels(cells: &[Cell], with_chunk: bool) -> Vec<String> {
    labels_without(cells, if with_chunk { &[] } else { &[settings::CHUNK] })
}

/// The settings that differ among these cells, of each, without the name of its array.
pub fn conditions(cells: &[Cell]) -> Vec<String> {
    let varying = varying(cells);
    let of = |cell: &Cell| {
        let said = varying.iter().filter_map(|setting| in_row(setting)?(cell));
        said.filter(|said| !said.is_empty()).collect::<Vec<_>>().join(" ")
    };
    cells.iter().map(of).collect()
}

/// As [`labels`], without target and place.
pub fn labels_but_for_places(cells: &[Cell]) -> Vec<String> {
    labels_without(cells, &[settings::TARGET, settings::PLACE])
}

/// As [`labels`], without the stated load.
pub fn labels_but_for_load(cells: &[Cell]) -> Vec<String> {
    labels_without(cells, &[settings::RATE])
}

fn labels_without(cells: &[Cell], left_out: &[&str]) -> Vec<String> {
    let mut settings = varying(cells);
    settings.retain(|setting| !left_out.contains(&setting.name));
    labels_of(cells, &settings)
}

/// The settings that rows show and that differ between cells.
fn varying(cells: &[Cell]) -> Vec<&'static Setting> {
    let differs = |short: Short| {
        let mut values = cells.iter().filter_map(short);
        values.next().is_some_and(|first| values.any(|value| value != first))
    };
    // The absence of a bus is a setting, too; a single disk has none of the settings.
    let only_some = |short: Short| {
        let mut arrays = cells.iter().filter(|cell| !cell.is_single());
        let first = arrays.next().map(|cell| short(cell).is_some());
        first.is_some_and(|first| arrays.any(|cell| short(cell).is_some() != first))
    };
    let shown = SETTINGS.iter().filter(|setting| match setting.shown_in {
        ShownIn::Row(short) => differs(short),
        ShownIn::RowOrAbsent(short) => differs(short) || only_some(short),
        _ => false,
    });
    shown.collect()
}

/// The first of some places, and the number of the others.
pub fn some(places: &[String]) -> String {
    const PLACES_MAX: usize = 3;
    let more = places.len().saturating_sub(PLACES_MAX);
    let mut shown = places[..places.len() - more].join("; ");
    if more > 0 {
        shown.push_str(&format!("; and {more} more"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use md::Level;

    use super::*;

    #[test]
    fn the_default_matrix_stands_side_by_side() {
        let record = fixture::record();
        let grid = PivotTable::new(&record);
        assert!(grid.side_by_side());
        let titles: Vec<_> = grid.columns.iter().map(Column::title).collect();
        assert_eq!(titles, ["sequential read", "random read", "sequential write", "random write"]);
        let disks: Vec<u32> = grid.sections.iter().map(|section| section.disks).collect();
        assert_eq!(disks, [1, 2, 4]);
        let labels: Vec<&str> =
            grid.sections[1].rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["RAID 0", "RAID 1", "RAID 10,n2", "RAID 10,f2", "RAID 10,o2"]);
        assert!(grid.sections[2].rows.iter().any(|row| row.label == "RAID 6, 1 lost"));
        assert_eq!(grid.cells().count(), record.cells.len());
    }

    #[test]
    fn what_varies_is_named_and_nothing_gets_lost() {
        let mut record = fixture::record();
        let mut again = record.cells.clone();
        for cell in &mut again {
            cell.case.chunk_kib = cell.case.chunk_kib.map(|_| 512);
            cell.case.depth =
                if cell.case.workload == AccessKind::RandRead { 32 } else { cell.case.depth };
        }
        let single = record.cells[0].clone();
        record.cells.extend(again);
        record.cells.push(single);
        let grid = PivotTable::new(&record);
        assert_eq!(grid.columns.len(), 5);
        assert!(!grid.side_by_side());
        let labels: Vec<&str> =
            grid.sections.iter().flat_map(|s| &s.rows).map(|row| row.label.as_str()).collect();
        assert!(labels.contains(&"RAID 5 64KiB") && labels.contains(&"RAID 5 512KiB"));
        assert!(labels.contains(&"RAID 1"), "no chunk, no label: {labels:?}");
        assert_eq!(grid.cells().count(), record.cells.len());
    }

    /// Quadratic work in it would take most of a minute.
    #[test]
    fn a_sweep_of_10_000_cells_is_arranged() {
        let mut record = fixture::record();
        let one = record
            .cells
            .iter()
            .find(|cell| cell.md_level() == Some(Level::Raid5))
            .expect("one")
            .clone();
        record.cells.clear();
        for chunk in 0..100 {
            for depth in 1..=100 {
                let chunk_kib = Some(4 << (chunk % 10));
                let warnings = vec![format!("{chunk} operations were late")];
                record.cells.push(one.clone().with(|it| {
                    it.case.chunk_kib = chunk_kib;
                    it.case.depth = depth;
                    it.derived.warnings = warnings;
                }));
            }
        }
        let grid = PivotTable::new(&record);
        assert_eq!(grid.columns.len(), 100);
        assert_eq!(grid.sections[0].rows.len(), 100, "ten chunk sizes, each ten times");
        assert_eq!(grid.cells().count(), 10_000);
        assert_eq!(grid.cells_of(0).count(), 100);
        assert_eq!(grid.warnings().len(), 1, "they differ in their numbers only");
    }

    #[test]
    fn the_sentence_of_a_group_is_true_of_each_cell_in_it() {
        let finding = |text: &str, command: Option<&str>| Finding {
            name: "read-modify-write".into(),
            text: text.into(),
            evidence: [("read".to_string(), 1.0)].into(),
            command: command.map(String::from),
        };
        let mut record = fixture::record();
        record.cells.iter_mut().for_each(|cell| cell.derived.findings.clear());
        let said = |reads: &str, writes: &str| {
            let text = format!("members read {reads} and wrote {writes} (lane-1): all of 1,024 B");
            vec![finding(&text, None)]
        };
        record.cells[28].derived.findings = said("2.00", "2.00");
        record.cells[32].derived.findings = said("1.50", "12.0");
        record.cells[36].derived.findings = said("1.00", "2.00");
        let grid = PivotTable::new(&record);
        let found = grid.findings();
        assert_eq!(found.len(), 1);
        let wanted = "members read 1.00 to 2.00 and wrote 2.00 to 12.0 (lane-1): all of 1,024 B";
        assert_eq!((found[0].0.text.as_str(), found[0].1.len()), (wanted, 3));
        assert!(found[0].0.evidence.is_empty(), "one cell's would stand for all");
        // Another text, or other advice, is another finding.
        record.cells[36].derived.findings = vec![finding("one member moved nothing", None)];
        record.cells[32].derived.findings =
            vec![finding(&said("1", "2")[0].text, Some("--block 1M"))];
        assert_eq!(PivotTable::new(&record).findings().len(), 3);
    }

    #[test]
    fn places_say_the_depth_where_only_that_tells_them_apart() {
        let mut record = fixture::record();
        record.cells.truncate(8);
        let mut deeper = record.cells[4].clone();
        deeper.case.depth *= 4;
        record.cells.push(deeper);
        record.cells.iter_mut().for_each(|cell| cell.derived.warnings = vec!["of all".into()]);
        record.cells[1].derived.warnings.clear();
        let grid = PivotTable::new(&record);
        let places = &grid.warnings()[0].1;
        assert!(places.iter().any(|place| place.ends_with("sequential read 1 MiB x 16")));
        assert!(places.iter().any(|place| place.ends_with("sequential read 1 MiB x 4")));
        assert!(places.iter().any(|place| place.ends_with("sequential write")), "{places:?}");
    }

    #[test]
    fn a_program_with_other_options_has_columns_of_its_own() {
        let cell = |item: &str, phase: &str| {
            Cell::default().with(|it| {
                it.case.program = Some("dd-9.1".into());
                it.case.phase = Some(phase.into());
                it.case.item = Some(item.into());
                it.case.workload = "seq-write".into();
                it.case.level = "raid5".into();
                it.case.disks = 4;
            })
        };
        let mut record = fixture::record();
        record.cells = vec![cell("dd", "write"), cell("dd:fdatasync", "write")];
        let titles = |record: &Record| -> Vec<String> {
            PivotTable::new(record)
                .columns
                .iter()
                .map(|column| column.title().to_string())
                .collect()
        };
        assert_eq!(titles(&record), ["dd write", "dd:fdatasync write"]);
        let grid = PivotTable::new(&record);
        assert_eq!(grid.sections[0].rows.len(), 1, "one array, two columns");
        assert!(grid.sections[0].rows[0].cells.iter().all(Option::is_some));
        record.cells = vec![cell("dd:fdatasync", "write"), cell("dd:fdatasync", "read")];
        assert_eq!(titles(&record), ["dd-9.1 write", "dd-9.1 read"], "nothing to tell apart");
        let (job, same, other) = (
            "fio:a.fio@00000000000000aa",
            "fio:b.fio@00000000000000aa",
            "fio:b.fio@00000000000000bb",
        );
        record.cells =
            vec![cell(job, "write"), cell(same, "write").with(|it| it.case.level = "raid6".into())];
        assert_eq!(titles(&record), ["dd-9.1 write"], "one job, whatever it is called");
        record.cells.push(cell(other, "write"));
        let apart = [format!("{job} write"), format!("{other} write")];
        assert_eq!(titles(&record), apart);
    }

    #[test]
    fn to_be_without_a_bus_or_a_channel_tells_arrays_apart_too() {
        let array = |bus_mb_per_s, disks_per_channel| {
            Cell::default().with(|it| {
                it.case.level = "raid0".into();
                it.case.disks = 4;
                it.case.bus_mb_per_s = bus_mb_per_s;
                it.case.disks_per_channel = disks_per_channel;
            })
        };
        let single = Cell::default().with(|it| {
            it.case.level = "single".into();
            it.case.disks = 1;
        });
        let all =
            [single.clone(), array(Some(110.0), Some(2)), array(None, Some(2)), array(None, None)];
        let labels = labels(&all, true);
        assert_eq!(labels[1], "RAID 0 bus=110MB/s 2/channel");
        assert_eq!((labels[2].as_str(), labels[3].as_str()), ("RAID 0 2/channel", "RAID 0"));
        let alike = super::labels(&[single, array(Some(110.0), None)], true);
        assert_eq!(alike[1], "RAID 0", "the ordinary disk is without in any case");
    }

    #[test]
    fn labels_say_what_the_array_is() {
        let cell = |level: &str, layout: Option<&str>, array: Option<&str>, degraded| {
            Cell::default().with(|it| {
                it.case.level = level.into();
                it.case.layout = layout.map(Into::into);
                it.case.array = array.map(str::to_string);
                it.case.degraded = degraded;
            })
        };
        let table = [
            (cell("single", None, None, 0), "ordinary disk"),
            (cell("linear", None, None, 0), "linear"),
            (cell("raid5", Some("left-symmetric"), None, 1), "RAID 5, 1 lost"),
            (cell("raid5", Some("parity-last"), None, 0), "RAID 5,parity-last"),
            (cell("raid10", Some("o2"), None, 0), "RAID 10,o2"),
            (cell("raid1", None, Some("raid1(raid0(2),raid0(2))"), 0), "raid1(raid0(2),raid0(2))"),
        ];
        for (cell, label) in table {
            assert_eq!(array_label(&cell), label);
        }
    }

    #[test]
    fn what_nobody_knows_the_array_of_is_called_by_its_place() {
        let place = |name: &str, target: &str| {
            Cell::default().with(|it| {
                it.case.target = target.into();
                it.case.program = Some("dd".into());
                it.case.phase = Some("read".into());
                it.case.workload = "seq-read".into();
                it.case.place =
                    Some(results::record::Place { name: name.into(), ..Default::default() });
                it.derived.warnings = vec!["too short".into()];
            })
        };
        let mut record = fixture::record();
        record.cells = vec![place("path:DIR", "path")];
        let grid = PivotTable::new(&record);
        assert_eq!(grid.sections[0].title(), "disks unknown");
        assert_eq!(grid.sections[0].rows[0].label, "path:DIR");
        assert_eq!(grid.warnings()[0].1, ["path:DIR, dd read"]);
        let array = place("fs:ext4", "fs").with(|it| {
            it.case.level = "raid5".into();
            it.case.disks = 4;
        });
        record.cells.extend([array, place("device:DEV", "device")]);
        let grid = PivotTable::new(&record);
        let labels = grid.sections.iter().flat_map(|section| &section.rows);
        let labels: Vec<&str> = labels.map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["path:DIR", "device:DEV", "RAID 5 fs fs:ext4"]);
        let (_, places) = &grid.warnings()[0];
        assert_eq!(places, &["every cell"]);
        assert_eq!(with_disks("RAID 5", &record.cells[1]), "RAID 5 x4");
    }

    #[test]
    fn a_phase_that_could_not_be_run_stands_in_the_column_of_those_that_were() {
        let create = |level: &str, ops| {
            let mut cell = Cell::default().with(|it| {
                it.case.level = level.into();
                it.case.program = Some("bonnie++-2.00".into());
                it.case.phase = Some("seq-create".into());
                it.case.workload = "create".into();
                it.measured.samples =
                    vec![results::record::Sample { seconds: 1.0, bytes: 0, ops }; ops as usize];
            });
            cell.summarise();
            cell
        };
        let cells = vec![create("raid0", 2), create("raid5", 0)];
        let record = Record { cells, ..fixture::record() };
        let grid = PivotTable::new(&record);
        assert_eq!(grid.columns.len(), 1, "{:?}", grid.columns);
        assert!(grid.columns[0].counts_requests);
    }

    #[test]
    fn warnings_come_once_and_wrong_data_first() {
        let mut record = fixture::record();
        record.cells[3].derived.warnings = vec!["page cache".into()];
        record.cells[4].derived.warnings = vec!["page cache".into()];
        record.cells[5].measured.verified = Some(false);
        let grid = PivotTable::new(&record);
        let warnings = grid.warnings();
        assert!(warnings[0].0.starts_with("DATA DIFFERED"));
        let shared = warnings.iter().find(|(text, _)| text == "page cache").unwrap();
        assert_eq!(shared.1.len(), 2);
        // How many disks is said where that differs, and numbers are those of the first.
        record.cells[3].derived.warnings = vec!["one pass took 0.4 s".into()];
        record.cells[4].derived.warnings = vec!["one pass took 12 s".into()];
        record.cells[4].case.disks += 1;
        let grid = PivotTable::new(&record);
        let warnings = grid.warnings();
        let (_, places) = warnings.iter().find(|(text, _)| text == "one pass took 0.4 s").unwrap();
        let disks = [3, 4].map(|at| format!(" x{}, ", record.cells[at].case.disks));
        assert!(
            places.len() == 2
                && disks
                    .iter()
                    .all(|disks| { places.iter().any(|place| place.contains(disks.as_str())) }),
            "{warnings:?}"
        );
        for cell in &mut record.cells {
            cell.derived.warnings.push("memory is not locked".into());
        }
        let grid = PivotTable::new(&record);
        let found: Vec<_> =
            grid.warnings().into_iter().filter(|(text, _)| text.contains("locked")).collect();
        assert_eq!(found, [("memory is not locked".to_string(), vec!["every cell".to_string()])]);
    }
}
