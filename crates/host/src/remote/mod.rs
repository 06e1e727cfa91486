//! NBD exports as devices: members on other hosts.
//!
//! ```text
//! NbdUri --open--> NbdExport --+--> Disk (Device)         blocking: metadata, rescue
//!                     |        +--> array::NbdMember      the data of a running array
//!                 connection: one socket, one thread, requests in flight
//! ```

mod connection;
mod export;
mod stream;
mod uri;

pub use connection::{CLEARED_BYTES_PER_SECOND, Completes, ExportError};
pub use export::{ExportProblem, NbdExport, Transfer};
pub use uri::{Endpoint, NbdUri, UriProblem, UriTls, escaped_for_uri};
