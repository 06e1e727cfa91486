//! Devices that come and leave while the array runs, below a load whose every read is compared, as
//! a daemon has them: opened by name, checked, prepared and given to the array.

use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{
    AddError, Array, BackgroundWork, DeviceCondition, DeviceNumber, JoinAs, MemberFlags,
    RemoveError, RemoveRefusal,
};
use host::{Access, Device, DeviceOptions, Location};
use md::assemble::{MemberState, Options, Verdict};
use md::create::BitmapOption;
use md::ondisk::Version;
use md::{Level, MemberIdx};
use raidlab_admin::{JoinError, LiveAddition, LiveError, LiveJoined, add_live};

use super::readded;
use super::replaced::{Load, Replaceable, levels, wait_has_slot};
use super::support::{Members, contents, decide, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

fn add(it: &Replaceable, array: &Array, at: usize) -> Result<LiveJoined, LiveError> {
    add_live(array, &it.members.device(at, Access::ReadWrite), &LiveAddition::default())
}

fn condition(array: &Array, number: DeviceNumber) -> Option<DeviceCondition> {
    let devices = array.devices();
    let device = devices.iter().find(|device| device.status.number == number)?;
    Some(device.status.condition)
}

fn wait_until(array: &Array, what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}: {:?}", array.devices());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_is(array: &Array, number: DeviceNumber, expected: Option<DeviceCondition>) {
    wait_until(array, &format!("device {} is {expected:?}", number.0), || {
        condition(array, number) == expected
    });
}

