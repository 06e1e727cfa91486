//! The guarantees of the metadata manager, one test each: which metadata are durable on the members
//! before it answers.
//!
//! `Desk` performs the metadata manager's effects one at a time, in the order that a test chooses.

#[path = "metadata/in_progress.rs"]
mod in_progress;

use std::collections::BTreeMap;

use engine::{
    Control, ControlEvent, DEFAULT_CHECKPOINT_NANOS, DeviceNumber, ManagedBitmap, ManagedDevice,
    MemberError, MetaToken, MetadataConfig, MetadataEffect, MetadataInput, MetadataManager,
    MetadataMode, ReadOnlyReason, Record,
};
use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::ondisk::{Role, Timestamp};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Raid0Layout, Raid5Layout, Raid6Layout};

const SECOND: u64 = 1_000_000_000;

fn geometry(level: Level, members: usize) -> Geometry {
    let layout = match level {
        Level::Raid0 => Layout::Raid0(Raid0Layout::Original),
        Level::Raid5 => Layout::Raid5(Raid5Layout::LeftSymmetric),
        Level::Raid6 => Layout::Raid6(Raid6Layout::LeftSymmetric),
        _ => Layout::None,
    };
    let chunk_sectors = if level == Level::Raid1 { 0 } else { 8 };
    let member_sectors = vec![1024; members];
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors }).expect("sound")
}

/// A healthy array: device number = slot; then `spares` spares. Events 10.
fn config(level: Level, members: usize, spares: usize) -> MetadataConfig {
    let role = |at: usize| if at < members { Role::Slot(at as u16) } else { Role::Spare };
    let all = || 0..members + spares;
    let device = |at: usize| ManagedDevice {
        number: DeviceNumber(at as u32),
        slot: (at < members).then_some(MemberIdx(at as u16)),
        events: 10,
    };
    let state = ArrayState {
        events: 10,
        updated: Timestamp::default(),
        resync_offset: None,
        policy: Policy::Resync,
        devices: all().map(|at| Some(DeviceState::new(role(at)))).collect(),
    };
    MetadataConfig {
        geometry: geometry(level, members),
        shards: 1,
        devices: all().map(device).collect(),
        found: state.clone(),
        state,
        bitmap: None,
        superblocks_in_turn: false,
        checkpoint_nanos: DEFAULT_CHECKPOINT_NANOS,
    }
}

/// 128 bits of 8 sectors.
fn with_bitmap(mut config: MetadataConfig) -> MetadataConfig {
    config.state.policy = Policy::Bitmap;
    config.bitmap = Some(ManagedBitmap {
        chunk_sectors: 8,
        daemon_sleep_nanos: 5 * SECOND,
        events_cleared: 3,
        bits: vec![0; 16],
        stale: false,
    });
    config
}

struct Pending {
    token: MetaToken,
    device: u32,
    /// `None`: a flush.
    record: Option<Record>,
}

impl Pending {
    fn superblock(&self) -> Option<&ArrayState> {
        match &self.record {
            Some(Record::Superblock(state)) => Some(state),
            _ => None,
        }
    }

    fn kind(&self) -> char {
        match &self.record {
            None => 'F',
            Some(Record::Bitmap(_)) => 'B',
            Some(Record::EmptyPpl) => 'P',
            Some(Record::Superblock(_)) => 'S',
        }
    }
}

struct Desk {
    manager: MetadataManager,
    now: u64,
    pending: Vec<Pending>,
    /// Messages to shards, oldest first.
    answers: Vec<Control>,
    others: Vec<MetadataEffect>,
    timer: Option<u64>,
    /// What each device durably holds.
    superblocks: BTreeMap<u32, ArrayState>,
    pages: BTreeMap<(u32, u32), engine::BitmapPage>,
    /// Kinds of everything done, in order: F, B, P, S.
    done: String,
}

impl Desk {
    fn new(config: MetadataConfig) -> Desk {
        Desk {
            manager: MetadataManager::new(config),
            now: SECOND,
            pending: Vec::new(),
            answers: Vec::new(),
            others: Vec::new(),
            timer: None,
            superblocks: BTreeMap::new(),
            pages: BTreeMap::new(),
            done: String::new(),
        }
    }

    fn tell(&mut self, input: MetadataInput) {
        self.tell_all(vec![input]);
    }

    /// In one batch.
    fn tell_all(&mut self, mut inputs: Vec<MetadataInput>) {
        let mut out = Vec::new();
        self.manager.handle(self.now, &mut inputs, &mut out);
        for effect in out {
            match effect {
                MetadataEffect::WriteMeta { token, device, record } => {
                    self.pending.push(Pending { token, device: device.0, record: Some(record) });
                }
                MetadataEffect::Flush { token, device } => {
                    self.pending.push(Pending { token, device: device.0, record: None });
                }
                MetadataEffect::ToShard { control, .. } => self.answers.push(control),
                MetadataEffect::SetTimer { at } => self.timer = Some(at),
                other => self.others.push(other),
            }
        }
    }

    fn event(&mut self, event: ControlEvent) {
        self.tell(MetadataInput::FromShard { shard: 0, event });
    }

    fn ask(&mut self, first_bit: u32, bits: u32) {
        self.event(ControlEvent::Intent { first_bit, bits });
    }

