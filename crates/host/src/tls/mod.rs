//! TLS for NBD, of a server and of a client: certificates in directories as nbdkit, libnbd and QEMU
//! know them, and a tunnel that lets the rest of the program use a plain socket.
//!
//! ```text
//!  NBD <-- plain socket pair --> tunnel's thread: rustls <-- TCP or unix socket --> peer
//! ```
//! *Invariant*: nothing reaches the plain side before the peer's certificate, where one is
//! required, has been verified; what a peer can make grow is bounded. The keys that a peer could
//! know beforehand (PSK) are not supported.
mod certificates;
mod tunnel;

pub use certificates::{ClientTls, ServerTls, TlsError, TlsProblem};
pub use tunnel::{HandshakeError, Tunnel};
