//! Which of several levels is best for which work, as far as the runs show it; what each offers and
//! survives; what degraded mode costs.
//!
//! ```text
//!   cells -> groups of equal conditions -> for each work: runs of each array -> the leader,
//!                                          and whether it is ahead of every other one
//! ```
//!
//! Invariant: only cells are compared that agree in every setting except the level and what follows
//! from it (layout, array, a chunk or a stripe cache that the level does not have, a block of one
//! whole stripe, members of another size below arrays of the same size). A leader is called best by
//! the rules of `compare`: runs, not samples; the interval of each ratio excludes 1, and Holm's
//! correction over all pairs of the work. Pure; called for the terminal, Markdown and the page.

mod redundancy;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use results::record::{Cell, Record};
use results::settings::{CHUNK, identity_but_for};
use results::stats::median;
use spec::units::kib;
use spec::workload::{AccessKind, Kind};

use crate::compare::{ALPHA, FAMILY_ALPHA, Ratio, holm, p_value, ratio, runs_needed};
use crate::pivot;
use crate::work_names::work_names;
use spec::shown::distinct;

pub use redundancy::Redundancy;
pub use text::{sections, short_sections, terminal};

/// The answers of a record; empty where no two levels were measured alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// One for each set of conditions under which several levels were measured.
    pub groups: Vec<Group>,
}

/// Arrays of several levels, measured under the same conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `4 disks`, with the settings that tell it apart from other groups.
    pub conditions: String,
    /// One for each work that at least two of the arrays did.
    pub answers: Vec<Answer>,
    /// The arrays, in the order of the record.
    pub arrays: Vec<Array>,
    /// What missing members cost, where an array was measured both ways.
    pub degraded: Vec<DegradedCost>,
    /// Figures that are compared with none, with the reason.
    pub left_out: Vec<String>,
}

/// An array of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// `RAID 10,f2`.
    pub label: String,
    /// What its geometry gives; `None` where level, layout or size are unknown.
    pub redundancy: Option<Redundancy>,
}

/// The fastest array for one work.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// `sequential read`, `dd write`.
    pub work: String,
    /// `MB/s`, `IOPS`, or `per second` of a program.
    pub unit: &'static str,
    /// The array with the highest median of its runs.
    pub leader: String,
    /// That median.
    pub rate: f64,
    /// Whether it is ahead of all others.
    pub verdict: Verdict,
    /// Arrays of the group without a figure for this work.
    pub missing: Vec<String>,
}

/// What the runs show of a leader.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is ahead of every other array; the nearest one.
    Best(Against),
    /// There are runs enough, and they do not show it ahead of these, the nearest first.
    TooClose(Vec<Against>),
    /// There are too few runs to show that it is ahead of this one, the nearest.
    TooFewRuns {
        /// The nearest array.
        next: Against,
        /// Runs of the array with the fewest.
        runs: usize,
        /// Runs of each array that could show it.
        needed: usize,
        /// Whether each sample is a run, as in programs.
        samples_are_runs: bool,
    },
}

/// The leader over another array.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// The other array.
    pub label: String,
    /// Ratio of the medians, at least 1.
    pub times: f64,
}

/// An array with missing members beside the same array without.
#[derive(Clone, Debug, PartialEq)]
pub struct DegradedCost {
    /// `RAID 5`.
    pub label: String,
    /// Number of missing members.
    pub lost: u32,
    /// What remains, for each work that was measured both ways.
    pub works: Vec<Remaining>,
}

/// A degraded figure over the normal one.
#[derive(Clone, Debug, PartialEq)]
pub struct Remaining {
    /// `sequential read`.
    pub work: String,
    /// Ratio of the medians.
    pub share: f64,
    /// Whether the runs show a difference; `None`: there are too few.
    pub differs: Option<bool>,
}

