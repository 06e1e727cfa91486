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

/// Looks at one command, or at all matrices of a sweep; `kernels_chosen` says whether there is a
/// `--kernel`, which no matrix can say.
///
/// # Errors
/// Names the first option that is in vain.
pub fn all_heard(tables: &[BenchArguments], kernels_chosen: bool) -> Result<(), String> {
    for (option, given) in OF_BLOCKS {
        if in_vain(tables, given, BenchArguments::moves_blocks) {
            return Err(format!(
                "--{option}: is for blocks (seq-read, seq-write, rand-read, rand-write); programs \
                 have options of their own: raidlab bench --programs lists them"
            ));
        }
    }
    let unasked = "no --target has an array of the engine";
    if in_vain(tables, |told| !told.members.is_empty(), asks_engine) {
        return Err(format!("--members: {unasked}, which alone has such members"));
    }
    if kernels_chosen && !tables.iter().any(asks_engine) {
        return Err(format!("--kernel: {unasked}, which alone computes parity with it"));
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

impl BenchArguments {
    /// Whether blocks are moved straight on arrays of the engine.
    pub fn moves_blocks(&self) -> bool {
        let engine = self.target.contains(&PlaceExpr::Engine);
        engine && (self.choices().is_empty() || !self.kinds().is_empty())
    }
}
