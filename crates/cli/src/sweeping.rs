//! Sweeps over several hosts, as a library: what directs one, and what its workers do. The Python
//! package `raidlab.dask` connects both by a Dask cluster; nothing here knows of it.
//!
//! ```text
//!   director                                   worker, on another host
//!   SweepSource -> tasks ----- keys ---------> the same SweepSource -> the task -> measured
//!   SweepRun <--- MeasuredTask, JSON --------------------------------------'
//! ```
//!
//! Invariant: a worker plans the same text again, and measures what has the given keys or nothing.
//! Cells of a worker name its host, and are stored with the facts about it, all of an item in one
//! transaction: an item that was measured twice is stored once.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use bench::Progress;
use bench::program::session::RunResult;
use bench::sweep::{HostError, SweepHost, Task, measure as measure_task};
use host::{Endpoint, NbdUri};
use results::host::Host;
use results::hosts::together;
use results::record::{Cell, ItemTimes, Load, LoadPoint, Record};
use results::{LockHolder, NewRun, Store, parquet_of_record};
use serde::{Deserialize, Serialize};
use spec::case::{Case, Workload};
use spec::sweep::{Item, ItemKey};
use spec::target::{TargetExpr, is_export};

use crate::commands::bench::{HostOptions, hold_to_cores, parse_kernels, run_program};
pub use crate::error::text_of;

use crate::commands::sweep::{Given, Planned, check_room, known, without_name};

/// Interval at which a worker that waits for an agreed time looks for a stop.
const LOOK: Duration = Duration::from_millis(20);

/// What a sweep is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepSource {
    /// Name of the file, for messages; its stem names the sweep, if the text does not.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// Options over the file's, without dashes, and their values.
    pub given: Vec<Given>,
    /// Directory of member files; `None`: that of temporary files.
    pub directory: Option<PathBuf>,
    /// Permission to overwrite what devices hold.
    pub destroy_contents: bool,
    /// CPUs to pin to.
    pub cores: Option<u32>,
    /// Parity kernels by name; `None`: the fastest of each host.
    pub parity_impl: Option<String>,
}

/// A sweep as it is planned, for the process that directs it.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPlan {
    /// Name in the results.
    pub name: String,
    /// Title for display.
    pub title: String,
    /// What is measured together, in order.
    pub tasks: Vec<TaskPlan>,
    /// Matrices that cannot be planned: what, and why.
    pub impossible: Vec<(String, String)>,
    /// What was left out or ignored.
    pub notes: Vec<String>,
}

/// Items that are measured together: block workloads on one array, or one program.
#[derive(Clone, Debug, Serialize)]
pub struct TaskPlan {
    /// Keys of the items.
    pub keys: Vec<String>,
    /// The items in words.
    pub whats: Vec<String>,
    /// The host that it is bound to.
    pub host: Option<String>,
    /// Keys of the devices that it uses alone: disks of one host.
    pub devices: Vec<String>,
    /// The NBD export that is its target, however it is written: hosts share it, so one task uses
    /// it at a time.
    pub export: Option<String>,
    /// Whether it is a program, whose duration is unknown.
    pub program: bool,
    /// Whether several hosts can run it at one time against one target, or why not.
    pub not_shared: Option<String>,
    /// Estimated duration, seconds.
    pub seconds: Option<f64>,
}

/// What a worker measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredTask {
    /// The worker's host, as it was when the task began.
    pub host: Host,
    /// Its items, in order.
    pub items: Vec<MeasuredItem>,
    /// It was stopped before all of them were measured.
    pub stopped: bool,
}

/// An item that a worker measured, or could not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredItem {
    /// Its key.
    pub key: String,
    /// The item in words.
    pub what: String,
    /// Its cells; `None`: it was not measured.
    pub cells: Option<Vec<Cell>>,
    /// Why it could not be measured; `None` besides where it was stopped before.
    pub problem: Option<String>,
}

/// A host's clock against the director's.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockOffset {
    /// The host's clock minus the director's, seconds.
    pub offset_s: f64,
    /// Error, at most, seconds.
    pub error_s: f64,
}

/// The agreed start of a load, as a worker gets it when it is ready.
#[derive(Clone, Debug)]
pub struct AgreedStart {
    /// The start, seconds since 1970 by the director's clock.
    pub start_unix_s: f64,
    /// All hosts of the load.
    pub hosts: Vec<String>,
}

