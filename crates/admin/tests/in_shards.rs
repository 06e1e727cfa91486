//! Repeats the tests of `lasting.rs` with several shards.
#![allow(clippy::duplicate_mod, reason = "a module here, a test of its own there")]

#[path = "lasting.rs"]
mod lasting;
