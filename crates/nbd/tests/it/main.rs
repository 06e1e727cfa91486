//! The protocol from outside: whole sessions between its two sides, literal bytes of other
//! implementations' clients, and arbitrary bytes.

mod fuzz;
mod round_trips;
mod sessions;
