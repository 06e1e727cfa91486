//! Anonymous memory maps: page-aligned memory for O_DIRECT and for buffers that the kernel reads
//! and writes.
//!
//! Invariant: the memory stays mapped at one address until the mapping is dropped. Safe code
//! reaches it only through a borrow; a caller that passes addresses on (`array`'s regions) keeps
//! the mapping alive as long as they are used, in unsafe code of its own.
//!
//! This file is one of the few places with `unsafe`.

use std::io::{Error, Result};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// From now on the threads of this process allocate from one heap, and what is large and freed goes
/// back to the system. glibc otherwise reserves 64 MiB of addresses for a thread's own heap, and
/// keeps blocks as large as the largest that was freed: under a limit of address space (`ulimit
/// -v`) both take the room that other threads need.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets parameters of the allocator, which is synchronised by itself, and has it give
    // back what is free; an error changes nothing.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, 128 << 10);
        nix::libc::malloc_trim(0);
    }
}

/// Makes the pages of a range of this process's memory present, as if each had been written: no
/// later access has to wait for memory. What they hold does not change.
///
/// # Errors
/// Where memory is short or a part of the range cannot be written. Before Linux 5.14 it locks the
/// range instead, which may be refused.
pub fn populate(start: *const u8, bytes: usize) -> Result<()> {
    let page = rustix::param::page_size();
    let (first, end) = (start as usize / page * page, start as usize + bytes);
    let (start, len) = (start.with_addr(first).cast_mut().cast(), end - first);
    // SAFETY: the contents do not change, and memory that is not mapped is an error.
    let populated = unsafe { rustix::mm::madvise(start, len, Advice::LinuxPopulateWrite) };
    match populated {
        // SAFETY: as above.
        Err(rustix::io::Errno::INVAL) => Ok(unsafe { rustix::mm::mlock(start, len) }?),
        result => Ok(result?),
    }
}

/// Minimum size for requesting huge pages.
const HUGE_FROM_BYTES: usize = 4 << 20;

/// An anonymous memory map, zeroed and page-aligned.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives an address and a length, and no access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, rounded up to a page; large maps in huge pages where the system has them.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn new(len: u64) -> Result<Mapping> {
        Mapping::with_pages(len, true)
    }

    /// Maps `len` bytes, rounded up to a page. `ask_for_huge`: requests huge pages for large maps;
    /// otherwise the system's default holds.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn with_pages(len: u64, ask_for_huge: bool) -> Result<Mapping> {
        let page = rustix::param::page_size();
        let len = usize::try_from(len).map_err(Error::other)?.max(1).next_multiple_of(page);
        // SAFETY: a new anonymous mapping overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        if ask_for_huge && len >= HUGE_FROM_BYTES {
            // SAFETY: the range was mapped just now. Advice only: an error changes nothing.
            let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
        }
        Ok(Mapping { start: start.cast(), len })
    }

    /// Its size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a mapping has at least one page")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its first byte. Dereferencing it is the caller's unsafe code.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Makes the pages of a range of its bytes present; see [`populate`].
    ///
    /// # Errors
    /// When memory is short.
    pub fn populate(&self, range: std::ops::Range<usize>) -> Result<()> {
        let (from, end) = (range.start.min(self.len), range.end.min(self.len));
        populate(self.start.wrapping_add(from), end.saturating_sub(from))
    }

    /// All of its bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped with this length, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `with_pages` with this length, and not borrowed any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_zeroed_and_page_aligned() {
        let mut mapping = Mapping::new(10_000).expect("memory");
        assert_eq!(mapping.len() % 4096, 0);
        assert_eq!(mapping.as_ptr() as usize % 4096, 0);
        assert!(mapping.bytes_mut().iter().all(|byte| *byte == 0));
        mapping.bytes_mut()[9_999] = 7;
        assert_eq!(mapping.bytes_mut()[9_999], 7);
    }

    /// Pages of a range that are present.
    fn present(start: *const u8, pages: usize) -> usize {
        let map = std::fs::File::open("/proc/self/pagemap").expect("the map of this process");
        let mut entries = vec![0; pages * 8];
        let at = start as usize / rustix::param::page_size() * 8;
        std::os::unix::fs::FileExt::read_exact_at(&map, &mut entries, at as u64).expect("entries");
        entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
    }

    #[test]
    fn only_the_part_that_is_populated_is_present_and_keeps_its_contents() {
        let page = rustix::param::page_size();
        let mut mapping = Mapping::with_pages(8 * page as u64, false).expect("memory");
        mapping.bytes_mut()[0] = 9;
        assert_eq!(present(mapping.as_ptr(), 8), 1);
        mapping.populate(0..5 * page).expect("memory");
        assert_eq!(present(mapping.as_ptr(), 8), 5);
        // Not at the beginning of a page.
        mapping.populate(6 * page + 1..7 * page).expect("memory");
        assert_eq!(present(mapping.as_ptr(), 8), 6);
        assert_eq!(mapping.bytes_mut()[0], 9);
        assert!(populate(std::ptr::null(), page).is_err());
    }
}
