//! Common parts of the tests of several crates: seeded random numbers, families of seeds with the
//! command that replays one, fuzzing, and tests that are repeated with several shards.
//!
//! *Invariant*: the same seed gives the same numbers on every machine. Only tests and the simulator
//! use it.
#![forbid(unsafe_code)]

pub mod fuzz;
mod loop_device;
mod shards;

use std::ops::Range;

pub use loop_device::Loop;
pub use shards::{in_several, none_is_left_out, shards};

/// A seeded generator: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed; small seeds differ from the first number on.
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        self.draw() % bound
    }

    /// A number in `low..=high`.
    ///
    /// # Panics
    /// If there is none, or if these are all numbers.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index into a list of `len` elements.
    ///
    /// # Panics
    /// If that is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `times` calls, on average.
    ///
    /// # Panics
    /// If that is 0.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// An element of a list.
    ///
    /// # Panics
    /// If it is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Puts a list into any order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.index(at + 1));
        }
    }

    /// Fills a buffer.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.draw().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// A buffer of `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// The output function of SplitMix64: a well-mixed function of a number.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The seeds of a test: `count` of them, twenty times as many with `RAIDLAB_TEST=all`, or only the
/// one in `RAIDLAB_SEED`.
///
/// # Panics
/// If `RAIDLAB_SEED` is no number.
pub fn seeds(count: u64) -> Range<u64> {
    match std::env::var("RAIDLAB_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("RAIDLAB_SEED is a number");
            seed..seed + 1
        }
        Err(_) if runs_all() => 0..20 * count,
        Err(_) => {
            print_sample("seeds", count, 20 * count);
            0..count
        }
    }
}

/// Whether slow series run whole: `RAIDLAB_TEST=all`.
pub fn runs_all() -> bool {
    std::env::var("RAIDLAB_TEST").is_ok_and(|value| value == "all")
}

/// Says how much of a series a test leaves out, in a line that CI shows.
pub fn print_sample(what: &str, run: u64, of: u64) {
    if run < of {
        println!("{what} skipped: {} of {of}; RAIDLAB_TEST=all runs them", of - run);
    }
}

/// Prints the command that replays a seed of the test `$test` of the calling module, before the
/// seed runs: so it is also there after an abort or a timeout.
#[macro_export]
macro_rules! print_replay {
    ($test:expr, $seed:expr) => {
        println!("{}", $crate::replay(env!("CARGO_PKG_NAME"), module_path!(), $test, $seed))
    };
}

/// Calls `$run` with each of the [`seeds`] of the test `$test` of the calling module, and prints
/// the command that replays it.
#[macro_export]
macro_rules! for_seeds {
    ($test:expr, $count:expr, $run:expr) => {
        for seed in $crate::seeds($count) {
            $crate::print_replay!($test, seed);
            $run(seed);
        }
    };
}

/// The command that replays a seed of a test; see [`print_replay`]. `module`: its
/// `module_path!()`, which begins with the test binary.
pub fn replay(package: &str, module: &str, test: &str, seed: u64) -> String {
    let (binary, test) = match module.split_once("::") {
        Some((binary, module)) => (binary, format!("{module}::{test}")),
        None => (module, test.to_string()),
    };
    format!("replay: RAIDLAB_SEED={seed} cargo test -p {package} --test {binary} -- --exact {test}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The reference implementation's first outputs from seed 1234567.
        let mut rng = Rng(1_234_567);
        assert_eq!(rng.draw(), 6_457_827_717_110_365_317);
        assert_eq!(rng.draw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_them() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 8];
        for _ in 0..1000 {
            seen[rng.within(2, 5) as usize] += 1;
        }
        let reached = seen.map(|count| count > 0);
        assert_eq!(reached, [false, false, true, true, true, true, false, false]);
        let mut list: Vec<u64> = (0..100).collect();
        rng.shuffle(&mut list);
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert!(list.iter().copied().eq(0..100));
        assert_eq!(rng.bytes(13).len(), 13);
    }

    #[test]
    fn a_replay_names_package_binary_and_test() {
        let command = replay("raidlab-md", "it::logs::ppl", "a_test", 7);
        assert_eq!(
            command,
            "replay: RAIDLAB_SEED=7 cargo test -p raidlab-md --test it -- --exact logs::ppl::a_test"
        );
        let command = replay("raidlab-array", "paced", "a_test", 7);
        assert!(command.ends_with("-p raidlab-array --test paced -- --exact a_test"), "{command}");
    }
}
