//! The control plane of an array with metadata: the metadata manager, what encodes and writes its
//! records, and the loop of resyncs.
//!
//! Invariant: a record is on a device only when its time has come, and durable before its
//! completion is reported; operations of one device are performed in the order of their
//! submission. Records go through md's codecs, as `array` writes them.

use engine::{
    BackgroundEffect, BackgroundLoop, BackgroundRange, BackgroundRun, BackgroundState,
    BackgroundWork, ControlEvent, DeviceNumber, HostOp, IoError, MemberError, MetaToken,
    MetadataEffect, MetadataInput, MetadataManager, Record, RequestError, UpdateTimes,
};
use md::ondisk::superblock::Superblock;
use md::ondisk::{Area, MemberMetadata, MetadataEncoder, Timestamp, Uuid, Write};

use super::World;
use super::joins::Ordered;
use crate::marks::{Mark, Marks};
use crate::member::SECTOR;
use crate::model::Model;
use crate::mutant::Mutant;
use crate::request::LiveRequest;

/// A metadata write, or a flush, in flight.
struct MetadataOperation {
    issued: u64,
    ready_at: u64,
    sequence: u64,
    token: MetaToken,
    device: usize,
    /// (first sector of the device, bytes); none: a flush.
    writes: Vec<(u64, Vec<u8>)>,
    /// Member writes completed when it was submitted: its flush covers no later ones.
    covers: u64,
}

/// Ranges of a flush and the writes that it covers.
#[derive(Clone, Copy)]
struct Acknowledged {
    tag: u64,
    at: u64,
    sectors: u64,
}

/// See the module documentation.
pub struct ControlPlane {
    /// The metadata manager.
    pub manager: MetadataManager,
    /// What a power cut may leave in the array.
    pub durable: Model,
    /// Places whose metadata operations never complete: a power cut leaves any part of them.
    pub hanging: Vec<usize>,
    /// Effects that are for the administrator.
    pub reports: Vec<MetadataEffect>,
    /// States of resyncs that were reached.
    pub(crate) marks: Marks,
    /// By place; `None`: missing.
    encoders: Vec<Option<MetadataEncoder>>,
    /// Number and place of each device of the array that has one.
    numbers: Vec<(u32, usize)>,
    /// The resyncs and the rebuilds, by their turn.
    loops: [BackgroundLoop; 2],
    inputs: Vec<MetadataInput>,
    operations: Vec<MetadataOperation>,
    /// Of the last operation, by place: when it takes place.
    last: Vec<u64>,
    sequence: u64,
    times: UpdateTimes,
    timer: Option<u64>,
    acknowledged: Vec<Acknowledged>,
    /// Flushes in flight, and how many of `acknowledged` each covers.
    flushes: Vec<(u64, usize)>,
    /// Ranges of the resync and of rebuilds in flight, by tag.
    ranges: Vec<(u64, BackgroundRange)>,
}

