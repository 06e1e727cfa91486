//! One attempt at a geometry from what was found until now.
//!
//! Invariant: every file system is tried at every place that a table names, and at the array's
//! start; the one that most witnesses agree on decides, another of weight must agree.

use content::{FileSystems, Prediction};

use crate::answer::Judgement;
use crate::candidate::Candidate;
use crate::case::Case;
use crate::classes::{Class, Rows, classes};
use crate::fit::{Fit, explain, linear, shapes};
use crate::hypotheses::{Hypothesis, hypotheses};
use crate::judge::{Judged, judge};
use crate::known::Options;
use crate::points::{Point, Set};
use crate::redundancy::Masks;
use crate::source::{ByteRange, Pages};

/// Predictions that are looked up on all members.
const PREDICTIONS: usize = 200;
/// File systems that are tried.
const TRIED: usize = 3;

/// What an attempt gave.
pub(crate) struct Attempt {
    pub judged: Option<Judged>,
    pub set: Option<Set>,
    pub hypotheses: Vec<Hypothesis>,
    /// The tables that name the place of the file system.
    pub tables: Vec<usize>,
}

impl Attempt {
    pub fn is_exact(&self) -> bool {
        self.judged.as_ref().is_some_and(|it| it.verdict == Judgement::Exact)
    }

    pub fn is_empty(&self) -> bool {
        self.judged.is_none()
    }
}

/// A file system at a place of the array.
struct Placed {
    set: Set,
    classes: Vec<Class>,
    linear: Option<Candidate>,
    tables: Vec<usize>,
}

impl Placed {
    /// Witnesses that agree on the best class.
    fn score(&self) -> f64 {
        let linear = self.linear.as_ref().map_or(0, |it| it.direct);
        self.classes.first().map_or(0, |class| class.count).max(linear) as f64
            // Of places that are about as good the one that a table names; a wrong one is far off.
            * if self.tables.is_empty() { 1.0 } else { 1.2 }
    }
}

/// Attempts to find the geometry. `points` are by file system, `members` may be one more than there
/// are: the sum of all.
pub(crate) fn attempt(
    pages: &Pages,
    options: &Options,
    file_systems: &FileSystems,
    points: &[Vec<Point>],
    members: usize,
    own_tables: &Masks,
) -> Attempt {
    let mut masks = masks(options);
    masks.extend(own_tables.iter().cloned());
    let hypotheses = hypotheses(pages, &options.superblocks);
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.retain(|&at| !file_systems.list()[at].kind.is_table() && points[at].len() >= 3);
    order.sort_by_key(|&at| std::cmp::Reverse(points[at].len()));
    // A disk of its own among the members, however much it holds.
    let is_own = |&at: &usize| lies_on_one(pages, file_systems, points, at);
    if order.iter().any(|at| !is_own(at) && points[*at].len() >= 6) {
        order.retain(|at| !is_own(at));
    }
    // The largest always: the others may be images in its files, with more blocks than its own.
    let largest = order.iter().copied().skip(TRIED).max_by_key(|&at| file_systems.list()[at].bytes);
    order.truncate(TRIED);
    order.extend(largest);
    let mut best_of_each: Vec<Vec<Placed>> = Vec::new();
    for &file_system in &order {
        let mut place = |(base, tables)| {
            place(pages, options, file_systems, points, members, file_system, base, tables)
        };
        let mut placed: Vec<Placed> =
            bases(file_systems, file_system).into_iter().map(&mut place).collect();
        let behind = placed.first().map(|it| behind_tables(file_systems, points, it));
        placed.extend(behind.into_iter().flatten().map(&mut place));
        placed.sort_by(|one, other| other.score().total_cmp(&one.score()));
        best_of_each.push(placed);
    }
    best_of_each.retain(|placed| placed.first().is_some_and(|it| it.score() >= 2.0));
    best_of_each.sort_by(|one, other| other[0].score().total_cmp(&one[0].score()));
    let mut attempt = Attempt { judged: None, set: None, hypotheses, tables: Vec::new() };
    if best_of_each.is_empty() {
        return attempt;
    }
    let others = best_of_each.split_off(1);
    let Some(mut placed) = best_of_each.remove(0).into_iter().next() else { return attempt };
    predict(pages, file_systems, &mut placed, members);
    let known = &options.known;
    let mut fits: Vec<Fit> = Vec::new();
    for class in &placed.classes {
        for shape in shapes(class, members, known) {
            fits.extend(Fit::new(&placed.set, shape, &class.offsets, members));
        }
    }
    let mut candidates: Vec<Candidate> = placed.linear.take().into_iter().collect();
    for hypothesis in &attempt.hypotheses {
        if let Some(mut candidate) = hypothesis.candidate.clone() {
            candidate.base = placed.set.base;
            explain(&placed.set, &mut candidate);
            candidates.push(candidate);
        }
    }
    let case = Case {
        pages,
        set: &placed.set,
        file_systems,
        masks: &masks,
        recreated: options.superblocks.iter().flatten().next().is_some(),
        thorough: options.thorough,
        members: pages.members(),
        stated: options.superblocks.iter().map(|it| stated(it.as_ref()?)).collect(),
    };
    attempt.judged = judge(&case, &fits, candidates);
    attempt.tables = placed.tables.clone();
    if let Some(judged) = &mut attempt.judged
        && is_contradicted(&placed.set, &judged.best, &others, file_systems)
    {
        judged.verdict = Judgement::Ambiguous;
        judged.confidence = judged.confidence.min(0.5);
        judged.why = Some("another file system on the same members fits another geometry".into());
    }
    if let (Some(judged), true) = (&mut attempt.judged, attempt.tables.is_empty()) {
        headless(file_systems, points, judged);
    }
    attempt.set = Some(placed.set);
    attempt
}

