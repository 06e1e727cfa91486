//! A workload on a machine, in virtual time: the engine on paced members, a program with a thread
//! in front of it, a network behind it, a bitmap beside it; and what counters show.
//!
//! ```text
//!   program's thread --> raid thread (parity writes) --> bitmap, if its bit is not set
//!        ^                                                      |
//!        '---- network <---- engine on paced members <----------'
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Duration;

use array::{
    ArraySpec, Counters, DataPlaneConfig, Driver, DriverOptions, HostOp, Member, MemberSpec,
    NullMember, Pace, PaceControl, PacedMember, ScrubMode,
};
use drive::Placement;
use host::sys::clock_nanos;
use md::{Layout, Level, Sector};
use predict::calibrate::{Limit, Machine as Probed, MachineError, Measured, Scratch, Stream};
use predict::diagnose::{CpuSample, MemberSample, Network, Sample, Thread, Traffic};
use raidlab_bench::probed::ProbedDisks;
use testkit::Rng;

use crate::machine::{Background, Kind, Machine};

/// Sectors at the end of each disk, where a bitmap is.
const BITMAP_SECTORS: u64 = 2048;
/// Bytes of the array for each bit of a bitmap.
const REGION: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// What was measured, as diskstats, top and ip show it.
pub struct Ran {
    /// MB/s, or operations per second of random workloads.
    pub figure: f64,
    pub sample: Sample,
}

/// The disks of a machine, wired.
fn disks(machine: &Machine, control: &PaceControl) -> Vec<drive::DriveId> {
    let buses: Vec<_> = machine.buses.iter().map(|(rate, _)| control.add_bus(*rate)).collect();
    let channels: Vec<_> = machine.channels.iter().map(|_| control.add_channel()).collect();
    let mut all = Vec::new();
    for (disk, profile) in machine.disks.iter().enumerate() {
        let bus = machine.buses.iter().position(|(_, on_it)| on_it.contains(&disk));
        let channel = machine.channels.iter().position(|on_it| on_it.contains(&disk));
        let bytes = sectors(machine) * 512;
        let (bus, channel) = (bus.map(|at| buses[at]), channel.map(|at| channels[at]));
        all.push(control.add_disk(profile, Placement::Window { at: 0.0 }, bytes, bus, channel));
    }
    all
}

/// Sectors of the smallest disk.
fn sectors(machine: &Machine) -> u64 {
    let least = machine.disks.iter().map(drive::Profile::capacity_bytes).min().unwrap_or(0);
    // No machine's array is larger than what the engine's tests use.
    least.min(2 << 40) / MIB * 2048
}

fn member(control: &PaceControl, disk: drive::DriveId, at: u64, sectors: u64) -> Box<dyn Member> {
    Box::new(PacedMember::part(Box::new(NullMember::new(sectors)), control, disk, at))
}

fn driver(level: Level, machine: &Machine, members: Vec<Box<dyn Member>>, cache: u64) -> Driver {
    let layout = match level {
        Level::Raid1 => Layout::default_for(Level::Raid1),
        level => Layout::default_for(level),
    };
    let spec = ArraySpec {
        level,
        layout,
        chunk_sectors: machine.chunk_kib * 2,
        members: members.into_iter().map(MemberSpec::Ready).collect(),
        data_plane: DataPlaneConfig { stripe_cache_bytes: cache, ..DataPlaneConfig::default() },
    };
    let options = DriverOptions {
        max_requests: 512,
        leases: 256,
        lease_bytes: MIB as usize,
        member_timeout: None,
        pace: Pace { foreground_share: 0, ..Pace::default() },
        ..DriverOptions::default()
    };
    Driver::new(spec, &options).expect("an array")
}

/// A request on its way.
#[derive(Clone, Copy)]
struct Request {
    at: u64,
    begun: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The program's thread has done its part: the array has the request.
    Give,
    /// The raid thread has, too.
    Submit,
    /// All of it has arrived.
    Arrive,
}

struct Run<'m> {
    machine: &'m Machine,
    array: Driver,
    bitmap: Option<Driver>,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    steps: BinaryHeap<Reverse<(u64, Step, usize)>>,
    /// When each of them is free: the program's thread, the raid thread, the network.
    free_at: [u64; 3],
    busy: [u64; 3],
    set: HashSet<u64>,
    /// Waiting for a bit, and those for which bits are being written.
    waiting: Vec<usize>,
    writing: Vec<usize>,
    next: Vec<u64>,
    rng: Rng,
    completed: u64,
    queued: u64,
    /// Time with a request in flight.
    used: u64,
    since: u64,
    in_flight: u64,
}

