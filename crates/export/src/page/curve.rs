//! Values over time, in a bounded number of points.
//!
//! ```text
//!   every point --> every 2nd (means of two) --> every 4th ...     all of the time: whole
//!   every point, the oldest dropped                                the last of it: recent
//! ```
//! Invariant: at most [`Curve::MOST`] points; a point is the mean of what it stands for, and never
//! of what is before a pause and what is behind it: a pause is a gap.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A pause is longer than this number of intervals.
const PAUSE_INTERVALS: f64 = 3.0;

/// A named row of a curve: values at its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Series {
    /// Its name.
    name: &'static str,
    /// A value for each time; `None`: there is none.
    values: Vec<Option<f32>>,
}

/// Values of several series over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Seconds of the points.
    times: Vec<f64>,
    series: Vec<Series>,
    /// Seconds between two values, as they usually come.
    interval: f64,
    /// Values that a point stands for.
    each: u32,
    /// Sums of the point that is not complete: the time, and sum and number of each series.
    part: Vec<(f64, u32)>,
    in_part: u32,
    /// When the last value came.
    last: Option<f64>,
    /// The oldest are dropped, instead of two being made one.
    recent: bool,
}

impl Curve {
    /// Points at most.
    pub const MOST: usize = 240;

    /// A curve of all of the time; `interval`: seconds between two values.
    pub fn whole(names: &[&'static str], interval: f64) -> Curve {
        let series = |name: &&'static str| Series { name, values: Vec::new() };
        Curve {
            series: names.iter().map(series).collect(),
            interval,
            each: 1,
            part: vec![(0.0, 0); names.len() + 1],
            ..Curve::default()
        }
    }

    /// A curve of the last points.
    pub fn recent(names: &[&'static str], interval: f64) -> Curve {
        Curve { recent: true, ..Curve::whole(names, interval) }
    }

    /// Adds values; their times grow.
    ///
    /// # Panics
    /// When there is not one value for each series.
    pub fn push(&mut self, seconds: f64, values: &[Option<f64>]) {
        assert_eq!(values.len(), self.series.len(), "one value for each series");
        if self.last.is_some_and(|last| self.is_pause(last, seconds)) {
            self.end_point();
        }
        self.last = Some(seconds);
        let all = std::iter::once(Some(seconds)).chain(values.iter().copied());
        for ((sum, count), value) in self.part.iter_mut().zip(all) {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                *sum += value;
                *count += 1;
            }
        }
        self.in_part += 1;
        if self.in_part >= self.each {
            self.end_point();
        }
    }

    /// Whether there is a pause between points at these times.
    fn is_pause(&self, before: f64, after: f64) -> bool {
        after - before > PAUSE_INTERVALS * self.interval * f64::from(self.each)
    }

    /// Makes a point of the values since the last one.
    fn end_point(&mut self) {
        if self.in_part == 0 {
            return;
        }
        self.in_part = 0;
        let mut means = self.part.iter_mut().map(|(sum, count)| {
            let mean = (*count > 0).then(|| *sum / f64::from(*count));
            (*sum, *count) = (0.0, 0);
            mean
        });
        let time = means.next().flatten().unwrap_or_default();
        for (series, value) in self.series.iter_mut().zip(means) {
            series.values.push(value.map(|value| value as f32));
        }
        self.times.push(time);
        while self.times.len() > Curve::MOST {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        if self.recent {
            self.times.remove(0);
            for series in &mut self.series {
                series.values.remove(0);
            }
            return;
        }
        // Between more pauses than half of the points, one more doubling makes them shorter.
        self.each *= 2;
        let old = std::mem::take(&mut self.times);
        let mut groups: Vec<&[f64]> = Vec::with_capacity(old.len());
        let mut rest = &old[..];
        while let [first, after @ ..] = rest {
            let is_pair = after.first().is_some_and(|second| !self.is_pause(*first, *second));
            let (group, others) = rest.split_at(if is_pair { 2 } else { 1 });
            groups.push(group);
            rest = others;
        }
        for series in &mut self.series {
            let mut values = std::mem::take(&mut series.values).into_iter();
            let of_group = |group: &&[f64]| {
                let there: Vec<f32> = values.by_ref().take(group.len()).flatten().collect();
                (!there.is_empty()).then(|| there.iter().sum::<f32>() / there.len() as f32)
            };
            series.values = groups.iter().map(of_group).collect();
        }
        let mean = |group: &&[f64]| group.iter().sum::<f64>() / group.len() as f64;
        self.times = groups.iter().map(mean).collect();
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// For each point that is shown its time, and which it is; `None`: in a pause, without values.
    fn shown(&self) -> Vec<(f64, Option<usize>)> {
        let mut shown = Vec::with_capacity(self.times.len());
        for (at, &time) in self.times.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| self.times[before]);
            if let Some(before) = before.filter(|before| self.is_pause(*before, time)) {
                shown.push(((before + time) / 2.0, None));
            }
            shown.push((time, Some(at)));
        }
        shown
    }
}

/// Three digits are as much as a chart shows.
fn short(value: f32) -> f32 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - f64::from(value.abs()).log10().ceil() as i32);
    ((f64::from(value) * scale).round() / scale) as f32
}