/// Whether a file system lies on one member alone, which has room for all of it.
fn lies_on_one(
    pages: &Pages,
    file_systems: &FileSystems,
    points: &[Vec<Point>],
    file_system: usize,
) -> bool {
    // Some of another file system may look like its own: nine of ten count.
    let own = &points[file_system];
    let starts = own.iter().filter_map(|it| Some((it.member, it.at.checked_sub(it.address)?)));
    let mut starts: Vec<(usize, u64)> = starts.collect();
    starts.sort_unstable();
    let alike = starts.chunk_by(|one, other| one == other);
    let Some(most) = alike.max_by_key(|alike| alike.len()) else { return false };
    let (member, start) = most[0];
    let end = start.saturating_add(file_systems.list()[file_system].bytes);
    member < pages.members() && most.len() * 10 >= own.len() * 9 && end <= pages.size(member)
}

/// What a superblock says of its member: the data offset, and how much of it is used.
fn stated(metadata: &md::ondisk::MemberMetadata) -> Option<(u64, u64)> {
    let used = match metadata.used_sectors {
        0 => metadata.data_sectors,
        used => used,
    };
    let bytes = |sectors: u64| sectors.checked_mul(md::SECTOR_BYTES);
    Some((bytes(metadata.data_offset)?, bytes(used)?))
}

/// A table before the place where the array is said to begin: the array begins earlier.
fn headless(file_systems: &FileSystems, points: &[Vec<Point>], judged: &mut Judged) {
    let list = file_systems.list();
    let starts = |table: usize| points[table].iter().filter_map(|it| it.at.checked_sub(it.address));
    let before = (0..list.len().min(points.len())).find(|&table| {
        list[table].kind.is_table()
            && starts(table).any(|start| judged.best.offsets.iter().all(|&it| start < it))
    });
    if let Some(table) = before {
        let kind = list[table].kind;
        judged.verdict = Judgement::Ambiguous;
        judged.confidence = judged.confidence.min(0.89);
        judged.why = Some(format!(
            "{kind} lies before the file system, and does not say where it begins: the array may \
             begin earlier"
        ));
    }
}

