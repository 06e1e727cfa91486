//! Connections: how many there are, and how long they may do nothing.
//!
//! Invariant: every connection counts from its acceptance to its end; one too many is closed at
//! once. A peer that does not send the head of a request in time, or does not read, is cut off.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at a time.
pub const MAX_CONNECTIONS: usize = 128;
/// Connections of one peer at a time, so that one does not keep the others out.
pub const MAX_OF_PEER: usize = 64;
/// How long the head of a request may take, the time before its first byte included.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a peer may leave no room for what is sent to it.
const STALL_PATIENCE: Duration = Duration::from_secs(5);
/// What hyper buffers of a connection, in each direction.
const MAX_BUFFER: usize = 32 << 10;
/// The pause after the system has no descriptor for a connection.
const SYSTEM_PAUSE: Duration = Duration::from_millis(100);

/// Connections, by peer.
#[derive(Default)]
struct Counts {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// A connection that counts.
struct Counted {
    counts: Arc<Mutex<Counts>>,
    peer: IpAddr,
}

impl Counted {
    /// `None`: there are too many.
    fn new(counts: &Arc<Mutex<Counts>>, address: IpAddr) -> Option<Counted> {
        let peer = peer_of(address);
        let mut guard = counts.lock().expect("no panic while it is locked");
        let of_peer = guard.by_peer.get(&peer).copied().unwrap_or(0);
        if guard.all >= MAX_CONNECTIONS || of_peer >= MAX_OF_PEER {
            return None;
        }
        guard.all += 1;
        guard.by_peer.insert(peer, of_peer + 1);
        Some(Counted { counts: counts.clone(), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut guard = self.counts.lock().expect("no panic while it is locked");
        guard.all -= 1;
        let of_peer = guard.by_peer.get_mut(&self.peer).expect("it is counted");
        *of_peer -= 1;
        if *of_peer == 0 {
            guard.by_peer.remove(&self.peer);
        }
    }
}

/// A host, as far as an address says: of IPv6 the network of 64 bits.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

/// Accepts connections until it is dropped.
pub async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let counts = Arc::new(Mutex::new(Counts::default()));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                sleep(SYSTEM_PAUSE).await;
                continue;
            }
        };
        let Some(counted) = Counted::new(&counts, address.ip()) else { continue };
        let (tls, router) = (tls.clone(), router.clone());
        tokio::spawn(async move {
            let _counted = counted;
            connection(stream, tls, router).await;
        });
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    // Frames are whole: nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let stream = Timed { stream, stalled: None };
    match tls {
        None => http(stream, router).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_PATIENCE, tls.accept(stream)).await {
                http(stream, router).await;
            }
        }
    }
}

async fn http(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(MAX_BUFFER);
    let service = TowerToHyperService::new(router);
    // However it ends, it has ended.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// A socket whose peer must read.
struct Timed {
    stream: TcpStream,
    /// Set while there is no room.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    /// What an operation returned; an error when it has been pending for too long.
    fn within<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let until = || Box::pin(tokio::time::sleep_until(Instant::now() + STALL_PATIENCE));
        let stalled = self.stalled.get_or_insert_with(until);
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, buf);
        self.within(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bufs);
        self.within(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_leaves_room_for_others() {
        let counts = Arc::default();
        let of = |address: &str| Counted::new(&counts, address.parse().expect("an address"));
        let first: Vec<_> = (0..MAX_OF_PEER + 5).filter_map(|_| of("192.0.2.1")).collect();
        assert_eq!(first.len(), MAX_OF_PEER);
        assert!(of("::ffff:192.0.2.1").is_none(), "the same one");
        let network: Vec<_> =
            (0..MAX_CONNECTIONS).filter_map(|host| of(&format!("2001:db8::{host:x}"))).collect();
        assert_eq!(network.len(), MAX_OF_PEER, "addresses of one network are one peer");
        assert!(of("192.0.2.2").is_none(), "there are too many in all");
        drop(first);
        assert!(of("192.0.2.2").is_some());
        drop(network);
        assert!(counts.lock().unwrap().by_peer.is_empty());
    }
}
