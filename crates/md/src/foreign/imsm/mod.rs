//! Intel Matrix Storage (IMSM, RST, VROC): the table of a container's disks and volumes at the end
//! of each disk. Format: docs/format/imsm.md.

mod format;
mod members;
mod table;

pub use format::{
    DISK_FIELDS, DISK_STATES, FIELDS, HEADER_BYTES, MAP_FIELDS, MAP_STATES, MIGRATIONS, SIGNATURE,
    VOLUME_FIELDS,
};
pub use members::same_serial;
pub(super) use members::volumes;
pub use table::{DiskEntry, Map, SlotEntry, Table, Volume, anchor_sectors, decode, read};
