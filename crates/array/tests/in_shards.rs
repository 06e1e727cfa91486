//! Repeats tests of other files with several shards: see `common::shards`.
#![allow(clippy::duplicate_mod, reason = "every file brings what they share along")]

#[path = "api.rs"]
mod api;
#[path = "faults.rs"]
mod faults;
#[path = "files.rs"]
mod files;
#[path = "random.rs"]
mod random;
