//! Write intents of one shard: decides which writes may start.
//!
//! ```text
//!            Intent               Granted
//!  absent ----------> requested ----------> granted <---> in use (counted)
//!     ^                                        |
//!     +------------- Released -----------------+  unused for a while
//! ```
//! A write-like request starts when all its bits are granted; otherwise it is parked. While it is
//! parked it counts as a user of its bits, so that granted bits are kept until the rest is granted.
//!
//! Invariant: a bit with users is never released, and of two writes that share a bit the one that
//! came first starts first. Bounded by the requests in the shard; nothing is allocated once warm.
//! Called only from `shard`.

use std::collections::VecDeque;
use std::ops::Range;

use md::Sector;

use crate::{ControlEvent, Effect, Effects, IntentMap};

/// It was requested from the metadata manager.
const ASKED: u32 = 1 << 31;
/// It may be used.
const GRANTED: u32 = 1 << 30;
/// It is in the list `idle`.
const LISTED: u32 = 1 << 29;
/// It was used since it was added to `idle`.
const USED: u32 = 1 << 28;
/// Number of requests that use it or wait for it.
const USERS: u32 = USED - 1;

struct Parked {
    request: u32,
    /// The bits from here on may not be granted.
    bits: Range<u32>,
    all: Range<u32>,
}

pub(crate) struct Intents {
    map: IntentMap,
    bits: Vec<u32>,
    parked: VecDeque<Parked>,
    /// Bits that became unused at that time, oldest first; each at most once.
    idle: VecDeque<(u64, u32)>,
    delay_nanos: u64,
    /// Parked ranges that a scan has passed; empty between calls.
    passed: Vec<Range<u32>>,
}

impl Intents {
    pub(crate) fn new(map: IntentMap, delay_nanos: u64) -> Intents {
        Intents {
            bits: vec![0; map.bits() as usize],
            map,
            parked: VecDeque::new(),
            idle: VecDeque::new(),
            delay_nanos,
            passed: Vec::new(),
        }
    }

    pub(crate) fn map(&self) -> &IntentMap {
        &self.map
    }

