//! The parity kernels standalone: operation x kernels x data blocks x block size, beside the limits
//! of memory.
//!
//! Invariant: every operation has given the right answer before it is timed, and kernels that are
//! compared took turns in one run. A figure is GB/s (10^9 bytes) of the *row's data*; an update
//! counts the one block that changes. Called by `raidlab bench kernels`.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use parity::{Block, Change, Kernels, Verdict};
use serde::Serialize;
use spec::units::show_size;

const PAGE: usize = 4096;

/// What to measure.
pub struct Settings {
    /// The kernels, in the order of the table's columns.
    pub kernels: Vec<Kernels>,
    /// Numbers of data blocks, each 2..=255.
    pub data_blocks: Vec<usize>,
    /// Bytes in a block.
    pub block_bytes: Vec<usize>,
    /// Samples of each figure.
    pub runs: usize,
    /// Length of a sample.
    pub sample: Duration,
}

impl Settings {
    /// The table of `--kernels`: blocks for the caches at each distance, and for memory.
    pub fn usual(kernels: Vec<Kernels>, runs: usize) -> Settings {
        Settings {
            kernels,
            data_blocks: vec![4, 8, 16],
            block_bytes: vec![4 << 10, 16 << 10, 64 << 10, 16 << 20],
            runs,
            sample: Duration::from_millis(4),
        }
    }

    /// Number of figures: operations, numbers of blocks, sizes and kernels multiplied.
    pub fn figures(&self) -> usize {
        OPERATIONS.len() * self.data_blocks.len() * self.block_bytes.len() * self.kernels.len()
    }

    /// Names of the operations.
    pub fn operations() -> impl Iterator<Item = &'static str> {
        OPERATIONS.iter().map(|operation| operation.name)
    }

    /// Estimated duration: the samples of all figures.
    pub fn estimate_seconds(&self) -> f64 {
        (self.figures() * self.runs) as f64 * self.sample.as_secs_f64()
    }
}

/// One operation with one kind of kernels on one shape.
#[derive(Serialize, Clone, Debug)]
pub struct Figure {
    /// The operation, as `pq_gen`.
    pub op: &'static str,
    /// Name of the kernels; for limits, the kind of memory access.
    pub variant: &'static str,
    /// Data blocks in the row.
    pub data_blocks: usize,
    /// Bytes in a block.
    pub block_bytes: usize,
    /// The median of the samples.
    pub gb_per_s: f64,
    /// Every sample, in the order in which they were taken.
    pub samples: Vec<f64>,
}

/// All figures. As JSON, the document that `--json` gives.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Table {
    /// The operations.
    pub kernels: Vec<Figure>,
    /// Limits of memory: `memcpy` from block to block, `read` of the row's data.
    pub limits: Vec<Figure>,
}

/// A parity implementation computed something wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {kernels} is wrong")]
pub struct KernelMismatch {
    /// The operation.
    pub operation: &'static str,
    /// The implementation.
    pub kernels: &'static str,
}

/// Measures, until `stopped`.
///
/// # Errors
/// The first wrong result.
pub fn run(settings: &Settings, stopped: &dyn Fn() -> bool) -> Result<Table, KernelMismatch> {
    let mut table = Table::default();
    for &block_bytes in &settings.block_bytes {
        for &data_blocks in &settings.data_blocks {
            let row = Row::new(data_blocks, block_bytes);
            let blocks = row.blocks();
            let slices: Vec<&[u8]> = row.data.iter().map(Aligned::bytes).collect();
            let mut work = Work {
                row: &row,
                slices: &slices,
                blocks: &blocks,
                change: Change { exponent: 1, old: slices[0], new: slices[1] },
                a: Aligned::new(block_bytes),
                b: Aligned::new(block_bytes),
            };
            for operation in &OPERATIONS {
                if stopped() {
                    return Ok(table);
                }
                table.kernels.extend(measure(settings, operation, &mut work)?);
            }
            table.limits.extend(limits(settings, &mut work));
        }
    }
    Ok(table)
}

