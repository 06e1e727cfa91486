//! The faults of a scenario, and whether the array can bear them.

use engine::{Control, MemberError, RequestError};
use md::{Kind, MemberIdx};
use testkit::Rng;

use super::Life;
use crate::member::Lie;
use crate::scenario::{Action, Extent};

impl Life {
    /// Members whose rebuild has ended are no longer lost.
    fn note_rebuilt(&mut self) {
        let reports = &self.control_plane().reports;
        let in_sync = reports.iter().filter_map(|report| match report {
            engine::MetadataEffect::MemberInSync { member, .. } => Some(member.index()),
            _ => None,
        });
        let knows = |at: &usize| {
            let lacks = |shard| self.world.shard_of(shard).status().lacking.contains(*at as u16);
            !self.world.numbers().any(lacks)
        };
        let in_sync: Vec<usize> = in_sync.filter(knows).collect();
        let is_rebuilt = |at: &usize| in_sync.contains(at) && self.rebuilding.contains(at);
        self.offline.lost.retain(|at| !is_rebuilt(at));
        self.rebuilding.retain(|at| !in_sync.contains(at));
    }

    /// Gives a fault. Whether it was possible.
    pub(super) fn fault(&mut self, action: Action, rng: &mut Rng) -> bool {
        self.note_replaced();
        self.note_rebuilt();
        let members = self.world.geometry().members();
        let (Action::Lose(member, _)
        | Action::Hang(member, _)
        | Action::HangIo(member, _)
        | Action::Fail(member)
        | Action::Bad(member, _)
        | Action::Full(member, ..)
        | Action::MetadataFull(member)
        | Action::Space(member)
        | Action::FlushError(member)
        | Action::Flaky(member, _)
        | Action::ReadTimeout(member)
        | Action::WriteError(member)
        | Action::WriteTimeout(member)
        | Action::FlushLies(member)
        | Action::Misdirect(member)
        | Action::CorruptReads(member)
        | Action::Destroy(member, _)
        | Action::LoseReplacement(member, _)
        | Action::HangReplacement(member, _)
        | Action::Slow(member, _)) = action
        else {
            unreachable!("no fault")
        };
        let at = usize::from(member) % members;
        let needs_trouble = matches!(
            action,
            Action::Bad(..) | Action::Flaky(..) | Action::Full(..) | Action::MetadataFull(_)
        );
        let loses = matches!(
            action,
            Action::ReadTimeout(_) | Action::WriteError(_) | Action::WriteTimeout(_)
        );
        if loses {
            if !self.may_lose(at) {
                return false;
            }
            self.lose(at);
        }
        if needs_trouble && !self.troubled {
            return false;
        }
        let is_bad = matches!(action, Action::Bad(..) | Action::Flaky(..));
        if is_bad && self.world.failfast.contains(at as u16) {
            // It may be dropped by one shard before that has another's loss.
            if !self.may_lose(at) {
                return false;
            }
            self.lose(at);
        }
        // From the first of them on: what a write could not finish may be lost later.
        match action {
            Action::Bad(..) | Action::Flaky(..) => self.tolerate(&[RequestError::Io]),
            Action::Full(..) | Action::MetadataFull(_) => {
                self.tolerate(&[RequestError::Io, RequestError::NoSpace]);
            }
            _ => {}
        }
        self.inflict(action, at, rng)
    }

