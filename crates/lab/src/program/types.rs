//! The words that programs are written in.
//!
//! Invariant: plain values that compare and print; the same program gives the same steps on
//! every run. Files are numbers, bytes are patterns by place and version ([`super::content`]).
//!
//! Made by `tools`, expanded by `steps`, carried out by `run`.

use std::ops::Range;

use super::names::NameSet;
use crate::stats::SplitMix64;

/// A benchmark: stages, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its variant: `bonnie++-2.00`.
    pub name: String,
    /// What tells it from others: as it was asked for, with all options, `bonnie++-2.00:n=16:c=2`;
    /// of a job file, its name and what it holds.
    pub asked: String,
    /// Largest size of each file, by number, in bytes.
    pub files: Vec<u64>,
    /// What is done.
    pub stages: Vec<Stage>,
    /// Files are opened past the page cache.
    pub direct: bool,
    /// How the file's bytes are asked for.
    pub calls: Calls,
    /// What the reader must know, besides the figures.
    pub notes: Vec<String>,
}

/// How the bytes of a file are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// `lseek` where needed, `read`, `write`: what most tools do.
    #[default]
    Plain,
    /// `pread`, `pwrite`.
    Positioned,
    /// Through a memory map.
    Mapped,
    /// Asynchronously, as many at once as the worker's depth says.
    Queued,
}

/// Phases that belong together, and are repeated together where one of them was too short.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// In order.
    pub phases: Vec<Phase>,
    /// May be run again until each phase has taken long enough to be timed.
    /// [`Phase::changes_nothing`]: by itself; the others all together.
    pub repeatable: bool,
}

/// What is timed as one: all workers between one barrier and the last end.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name: `put-block`.
    pub name: String,
    /// The kind of access, as cells name it: `seq-write`, `rand-read`, `create`.
    pub workload: &'static str,
    /// Who does it.
    pub workers: Vec<Worker>,
    /// What the workers share out among them, where a [`Count::Tickets`] asks for it.
    pub tickets: u64,
    /// When it ends.
    pub end: End,
    /// Nobody does anything for this long before it, in milliseconds.
    pub pause_ms: u64,
    /// Whether it is measured; otherwise it only prepares what the next ones need.
    pub measured: bool,
    /// What its figure is read off.
    pub read_off: ReadOff,
    /// Its workers are processes in the original: where the ground allows it they share no
    /// descriptors, so that calls cost what they cost there.
    pub processes: bool,
}

/// When a phase ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// When all workers have done all.
    #[default]
    All,
    /// When the first worker has; what the others have done by then counts. What they have to
    /// write has an end, they write it all the same, outside the clock: later phases read it.
    First,
    /// After this many milliseconds, or when all workers have done all.
    Time(u64),
}

/// Where a phase's figure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOff {
    /// All bytes over all of its time.
    #[default]
    Whole,
    /// What the members moved in each interval in which all workers were at work.
    SteadyWindow,
}

/// One thread of a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worker {
    /// Before the clock starts.
    pub before: Vec<Act>,
    /// While it runs.
    pub acts: Vec<Act>,
    /// After it has stopped.
    pub after: Vec<Act>,
    /// Requests that it keeps under way; 1 unless calls are [`Calls::Queued`].
    pub depth: u32,
    /// It ends after this many milliseconds, whatever the others of its phase do.
    pub ends_ms: Option<u64>,
}

impl Worker {
    /// One that keeps one request under way.
    pub fn new(before: Vec<Act>, acts: Vec<Act>, after: Vec<Act>) -> Worker {
        Worker { before, acts, after, depth: 1, ends_ms: None }
    }

    /// One that fills a new file and syncs it, for phases that read what must be there.
    pub fn filler(file: u32, bytes: u64) -> Worker {
        const BLOCK: u64 = 1 << 20;
        let stream = Transfer::forward(file..file + 1, 0..bytes, BLOCK, Op::Write);
        Worker::new(
            vec![Act::Open { file, how: How::Create }],
            vec![Act::Transfer(stream), Act::Sync { file, data_only: false }],
            vec![Act::Close { file }],
        )
    }
}

