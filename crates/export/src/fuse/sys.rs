//! Two system calls that no safe wrapper has, for the threads that serve a mount.
//!
//! Invariant: both change the calling thread, and threads that it starts later; nobody else.

use std::io;

/// Gives the calling thread a table of file descriptors of its own, with 0, 1 and 2 only. Threads
/// that it starts share it.
///
/// A descriptor that another thread has opened means nothing here, and the other way round: neither
/// may be used, or closed, on the wrong side. `front` sees to that: what comes in are closures that
/// open what they need, what goes out are plain values.
pub fn own_descriptors() -> io::Result<()> {
    // SAFETY: no memory is touched. That no descriptor is used on the wrong side is said above.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets other threads have all signals. A handler that wrote to a pipe of the process would write
/// into whatever has that number here.
pub fn block_signals() -> io::Result<()> {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigfillset` fills the set before it is read; the old mask is not asked for.
    let error = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Gives the calling thread, and threads that it starts, mounts of their own.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: no memory and no descriptors are touched: paths mean the same as before until
    // somebody mounts something.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
