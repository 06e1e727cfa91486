//! Programs on targets: combines program, backend, whose I/O `metered` counts, and cells.
//!
//! Invariant: after any end, measured cells are returned, and everything created is removed. Each
//! of several runs of a program starts from the same state: files, arrays and file systems are
//! created again, with different data. Called from the command line, and by sweeps.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::metrics::{Watched, described, drives, metadata};
use array::{
    Array, ArraySpec, BuildError, DataPlaneConfig, Driver, DriverOptions, FileMember, FileOptions,
    Member, MemberSpec,
};
use host::Disk;
use md::nested::{ArrayExpr, Members};
use md::{Layout, Level};
use results::record::{self, Cell, CellCase};
use results::words;
use spec::bench_plan::refused_by_md;
use spec::case::{ArrayConfig, BenchLevel, RunConfig};
use spec::program::timing::Timing;
use spec::program::types::{Calls, Order, Phase, Program, Transfer, extent_bytes};
use spec::program::{ProgramSpec, Sizing};
use spec::target::TargetExpr;

use super::array_access::OwnDriver;
use super::backend::IoBackend;
use super::cells::{RunContext, cells};
use super::error::IoError;
use super::extents::Extents;
use super::files::{Files, drop_page_cache, own_name};
use super::metered::MeteredBackend;
use super::outcome::PhaseOutcome;
use super::run::run;
use super::timing::Repetition;
use crate::arrays::{self, array_for_program};
use crate::error::{RunError, TooLarge};
use crate::progress::Progress;
use crate::provision::{
    ClaimedDevices, EngineArray, KernelArray, MountOrDevice as PlaceGround, ProvisionError,
    ProvisionedTarget, Request, ServedArray, WipeTarget, open_to_write_over,
};
use crate::target::Requests;
use crate::verify::ShadowMap;

/// Settings and callbacks of program runs.
pub struct Session<'a> {
    /// Clock, repetitions, caches.
    pub timing: Timing,
    /// Size of all files together; `None`: by memory and target.
    pub size: Option<u64>,
    /// Seed of the run's data.
    pub seed: u64,
    /// Overwrite the contents of a `device:`.
    pub destroy: bool,
    /// Polled; `true` stops the run.
    pub stop: &'a dyn Fn() -> bool,
    /// Receives progress events.
    pub tell: &'a mut dyn FnMut(Progress<'_>),
}

/// Buffer requirements of a program on an array.
#[derive(Clone, Copy, Debug)]
pub struct BufferRequirements {
    /// Bytes of the longest request.
    pub lease_bytes: u64,
    /// Maximum of requests in flight.
    pub in_flight: usize,
}

/// Result of a run: the measured cells, and its error if it failed.
pub type RunResult = (Vec<Cell>, Result<(), RunError>);

/// One run of a program: the program, the outcomes of its phases, and the context.
struct ProgramRun {
    program: Program,
    outcomes: Vec<PhaseOutcome>,
    around: RunContext,
}

/// A run, if it was started, and its error if it failed.
type Once = (Option<ProgramRun>, Result<(), RunError>);

