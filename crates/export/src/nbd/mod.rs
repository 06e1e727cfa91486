//! Stores as NBD exports, on unix sockets and TCP.
//!
//! ```text
//!  accepting thread --- a thread per connection --- Access ---> Store
//!                       |  recv: many requests          |
//!                       |  sendmsg: many replies  <-- completions (queue, eventfd)
//! ```
//! *Invariant*: everything that a client can make grow has a bound: connections, requests and
//! replies of a connection, the buffers that it holds. A client that does not read its replies, or
//! sends half a request, keeps others from nothing but its share of the buffers, and not for ever.
//!
//! Replies are sent in the order in which their requests end. In TLS, a connection's thread uses
//! the plain end of a tunnel. TCP without it is refused on addresses that other hosts reach, unless
//! the caller insists.

mod accept;
mod completions;
mod connection;
mod input;
mod listener;
mod negotiation;
mod outbox;
mod server;
mod serving;
mod shares;
mod statistics;
mod transmission;

pub use listener::{ListenError, Listener};
pub use server::{NbdExport, Server, ServerError};
pub use serving::ServerLimits;
pub use statistics::Statistics;
