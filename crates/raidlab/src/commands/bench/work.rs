//! The plan of one `raidlab bench`: block workloads on arrays of the engine, then programs on the
//! targets.
//!
//! Invariant: what cannot be run is refused before anything is created. Called from `bench`.

use std::time::SystemTime;

use bench::blocks::Progress;
use results::record::{Cell, Record};
use spec::matrix::{self, Options, Plan};
use spec::program::ProgramSpec;
use spec::settings::Settings;
use spec::sweep::TargetLabels;
use spec::target::{KernelExpr, TargetExpr};
use spec::workload::Kind;

use super::programs::{Engine, ProgramRunner};
use super::unused_options::refuse_unused;
use super::{HostOptions, Matrix, MatrixOptions, announce, check_plan};
use crate::console::say;
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
    pub fn plan(matrix: &Matrix, host: &HostOptions) -> Result<BenchPlan, String> {
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
    pub fn shape(matrix: &MatrixOptions) -> Result<BenchPlan, String> {
        matrix.check_programs()?;
        let (choices, options) = (matrix.choices(), matrix.options());
        let engine = matrix.target.contains(&TargetExpr::Engine);
        if !engine && !options.workloads.is_empty() {
            let name = options.workloads[0].name();
            return Err(format!(
                "{name}: block workloads run only on arrays of the engine; use a program with \
                 --target"
            ));
        }
        let elsewhere = matrix.target.iter().any(|place| *place != TargetExpr::Engine);
        if elsewhere && choices.is_empty() {
            return Err("--target: needs a program, as in --workload bonnie++".into());
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
    pub fn head(&self, settings: &Settings<'_>) -> Record {
        match self.plans().next() {
            Some(plan) => bench::blocks::head(plan, settings),
            None => Record::new(
                metrics::host::probe(Some(settings.kernels.name()), None),
                SystemTime::now(),
            ),
        }
    }

    /// Runs the plan `--repeat` times. A repetition runs all cells before the next one starts, so
    /// that background load is spread over all cells. `keep` receives cells when they are final.
    pub fn carry_out(
        &self,
        (matrix, host): (&MatrixOptions, &HostOptions),
        repeat: Option<u32>,
        settings: &Settings<'_>,
        stopped: &dyn Fn() -> bool,
        keep: &mut dyn FnMut(&[Cell]),
    ) -> (Record, Result<(), String>) {
        let Some(repeat) = repeat.filter(|repeat| *repeat > 1) else {
            return self.once((matrix, host), settings, stopped, keep);
        };
        let mut all: Option<Record> = None;
        for repetition in 1..=repeat {
            let seed = settings.seed.wrapping_add(u64::from(repetition - 1));
            let settings = Settings { seed, ..*settings };
            say(format_args!("repetition {repetition} of {repeat}, seed {seed}"));
            let mark = |cells: &mut [Cell]| {
                cells.iter_mut().for_each(|cell| cell.repetition = Some(repetition));
            };
            let mut keep = |cells: &[Cell]| {
                let mut cells = cells.to_vec();
                mark(&mut cells);
                keep(&cells);
            };
            let (mut record, ended) = self.once((matrix, host), &settings, stopped, &mut keep);
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
        settings: &Settings<'_>,
        stopped: &dyn Fn() -> bool,
        keep: &mut dyn FnMut(&[Cell]),
    ) -> (Record, Result<(), String>) {
        let (mut record, ended) = match &self.blocks {
            Some(plan) => run_blocks(plan, settings, stopped, keep),
            None => (self.head(settings), Ok(())),
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
        let marks = TargetLabels::new(self.targets.iter().map(|target| &target.place));
        let ended = self.targets.iter().try_for_each(|Target { place, arrays }| {
            let wanted = ProgramRunner {
                programs: &self.choices,
                seed: settings.seed,
                destroy: host.destroy_contents,
                ..matrix.wanted((place, marks.of(place)), stopped, &show)
            };
            let engine = arrays.as_ref().map(|plan| Engine { plan, settings });
            wanted.run(engine.as_ref(), &mut add)
        });
        status.finish();
        (record, ended)
    }
}

impl Target {
    fn new(place: &TargetExpr, arrays: &Options) -> Result<Target, String> {
        let of_kernel = place.kernel().map(|kernel| of_kernel(kernel, arrays)).transpose()?;
        let arrays = of_kernel.as_ref().unwrap_or(arrays);
        let mut plan = place.uses_array().then(|| matrix::plan(arrays)).transpose()?;
        if *place != TargetExpr::Engine {
            // --size is then the size of the files; the member also needs room for the file
            // system's journal, tables and reserve.
            let cases = plan.iter_mut().flat_map(|plan| &mut plan.arrays);
            for case in cases.filter(|case| case.area_bytes.is_some()) {
                let files = case.member_bytes;
                case.member_bytes =
                    (files + files / 2).next_multiple_of(1 << 20) + FILE_SYSTEM_BYTES;
            }
        }
        Ok(Target { place: place.clone(), arrays: plan })
    }
}

/// The options of a Linux md array. Its members are the named devices, not `--members`.
fn of_kernel(kernel: &KernelExpr, arrays: &Options) -> Result<Options, String> {
    if arrays.levels.is_empty() && arrays.arrays.is_empty() {
        return Err("md: needs the level of the md array, as in --level raid5".into());
    }
    let mut own = Options { members: Vec::new(), ..arrays.clone() };
    // An array expression contains the number of members.
    if own.disks.is_empty() && !own.levels.is_empty() {
        own.disks = vec![kernel.devices.len() as u32];
    }
    Ok(own)
}

impl MatrixOptions {
    /// A runner for a target, still without programs and without permission to overwrite: the
    /// caller adds them. `mark` distinguishes the target from others of the same name.
    pub fn wanted<'a>(
        &'a self,
        (target, mark): (&'a TargetExpr, &'a str),
        stop: &'a dyn Fn() -> bool,
        show: &'a dyn Fn(&str),
    ) -> ProgramRunner<'a> {
        ProgramRunner {
            target,
            mark,
            programs: &[],
            sizes: self.sizes_given(),
            timing: self.timing(),
            destroy: false,
            seed: self.seed(),
            stop,
            show,
        }
    }
}

fn run_blocks(
    plan: &Plan,
    settings: &Settings<'_>,
    stopped: &dyn Fn() -> bool,
    keep: &mut dyn FnMut(&[Cell]),
) -> (Record, Result<(), String>) {
    let estimate = bench::blocks::estimate_seconds(plan, settings);
    announce(plan, estimate);
    let mut reporter = Reporter::new(plan.cells(), 0, estimate);
    let mut show = |progress: Progress<'_>| {
        if let Progress::Final { cells, .. } = &progress {
            keep(cells);
        }
        reporter.show(&progress);
    };
    let ran = bench::blocks::run(plan, settings, stopped, &mut show);
    reporter.finish();
    ran
}
