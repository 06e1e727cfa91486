//! What one member does alone: the inputs of the law.

use super::why_not::WhyNot;
use super::work::Work;

/// Where a figure comes from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Measured on one member.
    Measured,
    /// Measured with another number of requests in flight; what the queue gains is usual.
    OtherDepth,
    /// The law, turned around, on a row of the same table that stands in for the single disk.
    StandIn,
    /// A data sheet or a drive profile.
    Sheet,
    /// Taken from another workload, or usual of the class.
    Assumed,
}

impl Source {
    /// `measured`, `other-depth`, `stand-in`, `sheet`, `assumed`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::OtherDepth => "other-depth",
            Source::StandIn => "stand-in",
            Source::Sheet => "sheet",
            Source::Assumed => "assumed",
        }
    }
}

/// A figure of one member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// MB/s or operations per second, by the workload.
    pub rate: f64,
    /// Where it comes from.
    pub source: Source,
}

/// The figures of one member, by workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Single {
    values: [Option<Value>; Work::ALL.len()],
    /// Seek plus half a revolution, s: for seeks and random reads without a figure.
    pub access_s: Option<f64>,
    /// Time of rewriting, of that of reading and writing; from a stand-in.
    pub rewrite_factor: Option<f64>,
    /// Time of a small read with none beside it, s; of flash, where it is known.
    pub read_s: Option<f64>,
    /// The same of a small write.
    pub write_s: Option<f64>,
    /// Random reads of platters: the exponent of the requests in flight, by figures of two depths.
    pub queue_gain: Option<f64>,
    /// Workloads whose only figure is of another number of requests in flight.
    of_other_depth: [bool; Work::ALL.len()],
}

impl Single {
    /// The figure of a workload.
    pub fn get(&self, work: Work) -> Option<Value> {
        self.values[work as usize]
    }

    /// Sets it, unless there is one from a better source. Rates that are no positive finite number
    /// are left out.
    pub fn offer(&mut self, work: Work, rate: f64, source: Source) {
        let better = self.get(work).is_none_or(|there| source < there.source);
        if better && rate.is_finite() && rate > 0.0 {
            self.values[work as usize] = Some(Value { rate, source });
        }
    }

    /// Notes that there is a figure of this workload, of another number of requests in flight,
    /// which says nothing of those that are requested for.
    pub fn has_other_depth(&mut self, work: Work) {
        self.of_other_depth[work as usize] = true;
    }

    /// The figure of a workload, or why there is none.
    ///
    /// # Errors
    /// It is not known, or is of another number of requests in flight.
    pub fn figure(&self, work: Work) -> Result<Value, WhyNot> {
        self.get(work).ok_or(match self.of_other_depth[work as usize] {
            true => WhyNot::OtherDepth(work),
            false => WhyNot::NoSingle(work),
        })
    }

    /// Sets it, whatever there was; `None` and rates that are no positive finite number leave
    /// nothing.
    pub fn replace(&mut self, work: Work, rate: Option<f64>, source: Source) {
        self.values[work as usize] = None;
        if let Some(rate) = rate {
            self.offer(work, rate, source);
        }
    }
}
