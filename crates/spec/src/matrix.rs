//! Plans arrays and cells from options: the product of all given values, in a sensible order.
//!
//! Invariant: a plan contains only arrays that can be built. Invalid combinations (RAID 0 with a
//! missing member, a layout of another level) are left out and named; when nothing is left, that is
//! an error. Pure. Called by the command line before anything is created.

mod options;
#[cfg(feature = "clap")]
pub mod parse;

use md::nested::{ArrayExpr, Members, NestedGeometry};
use md::{Geometry, Layout, Level, MemberIdx};

use crate::case::{
    ArrayConfig, BenchLevel, Case, DEFAULT_CHUNK_BYTES, RunConfig, Workload, any_level,
};
use crate::members::{MemberExpr, MemberSet, MembersError};
pub use crate::plan_error::{CaseProblem, LeftOut, PlanError};
use crate::target::TargetExpr;
use crate::topology::StorageTopology;
use crate::workload::{
    Background, BackgroundWork, DEFAULT_FOREGROUND_PERCENT, DEFAULT_READ_PERCENT, Kind, Rate, Spec,
};
pub use options::{
    ArrayList, ArrayOptions, BackgroundOptions, BlockOptions, EngineOptions, MixedOptions, Options,
};

/// Default size of a member, bytes: small enough for any machine, several times a disk's cache.
pub const DEFAULT_MEMBER_BYTES: u64 = 128 << 20;
/// Default size of a member on a block device, and of the storage of other targets, bytes: several
/// times the cache of a disk of today. Smaller devices are used to their end.
pub const DEFAULT_DEVICE_BYTES: u64 = 1 << 30;
const SEQUENTIAL_BLOCK_BYTES: u64 = 1 << 20;
const RANDOM_BLOCK_BYTES: u64 = 4 << 10;
/// Upper limit of an array's size: sums of members' sizes stay far below 2^64.
const MAX_AREA_BYTES: u64 = 1 << 50;
/// Upper limit of the chunk size in md's geometry.
const MAX_CHUNK_BYTES: u64 = md::geometry::MAX_CHUNK_SECTORS * md::SECTOR_BYTES;
/// The engine's limit of members.
const MAX_MEMBERS: u32 = 255;

/// One array to be created, with its workloads.
#[derive(Clone, Debug)]
pub struct ArrayPlan {
    /// The array.
    pub array: ArrayConfig,
    /// Its workloads, in order.
    pub cells: Vec<Spec>,
}

impl ArrayPlan {
    /// Its workloads on a target as cases.
    pub fn cases(&self, place: &TargetExpr, run: &RunConfig) -> impl Iterator<Item = Case> {
        self.cells.iter().map(|spec| Case {
            target: place.clone(),
            array: Some(self.array.clone()),
            workload: Workload::Blocks(*spec),
            size: None,
            run: run.clone(),
        })
    }
}

/// What will be run, and what will not.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In order.
    pub arrays: Vec<ArrayPlan>,
    /// Combinations that make no sense, each with the reason.
    pub left_out: Vec<LeftOut>,
}

impl Plan {
    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.arrays.iter().map(|array| array.cells.len()).sum()
    }
}

/// The table of the Linux RAID wiki, and what it leaves open: ordinary disk, two disks, four disks,
/// degraded.
const DEFAULT_TABLE: [(&str, u32, u32); 13] = [
    ("single", 1, 0),
    ("raid0", 2, 0),
    ("raid1", 2, 0),
    ("raid10,n2", 2, 0),
    ("raid10,f2", 2, 0),
    ("raid10,o2", 2, 0),
    ("raid0", 4, 0),
    ("raid4", 4, 0),
    ("raid5", 4, 0),
    ("raid6", 4, 0),
    ("raid10,n2", 4, 0),
    ("raid5", 4, 1),
    ("raid6", 4, 2),
];

/// What an array is before members and knobs are multiplied in.
struct Shape {
    level: BenchLevel,
    expr: ArrayExpr,
    nested: bool,
    degraded: Vec<u32>,
    chunks: Vec<u64>,
}

