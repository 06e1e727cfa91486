//! Between two lives: what is on the devices, what is known of it, and the next start.

use std::ops::Range;

use engine::{
    DEFAULT_CHECKPOINT_NANOS, DEFAULT_RESYNC_STEP, DEFAULT_SAFE_MODE_NANOS, MemberSet,
    RequestError, ShardConfig, Sharding,
};
use md::geometry::Copy;
use md::ondisk::{Role, Version, Write};
use md::{Geometry, Kind, Level, MemberIdx, Sector, StripeNo};
use testkit::Rng;

use super::Life;
use crate::assembly::{self, Refusal, StartOptions};
use crate::crash_images::{Context, CrashImages, View};
use crate::marks::{Mark, Marks};
use crate::member::{Member, SECTOR};
use crate::model::Model;
use crate::mutant::Mutant;
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::world::{ControlPlane, Delays, World};

/// Between two lives: what is on the devices, and what is known of it.
pub(crate) struct OfflineArray {
    pub(super) geometry: Geometry,
    pub(super) has_bitmap: bool,
    pub(super) has_log: bool,
    /// What makes the log of a device empty.
    pub(super) empty_log: Vec<Write>,
    /// See [`Context::in_doubt`].
    pub(super) in_doubt: Vec<u64>,
    pub(super) images: Vec<Vec<u8>>,
    /// Logical block of the devices in bytes.
    pub(super) block: u32,
    pub(super) data_offsets: Vec<u64>,
    pub(super) legal: Model,
    /// See [`Context::began_out_of_sync`].
    pub(super) began_out_of_sync: bool,
    /// Slot of a write-mostly member, the same in all lives: superblocks keep the flag, and the
    /// first copy of the others is the one that a resync keeps.
    pub(super) write_mostly: Option<u16>,
    /// Members that are lost, or must be taken for lost.
    pub(super) lost: Vec<usize>,
    /// Those of them whose loss is on record.
    pub(super) recorded: Vec<usize>,
    /// Event count of the freshest superblock.
    pub(super) events: u64,
    /// Errors that requests may end with.
    pub(super) tolerated: Vec<RequestError>,
    pub(super) next_tag: u64,
    pub(super) mutant: Option<Mutant>,
    /// Devices that are to be put into the slots of their numbers, once they are empty.
    pub(super) add: u16,
    /// Slots whose members are to be replaced.
    pub(super) replace: u16,
    /// By slot: the image of what replaces its member, in the slot's second place.
    pub(super) replacements: Vec<Option<Vec<u8>>>,
    /// Images of spares, and of those that have left, by place behind those of the slots.
    pub(super) spares: Vec<Option<Vec<u8>>>,
    /// The highest event count of a device with a slot that was taken out.
    pub(super) taken_out: u64,
    /// Devices keep their numbers: not in 0.90.
    pub(super) numbers_stay: bool,
    /// By device: its size in bytes.
    pub(super) sizes: Vec<usize>,
    /// Members that were being rebuilt.
    pub(super) rebuilding: Vec<usize>,
}

