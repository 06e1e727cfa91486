//! What runs have seen, summed.

use crate::marks::Marks;

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Power cuts.
    pub crashes: u64,
    /// Starts of an array.
    pub generations: u64,
    /// Host requests.
    pub requests: u64,
    /// Operations of members, with those of the metadata.
    pub operations: u64,
    /// Faults that were given.
    pub faults: u64,
    /// Starts that were refused as they should be.
    pub refusals: u64,
    /// Runs that ended at a named exemption.
    pub exemptions: u64,
    /// Runs that ended after more members had been lost than the array could live without.
    pub destroyed: u64,
    /// States of the engine that were reached.
    pub marks: Marks,
    /// What happened, in lines, if it is to be kept.
    pub trace: Option<Vec<String>>,
}

impl Tally {
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        self.crashes += other.crashes;
        self.generations += other.generations;
        self.requests += other.requests;
        self.operations += other.operations;
        self.faults += other.faults;
        self.refusals += other.refusals;
        self.exemptions += other.exemptions;
        self.destroyed += other.destroyed;
        self.marks.add(&other.marks);
    }
}
