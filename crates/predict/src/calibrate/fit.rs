//! The drive profile that behaves as the disk did: numbers are changed until the same probes on the
//! modelled drive give the same figures.
//!
//! ```text
//!   figure of the disk ----------------\
//!                                       difference ---> the number that this probe is about
//!   figure of the model <--- numbers --/                        |
//!            ^--------------------------------------------------/
//! ```
//!
//! Invariant: every number is within what a profile permits; one that no figure determines is that
//! of the class, and keeps its source.

use std::collections::BTreeMap;

use drive::{Confidence, Kind, Number, Profile};

use crate::calibrate::document::{DiskCalibration, profile_text};
use crate::calibrate::figures::{DiskFigures, Figures, ScratchFigures};
use crate::calibrate::machine::{MachineError, Modelled, Scratch};
use crate::calibrate::probes::{Probe, ScratchProbe};
use crate::calibrate::settings::Settings;

/// Speeds of spindles that are sold.
const RPM: [f64; 6] = [4200.0, 5400.0, 5900.0, 7200.0, 10_000.0, 15_000.0];
/// A speed this close to one of them is that one.
const RPM_NEAR: f64 = 0.03;
/// Disks whose rates differ by no more are alike.
const ALIKE: f64 = 0.03;
/// Rounds of the numbers that depend on each other.
const ROUNDS: usize = 6;

/// Numbers that become a profile.
#[derive(Clone, Debug)]
struct Draft {
    kind: Kind,
    numbers: BTreeMap<String, Number>,
}

impl Draft {
    fn of_class(class: &str) -> Draft {
        let profile = Profile::named(class).expect("the classes are built in");
        let inherited = |number: &Number| {
            let source = format!("not measured; that of {class}");
            let confidence = Confidence::Assumed;
            (number.field.clone(), Number { source, confidence, ..number.clone() })
        };
        Draft { kind: profile.kind(), numbers: profile.numbers().iter().map(inherited).collect() }
    }

    fn get(&self, field: &str) -> f64 {
        self.numbers.get(field).map_or(0.0, |number| number.value)
    }

    fn set(&mut self, field: &str, value: f64, probe: &str) {
        let number = Number {
            field: field.into(),
            value,
            source: format!("raidlab calibrate: {probe}"),
            confidence: Confidence::Derived,
        };
        self.numbers.insert(field.into(), number);
    }

    /// The profile, if its numbers fit each other.
    fn profile(&self) -> Option<Profile> {
        let text = profile_text("draft", "a draft", self.kind, self.numbers.values());
        Profile::parse(&text).ok()
    }

