//! A target: an array with known contents that a workload can be run against.
//!
//! Invariant: after `fill`, the expected contents of every unit of the area are defined; a unit
//! that differs when read is reported, never ignored. Called from `runner`.

use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::CounterSource;
use array::{
    ArraySpec, Completion, Counters, DataPlaneConfig, Driver, DriverOptions, Event, FaultControl,
    HostOp, Lease, Member, MemberSpec, PaceControl,
};
use md::nested::{ArrayExpr, Members, NestedError, NestedGeometry};
use md::{Geometry, Layout, Level, MemberIdx, Sector};
use predict::bound::Shape;
use spec::case::{ArrayConfig, DEFAULT_STRIPE_CACHE_BYTES, Knobs, RunConfig};
use spec::matrix::tolerated_losses;
use spec::members::MemberExpr;

use crate::background_run::BackgroundRun;
use crate::member_factory::{Disk, MemberFactory};
use crate::provision::{ClaimedDevices, MdArray, ProvisionError};
use crate::target_error::TargetError;
use crate::verify::{ShadowMap, VerifyErrors};

/// Request size for filling and reading back, bytes.
const BULK_BYTES: u64 = 1 << 20;
const BULK_DEPTH: usize = 8;
/// Limit of buffer memory, bytes: with very many requests in flight, buffers are only as long as
/// necessary, and filling uses smaller requests.
const MANY_BUFFERS_BYTES: u64 = 256 << 20;
const LEAST_BULK_BYTES: u64 = 64 << 10;
/// Polls within which all shards must receive a failure event: far more than necessary.
const LANES_AGREE_ROUNDS: usize = 1000;
/// Polls of at most 10 ms in which the drives finish background work.
const DRIVES_REST_ROUNDS: usize = 3000;

/// Number and length of the buffers for `in_flight` concurrent requests of `block_bytes`.
pub fn buffers(block_bytes: u64, in_flight: usize) -> (usize, u64) {
    let count = in_flight.max(BULK_DEPTH);
    let bulk = MANY_BUFFERS_BYTES / (count as u64).next_power_of_two();
    let bytes = block_bytes.max(bulk.clamp(LEAST_BULK_BYTES, BULK_BYTES));
    (count, bytes.next_multiple_of(4096))
}

/// The requests that an array is built for.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    /// Longest request, in bytes.
    pub block_bytes: u64,
    /// Smallest unit that will be read or written, in bytes.
    pub unit_bytes: usize,
    /// Maximum of requests in flight, in each shard.
    pub in_flight: usize,
    /// Buffers for background work of all shards.
    pub spare: usize,
}

/// Result of reading the array without some members.
#[derive(Clone, Debug)]
pub struct RedundancyReport {
    /// Leaves that failed in nested arrays.
    pub lost_inside: Vec<usize>,
    /// Leaves that were missing in the last read with an error.
    pub without: Vec<usize>,
    /// Errors of all reads.
    pub found: VerifyErrors,
}

/// Counts what moves below a target that is not the engine's array.
pub type CountBelow = Arc<dyn Fn() -> Vec<Counters> + Send + Sync>;

/// Switches the pace of what lies below a target.
pub type PaceBelow = Box<dyn Fn(bool) + Send>;

/// Resets the modelled drives below a target for a workload, random or not; `false` while one of
/// them is busy.
pub type RenewBelow = Box<dyn Fn(bool) -> bool + Send>;

/// An array with defined contents.
pub struct Target {
    /// The array: one driver for each shard.
    pub(crate) shards: Vec<Driver>,
    /// Its expected contents.
    pub(crate) shadow: ShadowMap,
    /// Where the runner records the members' counters during the samples.
    pub tap: Option<Arc<CounterSource>>,
    /// The counters of the members below, where the array is one file or device on other storage;
    /// `None`: those of the array.
    pub below: Option<CountBelow>,
    /// Switches the pace of arrays of the engine below, which is that of the target.
    pub pace_below: Option<PaceBelow>,
    /// Resets their modelled drives, with those of the target.
    pub renew_below: Option<RenewBelow>,
    /// The array of md below the target, whose background work is measured.
    pub(crate) md: Option<MdArray>,
    /// Background work that runs while a workload does, and the same while it rests.
    pub(crate) background: Option<BackgroundRun>,
    pub(crate) background_at_rest: Option<BackgroundRun>,
    /// Member files that go through the page cache, because their file system has no direct I/O.
    buffered: Vec<Arc<File>>,
    recipe: ArrayBuilder,
    pace: PaceControl,
    faults: FaultControl,
    area_bytes: u64,
    bulk_bytes: u64,
    keeps_data: bool,
    read_only: bool,
    /// Events of members that have not been fetched yet.
    events: Vec<Event>,
    /// The block devices of the members; the last field, so that they are released when nothing
    /// uses them.
    pub(crate) claimed: ClaimedDevices,
}

