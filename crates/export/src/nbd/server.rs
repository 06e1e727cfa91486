//! The server: exports, listeners, and the threads that serve them.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::tls::ServerTls;
use nbd::{BlockSizes, Export, Features, MAX_PAYLOAD_BYTES, MAX_STRING_BYTES};
use thiserror::Error;

use super::accept;
use super::completions::{Completions, Ending};
use super::listener::Listener;
use super::serving::{Connection, Served, ServerLimits, Serving};
use super::shares::Shares;
use super::statistics::{Counters, Statistics};
use crate::access::Access;

/// Buffers of a store that connections do not get: for what is read, modified and written, and for
/// the array's own work.
const KEPT_BUFFERS: usize = 2;

/// A store under a name.
pub struct NbdExport {
    /// Its name; a client that gives an empty one gets the only export, or that of an empty name.
    pub name: String,
    /// A text for people; may be empty.
    pub description: String,
    /// What is served.
    pub access: Arc<Access>,
    /// Writes are refused, also where the store would take them.
    pub read_only: bool,
}

/// Why a server was not started.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Without an export.
    #[error("there is nothing to serve")]
    Empty,
    /// A name that the protocol does not permit.
    #[error("export {0:?}: a name has at most 4096 bytes, and no NUL")]
    Name(String),
    /// A name twice.
    #[error("export {0:?} is named twice")]
    Twice(String),
    /// A system resource is missing.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// An NBD server; see the module documentation. Dropping it is [`Server::stop`].
pub struct Server {
    serving: Arc<Serving>,
    stop: Arc<Completions>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the exports on the listeners.
    ///
    /// # Errors
    /// When a name is wrong, or a system resource is missing.
    pub fn start(
        listeners: Vec<Listener>,
        exports: Vec<NbdExport>,
        limits: ServerLimits,
    ) -> Result<Server, ServerError> {
        Server::start_with(listeners, exports, limits, None)
    }

    /// The same; with `tls`, clients get nothing before they have begun TLS.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        listeners: Vec<Listener>,
        exports: Vec<NbdExport>,
        limits: ServerLimits,
        tls: Option<ServerTls>,
    ) -> Result<Server, ServerError> {
        let system = |doing| move |source| ServerError::System { doing, source };
        if exports.is_empty() {
            return Err(ServerError::Empty);
        }
        let (mut served, mut offered) = (Vec::new(), Vec::<Export>::new());
        for export in exports {
            if export.name.len() > MAX_STRING_BYTES || export.name.contains('\0') {
                return Err(ServerError::Name(export.name));
            }
            if offered.iter().any(|other| other.name == export.name) {
                return Err(ServerError::Twice(export.name));
            }
            offered.push(offer(&export));
            let buffers = export.access.limits().buffers.saturating_sub(KEPT_BUFFERS).max(1);
            let buffers = Shares::new(buffers, limits.connections, buffers);
            let access = export.access;
            served.push(Served { access, buffers, counters: Counters::default() });
        }
        let assembled = limits.assembled_bytes.max(MAX_PAYLOAD_BYTES as usize);
        let serving = Arc::new(Serving {
            exports: served,
            offered,
            limits,
            tls,
            assembled: Shares::new(assembled, assembled / 2, assembled / 64),
            connections: Mutex::default(),
        });
        let stop = Arc::new(Completions::new().map_err(system("make an eventfd"))?);
        let accepting = {
            let (serving, stop) = (serving.clone(), stop.clone());
            std::thread::Builder::new()
                .name("raidlab-nbd-accept".into())
                .spawn(move || accept::run(&listeners, &serving, &stop))
                .map_err(system("start a thread"))?
        };
        Ok(Server { serving, stop, accepting: Some(accepting) })
    }

    /// What clients requested so far, for each export.
    pub fn statistics(&self) -> Vec<(String, Statistics)> {
        let all = self.serving.offered.iter().zip(&self.serving.exports);
        all.map(|(offered, it)| (offered.name.clone(), it.counters.snapshot())).collect()
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.serving.connections().iter().filter(|connection| !connection.is_finished()).count()
    }

    /// Closes the listeners, answers what is in flight, closes the connections, and lets go of the
    /// stores. What clients send from now on is answered with ESHUTDOWN.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.stop.end(Ending::Now);
        // A thread that panicked has printed the reason.
        let _ = accepting.join();
        let mut connections = std::mem::take(&mut *self.serving.connections());
        connections.iter().for_each(|connection| connection.completions.end(Ending::Drain));
        let deadline = Instant::now() + self.serving.limits.grace;
        while Instant::now() < deadline && !connections.iter().all(Connection::is_finished) {
            std::thread::sleep(Duration::from_millis(2));
        }
        connections.iter().for_each(|connection| connection.completions.end(Ending::Now));
        connections.iter_mut().for_each(Connection::join);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn offer(export: &NbdExport) -> Export {
    let limits = export.access.limits();
    let read_only = export.read_only || limits.read_only;
    Export {
        name: export.name.clone(),
        description: export.description.clone(),
        bytes: limits.bytes,
        features: Features {
            read_only,
            flush: true,
            fua: !read_only,
            rotational: false,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            // There is no cache that it could fill; it succeeds.
            cache: true,
            // There is no cache at all, so that all connections see the same.
            multi_conn: true,
            one_piece: true,
        },
        blocks: BlockSizes {
            // Parts of blocks are read, modified and written.
            minimum: 1,
            preferred: limits.block.max(4096),
            maximum: MAX_PAYLOAD_BYTES,
        },
    }
}
