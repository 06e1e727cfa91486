//! Power cuts at any moment: ranges that the metadata do not mark are in sync, and durable data are
//! kept. See `sim::life` for what a run is, and `sim::crash_images` for what is checked.
//!
//! Every case is a function of its seed. `RAIDLAB_TEST=all` runs many more, `RAIDLAB_SEED=n` one.

use raidlab_sim::life;
use raidlab_sim::random::{self, Shape};
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

/// What a member has in sync may have been read since the start.
#[test]
fn after_a_start_by_force_parity_does_not_replace_what_a_rebuilt_part_has() {
    for scenario in [
        // A write that the power cut ended is on member 2 and in Q, and not on member 1.
        "raid6 parity-first-6 x4 chunk=32 used=256 v=1.2 begins=in-sync shards=1 depth=4 \
         seed=57758392173763 : lose1@586 w358+1 step97 writetimeout0 w5+1 step29 cut2 add0 \
         w263+1 w101+1 w14+1 join1 w72+1 w3+50",
        // Put back by the bitmap, and in sync up to a recorded position; then a write below.
        "raid5 left-asymmetric x5 chunk=16 used=128 v=1.2 bitmap=16384 begins=in-sync \
         shards=1 depth=1 seed=127806759272869 troubled : w473+1 writetimeout4 add4 readall cut3 \
         w13+1 bad2@90+11 w162+9 w396+0",
    ] {
        life::run(&scenario.parse().expect("a scenario"));
    }
}

