//! Carries out a reshape on disks: the steps of `md::reshape`, in their order.
//!
//! Invariant: superblocks are written member after member, each durable before the next, and only
//! when all that was moved is durable. A crash on any line leaves members of which the freshest
//! superblock is true, and the others are one update behind.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use host::{Disk, read_bad_blocks};
use md::assemble::{Array, Candidate, MemberState, Options, Shape, assemble};
use md::geometry::Generation;
use md::ondisk::bitmap::{BitmapHeader, HEADER_BYTES};
use md::ondisk::superblock::{Recovered, ReshapeStage, ReshapeUpdate, Superblock};
use md::ondisk::{MemberMetadata, Timestamp};
use md::reshape::{Goal, MovePlan, ReshapeRefusal, Step, Subject, subject};
use md::{SECTOR_BYTES, show_size};
use parity::Kernels;

use super::backup::{self, BackupStore, Found, Moment, UnderWay};
use super::evidence::{self, Shown};
use super::rows;
use super::types::{ReshapeError, ReshapeEvent, ReshapeReport, ReshapeState};
use crate::members::{array_name, choose};
use crate::on_paper::{Before, OnPaper, on_paper};
use crate::opened::Opened;
use crate::rescue::ReadableArray;
use crate::worse::Worse;

/// How much of the old rows at the position is compared with its redundancy before the first move.
const COMPARED: u64 = 2048;

/// A reshape over members that are open.
pub struct ReshapeJob<'a> {
    /// Finish it, or go back.
    pub goal: Goal,
    /// Override what is refused with a risk.
    pub force: bool,
    /// The array, by name or UUID, where the members form several.
    pub array: Option<&'a str>,
    /// Backups that may be there, the most trusted first. They are only read.
    pub backups: Vec<Arc<dyn BackupStore>>,
    /// Where own copies go to; also one of `backups`.
    pub own: Option<Arc<dyn BackupStore>>,
    /// The parity functions.
    pub kernels: Kernels,
    /// Sectors of a move, between two records, and of a copy, if not the usual ones.
    pub limits: Option<[u64; 3]>,
}

/// Carries out the reshape of an array until it is over or `stop` is set.
///
/// # Errors
/// See [`ReshapeError`].
pub fn reshape_members(
    members: &[Opened],
    job: &ReshapeJob<'_>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ReshapeEvent),
) -> Result<ReshapeReport, ReshapeError> {
    let began = Instant::now();
    let candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
    let options = Options { force: job.force, ..Options::default() };
    let found = assemble(&candidates, &options);
    let array = choose(&found, job.array)?;
    let mut superblocks: Vec<Superblock> =
        members.iter().map(|member| member.superblock.clone()).collect();
    let disks: Vec<Arc<dyn Disk>> = members.iter().map(|member| member.disk.clone()).collect();
    let before = Before { array, candidates: &candidates, disks: &disks, options: &options };
    if let Some(report) = settled(&before, &mut superblocks, job.kernels, began)? {
        return Ok(report);
    }
    let run = |goal, superblocks, array: &Array, candidates: &[Candidate]| {
        Run::new(job, goal, array, candidates, &disks, superblocks)
    };
    let mut it = run(job.goal, superblocks, array, &candidates)?;
    let from = it.subject.position().0;
    let change = it.change(job.goal);
    let warnings = array.read_only.warnings.iter().chain(&array.read_only.doubts).cloned();
    warnings.for_each(|warning| observe(ReshapeEvent::Note(warning)));
    it.check_way_back()?;
    observe(ReshapeEvent::Begins { change: change.clone(), sectors: it.plan.left() });
    it.begin()?;
    let mut is_over = it.go(stop, observe)?;
    let mut is_back = false;
    if is_over && job.goal == Goal::Revert {
        it.turn()?;
        let now = it.candidates_now();
        let Run { superblocks, moved, restored, copied, .. } = it;
        let found = assemble(&now, &options);
        let array = choose(&found, job.array)?;
        it = run(Goal::Continue, superblocks, array, &now)?;
        (it.moved, it.restored, it.copied) = (moved, restored, copied);
        is_back = true;
        is_over = it.go(stop, observe)?;
    }
    if is_over {
        it.finish()?;
    }
    let geometry = it.subject.reshaping.geometry(Generation::New);
    let array_sectors =
        if is_over { geometry.array_sectors() } else { it.subject.reshaping.array_sectors() };
    Ok(ReshapeReport {
        name: it.name.clone(),
        change,
        from,
        position: it.plan.recorded(),
        moved: it.moved,
        restored: it.restored,
        copied: it.copied,
        array_sectors,
        state: match (is_over, is_back) {
            (true, _) => ReshapeState::Finished,
            (false, true) => ReshapeState::StoppedReverting,
            (false, false) => ReshapeState::Stopped,
        },
        missing: it.subject.missing.iter().map(|slot| slot.0).collect(),
        elapsed: began.elapsed(),
    })
}

