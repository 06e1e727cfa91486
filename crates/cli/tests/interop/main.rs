//! raidlab beside the real Linux md and mdadm, which run in a virtual machine.
//!
//! Everything that boots is below `with_the_kernel`: CI fails when one of these tests is skipped.
//! `docs/interop.md` says what is proven, and what the matrix leaves out and why.

mod guest;
mod killed;
mod matrix;
mod ours;
mod prepared;
mod program;
mod reader;
mod scratch;
mod with_the_kernel;
