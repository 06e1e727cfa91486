//! Flushes: one coalesced round over the members that were written.
//!
//! ```text
//! shard 0:   request -> collect ----------------------> flush each member once -> ended
//! others:               give up what they have written ^
//! ```
//! Invariant: a flush request completes after a member flush that was issued after every write that
//! had completed, in any shard, when the request arrived. A request that arrives during a round
//! waits for the next one, because the running round may have started before writes that it must
//! cover. Members taken over from other shards are flushed by shard 0, also when a flush fails.

use md::MemberIdx;

use crate::slab::Key;
use crate::token::Kind;
use crate::{ControlEvent, Effect, Effects, MemberSet, RequestError, Token};

/// A completed flush request, with its error if it failed.
pub(crate) type Ended = (u32, Option<RequestError>);

#[derive(Default)]
pub(crate) struct Flushes {
    /// Members with completed writes that no flush has covered yet.
    written: MemberSet,
    /// Number of other shards, and of those that have not answered.
    others: u16,
    awaited: u16,
    open: u32,
    failed: Option<RequestError>,
    round: u32,
    riding: Vec<u32>,
    waiting: Vec<u32>,
}

impl Flushes {
    pub(crate) fn with_others(others: u16) -> Flushes {
        Flushes { others, ..Flushes::default() }
    }

    /// Returns and clears the written members: shard 0 flushes them.
    pub(crate) fn give_written(&mut self) -> MemberSet {
        std::mem::take(&mut self.written)
    }

    /// Another shard has passed on its written members. `kept`: see [`crate::Control::Written`].
    pub(crate) fn other_written(
        &mut self,
        members: MemberSet,
        kept: bool,
        failed: MemberSet,
        out: &mut Effects,
        ended: &mut Vec<Ended>,
    ) {
        assert!(self.awaited > 0, "an answer without a question");
        self.awaited -= 1;
        self.written = self.written.union(members);
        if !kept {
            self.failed.get_or_insert(RequestError::Io);
        }
        if self.awaited == 0 {
            self.flush_members(failed, out, ended);
        }
    }

    #[inline]
    pub(crate) fn note_written(&mut self, member: u16) {
        self.written.insert(member);
    }

    /// Adds a flush request. Requests that need no flush, or whose round is complete, go to
    /// `ended`.
    pub(crate) fn request(
        &mut self,
        request: u32,
        failed: MemberSet,
        out: &mut Effects,
        ended: &mut Vec<Ended>,
    ) {
        self.waiting.push(request);
        if self.open == 0 && self.awaited == 0 {
            self.start_round(failed, out, ended);
        }
    }

    /// A member's flush completed. `kept_error`: it failed and the member is still in service, so
    /// its writes may not be durable.
    pub(crate) fn flush_done(
        &mut self,
        token: Token,
        kept_error: Option<RequestError>,
        failed: MemberSet,
        out: &mut Effects,
        ended: &mut Vec<Ended>,
    ) {
        if self.open == 0 || token.key().index != self.round {
            return;
        }
        if let Some(error) = kept_error {
            self.failed.get_or_insert(error);
            self.written.insert(token.slot());
        }
        self.open -= 1;
        if self.open == 0 {
            self.end_round(failed, out, ended);
        }
    }

    fn start_round(&mut self, failed: MemberSet, out: &mut Effects, ended: &mut Vec<Ended>) {
        std::mem::swap(&mut self.riding, &mut self.waiting);
        self.failed = None;
        if self.others == 0 {
            return self.flush_members(failed, out, ended);
        }
        self.awaited = self.others;
        out.list.push(Effect::Control(ControlEvent::CollectDirtyMembers));
    }

    fn flush_members(&mut self, failed: MemberSet, out: &mut Effects, ended: &mut Vec<Ended>) {
        self.round = (self.round + 1) & 0x00ff_ffff;
        let key = Key { index: self.round, generation: 0 };
        for member in self.written.minus(failed).iter() {
            let token = Token::new(Kind::Flush, member, key);
            out.list.push(Effect::Flush { token, member: MemberIdx(member) });
            self.open += 1;
        }
        self.written = MemberSet::EMPTY;
        if self.open == 0 {
            self.end_round(failed, out, ended);
        }
    }

    fn end_round(&mut self, failed: MemberSet, out: &mut Effects, ended: &mut Vec<Ended>) {
        ended.extend(self.riding.drain(..).map(|request| (request, self.failed)));
        if !self.waiting.is_empty() {
            self.start_round(failed, out, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(out: &mut Effects) -> Vec<Token> {
        let tokens = out.list.iter().map(|effect| match effect {
            Effect::Flush { token, .. } => *token,
            other => panic!("unexpected {other:?}"),
        });
        let tokens = tokens.collect();
        out.clear();
        tokens
    }

    #[test]
    fn a_late_request_rides_the_next_round() {
        let (mut flushes, mut out, mut ended) = (Flushes::default(), Effects::new(), Vec::new());
        let (none, io) = (MemberSet::EMPTY, Some(RequestError::Io));
        flushes.note_written(0);
        flushes.note_written(2);
        flushes.request(10, none, &mut out, &mut ended);
        let first = tokens(&mut out);
        assert_eq!(first.len(), 2);
        flushes.note_written(1);
        flushes.request(11, none, &mut out, &mut ended);
        flushes.request(12, none, &mut out, &mut ended);
        assert!(out.list.is_empty() && ended.is_empty());
        flushes.flush_done(first[0], None, none, &mut out, &mut ended);
        flushes.flush_done(first[1], None, none, &mut out, &mut ended);
        assert_eq!(ended, [(10, None)]);
        let second = tokens(&mut out);
        assert_eq!(second.len(), 1);
        flushes.flush_done(second[0], io, none, &mut out, &mut ended);
        assert_eq!(ended, [(10, None), (11, io), (12, io)]);
    }

    #[test]
    fn a_round_waits_for_the_written_members_of_other_shards() {
        let (mut out, mut ended) = (Effects::new(), Vec::new());
        let (none, io) = (MemberSet::EMPTY, Some(RequestError::Io));
        let mut flushes = Flushes::with_others(2);
        flushes.note_written(0);
        flushes.request(10, none, &mut out, &mut ended);
        assert!(matches!(out.list[..], [Effect::Control(ControlEvent::CollectDirtyMembers)]));
        out.clear();
        flushes.other_written(MemberSet::one(2), true, none, &mut out, &mut ended);
        flushes.request(11, none, &mut out, &mut ended);
        assert!(out.list.is_empty());
        let theirs = MemberSet::range(2, 4);
        flushes.other_written(theirs, true, MemberSet::one(3), &mut out, &mut ended);
        let first = tokens(&mut out);
        assert_eq!(first.iter().map(|token| token.slot()).collect::<Vec<_>>(), [0, 2]);
        flushes.flush_done(first[0], None, none, &mut out, &mut ended);
        flushes.flush_done(first[1], None, none, &mut out, &mut ended);
        assert_eq!(ended, [(10, None)]);
        out.clear();
        // The second round: nothing was written, but one of them cannot keep what it has.
        flushes.other_written(none, true, none, &mut out, &mut ended);
        flushes.other_written(none, false, none, &mut out, &mut ended);
        assert_eq!(ended, [(10, None), (11, io)]);
    }

    #[test]
    fn nothing_written_needs_no_flush() {
        let (mut flushes, mut out, mut ended) = (Flushes::default(), Effects::new(), Vec::new());
        flushes.request(1, MemberSet::EMPTY, &mut out, &mut ended);
        assert_eq!(ended, [(1, None)]);
    }
}
