//! The control socket's server: one thread that runs HTTP; orders run on threads of their own,
//! because they wait for the array.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use super::OPENAPI;
use super::api::{Done, Problem};
use super::managed::{Managed, Refused};
use crate::socket::{self, SocketError, SocketFile};

/// Connections at a time; more wait.
const MAX_CONNECTIONS: usize = 64;
/// Longest request body.
const MAX_BODY: usize = 64 << 10;
/// Events that wait for a client at most.
const MAX_WAITING: usize = 64;
/// How long a stop waits for requests in flight.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Another server has it.
    #[error("{}: another server uses this socket; choose another name", .0.display())]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{}: is no socket", .0.display())]
    NoSocket(PathBuf),
    /// A name that cannot be that of a socket.
    #[error("{0:?}: a name has no slash, and is not empty, '.' or '..'")]
    Name(String),
    /// A system call failed.
    #[error("{}: cannot {doing}: {source}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Where the sockets of this user's servers are: `$XDG_RUNTIME_DIR/raidlab`, or `/run/raidlab`.
pub fn runtime_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("raidlab"),
        None => "/run/raidlab".into(),
    }
}

/// The control socket of the server with this name.
///
/// # Errors
/// When it is no name.
pub fn control_path(name: &str) -> Result<PathBuf, ControlError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(ControlError::Name(name.into()));
    }
    Ok(runtime_directory().join(format!("{name}.sock")))
}

/// A control socket that is served. Dropping it ends it.
pub struct ControlServer {
    file: Option<SocketFile>,
    path: PathBuf,
    ending: Arc<AtomicBool>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Makes the socket at `path`, and its directory, and serves `managed` there.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn start(path: &Path, managed: Arc<dyn Managed>) -> Result<ControlServer, ControlError> {
        let system =
            |doing| move |source| ControlError::System { path: path.to_owned(), doing, source };
        let (listener, file) = listen(path)?;
        let file = Some(file);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_CONNECTIONS)
            .thread_name("raidlab-order")
            .build()
            .map_err(system("start its threads"))?;
        let listener = {
            let _in_runtime = runtime.enter();
            tokio::net::UnixListener::from_std(listener).map_err(system("serve it"))?
        };
        let ending = Arc::new(AtomicBool::new(false));
        let (end, ended) = oneshot::channel();
        let router = router(Served { managed, ending: ending.clone() });
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let serve = async move {
            let listener = Bounded { listener, permits };
            let shutdown = async {
                // A sender that is dropped ends it, too.
                let _ = ended.await;
            };
            let served = axum::serve(listener, router).with_graceful_shutdown(shutdown);
            // It never ends with an error.
            let _ = served.await;
        };
        let work = move || {
            runtime.block_on(serve);
            runtime.shutdown_timeout(END_PATIENCE);
        };
        let thread = std::thread::Builder::new().name("raidlab-control".into()).spawn(work);
        let thread = Some(thread.map_err(system("start its thread"))?);
        Ok(ControlServer { file, path: path.to_owned(), ending, end: Some(end), thread })
    }

    /// Ends the server. Its file stays until the caller drops it, as a sign that something else is
    /// still to end; nothing answers there any more.
    pub fn end(mut self) -> Option<SocketFile> {
        let file = self.file.take();
        self.end_thread();
        file
    }

    fn end_thread(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.end_thread();
    }
}

/// Makes the socket, and its directory, which only its user can enter.
fn listen(path: &Path) -> Result<(UnixListener, SocketFile), ControlError> {
    if let Some(directory) = path.parent().filter(|it| *it != "" && !it.exists()) {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(|source| ControlError::System {
            path: path.to_owned(),
            doing: "make its directory",
            source,
        })?;
    }
    match socket::listen(path) {
        Ok((listener, file)) => Ok((listener.into(), file)),
        Err(SocketError::Live(path)) => Err(ControlError::InUse(path)),
        Err(SocketError::NotASocket(path)) => Err(ControlError::NoSocket(path)),
        Err(SocketError::Path { path, doing, source }) => {
            Err(ControlError::System { path, doing, source })
        }
    }
}

