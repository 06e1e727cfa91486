//! Disks that `calibrate` probes, in real time: each is read through the engine's own I/O, and only
//! a scratch member is written.
//!
//! ```text
//!   probe ---> stream of requests ---> linear array of the disks (and the scratch member) ---> I/O
//! ```
//!
//! Invariant: no write goes to anything but the scratch member.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use array::{
    ArraySpec, BuildError, Completion, DataPlaneConfig, Driver, DriverOptions, FaultControl,
    HostOp, Member, MemberSpec, PaceControl,
};
use host::sys::clock_nanos;
use md::{Layout, Level, Sector};
use predict::calibrate::{
    Access, Addresses, Limit, Machine, MachineError, Measured, Scratch, Stream,
};
use rustix::time::{ClockId, clock_gettime};
use spec::members::MemberExpr;

use crate::member_factory::MemberFactory;
use crate::provision::ClaimedDevices;
use crate::target_error::TargetError;

/// Most requests in flight: thirty-two of the longest probes, and more of short ones.
const IN_FLIGHT_MAX: usize = 256;
/// Longest request.
const BLOCK_MAX: usize = 1 << 20;
/// Disks begin at multiples of it in the array; the rest of a disk is not probed.
const ROUND: u64 = 2048;
/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// A scratch file in a directory; it has no name, so that it is gone when the process ends.
///
/// # Errors
/// It cannot be made: the directory, or its space.
pub fn scratch_file(directory: &Path, bytes: u64) -> Result<Box<dyn Member>, TargetError> {
    let (pace, faults) = (PaceControl::default(), FaultControl::default());
    let factory = MemberFactory {
        directory,
        pace: &pace,
        faults: &faults,
        sectors: bytes / md::SECTOR_BYTES,
        claimed: &ClaimedDevices::default(),
        buffered: RefCell::default(),
    };
    factory.make(&MemberExpr::File(None), None)
}

/// Disks, and a member that is written.
pub struct ProbedDisks<'s> {
    driver: Driver,
    names: Vec<String>,
    /// First sector, and sectors, of each disk in the array; the last one is the scratch member.
    places: Vec<(u64, u64)>,
    has_scratch: bool,
    stop: &'s dyn Fn() -> bool,
}

impl<'s> ProbedDisks<'s> {
    /// Disks with their names, and what may be written. `stop` is polled.
    ///
    /// # Errors
    /// They cannot be put together: none, or too small.
    pub fn new(
        disks: Vec<(String, Box<dyn Member>)>,
        scratch: Option<Box<dyn Member>>,
        stop: &'s dyn Fn() -> bool,
    ) -> Result<ProbedDisks<'s>, BuildError> {
        let has_scratch = scratch.is_some();
        let named = scratch.map(|member| ("the scratch file".to_string(), member));
        let (names, members): (Vec<_>, Vec<_>) = disks.into_iter().chain(named).unzip();
        let mut places = Vec::new();
        let mut first = 0;
        for member in &members {
            let sectors = member.info().sectors / ROUND * ROUND;
            places.push((first, sectors));
            first += sectors;
        }
        let array = ArraySpec {
            level: Level::Linear,
            layout: Layout::default_for(Level::Linear),
            chunk_sectors: ROUND,
            members: members.into_iter().map(MemberSpec::Ready).collect(),
            data_plane: DataPlaneConfig::default(),
        };
        let options = DriverOptions {
            max_requests: IN_FLIGHT_MAX,
            leases: IN_FLIGHT_MAX,
            lease_bytes: BLOCK_MAX,
            // A slow disk is a result, no fault.
            member_timeout: None,
            ..DriverOptions::default()
        };
        let driver = Driver::new(array, &options)?;
        Ok(ProbedDisks { driver, names, places, has_scratch, stop })
    }

    /// Writes all of the scratch member: a file that was never written is read without its disk.
    ///
    /// # Errors
    /// A write fails, or it is stopped.
    pub fn prepare_scratch(&mut self) -> Result<(), MachineError> {
        let Some(Scratch { disk, at, bytes }) = self.scratch() else { return Ok(()) };
        let block = BLOCK_MAX as u64;
        let access = Access::Sequential { at, run: block, skip: 0 };
        let all = Limit { nanos: u64::MAX / 2, requests: bytes / block };
        self.run(&[Stream::writes(disk, access, block, 8)], all)?;
        let last = Stream { flush: true, ..Stream::writes(disk, access, block, 1) };
        self.run(&[last], Limit { requests: 1, ..all })?;
        Ok(())
    }

    fn submit(&mut self, stream: &Stream, op: HostOp, at: u64, tag: u64) {
        let (first, _) = self.places[stream.disk];
        let sectors = stream.block / md::SECTOR_BYTES;
        let (sectors, lease) = match op {
            HostOp::Flush => (0, None),
            _ => (sectors, self.driver.leases().take(stream.block as usize)),
        };
        assert!(op == HostOp::Flush || lease.is_some(), "probes keep fewer requests in flight");
        let at = Sector(first + at / md::SECTOR_BYTES);
        let submitted = self.driver.submit(op, at, sectors, lease, tag);
        assert!(submitted.is_ok(), "probes keep fewer requests in flight");
    }

    /// What completes, or nothing if there is a stop to be looked for first.
    fn wait(&mut self, done: &mut Vec<Completion>) {
        self.driver.poll(done);
        if done.is_empty() {
            self.driver.wait(LOOK, None);
            self.driver.poll(done);
        }
    }
}