impl Table {
    /// The document that `--json` gives: `{"kernels": [...], "limits": [...]}`.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and names");
        text.push('\n');
        text
    }

    /// The table for the terminal: a line for each operation and shape, a column for each variant.
    pub fn text(&self) -> String {
        let mut text = String::from("GB/s (10^9 bytes) of data; medians\n");
        let mut shape = None;
        for line in lines(&self.kernels) {
            let first = &line[0];
            if shape != Some((first.block_bytes, first.data_blocks)) {
                shape = Some((first.block_bytes, first.data_blocks));
                self.heading(&mut text, first, line);
            }
            let _ = write!(text, "{:<14}", first.op);
            for figure in line {
                let _ = write!(text, "{:>13.2}", figure.gb_per_s);
            }
            text.push('\n');
        }
        text
    }

    fn heading(&self, text: &mut String, shape: &Figure, line: &[Figure]) {
        let size = show_size(shape.block_bytes as u64);
        let _ = write!(text, "\n{} data blocks of {size}", shape.data_blocks);
        let same = |figure: &&Figure| {
            (figure.block_bytes, figure.data_blocks) == (shape.block_bytes, shape.data_blocks)
        };
        for limit in self.limits.iter().filter(same) {
            let _ = write!(text, "; {} {:.2}", limit.op, limit.gb_per_s);
        }
        let _ = write!(text, "\n{:<14}", "");
        for figure in line {
            let _ = write!(text, "{:>13}", figure.variant);
        }
        text.push('\n');
    }
}

/// Figures that share operation and shape: they stand beside each other.
fn lines(figures: &[Figure]) -> impl Iterator<Item = &[Figure]> {
    figures.chunk_by(|a, b| {
        (a.op, a.data_blocks, a.block_bytes) == (b.op, b.data_blocks, b.block_bytes)
    })
}

/// Bytes that start at a page, as an array's buffers do.
struct Aligned {
    allocation: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Zeroes, of which every page is there: all of them were written to.
    fn new(len: usize) -> Aligned {
        let mut allocation = vec![1; len + PAGE];
        allocation.fill(black_box(0));
        let start = allocation.as_ptr().align_offset(PAGE);
        Aligned { allocation, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.allocation[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.allocation[self.start..self.start + self.len]
    }
}

/// A row with its parity.
struct Row {
    data: Vec<Aligned>,
    p: Aligned,
    q: Aligned,
}

impl Row {
    fn new(blocks: usize, len: usize) -> Row {
        let mut state = 1u64;
        let mut block = || {
            let mut block = Aligned::new(len);
            for bytes in block.bytes_mut().chunks_mut(8) {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes.copy_from_slice(&(state ^ state >> 29).to_le_bytes()[..bytes.len()]);
            }
            block
        };
        let data = (0..blocks).map(|_| block()).collect();
        let mut row = Row { data, p: Aligned::new(len), q: Aligned::new(len) };
        let (mut p, mut q) = (Aligned::new(len), Aligned::new(len));
        Kernels::portable().pq_gen(p.bytes_mut(), q.bytes_mut(), &row.blocks());
        (row.p, row.q) = (p, q);
        row
    }

    fn blocks(&self) -> Vec<Block<'_>> {
        let data = (0..=254).zip(&self.data);
        data.map(|(exponent, block)| Block { exponent, bytes: block.bytes() }).collect()
    }
}

/// What an operation works on: the row, and two blocks to write to.
struct Work<'a> {
    row: &'a Row,
    slices: &'a [&'a [u8]],
    blocks: &'a [Block<'a>],
    /// What updates do: one block becomes another of the row.
    change: Change<'a>,
    a: Aligned,
    b: Aligned,
}

impl Work<'_> {
    fn len(&self) -> usize {
        self.a.len
    }
}

struct Operation {
    name: &'static str,
    /// An update counts the block that changes; all else is about the whole row.
    update: bool,
    run: fn(Kernels, &mut Work),
}

const OPERATIONS: [Operation; 8] = [
    Operation { name: "xor_gen", update: false, run: |k, w| k.xor_gen(w.a.bytes_mut(), w.slices) },
    Operation {
        name: "xor_update",
        update: true,
        run: |k, w| k.p_update(w.a.bytes_mut(), &[w.change]),
    },
    Operation {
        name: "pq_gen",
        update: false,
        run: |k, w| k.pq_gen(w.a.bytes_mut(), w.b.bytes_mut(), w.blocks),
    },
    Operation {
        name: "pq_update",
        update: true,
        run: |k, w| k.pq_update(w.a.bytes_mut(), w.b.bytes_mut(), &[w.change]),
    },
    Operation {
        name: "recover_d_p",
        update: false,
        run: |k, w| k.recover_d_p(w.a.bytes_mut(), &w.slices[1..], w.row.p.bytes()),
    },
    Operation {
        name: "recover_d_q",
        update: false,
        run: |k, w| k.recover_d_q(w.a.bytes_mut(), 0, &w.blocks[1..], w.row.q.bytes()),
    },
    Operation {
        name: "recover_dd",
        update: false,
        run: |k, w| {
            let (p, q) = (w.row.p.bytes(), w.row.q.bytes());
            k.recover_dd(w.a.bytes_mut(), 0, w.b.bytes_mut(), 1, &w.blocks[2..], p, q);
        },
    },
    Operation {
        name: "check",
        update: false,
        run: |k, w| {
            let verdict = k.check(w.blocks, w.row.p.bytes(), w.row.q.bytes());
            w.a.bytes_mut()[0] = u8::from(verdict == Verdict::Agree);
        },
    },
];

