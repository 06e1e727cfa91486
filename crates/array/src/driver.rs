//! The loop that makes an array run, on whatever thread calls it.
//!
//! Invariant: the driver owns the memory of every request between `submit` and its completion. It
//! does nothing by itself: the caller submits, polls, and waits where nothing is to be had. Tests
//! and benchmarks call it directly; [`crate::Array`] gives it a thread of its own.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::{BufSlice, Control, HostOp, KeeperStatus, MAX_REQUEST_SECTORS, RequestError};
use md::{Geometry, MemberIdx, Sector};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::buf::{Lease, LeasePool, Region, Regions};
use crate::build::{ArraySpec, BuildError, Keeping, build, refuse_shared_files};
use crate::clerk::Clerk;
use crate::core::{Core, Event};
use crate::member::{Counters, Facts, FormerLeaf, Io, KernelDone, Ring};
use crate::table::Table;

/// How soon to try again when the kernel had no room for an operation.
const PUSHED_BACK: Duration = Duration::from_millis(1);

/// How an array is run.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Requests in the array at once; more are handed back.
    pub max_requests: usize,
    /// Host buffers.
    pub leases: usize,
    /// How long each of them is, in bytes; rounded up to 4 KiB.
    pub lease_bytes: usize,
    /// The parity code.
    pub kernels: parity::Kernels,
}

