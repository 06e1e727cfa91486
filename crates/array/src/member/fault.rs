//! A member that fails by the script: for tests, and for showing what an array does about it.
//!
//! Invariant: what the script does not name works as the member inside does.

use std::ops::Range;

use engine::{MemberError, Token};

use super::{Counters, Done, Facts, Io, KernelDone, Member, Op, OpKind};

/// One line of the script. Byte addresses are the member's; ranges are half open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every read of this byte gets it with a bit flipped, and says nothing.
    FlipRead {
        /// The byte.
        at: u64,
    },
    /// Reads of the range fail with a medium error, until it is written.
    ReadError {
        /// The range.
        range: Range<u64>,
    },
    /// Writes to the range fail.
    WriteError {
        /// The range.
        range: Range<u64>,
    },
    /// After this many operations, the member is gone.
    Gone {
        /// How many it still does.
        after: u64,
    },
    /// Writes that cover this byte store only what comes before it, and say nothing.
    TornWrite {
        /// The byte at which the write tears; torn at its sector.
        at: u64,
    },
    /// Every operation takes this much longer.
    Delay {
        /// Nanoseconds.
        nanos: u64,
    },
}

/// See the module.
pub struct FaultMember {
    inner: Box<dyn Member>,
    faults: Vec<Fault>,
    ops: u64,
    /// Reads at work whose buffers are to be damaged: the token and the spans' places.
    flips: Vec<(Token, Vec<(engine::BufSlice, usize)>)>,
    delayed: std::collections::VecDeque<(u64, Done)>,
    finished: Vec<Done>,
}

fn overlaps(op: &Op<'_>, range: &Range<u64>) -> bool {
    let start = op.sector.0 * md::SECTOR_BYTES;
    start < range.end && range.start < start + op.bytes()
}

impl FaultMember {
    /// Puts a script over a member.
    pub fn new(inner: Box<dyn Member>, faults: Vec<Fault>) -> FaultMember {
        FaultMember {
            inner,
            faults,
            ops: 0,
            flips: Vec::new(),
            delayed: std::collections::VecDeque::new(),
            finished: Vec::new(),
        }
    }

    /// What the script says about the operation's outcome.
    fn scripted_error(&mut self, op: &Op<'_>) -> Option<MemberError> {
        self.ops += 1;
        let ops = self.ops;
        let is_write = matches!(op.kind, OpKind::Write { .. } | OpKind::WriteZeroes);
        let error = self.faults.iter().find_map(|fault| match fault {
            Fault::Gone { after } if ops > *after => Some(MemberError::Gone),
            Fault::ReadError { range } if op.kind == OpKind::Read && overlaps(op, range) => {
                Some(MemberError::Medium)
            }
            Fault::WriteError { range } if is_write && overlaps(op, range) => {
                Some(MemberError::Medium)
            }
            _ => None,
        });
        if is_write && error.is_none() {
            self.heal(op);
        }
        error
    }

    /// A write makes the sectors that it covers readable again.
    fn heal(&mut self, op: &Op<'_>) {
        let start = op.sector.0 * md::SECTOR_BYTES;
        let end = start + op.bytes();
        let mut rest = Vec::new();
        self.faults.retain_mut(|fault| {
            let Fault::ReadError { range } = fault else { return true };
            if range.end <= start || end <= range.start {
                return true;
            }
            if end < range.end {
                rest.push(Fault::ReadError { range: end..range.end });
            }
            range.end = start.max(range.start);
            range.start < range.end
        });
        self.faults.append(&mut rest);
    }

    fn note_flips(&mut self, op: &Op<'_>) {
        let mut places = Vec::new();
        for fault in &self.faults {
            let Fault::FlipRead { at } = fault else { continue };
            let mut start = op.sector.0 * md::SECTOR_BYTES;
            for slice in op.slices {
                if (start..start + u64::from(slice.len)).contains(at) {
                    places.push((*slice, (at - start) as usize));
                }
                start += u64::from(slice.len);
            }
        }
        if !places.is_empty() {
            self.flips.push((op.token, places));
        }
    }

    /// The byte at which a write is to be torn, relative to its start.
    fn tear(&self, op: &Op<'_>) -> Option<u64> {
        let start = op.sector.0 * md::SECTOR_BYTES;
        self.faults.iter().find_map(|fault| match fault {
            Fault::TornWrite { at } if overlaps(op, &(*at..at + 1)) => {
                Some((at - start) / md::SECTOR_BYTES * md::SECTOR_BYTES)
            }
            _ => None,
        })
    }

    fn delay(&self) -> u64 {
        let delays = self.faults.iter().map(|fault| match fault {
            Fault::Delay { nanos } => *nanos,
            _ => 0,
        });
        delays.sum()
    }

    /// Passes on what the member inside has finished: damaged, delayed or as it is.
    fn pass_on(&mut self, io: &mut Io, done: &mut Vec<Done>) {
        let delay = self.delay();
        for end in self.finished.drain(..) {
            if let Some(at) = self.flips.iter().position(|(token, _)| *token == end.token) {
                let (_, places) = self.flips.swap_remove(at);
                for (slice, offset) in places {
                    io.regions.span(slice).flip_bit(offset);
                }
            }
            if delay == 0 {
                done.push(end);
            } else {
                self.delayed.push_back((io.now + delay, end));
            }
        }
    }
}

impl Member for FaultMember {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<Done>) {
        let is_write = matches!(op.kind, OpKind::Write { .. });
        if let Some(error) = self.scripted_error(op) {
            self.finished.push(Done { token: op.token, result: Err(error) });
        } else if let Some(kept) = self.tear(op).filter(|_| is_write) {
            // Stores the head of the data; the rest stays as it was.
            let mut left = kept;
            let slices = op.slices.iter().map_while(|slice| {
                let len = left.min(u64::from(slice.len));
                left -= len;
                (len > 0).then_some(engine::BufSlice { len: len as u32, ..*slice })
            });
            let slices: Vec<_> = slices.collect();
            if slices.is_empty() {
                self.finished.push(Done { token: op.token, result: Ok(()) });
            } else {
                let torn = Op { slices: &slices, sectors: kept / md::SECTOR_BYTES, ..*op };
                self.inner.submit(&torn, io, &mut self.finished);
            }
        } else {
            if op.kind == OpKind::Read {
                self.note_flips(op);
            }
            self.inner.submit(op, io, &mut self.finished);
        }
        self.pass_on(io, done);
    }

    fn reap(&mut self, io: &mut Io, done: &mut Vec<Done>) {
        if self.inner.deadline().is_some() {
            self.inner.reap(io, &mut self.finished);
            self.pass_on(io, done);
        }
        while self.delayed.front().is_some_and(|(at, _)| *at <= io.now) {
            done.extend(self.delayed.pop_front().map(|(_, end)| end));
        }
    }

    fn kernel_done(&mut self, event: KernelDone, io: &mut Io, done: &mut Vec<Done>) {
        self.inner.kernel_done(event, io, &mut self.finished);
        self.pass_on(io, done);
    }

    fn deadline(&self) -> Option<u64> {
        let own = self.delayed.front().map(|(at, _)| *at);
        [own, self.inner.deadline()].into_iter().flatten().min()
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.inner.number_leaves(next)
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        self.inner.leaf_counters(out);
    }
}
