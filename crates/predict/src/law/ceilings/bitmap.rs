//! What an internal bitmap costs random writes on platters.
//!
//! Invariant: never more than without one; where all its bits stay set it costs nothing.

use super::super::constants::Symbol;
use super::super::work::{FILE_BYTES, Work, WriteBack};
use super::Law;

/// How long a bit of a bitmap stays set after the last write, s.
const BITMAP_CLEARED_S: f64 = 7.5;

impl Law<'_> {
    /// Random writes per second with an internal bitmap, of those without: a write whose bit is not
    /// set waits until all members have written the bitmap, and before it what their caches hold.
    /// Those that wait beside it share the update.
    pub(super) fn with_bitmap(&self, without: f64) -> Option<f64> {
        let read = self.time_of_a_read()?;
        let batch = 1.0 + (self.access.depth.max(1.0) - 1.0) * self.constant(Symbol::Bs);
        let sorted = |members: f64| {
            let of_a_member = 1.0 + (batch - 1.0) * members / self.n;
            of_a_member.powf(1.0 - self.queue_gain())
        };
        let mut time = self.constant(Symbol::Bw);
        match f64::from(self.array.parities()) {
            0.0 => time += sorted(f64::from(self.array.copy_count())),
            parities => {
                let written = 1.0 + parities;
                let before = written.min(self.array.data_members() - 1.0).max(1.0);
                time += sorted(written) + self.constant(Symbol::Rm) * sorted(before);
            }
        }
        let slow = batch / (time * read);
        let mut rate = slow;
        for _ in 0..20 {
            let clear = self.clear_bits(rate);
            rate = 1.0 / (clear / slow + (1.0 - clear) / without);
        }
        Some(rate)
    }

    /// Share of the writes whose bit is not set, at a rate per second: md clears a bit between one
    /// and two of its intervals of 5 s after the last write.
    pub(super) fn clear_bits(&self, rate: f64) -> f64 {
        (-rate * BITMAP_CLEARED_S / self.bitmap_bits()).exp()
    }

    /// Bits of the bitmap that random writes reach.
    fn bitmap_bits(&self) -> f64 {
        // Of RAID 10, a bit is of the array; of the others, of each member.
        let of_a_bit = match self.array.parities() {
            0 => 1.0,
            _ => self.array.data_members(),
        };
        let whole = self.machine.member_bytes.unwrap_or(1e12) * self.array.data_members();
        let area = match (self.access.area_bytes, self.access.write_back) {
            (Some(area), _) => area.min(whole),
            // Commits are to a log.
            (None, WriteBack::Raw) if self.access.work != Work::SyncWrite => whole,
            (None, _) => FILE_BYTES.min(whole),
        };
        (area / (of_a_bit * self.machine.bitmap_chunk_kib * 1024.0)).max(1.0)
    }
}
