//! Reads the rows of RAID 4, 5 and 6, and recovers lost blocks from P and Q.
//!
//! ```text
//!            row offset:  lo      a   b        hi
//! data 0                  ........xxxxx.........      x: could not be read
//! data 1                  ............xxxxxxxx..
//! P                       ......................
//!                         0 lost |1  |2  |1   |0      runs in which the same blocks are lost
//! ```
//! Invariant: a row is only read as a whole where a requested data block is lost; then every run is
//! recovered from exactly the blocks that are readable there, or is lost.

use std::borrow::Cow;
use std::ops::Range;

use md::{MemberIdx, Parity, Row, SECTOR_BYTES, Sector, StripeNo};
use parity::{Block, Kernels};

use super::compare::{Comparison, Correction, Held, RowRun};
use super::ranges::add_range;
use super::slot_reader::{self, Failures, Source};

/// The rows of one part of the array.
pub(super) struct Rows<'a> {
    pub(super) parity: &'a Parity,
    pub(super) slots: &'a [Vec<Source>],
    pub(super) failures: &'a Failures,
    pub(super) kernels: Kernels,
    pub(super) comparison: Option<&'a Comparison>,
}

/// A requested range of one data chunk.
struct Wanted<'b> {
    index: usize,
    /// Sectors of the row.
    range: Range<u64>,
    buf: &'b mut [u8],
    /// Sectors of the row that its member could not read.
    failed: Vec<Range<u64>>,
}

/// A member's part of a row, in `lo..hi`.
struct Column<'b> {
    bytes: Cow<'b, [u8]>,
    /// Sectors of the row.
    failed: Vec<Range<u64>>,
}

