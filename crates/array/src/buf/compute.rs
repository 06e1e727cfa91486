//! Performs the engine's computations with the parity kernels.

use arrayvec::ArrayVec;
use engine::{BufSlice, Compute, Delta, Effects, MAX_MEMBERS, Source};
use parity::{Block, Change, Kernels};

use super::region::{Regions, Span};

/// Lists on the stack are moved whole, so they are no longer than they must be: nearly all rows are
/// short.
const SHORT_ROW: usize = 16;
/// What a small write changes.
const FEW: usize = 2;

type Blocks<'a, const N: usize> = ArrayVec<Block<'a>, N>;
type Bytes<'a, const N: usize> = ArrayVec<&'a [u8], N>;
type Spans<const N: usize> = ArrayVec<Span, N>;

/// Runs one job. Its results are where the job says when this returns.
///
/// # Panics
/// When a result would overlap an input or another result: a bug of the engine.
#[inline(never)] // So that the caller stays small: most effects are no computations.
pub(crate) fn compute(job: &Compute, effects: &Effects, regions: &Regions, kernels: Kernels) {
    let inputs = match job {
        Compute::Generate { sources, .. }
        | Compute::RecoverFromP { sources, .. }
        | Compute::RecoverFromQ { sources, .. }
        | Compute::RecoverTwo { sources, .. } => sources,
        Compute::Update { deltas, .. } => deltas,
    };
    let work = Work { regions, kernels };
    match inputs.len() {
        ..=FEW => work.run::<FEW>(job, effects),
        ..=SHORT_ROW => work.run::<SHORT_ROW>(job, effects),
        _ => work.run::<MAX_MEMBERS>(job, effects),
    }
}

struct Work<'r> {
    regions: &'r Regions,
    kernels: Kernels,
}

impl<'r> Work<'r> {
    /// A job of at most `N` blocks.
    fn run<const N: usize>(&self, job: &Compute, effects: &Effects) {
        match job {
            Compute::Generate { p, q, sources } => {
                self.generate::<N>(*p, *q, effects.sources(sources));
            }
            Compute::Update { p, q, deltas } => self.update::<N>(*p, *q, effects.deltas(deltas)),
            Compute::RecoverFromP { dst, p, sources } => {
                self.recover_from_p::<N>(*dst, *p, effects.sources(sources));
            }
            Compute::RecoverFromQ { dst, q, sources } => {
                self.recover_from_q::<N>(*dst, *q, effects.sources(sources));
            }
            Compute::RecoverTwo { x, y, p, q, sources } => {
                self.recover_two::<N>((*x, *y), (*p, *q), effects.sources(sources));
            }
        }
    }

    fn generate<const N: usize>(
        &self,
        p: Option<BufSlice>,
        q: Option<BufSlice>,
        sources: &[Source],
    ) {
        let inputs: Spans<N> = self.spans(sources);
        match (p, q) {
            (Some(p), Some(q)) => {
                let [p, q] = self.outputs([p, q], &inputs);
                self.kernels.pq_gen(p, q, &self.blocks::<N>(sources));
            }
            (Some(p), None) => {
                let [p] = self.outputs([p], &inputs);
                self.kernels.xor_gen(p, &self.bytes::<N>(&inputs));
            }
            (None, Some(q)) => {
                let [q] = self.outputs([q], &inputs);
                self.kernels.q_gen(q, &self.blocks::<N>(sources));
            }
            (None, None) => {}
        }
    }

