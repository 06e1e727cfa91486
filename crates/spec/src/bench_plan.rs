//! Plans a whole bench: block workloads on all targets, then programs on them. Members below a file
//! system are larger than the files that it has to hold.
//!
//! Invariant: options that contradict each other are refused before anything is created. Pure.
//! Called by the command line, for `bench` and for each matrix of a sweep.

use crate::case::{
    ArrayConfig, BenchLevel, Case, DEFAULT_STRIPE_CACHE_BYTES, Knobs, RunConfig, Workload,
};
use crate::matrix::{
    self, ArrayOptions, ArrayPlan, BackgroundOptions, DEFAULT_DEVICE_BYTES, EngineOptions, Options,
    Plan,
};
use crate::members::{MemberExpr, MemberSet};
use crate::plan_error::{CaseProblem, LeftOut, PlanError};
use crate::program::ProgramSpec;
use crate::target::{Journal, KernelExpr, TargetExpr, is_export};
use crate::topology::StorageTopology;
use crate::workload::{BackgroundWork, Kind};

/// Upper bound of a file system's fixed overhead per member; a share of the files is added.
const FILE_SYSTEM_BYTES: u64 = 128 << 20;

/// Options of a bench.
#[derive(Clone, Debug, Default)]
pub struct BenchOptions {
    /// Arrays and block workloads.
    pub matrix: Options,
    /// `--target`.
    pub targets: Vec<TargetExpr>,
    /// Programs of `--workload`.
    pub programs: Vec<ProgramSpec>,
}

/// Block workloads and programs of one bench.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// Block workloads, by target, each once.
    pub blocks: Vec<BlockPlan>,
    /// Targets of the programs, in order, each once.
    pub targets: Vec<TargetPlan>,
    /// The programs to run on each target.
    pub programs: Vec<ProgramSpec>,
    /// Sizes of a program's files, bytes, on targets that bring their own storage; `None`: by the
    /// target.
    pub sizes: Vec<Option<u64>>,
}

/// The block workloads of one target.
#[derive(Clone, Debug)]
pub struct BlockPlan {
    /// The target.
    pub place: TargetExpr,
    /// Its arrays and their workloads. A target without an array has one of level `single` here,
    /// which stands for its own storage.
    pub plan: Plan,
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
    /// Whether block workloads run.
    pub fn moves_blocks(&self) -> bool {
        self.programs.is_empty() || !self.matrix.workloads.is_empty()
    }

    /// Makes the plan.
    ///
    /// # Errors
    /// If options contradict each other, or nothing can be run.
    pub fn plan(self) -> Result<BenchPlan, PlanError> {
        let moves_blocks = self.moves_blocks();
        let BenchOptions { matrix, targets, programs } = self;
        if !matrix.background.background.is_empty() && !programs.is_empty() {
            return Err(PlanError::BackgroundOfPrograms);
        }
        let sizes = match &matrix.sizes[..] {
            [] => vec![None],
            sizes => sizes.iter().copied().map(Some).collect(),
        };
        let devices = matrix.engine.members.iter().find_map(MemberSet::devices).unwrap_or_default();
        let mut places: Vec<TargetExpr> = Vec::new();
        for place in targets.into_iter().map(|place| place.on_devices(&devices)) {
            let on_devices = place.kernel().filter(|md| md.model_time.is_none());
            if on_devices.is_some_and(|md| md.devices.is_empty()) {
                return Err(PlanError::MdWithoutDevices);
            }
            let free = place.model_time().is_some_and(|kernel| kernel.cpu() == 0);
            if free && !programs.is_empty() {
                return Err(PlanError::ProgramWithoutCpu(place.shown()));
            }
            let is_md = matches!(place, TargetExpr::Kernel(_));
            if !matrix.background.background.is_empty() && !is_md && place != TargetExpr::Engine {
                return Err(PlanError::BackgroundElsewhere(place.shown()));
            }
            let resync = matrix.background.background.contains(&BackgroundWork::Resync);
            if resync && place.kernel().is_some_and(|kernel| kernel.bitmap) {
                return Err(PlanError::ResyncWithBitmap(place.shown()));
            }
            if is_md && !matrix.background.foreground_share.is_empty() {
                return Err(PlanError::ShareOfMd(place.shown()));
            }
            if let TargetExpr::FileSystem(fs) = &place
                && let Journal::On(expr) = &fs.journal
                && matrix.engine.has_devices()
            {
                return Err(PlanError::JournalOnDevices(expr.to_string()));
            }
            if let (TargetExpr::Device(device), false) = (&place, programs.is_empty())
                && is_export(device)
            {
                return Err(PlanError::ProgramOnExport(device.display().to_string()));
            }
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let blocks = places.iter().filter(|_| moves_blocks);
        let blocks = blocks.map(|place| BlockPlan::new(place.clone(), &matrix));
        let blocks = blocks.collect::<Result<_, _>>()?;
        // A single block workload yields each array exactly once.
        let matrix = Options { workloads: vec![Kind::SeqRead], ..matrix };
        let targets = places.into_iter().filter(|_| !programs.is_empty());
        let targets = targets.map(|place| TargetPlan::new(place, &matrix));
        let targets = targets.collect::<Result<_, _>>()?;
        Ok(BenchPlan { blocks, targets, programs, sizes })
    }
}

impl BenchPlan {
    /// The plans of all arrays.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        let blocks = self.blocks.iter().map(|target| &target.plan);
        blocks.chain(self.targets.iter().filter_map(|target| target.arrays.as_ref()))
    }

