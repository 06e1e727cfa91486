//! What computations use where members have it (`Effect::Read`, `in_place_ok`), in its strictest
//! form: the bytes never arrive, and each computation gets what the members hold while it runs, but
//! only of what its own operation has read.
//!
//! Invariant: wherever a read in place is noted, the stripe memory holds [`POISON`] except during a
//! computation. So an engine that uses such bytes for anything else, or changes them too early, is
//! detected when the data are checked.

use engine::BufSlice;

use crate::member::SECTOR;
use crate::operation::{Operation, overlap};

/// What stands for bytes that have stayed in place.
pub(crate) const POISON: u8 = 0xad;

/// In [`InPlace::member`]: one of the former devices.
pub(crate) const FORMER: usize = 1 << 16;

/// Part of the stripe memory that stands for bytes of a member, from byte `from` of its data on.
struct InPlace {
    owner: u64,
    slice: BufSlice,
    member: usize,
    from: u64,
}

/// All reads in place.
#[derive(Default)]
pub(crate) struct InPlaceReads(Vec<InPlace>);

impl InPlaceReads {
    /// Records a read in place.
    pub fn note(&mut self, operation: &Operation, member: usize, sector: u64) {
        let owner = operation.owner();
        let mut from = sector * SECTOR as u64;
        for slice in &operation.writes {
            self.0.push(InPlace { owner, slice: *slice, member, from });
            from += u64::from(slice.len);
        }
    }

    /// The device at this place is taken out, and is that one of the former devices: its memory
    /// stays. Returns whether something has been read there in place.
    pub fn take_out(&mut self, place: usize, former: usize) -> bool {
        let mut of_it = self.0.iter_mut().filter(|lent| lent.member == place).peekable();
        let any = of_it.peek().is_some();
        of_it.for_each(|lent| lent.member = FORMER + former);
        any
    }

    /// Something else is stored in this slice.
    pub fn forget(&mut self, slice: &BufSlice) {
        if self.0.is_empty() {
            return;
        }
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

    /// The parts of a slice that the operation has read in place: where they stand, and whose bytes
    /// they stand for.
    pub fn within(&self, operation: &Operation, slice: &BufSlice) -> Vec<(BufSlice, usize, u64)> {
        let (start, end) = bounds(slice);
        let owner = operation.owner();
        let own = self.0.iter().filter(|lent| lent.owner == owner);
        let meeting = own.filter(|lent| overlap(&lent.slice, slice));
        let parts = meeting.map(|lent| {
            let (first, last) = bounds(&lent.slice);
            lent.part(first.max(start), last.min(end))
        });
        parts.map(|part| (part.slice, part.member, part.from)).collect()
    }
}

impl InPlace {
    fn part(&self, start: u64, end: u64) -> InPlace {
        let len = (end - start) as u32;
        let from = self.from + (start - self.slice.offset);
        InPlace { slice: BufSlice { len, offset: start, ..self.slice }, from, ..*self }
    }
}

fn bounds(slice: &BufSlice) -> (u64, u64) {
    (slice.offset, slice.offset + u64::from(slice.len))
}
