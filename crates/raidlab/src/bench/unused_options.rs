//! Options that nothing listens to: whoever gives one believes that it was heard.
//!
//! Invariant: what is named here would have had no effect at all. An option that one of several
//! targets, workloads or matrices hears is fine beside the others. `bench` refuses them; `sweep`
//! those of the command line, which may have made moot what its file says.

use std::fmt;

use lab::provision::TargetExpr;

use super::BenchArguments;

/// Of whom something is asked.
type Asked = fn(&BenchArguments) -> bool;

/// Options, and whether they are given.
type Options = [(&'static str, Asked)];

const OF_BLOCKS: [(&str, Asked); 6] = [
    ("block", |told| !told.block.is_empty()),
    ("depth", |told| !told.depth.is_empty()),
    ("jobs", |told| !told.jobs.is_empty()),
    ("read-ahead", |told| !told.read_ahead.is_empty()),
    ("seconds", |told| told.seconds.is_some()),
    ("warm-up", |told| told.warm_up.is_some()),
];

/// Options of arrays, whoever makes them.
const OF_ARRAYS: [(&str, Asked); 6] = [
    ("level", |told| !told.level.is_empty()),
    ("layout", |told| !told.layout.is_empty()),
    ("disks", |told| !told.disks.is_empty()),
    ("chunk", |told| !told.chunk.is_empty()),
    ("array", |told| !told.array.is_empty()),
    ("degraded", |told| !told.degraded.is_empty()),
];

/// Options of arrays of the engine.
const OF_ENGINE: [(&str, Asked); 6] = [
    ("members", |told| !told.members.is_empty()),
    ("stripe-cache", |told| !told.stripe_cache.is_empty()),
    ("bus", |told| !told.bus.is_empty()),
    ("channel", |told| !told.channel.is_empty()),
    ("spindle", |told| !told.spindle.is_empty()),
    ("queue-depth", |told| !told.queue_depth.is_empty()),
];

/// Options of programs.
const OF_PROGRAMS: [(&str, Asked); 2] =
    [("interval", |told| told.interval.is_some()), ("drop-caches", |told| told.drop_caches)];

/// An option that nothing listens to.
#[derive(Debug)]
pub struct UnusedOption {
    /// Its name.
    pub option: &'static str,
    /// Who would listen, and is not there.
    pub why: String,
}

impl fmt::Display for UnusedOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}: {}", self.option, self.why)
    }
}

/// Looks at one command, or at all matrices of a sweep; `command` has what no matrix can say. Names
/// the options that are in vain.
pub fn unused_options(tables: &[BenchArguments], command: &BenchArguments) -> Vec<UnusedOption> {
    let unasked = "no --target has an array of the engine";
    let blocks = "is for blocks (seq-read, seq-write, rand-read, rand-write); programs have \
                  options of their own: raidlab bench --programs lists them";
    let programs = "is for programs, as in --workload bonnie++; blocks have no phases, and pass \
                    the kernel's caches by";
    let arrays = "no --target has an array made for it: path: and device: are measured as they are";
    let engine = format!("{unasked}, which alone has that");
    let with_programs: Asked = |told| !told.choices().is_empty();
    let of_tables: [(&Options, Asked, &str); 4] = [
        (&OF_BLOCKS, BenchArguments::moves_blocks, blocks),
        (&OF_PROGRAMS, with_programs, programs),
        (&OF_ARRAYS, asks_for_array, arrays),
        (&OF_ENGINE, asks_engine, &engine),
    ];
    let mut found = Vec::new();
    for (options, heard, why) in of_tables {
        let options = options.iter().filter(|(_, given)| unheard(tables, *given, heard));
        found.extend(options.map(|(option, _)| UnusedOption { option, why: why.into() }));
    }
    let no_engine = !tables.iter().any(asks_engine);
    let no_device = !tables.iter().any(takes_device);
    let of_command = [
        ("kernel", command.kernels_chosen() && no_engine, "which alone computes parity with it"),
        ("dir", command.dir.is_some() && no_engine, "whose members' files would go there"),
    ];
    let of_command = of_command.into_iter().filter(|(_, in_vain, _)| *in_vain);
    found.extend(
        of_command
            .map(|(option, _, why)| UnusedOption { option, why: format!("{unasked}, {why}") }),
    );
    if command.destroy_contents && no_device {
        let why = "no --target is, or lies on, a device:".into();
        found.push(UnusedOption { option: "destroy-contents", why });
    }
    found
}

/// Looks at a command.
///
/// # Errors
/// Names the first option that is in vain.
pub fn refuse_unused(command: &BenchArguments) -> Result<(), String> {
    match unused_options(std::slice::from_ref(command), command).first() {
        Some(option) => Err(option.to_string()),
        None => Ok(()),
    }
}

fn unheard(tables: &[BenchArguments], given: Asked, heard: Asked) -> bool {
    let mut given = tables.iter().filter(|told| given(told)).peekable();
    given.peek().is_some() && !given.any(heard)
}

fn asks_engine(told: &BenchArguments) -> bool {
    told.target.iter().any(TargetExpr::uses_engine)
}

fn asks_for_array(told: &BenchArguments) -> bool {
    told.target.iter().any(TargetExpr::uses_array)
}

fn takes_device(told: &BenchArguments) -> bool {
    told.target.iter().any(TargetExpr::takes_device)
}

impl BenchArguments {
    /// Whether blocks are moved straight on arrays of the engine.
    pub fn moves_blocks(&self) -> bool {
        let engine = self.target.contains(&TargetExpr::Engine);
        engine && (self.choices().is_empty() || !self.kinds().is_empty())
    }
}
