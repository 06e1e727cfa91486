//! Repeats tests of `it` with several shards: see `common::shards`, which has another crate around
//! it here.

#[path = "it/common/mod.rs"]
#[allow(dead_code, reason = "not all tests are here")]
mod common;

#[path = "it/api.rs"]
mod api;
#[path = "it/faults.rs"]
mod faults;
#[path = "it/files.rs"]
mod files;
#[path = "it/random.rs"]
mod random;
