//! Several lives of one array's metadata: power cuts between any two superblocks, members that are
//! missing at one start and back at the next, failing members, no space for metadata; spares that
//! come, and devices that leave.
//!
//! Invariant, after every life, under md's rules of both ages (`Rule`): a member that has missed a
//! write is stale, and a member that has missed none keeps its place. What is simulated is the
//! metadata alone: a grant stands for a write of data, done immediately on all serving members.
//!
//! Every case is a function of its seed. `RAIDLAB_TEST=all` runs many more, `RAIDLAB_SEED=n` one.

use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::ondisk::{Role, Timestamp};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Raid5Layout, Raid6Layout};
use raidlab_engine::{
    Control, ControlEvent, DEFAULT_CHECKPOINT_NANOS, DeviceCondition, DeviceNumber, IoError,
    ManagedDevice, MemberError, MemberFlags, MetaToken, MetadataConfig, MetadataEffect,
    MetadataInput, MetadataManager, Record,
};
use testkit::{Rng, for_seeds};

/// A kernel's rule for which members belong to the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// By the event count: before 6.8.
    Count,
    /// By the count, and by the freshest member's roles.
    CountAndRoles,
}

/// Spares that an array has at most.
const SPARES: usize = 3;

/// An array between two lives.
struct Array {
    geometry: Geometry,
    /// By member.
    superblocks: Vec<ArrayState>,
    /// Of spares, by the number behind those of the members.
    spares: [Option<ArrayState>; SPARES],
    /// Members that a write was made without.
    missed_writes: Vec<bool>,
    /// Members that were absent, or failed, while the array was written to: they may be out.
    may_be_out: Vec<bool>,
}

impl Array {
    fn new(level: Level, members: usize) -> Array {
        let (layout, chunk_sectors) = match level {
            Level::Raid5 => (Layout::Raid5(Raid5Layout::LeftSymmetric), 8),
            Level::Raid6 => (Layout::Raid6(Raid6Layout::LeftSymmetric), 8),
            _ => (Layout::None, 0),
        };
        let member_sectors = vec![1024; members];
        let spec = GeometrySpec { level, layout, chunk_sectors, member_sectors };
        let role = |at: usize| Some(DeviceState::new(Role::Slot(at as u16)));
        let state = ArrayState {
            events: 10,
            updated: Timestamp::default(),
            resync_offset: None,
            policy: Policy::Resync,
            devices: (0..members).map(role).collect(),
        };
        Array {
            geometry: Geometry::new(&spec).expect("sound"),
            superblocks: vec![state; members],
            spares: [const { None }; SPARES],
            missed_writes: vec![false; members],
            may_be_out: vec![false; members],
        }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.superblocks.len()).collect()
    }

    /// A superblock is on a device.
    fn write(&mut self, device: usize, state: ArrayState) {
        let own = state.devices.get(device).and_then(Option::as_ref);
        assert!(own.is_some(), "device {device} gets a superblock that does not list it");
        match device.checked_sub(self.superblocks.len()) {
            None => self.superblocks[device] = state,
            Some(spare) => self.spares[spare] = Some(state),
        }
    }

    /// Role of a device by the superblock of a member.
    fn role(&self, by: usize, device: usize) -> Option<Role> {
        let listed = self.superblocks[by].devices.get(device).and_then(Option::as_ref);
        listed.map(|device| device.role)
    }

    fn counts(&self) -> Vec<u64> {
        self.superblocks.iter().map(|state| state.events).collect()
    }

    /// The freshest of those present; of equals, the first.
    fn freshest(&self, present: &[usize]) -> &ArrayState {
        let by_age =
            present.iter().min_by_key(|at| std::cmp::Reverse(self.superblocks[**at].events));
        &self.superblocks[*by_age.expect("one is present")]
    }

    fn accepted(&self, present: &[usize], rule: Rule) -> Vec<usize> {
        let freshest = self.freshest(present);
        let accepts = |at: &usize| {
            let device = freshest.devices[*at].as_ref();
            let listed = device.is_some_and(|state| state.role == Role::Slot(*at as u16));
            let fresh = self.superblocks[*at].events + 1 >= freshest.events;
            fresh && (rule == Rule::Count || listed)
        };
        present.iter().copied().filter(accepts).collect()
    }

    fn can_start(&self, present: &[usize]) -> bool {
        let accepted = self.accepted(present, Rule::CountAndRoles);
        self.geometry.enough(|member| accepted.contains(&member.index()))
    }

    /// The rule is checked among all members, and without each one of them.
    fn check(&self) {
        let all = self.all();
        for rule in [Rule::Count, Rule::CountAndRoles] {
            let accepted = self.accepted(&all, rule);
            for at in &all {
                let (counts, is_in) = (self.counts(), accepted.contains(at));
                assert!(
                    !(is_in && self.missed_writes[*at]),
                    "member {at} has missed writes and is fresh by {rule:?}: {counts:?}"
                );
                assert!(
                    is_in || self.may_be_out[*at],
                    "member {at} has missed nothing and is out by {rule:?}: {counts:?}"
                );
            }
        }
    }
}

