//! Runs a whole bench: block workloads on the targets, then programs on them, as often as it is to
//! be repeated.
//!
//! Invariant: every event of a cell comes before the event that it is final, and a cell that is
//! final is in the record, also when the run is stopped or ends with an error. Called by the
//! command line; nothing here prints.

use std::cell::RefCell;
use std::time::SystemTime;

use host::Access;
use results::record::{Cell, Record};
use spec::bench_plan::{BenchPlan, BlockPlan};
use spec::case::{Case, RunConfig};
use spec::sweep::TargetLabels;
use spec::target::TargetExpr;

use crate::blocks;
use crate::error::RunError;
use crate::program::cases::{self, Host};
use crate::program::session::RunResult;
use crate::progress::Progress;
use crate::provision::check_devices;

/// A bench to be run.
pub struct BenchRun<'b> {
    /// What is measured.
    pub plan: &'b BenchPlan,
    /// How; the seed is that of the first repetition.
    pub run: &'b RunConfig,
    /// How often; at least once.
    pub repeat: u32,
    /// Polled regularly; `true` stops the run.
    pub stop: &'b dyn Fn() -> bool,
}

/// What happens while a bench runs.
pub enum BenchEvent<'e> {
    /// A repetition begins; there are several.
    Repetition {
        /// Its number, from 1.
        number: u32,
        /// Number of repetitions.
        of: u32,
        /// Its seed.
        seed: u64,
    },
    /// Block workloads begin, on all targets.
    Blocks {
        /// Their plans.
        plans: &'e [BlockPlan],
        /// How long they will take.
        estimate_seconds: f64,
    },
    /// Programs begin.
    Programs,
    /// Progress of a block workload or a program.
    Progress(Progress<'e>),
    /// A remark for the user, one line.
    Remark(&'e str),
    /// Cells that are final: they can be stored.
    Final(&'e [Cell]),
    /// The block workloads, or the programs, have ended.
    Ended,
}

/// Receives events.
type Events<'e> = dyn FnMut(BenchEvent<'_>) + 'e;

/// A record without cells: host and time.
pub fn head(plan: &BenchPlan, run: &RunConfig) -> Record {
    match plan.plans().next() {
        Some(plan) => blocks::head(plan, run),
        None => Record::new(
            crate::metrics::host::probe(Some(run.kernels.name()), None),
            SystemTime::now(),
        ),
    }
}

/// Runs a bench. A repetition runs all cells before the next one starts, so that background load is
/// spread over all cells.
///
/// # Errors
/// Besides the record: the first error, with its array and target.
pub fn run(bench: &BenchRun<'_>, events: &mut Events<'_>) -> (Record, Result<(), RunError>) {
    if let Err(problem) = check_devices(bench.plan, bench.run.destroy_contents, Access::ReadWrite) {
        return (head(bench.plan, bench.run), Err(problem.into()));
    }
    if bench.repeat <= 1 {
        return Repetition { bench, run: bench.run, number: None }.run(events);
    }
    let mut all: Option<Record> = None;
    let mut ended = Ok(());
    for number in 1..=bench.repeat {
        let seed = bench.run.seed.wrapping_add(u64::from(number - 1));
        events(BenchEvent::Repetition { number, of: bench.repeat, seed });
        let run = RunConfig { seed, ..bench.run.clone() };
        let record;
        (record, ended) = Repetition { bench, run: &run, number: Some(number) }.run(events);
        match &mut all {
            Some(all) => all.cells.extend(record.cells),
            None => all = Some(record),
        }
        if ended.is_err() || (bench.stop)() {
            break;
        }
    }
    (all.expect("there was one"), ended)
}

/// All cells, once.
struct Repetition<'r> {
    bench: &'r BenchRun<'r>,
    run: &'r RunConfig,
    /// From 1; `None`: it is the only one.
    number: Option<u32>,
}

