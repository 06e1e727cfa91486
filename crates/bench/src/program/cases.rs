//! Runs a case whose workload is a program, on its target.
//!
//! Invariant: no existing data is overwritten unless that is permitted: a device that holds data or
//! is in use is refused, and in a directory only new files are created. Called from the command
//! line and from sweeps.

use std::path::Path;

use results::record::{Cell, Place};
use spec::case::{Case, Workload};
use spec::program::{ProgramSpec, Sizing};
use spec::target::TargetExpr;
use spec::units::show_size;

use super::files::left_behind;
use super::session::{RunResult, Session};
use crate::arrays::extent_of;
use crate::error::RunError;
use crate::linux;
use crate::progress::Progress;
use crate::provision::{MountOrDevice, facts_of, fitted, open_to_write_over};

/// Permission and callbacks of the caller.
pub struct Host<'a> {
    /// Overwrite existing data on a device.
    pub destroy: bool,
    /// Polled regularly; `true` stops the run.
    pub stop: &'a dyn Fn() -> bool,
    /// Receives progress events.
    pub progress: &'a dyn Fn(Progress<'_>),
    /// Receives remarks for the user, one line each.
    pub remark: &'a dyn Fn(&str),
}

/// Runs a program. `label` distinguishes its target from others of the same name, in the cells.
pub fn run(case: &Case, label: &str, host: &Host<'_>) -> RunResult {
    let Workload::Program(program) = &case.workload else {
        return (Vec::new(), Err(RunError::NotAProgram));
    };
    let mut tell = |event: Progress<'_>| (host.progress)(event);
    let mut session = Session {
        timing: case.run.phases,
        size: case.size,
        seed: case.run.seed,
        destroy: host.destroy,
        stop: host.stop,
        tell: &mut tell,
    };
    let (mut cells, ended) = on_target(case, program, &mut session, host);
    let places = cells.iter_mut().filter_map(|cell| cell.case.place.as_mut());
    places.for_each(|place| place.name.push_str(label));
    (cells, ended)
}

fn on_target(
    case: &Case,
    program: &ProgramSpec,
    session: &mut Session<'_>,
    host: &Host<'_>,
) -> RunResult {
    let array = match case.array.as_ref().map(fitted).transpose() {
        Ok(array) => array,
        Err(problem) => return (Vec::new(), Err(problem.into())),
    };
    let array = array.as_ref().map(|array| (array, &case.run));
    match (&case.target, array) {
        (place, Some((array, run))) if place.model_time().is_some() => {
            let kernel = linux::Run { place, label: "", run, stop: host.stop };
            let what = format!("{}: {program}", array.name());
            let mut look = |now: std::time::Duration| {
                let (what, seconds) = (&*what, now.as_secs_f64());
                (host.progress)(Progress::InKernel { what, seconds, model_time: !run.real_time });
            };
            match kernel.program(array, program, &mut look) {
                Ok(cells) => (cells, Ok(())),
                Err(problem) => (Vec::new(), Err(problem.into())),
            }
        }
        (TargetExpr::Engine, Some((array, run))) => match extent_of(array) {
            Err(problem) => (Vec::new(), Err(problem.into())),
            Ok((capacity, stripe)) => {
                let scale = Sizing {
                    memory_bytes: host::sys::memory_bytes().unwrap_or(0),
                    size: array.area_bytes,
                    usual: None,
                    capacity: Some(capacity),
                    page_cache: false,
                    stripe_bytes: Some(stripe).filter(|stripe| *stripe > 0),
                };
                session.on_array(program, scale, array, run)
            }
        },
        (TargetExpr::Path(path), _) => {
            report_left_behind(path, host.remark);
            report_size(program, session, path, host.remark);
            let place = place_of(&MountOrDevice::Directory(path.clone()));
            session.on_directory(program, path, place)
        }
        (TargetExpr::Device(path), _) => match open_to_write_over(path, host.destroy) {
            Err(problem) => (Vec::new(), Err(problem.into())),
            Ok(device) => {
                let base = Cell::default().with(|it| {
                    it.case.target = "device".into();
                    it.case.level = "single".into();
                    it.case.disks = 1;
                    it.case.members = "device".into();
                    it.case.place = Some(place_of(&MountOrDevice::Device(path.clone())));
                });
                session.on_device(program, &device, path, base)
            }
        },
        (target, array) => session.on_place(program, target, array),
    }
}

/// Reports files that a killed run left in a directory. They are not removed: the process ID in
/// their name may have been reused.
fn report_left_behind(directory: &Path, remark: &dyn Fn(&str)) {
    for path in left_behind(directory) {
        let path = path.display();
        remark(&format!(
            "raidlab: {path}: left over from a killed run; remove it if it is not in use"
        ));
    }
}

/// Without --size, reports how much will be written: twice the memory may fill the disk.
fn report_size(
    choice: &ProgramSpec,
    session: &Session<'_>,
    directory: &Path,
    remark: &dyn Fn(&str),
) {
    let scale = session.directory_scale(directory).ok().filter(|scale| scale.size.is_none());
    let Some(Ok(program)) = scale.map(|scale| choice.program(&scale)) else { return };
    let bytes = show_size(program.files.iter().sum());
    remark(&format!(
        "{}: {} creates files of {bytes}, twice the memory or what fits; --size sets the size",
        directory.display(),
        program.name,
    ));
}

/// The place of a run for the record, without names that identify the user.
pub(crate) fn place_of(storage: &MountOrDevice) -> Place {
    let mut place = facts_of(String::new(), storage);
    place.name = match storage {
        MountOrDevice::Directory(_) => {
            format!("path:{}", place.file_system.as_deref().unwrap_or("unknown"))
        }
        MountOrDevice::Device(path) => {
            format!("device:{}", path.file_name().unwrap_or_default().to_string_lossy())
        }
    };
    place
}
