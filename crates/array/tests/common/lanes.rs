//! The array under test: on one lane, or on several that one thread drives in turn.
//!
//! A test file runs on one lane, and once more on [`SEVERAL`] as a module of `in_lanes.rs`: see
//! [`lanes`]. Invariant: requests go to the lanes in turn, so that most of them are not their
//! lane's own.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use array::{
    Array, ArraySpec, BuildError, Completion, Counters, Driver, DriverOptions, Event, MemberInfo,
    FormerLeaf, Full, HostOp, Lease, LeasePool, MemberSpec,
};
use md::{Geometry, MemberIdx, Sector};

const SEVERAL: u16 = 3;

/// Parts of the array that are one lane's in a row: small, so that requests span lanes.
const UNIT_SECTORS: u64 = 64;

/// How many lanes the test has.
pub fn lanes() -> u16 {
    if module_path!().starts_with("in_lanes") { SEVERAL } else { 1 }
}

/// The options, with as many lanes as the test has. Arrays of arrays have one.
pub fn in_lanes(spec: &ArraySpec, options: &DriverOptions) -> DriverOptions {
    let nested = spec.members.iter().any(|member| matches!(member, MemberSpec::Array(_)));
    let lanes = if nested { 1 } else { lanes() };
    DriverOptions { shards: lanes, shard_unit_sectors: UNIT_SECTORS, ..options.clone() }
}

/// An array with its threads.
pub fn start(spec: ArraySpec, options: &DriverOptions) -> Result<Array, BuildError> {
    let options = in_lanes(&spec, options);
    Array::start(spec, &options)
}

pub struct Lanes {
    lanes: Vec<Driver>,
    next: usize,
}

impl Lanes {
    pub fn new(spec: ArraySpec, options: &DriverOptions) -> Result<Lanes, BuildError> {
        let options = in_lanes(&spec, options);
        Ok(Lanes { lanes: Driver::shards(spec, &options)?, next: 0 })
    }

    pub fn submit(
        &mut self,
        op: HostOp,
        at: Sector,
        sectors: u64,
        lease: Option<Lease>,
        tag: u64,
    ) -> Result<(), Full> {
        let lane = self.next;
        self.lanes[lane].submit(op, at, sectors, lease, tag)?;
        self.next = (lane + 1) % self.lanes.len();
        Ok(())
    }

    pub fn poll(&mut self, out: &mut Vec<Completion>) {
        self.lanes.iter_mut().for_each(|lane| lane.poll(out));
    }

    pub fn wait(&mut self, limit: Duration, wake: Option<BorrowedFd<'_>>) {
        if let [only] = &mut self.lanes[..] {
            return only.wait(limit, wake);
        }
        // What one waits for, another may have to do.
        let limit = limit.min(Duration::from_micros(200));
        self.lanes.iter_mut().for_each(|lane| lane.wait(limit, wake));
    }

    pub fn room(&self) -> usize {
        self.lanes[self.next].room()
    }

    pub fn leases(&self) -> &LeasePool {
        self.lanes[0].leases()
    }

    pub fn geometry(&self) -> &Geometry {
        self.lanes[0].geometry()
    }

    pub fn facts(&self) -> MemberInfo {
        self.lanes[0].facts()
    }

    pub fn fail_member(&mut self, member: MemberIdx) {
        // By whichever lane.
        self.lanes[self.next].fail_member(member);
    }

    pub fn failed(&self) -> engine::MemberSet {
        self.lanes[0].failed()
    }

    /// Several lanes may report the loss of one member, as in `Array::take_events`.
    pub fn take_events(&mut self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        for event in self.lanes.iter_mut().flat_map(Driver::take_events) {
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

    pub fn leaf_counters(&self) -> Vec<Counters> {
        let mut sum = self.lanes[0].leaf_counters();
        for lane in &self.lanes[1..] {
            sum.iter_mut().zip(&lane.leaf_counters()).for_each(|(sum, more)| sum.add(more));
        }
        sum
    }

    pub fn into_leaves(self) -> Vec<FormerLeaf> {
        Driver::shards_into_leaves(self.lanes)
    }
}
