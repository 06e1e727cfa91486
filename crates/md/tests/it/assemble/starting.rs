//! Whether an array may be written to, and what has to happen first.

use super::support::*;
use raidlab_md::MemberIdx;
use raidlab_md::assemble::{MemberState, Options, Replay, Resync, Software, Verdict};
use raidlab_md::ondisk::superblock::Policy;
use raidlab_md::ondisk::{Area, PplArea, Role};

fn without(
    slots: &[usize],
    mut all: Vec<raidlab_md::assemble::Candidate>,
) -> Vec<raidlab_md::assemble::Candidate> {
    let mut slot = 0;
    all.retain(|_| {
        slot += 1;
        !slots.contains(&(slot - 1))
    });
    all
}

/// Level, layout, slots, missing, dirty: the verdict read-write.
type Loss<'a> = (i32, u32, u16, &'a [usize], bool, &'a str);

#[test]
fn levels_bear_their_losses_and_no_more() {
    #[rustfmt::skip]
    let table: &[Loss<'_>] = &[
        (0, 1, 3, &[], false, "run"),
        (0, 1, 3, &[1], false, "refused"),
        (-1, 0, 3, &[2], false, "refused"),
        (1, 0, 3, &[], true, "run"),
        (1, 0, 3, &[0, 2], true, "degraded 0,2"),
        (4, 0, 4, &[1], false, "degraded 1"),
        (4, 0, 4, &[1], true, "needs Force"),
        (4, 0, 4, &[3], true, "degraded 3"), // only parity is missing
        (5, 2, 4, &[], true, "run"),
        (5, 2, 4, &[3], false, "degraded 3"),
        (5, 2, 4, &[3], true, "needs Force"),
        (5, 5, 4, &[3], true, "degraded 3"), // parity-last
        (5, 4, 4, &[3], true, "needs Force"),
        (5, 2, 4, &[1, 3], false, "refused"),
        (6, 2, 5, &[1, 3], false, "degraded 1,3"),
        (6, 2, 5, &[1], true, "needs Force"),
        (6, 5, 5, &[3, 4], true, "degraded 3,4"),
        (6, 18, 5, &[4], true, "degraded 4"), // all of Q
        (6, 2, 5, &[0, 1, 3], false, "refused"),
        (10, 0x102, 4, &[1, 3], true, "degraded 1,3"),
        (10, 0x102, 4, &[0, 1], false, "refused"),
    ];
    for &(level, layout, slots, missing, is_dirty, expected) in table {
        let mut all = members(level, layout, slots);
        if is_dirty {
            dirty(&mut all);
        }
        let array = one(&without(missing, all));
        let what = format!("level {level}, layout {layout:#x}, without {missing:?}");
        assert_eq!(short(&array.read_write.verdict), expected, "{what}");
        let kernel = array.other_verdicts.iter().any(|note| note.by == Software::Kernel);
        assert_eq!(kernel, expected == "needs Force", "{what}: what the kernel would do");
        let mdadm = array.other_verdicts.iter().any(|note| note.what.contains("--run"));
        assert_eq!(mdadm, !missing.is_empty(), "{what}: they were there last time");
    }
}

#[test]
fn verdicts_states_and_notes_are_shown_in_words() {
    let mut all = raid5(4);
    all[1].metadata.recovery_offset = Some(64);
    all[2].metadata.created.seconds = 5;
    let array = one(&all);
    assert_eq!(array.read_write.verdict.to_string(), "All data is there, without slot 1.");
    let shown: Vec<String> = array.members.iter().map(|one| one.state.to_string()).collect();
    assert_eq!(shown, ["slot 0", "slot 1, rebuilt up to sector 64", "slot 2", "slot 3"]);
    assert_eq!(
        array.other_verdicts[0].to_string(),
        "mdadm refuses the array: disk2 does not match, the creation time is 5 and not 1700000000."
    );
    all[3].metadata.events = 49 - 4;
    assert_eq!(state_of(&one(&all), 3).to_string(), "stale, was slot 3, 5 updates behind");
}

#[test]
fn a_refusal_says_what_is_missing_and_what_would_help() {
    let mut all = without(&[1], raid5(4));
    all[2].metadata.events -= 5;
    let array = one(&all);
    let Verdict::NeedsForce { risk, .. } = &array.read_write.verdict else { panic!("{array:?}") };
    assert_eq!(
        risk,
        "This raid5 of 4 members cannot serve all of its data without slots 1 and 3. disk3 was \
         slot 3 but missed 5 updates (events 45, the freshest has 50), so its data may be stale. \
         It could run with disk3 (slot 3, 5 updates behind): on those members, blocks written \
         since then are stale."
    );
    let array = one(&all[..2]);
    let Verdict::Refused { why } = &array.read_write.verdict else { panic!("{array:?}") };
    assert_eq!(
        why,
        "This raid5 of 4 members cannot serve all of its data without slots 1 and 3. Find the \
         missing members; to read the rest of this raid5, read it partially (read-only)."
    );
}

