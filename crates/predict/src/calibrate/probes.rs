//! The probes: what is read, and written, to learn what a disk does.
//!
//! Each takes a [`Machine`], so that the same requests go to a disk and to its model. A probe whose
//! load was too short for a figure gives `None`.

use crate::calibrate::figures::{DiskFigures, Figures, ScratchFigures};
use crate::calibrate::load::{Access, Limit, Measured, Stream};
use crate::calibrate::machine::{Machine, MachineError, Scratch};
use crate::calibrate::settings::Settings;
use crate::calibrate::wiring;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A random read of a disk with platters takes longer, ms.
const ROTATES_MS: f64 = 2.0;

/// A probe that begins, for a display.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What it measures.
    pub name: &'static str,
    /// The disk, if it is one.
    pub disk: Option<usize>,
    /// Its number, from 0.
    pub number: usize,
    /// Number of probes, as far as is known.
    pub of: usize,
}

/// One disk, probed.
pub(crate) struct Probe<'m> {
    pub(crate) machine: &'m mut dyn Machine,
    pub(crate) disk: usize,
    pub(crate) settings: Settings,
    pub(crate) rotates: bool,
}

type Figure = Result<Option<f64>, MachineError>;

impl Probe<'_> {
    fn bytes(&self) -> u64 {
        self.machine.bytes(self.disk)
    }

    fn one(&mut self, stream: Stream, limit: Limit) -> Result<Measured, MachineError> {
        let mut ran = self.machine.run(&[stream], limit)?;
        Ok(ran.pop().unwrap_or_default())
    }

    fn latency(&mut self, access: Access, block: u64, requests: u64) -> Figure {
        let limit = Limit { requests, ..self.settings.requests(self.rotates, 1) };
        let stream = Stream::reads(self.disk, access, block, 1);
        Ok(self.one(stream, limit)?.latency_ms())
    }

    fn anywhere(&self, seed: u64) -> Access {
        Access::Random { at: 0, span: self.bytes(), seed }
    }

    /// Length of a range in which seeks are short.
    fn narrow(&self) -> u64 {
        (self.bytes() / 1000).max(64 * MIB).min(self.bytes())
    }

    /// Whether it has platters: most random reads take long, and most that go downwards, too. Not
    /// the mean: a solid drive of a busy machine has long ones among them.
    pub(crate) fn kind(&mut self) -> Result<bool, MachineError> {
        let limit = Limit { requests: 24, ..self.settings.requests(true, 1) };
        for access in [self.anywhere(1), Access::Backwards { at: self.bytes() / 4 / MIB * MIB }] {
            let ran = self.one(Stream::reads(self.disk, access, 4 * KIB, 1), limit)?;
            if ran.median_latency_ms().is_none_or(|ms| ms < ROTATES_MS) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn cached(&mut self, block: u64) -> Figure {
        let at = self.bytes() / 3 / MIB * MIB;
        // Once, so that it is in the cache; the figure is that of the others.
        let access = Access::Same { at };
        self.latency(access, block, 4)?;
        let limit = Limit { requests: 64, ..self.settings.requests(self.rotates, 1) };
        let ran = self.one(Stream::reads(self.disk, access, block, 1), limit)?;
        Ok(ran.least_latency_ms().map(|ms| ms * 1e3))
    }

    pub(crate) fn sequential(&mut self, share: f64) -> Figure {
        let limit = self.settings.stream();
        let room = self.bytes().saturating_sub(self.bytes().min(4 * GIB));
        let at = (room as f64 * share) as u64 / MIB * MIB;
        let access = Access::Sequential { at, run: MIB, skip: 0 };
        let ran = self.one(Stream::reads(self.disk, access, MIB, 4), limit)?;
        Ok(ran.mb_per_s_after(0.2))
    }

    pub(crate) fn backwards(&mut self) -> Figure {
        let at = self.bytes() / 5 / MIB * MIB;
        self.latency(Access::Backwards { at }, 4 * KIB, 150)
    }

    pub(crate) fn near(&mut self) -> Figure {
        let span = self.narrow();
        let requests = self.settings.requests(self.rotates, 1).requests;
        self.latency(Access::Random { at: 0, span, seed: 2 }, 4 * KIB, requests)
    }

    pub(crate) fn full(&mut self) -> Figure {
        let span = self.narrow();
        let access = Access::Alternating { near: 0, far: self.bytes(), span };
        let requests = self.settings.requests(self.rotates, 1).requests;
        self.latency(access, 4 * KIB, requests)
    }

    pub(crate) fn random(&mut self) -> Figure {
        Ok(self.random_reads()?.latency_ms())
    }

    fn random_reads(&mut self) -> Result<Measured, MachineError> {
        let limit = self.settings.requests(self.rotates, 1);
        self.one(Stream::reads(self.disk, self.anywhere(3), 4 * KIB, 1), limit)
    }

    pub(crate) fn random_at(&mut self, depth: usize) -> Figure {
        let limit = self.settings.requests(self.rotates, depth as u64);
        let stream = Stream::reads(self.disk, self.anywhere(4), 4 * KIB, depth);
        Ok(self.one(stream, limit)?.iops_after(0.1))
    }

    pub(crate) fn streams(&mut self, block: u64, depth: usize) -> Figure {
        let each = self.bytes() / 8 / MIB * MIB;
        let streams: Vec<Stream> = (0..4)
            .map(|number| {
                let access = Access::Sequential { at: number * each, run: block, skip: 0 };
                Stream::reads(self.disk, access, block, depth)
            })
            .collect();
        let ran = self.machine.run(&streams, self.settings.stream())?;
        let rates: Option<Vec<f64>> = ran.iter().map(|one| one.mb_per_s_after(0.2)).collect();
        Ok(rates.map(|rates| rates.iter().sum()))
    }

    /// Time per gap beyond that of what is read, ms.
    pub(crate) fn gap(&mut self, outer_mb_per_s: Option<f64>) -> Figure {
        let (run, skip) = (192 * KIB, 64 * KIB);
        let access = Access::Sequential { at: 0, run, skip };
        let limit = self.settings.stream();
        let ran = self.one(Stream::reads(self.disk, access, 64 * KIB, 4), limit)?;
        let rates = ran.mb_per_s_after(0.2).zip(outer_mb_per_s);
        Ok(rates.map(|(rate, whole)| run as f64 / 1e3 * (1.0 / rate - 1.0 / whole)))
    }
}

/// The scratch area, probed.
pub(crate) struct ScratchProbe<'m> {
    pub(crate) machine: &'m mut dyn Machine,
    pub(crate) area: Scratch,
    pub(crate) settings: Settings,
    pub(crate) rotates: bool,
}

