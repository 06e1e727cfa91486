//! The NBD server: with the project's own client, hostile ones, and those that people use. `cargo
//! xtask ci` requires `real_clients` and `newer_clients` to run.

#[path = "../support/array.rs"]
mod support_array;
#[path = "../support/damaged.rs"]
mod support_damaged;
#[path = "../support/held.rs"]
mod support_held;

mod client;
mod encrypted;
mod hostile;
mod newer_clients;
mod real_clients;
mod serve;
mod sessions;
mod sockets;
mod stopping;
