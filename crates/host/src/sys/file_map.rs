//! A memory-mapped file, for benchmarks and for reading through `mmap`.
//!
//! Invariant: the bytes of a map are copied in and out, and no reference to them is ever returned:
//! the kernel may change the memory of a mapped file, which Rust's references forbid.
//!
//! Accesses to a mapped file raise SIGBUS if the file was truncated, a block cannot be read, or a
//! hole is written on a full file system; as with every map, no call can return the error. So the
//! file must be used by this process only, have its full length before it is mapped, and be on a
//! file system with room for it.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// A shared map of a file; see the module documentation.
#[derive(Debug)]
pub struct FileMap {
    start: *mut u8,
    len: usize,
    writable: bool,
}

// SAFETY: the map belongs to the process, not to a thread, and only this value has its address. It
// is not `Sync`: one thread at a time uses it.
unsafe impl Send for FileMap {}

impl FileMap {
    /// Maps a whole file with MAP_SHARED. The file may be closed afterwards.
    ///
    /// # Errors
    /// When the file is empty, was not opened with this access, or there is no address space.
    pub fn new(file: &File, writable: bool) -> Result<FileMap> {
        let len = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        if len == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "an empty file cannot be mapped"));
        }
        FileMap::of(file, 0, len, writable)
    }

    /// Maps bytes of a device with MAP_SHARED, to be read: a table that the kernel keeps. It has no
    /// length of its own.
    ///
    /// # Errors
    /// When the device refuses the range, or there is no address space.
    pub fn of_device(file: &File, offset: u64, len: usize) -> Result<FileMap> {
        FileMap::of(file, offset, len, false)
    }

    fn of(file: &File, offset: u64, len: usize, writable: bool) -> Result<FileMap> {
        let access = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        // SAFETY: the kernel chooses an address that overlaps nothing, and no reference will ever
        // point there.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, offset)
        }?;
        Ok(FileMap { start: start.cast(), len, writable })
    }

    /// Copies bytes from the map, from byte `at` on.
    ///
    /// # Errors
    /// When the range is not inside the map; nothing is copied then.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let start = self.inside(at, bytes.len())?;
        // SAFETY: the range is inside the map, checked just now, and the map is readable. `bytes`
        // is borrowed exclusively, and no reference points into a map, so they do not overlap. By
        // this address nothing writes at the same time: that needs `&mut self`. Another process,
        // the kernel or another map of the file may, by addresses of theirs; then what is copied is
        // old, new or a mixture, and every value of a byte is one of `u8`.
        unsafe { std::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), bytes.len()) }
        Ok(())
    }

    /// Copies bytes into the map, from byte `at` on. After a crash the file has any subset of the
    /// changed pages unless [`FileMap::sync`] has returned.
    ///
    /// # Errors
    /// When the range is not inside the map, or the map is read-only; nothing is copied then.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(Error::new(ErrorKind::PermissionDenied, "it is mapped to be read"));
        }
        let start = self.inside(at, bytes.len())?;
        // SAFETY: the range is inside the map, which was made to be written. `bytes` is no part of
        // it, as in `read`, and `&mut self` excludes every other use of this address.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) }
        Ok(())
    }

    /// Waits until all changes are in the file's storage. The file's length and timestamps need
    /// `fsync`.
    ///
    /// # Errors
    /// When a page could not be written.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is the map's own, and writing its pages back changes no memory.
        unsafe { rustix::mm::msync(self.start.cast(), self.len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    /// The address of byte `at`, if `len` bytes from there on are in the map.
    fn inside(&self, at: u64, len: usize) -> Result<*mut u8> {
        let from = usize::try_from(at).ok();
        let end = from.and_then(|from| from.checked_add(len));
        match (from, end) {
            // SAFETY: at most `self.len`, so inside the one allocation of the map or just behind
            // it; a map is never longer than `isize::MAX`.
            (Some(from), Some(end)) if end <= self.len => Ok(unsafe { self.start.add(from) }),
            _ => {
                let problem = format!("{len} bytes at {at} are outside a map of {}", self.len);
                Err(Error::new(ErrorKind::InvalidInput, problem))
            }
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: `of` mapped this address with this length, nothing else unmaps it, and no pointer
        // to it outlives a call of this type.
        let unmapped = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(bytes).expect("its length");
        file
    }

    #[test]
    fn writes_to_the_map_are_in_the_file_and_vice_versa() {
        let file = file(10_000);
        let mut map = FileMap::new(&file, true).expect("a map");
        map.write(4090, b"across a page").expect("inside");
        map.sync().expect("synced");
        let mut back = [0; 13];
        file.read_exact_at(&mut back, 4090).expect("there");
        assert_eq!(&back, b"across a page");
        file.write_all_at(b"end", 9997).expect("written");
        let mut end = [0; 3];
        map.read(9997, &mut end).expect("inside");
        assert_eq!(&end, b"end");
        // Nothing was only in the map.
        drop(map);
        file.read_exact_at(&mut back, 4090).expect("there");
        assert_eq!(&back, b"across a page");
        assert_eq!(file.metadata().expect("there").len(), 10_000);
    }

    #[test]
    fn ranges_outside_are_an_error_and_copy_nothing() {
        let file = file(8192);
        let mut map = FileMap::new(&file, true).expect("a map");
        let mut bytes = [7; 2];
        for at in [8191, 8192, 8193, u64::MAX, u64::MAX - 1] {
            let error = map.read(at, &mut bytes).expect_err("outside");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{at}: {error}");
            assert_eq!(map.write(at, &bytes).expect_err("outside").kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(bytes, [7; 2]);
        let error = map.write(8191, &bytes).expect_err("outside").to_string();
        assert_eq!(error, "2 bytes at 8191 are outside a map of 8192");
        map.read(8190, &mut bytes).expect("the last two");
        assert_eq!(bytes, [0; 2]);
        // Nothing at the end is nothing; the end of the last page is not the file's.
        map.read(8192, &mut []).expect("nothing");
        let small = FileMap::new(&self::file(100), false).expect("a map");
        assert!(small.read(99, &mut bytes).is_err());
    }

    #[test]
    fn a_map_to_read_is_not_written_and_a_file_to_read_not_mapped_to_be_written() {
        let place = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(place.path(), [5; 4096]).expect("written");
        let read_only = File::open(place.path()).expect("there");
        let mut map = FileMap::new(&read_only, false).expect("a map");
        assert_eq!(map.write(0, &[1]).expect_err("to read").kind(), ErrorKind::PermissionDenied);
        let mut byte = [0];
        map.read(0, &mut byte).expect("inside");
        assert_eq!(byte, [5]);
        map.sync().expect("nothing to sync");
        let refused = FileMap::new(&read_only, true).expect_err("opened to read");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn an_empty_file_cannot_be_mapped() {
        let error = FileMap::new(&file(0), true).expect_err("empty");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