impl Target {
    /// Creates the members and the array over them. Nothing is written yet.
    ///
    /// # Errors
    /// One line that names the invalid member, directory, size or geometry.
    pub fn new(
        config: &ArrayConfig,
        run: &RunConfig,
        requests: Requests,
    ) -> Result<Target, TargetError> {
        let (pace, faults) = (PaceControl::default(), FaultControl::default());
        let (recipe, made) = ArrayBuilder::with_leaves(config, run, requests, &pace, &faults)?;
        let MadeLeaves { mut leaves, claimed, buffered } = made;
        let lease_bytes = recipe.options.lease_bytes as u64;
        let shards = recipe.shards(&mut leaves)?;
        let facts = shards[0].info();
        if requests.unit_bytes < facts.logical_block as usize {
            return Err(TargetError::BlockUnit { unit_bytes: facts.logical_block });
        }
        let whole = facts.sectors * md::SECTOR_BYTES;
        let area = config.area_bytes.map_or(whole, |bytes| bytes.min(whole));
        let unit = requests.unit_bytes as u64;
        Ok(Target {
            shards,
            // What is only read has no expected contents.
            shadow: {
                let expected = if config.read_only { 0 } else { area };
                ShadowMap::new(run.seed, requests.unit_bytes, &[expected])
            },
            tap: None,
            below: None,
            pace_below: None,
            renew_below: None,
            md: None,
            background: None,
            background_at_rest: None,
            buffered,
            recipe,
            pace,
            faults,
            area_bytes: area / unit * unit,
            bulk_bytes: lease_bytes.min(BULK_BYTES),
            keeps_data: facts.keeps_data && !config.read_only,
            read_only: config.read_only,
            events: Vec::new(),
            claimed,
        })
    }

    /// The array's geometry.
    pub fn geometry(&self) -> &Geometry {
        self.shards[0].geometry()
    }

    /// Members out of service, by slot.
    pub fn failed(&self) -> Vec<u16> {
        let failed = self.shards[0].failed();
        (0..self.geometry().members() as u16).filter(|slot| failed.contains(*slot)).collect()
    }

    /// Size of the used area, in bytes.
    pub fn area_bytes(&self) -> u64 {
        self.area_bytes
    }

    /// Whether data can be verified: `null` members discard it, and a device that is read as it is
    /// found holds other data.
    pub fn keeps_data(&self) -> bool {
        self.keeps_data
    }

    /// Whether it is a device that is read as it was found.
    pub fn reads_what_it_found(&self) -> bool {
        self.read_only
    }

    /// Resets the modelled drives for a workload: each as after power-on, with its data placed for
    /// the workload. No request may be in flight.
    ///
    /// # Errors
    /// When a member is still busy after a timeout.
    pub fn renew_drives(&mut self, random: bool) -> Result<(), TargetError> {
        let mut none = Vec::new();
        let mut left = self.recipe.disks.clone();
        for _ in 0..DRIVES_REST_ROUNDS {
            // Corrections of read errors may still be in flight.
            self.shards.iter_mut().for_each(|shard| shard.poll(&mut none));
            left.retain(|disk| !disk.renew(&self.pace, random));
            if left.is_empty() && self.renew_below.as_ref().is_none_or(|renew| renew(random)) {
                return Ok(());
            }
            self.shards[0].wait(Duration::from_millis(10), None);
        }
        Err(TargetError::DriveBusy)
    }

