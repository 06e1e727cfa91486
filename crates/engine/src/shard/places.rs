//! Directs operations of the levels to devices: to the slot's member, and writes also to what
//! replaces it. The place of a device is `slot` or `members + slot`.
//!
//! ```text
//! level:   write slot 2 --+--> place 2             the member          \\  one completion:
//!                         +--> place members + 2   its replacement     /   the member's
//! level:   write members + 2 (a part of the copy) -> the replacement alone
//! ```
//! The levels know slots. This layer changes their effects as soon as an input has been processed,
//! so that a read that was decided for one device does not go to another. It changes completions
//! before the levels get them. So whatever is written to a member is written to its replacement,
//! and no level can forget it.
//!
//! Invariants, called only from `shard`:
//! - A write completes when both devices have it, or one of them is out of service.
//! - An error of a device that has left the slot is ignored.
//! - A member stays after a failed write only if the array needs it. Its replacement is dropped,
//!   because the two may differ.
//! - A late half of a write counts as a failed one.
//! - An entry of a bad-block log is made on the device that lacks the data, not on the other.
//!
//! Places are in use from the first replacement in this run on. Operations in flight by then went
//! to the member.

use md::{Geometry, MemberIdx};

use super::health::Health;
use crate::slab::Slab;
use crate::token::Kind;
use crate::{Effect, Effects, IoError, MemberError, MemberOp, Token};

/// In the token of an entry of the replacement's bad-block log; else 0 for the member, 1 for the
/// replacement.
const ENTRY: u16 = 2;

/// How one of the two has ended.
#[derive(Clone, Copy)]
pub(crate) struct Half {
    pub(crate) result: Result<(), IoError>,
    /// It is late, or was not sent because an earlier one is.
    pub(crate) is_late: bool,
}

/// An operation of a level on a slot that is being replaced, or was.
#[derive(Clone, Copy, Default)]
struct Placed {
    /// The level's.
    token: Option<Token>,
    slot: u16,
    /// Where the member was, and where the other half has gone.
    places: [u16; 2],
    open: u8,
    member: Option<Half>,
    replacement: Option<Half>,
}

/// See the module documentation.
pub(crate) struct Places {
    operations: Slab<Placed>,
}

/// An operation of a level that has ended.
pub(crate) struct Ended {
    pub(crate) token: Token,
    pub(crate) half: Half,
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
    #[cold]
    pub(crate) fn place(&mut self, health: &Health, first: usize, out: &mut Effects) {
        for at in first..out.list.len() {
            let Some((_, member)) = parts(&mut out.list[at]) else { continue };
            let slot = health.slot_of(member.0);
            let is_copy = member.0 != slot;
            if !is_copy && !health.is_placed(slot) {
                continue;
            }
            let place = health.place(slot);
            let second = if is_copy { health.copy_place(slot) } else { health.second_place(slot) };
            let key = self.operations.take();
            let is_entry = matches!(out.list[at], Effect::AddBadBlocks { .. });
            let is_read = is_entry || matches!(out.list[at], Effect::Read { .. });
            let (token, member) = parts(&mut out.list[at]).expect("just seen");
            let open = if is_copy || is_read || !health.is_replaced(slot) { 1 } else { 2 };
            let (level, places) = (Some(*token), [place, second]);
            self.operations[key.index] =
                Placed { token: level, slot, places, open, ..Placed::default() };
            let half = if is_copy && is_entry { ENTRY } else { u16::from(is_copy) };
            *token = Token::new(Kind::Placed, half, key);
            *member = MemberIdx(if is_copy { second } else { place });
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

    /// Where an operation has gone.
    pub(crate) fn place_of(&self, token: Token) -> u16 {
        self.operations[token.key().index].places[usize::from(token.slot() > 0)]
    }

    /// An operation is late: its token stays its own until [`Places::let_go`].
    pub(crate) fn hold(&mut self, token: Token) {
        self.operations.hold(token.key().index);
    }

    /// A late operation has completed.
    pub(crate) fn let_go(&mut self, token: Token) {
        self.operations.let_go(token.key().index);
    }

    /// An operation has ended for the array. `None`: the other half of it has not.
    pub(crate) fn done(
        &mut self,
        health: &mut Health,
        geometry: &Geometry,
        token: Token,
        half: Half,
        out: &mut Effects,
    ) -> Option<Ended> {
        assert!(self.operations.is_live(token.key()), "{token:?} belongs to nothing");
        let index = token.key().index;
        let placed = &mut self.operations[index];
        let Placed { slot, places: [place, second], .. } = *placed;
        let is_still = health.place(slot) == place;
        placed.open -= 1;
        match token.slot() {
            0 => placed.member = Some(half),
            _ => placed.replacement = Some(half),
        }
        let placed = *placed;
        match (token.slot(), half.result) {
            // A log without room costs a device nothing but the range.
            (ENTRY, Err(error)) if error.kind.lacks().is_some() => {}
            // A part of a copy for what has the slot by now.
            (1.., Err(error)) if second == place && error.kind.lacks().is_some() => {}
            (1.., Err(error)) if second == place && is_still => {
                health.drop_member(geometry, slot, Some(error), out);
            }
            (1.., Err(_)) if second == place => {}
            (1.., Err(error)) if is_still => health.drop_replacement(slot, Some(error), out),
            (0, Err(error)) if is_still && half.is_late && placed.open > 0 => {
                // Nothing waits for its replacement with that, which has the slot then.
                health.drop_member(geometry, slot, Some(error), out);
            }
            _ => {}
        }
        if placed.open > 0 {
            return None;
        }
        self.operations.release(index);
        let is_still = health.place(slot) == place;
        let token = placed.token.expect("of a level");
        let (half, has_failed) = match (placed.member, placed.replacement) {
            (None, Some(half)) => (half, false),
            (Some(member), replacement) if is_still => {
                // A flush that is late loses nothing.
                let op = member.result.err().map(|error| error.op);
                let differs = op.is_some_and(|op| !member.is_late || op != MemberOp::Flush);
                (member, differs && replacement.is_some())
            }
            // The replacement has the slot, and all that was written.
            (_, Some(replacement)) => (replacement, false),
            (Some(member), None) => {
                (Half { result: member.result.or_else(of_former), ..member }, false)
            }
            (None, None) => unreachable!("one half has ended"),
        };
        Some(Ended { token, half, place, slot, has_failed })
    }

    /// The level has processed the end of its operation.
    pub(crate) fn processed(health: &mut Health, ended: &Ended, out: &mut Effects) {
        let Ended { half, place, slot, has_failed, .. } = *ended;
        if has_failed && health.place(slot) == place {
            health.drop_replacement(slot, half.result.err(), out);
        }
    }
}

/// What the error of a device says that has no place of its slot any more: what it could not read,
/// nothing of the one that has the slot; what it could not write, nothing at all, as if it had
/// failed later.
pub(crate) fn of_former(error: IoError) -> Result<(), IoError> {
    match error.op {
        // No medium error: it takes no failfast device out of service.
        MemberOp::Read => Err(IoError { kind: MemberError::BadBlock, ..error }),
        _ => Ok(()),
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
