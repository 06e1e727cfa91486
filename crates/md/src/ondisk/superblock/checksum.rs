//! Verification of a superblock's checksum, and the sum that both versions use.
//!
//! Invariant: a wrong checksum is a verdict, not an error. mdadm examines such a superblock, the
//! kernel refuses it; which of the two is right is for the caller to say.

use std::fmt;

/// Whether the stored checksum is that of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is. In 0.90, `stored` may be the sum folded to 16 bits, as old kernels wrote it.
    Correct {
        /// The stored checksum.
        stored: u32,
    },
    /// It is not.
    Wrong {
        /// The stored checksum.
        stored: u32,
        /// The computed checksum.
        computed: u32,
    },
}

impl Checksum {
    /// Whether the bytes are those that were written.
    pub fn is_correct(self) -> bool {
        matches!(self, Checksum::Correct { .. })
    }

    /// The stored checksum.
    pub fn stored(self) -> u32 {
        match self {
            Checksum::Correct { stored } | Checksum::Wrong { stored, .. } => stored,
        }
    }
}

/// As mdadm prints it: `b32dfe5b - correct`.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Checksum::Correct { stored } => write!(f, "{stored:x} - correct"),
            Checksum::Wrong { stored, computed } => {
                write!(f, "{stored:x} - expected {computed:x}")
            }
        }
    }
}

/// md's sum: words added up in 64 bits, then both halves together.
pub(super) fn fold(words: impl Iterator<Item = u32>) -> u32 {
    let sum: u64 = words.map(u64::from).sum();
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
