//! Plans a whole bench: block workloads on arrays of the engine, then programs on targets.
//!
//! Invariant: options that contradict each other are refused before anything is created. Pure.
//! Called by the command line, for `bench` and for each matrix of a sweep.

use crate::case::{Case, RunConfig, Workload};
use crate::matrix::{self, Options, Plan};
use crate::plan_error::PlanError;
use crate::program::ProgramSpec;
use crate::target::{KernelExpr, TargetExpr};
use crate::workload::Kind;

/// Upper bound of a file system's fixed overhead per member; a share of the files is added.
const FILE_SYSTEM_BYTES: u64 = 128 << 20;

/// Options of a bench.
#[derive(Clone, Debug, Default)]
pub struct BenchOptions {
    /// Arrays and block workloads.
    pub arrays: Options,
    /// `--target`.
    pub targets: Vec<TargetExpr>,
    /// Programs of `--workload`.
    pub programs: Vec<ProgramSpec>,
}

/// Block workloads and programs of one bench.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// Block workloads on arrays of the engine.
    pub blocks: Option<Plan>,
    /// Targets of the programs, in order, each once.
    pub targets: Vec<TargetPlan>,
    /// The programs to run on each target.
    pub programs: Vec<ProgramSpec>,
    /// Sizes of a program's files, bytes, on targets that bring their own storage; `None`: by the
    /// target.
    pub sizes: Vec<Option<u64>>,
}

/// One target of programs.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// The target.
    pub place: TargetExpr,
    /// The arrays below it, if it uses any.
    pub arrays: Option<Plan>,
}

impl BenchOptions {
    /// Whether block workloads run directly on arrays of the engine.
    pub fn moves_blocks(&self) -> bool {
        let engine = self.targets.contains(&TargetExpr::Engine);
        engine && (self.programs.is_empty() || !self.arrays.workloads.is_empty())
    }

    /// Makes the plan.
    ///
    /// # Errors
    /// If options contradict each other, or nothing can be run.
    pub fn plan(self) -> Result<BenchPlan, PlanError> {
        let moves_blocks = self.moves_blocks();
        let BenchOptions { arrays, targets: places, programs } = self;
        if let Some(kind) = arrays.workloads.first()
            && !places.contains(&TargetExpr::Engine)
        {
            return Err(PlanError::BlocksOffEngine(kind.name()));
        }
        if programs.is_empty() && places.iter().any(|place| *place != TargetExpr::Engine) {
            return Err(PlanError::TargetWithoutProgram);
        }
        let sizes = match &arrays.sizes[..] {
            [] => vec![None],
            sizes => sizes.iter().copied().map(Some).collect(),
        };
        let blocks = moves_blocks.then(|| matrix::plan(&arrays)).transpose()?;
        // A single block workload yields each array exactly once.
        let arrays = Options { workloads: vec![Kind::SeqRead], ..arrays };
        let mut targets: Vec<TargetPlan> = Vec::new();
        for place in places.into_iter().filter(|_| !programs.is_empty()) {
            if targets.iter().all(|target| target.place != place) {
                targets.push(TargetPlan::new(place, &arrays)?);
            }
        }
        Ok(BenchPlan { blocks, targets, programs, sizes })
    }
}

impl BenchPlan {
    /// The plans of all arrays.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.blocks.iter().chain(self.targets.iter().filter_map(|target| target.arrays.as_ref()))
    }

    /// The cases of one of its targets: each program on each array, or, where the target brings its
    /// own storage, in each size.
    pub fn cases(&self, target: &TargetPlan, run: &RunConfig) -> Vec<Case> {
        let case = |program: &ProgramSpec, array, size| Case {
            target: target.place.clone(),
            array,
            workload: Workload::Program(program.clone()),
            size,
            run: run.clone(),
        };
        let mut cases = Vec::new();
        match &target.arrays {
            Some(plan) => {
                for program in &self.programs {
                    let arrays = plan.arrays.iter().map(|planned| Some(planned.array.clone()));
                    cases.extend(arrays.map(|array| case(program, array, None)));
                }
            }
            None => {
                for size in &self.sizes {
                    cases.extend(self.programs.iter().map(|program| case(program, None, *size)));
                }
            }
        }
        cases
    }
}

