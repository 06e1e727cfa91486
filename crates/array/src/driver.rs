//! Runs an array on the calling thread, or one of several *shards* of it, each on its own thread,
//! with its own engine shard, io_uring and stripe memory.
//!
//! ```text
//! a request to shard 0   |  part  |  part  |  part  |
//! the owner's shard         0        1        0        own parts go straight to the engine; the
//!                                                      others over channels, their results back
//! ```
//! Invariant: the driver owns the memory of every request between `submit` and its completion,
//! which is reported when all parts have completed. It makes no progress on its own: the caller
//! submits, polls, and waits. Called by tests, benchmarks, and the threads of [`crate::Array`].

mod allocation;
mod background;
mod late;
mod membership;
mod resync;
mod scrub;
mod shutdown;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    BackgroundRange, BackgroundWork, BufSlice, Control, ControlEvent, DeviceNumber,
    FailureCoordinator, HostOp, MAX_REQUEST_SECTORS, MIN_UNIT_SECTORS, MemberSet, MetadataStatus,
    Pace, Request, RequestError, Sharding,
};
use host::sys::{Looks, clock_nanos};
use md::{Geometry, Level, MemberIdx, Sector};

use crate::buf::{Growing, Lease, LeasePool, Regions, StorePolicy, store_fence};
use crate::build::{
    ArraySpec, BuildError, ShardOf, WithMetadata, build, divide, refuse_shared_files,
};
use crate::executor::{Event, Executor, Report};
use crate::member::{Counters, Cqe, Io, Member, MemberInfo, Ring};
use crate::metadata_writer::MetadataWriter;
use crate::shard_channels::{Message, ShardChannels};
use crate::table::Table;

pub use membership::{AddError, JoinAs, RemoveError};
pub use scrub::ScrubStatus;
pub(crate) use waiting::poll_for;

/// Retry delay when the kernel had no room for an operation.
const PUSHED_BACK: Duration = Duration::from_millis(1);

/// Options of a running array.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Threads that run the array, each with its own part of it; see [`Driver::shards`].
    pub shards: u16,
    /// Smallest contiguous part of the array that one shard owns, in sectors. Small values are for
    /// tests: requests that span shards cost more.
    pub shard_unit_sectors: u64,
    /// Host requests in flight in a shard at most; more are handed back.
    pub max_requests: usize,
    /// Number of host buffers, for all shards together.
    pub leases: usize,
    /// Number of buffers from the start, at most `leases`; the others are added as load needs them.
    pub leases_at_first: usize,
    /// Size of each host buffer in bytes; rounded up to 4 KiB.
    pub lease_bytes: usize,
    /// Huge pages are requested for the host buffers. Large O_DIRECT reads are up to twice as fast
    /// in them, so a workload that models a program without huge pages must not use them.
    pub huge_pages: bool,
    /// Memory for data is made present before it is used, and what is used from the start is
    /// registered with io_uring: no request waits for memory, which might wait for a request. For
    /// arrays that serve the kernel that they run on.
    pub populate: bool,
    /// The parity kernels.
    pub kernels: parity::Kernels,
    /// Pace of background work (resync, rebuild, scrub) at first; see [`Driver::set_pace`].
    pub pace: Pace,
    /// Time that an operation of a member may take. Then the member is taken out of service; one
    /// that the array cannot run without is not used until the operation completes. `None`: the
    /// array waits.
    pub member_timeout: Option<Duration>,
}

/// [`DriverOptions::member_timeout`] unless it is set.
pub const DEFAULT_MEMBER_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for DriverOptions {
    fn default() -> DriverOptions {
        DriverOptions {
            shards: 1,
            shard_unit_sectors: MIN_UNIT_SECTORS,
            max_requests: engine::DEFAULT_MAX_REQUESTS,
            leases: 256,
            leases_at_first: usize::MAX,
            lease_bytes: 1 << 20,
            huge_pages: true,
            populate: false,
            kernels: parity::Kernels::best(),
            pace: Pace::default(),
            member_timeout: Some(DEFAULT_MEMBER_TIMEOUT),
        }
    }
}

/// A completed request.
#[derive(Debug)]
pub struct Completion {
    /// The host's tag of the request.
    pub tag: u64,
    /// The request's result.
    pub result: Result<(), RequestError>,
    /// The request's buffer, returned to the host.
    pub lease: Option<Lease>,
}