    /// Does to the member of this slot what the action says. Whether it was possible.
    fn inflict(&mut self, action: Action, slot: usize, rng: &mut Rng) -> bool {
        let now = self.world.now;
        // What has replaced the member is the member.
        let at = self.world.shard.place_of(MemberIdx(slot as u16)).index();
        match action {
            Action::LoseReplacement(_, after) | Action::HangReplacement(_, after) => {
                let hangs = matches!(action, Action::HangReplacement(..));
                return self.inflict_replacement(slot, now + after, hangs, rng);
            }
            Action::Lose(_, after) | Action::Hang(_, after) => {
                if !self.may_lose(slot) {
                    return false;
                }
                self.lose(slot);
                self.world.members[at].gone_at = Some(now + after);
                // Superblocks that are written in turn wait for one that hangs.
                if matches!(action, Action::Hang(..)) && !self.superblocks_tear {
                    self.world.hang_metadata(at, now + after);
                }
            }
            Action::HangIo(_, after) => {
                if self.may_lose(slot) {
                    self.lose(slot);
                } else if rng.one_in(2) && self.control_plane().hanging.is_empty() {
                    // It stays, and is used again when what hangs has completed.
                    self.destroy();
                } else {
                    return false;
                }
                // Memory that late operations use may be what is missing.
                self.tolerate(&[RequestError::NoMemory]);
                self.world.members[at].hangs_at.get_or_insert(now + after);
            }
            Action::Fail(_) => {
                if !self.may_lose(slot) {
                    return false;
                }
                self.lose(slot);
                self.world.control(Control::FailMember(MemberIdx(at as u16)));
            }
            Action::Bad(_, Extent(from, sectors)) => {
                let used = self.world.members[at].data_sectors();
                let bad = from.min(used)..(from + sectors).min(used);
                self.world.members[at].bad.extend(bad);
            }
            Action::Flaky(_, Extent(from, sectors)) => {
                let used = self.world.members[at].data_sectors();
                let flaky = from.min(used)..(from + sectors).min(used);
                self.world.members[at].flaky.extend(flaky);
            }
            Action::ReadTimeout(_) => self.world.members[at].reads_time_out = true,
            Action::WriteError(_) => {
                self.world.members[at].write_error = Some((now, MemberError::Medium));
            }
            Action::WriteTimeout(_) => {
                self.world.members[at].write_error = Some((now, MemberError::Timeout));
            }
            Action::FlushLies(_) => self.lie(at, Lie::Flush),
            Action::Misdirect(_) => self.lie(at, Lie::Misdirected),
            Action::CorruptReads(_) => self.lie(at, Lie::Corrupt),
            Action::Full(_, Extent(from, sectors), short) => {
                // Its replacement is dropped, which may have the slot by then.
                let joins = self.world.is_awaited(slot);
                let is_replaced =
                    self.world.shard.status().replacing.contains(slot as u16) || joins;
                if is_replaced && !self.may_lose(slot) {
                    return false;
                }
                if is_replaced {
                    self.lose(slot);
                }
                let member = &mut self.world.members[at];
                member.full = from..from.saturating_add(sectors);
                member.short = u64::from(short) / member.block_sectors * member.block_sectors;
                member.shortages = rng.one_in(3).then(|| rng.within(1, 8) as u32);
            }
            Action::MetadataFull(_) => self.world.members[at].metadata_full = true,
            Action::Space(_) => {
                let member = &mut self.world.members[at];
                member.full = 0..0;
                member.metadata_full = false;
            }
            Action::FlushError(_) => {
                // A member that must stay: what it has acknowledged may be lost.
                let is_fatal = !self.may_lose(slot);
                if is_fatal && !self.control_plane().hanging.is_empty() {
                    return false;
                }
                if is_fatal {
                    self.destroy();
                } else {
                    self.lose(slot);
                }
                self.world.members[at].flush_fails = true;
            }
            Action::Destroy(_, after) if self.may_lose(slot) => {
                self.lose(slot);
                self.world.members[at].gone_at = Some(now + after);
            }
            Action::Destroy(_, after) => {
                // Who waits for one that hangs waits without an end, if it cannot be dropped.
                if !self.control_plane().hanging.is_empty() {
                    return false;
                }
                self.destroy();
                self.world.members[at].gone_at.get_or_insert(now + after);
            }
            Action::Slow(_, times) => {
                self.world.members[at].slowness = u64::from(times.clamp(1, 1000));
            }
            _ => unreachable!("no fault"),
        }
        true
    }

    /// The same to the replacement of the slot, from this time on: it hangs or fails.
    fn inflict_replacement(&mut self, slot: usize, time: u64, hangs: bool, rng: &mut Rng) -> bool {
        let members = self.world.geometry().members();
        let place = self.world.shard.place_of(MemberIdx(slot as u16)).index();
        let second = (place + members) % (2 * members);
        let is_replaced = self.world.shard.status().replacing.contains(slot as u16);
        // It may have the slot by then.
        if !is_replaced || !self.may_lose(slot) {
            return false;
        }
        self.lose(slot);
        if hangs {
            self.tolerate(&[RequestError::NoMemory]);
            self.world.members[second].hangs_at.get_or_insert(time);
            return true;
        }
        let replacement = &mut self.world.members[second];
        match rng.below(5) {
            0 => replacement.write_error = Some((time, MemberError::Medium)),
            1 => replacement.write_error = Some((time, MemberError::Timeout)),
            2 => replacement.flush_fails = true,
            _ => drop(replacement.gone_at.get_or_insert(time)),
        }
        true
    }

    /// Whether the array can live without this member, too. Copies that differ are alike in that
    /// each of them may be the truth only where the model has it so.
    pub(super) fn may_lose(&self, at: usize) -> bool {
        let offline = &self.offline;
        if matches!(offline.geometry.kind(), Kind::Mirrored(_)) && offline.differs() {
            return false;
        }
        !self.is_destroyed
            && !offline.lost.contains(&at)
            && offline
                .geometry
                .enough(|other| other.index() != at && !offline.lost.contains(&other.index()))
    }

    /// From now on nothing that was acknowledged is promised: but every request ends, and nothing
    /// wrong is read.
    fn destroy(&mut self) {
        self.is_destroyed = true;
        self.world.may_mismatch = true;
        if self.offline.differs() {
            // Copies that were never synced are read once the first one is lost.
            self.world.model.begin_with_anything();
        }
        let errors = [RequestError::Io, RequestError::NoSpace, RequestError::ReadOnly];
        self.world.model.tolerated.extend(errors);
    }

    /// Requests may end with these errors in this life and in those that follow.
    fn tolerate(&mut self, errors: &[RequestError]) {
        for error in errors {
            if !self.offline.tolerated.contains(error) {
                self.offline.tolerated.push(*error);
                self.world.model.tolerated.push(*error);
            }
        }
    }

    fn lie(&mut self, at: usize, lie: Lie) {
        self.destroy();
        self.world.model.is_unchecked = true;
        self.world.members[at].lie = Some(lie);
    }

    pub(super) fn lose(&mut self, at: usize) {
        self.offline.lost.push(at);
        // What is lost may not be in sync.
        if self.is_resyncing() {
            self.tolerate(&[RequestError::Io]);
        }
    }
}
