//! Owns the drives and buses of one machine, the host's queue before each drive, and the order
//! of events among them.
//!
//! ```text
//!   submit -> waiting (FIFO) -> inside (<= queue depth) -> the drive's model -> ready -> advance
//!                            ^
//!                            a channel: one command of all its drives
//! ```
//!
//! Reads, or writes, that wait one behind the other and continue each other are merged into one
//! command, as the block layer does.
//!
//! Invariant: events of all drives are performed in time order (the lower drive first where times
//! are equal), because they meet on shared buses and channels. Called by the crate's users; calls
//! the models.

use std::collections::{BTreeMap, VecDeque};

use crate::bus::Bus;
use crate::channel::Channel;
use crate::op::{Command, Completion, DriveId, Finished, NEVER, Nanos, Op, OpKind};
use crate::placement::Placement;
use crate::profile::{Mechanics, Profile};
use crate::rotating::Rotating;
use crate::solid::Solid;

/// A bus of a [`Rig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusId(u32);

/// A channel of a [`Rig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u32);

#[derive(Debug)]
enum Model {
    Rotating(Box<Rotating>),
    Solid(Box<Solid>),
}

impl Model {
    fn new(profile: &Profile, placement: Placement, member_bytes: u64, spindle: u32) -> Model {
        match profile.mechanics() {
            Mechanics::Rotating(numbers) => {
                let model = Rotating::new(profile, numbers, placement, member_bytes, spindle);
                Model::Rotating(Box::new(model))
            }
            Mechanics::Solid(numbers) => {
                Model::Solid(Box::new(Solid::new(profile, numbers, placement, member_bytes)))
            }
        }
    }
}

/// Limit of a merged command, bytes: what an ATA command of 28 bits and Linux 2.4 carry. Later
/// disks and kernels take more.
const MERGED_BYTES_MAX: u64 = 128 << 10;

/// An operation that was merged into a command: its tag, and when it was submitted.
#[derive(Clone, Copy, Debug)]
struct Merged {
    tag: u64,
    submitted: Nanos,
}

#[derive(Debug)]
struct Slot {
    model: Model,
    bus: Option<usize>,
    channel: Option<usize>,
    profile: Profile,
    member_bytes: u64,
    queue_depth: u32,
    /// The protocol has no queued flush (SATA): the queue drains before one and waits after it.
    flush_drains: bool,
    flushing: bool,
    inside: u32,
    waiting: VecDeque<Command>,
    /// Operations merged into a command inside, by the number of the command.
    merged: BTreeMap<u64, Vec<Merged>>,
    issued: u64,
    next: Nanos,
}

/// The resources that drives share.
#[derive(Debug, Default)]
struct Wires {
    buses: Vec<Bus>,
    channels: Vec<Channel>,
}

/// A set of drives, buses and channels on one clock.
#[derive(Debug, Default)]
pub struct Rig {
    now: Nanos,
    slots: Vec<Slot>,
    wires: Wires,
    ready: VecDeque<Completion>,
    finished: Vec<Finished>,
}

impl Rig {
    /// An empty rig at time 0.
    pub fn new() -> Rig {
        Rig::default()
    }

    /// Adds a bus that carries `bytes_per_second` in all, shared by the drives added behind it.
    pub fn add_bus(&mut self, bytes_per_second: u64) -> BusId {
        self.wires.buses.push(Bus::new(bytes_per_second));
        BusId(self.wires.buses.len() as u32 - 1)
    }

    /// Adds a channel, which carries one command at a time: of the drives on it, one has a command
    /// and the others wait.
    pub fn add_channel(&mut self) -> ChannelId {
        self.wires.channels.push(Channel::default());
        ChannelId(self.wires.channels.len() as u32 - 1)
    }

    /// Puts a drive on a channel.
    ///
    /// # Panics
    /// When the drive is on one already, or has been given an operation before.
    pub fn put_on_channel(&mut self, drive: DriveId, channel: ChannelId) {
        assert_eq!(self.in_flight(drive), 0, "a drive is wired before it works");
        let slot = &mut self.slots[drive.index()];
        assert_eq!(slot.channel, None, "a drive has one cable");
        slot.channel = Some(channel.0 as usize);
        self.wires.channels[channel.0 as usize].add(drive.index());
    }