    /// Number of requests that wait for the metadata manager.
    pub(crate) fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Admits a write. `true`: it may start; otherwise it is parked, and is returned by
    /// [`Intents::granted`] in its turn.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        request: u32,
        at: Sector,
        sectors: u64,
        out: &mut Effects,
    ) -> bool {
        let all = self.map.of_write(at, sectors);
        let mut granted = true;
        for bit in all.clone() {
            let state = &mut self.bits[bit as usize];
            *state += 1;
            granted &= *state & GRANTED != 0;
        }
        if granted && !self.parked.iter().any(|parked| overlap(&parked.all, &all)) {
            return true;
        }
        self.request(all.clone(), out);
        self.parked.push_back(Parked { request, bits: all.clone(), all });
        false
    }

    /// Requests bits that were not requested yet, one event per run.
    fn request(&mut self, bits: Range<u32>, out: &mut Effects) {
        let mut run = bits.start..bits.start;
        for bit in bits {
            let state = &mut self.bits[bit as usize];
            if *state & (ASKED | GRANTED) != 0 {
                send(&run, intent, out);
                run = bit + 1..bit + 1;
            } else {
                *state |= ASKED;
                run.end = bit + 1;
            }
        }
        send(&run, intent, out);
    }

    /// The metadata manager has granted bits; appends the writes that may start now to `ready`, in
    /// order of arrival.
    pub(crate) fn granted(&mut self, now: u64, bits: Range<u32>, ready: &mut Vec<u32>) {
        for bit in bits {
            let state = &mut self.bits[bit as usize];
            assert!(*state & ASKED != 0, "intent {bit} was granted but not requested");
            *state = *state & !ASKED | GRANTED;
            // The write that requested it may have been refused in between.
            if *state & USERS == 0 {
                self.list(now, bit);
            }
        }
        let Intents { bits, parked, passed, .. } = self;
        passed.clear();
        parked.retain_mut(|wait| {
            let lacking = |bit: &u32| bits[*bit as usize] & GRANTED == 0;
            wait.bits.start = wait.bits.clone().find(lacking).unwrap_or(wait.bits.end);
            let behind = passed.iter().any(|earlier| overlap(earlier, &wait.all));
            let stays = behind || !wait.bits.is_empty();
            if stays {
                passed.push(wait.all.clone());
            } else {
                ready.push(wait.request);
            }
            stays
        });
    }

    /// The metadata manager has refused bits; removes the writes that wait for any of them and
    /// appends them to `refused`. Bits that other writes wait for are requested again by the next
    /// write.
    pub(crate) fn not_granted(&mut self, bits: Range<u32>, refused: &mut Vec<u32>) {
        for bit in bits.clone() {
            self.bits[bit as usize] &= !ASKED;
        }
        self.parked.retain(|wait| {
            let goes = overlap(&wait.all, &bits);
            if goes {
                refused.push(wait.request);
            }
            !goes
        });
    }

    /// An admitted request has completed. `unsettled`: half-way, so that its range must be
    /// resynced.
    pub(crate) fn ended(
        &mut self,
        now: u64,
        at: Sector,
        sectors: u64,
        unsettled: bool,
        out: &mut Effects,
    ) {
        let all = self.map.of_write(at, sectors);
        if unsettled {
            send(&all, |first_bit, bits| ControlEvent::OutOfSync { first_bit, bits }, out);
        }
        for bit in all {
            let state = &mut self.bits[bit as usize];
            *state -= 1;
            if *state & USERS == 0 && *state & GRANTED != 0 {
                self.list(now, bit);
            }
        }
    }

    fn list(&mut self, now: u64, bit: u32) {
        let state = &mut self.bits[bit as usize];
        if *state & LISTED == 0 {
            *state |= LISTED;
            self.idle.push_back((now, bit));
        } else {
            *state |= USED;
        }
    }

    /// Removes all parked writes: their intents will not be granted.
    pub(crate) fn refuse(&mut self, refused: &mut Vec<u32>) {
        refused.extend(self.parked.drain(..).map(|parked| parked.request));
        self.delay_nanos = 0;
    }

    /// Releases bits that have been unused for the delay. A bit that was used since it was listed
    /// waits once more, so that no time is kept per bit: it is released after between one and two
    /// delays.
    pub(crate) fn run_timers(&mut self, now: u64, out: &mut Effects) {
        let mut run = 0..0;
        while let Some((since, bit)) = self.idle.front().copied() {
            if since + self.delay_nanos > now {
                break;
            }
            self.idle.pop_front();
            let state = &mut self.bits[bit as usize];
            if *state & USERS != 0 {
                *state &= !(LISTED | USED);
            } else if *state & USED != 0 {
                *state &= !USED;
                self.idle.push_back((now, bit));
            } else {
                *state = 0;
                if run.end != bit {
                    send(&run, released, out);
                    run = bit..bit;
                }
                run.end = bit + 1;
            }
        }
        send(&run, released, out);
    }

    /// When [`Intents::run_timers`] is due by the clock alone.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.idle.front().map(|(since, _)| since + self.delay_nanos)
    }
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

fn intent(first_bit: u32, bits: u32) -> ControlEvent {
    ControlEvent::Intent { first_bit, bits }
}

fn released(first_bit: u32, bits: u32) -> ControlEvent {
    ControlEvent::Released { first_bit, bits }
}

fn send(run: &Range<u32>, event: impl Fn(u32, u32) -> ControlEvent, out: &mut Effects) {
    if !run.is_empty() {
        out.list.push(Effect::Control(event(run.start, run.end - run.start)));
    }
}

#[cfg(test)]
mod tests {
    use md::{Geometry, GeometrySpec, Layout, Level};

    use super::*;

    const DELAY: u64 = 100;

    /// A mirror with 16 bits of 8 sectors each.
    fn intents() -> Intents {
        let spec = GeometrySpec {
            level: Level::Raid1,
            layout: Layout::None,
            chunk_sectors: 0,
            member_sectors: vec![128; 2],
        };
        let geometry = Geometry::new(&spec).expect("sound");
        Intents::new(IntentMap::bitmap(&geometry, 8).expect("a bitmap"), DELAY)
    }

    fn events(out: &mut Effects) -> Vec<ControlEvent> {
        let events = out.list.drain(..).map(|effect| match effect {
            Effect::Control(event) => event,
            other => panic!("unexpected {other:?}"),
        });
        events.collect()
    }

    fn granted(intents: &mut Intents, now: u64, bits: Range<u32>) -> Vec<u32> {
        let mut ready = Vec::new();
        intents.granted(now, bits, &mut ready);
        ready
    }

