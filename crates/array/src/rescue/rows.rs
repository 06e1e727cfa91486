//! Reads the rows of RAID 4, 5 and 6, and recovers what is lost from P and Q.
//!
//! ```text
//!            row offset:  lo      a   b        hi
//! data 0                  ........xxxxx.........      x: could not be read
//! data 1                  ............xxxxxxxx..
//! P                       ......................
//!                         0 lost |1  |2  |1   |0      runs in which the same blocks are lost
//! ```
//! Invariant: a row is only looked at as a whole where a data block that somebody wants is lost;
//! then every run is recovered from exactly what can be read there, or is lost.

use std::ops::Range;

use md::{Parity, Row, SECTOR_BYTES, Sector, StripeNo};
use parity::{Block, Kernels};

use super::column::{self, Failures, Source};
use super::view::add_range;

/// The rows of one part of the array.
pub(super) struct Rows<'a> {
    pub(super) parity: &'a Parity,
    pub(super) slots: &'a [Vec<Source>],
    pub(super) failures: &'a Failures,
    pub(super) kernels: Kernels,
}

/// What is wanted of one data chunk.
struct Wanted<'b> {
    index: usize,
    /// Sectors of the row.
    range: Range<u64>,
    buf: &'b mut [u8],
    /// Sectors of the row that its member could not give.
    failed: Vec<Range<u64>>,
}

/// What a member has of a row, in `lo..hi`.
struct Column {
    bytes: Vec<u8>,
    /// Sectors of the row.
    failed: Vec<Range<u64>>,
}

impl Column {
    fn part(&self, lo: u64, run: &Range<u64>) -> &[u8] {
        &self.bytes[bytes(lo, run)]
    }

    fn has(&self, run: &Range<u64>) -> bool {
        self.failed.iter().all(|failed| failed.end <= run.start || run.end <= failed.start)
    }
}

fn bytes(lo: u64, run: &Range<u64>) -> Range<usize> {
    ((run.start - lo) * SECTOR_BYTES) as usize..((run.end - lo) * SECTOR_BYTES) as usize
}

