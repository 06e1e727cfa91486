//! The plan of one `raidlab bench`: block workloads on arrays of the engine, then programs on the
//! targets.
//!
//! Invariant: what cannot be run is refused before anything is created. Called from `bench`.

use std::time::SystemTime;

use anyhow::{Error, Result, bail};
use bench::Progress;
use results::record::{Cell, Record};
use spec::case::{Case, RunConfig, Workload};
use spec::matrix::{self, Options, Plan};
use spec::program::ProgramSpec;
use spec::sweep::TargetLabels;
use spec::target::{KernelExpr, TargetExpr};
use spec::workload::Kind;

use super::programs::run_program;
use super::unused_options::refuse_unused;
use super::{HostOptions, Matrix, MatrixOptions, announce, check_plan};
use crate::console::say;
use crate::error::reworded;
use crate::progress::{Reporter, Status};

/// Upper bound of a file system's fixed overhead per member; a share of the files is added.
const FILE_SYSTEM_BYTES: u64 = 128 << 20;

/// Block workloads and programs of one command.
pub struct BenchPlan {
    /// Block workloads on arrays of the engine.
    pub blocks: Option<Plan>,
    /// Targets of the programs, in order.
    pub targets: Vec<Target>,
    /// The programs to run on each target.
    pub choices: Vec<ProgramSpec>,
}

/// One target of programs.
pub struct Target {
    /// The place.
    pub place: TargetExpr,
    /// The arrays below it, if it uses any.
    pub arrays: Option<Plan>,
}

impl BenchPlan {
    /// Plans the command line, and checks that it fits into memory.
    ///
    /// # Errors
    /// If options contradict each other or have no effect, or the plan does not fit into memory.
    pub fn plan(matrix: &Matrix, host: &HostOptions) -> Result<BenchPlan> {
        let work = BenchPlan::shape(&matrix.options)?;
        refuse_unused(matrix, host)?;
        // Targets on external devices need neither memory nor disk space for members.
        let here = work.targets.iter().filter(|target| target.place.uses_engine());
        let arrays = here.filter_map(|target| target.arrays.as_ref());
        for plan in work.blocks.iter().chain(arrays) {
            check_plan(plan, host)?;
        }
        Ok(work)
    }

    /// As [`BenchPlan::plan`], without the check of memory and space.
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn shape(matrix: &MatrixOptions) -> Result<BenchPlan> {
        matrix.check_programs()?;
        let (choices, options) = (matrix.choices(), matrix.options());
        let engine = matrix.target.contains(&TargetExpr::Engine);
        if !engine && !options.workloads.is_empty() {
            let name = options.workloads[0].name();
            bail!(
                "{name}: block workloads run only on arrays of the engine; use a program with \
                 --target"
            );
        }
        let elsewhere = matrix.target.iter().any(|place| *place != TargetExpr::Engine);
        if elsewhere && choices.is_empty() {
            bail!("--target: needs a program, as in --workload bonnie++");
        }
        let blocks = matrix.moves_blocks().then(|| matrix::plan(&options)).transpose()?;
        // A single block workload yields each array exactly once.
        let arrays = Options { workloads: vec![Kind::SeqRead], ..options };
        let mut targets: Vec<Target> = Vec::new();
        for place in matrix.target.iter().filter(|_| !choices.is_empty()) {
            if targets.iter().all(|target| target.place != *place) {
                targets.push(Target::new(place, &arrays)?);
            }
        }
        Ok(BenchPlan { blocks, targets, choices })
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.blocks.iter().chain(self.targets.iter().filter_map(|target| target.arrays.as_ref()))
    }

    /// A record without cells: host and time.
    pub fn head(&self, run: &RunConfig) -> Record {
        match self.plans().next() {
            Some(plan) => bench::blocks::head(plan, run),
            None => {
                Record::new(metrics::host::probe(Some(run.kernels.name()), None), SystemTime::now())
            }
        }
    }

    /// Runs the plan `--repeat` times. A repetition runs all cells before the next one starts, so
    /// that background load is spread over all cells. `keep` receives cells when they are final.
    pub fn carry_out(
        &self,
        (matrix, host): (&MatrixOptions, &HostOptions),
        repeat: Option<u32>,
        run: &RunConfig,
        stopped: &dyn Fn() -> bool,
        keep: &mut dyn FnMut(&[Cell]),
    ) -> (Record, Result<()>) {
        let Some(repeat) = repeat.filter(|repeat| *repeat > 1) else {
            return self.once((matrix, host), run, stopped, keep);
        };
        let mut all: Option<Record> = None;
        for repetition in 1..=repeat {
            let seed = run.seed.wrapping_add(u64::from(repetition - 1));
            let run = RunConfig { seed, ..run.clone() };
            say(format_args!("repetition {repetition} of {repeat}, seed {seed}"));
            let mark = |cells: &mut [Cell]| {
                cells.iter_mut().for_each(|cell| cell.repetition = Some(repetition));
            };
            let mut keep = |cells: &[Cell]| {
                let mut cells = cells.to_vec();
                mark(&mut cells);
                keep(&cells);
            };
            let (mut record, ended) = self.once((matrix, host), &run, stopped, &mut keep);
            mark(&mut record.cells);
            match &mut all {
                Some(all) => all.cells.extend(record.cells),
                None => all = Some(record),
            }
            if ended.is_err() || stopped() {
                return (all.expect("there was one"), ended);
            }
        }
        (all.expect("there was one"), Ok(()))
    }

