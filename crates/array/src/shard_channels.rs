//! Message channels between the shards of an array: request parts, their completions, and control
//! messages.
//!
//! ```text
//!   shard 0  ==== Part, Done, Event, Control ===>  shard 1       a bounded ring each way, with one
//!           <=== Part, Done, Event, Control ====               writer and one reader
//! ```
//! A message is a plain value that is copied. Messages that find a ring full are queued in the
//! sender's outbox, in order; the requests of a shard are bounded, and so are parts and
//! completions. Busy shards poll; a shard is woken through its eventfd only after it has announced
//! that it sleeps.
//!
//! A shard may leave while no other shard depends on it. Otherwise the array is *broken*: the
//! leaving shard detects it by the messages in its rings, a sender by the `left` flag. A broken
//! array does no more work; when all shards are *quiet*, that is, use no host buffer any more,
//! requests in flight complete with errors.
//!
//! Invariant: messages from one shard to another arrive exactly once and in order, a shard with
//! unread messages does not sleep, and no shard waits for one that has left. Called only from
//! `driver`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex};

use engine::{
    Control, ControlEvent, HostOp, IntentMap, Request, RequestError, ShardPart, Sharding,
};
use host::sys::EventFd;
use md::{Geometry, Sector};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::buf::Lease;
use crate::executor::JoiningMember;

/// Messages per ring: small enough to stay in the CPU cache.
const RING_MESSAGES: usize = 256;

#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A part of a request, for the shard that owns its range. Its tag is the request's index in
    /// the host table of the sending shard; its buffer is in the region of host buffers, which has
    /// the same number in all shards.
    Part(Request),
    /// A part has completed.
    Done { host: u32, result: Result<(), RequestError> },
    /// A late operation of a member uses the buffer of a request of the receiving shard; see
    /// [`engine::Effect::Hold`].
    Hold { host: u32 },
    /// It does not any more.
    Release { host: u32 },
    /// An event for the control plane, in shard 0.
    Event(ControlEvent),
    /// A command of the control plane.
    Control(Control),
    /// The device that was at a place has left the array: its handle is dropped.
    Unbind { place: u16 },
    /// A member for a slot has come: see [`ShardChannels::take_members`].
    Member,
}

impl Message {
    /// Whether the sender depends on an answer to this message.
    fn matters(&self) -> bool {
        use ControlEvent::{Corrected, OutOfSync, Released};
        !matches!(
            self,
            Message::Event(Released { .. } | OutOfSync { .. } | Corrected { .. })
                | Message::Hold { .. }
                | Message::Release { .. }
        )
    }
}

/// Wakes a sleeping shard.
struct Waker {
    asleep: AtomicBool,
    /// The shard has left.
    left: AtomicBool,
    fd: EventFd,
    /// Members for slots that the shard has not taken yet: rare, so that a lock does no harm.
    members: Mutex<VecDeque<JoiningMember>>,
}

/// State shared by all shards.
#[derive(Default)]
struct SharedState {
    /// A shard has left that another one depends on.
    broken: AtomicBool,
    /// Shards that will use no host buffer any more.
    quiet: AtomicU32,
    /// Counts changes of both.
    news: AtomicU32,
    /// Buffers of shards that left with work in flight: other shards may still use them, until all
    /// are quiet.
    leases: Mutex<Vec<Lease>>,
}

struct Peer {
    to: Producer<Message>,
    from: Consumer<Message>,
    /// Messages that the ring had no room for.
    outbox: VecDeque<Message>,
    waker: Arc<Waker>,
    /// Messages were sent since the peer was last seen awake.
    wake_due: bool,
    /// And this shard depends on an answer.
    matters: bool,
}

impl Peer {
    fn send(&mut self, message: Message) {
        self.wake_due = true;
        self.matters |= message.matters();
        if !self.outbox.is_empty() {
            self.outbox.push_back(message);
        } else if let Err(PushError::Full(message)) = self.to.push(message) {
            self.outbox.push_back(message);
        }
    }

    /// Sends queued messages as far as there is room, and wakes the peer. `false`: the peer has
    /// left, and this shard depends on an answer.
    fn send_queued(&mut self) -> bool {
        if !self.wake_due {
            return true;
        }
        while let Some(message) = self.outbox.pop_front() {
            if let Err(PushError::Full(message)) = self.to.push(message) {
                self.outbox.push_front(message);
                break;
            }
        }
        self.wake_due = !self.outbox.is_empty();
        // Between the send and the look at the peer's flags; pairs with `ShardChannels::may_sleep`
        // and `ShardChannels::leave`.
        fence(Ordering::SeqCst);
        if self.waker.left.load(Ordering::Relaxed) {
            self.outbox.clear();
            self.wake_due = false;
            return !self.matters;
        }
        self.matters &= self.wake_due;
        self.waker.wake();
        true
    }
}