impl Repetition<'_> {
    fn run(&self, events: &mut Events<'_>) -> (Record, Result<(), RunError>) {
        let plan = self.bench.plan;
        let labels = self.labels();
        let (mut record, mut ended) = (head(plan, self.run), Ok(()));
        if !plan.blocks.is_empty() {
            ended = self.blocks(&labels, &mut record.cells, events);
            record.set_ratios();
        }
        self.mark(&mut record.cells);
        if ended.is_ok() && !plan.targets.is_empty() {
            events(BenchEvent::Programs);
            ended = self.programs(&labels, &mut record.cells, events);
            events(BenchEvent::Ended);
        }
        (record, ended)
    }

    fn mark(&self, cells: &mut [Cell]) {
        if self.number.is_some() {
            cells.iter_mut().for_each(|cell| cell.case.repetition = self.number);
        }
    }

    /// What distinguishes targets of one name.
    fn labels(&self) -> TargetLabels {
        let BenchPlan { blocks, targets, .. } = self.bench.plan;
        let blocks = blocks.iter().map(|target| &target.place);
        TargetLabels::new(blocks.chain(targets.iter().map(|target| &target.place)))
    }

    /// The block workloads on each target; their cells are appended.
    fn blocks(
        &self,
        labels: &TargetLabels,
        record: &mut Vec<Cell>,
        events: &mut Events<'_>,
    ) -> Result<(), RunError> {
        let plans = &self.bench.plan.blocks[..];
        let estimate =
            |target: &BlockPlan| blocks::estimate_seconds(&target.place, &target.plan, self.run);
        let estimate_seconds = plans.iter().map(estimate).sum();
        events(BenchEvent::Blocks { plans, estimate_seconds });
        let mut progress = |progress: Progress<'_>| {
            if let Progress::Final { cells, .. } = &progress {
                let mut cells = cells.to_vec();
                self.mark(&mut cells);
                events(BenchEvent::Final(&cells));
            }
            events(BenchEvent::Progress(progress));
        };
        let mut ended = Ok(());
        for BlockPlan { place, plan } in plans {
            if ended.is_err() || (self.bench.stop)() {
                break;
            }
            let named = (place, labels.of(place));
            let part;
            (part, ended) = blocks::run_on(named, plan, self.run, self.bench.stop, &mut progress);
            record.extend(part.cells);
        }
        events(BenchEvent::Ended);
        ended
    }

    /// The programs on each target; their cells are appended.
    fn programs(
        &self,
        labels: &TargetLabels,
        record: &mut Vec<Cell>,
        events: &mut Events<'_>,
    ) -> Result<(), RunError> {
        let plan = self.bench.plan;
        for target in &plan.targets {
            for case in plan.cases(target, self.run) {
                if (self.bench.stop)() {
                    return Ok(());
                }
                let (mut cells, ended) = self.program(&case, labels.of(&target.place), events);
                self.mark(&mut cells);
                events(BenchEvent::Final(&cells));
                record.extend(cells);
                ended.map_err(|problem| of_case(&case, problem))?;
            }
        }
        Ok(())
    }

    fn program(&self, case: &Case, label: &str, events: &mut Events<'_>) -> RunResult {
        let events = RefCell::new(events);
        let progress = |event: Progress<'_>| (events.borrow_mut())(BenchEvent::Progress(event));
        let remark = |text: &str| (events.borrow_mut())(BenchEvent::Remark(text));
        let host = Host {
            destroy: self.run.destroy_contents,
            stop: self.bench.stop,
            progress: &progress,
            remark: &remark,
        };
        cases::run(case, label, &host)
    }
}

/// The error of a case, which begins with the array and the target: `raid5(4), fs:ext4: ...`.
fn of_case(case: &Case, problem: RunError) -> RunError {
    let array = match (&case.array, &case.target) {
        (None, _) => return problem,
        (Some(array), TargetExpr::Engine) => array.name(),
        (Some(array), target) => format!("{}, {}", array.name(), target.shown()),
    };
    RunError::OnArray { array, problem: Box::new(problem) }
}

#[cfg(test)]
mod tests {
    use spec::bench_plan::BenchOptions;
    use spec::matrix::Options;
    use spec::workload::Kind;

    use super::*;

    fn plan(programs: &[&str]) -> BenchPlan {
        let options = BenchOptions {
            matrix: Options::default().with(|it| {
                it.arrays.level = vec!["raid0".parse().expect("a level")];
                it.arrays.disks = vec![2];
                it.engine.members = vec!["mem".parse().expect("a set")];
                it.sizes = vec![4 << 20];
                it.workloads = vec![Kind::RandRead];
            }),
            targets: vec![TargetExpr::Engine],
            programs: programs.iter().map(|text| text.parse().expect("a program")).collect(),
        };
        options.plan().expect("a plan")
    }

    /// The events without progress, and the record's cells as (repetition, is a program).
    fn events_and_cells(
        plan: &BenchPlan,
        repeat: u32,
        stop: &dyn Fn() -> bool,
    ) -> (Vec<String>, Vec<(Option<u32>, bool)>) {
        let mut seen = Vec::new();
        let run = RunConfig { seed: u64::MAX, ..RunConfig::quick() };
        let bench = BenchRun { plan, run: &run, repeat, stop };
        let (record, ended) = super::run(&bench, &mut |event| {
            seen.push(match event {
                BenchEvent::Repetition { number, of, seed } => format!("{number}/{of} {seed}"),
                BenchEvent::Blocks { .. } => "blocks".into(),
                BenchEvent::Programs => "programs".into(),
                BenchEvent::Final(cells) => format!("final {:?}", cells[0].case.repetition),
                BenchEvent::Ended => "ended".into(),
                BenchEvent::Progress(_) | BenchEvent::Remark(_) => return,
            });
        });
        ended.expect("measured");
        let cell = |cell: &Cell| (cell.case.repetition, cell.case.program.is_some());
        (seen, record.cells.iter().map(cell).collect())
    }

    #[test]
    fn a_repetition_has_its_own_seed_and_marks_its_cells() {
        let (events, cells) = events_and_cells(&plan(&[]), 2, &|| false);
        let expected = [
            "1/2 18446744073709551615",
            "blocks",
            "final Some(1)",
            "ended",
            "2/2 0",
            "blocks",
            "final Some(2)",
            "ended",
        ];
        assert_eq!(events, expected);
        assert_eq!(cells, [(Some(1), false), (Some(2), false)]);
    }

    #[test]
    fn programs_come_after_block_workloads() {
        let (events, cells) = events_and_cells(&plan(&["dd:bs=64k"]), 1, &|| false);
        assert_eq!(events[..4], ["blocks", "final None", "ended", "programs"]);
        assert_eq!(events.last().map(String::as_str), Some("ended"));
        assert_eq!(cells[0], (None, false));
        assert!(cells.len() > 1 && cells[1..].iter().all(|cell| *cell == (None, true)));
    }

    #[test]
    fn nothing_is_repeated_after_a_stop() {
        let (events, cells) = events_and_cells(&plan(&[]), 3, &|| true);
        assert_eq!(events, ["1/3 18446744073709551615", "blocks", "ended"]);
        assert_eq!(cells, []);
    }
}
