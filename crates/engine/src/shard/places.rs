//! Where the operations of the levels go: to the place of their slot's member, and writes also to
//! what replaces it.
//!
//! ```text
//! level:   write slot 2 --+--> place 2             the member          \\  one completion:
//!                         +--> place members + 2   its replacement     /   the member's
//! level:   write members + 2 (a part of the copy) -> the replacement alone
//! ```
//! The levels know slots. This layer works on their effects as soon as an input has been
//! processed, so that no read that was decided for one device goes to another, and on completions
//! before the levels get them: whatever is written to a member is written to its replacement, and
//! no level can forget it.
//!
//! Invariant: a write completes when both have it, or one of them is out of service. What has
//! failed of a device that has no place of the slot any more concerns nothing that is in service. A
//! member whose write has failed, and which stays because the array needs it, has no replacement
//! any more: the two may differ. An entry of a bad-block log concerns the device that lacks the
//! data alone. Called only from `shard`.

use md::MemberIdx;

use super::health::Health;
use crate::slab::Slab;
use crate::token::Kind;
use crate::{Effect, Effects, IoError, MemberError, Token};

/// In the token of an entry of the replacement's bad-block log; else 0 for the member, 1 for the
/// replacement.
const ENTRY: u16 = 2;

/// A result of one of the two.
type Half = Option<Result<(), IoError>>;

/// An operation of a level on a slot that is being replaced.
#[derive(Clone, Copy, Default)]
struct Placed {
    /// The level's.
    token: Option<Token>,
    slot: u16,
    /// Where the member was.
    place: u16,
    open: u8,
    member: Half,
    replacement: Half,
}

/// See the module documentation.
pub(crate) struct Places {
    operations: Slab<Placed>,
}

/// An operation of a level that has ended.
pub(crate) struct Ended {
    pub(crate) token: Token,
    pub(crate) result: Result<(), IoError>,
    /// Where its slot's member was.
    place: u16,
    slot: u16,
    /// It was a write or a flush of the member that has failed.
    has_failed: bool,
}

impl Places {
    pub(crate) fn new() -> Places {
        Places { operations: Slab::with_capacity(0) }
    }

    /// Sends the operations from this effect on to their places.
    pub(crate) fn place(&mut self, health: &Health, first: usize, out: &mut Effects) {
        for at in first..out.list.len() {
            let Some((_, member)) = parts(&mut out.list[at]) else { continue };
            let slot = health.slot_of(member.0);
            let is_copy = member.0 != slot;
            let (place, second) = (health.place(slot), health.second_place(slot));
            if !is_copy && !health.is_replaced(slot) {
                *member = MemberIdx(place);
                continue;
            }
            let key = self.operations.take();
            let is_entry = matches!(out.list[at], Effect::AddBadBlocks { .. });
            let is_read = is_entry || matches!(out.list[at], Effect::Read { .. });
            let (token, member) = parts(&mut out.list[at]).expect("just seen");
            let open = if is_copy || is_read { 1 } else { 2 };
            let placed = Placed { token: Some(*token), slot, place, open, ..Placed::default() };
            self.operations[key.index] = placed;
            let half = if is_copy && is_entry { ENTRY } else { u16::from(is_copy) };
            *token = Token::new(Kind::Placed, half, key);
            *member = MemberIdx(if is_copy { health.copy_place(slot) } else { place });
            if open == 2 {
                let mut also = out.list[at].clone();
                let (token, member) = parts(&mut also).expect("as the first");
                (*token, *member) = (Token::new(Kind::Placed, 1, key), MemberIdx(second));
                out.list.push(also);
            }
        }
    }

    /// The level's token of an operation.
    pub(crate) fn origin(&self, token: Token) -> Token {
        match token.kind() == Kind::Placed && self.operations.is_live(token.key()) {
            true => self.operations[token.key().index].token.expect("of a level"),
            false => token,
        }
    }

    /// A member's operation has completed. `None`: the other half of it has not.
    pub(crate) fn done(
        &mut self,
        health: &mut Health,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) -> Option<Ended> {
        assert!(self.operations.is_live(token.key()), "{token:?} belongs to nothing");
        let index = token.key().index;
        let placed = &mut self.operations[index];
        let Placed { slot, place, .. } = *placed;
        let is_still = health.place(slot) == place;
        placed.open -= 1;
        match token.slot() {
            0 => placed.member = Some(result),
            _ => placed.replacement = Some(result),
        }
        let placed = *placed;
        // A log without room costs a replacement nothing but the range.
        let is_lack = |error: &IoError| token.slot() == ENTRY && error.kind.lacks().is_some();
        if let (1.., Err(error), true) = (token.slot(), result, is_still)
            && !is_lack(&error)
        {
            health.drop_replacement(slot, Some(error), out);
        }
        if placed.open > 0 {
            return None;
        }
        self.operations.release(index);
        let token = placed.token.expect("of a level");
        let (result, has_failed) = match (placed.member, placed.replacement) {
            (None, Some(result)) => (result, false),
            (Some(member), replacement) if is_still => {
                (member, member.is_err() && replacement.is_some())
            }
            // The replacement has the slot, and all that was written.
            (_, Some(replacement)) => (replacement, false),
            // What a device that is out could not read says nothing of the one that has the slot.
            (Some(Err(error)), None) => {
                (Err(IoError { kind: MemberError::Medium, ..error }), false)
            }
            (member, None) => (member.expect("one half has ended"), false),
        };
        Some(Ended { token, result, place, slot, has_failed })
    }

    /// The level has processed the end of its operation.
    pub(crate) fn processed(health: &mut Health, ended: &Ended, out: &mut Effects) {
        let Ended { result, place, slot, has_failed, .. } = *ended;
        if has_failed && health.place(slot) == place {
            health.drop_replacement(slot, result.err(), out);
        }
    }
}

/// The token and the member of an operation of a member.
fn parts(effect: &mut Effect) -> Option<(&mut Token, &mut MemberIdx)> {
    match effect {
        Effect::Read { token, member, .. }
        | Effect::Write { token, member, .. }
        | Effect::Flush { token, member }
        | Effect::Discard { token, member, .. }
        | Effect::WriteZeroes { token, member, .. }
        | Effect::AddBadBlocks { token, member, .. } => Some((token, member)),
        _ => None,
    }
}