impl<'m> Run<'m> {
    fn new(machine: &'m Machine) -> Run<'m> {
        let control = PaceControl::default();
        let disks = disks(machine, &control);
        let all = sectors(machine);
        let member = |at: u64, sectors: u64| {
            disks.iter().map(|disk| member(&control, *disk, at * 512, sectors)).collect::<Vec<_>>()
        };
        let data = all - BITMAP_SECTORS;
        let cache = machine.stripe_cache * 4096 * disks.len() as u64;
        let mut array = driver(machine.level, machine, member(0, data), cache);
        if machine.missing {
            array.fail_member(md::MemberIdx(1));
        }
        match machine.background {
            Some(Background::Check) => assert!(array.start_scrub(ScrubMode::Check, 0)),
            Some(Background::Resync) => assert!(array.start_resync()),
            None => {}
        }
        let bitmap = machine
            .bitmap
            .then(|| driver(Level::Raid1, machine, member(data, BITMAP_SECTORS), 1 << 20));
        let depth = machine.load.depth;
        let streams = machine.load.streams.max(1);
        let size = array.info().sectors * 512;
        let each = size / streams as u64 / MIB * MIB;
        Run {
            machine,
            array,
            bitmap,
            requests: vec![None; depth],
            free: (0..depth).collect(),
            steps: BinaryHeap::new(),
            free_at: [0; 3],
            busy: [0; 3],
            set: HashSet::new(),
            waiting: Vec::new(),
            writing: Vec::new(),
            next: (0..streams as u64).map(|stream| stream * each).collect(),
            rng: Rng::new(7),
            completed: 0,
            queued: 0,
            used: 0,
            since: clock_nanos(),
            in_flight: 0,
        }
    }

    fn writes(&self) -> bool {
        matches!(self.machine.load.kind, Kind::SeqWrite | Kind::StreamsWrite | Kind::RandWrite)
    }

    fn address(&mut self) -> u64 {
        let load = &self.machine.load;
        let (block, size) = (load.block, self.array.info().sectors * 512);
        match load.kind {
            Kind::SeqRead | Kind::SeqWrite | Kind::StreamsWrite => {
                let stream = self.rng.index(self.next.len());
                let at = self.next[stream];
                self.next[stream] = if at + 2 * block <= size { at + block } else { 0 };
                at
            }
            Kind::RandRead | Kind::RandWrite => match load.stride {
                Some(stride) => self.rng.below(size / stride) * stride,
                None => self.rng.below(size / block) * block,
            },
        }
    }

    /// Serial work of a thread, or of a wire, that begins now at the earliest.
    fn serve(&mut self, server: usize, now: u64, took: f64) -> u64 {
        let begin = self.free_at[server].max(now);
        self.free_at[server] = begin + took as u64;
        self.busy[server] += took as u64;
        self.free_at[server]
    }

    fn pass(&mut self, now: u64) {
        self.queued += (now - self.since) * self.in_flight;
        self.used += (now - self.since) * self.in_flight.min(1);
        self.since = now;
    }

    fn begin_requests(&mut self, now: u64) {
        let host = self.machine.host;
        let kib = self.machine.load.block as f64 / 1024.0;
        while let Some(slot) = self.free.pop() {
            let at = self.address();
            self.requests[slot] = Some(Request { at, begun: now });
            let took = (host.us_per_request + host.us_per_kib * kib) * 1e3;
            let ready = self.serve(0, now, took);
            self.steps.push(Reverse((ready, Step::Give, slot)));
        }
    }

    /// As in md's counters, a request is in flight while it waits for the raid thread and for its
    /// bit of the bitmap.
    fn give(&mut self, slot: usize, now: u64) {
        self.pass(now);
        self.in_flight += 1;
        let mut ready = now;
        if self.writes() && self.machine.level.has_parity() {
            let kib = self.machine.load.block as f64 / 1024.0;
            ready = self.serve(1, now, self.machine.host.parity_us_per_kib * kib * 1e3);
        }
        self.steps.push(Reverse((ready, Step::Submit, slot)));
    }

    fn submit(&mut self, slot: usize) {
        let Request { at, .. } = self.requests[slot].expect("a request");
        if self.writes() && self.bitmap.is_some() && !self.set.contains(&(at / REGION)) {
            self.waiting.push(slot);
            return self.write_bits();
        }
        let block = self.machine.load.block;
        let op = if self.writes() { HostOp::Write { fua: false } } else { HostOp::Read };
        let lease = self.array.leases().take(block as usize).expect("a lease for each request");
        let given = self.array.submit(op, Sector(at / 512), block / 512, Some(lease), slot as u64);
        assert!(given.is_ok(), "there is room for the depth");
    }

    /// One write, and a flush, for all bits that are waited for.
    fn write_bits(&mut self) {
        let Some(bitmap) = self.bitmap.as_mut() else { return };
        if !self.writing.is_empty() || self.waiting.is_empty() {
            return;
        }
        self.writing = std::mem::take(&mut self.waiting);
        let lease = bitmap.leases().take(4096).expect("a lease");
        let at = Sector(0);
        assert!(bitmap.submit(HostOp::Write { fua: false }, at, 8, Some(lease), 0).is_ok());
    }

    fn poll_bitmap(&mut self) {
        let mut done = Vec::new();
        let Some(bitmap) = self.bitmap.as_mut() else { return };
        bitmap.poll(&mut done);
        for completion in done {
            completion.result.expect("a write of the bitmap");
            if completion.tag == 0 {
                let bitmap = self.bitmap.as_mut().expect("a bitmap");
                assert!(bitmap.submit(HostOp::Flush, Sector(0), 0, None, 1).is_ok());
                continue;
            }
            for slot in std::mem::take(&mut self.writing) {
                let at = self.requests[slot].expect("a request").at;
                self.set.insert(at / REGION);
                self.submit(slot);
            }
            self.write_bits();
        }
    }

    fn run_until(&mut self, end: u64) {
        let mut done = Vec::new();
        loop {
            let now = clock_nanos();
            if now >= end {
                return self.pass(now);
            }
            self.begin_requests(now);
            while let Some(Reverse((at, step, slot))) = self.steps.peek().copied() {
                if at > now {
                    break;
                }
                self.steps.pop();
                match step {
                    Step::Give => self.give(slot, now),
                    Step::Submit => self.submit(slot),
                    Step::Arrive => {
                        self.requests[slot] = None;
                        self.free.push(slot);
                        self.completed += 1;
                    }
                }
            }
            self.array.poll(&mut done);
            for completion in done.drain(..) {
                completion.result.expect("a request of the workload");
                self.pass(now);
                self.in_flight -= 1;
                let slot = completion.tag as usize;
                let begun = self.requests[slot].expect("a request").begun;
                assert!(begun <= now);
                let bytes = self.machine.load.block as f64;
                let arrives = match self.machine.host.network_mb_per_s {
                    Some(rate) => self.serve(2, now, bytes * 1e3 / rate),
                    None => now,
                };
                self.steps.push(Reverse((arrives, Step::Arrive, slot)));
            }
            self.poll_bitmap();
            let next = self.steps.peek().map_or(end, |Reverse((at, ..))| (*at).min(end));
            if next > now && self.free.is_empty() {
                // Both are on the same disks, which have one next event.
                match &mut self.bitmap {
                    Some(bitmap) if !self.writing.is_empty() => {
                        bitmap.wait(Duration::from_nanos(next - now), None);
                    }
                    _ => self.array.wait(Duration::from_nanos(next - now), None),
                }
            }
        }
    }

    fn counters(&self) -> Vec<Counters> {
        let mut all = self.array.leaf_counters();
        if let Some(bitmap) = &self.bitmap {
            for (one, own) in all.iter_mut().zip(bitmap.leaf_counters()) {
                // Both parts report the load of the whole disk.
                one.add(&Counters { busy_ns: None, queued_ns: None, ..own });
            }
        }
        all
    }
}

/// Runs the machine's workload.
pub fn run(machine: &Machine) -> Ran {
    let mut run = Run::new(machine);
    let (warm_up, seconds) = machine.seconds();
    let begin = clock_nanos() + (warm_up * 1e9) as u64;
    run.run_until(begin);
    let (before, completed, busy, queued) = (run.counters(), run.completed, run.busy, run.queued);
    let used = run.used;
    let begun = clock_nanos();
    run.run_until(begun + (seconds * 1e9) as u64);
    let took = (clock_nanos() - begun) as f64 / 1e9;
    let requests = (run.completed - completed) as f64 / took;
    let mb = requests * machine.load.block as f64 / 1e6;
    let queue = Some((run.queued - queued) as f64 / 1e9 / took);
    let array = match run.writes() {
        false => Traffic { reads: requests, read_mb: mb, queue, ..Traffic::default() },
        true => Traffic { writes: requests, write_mb: mb, queue, ..Traffic::default() },
    };
    // md counts no flushes.
    let in_use = Some((run.used - used) as f64 / 1e9 / took);
    let array = Traffic { flushes: None, busy: in_use, ..array };
    let counters = run.counters();
    let members = counters.iter().zip(&before).enumerate().map(|(at, (now, before))| {
        let did = now.since(before);
        let per_s = |count: u64| count as f64 / took;
        let share = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9 / took);
        let traffic = Traffic {
            reads: per_s(did.reads),
            writes: per_s(did.writes),
            read_mb: per_s(did.read_bytes) / 1e6,
            write_mb: per_s(did.written_bytes) / 1e6,
            flushes: Some(per_s(did.flushes)),
            queue: share(did.queued_ns),
            busy: share(did.busy_ns),
        };
        MemberSample { name: format!("sd{}", (b'a' + at as u8) as char), traffic }
    });
    let members = members.collect();
    let cpus = |server: usize| (run.busy[server] - busy[server]) as f64 / 1e9 / took;
    let thread = |name: &str, server: usize, kernel: bool| Thread {
        name: name.into(),
        cpus: cpus(server).min(1.0),
        kernel,
        io: (!kernel).then_some(true),
    };
    let mut threads = vec![thread("fio", 0, false), thread("md0_raid5", 1, true)];
    threads.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    let cpu = CpuSample { busy: (cpus(0) + cpus(1)).min(2.0) / 4.0, cpus: 4, threads };
    let network = machine
        .host
        .network_mb_per_s
        .map(|rate| Network { mb_per_s: mb, limit_mb_per_s: Some(rate) });
    let sample = Sample { array, members, cpu: Some(cpu), network };
    let figure = if machine.load.kind.is_random() { requests } else { mb };
    Ran { figure, sample }
}