    fn release(&mut self, first_bit: u32, bits: u32) {
        self.event(ControlEvent::Released { first_bit, bits });
    }

    fn fail(&mut self, member: u16, epoch: u64) {
        let (member, error) = (MemberIdx(member), Some(MemberError::Gone));
        self.event(ControlEvent::MemberFailed { member, error, epoch });
    }

    /// Ends the pending operation at this place of the list.
    fn finish(&mut self, at: usize, result: Result<(), MemberError>) {
        let pending = self.pending.remove(at);
        if result.is_ok() {
            self.done.push(pending.kind());
            match &pending.record {
                Some(Record::Superblock(state)) => {
                    self.superblocks.insert(pending.device, (**state).clone());
                }
                Some(Record::Bitmap(page)) => {
                    let mut page = (**page).clone();
                    let old = self.pages.get(&(pending.device, page.page));
                    page.header = page.header.or(old.and_then(|old| old.header));
                    self.pages.insert((pending.device, page.page), page);
                }
                _ => {}
            }
        }
        self.tell(MetadataInput::MetaDone { token: pending.token, result });
    }

    /// Ends everything, last first, until nothing is out.
    fn run(&mut self) {
        for _ in 0..1000 {
            let Some(last) = self.pending.len().checked_sub(1) else { return };
            self.finish(last, Ok(()));
        }
        panic!("no end of work: {:?}", self.manager.status());
    }

    /// Lets time pass; timers go off.
    fn wait(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some(at) = self.timer.filter(|at| *at <= end) {
            self.timer = None;
            self.now = self.now.max(at);
            self.tell(MetadataInput::Timer);
            self.run();
        }
        self.now = end;
    }

    fn granted(&self) -> usize {
        self.answers.iter().filter(|answer| matches!(answer, Control::Granted { .. })).count()
    }

    fn recorded(&self) -> bool {
        self.answers.iter().any(|answer| matches!(answer, Control::Recorded { .. }))
    }

    fn events(&self) -> Vec<u64> {
        self.superblocks.values().map(|state| state.events).collect()
    }

    /// The kinds of what is out now.
    fn out(&self) -> String {
        self.pending.iter().map(Pending::kind).collect()
    }

    fn bit(&self, device: u32, bit: u32) -> bool {
        let page = self.pages.get(&(device, 0)).expect("the page was written");
        page.bits[bit as usize / 8] >> (bit % 8) & 1 == 1
    }
}

#[test]
fn dirty_is_durable_on_all_serving_members_before_the_first_grant() {
    let mut desk = Desk::new(config(Level::Raid5, 3, 1));
    assert_eq!(desk.out(), "", "a start leaves no trace");
    desk.ask(0, 1);
    assert_eq!(desk.out(), "SSS", "the spare is left alone");
    for left in (0..3).rev() {
        assert_eq!(desk.granted(), 0);
        desk.finish(left, Ok(()));
    }
    assert_eq!(desk.granted(), 1);
    assert_eq!(desk.events(), [11; 3]);
    assert!(desk.superblocks.values().all(|state| state.resync_offset == Some(0)));
    desk.ask(0, 1);
    assert_eq!((desk.granted(), desk.out().as_str()), (2, ""), "another shard's is free");
}

#[test]
fn bitmap_bits_are_durable_on_all_members_before_the_grant() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    desk.ask(5, 2);
    assert_eq!(desk.out(), "BB", "the bitmap comes before the superblocks");
    desk.run();
    assert_eq!((desk.done.as_str(), desk.granted()), ("BBSS", 1));
    // The array is dirty already: bits alone.
    desk.ask(9, 1);
    assert_eq!(desk.out(), "BB");
    desk.finish(0, Ok(()));
    assert_eq!(desk.granted(), 1);
    desk.finish(0, Ok(()));
    assert_eq!(desk.granted(), 2);
    for device in 0..2 {
        let set: Vec<u32> = (0..128).filter(|bit| desk.bit(device, *bit)).collect();
        assert_eq!(set, [5, 6, 9]);
    }
    desk.release(5, 2);
    desk.ask(6, 1);
    assert_eq!((desk.granted(), desk.out().as_str()), (3, ""), "it is still set on the members");
}

#[test]
fn bitmap_header_is_never_older_than_the_superblocks() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    for round in 0..3 {
        desk.ask(round, 1);
        desk.run();
        desk.release(round, 1);
        while !desk.pending.is_empty() {
            desk.finish(0, Ok(()));
            for (device, state) in &desk.superblocks {
                let header = desk.pages[&(*device, 0)].header.expect("page 0 has it");
                assert!(header.events >= state.events, "{header:?} and {}", state.events);
            }
        }
    }
    // A header is written before superblocks with its count, by every update.
    assert_eq!(&desk.done[..12], "BBSSFFBBSSBB");
}

