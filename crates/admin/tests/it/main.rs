//! The tests of administration from outside, in one binary: it is built and linked once.
//! `in_shards` repeats some of them.

mod creation;
mod golden;
mod lasting;
mod making;
mod rescue;
