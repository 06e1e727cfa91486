//! The possible places of superblocks on a device, and the choice of the valid one.
//!
//! ```text
//! sector 0    8                            D-256..-128   D-24..-16      D
//!        |1.1 |1.2                         |0.90         |1.0           |
//! ```
//!
//! Invariant: every possible place of a superblock has an outcome, so that `examine` can report why
//! a device has, or has not, the expected superblock.

use std::fmt;

use super::position::location;
use super::{Checksum, Superblock, SuperblockV0, SuperblockV1, V0_BYTES};
use crate::ondisk::{DecodeError, Version};

/// Bytes read at each place. Devices end 8 KiB or more after the start of a 1.0 superblock.
pub const READ_BYTES: usize = 4096;

/// A place where a superblock could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The version that has it there.
    pub version: Version,
    /// Where: [`READ_BYTES`] from this sector on.
    pub sector: u64,
}

/// All places on a device of this length, in the order in which mdadm looks.
pub fn candidates(device_sectors: u64) -> Vec<Candidate> {
    let place = |version| Some(Candidate { version, sector: location(version, device_sectors)? });
    Version::ALL.into_iter().filter_map(place).collect()
}

/// The outcome at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It could not be read; what the reader said.
    Unreadable(String),
    /// No superblock: the magic is not there.
    NoMagic,
    /// The magic, but no superblock of this version.
    Invalid(DecodeError),
    /// A superblock of another place: copied, or of a device that was resized. It is ignored.
    Misplaced {
        /// Contents of the superblock.
        superblock: Box<Superblock>,
        /// Whether it is whole.
        checksum: Checksum,
    },
    /// A superblock.
    Found {
        /// Contents of the superblock.
        superblock: Box<Superblock>,
        /// Whether it is whole. mdadm examines it all the same; the kernel refuses it.
        checksum: Checksum,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Outcome::NoMagic => write!(f, "no superblock"),
            Outcome::Invalid(error) => write!(f, "{error}"),
            Outcome::Misplaced { superblock, .. } => {
                write!(f, "a superblock that belongs to sector {}", superblock.sector())
            }
            Outcome::Found { superblock, checksum } => {
                let verdict = if checksum.is_correct() { "" } else { ", checksum wrong" };
                write!(f, "superblock {}{verdict}", superblock.version())
            }
        }
    }
}

/// The superblocks found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// Every place with what was there.
    pub outcomes: Vec<(Candidate, Outcome)>,
    /// Index of the device's own superblock.
    pub chosen: Option<usize>,
}

impl Detection {
    /// The device's superblock.
    pub fn superblock(&self) -> Option<(&Superblock, Checksum)> {
        match &self.outcomes[self.chosen?].1 {
            Outcome::Found { superblock, checksum } => Some((superblock, *checksum)),
            _ => None,
        }
    }

    /// The other superblocks that are on the device; more than none deserves a word of warning.
    pub fn others(&self) -> impl Iterator<Item = (Candidate, &Superblock, Checksum)> {
        self.outcomes.iter().enumerate().filter_map(|(index, (candidate, outcome))| match outcome {
            Outcome::Found { superblock, checksum } if Some(index) != self.chosen => {
                Some((*candidate, &**superblock, *checksum))
            }
            _ => None,
        })
    }

    /// The same without what is at a sector: it is that of another device.
    pub fn without(mut self, sector: Option<u64>) -> Detection {
        if let Some(sector) = sector {
            self.outcomes.retain(|(candidate, _)| candidate.sector != sector);
            self.chosen = newest(&self.outcomes);
        }
        self
    }
}

/// Looks at every place of a device. `read` gives the [`READ_BYTES`] of a place.
///
/// As with mdadm, the superblock with the latest creation time is the device's (the first of
/// equals), whatever its checksum: an older one that is whole is what a former array left.
pub fn detect<B, E>(
    device_sectors: u64,
    mut read: impl FnMut(Candidate) -> Result<B, E>,
) -> Detection
where
    B: AsRef<[u8]>,
    E: fmt::Display,
{
    let outcomes: Vec<(Candidate, Outcome)> = candidates(device_sectors)
        .into_iter()
        .map(|candidate| {
            let outcome = match read(candidate) {
                Ok(bytes) => outcome(candidate, bytes.as_ref()),
                Err(error) => Outcome::Unreadable(error.to_string()),
            };
            (candidate, outcome)
        })
        .collect();
    Detection { chosen: newest(&outcomes), outcomes }
}

fn newest(outcomes: &[(Candidate, Outcome)]) -> Option<usize> {
    let mut chosen = None;
    for (index, (_, outcome)) in outcomes.iter().enumerate() {
        let Outcome::Found { superblock, .. } = outcome else { continue };
        let created = superblock.metadata().created;
        if chosen.is_none_or(|(_, best)| best < created) {
            chosen = Some((index, created));
        }
    }
    chosen.map(|(index, _)| index)
}

/// What these bytes are at this place.
fn outcome(candidate: Candidate, bytes: &[u8]) -> Outcome {
    let Candidate { version, sector } = candidate;
    let decoded = match version {
        Version::V0_90 => SuperblockV0::decode(bytes, sector)
            .map(|(superblock, checksum)| (Superblock::from(superblock), checksum)),
        _ => SuperblockV1::decode(bytes, version)
            .map(|(superblock, checksum)| (Superblock::from(superblock), checksum)),
    };
    match decoded {
        Err(error) if error.offset == 0 && bytes.len() >= V0_BYTES => Outcome::NoMagic,
        Err(error) => Outcome::Invalid(error),
        Ok((superblock, checksum)) => {
            let (is_here, superblock) = (superblock.sector() == sector, Box::new(superblock));
            match is_here {
                true => Outcome::Found { superblock, checksum },
                false => Outcome::Misplaced { superblock, checksum },
            }
        }
    }
}
