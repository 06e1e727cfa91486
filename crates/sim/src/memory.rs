//! The memory that buffer slices refer to: stripe memory of every shard, and a buffer for each host
//! request in flight.
//!
//! Invariant: a slice that does not belong to its shard or to a request in flight panics.

use engine::{BufSlice, REGION_ZERO};

use crate::member::SECTOR;

/// Stripe memory of shard 0 is region 0, that of the others is numbered from here.
const FIRST_OTHER_STRIPE_MEMORY: u16 = 60_000;
/// Host buffers are numbered from here.
const FIRST_HOST: u16 = 1;

/// A host request's buffer.
struct HostBuffer {
    /// Offset of its first byte: not 0, so that offsets are never taken for lengths.
    base: u64,
    bytes: Vec<u8>,
}

/// All buffers; see the module documentation.
pub(crate) struct Memory {
    hosts: Vec<Option<HostBuffer>>,
    stripe: Vec<Vec<u8>>,
    /// Buffers of requests that have completed, to be used again.
    spare: Vec<Vec<u8>>,
}

impl Memory {
    /// Stripe memory of this size for each shard; its first contents are anything but zeroes.
    pub fn new(shards: u16, stripe_bytes: u64) -> Memory {
        let fill = || (0..stripe_bytes).map(|at| 0xa5 ^ at as u8).collect();
        let stripe = (0..shards).map(|_| fill()).collect();
        Memory { hosts: Vec::new(), stripe, spare: Vec::new() }
    }

    /// A shard's stripe memory gets more bytes; returns how many it has now.
    pub fn grow_stripe(&mut self, shard: u16, bytes: u64) -> u64 {
        let memory = &mut self.stripe[usize::from(shard)];
        memory.extend((0..bytes).map(|at| 0x5a ^ at as u8));
        memory.len() as u64
    }

    /// The region of a shard's stripe memory.
    pub fn stripe_region(shard: u16) -> u16 {
        if shard == 0 { 0 } else { FIRST_OTHER_STRIPE_MEMORY + shard }
    }

    /// The region of the host buffer with this index.
    pub fn host_region(index: usize) -> u16 {
        FIRST_HOST + index as u16
    }

    /// Whether a region is a host buffer.
    pub fn is_host(region: u16) -> bool {
        (FIRST_HOST..=FIRST_OTHER_STRIPE_MEMORY).contains(&region)
    }

    /// A buffer for the request with this index: `len` bytes of no particular contents.
    pub fn lend(&mut self, index: usize, base: u64, len: usize) -> (BufSlice, &mut [u8]) {
        if self.hosts.len() <= index {
            self.hosts.resize_with(index + 1, || None);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(len, 0xee);
        let slice = BufSlice { region: Memory::host_region(index), len: len as u32, offset: base };
        let buffer = self.hosts[index].insert(HostBuffer { base, bytes });
        (slice, &mut buffer.bytes)
    }

    /// The contents of a request's buffer.
    pub fn contents(&self, index: usize) -> &[u8] {
        &self.hosts[index].as_ref().expect("it was lent").bytes
    }

    /// Takes a request's buffer back. Its contents are valid until the next one is lent.
    pub fn take_back(&mut self, index: usize) -> &[u8] {
        let buffer = self.hosts[index].take().expect("it was lent");
        self.spare.push(buffer.bytes);
        self.spare.last().expect("just pushed")
    }

    /// # Panics
    /// When a slice is outside of the buffers that this shard may use. Returns the index of the
    /// host buffer, if it is one.
    pub fn assert_inside(&self, shard: u16, slice: &BufSlice) -> Option<usize> {
        let end = slice.offset + u64::from(slice.len);
        match slice.region {
            REGION_ZERO => None,
            region if region == Memory::stripe_region(shard) => {
                let len = self.stripe[usize::from(shard)].len() as u64;
                assert!(end <= len, "outside of the stripe memory: {slice:?}");
                None
            }
            region => {
                assert!(region <= FIRST_OTHER_STRIPE_MEMORY, "of another shard: {slice:?}");
                let index = usize::from(region - FIRST_HOST);
                let buffer = self.hosts.get(index).and_then(Option::as_ref);
                let buffer = buffer.unwrap_or_else(|| panic!("without an owner: {slice:?}"));
                let inside =
                    slice.offset >= buffer.base && end <= buffer.base + buffer.bytes.len() as u64;
                assert!(inside, "outside of the request's buffer: {slice:?}");
                Some(index)
            }
        }
    }

    /// The bytes of a slice.
    pub fn bytes(&self, slice: &BufSlice) -> &[u8] {
        static ZEROES: [u8; engine::MAX_SPAN_SECTORS as usize * SECTOR] =
            [0; engine::MAX_SPAN_SECTORS as usize * SECTOR];
        let len = slice.len as usize;
        match slice.region {
            REGION_ZERO => &ZEROES[..len],
            region => {
                let (bytes, base) = match stripe_memory(region) {
                    Some(shard) => (&self.stripe[shard], 0),
                    None => {
                        let buffer = self.hosts[usize::from(region - FIRST_HOST)].as_ref();
                        let buffer = buffer.expect("checked when the operation began");
                        (&buffer.bytes, buffer.base)
                    }
                };
                let from = (slice.offset - base) as usize;
                &bytes[from..from + len]
            }
        }
    }

    /// The bytes of a slice, to be changed.
    pub fn bytes_mut(&mut self, slice: &BufSlice) -> &mut [u8] {
        let len = slice.len as usize;
        let (bytes, base) = match stripe_memory(slice.region) {
            Some(shard) => (&mut self.stripe[shard], 0),
            None => {
                let buffer = self.hosts[usize::from(slice.region - FIRST_HOST)].as_mut();
                let buffer = buffer.expect("checked when the operation began");
                (&mut buffer.bytes, buffer.base)
            }
        };
        let from = (slice.offset - base) as usize;
        &mut bytes[from..from + len]
    }
}

/// The shard whose stripe memory a region is.
fn stripe_memory(region: u16) -> Option<usize> {
    match region {
        0 => Some(0),
        other => other.checked_sub(FIRST_OTHER_STRIPE_MEMORY).map(usize::from),
    }
}
