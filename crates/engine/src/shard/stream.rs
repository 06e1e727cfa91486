//! Detects sequential streams among the requests.
//!
//! Invariant: a heuristic; correctness never depends on it. Used by `non_parity` (a stream stays on
//! one copy) and by `stripe` (a write of a stream may wait for adjacent writes).

use md::Sector;

/// Number of streams tracked. A stream that was not extended for a whole round of the clock hand is
/// evicted first, so random requests evict each other and not the streams.
const STREAMS: usize = 16;

#[derive(Clone, Copy, Default)]
struct Stream {
    copy: Option<u8>,
    length: u32,
    /// Extended since the clock hand last passed it.
    extended: bool,
}

/// The stream that a request continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Requests of the stream before this one; 0 for a request that continues no stream.
    pub(crate) length: u32,
    /// The copy that the stream is read from.
    pub(crate) copy: Option<u8>,
    at: usize,
}

impl Seen {
    pub(crate) fn is_stream(self) -> bool {
        self.length > 0
    }
}

/// Marks an unused entry: no request begins there.
const NOWHERE: u64 = u64::MAX;

pub(crate) struct Streams {
    /// Expected next sector of each stream; a separate array, because every request scans it.
    ends: [u64; STREAMS],
    streams: [Stream; STREAMS],
    /// Clock hand: the next candidate for eviction.
    hand: usize,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { ends: [NOWHERE; STREAMS], streams: [Stream::default(); STREAMS], hand: 0 }
    }
}

impl Streams {
    /// Registers a request and returns the stream that it continues.
    pub(crate) fn observe(&mut self, at: Sector, sectors: u64) -> Seen {
        let known = self.ends.iter().position(|end| *end == at.0);
        let slot = known.unwrap_or_else(|| self.forget_one());
        let stream = &mut self.streams[slot];
        if known.is_some() {
            stream.length = stream.length.saturating_add(1);
            stream.extended = true;
        }
        self.ends[slot] = at.0 + sectors;
        Seen { length: stream.length, copy: stream.copy, at: slot }
    }

    /// Remembers the copy that the stream of `seen` is read from.
    pub(crate) fn stay_on(&mut self, seen: Seen, copy: u8) {
        self.streams[seen.at].copy = Some(copy);
    }

    fn forget_one(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % STREAMS;
            if !std::mem::take(&mut self.streams[slot].extended) {
                self.streams[slot] = Stream::default();
                return slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_interleaved_streams_are_distinguished() {
        let mut streams = Streams::default();
        for step in 0..10 {
            let low = streams.observe(Sector(step * 8), 8);
            let high = streams.observe(Sector((1 << 20) | (step * 8)), 8);
            assert_eq!((low.length, high.length), (step as u32, step as u32));
            if step == 0 {
                streams.stay_on(low, 1);
            } else {
                assert_eq!((low.copy, high.copy), (Some(1), None));
            }
        }
    }

    #[test]
    fn random_requests_are_no_stream() {
        let mut streams = Streams::default();
        for step in 0..100u64 {
            assert!(!streams.observe(Sector(step * step * 8 + step * 16), 8).is_stream());
        }
    }
    #[test]
    fn random_requests_push_each_other_out_and_not_the_streams() {
        let mut streams = Streams::default();
        let mut random = 7u64;
        for step in 0..50 {
            let seen = streams.observe(Sector(step * 8), 8);
            assert_eq!(seen.length, step as u32);
            // As many as there are other places, each somewhere else.
            for _ in 1..STREAMS {
                random += 1_000_003;
                assert!(!streams.observe(Sector((1 << 30) + random * 8), 8).is_stream());
            }
        }
        assert_eq!(streams.ends.iter().filter(|end| **end == 50 * 8).count(), 1);
    }
}
