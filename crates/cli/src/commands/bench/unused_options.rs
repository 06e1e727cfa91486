//! Detects options without effect, so that they are not silently ignored.
//!
//! Invariant: a reported option has no effect on any target, workload or matrix. An option that
//! applies to at least one of them is accepted. `bench` refuses unused options; `sweep` refuses
//! those of the command line and notes those of its file, which the command line may have
//! overridden.

use std::fmt;

use anyhow::{Result, anyhow};
use spec::matrix::{ArrayOptions, BackgroundOptions, BlockOptions, EngineOptions, MixedOptions};
use spec::target::TargetExpr;

use super::options::{HostOptions, Matrix, MatrixOptions, ProgramOptions, names_of};

/// Whether anything in a matrix uses a group of options.
type Uses = fn(&MatrixOptions) -> bool;

/// An option that has no effect.
#[derive(Debug)]
pub struct UnusedOption {
    /// Long name, without `--`.
    pub option: String,
    /// Why it has no effect: the missing target or workload that it applies to.
    pub why: String,
}

impl fmt::Display for UnusedOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}: {}", self.option, self.why)
    }
}

/// Returns the options without effect, of one command or of all matrices of a sweep.
pub fn unused_options(matrices: &[Matrix], host: &HostOptions) -> Vec<UnusedOption> {
    let unasked = "no --target has an array of the engine";
    let blocks = "applies to block workloads only (seq-read, seq-write, rand-read, rand-write, \
                  seq-mixed, rand-mixed); raidlab programs lists the options of programs";
    let programs = "applies to programs only, as in --workload bonnie++; block workloads have no \
                    phases and bypass the page cache";
    let arrays = "no --target creates an array: path: and device: are measured as they are";
    let engine = format!("{unasked}, and the option applies to nothing else");
    let with_programs: Uses = |options| !options.choices().is_empty();
    let mixed = "applies to seq-mixed and rand-mixed only, and no --workload is one of them";
    let beside = "beside block workloads on arrays of the engine only";
    let groups: [(Vec<String>, Uses, &str); 6] = [
        (names_of::<BlockOptions>(), MatrixOptions::moves_blocks, blocks),
        (names_of::<MixedOptions>(), MatrixOptions::mixes, mixed),
        (names_of::<BackgroundOptions>(), MatrixOptions::moves_blocks, beside),
        (names_of::<ProgramOptions>(), with_programs, programs),
        (names_of::<ArrayOptions>(), asks_for_array, arrays),
        (names_of::<EngineOptions>(), takes_members, &engine),
    ];
    let mut found = Vec::new();
    for (options, uses, why) in groups {
        let unused = options.into_iter().filter(|option| is_unused(matrices, option, uses));
        found.extend(unused.map(|option| UnusedOption { option, why: why.into() }));
    }
    let any = |uses: Uses| matrices.iter().any(|matrix| uses(&matrix.options));
    let no_parity = format!("{unasked}, so no parity is computed here");
    let no_files = format!("{unasked}, so there are no member files");
    let no_device = "no --target uses a device:, and no array of the engine has devices as \
                     --members; md: takes only devices that hold nothing";
    let no_clock = "nothing here runs in model time: block workloads of the engine on modelled \
                    disks do, and kernels of linux";
    let one_cpu = "a kernel in model time has one CPU, and no --target is another";
    let of_host = [
        ("parity-impl", host.parity_impl.is_some() && !any(asks_engine), no_parity),
        ("real-time", host.real_time && !any(uses_model_time), no_clock.into()),
        ("cores", host.cores.is_some() && only_linux(matrices), one_cpu.into()),
        ("dir", host.dir.is_some() && !any(makes_members), no_files),
        ("destroy-contents", host.destroy_contents && !any(takes_device), no_device.into()),
    ];
    let of_host = of_host.into_iter().filter(|(_, unused, _)| *unused);
    found.extend(of_host.map(|(option, _, why)| UnusedOption { option: option.into(), why }));
    found
}

/// Refuses a command with an unused option.
///
/// # Errors
/// The first option without effect.
pub fn refuse_unused(matrix: &Matrix, host: &HostOptions) -> Result<()> {
    match unused_options(std::slice::from_ref(matrix), host).first() {
        Some(option) => Err(anyhow!("{option}")),
        None => Ok(()),
    }
}

/// Whether the option is given in a matrix, and in none where it is used.
fn is_unused(matrices: &[Matrix], option: &str, uses: Uses) -> bool {
    let mut given = matrices.iter().filter(|matrix| matrix.has(option)).peekable();
    given.peek().is_some() && !given.any(|matrix| uses(&matrix.options))
}

fn asks_engine(options: &MatrixOptions) -> bool {
    options.target.iter().any(TargetExpr::uses_engine)
}

/// Whether all targets are kernels in model time.
fn only_linux(matrices: &[Matrix]) -> bool {
    let mut targets = matrices.iter().flat_map(|matrix| &matrix.options.target);
    targets.all(|target| target.model_time().is_some())
}

/// Whether anything runs in model time: block workloads on modelled disks of the engine, or a
/// kernel.
fn uses_model_time(options: &MatrixOptions) -> bool {
    let engine = asks_engine(options) && options.moves_blocks() && options.has_modelled();
    engine || options.target.iter().any(|target| target.model_time().is_some())
}

fn makes_members(options: &MatrixOptions) -> bool {
    options.target.iter().any(TargetExpr::makes_members)
}

fn asks_for_array(options: &MatrixOptions) -> bool {
    options.target.iter().any(TargetExpr::uses_array)
}

/// An md array that names no devices is made of the members.
fn takes_members(options: &MatrixOptions) -> bool {
    let of_members = |target: &TargetExpr| target.kernel().is_some_and(|md| md.devices.is_empty());
    asks_engine(options) || options.target.iter().any(of_members)
}

/// Devices of md arrays are never overwritten.
fn takes_device(options: &MatrixOptions) -> bool {
    let own = asks_engine(options) && options.has_devices();
    own || options.target.iter().any(TargetExpr::takes_device)
}
