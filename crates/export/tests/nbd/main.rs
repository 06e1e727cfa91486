//! The NBD server: with the project's own client, hostile ones, and those that people use. `cargo
//! xtask ci` requires `real_clients` to run.

mod client;
mod hostile;
mod real_clients;
mod serve;
mod sessions;
mod sockets;
mod stopping;
