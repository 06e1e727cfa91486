//! Properties of an open file that members lie in: its identity, size and unit of O_DIRECT.
//!
//! Called by [`crate::Device`], and by `array` for members in plain files.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::Identity;

/// The file that a member keeps its data in.
#[derive(Clone, Debug)]
pub struct FileId {
    /// Path as it was opened.
    pub path: PathBuf,
    /// The device, which may be a part of the file, as it was named.
    pub name: String,
    /// The same for two paths that lead to one file.
    pub identity: Identity,
    /// Byte range of the file that the member owns.
    pub bytes: Range<u64>,
}

/// Whether a file or device ends before byte `end`; `false` if its size cannot be read.
pub fn is_shorter(file: &File, is_block_device: bool, end: u64) -> bool {
    let bytes = match is_block_device {
        // A removed device has the capacity 0.
        true => rustix::fs::seek(file, SeekFrom::End(0)).ok(),
        false => rustix::fs::fstat(file).ok().and_then(|stat| u64::try_from(stat.st_size).ok()),
    };
    bytes.is_some_and(|bytes| bytes < end)
}

/// Where the hole at byte `at` of a file ends, at most at `end`; `at` if there is no hole, or holes
/// cannot be detected. A file that ends before `end` has none: what is behind its end is lost.
pub fn hole_end(file: &File, at: u64, end: u64) -> u64 {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.clamp(at, end.max(at)),
        // There is only a hole up to the end.
        Err(Errno::NXIO) => end.max(at),
        Err(_) => return at,
    };
    // After that: it may have been cut in between.
    if is_shorter(file, false, end) { at } else { data }
}

/// The smallest unit of O_DIRECT, in bytes: 512 where single sectors can be read.
pub fn direct_block(file: &File) -> u32 {
    let Ok(mut memory) = crate::sys::Mapping::new(4096) else { return 4096 };
    match file.read_at(&mut memory.bytes_mut()[..512], 512) {
        Ok(_) => 512,
        Err(_) => 4096,
    }
}
