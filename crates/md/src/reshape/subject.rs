//! What is reshaped: both geometries, the members that take part, and what forbids it.
//!
//! Invariant: the plan of a [`Subject`] may be carried out: every number of the superblocks that it
//! uses was checked, and a refusal names the field. Called by `admin`.

use std::fmt;

use super::plan::{MovePlan, end, step};
use crate::assemble::{Array, Candidate, MemberState, Shape, ShapeError, Verdict};
use crate::geometry::{DataStarts, Generation, Reshaping};
use crate::layout::Layout;
use crate::level::Level;
use crate::ondisk::{Area, MemberMetadata, Version};
use crate::units::{MemberIdx, Sector, show_size};

/// Longest step: what is moved at once must fit into memory (256 MiB).
const STEP_MAX: u64 = 1 << 19;

/// Beyond it an event count is no count.
const EVENTS_MAX: u64 = 1 << 60;

/// Where a reshape is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To its end.
    Continue,
    /// Back to the geometry that it began with.
    Revert,
}

/// Why an array is not reshaped. As text: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReshapeRefusal {
    /// No reshape is in progress.
    None,
    /// A field of the superblocks forbids it.
    Field {
        /// Its name in docs/format.
        field: &'static str,
        /// A clause.
        problem: String,
    },
    /// The members do not suffice, or contradict each other.
    Members(String),
    /// It needs to be forced: what may be lost.
    NeedsForce(String),
}

impl fmt::Display for ReshapeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReshapeRefusal::None => f.write_str("no reshape is in progress"),
            ReshapeRefusal::Field { field, problem } => {
                write!(f, "the superblock's {field}: {problem}")
            }
            ReshapeRefusal::Members(why) | ReshapeRefusal::NeedsForce(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ReshapeRefusal {}

/// A member that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Index of the candidate.
    pub candidate: usize,
    /// Where its data begin.
    pub starts: DataStarts,
    /// It is in sync everywhere; else it is being rebuilt by the reshape, and has nothing in the
    /// old geometry.
    pub is_whole: bool,
    /// It is being rebuilt, and has all that has been moved: it will be in sync at the end.
    pub follows: bool,
}

/// A reshape that can be carried out.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Both geometries and the position.
    pub reshaping: Reshaping,
    /// By slot of the wider geometry.
    pub slots: Vec<Option<Participant>>,
    /// Candidates whose superblocks are kept up to date: the participants and spares.
    pub recorded: Vec<usize>,
    /// The freshest event count.
    pub events: u64,
    /// Slots without a member.
    pub missing: Vec<MemberIdx>,
    /// The candidate whose superblock defines the array.
    pub defining: usize,
    /// Linux wrote the freshest superblock, and not raidlab.
    of_linux: bool,
}

/// What is reshaped, of an assembled array.
///
/// # Errors
/// See [`ReshapeRefusal`].
pub fn subject(
    array: &Array,
    all: &[Candidate],
    goal: Goal,
    force: bool,
) -> Result<Subject, ReshapeRefusal> {
    let shape = array.shape.as_ref().map_err(|why| match why {
        ShapeError::ReshapeSlots { slots, added } => ReshapeRefusal::Field {
            field: "delta_disks",
            problem: format!("{slots} slots would be {added} more than before"),
        },
        other => ReshapeRefusal::Members(other.to_string()),
    })?;
    let Shape::Reshaping(reshaping) = shape else { return Err(ReshapeRefusal::None) };
    let metadata = &all[array.defining].metadata;
    fields(metadata, reshaping)?;
    if goal == Goal::Revert {
        revertible(metadata, reshaping)?;
    }
    agreed(array, force)?;
    let slots = participants(array, all, reshaping)?;
    let is_missing = |slot: &usize| slots[*slot].is_none();
    let missing: Vec<MemberIdx> =
        (0..slots.len()).filter(is_missing).map(|slot| MemberIdx(slot as u16)).collect();
    enough(reshaping, &slots)?;
    let is_dirty = metadata.resync_offset.is_some() && metadata.level > 0;
    let of_old = |slot: &usize| *slot < reshaping.geometry(Generation::Old).members();
    let lacks_data = (0..slots.len())
        .filter(of_old)
        .any(|slot| slots[slot].as_ref().is_none_or(|member| !member.is_whole));
    if is_dirty && lacks_data && metadata.level != Level::Raid10.number() && !force {
        return Err(ReshapeRefusal::NeedsForce(
            "the array was in use when it stopped, and a member is missing: where a write was in \
             flight, data reconstructed for it may be wrong, and the reshape would make that \
             permanent"
                .into(),
        ));
    }
    let mut recorded: Vec<usize> = slots.iter().flatten().map(|member| member.candidate).collect();
    let spares = array.members.iter().filter(|member| member.state == MemberState::Spare);
    recorded.extend(spares.map(|member| member.candidate));
    recorded.sort_unstable();
    Ok(Subject {
        reshaping: reshaping.clone(),
        slots,
        recorded,
        events: metadata.events,
        missing,
        defining: array.defining,
        of_linux: is_of_linux(metadata),
    })
}

