//! Threads with a table of descriptors of their own, and whether stdout was there at the start.
//!
//! In a table that threads share each call on a file takes a reference and, where it moves the
//! file's position, a lock: a fifth of what writing one byte costs. A process with one thread pays
//! for neither, so whoever compares calls with such a process's needs a table that is not shared.
//!
//! Invariant: the new table is empty but for 0, 1 and 2 before the thread does anything else (some
//! kernels copy a few more and close them at once). A copy of the old one would hold all that
//! others have open until the thread is really gone, which is after it is joined: among it
//! exclusive claims, and connections whose end somebody waits for.
//!
//! This file is one of the few addresses of `unsafe`. Called by the laboratory.

use std::io::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use nix::libc;

/// Spawns a thread that shares no descriptor but 0, 1 and 2 with anybody: what others have open
/// when it begins, and later, is not open there. Where the kernel cannot do that (before 5.9, or
/// where it is forbidden), it shares them as all threads do, and calls cost a little more.
///
/// The same numbers mean other files on both sides. So `job` must neither use nor drop what owns a
/// descriptor from outside, nor give away one of its own, in its result or otherwise.
///
/// # Errors
/// When the system has no more threads.
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

/// Gives the calling thread an empty table.
fn leave_table() {
    let (first, last) = (3, libc::c_uint::MAX);
    // SAFETY: with this flag nothing is closed for anybody else: the thread gets a copy of the
    // table without the range, and the table that it shared stays as it is. Were it shared with
    // nobody, only this thread's own descriptors would be closed, and it has just begun and has
    // none. After an error all is as it was.
    unsafe {
        let flag = libc::CLOSE_RANGE_UNSHARE;
        libc::syscall(libc::SYS_close_range, first, last, flag);
    }
}

/// Whether this process was started without a stdout (`>&-`). Rust's runtime puts /dev/null there
/// before `main`, where all output would vanish with success.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the system's loader calls what this section lists once, in the only thread, before the
// runtime begins; the function has the C calling convention, takes nothing, and only asks.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_stdout;

extern "C" fn look_at_stdout() {
    // SAFETY: asks for the flags of a descriptor number, which may be any.
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

    /// What the calling thread has open, but for what lists it.
    fn open_here() -> Vec<String> {
        let entries = std::fs::read_dir("/proc/thread-self/fd").expect("Linux");
        let targets = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let names = targets.map(|path| path.to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with("/proc/")).collect()
    }

    /// Whether this kernel gives a thread a table of its own.
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
    fn what_is_open_elsewhere_is_not_open_there_and_stays_open_here() {
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
                // Left open: the thread's end closes it, and only there.
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
    fn a_claim_that_is_given_up_meanwhile_is_free_at_once() {
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
            again.expect("nobody else had it");
            thread.join().expect("ended");
            claim().expect("nor has anybody now");
        });
    }
}