    /// Number of block workloads, on all targets and arrays.
    pub fn block_cells(&self) -> usize {
        self.blocks.iter().map(|target| target.plan.cells()).sum()
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

impl BlockPlan {
    fn new(place: TargetExpr, options: &Options) -> Result<BlockPlan, PlanError> {
        let mut plan = match (&place, place.kernel()) {
            (TargetExpr::Path(directory), _) => {
                own_storage(MemberExpr::File(Some(directory.clone())), "file", options)?
            }
            (TargetExpr::Device(path), _) => {
                own_storage(MemberExpr::Device(path.clone()), "device", options)?
            }
            (_, Some(md)) if md.model_time.is_some() => {
                let mut plan = array_plan(&place, options)?;
                leave_out(&mut plan, refused_in_model_time, CaseProblem::NotForLinux)?;
                plan
            }
            (_, Some(md)) => {
                let members = vec![MemberSet::of_devices(&md.devices)];
                let mut plan =
                    array_plan(&place, &options.clone().with(|it| it.engine.members = members))?;
                leave_out(&mut plan, refused_by_md, CaseProblem::NotForMd)?;
                plan
            }
            _ if place.uses_array() => array_plan(&place, options)?,
            // The file system's own directory is known when it is mounted.
            _ => own_storage(MemberExpr::File(None), "file", options)?,
        };
        if !matches!(place, TargetExpr::Engine | TargetExpr::Device(_)) {
            written_to(&mut plan);
        }
        Ok(BlockPlan { place, plan })
    }

    /// Its cases, in order.
    pub fn cases(&self, run: &RunConfig) -> impl Iterator<Item = Case> {
        self.plan.arrays.iter().flat_map(|array| array.cases(&self.place, run))
    }
}

/// The block workloads on the storage that a target brings: of one member, whatever the options of
/// arrays are.
fn own_storage(member: MemberExpr, text: &str, options: &Options) -> Result<Plan, PlanError> {
    let members = vec![MemberSet::of_one(member, text.into())];
    let own = options.clone().with(|it| {
        it.arrays = ArrayOptions { level: vec![BenchLevel::Single], ..ArrayOptions::default() };
        it.engine = EngineOptions { members, ..EngineOptions::default() };
        it.background = BackgroundOptions::default();
    });
    let mut plan = matrix::plan(&own)?;
    for ArrayPlan { array, .. } in &mut plan.arrays {
        if array.area_bytes.is_none() {
            array.member_bytes = DEFAULT_DEVICE_BYTES;
        }
    }
    Ok(plan)
}

/// What is made on the arrays of a plan writes to them, whatever the workloads do.
fn written_to(plan: &mut Plan) {
    plan.arrays.iter_mut().for_each(|planned| planned.array.read_only = false);
}

/// Why Linux md has no such array, if it does not: options that do not apply to it, or have another
/// syntax there. A record must not contain settings that were not in effect.
pub fn refused_by_md(config: &ArrayConfig) -> Option<&'static str> {
    let Knobs { stripe_cache_bytes, queue_depth } = config.knobs;
    let cache = stripe_cache_bytes.is_some_and(|bytes| bytes != DEFAULT_STRIPE_CACHE_BYTES);
    let wired = config.topology != StorageTopology::default();
    let refused = [
        (config.level == BenchLevel::Single, "single: for a single disk use device:/dev/X"),
        (cache, "--stripe-cache: give stripe-cache=PAGES after the devices"),
        (queue_depth.is_some(), "--queue-depth: give queue-depth=N after the devices"),
        (wired, "--bus, --channel, --spindle: its members are real devices, whose links are fixed"),
    ];
    refused.iter().find(|(found, _)| *found).map(|(_, why)| *why)
}

/// Why a user-mode kernel cannot have such an array on modelled disks.
pub fn refused_in_model_time(config: &ArrayConfig) -> Option<&'static str> {
    let Knobs { stripe_cache_bytes, queue_depth } = config.knobs;
    let cache = stripe_cache_bytes.is_some_and(|bytes| bytes != DEFAULT_STRIPE_CACHE_BYTES);
    let is_modelled = |member: &MemberExpr| matches!(member, MemberExpr::Paced { .. });
    let refused = [
        (cache, "--stripe-cache: give stripe-cache=PAGES after linux"),
        (queue_depth.is_some(), "--queue-depth: give queue-depth=N after linux"),
        (
            !config.members.iter().all(is_modelled),
            "its disks are modelled ones, as in --members paced:hdd-2007",
        ),
    ];
    refused.iter().find(|(found, _)| *found).map(|(_, why)| *why)
}

