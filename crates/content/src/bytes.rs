//! Where bytes come from: a member, an image, an array as a hypothesis reads it.
//!
//! Invariant: a range is either read whole or an error; what cannot be read is never zeroes.

use std::fmt;

/// A store of bytes that can be read at any place.
pub trait Bytes {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` from byte `at` on.
    ///
    /// # Errors
    /// If a part of the range lies beyond the end or cannot be read. `into` may then hold anything.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable>;
}

/// A range that cannot be read: beyond the end, a bad sector, lost with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of the range cannot be read")
    }
}

impl std::error::Error for Unreadable {}

impl Bytes for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let at = usize::try_from(at).map_err(|_| Unreadable)?;
        let end = at.checked_add(into.len()).ok_or(Unreadable)?;
        into.copy_from_slice(self.get(at..end).ok_or(Unreadable)?);
        Ok(())
    }
}

impl Bytes for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.as_slice().read(at, into)
    }
}

impl<B: Bytes + ?Sized> Bytes for &B {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(at, into)
    }
}

/// A part of other bytes: a partition, a logical volume, the data area of a member.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a, B: ?Sized> {
    of: &'a B,
    from: u64,
    size: u64,
}

impl<'a, B: Bytes + ?Sized> Part<'a, B> {
    /// `size` bytes of `of` from `from` on, cut at the end of `of`.
    pub fn new(of: &'a B, from: u64, size: u64) -> Part<'a, B> {
        let size = size.min(of.size().saturating_sub(from));
        Part { of, from, size }
    }
}

impl<B: Bytes + ?Sized> Bytes for Part<'_, B> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let end = at.checked_add(into.len() as u64).ok_or(Unreadable)?;
        if end > self.size {
            return Err(Unreadable);
        }
        self.of.read(self.from + at, into)
    }
}

/// The bytes of a range; `None` if it cannot be read. `len` is a number of the code, never one that
/// was read from `from`.
pub(crate) fn take(from: &dyn Bytes, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.read(at, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_whole_or_not_at_all() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut into = [0; 10];
        assert_eq!(bytes.read(90, &mut into), Ok(()));
        assert_eq!(into[..], bytes[90..]);
        assert_eq!(bytes.read(91, &mut into), Err(Unreadable));
        assert_eq!(bytes.read(u64::MAX, &mut into), Err(Unreadable));
    }

    #[test]
    fn a_part_ends_where_it_ends() {
        let bytes: Vec<u8> = (0..100).collect();
        let part = Part::new(&bytes, 20, 30);
        let mut into = [0; 10];
        assert_eq!(part.read(20, &mut into), Ok(()));
        assert_eq!(into[..], bytes[40..50]);
        assert_eq!(part.read(21, &mut into), Err(Unreadable));
        assert_eq!(part.read(u64::MAX - 3, &mut into), Err(Unreadable));
        assert_eq!(Part::new(&bytes, 90, u64::MAX).size(), 10);
        assert_eq!(Part::new(&bytes, 101, 1).size(), 0);
    }
}
