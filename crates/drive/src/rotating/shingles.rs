//! Owns where a drive-managed shingled disk puts what it writes, and what it must clean.
//!
//! ```text
//!   slice --> begins a band, or continues one --> in place, at the rate of the medium
//!        \-> elsewhere --> media cache (a log) --> cleaned when idle, or before the next write
//!                                                  once the cache is full
//! ```
//!
//! Tracks of a band overlap, so a band is only written in order. What does not fit that order is
//! appended to the media cache, which holds a bounded number of bytes and of extents. Cleaning a
//! band reads it and writes it anew, 2 x (bytes / rate + average seek + half a turn), and frees all
//! that the cache holds of it; the band that has been in the cache longest is first. (The parts are
//! those that Aghayev and Desnoyers name in "Skylight", FAST 2015; the order is assumed.)
//!
//! Simplifications: data in the cache are read at their own place; what a later write in place
//! makes obsolete is cleaned all the same.
//!
//! Invariant: each band of `order` is in `bands`, once; `bytes` and `extents` are the sums over
//! `bands`. Called by `drive`.

use std::collections::{BTreeMap, VecDeque};

use crate::profile::ShingleNumbers;

/// Streams whose ends are remembered.
const STREAMS_MAX: usize = 8;

/// The media cache of one drive, and the ends of its streams. Addresses are the drive's.
#[derive(Debug)]
pub(crate) struct Shingles {
    band_bytes: u64,
    bytes_max: u64,
    extents_max: u64,
    bytes: u64,
    extents: u64,
    /// Band -> bytes and extents of it in the cache.
    bands: BTreeMap<u64, (u64, u64)>,
    order: VecDeque<u64>,
    streams: VecDeque<u64>,
}

impl Shingles {
    /// An empty media cache, `share` of that of the whole drive.
    pub fn new(numbers: &ShingleNumbers, share: f64) -> Shingles {
        let scaled = |full: u64| ((full as f64 * share) as u64).max(1);
        Shingles {
            band_bytes: numbers.band_bytes,
            bytes_max: scaled(numbers.cache_bytes),
            extents_max: scaled(numbers.cache_extents),
            bytes: 0,
            extents: 0,
            bands: BTreeMap::new(),
            order: VecDeque::new(),
            streams: VecDeque::new(),
        }
    }

    pub fn is_clean(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether a write may be done in place; it then is the end of a stream.
    pub fn in_place(&mut self, at: u64, end: u64) -> bool {
        let stream = self.streams.iter().position(|stream| *stream == at);
        if stream.is_none() && !at.is_multiple_of(self.band_bytes) {
            return false;
        }
        stream.and_then(|index| self.streams.remove(index));
        self.streams.push_back(end);
        if self.streams.len() > STREAMS_MAX {
            self.streams.pop_front();
        }
        true
    }

    /// Whether the cache has room; an empty one always has.
    pub fn fits(&self, bytes: u64) -> bool {
        self.is_clean() || (self.extents < self.extents_max && self.bytes + bytes <= self.bytes_max)
    }

    pub fn append(&mut self, at: u64, bytes: u64) {
        let band = at / self.band_bytes;
        let entry = self.bands.entry(band).or_insert_with(|| {
            self.order.push_back(band);
            (0, 0)
        });
        *entry = (entry.0 + bytes, entry.1 + 1);
        self.bytes += bytes;
        self.extents += 1;
    }

    /// The band to be cleaned next: from, to.
    pub fn oldest(&self) -> Option<(u64, u64)> {
        let band = *self.order.front()?;
        Some((band * self.band_bytes, (band + 1) * self.band_bytes))
    }

    /// The oldest band has been cleaned.
    pub fn cleaned(&mut self) {
        let band = self.order.pop_front().expect("a band was cleaned");
        let (bytes, extents) = self.bands.remove(&band).expect("it was in the cache");
        self.bytes -= bytes;
        self.extents -= extents;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_written_in_place_and_cleaning_frees_a_band() {
        let numbers = ShingleNumbers {
            cache_bytes: 100,
            cache_extents: 3,
            band_bytes: 1000,
            append: 0,
            clean_idle: 0,
        };
        let mut shingles = Shingles::new(&numbers, 1.0);
        assert!(shingles.in_place(2000, 2100) && shingles.in_place(2100, 2200));
        assert!(!shingles.in_place(2300, 2400) && !shingles.in_place(2100, 2200));
        for at in [5500, 1, 5600] {
            assert!(shingles.fits(10));
            shingles.append(at, 10);
        }
        assert!(!shingles.fits(10), "a fourth extent");
        assert_eq!(shingles.oldest(), Some((5000, 6000)));
        shingles.cleaned();
        assert!(shingles.fits(90) && !shingles.fits(91), "two extents are gone, 10 bytes are left");
        shingles.cleaned();
        assert!(shingles.is_clean() && shingles.fits(1 << 40));
    }
}
