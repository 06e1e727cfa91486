//! Access to a host: the holders of members (files, block devices, parts of images and NBD exports;
//! opened, locked, identified and examined), system calls ([`sys`]), TLS ([`tls`]).
//!
//! ```text
//! Location --open--> Device --+--> Disk   metadata, rescue: blocking, by sector of the device
//!                             |      ^
//!                             |   Overlay: writes go to a file of their own
//!                             +--> array::{FileMember, NbdMember}   the data of a running array
//! ```
//!
//! *Invariant*: what is open for writing is locked against other writers on this host, and a
//! read-only device is never written. No decision about an array is made here.

mod access;
mod areas;
mod contents;
mod device;
mod disk;
mod file;
mod holder;
mod identity;
mod location;
mod lock;
mod mapfile;
mod memory_disk;
mod open_file;
mod overlay;
mod partitions;
mod problem;
mod remote;
mod serial;
mod signature;
pub mod sys;
pub mod tls;
mod unread;
mod window;

pub use access::{Access, DeviceOptions};
pub use areas::{AreaError, read_area, read_bad_blocks};
pub use contents::{data_signs, foreign, member_signs, partition_signs, superblocks};
pub use device::{Device, InUse};
pub use disk::{DATA_STEP, Disk, DiskLayer, read_only_error};
pub use file::{FileId, direct_block, hole_end, is_shorter};
pub use holder::Holder;
pub use identity::{Attachment, Identity, Overlap, in_use};
pub use location::{Location, LocationError, MapChoice, MemberName};
pub use lock::{LockedFile, Locks, report_waits};
pub use mapfile::{MapBlock, MapStatus, Mapfile, MapfileError, parse_list};
pub use memory_disk::MemoryDisk;
pub use overlay::{
    OverlayDisk, OverlayError, OverlayProblem, open_overlay, overlay_id, remove_unused_overlay,
};
pub use partitions::{Partition, PartitionTable, TableKind, partition_tables};
pub use problem::{DeviceError, DeviceProblem};
pub use remote::{
    CLEARED_BYTES_PER_SECOND, Completes, Endpoint, ExportError, ExportProblem, NbdExport, NbdUri,
    Transfer, UriProblem, UriTls, escaped_for_uri,
};
pub use serial::serial;
pub use signature::{Signature, packed_as, signatures, some_data};
pub use unread::{LISTED, MapError, MapProblem, RescueMap, Unread};
