//! Expands a worker's acts into steps, one by one.
//!
//! Invariant: pure; the same acts, worker and pass give the same steps, except for what tickets and
//! the end of the phase, which are requested from outside, cut short. Called from `run`.

use std::ops::Range;

use spec::program::types::{Act, Count, NameOrder, Op, Order, Step, Transfer};
use spec::rng::SplitMix64;

/// A worker's interface to its phase.
pub trait Gate {
    /// Whether the phase continues. Once it does not, transfers and lists of names end; the steps
    /// after them (sync, close) are still run.
    fn going(&mut self) -> bool;

    /// Takes one of the phase's tickets, if there is one.
    fn ticket(&mut self) -> bool;
}

/// Iterator over the steps of a worker's acts.
pub struct Steps<'p> {
    acts: std::slice::Iter<'p, Act>,
    files: &'p [u64],
    seed: u64,
    now: Now<'p>,
}

enum Now<'p> {
    Between,
    Transfer(Blocks<'p>),
    Names { act: &'p Act, numbers: std::vec::IntoIter<u32> },
}

impl<'p> Steps<'p> {
    /// The steps of `acts`, over files of the given sizes. `worker` and `pass` make the random
    /// choices of workers, and of repetitions, their own; pass 0 chooses as the act's seed says.
    pub fn new(acts: &'p [Act], files: &'p [u64], worker: u32, pass: u32) -> Steps<'p> {
        let seed = u64::from(worker) << 32 | u64::from(pass);
        Steps { acts: acts.iter(), files, seed, now: Now::Between }
    }

    /// The next step.
    pub fn next(&mut self, gate: &mut dyn Gate) -> Option<Step> {
        loop {
            let step = match &mut self.now {
                Now::Between => None,
                Now::Transfer(blocks) => blocks.next(gate),
                Now::Names { act, numbers } if gate.going() => {
                    numbers.next().map(|number| match act {
                        Act::Names { set, what, .. } => {
                            Step::Name { set: *set, number, what: *what }
                        }
                        _ => unreachable!("only names are numbered"),
                    })
                }
                Now::Names { .. } => None,
            };
            if step.is_some() {
                return step;
            }
            self.now = Now::Between;
            let act = self.acts.as_slice().first()?;
            if matches!(act, Act::RemoveDirectory(_)) && !gate.going() {
                // Names were left in it.
                self.acts.next();
                continue;
            }
            if let Some(step) = self.begin(act) {
                return Some(step);
            }
        }
    }

    /// Begins the next act: gives its step, if it is only one.
    fn begin(&mut self, act: &'p Act) -> Option<Step> {
        self.acts.next();
        match act {
            Act::Open { file, how } => Some(Step::Open { file: *file, how: *how }),
            Act::Close { file } => Some(Step::Close { file: *file }),
            Act::Sync { file, data_only } => {
                Some(Step::Sync { file: *file, data_only: *data_only })
            }
            Act::Forget { file } => Some(Step::Forget { file: *file }),
            Act::Allocate { file } => Some(Step::Allocate { file: *file }),
            Act::Expect { file, access } => Some(Step::Expect { file: *file, access: *access }),
            Act::Bytes { file, bytes, how } => {
                Some(Step::Bytes { file: *file, bytes: *bytes, how: *how })
            }
            Act::Remove { file } => Some(Step::Remove { file: *file }),
            Act::SyncAll => Some(Step::SyncAll),
            Act::MakeDirectory(set) => Some(Step::MakeDirectory(*set)),
            Act::RemoveDirectory(set) => Some(Step::RemoveDirectory(*set)),
            Act::Names { set, what, order: NameOrder::Listed } => {
                Some(Step::ListedNames { set: *set, what: *what })
            }
            Act::Names { set, order, .. } => {
                let mut numbers: Vec<u32> = (0..set.count).collect();
                if let NameOrder::Shuffled(seed) = order {
                    shuffle(&mut numbers, &mut SplitMix64(seed ^ self.seed));
                }
                self.now = Now::Names { act, numbers: numbers.into_iter() };
                None
            }
            Act::Transfer(transfer) => {
                self.now = Now::Transfer(Blocks::new(transfer, self.files, self.seed));
                None
            }
        }
    }
}

