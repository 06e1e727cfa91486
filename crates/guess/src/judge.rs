//! Which geometry, and how sure: alternatives, gates, verdict.
//!
//! Invariant: *exact* only if every gate holds and nothing that is possible is left; when in doubt
//! the verdict is ambiguous.

use content::FileSystems;
use md::Level;

use crate::answer::{Evidence, Judgement};
use crate::candidate::{Candidate, samples};
use crate::fit::Fit;
use crate::points::Set;
use crate::redundancy::{self, Masks, Redundancy, Support, compare, dense, few};
use crate::source::Pages;
use crate::stale::{Asked, Settled, settle};
use crate::through::{Through, ask, questions, undamaged};

/// Alternatives that are read through.
const READ_THROUGH: usize = 100;
/// Near candidates of which other orders are tried.
const NEAR: usize = 30;

/// All that a judgement rests on.
pub(crate) struct Case<'a> {
    pub pages: &'a Pages<'a>,
    pub set: &'a Set,
    pub file_systems: &'a FileSystems,
    pub masks: &'a Masks,
    pub recreated: bool,
    /// Compare all of the redundancy.
    pub thorough: bool,
    /// Members that were given.
    pub members: usize,
}

/// A judgement on one file system's geometry.
pub(crate) struct Judged {
    pub verdict: Judgement,
    pub confidence: f64,
    pub why: Option<String>,
    pub best: Candidate,
    pub alternatives: Vec<Candidate>,
    pub equivalent: Vec<Candidate>,
    pub evidence: Vec<Evidence>,
    pub stale: Vec<usize>,
    pub damaged: Vec<(u64, u64)>,
}

struct Ranked {
    candidate: Candidate,
    /// Index of its fit.
    fit: Option<usize>,
    support: Option<Support>,
}

/// Judges all fits, and candidates of other origin.
pub(crate) fn judge(case: &Case, fits: &[Fit], others: Vec<Candidate>) -> Option<Judged> {
    let mut pool = ranked(case, fits, others);
    let lead = leader(case, &mut pool)?;
    let bytes = case.file_systems.list()[case.set.file_system].bytes;
    let samples = samples(bytes.max(1));
    let best = pool.remove(lead);
    let (equal, rest): (Vec<Ranked>, Vec<Ranked>) =
        pool.into_iter().partition(|it| it.candidate.same(&best.candidate, &samples));
    let (best, equivalent) = plainest(case, best, equal);
    let mut open = possible(case, &best, rest, fits, &samples);
    let mut best = best;
    let asked_of = |it: &Candidate| questions(case.file_systems, case.set, it, case.pages);
    let mut questions = asked_of(&best.candidate);
    let mut through = ask(&questions, bytes, &best.candidate, case.pages);
    // What is read through the array decides between those that explain as much; of a new leader
    // the questions are made anew.
    let mut lead = reading(case, &questions, bytes, &best.candidate);
    for _ in 0..3 {
        let better = open
            .iter()
            .take(READ_THROUGH)
            .position(|other| reading(case, &questions, bytes, other).refutes(&lead, &questions));
        let Some(better) = better else { break };
        let leads = Ranked { candidate: open.swap_remove(better), fit: None, support: None };
        open.push(std::mem::replace(&mut best, leads).candidate);
        questions = asked_of(&best.candidate);
        through = ask(&questions, bytes, &best.candidate, case.pages);
        lead = reading(case, &questions, bytes, &best.candidate);
    }
    support(case, &mut best);
    let mut margin = f64::INFINITY;
    let mut alternatives: Vec<Candidate> = Vec::new();
    open.retain(|other| !part_of(other, &best.candidate) && !other.same(&best.candidate, &samples));
    for (count, other) in open.into_iter().enumerate() {
        if count >= READ_THROUGH {
            alternatives.push(other);
            continue;
        }
        let theirs = reading(case, &questions, bytes, &other);
        let ahead = best.candidate.weight - other.weight;
        let (own, others, differ) = lead.compare(&theirs, &questions);
        let fewer =
            best.support == Some(Support::Supported) && other.missing() > best.candidate.missing();
        if lead.refutes(&theirs, &questions) {
            // What was predicted and read there weighs more than what voted.
            margin = margin.min(ahead.max(0.0) + 3.0 * (own - others));
        } else if differ == 0.0 && fewer {
            // The same array with less of it.
        } else if questions.len() < 8 && ahead >= 8.0 {
            // A better explanation; there is nothing else to ask.
            margin = margin.min(ahead);
        } else {
            alternatives.push(other);
        }
    }
    let mut judged = Judged {
        verdict: Judgement::Ambiguous,
        confidence: 0.0,
        why: None,
        best: best.candidate,
        alternatives,
        equivalent,
        evidence: Vec::new(),
        stale: Vec::new(),
        damaged: Vec::new(),
    };
    finish(case, &mut judged, &questions, through, margin, best.support);
    Some(judged)
}

