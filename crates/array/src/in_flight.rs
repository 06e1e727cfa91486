//! The operations in flight on one member, and when they are late.
//!
//! Invariant: an operation is in flight until the member completes it, also when it is late: then
//! the engine gets two inputs, that it is late, and later that its memory is free. Operations that
//! complete while they are submitted are only counted. Called only from `executor`.
//!
//! An array as a member also ends operations whose buffers a late operation of its own members
//! still uses: they are late, too, with the result that they have.

use std::collections::VecDeque;
use std::time::Duration;

use engine::{Input, MemberError, Token};
use md::Sector;

use crate::member::{MemberCompletion, Op, OpKind};

struct Begun {
    token: Token,
    kind: OpKind,
    sector: Sector,
    sectors: u64,
    due: u64,
}

/// Discards and writes of zeroes may be long: they get a second more for each of these, which a
/// disk that has to write them all needs.
const SECTORS_PER_SECOND: u64 = host::CLEARED_BYTES_PER_SECOND / md::SECTOR_BYTES;

/// See the module documentation. Times are nanoseconds that the driver's thread may charge
/// ([`host::sys::Looks`]). What each operation looks at comes first.
#[repr(C)]
pub(crate) struct InFlight {
    count: usize,
    /// In the order of their submission.
    begun: VecDeque<Begun>,
    late: Vec<Token>,
    /// How long an operation may take; `u64::MAX`: none is late.
    limit: u64,
    /// Everything is late from this time on.
    abandoned_at: u64,
    /// How many of them have more time than others.
    long: usize,
    /// What the engine has not seen yet: late operations that have ended, or have completed.
    reports: Vec<Input>,
}

impl InFlight {
    pub(crate) fn new() -> InFlight {
        InFlight {
            count: 0,
            limit: u64::MAX,
            abandoned_at: u64::MAX,
            begun: VecDeque::new(),
            long: 0,
            late: Vec::new(),
            reports: Vec::new(),
        }
    }

    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit.map_or(u64::MAX, |limit| limit.as_nanos().min(1 << 62) as u64);
    }

    /// How long an operation may take, except long ones.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (self.limit < u64::MAX).then(|| Duration::from_nanos(self.limit))
    }

    /// Another member has the slot now.
    pub(crate) fn restart(&mut self) {
        assert_eq!(self.count, 0, "a member is replaced while it is at work");
        self.abandoned_at = u64::MAX;
    }

    /// How many there are, late ones included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many of them are late.
    pub(crate) fn late(&self) -> usize {
        self.late.len()
    }

    /// Counts an operation that is being submitted.
    pub(crate) fn submit(&mut self) {
        self.count += 1;
    }

    /// The operation has not completed while it was submitted.
    pub(crate) fn begin(&mut self, op: &Op<'_>, at: u64) {
        if self.limit == u64::MAX {
            return;
        }
        let Op { token, kind, sector, sectors, .. } = *op;
        let mut due = at.saturating_add(self.limit);
        if kind.is_long() {
            due = due.saturating_add(sectors / SECTORS_PER_SECOND * 1_000_000_000);
            self.long += 1;
        }
        self.begun.push_back(Begun { token, kind, sector, sectors, due });
    }

    /// The member has completed what is in `done` from `first` on: late operations are taken out.
    /// Returns how many of the rest were never begun.
    #[inline]
    pub(crate) fn end(&mut self, done: &mut Vec<MemberCompletion>, first: usize) -> usize {
        self.count -= done.len() - first;
        if self.begun.is_empty() && self.late.is_empty() {
            return done.len() - first;
        }
        self.end_begun(done, first)
    }

    fn end_begun(&mut self, done: &mut Vec<MemberCompletion>, first: usize) -> usize {
        let (mut at, mut others) = (first, 0);
        while let Some(MemberCompletion { token, result }) = done.get(at).copied() {
            if let Some(mine) = self.begun.iter().position(|begun| begun.token == token) {
                let begun = self.begun.remove(mine);
                self.long -= usize::from(begun.is_some_and(|begun| begun.kind.is_long()));
                at += 1;
            } else if let Some(mine) = self.late.iter().position(|late| *late == token) {
                self.late.swap_remove(mine);
                self.reports.push(Input::Released { token, result });
                done.swap_remove(at);
            } else {
                others += 1;
                at += 1;
            }
        }
        others
    }

    /// Everything that has not completed at this time is late.
    pub(crate) fn abandon(&mut self, at: u64) {
        self.abandoned_at = self.abandoned_at.min(at);
    }

    /// When an operation is late next.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let first = match self.long {
            0 => self.begun.front()?.due,
            _ => self.begun.iter().map(|begun| begun.due).min()?,
        };
        Some(first.min(self.abandoned_at))
    }

    /// Reports the operations that are late now, and with them all that have the same tokens.
    pub(crate) fn report_late(&mut self, now: u64, inputs: &mut Vec<Input>) {
        let abandoned = self.abandoned_at <= now;
        let is_late = |begun: &&Begun| abandoned || begun.due <= now;
        let late: Vec<Token> = self.begun.iter().filter(is_late).map(|begun| begun.token).collect();
        self.begun.retain(|begun| {
            if !late.contains(&begun.token) {
                return true;
            }
            let Begun { token, kind, sector, sectors, .. } = *begun;
            let op = Op { token, kind, sector, sectors, slices: &[] };
            let result = op.failed(MemberError::Timeout).result;
            inputs.push(Input::Late { token, result });
            self.late.push(token);
            self.long -= usize::from(kind.is_long());
            false
        });
    }

    /// An operation has ended with this result, and completes when its buffers are free: until then
    /// it is late.
    pub(crate) fn hold(&mut self, held: MemberCompletion) {
        let MemberCompletion { token, result } = held;
        // It may have been late before.
        let Some(mine) = self.begun.iter().position(|begun| begun.token == token) else { return };
        let begun = self.begun.remove(mine);
        self.long -= usize::from(begun.is_some_and(|begun| begun.kind.is_long()));
        self.late.push(token);
        self.reports.push(Input::Late { token, result });
    }

    /// Reports what has become of late operations.
    pub(crate) fn report(&mut self, inputs: &mut Vec<Input>) {
        inputs.append(&mut self.reports);
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }
}