/// Leaves out of a plan for md what is refused there.
fn leave_out(
    plan: &mut Plan,
    refused: fn(&ArrayConfig) -> Option<&'static str>,
    problem: fn(&'static str) -> CaseProblem,
) -> Result<(), PlanError> {
    for planned in std::mem::take(&mut plan.arrays) {
        match refused(&planned.array) {
            None => plan.arrays.push(planned),
            Some(why) => plan
                .left_out
                .push(LeftOut { array: Some(planned.array.name()), problem: problem(why) }),
        }
    }
    match (plan.arrays.is_empty(), plan.left_out.last()) {
        (true, Some(why)) => Err(PlanError::AllLeftOut(why.clone())),
        _ => Ok(()),
    }
}

impl TargetPlan {
    fn new(place: TargetExpr, options: &Options) -> Result<TargetPlan, PlanError> {
        // The keys of items have the default members of md, whose devices the target names.
        let mut options = options.clone();
        if place.kernel().is_some_and(|md| md.model_time.is_none()) {
            options.engine.members.clear();
        }
        if let (Some(kernel), true) = (place.model_time(), options.sizes.is_empty()) {
            // Files of twice the memory, as elsewhere.
            options.sizes = vec![kernel.memory() * 2];
        }
        let mut arrays = place.uses_array().then(|| array_plan(&place, &options)).transpose()?;
        if let (Some(plan), Some(_)) = (&mut arrays, place.model_time()) {
            leave_out(plan, refused_in_model_time, CaseProblem::NotForLinux)?;
        }
        arrays.iter_mut().for_each(written_to);
        Ok(TargetPlan { place, arrays })
    }
}

/// The arrays below a target.
fn array_plan(place: &TargetExpr, options: &Options) -> Result<Plan, PlanError> {
    let on_devices = place.kernel().filter(|md| md.model_time.is_none());
    let of_md = on_devices.map(|md| of_md(md, options)).transpose()?;
    let mut plan = matrix::plan(of_md.as_ref().unwrap_or(options))?;
    if matches!(place, TargetExpr::FileSystem(_)) {
        make_room_for_files(&mut plan);
    }
    Ok(plan)
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

/// The options of a Linux md array. Its members are the target's devices, not `--members`.
fn of_md(md: &KernelExpr, options: &Options) -> Result<Options, PlanError> {
    if options.arrays.level.is_empty() && options.arrays.array.is_empty() {
        return Err(PlanError::MdWithoutLevel);
    }
    let mut own = options.clone();
    // An array expression contains the number of members.
    if own.arrays.disks.is_empty() && !own.arrays.level.is_empty() {
        own.arrays.disks = vec![md.devices.len() as u32];
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(targets: &[&str], programs: &[&str]) -> BenchOptions {
        BenchOptions {
            matrix: Options::default().with(|it| {
                it.arrays.level = vec!["raid0".parse().expect("a level")];
                it.arrays.disks = vec![2];
                it.engine.members = vec!["mem".parse().expect("a set")];
                it.sizes = vec![64 << 20, 32 << 20];
            }),
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
    fn a_journal_has_no_devices_of_its_own() {
        for members in ["/dev/sdb+/dev/sdc", "mem+paced:hdd-2007:/dev/sdb"] {
            let mut options = options(&["engine", "fs:ext4,journal=raid1(2)"], &[]);
            options.matrix.engine.members = vec![members.parse().expect("a set")];
            let refused = options.plan().expect_err("no devices are left for it").to_string();
            assert!(refused.starts_with("fs: journal=raid1(2): "), "{refused}");
        }
        let plan = options(&["fs:ext4,journal=raid1(2)"], &[]).plan();
        plan.expect("members are made for it");
    }

    #[test]
    fn each_target_is_planned_once_and_has_all_programs() {
        let plan = options(&["path:/a", "engine", "path:/a"], &["dd", "bonnie++"]);
        let plan = plan.plan().expect("a plan");
        assert!(plan.blocks.is_empty());
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
    fn block_workloads_run_on_every_target() {
        let places = ["engine", "path:/a", "device:/dev/a", "md,assume-clean", "fs:ext4"];
        let mut options = options(&places, &[]);
        options.matrix.arrays.level =
            ["single", "raid1"].iter().map(|l| l.parse().expect("l")).collect();
        options.matrix.engine.members = vec!["/dev/a+/dev/b".parse().expect("a set")];
        options.matrix.sizes.clear();
        let plan = options.plan().expect("a plan");
        assert!(plan.targets.is_empty(), "no programs");
        let shown = |target: &BlockPlan| -> Vec<(String, String, usize, u64)> {
            let arrays = target.plan.arrays.iter();
            arrays
                .map(|ArrayPlan { array, cells }| {
                    (array.name(), array.set.to_string(), cells.len(), array.member_bytes >> 20)
                })
                .collect()
        };
        let (single, raid1) = ("ordinary disk".to_string(), "raid1(2)".to_string());
        let devices = "/dev/a+/dev/b".to_string();
        let engine =
            [(single.clone(), devices.clone(), 4, 1024), (raid1.clone(), devices, 4, 1024)];
        assert_eq!(shown(&plan.blocks[0]), engine);
        assert_eq!(shown(&plan.blocks[1]), [(single.clone(), "file".into(), 4, 1024)]);
        assert_eq!(shown(&plan.blocks[2]), [(single, "device".into(), 4, 1024)]);
        assert_eq!(shown(&plan.blocks[3]), engine[1..], "the devices of --members");
        assert_eq!(plan.blocks[3].plan.left_out.len(), 1, "one disk is no array of md");
        assert_eq!(shown(&plan.blocks[4]), engine);
        let run = RunConfig::quick();
        let keys: std::collections::HashSet<_> = plan
            .blocks
            .iter()
            .flat_map(|target| target.cases(&run))
            .map(|case| case.item("").key)
            .collect();
        assert_eq!(keys.len(), plan.block_cells(), "each has a key of its own");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (targets, programs, text) in [
            (&["engine", "path:/a"][..], &[][..], "--background: path: arrays of the engine"),
            (&["engine"], &["dd"], "--background: beside block workloads only"),
        ] {
            let mut options = options(targets, programs);
            options.matrix.arrays.level = vec!["raid5".parse().expect("a level")];
            options.matrix.background.background = vec![crate::workload::BackgroundWork::Scrub];
            let error = options.plan().expect_err(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
        let mut share = options(&["linux"], &[]);
        share.matrix.background.background = vec![crate::workload::BackgroundWork::Scrub];
        share.matrix.background.foreground_share = vec![50];
        let error = share.plan().expect_err("md has none").to_string();
        assert!(error.starts_with("--foreground-share: linux: "), "{error}");
        let mut no_level = options(&["md:/dev/sdb"], &["dd"]);
        no_level.matrix.arrays.level.clear();
        for (options, text) in [
            (no_level, "md: needs the level of the md array"),
            (options(&["md"], &[]), "md: needs its devices"),
        ] {
            let error = options.plan().expect_err(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
