//! Members that are replaced while the array runs, below a load whose every read is compared: what
//! the devices hold afterwards, what is recorded, and what a failure in between leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{
    AddError, Array, BackgroundWork, DeviceCondition, Driver, DriverOptions, Event, Fault,
    FaultControl, FaultMember, FileMember, Member, MetadataDevice, Pace, ReplaceRefusal,
};
use engine::DeviceNumber;
use host::{Access, Device, DeviceOptions, Disk, Location};
use md::assemble::{MemberState, Options};
use md::create::{Addition, BitmapOption, Device as NewDevice, addition};
use md::ondisk::bitmap::{BitmapHeader, HEADER_BYTES};
use md::ondisk::superblock::{Policy, Superblock};
use md::ondisk::{Uuid, Version, Write};
use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_admin::{Opened, StartOptions, start_rebuilding};
use testkit::{Rng, shards};

use super::support::{Members, contents, decide, pattern, small, wait_for};

/// What the load writes at once, in bytes.
const BLOCK: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// What a new device does, when the control is on.
struct Faults(Vec<Fault>, FaultControl);

impl From<Vec<Fault>> for Faults {
    fn from(faults: Vec<Fault>) -> Faults {
        Faults(faults, FaultControl::default())
    }
}

/// The array of the first devices; those behind them are new, or its spares.
pub struct Replaceable {
    pub members: Members,
    slots: usize,
    /// Of its first device when it was created.
    superblock: Superblock,
    bitmap: Option<BitmapHeader>,
}

impl Replaceable {
    pub fn new(level: Level, slots: usize, new: usize, bitmap: BitmapOption) -> Replaceable {
        Replaceable::created(level, slots, new, |request| request.bitmap = bitmap)
    }

    fn created(
        level: Level,
        slots: usize,
        new: usize,
        change: impl FnOnce(&mut md::create::Request),
    ) -> Replaceable {
        let members = Members { count: slots, ..Members::new(slots + new) };
        members.create(level, |request| {
            request.assume_clean = true;
            change(request);
        });
        let first = Opened::device(members.device(0, Access::ReadOnly)).expect("a superblock");
        let bitmap = first.superblock.metadata().bitmap.map(|area| {
            let mut head = vec![0; 512];
            first.disk.read(area.sector, &mut head).unwrap();
            BitmapHeader::decode(&head[..HEADER_BYTES]).unwrap()
        });
        Replaceable { members, slots, superblock: first.superblock, bitmap }
    }

    pub fn opened(&self, which: &[usize]) -> Vec<Opened> {
        let device = |at: &usize| self.members.device(*at, Access::ReadWrite);
        which.iter().map(|at| Opened::device(device(at)).expect("a superblock")).collect()
    }

    fn shards(&self, which: &[usize], timeout: Option<Duration>) -> Vec<Driver> {
        let opened = self.opened(which);
        let array = decide(&opened, &Options::default());
        let (shards, shard_unit_sectors) = (shards(), 64);
        let (foreground_share, most_kib_per_s) = (250, Some(40_000));
        let pace = Pace { foreground_share, most_kib_per_s, ..Pace::default() };
        let driver =
            DriverOptions { shards, shard_unit_sectors, pace, member_timeout: timeout, ..small() };
        let options = StartOptions { driver, ..StartOptions::default() };
        start_rebuilding(&array, &opened, &[], false, &options).expect("it starts").0
    }

    /// The array of its members.
    pub fn run(&self) -> Array {
        let all: Vec<usize> = (0..self.slots).collect();
        Array::run_shards(self.shards(&all, DriverOptions::default().member_timeout)).unwrap()
    }

