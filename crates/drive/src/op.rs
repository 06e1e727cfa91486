//! Owns the types shared by all models: time, an operation, its completion.
//!
//! Invariant: addresses and lengths are bytes of the member, never of the drive behind it; only
//! [`crate::placement`] maps them to the drive. Used everywhere in this crate.

/// A drive of a [`crate::Rig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveId(pub(crate) u32);

impl DriveId {
    /// Its number: drives count from 0 in the order of `add_drive`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Nanoseconds since whatever moment the caller calls zero, in virtual or real time.
pub type Nanos = u64;

/// "Never": the time of an event that is not planned.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// The time that `bytes` take at `bytes_per_s`, rounded up to a nanosecond.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_s: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s.max(1))) as Nanos
}

/// A command of the host to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Move bytes from the drive to the host.
    Read,
    /// Move bytes to the drive. Completes when the drive's volatile cache holds them, or with
    /// `fua` when they are on the medium.
    Write {
        /// Forced unit access: complete only when this very data is on the medium.
        fua: bool,
    },
    /// Put on the medium every write that completed before. `at_bytes` and `bytes` are ignored.
    Flush,
    /// Forget a range.
    Discard,
}

/// One operation on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The command.
    pub kind: OpKind,
    /// Byte address on the member.
    pub at_bytes: u64,
    /// Length in bytes; 0 costs only the command.
    pub bytes: u64,
}

impl Op {
    /// A read of `bytes` at member address `at_bytes`.
    pub fn read(at_bytes: u64, bytes: u64) -> Op {
        Op { kind: OpKind::Read, at_bytes, bytes }
    }

    /// A write (without FUA) of `bytes` at member address `at_bytes`.
    pub fn write(at_bytes: u64, bytes: u64) -> Op {
        Op { kind: OpKind::Write { fua: false }, at_bytes, bytes }
    }

    /// A flush of the drive's volatile cache.
    pub fn flush() -> Op {
        Op { kind: OpKind::Flush, at_bytes: 0, bytes: 0 }
    }

    /// The first address after the operation.
    pub(crate) fn end(&self) -> u64 {
        self.at_bytes + self.bytes
    }
}

/// A completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The drive it ran on.
    pub drive: DriveId,
    /// The caller's tag, as given to `submit`.
    pub tag: u64,
    /// The exact model time of the completion; never later than the `now` that fetched it.
    pub at: Nanos,
    /// `at` minus the `now` of its submission: what the host waited, queueing included.
    pub service: Nanos,
}

/// An operation as a model holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub tag: u64,
    pub submitted: Nanos,
    /// Number of the command among those issued to its drive.
    pub number: u64,
    pub op: Op,
}

/// A completion of a model: the command, and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub command: Command,
    pub at: Nanos,
}