impl Waker {
    fn wake(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.fd.signal();
        }
    }
}

/// One shard's ends of all its channels.
pub(crate) struct ShardChannels {
    number: u16,
    sharding: Sharding,
    map: IntentMap,
    /// By shard; `None` at this shard's own number.
    peers: Vec<Option<Peer>>,
    waker: Arc<Waker>,
    fate: Arc<SharedState>,
    /// The last value seen of `SharedState::news`.
    seen: u32,
    is_quiet: bool,
    /// Members whose messages have come, and that are not taken yet.
    members_come: usize,
}

impl ShardChannels {
    /// Connects every shard of a division with every other; in the order of their numbers.
    ///
    /// # Errors
    /// When the system has no eventfd for every shard.
    pub(crate) fn between(
        geometry: &Geometry,
        sharding: Sharding,
    ) -> std::io::Result<Vec<ShardChannels>> {
        let count = usize::from(sharding.shards());
        let fate = Arc::new(SharedState::default());
        let mut wakers = Vec::new();
        for _ in 0..count {
            let fd = EventFd::new()?;
            let (asleep, left) = (AtomicBool::new(false), AtomicBool::new(false));
            let members = Mutex::default();
            wakers.push(Arc::new(Waker { asleep, left, fd, members }));
        }
        let mut all: Vec<ShardChannels> = (0..sharding.shards())
            .map(|number| ShardChannels {
                number,
                sharding,
                map: IntentMap::whole_array(geometry),
                peers: (0..count).map(|_| None).collect(),
                waker: wakers[usize::from(number)].clone(),
                fate: fate.clone(),
                seen: 0,
                is_quiet: false,
                members_come: 0,
            })
            .collect();
        for one in 0..count {
            for other in one + 1..count {
                let (to_other, from_one) = RingBuffer::new(RING_MESSAGES);
                let (to_one, from_other) = RingBuffer::new(RING_MESSAGES);
                let peer = |to, from, at: usize| {
                    let (outbox, waker) = (VecDeque::new(), wakers[at].clone());
                    Some(Peer { to, from, outbox, waker, wake_due: false, matters: false })
                };
                all[one].peers[other] = peer(to_other, from_other, other);
                all[other].peers[one] = peer(to_one, from_one, one);
            }
        }
        Ok(all)
    }

    /// Sends a device for a place to another shard.
    pub(crate) fn send_member(&mut self, shard: u16, joining: JoiningMember) {
        let peer = self.peers[usize::from(shard)].as_mut().expect("another shard");
        peer.waker.members.lock().expect("no panic while it is locked").push_back(joining);
        peer.send(Message::Member);
    }

    /// The devices whose messages have come, with their places. Those whose messages are under way
    /// stay: a command before such a message is of the device that was at the place before.
    pub(crate) fn take_members(&mut self) -> Vec<JoiningMember> {
        let count = std::mem::take(&mut self.members_come);
        if count == 0 {
            return Vec::new();
        }
        let mut members = self.waker.members.lock().expect("no panic while it is locked");
        members.drain(..count).collect()
    }

