//! How far the published tables come out here: each figure, and the order of each pair of figures.
//!
//! ```text
//!   a set, our cells -> figures of one work -> pairs 10 % apart or more -> in the same order here?
//!                   \-> figures as ratios to a base (`published`) -> ratio of ratios
//! ```
//!
//! Invariant: figures are paired only within one table, for one work in one unit: arrays on one
//! kind of file system with the same settings, or one array on two. A claim of the text counts as
//! one pair. A pair that was not run counts as wrong. Pure; called by `raidlab report --published`.

use std::cmp::Ordering;

use results::record::{Cell, Record};
use serde::Serialize;
use spec::shown::distinct;
use spec::units::{self, digits};

use crate::charts::bars;
use crate::doc::{self, Block, Chart, Column, Doc, Section, Table, Value};
use crate::pivot;
use crate::published::claims::{ClaimOutcome, Relation, same_phase, same_work};
use crate::published::{Beside, Figure, Published, THE_DISK};
use crate::runs::measured;
use crate::work_names::work_name;

/// Published figures that are closer than this have no order that another machine must show.
pub const MARGIN: f64 = 1.1;

/// The sets of published figures, and what came out of them.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Smallest ratio of two published figures that counts.
    pub margin: f64,
    /// Pairs of published figures that count, and claims.
    pub pairs: usize,
    /// Pairs that are in the same order here.
    pub same_order: usize,
    /// Pairs of which a figure was not run.
    pub not_run: usize,
    /// When and where it was measured: a clause for each day and machine.
    pub measured: Vec<String>,
    /// One for each set.
    pub sets: Vec<SetReproduction>,
}

/// One set.
#[derive(Clone, Debug, Serialize)]
pub struct SetReproduction {
    /// Its name in sweep files.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// The machine that it was published of.
    pub system: String,
    /// What was measured here: targets, disks, sizes of files.
    pub measured: String,
    /// The figures are limits that the sweep sets: nothing is counted.
    pub limits: bool,
    /// Pairs of published figures that count.
    pub pairs: usize,
    /// Pairs that are in the same order here.
    pub same_order: usize,
    /// Pairs of which a figure was not run, or only on a busy machine.
    pub not_run: usize,
    /// Figures that stand beside none of our cells.
    pub figures_not_run: usize,
    /// Figures that were run: those with a ratio on both sides first, the most distant first.
    pub figures: Vec<Distance>,
    /// Pairs of published figures that count and are in another order here, those that were
    /// published farthest apart first.
    pub other_order: Vec<OtherOrder>,
    /// What came out of the claims of the text.
    pub claims: Vec<ClaimOutcome>,
}

/// Two published figures that are in another order here.
#[derive(Clone, Debug, Serialize)]
pub struct OtherOrder {
    /// `put-block`, `seq-read`.
    pub work: String,
    /// The array of the larger published figure, with its file system.
    pub more: String,
    /// The array of the smaller one.
    pub less: String,
    /// Ratio of the larger to the smaller, published.
    pub published: f64,
    /// The same ratio here.
    pub here: f64,
}

/// A figure beside ours, as ratios where both sides have a base.
#[derive(Clone, Debug, Serialize)]
pub struct Distance {
    /// `RAID 5 x4`.
    pub array: String,
    /// `seq-read`.
    pub work: String,
    /// File system and remarks of the source.
    pub details: String,
    /// The published figure, in `unit`.
    pub published: f64,
    /// Our figure, in `unit`.
    pub here: f64,
    /// `MB/s`, `per second` or `times one disk`.
    pub unit: &'static str,
    /// The ratios; `None`: it is itself the base, or there is none.
    pub ratios: Option<RatioOfRatios>,
    /// The published CPU load, percent; the source says whether of the program or the machine.
    pub published_cpu_percent: Option<f64>,
    /// CPU load of raidlab's process here, percent of one CPU.
    pub here_cpu_percent: Option<f64>,
    /// The array is above its number of disks times the ordinary disk: the base is of another
    /// access, or a cache was measured.
    pub is_above_all_disks: bool,
}

