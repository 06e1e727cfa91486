//! The answer as text: the sentences, then the tables and assumptions they rest on.

use predict::advise::{Advice, Candidate, Question, years};
use report::doc::wrap;
use spec::units::digits;

use super::asked::DepthFrom;
use super::verify::Verification;
use super::words::{array_name, chance, failure_words, is_counted, terabytes};
use super::{Answer, cost_per_tb};
use crate::commands::predict::level_name;
use crate::console::columns;

/// The mix in words: `seq-read 30 %, random-write 70 %`.
fn mix_in_words(question: &Question<'_>) -> String {
    let total: f64 = question.mix.iter().map(|share| share.weight).sum();
    let mix = question.mix.iter().map(|share| {
        let percent = 100.0 * share.weight / total;
        format!("{} {percent:.0} %", share.work.option_name())
    });
    mix.collect::<Vec<_>>().join(", ")
}

/// Heads of the ranked arrays.
pub const HEADS: [&str; 9] = [
    "array",
    "disks",
    "usable",
    "x one disk",
    "behind the best",
    "may fail",
    "rebuild",
    "unreadable",
    "anything lost, 1 in",
];

/// A line of each candidate, below [`HEADS`]; the recommended one has a mark.
pub fn ranked(answer: &Answer<'_>) -> impl Iterator<Item = [String; 9]> {
    let each = answer.advice.candidates.iter().zip(&answer.found.outlooks).enumerate();
    each.map(|(place, (candidate, outlook))| {
        let risk = &candidate.risk;
        let mark = if place == answer.found.place { " *" } else { "" };
        [
            array_name(candidate) + mark,
            candidate.array.members.to_string(),
            terabytes(candidate.capacity.bytes),
            format!("{:.2}", candidate.score),
            if place == 0 { "best".into() } else { candidate.confidence.name().to_string() },
            risk.tolerates.to_string(),
            risk.rebuild.map_or("-".into(), |rebuild| format!("{} h", digits(rebuild.hours))),
            risk.rebuild.map_or("-".into(), |rebuild| chance(rebuild.unreadable)),
            outlook.map_or("-".into(), |outlook| years(outlook.chance)),
        ]
    })
}

/// What one more failure loses: `any member`.
fn second_failure(candidate: &Candidate) -> Option<String> {
    Some(match candidate.risk.rebuild?.second_failure {
        0.0 => "no member".to_string(),
        all if all >= 1.0 => "any member".to_string(),
        part => format!("{} of the members", chance(part)),
    })
}

/// Mixes that the command was given by their word.
pub fn heading(answer: &Answer<'_>) -> String {
    let Answer { asked, arguments, question, .. } = answer;
    let described = &asked.described;
    let count = match is_counted(question.needs.count) {
        true => "as many disks as it takes".to_string(),
        false => format!("{} disks", question.bytes.len()),
    };
    let named = arguments.named_mix.map_or(String::new(), |mix| format!("{}: ", mix.name));
    let mix = mix_in_words(question);
    format!("{count} ({}), {}; mix: {named}{mix}", described.disks, described.fs)
}

/// The answer.
pub fn text(answer: &Answer<'_>) -> String {
    let Answer { advice, verified, .. } = answer;
    let all = &advice.candidates;
    let mut out = String::new();
    let mut paragraph = |text: &str| {
        for line in wrap(text, WIDTH) {
            out += &format!("{line}\n");
        }
    };
    for sentence in answer.sentences().all() {
        paragraph(sentence);
    }
    out += "\n";
    out += &format!("{}\n\n", wrap(&heading(answer), WIDTH).join("\n"));
    out += &columns(HEADS, ranked(answer), &[1, 2, 3, 5, 6, 7, 8]);
    out += "\nHealthy, and with one member missing:\n";
    for candidate in all {
        out += &format!("  {}: {}\n", level_name(&candidate.array), speeds(candidate));
    }
    out += &verified.as_ref().map_or(String::new(), Verification::text);
    out += "\n";
    for line in notes(answer).into_iter().chain(assumed(answer)) {
        for line in wrap(&line, WIDTH) {
            out += &format!("{line}\n");
        }
    }
    out
}

