//! The source of a dump: an array assembled from superblocks, or described on the command line.
//!
//! Invariant: a refusal names what is missing, the option that overrides it, and the risk.
//! Called from `dump`.

use std::ffi::OsString;
use std::sync::Arc;

use admin::rescue::{ReadableArray, prepare, prepare_explicit};
use admin::{Members, array_name};
use device::{Disk, partition_tables};
use md::MemberIdx;
use md::assemble::{
    Array, ExplicitMember, ExplicitSpec, MemberState, Options, Override, Plan, Verdict, explicit,
};
use parity::Kernels;

use super::DumpArguments;
use crate::console::text_of;
use crate::members::{choose, is_missing};
use crate::size_args::parse_layout;
use md::show_size;

/// A readable array, with notes about its state.
pub struct Source {
    pub view: ReadableArray,
    /// Name of the array in messages.
    pub name: String,
    /// Notes about the contents: degraded slots, members left out.
    pub notes: Vec<String>,
    /// Reasons why the contents may be wrong: members that contradict each other, logs that could
    /// not be applied.
    pub doubts: Vec<String>,
    /// The range in which the redundancy is compared, as text; `None`: it is not compared.
    pub compared: Option<String>,
}

/// Opens the members and makes the array readable.
pub fn open(arguments: &DumpArguments) -> Result<Source, String> {
    let there: Vec<OsString> =
        arguments.members.iter().filter(|member| !is_missing(member)).cloned().collect();
    if there.len() < arguments.members.len() && arguments.level.is_none() {
        return Err("'missing' is only for arrays without superblocks (--level); otherwise leave \
                    out missing members"
            .into());
    }
    let overlay = arguments.overlay.as_deref();
    let members = match arguments.level {
        Some(_) => Members::open_as_named(&there, overlay),
        None => Members::open(&there, overlay),
    };
    let members = members.map_err(text_of)?;
    read_from(arguments, &members)
}

/// Makes the array of opened members readable.
pub fn read_from(arguments: &DumpArguments, members: &Members) -> Result<Source, String> {
    match arguments.level {
        Some(_) => described(arguments, members),
        None => assembled(arguments, members),
    }
}

/// Enables the comparison of the redundancy during the read: where it is known to be in sync (array
/// sectors below `below`), or everywhere with `--check`.
fn compared(
    arguments: &DumpArguments,
    source: Source,
    below: Option<u64>,
) -> Result<Source, String> {
    if !source.view.has_redundancy() {
        return match arguments.check {
            true => Err(format!(
                "{}: --check: these members have no redundancy to compare",
                source.name
            )),
            false => Ok(source),
        };
    }
    if arguments.no_check {
        return Ok(source);
    }
    let below = below.filter(|&below| below > 0 && !arguments.check);
    let what = below.map_or("all of it".to_string(), |below| format!("below sector {below}"));
    let view = source.view.compared(below.unwrap_or(u64::MAX));
    Ok(Source { view, compared: Some(what), ..source })
}

/// The member indexes of `--order`; `None` for a slot without a member.
fn order(arguments: &DumpArguments) -> Result<Option<Vec<Option<usize>>>, String> {
    if arguments.order.is_empty() {
        return Ok(None);
    }
    let count = arguments.members.len();
    let mut seen = Vec::new();
    let places = arguments.order.iter().map(|word| {
        if word == "missing" {
            return Ok(None);
        }
        let place = word.parse::<usize>().ok().filter(|&place| place < count);
        let Some(place) = place else {
            return Err(format!("--order {word}: an index from 0 to {}, or missing", count - 1));
        };
        if seen.contains(&place) {
            return Err(format!("--order {word}: the member is named twice"));
        }
        seen.push(place);
        Ok(Some(place))
    });
    places.collect::<Result<Vec<_>, String>>().map(Some)
}

