//! The array to be read: assembled from superblocks, or described by the caller.
//!
//! Invariant: nothing is written; a refusal names what is missing and the risk, and its kind names
//! the override. Called by programs that read arrays.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use guess::Stated;
use host::{Disk, Unread, partition_tables};
use md::assemble::{
    AS_GIVEN, Array, ExplicitError, ExplicitMember, ExplicitSpec, MemberState, Options, Override,
    Plan, Shape, Verdict, explicit,
};
use md::{MemberIdx, show_size};
use parity::Kernels;
use thiserror::Error;

use super::described::{by_contents, by_superblocks, made_anew, unseen_of};
use super::{NoGeometry, ReadableArray, Reader, Reading, prepare, prepare_explicit};
use crate::members::{is_called, left_out};
use crate::{ChooseError, Member, Members, SharedStorage, array_name, choose};

/// An array that is ready to be read, with notes about its state.
pub struct Rescue {
    /// The array.
    pub view: ReadableArray,
    /// Its name in messages.
    pub name: String,
    /// What distinguishes its contents from those of others: the array and its last update, or the
    /// description.
    pub identity: String,
    /// The members that serve, and how they are read.
    pub reading: Reading,
    /// Notes about the contents: degraded slots, members left out.
    pub notes: Vec<String>,
    /// Reasons why the contents may be wrong: members that contradict each other, logs that could
    /// not be applied.
    pub doubts: Vec<String>,
    /// The redundancy is compared below this array sector (`u64::MAX`: everywhere); `None`: it is
    /// not compared.
    pub compares_below: Option<u64>,
    /// Members that are copies with maps: the name of each, and what it lacks.
    pub copies: Vec<(String, Unread)>,
    /// What redundancy that agrees does not show: a list. Of a description that neither superblocks
    /// nor contents confirm.
    pub unseen: Option<&'static str>,
}

/// How much of the redundancy is compared with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing: only what the contents need is read.
    Nothing,
    /// What is known to be in sync, if there is redundancy.
    InSync,
    /// All of it; an array without redundancy is refused.
    Everything,
}

/// How an array with superblocks is to be read.
#[derive(Clone, Debug)]
pub struct RescueOptions {
    /// Its UUID or name, if there are several.
    pub array: Option<String>,
    /// The overrides; their order is `order`.
    pub assemble: Options,
    /// The named member of each slot, by its place among the names.
    pub order: Option<Vec<Option<usize>>>,
    /// Redundancy that is compared.
    pub check: Check,
    /// Whether what is proven right is served in place of blocks that are proven wrong.
    pub correct: bool,
}

/// An array without superblocks.
#[derive(Clone, Debug)]
pub struct Description {
    /// Level, chunk, offsets; its members follow from `slots`.
    pub spec: ExplicitSpec,
    /// By slot, the place of the member among those that were opened.
    pub slots: Vec<Option<usize>>,
    /// By slot, where the data area begins and how long it is, in sectors, where that is known of
    /// each; empty: as the specification says.
    pub areas: Vec<(u64, Option<u64>)>,
    /// Whether it was found in the contents, which then refute superblocks that say otherwise.
    pub is_found: bool,
    /// Accept that a part of the data is lost.
    pub partial: bool,
    /// Redundancy that is compared.
    pub check: Check,
    /// Whether what is proven right is served in place of blocks that are proven wrong.
    pub correct: bool,
}

