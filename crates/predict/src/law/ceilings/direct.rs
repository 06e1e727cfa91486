//! Large direct requests: of one job with many in flight, or of several jobs.
//!
//! Invariant: no read-ahead and no stall of one stream counts here; reads of platters pass over
//! copies and parity.

use md::Level;

use super::super::array::Copies;
use super::super::constants::Symbol;
use super::super::why_not::WhyNot;
use super::super::work::Work;
use super::{Ceiling, Law, Prediction};

impl Law<'_> {
    /// Large requests past the page cache, many at a time.
    pub(super) fn direct(&self) -> Result<Prediction, WhyNot> {
        let writes = self.access.work == Work::DirectWrite;
        let one = self.of_the_slowest(self.one(self.access.work)?);
        let kept = 1.0 - self.constant(Symbol::Ab);
        if !writes && !self.machine.media.is_flash() {
            let mut all = Prediction::none();
            all.add(Ceiling::Disks, self.direct_read_of_platters(one));
            self.add_buses(&mut all, 1.0 / self.n);
            return Ok(all.with_soft_minimum());
        }
        let members = if writes { self.array.data_members() } else { self.n };
        let mut all = Prediction::none();
        all.add(Ceiling::Disks, members * one * kept);
        self.add_buses(&mut all, 1.0 / members);
        if writes {
            self.add_raid_thread(&mut all, self.constant(Symbol::Rt));
        }
        Ok(all.with_soft_minimum())
    }

    /// One job passes over copies and parity as a stream does; several move the heads, as many
    /// streams do, but for a mirror, which has a copy for each.
    fn direct_read_of_platters(&self, one: f64) -> f64 {
        if self.access.jobs <= 1.0 {
            // A queue loses nothing by striping.
            return self.read_of_the_disks(one, 1.0) * self.gain_of_near_copies(one);
        }
        if self.array.level == Level::Raid1 {
            let copies = if self.machine.is_at_least(3, 0, 0) { self.n } else { 1.0 };
            return copies * one * (1.0 - self.constant(Symbol::Ab));
        }
        let figure = self.single.get(Work::StreamsRead);
        let piece = figure.and_then(|figure| self.piece_of_a_stream(figure.rate));
        let of_a_member = piece.unwrap_or(self.constant(Symbol::Ms) * one);
        self.n * self.constant(Symbol::Mr) * of_a_member
    }

    /// A deep stream on near copies: an idle member reads on while the other reads what lies
    /// before, so that each reads its part of what is in flight, and jumps over the rest. RAID 1
    /// of md stays on one copy.
    pub(super) fn gain_of_near_copies(&self, one: f64) -> f64 {
        let copies = match (self.array.level, self.array.copies) {
            (Level::Raid10, Copies::Near(copies)) => f64::from(copies),
            (Level::Raid1, _) if self.machine.reads_all_copies => self.n,
            _ => return 1.0,
        };
        let Some(bytes) = self.access.in_flight_bytes else { return 1.0 };
        let run_s = bytes / 1e6 / (self.n / copies) / one;
        let jump_s = self.constant(Symbol::Jm) * self.machine.media.revolution();
        (copies / (1.0 + jump_s / run_s)).max(1.0)
    }
}
