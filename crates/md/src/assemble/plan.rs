//! Whether an array can be started, read-write and read-only.
//!
//! Invariant: a plan that runs serves only what is trusted, or says in its warnings what is not;
//! one that does not run says what would help. Rules: docs/format/assembly.md, Read-write start,
//! Force, Read-only use.

use super::agree::{has_turned, same_places};
use super::areas;
use super::candidate::{Candidate, Slots, Source};
use super::member_state::{MemberStates, cut_off, is_able, member_states, slots_of};
use super::messages;
use super::moments::moments;
use super::repair::{self, Facts};
use super::shape::{Shape, ShapeError, shape};
use super::types::{
    Array, Member, MemberState, Options, OtherVerdict, OutOfDate, Override, Plan, Repairs,
    Software, Verdict,
};
use crate::geometry::{Generation, Geometry, Kind, MAX_MEMBERS};
use crate::level::Level;
use crate::ondisk::superblock::Policy;
use crate::ondisk::{MemberMetadata, Role, Timestamp};
use crate::units::MemberIdx;

/// Decides about the candidates of one array. Of several moments with one event count the newest is
/// used that can be read alone (a clock may have been wrong, or most members are copies of a former
/// moment), else the newest.
pub(super) fn array(all: &[Candidate], group: &[usize], options: &Options) -> Array {
    let newest = array_at(all, group, options, None);
    let stands_alone = |array: &Array| {
        let Plan { verdict, slots, .. } = &array.read_only;
        let runs = matches!(verdict, Verdict::Run | Verdict::RunDegraded { .. });
        runs && slots.iter().flatten().all(|source| !source.stale)
    };
    let able = |index: usize| is_able(all, group, options, index);
    let several = moments(all, group, &able).filter(|_| !stands_alone(&newest));
    let Some((events, times)) = several else { return newest };
    let older = times[1..].iter().map(|&at| array_at(all, group, options, Some((events, at))));
    older.into_iter().find(stands_alone).unwrap_or(newest)
}

/// The same with the members of one moment: an event count, and the time among those of its
/// members; `None`: the newest.
fn array_at(
    all: &[Candidate],
    group: &[usize],
    options: &Options,
    moment: Option<(u64, Timestamp)>,
) -> Array {
    let found = member_states(all, group, options, moment);
    let MemberStates { defining, has_slot, members, split, other_verdicts: elsewhere, .. } = found;
    let metadata = &all[defining].metadata;
    let mut facts = Planner {
        all,
        options,
        defining,
        metadata,
        members: &members,
        split,
        is_newest: moment.is_none(),
        journal: journal(&members),
        other_verdicts: elsewhere,
        ties: &found.ties,
    };
    let slots = slots_of(metadata);
    let (shape, missing, read_only, read_write) = if !has_slot {
        facts.nothing(facts.no_slots())
    } else if found.is_tied {
        facts.nothing(ShapeError::Tied(found.ties.clone()))
    } else if slots == 0 || slots > MAX_MEMBERS {
        facts.nothing(ShapeError::SlotCount(slots))
    } else {
        facts.plans(slots)
    };
    let out_of_date = facts.out_of_date(&read_only.slots);
    if !metadata.version.is_foreign() {
        facts.compare_start(&shape, &missing);
    }
    let elsewhere = facts.other_verdicts;
    let mut contradictions = found.contradictions;
    contradictions.extend(foreign_doubts(all, &members));
    if let Ok(shape) = &shape {
        contradictions.extend(areas::odd(all, shape, &read_only.slots));
    }
    Array {
        set_uuid: metadata.set_uuid,
        name: metadata.name.clone(),
        version: metadata.version,
        defining,
        members,
        missing,
        split,
        array_sectors: array_sectors(metadata, &shape),
        shape,
        read_write,
        read_only,
        other_verdicts: elsewhere,
        contradictions,
        out_of_date,
        forced: options.force,
    }
}

/// What members with metadata of other formats say against each other, each sentence once.
fn foreign_doubts(all: &[Candidate], members: &[Member]) -> Vec<String> {
    let mut doubts: Vec<String> = Vec::new();
    for member in members.iter().filter(|member| member.state != MemberState::Unusable) {
        let foreign = all[member.candidate].metadata.foreign.iter();
        for doubt in foreign.flat_map(|foreign| &foreign.doubts) {
            if !doubts.contains(doubt) {
                doubts.push(doubt.clone());
            }
        }
    }
    doubts
}

