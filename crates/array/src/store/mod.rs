//! Persistent members: opening them, and I/O to them by sector.
//!
//! ```text
//! Location --open--> Device --+--> Disk   metadata, rescue: blocking, by sector of the device
//!                             |      ^
//!                             |   Overlay: writes go to a file of their own
//!                             +--> FileMember   the data of a running array, through io_uring
//! ```

mod areas;
mod device;
mod disk;
mod identity;
mod location;
mod overlay;
mod partitions;
mod signature;

pub use areas::{read_area, read_bad_blocks};
pub use device::{Access, Device, DeviceError, DeviceOptions, DeviceProblem};
pub use disk::Disk;
pub(crate) use disk::read_only_error;
pub use identity::{Identity, Overlap};
pub use location::{Location, LocationError};
pub use overlay::{OverlayDisk, OverlayError, OverlayProblem, open_overlay};
pub use partitions::{Partition, PartitionTable, TableKind, partition_tables};
pub use signature::{Signature, packed_as, signatures, some_data};