impl Session<'_> {
    /// Runs a program on files in a directory.
    pub fn on_directory(
        &mut self,
        choice: &ProgramSpec,
        directory: &Path,
        place: record::Place,
    ) -> RunResult {
        let base = Cell::default().with(|it| {
            it.case.target = "path".into();
            it.case.place = Some(place);
        });
        self.repeated(&mut |session, first| {
            session.in_directory(choice, directory, base.clone(), &[], first)
        })
    }

    /// Runs a program the requested number of times. `once` runs it from a clean state; it receives
    /// the program of the first run.
    fn repeated(&mut self, once: &mut dyn FnMut(&mut Self, Option<&Program>) -> Once) -> RunResult {
        let (seed, mut all) = (self.seed, None::<ProgramRun>);
        let mut ended = Ok(());
        for run in 1.. {
            let brought;
            (brought, ended) = once(self, all.as_ref().map(|all| &all.program));
            match (&mut all, brought) {
                (Some(all), Some(brought)) => all.add(brought),
                (all, brought) => *all = all.take().or(brought),
            }
            let outcomes = all.as_ref().map_or(&[][..], |all| &all.outcomes);
            if ended.is_err() || (self.stop)() || !self.timing.once_more(run, outcomes) {
                break;
            }
            // Data of an earlier run must not pass as data of this one.
            self.seed = seed.wrapping_add(u64::from(run));
        }
        self.seed = seed;
        (all.map_or_else(Vec::new, |all| cells(&all.program, &all.outcomes, &all.around)), ended)
    }

    /// Sets a place up, runs a program there and tears the place down. `array` is the array below
    /// it, of the engine or of the kernel, where the place needs one.
    pub(super) fn on_place(
        &mut self,
        choice: &ProgramSpec,
        expr: &TargetExpr,
        array: Option<(&ArrayConfig, &RunConfig)>,
    ) -> RunResult {
        // The program uses the area of the plan; the rest of the array is for the file system.
        self.size = array.and_then(|(array, _)| array.area_bytes).or(self.size);
        self.repeated(&mut |session, first| match set_up(
            expr,
            array,
            false,
            session.destroy,
            session.stop,
        ) {
            Err(problem) => (None, Err(problem)),
            Ok((place, base)) => {
                let (ran, ended) = session.in_place(choice, expr, &place, base, first);
                let taken_down = place.take_down();
                let ended = match (ended, taken_down) {
                    (Err(run), Err(undo)) => Err(RunError::RunAndUndo { run: Box::new(run), undo }),
                    (ended, taken_down) => ended.and(taken_down.map_err(RunError::from)),
                };
                (ran, ended)
            }
        })
    }

    fn in_place(
        &mut self,
        choice: &ProgramSpec,
        expr: &TargetExpr,
        place: &ProvisionedTarget,
        base: Cell,
        first: Option<&Program>,
    ) -> Once {
        match place.storage() {
            PlaceGround::Directory(path) => {
                self.in_directory(choice, path, base, place.arrays(), first)
            }
            PlaceGround::Device(path) => {
                let opened = match expr {
                    TargetExpr::Device(_) => open_to_write_over(path, self.destroy),
                    _ => WipeTarget::made_for_it(path),
                };
                match opened {
                    Err(problem) => (None, Err(problem.into())),
                    Ok(device) => self.on_opened(choice, &device, path, base),
                }
            }
        }
    }

    fn in_directory(
        &mut self,
        choice: &ProgramSpec,
        path: &Path,
        base: Cell,
        arrays: &[ServedArray],
        first: Option<&Program>,
    ) -> Once {
        match self.prepare_directory(choice, path, first) {
            Err(problem) => (None, Err(problem)),
            Ok((program, backend)) => {
                let backend = MeteredBackend::new(backend, path, arrays);
                self.run(program, &backend, base, host::sys::memory_bytes())
            }
        }
    }

    /// Runs a program on a block device. Its signatures are erased after all checks have passed.
    pub fn on_device(
        &mut self,
        choice: &ProgramSpec,
        opened: &WipeTarget,
        path: &Path,
        base: Cell,
    ) -> RunResult {
        self.repeated(&mut |session, _| session.on_opened(choice, opened, path, base.clone()))
    }

    fn on_opened(
        &mut self,
        choice: &ProgramSpec,
        opened: &WipeTarget,
        path: &Path,
        base: Cell,
    ) -> Once {
        let device = opened.device();
        let capacity = device.sectors() * md::SECTOR_BYTES;
        let memory_bytes = host::sys::memory_bytes().unwrap_or(0);
        let scale = |cached| device_scale(self.size, capacity, memory_bytes, cached);
        let prepared = choice.program(&scale(false)).map_err(RunError::from).and_then(|program| {
            // As any program of this name on a block device.
            let cached = !(program.direct && device.is_direct());
            let program = if cached { choice.program(&scale(true))? } else { program };
            fits_memory(&program)?;
            let member = || FileMember::of_device(device, 0..device.sectors());
            let used = match cached {
                true => member().through_page_cache().map_err(IoError::file(path, "open it"))?,
                false => member(),
            };
            let drop = cached.then_some(drop_page_cache as fn() -> Result<(), IoError>);
            let needs = BufferRequirements::of(&program);
            // What the device holds is compared, not what the page cache does.
            let backend = alone(used, Some(member()), &needs, &program, self.seed, drop)?;
            Ok((program, backend, cached))
        });
        match prepared {
            Err(problem) => (None, Err(problem)),
            Ok((program, backend, cached)) => {
                let cache = cached.then(host::sys::memory_bytes).flatten();
                let backend = MeteredBackend::new(Box::new(backend), path, &[]);
                match self.begin(&program, &backend, || opened.wipe_signatures()) {
                    Err(problem) => {
                        let (path, problem) = (path.to_path_buf(), Box::new(problem));
                        (None, Err(RunError::OnDevice { path, problem }))
                    }
                    Ok(()) => self.run(program, &backend, base, cache),
                }
            }
        }
    }

    /// Erases what was found on the devices of a program by `erase`, unless nothing would be
    /// written to them.
    fn begin(
        &self,
        program: &Program,
        backend: &dyn IoBackend,
        erase: impl FnOnce() -> Result<(), ProvisionError>,
    ) -> Result<(), RunError> {
        if (self.stop)() || program.phases().all(|phase| backend.refuses(phase).is_some()) {
            return Ok(());
        }
        if self.timing.drop_caches {
            backend.drop_caches()?;
        }
        Ok(erase()?)
    }

    /// Sizing of a program in a directory.
    ///
    /// # Errors
    /// When the directory cannot be examined.
    pub fn directory_scale(&self, directory: &Path) -> Result<Sizing, IoError> {
        let space = rustix::fs::statvfs(directory);
        let space = space.map_err(|error| IoError::Path {
            path: directory.to_path_buf(),
            source: error.into(),
        })?;
        // A full file system is slow, and others may need some of it.
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        Ok(Sizing {
            memory_bytes: host::sys::memory_bytes().unwrap_or(0),
            size: self.size,
            usual: None,
            capacity: Some(free / 10 * 9),
            page_cache: true,
            stripe_bytes: None,
        })
    }

    fn prepare_directory(
        &self,
        choice: &ProgramSpec,
        directory: &Path,
        first: Option<&Program>,
    ) -> Result<(Program, Box<dyn IoBackend>), RunError> {
        let scale = self.directory_scale(directory)?;
        // Free space changes between runs; all runs use files of the same size.
        let program = first.map_or_else(|| choice.program(&scale), |first| Ok(first.clone()))?;
        fits_memory(&program)?;
        if program.calls != Calls::Queued {
            let backend = Files::new(directory, &program, self.seed)?;
            return Ok((program, Box::new(backend)));
        }
        let needs = BufferRequirements::of(&program);
        let bytes = program.files.iter().map(|bytes| extent_bytes(1, *bytes)).sum();
        let member = own_file(directory, bytes, program.direct)?;
        let drop = Some(drop_page_cache as fn() -> Result<(), IoError>);
        let backend = alone(member, None, &needs, &program, self.seed, drop)?;
        Ok((program, Box::new(backend)))
    }

    /// Runs a program on an array of a plan.
    pub(super) fn on_array(
        &mut self,
        choice: &ProgramSpec,
        scale: Sizing,
        array: &ArrayConfig,
        run: &RunConfig,
    ) -> RunResult {
        self.repeated(&mut |session, _| session.once_on_array(choice, scale, array, run))
    }

    fn once_on_array(
        &mut self,
        choice: &ProgramSpec,
        scale: Sizing,
        array: &ArrayConfig,
        run: &RunConfig,
    ) -> Once {
        let mut base = Cell::default();
        // Released after the array.
        let mut claimed = ClaimedDevices::default();
        let prepared = choice.program(&scale).map_err(RunError::from).and_then(|program| {
            fits_memory(&program)?;
            let needs = BufferRequirements::of(&program);
            let (running, cell);
            (running, cell, claimed) = array_for_program(array, run, needs.requests())?;
            base = cell;
            let backend = Extents::new(running, needs.lease_bytes, &program, self.seed, None)?;
            Ok((program, backend))
        });
        match prepared {
            Err(problem) => (None, Err(problem)),
            Ok((program, backend)) => {
                let (ran, ended) = match self.begin(&program, &backend, || claimed.begin()) {
                    Err(problem) => (None, Err(problem)),
                    Ok(()) => self.run(program, &backend, base, None),
                };
                drop(backend);
                (ran, ended.and(claimed.release().map_err(RunError::from)))
            }
        }
    }

    fn run(
        &mut self,
        mut program: Program,
        backend: &dyn IoBackend,
        base: Cell,
        page_cache_bytes: Option<u64>,
    ) -> Once {
        // Each run uses other addresses.
        program.draw_anew(self.seed);
        let base = base.with(|it| it.case.random_seed = Some(self.seed));
        let (mut outcomes, ended) = run(&program, backend, self.timing, self.stop, self.tell);
        if self.timing.counts_runs() {
            outcomes.iter_mut().for_each(PhaseOutcome::fold);
        }
        let caches_dropped = self.timing.drop_caches;
        let least_s = self.timing.least.as_secs_f64();
        let watched = backend.watched();
        let base = with_disks_below(with_array_below(base, &watched), &watched);
        let runs_max = self.timing.runs_max();
        let base = base.with(|it| it.case.samples_are_runs = self.timing.counts_runs());
        let around = RunContext { base, page_cache_bytes, caches_dropped, least_s, runs_max };
        (Some(ProgramRun { program, outcomes, around }), ended)
    }
}