/// Makes the plan.
///
/// # Errors
/// The option that is at fault, or why the first combination is left out, when nothing can be run.
pub fn plan(options: &Options) -> Result<Plan, PlanError> {
    let mut plan = Plan::default();
    if let Some(size) = options.sizes.iter().find(|size| !(1..=MAX_AREA_BYTES).contains(*size)) {
        return Err(PlanError::Size(*size));
    }
    if options.arrays.level.is_empty() && !options.arrays.array.is_empty() {
        let given = [
            ("--disks", options.arrays.disks.is_empty()),
            ("--layout", options.arrays.layout.is_empty()),
        ];
        if let Some((option, _)) = given.iter().find(|(_, empty)| !empty) {
            return Err(PlanError::NotForArrays { option });
        }
    }
    let sets = match options.engine.members.is_empty() {
        true => vec!["paced:hdd-2007".parse().expect("a set that is tested")],
        false => options.engine.members.clone(),
    };
    for set in &sets {
        for shape in shapes(options, set, &mut plan) {
            for &chunk in &shape.chunks {
                for &degraded in &shape.degraded {
                    cases(options, set, &shape, chunk, degraded, &mut plan);
                }
            }
        }
    }
    mark_read_only(&mut plan);
    if plan.arrays.is_empty() {
        let why = plan.left_out.into_iter().next();
        return Err(why.map_or(PlanError::Nothing, PlanError::AllLeftOut));
    }
    Ok(plan)
}

/// Block devices are read as they are found where nothing of the plan writes, and no array needs
/// members in sync: a device may hold data then, and keeps it.
fn mark_read_only(plan: &mut Plan) {
    let only_reads = |planned: &ArrayPlan| {
        let single = planned.array.level == BenchLevel::Single;
        single && !planned.cells.iter().any(|cell| cell.kind.writes())
    };
    if plan.arrays.iter().all(only_reads) {
        for ArrayPlan { array, .. } in &mut plan.arrays {
            array.read_only = matches!(array.members[..], [MemberExpr::Device(_)]);
        }
    }
}

fn or<T: Clone>(given: &[T], default: T) -> Vec<T> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

fn shapes(options: &Options, set: &MemberSet, plan: &mut Plan) -> Vec<Shape> {
    let chunks = or(&options.arrays.chunk, DEFAULT_CHUNK_BYTES);
    let any_array = options.arrays.level.is_empty() && options.arrays.array.is_empty();
    // With numbers, layouts or missing members given, the plan is their product, not a part of the
    // default table.
    let product = !(options.arrays.disks.is_empty()
        && options.arrays.layout.is_empty()
        && options.arrays.degraded.is_empty());
    if any_array && !product {
        let shapes = default_table(set, &chunks);
        if !shapes.is_empty() {
            return shapes;
        }
    }
    let mut shapes = Vec::new();
    for expr in options.arrays.exprs() {
        let takes_chunk = any_level(expr, &|e| e.level.has_chunks() && e.chunk.is_none());
        shapes.push(Shape {
            level: BenchLevel::Md(expr.level),
            nested: matches!(expr.members, Members::Arrays(_)),
            expr: expr.clone(),
            degraded: or(&options.arrays.degraded, 0),
            chunks: if takes_chunk { chunks.clone() } else { chunks[..1].to_vec() },
        });
    }
    let all = [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];
    let levels =
        if any_array { all.map(BenchLevel::Md).to_vec() } else { options.arrays.level.clone() };
    for level in levels {
        let single = level == BenchLevel::Single;
        let default = set.counted().map_or(if single { 1 } else { 4 }, |count| count as u32);
        let disks = if single { vec![1] } else { or(&options.arrays.disks, default) };
        for disks in disks {
            // An ordinary disk has no layout; it is there once, to be compared with.
            let layouts = if single { vec![None] } else { optional(&options.arrays.layout) };
            for layout in layouts {
                match shape(level, layout.as_deref(), disks, &chunks) {
                    Ok(mut shape) => {
                        shape.degraded = or(&options.arrays.degraded, 0);
                        shapes.push(shape);
                    }
                    Err(problem) => plan.left_out.push(LeftOut { array: None, problem }),
                }
            }
        }
    }
    shapes
}

/// The rows of the default table that have as many members as the set counts.
fn default_table(set: &MemberSet, chunks: &[u64]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (name, disks, degraded) in DEFAULT_TABLE {
        if set.counted().is_some_and(|count| count != disks as usize) {
            continue;
        }
        let (level, layout) = name.split_once(',').map_or((name, None), |(l, y)| (l, Some(y)));
        let level: BenchLevel = level.parse().expect("a level of the table");
        let mut shape = shape(level, layout, disks, chunks).expect("a row of the table");
        shape.degraded = vec![degraded];
        shapes.push(shape);
    }
    shapes
}

fn shape(
    level: BenchLevel,
    layout: Option<&str>,
    disks: u32,
    chunks: &[u64],
) -> Result<Shape, CaseProblem> {
    let md_level = match level {
        BenchLevel::Single => Level::Linear,
        BenchLevel::Md(level) => level,
    };
    if !(1..=MAX_MEMBERS).contains(&disks) {
        return Err(CaseProblem::Disks { disks, most: MAX_MEMBERS });
    }
    let layout = match layout {
        Some(name) => Some(Layout::parse(md_level, name).map_err(CaseProblem::Layout)?),
        None => None,
    };
    let expr = ArrayExpr {
        level: md_level,
        layout,
        chunk: None,
        members: Members::Leaves(disks as usize),
    };
    // Levels without chunks do not multiply with chunk sizes.
    let chunks = if md_level.has_chunks() { chunks.to_vec() } else { chunks[..1].to_vec() };
    Ok(Shape { level, expr, nested: false, degraded: vec![0], chunks })
}

