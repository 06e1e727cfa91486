//! Findings about the queue depth.
//!
//! Invariant: as in the module above.

use spec::target::TargetKind;
use spec::workload::AccessKind;

use super::advice::{Knob, turn};
use super::{finding, mean_busy, percent, short, stripe_kib};
use crate::record::{Cell, Finding};

/// Share of the bound above which the queue depth is not the limit.
const AT_THE_BOUND: f64 = 0.85;

fn at_the_bound(cell: &Cell) -> bool {
    cell.derived.bound_share.is_some_and(|share| share >= AT_THE_BOUND)
}

/// Never more than one request was in flight, though several members could have worked.
pub(super) fn never_deeper_than_one(cell: &Cell) -> Option<Finding> {
    // The mean over the steps of a queue that never exceeds one may be slightly above one.
    const ONE: f64 = 1.05;
    let read_ahead =
        cell.case.read_ahead_kib.unwrap_or(0) + through_page_cache(cell).flatten().unwrap_or(0);
    let ahead = cell.case.workload == AccessKind::SeqRead && read_ahead > 0;
    // The bound of a random pattern is one at its own depth: it says nothing about deeper queues.
    let full = at_the_bound(cell) && cell.is_sequential();
    if cell.case.disks < 2 || cell.case.depth.max(1) * cell.case.jobs.max(1) != 1 || ahead || full {
        return None;
    }
    // Where operations in flight were counted, the count decides: a page cache writes with more in
    // flight than a program submits. A program without a count may have such a cache below it.
    let loads = cell.measured.member_load.iter().map(|load| load.in_flight);
    let counted: Option<f64> =
        loads.clone().collect::<Option<Vec<f64>>>().map(|all| all.iter().sum());
    let counted = counted.filter(|_| !cell.measured.member_load.is_empty());
    // One request may cover all members: the deepest queue of a single member decides.
    let deepest = loads.flatten().reduce(f64::max);
    if deepest.is_some_and(|deepest| deepest > ONE)
        || (counted.is_none() && cell.case.place.is_some())
    {
        return None;
    }
    let on_all = counted.map_or(String::new(), |all| {
        format!(" ({} operations in flight on all members together, on average)", short(all))
    });
    let text = format!(
        "one request at a time on {} members{on_all}: most of them are idle most of the time",
        cell.case.disks
    );
    let mut evidence = vec![
        ("depth", f64::from(cell.case.depth.max(1))),
        ("jobs", f64::from(cell.case.jobs.max(1))),
        ("members", f64::from(cell.case.disks)),
    ];
    evidence.extend(counted.map(|all| ("in_flight", all)));
    let command = turn(cell, Knob::Depth, u64::from(cell.case.disks * 4).min(1024));
    Some(finding("queue-never-deeper-than-one", text, &evidence, command))
}

/// Fewer random requests in flight than it takes to keep all members busy: some are idle by chance
/// while others have several.
pub(super) fn too_shallow(cell: &Cell) -> Option<Finding> {
    const IDLE: f64 = 0.75;
    const EACH: u32 = 4;
    let asked = cell.case.depth.max(1).saturating_mul(cell.case.jobs.max(1));
    let members = cell.case.disks.saturating_sub(cell.case.degraded);
    // The page cache below a program may submit more requests than the program.
    let busy = mean_busy(cell).filter(|busy| *busy < IDLE)?;
    let random = cell.is_random();
    if !random || cell.case.program.is_some() || asked < 2 || members < 2 || asked >= EACH * members
    {
        return None;
    }
    // Of n members, n (1 - (1 - 1/n)^q) have at least one of q uniformly random requests.
    let count = f64::from(members);
    let working = count * (1.0 - (1.0 - 1.0 / count).powf(f64::from(asked)));
    let text = format!(
        "queue depth {asked} on {members} members: at random offsets {} of them have a request on \
         average; they were busy {} of the time",
        short(working),
        percent(busy)
    );
    let evidence = [
        ("requests", f64::from(asked)),
        ("members", count),
        ("members_with_one", working),
        ("members_busy", busy),
    ];
    let each = u64::from((EACH * members * 2).div_ceil(cell.case.jobs.max(1)).min(1024));
    Some(finding("queue-too-shallow", text, &evidence, turn(cell, Knob::Depth, each)))
}

