//! Which geometry, and how sure: alternatives, gates, verdict.
//!
//! Invariant: *exact* only if every gate holds and nothing that is possible is left; when in doubt
//! the verdict is ambiguous.

use md::Level;

use crate::answer::{Evidence, Judgement};
use crate::candidate::{Candidate, samples};
use crate::case::Case;
use crate::contest::{Contest, Outcome};
use crate::fit::{Fit, explain};
use crate::gates::{gates, stays, the_last_belongs, unproven};
use crate::redundancy::{self, Redundancy, Support, compare, dense, few};
use crate::stale::{Asked, Settled, settle};
use crate::through::{ask, questions, undamaged};

/// Alternatives that are read through.
const READ_THROUGH: usize = 100;
/// Near candidates of which other orders are tried.
const NEAR: usize = 30;
/// Members of which each two are tried in each other's places.
const MOST_SWAPPED: usize = 12;
/// Percent of what is predicted that must be found through the array, by weight.
const LEAST_THROUGH: usize = 85;

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
    let lead = match by_q(case, &mut pool) {
        Some(lead) => lead,
        None => leader(case, &mut pool)?,
    };
    let samples = samples(case.bytes().max(1));
    let best = pool.remove(lead);
    let (equal, rest): (Vec<Ranked>, Vec<Ranked>) =
        pool.into_iter().partition(|it| it.candidate.same(&best.candidate, &samples));
    let (best, equivalent) = plainest(case, best, equal);
    let open = possible(case, &best, rest, fits, &samples);
    let Contended { mut best, contest, mut open } = contend(case, best, open);
    support(case, &mut best);
    let mut margin = f64::INFINITY;
    let mut alternatives: Vec<Candidate> = Vec::new();
    open.retain(|(other, _)| {
        !part_of(other, &best.candidate) && !other.same(&best.candidate, &samples)
    });
    for (other, outcome) in open {
        let Some(outcome) = outcome else {
            alternatives.push(other);
            continue;
        };
        let ahead = best.candidate.weight - other.weight;
        let fewer =
            best.support == Some(Support::Supported) && other.missing() > best.candidate.missing();
        if let Some(lead) = contest.refutes(&outcome, &other) {
            // What was predicted and read there weighs more than what voted.
            margin = margin.min(ahead.max(0.0) + 3.0 * lead);
        } else if outcome.differ == 0.0 && fewer {
            // The same array with less of it.
        } else if contest.questions.asked.len() < 8 && ahead >= 8.0 {
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
    finish(case, &mut judged, &contest, margin, best.support);
    Some(judged)
}

/// A leader after reading through the array, and what the others gave against it.
struct Contended<'a> {
    best: Ranked,
    contest: Contest<'a>,
    /// Each with its outcome, as far as they are read through.
    open: Vec<(Candidate, Option<Outcome>)>,
}

/// The one that what is read through the array speaks for. Of a new leader the questions are made
/// anew.
fn contend<'a>(case: &'a Case, mut best: Ranked, mut open: Vec<Candidate>) -> Contended<'a> {
    let mut contest = Contest::of(case, &best.candidate);
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.clear();
        outcomes.extend(open.iter().take(READ_THROUGH).map(|other| contest.against(other)));
        let better = match outcomes.iter().position(Outcome::is_refuted) {
            Some(better) => open.swap_remove(better),
            None => match better_swap(case, &best.candidate, &contest) {
                Some(better) => better,
                None => break,
            },
        };
        let leads = Ranked { candidate: better, fit: None, support: None };
        open.push(std::mem::replace(&mut best, leads).candidate);
        contest = Contest::of(case, &best.candidate);
        outcomes.clear();
    }
    let mut outcomes = outcomes.into_iter();
    let open = open.into_iter().enumerate().map(|(count, other)| {
        let read = |other: &Candidate| (count < READ_THROUGH).then(|| contest.against(other));
        let outcome = outcomes.next().or_else(|| read(&other));
        (other, outcome)
    });
    let open = open.collect();
    Contended { best, contest, open }
}