fn assembled(arguments: &DumpArguments, members: &Members) -> Result<Source, String> {
    let order = match order(arguments)? {
        None => None,
        Some(places) => Some(candidates_of(&places, members)?),
    };
    let options = Options {
        ignore_events: arguments.ignore_events,
        force: arguments.force,
        ignore_checksums: arguments.ignore_checksums,
        partial: arguments.partial,
        order,
    };
    let found = members.assemble(&options);
    let strangers = members.non_members();
    let array = choose(&found, arguments.array.as_deref()).map_err(|error| {
        let why = strangers.iter().map(|stranger| format!("; {stranger}"));
        format!("{error}{}", why.collect::<String>())
    })?;
    let name = array_name(array);
    let mut notes: Vec<String> =
        strangers.iter().map(|stranger| format!("left out: {stranger}")).collect();
    notes.extend(left_out(array, members));
    let mut doubts = array.contradictions.clone();
    if arguments.array.is_none() {
        doubts.extend(members.with_two(array));
    }
    let refused = |why: String| {
        let said: String = notes.iter().chain(&doubts).map(|note| format!("; {note}")).collect();
        Err(format!("{name}: {why}{said}"))
    };
    let mut more = Vec::new();
    match &array.read_only.verdict {
        Verdict::Run => {}
        Verdict::RunDegraded { missing } => {
            more.extend(degraded(missing, &array.read_only, members));
        }
        Verdict::RunPartial { lost } => more.push(format!("partial: {lost}")),
        Verdict::NeedsForce { with, risk } => {
            let option = match with {
                Override::Force => "--force",
                Override::IgnoreEvents => "--ignore-events",
                Override::Partial => "--partial",
            };
            return refused(format!("{risk} ({option} reads it nevertheless)"));
        }
        Verdict::Refused { why } => return refused(why.clone()),
    }
    notes.extend(more);
    notes.extend(array.read_only.warnings.iter().cloned());
    let disks = members.candidate_disks();
    let prepared = prepare(array, &array.read_only, &members.candidates, &disks, kernels())
        .map_err(text_of)?;
    notes.extend(prepared.notes);
    doubts.extend(prepared.doubts);
    let below = members.candidates[array.defining].metadata.resync_offset;
    let source = Source { view: prepared.view, name, notes, doubts, compared: None };
    compared(arguments, source, below)
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

/// Converts indexes into the list of members to candidates.
fn candidates_of(
    places: &[Option<usize>],
    members: &Members,
) -> Result<Vec<Option<usize>>, String> {
    let candidate = |place: &Option<usize>| {
        let Some(place) = place else { return Ok(None) };
        let is_there = |&candidate: &usize| members.named[members.given[candidate]] == *place;
        let there: Vec<usize> = (0..members.given.len()).filter(is_there).collect();
        match there.as_slice() {
            [only] => Ok(Some(*only)),
            [] => Err(format!("--order {place}: {}", stranger(members, *place))),
            several => {
                let names = several.iter().map(|&it| members.candidates[it].label.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                Err(format!("--order {place}: several members: {names}; name one of them"))
            }
        }
    };
    places.iter().map(candidate).collect()
}

fn stranger(members: &Members, place: usize) -> String {
    let of_the_name = members.all.iter().zip(&members.named).filter(|(_, named)| **named == place);
    let member = of_the_name.map(|(member, _)| format!("{}: {}", member.name, member.instead));
    member.collect::<Vec<_>>().join("; ")
}

/// A note about each member that is not read.
fn left_out(array: &Array, members: &Members) -> Vec<String> {
    let plan = &array.read_only;
    let used = |candidate: usize| {
        let serves = plan.slots.iter().flatten().any(|source| source.candidate == candidate);
        serves || plan.journal == Some(candidate)
    };
    let out = array.members.iter().filter(|member| {
        let expected = matches!(member.state, MemberState::Spare | MemberState::Journal);
        !expected && !used(member.candidate)
    });
    let sentence = |member: &md::assemble::Member| {
        let name = &members.candidates[member.candidate].label;
        match member.why.contains(name.as_str()) {
            true => format!("left out: {}", member.why),
            false => format!("left out: {name}: {}", member.why),
        }
    };
    out.map(sentence).collect()
}

fn described(arguments: &DumpArguments, members: &Members) -> Result<Source, String> {
    if let Some(unread) = members.all.iter().find(|member| member.disk.is_none()) {
        let (name, why) = (&unread.name, &unread.instead);
        return Err(format!("{name}: {why}; use 'missing' in its place"));
    }
    let level = arguments.level.expect("only called with a level");
    let layout = arguments.layout.as_deref().map(|text| parse_layout(level, text)).transpose()?;
    let default_chunk = if level.has_chunks() { 1024 } else { 0 };
    members.refuse_overlaps().map_err(text_of)?;
    let mut opened = members.all.iter();
    let listed: Vec<Option<usize>> = (0..arguments.members.len())
        .map(|place| {
            let there = !is_missing(&arguments.members[place]);
            there.then(|| opened.next().map(|_| place)).flatten()
        })
        .collect();
    // Indexes into the list as given, `missing` included.
    let slots = order(arguments)?.unwrap_or(listed);
    let member_at = |place: usize| {
        let before = &arguments.members[..place];
        let index = before.iter().filter(|member| !is_missing(member)).count();
        (!is_missing(&arguments.members[place])).then(|| &members.all[index])
    };
    let chosen: Vec<_> = slots.iter().map(|place| place.and_then(member_at)).collect();
    let explicit_member = |member: &admin::Member| ExplicitMember {
        label: member.name.clone(),
        device_sectors: member.disk.as_ref().map_or(0, |disk| disk.sectors()),
        data_offset: None,
        data_sectors: None,
    };
    let spec = ExplicitSpec {
        level,
        layout,
        chunk_sectors: arguments.chunk.unwrap_or(default_chunk),
        raid_disks: arguments.raid_devices.unwrap_or(0).into(),
        data_offset: arguments.data_offset.unwrap_or(0),
        used_sectors: arguments.size,
        members: chosen.iter().map(|member| member.map(explicit_member)).collect(),
    };
    let described = explicit(&spec).map_err(|error| error.to_string())?;
    let mut notes = described.read_only.warnings.clone();
    notes.extend(chosen.iter().flatten().filter_map(|member| {
        let disk = member.disk.as_ref()?;
        let (name, table) = (&member.name, partition_tables(&**disk).into_iter().next()?);
        let kind = table.kind;
        Some(format!(
            "{name} holds a {kind} and is read from its start; {name}@OFFSET names a part"
        ))
    }));
    match &described.read_only.verdict {
        Verdict::RunPartial { lost } if !arguments.partial => {
            return Err(format!("{lost} (--partial writes zeroes in its place)"));
        }
        Verdict::RunPartial { lost } => notes.push(format!("partial: {lost}")),
        _ => {}
    }
    let disks: Vec<Option<Arc<dyn Disk>>> =
        chosen.iter().map(|member| member.and_then(|member| member.disk.clone())).collect();
    let view = prepare_explicit(&described, &disks, kernels());
    let name = "array as described".to_string();
    compared(arguments, Source { view, name, notes, doubts: Vec::new(), compared: None }, None)
}

fn kernels() -> Kernels {
    Kernels::best()
}
