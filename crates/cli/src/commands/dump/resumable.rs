//! A dump with a map of its own (`--map`): large reads first, small ones later for what failed;
//! what was written is in the map, and the next run reads what is missing.
//!
//! Invariant: the map is replaced as a whole, after the output is durable: at any moment it is
//! valid, and what it calls written is in the output. The output is called whole only when all of
//! it is. What other members have written is read again, and stays, as a finding, where these
//! cannot read it. What comes from members that are out of date is never called written for good.
//! Called from `dump`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::rescue::{DumpMap, Piece, ReadableArray, Rescue, StreamError, StreamOptions, stream};
use anyhow::{Result, anyhow, bail};
use host::MapStatus::{self, BadSector, Finished, NonScraped, NonTried, NonTrimmed};
use md::{SECTOR_BYTES, show_size};

use super::output::{Placed, Stop};
use super::{DumpArguments, Outcome, no_resources};
use crate::console::say;
use crate::error::Context;
use crate::members::{Used, overlaps};
use crate::meter::Meter;
use crate::signal;

/// The longest map that is read.
const MAX_MAP_BYTES: u64 = 256 << 20;

/// Begins or continues the dump, and reports where it stands.
pub fn copy(arguments: &DumpArguments, source: Rescue, used: &[Used]) -> Result<Outcome> {
    let (Some(path), Some(output)) = (arguments.map.as_deref(), arguments.output.as_deref()) else {
        bail!("--map: no output FILE");
    };
    let stop = signal::watch()?;
    let sectors = source.view.sectors();
    let is_named = |other: Option<&Path>| other.is_some_and(|it| same(it, path));
    if is_named(arguments.output.as_deref()) || is_named(arguments.json.path()) {
        bail!("--map {}: another file of this command", path.display());
    }
    if let Some(how) = overlaps(used, path) {
        bail!("--map {}: {how}; name another file", path.display());
    }
    let name = output.display().to_string();
    let known = earlier(path, &source.identity, &name, sectors)?;
    let wanted = arguments.wanted_output(&source.view, used);
    let placed = Placed::open(output, known.is_some(), &wanted)?;
    let is_known = known.is_some();
    let mut map = known.unwrap_or_else(|| DumpMap::new(&source.identity, &name, sectors));
    if map.continue_with(&source.reading) && is_known {
        say(format_args!(
            "raidlab: {}: other members, copies or options have written {} of it: it is read again",
            output.display(),
            show_size(map.sectors(&[NonScraped])),
        ));
    } else if let Some(sector) = changed(&source.view, &map, &placed)? {
        bail!(
            "-o {}: it is not what was written to it (sector {sector}); to begin anew, remove it \
             and the map",
            output.display()
        );
    }
    for doubt in &source.doubts {
        if !map.doubts.contains(doubt) {
            map.doubts.push(doubt.clone());
        }
    }
    let mut outcome = Outcome { doubts: map.doubts.clone(), ..Outcome::of(&source) };
    let view = source.view.tracking();
    let pause = Duration::from_secs(arguments.map_interval);
    let saved = Saved { path: path.to_owned(), last: Instant::now(), pause };
    let meter = Meter::new("read", sectors);
    let done = map.sectors(&[Finished]);
    let pending = Vec::new();
    let (view, stop) = (&view, &stop);
    let (kept, stale) = (Vec::new(), Vec::new());
    let mut run = Run { view, placed, map, saved, meter, done, pending, kept, stale, stop };
    run.saved.store(&run.map)?;
    let result = run.passes(arguments.depth.into());
    run.meter.finish();
    // Also after an error: what was written until then is not read again.
    let stored = run.placed.sync().and_then(|()| run.saved.store(&run.map));
    outcome.failures = view.failures();
    outcome.skipped = view.skipped();
    outcome.compared = view.comparison();
    // Else some of them are not read again yet.
    if result.is_ok() {
        let contradicted = run.map.of(&[NonScraped]).into_iter();
        outcome.compared.differing = contradicted
            .flat_map(|range| {
                let inside = run.kept.iter().chain(&run.stale);
                let inside = inside.filter(|it| range.start <= it.start && it.end <= range.end);
                let mut inside: Vec<Range<u64>> = inside.cloned().collect();
                inside.sort_by_key(|it| it.start);
                without(range.clone(), &inside)
            })
            .collect();
        outcome.compared.more = 0;
    }
    outcome.kept = run.kept.clone();
    outcome.stale = view.out_of_date();
    let lost = run.map.of(&[BadSector]);
    outcome.lost = lost.iter().map(|range| (range.start, range.end)).collect();
    outcome.done_sectors = run.map.sectors(&[Finished, NonScraped, BadSector]);
    match result {
        Ok(()) => stored?,
        Err(StreamError::System { doing, source }) => return Err(no_resources(&doing, source)),
        Err(StreamError::Consumer(stop)) => {
            outcome.stop = Some(stop);
            return Ok(outcome);
        }
    }
    if arguments.sha256 {
        outcome.sha256 = run.placed.sha256(sectors, stop)?;
        if outcome.sha256.is_none() {
            outcome.stop = Some(Stop::Signal);
        }
    }
    Ok(outcome)
}

