//! Descriptors that a service manager has opened for this process (sd_listen_fds(3)).
//!
//! ```text
//! LISTEN_PID=this process  LISTEN_FDS=2  LISTEN_FDNAMES=a:b      descriptors 3 and 4
//! ```
//! Invariant: a descriptor that is handed out was open before `main`, and is handed out once: until
//! then nothing in this process owns it, uses it or closes it.
//!
//! This file is one of the few places with `unsafe`.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::libc;
use rustix::io::FdFlags;

/// The first descriptor that may be passed.
const FIRST: libc::c_int = 3;
/// The most that are taken.
const MOST: usize = 64;

/// A descriptor that was passed.
#[derive(Debug)]
pub struct PassedFd {
    /// Its name, `unknown` if the manager gives none.
    pub name: String,
    /// It; programs that this process starts do not inherit it.
    pub fd: OwnedFd,
}

/// Takes the descriptors that were passed to this process, in their order. There are none where the
/// variables are those of another process, and none in a second call.
///
/// # Errors
/// More than 64 were passed: none is taken.
pub fn take_passed_fds() -> std::io::Result<Vec<PassedFd>> {
    let variable = |name: &str| std::env::var(name).ok();
    let number = |name| variable(name)?.parse::<u32>().ok();
    let is_mine = number("LISTEN_PID") == Some(std::process::id());
    if !is_mine || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").map_or(0, |count| count as usize);
    if count > MOST {
        let why = format!("LISTEN_FDS={count}: at most {MOST} descriptors can be passed");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let open = OPEN_AT_START.load(Ordering::Relaxed);
    let mut passed = Vec::new();
    for number in 0..count {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned();
        if open & 1 << number == 0 {
            continue;
        }
        // SAFETY: the descriptor was open before `main`, so that no owner in this process was given
        // its number by the system, and nothing but this function, once, makes one of it.
        let fd = unsafe { OwnedFd::from_raw_fd(FIRST + number as libc::c_int) };
        // It fails only for a descriptor that is none.
        let _ = rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC);
        passed.push(PassedFd { name, fd });
    }
    Ok(passed)
}

static TAKEN: AtomicBool = AtomicBool::new(false);
/// Bit N: descriptor 3 + N was open before `main`.
static OPEN_AT_START: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's loader calls the functions in this section once, in the only thread, before
// the runtime begins; the function has the C calling convention, takes no arguments, and only
// queries.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_descriptors;

extern "C" fn look_at_descriptors() {
    let mut open = 0;
    for number in 0..MOST {
        // SAFETY: queries the flags of a descriptor number, which may be any.
        let flags = unsafe { libc::fcntl(FIRST + number as libc::c_int, libc::F_GETFD) };
        open |= u64::from(flags >= 0) << number;
    }
    OPEN_AT_START.store(open, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_manager_nothing_is_passed() {
        // The tests of the program pass some.
        assert!(take_passed_fds().is_ok_and(|passed| passed.is_empty()));
    }
}
