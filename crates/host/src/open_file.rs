//! Opens a file or a block device by its path, once.
//!
//! Invariant: for reading it is opened with `O_RDONLY`, a block device for writing with `O_EXCL`.
//! Called by `device`, `lock` and `overlay`.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::access::Access;

/// Opens it. Returns also whether it bypasses the page cache, as `direct` requests.
pub fn open_file(
    path: &Path,
    access: Access,
    direct: bool,
    is_block_device: bool,
) -> Result<(File, bool), Errno> {
    // If the path has become a FIFO by now, opening it must not block.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= match access {
        Access::ReadOnly => OFlags::RDONLY,
        // O_EXCL without O_CREAT: fails on a block device that the kernel has a claim on.
        Access::ReadWrite if is_block_device => OFlags::RDWR | OFlags::EXCL,
        Access::ReadWrite => OFlags::RDWR,
    };
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            // The file system has no O_DIRECT.
            Err(Errno::INVAL) => {}
            opened => return opened.map(|fd| (File::from(fd), true)),
        }
    }
    rustix::fs::open(path, flags, Mode::empty()).map(|fd| (File::from(fd), false))
}
