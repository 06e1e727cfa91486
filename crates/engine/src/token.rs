//! The value that links a completion to its effect.
//!
//! ```text
//! 63..60  59........52  51..................28  27.................0
//! kind    member slot   generation              slot in its table
//! ```
//! Invariant: a token is resolved through its table's generation, so a late or repeated completion
//! cannot touch a slot that has been reused.

use crate::slab::Key;

/// An opaque value that an executor returns with the completion of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

/// The table and the step that a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A direct read of a request, straight into its buffer.
    Read,
    /// A write (or discard, or write of zeroes) of a request on a level without parity.
    NonParityWrite,
    /// One step in repairing a mirrored range after a read error.
    NonParityRepair,
    /// Member I/O of a stripe operation.
    StripeIo,
    /// Parity work of a stripe operation.
    StripeCompute,
    /// A member's flush.
    Flush,
    /// A read or a write of a resync on a level with copies.
    NonParityResync,
    /// A read or a write of a scrub on a level with copies.
    CopyScrub,
    /// A comparison of a scrub on a level with copies.
    CopyCompare,
    /// A discard or a write of zeroes of whole rows.
    RowsZero,
    /// An operation on a slot whose member is being replaced; its slot says which of the two.
    Placed,
    /// A write of a member's partial parity log.
    Log,
    /// A member's flush before the next log.
    LogFlush,
}

const KINDS: [Kind; 13] = [
    Kind::Read,
    Kind::NonParityWrite,
    Kind::NonParityRepair,
    Kind::StripeIo,
    Kind::StripeCompute,
    Kind::Flush,
    Kind::NonParityResync,
    Kind::CopyScrub,
    Kind::CopyCompare,
    Kind::RowsZero,
    Kind::Placed,
    Kind::Log,
    Kind::LogFlush,
];

impl Kind {
    /// Whether it is an operation of a member on rows.
    pub(crate) fn is_of_rows(self) -> bool {
        matches!(self, Kind::StripeIo | Kind::RowsZero | Kind::Log)
    }
}

impl Token {
    pub(crate) fn new(kind: Kind, slot: u16, key: Key) -> Token {
        debug_assert!(slot < 256 && key.index < 1 << 28);
        Token(
            (kind as u64) << 60
                | u64::from(slot) << 52
                | u64::from(key.generation) << 28
                | u64::from(key.index),
        )
    }

    pub(crate) fn kind(self) -> Kind {
        KINDS[(self.0 >> 60) as usize]
    }

    pub(crate) fn slot(self) -> u16 {
        (self.0 >> 52) as u16 & 0xff
    }

    pub(crate) fn key(self) -> Key {
        Key {
            index: (self.0 & 0x0fff_ffff) as u32,
            generation: (self.0 >> 28) as u32 & crate::slab::GENERATION_MASK,
        }
    }

    /// The token as a number, for executors that must pass it through a kernel interface.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Token::to_bits`].
    ///
    /// # Panics
    /// If `bits` does not encode a token.
    pub fn from_bits(bits: u64) -> Token {
        assert!((bits >> 60) < KINDS.len() as u64, "{bits:#x} is not a token");
        Token(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_its_parts_back() {
        for kind in KINDS {
            let key = Key { index: 0x0fff_fffe, generation: 0x00ab_cdef };
            let token = Token::from_bits(Token::new(kind, 254, key).to_bits());
            assert_eq!((token.kind(), token.slot(), token.key()), (kind, 254, key));
        }
    }
}