impl Summary {
    /// The answers of a record, of which no cells were folded.
    pub fn of(record: &Record) -> Summary {
        let cells: Vec<Cell> = record.cells.iter().filter_map(comparable).collect();
        let candidates = candidates(&cells);
        let mut by_conditions: Vec<(String, Vec<&Candidate<'_>>)> = Vec::new();
        for one in &candidates {
            match by_conditions.iter_mut().find(|(known, _)| *known == one.conditions) {
                Some((_, group)) => group.push(one),
                None => by_conditions.push((one.conditions.clone(), vec![one])),
            }
        }
        let groups = by_conditions.iter().flat_map(|(_, group)| variants(group));
        let mut groups: Vec<Group> = groups.filter_map(|group| of_group(&group)).collect();
        groups.dedup();
        Summary { groups }
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

/// What follows from the level: these may differ between the arrays of a group.
const OF_ARRAY: [&str; 4] = ["level", "layout", "array", "degraded"];
/// A level either has these, or it does not: arrays without one are measured under any value of it.
const OF_SOME_LEVELS: [&str; 2] = [CHUNK, STRIPE_CACHE];
const STRIPE_CACHE: &str = "stripe_cache_kib";
/// What tells works apart, besides the conditions of an array.
const OF_WORK: [&str; 14] = [
    "program",
    "phase",
    "item",
    "workload",
    "caches_dropped",
    "steady_window",
    "read_off_s",
    "at_members",
    BLOCK,
    "depth",
    "jobs",
    "file_bytes",
    "placement",
    MEMBER_BYTES,
];
const BLOCK: &str = "block_kib";
const MEMBER_BYTES: &str = "member_bytes";
/// The block of works that write whole stripes, which differ from level to level.
const WHOLE_STRIPE: f64 = 0.0;
/// Arrays of one size are rounded to whole stripes, whose length depends on the level.
const ROUNDING: f64 = 1.1;

/// A cell, named.
struct Candidate<'a> {
    cell: &'a Cell,
    /// The array without what it has lost.
    label: String,
    /// The name of its work, for display.
    work: String,
    /// Settings of the work, and all others that must agree.
    work_key: String,
    conditions: String,
    conditions_label: String,
}

/// A cell that can be compared with other levels: without the ordinary disk, and without what a
/// file system derives from the level by itself.
fn comparable(cell: &Cell) -> Option<Cell> {
    if cell.is_single() || cell.case.level.is_empty() && cell.case.array.is_none() {
        return None;
    }
    let mut cell = cell.clone().with(|it| {
        it.measured.series = None;
        it.derived.findings = Vec::new();
    });
    if let Some(options) = cell.case.place.as_mut().and_then(|place| place.mount_options.as_mut()) {
        let derived = ["stripe=", "sunit=", "swidth="];
        let kept =
            options.split(',').filter(|option| !derived.iter().any(|d| option.starts_with(d)));
        *options = kept.collect::<Vec<_>>().join(",");
    }
    Some(cell)
}

fn candidates(cells: &[Cell]) -> Vec<Candidate<'_>> {
    let work_settings = [&OF_ARRAY[..], &OF_SOME_LEVELS].concat();
    let any_block = [&work_settings[..], &[BLOCK]].concat();
    let any_size = [&any_block[..], &[MEMBER_BYTES]].concat();
    let conditions = [&work_settings[..], &OF_WORK].concat();
    let one_size = one_size(cells, &any_size);
    let mut named = cells.to_vec();
    for cell in &mut named {
        let known = redundancy::array_sectors(cell).is_some();
        if known && one_size.contains(&identity_but_for(cell, &any_size)) {
            cell.case.member_bytes = None;
        }
    }
    let whole_stripes = whole_stripes(&named, &any_block);
    for cell in &mut named {
        if whole_stripes.contains(&identity_but_for(cell, &any_block)) {
            // Its own stripe each: no block of all.
            cell.case.block_kib = WHOLE_STRIPE;
        }
    }
    let mut names = work_names(&named.iter().collect::<Vec<_>>());
    for (name, cell) in names.iter_mut().zip(&named) {
        if cell.case.block_kib == WHOLE_STRIPE {
            *name = name.replace(&format!(", {}", kib(WHOLE_STRIPE)), ", whole stripes");
        }
    }
    let labels = pivot::conditions(cells);
    cells
        .iter()
        .zip(&named)
        .zip(names)
        .zip(labels)
        .map(|(((cell, named), work), conditions_label)| Candidate {
            label: pivot::array_label(&cell.clone().with(|it| it.case.degraded = 0)),
            work: work_in_words(cell, &work),
            work_key: identity_but_for(named, &work_settings),
            conditions: identity_but_for(cell, &conditions),
            conditions_label,
            cell,
        })
        .collect()
}

/// Works on arrays of one size: their members then differ from level to level, but not within one.
fn one_size(cells: &[Cell], any_size: &[&str]) -> BTreeSet<String> {
    let known = |cell: &&Cell| redundancy::array_sectors(cell).is_some();
    let mut own = by_array(cells.iter().filter(known), any_size, |cell| {
        cell.case.member_bytes.unwrap_or_default()
    });
    let mut sizes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for cell in cells {
        let Some(size) = redundancy::array_sectors(cell) else { continue };
        let key = identity_but_for(cell, any_size);
        let (low, high) = sizes.entry(key).or_insert((size, size));
        (*low, *high) = ((*low).min(size), (*high).max(size));
    }
    let alike = |(low, high): &(u64, u64)| *high as f64 <= *low as f64 * ROUNDING;
    own.retain(|key| sizes.get(key).is_some_and(alike));
    own
}

/// Works that write whole stripes: sequential writes whose block differs from array to array, but
/// not within one.
fn whole_stripes(cells: &[Cell], any_block: &[&str]) -> BTreeSet<String> {
    let writes =
        |cell: &&Cell| cell.case.workload == AccessKind::SeqWrite && cell.case.program.is_none();
    by_array(cells.iter().filter(writes), any_block, |cell| cell.case.block_kib.to_bits())
}

/// Works in which a value differs from array to array, but not within one.
fn by_array<'a>(
    cells: impl Iterator<Item = &'a Cell>,
    but_for: &[&str],
    value: impl Fn(&Cell) -> u64,
) -> BTreeSet<String> {
    let mut works: BTreeMap<String, BTreeMap<String, BTreeSet<u64>>> = BTreeMap::new();
    for cell in cells {
        let array = format!("{} {:?}", pivot::array_label(cell), cell.case.chunk_kib);
        let of_work = works.entry(identity_but_for(cell, but_for)).or_default();
        of_work.entry(array).or_default().insert(value(cell));
    }
    let differs_by_array = |arrays: &BTreeMap<String, BTreeSet<u64>>| {
        let all: BTreeSet<&u64> = arrays.values().flatten().collect();
        all.len() > 1 && arrays.values().all(|values| values.len() == 1)
    };
    works.retain(|_, arrays| differs_by_array(arrays));
    works.into_keys().collect()
}

