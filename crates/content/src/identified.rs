//! What a format says of itself.

use crate::kind::Kind;

/// What was recognised, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// What it is.
    pub kind: Kind,
    /// Its label or name; can be printed.
    pub label: Option<String>,
    /// Its UUID or serial number, in the form that blkid prints.
    pub uuid: Option<String>,
    /// Size in bytes that it says it has; `None` if it does not say.
    pub bytes: Option<u64>,
    /// Whether the checksum of its superblock holds.
    pub checksum: Checksum,
}

impl Identified {
    /// A format of which only the name is known.
    pub(crate) fn only(kind: Kind) -> Identified {
        Identified { kind, label: None, uuid: None, bytes: None, checksum: Checksum::Absent }
    }
}

/// Whether a checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// It holds.
    Good,
    /// The format, or this version of it, has none, or one that is not computed here.
    Absent,
    /// It does not hold: the superblock is damaged.
    Bad,
}
