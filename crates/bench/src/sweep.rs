//! Runs a sweep: stored items are skipped, items that cannot be run are recorded, and the sweep
//! continues with the rest.
//!
//! Invariant: after any end, also of the process, the run in the results holds exactly the items
//! that were measured completely; resuming measures the others. Items that failed before are tried
//! again, once. Of several processes that resume the same run, each tries the items that no other
//! has tried since its own start, reports all failures since then, and the last to end waits for no
//! other process. A device is used by one process at a time.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use host::Access;
use results::record::{Cell, Record};
use results::{LockHolder, Sequence, Store, StoreError};
use spec::case::{Case, Workload};
use spec::matrix::{ArrayPlan, Plan};
use spec::sweep::{Item, ItemKey, key};
use spec::target::TargetExpr;

use crate::blocks as bench;
use crate::error::RunError;
use crate::program::session::RunResult;
use crate::progress::Progress;
use crate::provision::check_devices_of;

/// A case of a sweep, with its key and description.
#[derive(Clone, Debug)]
pub struct SweepCase {
    /// The measurement.
    pub case: Case,
    /// Its key and description.
    pub item: Item,
    /// The machine that it is to be measured on; `None`: any.
    pub host: Option<String>,
}

impl SweepCase {
    /// A case, its target marked with `label`; to be measured on `host`, if one is given.
    pub fn new(case: Case, label: &str, host: Option<&str>) -> SweepCase {
        let item = case.item(label);
        let item = host.map_or(item.clone(), |host| item.on_host(host));
        SweepCase { case, item, host: host.map(str::to_string) }
    }
}

/// What is measured together: block workloads on one array, or one program.
#[derive(Clone, Debug)]
pub struct Task {
    /// The cases: all of one array, or a single one.
    pub cases: Vec<Case>,
    /// Their items.
    pub items: Vec<Item>,
    /// The machine that they are to be measured on; `None`: any.
    pub host: Option<String>,
}

impl Task {
    /// The task without its `finished` items; `None`: all are finished.
    fn without(&self, finished: &HashSet<ItemKey>) -> Option<Task> {
        let pairs = self.cases.iter().zip(&self.items);
        let left = pairs.filter(|(_, item)| !finished.contains(&item.key));
        let (cases, items): (Vec<Case>, Vec<Item>) =
            left.map(|(case, item)| (case.clone(), item.clone())).unzip();
        (!items.is_empty()).then_some(Task { cases, items, host: self.host.clone() })
    }

    /// The task with these items only; `None`: it has none of them.
    pub fn only(&self, wanted: &HashSet<ItemKey>) -> Option<Task> {
        let all = self.items.iter().map(|item| &item.key);
        self.without(&all.filter(|key| !wanted.contains(key)).cloned().collect())
    }

    /// The first case: target, array and settings of the run are the same for all.
    pub fn case(&self) -> &Case {
        &self.cases[0]
    }

    /// Whether it is a program.
    pub fn is_program(&self) -> bool {
        matches!(self.case().workload, Workload::Program(_))
    }

    /// The array with its block workloads; for a program, its array if it has one.
    pub fn plan(&self) -> Plan {
        let spec = |case: &Case| match &case.workload {
            Workload::Blocks(spec) => Some(*spec),
            Workload::Program(_) => None,
        };
        let cells = self.cases.iter().filter_map(spec).collect();
        let array = self.case().array.clone().map(|array| ArrayPlan { array, cells });
        Plan { arrays: array.into_iter().collect(), left_out: Vec::new() }
    }

    /// Whether a case can be measured with those of the task: the array is created once.
    fn includes(&self, SweepCase { case, host, .. }: &SweepCase) -> bool {
        let blocks = |case: &Case| matches!(case.workload, Workload::Blocks(_));
        let own = self.case();
        let same = own.target == case.target && own.array == case.array && own.run == case.run;
        blocks(own) && blocks(case) && same && self.host == *host
    }

