//! Rebuilds of the levels with copies: what members that are being rebuilt lack, and replacements.
//!
//! Writes go to these members everywhere. Replacements get what they lack in passes of their own,
//! one after the other under the same lock: each what its own member has, so that it may take the
//! slot wherever copies differ, and what another copy has only where the member cannot be read. As
//! a member, the replacement of slot `s` is `members + s`.
//!
//! Invariant: only what lacked a range and was written counts as in sync there. Called only from
//! `non_parity`.

use md::geometry::Copy;

use super::NonParity;
use crate::shard::{Context, Repair};
use crate::{MemberSet, RequestError};

impl NonParity {
    /// The copies of what was last located that are to be rebuilt.
    pub(super) fn to_rebuild<'a>(
        &'a self,
        cx: &'a Context<'_>,
        sectors: u64,
    ) -> impl Iterator<Item = &'a Copy> + use<'a> {
        let targets = self.absent(cx, sectors).minus(cx.health.failed());
        self.copies.iter().filter(move |copy| targets.contains(copy.member.0))
    }

    /// Reads a range, where copies are to be rebuilt, to write it to them: first for replacements,
    /// one in each pass, then for members that are being rebuilt.
    pub(super) fn rebuild(&mut self, cx: &mut Context<'_>, request: u32, pass: u16) {
        let is_endless = usize::from(pass) > 2 * cx.geometry.members();
        if is_endless || cx.requests.is_held(request) {
            // Devices come and go at the same time, or a late write of the last pass still uses the
            // buffer: the range is tried again.
            cx.requests.fail(request, RequestError::Io);
            return self.unlock_and_end(cx, request);
        }
        let lacking = cx.health.lacking();
        let replaced = self.first_replaced(cx, request);
        let targets = match replaced {
            Some(slot) => MemberSet::one(cx.geometry.members() as u16 + slot),
            None => lacking.minus(cx.health.failed()),
        };
        let record = &mut cx.requests[request];
        record.unread = MemberSet::EMPTY;
        record.repair = Repair { targets, replaced, pass, ..Repair::default() };
        let (mut at, end) = (record.at.0, record.end());
        let fixed = end > cx.health.in_sync_below();
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            let is_lacking = match replaced {
                Some(slot) => self.lacks_copy(cx, slot, sectors),
                None => self.to_rebuild(cx, sectors).next().is_some(),
            };
            if is_lacking {
                let mut copies = self.copies.iter();
                let source = match replaced {
                    Some(slot) => copies.position(|copy| copy.member.0 == slot),
                    None if fixed => copies.position(|copy| !lacking.contains(copy.member.0)),
                    None => self.balance.choose(cx.now, &self.copies, lacking, None),
                };
                match source.map(|source| self.copies[source]) {
                    Some(Copy { member, sector }) => {
                        let slice = cx.requests[request].slice(at, sectors);
                        self.scatter.add(member.0, sector.0, slice);
                    }
                    None => cx.requests.fail(request, RequestError::Io),
                }
            }
            at += sectors;
        }
        self.send_resync(cx, request, true);
    }

    /// The first slot whose replacement lacks a part of a request's range.
    fn first_replaced(&mut self, cx: &Context<'_>, request: u32) -> Option<u16> {
        let replacing = cx.health.replacing();
        let record = &cx.requests[request];
        let (mut at, end) = (record.at.0, record.end());
        while at < end && !replacing.is_empty() {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            if let Some(slot) = replacing.iter().find(|slot| self.lacks_copy(cx, *slot, sectors)) {
                return Some(slot);
            }
            at += sectors;
        }
        None
    }

    /// Whether the replacement of a slot's member lacks its copy of what was last located.
    fn lacks_copy(&self, cx: &Context<'_>, slot: u16, sectors: u64) -> bool {
        self.to_copy(cx, sectors).contains(cx.geometry.members() as u16 + slot)
    }

    /// Writes what a rebuild has read.
    pub(super) fn rebuild_write(&mut self, cx: &mut Context<'_>, request: u32) {
        let record = &mut cx.requests[request];
        let slots = cx.geometry.members() as u16;
        let replaced = cx.health.replacing();
        // What has replaced a member that has failed since is the slot's member.
        let now = |member: u16| match member.checked_sub(slots) {
            Some(slot) if !replaced.contains(slot) => slot,
            _ => member,
        };
        let chosen: MemberSet = record.repair.targets.iter().map(now).collect();
        let chosen = chosen.minus(cx.health.failed());
        let (writing, targets, epoch) = (true, chosen, cx.health.epoch());
        record.repair = Repair { writing, targets, epoch, ..record.repair };
        let (mut at, end) = (record.at.0, record.end());
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            let slice = cx.requests[request].slice(at, sectors);
            let absent = self.absent(cx, sectors).minus(cx.health.failed());
            let targets = absent.intersection(chosen);
            for copy in self.copies.iter().filter(|copy| targets.contains(copy.member.0)) {
                self.scatter.add(copy.member.0, copy.sector.0, slice);
            }
            let replacements = self.to_copy(cx, sectors).intersection(chosen);
            for (copy, member) in with_replacements(&self.copies, cx, replacements) {
                self.scatter.add(member, copy.sector.0, slice);
            }
            at += sectors;
        }
        self.send_resync(cx, request, false);
    }

    /// Replacements of the members of what was last located, that lack it.
    pub(super) fn to_copy(&self, cx: &Context<'_>, sectors: u64) -> MemberSet {
        if cx.health.replacing().is_empty() {
            return MemberSet::EMPTY;
        }
        let lacks = |copy: &&Copy| {
            let Copy { member, sector } = copy;
            cx.health.to_copy(sector.0..sector.0 + sectors).contains(member.0)
        };
        let slots = cx.geometry.members() as u16;
        self.copies.iter().filter(lacks).map(|copy| slots + copy.member.0).collect()
    }

    /// The copies in a range that a rebuild has written are in sync.
    pub(super) fn set_rebuilt(&mut self, cx: &mut Context<'_>, request: u32, from: u64, end: u64) {
        let Repair { targets, epoch, .. } = cx.requests[request].repair;
        let mut at = from;
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            for (copy, _) in with_replacements(&self.copies, cx, targets) {
                let sectors = copy.sector.0..copy.sector.0 + sectors;
                cx.health.set_copied(copy.member.0, sectors, epoch);
            }
            let written = self.copies.iter().filter(|copy| targets.contains(copy.member.0));
            for Copy { member, sector } in written {
                cx.health.set_rebuilt(member.0, sector.0..sector.0 + sectors, epoch);
            }
            at += sectors;
        }
    }
}

/// The copies whose members have one of these replacements, with it.
pub(super) fn with_replacements<'a>(
    copies: &'a [Copy],
    cx: &Context<'_>,
    replacements: MemberSet,
) -> impl Iterator<Item = (&'a Copy, u16)> + use<'a> {
    let slots = cx.geometry.members() as u16;
    let copies = copies.iter().map(move |copy| (copy, slots + copy.member.0));
    copies.filter(move |(_, replacement)| replacements.contains(*replacement))
}
