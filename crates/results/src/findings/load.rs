//! Findings about a stated load.
//!
//! Invariant: as in the module above.

use super::{finding, percent, short};
use crate::record::{Cell, Finding};

/// Findings that say why an array does not deliver more: under a stated load that it keeps up with,
/// no more is required.
pub(super) const OF_FULL_LOAD: [&str; 4] = [
    "queue-never-deeper-than-one",
    "queue-too-shallow",
    "one-command-each",
    "read-ahead-too-small",
];

/// The array does not keep up with the stated load.
pub(super) fn not_met(cell: &Cell) -> Option<Finding> {
    let (stated, share) = (f64::from(cell.case.rate_iops?), cell.load_share()?);
    if cell.meets_load()? {
        return None;
    }
    let waiting = cell.measured.waiting.unwrap_or(0);
    let text = format!(
        "{} of {} requests per second were served, {} of those that arrived; {waiting} waited at \
         the end: the latencies grow with the length of the run and are no property of the array",
        short(cell.derived.iops),
        short(stated),
        percent(share)
    );
    let evidence = [
        ("rate_iops", stated),
        ("iops", cell.derived.iops),
        ("load_share", share),
        ("waiting", waiting as f64),
    ];
    let below = (cell.derived.iops * 0.8).floor().max(1.0) as u64;
    Some(finding("stated-load-not-met", text, &evidence, Some(format!("--rate-iops {below}"))))
}
