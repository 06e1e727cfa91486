//! Workloads of blocks: access pattern, block size, queue depth; and the kinds of access that
//! records name, of which block workloads are six.
//!
//! Invariant: pure data.

use std::str::FromStr;

use thiserror::Error;

/// Access pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sequential reads.
    SeqRead,
    /// Sequential writes.
    SeqWrite,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// A sequential stream of reads and one of writes, each with a position of its own.
    SeqMixed,
    /// Random reads and writes.
    RandMixed,
    /// No requests: background work alone.
    None,
}

impl Kind {
    /// All kinds that have requests: those of the Linux RAID wiki's table in its order, and the
    /// mixed ones.
    pub const ALL: [Kind; 6] = [
        Kind::SeqRead,
        Kind::RandRead,
        Kind::SeqWrite,
        Kind::RandWrite,
        Kind::SeqMixed,
        Kind::RandMixed,
    ];

    /// What runs where none is named: the Linux RAID wiki's table, in its order.
    pub const DEFAULT: [Kind; 4] = [Kind::SeqRead, Kind::RandRead, Kind::SeqWrite, Kind::RandWrite];

    /// Its name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::SeqRead => "seq-read",
            Kind::SeqWrite => "seq-write",
            Kind::RandRead => "rand-read",
            Kind::RandWrite => "rand-write",
            Kind::SeqMixed => "seq-mixed",
            Kind::RandMixed => "rand-mixed",
            Kind::None => "none",
        }
    }

    /// Whether some or all of its requests read.
    pub fn reads(self) -> bool {
        !matches!(self, Kind::SeqWrite | Kind::RandWrite | Kind::None)
    }

    /// Whether it changes data: some or all of its requests write.
    pub fn writes(self) -> bool {
        !matches!(self, Kind::SeqRead | Kind::RandRead | Kind::None)
    }

    /// Whether some of its requests read and some write.
    pub fn is_mixed(self) -> bool {
        self.reads() && self.writes()
    }

    /// Whether addresses follow each other.
    pub fn is_sequential(self) -> bool {
        matches!(self, Kind::SeqRead | Kind::SeqWrite | Kind::SeqMixed)
    }
}

impl From<Kind> for AccessKind {
    fn from(kind: Kind) -> AccessKind {
        match kind {
            Kind::SeqRead => AccessKind::SeqRead,
            Kind::SeqWrite => AccessKind::SeqWrite,
            Kind::RandRead => AccessKind::RandRead,
            Kind::RandWrite => AccessKind::RandWrite,
            Kind::SeqMixed => AccessKind::SeqMixed,
            Kind::RandMixed => AccessKind::RandMixed,
            Kind::None => AccessKind::None,
        }
    }
}

/// The kind of access of a block workload or of a phase of a program, as records name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Blocks, read in order.
    SeqRead,
    /// Blocks, written in order.
    SeqWrite,
    /// Blocks, each read and written again, in order.
    SeqRewrite,
    /// Streams of blocks, some read and some written.
    SeqMixed,
    /// Blocks, read at random.
    RandRead,
    /// Blocks, written at random.
    RandWrite,
    /// Blocks, read and written at random.
    RandMixed,
    /// Byte by byte, read in order.
    ByteRead,
    /// Byte by byte, written in order.
    ByteWrite,
    /// Files created.
    Create,
    /// Files looked up.
    Stat,
    /// Files deleted.
    Delete,
    /// What a program does before the phase that it measures.
    Prepare,
    /// Nothing: background work alone.
    None,
}

