//! Curves along an axis (number of disks, chunk), as inline SVG.
//!
//! Invariant: the vertical scale begins at 0; places on the axis are those that were measured, at
//! equal distances; every point says its figure when pointed at. Called by `html`.

use std::fmt::Write;

use spec::units;

use super::bars::{Scale, escape};
use crate::runs::Curve;

const LEFT: f64 = 52.0;
const RIGHT: f64 = 424.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 236.0;
const WIDTH: f64 = 620.0;
/// Colours in the style sheet; further curves reuse them, dashed.
const COLOURS: usize = 8;
const LEGEND_STEP: f64 = 19.0;

/// All curves of one workload. `axis`: what the places are, for the heading below.
pub(crate) fn lines(title: &str, axis: &str, curves: &[&Curve]) -> String {
    let mut places: Vec<u64> =
        curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    places.sort_unstable();
    places.dedup();
    let top = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let scale = Scale::linear(top.fold(0.0, f64::max), BOTTOM - TOP);
    let step = (RIGHT - LEFT - 24.0) / (places.len().max(2) - 1) as f64;
    let x = |place: u64| {
        let at = places.iter().position(|known| *known == place).unwrap_or(0);
        LEFT + 12.0 + at as f64 * step
    };
    let y = |value: f64| BOTTOM - scale.length(value);
    // Writing to a String cannot fail.
    let mut body = scale.horizontal_lines(LEFT..RIGHT, &y);
    for place in &places {
        let _ = write!(
            body,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{place}</text>",
            x(*place),
            BOTTOM + 16.0
        );
    }
    let _ = write!(
        body,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 33.0,
        escape(axis)
    );
    for (index, curve) in curves.iter().enumerate() {
        one(&mut body, index, curve, &x, &y);
    }
    let height = (BOTTOM + 40.0).max(TOP + 10.0 + curves.len() as f64 * LEGEND_STEP);
    let desc = "One line for each array; each point is a median, its figure shows when it is \
                pointed at. The table below has all of them, and what each step adds.";
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\"><title>{}</title>\
         <desc>{desc}</desc>{body}</svg>",
        escape(title)
    )
}

fn one(
    body: &mut String,
    index: usize,
    curve: &Curve,
    x: &dyn Fn(u64) -> f64,
    y: &dyn Fn(f64) -> f64,
) {
    let class = format!("c{}{}", index % COLOURS, if index < COLOURS { "" } else { " dashed" });
    let points =
        curve.points.iter().map(|(place, value)| format!("{:.1},{:.1}", x(*place), y(*value)));
    let points = points.collect::<Vec<_>>().join(" ");
    let _ = write!(body, "<polyline class=\"curve {class}\" points=\"{points}\"/>");
    for (place, value) in &curve.points {
        let tooltip = format!("{}: {place}: {} {}", curve.label, units::digits(*value), curve.unit);
        let _ = write!(
            body,
            "<circle class=\"point {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.4\">\
             <title>{}</title></circle>",
            x(*place),
            y(*value),
            escape(&tooltip)
        );
    }
    let at = TOP + 4.0 + index as f64 * LEGEND_STEP;
    let (from, to) = (RIGHT + 12.0, RIGHT + 32.0);
    let _ = write!(
        body,
        "<line class=\"curve {class}\" x1=\"{from}\" y1=\"{at}\" x2=\"{to}\" y2=\"{at}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        to + 6.0,
        at + 4.0,
        escape(&super::bars::shorten(&curve.label))
    );
}
