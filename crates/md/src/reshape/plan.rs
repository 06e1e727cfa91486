//! What is moved next, when the position is recorded, and when old contents must be saved first.
//!
//! ```text
//!   forwards, on a member:    new rows -->          | room |  old rows that are not moved yet
//!                             ......................        ..................................
//!                             up to `recorded`       what may be written before the next record
//! ```
//!
//! Invariant: before the position is recorded again, nothing is written over an old row that has a
//! sector from the recorded position on, unless a durable copy of it is kept. So after a crash the
//! recorded position is true, whatever was written behind it. Called by `admin`, which executes the
//! steps in their order.

use std::fmt;
use std::ops::Range;

use super::rows::Rows;
use crate::geometry::{DataStarts, Generation, Reshaping};
use crate::units::{MemberIdx, show_size};

/// Most sectors that are moved at once, unless one step is longer: 4 MiB.
pub const PIECE: u64 = 8192;

/// Most sectors that are moved before the position is recorded: 64 MiB.
const UNRECORDED: u64 = 1 << 17;

/// Most sectors that are saved at once, unless one step is longer: 16 MiB.
const SAVED: u64 = 1 << 15;

/// What is to be done next. A step begins when the one before is done, and after `Save` and
/// `Record` is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep a durable copy of the old contents of these array sectors.
    Save(Range<u64>),
    /// Read these array sectors in the old geometry, write them in the new one.
    Move(Range<u64>),
    /// Make all moved sectors durable, then record this position on every member.
    Record(u64),
    /// The position is where it was to go, and is recorded.
    Done,
}

/// Nothing can be moved: what would be written lies over what has not been moved yet, and no copy
/// of any size makes room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The recorded position.
    pub position: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at array sector {} the new rows lie over old ones that are not moved yet, and a \
             backup of {} does not reach beyond them",
            self.position,
            show_size(SAVED)
        )
    }
}

impl std::error::Error for NoRoom {}

/// The moves of a reshape from its position to a target.
#[derive(Clone, Debug)]
pub struct MovePlan {
    pub(super) old: Rows,
    pub(super) new: Rows,
    /// Of the members that have a slot in both geometries.
    pub(super) starts: Vec<DataStarts>,
    /// Positions are multiples of it, or the ends.
    pub(super) step: u64,
    pub(super) backwards: bool,
    /// With parity; else RAID 10.
    pub(super) has_parity: bool,
    /// Array sectors that have old contents.
    pub(super) visible: u64,
    pub(super) target: u64,
    pub(super) recorded: u64,
    moved: u64,
    /// Array sectors of which a durable copy is kept.
    saved: Option<Range<u64>>,
    /// As [`PIECE`] and the others; smaller in tests.
    limits: [u64; 3],
}

impl MovePlan {
    /// From the position to its end. `None`: no moves are possible between such geometries.
    pub fn new(reshaping: &Reshaping) -> Option<MovePlan> {
        let [old, new] =
            [Generation::Old, Generation::New].map(|it| Rows::of(reshaping.geometry(it)));
        let (old, new) = (old?, new?);
        let slots = (0..reshaping.members()).map(|slot| MemberIdx(slot as u16));
        let starts = slots.filter_map(|slot| {
            let old = reshaping.data_start(Generation::Old, slot)?;
            Some(DataStarts { old, new: reshaping.data_start(Generation::New, slot)? })
        });
        let position = reshaping.position().0;
        let backwards = reshaping.backwards();
        Some(MovePlan {
            old,
            new,
            starts: starts.collect(),
            step: step(reshaping)?,
            backwards,
            has_parity: reshaping.geometry(Generation::New).level().has_parity(),
            visible: reshaping.array_sectors(),
            target: if backwards { 0 } else { end(reshaping) },
            recorded: position,
            moved: position,
            saved: None,
            limits: [PIECE, UNRECORDED, SAVED],
        })
    }

    /// With other limits: sectors of a move, between two records, and of a copy.
    #[must_use]
    pub fn with_limits(self, limits: [u64; 3]) -> MovePlan {
        MovePlan { limits, ..self }
    }

