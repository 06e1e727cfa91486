//! The plan of one `raidlab bench`, made of its options, and what its run shows on stderr.
//!
//! Invariant: what cannot be run is refused before anything is created. Called from `bench` and
//! `sweep`.

use anyhow::Result;
use bench::bench_run::BenchEvent;
use spec::bench_plan::{BenchPlan, BlockPlan};
use spec::target::TargetExpr;

use super::unused_options::refuse_unused;
use super::{HostOptions, Matrix, MatrixOptions, announce, check_memory, check_plan};
use crate::console::say;
use crate::progress::{Reporter, Status};

/// Plans the command line, and checks that it fits into memory. `dry`: nothing is created for it.
///
/// # Errors
/// If options contradict each other or have no effect, or the plan does not fit into memory.
pub fn checked_plan(matrix: &Matrix, host: &HostOptions, dry: bool) -> Result<BenchPlan> {
    let work = plan(&matrix.options)?;
    refuse_unused(matrix, host)?;
    // Targets on external devices need no disk space for members; programs on them no memory.
    let here = work.targets.iter().filter(|target| target.place.makes_members());
    let arrays = here.filter_map(|target| target.arrays.as_ref());
    let is_here =
        |place: &TargetExpr| place.makes_members() || matches!(place, TargetExpr::Path(_));
    for BlockPlan { place, plan } in &work.blocks {
        match is_here(place) {
            true => check_plan(plan, host, dry)?,
            // The map of versions, and the buffers.
            false => check_memory(plan, host)?,
        }
    }
    for plan in arrays {
        check_plan(plan, host, dry)?;
    }
    Ok(work)
}

/// As [`checked_plan`], without the check of memory and space.
///
/// # Errors
/// If options contradict each other.
pub fn plan(matrix: &MatrixOptions) -> Result<BenchPlan> {
    matrix.check_programs()?;
    Ok(matrix.bench_options().plan()?)
}

/// What a running bench shows: lines, and a bar on a terminal.
#[derive(Default)]
pub struct Screen {
    /// Of block workloads.
    reporter: Option<Reporter>,
    /// Of programs.
    status: Option<Status>,
}

impl Screen {
    /// Shows an event.
    pub fn show(&mut self, event: &BenchEvent<'_>) {
        match event {
            BenchEvent::Repetition { number, of, seed } => {
                say(format_args!("repetition {number} of {of}, seed {seed}"));
            }
            BenchEvent::Blocks { plans, estimate_seconds } => {
                announce(plans, *estimate_seconds);
                let cells = plans.iter().map(|target| target.plan.cells()).sum();
                self.reporter = Some(Reporter::new(cells, 0, *estimate_seconds));
            }
            BenchEvent::Programs => self.status = Some(Status::default()),
            BenchEvent::Progress(progress) => {
                if let Some(reporter) = &mut self.reporter {
                    reporter.show(progress);
                } else if let Some(status) = &self.status {
                    status.show("", progress);
                }
            }
            BenchEvent::Remark(text) => say(format_args!("{text}")),
            BenchEvent::Final(_) => {}
            BenchEvent::Ended => {
                self.reporter.take().iter_mut().for_each(Reporter::finish);
                self.status.take().iter().for_each(Status::finish);
            }
        }
    }
}
