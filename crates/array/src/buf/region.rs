//! Page-aligned memory regions, and spans of them.

use std::sync::Arc;

use engine::{BufSlice, MAX_SPAN_SECTORS, REGION_ZERO};
use host::sys::{Mapping, OutSlice};

use super::copy;

/// Page-aligned memory that spans are taken of.
pub struct Region {
    memory: Mapping,
    /// Its first bytes, which are used from the start: the kernel may pin them.
    first: usize,
}

impl Region {
    /// Maps `len` bytes, rounded up to a page.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn new(len: u64) -> std::io::Result<Region> {
        Region::with_pages(len, true)
    }

    /// The same; long ones in huge pages if that is requested, else as the system likes.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn with_pages(len: u64, ask_for_huge: bool) -> std::io::Result<Region> {
        Region::of_parts(len, len, ask_for_huge)
    }

    /// `len` bytes, of which the `first` ones are used from the start. The others are addresses,
    /// which need memory when they are used: later, or seldom.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn of_parts(first: u64, len: u64, ask_for_huge: bool) -> std::io::Result<Region> {
        let memory = Mapping::with_pages(len, ask_for_huge)?;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        Ok(Region { first: first.next_multiple_of(rustix::param::page_size()), memory })
    }

    /// Makes the pages present that are used from the start.
    fn populate(&self) -> std::io::Result<()> {
        self.populate_part(0, self.first)
    }

    /// Makes the pages of a part present.
    ///
    /// # Errors
    /// When memory is short.
    pub(super) fn populate_part(&self, from: usize, bytes: usize) -> std::io::Result<()> {
        self.memory.populate(from..from + bytes)
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// A span of it.
    ///
    /// # Panics
    /// When the span is not inside the region.
    pub(crate) fn span(&self, offset: u64, len: usize) -> Span {
        let offset = usize::try_from(offset).expect("offset fits the address space");
        let size = self.len();
        let inside = offset.checked_add(len).is_some_and(|end| end <= size);
        assert!(inside, "span of {len} bytes at {offset} is outside a region of {size} bytes");
        // SAFETY: inside the mapping, checked above.
        Span { start: unsafe { self.memory.as_ptr().add(offset) }, len }
    }

    /// A span of it, for the kernel to send.
    ///
    /// # Panics
    /// When the span is not inside the region.
    pub(crate) fn out_slice(&self, offset: u64, len: usize) -> OutSlice<'_> {
        let offset = usize::try_from(offset).expect("offset fits the address space");
        OutSlice::of_mapping(&self.memory, offset, len)
    }
}

/// A range of bytes of a region, for the duration of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: *mut u8,
    len: usize,
}

// SAFETY: see `Region`.
unsafe impl Send for Span {}

impl Span {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Start address, for the kernel.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Copies the bytes of `source` here.
    ///
    /// # Panics
    /// When the lengths differ or the spans overlap.
    pub(crate) fn copy_from(self, source: Span) {
        assert!(self.len == source.len && !self.overlaps(source));
        // SAFETY: both are inside live regions, of this length and disjoint; the operation that the
        // copy belongs to owns the destination exclusively.
        unsafe { copy::near(source.start, self.start, self.len) }
    }

    /// Like [`Span::copy_from`] with non-temporal stores: for data that are unlikely to be read
    /// again soon. The driver calls [`super::store_fence`] before it reports completions.
    ///
    /// # Panics
    /// When the lengths differ or the spans overlap.
    pub(crate) fn stream_from(self, source: Span) {
        assert!(self.len == source.len && !self.overlaps(source));
        // SAFETY: as in `copy_from`; the driver calls the store fence.
        unsafe { copy::past(source.start, self.start, self.len) }
    }

    /// Prefetches the bytes.
    pub(crate) fn prefetch(self) {
        copy::prefetch(self.start, self.len);
    }

    /// Copies `source` here.
    ///
    /// # Panics
    /// When the lengths differ.
    pub(crate) fn copy_from_slice(self, source: &[u8]) {
        assert_eq!(self.len, source.len());
        // SAFETY: the span is inside a live region and of this length, and the operation that the
        // copy belongs to owns it exclusively; `source` is borrowed, so it is other memory.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), self.start, self.len) }
    }