/// Why an array cannot be read.
#[derive(Debug, Error)]
pub enum RescueError {
    /// No array is selected.
    #[error("{error}{}", appended(.non_members))]
    Choose {
        /// The reason.
        #[source]
        error: ChooseError,
        /// Members without a superblock: `name: why`.
        non_members: Vec<String>,
    },
    /// The order names a member that is not one, or not one alone.
    #[error("{place}: {problem}")]
    Order {
        /// Its place among the names.
        place: usize,
        /// The problem.
        problem: String,
    },
    /// It is read only with an override.
    #[error("{name}: {risk}")]
    NeedsForce {
        /// The array.
        name: String,
        /// The required override.
        with: Override,
        /// The problem and the data at risk.
        risk: String,
        /// Notes and doubts so far.
        notes: Vec<String>,
    },
    /// It cannot be read.
    #[error("{name}: {why}{}", appended(.notes))]
    Refused {
        /// The array.
        name: String,
        /// The reason.
        why: String,
        /// Notes and doubts so far.
        notes: Vec<String>,
    },
    /// It has no geometry.
    #[error(transparent)]
    Geometry(#[from] NoGeometry),
    /// All redundancy was to be compared, and there is none.
    #[error("{name}: these members have no redundancy to compare")]
    NoRedundancy {
        /// The array.
        name: String,
    },
    /// Blocks that are proven wrong were to be corrected, and nothing can prove it.
    #[error(
        "{name}: only P and Q of a RAID 6 without a missing member, or three copies, prove which \
         block is wrong"
    )]
    NothingProven {
        /// The array.
        name: String,
    },
    /// A member that a description needs cannot be opened.
    #[error("{name}: {why}")]
    Unread {
        /// The member.
        name: String,
        /// The reason.
        why: String,
    },
    /// Two members of a description share bytes.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// The description is invalid.
    #[error(transparent)]
    Described(#[from] ExplicitError),
    /// A part of the described array is lost.
    #[error("{lost}")]
    Partial {
        /// The lost data.
        lost: String,
    },
}

impl Rescue {
    /// The doubts, also about members that are out of date and may serve ranges that nothing else
    /// has, for what does not say which were.
    pub fn all_doubts(&self) -> Vec<String> {
        let stale = "What nothing else has is read from members that are out of date.";
        let stale = self.view.may_be_stale().then(|| stale.to_string());
        self.doubts.iter().cloned().chain(stale).collect()
    }
}

/// Notes behind a message.
pub(crate) fn appended(notes: &[String]) -> String {
    notes.iter().map(|note| format!("; {note}")).collect()
}

/// Makes the array of these members readable, by their superblocks.
///
/// # Errors
/// See [`RescueError`].
pub fn rescue(
    members: &Members,
    options: &RescueOptions,
    kernels: Kernels,
) -> Result<Rescue, RescueError> {
    let of_array = options.array.as_deref().and_then(|wanted| members.of_array(wanted));
    let members = of_array.as_ref().unwrap_or(members);
    let wanted = options.array.as_deref();
    let order = options.order.as_ref();
    let order = order.map(|places| candidates_of(places, members, wanted)).transpose()?;
    let found = members.assemble(&Options { order, ..options.assemble.clone() });
    let array = choose(&found, options.array.as_deref()).map_err(|error| {
        let non_members = members.non_members();
        RescueError::Choose { error, non_members }
    })?;
    rescue_array(array, members, left_out_members(members), options, kernels)
}

/// Notes about members that are in no array.
pub(crate) fn left_out_members(members: &Members) -> Vec<String> {
    let non_members = members.non_members();
    let all = non_members.iter().chain(&members.unseen);
    all.map(|member| format!("left out: {member}")).collect()
}

