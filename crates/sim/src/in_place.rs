//! What computations use where members have it (`Effect::Read`, `loan`), in its strictest form: the
//! bytes never arrive, and each computation gets what the members hold while it runs, but only of
//! what its own operation has borrowed.
//!
//! Invariant: wherever a loan is noted, the scratch holds [`POISON`] except during a computation.
//! So an engine that uses lent bytes for anything else, or changes them too early, is detected when
//! the data are checked.

use engine::BufSlice;

use super::job::{Job, overlap};
use super::member::SECTOR;

pub const POISON: u8 = 0xad;

/// Part of the scratch that stands for bytes of a member, from byte `from` on.
struct Lent {
    operation: u64,
    slice: BufSlice,
    member: usize,
    from: u64,
}

#[derive(Default)]
pub struct Loans(Vec<Lent>);

impl Loans {
    /// Records a loan; returns the contents that replace the bytes.
    pub fn note(&mut self, job: &Job, member: usize, slices: &[BufSlice], sector: u64) -> Vec<u8> {
        let operation = job.operation();
        let (start, mut from) = (sector * SECTOR as u64, sector * SECTOR as u64);
        for slice in slices {
            self.0.push(Lent { operation, slice: *slice, member, from });
            from += u64::from(slice.len);
        }
        vec![POISON; (from - start) as usize]
    }

    /// Something else is stored in this slice.
    pub fn forget(&mut self, slice: &BufSlice) {
        let mut rest = Vec::new();
        self.0.retain(|lent| {
            let meets = overlap(&lent.slice, slice);
            if meets {
                let (start, end) = bounds(&lent.slice);
                let (cut, cut_end) = bounds(slice);
                for (start, end) in [(start, cut), (cut_end, end)] {
                    rest.extend((start < end).then(|| lent.part(start, end)));
                }
            }
            !meets
        });
        self.0.extend(rest);
    }

    /// The parts of a slice that the job's operation has borrowed: where they stand, and whose
    /// bytes they stand for.
    pub fn within(&self, job: &Job, slice: &BufSlice) -> Vec<(BufSlice, usize, u64)> {
        let (start, end) = bounds(slice);
        let own = self.0.iter().filter(|lent| lent.operation == job.operation());
        let meeting = own.filter(|lent| overlap(&lent.slice, slice));
        let parts = meeting.map(|lent| {
            let (first, last) = bounds(&lent.slice);
            lent.part(first.max(start), last.min(end))
        });
        parts.map(|part| (part.slice, part.member, part.from)).collect()
    }
}

impl Lent {
    fn part(&self, start: u64, end: u64) -> Lent {
        let len = (end - start) as u32;
        let from = self.from + (start - self.slice.offset);
        Lent { slice: BufSlice { len, offset: start, ..self.slice }, from, ..*self }
    }
}

fn bounds(slice: &BufSlice) -> (u64, u64) {
    (slice.offset, slice.offset + u64::from(slice.len))
}
