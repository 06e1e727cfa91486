//! Findings: the bottleneck that the evidence in a finished cell shows, and the option that would
//! change it.
//!
//! ```text
//!   record::Cell --> rules (one function each) --> record::Finding {text, evidence, command}
//! ```
//!
//! Invariant: a rule reads one cell and nothing else, so a record that is read back years later
//! gives the same findings. A rule whose evidence is missing gives no finding. Called from `bench`
//! for every cell, and from the programs' session.

mod advice;
mod bound;
mod cpu;
mod load;
mod members;
mod queue;
#[cfg(test)]
mod tests;

use md::{Level, Raid10Layout};

use crate::record::{Cell, Finding, MemberTraffic, Sample};
use crate::words::LayoutName;

/// The findings that the cell's evidence supports, in a fixed order.
pub fn find(cell: &Cell) -> Vec<Finding> {
    const RULES: [fn(&Cell) -> Option<Finding>; 17] = [
        load::not_met,
        members::page_cache,
        members::resync_running,
        members::shared_bus,
        members::shared_spindle,
        members::shared_channel,
        members::one_slow_member,
        members::unbalanced_members,
        members::read_modify_write,
        members::stripe_cache_growing,
        queue::never_deeper_than_one,
        queue::too_shallow,
        queue::one_command_each,
        queue::read_ahead_too_small,
        cpu::generator_bound,
        cpu::cpu_bound,
        cpu::busy_machine,
    ];
    // In a steady window the evidence and the samples cover different intervals.
    if cell.user_bytes() == 0 || cell.case.steady_window {
        return Vec::new();
    }
    let mut found: Vec<Finding> = RULES.iter().filter_map(|rule| rule(cell)).collect();
    // An array that keeps up with its stated load is idle between the requests, by choice.
    if cell.meets_load() == Some(true) {
        found.retain(|finding| !load::OF_FULL_LOAD.contains(&finding.name.as_str()));
        return found;
    }
    // A cell away from its bound has a finding above, or at least this one.
    found.extend(bound::missed(cell, &found));
    found
}

/// A finding; `evidence` by name.
fn finding(name: &str, text: String, evidence: &[(&str, f64)], command: Option<String>) -> Finding {
    // JSON has no number for the others: a record with one could not be read again.
    let finite = evidence.iter().filter(|(_, value)| value.is_finite());
    let evidence = finite.map(|(name, value)| (name.to_string(), *value)).collect();
    Finding { name: name.into(), text, evidence, command }
}

/// Time of all samples, seconds.
fn seconds(cell: &Cell) -> f64 {
    cell.measured.samples.iter().map(|sample: &Sample| sample.seconds).sum()
}

/// Mean busy share of the members that have one; `None` where none has.
fn mean_busy(cell: &Cell) -> Option<f64> {
    let busy: Vec<f64> = cell.measured.member_load.iter().filter_map(|load| load.busy).collect();
    (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64)
}

/// Sum over the members.
fn total(cell: &Cell, of: fn(&MemberTraffic) -> u64) -> u64 {
    cell.measured.per_member.iter().map(of).sum()
}

/// RAID 4, 5 and 6.
fn has_parity(cell: &Cell) -> bool {
    cell.md_level().is_some_and(Level::has_parity)
}

/// Members that a long sequential read keeps busy; `None` where that is not one number.
fn data_members(cell: &Cell) -> Option<u32> {
    if cell.case.array.is_some() {
        return None;
    }
    let disks = cell.case.disks;
    match cell.md_level()? {
        Level::Raid0 => Some(disks),
        Level::Raid4 | Level::Raid5 => disks.checked_sub(1),
        Level::Raid6 => disks.checked_sub(2),
        // Far copies are read like RAID 0; of near and offset ones, a stream reads one of each.
        Level::Raid10 => {
            let layout = raid10_layout(cell)?;
            let read_once = if layout.offset { layout.copies() } else { layout.near.into() };
            Some(disks.div_ceil(read_once as u32))
        }
        Level::Linear | Level::Raid1 => None,
    }
}

/// Its layout, if it is one of RAID 10.
fn raid10_layout(cell: &Cell) -> Option<Raid10Layout> {
    match cell.case.layout.as_ref()?.known()? {
        LayoutName::Raid10(layout) => Some(layout),
        _ => None,
    }
}

/// The data of one stripe, KiB: a chunk of each member but those that hold parity or further
/// copies; `None` where that is not one number.
fn stripe_kib(cell: &Cell) -> Option<u64> {
    Some(u64::from(data_members(cell)?) * cell.case.chunk_kib?)
}

/// `12`, `1.5`, `0.25`.
fn short(value: f64) -> String {
    spec::units::digits(value)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
