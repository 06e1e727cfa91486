//! Sockets on which a server waits for clients.
//!
//! *Invariant*: a unix socket has mode 0600 from its first moment; its file is replaced only when
//! no server listens on it, and removed only by the server that made it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// How long another process may hold the lock on a directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Why a socket cannot be listened on.
#[derive(Debug, Error)]
pub enum ListenError {
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
    /// The address cannot be used.
    #[error("{address}: cannot listen: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Other hosts could reach it, unencrypted.
    #[error(
        "{0}: other hosts reach this address, and nothing would be encrypted or ask for a password"
    )]
    Exposed(SocketAddr),
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unix { _file: Option<SocketFile> },
    Tcp(SocketAddr),
}

/// The file of a unix socket; removed on drop, if it is still the one that was made.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device_inode: (u64, u64),
}

impl Listener {
    /// Listens on a unix socket, for processes of the same user (and root).
    ///
    /// # Errors
    /// When a server listens there already, or the system refuses.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let failed = |doing| {
            move |source: Errno| {
                let source = source.into();
                ListenError::Path { path: path.to_path_buf(), doing, source }
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
        let metadata = std::fs::symlink_metadata(path).map_err(|source| ListenError::Path {
            path: path.to_path_buf(),
            doing: "examine it",
            source,
        })?;
        let device_inode = (metadata.dev(), metadata.ino());
        let file = SocketFile { path: path.to_path_buf(), device_inode };
        Ok(Listener { socket, kind: Kind::Unix { _file: Some(file) } })
    }

    /// Listens on a TCP address. One that other hosts reach is refused unless `exposed` is said.
    ///
    /// # Errors
    /// When the address is refused, or the system refuses it.
    pub fn tcp(address: SocketAddr, exposed: bool) -> Result<Listener, ListenError> {
        if !address.ip().to_canonical().is_loopback() && !exposed {
            return Err(ListenError::Exposed(address));
        }
        let failed = |source| ListenError::Address { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Listener { socket: listener.into(), kind: Kind::Tcp(address) })
    }

    /// A unix socket that another process made and listens on, as systemd passes them.
    ///
    /// # Errors
    /// When the system refuses to make it non-blocking.
    pub fn passed(socket: OwnedFd) -> io::Result<Listener> {
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        Ok(Listener { socket, kind: Kind::Unix { _file: None } })
    }

    /// The TCP address, with the port that the system chose for port 0.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.kind {
            Kind::Tcp(address) => Some(address),
            Kind::Unix { .. } => None,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes a connection, if there is one.
    pub(super) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        if let Kind::Tcp(_) = self.kind {
            // Settings that make it better; without them it works too.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
            let _ = rustix::net::sockopt::set_tcp_keepidle(&socket, Duration::from_secs(60));
            let _ = rustix::net::sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(15));
            let _ = rustix::net::sockopt::set_tcp_keepcnt(&socket, 4);
        }
        Ok(socket)
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
fn lock_directory(path: &Path) -> Result<OwnedFd, ListenError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let failed = |source: Errno| ListenError::Path {
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
fn clear(path: &Path) -> Result<(), ListenError> {
    let failed = |doing, source| ListenError::Path { path: path.to_path_buf(), doing, source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("examine it", error)),
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(ListenError::NotASocket(path.to_path_buf())),
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
        Ok(()) | Err(Errno::AGAIN) => Err(ListenError::Live(path.to_path_buf())),
        Err(error) => Err(failed("find out whether a server listens on it", error.into())),
    }
}
