//! Operations of members that are late: ended for the array, and not completed.
//!
//! ```text
//! Input::Late --> hold the memory --> as if the operation had ended --> Input::Released --> free
//! ```
//! Invariant: memory that a late operation uses is given to nothing else, and a member with an
//! operation that has timed out gets no further one, until that has completed. So a late write can
//! never overwrite what was written after it. The records of a late operation (a request, an
//! operation on a row) keep their place in their tables, so that its token stays its own. Called
//! only from `shard`.

use md::{MemberIdx, Sector};

use super::{Personality, Shard};
use crate::token::Kind;
use crate::{Effect, Effects, IoError, MemberError, MemberOp, MemberSet, Token};

/// How long operations in flight may take after their member was taken out of service for another
/// reason than a timeout.
const GRACE_NANOS: u64 = 1_000_000_000;

struct Late {
    token: Token,
    member: u16,
    /// The member itself is late, not only a part of an array that is the member.
    has_timed_out: bool,
}

/// The late operations of a shard: at most as many as were in flight.
#[derive(Default)]
pub(super) struct Quarantine {
    late: Vec<Late>,
    /// Members with operations that have timed out.
    silent: MemberSet,
}

impl Quarantine {
    pub(super) fn len(&self) -> usize {
        self.late.len()
    }

    fn insert(&mut self, late: Late) {
        if late.has_timed_out {
            self.silent.insert(late.member);
        }
        self.late.push(late);
    }

    /// Takes a late operation out; returns its member.
    fn remove(&mut self, token: Token) -> u16 {
        let at = self.late.iter().position(|late| late.token == token);
        let at = at.unwrap_or_else(|| panic!("{token:?} is released and was not late"));
        let Late { member, .. } = self.late.swap_remove(at);
        let others = self.late.iter().filter(|late| late.has_timed_out);
        self.silent = others.map(|late| late.member).collect();
        member
    }
}

impl Shard {
    /// The member that an operation went to.
    fn member_of(&self, token: Token) -> u16 {
        match &self.personality {
            Personality::Parity(stripes) if token.kind() == Kind::StripeIo => {
                stripes.member_of(&self.config.geometry, token)
            }
            _ => token.slot(),
        }
    }

    pub(super) fn late(
        &mut self,
        now: u64,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) {
        let member = self.member_of(token);
        let has_timed_out = result.is_err_and(|error| error.kind == MemberError::Timeout);
        self.quarantine.insert(Late { token, member, has_timed_out });
        match (self.split(now, out), token.kind()) {
            (_, Kind::Flush | Kind::LogFlush) => {}
            ((Personality::Parity(stripes), _), Kind::Log) => stripes.hold_log(member),
            ((Personality::Parity(stripes), mut cx), Kind::StripeIo) => {
                stripes.hold(&mut cx, token)
            }
            ((Personality::Parity(stripes), _), Kind::RowsZero) => stripes.hold_rows(token),
            ((_, cx), _) => cx.requests.hold(token.key().index, cx.out),
        }
        match (token.kind(), result) {
            (Kind::Flush, Err(error)) if has_timed_out => self.flush_timed_out(token, error, out),
            _ => self.io_done(now, token, result, out),
        }
        if has_timed_out && self.health.is_failed(member) {
            out.list.push(Effect::Abandon { member: MemberIdx(member), at: now });
        }
    }

    pub(super) fn released(
        &mut self,
        now: u64,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) {
        let member = self.quarantine.remove(token);
        match (self.split(now, out), token.kind()) {
            (_, Kind::Flush | Kind::LogFlush) => {}
            ((Personality::Parity(stripes), _), Kind::Log) => stripes.release_log(member),
            ((Personality::Parity(stripes), mut cx), Kind::StripeIo) => {
                stripes.release(&mut cx, token);
            }
            ((Personality::Parity(stripes), _), Kind::RowsZero) => stripes.release_rows(token),
            ((_, cx), _) => cx.requests.release(token.key().index, cx.out),
        }
        let is_lost = result.is_err_and(|error| error.kind.lacks().is_none());
        if token.kind() == Kind::Flush && is_lost && !self.health.is_failed(member) {
            self.not_durable(member, out);
        }
    }

    /// Operations in flight on members that were taken out of service in this batch get little more
    /// time.
    pub(super) fn abandon_failed(&self, now: u64, before: MemberSet, out: &mut Effects) {
        let failed = self.health.failed();
        // With replacements there are no deadlines: see `Input::Late`.
        if failed == before || self.health.has_places() {
            return;
        }
        for member in failed.minus(before).minus(self.quarantine.silent).iter() {
            let at = now + GRACE_NANOS;
            out.list.push(Effect::Abandon { member: MemberIdx(member), at });
        }
    }

    /// Takes operations on members that are silent out of the effects from `first` on and ends them
    /// with a timeout. Returns whether there were any.
    pub(super) fn refuse_silent(&mut self, now: u64, first: usize, out: &mut Effects) -> bool {
        let silent = self.quarantine.silent;
        if silent.is_empty() {
            return false;
        }
        let Effects { list, slices, .. } = out;
        let length = |range: &std::ops::Range<u32>| {
            let slices = &slices[range.start as usize..range.end as usize];
            slices.iter().map(|slice| slice.sectors()).sum()
        };
        let of_silent = |effect: &mut Effect| {
            operation(effect, length).is_some_and(|(_, member, _)| silent.contains(member))
        };
        let refused: Vec<Effect> = list.extract_if(first.., of_silent).collect();
        let refused: Vec<_> =
            refused.iter().filter_map(|effect| operation(effect, length)).collect();
        for (token, _, error) in &refused {
            match token.kind() {
                Kind::Flush => self.flush_timed_out(*token, *error, out),
                _ => self.io_done(now, *token, Err(*error), out),
            }
        }
        !refused.is_empty()
    }
}

/// An operation of a member: its token, the member, and the error with which it times out.
fn operation(
    effect: &Effect,
    length: impl Fn(&std::ops::Range<u32>) -> u64,
) -> Option<(Token, u16, IoError)> {
    let (token, member, op, sector, sectors) = match effect {
        Effect::Read { token, member, sector, slices, .. } => {
            (token, member, MemberOp::Read, *sector, length(slices))
        }
        Effect::Write { token, member, sector, slices, .. } => {
            (token, member, MemberOp::Write, *sector, length(slices))
        }
        Effect::WriteLog { token, member, sector, slices, .. } => {
            (token, member, MemberOp::Write, *sector, length(slices))
        }
        Effect::Flush { token, member } => (token, member, MemberOp::Flush, Sector(0), 0),
        Effect::Discard { token, member, sector, sectors } => {
            (token, member, MemberOp::Discard, *sector, *sectors)
        }
        Effect::WriteZeroes { token, member, sector, sectors } => {
            (token, member, MemberOp::WriteZeroes, *sector, *sectors)
        }
        Effect::AddBadBlocks { token, member, .. } => {
            (token, member, MemberOp::Metadata, Sector(0), 0)
        }
        _ => return None,
    };
    let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
    let error = IoError { kind: MemberError::Timeout, op, errno: None, sectors, sector };
    Some((*token, member.0, error))
}