/// Called by a worker that is ready for its n-th workload, until all are; its error ends the task.
pub type Rendezvous<'r> = Box<dyn FnMut(usize) -> Result<AgreedStart, String> + Send + 'r>;

impl SweepPlan {
    /// It as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

impl MeasuredTask {
    /// It as JSON: what a worker sends.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// Reads what a worker sent.
    ///
    /// # Errors
    /// It is nothing of this version.
    pub fn from_json(text: &[u8]) -> Result<MeasuredTask> {
        serde_json::from_slice(text).map_err(|why| anyhow!("what a worker sent: {why}"))
    }
}

impl SweepSource {
    /// Reads it from JSON: its fields by their names.
    ///
    /// # Errors
    /// A field that is unknown, or of another type.
    pub fn from_json(text: &str) -> Result<SweepSource> {
        serde_json::from_str(text).map_err(|why| anyhow!("a sweep: {why}"))
    }

    fn host_options(&self) -> Result<HostOptions> {
        let parity_impl = self.parity_impl.as_deref().map(parse_kernels).transpose()?;
        let SweepSource { directory: dir, destroy_contents, cores, .. } = self.clone();
        // A host of a cluster measures what its disks do, or the models of a file.
        let real_time = false;
        Ok(HostOptions { dir, destroy_contents, cores, real_time, parity_impl })
    }

    fn planned(&self) -> Result<Planned> {
        let options = known();
        if let Some((key, _)) = self.given.iter().find(|(key, _)| !options.contains(key)) {
            bail!("unknown option '{key}'; there are {}", options.join(", "));
        }
        Planned::new(&self.file, &self.text, &self.given, &self.host_options()?)
    }

    /// Plans it. Nothing is created.
    ///
    /// # Errors
    /// What is wrong, with the line of the file.
    pub fn plan(&self) -> Result<SweepPlan> {
        let planned = self.planned()?;
        let tasks = planned.tasks(&HashSet::new());
        let texts = |texts: &[(Item, String)]| {
            texts.iter().map(|(item, why)| (item.what.clone(), why.clone())).collect()
        };
        Ok(SweepPlan {
            name: planned.sweep.name.clone(),
            title: planned.sweep.title.clone(),
            tasks: tasks.iter().map(TaskPlan::of).collect(),
            impossible: texts(&planned.impossible),
            notes: planned.notes,
        })
    }

    /// Measures the items of these keys, which are of one task, here and now; on several hosts at
    /// one time with a `rendezvous`. `stop` ends it early.
    ///
    /// # Errors
    /// The keys are not those of a task of this plan. What cannot be measured is no error: the
    /// reason is in the result.
    pub fn measure(
        &self,
        keys: &[String],
        clock: Option<ClockOffset>,
        rendezvous: Option<Rendezvous<'_>>,
        stop: &AtomicBool,
    ) -> Result<MeasuredTask> {
        // A thread of its own: what it is pinned to ends with it.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("measure".into());
            let body = || self.measure_here(keys, clock, rendezvous, stop);
            let thread = thread.spawn_scoped(scope, body)?;
            // It has printed the reason. The item could not be measured; the others can.
            thread.join().unwrap_or_else(|_| bail!("a defect of raidlab: the measurement panicked"))
        })
    }

    fn measure_here(
        &self,
        keys: &[String],
        clock: Option<ClockOffset>,
        rendezvous: Option<Rendezvous<'_>>,
        stop: &AtomicBool,
    ) -> Result<MeasuredTask> {
        let (planned, options) = (self.planned()?, self.host_options()?);
        hold_to_cores(options.cores)?;
        let wanted: HashSet<ItemKey> = keys.iter().map(|key| ItemKey(key.clone())).collect();
        let tasks = planned.tasks(&HashSet::new());
        let mut found = tasks.iter().filter_map(|task| task.only(&wanted));
        let task = found.next().filter(|task| task.items.len() == wanted.len()).ok_or_else(|| {
            anyhow!(
                "{}: its items are not the same here as where it was planned: files that it names \
                 (drive profiles, job files) differ on this host",
                self.file.display()
            )
        })?;
        let case = task.case();
        let head = bench::blocks::head(&task.plan(), &case.run);
        let Some(name) = head.host.hostname.clone() else {
            bail!("this machine has no host name: its results would look like another machine's");
        };
        let mut worker = Worker {
            options: &options,
            label: planned.labels.of(&case.target),
            clock,
            rendezvous,
            stop,
            workload: 0,
            begun: None,
            loads: BTreeMap::new(),
            problem: None,
        };
        let began = unix_seconds();
        let result = measure_task(&task, &mut worker);
        let times = ItemTimes {
            began_unix_s: began,
            ended_unix_s: unix_seconds(),
            clock_offset_s: clock.map(|clock| clock.offset_s),
            clock_error_s: clock.map(|clock| clock.error_s),
        };
        // A start that was not agreed on ends the task as a stop does, and has a reason.
        let own = worker.problem.take().filter(|_| !stop.load(Ordering::Relaxed));
        let stopped = result.stopped && own.is_none();
        let problem = own.or(result.problem.filter(|_| !stopped));
        let items = task.items.into_iter().zip(result.cells).enumerate();
        let items = items.map(|(entry, (item, mut cells))| {
            for cell in cells.iter_mut().flatten() {
                cell.case.host = Some(name.clone());
                cell.measured.times = Some(times);
                cell.measured.load = worker.loads.remove(&entry).map(|load| load.ended(cell));
            }
            let problem = problem.clone().filter(|_| cells.is_none());
            MeasuredItem { key: item.key.0, what: item.what, cells, problem }
        });
        Ok(MeasuredTask { host: head.host, items: items.collect(), stopped })
    }
}

