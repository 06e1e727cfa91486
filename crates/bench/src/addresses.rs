//! The order of the blocks of a workload, and the number of requests in flight. Sans-io: the same
//! workload drives any target.
//!
//! ```text
//! sequential   job 0 |----->          |  job 1 |----->         |    each wraps in its own part
//! random       every job anywhere, uniformly
//! mixed        each request reads or writes, drawn apart from the addresses; sequential:
//!              a job has a position of its reads and one of its writes, as fio's rw=rw
//!
//! on two cores | unit 0 | unit 1 | unit 2 | unit 3 |     each core's generator: the blocks that
//!               core 0   core 1   core 0   core 1        begin in its shard's units
//! ```
//! Invariant: a block with a write in flight is not accessed again before its completion, and no
//! write begins while a read of its block is in flight, so that the expected contents are always
//! defined.

use array::Sharding;
use md::Sector;
use spec::rng::SplitMix64;
use spec::workload::{Kind, Spec};

struct Job {
    first: u64,
    end: u64,
    /// The next place of a read, and of a write.
    next: [u64; 2],
    /// Whether the next request writes, once that is drawn: it stays so until the request begins,
    /// or the share would depend on which blocks are free.
    drawn: Option<bool>,
    under_way: usize,
}

/// A block to be read or written by a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the job.
    pub job: u32,
    /// Index of the block, from the start of the area.
    pub block: u64,
    /// Whether it is written.
    pub write: bool,
    /// The block's index in the generator's own share.
    place: u64,
}

/// The blocks of an area that belong to one generator. The shares of all shards are disjoint, and
/// together they are the area.
#[derive(Clone, Debug)]
pub struct Share {
    count: u64,
    places: Places,
}

#[derive(Clone, Debug)]
enum Places {
    /// All blocks.
    All,
    /// The units of a shard, each of `unit_blocks` whole blocks.
    Units { unit_blocks: u64, shard: u64, shards: u64 },
    /// A list of blocks, where block size and unit size are not multiples.
    Listed(Vec<u64>),
}

impl Share {
    /// All of an area of `blocks` blocks.
    pub fn all(blocks: u64) -> Share {
        Share { count: blocks, places: Places::All }
    }

    /// The blocks of `block_sectors` sectors that begin in the units of `shard`. A block that
    /// extends into another shard's unit is split by the driver.
    pub fn of_shard(blocks: u64, block_sectors: u64, sharding: Sharding, shard: u16) -> Share {
        let shards = u64::from(sharding.shards());
        if shards == 1 {
            return Share::all(blocks);
        }
        let owner = |block: &u64| sharding.shard_of(Sector(block * block_sectors));
        if !sharding.unit_sectors().is_multiple_of(block_sectors) {
            let own: Vec<u64> = (0..blocks).filter(|block| owner(block) == shard).collect();
            return Share { count: own.len() as u64, places: Places::Listed(own) };
        }
        let (unit_blocks, shard) = (sharding.unit_sectors() / block_sectors, u64::from(shard));
        let round = unit_blocks * shards;
        let rest = (blocks % round).saturating_sub(shard * unit_blocks).min(unit_blocks);
        let count = blocks / round * unit_blocks + rest;
        Share { count, places: Places::Units { unit_blocks, shard, shards } }
    }

    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    fn block(&self, place: u64) -> u64 {
        match &self.places {
            Places::All => place,
            Places::Units { unit_blocks, shard, shards } => {
                let unit = place / unit_blocks * shards + shard;
                unit * unit_blocks + place % unit_blocks
            }
            Places::Listed(own) => own[place as usize],
        }
    }
}

/// Generates the steps of a workload.
pub struct Workload {
    spec: Spec,
    share: Share,
    jobs: Vec<Job>,
    turn: usize,
    /// A bit for each block that is in flight; empty where nothing is written.
    busy: Vec<u64>,
    /// Of the addresses.
    random: SplitMix64,
    /// Of reading or writing.
    mix: SplitMix64,
}

