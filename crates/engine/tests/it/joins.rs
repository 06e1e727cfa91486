//! Devices that are put into slots while the array runs: what the metadata manager makes of
//! failures in between, and what it writes to them first.

use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::ondisk::{Role, Timestamp};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Sector};
use raidlab_engine::{
    Control, ControlEvent, DEFAULT_CHECKPOINT_NANOS, DeviceCondition, DeviceNumber, JoinRefusal,
    ManagedBitmap, ManagedDevice, MemberFlags, MetaToken, MetadataConfig, MetadataEffect,
    MetadataInput, MetadataManager, Record, RemoveRefusal,
};

/// A RAID 1 of two members in two shards, with a spare, driven by hand.
struct Driven {
    manager: MetadataManager,
    writes: Vec<MetaToken>,
    /// Device and page of every bitmap page that was written.
    pages: Vec<(u32, u32)>,
    joins: Vec<DeviceNumber>,
    /// Device and place.
    removed: Vec<(u32, Option<MemberIdx>)>,
    /// Shard and slot of all flags that shards got.
    flags: Vec<(u16, MemberIdx, MemberFlags)>,
    /// What the last superblock says.
    written: Vec<Option<DeviceState>>,
    /// What superblocks of device 2 said of itself.
    own: Vec<DeviceState>,
}

impl Driven {
    fn new(sectors: u64, has_bitmap: bool, spares: u32) -> Driven {
        let geometry = Geometry::new(&GeometrySpec {
            level: Level::Raid1,
            layout: Layout::None,
            chunk_sectors: 0,
            member_sectors: vec![sectors; 2],
        });
        let slot = |at: u32| (at < 2).then_some(MemberIdx(at as u16));
        let role = |at: u32| slot(at).map_or(Role::Spare, |slot| Role::Slot(slot.0));
        let all = 0..2 + spares;
        let state = ArrayState {
            events: 10,
            updated: Timestamp::default(),
            resync_offset: None,
            policy: if has_bitmap { Policy::Bitmap } else { Policy::Resync },
            devices: all
                .clone()
                .map(|at| {
                    let (write_mostly, failfast) = (at == 2, at == 3);
                    Some(DeviceState { write_mostly, failfast, ..DeviceState::new(role(at)) })
                })
                .collect(),
        };
        let device = |at| ManagedDevice {
            number: DeviceNumber(at),
            slot: slot(at),
            events: 10,
            is_spare: slot(at).is_none(),
            replaces: false,
        };
        let bitmap = ManagedBitmap {
            chunk_sectors: 8,
            daemon_sleep_nanos: 5_000_000_000,
            events_cleared: 3,
            bits: vec![0; (sectors / 64) as usize],
            stale: false,
        };
        let manager = MetadataManager::new(MetadataConfig {
            geometry: geometry.expect("sound"),
            shards: 2,
            devices: all.map(device).collect(),
            found: state.clone(),
            state,
            bitmap: has_bitmap.then_some(bitmap),
            superblocks_in_turn: false,
            checkpoint_nanos: DEFAULT_CHECKPOINT_NANOS,
            bits_ahead_nanos: 0,
        });
        Driven {
            manager,
            writes: Vec::new(),
            pages: Vec::new(),
            joins: Vec::new(),
            removed: Vec::new(),
            flags: Vec::new(),
            written: Vec::new(),
            own: Vec::new(),
        }
    }

    fn input(&mut self, input: MetadataInput) {
        let mut out = Vec::new();
        self.manager.handle(1_000_000_000, &mut vec![input], &mut out);
        for effect in out {
            match effect {
                MetadataEffect::WriteMeta { token, device, record } => {
                    match record {
                        Record::Bitmap(page) => self.pages.push((device.0, page.page)),
                        Record::Superblock(state) => {
                            self.written.clone_from(&state.devices);
                            let own = state.devices.get(2).filter(|_| device.0 == 2);
                            self.own.extend(own.cloned().flatten());
                        }
                        Record::EndPpl | Record::EmptyPpl => {}
                    }
                    self.writes.push(token);
                }
                MetadataEffect::Flush { token, .. } => self.writes.push(token),
                MetadataEffect::Join { device, .. } => self.joins.push(device),
                MetadataEffect::Removed { device, place } => self.removed.push((device.0, place)),
                MetadataEffect::ToShard { shard, control: Control::SetFlags { member, flags } } => {
                    self.flags.push((shard, member, flags));
                }
                _ => {}
            }
        }
    }

