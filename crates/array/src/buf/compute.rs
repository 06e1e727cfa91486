//! Performs the engine's computations with the parity kernels.

use arrayvec::ArrayVec;
use engine::{BufSlice, Compute, Delta, Effects, MAX_MEMBERS, Source, Verdict};
use parity::{Block, Change, Kernels};

use super::compare::Comparison;
use super::in_place::InPlaceSources;
use super::region::{Regions, Span};

/// Lists on the stack are copied as a whole, so they are kept short: nearly all rows are short.
const SHORT_ROW: usize = 16;
/// Number of blocks that a small write changes.
const FEW: usize = 2;

type Blocks<'a, const N: usize> = ArrayVec<Block<'a>, N>;
type Bytes<'a, const N: usize> = ArrayVec<&'a [u8], N>;
type Spans<const N: usize> = ArrayVec<Span, N>;

/// Runs one job. Its results are in place when this returns; that of a comparison is the verdict.
///
/// # Panics
/// When a result would overlap an input or another result: a bug in the engine.
#[inline(never)] // So that the caller stays small: most effects are no computations.
pub(crate) fn compute(
    job: &Compute,
    effects: &Effects,
    regions: &Regions,
    in_place: &mut InPlaceSources,
    kernels: Kernels,
) -> Option<Verdict> {
    let inputs = match job {
        Compute::Check { .. } | Compute::Compare { .. } => {
            return Some(Comparison { regions, in_place, kernels }.run(job, effects));
        }
        Compute::Generate { sources, .. }
        | Compute::Xor { sources, .. }
        | Compute::RecoverFromP { sources, .. }
        | Compute::RecoverFromQ { sources, .. }
        | Compute::RecoverTwo { sources, .. } => sources,
        Compute::Update { deltas, .. } => deltas,
    };
    let work = Work { regions, in_place, kernels };
    match inputs.len() {
        len if len <= FEW => work.run::<FEW>(job, effects),
        len if len <= SHORT_ROW => work.run::<SHORT_ROW>(job, effects),
        _ => work.run::<MAX_MEMBERS>(job, effects),
    }
    let (one, two) = match job {
        Compute::Generate { p, q, .. } | Compute::Update { p, q, .. } => (*p, *q),
        Compute::Xor { dst, .. } | Compute::RecoverFromP { dst, .. } => (Some(*dst), None),
        Compute::RecoverFromQ { dst, .. } => (Some(dst.slice), None),
        Compute::RecoverTwo { x, y, .. } => (Some(x.slice), Some(y.slice)),
        Compute::Check { .. } | Compute::Compare { .. } => (None, None),
    };
    in_place.forget(one.as_slice());
    in_place.forget(two.as_slice());
    None
}

/// Bytes of a lent block to prefetch; after that the hardware prefetcher takes over.
const AHEAD_BYTES: u32 = 512;

/// Announces the next job: prefetches the beginnings of its lent inputs.
pub(crate) fn prefetch(
    job: &Compute,
    effects: &Effects,
    regions: &Regions,
    in_place: &InPlaceSources,
) {
    let expect = |slice: BufSlice| {
        let lent = in_place.find(slice);
        if lent != slice {
            regions.span(BufSlice { len: lent.len.min(AHEAD_BYTES), ..lent }).prefetch();
        }
    };
    match job {
        Compute::Update { p, q, deltas } => {
            [p, q].into_iter().flatten().for_each(|parity| expect(*parity));
            effects.deltas(deltas).iter().for_each(|delta| expect(delta.old));
        }
        Compute::RecoverFromP { p: parity, sources, .. }
        | Compute::RecoverFromQ { q: parity, sources, .. } => {
            expect(*parity);
            effects.sources(sources).iter().for_each(|source| expect(source.slice));
        }
        Compute::Generate { sources, .. }
        | Compute::Xor { sources, .. }
        | Compute::RecoverTwo { sources, .. }
        | Compute::Check { sources, .. }
        | Compute::Compare { sources } => {
            effects.sources(sources).iter().for_each(|source| expect(source.slice));
        }
    }
}

struct Work<'r> {
    regions: &'r Regions,
    in_place: &'r InPlaceSources,
    kernels: Kernels,
}