/// Fisher and Yates.
fn shuffle(numbers: &mut [u32], random: &mut SplitMix64) {
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// The blocks of a transfer.
struct Blocks<'p> {
    transfer: &'p Transfer,
    files: &'p [u64],
    random: SplitMix64,
    blocks: u64,
    /// Blocks given out, and their units of [`Transfer::block`].
    given: u64,
    units: u64,
    /// Writes since the last sync, and the file to be synced next.
    unsynced: u64,
    sync: Option<u32>,
    /// Of `Order::Stride`, and of blocks of several sizes: the one to come; how often it began
    /// again.
    next: u64,
    wraps: u64,
    /// Of `Order::Shuffled`: the blocks; those of this pass that are given out come first.
    shuffled: Vec<u32>,
    /// Of reads and writes in order: the next of each.
    streams: [u64; 2],
    /// When the next pass begins, in units given out, and files to be forgotten before it.
    pass_end: u64,
    forget: Range<u32>,
    /// Where the last block was found: its file, and where that begins in the long one.
    file: u32,
    file_start: u64,
}

impl<'p> Blocks<'p> {
    fn new(transfer: &'p Transfer, files: &'p [u64], seed: u64) -> Blocks<'p> {
        let blocks = transfer.blocks();
        let random = SplitMix64(transfer.seed ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut shuffled = Vec::new();
        if transfer.order == Order::Shuffled {
            shuffled = (0..u32::try_from(blocks).unwrap_or(u32::MAX)).collect();
        }
        Blocks {
            transfer,
            files,
            random,
            blocks,
            given: 0,
            units: 0,
            unsynced: 0,
            sync: None,
            next: 0,
            wraps: 0,
            shuffled,
            streams: [0; 2],
            pass_end: blocks,
            forget: 0..0,
            file: transfer.files.start,
            file_start: 0,
        }
    }

    fn next(&mut self, gate: &mut dyn Gate) -> Option<Step> {
        if let Some(file) = self.sync.take() {
            return Some(Step::Sync { file, data_only: self.transfer.sync_data_only });
        }
        let more = match self.transfer.count {
            Count::Pass => self.units < self.blocks,
            Count::Blocks(blocks) => self.given < blocks,
            Count::Tickets | Count::Endless => true,
        };
        if !more || self.blocks == 0 || !gate.going() {
            return None;
        }
        if self.transfer.forgets && self.units >= self.pass_end {
            self.pass_end += self.blocks;
            self.forget = self.transfer.files.clone();
        }
        if let Some(file) = self.forget.next() {
            return Some(Step::Forget { file });
        }
        if self.transfer.count == Count::Tickets && !gate.ticket() {
            return None;
        }
        let (op, block, units) = match self.transfer.sizes[0].is_empty() {
            true => {
                let block = self.choose();
                let op = self.operation();
                (op, self.in_stream(op, block, 1), 1)
            }
            false => self.of_several_sizes(),
        };
        self.given += 1;
        self.units += units;
        let (file, at, len) = self.place(block, units);
        if op != Op::Read && self.transfer.sync_every > 0 {
            self.unsynced += 1;
            if self.unsynced == self.transfer.sync_every {
                self.unsynced = 0;
                self.sync = Some(file);
            }
        }
        Some(Step::Block { op, file, at, len })
    }

    fn choose(&mut self) -> u64 {
        let turn = self.given % self.blocks;
        match self.transfer.order {
            Order::Forward => turn,
            Order::Backward => self.blocks - 1 - turn,
            Order::InTurn(parts) => turn % parts * (self.blocks / parts) + turn / parts,
            Order::Same => 0,
            Order::Uniform => self.random.below(self.blocks),
            Order::Shuffled => {
                // Fisher and Yates, a step for each block: no pass begins with a pause. What the
                // last pass left is shuffled again.
                let pick = turn + self.random.below(self.blocks - turn);
                self.shuffled.swap(turn as usize, pick as usize);
                u64::from(self.shuffled[turn as usize])
            }
            Order::Stride(step) => {
                let block = self.next;
                self.next = block + step;
                // IOzone's rule; a file with no more records than a stride never leaves the first.
                if self.next >= self.blocks - 1 {
                    self.wraps += 1;
                    self.next = if self.blocks <= step { 0 } else { self.wraps % self.blocks };
                }
                block
            }
        }
    }