struct Pending {
    token: MetaToken,
    device: usize,
    /// `None`: a flush.
    state: Option<ArrayState>,
}

/// One run of an array, with the members that are present.
struct Life {
    array: Array,
    manager: MetadataManager,
    now: u64,
    serving: Vec<usize>,
    pending: Vec<Pending>,
    timer: Option<u64>,
    epoch: u64,
    /// The shard's: it asks, and gives back.
    held: u32,
    refused: u32,
    stopped: Option<bool>,
    /// Something was to be written.
    touched: bool,
}

impl Life {
    fn new(array: Array, present: &[usize]) -> Life {
        let serving = array.accepted(present, Rule::CountAndRoles);
        let device = |at: &usize| ManagedDevice {
            number: DeviceNumber(*at as u32),
            slot: Some(MemberIdx(*at as u16)),
            events: array.superblocks[*at].events,
            is_spare: false,
            replaces: false,
        };
        let mut devices: Vec<ManagedDevice> = serving.iter().map(device).collect();
        let mut state = array.freshest(present).clone();
        for (at, spare) in array.spares.iter().enumerate() {
            let (Some(spare), number) = (spare, array.superblocks.len() + at) else { continue };
            state.devices.resize(state.devices.len().max(number + 1), None);
            let listed = state.devices[number].get_or_insert(DeviceState::new(Role::Spare));
            if listed.role == Role::Spare {
                let (slot, number) = (None, DeviceNumber(number as u32));
                let (events, is_spare) = (spare.events, true);
                devices.push(ManagedDevice { number, slot, replaces: false, events, is_spare });
            }
        }
        let manager = MetadataManager::new(MetadataConfig {
            geometry: array.geometry.clone(),
            shards: 1,
            devices,
            state,
            found: array.freshest(present).clone(),
            bitmap: None,
            superblocks_in_turn: false,
            checkpoint_nanos: DEFAULT_CHECKPOINT_NANOS,
            bits_ahead_nanos: 0,
        });
        Life {
            array,
            manager,
            now: 1_000_000_000,
            serving,
            pending: Vec::new(),
            timer: None,
            epoch: 0,
            held: 0,
            refused: 0,
            stopped: None,
            touched: false,
        }
    }

    fn tell(&mut self, input: MetadataInput) {
        let (mut inputs, mut out) = (vec![input], Vec::new());
        self.manager.handle(self.now, &mut inputs, &mut out);
        for effect in out {
            self.effect(effect);
        }
    }