/// What the tables have no room for: whole sentences.
pub fn notes(answer: &Answer<'_>) -> Vec<String> {
    let advice = answer.advice;
    let all = &advice.candidates;
    let mut lines = Vec::new();
    lines.extend(second_failures(all));
    lines.extend(no_rebuild(advice));
    lines.extend(left_out(advice));
    lines.extend(stacked(all));
    lines.extend(costs(answer));
    lines
}

/// Each workload, healthy and degraded.
fn speeds(candidate: &Candidate) -> String {
    let speeds = candidate.speeds.iter().map(|speed| {
        let degraded = speed.degraded.map_or("lost".to_string(), digits);
        let (name, unit) = (speed.work.option_name(), speed.work.unit());
        format!("{name} {}/{degraded} {unit}", digits(speed.healthy))
    });
    speeds.collect::<Vec<_>>().join("; ")
}

/// What one more failure loses, of each array.
fn second_failures(all: &[Candidate]) -> Option<String> {
    let each = all.iter().filter_map(|candidate| {
        Some(format!("{} with {}", level_name(&candidate.array), second_failure(candidate)?))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty())
        .then(|| format!("While a member is missing, the array is lost: {}.", each.join("; ")))
}

/// What the disks cost, and a terabyte.
fn costs(answer: &Answer<'_>) -> Option<String> {
    let Answer { question, advice, .. } = answer;
    question.needs.price?;
    let each = advice.candidates.iter().filter_map(|one| {
        let cost = question.needs.cost(one.array.members)?;
        let per_tb = cost_per_tb(one, question)?;
        let name = level_name(&one.array);
        Some(format!("{name} {}, {} a TB", digits(cost), digits(per_tb)))
    });
    Some(format!("Cost: {}.", each.collect::<Vec<_>>().join("; ")))
}

/// Columns of what is no table.
const WIDTH: usize = 100;

/// What was assumed, and where figures of one disk and the depth come from: whole sentences.
pub fn assumed(answer: &Answer<'_>) -> Vec<String> {
    let Answer { asked, question, .. } = answer;
    let described = &asked.described;
    let assumed = question.assumptions;
    let mut lines = vec![format!(
        "Assumed: {}, {} times as often while a member is missing; {:e} read errors a bit \
             (unreadable: a sector without a copy, in the rebuild); {} h until the replacement; \
             rebuilds without other load. Degraded speeds count disk operations.",
        failure_words(&asked.failures),
        digits(assumed.correlation),
        assumed.errors_per_bit,
        digits(assumed.replacement_h),
    )];
    if !described.assumed.is_empty() {
        lines.push(format!("Assumed: {}.", described.assumed.join("; ")));
    }
    if let Some(given) = asked.depth_from.filter(|from| *from != DepthFrom::Nothing) {
        let (depth, from) = (question.depth, given.name());
        lines.push(format!("Random requests: {depth} in flight ({from})."));
    }
    let inputs = question.mix.iter().filter_map(|share| {
        let value = described.question.single.get(share.work)?;
        let (name, rate) = (share.work.option_name(), digits(value.rate));
        Some(format!("{name} {rate} {} ({})", share.work.unit(), value.source.name()))
    });
    let inputs = inputs.collect::<Vec<_>>().join(", ");
    if !inputs.is_empty() {
        lines.push(format!("One disk: {inputs}."));
    }
    lines
}

/// Why arrays with redundancy have no rebuild time and no chance of loss.
fn no_rebuild(advice: &Advice) -> Option<String> {
    let why = advice.candidates.iter().find_map(|one| one.risk.rate_unknown)?;
    Some(format!("No rebuild time and no chance of loss: {why}."))
}

/// The levels and layouts without advice, by reason.
fn left_out(advice: &Advice) -> Option<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for one in &advice.left_out {
        let (why, name) = (one.why.to_string(), level_name(&one.array));
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let each = reasons.into_iter().map(|(why, names)| format!("{}: {why}", names.join(", ")));
    let each = each.collect::<Vec<_>>().join("; ");
    (!each.is_empty()).then(|| format!("Left out: {each}."))
}

/// What stacking arrays by size would give, where disks differ.
fn stacked(all: &[Candidate]) -> Option<String> {
    let more = all.iter().filter(|one| one.capacity.stacked > one.capacity.bytes);
    let each =
        more.map(|one| format!("{} {}", level_name(&one.array), terabytes(one.capacity.stacked)));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| {
        let each = each.join(", ");
        format!("Stacked by size, an array over the disks that still have room: {each}.")
    })
}
