//! The random generator of addresses, data and samples.
//!
//! Invariant: the same seed gives the same numbers, on every machine and in every version. Pure.

/// A small seeded generator: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators" (2014). Good enough to choose blocks and samples; no secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// What the state grows by with each number.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(SplitMix64::STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end` (by multiplication; the bias is below 2^-32 for ends below 2^32).
    ///
    /// # Panics
    /// When `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "nothing is below 0");
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The reference implementation's first outputs from seed 1234567.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.draw(), 6_457_827_717_110_365_317);
        assert_eq!(random.draw(), 3_203_168_211_198_807_973);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
