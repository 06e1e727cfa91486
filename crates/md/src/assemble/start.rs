//! The decisions of a read-write start: which members serve, which devices keep metadata, what is
//! refused, and the state that the first update of the superblocks writes. The bitmap's are in
//! `start_bitmap`.
//!
//! Invariant: pure. The caller reads what is on the devices (bad block lists, logs, the bitmap),
//! writes what is decided, and refuses what is refused, in the order of [`StartPlan`]'s methods.
//! Rules: docs/format/assembly.md, What a start repairs.
//!
//! Called by `admin`, and by simulations of a start.

use std::fmt;
use std::ops::Range;

use super::candidate::Source;
use super::repair::only_parity;
use super::shape::Shape;
use super::types::{Array, MemberState, Recovery, Replay, Verdict};
use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::level::Level;
use crate::ondisk::ppl::PplVerdict;
use crate::ondisk::superblock::{ArrayState, DeviceState, Superblock};
use crate::ondisk::{MemberMetadata, Role, Version};
use crate::units::{MemberIdx, SECTOR_BYTES};

/// A candidate as a start finds it.
#[derive(Clone, Copy, Debug)]
pub struct StartMember<'a> {
    /// The caller's name for it, used in messages.
    pub label: &'a str,
    /// Logical block of its device in bytes.
    pub logical_block: u32,
    /// Whether its device refuses writes.
    pub read_only: bool,
    /// Superblock of the member.
    pub superblock: &'a Superblock,
    /// The contents of it.
    pub metadata: &'a MemberMetadata,
}

/// Why an array is not started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartRefusal {
    /// The decision is against it, or it has no geometry: a sentence.
    Verdict(String),
    /// It is in the middle of a reshape.
    Reshaping,
    /// It has a journal.
    Journal,
    /// A member cannot be written.
    ReadOnly {
        /// Label of the member.
        label: String,
    },
    /// The array uses a part of a block of a member: the engine works in blocks, and would compute
    /// another geometry from members that are rounded down.
    Blocks {
        /// The member's label.
        label: String,
        /// Sectors of it that the array uses.
        sectors: u64,
        /// The field of the superblock that says so.
        field: &'static str,
        /// The largest logical block among the members, in bytes.
        block: u32,
        /// The label of a member that has it.
        widest: String,
    },
    /// A member cannot be replaced.
    Replacement {
        /// The reason: a sentence.
        why: &'static str,
    },
    /// A partial parity log is needed and cannot be used.
    LogGap {
        /// The member's label.
        label: String,
        /// What is wrong with its log: a clause.
        problem: String,
        /// A slot without a member in sync.
        missing: MemberIdx,
    },
}

/// A sentence or two.
impl fmt::Display for StartRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartRefusal::Verdict(why) => f.write_str(why),
            StartRefusal::Reshaping => {
                f.write_str("The array is in the middle of a reshape: it can only be read.")
            }
            StartRefusal::Journal => f.write_str(
                "The array has a journal: it can be read here, including data that is only in the \
                 journal, but not written.",
            ),
            StartRefusal::ReadOnly { label } => write!(f, "{label} was opened read-only."),
            StartRefusal::Replacement { why } => f.write_str(why),
            StartRefusal::Blocks { label, sectors, field, block, widest } => write!(
                f,
                "{label}: the array uses {sectors} sectors of it ({field}), which is not a \
                 multiple of the logical block of {block} bytes that {widest} has."
            ),
            StartRefusal::LogGap { label, problem, missing } => write!(
                f,
                "{label}: {problem}. The array was dirty when it stopped, and slot {missing} is \
                 missing: without that log, data recovered for the slot may be wrong in stripes \
                 with writes in flight, including blocks that were not written. Find the missing \
                 member, or read the array without it; --force starts it."
            ),
        }
    }
}

impl std::error::Error for StartRefusal {}

/// A device that keeps metadata of the running array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartDevice {
    /// Index of the candidate.
    pub candidate: usize,
    /// Its number in the superblocks' tables.
    pub number: u32,
    /// The slot that it serves, or is to serve; `None`: a spare, or a member whose rebuild starts
    /// anew.
    pub slot: Option<MemberIdx>,
    /// It replaces the member that serves the slot.
    pub replaces: bool,
    /// Event count of its superblock.
    pub events: u64,
    /// It is a spare that may take any slot: it is large enough, can be written, and was not a
    /// member before.
    pub is_spare: bool,
}

