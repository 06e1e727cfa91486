//! What a table says of one disk: its single-disk rows, what stands in for them, its data sheet.
//!
//! Invariant: the same row always gets the same inputs; the best source of the same file system
//! and depth counts.

use crate::law::{Access, Array, Constants, Machine, Single, Source, Work, predict};

use super::facts::Facts;

/// A figure of one disk, in the law's units.
#[derive(Clone, Debug, PartialEq)]
pub struct SingleSource {
    /// The workload.
    pub work: Work,
    /// The file system it was measured on.
    pub file_system: Option<&'static str>,
    /// Requests in flight.
    pub depth: f64,
    /// MB/s or operations per second.
    pub rate: f64,
    /// CPU that the run used, percent.
    pub cpu_percent: Option<f64>,
    /// From a row or from the facts.
    pub source: Source,
}

/// A row of the table that stands in for a single disk.
#[derive(Clone, Debug, PartialEq)]
pub struct StandIn {
    pub array: Array,
    pub machine: Machine,
    pub access: Access,
    pub file_system: Option<&'static str>,
    /// What was measured, in the law's unit.
    pub rate: f64,
}

/// The inputs that some rows of a table share.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    base: Single,
    stand_ins: Vec<StandIn>,
}

impl Inputs {
    /// What is known of one disk for rows of that file system and depth.
    pub fn of(
        known: &[SingleSource],
        stand_ins: &[StandIn],
        facts: &Facts,
        fs: Option<&'static str>,
        access: &Access,
    ) -> Inputs {
        let mut base = Single::default();
        base.access_s = facts.access_s;
        for work in Work::ALL {
            let Some(best) = best(known, work, fs, access.depth) else { continue };
            let gain = queue_gain(known, fs).unwrap_or(USUAL_QUEUE_GAIN);
            match at_depth(best, facts, access.depth, gain) {
                Some(rate) if rate == best.rate => base.offer(work, rate, best.source),
                Some(rate) => base.offer(work, rate, best.source.max(Source::OtherDepth)),
                None => base.has_other_depth(work),
            }
        }
        base.queue_gain = queue_gain(known, fs).filter(|_| facts.machine.media.rotates());
        if facts.machine.media.is_flash() {
            // One request at a time: the time of each.
            let alone = |work| {
                let one = best(known, work, fs, 1.0).filter(|one| one.depth <= 1.0)?;
                Some(1.0 / one.rate)
            };
            (base.read_s, base.write_s) = (alone(Work::RandomRead), alone(Work::RandomWrite));
        }
        let same = |one: &&StandIn| one.file_system == fs;
        let mut chosen: Vec<StandIn> = stand_ins.iter().filter(same).cloned().collect();
        if chosen.is_empty() {
            chosen = stand_ins.to_vec();
        }
        // Rewriting is solved last: it needs reading and writing.
        chosen.sort_by_key(|one| one.access.work == Work::Rewrite);
        let mut inputs = Inputs { base, stand_ins: chosen };
        inputs.add_sheet(facts);
        inputs
    }

    /// Sheet values and what is usual, where nothing better is known.
    fn add_sheet(&mut self, facts: &Facts) {
        let base = &mut self.base;
        let has = |base: &Single, work: Work, stand_ins: &[StandIn]| {
            base.get(work).is_some() || stand_ins.iter().any(|one| one.access.work == work)
        };
        if let Some(rate) = facts.sheet_read {
            base.offer(Work::Read, rate, Source::Sheet);
        }
        if let Some(rate) = facts.sheet_write {
            base.offer(Work::Write, rate, Source::Sheet);
        }
        // A disk writes about as fast as it reads; flash does not.
        let same = if facts.machine.media.is_flash() {
            &[][..]
        } else {
            &[(Work::Write, Work::Read), (Work::Read, Work::Write)]
        };
        for &(work, from) in same {
            if let Some(value) = base.get(from)
                && !has(base, work, &self.stand_ins)
            {
                base.offer(work, value.rate, Source::Assumed);
            }
        }
        for (work, from) in [(Work::DirectRead, Work::Read), (Work::DirectWrite, Work::Write)] {
            if let Some(value) = base.get(from) {
                base.offer(work, value.rate, Source::Assumed);
            }
        }
    }