impl ScratchProbe<'_> {
    fn rest(&mut self) {
        self.machine.rest((self.settings.cache_rest_seconds * 1e9) as u64);
    }

    fn one(&mut self, stream: Stream, limit: Limit) -> Result<Measured, MachineError> {
        let mut ran = self.machine.run(&[stream], limit)?;
        self.rest();
        Ok(ran.pop().unwrap_or_default())
    }

    fn anywhere(&self, seed: u64) -> Access {
        Access::Random { at: self.area.at, span: self.area.bytes, seed }
    }

    fn in_order(&mut self, seconds: f64) -> Result<Measured, MachineError> {
        let access = Access::Sequential { at: self.area.at, run: MIB, skip: 0 };
        let most = self.area.bytes / MIB;
        let limit = Limit { requests: most.saturating_sub(4), ..Limit::seconds(seconds) };
        self.one(Stream::writes(self.area.disk, access, MIB, 4), limit)
    }

    pub(crate) fn sequential(&mut self) -> Result<(Option<f64>, Option<f64>), MachineError> {
        let ran = self.in_order(2.0 * self.settings.stream_seconds)?;
        let early = ran.completed_at.partition_point(|at| *at < 500_000_000);
        let burst = early as f64 * MIB as f64 / 1e6;
        Ok((ran.mb_per_s_after(0.4), (ran.nanos > 500_000_000).then_some(burst)))
    }

    pub(crate) fn random(&mut self) -> Figure {
        let requests = self.settings.requests(self.rotates, 4).requests;
        let limit = Limit { requests, ..self.settings.requests(self.rotates, 4) };
        let access = self.anywhere(5);
        let ran = self.one(Stream::writes(self.area.disk, access, 4 * KIB, 32), limit)?;
        Ok(ran.iops_after(0.3))
    }

    pub(crate) fn cached(&mut self) -> Figure {
        let limit = Limit { requests: 8, ..self.settings.requests(self.rotates, 1) };
        let access = self.anywhere(6);
        let ran = self.one(Stream::writes(self.area.disk, access, 4 * KIB, 1), limit)?;
        Ok(ran.latency_ms().map(|ms| ms * 1e3))
    }

    pub(crate) fn synchronous(&mut self) -> Figure {
        let limit = Limit { requests: 200, ..self.settings.requests(self.rotates, 1) };
        let access = self.anywhere(7);
        let stream = Stream { flush: true, ..Stream::writes(self.area.disk, access, 4 * KIB, 1) };
        Ok(self.one(stream, limit)?.latency_ms())
    }

    /// Both together: as a program that rewrites a file.
    pub(crate) fn rewrite(&mut self) -> Figure {
        let Scratch { disk, at, bytes } = self.area;
        let half = (bytes / 2).min(GIB) / MIB * MIB;
        let in_order = |at| Access::Sequential { at, run: MIB, skip: 0 };
        let streams = [
            Stream::reads(disk, in_order(at + half), MIB, 1),
            Stream::writes(disk, in_order(at), MIB, 1),
        ];
        let seconds = self.settings.stream_seconds;
        let limit = Limit { requests: half / MIB - 2, ..Limit::seconds(seconds) };
        let ran = self.machine.run(&streams, limit)?;
        self.rest();
        let rates: Option<Vec<f64>> = ran.iter().map(|one| one.mb_per_s_after(0.2)).collect();
        Ok(rates.map(|rates| rates.iter().sum()))
    }
}

