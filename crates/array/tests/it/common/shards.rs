//! The array under test: on one shard, or on several that one thread drives in turn.
//!
//! A test file runs on one shard, and once more on several where it ends with
//! `testkit::repeat_in_shards`. Invariant: requests go to the shards in turn, so that most of them
//! are not their shard's own.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use md::{Geometry, MemberIdx, Sector};
use raidlab_array::{
    AddError, Array, ArrayExtent, ArraySpec, BackgroundStatus, BackgroundWork, BuildError,
    Completion, Counters, Driver, DriverOptions, Event, Full, HostOp, Lease, LeasePool, Member,
    MemberFlags, MemberInfo, MemberSpec, Mismatch, Pace, ScrubMode, ScrubStatus,
};
use testkit::shards;

/// Parts of the array that are one shard's in a row: small, so that requests span shards.
const UNIT_SECTORS: u64 = 64;

/// The options, with as many shards as the test has. Arrays of arrays have one.
pub fn in_shards(spec: &ArraySpec, options: &DriverOptions) -> DriverOptions {
    let nested = spec.members.iter().any(|member| matches!(member, MemberSpec::Array(_)));
    let shards = if nested { 1 } else { shards() };
    DriverOptions { shards, shard_unit_sectors: UNIT_SECTORS, ..options.clone() }
}

/// An array with its threads.
pub fn start(spec: ArraySpec, options: &DriverOptions) -> Result<Array, BuildError> {
    let options = in_shards(&spec, options);
    Array::start(spec, &options)
}

pub struct Shards {
    shards: Vec<Driver>,
    next: usize,
}

impl Shards {
    pub fn new(spec: ArraySpec, options: &DriverOptions) -> Result<Shards, BuildError> {
        let options = in_shards(&spec, options);
        Ok(Shards { shards: Driver::shards(spec, &options)?, next: 0 })
    }

    pub fn submit(
        &mut self,
        op: HostOp,
        at: Sector,
        sectors: u64,
        lease: Option<Lease>,
        tag: u64,
    ) -> Result<(), Full> {
        let shard = self.next;
        self.shards[shard].submit(op, at, sectors, lease, tag)?;
        self.next = (shard + 1) % self.shards.len();
        Ok(())
    }

    pub fn poll(&mut self, out: &mut Vec<Completion>) {
        self.shards.iter_mut().for_each(|shard| shard.poll(out));
    }

    pub fn wait(&mut self, limit: Duration, wake: Option<BorrowedFd<'_>>) {
        if let [only] = &mut self.shards[..] {
            return only.wait(limit, wake);
        }
        // What one waits for, another may have to do.
        let limit = limit.min(Duration::from_micros(200));
        self.shards.iter_mut().for_each(|shard| shard.wait(limit, wake));
    }

    pub fn room(&self) -> usize {
        self.shards[self.next].room()
    }

    pub fn leases(&self) -> &LeasePool {
        self.shards[0].leases()
    }

    pub fn geometry(&self) -> &Geometry {
        self.shards[0].geometry()
    }

    pub fn info(&self) -> MemberInfo {
        self.shards[0].info()
    }

    pub fn fail_member(&mut self, member: MemberIdx) {
        // By whichever shard.
        self.shards[self.next].fail_member(member);
    }

    pub fn failed(&self) -> engine::MemberSet {
        self.shards[0].failed()
    }

    /// Several shards may report the loss of one member, as in `Array::take_events`.
    pub fn take_events(&mut self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        for event in self.shards.iter_mut().flat_map(Driver::take_events) {
            let failed = |event: &Event| match event {
                Event::MemberFailed { member, .. } => Some(*member),
                _ => None,
            };
            if failed(&event).is_none() || !all.iter().any(|it| failed(it) == failed(&event)) {
                all.push(event);
            }
        }
        all
    }

    pub fn allocation(&self, range: std::ops::Range<u64>) -> Vec<ArrayExtent> {
        self.shards[0].allocation(range, usize::MAX)
    }

    pub fn late_operations(&self) -> usize {
        self.shards.iter().map(Driver::late_operations).sum()
    }

    pub fn add_member(&mut self, slot: MemberIdx, member: Box<dyn Member>) -> Result<(), AddError> {
        self.shards[0].add_member(slot, member)
    }

    pub fn add_member_as(
        &mut self,
        slot: MemberIdx,
        member: Box<dyn Member>,
        flags: MemberFlags,
    ) -> Result<(), AddError> {
        self.shards[0].add_member_as(slot, member, flags)
    }

    pub fn is_rebuilding(&self) -> bool {
        self.shards[0].is_rebuilding()
    }

    pub fn not_rebuilt(&self) -> Vec<(Option<MemberIdx>, Sector, u64)> {
        self.shards[0].not_rebuilt()
    }

    /// Members that are not in sync everywhere in some shard.
    pub fn lacking(&self) -> engine::MemberSet {
        let all = self.shards.iter().map(Driver::lacking);
        all.fold(engine::MemberSet::EMPTY, engine::MemberSet::union)
    }

    pub fn set_pace(&mut self, pace: Pace) {
        self.shards[0].set_pace(pace);
    }

    pub fn start_scrub(&mut self, mode: ScrubMode, from: u64) -> bool {
        self.shards[0].start_scrub(mode, from)
    }

    pub fn start_resync(&mut self) -> bool {
        self.shards[0].start_resync()
    }

    pub fn background(&self) -> Vec<BackgroundStatus> {
        self.shards[0].background()
    }

    pub fn background_done(&self, work: BackgroundWork) -> u64 {
        self.shards[0].background_done(work)
    }

    pub fn pause_background(&mut self, work: BackgroundWork, paused: bool) {
        self.shards[0].pause_background(work, paused);
    }

    pub fn cancel_background(&mut self, work: BackgroundWork) {
        self.shards[0].cancel_background(work);
    }

    pub fn begin_background(&mut self, work: BackgroundWork) -> bool {
        self.shards[0].begin_background(work)
    }

    pub fn stop_scrub(&mut self) {
        self.shards[0].stop_scrub();
    }

    pub fn scrub(&self) -> Option<ScrubStatus> {
        self.shards[0].scrub()
    }

    pub fn take_mismatches(&mut self) -> Vec<Mismatch> {
        let found = self.shards.iter_mut().flat_map(Driver::take_mismatches);
        found.map(|found| found.what).collect()
    }

    pub fn leaf_counters(&self) -> Vec<Counters> {
        let mut sum = self.shards[0].leaf_counters();
        for shard in &self.shards[1..] {
            sum.iter_mut().zip(&shard.leaf_counters()).for_each(|(sum, more)| sum.add(more));
        }
        sum
    }
}
