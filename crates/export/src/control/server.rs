//! The control socket's server: one thread that runs HTTP; orders run on threads of their own,
//! because they wait for the array.

use std::fs::DirBuilder;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_stream::wrappers::ReceiverStream;

use super::api::{Done, Problem, Stopped};
use super::managed::{Managed, Refused};
use super::openapi;
use crate::socket::{self, SocketError, SocketFile};

/// Connections at a time; more wait.
const MAX_CONNECTIONS: usize = 64;
/// Of them, those that wait for events.
const MAX_STREAMS: usize = 32;
/// How long the head of a request may take, the time before its first byte included.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long the body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// The pause after the system has no descriptor for a connection.
const SYSTEM_PAUSE: Duration = Duration::from_millis(100);
/// Longest request body.
const MAX_BODY: usize = 64 << 10;
/// Events that wait for a client at most.
const MAX_WAITING: usize = 64;
/// How long a client may take to read an answer, while nothing of it can be sent.
const SEND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a stop waits for orders in flight, which hold the array: `add` may wait for a server of
/// exports, 10 s to connect and 30 s for a request.
const ORDER_PATIENCE: Duration = Duration::from_secs(45);
/// How long a stop waits for clients that read its report.
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
    /// Others may have made what is in it.
    #[error(
        "{}: is no directory of this user with mode 0700; set XDG_RUNTIME_DIR, or give --control",
        .0.display()
    )]
    NotPrivate(PathBuf),
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

/// Where the sockets of this user's servers are: `$XDG_RUNTIME_DIR/raidlab`; without that variable
/// `/run/raidlab` if it is root's or this user's, else `/tmp/raidlab-UID`.
pub fn runtime_directory() -> PathBuf {
    let given = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    if let Some(directory) = given {
        return PathBuf::from(directory).join("raidlab");
    }
    let system = PathBuf::from("/run/raidlab");
    let user = rustix::process::geteuid();
    let is_own = std::fs::metadata(&system).is_ok_and(|it| it.uid() == user.as_raw());
    match user.is_root() || is_own {
        true => system,
        false => format!("/tmp/raidlab-{}", user.as_raw()).into(),
    }
}

/// Refuses a directory in `/tmp` that others have made, or can enter: its sockets may be theirs.
fn check_private(directory: &Path) -> Result<(), ControlError> {
    let user = rustix::process::geteuid().as_raw();
    if directory != Path::new(&format!("/tmp/raidlab-{user}")) {
        return Ok(());
    }
    match std::fs::symlink_metadata(directory) {
        Ok(it) if it.is_dir() && it.uid() == user && it.mode() & 0o077 == 0 => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(ControlError::NotPrivate(directory.to_owned())),
    }
}

/// The control socket of the server with this name.
///
/// # Errors
/// When it is no name, or others can enter the directory.
pub fn control_path(name: &str) -> Result<PathBuf, ControlError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(ControlError::Name(name.into()));
    }
    let directory = runtime_directory();
    check_private(&directory)?;
    Ok(directory.join(format!("{name}.sock")))
}

/// A control socket that is served. Dropping it ends it.
pub struct ControlServer {
    path: PathBuf,
    ending: Arc<Ending>,
    end: Option<ControlEnd>,
}

/// The end of a control socket: clients that have ordered the stop wait for the report. Dropping it
/// leaves them without one.
pub struct ControlEnd {
    stopped: watch::Sender<Option<Stopped>>,
    thread: Option<JoinHandle<()>>,
    /// Removed last, as a sign that nothing else is still to end.
    _file: SocketFile,
}

impl ControlEnd {
    /// Answers the clients that wait, and removes the socket.
    pub fn report(self, stopped: Stopped) {
        self.stopped.send_replace(Some(stopped));
    }
}

