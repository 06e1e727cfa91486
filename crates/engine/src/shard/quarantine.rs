//! Operations of members that are late: ended for the array, and not completed.
//!
//! ```text
//! Input::Late --> hold the memory --> as if the operation had ended --> Input::Released --> free
//! ```
//! Invariant: memory that a late operation uses is given to nothing else, and a device with an
//! operation that has timed out gets no further one, until that has completed. So a late write can
//! never overwrite what was written after it. Memory and tables count the late operations that use
//! them ([`Slab::hold`](crate::slab::Slab::hold), `Scratch::hold`); what belongs to which is noted
//! here alone. Called only from `shard`.

use md::{MemberIdx, Sector};

use super::places::Half;
use super::requests::HeldBuffer;
use super::stripe::scratch::Block;
use super::{Personality, Shard};
use crate::token::Kind;
use crate::{ControlEvent, Effect, Effects, IoError, MemberError, MemberOp, MemberSet, Token};

/// How long operations in flight may take after their member was taken out of service for another
/// reason than a timeout.
const GRACE_NANOS: u64 = 1_000_000_000;

/// What a late operation uses, besides its entries in tables.
#[derive(Default)]
pub(super) struct Uses {
    pub(super) requests: Vec<HeldBuffer>,
    /// Blocks of stripe memory.
    pub(super) blocks: Vec<Block>,
}

struct Late {
    token: Token,
    /// The level's.
    origin: Token,
    place: u16,
    /// The device itself is late, not only a part of an array that is the member.
    has_timed_out: bool,
    uses: Uses,
}

/// The late operations of a shard: at most as many as were in flight.
#[derive(Default)]
pub(super) struct Quarantine {
    late: Vec<Late>,
    /// Places of devices with operations that have timed out.
    silent: MemberSet,
}

impl Quarantine {
    pub(super) fn len(&self) -> usize {
        self.late.len()
    }

    fn insert(&mut self, late: Late) {
        if late.has_timed_out {
            self.silent.insert(late.place);
        }
        self.late.push(late);
    }

    /// Takes a late operation out.
    fn remove(&mut self, token: Token) -> Late {
        let at = self.late.iter().position(|late| late.token == token);
        let at = at.unwrap_or_else(|| panic!("{token:?} is released and was not late"));
        let late = self.late.swap_remove(at);
        let others = self.late.iter().filter(|late| late.has_timed_out);
        self.silent = others.map(|late| late.place).collect();
        late
    }
}

impl Shard {
    /// The slot that an operation of a level is of.
    pub(super) fn slot_of_operation(&self, token: Token) -> u16 {
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
        let is_placed = token.kind() == Kind::Placed;
        let origin = self.places.origin(token);
        let place = match is_placed {
            true => self.places.place_of(token),
            false => self.slot_of_operation(token),
        };
        let has_timed_out = result.is_err_and(|error| error.kind == MemberError::Timeout);
        if is_placed {
            self.places.hold(token);
        }
        let uses = self.hold(now, origin, out);
        self.quarantine.insert(Late { token, origin, place, has_timed_out, uses });
        self.ended(now, token, Half { result, is_late: has_timed_out }, out);
        if has_timed_out && !self.health.is_in_service(place) {
            out.list.push(Effect::Abandon { member: MemberIdx(place), at: now });
        }
    }

    /// A late operation uses the memory of an operation of a level.
    fn hold(&mut self, now: u64, token: Token, out: &mut Effects) -> Uses {
        match (self.split(now, out), token.kind()) {
            (_, Kind::Flush | Kind::LogFlush) => Uses::default(),
            ((Personality::Parity(stripes), mut cx), kind) if kind.is_of_rows() => {
                stripes.hold(&mut cx, token)
            }
            ((_, cx), _) => {
                let held = cx.requests.hold(token.key().index, cx.out);
                Uses { requests: vec![held], blocks: Vec::new() }
            }
        }
    }

    pub(super) fn released(
        &mut self,
        now: u64,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) {
        let Late { origin, place, uses, .. } = self.quarantine.remove(token);
        if token.kind() == Kind::Placed {
            self.places.let_go(token);
        }
        let (personality, cx) = self.split(now, out);
        if let Personality::Parity(stripes) = personality {
            stripes.let_go(origin, uses.blocks);
        }
        uses.requests.into_iter().for_each(|held| cx.requests.let_go(held, cx.out));
        if self.health.is_in_service(place) {
            // It may have been a write. What is read of it now and relied upon is to be durable.
            self.flushes.note_written(self.health.slot_of(place));
        }
        // A replacement of which something was late is out.
        let is_lost = result.is_err_and(|error| error.kind.lacks().is_none());
        if origin.kind() == Kind::Flush && is_lost && self.health.is_in_service(place) {
            self.not_durable(self.health.slot_of(place), out);
        }
    }

    /// Operations in flight on devices that were taken out of service since this epoch, by effects
    /// from `first` on, get little more time.
    pub(super) fn abandon_failed(&self, now: u64, epoch: u64, first: usize, out: &mut Effects) {
        if self.health.epoch() == epoch {
            return;
        }
        let failed = out.list[first..].iter().filter_map(|effect| match effect {
            Effect::Control(ControlEvent::MemberFailed { member, .. }) => Some(member.0),
            _ => None,
        });
        let abandoned: Vec<Effect> = failed.map(|place| self.abandoned(now, place)).collect();
        out.list.extend(abandoned);
    }

    /// What is in flight on a device that is out of service is late: at once where something has
    /// timed out.
    pub(super) fn abandoned(&self, now: u64, place: u16) -> Effect {
        let grace = if self.quarantine.silent.contains(place) { 0 } else { GRACE_NANOS };
        Effect::Abandon { member: MemberIdx(place), at: now + grace }
    }

    /// Takes operations on devices that are silent out of the effects from `first` on, all of which
    /// have their places, and ends them with a timeout. Returns how many of the effects have their
    /// places then; `None`: there was no such operation.
    pub(super) fn refuse_silent(
        &mut self,
        now: u64,
        first: usize,
        out: &mut Effects,
    ) -> Option<usize> {
        let silent = self.quarantine.silent;
        if silent.is_empty() {
            return None;
        }
        let Effects { list, slices, .. } = out;
        let length = |range: &std::ops::Range<u32>| {
            let slices = &slices[range.start as usize..range.end as usize];
            slices.iter().map(|slice| slice.sectors()).sum()
        };
        let of_silent = |effect: &mut Effect| {
            operation(effect, length).is_some_and(|(_, place, _)| silent.contains(place))
        };
        let refused: Vec<Effect> = list.extract_if(first.., of_silent).collect();
        let refused: Vec<_> =
            refused.iter().filter_map(|effect| operation(effect, length)).collect();
        let mut placed = list.len();
        for (token, _, error) in &refused {
            self.ended(now, *token, Half { result: Err(*error), is_late: true }, out);
            placed = self.place(placed, out);
        }
        (!refused.is_empty()).then_some(placed)
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