/// Blocks that are compared before a dump continues.
const SAMPLES: u64 = 64;

/// Sectors of each.
const SAMPLE: u64 = 8;

/// A sector of the output that is not as the array is read now, of blocks spread over what the map
/// calls written: another file has taken its place, or it was written to.
fn changed(view: &ReadableArray, map: &DumpMap, placed: &Placed) -> Result<Option<u64>> {
    let written = map.of(&[Finished]);
    let all = map.sectors(&[Finished]);
    let mut found = None;
    view.set_skipping(true);
    for sample in 0..SAMPLES.min(all) {
        // In the middle of each part.
        let mut place =
            (u128::from(all) * u128::from(2 * sample + 1) / u128::from(2 * SAMPLES)) as u64;
        let of = written.iter().find(|range| {
            let sectors = range.end - range.start;
            let is_inside = place < sectors;
            place -= if is_inside { 0 } else { sectors };
            is_inside
        });
        let Some(range) = of else { continue };
        let sector = range.start + place;
        let sectors = SAMPLE.min(range.end - sector);
        let (mut now, mut there) = (vec![0; (sectors * SECTOR_BYTES) as usize], Vec::new());
        there.resize(now.len(), 0);
        // What cannot be read by now says nothing.
        if view.read(sector, &mut now).is_empty() {
            placed.read(sector, &mut there)?;
            found = found.or((now != there).then_some(sector));
        }
    }
    view.set_skipping(false);
    view.forget_findings();
    Ok(found)
}

/// Whether two paths are the same, be there a file or not.
fn same(one: &Path, other: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    absolute(one) == absolute(other)
}

/// The map of an earlier run.
fn earlier(path: &Path, array: &str, output: &str, sectors: u64) -> Result<Option<DumpMap>> {
    let failed = || format!("--map {}: cannot read it", path.display());
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.with_context(failed)?,
    };
    if !file.metadata().with_context(failed)?.is_file() {
        bail!("--map {}: it is no regular file", path.display());
    }
    let mut bytes = Vec::new();
    file.take(MAX_MAP_BYTES + 1).read_to_end(&mut bytes).with_context(failed)?;
    if bytes.len() as u64 > MAX_MAP_BYTES {
        bail!("--map {}: it is too long", path.display());
    }
    let map = DumpMap::parse(&bytes, array, output, sectors);
    map.map(Some).map_err(|error| anyhow!("--map {}: {error}", path.display()))
}

/// The map's file.
struct Saved {
    path: PathBuf,
    last: Instant,
    /// Between two times that it is stored.
    pause: Duration,
}

impl Saved {
    /// Replaces the file. A crash leaves the old one or the new one.
    fn store(&mut self, map: &DumpMap) -> Result<()> {
        let failed = || format!("--map {}: cannot write it", self.path.display());
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        self.replace(&beside, &map.text()).with_context(failed)?;
        self.last = Instant::now();
        Ok(())
    }