    fn event(&mut self, shard: u16, event: ControlEvent) {
        self.input(MetadataInput::FromShard { shard, event });
    }

    /// A shard drops member 1.
    fn fails(&mut self, shard: u16, epoch: u64) {
        self.event(shard, ControlEvent::MemberFailed { member: MemberIdx(1), error: None, epoch });
    }

    /// A shard binds a new member 1.
    fn binds(&mut self, shard: u16) {
        self.event(shard, ControlEvent::RebuildBegan { member: MemberIdx(1) });
    }

    /// All writes end.
    fn settle(&mut self) {
        while let Some(token) = self.writes.pop() {
            self.input(MetadataInput::MetaDone { token, result: Ok(()) });
        }
    }

    /// What is being rebuilt is complete, and recorded so.
    fn rebuilt(&mut self) {
        for run in 0..9 {
            let (member, position, stalled) = (None, u64::MAX, None);
            self.input(MetadataInput::RebuildAt { run, member, position, stalled });
            self.settle();
        }
    }

    /// Member 1 is lost, and a spare is to be bound.
    fn lose(&mut self) {
        for shard in 0..2 {
            self.fails(shard, 1);
            self.settle();
        }
        assert_eq!(self.joins, [DeviceNumber(2)]);
    }
}

#[test]
fn a_device_that_a_shard_drops_before_all_have_bound_it_gets_no_slot() {
    let mut array = Driven::new(1024, false, 2);
    array.lose();
    array.binds(0);
    array.fails(0, 2);
    array.settle();
    array.binds(1);
    array.settle();
    let status = array.manager.status();
    assert!(status.rebuilding.is_empty(), "it would never be written in shard 0: {status:?}");
    assert_eq!(array.joins, [DeviceNumber(2), DeviceNumber(3)], "the next spare is taken");
    // What the other shard says of it when it drops it does not concern the next one.
    array.fails(1, 2);
    array.settle();
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    assert_eq!(array.manager.status().rebuilding.len(), 1);
}

#[test]
fn a_device_that_cannot_be_bound_leaves_the_slot_to_the_next_spare() {
    let mut array = Driven::new(1024, false, 2);
    array.lose();
    array.input(MetadataInput::JoinFailed { place: MemberIdx(1) });
    assert_eq!(array.joins, [DeviceNumber(2), DeviceNumber(3)]);
}

#[test]
fn a_device_that_joins_keeps_its_flags_in_the_shards_and_in_the_superblocks() {
    let of = |device: &Option<DeviceState>| {
        let DeviceState { role, write_mostly, failfast, .. } = device.clone().expect("listed");
        (role, write_mostly, failfast)
    };
    let mut array = Driven::new(1024, false, 1);
    array.lose();
    array.binds(0);
    array.settle();
    assert!(array.flags.is_empty(), "it has no slot yet");
    array.binds(1);
    array.settle();
    let flags = MemberFlags { write_mostly: true, failfast: false };
    assert_eq!(array.flags, [0, 1].map(|shard| (shard, MemberIdx(1), flags)));
    array.rebuilt();
    assert_eq!(of(&array.written[2]), (Role::Slot(1), true, false), "a spare");

    let mut array = Driven::new(1024, false, 0);
    (0..2).for_each(|shard| array.fails(shard, 1));
    array.settle();
    let (number, member) = (DeviceNumber(5), MemberIdx(1));
    let flags = MemberFlags { write_mostly: true, failfast: true };
    array.input(MetadataInput::Join { number, member, flags, former: None });
    array.settle();
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    assert_eq!(array.flags, [0, 1].map(|shard| (shard, member, flags)));
    array.rebuilt();
    assert_eq!(of(&array.written[5]), (Role::Slot(1), true, true), "a new device");
}

#[test]
fn all_of_the_bitmap_is_on_a_device_that_joins_while_a_page_is_written() {
    let sectors = 8 * 100_000;
    let mut array = Driven::new(sectors, true, 1);
    array.lose();
    array.event(0, ControlEvent::Intent { first_bit: 0, bits: 1 });
    array.settle();
    array.binds(0);
    // A bit of page 2 is being written when the last shard binds the device.
    array.event(0, ControlEvent::Intent { first_bit: 70_000, bits: 1 });
    assert!(!array.writes.is_empty());
    array.pages.clear();
    array.binds(1);
    array.settle();
    array.rebuilt();
    assert!(array.manager.status().rebuilding.is_empty(), "it is in sync");
    let lacks: Vec<u32> = (0..4).filter(|page| !array.pages.contains(&(2, *page))).collect();
    assert_eq!(lacks, [0; 0], "pages that the device does not have");
}

