//! A FUSE session: the mount and the threads that take requests from the kernel.
//!
//! Called from `front` and `file_mount`.

use std::io;
use std::path::Path;

use fuser::{BackgroundSession, Config, MountOption, Session};

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
    let mut config = Config::default();
    let longest = limits.request_bytes.min(MAX_TRANSFER);
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
    Session::new(files, path, &config).and_then(Session::spawn)
}