/// Where much is not found, two members may have changed places: false witnesses voted, or few.
fn better_swap(case: &Case, best: &Candidate, contest: &Contest) -> Option<Candidate> {
    if !(LEAST_THROUGH / 2..LEAST_THROUGH).contains(&contest.through.percent()) {
        return None;
    }
    let gain = |it: &Candidate| {
        let outcome = contest.against(it);
        outcome.is_refuted().then_some(outcome.theirs - outcome.own)
    };
    let better = swaps(case, best).into_iter().filter_map(|it| Some((gain(&it)?, it)));
    better.max_by(|one, two| one.0.total_cmp(&two.0)).map(|it| it.1)
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
    let holds = |it: &Candidate| it.shape.bytes() >= case.set.end;
    let candidate = case.bounded(&candidate).filter(holds).unwrap_or(candidate);
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

/// The same with two members in each other's places.
fn swaps(case: &Case, candidate: &Candidate) -> Vec<Candidate> {
    let slots = candidate.order.len();
    if slots > MOST_SWAPPED {
        return Vec::new();
    }
    let pairs = (0..slots).flat_map(|one| (one + 1..slots).map(move |two| (one, two)));
    let swapped = pairs.filter_map(|(one, two)| {
        let mut other = candidate.clone();
        other.order.swap(one, two);
        other.offsets.swap(one, two);
        explain(case.set, &mut other);
        (other.order != candidate.order).then(|| holding(case, other)).flatten()
    });
    swapped.collect()
}

/// An order beside the best, refuted one of RAID 6 with which P and Q agree: false witnesses voted,
/// or a resync of a wrong create wrote over the right ones. No other order has the same P and Q.
fn by_q(case: &Case, pool: &mut Vec<Ranked>) -> Option<usize> {
    let mut found = None;
    for ranked in pool.iter_mut().take(4) {
        if ranked.candidate.shape.level != Level::Raid6 || support(case, ranked) != Support::Refuted
        {
            continue;
        }
        let orders = swaps(case, &ranked.candidate).into_iter();
        let mut orders = orders.map(|candidate| Ranked { candidate, fit: None, support: None });
        found = orders.find(|it| it.candidate.direct >= 6 && agrees(case, &it.candidate));
        if found.is_some() {
            break;
        }
    }
    let mut found = found?;
    support(case, &mut found);
    pool.insert(0, found);
    Some(0)
}

/// The best that is not refuted by its redundancy, of near ones one that is supported.
fn leader(case: &Case, pool: &mut [Ranked]) -> Option<usize> {
    let first = (0..pool.len()).find(|&at| support(case, &mut pool[at]) != Support::Refuted)?;
    let least = pool[first].candidate.weight - slack(pool[first].candidate.weight);
    let near = (first..pool.len()).take_while(|&at| pool[at].candidate.weight >= least);
    let near: Vec<usize> = near.take(40).collect();
    let supported = near.into_iter().find(|&at| support(case, &mut pool[at]) == Support::Supported);
    let apart = || belong_together(case, pool, first);
    Some(supported.or_else(apart).unwrap_or(first))
}

/// Where the best has no redundancy to ask, one whose redundancy agrees throughout, on as many
/// members: they belong together, whatever explains more without it. Parity looks like inodes of
/// other numbers, and the second of far copies like an array of its own.
fn belong_together(case: &Case, pool: &mut [Ranked], first: usize) -> Option<usize> {
    let members = |it: &Candidate| it.order.iter().flatten().count();
    let (given, weight) = (members(&pool[first].candidate), pool[first].candidate.weight);
    (first..pool.len().min(first + 200)).find(|&at| {
        let it = &pool[at].candidate;
        let enough = it.weight * 2.0 >= weight && members(it) >= given && it.shape.redundant();
        if !enough || support(case, &mut pool[at]) != Support::Supported {
            return false;
        }
        agrees(case, &pool[at].candidate)
    })
}

/// Whether the redundancy agrees in most places of a grid.
fn agrees(case: &Case, candidate: &Candidate) -> bool {
    let (grid, _) = few(candidate, case.set);
    let found = compare(candidate, case.pages, &grid, case.masks);
    found.compared >= 24 && found.agree() * 4 >= found.compared * 3
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
    contest: &Contest,
    margin: f64,
    support: Option<Support>,
) {
    let mut doubts: Vec<String> = Vec::new();
    gates(case, &judged.best, support, &mut doubts);
    if !judged.alternatives.is_empty() {
        let others = judged.alternatives.len();
        doubts.push(format!("{others} other geometries explain as much"));
    }
    let mut through = contest.through.clone();
    let mut intact = contest.questions.asked.clone();
    let mut filled = Vec::new();
    if judged.alternatives.is_empty() {
        let positions = dense(&judged.best, case.set, case.thorough);
        let found = compare(&judged.best, case.pages, &positions, case.masks);
        settle_stale(case, judged, &positions, &found, &mut doubts);
        filled = found.filled;
        if !judged.stale.is_empty() || !judged.damaged.is_empty() {
            // What an old member said of others does not count any more.
            let anew = questions(case.file_systems, case.set, &judged.best, case.pages);
            intact = undamaged(&anew.asked, &judged.best, &judged.damaged);
            through = ask(&intact, case.bytes(), &judged.best, case.pages);
        }
    }
    // By the order alone; redundancy says the same of every order.
    let proven = through.proven(&intact, &judged.best);
    let unproven = unproven(case, &judged.best, &proven);
    if let Some(slot) = unproven.first()
        && !(unproven.len() == 1 && the_last_belongs(case, &judged.best))
    {
        doubts.push(format!("hardly any block says which member belongs into slot {slot}"));
    }
    let held: Vec<u64> = through.held(&intact).collect();
    if let Some((unknown, of)) = stays(case.set, &judged.best, &held, &filled) {
        doubts.push(format!(
            "{unknown} of {of} blocks that hold something lie behind the last one of a known \
             place: a controller that moves parity there would look the same"
        ));
    }
    if through.of < 4 {
        doubts.push(format!("only {} contents can be predicted", through.of));
    } else if through.percent() < LEAST_THROUGH || through.least_eighth < 70 {
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
            let mut candidates = candidates.into_iter();
            // Of copies each half is read alone: never now the one and now the other.
            if kind == "mirror"
                && let Some(first) = candidates.next()
            {
                judged.best = Candidate { weight: judged.best.weight, ..first };
            }
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
