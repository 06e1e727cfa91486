//! The life of a connection, on its thread: negotiation, transmission, farewell.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host::tls::Tunnel;
use nbd::server::{Handshake, Session, Tls};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::Shutdown;

use super::completions::{Completions, Ending};
use super::input::{Input, Received};
use super::negotiation::{Negotiated, Negotiation, NoSession};
use super::serving::Serving;
use super::transmission::Transmission;

/// Size of the input: a small payload and the requests around it, or the longest option.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES >= nbd::server::Handshake::INPUT_BYTES);
/// How long a client has to close its side after the last reply.
const FAREWELL: Duration = Duration::from_millis(200);

/// Serves a client until it leaves, is given up, or the server stops.
pub(super) fn serve(socket: &OwnedFd, serving: &Serving, completions: &Arc<Completions>) {
    completions.set_gives_way(true);
    let mut input = Input::new(INPUT_BYTES);
    let deadline = Instant::now() + serving.limits.negotiation;
    let begun = begin(socket, serving, &mut input, completions, deadline);
    completions.set_gives_way(false);
    let (tunnel, session) = match begun {
        Ok(begun) => begun,
        Err(reason) => return tracing::debug!(%reason, "an NBD client got no session"),
    };
    let plain = tunnel.as_ref().map_or(socket.as_fd(), Tunnel::plain);
    let export = &serving.exports[session.export];
    let name = &serving.offered[session.export].name;
    tracing::debug!(name, style = ?session.style, tls = tunnel.is_some(), "an NBD session begins");
    export.counters.session_began();
    let transmission = Transmission::new(plain, serving, &session, input, completions);
    let end = transmission.run();
    export.counters.session_ended();
    match end {
        Ok(()) => {
            tracing::debug!(name, "an NBD session ended");
            say_farewell(plain);
        }
        Err(reason) => {
            tracing::info!(name, %reason, "an NBD client was given up");
            if let Some(tunnel) = tunnel {
                tunnel.abort();
            }
        }
    }
}

/// Negotiates, in TLS if the server demands it: then the rest of the session uses the plain end of
/// the tunnel.
fn begin(
    socket: &OwnedFd,
    serving: &Serving,
    input: &mut Input,
    completions: &Arc<Completions>,
    deadline: Instant,
) -> Result<(Option<Tunnel>, Session), NoSession> {
    let (mut out, offered) = (Vec::new(), &serving.offered);
    let demand = if serving.tls.is_some() { Tls::Required } else { Tls::Off };
    let mut handshake = Handshake::new(demand, &mut out);
    let negotiation = Negotiation { input, exports: offered, completions, deadline };
    let negotiated = negotiation.run(socket.as_fd(), &mut handshake, out)?;
    let (Negotiated::StartTls, Some(tls)) = (negotiated, &serving.tls) else {
        return match negotiated {
            Negotiated::Session(session) => Ok((None, session)),
            Negotiated::StartTls => Err(NoSession::Left),
        };
    };
    // Nothing that came unencrypted may count as if it were part of the session.
    if !input.bytes().is_empty() {
        return Err(NoSession::Injected);
    }
    let gives_up = || completions.take(&mut Vec::new()) != Ending::None;
    let tunnel = Tunnel::accept(socket.try_clone()?, tls, deadline, &gives_up)?;
    let mut handshake = handshake.after_tls();
    let negotiation = Negotiation { input, exports: offered, completions, deadline };
    match negotiation.run(tunnel.plain(), &mut handshake, Vec::new())? {
        Negotiated::Session(session) => Ok((Some(tunnel), session)),
        Negotiated::StartTls => Err(NoSession::Left),
    }
}

/// Closing a TCP connection while input is unread would take back the replies that the client has
/// not read: so the client gets a moment to close its side first.
fn say_farewell(socket: BorrowedFd<'_>) {
    // It fails when the client has closed both directions.
    if rustix::net::shutdown(socket, Shutdown::Write).is_err() {
        return;
    }
    let deadline = Instant::now() + FAREWELL;
    let mut rest = Input::new(4096);
    loop {
        match rest.receive(socket, &mut [], usize::MAX) {
            Ok(Received::Bytes(_)) => rest.consume(rest.bytes().len()),
            Ok(Received::Nothing) => {}
            Ok(Received::End) | Err(_) => return,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        // An error of it ends the loop by the deadline.
        let _ = rustix::event::poll(&mut fds, left.try_into().ok().as_ref());
    }
}
