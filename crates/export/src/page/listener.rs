//! Connections: how many there are, and how long they may do nothing.
//!
//! Invariant: every connection has a permit from its acceptance to its end; one without a permit is
//! closed at once. A peer that does not send the head of a request in time, or does not read, is
//! cut off. Every request carries its [`Peer`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::page::peer::Peer;
use crate::page::permits::Permits;

/// Connections at a time.
pub const MAX_CONNECTIONS: usize = 128;
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

/// Accepts connections until it is dropped.
pub async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let permits = Permits::new(MAX_CONNECTIONS);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                sleep(SYSTEM_PAUSE).await;
                continue;
            }
        };
        let Ok(own) = stream.local_addr() else { continue };
        let peer = Peer::of(address, own);
        let Some(permit) = permits.take(peer) else { continue };
        let (tls, router) = (tls.clone(), router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            connection(stream, tls, router, peer).await;
        });
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, peer: Peer) {
    // Frames are whole: nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let stream = Timed { stream, stalled: None };
    match tls {
        None => http(stream, router, peer).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_PATIENCE, tls.accept(stream)).await {
                http(stream, router, peer).await;
            }
        }
    }
}

async fn http(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, peer: Peer) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(MAX_BUFFER);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
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
