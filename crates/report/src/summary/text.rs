//! The summary as sentences, for every form of a report.
//!
//! Invariant: each figure has its unit, each leader the array that it is compared with.

use spec::units::digits;

use super::{Against, Answer, Array, DegradedCost, Group, Remaining, Summary, Verdict};
use crate::doc::{self, Block, Doc, Item, Items, Section};

/// Works in one line of the terminal; the other forms have all.
const WORKS_MAX: usize = 4;
/// Groups in the terminal; the other forms have all.
const GROUPS_MAX: usize = 2;

/// A section for each group, with all of its works.
pub fn sections(summary: &Summary) -> Vec<Section> {
    summary.groups.iter().map(|group| section(group, usize::MAX)).collect()
}

/// As [`sections`], as short as a terminal takes it; `whole`: the option that shows all of them.
pub fn short_sections(summary: &Summary, whole: &str) -> Vec<Section> {
    let groups = summary.groups.iter().take(GROUPS_MAX);
    let mut sections: Vec<Section> = groups.map(|group| section(group, WORKS_MAX)).collect();
    let more = summary.groups.len().saturating_sub(GROUPS_MAX);
    if let Some(last) = sections.last_mut().filter(|_| more > 0) {
        last.blocks
            .push(Block::Paragraph(format!("{more} more under other conditions: {whole} has all")));
    }
    sections
}

/// All for the terminal, after an empty line; empty where there is nothing to say. `whole` as in
/// [`short_sections`].
pub fn terminal(summary: &Summary, whole: &str, colour: bool) -> String {
    match summary.is_empty() {
        true => String::new(),
        false => format!("\n{}", doc::terminal(&Doc::of(short_sections(summary, whole)), colour)),
    }
}

fn section(group: &Group, works_max: usize) -> Section {
    let list = Items::block("", lines(group, works_max));
    Section::new(format!("Summary: {}", group.conditions), list.into_iter().collect())
}

/// A group's lines, with at most `works_max` works in each.
fn lines(group: &Group, works_max: usize) -> Vec<Item> {
    let mut lines = Vec::new();
    let mut add = |lead: &str, parts: Vec<String>| {
        if !parts.is_empty() {
            let more = parts.len().saturating_sub(works_max);
            let mut text = parts[..parts.len() - more].join("; ");
            if more > 0 {
                text.push_str(&format!("; and {more} more"));
            }
            lines.push(Item { lead: lead.into(), text, ..Item::default() });
        }
    };
    let of = |pick: fn(&Answer) -> Option<String>| group.answers.iter().filter_map(pick).collect();
    add("best", of(best));
    add("too close to call", of(too_close));
    for (lead, parts) in too_few_runs(&group.answers) {
        let mut parts = parts;
        if let Some(first) = parts.first_mut() {
            *first = format!("{lead}: {first}");
        }
        add("not decided", parts);
    }
    let known: Vec<&Array> =
        group.arrays.iter().filter(|array| array.redundancy.is_some()).collect();
    if !known.is_empty() {
        add("usable capacity", vec![capacity(&known)]);
        add("lost members", vec![failures(&known)]);
    }
    add("degraded", group.degraded.iter().map(|cost| degraded(cost, works_max)).collect());
    add("not compared", group.left_out.clone());
    lines
}

fn rate(answer: &Answer) -> String {
    format!("{} {}", digits(answer.rate), answer.unit)
}

/// ` (without a figure: RAID 6)`.
fn missing(answer: &Answer) -> String {
    match answer.missing.as_slice() {
        [] => String::new(),
        missing => format!(" (without a figure: {})", missing.join(", ")),
    }
}

fn over(against: &Against) -> String {
    format!("{:.2}x {}", against.times, against.label)
}

fn best(answer: &Answer) -> Option<String> {
    let Verdict::Best(next) = &answer.verdict else { return None };
    let (work, leader, missing) = (&answer.work, &answer.leader, missing(answer));
    Some(format!("{work}: {leader} with {} ({}){missing}", rate(answer), over(next)))
}

fn too_close(answer: &Answer) -> Option<String> {
    let Verdict::TooClose(others) = &answer.verdict else { return None };
    let (work, leader, missing) = (&answer.work, &answer.leader, missing(answer));
    let others = others.iter().map(over).collect::<Vec<_>>().join(", ");
    Some(format!("{work}: {leader} with {} ({others}){missing}", rate(answer)))
}

/// Sentences of answers that have too few runs, by how many there are and how many could decide.
fn too_few_runs(answers: &[Answer]) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for answer in answers {
        let Verdict::TooFewRuns { next, runs, needed, samples_are_runs } = &answer.verdict else {
            continue;
        };
        let option = if *samples_are_runs { "--runs" } else { "bench --repeat" };
        let lead = match runs {
            1 => format!("one run of each ({option} {needed})"),
            _ => format!("{runs} runs of each, {needed} could decide ({option} {needed})"),
        };
        let (work, leader, missing) = (&answer.work, &answer.leader, missing(answer));
        let (rate, over) = (rate(answer), over(next));
        let text = format!("{work}: {leader} leads with {rate} ({over}){missing}");
        match all.iter_mut().find(|(known, _)| *known == lead) {
            Some((_, texts)) => texts.push(text),
            None => all.push((lead, vec![text])),
        }
    }
    all
}

fn capacity(arrays: &[&Array]) -> String {
    let share = |array: &&Array| {
        let usable = array.redundancy.map_or(0.0, |known| known.usable);
        format!("{} {:.0} %", array.label, usable * 100.0)
    };
    format!("{} of all members", arrays.iter().map(share).collect::<Vec<_>>().join(", "))
}

fn failures(arrays: &[&Array]) -> String {
    let survives = |array: &&Array| {
        let (any, at_most) = array.redundancy.map_or((0, 0), |known| (known.any, known.at_most));
        let survived = match (any, at_most) {
            (_, 0) => "none".to_string(),
            (any, at_most) if any == at_most => format!("any {any}"),
            (0, at_most) => format!("up to {at_most}, depending on which"),
            (any, at_most) => format!("any {any}, up to {at_most} depending on which"),
        };
        format!("{} survives {survived}", array.label)
    };
    arrays.iter().map(survives).collect::<Vec<_>>().join("; ")
}

fn degraded(cost: &DegradedCost, works_max: usize) -> String {
    let work = |remaining: &Remaining| {
        let unsure = match remaining.differs {
            Some(true) => "",
            Some(false) => " (no difference shown)",
            None => " (too few runs to be sure)",
        };
        // Said once where it holds for all.
        let all = cost.works.iter().all(|other| other.differs == remaining.differs);
        let unsure = if all { "" } else { unsure };
        format!("{:.0} % of its {}{unsure}", remaining.share * 100.0, remaining.work)
    };
    let more = cost.works.len().saturating_sub(works_max);
    let works = cost.works.iter().take(works_max).map(work).collect::<Vec<_>>().join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let members = if cost.lost == 1 { "member" } else { "members" };
    let all = |differs| cost.works.iter().all(|remaining| remaining.differs == differs);
    let unsure = match () {
        () if all(None) => " (too few runs to be sure)",
        () if all(Some(false)) => " (no difference shown)",
        () => "",
    };
    format!("{} with {} {members} lost delivers {works}{more}{unsure}", cost.label, cost.lost)
}