    /// This shard's number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// How the array is divided.
    pub(crate) fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// The other shards.
    pub(crate) fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let number = self.number;
        (0..self.sharding.shards()).filter(move |other| *other != number)
    }

    /// Whether this shard owns the whole request.
    #[inline]
    pub(crate) fn is_own(&self, op: HostOp, at: Sector, sectors: u64) -> bool {
        match op {
            HostOp::Flush => self.number == 0,
            HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_) => {
                self.owner_of_position(at) == self.number
            }
            _ => self.sharding.own(self.number, at, sectors).is_some(),
        }
    }

    /// The first part of a request that begins at `at`; all of it if it has no length.
    pub(crate) fn first_part(&self, op: HostOp, at: Sector, sectors: u64) -> ShardPart {
        match op {
            HostOp::Flush => ShardPart { shard: 0, at, sectors },
            HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_) => {
                ShardPart { shard: self.owner_of_position(at), at, sectors }
            }
            _ => self.sharding.first_part(at, sectors),
        }
    }

    fn owner_of_position(&self, at: Sector) -> u16 {
        self.sharding.shard_of(self.map.array_sector(at.0))
    }

    pub(crate) fn send(&mut self, shard: u16, message: Message) {
        self.peers[usize::from(shard)].as_mut().expect("another shard").send(message);
    }

    /// Passes every received message to `take`, with its sender.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(u16, Message)) {
        for (shard, peer) in (0..).zip(&mut self.peers) {
            let Some(peer) = peer else { continue };
            while let Ok(message) = peer.from.pop() {
                self.members_come += usize::from(matches!(message, Message::Member));
                take(shard, message);
            }
        }
    }

    /// Sends queued messages, and wakes sleeping peers.
    pub(crate) fn flush_outboxes(&mut self) {
        let mut all_there = true;
        self.peers.iter_mut().flatten().for_each(|peer| all_there &= peer.send_queued());
        if !all_there {
            self.break_up();
        }
    }

    fn break_up(&self) {
        if !self.fate.broken.swap(true, Ordering::AcqRel) {
            self.wake_all();
        }
    }

    /// Wakes all shards after a change of the shared state.
    fn wake_all(&self) {
        self.fate.news.fetch_add(1, Ordering::AcqRel);
        // As in `Peer::send_queued`.
        fence(Ordering::SeqCst);
        self.peers.iter().flatten().for_each(|peer| peer.waker.wake());
    }

    /// Whether a shard has left that another one depends on, so that no request can be served any
    /// more.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.fate.broken.load(Ordering::Relaxed)
    }

    /// On a broken array: discards received messages and notes the shared state, so that this shard
    /// may sleep.
    pub(crate) fn clear_inboxes(&mut self) {
        self.receive(|_, _| ());
        self.seen = self.fate.news.load(Ordering::Acquire);
    }

    /// On a broken array: this shard will use no host buffer any more. Returns whether that holds
    /// for all shards.
    pub(crate) fn be_quiet(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_quiet, true) {
            self.fate.quiet.fetch_add(1, Ordering::AcqRel);
            self.wake_all();
        }
        self.clear_inboxes();
        let all = self.fate.quiet.load(Ordering::Acquire) == u32::from(self.sharding.shards());
        if all {
            self.fate.leases.lock().expect("the list lock is not poisoned").clear();
        }
        all
    }

    /// Whether messages are queued for room in a ring: poll again soon.
    pub(crate) fn is_pushed_back(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.outbox.is_empty())
    }

    fn has_messages(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.from.is_empty())
    }

    /// Announces that this shard is about to sleep; `false` when there are messages, and it must
    /// not.
    pub(crate) fn may_sleep(&self) -> bool {
        self.waker.asleep.store(true, Ordering::Relaxed);
        // Between the store and the check: a sender checks the flag after it has sent, so that at
        // least one of the two sees the other.
        fence(Ordering::SeqCst);
        let seen = !self.is_broken() || self.fate.news.load(Ordering::Relaxed) == self.seen;
        let may = !self.has_messages() && seen;
        if !may {
            self.woke(false);
        }
        may
    }

    /// Readable when the shard has been woken.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.waker.fd.as_fd()
    }

    /// The shard is awake again. `readable`: its eventfd is readable, and is reset. A sender may
    /// write to it only after the shard has woken for another reason: the shard is then woken once
    /// more, later.
    pub(crate) fn woke(&self, readable: bool) {
        self.waker.asleep.store(false, Ordering::Relaxed);
        if readable {
            self.waker.fd.reset();
        }
    }

    /// This shard ends and will use no host buffer any more. `at_work`: with work in flight, its
    /// own or of other shards, which therefore cannot complete. The buffers of its own requests are
    /// kept until all shards are quiet.
    pub(crate) fn leave(&mut self, at_work: bool, leases: impl Iterator<Item = Lease>) {
        self.flush_outboxes();
        self.waker.left.store(true, Ordering::Relaxed);
        // Between the store and the check of the rings; pairs with `Peer::send_queued`.
        fence(Ordering::SeqCst);
        let mut lost = at_work;
        self.receive(|_, message| lost |= message.matters());
        lost |= self.peers.iter().flatten().any(|peer| peer.matters && !peer.outbox.is_empty());
        if lost {
            self.break_up();
        }
        self.fate.leases.lock().expect("the list lock is not poisoned").extend(leases);
        self.be_quiet();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use md::{GeometrySpec, Layout, Level};

    use super::*;

    fn channels(shards: u16) -> Vec<ShardChannels> {
        let geometry = Geometry::new(&GeometrySpec {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk_sectors: 16,
            member_sectors: vec![1600; 3],
        });
        let geometry = geometry.expect("sound");
        let sharding = Sharding::with_least_unit(&geometry, shards, 1);
        ShardChannels::between(&geometry, sharding).expect("eventfds")
    }

    fn ends(channels: &mut ShardChannels) -> Vec<(u16, u32)> {
        let mut out = Vec::new();
        channels.receive(|shard, message| match message {
            Message::Done { host, result: Ok(()) } => out.push((shard, host)),
            other => panic!("unexpected {other:?}"),
        });
        out
    }

    #[test]
    fn more_than_a_ring_holds_arrives_in_order() {
        let mut channels = channels(3);
        let count = 3 * RING_MESSAGES as u32;
        for host in 0..count {
            channels[2].send(1, Message::Done { host, result: Ok(()) });
        }
        let mut got = Vec::new();
        while channels[2].is_pushed_back() {
            got.extend(ends(&mut channels[1]));
            channels[2].flush_outboxes();
        }
        got.extend(ends(&mut channels[1]));
        assert_eq!(got, (0..count).map(|host| (2, host)).collect::<Vec<_>>());
        assert!(ends(&mut channels[0]).is_empty());
    }

    #[test]
    fn only_sleeping_shards_are_woken_and_none_sleeps_with_unread_messages() {
        let mut channels = channels(2);
        let readable =
            |channels: &ShardChannels| rustix::io::read(&channels.waker.fd, &mut [0; 8]).is_ok();
        let send = |channels: &mut ShardChannels| {
            channels.send(1, Message::Done { host: 1, result: Ok(()) });
            channels.flush_outboxes();
        };
        send(&mut channels[0]);
        assert!(!readable(&channels[1]), "it was awake");
        assert!(!channels[1].may_sleep(), "there is a message");
        ends(&mut channels[1]);
        assert!(channels[1].may_sleep());
        send(&mut channels[0]);
        send(&mut channels[0]);
        let mut count = [0; 8];
        assert!(rustix::io::read(&channels[1].waker.fd, &mut count).is_ok());
        assert_eq!(u64::from_ne_bytes(count), 1, "one ring is enough");
    }

    /// Goes to sleep as `driver` does, without waiting; returns whether the eventfd woke it.
    fn sleeps_and_is_woken(channels: &ShardChannels) -> bool {
        assert!(channels.may_sleep());
        let readable = channels.waker.fd.is_readable();
        channels.woke(readable);
        readable
    }

    #[test]
    fn a_wake_up_that_comes_late_ends_one_sleep() {
        let channels = channels(2);
        // Shard 0 has seen that shard 1 sleeps, and shard 1 wakes before shard 0 writes to the
        // eventfd.
        assert!(channels[1].may_sleep());
        assert!(channels[0].peers[1].as_ref().expect("a peer").waker.asleep.swap(false, Relaxed));
        channels[1].woke(false);
        channels[1].waker.fd.signal();
        let woken = (0..10).filter(|_| sleeps_and_is_woken(&channels[1])).count();
        assert_eq!(woken, 1);
    }

    /// The second of two shards leaves; returns whether the array is broken once the first has
    /// polled.
    fn breaks(before: &[Message], at_work: bool, after: &[Message]) -> bool {
        let mut channels = channels(2);
        let mut gone = channels.pop().expect("two shards");
        let send = |from: &mut ShardChannels, messages: &[Message], to| {
            messages.iter().for_each(|message| from.send(to, message.clone()));
            from.flush_outboxes();
        };
        send(&mut channels[0], before, 1);
        gone.leave(at_work, std::iter::empty());
        drop(gone);
        send(&mut channels[0], after, 1);
        channels[0].is_broken()
    }

    #[test]
    fn only_a_shard_with_pending_messages_breaks_the_array() {
        let done = Message::Done { host: 1, result: Ok(()) };
        let released = Message::Event(ControlEvent::Released { first_bit: 0, bits: 1 });
        let many = vec![released.clone(); 2 * RING_MESSAGES];
        let (done, released) = (&[done][..], &[released][..]);
        assert!(!breaks(&[], false, &[]));
        assert!(!breaks(released, false, &many));
        assert!(breaks(&[], true, &[]));
        assert!(breaks(done, false, &[]), "it has unread messages");
        assert!(breaks(&[], false, done), "a message is never received");
        assert!(breaks(&many, false, done));
    }

    #[test]
    fn messages_left_in_an_outbox_are_noticed() {
        let mut channels = channels(2);
        for host in 0..=RING_MESSAGES as u32 {
            channels[1].send(0, Message::Done { host, result: Ok(()) });
        }
        channels.pop().expect("two shards").leave(false, std::iter::empty());
        assert!(channels[0].is_broken());
        assert!(!channels[0].may_sleep(), "it has not seen that");
        assert!(channels[0].be_quiet(), "the other one is");
        assert!(channels[0].may_sleep());
    }
}
