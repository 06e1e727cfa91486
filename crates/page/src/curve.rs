//! Values over time, in a bounded number of points.
//!
//! ```text
//!   every point --> every 2nd (means of two) --> every 4th ...     all of the time: whole
//!   every point, the oldest dropped                                the last of it: recent
//! ```
//! Invariant: at most [`Curve::MOST`] points; a point is the mean of what it stands for.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

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
    times: Vec<f32>,
    series: Vec<Series>,
    /// Points that one stands for.
    each: u32,
    /// Sums of the point that is not complete: the time, and sum and number of each series.
    part: Vec<(f64, u32)>,
    in_part: u32,
    /// The oldest are dropped, instead of two being made one.
    recent: bool,
}

impl Curve {
    /// Points at most.
    pub const MOST: usize = 240;

    /// A curve of all of the time.
    pub fn whole(names: &[&'static str]) -> Curve {
        let series = |name: &&'static str| Series { name, values: Vec::new() };
        Curve {
            series: names.iter().map(series).collect(),
            each: 1,
            part: vec![(0.0, 0); names.len() + 1],
            ..Curve::default()
        }
    }

    /// A curve of the last points.
    pub fn recent(names: &[&'static str]) -> Curve {
        Curve { recent: true, ..Curve::whole(names) }
    }

    /// Adds a point.
    ///
    /// # Panics
    /// When there is not one value for each series.
    pub fn push(&mut self, seconds: f64, values: &[Option<f64>]) {
        assert_eq!(values.len(), self.series.len(), "one value for each series");
        let all = std::iter::once(Some(seconds)).chain(values.iter().copied());
        for ((sum, count), value) in self.part.iter_mut().zip(all) {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                *sum += value;
                *count += 1;
            }
        }
        self.in_part += 1;
        if self.in_part < self.each {
            return;
        }
        let mut means = self.part.iter_mut().map(|(sum, count)| {
            let mean = (*count > 0).then(|| (*sum / f64::from(*count)) as f32);
            (*sum, *count) = (0.0, 0);
            mean
        });
        let time = means.next().flatten().unwrap_or_default();
        let values: Vec<Option<f32>> = means.collect();
        self.in_part = 0;
        self.times.push(time);
        self.series.iter_mut().zip(values).for_each(|(series, value)| series.values.push(value));
        if self.times.len() > Curve::MOST {
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
        let mean = |pair: &[f32]| pair.iter().sum::<f32>() / pair.len() as f32;
        self.times = self.times.chunks(2).map(mean).collect();
        for series in &mut self.series {
            let of_pair = |pair: &[Option<f32>]| {
                let there: Vec<f32> = pair.iter().flatten().copied().collect();
                (!there.is_empty()).then(|| mean(&there))
            };
            series.values = series.values.chunks(2).map(of_pair).collect();
        }
        self.each *= 2;
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
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
        let times: Vec<f32> =
            self.times.iter().map(|time| (time * 100.0).round() / 100.0).collect();
        out.serialize_field("times", &times)?;
        let values = |series: &Series| {
            series.values.iter().map(|value| value.map(short)).collect::<Vec<_>>()
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
        let mut curve = Curve::whole(&["a", "b"]);
        for at in 0..10_000 {
            curve.push(f64::from(at), &[Some(f64::from(at % 2)), None]);
        }
        assert!(curve.len() > Curve::MOST / 2 - 1 && curve.len() <= Curve::MOST, "{}", curve.len());
        assert!(curve.times[0] < 100.0 && *curve.times.last().unwrap() > 9_800.0);
        let mean = curve.series[0].values.iter().flatten().sum::<f32>() / curve.len() as f32;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert!(curve.series[1].values.iter().all(Option::is_none));
    }

    #[test]
    fn a_recent_curve_has_the_last_points() {
        let mut curve = Curve::recent(&["a"]);
        for at in 0..1000 {
            curve.push(f64::from(at), &[Some(f64::NAN)]);
        }
        assert_eq!((curve.len(), curve.times[0]), (Curve::MOST, (1000 - Curve::MOST) as f32));
        let json = serde_json::to_value(&curve).unwrap();
        assert!(json["series"][0]["values"][3].is_null(), "what is no number is not shown");
    }

    #[test]
    fn values_are_written_with_three_digits() {
        let shown: Vec<f32> = [0.0, 1234.5, 0.001_234_5, -98.76].map(short).to_vec();
        assert_eq!(shown, [0.0, 1230.0, 0.001_23, -98.8]);
    }
}
