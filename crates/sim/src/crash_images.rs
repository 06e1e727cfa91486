//! What a power cut leaves, and what may and may not be true of it.
//!
//! Invariant: the verdict uses md's on-disk structures and rules alone, without the engine: which
//! members are fresh by either rule of the kernels, which positions any of their bitmaps marks,
//! what each sector may hold. Where the metadata mark nothing, copies are alike and parity is true.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use md::geometry::Copy;
use md::ondisk::Role;
use md::ondisk::superblock::{ArrayState, Policy};
use md::{Geometry, Kind, MemberIdx, Sector, StripeNo};
use parity::{Block, Kernels};

use crate::assembly::{self, Refusal, StartOptions};
use crate::member::SECTOR;
use crate::model::Model;

mod metadata;

use metadata::{Disk, Metadata};

/// A kernel's rule for which members belong to the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// By the event count: before 6.8.
    Count,
    /// By the count, and by the freshest member's roles.
    CountAndRoles,
    /// The decision of `md::assemble`, by which arrays are started here.
    Assembly,
}

/// One way to see what is left: a rule, and the device whose superblock is taken for the freshest
/// among those with the highest event count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The rule.
    pub rule: Rule,
    /// The members that it accepts as in sync.
    pub accepted: Vec<usize>,
    /// Members that it accepts as being rebuilt, and the sector below which they are in sync.
    pub partial: Vec<(usize, u64)>,
    /// Devices that replace members which it accepts, and the sector below which they are alike.
    pub replacements: Vec<(usize, u64)>,
    /// The superblock that is taken for the freshest.
    pub freshest: ArrayState,
}

/// What is known of the array that the power cut hit.
pub struct Context<'a> {
    /// Its geometry.
    pub geometry: &'a Geometry,
    /// Whether it has a bitmap.
    pub has_bitmap: bool,
    /// Whether it has a partial parity log.
    pub has_log: bool,
    /// Sectors that were being written at a power cut after which the array was not whole yet.
    pub in_doubt: &'a [u64],
    /// Logical block of the devices in bytes.
    pub block: u32,
    /// What each sector may hold.
    pub legal: &'a Model,
    /// Copies differed and parity was wrong when the first life began.
    pub began_out_of_sync: bool,
    /// Slot of a write-mostly member, whose copies come behind the others.
    pub write_mostly: Option<u16>,
    /// Members whose loss was recorded: no rule may accept them.
    pub lost: &'a [usize],
}

/// What a rule takes: see [`View`].
#[derive(Default)]
struct Taken {
    accepted: Vec<usize>,
    partial: Vec<(usize, u64)>,
    replacements: Vec<(usize, u64)>,
}

/// Images of one array that differ in a few sectors, as the states of a crash point do: what has
/// been found of some is not looked for again in others with the same metadata, or the same data.
#[derive(Default)]
pub struct Alike {
    metadata: RefCell<HashMap<u64, Rc<Metadata>>>,
    /// Views and data that were right together.
    right: RefCell<HashSet<u64>>,
}

/// Hashes of what images hold.
#[derive(Clone, Copy, Debug)]
pub struct Hashes {
    /// Of all sectors of metadata.
    pub metadata: u64,
    /// Of all other sectors, and of what may be true of them.
    pub data: u64,
}

/// See the module documentation.
pub struct CrashImages<'a> {
    context: Context<'a>,
    metadata: Rc<Metadata>,
    /// By slot: first sector of the data area.
    data_offsets: Vec<u64>,
    images: Vec<&'a [u8]>,
    alike: Option<(&'a Alike, Hashes)>,
}

