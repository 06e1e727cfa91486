//! Why metadata of other formats, or a volume of them, cannot be used.

use thiserror::Error;

use super::ddf::DecodeProblem;
use crate::ondisk::DecodeError;

/// Why metadata that are on a disk, or a volume of them, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// A structure is not valid.
    #[error(transparent)]
    Structure(#[from] DecodeError),
    /// A structure of DDF is not valid.
    #[error(transparent)]
    DdfStructure(#[from] DecodeProblem),
    /// The disk cannot be read there.
    #[error("sector {sector}: {error}")]
    Read {
        /// The first sector.
        sector: u64,
        /// The error.
        error: String,
    },
    /// Metadata are to be where the disk has ended.
    #[error("{sectors} sectors from {from} are not on the disk")]
    Outside {
        /// The first sector.
        from: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// More metadata than fit in front of their anchor.
    #[error("{bytes} bytes of metadata are longer than the disk")]
    Long {
        /// Their size by the anchor.
        bytes: usize,
    },
    /// DDF in blocks of 4096 bytes.
    #[error("DDF on a disk with blocks of 4096 bytes is not read here")]
    LargeBlocks,
    /// Neither copy of DDF can be used.
    #[error("{}", .0.join("; "))]
    NoCopy(Vec<String>),
    /// A volume has no geometry here: a sentence.
    #[error("{0}")]
    Volume(String),
}
