//! Accepts connections, and starts a thread for each.
//!
//! *Invariant*: there are at most as many connections as the limit says, and those that are leaving
//! for a newer one. When all are taken, one that gives way (its client has been negotiating, or
//! has neither read nor sent anything, for long) is given up; without such a one, the new
//! connection is closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::completions::{Completions, Ending};
use super::connection;
use super::listener::Listener;
use super::serving::{Connection, Serving};

/// A client that needs longer to choose an export may have to leave for another.
const NEGOTIATING_LONG: Duration = Duration::from_secs(1);
/// Pause when the system has no descriptors or memory left.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Runs until `stop` says the end.
pub(super) fn run(listeners: &[Listener], serving: &Arc<Serving>, stop: &Completions) {
    let mut fds: Vec<PollFd<'_>> = listeners
        .iter()
        .map(|listener| PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN))
        .collect();
    fds.push(PollFd::from_borrowed_fd(stop.event(), PollFlags::IN));
    while stop.take(&mut Vec::new()) == Ending::None {
        if stop.fall_asleep() {
            // An error of it is that of a signal, or passes.
            let _ = rustix::event::poll(&mut fds, None);
            stop.awake(fds.last().is_some_and(|stop| stop.revents().contains(PollFlags::IN)));
        }
        for listener in listeners {
            match listener.accept() {
                Ok(socket) => admit(socket, serving),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    tracing::warn!("no descriptors or memory for another NBD client");
                    std::thread::sleep(EXHAUSTED);
                }
                // There is none, or it has left already.
                Err(_) => {}
            }
        }
    }
}

fn admit(socket: OwnedFd, serving: &Arc<Serving>) {
    let mut connections = serving.connections();
    connections.iter_mut().filter(|it| it.is_finished()).for_each(Connection::join);
    connections.retain(|connection| connection.thread.is_some());
    if connections.iter().filter(|it| !it.leaving).count() >= serving.limits.connections {
        let slow = |it: &&mut Connection| {
            let long = it.began.elapsed() > NEGOTIATING_LONG;
            !it.leaving && long && it.completions.gives_way()
        };
        let Some(slow) = connections.iter_mut().find(slow) else {
            return tracing::debug!("an NBD client was refused: all connections are in use");
        };
        slow.leaving = true;
        slow.completions.end(Ending::Now);
    }
    match start(socket, serving) {
        Ok(connection) => connections.push(connection),
        Err(error) => tracing::warn!(%error, "no resources for another NBD client"),
    }
}

fn start(socket: OwnedFd, serving: &Arc<Serving>) -> std::io::Result<Connection> {
    let completions = Arc::new(Completions::new()?);
    let thread = {
        let (serving, completions) = (serving.clone(), completions.clone());
        std::thread::Builder::new().name("raidlab-nbd".into()).spawn(move || {
            connection::serve(&socket, &serving, &completions);
            // Before the thread's share of the server, so that a client sees the end first.
            drop(socket);
        })?
    };
    let (began, thread) = (Instant::now(), Some(thread));
    Ok(Connection { completions, began, leaving: false, thread })
}
