//! The program's own client of control sockets.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::api::{Event, Problem};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest answer.
const MAX_ANSWER: usize = 16 << 20;
/// Longest line of an event.
const MAX_LINE: usize = 1 << 20;

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No server is there.
    #[error("{}: no server answers here: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The order was refused, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The answer cannot be understood.
    #[error("{}: no control socket of a server, or its answer cannot be understood: {why}",
        path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system has no more threads or descriptors.
    #[error("cannot start a client: {0}")]
    System(#[source] io::Error),
}

/// A client of one control socket.
pub struct Client {
    path: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// A client of the socket at `path`.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(path: &Path) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Client { path: path.to_owned(), runtime: runtime.map_err(ClientError::System)? })
    }

    /// Gets a document.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, route: &str) -> Result<T, ClientError> {
        self.decoded(self.runtime.block_on(self.whole(Method::GET, route, Vec::new()))?)
    }

    /// Gives an order.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post<T: DeserializeOwned>(
        &self,
        route: &str,
        order: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(order).map_err(|error| self.answer(error.to_string()))?;
        self.decoded(self.runtime.block_on(self.whole(Method::POST, route, body))?)
    }

    /// Calls `each` with every event behind number `after` until it returns `false`, or the server
    /// ends.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn events(
        &self,
        after: u64,
        mut each: impl FnMut(Event) -> bool,
    ) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let route = format!("/events?after={after}");
            let mut response = self.send(Method::GET, &route, Vec::new()).await?;
            let mut line = Vec::new();
            while let Some(frame) = response.body_mut().frame().await {
                let frame = frame.map_err(|error| self.answer(error.to_string()))?;
                for byte in frame.into_data().unwrap_or_default() {
                    if byte != b'\n' {
                        line.push(byte);
                        if line.len() > MAX_LINE {
                            return Err(self.answer("an event is too long".into()));
                        }
                        continue;
                    }
                    if let Some(data) = line.strip_prefix(b"data: ") {
                        let event = serde_json::from_slice(data);
                        let event = event.map_err(|error| self.answer(error.to_string()))?;
                        if !each(event) {
                            return Ok(());
                        }
                    }
                    line.clear();
                }
            }
            Ok(())
        })
    }

    fn answer(&self, why: String) -> ClientError {
        ClientError::Answer { path: self.path.clone(), why }
    }

    fn decoded<T: DeserializeOwned>(&self, body: Bytes) -> Result<T, ClientError> {
        serde_json::from_slice(&body).map_err(|error| self.answer(error.to_string()))
    }

    async fn whole(
        &self,
        method: Method,
        route: &str,
        body: Vec<u8>,
    ) -> Result<Bytes, ClientError> {
        let exchange = async {
            let response = self.send(method, route, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| self.answer(error.to_string()))?.to_bytes();
            if status == StatusCode::OK {
                return Ok(body);
            }
            let problem: Problem = self.decoded(body)?;
            Err(ClientError::Refused(problem.error))
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await;
        answer.unwrap_or_else(|_| Err(self.answer(format!("none came in {PATIENCE:?}"))))
    }

    async fn send(
        &self,
        method: Method,
        route: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let connect = |source| ClientError::Connect { path: self.path.clone(), source };
        let stream = tokio::net::UnixStream::connect(&self.path).await.map_err(connect)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.answer(error.to_string()))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(route)
            .header(header::HOST, "raidlab")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.answer(error.to_string()))?;
        sender.send_request(request).await.map_err(|error| self.answer(error.to_string()))
    }
}
