//! A member in memory: it shows the speed of the engine itself.
//!
//! Every read copies out of it and every write into it, with two exceptions: the inputs of
//! computations, above all the old data and parity of a read-modify-write, are used in place
//! ([`Member::lend`]), and what a host reads may be sent from here ([`Member::lend_to_host`]).
//!
//! A write may bypass the CPU caches (non-temporal stores) where that is faster ([`StorePolicy`]),
//! unless its destination is likely to be cached: because the member is small enough to fit the
//! caches, or was just read there (the old data of a read-modify-write).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{BufSlice, MemberError};

use md::Sector;

use super::{Counters, Io, Known, Leaf, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed};
use crate::buf::{Region, Regions, Span};

/// A smaller member may be in the caches.
const PAST_FROM_MEMBER_BYTES: usize = 32 << 20;
/// A shorter write would leave most of a page in the caches, which adjacent I/O may use.
const PAST_FROM_BYTES: u64 = 4096;
/// Number of recent reads remembered: more than an array begins before it writes what it has read.
const RECENT: usize = 32;
/// Bytes of the next read to prefetch; after that the hardware prefetcher takes over.
const AHEAD_BYTES: u64 = 512;

/// A RAM disk that copies every transfer. Its contents do not survive the process.
pub struct MemMember {
    region: Arc<Region>,
    /// The region's number when it is lent.
    number: Option<u16>,
    sectors: u64,
    written: Arc<Written>,
    counters: Counters,
    recent: Recent,
}

/// Sectors that are noted together.
const GRANULE_SECTORS: u64 = 128;

/// Where a member has been written to, a bit per granule; what was not is zeroes that the system
/// does not even hold.
struct Written(Vec<AtomicU64>);