    fn operation(&mut self) -> Op {
        let percent = |random: &mut SplitMix64, share| random.below(100) < u64::from(share);
        match self.transfer.op {
            Op::RewriteEvery(every) if self.given.is_multiple_of(every) => Op::Rewrite,
            Op::RewriteEvery(_) => Op::Read,
            Op::RewritePercent(share) if percent(&mut self.random, share) => Op::Rewrite,
            Op::RewritePercent(_) => Op::Read,
            Op::ReadPercent(share) if percent(&mut self.random, share) => Op::Read,
            Op::ReadPercent(_) => Op::Write,
            op => op,
        }
    }

    /// An operation, the place of its block, and the size of that, in units of [`Transfer::block`].
    fn of_several_sizes(&mut self) -> (Op, u64, u64) {
        let op = self.operation();
        let sizes = &self.transfer.sizes[usize::from(op == Op::Write)];
        let shares = sizes.iter().map(|(_, share)| u64::from(*share)).sum();
        let mut drawn = self.random.below(shares);
        let drawn = sizes.iter().find(|(_, share)| {
            let found = drawn < u64::from(*share);
            drawn = drawn.saturating_sub(u64::from(*share));
            found
        });
        let units = drawn.map_or(1, |(size, _)| size / self.transfer.block);
        let place = match self.transfer.order {
            Order::Forward => self.in_stream(op, self.next, units),
            _ => self.random.below(self.blocks),
        };
        self.next = (self.next + units) % self.blocks;
        (op, place, units)
    }

    /// The block, or the next one of its kind where reads and writes are two streams.
    fn in_stream(&mut self, op: Op, block: u64, units: u64) -> u64 {
        let (Op::ReadPercent(_), Order::Forward) = (self.transfer.op, self.transfer.order) else {
            return block;
        };
        let next = &mut self.streams[usize::from(op == Op::Write)];
        let block = *next;
        *next = (block + units) % self.blocks;
        block
    }

    /// The file that a block of several units is in, where, and how long it is there.
    fn place(&mut self, block: u64, units: u64) -> (u32, u64, u64) {
        let at = self.transfer.span.start + block * self.transfer.block;
        if at < self.file_start {
            (self.file, self.file_start) = (self.transfer.files.start, 0);
        }
        while at >= self.file_start + self.files[self.file as usize] {
            self.file_start += self.files[self.file as usize];
            self.file += 1;
        }
        let end = (self.file_start + self.files[self.file as usize]).min(self.transfer.span.end);
        (self.file, at - self.file_start, (units * self.transfer.block).min(end - at))
    }
}

#[cfg(test)]
mod tests {
    use spec::program::names::NameSet;
    use spec::program::types::{How, NameOp};

    use super::*;

    /// Lets everything through, with some tickets, for some questions.
    struct Open {
        tickets: u32,
        questions: u32,
    }

    impl Gate for Open {
        fn going(&mut self) -> bool {
            self.questions = self.questions.saturating_sub(1);
            self.questions > 0
        }

        fn ticket(&mut self) -> bool {
            let had = self.tickets > 0;
            self.tickets = self.tickets.saturating_sub(1);
            had
        }
    }

    fn steps(acts: &[Act], files: &[u64], pass: u32) -> Vec<Step> {
        let mut steps = Steps::new(acts, files, 0, pass);
        let mut gate = Open { tickets: 10, questions: u32::MAX };
        std::iter::from_fn(|| steps.next(&mut gate)).collect()
    }

    fn transfer(op: Op, order: Order, blocks: u64) -> Transfer {
        Transfer { op, order, seed: 3, ..Transfer::forward(0..1, 0..blocks * 512, 512, op) }
    }

