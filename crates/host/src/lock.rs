//! Locks on the storage that a device is, under whatever name it is opened.
//!
//! ```text
//! /dev/loop0p1 --part of--> /dev/loop0 --loop--> disk.img      opened for writing:
//!    exclusive                shared             exclusive     which lock each of them has
//! /dev/mapper/x --on--> /dev/loop0 --loop--> disk.img
//!    exclusive            shared             shared
//! ```
//! What is opened has its byte range locked, and so has every layer below it: the file of a loop
//! device, the disk of a partition, what a device-mapper device lies on. Locks for reading are
//! shared on all layers. The disk of a partition is opened for reading only, as its table would be
//! read again when it is closed after writing: it has a shared lock, which the lock of the whole
//! disk excludes. Where on a layer the bytes lie is not known of device-mapper and md devices:
//! their layers have shared locks as a whole, so two volumes on one disk do not exclude each other.
//!
//! Invariant: a lock lasts as long as a clone of [`Locks`] and the file that was opened. Nothing is
//! written. A layer without a name here (a deleted file, one of another container) has no lock. To
//! write, it waits for locks of killed processes, as long as the kernel may take to release them.
//! Called by [`crate::Device`].

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;

use crate::access::Access;
use crate::holder::{Holder, is_held};
use crate::identity::{Identity, in_use};
use crate::open_file::open_file;
use crate::problem::DeviceProblem;

/// Locks on what is below an open device, held until the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    _below: Arc<[File]>,
}

/// A file that is open and locked.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    _locks: Locks,
}

