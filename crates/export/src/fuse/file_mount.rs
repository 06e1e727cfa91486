//! Mounts a store over a regular file: the file's path is the block device's contents, for
//! `losetup`, QEMU and any other program.
//!
//! ```text
//!  losetup --direct-io=on /run/array  -->  FUSE  -->  Files -> Store
//! ```
//! Invariant: no thread of this process may use the mount, which its own threads serve. When the
//! process dies for any reason, the kernel aborts the connection: programs that use the file get an
//! error; the next server replaces what is left of the mount.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use fuser::BackgroundSession;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

use super::files::Files;
use super::front::END_PATIENCE;
use super::session;
use crate::access::Access;

/// Why a file is not mounted over, or not released.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct FileMountError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub problem: FileMountProblem,
}

/// What is wrong with a file that is to be mounted over.
#[derive(Debug, Error)]
pub enum FileMountProblem {
    /// It is something else.
    #[error("is no regular file")]
    NotAFile,
    /// It holds something that the mount would hide.
    #[error("is a file that is not empty; name an empty one, or one that does not exist")]
    NotEmpty,
    /// Another server's mount, which works.
    #[error("something is mounted there already")]
    Mounted,
    /// A file system on it, or a program, uses it.
    #[error("still in use")]
    Busy,
    /// The kernel, or fusermount3, refuses the mount.
    #[error("cannot mount with FUSE: {0}{hint}", hint = hint(.0))]
    Mount(#[source] io::Error),
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Unmounted, but still in use.
    #[error("unmounted, but the FUSE session has not ended: another mount namespace may hold it")]
    SessionRemains,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (no /dev/fuse, or no fusermount3 and not root)",
        io::ErrorKind::PermissionDenied => " (not root, and no fusermount3)",
        _ => "",
    }
}

/// A store that is mounted as a file. Dropping it unmounts the file even if it is in use.
pub struct FileMount {
    path: PathBuf,
    session: Option<BackgroundSession>,
    ended: Receiver<()>,
    /// The file was made for the mount, and goes with it.
    made: bool,
}

impl FileMount {
    /// Mounts a store over the file at `path`, which is made if it is missing.
    ///
    /// # Errors
    /// See [`FileMountError`].
    pub fn start(
        access: Arc<Access>,
        path: &Path,
        threads: usize,
    ) -> Result<FileMount, FileMountError> {
        let fail = |problem| FileMountError { path: path.to_owned(), problem };
        let system = |doing| move |source| fail(FileMountProblem::System { doing, source });
        let made = prepare(path).map_err(fail)?;
        let limits = *access.limits();
        let files = Files::new(access, None);
        let (files, ended) = files.map_err(|error| {
            discard(path, made);
            system("start a thread")(error)
        })?;
        let session = session::start(files, path, &limits, threads);
        let session = session.map_err(|error| {
            discard(path, made);
            fail(FileMountProblem::Mount(error))
        })?;
        tracing::info!(file = %path.display(), read_only = limits.read_only, "array mounted");
        Ok(FileMount { path: path.to_owned(), session: Some(session), ended, made })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts the file, and waits for requests in flight.
    ///
    /// # Errors
    /// After [`FileMountProblem::Busy`] it serves on.
    pub fn stop(&mut self) -> Result<(), FileMountError> {
        self.end(false).map_err(|problem| FileMountError { path: self.path.clone(), problem })
    }

    fn end(&mut self, force: bool) -> Result<(), FileMountProblem> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let flags = match force {
            true => UnmountFlags::FORCE | UnmountFlags::DETACH,
            false => UnmountFlags::empty(),
        };
        match rustix::mount::unmount(&self.path, flags) {
            // Already unmounted by another process.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(Errno::BUSY) => {
                self.session = Some(session);
                return Err(FileMountProblem::Busy);
            }
            // Not root: fusermount3 is allowed to, and unmounts it even if it is in use.
            Err(Errno::PERM) => {
                let ended = session.umount_and_join();
                discard(&self.path, self.made);
                return ended
                    .map_err(|source| FileMountProblem::System { doing: "unmount it", source });
            }
            Err(error) => {
                self.session = Some(session);
                let source = error.into();
                return Err(FileMountProblem::System { doing: "unmount it", source });
            }
        }
        tracing::info!(file = %self.path.display(), force, "array unmounted");
        match self.ended.recv_timeout(END_PATIENCE) {
            Err(RecvTimeoutError::Disconnected) => {}
            _ => {
                std::mem::forget(session);
                return Err(FileMountProblem::SessionRemains);
            }
        }
        drop(session);
        discard(&self.path, self.made);
        Ok(())
    }
}

impl Drop for FileMount {
    fn drop(&mut self) {
        // The result has no receiver.
        let _ = self.end(true);
    }
}

/// Makes the file, or accepts an empty one. `true`: it was made.
fn prepare(path: &Path) -> Result<bool, FileMountProblem> {
    let system = |doing| move |source| FileMountProblem::System { doing, source };
    // What a killed server has left has no server any more. Its attributes are still cached: only
    // an open reaches the connection.
    let not_connected = Some(Errno::NOTCONN.raw_os_error());
    if File::open(path).is_err_and(|error| error.raw_os_error() == not_connected) {
        unmount_left(path).map_err(system("unmount what a killed server has left"))?;
    }
    let metadata = std::fs::symlink_metadata(path);
    match metadata {
        Ok(metadata) if !metadata.is_file() => Err(FileMountProblem::NotAFile),
        Ok(_) if is_mount_point(path).map_err(system("examine it"))? => {
            Err(FileMountProblem::Mounted)
        }
        Ok(metadata) if metadata.len() > 0 => Err(FileMountProblem::NotEmpty),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made: io::Result<File> =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map(|_| true).map_err(system("make it"))
        }
        Err(error) => Err(system("examine it")(error)),
    }
}

/// Unmounts what a killed server has left. Not root: fusermount3 is allowed to.
fn unmount_left(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    // runs: fusermount3
    let ran = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(path).output();
    let ran = ran.map_err(|error| io::Error::new(error.kind(), format!("fusermount3: {error}")))?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&ran.stderr).trim().to_owned())),
    }
}

/// Whether a file is on another file system than its directory: something is mounted over it.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    let parent = path.parent().filter(|parent| *parent != "").unwrap_or(".".as_ref());
    Ok(std::fs::metadata(path)?.dev() != std::fs::metadata(parent)?.dev())
}

/// Removes the file that was made for the mount.
fn discard(path: &Path, made: bool) {
    let is_empty = std::fs::symlink_metadata(path).is_ok_and(|it| it.is_file() && it.len() == 0);
    if made && is_empty {
        // What is left is an empty file, which the next server accepts.
        let _ = std::fs::remove_file(path);
    }
}