/// All candidates that can hold the file system, by weight.
fn ranked(case: &Case, fits: &[Fit], others: Vec<Candidate>) -> Vec<Ranked> {
    let mut pool = Vec::new();
    let mut add = |candidate: Candidate, fit| {
        if let Some(candidate) = holding(case, candidate) {
            pool.push(Ranked { candidate, fit, support: None });
        }
    };
    for (index, fit) in fits.iter().enumerate() {
        let Some(candidate) = fit.best(case.set, &[]) else { continue };
        fit.variants(case.set, &candidate).into_iter().for_each(|it| add(it, Some(index)));
        if candidate.shape.level == Level::Raid0
            && let Some(unequal) = fit.unequal(case.set, &candidate, case.pages)
        {
            add(unequal, None);
        }
        add(candidate, Some(index));
    }
    others.into_iter().for_each(|candidate| add(candidate, None));
    pool.sort_by(|one, other| other.candidate.weight.total_cmp(&one.candidate.weight));
    let best = pool.first().map_or(0.0, |it| it.candidate.weight);
    pool.retain(|it| it.candidate.weight * 2.0 >= best);
    pool
}

/// The candidate over the areas that its members have room for, if the file system fits.
fn holding(case: &Case, candidate: Candidate) -> Option<Candidate> {
    let candidate = candidate.fitted(case.pages)?;
    // RAID 10 with several missing members that leave nothing whole explains too much.
    let whole = candidate.is_whole() || candidate.shape.level == Level::Raid0;
    (whole && candidate.shape.bytes() >= case.set.end).then_some(candidate)
}

/// By how much less weight a candidate is still possible.
fn slack(weight: f64) -> f64 {
    (weight * 0.02).max(2.0)
}

fn support(case: &Case, ranked: &mut Ranked) -> Support {
    *ranked.support.get_or_insert_with(|| {
        let (grid, around) = few(&ranked.candidate, case.set);
        let on_grid = compare(&ranked.candidate, case.pages, &grid, case.masks);
        if on_grid.compared >= 24 {
            return on_grid.support();
        }
        compare(&ranked.candidate, case.pages, &around, case.masks).support()
    })
}

/// The best that is not refuted by its redundancy, of near ones one that is supported.
fn leader(case: &Case, pool: &mut [Ranked]) -> Option<usize> {
    let first = (0..pool.len()).find(|&at| support(case, &mut pool[at]) != Support::Refuted)?;
    let least = pool[first].candidate.weight - slack(pool[first].candidate.weight);
    let near = (first..pool.len()).take_while(|&at| pool[at].candidate.weight >= least);
    let near: Vec<usize> = near.take(40).collect();
    let supported = near.into_iter().find(|&at| support(case, &mut pool[at]) == Support::Supported);
    Some(supported.unwrap_or(first))
}

/// Of equal candidates the one with the plainest name.
fn plainest(case: &Case, best: Ranked, equal: Vec<Ranked>) -> (Ranked, Vec<Candidate>) {
    let least = best.candidate.weight - slack(best.candidate.weight);
    let given = case.members;
    let key = |it: &Ranked| {
        let used = it.candidate.order.iter().flatten().count();
        let (missing, _, level, slots) = it.candidate.plainness();
        (missing, given.saturating_sub(used), level, slots)
    };
    let mut all = vec![best];
    for mut it in equal {
        // Another name for less evidence is no better name.
        if it.candidate.weight >= least && support(case, &mut it) != Support::Refuted {
            all.push(it);
        }
    }
    let at = (0..all.len()).min_by_key(|&at| key(&all[at])).unwrap_or(0);
    let best = all.swap_remove(at);
    (best, all.into_iter().map(|it| it.candidate).collect())
}

/// What else is possible: near candidates that read other bytes, and other orders.
fn possible(
    case: &Case,
    best: &Ranked,
    rest: Vec<Ranked>,
    fits: &[Fit],
    samples: &[u64],
) -> Vec<Candidate> {
    let least = best.candidate.weight - slack(best.candidate.weight);
    let mut open: Vec<Ranked> =
        rest.into_iter().take_while(|it| it.candidate.weight >= least).collect();
    // Other orders of all of them: each edge of the best assignment forbidden in turn.
    let near = std::iter::once(best).chain(&open).take(NEAR);
    let near: Vec<(usize, Vec<Option<usize>>)> =
        near.filter_map(|it| Some((it.fit?, it.candidate.order.clone()))).collect();
    for (index, order) in near {
        for (slot, member) in order.into_iter().enumerate() {
            let Some(member) = member else { continue };
            let other = fits[index].best(case.set, &[(slot, member)]);
            if let Some(candidate) = other.and_then(|other| holding(case, other)) {
                open.push(Ranked { candidate, fit: None, support: None });
            }
        }
    }
    let mut left: Vec<Candidate> = Vec::new();
    for mut it in open {
        let weak = it.candidate.weight + slack(best.candidate.weight) * 4.0 < best.candidate.weight;
        if weak
            || part_of(&it.candidate, &best.candidate)
            || it.candidate.same(&best.candidate, samples)
            || left.iter().any(|other| other.same(&it.candidate, samples))
        {
            continue;
        }
        let theirs = support(case, &mut it);
        let lesser = best.support == Some(Support::Supported)
            && theirs == Support::Unasked
            && it.candidate.missing() > best.candidate.missing();
        if theirs != Support::Refuted && !lesser {
            left.push(it.candidate);
        }
    }
    left
}

