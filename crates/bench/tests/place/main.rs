//! File systems of the kernel on arrays of the engine. The module's name is what `cargo xtask ci`
//! requires to run.

mod mounted;
