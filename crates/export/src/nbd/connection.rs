//! The life of a connection, on its thread: negotiation, transmission, farewell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::Shutdown;

use super::completions::Completions;
use super::input::{Input, Received};
use super::negotiation::negotiate;
use super::serving::Serving;
use super::transmission::Transmission;

/// Size of the input: a small payload and the requests around it, or the longest option.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES >= nbd::server::Handshake::INPUT_BYTES);
/// How long a client has to close its side after the last reply.
const FAREWELL: Duration = Duration::from_millis(200);

/// Serves a client until it leaves, is given up, or the server stops.
pub(super) fn serve(
    socket: &OwnedFd,
    serving: &Serving,
    completions: &Arc<Completions>,
    negotiating: &AtomicBool,
) {
    let mut input = Input::new(INPUT_BYTES);
    let deadline = Instant::now() + serving.limits.negotiation;
    let session = negotiate(socket.as_fd(), &mut input, &serving.offered, completions, deadline);
    negotiating.store(false, Ordering::Relaxed);
    let session = match session {
        Ok(session) => session,
        Err(reason) => return tracing::debug!(%reason, "an NBD client got no session"),
    };
    let export = &serving.exports[session.export];
    let name = &serving.offered[session.export].name;
    tracing::debug!(name, style = ?session.style, "an NBD session begins");
    export.counters.session_began();
    let transmission = Transmission::new(socket.as_fd(), serving, &session, input, completions);
    let end = transmission.run();
    export.counters.session_ended();
    match end {
        Ok(()) => {
            tracing::debug!(name, "an NBD session ended");
            say_farewell(socket);
        }
        Err(reason) => tracing::info!(name, %reason, "an NBD client was given up"),
    }
}

/// Closing a TCP connection while input is unread would take back the replies that the client has
/// not read: so the client gets a moment to close its side first.
fn say_farewell(socket: &OwnedFd) {
    // It fails when the client has closed both directions.
    if rustix::net::shutdown(socket, Shutdown::Write).is_err() {
        return;
    }
    let deadline = Instant::now() + FAREWELL;
    let mut rest = Input::new(4096);
    loop {
        match rest.receive(socket.as_fd(), &mut [], usize::MAX) {
            Ok(Received::Bytes(_)) => rest.consume(rest.bytes().len()),
            Ok(Received::Nothing) => {}
            Ok(Received::End) | Err(_) => return,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        // An error of it ends the loop by the deadline.
        let _ = rustix::event::poll(&mut fds, left.try_into().ok().as_ref());
    }
}