/// Error of `submit` when the array has no room: holds the lease, if there was one.
#[derive(Debug)]
pub struct Full(pub Option<Lease>);

struct PendingRequest {
    tag: u64,
    lease: Option<Lease>,
    /// A range of background work: no host waits for it.
    own: Option<Box<BackgroundRange>>,
    /// First sector of a host's read, which is as long as its buffer.
    read: Option<Sector>,
    /// Parts that have not completed.
    open: u32,
    error: Option<RequestError>,
    held: late::Held,
}

/// Requests, or parts of them, of one origin: those in flight in the executor, and those queued for
/// room. The tag of an own one is its index in `hosts`; of one of another shard it has that shard,
/// counted from 1, in the upper half.
#[derive(Default)]
struct Parts {
    at_work: usize,
    waiting: VecDeque<Request>,
}

/// Runs one shard of an array; see the module documentation.
pub struct Driver {
    // Fields drop in this order: the ring waits for the kernel before the files and the memory are
    // released (`Drop`), and host buffers return to their pool last.
    executor: Executor,
    metadata_writer: Option<MetadataWriter>,
    /// In shard 0 of arrays without metadata: of several shards, or once a member was added.
    failures: Option<FailureCoordinator>,
    /// In shard 0, members that may get a slot.
    spares: Vec<(DeviceNumber, Box<dyn Member>)>,
    /// Control-plane events received here, with their shards, and the commands that answer them;
    /// empty between calls.
    control_events: Vec<(u16, ControlEvent)>,
    commands: Vec<(u16, Control)>,
    io: Io,
    hosts: Table<PendingRequest>,
    ended: Vec<(u64, Result<(), RequestError>)>,
    kernel: Vec<Cqe>,
    leases: LeasePool,
    max_requests: usize,
    /// The first range in flight has a reserved slot, and that of a resync a buffer where it needs
    /// one, so that it makes progress under any host load.
    background: background::Background,
    resync_lease: Option<Lease>,
    /// Channels to the other shards, if there are any.
    channels: Option<ShardChannels>,
    own: Parts,
    others: Parts,
    /// Own requests of which a part has completed in another shard.
    answered: Vec<(u32, Result<(), RequestError>)>,
    late: late::LateRequests,
}

/// The region of host buffers.
const HOST_REGION: u16 = 0;

fn sharding(geometry: &Geometry, options: &DriverOptions) -> Sharding {
    Sharding::with_least_unit(geometry, options.shards.max(1), options.shard_unit_sectors)
}

impl Driver {
    /// Assembles an array and makes it ready to run.
    ///
    /// # Errors
    /// When the specification is invalid, or a system resource is missing.
    pub fn new(spec: ArraySpec, options: &DriverOptions) -> Result<Driver, BuildError> {
        let options = DriverOptions { shards: 1, ..options.clone() };
        Ok(Driver::build(spec, &options, None)?.pop().expect("one shard"))
    }

    /// Assembles an array that several threads run, [`DriverOptions::shards`] of them: one driver
    /// per thread. Requests may be submitted to any of them; a driver forwards the parts that it
    /// does not own. So all of them must be polled until the last request has completed.
    ///
    /// A driver that is dropped with work in flight, or that a later request needs, breaks the
    /// array: the other shards stop serving, and requests complete with [`RequestError::Io`].
    ///
    /// # Errors
    /// When the specification is invalid, or a system resource is missing.
    pub fn shards(spec: ArraySpec, options: &DriverOptions) -> Result<Vec<Driver>, BuildError> {
        Driver::build(spec, options, None)
    }

    /// Assembles an array whose metadata are kept by a metadata writer, made by a closure that is
    /// called once the memory is allocated.
    pub(crate) fn with_metadata(
        spec: ArraySpec,
        options: &DriverOptions,
        keeping: &WithMetadata,
        metadata_writer: impl FnOnce(&Geometry, u64, u64) -> std::io::Result<MetadataWriter>,
    ) -> Result<Vec<Driver>, BuildError> {
        let mut shards = Driver::build(spec, options, Some(keeping))?;
        let (geometry, unit) = (shards[0].geometry(), shards[0].background_unit());
        // On levels with copies a resync uses a host buffer.
        let needs_memory = matches!(geometry.level(), Level::Raid1 | Level::Raid10);
        let own = needs_memory.then(|| shards[0].leases.take(shards[0].leases.lease_bytes()));
        shards[0].resync_lease = own.flatten();
        let step = shards[0].background_step(1);
        let metadata_writer = metadata_writer(shards[0].geometry(), step, unit)
            .map_err(|source| BuildError::System { doing: "start the metadata threads", source })?;
        shards[0].metadata_writer = Some(metadata_writer);
        Ok(shards)
    }

