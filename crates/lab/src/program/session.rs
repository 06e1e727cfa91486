//! Programs on targets: puts program, ground and cells together.
//!
//! Invariant: whatever happens, what was measured is given back, and what was made is taken away.
//! Called from the command line, and by whoever owns a place (a directory, an array).

use std::path::Path;

use array::{Array, ArraySpec, DriverOptions, FileMember, FileOptions, MemberSpec};
use md::{Layout, Level};

use super::cells::{Circumstances, cells};
use super::choice::{Choice, Scale};
use super::content::Ledger;
use super::extents::Extents;
use super::files::{Files, drop_page_cache};
use super::ground::Ground;
use super::run::{Meanwhile, Timing, run};
use super::types::{Calls, Program};
use crate::bench::{Settings, array_for_program};
use crate::host;
use crate::matrix::ArrayCase;
use crate::quantity::show_size;
use crate::record::{Cell, Place};

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
    pub fn on_directory(&mut self, choice: &Choice, directory: &Path, place: Place) -> Brought {
        match self.prepare_directory(choice, directory) {
            Err(problem) => (Vec::new(), Err(problem)),
            Ok((program, ground)) => {
                let base = Cell { target: "path".into(), place: Some(place), ..Cell::default() };
                self.run(&program, ground.as_ref(), base, host::memory_bytes())
            }
        }
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

    /// Runs a program on an array, or a device, that `make` makes. `page_cache`: one lies between.
    pub fn on_array(
        &mut self,
        choice: &Choice,
        scale: Scale,
        base: Cell,
        make: impl FnOnce(&Needs) -> Result<Array, String>,
    ) -> Brought {
        let scale = Scale { size: scale.size.or(self.size), ..scale };
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
        let around = Circumstances { base, page_cache_bytes, caches_dropped, least_s };
        (cells(program, &outcomes, &around), ended)
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
