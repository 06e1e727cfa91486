//! Disks that `raidlab calibrate` has measured, as inputs of a prediction.
//!
//! Invariant: what a probe measured is called measured; what the document took from the class of
//! the drive is called assumed. Shared by `predict`, its `--engine`, and `advise`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use drive::Profile;
use predict::calibrate::{Document, Figures, ScratchFigures};
use predict::law::{Bus, Machine, Sheet, Single, Source, Work};
use spec::buses::Buses;

use super::read_text;
use crate::error::Context;

/// The documents of a calibration.
pub struct Calibrated {
    path: PathBuf,
    /// One for each disk, the file it is from, and its profile.
    disks: Vec<(PathBuf, Profile)>,
    figures: Figures,
    /// Whether the disks are those of the calibration, or a number of disks like its first.
    is_whole: bool,
}

impl Calibrated {
    /// Reads `FILE.toml`, with the documents of other disks beside it; or `FILE.toml*6`.
    ///
    /// # Errors
    /// A file that cannot be read, or is no document of a calibration.
    pub fn read(text: &str) -> Result<Calibrated> {
        let (name, count) = match text.rsplit_once('*') {
            Some((name, count)) => {
                let count = count.parse().ok().filter(|count| (1..=1920).contains(count));
                let count: usize = count.ok_or_else(|| {
                    anyhow!("--calibration {text}: a number of disks is 1 to 1920")
                })?;
                (name, Some(count))
            }
            None => (text, None),
        };
        let path = PathBuf::from(name);
        let Document { profile, figures } = document(&path)?;
        let measured = figures.disks.len().max(1);
        let mut disks = vec![(path.clone(), profile); count.unwrap_or(measured)];
        if count.is_none() {
            for (number, disk) in disks.iter_mut().enumerate().skip(1) {
                // Disks that are not like the first have documents of their own.
                let beside = predict::calibrate::document_path(&path, number);
                if beside.is_file() {
                    let of_disk = document(&beside)?;
                    // One of an earlier calibration says nothing of this disk.
                    if of_disk.figures == figures {
                        *disk = (beside, of_disk.profile);
                    }
                }
            }
        }
        Ok(Calibrated { path, disks, figures, is_whole: count.is_none() })
    }

    /// The number of disks; `None` of a calibration of one, which may stand for any number.
    pub fn count(&self) -> Option<u32> {
        let one = self.is_whole && self.disks.len() == 1;
        (!one).then_some(self.disks.len() as u32)
    }

    /// The disks in words.
    pub fn words(&self) -> String {
        format!("calibrated, {}", self.path.display())
    }

    /// Each disk by its profile, with the rate that it was measured at.
    pub fn sheets(&self, depth: f64) -> Vec<(Sheet, Option<u32>, String)> {
        let alone = self.count().is_none();
        let each = self.disks.iter().enumerate();
        each.map(|(number, (_, profile))| {
            let mut sheet = Sheet::of(profile, depth);
            let number = if self.is_whole { number } else { 0 };
            if let Some(disk) = self.figures.disks.get(number) {
                sheet.bytes = disk.bytes;
                sheet.read = disk.outer_mb_per_s.unwrap_or(sheet.read);
            }
            (sheet, (!alone).then_some(1), profile.name().to_string())
        })
        .collect()
    }

    /// What was measured of one disk; of rates at the beginning, that of the slowest.
    pub fn offer(&self, single: &mut Single, depth: f64) {
        let disks = self.figures.disks.iter().take(if self.is_whole { usize::MAX } else { 1 });
        let outer = disks.filter_map(|disk| disk.outer_mb_per_s).reduce(f64::min);
        let mut offer = |work, rate: Option<f64>| {
            if let Some(rate) = rate {
                single.offer(work, rate, Source::Measured);
            }
        };
        offer(Work::Read, outer);
        offer(Work::DirectRead, outer);
        if let Some(first) = self.figures.disks.first() {
            let points = [
                (1.0, first.random_ms.map(|ms| 1e3 / ms)),
                (4.0, first.random_q4_iops),
                (32.0, first.random_q32_iops),
            ];
            let points = points.into_iter().filter_map(|(depth, iops)| Some((depth, iops?)));
            offer(Work::RandomRead, at_depth(&points.collect::<Vec<_>>(), depth));
        }
        if let Some(written) = &self.figures.scratch {
            offer(Work::Write, written.write_mb_per_s);
            offer(Work::DirectWrite, written.write_mb_per_s);
            if !self.rotates() {
                offer(Work::RandomWrite, random_writes_at(written, depth));
            }
            // Not of the whole disk, either: but what is synced is a file, which is no larger.
            offer(Work::SyncWrite, written.sync_ms.map(|ms| 1e3 / ms));
            // The probe counts what it reads and what it writes; a rewritten file counts once.
            offer(Work::Rewrite, written.rewrite_mb_per_s.map(|both| both / 2.0));
        }
        let access = self.figures.disks.first().and_then(|disk| disk.random_ms);
        single.access_s = access.map(|ms| ms * 1e-3).or(single.access_s);
        if !self.rotates() {
            let write_us =
                self.figures.scratch.as_ref().and_then(|written| written.cached_write_us);
            single.read_s = access.map(|ms| ms * 1e-3).or(single.read_s);
            single.write_s = write_us.map(|us| us * 1e-6).or(single.write_s);
        }
    }

