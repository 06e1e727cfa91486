//! Programs on targets: puts program, ground and cells together.
//!
//! Invariant: whatever happens, what was measured is given back, and what was made is taken away.
//! Called from the command line, and by whoever owns a place (a directory, an array).

use std::path::Path;

use array::store::{Access, Device, DeviceOptions, Disk, Location};
use array::{Array, ArraySpec, DriverOptions, FileMember, FileOptions, MemberSpec};
use md::{Layout, Level};

use super::cells::{Circumstances, cells};
use super::choice::{Choice, Scale};
use super::content::Ledger;
use super::extents::Extents;
use super::files::{Files, drop_page_cache};
use super::ground::Ground;
use super::placed::Placed;
use super::run::{Meanwhile, Timing, run};
use super::types::{Calls, Program};
use crate::bench::{self, Settings, array_for_program};
use crate::host;
use crate::matrix::ArrayCase;
use crate::place::{Ground as PlaceGround, KernelArray, Place, PlaceExpr, Request};
use crate::quantity::show_size;
use crate::record::{self, Cell};
use crate::watch::{Watched, described};

/// How programs are run.
pub struct Session<'a> {
    /// Clock, repetitions, caches.
    pub timing: Timing,
    /// Size of all files together; `None`: by memory and target.
    pub size: Option<u64>,
    /// Makes the run's data its own.
    pub seed: u64,
    /// Asked now and then.
    pub stop: &'a dyn Fn() -> bool,
    /// Hears what is going on.
    pub tell: &'a mut dyn FnMut(&Program, Meanwhile<'_>),
}

/// An array for a program, made when it is known what it must serve.
pub struct Needs {
    /// Bytes of the longest request.
    pub lease_bytes: u64,
    /// Requests under way at once.
    pub in_flight: usize,
}

/// What a run brought: cells of what was measured, and how it ended.
pub type Brought = (Vec<Cell>, Result<(), String>);