impl TaskPlan {
    fn of(task: &Task) -> TaskPlan {
        let case = task.case();
        let not_shared = match (&case.target, task.is_program()) {
            (_, true) => Some("a program: its phases cannot be started together"),
            (TargetExpr::Device(_), false) if task.cases.iter().any(writes) => Some(
                "it writes: a device that hosts share is only read, because each of them would \
                 check its own writes; path:DIR on a shared file system has a file for each",
            ),
            (TargetExpr::Path(_) | TargetExpr::Device(_), false) => None,
            _ => Some(
                "each host would make a target of its own: give path:DIR on a file system that \
                 they share, or device:nbd://HOST/EXPORT",
            ),
        };
        // An export is no disk of a host.
        let (devices, export) = match &case.target {
            TargetExpr::Device(device) if is_export(device) => {
                (Vec::new(), Some(export_key(device)))
            }
            _ => (task.devices(), None),
        };
        TaskPlan {
            keys: task.items.iter().map(|item| item.key.0.clone()).collect(),
            whats: task.items.iter().map(|item| item.what.clone()).collect(),
            host: task.host.clone(),
            devices: devices.into_iter().map(|key| key.0).collect(),
            export,
            program: task.is_program(),
            not_shared: not_shared.map(str::to_string),
            seconds: task.estimate_seconds(),
        }
    }
}

/// An export by its host, port and name, with or without TLS: the same for URIs that differ only in
/// how they are written. Other names of one host are not found out.
fn export_key(device: &Path) -> String {
    let text = device.to_str().unwrap_or_default();
    let Ok(uri) = NbdUri::parse(text) else { return device.display().to_string() };
    let server = match &uri.endpoint {
        Endpoint::Unix(path) => path.display().to_string(),
        Endpoint::Tcp { host, port } => {
            let address = host.parse::<IpAddr>().map(|address| address.to_canonical().to_string());
            let name = || host.trim_end_matches('.').to_ascii_lowercase();
            format!("[{}]:{port}", address.unwrap_or_else(|_| name()))
        }
    };
    format!("{server}/{}", uri.export)
}