/// An array whose reshape is over, but for members that do not record it yet.
fn settled(
    before: &Before<'_>,
    superblocks: &mut [Superblock],
    kernels: Kernels,
    began: Instant,
) -> Result<Option<ReshapeReport>, ReshapeError> {
    let Before { array, candidates, disks, .. } = *before;
    let Ok(Shape::Settled(geometry)) = &array.shape else { return Ok(None) };
    let used = |state: &MemberState| {
        let spare = *state == MemberState::Spare;
        spare || matches!(state, MemberState::Active(_) | MemberState::Recovering { .. })
    };
    let members: Vec<usize> = array
        .members
        .iter()
        .filter(|member| used(&member.state))
        .map(|member| member.candidate)
        .collect();
    let reshapes = |candidate: &usize| candidates[*candidate].metadata.reshape.is_some();
    let name = array_name(array);
    if !members.iter().any(reshapes) {
        return Err(ReshapeError::Refused { name, why: ReshapeRefusal::None });
    }
    let defining = &candidates[array.defining].metadata;
    let update = ReshapeUpdate {
        events: defining.events,
        updated: defining.updated,
        stage: ReshapeStage::Finished,
        resync_offset: Some(defining.resync_offset),
        present: numbers(candidates, &members),
    };
    // Only those that lag, so that no two are ever further apart.
    let mut planned = Vec::new();
    for candidate in members.into_iter().filter(reshapes) {
        let metadata = &candidates[candidate].metadata;
        let used = geometry.member_used_sectors(md::MemberIdx(0));
        // Filled by the reshape as far as there is anything: it is in sync.
        let recovered = match metadata.recovery_offset.is_some_and(|offset| offset >= used) {
            true => Recovered::All,
            false => Recovered::AsBefore,
        };
        planned.push((candidate, superblocks[candidate].reshaped(&update, recovered)));
    }
    let worse = |why| ReshapeError::Worse { name: name.clone(), why };
    on_paper(before, &planned, &(0..0), kernels).map_err(worse)?;
    for (candidate, next) in planned {
        write_superblock(&*disks[candidate], &next)?;
        superblocks[candidate] = next;
    }
    Ok(Some(ReshapeReport {
        name,
        change: "recorded on all members".into(),
        from: geometry.array_sectors(),
        position: geometry.array_sectors(),
        moved: 0,
        restored: 0,
        copied: 0,
        array_sectors: geometry.array_sectors(),
        state: ReshapeState::Finished,
        missing: array.missing.iter().map(|slot| slot.0).collect(),
        elapsed: began.elapsed(),
    }))
}

fn numbers(candidates: &[Candidate], of: &[usize]) -> Vec<u32> {
    of.iter().map(|&candidate| candidates[candidate].metadata.dev_number).collect()
}

/// Writes a superblock, durable when it returns.
fn write_superblock(disk: &dyn Disk, superblock: &Superblock) -> Result<(), ReshapeError> {
    let bytes = superblock.encode(disk.logical_block() as usize);
    let written = disk.write(superblock.sector(), &bytes).and_then(|()| disk.sync());
    written.map_err(|source| ReshapeError::System {
        name: disk.name(),
        doing: "write its superblock",
        source,
    })
}

/// Never a whole second: the microseconds say that the superblock is not of Linux.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs(), micros: since.subsec_micros().max(1) }
}

/// A reshape in one direction.
struct Run<'a> {
    job: &'a ReshapeJob<'a>,
    name: String,
    subject: Subject,
    plan: MovePlan,
    disks: Vec<Arc<dyn Disk>>,
    candidates: Vec<Candidate>,
    superblocks: Vec<Superblock>,
    metadata: MemberMetadata,
    old: ReadableArray,
    saved: Option<Found>,
    events: u64,
    moved: u64,
    restored: u64,
    copied: u64,
    /// `saved` is from before this run.
    restores: bool,
    /// Where it turns round, and the position that is recorded then.
    turn_at: Option<u64>,
}