    /// Flushes what earlier requests have written: a disk that still writes it back would delay the
    /// workload that comes. Modelled drives of this process are reset instead.
    ///
    /// # Errors
    /// The flush.
    pub fn flush(&mut self, stop: &dyn Fn() -> bool) -> Result<(), TargetError> {
        if self.read_only || !self.recipe.disks.is_empty() {
            return Ok(());
        }
        // There is room: nothing is in flight.
        if self.shards[0].submit(HostOp::Flush, Sector(0), 0, None, 0).is_err() {
            return Ok(());
        }
        let mut done = Vec::new();
        while done.is_empty() && !stop() {
            // The first shard has the others flush.
            self.shards.iter_mut().for_each(|shard| shard.poll(&mut done));
            if done.is_empty() {
                self.shards[0].wait(Duration::from_millis(1), None);
            }
        }
        done.drain(..).try_for_each(|end| end.result.map(drop)).map_err(TargetError::Flush)
    }

    /// Waits until md has cleared its bitmap: where earlier writes have set the bits, those of a
    /// workload would set none.
    pub fn rest_until_bitmap_is_clear(&self, stop: &dyn Fn() -> bool) {
        let rest = self.md.as_ref().and_then(MdArray::bitmap_clears_within).unwrap_or_default();
        let end = Instant::now() + rest;
        while Instant::now() < end && !stop() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Switches the pace of all paced members on or off.
    pub fn set_paced(&self, on: bool) {
        self.pace.set_on(on);
        self.pace_below.iter().for_each(|pace| pace(on));
    }

    /// Whether member files go through the page cache.
    pub fn is_buffered(&self) -> bool {
        !self.buffered.is_empty()
    }

    /// Writes cached data of member files, and drops it from the page cache. Returns whether that
    /// succeeded.
    pub fn drop_cached(&self) -> bool {
        self.buffered.iter().all(|file| {
            let advice = rustix::fs::Advice::DontNeed;
            file.sync_data().is_ok() && rustix::fs::fadvise(file, 0, None, advice).is_ok()
        })
    }

    /// Ends the use of its block devices.
    ///
    /// # Errors
    /// Their signatures cannot be erased.
    pub fn release(self) -> Result<(), ProvisionError> {
        let Target { shards, mut claimed, .. } = self;
        drop(shards);
        claimed.release()
    }

    /// Writes the first version of everything, unpaced and without the faults of fault members,
    /// which apply to the workloads only. What was found on block devices is erased first. `stop`
    /// is polled, and ends it early; `progress` receives the completed share, 0 to 1.
    ///
    /// # Errors
    /// When a request fails: an array that cannot be filled cannot be measured.
    pub fn fill(
        &mut self,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), TargetError> {
        if stop() {
            return Ok(());
        }
        self.claimed.begin()?;
        self.set_paced(false);
        self.faults.set_on(false);
        self.shadow.expect_first();
        let found = self.bulk(true, stop, progress);
        self.faults.set_on(true);
        self.set_paced(true);
        match found.first_error {
            Some(error) => Err(TargetError::Fill(error)),
            None => Ok(()),
        }
    }

    /// Reads everything back, unpaced, and checks every byte.
    pub fn check_all(&mut self, stop: &dyn Fn() -> bool) -> VerifyErrors {
        if !self.keeps_data {
            return VerifyErrors::default();
        }
        self.set_paced(false);
        let found = self.bulk(false, stop, &mut |_| {});
        self.set_paced(true);
        found
    }

    /// Fails the first members that the array can lose.
    ///
    /// # Errors
    /// The array cannot serve with that many missing members.
    pub fn degrade(&mut self, count: u32) -> Result<(), TargetError> {
        let failed = self.failed();
        let gone = tolerated_losses(self.geometry(), count, &|slot| failed.contains(&slot))?;
        self.take_out(&gone);
        Ok(())
    }

    /// Verifies the redundancy: assembles the array repeatedly, each time without another set of
    /// members that it can lose, and reads everything, so that every copy and all parity is used
    /// once. Nested arrays are verified down to the leaves. Stops at wrong data. `None` where no
    /// member can be removed.
    ///
    /// # Errors
    /// When the array cannot be assembled again.
    pub fn verify_redundancy(
        &mut self,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<RedundancyReport>, TargetError> {
        if !self.keeps_data {
            return Ok(None);
        }
        let outer_out = self.failed();
        let mut leaves = Driver::shards_into_leaves(std::mem::take(&mut self.shards));
        // The contents of the members do not depend on the number of shards: one shard reads them.
        self.recipe.options.shards = 1;
        let present: Vec<bool> = leaves.iter().map(|leaf| leaf.in_service).collect();
        let mut lost_inside = Vec::new();
        let mut first = 0;
        for (member, inside) in (0u16..).zip(self.recipe.leaves_of_members()) {
            if !outer_out.contains(&member) {
                lost_inside.extend((first..first + inside).filter(|leaf| !present[*leaf]));
            }
            first += inside;
        }
        let mut proof =
            RedundancyReport { lost_inside, without: Vec::new(), found: VerifyErrors::default() };
        let sets = self.recipe.removable_sets(&present)?;
        if sets.is_empty() {
            return Ok((!proof.lost_inside.is_empty()).then_some(proof));
        }
        for without in sets {
            if stop() || proof.found.wrong_reads > 0 {
                break;
            }
            let mut given: Vec<Option<Box<dyn Member>>> = Vec::new();
            for (leaf, former) in leaves.iter_mut().enumerate() {
                let needed = former.in_service && !without.contains(&leaf);
                given.push(if needed { former.member.take() } else { None });
            }
            let had: Vec<bool> = given.iter().map(Option::is_some).collect();
            self.shards = self.recipe.shards(&mut given)?;
            let found = self.check_all(stop);
            if !found.is_clean() {
                proof.without = without;
                proof.found.add(&found);
            }
            let former = Driver::shards_into_leaves(std::mem::take(&mut self.shards));
            let mut back = former.into_iter().filter(|former| former.member.is_some());
            for (leaf, unused) in given.into_iter().enumerate() {
                if unused.is_some() {
                    leaves[leaf].member = unused;
                } else if had[leaf] {
                    leaves[leaf] = back.next().expect("as many as were given");
                }
            }
        }
        Ok(Some(proof))
    }

    /// Another member like a leaf, in its place on the modelled drive, without its faults.
    ///
    /// # Errors
    /// One line that names the directory or the size.
    pub(crate) fn make_leaf(&mut self, leaf: usize) -> Result<Box<dyn Member>, TargetError> {
        let (expr, disk) = &self.recipe.leaves[leaf];
        let maker = MemberFactory {
            directory: &self.recipe.directory,
            pace: &self.pace,
            faults: &self.faults,
            sectors: self.recipe.member_sectors,
            claimed: &self.claimed,
            buffered: RefCell::default(),
        };
        let member = maker.make(expr.without_faults(), *disk)?;
        self.buffered.extend(maker.buffered.into_inner());
        Ok(member)
    }

    pub(crate) fn take_out(&mut self, gone: &[MemberIdx]) {
        // Earlier events of members were not caused here.
        self.gather_events();
        let mut none = Vec::new();
        for member in gone {
            self.shards[0].fail_member(*member);
            // The first shard notifies the others.
            for _ in 0..LANES_AGREE_ROUNDS {
                self.shards.iter_mut().for_each(|shard| shard.poll(&mut none));
                if self.shards.iter().all(|shard| shard.failed().contains(member.0)) {
                    break;
                }
            }
        }
        self.shards.iter_mut().for_each(|shard| drop(shard.take_events()));
    }

    /// Events of members since the last call, except for members removed on purpose.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.gather_events();
        std::mem::take(&mut self.events)
    }

    /// Collects events. Every shard reports a failed member; it is recorded once.
    fn gather_events(&mut self) {
        for event in self.shards.iter_mut().flat_map(Driver::take_events) {
            let same = |earlier: &Event| match (earlier, &event) {
                (Event::MemberFailed { member: a, .. }, Event::MemberFailed { member: b, .. }) => {
                    a == b
                }
                _ => false,
            };
            match self.events.iter_mut().find(|before| same(before)) {
                // The shard that saw the error has its cause; notified shards do not.
                Some(before @ Event::MemberFailed { error: None, .. }) => *before = event,
                Some(_) => {}
                None => self.events.push(event),
            }
        }
    }

    /// Smallest unit that is read or written, in bytes.
    pub fn unit_bytes(&self) -> usize {
        self.shadow.unit_bytes()
    }

    fn bulk(
        &mut self,
        write: bool,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(f64),
    ) -> VerifyErrors {
        let mut found = VerifyErrors::default();
        let stripe = self.geometry().stripe_sectors() * md::SECTOR_BYTES;
        let (unit, bulk) = (self.unit_bytes() as u64, self.bulk_bytes);
        // Whole stripes where they fit, so that filling an array with parity reads nothing.
        let size = match stripe {
            0 => bulk / unit * unit,
            _ if stripe <= bulk => bulk / stripe * stripe,
            _ => bulk / unit * unit,
        };
        let (mut next, mut under_way) = (0, 0);
        let mut done: Vec<Completion> = Vec::new();
        loop {
            // A failed fill ends it; after a failed read, later ranges may be readable.
            let on = !stop() && (!write || found.first_error.is_none());
            if under_way == 0 && (next >= self.area_bytes || !on) {
                break;
            }
            while on && under_way < BULK_DEPTH && next < self.area_bytes {
                let len = size.min(self.area_bytes - next);
                let sector = Sector(next / md::SECTOR_BYTES);
                let owner = self.shards[0].sharding().shard_of(sector);
                let shard = &mut self.shards[usize::from(owner)];
                let Some(mut lease) = shard.leases().take(len as usize) else { break };
                let op = if write { HostOp::Write { fua: false } } else { HostOp::Read };
                if write {
                    self.shadow.fill(0, next, lease.bytes_mut());
                }
                let tag = next;
                let sectors = len / md::SECTOR_BYTES;
                if shard.submit(op, sector, sectors, Some(lease), tag).is_err() {
                    break;
                }
                next += len;
                under_way += 1;
            }
            self.shards.iter_mut().for_each(|shard| shard.poll(&mut done));
            if done.is_empty() {
                // One thread serves all shards here: it must not sleep long for one of them.
                let limit = if self.shards.len() == 1 { 100 } else { 1 };
                let limit = Duration::from_millis(limit);
                self.shards.iter_mut().for_each(|shard| shard.wait(limit, None));
            }
            for end in done.drain(..) {
                under_way -= 1;
                self.judge(&end, write, &mut found);
            }
            progress(next as f64 / self.area_bytes.max(1) as f64);
        }
        found
    }

    fn judge(&self, end: &Completion, write: bool, found: &mut VerifyErrors) {
        if let Err(error) = end.result {
            found.failed(error);
        } else if !write {
            let bytes = end.lease.as_ref().map_or(&[][..], Lease::bytes);
            if let Err(position) = self.shadow.check(0, end.tag, bytes) {
                found.wrong(position);
            }
        }
    }
}

/// Leaves in order; `None` where one is missing.
type Leaves = Vec<Option<Box<dyn Member>>>;

/// The leaves of an array, created, and what they are on.
struct MadeLeaves {
    leaves: Leaves,
    claimed: ClaimedDevices,
    buffered: Vec<Arc<File>>,
}

/// Assembles the array from any subset of its leaves.
struct ArrayBuilder {
    expr: ArrayExpr,
    chunk_sectors: u64,
    member_sectors: u64,
    data_plane: DataPlaneConfig,
    options: DriverOptions,
    /// Every modelled drive, without duplicates.
    disks: Vec<Disk>,
    /// The leaves as they were made.
    leaves: Vec<(MemberExpr, Option<Disk>)>,
    directory: PathBuf,
}

/// The settings of a case's array, as the array takes them.
fn data_plane(config: &ArrayConfig) -> DataPlaneConfig {
    let Knobs { stripe_cache_bytes, queue_depth } = config.knobs;
    DataPlaneConfig {
        stripe_cache_bytes: stripe_cache_bytes.unwrap_or(DEFAULT_STRIPE_CACHE_BYTES),
        queue_depth: queue_depth.map_or(usize::MAX, |depth| depth as usize),
        ..DataPlaneConfig::default()
    }
}

/// An array with its members created, for a caller that runs it on separate threads; its modelled
/// disks; and its block devices: [`ClaimedDevices::begin`] before the first write, and a release
/// after the array.
///
/// # Errors
/// See [`Target::new`].
pub(crate) fn array_spec(
    config: &ArrayConfig,
    run: &RunConfig,
    requests: Requests,
    (pace, faults): (&PaceControl, &FaultControl),
) -> Result<(ArraySpec, DriverOptions, Vec<Disk>, ClaimedDevices), TargetError> {
    let (recipe, made) = ArrayBuilder::with_leaves(config, run, requests, pace, faults)?;
    let MadeLeaves { mut leaves, claimed, .. } = made;
    let array = recipe.array(&recipe.expr, &mut leaves)?;
    Ok((array, recipe.options, recipe.disks, claimed))
}

impl ArrayBuilder {
    /// The builder of an array, and its leaves, created.
    fn with_leaves(
        config: &ArrayConfig,
        run: &RunConfig,
        requests: Requests,
        pace: &PaceControl,
        faults: &FaultControl,
    ) -> Result<(ArrayBuilder, MadeLeaves), TargetError> {
        if config.members.len() != config.expr.leaves() {
            return Err(TargetError::MemberCount);
        }
        let claimed = ClaimedDevices::open(config, run.destroy_contents)?;
        let maker = MemberFactory {
            directory: &run.directory,
            pace,
            faults,
            sectors: config.member_bytes / md::SECTOR_BYTES,
            claimed: &claimed,
            buffered: RefCell::default(),
        };
        let (leases, lease_bytes) =
            buffers(requests.block_bytes, requests.in_flight * usize::from(run.shards()));
        let leases = leases + requests.spare;
        let disks = maker.disks(&config.members, config.topology);
        let whole = |disk: &&Disk| disk.is_first_part();
        let recipe = ArrayBuilder {
            disks: disks.iter().flatten().filter(whole).copied().collect(),
            leaves: config.members.iter().cloned().zip(disks.iter().copied()).collect(),
            directory: run.directory.clone(),
            expr: config.expr.clone(),
            chunk_sectors: config.chunk_bytes / md::SECTOR_BYTES,
            member_sectors: maker.sectors,
            data_plane: data_plane(config),
            options: DriverOptions {
                max_requests: leases.max(64),
                shards: run.shards(),
                leases,
                lease_bytes: lease_bytes as usize,
                kernels: run.kernels,
                // A slow member is a result, no fault.
                member_timeout: None,
                ..DriverOptions::default()
            },
        };
        let leaves = config.members.iter().zip(disks);
        let leaves = leaves.map(|(member, disk)| maker.make(member, disk).map(Some));
        let leaves = leaves.collect::<Result<Vec<_>, _>>()?;
        let buffered = maker.buffered.into_inner();
        Ok((recipe, MadeLeaves { leaves, claimed, buffered }))
    }

