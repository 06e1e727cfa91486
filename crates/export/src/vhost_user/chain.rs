//! What the descriptors of a request say: ranges of the guest's memory.
//!
//! *Invariant*: the driver can write anything into descriptors. A chain that does not end properly,
//! or has no place for the status, is refused; addresses are checked when they are used.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The guest's memory.
pub type Memory = GuestMemoryMmap<()>;

/// Ranges of the guest's memory, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    ranges: Vec<(GuestAddress, usize)>,
    bytes: u64,
}

/// An address that is not in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// What the device reads and writes of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    /// The header, and the data of a write.
    pub readable: Ranges,
    /// The data of a read.
    pub writable: Ranges,
    /// Where the status is written: the last byte that may be.
    pub status: GuestAddress,
}

/// Most descriptors of a request that is carried out: what the configuration space permits, a
/// header and a status.
pub(super) const MOST_RANGES: usize = super::device::SEG_MAX as usize + 2;

impl Chain {
    /// Takes the descriptors of a chain; `None`: it is malformed, and has no status to set.
    pub fn of(descriptors: impl Iterator<Item = Descriptor>) -> Option<Chain> {
        let (mut readable, mut writable) = (Ranges::default(), Ranges::default());
        let mut last: Option<(GuestAddress, usize)> = None;
        let mut ended = false;
        for descriptor in descriptors {
            // The iterator ends where the next descriptor is outside of the table or of the memory,
            // or after as many as the table has: in a loop.
            ended = !descriptor.has_next();
            let range = (descriptor.addr(), descriptor.len() as usize);
            if range.1 == 0 {
                continue;
            }
            if descriptor.is_write_only() {
                if let Some(before) = last.replace(range) {
                    writable.push(before);
                }
            } else if last.is_some() {
                return None;
            } else {
                readable.push(range);
            }
        }
        let (address, bytes) = last.filter(|_| ended)?;
        let status = GuestAddress(address.0.checked_add(bytes as u64 - 1)?);
        writable.push((address, bytes - 1));
        Some(Chain { readable, writable, status })
    }

    /// Whether it has more descriptors than were offered.
    pub(super) fn is_too_long(&self) -> bool {
        self.readable.ranges.len() + self.writable.ranges.len() > MOST_RANGES
    }
}

impl Ranges {
    /// Ranges beyond the permitted number are counted, and not kept.
    fn push(&mut self, range: (GuestAddress, usize)) {
        self.bytes += range.1 as u64;
        if range.1 > 0 && self.ranges.len() <= MOST_RANGES {
            self.ranges.push(range);
        }
    }

    /// Length of all together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The ranges behind the first `skip` bytes.
    pub(super) fn behind(&self, skip: u64) -> Ranges {
        let mut behind = Ranges::default();
        self.each(skip, self.bytes.saturating_sub(skip), |range| {
            behind.push(range);
            Ok(())
        })
        .expect("pushing does not fail");
        behind
    }

    /// Copies from the guest, from byte `at` on.
    pub fn read(&self, memory: &Memory, at: u64, into: &mut [u8]) -> Result<(), Outside> {
        let (wanted, mut rest) = (into.len() as u64, into);
        self.each(at, wanted, |(address, bytes)| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = behind;
            memory.read_slice(part, address).map_err(|_| Outside)
        })
    }

    /// Copies to the guest, from byte `at` on.
    pub fn write(&self, memory: &Memory, at: u64, from: &[u8]) -> Result<(), Outside> {
        let mut rest = from;
        self.each(at, from.len() as u64, |(address, bytes)| {
            let (part, behind) = rest.split_at(bytes);
            rest = behind;
            memory.write_slice(part, address).map_err(|_| Outside)
        })
    }

    /// Whether all of it is in the guest's memory.
    pub(super) fn are_in(&self, memory: &Memory) -> bool {
        use vm_memory::GuestMemoryBackend;
        self.ranges.iter().all(|(address, bytes)| memory.check_range(*address, *bytes))
    }

    /// Calls `with` for each part of `bytes` bytes from `at` on.
    fn each(
        &self,
        at: u64,
        bytes: u64,
        mut with: impl FnMut((GuestAddress, usize)) -> Result<(), Outside>,
    ) -> Result<(), Outside> {
        let (mut skip, mut left) = (at, bytes);
        for (address, length) in &self.ranges {
            if left == 0 {
                break;
            }
            let length = *length as u64;
            if skip >= length {
                skip -= length;
                continue;
            }
            let part = (length - skip).min(left);
            let start = address.0.checked_add(skip).ok_or(Outside)?;
            with((GuestAddress(start), part as usize))?;
            left -= part;
            skip = 0;
        }
        if left == 0 { Ok(()) } else { Err(Outside) }
    }
}

