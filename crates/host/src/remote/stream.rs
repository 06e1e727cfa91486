//! A socket to an NBD server, which never blocks.
//!
//! Invariant: connecting and negotiating end by their deadline, whatever the server and the
//! system's resolver do; no address of a host has all of the time while there are others.

use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::tls::{ClientTls, HandshakeError, Tunnel};

use super::uri::Endpoint;

/// Pause before a unix socket whose queue is full is tried again.
const FULL: Duration = Duration::from_millis(10);
/// A connection without traffic is looked after in this time, and given up after as many tries.
const KEEP_IDLE: Duration = Duration::from_secs(10);
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_TRIES: u32 = 4;

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The plain end of what is encrypted.
    Tls(Tunnel),
}

impl Stream {
    /// Connects.
    pub(super) fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Stream> {
        let stream = match endpoint {
            Endpoint::Tcp { host, port } => {
                let addresses = addresses(host, *port, deadline)?;
                Stream::Tcp(tcp(&addresses, deadline)?)
            }
            Endpoint::Unix(path) => Stream::Unix(unix(path, deadline)?),
        };
        match &stream {
            Stream::Tcp(socket) => socket.set_nonblocking(true)?,
            Stream::Unix(socket) => socket.set_nonblocking(true)?,
            Stream::Tls(_) => {}
        }
        Ok(stream)
    }

    /// Begins TLS.
    pub(super) fn start_tls(
        self,
        tls: &ClientTls,
        deadline: Instant,
    ) -> Result<Stream, HandshakeError> {
        let socket = match self {
            Stream::Tcp(socket) => socket.into(),
            Stream::Unix(socket) => socket.into(),
            Stream::Tls(_) => unreachable!("TLS begins once"),
        };
        Tunnel::connect(socket, tls, deadline).map(Stream::Tls)
    }

    /// What the server has sent, as far as there is something; 0: it has closed its side.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => socket.read(buffer),
            Stream::Unix(socket) => socket.read(buffer),
            Stream::Tls(tunnel) => Ok(rustix::io::read(tunnel.plain(), buffer)?),
        }
    }

    /// Sends as much as the system has room for.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(&*self, parts, &mut nothing, flags)?)
    }

    /// Waits until it can be read, or until the deadline.
    pub(super) fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), flags)];
        match rustix::event::poll(&mut fds, left.try_into().ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes it so that nothing more is sent: a request that the caller has given up must not
    /// leave this host later. What has left it, the server may still perform. On a unix socket that
    /// is everything that was written: it is in the server's queue at once.
    pub(super) fn abort(self) {
        match self {
            Stream::Tcp(socket) => {
                // Without it the end is an orderly one, with everything that is left.
                let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
            }
            Stream::Unix(_) => {}
            Stream::Tls(tunnel) => tunnel.abort(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(socket) => socket.as_fd(),
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tls(tunnel) => tunnel.plain(),
        }
    }
}

/// The addresses of a host.
fn addresses(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    within(deadline, move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
}

/// The result of something that cannot be interrupted. After the deadline it is left to itself: the
/// system's resolver has limits of its own, which are longer.
fn within<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("raidlab-resolve".into()).spawn(move || {
        // The receiver may have ceased to wait.
        let _ = sender.send(work());
    })?;
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The first of the addresses that accepts. Each has its share of the time that is left.
fn tcp(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut problem = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / (addresses.len() - tried) as u32;
        if share.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, share) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                // Settings that find a dead link earlier; requests have deadlines of their own.
                let _ = sockopt::set_socket_keepalive(&socket, true);
                let _ = sockopt::set_tcp_keepidle(&socket, KEEP_IDLE);
                let _ = sockopt::set_tcp_keepintvl(&socket, KEEP_INTERVAL);
                let _ = sockopt::set_tcp_keepcnt(&socket, KEEP_TRIES);
                return Ok(socket);
            }
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// A socket whose queue is full would be waited for without a limit: it is tried again instead.
fn unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(path)?;
    loop {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(FULL),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        // A listener whose queue is full: what comes then is not answered at all.
        let full = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        rustix::net::bind(&full, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        rustix::net::listen(&full, 0).expect("it listens");
        let address = std::net::TcpListener::from(full.try_clone().expect("another handle"));
        let full_at = address.local_addr().expect("an address");
        let _in_queue = TcpStream::connect(full_at).expect("there is room for one");
        let good = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let good_at = good.local_addr().expect("an address");

        let began = Instant::now();
        let deadline = began + Duration::from_secs(3);
        let stream = tcp(&[full_at, good_at], deadline).expect("the second one accepts");
        assert_eq!(stream.peer_addr().expect("a peer"), good_at);
        assert!(began.elapsed() >= Duration::from_secs(1), "the first one was tried");
        let began = Instant::now();
        let late = tcp(&[full_at, full_at], began + Duration::from_millis(300));
        assert_eq!(late.expect_err("none accepts").kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_resolver_that_hangs_is_not_waited_for() {
        let began = Instant::now();
        let late = within(began + Duration::from_millis(50), || {
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        });
        assert_eq!(late.expect_err("it hangs").kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(10));
        let soon = Instant::now() + Duration::from_secs(20);
        assert!(within(soon, || Ok(7)).is_ok_and(|seven| seven == 7));
        let local = addresses("localhost", 7, soon).expect("every host has it");
        assert!(local.iter().all(|it| it.ip().is_loopback() && it.port() == 7), "{local:?}");
    }
}