#[test]
fn clean_is_written_only_after_all_intents_are_back_and_the_members_are_flushed() {
    let mut config = config(Level::Raid1, 2, 0);
    config.shards = 2;
    let mut desk = Desk::new(config);
    desk.ask(0, 1);
    desk.run();
    desk.tell(MetadataInput::FromShard {
        shard: 1,
        event: ControlEvent::Intent { first_bit: 0, bits: 1 },
    });
    desk.release(0, 1);
    assert_eq!(desk.out(), "", "shard 1 still holds it");
    desk.tell(MetadataInput::FromShard {
        shard: 1,
        event: ControlEvent::Released { first_bit: 0, bits: 1 },
    });
    assert_eq!(desk.out(), "FF");
    desk.finish(0, Ok(()));
    assert_eq!(desk.out(), "F", "the other member may still lose what was written");
    desk.finish(0, Ok(()));
    assert_eq!(desk.out(), "SS");
    desk.run();
    assert!(desk.superblocks.values().all(|state| state.resync_offset.is_none()));
}

#[test]
fn a_write_that_comes_while_members_are_flushed_calls_the_clean_off() {
    let mut desk = Desk::new(config(Level::Raid1, 2, 0));
    desk.ask(0, 1);
    desk.run();
    desk.release(0, 1);
    assert_eq!(desk.out(), "FF");
    desk.ask(0, 1);
    assert_eq!(desk.granted(), 2, "the members still say dirty");
    desk.run();
    assert_eq!(desk.done, "SSFF");
    assert!(desk.manager.status().dirty);
    // Too late to call off: the grant waits until the members say dirty again.
    desk.release(0, 1);
    desk.finish(0, Ok(()));
    desk.finish(0, Ok(()));
    assert_eq!(desk.out(), "SS");
    desk.ask(0, 1);
    assert_eq!(desk.granted(), 2);
    desk.run();
    assert_eq!((desk.granted(), &desk.done[4..]), (3, "FFSSSS"));
    assert!(desk.superblocks.values().all(|state| state.resync_offset == Some(0)));
}

#[test]
fn clean_and_dirty_take_turns_between_two_counts_so_that_spares_may_sleep() {
    let mut desk = Desk::new(config(Level::Raid1, 2, 1));
    for _ in 0..3 {
        desk.ask(0, 1);
        desk.run();
        assert_eq!(desk.events(), [11; 2]);
        desk.release(0, 1);
        desk.run();
        assert_eq!(desk.events(), [10; 2]);
    }
    // Anything else counts up, and goes to spares too.
    desk.ask(0, 1);
    desk.run();
    desk.tell(MetadataInput::Stop);
    desk.release(0, 1);
    desk.run();
    assert_eq!(desk.events(), [12; 3]);
}

#[test]
fn a_failure_is_two_counts_up_on_all_survivors_before_it_is_recorded() {
    let mut desk = Desk::new(config(Level::Raid5, 4, 0));
    desk.ask(0, 1);
    desk.run();
    assert_eq!(desk.events(), [11; 4]);
    desk.fail(2, 1);
    while !desk.pending.is_empty() {
        assert!(!desk.recorded());
        // In steps of one: a survivor that is one behind is still accepted by md.
        let counts: Vec<u64> = [0, 1, 3].map(|device| desk.superblocks[&device].events).into();
        let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(high - low <= 1, "{counts:?}");
        desk.finish(0, Ok(()));
    }
    assert!(desk.recorded());
    assert_eq!(desk.events(), [13, 13, 11, 13]);
    for device in [0, 1, 3] {
        let state = desk.superblocks[&device].devices[2].as_ref().expect("it had a number");
        assert_eq!(state.role, Role::Faulty);
    }
    // Degraded: no count is ever taken back.
    desk.release(0, 1);
    desk.run();
    assert_eq!(desk.events(), [14, 14, 11, 14]);
    assert_eq!(desk.superblocks[&0].resync_offset, None, "degraded, but clean");
}

#[test]
fn a_failure_after_a_count_went_back_passes_the_highest_that_was_ever_sent() {
    let mut desk = Desk::new(config(Level::Raid1, 3, 0));
    desk.ask(0, 1);
    desk.run();
    desk.release(0, 1);
    desk.run();
    assert_eq!(desk.events(), [10; 3]);
    // It may not have got the last one: then it still holds 11.
    desk.fail(1, 1);
    desk.run();
    assert_eq!(desk.events(), [13, 10, 13]);
}

#[test]
fn a_member_missing_from_the_start_is_recorded_before_the_first_grant() {
    let mut config = config(Level::Raid5, 3, 0);
    config.devices.remove(1);
    let mut desk = Desk::new(config);
    assert_eq!(desk.out(), "");
    desk.ask(0, 1);
    while !desk.pending.is_empty() {
        assert_eq!(desk.granted(), 0);
        desk.finish(0, Ok(()));
    }
    assert_eq!((desk.granted(), desk.events()), (1, vec![13; 2]));
    let lost = desk.superblocks[&0].devices[1].as_ref().expect("it has a number");
    assert_eq!(lost.role, Role::Faulty);
}

#[test]
fn a_member_that_is_behind_gets_the_contents_of_the_freshest_and_not_the_started_state() {
    // Forced: dirty, and member 3 is missing. The array is started as a clean one.
    let mut config = config(Level::Raid5, 4, 0);
    config.devices.pop();
    config.devices[1].events = 9;
    config.found.resync_offset = Some(0);
    let found = config.found.clone();
    let mut desk = Desk::new(config);
    desk.ask(0, 1);
    assert_eq!((desk.pending.len(), desk.pending[0].device), (1, 1));
    assert_eq!(desk.pending[0].superblock(), Some(&found));
    desk.run();
    assert_eq!((desk.granted(), desk.events()), (1, vec![13; 3]));
}

