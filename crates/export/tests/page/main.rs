//! The server from outside: sockets, as clients of all kinds use them.

mod hostile_clients;
mod support;
