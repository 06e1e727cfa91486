//! What a change of the configuration would do to a prediction.
//!
//! Invariant: each ratio is the law's own, from two predictions that differ in one input.

use md::Level;

use super::array::Array;
use super::ceilings::predict;
use super::constants::Constants;
use super::machine::{Bus, Machine};
use super::single::{Single, Source};
use super::work::{Access, Work};

/// A change and its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// The change, in words.
    pub change: &'static str,
    /// The value after it, of that before.
    pub ratio: f64,
}

/// The three changes that matter most; fewer where fewer matter by a percent.
pub fn sensitivities(
    array: &Array,
    machine: &Machine,
    access: &Access,
    single: &Single,
    constants: &Constants,
) -> Vec<Sensitivity> {
    let value = |array: &Array, machine: &Machine, single: &Single| {
        predict(array, machine, access, single, constants).map(|found| found.value).ok()
    };
    let Some(now) = value(array, machine, single) else { return Vec::new() };
    let mut all = Vec::new();
    let mut offer = |change, after: Option<f64>| {
        let ratio = after.map_or(1.0, |after| after / now);
        if (ratio - 1.0).abs() >= 0.01 {
            all.push(Sensitivity { change, ratio });
        }
    };
    let more = Array { members: array.members + 1, ..*array };
    offer("one more disk", value(&more, machine, single));
    if array.level.has_chunks() {
        let large = Array { chunk_kib: array.chunk_kib * 4.0, ..*array };
        offer("chunk x 4", value(&large, machine, single));
        let small = Array { chunk_kib: array.chunk_kib / 4.0, ..*array };
        offer("chunk / 4", value(&small, machine, single));
    }
    let cache = Machine { stripe_cache: machine.stripe_cache.max(256.0) * 4.0, ..machine.clone() };
    offer("stripe_cache x 4", value(array, &cache, single));
    if let Some(ahead) = machine.read_ahead_kib {
        let ahead = Machine { read_ahead_kib: Some(ahead * 4.0), ..machine.clone() };
        offer("read-ahead x 4", value(array, &ahead, single));
    }
    if machine.buses.is_empty() {
        let half = 0.5 * f64::from(array.members) * rate_of_one(access, single);
        if half > 0.0 && !access.work.is_rate_of_operations() && array.level != Level::Raid1 {
            let bus = vec![Bus { mb_per_s: half, members: None }];
            let narrow = Machine { buses: bus, ..machine.clone() };
            offer("controller unknown; one of half the disks' rate", value(array, &narrow, single));
        }
    } else {
        let wide = Machine { buses: Vec::new(), ..machine.clone() };
        offer("without the bus", value(array, &wide, single));
    }
    let mut slower = *single;
    for work in Work::ALL {
        slower.replace(work, single.get(work).map(|one| one.rate * 0.9), Source::Assumed);
    }
    slower.access_s = single.access_s.map(|time| time / 0.9);
    offer("disks 10 % slower", value(array, machine, &slower));
    all.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    all.truncate(3);
    all
}

fn rate_of_one(access: &Access, single: &Single) -> f64 {
    let work = match access.work {
        Work::Rewrite | Work::Resync | Work::Check => Work::Read,
        work => work,
    };
    single.get(work).map_or(0.0, |one| one.rate)
}
