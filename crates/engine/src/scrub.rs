//! A scrub: redundancy is compared with the data, range by range, and what is proven wrong is
//! repaired.
//!
//! ```text
//! Scrub --next_range()--> HostOp::Scrub requests --> Compute::Check, Compute::Compare
//!   ^                             |                            | Verdict
//!   +---------- done() -----------+      ControlEvent::Mismatch+
//! ```
//! A request reads its range from every member and compares. Where something differs, granule by
//! granule and sector by sector, a verdict says which block is to blame, if that can be known: on
//! RAID 6 from P and Q, of three or more copies by majority. RAID 4, 5 and two copies cannot tell.
//!
//! Invariant: a block is rewritten only if the verdict names it, or if the mode says that one side
//! wins. Only complete rows in sync are compared: after a crash, a resync recomputes parity and
//! never locates. Blocks that cannot be read are recovered and written back, unless what is left
//! of the row disagrees.

use std::ops::Range;

use md::Sector;

use crate::{BackgroundProgress, RequestError};

/// The ranges of a scrub, and how far it has come.
#[derive(Clone, Debug)]
pub struct Scrub {
    next: u64,
    span: u64,
    step: u64,
    unit: u64,
    depth: usize,
    open: Vec<Range<u64>>,
    skipped: u64,
    checked: u64,
    error: Option<RequestError>,
}

impl Scrub {
    /// Over the positions (see [`crate::IntentMap`]) from `from` to `span`. A request has `step` of
    /// them at most and crosses no multiple of `unit`; `depth` are in flight.
    pub fn new(from: u64, span: u64, step: u64, unit: u64, depth: usize) -> Scrub {
        let next = from.min(span);
        let (step, depth) = (step.max(1), depth.max(1));
        Scrub {
            next,
            span,
            step,
            unit,
            depth,
            open: Vec::new(),
            skipped: 0,
            checked: 0,
            error: None,
        }
    }

    /// The next range, if one more may be in flight: submit a request with this position and
    /// length, and pass its result to [`Scrub::done`].
    pub fn next_range(&mut self) -> Option<(Sector, u64)> {
        if !self.has_next() {
            return None;
        }
        let unit_end = (self.next / self.unit).saturating_add(1).saturating_mul(self.unit);
        let step_end = (self.next / self.step + 1) * self.step;
        let end = self.span.min(unit_end).min(step_end);
        let range = self.next..end;
        self.next = end;
        self.open.push(range.clone());
        Some((Sector(range.start), range.end - range.start))
    }

    /// The range from `at` ended. An error: not all of it could be compared.
    ///
    /// # Panics
    /// If no such range is in flight.
    pub fn done(&mut self, at: Sector, result: Result<(), RequestError>) {
        let range = self.open.iter().position(|range| range.start == at.0);
        let range = self.open.swap_remove(range.expect("the range is in flight"));
        let sectors = range.end - range.start;
        match result {
            Ok(()) => self.checked += sectors,
            Err(error) => {
                self.skipped += sectors;
                self.error = Some(error);
            }
        }
    }

    /// Everything below has been compared, or skipped with an error.
    pub fn position(&self) -> u64 {
        self.open.iter().map(|range| range.start).fold(self.next, u64::min)
    }

    /// The end of all positions.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Positions that were compared.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// Positions in requests that ended with an error, and the last error.
    pub fn skipped(&self) -> (u64, Option<RequestError>) {
        (self.skipped, self.error)
    }

    /// How far it has come.
    pub fn progress(&self) -> BackgroundProgress {
        let open: u64 = self.open.iter().map(|range| range.end - range.start).sum();
        let remaining = self.span - self.next + open;
        BackgroundProgress { position: self.position(), total: self.span, remaining }
    }

    /// Begins no more ranges: [`Scrub::position`] is where it can be resumed once those in flight
    /// have ended.
    pub fn stop(&mut self) {
        self.span = self.next;
    }

    /// Whether one more range could be in flight.
    pub fn has_next(&self) -> bool {
        self.open.len() < self.depth && self.next < self.span
    }

    /// Whether ranges are in flight.
    pub fn is_in_flight(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.open.is_empty() && self.next >= self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_at_steps_and_units_and_the_position_trails_the_oldest() {
        let mut scrub = Scrub::new(100, 1000, 256, 640, 2);
        assert_eq!(scrub.next_range(), Some((Sector(100), 156)));
        assert_eq!(scrub.next_range(), Some((Sector(256), 256)));
        assert_eq!(scrub.next_range(), None, "two are in flight");
        scrub.done(Sector(256), Ok(()));
        assert_eq!((scrub.position(), scrub.checked()), (100, 256));
        assert_eq!(scrub.next_range(), Some((Sector(512), 128)), "a unit ends");
        scrub.done(Sector(100), Err(RequestError::Io));
        assert_eq!(scrub.position(), 512);
        assert_eq!(scrub.skipped(), (156, Some(RequestError::Io)));
        scrub.stop();
        assert_eq!(scrub.next_range(), None);
        scrub.done(Sector(512), Ok(()));
        assert!(scrub.is_done());
        assert_eq!(scrub.position(), 640);
    }
}
