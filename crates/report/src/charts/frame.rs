//! The frame of charts with curves: a scale at the left, labels below, a legend at the right.
//!
//! Invariant: each curve has its own colour, or is dashed. Used by `lines` and `distribution`.

use super::svg::{Axis, Svg, WIDTH, shorten};

pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = 424.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 236.0;
/// Room for the scale.
pub(super) const HEIGHT: f64 = BOTTOM - TOP;
/// Colours in the style sheet; further curves reuse them, dashed.
const COLOURS: usize = 8;
const LEGEND_STEP: f64 = 19.0;

/// A chart under construction.
pub(super) struct Frame {
    svg: Svg,
    scale: Axis,
    curves: usize,
}

impl Frame {
    /// An empty chart; `places`: what the horizontal axis shows, `scale`: the vertical one, over
    /// [`HEIGHT`].
    pub(super) fn new(title: &str, desc: &str, places: &str, scale: Axis) -> Frame {
        let mut svg = Svg::new(title, desc);
        for (value, label) in &scale.ticks {
            let y = BOTTOM - scale.length(*value);
            svg.line("grid", (LEFT, y), (RIGHT, y));
            svg.text("value plain", LEFT - 6.0, y + 4.0, label);
        }
        svg.text("tick", (LEFT + RIGHT) / 2.0, BOTTOM + 33.0, places);
        Frame { svg, scale, curves: 0 }
    }

    /// A label below the chart.
    pub(super) fn label(&mut self, x: f64, text: &str) {
        self.svg.text("tick", x, BOTTOM + 16.0, text);
    }

    /// A label below the chart, with a line above it.
    pub(super) fn labelled_line(&mut self, x: f64, text: &str) {
        self.svg.line("grid", (x, TOP), (x, BOTTOM));
        self.label(x, text);
    }

    /// A curve of places and values, its tooltip, and a dot with a tooltip on each point that has
    /// one.
    pub(super) fn curve(
        &mut self,
        label: &str,
        points: &[(f64, f64)],
        tooltip: Option<&str>,
        dots: &[String],
    ) {
        let index = self.curves;
        self.curves += 1;
        let class = format!("c{}{}", index % COLOURS, if index < COLOURS { "" } else { " dashed" });
        let at = |(x, value): &(f64, f64)| (*x, BOTTOM - self.scale.length(*value));
        let points: Vec<(f64, f64)> = points.iter().map(at).collect();
        let line = format!("curve {class}");
        self.svg.polyline(&line, &points, tooltip);
        for (point, tooltip) in points.iter().zip(dots) {
            self.svg.dot(&format!("point {class}"), *point, 3.4, Some(tooltip));
        }
        let y = TOP + 4.0 + index as f64 * LEGEND_STEP;
        self.svg.line(&line, (RIGHT + 12.0, y), (RIGHT + 32.0, y));
        self.svg.text("", RIGHT + 38.0, y + 4.0, &shorten(label));
    }

    /// The document.
    pub(super) fn finish(self) -> String {
        let legend = TOP + 10.0 + self.curves as f64 * LEGEND_STEP;
        self.svg.finish(WIDTH, legend.max(BOTTOM + 40.0))
    }
}
