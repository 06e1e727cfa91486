//! What goes between the lanes of an array: parts of requests, their ends, and the control plane's
//! messages.
//!
//! ```text
//!   lane 0  ==== Part, Done, Event, Control ===>  lane 1       a bounded ring each way, with one
//!           <=== Part, Done, Event, Control ====               writer and one reader
//! ```
//! A message is a plain value that is copied. What finds a ring full waits in the sender's outbox,
//! in order; requests in the lanes are bounded, and so are parts and ends. Busy lanes poll; only a
//! lane that says that it sleeps is woken, by its bell (an eventfd).
//!
//! Invariant: messages from one lane to another arrive once each and in order, and a lane that has
//! mail does not sleep. Called only from `driver`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use engine::{
    BufSlice, Control, ControlEvent, HostOp, IntentMap, RequestError, ShardPart, Sharding,
};
use md::{Geometry, Sector};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;

/// Messages that a ring holds: small enough to stay in the cache.
const RING_MESSAGES: usize = 256;

/// A part of a request, for the lane that owns its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The request, in the table of the lane that it came to.
    pub(crate) host: u32,
    pub(crate) op: HostOp,
    pub(crate) at: Sector,
    pub(crate) sectors: u64,
    /// Of the region of host buffers, which has the same number in all lanes.
    pub(crate) buf: BufSlice,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Part(Part),
    /// A part has ended.
    Done {
        host: u32,
        result: Result<(), RequestError>,
    },
    /// For lane 0, where the control plane is.
    Event(ControlEvent),
    /// From it.
    Control(Control),
}

/// Wakes a lane that sleeps.
struct Bell {
    asleep: AtomicBool,
    fd: OwnedFd,
}

struct Peer {
    to: Producer<Message>,
    from: Consumer<Message>,
    /// What the ring had no room for.
    outbox: VecDeque<Message>,
    bell: Arc<Bell>,
    /// Something was sent since it was last seen to be awake.
    told: bool,
}

impl Peer {
    fn send(&mut self, message: Message) {
        assert!(!self.to.is_abandoned(), "{}", GONE);
        self.told = true;
        if !self.outbox.is_empty() || self.to.push(message).is_err() {
            self.outbox.push_back(message);
        }
    }

    /// Sends what waits, as far as there is room, and sees that it is looked at.
    fn settle(&mut self) {
        if !self.told {
            return;
        }
        while let Some(message) = self.outbox.front() {
            if self.to.push(*message).is_err() {
                break;
            }
            self.outbox.pop_front();
        }
        self.told = !self.outbox.is_empty();
        // Between what was sent and the look at the bell; `Links::may_sleep` has the other one.
        fence(Ordering::SeqCst);
        self.bell.ring();
    }
}

