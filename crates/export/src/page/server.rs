//! The server: one thread of low priority that runs everything; views and orders run on threads
//! beside it, because they wait for arrays.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use host::tls::ServerTls;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;

use crate::page::access::{Access, Token};
use crate::page::frames::Frames;
use crate::page::listener;
use crate::page::permits::Permits;
use crate::page::routes::{self, MAX_ORDERS, MAX_VIEWERS, Shared};
use crate::page::view::Feed;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 64;
/// What the kernel keeps of a connection's data that the peer has not read, bytes.
const SEND_BUFFER: u32 = 64 << 10;
/// How much lower the priority of the page's threads is than that of the arrays': `nice`.
const NICE: i32 = 10;
/// How long a stop waits for views and orders.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Where and for whom a page is served.
#[derive(Clone, Debug)]
pub struct PageOptions {
    /// The address; port 0: a free one.
    pub address: SocketAddr,
    /// The certificate, for TLS.
    pub tls: Option<ServerTls>,
    /// What clients must give.
    pub token: Option<Token>,
    /// Orders are permitted, to those who have the token.
    pub control: bool,
}

/// Why no page is served.
#[derive(Debug, Error)]
pub enum PageError {
    /// Other hosts reach the address.
    #[error("{0}: other hosts reach this address: it needs a token and a certificate (TLS)")]
    Open(SocketAddr),
    /// Orders need a token.
    #[error("orders need a token: every user of this machine reaches loopback addresses")]
    ControlWithoutToken,
    /// The address is not to be had.
    #[error("{address}: cannot listen: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no more threads or descriptors.
    #[error("cannot start the page's threads: {0}")]
    Threads(#[source] io::Error),
}

/// A page that is served. Dropping it ends it.
pub struct PageServer {
    address: SocketAddr,
    has_tls: bool,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    /// Serves `feed`.
    ///
    /// # Errors
    /// See [`PageError`].
    pub fn start(options: PageOptions, feed: Arc<dyn Feed>) -> Result<PageServer, PageError> {
        let PageOptions { address, tls, token, control } = options;
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !is_loopback && (tls.is_none() || token.is_none()) {
            return Err(PageError::Open(address));
        }
        if control && token.is_none() {
            return Err(PageError::ControlWithoutToken);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_ORDERS + 2)
            .thread_name("raidlab-view")
            .on_thread_start(lower_priority)
            .build()
            .map_err(PageError::Threads)?;
        let listener = {
            let _in_runtime = runtime.enter();
            listen(address).map_err(|source| PageError::Listen { address, source })?
        };
        let address =
            listener.local_addr().map_err(|source| PageError::Listen { address, source })?;
        let has_tls = tls.is_some();
        let access = Access::new(address, has_tls, token, control);
        let frames = Arc::new(Frames::new());
        let orders = Arc::new(Semaphore::new(MAX_ORDERS));
        let viewers = Permits::new(MAX_VIEWERS);
        let shared = Shared { access, feed: feed.clone(), frames: frames.clone(), viewers, orders };
        let router = routes::router(Arc::new(shared));
        let acceptor = tls.map(|tls| TlsAcceptor::from(tls.config().clone()));
        let (end, ended) = oneshot::channel::<()>();
        let serve = async move {
            // Begun first: without viewers it does nothing.
            let producer = tokio::spawn(async move { frames.produce(feed).await });
            let acceptor = tokio::spawn(listener::accept(listener, acceptor, router));
            // A sender that is dropped ends it, too.
            let _ = ended.await;
            producer.abort();
            acceptor.abort();
        };
        let work = move || {
            lower_priority();
            runtime.block_on(serve);
            runtime.shutdown_timeout(END_PATIENCE);
        };
        let thread = std::thread::Builder::new().name("raidlab-page".into()).spawn(work);
        let thread = Some(thread.map_err(PageError::Threads)?);
        Ok(PageServer { address, has_tls, end: Some(end), thread })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a browser finds it. Behind `#token=` the token may follow; browsers do not send that.
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        // As browsers write it: an IPv4 address in an IPv6 one is the former.
        let address = SocketAddr::new(self.address.ip().to_canonical(), self.address.port());
        format!("{scheme}://{address}/")
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A page can be started again while old connections of it time out.
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Of the calling thread: on Linux a priority is a thread's.
fn lower_priority() {
    // Where it is refused, the page runs all the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
