//! Predicted against measured figures, as inline SVG.
//!
//! Invariant: both axes are logarithmic and alike; on the diagonal both figures are equal. Called
//! by `predicted`.

use spec::units::digits;

use super::svg::Svg;

/// Side of a chart, and its margin.
const SIDE: f64 = 460.0;
const MARGIN: f64 = 56.0;

/// A point in the chart's unit.
pub(crate) struct Dot<'a> {
    pub(crate) name: &'a str,
    pub(crate) scored: bool,
    pub(crate) colour: usize,
    pub(crate) measured: f64,
    pub(crate) predicted: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// All points of one unit.
pub(crate) fn scatter(title: &str, dots: &[Dot<'_>]) -> String {
    let lowest = dots.iter().map(|dot| dot.measured.min(dot.low)).fold(f64::INFINITY, f64::min);
    let highest = dots.iter().map(|dot| dot.measured.max(dot.high)).fold(0.0, f64::max);
    let (low, high) = (lowest / 1.2, highest * 1.2);
    let length = |value: f64| (value / low).ln() / (high / low).ln() * (SIDE - 2.0 * MARGIN);
    let x = |value: f64| MARGIN + length(value);
    let y = |value: f64| SIDE - MARGIN - length(value);
    let desc = format!("{} points; the table below has the same figures", dots.len());
    let mut svg = Svg::new(title, &desc);
    let end = SIDE - MARGIN;
    for mark in marks(low, high) {
        svg.line("grid", (x(mark), MARGIN), (x(mark), end));
        svg.line("grid", (MARGIN, y(mark)), (end, y(mark)));
        svg.text("tick", x(mark), end + 18.0, &digits(mark));
        svg.text("value plain", MARGIN - 6.0, y(mark) + 4.0, &digits(mark));
    }
    svg.line("diagonal dashed", (x(low), y(low)), (x(high), y(high)));
    for dot in dots {
        let (at, colour) = (x(dot.measured), dot.colour);
        let faint = if dot.scored { "" } else { " faint" };
        let tooltip = format!(
            "{}: measured {}, predicted {} ({} to {})",
            dot.name,
            digits(dot.measured),
            digits(dot.predicted),
            digits(dot.low),
            digits(dot.high)
        );
        svg.line(&format!("interval c{colour}{faint}"), (at, y(dot.low)), (at, y(dot.high)));
        let class = format!("point c{colour}{faint}");
        svg.dot(&class, (at, y(dot.predicted)), 3.5, Some(&tooltip));
    }
    svg.text("tick", SIDE / 2.0, SIDE - 12.0, "measured");
    svg.text("tick", MARGIN, MARGIN - 14.0, "predicted");
    svg.finish(SIDE, SIDE)
}

/// 1, 2 and 5 of each decade between two values; 1 alone where there are many.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let steps: &[f64] = if (high / low).log10() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    all.filter(|mark| (low..=high).contains(mark)).collect()
}