impl TargetPlan {
    fn new(place: TargetExpr, arrays: &Options) -> Result<TargetPlan, PlanError> {
        let of_md = place.kernel().map(|md| of_md(md, arrays)).transpose()?;
        let arrays = of_md.as_ref().unwrap_or(arrays);
        let mut plan = place.uses_array().then(|| matrix::plan(arrays)).transpose()?;
        if let Some(plan) = plan.as_mut().filter(|_| place != TargetExpr::Engine) {
            make_room_for_files(plan);
        }
        Ok(TargetPlan { place, arrays: plan })
    }
}

/// Below a file system `--size` is the size of the files; the member also needs room for the file
/// system's journal, tables and reserve.
fn make_room_for_files(plan: &mut Plan) {
    let arrays = plan.arrays.iter_mut().map(|planned| &mut planned.array);
    for array in arrays.filter(|array| array.area_bytes.is_some()) {
        let files = array.member_bytes;
        array.member_bytes = (files + files / 2).next_multiple_of(1 << 20) + FILE_SYSTEM_BYTES;
    }
}

/// The options of a Linux md array. Its members are the named devices, not `--members`.
fn of_md(md: &KernelExpr, arrays: &Options) -> Result<Options, PlanError> {
    if arrays.levels.is_empty() && arrays.arrays.is_empty() {
        return Err(PlanError::MdWithoutLevel);
    }
    let mut own = Options { members: Vec::new(), ..arrays.clone() };
    // An array expression contains the number of members.
    if own.disks.is_empty() && !own.levels.is_empty() {
        own.disks = vec![md.devices.len() as u32];
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(targets: &[&str], programs: &[&str]) -> BenchOptions {
        BenchOptions {
            arrays: Options {
                levels: vec!["raid0".parse().expect("a level")],
                disks: vec![2],
                members: vec!["mem".parse().expect("a set")],
                sizes: vec![64 << 20, 32 << 20],
                ..Options::default()
            },
            targets: targets.iter().map(|text| text.parse().expect("a target")).collect(),
            programs: programs.iter().map(|text| text.parse().expect("a program")).collect(),
        }
    }

    #[test]
    fn below_a_file_system_the_members_have_room_for_more_than_the_files() {
        let plan = options(&["engine", "fs:ext4"], &["dd"]).plan().expect("a plan");
        let bytes = |target: usize| -> Vec<u64> {
            let arrays = &plan.targets[target].arrays.as_ref().expect("arrays").arrays;
            arrays.iter().map(|planned| planned.array.member_bytes).collect()
        };
        let (files, members) = (bytes(0), bytes(1));
        for (files, members) in files.iter().zip(members) {
            assert_eq!(members, (files + files / 2).next_multiple_of(1 << 20) + (128 << 20));
        }
    }

    #[test]
    fn each_target_is_planned_once_and_has_all_programs() {
        let plan = options(&["path:/a", "engine", "path:/a"], &["dd", "bonnie++"]);
        let plan = plan.plan().expect("a plan");
        assert!(plan.blocks.is_none());
        assert_eq!(plan.targets.len(), 2);
        let run = RunConfig::quick();
        let sizes = |target: usize| -> Vec<Option<u64>> {
            plan.cases(&plan.targets[target], &run).iter().map(|case| case.size).collect()
        };
        let (large, small) = (Some(64 << 20), Some(32 << 20));
        assert_eq!(sizes(0), [large, large, small, small], "a directory: by size");
        assert_eq!(sizes(1), [None; 4], "arrays: each has its size");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let mut blocks = options(&["path:/a"], &["dd"]);
        blocks.arrays.workloads = vec![Kind::RandRead];
        let mut no_level = options(&["md:/dev/sdb"], &["dd"]);
        no_level.arrays.levels.clear();
        for (options, text) in [
            (blocks, "rand-read: block workloads run only on arrays of the engine"),
            (options(&["path:/a"], &[]), "--target: needs a program"),
            (no_level, "md: needs the level of the md array"),
        ] {
            let error = options.plan().expect_err(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