impl<'r> Work<'r> {
    /// Runs a job of at most `N` blocks.
    fn run<const N: usize>(&self, job: &Compute, effects: &Effects) {
        match job {
            Compute::Generate { p, q, sources } => {
                self.generate::<N>(*p, *q, effects.sources(sources));
            }
            Compute::Xor { dst, sources } => {
                self.generate::<N>(Some(*dst), None, effects.sources(sources));
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
            Compute::Check { .. } | Compute::Compare { .. } => unreachable!("a `Comparison`"),
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
        let pair = |delta: &Delta| [self.source(delta.old), self.source(delta.new)];
        let inputs: ArrayVec<[Span; 2], N> = deltas.iter().map(pair).collect();
        let change = |(delta, [old, new]): (&Delta, &[Span; 2])| Change {
            exponent: delta.exponent,
            old: self.input(*old),
            new: self.input(*new),
        };
        let changes: ArrayVec<Change<'_>, N> = deltas.iter().zip(&inputs).map(change).collect();
        let inputs = inputs.as_flattened();
        // Old parity lent by a member is read in place; the first computation copies it.
        let whole =
            |parity: BufSlice| self.in_place.is_lent(parity) && self.in_place.ends_with(parity);
        match (p, q) {
            (Some(p), None) if whole(p) => {
                let old = self.source(p);
                let [p] = self.outputs([p], inputs.iter().chain([&old]));
                let (first, others) = changes.split_first().expect("an update changes something");
                self.kernels.xor_gen(p, &[self.input(old), first.old, first.new]);
                return self.kernels.p_update(p, others);
            }
            (Some(p), Some(q)) if whole(p) && whole(q) => {
                let (old_p, old_q) = (self.source(p), self.source(q));
                let [p, q] = self.outputs([p, q], inputs.iter().chain([&old_p, &old_q]));
                let old = (self.input(old_p), self.input(old_q));
                return self.kernels.pq_update_from(p, q, old, &changes);
            }
            _ => [p, q].into_iter().flatten().for_each(|parity| self.fetch(parity)),
        }
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
        let (p, inputs): (Span, Spans<N>) = (self.source(p), self.spans(sources));
        let [dst] = self.outputs([dst], inputs.iter().chain([&p]));
        self.kernels.recover_d_p(dst, &self.bytes::<N>(&inputs), self.input(p));
    }

    fn recover_from_q<const N: usize>(&self, dst: Source, q: BufSlice, sources: &[Source]) {
        let (q, inputs): (Span, Spans<N>) = (self.source(q), self.spans(sources));
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
        let (p, q) = (self.source(p), self.source(q));
        let inputs: Spans<N> = self.spans(sources);
        let [out_x, out_y] = self.outputs([x.slice, y.slice], inputs.iter().chain([&p, &q]));
        let (p, q) = (self.input(p), self.input(q));
        let others = self.blocks::<N>(sources);
        self.kernels.recover_dd(out_x, x.exponent, out_y, y.exponent, &others, p, q);
    }

    /// Copies lent data to where they are to be changed: whole pages, because the loan of a page
    /// ends as a whole, and another job may change the rest.
    fn fetch(&self, slice: BufSlice) {
        for (page, lent) in self.in_place.pages(slice) {
            self.regions.span(page).copy_from(self.regions.span(lent));
        }
    }

    /// The location of an input.
    fn source(&self, slice: BufSlice) -> Span {
        self.regions.span(self.in_place.find(slice))
    }

    fn spans<const N: usize>(&self, sources: &[Source]) -> Spans<N> {
        sources.iter().map(|source| self.source(source.slice)).collect()
    }

    fn blocks<const N: usize>(&self, sources: &[Source]) -> Blocks<'r, N> {
        let block = |source: &Source| Block {
            exponent: source.exponent,
            bytes: self.input(self.source(source.slice)),
        };
        sources.iter().map(block).collect()
    }

    fn bytes<const N: usize>(&self, spans: &[Span]) -> Bytes<'r, N> {
        spans.iter().map(|span| self.input(*span)).collect()
    }

    fn input(&self, span: Span) -> &'r [u8] {
        // SAFETY: the regions outlive `'r`; the engine issues nothing that writes an input of a
        // computation before the computation is reported done, nor the sectors of a member that are
        // lent for it, and `outputs` has checked that the results of this one do not overlap it.
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
        // inputs (checked), and the engine issues no other effect on them until the computation is
        // done.
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
    fn generated_parity_recovers_lost_blocks() {
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
        compute(&generate, &effects, &regions, &mut InPlaceSources::default(), kernels);
        let recover = Compute::RecoverTwo {
            x: Source { exponent: 0, slice: slice(5) },
            y: Source { exponent: 2, slice: slice(6) },
            p: slice(3),
            q: slice(4),
            sources: 3..4,
        };
        compute(&recover, &effects, &regions, &mut InPlaceSources::default(), kernels);
        for (lost, found) in [(0, 5), (2, 6)] {
            // SAFETY: nothing else is running.
            let same =
                unsafe { regions.span(slice(lost)).bytes() == regions.span(slice(found)).bytes() };
            assert!(same, "block {lost}");
        }
    }