    fn replace(&self, beside: &Path, text: &str) -> io::Result<()> {
        // What a run that was killed has left; anything else is not overwritten.
        if let Err(error) = std::fs::remove_file(beside)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = File::options().write(true).create_new(true).open(beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(beside, &self.path)?;
        let parent = self.path.parent().filter(|parent| *parent != "").unwrap_or(".".as_ref());
        File::open(parent)?.sync_all()
    }
}

struct Run<'r> {
    view: &'r ReadableArray,
    placed: Placed,
    map: DumpMap,
    saved: Saved,
    meter: Meter,
    /// Sectors that were read, of this run and of earlier ones.
    done: u64,
    /// Ranges that differ and were not delivered yet, or are in the map.
    pending: Vec<Range<u64>>,
    /// Ranges that an earlier run has written and this one cannot read: sorted.
    kept: Vec<Range<u64>>,
    /// Ranges that members have served which are out of date.
    stale: Vec<Range<u64>>,
    stop: &'r AtomicBool,
}

type Ended = Result<(), StreamError<Stop>>;

impl Run<'_> {
    /// Large reads of what was never read; then all that is missing in small ones, and what
    /// redundancy contradicted last time.
    fn passes(&mut self, pieces: usize) -> Ended {
        let options = StreamOptions { pieces, ..StreamOptions::default() };
        let earlier = self.map.of(&[NonTrimmed, BadSector]);
        let contradicted = self.map.of(&[NonScraped]);
        self.view.set_skipping(true);
        for range in self.map.of(&[NonTried]) {
            self.read(range, options, NonTrimmed)?;
        }
        self.view.set_skipping(false);
        self.placed.is_used();
        // What an earlier run could not read is read again after what this one could not.
        let new = self.map.of(&[NonTrimmed]).into_iter().filter(|range| !earlier.contains(range));
        for range in new.chain(earlier.iter().cloned()).collect::<Vec<_>>() {
            self.read(range, options, BadSector)?;
        }
        for range in contradicted {
            self.read(range, options, NonScraped)?;
        }
        Ok(())
    }

    /// Reads and writes a range; what is lost of it gets that status. What was written before and
    /// contradicted stays where nothing better can be read.
    fn read(&mut self, range: Range<u64>, options: StreamOptions, lost_as: MapStatus) -> Ended {
        let view = self.view;
        stream(view, range, options, |piece| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stop::Signal);
            }
            match piece {
                Piece::Hole { at, sectors } => {
                    self.placed.zeroes(at..at + sectors, self.stop)?;
                    self.written(at..at + sectors, &[], lost_as);
                }
                Piece::Data { at, bytes, lost } => {
                    let end = at + bytes.len() as u64 / SECTOR_BYTES;
                    let kept = if lost_as == NonScraped { lost } else { &[] };
                    self.kept.extend(kept.iter().cloned());
                    for part in without(at..end, kept) {
                        let byte = |sector: u64| ((sector - at) * SECTOR_BYTES) as usize;
                        self.placed.write(part.start, &bytes[byte(part.start)..byte(part.end)])?;
                    }
                    self.written(at..end, lost, lost_as);
                }
            }
            if self.saved.last.elapsed() >= self.saved.pause {
                let stored = self.placed.sync().and_then(|()| self.saved.store(&self.map));
                stored.map_err(Stop::Output)?;
            }
            Ok(())
        })
    }

    /// Notes what is in the output.
    fn written(&mut self, range: Range<u64>, lost: &[Range<u64>], lost_as: MapStatus) {
        self.map.set(range.clone(), Finished);
        self.pending.extend(self.view.take_differing());
        let stale = self.view.take_stale();
        self.pending.extend(stale.iter().cloned());
        self.stale.extend(stale);
        let mut later = Vec::new();
        for differs in std::mem::take(&mut self.pending) {
            let here = differs.start.max(range.start)..differs.end.min(range.end);
            self.map.set(here, NonScraped);
            // Pieces come in order, ranges that differ do not.
            if differs.end > range.end {
                later.push(differs.start.max(range.end)..differs.end);
            }
        }
        self.pending = later;
        lost.iter().for_each(|lost| self.map.set(lost.clone(), lost_as));
        let lost: u64 = lost.iter().map(|lost| lost.end - lost.start).sum();
        self.done += range.end - range.start - lost;
        self.meter.set(self.done);
    }
}

/// A range minus others, which are sorted and inside it.
fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut at = range.start;
    let mut left = Vec::new();
    for other in others {
        left.push(at..other.start);
        at = other.end;
    }
    left.push(at..range.end);
    left.retain(|range| range.start < range.end);
    left
}