impl ProgramRun {
    /// Adds another run of the same program, also an incomplete one.
    fn add(&mut self, run: ProgramRun) {
        let pairs = self.outcomes.iter_mut().zip(run.outcomes);
        pairs.for_each(|(outcome, other)| outcome.add_run(other));
    }
}

/// Sets a place up, and returns the fields that its cells share. `limited`: an array of the
/// kernel's has members of the planned size, and not whole devices, where its level permits it.
pub(crate) fn set_up(
    expr: &TargetExpr,
    array: Option<(&ArrayConfig, &RunConfig)>,
    limited: bool,
    destroy: bool,
    stop: &dyn Fn() -> bool,
) -> Result<(ProvisionedTarget, Cell), RunError> {
    let described = array.map(|(array, run)| arrays::described(array, run)).transpose()?;
    let mut base = described.unwrap_or_default();
    let engine = array.filter(|_| expr.uses_engine());
    let kernel = array.filter(|_| !expr.uses_engine());
    let kernel = kernel.map(|(array, _)| kernel_array(array, limited)).transpose()?;
    if let Some(array) = &kernel {
        base.case = CellCase {
            level: BenchLevel::Md(array.level).into(),
            layout: base.case.layout,
            array: base.case.array,
            disks: array.leaves() as u32,
            members: "device".into(),
            chunk_kib: array.level.has_chunks().then_some(array.chunk_bytes / 1024),
            degraded: array.degraded,
            ..CellCase::default()
        };
    }
    let served =
        engine.map(|(config, run)| EngineArray { config: config.clone(), run: run.clone() });
    let place =
        ProvisionedTarget::set_up(Request { place: expr, engine: served, kernel, destroy, stop })?;
    if let (Some(served), Some((array, _))) = (place.arrays().first(), engine) {
        served.degrade(array.degraded)?;
    }
    base.case.target = expr.kind().into();
    base.case.place = Some(place.facts().clone());
    base.derived.warnings = place.warnings().to_vec();
    Ok((place, base))
}

