//! One configuration and one workload: the law's prediction with its interval, and the naive rule.
//!
//! Called from `predict` and `advise` of the command line and from the library `raidlab`.

use drive::Profile;

use crate::fitted::Fitted;
use crate::intervals::Class;
use crate::law::{
    Access, Array, Kernel, Machine, Prediction, Sensitivity, Sheet, Single, Source, WhyNot, Work,
    WriteBack, naive, predict, sensitivities,
};

/// The kernel of a machine where none is stated.
pub const CURRENT_KERNEL: Kernel = Kernel(6, 1, 0);

/// A machine, one of its disks, and how the workloads run.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The machine.
    pub machine: Machine,
    /// Rates of one disk.
    pub single: Single,
    /// The file system's write-back.
    pub write_back: WriteBack,
    /// Requests in flight of random workloads, per job.
    pub depth: f64,
    /// Number of jobs.
    pub jobs: f64,
    /// Bytes of the array that random requests reach, where that is not all of it.
    pub area_bytes: Option<f64>,
}

/// The prediction of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The workload.
    pub work: Work,
    /// Rate and ceilings, or why there are none.
    pub found: Result<Prediction, WhyNot>,
    /// The rates of 80 % of healthy machines, in the workload's unit.
    pub interval: Option<(f64, f64)>,
    /// The naive rule's rate.
    pub naive: Option<f64>,
    /// What would change the rate.
    pub changes: Vec<Sensitivity>,
}

impl Question {
    /// A machine of today with disks of this profile, ext4, 32 random requests in flight: what
    /// `raidlab predict` takes where nothing is stated.
    pub fn of_profile(profile: &Profile) -> Question {
        let depth = 32.0;
        let sheet = Sheet::of(profile, depth);
        let mut machine = Machine::new(sheet.media);
        machine.kernel = Some(CURRENT_KERNEL);
        machine.is_shingled = sheet.is_shingled;
        Question {
            machine,
            single: sheet.single,
            write_back: WriteBack::Extents,
            depth,
            jobs: 1.0,
            area_bytes: None,
        }
    }

    /// The prediction of a workload, without what would change it, which is most of the work.
    pub fn answer(&self, array: &Array, work: Work, fitted: &Fitted) -> Answer {
        let access = self.access(work);
        let found = predict(array, &self.machine, &access, &self.single, &fitted.constants);
        let class = Class::of(array, &self.machine, &access);
        let around = |found: Prediction| {
            fitted.intervals.around(class, found.value, self.worst_source(work), found.limit())
        };
        Answer {
            work,
            found,
            interval: found.ok().map(around),
            naive: naive(array, &access, &self.single),
            changes: Vec::new(),
        }
    }

    /// The prediction of a workload, with what would change it.
    pub fn answer_and_changes(&self, array: &Array, work: Work, fitted: &Fitted) -> Answer {
        let access = self.access(work);
        let (machine, single) = (&self.machine, &self.single);
        let changes = sensitivities(array, machine, &access, single, &fitted.constants);
        Answer { changes, ..self.answer(array, work, fitted) }
    }

    fn access(&self, work: Work) -> Access {
        Access {
            area_bytes: self.area_bytes,
            ..Access::of_jobs(work, self.write_back, self.jobs, self.depth)
        }
    }

    /// The least reliable of the figures that a workload needs of one disk.
    fn worst_source(&self, work: Work) -> Source {
        let needed: &[Work] = match work {
            Work::Rewrite | Work::Resync => &[Work::Read, Work::Write],
            Work::Check => &[Work::Read],
            _ => &[work],
        };
        let sources = needed.iter().filter_map(|work| Some(self.single.get(*work)?.source));
        sources.max().unwrap_or(Source::Assumed)
    }
}
