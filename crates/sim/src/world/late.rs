//! Operations of members that do not complete in time, and the memory that they keep.
//!
//! Invariant: an operation that is late stays in flight, with its memory, until it takes place:
//! what the engine does until then is checked against it as against every other one.

use engine::{HostOp, Input, MemberError};
use md::MemberIdx;

use super::{World, io_error};
use crate::marks::Mark;
use crate::memory::Memory;
use crate::mutant::Mutant;
use crate::operation::Operation;
use crate::request::LiveRequest;

/// How long an operation of a member may take, in nanoseconds.
pub const MEMBER_TIMEOUT: u64 = 30_000_000_000;

/// A buffer of a request that has completed.
pub(super) struct Kept {
    tag: u64,
    pub(super) slot: usize,
    /// Shards in which late operations use it.
    shards: u32,
}

impl World {
    /// When an operation takes place that begins now on a member that hangs: seldom in time, later,
    /// or never.
    pub(super) fn hung_until(&mut self) -> u64 {
        match self.rng.one_in(3) {
            true => u64::MAX,
            false => self.now + self.rng.within(1_000_000, 3 * MEMBER_TIMEOUT),
        }
    }

    /// # Panics
    /// When the operation goes to a member of which another operation is late.
    pub(super) fn assert_not_late(&self, operation: &Operation) {
        let Some((member, _)) = &operation.place else { return };
        let same = |other: &&Operation| {
            let there = other.place.as_ref().map(|(member, _)| member);
            other.shard == operation.shard
                && there == Some(member)
                && other.is_late
                && !other.is_freed
        };
        let late = self.operations.iter().find(same);
        assert!(late.is_none(), "{operation:?} goes to a member of which one is late: {late:?}");
    }

    /// Reports to the engine which operations are late now, with all that have the same tokens.
    pub(super) fn report_late(&mut self) {
        let now = self.now;
        let is_late = |op: &Operation| op.place.is_some() && !op.is_late && op.late_at <= now;
        let late: Vec<(u16, engine::Token)> = self
            .operations
            .iter()
            .filter(|op| is_late(op))
            .map(|op| (op.shard, op.token))
            .collect();
        if late.is_empty() {
            return;
        }
        let is_freed = self.mutant == Some(Mutant::ReleasedTooEarly);
        let mut late_places = Vec::new();
        for op in &mut self.operations {
            let (token, shard) = (op.token, op.shard);
            let Some((_, sectors)) = op.place.as_ref().filter(|_| late.contains(&(shard, token)))
            else {
                continue;
            };
            if std::mem::replace(&mut op.is_late, true) {
                continue;
            }
            self.marks.reach(Mark::OperationLate);
            let place = op.place.as_ref().map_or(0, |(place, _)| *place);
            late_places.push((shard, place));
            let error = io_error(MemberError::Timeout, op.work.of_member(), sectors);
            let inputs = &mut self.inputs[usize::from(shard)];
            inputs.push(Input::Late { token, result: Err(error) });
            if is_freed {
                inputs.push(Input::Released { token, result: Ok(()) });
                op.is_freed = true;
            }
        }
        for (shard, place) in late_places {
            let shard = self.shard_of(shard);
            let slot = shard.slot_of(MemberIdx(place));
            if shard.status().replacing.contains(slot.0) {
                self.marks.reach(match shard.place_of(slot).0 == place {
                    true => Mark::ReplacedLate,
                    false => Mark::ReplacementLate,
                });
            }
        }
    }

    /// The input of an operation that has taken place.
    pub(super) fn ended(&mut self, operation: &Operation, input: Input) -> Option<Input> {
        match input {
            Input::IoDone { token, result } if operation.is_late => {
                self.marks.reach(Mark::LateReleased);
                (!operation.is_freed).then_some(Input::Released { token, result })
            }
            input => (!self.loses_completion(&input)).then_some(input),
        }
    }

    pub(super) fn abandon(&mut self, shard: u16, member: MemberIdx, at: u64) {
        for op in self.operations.iter_mut().filter(|op| op.shard == shard) {
            if op.place.as_ref().is_some_and(|(other, _)| *other == member.0) {
                op.late_at = op.late_at.min(at);
            }
        }
    }

    pub(super) fn hold(&mut self, tag: u64) {
        let live = self.live.iter_mut().flatten().find(|live| live.engine_tag() == tag);
        let live = live.unwrap_or_else(|| panic!("the buffer of request {tag} is held too late"));
        live.held += 1;
        live.was_held = true;
    }

    pub(super) fn release(&mut self, tag: u64) {
        if let Some(live) = self.live.iter_mut().flatten().find(|live| live.engine_tag() == tag) {
            live.held -= 1;
            return;
        }
        let at = self.kept.iter().position(|kept| kept.tag == tag);
        let at = at.unwrap_or_else(|| panic!("the buffer of request {tag} is not held"));
        self.kept[at].shards -= 1;
        if self.kept[at].shards == 0 {
            self.memory.take_back(self.kept.swap_remove(at).slot);
        }
    }

    /// Keeps a request's buffer that late operations use.
    pub(super) fn keep(&mut self, live: &LiveRequest, slot: usize) {
        self.marks.reach(Mark::BufferHeld);
        self.kept.push(Kept { tag: live.engine_tag(), slot, shards: live.held });
    }

    /// # Panics
    /// When an operation that is not late uses the buffer of a request that completes, or one that
    /// is late without a hold on the buffer.
    pub(super) fn assert_buffer_is_free(&self, tag: u64, slot: usize) {
        let region = Memory::host_region(slot);
        let held = self.live[slot].as_ref().is_some_and(|live| live.held > 0);
        for operation in &self.operations {
            let mut slices = operation.reads.iter().chain(&operation.writes);
            let uses = slices.any(|slice| slice.region == region);
            let may = operation.is_late && held || operation.is_freed;
            assert!(
                !uses || may,
                "request {tag} completes while its buffer is in use: {operation:?}"
            );
        }
    }

    /// Begins reads anew whose buffers were held.
    pub(super) fn begin_anew(&mut self) -> bool {
        let again = std::mem::take(&mut self.again);
        for live in &again {
            self.marks.reach(Mark::ReadAnew);
            let attempt = live.attempt + 1;
            self.send(live.tag, attempt, HostOp::Read, live.at, live.sectors, live.writes_before);
        }
        !again.is_empty()
    }
}