/// What a candidate reads at best: a member that is out of date may be in it.
fn reading(
    case: &Case,
    questions: &[content::Prediction],
    bytes: u64,
    candidate: &Candidate,
) -> Through {
    let mut best = ask(questions, bytes, candidate, case.pages);
    if best.holds == best.of || !candidate.shape.redundant() {
        return best;
    }
    for member in candidate.order.iter().flatten() {
        let without = candidate.without(*member);
        if without.is_whole() {
            let other = ask(questions, bytes, &without, case.pages);
            if other.score() > best.score() + 1.5 {
                best = other;
            }
        }
    }
    best
}

/// Whether a candidate is the best one without some of its members.
fn part_of(candidate: &Candidate, best: &Candidate) -> bool {
    let shape = &candidate.shape;
    let alike = shape.level == best.shape.level
        && shape.layout == best.shape.layout
        && shape.chunk == best.shape.chunk
        && candidate.offsets == best.offsets
        && candidate.order.len() == best.order.len();
    alike && candidate.order.iter().zip(&best.order).all(|(one, two)| one.is_none() || one == two)
}

/// Gates, stale members, verdict.
fn finish(
    case: &Case,
    judged: &mut Judged,
    questions: &[content::Prediction],
    through: Through,
    margin: f64,
    support: Option<Support>,
) {
    let mut doubts: Vec<String> = Vec::new();
    gates(case, &judged.best, support, &mut doubts);
    if !judged.alternatives.is_empty() {
        let others = judged.alternatives.len();
        doubts.push(format!("{others} other geometries explain as much"));
    }
    let mut through = through;
    let mut intact = questions.to_vec();
    if judged.alternatives.is_empty() {
        let positions = dense(&judged.best, case.set, case.thorough);
        let found = compare(&judged.best, case.pages, &positions, case.masks);
        settle_stale(case, judged, &positions, &found, &mut doubts);
        if !judged.stale.is_empty() || !judged.damaged.is_empty() {
            let bytes = case.file_systems.list()[case.set.file_system].bytes;
            intact = undamaged(questions, &judged.best, &judged.damaged);
            through = ask(&intact, bytes, &judged.best, case.pages);
        }
    }
    // By the order alone; redundancy says the same of every order.
    let proven = through.proven(&intact, &judged.best);
    if let Some(slot) = unproven(case.set, &judged.best, &proven) {
        doubts.push(format!("hardly any block says which member belongs into slot {slot}"));
    }
    if through.of < 4 {
        doubts.push(format!("only {} contents can be predicted", through.of));
    } else if through.percent() < 85 || through.least_eighth < 70 {
        doubts.push(format!(
            "only {} of {} predicted contents are found through the array",
            through.holds, through.of
        ));
    } else if !through.failing.is_empty() {
        let failing = through.failing.join(", ");
        doubts.push(format!("of predicted contents only {failing} are found through the array"));
    }
    let holds = "predicted contents (bitmaps, directories, ends of files) found through the array";
    judged.evidence.push(Evidence {
        kind: "predicted",
        ok: through.holds as u64,
        of: through.of as u64,
        text: format!("{} of {} {holds}", through.holds, through.of),
    });
    addresses(judged);
    let margin = margin.min(judged.best.weight).min(10.0);
    let confidence = (1.0 - (-margin).exp2()).min(0.999);
    if doubts.is_empty() && confidence < 0.99 {
        doubts.push("its lead over the next is too small".into());
    }
    if doubts.is_empty() {
        judged.verdict = Judgement::Exact;
        judged.confidence = confidence;
    } else {
        judged.confidence = confidence.min(0.89);
        judged.why = Some(doubts.join("; "));
    }
}