    fn rotates(&self) -> bool {
        self.figures.disks.first().is_some_and(|disk| disk.rotates)
    }

    /// Whether random writes were probed, but in a part of a disk with platters only: the heads
    /// hardly move there.
    pub fn has_short_random_writes(&self) -> bool {
        let written = self.figures.scratch.as_ref();
        self.rotates() && written.is_some_and(|written| written.random_write_iops.is_some())
    }

    /// What was measured of the machine: which disks share a bus, what a gap and a request cost.
    pub fn apply(&self, machine: &mut Machine) {
        let Some(first) = self.figures.disks.first() else { return };
        machine.request_us = first.cpu_us_per_request.or(machine.request_us);
        if let (Some(gap), Some(rate)) = (first.gap_ms, first.outer_mb_per_s) {
            // Beside what the gap's bytes take to pass.
            machine.gap_ms = Some((gap - GAP_MB / rate * 1e3).max(0.0));
        }
        if let Some(wiring) = self.wiring() {
            let all = self.disks.len();
            machine.buses = wiring
                .buses
                .iter()
                .map(|bus| Bus {
                    mb_per_s: bus.mb_per_s,
                    members: (bus.disks.len() < all).then_some(bus.disks.len() as u32),
                })
                .collect();
        }
    }

    /// Whether the calibration says which disks share a bus.
    pub fn has_wiring(&self) -> bool {
        self.wiring().is_some()
    }

    fn wiring(&self) -> Option<&predict::calibrate::WiringFigures> {
        self.figures.wiring.as_ref().filter(|_| self.is_whole)
    }

    /// The disks as `--members` of bench has them, one `paced:FILE` or a counted set.
    ///
    /// # Errors
    /// A name that a set cannot have.
    pub fn members(&self) -> Result<String> {
        let name = |path: &Path| {
            let text = path.to_str().filter(|text| !text.contains(['*', '+', ':', '@', ',']));
            text.map(str::to_string).ok_or_else(|| {
                anyhow!("--calibration {}: a set of members cannot have that name", path.display())
            })
        };
        if self.disks.iter().all(|(path, _)| *path == self.path) {
            return Ok(format!("paced:{}", name(&self.path)?));
        }
        let each = self.disks.iter().map(|(path, _)| Ok(format!("{}*1", name(path)?)));
        Ok(format!("paced:{}", each.collect::<Result<Vec<_>>>()?.join("+")))
    }

    /// The buses as `--bus` of bench has them; `None`: no disks share one.
    ///
    /// # Errors
    /// Disks that are not adjacent share one.
    pub fn buses(&self) -> Result<Option<Buses>> {
        let Some(wiring) = self.wiring().filter(|wiring| !wiring.buses.is_empty()) else {
            return Ok(None);
        };
        let Some(text) = wiring.as_option() else {
            bail!(
                "--calibration {}: disks that are not adjacent share a bus, which has no --bus; \
                 calibrate them in another order",
                self.path.display()
            )
        };
        Ok(Some(text.parse()?))
    }
}

/// The gap of the probe, MB.
const GAP_MB: f64 = 65536.0 / 1e6;

fn document(path: &Path) -> Result<Document> {
    let text = read_text(path)?;
    Document::parse(&text).with_context(|| format!("--calibration {}", path.display()))
}

/// Random writes per second of flash: those of the probe, which has 32 in flight, and of fewer no
/// more than their latency permits.
fn random_writes_at(written: &ScratchFigures, depth: f64) -> Option<f64> {
    let by_latency = written.cached_write_us.map_or(f64::INFINITY, |us| depth.max(1.0) * 1e6 / us);
    written.random_write_iops.map(|iops| iops.min(by_latency))
}

/// A rate between measured depths, by the logarithms of both; beyond them that of the nearest.
fn at_depth(points: &[(f64, f64)], depth: f64) -> Option<f64> {
    let above = points.iter().position(|(at, _)| *at >= depth);
    match above {
        None => points.last().map(|(_, iops)| *iops),
        Some(0) => points.first().map(|(_, iops)| *iops),
        Some(next) => {
            let ((low, a), (high, b)) = (points[next - 1], points[next]);
            let share = (depth / low).ln() / (high / low).ln();
            Some(a * (b / a).powf(share))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_between_the_measured_ones_are_interpolated() {
        let points = [(1.0, 80.0), (4.0, 110.0), (32.0, 180.0)];
        assert_eq!(at_depth(&points, 1.0), Some(80.0));
        assert_eq!(at_depth(&points, 4.0), Some(110.0));
        assert_eq!(at_depth(&points, 64.0), Some(180.0));
        let between = at_depth(&points, 2.0).expect("points");
        assert!((between - (80.0f64 * 110.0).sqrt()).abs() < 1e-9);
        assert_eq!(at_depth(&[], 4.0), None);
    }

    #[test]
    fn few_writes_in_flight_are_limited_by_their_latency() {
        let written = ScratchFigures {
            random_write_iops: Some(60e3),
            cached_write_us: Some(50.0),
            ..ScratchFigures::default()
        };
        assert_eq!(random_writes_at(&written, 1.0), Some(20e3));
        assert_eq!(random_writes_at(&written, 32.0), Some(60e3));
        let no_latency = ScratchFigures { cached_write_us: None, ..written };
        assert_eq!(random_writes_at(&no_latency, 1.0), Some(60e3));
        assert_eq!(random_writes_at(&ScratchFigures::default(), 1.0), None);
    }
}
