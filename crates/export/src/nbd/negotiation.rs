//! The negotiation with a client, on its connection's thread.
//!
//! *Invariant*: it ends before its deadline, whatever the client sends or does not read.

use std::io;
use std::time::Instant;

use nbd::server::{Event, Handshake, Session};
use nbd::{Export, Violation};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use thiserror::Error;

use super::completions::{Completions, Ending};
use super::input::{Input, Received};

/// Why a client got no session.
#[derive(Debug, Error)]
pub(super) enum NoSession {
    #[error("the client left")]
    Left,
    #[error("the negotiation took too long")]
    Late,
    #[error("the server is stopping")]
    Stopping,
    #[error("the client sent something behind STARTTLS before TLS had begun")]
    Injected,
    #[error(transparent)]
    Tls(#[from] host::tls::HandshakeError),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// What a negotiation led to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Negotiated {
    /// An export is chosen; what the client sent after that is in the input.
    Session(Session),
    /// TLS begins on the socket now.
    StartTls,
}

/// What a negotiation needs.
pub(super) struct Negotiation<'a> {
    pub(super) input: &'a mut Input,
    pub(super) exports: &'a [Export],
    pub(super) completions: &'a Completions,
    pub(super) deadline: Instant,
}

impl Negotiation<'_> {
    /// Negotiates until the client chooses one of the exports, or begins TLS. `out` is sent first.
    pub(super) fn run(
        self,
        socket: BorrowedFd<'_>,
        handshake: &mut Handshake,
        mut out: Vec<u8>,
    ) -> Result<Negotiated, NoSession> {
        let Negotiation { input, exports, completions, deadline } = self;
        let wait = |flags| wait(socket, completions, deadline, flags);
        loop {
            // Also a client that always has something to say does not get longer.
            if Instant::now() >= deadline {
                return Err(NoSession::Late);
            }
            send_all(socket, &mut out, &wait)?;
            let progress = handshake.receive(input.bytes(), exports, &mut out);
            input.consume(progress.consumed);
            match progress.event {
                Event::Handled => {}
                Event::NeedMore => {
                    while input.receive(socket, &mut [], usize::MAX)? == Received::Nothing {
                        wait(PollFlags::IN)?;
                    }
                    if input.bytes().is_empty() {
                        return Err(NoSession::Left);
                    }
                }
                Event::Ready(session) => {
                    send_all(socket, &mut out, &wait)?;
                    return Ok(Negotiated::Session(session));
                }
                Event::Aborted => {
                    send_all(socket, &mut out, &wait)?;
                    return Err(NoSession::Left);
                }
                Event::StartTls => {
                    send_all(socket, &mut out, &wait)?;
                    return Ok(Negotiated::StartTls);
                }
                Event::Violation(violation) => return Err(violation.into()),
            }
        }
    }
}

fn send_all(
    socket: BorrowedFd<'_>,
    out: &mut Vec<u8>,
    wait: &impl Fn(PollFlags) -> Result<(), NoSession>,
) -> Result<(), NoSession> {
    let mut sent = 0;
    while sent < out.len() {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(socket, &out[sent..], flags) {
            Ok(bytes) => sent += bytes,
            Err(Errno::AGAIN) => wait(PollFlags::OUT)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(NoSession::Socket(error.into())),
        }
    }
    out.clear();
    Ok(())
}

/// Waits for the socket, until the deadline or the order to end.
fn wait(
    socket: BorrowedFd<'_>,
    completions: &Completions,
    deadline: Instant,
    flags: PollFlags,
) -> Result<(), NoSession> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(NoSession::Late);
    }
    if completions.take(&mut Vec::new()) != Ending::None {
        return Err(NoSession::Stopping);
    }
    let event = completions.event();
    let mut fds =
        [PollFd::from_borrowed_fd(socket, flags), PollFd::from_borrowed_fd(event, PollFlags::IN)];
    if completions.fall_asleep() {
        let timeout = left.try_into().ok();
        let polled = rustix::event::poll(&mut fds, timeout.as_ref());
        completions.awake(fds[1].revents().contains(PollFlags::IN));
        match polled {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(NoSession::Socket(error.into())),
        }
    }
    Ok(())
}
