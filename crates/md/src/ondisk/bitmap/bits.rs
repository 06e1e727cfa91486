//! The bits of a bitmap, and the pages that they are written in.
//!
//! ```text
//!   page 0: header (256 bytes) | bits 0 .. 30719      page 1: bits 30720 .. 63487      ...
//! ```
//!
//! Invariant: bits behind the last one are 1, as mdadm and the kernel leave them, and count for
//! nothing; so two equal bitmaps have equal pages.

use std::ops::Range;

use super::header::{self, BitmapHeader, BitmapKind, BitmapProblem, HEADER_BYTES, check_chunk};
use crate::ondisk::{DecodeError, Field};
use crate::units::SECTOR_BYTES;

/// Bytes of a page, the unit in which md reads and writes bitmaps.
pub const PAGE_BYTES: usize = 4096;

/// Number of bits, sectors per bit, and location of the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapShape {
    sync_sectors: u64,
    chunk_sectors: u64,
}

impl BitmapShape {
    /// Bits of `chunk_bytes` each over `sync_sectors` (see [`super::sync_sectors`]).
    ///
    /// # Errors
    /// The chunk is no power of two of at least 512 bytes.
    pub fn new(sync_sectors: u64, chunk_bytes: u32) -> Result<BitmapShape, BitmapProblem> {
        check_chunk(chunk_bytes)?;
        Ok(BitmapShape { sync_sectors, chunk_sectors: u64::from(chunk_bytes) / SECTOR_BYTES })
    }

    /// Sectors covered.
    pub fn sync_sectors(self) -> u64 {
        self.sync_sectors
    }

    /// Sectors that a bit stands for; the last bit may stand for fewer.
    pub fn chunk_sectors(self) -> u64 {
        self.chunk_sectors
    }

    /// Number of bits.
    pub fn bits(self) -> u64 {
        self.sync_sectors.div_ceil(self.chunk_sectors)
    }

    /// Header and bits, in bytes.
    pub fn file_bytes(self) -> u64 {
        HEADER_BYTES as u64 + self.bits().div_ceil(8)
    }

    /// Number of pages.
    pub fn pages(self) -> u64 {
        self.file_bytes().div_ceil(PAGE_BYTES as u64)
    }

    /// The bits of a range of sectors; sectors behind the covered ones have none.
    pub fn bits_of(self, sectors: Range<u64>) -> Range<u64> {
        let end = sectors.end.min(self.sync_sectors);
        if sectors.start >= end {
            return 0..0;
        }
        sectors.start / self.chunk_sectors..end.div_ceil(self.chunk_sectors)
    }

    /// The sectors of a range of bits.
    pub fn sectors_of(self, bits: Range<u64>) -> Range<u64> {
        let sector = |bit: u64| bit.saturating_mul(self.chunk_sectors).min(self.sync_sectors);
        sector(bits.start)..sector(bits.end)
    }

    /// The page of a bit.
    pub fn page_of(self, bit: u64) -> u64 {
        (HEADER_BYTES as u64 + bit / 8) / PAGE_BYTES as u64
    }

    /// The pages of a range of bits.
    pub fn pages_of(self, bits: Range<u64>) -> Range<u64> {
        if bits.is_empty() {
            return 0..0;
        }
        self.page_of(bits.start)..self.page_of(bits.end - 1) + 1
    }

    /// The bits that page `page` holds.
    pub fn bits_in(self, page: u64) -> Range<u64> {
        let bit = |page: u64| (page * PAGE_BYTES as u64).saturating_sub(HEADER_BYTES as u64) * 8;
        bit(page).min(self.bits())..bit(page + 1).min(self.bits())
    }

    /// How much of a page is written to a member with blocks of `block_bytes`: all of it but for
    /// the last, which ends behind the last bit. The room may be no longer.
    pub fn write_bytes(self, page: u64, block_bytes: u32) -> usize {
        let left = self.file_bytes().saturating_sub(page * PAGE_BYTES as u64);
        left.next_multiple_of(u64::from(block_bytes).max(1)).min(PAGE_BYTES as u64) as usize
    }
}

/// The stand-in of fields for errors about the bits.
const BITS: Field = Field { name: "bits", offset: HEADER_BYTES, size: 0 };

/// A bitmap: header and bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// The header. Its `version`, `chunk_bytes` stay as they are while there are bits.
    pub header: BitmapHeader,
    shape: BitmapShape,
    /// The bits up to the end of the last page.
    bytes: Vec<u8>,
}

impl Bitmap {
    /// A bitmap with all bits set, as a created array has it, or none.
    ///
    /// # Errors
    /// The header is of a kind without bits that can be read (see [`Bitmap::decode`]), or its chunk
    /// is wrong.
    pub fn new(header: BitmapHeader, sync_sectors: u64, set: bool) -> Result<Bitmap, DecodeError> {
        let shape = readable_shape(&header, sync_sectors)?;
        let bytes = (shape.pages() * PAGE_BYTES as u64) as usize - HEADER_BYTES;
        let mut bitmap = Bitmap { header, shape, bytes: vec![if set { !0 } else { 0 }; bytes] };
        bitmap.fill_tail();
        Ok(bitmap)
    }