    /// The array over the present leaves. Leaves of a nested array that has too many missing leaves
    /// to serve are left unused.
    fn shards(&self, leaves: &mut [Option<Box<dyn Member>>]) -> Result<Vec<Driver>, TargetError> {
        let array = self.array(&self.expr, leaves)?;
        Ok(Driver::shards(array, &self.options)?)
    }

    fn array(
        &self,
        expr: &ArrayExpr,
        leaves: &mut [Option<Box<dyn Member>>],
    ) -> Result<ArraySpec, NestedError> {
        let mut members = Vec::new();
        match &expr.members {
            Members::Leaves(_) => members.extend(leaves.iter_mut().map(|leaf| match leaf.take() {
                Some(leaf) => MemberSpec::Ready(leaf),
                None => MemberSpec::Missing { sectors: self.member_sectors },
            })),
            Members::Arrays(arrays) => {
                let mut first = 0;
                for inner in arrays {
                    let own = &mut leaves[first..first + inner.leaves()];
                    let present: Vec<bool> = own.iter().map(Option::is_some).collect();
                    let shape = self.shape(inner)?;
                    members.push(match shape.enough(&present) {
                        true => MemberSpec::Array(self.array(inner, own)?),
                        false => MemberSpec::Missing { sectors: shape.bytes() / md::SECTOR_BYTES },
                    });
                    first += inner.leaves();
                }
            }
        }
        let chunk = expr.chunk.unwrap_or(self.chunk_sectors);
        Ok(ArraySpec {
            level: expr.level,
            layout: expr.layout.unwrap_or(Layout::default_for(expr.level)),
            chunk_sectors: if expr.level.has_chunks() { chunk } else { 0 },
            members,
            data_plane: self.data_plane,
        })
    }

