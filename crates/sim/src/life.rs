//! Runs a scenario: one life of an array after the other, each ended by a power cut or a stop, with
//! a check of what is left; at the end the array is started, resynced, stopped and compared.
//!
//! Invariant: a finding is a panic. Every choice that the scenario leaves open comes from its seed,
//! from the action and from how many like it came before, so that the other actions of a shorter
//! scenario make the same choices.

mod faults;
mod offline;
mod scrub;

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{BadBlockLog, DeviceNumber, HostOp, MemberFlags, MetadataInput, RequestError};
use md::MemberIdx;
use md::assemble::Readdition;
use md::ondisk::MemberMetadata;
use md::ondisk::bad_blocks::BadBlocks;
use testkit::{Rng, mix};

use crate::assembly::{self, StartOptions};
use crate::crash_images::{Alike, Context, CrashImages, Hashes, View};
use crate::marks::Mark;
use crate::member::{Member, SECTOR};
use crate::mutant::Mutant;
use crate::scenario::{Action, Extent, Scenario};
use crate::tally::Tally;
use crate::world::{Bought, ControlPlane, World};
use offline::OfflineArray;

/// A life of the array.
pub(crate) struct Life {
    pub(crate) world: World,
    offline: OfflineArray,
    depth: usize,
    troubled: bool,
    /// More members are lost than the array can live without.
    is_destroyed: bool,
    /// The superblocks are longer than an atomic write.
    superblocks_tear: bool,
    /// Members that were missing at the start.
    missing: Vec<usize>,
    /// Members that were being rebuilt at the start.
    rebuilding: Vec<usize>,
}

/// Runs a scenario.
///
/// # Panics
/// When something is not as it should be, with what it is.
pub fn run(scenario: &Scenario) -> Tally {
    let mut tally = Tally::default();
    run_into(scenario, None, &mut tally);
    tally
}

/// Runs a scenario, with a planted bug or without, and counts what it has seen, also when it
/// panics.
///
/// # Panics
/// See [`run`].
pub fn run_into(scenario: &Scenario, mutant: Option<Mutant>, tally: &mut Tally) {
    let mut rng = Rng::new(scenario.seed);
    let offline = OfflineArray { mutant, ..OfflineArray::created(scenario, &mut rng) };
    let Some(mut life) = offline.start(scenario, scenario.shards.clamp(1, 8), 0, &mut rng, tally)
    else {
        panic!("a new array is refused");
    };
    let mut occurrences: BTreeMap<u64, u64> = BTreeMap::new();
    for action in &scenario.actions {
        // The choices of an action depend on itself, and on how many like it came before: a shorter
        // scenario makes the same ones for the others.
        let key = action_key(action);
        let number = occurrences.entry(key).or_default();
        *number += 1;
        let choice = mix(scenario.seed ^ *number << 32 ^ mix(key));
        let mut rng = Rng::new(choice);
        life.world.rng = Rng::new(rng.draw());
        tally.note(|| format!("{action}"));
        let (shards, without) = match *action {
            Action::Cut(shards, without) => (shards, without),
            Action::Stop(shards) => {
                life.stop();
                (shards, 0)
            }
            _ => {
                life.act(*action, &mut rng, tally);
                continue;
            }
        };
        let Some(offline) = life.cut(&mut rng, tally) else { return };
        let Some(next) = offline.start(scenario, shards.clamp(1, 8), without, &mut rng, tally)
        else {
            return;
        };
        life = next;
    }
    if rng.one_in(2) {
        life.drain();
    }
    let Some(offline) = life.cut(&mut rng, tally) else { return };
    offline.recover(scenario, &mut rng, tally);
}

