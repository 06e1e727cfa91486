//! Seeded random numbers (SplitMix64): the same seed gives the same run.

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Runs a test for `count` seeds (twenty times as many with `RAIDLAB_TEST=all`), or for the one in
/// `RAIDLAB_SEED`, and says how the one that fails is repeated.
pub fn for_seeds(test: &str, count: u64, run: impl Fn(&mut Rng)) {
    let all = std::env::var("RAIDLAB_TEST").is_ok_and(|what| what == "all");
    let seeds = match std::env::var("RAIDLAB_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("RAIDLAB_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..if all { 20 * count } else { count },
    };
    for seed in seeds {
        println!("replay: RAIDLAB_SEED={seed} cargo test -p md --test it -- --exact logs::{test}");
        run(&mut Rng::new(seed));
    }
}