impl Drop for ControlEnd {
    fn drop(&mut self) {
        // Without a report, those that wait see that its sender is gone.
        self.stopped = watch::channel(None).0;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

/// Ends what is served.
struct Ending {
    is_ending: AtomicBool,
    /// Taken at the end, which lets go of the array.
    managed: Mutex<Option<Arc<dyn Managed>>>,
    accepting: watch::Sender<bool>,
}

impl Ending {
    fn managed(&self) -> MutexGuard<'_, Option<Arc<dyn Managed>>> {
        self.managed.lock().expect("the lock is not poisoned")
    }

    /// Accepts no further connections, and waits for orders that are being carried out.
    fn begin(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.accepting.send_replace(false);
        let Some(managed) = self.managed().take() else { return };
        let until = Instant::now() + ORDER_PATIENCE;
        while Arc::strong_count(&managed) > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
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
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_CONNECTIONS)
            .thread_name("raidlab-order")
            .build()
            .map_err(system("start its threads"))?;
        let listener = {
            let _in_runtime = runtime.enter();
            UnixListener::from_std(listener).map_err(system("serve it"))?
        };
        let (accepting, accepts) = watch::channel(true);
        let (stopped, mut outcome) = watch::channel(None);
        let (is_ending, managed) = (AtomicBool::new(false), Mutex::new(Some(managed)));
        let ending = Arc::new(Ending { is_ending, managed, accepting });
        let streams = Arc::new(Semaphore::new(MAX_STREAMS));
        let served = Served { ending: ending.clone(), stopped: outcome.clone(), streams };
        let router = router(served);
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let serve = async move {
            accept(listener, router, permits.clone(), accepts).await;
            // Orders to stop wait for the report, and for what is to be sent then.
            let _ = outcome.wait_for(Option::is_some).await;
            let all = permits.acquire_many(MAX_CONNECTIONS as u32);
            let _ = tokio::time::timeout(END_PATIENCE, all).await;
        };
        let work = move || {
            runtime.block_on(serve);
            runtime.shutdown_timeout(END_PATIENCE);
        };
        let thread = std::thread::Builder::new().name("raidlab-control".into()).spawn(work);
        let thread = Some(thread.map_err(system("start its thread"))?);
        let end = Some(ControlEnd { stopped, thread, _file: file });
        Ok(ControlServer { path: path.to_owned(), ending, end })
    }

    /// Ends the server, and lets go of what it manages. Its file stays until the caller reports how
    /// that has ended; no further client is answered there.
    ///
    /// # Panics
    /// Never: the end is there until the server is dropped.
    pub fn end(mut self) -> ControlEnd {
        self.ending.begin();
        self.end.take().expect("it is taken once")
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.ending.begin();
    }
}

/// Makes the socket, and its directory, which only its user can enter.
fn listen(path: &Path) -> Result<(std::os::unix::net::UnixListener, SocketFile), ControlError> {
    if let Some(directory) = path.parent().filter(|it| *it != "" && !it.exists()) {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(|source| ControlError::System {
            path: path.to_owned(),
            doing: "make its directory",
            source,
        })?;
    }
    check_private(path.parent().unwrap_or(path))?;
    match socket::listen(path) {
        Ok((listener, file)) => Ok((listener.into(), file)),
        Err(SocketError::Live(path)) => Err(ControlError::InUse(path)),
        Err(SocketError::NotASocket(path)) => Err(ControlError::NoSocket(path)),
        Err(SocketError::Path { path, doing, source }) => {
            Err(ControlError::System { path, doing, source })
        }
    }
}

/// Accepts connections, of a bounded number at a time, until the server ends.
async fn accept(
    listener: UnixListener,
    router: Router,
    permits: Arc<Semaphore>,
    accepts: watch::Receiver<bool>,
) {
    let mut until = accepts.clone();
    let connections = async {
        loop {
            let permit = permits.clone().acquire_owned().await.expect("it is never closed");
            match listener.accept().await {
                Ok((stream, _)) => {
                    drop(tokio::spawn(connection(stream, router.clone(), permit, accepts.clone())));
                }
                // The system has no descriptor for it.
                Err(_) => tokio::time::sleep(SYSTEM_PAUSE).await,
            }
        }
    };
    let mut connections = pin!(connections);
    let mut end = pin!(ended(&mut until));
    poll_fn(|context| {
        let _: Poll<()> = connections.as_mut().poll(context);
        end.as_mut().poll(context)
    })
    .await;
}

