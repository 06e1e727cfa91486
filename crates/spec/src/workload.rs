//! Workloads of blocks: access pattern, block size, queue depth.
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
}

impl Kind {
    /// All kinds, in the order of the Linux RAID wiki's table.
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

/// No access pattern has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no workload '{0}'; there are {known}", known = Kind::ALL.map(Kind::name).join(", "))]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Kind, UnknownKind> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
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
}

impl Spec {
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
