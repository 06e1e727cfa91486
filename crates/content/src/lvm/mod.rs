//! LVM2: what a physical volume and its copies of the metadata say, and where the sectors of a
//! logical volume lie.
//!
//! ```text
//! physical volume:  | label | metadata area: header, ring of texts | data: extents 0, 1, 2 ... |
//! volume group:     the newest valid text of all its physical volumes
//! logical volume:   segments of extents ------------------> runs of sectors of physical volumes
//! ```
//! docs/format/lvm2.md describes the format.
//!
//! Invariant: nothing is believed because a checksum is right. A logical volume has a mapping only
//! if its segments follow each other, lie on physical volumes of the group, inside of them, and
//! share nothing with another volume.

mod decode;
mod group;
mod mapping;
mod metadata;
mod syntax;

pub use decode::{DecodeError, decode};
pub use group::{LogicalVolume, PhysicalVolume, Unserved, VolumeGroup, is_plain_name};
pub use mapping::{Located, Mapping};
pub use metadata::{Label, MetadataError, MetadataProblem, label, texts};
pub use syntax::SyntaxError;
