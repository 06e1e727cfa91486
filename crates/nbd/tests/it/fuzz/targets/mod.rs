//! What is fuzzed, and how inputs are made. Used by the test beside it and by the example
//! `nbd_fuzz`.
//!
//! An input is all that a peer sends in one session. It is given in pieces: what a side does must
//! not depend on them.

mod client;
mod mutate;
mod run;
mod server;

pub use run::{Tally, run};

/// A side under test.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Valid sessions.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Plays a session, in pieces that the number decides, and checks what must hold of any;
    /// panics if it does not.
    pub check: fn(&[u8], u64) -> Outcome,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the peer wanted.
    Completed,
    /// Its bytes came to an end.
    Unfinished,
    /// It broke a rule.
    Violation,
}

/// All of them.
pub const TARGETS: &[Target] = &[server::SERVER, client::CLIENT];