    /// Only so far.
    ///
    /// # Panics
    /// If the target is not between the position and the end, or not a multiple of the step.
    #[must_use]
    pub fn towards(self, target: u64) -> MovePlan {
        let (low, high) = (self.recorded.min(self.target), self.recorded.max(self.target));
        assert!((low..=high).contains(&target), "{target} is not ahead");
        assert!(target == self.target || target.is_multiple_of(self.step), "{target} is no row");
        MovePlan { target, ..self }
    }

    /// Positions are multiples of it.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Where it goes to.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// The recorded position.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Sectors that have been moved from the position on which it began, and all.
    pub fn left(&self) -> u64 {
        self.moved.abs_diff(self.target)
    }

    /// Of these array sectors a durable copy exists from before: what was under way when it all
    /// stopped. Returns whether the plan uses it, which it does if it begins at the position.
    pub fn use_saved(&mut self, copies: &[Range<u64>]) -> bool {
        let mut reach = self.recorded;
        for _ in copies {
            for copy in copies.iter().filter(|copy| copy.start < copy.end) {
                match self.backwards {
                    false if copy.start <= reach => reach = reach.max(copy.end),
                    true if copy.end >= reach => reach = reach.min(copy.start),
                    _ => {}
                }
            }
        }
        let reach = match self.backwards {
            false if reach >= self.target => self.target,
            false => reach / self.step * self.step,
            true => reach.next_multiple_of(self.step).max(self.target),
        };
        let (start, end) = (self.recorded.min(reach), self.recorded.max(reach));
        let is_ahead = if self.backwards { reach < self.recorded } else { reach > self.recorded };
        if is_ahead && self.fits(reach, reach) {
            self.saved = Some(start..end);
        }
        self.saved.is_some()
    }

    /// Where the durable copy ends that the plan uses.
    pub fn saved_to(&self) -> Option<u64> {
        self.saved.as_ref().map(|saved| if self.backwards { saved.start } else { saved.end })
    }

    /// Whether nothing was moved since the last record.
    pub fn is_at_record(&self) -> bool {
        self.moved == self.recorded
    }

    /// The record that ends a run early. Not while a copy is in use: what it covers would be half
    /// moved.
    pub fn record_early(&self) -> Option<Step> {
        (self.saved.is_none() && !self.is_at_record()).then(|| self.record())
    }

    /// Whether nothing can be moved from the recorded position on without a copy: then what was
    /// under way when the reshape stopped may be half written.
    pub fn is_critical(&self) -> bool {
        self.recorded != self.target && self.room(self.recorded) == self.recorded
    }

    /// The next step.
    ///
    /// # Errors
    /// No step is possible.
    pub fn next(&self) -> Result<Step, NoRoom> {
        if self.moved == self.target {
            return Ok(if self.moved == self.recorded { Step::Done } else { self.record() });
        }
        let [piece, unrecorded, _] = self.limits;
        if let Some(saved) = &self.saved {
            let edge = if self.backwards { saved.start } else { saved.end };
            return Ok(if edge == self.moved { self.record() } else { self.piece(edge, piece) });
        }
        let room = self.room(self.recorded);
        let is_ahead = if self.backwards { room < self.moved } else { room > self.moved };
        if is_ahead && self.moved.abs_diff(self.recorded) < unrecorded {
            return Ok(self.piece(room, piece));
        }
        if self.moved != self.recorded {
            return Ok(self.record());
        }
        self.save().ok_or(NoRoom { position: self.recorded })
    }

    /// These sectors were moved.
    pub fn moved(&mut self, range: &Range<u64>) {
        self.moved = if self.backwards { range.start } else { range.end };
    }

    /// A durable copy of these sectors exists.
    pub fn saved(&mut self, range: Range<u64>) {
        self.saved = Some(range);
    }

    /// Whether these sectors are to be read from the copy.
    pub fn is_saved(&self, range: &Range<u64>) -> bool {
        self.saved
            .as_ref()
            .is_some_and(|saved| saved.start <= range.start && range.end <= saved.end)
    }

