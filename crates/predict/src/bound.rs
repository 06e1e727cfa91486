//! The bound of a cell: what its members could deliver together for the cell's access pattern.
//!
//! Computed from geometry and drive models alone, without any engine (docs/design/0001):
//!
//! ```text
//!   pattern -> request -> demand (unavoidable operations) -> drive::Rig, virtual time
//!                 ^                                               |
//!                 '------------ closed loop: the next one --------'
//! ```
//!
//! Sequential patterns run with enough in flight to keep every member streaming, whatever the
//! cell's depth: adjacent member operations are merged, so the block size does not matter. The
//! copies of mirrors are read in turn where enough is in flight. Random patterns run at the cell's
//! depth and block. Where a layout leaves a choice, the better one
//! counts: read-modify-write or reconstruct-write, the nearest copy or always the first. Where
//! members share a wire or a disk, the length of an operation decides how long the others wait, and
//! the best length counts. A write pattern ends with a flush, so that volatile caches do not raise
//! it.
//!
//! Invariant: pure and deterministic. Called by the runner for each cell; `closed_loop` runs it.

mod closed_loop;
mod demand;

use closed_loop::{Drives, Outcome, Pace};
use demand::{CopyChoice, Policy};
use drive::{Placement, Profile};
use spec::topology::StorageTopology;

pub use closed_loop::wired;
pub use demand::Shape;

/// One member's drive.
#[derive(Clone, Copy, Debug)]
pub struct MemberDrive<'a> {
    /// The drive model.
    pub profile: &'a Profile,
    /// Placement of the member on it.
    pub placement: Placement,
    /// Size of the member, bytes.
    pub member_bytes: u64,
}

/// Access pattern of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One stream per job, reading.
    SequentialRead,
    /// One stream per job, writing.
    SequentialWrite,
    /// Aligned blocks at random, reading.
    RandomRead,
    /// Aligned blocks at random, writing.
    RandomWrite,
}

impl Pattern {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Pattern::SequentialWrite | Pattern::RandomWrite)
    }

    /// Whether addresses are sequential.
    pub fn sequential(self) -> bool {
        matches!(self, Pattern::SequentialRead | Pattern::SequentialWrite)
    }
}

/// The properties of a cell that its bound depends on.
#[derive(Clone, Copy, Debug)]
pub struct CellShape<'a> {
    /// The array.
    pub shape: &'a Shape,
    /// The drive of each leaf, in slot (nested: text) order; `None` for members that no model
    /// describes (memory, null, plain files), which makes the bound unknown.
    pub members: &'a [Option<MemberDrive<'a>>],
    /// Buses, channels and spindles that the members share.
    pub topology: StorageTopology,
    /// Missing leaves.
    pub missing: &'a [usize],
    /// The access pattern.
    pub pattern: Pattern,
    /// Request size, bytes.
    pub block_bytes: u64,
    /// Requests in flight per job.
    pub depth: u32,
    /// Number of jobs. Sequential jobs have equal, adjacent shares of the span.
    pub jobs: u32,
    /// Bytes of the array that the workload uses, from its start; `None`: all.
    pub span_bytes: Option<u64>,
}

/// The bound of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// MB/s (10^6 bytes) of the workload.
    pub mb_per_s: f64,
    /// Requests of the cell's block size per second.
    pub iops: f64,
    /// The limiting factor, for display.
    pub note: String,
}

/// The bound of a cell. `None` when a member has no drive model, when the array cannot serve its
/// data without the missing members, or when a request is larger than the span.
///
/// # Panics
/// When there is not one entry in `members` per leaf, a missing leaf does not exist, or block,
/// depth or jobs is 0.
pub fn bound(cell: &CellShape<'_>) -> Option<Bound> {
    assert_eq!(cell.members.len(), cell.shape.leaves(), "one entry per leaf");
    assert!(
        cell.block_bytes > 0 && cell.depth > 0 && cell.jobs > 0,
        "a load has a block size, a depth and jobs"
    );
    let mut present = vec![true; cell.members.len()];
    cell.missing.iter().for_each(|&leaf| present[leaf] = false);
    let drives: Vec<MemberDrive<'_>> = cell.members.iter().copied().collect::<Option<_>>()?;
    if !cell.shape.enough(&present) {
        return None;
    }
    let pace = Pace::of(cell)?;
    let ranks = ranks(cell, &drives);
    let rig = Drives { all: &drives, present: &present, ranks: &ranks };
    let deep = pace.clone().with_depth_of(cell);
    let run = |policy: Policy, piece: u64| {
        let pace = if policy.copy == CopyChoice::Idle { &deep } else { &pace };
        closed_loop::run(cell, &rig, pace, policy, piece)
    };
    let pieces = pieces(cell);
    let outcomes = policies(cell, &ranks)
        .into_iter()
        .flat_map(|policy| pieces.iter().map(move |piece| run(policy, *piece)));
    let best = outcomes.max_by(|one, two| one.mb_per_s().total_cmp(&two.mb_per_s()))?;
    let mb_per_s = best.mb_per_s();
    let iops = mb_per_s * 1e6 / cell.block_bytes as f64;
    Some(Bound { mb_per_s, iops, note: note(cell, &best) })
}