/// Multiplies one shape by members' sizes and knobs.
fn cases(
    options: &Options,
    set: &MemberSet,
    shape: &Shape,
    chunk_bytes: u64,
    degraded: u32,
    plan: &mut Plan,
) {
    let name = match shape.level {
        BenchLevel::Single => "single".to_string(),
        BenchLevel::Md(_) => shape.expr.to_string(),
    };
    let left_out = |problem| LeftOut { array: Some(name.clone()), problem };
    let checked = check_chunk(chunk_bytes)
        .and_then(|()| check_shape(&shape.expr, chunk_bytes, degraded))
        .and_then(|checked| Ok((checked, members(set, shape)?)));
    let ((ratio, stripe), members) = match checked {
        Ok(good) => good,
        Err(problem) => return plan.left_out.push(left_out(problem)),
    };
    // Knobs that mean nothing here do not multiply.
    let wirings = wirings(options, set, shape.level, &members);
    let mut wired = Vec::new();
    for topology in wirings {
        match topology {
            Ok(topology) => wired.push(topology),
            Err(problem) => plan.left_out.push(left_out(problem)),
        }
    }
    let knobs = options.engine.knobs(&shape.expr);
    for area_bytes in optional(&options.sizes) {
        let default = match members.iter().any(|member| member.device().is_some()) {
            true => DEFAULT_DEVICE_BYTES,
            false => DEFAULT_MEMBER_BYTES,
        };
        let (member_bytes, usable) = fit(&shape.expr, chunk_bytes, ratio, (area_bytes, default));
        if let Some(why) = members.iter().find_map(|m| m.check_faults(member_bytes).err()) {
            plan.left_out.push(left_out(why.into()));
            continue;
        }
        let (cells, problems) = cells(options, &members, stripe, usable);
        plan.left_out.extend(problems.into_iter().map(left_out));
        let (cells, problems) = with_background(options, &cells, shape, degraded);
        plan.left_out.extend(problems.into_iter().map(left_out));
        if cells.is_empty() {
            continue;
        }
        for &topology in &wired {
            for &knobs in &knobs {
                let array = ArrayConfig {
                    level: shape.level,
                    expr: shape.expr.clone(),
                    nested: shape.nested,
                    chunk_bytes,
                    set: set.clone(),
                    members: members.clone(),
                    member_bytes,
                    area_bytes,
                    degraded,
                    topology,
                    knobs,
                    read_only: false,
                };
                plan.arrays.push(ArrayPlan { array, cells: cells.clone() });
            }
        }
    }
}

/// Every wiring that is requested, and why some make no sense.
fn wirings(
    options: &Options,
    set: &MemberSet,
    level: BenchLevel,
    members: &[MemberExpr],
) -> Vec<Result<StorageTopology, CaseProblem>> {
    let given = [
        ("--bus", !options.engine.bus.is_empty()),
        ("--channel", !options.engine.channel.is_empty()),
        ("--spindle", !options.engine.spindle.is_empty()),
    ];
    let given = given.iter().find(|(_, given)| *given);
    if let Some((option, _)) = given
        && members.iter().all(|member| member.drive().is_none())
    {
        let problem = CaseProblem::NotPaced { option, set: set.to_string() };
        return vec![Err(problem), Ok(StorageTopology::default())];
    }
    // An ordinary disk has its spindle and its channel for itself, and is on the first bus.
    let single = level == BenchLevel::Single;
    let shared = |given: &[u32]| if single { vec![None] } else { optional(given) };
    let mut wirings = Vec::new();
    for members_per_spindle in shared(&options.engine.spindle) {
        for disks_per_channel in shared(&options.engine.channel) {
            for buses in optional(&options.engine.bus) {
                let topology = StorageTopology { buses, disks_per_channel, members_per_spindle };
                let checked = if single { Ok(()) } else { topology.check(members) };
                let checked = checked.map(|()| topology);
                wirings.push(checked.map_err(CaseProblem::from));
            }
        }
    }
    wirings
}

fn members(set: &MemberSet, shape: &Shape) -> Result<Vec<MemberExpr>, MembersError> {
    match shape.level {
        BenchLevel::Single => Ok(vec![set.first().clone()]),
        BenchLevel::Md(_) => set.expand(shape.expr.leaves()),
    }
}

