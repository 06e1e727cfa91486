//! Our kernels beside Intel's ISA-L and SnapRAID's own speed test, paired, in one run.
//!
//!     benches/peers/run [ROUNDS]
//!
//! For each operation and block size all contestants take turns, one sample each in every round,
//! so that whatever else the machine does meets them alike. Printed are medians in GB/s (10^9
//! bytes) of data and, for each, the median over the rounds of its ratio to ISA-L. Results are
//! compared with those of the reference first. SnapRAID can only measure itself: its
//! test runs between two of ours with its shape, eight blocks of 256 KiB, each displaced by 1792
//! bytes.

#[allow(unsafe_code)]
mod isal;
#[allow(unsafe_code)]
mod roofline;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use parity::{Block, Kernels};

const BLOCKS: usize = 8;
const SAMPLE_TIME: Duration = Duration::from_millis(4);
const PAGE: usize = 4096;

fn main() {
    let rounds = std::env::args().nth(1).map_or(31, |text| text.parse().expect("a number"));
    println!("{BLOCKS} data blocks, {rounds} rounds, GB/s of data; (ratio to ISA-L)");
    for kib in [4, 16, 64, 256, 1024, 16384] {
        let mut row = Row::new(kib * 1024, kib * 1024);
        println!("\nblocks of {kib} KiB");
        for operation in ["xor_gen", "pq_gen", "recover_dd"] {
            print(operation, &measure(operation, &mut row, rounds));
        }
    }
    snapraid(rounds);
}

/// A row with right parity, and two blocks to write to. The first block starts at a page, each
/// further one `apart` bytes after the one before.
struct Row {
    memory: Vec<u8>,
    len: usize,
    apart: usize,
}

/// The parts of a row: data, P, Q, and two destinations.
struct Parts<'a> {
    data: Vec<&'a [u8]>,
    p: &'a [u8],
    q: &'a [u8],
    a: &'a mut [u8],
    b: &'a mut [u8],
}

impl Row {
    fn new(len: usize, apart: usize) -> Row {
        let mut state = 1u64;
        let mut memory: Vec<u8> = Vec::with_capacity((BLOCKS + 4) * apart + PAGE);
        memory.resize_with((BLOCKS + 4) * apart + PAGE, || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        });
        let mut row = Row { memory, len, apart };
        let parts = row.parts();
        Kernels::reference().pq_gen(parts.a, parts.b, &blocks(&parts.data));
        let (p, q) = (parts.a.to_vec(), parts.b.to_vec());
        let start = row.memory.as_ptr().align_offset(PAGE) + BLOCKS * apart;
        row.memory[start..start + len].copy_from_slice(&p);
        row.memory[start + apart..start + apart + len].copy_from_slice(&q);
        row
    }

    fn parts(&mut self) -> Parts<'_> {
        let start = self.memory.as_ptr().align_offset(PAGE);
        let (sources, destinations) = self.memory[start..].split_at_mut((BLOCKS + 2) * self.apart);
        let mut data: Vec<&[u8]> =
            sources.chunks_exact(self.apart).map(|bytes| &bytes[..self.len]).collect();
        let (q, p) = (data.pop().expect("Q"), data.pop().expect("P"));
        let (a, b) = destinations.split_at_mut(self.apart);
        Parts { data, p, q, a: &mut a[..self.len], b: &mut b[..self.len] }
    }
}

fn blocks<'a>(data: &[&'a [u8]]) -> Vec<Block<'a>> {
    (0..).zip(data).map(|(exponent, bytes)| Block { exponent, bytes }).collect()
}

#[derive(Clone, Copy)]
enum Contestant {
    Isal,
    Roofline,
    Ours(Kernels),
}

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Contestant::Isal => "isa-l",
            Contestant::Roofline => "roofline",
            Contestant::Ours(kernels) => kernels.name(),
        }
    }

    fn run(self, operation: &str, parts: &mut Parts, blocks: &[Block]) {
        let Parts { data, p, q, a, b } = parts;
        match (self, operation) {
            (Contestant::Isal, "xor_gen") => isal::xor_gen(a, data),
            (Contestant::Isal, _) => isal::pq_gen(a, b, data),
            (Contestant::Roofline, "xor_gen") => roofline::pass(&mut [a], data),
            (Contestant::Roofline, _) => roofline::pass(&mut [a, b], data),
            (Contestant::Ours(kernels), "xor_gen") => kernels.xor_gen(a, data),
            (Contestant::Ours(kernels), "pq_gen") => kernels.pq_gen(a, b, blocks),
            (Contestant::Ours(kernels), _) => {
                kernels.recover_dd(a, 0, b, 1, &blocks[2..], p, q);
            }
        }
    }
}

/// GB/s of every sample, for each contestant. ISA-L has no recovery of its own: beside recovery
/// stands its P+Q.
fn measure(operation: &str, row: &mut Row, rounds: usize) -> Vec<(Contestant, Vec<f64>)> {
    let ours = Kernels::available().skip(1).map(Contestant::Ours);
    let contestants = [Contestant::Isal, Contestant::Roofline].into_iter().chain(ours);
    let mut samples: Vec<_> = contestants.map(|contestant| (contestant, Vec::new())).collect();
    let mut parts = row.parts();
    let blocks = blocks(&parts.data);
    for (contestant, _) in &samples {
        parts.a.fill(0);
        contestant.run(operation, &mut parts, &blocks);
        let right = match (contestant, operation) {
            (Contestant::Roofline, _) => true,
            (Contestant::Ours(_), "recover_dd") => parts.a == parts.data[0],
            (_, "xor_gen") => parts.a == parts.p,
            _ => parts.a == parts.p && parts.b == parts.q,
        };
        assert!(right, "{operation} of {} is wrong", contestant.name());
    }
    for _ in 0..rounds {
        for (contestant, samples) in &mut samples {
            let (mut calls, start) = (0, Instant::now());
            while start.elapsed() < SAMPLE_TIME {
                contestant.run(operation, black_box(&mut parts), &blocks);
                calls += 1;
            }
            let bytes = (calls * BLOCKS * parts.p.len()) as f64;
            samples.push(bytes / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    samples
}

fn print(operation: &str, samples: &[(Contestant, Vec<f64>)]) {
    print!("{operation:<12}");
    let base = &samples[0].1;
    for (contestant, rates) in samples {
        let ratios = rates.iter().zip(base).map(|(rate, base)| rate / base).collect();
        print!("  {} {:.2} ({:.2})", contestant.name(), median(rates.clone()), median(ratios));
    }
    println!();
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// SnapRAID's figures between two of ours.
fn snapraid(rounds: usize) {
    println!("\nSnapRAID's own test (MB/s of data, 8 blocks of 256 KiB), between two of ours");
    let mut row = Row::new(256 * 1024, 256 * 1024 + 1792);
    let mut ours = |operations: &[&str]| {
        for operation in operations {
            print(operation, &measure(operation, &mut row, rounds));
        }
    };
    ours(&["xor_gen", "pq_gen", "recover_dd"]);
    match Command::new("snapraid").arg("-T").output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let wanted = ["best", "gen1", "gen2", "rec1", "rec2"];
            text.lines()
                .filter(|line| line.split_whitespace().next().is_some_and(|w| wanted.contains(&w)))
                .for_each(|line| println!("{line}"));
        }
        Err(problem) => println!("skipped: snapraid: {problem}"),
    }
    ours(&["xor_gen", "pq_gen", "recover_dd"]);
}