impl Default for DriverOptions {
    fn default() -> DriverOptions {
        DriverOptions {
            max_requests: engine::DEFAULT_MAX_REQUESTS,
            leases: 256,
            lease_bytes: 1 << 20,
            kernels: parity::Kernels::best(),
        }
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The host's name for it.
    pub tag: u64,
    /// How it ended.
    pub result: Result<(), RequestError>,
    /// Its buffer, back.
    pub lease: Option<Lease>,
}

/// What `submit` hands back when the array has no room: the lease, if there was one.
#[derive(Debug)]
pub struct Full(pub Option<Lease>);

struct Host {
    tag: u64,
    lease: Option<Lease>,
    /// A range of the array's own resync, from this position on: no host waits for it.
    resync: Option<Sector>,
}

/// See the module.
pub struct Driver {
    // Fields drop in this order: the ring waits for the kernel before the files and the memory go
    // (`Drop`), and host buffers return to their pool last.
    core: Core,
    clerk: Option<Clerk>,
    io: Io,
    hosts: Table<Host>,
    ended: Vec<(u64, Result<(), RequestError>)>,
    kernel: Vec<KernelDone>,
    leases: LeasePool,
}

/// Nanoseconds since the first driver of the process was made. All drivers share the clock, so that
/// they can share paced drives.
pub fn clock_nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// How long before a deadline a wait ends.
const WAKE_NANOS: u64 = 20_000;

/// Lets the waits of the calling thread end when they should, instead of up to 50 us later (the
/// kernel's default timer slack). [`crate::Array`] does this for its own thread; whoever calls
/// [`Driver::wait`] for paced members of solid drives wants it too.
pub fn wait_precisely() {
    // Where the kernel refuses, waits are a little longer: no reason to fail.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

impl Driver {
    /// Puts an array together and makes it ready to run.
    ///
    /// # Errors
    /// When the specification cannot work, or the system lacks what it needs.
    pub fn new(spec: ArraySpec, options: &DriverOptions) -> Result<Driver, BuildError> {
        Driver::build(spec, options, None)
    }

    /// An array whose metadata are kept by `clerk`, which is asked for when the memory is there.
    pub(crate) fn with_metadata(
        spec: ArraySpec,
        options: &DriverOptions,
        keeping: &Keeping,
        clerk: impl FnOnce(u64) -> Clerk,
    ) -> Result<Driver, BuildError> {
        let mut driver = Driver::build(spec, options, Some(keeping))?;
        // A resync on levels with copies works in a host buffer.
        let step = driver.leases.lease_bytes() as u64 / md::SECTOR_BYTES;
        let step = step.min(engine::DEFAULT_RESYNC_STEP) / 8 * 8;
        driver.clerk = Some(clerk(step));
        Ok(driver)
    }

    fn build(
        spec: ArraySpec,
        options: &DriverOptions,
        keeping: Option<&Keeping>,
    ) -> Result<Driver, BuildError> {
        let system = |doing| move |source| BuildError::System { doing, source };
        let mut regions = Regions::new().map_err(system("map the region of zeroes"))?;
        let mut core = build(spec, options.max_requests.max(1), &mut regions, keeping)?;
        refuse_shared_files(&core)?;
        core.number_leaves(&mut 0);
        let lease_bytes = options.lease_bytes.max(1).next_multiple_of(4096);
        let memory = Region::new((lease_bytes * options.leases.max(1)) as u64)
            .map_err(system("map the host buffers"))?;
        let memory = Arc::new(memory);
        let number = regions.add(memory.clone());
        let leases = LeasePool::new(memory, number, lease_bytes);
        let ring = core.facts().uses_ring.then(Ring::new).transpose();
        let ring = ring.map_err(system("set up io_uring"))?;
        let io = Io { ring, regions, kernels: options.kernels, now: clock_nanos() };
        let (hosts, ended, kernel) = (Table::new(), Vec::new(), Vec::new());
        Ok(Driver { core, clerk: None, io, hosts, ended, kernel, leases })
    }

    /// The array's shape.
    pub fn geometry(&self) -> &Geometry {
        self.core.geometry()
    }

    /// The array's size and what holds for all of its members.
    pub fn facts(&self) -> Facts {
        self.core.facts()
    }

    /// The pool that request buffers come from.
    pub fn leases(&self) -> &LeasePool {
        &self.leases
    }

    /// How many more requests can be submitted now.
    pub fn room(&self) -> usize {
        self.core.room()
    }

    /// Submits a request. Reads and writes bring a lease of exactly their length.
    ///
    /// # Errors
    /// Hands the lease back when there is no room; poll, and try again.
    ///
    /// # Panics
    /// When the length is more than [`MAX_REQUEST_SECTORS`], or is not the lease's, or the lease is
    /// of another array.
    pub fn submit(
        &mut self,
        op: HostOp,
        at: Sector,
        sectors: u64,
        lease: Option<Lease>,
        tag: u64,
    ) -> Result<(), Full> {
        assert!(
            sectors <= MAX_REQUEST_SECTORS,
            "requests have at most {MAX_REQUEST_SECTORS} sectors"
        );
        if self.core.room() == 0 {
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
        let host = self.hosts.insert(Host { tag, lease, resync: None });
        self.core.submit(op, at, sectors, buf, u64::from(host));
        Ok(())
    }

    /// Does everything that can be done now and adds what has completed. Never waits.
    pub fn poll(&mut self, out: &mut Vec<Completion>) {
        self.io.now = clock_nanos();
        self.reap();
        self.feed_resync();
        self.core.turn(&mut self.io, &mut self.ended);
        self.keep_metadata();
        if let Some(ring) = &mut self.io.ring {
            ring.submit();
        }
        for (host, result) in self.ended.drain(..) {
            let Host { tag, lease, resync } = self.hosts.remove(host as u32);
            match (resync, &mut self.clerk) {
                (Some(at), Some(clerk)) => clerk.resync_done(at, result.is_ok()),
                _ => out.push(Completion { tag, result, lease }),
            }
        }
    }

    /// Gives the array the next ranges of its resync, while there is room for hosts as well.
    fn feed_resync(&mut self) {
        let Some(clerk) = &mut self.clerk else { return };
        let needs_memory = !self.core.geometry().level().has_parity();
        while clerk.resyncs() && self.core.room() > 1 {
            let len = if needs_memory { self.leases.lease_bytes() } else { 0 };
            let mut lease = None;
            if needs_memory {
                lease = self.leases.take(len);
                if lease.is_none() {
                    return;
                }
            }
            let Some((at, sectors)) = clerk.next_resync() else { return };
            if let Some(lease) = &mut lease {
                lease.set_len((sectors * md::SECTOR_BYTES) as usize);
            }
            let buf = lease.as_ref().map_or(BufSlice::default(), Lease::slice);
            let host = self.hosts.insert(Host { tag: 0, lease, resync: Some(at) });
            self.core.submit(HostOp::Resync, at, sectors, buf, u64::from(host));
        }
    }

    /// Has the metadata written that the array waits for, and lets it go on.
    fn keep_metadata(&mut self) {
        let Some(clerk) = &mut self.clerk else { return };
        let mut controls = Vec::new();
        loop {
            clerk.turn(self.io.now, self.core.for_keeper(), &mut controls);
            if controls.is_empty() {
                return;
            }
            controls.drain(..).for_each(|control| self.core.control(control));
            self.core.turn(&mut self.io, &mut self.ended);
        }
    }

    /// What the array's metadata say; `None` for an array without any.
    pub fn metadata(&self) -> Option<KeeperStatus> {
        self.clerk.as_ref().map(Clerk::status)
    }

    /// What has gone wrong with metadata since the last call: sentences.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.clerk.as_mut().map(Clerk::take_notes).unwrap_or_default()
    }

    /// Whether redundancy is being made right: see [`KeeperStatus::resync_offset`] for how far.
    pub fn is_resyncing(&self) -> bool {
        self.clerk.as_ref().is_some_and(|clerk| clerk.resyncs())
    }

    /// Pauses the resync, or goes on with it.
    pub fn pause_resync(&mut self, paused: bool) {
        if let Some(clerk) = &mut self.clerk {
            clerk.pause_resync(paused);
        }
    }

    /// Stops an array with metadata: what is under way ends, everything is made durable, and the
    /// superblocks say that it was stopped. A driver that is dropped without this leaves the array
    /// as a crash would. Says whether the next start finds it clean; an array without metadata is.
    ///
    /// # Panics
    /// When requests of hosts are under way.
    pub fn stop(&mut self) -> bool {
        let none = |out: &[Completion]| assert!(out.is_empty(), "requests are under way");
        let (mut out, step) = (Vec::new(), Duration::from_millis(100));
        self.pause_resync(true);
        self.poll(&mut out);
        while self.clerk.as_ref().is_some_and(Clerk::resync_is_at_work) {
            self.wait(step, None);
            self.poll(&mut out);
            none(&out);
        }
        none(&out);
        assert!(self.hosts.is_empty(), "requests are under way");
        let Some(clerk) = &mut self.clerk else { return true };
        clerk.stop();
        loop {
            self.poll(&mut out);
            if let Some(clean) = self.clerk.as_ref().and_then(Clerk::stopped) {
                return clean;
            }
            self.wait(step, None);
        }
    }

    fn reap(&mut self) {
        let Some(ring) = &mut self.io.ring else {
            return self.core.reap_members(&mut self.io);
        };
        if ring.in_flight() > 0 {
            ring.reap(&mut self.kernel);
        }
        for event in self.kernel.drain(..) {
            self.core.kernel_done(event, &mut self.io);
        }
        self.core.reap_members(&mut self.io);
    }

    /// Waits until a `poll` may have something to do, `limit` at most, or `wake` becomes readable.
    pub fn wait(&mut self, limit: Duration, wake: Option<std::os::fd::BorrowedFd<'_>>) {
        let clerk_works = |clerk: &Clerk| clerk.has_work() || clerk.may_resync();
        if self.core.has_work() || self.clerk.as_ref().is_some_and(clerk_works) {
            return;
        }
        let mut limit = limit;
        if let Some(ring) = &mut self.io.ring {
            if ring.has_ended() {
                return;
            }
            if ring.is_pushed_back() {
                limit = limit.min(PUSHED_BACK);
            }
        }
        let now = clock_nanos();
        let until = now.saturating_add(limit.as_nanos() as u64);
        // Waking up takes a while: the last stretch before a deadline is spent polling.
        let of_clerk = self.clerk.as_ref().and_then(Clerk::deadline);
        let deadline = self.core.deadline().into_iter().chain(of_clerk).min();
        let deadline = deadline.map(|at| at.saturating_sub(WAKE_NANOS));
        let until = deadline.map_or(until, |at| at.min(until));
        let left = Duration::from_nanos(until.saturating_sub(now));
        if left.is_zero() {
            return;
        }
        let ring = self.io.ring.as_ref().filter(|ring| ring.in_flight() > 0);
        let fds = ring.map(Ring::fd).into_iter().chain(wake);
        let mut fds: arrayvec::ArrayVec<PollFd<'_>, 2> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // An interrupted or failed wait is a short one: the caller polls either way.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }

    /// Takes a member out of service, as `mdadm --fail` does. Refused silently by the engine when
    /// the array cannot do without it; see [`Driver::take_events`].
    pub fn fail_member(&mut self, member: MemberIdx) {
        self.core.control(Control::FailMember(member));
    }

    /// Members out of service.
    pub fn failed(&self) -> engine::MemberSet {
        self.core.failed()
    }

    /// What has happened to members since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.core.take_events().collect()
    }

    /// Takes the array apart and gives its leaves back, in slot order, so that another array can be
    /// put together from them. Waits for what members still do behind requests that have ended.
    ///
    /// # Panics
    /// When requests are under way.
    pub fn into_leaves(mut self) -> Vec<FormerLeaf> {
        assert!(self.hosts.is_empty(), "requests are under way");
        let mut none = Vec::new();
        self.poll(&mut none);
        while !self.core.is_quiet() {
            self.wait(Duration::from_millis(100), None);
            self.poll(&mut none);
        }
        let mut leaves = Vec::new();
        self.core.take_apart(true, &mut leaves);
        leaves
    }

    /// What every leaf of the array has moved, in slot order.
    pub fn leaf_counters(&self) -> Vec<Counters> {
        let mut counters = Vec::new();
        self.core.leaf_counters(&mut counters);
        counters
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Waits for what the kernel still works on, while its files are open and its memory lives.
        self.io.ring = None;
    }
}