    fn build(
        spec: ArraySpec,
        options: &DriverOptions,
        keeping: Option<&WithMetadata>,
    ) -> Result<Vec<Driver>, BuildError> {
        let system = |doing| move |source| BuildError::System { doing, source };
        let lease_bytes = options.lease_bytes.max(1).next_multiple_of(4096);
        let own = matches!(spec.level, Level::Raid1 | Level::Raid10) && keeping.is_some();
        let leases = options.leases.max(1) + usize::from(own);
        let count = u32::try_from(leases).expect("fewer than 2^31 buffers");
        let at_first = options.leases_at_first.max(1).saturating_add(usize::from(own));
        let at_first = u32::try_from(at_first).unwrap_or(u32::MAX);
        let leases = LeasePool::new(HOST_REGION, lease_bytes, count, at_first, options.huge_pages)
            .map_err(system("map the host buffers"))?;
        let shards = options.shards.max(1);
        let mut all = Vec::new();
        let loads = background::HostLoad::of_shards(shards);
        for ((number, spec), load) in (0..).zip(divide(spec, shards)?).zip(loads) {
            let shard = ShardOf { number, shards, least_unit: options.shard_unit_sectors };
            all.push(Driver::shard(spec, options, keeping, shard, &leases, load)?);
        }
        if options.populate {
            let memory: Vec<Arc<Growing>> = Driver::memory(&all).cloned().collect();
            Growing::populate(&memory).map_err(system("start the thread for memory"))?;
        }
        if shards > 1 {
            let geometry = all[0].geometry().clone();
            let channels = ShardChannels::between(&geometry, sharding(&geometry, options));
            let channels = channels.map_err(system("make eventfds"))?;
            all.iter_mut()
                .zip(channels)
                .for_each(|(driver, channels)| driver.channels = Some(channels));
            if keeping.is_none() {
                let missing = all[0].failed();
                all[0].failures = Some(FailureCoordinator::new(geometry, shards, missing));
            }
        }
        Ok(all)
    }

    fn shard(
        spec: ArraySpec,
        options: &DriverOptions,
        keeping: Option<&WithMetadata>,
        shard: ShardOf,
        leases: &LeasePool,
        load: background::HostLoad,
    ) -> Result<Driver, BuildError> {
        let system = |doing| move |source| BuildError::System { doing, source };
        let mut regions = Regions::new().map_err(system("map the region of zeroes"))?;
        let number = regions.add(leases.growing().region().clone());
        assert_eq!(number, HOST_REGION, "host buffers have the same number in all shards");
        let max_requests = options.max_requests.max(1);
        // As many requests as its own hosts submit, and as many again for other shards.
        let capacity = match shard.shards {
            1 => max_requests + usize::from(keeping.is_some()),
            _ => 2 * max_requests,
        };
        let mut executor = build(spec, capacity, &mut regions, keeping, shard)?;
        if shard.number == 0 {
            refuse_shared_files(&executor)?;
        }
        executor.set_member_timeout(options.member_timeout);
        executor.lend_to_hosts(leases);
        executor.number_leaves(&mut 0);
        let ring = executor.info().uses_ring.then(Ring::new).transpose();
        let mut ring = ring.map_err(system("set up io_uring"))?;
        if options.populate {
            regions.populate().map_err(system("get the memory for data"))?;
            if let Some(ring) = &mut ring {
                ring.settle_in(&regions);
            }
        }
        let now = clock_nanos();
        let io = Io {
            ring,
            regions,
            kernels: options.kernels,
            now,
            looks: Looks::new(options.member_timeout, now),
            store_policy: StorePolicy::default(),
            stored_past: false,
        };
        Ok(Driver {
            executor,
            metadata_writer: None,
            failures: None,
            spares: Vec::new(),
            control_events: Vec::new(),
            commands: Vec::new(),
            io,
            hosts: Table::new(),
            ended: Vec::new(),
            kernel: Vec::new(),
            leases: leases.clone(),
            max_requests,
            background: background::Background::new(load, options.pace),
            resync_lease: None,
            channels: None,
            own: Parts::default(),
            others: Parts::default(),
            answered: Vec::new(),
            late: late::LateRequests::default(),
        })
    }

