//! The report opened in a real browser: headless Chromium, as Debian packages it.
//!
//! Everything that needs it is below `in_a_browser`: CI fails when one of these tests is skipped.

mod in_a_browser;
