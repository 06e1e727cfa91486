//! Owns where a member lies on the drive behind it.
//!
//! ```text
//!   drive    outer |==========================================================| inner
//!   window           [member]                     one contiguous slice, from `at` on
//!   stretch        [0]     [1]     [2]     [3]     [4]     [5]     [6]     [7]
//!                  granules of the member, evenly spread over the whole stroke
//! ```
//!
//! `Stretch` keeps the order of addresses and the contiguity inside a granule (at least 1 MiB, and
//! at most about 1024 granules), so that random I/O over the member is random I/O over the full
//! stroke. A sequential run pays a short seek and a rotation at each granule's end: measure
//! streaming with `Window`.
//!
//! A solid drive has no places. There a `Window` is a member on a drive that is empty otherwise,
//! and `Stretch` scales the drive to the member: its SLC cache and its spare flash shrink with it.
//!
//! Invariant: every member address maps into the drive; the map is monotone. Used by
//! `rotating::surface`, by `solid`, and by the bounds in `profile`.

/// How a member, often far smaller than the drive, lies on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// A contiguous slice.
    Window {
        /// Where it starts, as a fraction of the drive's capacity: 0.0 is the outer edge. A slice
        /// that would leave the drive is moved back until it ends at the inner edge.
        at: f64,
    },
    /// Spread over the whole stroke.
    Stretch,
}

/// A placement worked out for one member on one drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    member: u64,
    start: u64,
    granule: u64,
    /// Granules less one, at least 1: the divisor of the spread.
    steps: u64,
    /// Where the last granule starts.
    span: u64,
}

const GRANULE_MIN: u64 = 1 << 20;
const GRANULES_MAX: u64 = 1024;

impl Layout {
    /// A member larger than `capacity` is laid out as if the drive were as large as the member.
    pub fn new(placement: Placement, member: u64, capacity: u64) -> Layout {
        let member = member.max(1);
        let granule = member.div_ceil(GRANULES_MAX).next_multiple_of(GRANULE_MIN);
        let count = member.div_ceil(granule);
        match placement {
            Placement::Stretch if count > 1 && count * granule < capacity => {
                Layout { member, start: 0, granule, steps: count - 1, span: capacity - granule }
            }
            Placement::Stretch => Layout { member, start: 0, granule: member, steps: 1, span: 0 },
            Placement::Window { at } => {
                let at = if at.is_finite() { at.clamp(0.0, 1.0) } else { 0.0 };
                let start = (capacity as f64 * at) as u64 / 4096 * 4096;
                let start = start.min(capacity.saturating_sub(member));
                Layout { member, start, granule: member, steps: 1, span: 0 }
            }
        }
    }

    pub fn member(&self) -> u64 {
        self.member
    }

    /// The drive address of a member address (or of the member's end).
    pub fn on_drive(&self, at: u64) -> u64 {
        let granule = (at / self.granule).min((self.member - 1) / self.granule);
        let base = u128::from(granule) * u128::from(self.span) / u128::from(self.steps);
        self.start + base as u64 + (at - granule * self.granule)
    }

    /// The member address where the contiguous run that holds `at` ends.
    pub fn run_end(&self, at: u64) -> u64 {
        ((at / self.granule + 1) * self.granule).min(self.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TB: u64 = 1_000_000_000_000;

    #[test]
    fn window_is_one_run_and_never_leaves_the_drive() {
        let member = 128 << 20;
        for (at, start) in [(0.0, 0), (0.5, TB / 2 / 4096 * 4096), (1.0, TB - member)] {
            let layout = Layout::new(Placement::Window { at }, member, TB);
            assert_eq!(layout.on_drive(0), start);
            assert_eq!(layout.on_drive(member), start + member);
            assert_eq!(layout.run_end(5), member);
        }
    }

    #[test]
    fn stretch_spans_the_stroke_in_order_and_keeps_runs() {
        let member = 128 << 20;
        let layout = Layout::new(Placement::Stretch, member, TB);
        assert_eq!(layout.on_drive(0), 0);
        assert_eq!(layout.on_drive(member), TB);
        assert_eq!(layout.on_drive(4096) - layout.on_drive(0), 4096);
        let mut last = 0;
        for at in (4096..member).step_by(4096) {
            let here = layout.on_drive(at);
            assert!(here > last && here < TB, "{at}");
            last = here;
        }
        assert_eq!(layout.run_end(4096), 1 << 20);
    }

    #[test]
    fn a_member_larger_than_the_drive_still_maps() {
        for placement in [Placement::Stretch, Placement::Window { at: 0.9 }] {
            let layout = Layout::new(placement, 2 * TB, TB);
            assert_eq!(layout.on_drive(2 * TB - 1) - layout.on_drive(0), 2 * TB - 1);
        }
    }
}
