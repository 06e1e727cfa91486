//! Recognises sequential streams among the requests.
//!
//! Invariant: only an opinion; correctness never depends on it. Used by `flat` (a stream stays on
//! one copy) and by `stripe` (a write of a stream may wait for its neighbours).

use md::Sector;

/// Streams that are remembered; the least recently extended one is forgotten first.
const STREAMS: usize = 16;

#[derive(Clone, Copy, Default)]
struct Stream {
    end: u64,
    copy: Option<u8>,
    length: u32,
    touched: u64,
}

/// What is known of the stream that a request continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Requests of the stream before this one; 0 for a request that continues nothing.
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

#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Streams {
    /// Notes a request and says which stream it continues.
    pub(crate) fn observe(&mut self, at: Sector, sectors: u64) -> Seen {
        self.clock += 1;
        let known =
            self.streams.iter().position(|stream| stream.touched != 0 && stream.end == at.0);
        let slot = known.unwrap_or_else(|| self.oldest());
        let stream = &mut self.streams[slot];
        if known.is_some() {
            stream.length = stream.length.saturating_add(1);
        } else {
            *stream = Stream::default();
        }
        stream.end = at.0 + sectors;
        stream.touched = self.clock;
        Seen { length: stream.length, copy: stream.copy, at: slot }
    }

    /// Remembers the copy that the stream of `seen` is read from.
    pub(crate) fn stay_on(&mut self, seen: Seen, copy: u8) {
        self.streams[seen.at].copy = Some(copy);
    }

    fn oldest(&self) -> usize {
        let ages = self.streams.iter().enumerate();
        ages.min_by_key(|(_, stream)| stream.touched).expect("there are streams").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_interleaved_streams_are_told_apart() {
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
}