    /// The devices that no other process may use while it runs.
    pub fn devices(&self) -> Vec<ItemKey> {
        let case = self.case();
        let members = case.array.iter().flat_map(|array| &array.members);
        let members = members.filter_map(|member| member.device().map(PathBuf::from));
        let mut devices = key::devices(&case.target);
        for device in members {
            let own = key::devices(&TargetExpr::Device(device));
            devices
                .extend(own.into_iter().filter(|own| !devices.contains(own)).collect::<Vec<_>>());
        }
        devices
    }

    /// Estimated duration, seconds; `None` for a program, whose duration is unknown.
    pub fn estimate_seconds(&self) -> Option<f64> {
        (!self.is_program())
            .then(|| bench::estimate_seconds(&self.case().target, &self.plan(), &self.case().run))
    }
}

/// How a sweep ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// Number of items that this call measured.
    pub measured: usize,
    /// Items that failed since it began, here or in other processes that resume the run, with the
    /// reason.
    pub failed: Vec<(Item, String)>,
    /// It was stopped by the caller.
    pub stopped: bool,
    /// Message of the program that was stopped: it names anything that could not be removed.
    pub interrupted: Option<String>,
}

/// Pending tasks: one per array and per program, without the items that are `finished` and without
/// those that an earlier task already measures.
pub fn tasks(cases: &[SweepCase], finished: &HashSet<ItemKey>) -> Vec<Task> {
    let mut seen = finished.clone();
    let mut tasks: Vec<Task> = Vec::new();
    for sweep_case @ SweepCase { case, item, host } in cases {
        if !seen.insert(item.key.clone()) {
            continue;
        }
        match tasks.last_mut().filter(|task| task.includes(sweep_case)) {
            Some(task) => {
                task.cases.push(case.clone());
                task.items.push(item.clone());
            }
            None => tasks.push(Task {
                cases: vec![case.clone()],
                items: vec![item.clone()],
                host: host.clone(),
            }),
        }
    }
    tasks
}

/// Why a task cannot be run here, or failed.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// Callbacks of a sweep, implemented by the caller.
pub trait SweepHost {
    /// Whether a task can be run here.
    ///
    /// # Errors
    /// The reason why it cannot be run.
    fn ready(&mut self, task: &Task) -> Result<(), HostError>;

    /// Runs a task that is a program. Returns its cells and its result.
    fn program(&mut self, task: &Task) -> RunResult;

    /// What distinguishes the target of a task from others of the same name, in its cells.
    fn label(&self, _task: &Task) -> String {
        String::new()
    }