    /// The bitmap in `file`, which begins with the header; `sync_sectors` is what the array says
    /// (md ignores the header's number, too). It needs [`BitmapShape::file_bytes`].
    ///
    /// # Errors
    /// No header; a clustered, lockless or unknown version; a wrong chunk; fewer bytes than bits
    /// need. Nothing else is judged: see [`BitmapHeader::check`].
    pub fn decode(file: &[u8], sync_sectors: u64) -> Result<Bitmap, DecodeError> {
        let header = BitmapHeader::decode(file)?;
        let shape = readable_shape(&header, sync_sectors)?;
        let needed = shape.file_bytes();
        let Some(bits) = usize::try_from(needed).ok().and_then(|n| file.get(HEADER_BYTES..n))
        else {
            let problem = format!("{needed} bytes with the header, there are {}", file.len());
            return Err(header::error(BITS, problem));
        };
        let mut bytes = bits.to_vec();
        bytes.resize((shape.pages() * PAGE_BYTES as u64) as usize - HEADER_BYTES, !0);
        let mut bitmap = Bitmap { header, shape, bytes };
        bitmap.fill_tail();
        Ok(bitmap)
    }

    /// Sets what lies behind the last bit.
    fn fill_tail(&mut self) {
        let bits = self.shape.bits();
        let whole = (bits / 8) as usize;
        if let Some(byte) = self.bytes.get_mut(whole) {
            *byte |= !0 << (bits % 8);
            self.bytes[whole + 1..].fill(!0);
        }
    }

    /// Covered sectors, and sectors of each bit.
    pub fn shape(&self) -> BitmapShape {
        self.shape
    }

    /// Whether a bit is set.
    ///
    /// # Panics
    /// If there is no such bit; so do the following.
    pub fn get(&self, bit: u64) -> bool {
        let (byte, mask) = self.place(bit);
        self.bytes[byte] & mask != 0
    }

    /// Sets a bit; whether it was clear.
    pub fn set(&mut self, bit: u64) -> bool {
        let (byte, mask) = self.place(bit);
        let was_clear = self.bytes[byte] & mask == 0;
        self.bytes[byte] |= mask;
        was_clear
    }

    /// Clears a bit; whether it was set.
    pub fn clear(&mut self, bit: u64) -> bool {
        let (byte, mask) = self.place(bit);
        let was_set = self.bytes[byte] & mask != 0;
        self.bytes[byte] &= !mask;
        was_set
    }

    fn place(&self, bit: u64) -> (usize, u8) {
        let bits = self.shape.bits();
        assert!(bit < bits, "bit {bit} of a bitmap of {bits}");
        ((bit / 8) as usize, 1 << (bit % 8))
    }

    /// Number of set bits.
    pub fn count(&self) -> u64 {
        let bits = self.shape.bits();
        let set: u64 = self.bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        set - (self.bytes.len() as u64 * 8 - bits)
    }

    /// The runs of set bits, in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(self.shape.bits());
            at = end;
            Some(start..end)
        })
    }

    /// The first bit from `from` on that is `set`.
    fn next(&self, from: u64, set: bool) -> Option<u64> {
        let bits = self.shape.bits();
        let flip = if set { 0 } else { !0 };
        let mut byte = (from / 8) as usize;
        let mut mask = !0_u8 << (from % 8);
        while byte < self.bytes.len() {
            let found = (self.bytes[byte] ^ flip) & mask;
            if found != 0 {
                let bit = byte as u64 * 8 + u64::from(found.trailing_zeros());
                return (bit < bits).then_some(bit);
            }
            byte += 1;
            mask = !0;
        }
        None
    }

    /// Sets every bit that `other` has set: members that were written at different moments.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn unite(&mut self, other: &Bitmap) {
        assert_eq!(self.shape, other.shape, "bitmaps of one array");
        for (byte, other) in self.bytes.iter_mut().zip(&other.bytes) {
            *byte |= other;
        }
    }

    /// Page `page` of the file; page 0 has the header.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn encode_page(&self, page: u64) -> [u8; PAGE_BYTES] {
        let pages = self.shape.pages();
        assert!(page < pages, "page {page} of a bitmap of {pages}");
        let mut out = [0; PAGE_BYTES];
        let start = page as usize * PAGE_BYTES;
        if page == 0 {
            out[..HEADER_BYTES].copy_from_slice(&self.header.encode());
            out[HEADER_BYTES..].copy_from_slice(&self.bytes[..PAGE_BYTES - HEADER_BYTES]);
        } else {
            out.copy_from_slice(
                &self.bytes[start - HEADER_BYTES..start - HEADER_BYTES + PAGE_BYTES],
            );
        }
        out
    }
}

/// The shape, if the bits are of a kind that can be read. Version 3 is read as little-endian
/// machines wrote it; [`Bitmap::resync`] does not rely on it.
fn readable_shape(header: &BitmapHeader, sync_sectors: u64) -> Result<BitmapShape, DecodeError> {
    match header.kind() {
        Some(BitmapKind::HostEndian | BitmapKind::Plain) => {}
        Some(BitmapKind::Clustered) => {
            let problem = format!("5 with {} nodes, clustered: not supported", header.nodes);
            return Err(header::error(header::VERSION, problem));
        }
        None | Some(BitmapKind::Lockless) => {
            return Err(BitmapProblem::Version(header.version).into());
        }
    }
    Ok(BitmapShape::new(sync_sectors, header.chunk_bytes)?)
}
