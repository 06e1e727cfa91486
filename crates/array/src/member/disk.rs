//! A blocking member on any [`Disk`]: for disks without a file of their own for io_uring, such as
//! an overlay.
//!
//! Invariant: every operation has completed when `submit` returns. The whole array waits for it,
//! including I/O to its other members: a rehearsal need not be fast.

use std::ops::Range;
use std::sync::Arc;

use engine::MemberError;
use md::Sector;

use super::error_text;
use super::file::cause_of;
use super::{Counters, Io, Known, Leaf, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed};
use host::{DATA_STEP, Disk};

/// A blocking member; see the module documentation.
pub struct DiskMember {
    disk: Arc<dyn Disk>,
    area: Range<u64>,
    /// The area of its partial parity log.
    log: Range<u64>,
    bytes: Vec<u8>,
    counters: Counters,
}

impl DiskMember {
    /// Makes a member of the sectors `area` of a disk.
    ///
    /// # Panics
    /// When the area is not inside the disk.
    pub fn new(disk: Arc<dyn Disk>, area: Range<u64>) -> DiskMember {
        assert!(area.start <= area.end && area.end <= disk.sectors(), "outside the disk");
        let (log, bytes, counters) = (0..0, Vec::new(), Counters::default());
        DiskMember { disk, area, log, bytes, counters }
    }

    /// Adds the sectors of its partial parity log.
    ///
    /// # Panics
    /// When the area is not inside the disk.
    #[must_use]
    pub fn with_log(self, log: Range<u64>) -> DiskMember {
        assert!(log.start <= log.end && log.end <= self.disk.sectors(), "outside the disk");
        DiskMember { log, ..self }
    }

    /// The area of an operation.
    fn area_of(&self, kind: OpKind) -> &Range<u64> {
        if kind == OpKind::WriteLog { &self.log } else { &self.area }
    }

    fn perform(&mut self, op: &Op<'_>, io: &Io) -> std::io::Result<()> {
        let first = self.area_of(op.kind).start + op.sector.0;
        match op.kind {
            OpKind::Read => {
                self.bytes.resize(op.bytes() as usize, 0);
                self.disk.read(first, &mut self.bytes)?;
                let mut rest = &self.bytes[..];
                for slice in op.slices {
                    let (part, behind) = rest.split_at(slice.len as usize);
                    io.regions.span(*slice).copy_from_slice(part);
                    rest = behind;
                }
                Ok(())
            }
            OpKind::Write { .. } | OpKind::WriteLog => {
                self.bytes.clear();
                for slice in op.slices {
                    io.regions.span(*slice).append_to(&mut self.bytes);
                }
                self.disk.write(first, &self.bytes)?;
                let is_durable = op.kind != OpKind::Write { fua: false };
                if is_durable { self.disk.sync() } else { Ok(()) }
            }
            OpKind::Flush => self.disk.sync(),
            // Nothing to do: discards do not promise zeroes here.
            OpKind::Discard => Ok(()),
            OpKind::WriteZeroes => self.disk.write_zeroes(first..first + op.sectors),
        }
    }
}

impl Sealed for DiskMember {}

impl Leaf for DiskMember {
    fn info(&self) -> MemberInfo {
        MemberInfo {
            sectors: self.area.end - self.area.start,
            logical_block: self.disk.logical_block(),
            discard_zeroes: false,
            keeps_data: true,
            uses_ring: false,
            in_memory: false,
            synchronous: false,
        }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let shared = DiskMember::new(self.disk.clone(), self.area.clone());
        Some(Box::new(shared.with_log(self.log.clone())))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.counters.count(op);
        let area = self.area_of(op.kind);
        let inside = op.sector.0 + op.sectors <= area.end - area.start;
        let result = match inside {
            false => Err(op.error(MemberError::Invalid)),
            true => self.perform(op, io).map_err(|error| {
                let error = op.error(cause_of(&error, op.kind));
                error_text::log(&error, Leaf::place(self));
                error
            }),
        };
        done.push(MemberCompletion { token: op.token, result });
    }

    fn known(&self, sector: Sector, limit: Sector) -> Known {
        let first = self.area.start + sector.0;
        let hole = self.disk.hole_end(first).saturating_sub(self.area.start).min(limit.0);
        match hole > sector.0 {
            true => Known { is_hole: true, end: Sector(hole) },
            // Where the data end is not known.
            false => Known { is_hole: false, end: Sector((sector.0 + DATA_STEP).min(limit.0)) },
        }
    }

    fn place(&self) -> Option<(String, u64)> {
        Some((self.disk.name(), self.area.start))
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
