//! An array as a store.

use array::{Array, ArrayError, ArrayExtent, HostOp, Lease};
use md::SECTOR_BYTES;

use super::{Buffer, Limits, Memory, Store, StoreError, StoreExtent, Then, ThenSend, ToSend};

fn outcome(then: Then) -> impl FnOnce(Result<Option<Lease>, ArrayError>) + Send + 'static {
    move |outcome| {
        let buffer = outcome.map(|lease| lease.map(|lease| Buffer(Memory::Lease(lease))));
        then(buffer.map_err(StoreError::Array));
    }
}

/// The lease of a buffer, which is of this array: its own methods gave it.
fn lease(buffer: Buffer) -> Lease {
    match buffer.0 {
        Memory::Lease(lease) => lease,
        Memory::Counted(_) => panic!("the buffer is of another store"),
    }
}

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

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer(Memory::Lease(self.lease(bytes)))
    }

    fn try_buffer(&self, bytes: usize) -> Option<Buffer> {
        Some(Buffer(Memory::Lease(self.try_lease(bytes)?)))
    }

    fn read(&self, buffer: Buffer, offset: u64, then: Then) {
        let bytes = buffer.len() as u64;
        self.request(HostOp::Read, offset, bytes, Some(lease(buffer)), outcome(then));
    }

    fn read_to_send(&self, buffer: Buffer, offset: u64, then: ThenSend) {
        Array::read_to_send(self, lease(buffer), offset, |outcome| {
            then(outcome.map(ToSend::Filled).map_err(StoreError::Array));
        });
    }

    fn write(&self, buffer: Buffer, offset: u64, fua: bool, then: Then) {
        let bytes = buffer.len() as u64;
        let op = HostOp::Write { fua };
        self.request(op, offset, bytes, Some(lease(buffer)), outcome(then));
    }

    fn flush(&self, then: Then) {
        self.request(HostOp::Flush, 0, 0, None, outcome(then));
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        Ok(Array::discard(self, offset, bytes)?)
    }

    fn allocation(
        &self,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<StoreExtent>, StoreError> {
        Ok(in_bytes(Array::allocation(self, offset, bytes, most)?))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        Ok(Array::write_zeroes(self, offset, bytes)?)
    }
}
