//! Locks on byte ranges of open files, so that no two processes write to one member.
//!
//! Invariant: a lock lasts as long as the open file. Called by [`crate::Device`] and by overlays.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::access::Access;
use crate::holder::Holder;
use crate::problem::DeviceProblem;

/// A forked child holds our locks until it calls exec: a file that we have just closed may be
/// locked for that long.
const LOCK_TRIES: u32 = 10;
pub const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Locks the bytes as long as the file is open: exclusive for writing, shared for reading.
pub fn lock(file: &File, bytes: &Range<u64>, access: Access) -> Result<(), DeviceProblem> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    let request = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: (bytes.end - bytes.start) as libc::off_t,
        l_pid: 0,
    };
    let mut result = fcntl(file, FcntlArg::F_OFD_SETLK(&request));
    for _ in 0..LOCK_TRIES {
        if !matches!(result, Err(nix::Error::EAGAIN | nix::Error::EACCES)) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        result = fcntl(file, FcntlArg::F_OFD_SETLK(&request));
    }
    match result {
        Ok(_) => Ok(()),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
            Err(DeviceProblem::Locked { access, holder: Holder::of(file, access) })
        }
        // Reading without a lock (a read-only network share) is harmless.
        Err(_) if access == Access::ReadOnly => Ok(()),
        Err(errno) => {
            let source = io::Error::from_raw_os_error(errno as i32);
            Err(DeviceProblem::System { doing: "lock it", source })
        }
    }
}
