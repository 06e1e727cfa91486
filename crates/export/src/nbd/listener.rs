//! Sockets on which a server waits for clients.
//!
//! *Invariant*: a TCP address that other hosts reach is refused, unless the caller insists. Unix
//! sockets are those of [`crate::socket`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::net::SocketFlags;
use thiserror::Error;

use crate::socket::{self, SocketError, SocketFile};

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

impl Listener {
    /// Listens on a unix socket, for processes of the same user (and root).
    ///
    /// # Errors
    /// When a server listens there already, or the system refuses.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let (socket, file) = socket::listen(path)?;
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
