//! Pages opened in a real browser: headless Chromium, as Debian packages it.
//!
//! What needs it is below `in_a_browser`, the report, and `live_page`, the pages of `--web`: CI
//! fails when one of these tests is skipped.

mod devtools;
mod in_a_browser;
mod live_page;
