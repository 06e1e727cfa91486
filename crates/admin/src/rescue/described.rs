//! What speaks against the geometry by which an array is read: superblocks that a description
//! ignores, and the addresses that the contents state of themselves.
//!
//! Invariant: nothing is decided here; each contradiction is a sentence. Called by `open`.

use content::{Bytes, FileSystems, identify};
use guess::{Stated, stated};
use md::assemble::ExplicitSpec;
use md::ondisk::{MemberMetadata, Role};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, show_size};

use super::{Contents, ReadableArray};
use crate::Member;

/// What a description says, or a superblock: a name, and the value.
type Said = (&'static str, String);

/// What the superblocks of its members say against a description, by slot: sentences.
pub(super) fn by_superblocks(
    spec: &ExplicitSpec,
    areas: &[(u64, Option<u64>)],
    slots: &[Option<&Member>],
    geometry: &Geometry,
) -> Vec<String> {
    let there = slots.iter().enumerate().filter_map(|(slot, member)| Some((slot, (*member)?)));
    let with_superblock: Vec<(usize, &str, MemberMetadata)> = there
        .filter_map(|(slot, member)| {
            Some((slot, member.name.as_str(), member.superblock.as_ref()?.0.metadata()))
        })
        .collect();
    let described = of_description(spec, geometry);
    // The same of several members is one sentence.
    let mut found: Vec<(Said, String, Vec<&str>)> = Vec::new();
    for (slot, name, metadata) in &with_superblock {
        let offset = areas.get(*slot).map_or(spec.data_offset, |it| it.0);
        for (own, said) in of_superblock(metadata, *slot, geometry, spec.level) {
            let here = match own.0 {
                "slot" => slot.to_string(),
                "data offset" => show_size(offset),
                what => match described.iter().find(|it| it.0 == what) {
                    Some(it) => it.1.clone(),
                    None => continue,
                },
            };
            if own.1 == here || !said {
                continue;
            }
            match found.iter_mut().find(|it| it.0 == own && it.1 == here) {
                Some(known) => known.2.push(name),
                None => found.push((own, here, vec![name])),
            }
        }
    }
    let mut sentences: Vec<String> = found
        .into_iter()
        .map(|((what, own), here, names)| {
            let names = names.join(", ");
            format!("The superblock of {names} says {what} {own}, the description {here}.")
        })
        .collect();
    sentences.extend(with_superblock.iter().filter_map(|(_, name, metadata)| {
        metadata.reshape.as_ref().map(|_| {
            format!("The superblock of {name} says that a reshape continues: two geometries hold.")
        })
    }));
    sentences.extend(of_others(&with_superblock));
    sentences
}

/// Members whose superblocks are of different arrays, or of different times.
fn of_others(with_superblock: &[(usize, &str, MemberMetadata)]) -> Vec<String> {
    let mut sentences = Vec::new();
    let Some(newest) = with_superblock.iter().max_by_key(|it| it.2.events) else {
        return sentences;
    };
    for (_, name, metadata) in with_superblock {
        let (own, events) = (metadata.set_uuid, newest.2.events);
        if own != newest.2.set_uuid {
            let (other, its) = (newest.1, newest.2.set_uuid);
            sentences.push(format!(
                "The superblock of {name} is of the array {own}, that of {other} of {its}."
            ));
        } else if metadata.events + 1 < events {
            let own = metadata.events;
            sentences.push(format!(
                "The superblock of {name} has {own} events, others have {events}: its data may be \
                 older."
            ));
        }
    }
    sentences
}

/// What a description says of the array.
fn of_description(spec: &ExplicitSpec, geometry: &Geometry) -> Vec<Said> {
    let layout = spec.layout.unwrap_or(Layout::default_for(spec.level));
    vec![
        ("level", spec.level.to_string()),
        ("layout", layout.to_string()),
        ("chunk", show_size(spec.chunk_sectors)),
        ("slots:", spec.raid_disks.to_string()),
        ("an array of", show_size(geometry.array_sectors())),
    ]
}

/// What a superblock says, each with whether it matters for the bytes that are read.
fn of_superblock(
    metadata: &MemberMetadata,
    slot: usize,
    geometry: &Geometry,
    described: Level,
) -> Vec<(Said, bool)> {
    let Some(level) = Level::from_number(metadata.level) else {
        return vec![(("level", metadata.level.to_string()), true)];
    };
    if level != described {
        // Nothing else can be compared.
        return vec![(("level", level.to_string()), true)];
    }
    let number = i32::try_from(metadata.layout).ok();
    let layout = number.and_then(|number| Layout::from_number(level, number).ok());
    let role = match metadata.role {
        Role::Slot(slot) => slot.to_string(),
        Role::Spare => "none (a spare)".into(),
        Role::Faulty => "none (it failed)".into(),
        Role::Journal => "none (the journal)".into(),
    };
    // Every copy of a mirror is as good.
    let is_copy = level == Level::Raid1 && matches!(metadata.role, Role::Slot(_));
    // Of RAID 0 it is not always recorded, and matters only behind the smallest member.
    let used = |slot: usize| geometry.member_used_sectors(MemberIdx(slot as u16));
    let differ = (0..geometry.members()).any(|slot| used(slot) != used(0));
    let recorded = level != Level::Raid0 || metadata.layout != 0 && differ;
    let mut all = vec![
        (("slot", role), !is_copy),
        (("data offset", show_size(metadata.data_offset)), true),
        (("slots:", metadata.raid_disks.to_string()), level != Level::Raid1),
        (("chunk", show_size(u64::from(metadata.chunk_sectors))), level.has_chunks()),
    ];
    all.extend(layout.map(|layout| (("layout", layout.to_string()), recorded)));
    if let Some(sectors) = array_sectors(metadata, level, layout, slot, geometry) {
        all.push((("an array of", show_size(sectors)), sectors != geometry.array_sectors()));
    }
    all
}

/// The size of the array by a superblock, where it says it alone.
fn array_sectors(
    metadata: &MemberMetadata,
    level: Level,
    layout: Option<Layout>,
    slot: usize,
    geometry: &Geometry,
) -> Option<u64> {
    let layout = layout?;
    let slots = usize::try_from(metadata.raid_disks).ok().filter(|&it| it == geometry.members())?;
    if matches!(level, Level::Raid0 | Level::Linear) {
        // Its own part of the array, in place of that of the description.
        let chunk = u64::from(metadata.chunk_sectors).max(1);
        let own = metadata.data_sectors / chunk * chunk;
        let here = geometry.member_used_sectors(MemberIdx(slot as u16)) / chunk * chunk;
        return (own != here).then(|| geometry.array_sectors() - here + own);
    }
    let spec = GeometrySpec {
        level,
        layout,
        chunk_sectors: u64::from(metadata.chunk_sectors),
        member_sectors: vec![metadata.used_sectors; slots],
    };
    Some(Geometry::new(&spec).ok()?.array_sectors())
}

/// What the contents say of the one geometry of an array.
pub(super) fn by_contents(view: &ReadableArray) -> Stated {
    let [part] = view.parts() else { return Stated::Nothing };
    let stated = stated(&Contents(view), &part.geometry);
    view.forget_findings();
    stated
}

/// Where nothing known begins an array, but a file system begins elsewhere: it may have been made
/// over another array.
pub(super) fn made_anew(view: &ReadableArray) -> Option<String> {
    const LOOKED_AT: u64 = 4 << 20;
    /// The first superblock of all kinds lies before it.
    const FIRST: u64 = 128 << 10;
    let contents = Contents(view);
    let mut start = vec![0; LOOKED_AT.min(contents.size()) as usize];
    let is_read = contents.read(0, &mut start).is_ok();
    let is_unknown = is_read && identify(&contents).is_none();
    view.forget_findings();
    let mut known = FileSystems::new();
    let found = if is_unknown { known.find(&start, 0) } else { Vec::new() };
    let begins = found.iter().filter(|it| !known.list()[it.file_system].kind.is_table());
    let mut begins = begins.filter(|it| it.address.is_none_or(|address| address < FIRST));
    let (at, kind) = begins.find_map(|it| {
        let at = it.at.checked_sub(it.address.unwrap_or(0))?;
        Some((at, known.list()[it.file_system].kind.title()))
    })?;
    Some(format!(
        "Nothing known begins the array, and {kind} begins at its byte {at}: if the array was made \
         over another one, 'raidlab guess' looks for that."
    ))
}

/// What redundancy that agrees does not show of a described level.
pub(super) fn unseen_of(level: Level) -> Option<&'static str> {
    match level {
        Level::Raid4 | Level::Raid5 => Some("the order of the members, the chunk, the data offset"),
        Level::Raid6 => Some("a data offset that is wrong by whole rows"),
        Level::Raid1 => Some("the data offset"),
        Level::Raid10 => Some("the order of the pairs, the chunk, the data offset"),
        Level::Raid0 | Level::Linear => None,
    }
}
