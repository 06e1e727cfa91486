//! What Linux may have moved beyond the position that it recorded last.
//!
//! Linux records the position of a RAID 4, 5 or 6 before it writes over an old row from the
//! recorded position on, but only while it finds that what it reads is ahead of what it writes;
//! else every ten seconds. mdadm keeps copies for that case, and means to limit Linux to what it
//! has copied; with Linux 6.12 and mdadm 4.2 that limit was seen not to hold. The distance by which
//! the data move counts for it only when the array was assembled in mid-reshape, not when the
//! reshape was begun on the running array. Stopping the array records nothing. RAID 10 always
//! records in time.
//!
//! ```text
//!   recorded             where it records again, at the latest
//!      |.....................|
//!        moved, perhaps        these new rows may lie over old ones from `recorded` on, or not
//! ```
//!
//! Invariant: what is computed here is the most that Linux may have moved, not what it has. Rules:
//! docs/reshape.md. Called by `admin`.

use std::ops::Range;

use super::plan::MovePlan;
use crate::geometry::DataStarts;

impl MovePlan {
    /// Whether all old rows with sectors from `kept` on stand, however far Linux had got when it
    /// stopped without recording it. `kept`: the recorded position, or where a copy ends.
    pub fn linux_keeps(&self, kept: u64) -> bool {
        if !self.has_parity {
            return self.recorded == self.target || !self.is_critical();
        }
        let offset = |starts: &DataStarts| i128::from(starts.new) - i128::from(starts.old);
        let offsets = self.starts.iter().map(offset);
        let moved = if self.backwards { offsets.min() } else { offsets.max() };
        let reaches = [Some(0), moved].into_iter().flatten().map(|offset| self.reach(offset));
        reaches.into_iter().all(|reach| self.fits(reach, kept))
    }

    /// Old rows that were moved and stand as well, as array sectors, the nearest to the position
    /// first. Anything that was moved beyond the position is written over these before it comes to
    /// rows from the position on, over the farthest first.
    pub fn doubled(&self, most: usize) -> Vec<Range<u64>> {
        let row = self.old.chunk.saturating_mul(self.old.width);
        let nth = |nth: u64| {
            let before = nth.checked_mul(row)?;
            match self.backwards {
                false => {
                    let end = (self.recorded.min(self.visible) / row * row).checked_sub(before)?;
                    Some(end.checked_sub(row)?..end)
                }
                true => {
                    let start = self.recorded.checked_next_multiple_of(row)?.checked_add(before)?;
                    let end = start.checked_add(row).filter(|end| *end <= self.visible)?;
                    Some(start..end)
                }
            }
        };
        let stands = |range: &Range<u64>| match self.backwards {
            false => self.edge(range.start) >= self.recorded,
            true => self.edge(range.end) <= self.recorded,
        };
        // As a row stands, those nearer to the position do.
        let rows = first(self.visible / row + 1, |at| !nth(at).is_some_and(|it| stands(&it)));
        let rows = rows.unwrap_or(0);
        // Evenly, of the half that is nearer.
        let half = rows.div_ceil(2);
        let count = half.min(most as u64);
        let at = |index: u64| nth(share(index, half, count.max(1)));
        (0..count).filter_map(at).collect()
    }

    /// The position at which Linux records again at the latest, if it recorded the one that is
    /// recorded and counts with this distance between old and new data.
    fn reach(&self, offset: i128) -> u64 {
        let chunk = i128::from(self.old.chunk.max(self.new.chunk));
        let row = |at: u64, width: u64| i128::from(at / width);
        let ahead = if self.backwards { chunk } else { -chunk };
        let place = |at: u64, width: u64| (row(at, width) + ahead).max(0) + (-offset).max(0);
        let safe = place(self.recorded, self.old.width);
        let write = |at: u64| (row(at, self.new.width) - ahead).max(0) + offset.max(0);
        let read = |at: u64| place(at, self.old.width);
        // Would write over what is safe no more, and reads ahead of what it writes.
        let crosses = |at: u64| if self.backwards { safe > write(at) } else { safe < write(at) };
        let is_ahead = |at: u64| match self.backwards {
            true => read(at) < write(at),
            false => read(at) > write(at),
        };
        let left = match self.backwards {
            false => self.target.saturating_sub(self.recorded),
            true => self.recorded.saturating_sub(self.target),
        };
        let steps = left / self.step;
        let at = |step: u64| match self.backwards {
            false => (self.recorded / self.step + step).saturating_mul(self.step),
            true => (self.recorded.div_ceil(self.step) - step).saturating_mul(self.step),
        };
        let Some(crossing) = first(steps, |step| crosses(at(step))) else { return self.target };
        if is_ahead(at(crossing)) {
            return at(crossing);
        }
        // Only where an array grows does what is read get further ahead.
        if self.backwards || self.new.width <= self.old.width {
            return self.target;
        }
        let ahead = first(steps - crossing, |step| is_ahead(at(crossing + step)));
        ahead.map_or(self.target, |step| at(crossing + step))
    }
}

/// The `index`th of `count` numbers below `of`.
fn share(index: u64, of: u64, count: u64) -> u64 {
    (u128::from(index) * u128::from(of) / u128::from(count)) as u64
}

/// The first number up to `last` of which `holds` is true, as of all that follow.
fn first(last: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(last) {
        return None;
    }
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    Some(low)
}