/// Adds the kernel's array to a cell without an array of its own, where the device or the directory
/// is on one: the traffic of members is meaningful only with the level.
pub(crate) fn with_array_below(base: Cell, watched: &Watched) -> Cell {
    let unknown = base.case.level.is_empty() || base.is_single();
    let found = watched.array.as_ref().filter(|_| unknown);
    let Some(array) = found.and_then(|name| described(&watched.roots, name)) else { return base };
    let Some(level) = array.level.and_then(|name| name.parse::<Level>().ok()) else { return base };
    let layout = array.layout.and_then(|number| Layout::from_number(level, number).ok());
    base.with(|it| {
        it.case.level = BenchLevel::Md(level).into();
        it.case.layout = layout.and_then(words::layout);
        it.case.disks = array.slots.unwrap_or(watched.disks.len() as u32);
        it.case.members = "device".into();
        it.case.chunk_kib = array.chunk_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes / 1024);
        it.case.degraded = array.degraded.unwrap_or(0);
    })
}

/// Adds the known disks of a place, and the metadata version and bitmap of an array of md.
pub(crate) fn with_disks_below(mut base: Cell, watched: &Watched) -> Cell {
    if let Some(place) = &mut base.case.place {
        place.drives = drives(&watched.roots, &watched.disks);
        let array = watched.array.as_ref().map(|array| metadata(&watched.roots, array));
        (place.metadata, place.bitmap) = array.unwrap_or_default();
    }
    base
}