    /// The array's geometry.
    pub fn geometry(&self) -> &Geometry {
        self.executor.geometry()
    }

    /// The division of the array among its shards; a host can use it to submit each request to the
    /// owning shard.
    pub fn sharding(&self) -> Sharding {
        match &self.channels {
            Some(channels) => channels.sharding(),
            None => Sharding::new(self.geometry(), 1),
        }
    }

    /// The array's size and the properties that all of its members share.
    pub fn info(&self) -> MemberInfo {
        self.executor.info()
    }

    /// The pool that request buffers come from.
    pub fn leases(&self) -> &LeasePool {
        &self.leases
    }

    /// The memory for data of all shards of an array: host buffers, and stripes of each.
    pub(crate) fn memory(shards: &[Driver]) -> impl Iterator<Item = &Arc<Growing>> {
        let hosts = shards.iter().map(|driver| driver.leases.growing()).take(1);
        hosts.chain(shards.iter().filter_map(|driver| driver.executor.stripe_memory()))
    }

    /// Number of requests that can be submitted now.
    pub fn room(&self) -> usize {
        let reserved = self.background.ranges.min(1);
        (self.max_requests + reserved).saturating_sub(self.requests())
    }

    /// Submits a request. Reads and writes bring a lease of exactly their length.
    ///
    /// # Errors
    /// Returns the lease when there is no room; poll, and retry.
    ///
    /// # Panics
    /// When the length is more than [`Sharding::max_sectors`], or is not the lease's, or the lease
    /// is of another array.
    pub fn submit(
        &mut self,
        op: HostOp,
        at: Sector,
        sectors: u64,
        lease: Option<Lease>,
        tag: u64,
    ) -> Result<(), Full> {
        let most = match self.channels {
            Some(_) => MAX_REQUEST_SECTORS,
            None => op.max_sectors(),
        };
        assert!(sectors <= most, "requests have at most {most} sectors");
        if self.room() == 0 {
            return Err(Full(lease));
        }
        let buf = match &lease {
            Some(lease) => {
                assert_eq!(
                    lease.len() as u64,
                    sectors * md::SECTOR_BYTES,
                    "lease and length differ"
                );
                assert!(lease.is_of(&self.leases), "the lease is of another array");
                lease.slice()
            }
            None => BufSlice::default(),
        };
        if self.requests() == self.background.ranges {
            self.background.load.began();
        }
        let read = (op == HostOp::Read).then_some(at);
        let held = late::Held::default();
        let request = PendingRequest { tag, lease, own: None, open: 1, error: None, read, held };
        let host = self.hosts.insert(request);
        if !self.is_broken() {
            self.route(Request { tag: u64::from(host), op, at, sectors, buf });
        }
        Ok(())
    }

