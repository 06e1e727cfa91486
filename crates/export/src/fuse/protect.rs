//! What a process that serves a block device to its own kernel must ask for, so that writing back
//! under memory pressure cannot wait for itself.
//!
//! - *A flusher* (`PR_SET_IO_FLUSHER`, prctl(2)): memory that its threads allocate is never made
//!   free by writing to file systems, which may be on what it serves; and it is not held back for
//!   dirty pages that only it can clean.
//! - *Locked memory* (mlockall(2), pages as they are first used): none of it has to be read back
//!   from a disk that it may serve.
//!
//! Invariant: what was not permitted is said, never passed over. Called from `front`, on the thread
//! that starts all others.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::mount::MountPropagationFlags;

use super::sys;

/// How many hold the lock on memory, which is the whole process's.
static HOLDERS: Mutex<usize> = Mutex::new(0);

/// Memory stays locked as long as one of these lives.
pub struct Protection(());

impl Protection {
    /// Asks for everything; `missing` hears what could not be had, a sentence each.
    pub fn take(missing: &mut Vec<String>) -> Protection {
        let mut note = |what: &str, risk: &str, error: &io::Error| {
            missing.push(format!("{what}: {error}; {risk}"));
        };
        let deadlock = "under memory pressure, writeback could deadlock";
        if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
            note("cannot serve as an I/O flusher (CAP_SYS_RESOURCE)", deadlock, &error.into());
        }
        let mut holders = HOLDERS.lock().expect("the count lock is not poisoned");
        if *holders == 0
            && let Err(error) = lock_memory()
        {
            note("cannot lock memory (CAP_IPC_LOCK, or ulimit -l)", deadlock, &error);
        }
        *holders += 1;
        Protection(())
    }
}

fn lock_memory() -> io::Result<()> {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE;
    match rustix::mm::mlockall(all | MlockAllFlags::ONFAULT) {
        // Kernels before 4.4 know no locking of pages as they come.
        Err(Errno::INVAL) => Ok(rustix::mm::mlockall(all)?),
        result => Ok(result?),
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock().expect("the count lock is not poisoned");
        *holders -= 1;
        if *holders == 0 {
            // Nothing depends on its being unlocked.
            let _ = rustix::mm::munlockall();
        }
    }
}

/// A process that does nothing but share the mounts of the thread that has started it, until the
/// descriptors of that thread are closed.
///
/// When a process with mounts of its own is killed, one of the front's threads could be the last to
/// leave both the mounts and `/dev/fuse`. The kernel would have it unmount first, which writes to
/// the array, and close `/dev/fuse` afterwards, which is what ends the waiting for the array: it
/// would wait for ever. While this process lives, no thread of ours is the last to leave the
/// mounts; and it sees the end of its input not before `/dev/fuse` is being closed.
pub struct MountHolder(Child);

impl MountHolder {
    /// Starts it. To be called on a thread whose descriptors are those that serve the mount.
    pub fn start() -> io::Result<MountHolder> {
        let mut holder = Command::new("cat");
        // Not in our process group: signals to that, Ctrl-C among them, are not meant for it.
        holder.process_group(0).current_dir("/");
        holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        holder.spawn().map(MountHolder)
    }
}

impl Drop for MountHolder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends by itself; not waiting for it would leave a zombie.
        let _ = self.0.wait();
    }
}

/// Gives the calling thread, and threads that it starts from now on, mounts of their own: what they
/// mount is seen by nobody else, and the kernel takes it away when the last of them has ended,
/// however that happens. Mounts that others make are still seen.
///
/// # Errors
/// Without root's rights.
pub fn private_mounts() -> io::Result<()> {
    sys::own_mounts()?;
    let quietly = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", quietly)?)
}
