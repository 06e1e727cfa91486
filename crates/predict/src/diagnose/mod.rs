//! Why an array is slow: a measured figure, what ran beside it, and the figures of probes against
//! every ceiling.
//!
//! ```text
//!   facts in a file --document--\
//!   /proc, /sys, a server -------> Case --decide--> Diagnosis { cause | as expected | probe }
//!   probes --probe: Machine-----/        ^                               |
//!                                        '------- figures <-- probe <----'
//! ```
//!
//! Decision 0022 says how evidence is weighed, docs/models/diagnose.md what each cause looks like.
//!
//! Invariant: a diagnosis is a function of the case alone: figures, settings, probes; what a drive
//! is made of is no part of it. Nothing is opened here, and nothing written: a probe reads what a
//! [`crate::calibrate::Machine`] gives.

mod case;
mod cause;
mod ceilings;
mod decide;
mod document;
mod evidence;
mod known;
mod probe;

pub use case::{
    Case, CpuSample, IoLimit, Layer, MemberSample, NarrowLink, Network, Sample, State, Sync,
    Thread, Traffic, Wait,
};
pub use cause::Cause;
pub use ceilings::Line;
pub use decide::{Diagnosis, Expected, Verdict, diagnose};
pub use document::{
    Document, DocumentError, Measured, NETWORK_PAYLOAD, access_of, calibration_of, ignored_facts,
    rate_of, write_back,
};
pub use evidence::{SYNC_SPEED_MIN, Sign};
pub use probe::{Probe, ProbeFigures, RandomRates, Transfer, run};
