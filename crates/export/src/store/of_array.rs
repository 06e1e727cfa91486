//! An array as a store.

use array::{Array, ArrayError, ArrayExtent, Completer, HostOp, Lease};
use md::SECTOR_BYTES;

use super::{Limits, Store, StoreExtent};

/// Extents of sectors as those of a store.
pub(super) fn in_bytes(extents: Vec<ArrayExtent>) -> Vec<StoreExtent> {
    let extent =
        |ArrayExtent { sectors, is_hole }| StoreExtent { bytes: sectors * SECTOR_BYTES, is_hole };
    extents.into_iter().map(extent).collect()
}

impl Store for Array {
    fn limits(&self) -> Limits {
        Limits {
            bytes: self.len_bytes(),
            block: self.logical_block(),
            request_bytes: self.max_request_bytes(),
            buffers: self.lease_count(),
            read_only: false,
            discard_zeroes: self.discard_zeroes(),
        }
    }

    fn lease(&self, bytes: usize) -> Lease {
        Array::lease(self, bytes)
    }

    fn try_lease(&self, bytes: usize) -> Option<Lease> {
        Array::try_lease(self, bytes)
    }

    fn submit(&self, op: HostOp, offset: u64, lease: Option<Lease>, to: Completer) {
        Array::submit(self, op, offset, 0, lease, to);
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        Array::discard(self, offset, bytes)
    }

    fn allocation(
        &self,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<StoreExtent>, ArrayError> {
        Ok(in_bytes(Array::allocation(self, offset, bytes, most)?))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        Array::write_zeroes(self, offset, bytes)
    }
}
