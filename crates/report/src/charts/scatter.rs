//! Predicted against measured figures, as inline SVG.
//!
//! Invariant: both axes are logarithmic and alike; on the diagonal both figures are equal. Called by
//! `predicted`.

use spec::units::digits;

use super::bars::escape;
use crate::predicted::Point;

/// Side of a chart, and its margin.
const SIDE: f64 = 460.0;
const MARGIN: f64 = 56.0;

/// A point in the chart's unit.
pub(crate) struct Dot<'a> {
    point: &'a Point,
    colour: usize,
    measured: f64,
    predicted: f64,
    low: f64,
    high: f64,
}

impl Dot<'_> {
    pub(crate) fn of(point: &Point, colour: usize) -> Option<Dot<'_>> {
        let rate = point.to_rate?;
        let all = [point.measured, point.predicted, point.low, point.high].map(|one| one * rate);
        let [measured, predicted, low, high] = all;
        let drawn = all.iter().all(|one| one.is_finite() && *one > 0.0);
        drawn.then_some(Dot { point, colour, measured, predicted, low, high })
    }
}

/// All points of one unit.
pub(crate) fn scatter(title: &str, dots: &[Dot<'_>]) -> String {
    let lowest = dots.iter().map(|dot| dot.measured.min(dot.low)).fold(f64::INFINITY, f64::min);
    let highest = dots.iter().map(|dot| dot.measured.max(dot.high)).fold(0.0, f64::max);
    let (low, high) = (lowest / 1.2, highest * 1.2);
    let length = |value: f64| (value / low).ln() / (high / low).ln() * (SIDE - 2.0 * MARGIN);
    let x = |value: f64| MARGIN + length(value);
    let y = |value: f64| SIDE - MARGIN - length(value);
    let mut out = format!(
        "<svg viewBox=\"0 0 {SIDE} {SIDE}\" role=\"img\" aria-label=\"{}\"><title>{}</title>\
         <desc>{} points; the table below has the same figures</desc>",
        escape(title),
        escape(title),
        dots.len()
    );
    let text = |x: f64, y: f64, anchor: &str, words: &str| {
        format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"12\" \
             fill=\"var(--soft)\">{words}</text>"
        )
    };
    for mark in marks(low, high) {
        let (at_x, at_y, end) = (x(mark), y(mark), SIDE - MARGIN);
        out += &format!(
            "<path d=\"M{at_x:.1} {MARGIN}V{end}M{MARGIN} {at_y:.1}H{end}\" stroke=\"var(--line)\" \
             fill=\"none\"/>"
        );
        out += &text(at_x, SIDE - MARGIN + 18.0, "middle", &digits(mark));
        out += &text(MARGIN - 6.0, at_y + 4.0, "end", &digits(mark));
    }
    out += &format!(
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"var(--soft)\" stroke-dasharray=\"4 3\"/>",
        x(low),
        y(low),
        x(high),
        y(high)
    );
    for dot in dots {
        let (at, opacity) = (x(dot.measured), if dot.point.scored { 0.9 } else { 0.3 });
        out += &format!(
            "<g opacity=\"{opacity}\"><title>{}: measured {}, predicted {} ({} to {})</title>\
             <path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"var(--c{})\" opacity=\"0.35\"/>\
             <circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"var(--c{})\"/></g>",
            escape(&dot.point.name),
            digits(dot.measured),
            digits(dot.predicted),
            digits(dot.low),
            digits(dot.high),
            y(dot.low),
            y(dot.high),
            dot.colour,
            y(dot.predicted),
            dot.colour,
        );
    }
    out += &text(SIDE / 2.0, SIDE - 12.0, "middle", "measured");
    out += &text(MARGIN, MARGIN - 14.0, "middle", "predicted");
    out + "</svg>"
}

/// 1, 2 and 5 of each decade between two values; 1 alone where there are many.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let steps: &[f64] = if (high / low).log10() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    all.filter(|mark| (low..=high).contains(mark)).collect()
}