impl Session<'_> {
    /// Runs a program on files in a directory.
    pub fn on_directory(
        &mut self,
        choice: &Choice,
        directory: &Path,
        place: record::Place,
    ) -> Brought {
        match self.prepare_directory(choice, directory) {
            Err(problem) => (Vec::new(), Err(problem)),
            Ok((program, ground)) => {
                let base = Cell { target: "path".into(), place: Some(place), ..Cell::default() };
                let ground = Placed::new(ground, directory, &[]);
                self.run(&program, &ground, base, host::memory_bytes())
            }
        }
    }

    /// Sets a place up, runs a program there and takes the place away again. `case` is the array
    /// below it, of the engine or of the kernel's, where the place needs one.
    pub fn on_place(
        &mut self,
        choice: &Choice,
        expr: &PlaceExpr,
        case: Option<(&ArrayCase, &Settings<'_>)>,
    ) -> Brought {
        // Of an array of a plan so much is used; the rest is the file system's.
        self.size = case.and_then(|(case, _)| case.area_bytes).or(self.size);
        match set_up(expr, case, self.stop) {
            Err(problem) => (Vec::new(), Err(problem)),
            Ok((place, base)) => {
                let (cells, ended) = self.in_place(choice, &place, base);
                let taken_down = place.take_down();
                let ended = match (ended, taken_down) {
                    (Err(first), Err(then)) => Err(format!("{first}; {then}")),
                    (ended, taken_down) => ended.and(taken_down),
                };
                (cells, ended)
            }
        }
    }

    fn in_place(&mut self, choice: &Choice, place: &Place, base: Cell) -> Brought {
        match place.ground() {
            PlaceGround::Directory(path) => match self.prepare_directory(choice, path) {
                Err(problem) => (Vec::new(), Err(problem)),
                Ok((program, ground)) => {
                    let ground = Placed::new(ground, path, place.arrays());
                    self.run(&program, &ground, base, host::memory_bytes())
                }
            },
            PlaceGround::Device(path) => {
                let options = DeviceOptions { access: Access::ReadWrite, direct: true };
                match Device::open(&Location::whole(path), options) {
                    Err(error) => (Vec::new(), Err(error.to_string())),
                    Ok(device) => self.on_device(choice, &device, path, base),
                }
            }
        }
    }

    /// Runs a program on a block device that may be written over.
    pub fn on_device(
        &mut self,
        choice: &Choice,
        device: &Device,
        path: &Path,
        base: Cell,
    ) -> Brought {
        let memory_bytes = host::memory_bytes().unwrap_or(0);
        let capacity = device.sectors() * md::SECTOR_BYTES;
        let usual = capacity.min(memory_bytes.saturating_mul(2));
        let scale = Scale {
            memory_bytes,
            size: self.size.or(Some(usual)),
            capacity: Some(capacity),
            page_cache: !device.is_direct(),
            stripe_bytes: None,
        };
        let make = |needs: &Needs| -> Result<Array, String> {
            let member = FileMember::of_device(device, 0..device.sectors());
            single(MemberSpec::ready(member), needs)
        };
        self.on_array(choice, scale, base, path, make)
    }

    fn prepare_directory(
        &self,
        choice: &Choice,
        directory: &Path,
    ) -> Result<(Program, Box<dyn Ground>), String> {
        let space = rustix::fs::statvfs(directory);
        let space = space.map_err(|error| format!("{}: {error}", directory.display()))?;
        // A full file system is slow, and others may need some of it.
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let scale = Scale {
            memory_bytes: host::memory_bytes().unwrap_or(0),
            size: self.size,
            capacity: Some(free / 10 * 9),
            page_cache: true,
            stripe_bytes: None,
        };
        let program = choice.program(&scale)?;
        fits_memory(&program)?;
        if program.calls != Calls::Queued {
            let ground = Files::new(directory, &program, self.seed)?;
            return Ok((program, Box::new(ground)));
        }
        let needs = Needs::of(&program);
        let bytes = program.files.iter().map(|bytes| Extents::bytes_of(1, *bytes)).sum();
        let array = file_array(directory, bytes, program.direct, &needs)?;
        let drop = Some(drop_page_cache as fn() -> Result<(), String>);
        let ground = Extents::new(array, needs.lease_bytes, &program, self.seed, drop)?;
        Ok((program, Box::new(ground)))
    }

    fn on_array(
        &mut self,
        choice: &Choice,
        scale: Scale,
        base: Cell,
        path: &Path,
        make: impl FnOnce(&Needs) -> Result<Array, String>,
    ) -> Brought {
        let prepared = choice.program(&scale).and_then(|program| {
            fits_memory(&program)?;
            let needs = Needs::of(&program);
            let array = make(&needs)?;
            let drop = scale.page_cache.then_some(drop_page_cache as fn() -> Result<(), String>);
            let ground = Extents::new(array, needs.lease_bytes, &program, self.seed, drop)?;
            Ok((program, ground))
        });
        match prepared {
            Err(problem) => (Vec::new(), Err(problem)),
            Ok((program, ground)) => {
                let cache = scale.page_cache.then(host::memory_bytes).flatten();
                let ground = Placed::new(Box::new(ground), path, &[]);
                self.run(&program, &ground, base, cache)
            }
        }
    }

    /// Runs a program on an array of a plan.
    pub fn on_case(
        &mut self,
        choice: &Choice,
        scale: Scale,
        case: &ArrayCase,
        settings: &Settings<'_>,
    ) -> Brought {
        let mut base = Cell::default();
        let prepared = choice.program(&scale).and_then(|program| {
            fits_memory(&program)?;
            let needs = Needs::of(&program);
            let (array, cell) = array_for_program(case, settings, &needs)?;
            base = cell;
            let ground = Extents::new(array, needs.lease_bytes, &program, self.seed, None)?;
            Ok((program, ground))
        });
        match prepared {
            Err(problem) => (Vec::new(), Err(problem)),
            Ok((program, ground)) => self.run(&program, &ground, base, None),
        }
    }

    fn run(
        &mut self,
        program: &Program,
        ground: &dyn Ground,
        base: Cell,
        page_cache_bytes: Option<u64>,
    ) -> Brought {
        let tell = &mut *self.tell;
        let mut hear = |meanwhile: Meanwhile<'_>| tell(program, meanwhile);
        let (outcomes, ended) = run(program, ground, self.timing, self.stop, &mut hear);
        let caches_dropped = self.timing.drop_caches;
        let least_s = self.timing.least.as_secs_f64();
        let base = with_array_below(base, &ground.watched());
        let around = Circumstances { base, page_cache_bytes, caches_dropped, least_s };
        (cells(program, &outcomes, &around), ended)
    }
}

