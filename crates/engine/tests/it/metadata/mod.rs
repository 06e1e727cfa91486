//! The guarantees of the metadata manager, one test each: which metadata are durable on the members
//! before it answers.

mod bits;
mod clean_and_dirty;
mod failures;
mod harness;
mod in_progress;
mod no_space;
mod replacements;
mod resync;
mod resync_loop;