impl Distance {
    /// Its details, and what is wrong with its ratio.
    pub fn details_shown(&self) -> String {
        let said = self.is_above_all_disks.then_some(ABOVE_ALL_DISKS);
        let parts = [Some(self.details.as_str()).filter(|text| !text.is_empty()), said];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A figure's ratios to a base.
#[derive(Clone, Debug, Serialize)]
pub struct RatioOfRatios {
    /// The base of both ratios.
    pub of: String,
    /// The published ratio.
    pub published: f64,
    /// Our ratio.
    pub here: f64,
    /// Our ratio over the published one.
    pub here_over_published: f64,
}

/// What stands beside a ratio above the number of disks.
pub const ABOVE_ALL_DISKS: &str = "above the number of disks";

impl Reproduction {
    /// Of each set with its cells; `measured`: [`provenance`] of the runs that they are from.
    pub fn of(sets: &[(Published, Record)], measured: Vec<String>) -> Reproduction {
        let sets: Vec<SetReproduction> =
            sets.iter().map(|(set, record)| of_set(set, record)).collect();
        let sum = |of: fn(&SetReproduction) -> usize| sets.iter().map(of).sum();
        Reproduction {
            margin: MARGIN,
            pairs: sum(|set| set.pairs),
            same_order: sum(|set| set.same_order),
            not_run: sum(|set| set.not_run),
            measured,
            sets,
        }
    }
}

/// The share of pairs in the same order, each table with the same weight; `None` without pairs.
pub fn by_table(all: &Reproduction) -> Option<f64> {
    let counted = all.sets.iter().filter(|set| !set.limits && set.pairs > 0);
    let shares: Vec<f64> = counted.map(|set| set.same_order as f64 / set.pairs as f64).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

/// [`share`] of all pairs, and of the tables: one table may have most of the pairs.
pub fn shares(all: &Reproduction) -> String {
    let pairs = share(all.pairs, all.same_order, all.not_run);
    match by_table(all) {
        Some(tables) => {
            format!("{pairs}; each table with the same weight: {:.0} %", 100.0 * tables)
        }
        None => pairs,
    }
}

/// When, by which version and on what a record was made: a clause. Runs of one day on one machine
/// have the same.
pub fn provenance(record: &Record) -> String {
    let host = &record.machines()[0];
    let day = record.started.get(..10).unwrap_or(&record.started);
    let kind = if host.virtual_machine == Some(true) { "virtual, " } else { "" };
    let parts = [
        Some(day.to_string()),
        Some(format!("raidlab {}", record.raidlab)),
        host.cpu.clone(),
        host.cores.map(|cores| format!("{kind}{cores} CPUs")),
        host.kernel.clone(),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// As [`share`], of a set.
pub fn share_of(set: &SetReproduction) -> String {
    match set.limits {
        true => "limits that the sweep sets, not counted".to_string(),
        false => share(set.pairs, set.same_order, set.not_run),
    }
}

/// `31 of 40 comparisons (78 %) come out in the same order; 4 were not run`.
pub fn share(pairs: usize, same_order: usize, not_run: usize) -> String {
    if pairs == 0 {
        return "no two published figures can be compared".to_string();
    }
    let percent = 100.0 * same_order as f64 / pairs as f64;
    format!(
        "{same_order} of {pairs} comparisons ({percent:.0} %) come out in the same order; \
         {not_run} were not run"
    )
}

fn of_set(set: &Published, record: &Record) -> SetReproduction {
    let beside = set.beside(record);
    let (mut pairs, mut same_order, mut not_run) = (0, 0, 0);
    let mut other_order = Vec::new();
    let counted = if set.limits { &[] } else { &set.figures[..] };
    for (at, one) in counted.iter().enumerate() {
        for two in set.figures[..at].iter().filter(|two| comparable(one, two)) {
            let published = one.in_our_unit().1 / two.in_our_unit().1;
            if published.max(1.0 / published) < MARGIN {
                continue;
            }
            pairs += 1;
            match ours(&beside, one, two) {
                Some(ours) if (ours > 1.0) == (published > 1.0) && ours != 1.0 => same_order += 1,
                Some(ours) => other_order.push(OtherOrder::of(one, two, published, ours)),
                None => not_run += 1,
            }
        }
    }
    let claims: Vec<ClaimOutcome> = set.claims.iter().map(|claim| claim.outcome(record)).collect();
    if !set.limits {
        pairs += claims.len();
        same_order += claims.iter().filter(|claim| claim.holds == Some(true)).count();
        not_run += claims.iter().filter(|claim| claim.holds.is_none()).count();
    }
    let found = |figure: &&Figure| beside.iter().any(|one| std::ptr::eq(one.figure, *figure));
    SetReproduction {
        name: set.name.clone(),
        title: set.title.clone(),
        source: set.source.clone(),
        system: set.system.clone(),
        measured: measured_here(record),
        limits: set.limits,
        pairs,
        same_order,
        not_run,
        figures_not_run: set.figures.len() - set.figures.iter().filter(found).count(),
        figures: distances(&beside),
        other_order: {
            other_order.sort_by(|one: &OtherOrder, two| two.published.total_cmp(&one.published));
            other_order
        },
        claims,
    }
}

/// What the cells of a set are of: targets and disks, the CPU and memory of a kernel, files.
fn measured_here(record: &Record) -> String {
    let names = |names: Vec<String>, what: &str| match names.is_empty() {
        true => None,
        false => Some(format!("{what}{}", names.join(", "))),
    };
    let of = |field: fn(&Cell) -> Option<String>| distinct(record.cells.iter().filter_map(field));
    let places = of(|cell| cell.place_shown());
    let bytes = of(|cell| cell.case.file_bytes.map(units::show_size));
    let parts = [
        Some(measured(&record.cells)).filter(|text| !text.is_empty()),
        names(places, "targets "),
        names(bytes, "files of "),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

impl OtherOrder {
    fn of(one: &Figure, two: &Figure, published: f64, ours: f64) -> OtherOrder {
        let (more, less) = if published > 1.0 { (one, two) } else { (two, one) };
        let turned = |ratio: f64| if published > 1.0 { ratio } else { 1.0 / ratio };
        let work = one.phase.clone().unwrap_or_else(|| one.workload.to_string());
        OtherOrder {
            work,
            more: more.array_shown(),
            less: less.array_shown(),
            published: turned(published),
            here: turned(ours),
        }
    }
}

/// Whether two figures are of one work in one unit, and differ in the array alone, or in all else.
fn comparable(one: &Figure, two: &Figure) -> bool {
    let work = |figure: &Figure| {
        let work = (figure.workload.clone(), figure.program.clone(), figure.phase.clone());
        (work, figure.in_our_unit().0)
    };
    work(one) == work(two) && (same_setting(one, two) != one.same_array(two))
}

/// Whether both are on one kind of file system with the same settings.
fn same_setting(one: &Figure, two: &Figure) -> bool {
    let setting =
        |figure: &Figure| (figure.file_system.clone(), figure.block_bytes, figure.cell.clone());
    setting(one) == setting(two)
}

/// Ratio of our figures, which must be of one work, and in one place where the published ones are.
fn ours(beside: &[Beside<'_>], one: &Figure, two: &Figure) -> Option<f64> {
    let of = |figure: &Figure| {
        let found = |found: &&Beside<'_>| found.ours > 0.0 && *found.figure == *figure;
        let mut all: Vec<&Beside<'_>> = beside.iter().filter(found).collect();
        if figure.best {
            all.sort_by(|one, two| two.ours.total_cmp(&one.ours));
        }
        all
    };
    let (ones, twos) = (of(one), of(two));
    let one_place = same_setting(one, two);
    let places = |one: &Cell, two: &Cell| match one_place {
        true => one.place_name() == two.place_name(),
        // A block workload has no file system: it is no measurement of two.
        false => !std::ptr::eq(one, two),
    };
    let ratio = |alike: fn(&Cell, &Cell) -> bool| {
        ones.iter().find_map(|one| {
            let alike =
                |two: &&&Beside<'_>| alike(one.cell, two.cell) && places(one.cell, two.cell);
            twos.iter().find(alike).map(|two| one.ours / two.ours)
        })
    };
    ratio(same_work).or_else(|| ratio(same_phase))
}

fn distances(beside: &[Beside<'_>]) -> Vec<Distance> {
    let distance = |one: &Beside<'_>| {
        let ratios = one.ratios.as_ref().filter(|both| both.ours > 0.0 && both.theirs > 0.0);
        let ratios = ratios.map(|both| RatioOfRatios {
            of: both.of.clone(),
            published: both.theirs,
            here: both.ours,
            here_over_published: both.ours / both.theirs,
        });
        let chunk = one.cell.case.chunk_kib.map(|chunk| format!(" {chunk}KiB")).unwrap_or_default();
        let array = format!("{}{chunk}", pivot::array_label(one.cell));
        let of_the_disk = ratios.as_ref().filter(|all| all.of == THE_DISK);
        let disks = f64::from(one.cell.case.disks);
        let is_above_all_disks = of_the_disk.is_some_and(|all| all.here > 1.02 * disks);
        (one.ours > 0.0).then(|| Distance {
            array: pivot::with_disks(&array, one.cell),
            work: work_name(one.cell),
            details: one.figure.details(),
            published: one.theirs,
            here: one.ours,
            unit: one.unit,
            ratios,
            published_cpu_percent: one.figure.cpu_percent,
            here_cpu_percent: one.cell.derived.cpu_process_share.map(|share| 100.0 * share),
            is_above_all_disks,
        })
    };
    let mut all: Vec<Distance> = beside.iter().filter_map(distance).collect();
    all.sort_by(farther_first);
    all
}

fn farther_first(one: &Distance, two: &Distance) -> Ordering {
    let distance =
        |of: &Distance| of.ratios.as_ref().map_or(-1.0, |all| all.here_over_published.ln().abs());
    distance(two).total_cmp(&distance(one))
}

/// Figures of each set in the terminal; the other forms have all.
const FIGURES_MAX: usize = 5;

/// `holds (105 above 100)`, `does not hold (100, 120)`, `was not run`.
pub fn verdict(claim: &ClaimOutcome) -> String {
    let Some([more, less]) = claim.here else { return "was not run".to_string() };
    let (more, less) = (digits(more), digits(less));
    match (claim.holds, claim.relation) {
        (Some(true), Relation::Above) => format!("holds ({more} above {less})"),
        (Some(true), Relation::Alike) => format!("holds ({more} and {less})"),
        _ => format!("does not hold ({more} and {less})"),
    }
}

/// `CPU 12 % published, 31 % here`; `None` where neither is given.
pub fn cpu(one: &Distance) -> Option<String> {
    let percent = |value: f64| format!("{value:.0} %");
    let here = one.here_cpu_percent.map_or("-".to_string(), percent);
    one.published_cpu_percent.map(|published| format!("{} / {here}", percent(published)))
}

/// For the terminal: the most distant figures of each set.
pub fn text(all: &Reproduction) -> String {
    doc::terminal(&document(all, FIGURES_MAX), false)
}

/// As Markdown.
pub fn markdown(all: &Reproduction) -> String {
    doc::markdown(&document(all, usize::MAX))
}

/// As a page.
pub fn html(all: &Reproduction) -> String {
    doc::html(&document(all, usize::MAX))
}

fn document(all: &Reproduction, figures_max: usize) -> Doc {
    let subtitle = format!(
        "{}. Pairs within one table count where the published figures are {:.0} % apart or more. \
         A claim of a text counts as a pair.",
        shares(all),
        (MARGIN - 1.0) * 100.0
    );
    let measured = (!all.measured.is_empty())
        .then(|| Block::Paragraph(format!("Measured: {}.", all.measured.join("; "))));
    let mut sections = vec![Section::new("", measured.into_iter().collect())];
    sections.extend(all.sets.iter().map(|set| section(set, figures_max)));
    Doc { title: "Published figures and ours".into(), subtitle, ..Doc::of(sections) }
}

fn section(set: &SetReproduction, figures_max: usize) -> Section {
    let paragraph = |text: String| Block::Paragraph(text);
    let mut blocks = vec![
        paragraph(format!("{}.", set.source)),
        paragraph(format!("{}. Figures not run: {}.", share_of(set), set.figures_not_run)),
    ];
    if !set.system.is_empty() {
        blocks.push(paragraph(format!("Published of: {}.", set.system)));
    }
    if !set.measured.is_empty() {
        blocks.push(paragraph(format!("Measured here: {}.", set.measured)));
    }
    blocks.extend(in_other_order(set, figures_max));
    let mut claims = Table::new("", Column::all(&["<claim of the text", "<compared", "<here"]));
    for claim in &set.claims {
        claims.push([&claim.says, &claim.of, &verdict(claim)]);
    }
    blocks.extend(claims.block());
    let bars: Vec<(String, f64, f64)> = set.figures.iter().filter_map(bar).collect();
    if !bars.is_empty() {
        let svg = bars::pairs(&format!("{}: ratios here and published", set.title), &bars);
        let (title, detail) = ("Ratios here and published", "the most distant first");
        let (title, detail) = (title.to_string(), detail.to_string());
        blocks.push(Block::Charts(vec![Chart { title, detail, svg, table: None }]));
    }
    let mut figures = Table::new("", Column::all(&HEADS));
    set.figures.iter().take(figures_max).for_each(|one| figures.push(row(one)));
    blocks.extend(figures.block());
    let more = set.figures.len().saturating_sub(figures_max);
    if more > 0 {
        blocks.push(paragraph(format!("and {more} nearer ones: --markdown or --html has all")));
    }
    Section::new(format!("{} ({})", set.title, set.name), blocks)
}

/// The pairs that did not come out, those that were published farthest apart first.
fn in_other_order(set: &SetReproduction, rows_max: usize) -> Option<Block> {
    let heads = ["<work", "<published: this", "<above this", "published", "here"];
    let mut table = Table::new("In another order here", Column::all(&heads));
    for pair in set.other_order.iter().take(rows_max) {
        table.push([
            Value::Text(pair.work.clone()),
            Value::Text(pair.more.clone()),
            Value::Text(pair.less.clone()),
            Value::times(Some(pair.published)),
            Value::times(Some(pair.here)),
        ]);
    }
    table.block()
}

fn bar(one: &Distance) -> Option<(String, f64, f64)> {
    let ratios = one.ratios.as_ref()?;
    Some((format!("{}, {}", one.array, one.work), ratios.here, ratios.published))
}

const HEADS: [&str; 11] = [
    "<array",
    "<work",
    "published",
    "here",
    "<unit",
    "<ratio of",
    "published",
    "here",
    "ratio of ratios",
    "<CPU, published / here",
    "~note",
];

fn row(one: &Distance) -> [Value; 11] {
    let ratios = one.ratios.as_ref();
    let distance = ratios.map(|all| format!("{:.2}", all.here_over_published));
    [
        Value::Text(one.array.clone()),
        Value::Text(one.work.clone()),
        Value::Text(digits(one.published)),
        Value::Text(digits(one.here)),
        Value::Text(one.unit.to_string()),
        Value::known(ratios.map(|ratios| ratios.of.clone())),
        Value::times(ratios.map(|ratios| ratios.published)),
        Value::times(ratios.map(|ratios| ratios.here)),
        Value::known(distance),
        Value::Text(cpu(one).unwrap_or_default()),
        Value::Text(one.details_shown()),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use results::host::Host;

    use super::*;
    use crate::published::named;

    fn cell(level: &str, workload: &str, rate: f64) -> Cell {
        Cell::default().with(|it| {
            it.case.level = level.into();
            it.case.disks = if level == "single" { 1 } else { 2 };
            it.case.chunk_kib = (level == "raid0").then_some(256);
            it.case.workload = workload.into();
            it.derived.mb_per_s = rate;
        })
    }

    fn wiki(cells: Vec<Cell>) -> Reproduction {
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = cells;
        record.set_ratios();
        Reproduction::of(
            &[(named("wiki-2-disks").expect("the wiki"), record)],
            vec!["2026-11-23, raidlab 0".into()],
        )
    }

    #[test]
    fn pairs_count_where_they_differ_and_those_not_run_are_wrong() {
        let nothing = wiki(Vec::new());
        assert_eq!((nothing.pairs, nothing.same_order, nothing.not_run), (25, 0, 25));
        assert_eq!(nothing.sets[0].figures_not_run, 20);
        // Published: 82, 155 and 80 MB/s. The first and the last are too close to count.
        let disk = cell("single", "seq-read", 50.0);
        let (zero, one) = (cell("raid0", "seq-read", 90.0), cell("raid1", "seq-read", 60.0));
        let some = wiki(vec![disk.clone(), zero.clone(), one]);
        assert_eq!((some.pairs, some.same_order, some.not_run), (25, 2, 23));
        // RAID 0 is no longer above RAID 1; equal figures are in no order.
        let some = wiki(vec![disk.clone(), zero.clone(), cell("raid1", "seq-read", 90.0)]);
        assert_eq!((some.same_order, some.not_run), (1, 23));
        let [other] = some.sets[0].other_order.as_slice() else { panic!("{some:?}") };
        let names = (other.work.as_str(), other.more.as_str(), other.less.as_str());
        let blocks = "ext3, 4096-byte blocks";
        let arrays = (format!("RAID 0 x2 256KiB, {blocks}"), format!("RAID 1 x2, {blocks}"));
        assert_eq!(names, ("seq-read", arrays.0.as_str(), arrays.1.as_str()));
        assert_eq!((other.published, other.here), (155.0 / 80.0, 1.0));
        let text = markdown(&some);
        assert!(text.contains("Published of: 2 x Hitachi Ultrastar A7K1000 1 TB"), "{text}");
        assert!(
            text.contains(&format!("| {} | {} | 1.94x | 1.00x |", arrays.0, arrays.1)),
            "{text}"
        );
        // A program's options may differ from array to array.
        let streams = |level: &str, block: &str, rate| {
            cell(level, "seq-read", rate).with(|it| {
                it.case.program = Some("streams".into());
                it.case.phase = Some("read-random".into());
                it.case.item = Some(format!("streams:block={block}"));
            })
        };
        let some = wiki(vec![streams("single", "128K", 30.0), streams("raid0", "1M", 90.0)]);
        assert_eq!((some.same_order, some.not_run), (1, 24));
        // Another depth is another measurement.
        let some = wiki(vec![disk.with(|it| it.case.depth = 9), zero]);
        assert_eq!((some.same_order, some.not_run), (0, 25));
    }

    #[test]
    fn a_figure_without_a_base_is_shown_with_ours() {
        let all = wiki(vec![cell("raid0", "seq-read", 90.0)]);
        let [one] = all.sets[0].figures.as_slice() else { panic!("{all:?}") };
        assert!(one.ratios.is_none());
        let row = ["RAID 0 256KiB x2", "seq-read", "155", "90.0", "MB/s", "-", "-", "-", "-"];
        assert_eq!(words(&text(&all), "RAID 0"), row.join(" ") + " ext3, 4096-byte blocks");
        let cells = "| 155 | 90.0 | MB/s | - | - | - | - |";
        assert!(markdown(&all).contains(cells), "{}", markdown(&all));
        let page = html(&all);
        let cells = "<td class=\"right\">155</td><td class=\"right\">90.0</td>";
        assert!(page.contains(cells) && !page.contains("<svg"), "{page}");
    }

    /// The line that begins so, with one blank between words.
    fn words(text: &str, begin: &str) -> String {
        let line = text.lines().find(|line| line.starts_with(begin)).expect("a line");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn figures_are_sorted_by_distance_in_every_form() {
        let all = wiki(vec![
            cell("single", "seq-read", 50.0),
            cell("raid1", "seq-read", 25.0),
            cell("raid0", "seq-read", 90.0),
        ]);
        let order: Vec<&str> = all.sets[0].figures.iter().map(|one| one.array.as_str()).collect();
        assert_eq!(order, ["RAID 1 x2", "RAID 0 256KiB x2", "ordinary disk x1"]);
        let text = text(&all);
        let share = "2 of 25 comparisons (8 %) come out in the same order; 23 were not run";
        assert!(text.starts_with(&format!("Published figures and ours\n{share}")), "{text}");
        assert!(text.contains(&format!("\n{share}. Figures not run: 17.\n")), "{text}");
        assert_eq!(
            words(&text, "RAID 1 x2"),
            "RAID 1 x2 seq-read 80.0 25.0 MB/s the ordinary disk 0.98x 0.50x 0.51 ext3, 4096-byte \
             blocks"
        );
        let row = "| RAID 1 x2 | seq-read | 80.0 | 25.0 | MB/s | the ordinary disk | 0.98x | 0.50x \
                   | 0.51 |  | ext3, 4096-byte blocks |\n";
        assert!(markdown(&all).contains(row), "{}", markdown(&all));
        let page = html(&all);
        let cells = "<td class=\"right\">0.50×</td><td class=\"right\">0.51</td>";
        for part in ["<svg role=", "2 of 25 comparisons (8 %)", cells] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(serde_json::to_string(&all).expect("plain").contains("\"same_order\":2"));
    }
}