/// Whether Linux or mdadm wrote this superblock last. A reshape of raidlab's records microseconds
/// that are not 0 ([`ReshapeUpdate`](crate::ondisk::superblock::ReshapeUpdate)).
pub fn is_of_linux(metadata: &MemberMetadata) -> bool {
    metadata.updated.micros == 0
}

fn field<T>(field: &'static str, problem: impl Into<String>) -> Result<T, ReshapeRefusal> {
    Err(ReshapeRefusal::Field { field, problem: problem.into() })
}

/// The fields that say what the reshape is.
fn fields(metadata: &MemberMetadata, reshaping: &Reshaping) -> Result<(), ReshapeRefusal> {
    let [old, new] = [Generation::Old, Generation::New].map(|it| reshaping.geometry(it));
    let state = metadata.reshape.expect("its shape is that of a reshape");
    if old.level() != new.level() {
        let (old, new) = (old.level(), new.level());
        let problem = format!(
            "{old} is to become {new}; md changes the level before a reshape or after it, so that \
             both are the same while it runs"
        );
        return field("new_level", problem);
    }
    if old.level() == Level::Raid0 {
        return field("level", "md has no reshape of raid0: it becomes a raid4 or raid10 before");
    }
    if metadata.events > EVENTS_MAX {
        return field("events", format!("{} leaves no room to count on", metadata.events));
    }
    if metadata.has_journal {
        return field("feature_map", "the array has a journal, with which md reshapes nothing");
    }
    if metadata.ppl.is_some() {
        return field(
            "feature_map",
            "the array has a partial parity log, with which md reshapes nothing",
        );
    }
    for (name, geometry) in [("layout", old), ("new_layout", new)] {
        if let Layout::Raid10(layout) = geometry.layout()
            && layout.far > 1
            && !layout.offset
        {
            return field(name, "md has no reshape of or to far copies");
        }
    }
    if let (Layout::Raid10(one), Layout::Raid10(other)) = (old.layout(), new.layout())
        && one.copies() != other.copies()
    {
        return field(
            "new_layout",
            "it has another number of copies, which md does not reshape to",
        );
    }
    let step = step(reshaping).filter(|&step| step <= STEP_MAX);
    let Some(step) = step else {
        let size = show_size(STEP_MAX);
        let problem = format!("a row of the larger chunk is longer than {size}, the limit here");
        return field("new_chunk", problem);
    };
    let (position, visible) = (state.position, reshaping.array_sectors());
    let end = if reshaping.backwards() { visible } else { end(reshaping) };
    if position > end {
        let problem = format!("{position} is beyond the array's end at {end}");
        return field("reshape_position", problem);
    }
    if new.level().has_parity() && !position.is_multiple_of(step) && position != end {
        let problem =
            format!("{position} is no multiple of {step}, the larger chunk x the new data members");
        return field("reshape_position", problem);
    }
    Ok(())
}

