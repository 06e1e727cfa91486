//! Curves along an axis (number of disks, chunk), as inline SVG.
//!
//! Invariant: the vertical scale begins at 0; places on the axis are those that were measured, at
//! equal distances; every point says its figure when pointed at. Called by `sections`.

use spec::units;

use super::frame::{Frame, HEIGHT, LEFT, RIGHT};
use super::svg::Axis;
use crate::runs::Curve;

/// All curves of one workload. `axis`: what the places are, for the heading below.
pub(crate) fn lines(title: &str, axis: &str, places: &[u64], curves: &[&Curve]) -> String {
    let top = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let scale = Axis::linear(top.fold(0.0, f64::max), HEIGHT);
    let desc = "One line for each array; each point is a median, its figure shows when it is \
                pointed at. The table below has all of them, and what each step adds.";
    let mut frame = Frame::new(title, desc, axis, scale);
    let step = (RIGHT - LEFT - 24.0) / (places.len().max(2) - 1) as f64;
    let x = |place: u64| {
        let at = places.iter().position(|known| *known == place).unwrap_or(0);
        LEFT + 12.0 + at as f64 * step
    };
    places.iter().for_each(|place| frame.label(x(*place), &place.to_string()));
    for Curve { label, unit, points, .. } in curves {
        let dots = points
            .iter()
            .map(|(place, value)| format!("{label}: {place}: {} {unit}", units::digits(*value)));
        let dots: Vec<String> = dots.collect();
        let points: Vec<(f64, f64)> =
            points.iter().map(|(place, value)| (x(*place), *value)).collect();
        frame.curve(label, &points, None, &dots);
    }
    frame.finish()
}
