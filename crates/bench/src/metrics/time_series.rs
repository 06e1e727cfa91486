//! Counters over time in bounded memory, and their rates at equal steps.
//!
//! ```text
//!   points:  |----|-----|---|------|      at irregular readings
//!   steps:   |...|...|...|...|...|...|    equal; rates from the line through the points
//! ```
//! When there are too many points, every other one is dropped and points are taken half as often:
//! a run of any length is covered completely, at a coarser resolution.
//!
//! Invariant: at most [`POINTS_MAX`] points, in order of time; the first is always kept.
//! Called from `recorder`.

/// Points that a track holds.
pub(super) const POINTS_MAX: usize = 256;
/// Steps of a series: what a chart can show.
pub(super) const STEPS_MAX: usize = 120;

/// Counters over time in bounded memory.
#[derive(Clone, Debug)]
pub(super) struct Track {
    /// Time, and the counters at that time; `None` where the source does not give one.
    points: Vec<(u64, Vec<Option<f64>>)>,
    gap_ns: u64,
}

impl Track {
    /// A track with points no closer than `gap_ns`.
    pub(super) fn new(gap_ns: u64) -> Track {
        Track { points: Vec::new(), gap_ns }
    }

    /// Whether a point is required at this time.
    pub(super) fn wants(&self, now: u64) -> bool {
        // A timer that fires slightly early must not halve the rate.
        self.points.last().is_none_or(|(last, _)| now >= last + self.gap_ns / 8 * 7)
    }

    /// Adds a point unconditionally.
    pub(super) fn push(&mut self, now: u64, counted: Vec<Option<f64>>) {
        if self.points.last().is_some_and(|(last, _)| now <= *last) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.gap_ns *= 2;
        }
        self.points.push((now, counted));
    }

    /// Counters in a point.
    pub(super) fn width(&self) -> usize {
        self.points.first().map_or(0, |(_, counted)| counted.len())
    }

    /// First and last time.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        Some((self.points.first()?.0, self.points.last()?.0))
    }

    /// As many equal steps as the points between `begin` and `end` can tell apart.
    pub(super) fn steps(&self, begin: u64, end: u64) -> usize {
        ((end.saturating_sub(begin)) / self.gap_ns.max(1)).clamp(1, STEPS_MAX as u64) as usize
    }

    /// The rate of a counter per second in each of `steps` equal steps from `begin` to `end`;
    /// empty where it was not counted all the time, or there is no time.
    pub(super) fn rates(&self, which: usize, begin: u64, end: u64, steps: usize) -> Vec<f64> {
        let counted = |point: &(u64, Vec<Option<f64>>)| {
            Some((point.0, point.1.get(which).copied().flatten()?))
        };
        let Some(points) = self.points.iter().map(counted).collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        if points.len() < 2 || end <= begin || steps == 0 {
            return Vec::new();
        }
        let step = (end - begin) as f64 / steps as f64;
        let at = |index: usize| value_at(&points, begin as f64 + step * index as f64);
        // A source that begins again, or an estimate that is corrected, is no negative rate.
        (0..steps).map(|index| ((at(index + 1) - at(index)) / step * 1e9).max(0.0)).collect()
    }
}

/// On the line through the points; before the first and after the last, nothing moved.
fn value_at(points: &[(u64, f64)], at: f64) -> f64 {
    let after = points.partition_point(|(time, _)| (*time as f64) < at);
    if after == 0 {
        return points[0].1;
    }
    let Some(next) = points.get(after) else { return points[points.len() - 1].1 };
    let last = points[after - 1];
    last.1 + (next.1 - last.1) * (at - last.0 as f64) / (next.0 - last.0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_at_equal_steps_however_points_lie() {
        let mut track = Track::new(1_000_000_000);
        // 10 per second, looked at whenever.
        for ms in [0_u64, 900, 2100, 2900, 4000] {
            track.push(ms * 1_000_000, vec![Some(ms as f64 / 100.0), None]);
        }
        assert_eq!(track.steps(0, 4_000_000_000), 4);
        let rates = track.rates(0, 0, 4_000_000_000, 4);
        assert!(rates.iter().all(|rate| (rate - 10.0).abs() < 1e-9), "{rates:?}");
        assert!(track.rates(1, 0, 4_000_000_000, 4).is_empty());
        assert!(track.rates(2, 0, 4_000_000_000, 4).is_empty());
        // A stretch in the middle.
        let rates = track.rates(0, 1_000_000_000, 3_000_000_000, 1);
        assert!((rates[0] - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_long_run_keeps_its_whole_story_in_bounded_memory() {
        let mut track = Track::new(100);
        let mut taken = 0;
        for now in (0..1_000_000_u64).step_by(10) {
            if track.wants(now) {
                track.push(
                    now,
                    vec![Some(if now < 500_000 { 0.0 } else { (now - 500_000) as f64 })],
                );
                taken += 1;
            }
            assert!(track.points.len() <= POINTS_MAX);
        }
        assert!(taken < 3000, "{taken}: points are taken more rarely");
        let (begin, end) = track.span().unwrap();
        assert!(begin == 0 && end > 980_000, "{begin} {end}");
        let steps = track.steps(begin, end);
        assert!((60..=STEPS_MAX).contains(&steps), "{steps}");
        let rates = track.rates(0, begin, end, steps);
        assert_eq!(rates.len(), steps);
        assert!(rates[..steps / 2 - 2].iter().all(|rate| *rate == 0.0));
        assert!(rates[steps / 2 + 2..].iter().all(|rate| (rate / 1e9 - 1.0).abs() < 0.01));
    }

    #[test]
    fn too_little_is_no_series() {
        let mut track = Track::new(1);
        assert_eq!(track.span(), None);
        track.push(5, vec![Some(1.0)]);
        track.push(5, vec![Some(2.0)]);
        assert_eq!(track.span(), Some((5, 5)));
        assert!(track.rates(0, 5, 5, 1).is_empty());
    }
}
