//! Sockets on which a server waits for clients.
//!
//! *Invariant*: a TCP address that other hosts reach is refused, unless the caller insists. Unix
//! sockets are those of [`crate::socket`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use thiserror::Error;

use crate::socket::{self, SocketError, SocketFile};

/// What a unix socket may hold of replies that were not read; Linux counts twice that, and has a
/// limit of its own (`net.core.wmem_max`). With the usual 208 KiB the threads of server and client
/// take turns several times in every long reply. TCP finds its own size.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// Why a socket cannot be listened on.
#[derive(Debug, Error)]
pub enum ListenError {
    /// A unix socket cannot be made.
    #[error(transparent)]
    Unix(#[from] SocketError),
    /// The address cannot be used.
    #[error("{address}: cannot listen: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Other hosts could reach it, unencrypted and without a certificate of the client.
    #[error(
        "{0}: other hosts reach this address, and nothing would be encrypted or ask for a password"
    )]
    Exposed(SocketAddr),
    /// What was passed is none on which clients of NBD could connect.
    #[error("the descriptor is no unix or TCP socket that listens")]
    NotASocket,
    /// What was passed cannot be used.
    #[error("cannot use the socket: {0}")]
    Passed(#[source] io::Error),
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Without a file of its own, the path that another process gave it, if it has one.
    Unix {
        file: Option<SocketFile>,
        path: Option<PathBuf>,
    },
    Tcp(SocketAddr),
}

impl Listener {
    /// Listens on a unix socket, for processes of the same user (and root).
    ///
    /// # Errors
    /// When a server listens there already, or the system refuses.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let (socket, file) = socket::listen(path)?;
        Ok(Listener { socket, kind: Kind::Unix { file: Some(file), path: None } })
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

    /// A unix or TCP socket that another process made and listens on, as systemd passes them. A
    /// TCP address that other hosts reach is refused unless `exposed` is said; the mode of a unix
    /// socket is set by the other process.
    ///
    /// # Errors
    /// When it is no such socket, or its address is refused.
    pub fn passed(socket: OwnedFd, exposed: bool) -> Result<Listener, ListenError> {
        let listens = sockopt::socket_acceptconn(&socket).unwrap_or(false)
            && sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
        if !listens {
            return Err(ListenError::NotASocket);
        }
        let failed = |error: rustix::io::Errno| ListenError::Passed(error.into());
        let address = rustix::net::getsockname(&socket).map_err(failed)?;
        let kind = match SocketAddr::try_from(address.clone()) {
            Ok(address) => {
                if !address.ip().to_canonical().is_loopback() && !exposed {
                    return Err(ListenError::Exposed(address));
                }
                Kind::Tcp(address)
            }
            Err(_) if address.address_family() == AddressFamily::UNIX => {
                let unix = SocketAddrUnix::try_from(address).map_err(failed)?;
                let path = unix.path().map(|path| path.to_string_lossy().into_owned().into());
                Kind::Unix { file: None, path }
            }
            Err(_) => return Err(ListenError::NotASocket),
        };
        let flags = rustix::fs::fcntl_getfl(&socket).map_err(failed)?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(failed)?;
        Ok(Listener { socket, kind })
    }

    /// The path of a unix socket.
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Unix { file: Some(file), .. } => Some(file.path()),
            Kind::Unix { path, .. } => path.as_deref(),
            Kind::Tcp(_) => None,
        }
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
        // Settings that make it better; without them it works too.
        match self.kind {
            Kind::Unix { .. } => {
                let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
            }
            Kind::Tcp(_) => {
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                let _ = sockopt::set_socket_keepalive(&socket, true);
                let _ = sockopt::set_tcp_keepidle(&socket, Duration::from_secs(60));
                let _ = sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(15));
                let _ = sockopt::set_tcp_keepcnt(&socket, 4);
            }
        }
        Ok(socket)
    }
}
