//! Codecs against arbitrary bytes: valid starting points, and seeded mutations of them.
//!
//! `RAIDLAB_TEST=all` runs a hundred times more. For minutes or hours there is
//! `cargo run --release -p raidlab-md --example md_fuzz`.

mod codecs;
mod targets;
