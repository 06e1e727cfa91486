//! Prepares an array for reading after the assembly decision: the members of each slot, their bad
//! blocks, and log contents that the members lack.
//!
//! Invariant: nothing is written. Log entries that a kernel would replay into the members at start
//! are laid over them in memory; unreadable or invalid parts become a note, never a silent gap.

use std::ops::Range;
use std::sync::Arc;

use md::assemble::{
    Array, Candidate, Explicit, MemberState, OutOfDate, Plan, Shape, ShapeError, data_starts,
};
use md::geometry::{Generation, Reshaping};
use md::ondisk::{journal, ppl};
use md::reshape::{MovePlan, is_of_linux};
use md::{Geometry, MemberIdx, SECTOR_BYTES};
use parity::Kernels;

use super::log_overlay::{LogOverlay, Patch, Patches};
use super::slot_reader;
use super::{OutOfDateSource, Part, ReadableArray, Source};
use crate::reshape::old_rows_stand;
use host::{AreaError, Disk, read_bad_blocks};

/// An array that is ready to be read.
pub struct Prepared {
    /// The array.
    pub view: ReadableArray,
    /// Measures taken for logs and bad blocks, one sentence each.
    pub notes: Vec<String>,
    /// Measures that failed, so that the data may be old or wrong, one sentence each.
    pub doubts: Vec<String>,
}

/// The array has no geometry, so that nothing can be read: the reason of the decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGeometry(#[source] pub ShapeError);

/// Prepares an array from the assembly decision. `candidates` and `disks` are those that the
/// decision was made from; `plan` is usually its read-only plan.
///
/// # Errors
/// When the array has no geometry: the reason of the decision.
///
/// # Panics
/// When `disks` are not as many as `candidates`.
pub fn prepare(
    array: &Array,
    plan: &Plan,
    candidates: &[Candidate],
    disks: &[Arc<dyn Disk>],
    kernels: Kernels,
) -> Result<Prepared, NoGeometry> {
    assert_eq!(candidates.len(), disks.len(), "every candidate has a disk");
    let shape = array.shape.as_ref().map_err(|why| NoGeometry(why.clone()))?;
    let mut it = Preparing::new(array, plan, candidates, disks);
    let mut newest = Patches::new();
    if let Shape::Settled(geometry) = shape {
        it.replay_ppl(geometry, kernels);
        newest = it.replay_journal(geometry);
    }
    let parts = match shape {
        Shape::Settled(geometry) => {
            let slots = it.slots(geometry.members(), Generation::Old);
            let end = array.array_sectors.min(geometry.array_sectors());
            vec![Part { array: 0..end, geometry: geometry.clone(), slots }]
        }
        Shape::Reshaping(reshaping) => {
            let end = reshaping.array_sectors();
            let position = reshaping.position().0.min(end);
            let doubt = it.doubt_of_position(reshaping, kernels);
            it.doubts.extend(doubt);
            let (first, second) = match reshaping.backwards() {
                false => (Generation::New, Generation::Old),
                true => (Generation::Old, Generation::New),
            };
            let mut part = |array: Range<u64>, generation| {
                let geometry = reshaping.geometry(generation).clone();
                let slots = it.slots(geometry.members(), generation);
                Part { array, geometry, slots }
            };
            vec![part(0..position, first), part(position..end, second)]
        }
    };
    let out_of_date = parts.iter().map(|part| it.out_of_date(shape, part)).collect();
    let view = ReadableArray::new(parts, kernels).with_newest(newest);
    let view = view.with_out_of_date(out_of_date);
    Ok(Prepared { view, notes: it.notes, doubts: it.doubts })
}

