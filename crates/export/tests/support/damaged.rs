//! What can be read of an array, with a range that is lost.

use std::ops::Range;

use admin::rescue::Readable;

/// Sectors whose bytes are their number; those of a range are lost.
pub struct Damaged {
    pub sectors: u64,
    pub lost: Range<u64>,
}

impl Readable for Damaged {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
        for (sector, bytes) in (at..).zip(buf.chunks_mut(512)) {
            bytes.fill(if self.lost.contains(&sector) { 0 } else { sector as u8 });
        }
        let end = at + buf.len() as u64 / 512;
        let lost = at.max(self.lost.start)..end.min(self.lost.end);
        if lost.is_empty() { Vec::new() } else { vec![lost] }
    }

    fn hole_end(&self, at: u64, limit: u64) -> u64 {
        let is_hole = at.is_multiple_of(256) && !self.lost.contains(&at);
        if is_hole { (at + 1).min(limit) } else { at }
    }

    fn stripe_sectors(&self) -> Option<u64> {
        None
    }

    fn piece_end(&self, at: u64, sectors: u64) -> u64 {
        at + sectors
    }
}
