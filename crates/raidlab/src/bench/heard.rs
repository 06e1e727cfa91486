//! Options that nothing listens to: whoever gives one believes that it was heard.
//!
//! Invariant: what is refused here would have had no effect at all. An option that one of several
//! targets, workloads or matrices hears is fine beside the others. Called from `bench` and `sweep`.

use lab::place::PlaceExpr;

use super::BenchArguments;

/// Of whom something is asked.
type Asked = fn(&BenchArguments) -> bool;

/// Options, and whether they are given.
const OF_BLOCKS: [(&str, Asked); 8] = [
    ("block", |told| !told.block.is_empty()),
    ("depth", |told| !told.depth.is_empty()),
    ("jobs", |told| !told.jobs.is_empty()),
    ("read-ahead", |told| !told.read_ahead.is_empty()),
    ("seconds", |told| told.seconds.is_some()),
    ("runs", |told| told.runs.is_some()),
    ("until-steady", |told| told.until_steady.is_some()),
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

/// Looks at one command, or at all matrices of a sweep; `command` has what no matrix can say.
///
/// # Errors
/// Names the first option that is in vain.
pub fn all_heard(tables: &[BenchArguments], command: &BenchArguments) -> Result<(), String> {
    for (option, given) in OF_BLOCKS {
        if in_vain(tables, given, BenchArguments::moves_blocks) {
            return Err(format!(
                "--{option}: is for blocks (seq-read, seq-write, rand-read, rand-write); programs \
                 have options of their own: raidlab bench --programs lists them"
            ));
        }
    }
    for (option, given) in OF_PROGRAMS {
        if in_vain(tables, given, |told| !told.choices().is_empty()) {
            return Err(format!(
                "--{option}: is for programs, as in --workload bonnie++; blocks have no phases, \
                 and pass the kernel's caches by"
            ));
        }
    }
    for (option, given) in OF_ARRAYS {
        if in_vain(tables, given, asks_for_array) {
            return Err(format!(
                "--{option}: no --target has an array made for it: path: and device: are measured \
                 as they are"
            ));
        }
    }
    let unasked = "no --target has an array of the engine";
    for (option, given) in OF_ENGINE {
        if in_vain(tables, given, asks_engine) {
            return Err(format!("--{option}: {unasked}, which alone has that"));
        }
    }
    if command.kernels_chosen() && !tables.iter().any(asks_engine) {
        return Err(format!("--kernel: {unasked}, which alone computes parity with it"));
    }
    if command.dir.is_some() && !tables.iter().any(asks_engine) {
        return Err(format!("--dir: {unasked}, whose members' files would go there"));
    }
    if command.destroy_contents && !tables.iter().any(takes_device) {
        return Err("--destroy-contents: no --target is, or lies on, a device:".into());
    }
    Ok(())
}

fn in_vain(tables: &[BenchArguments], given: Asked, heard: Asked) -> bool {
    let mut given = tables.iter().filter(|told| given(told)).peekable();
    given.peek().is_some() && !given.any(heard)
}

fn asks_engine(told: &BenchArguments) -> bool {
    told.target.iter().any(PlaceExpr::uses_engine)
}

fn asks_for_array(told: &BenchArguments) -> bool {
    told.target.iter().any(PlaceExpr::uses_array)
}

fn takes_device(told: &BenchArguments) -> bool {
    told.target.iter().any(PlaceExpr::takes_device)
}

impl BenchArguments {
    /// Whether blocks are moved straight on arrays of the engine.
    pub fn moves_blocks(&self) -> bool {
        let engine = self.target.contains(&PlaceExpr::Engine);
        engine && (self.choices().is_empty() || !self.kinds().is_empty())
    }
}
