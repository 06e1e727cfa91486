//! The partial parity log of RAID 5: closes the write hole without a journal device.
//!
//! `docs/format/ppl.md` is normative. Each member logs the stripes whose parity it holds: before
//! data and parity are written, the XOR of the data that is *not* written. After a crash parity is
//! that XOR the data on the members, whether it is old or new.
//!
//! [`PplHeader`] and [`PplEntry`] are the bytes, [`find_newest`] walks a member's area,
//! [`MemberLog`] adds the verdict on its partial parity, and [`plan_recovery`] makes steps of all
//! members' logs.

mod header;
mod log;
mod recovery;

pub use header::{
    ENTRIES_MAX, PPL_ENTRY_FIELDS, PPL_HEADER_BYTES, PPL_HEADER_FIELDS, PPL_HEADER_SECTORS,
    PplEntry, PplHeader, partial_parity_checksum,
};
pub use log::{
    MULTIPLE_LEAST_SECTORS, MemberLog, PARTIAL_PARITY_BYTES_MAX, PplLog, PplSearch, PplStop,
    find_newest, place_log,
};
pub use recovery::{
    PplMismatch, PplRecovery, PplRefused, PplSkipped, PplStep, PplVerdict, UNUSED, plan_recovery,
};