/// One `None` where nothing is given.
fn optional<T: Clone>(given: &[T]) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given.iter().cloned().map(Some).collect() }
}

fn largest_chunk(expr: &ArrayExpr, default_bytes: u64) -> u64 {
    let own = expr.chunk.map_or(default_bytes, |sectors| sectors * md::SECTOR_BYTES);
    match &expr.members {
        Members::Leaves(_) => own,
        Members::Arrays(arrays) => {
            arrays.iter().map(|expr| largest_chunk(expr, default_bytes)).fold(own, u64::max)
        }
    }
}

/// Bytes of a member, so that the array has the area that is requested, and what can be used then.
/// `ratio`: what each byte of a member gives the array; `default`: bytes of a member where no area
/// is requested.
fn fit(
    expr: &ArrayExpr,
    chunk_bytes: u64,
    ratio: f64,
    (area_bytes, default): (Option<u64>, u64),
) -> (u64, u64) {
    let whole = |member_bytes: u64| {
        let leaves = vec![member_bytes / md::SECTOR_BYTES; expr.leaves()];
        let geometry = NestedGeometry::new(expr, chunk_bytes / md::SECTOR_BYTES, &leaves);
        geometry.map_or(0, |geometry| geometry.array_sectors() * md::SECTOR_BYTES)
    };
    let unit = largest_chunk(expr, chunk_bytes).next_multiple_of(1 << 20);
    let Some(area) = area_bytes else {
        let member_bytes = default.max(4 * unit);
        return (member_bytes, whole(member_bytes));
    };
    let mut member_bytes = ((area as f64 / ratio).ceil() as u64).next_multiple_of(unit);
    // The ratio is that of a large array: a small one may lose part of a stripe more.
    for _ in 0..8 {
        if whole(member_bytes) >= area {
            break;
        }
        member_bytes += unit;
    }
    (member_bytes, whole(member_bytes).min(area))
}

fn check_chunk(bytes: u64) -> Result<(), CaseProblem> {
    if bytes == 0 || !bytes.is_multiple_of(4096) {
        return Err(CaseProblem::ChunkUnit(bytes));
    }
    if bytes > MAX_CHUNK_BYTES {
        return Err(CaseProblem::ChunkSize(bytes));
    }
    Ok(())
}

/// Tries the shape on members of a round size: what each byte of a member gives the array, and the
/// full stripe of the outermost level in bytes (0 where there is none).
fn check_shape(
    expr: &ArrayExpr,
    chunk_bytes: u64,
    degraded: u32,
) -> Result<(f64, u64), CaseProblem> {
    let leaf = (largest_chunk(expr, chunk_bytes) * 64).max(1 << 30) / md::SECTOR_BYTES;
    let chunk = chunk_bytes / md::SECTOR_BYTES;
    let leaves = vec![leaf; expr.leaves()];
    let geometry = NestedGeometry::new(expr, chunk, &leaves)?;
    let outer = geometry.geometry();
    if tolerated_losses(outer, degraded, &|_| false).is_err() {
        return Err(CaseProblem::Degraded(degraded));
    }
    let ratio = geometry.array_sectors() as f64 / leaf as f64;
    let parity = outer.level().has_parity();
    Ok((ratio, if parity { outer.stripe_sectors() * md::SECTOR_BYTES } else { 0 }))
}

/// What is run on an array of `area` usable bytes, and what is too large for it.
fn cells(
    options: &Options,
    members: &[MemberExpr],
    stripe: u64,
    area: u64,
) -> (Vec<Spec>, Vec<CaseProblem>) {
    let memory = members.iter().all(MemberExpr::is_memory);
    let (mut cells, mut too_small) = (Vec::new(), Vec::new());
    let kinds = match options.workloads.is_empty() {
        true => Kind::DEFAULT.to_vec(),
        false => options.workloads.clone(),
    };
    for kind in kinds {
        let (block, depth) = defaults(kind, memory, stripe);
        if kind == Kind::None {
            cells.push(no_requests(block));
            continue;
        }
        for block_bytes in or(&options.blocks.block, block) {
            for depth in or(&options.blocks.depth, depth) {
                for jobs in or(&options.blocks.jobs, 1) {
                    // Read-ahead changes sequential reads only: others run once.
                    let ahead = or(&options.blocks.read_ahead, 0);
                    let ahead = if kind == Kind::SeqRead { &ahead[..] } else { &[0][..] };
                    if area / block_bytes < u64::from(jobs) {
                        let (workload, area_bytes) = (kind.name(), area);
                        too_small.push(CaseProblem::TooSmall {
                            workload,
                            jobs,
                            block_bytes,
                            area_bytes,
                        });
                        continue;
                    }
                    for &read_ahead_bytes in ahead {
                        let closed = Spec {
                            kind,
                            block_bytes,
                            depth,
                            jobs,
                            read_ahead_bytes,
                            read_percent: None,
                            rate: None,
                            background: None,
                        };
                        let mixed = at_each_share(options, closed);
                        cells.extend(mixed.flat_map(|spec| at_each_rate(options, spec)));
                    }
                }
            }
        }
    }
    (cells, too_small)
}