#[test]
fn a_member_that_the_freshest_gives_no_slot_is_not_made_as_fresh_before_it_has_one() {
    // Forced: member 2 is far behind, and out for the others.
    let mut config = config(Level::Raid5, 4, 0);
    config.devices.pop();
    config.devices[2].events = 3;
    config.found.devices[2] = Some(DeviceState::new(Role::Faulty));
    let mut desk = Desk::new(config);
    desk.ask(0, 1);
    let events: Vec<u64> =
        desk.pending.iter().map(|pending| pending.superblock().expect("one each").events).collect();
    assert_eq!(events, [11; 3], "it would say that it has failed");
    desk.run();
    assert_eq!((desk.granted(), desk.events()), (1, vec![13; 3]));
}

#[test]
fn a_device_that_writes_pass_by_is_in_sync_nowhere_or_stale_before_the_first_grant() {
    let mut config = config(Level::Raid1, 2, 1);
    let passed_by = |recovery_offset| {
        let role = DeviceState::new(Role::Slot(0));
        Some(DeviceState { recovery_offset, replacement: true, ..role })
    };
    config.found.devices[2] = passed_by(Some(512));
    config.state.devices[2] = passed_by(Some(0));
    let mut desk = Desk::new(config.clone());
    desk.ask(0, 1);
    desk.run();
    assert_eq!((desk.granted(), desk.events()), (1, vec![13; 3]), "it has every update");
    assert_eq!(desk.superblocks[&2].devices[2], passed_by(Some(0)));
    // Without space for it.
    let mut desk = Desk::new(config);
    desk.ask(0, 1);
    while !desk.pending.is_empty() {
        let is_full = desk.pending[0].device == 2;
        desk.finish(0, if is_full { Err(MemberError::NoSpace) } else { Ok(()) });
    }
    assert_eq!((desk.granted(), desk.events()), (1, vec![13; 2]), "still 10, and too old");
}

#[test]
fn a_failed_metadata_write_fails_the_member() {
    let mut desk = Desk::new(config(Level::Raid5, 3, 0));
    desk.ask(0, 1);
    desk.finish(1, Err(MemberError::Medium));
    assert_eq!(desk.answers, [Control::FailMember(MemberIdx(1))]);
    desk.run();
    assert_eq!((desk.granted(), desk.events()), (1, vec![13; 2]));
    // The shard's own failure of it is recorded already.
    desk.fail(1, 1);
    assert!(desk.recorded());
    assert_eq!(desk.out(), "");
}

#[test]
fn too_few_members_with_the_new_count_make_the_array_read_only() {
    let mut desk = Desk::new(config(Level::Raid5, 3, 0));
    desk.ask(0, 1);
    desk.finish(1, Err(MemberError::Gone));
    desk.fail(1, 1);
    desk.finish(0, Err(MemberError::Gone));
    let why = ReadOnlyReason::MetadataUnwritable { device: DeviceNumber(0) };
    assert!(desk.others.contains(&MetadataEffect::BecameReadOnly { why }), "{:?}", desk.others);
    assert_eq!(desk.manager.status().mode, MetadataMode::ReadOnly(why));
    assert!(desk.answers.contains(&Control::ReadOnly));
    assert!(desk.answers.contains(&Control::NotRecorded { epoch: 1 }));
    assert!(!desk.recorded() && desk.granted() == 0);
    desk.run();
    desk.ask(0, 1);
    assert_eq!(desk.answers.last(), Some(&Control::ReadOnly));
    desk.tell(MetadataInput::Stop);
    assert_eq!(desk.others.last(), Some(&MetadataEffect::Stopped { clean: false }));
    assert!(!desk.done.contains('B') && desk.out().is_empty());
}

#[test]
fn bits_fade_after_two_idle_periods_behind_a_flush_and_never_while_degraded() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 3, 0)));
    desk.ask(5, 2);
    desk.run();
    desk.release(6, 1);
    desk.wait(10 * SECOND);
    assert!(desk.bit(0, 6), "two whole periods");
    desk.done.clear();
    desk.wait(6 * SECOND);
    assert!(!desk.bit(0, 6) && !desk.bit(2, 6) && desk.bit(1, 5));
    // The count at which bits went is durable before they go.
    assert_eq!(desk.done, "FFFBBBBBB");
    assert_eq!(desk.pages[&(0, 0)].header.expect("page 0").events_cleared, 11);
    desk.release(5, 1);
    desk.run();
    let header = desk.pages[&(0, 0)].header.expect("page 0");
    assert_eq!((desk.events(), header.events_cleared), (vec![10; 3], 10), "as md: never ahead");
    desk.fail(0, 1);
    desk.run();
    desk.wait(100 * SECOND);
    assert!(desk.bit(1, 5), "a member that comes back needs it");
    desk.tell(MetadataInput::Stop);
    desk.run();
    assert!(desk.bit(1, 5));
}