    /// What was moved is recorded.
    pub fn recorded_moved(&mut self) {
        self.recorded = self.moved;
        self.saved = None;
    }

    fn record(&self) -> Step {
        Step::Record(self.moved)
    }

    /// The next piece up to `edge`.
    fn piece(&self, edge: u64, most: u64) -> Step {
        let most = (most / self.step).max(1) * self.step;
        match self.backwards {
            false => {
                let aligned = (self.moved / self.step * self.step).saturating_add(most);
                Step::Move(self.moved..edge.min(aligned))
            }
            true => {
                let aligned = self.moved.next_multiple_of(self.step).saturating_sub(most);
                Step::Move(edge.max(aligned)..self.moved)
            }
        }
    }

    /// The copy that lets the most be moved.
    fn save(&self) -> Option<Step> {
        let most = (self.limits[2] / self.step).max(1);
        let base = match self.backwards {
            false => self.recorded / self.step * self.step,
            true => self.recorded.next_multiple_of(self.step),
        };
        let edges = (1..=most).rev().map(|steps| match self.backwards {
            false => base.saturating_add(steps * self.step).min(self.target),
            true => base.saturating_sub(steps * self.step).max(self.target),
        });
        let edge = edges.into_iter().find(|&edge| self.fits(edge, edge))?;
        Some(Step::Save(edge.min(self.recorded)..edge.max(self.recorded)))
    }

    /// Whether everything up to `edge` can be written while all from `kept` on is kept.
    pub(super) fn fits(&self, edge: u64, kept: u64) -> bool {
        let room = self.room(kept);
        if self.backwards { room <= edge } else { room >= edge }
    }

    /// How far can be written while all old rows with sectors from `kept` on are kept. Not before
    /// the recorded position.
    fn room(&self, kept: u64) -> u64 {
        let edge = self.edge(kept);
        if self.backwards {
            edge.clamp(self.target.min(self.recorded), self.recorded)
        } else if edge >= self.target {
            self.target
        } else {
            edge.max(self.recorded)
        }
    }

    /// The same wherever the position is; beyond the target, if there is nothing to keep.
    pub(super) fn edge(&self, kept: u64) -> u64 {
        match self.backwards {
            false => {
                let free = |starts: &DataStarts| {
                    let first = starts.old.saturating_add(self.old.first(kept));
                    first.saturating_sub(starts.new)
                };
                let free = self.starts.iter().map(free).min().filter(|_| kept < self.visible);
                let edge = free.map_or(u64::MAX, |free| self.new.within(free));
                if edge >= self.target { edge } else { edge / self.step * self.step }
            }
            true => {
                let taken = |starts: &DataStarts| {
                    let end = starts.old.saturating_add(self.old.end(kept.min(self.visible)));
                    end.saturating_sub(starts.new)
                };
                let taken = self.starts.iter().map(taken).max().filter(|_| kept > 0);
                let edge = taken.map_or(0, |taken| self.new.behind(taken));
                edge.checked_next_multiple_of(self.step).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Positions at which either geometry has whole rows in the new one: the larger chunk times the new
/// data members, for RAID 10 the larger chunk. Linux resumes from no others.
pub(super) fn step(reshaping: &Reshaping) -> Option<u64> {
    let [old, new] = [Generation::Old, Generation::New].map(|it| reshaping.geometry(it));
    let chunk = old.chunk_sectors().max(new.chunk_sectors());
    let wide = if new.level().has_parity() { new.data_members() as u64 } else { 1 };
    chunk.checked_mul(wide).filter(|&step| step > 0)
}

/// Where a reshape that goes forwards ends: with parity at the end of the new geometry, as the rows
/// behind the old contents get parity, too; else where the old contents end.
pub(super) fn end(reshaping: &Reshaping) -> u64 {
    let new = reshaping.geometry(Generation::New);
    if new.level().has_parity() { new.array_sectors() } else { reshaping.array_sectors() }
}