/// One figure for each of the kernels, which take turns.
fn measure(
    settings: &Settings,
    operation: &Operation,
    work: &mut Work,
) -> Result<Vec<Figure>, KernelMismatch> {
    let expected = answer(Kernels::portable(), operation, work);
    for &kernels in &settings.kernels {
        if answer(kernels, operation, work) != expected {
            return Err(KernelMismatch { operation: operation.name, kernels: kernels.name() });
        }
    }
    let bytes = if operation.update { 1 } else { work.slices.len() } * work.len();
    let mut samples = vec![Vec::new(); settings.kernels.len()];
    for _ in 0..settings.runs {
        for (samples, &kernels) in samples.iter_mut().zip(&settings.kernels) {
            samples.push(rate(settings.sample, bytes, || (operation.run)(kernels, work)));
        }
    }
    let figures = settings.kernels.iter().zip(samples);
    Ok(figures.map(|(k, samples)| figure(operation.name, k.name(), work, samples)).collect())
}

/// What the operation leaves in its two blocks, after zeroes.
fn answer(kernels: Kernels, operation: &Operation, work: &mut Work) -> (Vec<u8>, Vec<u8>) {
    work.a.bytes_mut().fill(0);
    work.b.bytes_mut().fill(0);
    (operation.run)(kernels, work);
    (work.a.bytes().to_vec(), work.b.bytes().to_vec())
}

/// What memory allows at this shape.
fn limits(settings: &Settings, work: &mut Work) -> [Figure; 2] {
    let (mut copied, mut read) = (Vec::new(), Vec::new());
    let zeroes = Aligned::new(work.slices.len() * work.len());
    let kernels = Kernels::best();
    for _ in 0..settings.runs {
        let (from, len) = (work.slices[0], work.len());
        copied.push(rate(settings.sample, len, || work.a.bytes_mut().copy_from_slice(from)));
        // Whether all is zero cannot be said before all is read.
        read.push(rate(settings.sample, zeroes.len, || {
            black_box(kernels.is_zero(black_box(zeroes.bytes())));
        }));
    }
    [figure("memcpy", "memcpy", work, copied), figure("read", kernels.name(), work, read)]
}

fn figure(op: &'static str, variant: &'static str, work: &Work, samples: Vec<f64>) -> Figure {
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    let gb_per_s = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let (data_blocks, block_bytes) = (work.slices.len(), work.len());
    Figure { op, variant, data_blocks, block_bytes, gb_per_s, samples }
}

/// GB/s of calls that each count `bytes`.
fn rate(sample: Duration, bytes: usize, mut call: impl FnMut()) -> f64 {
    let (mut calls, start) = (0u64, Instant::now());
    loop {
        call();
        calls += 1;
        let elapsed = start.elapsed();
        if elapsed >= sample {
            return calls as f64 * bytes as f64 / elapsed.as_secs_f64() / 1e9;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_measured_with_all_kernels() {
        let settings = Settings {
            kernels: Kernels::available().collect(),
            data_blocks: vec![2, 5],
            block_bytes: vec![4096],
            runs: 3,
            sample: Duration::from_micros(10),
        };
        let table = run(&settings, &|| false).expect("right answers");
        assert_eq!(table.kernels.len(), OPERATIONS.len() * 2 * settings.kernels.len());
        assert_eq!(table.limits.len(), 4);
        for figure in table.kernels.iter().chain(&table.limits) {
            assert!(figure.gb_per_s > 0.0 && figure.samples.len() == 3, "{figure:?}");
            assert!(figure.samples.contains(&figure.gb_per_s));
        }
        let text = table.text();
        for operation in &OPERATIONS {
            assert_eq!(text.matches(&format!("\n{:<14}", operation.name)).count(), 2, "{text}");
        }
    }

    #[test]
    fn a_stopped_run_keeps_what_it_has() {
        let settings = Settings::usual(vec![Kernels::portable()], 1);
        let table = run(&settings, &|| true).expect("nothing was computed");
        assert!(table.kernels.is_empty());
    }
}