    /// The figures of one disk; rows that stand in are turned around with these constants.
    pub fn resolve(&self, constants: &Constants) -> Single {
        let mut single = self.base;
        for one in &self.stand_ins {
            let work = one.access.work;
            if single.get(work).is_some_and(|value| value.source <= Source::StandIn) {
                continue;
            }
            if work == Work::Rewrite {
                single.rewrite_factor = rewrite_factor(one, &single, constants);
            } else if let Some(rate) = turned_around(one, &single, constants) {
                single.offer(work, rate, Source::StandIn);
            }
        }
        single
    }
}

fn best<'a>(
    known: &'a [SingleSource],
    work: Work,
    fs: Option<&str>,
    depth: f64,
) -> Option<&'a SingleSource> {
    let of_work = known.iter().filter(|one| one.work == work);
    of_work.min_by(|a, b| {
        let rank = |one: &SingleSource| (one.source, one.file_system != fs);
        let away = |one: &SingleSource| (one.depth / depth).ln().abs();
        rank(a).cmp(&rank(b)).then(away(a).total_cmp(&away(b)))
    })
}

/// What sorting gains, where it is not known: the fifth root of the depth.
const USUAL_QUEUE_GAIN: f64 = 0.2;

/// The exponent of the depth in random reads of one disk, by its figures of the least and of the
/// greatest depth.
fn queue_gain(known: &[SingleSource], fs: Option<&str>) -> Option<f64> {
    let same = |one: &&SingleSource| one.work == Work::RandomRead && one.file_system == fs;
    let by_depth = |a: &&SingleSource, b: &&SingleSource| a.depth.total_cmp(&b.depth);
    let least = known.iter().filter(same).min_by(by_depth)?;
    let most = known.iter().filter(same).max_by(by_depth)?;
    let gain = (most.rate / least.rate).ln() / (most.depth / least.depth).ln();
    (most.depth >= 4.0 * least.depth).then_some(gain.clamp(0.0, 0.5))
}

/// The rate at another depth: a disk gains by sorting; of flash it is not known, nor of writes,
/// which caches take.
fn at_depth(one: &SingleSource, facts: &Facts, depth: f64, gain: f64) -> Option<f64> {
    if !matches!(one.work, Work::RandomRead | Work::RandomWrite) {
        return Some(one.rate);
    }
    let ratio = depth / one.depth;
    if one.work == Work::RandomWrite {
        return (0.99..=1.01).contains(&ratio).then_some(one.rate);
    }
    if !facts.machine.media.is_flash() {
        return Some(one.rate * ratio.powf(gain));
    }
    (0.5..=2.0).contains(&ratio).then_some(one.rate)
}

/// The rate of one disk with which the law gives what the array delivered.
fn turned_around(one: &StandIn, single: &Single, constants: &Constants) -> Option<f64> {
    let of = |rate: f64| {
        let mut with = Single::default();
        with.access_s = single.access_s;
        with.offer(one.access.work, rate, Source::StandIn);
        predict(&one.array, &one.machine, &one.access, &with, constants)
    };
    let (mut low, mut high) = (one.rate / 1e3, one.rate * 4.0);
    if of(high).ok()?.value < one.rate {
        return None;
    }
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        match of(middle).ok()?.value < one.rate {
            true => low = middle,
            false => high = middle,
        }
    }
    Some((low * high).sqrt())
}

/// Time of rewriting on the stand-in, of its time of reading and of writing.
fn rewrite_factor(one: &StandIn, single: &Single, constants: &Constants) -> Option<f64> {
    let mut with = Single::default();
    with.rewrite_factor = Some(1.0);
    for work in [Work::Read, Work::Write] {
        let value = single.get(work)?;
        with.offer(work, value.rate, value.source);
    }
    let plain = predict(&one.array, &one.machine, &one.access, &with, constants).ok()?;
    Some((plain.value / one.rate).clamp(0.5, 4.0))
}