#[test]
fn bits_requested_while_being_cleared_are_set_again_before_the_grant() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    desk.ask(7, 1);
    desk.ask(8, 1);
    desk.run();
    desk.release(7, 1);
    for _ in 0..3 {
        desk.now = desk.timer.take().expect("the daemon ticks");
        desk.tell(MetadataInput::Timer);
    }
    assert_eq!(desk.out(), "FF");
    for _ in 0..4 {
        desk.finish(0, Ok(()));
    }
    assert_eq!(desk.out(), "BB", "the page without the bit");
    let granted = desk.granted();
    desk.ask(7, 1);
    desk.finish(0, Ok(()));
    assert!(desk.granted() == granted && !desk.bit(0, 7));
    desk.run();
    assert!(desk.granted() == granted + 1 && desk.bit(0, 7) && desk.bit(1, 7));
}

#[test]
fn a_bit_requested_after_it_has_faded_is_not_cleared_for_ever() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    desk.ask(7, 1);
    desk.ask(8, 1);
    desk.run();
    desk.release(7, 1);
    for _ in 0..2 {
        desk.now = desk.timer.take().expect("the daemon ticks");
        desk.tell(MetadataInput::Timer);
    }
    desk.now = desk.timer.take().expect("the daemon ticks");
    let event = ControlEvent::Intent { first_bit: 7, bits: 1 };
    desk.done.clear();
    desk.tell_all(vec![MetadataInput::FromShard { shard: 0, event }, MetadataInput::Timer]);
    desk.run();
    assert_eq!(desk.done, "", "there is nothing to clear");
    assert!(desk.bit(0, 7), "it is held");
    // Given back, it fades as before.
    desk.release(7, 1);
    desk.wait(30 * SECOND);
    assert!(!desk.bit(0, 7) && desk.bit(0, 8));
}

#[test]
fn a_stop_ends_while_bits_are_in_need_of_a_resync() {
    let mut config = with_bitmap(config(Level::Raid1, 2, 0));
    config.state.resync_offset = Some(0);
    config.bitmap.as_mut().expect("it has one").bits = vec![0b1010_0000; 16];
    let mut desk = Desk::new(config);
    // Bit 5 is in need, and written to as well; bit 6 is written to only.
    desk.ask(5, 2);
    desk.run();
    desk.release(5, 2);
    desk.tell(MetadataInput::Stop);
    desk.run();
    assert_eq!(desk.others, [MetadataEffect::Stopped { clean: true }]);
    assert!(desk.bit(0, 5) && desk.bit(0, 7) && !desk.bit(0, 6));
    assert_eq!(desk.superblocks[&0].resync_offset, Some(0));
}

/// A mirror whose bitmap has two pages: what every device has of it is written by `run`.
fn with_two_pages(stale: bool) -> MetadataConfig {
    let mut config = config(Level::Raid1, 2, 0);
    let member_sectors = vec![8 * 32_000; 2];
    let (level, layout) = (Level::Raid1, Layout::None);
    let spec = GeometrySpec { level, layout, chunk_sectors: 0, member_sectors };
    config.geometry = Geometry::new(&spec).expect("sound");
    config.state.resync_offset = Some(0);
    config.state.policy = Policy::Bitmap;
    config.bitmap = Some(ManagedBitmap {
        chunk_sectors: 8,
        daemon_sleep_nanos: 5 * SECOND,
        events_cleared: 3,
        bits: vec![if stale { 0 } else { 0xff }; 4000],
        stale,
    });
    config
}

#[test]
fn a_stale_bitmap_gets_all_its_bits_before_its_header() {
    for (by_resync, order) in [(false, "BBBBBBSS"), (true, "FFBBBBBBSS")] {
        let mut desk = Desk::new(with_two_pages(true));
        if by_resync {
            let run = desk.manager.resync().expect("it is needed").run();
            desk.tell(MetadataInput::ResyncAt { run, position: 800, stalled: None });
            desk.wait(20 * SECOND);
            assert_eq!(desk.done, "", "nothing is cleared while the others are not set");
            desk.tell(MetadataInput::ResyncAt { run, position: 8 * 10_000, stalled: None });
        } else {
            desk.ask(0, 1);
        }
        let mut fresh = 0;
        for _ in 0..order.len() {
            desk.finish(0, Ok(()));
            for device in 0..2 {
                let page = |number| desk.pages.get(&(device, number));
                // A crash may tear the page with the header, too.
                let set = |page: &engine::BitmapPage, from: usize| {
                    page.bits[from..].iter().all(|byte| *byte == 0xff)
                };
                let is_fresh = page(0).is_some_and(|page| page.header.is_some());
                let first = page(0).is_some_and(|page| set(page, 1300));
                let all = first && page(1).is_some_and(|page| set(page, 0));
                assert!(all || !is_fresh, "device {device}");
                fresh += u32::from(is_fresh);
            }
        }
        assert!(fresh > 0 && desk.done == order, "{fresh} {}", desk.done);
        desk.run();
    }
}

#[test]
fn a_bitmap_that_is_not_stale_gets_bits_and_header_in_one_phase() {
    let mut desk = Desk::new(with_two_pages(false));
    desk.ask(0, 1);
    desk.run();
    assert_eq!(desk.done, "BBBBSS");
}

