//! A member in memory: the speed of the engine itself.

use std::sync::Arc;

use engine::{BufSlice, MemberError};

use super::{Counters, Done, Facts, Io, Member, Op, OpKind, Sealed};
use crate::buf::Region;

/// Memory that really copies. Nothing survives the process.
pub struct MemMember {
    region: Arc<Region>,
    sectors: u64,
    counters: Counters,
}

impl MemMember {
    /// A member of `sectors` sectors, all zeroes.
    ///
    /// # Errors
    /// When the system has no address space for it.
    pub fn new(sectors: u64) -> std::io::Result<MemMember> {
        let bytes = sectors.checked_mul(md::SECTOR_BYTES).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let region = Arc::new(Region::new(bytes)?);
        Ok(MemMember { region, sectors, counters: Counters::default() })
    }

    /// Calls `each` with the member's part and the buffer's part of every slice.
    fn each(&self, op: &Op<'_>, io: &Io, each: impl Fn(crate::buf::Span, crate::buf::Span)) {
        let mut at = op.sector.0 * md::SECTOR_BYTES;
        for slice in op.slices {
            let BufSlice { len, .. } = *slice;
            each(self.region.span(at, len as usize), io.regions.span(*slice));
            at += u64::from(len);
        }
    }
}

impl Sealed for MemMember {}

impl Member for MemMember {
    fn facts(&self) -> Facts {
        Facts {
            sectors: self.sectors,
            logical_block: 512,
            discard_zeroes: true,
            keeps_data: true,
            uses_ring: false,
        }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let (region, sectors) = (self.region.clone(), self.sectors);
        Some(Box::new(MemMember { region, sectors, counters: Counters::default() }))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<Done>) {
        self.counters.count(op);
        let inside = op.sector.0 + op.sectors <= self.sectors;
        let result = if inside { Ok(()) } else { Err(MemberError::Invalid) };
        if inside {
            match op.kind {
                OpKind::Read => self.each(op, io, |here, buffer| buffer.copy_from(here)),
                OpKind::Write { .. } => self.each(op, io, |here, buffer| here.copy_from(buffer)),
                OpKind::Discard | OpKind::WriteZeroes => {
                    let len = op.bytes() as usize;
                    self.region.span(op.sector.0 * md::SECTOR_BYTES, len).fill_zero();
                }
                OpKind::Flush => {}
            }
        }
        done.push(Done { token: op.token, result });
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        out.push(self.counters);
    }
}
