//! A member as it would be after a log replay, or with another superblock: what would be written
//! is laid over it in memory.
//!
//! Invariant: the member is never written; a sector comes from the newest of what is laid over it,
//! or from the member.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use md::SECTOR_BYTES;

use host::{Disk, DiskLayer};

/// Replacement for the contents of a sector.
#[derive(Clone)]
pub(super) enum Patch {
    /// In memory: 512 bytes.
    Bytes(Box<[u8]>),
    /// On another device, at this sector.
    Elsewhere(Arc<dyn Disk>, u64),
}

impl Patch {
    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<()> {
        match self {
            Patch::Bytes(bytes) => buf.copy_from_slice(bytes),
            Patch::Elsewhere(disk, sector) => disk.read(*sector, buf)?,
        }
        Ok(())
    }
}

/// Replacements by sector.
pub(super) type Patches = BTreeMap<u64, Patch>;

/// A member with a log laid over it; see the module documentation.
pub(super) struct LogOverlay {
    pub(super) base: Arc<dyn Disk>,
    pub(super) patches: Patches,
}

/// A member as it would be after these writes: a sector of it, and whole sectors of bytes.
pub(crate) fn laid_over<'a>(
    base: Arc<dyn Disk>,
    writes: impl IntoIterator<Item = (u64, &'a [u8])>,
) -> Arc<dyn Disk> {
    let mut patches = Patches::new();
    for (first, bytes) in writes {
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
            patches.insert(sector, Patch::Bytes(bytes.into()));
        }
    }
    Arc::new(LogOverlay { base, patches })
}

impl DiskLayer for LogOverlay {
    fn below(&self) -> &dyn Disk {
        &*self.base
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        self.base.read(sector, buf)?;
        let end = sector + buf.len() as u64 / SECTOR_BYTES;
        for (at, patch) in self.patches.range(sector..end) {
            let byte = ((at - sector) * SECTOR_BYTES) as usize;
            patch.read(&mut buf[byte..byte + SECTOR_BYTES as usize])?;
        }
        Ok(())
    }

    fn write(&self, _sector: u64, _buf: &[u8]) -> io::Result<()> {
        Err(host::read_only_error(&self.name()))
    }

    fn write_zeroes(&self, _range: Range<u64>) -> io::Result<()> {
        Err(host::read_only_error(&self.name()))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn hole_end(&self, sector: u64) -> u64 {
        let next = self.patches.range(sector..).next().map_or(u64::MAX, |(at, _)| *at);
        self.base.hole_end(sector).min(next.max(sector))
    }
}
