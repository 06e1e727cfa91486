//! Both sides against arbitrary bytes: valid sessions, and seeded mutations of them.
//!
//! `RAIDLAB_TEST=all` runs a hundred times more. For minutes or hours there is
//! `cargo run --release -p raidlab-nbd --example nbd_fuzz`.

mod targets;

use targets::{Outcome, TARGETS, Tally, run};

const EXECUTIONS: u64 = 10_000;

#[test]
fn valid_sessions_end_well() {
    for target in TARGETS {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            assert_eq!((target.check)(seed, 1), Outcome::Completed, "{} {number}", target.name);
        }
    }
}

#[test]
fn mutations_keep_the_invariants() {
    let executions = if testkit::runs_all() { 100 * EXECUTIONS } else { EXECUTIONS };
    testkit::print_sample("executions for each target", executions, 100 * EXECUTIONS);
    for target in TARGETS {
        let tally = run(target, 1, 0, |tally| tally.executions == executions);
        println!("{}: {tally:?}", target.name);
        // A mutator whose sessions all end early, or all end well, would not test much.
        let Tally { executions, completed, violations } = tally;
        assert!(completed > executions / 20, "{}: {tally:?}", target.name);
        assert!(violations > executions / 20, "{}: {tally:?}", target.name);
    }
}
