//! Settings that a process needs when it serves a block device to its own kernel, so that writeback
//! under memory pressure cannot deadlock.
//!
//! - *I/O flusher* (`PR_SET_IO_FLUSHER`, prctl(2)): memory allocations of its threads never trigger
//!   writeback to file systems, which may be on the device that it serves; and its writes are not
//!   throttled for dirty pages that only it can clean.
//! - *Locked memory* (mlockall(2)): no page has to be read back from a disk that it may serve. What
//!   is mapped later is locked as it is first used.
//!
//! Neither makes memory: an allocation of a server still waits when all that could be freed is
//! being written to its device. So memory for data must be present before requests use it
//! (`array::DriverOptions::populate`).
//!
//! Invariant: every missing permission is reported. Called from `front`, on the thread that starts
//! all others.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::sys;

/// Number of holders of the memory lock, which applies to the whole process.
static HOLDERS: Mutex<usize> = Mutex::new(0);

/// Memory stays locked while one of these exists.
pub struct Protection(());

impl Protection {
    /// Requests all protections; failures are appended to `missing`, a sentence each. Memory that
    /// is mapped now is locked as it is first used.
    pub fn take(missing: &mut Vec<String>) -> Protection {
        Protection::with(MlockAllFlags::ONFAULT, 0, missing)
    }

    /// The same for a process that has just started: all that is mapped now is read and locked at
    /// once, the program and its libraries. It will have up to `data` bytes of memory for data.
    pub fn of_process(data: u64, missing: &mut Vec<String>) -> Protection {
        Protection::with(MlockAllFlags::empty(), data, missing)
    }

    /// `current`: how the memory is locked that is mapped now.
    fn with(current: MlockAllFlags, data: u64, missing: &mut Vec<String>) -> Protection {
        let mut note = |what: &str, risk: &str, error: &io::Error| {
            missing.push(format!("{what}: {error}; {risk}"));
        };
        let deadlock = "under memory pressure, writeback could deadlock";
        if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
            note("cannot serve as an I/O flusher (CAP_SYS_RESOURCE)", deadlock, &error.into());
        }
        let mut holders = HOLDERS.lock().expect("the count lock is not poisoned");
        if *holders == 0
            && let Err(error) = lock_memory(current, data)
        {
            note("cannot lock memory (CAP_IPC_LOCK, or ulimit -l)", deadlock, &error);
        }
        *holders += 1;
        Protection(())
    }
}

/// The least limit of locked memory (`ulimit -l`), in bytes, with which a process without
/// CAP_IPC_LOCK locks what it maps later: beyond the limit it could map nothing more. glibc
/// reserves 64 MiB of addresses for each thread; memory for data has room for half a gigabyte.
const LEAST_LIMIT: u64 = 2 << 30;
/// The part of it for data.
const DATA_ADDRESSES: u64 = 512 << 20;

/// Whether what is mapped later can be locked, too. Memory for data needs twice its addresses.
fn may_lock(has_capability: bool, data: u64, limit: Option<u64>) -> bool {
    let least = LEAST_LIMIT + (2 * data).saturating_sub(DATA_ADDRESSES);
    has_capability || limit.is_none_or(|limit| limit >= least)
}

fn lock_memory(current: MlockAllFlags, data: u64) -> io::Result<()> {
    let has_capability = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !may_lock(has_capability, data, getrlimit(Resource::Memlock).current) {
        return Err(Errno::NOMEM.into());
    }
    let (now, future) = (MlockAllFlags::CURRENT, MlockAllFlags::FUTURE);
    let locked = rustix::mm::mlockall(now | current)
        .and_then(|()| rustix::mm::mlockall(future | MlockAllFlags::ONFAULT));
    match locked {
        // Kernels before 4.4 have no `MCL_ONFAULT`.
        Err(Errno::INVAL) => Ok(rustix::mm::mlockall(now | future)?),
        result => Ok(result?),
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock().expect("the count lock is not poisoned");
        *holders -= 1;
        if *holders == 0 {
            // Errors do not matter: unlocking is optional.
            let _ = rustix::mm::munlockall();
        }
    }
}

/// A child process whose only purpose is to share the mount namespace of its parent thread until
/// the descriptors of that thread are closed.
///
/// When a process with its own mount namespace is killed, one of the frontend's threads could be
/// the last to leave both the namespace and `/dev/fuse`. The kernel would have it unmount first,
/// which writes to the array, and close `/dev/fuse` afterwards, which aborts the waiting requests:
/// a deadlock. While the child lives, none of these threads is the last in the namespace; and the
/// child sees the end of its input only when `/dev/fuse` is being closed.
pub struct MountHolder(Child);

impl MountHolder {
    /// Starts it. To be called on the thread whose descriptors serve the mount.
    pub fn start() -> io::Result<MountHolder> {
        let mut holder = Command::new("cat");
        // In its own process group: signals such as Ctrl-C must not reach it.
        holder.process_group(0).current_dir("/");
        holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        holder.spawn().map(MountHolder)
    }
}

impl Drop for MountHolder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends when its input is closed; without `wait` it would stay a zombie.
        let _ = self.0.wait();
    }
}

/// Gives the calling thread, and threads that it starts from now on, a private mount namespace: its
/// mounts are not visible to other processes, and the kernel unmounts them when the last of the
/// threads has ended for any reason. Mounts of other processes are still visible.
///
/// # Errors
/// Without root privileges (CAP_SYS_ADMIN).
pub fn private_mounts() -> io::Result<()> {
    sys::own_mounts()?;
    let quietly = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", quietly)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_of_locked_memory_is_not_used_up() {
        assert!(may_lock(true, 8 << 30, Some(0)));
        assert!(may_lock(false, 8 << 30, None));
        assert!(may_lock(false, 256 << 20, Some(2 << 30)));
        assert!(!may_lock(false, 0, Some(500 << 20)), "a machine of 4 GiB, an eighth of it");
        assert!(!may_lock(false, 1 << 30, Some(3 << 30)), "its addresses are 2 GiB");
    }
}