    fn shape(&self, expr: &ArrayExpr) -> Result<Shape, NestedError> {
        let sectors = vec![self.member_sectors; expr.leaves()];
        let nested = NestedGeometry::new(expr, self.chunk_sectors, &sectors);
        nested.map(|nested| Shape::from(&nested))
    }

    /// Number of leaves of each member of the outermost array.
    fn leaves_of_members(&self) -> Vec<usize> {
        match &self.expr.members {
            Members::Leaves(count) => vec![1; *count],
            Members::Arrays(arrays) => arrays.iter().map(ArrayExpr::leaves).collect(),
        }
    }

    /// Sets of leaves that can be missing together: for each leaf the set that begins with it, in
    /// circular order. So each leaf is missing once, and data that it shares with another leaf is
    /// read from that leaf. On RAID 4 and 5 the first two sets need all parity: where one lacks the
    /// parity of a row, the other has it. On RAID 6 three disjoint sets would be sufficient.
    fn removable_sets(&self, present: &[bool]) -> Result<Vec<Vec<usize>>, NestedError> {
        let shape = self.shape(&self.expr)?;
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for start in 0..present.len() {
            let (mut there, mut out) = (present.to_vec(), Vec::new());
            for leaf in (start..present.len()).chain(0..start) {
                if std::mem::take(&mut there[leaf]) {
                    let spared = shape.enough(&there);
                    there[leaf] = !spared;
                    out.extend(spared.then_some(leaf));
                }
            }
            out.sort_unstable();
            if !out.is_empty() && !sets.contains(&out) {
                sets.push(out);
            }
        }
        match (self.expr.level, &self.expr.members) {
            (Level::Raid4 | Level::Raid5, Members::Leaves(_)) => sets.truncate(2),
            (Level::Raid6, Members::Leaves(_)) => sets.truncate(6),
            _ => {}
        }
        Ok(sets)
    }
}

#[cfg(test)]
mod tests {
    use spec::members::MemberSet;