    fn update<const N: usize>(&self, p: Option<BufSlice>, q: Option<BufSlice>, deltas: &[Delta]) {
        let pair = |delta: &Delta| [self.regions.span(delta.old), self.regions.span(delta.new)];
        let inputs: ArrayVec<[Span; 2], N> = deltas.iter().map(pair).collect();
        let change = |(delta, [old, new]): (&Delta, &[Span; 2])| Change {
            exponent: delta.exponent,
            old: self.input(*old),
            new: self.input(*new),
        };
        let changes: ArrayVec<Change<'_>, N> = deltas.iter().zip(&inputs).map(change).collect();
        let inputs = inputs.as_flattened();
        match (p, q) {
            (Some(p), Some(q)) => {
                let [p, q] = self.outputs([p, q], inputs);
                self.kernels.pq_update(p, q, &changes);
            }
            (Some(p), None) => {
                let [p] = self.outputs([p], inputs);
                self.kernels.p_update(p, &changes);
            }
            (None, Some(q)) => {
                let [q] = self.outputs([q], inputs);
                self.kernels.q_update(q, &changes);
            }
            (None, None) => {}
        }
    }

    fn recover_from_p<const N: usize>(&self, dst: BufSlice, p: BufSlice, sources: &[Source]) {
        let (p, inputs): (Span, Spans<N>) = (self.regions.span(p), self.spans(sources));
        let [dst] = self.outputs([dst], inputs.iter().chain([&p]));
        self.kernels.recover_d_p(dst, &self.bytes::<N>(&inputs), self.input(p));
    }

    fn recover_from_q<const N: usize>(&self, dst: Source, q: BufSlice, sources: &[Source]) {
        let (q, inputs): (Span, Spans<N>) = (self.regions.span(q), self.spans(sources));
        let [out] = self.outputs([dst.slice], inputs.iter().chain([&q]));
        let others = self.blocks::<N>(sources);
        self.kernels.recover_d_q(out, dst.exponent, &others, self.input(q));
    }

    fn recover_two<const N: usize>(
        &self,
        (x, y): (Source, Source),
        (p, q): (BufSlice, BufSlice),
        sources: &[Source],
    ) {
        let (p, q) = (self.regions.span(p), self.regions.span(q));
        let inputs: Spans<N> = self.spans(sources);
        let [out_x, out_y] = self.outputs([x.slice, y.slice], inputs.iter().chain([&p, &q]));
        let (p, q) = (self.input(p), self.input(q));
        let others = self.blocks::<N>(sources);
        self.kernels.recover_dd(out_x, x.exponent, out_y, y.exponent, &others, p, q);
    }

    fn spans<const N: usize>(&self, sources: &[Source]) -> Spans<N> {
        sources.iter().map(|source| self.regions.span(source.slice)).collect()
    }

