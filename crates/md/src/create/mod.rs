//! The plan of a new array: mdadm 4.2's defaults, placement and rounding.
//!
//! ```text
//!   request ──place──> data offset, used size, areas ──geometry──> plan ──initial──> superblocks
//! ```
//!
//! Invariant: pure; what the plan names is all that has to be written, and the areas of a member
//! touch neither each other nor its data. Formulas: docs/format/placement.md.
//!
//! Where mdadm differs on purpose: it creates RAID 4 and 5 without the last member, which it then
//! rebuilds as a spare; here all members are active from the start, and the array is resynced from
//! 0. For one missing member of a RAID 6 it makes another one a spare; here that one keeps its slot
//! and is rebuilt there. Both ways end in the same array.
//!
//! Called by `array` and by the command line's `create`.

mod addition;
mod device_layout;
mod initial;
mod plan;
mod request;
mod types;

pub use addition::{Addition, AdditionError, addition};
pub use plan::plan;
pub use request::{BitmapOption, CreateError, Device, Request};
pub use types::{DeviceLayout, Plan};