/// Sets a place up, and says what its cells have in common.
fn set_up(
    expr: &PlaceExpr,
    case: Option<(&ArrayCase, &Settings<'_>)>,
    stop: &dyn Fn() -> bool,
) -> Result<(Place, Cell), String> {
    let described = case.map(|(case, settings)| bench::described(case, settings)).transpose()?;
    let mut base = described.unwrap_or_default();
    let engine = case.filter(|_| expr.uses_engine());
    let kernel = case.filter(|_| !expr.uses_engine()).map(|(case, _)| kernel_array(case));
    if let Some(array) = &kernel {
        base = Cell {
            level: array.level.to_string(),
            layout: base.layout,
            disks: array.disks as u32,
            members: "device".into(),
            chunk_kib: base.chunk_kib,
            ..Cell::default()
        };
    }
    let spec = engine.map(|(case, settings)| bench::engine_spec(case, settings));
    let place = Place::set_up(Request { place: expr, engine: spec, kernel, stop })?;
    if let (Some(array), Some((case, _))) = (place.arrays().first(), engine) {
        array.degrade(case.degraded)?;
    }
    let name = place.facts().name.clone();
    base.target = name.split([':', ',']).next().unwrap_or_default().to_string();
    base.place = Some(place.facts().clone());
    base.warnings = place.warnings().to_vec();
    Ok((place, base))
}

/// A cell that knows of no array of its own is told of the kernel's, where the device or the
/// directory lies on one: what the members do means something only beside its level.
fn with_array_below(base: Cell, watched: &Watched) -> Cell {
    let found = watched.array.as_ref().filter(|_| matches!(base.level.as_str(), "" | "single"));
    let Some(array) = found.and_then(|name| described(&watched.roots, name)) else { return base };
    let Some(level) = array.level.and_then(|name| name.parse::<Level>().ok()) else { return base };
    let layout = array.layout.and_then(|number| Layout::from_number(level, number).ok());
    let layout = layout.filter(|layout| *layout != Layout::None);
    Cell {
        level: level.to_string(),
        layout: layout.map(|layout| layout.to_string()),
        disks: array.slots.unwrap_or(watched.disks.len() as u32),
        members: "device".into(),
        chunk_kib: array.chunk_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes / 1024),
        degraded: array.degraded.unwrap_or(0),
        ..base
    }
}

fn kernel_array(case: &ArrayCase) -> KernelArray {
    KernelArray {
        level: case.expr.level,
        layout: case.expr.layout,
        chunk_bytes: case.chunk_bytes,
        disks: case.expr.leaves(),
    }
}

impl Needs {
    /// What a program needs.
    pub fn of(program: &Program) -> Needs {
        let blocks = program.phases().flat_map(|phase| phase.acts()).filter_map(|act| match act {
            super::types::Act::Transfer(transfer) => Some(transfer.block),
            _ => None,
        });
        let in_flight = program.phases().map(|phase| {
            phase.workers.iter().map(|worker| worker.depth.max(1) as usize).sum::<usize>()
        });
        Needs {
            lease_bytes: blocks.max().unwrap_or(4096).clamp(64 << 10, 16 << 20),
            // And some to compare with.
            in_flight: in_flight.max().unwrap_or(1) + 8,
        }
    }

    /// The options of a driver that serves it.
    pub fn options(&self) -> DriverOptions {
        DriverOptions {
            max_requests: self.in_flight.max(64),
            leases: self.in_flight,
            lease_bytes: self.lease_bytes.next_multiple_of(4096) as usize,
            ..DriverOptions::default()
        }
    }
}

/// Refuses a program whose versions would not fit into memory.
fn fits_memory(program: &Program) -> Result<(), String> {
    let needed = Ledger::needs_bytes(&program.files, program.unit_bytes()?);
    match host::available_memory_bytes() {
        Some(available) if needed > available => Err(format!(
            "{}: needs {} of memory to know what each block must hold, and {} are available; use a \
             smaller --size",
            program.asked,
            show_size(needed),
            show_size(available)
        )),
        _ => Ok(()),
    }
}

/// An array of one member over a file without a name in `directory`: asynchronous calls on a file.
fn file_array(directory: &Path, bytes: u64, direct: bool, needs: &Needs) -> Result<Array, String> {
    let path = directory.join(format!("raidlab-program-{}", std::process::id()));
    let sectors = bytes.div_ceil(md::SECTOR_BYTES);
    let member = FileMember::open(&path, FileOptions { sectors, direct });
    // It lives as long as it is open.
    let removed = std::fs::remove_file(&path);
    let member = member.map_err(|error| error.to_string())?;
    removed.map_err(|error| format!("{}: cannot remove it: {error}", path.display()))?;
    if direct && !member.is_direct() {
        return Err(format!("{}: no direct I/O here; use direct=0", directory.display()));
    }
    single(MemberSpec::ready(member), needs)
}

/// An array of one member: a device or a file, asked through io_uring.
///
/// # Errors
/// When the system lacks what it needs.
pub fn single(member: MemberSpec, needs: &Needs) -> Result<Array, String> {
    let spec = ArraySpec {
        level: Level::Linear,
        layout: Layout::default_for(Level::Linear),
        chunk_sectors: 0,
        members: vec![member],
        stripe_cache_bytes: 0,
        queue_depth: usize::MAX,
    };
    Array::start(spec, &needs.options()).map_err(|error| error.to_string())
}