/// Makes one of the arrays that were assembled from these members readable; `notes` come before its
/// own.
pub(crate) fn rescue_array(
    array: &Array,
    members: &Members,
    mut notes: Vec<String>,
    options: &RescueOptions,
    kernels: Kernels,
) -> Result<Rescue, RescueError> {
    let name = array_name(array);
    notes.extend(left_out(array, &array.read_only, &members.candidates));
    notes.extend(members.with_maps(array));
    let mut doubts = array.contradictions.clone();
    if options.array.is_none() || members.is_former(array) {
        doubts.extend(members.with_two(array));
    }
    if let (Verdict::RunDegraded { .. }, Some(unseen)) =
        (&array.read_only.verdict, members.unseen.first())
    {
        doubts.push(format!("A file that cannot be looked at may be a missing member: {unseen}"));
    }
    let so_far = || -> Vec<String> { notes.iter().chain(&doubts).cloned().collect() };
    let plan = &array.read_only;
    let more = match &plan.verdict {
        Verdict::Run => Vec::new(),
        Verdict::RunDegraded { missing } => degraded(missing, plan, members),
        Verdict::RunPartial { lost } => vec![format!("partial: {lost}")],
        Verdict::NeedsForce { with, risk } => {
            let (with, risk) = (*with, risk.clone());
            return Err(RescueError::NeedsForce { name, with, risk, notes: so_far() });
        }
        Verdict::Refused { why } => {
            let mut notes = so_far();
            notes.retain(|note| !why.contains(note.as_str()));
            return Err(RescueError::Refused { name, why: why.clone(), notes });
        }
    };
    notes.extend(more);
    notes.extend(plan.warnings.iter().cloned());
    doubts.extend(plan.doubts.iter().cloned());
    let disks = members.candidate_disks();
    let may_be_stale = options.assemble.ignore_events || options.assemble.force;
    let prepared = prepare(array, plan, &members.candidates, &disks, kernels)?;
    notes.extend(prepared.notes);
    doubts.extend(prepared.doubts);
    let metadata = &members.candidates[array.defining].metadata;
    let below = metadata.resync_offset;
    let never_synced = metadata.foreign.as_ref().is_some_and(|foreign| foreign.never_synced);
    let check = match options.check {
        // Nothing says how far redundancy agrees.
        Check::InSync if never_synced => Check::Nothing,
        check => check,
    };
    let of_array = array.members.iter().map(|it| &members.all[members.given[it.candidate]]);
    let copies = of_array.filter_map(copy).collect();
    let view = match may_be_stale {
        true => prepared.view.with_stale_ranges(),
        false => prepared.view,
    };
    match by_contents(&view) {
        Stated::Refutes(clause) => doubts.push(format!(
            "The contents refute the geometry of the superblocks: {clause}; 'raidlab guess' looks \
             for the one that fits."
        )),
        Stated::Nothing => notes.extend(made_anew(&view)),
        Stated::Agrees(_) => {}
    }
    let identity = format!("{} events {}", array.set_uuid, metadata.events);
    let reading = Reading { how: String::new(), members: readers(array, members, may_be_stale) };
    let (compares_below, unseen) = (None, None);
    let it =
        Rescue { view, name, identity, reading, notes, doubts, compares_below, copies, unseen };
    compared(it, check, options.correct, below)
}

/// Makes an array readable as the caller describes it; what superblocks and contents say against
/// the description are doubts. `members` were opened as named.
///
/// # Errors
/// See [`RescueError`].
///
/// # Panics
/// When a slot's place is not among the members.
pub fn rescue_described(
    members: &Members,
    description: &Description,
    kernels: Kernels,
) -> Result<Rescue, RescueError> {
    if let Some(unread) = members.all.iter().find(|member| member.disk.is_none()) {
        let (name, why) = (unread.name.clone(), unread.instead.clone());
        return Err(RescueError::Unread { name, why });
    }
    members.refuse_overlaps()?;
    let slots = description.slots.iter();
    let chosen: Vec<Option<&Member>> =
        slots.map(|place| place.map(|place| &members.all[place])).collect();
    let explicit_member = |(slot, member): (usize, &Option<&Member>)| {
        let area = description.areas.get(slot);
        member.map(|member| ExplicitMember {
            label: member.name.clone(),
            device_sectors: member.disk.as_ref().map_or(0, |disk| disk.sectors()),
            data_offset: area.map(|it| it.0),
            data_sectors: area.and_then(|it| it.1),
        })
    };
    let described = explicit(&ExplicitSpec {
        members: chosen.iter().enumerate().map(explicit_member).collect(),
        ..description.spec.clone()
    })?;
    let mut notes = described.read_only.warnings.clone();
    notes.extend(chosen.iter().flatten().filter_map(|member| member.map_note()));
    notes.extend(chosen.iter().flatten().filter_map(|member| {
        let disk = member.disk.as_ref()?;
        let (name, table) = (&member.name, partition_tables(&**disk).into_iter().next()?);
        let kind = table.kind;
        Some(format!(
            "{name} holds a {kind} and is read from its start; {name}@OFFSET names a part"
        ))
    }));
    match &described.read_only.verdict {
        Verdict::RunPartial { lost } if !description.partial => {
            return Err(RescueError::Partial { lost: lost.clone() });
        }
        Verdict::RunPartial { lost } => notes.push(format!("partial: {lost}")),
        _ => {}
    }
    let disks: Vec<Option<Arc<dyn Disk>>> =
        chosen.iter().map(|member| member.and_then(|member| member.disk.clone())).collect();
    let view = prepare_explicit(&described, &disks, kernels);
    let name = "array as described".to_string();
    let copies = chosen.iter().flatten().filter_map(|member| copy(member)).collect();
    let spec = &description.spec;
    let identity = format!(
        "{} layout {:?} chunk {} disks {} offset {} used {:?} slots {:?}",
        spec.level,
        spec.layout,
        spec.chunk_sectors,
        spec.raid_disks,
        spec.data_offset,
        spec.used_sectors,
        description.slots
    );
    let mut doubts = Vec::new();
    let mut unseen = None;
    if !description.is_found
        && let Shape::Settled(geometry) = &described.shape
    {
        doubts.extend(by_superblocks(spec, &description.areas, &chosen, geometry));
        let all_have_superblocks =
            chosen.iter().flatten().all(|member| member.superblock.is_some());
        let confirmed = match by_contents(&view) {
            Stated::Refutes(clause) => {
                doubts.push(format!(
                    "The contents refute the description: {clause}; 'raidlab guess' looks for the \
                     geometry that fits."
                ));
                false
            }
            Stated::Agrees(clause) => {
                notes.retain(|note| note != AS_GIVEN);
                notes.push(format!("The geometry is as given, and the contents agree: {clause}."));
                true
            }
            Stated::Nothing => all_have_superblocks && doubts.is_empty(),
        };
        unseen = unseen_of(spec.level).filter(|_| !confirmed);
    }
    let reader = |member: &&Member| Reader {
        member: as_it_is(member),
        unread: member.unread.as_ref().map_or(Vec::new(), |unread| unread.ranges.to_vec()),
    };
    let readers = chosen.iter().flatten().map(reader).collect();
    let reading = Reading { how: String::new(), members: readers };
    let compares_below = None;
    let it =
        Rescue { view, name, identity, reading, notes, doubts, compares_below, copies, unseen };
    compared(it, description.check, description.correct, None)
}