    /// Appends the bytes to `out`.
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        // SAFETY: the operation that the copy belongs to owns the span; it is not written during
        // the copy.
        out.extend_from_slice(unsafe { self.bytes() });
    }

    pub(crate) fn fill_zero(self) {
        // SAFETY: inside a live region; the operation owns it exclusively.
        unsafe { std::ptr::write_bytes(self.start, 0, self.len) }
    }

    /// Flips the lowest bit of the byte at `offset`: silent corruption, as by a failing drive.
    pub(crate) fn flip_bit(self, offset: usize) {
        assert!(offset < self.len);
        // SAFETY: inside the span, which the operation owns exclusively.
        unsafe { *self.start.add(offset) ^= 1 }
    }

    /// The part from `offset` on, `len` bytes long.
    pub(crate) fn part(self, offset: usize, len: usize) -> Span {
        assert!(offset + len <= self.len);
        // SAFETY: inside the span, checked above.
        Span { start: unsafe { self.start.add(offset) }, len }
    }

    /// The checksum of partial parity that is about to be logged.
    pub(crate) fn partial_parity_checksum(self) -> u32 {
        // SAFETY: the operation that the log is of owns the span; it is not written until that is
        // complete.
        md::ondisk::ppl::partial_parity_checksum(unsafe { self.bytes() })
    }

    /// Its bytes, for reading.
    ///
    /// # Safety
    /// The bytes are not written while the slice lives, and the region outlives it.
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: inside a live region; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Its bytes, for writing.
    ///
    /// # Safety
    /// The bytes have no other reader or writer while the slice lives, and the region outlives it.
    pub(super) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: inside a live region; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Whether the other span is completely inside this one.
    pub(crate) fn contains(self, other: Span) -> bool {
        let (a, b) = (self.start as usize, other.start as usize);
        a <= b && b + other.len <= a + self.len
    }

    pub(super) fn overlaps(self, other: Span) -> bool {
        let (a, b) = (self.start as usize, other.start as usize);
        a < b + other.len && b < a + self.len
    }
}

/// All regions of one driver, by number, and the region of zeroes.
#[derive(Clone)]
pub struct Regions {
    list: Vec<Arc<Region>>,
    /// Numbers of the regions that are members.
    of_members: Vec<u16>,
    zero: Arc<Region>,
}

impl Regions {
    /// Only the region of zeroes.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn new() -> std::io::Result<Regions> {
        let zero = Arc::new(Region::new(MAX_SPAN_SECTORS * md::SECTOR_BYTES)?);
        Ok(Regions { list: Vec::new(), of_members: Vec::new(), zero })
    }

    /// Number of regions, which is the number of the next one.
    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.list.len()).expect("fewer than 65535 regions")
    }

    /// Adds a region and returns its number.
    pub(crate) fn add(&mut self, region: Arc<Region>) -> u16 {
        let number = self.count();
        assert!(number != REGION_ZERO);
        self.list.push(region);
        number
    }

    /// Adds the memory of a member, which computations may read in place, and returns its number.
    pub(crate) fn add_member(&mut self, region: Arc<Region>) -> u16 {
        let number = self.add(region);
        self.of_members.push(number);
        number
    }

    /// What is used of all regions from the start, except members: no kernel I/O uses these, and
    /// they may have gigabytes.
    pub(crate) fn first(&self) -> impl Iterator<Item = Span> + '_ {
        self.buffers().map(|region| region.span(0, region.first))
    }

    fn buffers(&self) -> impl Iterator<Item = &Region> {
        let numbered = (0u16..).zip(&self.list);
        let buffers = numbered.filter(|(number, _)| !self.of_members.contains(number));
        buffers.map(|(_, region)| region).chain(std::iter::once(&self.zero)).map(Arc::as_ref)
    }

    /// Makes the pages present that are used from the start, except members: no operation has to
    /// wait for memory.
    ///
    /// # Errors
    /// When the system has not as much.
    pub(crate) fn populate(&self) -> std::io::Result<()> {
        self.buffers().try_for_each(Region::populate)
    }

    /// The memory of a slice.
    pub(crate) fn span(&self, slice: BufSlice) -> Span {
        let region = match slice.region {
            REGION_ZERO => &self.zero,
            number => &self.list[usize::from(number)],
        };
        region.span(slice.offset, slice.len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_and_page_aligned() {
        let region = Region::new(10_000).expect("memory");
        assert_eq!(region.len() % 4096, 0);
        let span = region.span(4096, 512);
        assert_eq!(span.as_ptr() as usize % 512, 0);
        let copy = region.span(0, 512);
        span.flip_bit(7);
        copy.copy_from(span);
        // SAFETY: this region has no other user.
        assert_eq!(unsafe { copy.bytes() }[..9], [0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert!(!span.overlaps(copy) && span.overlaps(region.span(4000, 200)));
    }

    #[test]
    fn the_kernel_gets_no_memory_of_members() {
        let mut regions = Regions::new().expect("memory");
        let region = |pages: u64| Arc::new(Region::new(pages * 4096).expect("memory"));
        let numbers =
            (regions.add(region(1)), regions.add_member(region(2)), regions.add(region(3)));
        assert_eq!(numbers, (0, 1, 2));
        let of_parts = Region::of_parts(4000, 2 * 4096, false).expect("memory");
        assert_eq!(of_parts.len(), 2 * 4096);
        regions.add(Arc::new(of_parts));
        let zero = (MAX_SPAN_SECTORS * md::SECTOR_BYTES) as usize;
        let sizes: Vec<usize> = regions.first().map(|span| span.len()).collect();
        assert_eq!(sizes, [4096, 3 * 4096, 4096, zero]);
        assert_eq!(regions.span(BufSlice { region: 1, len: 8192, offset: 0 }).len(), 8192);
    }

    #[test]
    #[should_panic(expected = "outside a region")]
    fn a_span_outside_is_a_bug() {
        let region = Region::new(4096).expect("memory");
        region.span(4000, 4096);
    }
}
