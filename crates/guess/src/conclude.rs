//! From a judgement to the answer: names, roles, what superblocks say.
//!
//! Invariant: nothing is decided here but words: of names for one mapping of the same members, the
//! one of the superblocks is said.

use content::FileSystems;
use md::ondisk::Role;
use md::{Layout, Level, SECTOR_BYTES};

use crate::answer::{Answer, Claim, Evidence, FoundFileSystem, Guessed, Judgement, MemberRole};
use crate::attempt::Attempt;
use crate::candidate::{Candidate, samples};
use crate::hypotheses::{Hypothesis, hypotheses};
use crate::known::Options;
use crate::source::Pages;

/// The answer of an attempt that found something.
pub(crate) fn conclude(
    pages: &Pages,
    options: &Options,
    file_systems: &FileSystems,
    attempt: Attempt,
) -> Answer {
    let Attempt { judged, set, hypotheses, tables } = attempt;
    let (Some(mut judged), Some(set)) = (judged, set) else {
        return nothing(pages, options, file_systems);
    };
    let members = pages.members();
    by_sum(&mut judged.best, members);
    judged.alternatives.iter_mut().for_each(|it| by_sum(it, members));
    judged.stale.retain(|&it| it < members);
    let file_system = &file_systems.list()[set.file_system];
    let addresses = samples(file_system.bytes);
    if let Some(stated) = as_stated(pages, &judged.best, &hypotheses, &addresses) {
        let found = std::mem::replace(&mut judged.best, stated);
        judged.equivalent.insert(0, found);
        judged.equivalent.retain(|it| name(it) != name(&judged.best));
    }
    let found = FoundFileSystem {
        kind: file_system.kind.name(),
        uuid: file_system.uuid.clone(),
        label: file_system.label.clone(),
        base: judged.best.base,
        bytes: file_system.bytes,
    };
    let mut evidence = judged.evidence;
    for table in tables {
        let table = &file_systems.list()[table];
        let text = format!("the {} says where the file system begins", table.kind.title());
        evidence.push(Evidence { kind: "table", ok: 1, of: 1, text });
    }
    let claims: Vec<Claim> = hypotheses
        .iter()
        .map(|it| claim(it, Some((&judged.best, &addresses, judged.verdict))))
        .collect();
    let to_tell_apart = judged
        .alternatives
        .first()
        .map(|other| apart(&judged.best, other, pages.exhausted() || !options.thorough));
    let mut best = named(&judged.best, pages);
    let mut equivalent: Vec<String> = judged.equivalent.iter().map(name).collect();
    equivalent.dedup();
    equivalent.truncate(8);
    best.equivalent = equivalent;
    Answer {
        verdict: judged.verdict,
        confidence: judged.confidence,
        why: judged.why,
        alternatives: judged.alternatives.iter().map(|it| named(it, pages)).collect(),
        roles: roles(&judged.best, &judged.stale, &set, members),
        best: Some(best),
        to_tell_apart,
        evidence,
        file_systems: vec![found],
        claims,
        damaged: judged.damaged,
    }
}

/// The answer where nothing is found.
pub(crate) fn nothing(pages: &Pages, options: &Options, file_systems: &FileSystems) -> Answer {
    let found = hypotheses(pages, &options.superblocks);
    let why = match file_systems.list().first() {
        Some(it) => format!("{} was found, but no geometry explains where its blocks lie", it.kind),
        None => "no file system that is known was found: its contents are encrypted, of another \
                 kind, or not of these members"
            .into(),
    };
    Answer {
        verdict: Judgement::None,
        confidence: 0.0,
        why: Some(why),
        best: None,
        alternatives: Vec::new(),
        to_tell_apart: None,
        evidence: Vec::new(),
        file_systems: Vec::new(),
        roles: vec![MemberRole::Unused; pages.members()],
        claims: found.iter().map(|it| claim(it, None)).collect(),
        damaged: Vec::new(),
    }
}

/// What stands for the sum of all members is missing.
fn by_sum(candidate: &mut Candidate, members: usize) {
    for member in &mut candidate.order {
        *member = member.filter(|&it| it < members);
    }
    candidate.exclude.retain(|&it| it < members);
}

/// A candidate for people and programs.
pub(crate) fn named(candidate: &Candidate, pages: &Pages) -> Guessed {
    let shape = &candidate.shape;
    let _ = pages;
    Guessed {
        level: shape.level,
        layout: shape.layout,
        raid_devices: shape.slots,
        chunk: (shape.chunk > 0).then_some(shape.chunk),
        data_offsets: candidate.offsets.clone(),
        order: candidate.order.clone(),
        exclude: candidate.exclude.clone(),
        sizes: shape.sizes.clone(),
        stride: shape.stride,
        used: match shape.sizes {
            Some(_) => None,
            None => Some(shape.geometry().member_used_sectors(md::MemberIdx(0)) * SECTOR_BYTES),
        },
        score: (candidate.weight * 10.0).round() / 10.0,
        equivalent: Vec::new(),
    }
}

