//! The tests of the engine from outside, in one binary: it is built and linked once.

mod bad_block_log;
mod discards;
mod joins;
mod lives;
mod metadata;
mod plug;
mod read_balance;
mod replaced;