    fn order_of(transfer: Transfer) -> Vec<u64> {
        let files = [transfer.span.end];
        let places =
            steps(&[Act::Transfer(transfer)], &files, 0).into_iter().map(|step| match step {
                Step::Block { at, .. } => at / 512,
                other => panic!("{other:?}"),
            });
        places.collect()
    }

    #[test]
    fn orders_are_what_they_say() {
        let of = |order, blocks| order_of(transfer(Op::Read, order, blocks));
        assert_eq!(of(Order::Forward, 5), [0, 1, 2, 3, 4]);
        assert_eq!(of(Order::Backward, 5), [4, 3, 2, 1, 0]);
        assert_eq!(of(Order::Same, 3), [0, 0, 0]);
        assert_eq!(of(Order::InTurn(3), 6), [0, 2, 4, 1, 3, 5]);
        let mut shuffled = of(Order::Shuffled, 100);
        assert_ne!(shuffled, of(Order::Forward, 100));
        assert_eq!(shuffled, of(Order::Shuffled, 100));
        shuffled.sort_unstable();
        assert_eq!(shuffled, of(Order::Forward, 100));
        let uniform = of(Order::Uniform, 1000);
        let distinct: std::collections::BTreeSet<_> = uniform.iter().collect();
        // Drawn with repetition, 1 - 1/e of them are met.
        assert!((600..665).contains(&distinct.len()), "{}", distinct.len());
    }

    #[test]
    fn every_pass_meets_each_block_once_in_an_order_of_its_own() {
        let mut passes = transfer(Op::Read, Order::Shuffled, 50);
        passes.count = Count::Blocks(150);
        let places = order_of(passes);
        for pass in places.chunks(50) {
            let met: std::collections::BTreeSet<_> = pass.iter().collect();
            assert_eq!(met.len(), 50, "{pass:?}");
        }
        assert!(places[..50] != places[50..100] && places[50..100] != places[100..]);
    }

    #[test]
    fn between_passes_the_files_are_forgotten_and_not_after_the_last() {
        let of = |count, forgets| {
            let read = Transfer::forward(1..3, 0..4 * 512, 512, Op::Read);
            let read = Transfer { count, forgets, ..read };
            let all = steps(&[Act::Transfer(read)], &[9, 1024, 1024], 0);
            let blocks = all.into_iter().map(|step| match step {
                Step::Block { .. } => '.',
                Step::Forget { file } => char::from_digit(file, 10).expect("a digit"),
                other => panic!("{other:?}"),
            });
            blocks.collect::<String>()
        };
        assert_eq!(of(Count::Blocks(10), true), "....12....12..");
        assert_eq!(of(Count::Blocks(8), true), "....12....");
        assert_eq!(of(Count::Blocks(8), false), "........");
        assert_eq!(of(Count::Pass, true), "....");
    }

    #[test]
    fn reads_and_writes_in_order_are_two_streams() {
        let mut mixed = transfer(Op::ReadPercent(50), Order::Forward, 7);
        mixed.count = Count::Blocks(40);
        let all = steps(&[Act::Transfer(mixed)], &[7 * 512], 0);
        for kind in [Op::Read, Op::Write] {
            let places = all.iter().filter_map(|step| match step {
                Step::Block { op, at, .. } if *op == kind => Some(at / 512),
                _ => None,
            });
            let places: Vec<u64> = places.collect();
            assert!(places.len() > 7, "{places:?}");
            let in_order: Vec<u64> = (0..7).cycle().take(places.len()).collect();
            assert_eq!(places, in_order, "{kind:?}");
        }
    }

