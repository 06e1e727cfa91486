//! Division by the chunk size: shift and mask where it is a power of two.
//!
//! Invariant: `split(s) == (s / sectors, s % sectors)` for every chunk size. Called by the
//! placement of every level, once per request.

/// A chunk size in sectors, never 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) sectors: u64,
    /// log2 of `sectors`, or `NOT_A_POWER` (RAID 0 only).
    shift: u32,
}

const NOT_A_POWER: u32 = u32::MAX;

impl Chunk {
    pub(super) fn new(sectors: u64) -> Chunk {
        assert!(sectors > 0, "a chunk has at least one sector");
        let shift = if sectors.is_power_of_two() { sectors.trailing_zeros() } else { NOT_A_POWER };
        Chunk { sectors, shift }
    }

    /// Chunk number and sectors into the chunk.
    #[inline]
    pub(super) fn split(self, sector: u64) -> (u64, u64) {
        if self.shift != NOT_A_POWER {
            (sector >> self.shift, sector & (self.sectors - 1))
        } else {
            (sector / self.sectors, sector % self.sectors)
        }
    }
}
