//! Performs the comparisons of scrubs and resyncs.
//!
//! Invariant: nothing is written. Called from `compute`.

use arrayvec::ArrayVec;
use engine::{BufSlice, Compute, Effects, MAX_MEMBERS, Source, Verdict};
use parity::{Block, Kernels};

use super::in_place::InPlaceSources;
use super::region::Regions;

pub(super) struct Comparison<'r> {
    pub(super) regions: &'r Regions,
    pub(super) in_place: &'r InPlaceSources,
    pub(super) kernels: Kernels,
}

impl<'r> Comparison<'r> {
    pub(super) fn run(&self, job: &Compute, effects: &Effects) -> Verdict {
        match job {
            Compute::Check { p, q, sources } => self.check(*p, *q, effects.sources(sources)),
            Compute::Compare { sources } => self.compare(effects.sources(sources)),
            other => unreachable!("{other:?} compares nothing"),
        }
    }

    /// What P and Q say of the data.
    fn check(&self, p: Option<BufSlice>, q: Option<BufSlice>, sources: &[Source]) -> Verdict {
        let block =
            |source: &Source| Block { exponent: source.exponent, bytes: self.bytes(source.slice) };
        let data: ArrayVec<Block<'_>, MAX_MEMBERS> = sources.iter().map(block).collect();
        let (p, q) = (p.map(|p| self.bytes(p)), q.map(|q| self.bytes(q)));
        let agrees = match (p, q) {
            (Some(p), Some(q)) => {
                return match self.kernels.check(&data, p, q) {
                    parity::Verdict::Agree => Verdict::Agree,
                    parity::Verdict::PDiffers => Verdict::P,
                    parity::Verdict::QDiffers => Verdict::Q,
                    parity::Verdict::Data { index } => Verdict::Data(index as u8),
                    parity::Verdict::Unexplained => Verdict::Unknown,
                };
            }
            (Some(p), None) => {
                let plain: ArrayVec<&[u8], MAX_MEMBERS> =
                    data.iter().map(|block| block.bytes).collect();
                self.kernels.check_p(&plain, p)
            }
            // Rare: P could not be read.
            (None, Some(q)) => {
                let mut sum = vec![0; q.len()];
                self.kernels.q_gen(&mut sum, &data);
                self.kernels.equal(&sum, q)
            }
            (None, None) => true,
        };
        if agrees { Verdict::Agree } else { Verdict::Unknown }
    }

    /// Which copies differ from most others.
    fn compare(&self, sources: &[Source]) -> Verdict {
        let copies: ArrayVec<&[u8], MAX_MEMBERS> =
            sources.iter().map(|source| self.bytes(source.slice)).collect();
        let (first, others) = copies.split_first().expect("there are copies");
        if others.iter().all(|other| self.kernels.equal(first, other)) {
            return Verdict::Agree;
        }
        let alike = |copy: &&&[u8]| copies.iter().filter(|other| other == copy).count();
        let right = copies.iter().find(|copy| 2 * alike(copy) > copies.len());
        // Of more copies the wrong ones could not be named.
        match right.filter(|_| copies.len() <= 64) {
            None => Verdict::Unknown,
            Some(right) => {
                let wrong = (0..copies.len()).filter(|at| copies[*at] != *right);
                Verdict::Copies(wrong.fold(0, |wrong, at| wrong | 1 << at))
            }
        }
    }

    fn bytes(&self, slice: BufSlice) -> &'r [u8] {
        let span = self.regions.span(self.in_place.find(slice));
        // SAFETY: the regions outlive `'r`; the engine issues nothing that writes an input of a
        // computation before the computation is reported done, nor the sectors of a member that are
        // lent for it, and nothing is written here.
        unsafe { span.bytes() }
    }
}
