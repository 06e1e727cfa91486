//! A web page of arrays and measurements while they run.
//!
//! ```text
//!  Feed::view --(one thread, 4 times a second)--> JSON, once --> the last frame --> viewer
//!  Feed::order <-- POST /order, if permitted                          '-----------> viewer
//! ```
//! *Invariant*: what a client does costs a bounded amount of memory, connections and threads, on
//! threads of a lower priority than the arrays'. Nothing is changed without the token, and nothing
//! outside of this host can read without it. The page itself requests nothing of another host.
//! It shows what a [`Feed`] gives; what an array is, is decided elsewhere.
mod access;
mod curve;
mod frames;
mod listener;
mod peer;
mod permits;
mod routes;
mod server;
mod view;

pub use access::{Token, TokenError};
pub use curve::Curve;
pub use server::{PageError, PageOptions, PageServer};
pub use view::{
    Array, Bound, Cell, Disk, Event, Feed, Heat, Machine, Measured, Order, Rates, Refused, Running,
    Severity, Sweep, View, Work,
};