/// What the array offers: in other formats than md's not always all that its geometry has.
fn array_sectors(metadata: &MemberMetadata, shape: &Result<Shape, ShapeError>) -> u64 {
    let all = shape.as_ref().map_or(0, Shape::array_sectors);
    metadata.foreign.as_ref().map_or(all, |foreign| foreign.array_sectors.min(all))
}

const NO_JOURNAL: &str = "The array has a journal, and the journal device is missing or out of \
                          date: it may hold writes that are not on the members. Find it; without \
                          it these writes are lost.";

/// Sectors of its data area that a member which missed updates ever held: not what was being
/// rebuilt when it left, nor what the array has grown by since.
fn held(own: &MemberMetadata, freshest: &MemberMetadata) -> u64 {
    let rebuilt = own.recovery_offset.unwrap_or(u64::MAX);
    let had = if own.used_sectors < freshest.used_sectors { own.used_sectors } else { u64::MAX };
    rebuilt.min(had)
}

fn journal(members: &[Member]) -> Option<usize> {
    let journal = members.iter().find(|member| member.state == MemberState::Journal);
    journal.map(|member| member.candidate)
}

struct Planner<'a> {
    all: &'a [Candidate],
    options: &'a Options,
    defining: usize,
    /// The metadata of the defining superblock.
    metadata: &'a MemberMetadata,
    members: &'a [Member],
    split: bool,
    /// No members were last updated later, with the same event count.
    is_newest: bool,
    journal: Option<usize>,
    other_verdicts: Vec<OtherVerdict>,
    ties: &'a [String],
}

/// What is said of the contents.
#[derive(Clone, Default)]
struct Said {
    /// See [`Plan::warnings`].
    warnings: Vec<String>,
    /// See [`Plan::doubts`].
    doubts: Vec<String>,
}

type Plans = (Result<Shape, ShapeError>, Vec<MemberIdx>, Plan, Plan);

/// The slots for which `bad` holds.
fn slots_where(slots: &Slots, bad: impl Fn(&Option<Source>) -> bool) -> Vec<MemberIdx> {
    let indices = slots.iter().enumerate().filter(|(_, source)| bad(source));
    indices.map(|(slot, _)| MemberIdx(slot as u16)).collect()
}

fn not_whole(source: &Option<Source>) -> bool {
    source.as_ref().is_none_or(|source| !source.is_whole())
}

fn enough(shape: &Shape, slots: &Slots) -> bool {
    shape.enough(|slot| slots[slot.index()].as_ref().map_or(0, |source| source.valid_sectors))
}

fn level_of(shape: &Shape) -> Level {
    match shape {
        Shape::Settled(geometry) => geometry.level(),
        Shape::Reshaping(reshaping) => reshaping.geometry(Generation::New).level(),
    }
}

/// Where a member's data starts in the old and in the new geometry of a reshape; twice the same
/// without one. A reshape that is over for the superblock that defines the array is over, also
/// where the member's own, one update behind, does not say so yet; one that has turned round has
/// turned round everywhere.
pub fn data_starts(own: &MemberMetadata, defining: &MemberMetadata) -> (u64, u64) {
    let new = own.reshape.map_or(own.data_offset, |reshape| reshape.new_data_offset);
    if has_turned(own, defining) {
        return (new, own.data_offset);
    }
    let is_over = defining.reshape.is_none();
    (if is_over { new } else { own.data_offset }, new)
}