    /// Adds a drive whose member has `member_bytes` bytes, directly attached or behind `bus`.
    ///
    /// Platters of different drives turn at different angles: drive n is n golden sections of a
    /// turn ahead of drive 0.
    pub fn add_drive(
        &mut self,
        profile: &Profile,
        placement: Placement,
        member_bytes: u64,
        bus: Option<BusId>,
    ) -> DriveId {
        let id = DriveId(self.slots.len() as u32);
        let model = Model::new(profile, placement, member_bytes, id.0);
        self.slots.push(Slot {
            model,
            bus: bus.map(|bus| bus.0 as usize),
            channel: None,
            profile: profile.clone(),
            member_bytes,
            queue_depth: profile.queue_depth(),
            flush_drains: profile.flush_drains_queue(),
            flushing: false,
            inside: 0,
            waiting: VecDeque::new(),
            merged: BTreeMap::new(),
            issued: 0,
            next: NEVER,
        });
        id
    }

    /// Puts a drive's member elsewhere on the drive, which is then as after power-on: its caches
    /// are empty, its head is over the member's first byte, and flash is erased. Returns `false`,
    /// and does nothing, while operations are in flight.
    pub fn renew(&mut self, drive: DriveId, placement: Placement) -> bool {
        if self.in_flight(drive) > 0 {
            return false;
        }
        let slot = &mut self.slots[drive.index()];
        slot.model = Model::new(&slot.profile, placement, slot.member_bytes, drive.0);
        slot.next = NEVER;
        true
    }

    /// Brings flash that is scaled to its member ([`Placement::Stretch`]) where writing in order,
    /// or at random, brings it in the long run. It takes no time. Nothing happens to other drives.
    pub fn precondition(&mut self, drive: DriveId, random: bool) {
        if let Model::Solid(model) = &mut self.slots[drive.index()].model {
            model.precondition(random);
        }
    }

    /// The number of drives.
    pub fn drives(&self) -> usize {
        self.slots.len()
    }

    /// Operations submitted to `drive` that have not completed by the time of the last call.
    pub fn in_flight(&self, drive: DriveId) -> usize {
        let slot = &self.slots[drive.index()];
        let merged: usize = slot.merged.values().map(Vec::len).sum();
        slot.waiting.len() + slot.inside as usize + merged
    }

    /// Gives `op` to `drive` at `now`, under a tag of the caller's choice (tags may repeat).
    ///
    /// Never refuses: beyond the drive's queue depth, operations wait in the host in order. Time
    /// that a caller reports late is clamped: `now` is at least every earlier `now`.
    ///
    /// # Panics
    /// When the operation leaves the member, or the drive is not of this rig.
    pub fn submit(&mut self, now: Nanos, drive: DriveId, tag: u64, op: Op) {
        self.plug(now, drive, tag, op);
        self.unplug(now, drive);
    }

    /// As [`Rig::submit`], but the operation waits in the host until [`Rig::unplug`], where it is
    /// merged with those that it continues: a batch of the block layer.
    ///
    /// # Panics
    /// As [`Rig::submit`].
    pub fn plug(&mut self, now: Nanos, drive: DriveId, tag: u64, op: Op) {
        self.run(now);
        let now = self.now;
        let slot = &mut self.slots[drive.index()];
        let end = op.at_bytes.checked_add(op.bytes);
        assert!(
            op.kind == OpKind::Flush || end.is_some_and(|end| end <= slot.member_bytes),
            "{op:?} leaves a member of {} bytes",
            slot.member_bytes
        );
        slot.waiting.push_back(Command { tag, submitted: now, number: 0, op });
    }

    /// Gives the drive what waits for it, as far as it takes it.
    pub fn unplug(&mut self, now: Nanos, drive: DriveId) {
        self.run(now);
        self.slots[drive.index()].issue(self.now, &mut self.wires);
    }

    /// The earliest time at which [`Rig::advance`] may have something to complete; it may be an
    /// internal step that completes nothing. `None` when nothing is in flight.
    pub fn next_event(&self) -> Option<Nanos> {
        if let Some(done) = self.ready.front() {
            return Some(done.at);
        }
        let busy = self.slots.iter().filter(|slot| slot.inside > 0 || !slot.waiting.is_empty());
        busy.map(|slot| slot.next).filter(|&next| next != NEVER).min()
    }

