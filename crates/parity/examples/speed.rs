//! Prints the speed of every operation with every kernel of this CPU.
//!
//!     cargo run --release -p parity --example speed [DATA_BLOCKS [KIB_PER_BLOCK]]
//!
//! A figure is GB/s (10^9 bytes) of the *row's data*, also for operations that touch fewer blocks
//! (an update counts the one block that changes). The median of several samples. Results are
//! compared with the reference, so a fast wrong kernel shows.

use std::hint::black_box;
use std::time::{Duration, Instant};

use parity::{Block, Kernels, Verdict};

const SAMPLES: usize = 11;
const SAMPLE_TIME: Duration = Duration::from_millis(20);

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let blocks: usize = arguments.next().unwrap_or(8);
    let len: usize = arguments.next().unwrap_or(64) * 1024;
    let row = Row::new(blocks, len);
    println!("{blocks} data blocks of {len} bytes, GB/s of data\n");
    print!("{:<16}", "");
    Kernels::available().for_each(|kernels| print!("{:>11}", kernels.name()));
    println!();
    for operation in OPERATIONS {
        print!("{:<16}", operation.name);
        for kernels in Kernels::available() {
            let bytes = if operation.one_block { len } else { blocks * len };
            print!("{:>11.2}", gigabytes_per_second(kernels, operation, &row, bytes));
        }
        println!();
    }
}

/// A row whose parity is right, with blocks at page boundaries as an array's buffers would be.
struct Row {
    data: Vec<Vec<u8>>,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl Row {
    fn new(blocks: usize, len: usize) -> Row {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        let data = (0..blocks).map(|_| (0..len).map(|_| byte()).collect()).collect();
        let mut row = Row { data, p: vec![0; len], q: vec![0; len] };
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
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
    a: Vec<u8>,
    b: Vec<u8>,
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

const OPERATIONS: [Operation; 14] = [
    row("xor_gen", |k, w| k.xor_gen(&mut w.a, w.slices)),
    row("xor_into", |k, w| k.xor_into(&mut w.a, w.slices)),
    row("pq_gen", |k, w| k.pq_gen(&mut w.a, &mut w.b, w.blocks)),
    row("q_gen", |k, w| k.q_gen(&mut w.a, w.blocks)),
    one("p_update", |k, w| k.p_update(&mut w.a, w.slices[0], w.slices[1])),
    one("q_update", |k, w| k.q_update(&mut w.a, 5, w.slices[0], w.slices[1])),
    one("pq_update", |k, w| k.pq_update(&mut w.a, &mut w.b, 5, w.slices[0], w.slices[1])),
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

fn gigabytes_per_second(kernels: Kernels, operation: Operation, row: &Row, bytes: usize) -> f64 {
    let blocks = row.blocks();
    let slices: Vec<&[u8]> = row.data.iter().map(Vec::as_slice).collect();
    let new = || {
        let (a, b) = (vec![0; row.p.len()], vec![0; row.p.len()]);
        Work { row, slices: &slices, blocks: &blocks, a, b }
    };
    let (mut work, mut expected) = (new(), new());
    (operation.run)(kernels, &mut work);
    (operation.run)(Kernels::reference(), &mut expected);
    assert!(work.a == expected.a && work.b == expected.b, "{} is wrong", operation.name);

    let mut samples = [0.0; SAMPLES];
    for sample in &mut samples {
        let (mut calls, start) = (0u64, Instant::now());
        while start.elapsed() < SAMPLE_TIME {
            (operation.run)(kernels, black_box(&mut work));
            calls += 1;
        }
        *sample = calls as f64 * bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    }
    samples.sort_by(f64::total_cmp);
    samples[SAMPLES / 2]
}
