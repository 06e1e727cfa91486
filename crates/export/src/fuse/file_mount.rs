//! Mounts a store over a regular file: the file's path is the block device's contents, for
//! `losetup`, QEMU and any other program.
//!
//! ```text
//!  losetup --direct-io=on /run/array  -->  FUSE  -->  Files -> Store
//! ```
//! Invariant: no thread of this process may use the mount, which its own threads serve. When the
//! process dies for any reason, the kernel aborts the connection: programs that use the file get an
//! error; the next server replaces what is left of the mount.
//!
//! What is below the mount takes no writes, which the mount would hide: a file that was made for it
//! is a socket's place, which no program can open; or, as fusermount3 takes only what it can open,
//! a file without permissions.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use fuser::BackgroundSession;
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

use super::files::{Files, Served};
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
    /// Something was written to the file while it was being mounted over.
    #[error("{0} bytes were written to the file before the array was there: they are in the file")]
    Written(u64),
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
    served: Served,
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
        let (served, below) = (files.served(), File::open(path).ok());
        let (session, below) = match session::mount(path, &limits) {
            Ok(device) => {
                let session = session::serve(files, device, &limits, threads);
                let session = session.inspect_err(|_| {
                    // The error to be shown is that of the session.
                    let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
                });
                (session, below)
            }
            // Not root: fusermount3 may.
            Err(Errno::PERM | Errno::ACCESS) => match open_below(path, made) {
                Ok(below) => (session::start(files, path, &limits, threads), Some(below)),
                Err(error) => (Err(error), None),
            },
            Err(error) => (Err(error.into()), below),
        };
        let session = session.map_err(|error| {
            discard(path, made);
            fail(FileMountProblem::Mount(error))
        })?;
        let (path, session) = (path.to_owned(), Some(session));
        let mount = FileMount { path, session, ended, served, made };
        if let Some(below) = below {
            let metadata = below.metadata().map_err(system("examine what is below the mount"))?;
            if metadata.len() > 0 {
                return Err(fail(FileMountProblem::Written(metadata.len())));
            }
            if made {
                let closed = below.set_permissions(Permissions::from_mode(0o0));
                closed.map_err(system("close what is below the mount"))?;
            }
        }
        tracing::info!(file = %mount.path.display(), read_only = limits.read_only, "array mounted");
        Ok(mount)
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
            // Not root: fusermount3 is allowed to.
            Err(Errno::PERM) => {
                if let Err(source) = fusermount(&self.path, force) {
                    self.session = Some(session);
                    return Err(match source.kind() {
                        io::ErrorKind::ResourceBusy => FileMountProblem::Busy,
                        _ => FileMountProblem::System { doing: "unmount it", source },
                    });
                }
                if force {
                    // The session ends when no program has the file open any more, or with this
                    // process.
                    self.served.close();
                    discard(&self.path, self.made);
                    std::mem::forget(session);
                    return Ok(());
                }
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
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if is_place(&metadata) => Ok(true),
        Ok(metadata) if !metadata.is_file() => Err(FileMountProblem::NotAFile),
        Ok(_) if is_mount_point(path).map_err(system("examine it"))? => {
            Err(FileMountProblem::Mounted)
        }
        Ok(metadata) if metadata.len() > 0 => Err(FileMountProblem::NotEmpty),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::empty(), 0) {
                Ok(()) => {}
                // The file system has no sockets.
                Err(_) => drop(make_file(path).map_err(system("make it"))?),
            }
            Ok(true)
        }
        Err(error) => Err(system("examine it")(error)),
    }
}

/// Whether it was made for a mount, by this user, and has nothing in it.
fn is_place(metadata: &Metadata) -> bool {
    let of_kind = metadata.file_type().is_socket() || metadata.is_file() && metadata.len() == 0;
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    of_kind && own && metadata.mode() & 0o777 == 0
}

fn make_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens what is to be below a mount of fusermount3, which takes only what its user may write.
fn open_below(path: &Path, made: bool) -> io::Result<File> {
    if !made {
        return File::open(path);
    }
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        std::fs::remove_file(path)?;
        return make_file(path);
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    File::open(path)
}

/// Unmounts what a killed server has left. Not root: fusermount3 is allowed to.
fn unmount_left(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Err(Errno::PERM) => fusermount(path, true),
        other => Ok(other?),
    }
}

/// Has fusermount3 unmount a file; `lazy`: also one that is in use.
fn fusermount(path: &Path, lazy: bool) -> io::Result<()> {
    // runs: fusermount3
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
    let ran = command.env("LC_ALL", "C").output();
    let ran = ran.map_err(|error| io::Error::new(error.kind(), format!("fusermount3: {error}")))?;
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    let kind = match said.contains("busy") {
        true => io::ErrorKind::ResourceBusy,
        false => io::ErrorKind::Other,
    };
    if ran.status.success() { Ok(()) } else { Err(io::Error::new(kind, said)) }
}

/// Whether a file is on another file system than its directory: something is mounted over it.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    let parent = path.parent().filter(|parent| *parent != "").unwrap_or(".".as_ref());
    Ok(std::fs::metadata(path)?.dev() != std::fs::metadata(parent)?.dev())
}

/// Removes the file that was made for the mount.
fn discard(path: &Path, made: bool) {
    let is_empty = |it: Metadata| is_place(&it) || it.is_file() && it.len() == 0;
    if made && std::fs::symlink_metadata(path).is_ok_and(is_empty) {
        // What is left is a place that the next server accepts.
        let _ = std::fs::remove_file(path);
    }
}