    use super::*;
    use crate::verify::Miscompare;

    /// An array in memory, 3 MiB of it used.
    fn target(array: &str, members: &str) -> Target {
        let expr: ArrayExpr = array.parse().expect("an expression");
        let set: MemberSet = members.parse().expect("a set");
        let config = ArrayConfig {
            chunk_bytes: 64 << 10,
            knobs: Knobs { stripe_cache_bytes: Some(1 << 20), ..Knobs::default() },
            area_bytes: Some(3 << 20),
            ..ArrayConfig::new(expr, &set, 4 << 20).expect("an array")
        };
        let requests = Requests { block_bytes: 4096, unit_bytes: 4096, in_flight: 4, spare: 0 };
        Target::new(&config, &RunConfig::quick(), requests).expect("a target")
    }

    fn filled(array: &str, members: &str) -> Target {
        let mut target = target(array, members);
        target.fill(&|| false, &mut |_| {}).expect("filled");
        target
    }

    #[test]
    fn what_was_filled_is_there_with_and_without_members() {
        for array in [
            "linear(2)",
            "raid0(3)",
            "raid1(3)",
            "raid5(4)",
            "raid6(5)",
            "raid10,f2(3)",
            "raid1(raid0(2),raid5(3))",
            "raid5(raid1(2),raid0(2),raid0(2))",
        ] {
            let mut target = filled(array, "mem");
            assert!(target.check_all(&|| false).is_clean(), "{array}");
            let spared = target.verify_redundancy(&|| false).expect("put together again");
            let redundant = !["linear(2)", "raid0(3)"].contains(&array);
            assert_eq!(spared.is_some(), redundant, "{array}");
            assert!(spared.is_none_or(|proof| proof.found.is_clean()), "{array}");
        }
    }