    /// Three of four blocks change in one job: the parity is that of the new row.
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
        let in_place = &mut InPlaceSources::default();
        for job in &jobs {
            compute(job, &effects, &regions, in_place, kernels);
        }
        // SAFETY: nothing else is running.
        let bytes = |block| unsafe { regions.span(slice(block)).bytes() };
        for (right, updated) in [(7, 9), (8, 10), (7, 11), (8, 12)] {
            assert!(bytes(right) == bytes(updated), "block {updated}");
        }
        assert!(bytes(7) != bytes(8), "the row has some content");
    }

    /// Old contents stay in the region of a member; the results are what they are with copies, and
    /// the member's bytes stay. In one job over the whole blocks, and in two.
    #[test]
    fn an_update_with_lent_blocks_leaves_the_same_parity_and_the_member_alone() {
        const LEN: u64 = 4096 + 1024;
        let whole = |region, block: u64| BufSlice { region, len: LEN as u32, offset: block * 8192 };
        let part = |slice: BufSlice, from: u64, to: u64| BufSlice {
            len: (to - from) as u32,
            offset: slice.offset + from,
            ..slice
        };
        for with_q in [false, true] {
            for cuts in [&[0, LEN][..], &[0, 1536, LEN], &[0, 4096, 4608, LEN]] {
                let mut regions = Regions::new().expect("memory");
                for region in 0..2 {
                    regions.add(Arc::new(Region::new(8 * 8192).expect("memory")));
                    for byte in (0..8 * 8192).filter(|byte| (byte * (7 + region) + 3) % 5 < 2) {
                        let at = BufSlice { region: region as u16, len: 1, offset: byte };
                        regions.span(at).flip_bit(0);
                    }
                }
                let bytes = |slice: BufSlice| {
                    let mut bytes = Vec::new();
                    regions.span(slice).append_to(&mut bytes);
                    bytes
                };
                // In stripe memory, region 0: new data, P, Q, old data. The member's: 0, 1, 2.
                let (new, p, q, old) = (whole(0, 0), whole(0, 1), whole(0, 2), whole(0, 3));
                let lent = [0, 1, 2].map(|block| whole(1, block));
                let before = lent.map(bytes);
                let mut right = before.clone();
                let new_bytes = bytes(new);
                let change = parity::Change { exponent: 3, old: &before[2], new: &new_bytes };
                let kernels = Kernels::best();
                kernels.p_update(&mut right[0], &[change]);
                kernels.q_update(&mut right[1], &[change]);

                let mut in_place = InPlaceSources::of(0, 8 * 8192);
                [p, q, old].into_iter().zip(lent).for_each(|(own, lent)| in_place.note(own, lent));
                let update = |in_place: &mut InPlaceSources| {
                    for cut in cuts.windows(2) {
                        let part = |slice| part(slice, cut[0], cut[1]);
                        let mut effects = Effects::new();
                        effects.deltas.push(Delta { exponent: 3, old: part(old), new: part(new) });
                        let q = with_q.then(|| part(q));
                        let job = Compute::Update { p: Some(part(p)), q, deltas: 0..1 };
                        compute(&job, &effects, &regions, in_place, kernels);
                    }
                };
                update(&mut in_place);
                assert!(bytes(p) == right[0], "{cuts:?}, Q: {with_q}");
                assert!(!with_q || bytes(q) == right[1], "{cuts:?}");
                assert!(
                    !in_place.is_lent(p) && in_place.is_lent(q) != with_q && in_place.is_lent(old)
                );
                assert!(lent.map(bytes) == before, "the member's bytes are its own");
                // The member has the new parity, and the write fails elsewhere: a second update
                // with the old data restores the old parity.
                regions.span(lent[0]).copy_from(regions.span(p));
                regions.span(lent[1]).copy_from(regions.span(q));
                update(&mut in_place);
                assert!(bytes(p) == before[0], "{cuts:?}, Q: {with_q}");
                assert!(!with_q || bytes(q) == before[1], "{cuts:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "overlaps its input")]
    fn a_result_over_an_input_is_refused() {
        let mut regions = Regions::new().expect("memory");
        regions.add(Arc::new(Region::new(4096).expect("memory")));
        let mut effects = Effects::new();
        effects.sources.push(Source { exponent: 0, slice: slice(0) });
        let job = Compute::Generate { p: Some(slice(0)), q: None, sources: 0..1 };
        compute(&job, &effects, &regions, &mut InPlaceSources::default(), Kernels::best());
    }
}
