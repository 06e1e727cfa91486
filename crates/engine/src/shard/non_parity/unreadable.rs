//! What no copy can be read of while a device is filled: it is added to the device's bad-block log,
//! and counts as in sync.
//!
//! Invariant: an entry covers only granules of which every copy in service that is in sync has
//! ended a read with a medium error, while nothing has changed about which devices serve. Anything
//! else leaves the granule out of sync, and its range is tried again. Called only from
//! `non_parity`.

use md::MemberIdx;

use super::NonParity;
use super::rebuild::with_replacements;
use crate::shard::{Context, Repair};
use crate::token::Kind;
use crate::{ControlEvent, Effect, RequestError, Token};

impl NonParity {
    /// A rebuild has found no readable copy of its granule.
    pub(super) fn is_unreadable(&mut self, cx: &mut Context<'_>, request: u32, sectors: u64) {
        let members = self.absent(cx, sectors).minus(cx.health.failed());
        let targets = members.union(self.to_copy(cx, sectors));
        if targets.is_empty() {
            // What needs nothing is only in the way of what does.
            return self.next_granule(cx, request);
        }
        let Repair { tried, unsure, since, .. } = cx.requests[request].repair;
        let is_sure = !tried.is_empty() && !unsure && since == cx.health.changes();
        if !is_sure || cx.health.is_read_only() {
            cx.requests.fail(request, RequestError::Io);
            return self.next_granule(cx, request);
        }
        let record = &mut cx.requests[request];
        let (writing, listing, epoch) = (true, true, cx.health.epoch());
        record.repair = Repair { writing, listing, targets, epoch, ..record.repair };
        let members = self.copies.iter().map(|copy| (copy, copy.member.0));
        let members = members.filter(|(_, member)| targets.contains(*member));
        for (copy, member) in members.chain(with_replacements(&self.copies, cx, targets)) {
            let token = Token::new(Kind::NonParityRepair, member, cx.requests.key(request));
            cx.requests[request].open += 1;
            let (member, sector) = (MemberIdx(member), copy.sector);
            cx.out.list.push(Effect::AddBadBlocks { token, member, sector, sectors });
        }
    }

    /// The granule is in the bad-block logs of all devices that lack it, or some of them have
    /// failed.
    pub(super) fn is_listed(&mut self, cx: &mut Context<'_>, request: u32, sectors: u64) {
        let Repair { targets, since, has_failed, .. } = cx.requests[request].repair;
        if has_failed || since != cx.health.changes() {
            cx.requests[request].repair.has_failed = true;
            return cx.requests.fail(request, RequestError::Io);
        }
        let health = &*cx.health;
        let members = self.copies.iter().filter(|copy| targets.contains(copy.member.0));
        let members = members.map(|copy| (copy, health.place(copy.member.0)));
        let second = with_replacements(&self.copies, cx, targets);
        let second = second.map(|(copy, _)| (copy, health.second_place(copy.member.0)));
        let added: Vec<_> = members.chain(second).map(|(copy, at)| (copy.sector, at)).collect();
        for (sector, place) in added {
            let member = MemberIdx(place);
            let event = ControlEvent::BadBlocksAdded { member, sector, sectors };
            cx.out.list.push(Effect::Control(event));
        }
    }
}