#[test]
fn forced_stale_members_are_the_least_old_ones() {
    let mut all = raid5(4);
    all[1].metadata.events = 20;
    all[2].metadata.events = 40;
    let array = one_with(&all, &force());
    assert_eq!(both(&array), ["degraded 1", "degraded 1"]);
    let slot = array.read_write.slots[2].as_ref().unwrap();
    assert!(slot.stale && array.read_write.slots[1].is_none());
    assert!(array.read_write.warnings[0].contains("disk2 (slot 2, 10 updates behind)"));
    // No redundancy is left to be made right.
    assert_eq!(array.read_write.repairs.resync, None);
    // RAID 6 with three stale ones has some.
    let mut all = members(6, 2, 6);
    (1..4).for_each(|slot| all[slot].metadata.events = 30 + slot as u64);
    let array = one_with(&all, &force());
    assert_eq!(both(&array), ["degraded 1,2", "degraded 1,2"]);
    let mut all = members(6, 2, 6);
    (1..4).for_each(|slot| all[slot].metadata.events = 30);
    all.remove(5);
    assert_eq!(both(&one(&all)), ["needs Force", "needs IgnoreEvents"]);
}

#[test]
fn what_was_in_use_is_resynced() {
    let resync = |all: &[raidlab_md::assemble::Candidate]| one(all).read_write.repairs.resync;
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 3), (6, 2, 4), (10, 0x102, 4)] {
        let mut all = members(level, layout, slots);
        assert_eq!(resync(&all), None, "clean");
        dirty(&mut all);
        assert_eq!(resync(&all), Some(Resync { from: 0, by_bitmap: false }));
        bitmap(&mut all);
        assert_eq!(resync(&all), Some(Resync { from: 0, by_bitmap: true }));
        all.iter_mut().for_each(|one| one.metadata.resync_offset = Some(512));
        assert_eq!(resync(&all), Some(Resync { from: 512, by_bitmap: true }));
        assert_eq!(one(&all).read_write.repairs.policy, Some(Policy::Bitmap));
    }
    // The last mirror has nothing to be compared with; RAID 10 has, elsewhere.
    let mut all = members(1, 0, 2);
    dirty(&mut all);
    assert_eq!(resync(&all[..1]), None);
    let mut all = members(10, 0x102, 4);
    dirty(&mut all);
    assert_eq!(resync(&all[1..]), Some(Resync { from: 0, by_bitmap: false }));
    assert_eq!(one(&members(0, 1, 2)).read_write.repairs.policy, None);
}

#[test]
fn copies_that_may_differ_are_not_used_without_the_resync_source() {
    // Level, layout, slots, whose superblock is torn, what happens without it.
    let table: &[(i32, u32, u16, usize, &str)] = &[
        (1, 0, 2, 0, "needs Force"),
        (1, 0, 3, 0, "needs Force"),
        (1, 0, 3, 1, "degraded 1"),
        (10, 0x102, 4, 0, "needs Force"),
    ];
    for &(level, layout, slots, torn, expected) in table {
        let context = format!("level {level}, {slots} slots, without {torn}");
        let mut all = members(level, layout, slots);
        all[torn].checksum_ok = false;
        let degraded = format!("degraded {torn}");
        assert_eq!(both(&one(&all)), [&*degraded, &*degraded], "{context}, in sync");
        all.iter_mut().for_each(|one| one.metadata.resync_offset = Some(256));
        let array = one(&all);
        assert_eq!(both(&array), [expected, &*degraded], "{context}");
        let says = |text: &str| text.contains(&format!("disk{torn} has the copy"));
        let warned = array.read_only.doubts.iter().any(|doubt| says(doubt));
        assert_eq!(warned, expected != degraded, "{context}");
        if let Verdict::NeedsForce { risk, .. } = &array.read_write.verdict {
            assert!(says(risk) && risk.contains("checksum"), "{context}: {risk}");
        }
        assert_eq!(short(&one_with(&all, &force()).read_write.verdict), degraded, "{context}");
        let options = Options { ignore_checksums: true, ..Options::default() };
        assert_eq!(both(&one_with(&all, &options)), ["run", "run"], "{context}");
        // One that had failed before is another matter.
        for one in &mut all {
            one.metadata.roles[torn] = Role::Faulty;
        }
        assert_eq!(both(&one(&all))[0], degraded, "{context}, failed");
    }
}

