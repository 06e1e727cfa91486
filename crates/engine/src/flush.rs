//! Flushes: one coalesced round over the members that were written.
//!
//! Invariant: a flush request completes after a member flush that was issued after every write
//! which had completed when the request came. A request that comes during a round waits for the
//! next one, because the running round may have started before writes that it must cover.

use md::MemberIdx;

use crate::slab::Key;
use crate::token::Kind;
use crate::{Effect, Effects, MemberSet, RequestError, Token};

/// A flush request that is over, and why it failed if it did.
pub(crate) type Ended = (u32, Option<RequestError>);

#[derive(Default)]
pub(crate) struct Flushes {
    /// Members with completed writes that no flush has covered yet.
    written: MemberSet,
    open: u32,
    failed: Option<RequestError>,
    round: u32,
    riding: Vec<u32>,
    waiting: Vec<u32>,
}

impl Flushes {
    #[inline]
    pub(crate) fn note_written(&mut self, member: u16) {
        self.written.insert(member);
    }

    /// Takes a flush request. Requests that need nothing, or whose round is over, go to `ended`.
    pub(crate) fn ask(
        &mut self,
        request: u32,
        failed: MemberSet,
        out: &mut Effects,
        ended: &mut Vec<Ended>,
    ) {
        self.waiting.push(request);
        if self.open == 0 {
            self.start_round(failed, out, ended);
        }
    }

    /// A member's flush ended. `kept_error`: it failed and the member is still in service, so its
    /// writes are not known to be durable.
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
            ended.extend(self.riding.drain(..).map(|request| (request, self.failed)));
            if !self.waiting.is_empty() {
                self.start_round(failed, out, ended);
            }
        }
    }

    fn start_round(&mut self, failed: MemberSet, out: &mut Effects, ended: &mut Vec<Ended>) {
        std::mem::swap(&mut self.riding, &mut self.waiting);
        self.failed = None;
        self.round = (self.round + 1) & 0x00ff_ffff;
        let key = Key { index: self.round, generation: 0 };
        for member in self.written.minus(failed).iter() {
            let token = Token::new(Kind::Flush, member, key);
            out.list.push(Effect::Flush { token, member: MemberIdx(member) });
            self.open += 1;
        }
        self.written = MemberSet::EMPTY;
        if self.open == 0 {
            ended.extend(self.riding.drain(..).map(|request| (request, None)));
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
        flushes.ask(10, none, &mut out, &mut ended);
        let first = tokens(&mut out);
        assert_eq!(first.len(), 2);
        flushes.note_written(1);
        flushes.ask(11, none, &mut out, &mut ended);
        flushes.ask(12, none, &mut out, &mut ended);
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
    fn nothing_written_needs_no_flush() {
        let (mut flushes, mut out, mut ended) = (Flushes::default(), Effects::new(), Vec::new());
        flushes.ask(1, MemberSet::EMPTY, &mut out, &mut ended);
        assert_eq!(ended, [(1, None)]);
    }
}