    fn blocks<const N: usize>(&self, sources: &[Source]) -> Blocks<'r, N> {
        let block = |source: &Source| Block {
            exponent: source.exponent,
            bytes: self.input(self.regions.span(source.slice)),
        };
        sources.iter().map(block).collect()
    }

    fn bytes<const N: usize>(&self, spans: &[Span]) -> Bytes<'r, N> {
        spans.iter().map(|span| self.input(*span)).collect()
    }

    fn input(&self, span: Span) -> &'r [u8] {
        // SAFETY: the regions outlive `'r`; the engine issues nothing that writes an input of a
        // computation before the computation is reported done, and `outputs` has checked that the
        // results of this one do not overlap it.
        unsafe { span.bytes() }
    }

    /// The memory of the results.
    fn outputs<'s, const N: usize>(
        &self,
        slices: [BufSlice; N],
        inputs: impl IntoIterator<Item = &'s Span, IntoIter: Clone>,
    ) -> [&'r mut [u8]; N] {
        let spans = slices.map(|slice| self.regions.span(slice));
        let inputs = inputs.into_iter();
        for (at, span) in spans.iter().enumerate() {
            let clear = |other: &Span| !span.overlaps(*other);
            let clear = inputs.clone().all(clear) && spans[..at].iter().all(clear);
            assert!(clear, "a computation's result overlaps its input");
        }
        // SAFETY: the regions outlive `'r`; the results are disjoint from each other and from all
        // inputs (checked), and the engine gives them to no other effect meanwhile.
        spans.map(|span| unsafe { span.bytes_mut() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buf::Region;

    fn slice(block: u64) -> BufSlice {
        BufSlice { region: 0, len: 512, offset: block * 512 }
    }

    #[test]
    fn what_is_generated_can_be_recovered() {
        let mut regions = Regions::new().expect("memory");
        regions.add(Arc::new(Region::new(8 * 512).expect("memory")));
        for block in 0..3 {
            for byte in 0..512 {
                if (byte * 7 + block * 13) % 3 == 0 {
                    regions.span(slice(block)).flip_bit(byte as usize);
                }
            }
        }
        let mut effects = Effects::new();
        for (exponent, block) in [(0, 0), (1, 1), (2, 2)] {
            effects.sources.push(Source { exponent, slice: slice(block) });
        }
        effects.sources.push(Source { exponent: 1, slice: slice(1) });
        let kernels = Kernels::best();
        let generate = Compute::Generate { p: Some(slice(3)), q: Some(slice(4)), sources: 0..3 };
        compute(&generate, &effects, &regions, kernels);
        let recover = Compute::RecoverTwo {
            x: Source { exponent: 0, slice: slice(5) },
            y: Source { exponent: 2, slice: slice(6) },
            p: slice(3),
            q: slice(4),
            sources: 3..4,
        };
        compute(&recover, &effects, &regions, kernels);
        for (lost, found) in [(0, 5), (2, 6)] {
            // SAFETY: nothing else is running.
            let same =
                unsafe { regions.span(slice(lost)).bytes() == regions.span(slice(found)).bytes() };
            assert!(same, "block {lost}");
        }
    }

    /// Three of four blocks change at once: the parity is that of the new row.
    #[test]
    fn several_deltas_in_one_job_leave_the_parity_of_the_new_data() {
        let mut regions = Regions::new().expect("memory");
        regions.add(Arc::new(Region::new(16 * 512).expect("memory")));
        for block in 0..7 {
            for byte in 0..512 {
                if (byte * 11 + block * 29) % 5 < 2 {
                    regions.span(slice(block)).flip_bit(byte as usize);
                }
            }
        }
        let kernels = Kernels::best();
        let mut effects = Effects::new();
        let old_row = [(0, 0), (1, 1), (2, 2), (5, 3)];
        let new_row = [(0, 4), (1, 1), (2, 5), (5, 6)];
        for (exponent, block) in old_row.into_iter().chain(new_row) {
            effects.sources.push(Source { exponent, slice: slice(block) });
        }
        for (exponent, old, new) in [(5, 3, 6), (0, 0, 4), (2, 2, 5)] {
            effects.deltas.push(Delta { exponent, old: slice(old), new: slice(new) });
        }
        let generate = |p, q, sources| Compute::Generate { p, q, sources };
        let update = |p, q| Compute::Update { p, q, deltas: 0..3 };
        let jobs = [
            generate(Some(slice(7)), Some(slice(8)), 4..8),
            // P and Q together, and each without the other.
            generate(Some(slice(9)), Some(slice(10)), 0..4),
            update(Some(slice(9)), Some(slice(10))),
            generate(Some(slice(11)), Some(slice(12)), 0..4),
            update(Some(slice(11)), None),
            update(None, Some(slice(12))),
        ];
        jobs.iter().for_each(|job| compute(job, &effects, &regions, kernels));
        // SAFETY: nothing else is running.
        let bytes = |block| unsafe { regions.span(slice(block)).bytes() };
        for (right, updated) in [(7, 9), (8, 10), (7, 11), (8, 12)] {
            assert!(bytes(right) == bytes(updated), "block {updated}");
        }
        assert!(bytes(7) != bytes(8), "the row has some content");
    }

    #[test]
    #[should_panic(expected = "overlaps its input")]
    fn a_result_over_an_input_is_refused() {
        let mut regions = Regions::new().expect("memory");
        regions.add(Arc::new(Region::new(4096).expect("memory")));
        let mut effects = Effects::new();
        effects.sources.push(Source { exponent: 0, slice: slice(0) });
        let job = Compute::Generate { p: Some(slice(0)), q: None, sources: 0..1 };
        compute(&job, &effects, &regions, Kernels::best());
    }
}