/// The array's metadata at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartState {
    /// As the superblocks have it.
    pub found: ArrayState,
    /// As the first update writes it.
    pub state: ArrayState,
    /// Whether superblocks are longer than a block of their device, so that a crash can tear one:
    /// they are then written one after the other.
    pub superblocks_in_turn: bool,
}

/// A start that is not refused so far.
#[derive(Clone, Debug)]
pub struct StartPlan<'a> {
    array: &'a Array,
    geometry: &'a Geometry,
    pub(super) members: Vec<StartMember<'a>>,
    serving: Vec<(MemberIdx, Source)>,
    rebuilding: Vec<StartRebuild>,
    replacing: Vec<StartRebuild>,
    takes_spares: bool,
}

/// A member that is rebuilt while the array runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRebuild {
    /// The slot that it is rebuilt for.
    pub slot: MemberIdx,
    /// Where its data are.
    pub source: Source,
    /// All below this sector of its data area is in sync.
    pub from: u64,
    /// It had the slot before: from there on, it lacks only what the bitmap's set bits cover.
    pub by_bitmap: bool,
}

impl<'a> StartPlan<'a> {
    /// Decides about a start. `members` by candidate, as the array was assembled from.
    ///
    /// # Errors
    /// What the array or its members do not allow, and features that the engine would get wrong.
    pub fn new(
        array: &'a Array,
        members: Vec<StartMember<'a>>,
    ) -> Result<StartPlan<'a>, StartRefusal> {
        let plan = &array.read_write;
        match &plan.verdict {
            Verdict::Run | Verdict::RunDegraded { .. } => {}
            Verdict::RunPartial { lost: why }
            | Verdict::NeedsForce { risk: why, .. }
            | Verdict::Refused { why } => return Err(StartRefusal::Verdict(why.clone())),
        }
        let geometry = match &array.shape {
            Ok(Shape::Settled(geometry)) => geometry,
            Ok(Shape::Reshaping(_)) => return Err(StartRefusal::Reshaping),
            Err(why) => return Err(StartRefusal::Verdict(why.to_string())),
        };
        let slots = (0..).map(MemberIdx).zip(&plan.slots);
        let serving = slots.filter_map(|(slot, source)| {
            let source = source.as_ref().filter(|source| source.is_whole())?;
            Some((slot, source.clone()))
        });
        let serving = serving.collect();
        let (rebuilding, replacing) = (Vec::new(), Vec::new());
        let takes_spares = false;
        let it =
            StartPlan { array, geometry, members, serving, rebuilding, replacing, takes_spares };
        if it.defining().has_journal {
            return Err(StartRefusal::Journal);
        }
        for (_, source) in &it.serving {
            let member = it.members[source.candidate];
            if member.read_only {
                return Err(StartRefusal::ReadOnly { label: member.label.into() });
            }
        }
        it.is_in_blocks()?;
        Ok(it)
    }

    /// Continues rebuilds and replacements that had begun, and takes spares for empty slots, now
    /// and when members fail later: these members get writes, and are rebuilt while the array runs.
    /// Left alone are devices that refuse writes, members that were removed from the array, and
    /// replacements in an array with a partial parity log.
    ///
    /// # Errors
    /// The array uses a part of a block of such a member.
    pub fn with_rebuilds(mut self) -> Result<StartPlan<'a>, StartRefusal> {
        self.takes_spares = true;
        for recovery in &self.array.read_write.repairs.recoveries {
            let member = self.members[recovery.candidate];
            // A member that was removed may have the last copy of something.
            let was_member = member.metadata.role != Role::Spare && !self.is_resumed(recovery);
            if member.read_only || was_member {
                continue;
            }
            if recovery.replaces.is_some() {
                let may_be = self.may_be_replaced(recovery.slot) && self.has_block_for(&member);
                if may_be && !self.has_log() {
                    let Recovery { candidate, slot, from, .. } = *recovery;
                    let source = self.source(candidate, from);
                    self.replacing.push(StartRebuild { slot, source, from, by_bitmap: false });
                }
                continue;
            }
            if self.has_member(recovery.slot) {
                continue;
            }
            let by_bitmap = member.superblock.state().devices;
            let by_bitmap = by_bitmap.get(member.metadata.dev_number as usize);
            let by_bitmap =
                by_bitmap.and_then(Option::as_ref).is_some_and(|own| own.recovery_by_bitmap);
            // Below the recorded position it is in sync, whatever bits are set by now. But Linux
            // may leave far copies as they were (docs/interop.md).
            let is_doubtful = by_bitmap && self.has_far_copies();
            let from = if is_doubtful { 0 } else { recovery.from };
            self.put(recovery.candidate, recovery.slot, from, by_bitmap && !is_doubtful);
        }
        self.is_in_blocks()?;
        Ok(self)
    }

    /// Puts a new device, with the superblock of an [`crate::create::Addition`], into an empty
    /// slot: it is rebuilt while the array runs. It is one of the members behind the candidates.
    ///
    /// # Errors
    /// The array uses a part of a block of it.
    ///
    /// # Panics
    /// If the slot is not empty.
    pub fn with_addition(
        self,
        member: StartMember<'a>,
        slot: MemberIdx,
    ) -> Result<StartPlan<'a>, StartRefusal> {
        self.with_device(member, slot, false)
    }

    /// Puts a former member, as [`StartPlan::readdition`] allows, into its slot again: what the
    /// bitmap's set bits cover is rebuilt while the array runs. It is one of the members behind the
    /// candidates.
    ///
    /// # Errors
    /// The array uses a part of a block of it.
    ///
    /// # Panics
    /// If the slot is not empty.
    pub fn with_readdition(
        self,
        member: StartMember<'a>,
        slot: MemberIdx,
    ) -> Result<StartPlan<'a>, StartRefusal> {
        self.with_device(member, slot, true)
    }

    fn with_device(
        mut self,
        member: StartMember<'a>,
        slot: MemberIdx,
        by_bitmap: bool,
    ) -> Result<StartPlan<'a>, StartRefusal> {
        assert!(!self.has_member(slot), "slot {slot} has a member");
        self.members.push(member);
        self.put(self.members.len() - 1, slot, 0, by_bitmap);
        self.is_in_blocks()?;
        Ok(self)
    }

    /// Has a new device, with the superblock of an [`crate::create::Addition`], replace the member
    /// of a slot: it is filled while the array runs and that member serves. It is one of the
    /// members behind the candidates.
    ///
    /// # Errors
    /// The metadata cannot record it, the array has a partial parity log, or it uses a part of a
    /// block of it.
    ///
    /// # Panics
    /// If the slot has no member in sync, or one that is being replaced.
    pub fn with_replacement(
        mut self,
        member: StartMember<'a>,
        slot: MemberIdx,
    ) -> Result<StartPlan<'a>, StartRefusal> {
        if self.defining().version == Version::V0_90 {
            let why = "Metadata 0.90 cannot record a replacement: let the member fail, and rebuild \
                       it on another device, or change the metadata to 1.0 with mdadm \
                       --update=metadata.";
            return Err(StartRefusal::Replacement { why });
        }
        if self.has_log() {
            let why = "An array with a partial parity log replaces no members, because a log \
                       counts only while its device has its slot: let the member fail, and \
                       rebuild it on another device, or change the policy with mdadm \
                       --consistency-policy=resync.";
            return Err(StartRefusal::Replacement { why });
        }
        if !self.has_block_for(&member) {
            let why = "A replacement with a larger logical block than the members' cannot take the \
                       writes that these get.";
            return Err(StartRefusal::Replacement { why });
        }
        assert!(self.may_be_replaced(slot), "slot {slot} has no member to be replaced");
        self.members.push(member);
        let source = self.source(self.members.len() - 1, 0);
        self.replacing.push(StartRebuild { slot, source, from: 0, by_bitmap: false });
        self.is_in_blocks()?;
        Ok(self)
    }

    /// Whether writes are logged. The newest log of a member's parity would be on the old device
    /// when another has taken its slot, so nothing may be replaced.
    fn has_log(&self) -> bool {
        self.defining().ppl.is_some()
    }

    /// Whether a device takes all writes that the members take.
    fn has_block_for(&self, member: &StartMember<'_>) -> bool {
        let blocks = self.serving.iter().map(|(_, it)| self.members[it.candidate].logical_block);
        blocks.max().is_some_and(|largest| member.logical_block <= largest)
    }

    /// Whether the slot has a member in sync that nothing replaces yet.
    pub fn may_be_replaced(&self, slot: MemberIdx) -> bool {
        let has_redundancy = !matches!(self.geometry.level(), Level::Linear | Level::Raid0);
        has_redundancy
            && self.serving.iter().any(|(other, _)| *other == slot)
            && self.replacing.iter().all(|other| other.slot != slot)
    }

    fn has_far_copies(&self) -> bool {
        matches!(self.geometry.layout(), Layout::Raid10(layout) if layout.far > 1 && !layout.offset)
    }

    fn is_resumed(&self, recovery: &Recovery) -> bool {
        let mut members = self.array.members.iter();
        let member = members.find(|member| member.candidate == recovery.candidate);
        let is_resumed = |state: &MemberState| {
            matches!(state, MemberState::Recovering { .. } | MemberState::Replacement { .. })
        };
        member.is_some_and(|member| is_resumed(&member.state))
    }

    fn source(&self, candidate: usize, valid_sectors: u64) -> Source {
        let data_offset = self.members[candidate].metadata.data_offset;
        let new_data_offset = data_offset;
        Source { candidate, data_offset, new_data_offset, valid_sectors, stale: false }
    }

    fn put(&mut self, candidate: usize, slot: MemberIdx, from: u64, by_bitmap: bool) {
        let by_bitmap = by_bitmap && self.bitmap().is_some();
        let source = self.source(candidate, from);
        self.rebuilding.push(StartRebuild { slot, source, from, by_bitmap });
    }

    pub(super) fn has_member(&self, slot: MemberIdx) -> bool {
        self.serving.iter().any(|(other, _)| *other == slot)
            || self.rebuilding.iter().any(|other| other.slot == slot)
    }

    /// The slots that nothing serves and nothing is rebuilt for.
    pub fn empty_slots(&self) -> Vec<MemberIdx> {
        let slots = (0..self.geometry.members() as u16).map(MemberIdx);
        slots.filter(|slot| !self.has_member(*slot)).collect()
    }

    /// A number for one more device: none that a device has which the superblocks list, or which is
    /// there, or which is in `given`. (1.x does not list spares: one that is not there may have it,
    /// too, and is out of date then.)
    pub fn free_number(&self, given: &[u32]) -> u32 {
        let roles = &self.defining().roles;
        let is_free = |number: &u32| {
            let role = roles.get(*number as usize).copied().unwrap_or(Role::Spare);
            let has = |member: &StartMember<'_>| member.metadata.dev_number == *number;
            role == Role::Spare && !self.members.iter().any(has) && !given.contains(number)
        };
        (self.geometry.members() as u32..).find(is_free).expect("some number is free")
    }

    /// The members that are rebuilt while the array runs.
    pub fn rebuilding(&self) -> &[StartRebuild] {
        &self.rebuilding
    }

    /// The devices that replace members while the array runs.
    pub fn replacing(&self) -> &[StartRebuild] {
        &self.replacing
    }

    /// The geometry that the array runs with.
    pub fn geometry(&self) -> &'a Geometry {
        self.geometry
    }

    /// What the superblock that defines the array says.
    pub fn defining(&self) -> &'a MemberMetadata {
        self.members[self.array.defining].metadata
    }

    /// The candidate with that superblock.
    pub fn defining_candidate(&self) -> usize {
        self.array.defining
    }

    /// The members in sync with their slots: those that the engine uses.
    pub fn serving(&self) -> &[(MemberIdx, Source)] {
        &self.serving
    }

    /// The part of its device that a serving member is, in sectors.
    pub fn data_area(&self, source: &Source) -> Range<u64> {
        let sectors = match self.geometry.level() {
            Level::Linear | Level::Raid0 => self.members[source.candidate].metadata.data_sectors,
            _ => self.missing_sectors(),
        };
        source.data_offset..source.data_offset + sectors
    }

    /// Sectors that the member of a slot without one would have; levels without redundancy have no
    /// such slot.
    pub fn missing_sectors(&self) -> u64 {
        self.defining().used_sectors
    }

    /// Whether logs are to be replayed into the members before anything else.
    pub fn replays_ppl(&self) -> bool {
        self.array.read_write.repairs.replay == Some(Replay::Ppl)
    }

    /// Where redundancy is in doubt from, after a replay with this verdict (`None`: there was no
    /// replay, or it is incomplete).
    pub fn resync_offset(&self, replayed: Option<PplVerdict>) -> Option<u64> {
        let resync = self.array.read_write.repairs.resync;
        resync.map(|resync| resync.from).filter(|_| replayed != Some(PplVerdict::Clean))
    }

    /// Whether the bitmap says which regions are to be resynced.
    pub fn by_bitmap(&self) -> bool {
        self.array.read_write.repairs.resync.is_none_or(|resync| resync.by_bitmap)
    }

    fn is_in_blocks(&self) -> Result<(), StartRefusal> {
        let member = |source: &Source| &self.members[source.candidate];
        let rebuilding = self.rebuilding.iter().chain(&self.replacing);
        let rebuilding = rebuilding.map(|it| (it.slot, &it.source));
        let serving = self.serving.iter().map(|(slot, source)| (*slot, source));
        let all: Vec<(MemberIdx, &Source)> = serving.chain(rebuilding).collect();
        let widest = all.iter().max_by_key(|(_, source)| member(source).logical_block);
        let Some((_, widest)) = widest else { return Ok(()) };
        let block = member(widest).logical_block;
        for (slot, source) in &all {
            let sectors = self.geometry.member_used_sectors(*slot);
            if (sectors * SECTOR_BYTES).is_multiple_of(block.into()) {
                continue;
            }
            let field = match self.geometry.level() {
                Level::Linear | Level::Raid0 => "data_size",
                _ => "size",
            };
            let (label, widest) = (member(source).label.into(), member(widest).label.into());
            return Err(StartRefusal::Blocks { label, sectors, field, block, widest });
        }
        Ok(())
    }

    /// Refuses a replay that leaves invalid parity which data would be recovered from. `gaps`: what
    /// is wrong with the log of a member, by slot. A gap does not matter for a member that is not
    /// in sync: nothing is recovered from its parity, since its data are missing too. Overridden by
    /// [`Options::force`](super::Options::force).
    ///
    /// # Errors
    /// The first gap that matters.
    pub fn check_logs(&self, gaps: &[(MemberIdx, String)]) -> Result<(), StartRefusal> {
        let slots = (0..self.geometry.members() as u16).map(MemberIdx);
        let missing: Vec<MemberIdx> =
            slots.filter(|slot| self.serving.iter().all(|(of, _)| of != slot)).collect();
        if self.array.forced || only_parity(self.geometry, &missing) {
            return Ok(());
        }
        for (slot, source) in &self.serving {
            let Some((_, problem)) = gaps.iter().find(|(of, _)| of == slot) else { continue };
            return Err(StartRefusal::LogGap {
                label: self.members[source.candidate].label.into(),
                problem: problem.clone(),
                missing: missing[0],
            });
        }
        Ok(())
    }

    /// The devices that keep metadata: members in sync with their slots, those that are rebuilt or
    /// replace others ([`StartPlan::with_rebuilds`]), and spares. Another rebuild that had begun is
    /// not continued: see [`StartPlan::state`].
    pub fn devices(&self) -> Vec<StartDevice> {
        let device = |candidate: usize, slot: Option<MemberIdx>| {
            let metadata = self.members[candidate].metadata;
            let (number, events) = (metadata.dev_number, metadata.events);
            let is_spare = self.takes_spares && slot.is_none() && self.may_take_a_slot(candidate);
            StartDevice { candidate, number, slot, replaces: false, events, is_spare }
        };
        let mut devices: Vec<StartDevice> =
            self.serving.iter().map(|(slot, it)| device(it.candidate, Some(*slot))).collect();
        let rebuilding = self.rebuilding.iter();
        devices.extend(rebuilding.map(|it| device(it.source.candidate, Some(it.slot))));
        let replacing = self.replacing.iter();
        let replacing = replacing.map(|it| device(it.source.candidate, Some(it.slot)));
        devices.extend(replacing.map(|device| StartDevice { replaces: true, ..device }));
        for member in &self.array.members {
            let is_spare = matches!(
                member.state,
                MemberState::Spare
                    | MemberState::Recovering { .. }
                    | MemberState::Replacement { .. }
            );
            if is_spare && devices.iter().all(|it| it.candidate != member.candidate) {
                devices.push(device(member.candidate, None));
            }
        }
        devices
    }

    fn may_take_a_slot(&self, candidate: usize) -> bool {
        let member = &self.members[candidate];
        let mut members = self.array.members.iter();
        let state = members.find(|other| other.candidate == candidate).map(|other| &other.state);
        let block = u64::from(member.logical_block);
        let largest = self.serving.iter().map(|(_, it)| self.members[it.candidate].logical_block);
        state == Some(&MemberState::Spare)
            && member.metadata.role == Role::Spare
            && !member.read_only
            && member.metadata.data_sectors >= self.defining().used_sectors
            && largest.max().is_some_and(|largest| block <= u64::from(largest))
    }

    /// Whether the superblock of a candidate must be as it was when the decision was made. One that
    /// is left out may be damaged by now.
    pub fn needs(&self, candidate: usize) -> bool {
        candidate == self.array.defining
            || self.devices().iter().any(|device| device.candidate == candidate)
    }

    /// Rebuild progress that is lost once the array is written to: a sentence for each rebuild that
    /// had begun.
    pub fn notes(&self) -> Vec<String> {
        let devices = self.devices().into_iter().filter(|device| device.slot.is_none());
        let begun = devices.filter_map(|StartDevice { candidate, .. }| {
            let (slot, up_to) = self.rebuilt(candidate)?;
            let far = match up_to {
                Some(0) => return None,
                Some(sector) => format!("up to sector {sector} of its data"),
                None => "completely".into(),
            };
            let name = self.members[candidate].label;
            Some(format!(
                "{name} is in sync {far} for slot {slot}, but not used: its rebuild starts from \
                 the beginning once the array has been written to."
            ))
        });
        begun.collect()
    }

    /// The slot that a candidate is being rebuilt for, or is to take over, and the sector up to
    /// which it is in sync; `None`: completely.
    fn rebuilt(&self, candidate: usize) -> Option<(MemberIdx, Option<u64>)> {
        let mut members = self.array.members.iter();
        match members.find(|member| member.candidate == candidate)?.state {
            MemberState::Recovering { slot, up_to } => Some((slot, Some(up_to))),
            MemberState::Replacement { slot, up_to } => Some((slot, up_to)),
            _ => None,
        }
    }

    /// The array's state, with redundancy in doubt from `resync_offset` on; `bad_blocks`: the
    /// candidates whose list of bad blocks is not empty.
    ///
    /// A device under rebuild gets no writes, so its data are out of date from the first write on.
    /// It keeps its slot, in sync up to sector 0: Linux restarts its rebuild.
    pub fn state(&self, resync_offset: Option<u64>, bad_blocks: &[usize]) -> StartState {
        let mut state = self.members[self.array.defining].superblock.state();
        let mut found = state.clone();
        state.resync_offset = resync_offset;
        let mut superblocks_in_turn = false;
        for StartDevice { candidate, number, slot, replaces, .. } in self.devices() {
            let member = &self.members[candidate];
            let at = number as usize;
            // State that only its own superblock has.
            let own = member.superblock.state().devices.get(at).cloned().flatten();
            let rebuilt = self.rebuilt(candidate);
            let role = slot.or(rebuilt.map(|(slot, _)| slot));
            let role = role.map_or(Role::Spare, |slot| Role::Slot(slot.0));
            let mut device = own.unwrap_or_else(|| DeviceState::new(role));
            if let Some(Some(listed)) = found.devices.get_mut(at) {
                *listed = DeviceState { role: listed.role, ..device.clone() };
            }
            device.role = role;
            let mut rebuilding = self.rebuilding.iter().chain(&self.replacing);
            let continues = rebuilding.find(|it| it.source.candidate == candidate);
            device.recovery_by_bitmap = continues.is_some_and(|rebuild| rebuild.by_bitmap);
            device.recovery_offset = match continues {
                Some(rebuild) => Some(rebuild.from),
                None => (slot.is_none() && rebuilt.is_some()).then_some(0),
            };
            device.replacement &= slot.is_none() && rebuilt.is_some();
            device.replacement |= replaces;
            device.bad_blocks_in_use = bad_blocks.contains(&candidate);
            if state.devices.len() <= at {
                state.devices.resize(at + 1, None);
            }
            state.devices[at] = Some(device);
            let block = member.logical_block as usize;
            superblocks_in_turn |= member.superblock.encode(block).len() > block;
        }
        StartState { found, state, superblocks_in_turn }
    }
}