    /// Receives the progress events of [`bench::run`].
    fn progress(&mut self, event: Progress<'_>);

    /// An item could not be measured, for this reason.
    fn not_measured(&mut self, _item: &Item, _why: &str) {}

    /// Called periodically while only `items` items are left, all claimed by `processes` or on
    /// devices that these are using.
    fn waits(&mut self, items: usize, processes: &[u32]);

    /// Whether the sweep is to stop.
    fn stopped(&self) -> bool;
}

/// Opens the block devices of all tasks as they will be opened, and closes them again: what is
/// refused is refused before anything is measured. Of a run that is resumed, `(store, run)`,
/// devices that other processes are using are left to them.
///
/// # Errors
/// Outer: of the store. Inner: a device is missing, in use, too small, or holds data that would be
/// overwritten.
pub fn check_devices(
    tasks: &[Task],
    mut resumed: Option<(&mut Store, i64)>,
    destroy: bool,
    access: Access,
) -> Result<Result<(), RunError>, StoreError> {
    let owner = LockHolder::new();
    let mut seen = HashSet::new();
    for task in tasks {
        let (case, devices) = (task.case(), task.devices());
        let array = case.array.as_ref().map(|array| (array.member_bytes, array.read_only));
        let alike = (case.target.identity(), array, devices.clone());
        if devices.is_empty() || !seen.insert(alike) {
            continue;
        }
        let check = || check_devices_of(&case.target, Some(&task.plan()), destroy, access);
        let checked = match &mut resumed {
            None => check(),
            Some((store, run)) => {
                let since = store.moment()?;
                let theirs = store.claim(*run, &task.items, &devices, &owner, since)?;
                let checked = task.without(&theirs).map_or(Ok(()), |_| check());
                store.release(*run, &owner)?;
                checked
            }
        };
        if let Err(problem) = checked {
            return Ok(Err(problem.into()));
        }
    }
    Ok(Ok(()))
}

/// Interval between polls of other processes' claims.
const LOOK: Duration = Duration::from_millis(200);

/// Measures the tasks, one after the other, into a run of `store`. Items that another process which
/// resumes the same run has finished or claimed are skipped; at the end this process waits for
/// them, and measures those that were released unfinished.
///
/// # Errors
/// When results cannot be stored: further measurements would be lost. An item that cannot be
/// measured is not an error: it is recorded.
pub fn run_tasks(
    tasks: &[Task],
    store: &mut Store,
    run: i64,
    host: &mut dyn SweepHost,
) -> Result<Ended, StoreError> {
    let owner = LockHolder::new();
    let since = store.moment()?;
    let carried = run_as((&owner, since), tasks, store, run, host);
    // Also after an error, which is returned; otherwise the claims end with the process.
    let released = store.release(run, &owner);
    let mut ended = carried?;
    released?;
    let ours = keys(tasks);
    ended.failed = store.failed(run, since)?;
    ended.failed.retain(|(item, _)| ours.contains(&item.key));
    ended.stopped = host.stopped();
    if !ended.stopped {
        store.end(run)?;
    }
    Ok(ended)
}

/// The keys of all items of the tasks.
fn keys(tasks: &[Task]) -> HashSet<&ItemKey> {
    tasks.iter().flat_map(|task| &task.items).map(|item| &item.key).collect()
}

fn run_as(
    (owner, since): (&LockHolder, Sequence),
    tasks: &[Task],
    store: &mut Store,
    run: i64,
    host: &mut dyn SweepHost,
) -> Result<Ended, StoreError> {
    let mut ended = Ended::default();
    let mut left: Vec<Task> = tasks.to_vec();
    loop {
        for task in &left {
            if host.stopped() {
                return Ok(ended);
            }
            let theirs = store.claim(run, &task.items, &task.devices(), owner, since)?;
            if let Some(task) = &task.without(&theirs) {
                one_task(task, store, run, host, &mut ended)?;
                // Other processes may try the items that were not measured.
                store.release(run, owner)?;
            }
        }
        let tried = store.tried(run, since)?;
        left = left.iter().filter_map(|task| task.without(&tried)).collect();
        if left.is_empty() || !others_have_gone(&left, owner, store, run, host)? {
            return Ok(ended);
        }
    }
}

/// Waits while other processes hold claims on some of these. Returns whether they released them.
fn others_have_gone(
    tasks: &[Task],
    owner: &LockHolder,
    store: &mut Store,
    run: i64,
    host: &mut dyn SweepHost,
) -> Result<bool, StoreError> {
    let wanted = tasks.iter().flat_map(|task| {
        let devices = task.devices();
        let keys = move |item: &Item| [slice::from_ref(&item.key), &devices].concat();
        task.items.iter().map(keys)
    });
    let wanted: Vec<Vec<ItemKey>> = wanted.collect();
    loop {
        let claims: HashMap<ItemKey, LockHolder> =
            store.claimed_by_others(run, owner)?.into_iter().collect();
        let wait = |keys: &&Vec<ItemKey>| keys.iter().any(|key| claims.contains_key(key));
        let waiting: Vec<&Vec<ItemKey>> = wanted.iter().filter(wait).collect();
        if waiting.is_empty() {
            return Ok(true);
        }
        let others = waiting.iter().copied().flatten().filter_map(|key| claims.get(key));
        let processes: BTreeSet<u32> = others.map(|other| other.process).collect();
        host.waits(waiting.len(), &Vec::from_iter(processes));
        if host.stopped() {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
}

fn one_task(
    task: &Task,
    store: &mut Store,
    run: i64,
    host: &mut dyn SweepHost,
    ended: &mut Ended,
) -> Result<(), StoreError> {
    let mut stored = vec![false; task.items.len()];
    let result = match host.ready(task) {
        Err(why) => Err(why),
        Ok(()) if task.is_program() => {
            let (cells, result) = host.program(task);
            if host.stopped() {
                // It is measured again from the start: a partial program is not stored.
                ended.interrupted = result.err().map(|error| error.to_string());
                Ok(())
            } else {
                if result.is_ok() {
                    store.put(run, &task.items[0], &cells)?;
                    stored[0] = true;
                }
                result.map_err(HostError::from)
            }
        }
        Ok(()) => {
            let put = |item: &Item, cells: &[Cell]| store.put(run, item, cells);
            blocks(task, put, host, &mut stored)?.map_err(HostError::from)
        }
    };
    ended.measured += stored.iter().filter(|stored| **stored).count();
    if let Err(why) = result {
        // If all cells are stored, the check of the redundancy has failed.
        let missing = task.items.iter().zip(&stored).filter(|(_, stored)| !**stored);
        let why = why.to_string();
        for (item, _) in missing {
            store.put_not_run(run, item, &why)?;
            host.not_measured(item, &why);
        }
    }
    Ok(())
}

/// What a task measured for another process, which stores it.
#[derive(Debug, Default)]
pub struct TaskResult {
    /// The cells of each item; `None`: it was not measured completely.
    pub cells: Vec<Option<Vec<Cell>>>,
    /// Why items could not be measured; or, where all were, what failed afterwards.
    pub problem: Option<String>,
    /// It was stopped by the caller; what it measured before is complete.
    pub stopped: bool,
}

/// Measures a task here, and stores nothing.
pub fn measure(task: &Task, host: &mut dyn SweepHost) -> TaskResult {
    let mut cells: Vec<Option<Vec<Cell>>> = vec![None; task.items.len()];
    let result = match host.ready(task) {
        Err(why) => Err(why),
        Ok(()) if task.is_program() => {
            let (of_phases, result) = host.program(task);
            if result.is_ok() && !host.stopped() {
                cells[0] = Some(of_phases);
            }
            result.map_err(HostError::from)
        }
        Ok(()) => {
            let put = |item: &Item, of_item: &[Cell]| {
                let at = task.items.iter().position(|own| own.key == item.key);
                cells[at.expect("an item of the task")] = Some(of_item.to_vec());
                Ok(())
            };
            let mut stored = vec![false; task.items.len()];
            let ran = blocks(task, put, host, &mut stored);
            ran.expect("nothing is stored").map_err(HostError::from)
        }
    };
    TaskResult { cells, problem: result.err().map(|why| why.to_string()), stopped: host.stopped() }
}

/// Runs block workloads on an array. Inner result: of the measurement; outer: of the store.
fn blocks(
    task: &Task,
    mut put: impl FnMut(&Item, &[Cell]) -> Result<(), StoreError>,
    host: &mut dyn SweepHost,
    stored: &mut [bool],
) -> Result<Result<(), RunError>, StoreError> {
    let problem = RefCell::new(None);
    let (case, label) = (task.case(), host.label(task));
    let host = RefCell::new(host);
    let mut progress = |event: Progress<'_>| {
        let mut problem = problem.borrow_mut();
        if let (Progress::Final { entry, cells }, None) = (&event, &*problem) {
            match put(&task.items[*entry], cells) {
                Ok(()) => stored[*entry] = true,
                Err(why) => *problem = Some(why),
            }
        }
        host.borrow_mut().progress(event);
    };
    // A measurement that cannot be stored is useless.
    let stop = || problem.borrow().is_some() || host.borrow().stopped();
    let target = (&case.target, label.as_str());
    let result = bench::run_on(target, &task.plan(), &case.run, &stop, &mut progress).1;
    match problem.into_inner() {
        Some(problem) => Err(problem),
        None => Ok(result),
    }
}

/// The head of the record of a sweep: the host, with the members of its first task.
pub fn head(tasks: &[Task]) -> Option<Record> {
    tasks.first().map(|task| bench::head(&task.plan(), &task.case().run))
}

#[cfg(test)]
mod tests {
    use results::NewRun;
    use spec::case::RunConfig;
    use spec::matrix::{self, Options};
    use spec::workload::Kind;

    use super::*;

    /// Counts the callbacks, and simulates other processes from within them.
    #[derive(Default)]
    struct Scripted<'s> {
        cells: usize,
        /// The number of items of each `waits` callback.
        waited: Vec<usize>,
        stopped: bool,
        /// Runs before the first task, as another process.
        before: Option<Box<dyn FnOnce() + 's>>,
        /// Runs when the first own item begins, as another process.
        other: Option<Box<dyn FnOnce() + 's>>,
        /// Runs when an item is waited for, as the process that holds it.
        holder: Option<Box<dyn FnOnce() + 's>>,
        /// Result of a program.
        program: Option<fn(&mut Scripted<'s>) -> RunResult>,
    }

    impl SweepHost for Scripted<'_> {
        fn ready(&mut self, _: &Task) -> Result<(), HostError> {
            if let Some(before) = self.before.take() {
                before();
            }
            Ok(())
        }

        fn program(&mut self, _: &Task) -> RunResult {
            self.program.expect("no program was expected")(self)
        }

        fn progress(&mut self, event: Progress<'_>) {
            if let Some(other) = self.other.take() {
                other();
            }
            self.cells += usize::from(matches!(event, Progress::Final { .. }));
        }

        fn waits(&mut self, items: usize, processes: &[u32]) {
            assert_eq!(processes, [std::process::id()]);
            self.waited.push(items);
            if let Some(holder) = self.holder.take() {
                holder();
            }
        }

        fn stopped(&self) -> bool {
            self.stopped
        }
    }

    fn dd(key: &str, target: &str) -> SweepCase {
        let case = Case {
            target: target.parse().expect("a target"),
            array: None,
            workload: Workload::Program("dd".parse().expect("a program")),
            size: None,
            run: RunConfig::quick(),
        };
        let item = Item { key: ItemKey(key.into()), what: key.into() };
        SweepCase { case, item, host: None }
    }

    #[test]
    fn a_device_that_another_uses_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("results.db");
        let mut store = Store::create(&file).expect("a file");
        let (disk, array) = ("device:/nonexistent/sdb", "md:/nonexistent/sdb+/nonexistent/sdc");
        let programs = [dd("a", disk), dd("b", disk), dd("c", array)];
        let tasks = tasks(&programs, &HashSet::new());
        let head = head(&tasks).expect("tasks");
        let run = store.begin(&NewRun::default(), &head).expect("a run");
        let (mut theirs, owner) = (Store::open(&file).expect("the file"), LockHolder::new());
        let now = theirs.moment().expect("a moment");
        theirs.claim(run, &tasks[0].items, &tasks[0].devices(), &owner, now).expect("claimed");
        let item = tasks[0].items[0].clone();
        let end = move || {
            theirs.put(run, &item, &[Cell::default()]).expect("stored");
            theirs.release(run, &owner).expect("given back");
        };
        let mut host = Scripted {
            holder: Some(Box::new(end)),
            program: Some(|host| match host.holder {
                Some(_) => (vec![], Err(RunError::NotAProgram)),
                None => (vec![Cell::default()], Ok(())),
            }),
            ..Scripted::default()
        };
        let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
        assert_eq!((ended.measured, ended.failed), (2, vec![]));
        assert_eq!(host.waited.first(), Some(&3));
        assert_eq!(store.finished(run).expect("keys").len(), 3);
    }

