//! A FUSE session: the mount and the threads that take requests from the kernel.
//!
//! Called from `front` and `file_mount`.

use std::ffi::CString;
use std::io;
use std::path::Path;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::files::{Files, MAX_TRANSFER};
use crate::store::Limits;

/// Mounts at `path`, a directory or a file, and starts the threads.
///
/// # Errors
/// When the kernel, or fusermount3, refuses the mount.
pub fn start(
    files: Files,
    path: &Path,
    limits: &Limits,
    threads: usize,
) -> io::Result<BackgroundSession> {
    Session::new(files, path, &config(limits, threads)).and_then(Session::spawn)
}

/// Mounts over a file by the system call, which takes any file, also one that cannot be opened.
/// Returns the connection for [`serve`]; the end of the session does not unmount it.
///
/// # Errors
/// When the kernel refuses it: [`Errno::PERM`] if only fusermount3 may.
pub fn mount(path: &Path, limits: &Limits) -> rustix::io::Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let options = format!(
        "fd={},rootmode=100000,user_id={},group_id={},max_read={}",
        device.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw(),
        longest(limits),
    );
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let mut flags =
        MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME | MountFlags::NOEXEC;
    flags.set(MountFlags::RDONLY, limits.read_only);
    rustix::mount::mount("raidlab", path, "fuse", flags, options.as_c_str())?;
    Ok(device)
}

/// Starts the threads of what [`mount`] has mounted.
///
/// # Errors
/// When the kernel's greeting is not understood, or the system has no threads.
pub fn serve(
    files: Files,
    device: OwnedFd,
    limits: &Limits,
    threads: usize,
) -> io::Result<BackgroundSession> {
    let config = config(limits, threads);
    Session::from_fd(files, device, SessionACL::Owner, config).and_then(Session::spawn)
}

/// Bytes of the longest request.
fn longest(limits: &Limits) -> usize {
    limits.request_bytes.min(MAX_TRANSFER)
}

fn config(limits: &Limits, threads: usize) -> Config {
    let mut config = Config::default();
    let longest = longest(limits);
    config.mount_options = vec![
        MountOption::FSName("raidlab".into()),
        MountOption::Subtype("raidlab".into()),
        MountOption::NoAtime,
        MountOption::NoExec,
        MountOption::CUSTOM(format!("max_read={longest}")),
    ];
    if limits.read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.n_threads = Some(threads.max(1));
    config.clone_fd = threads > 1;
    config
}