/// An array of a plan as an array of md. Options that do not apply to md, or have another syntax
/// there, are refused: a record must not contain settings that were not in effect.
pub(crate) fn kernel_array(config: &ArrayConfig, limited: bool) -> Result<KernelArray, RunError> {
    if let Some(why) = refused_by_md(config) {
        return Err(RunError::NotForMd(why));
    }
    let member_bytes = limited.then_some(config.member_bytes);
    let array = of_expr(&config.expr, config.chunk_bytes, member_bytes);
    Ok(KernelArray { degraded: config.degraded, ..array })
}

fn of_expr(expr: &ArrayExpr, chunk_bytes: u64, member_bytes: Option<u64>) -> KernelArray {
    let own_chunk = expr.chunk.map(|sectors| sectors * md::SECTOR_BYTES);
    let (inner, disks) = match &expr.members {
        Members::Leaves(disks) => (Vec::new(), *disks),
        Members::Arrays(arrays) => {
            let inner = arrays.iter().map(|inner| of_expr(inner, chunk_bytes, member_bytes));
            (inner.collect(), arrays.len())
        }
    };
    KernelArray {
        level: expr.level,
        layout: expr.layout,
        chunk_bytes: own_chunk.unwrap_or(chunk_bytes),
        disks,
        // Of disks: an array of arrays has what they have.
        member_bytes: member_bytes.filter(|_| inner.is_empty()),
        inner,
        degraded: 0,
    }
}

/// Sizing on a device.
fn device_scale(size: Option<u64>, capacity: u64, memory_bytes: u64, page_cache: bool) -> Sizing {
    Sizing {
        memory_bytes,
        size,
        // A whole disk takes hours to fill. Programs with sizes of their own keep those.
        usual: Some(capacity.min(memory_bytes.saturating_mul(2))),
        capacity: Some(capacity),
        page_cache,
        stripe_bytes: None,
    }
}

impl BufferRequirements {
    fn requests(&self) -> Requests {
        let (block_bytes, in_flight) = (self.lease_bytes, self.in_flight);
        Requests { block_bytes, unit_bytes: 4096, in_flight, spare: 0 }
    }

    /// The requirements of a program.
    pub fn of(program: &Program) -> BufferRequirements {
        let blocks = program.phases().flat_map(|phase| phase.acts()).filter_map(|act| match act {
            spec::program::types::Act::Transfer(transfer) => Some(transfer.longest()),
            _ => None,
        });
        let in_flight = program.phases().map(|phase| {
            phase.workers.iter().map(|worker| worker.depth.max(1) as usize).sum::<usize>()
        });
        BufferRequirements {
            lease_bytes: blocks.max().unwrap_or(4096).clamp(64 << 10, 16 << 20),
            // And some for the comparison.
            in_flight: in_flight.max().unwrap_or(1) + 8,
        }
    }

    /// The options of a driver that serves it.
    pub fn options(&self) -> DriverOptions {
        DriverOptions {
            // One more than slots: a flush, or a synchronous read.
            max_requests: self.in_flight.max(64) + 1,
            leases: self.in_flight,
            lease_bytes: self.lease_bytes.next_multiple_of(4096) as usize,
            // A slow member is a result, no fault.
            member_timeout: None,
            ..DriverOptions::default()
        }
    }
}

/// Refuses a program whose map of block versions would not fit into memory.
fn fits_memory(program: &Program) -> Result<(), RunError> {
    let too_large = |problem| Err(RunError::TooLarge { program: program.asked.clone(), problem });
    // A shuffle numbers its blocks with 32 bits.
    let shuffled = program.phases().flat_map(Phase::transfers);
    let shuffled = shuffled.filter(|transfer| transfer.order == Order::Shuffled);
    let blocks = shuffled.map(Transfer::blocks).max().unwrap_or(0);
    if blocks > u64::from(u32::MAX) {
        return too_large(TooLarge::Shuffle { blocks });
    }
    let needed = ShadowMap::needs_bytes(&program.files, program.unit_bytes()?);
    match host::sys::available_memory_bytes() {
        Some(available) if needed > available => too_large(TooLarge::Memory { needed, available }),
        _ => Ok(()),
    }
}