    fn once(
        &self,
        (matrix, host): (&MatrixOptions, &HostOptions),
        run: &RunConfig,
        stopped: &dyn Fn() -> bool,
        keep: &mut dyn FnMut(&[Cell]),
    ) -> (Record, Result<()>) {
        let (mut record, ended) = match &self.blocks {
            Some(plan) => run_blocks(plan, run, stopped, keep),
            None => (self.head(run), Ok(())),
        };
        if ended.is_err() || self.targets.is_empty() {
            return (record, ended);
        }
        let status = Status::default();
        let show = |line: &str| status.show(line);
        let mut add = |cells: Vec<Cell>| {
            keep(&cells);
            record.cells.extend(cells);
        };
        let labels = TargetLabels::new(self.targets.iter().map(|target| &target.place));
        let ended = self.targets.iter().try_for_each(|target| {
            let label = labels.of(&target.place);
            let mut cases = target.cases(&self.choices, &matrix.sizes(), run).into_iter();
            cases.by_ref().take_while(|_| !stopped()).try_for_each(|case| {
                let (cells, ended) =
                    run_program(&case, label, host.destroy_contents, stopped, &show);
                add(cells);
                let with_case = |text| format!("{}{text}", prefix(&case));
                ended.map_err(|error| reworded(error, with_case))
            })
        });
        status.finish();
        (record, ended)
    }
}

impl Target {
    fn new(place: &TargetExpr, arrays: &Options) -> Result<Target> {
        let of_kernel = place.kernel().map(|kernel| of_kernel(kernel, arrays)).transpose()?;
        let arrays = of_kernel.as_ref().unwrap_or(arrays);
        let mut plan = place.uses_array().then(|| matrix::plan(arrays)).transpose()?;
        if *place != TargetExpr::Engine {
            // --size is then the size of the files; the member also needs room for the file
            // system's journal, tables and reserve.
            let arrays = plan.iter_mut().flat_map(|plan| &mut plan.arrays);
            let arrays = arrays.map(|planned| &mut planned.array);
            for array in arrays.filter(|array| array.area_bytes.is_some()) {
                let files = array.member_bytes;
                array.member_bytes =
                    (files + files / 2).next_multiple_of(1 << 20) + FILE_SYSTEM_BYTES;
            }
        }
        Ok(Target { place: place.clone(), arrays: plan })
    }

    /// Its cases: each program on each array, or, where the target brings its own, in each size.
    pub fn cases(
        &self,
        programs: &[ProgramSpec],
        sizes: &[Option<u64>],
        run: &RunConfig,
    ) -> Vec<Case> {
        let case = |program: &ProgramSpec, array, size| Case {
            target: self.place.clone(),
            array,
            workload: Workload::Program(program.clone()),
            size,
            run: run.clone(),
        };
        match &self.arrays {
            Some(plan) => programs
                .iter()
                .flat_map(|program| {
                    let arrays = plan.arrays.iter().map(|planned| Some(planned.array.clone()));
                    arrays.map(|array| case(program, array, None)).collect::<Vec<_>>()
                })
                .collect(),
            None => sizes
                .iter()
                .flat_map(|size| {
                    programs.iter().map(|program| case(program, None, *size)).collect::<Vec<_>>()
                })
                .collect(),
        }
    }
}

/// What an error of a case starts with: `raid5(4), fs:ext4: `.
fn prefix(case: &Case) -> String {
    match (&case.array, &case.target) {
        (None, _) => String::new(),
        (Some(array), TargetExpr::Engine) => format!("{}: ", array.name()),
        (Some(array), target) => format!("{}, {}: ", array.name(), target.shown()),
    }
}

/// The options of a Linux md array. Its members are the named devices, not `--members`.
fn of_kernel(kernel: &KernelExpr, arrays: &Options) -> Result<Options> {
    if arrays.levels.is_empty() && arrays.arrays.is_empty() {
        bail!("md: needs the level of the md array, as in --level raid5");
    }
    let mut own = Options { members: Vec::new(), ..arrays.clone() };
    // An array expression contains the number of members.
    if own.disks.is_empty() && !own.levels.is_empty() {
        own.disks = vec![kernel.devices.len() as u32];
    }
    Ok(own)
}

fn run_blocks(
    plan: &Plan,
    run: &RunConfig,
    stopped: &dyn Fn() -> bool,
    keep: &mut dyn FnMut(&[Cell]),
) -> (Record, Result<()>) {
    let estimate = bench::blocks::estimate_seconds(plan, run);
    announce(plan, estimate);
    let mut reporter = Reporter::new(plan.cells(), 0, estimate);
    let mut show = |progress: Progress<'_>| {
        if let Progress::Final { cells, .. } = &progress {
            keep(cells);
        }
        reporter.show(&progress);
    };
    let (record, ended) = bench::blocks::run(plan, run, stopped, &mut show);
    reporter.finish();
    (record, ended.map_err(Error::from))
}
