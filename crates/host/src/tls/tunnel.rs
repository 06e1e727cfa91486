//! Carries bytes between an encrypted socket and a plain one, on a thread.
//!
//! *Invariant*: of each direction at most one piece is held here: when one side does not read, what
//! comes from the other one waits there, and neither direction waits for the other. The handshake
//! ends by its deadline. After the plain side has
//! ended, the thread ends within [`FAREWELL`], and at once after an abort.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};
use rustls::{ClientConnection, Connection, ServerConnection};
use thiserror::Error;

use crate::tls::certificates::{ClientTls, ServerTls};

/// Bytes that are carried at a time.
const PIECE_BYTES: usize = 256 << 10;
/// How long a peer has to take what is left, and to close its side.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often it is looked whether a handshake, or a session that can send nothing, has to end.
const STEP: Duration = Duration::from_millis(50);

/// Why there is no TLS session.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// The peer does not do what TLS demands, or its certificate is not accepted.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The socket broke, or the peer took too long.
    #[error("TLS: {}", crate::sys::reason(.0))]
    Socket(#[from] io::Error),
    /// The caller does not want it any more.
    #[error("TLS: it was given up")]
    GivenUp,
}

/// A TLS session, of which the rest of the program has the plain end.
pub struct Tunnel {
    /// The plain end, which does not block. Dropped first: the thread ends with it.
    plain: Option<OwnedFd>,
    network: Arc<Network>,
    thread: Option<JoinHandle<()>>,
}

struct Network {
    socket: OwnedFd,
    state: AtomicU8,
}

/// States of a tunnel: it carries; the plain end is closed; nothing may be sent any more.
const CARRIES: u8 = 0;
const CLOSES: u8 = 1;
const ABORTED: u8 = 2;

impl Tunnel {
    /// Begins a session as the server: the client speaks first. `gives_up` is called now and then.
    ///
    /// # Errors
    /// When the handshake fails, or is not over by the deadline.
    pub fn accept(
        socket: OwnedFd,
        tls: &ServerTls,
        deadline: Instant,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Tunnel, HandshakeError> {
        let session = ServerConnection::new(tls.0.clone())?;
        Tunnel::begin(socket, session.into(), deadline, gives_up)
    }

    /// Begins a session as the client.
    ///
    /// # Errors
    /// When the handshake fails, or is not over by the deadline.
    pub fn connect(
        socket: OwnedFd,
        tls: &ClientTls,
        deadline: Instant,
    ) -> Result<Tunnel, HandshakeError> {
        let session = ClientConnection::new(tls.config.clone(), tls.name.clone())?;
        Tunnel::begin(socket, session.into(), deadline, &|| false)
    }

    fn begin(
        socket: OwnedFd,
        mut session: Connection,
        deadline: Instant,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Tunnel, HandshakeError> {
        shake_hands(socket.as_fd(), &mut session, deadline, gives_up)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (plain, inner) = pair.map_err(io::Error::from)?;
        session.set_buffer_limit(None);
        let network = Arc::new(Network { socket, state: AtomicU8::new(CARRIES) });
        let carrier = Carrier {
            network: network.clone(),
            plain: inner,
            session,
            decrypted: vec![0; PIECE_BYTES],
            to_plain: 0..0,
            outgoing: vec![0; PIECE_BYTES],
            plain_ended: false,
            network_ended: false,
            plain_knows: false,
            network_knows: false,
            closes_since: None,
        };
        let thread = std::thread::Builder::new().name("raidlab-tls".into());
        let thread = Some(thread.spawn(move || carrier.run())?);
        Ok(Tunnel { plain: Some(plain), network, thread })
    }

    /// The plain end.
    pub fn plain(&self) -> BorrowedFd<'_> {
        self.plain.as_ref().expect("it is there until the end").as_fd()
    }

    /// Ends the session so that nothing is sent any more.
    pub fn abort(self) {
        self.network.state.store(ABORTED, Ordering::SeqCst);
        drop(self);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let state = &self.network.state;
        // An abort stays one.
        let _ = state.compare_exchange(CARRIES, CLOSES, Ordering::SeqCst, Ordering::SeqCst);
        self.plain = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported by itself.
            let _ = thread.join();
        }
    }
}