impl ControlPlane {
    /// `step`: most positions of a range of the resync; `unit`: positions that belong to one shard.
    pub fn new(
        manager: MetadataManager,
        numbers: Vec<(u32, usize)>,
        encoders: Vec<Option<MetadataEncoder>>,
        durable: Model,
        geometry: md::Geometry,
        step: u64,
        unit: u64,
    ) -> ControlPlane {
        ControlPlane {
            manager,
            durable,
            hanging: Vec::new(),
            reports: Vec::new(),
            marks: Marks::default(),
            last: vec![0; encoders.len()],
            encoders,
            numbers,
            loops: [HostOp::Resync, HostOp::Rebuild]
                .map(|op| BackgroundLoop::new(op, geometry.clone(), step, unit)),
            inputs: Vec::new(),
            operations: Vec::new(),
            sequence: 0,
            times: UpdateTimes::default(),
            timer: None,
            acknowledged: Vec::new(),
            flushes: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// Whether metadata operations of a device are in flight.
    pub(super) fn is_used(&self, device: usize) -> bool {
        self.operations.iter().any(|op| op.device == device)
    }

    /// A new device has a place, or a device another one than before: `from`.
    pub(super) fn set_place(&mut self, place: usize, encoder: MetadataEncoder, from: usize) {
        let number = encoder.number;
        // A spare that has left in the meantime has none any more.
        let has_number = from == place || self.place_of(number) == Some(from);
        self.numbers.retain(|(other, at)| *at != place && (!has_number || *other != number));
        if has_number {
            self.numbers.push((number, place));
        }
        self.encoders[place] = Some(encoder);
        self.hanging.retain(|other| *other != place);
        for operation in self.operations.iter_mut().filter(|operation| operation.device == from) {
            operation.device = place;
        }
        self.last[place] = self.last[place].max(self.last[from]);
    }

    /// What keeps the metadata of the device at a place, which it is to have no more.
    pub(super) fn take_encoder(&mut self, place: usize) -> MetadataEncoder {
        self.encoders[place].take().expect("the device has metadata")
    }

    /// A device has left: nothing more is written to it. Returns its place.
    pub(super) fn forget_number(&mut self, number: u32) -> Option<usize> {
        let place = self.place_of(number);
        self.numbers.retain(|(other, _)| *other != number);
        place
    }

    /// The place of a device of the array.
    pub(super) fn place_of(&self, number: u32) -> Option<usize> {
        let mine = self.numbers.iter().find(|(other, _)| *other == number);
        mine.map(|(_, place)| *place)
    }

    /// Whether the device at a place is one of the array.
    pub(crate) fn has_place(&self, place: usize) -> bool {
        self.numbers.iter().any(|(_, at)| *at == place)
    }

    /// What keeps the metadata of a new device.
    pub(crate) fn joining(&self, number: u32, sectors: u64, id: u64) -> MetadataEncoder {
        let like = &self.some_encoder().superblock;
        self.encoder(number, crate::assembly::joining(like, number, sectors, id))
    }

    /// What keeps the metadata of a device that has this number from now on.
    pub(crate) fn encoder(&self, number: u32, superblock: Superblock) -> MetadataEncoder {
        let like = self.some_encoder();
        let metadata = superblock.metadata();
        MetadataEncoder {
            number,
            logical_block: like.logical_block,
            bitmap: metadata.bitmap.zip(like.bitmap.as_ref().map(|(_, header)| header.clone())),
            ppl: metadata.log_area,
            superblock,
        }
    }

    /// The metadata of some device, as at the start.
    pub(crate) fn defining(&self) -> MemberMetadata {
        self.some_encoder().superblock.metadata()
    }

    fn some_encoder(&self) -> &MetadataEncoder {
        self.encoders.iter().flatten().next().expect("some device has metadata")
    }

    /// The area of a device's partial parity log, and the array.
    pub(super) fn log_of(&self, device: usize) -> (Area, Uuid) {
        let encoder = self.encoders[device].as_ref().expect("the device has metadata");
        (encoder.ppl.expect("it has a log"), encoder.superblock.metadata().set_uuid)
    }

    /// Adds an input of the metadata manager to its next batch.
    pub fn input(&mut self, input: MetadataInput) {
        self.inputs.push(input);
    }

    pub(super) fn event(&mut self, shard: u16, event: ControlEvent) {
        self.inputs.push(MetadataInput::FromShard { shard, event });
    }

    pub(super) fn submitted(&mut self, tag: u64, op: HostOp, at: u64, sectors: u64) {
        if op == HostOp::Flush {
            self.flushes.push((tag, self.acknowledged.len()));
        } else if op != HostOp::Read {
            self.durable.submit(tag, op, at, sectors);
        }
    }

    pub(super) fn completed(
        &mut self,
        now: u64,
        live: &LiveRequest,
        result: Result<(), RequestError>,
    ) {
        let LiveRequest { tag, op, at, sectors, .. } = *live;
        match op {
            HostOp::Flush => {
                let mine = self.flushes.iter().position(|(flush, _)| *flush == tag);
                let (_, covers) = self.flushes.remove(mine.expect("submitted before"));
                if result.is_err() {
                    return;
                }
                self.settle(covers);
                for (_, other) in &mut self.flushes {
                    *other = other.saturating_sub(covers);
                }
            }
            HostOp::Write { fua: true } if result.is_ok() => {
                self.durable.settle(tag, at, sectors);
            }
            HostOp::Write { .. } | HostOp::WriteZeroes if result.is_ok() => {
                self.acknowledged.push(Acknowledged { tag, at, sectors });
            }
            HostOp::Resync | HostOp::Rebuild => self.range_done(now, tag, result),
            _ => {}
        }
    }

    /// The first of the acknowledged writes are durable.
    fn settle(&mut self, count: usize) {
        for Acknowledged { tag, at, sectors } in self.acknowledged.drain(..count) {
            self.durable.settle(tag, at, sectors);
        }
    }

    fn range_done(&mut self, now: u64, tag: u64, result: Result<(), RequestError>) {
        let mine = self.ranges.iter().position(|(of, _)| *of == tag);
        // A planted bug has reported it already.
        let Some(mine) = mine else { return };
        let (_, range) = self.ranges.swap_remove(mine);
        let (work, mut effects) = (BackgroundWork::of(range.op), Vec::new());
        self.loops[work.turn()].done(now, range, result, &mut effects);
        self.report(work, effects);
    }

    fn report(&mut self, work: BackgroundWork, effects: Vec<BackgroundEffect>) {
        for effect in effects {
            self.marks.background(work, &effect);
            if let BackgroundEffect::Report(input) = effect {
                self.inputs.push(input);
            }
        }
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        let retry = self.loops.iter().filter_map(BackgroundLoop::deadline).min();
        let moving = self.operations.iter().filter(|op| !self.hanging.contains(&op.device));
        moving.map(|op| op.ready_at).chain(self.timer).chain(retry).min()
    }

    /// Metadata writes in flight, in their order: (place, first sector of the device, bytes). A
    /// device that is gone gets no more writes.
    pub(crate) fn writes_in_flight<'a>(
        &'a self,
        world: &'a World,
    ) -> impl Iterator<Item = (usize, u64, &'a [u8])> {
        let operations = self.operations.iter();
        let operations = operations.filter(|op| !world.device(op.device).is_gone(op.issued));
        operations.flat_map(|op| op.writes.iter().map(|(at, bytes)| (op.device, *at, &bytes[..])))
    }

    /// Metadata operations so far.
    pub(crate) fn operations_issued(&self) -> u64 {
        self.sequence
    }

    /// Whether the metadata manager has reported the array as stopped, and whether it is clean.
    pub fn stopped(&self) -> Option<bool> {
        self.reports.iter().find_map(|effect| match effect {
            MetadataEffect::Stopped { clean } => Some(*clean),
            _ => None,
        })
    }

    fn encode(&mut self, now: u64, device: usize, record: &Record) -> Vec<(u64, Vec<u8>)> {
        let encoder = self.encoders[device].as_mut().expect("the device has metadata");
        let writes = match record {
            Record::Superblock(state) => {
                // By the microsecond, so that no two updates have one time by chance.
                let (seconds, nanos) = (now / 1_000_000_000, now % 1_000_000_000);
                let updated = Timestamp { seconds, micros: (nanos / 1_000) as u32 };
                let updated = self.times.of(state, updated);
                vec![encoder.superblock(state, updated).expect("the state fits")]
            }
            Record::Bitmap(page) => {
                let header = page.header.map(|header| (header.events, header.events_cleared));
                let write = encoder.bitmap_page(page.page, header, &page.bits);
                write.expect("the bitmap has room").into_iter().collect()
            }
            Record::EndPpl => encoder.end_ppl().into_iter().collect(),
            Record::EmptyPpl => encoder.empty_ppl().into_iter().collect(),
        };
        let bytes = |write| match write {
            Write::Bytes { sector, bytes } => (sector, bytes),
            Write::Zeroes(area) => (area.sector, vec![0; area.sectors as usize * SECTOR]),
        };
        writes.into_iter().map(bytes).collect()
    }

    fn submit(&mut self, operation: MetadataOperation) {
        let device = operation.device;
        let ready_at = operation.ready_at.max(self.last[device]);
        self.last[device] = ready_at;
        self.sequence += 1;
        let sequence = self.sequence;
        self.operations.push(MetadataOperation { ready_at, sequence, ..operation });
    }
}

impl World {
    /// The control plane.
    ///
    /// # Panics
    /// If the array has no metadata.
    pub fn control_plane(&mut self) -> &mut ControlPlane {
        self.control_plane.as_mut().expect("the array has metadata")
    }