impl Planner<'_> {
    /// No array at all.
    fn nothing(&self, why: ShapeError) -> Plans {
        let refused = || Verdict::Refused { why: why.to_string() };
        let plan = || self.plan(refused(), Vec::new(), Said::default());
        let (read_only, read_write) = (plan(), plan());
        (Err(why), Vec::new(), read_only, read_write)
    }

    /// Why no member has a slot.
    fn no_slots(&self) -> ShapeError {
        let foreign = |member: &Member| self.all[member.candidate].metadata.foreign.as_ref();
        let mut unidentified = self.members.iter().filter_map(foreign);
        let why = unidentified.find_map(|foreign| foreign.unidentified.clone());
        why.map_or(ShapeError::NoSlots, ShapeError::Foreign)
    }

    fn plan(&self, verdict: Verdict, slots: Slots, said: Said) -> Plan {
        let Said { warnings, doubts } = said;
        let (journal, repairs) = (self.journal, Repairs::default());
        Plan { verdict, slots, journal, warnings, doubts, repairs }
    }

    fn plans(&self, count: usize) -> Plans {
        let fresh = self.fresh(count);
        let missing = slots_where(&fresh, not_whole);
        let mut geometry = shape(self.metadata, self.all, &fresh);
        let (read_only, read_write) = match &geometry {
            Err(why) => {
                let refused = || Verdict::Refused { why: why.to_string() };
                let plan = || self.plan(refused(), fresh.clone(), Said::default());
                (plan(), plan())
            }
            Ok(shape) => (self.read_only(shape, &fresh), self.read_write(shape, &fresh)),
        };
        // Members that are only used read-only have their own data offsets.
        if let Ok(Shape::Reshaping(_)) = &geometry {
            geometry = shape(self.metadata, self.all, &read_only.slots);
        }
        (geometry, missing, read_only, read_write)
    }

    fn source(&self, candidate: usize, in_sync: u64, stale: bool) -> Source {
        let of = &self.all[candidate];
        let (data_offset, new_data_offset) = data_starts(&of.metadata, self.metadata);
        let on_device = of.device_sectors.saturating_sub(data_offset.max(new_data_offset));
        let on_device = if cut_off(of) == 0 { u64::MAX } else { on_device };
        let valid_sectors = in_sync.min(on_device);
        Source { candidate, data_offset, new_data_offset, valid_sectors, stale }
    }

    /// The best member of each slot, of those that missed nothing.
    fn fresh(&self, count: usize) -> Slots {
        let mut slots: Slots = vec![None; count];
        for member in self.members {
            let (slot, in_sync) = match member.state {
                MemberState::Active(slot) => (slot, u64::MAX),
                MemberState::Recovering { slot, up_to } => (slot, up_to),
                MemberState::Replacement { slot, up_to } => (slot, up_to.unwrap_or(u64::MAX)),
                _ => continue,
            };
            let source = self.source(member.candidate, in_sync, false);
            let replacement = matches!(member.state, MemberState::Replacement { .. });
            let Some(place) = slots.get_mut(slot.index()) else { continue };
            let better = |has: &Source| {
                source.valid_sectors > has.valid_sectors
                    || source.valid_sectors == has.valid_sectors && !replacement
            };
            if place.as_ref().is_none_or(better) {
                *place = Some(source);
            }
        }
        slots
    }

    /// Adds members that missed updates, the least old first, until there is enough. Returns how
    /// many of them, in words. None is used beyond what it ever held, nor where a reshape has moved
    /// the data since.
    fn with_stale(&self, shape: &Shape, slots: &Slots) -> Option<(Slots, String)> {
        let mut stale: Vec<(u64, MemberIdx, usize)> = Vec::new();
        for member in self.members {
            if let MemberState::Stale { slot: Some(slot), events_behind } = member.state {
                stale.push((events_behind, slot, member.candidate));
            }
        }
        stale.sort();
        let mut slots = slots.clone();
        let mut used = Vec::new();
        for (behind, slot, candidate) in stale {
            let Some(place) = slots.get_mut(slot.index()) else { continue };
            let metadata = &self.all[candidate].metadata;
            if !not_whole(place) || !same_places(metadata, self.metadata) {
                continue;
            }
            let source = self.source(candidate, held(metadata, self.metadata), true);
            if place.as_ref().is_some_and(|has| has.valid_sectors >= source.valid_sectors) {
                continue;
            }
            *place = Some(source);
            let label = &self.all[candidate].label;
            used.push(format!("{label} (slot {slot}, {})", messages::behind(behind)));
            if enough(shape, &slots) {
                return Some((slots, messages::and(used)));
            }
        }
        None
    }

    /// The members that must not serve, beyond what the plan takes of them, the youngest first.
    /// None
    /// is there where a reshape has moved the data since, nor beyond what it ever held; what a
    /// rebuild has not reached is last: it may never have been of the array.
    fn out_of_date(&self, serving: &Slots) -> Vec<OutOfDate> {
        if self.metadata.version.is_foreign() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for member in self.members {
            let Candidate { label, metadata, .. } = &self.all[member.candidate];
            let behind = self.metadata.events.saturating_sub(metadata.events);
            let own = match metadata.role {
                Role::Slot(slot) => Some(MemberIdx(slot)),
                _ => None,
            };
            let held = held(metadata, self.metadata);
            let (slot, in_sync, age, how) = match member.state {
                MemberState::Stale { slot: Some(slot), events_behind } => {
                    (slot, held, (0, behind), messages::behind(events_behind))
                }
                MemberState::Faulty => {
                    let Some(slot) = own else { continue };
                    (slot, held, (0, behind), "marked faulty".to_string())
                }
                MemberState::Spare => {
                    let Some(slot) = own else { continue };
                    (slot, held, (0, behind), "removed".to_string())
                }
                MemberState::Recovering { slot, up_to }
                | MemberState::Replacement { slot, up_to: Some(up_to) } => {
                    let how = format!("not rebuilt behind sector {up_to} of its data");
                    (slot, u64::MAX, (1, behind), how)
                }
                _ => continue,
            };
            let serves = serving
                .iter()
                .flatten()
                .any(|it| it.candidate == member.candidate && it.valid_sectors >= in_sync);
            if serves || slot.index() >= serving.len() || !same_places(metadata, self.metadata) {
                continue;
            }
            let source = self.source(member.candidate, in_sync, true);
            let what = format!("{label} (slot {slot}, {how})");
            found.push((age, OutOfDate { slot, source, what }));
        }
        found.sort_by_key(|(age, it)| (*age, it.slot, it.source.candidate));
        found.into_iter().map(|(_, it)| it).collect()
    }

    /// A refusal if the array could be read with members left out because of a tie; names a remedy.
    fn contested(&self, why: &str) -> Option<Verdict> {
        let undecided = !self.ties.is_empty() && !self.options.partial;
        let ties = self.ties.join(" ");
        undecided.then(|| Verdict::Refused { why: format!("{why} {ties}") })
    }

    /// Whether the array was in use when its superblocks were last written.
    fn dirty(&self) -> bool {
        self.metadata.level > 0 && self.metadata.resync_offset.is_some()
    }

    /// "raid5 of 4 members cannot serve all data without slots 1 and 3."
    fn too_few(&self, shape: &Shape, slots: &Slots) -> String {
        let missing = slots_where(slots, not_whole);
        let mut text = format!(
            "This {} of {} members cannot serve all of its data without {}.",
            level_of(shape),
            shape.members(),
            messages::slots(&missing)
        );
        for member in self.members {
            let slot = match member.state {
                MemberState::Stale { slot: Some(slot), .. }
                | MemberState::Recovering { slot, .. } => slot,
                MemberState::Active(slot) => slot,
                _ => continue,
            };
            if missing.contains(&slot) {
                text.push(' ');
                text.push_str(&member.why);
            }
        }
        text
    }

    fn read_write(&self, shape: &Shape, fresh: &Slots) -> Plan {
        let refused =
            |why: String| self.plan(Verdict::Refused { why }, fresh.clone(), Said::default());
        if self.metadata.version.is_foreign() {
            let version = self.metadata.version;
            return refused(format!("Arrays with {version} metadata are read here, not run."));
        }
        let geometry = match shape {
            Shape::Settled(geometry) => geometry,
            Shape::Reshaping(reshaping) => {
                return refused(format!(
                    "The array is in the middle of a reshape ({}), at array sector {}. It can be \
                     read here; to write to it, finish the reshape first.",
                    reshaping.change(),
                    reshaping.position()
                ));
            }
        };
        if self.metadata.level <= 0 && self.metadata.bitmap.is_some() {
            let level = geometry.level();
            return refused(format!(
                "According to the superblock this {level} has a bitmap, but a {level} cannot have \
                 one: the superblock is damaged or wrong. The array can be read."
            ));
        }
        let mut risks = Vec::new();
        // Truncated devices are not used read-write.
        let usable = |source: &Source| cut_off(&self.all[source.candidate]) == 0;
        let mut slots: Slots = fresh.iter().map(|source| source.clone().filter(usable)).collect();
        if !enough(shape, &slots) {
            let why = self.too_few(shape, &slots);
            let stale = self.with_stale(shape, &slots).filter(|(slots, _)| {
                geometry.level().number() > 0 && slots.iter().flatten().all(usable)
            });
            let Some((with_stale, used)) = stale else {
                let level = geometry.level();
                return refused(format!(
                    "{why} Find the missing members; to read the rest of this {level}, read it \
                     partially (read-only)."
                ));
            };
            slots = with_stale;
            risks.push(format!(
                "{why} It could run with {used}: on those members, blocks written since then are \
                 stale."
            ));
        }
        let missing = slots_where(&slots, not_whole);
        risks.extend(self.risks_of_writing(geometry, &missing));
        let verdict = if !risks.is_empty() && !self.options.force {
            Verdict::NeedsForce { with: Override::Force, risk: risks.join(" ") }
        } else if missing.is_empty() {
            Verdict::Run
        } else {
            Verdict::RunDegraded { missing: missing.clone() }
        };
        let (all, members, journal) = (self.all, self.members, self.journal);
        let metadata = self.metadata;
        let facts =
            Facts { all, metadata, geometry, members, slots: &slots, missing: &missing, journal };
        let repairs = repair::repairs(&facts);
        let said = Said { warnings: risks, doubts: Vec::new() };
        Plan { repairs, ..self.plan(verdict, slots, said) }
    }

    /// Whether the array has a write journal that is missing or out of date.
    fn lacks_journal(&self) -> bool {
        repair::policy(self.metadata) == Some(Policy::Journal) && self.journal.is_none()
    }

    /// A mirror is resynced from its first copy. If the checksum of that member's superblock is
    /// wrong, as after a torn write at a power failure, the next copy may be stale: a sentence for
    /// each such member.
    fn first_copies_lost(&self, level: Level, missing: &[MemberIdx]) -> Vec<String> {
        if !matches!(level, Level::Raid1 | Level::Raid10) || !self.dirty() {
            return Vec::new();
        }
        let mut sentences = Vec::new();
        for member in self.members.iter().filter(|member| member.state == MemberState::Unusable) {
            let Candidate { metadata, label, checksum_ok, .. } = &self.all[member.candidate];
            let Some(Role::Slot(slot)) = self.metadata.roles.get(metadata.dev_number as usize)
            else {
                continue;
            };
            // RAID 10: every slot may have the first copy of something.
            let mut before = 0..if level == Level::Raid1 { *slot } else { 0 };
            let is_first = before.all(|slot| missing.contains(&MemberIdx(slot)));
            if !checksum_ok && is_first && missing.contains(&MemberIdx(*slot)) {
                // A member and what is to replace it have one slot: which is which, it says itself.
                let in_slot = self.metadata.roles.iter().filter(|role| **role == Role::Slot(*slot));
                let has = if in_slot.count() > 1 { "may have" } else { "has" };
                sentences.push(format!(
                    "{label} {has} the copy that the others are resynced from, and the checksum of \
                     its superblock is wrong, as after a power failure during a superblock write. \
                     The copies may differ, and the remaining ones may be stale. If nothing else \
                     is wrong with {label}, ignore checksums."
                ));
            }
        }
        sentences
    }

    /// Risks of a read-write start with sufficient members.
    fn risks_of_writing(&self, geometry: &Geometry, missing: &[MemberIdx]) -> Vec<String> {
        let mut risks = Vec::new();
        if self.split {
            let chosen = &self.all[self.defining].label;
            risks.push(format!(
                "Split brain: two sets of members were run separately, and each records the other \
                 as failed. {chosen} and the members that agree with it would be used; writes to \
                 the others would be lost. To choose the others, name only them."
            ));
        }
        if !self.is_newest {
            risks.push(
                "Members with the same event count were updated later than those that would be \
                 used: writes to them would be lost."
                    .to_string(),
            );
        }
        let policy = repair::policy(self.metadata);
        if self.lacks_journal() {
            risks.push(format!("{NO_JOURNAL} All redundancy must be resynced."));
        }
        // A partial parity log covers writes in flight, not what a resync had not reached yet.
        let logged = policy == Some(Policy::Ppl) && self.metadata.resync_offset == Some(0)
            || policy == Some(Policy::Journal) && self.journal.is_some();
        risks.extend(self.first_copies_lost(geometry.level(), missing));
        let parity_lost = geometry.level().has_parity() && !missing.is_empty();
        if self.dirty() && parity_lost && !logged && !repair::only_parity(geometry, missing) {
            risks.push(format!(
                "The array was in use when it stopped, and {} is missing: where a write was in \
                 flight, data reconstructed for the missing member may be wrong, including data \
                 that was not being written. Check the file system afterwards.",
                messages::slots(missing)
            ));
        }
        risks
    }

    fn read_only(&self, shape: &Shape, fresh: &Slots) -> Plan {
        let mut said = self.said_of_reading(shape, fresh);
        let missing = slots_where(fresh, not_whole);
        if self.lacks_journal() && !self.options.force {
            let verdict = Verdict::NeedsForce { with: Override::Force, risk: NO_JOURNAL.into() };
            return self.plan(verdict, fresh.clone(), said);
        }
        if missing.is_empty() {
            return self.plan(Verdict::Run, fresh.clone(), said);
        }
        if enough(shape, fresh) {
            if let Some(risk) = self.unproven(shape, &missing) {
                if !self.options.force {
                    let verdict = Verdict::NeedsForce { with: Override::Force, risk };
                    return self.plan(verdict, fresh.clone(), said);
                }
                said.doubts.push(risk);
            }
            return self.plan(Verdict::RunDegraded { missing }, fresh.clone(), said);
        }
        let why = self.too_few(shape, fresh);
        if let Some(verdict) = self.contested(&why) {
            return self.plan(verdict, fresh.clone(), said);
        }
        if let Some((slots, used)) = self.with_stale(shape, fresh) {
            let risk = format!(
                "{why} It could be read with {used}: on those members, blocks written since then \
                 are stale, and data reconstructed from them may be wrong."
            );
            if !(self.options.ignore_events || self.options.force) {
                let verdict = Verdict::NeedsForce { with: Override::IgnoreEvents, risk };
                return self.plan(verdict, fresh.clone(), said);
            }
            said.doubts.push(risk);
            let missing = slots_where(&slots, not_whole);
            let degraded = !missing.is_empty();
            let verdict = if degraded { Verdict::RunDegraded { missing } } else { Verdict::Run };
            return self.plan(verdict, slots, said);
        }
        let verdict = if fresh.iter().all(Option::is_none) {
            Verdict::Refused { why: format!("{why} No data can be read.") }
        } else if self.options.partial {
            Verdict::RunPartial { lost: format!("{why} Reads of lost data fail.") }
        } else {
            let risk = format!("{why} The rest can be read; reads of lost data would fail.");
            Verdict::NeedsForce { with: Override::Partial, risk }
        };
        self.plan(verdict, fresh.clone(), said)
    }

    /// The risk of recovering data from redundancy that never agreed with it everywhere; md's own
    /// superblocks record how far it did.
    fn unproven(&self, shape: &Shape, missing: &[MemberIdx]) -> Option<String> {
        self.metadata.foreign.as_ref().filter(|foreign| foreign.never_synced)?;
        let Shape::Settled(geometry) = shape else { return None };
        let copies = match geometry.kind() {
            Kind::Striped(_) => return None,
            Kind::Mirrored(mirrored) => mirrored.copies(),
            // A missing block of parity is no loss, but it is in another place in each row.
            Kind::Parity(_) => 1,
        };
        // The first copies are the data.
        let first_is_lost = missing.iter().any(|slot| slot.index().is_multiple_of(copies));
        let slots = messages::slots(missing);
        first_is_lost.then(|| {
            format!(
                "The initial synchronisation of this volume has not ended, and data of \
                 {slots} can only be taken from redundancy: where it was not written yet, they \
                 are wrong."
            )
        })
    }

    /// Where only write-mostly members are there, and the array was not stopped: what they lack.
    fn writes_behind(&self, slots: &Slots) -> Option<String> {
        let mut there = slots.iter().flatten();
        let is_alone = there.all(|source| self.all[source.candidate].metadata.write_mostly);
        (self.dirty() && self.metadata.bitmap.is_some() && is_alone).then(|| {
            "Only write-mostly members are there, and the array was in use when it stopped: with \
             --write-behind md acknowledges writes before they have them, so they may lack the \
             newest."
                .to_string()
        })
    }

    fn said_of_reading(&self, shape: &Shape, slots: &Slots) -> Said {
        let Said { mut warnings, mut doubts } = Said::default();
        let missing = slots_where(slots, not_whole);
        let unidentified = |source: &Source| {
            let foreign = self.all[source.candidate].metadata.foreign.as_ref();
            foreign.is_some_and(|foreign| foreign.unidentified.is_some())
        };
        if slots.iter().flatten().any(unidentified) {
            warnings.push(
                "The metadata do not say which member is which: their order is as given, check \
                 whether the contents make sense."
                    .to_string(),
            );
        }
        if self.metadata.level <= 0 && !missing.is_empty() {
            warnings
                .push("The missing member is assumed to have the size of the others.".to_string());
        }
        let policy = repair::policy(self.metadata);
        if self.lacks_journal() {
            doubts.push(NO_JOURNAL.to_string());
        }
        // Each row has its parity where nothing but parity is missing.
        let only_parity = match shape {
            Shape::Settled(geometry) => repair::only_parity(geometry, &missing),
            Shape::Reshaping(_) => false,
        };
        let data_lost = level_of(shape).has_parity() && !missing.is_empty() && !only_parity;
        // What a partial parity log lacks is said when it has been read.
        let is_logged = policy == Some(Policy::Ppl) && self.metadata.resync_offset == Some(0);
        match policy {
            // The journal is in the plan: the reader replays it, or reports why it cannot.
            Some(Policy::Journal) if self.journal.is_some() => {}
            _ if self.dirty() && data_lost => {
                let said = if is_logged { &mut warnings } else { &mut doubts };
                said.push(format!(
                    "The array was in use when it stopped, and {} is missing: data reconstructed \
                     for it may be wrong where a write was in flight.",
                    messages::slots(&missing)
                ));
            }
            _ if self.dirty() && !level_of(shape).has_parity() => warnings.push(
                "The array was in use when it stopped: where a write was in flight, its copies may \
                 differ, and either may be read."
                    .to_string(),
            ),
            _ => {}
        }
        doubts.extend(self.writes_behind(slots));
        doubts.extend(self.first_copies_lost(level_of(shape), &missing));
        if let Shape::Reshaping(reshaping) = shape {
            warnings.push(format!(
                "The array is in the middle of a reshape ({}), at array sector {}.",
                reshaping.change(),
                reshaping.position()
            ));
            warnings.push(if self.in_place(slots) {
                "The reshape does not change the data offset: the stripes in progress when it \
                 stopped are only in mdadm's backup file, and may be read wrong here."
                    .to_string()
            } else {
                "Linux (6.12, perhaps others) may have moved more than it recorded if it was \
                 stopped in the first run of such a reshape: check the data after the position."
                    .to_string()
            });
        }
        Said { warnings, doubts }
    }

    fn in_place(&self, slots: &Slots) -> bool {
        slots.iter().flatten().all(|source| source.data_offset == source.new_data_offset)
    }

    /// Notes where Linux and mdadm decide differently about starting the array.
    fn compare_start(&mut self, shape: &Result<Shape, ShapeError>, missing: &[MemberIdx]) {
        let Ok(shape) = shape else { return };
        let mut say = |by, what: String| self.other_verdicts.push(OtherVerdict { by, what });
        let metadata = self.metadata;
        let expected: Vec<MemberIdx> = missing
            .iter()
            .copied()
            .filter(|slot| metadata.roles.contains(&Role::Slot(slot.0)))
            .collect();
        if !expected.is_empty() {
            let slots = messages::slots(&expected);
            let verb = if expected.len() == 1 { "was" } else { "were" };
            say(
                Software::Mdadm,
                format!("does not start the array without --run: {slots} {verb} there last time."),
            );
        }
        if metadata.has_journal && self.journal.is_none() {
            say(Software::Kernel, "starts the array read-only: its journal is missing.".into());
            say(Software::Mdadm, "refuses without --force: the journal is missing.".into());
        }
        if let Shape::Reshaping(reshaping) = shape {
            if !reshaping.position_fits() {
                let at = reshaping.position();
                say(
                    Software::Kernel,
                    format!(
                        "refuses to resume the reshape: position {at} is not a multiple of the \
                         stripe."
                    ),
                );
            }
            let moves = self.members.iter().any(|member| {
                let metadata = &self.all[member.candidate].metadata;
                metadata
                    .reshape
                    .is_some_and(|reshape| reshape.new_data_offset != metadata.data_offset)
            });
            if !moves {
                say(Software::Mdadm, "needs the backup file of the reshape.".into());
            }
        }
        let Shape::Settled(geometry) = shape else { return };
        let dirty = metadata.level > 0 && metadata.resync_offset.is_some();
        let unlogged = metadata.ppl.is_none() && !metadata.has_journal;
        let data_lost = geometry.level().has_parity()
            && !missing.is_empty()
            && !repair::only_parity(geometry, missing);
        if dirty && unlogged && data_lost {
            say(Software::Kernel, "refuses: it cannot start dirty degraded array.".into());
            say(Software::Mdadm, "needs --force, which calls the array clean.".into());
        }
    }
}