    #[test]
    fn what_an_interrupted_program_leaves_behind_is_handed_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::create(&directory.path().join("results.db")).expect("a file");
        let tasks = tasks(&[dd("dd", "engine")], &HashSet::new());
        let head = head(&tasks).expect("a task");
        let run = store.begin(&NewRun::default(), &head).expect("a run");
        let mut host = Scripted {
            program: Some(|host| {
                host.stopped = true;
                (vec![Cell::default()], Err(RunError::NotForMd("it could not be stopped")))
            }),
            ..Scripted::default()
        };
        let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
        let said = "md: it could not be stopped".to_string();
        let expected = Ended { stopped: true, interrupted: Some(said), ..Ended::default() };
        assert_eq!(ended, expected);
        assert!(store.finished(run).expect("readable").is_empty(), "it is measured anew");
    }

    /// Two arrays under random reads and `workloads`.
    fn cases(workloads: &[Kind]) -> Vec<SweepCase> {
        let options = Options::default().with(|it| {
            it.arrays.level =
                vec!["raid0".parse().expect("a level"), "raid1".parse().expect("a level")];
            it.engine.members = vec!["mem".parse().expect("a set")];
            it.sizes = vec![4 << 20];
            it.workloads = workloads.to_vec();
        });
        let plan = matrix::plan(&options).expect("a plan");
        let run = RunConfig::quick();
        let cases = plan.arrays.iter().flat_map(|array| array.cases(&TargetExpr::Engine, &run));
        cases.map(|case| SweepCase::new(case, "", None)).collect()
    }

    #[test]
    fn items_finished_by_another_process_are_not_measured_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("results.db");
        let mut store = Store::create(&file).expect("a file");
        let cases = cases(&[Kind::RandRead, Kind::SeqRead]);
        let tasks = tasks(&cases, &HashSet::new());
        assert_eq!(tasks.iter().map(|task| task.items.len()).collect::<Vec<_>>(), [2, 2]);
        let head = head(&tasks).expect("tasks");
        for theirs in [0, 1] {
            let run = store.begin(&NewRun::default(), &head).expect("a run");
            let mut other = Store::open(&file).expect("the file");
            let item = tasks[1].items[theirs].clone();
            let measure = move || other.put(run, &item, &[Cell::default()]).expect("stored");
            let mut host = Scripted { other: Some(Box::new(measure)), ..Scripted::default() };
            let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
            assert_eq!((ended.measured, host.cells), (3, 3));
            let finished = store.finished(run).expect("keys");
            assert!(tasks.iter().flat_map(|t| &t.items).all(|item| finished.contains(&item.key)));
            let mut cells = store.record(run).expect("the run").cells;
            cells.retain(|cell| !cell.case.workload.is_empty());
            let own = &cells[2];
            let left = [Kind::SeqRead, Kind::RandRead][theirs].name();
            assert_eq!(
                (cells.len(), &*own.case.level.text(), &*own.case.workload.text()),
                (3, "raid1", left)
            );
            // With all items finished there is no task.
            let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
            assert_eq!((ended.measured, host.cells), (0, 3));
        }
    }

    /// How another process that holds an item ends.
    #[derive(Clone, Copy, PartialEq)]
    enum TheirEnd {
        Measured,
        Failed,
        Killed,
    }

    #[test]
    fn what_another_is_at_is_waited_for_and_measured_where_they_give_it_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("results.db");
        let mut store = Store::create(&file).expect("a file");
        let cases = cases(&[Kind::RandRead]);
        let tasks = tasks(&cases, &HashSet::new());
        let head = head(&tasks).expect("tasks");
        let ends = [TheirEnd::Measured, TheirEnd::Failed, TheirEnd::Killed];
        for (end, failed_before) in ends.map(|end| [(end, false), (end, true)]).concat() {
            let run = store.begin(&NewRun::default(), &head).expect("a run");
            let (mut theirs, owner) = (Store::open(&file).expect("the file"), LockHolder::new());
            let item = tasks[0].items[0].clone();
            if failed_before {
                theirs.put_not_run(run, &item, "no room yesterday").expect("noted");
            }
            let now = theirs.moment().expect("a moment");
            theirs.claim(run, &tasks[0].items, &[], &owner, now).expect("claimed");
            let ended = move || match end {
                TheirEnd::Measured => theirs.put(run, &item, &[Cell::default()]).expect("stored"),
                TheirEnd::Failed => theirs.put_not_run(run, &item, "no room").expect("noted"),
                TheirEnd::Killed => theirs.release(run, &owner).expect("given back"),
            };
            let mut host = Scripted { holder: Some(Box::new(ended)), ..Scripted::default() };
            let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
            assert_eq!(host.waited.first(), Some(&1));
            let ours = if end == TheirEnd::Killed { 2 } else { 1 };
            assert_eq!((ended.measured, host.cells), (ours, ours));
            let failed = if end == TheirEnd::Failed { 1 } else { 0 };
            assert_eq!(store.finished(run).expect("keys").len(), 2 - failed);
            let why: Vec<&str> = ended.failed.iter().map(|(_, why)| why.as_str()).collect();
            assert_eq!(why, vec!["no room"; failed], "as the one who tried it ends");
        }
    }

    #[test]
    fn items_that_failed_in_another_process_are_not_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("results.db");
        let mut store = Store::create(&file).expect("a file");
        let cases = cases(&[Kind::RandRead]);
        let tasks = tasks(&cases, &HashSet::new());
        let run = store.begin(&NewRun::default(), &head(&tasks).expect("tasks")).expect("a run");
        let item = tasks[1].items[0].clone();
        store.put_not_run(run, &item, "no room yesterday").expect("noted");
        let mut theirs = Store::open(&file).expect("the file");
        let (key, fail) = (item.key.clone(), move || {
            theirs.put_not_run(run, &item, "no room").expect("noted");
        });
        let mut host = Scripted { other: Some(Box::new(fail)), ..Scripted::default() };
        let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
        assert_eq!((ended.measured, host.cells, host.waited.len()), (1, 1, 0));
        assert_eq!((&ended.failed[0].0.key, ended.failed[0].1.as_str()), (&key, "no room"));
        // The next process that resumes the run measures it.
        let ended = run_tasks(&tasks, &mut store, run, &mut host).expect("stored");
        assert_eq!((ended.measured, ended.failed), (1, vec![]));
        assert_eq!(store.finished(run).expect("keys").len(), 2);
    }

    /// Both start each item at nearly the same time.
    #[test]
    fn two_in_lockstep_measure_everything_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("results.db");
        let store = Store::create(&file).expect("a file");
        let cases = cases(&[Kind::RandRead, Kind::SeqRead]);
        let tasks = tasks(&cases, &HashSet::new());
        let run = store.begin(&NewRun::default(), &head(&tasks).expect("tasks")).expect("a run");
        let begin = std::sync::Barrier::new(2);
        let one = || {
            let mut store = Store::open(&file).expect("the file");
            let wait = || _ = begin.wait();
            let mut host = Scripted { before: Some(Box::new(wait)), ..Scripted::default() };
            run_tasks(&tasks, &mut store, run, &mut host).expect("stored").measured
        };
        let measured = std::thread::scope(|scope| {
            let other = scope.spawn(one);
            one() + other.join().expect("no panic")
        });
        assert_eq!(measured, 4);
        assert_eq!(store.record(run).expect("the run").cells.len(), 4);
    }
}