/// `sequential read` for the word of a record; programs and unknown words are their own names.
fn work_in_words(cell: &Cell, work: &str) -> String {
    let words = [
        (Kind::SeqRead, "sequential read"),
        (Kind::RandRead, "random read"),
        (Kind::SeqWrite, "sequential write"),
        (Kind::RandWrite, "random write"),
    ];
    let known = words.iter().find(|(kind, _)| {
        cell.case.program.is_none() && cell.case.workload == AccessKind::from(*kind)
    });
    match known
        .and_then(|(_, words)| Some((words, work.strip_prefix(&*cell.case.workload.text())?)))
    {
        Some((words, rest)) => format!("{words}{rest}"),
        None => work.to_string(),
    }
}

/// The group for each chunk and stripe cache in it.
fn variants<'g, 'a>(group: &[&'g Candidate<'a>]) -> Vec<Vec<&'g Candidate<'a>>> {
    let values = |of: fn(&Cell) -> Option<u64>| {
        let all: BTreeSet<u64> = group.iter().filter_map(|one| of(one.cell)).collect();
        if all.is_empty() { vec![None] } else { all.into_iter().map(Some).collect() }
    };
    let (chunks, caches) =
        (values(|cell| cell.case.chunk_kib), values(|cell| cell.case.knobs.stripe_cache_kib()));
    let fits = |own: Option<u64>, value: Option<u64>| own.is_none() || own == value;
    let all = chunks.iter().flat_map(|chunk| caches.iter().map(move |cache| (*chunk, *cache)));
    all.map(|(chunk, cache)| {
        let fitting = group.iter().filter(|one| {
            fits(one.cell.case.chunk_kib, chunk)
                && fits(one.cell.case.knobs.stripe_cache_kib(), cache)
        });
        fitting.copied().collect()
    })
    .collect()
}

