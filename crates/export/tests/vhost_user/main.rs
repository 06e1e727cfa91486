//! The vhost-user front, with a driver of its own on the other side: one that does what it may, and
//! ones that do not. Guests boot with it in raidlab's tests.

#[path = "../support/array.rs"]
mod support_array;
#[path = "../support/damaged.rs"]
mod support_damaged;
#[path = "../support/held.rs"]
mod support_held;

mod driver;
mod hostile;
mod machines;
mod requests;