/// A member on an unlinked file in `directory`: for asynchronous I/O on a file.
fn own_file(directory: &Path, bytes: u64, direct: bool) -> Result<FileMember, IoError> {
    let path = directory.join(own_name());
    let sectors = bytes.div_ceil(md::SECTOR_BYTES);
    let member = FileMember::open(&path, FileOptions { sectors, direct });
    // It exists as long as it is open.
    let removed = std::fs::remove_file(&path);
    let member = member?;
    removed.map_err(IoError::file(&path, "remove it"))?;
    if direct && !member.is_direct() {
        return Err(IoError::NotDirect(directory.to_path_buf()));
    }
    Ok(member)
}

/// A single device or file: each worker accesses it through its own driver. `compared`: what is
/// read for the comparison, of the same bytes, if not through the member.
pub(super) fn alone(
    member: FileMember,
    compared: Option<FileMember>,
    needs: &BufferRequirements,
    program: &Program,
    seed: u64,
    drop_caches: Option<fn() -> Result<(), IoError>>,
) -> Result<Extents, IoError> {
    let share = |member: &FileMember| member.share().expect("files can be shared");
    let few = |in_flight| BufferRequirements { in_flight, ..*needs };
    // For the comparison; the workers have their own drivers.
    let compared = match compared {
        Some(compared) => Box::new(compared) as Box<dyn Member>,
        None => share(&member),
    };
    let array = single(MemberSpec::Ready(compared), &few(2))?;
    let (member, needs) = (Mutex::new(member), *needs);
    let make = move |in_flight| {
        let member = member.lock().unwrap_or_else(PoisonError::into_inner);
        // Each job of a tool opens its file itself. Without /proc they share one open file.
        let (member, cached): (Box<dyn Member>, _) = match member.reopened() {
            Ok(own) => {
                let cached = own.cached();
                (Box::new(own), cached)
            }
            Err(_) => (share(&member), member.cached()),
        };
        let spec = linear(MemberSpec::Ready(member));
        // The tools do not use them.
        let options = DriverOptions {
            huge_pages: false,
            ..BufferRequirements { in_flight, ..needs }.options()
        };
        let driver = Driver::new(spec, &options)?;
        Ok(OwnDriver { driver, cached })
    };
    let backend = Extents::new(array, needs.lease_bytes, program, seed, drop_caches)?;
    Ok(backend.with_own_drivers(Box::new(make)))
}

/// An array of one member: a device or a file, accessed through io_uring.
///
/// # Errors
/// When the system lacks what it needs.
pub fn single(member: MemberSpec, needs: &BufferRequirements) -> Result<Array, BuildError> {
    Array::start(linear(member), &needs.options())
}

fn linear(member: MemberSpec) -> ArraySpec {
    ArraySpec {
        level: Level::Linear,
        layout: Layout::default_for(Level::Linear),
        chunk_sectors: 0,
        members: vec![member],
        data_plane: DataPlaneConfig::default(),
    }
}

#[cfg(test)]
mod tests {
    use spec::buses::Buses;
    use spec::matrix::{Options, plan};

    use super::*;

    fn config(options: Options) -> ArrayConfig {
        plan(&options).expect("a plan").arrays.remove(0).array
    }

    fn raid5() -> Options {
        mem().with(|it| {
            it.arrays.level = vec!["raid5".parse().expect("a level")];
            it.arrays.disks = vec![3];
        })
    }

    fn mem() -> Options {
        Options::default().with(|it| it.engine.members = vec!["mem".parse().expect("a set")])
    }

    fn array(text: &str) -> Options {
        mem().with(|it| it.arrays.array = vec![text.parse().expect("an array")])
    }

    #[test]
    fn md_makes_the_array_that_was_asked_for() {
        let made = kernel_array(&config(array("raid5,16K(3)")), false).expect("an array");
        assert_eq!((made.level, made.chunk_bytes, made.disks), (Level::Raid5, 16 << 10, 3));
        let chunks = vec![128 << 10];
        let made = kernel_array(&config(raid5().with(|it| it.arrays.chunk = chunks)), true)
            .expect("an array");
        assert_eq!((made.chunk_bytes, made.member_bytes), (128 << 10, Some(128 << 20)));
    }