/// Whether block workloads of a case change what is on its target.
fn writes(case: &Case) -> bool {
    matches!(&case.workload, Workload::Blocks(spec) if spec.kind.writes())
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A host's part of a load, while it runs.
struct RunningLoad {
    load: Load,
    /// What is subtracted from this host's clock for the director's.
    offset_s: f64,
}

impl RunningLoad {
    fn now_s(&self) -> f64 {
        unix_seconds() - self.offset_s - self.load.start_unix_s
    }

    /// Adds what was done `seconds` after the first request. The first time says when that was:
    /// between the agreed start and it, jobs are started.
    fn add(&mut self, seconds: f64, bytes: u64, ops: u64) {
        let at_s = self.now_s();
        if self.load.began_s.is_none() {
            let began_s = at_s - seconds;
            self.load.began_s = Some(began_s);
            self.load.series.push(LoadPoint { at_s: began_s, ..LoadPoint::default() });
        }
        self.load.series.push(LoadPoint { at_s, bytes, ops });
    }

    /// The load of a cell that is complete: samples follow the warm-up without a pause.
    fn ended(mut self, cell: &Cell) -> Load {
        let seconds: f64 = cell.measured.samples.iter().map(|sample| sample.seconds).sum();
        let warm_up = cell.case.warm_up_s.unwrap_or(0.0);
        self.load.done_s = self.load.began_s.map(|began| began + warm_up + seconds);
        self.load
    }
}

/// The worker's side of a task.
struct Worker<'w> {
    options: &'w HostOptions,
    label: &'w str,
    clock: Option<ClockOffset>,
    rendezvous: Option<Rendezvous<'w>>,
    stop: &'w AtomicBool,
    /// Number of workloads that have begun.
    workload: usize,
    /// The load that runs.
    begun: Option<RunningLoad>,
    /// Those that have run, by the number of their workload.
    loads: BTreeMap<usize, RunningLoad>,
    /// Why it was stopped here.
    problem: Option<String>,
}

impl Worker<'_> {
    /// Waits until all hosts are ready, and for the agreed start.
    fn meet(&mut self) {
        self.keep();
        let entry = self.workload;
        self.workload += 1;
        let Some(rendezvous) = self.rendezvous.as_mut().filter(|_| self.problem.is_none()) else {
            return;
        };
        let agreed = match rendezvous(entry) {
            Ok(agreed) => agreed,
            Err(why) => {
                self.problem = Some(why);
                return;
            }
        };
        let clock = self.clock.unwrap_or_default();
        let load = Load {
            hosts: agreed.hosts,
            start_unix_s: agreed.start_unix_s,
            clock_offset_s: self.clock.map(|clock| clock.offset_s),
            clock_error_s: self.clock.map(|clock| clock.error_s),
            ..Load::default()
        };
        let running = RunningLoad { load, offset_s: clock.offset_s };
        loop {
            let left = -running.now_s();
            if left <= 0.0 || self.stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(LOOK.min(Duration::from_secs_f64(left)));
        }
        self.begun = Some(running);
    }

    /// Keeps the load that has run.
    fn keep(&mut self) {
        if let Some(load) = self.begun.take() {
            self.loads.insert(self.workload - 1, load);
        }
    }
}

impl SweepHost for Worker<'_> {
    fn ready(&mut self, task: &Task) -> Result<(), HostError> {
        check_room(task, self.options)
    }

    fn program(&mut self, task: &Task) -> RunResult {
        let stopped = || self.stop.load(Ordering::Relaxed);
        let destroy = self.options.destroy_contents;
        let (cells, ended) = run_program(task.case(), self.label, destroy, &stopped, &|_| {});
        (cells, ended.map_err(without_name))
    }

    fn label(&self, _: &Task) -> String {
        self.label.to_string()
    }

    fn progress(&mut self, event: Progress<'_>) {
        match event {
            Progress::Ready => self.meet(),
            Progress::Running { seconds, live, .. } => {
                if let Some(running) = &mut self.begun {
                    running.add(seconds, live.bytes(), live.ops());
                }
            }
            Progress::Measured(_) => self.keep(),
            _ => {}
        }
    }

    fn waits(&mut self, _: usize, _: &[u32]) {}

    fn stopped(&self) -> bool {
        self.problem.is_some() || self.stop.load(Ordering::Relaxed)
    }
}

/// The run of a sweep over several hosts, in a results file.
#[derive(Debug)]
pub struct SweepRun {
    store: Store,
    run: i64,
    owner: LockHolder,
}

/// A claim that could not be released must not outlive the run: a notebook's process lives on.
impl Drop for SweepRun {
    fn drop(&mut self) {
        self.owner.end();
    }
}

