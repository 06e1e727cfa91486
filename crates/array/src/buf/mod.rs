//! Memory that the kernel, members and parity code read and write.
//!
//! Invariant: a byte has one owner at a time. Only the driver turns slices into memory, for an
//! effect that the engine has issued; the engine never has two effects in flight that write the
//! same bytes, and a [`Lease`] belongs either to its host or to the driver. Regions outlive every
//! operation on them: the driver drains its ring before it releases them. One exception: the kernel
//! may send bytes of members while writes change them (`filled`).
//!
//! This folder is one of the few places with `unsafe`.

mod compare;
mod compute;
mod copy;
mod filled;
mod growing;
mod in_place;
mod lease;
mod lent;
mod region;
mod store_policy;

pub use filled::Filled;
pub use lease::{Lease, LeasePool};
pub use region::{Region, Regions, Span};

pub(crate) use compute::{compute, prefetch};
pub(crate) use copy::store_fence;
pub(crate) use growing::Growing;
pub(crate) use in_place::InPlaceSources;
pub(crate) use lent::LEND_FROM_BYTES;
pub(crate) use store_policy::StorePolicy;
