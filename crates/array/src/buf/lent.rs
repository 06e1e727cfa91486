//! A part of what a host reads that stays in the memory of a member; see `filled`.

use std::sync::Arc;

use host::sys::OutSlice;

use super::region::Region;

/// A shorter part is copied: that costs less than passing it on.
pub(crate) const LEND_FROM_BYTES: u32 = 16 << 10;

/// Bytes in a member's memory, in place of those of a host's buffer. It holds the region that they
/// are in.
pub(super) struct LentPart {
    /// Its first byte in the buffer.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) region: Arc<Region>,
    /// Its first byte in the region.
    pub(super) offset: u64,
}

impl LentPart {
    /// Its bytes, for the kernel to send.
    pub(super) fn out_slice(&self) -> OutSlice<'_> {
        self.region.out_slice(self.offset, self.len)
    }
}
