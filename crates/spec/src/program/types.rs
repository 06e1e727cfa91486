//! The types that programs consist of.
//!
//! Invariant: plain values that compare and print; the same program gives the same steps on
//! every run. Files are numbers, bytes are patterns by place and version.
//!
//! Created by `tools`, expanded by `steps`, run by `run`.

use std::ops::Range;

use super::error::ProgramError;
use super::names::NameSet;
use crate::rng::SplitMix64;
use crate::workload::AccessKind;

/// A benchmark: stages, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its variant: `bonnie++-2.00`.
    pub name: String,
    /// Its identity: the specification with all options, `bonnie++-2.00:n=16:c=2`; of a job file,
    /// its name and a hash of its contents.
    pub asked: String,
    /// Largest size of each file, by number, in bytes.
    pub files: Vec<u64>,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// Files are opened with O_DIRECT.
    pub direct: bool,
    /// System calls that read and write files.
    pub calls: Calls,
    /// Notes for the reader of the figures.
    pub notes: Vec<String>,
}

/// System calls that read and write files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// `lseek` where needed, `read`, `write`, as in most tools.
    #[default]
    Plain,
    /// `pread`, `pwrite`.
    Positioned,
    /// Through a memory map.
    Mapped,
    /// Asynchronous, with the worker's queue depth.
    Queued,
}

/// Phases that are repeated together if one of them was too short.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// May be repeated until each phase has taken long enough to be timed. Phases with
    /// [`Phase::changes_nothing`] are repeated alone, the others all together.
    pub repeatable: bool,
}

/// A unit of timing: all workers from one barrier to the end of the last worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name: `put-block`.
    pub name: String,
    /// The kind of access.
    pub workload: AccessKind,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Number of operations that all workers with [`Count::Tickets`] share.
    pub tickets: u64,
    /// Its end condition.
    pub end: End,
    /// Idle time before the phase, in milliseconds.
    pub pause_ms: u64,
    /// Whether it is measured; otherwise it only prepares what the next ones need.
    pub measured: bool,
    /// The source of its figure.
    pub read_off: ReadOff,
    /// Its workers are processes in the original tool: where the backend allows it they share no
    /// descriptor table, so that system calls have the same cost.
    pub processes: bool,
}

/// When a phase ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// When all workers are finished.
    #[default]
    All,
    /// When the first worker is finished; the operations of the others up to then count. If their
    /// writes are finite, they complete them outside the timed part: later phases read the data.
    First,
    /// After this many milliseconds, or when all workers are finished.
    Time(u64),
}

/// The source of a phase's figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOff {
    /// All bytes over all of its time.
    #[default]
    Whole,
    /// Bytes of the members in each interval in which all workers were active.
    SteadyWindow,
}

/// One thread of a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worker {
    /// Acts before the timed part.
    pub before: Vec<Act>,
    /// Acts in the timed part.
    pub acts: Vec<Act>,
    /// Acts after the timed part.
    pub after: Vec<Act>,
    /// Queue depth; 1 unless calls are [`Calls::Queued`].
    pub depth: u32,
    /// It ends after this many milliseconds, independently of the other workers of its phase.
    pub ends_ms: Option<u64>,
}

impl Worker {
    /// A worker with queue depth 1.
    pub fn new(before: Vec<Act>, acts: Vec<Act>, after: Vec<Act>) -> Worker {
        Worker { before, acts, after, depth: 1, ends_ms: None }
    }

