//! Findings about CPU time.
//!
//! Invariant: as in the module above. Where the generator takes most of the time, the finding names
//! the generator, not the engine.

use super::{finding, percent, seconds, short};
use crate::record::{Cell, Finding};

/// Name prefix of the generating threads of block workloads.
const GENERATORS: &str = "lane-";

/// The share of one CPU that the generator takes, by its calibration.
fn generator_share(cell: &Cell) -> Option<f64> {
    let ns = cell.measured.generator_ns_per_op?;
    let ops: u64 = cell.measured.samples.iter().map(|sample| sample.ops).sum();
    let share =
        ns * ops as f64 / 1e9 / seconds(cell) / f64::from(cell.case.cores.unwrap_or(1).max(1));
    share.is_finite().then_some(share)
}

/// Choosing, filling and checking blocks takes most of the time.
pub(super) fn generator_bound(cell: &Cell) -> Option<Finding> {
    const MOST: f64 = 0.5;
    let share = generator_share(cell).filter(|share| *share >= MOST)?;
    let ns = cell.measured.generator_ns_per_op?;
    let text = format!(
        "the generator took {} of the time ({} ns for each request, to choose, fill and check \
         it): the figure measures it as much as the array",
        percent(share.min(1.0)),
        short(ns)
    );
    let evidence = [("generator_share", share), ("generator_ns_per_op", ns)];
    let command = match cell.case.cores {
        None | Some(1) => "--cores 2".to_string(),
        Some(cores) => format!("--cores {}", cores * 2),
    };
    Some(finding("generator-bound", text, &evidence, Some(command)))
}

/// Other processes or virtual machines used CPU time that this workload may have needed.
pub(super) fn busy_machine(cell: &Cell) -> Option<Finding> {
    const BUSY_CPUS: f64 = 0.2;
    let stolen = cell.measured.series.as_ref().map_or(&[][..], |series| &series.stolen_cpus);
    let stolen = match stolen.len() {
        0 => 0.0,
        count => stolen.iter().map(|cpus| f64::from(*cpus)).sum::<f64>() / count as f64,
    };
    let others = cell.measured.others_cpus.unwrap_or(0.0);
    if others.max(stolen) < BUSY_CPUS {
        return None;
    }
    let who = [(others, "other processes used"), (stolen, "other virtual machines took")];
    let who = who.iter().filter(|(cpus, _)| *cpus >= BUSY_CPUS);
    let who = who.map(|(cpus, who)| format!("{who} {} CPUs", short(*cpus)));
    let text = format!(
        "{} on average during the samples: the figure may be lower than on an idle machine",
        who.collect::<Vec<_>>().join(", ")
    );
    let evidence = [("others_cpus", others), ("stolen_cpus", stolen)];
    let command = "measure on an idle machine, or use --repeat and look at the spread".to_string();
    Some(finding("busy-machine", text, &evidence, Some(command)))
}

/// A thread is saturated, and the members are not. A program, and a block workload on another
/// target than the engine in process, is judged by the busiest thread alone: a program has as many
/// threads as workers, and the place below has more, whatever `--cores` says. There a number of
/// cores is advised only where a generator is the busiest.
pub(super) fn cpu_bound(cell: &Cell) -> Option<Finding> {
    const FULL: f64 = 0.9;
    const AT_THE_BOUND: f64 = 0.9;
    const MEMBERS_BUSY: f64 = 0.9;
    const MOST: f64 = 1.1;
    let wall = seconds(cell);
    let busiest = cell.measured.cpu_threads.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let cores = f64::from(cell.case.cores.unwrap_or(1).max(1));
    let thread = busiest.map(|thread| thread.seconds / wall);
    let share = match cell.case.program.is_some() || cell.case.place.is_some() {
        true => thread?,
        false => (cell.measured.cpu_process_s? / wall / cores).max(thread.unwrap_or(0.0)),
    };
    let members_full = cell.derived.bound_share.is_some_and(|share| share >= AT_THE_BOUND)
        || cell
            .measured
            .member_load
            .iter()
            .filter_map(|load| load.busy)
            .any(|busy| busy >= MEMBERS_BUSY);
    // More than 100 % was measured over a different interval.
    let contradicts = thread.is_some_and(|thread| thread > MOST);
    if !share.is_finite()
        || share < FULL
        || contradicts
        || members_full
        || generator_bound(cell).is_some()
    {
        return None;
    }
    let used = match busiest.filter(|_| thread.is_some_and(|thread| thread >= FULL)) {
        Some(thread) => {
            format!("thread {} used {} of one CPU", thread.name, percent(share.min(1.0)))
        }
        None => format!("the process used {} of {cores} CPU(s)", percent(share.min(1.0))),
    };
    let text = format!("{used} all the time: the CPU is the limit, not the members");
    let mut evidence = vec![("cpu_share", share)];
    evidence.extend(cell.measured.cpu_process_s.map(|seconds| ("cpu_process_s", seconds)));
    evidence.extend(busiest.map(|thread| ("busiest_thread_s", thread.seconds)));
    evidence.extend(cell.derived.cpu_s_per_gib.map(|cost| ("cpu_s_per_gib", cost)));
    evidence.extend(generator_share(cell).map(|share| ("generator_share", share)));
    let more = format!("--cores {}", cell.case.cores.unwrap_or(1).max(1) * 2);
    let generates = busiest.is_some_and(|thread| thread.name.starts_with(GENERATORS));
    let helps = cell.case.program.is_none() && (cell.case.place.is_none() || generates);
    let command = helps.then_some(more);
    Some(finding("cpu-bound", text, &evidence, command))
}