impl Written {
    fn new(sectors: u64) -> Written {
        let words = sectors.div_ceil(GRANULE_SECTORS).div_ceil(64);
        Written((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(granule: u64) -> (usize, u64) {
        ((granule / 64) as usize, 1 << (granule % 64))
    }

    /// Before the write completes: a thread that sees its end sees the bits, too.
    fn note(&self, sectors: Range<u64>) {
        for granule in sectors.start / GRANULE_SECTORS..sectors.end.div_ceil(GRANULE_SECTORS) {
            let (word, bit) = Written::place(granule);
            if self.0[word].load(Ordering::Relaxed) & bit == 0 {
                self.0[word].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    fn is_written(&self, granule: u64) -> bool {
        let (word, bit) = Written::place(granule);
        self.0[word].load(Ordering::Relaxed) & bit != 0
    }
}

/// Start sectors of the most recent reads.
#[derive(Default)]
#[repr(C)]
struct Recent {
    next: usize,
    sectors: [u64; RECENT],
}

impl Recent {
    fn note(&mut self, sector: Sector) {
        self.sectors[self.next] = sector.0 + 1;
        self.next = (self.next + 1) % RECENT;
    }

    fn contains(&self, sector: Sector) -> bool {
        // No early exit: comparing all of them is faster.
        self.sectors.iter().fold(false, |found, at| found | (*at == sector.0 + 1))
    }
}

impl MemMember {
    /// Makes a member of `sectors` sectors, all zeroes.
    ///
    /// # Errors
    /// When the system has no address space for it.
    pub fn new(sectors: u64) -> std::io::Result<MemMember> {
        let bytes = sectors.checked_mul(md::SECTOR_BYTES).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let written = Arc::new(Written::new(sectors));
        Ok(MemMember::over(Arc::new(Region::new(bytes)?), written, sectors))
    }

    /// Whether a read is inside; it is counted then.
    fn is_read(&mut self, sector: Sector, bytes: u64) -> bool {
        let end = sector.0.checked_add(bytes / md::SECTOR_BYTES);
        let is_inside = end.is_some_and(|end| end <= self.sectors);
        if is_inside {
            self.counters.reads += 1;
            self.counters.read_bytes += bytes;
        }
        is_inside
    }

    fn over(region: Arc<Region>, written: Arc<Written>, sectors: u64) -> MemMember {
        let (counters, recent) = (Counters::default(), Recent::default());
        MemMember { region, number: None, sectors, written, counters, recent }
    }

    /// Whether the destination of a write is unlikely to be cached.
    fn is_far(&self, op: &Op<'_>) -> bool {
        self.region.len() >= PAST_FROM_MEMBER_BYTES
            && op.bytes() >= PAST_FROM_BYTES
            && !self.recent.contains(op.sector)
    }

    /// Calls `each` with the member span and the buffer span of every slice.
    fn each(&self, op: &Op<'_>, io: &Io, each: impl Fn(Span, Span)) {
        let mut at = op.sector.0 * md::SECTOR_BYTES;
        for slice in op.slices {
            let BufSlice { len, .. } = *slice;
            each(self.region.span(at, len as usize), io.regions.span(*slice));
            at += u64::from(len);
        }
    }
}

impl Sealed for MemMember {}

impl Leaf for MemMember {
    fn info(&self) -> MemberInfo {
        MemberInfo {
            sectors: self.sectors,
            logical_block: 512,
            discard_zeroes: true,
            keeps_data: true,
            uses_ring: false,
            in_memory: true,
            synchronous: true,
        }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let written = self.written.clone();
        Some(Box::new(MemMember::over(self.region.clone(), written, self.sectors)))
    }

    fn get_ready_to_lend(&mut self, regions: &mut Regions) {
        self.number = Some(regions.add_member(self.region.clone()));
    }

    fn lend(&mut self, sector: Sector, bytes: u64) -> Option<BufSlice> {
        let region = self.number?;
        if !self.is_read(sector, bytes) {
            return None;
        }
        self.recent.note(sector);
        let len = u32::try_from(bytes).ok()?;
        Some(BufSlice { region, len, offset: sector.0 * md::SECTOR_BYTES })
    }

    fn lend_to_host(&mut self, sector: Sector, bytes: u64) -> Option<(Arc<Region>, u64)> {
        let offset = sector.0 * md::SECTOR_BYTES;
        self.is_read(sector, bytes).then(|| (self.region.clone(), offset))
    }

    fn known(&self, sector: Sector, limit: Sector) -> Known {
        let first = sector.0 / GRANULE_SECTORS;
        let is_hole = !self.written.is_written(first);
        let mut others = first + 1..limit.0.div_ceil(GRANULE_SECTORS);
        let end = others.find(|granule| self.written.is_written(*granule) == is_hole);
        let end = end.map_or(limit, |granule| Sector(granule * GRANULE_SECTORS));
        Known { is_hole, end: Sector(end.0.min(limit.0)) }
    }

    fn prefetch(&self, sector: Sector) {
        let at = sector.0.saturating_mul(md::SECTOR_BYTES);
        if at.saturating_add(AHEAD_BYTES) <= self.region.len() as u64 {
            self.region.span(at, AHEAD_BYTES as usize).prefetch();
        }
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.counters.count(op);
        let inside = op.sector.0 + op.sectors <= self.sectors && op.kind != OpKind::WriteLog;
        let result = if inside { Ok(()) } else { Err(op.error(MemberError::Invalid)) };
        if inside {
            if let OpKind::Write { .. } = op.kind {
                self.written.note(op.sector.0..op.sector.0 + op.sectors);
            }
            match op.kind {
                OpKind::Read => {
                    self.recent.note(op.sector);
                    self.each(op, io, |here, buffer| buffer.copy_from(here));
                }
                OpKind::Write { .. }
                    if self.is_far(op) && io.store_policy.goes_past(op.bytes()) =>
                {
                    self.each(op, io, |here, buffer| here.stream_from(buffer));
                    io.stored_past = true;
                }
                OpKind::Write { .. } => self.each(op, io, |here, buffer| here.copy_from(buffer)),
                OpKind::Discard | OpKind::WriteZeroes => {
                    let len = op.bytes() as usize;
                    self.region.span(op.sector.0 * md::SECTOR_BYTES, len).fill_zero();
                }
                OpKind::Flush | OpKind::WriteLog => {}
            }
        }
        done.push(MemberCompletion { token: op.token, result });
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::StorePolicy;

    const BLOCK: BufSlice = BufSlice { region: 0, len: 4096, offset: 0 };

    fn io() -> Io {
        let mut regions = Regions::new().expect("memory");
        regions.add(Arc::new(Region::new(1 << 20).expect("memory")));
        let kernels = parity::Kernels::best();
        Io {
            ring: None,
            regions,
            kernels,
            now: 0,
            looks: host::sys::Looks::new(None, 0),
            store_policy: StorePolicy::default(),
            stored_past: false,
        }
    }

    /// Says whether the operation went past the caches.
    fn run(
        member: &mut MemMember,
        io: &mut Io,
        kind: OpKind,
        sector: u64,
        slice: BufSlice,
    ) -> bool {
        let token = engine::Token::from_bits(0);
        let (sector, sectors) = (Sector(sector), u64::from(slice.len) / md::SECTOR_BYTES);
        let op = Op { token, kind, sector, sectors, slices: &[slice] };
        let mut done = Vec::new();
        Leaf::submit(member, &op, io, &mut done);
        assert_eq!(done.pop().map(|done| done.result), Some(Ok(())));
        std::mem::take(&mut io.stored_past)
    }

    fn bytes(io: &Io, slice: BufSlice) -> Vec<u8> {
        let mut bytes = Vec::new();
        io.regions.span(slice).append_to(&mut bytes);
        bytes
    }

    #[test]
    fn written_data_are_read_back_whichever_way_they_were_stored() {
        let (mut io, write) = (io(), OpKind::Write { fua: false });
        let (from, to) = (BLOCK, BufSlice { offset: 8192, ..BLOCK });
        let large = (PAST_FROM_MEMBER_BYTES / 512) as u64;
        for (sectors, past) in [(large, true), (large / 2, false)] {
            let mut member = MemMember::new(sectors).expect("memory");
            for sector in [0, 8, 1000, sectors - 8] {
                let content: Vec<u8> = (0..4096).map(|at| (at + sector) as u8 | 1).collect();
                io.regions.span(from).copy_from_slice(&content);
                assert_eq!(run(&mut member, &mut io, write, sector, from), past);
                io.regions.span(to).fill_zero();
                run(&mut member, &mut io, OpKind::Read, sector, to);
                assert_eq!(bytes(&io, to), content);
                // It is in the caches now.
                assert!(!run(&mut member, &mut io, write, sector, from));
                // As long as not much else was read.
                for other in 0..RECENT as u64 {
                    run(&mut member, &mut io, OpKind::Read, 16 * other + 24, to);
                }
                assert_eq!(run(&mut member, &mut io, write, sector, from), past);
            }
            // Short writes leave the rest of the page where it is.
            assert!(!run(&mut member, &mut io, write, 16, BufSlice { len: 2048, ..from }));
        }
    }

    #[test]
    fn a_read_at_the_end_is_not_expected_beyond_it() {
        let member = MemMember::new(8).expect("memory");
        Leaf::prefetch(&member, Sector(7));
        Leaf::prefetch(&member, Sector(8));
        Leaf::prefetch(&member, Sector(u64::MAX));
    }
}
