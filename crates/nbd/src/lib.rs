//! The NBD protocol as pure codecs and state machines: fixed newstyle negotiation, and requests and
//! replies in the three styles (simple, structured, extended). Bytes come in as slices and go out
//! into buffers of the caller; sockets belong to `export` (server) and `array` (client).
//!
//! ```text
//!              server                            client
//!  negotiation server::Handshake                 client::Handshake
//!  requests    Request::decode, Limits::check    client::Requests::start
//!  replies     ReplyTo::{done, data, error, ..}  client::Requests::receive
//! ```
//!
//! *Invariant*: whatever the peer sends, decoding ends with a value, a typed refusal or a typed
//! violation: it never panics, and no number of the peer decides how much memory is allocated.
//!
//! The facts are those of `doc/proto.md` of <https://github.com/NetworkBlockDevice/nbd>. Not here:
//! oldstyle negotiation, NBD_OPT_PEEK_EXPORT, NBD_CMD_RESIZE, and NBD_CMD_BLOCK_STATUS with a
//! payload.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod client;
mod errno;
mod export;
mod extent;
mod reply;
mod request;
pub mod server;
mod violation;
pub mod wire;

pub use errno::Errno;
pub use export::{BlockSizes, Export, Features};
pub use extent::{Extent, decode_extents};
pub use reply::{Head, ReplyTo};
pub use request::{Limits, Operation, Refusal, Request};
pub use violation::Violation;

/// The form of requests and replies that a session negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// Requests of 28 bytes, replies of 16; data follow a reply without an error.
    Simple,
    /// Replies in chunks that say what they carry.
    Structured,
    /// Requests and chunks of 32 bytes, with lengths of 64 bits.
    Extended,
}

/// Longest name of an export, and longest text of any other kind, in bytes.
pub const MAX_STRING_BYTES: usize = 4096;
/// Longest payload of a request or of a chunk of a reply: what every client and server supports.
pub const MAX_PAYLOAD_BYTES: u32 = 32 << 20;
/// The metadata context that this crate serves and requests.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";