/// Prepares an array with an explicitly given geometry. `disks` by slot, as in the description.
///
/// # Panics
/// When a slot with a member has no disk.
pub fn prepare_explicit(
    explicit: &Explicit,
    disks: &[Option<Arc<dyn Disk>>],
    kernels: Kernels,
) -> ReadableArray {
    let Shape::Settled(geometry) = &explicit.shape else {
        unreachable!("a description has one geometry");
    };
    let slots = explicit.read_only.slots.iter().map(|slot| {
        let source = slot.as_ref().map(|source| {
            let disk = disks[source.candidate].clone().expect("a member has a disk");
            Source::new(disk, source.data_offset, source.valid_sectors, &[])
        });
        source.into_iter().collect()
    });
    let part = Part {
        array: 0..geometry.array_sectors(),
        geometry: geometry.clone(),
        slots: slots.collect(),
    };
    ReadableArray::new(vec![part], kernels)
}

/// One write of a log replay.
pub(crate) struct LogWrite {
    pub(crate) candidate: usize,
    /// Sector of the device.
    pub(crate) sector: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Result of evaluating the partial parity logs.
pub(crate) struct LogReplay {
    pub(crate) writes: Vec<LogWrite>,
    /// The array's state after these writes.
    pub(crate) verdict: Option<ppl::PplVerdict>,
    /// Incomplete logs, by slot: the parity of this member may be wrong in stripes with writes in
    /// flight.
    pub(crate) gaps: Vec<(MemberIdx, String)>,
}

/// The writes of a partial parity log replay, and the array's state after them.
pub(crate) fn ppl_writes(
    array: &Array,
    plan: &Plan,
    candidates: &[Candidate],
    disks: &[Arc<dyn Disk>],
    geometry: &Geometry,
    kernels: Kernels,
) -> LogReplay {
    let mut it = Preparing::new(array, plan, candidates, disks);
    let LogPatches { patches, verdict, gaps } = it.ppl_patches(geometry, kernels);
    let writes = patches.into_iter().flat_map(|(candidate, patches)| {
        patches.into_iter().map(move |(sector, patch)| match patch {
            Patch::Bytes(bytes) => LogWrite { candidate, sector, bytes: bytes.into_vec() },
            Patch::Elsewhere(..) => unreachable!("parity is computed"),
        })
    });
    LogReplay { writes: writes.collect(), verdict, gaps }
}

/// Parity restored from the logs.
#[derive(Default)]
struct LogPatches {
    /// By candidate.
    patches: Vec<(usize, Patches)>,
    verdict: Option<ppl::PplVerdict>,
    /// See [`LogReplay::gaps`].
    gaps: Vec<(MemberIdx, String)>,
}

struct Preparing<'a> {
    array: &'a Array,
    plan: &'a Plan,
    candidates: &'a [Candidate],
    /// By candidate; with restored blocks laid over it if a log has some.
    disks: Vec<Arc<dyn Disk>>,
    notes: Vec<String>,
    doubts: Vec<String>,
}

