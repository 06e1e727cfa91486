//! A disk whose bytes are in memory, for what is read from elsewhere than a device: an unpacked
//! image, a superblock with other contents.
//!
//! Invariant: it is only read. Called by tests, here and in crates that read members.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use md::SECTOR_BYTES;

use crate::disk::{Disk, beyond_the_end, read_only_error};

/// A read-only disk in memory, of blocks of 512 bytes.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    name: String,
    bytes: Arc<Vec<u8>>,
    /// First byte, and other contents from there on.
    replaced: Option<(usize, Vec<u8>)>,
}

impl MemoryDisk {
    /// `bytes`: whole sectors; the rest is not on the disk.
    pub fn new(name: impl Into<String>, bytes: impl Into<Arc<Vec<u8>>>) -> MemoryDisk {
        MemoryDisk { name: name.into(), bytes: bytes.into(), replaced: None }
    }

    /// The disk with other contents from `sector` on, as long as `bytes`. The common bytes are not
    /// copied.
    #[must_use]
    pub fn with(self, sector: u64, bytes: Vec<u8>) -> MemoryDisk {
        MemoryDisk { replaced: Some(((sector * SECTOR_BYTES) as usize, bytes)), ..self }
    }
}

impl Disk for MemoryDisk {
    fn sectors(&self) -> u64 {
        self.bytes.len() as u64 / SECTOR_BYTES
    }

    fn logical_block(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        let sectors = (buf.len() as u64).div_ceil(SECTOR_BYTES);
        let size = self.sectors();
        if sector.checked_add(sectors).is_none_or(|end| end > size) {
            return Err(beyond_the_end(&self.name, sector, sectors, size));
        }
        let start = (sector * SECTOR_BYTES) as usize;
        let end = start + buf.len();
        buf.copy_from_slice(&self.bytes[start..end]);
        if let Some((at, bytes)) = &self.replaced {
            let (from, to) = (start.max(*at), end.min(at + bytes.len()));
            if from < to {
                buf[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
            }
        }
        Ok(())
    }

    fn write(&self, _sector: u64, _buf: &[u8]) -> io::Result<()> {
        Err(read_only_error(&self.name))
    }

    fn write_zeroes(&self, _range: Range<u64>) -> io::Result<()> {
        Err(read_only_error(&self.name))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn hole_end(&self, sector: u64) -> u64 {
        sector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_bytes_are_read_in_every_part_and_nothing_beyond_the_end() {
        let common: Vec<u8> = (0..4 * 512).map(|at| (at / 512) as u8).collect();
        let disk = MemoryDisk::new("d", common.clone()).with(1, vec![9; 700]);
        let mut wanted = common;
        wanted[512..512 + 700].fill(9);
        for from in 0..4 {
            for to in from + 1..=4 {
                let mut buf = vec![0; (to - from) * 512];
                disk.read(from as u64, &mut buf).unwrap();
                assert_eq!(buf, wanted[from * 512..to * 512], "{from}..{to}");
            }
        }
        for (sector, len) in [(4, 512), (3, 1024), (u64::MAX, 512), (u64::MAX / 512, 512)] {
            let error = disk.read(sector, &mut vec![0; len]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{sector}");
        }
        assert_eq!(disk.write(0, &[0; 512]).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        let error = disk.write_zeroes(0..1).unwrap_err();
        assert_eq!(error.to_string(), "d was opened read-only");
    }
}