impl<'a> Run<'a> {
    fn new(
        job: &'a ReshapeJob<'a>,
        goal: Goal,
        array: &Array,
        candidates: &[Candidate],
        disks: &[Arc<dyn Disk>],
        superblocks: Vec<Superblock>,
    ) -> Result<Run<'a>, ReshapeError> {
        let name = array_name(array);
        let refused = |why| ReshapeError::Refused { name: name.clone(), why };
        let subject = subject(array, candidates, goal, job.force).map_err(refused)?;
        let metadata = candidates[subject.defining].metadata.clone();
        check_bad_blocks(&subject, candidates, disks)?;
        let mut plan = subject.plan();
        if let Some(limits) = job.limits {
            plan = plan.with_limits(limits);
        }
        let backups = &job.backups;
        let under_way = backup::find(&subject, &metadata, backups, disks, &mut plan, job.force)?;
        let old = rows::old_array(&subject, disks, job.kernels);
        let mut it = Run {
            job,
            events: subject.events,
            subject,
            plan,
            disks: disks.to_vec(),
            candidates: candidates.to_vec(),
            superblocks,
            metadata,
            old,
            saved: None,
            moved: 0,
            restored: 0,
            copied: 0,
            restores: false,
            turn_at: None,
            name,
        };
        if !job.force {
            it.check_position(&under_way)?;
            it.compare_old_side()?;
        }
        if let UnderWay::Saved(found) = under_way {
            it.saved = Some(found);
            it.restores = true;
        }
        if goal == Goal::Revert {
            it.turn_later();
        }
        Ok(it)
    }

    fn moment(&self) -> Moment {
        Moment { seconds: now().seconds, events: self.events }
    }

    fn refused(&self, why: ReshapeRefusal) -> ReshapeError {
        ReshapeError::Refused { name: self.name.clone(), why }
    }

    /// The change in words: in reverse for a reshape that goes back.
    fn change(&self, goal: Goal) -> String {
        let change = self.subject.reshaping.change();
        match goal {
            Goal::Continue => change,
            Goal::Revert => format!("back from {change}"),
        }
    }

    /// The reshape continues only to where it can turn round.
    fn turn_later(&mut self) {
        // What is half written has to be moved first.
        let from = self.plan.saved_to().unwrap_or_else(|| self.plan.recorded());
        let (at, recorded) = self.subject.turning_point(from);
        self.plan = self.plan.clone().towards(at);
        self.turn_at = Some(recorded);
    }

    /// Before the first move the superblocks are updated once where they are of Linux: they say
    /// then that what follows is true. Members that are not there lose their slots, and are two
    /// updates behind: one that comes back would have old rows. In two updates, as members that
    /// differ by one are as good as equal.
    fn begin(&mut self) -> Result<(), ReshapeError> {
        // What ends before it begins leaves the members as they are.
        if let Step::Save(_) = self.next()? {
            self.own_backup()?;
        }
        self.bring_level()?;
        if let (Some(store), true) = (&self.job.own, self.saved.is_none()) {
            let position = self.plan.recorded();
            backup::note_nothing(store, &self.metadata, self.moment(), &[position])?;
        }
        let updates = match (self.subject.missing.is_empty(), self.subject.is_of_linux()) {
            (false, _) => 2,
            (true, is_of_linux) => usize::from(is_of_linux),
        };
        let position = self.plan.recorded();
        if updates > 0 {
            self.check_on_paper(&self.planned(ReshapeStage::At(position)), &(0..0))?;
        }
        (0..updates).try_for_each(|_| self.update(ReshapeStage::At(position)))
    }

    /// The candidates, with the superblocks that their members have by now.
    fn candidates_now(&self) -> Vec<Candidate> {
        let candidates = self.candidates.iter().zip(&self.superblocks);
        let now = candidates.map(|(candidate, superblock)| Candidate {
            metadata: superblock.metadata(),
            ..candidate.clone()
        });
        now.collect()
    }

    /// Whether the array that these superblocks describe serves what this one does.
    fn check_on_paper(
        &self,
        planned: &[(usize, Superblock)],
        moving: &Range<u64>,
    ) -> Result<OnPaper, ReshapeError> {
        let candidates = &self.candidates_now();
        let options = &Options { force: self.job.force, ..Options::default() };
        let found = assemble(candidates, options);
        let array = choose(&found, self.job.array)?;
        let before = Before { array, candidates, disks: &self.disks, options };
        on_paper(&before, planned, moving, self.job.kernels).map_err(|why| self.worse(why))
    }

    fn worse(&self, why: Worse) -> ReshapeError {
        ReshapeError::Worse { name: self.name.clone(), why }
    }

    /// A reshape that turns round must be able to go back from there. Checked before anything is
    /// moved: a member that the reshape fills, as the one that a RAID 0 gets, has nothing to go
    /// back from by the superblocks.
    fn check_way_back(&mut self) -> Result<(), ReshapeError> {
        let Some(position) = self.turn_at else { return Ok(()) };
        let on_disk = self.superblocks.clone();
        for (candidate, next) in self.levelled() {
            self.superblocks[candidate] = next;
        }
        let checked = self.turned_on_paper(position);
        self.superblocks = on_disk;
        checked
    }

    fn turned_on_paper(&self, position: u64) -> Result<(), ReshapeError> {
        let from = self.plan.recorded();
        let moving = from.min(position)..from.max(position);
        let planned = self.planned(ReshapeStage::Reversed(position));
        let OnPaper { found, candidates } = self.check_on_paper(&planned, &moving)?;
        match subject(&found, &candidates, Goal::Continue, self.job.force) {
            Ok(_) => Ok(()),
            Err(why) => Err(self.worse(Worse(why.to_string()))),
        }
    }

    /// Members that lag by one update, as after a crash between the superblocks, get the state of
    /// the freshest before anything counts up: otherwise one of them could be two updates behind.
    fn bring_level(&mut self) -> Result<(), ReshapeError> {
        for (candidate, next) in self.levelled() {
            write_superblock(&*self.disks[candidate], &next)?;
            self.superblocks[candidate] = next;
        }
        Ok(())
    }

    /// The superblocks of members that lag, with the state of the freshest.
    fn levelled(&self) -> Vec<(usize, Superblock)> {
        let Some(state) = self.metadata.reshape else { return Vec::new() };
        let mut levelled = Vec::new();
        for &candidate in &self.subject.recorded {
            let own = self.superblocks[candidate].metadata();
            if own.events >= self.events {
                continue;
            }
            let turned = own.reshape.is_some_and(|own| own.backwards != state.backwards);
            let stage = match turned {
                true => ReshapeStage::Reversed(state.position),
                false => ReshapeStage::At(state.position),
            };
            let numbers = self.subject.recorded.iter();
            let numbers = numbers.map(|&it| self.superblocks[it].metadata().dev_number);
            let update = ReshapeUpdate {
                events: self.events,
                updated: self.metadata.updated,
                stage,
                resync_offset: Some(self.metadata.resync_offset),
                present: numbers.collect(),
            };
            let recovered = self.recovered(candidate, stage);
            levelled.push((candidate, self.superblocks[candidate].reshaped(&update, recovered)));
        }
        levelled
    }

    /// Old rows from the position on, or from where the backup ends, must stand: something has to
    /// show that not more was moved.
    fn check_position(&self, under_way: &UnderWay) -> Result<(), ReshapeError> {
        let position = self.plan.recorded();
        let is_critical = || {
            self.needs_force(format!(
                "at array sector {position} the new rows lie over old ones that are not moved yet: \
                 what was under way there may be half written, and only the backup that was kept \
                 of it has the contents"
            ))
        };
        let kept = self.plan.saved_to().unwrap_or(position);
        let is_of_linux = self.subject.is_of_linux();
        match under_way {
            UnderWay::Saved(found) | UnderWay::Nothing(found) if found.is_ours || !is_of_linux => {
                return Ok(());
            }
            UnderWay::Saved(found) => {
                let new = rows::new_array(&self.subject, &self.disks, self.job.kernels);
                let backwards = self.subject.reshaping.backwards();
                match evidence::shown(&self.plan, backwards, &new, found)? {
                    Shown::Stands => return Ok(()),
                    Shown::OtherMoment => {
                        return Err(self.needs_force(format!(
                            "what the backup has of rows that were moved before {position} is not \
                             what is in their new place: it is of another moment"
                        )));
                    }
                    Shown::AllMoved | Shown::Nothing => {}
                }
            }
            UnderWay::Unknown if is_of_linux => {}
            UnderWay::Unknown if self.plan.is_critical() => return Err(is_critical()),
            UnderWay::Nothing(_) | UnderWay::Unknown => {}
        }
        if !is_of_linux || self.plan.linux_keeps(kept) {
            return Ok(());
        }
        if let UnderWay::Unknown = under_way {
            if self.plan.is_critical() {
                return Err(is_critical());
            }
            let (disks, kernels) = (&self.disks, self.job.kernels);
            let new = rows::new_array(&self.subject, disks, kernels);
            if evidence::old_rows_stand(&self.plan, &self.old, &new) {
                return Ok(());
            }
        }
        // If they do not agree, more is known.
        self.compare_old_side()?;
        Err(self.needs_force(format!(
            "Linux may have moved more than it recorded: it records such a reshape every ten \
             seconds, and not when it is stopped. Then old rows from array sector {kept} on are \
             written over, and what is read there is wrong; nothing on the members shows it. A \
             rehearsal over an overlay, and a look at the contents then (a check of the file \
             system, checksums of files), would"
        )))
    }

    fn needs_force(&self, why: String) -> ReshapeError {
        self.refused(ReshapeRefusal::NeedsForce(why))
    }

    /// Old rows at the position, or where the backup ends, must agree with their redundancy: where
    /// they do not, a write was in flight, or more was moved than was recorded. That they agree
    /// shows nothing, as new rows of as many members do, too.
    fn compare_old_side(&self) -> Result<(), ReshapeError> {
        let position = self.plan.saved_to().unwrap_or_else(|| self.plan.recorded());
        let position = position.min(self.old.sectors());
        let visible = self.subject.reshaping.array_sectors();
        let range = match self.subject.reshaping.backwards() {
            false => position..position.saturating_add(COMPARED).min(visible),
            true => position.saturating_sub(COMPARED)..position,
        };
        if range.is_empty() || !self.old.has_redundancy() {
            return Ok(());
        }
        let compared =
            rows::old_array(&self.subject, &self.disks, self.job.kernels).compared(u64::MAX);
        let mut bytes = vec![0; ((range.end - range.start) * SECTOR_BYTES) as usize];
        compared.read(range.start, &mut bytes);
        let Some(first) = compared.comparison().differing.into_iter().next() else {
            return Ok(());
        };
        Err(self.needs_force(format!(
            "from {position} on, array sectors {} to {} of the old geometry do not agree \
             with their redundancy: either a write was in flight there, or more was moved than was \
             recorded, and what is at the position is overwritten",
            first.start, first.end
        )))
    }

    /// Moves until the target is recorded; `false`: stopped.
    fn go(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(ReshapeEvent),
    ) -> Result<bool, ReshapeError> {
        let sectors = self.plan.left();
        loop {
            let is_stopped = stop.load(Ordering::Relaxed);
            let step = match self.plan.record_early().filter(|_| is_stopped) {
                Some(step) => step,
                None => self.next()?,
            };
            match step {
                Step::Done => return Ok(true),
                Step::Save(_) if is_stopped => return Ok(false),
                Step::Move(_) if is_stopped && self.plan.is_at_record() => return Ok(false),
                Step::Save(range) => self.save(range)?,
                Step::Move(range) => {
                    self.move_rows(&range)?;
                    self.plan.moved(&range);
                    observe(ReshapeEvent::Progress { done: sectors - self.plan.left(), sectors });
                }
                Step::Record(position) => {
                    self.note_before_critical(position)?;
                    self.record(position)?;
                    self.plan.recorded_moved();
                    self.saved = None;
                    self.restores = false;
                }
            }
        }
    }

    fn next(&self) -> Result<Step, ReshapeError> {
        let name = || self.name.clone();
        self.plan.next().map_err(|why| ReshapeError::NoRoom { name: name(), why })
    }

    fn own_backup(&self) -> Result<Arc<dyn BackupStore>, ReshapeError> {
        let (name, position) = (self.name.clone(), self.plan.recorded());
        self.job.own.clone().ok_or(ReshapeError::NeedsBackup { name, position })
    }

    fn save(&mut self, range: Range<u64>) -> Result<(), ReshapeError> {
        let store = self.own_backup()?;
        let bytes = self.read_old(&range)?;
        let moment = self.moment();
        self.saved = Some(backup::save(&store, &self.metadata, moment, range.clone(), &bytes)?);
        self.copied += range.end - range.start;
        self.plan.saved(range);
        Ok(())
    }

    fn move_rows(&mut self, range: &Range<u64>) -> Result<(), ReshapeError> {
        let bytes = match &self.saved {
            Some(saved) if self.plan.is_saved(range) => {
                let mut bytes = buffer(range);
                let there = range.start..range.end.min(saved.end_of(range));
                let len = ((there.end - there.start) * SECTOR_BYTES) as usize;
                saved.read(&there, &mut bytes[..len])?;
                self.restored += if self.restores { range.end - range.start } else { 0 };
                bytes
            }
            _ => self.read_old(range)?,
        };
        rows::write_new(&self.subject, &self.disks, self.job.kernels, range, &bytes)?;
        self.moved += range.end - range.start;
        Ok(())
    }

    /// The old contents; zeroes behind their end.
    fn read_old(&self, range: &Range<u64>) -> Result<Vec<u8>, ReshapeError> {
        let mut bytes = buffer(range);
        let end = range.end.min(self.subject.reshaping.array_sectors());
        if range.start < end {
            let len = ((end - range.start) * SECTOR_BYTES) as usize;
            if let Some(sectors) = self.old.read(range.start, &mut bytes[..len]).into_iter().next()
            {
                return Err(ReshapeError::Unreadable { name: self.name.clone(), sectors });
            }
        }
        Ok(bytes)
    }

    /// From the next position on nothing can be moved without a copy: the backup says, wherever it
    /// stops, that none is in use yet.
    fn note_before_critical(&self, position: u64) -> Result<(), ReshapeError> {
        let mut next = self.plan.clone();
        next.recorded_moved();
        match &self.job.own {
            Some(store) if self.saved.is_none() && next.is_critical() => {
                let both = [self.plan.recorded(), position];
                backup::note_nothing(store, &self.metadata, self.moment(), &both)
            }
            _ => Ok(()),
        }
    }

    fn record(&mut self, position: u64) -> Result<(), ReshapeError> {
        self.sync()?;
        self.update(ReshapeStage::At(position))
    }

    fn sync(&self) -> Result<(), ReshapeError> {
        for member in self.subject.slots.iter().flatten() {
            let disk = &self.disks[member.candidate];
            disk.sync().map_err(|source| ReshapeError::System {
                name: disk.name(),
                doing: "make its writes durable",
                source,
            })?;
        }
        Ok(())
    }

    /// One update of all superblocks, one after the other.
    fn update(&mut self, stage: ReshapeStage) -> Result<(), ReshapeError> {
        let planned = self.planned(stage);
        self.events += 1;
        for (candidate, next) in planned {
            write_superblock(&*self.disks[candidate], &next)?;
            self.superblocks[candidate] = next;
        }
        Ok(())
    }

    /// The superblocks of the next update.
    fn planned(&self, stage: ReshapeStage) -> Vec<(usize, Superblock)> {
        let old = self.metadata.resync_offset;
        let resync_offset = match stage {
            // The copies behind the old end were never made the same.
            ReshapeStage::Finished if self.leaves_unsynced() => {
                Some(Some(old.unwrap_or(u64::MAX).min(self.subject.reshaping.array_sectors())))
            }
            // Rows that were not in sync are elsewhere now.
            _ => old.map(|_| Some(0)),
        };
        let candidates = &self.subject.recorded;
        let number = |&candidate: &usize| self.superblocks[candidate].metadata().dev_number;
        let update = ReshapeUpdate {
            events: self.events + 1,
            updated: match stage {
                ReshapeStage::Finished => Timestamp { micros: 0, ..now() },
                _ => now(),
            },
            stage,
            resync_offset,
            present: candidates.iter().map(number).collect(),
        };
        let next = |&candidate: &usize| {
            let recovered = self.recovered(candidate, stage);
            (candidate, self.superblocks[candidate].reshaped(&update, recovered))
        };
        candidates.iter().map(next).collect()
    }

    /// RAID 10 that has grown: what is behind its old end is resynced when it runs.
    fn leaves_unsynced(&self) -> bool {
        let new = self.subject.reshaping.geometry(Generation::New);
        !new.level().has_parity() && new.array_sectors() > self.subject.reshaping.array_sectors()
    }

    fn recovered(&self, candidate: usize, stage: ReshapeStage) -> Recovered {
        let mut members = self.subject.slots.iter().flatten();
        let member = members.find(|member| member.candidate == candidate);
        let new = self.subject.reshaping.geometry(Generation::New);
        match stage {
            _ if member.is_none_or(|member| member.is_whole || !member.follows) => {
                Recovered::AsBefore
            }
            ReshapeStage::Finished => Recovered::All,
            ReshapeStage::At(position) if !self.subject.reshaping.backwards() => {
                let row = new.chunk_sectors() * new.data_members().max(1) as u64;
                Recovered::UpTo(position / row * new.chunk_sectors())
            }
            // What it has is of the geometry that is left.
            ReshapeStage::Reversed(_) => Recovered::UpTo(0),
            ReshapeStage::At(_) => Recovered::AsBefore,
        }
    }

    /// The reshape turns round: everything that was moved is the old side now.
    fn turn(&mut self) -> Result<(), ReshapeError> {
        let position = self.turn_at.expect("it was to turn round");
        if let Some(store) = &self.job.own {
            // Right whether the superblocks that follow are written or not.
            let both = [self.plan.recorded(), position];
            backup::note_nothing(store, &self.metadata, self.moment(), &both)?;
        }
        self.check_on_paper(&self.planned(ReshapeStage::Reversed(position)), &(0..0))?;
        self.update(ReshapeStage::Reversed(position))
    }

    /// The new geometry is that of the array. The backup goes last: until the superblocks say so,
    /// it may be needed to know that nothing was under way.
    fn finish(&mut self) -> Result<(), ReshapeError> {
        self.sync()?;
        self.check_on_paper(&self.planned(ReshapeStage::Finished), &(0..0))?;
        self.update(ReshapeStage::Finished)?;
        for &candidate in &self.subject.recorded {
            self.touch_bitmap(candidate)?;
        }
        match &self.job.own {
            Some(store) => store.clear().map_err(|source| ReshapeError::System {
                name: store.name().to_string_lossy().into_owned(),
                doing: "clear it",
                source,
            }),
            None => Ok(()),
        }
    }

    /// A bitmap of an older event count would mean a resync of everything.
    fn touch_bitmap(&self, candidate: usize) -> Result<(), ReshapeError> {
        let Some(area) = self.superblocks[candidate].metadata().bitmap else { return Ok(()) };
        let disk = &self.disks[candidate];
        let failed =
            |source| ReshapeError::System { name: disk.name(), doing: "update its bitmap", source };
        let mut block = vec![0; disk.logical_block().max(SECTOR_BYTES as u32) as usize];
        disk.read(area.sector, &mut block).map_err(failed)?;
        // One that is of no use anyway, as its events say.
        let Ok(mut header) = BitmapHeader::decode(&block) else { return Ok(()) };
        if header.events < self.subject.events {
            return Ok(());
        }
        header.events = self.events;
        block[..HEADER_BYTES].copy_from_slice(&header.encode());
        disk.write(area.sector, &block).and_then(|()| disk.sync()).map_err(failed)
    }
}

fn buffer(range: &Range<u64>) -> Vec<u8> {
    vec![0; ((range.end - range.start) * SECTOR_BYTES) as usize]
}

/// Members whose bad-block logs list sectors take no part: what is written would have to leave the
/// lists at the same moment.
fn check_bad_blocks(
    subject: &Subject,
    candidates: &[Candidate],
    disks: &[Arc<dyn Disk>],
) -> Result<(), ReshapeError> {
    for member in subject.slots.iter().flatten() {
        let disk = &disks[member.candidate];
        let Some(log) = candidates[member.candidate].metadata.bad_blocks else { continue };
        let why = match read_bad_blocks(&**disk, log) {
            Ok(bad) if bad.ranges().is_empty() => continue,
            Ok(bad) => {
                let sectors: u64 = bad.ranges().iter().map(|it| it.end - it.start).sum();
                let size = show_size(sectors);
                format!(
                    "its bad-block log lists {size}, and a reshape with such members is not \
                     carried out here; a copy of the member with an empty log could be used"
                )
            }
            Err(error) => format!("its bad-block log: {error}"),
        };
        return Err(ReshapeError::Member { name: disk.name(), why });
    }
    Ok(())
}