impl<'a> CrashImages<'a> {
    /// What is left on these devices. `data_offsets`: where their data begin, also on those without
    /// a valid superblock.
    pub fn new(
        images: Vec<&'a [u8]>,
        data_offsets: &[u64],
        context: Context<'a>,
    ) -> CrashImages<'a> {
        let metadata = Rc::new(Metadata::of(&images, &context));
        let data_offsets = data_offsets.to_vec();
        CrashImages { context, metadata, data_offsets, images, alike: None }
    }

    /// The same beside others that are alike.
    pub fn beside(
        alike: &'a Alike,
        hashes: Hashes,
        images: Vec<&'a [u8]>,
        data_offsets: &[u64],
        context: Context<'a>,
    ) -> CrashImages<'a> {
        let mut known = alike.metadata.borrow_mut();
        let metadata = known.entry(hashes.metadata);
        let metadata = metadata.or_insert_with(|| Rc::new(Metadata::of(&images, &context))).clone();
        drop(known);
        let data_offsets = data_offsets.to_vec();
        CrashImages { context, metadata, data_offsets, images, alike: Some((alike, hashes)) }
    }

    /// The devices without a valid superblock.
    pub fn torn(&self) -> Vec<usize> {
        let is_torn = |at: &usize| {
            self.metadata.disks[*at].is_none()
                && !self.images[*at].is_empty()
                && !self.has_left(*at)
        };
        (0..self.geometry().members()).filter(is_torn).collect()
    }

    /// The slots that a superblock records for devices without a valid one of their own, where a
    /// device beside the members has none: a spare that has just become a replacement.
    pub fn torn_beside(&self, freshest: &ArrayState) -> Vec<usize> {
        let beside = self.geometry().members()..self.images.len();
        let is_torn = |at: usize| self.metadata.disks[at].is_none() && !self.images[at].is_empty();
        if !beside.clone().any(is_torn) {
            return Vec::new();
        }
        let is_valid = |number| self.metadata.disks.iter().flatten().any(|it| it.number == number);
        let devices = (0..).zip(&freshest.devices).filter(|(number, _)| !is_valid(*number));
        let roles = devices.filter_map(|(_, device)| device.as_ref().map(|device| device.role));
        let slots = roles.filter_map(|role| match role {
            Role::Slot(slot) => Some(usize::from(slot)),
            _ => None,
        });
        slots.collect()
    }

    /// Whether what has replaced a slot's first device says that it has the slot: if there is a
    /// device in the first place, it is on its way to replace that one.
    fn has_left(&self, slot: usize) -> bool {
        let second = slot + self.geometry().members();
        let own = self.metadata.disks.get(second).and_then(Option::as_ref).and_then(Disk::own);
        own.is_some_and(|own| !own.replacement && own.role == Role::Slot(slot as u16))
    }

    fn geometry(&self) -> &Geometry {
        self.context.geometry
    }

    /// Whether a device has a valid superblock.
    pub fn is_valid(&self, at: usize) -> bool {
        self.metadata.disks.get(at).is_some_and(Option::is_some)
    }

    fn state(&self, at: usize) -> Option<&ArrayState> {
        self.metadata.disks[at].as_ref().map(|disk| &disk.state)
    }

    /// The highest event count of a device with a slot.
    ///
    /// # Panics
    /// If no such device has a valid superblock.
    pub fn events(&self) -> u64 {
        let members = self.metadata.disks.iter().flatten().filter(|disk| disk.has_slot());
        let events = members.map(|disk| disk.state.events);
        events.max().expect("a member has a valid superblock")
    }

    /// Every view: of superblocks with equal counts, any may be taken for the freshest. That of
    /// `md::assemble` comes first. Before 5.5, that of a spare was, too, if it had come further
    /// than those of all members.
    pub fn views(&self) -> &[View] {
        self.metadata.views.get_or_init(|| self.all_views())
    }

    fn all_views(&self) -> Vec<View> {
        let events = self.events();
        let mut views: Vec<View> = self.metadata.assembled.iter().cloned().collect();
        let disks = || self.metadata.disks.iter().flatten();
        let highest = disks().map(|disk| disk.state.events).max();
        let members = disks().filter(|disk| disk.has_slot() && disk.state.events == events);
        let spares = disks()
            .filter(|disk| !disk.has_slot() && Some(disk.state.events) == highest)
            .filter(|disk| disk.state.events >= events);
        for freshest in members.chain(spares) {
            for rule in [Rule::CountAndRoles, Rule::Count] {
                let Taken { accepted, partial, replacements } =
                    self.accepted(rule, &freshest.state);
                let is_new = views.iter().all(|view| {
                    view.accepted != accepted
                        || view.partial != partial
                        || view.replacements != replacements
                        || view.freshest.resync_offset != freshest.state.resync_offset
                });
                if is_new {
                    let freshest = freshest.state.clone();
                    views.push(View { rule, accepted, partial, replacements, freshest });
                }
            }
        }
        views
    }

    /// The members that a kernel would take: those in sync, those that are being rebuilt, and what
    /// replaces members.
    fn accepted(&self, rule: Rule, freshest: &ArrayState) -> Taken {
        let slots = self.geometry().members();
        let slot = |at: usize| Role::Slot((at % slots) as u16);
        let listed = |disk: &Disk, at: usize| {
            let state = freshest.devices.get(disk.number as usize).and_then(Option::as_ref);
            state.is_some_and(|state| state.role == slot(at))
        };
        let counts = |disk: &Disk| disk.state.events + 1 >= freshest.events;
        let (mut taken, mut replacements) = (Taken::default(), Vec::new());
        for at in 0..self.metadata.disks.len() {
            let Some(disk) = &self.metadata.disks[at] else { continue };
            let Some(own) = disk.own().filter(|own| own.role == slot(at)) else { continue };
            if !counts(disk) || rule != Rule::Count && !listed(disk, at) {
                continue;
            }
            match own.recovery_offset {
                up_to if own.replacement => replacements.push((at, up_to.unwrap_or(u64::MAX))),
                None => taken.accepted.push(at),
                Some(up_to) => taken.partial.push((at, up_to)),
            }
        }
        for (at, up_to) in replacements {
            // Without the member the replacement is all there is.
            let has_slot = |other: &usize| other % slots == at % slots;
            match taken.accepted.iter().any(has_slot) {
                true => taken.replacements.push((at, up_to)),
                false if up_to == u64::MAX => taken.accepted.push(at),
                false => taken.partial.push((at, up_to)),
            }
        }
        taken
    }

    /// Whether a view finds a member in sync at this sector of its data area.
    fn is_here(&self, view: &View, member: MemberIdx, sector: u64) -> bool {
        self.devices(view, member, sector).next().is_some()
    }

    /// Whether a device's bad-block log says that it does not have this sector of its data area.
    fn is_listed(&self, device: usize, sector: u64) -> bool {
        let at = self.data_offsets[device % self.geometry().members()] + sector;
        self.metadata.disks[device].as_ref().is_some_and(|disk| disk.bad.overlaps(at..at + 1))
    }

    /// The devices that have this sector of a slot in sync in a view: after a replacement, by the
    /// event counts alone, perhaps both.
    fn devices<'b>(
        &'b self,
        view: &'b View,
        member: MemberIdx,
        sector: u64,
    ) -> impl Iterator<Item = usize> + use<'b> {
        let (slots, slot) = (self.geometry().members(), member.index());
        let partial = view.partial.iter().filter(move |(_, up_to)| sector < *up_to);
        let all = view.accepted.iter().chain(partial.map(|(device, _)| device)).copied();
        all.filter(move |device| device % slots == slot && !self.is_listed(*device, sector))
    }

    /// Whether the metadata mark that this position may be out of sync, whichever member's bitmap
    /// is read.
    pub fn is_marked(&self, position: u64, view: &View) -> bool {
        let Some(from) = view.freshest.resync_offset else { return false };
        if !self.context.has_bitmap {
            // Rows below the position may be in a log; see `check_logs`.
            return self.context.has_log || position >= from;
        }
        let events = view.freshest.events;
        let marked = |at: &usize| {
            let disk = self.metadata.disks[*at].as_ref().expect("it is accepted");
            let Some((header, bits)) = &disk.bitmap else { return true };
            // md: a bit covers `chunk_bytes` of a member, on RAID 10 of the array.
            let chunk = u64::from(header.chunk_bytes) / md::SECTOR_BYTES;
            let bit = position / chunk;
            let is_set = bits[bit as usize / 8] >> (bit % 8) & 1 == 1;
            (bit + 1) * chunk > from && (header.is_stale(events) || is_set)
        };
        view.accepted.iter().all(marked)
    }

    fn sector(&self, view: &View, member: MemberIdx, at: Sector) -> &[u8] {
        let device = self.devices(view, member, at.0).next().unwrap_or(member.index());
        self.sector_of(device, at)
    }

    fn sector_of(&self, device: usize, at: Sector) -> &[u8] {
        let from = (self.data_offsets[device % self.geometry().members()] + at.0) as usize * SECTOR;
        &self.images[device][from..from + SECTOR]
    }

    /// What replaces a member is like it as far as it says; so are two devices that both have a
    /// slot.
    fn check_replacements(&self, view: &View) {
        let slots = self.geometry().members();
        let both = view.accepted.iter().map(|device| (*device, u64::MAX));
        for (device, up_to) in view.replacements.iter().copied().chain(both) {
            let slot = MemberIdx((device % slots) as u16);
            let Some(of) = view.accepted.iter().find(|of| **of % slots == slot.index()) else {
                continue;
            };
            let end = self.geometry().member_used_sectors(slot).min(up_to);
            for at in (0..end).filter(|_| *of != device) {
                let position = match self.geometry().kind() {
                    Kind::Mirrored(mirrored) => mirrored.array_sector_of(slot, Sector(at)),
                    _ => Some(Sector(at)),
                };
                let is_alike =
                    self.sector_of(device, Sector(at)) == self.sector_of(*of, Sector(at));
                let is_free = position.is_none_or(|at| self.is_marked(at.0, view))
                    || self.is_listed(device, at)
                    || self.is_listed(*of, at);
                assert!(
                    is_alike || is_free,
                    "replacement {device} of member {of} differs at unmarked sector {at}"
                );
            }
        }
    }

    /// Checks everything, in every view.
    ///
    /// # Panics
    /// When something is not as it should be.
    pub fn check(&self) {
        self.check_assembly();
        for view in self.views() {
            let View { rule, accepted, .. } = view;
            let torn = accepted.iter().find(|at| self.metadata.disks[**at].is_none());
            assert_eq!(torn, None, "{rule:?} accepts a device whose superblock is torn");
            let is_taken = |at: &usize| {
                accepted.contains(at) || view.partial.iter().any(|(other, _)| other == at)
            };
            let out = self.context.lost.iter().find(|lost| is_taken(lost));
            assert_eq!(out, None, "the loss of a member was recorded, and {rule:?} accepts it");
            self.check_view(view);
            self.check_replacements(view);
        }
        if self.context.has_log {
            self.check_logs();
        }
    }

    /// The assembly takes the members that the rule of the kernels takes, with one of the fresh
    /// superblocks for the freshest.
    fn check_assembly(&self) {
        let Some(View { accepted, .. }) = &self.metadata.assembled else { return };
        let events = self.events();
        let mut fresh =
            self.metadata.disks.iter().flatten().filter(|disk| disk.state.events + 1 >= events);
        let as_kernels =
            fresh.any(|disk| self.accepted(Rule::CountAndRoles, &disk.state).accepted == *accepted);
        assert!(as_kernels, "the assembly takes {accepted:?}, unlike every rule of the kernels");
    }

    fn check_view(&self, view: &View) {
        let geometry = self.context.geometry;
        let View { rule, accepted, .. } = view;
        let slots = geometry.members();
        let here =
            |member: MemberIdx| accepted.iter().any(|device| device % slots == member.index());
        assert!(geometry.enough(here), "{rule:?} leaves too few: {accepted:?}");
        let key =
            self.alike.and_then(|(alike, hashes)| Some((alike, self.key(view, hashes.data)?)));
        if key.is_some_and(|(alike, key)| alike.right.borrow().contains(&key)) {
            return;
        }
        match geometry.kind() {
            Kind::Mirrored(mirrored) => self.check_copies(mirrored, view),
            Kind::Parity(parity) => {
                for stripe in 0..parity.stripes() {
                    for offset in 0..parity.chunk_sectors() {
                        self.check_row(parity, StripeNo(stripe), offset, view);
                    }
                }
            }
            Kind::Striped(_) => unreachable!("no redundancy"),
        }
        if let Some((alike, key)) = key {
            alike.right.borrow_mut().insert(key);
        }
    }

    /// A hash of all on which the check of the data depends: which members are in sync up to where,
    /// and what is marked. `None`: bad blocks are listed.
    fn key(&self, view: &View, data: u64) -> Option<u64> {
        let View { rule: _, accepted, partial, replacements: _, freshest } = view;
        let mut hasher = DefaultHasher::new();
        (data, accepted, partial, freshest.resync_offset).hash(&mut hasher);
        for device in accepted.iter().chain(partial.iter().map(|(device, _)| device)) {
            let disk = self.metadata.disks[*device].as_ref()?;
            let bits = disk.bitmap.as_ref();
            let bits = bits
                .map(|(header, bits)| (header.chunk_bytes, header.is_stale(freshest.events), bits));
            bits.hash(&mut hasher);
            if !disk.bad.is_empty() {
                return None;
            }
        }
        Some(hasher.finish())
    }

    /// Rules out what no view finds any more: contents do not change while the power is off.
    pub fn narrow(&self, legal: &mut Model) {
        let views = self.views();
        let taken = |copy: &Copy, view: &View| self.is_here(view, copy.member, copy.sector.0);
        match self.context.geometry.kind() {
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                for at in 0..self.context.geometry.array_sectors() {
                    mirrored.locate(Sector(at), &mut copies);
                    let mut found: Vec<&[u8]> = Vec::new();
                    for (copy, view) in
                        copies.iter().flat_map(|c| views.iter().map(move |v| (c, v)))
                    {
                        let devices = self.devices(view, copy.member, copy.sector.0);
                        found.extend(devices.map(|device| self.sector_of(device, copy.sector)));
                    }
                    found.sort_unstable();
                    found.dedup();
                    // All that are left list it as bad.
                    if !found.is_empty() {
                        legal.narrow(at, &found);
                    }
                }
            }
            Kind::Parity(parity) => {
                for stripe in (0..parity.stripes()).map(StripeNo) {
                    let row = parity.row(stripe);
                    for offset in 0..parity.chunk_sectors() {
                        let place = parity.member_sector(stripe, offset);
                        for (index, member) in row.data.iter().enumerate() {
                            // What is missing somewhere is recovered from what may be marked.
                            let copy = Copy { member: *member, sector: place };
                            if views.iter().all(|view| taken(&copy, view)) {
                                let at = parity.array_sector(stripe, index as u16, offset).0;
                                let mut found: Vec<&[u8]> = Vec::new();
                                for view in views {
                                    let devices = self.devices(view, *member, place.0);
                                    found.extend(devices.map(|of| self.sector_of(of, place)));
                                }
                                legal.narrow(at, &found);
                            }
                        }
                    }
                }
            }
            Kind::Striped(_) => {}
        }
    }

    /// The write hole, if the array starts with these members, and with those that are in sync in
    /// part unless they are `absent`: of a missing one, sectors of rows that are marked may hold
    /// anything, unless every way to recover them agrees on something that was written.
    pub fn write_hole(&self, present: &[usize], absent: &[usize], legal: &mut Model) {
        let Kind::Parity(parity) = self.context.geometry.kind() else { return };
        let views = self.views();
        let view = &views[0];
        for stripe in (0..parity.stripes()).map(StripeNo) {
            let row = parity.row(stripe);
            for offset in 0..parity.chunk_sectors() {
                let place = parity.member_sector(stripe, offset);
                if !self.is_marked(place.0, view) {
                    continue;
                }
                let bytes = |member: MemberIdx| {
                    let mut partial = view.partial.iter().filter(|(at, _)| !absent.contains(at));
                    let is_here = present.contains(&member.index())
                        || partial.any(|(at, up_to)| *at == member.index() && place.0 < *up_to);
                    let is_here = is_here && !self.is_listed(member.index(), place.0);
                    is_here.then(|| self.sector(view, member, place))
                };
                let mut data: Vec<Data<'_>> = Vec::with_capacity(row.data.len());
                for index in &row.by_exponent {
                    let at = parity.array_sector(stripe, *index, offset).0;
                    let exponent = row.exponent[usize::from(*index)];
                    data.push((exponent, at, bytes(row.data[usize::from(*index)])));
                }
                let lost: Vec<usize> = (0..data.len()).filter(|at| data[*at].2.is_none()).collect();
                let (p, q) = (bytes(row.p), row.q.and_then(bytes));
                let ways = [(p, q), (p, None), (None, q)].map(|(p, q)| {
                    let mut recovered = [[0; SECTOR]; 2];
                    recover(&data, &lost, p, q, &mut recovered).then_some(recovered)
                });
                for (index, lost) in lost.iter().enumerate() {
                    let at = data[*lost].1;
                    let mut ways = ways.iter().flatten().map(|recovered| &recovered[index][..]);
                    let first = ways.next().filter(|bytes| legal.allows(at, bytes));
                    let is_alike = ways.all(|bytes| Some(bytes) == first);
                    let member = row.data[usize::from(row.by_exponent[*lost])].index();
                    match first.filter(|_| is_alike) {
                        // An older kernel may still take what the missing member holds.
                        Some(_) if views.iter().any(|view| view.accepted.contains(&member)) => {}
                        Some(bytes) => legal.narrow(at, &[bytes]),
                        None => legal.may_hold_anything(at),
                    }
                }
            }
        }
    }

    /// After a replay of the logs parity is true, and with any one member lost, everything that is
    /// not in flight is what it was.
    fn check_logs(&self) {
        let Some(view) = &self.metadata.assembled else { return };
        let is_named = view.freshest.policy == Policy::Ppl;
        if !is_named || view.freshest.resync_offset.is_none() {
            return;
        }
        for absent in std::iter::once(None).chain(view.accepted.iter().copied().map(Some)) {
            let left = view.accepted.iter().copied().filter(|at| Some(*at) != absent);
            let left: Vec<usize> = left.collect();
            let is_enough = self.context.geometry.enough(|member| left.contains(&member.index()));
            let events = |at: &usize| self.state(*at).map_or(0, |state| state.events);
            // Without the freshest one, the others may be taken for fresh: two histories.
            if is_enough && left.iter().map(events).max() == Some(self.events()) {
                self.check_replayed(absent);
            }
        }
    }

    fn check_replayed(&self, absent: Option<usize>) {
        let Context { geometry, block, .. } = self.context;
        let images = self.images.iter().enumerate();
        let there: Vec<Option<&[u8]>> =
            images.map(|(at, image)| (Some(at) != absent).then_some(*image)).collect();
        let options = StartOptions {
            shards: 1,
            checkpoint_nanos: 1,
            bits_ahead_nanos: 0,
            force: false,
            add: 0,
            readd: 0,
            replace: 0,
        };
        let started = match assembly::start(&there, block, options) {
            Ok(started) => started,
            Err(refusal) => {
                assert!(matches!(refusal, Refusal::Start(_)), "with the log: {refusal:?}");
                return;
            }
        };
        let mut images: Vec<Vec<u8>> = self.images.iter().map(|image| image.to_vec()).collect();
        for (device, sector, bytes) in &started.replayed {
            let from = *sector as usize * SECTOR;
            images[*device][from..from + bytes.len()].copy_from_slice(bytes);
        }
        let Kind::Parity(parity) = geometry.kind() else { return };
        let resync = started.manager.status().resync_offset;
        for stripe in (0..parity.stripes()).map(StripeNo) {
            let row = parity.row(stripe);
            for offset in 0..parity.chunk_sectors() {
                let place = parity.member_sector(stripe, offset);
                let bytes = |member: MemberIdx| {
                    let at = member.index();
                    let mut rebuilt = started.rebuilding.iter().filter(|(it, _)| *it == at);
                    let is_here = !started.missing.contains(member.0)
                        && rebuilt.all(|(_, up_to)| place.0 < *up_to);
                    let from = (self.data_offsets[at] + place.0) as usize * SECTOR;
                    is_here.then(|| &images[at][from..from + SECTOR])
                };
                let data = row.by_exponent.iter().map(|index| {
                    let at = parity.array_sector(stripe, *index, offset).0;
                    (0, at, bytes(row.data[usize::from(*index)]))
                });
                let data: Vec<Data<'_>> = data.collect();
                let p = bytes(row.p);
                let lost: Vec<usize> = (0..data.len()).filter(|at| data[*at].2.is_none()).collect();
                let mut recovered = [[0; SECTOR]; 2];
                if resync.is_some_and(|from| place.0 >= from)
                    || !recover(&data, &lost, p, None, &mut recovered)
                {
                    continue;
                }
                if let [lost] = lost[..] {
                    let (at, legal) = (data[lost].1, self.context.legal);
                    let is_settled = legal.is_settled(at) && !self.context.in_doubt.contains(&at);
                    let is_right = !is_settled || legal.allows(at, &recovered[0]);
                    let found = || legal.describe(at, &recovered[0]);
                    assert!(
                        is_right,
                        "sector {at} wrong with the log, without {absent:?}: {}",
                        found()
                    );
                } else {
                    let plain: Vec<&[u8]> = data.iter().filter_map(|(.., bytes)| *bytes).collect();
                    let mut right = [0; SECTOR];
                    Kernels::best().xor_gen(&mut right, &plain);
                    let is_right = p.is_none_or(|p| p == right);
                    assert!(is_right, "P of row {stripe:?} at {offset} wrong with the log");
                }
            }
        }
    }

    fn check_copies(&self, mirrored: &md::Mirrored, view: &View) {
        let legal = self.context.legal;
        let here = |copy: &Copy| self.is_here(view, copy.member, copy.sector.0);
        let mut copies = vec![Copy::default(); mirrored.copies()];
        for at in 0..self.context.geometry.array_sectors() {
            mirrored.locate(Sector(at), &mut copies);
            copies.sort_by_key(|copy| self.context.write_mostly == Some(copy.member.0));
            let marked = self.is_marked(at, view);
            let mut there = copies.iter().filter(|copy| here(copy)).peekable();
            // Of enough members, unless all list it as bad.
            let Some(first) = there.peek() else { continue };
            let first = self.sector(view, first.member, first.sector);
            for copy in there {
                let bytes = self.sector(view, copy.member, copy.sector);
                assert!(marked || bytes == first, "unmarked copies of {at} differ");
                let blank = marked && self.context.began_out_of_sync && bytes != first;
                assert!(
                    blank || legal.allows(at, bytes),
                    "sector {at} lost: {}",
                    legal.describe(at, bytes)
                );
            }
        }
    }

    fn check_row(&self, parity: &md::Parity, stripe: StripeNo, offset: u64, view: &View) {
        let legal = self.context.legal;
        let row = parity.row(stripe);
        let place = parity.member_sector(stripe, offset);
        let here = |member: MemberIdx| self.is_here(view, member, place.0);
        let mut data: Vec<Data<'_>> = Vec::with_capacity(row.data.len());
        for index in &row.by_exponent {
            let member = row.data[usize::from(*index)];
            let at = parity.array_sector(stripe, *index, offset).0;
            let bytes = here(member).then(|| self.sector(view, member, place));
            if let Some(bytes) = bytes {
                assert!(legal.allows(at, bytes), "sector {at} lost: {}", legal.describe(at, bytes));
            }
            data.push((row.exponent[usize::from(*index)], at, bytes));
        }
        if self.is_marked(place.0, view) {
            return;
        }
        let p = here(row.p).then(|| self.sector(view, row.p, place));
        let q = row.q.filter(|member| here(*member)).map(|member| self.sector(view, member, place));
        let mut recovered = [[0; SECTOR]; 2];
        let lost: Vec<usize> = (0..data.len()).filter(|at| data[*at].2.is_none()).collect();
        if !recover(&data, &lost, p, q, &mut recovered) {
            return;
        }
        for (lost, bytes) in lost.iter().zip(&recovered) {
            let at = data[*lost].1;
            assert!(
                legal.allows(at, bytes),
                "sector {at} lost, by recovery: {}",
                legal.describe(at, bytes)
            );
            data[*lost].2 = Some(bytes);
        }
        let blocks: Vec<Block<'_>> = blocks(&data);
        let (mut right_p, mut right_q) = ([0; SECTOR], [0; SECTOR]);
        Kernels::best().pq_gen(&mut right_p, &mut right_q, &blocks);
        assert!(p.is_none_or(|p| p == right_p), "unmarked P of row {stripe:?} at {offset}");
        assert!(q.is_none_or(|q| q == right_q), "unmarked Q of row {stripe:?} at {offset}");
    }
}