    /// A blank device for the array, prepared as one that joins it.
    fn device(&self, at: usize, faults: Faults) -> (Box<dyn Member>, MetadataDevice) {
        let Faults(faults, control) = faults;
        let device = self.members.device(at, Access::ReadWrite);
        let new = NewDevice {
            label: device.name(),
            sectors: device.sectors(),
            logical_block: 512,
            uuid: Uuid([at as u8; 16]),
            data_offset: None,
            write_mostly: false,
            failfast: false,
        };
        let number = at as u32;
        let Addition { superblock, preparations } =
            addition(&self.superblock, number, &new).expect("it fits");
        for write in preparations {
            match write {
                Write::Bytes { sector, bytes } => device.write(sector, &bytes).unwrap(),
                Write::Zeroes(area) => {
                    device.write_zeroes(area.sector..area.sector + area.sectors).unwrap();
                }
            }
        }
        let (metadata, own) = (self.superblock.metadata(), superblock.metadata());
        let bitmap = own.bitmap.zip(self.bitmap.clone());
        let first = own.data_offset;
        let member = FileMember::of_device(&device, first..first + metadata.used_sectors);
        let member: Box<dyn Member> =
            Box::new(FaultMember::switched(Box::new(member), faults, &control));
        let number = DeviceNumber(number);
        (member, MetadataDevice { number, disk: device, superblock, bitmap, ppl: None })
    }

    /// Replaces the member of a slot by a device.
    fn replace(
        &self,
        array: &Array,
        slot: u16,
        at: usize,
        faults: impl Into<Faults>,
    ) -> Result<(), AddError> {
        let (member, device) = self.device(at, faults.into());
        array.replace_device(MemberIdx(slot), member, device).expect("the array runs")
    }

    /// Puts a device into an empty slot.
    fn add(&self, array: &Array, slot: u16, at: usize) -> Result<(), AddError> {
        let (member, device) = self.device(at, Vec::new().into());
        array.add_device(MemberIdx(slot), member, device).expect("the array runs")
    }

    /// The state of a device by the superblocks of these.
    pub fn state(&self, which: &[usize], at: usize) -> MemberState {
        let opened = self.opened(which);
        let found = decide(&opened, &Options::default());
        let mut all = found.members.iter();
        let it = all.find(|member| which[member.candidate] == at).expect("it is a member");
        it.state.clone()
    }

    /// What the superblock of a device says while the array runs: read without its lock.
    pub fn state_now(&self, at: usize) -> md::ondisk::MemberMetadata {
        let copy = self.members.dir.path().join("copy");
        std::fs::copy(self.members.path(at), &copy).unwrap();
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let device = Device::open(&Location::whole(&copy), options).unwrap();
        let opened = Opened::device(Arc::new(device)).expect("a superblock");
        opened.superblock.metadata()
    }

    /// What the array of these devices has.
    pub fn contents(&self, which: &[usize]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let members = Members { dir, count: which.len() };
        for (number, at) in which.iter().enumerate() {
            std::fs::copy(self.members.path(*at), members.path(number)).unwrap();
        }
        contents(&members, &[])
    }
}

/// Random writes and reads beside what the test does; every read is compared.
pub struct Load {
    written: Vec<u64>,
    rng: Rng,
}

impl Load {
    /// All of the array is written once.
    pub fn of(array: &Array) -> Load {
        let mut load =
            Load { written: vec![0; (array.len_bytes() / BLOCK) as usize], rng: Rng::new(7) };
        (0..load.written.len()).for_each(|at| load.write(array, at));
        load
    }

    fn write(&mut self, array: &Array, at: usize) {
        self.written[at] = self.rng.draw() | 1;
        array
            .write_at(&pattern(self.written[at], BLOCK as usize), at as u64 * BLOCK)
            .expect("written");
    }

    fn check(&self, array: &Array, at: usize) {
        let mut bytes = vec![0; BLOCK as usize];
        array.read_at(&mut bytes, at as u64 * BLOCK).expect("read");
        assert!(bytes == pattern(self.written[at], BLOCK as usize), "block {at}");
    }