/// The place of each member among the others by what it reads in order alone, the fastest first;
/// equal ones share a place, and all do where there are no copies to choose from.
fn ranks(cell: &CellShape<'_>, drives: &[MemberDrive<'_>]) -> Vec<usize> {
    let is_alike = drives.windows(2).all(|pair| {
        let [one, next] = [pair[0], pair[1]];
        std::ptr::eq(one.profile, next.profile)
            && (one.placement, one.member_bytes) == (next.placement, next.member_bytes)
    });
    if is_alike || cell.pattern != Pattern::SequentialRead || !cell.shape.has_copies() {
        return vec![0; drives.len()];
    }
    let alone = |drive: &MemberDrive<'_>| {
        let shape = Shape::single(drive.member_bytes);
        let members = [Some(*drive)];
        let topology = StorageTopology::default();
        let one = CellShape { shape: &shape, members: &members, topology, missing: &[], ..*cell };
        let one = CellShape { span_bytes: None, jobs: 1, ..one };
        bound(&one).map_or(0.0, |bound| bound.mb_per_s)
    };
    let rates: Vec<f64> = drives.iter().map(alone).collect();
    rates.iter().map(|own| rates.iter().filter(|other| *other > own).count()).collect()
}

/// The policies that may differ for this cell.
fn policies(cell: &CellShape<'_>, ranks: &[usize]) -> Vec<Policy> {
    let copy = if cell.pattern.sequential() { CopyChoice::First } else { CopyChoice::LeastBusy };
    let usual = Policy { copy, read_modify_write: true };
    let mut all = vec![usual];
    match cell.pattern {
        Pattern::SequentialRead => {
            // One stream may be read from any copy,
            if ranks.iter().any(|rank| *rank > 0) {
                all.push(Policy { copy: CopyChoice::Fastest, ..usual });
            }
            // and a deep one from all of them, in long runs.
            if cell.shape.has_copies() && cell.depth > 1 {
                all.push(Policy { copy: CopyChoice::Idle, ..usual });
            }
        }
        Pattern::RandomRead if cell.shape.has_copies() => {
            all.push(Policy { copy: CopyChoice::First, ..usual });
        }
        Pattern::RandomWrite if cell.shape.has_parity() => {
            all.push(Policy { read_modify_write: false, ..usual });
        }
        _ => {}
    }
    all
}

/// Lengths of member operations that may differ for this cell, in sectors. With one command at a
/// time on a channel, a disk whose read-ahead holds less than a piece keeps the channel while it
/// reads; with pieces that it holds, the other disks seek in the meantime.
fn pieces(cell: &CellShape<'_>) -> &'static [u64] {
    match cell.pattern.sequential() && cell.topology != StorageTopology::default() {
        true => &[64, 128, 192, 256, 384, closed_loop::PIECE_SECTORS, 1024],
        false => &[closed_loop::PIECE_SECTORS],
    }
}

fn note(cell: &CellShape<'_>, best: &Outcome) -> String {
    let per_user = |bytes: u64| bytes as f64 / best.issued_bytes.max(1) as f64;
    let all = per_user(best.leaf_bytes.iter().sum());
    if let Some(limit) = full_bus(cell, best) {
        return limit;
    }
    let shared = sharing(cell.topology);
    if cell.pattern.sequential() {
        let busiest = best.leaf_bytes.iter().max().copied().unwrap_or(0);
        return format!(
            "streaming: members move {all:.2} bytes per byte, the busiest {:.2}{shared}",
            per_user(busiest)
        );
    }
    let per_request = |ops: u64| ops as f64 / best.issued_requests.max(1) as f64;
    format!(
        "closed loop of {}: {:.1} reads and {:.1} writes per request{shared}",
        u64::from(cell.depth) * u64::from(cell.jobs),
        per_request(best.reads),
        per_request(best.writes)
    )
}

/// `the bus limits: it carries 1.25 bytes per byte`; `None` where no bus is full.
fn full_bus(cell: &CellShape<'_>, best: &Outcome) -> Option<String> {
    let buses = cell.topology.buses?;
    let parts = cell.topology.parts(best.leaf_bytes.len());
    let carried = |bus: usize| -> f64 {
        let on_it = parts.iter().zip(&best.leaf_bytes).filter(|(part, _)| part.bus == Some(bus));
        on_it.map(|(_, bytes)| *bytes as f64).sum::<f64>() / best.issued_bytes.max(1) as f64
    };
    let rate = best.user_bytes as f64 / best.seconds();
    let full = |(bus, limit): &(usize, u64)| carried(*bus) * rate > 0.95 * *limit as f64;
    let (bus, limit) = buses.rates().enumerate().find(full)?;
    let name = match buses.of_all() {
        Some(_) => "the bus".to_string(),
        None => format!("the bus of {} MB/s", limit as f64 / 1e6),
    };
    Some(format!("{name} limits: it carries {:.2} bytes per byte", carried(bus)))
}

/// `; 2 members to a disk; one command at a time for 2 disks`.
fn sharing(topology: StorageTopology) -> String {
    let mut text = String::new();
    if let Some(members) = topology.members_per_spindle.filter(|members| *members > 1) {
        text.push_str(&format!("; {members} members to a disk"));
    }
    match topology.disks_per_channel {
        Some(1) => text.push_str("; one command at a time for each disk"),
        Some(disks) => text.push_str(&format!("; one command at a time for {disks} disks")),
        None => {}
    }
    text
}

#[cfg(test)]
#[path = "bound/tests.rs"]
mod tests;