/// A data block of a row: exponent, array sector, contents if its member is there.
type Data<'a> = (u8, u64, Option<&'a [u8]>);

fn blocks<'a>(data: &[Data<'a>]) -> Vec<Block<'a>> {
    let present = data.iter().filter_map(|(exponent, _, bytes)| Some((*exponent, (*bytes)?)));
    present.map(|(exponent, bytes)| Block { exponent, bytes }).collect()
}

/// Recovers the lost blocks of a row from what is left of it. `false`: too much is lost, which is
/// no finding where only parity members are missing besides.
fn recover(
    data: &[Data<'_>],
    lost: &[usize],
    p: Option<&[u8]>,
    q: Option<&[u8]>,
    into: &mut [[u8; SECTOR]; 2],
) -> bool {
    let kernels = Kernels::best();
    let held = blocks(data);
    let [one, other] = into;
    match (lost, p, q) {
        ([], ..) => true,
        ([_], Some(p), _) => {
            let plain: Vec<&[u8]> = held.iter().map(|block| block.bytes).collect();
            kernels.recover_d_p(one, &plain, p);
            true
        }
        ([lost], None, Some(q)) => {
            kernels.recover_d_q(one, data[*lost].0, &held, q);
            true
        }
        ([x, y], Some(p), Some(q)) => {
            kernels.recover_dd(one, data[*x].0, other, data[*y].0, &held, p, q);
            true
        }
        _ => false,
    }
}