impl OfflineArray {
    pub(super) fn created(scenario: &Scenario, rng: &mut Rng) -> OfflineArray {
        let array = &scenario.array;
        let (geometry, mut images) = array.create().expect("an array that can be created");
        let all: Vec<Option<&[u8]>> = images.iter().map(|image| Some(&image[..])).collect();
        let found = assembly::examine(&all, array.block);
        let data_offsets: Vec<u64> = found.iter().map(|it| it.metadata.data_offset).collect();
        let sizes = images.iter().map(Vec::len).collect();
        let mut legal = Model::new(geometry.array_sectors(), false);
        let began_out_of_sync = array.begins.is_out_of_sync();
        // From a generator of its own, so that what else a seed decides stays as it was.
        let mut aside = rng.clone();
        let write_mostly = aside.one_in(3).then(|| aside.below(geometry.members() as u64) as u16);
        if began_out_of_sync {
            spoil(&geometry, &data_offsets, &mut images, write_mostly, rng);
            // The copy that is read may be lost or bad: then another one, which differs, is what
            // there is.
            if matches!(geometry.kind(), Kind::Mirrored(_)) && (scenario.troubled || rng.one_in(2))
            {
                legal.begin_with_anything();
            }
        }
        OfflineArray {
            geometry,
            has_bitmap: array.bitmap_chunk.is_some(),
            has_log: array.log.is_some(),
            empty_log: array.empty_log(found[0].metadata.set_uuid),
            in_doubt: Vec::new(),
            images,
            block: array.block,
            data_offsets,
            legal,
            began_out_of_sync,
            write_mostly,
            lost: Vec::new(),
            recorded: Vec::new(),
            events: 0,
            tolerated: Vec::new(),
            next_tag: 1,
            mutant: None,
            add: 0,
            replace: 0,
            replacements: vec![None; array.members],
            spares: vec![None; array.members],
            taken_out: 0,
            numbers_stay: array.version != Version::V0_90,
            sizes,
            rebuilding: Vec::new(),
        }
    }

