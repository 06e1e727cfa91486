//! Detects options without effect, so that they are not silently ignored.
//!
//! Invariant: a reported option has no effect on any target, workload or matrix. An option that
//! applies to at least one of them is accepted. `bench` refuses unused options; `sweep` refuses
//! those of the command line and notes those of its file, which the command line may have
//! overridden.

use std::fmt;

use lab::provision::TargetExpr;

use super::BenchArguments;

/// A predicate of the options of one matrix.
type Asked = fn(&BenchArguments) -> bool;

/// Options, and whether they are given.
type Options = [(&'static str, Asked)];

/// Options of block workloads.
const OF_BLOCKS: [(&str, Asked); 6] = [
    ("block", |args| !args.block.is_empty()),
    ("depth", |args| !args.depth.is_empty()),
    ("jobs", |args| !args.jobs.is_empty()),
    ("read-ahead", |args| !args.read_ahead.is_empty()),
    ("seconds", |args| args.seconds.is_some()),
    ("warm-up", |args| args.warm_up.is_some()),
];

/// Options of arrays, of the engine and of Linux md.
const OF_ARRAYS: [(&str, Asked); 6] = [
    ("level", |args| !args.level.is_empty()),
    ("layout", |args| !args.layout.is_empty()),
    ("disks", |args| !args.disks.is_empty()),
    ("chunk", |args| !args.chunk.is_empty()),
    ("array", |args| !args.array.is_empty()),
    ("degraded", |args| !args.degraded.is_empty()),
];

/// Options of arrays of the engine.
const OF_ENGINE: [(&str, Asked); 6] = [
    ("members", |args| !args.members.is_empty()),
    ("stripe-cache", |args| !args.stripe_cache.is_empty()),
    ("bus", |args| !args.bus.is_empty()),
    ("channel", |args| !args.channel.is_empty()),
    ("spindle", |args| !args.spindle.is_empty()),
    ("queue-depth", |args| !args.queue_depth.is_empty()),
];

/// Options of programs.
const OF_PROGRAMS: [(&str, Asked); 2] =
    [("interval", |args| args.interval.is_some()), ("drop-caches", |args| args.drop_caches)];

/// An option that has no effect.
#[derive(Debug)]
pub struct UnusedOption {
    /// Long name, without `--`.
    pub option: &'static str,
    /// Why it has no effect: the missing target or workload that it applies to.
    pub why: String,
}

impl fmt::Display for UnusedOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}: {}", self.option, self.why)
    }
}

/// Returns the options without effect, of one command or of all matrices of a sweep. `command` has
/// the options that a matrix cannot set.
pub fn unused_options(tables: &[BenchArguments], command: &BenchArguments) -> Vec<UnusedOption> {
    let unasked = "no --target has an array of the engine";
    let blocks = "applies to block workloads only (seq-read, seq-write, rand-read, rand-write); \
                  raidlab bench --programs lists the options of programs";
    let programs = "applies to programs only, as in --workload bonnie++; block workloads have no \
                    phases and bypass the page cache";
    let arrays = "no --target creates an array: path: and device: are measured as they are";
    let engine = format!("{unasked}, and the option applies to nothing else");
    let with_programs: Asked = |args| !args.choices().is_empty();
    let of_tables: [(&Options, Asked, &str); 4] = [
        (&OF_BLOCKS, BenchArguments::moves_blocks, blocks),
        (&OF_PROGRAMS, with_programs, programs),
        (&OF_ARRAYS, asks_for_array, arrays),
        (&OF_ENGINE, asks_engine, &engine),
    ];
    let mut found = Vec::new();
    for (options, used, why) in of_tables {
        let options = options.iter().filter(|(_, given)| is_unused(tables, *given, used));
        found.extend(options.map(|(option, _)| UnusedOption { option, why: why.into() }));
    }
    let no_engine = !tables.iter().any(asks_engine);
    let no_device = !tables.iter().any(takes_device);
    let of_command = [
        ("kernel", command.kernels_chosen() && no_engine, "so no parity is computed here"),
        ("dir", command.dir.is_some() && no_engine, "so there are no member files"),
    ];
    let of_command = of_command.into_iter().filter(|(_, unused, _)| *unused);
    found.extend(
        of_command
            .map(|(option, _, why)| UnusedOption { option, why: format!("{unasked}, {why}") }),
    );
    if command.destroy_contents && no_device {
        let why = "no --target uses a device:".into();
        found.push(UnusedOption { option: "destroy-contents", why });
    }
    found
}

/// Refuses a command with an unused option.
///
/// # Errors
/// The first option without effect.
pub fn refuse_unused(command: &BenchArguments) -> Result<(), String> {
    match unused_options(std::slice::from_ref(command), command).first() {
        Some(option) => Err(option.to_string()),
        None => Ok(()),
    }
}

/// Whether the option is given in a matrix, and in none where it is used.
fn is_unused(tables: &[BenchArguments], given: Asked, used: Asked) -> bool {
    let mut given = tables.iter().filter(|args| given(args)).peekable();
    given.peek().is_some() && !given.any(used)
}

fn asks_engine(args: &BenchArguments) -> bool {
    args.target.iter().any(TargetExpr::uses_engine)
}

fn asks_for_array(args: &BenchArguments) -> bool {
    args.target.iter().any(TargetExpr::uses_array)
}

fn takes_device(args: &BenchArguments) -> bool {
    args.target.iter().any(TargetExpr::takes_device)
}

impl BenchArguments {
    /// Whether block workloads run directly on arrays of the engine.
    pub fn moves_blocks(&self) -> bool {
        let engine = self.target.contains(&TargetExpr::Engine);
        engine && (self.choices().is_empty() || !self.kinds().is_empty())
    }
}