/// A number that an action has wherever it stands.
fn action_key(action: &Action) -> u64 {
    action.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Life {
    /// The first life of a new array.
    pub(crate) fn of_new_array(scenario: &Scenario, rng: &mut Rng, tally: &mut Tally) -> Life {
        let offline = OfflineArray::created(scenario, rng);
        let life = offline.start(scenario, scenario.shards, 0, rng, tally);
        life.expect("a new array starts")
    }

    /// Stopped, and started again.
    pub(crate) fn restart(mut self, scenario: &Scenario, rng: &mut Rng) -> Life {
        self.stop();
        let tally = &mut Tally::default();
        let offline = self.cut(rng, tally).expect("it was stopped");
        offline.start(scenario, scenario.shards, 0, rng, tally).expect("it was stopped clean")
    }

    /// Whether as many requests as the scenario permits are in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.world.host_requests() >= self.depth || self.world.room() == 0
    }

    /// A number that changes with what the array may hold after a power cut.
    pub(crate) fn model_version(&self) -> u64 {
        (self.world.completed.len() as u64) << 32 | self.world.next_tag
    }

    pub(crate) fn act(&mut self, action: Action, rng: &mut Rng, tally: &mut Tally) {
        let zeroes = Extent(0, 0);
        match action {
            Action::Read(extent) => self.request(HostOp::Read, extent),
            Action::Write(extent) => self.request(HostOp::Write { fua: false }, extent),
            Action::WriteFua(extent) => self.request(HostOp::Write { fua: true }, extent),
            Action::WriteZeroes(extent) => self.request(HostOp::WriteZeroes, extent),
            Action::Discard(extent) => self.request(HostOp::Discard, extent),
            Action::Flush => self.request(HostOp::Flush, zeroes),
            Action::Step(count) => {
                for _ in 0..count {
                    self.world.step();
                }
            }
            Action::Idle(nanos) => {
                let until = self.world.now + nanos;
                while self.world.next_event().is_some_and(|at| at <= until) {
                    self.world.step();
                }
                self.world.now = self.world.now.max(until);
            }
            Action::Cancel => self.world.cancel_background(),
            Action::Begin => self.world.begin_background(),
            Action::ReadAll => self.read_all(),
            Action::Check => self.check(),
            Action::Corrupt(member, extent) => {
                tally.faults += u64::from(self.corrupt(member, extent));
            }
            Action::Join(member) => self.join(member, rng),
            Action::JoinReplace(member) => self.join_replacement(member, rng),
            Action::Readd(member) => self.put_back(member, rng),
            Action::AddSpare => self.add_spare(rng),
            Action::Remove(index) => self.remove(index),
            Action::CancelReplace(member) => {
                let slot = usize::from(member) % self.world.geometry().members();
                let member = MemberIdx(slot as u16);
                self.world.control_plane().input(MetadataInput::CancelReplacement { member });
                self.world.hand_over();
            }
            Action::Add(member) => {
                self.offline.add |= 1 << (usize::from(member) % self.world.geometry().members());
            }
            Action::Replace(member) => {
                self.offline.replace |=
                    1 << (usize::from(member) % self.world.geometry().members());
            }
            Action::Cut(..) | Action::Stop(_) => unreachable!("they end the life"),
            fault => tally.faults += u64::from(self.fault(fault, rng)),
        }
    }

    fn request(&mut self, op: HostOp, Extent(at, sectors): Extent) {
        while self.is_full() {
            assert!(self.world.step(), "nothing is in flight, but the queue is full");
        }
        // In blocks.
        let block = u64::from(self.offline.block) / md::SECTOR_BYTES;
        let size = self.world.geometry().array_sectors() / block * block;
        let (at, sectors) = (at / block * block, sectors.next_multiple_of(block));
        if op == HostOp::Flush {
            self.world.submit(op, 0, 0);
        } else if sectors > 0 && at < size {
            self.world.submit(op, at, sectors.min(size - at));
        }
    }

    /// Everything is read once, and compared with the model.
    fn read_all(&mut self) {
        let size = self.world.geometry().array_sectors();
        for at in (0..size).step_by(64) {
            self.request(HostOp::Read, Extent(at, 64));
        }
    }

    /// Buys a device for the slot of a lost member, and offers it to the metadata manager.
    fn join(&mut self, member: u16, rng: &mut Rng) {
        self.note_replaced();
        let at = usize::from(member) % self.world.geometry().members();
        let is_awaited = self.world.is_awaited(at);
        let is_lost = self.offline.lost.contains(&at) && !self.rebuilding.contains(&at);
        if !is_lost || is_awaited || self.is_destroyed || !self.offline.numbers_stay {
            return;
        }
        let (number, member) = (self.next_number(), MemberIdx(at as u16));
        if self.control_plane().manager.may_join(number, member).is_err() {
            return;
        }
        let (bought, flags) = self.buy(number, at, rng);
        self.world.bought.push(bought);
        let former = None;
        self.world.control_plane().input(MetadataInput::Join { number, member, flags, former });
        self.hand_over(number);
    }

    /// Has a failed member leave the array. One that has left comes back as it is, after a power
    /// cut of its own, and lacks what the bitmap marks.
    fn put_back(&mut self, member: u16, rng: &mut Rng) {
        self.note_replaced();
        let at = usize::from(member) % self.world.geometry().members();
        let is_awaited = self.world.is_awaited(at);
        let is_lost = self.offline.lost.contains(&at) && !self.rebuilding.contains(&at);
        let is_here = !self.missing.contains(&at);
        if !is_lost || !is_here || is_awaited || self.is_destroyed || !self.offline.numbers_stay {
            return;
        }
        let mut former = self.world.members[at].clone();
        let (offset, used, log) =
            (self.offline.data_offsets[at], former.data_sectors(), former.log.clone());
        let mut image = former.cut(rng);
        let found = assembly::examine(&[Some(&image)], self.offline.block);
        let Some(found) = found.first().filter(|found| found.is_whole) else { return };
        let (slot, number) = (MemberIdx(at as u16), DeviceNumber(found.metadata.dev_number));
        let control_plane = self.control_plane();
        let devices = control_plane.manager.devices();
        let may_leave = control_plane.manager.may_remove(number).is_ok();
        if devices.iter().any(|it| it.number == number) && may_leave && !rng.one_in(3) {
            self.world.control_plane().input(MetadataInput::Remove { number });
            return self.world.hand_over();
        }
        let number = control_plane.manager.free_number();
        let serves = |it: &&engine::DeviceStatus| {
            it.condition == engine::DeviceCondition::InSync && !it.replaces
        };
        let serving = devices.iter().filter(serves);
        let serving: Vec<(MemberIdx, u32)> =
            serving.filter_map(|it| Some((it.slot?, it.number.0))).collect();
        let defining = control_plane.defining();
        let readdition = Readdition { defining: &defining, serving: &serving };
        let events = found.metadata.events;
        let may = readdition.former_slot(&found.candidate) == Some(slot)
            && events <= control_plane.manager.status().events
            && control_plane.manager.bitmap_covers(events)
            && log.as_ref().is_none_or(BadBlockLog::is_empty)
            && control_plane.manager.may_join(number, slot).is_ok();
        if !may {
            return;
        }
        let encoder = control_plane.encoder(number.0, found.superblock.clone());
        // From now on no start takes it for a member in sync.
        let marked = found.superblock.recovering_by_bitmap().encode(self.offline.block as usize);
        let begin = found.superblock.sector() as usize * SECTOR;
        let MemberMetadata { write_mostly, failfast, .. } = found.metadata;
        image[begin..begin + marked.len()].copy_from_slice(&marked);
        let mut device = Member::of_device(image, offset, used);
        device.block_sectors = u64::from(self.offline.block) / md::SECTOR_BYTES;
        device.log = log;
        let flags = MemberFlags { write_mostly, failfast };
        self.world.bought.push(Bought { number: number.0, place: at, device, encoder });
        let (member, former) = (slot, Some(events));
        self.world.control_plane().input(MetadataInput::Join { number, member, flags, former });
        self.hand_over(number);
    }

    /// Buys a device that is to replace a member which serves, or takes a spare.
    fn join_replacement(&mut self, member: u16, rng: &mut Rng) {
        self.note_replaced();
        let slots = self.world.geometry().members();
        let slot = usize::from(member) % slots;
        let member = MemberIdx(slot as u16);
        let may = self.control_plane().manager.may_replace(member).is_ok();
        let is_awaited = self.world.is_awaited(slot);
        if !may || is_awaited || self.is_destroyed || !self.offline.numbers_stay {
            return;
        }
        let Some(place) = self.world.free_place(slot) else { return };
        // A write for which the member has no space drops the replacement, which may have the slot
        // by then.
        let at = self.world.shard.place_of(member).index();
        if !self.world.members[at].full.is_empty() {
            if !self.may_lose(slot) {
                return;
            }
            self.lose(slot);
        }
        let flags = match self.world.free_spare() {
            Some(number) => {
                self.world.coming.push((number, place));
                (DeviceNumber(number), MemberFlags::default())
            }
            None => {
                let number = self.next_number();
                let (bought, flags) = self.buy(number, place, rng);
                self.world.bought.push(bought);
                (number, flags)
            }
        };
        let (number, flags) = flags;
        self.world.control_plane().input(MetadataInput::Replace { number, member, flags });
        self.hand_over(number);
    }

    /// Buys a device that is to be a spare; now and then it is gone at once.
    fn add_spare(&mut self, rng: &mut Rng) {
        self.note_replaced();
        let number = self.next_number();
        let may = self.control_plane().manager.may_add_spare(number).is_ok();
        let is_kept = |at: usize| self.offline.spares[at].is_some();
        let place = self.world.place_for_spare(is_kept);
        let Some(place) = place.filter(|_| may && !self.is_destroyed && self.offline.numbers_stay)
        else {
            return;
        };
        let (mut bought, flags) = self.buy(number, place, rng);
        if rng.one_in(12) {
            bought.device.gone_at = Some(self.world.now);
        }
        self.offline.spares[place - 2 * self.world.geometry().members()] = None;
        self.world.put_spare(bought);
        self.world.control_plane().input(MetadataInput::AddSpare { number, flags });
        self.world.hand_over();
    }

    /// Has a failed device or a spare leave the array.
    fn remove(&mut self, index: u16) {
        let manager = &self.control_plane().manager;
        let devices = manager.devices().into_iter().map(|device| device.number);
        let may = devices.filter(|number| manager.may_remove(*number).is_ok());
        let may: Vec<DeviceNumber> = may.collect();
        if may.is_empty() {
            return;
        }
        let number = may[usize::from(index) % may.len()];
        self.world.control_plane().input(MetadataInput::Remove { number });
        self.world.hand_over();
    }

    /// The number of the next device.
    fn next_number(&mut self) -> DeviceNumber {
        self.control_plane().manager.free_number()
    }

    /// Hands over what a device was bought for. One that the metadata manager has not taken goes
    /// back.
    fn hand_over(&mut self, number: DeviceNumber) {
        self.world.hand_over();
        let devices = self.control_plane().manager.devices();
        let is_taken = |it: &engine::DeviceStatus| {
            it.number == number && it.condition != engine::DeviceCondition::Failed
        };
        if !devices.iter().any(is_taken) {
            self.world.bought.retain(|it| it.number != number.0);
            self.world.coming.retain(|(other, _)| *other != number.0);
        }
    }

    /// A blank device for a place; with its flags.
    fn buy(
        &mut self,
        number: DeviceNumber,
        place: usize,
        rng: &mut Rng,
    ) -> (Bought, engine::MemberFlags) {
        if self.world.has_left.contains(&number.0) {
            self.world.marks.reach(Mark::NumberGivenAgain);
        }
        let slots = self.world.geometry().members();
        let at = place % slots;
        let (bytes, offset) = (self.offline.sizes[at], self.offline.data_offsets[at]);
        let used = self.world.members[at].data_sectors();
        let mut blank = vec![rng.below(256) as u8 | 1; bytes];
        self.offline.prepare_log(&mut blank);
        let mut device = Member::of_device(blank, offset, used);
        device.block_sectors = u64::from(self.offline.block) / md::SECTOR_BYTES;
        // From a generator of its own, so that what else a seed decides stays as it was.
        let id = rng.clone().draw();
        let encoder = self.control_plane().joining(number.0, (bytes / SECTOR) as u64, id);
        let log = encoder.superblock.metadata().bad_blocks;
        device.log = log.map(|log| BadBlockLog::new(BadBlocks::new(), log, offset));
        let MemberMetadata { write_mostly, failfast, .. } = encoder.superblock.metadata();
        let flags = engine::MemberFlags { write_mostly, failfast };
        if failfast && place < 2 * slots {
            self.world.failfast.insert(at as u16);
        }
        (Bought { number: number.0, place, device, encoder }, flags)
    }

    /// Takes account of devices that were put into slots.
    pub(crate) fn note_replaced(&mut self) {
        for (at, replaces) in std::mem::take(&mut self.world.replaced) {
            self.offline.recorded.retain(|other| *other != at);
            if replaces {
                continue;
            }
            self.missing.retain(|other| *other != at);
            if !self.rebuilding.contains(&at) {
                self.rebuilding.push(at);
            }
        }
    }

    /// Heals what can be healed.
    fn heal(&mut self) {
        for member in &mut self.world.members {
            member.bad.clear();
            member.flaky.clear();
            member.full = 0..0;
            member.metadata_full = false;
            member.slowness = 0;
            member.hangs_at = None;
        }
    }

    /// Lets the requests of hosts come to an end.
    fn drain(&mut self) {
        while self.world.host_requests() > 0 {
            assert!(self.world.step(), "a request never completes");
        }
    }

    /// Lets the requests of hosts come to an end, and stops the array: also in the middle of a
    /// resync, or of one that is stalled for good.
    fn stop(&mut self) {
        self.heal();
        self.drain();
        // Ranges of a resync are given up.
        self.world.model.tolerated.push(RequestError::ReadOnly);
        self.world.control_plane().input(MetadataInput::Stop);
        self.world.hand_over();
        while self.world.control_plane().stopped().is_none() {
            assert!(self.world.step(), "the array never stops");
        }
    }

    /// Writes all that bad-block logs list, which takes it out of them.
    fn write_listed(&mut self) {
        let slots = self.world.geometry().members();
        let mut extents = Vec::new();
        for (at, member) in self.serving() {
            for sector in member.log.iter().flat_map(|log| log.listed()).flatten() {
                let slot = MemberIdx((at % slots) as u16);
                extents.extend(self.world.extent_of(slot, sector));
            }
        }
        if extents.is_empty() {
            return;
        }
        extents.sort_unstable();
        extents.dedup();
        for (at, sectors) in extents {
            self.request(HostOp::Write { fua: false }, Extent(at, sectors));
        }
        self.drain();
        self.request(HostOp::Flush, Extent(0, 0));
        self.drain();
    }

    /// The members in service, by place.
    fn serving(&self) -> impl Iterator<Item = (usize, &Member)> {
        let shard = &self.world.shard;
        let members = self.world.members.iter().enumerate();
        members.filter(|(at, _)| shard.is_in_service(MemberIdx(*at as u16)))
    }

    /// Lets everything come to an end, and stops the array.
    fn finish(&mut self) {
        self.heal();
        // What is listed as bad would hold up a resync. What is being rebuilt keeps its entries
        // until it is, or gets more.
        self.write_listed();
        self.world.quiesce();
        self.write_listed();
        self.world.quiesce();
        let mut logs = self.serving().flat_map(|(_, member)| &member.log);
        let is_listed = logs.any(|log| !log.is_empty());
        drop(logs);
        assert!(!is_listed, "written, and still listed as bad");
        let status = self.control_plane().manager.status();
        let may_stall = self.world.model.tolerated.contains(&RequestError::Io);
        assert!(
            status.rebuilding.union(status.replacing).is_empty() || may_stall,
            "a rebuild never ends: {:?} and {:?} of {:?}",
            status.rebuilding,
            status.replacing,
            status.rebuild_sectors
        );
        let devices = self.control_plane().manager.devices();
        let serves = |slot: usize| {
            let slot = Some(MemberIdx(slot as u16));
            devices.iter().any(|it| {
                it.slot == slot && !it.replaces && it.condition != engine::DeviceCondition::Failed
            })
        };
        let empty = (0..self.world.geometry().members()).find(|slot| !serves(*slot));
        if let Some(slot) = empty.filter(|_| status.mode == engine::MetadataMode::Running) {
            let spare = self.world.free_spare();
            assert_eq!(spare, None, "slot {slot} is empty, and a spare waits");
        }
        self.stop();
        self.world.quiesce();
        assert_eq!(self.world.control_plane().stopped(), Some(true), "the array stops clean");
    }

    /// The power fails. `None`: at a named exemption.
    fn cut(mut self, rng: &mut Rng, tally: &mut Tally) -> Option<OfflineArray> {
        self.note_replaced();
        tally.crashes += 1;
        tally.requests += self.world.completed.len() as u64;
        tally.operations += self.world.operations_done();
        tally.marks.add(&self.world.marks);
        tally.marks.add(&self.control_plane().marks);
        if self.is_destroyed {
            tally.destroyed += 1;
            self.drain();
            let images = self.world.images_after_cut(rng);
            let slots = self.offline.images.len();
            // Spares, too. A replacement is none of the slots' devices any more.
            let is_there = |at: usize| !(slots..2 * slots).contains(&at) && !images[at].is_empty();
            let there = (0..images.len()).map(|at| is_there(at).then_some(&images[at][..]));
            let mut images: Vec<Option<&[u8]>> = there.collect();
            for at in offline::spares_among(&images[..slots], self.offline.block) {
                images[at] = None;
            }
            // Whatever is there: a start, or a refusal.
            let (shards, checkpoint_nanos, force) = (1, 1, true);
            let options = StartOptions {
                shards,
                checkpoint_nanos,
                bits_ahead_nanos: 0,
                force,
                add: 0,
                readd: 0,
                replace: 0,
            };
            let _ = assembly::start(&images, self.offline.block, options);
            return None;
        }
        let mut images = self.world.images_after_cut(rng);
        self.add_missing(&mut images);
        tally.note(|| {
            format!("power cut leaves\n{}", assembly::describe(&images, self.offline.block))
        });
        let offline = self.offline_with(images);
        tally.exemptions += u64::from(offline.is_none());
        offline
    }

    fn control_plane(&self) -> &ControlPlane {
        self.world.control_plane.as_ref().expect("it has metadata")
    }

    /// Checks what a power cut leaves on the devices; returns its event count. `None`: a named
    /// exemption.
    pub(crate) fn check_images(&self, images: &[Vec<u8>]) -> Option<u64> {
        let (images, recorded) = (self.images_of(images), self.recorded());
        let context = self.context(&recorded);
        self.check_crashed(&CrashImages::new(images, &self.offline.data_offsets, context))
    }

    /// The same of images that differ from others in a few sectors.
    pub(crate) fn check_alike(
        &self,
        alike: &Alike,
        hashes: Hashes,
        images: &[Vec<u8>],
    ) -> Option<u64> {
        let (images, recorded) = (self.images_of(images), self.recorded());
        let (context, offsets) = (self.context(&recorded), &self.offline.data_offsets);
        self.check_crashed(&CrashImages::beside(alike, hashes, images, offsets, context))
    }

    /// Sectors of a device that are no metadata.
    pub(crate) fn data_of(&self, device: usize) -> Range<u64> {
        let geometry = &self.offline.geometry;
        let slot = device % geometry.members();
        let used = geometry.member_used_sectors(MemberIdx(slot as u16));
        let offset = self.offline.data_offsets[slot];
        offset..offset + used
    }

    fn images_of<'a>(&'a self, images: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        let image = |at: usize| match self.missing.contains(&at) && at < images.len() {
            true => &self.offline.images[at][..],
            false => &images[at][..],
        };
        (0..images.len()).map(image).collect()
    }

    fn check_crashed(&self, crashed: &CrashImages<'_>) -> Option<u64> {
        let recorded = self.recorded();
        let torn = crashed.torn();
        // Of members that fail, superblocks may have failed half-way.
        let serving = torn.iter().filter(|at| !self.offline.lost.contains(at));
        assert!(serving.count() <= 1, "superblocks are torn on several devices: {torn:?}");
        let left = |member: MemberIdx| {
            let at = member.index();
            let is_out = self.missing.contains(&at) || self.rebuilding.contains(&at);
            !torn.contains(&at) && !recorded.contains(&at) && !is_out
        };
        let is_enough = |view: &View| {
            let slots = self.offline.geometry.members();
            let has = |member: MemberIdx| {
                view.accepted.iter().any(|device| device % slots == member.index())
            };
            self.offline.geometry.enough(has)
        };
        let is_enough = self.offline.geometry.enough(left) && crashed.views().iter().all(is_enough);
        if !torn.is_empty() && !is_enough {
            // Writing superblocks in turn loses one at most, and here that is one too many, as in
            // md.
            return None;
        }
        crashed.check();
        self.check_former(crashed);
        let (events, before) = (crashed.events(), self.offline.events);
        // An array that becomes clean takes the last step back, as md does.
        assert!(events + 1 >= before, "events go back from {before} to {events}");
        Some(events)
    }

    /// Devices that are not in the array any more are stale by any rule: those that were taken out,
    /// and those that have left and are still there.
    fn check_former(&self, crashed: &CrashImages<'_>) {
        let (events, taken_out) =
            (crashed.events(), self.world.taken_out.max(self.offline.taken_out));
        assert!(
            taken_out == 0 || taken_out + 1 < events,
            "a device that was taken out has event count {taken_out}, and the array {events}"
        );
    }

    fn context<'a>(&'a self, recorded: &'a [usize]) -> Context<'a> {
        Context {
            geometry: &self.offline.geometry,
            has_bitmap: self.offline.has_bitmap,
            has_log: self.offline.has_log,
            in_doubt: &self.offline.in_doubt,
            block: self.offline.block,
            legal: &self.control_plane().durable,
            began_out_of_sync: self.offline.began_out_of_sync,
            write_mostly: self.offline.write_mostly,
            lost: recorded,
        }
    }

    /// What is left if these are the images of all devices.
    fn crashed_with<'a>(&'a self, images: &'a [Vec<u8>], recorded: &'a [usize]) -> CrashImages<'a> {
        let images = images.iter().map(|image| &image[..]).collect();
        CrashImages::new(images, &self.offline.data_offsets, self.context(recorded))
    }

    /// Whether redundancy is in doubt.
    fn is_resyncing(&self) -> bool {
        self.control_plane().manager.status().resync_offset.is_some()
    }

    /// Members whose loss is on record.
    fn recorded(&self) -> Vec<usize> {
        let mut recorded = self.offline.recorded.clone();
        for lost in self.world.recorded_losses() {
            if !recorded.contains(lost) {
                recorded.push(*lost);
            }
        }
        recorded
    }

    /// The images of members that were missing in this life are as the last one left them.
    fn add_missing(&self, images: &mut Vec<Vec<u8>>) {
        for at in &self.missing {
            images[*at].clone_from(&self.offline.images[*at]);
        }
        let first = 2 * self.offline.images.len();
        for (at, image) in self.offline.spares.iter().enumerate() {
            let Some(image) = image.as_ref().filter(|_| self.world.spares[at].is_none()) else {
                continue;
            };
            if images.len() <= first + at {
                images.resize(first + at + 1, Vec::new());
            }
            images[first + at].clone_from(image);
        }
    }

    /// What is known of the array if the power cut leaves these images, after every check. `None`:
    /// a named exemption.
    pub(crate) fn offline_with(&self, mut images: Vec<Vec<u8>>) -> Option<OfflineArray> {
        let events = self.check_images(&images)?;
        self.add_missing(&mut images);
        let mut legal = self.control_plane().durable.clone();
        let mut in_doubt = self.offline.in_doubt.clone();
        if self.offline.has_log {
            in_doubt.extend(legal.unsettled());
        }
        self.crashed_with(&images, &self.recorded()).narrow(&mut legal);
        let mut others = images.split_off(self.offline.images.len()).into_iter();
        let there = |image: Option<Vec<u8>>| image.filter(|image| !image.is_empty());
        let mut next = || images.iter().map(|_| there(others.next())).collect();
        let (replacements, spares) = (next(), next());
        let mut offline = OfflineArray {
            geometry: self.offline.geometry.clone(),
            has_bitmap: self.offline.has_bitmap,
            has_log: self.offline.has_log,
            empty_log: self.offline.empty_log.clone(),
            in_doubt,
            images,
            block: self.offline.block,
            data_offsets: self.offline.data_offsets.clone(),
            legal,
            began_out_of_sync: self.offline.began_out_of_sync,
            write_mostly: self.offline.write_mostly,
            lost: self.offline.lost.clone(),
            recorded: self.recorded(),
            events,
            tolerated: self.offline.tolerated.clone(),
            next_tag: self.world.next_tag,
            mutant: self.offline.mutant,
            add: self.offline.add,
            numbers_stay: self.offline.numbers_stay,
            sizes: self.offline.sizes.clone(),
            rebuilding: self.rebuilding.clone(),
            replace: self.offline.replace,
            replacements,
            spares,
            taken_out: self.world.taken_out.max(self.offline.taken_out),
        };
        offline.settle_spares();
        offline.settle_replacements();
        Some(offline)
    }
}