#[test]
fn metadata_without_space_fails_no_member_and_refuses_waiting_requests() {
    for bitmap in [false, true] {
        let mut config = config(Level::Raid5, 3, 0);
        if bitmap {
            config = with_bitmap(config);
        }
        let mut desk = Desk::new(config);
        let refused = Control::NotGranted { first_bit: 0, bits: 1 };
        for _ in 0..3 {
            desk.ask(0, 1);
            let full = desk.pending.iter().position(|pending| pending.device == 1);
            desk.finish(full.expect("retried"), Err(MemberError::NoSpace));
            desk.run();
            assert_eq!((desk.answers.last(), desk.granted()), (Some(&refused), 0));
            assert_eq!(desk.manager.status().degraded, 0);
            assert_eq!(desk.out(), "", "it is not retried repeatedly");
        }
        desk.ask(0, 1);
        desk.run();
        assert_eq!(desk.granted(), 1);
        assert!(desk.superblocks.values().all(|state| state.resync_offset == Some(0)));
        // Bits alone.
        if bitmap {
            desk.ask(9, 1);
            desk.finish(0, Err(MemberError::NoSpace));
            desk.run();
            let refused = Control::NotGranted { first_bit: 9, bits: 1 };
            assert_eq!((desk.answers.last(), desk.granted()), (Some(&refused), 1));
            desk.ask(9, 1);
            desk.run();
            assert_eq!(desk.granted(), 2);
            assert!((0..3).all(|device| desk.bit(device, 9)));
        }
    }
}

#[test]
fn superblocks_that_only_some_members_had_room_for_are_written_again_with_the_same_count() {
    let mut desk = Desk::new(config(Level::Raid1, 3, 0));
    desk.ask(0, 1);
    desk.finish(1, Err(MemberError::NoSpace));
    desk.run();
    assert_eq!(desk.events(), [11, 11], "devices 0 and 2");
    // Without a request: on the timer.
    desk.wait(2 * SECOND);
    assert_eq!(desk.events(), [10; 3], "and clean again");
    assert_eq!(desk.done, "SSSFFFSSS", "what is on a member is not written to it again");
    assert!(desk.superblocks.values().all(|state| state.resync_offset.is_none()));
    // A stop without room is reported.
    desk.ask(0, 1);
    desk.run();
    desk.release(0, 1);
    (0..3).for_each(|_| desk.finish(0, Ok(())));
    desk.finish(0, Err(MemberError::NoSpace));
    desk.run();
    desk.tell(MetadataInput::Stop);
    desk.finish(0, Err(MemberError::NoSpace));
    desk.run();
    assert_eq!(desk.others, [MetadataEffect::Stopped { clean: false }]);
}

#[test]
fn a_loss_without_space_to_record_it_fails_waiting_requests_and_is_retried() {
    let mut desk = Desk::new(config(Level::Raid5, 4, 0));
    desk.ask(0, 1);
    desk.run();
    desk.fail(2, 1);
    desk.finish(0, Err(MemberError::NoSpace));
    desk.run();
    assert_eq!(desk.answers.last(), Some(&Control::NoSpaceToRecord));
    assert!(!desk.recorded() && desk.out().is_empty());
    assert_eq!(desk.manager.status().degraded, 1, "no other member is lost");
    desk.wait(2 * SECOND);
    assert!(desk.recorded());
    assert_eq!(desk.events(), [13, 13, 11, 13]);
}

#[test]
fn a_loss_that_a_read_only_array_cannot_record_blocks_no_request() {
    let mut desk = Desk::new(config(Level::Raid5, 4, 0));
    desk.ask(0, 1);
    desk.run();
    desk.fail(2, 1);
    desk.finish(0, Err(MemberError::NoSpace));
    desk.run();
    desk.tell(MetadataInput::ReadOnly);
    desk.release(0, 1);
    // Tried once more, in vain.
    desk.finish(0, Err(MemberError::NoSpace));
    desk.run();
    let why = ReadOnlyReason::Ordered;
    assert_eq!(desk.others[1..], [MetadataEffect::BecameReadOnly { why }]);
    assert_eq!(desk.answers.last(), Some(&Control::NotRecorded { epoch: 1 }));
}

#[test]
fn a_spare_without_space_gets_the_next_update() {
    let mut desk = Desk::new(config(Level::Raid1, 2, 1));
    desk.ask(0, 1);
    desk.run();
    desk.fail(0, 1);
    let spare = desk.pending.iter().position(|pending| pending.device == 2).expect("it is updated");
    desk.finish(spare, Err(MemberError::NoSpace));
    desk.run();
    assert!(desk.recorded() && desk.others.len() == 1, "only device 0 is lost: {:?}", desk.others);
    assert_eq!(desk.superblocks[&2].events, 13, "by the second step");
}

#[test]
fn long_superblocks_are_written_one_after_the_other() {
    let mut desk =
        Desk::new(MetadataConfig { superblocks_in_turn: true, ..config(Level::Raid6, 5, 0) });
    desk.ask(0, 1);
    for _ in 0..5 {
        assert_eq!((desk.out().as_str(), desk.granted()), ("S", 0));
        desk.finish(0, Ok(()));
    }
    assert_eq!(desk.granted(), 1);
}