    /// From now on the metadata operations of a member hang, until an administrator fails it at
    /// time `until`; and beyond that.
    pub fn hang_metadata(&mut self, member: usize, until: u64) {
        self.control_plane().hanging.push(member);
        let control = engine::Control::FailMember(md::MemberIdx(member as u16));
        self.controls.push((until, 0, control));
    }

    /// Cancels resyncs and rebuilds.
    pub(crate) fn cancel_background(&mut self) {
        for (work, mark) in [
            (BackgroundWork::Resync, Mark::ResyncCancelled),
            (BackgroundWork::Rebuild, Mark::RebuildCancelled),
        ] {
            let control_plane = self.control_plane();
            let (background, mut effects) = (&mut control_plane.loops[work.turn()], Vec::new());
            let runs = matches!(background.progress(), Some((BackgroundState::Running, _)));
            background.cancel(&mut effects);
            control_plane.report(work, effects);
            if runs {
                self.marks.reach(mark);
            }
        }
        self.hand_over();
    }

    /// Begins resyncs and rebuilds again that were cancelled.
    pub(crate) fn begin_background(&mut self) {
        let control_plane = self.control_plane();
        let begins = control_plane.loops.each_mut().map(BackgroundLoop::begin_again);
        if begins.contains(&true) {
            self.marks.reach(Mark::BegunAgain);
            self.feed_background();
        }
    }