/// No workload: nothing of requests multiplies it.
fn no_requests(block_bytes: u64) -> Spec {
    Spec {
        kind: Kind::None,
        block_bytes,
        depth: 0,
        jobs: 1,
        read_ahead_bytes: 0,
        read_percent: None,
        rate: None,
        background: None,
    }
}

/// A mixed workload with each share of reads; any other one as it is.
fn at_each_share(options: &Options, spec: Spec) -> impl Iterator<Item = Spec> {
    let shares = match spec.kind.is_mixed() {
        true => optional(&or(&options.mixed.read_percent, DEFAULT_READ_PERCENT)),
        false => vec![None],
    };
    shares.into_iter().map(move |read_percent| Spec { read_percent, ..spec })
}

/// The workload as a closed loop, or under each stated load.
fn at_each_rate(options: &Options, closed: Spec) -> impl Iterator<Item = Spec> {
    let process = options.blocks.rate_process;
    let rates = optional(&options.blocks.rate_iops).into_iter();
    rates.map(move |iops| Spec { rate: iops.map(|iops| Rate { iops, process }), ..closed })
}

/// The workloads beside each background work of the array, or without any; and why some cannot be.
fn with_background(
    options: &Options,
    cells: &[Spec],
    shape: &Shape,
    degraded: u32,
) -> (Vec<Spec>, Vec<CaseProblem>) {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for work in optional(&options.background.background) {
        let problem = match work {
            None => None,
            Some(work) => background_problem(work, shape, degraded),
        };
        if let (Some(work), Some(why)) = (work, problem) {
            problems.push(CaseProblem::Background { work: work.name(), why });
            continue;
        }
        let percents = or(&options.background.foreground_share, DEFAULT_FOREGROUND_PERCENT);
        for cell in cells {
            // Work that runs alone has no share to leave.
            let percents = match (work, cell.kind) {
                (None, _) => &percents[..1],
                (_, Kind::None) => &[DEFAULT_FOREGROUND_PERCENT],
                _ => &percents[..],
            };
            all.extend(percents.iter().map(|&foreground_percent| {
                let background = work.map(|work| Background { work, foreground_percent });
                Spec { background, ..*cell }
            }));
        }
    }
    if all.iter().any(|spec| spec.kind == Kind::None && spec.background.is_none()) {
        all.retain(|spec| spec.kind != Kind::None);
        problems.push(CaseProblem::NothingToDo);
    }
    (all, problems)
}

/// Why an array has no background work of a kind, if it does not.
fn background_problem(work: BackgroundWork, shape: &Shape, degraded: u32) -> Option<&'static str> {
    let level = shape.expr.level;
    let has_redundancy = !matches!(level, Level::Linear | Level::Raid0) && shape.expr.leaves() > 1;
    let more = || check_shape(&shape.expr, shape.chunks[0], degraded + 1);
    match work {
        _ if shape.nested => Some("nested arrays are not measured with background work"),
        _ if !has_redundancy => Some("the array has no redundancy"),
        BackgroundWork::Rebuild if more().is_err() => {
            Some("the array cannot serve without one more member, which is to be rebuilt")
        }
        BackgroundWork::Scrub | BackgroundWork::Resync if degraded > 0 => {
            Some("only complete arrays are scrubbed or resynced; run without --degraded")
        }
        _ => None,
    }
}

/// Default block size and depth. Sequential writes, mixed ones too, are whole stripes, as from a
/// file system with the stripe width configured.
fn defaults(kind: Kind, memory: bool, stripe: u64) -> (u64, u32) {
    let whole_stripes = match stripe {
        0 => SEQUENTIAL_BLOCK_BYTES,
        1..=SEQUENTIAL_BLOCK_BYTES => SEQUENTIAL_BLOCK_BYTES / stripe * stripe,
        _ => stripe.min(16 << 20),
    };
    match kind {
        Kind::None => (RANDOM_BLOCK_BYTES, 0),
        Kind::SeqRead => (SEQUENTIAL_BLOCK_BYTES, 4),
        Kind::SeqWrite | Kind::SeqMixed => (whole_stripes, 4),
        Kind::RandRead | Kind::RandWrite | Kind::RandMixed => {
            (RANDOM_BLOCK_BYTES, if memory { 32 } else { 16 })
        }
    }
}