    /// Sends a request to the shards that own its range: mostly this shard, or several.
    fn route(&mut self, all: Request) {
        let Request { tag, op, at, sectors, buf } = all;
        let Some(channels) = &mut self.channels else {
            return self.executor.submit(all);
        };
        // Invalid requests are refused here, as a whole.
        let info = self.executor.info();
        let block = u64::from(info.logical_block) / md::SECTOR_BYTES;
        let makes_sense = matches!(op, HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_))
            || at.0.checked_add(sectors).is_some_and(|end| end <= info.sectors)
                && at.0.is_multiple_of(block)
                && sectors.is_multiple_of(block);
        if channels.is_own(op, at, sectors) || !makes_sense {
            return self.submit_local(all);
        }
        let (mut at, end, mut open) = (at.0, at.0 + sectors, 0);
        loop {
            let part = channels.first_part(op, Sector(at), end - at);
            let buf = match buf.len {
                0 => buf,
                // It never spans shards, and its buffer has room for each copy.
                _ if matches!(op, HostOp::Scrub(_)) => buf,
                _ => BufSlice {
                    offset: buf.offset + (at - all.at.0) * md::SECTOR_BYTES,
                    len: (part.sectors * md::SECTOR_BYTES) as u32,
                    ..buf
                },
            };
            let own = part.shard == channels.number();
            let message = Request { tag, op, at: part.at, sectors: part.sectors, buf };
            match own {
                true => self.own.waiting.push_back(message),
                false => channels.send(part.shard, Message::Part(message)),
            }
            open += 1;
            at += part.sectors;
            if at >= end {
                break;
            }
        }
        self.hosts.get(tag as u32).open = open;
        self.feed_waiting();
    }

    fn submit_local(&mut self, part: Request) {
        if self.own.at_work < self.max_requests && self.own.waiting.is_empty() {
            self.own.at_work += 1;
            self.executor.submit(part);
        } else {
            self.own.waiting.push_back(part);
        }
    }

    /// Feeds queued parts to the executor. Half of its room is for other shards, so that neither
    /// they nor hosts starve.
    fn feed_waiting(&mut self) {
        let Driver { executor, own, others, max_requests, .. } = self;
        while own.at_work < *max_requests {
            let Some(part) = own.waiting.pop_front() else { break };
            own.at_work += 1;
            executor.submit(part);
        }
        while others.at_work < *max_requests {
            let Some(part) = others.waiting.pop_front() else { break };
            others.at_work += 1;
            executor.submit(part);
        }
    }

    /// Receives messages from other shards.
    fn receive(&mut self) {
        let Driver { channels, executor, others, answered, control_events, late, .. } = self;
        let Some(channels) = channels else { return };
        let number = channels.number();
        channels.receive(|shard, message| match message {
            Message::Part(part) => {
                let tag = (u64::from(shard) + 1) << 32 | part.tag;
                others.waiting.push_back(Request { tag, ..part });
            }
            Message::Done { host, result } => answered.push((host, result)),
            Message::Hold { host } => late.held.push(host),
            Message::Release { host } => late.free.push(host),
            Message::Event(event) => control_events.push((shard, event)),
            // A host's fail command that came in by another shard: no other shard reports it.
            Message::Control(Control::FailMember(member)) if number == 0 => executor.fail(member),
            Message::Control(control) if number == 0 => executor.control(control),
            Message::Control(control) => executor.command(control),
            Message::Unbind { place } => executor.unbind(place),
            // `bind_sent` takes it.
            Message::Member => {}
        });
        self.feed_waiting();
    }

    /// Does everything that can be done now and appends completions to `out`. Never waits.
    pub fn poll(&mut self, out: &mut Vec<Completion>) {
        // Before anything is received: deadlines are judged by a time whose completions are here.
        self.io.now = clock_nanos();
        self.io.looks.look(self.io.now);
        if self.is_broken() {
            return self.end_broken(out);
        }
        self.receive();
        self.reap();
        self.bind_sent();
        self.feed_background();
        self.executor.turn(&mut self.io, &mut self.ended);
        self.control_plane();
        self.join_chosen();
        self.local_rebuilds();
        if std::mem::take(&mut self.io.stored_past) {
            store_fence();
        }
        if let Some(ring) = &mut self.io.ring {
            ring.submit();
            ring.register_buffers(&self.io.regions);
        }
        self.note_held(out);
        let mut ended = std::mem::take(&mut self.ended);
        for (tag, result) in ended.drain(..) {
            let (from, host) = ((tag >> 32) as u16, tag as u32);
            match (&mut self.channels, from.checked_sub(1)) {
                (Some(channels), Some(shard)) => {
                    self.others.at_work -= 1;
                    channels.send(shard, Message::Done { host, result });
                }
                (channels, _) => {
                    self.own.at_work -= usize::from(channels.is_some());
                    self.part_done(host, result, out);
                }
            }
        }
        self.ended = ended;
        while let Some((host, result)) = self.answered.pop() {
            self.part_done(host, result, out);
        }
        self.note_released();
        if let Some(channels) = &mut self.channels {
            channels.flush_outboxes();
        }
    }

    fn part_done(
        &mut self,
        host: u32,
        result: Result<(), RequestError>,
        out: &mut Vec<Completion>,
    ) {
        let request = self.hosts.get(host);
        request.open -= 1;
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        if request.open > 0 {
            return;
        }
        if request.held.was {
            return self.held_done(host, out);
        }
        let (result, lease) = (request.error.map_or(Ok(()), Err), request.lease.take());
        let (completion, own) =
            (Completion { tag: request.tag, result, lease }, request.own.take());
        self.hosts.release(host);
        self.complete(completion, own, out);
    }

    fn complete(
        &mut self,
        completion: Completion,
        own: Option<Box<BackgroundRange>>,
        out: &mut Vec<Completion>,
    ) {
        let Some(range) = own else {
            if self.requests() == self.background.ranges {
                self.background.load.all_ended(self.io.now);
            }
            return out.push(completion);
        };
        let Completion { result, lease, .. } = completion;
        // Members in memory complete in the poll in which the range began.
        let (now, work) = (clock_nanos(), BackgroundWork::of(range.op));
        self.background.ended(now, work, range.sectors, result.is_ok());
        self.range_done(*range, result, lease);
    }

    /// Passes shard events to the control plane and distributes its commands. It runs in shard 0:
    /// the metadata writer with the metadata manager, or a `FailureCoordinator` for arrays without
    /// metadata.
    fn control_plane(&mut self) {
        let Driver {
            executor,
            metadata_writer,
            failures,
            control_events,
            commands,
            io,
            ended,
            channels,
            ..
        } = self;
        if let Some(channels) = channels.as_mut().filter(|channels| channels.number() > 0) {
            return executor
                .take_control_events()
                .for_each(|event| channels.send(0, Message::Event(event)));
        }
        loop {
            control_events.extend(executor.take_control_events().map(|event| (0, event)));
            control_events.retain(|(_, event)| match *event {
                ControlEvent::CollectDirtyMembers => {
                    let others = channels.iter().flat_map(ShardChannels::others);
                    commands.extend(others.map(|shard| (shard, Control::TakeDirtyMembers)));
                    false
                }
                ControlEvent::Written { members, kept } => {
                    commands.push((0, Control::Written { members, kept }));
                    false
                }
                _ => true,
            });
            match (&mut *metadata_writer, &mut *failures) {
                (Some(metadata_writer), _) => {
                    metadata_writer.turn(io.now, io.looks, control_events.drain(..), commands);
                }
                (None, Some(failures)) => {
                    control_events
                        .drain(..)
                        .for_each(|(shard, event)| failures.event(shard, &event, commands));
                }
                (None, None) => control_events.clear(),
            }
            if commands.is_empty() {
                return;
            }
            for (shard, control) in commands.drain(..) {
                match channels {
                    Some(channels) if shard > 0 => channels.send(shard, Message::Control(control)),
                    _ => executor.command(control),
                }
            }
            executor.turn(io, ended);
        }
    }

    /// The array's metadata status; `None` for an array without metadata.
    pub fn metadata(&self) -> Option<MetadataStatus> {
        self.metadata_writer.as_ref().map(MetadataWriter::status)
    }

    /// Problems with the metadata, and with members that stay although they are late, since the
    /// last call, one or two sentences each.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = self.executor.take_notes();
        notes.extend(self.metadata_writer.iter_mut().flat_map(MetadataWriter::take_notes));
        notes
    }

    fn reap(&mut self) {
        let Some(ring) = &mut self.io.ring else {
            return self.executor.reap_members(&mut self.io);
        };
        if ring.in_flight() > 0 {
            ring.reap(&mut self.kernel);
        }
        for event in self.kernel.drain(..) {
            self.executor.kernel_done(event, &mut self.io);
        }
        self.executor.reap_members(&mut self.io);
    }

    /// Takes a member out of service, as `mdadm --fail` does. The engine ignores it silently when
    /// the array cannot run without the member; see [`Driver::take_events`].
    pub fn fail_member(&mut self, member: MemberIdx) {
        let control = Control::FailMember(member);
        match &mut self.channels {
            // Shard 0 forwards it to all of them.
            Some(channels) if channels.number() > 0 => channels.send(0, Message::Control(control)),
            _ => self.executor.fail(member),
        }
    }

    /// Takes what replaces a member out of service, as `mdadm --fail` of that device does: the
    /// member stays. In shard 0.
    pub fn fail_replacement(&mut self, member: MemberIdx) {
        self.executor.fail_replacement(member);
    }

    /// Members out of service, as far as this shard has been notified.
    pub fn failed(&self) -> MemberSet {
        self.executor.failed()
    }

    /// Members that are not in sync everywhere: those out of service, and those being rebuilt.
    pub fn lacking(&self) -> MemberSet {
        self.executor.lacking()
    }

    /// Member events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.take_reports().into_iter().map(|report| report.what).collect()
    }

    /// The same, with the names that devices had when the events happened.
    pub fn take_reports(&mut self) -> Vec<Report> {
        let by_metadata = self.metadata_writer.iter_mut().flat_map(MetadataWriter::take_reports);
        self.executor.take_reports().chain(by_metadata).collect()
    }

    /// I/O counters of every leaf member, in slot order; of several shards, those of this one.
    pub fn leaf_counters(&self) -> Vec<Counters> {
        let mut counters = Vec::new();
        self.executor.leaf_counters(&mut counters);
        counters
    }
}
