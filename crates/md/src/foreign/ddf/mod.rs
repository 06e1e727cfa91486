//! SNIA's Common RAID Disk Data Format: sections at the end of each disk, written twice. Format:
//! docs/format/ddf.md.

mod format;
mod levels;
mod members;
mod sections;
mod tables;

pub use format::{
    CONFIG_BYTES, CONFIG_FIELDS, DISK_FIELDS, DISK_STATES, HEADER_BYTES, HEADER_FIELDS, MAGICS,
    OWN_FIELDS, SECTION_FIELDS, VIRTUAL_FIELDS, VIRTUAL_STATES,
};
pub use levels::level_name;
pub(super) use members::volumes;
pub use sections::{Config, Copy, DecodeProblem, Header, PhysicalDisk, VirtualDisk, guid_text};
pub use tables::{Tables, read};
