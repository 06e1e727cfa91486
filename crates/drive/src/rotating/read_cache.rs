//! Owns the segments of the read cache, each the recent past and the near future of one stream.
//!
//! ```text
//!            start            host_end              end
//!   segment    |-- sent to host --|--- read ahead ---|      end - start <= segment size
//! ```
//!
//! The drive fills a segment from `end` on while it has nothing better to do, up to a segment's
//! size beyond the host. A read that begins inside a segment, or a short gap behind it, belongs to
//! its stream; any other takes the least recently used segment. (The segmented cache of data
//! sheets; Ruemmler and Wilkes 1994, section "disk caching".)
//!
//! Writes do not touch segments: a drive updates them in place, which takes no time that counts.
//!
//! Invariant: a segment is contiguous. Called by `drive`.

/// One segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    start: u64,
    pub end: u64,
    /// End of the host's last read in this stream.
    pub host_end: u64,
    /// Reads in a row, after the first, that went on where the last had ended, or a little later.
    run: u32,
    used: u64,
}

/// All segments.
#[derive(Debug)]
pub(crate) struct ReadCache {
    segments: Vec<Segment>,
    pub segment_bytes: u64,
    stamp: u64,
}

/// Reads in a row that make a stream.
const STREAM_RUN: u32 = 2;

impl ReadCache {
    pub fn new(segments: usize, segment_bytes: u64) -> ReadCache {
        // An empty segment stands where no read begins.
        let nowhere = Segment { start: u64::MAX, end: u64::MAX, ..Segment::default() };
        ReadCache { segments: vec![nowhere; segments], segment_bytes, stamp: 0 }
    }

    pub fn segment(&self, index: usize) -> &Segment {
        &self.segments[index]
    }

    /// The segment that holds all of `at..end`.
    pub fn holding(&self, at: u64, end: u64) -> Option<usize> {
        self.segments.iter().position(|segment| segment.start <= at && end <= segment.end)
    }

    /// The segment used last, if it is a stream's.
    pub fn last_stream(&self) -> Option<usize> {
        let last = self.segments.iter().enumerate().max_by_key(|(_, segment)| segment.used)?;
        last.1.is_stream().then_some(last.0)
    }

    /// The segment for a read of `at..` that must go to the medium, and where the medium's part of
    /// it begins. Continues a stream or, failing that, opens a new one.
    pub fn open(&mut self, at: u64) -> (usize, u64) {
        let reach = self.segment_bytes;
        let known = self.segments.iter().position(|segment| {
            segment.start <= at && at <= segment.end.max(segment.host_end).saturating_add(reach)
        });
        let index = known.unwrap_or_else(|| {
            let oldest = self.segments.iter().enumerate().min_by_key(|(_, segment)| segment.used);
            let index = oldest.expect("there is at least one segment").0;
            self.segments[index] = Segment { start: at, end: at, ..Segment::default() };
            index
        });
        let segment = &mut self.segments[index];
        if at > segment.end {
            (segment.start, segment.end) = (at, at);
        }
        (index, segment.end)
    }

    /// Notes that the host reads `at..end` in this segment's stream.
    pub fn note(&mut self, index: usize, at: u64, end: u64) {
        self.stamp += 1;
        let reach = self.segment_bytes;
        let segment = &mut self.segments[index];
        let follows =
            segment.used > 0 && (segment.host_end..=segment.host_end + reach).contains(&at);
        segment.run = if follows { segment.run + 1 } else { 0 };
        segment.host_end = end;
        segment.used = self.stamp;
    }

    /// The medium has been read up to `end`; the oldest data make room.
    pub fn grow(&mut self, index: usize, end: u64) {
        let segment = &mut self.segments[index];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.segment_bytes));
    }
}

impl Segment {
    pub fn is_stream(&self) -> bool {
        self.run >= STREAM_RUN
    }

    /// The first address still held when the segment has grown to `end`.
    pub fn start_at(&self, end: u64, segment_bytes: u64) -> u64 {
        self.start.max(end.saturating_sub(segment_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_is_known_by_its_second_continuation() {
        let mut cache = ReadCache::new(2, MIB);
        for (step, stream) in [(0, false), (1, false), (2, true), (3, true)] {
            let at = step * 65_536;
            let (index, from) = cache.open(at);
            assert_eq!((index, from), (cache.open(at).0, at));
            cache.note(index, at, at + 65_536);
            cache.grow(index, at + 65_536);
            assert_eq!(cache.segment(index).is_stream(), stream, "{step}");
        }
        assert!(cache.last_stream().is_some());
        let (index, _) = cache.open(500 * MIB);
        cache.note(index, 500 * MIB, 500 * MIB + 4096);
        assert_eq!(cache.last_stream(), None);
    }

    #[test]
    fn a_segment_forgets_its_past_and_the_oldest_segment_goes_first() {
        let mut cache = ReadCache::new(2, MIB);
        for at in [0, 100 * MIB, 200 * MIB] {
            let (index, _) = cache.open(at);
            cache.note(index, at, at + 4096);
            cache.grow(index, at + MIB);
        }
        assert_eq!(cache.holding(0, 4096), None, "two segments, three streams");
        let index = cache.holding(100 * MIB, 101 * MIB).expect("held whole");
        cache.grow(index, 101 * MIB + 4096);
        assert_eq!(cache.holding(100 * MIB, 101 * MIB), None, "its past went");
        assert_eq!(cache.holding(101 * MIB, 101 * MIB + 4096), Some(index));
    }
}
