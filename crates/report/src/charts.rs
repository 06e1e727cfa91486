//! Charts, as inline SVG that takes its colours from the style sheet of pages.
//!
//! Invariant: every drawing escapes its own texts; it has a title and a description. Called by
//! `html`, `sections` and the pages of predictions and of published figures.

pub(crate) mod bars;
pub(crate) mod distribution;
pub(crate) mod heat_map;
pub(crate) mod lines;
pub(crate) mod scatter;
