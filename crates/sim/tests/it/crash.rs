//! Power cuts at any moment: ranges that the metadata do not mark are in sync, and durable data are
//! kept. See `sim::life` for what a run is, and `sim::wreck` for what is checked.
//!
//! Every case is a function of its seed. `RAIDLAB_TEST=all` runs many more, `RAIDLAB_SEED=n` one.

use sim::life;
use sim::random::{self, Shape};
use testkit::for_seeds;

fn run_family(name: &str, shapes: &[Shape], count: u64) {
    for_seeds!(name, count, |seed| life::run(&random::scenario(shapes, seed)));
}

#[test]
fn power_cuts_leave_mirrors_in_sync_or_marked() {
    let name = "power_cuts_leave_mirrors_in_sync_or_marked";
    run_family(name, &random::mirrored_shapes(), 200);
}

#[test]
fn power_cuts_leave_parity_true_or_marked() {
    run_family("power_cuts_leave_parity_true_or_marked", &random::parity_shapes(), 200);
}
