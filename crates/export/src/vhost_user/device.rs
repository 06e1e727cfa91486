//! What the device offers: features, and the configuration space (virtio 1.2, section 5.2.4).

use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::store::Limits;

/// Rings that a device has at most; QEMU takes as many as its guest has processors.
pub(super) const QUEUES: u16 = 16;
/// Entries of a ring.
pub(super) const QUEUE_SIZE: u16 = 256;
/// Most descriptors of data: QEMU's rings have 128 entries, of which two are header and status.
pub const SEG_MAX: u32 = 126;
/// Longest descriptor of data.
pub(super) const SIZE_MAX: u32 = 1 << 20;
/// Most ranges of a discard, or of a write of zeroes.
pub(super) const MOST_SEGMENTS: u32 = 16;
/// Longest of these ranges: 1 GiB.
pub(super) const MOST_SECTORS: u32 = 1 << 21;
/// The unit of the protocol, whatever the block size is.
pub(super) const SECTOR: u64 = 512;

/// All features of the device.
pub(super) fn features(limits: &Limits) -> u64 {
    let mut features = 1 << VIRTIO_F_VERSION_1
        | 1 << VIRTIO_RING_F_EVENT_IDX
        | 1 << VIRTIO_RING_F_INDIRECT_DESC
        | 1 << blk::VIRTIO_BLK_F_SIZE_MAX
        | 1 << blk::VIRTIO_BLK_F_SEG_MAX
        | 1 << blk::VIRTIO_BLK_F_BLK_SIZE
        | 1 << blk::VIRTIO_BLK_F_TOPOLOGY
        | 1 << blk::VIRTIO_BLK_F_FLUSH
        | 1 << blk::VIRTIO_BLK_F_MQ;
    features |= match limits.read_only {
        true => 1 << blk::VIRTIO_BLK_F_RO,
        false => 1 << blk::VIRTIO_BLK_F_DISCARD | 1 << blk::VIRTIO_BLK_F_WRITE_ZEROES,
    };
    features
}

/// Length of the configuration space, up to the limits of writing zeroes.
const CONFIG_BYTES: usize = 60;

/// The configuration space, at the offsets of `struct virtio_blk_config`.
pub(super) fn configuration(limits: &Limits) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(limits.bytes / SECTOR).to_le_bytes());
    put(8, &SIZE_MAX.to_le_bytes());
    put(12, &SEG_MAX.to_le_bytes());
    put(20, &limits.block.to_le_bytes());
    // The exponent of logical blocks in a physical one: 4 KiB is the alignment to prefer.
    put(24, &[(4096 / limits.block.clamp(512, 4096)).ilog2() as u8]);
    put(34, &QUEUES.to_le_bytes());
    put(36, &MOST_SECTORS.to_le_bytes());
    put(40, &MOST_SEGMENTS.to_le_bytes());
    put(44, &(limits.block / SECTOR as u32).to_le_bytes());
    put(48, &MOST_SECTORS.to_le_bytes());
    put(52, &MOST_SEGMENTS.to_le_bytes());
    put(56, &[u8::from(limits.discard_zeroes)]);
    space
}

/// What the device says it is: up to 20 bytes, padded with zeroes.
pub(super) fn identity(name: &str) -> [u8; 20] {
    let mut identity = [0; 20];
    let bytes = name.as_bytes();
    let length = bytes.len().min(identity.len());
    identity[..length].copy_from_slice(&bytes[..length]);
    identity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_space_is_that_of_the_store() {
        let limits = Limits {
            bytes: 1 << 30,
            block: 512,
            request_bytes: 1 << 20,
            buffers: 8,
            read_only: false,
            discard_zeroes: true,
        };
        let space = configuration(&limits);
        let number = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        assert_eq!((number(0), number(4), number(20)), (1 << 21, 0, 512));
        assert_eq!((space[24], space[56], number(44)), (3, 1, 1));
        let large = configuration(&Limits { block: 4096, ..limits });
        assert_eq!((large[24], large[44], large[20..22].to_vec()), (0, 8, vec![0, 16]));
        let read_only = features(&Limits { read_only: true, ..limits });
        assert_ne!(read_only & 1 << blk::VIRTIO_BLK_F_RO, 0);
        assert_eq!(read_only & 1 << blk::VIRTIO_BLK_F_DISCARD, 0);
        assert_eq!(identity("a-name-longer-than-twenty-bytes"), *b"a-name-longer-than-t");
    }
}
