//! Unix sockets of servers.
//!
//! *Invariant*: a socket has mode 0600 from its first moment; its file is replaced only when no
//! server listens on it, and removed only by the server that made it.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// How long another process may hold the lock on a directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Why a unix socket cannot be made.
#[derive(Debug, Error)]
pub enum SocketError {
    /// A server listens there.
    #[error("{}: a server listens on this socket already", .0.display())]
    Live(PathBuf),
    /// Something else has the name.
    #[error("{}: exists, and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// A file system is in the way, or another process.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Path {
        /// The socket's path.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The file of a unix socket; removed on drop, if it is still the one that was made.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device_inode: (u64, u64),
}

/// Listens on a unix socket, for processes of the same user (and root). The socket does not block.
///
/// # Errors
/// When a server listens there already, or the system refuses.
pub(crate) fn listen(path: &Path) -> Result<(OwnedFd, SocketFile), SocketError> {
    let failed = |doing| {
        move |source: Errno| {
            let source = source.into();
            SocketError::Path { path: path.to_path_buf(), doing, source }
        }
    };
    let _lock = lock_directory(path)?;
    clear(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed("make a socket"))?;
    // The file gets the mode of the socket, and less by the umask: it is never wider.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)
        .map_err(failed("set the socket's mode"))?;
    let address = SocketAddrUnix::new(path).map_err(failed("use it as a socket's path"))?;
    rustix::net::bind(&socket, &address).map_err(failed("make the socket's file"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listen"))?;
    let metadata = std::fs::symlink_metadata(path).map_err(|source| SocketError::Path {
        path: path.to_path_buf(),
        doing: "examine it",
        source,
    })?;
    let device_inode = (metadata.dev(), metadata.ino());
    Ok((socket, SocketFile { path: path.to_path_buf(), device_inode }))
}

impl SocketFile {
    /// Its path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Without the lock, too: what remains is a stale socket, which the next server replaces.
        let _lock = lock_directory(&self.path);
        let metadata = std::fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|it| (it.dev(), it.ino()) == self.device_inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Locks the directory of a socket, so that two servers do not look at a stale socket together and
/// the later one removes what the earlier one made.
fn lock_directory(path: &Path) -> Result<OwnedFd, SocketError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let failed = |source: Errno| SocketError::Path {
        path: path.to_path_buf(),
        doing: "lock its directory",
        source: source.into(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty()).map_err(failed)?;
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::AGAIN) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Removes the socket of a server that is no more.
fn clear(path: &Path) -> Result<(), SocketError> {
    let failed = |doing, source| SocketError::Path { path: path.to_path_buf(), doing, source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("examine it", error)),
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(SocketError::NotASocket(path.to_path_buf())),
    }
    // Without waiting: a live server whose backlog is full would keep the caller for long.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| failed("make a socket", error.into()))?;
    let address = SocketAddrUnix::new(path)
        .map_err(|error| failed("use it as a socket's path", error.into()))?;
    match rustix::net::connect(&probe, &address) {
        Err(Errno::CONNREFUSED) => {
            std::fs::remove_file(path).map_err(|error| failed("remove the stale socket", error))
        }
        Err(Errno::NOENT) => Ok(()),
        // EAGAIN: the backlog is full, so that there is a server.
        Ok(()) | Err(Errno::AGAIN) => Err(SocketError::Live(path.to_path_buf())),
        Err(error) => Err(failed("find out whether a server listens on it", error.into())),
    }
}
