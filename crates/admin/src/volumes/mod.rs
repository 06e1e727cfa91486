//! What lies on arrays: partitions, logical volumes of LVM2, and what each of them holds.
//!
//! ```text
//! arrays --(rescue)--> readable arrays --> whole, partitions --+--> identified contents
//!                                              ^               |
//!                                              |   physical volumes of all arrays
//!                                              |               v
//!                                              +------ volume groups --> logical volumes
//! ```
//! *Invariant*: a sector of a volume is read from where its table or its metadata say, or it is
//! reported as lost. What is named and cannot be read says why.

mod explore;
mod finder;
mod groups;
mod names;
mod open;
mod view;
mod volume;

pub use view::VolumeView;
pub use volume::{Access, ArrayBelow, Kind, Volume, VolumeError, Volumes};