/// A member's name, and of an image when it was last written to: a repair changes no superblock. A
/// copy with a map gets better, and its map says what it has.
fn as_it_is(member: &Member) -> String {
    let name = &member.name;
    let path = member.location.as_ref().filter(|_| member.unread.is_none());
    let there = path.and_then(|location| std::fs::metadata(&location.path).ok());
    match there.filter(|there| there.is_file()) {
        Some(file) => format!("{name}, written {}.{:09}", file.mtime(), file.mtime_nsec()),
        None => name.clone(),
    }
}

/// The members that serve an array, as its superblocks describe them: those of slots, whole or in
/// part, and the journal.
fn readers(array: &Array, members: &Members, may_be_stale: bool) -> Vec<Reader> {
    let plan = &array.read_only;
    let reader = |member: &md::assemble::Member| {
        let mut slots = plan.slots.iter().flatten();
        let source = slots.find(|source| source.candidate == member.candidate);
        let serves = matches!(
            member.state,
            MemberState::Active(_)
                | MemberState::Recovering { .. }
                | MemberState::Replacement { .. }
                | MemberState::Journal
        );
        let mut stale = array.out_of_date.iter().filter(|_| may_be_stale);
        let is_stale = stale.any(|it| it.source.candidate == member.candidate);
        (serves || is_stale || source.is_some()).then(|| {
            let of = &members.all[members.given[member.candidate]];
            let metadata = &members.candidates[member.candidate].metadata;
            let device = metadata.device_uuid.map_or("-".to_string(), |uuid| uuid.to_string());
            let (state, number, data) = (&member.state, metadata.dev_number, metadata.data_offset);
            let (events, updated) = (metadata.events, metadata.updated);
            let as_it_is = as_it_is(of);
            Reader {
                member: format!(
                    "{state}: device {device}, number {number}, events {events}, updated \
                     {updated}, data from sector {data}: {as_it_is}"
                ),
                unread: of.unread.as_ref().map_or(Vec::new(), |unread| unread.ranges.to_vec()),
            }
        })
    };
    let mut readers: Vec<Reader> = array.members.iter().filter_map(reader).collect();
    // Whatever the order of the names.
    readers.sort_by(|one, other| one.member.cmp(&other.member));
    readers
}