impl<'a> Preparing<'a> {
    fn new(
        array: &'a Array,
        plan: &'a Plan,
        candidates: &'a [Candidate],
        disks: &[Arc<dyn Disk>],
    ) -> Preparing<'a> {
        let disks = disks.to_vec();
        Preparing { array, plan, candidates, disks, notes: Vec::new(), doubts: Vec::new() }
    }

    /// Why what is read at the position of a reshape may be wrong.
    fn doubt_of_position(&self, reshaping: &Reshaping, kernels: Kernels) -> Option<String> {
        let plan = MovePlan::new(reshaping)?;
        let position = plan.recorded();
        if plan.is_critical() {
            return Some(format!(
                "At array sector {position} the new rows of the reshape lie over old ones that are \
                 not moved yet: what was under way there when it stopped may be half written, and \
                 only the backup of the reshape has its contents."
            ));
        }
        let metadata = &self.candidates[self.array.defining].metadata;
        if !is_of_linux(metadata) || plan.linux_keeps(position) {
            return None;
        }
        // With notes of its own, which are made again.
        let mut it = Preparing::new(self.array, self.plan, self.candidates, &self.disks);
        let [old, new] = [Generation::Old, Generation::New].map(|generation| {
            let geometry = reshaping.geometry(generation).clone();
            let slots = it.slots(geometry.members(), generation);
            let array = 0..geometry.array_sectors();
            ReadableArray::new(vec![Part { array, geometry, slots }], kernels)
        });
        let side = if reshaping.backwards() { "below" } else { "behind" };
        (!old_rows_stand(&plan, &old, &new)).then(|| {
            format!(
                "Linux may have moved more of the array than it recorded: then what is read {side} \
                 array sector {position} is wrong, and nothing on the members shows it."
            )
        })
    }

    /// The sources of each slot: the plan's choice, then other members with a part of it.
    fn slots(&mut self, count: usize, generation: Generation) -> Vec<Vec<Source>> {
        let mut slots = vec![Vec::new(); count];
        for (slot, place) in slots.iter_mut().enumerate() {
            let Some(chosen) = self.plan.slots.get(slot).cloned().flatten() else { continue };
            let data_offset = match generation {
                Generation::Old => chosen.data_offset,
                Generation::New => chosen.new_data_offset,
            };
            place.push(self.source(chosen.candidate, data_offset, chosen.valid_sectors));
            for (candidate, in_sync) in self.others(slot, chosen.candidate) {
                let metadata = &self.candidates[candidate].metadata;
                let defining = &self.candidates[self.array.defining].metadata;
                let (old, new) = data_starts(metadata, defining);
                let data_offset = match generation {
                    Generation::Old => old,
                    Generation::New => new,
                };
                place.push(self.source(candidate, data_offset, in_sync));
            }
        }
        slots
    }

    /// The other members of a slot, and how far they are in sync.
    fn others(&self, slot: usize, chosen: usize) -> Vec<(usize, u64)> {
        let others = self.array.members.iter().filter(|member| member.candidate != chosen);
        let in_sync = others.filter_map(|member| {
            let (of, up_to) = match member.state {
                MemberState::Active(of) => (of, u64::MAX),
                MemberState::Recovering { slot, up_to } => (slot, up_to),
                MemberState::Replacement { slot, up_to } => (slot, up_to.unwrap_or(u64::MAX)),
                _ => return None,
            };
            (of.index() == slot).then_some((member.candidate, up_to))
        });
        in_sync.collect()
    }

    /// The members that are out of date, as sources of a part of the array.
    fn out_of_date(&mut self, shape: &Shape, part: &Part) -> Vec<OutOfDateSource> {
        // Of a reshape: a part with the new geometry has the data at the new offsets.
        let is_new = match shape {
            Shape::Settled(_) => false,
            Shape::Reshaping(it) => (part.array.start == 0) != it.backwards(),
        };
        let array = self.array;
        let source = |it: &OutOfDate| {
            let start = if is_new { it.source.new_data_offset } else { it.source.data_offset };
            OutOfDateSource {
                source: self.source(it.source.candidate, start, it.source.valid_sectors),
                slot: it.slot.index(),
                what: it.what.clone(),
            }
        };
        array.out_of_date.iter().map(source).collect()
    }

    fn source(&mut self, candidate: usize, data_offset: u64, in_sync: u64) -> Source {
        let bad = match self.bad_blocks(candidate) {
            Ok(bad) => bad,
            Err(problem) => {
                let label = &self.candidates[candidate].label;
                let note = format!("{label}: its list of bad blocks is ignored: {problem}.");
                if !self.doubts.contains(&note) {
                    self.doubts.push(note);
                }
                [].into()
            }
        };
        let write_mostly = self.candidates[candidate].metadata.write_mostly;
        let source = Source::new(self.disks[candidate].clone(), data_offset, in_sync, &bad);
        Source { write_mostly, ..source }
    }

    /// The bad sectors of a member, as sectors of the device.
    fn bad_blocks(&self, candidate: usize) -> Result<Arc<[Range<u64>]>, AreaError> {
        let metadata = &self.candidates[candidate].metadata;
        let Some(log) = metadata.bad_blocks else { return Ok([].into()) };
        let bad = read_bad_blocks(&*self.disks[candidate], log)?;
        Ok(bad.ranges().to_vec().into())
    }

    fn patch(&mut self, candidate: usize, patches: Patches) {
        let base = self.disks[candidate].clone();
        self.disks[candidate] = Arc::new(LogOverlay { base, patches });
    }

    /// Lays the parity restored from the logs over the members: data recovered for a missing member
    /// are then right, also in stripes with writes in flight.
    fn replay_ppl(&mut self, geometry: &Geometry, kernels: Kernels) {
        for (candidate, patches) in self.ppl_patches(geometry, kernels).patches {
            self.patch(candidate, patches);
        }
    }

    /// The parity restored from the logs, and the array's state with it.
    fn ppl_patches(&mut self, geometry: &Geometry, kernels: Kernels) -> LogPatches {
        let metadata = &self.candidates[self.array.defining].metadata;
        if metadata.ppl.is_none() || metadata.resync_offset.is_none() {
            return LogPatches::default();
        }
        let resync_offset = metadata.resync_offset;
        let mut logs = Vec::new();
        let mut gaps = Vec::new();
        let mut areas = vec![None; geometry.members()];
        let present = self.plan.slots.iter().take(geometry.members());
        let areas_wanted = present.flatten().count();
        for (slot, source) in self.plan.slots.iter().enumerate().take(geometry.members()) {
            let Some(source) = source else { continue };
            let metadata = &self.candidates[source.candidate].metadata;
            let member = MemberIdx(slot as u16);
            let Some(area) = metadata.log_area else {
                gaps.push((member, "it has no partial parity log".into()));
                continue;
            };
            let disk = &self.disks[source.candidate];
            let load =
                ppl::MemberLog::load(member, metadata.set_uuid, area.sectors, |sector, buf| {
                    disk.read(area.sector + sector, buf)
                });
            match load {
                Ok(log) => logs.push(log),
                Err(error) => {
                    let label = &self.candidates[source.candidate].label;
                    self.doubts.push(format!("{label}: its partial parity log: {error}."));
                    gaps.push((member, format!("its partial parity log cannot be read: {error}")));
                }
            }
            areas[slot] = Some(area);
        }
        let in_sync = |member: MemberIdx| {
            let source = self.plan.slots[member.index()].as_ref();
            source.map_or(0, |source| source.valid_sectors)
        };
        let recovery = match ppl::plan_recovery(geometry, &logs, resync_offset, in_sync) {
            Ok(recovery) => recovery,
            Err(refused) => {
                self.doubts.push(format!("{refused}."));
                return LogPatches { gaps, ..LogPatches::default() };
            }
        };
        let slots = self.slots(geometry.members(), Generation::Old);
        let mut patches = vec![Patches::new(); geometry.members()];
        let mut done = 0;
        for step in &recovery.steps {
            let Some(area) = areas[step.parity.index()] else { continue };
            if let Some(parity) = parity_of(step, area.sector, &slots, kernels) {
                let start = slots[step.parity.index()][0].data_offset + step.sectors.start;
                let sectors = (start..).zip(parity.chunks(SECTOR_BYTES as usize));
                let sectors = sectors.map(|(at, bytes)| (at, Patch::Bytes(bytes.into())));
                patches[step.parity.index()].extend(sectors);
                done += 1;
            } else {
                let (start, end) = (step.sectors.start, step.sectors.end);
                let what = "data that its partial parity log is combined with cannot be read";
                gaps.push((step.parity, format!("{what} (sectors {start} to {end} of the data)")));
            }
        }
        let (steps, skipped) = (recovery.steps.len(), recovery.skipped.len());
        self.notes.push(format!(
            "The partial parity log was applied: {done} of {steps} writes that were in \
             flight, {skipped} cannot be recovered because their data is missing."
        ));
        for mismatch in &recovery.mismatches {
            self.doubts.push(format!("Partial parity log: {mismatch}."));
            if !mismatch.is_torn() {
                gaps.push((mismatch.member(), mismatch.problem()));
            }
        }
        if recovery.is_unused() {
            let slots = (0..geometry.members() as u16).map(MemberIdx);
            gaps.extend(slots.map(|slot| (slot, ppl::UNUSED.to_string())));
        }
        // A log that is not there may name writes.
        let is_complete = done == steps && logs.len() == areas_wanted;
        let verdict = is_complete.then_some(recovery.verdict);
        let of_candidate = |(slot, patches): (usize, Patches)| {
            let candidate = self.plan.slots[slot].as_ref().map(|source| source.candidate);
            (candidate.expect("a log has a member"), patches)
        };
        let patches = patches.into_iter().enumerate().filter(|(_, patches)| !patches.is_empty());
        LogPatches { patches: patches.map(of_candidate).collect(), verdict, gaps }
    }

    /// Lays the journal's contents over the members, and returns the array sectors whose newest
    /// contents are only in the journal.
    fn replay_journal(&mut self, geometry: &Geometry) -> Patches {
        let mut newest = Patches::new();
        let Some(candidate) = self.plan.journal else { return newest };
        let metadata = &self.candidates[candidate].metadata;
        let (start, tail) = (metadata.data_offset, metadata.journal_tail.unwrap_or(0));
        let disk = self.disks[candidate].clone();
        let replay = journal::Journal::new(geometry, metadata.set_uuid, metadata.data_sectors)
            .map_err(|refused| refused.to_string())
            .and_then(|journal| {
                let read = |sector, buf: &mut [u8]| disk.read(start + sector, buf);
                journal.replay(tail, read).map_err(|error| error.to_string())
            });
        let replay = match replay {
            Ok(replay) => replay,
            Err(problem) => {
                let label = &self.candidates[candidate].label;
                self.doubts.push(format!("{label}: the journal is not replayed: {problem}."));
                return newest;
            }
        };
        let block = |patches: &mut Patches, at: u64, journal_sector: u64| {
            for sector in 0..journal::BLOCK_SECTORS {
                let from = start + journal_sector + sector;
                patches.insert(at + sector, Patch::Elsewhere(disk.clone(), from));
            }
        };
        let mut patches = vec![Patches::new(); geometry.members()];
        for write in &replay.writes {
            let Some(source) = &self.plan.slots[write.member.index()] else { continue };
            let at = source.data_offset + write.sector.0;
            block(&mut patches[write.member.index()], at, write.journal_sector);
        }
        for data in &replay.newest {
            block(&mut newest, data.at.0, data.journal_sector);
        }
        for (slot, patches) in patches.into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let source = self.plan.slots[slot].as_ref().expect("only members are patched");
            self.patch(source.candidate, patches);
        }
        self.notes.push(format!(
            "The journal was applied in memory: {} blocks of members, {} blocks that are newer \
             than what the members have.",
            replay.writes.len(),
            replay.newest.len()
        ));
        if replay.next_seq.is_none() {
            let at = replay.end;
            self.doubts.push(format!(
                "The journal has no record at its tail ({at}): what it held, if it held anything, \
                 is lost."
            ));
        }
        if !replay.ignored.is_empty() {
            let count = replay.ignored.len();
            self.doubts.push(format!("{count} records of the journal are damaged and left out."));
        }
        newest
    }
}

/// The parity of a replay step; `None` when an input cannot be read.
fn parity_of(
    step: &ppl::PplStep,
    area_start: u64,
    slots: &[Vec<Source>],
    kernels: Kernels,
) -> Option<Vec<u8>> {
    let sectors = step.sectors.end - step.sectors.start;
    let bytes = || vec![0; (sectors * SECTOR_BYTES) as usize];
    let mut sum = bytes();
    if let Some(at) = step.partial_parity {
        slots[step.parity.index()].first()?.disk.read(area_start + at, &mut sum).ok()?;
    }
    for member in &step.data {
        let mut data = bytes();
        let mut lost = Vec::new();
        let failures = slot_reader::Failures::default();
        let sources = &slots[member.index()];
        slot_reader::read(sources, step.sectors.start, &mut data, &failures, &mut lost);
        if !lost.is_empty() {
            return None;
        }
        kernels.xor_into(&mut sum, &[&data]);
    }
    Some(sum)
}