/// A listener that accepts a bounded number of connections.
struct Bounded {
    listener: tokio::net::UnixListener,
    permits: Arc<Semaphore>,
}

/// A connection that counts.
struct Counted {
    stream: tokio::net::UnixStream,
    _permit: OwnedSemaphorePermit,
}

impl axum::serve::Listener for Bounded {
    type Io = Counted;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Counted, Self::Addr) {
        let permit = self.permits.clone().acquire_owned().await.expect("it is never closed");
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        (Counted { stream, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[derive(Clone)]
struct Served {
    managed: Arc<dyn Managed>,
    ending: Arc<AtomicBool>,
}

/// JSON of a request; what cannot be read is a [`Problem`].
struct Body<T>(T);

impl<T, S> FromRequest<S> for Body<T>
where
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Body(value)),
            Err(error) => Err(problem(error.status(), error.body_text())),
        }
    }
}

fn problem(status: StatusCode, error: String) -> Response {
    (status, Json(Problem { error })).into_response()
}

/// Runs an order on a thread of its own.
async fn ordered(
    served: Served,
    order: impl FnOnce(&dyn Managed) -> Result<Done, Refused> + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(move || order(&*served.managed)).await {
        Ok(Ok(done)) => Json(done).into_response(),
        Ok(Err(refused @ Refused::Value { .. })) => {
            problem(StatusCode::UNPROCESSABLE_ENTITY, refused.to_string())
        }
        Ok(Err(refused)) => problem(StatusCode::CONFLICT, refused.to_string()),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "the order's thread panicked".into()),
    }
}

/// A route that carries out an order with a body.
macro_rules! order {
    ($method:ident) => {
        post(|State(served): State<Served>, Body(order): Body<_>| {
            ordered(served, move |managed| managed.$method(&order))
        })
    };
}

fn router(served: Served) -> Router {
    let json = [(header::CONTENT_TYPE, "application/json")];
    let openapi = move || async move { (json, OPENAPI) };
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/events", get(events))
        .route("/fail", order!(fail))
        .route("/remove", order!(remove))
        .route("/add", order!(add))
        .route("/replace", order!(replace))
        .route("/scrub", order!(scrub))
        .route("/set", order!(set))
        .route("/stop", post(stop))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "see /openapi.json".into()) })
        .method_not_allowed_fallback(|| async {
            problem(StatusCode::METHOD_NOT_ALLOWED, "see /openapi.json".into())
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(served)
}

async fn status(State(served): State<Served>) -> Response {
    match tokio::task::spawn_blocking(move || served.managed.status()).await {
        Ok(status) => Json(status).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "its thread panicked".into()),
    }
}

async fn metrics(State(served): State<Served>) -> Response {
    let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    match tokio::task::spawn_blocking(move || served.managed.metrics()).await {
        Ok(text) => (format, text).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "its thread panicked".into()),
    }
}

async fn stop(State(served): State<Served>) -> Json<Done> {
    Json(served.managed.stop())
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

/// Events from number `after` on, as they happen.
async fn events(State(served): State<Served>, Query(After { after }): Query<After>) -> Response {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    tokio::spawn(async move {
        let mut seen = after;
        while !served.ending.load(Ordering::Relaxed) {
            let managed = served.managed.clone();
            let wait = move || managed.events(seen, Duration::from_millis(500));
            let Ok((events, ended)) = tokio::task::spawn_blocking(wait).await else { return };
            for event in events {
                seen = event.number;
                let data = serde_json::to_string(&event).expect("an event is JSON");
                let sse = SseEvent::default().id(seen.to_string()).event(event.event).data(data);
                if sender.send(Ok::<_, std::convert::Infallible>(sse)).await.is_err() {
                    return;
                }
            }
            if ended || sender.is_closed() {
                return;
            }
        }
    });
    Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response()
}