    /// Runs until `is_over` is set.
    fn run(&mut self, array: &Array, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            let at = self.rng.below(self.written.len() as u64) as usize;
            match self.rng.one_in(3) {
                true => self.check(array, at),
                false => self.write(array, at),
            }
            if self.rng.one_in(20) {
                array.flush().expect("flushed");
            }
        }
    }

    /// Runs beside this.
    pub fn beside<R>(&mut self, array: &Array, what: impl FnOnce() -> R) -> R {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.run(array, &is_over));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
            is_over.store(true, Ordering::SeqCst);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub fn contents(&self, array_bytes: usize) -> Vec<u8> {
        let all = self.written.iter().flat_map(|seed| pattern(*seed, BLOCK as usize));
        let mut all: Vec<u8> = all.collect();
        all.resize(array_bytes, 0);
        all
    }
}

fn wait_event(array: &Array, what: &str, is_it: impl Fn(&Event) -> bool) {
    wait_events(array, what, &[&is_it]);
}

/// Waits for one event of each kind: they may come at the same time.
fn wait_events(array: &Array, what: &str, kinds: &[&dyn Fn(&Event) -> bool]) {
    let start = Instant::now();
    let mut seen = vec![false; kinds.len()];
    while seen.contains(&false) {
        let new = array.take_events();
        for (seen, is_it) in seen.iter_mut().zip(kinds) {
            *seen |= new.iter().any(is_it);
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}: {seen:?}, {:?}", array.metadata());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has_slot(event: &Event, slot: u16) -> bool {
    matches!(event, Event::MemberInSync { member, .. } if member.0 == slot)
}

pub fn wait_has_slot(array: &Array, slot: u16) {
    wait_event(array, "it has the slot", |event| has_slot(event, slot));
}

pub fn levels() -> [(Level, Option<Layout>, usize); 5] {
    let far = Layout::Raid10(Raid10Layout::far(2));
    [
        (Level::Raid1, None, 2),
        (Level::Raid5, None, 3),
        (Level::Raid6, None, 5),
        (Level::Raid10, None, 4),
        (Level::Raid10, Some(far), 4),
    ]
}

#[test]
fn a_replacement_takes_the_slot_beside_a_load_and_so_does_its_own() {
    for (number, (level, layout, slots)) in levels().into_iter().enumerate() {
        let bitmap = match number % 2 {
            0 => BitmapOption::Internal { chunk_bytes: Some(65536) },
            _ => BitmapOption::None,
        };
        let context = format!("{level} {layout:?} {bitmap:?}");
        let it = Replaceable::created(level, slots, 2, |request| {
            request.layout = layout.or(request.layout);
            request.bitmap = bitmap;
        });
        let array = it.run();
        let mut load = Load::of(&array);
        load.beside(&array, || {
            it.replace(&array, 1, slots, Vec::new()).expect("it is replaced");
            wait_for(&array, "it is filled", |status| status.rebuild_sectors.1 > 0);
            let work = array.background().first().map(|status| status.work);
            assert_eq!(work, Some(BackgroundWork::Replace), "{context}");
            assert_eq!(work.map(BackgroundWork::name), Some("recover"));
            let again = it.replace(&array, 1, slots + 1, Vec::new());
            let replaced = ReplaceRefusal::Replaced;
            assert!(
                matches!(again, Err(AddError::NotReplaceable(MemberIdx(1), why)) if why == replaced)
            );
            wait_has_slot(&array, 1);
            // What has the slot is at the second place: the next one is at the first.
            it.replace(&array, 1, slots + 1, Vec::new()).expect("it is replaced again");
            wait_has_slot(&array, 1);
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (0..slots).map(|at| if at == 1 { slots + 1 } else { at }).collect();
        // Its data are needed for this.
        assert!(it.contents(&all[1..]) == expected, "{context}");
        let everything: Vec<usize> = (0..slots + 2).collect();
        let active = MemberState::Active(MemberIdx(1));
        assert_eq!(it.state(&everything, slots + 1), active, "{context}");
        for former in [1, slots] {
            let state = it.state(&everything, former);
            assert!(!matches!(state, MemberState::Active(_)), "{context}: {state:?}");
        }
    }
}

#[test]
fn a_new_device_gets_the_slot_of_a_failed_member_beside_a_load() {
    let of = |array: &Array| {
        let all = array.devices().into_iter().map(|device| device.status);
        all.map(|it| (it.number.0, it.slot.map(|slot| slot.0), it.condition)).collect::<Vec<_>>()
    };
    for (level, _, slots) in levels().into_iter().step_by(2) {
        let it = Replaceable::new(level, slots, 2, BitmapOption::None);
        let array = it.run();
        let mut load = Load::of(&array);
        let number = slots as u32;
        load.beside(&array, || {
            let early = it.add(&array, 1, slots);
            assert!(matches!(early, Err(AddError::NotEmpty(MemberIdx(1)))), "{early:?}");
            array.fail_member(MemberIdx(1));
            wait_for(&array, "it is out", |status| status.degraded == 1);
            assert_eq!(of(&array)[1], (1, Some(1), DeviceCondition::Failed));
            it.add(&array, 1, slots).expect("the slot is empty");
            let again = it.add(&array, 1, slots + 1);
            assert!(matches!(again, Err(AddError::NotEmpty(MemberIdx(1)))), "{again:?}");
            wait_for(&array, "it is rebuilt", |status| status.rebuild_sectors.1 > 0);
            let (_, slot, condition) = of(&array)[slots];
            let is_rebuilt = matches!(condition, DeviceCondition::Rebuilding { sectors, .. }
                if sectors > 0);
            assert!(slot == Some(1) && is_rebuilt, "{condition:?}");
            wait_has_slot(&array, 1);
        });
        let devices = array.devices();
        assert!(devices[slots].name.ends_with(&format!("m{slots}")), "{devices:?}");
        let mut expected: Vec<_> =
            (0..number).map(|at| (at, Some(at as u16), DeviceCondition::InSync)).collect();
        expected[1].2 = DeviceCondition::Failed;
        expected.push((number, Some(1), DeviceCondition::InSync));
        assert_eq!(of(&array), expected, "{level}");
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (2..=slots).collect();
        assert!(it.contents(&all) == expected, "{level}");
        assert_eq!(it.state(&all, slots), MemberState::Active(MemberIdx(1)), "{level}");
    }
}

#[test]
fn a_replacement_that_fails_leaves_the_member_and_a_member_that_fails_leaves_the_replacement() {
    for (level, _, slots) in levels() {
        let it = Replaceable::new(level, slots, 2, BitmapOption::None);
        let array = it.run();
        let mut load = Load::of(&array);
        load.beside(&array, || {
            it.replace(&array, 0, slots, vec![Fault::Gone { after: 60 }]).expect("replaced");
            wait_event(&array, "it fails", |event| {
                matches!(event, Event::ReplacementFailed { member: MemberIdx(0), .. })
            });
            wait_for(&array, "nothing is lost", |status| {
                status.degraded == 0 && status.replacing.is_empty()
            });
            it.replace(&array, 0, slots + 1, Vec::new()).expect("replaced");
            wait_for(&array, "it is filled", |status| {
                status.replacing.contains(0) && status.rebuild_sectors.1 > 0
            });
            array.fail_member(MemberIdx(0));
            wait_has_slot(&array, 0);
            wait_for(&array, "nothing is lost", |status| status.degraded == 0);
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (1..slots).chain([slots + 1]).collect();
        assert!(it.contents(&all) == expected, "{level}");
        // Without another one, the new one is needed.
        assert!(it.contents(&all[1..]) == expected, "{level}");
    }
}

#[test]
fn a_stop_in_the_middle_is_continued_by_the_next_start() {
    for (level, _, slots) in levels() {
        let it = Replaceable::new(level, slots, 1, BitmapOption::None);
        let array = it.run();
        let mut load = Load::of(&array);
        array.set_pace(Pace { most_kib_per_s: Some(8_000), ..Pace::default() });
        load.beside(&array, || {
            it.replace(&array, 1, slots, Vec::new()).expect("replaced");
            wait_for(&array, "a part is there", |status| {
                let (all, done) = status.rebuild_sectors;
                status.replacing.contains(1) && done > all / 8
            });
            array.pause_background(BackgroundWork::Replace, true);
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped");
        let all: Vec<usize> = (0..=slots).collect();
        let state = it.state(&all, slots);
        let MemberState::Replacement { slot: MemberIdx(1), up_to: Some(1..) } = state else {
            panic!("{level}: {state:?}");
        };
        let array = Array::run_shards(it.shards(&all, None)).unwrap();
        wait_has_slot(&array, 1);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (0..=slots).filter(|at| *at != 1).collect();
        assert!(it.contents(&all[1..]) == expected, "{level}");
    }
}

#[test]
fn a_replacement_that_is_cancelled_is_out_and_its_member_serves_on() {
    let it = Replaceable::new(Level::Raid5, 3, 2, BitmapOption::None);
    let array = it.run();
    let mut load = Load::of(&array);
    load.beside(&array, || {
        it.replace(&array, 2, 3, Vec::new()).expect("replaced");
        // At once, and in the middle.
        array.cancel_replacement(MemberIdx(2));
        wait_for(&array, "it is out", |status| status.replacing.is_empty() && status.joining == 0);
        it.replace(&array, 2, 4, Vec::new()).expect("replaced");
        wait_for(&array, "it is filled", |status| status.rebuild_sectors.1 > 0);
        array.cancel_replacement(MemberIdx(2));
        wait_for(&array, "it is out", |status| status.replacing.is_empty());
    });
    let expected = load.contents(array.len_bytes() as usize);
    array.stop().expect("stopped clean");
    assert!(it.contents(&[0, 2]) == expected);
    assert_eq!(it.state(&[0, 1, 2], 2), MemberState::Active(MemberIdx(2)));
}

#[test]
fn a_spare_replaces_a_member_when_that_is_ordered() {
    let it = Replaceable::created(Level::Raid6, 5, 0, |request| request.raid_devices = 4);
    let array = Array::run_shards(it.shards(&[0, 1, 2, 3, 4], None)).unwrap();
    let mut load = Load::of(&array);
    load.beside(&array, || {
        let other = array.replace_by_spare(MemberIdx(0), DeviceNumber(9)).unwrap();
        assert!(matches!(other, Err(AddError::NoSpare(DeviceNumber(9)))));
        let taken = array.replace_by_spare(MemberIdx(0), DeviceNumber(4)).unwrap();
        taken.expect("it is a spare");
        wait_has_slot(&array, 0);
    });
    let expected = load.contents(array.len_bytes() as usize);
    array.stop().expect("stopped clean");
    assert!(it.contents(&[4, 3]) == expected);
    assert_eq!(it.state(&[0, 1, 2, 3, 4], 4), MemberState::Active(MemberIdx(0)));
}

#[test]
fn what_cannot_be_replaced_is_refused_with_the_reason() {
    let refused =
        |it: &Replaceable, array: &Array, slot| match it.replace(array, slot, it.slots, Vec::new())
        {
            Err(error) => error.to_string(),
            Ok(()) => panic!("it is replaced"),
        };
    let it = Replaceable::new(Level::Raid5, 3, 2, BitmapOption::None);
    let array = it.run();
    assert!(refused(&it, &array, 3).contains("no member that is in sync"));
    array.fail_member(MemberIdx(1));
    wait_for(&array, "it is lost", |status| status.degraded == 1);
    assert!(refused(&it, &array, 1).contains("no member that is in sync"));
    let (_, device) = it.device(3, Vec::new().into());
    let small = FileMember::of_device(&it.members.device(4, Access::ReadWrite), 4096..8192);
    let small = array.replace_device(MemberIdx(0), Box::new(small), device).unwrap();
    assert!(matches!(small, Err(AddError::TooSmall { has: 4096, .. })), "{small:?}");
    array.stop().expect("stopped");

    let log = Replaceable::created(Level::Raid5, 3, 1, |request| {
        request.policy = Some(Policy::Ppl);
    });
    let array = log.run();
    assert!(refused(&log, &array, 0).contains("partial parity log"));
    array.stop().expect("stopped");

    let old = Replaceable::created(Level::Raid5, 3, 1, |request| {
        (request.version, request.name) = (Version::V0_90, String::new());
    });
    let array = old.run();
    assert!(refused(&old, &array, 0).contains("0.90 cannot record a replacement"));
    array.stop().expect("stopped");
}

/// What hangs here moves its data only when the hang ends.
#[test]
fn a_replacement_that_hangs_is_out_and_so_is_a_member_whose_replacement_serves_on() {
    let limit = Duration::from_secs(2);
    let hangs = || vec![Fault::Hang { ops: 0..u64::MAX, nanos: 6_000_000_000 }];
    for (level, slots) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let it = Replaceable::new(level, slots, 3, BitmapOption::None);
        let all: Vec<usize> = (0..slots).collect();
        let array = Array::run_shards(it.shards(&all, Some(limit))).unwrap();
        let mut load = Load::of(&array);
        let control = FaultControl::default();
        load.beside(&array, || {
            it.replace(&array, 1, slots, hangs()).expect("replaced");
            wait_event(&array, "it is late", |event| {
                matches!(event, Event::ReplacementFailed { member: MemberIdx(1), .. })
            });
            // One that hangs when it is a member, and is being replaced itself.
            control.set_on(false);
            let faults = Faults(hangs(), control.clone());
            it.replace(&array, 1, slots + 1, faults).expect("replaced");
            wait_has_slot(&array, 1);
        });
        load.beside(&array, || {
            // Slow until the other hangs: it must not be complete by then.
            let slow = FaultControl::default();
            let faults = Faults(vec![Fault::Delay { nanos: 200_000_000 }], slow.clone());
            it.replace(&array, 1, slots + 2, faults).expect("replaced");
            wait_for(&array, "it is filled", |status| {
                status.replacing.contains(1) && status.rebuild_sectors.1 > 0
            });
            control.set_on(true);
            slow.set_on(false);
            let is_late = |event: &Event| {
                matches!(event, Event::MemberFailed { member: MemberIdx(1), error: Some(_) })
            };
            let what = "it is late, and what replaces it has the slot";
            wait_events(&array, what, &[&is_late, &|event| has_slot(event, 1)]);
            wait_for(&array, "nothing is lost", |status| status.degraded == 0);
        });
        let expected = load.contents(array.len_bytes() as usize);
        array.stop().expect("stopped clean");
        let all: Vec<usize> = (0..slots).map(|at| if at == 1 { slots + 2 } else { at }).collect();
        assert!(it.contents(&all[1..]) == expected, "{level}");
    }
}

testkit::repeat_in_shards! {
    a_replacement_takes_the_slot_beside_a_load_and_so_does_its_own,
    a_new_device_gets_the_slot_of_a_failed_member_beside_a_load,
    a_replacement_that_fails_leaves_the_member_and_a_member_that_fails_leaves_the_replacement,
    a_stop_in_the_middle_is_continued_by_the_next_start,
    a_replacement_that_is_cancelled_is_out_and_its_member_serves_on,
    a_spare_replaces_a_member_when_that_is_ordered,
    what_cannot_be_replaced_is_refused_with_the_reason,
    a_replacement_that_hangs_is_out_and_so_is_a_member_whose_replacement_serves_on,
}
