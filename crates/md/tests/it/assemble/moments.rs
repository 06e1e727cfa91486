//! Members with one event count and other times of the update, and halves that ran apart.

use super::support::{both, force, member, members, one, one_with, raid5, short, state_of, why};
use raidlab_md::MemberIdx;
use raidlab_md::assemble::{Array, Candidate, MemberState, Options, Verdict};
use raidlab_md::ondisk::Role;

const LATER: u64 = 2_600_000;

/// Makes members those of a later moment, with the same event count.
fn updated_later(all: &mut [Candidate], which: &[usize]) {
    which.iter().for_each(|at| all[*at].metadata.updated.seconds += LATER);
}

fn stale(slot: u16) -> MemberState {
    MemberState::Stale { slot: Some(MemberIdx(slot)), events_behind: 0 }
}

fn served(array: &Array) -> Vec<usize> {
    array.read_only.slots.iter().flatten().map(|source| source.candidate).collect()
}

#[test]
fn a_member_of_another_moment_is_left_out_and_named_with_both_times() {
    let mut all = raid5(4);
    updated_later(&mut all, &[0, 2, 3]);
    for turn in 0..4 {
        let old = (5 - turn) % 4;
        let array = one(&all);
        assert_eq!(state_of(&array, old), &stale(1));
        assert_eq!(both(&array), ["degraded 1", "degraded 1"]);
        assert!(!served(&array).contains(&old));
        let [said] = &array.contradictions[..] else { panic!("{:?}", array.contradictions) };
        for part in ["disk1 is of another moment", "2023-11-14 22:15:00", "2023-12-15 00:28:20"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(why(&array, old).contains("at another moment"), "{}", why(&array, old));
        assert!(!array.split);
        all.rotate_left(1);
    }
}

#[test]
fn moments_are_not_mixed_without_consent() {
    let mut all = raid5(4);
    updated_later(&mut all, &[0, 2]);
    all.truncate(3);
    let array = one(&all);
    assert_eq!(both(&array), ["needs Force", "needs IgnoreEvents"]);
    let Verdict::NeedsForce { risk, .. } = &array.read_only.verdict else { unreachable!() };
    assert!(risk.contains("disk1 (slot 1, of another moment)"), "{risk}");
    let options = Options { ignore_events: true, ..Options::default() };
    let array = one_with(&all, &options);
    assert_eq!(short(&array.read_only.verdict), "degraded 3");
    assert_eq!(array.read_only.doubts.len(), 1, "{:?}", array.read_only.doubts);
    assert_eq!(array.contradictions.len(), 1);
}

#[test]
fn an_older_moment_is_read_where_the_newest_cannot_be() {
    // The newest time is of a clock that was wrong, or the others are copies of former days.
    let mut all = raid5(4);
    updated_later(&mut all, &[1]);
    let array = one(&all);
    assert_eq!(both(&array), ["needs Force", "degraded 1"]);
    assert_eq!(served(&array), [0, 2, 3]);
    assert_eq!(array.contradictions.len(), 1);
    let Verdict::NeedsForce { risk, .. } = &array.read_write.verdict else { unreachable!() };
    assert!(risk.contains("were updated later"), "{risk}");
    // Consent to a mixture makes none where one moment is whole.
    let options = Options { ignore_events: true, ..Options::default() };
    assert_eq!(served(&one_with(&all, &options)), [0, 2, 3]);
}

#[test]
fn what_is_passed_by_or_differs_in_events_has_a_time_of_its_own() {
    // A crash between two superblocks, also of an array that was idle for a month.
    for count in [49, 51] {
        let mut all = raid5(3);
        updated_later(&mut all, &[1]);
        all[1].metadata.events = count;
        let array = one(&all);
        assert_eq!(both(&array), ["run", "run"]);
        assert_eq!(array.contradictions, [""; 0]);
    }
    let mut all = raid5(3);
    let spare = super::support::add(&mut all, "spare", Role::Spare);
    updated_later(&mut all, &[0, 1, 2]);
    let array = one(&all);
    assert_eq!((state_of(&array, spare), both(&array)[0].as_str()), (&MemberState::Spare, "run"));
    assert_eq!(array.contradictions, [""; 0]);
    // The members that are one update behind have two moments of their own.
    let mut all = members(6, 2, 5);
    all[0].metadata.events += 1;
    updated_later(&mut all, &[0, 1, 2, 3]);
    let array = one(&all);
    assert_eq!(short(&array.read_only.verdict), "degraded 4");
    assert_eq!(array.contradictions.len(), 1);
}

#[test]
fn of_two_copies_of_one_member_the_later_one_is_used() {
    let mut all = raid5(3);
    let mut copy = member(5, 2, 3, 1);
    copy.label = "copy1".into();
    all.push(copy);
    updated_later(&mut all, &[0, 1, 2]);
    for _ in 0..4 {
        let array = one(&all);
        assert_eq!(both(&array), ["run", "run"]);
        assert!(served(&array).iter().all(|candidate| all[*candidate].label != "copy1"));
        assert_eq!(array.contradictions.len(), 1, "{:?}", array.contradictions);
        all.rotate_left(1);
    }
}

#[test]
fn halves_that_ran_apart_are_a_doubt_with_both_times_whatever_their_counts() {
    let halves = |level, layout, slots: u16, other: &[usize]| {
        let mut all = members(level, layout, slots);
        for at in 0..usize::from(slots) {
            for of in 0..usize::from(slots) {
                if other.contains(&at) != other.contains(&of) {
                    all[at].metadata.roles[of] = Role::Faulty;
                }
            }
        }
        all
    };
    for (mut all, other) in
        [(halves(1, 0, 2, &[1]), vec![1]), (halves(10, 0x102, 4, &[1, 3]), vec![1, 3])]
    {
        for (events, later) in [(50, true), (60, false), (40, true), (49, true)] {
            for &at in &other {
                all[at].metadata.events = events;
                all[at].metadata.updated.seconds = 1_700_000_100 + LATER * u64::from(later);
            }
            let array = one(&all);
            assert!(array.split, "{events}");
            assert_eq!(short(&array.read_write.verdict), "needs Force", "{events}");
            assert!(array.read_only.verdict.runs(), "{events}");
            let said = &array.contradictions[0];
            for part in ["Split brain", "2023-11-14 22:15:00", "name only its members"] {
                assert!(said.contains(part), "{events}: {said}");
            }
            assert!(!later || said.contains("2023-12-15 00:28:20"), "{said}");
            let used = served(&array);
            let is_other = events >= 50;
            assert!(used.iter().all(|at| other.contains(at) == is_other), "{events}: {used:?}");
        }
        // With one time as well, nothing says which is newer.
        for &at in &other {
            (all[at].metadata.events, all[at].metadata.updated.seconds) = (50, 1_700_000_100);
        }
        let array = one_with(&all, &force());
        assert!(array.split);
        assert_eq!(both(&array), ["refused", "refused"]);
        let Verdict::Refused { why } = &array.read_only.verdict else { unreachable!() };
        assert!(why.contains("Split brain") && why.contains("neither is used"), "{why}");
        // Each half alone.
        let named: Vec<Candidate> = other.iter().map(|at| all[*at].clone()).collect();
        let array = one(&named);
        assert!(array.read_only.verdict.runs() && !array.split);
    }
}