    /// A worker that fills a new file and syncs it, for phases that read it.
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

/// An act of a worker, of one or many steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Opens a file.
    Open {
        /// Its number.
        file: u32,
        /// Mode of opening.
        how: How,
    },
    /// Closes a file.
    Close {
        /// Its number.
        file: u32,
    },
    /// Syncs a file.
    Sync {
        /// The file's number.
        file: u32,
        /// `fdatasync` instead of `fsync`.
        data_only: bool,
    },
    /// Drops the clean pages of an open file from the page cache.
    Forget {
        /// The file's number.
        file: u32,
    },
    /// Allocates the whole size of an open file, without writing (`fallocate`).
    Allocate {
        /// The file's number.
        file: u32,
    },
    /// Advises the kernel of the access pattern of an open file (`posix_fadvise`).
    Expect {
        /// The file's number.
        file: u32,
        /// The access pattern.
        access: Access,
    },
    /// Moves blocks.
    Transfer(Transfer),
    /// Moves bytes one by one, from the start of a file.
    Bytes {
        /// Its number.
        file: u32,
        /// Number of bytes.
        bytes: u64,
        /// Direction and buffering.
        how: ByByte,
    },
    /// Removes a file.
    Remove {
        /// Its number.
        file: u32,
    },
    /// Syncs all file systems: `sync`.
    SyncAll,
    /// Creates the directory of a set of names.
    MakeDirectory(NameSet),
    /// Removes that directory, unless names are left in it because the phase had ended.
    RemoveDirectory(NameSet),
    /// Applies one operation to all names of a set.
    Names {
        /// The set of names.
        set: NameSet,
        /// The operation.
        what: NameOp,
        /// The order of the names.
        order: NameOrder,
    },
}

/// Mode of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Creates a new file; an old file of this number is unlinked first.
    Create,
    /// Opens or creates a file, keeping its contents.
    Keep,
    /// Opens and truncates an existing file.
    Truncate,
    /// Opens an existing file for reading and writing.
    Update,
    /// Opens an existing file for reading.
    Read,
}

/// Access pattern of a file, for the kernel's read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Random: no read-ahead.
    Random,
    /// Sequential: more read-ahead than by default.
    Sequential,
}

/// Direction and buffering of single bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByByte {
    /// Into a buffer that is written when it is full, as `putc` does.
    Put,
    /// Out of a buffer, as `getc` does.
    Get,
    /// One `write` per byte.
    Write,
    /// One `read` per byte.
    Read,
}

impl ByByte {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, ByByte::Put | ByByte::Write)
    }
}

/// An operation on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOp {
    /// Creates a file of the size given by the set.
    Create,
    /// `stat`; files with bytes are read, too.
    Stat,
    /// Unlinked.
    Unlink,
}

/// The order of operations on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOrder {
    /// By number.
    Numbered,
    /// As the directory lists them.
    Listed,
    /// Shuffled, by this seed.
    Shuffled(u64),
}

/// A transfer of blocks over one or several files, which are treated as one concatenated file.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Numbers of the files.
    pub files: Range<u32>,
    /// The part of them, in bytes.
    pub span: Range<u64>,
    /// Bytes of a block; where there are several sizes, what all are multiples of.
    pub block: u64,
    /// Sizes of the blocks that are read and of those that are written, each with its share; empty:
    /// all have `block`. Only forward and uniformly random.
    pub sizes: [Vec<(u64, u32)>; 2],
    /// Operation on each block.
    pub op: Op,
    /// Order of the blocks.
    pub order: Order,
    /// Number of blocks.
    pub count: Count,
    /// Seed of the random choices.
    pub seed: u64,
    /// Number of writes between two calls of `fsync`; 0: never.
    pub sync_every: u64,
    /// They are calls of `fdatasync`.
    pub sync_data_only: bool,
    /// Drops its files from the page cache between two passes over the span ([`Act::Forget`]).
    pub forgets: bool,
}

impl Transfer {
    /// Every block of the span once, in order.
    pub fn forward(files: Range<u32>, span: Range<u64>, block: u64, op: Op) -> Transfer {
        Transfer {
            files,
            span,
            block,
            sizes: Default::default(),
            op,
            order: Order::Forward,
            count: Count::Pass,
            seed: 0,
            sync_every: 0,
            sync_data_only: false,
            forgets: false,
        }
    }

    /// Whole units of `block` in the span; of a stream, the last one may be shorter.
    pub fn blocks(&self) -> u64 {
        let bytes = self.span.end - self.span.start;
        match self.order {
            Order::Forward => bytes.div_ceil(self.block),
            _ => bytes / self.block,
        }
    }

    /// Bytes of its longest block.
    pub fn longest(&self) -> u64 {
        let sizes = self.sizes.iter().flatten().map(|(size, _)| *size);
        sizes.fold(self.block, u64::max)
    }
}

/// Operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Written.
    Write,
    /// Read.
    Read,
    /// Read, changed in one word, written back to its place.
    Rewrite,
    /// Read; every n-th block of the worker, beginning with its first, is rewritten.
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

/// Order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Forward,
    /// From the last one down.
    Backward,
    /// IOzone's stride in blocks; if the next step would reach the last block, it starts over, one
    /// block further.
    Stride(u64),
    /// One after the other, in turn of each of N equal parts of the span.
    InTurn(u64),
    /// Every block once, shuffled; in another order on each pass.
    Shuffled,
    /// Uniformly random, with repetition.
    Uniform,
    /// Always the first block.
    Same,
}

/// Number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As many as the span has.
    Pass,
    /// This many; the order starts over after a pass.
    Blocks(u64),
    /// Until the tickets of the phase, shared by all its workers, are used up.
    Tickets,
    /// Until the phase ends.
    Endless,
}

/// One step. Very many equal calls are one step, whose loop is in the backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// See [`Act::Open`].
    Open {
        /// File.
        file: u32,
        /// Mode of opening.
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
        /// Operation: one of [`Op::Write`], [`Op::Read`], [`Op::Rewrite`].
        op: Op,
        /// File.
        file: u32,
        /// First byte in it.
        at: u64,
        /// Length, bytes.
        len: u64,
    },
    /// See [`Act::Bytes`].
    Bytes {
        /// File.
        file: u32,
        /// Number of bytes.
        bytes: u64,
        /// Direction and buffering.
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
        /// The operation.
        what: NameOp,
    },
    /// All names, as the directory lists them.
    ListedNames {
        /// The set.
        set: NameSet,
        /// The operation.
        what: NameOp,
    },
}

impl Phase {
    /// A measured phase that ends when all workers are finished.
    pub fn new(name: &str, workload: AccessKind, workers: Vec<Worker>) -> Phase {
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

    /// A phase that is not measured.
    pub fn preparing(name: &str, workers: Vec<Worker>) -> Phase {
        Phase { measured: false, ..Phase::new(name, AccessKind::Prepare, workers) }
    }

    /// All acts of all workers.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        self.workers
            .iter()
            .flat_map(|worker| worker.before.iter().chain(&worker.acts).chain(&worker.after))
    }

    /// Transfers of all workers in the timed part.
    pub fn transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.workers.iter().flat_map(|worker| &worker.acts).filter_map(|act| match act {
            Act::Transfer(transfer) => Some(transfer),
            _ => None,
        })
    }

    /// Files that are emptied before or in this phase.
    pub fn empties(&self) -> impl Iterator<Item = u32> {
        self.acts().filter_map(|act| match act {
            Act::Open { file, how: How::Create | How::Truncate } | Act::Remove { file } => {
                Some(*file)
            }
            _ => None,
        })
    }

    /// Whether it leaves all files unchanged: then it may be repeated alone.
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

    /// One phase that is run once.
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

    /// Derives all random choices from this seed.
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

    /// The largest unit of 256 to 4096 bytes that divides all its blocks and files: a version is
    /// kept for each.
    ///
    /// # Errors
    /// Names the phase with a block that is no multiple of 256 bytes.
    pub fn unit_bytes(&self) -> Result<u64, ProgramError> {
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
                    let (program, phase) = (self.name.to_string(), Some(phase.name.clone()));
                    return Err(ProgramError::Unit { program, phase });
                }
            }
        }
        while self.files.iter().any(|bytes| bytes % unit != 0) {
            unit /= 2;
        }
        match unit {
            0..256 => Err(ProgramError::Unit { program: self.name.to_string(), phase: None }),
            _ => Ok(unit),
        }
    }
}

/// Extents begin at multiples of this, bytes.
pub const EXTENT_BYTES: u64 = 64 << 10;

/// Bytes that `count` files of `bytes` each occupy as extents of an array.
pub fn extent_bytes(count: u64, bytes: u64) -> u64 {
    count * bytes.next_multiple_of(EXTENT_BYTES)
}