impl SweepRun {
    /// Resumes the newest run of the sweep over several hosts by this version, or starts one;
    /// `again`: in any case. `load`: the hosts of a load, or how many; its runs are not those
    /// of a sweep, nor of other hosts.
    /// `keys` are those that will be measured.
    ///
    /// # Errors
    /// Of the results file; or another process is at the run.
    pub fn begin(
        db: Option<&Path>,
        source: &SweepSource,
        load: Option<&str>,
        again: bool,
    ) -> Result<SweepRun> {
        let planned = source.planned()?;
        let path = db.map(Path::to_path_buf).or_else(results::default_path);
        let path = path.ok_or_else(|| {
            anyhow!("no default path of the results file: neither XDG_DATA_HOME nor HOME is set")
        })?;
        let mut store = Store::create(&path)?;
        // Of no host: this machine directs, and measures nothing.
        let head = Record::new(Host::default(), SystemTime::now());
        let (mut name, mut title) = (planned.sweep.name.clone(), planned.sweep.title.clone());
        if let Some(hosts) = load {
            name.push_str(&format!("@{hosts}"));
            title.push_str(&format!(": load of hosts {hosts}"));
        }
        let published = planned.sweep.published.as_deref();
        let new = NewRun { title: &title, sweep: Some(&name), published };
        let run = if again { store.begin(&new, &head)? } else { store.go_on(&new, &head)? };
        let owner = LockHolder::new();
        let since = store.moment()?;
        // One process directs a run: its key stands for all of them.
        let directs = Item { key: ItemKey(format!("directs: {name}")), what: String::new() };
        if !store.claim(run, std::slice::from_ref(&directs), &[], &owner, since)?.is_empty() {
            let others = store.claimed_by_others(run, &owner)?;
            let process = others.first().map_or(0, |(_, other)| other.process);
            bail!("{}: process {process} is at run {run}; wait for its end", path.display());
        }
        for (item, why) in &planned.impossible {
            store.put_not_run(run, item, why)?;
        }
        Ok(SweepRun { store, run, owner })
    }

    /// Number of the run.
    pub fn number(&self) -> i64 {
        self.run
    }

    /// The results file.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// Keys of the items that were measured.
    ///
    /// # Errors
    /// Of the results file.
    pub fn finished(&self) -> Result<Vec<String>> {
        Ok(self.store.finished(self.run)?.into_iter().map(|key| key.0).collect())
    }

    /// Stores what a worker has measured: each item completely or not at all, whatever was there
    /// before. Returns the keys of the stored items.
    ///
    /// # Errors
    /// Of the results file: further measurements would be lost.
    pub fn put(&mut self, measured: &MeasuredTask) -> Result<Vec<String>> {
        let mut stored = Vec::new();
        for item in &measured.items {
            let MeasuredItem { key, what, cells, problem } = item;
            let item = Item { key: ItemKey(key.clone()), what: what.clone() };
            match (cells, problem) {
                (Some(cells), _) => {
                    let hosts = std::slice::from_ref(&measured.host);
                    self.store.put_of_host(self.run, &item, cells, hosts)?;
                    stored.push(key.clone());
                }
                (None, Some(why)) => self.store.put_not_run(self.run, &item, why)?,
                (None, None) => {}
            }
        }
        Ok(stored)
    }

    /// Stores a load: what each of the hosts measured of it, and all together. Returns the keys of
    /// the items of which all hosts have measured their part, and of each why its rates could not
    /// be added, where they could not.
    ///
    /// # Errors
    /// Of the results file.
    pub fn put_load(&mut self, measured: &[MeasuredTask]) -> Result<Vec<(String, Option<String>)>> {
        let Some(first) = measured.first() else { return Ok(Vec::new()) };
        let mut done = Vec::new();
        for (entry, MeasuredItem { key, what, .. }) in first.items.iter().enumerate() {
            let item = Item { key: ItemKey(key.clone()), what: what.clone() };
            let parts = measured.iter().filter_map(|task| {
                let cells = task.items.get(entry)?.cells.clone()?;
                Some((task.host.clone(), cells))
            });
            let (hosts, parts): (Vec<Host>, Vec<Vec<Cell>>) = parts.unzip();
            let problem = measured.iter().find_map(|task| {
                let why = task.items.get(entry)?.problem.as_ref()?;
                Some(format!("{}: {why}", task.host.hostname.as_deref().unwrap_or("a host")))
            });
            if parts.len() < measured.len() {
                if let Some(why) = problem {
                    self.store.put_not_run(self.run, &item, &why)?;
                    done.push((key.clone(), Some(why)));
                }
                continue;
            }
            // A block workload has one cell.
            let mut cells: Vec<Cell> = parts.into_iter().flatten().collect();
            let sum = together(&cells).map_err(|why| why.to_string());
            let why = sum.as_ref().err().cloned();
            match sum {
                Ok(sum) => cells.insert(0, sum),
                Err(why) => {
                    let note = format!("the rates of the hosts are not added: {why}");
                    cells.iter_mut().for_each(|cell| cell.derived.warnings.push(note.clone()));
                }
            }
            self.store.put_of_host(self.run, &item, &cells, &hosts)?;
            done.push((key.clone(), why));
        }
        Ok(done)
    }