/// Whether the way back can be recorded.
fn revertible(metadata: &MemberMetadata, reshaping: &Reshaping) -> Result<(), ReshapeRefusal> {
    let state = metadata.reshape.expect("its shape is that of a reshape");
    if metadata.version == Version::V0_90 && state.delta_disks == 0 {
        return field(
            "delta_disks",
            "metadata 0.90 cannot record that a reshape goes back with as many members: \
             continue it",
        );
    }
    let old = reshaping.geometry(Generation::Old);
    let new = reshaping.geometry(Generation::New);
    if old.level() == Level::Raid10
        && metadata.bitmap.is_some()
        && old.array_sectors() != new.array_sectors()
    {
        return field(
            "bitmap_offset",
            "the bitmap of a raid10 was made for the new size of the array; continue the reshape",
        );
    }
    Ok(())
}

fn agreed(array: &Array, force: bool) -> Result<(), ReshapeRefusal> {
    if array.split {
        return Err(ReshapeRefusal::Members(
            "the members each say that the others have failed: name only those of one half".into(),
        ));
    }
    match &array.read_only.verdict {
        Verdict::Run | Verdict::RunDegraded { .. } => {}
        other => return Err(ReshapeRefusal::Members(other.to_string())),
    }
    if let (Some(first), false) = (array.contradictions.first(), force) {
        return Err(ReshapeRefusal::NeedsForce(format!("members contradict each other: {first}")));
    }
    Ok(())
}

fn participants(
    array: &Array,
    all: &[Candidate],
    reshaping: &Reshaping,
) -> Result<Vec<Option<Participant>>, ReshapeRefusal> {
    for member in &array.members {
        if matches!(member.state, MemberState::Replacement { .. }) {
            let label = &all[member.candidate].label;
            return Err(ReshapeRefusal::Members(format!(
                "{label} is a replacement in the making, and takes no part in a reshape: name the \
                 members without it"
            )));
        }
    }
    let position = reshaping.position().0;
    let mut slots = vec![None; reshaping.members()];
    for (slot, source) in array.read_only.slots.iter().enumerate().take(slots.len()) {
        let Some(source) = source else { continue };
        let candidate = &all[source.candidate];
        let metadata = &candidate.metadata;
        if source.stale {
            let label = &candidate.label;
            return Err(ReshapeRefusal::Members(format!("{label} missed updates")));
        }
        let starts = DataStarts { old: source.data_offset, new: source.new_data_offset };
        for (generation, start) in [(Generation::Old, starts.old), (Generation::New, starts.new)] {
            let geometry = reshaping.geometry(generation);
            if slot < geometry.members() {
                let used = geometry.member_used_sectors(MemberIdx(slot as u16));
                fits(candidate, generation, start, used)?;
            }
        }
        let is_whole = metadata.recovery_offset.is_none();
        let new = reshaping.geometry(Generation::New);
        let follows = !is_whole
            && slot < new.members()
            && match metadata.recovery_offset {
                // 0.90 has no offset of its own: such a member goes with the position.
                _ if metadata.version == Version::V0_90 => !reshaping.backwards(),
                // One that lags by an update has what was moved when it was written.
                Some(offset) if !reshaping.backwards() => {
                    let own = metadata.reshape.map_or(position, |own| own.position);
                    offset >= moved_rows(reshaping, own.min(position))
                }
                _ => position == reshaping.array_sectors(),
            };
        if metadata.version == Version::V0_90 && !is_whole && !follows {
            let label = &candidate.label;
            return Err(ReshapeRefusal::Members(format!(
                "{label} is not in sync, and metadata 0.90 cannot record how much of it is: name \
                 the members without it"
            )));
        }
        slots[slot] = Some(Participant { candidate: source.candidate, starts, is_whole, follows });
    }
    Ok(slots)
}