    fn effect(&mut self, effect: MetadataEffect) {
        match effect {
            MetadataEffect::WriteMeta { token, device, record } => {
                let Record::Superblock(state) = record else { panic!("no bitmap, no log") };
                let (device, state) = (device.0 as usize, Some((*state).clone()));
                self.pending.push(Pending { token, device, state });
            }
            MetadataEffect::Flush { token, device } => {
                self.pending.push(Pending { token, device: device.0 as usize, state: None });
            }
            MetadataEffect::SetTimer { at } => self.timer = Some(at),
            MetadataEffect::DeviceFailed { device, .. } => {
                self.serving.retain(|at| *at != device.0 as usize);
            }
            MetadataEffect::Removed { device, .. } => {
                let number = device.0 as usize;
                assert!(!self.serving.contains(&number), "a member has left that serves");
                for by in &self.serving {
                    assert_eq!(self.array.role(*by, number), None, "by member {by}");
                }
                if let Some(spare) = number.checked_sub(self.array.superblocks.len()) {
                    self.array.spares[spare] = None;
                }
            }
            MetadataEffect::Stopped { clean } => self.stopped = Some(clean),
            MetadataEffect::ToShard { control, .. } => match control {
                Control::Granted { bits, .. } => {
                    self.held += bits;
                    self.write();
                }
                Control::Recorded { .. } => self.write(),
                Control::NotGranted { .. } => self.refused += 1,
                Control::FailMember(member) => self.report(member.index(), None),
                _ => {}
            },
            MetadataEffect::ResyncNeeded
            | MetadataEffect::RebuildNeeded
            | MetadataEffect::Join { .. }
            | MetadataEffect::MemberInSync { .. }
            | MetadataEffect::BecameReadOnly { .. } => {}
        }
    }

    /// Data are written to all that serve, and acknowledged.
    fn write(&mut self) {
        for at in self.array.all() {
            if !self.serving.contains(&at) {
                self.array.missed_writes[at] = true;
            }
        }
    }

    fn ask(&mut self) {
        self.touch();
        let event = ControlEvent::Intent { first_bit: 0, bits: 1 };
        self.tell(MetadataInput::FromShard { shard: 0, event });
    }

    fn release(&mut self) {
        if self.held > 0 {
            self.held -= 1;
            let event = ControlEvent::Released { first_bit: 0, bits: 1 };
            self.tell(MetadataInput::FromShard { shard: 0, event });
        }
    }

    /// The shard drops a member.
    fn report(&mut self, at: usize, error: Option<MemberError>) {
        self.epoch += 1;
        self.serving.retain(|other| *other != at);
        for at in self.array.all() {
            self.array.may_be_out[at] |= !self.serving.contains(&at);
        }
        let (member, epoch) = (MemberIdx(at as u16), self.epoch);
        let error = error.map(|kind| IoError::of_metadata(kind, None));
        let event = ControlEvent::MemberFailed { member, error, epoch };
        self.tell(MetadataInput::FromShard { shard: 0, event });
    }

    fn can_lose(&self, at: usize) -> bool {
        let left =
            |member: MemberIdx| member.index() != at && self.serving.contains(&member.index());
        self.serving.contains(&at) && self.array.geometry.enough(left)
    }

    fn finish(&mut self, at: usize, result: Result<(), MemberError>) {
        let Pending { token, device, state } = self.pending.swap_remove(at);
        if let Some(state) = state.filter(|_| result.is_ok()) {
            self.array.write(device, state);
        }
        let result = result.map_err(|kind| IoError::of_metadata(kind, None));
        self.tell(MetadataInput::MetaDone { token, result });
    }

    /// A new spare, if there is room for one.
    fn add_spare(&mut self) {
        let (number, flags) = (self.manager.free_number(), MemberFlags::default());
        if (number.0 as usize) < self.array.superblocks.len() + SPARES {
            self.touch();
            self.tell(MetadataInput::AddSpare { number, flags });
        }
    }

    fn remove(&mut self, number: u32) {
        self.touch();
        self.tell(MetadataInput::Remove { number: DeviceNumber(number) });
    }

    /// What is a spare is one by the superblocks of all.
    fn check_spares(&self) {
        let is_spare = |it: &raidlab_engine::DeviceStatus| it.condition == DeviceCondition::Spare;
        for spare in self.manager.devices().into_iter().filter(is_spare) {
            let (number, first) = (spare.number.0 as usize, self.array.superblocks.len());
            let own = self.array.spares[number - first].as_ref();
            let own = own.and_then(|own| own.devices[number].as_ref());
            assert_eq!(own.map(|own| own.role), Some(Role::Spare), "{spare:?}");
            for by in self.serving.iter().filter(|_| self.touched) {
                let role = self.array.role(*by, number);
                assert!(matches!(role, None | Some(Role::Spare)), "{spare:?} by {by}: {role:?}");
            }
        }
    }