#[test]
fn no_second_long_superblock_is_written_where_one_may_be_torn() {
    let mut desk =
        Desk::new(MetadataConfig { superblocks_in_turn: true, ..config(Level::Raid6, 5, 0) });
    desk.ask(0, 1);
    desk.finish(0, Ok(()));
    desk.finish(0, Err(MemberError::NoSpace));
    assert_eq!(desk.out(), "", "three members have whole ones");
    let refused = Control::NotGranted { first_bit: 0, bits: 1 };
    assert_eq!((desk.answers.last(), desk.granted()), (Some(&refused), 0));
    desk.ask(0, 1);
    desk.run();
    assert_eq!((desk.granted(), desk.events()), (1, vec![11; 5]));
}

#[test]
fn superblocks_of_levels_without_redundancy_are_never_written() {
    let mut desk = Desk::new(config(Level::Raid0, 2, 0));
    assert_eq!(desk.manager.intent_map(), None);
    desk.ask(0, 1);
    assert_eq!(desk.granted(), 1);
    desk.release(0, 1);
    desk.tell(MetadataInput::Stop);
    assert_eq!(desk.others, [MetadataEffect::Stopped { clean: true }]);
    assert_eq!(desk.out(), "");
}

#[test]
fn stop_clears_the_bits_flushes_and_leaves_clean_superblocks() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    desk.ask(5, 2);
    desk.run();
    desk.tell(MetadataInput::Stop);
    assert_eq!(desk.answers.last(), Some(&Control::ReadOnly), "shards give back what they hold");
    assert_eq!(desk.out(), "");
    desk.done.clear();
    desk.release(5, 2);
    desk.run();
    assert_eq!(desk.others, [MetadataEffect::Stopped { clean: true }]);
    assert_eq!(desk.done, "FFBBBBFFBBSS");
    assert!((0..128).all(|bit| !desk.bit(0, bit)));
    assert!(desk.superblocks.values().all(|state| state.resync_offset.is_none()));
    let mut untouched = Desk::new(config(Level::Raid1, 2, 0));
    untouched.tell(MetadataInput::Stop);
    assert_eq!((untouched.out().as_str(), untouched.others.len()), ("", 1), "nothing to say");
}

#[test]
fn ppl_is_dropped_while_dirty_and_comes_back_empty_at_a_clean_stop() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.policy = Policy::Ppl;
    let mut desk = Desk::new(config);
    desk.ask(0, 1);
    desk.run();
    assert!(desk.superblocks.values().all(|state| state.policy == Policy::Resync));
    desk.release(0, 1);
    desk.run();
    assert!(desk.superblocks.values().all(|state| state.policy == Policy::Resync), "idle");
    desk.done.clear();
    desk.tell(MetadataInput::Stop);
    desk.run();
    assert_eq!(desk.done, "FFFPPPSSS", "logs are empty before the superblocks promise them");
    assert!(desk.superblocks.values().all(|state| state.policy == Policy::Ppl));
}

#[test]
fn resync_is_recorded_in_steps_behind_a_flush_and_at_a_stop() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.resync_offset = Some(0);
    let mut desk = Desk::new(config);
    let resync = desk.manager.resync().expect("it is needed");
    let run = resync.run();
    desk.tell(MetadataInput::ResyncAt { run, position: 8, stalled: None });
    assert_eq!(desk.out(), "", "not a sixteenth yet");
    desk.tell(MetadataInput::ResyncAt { run, position: 72, stalled: None });
    assert_eq!(desk.out(), "FFF");
    desk.run();
    assert_eq!(desk.superblocks[&0].resync_offset, Some(72));
    desk.tell(MetadataInput::ResyncAt { run: run + 1, position: 1024, stalled: None });
    assert_eq!(desk.manager.status().resync_offset, Some(72), "of a run that was never begun");
    desk.tell(MetadataInput::ResyncAt { run, position: 80, stalled: None });
    desk.tell(MetadataInput::Stop);
    desk.run();
    assert_eq!(desk.superblocks[&0].resync_offset, Some(80));
}

#[test]
fn a_resync_that_ends_makes_the_array_clean_everywhere() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.resync_offset = Some(512);
    let mut desk = Desk::new(config);
    assert_eq!(desk.manager.in_sync_below(), 512);
    let run = desk.manager.resync().expect("it is needed").run();
    desk.tell(MetadataInput::ResyncAt { run, position: 1024, stalled: None });
    desk.run();
    assert_eq!(desk.superblocks[&0].resync_offset, None);
    assert_eq!(desk.answers, [Control::InSyncBelow { position: u64::MAX, reports: 0 }]);
    assert!(desk.manager.resync().is_none());
}