    #[test]
    fn blocks_of_several_sizes_have_their_shares() {
        let of = |order, count| {
            let mut mixed = transfer(Op::ReadPercent(50), order, 1 << 12);
            mixed.sizes = [vec![(512, 1), (1024, 3)], vec![(4096, 1)]];
            mixed.count = count;
            let all = steps(&[Act::Transfer(mixed)], &[512 << 12], 0);
            let blocks = all.into_iter().map(|step| match step {
                Step::Block { op, at, len, .. } => (op, at, len),
                other => panic!("{other:?}"),
            });
            blocks.collect::<Vec<(Op, u64, u64)>>()
        };
        let random = of(Order::Uniform, Count::Blocks(4000));
        let count = |op, len| random.iter().filter(|one| (one.0, one.2) == (op, len)).count();
        assert!((400..600).contains(&count(Op::Read, 512)), "{}", count(Op::Read, 512));
        assert!((1300..1700).contains(&count(Op::Read, 1024)), "{}", count(Op::Read, 1024));
        assert!((1800..2200).contains(&count(Op::Write, 4096)), "{}", count(Op::Write, 4096));
        // In order, each block begins where the last of its kind ended; a pass is the whole span.
        let in_order = of(Order::Forward, Count::Pass);
        for kind in [Op::Read, Op::Write] {
            let blocks: Vec<_> = in_order.iter().filter(|(op, ..)| *op == kind).collect();
            assert!(blocks.windows(2).all(|pair| pair[0].1 + pair[0].2 == pair[1].1));
        }
        let moved: u64 = in_order.iter().map(|(_, _, len)| len).sum();
        assert!((512 << 12..(512 << 12) + 4096).contains(&moved), "{moved}");
    }

    #[test]
    fn a_stride_wraps_as_iozones_does() {
        // 40 records: 0, 17, then 34; 51 is beyond, so it begins again at 1, and so on.
        let places = order_of(transfer(Op::Read, Order::Stride(17), 40));
        assert_eq!(places[..7], [0, 17, 34, 1, 18, 35, 2]);
        assert_eq!(places.len(), 40);
        // A step that would reach the last record wraps too: 0 + 17 reaches 18 - 1.
        let places = order_of(transfer(Op::Read, Order::Stride(17), 18));
        assert_eq!(places[..4], [0, 1, 2, 3]);
        // No more records than a stride: the first record, again and again.
        assert_eq!(order_of(transfer(Op::Read, Order::Stride(17), 17)), [0; 17]);
        assert_eq!(order_of(transfer(Op::Read, Order::Stride(17), 1)), [0]);
    }

    #[test]
    fn every_tenth_seek_is_a_rewrite_beginning_with_the_first() {
        let mut seeks = transfer(Op::RewriteEvery(10), Order::Uniform, 50);
        seeks.count = Count::Blocks(30);
        let ops = steps(&[Act::Transfer(seeks)], &[50 * 512], 0);
        let rewrites: Vec<usize> =
            (0..30).filter(|at| matches!(ops[*at], Step::Block { op: Op::Rewrite, .. })).collect();
        assert_eq!(rewrites, [0, 10, 20]);
        let mut tenth = transfer(Op::RewritePercent(10), Order::Uniform, 50);
        tenth.count = Count::Blocks(10_000);
        let ops = steps(&[Act::Transfer(tenth)], &[50 * 512], 0);
        let rewrites = ops.iter().filter(|s| matches!(s, Step::Block { op: Op::Rewrite, .. }));
        assert!((850..1150).contains(&rewrites.count()));
    }

    #[test]
    fn files_in_a_row_are_one_long_one() {
        let acts = [Act::Transfer(Transfer::forward(1..4, 512..2560, 1024, Op::Write))];
        let block = |file, at, len| Step::Block { op: Op::Write, file, at, len };
        // Files 1, 2, 3 hold 1024, 1024 and 4096 bytes; the third block ends with the span.
        let all = steps(&acts, &[9, 1024, 1024, 4096], 0);
        assert_eq!(all, [block(1, 512, 512), block(2, 512, 512)].as_slice());
        let acts = [Act::Transfer(Transfer::forward(0..2, 0..1500, 1000, Op::Read))];
        let all = steps(&acts, &[1000, 1000], 0);
        let block = |file, at, len| Step::Block { op: Op::Read, file, at, len };
        assert_eq!(all, [block(0, 0, 1000), block(1, 0, 500)].as_slice());
    }