impl AccessKind {
    /// All kinds; those of block workloads first, in the order of the Linux RAID wiki's table.
    pub const ALL: [AccessKind; 14] = [
        AccessKind::SeqRead,
        AccessKind::RandRead,
        AccessKind::SeqWrite,
        AccessKind::RandWrite,
        AccessKind::SeqRewrite,
        AccessKind::SeqMixed,
        AccessKind::RandMixed,
        AccessKind::ByteRead,
        AccessKind::ByteWrite,
        AccessKind::Create,
        AccessKind::Stat,
        AccessKind::Delete,
        AccessKind::Prepare,
        AccessKind::None,
    ];

    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            AccessKind::SeqRead => "seq-read",
            AccessKind::SeqWrite => "seq-write",
            AccessKind::SeqRewrite => "seq-rewrite",
            AccessKind::SeqMixed => "seq-mixed",
            AccessKind::RandRead => "rand-read",
            AccessKind::RandWrite => "rand-write",
            AccessKind::RandMixed => "rand-mixed",
            AccessKind::ByteRead => "byte-read",
            AccessKind::ByteWrite => "byte-write",
            AccessKind::Create => "create",
            AccessKind::Stat => "stat",
            AccessKind::Delete => "delete",
            AccessKind::Prepare => "prepare",
            AccessKind::None => "none",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<AccessKind> {
        AccessKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether all of its data is written; a rewrite also reads it first. How much of a mixed kind
    /// is written is unknown.
    pub const fn writes(self) -> bool {
        self.only_writes() || matches!(self, AccessKind::SeqRewrite)
    }

    /// Whether it writes data and reads none.
    pub const fn only_writes(self) -> bool {
        matches!(self, AccessKind::SeqWrite | AccessKind::RandWrite | AccessKind::ByteWrite)
    }

    /// Whether some of its data is read and some is written.
    pub const fn is_mixed(self) -> bool {
        matches!(self, AccessKind::SeqMixed | AccessKind::RandMixed)
    }

    /// Whether it moves blocks, one behind the other.
    pub const fn is_sequential(self) -> bool {
        matches!(
            self,
            AccessKind::SeqRead
                | AccessKind::SeqWrite
                | AccessKind::SeqRewrite
                | AccessKind::SeqMixed
        )
    }

    /// Whether it moves blocks at random addresses.
    pub const fn is_random(self) -> bool {
        matches!(self, AccessKind::RandRead | AccessKind::RandWrite | AccessKind::RandMixed)
    }

    /// Whether it works on the names of files, and moves no data.
    pub const fn is_of_names(self) -> bool {
        matches!(self, AccessKind::Create | AccessKind::Stat | AccessKind::Delete)
    }
}

/// No access pattern has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no workload '{0}'; there are {known}", known = Kind::ALL.map(Kind::name).join(", ")
)]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Kind, UnknownKind> {
        // As `predict` prints them.
        let short = text.strip_prefix("random-").map(|rest| format!("rand-{rest}"));
        let short = short.as_deref().unwrap_or(text);
        let mut all = Kind::ALL.into_iter().chain([Kind::None]);
        let found = all.find(|kind| kind.name() == short);
        found.ok_or_else(|| UnknownKind(text.to_string()))
    }
}

/// The parameters of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The access pattern.
    pub kind: Kind,
    /// Block size, in bytes.
    pub block_bytes: u64,
    /// Queue depth of each job, in blocks.
    pub depth: u32,
    /// Number of jobs.
    pub jobs: u32,
    /// Bytes that a sequential reader keeps in flight beyond `depth`, as a read-ahead would.
    pub read_ahead_bytes: u64,
    /// Of a mixed kind: the share of requests that read, 1 to 99. `None`: the default.
    pub read_percent: Option<u8>,
    /// Open loop: requests arrive on a schedule, and `depth` is only the limit of those in flight.
    /// `None`: closed loop, each completion is followed by the next request.
    pub rate: Option<Rate>,
    /// What the array does besides.
    pub background: Option<Background>,
}

/// Background work of the array while a workload runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// The work.
    pub work: BackgroundWork,
    /// Share of the time that it leaves to the workload, percent, at most 99.
    pub foreground_percent: u8,
}

/// Default share of the time that background work leaves to the workload, percent: the engine's.
pub const DEFAULT_FOREGROUND_PERCENT: u8 = 75;

/// Background work of an array, by the words of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackgroundWork {
    /// A member is replaced by a new one, which is rebuilt.
    Rebuild,
    /// Redundancy is compared with the data.
    Scrub,
    /// Redundancy is made true, as after a crash.
    Resync,
}

