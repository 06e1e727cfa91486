//! The tests of drive models from outside, in one binary: it is built and linked once.

mod closed_loop;
mod published;
mod rig;
mod single_drive;