/// Where a file system may begin: at the start, or where tables say; with the tables that say so.
fn bases(file_systems: &FileSystems, file_system: usize) -> Vec<(u64, Vec<usize>)> {
    let list = file_systems.list();
    let tables: Vec<usize> = (0..list.len()).filter(|&at| list[at].kind.is_table()).collect();
    let mut found = vec![(0, Vec::new())];
    let room = |bytes: u64| bytes >= list[file_system].bytes / 2;
    for &table in &tables {
        for region in list[table].regions.iter().filter(|it| room(it.bytes)).take(64) {
            found.push((region.start, vec![table]));
            // A table inside of a region of another: LVM in a partition.
            for &inner in tables.iter().filter(|&&inner| inner != table) {
                for part in list[inner].regions.iter().filter(|it| room(it.bytes)).take(16) {
                    found.push((region.start.saturating_add(part.start), vec![table, inner]));
                }
            }
        }
    }
    found.retain(|(base, tables)| base % 512 == 0 && (*base > 0 || tables.is_empty()));
    found.sort();
    found.dedup_by_key(|it| it.0);
    found.truncate(128);
    found
}

/// Where a file system must begin if a table begins the array whose regions are not known: the
/// table's own block says where the array begins, the classes say where the file system does.
fn behind_tables(
    file_systems: &FileSystems,
    points: &[Vec<Point>],
    at_start: &Placed,
) -> Vec<(u64, Vec<usize>)> {
    let list = file_systems.list();
    let mut found = Vec::new();
    let tables = (0..list.len().min(points.len())).filter(|&at| list[at].kind.is_table());
    for table in tables.filter(|&at| list[at].regions.is_empty()) {
        for point in points[table].iter().take(4) {
            let Some(start) = point.at.checked_sub(point.address) else { continue };
            let even = at_start.classes.iter().filter(|it| matches!(it.rows, Rows::Data(_)));
            for class in even.take(4) {
                let Rows::Data(data) = class.rows else { continue };
                let behind = class.offsets[point.member].checked_sub(start);
                let base = behind.filter(|&it| it > 0).and_then(|it| it.checked_mul(data));
                found.extend(base.map(|base| (base, vec![table])));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The points of a file system at a place, with their classes.
fn place(
    pages: &Pages,
    options: &Options,
    file_systems: &FileSystems,
    points: &[Vec<Point>],
    members: usize,
    file_system: usize,
    base: u64,
    tables: Vec<usize>,
) -> Placed {
    let shifted = |point: &Point, by: u64| Point { address: point.address + by, ..*point };
    let mut own: Vec<Point> = points[file_system].iter().map(|it| shifted(it, base)).collect();
    // The first table begins the array; one inside of it begins where the rest of the base does.
    for (depth, &table) in tables.iter().enumerate() {
        if depth == 0 {
            own.extend(points[table].iter().map(|it| shifted(it, 0)));
        }
    }
    let end = base.saturating_add(file_systems.list()[file_system].bytes);
    let set = Set::new(file_system, base, end, own);
    let classes = classes(&set, members, &options.known);
    let sizes: Vec<u64> = (0..pages.members()).map(|member| pages.size(member)).collect();
    let wanted = options.known.level.is_none_or(|level| level == md::Level::Linear);
    let linear = linear(&set, &sizes).filter(|it| wanted && it.order.len() > 1);
    Placed { set, classes, linear, tables }
}

/// Adds what must stand where, by every class, and who has it.
fn predict(pages: &Pages, file_systems: &FileSystems, placed: &mut Placed, members: usize) {
    let predictions = file_systems.predictions(placed.set.file_system, PREDICTIONS);
    let mut ranges = Vec::new();
    let mut asked = Vec::new();
    // Few witnesses leave many classes; what is read is then little, too.
    let classes = (8000 / predictions.len().max(1)).clamp(8, 48);
    for class in placed.classes.iter().take(classes) {
        for (index, prediction) in predictions.iter().enumerate() {
            let address = placed.set.base + prediction.address;
            for row in rows_of(class, address) {
                for member in 0..members {
                    let at = class.offsets[member] + row;
                    ranges.push(ByteRange { member, at, len: prediction.len as usize });
                    asked.push((index, member, at, address));
                }
            }
        }
    }
    pages.prefetch(&ranges);
    let mut new = Vec::new();
    asked.sort_unstable();
    asked.dedup();
    for (index, member, at, address) in asked {
        let prediction = &predictions[index];
        let Some(bytes) = pages.take(member, at, prediction.len as usize) else { continue };
        if !prediction.holds(&bytes) {
            continue;
        }
        let point = Point {
            member,
            at,
            address,
            weight: f64::from(prediction.weight),
            strong: prediction.strong,
            // What only one contents satisfies is as good as an address; but it may be a copy.
            either: true,
        };
        // What follows from it proves both: the inode of a directory, and its first block.
        let then = prediction.then(&bytes);
        let found = then.map(|then| pairs(pages, placed, &then, members)).unwrap_or_default();
        if found.is_empty() {
            new.extend((point.weight > 0.0).then_some(point));
        } else {
            new.push(Point { weight: 1.0, strong: true, ..point });
            new.extend(found);
        }
    }
    placed.set.add(new);
}

/// Where what follows from a prediction that holds is found, by all classes.
fn pairs(pages: &Pages, placed: &Placed, then: &Prediction, members: usize) -> Vec<Point> {
    let address = placed.set.base + then.address;
    let mut found = Vec::new();
    for class in placed.classes.iter().take(PAIR_CLASSES) {
        for row in rows_of(class, address) {
            for member in 0..members {
                let at = class.offsets[member] + row;
                let Some(bytes) = pages.take(member, at, then.len as usize) else { continue };
                if then.holds(&bytes) {
                    found.push(Point {
                        member,
                        at,
                        address,
                        weight: f64::from(then.weight),
                        strong: then.strong,
                        either: true,
                    });
                }
            }
        }
    }
    found
}

/// Classes in which what follows is looked for.
const PAIR_CLASSES: usize = 48;

/// The offsets in data areas at which a class puts an address.
fn rows_of(class: &Class, address: u64) -> Vec<u64> {
    match class.rows {
        Rows::Data(1) => vec![address],
        Rows::Data(data) => {
            vec![address / (data * class.chunk) * class.chunk + address % class.chunk]
        }
        Rows::Copies(layout, slots) => {
            let layout = md::Layout::Raid10(layout);
            let shape = crate::classes::huge(md::Level::Raid10, layout, slots, class.chunk);
            let mut places = Vec::new();
            if let Some(shape) = shape {
                shape.places(address, &mut places);
            }
            let mut rows: Vec<u64> = places.iter().map(|place| place.at).collect();
            rows.dedup();
            rows
        }
    }
}

/// Whether the best does not explain another file system that is found as well.
fn is_contradicted(
    set: &Set,
    best: &Candidate,
    others: &[Vec<Placed>],
    file_systems: &FileSystems,
) -> bool {
    let list = file_systems.list();
    others.iter().filter_map(|placed| placed.first()).any(|other| {
        let members: std::collections::BTreeSet<usize> =
            other.set.points().iter().map(|it| it.member).collect();
        let large = list[other.set.file_system].bytes * 2 >= list[set.file_system].bytes;
        // One that is no smaller may hold this one as a file, however few blocks it has.
        let holds = list[other.set.file_system].bytes >= list[set.file_system].bytes;
        let many = other.score() * 4.0 >= best.direct as f64 || holds && other.score() >= 3.0;
        let consistent = other.score() * 2.0 >= other.set.points().len() as f64;
        if members.is_empty() || !large || !many || !consistent {
            return false;
        }
        let mut there = Candidate { base: other.set.base, ..best.clone() };
        explain(&other.set, &mut there);
        (there.direct as f64) * 2.0 < other.score()
    })
}

/// What the superblocks that are there wrote over.
fn masks(options: &Options) -> Masks {
    const SECTOR: u64 = md::SECTOR_BYTES;
    let mut masks = Masks::new();
    for (member, metadata) in options.superblocks.iter().enumerate() {
        let Some(metadata) = metadata else { continue };
        let mut mask = |sector: u64, bytes: u64| {
            let from = sector.saturating_mul(SECTOR);
            masks.push((member, from..from.saturating_add(bytes)));
        };
        mask(metadata.super_sector, 4096);
        let bitmap = metadata.bitmap.iter();
        bitmap.for_each(|area| mask(area.sector, (area.sectors * SECTOR).min(64 << 10)));
        let bad = metadata.bad_blocks.iter();
        bad.for_each(|log| mask(log.area.sector, (log.area.sectors * SECTOR).min(64 << 10)));
    }
    masks
}