#[test]
fn a_write_that_ended_half_way_leaves_the_array_in_need_of_a_resync() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    desk.ask(5, 1);
    desk.run();
    desk.event(ControlEvent::OutOfSync { first_bit: 5, bits: 1 });
    assert_eq!(desk.others, [MetadataEffect::ResyncNeeded]);
    let raised = Control::InSyncBelow { position: 40, reports: 1 };
    assert!(desk.answers.contains(&raised), "{:?}", desk.answers);
    desk.release(5, 1);
    desk.run();
    desk.wait(100 * SECOND);
    assert!(desk.bit(0, 5) && desk.bit(1, 5));
    assert_eq!(desk.superblocks[&0].resync_offset, Some(40), "clean, but not in sync");
    let mut resync = desk.manager.resync().expect("it is needed");
    let mut ranges = Vec::new();
    resync.next(8, &mut ranges);
    assert_eq!(ranges, [(md::Sector(40), 8)]);
    resync.done(0, md::Sector(40), Ok(()));
    let (run, position) = (resync.run(), resync.position());
    desk.tell(MetadataInput::ResyncAt { run, position, stalled: None });
    desk.run();
    desk.wait(100 * SECOND);
    assert!(!desk.bit(0, 5));
    assert_eq!(desk.superblocks[&0].resync_offset, None);
}

#[test]
fn a_flush_without_space_fails_no_member_and_leaves_the_array_dirty() {
    let mut desk = Desk::new(config(Level::Raid1, 2, 0));
    desk.ask(0, 1);
    desk.run();
    desk.release(0, 1);
    desk.finish(0, Err(MemberError::NoSpace));
    desk.run();
    assert!(desk.manager.status().dirty && desk.manager.status().degraded == 0);
    desk.wait(2 * SECOND);
    assert!(!desk.manager.status().dirty, "retried");
}

#[test]
fn read_only_by_order_makes_the_metadata_clean_first() {
    let mut desk = Desk::new(config(Level::Raid1, 2, 0));
    desk.ask(0, 1);
    desk.run();
    desk.tell(MetadataInput::ReadOnly);
    desk.ask(0, 1);
    assert_eq!((desk.granted(), desk.answers.last()), (1, Some(&Control::ReadOnly)));
    desk.release(0, 1);
    desk.run();
    let why = ReadOnlyReason::Ordered;
    assert_eq!(desk.others, [MetadataEffect::BecameReadOnly { why }]);
    assert!(!desk.manager.status().dirty);
    desk.tell(MetadataInput::Stop);
    assert_eq!(desk.others.last(), Some(&MetadataEffect::Stopped { clean: true }));
}

#[test]
fn a_spare_whose_metadata_cannot_be_written_is_lost_alone() {
    let mut desk = Desk::new(config(Level::Raid1, 2, 1));
    desk.ask(0, 1);
    desk.run();
    desk.fail(0, 1);
    let spare = desk.pending.iter().position(|pending| pending.device == 2).expect("it is updated");
    assert!(desk.pending[spare].superblock().is_some());
    desk.finish(spare, Err(MemberError::Gone));
    desk.run();
    assert!(desk.recorded());
    assert_eq!(desk.manager.status().mode, MetadataMode::Running);
    let lost = desk.superblocks[&1].devices[2].as_ref().expect("it had a number");
    assert_eq!(lost.role, Role::Faulty);
}

#[test]
fn a_flush_that_failed_on_a_member_that_must_stay_is_never_called_clean() {
    for bitmap in [false, true] {
        let mut config = config(Level::Raid1, 2, 0);
        config.devices.remove(1);
        if bitmap {
            config = with_bitmap(config);
        }
        let mut desk = Desk::new(config);
        let bit = if bitmap { 5 } else { 0 };
        desk.ask(bit, 1);
        desk.run();
        assert_eq!(desk.granted(), 1);
        desk.event(ControlEvent::NotDurable { member: MemberIdx(0) });
        desk.release(bit, 1);
        desk.run();
        desk.wait(400 * SECOND);
        assert!(desk.manager.resync().is_none(), "no resync can make it right");
        let said = |desk: &Desk| desk.superblocks[&0].resync_offset;
        assert_eq!(said(&desk), Some(0));
        desk.tell(MetadataInput::Stop);
        desk.run();
        assert_eq!(desk.others.last(), Some(&MetadataEffect::Stopped { clean: false }));
        assert_eq!(said(&desk), Some(0));
        assert!(!bitmap || (0..128).all(|bit| desk.bit(0, bit)));
    }
}

/// RAID 6 with Q on one disk: what lacks only that is started dirty without force.
#[test]
fn an_array_that_lacks_only_parity_is_out_of_sync_where_its_metadata_say_so() {
    for (missing, expected) in [(4, vec![(0, 1024)]), (1, vec![])] {
        let mut config = config(Level::Raid6, 5, 0);
        let layout = Layout::Raid6(Raid6Layout::LeftSymmetric6);
        let member_sectors = vec![1024; 5];
        let spec = GeometrySpec { level: Level::Raid6, layout, chunk_sectors: 8, member_sectors };
        config.geometry = Geometry::new(&spec).expect("sound");
        config.state.resync_offset = Some(0);
        config.devices.retain(|device| device.number.0 != missing);
        let ranges = MetadataManager::new(config).out_of_sync();
        let ranges: Vec<_> = ranges.iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(ranges, expected, "without {missing}");
    }
}

#[test]
fn bits_side_by_side_are_one_range_that_is_out_of_sync() {
    let mut config = with_bitmap(config(Level::Raid5, 3, 0));
    config.state.resync_offset = Some(0);
    let bitmap = config.bitmap.as_mut().expect("just made");
    bitmap.bits[0] = 0b0110_0111;
    let ranges = MetadataManager::new(config).out_of_sync();
    assert_eq!(ranges, [0..24, 40..56]);
}
