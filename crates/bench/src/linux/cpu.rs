//! What a modelled CPU takes for the work of a kernel.
//!
//! Invariant: the figures are those of one core of the 2020s at speed 1; another speed divides
//! them. The work of programs themselves is not among them: it takes no model time.

/// What one unit of each kind of work takes, picoseconds, in the order of the kernel's parameter.
const WORK: [u64; 7] = [
    // A system call. `perf bench syscall basic` on an EPYC with AVX-512: 168 ns.
    170_000,
    // A byte copied to or from a program, or in the stripe cache. dd between page cache and memory,
    // 1 MiB at a time: 6.5 to 8.6 GB/s on the same.
    150,
    // A bio through the block layer, and its end; md makes one for each member. An estimate.
    1_000_000,
    // A pass over a stripe of pages by the raid thread. An estimate, as are those that follow.
    1_000_000, // A byte of a block that is XORed.
    60,        // A byte of a block of which P and Q are made.
    100,
    // A page that comes into the page cache, becomes dirty, or is written back: each.
    500_000,
];

/// The kernel's parameter for a CPU of this speed, in thousandths.
pub(super) fn parameter(permille: u32) -> String {
    let of = |picoseconds: u64| match permille {
        0 => 0,
        permille => picoseconds * 1000 / u64::from(permille),
    };
    let all: Vec<String> = WORK.iter().map(|work| of(*work).to_string()).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_speed_takes_twice_the_time() {
        assert_eq!(parameter(1000), "170000,150,1000000,1000000,60,100,500000");
        assert_eq!(parameter(500), "340000,300,2000000,2000000,120,200,1000000");
        assert_eq!(parameter(0), "0,0,0,0,0,0,0");
    }
}