impl BackgroundWork {
    /// All of it.
    pub const ALL: [BackgroundWork; 3] =
        [BackgroundWork::Rebuild, BackgroundWork::Scrub, BackgroundWork::Resync];

    /// Its name in records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            BackgroundWork::Rebuild => "rebuild",
            BackgroundWork::Scrub => "scrub",
            BackgroundWork::Resync => "resync",
        }
    }
}

/// No background work has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no background work '{0}'; there are rebuild, scrub and resync")]
pub struct UnknownBackground(pub String);

impl FromStr for BackgroundWork {
    type Err = UnknownBackground;

    fn from_str(text: &str) -> Result<BackgroundWork, UnknownBackground> {
        let found = BackgroundWork::ALL.into_iter().find(|work| work.name() == text);
        found.ok_or_else(|| UnknownBackground(text.to_string()))
    }
}

/// Default share of the requests of a mixed kind that read, percent.
pub const DEFAULT_READ_PERCENT: u8 = 70;

/// A stated load: requests that arrive on a schedule, whether earlier ones have completed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Arrivals per second at the array, of all jobs and CPUs together.
    pub iops: u32,
    /// The intervals between them.
    pub process: RateProcess,
}

impl Rate {
    /// The highest rate: the schedule counts nanoseconds, and no array here serves as many.
    pub const MOST: u32 = 10_000_000;
}

/// Intervals between arrivals, by the words of fio's `rate_process`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RateProcess {
    /// All equal.
    #[default]
    Linear,
    /// Exponentially distributed: independent arrivals, as of many clients.
    Poisson,
}

impl RateProcess {
    /// Both.
    pub const ALL: [RateProcess; 2] = [RateProcess::Linear, RateProcess::Poisson];

    /// Its name in records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            RateProcess::Linear => "linear",
            RateProcess::Poisson => "poisson",
        }
    }
}

/// No process of arrivals has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no process '{0}'; there are linear (equal intervals) and poisson (random ones)")]
pub struct UnknownProcess(pub String);

impl FromStr for RateProcess {
    type Err = UnknownProcess;

    fn from_str(text: &str) -> Result<RateProcess, UnknownProcess> {
        let found = RateProcess::ALL.into_iter().find(|process| process.name() == text);
        found.ok_or_else(|| UnknownProcess(text.to_string()))
    }
}

impl Spec {
    /// The share of requests that read, percent; `None` where all read or all write.
    pub fn mix(&self) -> Option<u8> {
        let percent = self.read_percent.unwrap_or(DEFAULT_READ_PERCENT);
        self.kind.is_mixed().then_some(percent)
    }

    /// Queue depth of one job, in blocks, read-ahead included.
    pub fn window(&self) -> usize {
        let ahead = match self.kind {
            Kind::SeqRead => self.read_ahead_bytes.div_ceil(self.block_bytes),
            _ => 0,
        };
        self.depth as usize + ahead as usize
    }

    /// Blocks in flight in all jobs together.
    pub fn in_flight(&self) -> usize {
        self.window() * self.jobs as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_access_has_one_name_and_block_workloads_have_the_same() {
        for kind in AccessKind::ALL {
            assert_eq!(AccessKind::named(kind.name()), Some(kind));
        }
        for kind in Kind::ALL {
            let access = AccessKind::from(kind);
            assert_eq!(access.name(), kind.name());
            assert_eq!(access.is_mixed(), kind.is_mixed());
            assert_eq!(access.writes(), kind.writes() && !kind.is_mixed());
            assert!(kind.reads() || kind.writes());
            assert_eq!(access.is_sequential(), kind.is_sequential());
            assert_eq!(access.is_random(), !kind.is_sequential());
        }
        assert_eq!(AccessKind::named("seq-append"), None);
        assert_eq!("random-read".parse(), Ok(Kind::RandRead));
        assert_eq!("random-".parse::<Kind>(), Err(UnknownKind("random-".into())));
    }
}