/// An array cannot serve with that many missing members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{level} of {members} cannot serve with {missing} member(s) missing")]
pub struct CannotServe {
    /// Its level.
    pub level: Level,
    /// Its members.
    pub members: usize,
    /// Missing members.
    pub missing: u32,
}

/// The first `count` members that an array can lose, besides those that are already `out`.
///
/// # Errors
/// The array cannot serve with that many missing members.
pub fn tolerated_losses(
    geometry: &Geometry,
    count: u32,
    out: &dyn Fn(u16) -> bool,
) -> Result<Vec<MemberIdx>, CannotServe> {
    let mut gone: Vec<MemberIdx> = Vec::new();
    for member in (0..geometry.members() as u16).map(MemberIdx) {
        let stays = |other: MemberIdx| other != member && !out(other.0) && !gone.contains(&other);
        if gone.len() < count as usize && !out(member.0) && geometry.enough(stays) {
            gone.push(member);
        }
    }
    if gone.len() < count as usize {
        let (level, members) = (geometry.level(), geometry.members());
        return Err(CannotServe { level, members, missing: count });
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> Vec<MemberSet> {
        vec![text.parse().expect("a set")]
    }

    #[test]
    fn the_default_is_the_wikis_table_and_more() {
        let plan = plan(&Options::default()).expect("a plan");
        assert_eq!(plan.arrays.len(), DEFAULT_TABLE.len());
        assert_eq!(plan.cells(), 4 * DEFAULT_TABLE.len());
        assert!(plan.left_out.is_empty());
        let raid5 = plan.arrays.iter().find(|a| a.array.expr.level == Level::Raid5).expect("raid5");
        let write = raid5.cells.iter().find(|c| c.kind == Kind::SeqWrite).expect("seq-write");
        assert_eq!(write.block_bytes, 768 << 10, "whole stripes of 3 x 256 KiB");
    }

    #[test]
    fn background_work_multiplies_workloads_and_needs_redundancy() {
        let options = |levels: &[&str], degraded| {
            Options::default().with(|it| {
                it.arrays.level =
                    levels.iter().map(|level| level.parse().expect("a level")).collect();
                it.engine.members = set("mem");
                it.arrays.degraded = vec![degraded];
                it.workloads = vec![Kind::None, Kind::RandRead];
                it.background.background = BackgroundWork::ALL.to_vec();
                it.background.foreground_share = vec![50, 75];
            })
        };
        let found = plan(&options(&["raid5", "raid0", "single"], 0)).expect("a plan");
        assert_eq!(found.arrays.len(), 1, "of RAID 5");
        let cells = &found.arrays[0].cells;
        assert_eq!(cells.len(), 3 + 3 * 2, "alone without shares");
        assert!(cells.iter().all(|cell| cell.background.is_some()));
        assert_eq!(found.left_out.len(), 2 * 3);
        let why = found.left_out[0].to_string();
        assert_eq!(why, "raid0(4): --background rebuild: the array has no redundancy");
        // RAID 5 has no second member to lose, RAID 6 has; what is missing is not scrubbed.
        let found = plan(&options(&["raid5", "raid6"], 1)).expect("a plan");
        assert_eq!((found.arrays.len(), found.left_out.len()), (1, 3 + 2));
        assert_eq!(found.arrays[0].cells.len(), 3);
        let nested = options(&[], 0).with(|it| {
            it.arrays.level = Vec::new();
            it.arrays.array = vec!["raid1(raid0(2),raid0(2))".parse().expect("an array")];
        });
        let refused = plan(&nested).expect_err("nested").to_string();
        assert!(refused.ends_with("nested arrays are not measured with background work"));
        let nothing = options(&["raid5"], 0).with(|it| it.background.background = Vec::new());
        let found = plan(&nothing).expect("a plan");
        assert_eq!(found.arrays[0].cells.len(), 1);
        assert!(found.left_out[0].to_string().contains("none: no workload"), "{found:?}");
    }

    #[test]
    fn lists_multiply_and_nonsense_is_named() {
        let options = Options::default().with(|it| {
            it.arrays.level = vec![BenchLevel::Md(Level::Raid0), BenchLevel::Md(Level::Raid5)];
            it.arrays.degraded = vec![0, 1];
            it.arrays.chunk = vec![65536, 131_072];
            it.engine.members = set("mem");
            it.workloads = vec![Kind::RandRead];
            it.blocks.depth = vec![1, 32];
        });
        let plan = plan(&options).expect("a plan");
        // raid0 x 2 chunks healthy, raid5 x 2 chunks x (healthy, degraded).
        assert_eq!(plan.arrays.len(), 6);
        assert_eq!(plan.cells(), 12);
        assert_eq!(plan.left_out.len(), 2);
        assert!(plan.left_out[0].to_string().contains("--degraded 1"), "{:?}", plan.left_out);
    }

    #[test]
    fn nothing_left_is_an_error_that_says_why() {
        for (options, named) in [
            (
                Options::default().with(|it| {
                    it.arrays.disks = vec![3];
                    it.arrays.level = vec![BenchLevel::Md(Level::Raid6)];
                }),
                "raid6",
            ),
            (Options::default().with(|it| it.arrays.chunk = vec![5000]), "multiple of 4 KiB"),
            (
                Options::default().with(|it| {
                    it.arrays.level = vec![BenchLevel::Md(Level::Raid5)];
                    it.arrays.chunk = vec![12288];
                }),
                "power of two",
            ),
            (
                Options::default().with(|it| {
                    it.arrays.level = vec![BenchLevel::Md(Level::Raid1)];
                    it.engine.members = set("mem*3");
                    it.arrays.disks = vec![2];
                }),
                "names 3 member(s)",
            ),
        ] {
            let error = plan(&options).expect_err(named).to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn size_is_the_arrays_and_members_are_made_to_fit() {
        let options = Options::default().with(|it| {
            it.arrays.level = vec![BenchLevel::Md(Level::Raid5)];
            it.arrays.disks = vec![6];
            it.sizes = vec![5 << 30];
            it.engine.members = set("mem");
        });
        let plan = plan(&options).expect("a plan");
        assert_eq!(plan.arrays[0].array.member_bytes, 1 << 30);
        assert_eq!(plan.arrays[0].array.area_bytes, Some(5 << 30));
    }

    #[test]
    fn a_device_is_read_as_it_is_found_where_nothing_writes_and_no_array_is_made() {
        let read_only = |levels: &[&str], workloads: &[Kind], members: &str| -> Vec<bool> {
            let options = Options::default().with(|it| {
                it.arrays.level =
                    levels.iter().map(|level| level.parse().expect("a level")).collect();
                it.workloads = workloads.to_vec();
                it.engine.members = set(members);
            });
            let arrays = plan(&options).expect("a plan").arrays;
            arrays.iter().map(|planned| planned.array.read_only).collect()
        };
        let reads = [Kind::SeqRead, Kind::RandRead];
        assert_eq!(read_only(&["single"], &reads, "/dev/a+/dev/b"), [true]);
        assert_eq!(read_only(&["single"], &Kind::ALL, "/dev/a"), [false]);
        assert_eq!(read_only(&["single", "raid0"], &reads, "/dev/a+/dev/b"), [false, false]);
        assert_eq!(read_only(&["single"], &reads, "file"), [false]);
        assert_eq!(read_only(&["single"], &reads, "fault:gone@9:/dev/a"), [false]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_cell_by_cell() {
        let options = Options::default().with(|it| {
            it.arrays.level = vec![BenchLevel::Md(Level::Raid0)];
            it.sizes = vec![1 << 20];
            it.engine.members = set("mem");
            it.blocks.jobs = vec![1, 2];
        });
        let plan = plan(&options).expect("a plan");
        // Two sequential jobs with blocks of 1 MiB need two of them.
        assert_eq!(plan.cells(), 6);
        assert_eq!(plan.left_out.len(), 2);
        assert!(
            plan.left_out[0]
                .to_string()
                .contains("2 job(s) with blocks of 1 MiB do not fit into 1 MiB")
        );
    }

    #[test]
    fn chunks_multiply_only_where_there_are_any() {
        let expr = |text: &str| text.parse::<ArrayExpr>().expect("an expression");
        let list = |text: &str| text.parse().expect("a list");
        let options = Options::default().with(|it| {
            it.arrays.level = vec![BenchLevel::Single, BenchLevel::Md(Level::Raid1)];
            it.arrays.array =
                vec![list("raid1(2)"), list("raid0,64K(2)"), list("raid1(raid0(2),raid0,64K(2))")];
            it.arrays.chunk = vec![65536, 131_072];
            it.engine.members = set("mem");
        });
        let arrays = plan(&options).expect("a plan").arrays;
        let counts = |text: &str| arrays.iter().filter(|a| a.array.expr == expr(text)).count();
        assert_eq!((counts("raid1(2)"), counts("raid0,64K(2)")), (1, 1));
        assert_eq!(counts("raid1(raid0(2),raid0,64K(2))"), 2);
        assert_eq!((counts("linear(1)"), counts("raid1(4)")), (1, 1));
    }

    #[test]
    fn the_largest_chunk_is_that_of_md() {
        let with = |bytes: u64| {
            Options::default().with(|it| {
                it.arrays.level = vec![BenchLevel::Md(Level::Raid5)];
                it.arrays.chunk = vec![bytes];
                it.engine.members = set("mem");
            })
        };
        let largest = plan(&with(64 << 20)).expect("a plan");
        assert_eq!((largest.arrays.len(), largest.left_out.len()), (1, 0));
        let problem = plan(&with((64 << 20) + 4096)).expect_err("too large").to_string();
        assert!(problem.contains("a chunk has at most 64 MiB"), "{problem}");
    }

    proptest! {
        /// Members are made to fit: the area is there, and no member could be a step smaller.
        #[test]
        fn the_area_that_is_asked_for_is_there(
            text in proptest::sample::select(vec![
                "linear(3)", "raid0(3)", "raid1(2)", "raid4(3)", "raid5(6)", "raid6(5)",
                "raid10(4)", "raid10(5)", "raid10,f2(3)", "raid10,o3(4)", "raid0,12K(3)",
                "raid1(raid0(2),raid0(2))", "raid0(raid5,1M(3),raid5(4))",
            ]),
            chunk_shift in 12u32..23,
            area in 1u64..1 << 36,
        ) {
            let expr: ArrayExpr = text.parse().expect("an expression");
            let chunk = 1 << chunk_shift;
            let (ratio, _) = check_shape(&expr, chunk, 0).expect("a shape");
            let asked = (Some(area), DEFAULT_MEMBER_BYTES);
            let (member_bytes, usable) = fit(&expr, chunk, ratio, asked);
            prop_assert_eq!(usable, area);
            let unit = largest_chunk(&expr, chunk).next_multiple_of(1 << 20);
            prop_assert!(member_bytes.is_multiple_of(unit));
            let generous = (area as f64 / ratio) as u64 + 9 * unit;
            prop_assert!(member_bytes <= generous, "{} for {}", member_bytes, area);
        }

        /// Whatever is requested, the answer is a plan that can be built, or a line that says why.
        #[test]
        fn no_combination_is_too_strange(
            levels in proptest::collection::vec(proptest::sample::select(vec![
                "single", "linear", "raid0", "raid1", "raid4", "raid5", "raid6", "raid10",
            ]), 0..3),
            layouts in proptest::collection::vec(proptest::sample::select(vec![
                "n2", "f2", "left-symmetric", "ddf-N-restart", "nonsense",
            ]), 0..3),
            disks in proptest::collection::vec(prop_oneof![0u32..9, any::<u32>()], 0..3),
            chunks in proptest::collection::vec(
                prop_oneof![Just(4096u64), Just(65536), 0u64..1 << 28, any::<u64>()], 0..3,
            ),
            degraded in proptest::collection::vec(prop_oneof![0u32..4, any::<u32>()], 0..3),
            sizes in proptest::collection::vec(prop_oneof![1u64..1 << 32, any::<u64>()], 0..3),
            blocks in proptest::collection::vec((1u64..32_769).prop_map(|b| b * 512), 0..3),
            jobs in proptest::collection::vec(1u32..257, 0..3),
            read_aheads in proptest::collection::vec(any::<u64>(), 0..2),
            caches in proptest::collection::vec(any::<u64>(), 0..2),
            members in proptest::sample::select(vec![
                "mem", "mem*3+null", "paced:hdd-2007*4", "fault:flip@1M:mem",
            ]),
        ) {
            let options = Options::default().with(|it| {
                let levels = levels.iter().map(|level| level.parse().expect("a level"));
                it.arrays.level = levels.collect();
                it.arrays.layout = layouts.iter().map(|layout| layout.to_string()).collect();
                it.arrays.disks = disks;
                it.arrays.chunk = chunks;
                it.arrays.degraded = degraded;
                it.sizes = sizes;
                it.blocks.block = blocks;
                it.blocks.jobs = jobs;
                it.blocks.read_ahead = read_aheads;
                it.engine.stripe_cache = caches;
                it.engine.members = set(members);
            });
            match plan(&options) {
                Err(why) => {
                    let why = why.to_string();
                    prop_assert!(!why.is_empty() && !why.contains('\n'));
                }
                Ok(plan) => {
                    prop_assert!(plan.cells() > 0);
                    for case in &plan.arrays {
                        prop_assert_eq!(case.array.members.len(), case.array.expr.leaves());
                        prop_assert!(!case.cells.is_empty());
                        prop_assert!(case.array.member_bytes.is_multiple_of(1 << 20));
                        case.cells.iter().for_each(|cell| assert!(cell.in_flight() > 0));
                    }
                }
            }
        }
    }
}