    /// Runs the metadata manager on its inputs.
    pub(super) fn run_manager(&mut self) {
        loop {
            let Some(control_plane) = &mut self.control_plane else { return };
            if control_plane.inputs.is_empty() {
                return;
            }
            let mut out = Vec::new();
            control_plane.manager.handle(self.now, &mut control_plane.inputs, &mut out);
            for effect in out {
                self.perform_effect(effect);
            }
            self.feed_background();
        }
    }

    fn perform_effect(&mut self, effect: MetadataEffect) {
        let now = self.now;
        self.marks.metadata(&effect);
        match effect {
            MetadataEffect::WriteMeta { token, device, record } => {
                let device = self.place_of(device);
                if self.mutant == Some(Mutant::TakenOverEarly) {
                    self.take_over_early(device, &record);
                }
                let writes = self.control_plane().encode(now, device, &record);
                self.submit_metadata(token, device, writes);
            }
            MetadataEffect::Flush { token, device } => {
                let device = self.place_of(device);
                self.submit_metadata(token, device, Vec::new());
            }
            MetadataEffect::ToShard { control, shard } => {
                if let engine::Control::EndReplacement(place) = control {
                    // What it has replaced must not be taken any more.
                    let slots = self.geometry().members();
                    let former = (place.index() + slots) % (2 * slots);
                    if !self.recorded.contains(&former) {
                        self.recorded.push(former);
                    }
                }
                if let engine::Control::SetFlags { member, flags } = control
                    && flags.failfast
                {
                    // Of the slot, not of the place that its device has.
                    self.failfast.insert(member.0 % self.geometry().members() as u16);
                }
                if !self.is_answered(&control) {
                    self.send_control(shard, control);
                }
            }
            MetadataEffect::SetTimer { at } => self.control_plane().timer = Some(at),
            MetadataEffect::ResyncNeeded => self.control_plane().loops[0].needed(),
            MetadataEffect::RebuildNeeded => self.control_plane().loops[1].needed(),
            MetadataEffect::Join { device, place, replaces } => {
                self.order(Ordered {
                    number: device.0,
                    place: place.index(),
                    replaces,
                    from: None,
                });
            }
            MetadataEffect::DeviceFailed { device, slot: None, .. } => self.spare_failed(device.0),
            MetadataEffect::Removed { device, place } => self.removed(device.0, place),
            other => {
                let control_plane = self.control_plane();
                match other {
                    MetadataEffect::BecameReadOnly { .. } => {
                        let loops = control_plane.loops.iter_mut();
                        loops.for_each(BackgroundLoop::became_read_only);
                    }
                    MetadataEffect::Stopped { clean } => {
                        control_plane.loops.iter_mut().for_each(BackgroundLoop::stopped);
                        // A clean stop is a flush, too.
                        let covered = if clean { control_plane.acknowledged.len() } else { 0 };
                        control_plane.settle(covered);
                    }
                    _ => {}
                }
                control_plane.reports.push(other);
            }
        }
    }