#[test]
fn logs_are_replayed_first() {
    let mut all = raid5(4);
    let area = Area { sector: 16, sectors: 2048 };
    all.iter_mut().for_each(|one| {
        one.metadata.ppl = Some(PplArea { area, multiple: true });
        (one.metadata.data_offset, one.device_sectors) = (4096, 4096 + USED);
    });
    assert_eq!(one(&all).read_write.repairs.replay, None, "clean: nothing is in the log");
    dirty(&mut all);
    let array = one(&all[1..]);
    assert_eq!(both(&array), ["degraded 0", "degraded 0"], "the log closes the hole");
    assert_eq!(array.read_write.repairs.replay, Some(Replay::Ppl));
    assert_eq!(array.read_write.repairs.resync, None, "nothing is left to resync");
    let resync = one(&all).read_write.repairs.resync;
    assert_eq!(resync, Some(Resync { from: 0, by_bitmap: false }), "if the log does not help");

    let mut all = raid5(3);
    let journal = add(&mut all, "ssd", Role::Journal);
    all.iter_mut().for_each(|one| one.metadata.has_journal = true);
    all[journal].metadata.journal_tail = Some(24);
    let array = one(&all);
    assert_eq!(state_of(&array, journal), &MemberState::Journal);
    let replay = Replay::Journal { candidate: journal, tail: 24 };
    assert_eq!(array.read_write.repairs.replay, Some(replay));
    assert_eq!(array.read_write.journal, Some(journal));
    all.remove(journal);
    let array = one(&all);
    assert_eq!(both(&array), ["needs Force", "needs Force"]);
    let array = one_with(&all, &force());
    assert_eq!(both(&array), ["run", "run"]);
    assert!(array.read_only.doubts[0].contains("the journal device is missing or out of date"));
    assert_eq!(array.read_write.repairs.replay, Some(Replay::DropJournal));
    assert_eq!(
        array.read_write.repairs.resync,
        Some(Resync { from: 0, by_bitmap: false }),
        "what the journal held back is lost; the redundancy is made anew"
    );
}

#[test]
fn rebuilds_resume_and_spares_take_empty_slots() {
    let mut all = raid5(4);
    all[2].metadata.recovery_offset = Some(256);
    let spare = add(&mut all, "spare", Role::Spare);
    let array = one(&all);
    assert_eq!(state_of(&array, 2), &MemberState::Recovering { slot: MemberIdx(2), up_to: 256 });
    assert_eq!(both(&array), ["degraded 2", "degraded 2"]);
    let recoveries = &array.read_write.repairs.recoveries;
    assert_eq!(recoveries.len(), 1, "the spare waits");
    assert_eq!((recoveries[0].candidate, recoveries[0].from), (2, 256));
    // A spare that is too small takes nothing.
    all.remove(2);
    let spare = spare - 1;
    assert_eq!(one(&all).read_write.repairs.recoveries[0].candidate, spare);
    all[spare].metadata.data_sectors = USED - 1;
    all[spare].device_sectors -= 1;
    assert_eq!(one(&all).read_write.repairs.recoveries, []);
}

#[test]
fn a_replacement_takes_over_when_it_is_complete() {
    let mut all = raid5(3);
    let new = add(&mut all, "new", Role::Slot(1));
    all[new].metadata.replacement = true;
    all[new].metadata.recovery_offset = Some(640);
    let array = one(&all);
    let slot = MemberIdx(1);
    assert_eq!(state_of(&array, new), &MemberState::Replacement { slot, up_to: Some(640) });
    assert_eq!(array.read_write.slots[1].as_ref().unwrap().candidate, 1);
    let recovery = array.read_write.repairs.recoveries[0];
    assert_eq!((recovery.candidate, recovery.from, recovery.replaces), (new, 640, Some(1)));
    // Without the old member it is a rebuild.
    let mut rest = all.clone();
    rest.remove(1);
    let array = one(&rest);
    assert_eq!(both(&array), ["degraded 1", "degraded 1"]);
    assert_eq!(array.read_write.repairs.recoveries[0].replaces, None);
    // And when it is complete, it is as good as the old one.
    rest[2].metadata.recovery_offset = None;
    assert_eq!(both(&one(&rest)), ["run", "run"]);
}

#[test]
fn a_bitmap_where_there_can_be_none_is_not_written_to() {
    let mut all = members(0, 1, 2);
    bitmap(&mut all);
    assert_eq!(both(&one(&all)), ["refused", "run"]);
}

#[test]
fn a_journal_that_is_missing_or_stale_is_a_refusal_and_hides_no_other_warning() {
    let mut all = raid5(3);
    let journal = add(&mut all, "ssd", Role::Journal);
    all.iter_mut().for_each(|one| one.metadata.has_journal = true);
    dirty(&mut all);
    assert_eq!(both(&one(&all)), ["run", "run"]);
    all[journal].metadata.events -= 2;
    let array = one(&all);
    assert_eq!(both(&array), ["needs Force", "needs Force"]);
    assert!(why(&array, journal).contains("was the journal but missed 2 updates"), "{array:?}");
    // With a data member missing as well, the write hole is still said.
    let array = one_with(&all[1..], &force());
    assert_eq!(both(&array)[1], "degraded 0");
    let doubts = array.read_only.doubts.join(" ");
    assert!(doubts.contains("data reconstructed for it may be wrong"), "{doubts}");
}