/// Sectors of each member that have the new geometry at a position, when it goes forwards.
fn moved_rows(reshaping: &Reshaping, position: u64) -> u64 {
    let new = reshaping.geometry(Generation::New);
    let row = new.chunk_sectors() * new.data_members().max(1) as u64;
    position / row * new.chunk_sectors()
}

/// The data area lies on the device, and over nothing else.
fn fits(
    candidate: &Candidate,
    generation: Generation,
    start: u64,
    used: u64,
) -> Result<(), ReshapeRefusal> {
    let name = if generation == Generation::Old { "data_offset" } else { "new_offset" };
    let Candidate { label, metadata, device_sectors, .. } = candidate;
    let end = start.checked_add(used).filter(|end| end <= device_sectors);
    let Some(end) = end else {
        let problem = format!(
            "on {label} the data would be sectors {start} to {} of {device_sectors}",
            start.saturating_add(used)
        );
        return field(name, problem);
    };
    let superblock = Area { sector: metadata.super_sector, sectors: 8 };
    let bitmap = metadata.bitmap.map(|area| Area { sectors: area.sectors.min(8), ..area });
    let log = metadata.bad_blocks.map(|log| log.area);
    let areas = [("superblock", Some(superblock)), ("bitmap", bitmap), ("bad-block log", log)];
    for (what, area) in areas {
        let Some(area) = area else { continue };
        if area.sector < end && start < area.sector.saturating_add(area.sectors) {
            let problem = format!(
                "on {label} the data would be sectors {start} to {end}, over the {what} at sector \
                 {}",
                area.sector
            );
            return field(name, problem);
        }
    }
    Ok(())
}

/// Both geometries can do without what is missing.
fn enough(reshaping: &Reshaping, slots: &[Option<Participant>]) -> Result<(), ReshapeRefusal> {
    for (generation, word) in [(Generation::Old, "old"), (Generation::New, "new")] {
        let geometry = reshaping.geometry(generation);
        let serves = |slot: MemberIdx| {
            let member = slots[slot.index()].as_ref();
            member.is_some_and(|it| it.is_whole || generation == Generation::New && it.follows)
        };
        if !geometry.enough(serves) {
            return Err(ReshapeRefusal::Members(format!(
                "too few members are in sync for the {word} geometry, {} of {} members",
                geometry.level(),
                geometry.members()
            )));
        }
    }
    Ok(())
}

impl Subject {
    /// The moves from the position to the end of the reshape.
    ///
    /// # Panics
    /// Never: the geometries were checked.
    pub fn plan(&self) -> MovePlan {
        MovePlan::new(&self.reshaping).expect("the geometries were checked")
    }

    /// The first position, of those from `from` on, at which the reshape can turn round, and the
    /// one that is recorded then.
    pub fn turning_point(&self, from: u64) -> (u64, u64) {
        let visible = self.reshaping.array_sectors();
        let old = self.reshaping.geometry(Generation::Old);
        let step = step(&self.reshaping).expect("it was checked");
        let wide = if old.level().has_parity() { old.data_members() as u64 } else { 1 };
        let chunk =
            old.chunk_sectors().max(self.reshaping.geometry(Generation::New).chunk_sectors());
        let both = least_common_multiple(step, chunk * wide);
        if self.reshaping.backwards() {
            let is_end = from == visible && from.is_multiple_of(chunk * wide);
            let at = if is_end { from } else { from / both * both };
            return (at, at);
        }
        let at = from.next_multiple_of(both);
        if at < visible {
            return (at, at);
        }
        let end = end(&self.reshaping);
        let at = visible.max(from).next_multiple_of(step).min(end);
        (at, visible)
    }

    /// Whether Linux wrote the freshest superblock: it may have moved more than it recorded.
    pub fn is_of_linux(&self) -> bool {
        self.of_linux
    }

    /// The position that is known to be in the superblocks.
    pub fn position(&self) -> Sector {
        self.reshaping.position()
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}