    fn place_of(&mut self, number: DeviceNumber) -> usize {
        let place = self.control_plane().place_of(number.0);
        place.unwrap_or_else(|| panic!("metadata of device {} that has left", number.0))
    }

    /// A planted bug: the superblock that gives a replacement its slot is not durable yet.
    fn take_over_early(&mut self, device: usize, record: &Record) {
        let Record::Superblock(state) = record else { return };
        if device >= 2 * self.geometry().members() {
            return;
        }
        let place = md::MemberIdx(device as u16);
        let number = self.control_plane().encoders[device].as_ref().map(|it| it.number as usize);
        let own = number.and_then(|number| state.devices.get(number)?.as_ref());
        let gets_slot = own.is_some_and(|own| !own.replacement && own.recovery_offset.is_none());
        for shard in self.numbers().filter(|_| gets_slot) {
            let it = self.shard_of(shard);
            let slot = it.slot_of(place);
            if it.place_of(slot) != place && it.is_in_service(place) {
                self.send_control(shard, engine::Control::EndReplacement(place));
            }
        }
    }

    fn submit_metadata(&mut self, token: MetaToken, device: usize, writes: Vec<(u64, Vec<u8>)>) {
        let slowness = self.device(device).slowness.max(1);
        let ready_at = self.now + slowness * self.delay(self.delays.io);
        let covers = self.writes_done;
        let issued = self.now;
        let operation =
            MetadataOperation { issued, ready_at, sequence: 0, token, device, writes, covers };
        self.control_plane().submit(operation);
    }

    /// Submits the next ranges of rebuilds and of the resync.
    pub fn feed_background(&mut self) {
        self.feed(BackgroundWork::Rebuild);
        self.feed(BackgroundWork::Resync);
    }

    fn feed(&mut self, work: BackgroundWork) {
        let is_resync = work == BackgroundWork::Resync;
        let room = self.room().min(2);
        let Some(control_plane) = &mut self.control_plane else { return };
        let ControlPlane { loops, manager, .. } = control_plane;
        let mut runs = || match is_resync {
            true => BackgroundRun::of_resync(manager.resync()),
            false => manager.rebuilds(),
        };
        let background = &mut loops[work.turn()];
        background.tick(self.now);
        let (mut ranges, mut effects) = (Vec::new(), Vec::new());
        while ranges.len() < room
            && let Some(range) = background.next_range(&mut runs, &mut effects)
        {
            ranges.push(range);
        }
        control_plane.report(work, effects);
        if !is_resync && self.mutant == Some(Mutant::InSyncEarly) && !ranges.is_empty() {
            let inputs = &mut self.control_plane().inputs;
            for run in 1..=8 {
                let (member, position, stalled) = (None, u64::MAX, None);
                inputs.push(MetadataInput::RebuildAt { run, member, position, stalled });
            }
        }
        let ahead = if is_resync { Mutant::ResyncAhead } else { Mutant::RebuildAhead };
        for range in ranges {
            let tag = self.queue(range.op, range.at.0, range.sectors);
            let (now, is_ahead) = (self.now, self.mutant == Some(ahead));
            let control_plane = self.control_plane();
            control_plane.ranges.push((tag, range));
            if is_ahead {
                control_plane.range_done(now, tag, Ok(()));
            }
        }
    }