    /// A figure of the drive, by a probe of it.
    fn figure(
        &self,
        settings: Settings,
        probe: impl FnOnce(&mut Probe<'_>) -> Result<Option<f64>, MachineError>,
    ) -> Option<f64> {
        let profile = self.profile()?;
        let mut machine = Modelled::new(&[(&profile, None)], &[]);
        let rotates = self.kind == Kind::Rotating;
        let mut one = Probe { machine: &mut machine, disk: 0, settings, rotates };
        probe(&mut one).ok().flatten()
    }

    /// A figure of a scratch area on the drive.
    fn written<T>(
        &self,
        area: Scratch,
        settings: Settings,
        probe: impl FnOnce(&mut ScratchProbe<'_>) -> Result<T, MachineError>,
    ) -> Option<T> {
        let profile = self.profile()?;
        let room = profile.capacity_bytes() / 4096 * 4096;
        let bytes = area.bytes.min(room);
        let at = if area.disk == 0 { area.at.min(room - bytes) } else { 0 };
        let area = Scratch { disk: 0, at, bytes };
        let mut machine = Modelled::new(&[(&profile, None)], &[]).with_scratch(area);
        let rotates = self.kind == Kind::Rotating;
        probe(&mut ScratchProbe { machine: &mut machine, area, settings, rotates }).ok()
    }

    /// Changes a number of which the figure is a rising (or falling) function until the figure is
    /// `wanted`, by halving the logarithm of its range.
    fn halve(
        &mut self,
        (field, low, high): (&str, f64, f64),
        wanted: f64,
        rises: bool,
        probe: &str,
        figure: impl Fn(&Draft) -> Option<f64>,
    ) {
        let (mut low, mut high) = (low.ln(), high.ln());
        for _ in 0..11 {
            let middle = f64::midpoint(low, high);
            self.set(field, middle.exp(), probe);
            let Some(found) = figure(self) else { return };
            match (found < wanted) == rises {
                true => low = middle,
                false => high = middle,
            }
        }
        self.set(field, f64::midpoint(low, high).exp(), probe);
    }
}

/// The profiles of the disks, from their figures: the first is fitted; one that is as fast has the
/// same, others the same at another rate.
pub fn fit(figures: &Figures, area: Option<Scratch>, settings: Settings) -> Vec<DiskCalibration> {
    let Some(first) = figures.disks.first() else { return Vec::new() };
    let scratch = figures.scratch.as_ref().zip(area);
    let draft = match first.rotates {
        true => rotating(first, scratch, settings),
        false => solid(first, scratch, settings),
    };
    let calibrated = |draft: &Draft| DiskCalibration {
        kind: draft.kind,
        numbers: draft.numbers.values().cloned().collect(),
    };
    let mut all = vec![calibrated(&draft)];
    for disk in &figures.disks[1..] {
        let rates = disk.outer_mb_per_s.zip(first.outer_mb_per_s);
        let ratio = rates.map_or(1.0, |(own, first)| own / first);
        let mut own = draft.clone();
        own.set("capacity_bytes", disk.bytes as f64, "its size");
        if (ratio - 1.0).abs() > ALIKE {
            let fields: &[&str] = match first.rotates {
                true => &["media_outer_mb_per_s", "media_inner_mb_per_s"],
                false => &["read_mb_per_s", "write_mb_per_s", "direct_write_mb_per_s"],
            };
            for field in fields {
                own.set(field, draft.get(field) * ratio, "sequential read, beside the first disk");
            }
        }
        all.push(calibrated(&own));
    }
    all
}

fn rotating(
    disk: &DiskFigures,
    scratch: Option<(&ScratchFigures, Scratch)>,
    settings: Settings,
) -> Draft {
    let fast = disk.outer_mb_per_s.unwrap_or(0.0);
    let class = match fast {
        rate if rate > 180.0 => "hdd-2018",
        rate if rate > 105.0 => "hdd-2009",
        _ => "hdd-2007",
    };
    let mut draft = Draft::of_class(class);
    draft.set("capacity_bytes", disk.bytes as f64, "its size");
    if let (Some(short), Some(long)) = (disk.cached_us, disk.cached_long_us) {
        let link = (252.0 * 1024.0 / (long - short).max(1.0)).max(fast);
        draft.set("link_mb_per_s", link, "reads of the disk's cache");
        let overhead = (short - 4096.0 / link).clamp(1.0, 999.0);
        draft.set("command_overhead_us", overhead, "reads of the disk's cache");
    }
    if let Some(outer) = disk.outer_mb_per_s {
        let inner = disk.inner_mb_per_s.unwrap_or(outer / 2.0).min(outer);
        draft.set("media_outer_mb_per_s", outer, "sequential read, beginning");
        draft.set("media_inner_mb_per_s", inner, "sequential read, end");
    }
    if let Some(turn) = disk.backwards_ms {
        // From the end of a request to the beginning of the one before it: a turn less two blocks.
        let blocks = if fast > 0.0 { 2.0 * 4096.0 / fast / 1e3 } else { 0.0 };
        let found = 60e3 / (turn + blocks);
        let known = RPM.into_iter().find(|rpm| (found / rpm - 1.0).abs() < RPM_NEAR);
        draft.set("rpm", known.unwrap_or(found), "reads downwards");
    }
    // Seeks of the class, scaled by what a random read takes beyond half a turn.
    let half_turn = 30e3 / draft.get("rpm");
    if let Some(random) = disk.random_ms {
        let seek = (random - half_turn - draft.get("command_overhead_us") / 1e3).max(0.3);
        let scale = seek / draft.get("seek_average_ms");
        for field in ["seek_track_ms", "seek_average_ms", "seek_full_ms"] {
            draft.set(field, draft.get(field) * scale, "random reads");
        }
    }
    for _ in 0..ROUNDS {
        positions(&mut draft, disk, settings);
        // Few requests: none of them becomes too old.
        if let Some(wanted) = disk.random_q4_iops {
            let figure = |draft: &Draft| draft.figure(settings, |probe| probe.random_at(4));
            let range = ("position_margin_ms", 0.01, 3.0);
            draft.halve(range, wanted, false, "random reads, depth 4", figure);
        }
    }
    if let Some(wanted) = disk.random_q32_iops {
        let figure = |draft: &Draft| draft.figure(settings, |probe| probe.random_at(32));
        let range = ("age_limit_ms", 20.0, 5000.0);
        draft.halve(range, wanted, true, "random reads, depth 32", figure);
    }
    if let Some((written, area)) = scratch {
        rotating_writes(&mut draft, disk, written, area, settings);
    }
    visits(&mut draft, disk, settings);
    draft
}

/// Rates, and the three times of the seek curve.
fn positions(draft: &mut Draft, disk: &DiskFigures, settings: Settings) {
    for (field, wanted, share, probe) in [
        ("media_outer_mb_per_s", disk.outer_mb_per_s, 0.0, "sequential read, beginning"),
        ("media_inner_mb_per_s", disk.inner_mb_per_s, 1.0, "sequential read, end"),
    ] {
        let found = draft.figure(settings, |one| one.sequential(share));
        if let (Some(wanted), Some(found)) = (wanted, found) {
            let limit = match field {
                "media_inner_mb_per_s" => draft.get("media_outer_mb_per_s"),
                _ => f64::MAX,
            };
            let value = (draft.get(field) * wanted / found).min(limit);
            draft.set(field, value, probe);
        }
    }
    let near = draft.figure(settings, |one| one.near()).zip(disk.near_ms);
    let full = draft.figure(settings, |one| one.full()).zip(disk.full_ms);
    let random = draft.figure(settings, |one| one.random()).zip(disk.random_ms);
    let moved = |draft: &Draft, field: &str, pair: Option<(f64, f64)>| {
        draft.get(field) + pair.map_or(0.0, |(found, wanted)| wanted - found)
    };
    let track = moved(draft, "seek_track_ms", near).clamp(0.05, 20.0);
    let full = moved(draft, "seek_full_ms", full).max(track * 1.05);
    let average = moved(draft, "seek_average_ms", random);
    // What the seek curve permits.
    let share = ((average - track) / (full - track)).clamp(0.334, 0.599);
    draft.set("seek_track_ms", track, "short seeks");
    draft.set("seek_full_ms", full, "long seeks");
    draft.set("seek_average_ms", track + share * (full - track), "random reads");
}

fn rotating_writes(
    draft: &mut Draft,
    disk: &DiskFigures,
    written: &ScratchFigures,
    area: Scratch,
    settings: Settings,
) {
    if let (Some(burst), Some(rate)) = (written.burst_mb, written.write_mb_per_s)
        && burst > rate * 0.5 + 1.0
    {
        let figure = |draft: &Draft| {
            draft.written(area, settings, |one| one.sequential().map(|(_, burst)| burst))?
        };
        let range = ("write_cache_kib", 256.0, 524_288.0);
        draft.halve(range, burst, true, "sequential write, its beginning", figure);
    }
    for _ in 0..3 {
        let found = draft.written(area, settings, |one| one.synchronous()).flatten();
        if let (Some(found), Some(wanted)) = (found, written.sync_ms) {
            let value = draft.get("write_settle_ms") + wanted - found;
            draft.set("write_settle_ms", value.clamp(0.0, 20.0), "writes with a flush");
        }
    }
    if let Some(wanted) = written.random_write_iops.filter(|_| disk.random_ms.is_some()) {
        let figure = |draft: &Draft| draft.written(area, settings, |one| one.random()).flatten();
        let range = ("write_cache_extents", 2.0, 4096.0);
        draft.halve(range, wanted, true, "random writes", figure);
    }
}

/// How long the head stays with a stream while others wait.
fn visits(draft: &mut Draft, disk: &DiskFigures, settings: Settings) {
    let (Some(short), Some(long)) = (disk.streams_mb_per_s, disk.long_streams_mb_per_s) else {
        return;
    };
    let mut best: Option<(f64, Draft)> = None;
    for visit in [256.0, 512.0, 1024.0, 2048.0, 4096.0] {
        for prefetch in [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0] {
            let mut tried = draft.clone();
            tried.set("visit_kib", visit, "four streams of long reads");
            tried.set("visit_prefetch_kib", prefetch, "four streams");
            let found = tried.figure(settings, |one| one.streams(64 << 10, 1));
            let found_long = tried.figure(settings, |one| one.streams(1 << 20, 2));
            let (Some(found), Some(found_long)) = (found, found_long) else { continue };
            let error = (found / short).ln().powi(2) + (found_long / long).ln().powi(2);
            if best.as_ref().is_none_or(|(least, _)| error < *least) {
                best = Some((error, tried));
            }
        }
    }
    if let Some((_, found)) = best {
        *draft = found;
    }
}

fn solid(
    disk: &DiskFigures,
    scratch: Option<(&ScratchFigures, Scratch)>,
    settings: Settings,
) -> Draft {
    let rate = disk.outer_mb_per_s.unwrap_or(0.0);
    let mut draft = Draft::of_class(if rate > 900.0 { "nvme-ssd" } else { "sata-ssd" });
    draft.set("capacity_bytes", disk.bytes as f64, "its size");
    let burst = scratch.and_then(|(written, _)| written.burst_mb).unwrap_or(0.0) / 0.5;
    let link = draft.get("link_mb_per_s").max(rate).max(burst);
    draft.set("link_mb_per_s", link, "sequential read, the class");
    if rate > 0.0 {
        draft.set("read_mb_per_s", rate, "sequential read, beginning");
    }
    for _ in 0..ROUNDS {
        let found = draft.figure(settings, |one| one.sequential(0.0));
        if let (Some(wanted), Some(found)) = (disk.outer_mb_per_s, found) {
            let value = draft.get("read_mb_per_s") * wanted / found;
            draft.set("read_mb_per_s", value.min(2.0 * link), "sequential read, beginning");
        }
        let found = draft.figure(settings, |one| one.random());
        if let (Some(wanted), Some(found)) = (disk.random_ms, found) {
            let value = draft.get("read_page_us") + (wanted - found) * 1e3;
            draft.set("read_page_us", value.clamp(1.0, 5e4), "random reads");
        }
        if let Some(wanted) = disk.random_q32_iops {
            let figure = |draft: &Draft| draft.figure(settings, |one| one.random_at(32));
            let range = ("command_overhead_us", 0.1, 200.0);
            draft.halve(range, wanted, false, "random reads, depth 32", figure);
            let found = figure(&draft);
            if found.is_some_and(|found| found < wanted * 0.98) {
                let range = ("dies", 2.0, 1024.0);
                draft.halve(range, wanted, true, "random reads, depth 32", figure);
            }
        }
    }
    if let Some((written, area)) = scratch {
        solid_writes(&mut draft, written, area, settings);
    }
    draft
}

fn solid_writes(draft: &mut Draft, written: &ScratchFigures, area: Scratch, settings: Settings) {
    if let Some(rate) = written.write_mb_per_s {
        let share = draft.get("direct_write_mb_per_s") / draft.get("write_mb_per_s");
        draft.set("write_mb_per_s", rate, "sequential write");
        draft.set("direct_write_mb_per_s", rate * share, "sequential write, the class's ratio");
    }
    if let Some(iops) = written.random_write_iops {
        draft.set("write_iops", iops, "random writes");
    }
    for _ in 0..4 {
        let found = draft.written(area, settings, |one| one.cached()).flatten();
        if let (Some(found), Some(wanted)) = (found, written.cached_write_us) {
            let value = draft.get("write_us") + wanted - found;
            draft.set("write_us", value.clamp(0.0, 1e5), "single writes");
        }
        let found = draft.written(area, settings, |one| one.synchronous()).flatten();
        if let (Some(found), Some(wanted)) = (found, written.sync_ms) {
            let value = draft.get("program_us") + (wanted - found) * 1e3;
            draft.set("program_us", value.clamp(0.0, 1e6), "writes with a flush");
        }
        let found = draft.written(area, settings, |one| one.random()).flatten();
        if let (Some(found), Some(wanted)) = (found, written.random_write_iops) {
            draft.set("write_iops", draft.get("write_iops") * wanted / found, "random writes");
        }
        let found = draft.written(area, settings, |one| one.sequential().map(|(rate, _)| rate));
        if let (Some(found), Some(wanted)) = (found.flatten(), written.write_mb_per_s) {
            let value = draft.get("write_mb_per_s") * wanted / found;
            draft.set("write_mb_per_s", value, "sequential write");
        }
    }
    if let (Some(burst), Some(rate)) = (written.burst_mb, written.write_mb_per_s)
        && burst > rate * 0.5 + 1.0
    {
        let figure = |draft: &Draft| {
            draft.written(area, settings, |one| one.sequential().map(|(_, burst)| burst))?
        };
        let range = ("write_cache_kib", 256.0, 8_388_608.0);
        draft.halve(range, burst, true, "sequential write, its beginning", figure);
    }
}