impl Workload {
    /// A workload over these blocks.
    ///
    /// # Panics
    /// When there are fewer blocks than jobs.
    pub fn new(spec: Spec, share: Share, seed: u64) -> Workload {
        let blocks = share.count();
        let count = u64::from(spec.jobs.max(1));
        assert!(blocks >= count, "{blocks} blocks are too few for {count} jobs");
        let part = blocks / count;
        let jobs = (0..count).map(|job| Job {
            first: job * part,
            end: (job + 1) * part,
            next: [job * part; 2],
            drawn: None,
            under_way: 0,
        });
        Workload {
            spec,
            share,
            jobs: jobs.collect(),
            turn: 0,
            busy: vec![0; if spec.kind.writes() { blocks.div_ceil(64) as usize } else { 0 }],
            random: SplitMix64(seed),
            mix: SplitMix64(SplitMix64(!seed).draw()),
        }
    }

    /// The next block, or `None` while every job has its queue depth in flight.
    pub fn begin(&mut self) -> Option<Step> {
        for _ in 0..self.jobs.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.jobs.len();
            if self.jobs[at].under_way >= self.spec.window() {
                continue;
            }
            let write = match self.jobs[at].drawn {
                Some(write) => write,
                None => self.draw(),
            };
            self.jobs[at].drawn = Some(write);
            if let Some(place) = self.choose(at, write) {
                let job = &mut self.jobs[at];
                job.under_way += 1;
                job.drawn = None;
                self.set_busy(place, true);
                let block = self.share.block(place);
                return Some(Step { job: at as u32, block, write, place });
            }
        }
        None
    }

    /// Completes a step that `begin` returned.
    pub fn done(&mut self, step: Step) {
        let job = &mut self.jobs[step.job as usize];
        assert!(job.under_way > 0, "job {} ends more than it began", step.job);
        job.under_way -= 1;
        self.set_busy(step.place, false);
    }

    /// Whether a request writes.
    fn draw(&mut self) -> bool {
        match self.spec.mix() {
            Some(percent) => self.mix.below(100) >= percent.into(),
            None => self.spec.kind.writes(),
        }
    }

    /// A block of the own share: the order of each kind of workload.
    fn choose(&mut self, at: usize, write: bool) -> Option<u64> {
        match self.spec.kind {
            Kind::SeqRead | Kind::SeqWrite | Kind::SeqMixed => {
                let position = usize::from(write);
                let place = self.jobs[at].next[position];
                if self.is_busy(place) {
                    return None;
                }
                let job = &mut self.jobs[at];
                job.next[position] = if place + 1 == job.end { job.first } else { place + 1 };
                Some(place)
            }
            // In a small area most blocks may be in flight: give up after a few tries.
            Kind::RandRead | Kind::RandWrite | Kind::RandMixed | Kind::None => {
                (0..16).find_map(|_| {
                    let place = self.random.below(self.share.count());
                    (!self.is_busy(place)).then_some(place)
                })
            }
        }
    }

    fn is_busy(&self, place: u64) -> bool {
        self.busy.get((place / 64) as usize).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn set_busy(&mut self, place: u64, busy: bool) {
        if let Some(word) = self.busy.get_mut((place / 64) as usize) {
            let bit = 1 << (place % 64);
            *word = if busy { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests {
    use md::{Geometry, GeometrySpec, Layout, Level};
    use proptest::prelude::*;

    use super::*;

    fn spec(kind: Kind, depth: u32, jobs: u32) -> Spec {
        Spec {
            kind,
            block_bytes: 4096,
            depth,
            jobs,
            read_ahead_bytes: 0,
            read_percent: None,
            rate: None,
            background: None,
        }
    }

    #[test]
    fn sequential_jobs_wrap_in_their_own_parts() {
        let mut workload = Workload::new(spec(Kind::SeqRead, 1, 2), Share::all(8), 1);
        let mut seen = [Vec::new(), Vec::new()];
        for _ in 0..12 {
            let step = workload.begin().expect("at most one in flight");
            seen[step.job as usize].push(step.block);
            workload.done(step);
        }
        assert_eq!(seen[0], [0, 1, 2, 3, 0, 1]);
        assert_eq!(seen[1], [4, 5, 6, 7, 4, 5]);
    }

    #[test]
    fn no_block_is_written_twice_at_once() {
        for kind in [Kind::SeqWrite, Kind::RandWrite, Kind::SeqMixed, Kind::RandMixed] {
            let mut workload = Workload::new(spec(kind, 64, 1), Share::all(16), 1);
            let mut out = std::collections::HashSet::new();
            while let Some(step) = workload.begin() {
                assert!(out.insert(step.block), "{kind:?}: block {} is out twice", step.block);
            }
            // Mixed streams begin at one block, which only one of them has.
            assert!(out.len() > 8 || kind == Kind::SeqMixed, "{kind:?}");
        }
    }

    #[test]
    fn a_mixed_stream_has_a_position_of_its_reads_and_one_of_its_writes() {
        let mut workload = Workload::new(spec(Kind::SeqMixed, 1, 2), Share::all(2000), 1);
        let mut seen = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for _ in 0..1000 {
            let step = workload.begin().expect("at most one in flight");
            seen[step.job as usize][usize::from(step.write)].push(step.block);
            workload.done(step);
        }
        for (first, [reads, writes]) in [0, 1000].into_iter().zip(seen) {
            for blocks in [&reads, &writes] {
                assert!(blocks.iter().copied().eq(first..first + blocks.len() as u64));
            }
            assert!((300..400).contains(&reads.len()), "70 % of 500: {}", reads.len());
        }
    }

    #[test]
    fn the_share_of_reads_is_the_one_stated_and_the_same_seed_draws_the_same() {
        let steps = |kind, percent, seed, depth| {
            let spec = Spec { read_percent: percent, ..spec(kind, depth, 3) };
            let mut workload = Workload::new(spec, Share::all(300), seed);
            let mut out = std::collections::VecDeque::new();
            let mut steps = Vec::new();
            while steps.len() < 20_000 {
                while let Some(step) = workload.begin() {
                    steps.push((step.block, step.write));
                    out.push_back(step);
                }
                workload.done(out.pop_front().expect("some are in flight"));
            }
            steps
        };
        for kind in [Kind::SeqMixed, Kind::RandMixed] {
            for (percent, expected) in [(None, 0.7), (Some(1), 0.01), (Some(50), 0.5)] {
                // With 60 of 300 blocks in flight, many draws find their block busy.
                for depth in [1, 20] {
                    let steps = steps(kind, percent, 5, depth);
                    let reads = steps.iter().filter(|(_, write)| !write).count() as f64;
                    let share = reads / steps.len() as f64;
                    assert!((share - expected).abs() < 0.015, "{kind:?} {percent:?}: {share}");
                }
            }
            assert_eq!(steps(kind, None, 5, 4), steps(kind, None, 5, 4));
            assert_ne!(steps(kind, None, 5, 4), steps(kind, None, 6, 4));
        }
        // The addresses are those of a workload that only reads: they do not depend on the mix.
        let blocks = |kind| -> Vec<u64> {
            steps(kind, None, 5, 1).into_iter().map(|(block, _)| block).take(50).collect()
        };
        let (mixed, reads) = (blocks(Kind::RandMixed), blocks(Kind::RandRead));
        let same = mixed.iter().zip(&reads).take_while(|(one, other)| one == other).count();
        assert!(same > 10, "until the first block that is in flight: {same}");
    }

    #[test]
    fn read_ahead_widens_the_window_of_sequential_readers_only() {
        let ahead = |kind| Spec { read_ahead_bytes: 40_000, ..spec(kind, 2, 1) };
        assert_eq!(ahead(Kind::SeqRead).window(), 12);
        assert_eq!(ahead(Kind::RandRead).window(), 2);
        let mut workload = Workload::new(ahead(Kind::SeqRead), Share::all(100), 1);
        assert_eq!(std::iter::from_fn(|| workload.begin()).count(), 12);
    }

    #[test]
    fn random_blocks_reach_everywhere() {
        let mut workload = Workload::new(spec(Kind::RandRead, 1, 1), Share::all(100), 3);
        let mut seen = [false; 100];
        for _ in 0..2000 {
            let step = workload.begin().expect("at most one in flight");
            seen[step.block as usize] = true;
            workload.done(step);
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn the_shares_of_all_shards_are_disjoint_and_the_whole_area() {
        let geometry = Geometry::new(&GeometrySpec {
            level: Level::Raid5,
            layout: Layout::default_for(Level::Raid5),
            chunk_sectors: 128,
            member_sectors: vec![1 << 20; 6],
        });
        let geometry = geometry.expect("an array");
        for shards in [1, 2, 3] {
            let sharding = Sharding::new(&geometry, shards);
            // Blocks that fit the units of 4160 KiB, and some that do not.
            for block_sectors in [1, 8, 128, 640, 2048, 2560] {
                let blocks = 20 * sharding.unit_sectors() / block_sectors + 3;
                let mut owners = vec![None; blocks as usize];
                for shard in 0..shards {
                    let share = Share::of_shard(blocks, block_sectors, sharding, shard);
                    let mut last = None;
                    for block in (0..share.count()).map(|place| share.block(place)) {
                        assert!(last < Some(block), "a stream goes forward");
                        last = Some(block);
                        assert_eq!(owners[block as usize].replace(shard), None);
                        assert_eq!(sharding.shard_of(Sector(block * block_sectors)), shard);
                    }
                }
                assert!(owners.iter().all(Option::is_some), "{shards} shards, {block_sectors}");
            }
        }
    }

    proptest! {
        /// For any order of completions: windows are kept, a block with a write in flight is in
        /// flight once, and with nothing in flight there is always a next block.
        #[test]
        fn it_goes_on_whatever_happens(
            kind in proptest::sample::select(&Kind::ALL[..]),
            depth in 1u32..20,
            jobs in 1u32..6,
            blocks in 6u64..60,
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 1..200),
        ) {
            let spec = Spec { read_ahead_bytes: 5000, ..spec(kind, depth, jobs) };
            let mut workload = Workload::new(spec, Share::all(blocks), 1);
            let mut out: Vec<Step> = Vec::new();
            let mut next: Vec<[Option<u64>; 2]> = vec![[None; 2]; jobs as usize];
            let share = blocks / u64::from(jobs);
            for end in ends {
                while let Some(step) = workload.begin() {
                    prop_assert!(step.block < blocks && step.job < jobs);
                    let same = out.iter().filter(|other| other.block == step.block);
                    prop_assert!(same.into_iter().all(|other| !other.write && !step.write));
                    let allowed = if step.write { kind.writes() } else { kind.reads() };
                    prop_assert!(allowed);
                    if kind.is_sequential() {
                        let first = u64::from(step.job) * share;
                        let next = &mut next[step.job as usize][usize::from(step.write)];
                        let wanted = next.unwrap_or(first);
                        prop_assert_eq!(step.block, wanted);
                        let after = step.block + 1;
                        let after = if after == first + share { first } else { after };
                        *next = Some(after);
                    }
                    out.push(step);
                    let of_job = out.iter().filter(|other| other.job == step.job).count();
                    prop_assert!(of_job <= spec.window());
                }
                prop_assert!(!out.is_empty(), "stuck with nothing in flight");
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
        Workload::new(spec(Kind::SeqRead, 1, 3), Share::all(2), 1);
    }
}