    #[test]
    fn a_write_waits_for_all_its_bits_and_requests_each_once() {
        let (mut intents, mut out) = (intents(), Effects::new());
        assert!(!intents.admit(1, Sector(8), 8, &mut out));
        assert_eq!(events(&mut out), [intent(1, 1)]);
        assert!(!intents.admit(2, Sector(0), 32, &mut out));
        assert_eq!(events(&mut out), [intent(0, 1), intent(2, 2)]);
        assert_eq!(granted(&mut intents, 0, 1..2), [1]);
        // Behind 2, with which it shares bit 1, although that bit is granted.
        assert!(!intents.admit(3, Sector(8), 8, &mut out));
        assert!(events(&mut out).is_empty());
        assert_eq!(granted(&mut intents, 0, 0..1), [] as [u32; 0]);
        assert_eq!(granted(&mut intents, 0, 2..4), [2, 3]);
        assert!(intents.admit(4, Sector(16), 16, &mut out));
        assert_eq!((events(&mut out).len(), intents.parked()), (0, 0));
    }

    #[test]
    fn a_bit_is_released_when_it_was_unused_for_the_delay() {
        let (mut intents, mut out) = (intents(), Effects::new());
        assert!(!intents.admit(1, Sector(0), 16, &mut out));
        granted(&mut intents, 0, 0..2);
        out.clear();
        intents.ended(10, Sector(0), 16, false, &mut out);
        assert_eq!(intents.deadline(), Some(110));
        // Used again, on bit 1 only.
        assert!(intents.admit(2, Sector(8), 8, &mut out));
        intents.run_timers(110, &mut out);
        assert_eq!(events(&mut out), [released(0, 1)]);
        intents.ended(120, Sector(8), 8, false, &mut out);
        assert!(intents.admit(3, Sector(8), 8, &mut out));
        intents.ended(130, Sector(8), 8, false, &mut out);
        intents.run_timers(220, &mut out);
        assert!(events(&mut out).is_empty(), "used since it was listed at 120");
        intents.run_timers(320, &mut out);
        assert_eq!(events(&mut out), [released(1, 1)]);
        assert_eq!(intents.deadline(), None);
        assert!(!intents.admit(4, Sector(0), 8, &mut out), "it must be asked for again");
    }

    #[test]
    fn a_grant_that_comes_too_late_is_released_immediately() {
        let (mut intents, mut out) = (intents(), Effects::new());
        assert!(!intents.admit(1, Sector(0), 8, &mut out));
        let mut refused = Vec::new();
        intents.refuse(&mut refused);
        assert_eq!(refused, [1]);
        intents.ended(5, Sector(0), 8, false, &mut out);
        out.clear();
        assert!(granted(&mut intents, 6, 0..1).is_empty());
        intents.run_timers(6, &mut out);
        assert_eq!(events(&mut out), [released(0, 1)]);
    }

    #[test]
    fn writes_waiting_for_a_refused_bit_are_refused() {
        let (mut intents, mut out) = (intents(), Effects::new());
        assert!(!intents.admit(1, Sector(0), 16, &mut out));
        assert!(!intents.admit(2, Sector(8), 16, &mut out));
        assert!(!intents.admit(3, Sector(16), 8, &mut out));
        granted(&mut intents, 0, 1..3);
        assert_eq!(intents.parked(), 3);
        let mut refused = Vec::new();
        intents.not_granted(0..1, &mut refused);
        assert_eq!(refused, [1]);
        intents.ended(0, Sector(0), 16, false, &mut out);
        assert_eq!(granted(&mut intents, 0, 0..0), [2, 3]);
        out.clear();
        assert!(!intents.admit(4, Sector(0), 8, &mut out));
        assert_eq!(events(&mut out), [intent(0, 1)], "asked for again");
    }

    #[test]
    fn a_write_that_fails_half_way_is_reported() {
        let (mut intents, mut out) = (intents(), Effects::new());
        intents.admit(1, Sector(20), 8, &mut out);
        granted(&mut intents, 0, 2..4);
        out.clear();
        intents.ended(1, Sector(20), 8, true, &mut out);
        assert_eq!(events(&mut out), [ControlEvent::OutOfSync { first_bit: 2, bits: 2 }]);
    }
}
