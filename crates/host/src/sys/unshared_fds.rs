//! Threads with a file descriptor table of their own, and whether stdout was open at the start.
//!
//! In a table that threads share, each call on a file takes a reference and, if it moves the file
//! position, a lock: a fifth of the cost of writing one byte. A single-threaded process pays
//! neither, so a benchmark that is compared with one needs an unshared table.
//!
//! Invariant: the new table is empty except for 0, 1 and 2 before the thread does anything else
//! (some kernels copy a few more and close them immediately). A copy of the old table would keep
//! all files of the other threads open until the thread is really gone, which is after it is
//! joined: among them exclusive claims (`O_EXCL`), and connections whose peers wait for their end.
//!
//! This file is one of the few places with `unsafe`. Called by `bench`.

use std::io::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use nix::libc;

/// Spawns a thread that shares only the descriptors 0, 1 and 2: other descriptors of the process,
/// open now or later, are not open there. If the kernel does not support that (before 5.9, or
/// forbidden), the table is shared as usual, and calls cost a little more.
///
/// The same numbers mean different files on both sides. So `job` must neither use nor drop an owner
/// of a descriptor from outside, nor pass one of its own to the outside, in its result or
/// otherwise.
///
/// # Errors
/// When the system cannot start a thread.
pub fn spawn_with_own_fd_table<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    thread: Builder,
    job: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    thread.spawn_scoped(scope, move || {
        leave_table();
        job()
    })
}

/// Gives the calling thread an empty descriptor table.
fn leave_table() {
    let (first, last) = (3, libc::c_uint::MAX);
    // SAFETY: with this flag nothing is closed for other threads: the thread gets a copy of the
    // table without the range, and the shared table stays unchanged. If the table were not shared,
    // only this thread's own descriptors would be closed, and it has just begun and has none. After
    // an error nothing has changed.
    unsafe {
        let flag = libc::CLOSE_RANGE_UNSHARE;
        libc::syscall(libc::SYS_close_range, first, last, flag);
    }
}

/// Whether this process was started without a stdout (`>&-`). Rust's runtime opens /dev/null in its
/// place before `main`, and all output would be lost with success.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the system's loader calls the functions in this section once, in the only thread, before
// the runtime begins; the function has the C calling convention, takes no arguments, and only
// queries.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_stdout;

extern "C" fn look_at_stdout() {
    // SAFETY: queries the flags of a descriptor number, which may be any.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::sync::Barrier;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    /// Open descriptors of the calling thread, except the one used to list them.
    fn open_here() -> Vec<String> {
        let entries = std::fs::read_dir("/proc/thread-self/fd").expect("Linux");
        let targets = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let names = targets.map(|path| path.to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with("/proc/")).collect()
    }

    /// Whether this kernel supports an unshared table.
    fn possible() -> bool {
        let place = tempfile::NamedTempFile::new().expect("a file");
        let name = place.path().to_string_lossy().into_owned();
        let seen = std::thread::scope(|scope| {
            spawn_with_own_fd_table(scope, Builder::new(), open_here)
                .expect("a thread")
                .join()
                .expect("ended")
        });
        let apart = !seen.contains(&name);
        if !apart {
            println!(
                "skipped: the kernel has no close_range with CLOSE_RANGE_UNSHARE, or forbids it"
            );
        }
        apart
    }

    #[test]
    fn descriptors_of_other_threads_are_not_open_there_and_stay_open_here() {
        if !possible() {
            return;
        }
        let places: Vec<_> = (0..4).map(|_| tempfile::tempfile().expect("a file")).collect();
        let path = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        std::thread::scope(|scope| {
            let job = || {
                assert!(open_here().len() <= 3, "{:?}", open_here());
                let mut file = File::options().write(true).open(&path).expect("there");
                file.write_all(b"from there").expect("written");
                // Left open: the end of the thread closes it, and only there.
                std::mem::forget(file);
            };
            spawn_with_own_fd_table(scope, Builder::new(), job)
                .expect("a thread")
                .join()
                .expect("ended");
        });
        assert!(!open_here().contains(&path.to_string_lossy().into_owned()));
        for (number, mut file) in (0u8..).zip(places) {
            file.write_all(&[number; 9]).expect("still ours");
            file.seek(SeekFrom::Start(0)).expect("still ours");
            let mut back = Vec::new();
            file.read_to_end(&mut back).expect("still ours");
            assert_eq!(back, [number; 9]);
        }
        assert_eq!(std::fs::read(&path).expect("there"), b"from there");
    }

    /// A copy of the table would hold the claim until the thread is gone.
    #[test]
    fn a_claim_released_by_another_thread_is_free_immediately() {
        if !possible() {
            return;
        }
        let place = tempfile::NamedTempFile::new().expect("a file");
        let claim = || {
            let file = File::open(place.path()).expect("there");
            flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| file)
        };
        let held = claim().expect("free");
        claim().expect_err("held");
        let (begun, over) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let job = || {
                begun.wait();
                over.wait();
            };
            let thread = spawn_with_own_fd_table(scope, Builder::new(), job).expect("a thread");
            begun.wait();
            drop(held);
            let again = claim().map(drop);
            over.wait();
            again.expect("no other thread holds it");
            thread.join().expect("ended");
            claim().expect("and none holds it now");
        });
    }
}