/// A device when nothing has it open any more.
fn free_device(members: &Members, array: &Array, at: usize) -> Arc<Device> {
    let location = Location::whole(members.path(at));
    let open =
        || Device::open(&location, DeviceOptions { access: Access::ReadWrite, direct: false }).ok();
    let start = Instant::now();
    loop {
        if let Some(device) = open() {
            return Arc::new(device);
        }
        assert!(start.elapsed() < PATIENCE, "never closed: {:?}", array.devices());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The superblocks of these say that the array is clean, and complete with them.
fn check_clean(it: &Replaceable, which: &[usize], context: &str) {
    let opened = it.opened(which);
    let found = decide(&opened, &Options::default());
    let verdict = &found.read_write.verdict;
    assert!(matches!(verdict, Verdict::Run), "{context}: {verdict:?}");
}

#[test]
fn a_device_added_live_gets_the_empty_slot_and_the_failed_one_comes_back_into_the_next() {
    for (number, (level, _, slots)) in levels().into_iter().enumerate().step_by(2) {
        let bitmap = match number % 4 {
            0 => BitmapOption::Internal { chunk_bytes: Some(65536) },
            _ => BitmapOption::None,
        };
        let context = format!("{level} {bitmap:?}");
        let it = Replaceable::new(level, slots, 1, bitmap);
        let array = it.run();
        let mut load = Load::of(&array);
        let first = DeviceNumber(slots as u32);
        load.beside(&array, || {
            array.fail_member(MemberIdx(1));
            wait_for(&array, "it is out", |status| status.degraded == 1);
            let added = add(&it, &array, slots).expect("it is taken");
            let joins = JoinAs::Member(MemberIdx(1));
            assert_eq!(added, LiveJoined { number: first, joins, by_bitmap: false });
            wait_has_slot(&array, 1);
            // The one that failed: removed, closed, and added again, for another slot.
            array.remove_device(DeviceNumber(1)).expect("it runs").expect("it has failed");
            wait_is(&array, DeviceNumber(1), None);
            drop(free_device(&it.members, &array, 1));
            array.fail_member(MemberIdx(0));
            wait_for(&array, "it is out", |status| status.degraded == 1);
            let again = add(&it, &array, 1).expect("it is taken");
            assert_eq!(again.joins, JoinAs::Member(MemberIdx(0)), "{context}");
            wait_has_slot(&array, 0);
            wait_for(&array, "nothing is lost", |status| status.degraded == 0);
            array.remove_device(DeviceNumber(0)).expect("it runs").expect("it has failed");
            wait_is(&array, DeviceNumber(0), None);
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (1..=slots).collect();
        check_clean(&it, &all, &context);
        assert_eq!(it.state(&all, slots), MemberState::Active(MemberIdx(1)), "{context}");
        assert_eq!(it.state(&all, 1), MemberState::Active(MemberIdx(0)), "{context}");
        assert!(it.contents(&all) == expected, "{context}");
        // Without another one, the new ones are needed.
        let less: Vec<usize> = all.iter().copied().filter(|at| *at != 2).collect();
        let less = if slots > 2 { &less } else { &all };
        assert!(it.contents(less) == expected, "{context}");
    }
}

/// Fails the member of a slot, and has it leave.
fn leave(members: &Members, array: &Array, slot: u16) {
    let serves = |it: &array::ArrayDevice| {
        it.status.slot == Some(MemberIdx(slot)) && it.status.condition == DeviceCondition::InSync
    };
    let devices = array.devices();
    let number = devices.iter().find(|it| serves(it)).expect("it serves").status.number;
    array.fail_member(MemberIdx(slot));
    wait_is(array, number, Some(DeviceCondition::Failed));
    array.remove_device(number).expect("it runs").expect("it has failed");
    wait_is(array, number, None);
    drop(free_device(members, array, slot.into()));
}

/// A member comes back into its slot by the bitmap.
fn come_back(members: &Members, array: &Array, slot: u16) -> Result<(), String> {
    let device = members.device(slot.into(), Access::ReadWrite);
    let back = add_live(array, &device, &LiveAddition::default());
    match back.map_err(|error| error.to_string())? {
        LiveJoined { joins: JoinAs::Member(at), by_bitmap: true, .. } if at.0 == slot => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

const BITMAP: BitmapOption = BitmapOption::Internal { chunk_bytes: Some(65536) };

/// As after `mdadm --remove` and `--re-add`.
#[test]
fn a_former_member_comes_back_live_with_what_it_missed_and_no_more() {
    for (level, layout, slots) in levels() {
        let members = readded::created(level, layout, Version::V1_2, slots);
        // A new array's bits are set until it is stopped.
        let (array, _) = readded::run(&members, &[], &[]);
        array.write_at(&[0; 4096], 0).expect("written");
        array.stop().expect("stopped clean");
        let (array, _) = readded::run(&members, &[], &[]);
        let mut expected = vec![0; array.len_bytes() as usize];
        let mut write = |seed: u8, at: usize| {
            let data = vec![seed; 8192];
            array.write_at(&data, at as u64).expect("written");
            expected[at..at + data.len()].copy_from_slice(&data);
        };
        write(1, 0);
        leave(&members, &array, 1);
        for (seed, at) in (2..).zip([0, 600_064, 601_088, 3 << 20]) {
            write(seed, at);
        }
        array.pause_background(BackgroundWork::Rebuild, true);
        come_back(&members, &array, 1).expect("it is taken");
        wait_for(&array, "it is bound", |status| !status.rebuilding.is_empty());
        let (lacking, _) = array.metadata().expect("it has metadata").rebuild_sectors;
        // Four writes, at most two bits each, of 128 sectors.
        assert!((1..=8 * 128).contains(&lacking), "{level}: {lacking}");
        // While it lacks them.
        write(9, 601_088);
        write(10, 2 << 20);
        array.pause_background(BackgroundWork::Rebuild, false);
        wait_for(&array, "its rebuild", |status| status.degraded == 0);
        let mut read = vec![0; expected.len()];
        array.read_at(&mut read, 0).expect("read");
        assert!(read == expected, "{level}");
        array.stop().expect("stopped clean");
        assert!(contents(&members, &[]) == expected, "{level}");
        // Without the first one, it is needed.
        assert!(contents(&members, &[0]) == expected, "{level}");
    }
}

#[test]
fn a_former_member_comes_back_live_beside_a_load_again_and_again() {
    for (level, _, slots) in levels() {
        let it = Replaceable::new(level, slots, 1, BITMAP);
        let array = it.run();
        let mut load = Load::of(&array);
        load.beside(&array, || {
            for _ in 0..3 {
                leave(&it.members, &array, 1);
                come_back(&it.members, &array, 1).expect("it is taken");
                wait_for(&array, "its rebuild", |status| status.degraded == 0);
            }
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (0..slots).collect();
        check_clean(&it, &all, &format!("{level}"));
        assert!(it.contents(&all) == expected, "{level}");
        assert!(it.contents(&all[1..]) == expected, "{level}");
    }
}

#[test]
fn a_former_member_without_the_proof_is_rebuilt_whole() {
    let it = Replaceable::new(Level::Raid6, 4, 1, BITMAP);
    let array = it.run();
    array.write_at(&[3; 8192], 0).expect("written");
    leave(&it.members, &array, 1);
    leave(&it.members, &array, 2);
    // The first has served with both that serve now. Nothing takes it for in sync before it is.
    array.pause_background(BackgroundWork::Rebuild, true);
    come_back(&it.members, &array, 1).expect("it is taken");
    assert_eq!(it.state_now(1).recovery_offset, Some(0));
    array.pause_background(BackgroundWork::Rebuild, false);
    wait_for(&array, "its rebuild", |status| status.degraded == 1);
    // The second lists the first as failed: perhaps it ran elsewhere without it.
    let whole = add(&it, &array, 2).expect("it is taken");
    assert!(!whole.by_bitmap, "{whole:?}");
    wait_for(&array, "nothing is lost", |status| status.degraded == 0);
    array.stop().expect("stopped clean");
    check_clean(&it, &[0, 1, 2, 3], "rebuilt");
}

#[test]
fn a_spare_added_live_takes_the_slot_of_the_next_member_that_fails() {
    for (level, bitmap) in [
        (Level::Raid5, BitmapOption::Internal { chunk_bytes: Some(65536) }),
        (Level::Raid1, BitmapOption::None),
    ] {
        let slots = 3;
        let it = Replaceable::new(level, slots, 2, bitmap);
        let array = it.run();
        let mut load = Load::of(&array);
        let [spare, other] = [0, 1].map(|at| DeviceNumber(slots as u32 + at));
        load.beside(&array, || {
            for (at, number) in [(slots, spare), (slots + 1, other)] {
                let added = add(&it, &array, at).expect("it is taken");
                let expected = LiveJoined { number, joins: JoinAs::Spare, by_bitmap: false };
                assert_eq!(added, expected);
                wait_is(&array, number, Some(DeviceCondition::Spare));
            }
            // What the superblocks of all say, while the array runs.
            let own = it.state_now(slots);
            assert_eq!((own.dev_number, own.role), (spare.0, md::ondisk::Role::Spare));
            array.fail_member(MemberIdx(2));
            wait_has_slot(&array, 2);
            assert_eq!(condition(&array, spare), Some(DeviceCondition::InSync));
            // The other one leaves, and is free at once.
            array.remove_device(other).expect("it runs").expect("it is a spare");
            wait_is(&array, other, None);
            let again = free_device(&it.members, &array, slots + 1);
            let again = add_live(&array, &again, &LiveAddition::default()).expect("it is taken");
            assert_eq!(again.number, other, "its number was free");
            wait_is(&array, other, Some(DeviceCondition::Spare));
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all = [0, 1, slots, slots + 1];
        check_clean(&it, &all, &format!("{level}"));
        assert_eq!(it.state(&all, slots), MemberState::Active(MemberIdx(2)), "{level}");
        assert_eq!(it.state(&all, slots + 1), MemberState::Spare, "{level}");
        assert!(it.contents(&all) == expected, "{level}");
    }
}

#[test]
fn a_member_is_replaced_live_and_leaves() {
    let it = Replaceable::new(Level::Raid6, 4, 1, BitmapOption::None);
    let array = it.run();
    let mut load = Load::of(&array);
    load.beside(&array, || {
        let device = it.members.device(4, Access::ReadWrite);
        let flags = MemberFlags { write_mostly: true, failfast: false };
        let how = LiveAddition { replaces: Some(MemberIdx(3)), flags, ..LiveAddition::default() };
        let joined = add_live(&array, &device, &how).expect("it is taken");
        drop(device);
        assert_eq!(joined.joins, JoinAs::Replacement(MemberIdx(3)));
        let early = array.remove_device(joined.number).expect("it runs");
        assert!(matches!(early, Err(RemoveError::Refused { .. })), "{early:?}");
        wait_has_slot(&array, 3);
        wait_is(&array, DeviceNumber(3), Some(DeviceCondition::Failed));
        array.remove_device(DeviceNumber(3)).expect("it runs").expect("it is replaced");
        wait_is(&array, DeviceNumber(3), None);
        drop(free_device(&it.members, &array, 3));
    });
    let expected = load.contents(array.len_bytes() as usize);
    array.stop().expect("stopped clean");
    let all = [0, 1, 2, 4];
    check_clean(&it, &all, "replaced");
    assert!(it.contents(&all[1..]) == expected);
}

#[test]
fn what_cannot_come_or_leave_is_refused_with_the_reason_and_stays_as_it_is() {
    let it = Replaceable::new(Level::Raid1, 2, 2, BitmapOption::None);
    let array = it.run();
    let refused = array.remove_device(DeviceNumber(1)).expect("it runs");
    let why = RemoveRefusal::InSync(MemberIdx(1));
    assert!(matches!(refused, Err(RemoveError::Refused { why: is, .. }) if is == why));
    assert_eq!(refused.unwrap_err().to_string(), "device 1: is in sync in slot 1: fail it first");
    // A copy of a member that is in use.
    array.write_at(&[7; 4096], 0).expect("written");
    array.flush().expect("flushed");
    std::fs::copy(it.members.path(1), it.members.path(3)).unwrap();
    let before = std::fs::read(it.members.path(3)).unwrap();
    let copy = add(&it, &array, 3);
    assert!(matches!(copy, Err(LiveError::InUse { number: DeviceNumber(1), .. })), "{copy:?}");
    assert!(std::fs::read(it.members.path(3)).unwrap() == before);
    // One that holds data, until that is said.
    std::fs::write(it.members.path(2), vec![0x55; before.len()]).unwrap();
    let holds = add(&it, &array, 2);
    assert!(matches!(holds, Err(LiveError::Join(JoinError::Holds(_)))), "{holds:?}");
    // One that is too small, or for a slot that has no member.
    let small = it.members.path(2);
    std::fs::OpenOptions::new().write(true).open(&small).unwrap().set_len(1 << 20).unwrap();
    let unfit = add(&it, &array, 2);
    assert!(matches!(unfit, Err(LiveError::Join(JoinError::Unfit(_)))), "{unfit:?}");
    std::fs::OpenOptions::new().write(true).open(&small).unwrap().set_len(16 << 20).unwrap();
    let device = it.members.device(2, Access::ReadWrite);
    let replaces = Some(MemberIdx(5));
    let how = LiveAddition { replaces, overwrite: true, ..LiveAddition::default() };
    let none = add_live(&array, &device, &how);
    let not_replaceable =
        |source: &AddError| matches!(source, AddError::NotReplaceable(MemberIdx(5), _));
    assert!(
        matches!(&none, Err(LiveError::NotTaken { source, .. }) if not_replaceable(source)),
        "{none:?}"
    );
    assert_eq!(std::fs::read(&small).unwrap()[..1 << 20], vec![0x55; 1 << 20]);
    let how = LiveAddition { overwrite: true, ..LiveAddition::default() };
    let joined = add_live(&array, &device, &how).expect("it is taken");
    wait_is(&array, joined.number, Some(DeviceCondition::Spare));
    array.stop().expect("stopped clean");
}

testkit::repeat_in_shards! {
    a_device_added_live_gets_the_empty_slot_and_the_failed_one_comes_back_into_the_next,
    a_former_member_comes_back_live_with_what_it_missed_and_no_more,
    a_former_member_comes_back_live_beside_a_load_again_and_again,
    a_former_member_without_the_proof_is_rebuilt_whole,
    a_spare_added_live_takes_the_slot_of_the_next_member_that_fails,
    a_member_is_replaced_live_and_leaves,
    what_cannot_come_or_leave_is_refused_with_the_reason_and_stays_as_it_is,
}
