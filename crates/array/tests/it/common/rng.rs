//! Seeded random numbers (SplitMix64): the same seed gives the same run, everywhere.

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

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// The seeds of a test: `count` of them, or the one in `RAIDLAB_SEED`.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("RAIDLAB_SEED") {
        Ok(seed) => vec![seed.parse().expect("RAIDLAB_SEED is a number")],
        Err(_) if std::env::var("RAIDLAB_TEST").is_ok_and(|what| what == "all") => {
            (0..count * 20).collect()
        }
        Err(_) => (0..count).collect(),
    }
}

/// Says how a run is repeated; shown when it fails. `module`: the test's `module_path!()`.
pub fn say_replay(module: &str, test: &str, seed: u64) {
    let (binary, test) = match module.split_once("::") {
        Some((binary, module)) => (binary, format!("{module}::{test}")),
        None => (module, test.to_string()),
    };
    println!("replay: RAIDLAB_SEED={seed} cargo test -p array --test {binary} -- {test}");
}
