//! The journal of RAID 4, 5 and 6: a device on which writes are safe before they are in the array.
//!
//! `docs/format/journal.md` is normative. [`MetaBlock`] and its [`Payload`]s are the bytes,
//! [`Journal`] walks the ring from its tail and says what is to be replayed.

mod meta_block;
mod replay;

pub use meta_block::{
    BLOCK_BYTES, BLOCK_SECTORS, META_BLOCK_FIELDS, MetaBlock, PAYLOAD_FIELDS, PAYLOAD_TYPES,
    Payload, block_checksum, journal_seed,
};
pub use replay::{
    Ignored, IgnoredBecause, Journal, JournalRefused, MemberWrite, NewestData, Replay,
    SEQ_STEP_AFTER_REPLAY,
};