    fn with_runs(
        timing: Timing,
        stop: &dyn Fn() -> bool,
    ) -> (Vec<Cell>, Result<(), RunError>, u32) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut fills = 0;
        let mut tell = |event: Progress<'_>| {
            fills += u32::from(matches!(event, Progress::Checking { .. }));
        };
        let size = Some(1 << 20);
        let mut session = Session { timing, size, seed: 1, destroy: false, stop, tell: &mut tell };
        let choice = "dd:bs=64K".parse().expect("a program");
        let place = record::Place::default();
        let (cells, ended) = session.on_directory(&choice, directory.path(), place);
        assert_eq!(session.seed, 1);
        assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0);
        (cells, ended, fills)
    }

    #[test]
    fn each_run_of_a_program_is_a_sample_of_each_of_its_phases() {
        let least = std::time::Duration::from_millis(5);
        let timing = Timing { least, runs: 3, ..Timing::default() };
        let (cells, ended, fills) = with_runs(timing, &|| false);
        assert_eq!((ended.is_ok(), cells.len()), (true, 2));
        assert!(fills >= 3, "each run reads back what it wrote");
        for cell in &cells {
            assert_eq!((cell.measured.samples.len(), cell.measured.verified), (3, Some(true)));
            assert!(
                cell.derived.interval.is_none() && cell.derived.spread.is_some(),
                "three are few"
            );
            assert!(cell.case.samples_are_runs && cell.case.random_seed.is_some());
            assert!(cell.derived.cpu_s_per_gib.is_some_and(|cpu| cpu.is_finite()));
        }
        let few = Timing { until_steady: Some(7), runs: 1, ..timing };
        let (cells, ended, _) = with_runs(few, &|| false);
        ended.expect("it runs");
        assert!(
            (5..=7).contains(&cells[0].measured.samples.len()),
            "{}",
            cells[0].measured.samples.len()
        );
        assert_eq!(cells[0].case.rounds_max, Some(7));
    }

    #[test]
    fn on_a_device_programs_keep_sizes_of_their_own() {
        let scale = device_scale(None, 64 << 30, 4 << 30, false);
        let made =
            |text: &str| text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text);
        assert_eq!(made("streams").files, vec![40 << 20; 200]);
        assert_eq!(made("seeks").files, [8 << 30], "twice the memory");
        let job = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(job.path(), "[j]\nrw=write\n").expect("written");
        let job: ProgramSpec = format!("fio:{}", job.path().display()).parse().expect("a program");
        assert_eq!(job.program(&scale).expect("a program").files, [8 << 30], "the target's");
    }

    #[test]
    fn more_blocks_than_a_shuffle_can_number_are_refused() {
        let fits = |rw: &str, size: &str| {
            let job = tempfile::NamedTempFile::new().expect("a file");
            let text = format!("[j]\nrw={rw}\nbs=512\nsize={size}\n");
            std::fs::write(job.path(), text).expect("written");
            let choice: ProgramSpec =
                format!("fio:{}", job.path().display()).parse().expect("a job");
            let scale = device_scale(None, 64 << 40, 4 << 30, false);
            fits_memory(&choice.program(&scale).expect("a program"))
        };
        let refused = fits("randread", "3T").expect_err("2^32 blocks and more").to_string();
        assert!(refused.contains("more than 2^32; use larger blocks"), "{refused}");
        assert!(fits("read", "3T").err().is_none_or(|error| !error.to_string().contains("2^32")));
        fits("randread", "1G").expect("it fits");
    }

    #[test]
    fn options_that_md_lacks_are_refused() {
        let paced = || vec!["paced:hdd-2007".parse().expect("a set")];
        for (options, named) in [
            (mem().with(|it| it.arrays.level = vec![BenchLevel::Single]), "device:/dev/X"),
            (raid5().with(|it| it.engine.stripe_cache = vec![8 << 20]), "stripe-cache=PAGES"),
            (raid5().with(|it| it.engine.queue_depth = vec![2]), "queue-depth=N"),
            (
                raid5().with(|it| {
                    it.engine.members = paced();
                    it.engine.bus = vec![Buses::shared(1 << 26)];
                }),
                "--bus",
            ),
        ] {
            let refused = kernel_array(&config(options), false).expect_err(named).to_string();
            assert!(refused.starts_with("md: ") && refused.contains(named), "{refused}");
        }
    }
}