#[test]
fn no_superblock_records_a_range_as_in_sync_without_the_entry_in_it() {
    let mut array = Driven::new(1024, false, 1);
    array.lose();
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    let reports = |array: &mut Driven, position: u64| {
        for run in 0..9 {
            let (member, stalled) = (None, None);
            array.input(MetadataInput::RebuildAt { run, member, position, stalled });
            array.settle();
        }
    };
    reports(&mut array, 512);
    assert!(array.own.iter().all(|own| !own.bad_blocks_in_use));
    array.own.clear();
    // Of a place that nothing has, and of the device.
    for place in [3, 1] {
        let (member, sector, sectors) = (MemberIdx(place), Sector(512), 8);
        array.event(1, ControlEvent::BadBlocksAdded { member, sector, sectors });
    }
    array.settle();
    reports(&mut array, 1024);
    let (last, before) = array.own.split_last().expect("superblocks");
    assert_eq!((last.recovery_offset, last.bad_blocks_in_use), (None, true));
    for own in before {
        let is_behind = own.recovery_offset.is_some_and(|position| position <= 512);
        assert!(is_behind || own.bad_blocks_in_use, "{own:?}");
    }
}

#[test]
fn devices_are_listed_with_what_they_do_for_the_array() {
    use DeviceCondition::{Failed, InSync, Joining, Rebuilding, Spare};
    let check = |array: &Driven, expected: &[(u32, Option<u16>, DeviceCondition)]| {
        let all = array.manager.devices().into_iter();
        let all = all.map(|it| (it.number.0, it.slot.map(|slot| slot.0), it.condition));
        assert_eq!(all.collect::<Vec<_>>(), expected);
    };
    let mut array = Driven::new(1024, false, 1);
    check(&array, &[(0, Some(0), InSync), (1, Some(1), InSync), (2, None, Spare)]);
    array.lose();
    check(&array, &[(0, Some(0), InSync), (1, Some(1), Failed), (2, Some(1), Joining)]);
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    for run in 0..9 {
        let (member, stalled) = (None, None);
        array.input(MetadataInput::RebuildAt { run, member, position: 512, stalled });
    }
    let half = Rebuilding { position: 512, sectors: 1024 };
    check(&array, &[(0, Some(0), InSync), (1, Some(1), Failed), (2, Some(1), half)]);
    array.settle();
    array.rebuilt();
    check(&array, &[(0, Some(0), InSync), (1, Some(1), Failed), (2, Some(1), InSync)]);
    // The number of a failed device is another one's.
    array.fails(0, 2);
    array.fails(1, 2);
    array.settle();
    let (number, member) = (DeviceNumber(2), MemberIdx(1));
    assert_eq!(array.manager.may_join(number, member), Ok(()));
    array.input(MetadataInput::Join {
        number,
        member,
        flags: MemberFlags::default(),
        former: None,
    });
    check(&array, &[(0, Some(0), InSync), (1, Some(1), Failed), (2, Some(1), Joining)]);
    let again = array.manager.may_join(DeviceNumber(3), member);
    assert_eq!(again, Err(JoinRefusal::NotEmpty));
    assert_eq!(array.manager.may_join(number, member), Err(JoinRefusal::Number));
}

/// Roles by device number, as the last superblock has them.
fn roles(array: &Driven) -> Vec<Option<Role>> {
    array.written.iter().map(|device| device.as_ref().map(|device| device.role)).collect()
}