/// A stream that runs.
struct Running {
    addresses: Addresses,
    in_flight: usize,
    measured: Measured,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Flight {
    stream: usize,
    submitted: u64,
    is_flush: bool,
}

impl Machine for ProbedDisks<'_> {
    fn disks(&self) -> usize {
        self.places.len() - usize::from(self.has_scratch)
    }

    fn bytes(&self, disk: usize) -> u64 {
        self.places[disk].1 * md::SECTOR_BYTES
    }

    fn scratch(&self) -> Option<Scratch> {
        self.has_scratch.then(|| {
            let disk = self.places.len() - 1;
            Scratch { disk, at: 0, bytes: self.bytes(disk) }
        })
    }

    fn run(&mut self, streams: &[Stream], limit: Limit) -> Result<Vec<Measured>, MachineError> {
        let writes_elsewhere = |stream: &Stream| {
            stream.write && self.scratch().is_none_or(|area| area.disk != stream.disk)
        };
        if streams.iter().any(writes_elsewhere) {
            return Err(MachineError::NotScratch);
        }
        let mut running: Vec<Running> = streams
            .iter()
            .map(|stream| Running {
                addresses: Addresses::new(stream, self.bytes(stream.disk)),
                in_flight: 0,
                measured: Measured { block: stream.block, ..Measured::default() },
            })
            .collect();
        let mut flights: Vec<Option<Flight>> = Vec::new();
        let mut free: Vec<usize> = Vec::new();
        let mut failure = None;
        let (mut done, mut open) = (Vec::new(), 0usize);
        let begin = clock_nanos();
        let end = begin.saturating_add(limit.nanos);
        loop {
            let is_over = failure.is_some()
                || clock_nanos() >= end
                || running.iter().all(|one| one.measured.requests() >= limit.requests);
            if !is_over && (self.stop)() {
                failure = Some(MachineError::Stopped);
                continue;
            }
            for (number, stream) in streams.iter().enumerate().filter(|_| !is_over) {
                while running[number].in_flight < stream.depth {
                    let one = &mut running[number];
                    let at = one.addresses.next_one();
                    one.in_flight += 1;
                    let flight =
                        Flight { stream: number, submitted: clock_nanos(), is_flush: false };
                    let tag = free.pop().unwrap_or(flights.len());
                    flights.resize(flights.len().max(tag + 1), None);
                    flights[tag] = Some(flight);
                    open += 1;
                    let op = match stream.write {
                        true => HostOp::Write { fua: false },
                        false => HostOp::Read,
                    };
                    self.submit(stream, op, at, tag as u64);
                }
            }
            if open == 0 {
                break;
            }
            self.wait(&mut done);
            let now = clock_nanos();
            for completion in done.drain(..) {
                let tag = completion.tag as usize;
                let flight = flights[tag].take().expect("a request ends once");
                let (stream, one) = (&streams[flight.stream], &mut running[flight.stream]);
                if let Err(error) = completion.result {
                    let disk = self.names[stream.disk].clone();
                    let problem = error.to_string();
                    failure.get_or_insert(MachineError::Disk { disk, problem });
                } else if stream.flush && !flight.is_flush {
                    flights[tag] = Some(Flight { is_flush: true, ..flight });
                    self.submit(stream, HostOp::Flush, 0, tag as u64);
                    continue;
                }
                free.push(tag);
                open -= 1;
                one.in_flight -= 1;
                if !is_over && now <= end {
                    one.measured.completed_at.push(now - begin);
                    one.measured.latencies.push(now - flight.submitted);
                    one.measured.nanos = now - begin;
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(running.into_iter().map(|one| one.measured).collect()),
        }
    }

    fn rest(&mut self, nanos: u64) {
        let (begin, mut done) = (clock_nanos(), Vec::new());
        while clock_nanos() - begin < nanos && !(self.stop)() {
            let left = nanos.saturating_sub(clock_nanos() - begin);
            self.driver.wait(LOOK.min(Duration::from_nanos(left)), None);
            self.driver.poll(&mut done);
        }
    }

    fn cpu_seconds(&self) -> Option<f64> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use array::{MemMember, NullMember, PacedMember};
    use drive::{Placement, Profile};
    use predict::calibrate::Settings;

    use super::*;

    fn memory(mib: u64) -> Box<dyn Member> {
        Box::new(MemMember::new(mib << 11).expect("memory"))
    }

    fn stream(disk: usize, write: bool) -> Stream {
        let access = Access::Sequential { at: 0, run: 1 << 20, skip: 0 };
        Stream { write, ..Stream::reads(disk, access, 64 << 10, 4) }
    }

    #[test]
    fn only_the_scratch_member_is_written() {
        let disks = vec![("a".to_string(), memory(8)), ("b".to_string(), memory(8))];
        let mut machine = ProbedDisks::new(disks, Some(memory(4)), &|| false).expect("disks");
        assert_eq!((machine.disks(), machine.bytes(1)), (2, 8 << 20));
        let limit = Limit { requests: 100, ..Limit::seconds(5.0) };
        for disk in 0..2 {
            let ran = machine.run(&[stream(disk, true)], limit);
            assert_eq!(ran, Err(MachineError::NotScratch));
            let ran = machine.run(&[stream(disk, false)], limit).expect("it runs");
            assert!(ran[0].requests() >= 100);
        }
        assert!(machine.run(&[stream(2, true)], limit).is_ok());
        let writes =
            machine.driver.leaf_counters().iter().map(|leaf| leaf.writes > 0).collect::<Vec<_>>();
        assert_eq!(writes, [false, false, true]);
        let mut stopped = ProbedDisks { stop: &|| true, ..machine };
        assert_eq!(stopped.run(&[stream(0, false)], limit), Err(MachineError::Stopped));
    }

    /// The same requests give the same figures by the engine's I/O as in the model alone.
    #[test]
    fn a_paced_disk_has_the_figures_of_its_model() {
        let _clock = host::sys::ModelClock::start();
        let profile = Profile::named("hdd-2007").expect("built in");
        let sectors = profile.capacity_bytes() / 512 / ROUND * ROUND;
        let (control, place) = (PaceControl::default(), Placement::Window { at: 0.0 });
        let null = Box::new(NullMember::new(sectors));
        let paced = PacedMember::new(null, &control, profile, place, None);
        let disks: Vec<(String, Box<dyn Member>)> = vec![("a".into(), Box::new(paced))];
        let mut machine = ProbedDisks::new(disks, None, &|| false).expect("a disk");
        let settings = Settings { random_reads: 100, ..Settings::default() };
        let found =
            predict::calibrate::measure(&mut machine, settings, &mut |_| {}).expect("it runs");
        let mut model = predict::calibrate::Modelled::new(&[(profile, None)], &[]);
        let wanted =
            predict::calibrate::measure(&mut model, settings, &mut |_| {}).expect("it runs");
        let (found, wanted) = (&found.disks[0], &wanted.disks[0]);
        for (name, found, wanted) in [
            ("outer", found.outer_mb_per_s, wanted.outer_mb_per_s),
            ("inner", found.inner_mb_per_s, wanted.inner_mb_per_s),
            ("random", found.random_ms, wanted.random_ms),
            ("depth 32", found.random_q32_iops, wanted.random_q32_iops),
            ("cached", found.cached_us, wanted.cached_us),
        ] {
            let (found, wanted) = (found.expect(name), wanted.expect(name));
            assert!((found / wanted - 1.0).abs() < 0.05, "{name}: {found}, {wanted}");
        }
    }
}