/// The encrypted socket, as rustls reads and writes it.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, _) = rustix::net::recv(self.0, &mut *buffer, RecvFlags::DONTWAIT)?;
        Ok(read)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn shake_hands(
    socket: BorrowedFd<'_>,
    session: &mut Connection,
    deadline: Instant,
    gives_up: &dyn Fn() -> bool,
) -> Result<(), HandshakeError> {
    while session.is_handshaking() || session.wants_write() {
        if gives_up() {
            return Err(HandshakeError::GivenUp);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let flags = if session.wants_write() { PollFlags::OUT } else { PollFlags::IN };
        let io = match session.wants_write() {
            true => session.write_tls(&mut Socket(socket)).map(|_| ()),
            false => match session.read_tls(&mut Socket(socket)) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                other => other.map(|_| ()),
            },
        };
        match io {
            Ok(()) => {
                if let Err(error) = session.process_new_packets() {
                    // The peer gets the reason, if it takes it at once.
                    let _ = session.write_tls(&mut Socket(socket));
                    return Err(error.into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [PollFd::from_borrowed_fd(socket, flags)];
                // An error of it is that of a signal, or ends the loop by the deadline.
                let _ = rustix::event::poll(&mut fds, timespec(left.min(STEP)).as_ref());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn timespec(duration: Duration) -> Option<Timespec> {
    duration.try_into().ok()
}

/// The thread of a tunnel.
struct Carrier {
    network: Arc<Network>,
    plain: OwnedFd,
    session: Connection,
    /// Decrypted bytes.
    decrypted: Vec<u8>,
    /// Where there are some that the plain side has not taken.
    to_plain: std::ops::Range<usize>,
    /// Room for bytes to be encrypted, which the session then holds.
    outgoing: Vec<u8>,
    /// The plain side will send nothing more.
    plain_ended: bool,
    /// The peer will send nothing more.
    network_ended: bool,
    /// The sides have been shown that of the other one.
    plain_knows: bool,
    network_knows: bool,
    /// Since when the plain end is closed, as far as was seen.
    closes_since: Option<Instant>,
}

impl Carrier {
    fn run(mut self) {
        // What breaks ends both sides.
        while !self.is_over() && self.turn().is_ok() {}
        if self.is(ABORTED) {
            // On a unix socket it changes nothing: what was sent is in the peer's queue already.
            let _ = sockopt::set_socket_linger(&self.network.socket, Some(Duration::ZERO));
        } else {
            let _ = rustix::net::shutdown(&self.network.socket, Shutdown::Both);
        }
    }

    fn is(&self, state: u8) -> bool {
        self.network.state.load(Ordering::SeqCst) == state
    }

    fn is_over(&mut self) -> bool {
        if self.is(CLOSES) {
            self.closes_since.get_or_insert_with(Instant::now);
        }
        let has_ended = self.plain_ended && self.network_ended && !self.session.wants_write();
        let farewell = self.closes_since.is_some_and(|since| since.elapsed() > FAREWELL);
        has_ended || farewell || self.is(ABORTED)
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut moved = self.send_network()?;
        moved |= self.receive_network()?;
        moved |= self.send_plain()?;
        moved |= self.receive_plain()?;
        if !moved {
            self.sleep();
        }
        Ok(())
    }

    fn send_network(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while self.session.wants_write() {
            let mut socket = Socket(self.network.socket.as_fd());
            match passing(self.session.write_tls(&mut socket))? {
                Some(_) => moved = true,
                None => return Ok(moved),
            }
        }
        if self.plain_ended && !self.network_knows {
            self.network_knows = true;
            let _ = rustix::net::shutdown(&self.network.socket, Shutdown::Write);
        }
        Ok(moved)
    }

    fn receive_network(&mut self) -> io::Result<bool> {
        if !self.to_plain.is_empty() {
            return Ok(false);
        }
        // What the session holds already.
        self.decrypt()?;
        if self.network_ended || !self.to_plain.is_empty() {
            return Ok(!self.to_plain.is_empty());
        }
        let mut socket = Socket(self.network.socket.as_fd());
        let Some(read) = passing(self.session.read_tls(&mut socket))? else { return Ok(false) };
        self.network_ended = read == 0;
        self.session.process_new_packets().map_err(io::Error::other)?;
        self.decrypt()?;
        Ok(true)
    }

    /// Takes what is decrypted.
    fn decrypt(&mut self) -> io::Result<()> {
        let mut filled = 0;
        while filled < self.decrypted.len() {
            match self.session.reader().read(&mut self.decrypted[filled..]) {
                // The peer has ended its side in order.
                Ok(0) => {
                    self.network_ended = true;
                    break;
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Without a farewell: NBD's messages say themselves whether they are whole.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.network_ended = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.to_plain = 0..filled;
        Ok(())
    }

    fn send_plain(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while !self.to_plain.is_empty() {
            if self.is(CLOSES) {
                // Nothing reads it.
                self.to_plain = 0..0;
                return Ok(true);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let bytes = &self.decrypted[self.to_plain.clone()];
            match rustix::net::send(&self.plain, bytes, flags) {
                Ok(sent) => self.to_plain.start += sent,
                Err(Errno::AGAIN) => return Ok(moved),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            moved = true;
        }
        if self.network_ended && !self.plain_knows {
            self.plain_knows = true;
            let _ = rustix::net::shutdown(&self.plain, Shutdown::Write);
            moved = true;
        }
        Ok(moved)
    }

    fn receive_plain(&mut self) -> io::Result<bool> {
        if self.session.wants_write() || self.plain_ended {
            return Ok(false);
        }
        match rustix::net::recv(&self.plain, &mut self.outgoing[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => {
                self.plain_ended = true;
                self.session.send_close_notify();
            }
            Ok((read, _)) => self.session.writer().write_all(&self.outgoing[..read])?,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn sleep(&self) {
        let is_free = self.to_plain.is_empty();
        let mut network = PollFlags::empty();
        if !self.network_ended && is_free {
            network |= PollFlags::IN;
        }
        let mut plain = PollFlags::empty();
        match self.session.wants_write() {
            true => network |= PollFlags::OUT,
            false if !self.plain_ended => plain |= PollFlags::IN,
            false => {}
        }
        if !is_free {
            plain |= PollFlags::OUT;
        }
        // A side that has hung up is always ready: it is watched only for what it is used for.
        let sockets = [(self.network.socket.as_fd(), network), (self.plain.as_fd(), plain)];
        let watched = sockets.into_iter().filter(|(_, flags)| !flags.is_empty());
        let mut fds: Vec<PollFd<'_>> =
            watched.map(|(socket, flags)| PollFd::from_borrowed_fd(socket, flags)).collect();
        // The end of the plain side would not be seen.
        let timeout = if plain.is_empty() { timespec(STEP) } else { None };
        // An error of it is that of a signal, or passes.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }
}

/// `None`: nothing can be moved now.
fn passing(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(moved) => Ok(Some(moved)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(error),
    }
}