    #[test]
    fn no_copy_and_no_parity_can_be_wrong_unseen() {
        for (array, leaves) in [
            ("raid1(3)", 3),
            ("raid4(3)", 3),
            ("raid5(4)", 4),
            ("raid5,parity-first(3)", 3),
            ("raid6(4)", 4),
            ("raid6(7)", 7),
            ("raid6,ddf-N-restart(5)", 5),
            ("raid6,left-symmetric-6(4)", 4),
            ("raid10(4)", 4),
            ("raid10(5)", 5),
            ("raid10,f2(3)", 3),
            ("raid10,o2(4)", 4),
            ("raid0(raid1(2),raid5(3))", 5),
            ("raid1(raid0(2),raid0(2))", 4),
        ] {
            for leaf in 0..leaves {
                // Every row of 64 KiB of the first 256 KiB, which all of these use.
                for row in 0..4 {
                    let bad = format!("fault:flip@{}:mem", row * 65536 + 100);
                    let set: Vec<&str> =
                        (0..leaves).map(|at| if at == leaf { &bad } else { "mem" }).collect();
                    let mut target = filled(array, &set.join("+"));
                    let proof = target.verify_redundancy(&|| false).expect("put together again");
                    let found = proof.expect("redundancy allows a removal").found;
                    assert!(!found.is_clean(), "{array}: leaf {leaf}, row {row}");
                }
            }
        }
    }

