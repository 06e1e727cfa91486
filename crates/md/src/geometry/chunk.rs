//! Division by what does not change: the chunk size by shift and mask where it is a power of two,
//! widths and periods by one multiplication.
//!
//! Invariant: `split(s) == (s / sectors, s % sectors)` for every chunk size, and the same for every
//! [`Divisor`]. Called by the placement of every level, several times per request; a division by
//! the CPU takes 25 to 90 cycles.

use std::ops::Range;

/// A chunk size in sectors, never 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) sectors: u64,
    /// log2 of `sectors`, or `NOT_A_POWER` (RAID 0 only).
    shift: u32,
}

const NOT_A_POWER: u32 = u32::MAX;

/// Members of an array, or rows until placement repeats: small, never 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    number: u64,
    /// 2^64 / `number`, rounded up; 0 for 1.
    reciprocal: u64,
}

impl Divisor {
    pub(super) fn new(number: u64) -> Divisor {
        assert!((1..=Divisor::MAX).contains(&number), "{number} is no width of an array");
        let reciprocal = if number == 1 { 0 } else { (u64::MAX / number).wrapping_add(1) };
        Divisor { number, reciprocal }
    }

    const MAX: u64 = 1 << 16;

    /// Quotient and remainder.
    #[inline]
    pub(super) fn split(self, value: u64) -> (u64, u64) {
        let Divisor { number, reciprocal } = self;
        // The reciprocal is too large by e / number, with e < number: the product, divided by 2^64,
        // by value x e / (number x 2^64). The quotient is right where that is less than 1 / number,
        // so for value x e < 2^64; 2^48 x 2^16 at most.
        let quotient = if value >= 1 << 48 || reciprocal == 0 {
            value / number
        } else {
            ((u128::from(value) * u128::from(reciprocal)) >> 64) as u64
        };
        (quotient, value - quotient * number)
    }
}

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

/// The whole units inside a range; empty, and inside the range, if there is none.
pub(super) fn whole_units(range: Range<u64>, unit: u64) -> Range<u64> {
    let (start, end) = (range.start.next_multiple_of(unit), range.end / unit * unit);
    if start < end { start..end } else { range.end..range.end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divisor_divides() {
        let far = [1 << 47, (1 << 48) - 1, 1 << 48, u64::MAX - 1, u64::MAX];
        for number in (1..=300).chain([1023, 1024, 65_521, 65_535, 65_536]) {
            let divisor = Divisor::new(number);
            let near = 0..2000;
            let multiples = (1..2000u64).map(|at| at * 0x1_2345_6789 / number * number);
            let around = multiples.flat_map(|at| [at.saturating_sub(1), at, at + 1]);
            let last = ((1 << 48) - 1) / number * number;
            for value in near.chain(around).chain(far).chain([last - 1, last]) {
                assert_eq!(divisor.split(value), (value / number, value % number), "{number}");
            }
        }
    }
}
