//! Runs of one matrix, again and again: `bench --repeat`. Each cell of each run is in the record;
//! tables show one for all of them.
//!
//! ```text
//!   record:  A1 B1 C1  A2 B2 C2  A3 B3 C3     in this order of time, other addresses each time
//!   table:   A  B  C                          median of the runs, spread from run to run
//! ```
//! Invariant: only runs of the same measurement are folded (`settings::identity`); the record
//! itself is never folded. Called by `compare` and by the command line.

use results::record::{
    Cell, DirectionFigures, ForegroundAlone, Latency, MemberTraffic, Record, Spread,
};
use results::settings::identity;
use results::stats;

/// The record with one cell for all repetitions of it.
pub fn folded(record: &Record) -> Record {
    let mut groups: Vec<(Option<String>, Vec<&Cell>)> = Vec::new();
    for cell in &record.cells {
        let key = cell.case.repetition.map(|_| identity(cell));
        match groups.iter_mut().find(|(known, _)| key.is_some() && *known == key) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    let cells = groups.iter().map(|(_, cells)| fold(cells)).collect();
    let mut folded = Record { cells, ..record.clone() };
    if folded.cells.len() < record.cells.len() {
        folded.set_ratios();
    }
    folded
}

/// One cell of several runs: what is not a figure is that of the run in the middle.
fn fold(cells: &[&Cell]) -> Cell {
    let mut by_rate = cells.to_vec();
    by_rate.sort_by(|one, two| one.rate().total_cmp(&two.rate()));
    let mut cell = by_rate[(by_rate.len() - 1) / 2].clone();
    if cells.len() < 2 {
        return cell;
    }
    let rates = |of: fn(&Cell) -> f64| cells.iter().map(|cell| of(cell)).collect::<Vec<f64>>();
    let sum = |of: fn(&Cell) -> Option<f64>| cells.iter().map(|cell| of(cell)).sum();
    cell.measured.samples = cells.iter().flat_map(|cell| cell.measured.samples.clone()).collect();
    cell.measured.cpu_process_s = sum(|cell| cell.measured.cpu_process_s);
    cell.measured.cpu_system_s = sum(|cell| cell.measured.cpu_system_s);
    cell.summarise();
    // What was drawn anew is the run, not the sample.
    let (mb_per_s, iops) = (rates(|cell| cell.derived.mb_per_s), rates(|cell| cell.derived.iops));
    cell.derived.mb_per_s = stats::median(&mb_per_s).unwrap_or(0.0);
    cell.derived.iops = stats::median(&iops).unwrap_or(0.0);
    cell.derived.spread = stats::range(&mb_per_s).map(|(min, max)| Spread { min, max });
    cell.put_interval(&mb_per_s);
    cell.put_bound_share();
    cell.derived.steady = cells.iter().map(|cell| cell.derived.steady).reduce(worse).flatten();
    cell.measured.verified =
        cells.iter().map(|cell| cell.measured.verified).reduce(worse).flatten();
    cell.measured.latency_us = latency(cells, |cell| cell.measured.latency_us);
    cell.measured.latency_curve.clear();
    (cell.measured.latency_bins, cell.measured.service_bins) = (None, None);
    cell.measured.service_us = latency(cells, |cell| cell.measured.service_us);
    cell.measured.reads_apart = of_direction(cells, |cell| cell.measured.reads_apart.as_ref());
    cell.measured.writes_apart = of_direction(cells, |cell| cell.measured.writes_apart.as_ref());
    cell.put_directions();
    put_background(cells, &mut cell);
    let total = |of: fn(&Cell) -> Option<u64>| cells.iter().map(|cell| of(cell)).sum();
    (cell.measured.arrivals, cell.measured.waiting) =
        (total(|cell| cell.measured.arrivals), total(|cell| cell.measured.waiting));
    cell.measured.others_cpus =
        stats::median(&rates(|cell| cell.measured.others_cpus.unwrap_or(0.0)))
            .filter(|_| cells.iter().all(|cell| cell.measured.others_cpus.is_some()));
    for (at, member) in cell.measured.per_member.iter_mut().enumerate() {
        let of = |of: fn(&MemberTraffic) -> u64| {
            cells.iter().filter_map(|cell| cell.measured.per_member.get(at)).map(of).sum()
        };
        *member = MemberTraffic {
            read_bytes: of(|moved| moved.read_bytes),
            written_bytes: of(|moved| moved.written_bytes),
            reads: of(|moved| moved.reads),
            writes: of(|moved| moved.writes),
        };
    }
    for warning in cells.iter().flat_map(|cell| &cell.derived.warnings) {
        if !cell.derived.warnings.contains(warning) {
            cell.derived.warnings.push(warning.clone());
        }
    }
    (cell.case.repetition, cell.case.random_seed) = (None, None);
    cell
}

/// Figures of background work: medians of the runs.
fn put_background(cells: &[&Cell], cell: &mut Cell) {
    let median = |of: fn(&Cell) -> Option<f64>| {
        let all = cells.iter().map(|cell| of(cell)).collect::<Option<Vec<f64>>>();
        all.and_then(|all| stats::median(&all))
    };
    cell.measured.background_mb_per_s = median(|cell| cell.measured.background_mb_per_s);
    cell.measured.background_idle_mb_per_s = median(|cell| cell.measured.background_idle_mb_per_s);
    cell.derived.foreground_share = median(|cell| cell.derived.foreground_share);
    let all = cells.iter().map(|cell| cell.measured.foreground_alone.as_ref());
    let Some(all) = all.collect::<Option<Vec<_>>>() else { return };
    let median = |of: fn(&ForegroundAlone) -> f64| {
        stats::median(&all.iter().map(|alone| of(alone)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let latencies = all.iter().map(|alone| alone.latency_us).collect::<Option<Vec<_>>>();
    cell.measured.foreground_alone = Some(ForegroundAlone {
        mb_per_s: median(|alone| alone.mb_per_s),
        iops: median(|alone| alone.iops),
        latency_us: latencies.and_then(|all| median_latency(&all)),
    });
}

/// The reads or the writes of all runs; their rates follow from those of the cell.
fn of_direction(
    cells: &[&Cell],
    of: fn(&Cell) -> Option<&DirectionFigures>,
) -> Option<DirectionFigures> {
    let all: Vec<&DirectionFigures> = cells.iter().map(|cell| of(cell)).collect::<Option<_>>()?;
    let latencies = all.iter().map(|part| part.latency_us).collect::<Option<Vec<_>>>();
    Some(DirectionFigures {
        samples: all.iter().flat_map(|part| part.samples.clone()).collect(),
        latency_us: latencies.and_then(|all| median_latency(&all)),
        ..DirectionFigures::default()
    })
}

/// No is worse than unknown, and that than yes.
fn worse(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Medians of the runs' percentiles, and the slowest request of all.
fn latency(cells: &[&Cell], of: fn(&Cell) -> Option<Latency>) -> Option<Latency> {
    median_latency(&cells.iter().map(|cell| of(cell)).collect::<Option<Vec<_>>>()?)
}

fn median_latency(all: &[Latency]) -> Option<Latency> {
    let median = |of: fn(&Latency) -> f64| stats::median(&all.iter().map(of).collect::<Vec<_>>());
    Some(Latency {
        p50: median(|latency| latency.p50)?,
        p99: median(|latency| latency.p99)?,
        p999: median(|latency| latency.p999)?,
        max: all.iter().map(|latency| latency.max).fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use crate::fixture;

    use super::*;

    #[test]
    fn runs_of_a_cell_become_one_whose_spread_is_that_of_the_runs() {
        let mut record = fixture::record();
        let once = record.cells.len();
        let mut all = Vec::new();
        for (repetition, factor) in [(1, 1.0), (2, 3.0), (3, 2.0)] {
            for cell in &record.cells {
                let mut cell = cell.clone().with(|it| it.case.repetition = Some(repetition));
                cell.case.random_seed = Some(u64::from(repetition));
                let scaled = |bytes: u64| (bytes as f64 * factor) as u64;
                cell.measured
                    .samples
                    .iter_mut()
                    .for_each(|sample| sample.bytes = scaled(sample.bytes));
                cell.summarise();
                all.push(cell);
            }
        }
        all[once].derived.warnings = vec!["only in the second".into()];
        all[2 * once].measured.verified = Some(false);
        let rates =
            [all[0].derived.mb_per_s, all[once].derived.mb_per_s, all[2 * once].derived.mb_per_s];
        record.cells = all;
        let folded = folded(&record);
        assert_eq!(folded.cells.len(), once);
        let cell = &folded.cells[0];
        assert_eq!(cell.derived.mb_per_s, rates[2], "the median of three");
        let spread = cell.derived.spread.expect("three");
        assert_eq!((spread.min, spread.max), (rates[0], rates[1]));
        assert_eq!(cell.measured.samples.len(), 3 * record.cells[0].measured.samples.len());
        assert_eq!(cell.measured.verified, Some(false), "one that was wrong is enough");
        assert!(cell.derived.warnings.contains(&"only in the second".to_string()));
        assert_eq!(cell.case.repetition, None);
        // Without repetitions nothing is taken together, not even cells that are the same.
        record.cells.iter_mut().for_each(|cell| cell.case.repetition = None);
        assert_eq!(super::folded(&record), record);
    }
}