/// Something that a worker does, perhaps in very many steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Opens a file.
    Open {
        /// Its number.
        file: u32,
        /// How.
        how: How,
    },
    /// Closes it.
    Close {
        /// Its number.
        file: u32,
    },
    /// Makes durable what was written.
    Sync {
        /// The file's number.
        file: u32,
        /// `fdatasync` instead of `fsync`.
        data_only: bool,
    },
    /// Has the page cache forget what it holds of an open file and is already on disk.
    Forget {
        /// The file's number.
        file: u32,
    },
    /// Gives an open file its whole size, with space on the store and nothing written there.
    Allocate {
        /// The file's number.
        file: u32,
    },
    /// Tells the kernel how an open file will be read.
    Expect {
        /// The file's number.
        file: u32,
        /// How.
        access: Access,
    },
    /// Moves blocks.
    Transfer(Transfer),
    /// Moves bytes one by one, from the start of a file.
    Bytes {
        /// Its number.
        file: u32,
        /// How many.
        bytes: u64,
        /// How.
        how: ByByte,
    },
    /// Removes a file.
    Remove {
        /// Its number.
        file: u32,
    },
    /// Makes everything durable that the system holds back: `sync`.
    SyncAll,
    /// Makes the directory of a set of names.
    MakeDirectory(NameSet),
    /// Removes it; not where its names were left because the phase had ended.
    RemoveDirectory(NameSet),
    /// Does the same to all names of a set.
    Names {
        /// Which.
        set: NameSet,
        /// What.
        what: NameOp,
        /// In which order.
        order: NameOrder,
    },
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// New: what was there under this number is unlinked first.
    Create,
    /// What is there, or new, keeping what is in it.
    Keep,
    /// What is there, emptied.
    Truncate,
    /// What is there, to read and to write.
    Update,
    /// What is there, to read.
    Read,
}

/// How a file will be read, which the kernel's read-ahead goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Here and there: nothing is read ahead.
    Random,
    /// One block after the other: more than usual is.
    Sequential,
}

/// How single bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByByte {
    /// Into a buffer that is written when it is full, as `putc` does.
    Put,
    /// Out of a buffer, as `getc` does.
    Get,
    /// A `write` each.
    Write,
    /// A `read` each.
    Read,
}

impl ByByte {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, ByByte::Put | ByByte::Write)
    }
}

/// What is done to names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOp {
    /// A new file, with the bytes that the set gives it.
    Create,
    /// `stat`; files with bytes are read, too.
    Stat,
    /// Unlinked.
    Unlink,
}

/// In which order it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOrder {
    /// By number.
    Numbered,
    /// As the directory lists them.
    Listed,
    /// Shuffled, by this seed.
    Shuffled(u64),
}

/// A run of blocks over one or several files, which count as one long one.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Numbers of the files.
    pub files: Range<u32>,
    /// The part of them, in bytes.
    pub span: Range<u64>,
    /// Bytes of a block.
    pub block: u64,
    /// What is done to each.
    pub op: Op,
    /// In which order.
    pub order: Order,
    /// How many.
    pub count: Count,
    /// Makes the random choices.
    pub seed: u64,
    /// `fsync` after every so many writes; 0: never.
    pub sync_every: u64,
    /// Between two passes over the span, the page cache forgets its files ([`Act::Forget`]).
    pub forgets: bool,
}

impl Transfer {
    /// Every block of the span once, in order.
    pub fn forward(files: Range<u32>, span: Range<u64>, block: u64, op: Op) -> Transfer {
        let (order, count) = (Order::Forward, Count::Pass);
        Transfer { files, span, block, op, order, count, seed: 0, sync_every: 0, forgets: false }
    }

