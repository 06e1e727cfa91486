//! One job of the metadata manager, in phases: writes in flight, and the phases to come.
//!
//! Invariant: a phase begins when all writes of the previous phase are durable on every serving
//! device, so that after a crash the phases are found done in order. Driven by `manager`.
//!
//! ```text
//! Flush -> Header -> Pages -> EndPpl -> EmptyPpl -> First -> Superblocks
//!                                                                 (each job has some of them)
//! Flush -> Pages -> Header -> ...                            (a bitmap that is stale)
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use md::ondisk::superblock::{ArrayState, Policy};

use super::event_counts::Turn;
use super::types::{BitmapPage, DeviceNumber, MetaToken, MetadataEffect, Record};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Flushes the members' data.
    Flush,
    /// Writes only the bitmap's header (and the bits of its page).
    Header,
    /// Writes pages of the bitmap.
    Pages,
    /// Writes an empty log header to every member.
    EndPpl,
    /// Empties the logs behind it.
    EmptyPpl,
    /// Writes the superblocks of replacements that take over: whichever superblock is the freshest
    /// after a crash, the slot has a member in sync. And of devices that are in sync up to a lower
    /// position than they record: no other superblock is clean before that.
    First,
    /// Writes the superblocks.
    Superblocks,
}

impl Phase {
    /// Whether superblocks are written: once one has been, all of them must be.
    pub(super) fn is_of_superblocks(self) -> bool {
        matches!(self, Phase::First | Phase::Superblocks)
    }
}

/// Reason for a superblock update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Some members are behind the others.
    CatchUp,
    /// Writes are about to begin.
    Dirty,
    /// Writes have ended.
    Clean,
    /// Members are lost.
    Loss,
    /// Devices have come or left.
    Table,
    /// A resync has made progress.
    Checkpoint,
    /// The array is stopped.
    Stop,
}

/// How often something has happened that superblocks are to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Revision {
    /// Members were lost.
    pub(super) losses: u64,
    /// Devices have come or left otherwise: the table of devices has changed.
    pub(super) changes: u64,
    /// Redundancy was lost. Until that is recorded, shards with a partial parity log keep the one
    /// that names the row.
    pub(super) doubts: u64,
    /// Checkpoints were ordered.
    pub(super) checkpoints: u64,
}

/// An update of the superblocks.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) why: Why,
    pub(super) dirty: bool,
    pub(super) state: Arc<ArrayState>,
    /// Revision that the update records.
    pub(super) revision: Revision,
    pub(super) turn: Turn,
    /// Members are flushed before.
    pub(super) flushes: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// Sets bits.
    Bits,
    /// Clears bits.
    Clear,
    /// Writes superblocks.
    Update(Update),
}

/// A write or flush that was not sent yet, with its device (index in the metadata manager).
pub(super) struct Due {
    pub(super) device: usize,
    /// `None`: a flush.
    pub(super) record: Option<Record>,
}

pub(super) struct Job {
    pub(super) goal: Goal,
    pub(super) phases: VecDeque<Phase>,
    pub(super) phase: Option<Phase>,
    /// Devices are written one after the other instead of concurrently.
    pub(super) in_turn: bool,
    due: VecDeque<Due>,
    open: Vec<(MetaToken, usize)>,
    /// Pages that the current phase writes.
    pub(super) pages: Vec<Arc<BitmapPage>>,
    /// The array's state has changed: no further phases.
    pub(super) spoiled: bool,
    /// A serving device had no room for part of the phase.
    pub(super) lacking: bool,
}

impl Job {
    pub(super) fn new(goal: Goal, phases: &[Phase]) -> Job {
        Job {
            goal,
            phases: phases.iter().copied().collect(),
            phase: None,
            in_turn: false,
            due: VecDeque::new(),
            open: Vec::new(),
            pages: Vec::new(),
            spoiled: false,
            lacking: false,
        }
    }

    pub(super) fn add(&mut self, device: usize, record: Option<Record>) {
        self.due.push_back(Due { device, record });
    }

    /// Drops the writes to a device that is out of service. Those in flight are not waited for,
    /// since they may never complete: whatever they leave on the device, it is stale.
    ///
    /// The exception are superblocks that are written one after the other: until a write has
    /// completed it may be torn by a crash, and no other superblock may be torn then.
    pub(super) fn drop_device(&mut self, device: usize) {
        self.due.retain(|due| due.device != device);
        if !self.in_turn {
            self.open.retain(|(_, of)| *of != device);
        }
    }

    /// Redundancy was lost while the job is in progress, possibly of data that the job has flushed:
    /// the error of a flush is reported once, and another flush may have got it. Superblocks that
    /// say otherwise are not written; those in flight are followed by others.
    pub(super) fn redundancy_lost(&mut self) {
        let says_in_sync = |update: &Update| !update.dirty || update.state.policy == Policy::Ppl;
        let says_in_sync = matches!(&self.goal, Goal::Update(update) if says_in_sync(update));
        self.spoiled |= says_in_sync && !self.writes_superblocks();
    }

    /// If devices are written one after the other, drops the pending ones.
    pub(super) fn drop_rest_in_turn(&mut self) {
        if self.in_turn {
            self.due.clear();
        }
    }

    /// Sends the writes that may be sent now.
    pub(super) fn send(
        &mut self,
        next_token: &mut u64,
        number: impl Fn(usize) -> DeviceNumber,
        out: &mut Vec<MetadataEffect>,
    ) {
        while !self.in_turn || self.open.is_empty() {
            let Some(Due { device, record }) = self.due.pop_front() else { break };
            let token = MetaToken(*next_token);
            *next_token += 1;
            self.open.push((token, device));
            let number = number(device);
            out.push(match record {
                Some(record) => MetadataEffect::WriteMeta { token, device: number, record },
                None => MetadataEffect::Flush { token, device: number },
            });
        }
    }

    /// The device of a completed operation; `None`: not of this job.
    pub(super) fn done(&mut self, token: MetaToken) -> Option<usize> {
        let at = self.open.iter().position(|(open, _)| *open == token)?;
        Some(self.open.swap_remove(at).1)
    }

    /// Whether the current phase writes superblocks.
    pub(super) fn writes_superblocks(&self) -> bool {
        self.phase.is_some_and(Phase::is_of_superblocks)
    }

    /// Whether all writes of the phase have completed.
    pub(super) fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.due.is_empty()
    }
}
