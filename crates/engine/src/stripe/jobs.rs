//! Converts an operation's parity work into computations over slices of equal length.
//!
//! Invariant: the jobs of one step cover the operation's range once. A covered block may be
//! scattered over several host buffers; the range is cut wherever one of them ends. Called only
//! from `ops`.

use std::ops::Range;

use md::Row;

use super::op::Op;
use super::plan::ParityWork;
use crate::{BufSlice, Compute, Delta, Effect, Effects, Source, Token};

/// Selects the contents of a block: before or after the write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

/// The inputs for the parity work of one operation.
pub(crate) struct Jobs<'a> {
    pub(crate) op: &'a Op,
    pub(crate) row: &'a Row,
    pub(crate) region: u16,
    pub(crate) token: Token,
}

impl Jobs<'_> {
    /// Emits the recovery of all positions in `op.recover`; returns the number of jobs.
    pub(crate) fn recover(&self, out: &mut Effects) -> u32 {
        self.each_run(out, |jobs, from, sectors, out| {
            let lost: Vec2 = jobs.op.recover.iter().collect();
            let sources = jobs.known_sources(from, sectors, out);
            let p = || jobs.scratch(jobs.p(), from, sectors);
            let q = || jobs.scratch(jobs.q(), from, sectors);
            match (lost.second, jobs.op.p_known) {
                (None, true) => {
                    let dst = jobs.block(lost.first, When::Before, from, sectors);
                    Compute::RecoverFromP { dst, p: p(), sources }
                }
                (None, false) => {
                    let dst = jobs.source(lost.first, When::Before, from, sectors);
                    Compute::RecoverFromQ { dst, q: q(), sources }
                }
                (Some(second), _) => {
                    let x = jobs.source(lost.first, When::Before, from, sectors);
                    let y = jobs.source(second, When::Before, from, sectors);
                    Compute::RecoverTwo { x, y, p: p(), q: q(), sources }
                }
            }
        })
    }

    /// Emits the parity work of a write; returns the number of jobs.
    pub(crate) fn parity(&self, work: ParityWork, out: &mut Effects) -> u32 {
        match work {
            ParityWork::Generate => self.generate(When::After, out),
            ParityWork::Update => self.each_run(out, |jobs, from, sectors, out| {
                let (p, q) = jobs.parities(from, sectors);
                Compute::Update { p, q, deltas: jobs.deltas(from, sectors, out) }
            }),
            ParityWork::None => unreachable!("a write without parity computes nothing"),
        }
    }

    fn generate(&self, when: When, out: &mut Effects) -> u32 {
        self.each_run(out, |jobs, from, sectors, out| {
            let (p, q) = jobs.parities(from, sectors);
            Compute::Generate { p, q, sources: jobs.all_sources(when, from, sectors, out) }
        })
    }

    /// The slices of P and Q, if the operation computes them.
    fn parities(&self, from: u64, sectors: u64) -> (Option<BufSlice>, Option<BufSlice>) {
        let parity = |position: u16| {
            let cell = self.op.cells.get(usize::from(position))?;
            cell.scratch.map(|_| self.scratch(position, from, sectors))
        };
        (parity(self.p()), parity(self.q()))
    }

    /// Emits the computations that restore the parity of before the write. Returns the number of
    /// jobs.
    pub(crate) fn revert(&self, work: ParityWork, out: &mut Effects) -> u32 {
        match work {
            // `P ^= old ^ new` once more gives the old P, and so with Q.
            ParityWork::Update => self.parity(work, out),
            ParityWork::Generate => self.generate(When::Before, out),
            ParityWork::None => unreachable!("a write without parity keeps nothing"),
        }
    }

    /// Splits the range into runs in which no host slice ends.
    fn each_run(
        &self,
        out: &mut Effects,
        job: impl Fn(&Self, u64, u64, &mut Effects) -> Compute,
    ) -> u32 {
        let (mut from, mut count) = (self.op.start, 0);
        while from < self.op.end {
            let ends = self.op.covered.iter().map(|at| self.op.host_from(at, from).sectors());
            let sectors = ends.min().unwrap_or(u64::MAX).min(self.op.end - from);
            let job = job(self, from, sectors, out);
            out.list.push(Effect::Compute { token: self.token, job });
            from += sectors;
            count += 1;
        }
        count
    }

    /// All data blocks that are not being recovered, by ascending exponent.
    fn known_sources(&self, from: u64, sectors: u64, out: &mut Effects) -> Range<u32> {
        let first = out.sources.len() as u32;
        for index in self.row.by_exponent.iter().filter(|at| !self.op.recover.contains(**at)) {
            out.sources.push(self.source(*index, When::Before, from, sectors));
        }
        first..out.sources.len() as u32
    }

    /// All data blocks, by ascending exponent.
    fn all_sources(&self, when: When, from: u64, sectors: u64, out: &mut Effects) -> Range<u32> {
        let first = out.sources.len() as u32;
        for index in &self.row.by_exponent {
            out.sources.push(self.source(*index, when, from, sectors));
        }
        first..out.sources.len() as u32
    }

    fn deltas(&self, from: u64, sectors: u64, out: &mut Effects) -> Range<u32> {
        let first = out.deltas.len() as u32;
        for index in self.op.covered.iter() {
            out.deltas.push(Delta {
                exponent: self.row.exponent[usize::from(index)],
                old: self.block(index, When::Before, from, sectors),
                new: self.block(index, When::After, from, sectors),
            });
        }
        first..out.deltas.len() as u32
    }

    fn source(&self, index: u16, when: When, from: u64, sectors: u64) -> Source {
        let exponent = self.row.exponent[usize::from(index)];
        Source { exponent, slice: self.block(index, when, from, sectors) }
    }

    /// A data block: the new contents of a write, and all blocks that a read covers, are in the
    /// host's buffers; the others are in the stripe memory.
    fn block(&self, index: u16, when: When, from: u64, sectors: u64) -> BufSlice {
        let in_host = when == When::After || !self.op.is_write();
        if in_host && self.op.covered.contains(index) {
            self.op.host_from(index, from).part(0, sectors)
        } else {
            self.scratch(index, from, sectors)
        }
    }

    fn scratch(&self, position: u16, from: u64, sectors: u64) -> BufSlice {
        self.op.scratch_slice(self.region, position, from, sectors)
    }

    fn p(&self) -> u16 {
        self.row.data.len() as u16
    }

    fn q(&self) -> u16 {
        self.row.data.len() as u16 + 1
    }
}

/// The one or two lost positions.
struct Vec2 {
    first: u16,
    second: Option<u16>,
}

impl FromIterator<u16> for Vec2 {
    fn from_iter<I: IntoIterator<Item = u16>>(positions: I) -> Vec2 {
        let mut positions = positions.into_iter();
        let first = positions.next().expect("something is lost");
        let second = positions.next();
        assert!(positions.next().is_none(), "no more than two blocks can be recovered");
        Vec2 { first, second }
    }
}
