//! What the threads of a server share: exports, bounds, the list of connections.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::tls::ServerTls;
use nbd::Export;

use super::completions::Completions;
use super::shares::Shares;
use super::statistics::Counters;
use crate::access::Access;

/// Bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Requests in flight of a connection, with the replies that its client has not read.
    pub requests: usize,
    /// Memory for reads that must be answered in one piece and are longer than a buffer of the
    /// store, of all connections; at least [`nbd::MAX_PAYLOAD_BYTES`].
    pub assembled_bytes: usize,
    /// How long a client may need to choose an export.
    pub negotiation: Duration,
    /// How long a client may pause in the middle of a request or of a reply, while another needs
    /// what its connection holds.
    pub stall: Duration,
    /// How long requests in flight, and clients that read their replies, may take to end when the
    /// server stops.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections: 64,
            requests: 128,
            assembled_bytes: 256 << 20,
            negotiation: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

/// An export and what belongs to it.
pub(super) struct Served {
    pub(super) access: Arc<Access>,
    pub(super) buffers: Arc<Shares>,
    pub(super) counters: Counters,
}

/// What the threads of a server share.
pub(super) struct Serving {
    pub(super) exports: Vec<Served>,
    /// The exports as clients see them, in the same order.
    pub(super) offered: Vec<Export>,
    pub(super) limits: ServerLimits,
    /// Every client must begin TLS first.
    pub(super) tls: Option<ServerTls>,
    pub(super) assembled: Arc<Shares>,
    pub(super) connections: Mutex<Vec<Connection>>,
}

impl Serving {
    pub(super) fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().expect("the list lock is not poisoned")
    }
}

/// A connection, as the accepting thread and `Server` see it.
pub(super) struct Connection {
    pub(super) completions: Arc<Completions>,
    pub(super) began: Instant,
    /// It has been ended, in favour of a newer one.
    pub(super) leaving: bool,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl Connection {
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}
