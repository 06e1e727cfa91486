//! One execution after the other, each a function of (target, seed, number).
//!
//! Invariant: the input of an execution depends on nothing else, so that any of them can be run
//! again alone.

use testkit::fuzz::execute;

use super::mutate::mutate;
use super::{Outcome, Target};

/// What was run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub executions: u64,
    pub completed: u64,
    pub violations: u64,
}

/// Runs executions from number `first` on until `enough` says so (it is asked now and then).
/// Panics with the command that runs a failing one again.
pub fn run(
    target: &Target,
    seed: u64,
    first: u64,
    mut enough: impl FnMut(&Tally) -> bool,
) -> Tally {
    let seeds = (target.seeds)();
    let mut tally = Tally::default();
    while !enough(&tally) {
        let number = first + tally.executions;
        let outcome = execute("nbd", target.name, seed, number, |rng| {
            let input = mutate(&seeds, rng);
            (target.check)(&input, rng.draw())
        });
        match outcome {
            Outcome::Completed => tally.completed += 1,
            Outcome::Violation => tally.violations += 1,
            Outcome::Unfinished => {}
        }
        tally.executions += 1;
    }
    tally
}