/// The answers of one group; `None` with fewer than two arrays.
fn of_group(group: &[&Candidate<'_>]) -> Option<Group> {
    // Complete arrays are compared; all with the same members missing if there are no others.
    let lost = group.iter().map(|one| one.cell.case.degraded).min()?;
    let (equal, degraded): (Vec<_>, Vec<_>) =
        group.iter().copied().partition(|one| one.cell.case.degraded == lost);
    let labels = distinct(equal.iter().map(|one| one.label.as_str()));
    if labels.len() < 2 {
        return None;
    }
    let mut left_out = Vec::new();
    let figures = figures(&equal, &mut left_out);
    let works = distinct(figures.iter().map(|one| one.work_key));
    let answers: Vec<Answer> = works
        .iter()
        .filter_map(|work| {
            let own: Vec<&Figures<'_>> =
                figures.iter().filter(|one| one.work_key == *work).collect();
            answer(&own, &labels)
        })
        .collect();
    if answers.is_empty() {
        return None;
    }
    let array = |label: &&str| Array {
        label: label.to_string(),
        redundancy: equal
            .iter()
            .filter(|one| one.label == **label)
            .find_map(|one| Redundancy::of(one.cell)),
    };
    let conditions = equal.iter().map(|one| one.conditions_label.as_str());
    let degraded = self::figures(&degraded, &mut left_out);
    Some(Group {
        conditions: heading(equal[0].cell, conditions.max_by_key(|label| label.len())?),
        answers,
        arrays: labels.iter().map(array).collect(),
        degraded: costs(&figures, &degraded),
        left_out,
    })
}

fn heading(cell: &Cell, settings: &str) -> String {
    let disks = match cell.case.disks {
        0 => "disks unknown".to_string(),
        disks => format!("{disks} disks"),
    };
    let lost = Some(cell.case.degraded).filter(|lost| *lost > 0).map(|lost| format!("{lost} lost"));
    let settings = Some(settings.to_string()).filter(|settings| !settings.is_empty());
    [Some(disks), lost, settings].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The runs of one array and work.
struct Figures<'a> {
    label: &'a str,
    lost: u32,
    work: &'a str,
    work_key: &'a str,
    unit: &'static str,
    values: Vec<f64>,
    samples_are_runs: bool,
}

impl Figures<'_> {
    fn median(&self) -> f64 {
        median(&self.values).unwrap_or(0.0)
    }
}

/// Gathers the runs, and names the cells whose figures are not those of the array.
fn figures<'a>(cells: &[&'a Candidate<'_>], left_out: &mut Vec<String>) -> Vec<Figures<'a>> {
    let mut all: Vec<Figures<'a>> = Vec::new();
    for one in cells {
        let cell = one.cell;
        let reason = match cell {
            _ if cell.measured.verified == Some(false) => {
                Some("data differed from what was written")
            }
            _ if cell.measured.program_bytes.is_some() => Some("measured at the members"),
            _ if cell.measured.cached.is_some() => Some("a cache was measured"),
            _ if cell.is_spoiled() => Some("a busy machine, and samples far apart"),
            _ => None,
        };
        if let Some(reason) = reason {
            let said = format!("{}, {}: {reason}", one.label, one.work);
            if !left_out.contains(&said) {
                left_out.push(said);
            }
            continue;
        }
        let values: Vec<f64> = match cell.case.samples_are_runs {
            true => cell.measured.samples.iter().map(|sample| cell.rate_of(sample)).collect(),
            false => vec![cell.rate()],
        };
        let values = values.into_iter().filter(|rate| *rate > 0.0);
        let same = all.iter_mut().find(|known| {
            (known.label, known.lost, known.work_key, known.unit)
                == (one.label.as_str(), cell.case.degraded, one.work_key.as_str(), unit(cell))
        });
        match same {
            Some(known) => known.values.extend(values),
            None => all.push(Figures {
                label: &one.label,
                lost: cell.case.degraded,
                work: &one.work,
                work_key: &one.work_key,
                unit: unit(cell),
                values: values.collect(),
                samples_are_runs: cell.case.samples_are_runs,
            }),
        }
    }
    all.retain(|figures| !figures.values.is_empty());
    all
}

