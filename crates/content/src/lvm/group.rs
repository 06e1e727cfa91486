//! A volume group as its metadata describe it.

use std::fmt;

use super::mapping::Mapping;

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// Its name; any text where [`is_plain_name`] says no.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// How often its metadata have been changed: of two copies the higher one is newer.
    pub seqno: u64,
    /// Size of an extent in sectors.
    pub extent_sectors: u64,
    /// Its physical volumes, in the order of the text.
    pub physical: Vec<PhysicalVolume>,
    /// Its logical volumes, in the order of the text.
    pub logical: Vec<LogicalVolume>,
}

/// A physical volume of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// What the segments call it: `pv0`.
    pub key: String,
    /// Its UUID, which is in its label as well.
    pub uuid: String,
    /// The device that it was seen on last: a hint.
    pub device: Option<String>,
    /// The sector at which extent 0 begins.
    pub first_sector: u64,
    /// Number of its extents.
    pub extents: u64,
    /// Whether the group was changed while it was not there.
    pub was_missing: bool,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalVolume {
    /// Its name; any text where [`is_plain_name`] says no.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its size in sectors.
    pub sectors: u64,
    /// Whether it is for users; others are parts of such ones.
    pub is_visible: bool,
    /// The volume that it is a part of.
    pub part_of: Option<String>,
    /// Where its sectors lie, or why that is not enough to read it.
    pub mapping: Result<Mapping, Unserved>,
}

/// Why a logical volume cannot be read from its extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// A segment is of a type that needs more than its extents.
    Type {
        /// As LVM calls it.
        name: String,
        /// The pool of a thin volume, or what a volume is made of.
        of: Vec<String>,
    },
    /// It is a snapshot: it holds the blocks that have changed since.
    Snapshot {
        /// The volume of which it is one.
        origin: String,
    },
    /// A snapshot is being merged into it: some of its blocks are in that.
    Merging {
        /// The snapshot.
        snapshot: String,
    },
    /// Extents lie on another logical volume, as while they are being moved.
    OnVolume {
        /// Its name.
        name: String,
    },
    /// The segments contradict themselves or the physical volumes.
    Segments(&'static str),
    /// Extents belong to another volume as well.
    Shared {
        /// Its name.
        with: String,
    },
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unserved::Type { name, of } => {
                let list = of.join(", ");
                let of = if of.is_empty() { String::new() } else { format!(": {list}") };
                match name.as_str() {
                    "thin" => write!(f, "a thin volume of the pool {list}: not read here"),
                    "thin-pool" => write!(f, "a pool of thin volumes, not read here{of}"),
                    "mirror" => write!(f, "mirrored by LVM, not read here; its parts{of}"),
                    "cache" | "writecache" => {
                        write!(f, "its newest blocks are in a cache ({name}), not read here{of}")
                    }
                    raid if raid.starts_with("raid") => {
                        write!(f, "a RAID of LVM ({raid}), not read here; its parts{of}")
                    }
                    other => write!(f, "a volume of the type {other}, not read here{of}"),
                }
            }
            Unserved::Snapshot { origin } => {
                write!(f, "a snapshot of {origin}: it holds only what has changed since")
            }
            Unserved::Merging { snapshot } => {
                write!(f, "the snapshot {snapshot} is being merged into it: some blocks are there")
            }
            Unserved::OnVolume { name } => {
                write!(f, "a part of it lies on the logical volume {name}, not read here")
            }
            Unserved::Segments(problem) => write!(f, "its metadata are wrong: {problem}"),
            Unserved::Shared { with } => {
                write!(f, "the metadata are wrong: it shares extents with {with}")
            }
        }
    }
}

/// Whether a name is one that LVM would accept: letters, digits, and `+ _ . -`.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
    let is_short = (1..128).contains(&name.len());
    is_short && name != "." && name != ".." && name.bytes().all(is_plain)
}