#[test]
fn a_spare_that_comes_is_on_record_and_takes_the_slot_of_the_next_member_that_fails() {
    let mut array = Driven::new(1024, true, 0);
    assert_eq!(array.manager.free_number(), DeviceNumber(2));
    let (number, flags) = (DeviceNumber(2), MemberFlags::default());
    array.input(MetadataInput::AddSpare { number, flags });
    let condition = |array: &Driven| array.manager.devices()[2].condition;
    assert_eq!(condition(&array), DeviceCondition::Joining, "no superblock lists it yet");
    array.settle();
    assert_eq!(condition(&array), DeviceCondition::Spare);
    assert_eq!(roles(&array)[2], Some(Role::Spare));
    assert_eq!(array.own.len(), 1, "its own superblock");
    assert_eq!(array.manager.may_add_spare(number), Err(JoinRefusal::Number));
    assert_eq!(array.manager.free_number(), DeviceNumber(3));
    array.lose();
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    array.rebuilt();
    assert_eq!(roles(&array), [Some(Role::Slot(0)), Some(Role::Faulty), Some(Role::Slot(1))]);
    // One that comes while a slot is empty takes it at once.
    for shard in 0..2 {
        array.fails(shard, 2);
        array.settle();
    }
    let number = DeviceNumber(3);
    array.input(MetadataInput::AddSpare { number, flags });
    array.settle();
    assert_eq!(array.joins, [DeviceNumber(2), DeviceNumber(3)]);
}

#[test]
fn no_update_that_was_made_before_a_spare_came_is_written_to_it() {
    let mut array = Driven::new(1024, false, 0);
    array.event(0, ControlEvent::Intent { first_bit: 0, bits: 1 });
    let (number, flags) = (DeviceNumber(2), MemberFlags::default());
    array.input(MetadataInput::AddSpare { number, flags });
    assert!(array.own.is_empty());
    array.settle();
    let [own] = &array.own[..] else { panic!("one superblock: {:?}", array.own) };
    assert_eq!(own.role, Role::Spare);
}

#[test]
fn a_failed_device_leaves_when_its_loss_is_on_record_and_its_number_is_free_when_it_has_left() {
    let mut array = Driven::new(1024, false, 0);
    let number = DeviceNumber(1);
    assert_eq!(array.manager.may_remove(number), Err(RemoveRefusal::InSync(MemberIdx(1))));
    assert_eq!(array.manager.may_remove(DeviceNumber(7)), Err(RemoveRefusal::Unknown));
    (0..2).for_each(|shard| array.fails(shard, 1));
    array.input(MetadataInput::Remove { number });
    let was_listed = |array: &Driven| array.written.get(1).is_some_and(Option::is_some);
    assert!(was_listed(&array), "the loss comes first: {:?}", array.written);
    assert_eq!(array.manager.may_join(number, MemberIdx(1)), Err(JoinRefusal::Number));
    while let Some(token) = array.writes.pop() {
        assert!(array.removed.is_empty());
        array.input(MetadataInput::MetaDone { token, result: Ok(()) });
    }
    assert_eq!(array.removed, [(1, Some(MemberIdx(1)))]);
    assert!(!was_listed(&array));
    assert_eq!(array.manager.devices().len(), 1);
    assert_eq!(array.manager.may_remove(number), Err(RemoveRefusal::Unknown));
    // The same number, in the same slot.
    let (member, flags) = (MemberIdx(1), MemberFlags::default());
    assert_eq!(array.manager.may_join(number, member), Ok(()));
    array.input(MetadataInput::Join { number, member, flags, former: None });
    array.settle();
    let joining = array.manager.may_remove(number);
    assert_eq!(joining, Err(RemoveRefusal::Rebuilding(member)));
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    array.rebuilt();
    assert_eq!(roles(&array), [Some(Role::Slot(0)), Some(Role::Slot(1))]);
}

#[test]
fn a_spare_that_leaves_gets_no_slot_and_no_superblock() {
    let mut array = Driven::new(1024, false, 2);
    array.input(MetadataInput::Remove { number: DeviceNumber(2) });
    assert!(array.own.is_empty());
    array.fails(0, 1);
    array.fails(1, 1);
    array.settle();
    assert_eq!(array.joins, [DeviceNumber(3)]);
    assert_eq!(array.removed, [(2, None)]);
    assert!(array.own.is_empty() && roles(&array)[2].is_none());
}

#[test]
fn a_failed_device_whose_slot_has_another_one_leaves_that_one_alone() {
    let mut array = Driven::new(1024, false, 1);
    array.lose();
    (0..2).for_each(|shard| array.binds(shard));
    array.settle();
    array.input(MetadataInput::Remove { number: DeviceNumber(1) });
    array.settle();
    assert_eq!(array.removed, [(1, None)]);
    array.rebuilt();
    assert_eq!(roles(&array), [Some(Role::Slot(0)), None, Some(Role::Slot(1))]);
}