fn unit(cell: &Cell) -> &'static str {
    match cell.unit() {
        "per second" if cell.case.program.is_none() => "IOPS",
        unit => unit,
    }
}

/// The leader of one work among the arrays that did it; `None` with fewer than two.
fn answer(own: &[&Figures<'_>], labels: &[&str]) -> Option<Answer> {
    let mut ranked: Vec<&Figures<'_>> = own.to_vec();
    // Stable: of equals, the first of the record leads.
    ranked.sort_by(|one, two| two.median().total_cmp(&one.median()));
    ranked.retain(|figures| figures.unit == own[0].unit);
    let (leader, others) = ranked.split_first().filter(|(_, others)| !others.is_empty())?;
    let without = |label: &&&str| !ranked.iter().any(|figures| figures.label == **label);
    Some(Answer {
        work: leader.work.to_string(),
        unit: leader.unit,
        leader: leader.label.to_string(),
        rate: leader.median(),
        verdict: verdict(leader, others, &ranked),
        missing: labels.iter().filter(without).map(ToString::to_string).collect(),
    })
}

fn verdict(leader: &Figures<'_>, others: &[&Figures<'_>], all: &[&Figures<'_>]) -> Verdict {
    // The leader was chosen by its figures, so every pair is a comparison of its own.
    let pairs: Vec<(usize, usize)> =
        (0..all.len()).flat_map(|one| (one + 1..all.len()).map(move |two| (one, two))).collect();
    let p_values: Vec<f64> = pairs
        .iter()
        .map(|(one, two)| p_value(&all[*one].values, &all[*two].values).unwrap_or(1.0))
        .collect();
    let believed = holm(&p_values, FAMILY_ALPHA);
    // The first pairs are those of the leader.
    let ahead = |at: usize, other: &Figures<'_>| {
        let above = |ratio: Ratio| ratio.low > 1.0;
        believed[at] && ratio(&other.values, &leader.values).is_some_and(above)
    };
    let against = |other: &&Figures<'_>| Against {
        label: other.label.to_string(),
        times: leader.median() / other.median(),
    };
    let needed = runs_needed(pairs.len(), FAMILY_ALPHA).max(runs_needed(1, ALPHA));
    let undecided: Vec<&&Figures<'_>> = others
        .iter()
        .enumerate()
        .filter(|(at, other)| !ahead(*at, other))
        .map(|(_, other)| other)
        .collect();
    let own = leader.values.len();
    let fewest = undecided.iter().map(|other| other.values.len()).min().unwrap_or(own).min(own);
    match undecided.first() {
        None => Verdict::Best(against(&others[0])),
        Some(next) if fewest < needed => Verdict::TooFewRuns {
            next: against(next),
            runs: fewest,
            needed,
            samples_are_runs: leader.samples_are_runs,
        },
        Some(_) => Verdict::TooClose(undecided.into_iter().map(against).collect()),
    }
}

/// Every degraded array beside the complete one.
fn costs(complete: &[Figures<'_>], degraded: &[Figures<'_>]) -> Vec<DegradedCost> {
    let mut costs: Vec<DegradedCost> = Vec::new();
    for one in degraded {
        let whole = complete.iter().find(|whole| {
            (whole.label, whole.work_key, whole.unit) == (one.label, one.work_key, one.unit)
        });
        let Some(whole) = whole else { continue };
        let differs =
            ratio(&whole.values, &one.values).map(|ratio| ratio.low > 1.0 || ratio.high < 1.0);
        let share = one.median() / whole.median();
        let remaining = Remaining { work: one.work.to_string(), share, differs };
        let same = |cost: &&mut DegradedCost| cost.label == one.label && cost.lost == one.lost;
        match costs.iter_mut().find(same) {
            Some(cost) => cost.works.push(remaining),
            None => costs.push(DegradedCost {
                label: one.label.to_string(),
                lost: one.lost,
                works: vec![remaining],
            }),
        }
    }
    costs
}

#[cfg(test)]
mod tests;