    #[test]
    fn tickets_end_a_transfer_and_what_follows_is_done() {
        let mut seeks = transfer(Op::Read, Order::Uniform, 50);
        seeks.count = Count::Tickets;
        let acts = [
            Act::Open { file: 0, how: How::Update },
            Act::Transfer(seeks),
            Act::Sync { file: 0, data_only: false },
            Act::Close { file: 0 },
        ];
        assert_eq!(steps(&acts, &[50 * 512], 0).len(), 1 + 10 + 2);
        // The phase ends after six questions: the file is synced and closed all the same.
        let files = [50 * 512];
        let mut steps = Steps::new(&acts, &files, 0, 0);
        let mut gate = Open { tickets: 99, questions: 6 };
        let all: Vec<Step> = std::iter::from_fn(|| steps.next(&mut gate)).collect();
        assert_eq!(all.len(), 1 + 5 + 2);
        assert_eq!(all[7], Step::Close { file: 0 });
    }

    #[test]
    fn writes_are_synced_as_often_as_asked() {
        let mut writes = transfer(Op::Write, Order::Forward, 5);
        writes.sync_every = 2;
        let all = steps(&[Act::Transfer(writes)], &[5 * 512], 0);
        let syncs: Vec<bool> = all.iter().map(|step| matches!(step, Step::Sync { .. })).collect();
        assert_eq!(syncs, [false, false, true, false, false, true, false]);
        let mut data = transfer(Op::Write, Order::Forward, 1);
        (data.sync_every, data.sync_data_only) = (1, true);
        let all = steps(&[Act::Transfer(data)], &[512], 0);
        assert_eq!(all[1], Step::Sync { file: 0, data_only: true });
    }

    #[test]
    fn a_directory_in_which_names_are_left_is_not_removed() {
        let (number_first, seed) = (true, 1);
        let set =
            NameSet { directory: 0, count: 3, number_first, seed, min_bytes: 0, max_bytes: 0 };
        let (what, order) = (NameOp::Unlink, NameOrder::Numbered);
        let acts = [Act::Names { set, what, order }, Act::RemoveDirectory(set), Act::SyncAll];
        let all = |questions| {
            let mut steps = Steps::new(&acts, &[], 0, 0);
            let mut gate = Open { tickets: 0, questions };
            let all: Vec<Step> = std::iter::from_fn(|| steps.next(&mut gate)).collect();
            all.len()
        };
        assert_eq!((all(u32::MAX), all(3)), (3 + 2, 2 + 1));
    }

    #[test]
    fn workers_and_repetitions_choose_their_own_places() {
        let acts = [Act::Transfer(transfer(Op::Read, Order::Uniform, 1000))];
        let of = |worker, pass| {
            let mut steps = Steps::new(&acts, &[512_000], worker, pass);
            let mut gate = Open { tickets: 0, questions: 20 };
            std::iter::from_fn(|| steps.next(&mut gate)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(0, 0), of(1, 0));
        assert_ne!(of(0, 0), of(0, 1));
    }

    #[test]
    fn names_come_by_number_or_shuffled_each_once() {
        let set = NameSet {
            directory: 0,
            count: 50,
            number_first: true,
            seed: 1,
            min_bytes: 0,
            max_bytes: 0,
        };
        let numbers = |order| {
            let acts = [Act::Names { set, what: NameOp::Stat, order }];
            let all = steps(&acts, &[], 0).into_iter().map(|step| match step {
                Step::Name { number, what: NameOp::Stat, .. } => number,
                other => panic!("{other:?}"),
            });
            all.collect::<Vec<u32>>()
        };
        assert_eq!(numbers(NameOrder::Numbered), (0..50).collect::<Vec<_>>());
        let mut shuffled = numbers(NameOrder::Shuffled(1));
        assert_ne!(shuffled, numbers(NameOrder::Numbered));
        shuffled.sort_unstable();
        assert_eq!(shuffled, numbers(NameOrder::Numbered));
        let listed = [Act::Names { set, what: NameOp::Unlink, order: NameOrder::Listed }];
        assert_eq!(steps(&listed, &[], 0), [Step::ListedNames { set, what: NameOp::Unlink }]);
    }
}
