//! Charts, as inline SVG that takes its colours from the style sheet of pages.
//!
//! ```text
//!   svg: elements, scales -> frame: curves with a legend -> lines, distribution
//!                        \-> bars, choices, heat_map, scatter
//! ```
//!
//! Invariant: every drawing escapes its own texts; it has a title and a description. Called by
//! `html`, `sections` and the pages of predictions and of published figures.

pub(crate) mod bars;
pub mod choices;
pub(crate) mod distribution;
mod frame;
pub(crate) mod heat_map;
pub(crate) mod lines;
pub(crate) mod scatter;
mod svg;