/// Waits until no further connections are accepted.
async fn ended(accepts: &mut watch::Receiver<bool>) {
    // A sender that is dropped ends it, too.
    let _ = accepts.wait_for(|accepts| !accepts).await;
}

/// Serves a connection. One that sends no request, or does not read its answer, in time is closed:
/// it keeps others out.
async fn connection(
    stream: UnixStream,
    router: Router,
    _permit: OwnedSemaphorePermit,
    mut accepts: watch::Receiver<bool>,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    let service = TowerToHyperService::new(router);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SEND_PATIENCE));
    let mut served = pin!(server.serve_connection(TokioIo::new(Box::pin(stream)), service));
    let mut end = pin!(ended(&mut accepts));
    let mut is_ending = false;
    // However it ends, it has ended.
    let _ = poll_fn(|context| {
        if !is_ending && end.as_mut().poll(context).is_ready() {
            is_ending = true;
            served.as_mut().graceful_shutdown();
        }
        served.as_mut().poll(context)
    })
    .await;
}

#[derive(Clone)]
struct Served {
    ending: Arc<Ending>,
    stopped: watch::Receiver<Option<Stopped>>,
    streams: Arc<Semaphore>,
}

impl Served {
    /// What is managed, until the server ends.
    fn managed(&self) -> Result<Arc<dyn Managed>, Box<Response>> {
        let managed = self.ending.managed().clone();
        managed.ok_or_else(|| {
            let why = "the server is being stopped";
            Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, why.into()))
        })
    }
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
        let body = Json::<T>::from_request(request, state);
        match tokio::time::timeout(BODY_PATIENCE, body).await {
            Ok(Ok(Json(value))) => Ok(Body(value)),
            Ok(Err(error)) => Err(problem(error.status(), error.body_text())),
            Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "its body does not come".into())),
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
    let managed = match served.managed() {
        Ok(managed) => managed,
        Err(ending) => return *ending,
    };
    match tokio::task::spawn_blocking(move || order(&*managed)).await {
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
    let document = openapi().to_string();
    let openapi = move || async move { (json, document) };
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
    let managed = match served.managed() {
        Ok(managed) => managed,
        Err(ending) => return *ending,
    };
    match tokio::task::spawn_blocking(move || managed.status()).await {
        Ok(status) => Json(status).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "its thread panicked".into()),
    }
}

async fn metrics(State(served): State<Served>) -> Response {
    let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    let managed = match served.managed() {
        Ok(managed) => managed,
        Err(ending) => return *ending,
    };
    match tokio::task::spawn_blocking(move || managed.metrics()).await {
        Ok(text) => (format, text).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "its thread panicked".into()),
    }
}

/// Has the server stop, and answers when the array has been stopped.
async fn stop(State(mut served): State<Served>) -> Response {
    if let Ok(managed) = served.managed() {
        managed.stop();
    }
    let stopped = served.stopped.wait_for(Option::is_some).await;
    match stopped.ok().and_then(|stopped| stopped.clone()) {
        Some(stopped) => Json(stopped).into_response(),
        None => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server ends without a report of the array's state".into(),
        ),
    }
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

/// Events from number `after` on, as they happen.
async fn events(State(served): State<Served>, Query(After { after }): Query<After>) -> Response {
    let Ok(stream) = served.streams.clone().try_acquire_owned() else {
        let many = format!("{MAX_STREAMS} clients wait for events already");
        return problem(StatusCode::SERVICE_UNAVAILABLE, many);
    };
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    tokio::spawn(async move {
        let _stream = stream;
        let mut seen = after;
        while !served.ending.is_ending.load(Ordering::Relaxed) {
            let Ok(managed) = served.managed() else { return };
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
