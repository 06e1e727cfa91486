//! One piece of the metadata manager's work, in phases: what is out now, and what comes after it.
//!
//! Invariant: a phase begins when everything of the phase before is durable on every device that
//! still serves, so that a crash finds the phases done in order. Driven by `machine`.
//!
//! ```text
//! Flush -> Header -> Pages -> EmptyPpl -> Superblocks        (each job has some of them)
//! Flush -> Pages -> Header -> ...                            (a bitmap that is stale)
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use md::ondisk::superblock::ArrayState;

use super::types::{BitmapPage, DeviceNumber, MetaToken, MetadataEffect, Record};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The members' data.
    Flush,
    /// Only the bitmap's header (and its page's bits).
    Header,
    /// Pages of the bitmap.
    Pages,
    /// An empty log header on every member.
    EmptyPpl,
    /// The superblocks.
    Superblocks,
}

/// Why superblocks are written.
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
    /// A resync has come further.
    Checkpoint,
    /// The array stops.
    Stop,
}

/// An update of the superblocks.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) why: Why,
    pub(super) dirty: bool,
    pub(super) state: Arc<ArrayState>,
    /// FailureCoordinator that it records.
    pub(super) failures: u64,
    /// Nothing but clean or dirty changes, on a complete array: spares need not hear of it.
    pub(super) pure: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// Bits are to be set.
    Bits,
    /// Bits are to be cleared.
    Clear,
    /// Superblocks are to be written.
    Update(Update),
}

/// A write or a flush that has not been sent yet: for which device (an index of the metadata manager's own).
pub(super) struct Due {
    pub(super) device: usize,
    /// `None`: a flush.
    pub(super) record: Option<Record>,
}

pub(super) struct Job {
    pub(super) goal: Goal,
    pub(super) phases: VecDeque<Phase>,
    pub(super) phase: Option<Phase>,
    /// One after the other instead of all at once.
    pub(super) in_turn: bool,
    due: VecDeque<Due>,
    open: Vec<(MetaToken, usize)>,
    /// Pages that the present phase writes.
    pub(super) pages: Vec<Arc<BitmapPage>>,
    /// No further phase: the world has changed.
    pub(super) spoiled: bool,
    /// A device that serves had no room for part of the phase.
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

    /// Forgets what has not been sent to a device.
    pub(super) fn drop_device(&mut self, device: usize) {
        self.due.retain(|due| due.device != device);
    }

    /// Where one device after the other is written, forgets those that have not been.
    pub(super) fn drop_rest_in_turn(&mut self) {
        if self.in_turn {
            self.due.clear();
        }
    }

    /// Sends what may be sent now.
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

    /// Whose operation has ended; `None`: not of this job.
    pub(super) fn done(&mut self, token: MetaToken) -> Option<usize> {
        let at = self.open.iter().position(|(open, _)| *open == token)?;
        Some(self.open.swap_remove(at).1)
    }

    /// Whether everything of the phase has ended.
    pub(super) fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.due.is_empty()
    }
}