impl LockedFile {
    pub(crate) fn new(file: File, locks: Locks) -> LockedFile {
        LockedFile { file, _locks: locks }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// A forked child holds our locks until it calls exec: a file that we have just closed may be
/// locked for that long.
const BRIEF: Duration = Duration::from_millis(100);
/// How long the kernel may take to end a killed process's operations and to close its files.
const TEARDOWN: Duration = Duration::from_secs(10);
/// A wait that takes longer is reported.
const SILENT: Duration = Duration::from_secs(1);
/// Pauses between two attempts, and between two looks for the process that holds a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const HOLDER_PAUSE: Duration = Duration::from_millis(200);

/// How long a claim on a device may last before it is an error.
const CLAIM_PATIENCE: Duration = Duration::from_millis(500);

static REPORT: OnceLock<fn(&Path)> = OnceLock::new();

/// Sets what is called when opening a device takes longer than a second, because a process that
/// was killed still has it locked.
pub fn report_waits(report: fn(&Path)) {
    // The first one stays.
    let _ = REPORT.set(report);
}

/// Locks the bytes of an open file or device for an access, and those of all layers below it.
pub(crate) fn lock_storage(
    path: &Path,
    file: &File,
    identity: Identity,
    bytes: &Range<u64>,
    access: Access,
) -> Result<Locks, DeviceProblem> {
    lock(path, file, bytes, access)?;
    let mut below = Vec::new();
    for layer in identity.layers(bytes.clone()) {
        let its = if layer.is_shared { Access::ReadOnly } else { access };
        if its == Access::ReadWrite
            && layer.identity.is_block_device()
            && let Some(how) = in_use(&layer.path)
        {
            return Err(DeviceProblem::InUse {
                how: format!("of {}, which is below it: {how}", layer.path.display()),
            });
        }
        let file = match open_file(&layer.path, its, false, false) {
            Ok((file, _)) => file,
            // It has no name here, or its bytes are only read.
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(_) if its == Access::ReadOnly => continue,
            Err(errno) => return Err(below_it("lock what is below it", &layer.path, errno.into())),
        };
        let is_it = file.metadata().is_ok_and(|found| Identity::of(&found) == layer.identity);
        if !is_it {
            continue;
        }
        match try_lock(&layer.path, &file, &layer.bytes, its, access) {
            Ok(()) => below.push(file),
            Err(Problem::Conflict) => {
                let holder = Holder::of(&file, its).map(Box::new);
                return Err(DeviceProblem::Locked {
                    access,
                    below: Some(layer.path.into()),
                    holder,
                });
            }
            Err(Problem::System(_)) if its == Access::ReadOnly => {}
            Err(Problem::System(error)) => {
                return Err(below_it("lock what is below it", &layer.path, error));
            }
        }
    }
    Ok(Locks { _below: below.into() })
}

fn below_it(doing: &'static str, path: &Path, source: io::Error) -> DeviceProblem {
    let text = format!("{}: {}", path.display(), crate::sys::reason(&source));
    DeviceProblem::System { doing, source: io::Error::new(source.kind(), text) }
}

/// Locks the bytes as long as the file is open: exclusive for writing, shared for reading.
pub(crate) fn lock(
    path: &Path,
    file: &File,
    bytes: &Range<u64>,
    access: Access,
) -> Result<(), DeviceProblem> {
    match try_lock(path, file, bytes, access, access) {
        Ok(()) => Ok(()),
        Err(Problem::Conflict) => Err(DeviceProblem::Locked {
            access,
            below: None,
            holder: Holder::of(file, access).map(Box::new),
        }),
        // Reading without a lock (a read-only network share) is harmless.
        Err(Problem::System(_)) if access == Access::ReadOnly => Ok(()),
        Err(Problem::System(source)) => Err(DeviceProblem::System { doing: "lock it", source }),
    }
}

/// Waits until a block device that cannot be opened is no longer locked by a process that was
/// killed. Returns whether it had to wait.
fn wait_for_teardown(path: &Path) -> bool {
    let Ok((file, _)) = open_file(path, Access::ReadOnly, false, true) else { return false };
    let all = 0..i64::MAX as u64;
    let is_locked = matches!(set(&file, &all, Access::ReadOnly), Err(Problem::Conflict));
    is_locked && try_lock(path, &file, &all, Access::ReadOnly, Access::ReadWrite).is_ok()
}

/// Opens a file or device, with retries. A device that was just closed may stay claimed for a
/// moment: udev probes it, a forked child has a copy of the descriptor until it calls exec, and the
/// kernel ends the operations of a process that was killed. So only a lasting claim is an error.
pub(crate) fn open_patiently(
    path: &Path,
    access: Access,
    direct: bool,
    is_block_device: bool,
) -> Result<(File, bool), Errno> {
    let tries = CLAIM_PATIENCE.as_millis() / LOCK_PAUSE.as_millis();
    loop {
        for _ in 0..tries {
            match open_file(path, access, direct, is_block_device) {
                Err(Errno::BUSY) => std::thread::sleep(LOCK_PAUSE),
                opened => return opened,
            }
        }
        if !wait_for_teardown(path) {
            return open_file(path, access, direct, is_block_device);
        }
    }
}

enum Problem {
    Conflict,
    System(io::Error),
}

/// Locks the bytes. To write them (`purpose`), it waits up to [`TEARDOWN`] for the locks of
/// processes that were killed.
fn try_lock(
    path: &Path,
    file: &File,
    bytes: &Range<u64>,
    access: Access,
    purpose: Access,
) -> Result<(), Problem> {
    let began = Instant::now();
    let (mut look_at, mut is_reported) = (BRIEF, false);
    loop {
        let result = set(file, bytes, access);
        if !matches!(result, Err(Problem::Conflict)) {
            return result;
        }
        let waited = began.elapsed();
        if waited >= look_at {
            if purpose == Access::ReadOnly || waited >= TEARDOWN || is_held(file, access) {
                return result;
            }
            look_at = waited + HOLDER_PAUSE;
        }
        if waited >= SILENT && !is_reported {
            is_reported = true;
            if let Some(report) = REPORT.get() {
                report(path);
            }
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

fn set(file: &File, bytes: &Range<u64>, access: Access) -> Result<(), Problem> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    let (start, end) = (bytes.start.min(LAST), bytes.end.min(LAST));
    // The length 0 is up to the end of all files.
    if start >= end {
        return Ok(());
    }
    let request = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: (end - start) as libc::off_t,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&request)) {
        Ok(_) => Ok(()),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Err(Problem::Conflict),
        Err(errno) => Err(Problem::System(io::Error::from_raw_os_error(errno as i32))),
    }
}

const LAST: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let open = || {
            let mut how = File::options();
            how.read(true).write(true).create(true).truncate(false).open(&path).expect("a file")
        };
        let (first, second) = (open(), open());
        assert!(!is_held(&second, Access::ReadWrite), "no lock");
        lock(&path, &first, &(0..512), Access::ReadWrite).expect("free");
        assert!(is_held(&second, Access::ReadWrite));
        let began = Instant::now();
        lock(&path, &second, &(0..512), Access::ReadWrite).expect_err("this process has it");
        assert!(began.elapsed() < TEARDOWN / 2, "it was not waited for");
        lock(&path, &second, &(512..1024), Access::ReadWrite).expect("another range");
    }
}
