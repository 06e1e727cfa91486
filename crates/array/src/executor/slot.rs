//! The place of a member in its executor: the member, and its operations.
//!
//! Invariant: what a member completes leaves its operations in flight in the same call.

use std::collections::VecDeque;

use engine::{BufSlice, Token};
use md::Sector;

use crate::in_flight::InFlight;
use crate::member::{Counters, Io, Member, MemberCompletion, Op, OpKind};

/// An operation that waits because its member is at its queue depth.
pub(super) struct Queued {
    pub(super) token: Token,
    pub(super) kind: OpKind,
    pub(super) sector: Sector,
    pub(super) sectors: u64,
    pub(super) slices: Vec<BufSlice>,
}

/// In this order, what each operation looks at is in two cache lines.
#[repr(C, align(64))]
pub(super) struct MemberSlot {
    /// `None`: missing from the start.
    pub(super) member: Option<Box<dyn Member>>,
    /// Whether it needs `submit_batch` after submissions; that of an array does.
    pub(super) gathers: bool,
    pub(super) queued: VecDeque<Queued>,
    pub(super) in_flight: InFlight,
    /// Counters of former members of the slot, where each was one leaf.
    pub(super) former: Option<Counters>,
}

impl MemberSlot {
    /// Counters of the slot's leaves, those of former members included.
    pub(super) fn leaf_counters(&self, out: &mut Vec<Counters>) {
        let first = out.len();
        match &self.member {
            Some(member) => member.leaf_counters(out),
            None => out.push(Counters::default()),
        }
        if let (Some(former), [only]) = (&self.former, &mut out[first..]) {
            only.add(former);
        }
    }

    /// Name of its device, as it was given; `None` of one in memory, or of several.
    pub(super) fn device(&self) -> Option<String> {
        let member = self.member.as_ref()?;
        let mut files = Vec::new();
        member.files(&mut files);
        match &files[..] {
            [only] => Some(only.name.clone()),
            _ => member.place().map(|(device, _)| device),
        }
    }

    /// Calls the member; operations that complete during the call are no longer in flight. Returns
    /// how many of these had not been in flight before.
    pub(super) fn call(
        &mut self,
        done: &mut Vec<MemberCompletion>,
        call: impl FnOnce(&mut dyn Member, &mut Vec<MemberCompletion>),
    ) -> usize {
        let member = self.member.as_mut().expect("only members are called");
        let first = done.len();
        call(member.as_mut(), done);
        if self.gathers {
            member.take_held(&mut |held| self.in_flight.hold(held));
        }
        self.in_flight.end(done, first)
    }

    pub(super) fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.in_flight.submit();
        let now = io.looks.time();
        if self.call(done, |member, done| member.submit(op, io, done)) == 0 {
            self.in_flight.begin(op, now);
        }
    }
}