/// `RAID 6 left-symmetric-6, 5 devices, slot 4 missing`.
pub(crate) fn name(candidate: &Candidate) -> String {
    let shape = &candidate.shape;
    let layout = match shape.layout {
        Layout::None | Layout::Raid0(_) => String::new(),
        layout => format!(" {layout}"),
    };
    let slots = shape.slots;
    let mut text = format!("{}{layout}, {slots} devices", shape.level);
    let missing: Vec<String> = (0..slots)
        .filter(|&slot| candidate.member(slot).is_none())
        .map(|slot| slot.to_string())
        .collect();
    if !missing.is_empty() {
        text += &format!(", slot {} missing", missing.join(" and "));
    }
    text
}

fn roles(
    best: &Candidate,
    stale: &[usize],
    set: &crate::points::Set,
    members: usize,
) -> Vec<MemberRole> {
    let role = |member: usize| {
        if stale.contains(&member) {
            return MemberRole::Stale;
        }
        if let Some(slot) = best.order.iter().position(|it| *it == Some(member)) {
            return MemberRole::Slot(slot);
        }
        let seen = set.points().iter().any(|it| it.member == member && it.strong);
        if seen { MemberRole::Unused } else { MemberRole::Foreign }
    };
    (0..members).map(role).collect()
}

/// What superblocks say, compared with the best.
fn claim(hypothesis: &Hypothesis, best: Option<(&Candidate, &[u64], Judgement)>) -> Claim {
    let metadata = &hypothesis.metadata;
    let level = Level::from_number(metadata.level)
        .map_or_else(|| format!("level {}", metadata.level), |level| level.to_string());
    let mut text = level;
    if metadata.chunk_sectors > 0 {
        text += &format!(", chunk {}", md::show_size(u64::from(metadata.chunk_sectors)));
    }
    text += &format!(", {} devices", metadata.raid_disks);
    text += &format!(", data offset {}", md::show_size(metadata.data_offset));
    let slot = match metadata.role {
        Role::Slot(_) => "",
        _ => ", no slot",
    };
    text += slot;
    let (refuted, why) = match (&hypothesis.candidate, best) {
        (_, None) => (None, "nothing on the members says whether it is true".to_string()),
        (None, _) => (None, "md has no such array".to_string()),
        (Some(claimed), Some((best, samples, verdict))) => {
            if completed(claimed, best).same(best, samples) {
                (Some(false), "the contents agree".to_string())
            } else if verdict == Judgement::Exact {
                (Some(true), "the superblocks describe another array than the contents".to_string())
            } else {
                (None, "the contents neither prove nor refute it".to_string())
            }
        }
    };
    let created = metadata.created.seconds;
    Claim { text, created, refuted, why, members: hypothesis.members.clone() }
}

/// The best as superblocks name it, if they have another name for what it reads.
fn as_stated(
    pages: &Pages,
    best: &Candidate,
    hypotheses: &[Hypothesis],
    addresses: &[u64],
) -> Option<Candidate> {
    let stated = |hypothesis: &Hypothesis| {
        let mut stated = completed(hypothesis.candidate.as_ref()?, best);
        for member in &mut stated.order {
            *member = member.filter(|it| best.order.contains(&Some(*it)));
        }
        stated.weight = best.weight;
        let stated = stated.fitted(pages)?;
        (stated.same(best, addresses) && name(&stated) != name(best)).then_some(stated)
    };
    hypotheses.iter().find_map(stated)
}

/// What superblocks say, with members for slots that they leave open: those of lost superblocks
/// and those that are out of date are as the contents say.
fn completed(claimed: &Candidate, best: &Candidate) -> Candidate {
    let mut order = claimed.order.clone();
    if order.len() == best.order.len() {
        for (slot, found) in best.order.iter().enumerate() {
            if order[slot].is_none() && found.is_some_and(|it| !claimed.order.contains(&Some(it))) {
                order[slot] = *found;
            }
        }
    }
    Candidate { base: best.base, order, exclude: best.exclude.clone(), ..claimed.clone() }
}

/// What would tell two candidates apart.
fn apart(best: &Candidate, other: &Candidate, more: bool) -> String {
    let differ: Vec<usize> = (0..best.order.len().max(other.order.len()))
        .filter(|&slot| best.order.get(slot) != other.order.get(slot))
        .collect();
    let further = if more { "; more reading may: --thorough" } else { "" };
    if best.shape.level == other.shape.level && best.exclude != other.exclude {
        return format!(
            "they differ in which member is out of date: compare files that were changed last \
             under each{further}"
        );
    }
    let slots: Vec<String> = differ.iter().map(ToString::to_string).collect();
    let where_to = match slots.is_empty() {
        true => "in which rows data and parity change places".to_string(),
        false => format!("in the members of slots {}", slots.join(", ")),
    };
    format!("they differ {where_to}, where no known block decides{further}")
}
