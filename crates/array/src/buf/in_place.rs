//! Where the contents of stripe memory are while they are lent by a member in memory.
//!
//! ```text
//! stripe memory    | page | page | page | page |
//!                     |             own
//!                     +--> the member's sectors, in a region of its own
//! ```
//! A read that is the input of a computation (`Effect::Read`, `loan`) need not be copied from a
//! member in memory. Invariant: a page is recorded as lent from such a read until something else is
//! stored in it; the engine reads no page that it has not filled before, so pages that it has
//! released may stay recorded. Lent bytes do not change while they are needed: the engine
//! guarantees that. Used by `executor` and by `compute`.

use engine::BufSlice;

const PAGE_BYTES: u64 = 4096;

/// The lent pages of the stripe memory; see the module documentation.
#[derive(Default)]
pub(crate) struct InPlaceSources {
    /// Region number of the stripe memory.
    region: u16,
    /// By page: the lent bytes that replace it and the pages behind it.
    pages: Vec<Option<BufSlice>>,
}

impl InPlaceSources {
    /// For stripe memory of `bytes`, in the region `region`.
    pub(crate) fn of(region: u16, bytes: usize) -> InPlaceSources {
        InPlaceSources { region, pages: vec![None; bytes.div_ceil(PAGE_BYTES as usize)] }
    }

    /// Records that `lent` replaces `slice`, which begins a block of the stripe memory.
    pub(crate) fn note(&mut self, slice: BufSlice, lent: BufSlice) {
        assert!(slice.region == self.region && slice.offset.is_multiple_of(PAGE_BYTES));
        assert!(slice.len == lent.len, "a loan is as long as what it stands for");
        let first = (slice.offset / PAGE_BYTES) as usize;
        let pages = &mut self.pages[first..][..pages_of(slice)];
        for (page, noted) in (0..).zip(pages) {
            let skip = page * PAGE_BYTES;
            let (len, offset) = (lent.len - skip as u32, lent.offset + skip);
            *noted = Some(BufSlice { len, offset, ..lent });
        }
    }

    /// These slices are overwritten: ends their loans.
    pub(crate) fn forget(&mut self, slices: &[BufSlice]) {
        for slice in slices.iter().filter(|slice| slice.region == self.region) {
            let first = (slice.offset / PAGE_BYTES) as usize;
            // The regions of arrays without parity have no pages here.
            if let Some(pages) = self.pages.get_mut(first..first + pages_of(*slice)) {
                pages.fill(None);
            }
        }
    }

    /// The location of a slice's bytes: itself, or lent.
    pub(crate) fn find(&self, slice: BufSlice) -> BufSlice {
        let noted = match slice.region == self.region {
            true => self.pages.get((slice.offset / PAGE_BYTES) as usize).copied().flatten(),
            false => None,
        };
        let Some(lent) = noted else { return slice };
        let skip = slice.offset % PAGE_BYTES;
        assert!(skip + u64::from(slice.len) <= u64::from(lent.len), "more than was lent");
        BufSlice { len: slice.len, offset: lent.offset + skip, ..lent }
    }

    /// Whether a slice covers all loans in the pages that it touches.
    pub(crate) fn ends_with(&self, slice: BufSlice) -> bool {
        let noted = self.pages(slice).map(|(page, _)| u64::from(page.len)).sum();
        slice.offset.is_multiple_of(PAGE_BYTES) && u64::from(slice.len) == noted
    }

    /// The lent pages that a slice touches, and the location of their bytes.
    pub(crate) fn pages(&self, slice: BufSlice) -> impl Iterator<Item = (BufSlice, BufSlice)> {
        let own = slice.region == self.region;
        let first = slice.offset / PAGE_BYTES;
        let touched = if own { pages_of(slice) as u64 } else { 0 };
        (first..first + touched).filter_map(|page| {
            let lent = (*self.pages.get(page as usize)?)?;
            let len = lent.len.min(PAGE_BYTES as u32);
            let page = BufSlice { region: self.region, len, offset: page * PAGE_BYTES };
            Some((page, BufSlice { len, ..lent }))
        })
    }

    /// Whether the bytes of a slice are lent.
    pub(crate) fn is_lent(&self, slice: BufSlice) -> bool {
        self.find(slice) != slice
    }
}

/// Pages that a slice touches.
fn pages_of(slice: BufSlice) -> usize {
    (slice.offset % PAGE_BYTES + u64::from(slice.len)).div_ceil(PAGE_BYTES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = PAGE_BYTES as u32;

    fn slice(region: u16, offset: u64, len: u32) -> BufSlice {
        BufSlice { region, len, offset }
    }

    #[test]
    fn parts_of_a_loan_are_found_until_something_else_is_stored() {
        let mut in_place = InPlaceSources::of(3, 8 * 4096);
        let whole = slice(3, 4096, 2 * PAGE + 512);
        in_place.note(whole, slice(7, 512, whole.len));
        assert_eq!(in_place.find(whole), slice(7, 512, whole.len));
        assert_eq!(in_place.find(slice(3, 8192 + 1024, 3584)), slice(7, 512 + 4096 + 1024, 3584));
        assert_eq!(in_place.find(slice(3, 12288, 512)), slice(7, 512 + 8192, 512));
        assert!(in_place.ends_with(whole) && in_place.ends_with(slice(3, 12288, 512)));
        assert!(
            !in_place.ends_with(slice(3, 4096, 512)) && !in_place.ends_with(slice(3, 4608, 3584))
        );
        let touched: Vec<_> = in_place.pages(slice(3, 8704, 4096)).collect();
        let last = (slice(3, 12288, 512), slice(7, 512 + 8192, 512));
        assert_eq!(touched, [(slice(3, 8192, PAGE), slice(7, 512 + 4096, PAGE)), last]);
        for own in [slice(3, 0, PAGE), slice(3, 16384, PAGE), slice(1, 4096, PAGE)] {
            assert!(in_place.find(own) == own && !in_place.is_lent(own));
        }
        // A page in the middle is overwritten.
        in_place.forget(&[slice(1, 4096, PAGE), slice(3, 8192, 512)]);
        assert!(!in_place.is_lent(slice(3, 8192, 512)));
        assert_eq!(in_place.find(slice(3, 4096, PAGE)), slice(7, 512, PAGE));
        assert_eq!(in_place.find(slice(3, 12288, 512)), slice(7, 512 + 8192, 512));
    }

    #[test]
    #[should_panic(expected = "more than was lent")]
    fn bytes_behind_a_loan_are_not_lent() {
        let mut in_place = InPlaceSources::of(0, 4096);
        in_place.note(slice(0, 0, 512), slice(1, 0, 512));
        in_place.find(slice(0, 0, 1024));
    }

    #[test]
    fn a_flat_array_has_none() {
        let mut in_place = InPlaceSources::default();
        in_place.forget(&[slice(0, 1 << 30, PAGE)]);
        assert!(!in_place.is_lent(slice(0, 0, PAGE)));
    }
}