/// The name of a copy with a map, and what it lacks.
fn copy(member: &Member) -> Option<(String, Unread)> {
    Some((member.name.clone(), member.unread.clone()?))
}

/// Enables the comparison of the redundancy during the read: where it is known to be in sync (array
/// sectors below `below`), or everywhere.
fn compared(
    mut it: Rescue,
    check: Check,
    correct: bool,
    below: Option<u64>,
) -> Result<Rescue, RescueError> {
    if correct && !it.view.can_prove() {
        return Err(RescueError::NothingProven { name: it.name });
    }
    it.reading.how = "not compared".into();
    if !it.view.has_redundancy() {
        return match check {
            Check::Everything => Err(RescueError::NoRedundancy { name: it.name }),
            Check::Nothing | Check::InSync => Ok(it),
        };
    }
    if check == Check::Nothing {
        return Ok(it);
    }
    let below = below.filter(|&below| below > 0 && check == Check::InSync).unwrap_or(u64::MAX);
    let view = it.view.compared(below);
    let view = if correct { view.correcting() } else { view };
    let served = if correct { "what is proven right is served" } else { "nothing is corrected" };
    it.reading.how = format!("compared below sector {below}, {served}");
    Ok(Rescue { view, compares_below: Some(below), ..it })
}

/// Notes about slots that are reconstructed from the other members: slots without a member, and the
/// rest of those whose member is too short or was not completely rebuilt.
fn degraded(missing: &[MemberIdx], plan: &Plan, members: &Members) -> Vec<String> {
    let source = |slot: &MemberIdx| plan.slots.get(slot.index()).and_then(Option::as_ref);
    let (partly, gone): (Vec<&MemberIdx>, Vec<&MemberIdx>) =
        missing.iter().partition(|slot| source(slot).is_some_and(|it| it.valid_sectors > 0));
    let gone: Vec<String> = gone.iter().map(ToString::to_string).collect();
    let mut notes = Vec::new();
    if !gone.is_empty() {
        notes.push(format!(
            "degraded: slot(s) {} reconstructed from the other members",
            gone.join(", ")
        ));
    }
    notes.extend(partly.iter().filter_map(|slot| {
        let it = source(slot)?;
        let candidate = &members.candidates[it.candidate];
        let (name, up_to) = (&candidate.label, it.valid_sectors);
        let end = it.data_offset.saturating_add(up_to);
        let why = match end >= candidate.device_sectors {
            true => "the device ends there",
            false => "it was rebuilt only up to there",
        };
        let size = show_size(up_to);
        Some(format!(
            "degraded: {name} serves slot {slot} up to sector {up_to} of its data ({size}): {why}; \
             the rest is reconstructed from the other members"
        ))
    }));
    notes
}

/// Converts places among the names to candidates.
fn candidates_of(
    places: &[Option<usize>],
    members: &Members,
    wanted: Option<&str>,
) -> Result<Vec<Option<usize>>, RescueError> {
    let candidate = |place: &Option<usize>| {
        let Some(place) = *place else { return Ok(None) };
        let is_there = |&candidate: &usize| members.named[members.given[candidate]] == place;
        let mut there: Vec<usize> = (0..members.given.len()).filter(is_there).collect();
        // A disk can be a member of several volumes, of which one was chosen.
        if let Some(wanted) = wanted.filter(|_| there.len() > 1) {
            there.retain(|&candidate| {
                let metadata = &members.candidates[candidate].metadata;
                is_called(metadata.set_uuid, &metadata.name, wanted)
            });
        }
        let problem = match there.as_slice() {
            [only] => return Ok(Some(*only)),
            [] => non_member(members, place),
            several => {
                let names = several.iter().map(|&it| members.candidates[it].label.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                format!("several members: {names}; name one of them")
            }
        };
        Err(RescueError::Order { place, problem })
    };
    places.iter().map(candidate).collect()
}

fn non_member(members: &Members, place: usize) -> String {
    let of_the_name = members.all.iter().zip(&members.named).filter(|(_, named)| **named == place);
    let member = of_the_name.map(|(member, _)| format!("{}: {}", member.name, member.instead));
    member.collect::<Vec<_>>().join("; ")
}
