//! The disks that are probed, and modelled ones that stand in for them.

use std::collections::HashMap;

use drive::{BusId, Completion, DriveId, Op, Placement, Profile, Rig};
use thiserror::Error;

use crate::calibrate::load::{Addresses, Limit, Measured, Stream};

/// Why a probe has no figure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// A request failed.
    #[error("{disk}: {problem}")]
    Disk {
        /// Which disk.
        disk: String,
        /// The error.
        problem: String,
    },
    /// It was stopped.
    #[error("stopped")]
    Stopped,
    /// A write outside of the scratch area.
    #[error("a probe would write outside of the scratch area")]
    NotScratch,
}

/// An area that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Index of the disk.
    pub disk: usize,
    /// First byte.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
}

impl Scratch {
    /// Whether a stream's writes stay inside.
    pub(crate) fn holds(&self, stream: &Stream, addresses: std::ops::Range<u64>) -> bool {
        let end = self.at + self.bytes;
        stream.disk == self.disk && addresses.start >= self.at && addresses.end <= end
    }
}

/// Disks that are probed.
pub trait Machine {
    /// Number of disks; the scratch area may lie on a further one.
    fn disks(&self) -> usize;

    /// Size of a disk in bytes.
    fn bytes(&self, disk: usize) -> u64;

    /// Where probes may write.
    fn scratch(&self) -> Option<Scratch>;

    /// Runs streams together until the limit; what is in flight then is waited for, and is not
    /// counted.
    ///
    /// # Errors
    /// A request fails, a write would leave the scratch area, or the run is stopped.
    fn run(&mut self, streams: &[Stream], limit: Limit) -> Result<Vec<Measured>, MachineError>;

    /// Lets caches empty themselves.
    fn rest(&mut self, nanos: u64);

    /// CPU seconds of this process so far; `None` where the time is that of a model.
    fn cpu_seconds(&self) -> Option<f64> {
        None
    }
}

/// Modelled disks in model time: what a probe takes is computed.
#[derive(Debug)]
pub struct Modelled {
    rig: Rig,
    drives: Vec<DriveId>,
    bytes: Vec<u64>,
    scratch: Option<Scratch>,
    now: u64,
    done: Vec<Completion>,
}

impl Modelled {
    /// Disks of these profiles, whole, each on the bus of that number, if any.
    pub fn new(disks: &[(&Profile, Option<usize>)], bus_rates: &[u64]) -> Modelled {
        let mut rig = Rig::new();
        let buses: Vec<BusId> = bus_rates.iter().map(|rate| rig.add_bus(*rate)).collect();
        let (mut drives, mut bytes) = (Vec::new(), Vec::new());
        for (profile, bus) in disks {
            let size = profile.capacity_bytes() / 4096 * 4096;
            let bus = bus.map(|bus| buses[bus]);
            drives.push(rig.add_drive(profile, Placement::Window { at: 0.0 }, size, bus));
            bytes.push(size);
        }
        Modelled { rig, drives, bytes, scratch: None, now: 0, done: Vec::new() }
    }

    /// The same, with an area that may be written.
    #[must_use]
    pub fn with_scratch(self, scratch: Scratch) -> Modelled {
        Modelled { scratch: Some(scratch), ..self }
    }

    /// Lets the clock run to the next event, or to `limit`.
    fn pass(&mut self, limit: u64) {
        let next = self.rig.next_event().unwrap_or(limit).min(limit);
        self.now = self.now.max(next);
        self.rig.advance(self.now, &mut self.done);
    }
}

/// A stream that runs.
struct Running {
    addresses: Addresses,
    in_flight: usize,
    measured: Measured,
}

impl Machine for Modelled {
    fn disks(&self) -> usize {
        self.drives.len()
    }

    fn bytes(&self, disk: usize) -> u64 {
        self.bytes[disk]
    }

    fn scratch(&self) -> Option<Scratch> {
        self.scratch
    }

    fn run(&mut self, streams: &[Stream], limit: Limit) -> Result<Vec<Measured>, MachineError> {
        let begin = self.now;
        let end = begin.saturating_add(limit.nanos);
        let mut running: Vec<Running> = streams
            .iter()
            .map(|stream| Running {
                addresses: Addresses::new(stream, self.bytes[stream.disk]),
                in_flight: 0,
                measured: Measured { block: stream.block, ..Measured::default() },
            })
            .collect();
        // What a tag stands for: its stream, when it was submitted, and whether it is the flush.
        let mut flying: HashMap<u64, (usize, u64, bool)> = HashMap::new();
        let mut tag = 0;
        loop {
            let is_over = self.now >= end
                || running.iter().all(|one| one.measured.requests() >= limit.requests);
            if !is_over {
                for (number, (stream, one)) in streams.iter().zip(&mut running).enumerate() {
                    while one.in_flight < stream.depth {
                        let at = one.addresses.next_one();
                        if stream.write
                            && !self
                                .scratch
                                .is_some_and(|area| area.holds(stream, at..at + stream.block))
                        {
                            return Err(MachineError::NotScratch);
                        }
                        let op = match stream.write {
                            true => Op::write(at, stream.block),
                            false => Op::read(at, stream.block),
                        };
                        self.rig.submit(self.now, self.drives[stream.disk], tag, op);
                        flying.insert(tag, (number, self.now, false));
                        tag += 1;
                        one.in_flight += 1;
                    }
                }
            }
            if flying.is_empty() {
                break;
            }
            self.pass(if is_over { u64::MAX } else { end });
            for done in std::mem::take(&mut self.done) {
                let Some((number, submitted, is_flush)) = flying.remove(&done.tag) else {
                    continue;
                };
                let (stream, one) = (&streams[number], &mut running[number]);
                if stream.flush && !is_flush {
                    self.rig.submit(done.at, self.drives[stream.disk], tag, Op::flush());
                    flying.insert(tag, (number, submitted, true));
                    tag += 1;
                    continue;
                }
                one.in_flight -= 1;
                if !is_over && done.at <= end {
                    one.measured.completed_at.push(done.at - begin);
                    one.measured.latencies.push(done.at - submitted);
                    one.measured.nanos = done.at - begin;
                }
            }
        }
        Ok(running.into_iter().map(|one| one.measured).collect())
    }

    fn rest(&mut self, nanos: u64) {
        let end = self.now + nanos;
        // Drives write what they have cached when they are idle.
        self.rig.advance(end, &mut self.done);
        self.done.clear();
        self.now = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::load::Access;

    #[test]
    fn a_modelled_disk_streams_at_its_media_rate_and_refuses_writes_elsewhere() {
        let profile = Profile::named("hdd-2007").expect("built in");
        let mut machine = Modelled::new(&[(profile, None)], &[]);
        let access = Access::Sequential { at: 0, run: 1 << 20, skip: 0 };
        let stream = Stream::reads(0, access, 1 << 20, 4);
        let ran = machine.run(&[stream], Limit::seconds(2.0)).expect("it runs");
        let rate = ran[0].mb_per_s_after(0.2).expect("a rate");
        assert!((rate / 83.0 - 1.0).abs() < 0.01, "{rate}");
        let write = Stream { write: true, ..stream };
        let refused = machine.run(&[write], Limit::seconds(1.0));
        assert_eq!(refused, Err(MachineError::NotScratch));
        let mut machine = machine.with_scratch(Scratch { disk: 0, at: 0, bytes: 64 << 20 });
        let ran = machine.run(&[write], Limit { nanos: u64::MAX / 2, requests: 32 });
        assert_eq!(ran.expect("it runs")[0].requests(), 32);
    }
}
