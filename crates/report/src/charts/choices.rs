//! Several things to choose from, each with a bar for each of what matters.
//!
//! ```text
//!   label     head          head          head
//!   raid6  *  =====  32 TB  ===  1.9x     ==========  1 in 900 years
//! ```
//!
//! Invariant: bars of a column share a scale that begins at 0; lengths are shares that are given.

use super::svg::{Svg, WIDTH, first_of};

/// Geometry, in SVG units.
const LABEL: f64 = 118.0;
const ROW: f64 = 23.0;
const HEAD: f64 = 22.0;
/// The longest bar; the rest of a column is for its text.
const BAR: f64 = 70.0;

/// One of them.
pub struct Choice {
    /// Its name.
    pub label: String,
    /// It is the one that is recommended.
    pub is_chosen: bool,
    /// For each column the length of its bar, 0 to 1, and its text.
    pub bars: Vec<(f64, String)>,
}

/// The drawing: a row for each choice, a column for each head; its number is the share of the width
/// that it takes.
pub fn draw(title: &str, desc: &str, heads: &[(&str, f64)], choices: &[Choice]) -> String {
    let mut svg = Svg::new(title, desc);
    let before = |at: usize| heads[..at].iter().map(|(_, share)| share).sum::<f64>();
    let left = |at: usize| LABEL + before(at) * (WIDTH - LABEL);
    for (at, (head, _)) in heads.iter().enumerate() {
        svg.text("heading", left(at), 14.0, head);
    }
    for (row, choice) in choices.iter().enumerate() {
        let y = HEAD + row as f64 * ROW;
        let class = if choice.is_chosen { "" } else { "plain" };
        svg.text(class, 0.0, y + 16.0, &first_of(&choice.label, 17));
        for (at, (share, text)) in choice.bars.iter().enumerate().take(heads.len()) {
            let length = (BAR * share.clamp(0.0, 1.0)).max(1.0);
            let class = if choice.is_chosen { "bar" } else { "bar single" };
            svg.rectangle(class, (left(at), y + 4.0), (length, ROW - 8.0));
            svg.text("plain", left(at) + length + 5.0, y + 16.0, text);
        }
    }
    svg.finish(WIDTH, HEAD + choices.len() as f64 * ROW + 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_one_has_another_colour_and_texts_are_escaped() {
        let choice = |label: &str, is_chosen| Choice {
            label: label.into(),
            is_chosen,
            bars: vec![(0.5, "32 TB".into()), (7.0, "<3".into())],
        };
        let all = [choice("raid6", true), choice("raid10", false)];
        let drawn = draw("Choices", "bars", &[("usable", 0.5), ("speed", 0.5)], &all);
        assert!(drawn.contains("class=\"bar\"") && drawn.contains("class=\"bar single\""));
        assert!(drawn.contains("&lt;3") && !drawn.contains("<3"), "{drawn}");
        assert_eq!(drawn.matches("<rect").count(), 4);
    }
}