    /// Whole blocks in the span; of a stream, the last one may be shorter.
    pub fn blocks(&self) -> u64 {
        let bytes = self.span.end - self.span.start;
        match self.order {
            Order::Forward => bytes.div_ceil(self.block),
            _ => bytes / self.block,
        }
    }
}

/// What is done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Written.
    Write,
    /// Read.
    Read,
    /// Read, changed in one word, written back to its place.
    Rewrite,
    /// Read; every so many-th of the worker's, beginning with its first, is rewritten.
    RewriteEvery(u64),
    /// Read; rewritten with this probability, in percent.
    RewritePercent(u32),
    /// Read with this probability, in percent, written otherwise. One after the other, reads and
    /// writes are two streams, each with a place of its own.
    ReadPercent(u32),
}

impl Op {
    /// Whether it may write.
    pub fn writes(self) -> bool {
        !matches!(self, Op::Read | Op::RewritePercent(0) | Op::ReadPercent(100))
    }
}

/// Which block comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Forward,
    /// From the last one down.
    Backward,
    /// IOzone's: so many blocks on; where the next step would reach the last block, it begins
    /// again, one block further.
    Stride(u64),
    /// Every block once, shuffled; in another order on each pass.
    Shuffled,
    /// Any, again and again.
    Uniform,
    /// The first, again and again.
    Same,
}

/// How many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As many as the span has.
    Pass,
    /// This many; an order that is through begins again.
    Blocks(u64),
    /// As many as the workers of the phase can take from its tickets.
    Tickets,
    /// Until the phase ends.
    Endless,
}

/// One thing to do. What takes very many equal calls is one step, whose loop is the ground's.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// See [`Act::Open`].
    Open {
        /// File.
        file: u32,
        /// How.
        how: How,
    },
    /// See [`Act::Close`].
    Close {
        /// File.
        file: u32,
    },
    /// See [`Act::Sync`].
    Sync {
        /// File.
        file: u32,
        /// Only its data.
        data_only: bool,
    },
    /// See [`Act::Forget`].
    Forget {
        /// File.
        file: u32,
    },
    /// See [`Act::Allocate`].
    Allocate {
        /// File.
        file: u32,
    },
    /// See [`Act::Expect`].
    Expect {
        /// File.
        file: u32,
        /// How it will be read.
        access: Access,
    },
    /// A block.
    Block {
        /// What is done: one of [`Op::Write`], [`Op::Read`], [`Op::Rewrite`].
        op: Op,
        /// File.
        file: u32,
        /// First byte in it.
        at: u64,
        /// How many.
        len: u64,
    },
    /// See [`Act::Bytes`].
    Bytes {
        /// File.
        file: u32,
        /// How many.
        bytes: u64,
        /// How.
        how: ByByte,
    },
    /// See [`Act::Remove`].
    Remove {
        /// File.
        file: u32,
    },
    /// See [`Act::SyncAll`].
    SyncAll,
    /// See [`Act::MakeDirectory`].
    MakeDirectory(NameSet),
    /// See [`Act::RemoveDirectory`].
    RemoveDirectory(NameSet),
    /// One name.
    Name {
        /// Its set.
        set: NameSet,
        /// Its number in it.
        number: u32,
        /// What.
        what: NameOp,
    },
    /// All names, as the directory lists them.
    ListedNames {
        /// The set.
        set: NameSet,
        /// What.
        what: NameOp,
    },
}

impl Phase {
    /// A measured phase that ends when all have done all.
    pub fn new(name: &str, workload: &'static str, workers: Vec<Worker>) -> Phase {
        Phase {
            name: name.into(),
            workload,
            workers,
            tickets: 0,
            end: End::All,
            pause_ms: 0,
            measured: true,
            read_off: ReadOff::Whole,
            processes: false,
        }
    }

