//! Workloads: which block comes next, and how many may be under way. Sans-io, so that the same
//! workload drives any target.
//!
//! ```text
//! sequential   job 0 |----->          |  job 1 |----->         |    each wraps in its own part
//! random       every job anywhere, uniformly
//! ```
//! Invariant: a block that is being written is not touched a second time before it is done, so that
//! there is never a doubt about what it must contain.

use std::str::FromStr;

use crate::stats::SplitMix64;

/// What is done to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Block after block is read.
    SeqRead,
    /// Block after block is written.
    SeqWrite,
    /// Blocks anywhere are read.
    RandRead,
    /// Blocks anywhere are written.
    RandWrite,
}

impl Kind {
    /// All of them, in the order of the wiki's table.
    pub const ALL: [Kind; 4] = [Kind::SeqRead, Kind::RandRead, Kind::SeqWrite, Kind::RandWrite];

    /// Its name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::SeqRead => "seq-read",
            Kind::SeqWrite => "seq-write",
            Kind::RandRead => "rand-read",
            Kind::RandWrite => "rand-write",
        }
    }

    /// Whether it changes data.
    pub fn is_write(self) -> bool {
        matches!(self, Kind::SeqWrite | Kind::RandWrite)
    }

    /// Whether addresses follow each other.
    pub fn is_sequential(self) -> bool {
        matches!(self, Kind::SeqRead | Kind::SeqWrite)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            format!("no workload '{text}'; there are {names}")
        })
    }
}

/// A workload, pinned down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// What is done.
    pub kind: Kind,
    /// In what unit, in bytes.
    pub block_bytes: u64,
    /// Blocks that each job keeps under way.
    pub depth: u32,
    /// How many jobs there are.
    pub jobs: u32,
    /// A sequential reader asks for this many bytes beyond what `depth` comes to, as a read-ahead
    /// would.
    pub read_ahead_bytes: u64,
}

impl Spec {
    /// Blocks that one job keeps under way, read-ahead included.
    pub fn window(&self) -> usize {
        let ahead = match self.kind {
            Kind::SeqRead => self.read_ahead_bytes.div_ceil(self.block_bytes),
            _ => 0,
        };
        self.depth as usize + ahead as usize
    }

    /// Blocks under way in all jobs together.
    pub fn in_flight(&self) -> usize {
        self.window() * self.jobs as usize
    }
}

struct Job {
    first: u64,
    end: u64,
    next: u64,
    under_way: usize,
}

/// A block to be read or written by a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose.
    pub job: u32,
    /// Which, counted in blocks from the start of the area.
    pub block: u64,
}

/// See the module.
pub struct Workload {
    spec: Spec,
    blocks: u64,
    jobs: Vec<Job>,
    turn: usize,
    busy: Vec<u64>,
    random: SplitMix64,
}

impl Workload {
    /// A workload over an area of `blocks` blocks.
    ///
    /// # Panics
    /// When there are fewer blocks than jobs.
    pub fn new(spec: Spec, blocks: u64, seed: u64) -> Workload {
        let count = u64::from(spec.jobs.max(1));
        assert!(blocks >= count, "{blocks} blocks are too few for {count} jobs");
        let share = blocks / count;
        let jobs = (0..count).map(|job| Job {
            first: job * share,
            end: (job + 1) * share,
            next: job * share,
            under_way: 0,
        });
        Workload {
            spec,
            blocks,
            jobs: jobs.collect(),
            turn: 0,
            busy: vec![0; if spec.kind.is_write() { blocks.div_ceil(64) as usize } else { 0 }],
            random: SplitMix64(seed),
        }
    }

