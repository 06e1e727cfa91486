//! The request for a new array, and the errors of an invalid one.
//!
//! Invariant: every error names the option or the label of the device, and a valid value.

use crate::geometry::GeometryError;
use crate::layout::Layout;
use crate::level::Level;
use crate::ondisk::bitmap::PlacementError;
use crate::ondisk::superblock::{Policy, StateError};
use crate::ondisk::{Timestamp, Uuid, Version};
use crate::units::show_size;
use std::fmt;

/// A device for the new array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The caller's name for it, used in messages.
    pub label: String,
    /// Size in sectors.
    pub sectors: u64,
    /// Logical block size in bytes.
    pub logical_block: u32,
    /// UUID of the new member (1.x).
    pub uuid: Uuid,
    /// Its data offset in sectors, if it differs from the others' (mdadm: `variable`).
    pub data_offset: Option<u64>,
    /// Write-mostly: reads prefer other members.
    pub write_mostly: bool,
    /// Failfast: the first error fails it.
    pub failfast: bool,
}

/// Choice of the write-intent bitmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitmapOption {
    /// As mdadm does: if the members are used for more than 100 GiB each, or with write-behind.
    #[default]
    Auto,
    /// No bitmap.
    None,
    /// An internal bitmap.
    Internal {
        /// Bitmap chunk size in bytes; `None`: mdadm's choice.
        chunk_bytes: Option<u64>,
    },
}

/// A new array, in mdadm's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The level.
    pub level: Level,
    /// `None`: [`Layout::default_for`] the level.
    pub layout: Option<Layout>,
    /// `None`: 512 KiB, on levels with chunks. Linear: sizes are rounded to it.
    pub chunk_sectors: Option<u64>,
    /// Version of the metadata.
    pub version: Version,
    /// Number of slots.
    pub raid_devices: usize,
    /// The devices of the slots in order, `None` where one is missing, then the spares.
    pub devices: Vec<Option<Device>>,
    /// Sectors of each member to use (mdadm: `--size`); `None`: what the smallest has.
    pub used_sectors: Option<u64>,
    /// Data offset in sectors; `None`: mdadm's choice.
    pub data_offset: Option<u64>,
    /// The write-intent bitmap.
    pub bitmap: BitmapOption,
    /// Consistency policy; `None`: a bitmap if there is one.
    pub policy: Option<Policy>,
    /// Maximum number of outstanding write-behind writes; implies a bitmap.
    pub write_behind: Option<u32>,
    /// The members are in sync already, or shall be called so.
    pub assume_clean: bool,
    /// All members are zero-filled: they are in sync on every level, for the parity of zeroes is
    /// zero, and need no first resync.
    pub members_are_zero: bool,
    /// Allow a single device.
    pub force: bool,
    /// The array's name; 1.x only.
    pub name: String,
    /// Written before the name, if there is room; 1.x only.
    pub homehost: Option<String>,
    /// UUID of the new array.
    pub set_uuid: Uuid,
    /// Creation time.
    pub now: Timestamp,
}

impl Request {
    /// mdadm's defaults for a level over devices that are all active.
    pub fn new(level: Level, devices: Vec<Device>, set_uuid: Uuid, now: Timestamp) -> Request {
        Request {
            level,
            layout: None,
            chunk_sectors: None,
            version: Version::V1_2,
            raid_devices: devices.len(),
            devices: devices.into_iter().map(Some).collect(),
            used_sectors: None,
            data_offset: None,
            bitmap: BitmapOption::Auto,
            policy: None,
            write_behind: None,
            assume_clean: false,
            members_are_zero: false,
            force: false,
            name: String::new(),
            homehost: None,
            set_uuid,
            now,
        }
    }
}

