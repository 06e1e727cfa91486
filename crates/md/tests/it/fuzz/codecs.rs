//! Every target on its starting points and on mutations of them.

use super::targets::{TARGETS, Tally, Verdict, corpus, run};

const EXECUTIONS: u64 = 10_000;

#[test]
fn starting_points_decode() {
    for target in TARGETS {
        for (name, bytes) in corpus(target) {
            let verdict = (target.check)(&bytes);
            assert_eq!(verdict, Verdict::Decoded, "{}/{name}", target.name);
            let mut repaired = bytes.clone();
            (target.repair)(&mut repaired);
            assert!(repaired == bytes, "{}/{name}: the repair is wrong", target.name);
        }
    }
}

#[test]
fn mutations_keep_the_invariants() {
    let executions = if testkit::runs_all() { 100 * EXECUTIONS } else { EXECUTIONS };
    testkit::print_sample("executions for each target", executions, 100 * EXECUTIONS);
    for target in TARGETS {
        let tally = run(target, 1, 0, |tally| tally.executions == executions);
        println!("{}: {} executions, {} decoded", target.name, tally.executions, tally.decoded);
        // A mutator whose inputs are all refused, or all decoded, would not test much.
        let Tally { executions, decoded } = tally;
        assert!(decoded > executions / 5, "{}: {tally:?}", target.name);
        assert!(decoded < executions, "{}: {tally:?}", target.name);
    }
}