impl Bell {
    fn ring(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            // Fails only when the counter is full, and then the lane wakes anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

const GONE: &str = "another lane of the array has ended with work under way";

/// One lane's ends of all its links.
pub(crate) struct Links {
    number: u16,
    sharding: Sharding,
    map: IntentMap,
    /// By lane; `None` at the own number.
    peers: Vec<Option<Peer>>,
    bell: Arc<Bell>,
    /// A lane has ended in the midst of its work.
    broken: Arc<AtomicBool>,
}

impl Links {
    /// Links every lane of a division with every other; in the order of their numbers.
    ///
    /// # Errors
    /// When the system has no eventfd for every lane.
    pub(crate) fn between(geometry: &Geometry, sharding: Sharding) -> std::io::Result<Vec<Links>> {
        let count = usize::from(sharding.shards());
        let broken = Arc::new(AtomicBool::new(false));
        let mut bells = Vec::new();
        for _ in 0..count {
            let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            bells.push(Arc::new(Bell { asleep: AtomicBool::new(false), fd }));
        }
        let mut all: Vec<Links> = (0..sharding.shards())
            .map(|number| Links {
                number,
                sharding,
                map: IntentMap::whole_array(geometry),
                peers: (0..count).map(|_| None).collect(),
                bell: bells[usize::from(number)].clone(),
                broken: broken.clone(),
            })
            .collect();
        for one in 0..count {
            for other in one + 1..count {
                let (to_other, from_one) = RingBuffer::new(RING_MESSAGES);
                let (to_one, from_other) = RingBuffer::new(RING_MESSAGES);
                let peer = |to, from, at: usize| {
                    let (outbox, bell) = (VecDeque::new(), bells[at].clone());
                    Some(Peer { to, from, outbox, bell, told: false })
                };
                all[one].peers[other] = peer(to_other, from_other, other);
                all[other].peers[one] = peer(to_one, from_one, one);
            }
        }
        Ok(all)
    }

    /// This lane.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// How the array is divided.
    pub(crate) fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// The other lanes.
    pub(crate) fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let number = self.number;
        (0..self.sharding.shards()).filter(move |other| *other != number)
    }

    /// Whether all of a request is this lane's.
    #[inline]
    pub(crate) fn is_own(&self, op: HostOp, at: Sector, sectors: u64) -> bool {
        match op {
            HostOp::Flush => self.number == 0,
            HostOp::Resync => self.owner_of_position(at) == self.number,
            _ => self.sharding.own(self.number, at, sectors).is_some(),
        }
    }

    /// The first part of a request that begins at `at`; all of it where it has no length.
    pub(crate) fn first_part(&self, op: HostOp, at: Sector, sectors: u64) -> ShardPart {
        match op {
            HostOp::Flush => ShardPart { shard: 0, at, sectors },
            HostOp::Resync => ShardPart { shard: self.owner_of_position(at), at, sectors },
            _ => self.sharding.first_part(at, sectors),
        }
    }

    fn owner_of_position(&self, at: Sector) -> u16 {
        self.sharding.shard_of(self.map.array_sector(at.0))
    }

    pub(crate) fn send(&mut self, lane: u16, message: Message) {
        self.peers[usize::from(lane)].as_mut().expect("another lane").send(message);
    }

    /// Gives everything that has come to `take`, with its sender.
    ///
    /// # Panics
    /// When a lane has ended with work under way: its part of the array is gone.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(u16, Message)) {
        assert!(!self.broken.load(Ordering::Relaxed), "{}", GONE);
        for (lane, peer) in (0..).zip(&mut self.peers) {
            let Some(peer) = peer else { continue };
            while let Ok(message) = peer.from.pop() {
                take(lane, message);
            }
        }
    }

    /// Sends what waits, and rings for whoever sleeps.
    pub(crate) fn settle(&mut self) {
        self.peers.iter_mut().flatten().for_each(Peer::settle);
    }