/// Why an array cannot be created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// Fewer devices (with missing ones) than slots.
    TooFewDevices {
        /// Number of devices given.
        given: usize,
        /// Number of slots.
        raid_devices: usize,
    },
    /// A number of slots that needs [`Request::force`].
    SingleDevice {
        /// The level.
        level: Level,
    },
    /// More devices than the metadata describes.
    TooManyDevices {
        /// The metadata.
        version: Version,
        /// Number of devices given.
        given: usize,
        /// Maximum of this metadata version.
        most: usize,
    },
    /// A level without redundancy has neither spares nor missing members.
    NoRedundancy {
        /// The level.
        level: Level,
        /// `spares` or `missing members`.
        what: &'static str,
    },
    /// More members are missing than the level tolerates.
    TooManyMissing {
        /// The level.
        level: Level,
        /// Members given.
        present: usize,
        /// Number of slots.
        raid_devices: usize,
    },
    /// A spare cannot be missing.
    MissingSpare,
    /// Two options, or an option and the level or metadata, exclude each other.
    Conflict {
        /// The option.
        option: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// The device has no room for data behind its metadata.
    DeviceTooSmall {
        /// Label of the device.
        label: String,
        /// Its size in sectors.
        sectors: u64,
        /// Minimum size in sectors.
        least: u64,
    },
    /// The size requested, or data offset with it, goes beyond the device.
    SizeTooLarge {
        /// Label of the device.
        label: String,
        /// Sectors requested.
        wanted: u64,
        /// Sectors that it has for data.
        room: u64,
    },
    /// The data offset requested leaves no room for the metadata before it.
    DataOffsetTooSmall {
        /// The requested offset, sectors.
        data_offset: u64,
        /// The minimum, sectors.
        least: u64,
    },
    /// A member size that 0.90 cannot represent.
    TooLargeForV0 {
        /// Sectors of each member.
        used_sectors: u64,
    },
    /// The name does not fit.
    Name {
        /// The name.
        name: String,
    },
    /// No such array.
    Geometry(GeometryError),
    /// No such bitmap.
    Bitmap(PlacementError),
    /// The metadata cannot express it.
    State(StateError),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::TooFewDevices { given, raid_devices } => {
                write!(
                    f,
                    "devices: {given} given for {raid_devices} slots; a slot may be 'missing'"
                )
            }
            CreateError::SingleDevice { level } => {
                write!(f, "raid-devices: 1 is unusual for {level}; force it if it is meant")
            }
            CreateError::TooManyDevices { version, given, most } => {
                write!(f, "devices: {given} given, metadata {version} describes at most {most}")
            }
            CreateError::NoRedundancy { level, what } => {
                write!(f, "devices: {level} has no redundancy and so no {what}")
            }
            CreateError::TooManyMissing { level, present, raid_devices } => write!(
                f,
                "devices: {present} of {raid_devices} members do not make a {level}: too many are \
                 missing"
            ),
            CreateError::MissingSpare => write!(f, "devices: a spare cannot be missing"),
            CreateError::Conflict { option, problem } => write!(f, "{option}: {problem}"),
            CreateError::DeviceTooSmall { label, sectors, least } => {
                let (size, room) = (show_size(*sectors), show_size(*least));
                write!(f, "{label}: {sectors} sectors ({size}), needs at least {least} ({room})")
            }
            CreateError::SizeTooLarge { label, wanted, room } => {
                let (size, there) = (show_size(*wanted), show_size(*room));
                write!(
                    f,
                    "size: {wanted} sectors ({size}), but {label} has room for {room} ({there})"
                )
            }
            CreateError::DataOffsetTooSmall { data_offset, least } => write!(
                f,
                "data-offset: {data_offset} sectors, but the metadata before it needs {least}"
            ),
            CreateError::TooLargeForV0 { used_sectors } => write!(
                f,
                "size: {used_sectors} sectors of each member, metadata 0.90 counts to 4 TiB"
            ),
            CreateError::Name { name } => {
                write!(f, "name: '{name}' is longer than 31 bytes or has a character of no name")
            }
            CreateError::Geometry(error) => error.fmt(f),
            CreateError::Bitmap(error) => error.fmt(f),
            CreateError::State(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CreateError {}

impl From<GeometryError> for CreateError {
    fn from(error: GeometryError) -> CreateError {
        CreateError::Geometry(error)
    }
}

impl From<PlacementError> for CreateError {
    fn from(error: PlacementError) -> CreateError {
        CreateError::Bitmap(error)
    }
}

impl From<StateError> for CreateError {
    fn from(error: StateError) -> CreateError {
        CreateError::State(error)
    }
}
