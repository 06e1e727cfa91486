//! The control socket: HTTP and JSON on a unix socket, described in OpenAPI 3.1.
//!
//! ```text
//!  raidlab status NAME, curl, Prometheus --- HTTP ---> Server ---> Managed (an array, ...)
//! ```
//! Invariant: only the user who runs the server, and root, can connect: the socket has mode 0600
//! from its beginning. Connections, the length of requests and the events that wait for a client
//! are bounded; what a client does not read is dropped with its connection.

mod client;
mod managed;
mod metrics;
mod openapi;
mod rescued;
mod server;

pub use admin::serving::api;
pub use client::{Client, ClientError};
pub use managed::{Managed, ManagedArray, Refused};
pub use openapi::openapi;
pub use rescued::ManagedRescue;
pub use server::{ControlEnd, ControlError, ControlServer, control_path, runtime_directory};