    /// Records why items could not be run.
    ///
    /// # Errors
    /// Of the results file.
    pub fn put_not_run(&mut self, items: &[(String, String)], why: &str) -> Result<()> {
        for (key, what) in items {
            let item = Item { key: ItemKey(key.clone()), what: what.clone() };
            self.store.put_not_run(self.run, &item, why)?;
        }
        Ok(())
    }

    /// A stored item as a file of a Parquet data set, with its record.
    ///
    /// # Errors
    /// Of the results file.
    pub fn parquet(&self, key: &str) -> Result<Vec<u8>> {
        let record = self.store.record_of(self.run, Some(&ItemKey(key.into())))?;
        Ok(parquet_of_record(&record)?)
    }

    /// The record of the run, as JSON.
    ///
    /// # Errors
    /// Of the results file.
    pub fn record(&self) -> Result<Record> {
        Ok(self.store.record(self.run)?)
    }

    /// Ends the run: `complete` where nothing is left.
    ///
    /// # Errors
    /// Of the results file.
    pub fn end(mut self, complete: bool) -> Result<()> {
        self.store.release(self.run, &self.owner)?;
        if complete {
            self.store.end(self.run)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(workload: &str) -> SweepPlan {
        let text = format!(
            "[[run]]\ntarget = \"device:nbd://server/data\"\nsize = \"32M\"\n\
             workload = \"{workload}\"\n"
        );
        let source = serde_json::json!({ "file": "a.toml", "text": text });
        SweepSource::from_json(&source.to_string()).unwrap().plan().unwrap()
    }

    #[test]
    fn an_export_is_the_same_however_it_is_written() {
        let key = |text: &str| export_key(Path::new(text));
        for same in [
            ["nbd://s/data", "nbd://s:10809/data"],
            ["nbd://S.Example./data", "nbd://s.example/data"],
            ["nbd://s/d%61ta", "nbds://s/data?tls-certificates=certificates"],
            ["nbd://10.0.0.1/", "nbd://[::ffff:10.0.0.1]"],
            ["nbd://[FE80:0::1]/a", "nbd://[fe80::1]:10809/a"],
        ] {
            assert_eq!(key(same[0]), key(same[1]));
        }
        for other in ["nbd://s:10810/data", "nbd://t/data", "nbd://s/Data", "nbd://s//data"] {
            assert_ne!(key("nbd://s/data"), key(other));
        }
        assert_eq!(key("nbd://s:0/data"), "nbd://s:0/data", "no URI: as it is written");
    }

    #[test]
    fn a_load_begins_with_its_first_request_and_not_with_the_start_of_its_jobs() {
        let load = Load { start_unix_s: unix_seconds() - 100.0, ..Load::default() };
        let mut running = RunningLoad { load, offset_s: 40.0 };
        running.add(0.25, 4096, 1);
        running.add(0.5, 8192, 2);
        let began_s = running.load.began_s.expect("it has begun");
        // By the director's clock, which is 40 s behind; however long this test is suspended.
        assert!((59.7..10_000.0).contains(&began_s), "{began_s}");
        let [zero, first, second] = &running.load.series[..] else { panic!("three points") };
        assert_eq!((zero.at_s, zero.bytes, zero.ops), (began_s, 0, 0));
        assert!((first.at_s - began_s - 0.25).abs() < 1e-6 && second.at_s >= first.at_s);
        assert_eq!((second.bytes, second.ops), (8192, 2));
    }

    #[test]
    fn an_export_is_used_by_one_task_at_a_time_and_a_load_only_reads_it() {
        let [task] = &plan("rand-read").tasks[..] else { panic!("one target is one task") };
        assert_eq!(
            (task.export.as_deref(), task.not_shared.as_deref()),
            (Some("[server]:10809/data"), None)
        );
        for workload in ["seq-write", "rand-mixed"] {
            let [task] = &plan(workload).tasks[..] else { panic!("one target is one task") };
            let why = task.not_shared.as_deref().unwrap_or_default();
            assert!(why.contains("it writes"), "{workload}: {why}");
        }
    }
}
