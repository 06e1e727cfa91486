//! A drawing under construction, and the scales of all charts.
//!
//! Invariant: every text in a drawing is escaped here.

use std::fmt::Write;

/// Width of a drawing, in SVG units; the page scales it.
pub(super) const WIDTH: f64 = 620.0;

/// An SVG document under construction.
pub(super) struct Svg {
    title: String,
    desc: String,
    body: String,
}

impl Svg {
    pub(super) fn new(title: &str, desc: &str) -> Svg {
        Svg { title: escape(title), desc: escape(desc), body: String::new() }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(element);
    }

    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.push(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Lines from point to point, with an optional tooltip.
    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)], tooltip: Option<&str>) {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let (points, title) = (points.collect::<Vec<_>>().join(" "), title(tooltip));
        self.push(format_args!(
            "<polyline class=\"{class}\" points=\"{points}\">{title}</polyline>"
        ));
    }

    /// A dot with an optional tooltip.
    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: Option<&str>) {
        let ((x, y), title) = (at, title(tooltip));
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\">{title}</circle>"
        ));
    }

    pub(super) fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64)) {
        self.field(class, at, size, 1.0);
    }

    /// A rectangle whose colour is as strong as `share`, 0 to 1.
    pub(super) fn field(&mut self, class: &str, at: (f64, f64), size: (f64, f64), share: f64) {
        let ((x, y), (width, height)) = (at, size);
        let opacity = match share < 1.0 {
            true => format!(" fill-opacity=\"{share:.2}\""),
            false => String::new(),
        };
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"{opacity}/>"
        ));
    }

    /// The document.
    pub(super) fn finish(self, width: f64, height: f64) -> String {
        let Svg { title, desc, body } = self;
        format!(
            "<svg role=\"img\" viewBox=\"0 0 {width} {height:.0}\"><title>{title}</title>\
             <desc>{desc}</desc>{body}</svg>"
        )
    }
}

fn title(tooltip: Option<&str>) -> String {
    tooltip.map(|text| format!("<title>{}</title>", escape(text))).unwrap_or_default()
}

/// A scale from values to lengths.
pub(super) struct Axis {
    /// Round values, with their labels.
    pub(super) ticks: Vec<(f64, String)>,
    from: f64,
    to: f64,
    logarithmic: bool,
    length: f64,
}

impl Axis {
    pub(super) fn none() -> Axis {
        Axis { ticks: Vec::new(), from: 0.0, to: 1.0, logarithmic: false, length: 0.0 }
    }

    /// From 0 to `top` or a little more, over `length`, with round ticks.
    pub(super) fn linear(top: f64, length: f64) -> Axis {
        let top = if top > 0.0 { top } else { 1.0 };
        let power = 10_f64.powf((top / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| step * 4.5 >= top).unwrap_or(10.0 * power);
        let count = (top / step).floor() as usize;
        let digits = (-step.log10().floor()).max(0.0) as usize
            + usize::from((step / power - 2.5).abs() < 1e-9 && step < 10.0);
        let tick = |at: usize| (at as f64 * step, format!("{:.digits$}", at as f64 * step));
        let ticks = (0..=count).map(tick).collect();
        Axis { ticks, from: 0.0, to: top * 1.02, logarithmic: false, length }
    }

    /// Whole powers of ten around both ends, over `length`.
    pub(super) fn logarithmic(low: f64, high: f64, length: f64) -> Axis {
        let from = 10_f64.powf(low.max(0.1).log10().floor());
        let to = 10_f64.powf(high.max(low.max(0.1)).log10().ceil()).max(from * 10.0);
        let (mut ticks, mut at) = (Vec::new(), from);
        while at <= to * 1.001 {
            let label = match at {
                _ if at >= 999_999.0 => format!("{:.0} s", at / 1e6),
                _ if at >= 999.0 => format!("{:.0} ms", at / 1e3),
                _ if at >= 0.99 => format!("{at:.0} us"),
                _ => format!("{at:.1} us"),
            };
            ticks.push((at, label));
            at *= 10.0;
        }
        Axis { ticks, from, to, logarithmic: true, length }
    }

    /// Position of a value, from 0 to the length.
    pub(super) fn length(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            value / self.to
        };
        share.clamp(0.0, 1.0) * self.length
    }
}

/// Labels have room for some 25 characters; the tables have them in full.
pub(super) fn shorten(label: &str) -> String {
    first_of(label, 25)
}

pub(super) fn first_of(label: &str, room: usize) -> String {
    if label.chars().count() <= room {
        return label.to_string();
    }
    label.chars().take(room - 1).chain(['…']).collect()
}

/// Text escaped for XML and HTML, in content and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML at all.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let table: [(f64, &[&str]); 6] = [
            (330.0, &["0", "100", "200", "300"]),
            (82.0, &["0", "20", "40", "60", "80"]),
            (4.2, &["0", "1", "2", "3", "4"]),
            (0.7, &["0.0", "0.2", "0.4", "0.6"]),
            (10.5, &["0.0", "2.5", "5.0", "7.5", "10.0"]),
            (0.0, &["0.00", "0.25", "0.50", "0.75", "1.00"]),
        ];
        for (top, ticks) in table {
            let axis = Axis::linear(top, 318.0);
            let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
            assert_eq!(labels, ticks, "{top}");
            assert!(axis.length(top) <= 318.0);
        }
    }

    #[test]
    fn logarithmic_ends_are_powers_of_ten() {
        let axis = Axis::logarithmic(80.0, 2_500_000.0, 318.0);
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
        assert_eq!(axis.length(10.0), 0.0);
        assert_eq!(Axis::logarithmic(0.0, 0.0, 318.0).ticks.len(), 2);
    }

    #[test]
    fn what_xml_forbids_does_not_come_through() {
        assert_eq!(
            escape("a<b> & \"c\" 'd'\u{1}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}"
        );
        assert_eq!(shorten("raid1(raid0(2),raid0(2)) 64KiB").chars().count(), 25);
    }
}
