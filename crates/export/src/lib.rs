//! Frontends that make an array, or what can be read of one, accessible to other processes:
//! [`fuse`], [`nbd`], [`ublk`], [`vhost_user`]; what shows it: [`control`], [`page`].
//!
//! *Invariant*: a frontend decides nothing about the array; it submits requests to a
//! [`store::Store`] without waiting for earlier ones, and replies from their completions. Every
//! queue is bounded: clients that exceed a limit wait.

mod access;
pub mod control;
pub mod fuse;
mod gate;
pub mod nbd;
pub mod page;
pub mod socket;
pub mod store;
pub mod ublk;
pub mod vhost_user;

pub use access::{Access, Data, Port};