/// Members take one command at a time while more are queued: a disk cannot reorder them.
pub(super) fn one_command_each(cell: &Cell) -> Option<Finding> {
    const IDLE: f64 = 0.3;
    let asked = cell.case.depth.max(1).saturating_mul(cell.case.jobs.max(1));
    let drives = cell.case.place.as_ref().map_or(&[][..], |place| &place.drives);
    let by_driver = !drives.is_empty() && drives.iter().all(|drive| drive.queue_depth == Some(1));
    let by_option = cell.case.knobs.queue_depth == Some(1);
    let random = cell.is_random();
    // Members in memory have nothing to reorder, and no busy time.
    let idle = mean_busy(cell).is_none_or(|busy| busy < IDLE);
    if !(by_option || by_driver) || !random || asked <= cell.case.disks || idle {
        return None;
    }
    let text = format!(
        "queue depth {asked}, and each of {} members takes 1 command at a time: none can reorder \
         commands by distance (NCQ is off)",
        cell.case.disks
    );
    let evidence = [
        ("requests", f64::from(asked)),
        ("members", f64::from(cell.case.disks)),
        ("queue_depth", 1.0),
    ];
    let command = match by_option {
        true => "--queue-depth 32",
        false => "echo 31 > /sys/block/sdX/device/queue_depth",
    };
    Some(finding("one-command-each", text, &evidence, Some(command.to_string())))
}

/// A sequential reader requests less ahead than it takes to keep all members busy.
pub(super) fn read_ahead_too_small(cell: &Cell) -> Option<Finding> {
    if cell.case.workload != AccessKind::SeqRead || at_the_bound(cell) {
        return None;
    }
    let stripe = stripe_kib(cell)?;
    let (window, ahead) = match through_page_cache(cell) {
        // Below a file system or the page cache only the device's read-ahead counts; the kernel
        // reads all of a larger request at once.
        Some(ahead) if cell.case.block_kib > ahead? as f64 => return None,
        Some(ahead) => (ahead? as f64, ahead?),
        None => {
            let ahead = cell.case.read_ahead_kib.unwrap_or(0);
            (f64::from(cell.case.depth) * cell.case.block_kib + ahead as f64, ahead)
        }
    };
    let window = window * f64::from(cell.case.jobs.max(1));
    let idle = members_had_time(cell);
    // Without a bound or busy times its cost is unknown.
    if window >= stripe as f64
        || !(cell.derived.bound_share.is_some() || idle.is_some_and(|idle| idle))
    {
        return None;
    }
    let lost = cell.derived.bound_share.map_or(String::new(), |share| {
        format!("; {} of what the members could deliver", percent(share))
    });
    let text = format!(
        "{} KiB are requested ahead, a stripe is {stripe} KiB: not all members are busy{lost}",
        short(window)
    );
    let mut evidence = vec![
        ("window_kib", window),
        ("read_ahead_kib", ahead as f64),
        ("stripe_kib", stripe as f64),
    ];
    evidence.extend(cell.derived.bound_share.map(|share| ("bound_share", share)));
    let wanted = stripe * 2;
    let command = match (through_page_cache(cell), &cell.case.place) {
        (Some(_), _) => Some(format!("blockdev --setra {} /dev/mdX", wanted * 2)),
        (None, Some(_)) if cell.case.program.is_none() => None,
        (None, _) => turn(cell, Knob::ReadAhead, wanted),
    };
    Some(finding("read-ahead-too-small", text, &evidence, command))
}

/// The device's read-ahead, KiB, where reads pass through a file system's page cache. The outer
/// `None`: they do not, as on a block device, which is read with direct I/O.
fn through_page_cache(cell: &Cell) -> Option<Option<u64>> {
    let place = cell.case.place.as_ref()?;
    let past = matches!(cell.case.target.known(), Some(TargetKind::Device | TargetKind::Kernel));
    (!past).then_some(place.read_ahead_kib)
}

/// Whether the busiest member had idle time; `None` where busy time was not counted.
fn members_had_time(cell: &Cell) -> Option<bool> {
    let busiest = cell.measured.member_load.iter().filter_map(|load| load.busy).reduce(f64::max)?;
    Some(busiest < AT_THE_BOUND)
}
