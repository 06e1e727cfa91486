//! `raidlab bench` with programs, or on targets other than the engine: the targets and how they are
//! set up.
//!
//! Invariant: no existing data is overwritten: a device that holds data or is in use is refused,
//! and in a directory only new files are created. Called from `bench`.

use std::path::Path;
use std::str::FromStr;

use bench::program::files::left_behind;
use bench::program::run::Progress;
use bench::program::session::{RunResult, Session};
use bench::provision::{MountOrDevice, facts_of, open_to_write_over};
use metrics::host;
use results::record::{Cell, Place};
use spec::matrix::Plan;
use spec::program::spec::Sizing;
use spec::program::timing::Timing;
use spec::program::{Program, ProgramSpec};
use spec::settings::Settings;
use spec::target::TargetExpr;
use spec::units::show_size;
use spec::workload::Kind;

use crate::console::say;

/// One value of `--workload`: a block workload or a program.
#[derive(Clone, Debug)]
pub enum WorkloadName {
    /// A block workload, directly on the array.
    Blocks(Kind),
    /// A program, as in `bonnie++`.
    Program(ProgramSpec),
}

impl FromStr for WorkloadName {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkloadName, String> {
        if ProgramSpec::is_meant(text) {
            let program = text.parse::<ProgramSpec>().map_err(|error| error.to_string())?;
            return Ok(WorkloadName::Program(program));
        }
        let also = "; and programs: raidlab programs lists them";
        let kind = text.parse::<Kind>().map_err(|error| format!("{error}{also}"))?;
        Ok(WorkloadName::Blocks(kind))
    }
}

/// Runs programs on one target.
pub struct ProgramRunner<'a> {
    /// The target.
    pub target: &'a TargetExpr,
    /// Suffix that distinguishes it from other targets of the same name.
    pub mark: &'a str,
    /// Programs, in order.
    pub programs: &'a [ProgramSpec],
    /// Total size of their files, bytes; empty: chosen by memory and target.
    pub sizes: &'a [u64],
    /// Timing of their phases.
    pub timing: Timing,
    /// Overwrite existing data on a device.
    pub destroy: bool,
    /// Seed of the written data.
    pub seed: u64,
    /// Polled regularly; `true` stops the run.
    pub stop: &'a dyn Fn() -> bool,
    /// Shows one line of progress.
    pub show: &'a dyn Fn(&str),
}

/// Arrays of the engine that programs run on.
pub struct Engine<'a> {
    /// The arrays; their cells are ignored.
    pub plan: &'a Plan,
    /// Settings to create them with.
    pub settings: &'a Settings<'a>,
}

