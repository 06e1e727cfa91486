//! Power cuts at any moment: ranges that the metadata do not mark are in sync, and durable data are
//! kept. See `sim::life` for what a run is, and `sim::wreck` for what is checked.
//!
//! Every case is a function of its seed. `RAIDLAB_TEST=all` runs many more, `RAIDLAB_SEED=n` one.

use sim::life;
use sim::random::{self, Shape};
use testkit::for_seeds;

/// A member that is lost while the others become clean may hold the event count that these took
/// back.
#[test]
fn a_loss_after_an_event_count_was_taken_back_leaves_no_two_histories_with_one_count() {
    for scenario in [
        "raid1 x2 chunk=0 used=128 v=1.2 begins=in-sync shards=3 depth=1 seed=170407577592982 : \
         w68+1 step5 writetimeout1 flush step1 step17 cut1",
        "raid6 ddf-N-restart x4 chunk=8 used=256 v=1.2 roles=384 begins=in-sync shards=1 depth=1 \
         seed=235701522228810 troubled : w340+1 w97+0 metafull2 step49 destroy2@238849 \
         destroy3@455080 step3 step2 step2 cut1",
    ] {
        life::run(&scenario.parse().expect("a scenario"));
    }
}

/// P and Q of a row that was being written may recover different data.
#[test]
fn a_second_loss_before_the_resync_after_a_start_by_force_recovers_nothing_from_rows_in_doubt() {
    for scenario in [
        "raid6 ddf-zero-restart x4 chunk=8 used=128 v=1.2 begins=out-of-sync shards=1 depth=1 \
         seed=251302682034951 : writetimeout1 step9 cut1 flusherror2 readall",
        // An unreadable block is a loss, too, and must not be written back.
        "raid6 ddf-N-continue x6 chunk=16 used=128 v=1.2 begins=in-sync shards=1 depth=1 \
         seed=18379462122141 troubled : writeerror2 full0@0+128/0 w228+53 readall cut1 bad3@70+14 \
         step59",
    ] {
        life::run(&scenario.parse().expect("a scenario"));
    }
}

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
