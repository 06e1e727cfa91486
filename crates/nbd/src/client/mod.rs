//! The client's side: [`Handshake`] chooses an export, [`Requests`] keeps account of what is in
//! flight.

mod coverage;
mod handshake;
mod requests;

pub use handshake::{Event, Handshake, HandshakeError, Negotiated, Progress, Wanted};
pub use requests::{Failure, Received, Requests, Unsent};
