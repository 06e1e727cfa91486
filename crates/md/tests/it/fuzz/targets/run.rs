//! One execution after the other, each a function of (target, seed, number).
//!
//! Invariant: the input of an execution depends on nothing else, so that any of them can be run
//! again alone.

use testkit::fuzz::execute;

use super::mutate::mutate;
use super::{Target, Verdict, corpus};

/// What was run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub executions: u64,
    pub decoded: u64,
}

/// Runs executions from number `first` on until `enough` says so (it is asked now and then).
/// Panics with the command that runs a failing one again.
pub fn run(
    target: &Target,
    seed: u64,
    first: u64,
    mut enough: impl FnMut(&Tally) -> bool,
) -> Tally {
    let seeds: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, bytes)| bytes).collect();
    let mut tally = Tally::default();
    while !enough(&tally) {
        let number = first + tally.executions;
        let outcome = execute("md", target.name, seed, number, |rng| {
            (target.check)(&mutate(target, &seeds, rng))
        });
        tally.decoded += u64::from(outcome == Verdict::Decoded);
        tally.executions += 1;
    }
    tally
}