    /// Performs what is due of the control plane's operations.
    pub(super) fn step_control_plane(&mut self) {
        let now = self.now;
        let Some(control_plane) = &mut self.control_plane else { return };
        if control_plane.timer.is_some_and(|at| at <= now) {
            control_plane.timer = None;
            control_plane.inputs.push(MetadataInput::Timer);
        }
        let mut deadlines = control_plane.loops.iter().filter_map(BackgroundLoop::deadline);
        if deadlines.any(|at| at <= now) {
            self.feed_background();
        }
        let ControlPlane { operations, hanging, last, .. } = self.control_plane();
        let is_due =
            |op: &mut MetadataOperation| op.ready_at <= now && !hanging.contains(&op.device);
        let mut due: Vec<MetadataOperation> = operations.extract_if(.., is_due).collect();
        if due.is_empty() {
            return;
        }
        // Devices in any order, the operations of each in their own.
        let mut order: Vec<usize> = (0..last.len()).collect();
        self.rng.shuffle(&mut order);
        due.sort_by_key(|op| (order[op.device], op.sequence));
        for op in due {
            let result = self.perform_metadata(&op);
            let result = result.map_err(|kind| IoError::of_metadata(kind, None));
            if result.is_ok() && op.device >= 2 * self.geometry().members() {
                self.marks.reach(Mark::SpareAdded);
            }
            self.control_plane().inputs.push(MetadataInput::MetaDone { token: op.token, result });
        }
    }

    fn perform_metadata(&mut self, op: &MetadataOperation) -> Result<(), MemberError> {
        let now = self.now;
        let member = self.device(op.device);
        if member.is_gone(op.issued) {
            return Err(MemberError::Gone);
        }
        if member.metadata_full && !op.writes.is_empty() {
            return Err(MemberError::NoSpace);
        }
        let error = match (op.writes.is_empty(), member.write_error) {
            _ if member.is_gone(now) => Some(MemberError::Gone),
            (false, Some((from, error))) if now >= from => Some(error),
            (true, _) if member.flush_fails => Some(MemberError::Other),
            _ => None,
        };
        let block = member.block_sectors;
        for (first, bytes) in &op.writes {
            let (sectors, blocks) =
                ((bytes.len() / SECTOR) as u64, (bytes.len() / SECTOR) as u64 / block);
            assert!(
                first.is_multiple_of(block) && sectors.is_multiple_of(block),
                "a metadata write of a part of a block: {sectors} sectors from {first}"
            );
            if error.is_some() {
                // A part may have been written.
                let part = (self.rng.below(blocks + 1) * block) as usize * SECTOR;
                if part > 0 {
                    self.writes_done += 1;
                    let number = self.writes_done;
                    let member = self.device_mut(op.device);
                    // Volatile, but no data: a flush of hosts is not concerned.
                    member.write_device(number, *first, &bytes[..part], false);
                    member.unflushed.pop();
                }
                continue;
            }
            self.writes_done += 1;
            let number = self.writes_done;
            // Durable before it is reported, whatever the writes in the cache.
            self.device_mut(op.device).write_device(number, *first, bytes, true);
        }
        if let Some(error) = error {
            return Err(error);
        }
        let slots = self.geometry().members();
        let is_replacement = (slots..2 * slots).contains(&op.device);
        if is_replacement && self.mutant == Some(Mutant::ReplacementNotFlushed) {
            return Ok(());
        }
        self.device_mut(op.device).flush(op.covers);
        Ok(())
    }
}