/// The machine's disks for probes; CPU time is counted as that of the program.
pub struct Probes<'s> {
    disks: ProbedDisks<'s>,
    us_per_kib: f64,
    us_per_request: f64,
    used: f64,
}

impl<'s> Probes<'s> {
    pub fn new(machine: &Machine, stop: &'s dyn Fn() -> bool) -> Probes<'s> {
        let control = PaceControl::default();
        let all = sectors(machine);
        // The scratch area is a part of the first disk.
        let scratch = (16_u64 << 30).min(all * 512 / 4) / 512;
        let wired = disks(machine, &control);
        let named = wired.iter().enumerate().map(|(at, disk)| {
            (format!("sd{}", (b'a' + at as u8) as char), member(&control, *disk, 0, all))
        });
        let at = all / 2 / 2048 * 2048 * 512;
        let area = member(&control, wired[0], at, scratch);
        let disks = ProbedDisks::new(named.collect(), Some(area), stop).expect("disks");
        let host = machine.host;
        Probes {
            disks,
            us_per_kib: host.us_per_kib,
            us_per_request: host.us_per_request,
            used: 0.0,
        }
    }
}

impl Probed for Probes<'_> {
    fn disks(&self) -> usize {
        self.disks.disks()
    }

    fn bytes(&self, disk: usize) -> u64 {
        self.disks.bytes(disk)
    }

    fn scratch(&self) -> Option<Scratch> {
        self.disks.scratch()
    }

    fn run(&mut self, streams: &[Stream], limit: Limit) -> Result<Vec<Measured>, MachineError> {
        let ran = self.disks.run(streams, limit)?;
        for (one, stream) in ran.iter().zip(streams) {
            let each = self.us_per_request + self.us_per_kib * stream.block as f64 / 1024.0;
            self.used += one.requests() as f64 * each / 1e6;
        }
        Ok(ran)
    }

    fn rest(&mut self, nanos: u64) {
        self.disks.rest(nanos);
    }

    fn cpu_seconds(&self) -> Option<f64> {
        Some(self.used)
    }
}