/// A rebuild had begun to write back a block that the member before it could not read.
/// Blocks that members lend are not copied into memory.
#[test]
fn what_is_copied_to_a_replacement_is_what_the_member_has() {
    let scenario = "\
        raid5 left-symmetric x5 chunk=8 used=128 v=1.2 begins=in-sync shards=1 depth=1 \
        seed=90567359867601 : replace3";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A degraded array that is started by force has nothing to resync, and writes were in flight.
#[test]
fn what_was_in_flight_is_copied_to_a_replacement_again_where_nothing_is_resynced() {
    let scenario = "\
        raid5 right-asymmetric x3 chunk=8 used=128 v=1.2 bitmap=16384 begins=in-sync shards=1 \
        depth=1 seed=143400268078498 : lose0@303480 w5+1 replace2 replace1 step24 cut3 w46+12 \
        w50+10";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The superblock of the first one called both former members faulty, while that of the second one
/// still had a position: with two members lost before, three were missing.
#[test]
fn replacements_that_are_complete_at_once_take_their_slots_one_by_one() {
    let scenario = "\
        raid6 right-asymmetric-6 x6 chunk=8 used=128 v=1.2 bitmap=4096 begins=in-sync shards=1 \
        depth=1 seed=71504918730283 : replace5 w254+6 w1+1 writetimeout3 step5 replace1 w367+0 \
        hangio0@413433 step5 w2+1 step5 stop2 w13+4 step5 w0+1 step9";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A replacement may have been filled from another copy than its member, before these were synced.
#[test]
fn a_resync_of_copies_writes_what_replaces_the_member_that_it_has_read() {
    let scenario = "\
        raid1 x3 chunk=0 used=128 v=1.2 bitmap=16384 begins=in-sync shards=1 depth=1 \
        seed=18100471328623 troubled : replace2 w7+4 idle2000000 destroy2@393611 add2 w0+1 \
        step25 cut1 step4 full2@0+256/2 w14+4 step1 replace0 step6 step24 cut1 \
        destroy0@145542 destroy1@138447 step108";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The member failed between the read and the write of the copy: nothing was written, and the range
/// counted as copied.
#[test]
fn what_is_copied_to_a_replacement_is_on_it_when_it_gets_the_slot_in_the_middle() {
    let scenario = "\
        raid10 n2 x4 chunk=8 used=128 v=1.2 begins=in-sync shards=2 depth=1 \
        seed=190812439563079 : writetimeout3 w28+1 step1 joinreplace3 step99";
    life::run(&scenario.parse().expect("a scenario"));
}

#[test]
fn a_member_that_joins_during_an_operation_is_not_rebuilt_by_it() {
    let scenario = "\
        raid6 left-symmetric x4 chunk=32 used=256 v=1.2 roles=384 begins=in-sync shards=2 \
        depth=24 seed=154929742552363 : lose0@0 w473+1 step271 join0 discard3+1 step4 \
        lose1@0 step2 step3 flush join1 step3 step6 r15+1 step6 step1";
    life::run(&scenario.parse().expect("a scenario"));
}

/// Rows that are to be zeroed wait for operations that wait for memory which a late one has.
#[test]
fn rows_that_are_zeroed_do_not_count_as_users_of_memory() {
    let scenario = "\
        raid6 ddf-N-restart x4 chunk=8 used=256 v=1.2 begins=in-sync shards=1 depth=1 \
        seed=183819619118897 troubled : full2@0+256/3 hangio0@341805 w6+1 w9+0 zero426+56 \
        w161+0";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The start is refused: the spare's superblock was torn when it became the replacement of a member
/// that is not there, and which of the two has the slot's copy cannot be known.
#[test]
fn a_start_may_be_refused_for_the_torn_superblock_of_a_new_replacement() {
    let scenario = "\
        raid10 n2 x2 chunk=8 used=128 v=1.2 roles=384 begins=in-sync shards=1 depth=1 \
        seed=72813181306872 troubled : full1@0+256/0 w5+1 step362 addspare step4 cut1 \
        full1@0+256/3 joinreplace0 step40 cut3@1";
    life::run(&scenario.parse().expect("a scenario"));
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

/// A range of the rebuild could not be read at first, and was read in granules when the stop made
/// the array read-only: what was read then was not written, and counted as in sync.
#[test]
fn a_rebuild_that_reads_granules_when_the_array_is_stopped_writes_them() {
    let scenario = "\
        raid10 o2 x4 chunk=16 used=128 v=1.2 begins=out-of-sync shards=2 depth=1 \
        seed=79897654658464 troubled : lose2@0 step31 bad1@76+19 join2 step27 stop1";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The replacement's superblock said that it has the slot, and those of the others said, with the
/// same event count, that the new device has one.
#[test]
fn a_device_that_joins_while_a_replacement_takes_over_waits_for_the_next_update() {
    let scenario = "\
        raid10 n2 x5 chunk=8 used=256 v=1.2 begins=in-sync shards=1 depth=4 \
        seed=25731149074060 troubled : flush w0+1 step5 w424+30 full4@0+256/0 flush step5 \
        slow2@100 w33+25 replace4 w0+1 step3 flush hangio2@447566 w0+1 discard0+1 step2 \
        r0+1 r593+0 step3 step1 cut1 w58+1 w205+1 w127+1 w2+1 w56+0 join2 step28";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A late write of a member that the array needs landed in its cache after the flush that had
/// failed for it: no later flush covered it.
#[test]
fn a_late_write_that_lands_is_flushed_like_any_other() {
    let scenario = "\
        raid6 right-asymmetric x6 chunk=32 used=128 v=1.2 begins=in-sync shards=2 depth=1 \
        seed=99832724091179 : w182+1 destroy0@121331 destroy4@114722 hangio3@24881 step395 \
        w406+20 step1 w449+1 step1 flush w2+0 flush";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The array was started by force with a member that was in sync in part. When that failed, its
/// blocks there were recovered from parity that the power cut had left half-way.
#[test]
fn parity_does_not_define_what_a_member_served_after_a_start_by_force() {
    let scenario = "\
        raid5 right-symmetric x3 chunk=16 used=128 v=1.2 log=48 begins=in-sync shards=1 \
        depth=1 seed=131270460580361 troubled : cut2 bad2@101+22 w161+58 step390 w14+1 \
        lose1@0 step8 join1 w7+1 full0@0+128/1 step200 w163+33 step6 cut1 \
        hangio1@387419 step11 readall";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A start copied a replacement again from an earlier position than its superblock had. The next
/// update of the others was clean, and a power cut came before the replacement's own.
#[test]
fn a_position_that_goes_back_is_recorded_before_any_superblock_is_clean() {
    let scenario = "\
        raid5 parity-first x3 chunk=8 used=256 v=1.2 begins=in-sync shards=1 depth=1 \
        seed=8569915666293 troubled : fail2 cut3 replace0 full0@0+256/2 joinreplace1 w9+1 \
        step317 cut1 step2 w16+3 step6 step44 join2 step61 step20 cut1";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A block of a lost member was acknowledged as durable when parity was. The data beside it, which
/// define it together with parity, were not, and the log lets the array start without the member.
#[test]
fn a_fua_write_of_a_lost_block_waits_for_the_data_that_define_it() {
    let scenario = "\
        raid5 left-symmetric x3 chunk=8 used=128 v=1.2 log=536 begins=in-sync shards=1 \
        depth=1 seed=162992332148316 : writeerror1 w3+61 fua6+10 step2 step4";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A write of a lost block, and of others of its row, began in a row that a log had named ahead,
/// before the loss was on record. The next start took the member for fresh.
#[test]
fn a_write_of_a_lost_block_in_a_row_named_ahead_waits_until_the_loss_is_on_record() {
    let scenario = "\
        raid5 right-asymmetric x5 chunk=8 used=256 v=1.2 block=4096 log=48 begins=in-sync \
        shards=1 depth=24 seed=249992279482589 troubled : w977+47 step400 zero382+3 step7 w1+69 \
        metafull4 addspare slow4@10 w774+1 step6 w144+21 step4 w846+17 step6 hang2@435042 step400";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A read of the former device failed after its replacement had got the slot, which is failfast.
#[test]
fn a_failfast_device_does_not_leave_for_a_read_of_the_one_that_it_has_replaced() {
    let scenario = "\
        raid10 n2 x5 chunk=16 used=128 v=1.2 begins=in-sync shards=1 depth=24 \
        seed=204794655838826 troubled : step400 step400 step400 step6 step2 step6 step6 \
        step1 step400 flush step1 flush step6 step4 flush step4 flush step6 step4 step1 \
        step2 step6 step400 step4 step400 step6 step4 step2 step2 flush step1 step6 flush \
        step4 step6 step400 step400 step2 step4 step6 step6 flush step400 step6 flush \
        step2 step4 step2 step2 step6 step4 step4 cut3 step6 step6 step4 flush step2 \
        flush step6 step400 step6 step1 step4 step1 step6 step6 step4 step4 step6 step4 \
        step1 flush step400 w65+1 step4 lose0@0 step33 join0 bad1@104+1 step23 cancel \
        flush step400 step400 step6 step4 step400 step6 step2 step1 joinreplace1 step1 \
        step4 step2 joinreplace0 step6 joinreplace4 step400 w13+4 full2@0+128/6 step1 \
        flush step400 w11+1 step2 w42+1 begin w13+24 step6 cancelreplace4 w9+1 step1 \
        flush step4 w3+46 step1 flush step400 step400 w170+3 lose4@0 step41";
    life::run(&scenario.parse().expect("a scenario"));
}

/// An array was found dirty and without its parity member, so that nothing was left to resync. The
/// update that recorded the loss said clean, one event ahead of the lost member: kernels before 6.8
/// would have taken it.
#[test]
fn a_loss_is_recorded_on_an_array_that_is_still_as_dirty_as_it_was_found() {
    let scenario = "\
        raid4 x3 chunk=8 used=128 v=1.2 block=4096 bitmap=4096 begins=in-sync shards=2 \
        depth=24 seed=511491635118 : replace0 w214+1 w2+15 w4+38 step35 cut1@4 step3";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The metadata manager had ended the resync, and the shard had not got the message yet: a scrub of
/// copies was refused.
#[test]
fn a_scrub_begins_when_the_shards_have_the_end_of_the_resync() {
    let scenario = "\
        raid10 f2 x3 chunk=8 used=128 v=1.2 begins=out-of-sync shards=1 depth=1 \
        seed=261198558102937 : discard8+1 corrupt2@12+20";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The array became idle with the event count that its spare had, and needed a resync, which the
/// spare did not say: kernels before 5.5 may take a spare for the freshest device.
#[test]
fn a_spare_never_says_that_an_array_is_in_sync_which_is_not() {
    let scenario = "\
        raid6 parity-first x4 chunk=8 used=128 v=1.2 begins=in-sync shards=1 depth=1 \
        seed=147694464931507 troubled : addspare full2@0+128/6 w202+15 step83";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A spare's superblock was the first to record a loss: it is no member, and the array is started
/// by those of the members.
#[test]
fn a_spare_that_has_come_further_than_all_members_decides_nothing() {
    let scenario = "\
        raid6 right-asymmetric-6 x6 chunk=8 used=256 v=1.2 block=4096 begins=in-sync \
        shards=1 depth=24 seed=59116923262470 : add2 w12+1 step6 writeerror2 step394 w1+1 \
        step1 cut2 step6 joinreplace5 w10+1 step6 w3+10 step394 addspare step6 w9+1 \
        remove2 w5+11 step6 addspare step394 hang3@89984 w0+1 step6 lose1@493027 step21 \
        cut3";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A spare was put into a slot while an update that does not list a device any more was repeated
/// for a lack of space: its own superblock still listed that device, whose number was called free.
#[test]
fn a_number_is_not_free_while_the_superblock_of_a_spare_that_gets_a_slot_lists_it() {
    let scenario = "\
        raid6 left-symmetric x4 chunk=16 used=128 v=1.0 bitmap=4096 roles=384 \
        begins=stale-bitmap shards=3 depth=4 seed=228697466427565 troubled : addspare \
        joinreplace0 step400 remove0 step5 metafull2 joinreplace1 step21 space2 step52";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A replacement got its slot after two members of a row were found unreadable, and before that
/// went into the bad-block log of a third one, which was being rebuilt: the replacement could be
/// read.
#[test]
fn no_bad_block_is_listed_when_a_slot_has_another_device_since_the_reads() {
    let scenario = "\
        raid6 left-symmetric x6 chunk=16 used=128 v=1.2 begins=in-sync shards=3 depth=24 \
        seed=107538015257202 troubled : zero95+1 metafull1 step400 joinreplace1 lose4@0 \
        step60 bad1@37+11 bad3@37+11 flush joinreplace2 addspare space1 readall step361";
    life::run(&scenario.parse().expect("a scenario"));
}

/// The log's replay writes parity of a slot that a spare gets with the same start.
#[test]
fn a_log_is_replayed_when_a_spare_takes_the_slot_of_a_parity_block() {
    let scenario = "\
        raid5 right-asymmetric x3 chunk=8 used=256 v=1.2 log=536 begins=in-sync shards=1 \
        depth=1 seed=207990170731478 troubled : w495+1 lose0@0 w14+1 metafull2 addspare \
        w10+1 step229";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A spare failed while it waited for the last operation on the former member of its slot, and was
/// removed.
#[test]
fn a_spare_that_leaves_while_it_waits_for_its_place_gets_it_as_a_failed_device() {
    let scenario = "\
        raid5 left-symmetric x2 chunk=8 used=128 v=1.2 begins=in-sync shards=1 depth=1 \
        seed=70859116288521 : hangio1@248198 idle32000000000 w43+1 step3 w0+1 addspare \
        w1+0 remove3 step308";
    life::run(&scenario.parse().expect("a scenario"));
}

/// A write to a member that is being rebuilt is late, and the range lacks something else by then:
/// the next pass must not read into the buffer that the write still uses.
#[test]
fn a_late_write_keeps_the_buffer_from_the_next_pass_of_a_rebuild() {
    let scenario = "\
        raid1 x4 chunk=0 used=128 v=1.2 bitmap=4096 begins=in-sync shards=2 depth=1 \
        seed=165285900348191 troubled : w14+1 bad0@13+14 cancel lose1@0 step4 readd1 \
        joinreplace3 w42+1 flush readd1 lose3@0 step391 hangio1@86674 begin w2+1 step391";
    life::run(&scenario.parse().expect("a scenario"));
}