    /// The same, not measured.
    pub fn preparing(name: &str, workers: Vec<Worker>) -> Phase {
        Phase { measured: false, ..Phase::new(name, "prepare", workers) }
    }

    /// All acts of all workers.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        self.workers
            .iter()
            .flat_map(|worker| worker.before.iter().chain(&worker.acts).chain(&worker.after))
    }

    /// What the workers transfer while the clock runs.
    pub fn transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.workers.iter().flat_map(|worker| &worker.acts).filter_map(|act| match act {
            Act::Transfer(transfer) => Some(transfer),
            _ => None,
        })
    }

    /// Files that lose what they hold before or in this phase.
    pub fn empties(&self) -> impl Iterator<Item = u32> {
        self.acts().filter_map(|act| match act {
            Act::Open { file, how: How::Create | How::Truncate } | Act::Remove { file } => {
                Some(*file)
            }
            _ => None,
        })
    }

    /// Whether all is afterwards as it was before: then it may be repeated by itself.
    pub fn changes_nothing(&self) -> bool {
        let looks = |act: &Act| matches!(act, Act::Names { what: NameOp::Stat, .. });
        self.acts().next().is_some() && self.acts().all(looks)
    }

    /// Whether it changes the contents of files.
    pub fn writes(&self) -> bool {
        self.acts().any(|act| match act {
            Act::Transfer(transfer) => transfer.op.writes(),
            Act::Bytes { how, .. } => how.writes(),
            _ => false,
        })
    }
}

impl Stage {
    /// One phase that may be repeated.
    pub fn of(phase: Phase) -> Stage {
        Stage { phases: vec![phase], repeatable: true }
    }

    /// One phase that is done once.
    pub fn once(phase: Phase) -> Stage {
        Stage { phases: vec![phase], repeatable: false }
    }
}

impl Program {
    /// A program without stages.
    pub fn new(name: &str, asked: String, files: Vec<u64>) -> Program {
        Program {
            name: name.into(),
            asked,
            files,
            stages: Vec::new(),
            direct: false,
            calls: Calls::Plain,
            notes: Vec::new(),
        }
    }

    /// Makes all random choices those of this seed.
    pub fn draw_anew(&mut self, seed: u64) {
        let drawn = SplitMix64(seed).draw();
        let phases = self.stages.iter_mut().flat_map(|stage| &mut stage.phases);
        for worker in phases.flat_map(|phase| &mut phase.workers) {
            let acts = worker.before.iter_mut().chain(&mut worker.acts).chain(&mut worker.after);
            for act in acts {
                if let Act::Transfer(transfer) = act {
                    transfer.seed ^= drawn;
                }
            }
        }
    }

    /// All phases, in order.
    pub fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.stages.iter().flat_map(|stage| &stage.phases)
    }

    /// All files together, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().sum()
    }

    /// The largest unit of 256 to 4096 bytes that all its blocks and files are multiples of: what a
    /// version is kept for.
    ///
    /// # Errors
    /// Names the phase with a block that is no multiple of 256 bytes.
    pub fn unit_bytes(&self) -> Result<u64, String> {
        let mut unit = 4096;
        for phase in self.phases() {
            for transfer in phase.acts().filter_map(|act| match act {
                Act::Transfer(transfer) => Some(transfer),
                _ => None,
            }) {
                let numbers = [transfer.block, transfer.span.start, transfer.span.end];
                while numbers.iter().any(|number| number % unit != 0) {
                    unit /= 2;
                }
                if unit < 256 {
                    return Err(format!(
                        "{}, {}: blocks and sizes must be multiples of 256 bytes",
                        self.name, phase.name
                    ));
                }
            }
        }
        while self.files.iter().any(|bytes| bytes % unit != 0) {
            unit /= 2;
        }
        match unit {
            0..256 => Err(format!("{}: sizes must be multiples of 256 bytes", self.name)),
            _ => Ok(unit),
        }
    }
}