impl World {
    /// Operations of members so far.
    fn operations_done(&self) -> u64 {
        let counts = self.members.iter().map(|member| member.counts);
        let data: u64 =
            counts.map(|it| it.reads + it.writes + it.flushes + it.discards + it.zeroes).sum();
        data + self.control_plane.as_ref().map_or(0, ControlPlane::operations_issued)
    }

    /// What a power cut leaves on the devices, now that it comes: all that is durable, any part of
    /// what is in their caches, and any blocks of what is on its way.
    fn images_after_cut(&mut self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let mut images: Vec<Vec<u8>> =
            self.members.iter_mut().map(|member| member.cut(rng)).collect();
        if self.spares.iter().any(Option::is_some) {
            images.resize(2 * self.geometry().members(), Vec::new());
            let spares = self.spares.iter_mut();
            images.extend(spares.map(|spare| spare.as_mut().map_or(vec![], |it| it.cut(rng))));
        }
        let mut apply = |device: usize, first: u64, bytes: &[u8]| {
            let block = self.device(device).block_sectors as usize * SECTOR;
            for (at, bytes) in (first as usize * SECTOR..).step_by(block).zip(bytes.chunks(block)) {
                if rng.one_in(2) {
                    images[device][at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        };
        for (device, first, bytes) in self.writes_in_flight() {
            apply(device, first, &bytes);
        }
        let control_plane = self.control_plane.iter();
        for (device, first, bytes) in control_plane.flat_map(|it| it.writes_in_flight(self)) {
            apply(device, first, bytes);
        }
        images
    }
}