impl Rows<'_> {
    /// Fills `buf` from array sector `at` on; adds the array sectors that are lost.
    pub(super) fn read(&self, mut at: u64, buf: &mut [u8], lost: &mut Vec<Range<u64>>) {
        let chunk = self.parity.chunk_sectors();
        let mut rest = buf;
        while !rest.is_empty() {
            let stripe = self.parity.locate(Sector(at)).stripe;
            let mut wanted = Vec::new();
            while !rest.is_empty() {
                let pos = self.parity.locate(Sector(at));
                if pos.stripe != stripe {
                    break;
                }
                let run = (chunk - pos.offset).min(rest.len() as u64 / SECTOR_BYTES);
                let (buf, behind) = rest.split_at_mut((run * SECTOR_BYTES) as usize);
                wanted.push(Wanted {
                    index: usize::from(pos.index),
                    range: pos.offset..pos.offset + run,
                    buf,
                    failed: Vec::new(),
                });
                at += run;
                rest = behind;
            }
            self.read_row(stripe, &mut wanted, lost);
        }
    }

    fn read_row(&self, stripe: StripeNo, wanted: &mut [Wanted<'_>], lost: &mut Vec<Range<u64>>) {
        let row = self.parity.row(stripe);
        for want in wanted.iter_mut() {
            let slot = row.data[want.index].index();
            want.failed = self.read_member(stripe, slot, &want.range, want.buf);
        }
        let failed = || wanted.iter().flat_map(|want| &want.failed);
        let lo = failed().map(|range| range.start).min();
        let hi = failed().map(|range| range.end).max();
        let (Some(lo), Some(hi)) = (lo, hi) else { return };
        let unserved = self.recover(stripe, row, lo..hi, wanted);
        for (want, ranges) in wanted.iter().zip(unserved) {
            for range in ranges {
                let index = want.index as u16;
                let start = self.parity.array_sector(stripe, index, range.start).0;
                add_range(lost, start..start + (range.end - range.start));
            }
        }
    }

    /// Reads a member's part of a row; gives the sectors of the row that it could not.
    fn read_member(
        &self,
        stripe: StripeNo,
        slot: usize,
        range: &Range<u64>,
        buf: &mut [u8],
    ) -> Vec<Range<u64>> {
        let sector = self.parity.member_sector(stripe, range.start).0;
        let mut failed = Vec::new();
        column::read(&self.slots[slot], sector, buf, self.failures, &mut failed);
        failed.iter_mut().for_each(|f| *f = f.start + range.start..f.end + range.start);
        failed
    }

    fn column(&self, stripe: StripeNo, slot: usize, span: &Range<u64>) -> Column {
        let mut bytes = vec![0; ((span.end - span.start) * SECTOR_BYTES) as usize];
        let failed = self.read_member(stripe, slot, span, &mut bytes);
        Column { bytes, failed }
    }

    /// Recovers what failed inside `span`, and gives what stays lost, for each of `wanted`.
    fn recover(
        &self,
        stripe: StripeNo,
        row: &Row,
        span: Range<u64>,
        wanted: &mut [Wanted<'_>],
    ) -> Vec<Vec<Range<u64>>> {
        let mut data: Vec<Column> = Vec::with_capacity(row.data.len());
        for (index, member) in row.data.iter().enumerate() {
            let known = wanted.iter().find(|want| {
                let inside = want.range.start <= span.start && span.end <= want.range.end;
                want.index == index && inside
            });
            data.push(match known {
                Some(want) => Column {
                    bytes: want.buf[bytes(want.range.start, &span)].to_vec(),
                    failed: clipped(&want.failed, &span),
                },
                None => self.column(stripe, member.index(), &span),
            });
        }
        let p = self.column(stripe, row.p.index(), &span);
        let mut q = None;
        let mut runs = runs(&span, data.iter().chain([&p]));
        // Q is read only where P alone is not enough.
        let missing = |run| data.iter().chain([&p]).filter(|column| !column.has(run)).count();
        if let Some(member) = row.q.filter(|_| runs.iter().any(|run| missing(run) > 1)) {
            let column = self.column(stripe, member.index(), &span);
            runs = self::runs(&span, data.iter().chain([&p, &column]));
            q = Some(column);
        }
        let mut unserved = vec![Vec::new(); wanted.len()];
        for run in &runs {
            let lost: Vec<usize> = (0..data.len()).filter(|i| !data[*i].has(run)).collect();
            if lost.is_empty() {
                continue;
            }
            let recovered = self.recover_run(row, span.start, run, &lost, &data, &p, q.as_ref());
            for (want, unserved) in wanted.iter_mut().zip(&mut unserved) {
                for failed in clipped(&want.failed, run) {
                    match &recovered {
                        Some(blocks) => {
                            let at = lost.iter().position(|index| *index == want.index);
                            let block = &blocks[at.expect("what failed is lost")];
                            let from = &block[bytes(run.start, &failed)];
                            want.buf[bytes(want.range.start, &failed)].copy_from_slice(from);
                        }
                        None => add_range(unserved, failed),
                    }
                }
            }
        }
        unserved
    }

    /// The lost data blocks of a run, in the order of `lost`; `None` when there is not enough.
    fn recover_run(
        &self,
        row: &Row,
        lo: u64,
        run: &Range<u64>,
        lost: &[usize],
        data: &[Column],
        p: &Column,
        q: Option<&Column>,
    ) -> Option<Vec<Vec<u8>>> {
        let p = p.has(run).then(|| p.part(lo, run));
        let q = q.filter(|q| q.has(run)).map(|q| q.part(lo, run));
        let others = row.by_exponent.iter().map(|index| usize::from(*index));
        let others: Vec<Block<'_>> = others
            .filter(|index| !lost.contains(index))
            .map(|i| Block { exponent: row.exponent[i], bytes: data[i].part(lo, run) })
            .collect();
        let block = || vec![0; ((run.end - run.start) * SECTOR_BYTES) as usize];
        match (lost, p, q) {
            ([_], Some(p), _) => {
                let mut x = block();
                let others: Vec<&[u8]> = others.iter().map(|other| other.bytes).collect();
                self.kernels.recover_d_p(&mut x, &others, p);
                Some(vec![x])
            }
            ([x], None, Some(q)) => {
                let exponent = row.exponent[*x];
                let mut x = block();
                self.kernels.recover_d_q(&mut x, exponent, &others, q);
                Some(vec![x])
            }
            ([x, y], Some(p), Some(q)) => {
                let (ex, ey) = (row.exponent[*x], row.exponent[*y]);
                let (mut x, mut y) = (block(), block());
                self.kernels.recover_dd(&mut x, ex, &mut y, ey, &others, p, q);
                Some(vec![x, y])
            }
            _ => None,
        }
    }
}

/// The parts of `ranges` that are inside `span`.
fn clipped(ranges: &[Range<u64>], span: &Range<u64>) -> Vec<Range<u64>> {
    let clip = |range: &Range<u64>| range.start.max(span.start)..range.end.min(span.end);
    ranges.iter().map(clip).filter(|range| range.start < range.end).collect()
}

/// Cuts the span where a column begins or ends to fail.
fn runs<'c>(span: &Range<u64>, columns: impl Iterator<Item = &'c Column>) -> Vec<Range<u64>> {
    let edges = columns.flat_map(|column| &column.failed).flat_map(|f| [f.start, f.end]);
    let mut edges: Vec<u64> = edges.chain([span.start, span.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