#[cfg(test)]
mod tests {
    use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

    use super::*;

    const NEXT: u16 = VRING_DESC_F_NEXT as u16;
    const WRITE: u16 = VRING_DESC_F_WRITE as u16;

    fn chain(descriptors: &[(u64, u32, u16)]) -> Option<Chain> {
        let one = |(address, bytes, flags): &_| Descriptor::new(*address, *bytes, *flags, 0);
        Chain::of(descriptors.iter().map(one))
    }

    #[test]
    fn the_last_writable_byte_is_the_status() {
        let read = chain(&[(0, 16, NEXT), (4096, 512, NEXT | WRITE), (9, 1, WRITE)]).unwrap();
        assert_eq!((read.readable.bytes(), read.writable.bytes()), (16, 512));
        assert_eq!(read.status, GuestAddress(9));
        let together = chain(&[(0, 16, NEXT), (4096, 513, WRITE)]).unwrap();
        assert_eq!(together.writable.bytes(), 512);
        assert_eq!(together.status, GuestAddress(4096 + 512));
        let flush = chain(&[(0, 16, NEXT), (9, 1, WRITE)]).unwrap();
        assert_eq!(flush.writable.bytes(), 0);
    }

    #[test]
    fn what_does_not_end_or_has_no_status_is_refused() {
        for malformed in [
            &[][..],
            &[(0, 16, 0)],
            &[(0, 16, NEXT), (9, 0, WRITE)],
            // The next one could not be read.
            &[(0, 16, NEXT), (9, 1, NEXT | WRITE)],
            // Readable behind writable.
            &[(0, 16, NEXT), (9, 1, NEXT | WRITE), (64, 16, 0)],
            // Its end is beyond the last address.
            &[(0, 16, NEXT), (u64::MAX, 2, WRITE)],
        ] {
            assert_eq!(chain(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn a_long_chain_has_a_status_and_is_not_kept() {
        let mut long = vec![(0, 16, NEXT)];
        long.extend((0..60_000).map(|_| (4096, 4096, NEXT | WRITE)));
        long.push((9, 1, WRITE));
        let chain = chain(&long).unwrap();
        assert!(chain.is_too_long() && chain.writable.ranges.len() <= MOST_RANGES + 1);
        assert_eq!(chain.status, GuestAddress(9));
    }

    #[test]
    fn bytes_are_copied_across_ranges() {
        let memory = Memory::from_ranges(&[(GuestAddress(0), 8192)]).unwrap();
        let mut ranges = Ranges::default();
        for (at, bytes) in [(100, 3), (200, 5), (8190, 2)] {
            ranges.push((GuestAddress(at), bytes));
        }
        ranges.write(&memory, 1, b"bcdefghij").unwrap();
        let mut read = [0; 6];
        ranges.behind(2).read(&memory, 1, &mut read).unwrap();
        assert_eq!(&read, b"defghi");
        memory.read_slice(&mut read[..2], GuestAddress(8190)).unwrap();
        assert_eq!(&read[..2], b"ij");
        assert!(ranges.are_in(&memory));
        assert_eq!(ranges.write(&memory, 2, b"bcdefghij"), Err(Outside), "longer than all");
        ranges.push((GuestAddress(8191), 2));
        assert!(!ranges.are_in(&memory));
        assert_eq!(ranges.read(&memory, 10, &mut read[..2]), Err(Outside));
        ranges.push((GuestAddress(u64::MAX), 2));
        assert!(!ranges.are_in(&memory));
    }
}