impl Serialize for Curve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Curve", 2)?;
        let shown = self.shown();
        let times: Vec<f64> =
            shown.iter().map(|(time, _)| (time * 100.0).round() / 100.0).collect();
        out.serialize_field("times", &times)?;
        let values = |series: &Series| {
            let value = |&(_, at): &(f64, Option<usize>)| at.and_then(|at| series.values[at]);
            shown.iter().map(|one| value(one).map(short)).collect::<Vec<_>>()
        };
        let series: Vec<Series> = self
            .series
            .iter()
            .map(|series| Series { name: series.name, values: values(series) })
            .collect();
        out.serialize_field("series", &series)?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_curve_keeps_its_ends_and_its_mean() {
        let mut curve = Curve::whole(&["a", "b"], 1.0);
        for at in 0..10_000 {
            curve.push(f64::from(at), &[Some(f64::from(at % 2)), None]);
        }
        assert!(curve.len() > Curve::MOST / 2 - 1 && curve.len() <= Curve::MOST, "{}", curve.len());
        assert!(curve.times[0] < 100.0 && *curve.times.last().unwrap() > 9_800.0);
        let mean = curve.series[0].values.iter().flatten().sum::<f32>() / curve.len() as f32;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert!(curve.series[1].values.iter().all(Option::is_none));
        assert!(curve.shown().iter().all(|(_, at)| at.is_some()), "there was no pause");
    }

    #[test]
    fn a_recent_curve_has_the_last_points() {
        let mut curve = Curve::recent(&["a"], 1.0);
        for at in 0..1000 {
            curve.push(f64::from(at), &[Some(f64::NAN)]);
        }
        assert_eq!((curve.len(), curve.times[0]), (Curve::MOST, (1000 - Curve::MOST) as f64));
        let json = serde_json::to_value(&curve).unwrap();
        assert!(json["series"][0]["values"][3].is_null(), "what is no number is not shown");
    }

    #[test]
    fn values_are_written_with_three_digits() {
        let shown: Vec<f32> = [0.0, 1234.5, 0.001_234_5, -98.76].map(short).to_vec();
        assert_eq!(shown, [0.0, 1230.0, 0.001_23, -98.8]);
    }

    #[test]
    fn times_are_as_exact_after_months() {
        let mut curve = Curve::recent(&["a"], 0.25);
        let begin = 90.0 * 86_400.0;
        for at in 0..8 {
            curve.push(begin + f64::from(at) / 4.0, &[Some(1.0)]);
        }
        let json = serde_json::to_value(&curve).unwrap();
        let times: Vec<f64> =
            json["times"].as_array().unwrap().iter().flat_map(|it| it.as_f64()).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 0.25), "{times:?}");
    }

    /// Values and gaps, as they are drawn: `..-..`.
    fn drawn(curve: &Curve) -> String {
        curve.shown().iter().map(|(_, at)| if at.is_some() { '.' } else { '-' }).collect()
    }

    #[test]
    fn a_pause_is_a_gap() {
        for make in [Curve::recent, Curve::whole] {
            let mut curve = make(&["a"], 0.5);
            for time in [0.0, 0.5, 1.0, 2.5, 2.8, 4.5, 60.0, 60.5] {
                curve.push(time, &[Some(time)]);
            }
            assert_eq!(drawn(&curve), ".....-.-..", "more than 1.5 s");
            let json = serde_json::to_value(&curve).unwrap();
            assert_eq!(json["times"][5], 3.65, "in the middle");
            assert!(json["series"][0]["values"][5].is_null());
            assert_eq!(json["series"][0]["values"].as_array().map(Vec::len), Some(10));
        }
    }

    #[test]
    fn what_is_before_a_pause_is_no_part_of_what_is_behind_it() {
        let mut curve = Curve::whole(&["a"], 1.0);
        let mut time = 0.0;
        // An odd number of points between pauses: pairs would span them.
        for run in 0..60 {
            for _ in 0..101 {
                curve.push(time, &[Some(f64::from(run))]);
                time += 1.0;
            }
            time += 10_000.0;
        }
        assert!(curve.len() <= Curve::MOST);
        assert_eq!(drawn(&curve).matches('-').count(), 59);
        let values = curve.series[0].values.iter().flatten();
        assert!(values.clone().all(|value| value.fract() == 0.0), "none is of two runs");
        // More pauses than points: the short ones are no longer gaps.
        for run in 0..10_000 {
            curve.push(time + f64::from(run) * 40.0, &[Some(1.0)]);
        }
        assert!(curve.len() <= Curve::MOST, "{}", curve.len());
    }
}