    /// Superblocks may be written from now on.
    fn touch(&mut self) {
        self.touched = true;
        for at in self.array.all() {
            self.array.may_be_out[at] |= !self.serving.contains(&at);
        }
    }

    /// Everything in flight succeeds, in the order of the members; `full` has no space.
    fn run(&mut self, full: Option<usize>) {
        for _ in 0..1000 {
            let next = (0..self.pending.len()).min_by_key(|at| self.pending[*at].device);
            let Some(next) = next else { return };
            let is_full = full == Some(self.pending[next].device);
            let result = if is_full { Err(MemberError::NoSpace) } else { Ok(()) };
            self.finish(next, result);
        }
        panic!("no end of work: {:?}", self.manager.status());
    }

    /// Power cut: of the writes in flight, `lands` selects those that reach their member.
    fn cut(mut self, mut lands: impl FnMut(usize) -> bool) -> Array {
        for Pending { device, state, .. } in self.pending.drain(..) {
            if let Some(state) = state.filter(|_| lands(device)) {
                self.array.write(device, state);
            }
        }
        self.array
    }
}

#[test]
fn power_cuts_at_every_first_superblock_of_a_dirty_mark_cost_no_member_its_place() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid6, 5), (Level::Raid1, 2)] {
        let mut array = Array::new(level, members);
        for _ in 0..5 {
            let mut life = Life::new(array, &(0..members).collect::<Vec<_>>());
            life.ask();
            // Member 0 is brought up to date with a grant still far away.
            assert_eq!(life.held, 0);
            array = life.cut(|device| device == 0);
            array.check();
        }
    }
}

#[test]
fn members_that_are_behind_at_a_start_get_the_same_count_and_words_before_anything_counts_up() {
    let mut array = Array::new(Level::Raid5, 3);
    array.superblocks[1].events = 11;
    array.superblocks[1].resync_offset = Some(0);
    let mut life = Life::new(array, &[0, 1, 2]);
    assert!(life.pending.is_empty(), "a start leaves no trace");
    life.ask();
    let written: Vec<usize> = life.pending.iter().map(|pending| pending.device).collect();
    assert_eq!(written, [0, 2], "the freshest is left alone");
    let freshest = life.array.superblocks[1].clone();
    assert!(life.pending.iter().all(|pending| pending.state.as_ref() == Some(&freshest)));
    life.finish(0, Ok(()));
    assert_eq!(life.array.counts(), [11, 11, 10], "no event count increases before all are there");
    life.finish(0, Ok(()));
    life.run(None);
    assert_eq!((life.held, life.array.counts()), (1, vec![12; 3]));
}

#[test]
fn metadata_without_space_on_one_member_in_several_runs_cost_it_no_place() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid1, 2)] {
        let mut array = Array::new(level, members);
        for run in 1..5 {
            let mut life = Life::new(array, &(0..members).collect::<Vec<_>>());
            life.ask();
            life.run(Some(1));
            assert_eq!((life.held, life.refused), (0, 1));
            life.tell(MetadataInput::Stop);
            life.run(Some(1));
            assert_eq!(life.stopped, Some(false), "run {run}");
            array = life.array;
            array.check();
        }
        // There is room again.
        let mut life = Life::new(array, &(0..members).collect::<Vec<_>>());
        life.ask();
        life.run(None);
        assert_eq!(life.held, 1);
    }
}

#[test]
fn a_member_that_was_one_ahead_and_absent_is_stale_by_count_alone_before_the_first_grant() {
    let mut array = Array::new(Level::Raid1, 3);
    let mut life = Life::new(array, &[0, 1, 2]);
    life.ask();
    array = life.cut(|device| device == 0);
    assert_eq!(array.counts(), [11, 10, 10]);
    let mut life = Life::new(array, &[1, 2]);
    life.ask();
    life.run(None);
    assert_eq!(life.held, 1);
    let array = life.cut(|_| false);
    array.check();
    assert_eq!(array.accepted(&[0, 1, 2], Rule::Count), [1, 2]);
}