/// Runs all probes.
///
/// # Errors
/// A request fails, or it is stopped.
pub fn measure(
    machine: &mut dyn Machine,
    settings: Settings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Figures, MachineError> {
    let disks = machine.disks();
    let of =
        13 + disks - 1 + if machine.scratch().is_some() { 5 } else { 0 } + usize::from(disks > 1);
    let mut number = 0;
    let mut begin = |name, disk| {
        progress(Progress { name, disk, number, of });
        number += 1;
    };
    let mut figures = Figures::default();
    for disk in 0..disks {
        let bytes = machine.bytes(disk);
        let mut found = DiskFigures { bytes, ..DiskFigures::default() };
        let mut probe = Probe { machine: &mut *machine, disk, settings, rotates: true };
        let on = Some(disk);
        if disk > 0 {
            begin("sequential read", on);
            found.rotates = figures.disks[0].rotates;
            found.outer_mb_per_s = probe.sequential(0.0)?;
            figures.disks.push(found);
            continue;
        }
        begin("random reads", on);
        found.rotates = probe.kind()?;
        probe.rotates = found.rotates;
        let before = probe.machine.cpu_seconds();
        let random = probe.random_reads()?;
        found.random_ms = random.latency_ms();
        // The requests that were completed: a slow disk does not make all of them in time.
        let requests = random.requests().max(1);
        let used = |before: Option<f64>, now: Option<f64>| Some(now? - before?);
        found.cpu_us_per_request = used(before, probe.machine.cpu_seconds())
            .map(|seconds| seconds * 1e6 / requests as f64);
        begin("random reads, depth 4", on);
        found.random_q4_iops = probe.random_at(4)?;
        begin("random reads, depth 32", on);
        found.random_q32_iops = probe.random_at(32)?;
        begin("reads of the disk's cache", on);
        found.cached_us = probe.cached(4 * KIB)?;
        found.cached_long_us = probe.cached(256 * KIB)?;
        begin("sequential read, beginning", on);
        let before = probe.machine.cpu_seconds();
        found.outer_mb_per_s = probe.sequential(0.0)?;
        let kib = found.outer_mb_per_s.map(|rate| rate * 1e6 / 1024.0 * settings.stream_seconds);
        found.cpu_us_per_kib = used(before, probe.machine.cpu_seconds())
            .zip(kib)
            .map(|(seconds, kib)| seconds * 1e6 / kib);
        begin("sequential read, middle", on);
        found.middle_mb_per_s = probe.sequential(0.5)?;
        begin("sequential read, end", on);
        found.inner_mb_per_s = probe.sequential(1.0)?;
        begin("reads downwards", on);
        found.backwards_ms = probe.backwards()?;
        begin("short seeks", on);
        found.near_ms = probe.near()?;
        begin("long seeks", on);
        found.full_ms = probe.full()?;
        begin("four streams", on);
        found.streams_mb_per_s = probe.streams(64 * KIB, 1)?;
        begin("four streams of long reads", on);
        found.long_streams_mb_per_s = probe.streams(MIB, 2)?;
        begin("a stream with gaps", on);
        found.gap_ms = probe.gap(found.outer_mb_per_s)?;
        figures.disks.push(found);
    }
    if let Some(area) = machine.scratch() {
        let rotates = figures.disks.first().is_some_and(|disk| disk.rotates);
        let mut probe = ScratchProbe { machine: &mut *machine, area, settings, rotates };
        let mut found = ScratchFigures::default();
        begin("sequential write", None);
        (found.write_mb_per_s, found.burst_mb) = probe.sequential()?;
        begin("random writes", None);
        found.random_write_iops = probe.random()?;
        begin("single writes", None);
        found.cached_write_us = probe.cached()?;
        begin("writes with a flush", None);
        found.sync_ms = probe.synchronous()?;
        begin("reads and writes in turn", None);
        found.rewrite_mb_per_s = probe.rewrite()?;
        figures.scratch = Some(found);
    }
    if disks > 1 {
        begin("all disks at a time", None);
        let singles: Vec<f64> =
            figures.disks.iter().map(|disk| disk.outer_mb_per_s.unwrap_or(0.0)).collect();
        figures.wiring = Some(wiring::find(machine, &singles, settings)?);
    }
    Ok(figures)
}