impl Column<'_> {
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
    /// Fills `buf` from array sector `at` on; appends the lost array sectors to `lost`.
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

    /// As [`Rows::read`], of a part of one chunk, with the same part of all other data of the row:
    /// its parity is compared also where some of these have to be recovered.
    pub(super) fn read_with_row(&self, at: u64, buf: &mut [u8], lost: &mut Vec<Range<u64>>) {
        let pos = self.parity.locate(Sector(at));
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        let range = pos.offset..pos.offset + sectors;
        if range.end > self.parity.chunk_sectors() {
            return self.read(at, buf, lost);
        }
        let mut blocks = vec![vec![0; buf.len()]; self.parity.row(pos.stripe).data.len()];
        let wanted = blocks.iter_mut().enumerate().map(|(index, buf)| Wanted {
            index,
            range: range.clone(),
            buf,
            failed: Vec::new(),
        });
        let mut of_row = Vec::new();
        self.read_row(pos.stripe, &mut wanted.collect::<Vec<_>>(), &mut of_row);
        buf.copy_from_slice(&blocks[usize::from(pos.index)]);
        clipped(&of_row, &(at..at + sectors)).into_iter().for_each(|range| add_range(lost, range));
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
        let unserved = match (lo, hi) {
            (Some(lo), Some(hi)) => self.recover(stripe, row, lo..hi, wanted),
            _ => Vec::new(),
        };
        for (want, range, bytes) in self.compare(stripe, row, wanted, &unserved) {
            let want = &mut wanted[want];
            want.buf[self::bytes(want.range.start, &range)].copy_from_slice(&bytes);
        }
        for (want, ranges) in wanted.iter().zip(unserved) {
            for range in ranges {
                let index = want.index as u16;
                let start = self.parity.array_sector(stripe, index, range.start).0;
                add_range(lost, start..start + (range.end - range.start));
            }
        }
    }

    /// Compares the row's parity with its data where these are known: blocks that were read, and on
    /// RAID 6 blocks that were recovered with one parity while the other is available. Returns what
    /// is to be served instead: the place among `wanted`, sectors of the row, and their bytes.
    fn compare(
        &self,
        stripe: StripeNo,
        row: &Row,
        wanted: &[Wanted<'_>],
        unserved: &[Vec<Range<u64>>],
    ) -> Vec<(usize, Range<u64>, Vec<u8>)> {
        let mut instead = Vec::new();
        let Some(comparison) = self.comparison else { return instead };
        let lo = wanted.iter().map(|want| want.range.start).min().unwrap_or(0);
        let hi = wanted.iter().map(|want| want.range.end).max().unwrap_or(0);
        let first = self.parity.member_sector(stripe, lo).0;
        let span = lo..lo + comparison.covered(first, hi - lo);
        let is_there = |slot: usize| !self.slots[slot].is_empty();
        let missing = row.data.iter().filter(|member| !is_there(member.index())).count();
        let parities = [Some(row.p), row.q].into_iter().flatten();
        let there = parities.filter(|member| is_there(member.index())).count();
        if span.is_empty() || there <= missing {
            return instead;
        }
        let (data, recovered) = self.known_row(stripe, row, &span, wanted, unserved);
        let p = self.column(stripe, row.p.index(), &span);
        let q = row.q.map(|member| self.column(stripe, member.index(), &span));
        let ends = wanted.iter().map(|want| &want.range).chain(recovered.iter().copied().flatten());
        let ends = ends.flat_map(|range| clipped(std::slice::from_ref(range), &span)).collect();
        let ends = Column { bytes: Cow::default(), failed: ends };
        for run in runs(&span, data.iter().chain([&p, &ends]).chain(&q)) {
            let has_p = p.has(&run);
            let q = q.as_ref().filter(|q| q.has(&run));
            let is_recovered = |ranges: &&&[Range<u64>]| !clipped(ranges, &run).is_empty();
            // One block that was recovered always agrees with the parity that it was recovered
            // from.
            let known = match recovered.iter().filter(is_recovered).count() {
                0 => has_p || q.is_some(),
                1 => has_p && q.is_some(),
                _ => false,
            };
            if !known || data.iter().any(|column| !column.has(&run)) {
                continue;
            }
            let covers =
                |want: &&Wanted<'_>| want.range.start <= run.start && run.end <= want.range.end;
            let array = |index: usize| self.parity.array_sector(stripe, index as u16, run.start).0;
            let of_run = wanted.iter().filter(covers);
            let served = of_run.map(|want| (want.index, array(want.index))).collect();
            let at = self.parity.member_sector(stripe, run.start).0;
            let part = |column| Column::part(column, span.start, &run);
            let blocks = row.data.iter().zip(&data).zip(&recovered);
            let blocks = blocks.map(|((member, column), recovered)| {
                let is_read = clipped(recovered, &run).is_empty();
                self.held(*member, at, column.part(span.start, &run), is_read)
            });
            let row_run = RowRun {
                row,
                data: blocks.collect(),
                p: has_p.then(|| self.held(row.p, at, part(&p), true)),
                q: q.zip(row.q).map(|(column, member)| self.held(member, at, part(column), true)),
                served,
                tolerates: 1 + usize::from(row.q.is_some()),
            };
            for Correction { index, sector, bytes } in comparison.row(&row_run) {
                let want = wanted.iter().position(|want| want.index == index && covers(&want));
                let at = run.start + sector;
                instead.push((want.expect("it is served"), at..at + 1, bytes));
            }
        }
        instead
    }

    /// What a member holds from `sector` of its data on.
    fn held<'h>(
        &'h self,
        member: MemberIdx,
        sector: u64,
        bytes: &'h [u8],
        is_read: bool,
    ) -> Held<'h> {
        Held { bytes, is_read, sources: &self.slots[member.index()], sector }
    }

    /// The data blocks of a row's span, and which parts of each were recovered. Requested blocks of
    /// the whole span are already in memory.
    fn known_row<'w>(
        &self,
        stripe: StripeNo,
        row: &Row,
        span: &Range<u64>,
        wanted: &'w [Wanted<'_>],
        unserved: &[Vec<Range<u64>>],
    ) -> (Vec<Column<'w>>, Vec<&'w [Range<u64>]>) {
        let column = |(index, member): (usize, &MemberIdx)| {
            let known = wanted.iter().position(|want| {
                let inside = want.range.start <= span.start && span.end <= want.range.end;
                want.index == index && inside
            });
            let Some(at) = known else {
                return (self.column(stripe, member.index(), span), &[][..]);
            };
            let want = &wanted[at];
            let bytes = want.buf[bytes(want.range.start, span)].into();
            let lost = unserved.get(at).map_or(&[][..], Vec::as_slice);
            (Column { bytes, failed: clipped(lost, span) }, want.failed.as_slice())
        };
        row.data.iter().enumerate().map(column).unzip()
    }

    /// Reads a member's part of a row; returns the sectors of the row that could not be read.
    fn read_member(
        &self,
        stripe: StripeNo,
        slot: usize,
        range: &Range<u64>,
        buf: &mut [u8],
    ) -> Vec<Range<u64>> {
        let sector = self.parity.member_sector(stripe, range.start).0;
        let mut failed = Vec::new();
        slot_reader::read(&self.slots[slot], sector, buf, self.failures, &mut failed);
        failed.iter_mut().for_each(|f| *f = f.start + range.start..f.end + range.start);
        failed
    }

    fn column(&self, stripe: StripeNo, slot: usize, span: &Range<u64>) -> Column<'static> {
        let mut bytes = vec![0; ((span.end - span.start) * SECTOR_BYTES) as usize];
        let failed = self.read_member(stripe, slot, span, &mut bytes);
        Column { bytes: bytes.into(), failed }
    }

    /// Recovers failed ranges inside `span`, and returns the lost sectors of each of `wanted`.
    fn recover(
        &self,
        stripe: StripeNo,
        row: &Row,
        span: Range<u64>,
        wanted: &mut [Wanted<'_>],
    ) -> Vec<Vec<Range<u64>>> {
        let mut data: Vec<Column<'_>> = Vec::with_capacity(row.data.len());
        for (index, member) in row.data.iter().enumerate() {
            let known = wanted.iter().find(|want| {
                let inside = want.range.start <= span.start && span.end <= want.range.end;
                want.index == index && inside
            });
            data.push(match known {
                Some(want) => Column {
                    bytes: want.buf[bytes(want.range.start, &span)].to_vec().into(),
                    failed: clipped(&want.failed, &span),
                },
                None => self.column(stripe, member.index(), &span),
            });
        }
        let p = self.column(stripe, row.p.index(), &span);
        let mut q = None;
        let mut runs = runs(&span, data.iter().chain([&p]));
        // Q is read only where P is not sufficient.
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

    /// The lost data blocks of a run, in the order of `lost`; `None` when the parity is not
    /// sufficient.
    fn recover_run(
        &self,
        row: &Row,
        lo: u64,
        run: &Range<u64>,
        lost: &[usize],
        data: &[Column<'_>],
        p: &Column<'_>,
        q: Option<&Column<'_>>,
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

/// Cuts the span at every boundary of a failed range.
fn runs<'c>(span: &Range<u64>, columns: impl Iterator<Item = &'c Column<'c>>) -> Vec<Range<u64>> {
    let edges = columns.flat_map(|column| &column.failed).flat_map(|f| [f.start, f.end]);
    let mut edges: Vec<u64> = edges.chain([span.start, span.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