    /// Lets time pass to `now` and appends everything that completed, in order of time.
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.run(now);
        done.extend(self.ready.drain(..));
    }

    fn run(&mut self, now: Nanos) {
        while let Some(index) = self.due(now) {
            let slot = &mut self.slots[index];
            let at = slot.next;
            slot.step(&mut self.wires.buses, &mut self.finished);
            for finished in self.finished.drain(..) {
                slot.inside -= 1;
                slot.flushing &= finished.command.op.kind != OpKind::Flush;
                if let Some(channel) = slot.channel {
                    self.wires.channels[channel].give_back();
                }
                let first =
                    Merged { tag: finished.command.tag, submitted: finished.command.submitted };
                let others = slot.merged.remove(&finished.command.number).unwrap_or_default();
                let all = std::iter::once(first).chain(others);
                self.ready.extend(all.map(|one| Completion {
                    drive: DriveId(index as u32),
                    tag: one.tag,
                    at: finished.at,
                    service: finished.at - one.submitted,
                }));
            }
            self.issue_after(index, at);
        }
        self.now = self.now.max(now);
    }

    /// After an event of a drive: what may begin there, and on the channel that it has left.
    fn issue_after(&mut self, index: usize, at: Nanos) {
        let mut turn = 0;
        if let Some(channel) = self.slots[index].channel {
            while let Some(next) = self.wires.channels[channel].turn(index, turn) {
                self.slots[next].issue(at, &mut self.wires);
                turn += 1;
            }
        } else {
            self.slots[index].issue(at, &mut self.wires);
        }
    }

    fn due(&self, now: Nanos) -> Option<usize> {
        let (index, slot) = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.next)?;
        (slot.next <= now).then_some(index)
    }
}

impl Slot {
    /// Moves what may go from the host's FIFO into the drive.
    fn issue(&mut self, now: Nanos, wires: &mut Wires) {
        while let Some(command) = self.waiting.front() {
            let flush = command.op.kind == OpKind::Flush && self.flush_drains;
            if self.flushing || self.inside >= self.queue_depth || (flush && self.inside > 0) {
                break;
            }
            if let Some(channel) = self.channel.map(|channel| &mut wires.channels[channel]) {
                if !channel.is_free() {
                    break;
                }
                channel.take();
            }
            self.flushing = flush;
            self.inside += 1;
            let command = self.take();
            let bus = self.bus.map(|bus| &mut wires.buses[bus]);
            match &mut self.model {
                Model::Rotating(model) => model.issue(now, command, bus),
                Model::Solid(model) => model.issue(now, command, bus),
            }
        }
        self.next = match &self.model {
            Model::Rotating(model) => model.next(),
            Model::Solid(model) => model.next(),
        };
    }

    /// Takes the first waiting operation, and with it those behind that continue it.
    fn take(&mut self) -> Command {
        let mut command = self.waiting.pop_front().expect("just seen");
        command.number = self.issued;
        self.issued += 1;
        let mut merged = Vec::new();
        while let Some(next) = self.waiting.front() {
            let merges = matches!(command.op.kind, OpKind::Read | OpKind::Write { fua: false });
            let bytes = command.op.bytes + next.op.bytes;
            let continues = (next.op.kind, next.op.at_bytes) == (command.op.kind, command.op.end());
            if !merges || !continues || bytes > MERGED_BYTES_MAX {
                break;
            }
            command.op.bytes = bytes;
            merged.push(Merged { tag: next.tag, submitted: next.submitted });
            self.waiting.pop_front();
        }
        if !merged.is_empty() {
            self.merged.insert(command.number, merged);
        }
        command
    }

    fn step(&mut self, buses: &mut [Bus], finished: &mut Vec<Finished>) {
        let bus = self.bus.map(|bus| &mut buses[bus]);
        match &mut self.model {
            Model::Rotating(model) => model.step(bus, finished),
            Model::Solid(model) => model.step(bus, finished),
        }
    }
}