    pub(super) fn crashed(&self) -> CrashImages<'_> {
        let context = Context {
            geometry: &self.geometry,
            has_bitmap: self.has_bitmap,
            has_log: self.has_log,
            in_doubt: &self.in_doubt,
            block: self.block,
            legal: &self.legal,
            began_out_of_sync: self.began_out_of_sync,
            write_mostly: self.write_mostly,
            lost: &self.recorded,
        };
        let images: Vec<&[u8]> = self.images.iter().map(|image| &image[..]).collect();
        CrashImages::new(self.with_others(images), &self.data_offsets, context)
    }

    /// The images of members, and behind them those of what replaces them, and of spares.
    fn with_others<'a>(&'a self, mut images: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
        let mut others = self.replacements.iter().chain(&self.spares);
        if others.any(Option::is_some) {
            let others = self.replacements.iter().chain(&self.spares);
            images.extend(others.map(|image| image.as_deref().unwrap_or_default()));
        }
        images
    }

    /// Starts the array, without the members in the bit mask. `None`: it is refused, as it should
    /// be.
    #[expect(clippy::too_many_lines, reason = "the steps of a start, in their order")]
    pub(super) fn start(
        mut self,
        scenario: &Scenario,
        shards: u16,
        without: u16,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Option<Life> {
        // Only the newest log of a member counts: there is one writer.
        let shards = if self.has_log { 1 } else { shards };
        // 0.90 numbers devices anew with each write; here the number of a device never changes.
        let readd = if self.numbers_stay { self.readditions(without, rng) } else { 0 };
        let add = if self.numbers_stay { self.additions(rng) } else { 0 };
        // With a log nothing may be replaced.
        let may_replace = self.numbers_stay && !self.has_log;
        let replace = if may_replace { self.new_replacements(add | readd, rng) } else { 0 };
        let views = self.crashed().views().to_vec();
        let is_dirty = views.iter().any(|view| view.freshest.resync_offset.is_some());
        let accepted = views[0].accepted.clone();
        let absent = self.absent(&accepted, without, is_dirty);
        let present: Vec<usize> =
            accepted.iter().copied().filter(|at| !absent.contains(at)).collect();
        let images = self.images.iter().enumerate();
        let images: Vec<Option<&[u8]>> =
            images.map(|(at, image)| (!absent.contains(&at)).then_some(&image[..])).collect();
        let mut images = images;
        images.extend(self.replacements.iter().chain(&self.spares).map(Option::as_deref));
        let checkpoint = rng.pick(&[100_000, 5_000_000, DEFAULT_CHECKPOINT_NANOS]);
        let mut options = StartOptions {
            shards,
            checkpoint_nanos: checkpoint,
            // From a generator of its own, so that what else a seed decides stays as it was.
            bits_ahead_nanos: rng.clone().pick(&[0, 0, 20_000, 1_000_000]),
            force: false,
            add,
            readd,
            replace,
        };
        let mut is_forced = false;
        let started = match assembly::start(&images, self.block, options) {
            Ok(started) => started,
            Err(refusal) => {
                // Dirty and degraded: refused without force, as by md. Copies that may differ, and
                // the superblock of the first one is torn: refused, since the others may never have
                // been synced. The superblock of a replacement does not say which of the two the
                // slot's copy is on.
                let mut torn = self.crashed().torn();
                let beside = self.crashed().torn_beside(&views[0].freshest);
                torn.extend(beside.into_iter().filter(|slot| !present.contains(slot)));
                let torn =
                    torn.iter().any(|at| has_first_copy(&self.geometry, *at, &self.recorded));
                let lacks_data = lacks_data(&self.geometry, &present);
                // All that a stale member knows may have been replaced, and be gone: then nothing
                // shows that it has not run without the others.
                let later = views[0].freshest.devices.iter().skip(self.images.len()).flatten();
                let has_later = later.clone().any(|it| matches!(it.role, Role::Slot(_)));
                let is_split = has_later && format!("{refusal:?}").contains("Split brain");
                let may = is_dirty && (lacks_data || torn) || is_split;
                assert!(may, "the array is refused: {refusal:?}; accepted: {accepted:?}");
                assert!(matches!(refusal, Refusal::Start(_)), "{refusal:?}");
                tally.refusals += 1;
                tally.marks.reach(match lacks_data {
                    true => Mark::StartRefused,
                    false => Mark::StartRefusedTorn,
                });
                if !lacks_data || rng.one_in(4) {
                    return None;
                }
                options.force = true;
                is_forced = true;
                let started = assembly::start(&images, self.block, options);
                started.unwrap_or_else(|refusal| panic!("refused by force: {refusal:?}"))
            }
        };
        let replayed = !started.replayed.is_empty();
        for (device, sector, bytes) in &started.replayed {
            let from = *sector as usize * SECTOR;
            // A spare that takes a slot gets what the slot's member would.
            let image = match device.checked_sub(2 * self.images.len()) {
                None => &mut self.images[*device],
                Some(spare) => self.spares[spare].as_mut().expect("it was examined"),
            };
            image[from..from + bytes.len()].copy_from_slice(bytes);
        }
        if replayed {
            tally.marks.reach(match started.manager.status().resync_offset {
                Some(_) => Mark::LogReplayed,
                None => Mark::LogsMend,
            });
        }
        let by_log = self.has_log && is_dirty && !is_forced && lacks_data(&self.geometry, &present);
        if by_log {
            tally.marks.reach(Mark::StartByLog);
        }
        if is_forced || by_log {
            if is_forced {
                tally.marks.reach(Mark::StartForced);
            }
            let mut legal = self.legal.clone();
            self.crashed().write_hole(&present, &absent, &mut legal);
            self.legal = legal;
        }
        if started.missing.is_empty() && started.rebuilding.is_empty() {
            self.in_doubt.clear();
        }
        tally.generations += 1;
        self.mark_start(&started, &absent, is_dirty, &mut tally.marks);
        self.put_spares(&started);
        let rebuilding: Vec<usize> = started.rebuilding.iter().map(|(at, _)| *at).collect();
        let is_in_sync =
            |at: &usize| !started.missing.contains(*at as u16) && !rebuilding.contains(at);
        let serving: Vec<usize> = (0..self.images.len()).filter(is_in_sync).collect();
        let resync = started.manager.status().resync_offset;
        let force = if is_forced { " by force" } else { "" };
        tally.note(|| {
            let resync = resync.map_or("no resync".into(), |from| format!("resync from {from}"));
            let (rebuilding, replacing) = (&started.rebuilding, &started.replacing);
            format!(
                "starts{force} with members {serving:?} in {shards} shard(s), {resync}, rebuilds \
                 {rebuilding:?}, replaces {replacing:?}"
            )
        });
        if absent.is_empty() || is_forced {
            assert_eq!(serving, present, "the start takes other members than the assembly");
        }
        let mut missing: Vec<usize> =
            (0..self.images.len()).filter(|at| !serving.contains(at)).collect();
        // A rebuild has ended.
        let was_rebuilt = std::mem::take(&mut self.rebuilding);
        self.lost.retain(|at| missing.contains(at) || !was_rebuilt.contains(at));
        for at in &missing {
            if !self.lost.contains(at) {
                self.lost.push(*at);
            }
        }
        missing.retain(|at| !rebuilding.contains(at));
        Some(self.live(scenario, started, missing, shards, rng))
    }

    /// Spares that have got slots have their places; what was there before is gone.
    fn put_spares(&mut self, started: &assembly::Start) {
        let first = 2 * self.images.len();
        for (slot, place) in &started.taken {
            let spare = self.spares[place - first].take().expect("it was examined");
            self.images[*slot] = spare;
            self.recorded.retain(|other| other != slot);
        }
    }

    /// Whether a device is in the array in some view.
    fn is_taken(&self, at: usize) -> bool {
        let has = |view: &View| {
            view.accepted.contains(&at) || view.partial.iter().any(|(other, _)| *other == at)
        };
        self.crashed().views().iter().any(has)
    }

    /// The devices of `add` that the bitmap allows to be put into their slots again.
    fn readditions(&mut self, without: u16, rng: &mut Rng) -> u16 {
        let asked = (0..self.images.len()).filter(|at| self.add >> at & 1 == 1 && without == 0);
        let asked: Vec<usize> = asked.filter(|at| !self.is_taken(*at) && !rng.one_in(3)).collect();
        let mut readd = 0;
        for at in asked {
            let is_there = |other: usize| readd >> other & 1 == 0;
            let images = self.images.iter().enumerate();
            let images = images.map(|(other, image)| is_there(other).then_some(&image[..]));
            let others = self.replacements.iter().chain(&self.spares).map(Option::as_deref);
            let images: Vec<Option<&[u8]>> = images.chain(others).collect();
            if assembly::may_be_readded(&images, at, self.block) {
                readd |= 1 << at;
                self.recorded.retain(|other| *other != at);
                self.add &= !(1 << at);
            }
        }
        readd
    }

    /// The devices of `add` that are out of the array in every view; their images are those of new
    /// devices.
    fn additions(&mut self, rng: &mut Rng) -> u16 {
        // Spares come first.
        let has_spare = self.spares.iter().any(Option::is_some);
        let asked = (0..self.images.len())
            .filter(|at| self.add >> at & 1 == 1 && !has_spare && !self.is_taken(*at));
        let new: Vec<usize> = asked.collect();
        for at in &new {
            // Not zero: what is not rebuilt must be seen.
            let mut image = vec![rng.below(256) as u8 | 1; self.images[*at].len()];
            self.prepare_log(&mut image);
            self.images[*at] = image;
            self.recorded.retain(|other| other != at);
            self.add &= !(1 << at);
        }
        new.iter().map(|at| 1 << at).sum()
    }

    /// What is written to a new device before it is put into a slot: an empty log.
    pub(super) fn prepare_log(&self, image: &mut [u8]) {
        for write in self.empty_log.clone() {
            assembly::apply(image, write);
        }
    }

    fn mark_start(
        &self,
        started: &assembly::Start,
        absent: &[usize],
        is_dirty: bool,
        marks: &mut Marks,
    ) {
        marks.reach(match (is_dirty, started.missing.is_empty()) {
            (false, true) => Mark::StartClean,
            (true, true) => Mark::StartDirty,
            (false, false) => Mark::StartDegraded,
            (true, false) => Mark::StartDirtyDegraded,
        });
        if started.has_stale_bitmap {
            marks.reach(Mark::StartStaleBitmap);
        }
        if !self.crashed().torn().is_empty() {
            marks.reach(Mark::StartTorn);
        }
        if !started.by_bitmap.is_empty() {
            marks.reach(Mark::StartByBitmap);
        }
        if started.bad_block_logs.iter().flatten().any(|log| !log.is_empty()) {
            marks.reach(Mark::StartBadBlocks);
        }
        for (at, from) in &started.rebuilding {
            let is_new = *from == 0 && !self.crashed().is_valid(*at);
            marks.reach(if is_new { Mark::StartAddition } else { Mark::StartRebuild });
        }
        if !started.taken.is_empty() {
            marks.reach(Mark::StartSpareTaken);
        }
        if started.numbers.iter().any(|(_, place)| *place >= 2 * self.images.len()) {
            marks.reach(Mark::StartSpare);
        }
        for slot in &started.replacing {
            let is_new = !self.crashed().is_valid(slot + self.images.len());
            marks.reach(if is_new { Mark::StartReplacement } else { Mark::StartReplacing });
        }
        if started.missing.iter().any(|at| !absent.contains(&usize::from(at))) {
            marks.reach(Mark::StaleMemberBack);
        }
    }

    /// The members of a bit mask that the array can start without.
    fn absent(&self, accepted: &[usize], without: u16, is_dirty: bool) -> Vec<usize> {
        let mut absent: Vec<usize> = Vec::new();
        for at in (0..self.images.len()).filter(|at| without >> at & 1 == 1) {
            let left: Vec<usize> = accepted
                .iter()
                .copied()
                .filter(|other| *other != at && !absent.contains(other))
                .collect();
            let enough = self.geometry.enough(|member| left.contains(&member.index()));
            // A dirty array that lacks data is refused; copies that differ are alike in that each
            // of them may be the truth only where the model has it so.
            let risky = is_dirty && !self.has_log && lacks_data(&self.geometry, &left)
                || self.differs() && matches!(self.geometry.kind(), Kind::Mirrored(_));
            // Without the freshest one, the others may be taken for fresh: two histories.
            let is_replaced = self.replacements[at].is_some();
            if enough && !risky && !is_replaced && !self.is_freshest(at, accepted) {
                absent.push(at);
            }
        }
        absent
    }

    /// Whether copies may differ so that the model does not allow each of them.
    pub(super) fn differs(&self) -> bool {
        self.began_out_of_sync && !self.legal.allows_anything()
    }

    /// Whether the device's superblock is fresher than all others that are accepted.
    fn is_freshest(&self, at: usize, accepted: &[usize]) -> bool {
        let all: Vec<Option<&[u8]>> = self.images.iter().map(|image| Some(&image[..])).collect();
        let found = assembly::examine(&all, self.block);
        let events = |at: usize| {
            let found = found.iter().find(|found| found.device == at);
            found.map_or(0, |found| found.metadata.events)
        };
        accepted.iter().all(|other| *other == at || events(*other) < events(at))
    }

    /// The members, with the images of those that serve; the others keep theirs here.
    fn members(&mut self, started: &assembly::Start) -> Vec<Member> {
        let areas = started.data_areas.iter().zip(&mut self.images);
        let member = |(area, image): (&Option<Range<u64>>, &mut Vec<u8>)| {
            let Some(area) = area else { return Member::missing(started.missing_sectors) };
            let image = std::mem::take(image);
            let mut member = Member::of_device(image, area.start, area.end - area.start);
            member.block_sectors = u64::from(self.block) / md::SECTOR_BYTES;
            member
        };
        let mut members: Vec<Member> = areas.map(member).collect();
        let logs = &started.bad_block_logs;
        if !started.replacing.is_empty() {
            let areas = started.data_areas.iter().zip(&mut self.replacements).zip(0..);
            members.extend(areas.map(|((area, image), slot)| match (area, image) {
                (Some(area), Some(image)) if started.replacing.contains(&slot) => {
                    member((&Some(area.clone()), image))
                }
                _ => Member::missing(started.missing_sectors),
            }));
        }
        members.iter_mut().zip(logs).for_each(|(member, log)| member.log.clone_from(log));
        members
    }

    /// The spares of the array that starts; those that have left keep their images here.
    fn spares_in_use(&mut self, started: &assembly::Start) -> Vec<Option<Member>> {
        let first = 2 * self.images.len();
        let offset = self.data_offsets[0];
        let mut spares: Vec<Option<Member>> = self.spares.iter().map(|_| None).collect();
        for (at, spare) in spares.iter_mut().enumerate() {
            if started.numbers.iter().all(|(_, place)| *place != first + at) {
                continue;
            }
            let image = self.spares[at].take().expect("it was examined");
            let mut member = Member::of_device(image, offset, started.missing_sectors);
            member.block_sectors = u64::from(self.block) / md::SECTOR_BYTES;
            member.log.clone_from(&started.bad_block_logs[first + at]);
            member.begin_cache();
            *spare = Some(member);
        }
        spares
    }

    /// The slots whose members get a new device as their replacement: they are in sync in every
    /// view.
    fn new_replacements(&mut self, others: u16, rng: &mut Rng) -> u16 {
        let slots = self.images.len();
        let views = self.crashed().views().to_vec();
        let is_fit = |at: &usize| {
            let is_asked = (self.replace & !others) >> at & 1 == 1;
            let is_sure = views.iter().all(|view| view.accepted.contains(at));
            is_asked && is_sure && self.replacements[*at].is_none()
        };
        let new: Vec<usize> = (0..slots).filter(is_fit).collect();
        for at in &new {
            // Not zero: what is not copied must be seen.
            self.replacements[*at] = Some(vec![rng.below(256) as u8 | 1; self.sizes[*at]]);
            self.recorded.retain(|other| *other != slots + at);
            self.replace &= !(1 << at);
        }
        new.iter().map(|at| 1 << at).sum()
    }

    /// Devices without a slot by their own superblocks are spares, wherever they are: one that was
    /// just being put in.
    pub(super) fn settle_spares(&mut self) {
        let slots = self.images.len();
        let images = self.images.iter().map(|image| Some(&image[..]));
        let images: Vec<Option<&[u8]>> =
            images.chain(self.replacements.iter().map(Option::as_deref)).collect();
        for place in spares_among(&images, self.block) {
            let image = match place.checked_sub(slots) {
                // Nothing is there any more.
                None => std::mem::replace(&mut self.images[place], vec![0; self.sizes[place]]),
                Some(slot) => self.replacements[slot].take().expect("it was examined"),
            };
            if place < slots && !self.recorded.contains(&place) {
                self.recorded.push(place);
            }
            // One that has left makes room.
            let free = self.spares.iter().position(Option::is_none).unwrap_or(0);
            self.spares[free] = Some(image);
        }
    }

    /// Replacements that the assembly takes for their slots have the slots' first places from now
    /// on. What is out of the array is gone.
    pub(super) fn settle_replacements(&mut self) {
        let slots = self.images.len();
        if self.replacements.iter().all(Option::is_none) {
            return;
        }
        let views = self.crashed().views().to_vec();
        let view = &views[0];
        for at in 0..slots {
            let second = slots + at;
            let is_taken = view.accepted.contains(&second)
                || view.partial.iter().any(|(device, _)| *device == second);
            if is_taken {
                let image = self.replacements[at].take().expect("the view has it");
                let former = std::mem::replace(&mut self.images[at], image);
                // Another device may have come to replace it.
                if view.replacements.iter().any(|(device, _)| *device == at) {
                    self.replacements[at] = Some(former);
                }
                self.recorded.retain(|other| *other != at && *other != second);
            } else if view.replacements.iter().all(|(device, _)| *device != second) {
                self.replacements[at] = None;
                self.recorded.retain(|other| *other != second);
            }
        }
    }

    fn live(
        mut self,
        scenario: &Scenario,
        started: assembly::Start,
        missing: Vec<usize>,
        shards: u16,
        rng: &mut Rng,
    ) -> Life {
        let members = self.members(&started);
        let spares = self.spares_in_use(&started);
        let assembly::Start {
            manager,
            geometry,
            missing: without,
            numbers,
            encoders,
            rebuilding: started_rebuilding,
            replacing: started_replacing,
            by_bitmap,
            log,
            ..
        } = started;
        let block = self.block as usize;
        let mut rebuilding = manager.rebuilding();
        if self.mutant == Some(Mutant::ReaddSkips) {
            let former = rebuilding.iter_mut().filter(|(at, _)| by_bitmap.contains(&at.index()));
            former.for_each(|(_, ranges)| ranges.truncate(ranges.len().saturating_sub(1)));
        }
        let superblocks_tear =
            encoders.iter().flatten().any(|encoder| encoder.superblock.encode(block).len() > block);
        let least = ShardConfig::least_stripe_cache_bytes(&geometry);
        // From a generator of their own, so that what else a seed decides stays as it was.
        let mut aside = rng.clone();
        let slots = geometry.members() as u64;
        let mut some = || match aside.one_in(3) {
            true => MemberSet::one(aside.below(slots) as u16),
            false => MemberSet::EMPTY,
        };
        let failfast = some();
        let config = ShardConfig {
            write_mostly: self.write_mostly.into_iter().collect(),
            failfast,
            missing: without,
            logical_block: self.block,
            // Small units, so that requests span shards.
            sharding: Sharding::with_least_unit(&geometry, shards, rng.pick(&[1, 64])),
            stripe_cache_bytes: rng.pick(&[least, 2 * least, 8 * least]),
            stripe_bytes_at_first: aside.pick(&[least, 3 * least, u64::MAX]),
            discard_zeroes: rng.one_in(2),
            max_requests: if shards == 1 { 64 } else { 1 << 10 },
            intents: manager.intent_map(),
            safe_mode_nanos: rng.pick(&[100_000, 1_000_000, DEFAULT_SAFE_MODE_NANOS]),
            in_sync_below: manager.in_sync_below(),
            out_of_sync: manager.out_of_sync(),
            missing_by_force: manager.missing_by_force(),
            rebuilding,
            replacing: manager.replacing(),
            partial_parity_log: log,
            merge_wait_nanos: rng.pick(&[0, 50_000]),
            ..ShardConfig::new(geometry)
        };
        let out_of_sync = manager.status().resync_offset.is_some();
        let rebuilding: Vec<usize> = started_rebuilding.iter().map(|(at, _)| *at).collect();
        let discard_zeroes = config.discard_zeroes;
        let mut world = World::of_members(config, members, rng.draw());
        world.delays = rng.pick(&[Delays::SPREAD, Delays::SPREAD, Delays::EVEN]);
        for member in world.members.iter_mut().filter(|member| member.gone_at.is_none()) {
            member.begin_cache();
        }
        world.spares = spares;
        world.next_tag = self.next_tag;
        world.mutant = self.mutant;
        world.model = self.legal.next_life(discard_zeroes);
        // What is missing may not have been in sync.
        let lacks = !missing.is_empty() || !rebuilding.is_empty();
        if out_of_sync && lacks && !self.tolerated.contains(&RequestError::Io) {
            self.tolerated.push(RequestError::Io);
        }
        world.model.tolerated.clone_from(&self.tolerated);
        let durable = self.legal.next_life(discard_zeroes);
        let (step, unit) = (rng.pick(&[8, 64, DEFAULT_RESYNC_STEP]), world.resync_unit());
        world.control_plane = Some({
            let geometry = world.geometry().clone();
            ControlPlane::new(manager, numbers, encoders, durable, geometry, step, unit)
        });
        if out_of_sync || !rebuilding.is_empty() || !started_replacing.is_empty() {
            world.feed_background();
            world.hand_over();
        }
        Life {
            world,
            offline: self,
            depth: usize::from(scenario.depth.max(1)),
            troubled: scenario.troubled,
            is_destroyed: false,
            superblocks_tear,
            missing,
            rebuilding,
        }
    }

    /// Starts the array once more, lets the engine resync it, stops it, and checks that nothing is
    /// marked or different any more.
    pub(crate) fn recover(self, scenario: &Scenario, rng: &mut Rng, tally: &mut Tally) {
        let shards = rng.pick(&[1, 2, 3]);
        let Some(mut life) = self.start(scenario, shards, 0, rng, tally) else { return };
        life.finish();
        let Some(mut after) = life.cut(rng, tally) else { return };
        after.began_out_of_sync = false;
        after.crashed().check();
        let all: Vec<Option<&[u8]>> = after.images.iter().map(|image| Some(&image[..])).collect();
        // Where nothing is left to be in sync with, no resync is needed, whatever the superblocks
        // say.
        let found = assembly::examine(&all, after.block);
        let array = assembly::assembled(&found, false).expect("it was started");
        let resync = array.read_write.repairs.resync;
        assert_eq!(resync, None, "the resync has passed everything, and one is still needed");
    }
}