/// Gates that need no more reading.
fn gates(case: &Case, best: &Candidate, support: Option<Support>, doubts: &mut Vec<String>) {
    if best.direct < 6 {
        doubts.push(format!("only {} blocks state their own address", best.direct));
    }
    let mut regions: Vec<(usize, u64)> = case
        .set
        .points()
        .iter()
        .filter(|it| it.strong)
        .map(|it| (it.member, it.at >> 16))
        .collect();
    regions.sort_unstable();
    regions.dedup();
    if regions.len() < 2 {
        doubts.push("all of them lie in one place".into());
    }
    if best.contradictions >= 2 && best.contradictions * 100 > best.direct * 3 {
        doubts.push(format!(
            "{} blocks contradict the layout: it may be one that is not known here",
            best.contradictions
        ));
    }
    if let Some(member) = left_over(case, best) {
        doubts.push(format!("member {member} holds blocks of the array, but has no place in it"));
    }
    if support == Some(Support::Refuted) {
        doubts.push("the redundancy does not agree".into());
    }
    if !best.is_whole() {
        doubts.push("too many members are missing to read all of it".into());
    }
    let proven = best.order.iter().flatten().count();
    if best.shape.level == Level::Raid1 && proven < 2 && case.members > 1 {
        doubts.push("all of it lies on one member".into());
    }
}

/// A member without a slot that holds blocks of the array in the right rows.
fn left_over(case: &Case, best: &Candidate) -> Option<usize> {
    let mut places = Vec::new();
    (0..case.members).filter(|member| !best.order.contains(&Some(*member))).find(|&member| {
        let own = case.set.points().iter().filter(|it| it.member == member && it.strong);
        let in_row = own.filter(|point| {
            best.shape.places(point.address, &mut places);
            let usual = best.offsets.first().copied().unwrap_or(0);
            places.iter().any(|place| point.at == usual + place.at)
        });
        in_row.count() >= 3
    })
}

/// A slot whose member neither witnesses nor what was read puts there. Of copies, and with parity
/// always in one place, some members hold nothing of their own.
fn unproven(set: &Set, best: &Candidate, read: &[f64]) -> Option<usize> {
    let mut places = Vec::new();
    let mut proven = read.to_vec();
    for point in set.points() {
        best.shape.places(point.address, &mut places);
        for place in places.iter() {
            let here = best.member(place.slot) == Some(point.member);
            if here && point.at == best.offsets[place.slot] + place.at {
                proven[place.slot] += point.weight;
            }
        }
    }
    let holds_data = |slot: usize| match best.shape.geometry().kind() {
        md::Kind::Parity(parity) => (0..parity.rotation() as u64)
            .any(|row| matches!(parity.row(md::StripeNo(row)).role[slot], md::RowRole::Data(_))),
        _ => true,
    };
    let there = (0..proven.len()).filter(|&slot| best.member(slot).is_some() && holds_data(slot));
    there.into_iter().find(|&slot| proven[slot] < 1.5)
}

fn settle_stale(
    case: &Case,
    judged: &mut Judged,
    positions: &[u64],
    found: &Redundancy,
    doubts: &mut Vec<String>,
) {
    if !judged.best.shape.redundant() {
        return;
    }
    let asked = Asked {
        pages: case.pages,
        set: case.set,
        file_systems: case.file_systems,
        masks: case.masks,
        positions,
        recreated: case.recreated,
    };
    if found.compared == 0 {
        return;
    }
    let kind = match judged.best.shape.geometry().kind() {
        md::Kind::Mirrored(_) => "mirror",
        _ => "redundancy",
    };
    let (ok, of) = (found.agree() as u64, found.compared as u64);
    let bad = found.bad.len();
    let blocks = redundancy::positions(&judged.best, case.set);
    judged.evidence.push(Evidence {
        kind,
        ok,
        of,
        text: format!(
            "redundancy: {bad} disagreements in {of} blocks that hold something, of {blocks}"
        ),
    });
    match settle(&asked, &judged.best, found) {
        Settled::Agrees => {}
        Settled::Stale { candidate, member, why } => {
            let weight = candidate.weight;
            judged.best = Candidate { weight, ..*candidate };
            judged.stale.push(member);
            judged.evidence.push(Evidence { kind, ok, of, text: format!("stale: {why}") });
        }
        Settled::Damaged { range, why } => {
            judged.damaged.push((range.start, range.end));
            judged.evidence.push(Evidence { kind, ok, of, text: format!("written over: {why}") });
        }
        Settled::Open { candidates, why } => {
            doubts.push(why);
            judged.alternatives.extend(candidates);
        }
    }
}

fn addresses(judged: &mut Judged) {
    let best = &judged.best;
    let (direct, of, copies) = (best.direct as u64, best.witnesses as u64, best.parity_copies);
    let explained = direct + copies as u64;
    let text = format!(
        "{direct} of {of} blocks that state their own address are where this geometry puts them"
    );
    judged.evidence.insert(0, Evidence { kind: "self-address", ok: direct, of, text });
    if copies > 0 {
        let text = format!("{copies} more are parity copies");
        judged
            .evidence
            .insert(1, Evidence { kind: "parity-copy", ok: copies as u64, of: explained, text });
    }
}
