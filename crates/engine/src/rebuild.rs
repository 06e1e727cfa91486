//! One run of a rebuild: which ranges of its members are next.
//!
//! Invariant: as of [`crate::Resync`]. Made by the metadata manager, driven by `rebuild_loop`.

use md::MemberIdx;

use crate::Resync;

/// One run: the ranges that are out of sync, in sectors of the members' data areas.
pub struct Rebuild {
    /// The member; `None`: all that are being rebuilt.
    pub(crate) member: Option<MemberIdx>,
    pub(crate) ranges: Resync,
}