    /// The next block, or `None` while every job has enough under way.
    pub fn begin(&mut self) -> Option<Step> {
        for _ in 0..self.jobs.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.jobs.len();
            if self.jobs[at].under_way < self.spec.window()
                && let Some(block) = self.choose(at)
            {
                self.jobs[at].under_way += 1;
                self.set_busy(block, true);
                return Some(Step { job: at as u32, block });
            }
        }
        None
    }

    /// A block that `begin` gave out has been read or written.
    pub fn done(&mut self, step: Step) {
        let job = &mut self.jobs[step.job as usize];
        assert!(job.under_way > 0, "job {} ends more than it began", step.job);
        job.under_way -= 1;
        self.set_busy(step.block, false);
    }

    fn choose(&mut self, at: usize) -> Option<u64> {
        if self.spec.kind.is_sequential() {
            let job = &self.jobs[at];
            let block = job.next;
            if self.is_busy(block) {
                return None;
            }
            let job = &mut self.jobs[at];
            job.next = if block + 1 == job.end { job.first } else { block + 1 };
            return Some(block);
        }
        // In a small area most blocks may be under way: give up after a few tries.
        (0..16).find_map(|_| {
            let block = self.random.below(self.blocks);
            (!self.is_busy(block)).then_some(block)
        })
    }

    fn is_busy(&self, block: u64) -> bool {
        self.busy.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    fn set_busy(&mut self, block: u64, busy: bool) {
        if let Some(word) = self.busy.get_mut((block / 64) as usize) {
            let bit = 1 << (block % 64);
            *word = if busy { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(kind: Kind, depth: u32, jobs: u32) -> Spec {
        Spec { kind, block_bytes: 4096, depth, jobs, read_ahead_bytes: 0 }
    }

    #[test]
    fn sequential_jobs_wrap_in_their_own_parts() {
        let mut workload = Workload::new(spec(Kind::SeqRead, 1, 2), 8, 1);
        let mut seen = [Vec::new(), Vec::new()];
        for _ in 0..12 {
            let step = workload.begin().expect("one under way at most");
            seen[step.job as usize].push(step.block);
            workload.done(step);
        }
        assert_eq!(seen[0], [0, 1, 2, 3, 0, 1]);
        assert_eq!(seen[1], [4, 5, 6, 7, 4, 5]);
    }

    #[test]
    fn no_block_is_written_twice_at_once() {
        for kind in [Kind::SeqWrite, Kind::RandWrite] {
            let mut workload = Workload::new(spec(kind, 64, 1), 16, 1);
            let mut out = std::collections::HashSet::new();
            while let Some(step) = workload.begin() {
                assert!(out.insert(step.block), "{kind:?}: block {} is out twice", step.block);
            }
            assert!(out.len() > 8, "{kind:?}");
        }
    }

    #[test]
    fn read_ahead_widens_the_window_of_sequential_readers_only() {
        let ahead = |kind| Spec { read_ahead_bytes: 40_000, ..spec(kind, 2, 1) };
        assert_eq!(ahead(Kind::SeqRead).window(), 12);
        assert_eq!(ahead(Kind::RandRead).window(), 2);
        let mut workload = Workload::new(ahead(Kind::SeqRead), 100, 1);
        assert_eq!(std::iter::from_fn(|| workload.begin()).count(), 12);
    }

    #[test]
    fn random_blocks_reach_everywhere() {
        let mut workload = Workload::new(spec(Kind::RandRead, 1, 1), 100, 3);
        let mut seen = [false; 100];
        for _ in 0..2000 {
            let step = workload.begin().expect("one under way at most");
            seen[step.block as usize] = true;
            workload.done(step);
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    proptest! {
        /// Whatever ends in whatever order: windows are kept, nothing is written twice at once, and
        /// with nothing under way there is always a next block.
        #[test]
        fn it_goes_on_whatever_happens(
            kind in proptest::sample::select(&Kind::ALL[..]),
            depth in 1u32..20,
            jobs in 1u32..6,
            blocks in 6u64..60,
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 1..200),
        ) {
            let spec = Spec { read_ahead_bytes: 5000, ..spec(kind, depth, jobs) };
            let mut workload = Workload::new(spec, blocks, 1);
            let mut out: Vec<Step> = Vec::new();
            let mut next: Vec<Option<u64>> = vec![None; jobs as usize];
            let share = blocks / u64::from(jobs);
            for end in ends {
                while let Some(step) = workload.begin() {
                    prop_assert!(step.block < blocks && step.job < jobs);
                    if kind.is_write() {
                        prop_assert!(out.iter().all(|other| other.block != step.block));
                    }
                    if kind.is_sequential() {
                        let first = u64::from(step.job) * share;
                        let wanted = next[step.job as usize].unwrap_or(first);
                        prop_assert_eq!(step.block, wanted);
                        let after = step.block + 1;
                        let after = if after == first + share { first } else { after };
                        next[step.job as usize] = Some(after);
                    }
                    out.push(step);
                    let of_job = out.iter().filter(|other| other.job == step.job).count();
                    prop_assert!(of_job <= spec.window());
                }
                prop_assert!(!out.is_empty(), "stuck with nothing under way");
                let step = out.swap_remove(end.index(out.len()));
                workload.done(step);
            }
            out.drain(..).for_each(|step| workload.done(step));
            prop_assert!(workload.begin().is_some());
        }
    }

    #[test]
    #[should_panic(expected = "too few for 3 jobs")]
    fn every_job_needs_a_block() {
        Workload::new(spec(Kind::SeqRead, 1, 3), 2, 1);
    }
}
