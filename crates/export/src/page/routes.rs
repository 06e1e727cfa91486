//! What is served: the page's own files, to all; data and orders, by the rules of [`Access`].
//!
//! ```text
//!   GET  /  /page.css  /page.js  /icon.svg     without data
//!   GET  /session     what this client may do; never refused
//!   POST /session     with the token as a header: gives the browser its cookie
//!   GET  /events      frames, as server-sent events
//!   GET  /report      the report
//!   POST /order       an order, as JSON
//! ```
//! Invariant: every response says that nothing of it may be kept, framed or read by other origins.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_stream::StreamExt;

use crate::page::access::{Access, Denied};
use crate::page::frames::Frames;
use crate::page::peer::Peer;
use crate::page::permits::Permits;
use crate::page::view::{Feed, Order};

/// Viewers at a time, of whom one peer has half; connections beyond are for files and orders.
pub const MAX_VIEWERS: usize = 48;
/// Longest order, bytes.
const MAX_ORDER: usize = 8 << 10;
/// How long the body of an order may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// Orders at a time.
pub const MAX_ORDERS: usize = 4;
/// The pause before a wrong token is refused.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_millis(500);

const HTML: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const CHARTS: &str = include_str!("assets/charts.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Of the page: everything from here, nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
/// Of the report, which has its style inside and no script.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                             base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all requests share.
pub struct Shared {
    /// The rules.
    pub access: Access,
    /// Where views come from.
    pub feed: Arc<dyn Feed>,
    /// The frames.
    pub frames: Arc<Frames>,
    /// A permit for each viewer.
    pub viewers: Arc<Permits>,
    /// A permit for each order that may run.
    pub orders: Arc<Semaphore>,
}

type Served = State<Arc<Shared>>;
/// Whose a request is.
type Of = Extension<Peer>;

/// All routes.
pub fn router(shared: Arc<Shared>) -> Router {
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    let script = "text/javascript; charset=utf-8";
    Router::new()
        .route("/", file("text/html; charset=utf-8", HTML))
        .route("/page.css", file("text/css; charset=utf-8", STYLE))
        .route("/page.js", file(script, SCRIPT))
        .route("/charts.js", file(script, CHARTS))
        .route("/icon.svg", file("image/svg+xml", ICON))
        .route("/session", get(session).post(sign_in))
        .route("/events", get(events))
        .route("/report", get(report))
        .route("/order", axum::routing::post(order))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is no such page") })
        .layer(from_fn_with_state(shared.clone(), guarded))
        .with_state(shared)
}

/// What holds for every request, and every response.
async fn guarded(State(shared): Served, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let headers = request.headers();
    // Both may be linked; a cookie is not sent then. Pages of other origins may not embed them.
    let mode = headers.get("sec-fetch-mode").map(|mode| mode.as_bytes());
    let is_linked = matches!(path, "/" | "/report");
    let is_navigation = is_linked && mode.is_none_or(|mode| mode == b"navigate");
    let allowed = shared.access.host(headers);
    let allowed = allowed.and_then(|()| shared.access.origin(headers, is_navigation));
    let mut response = match allowed {
        Ok(()) => next.run(request).await,
        Err(denied) => denied.into_response(),
    };
    let lines = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in lines {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[derive(Serialize)]
struct Problem<'a> {
    error: &'a str,
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("it is JSON");
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn problem(status: StatusCode, error: &str) -> Response {
    json(status, &Problem { error })
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        problem(self.status, self.why)
    }
}

/// What a client may do.
#[derive(Serialize)]
struct Session {
    version: &'static str,
    needs_token: bool,
    may_read: bool,
    has_orders: bool,
    /// There is a permit for one viewer more.
    has_place: bool,
}

async fn session(State(shared): Served, of: Of, headers: HeaderMap) -> Response {
    let access = &shared.access;
    let session = Session {
        version: env!("CARGO_PKG_VERSION"),
        needs_token: access.needs_token(),
        may_read: access.may_read(&headers),
        has_orders: access.has_orders(),
        has_place: shared.viewers.has_one_for(of.0),
    };
    json(StatusCode::OK, &session)
}

async fn sign_in(State(shared): Served, headers: HeaderMap) -> Response {
    if !shared.access.has_token(&headers) {
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
        return problem(StatusCode::UNAUTHORIZED, "this is not the token");
    }
    ([(header::SET_COOKIE, shared.access.set_cookie())], StatusCode::NO_CONTENT).into_response()
}

async fn events(State(shared): Served, of: Of, headers: HeaderMap) -> Response {
    if let Err(denied) = shared.access.read(&headers) {
        return denied.into_response();
    }
    let Some(permit) = shared.viewers.take(of.0) else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "there are too many viewers");
    };
    // One that lost its connection tries again after this time, ms.
    let head = tokio_stream::once(Bytes::from_static(b"retry: 1000\n\n"));
    let frames = head.chain(shared.frames.subscribe()).map(move |frame| {
        // It ends with the stream.
        let _permit = &permit;
        Ok::<_, std::convert::Infallible>(frame)
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

async fn report(State(shared): Served, headers: HeaderMap) -> Response {
    if !shared.access.may_read(&headers) {
        return problem(StatusCode::UNAUTHORIZED, "the token is needed");
    }
    let feed = shared.feed.clone();
    match tokio::task::spawn_blocking(move || feed.report()).await {
        Ok(Some(report)) => {
            let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8");
            let policy = (header::CONTENT_SECURITY_POLICY, REPORT_POLICY);
            // Not copied: many may read it at a time, slowly.
            let report = Bytes::from_owner(Arc::<[u8]>::from(report));
            ([kind, policy], Body::from(report)).into_response()
        }
        Ok(None) => problem(StatusCode::NOT_FOUND, "there is no report yet"),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "its thread panicked"),
    }
}

#[derive(Serialize)]
struct Done {
    done: String,
}

async fn order(State(shared): Served, headers: HeaderMap, body: Body) -> Response {
    if let Err(denied) = shared.access.order(&headers) {
        return denied.into_response();
    }
    let body = tokio::time::timeout(BODY_PATIENCE, axum::body::to_bytes(body, MAX_ORDER)).await;
    let body = match body {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return problem(StatusCode::PAYLOAD_TOO_LARGE, "an order is shorter"),
        Err(_) => return problem(StatusCode::REQUEST_TIMEOUT, "the order came too slowly"),
    };
    let order: Order = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => return problem(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
    };
    let Ok(permit) = shared.orders.clone().try_acquire_owned() else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "other orders are being carried out");
    };
    let feed = shared.feed.clone();
    let ordered = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        feed.order(&order)
    });
    match ordered.await {
        Ok(Ok(done)) => json(StatusCode::OK, &Done { done }),
        Ok(Err(refused)) => problem(StatusCode::CONFLICT, &refused.to_string()),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "the order's thread panicked"),
    }
}
