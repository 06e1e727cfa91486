//! Findings about a figure that is far from its bound, where no other rule says why.
//!
//! Invariant: as in the module above; called last, with what the others found.

use super::{finding, mean_busy, percent, short};
use crate::record::{Cell, Finding};

/// Below this share of the bound a cell has a finding.
const LEAST: f64 = 0.85;
/// Above this share of the bound a cell has a finding, too.
const MOST: f64 = 1.1;

/// A cell far from its bound. A shortfall needs this finding only where no other rule explains it;
/// only a cache explains more than the bound.
pub(super) fn missed(cell: &Cell, found: &[Finding]) -> Option<Finding> {
    let (share, bound) = (cell.derived.bound_share?, cell.derived.bound_mb_per_s);
    let has = |name: &str| found.iter().any(|finding| finding.name == name);
    let mut evidence = vec![("bound_share", share)];
    evidence.extend(bound.map(|bound| ("bound_mb_per_s", bound)));
    let of = bound.map_or(String::new(), |bound| format!(" ({} MB/s)", short(bound)));
    if share > MOST && !has("page-cache") {
        let text = format!(
            "{} of what the members could deliver together{of}: a cache, theirs or one above them, \
             served or kept a part of it, which the bound does not model",
            percent(share)
        );
        let command = "a larger --size, and --seconds long enough to fill the caches".to_string();
        return Some(finding("above-the-bound", text, &evidence, Some(command)));
    }
    if share >= LEAST || !found.is_empty() {
        return None;
    }
    let busy = mean_busy(cell);
    let load: Option<f64> = cell.measured.member_load.iter().map(|load| load.in_flight).sum();
    let load = load.filter(|_| !cell.measured.member_load.is_empty());
    evidence.extend(busy.map(|busy| ("members_busy", busy)));
    evidence.extend(load.map(|load| ("in_flight", load)));
    let mut known = Vec::new();
    known.extend(busy.map(|busy| format!("they were busy {} on average", percent(busy))));
    known.extend(load.map(|load| format!("{} operations were in flight on them", short(load))));
    let known = match known.is_empty() {
        true => "their utilization is unknown".to_string(),
        false => known.join(", "),
    };
    let text = format!(
        "only {} of what the members could deliver together{of}; {known}: no other finding \
         explains it",
        percent(share)
    );
    Some(finding("below-the-bound", text, &evidence, None))
}
