//! System calls without a safe wrapper, for the threads that serve a mount.
//!
//! Invariant: they affect only the calling thread, and threads that it starts later.

use std::io;

/// Gives the calling thread its own file descriptor table, with 0, 1 and 2 only. Threads that it
/// starts share it.
///
/// A descriptor that another thread has opened is invalid here, and vice versa: neither may be
/// used, or closed, on the wrong side. `front` ensures that: closures that open what they need come
/// in, and plain values go out.
pub fn own_descriptors() -> io::Result<()> {
    // SAFETY: no memory is touched. No descriptor is used on the wrong side, see above.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks all signals, so that other threads get them. A handler that writes to a pipe of the
/// process would write to an unrelated descriptor here.
pub fn block_signals() -> io::Result<()> {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigfillset` fills the set before it is read; the old mask is not requested.
    let error = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Gives the calling thread, and threads that it starts, a private mount namespace.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: no memory and no descriptors are touched: paths keep their meaning until something is
    // mounted.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
