//! Planted bugs are found: a check that cannot fail checks nothing. `cargo xtask sim --mutants`
//! also plants those that need a patch of the source.

use raidlab_sim::finding::try_run;
use raidlab_sim::mutant::Mutant;
use raidlab_sim::random;
use raidlab_sim::tally::Tally;

/// Scenarios within which each of them must be found. Most are found within twenty.
const SCENARIOS: u64 = 1000;

#[test]
fn every_planted_bug_is_found() {
    let shapes = random::shapes();
    for mutant in Mutant::ALL {
        let found = (0..SCENARIOS).find(|seed| {
            let scenario = random::scenario(&shapes, *seed);
            let result = try_run(&scenario, Some(mutant), &mut Tally::default());
            result.is_err_and(|finding| mutant.explains(&finding.message))
        });
        let seed = found.unwrap_or_else(|| panic!("{mutant}: not found in {SCENARIOS} scenarios"));
        println!("{mutant}: found by seed {seed}");
    }
}
