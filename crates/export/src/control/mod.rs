//! The control socket: HTTP and JSON on a unix socket, described by `openapi.json`.
//!
//! ```text
//!  raidlab status NAME, curl, Prometheus --- HTTP ---> Server ---> Managed (an array, ...)
//! ```
//! Invariant: only the user who runs the server, and root, can connect: the socket has mode 0600
//! from its beginning. Connections, the length of requests and the events that wait for a client
//! are bounded; what a client does not read is dropped with its connection.

pub mod api;
mod client;
mod managed;
mod metrics;
mod rescued;
mod server;

pub use client::{Client, ClientError};
pub use managed::{Managed, ManagedArray, Refused};
pub use rescued::ManagedRescue;
pub use server::{ControlEnd, ControlError, ControlServer, control_path, runtime_directory};

/// The description of the interface, in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");
