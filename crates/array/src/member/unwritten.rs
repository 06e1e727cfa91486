//! A member that is only read: what would be written to it is dropped.
//!
//! Invariant: only reads reach the member below; everything else completes at once, as if it had
//! been done. Used by `admin::start` for arrays that are looked at as they were found.

use std::ops::Range;
use std::time::Duration;

use engine::IoError;
use md::Sector;

use super::{
    Counters, Cqe, FileId, FormerLeaf, Io, Known, Member, MemberCompletion, MemberInfo, Op, OpKind,
    Sealed,
};

/// A member that is only read; see the module documentation.
pub struct UnwrittenMember(Box<dyn Member>);

impl UnwrittenMember {
    /// Keeps writes off this member.
    pub fn new(inner: Box<dyn Member>) -> UnwrittenMember {
        UnwrittenMember(inner)
    }
}

impl Sealed for UnwrittenMember {}

impl Member for UnwrittenMember {
    fn info(&self) -> MemberInfo {
        self.0.info()
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        Some(Box::new(UnwrittenMember(self.0.share()?)))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        match op.kind {
            OpKind::Read => self.0.submit(op, io, done),
            _ => done.push(MemberCompletion { token: op.token, result: Ok(()) }),
        }
    }

    fn add_bad_blocks(&mut self, _sector: Sector, _sectors: u64) -> Result<(), IoError> {
        Ok(())
    }

    fn known(&self, sector: Sector, limit: Sector) -> Known {
        self.0.known(sector, limit)
    }

    fn prefetch(&self, sector: Sector) {
        self.0.prefetch(sector);
    }

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.0.submit_batch(io, done);
    }

    fn gathers(&self) -> bool {
        self.0.gathers()
    }

    fn take_held(&mut self, held: &mut dyn FnMut(MemberCompletion)) {
        self.0.take_held(held);
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration> {
        self.0.set_timeout(limit)
    }

    fn late_operations(&self) -> usize {
        self.0.late_operations()
    }

    fn reap(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.0.reap(io, done);
    }

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.0.complete(event, io, done);
    }

    fn wake_at(&self) -> Option<u64> {
        self.0.wake_at()
    }

    fn deadline(&self) -> Option<u64> {
        self.0.deadline()
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.0.number_leaves(next)
    }

    fn place(&self) -> Option<(String, u64)> {
        self.0.place()
    }

    fn files(&self, out: &mut Vec<FileId>) {
        self.0.files(out);
    }

    fn is_quiet(&self) -> bool {
        self.0.is_quiet()
    }

    fn disassemble(&mut self, in_service: bool, out: &mut Vec<FormerLeaf>) -> bool {
        self.0.disassemble(in_service, out)
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        self.0.leaf_counters(out);
    }
}

#[cfg(test)]
mod tests {
    use engine::Token;

    use super::*;
    use crate::member::MemMember;

    #[test]
    fn what_is_written_completes_and_is_dropped() {
        let regions = crate::buf::Regions::new().expect("memory");
        let mut io = Io {
            ring: None,
            regions,
            kernels: parity::Kernels::best(),
            now: 0,
            looks: host::sys::Looks::new(None, 0),
            store_policy: Default::default(),
            stored_past: false,
        };
        let inner = MemMember::new(64).expect("memory");
        let mut member = UnwrittenMember::new(Box::new(inner));
        let mut done = Vec::new();
        for kind in [OpKind::Write { fua: true }, OpKind::WriteZeroes, OpKind::Flush] {
            let token = Token::from_bits(7);
            let op = Op { token, kind, sector: Sector(0), sectors: 8, slices: &[] };
            member.submit(&op, &mut io, &mut done);
        }
        assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 3);
        let mut counters = Vec::new();
        member.leaf_counters(&mut counters);
        assert_eq!((counters[0].writes, counters[0].flushes), (0, 0));
    }
}
