//! The vhost-user-blk front: a store as the disk of a virtual machine (virtio 1.2, section 5.2;
//! QEMU's docs/interop/vhost-user.rst). QEMU connects to a unix socket and shares the guest's
//! memory; the guest's driver and this front exchange requests in it, without QEMU.
//!
//! ```text
//!  guest's virtio_blk -> rings in its memory -> ring -> Access -> Store
//!                                          \<- completions fill memory, and the used ring
//! ```
//! *Invariant*: what the guest or QEMU writes into the rings ends in a request inside the store, in
//! an error of that request, or in a ring that is not served any more. It decides no address of
//! this process, and no amount of memory.

mod chain;
mod device;
mod requests;
mod ring;
mod server;

pub use chain::{Chain, Memory, Outside, Ranges};
pub use device::SEG_MAX;
pub use server::{VhostUser, VhostUserError};