/// The places of devices that are spares by their own superblocks.
pub(super) fn spares_among(images: &[Option<&[u8]>], block: u32) -> Vec<usize> {
    let found = assembly::examine(images, block).into_iter();
    let spares = found.filter(|found| found.is_whole && found.metadata.role == Role::Spare);
    spares.map(|found| found.device).collect()
}

/// Whether a member may have the copy that a resync reads: the first one of those that are not
/// lost. On RAID 10 the assembly supposes that every member has that of some sector.
fn has_first_copy(geometry: &Geometry, member: usize, lost: &[usize]) -> bool {
    match geometry.level() {
        Level::Raid1 => (0..member).all(|at| lost.contains(&at)),
        level => level == Level::Raid10,
    }
}

/// Whether some row of an array with parity lacks a data block.
fn lacks_data(geometry: &Geometry, accepted: &[usize]) -> bool {
    let Kind::Parity(parity) = geometry.kind() else { return false };
    let rows = (0..parity.stripes()).map(|stripe| parity.row(StripeNo(stripe)));
    rows.flat_map(|row| &row.data).any(|member| !accepted.contains(&member.index()))
}

/// Makes all redundancy wrong: every copy but the first that is not write-mostly, and all parity.
fn spoil(
    geometry: &Geometry,
    data_offsets: &[u64],
    images: &mut [Vec<u8>],
    write_mostly: Option<u16>,
    rng: &mut Rng,
) {
    let mut spoil = |member: MemberIdx, at: u64| {
        let from = (data_offsets[member.index()] + at) as usize * SECTOR;
        images[member.index()][from..from + SECTOR].fill(1 + rng.below(255) as u8);
    };
    match geometry.kind() {
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            for at in 0..geometry.array_sectors() {
                mirrored.locate(Sector(at), &mut copies);
                copies.sort_by_key(|copy| write_mostly == Some(copy.member.0));
                copies[1..].iter().for_each(|copy| spoil(copy.member, copy.sector.0));
            }
        }
        Kind::Parity(parity) => {
            for stripe in 0..parity.stripes() {
                let row = parity.row(StripeNo(stripe)).clone();
                for offset in 0..parity.chunk_sectors() {
                    let at = parity.member_sector(StripeNo(stripe), offset).0;
                    [Some(row.p), row.q].into_iter().flatten().for_each(|m| spoil(m, at));
                }
            }
        }
        Kind::Striped(_) => {}
    }
}
