//! The FUSE front, as programs meet it. The module's name is what `cargo xtask ci` requires to run.

mod file;
mod mounted;
