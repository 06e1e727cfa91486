//! Why the law gives no number.

use std::fmt;

use super::work::Work;

/// A reason; docs/models lists them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WhyNot {
    /// Linux 2.4 and before.
    OldKernel,
    /// Nothing is known of one disk for this workload.
    NoSingle(Work),
    /// Mirrors of unequal members with many readers.
    MixedMirror,
    /// Missing members.
    Degraded,
    /// A level without an equation: linear, nested parity.
    Level,
    /// Near copies, and far or offset ones of each.
    TwoKindsOfCopies,
    /// Not Linux md: hardware RAID, ZFS, btrfs.
    NotMd,
    /// It is not known whether the members rotate.
    Media,
    /// The row does not say how many members.
    Members,
    /// Fewer members than the level needs.
    TooFew,
    /// A workload without an equation.
    Workload,
    /// The figure of one disk is of another number of requests in flight than members have.
    OtherDepth(Work),
    /// Small writes of an array with an internal bitmap, whose area is not known.
    Bitmap,
    /// Writes of shingled disks that are not one stream.
    Shingled(Work),
    /// Limited by the CPU of the program: single characters, file creation.
    CpuBound,
    /// A figure of the page cache.
    InCache,
    /// A figure of one disk: an input.
    Input,
    /// No figure of throughput or rate, or not a measured one.
    NoFigure,
    /// A unit that is not known.
    Unit,
}

impl WhyNot {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            WhyNot::OldKernel => "kernel before 2.6",
            WhyNot::NoSingle(_) => "no single-disk value",
            WhyNot::MixedMirror => "mixed mirrors under load",
            WhyNot::Degraded => "more members are missing than the law has an equation for",
            WhyNot::Level => "level without an equation",
            WhyNot::TwoKindsOfCopies => "near copies together with far or offset ones",
            WhyNot::NotMd => "not Linux md",
            WhyNot::Media => "members of unknown kind: disks with platters, or flash",
            WhyNot::Members => "number of members unknown",
            WhyNot::TooFew => "too few members",
            WhyNot::Workload => "workload without an equation",
            WhyNot::OtherDepth(_) => "single-disk value of another depth",
            WhyNot::Bitmap => {
                "internal bitmap: what its updates cost depends on how many of its bits stay set"
            }
            WhyNot::Shingled(_) => "shingled disks",
            WhyNot::CpuBound => "limited by the program's CPU time",
            WhyNot::InCache => "figure of the page cache",
            WhyNot::Input => "single disk: an input",
            WhyNot::NoFigure => "no measured figure",
            WhyNot::Unit => "unknown unit",
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::NoSingle(work) | WhyNot::OtherDepth(work) => {
                write!(f, "{} for {}", self.name(), work.name())
            }
            WhyNot::Shingled(work) => {
                write!(f, "{}: {} depends on what was written before", self.name(), work.name())
            }
            _ => f.write_str(self.name()),
        }
    }
}
