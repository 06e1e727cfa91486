//! Repeats the tests of persistent arrays with several shards.

#[path = "it/creation.rs"]
mod creation;
#[path = "it/lasting/mod.rs"]
mod lasting;