    /// Whether something waits for room in a ring: look again soon.
    pub(crate) fn is_pushed_back(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.outbox.is_empty())
    }

    fn has_mail(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.from.is_empty())
    }

    /// Says that this lane is about to sleep; `false` when there is mail, and it must not.
    pub(crate) fn may_sleep(&self) -> bool {
        self.bell.asleep.store(true, Ordering::Relaxed);
        // Between the word and the look: whoever sends looks at the bell after it has sent, so that
        // one of both sees the other.
        fence(Ordering::SeqCst);
        let may = !self.has_mail() && !self.broken.load(Ordering::Relaxed);
        if !may {
            self.woke(false);
        }
        may
    }

    /// Readable when the bell has been rung.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd.as_fd()
    }

    /// The lane is awake again. `rung`: its bell is readable, and is silenced. Whoever rings may do
    /// so only after the lane has woken by itself: the bell then wakes it once more, later.
    pub(crate) fn woke(&self, rung: bool) {
        self.bell.asleep.store(false, Ordering::Relaxed);
        if rung {
            let _ = rustix::io::read(&self.bell.fd, &mut [0; 8]);
        }
    }

    /// This lane ends. `at_work`: with something under way, here or on its way here, so that the
    /// others cannot go on.
    pub(crate) fn leave(&mut self, at_work: bool) {
        if at_work || self.has_mail() {
            self.broken.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.peers.iter().flatten().for_each(|peer| peer.bell.ring());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use md::{GeometrySpec, Layout, Level};
    use rustix::event::{PollFd, PollFlags, Timespec};

    use super::*;

    fn links(lanes: u16) -> Vec<Links> {
        let geometry = Geometry::new(&GeometrySpec {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk_sectors: 16,
            member_sectors: vec![1600; 3],
        });
        let geometry = geometry.expect("sound");
        let sharding = Sharding::with_least_unit(&geometry, lanes, 1);
        Links::between(&geometry, sharding).expect("eventfds")
    }

    fn ends(links: &mut Links) -> Vec<(u16, u32)> {
        let mut out = Vec::new();
        links.receive(|lane, message| match message {
            Message::Done { host, result: Ok(()) } => out.push((lane, host)),
            other => panic!("unexpected {other:?}"),
        });
        out
    }

    #[test]
    fn more_than_a_ring_holds_arrives_in_order() {
        let mut links = links(3);
        let count = 3 * RING_MESSAGES as u32;
        for host in 0..count {
            links[2].send(1, Message::Done { host, result: Ok(()) });
        }
        let mut got = Vec::new();
        while links[2].is_pushed_back() {
            got.extend(ends(&mut links[1]));
            links[2].settle();
        }
        got.extend(ends(&mut links[1]));
        assert_eq!(got, (0..count).map(|host| (2, host)).collect::<Vec<_>>());
        assert!(ends(&mut links[0]).is_empty());
    }

    #[test]
    fn only_who_sleeps_is_rung_for_and_nobody_sleeps_on_mail() {
        let mut links = links(2);
        let rung = |links: &Links| rustix::io::read(&links.bell.fd, &mut [0; 8]).is_ok();
        let send = |links: &mut Links| {
            links.send(1, Message::Done { host: 1, result: Ok(()) });
            links.settle();
        };
        send(&mut links[0]);
        assert!(!rung(&links[1]), "it was awake");
        assert!(!links[1].may_sleep(), "there is mail");
        ends(&mut links[1]);
        assert!(links[1].may_sleep());
        send(&mut links[0]);
        send(&mut links[0]);
        let mut count = [0; 8];
        assert!(rustix::io::read(&links[1].bell.fd, &mut count).is_ok());
        assert_eq!(u64::from_ne_bytes(count), 1, "one ring is enough");
    }

    /// Sleeps as `driver` does, without waiting; says whether the bell woke it.
    fn sleeps_and_is_woken(links: &Links) -> bool {
        assert!(links.may_sleep());
        let mut bell = [PollFd::new(&links.bell.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let rung = rustix::event::poll(&mut bell, Some(&now)).expect("polled") > 0;
        links.woke(rung);
        rung
    }

    #[test]
    fn a_bell_that_rings_late_wakes_one_sleep() {
        let links = links(2);
        // Lane 0 has seen that lane 1 sleeps, and lane 1 wakes by itself before the bell rings.
        assert!(links[1].may_sleep());
        assert!(links[0].peers[1].as_ref().expect("a peer").bell.asleep.swap(false, Relaxed));
        links[1].woke(false);
        rustix::io::write(&links[1].bell.fd, &1u64.to_ne_bytes()).expect("rung");
        let woken = (0..10).filter(|_| sleeps_and_is_woken(&links[1])).count();
        assert_eq!(woken, 1);
    }

    #[test]
    #[should_panic(expected = "another lane of the array has ended")]
    fn nobody_waits_for_a_lane_that_is_gone() {
        let mut links = links(2);
        let mut gone = links.pop().expect("two lanes");
        gone.leave(true);
        drop(gone);
        ends(&mut links[0]);
    }
}