impl ProgramRunner<'_> {
    /// Runs all programs on the target and passes their cells to `add`.
    ///
    /// # Errors
    /// The first problem; cells measured before it were passed to `add`.
    pub fn run(
        &self,
        engine: Option<&Engine<'_>>,
        add: &mut dyn FnMut(Vec<Cell>),
    ) -> Result<(), String> {
        let usual = [None];
        let sizes: Vec<Option<u64>> = self.sizes.iter().copied().map(Some).collect();
        let sizes = if sizes.is_empty() || engine.is_some() { &usual[..] } else { &sizes };
        for size in sizes {
            for choice in self.programs {
                if (self.stop)() {
                    return Ok(());
                }
                let mut tell = |program: &Program, progress: Progress<'_>| {
                    (self.show)(&line(program, &progress));
                };
                let mut session = Session {
                    timing: self.timing,
                    size: *size,
                    seed: self.seed,
                    destroy: self.destroy,
                    stop: self.stop,
                    tell: &mut tell,
                };
                self.one(choice, &mut session, engine, add)?;
            }
        }
        Ok(())
    }

    fn one(
        &self,
        choice: &ProgramSpec,
        session: &mut Session<'_>,
        engine: Option<&Engine<'_>>,
        add: &mut dyn FnMut(Vec<Cell>),
    ) -> Result<(), String> {
        let mut keep = |(mut cells, ended): RunResult| {
            let places = cells.iter_mut().filter_map(|cell| cell.place.as_mut());
            places.for_each(|place| place.name.push_str(self.mark));
            add(cells);
            ended
        };
        match (self.target, engine) {
            (TargetExpr::Engine, Some(engine)) => engine.plan.arrays.iter().try_for_each(|case| {
                if (self.stop)() {
                    return Ok(());
                }
                let (capacity, stripe) = bench::blocks::extent_of(case)?;
                let scale = Sizing {
                    memory_bytes: host::memory_bytes().unwrap_or(0),
                    size: case.area_bytes,
                    usual: None,
                    capacity: Some(capacity),
                    page_cache: false,
                    stripe_bytes: Some(stripe).filter(|stripe| *stripe > 0),
                };
                let name = spec::matrix::case_name(case);
                let brought = session.on_case(choice, scale, case, engine.settings);
                keep(brought).map_err(|problem| format!("{name}: {problem}"))
            }),
            (TargetExpr::Path(path), _) => {
                report_left_behind(path);
                report_size(choice, session, path);
                keep(session.on_directory(
                    choice,
                    path,
                    place_of(&MountOrDevice::Directory(path.clone())),
                ))
            }
            (TargetExpr::Device(path), _) => {
                let device = open_to_write_over(path, self.destroy)?;
                let base = Cell {
                    target: "device".into(),
                    level: "single".into(),
                    disks: 1,
                    members: "device".into(),
                    place: Some(place_of(&MountOrDevice::Device(path.clone()))),
                    ..Cell::default()
                };
                keep(session.on_device(choice, &device, path, base))
            }
            (place, Some(engine)) => engine.plan.arrays.iter().try_for_each(|case| {
                if (self.stop)() {
                    return Ok(());
                }
                let brought = session.on_place(choice, place, Some((case, engine.settings)));
                let name = spec::matrix::case_name(case);
                keep(brought).map_err(|problem| format!("{name}, {}: {problem}", place.name()))
            }),
            (place, None) => keep(session.on_place(choice, place, None)),
        }
    }
}

/// Reports files that a killed run left in a directory. They are not removed: the process ID in
/// their name may have been reused.
fn report_left_behind(directory: &Path) {
    for path in left_behind(directory) {
        say(format_args!(
            "raidlab: {}: left over from a killed run; remove it if it is not in use",
            path.display()
        ));
    }
}

/// Without --size, prints how much will be written: twice the memory may fill the disk.
fn report_size(choice: &ProgramSpec, session: &Session<'_>, directory: &Path) {
    let scale = session.directory_scale(directory).ok().filter(|scale| scale.size.is_none());
    let Some(Ok(program)) = scale.map(|scale| choice.program(&scale)) else { return };
    let bytes = show_size(program.files.iter().sum());
    say(format_args!(
        "{}: {} creates files of {bytes}, twice the memory or what fits; --size sets the size",
        directory.display(),
        program.name,
    ));
}

/// The progress line of a phase.
fn line(program: &Program, progress: &Progress<'_>) -> String {
    match progress {
        Progress::Running { phase, bytes } => {
            format!("{}: {phase}, {} MB", program.name, bytes / 1_000_000)
        }
        Progress::Checking { file } => format!("{}: comparing file {file}", program.name),
    }
}

/// The place of a run for the record, without names that identify the user.
fn place_of(ground: &MountOrDevice) -> Place {
    let mut place = facts_of(String::new(), ground);
    place.name = match ground {
        MountOrDevice::Directory(_) => {
            format!("path:{}", place.file_system.as_deref().unwrap_or("unknown"))
        }
        MountOrDevice::Device(path) => {
            format!("device:{}", path.file_name().unwrap_or_default().to_string_lossy())
        }
    };
    place
}
