//! Prints the speed of every operation with every kernel of this CPU.
//!
//!     cargo run --release -p raidlab-parity --example kernel_speed \
//!         [DATA_BLOCKS [KIB_PER_BLOCK [OPERATION...]]]
//!
//! A figure is GB/s (10^9 bytes) of the *row's data*, also for operations that touch fewer blocks
//! (an update counts the one block that changes). The median of samples that are taken in
//! turn, blocks at page boundaries. Results are compared with the reference, so a fast wrong
//! kernel shows.

use std::hint::black_box;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use raidlab_parity::{Block, Change, Kernels, Verdict};

const ROUNDS: usize = 15;
const SAMPLE_TIME: Duration = Duration::from_millis(6);
const PAGE: usize = 4096;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().expect("a number"));
    let (blocks, len) = (number(8), number(64) * 1024);
    let wanted: Vec<String> = arguments.collect();
    let row = Row::new(blocks, len);
    let kernels: Vec<Kernels> = Kernels::available().skip(1).collect();
    println!("{blocks} data blocks of {len} bytes, GB/s of data\n");
    print!("{:<16}", "");
    kernels.iter().for_each(|kernels| print!("{:>13}", kernels.name()));
    println!();
    for operation in OPERATIONS {
        if wanted.is_empty() || wanted.iter().any(|name| name == operation.name) {
            print!("{:<16}", operation.name);
            medians(&kernels, operation, &row).iter().for_each(|rate| print!("{rate:>13.2}"));
            println!();
        }
    }
}

/// A row whose parity is right, with blocks at page boundaries as an array's buffers would be.
struct Row {
    data: Vec<Aligned>,
    p: Aligned,
    q: Aligned,
}

/// Bytes that start at a page.
struct Aligned {
    allocation: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let allocation = vec![0; len + PAGE];
        let start = allocation.as_ptr().align_offset(PAGE);
        Aligned { allocation, start, len }
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.allocation[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.allocation[self.start..self.start + self.len]
    }
}

impl Row {
    fn new(blocks: usize, len: usize) -> Row {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        let mut block = || {
            let mut block = Aligned::new(len);
            block.fill_with(&mut byte);
            block
        };
        let data = (0..blocks).map(|_| block()).collect();
        let mut row = Row { data, p: Aligned::new(len), q: Aligned::new(len) };
        let (mut p, mut q) = (Aligned::new(len), Aligned::new(len));
        Kernels::reference().pq_gen(&mut p, &mut q, &row.blocks());
        (row.p, row.q) = (p, q);
        row
    }

    fn blocks(&self) -> Vec<Block<'_>> {
        let blocks = self.data.iter().enumerate();
        blocks.map(|(i, bytes)| Block { exponent: i as u8, bytes }).collect()
    }
}

/// What an operation works on: the row, its slices, and two blocks to write to.
struct Work<'a> {
    row: &'a Row,
    slices: &'a [&'a [u8]],
    blocks: &'a [Block<'a>],
    /// Half of the blocks, each becoming its neighbour.
    changes: &'a [Change<'a>],
    a: Aligned,
    b: Aligned,
}

#[derive(Clone, Copy)]
struct Operation {
    name: &'static str,
    one_block: bool,
    run: fn(Kernels, &mut Work),
}

const fn row(name: &'static str, run: fn(Kernels, &mut Work)) -> Operation {
    Operation { name, one_block: false, run }
}

const fn one(name: &'static str, run: fn(Kernels, &mut Work)) -> Operation {
    Operation { name, one_block: true, run }
}

const OPERATIONS: [Operation; 15] = [
    row("xor_gen", |k, w| k.xor_gen(&mut w.a, w.slices)),
    row("xor_into", |k, w| k.xor_into(&mut w.a, w.slices)),
    row("pq_gen", |k, w| k.pq_gen(&mut w.a, &mut w.b, w.blocks)),
    row("q_gen", |k, w| k.q_gen(&mut w.a, w.blocks)),
    one("p_update", |k, w| k.p_update(&mut w.a, &w.changes[..1])),
    one("q_update", |k, w| k.q_update(&mut w.a, &w.changes[..1])),
    one("pq_update", |k, w| k.pq_update(&mut w.a, &mut w.b, &w.changes[..1])),
    row("pq_update_half", |k, w| k.pq_update(&mut w.a, &mut w.b, w.changes)),
    one("mul_into", |k, w| k.mul_into(&mut w.a, 7, w.slices[0])),
    row("recover_d_p", |k, w| k.recover_d_p(&mut w.a, &w.slices[1..], &w.row.p)),
    row("recover_d_q", |k, w| k.recover_d_q(&mut w.a, 0, &w.blocks[1..], &w.row.q)),
    row("recover_d_and_p", |k, w| {
        k.recover_d_and_p(&mut w.a, 0, &mut w.b, &w.blocks[1..], &w.row.q);
    }),
    row("recover_d_and_q", |k, w| {
        k.recover_d_and_q(&mut w.a, 0, &mut w.b, &w.blocks[1..], &w.row.p);
    }),
    row("recover_dd", |k, w| {
        k.recover_dd(&mut w.a, 0, &mut w.b, 1, &w.blocks[2..], &w.row.p, &w.row.q);
    }),
    row("check", |k, w| assert_eq!(k.check(w.blocks, &w.row.p, &w.row.q), Verdict::Agree)),
];

/// One figure for each of the kernels, whose samples are taken in turn.
fn medians(kernels: &[Kernels], operation: Operation, row: &Row) -> Vec<f64> {
    let blocks = row.blocks();
    let slices: Vec<&[u8]> = row.data.iter().map(|block| &block[..]).collect();
    let len = row.p.len();
    let changes: Vec<Change> = (0..)
        .zip(slices.chunks_exact(2))
        .map(|(exponent, pair)| Change { exponent, old: pair[0], new: pair[1] })
        .collect();
    let new = || Work {
        row,
        changes: &changes,
        slices: &slices,
        blocks: &blocks,
        a: Aligned::new(len),
        b: Aligned::new(len),
    };
    let (mut work, mut expected) = (new(), new());
    (operation.run)(Kernels::reference(), &mut expected);
    for &kernels in kernels {
        work.a.fill(0);
        work.b.fill(0);
        (operation.run)(kernels, &mut work);
        let right = work.a[..] == expected.a[..] && work.b[..] == expected.b[..];
        assert!(right, "{} of {kernels:?} is wrong", operation.name);
    }

    let bytes = if operation.one_block { len } else { slices.len() * len };
    let mut samples = vec![Vec::new(); kernels.len()];
    for _ in 0..ROUNDS {
        for (samples, &kernels) in samples.iter_mut().zip(kernels) {
            let (mut calls, start) = (0u64, Instant::now());
            while start.elapsed() < SAMPLE_TIME {
                (operation.run)(kernels, black_box(&mut work));
                calls += 1;
            }
            samples.push(calls as f64 * bytes as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    samples.into_iter().map(median).collect()
}