#[test]
fn a_second_loss_leaves_a_member_that_was_one_ahead_and_absent_stale_by_count_alone() {
    let mut array = Array::new(Level::Raid1, 4);
    array.superblocks[0].events = 11;
    let mut life = Life::new(array, &[1, 2, 3]);
    life.report(3, Some(MemberError::Gone));
    life.ask();
    life.run(None);
    assert_eq!(life.held, 1);
    life.cut(|_| false).check();
}

/// Its loss is on record with a count that it holds as well: the run that recorded it ended there.
#[test]
fn a_member_whose_loss_was_half_recorded_is_stale_by_count_alone_before_the_first_grant() {
    let mut array = Array::new(Level::Raid1, 3);
    for at in 0..3 {
        array.superblocks[at].events = 11;
    }
    for at in 1..3 {
        array.superblocks[at].devices[0] = Some(DeviceState::new(Role::Faulty));
    }
    array.may_be_out[0] = true;
    let mut life = Life::new(array, &[1, 2]);
    life.ask();
    life.run(None);
    assert_eq!(life.held, 1);
    life.cut(|_| false).check();
}

#[test]
fn lives_with_power_cuts_absences_and_no_space_keep_members_and_bar_those_that_missed_writes() {
    let name =
        "lives_with_power_cuts_absences_and_no_space_keep_members_and_bar_those_that_missed_writes";
    for_seeds!(name, 4000, |seed| several_lives(&mut Rng::new(seed)));
}

fn several_lives(rng: &mut Rng) {
    let (level, members) =
        rng.pick(&[(Level::Raid1, 2), (Level::Raid1, 4), (Level::Raid5, 4), (Level::Raid6, 5)]);
    let mut array = Array::new(level, members);
    for _ in 0..rng.within(2, 8) {
        let mut present = array.all();
        if rng.one_in(3) {
            present.retain(|_| !rng.one_in(4));
        }
        // Where only stale members are present, no rule can see it: two histories begin.
        let is_split = |present: &[usize]| {
            let accepted = array.accepted(present, Rule::CountAndRoles);
            let fresh = array.accepted(&array.all(), Rule::CountAndRoles);
            accepted.iter().any(|at| array.missed_writes[*at] || !fresh.contains(at))
        };
        if present.is_empty() || !array.can_start(&present) || is_split(&present) {
            present = array.all();
        }
        if !array.can_start(&present) {
            // As when the freshest is a member that others have been written without.
            return;
        }
        array = one_life(array, &present, rng);
        array.check();
    }
}

fn one_life(array: Array, present: &[usize], rng: &mut Rng) -> Array {
    let mut life = Life::new(array, present);
    let full = rng.one_in(4).then(|| rng.pick(present));
    let members = life.array.superblocks.len();
    for _ in 0..rng.below(80) {
        match rng.below(16) {
            0..=2 if life.held == 0 => life.ask(),
            3 | 4 => life.release(),
            5 if rng.one_in(8) => {
                let at = rng.pick(present);
                if life.can_lose(at) {
                    life.report(at, Some(MemberError::Gone));
                }
            }
            6 if life.timer.is_some() => {
                life.now = life.now.max(life.timer.take().expect("just seen"));
                life.tell(MetadataInput::Timer);
            }
            7 if rng.one_in(8) => {
                while life.held > 0 {
                    life.release();
                }
                life.tell(MetadataInput::Stop);
            }
            8 if rng.one_in(8) => life.add_spare(),
            9 if rng.one_in(4) => life.remove(rng.below((members + SPARES) as u64) as u32),
            _ if !life.pending.is_empty() => {
                let at = rng.below(life.pending.len() as u64) as usize;
                let device = life.pending[at].device;
                let result = match rng.below(64) {
                    _ if full == Some(device) && !rng.one_in(4) => Err(MemberError::NoSpace),
                    0 if life.can_lose(device) => {
                        // Its last superblock may be on it all the same.
                        if let Some(state) =
                            life.pending[at].state.clone().filter(|_| rng.one_in(2))
                        {
                            life.array.write(device, state);
                        }
                        Err(MemberError::Gone)
                    }
                    _ => Ok(()),
                };
                life.finish(at, result);
            }
            _ => {}
        }
        life.check_spares();
    }
    let kept = rng.below(4);
    life.cut(|_| rng.below(4) < kept)
}