    #[test]
    fn leaves_failed_in_nested_arrays_are_reported_and_not_read_again() {
        let mut target = filled("raid0(raid1(2),raid1(2))", "mem*3+fault:gone@0:mem");
        assert!(target.check_all(&|| false).is_clean());
        for block in 0..target.area_bytes() / 65536 {
            let mut lease = target.shards[0].leases().take(65536).expect("a buffer");
            target.shadow.fill_next(block * 65536, lease.bytes_mut());
            let at = Sector(block * 128);
            let op = HostOp::Write { fua: false };
            target.shards[0].submit(op, at, 128, Some(lease), 0).expect("room");
            target.shards[0].poll(&mut Vec::new());
        }
        let proof = target.verify_redundancy(&|| false).expect("put together again");
        let proof = proof.expect("one of the other mirror can be spared");
        assert_eq!(proof.lost_inside, [3]);
        assert!(proof.found.is_clean(), "what leaf 3 holds is old: {:?}", proof.found);
    }

    #[test]
    fn outermost_members_are_taken_out_and_never_too_many() {
        let mut target = filled("raid1(raid0(2),raid0(2))", "mem");
        target.degrade(1).expect("one can go");
        assert_eq!(target.failed(), [0]);
        let before = target.shards[0].leaf_counters();
        assert!(target.check_all(&|| false).is_clean());
        let after = target.shards[0].leaf_counters();
        let read: Vec<bool> = after.iter().zip(&before).map(|(a, b)| a.reads > b.reads).collect();
        assert_eq!(read, [false, false, true, true]);
        let error = target.degrade(1).expect_err("the last one cannot").to_string();
        assert!(error.contains("cannot serve with 1 member(s) missing"), "{error}");
    }

    #[test]
    fn a_member_lost_before_degrading_is_remembered() {
        let mut target = filled("raid6(5)", "mem*4+fault:gone@2:mem");
        assert!(target.check_all(&|| false).is_clean());
        target.degrade(1).expect("one more");
        let events = target.take_events();
        let lost = events.iter().any(|event| {
            matches!(event, Event::MemberFailed { member, error: Some(_) } if member.0 == 4)
        });
        assert!(lost, "{events:?}");
        assert!(target.take_events().is_empty());
    }

    #[test]
    fn a_filled_area_is_wrong_after_silent_damage_and_old_data() {
        let mut target = filled("raid0(2)", "mem+fault:flip@0:mem");
        let found = target.check_all(&|| false);
        // The second chunk begins at 64 KiB.
        assert_eq!(found.first_wrong, Some(Miscompare { file: 0, at: 65536 }));
        assert_eq!((found.wrong_reads, found.failed_requests), (1, 0));
        // A version that was never written: the data on the members is stale.
        let mut target = filled("raid0(2)", "mem");
        target.shadow.fill_next(5 * 4096, &mut [0; 4096]);
        let found = target.check_all(&|| false);
        assert_eq!(found.first_wrong, Some(Miscompare { file: 0, at: 5 * 4096 + 8 }));
    }

    #[test]
    fn buffers_hold_every_block_and_shrink_where_they_are_many() {
        assert_eq!(buffers(4096, 1), (8, 1 << 20));
        assert_eq!(buffers(4096, 256), (256, 1 << 20));
        assert_eq!(buffers(4096, 257), (257, 512 << 10));
        assert_eq!(buffers(4096, 1 << 18), (1 << 18, 64 << 10));
        assert_eq!(buffers(16 << 20, 1 << 18), (1 << 18, 16 << 20));
        assert_eq!(buffers(2_000_384, 4), (8, 2_002_944));
    }
}
