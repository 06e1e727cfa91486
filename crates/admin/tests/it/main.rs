//! The tests of administration from outside, in one binary: it is built and linked once.
//! Modules called `in_shards` repeat some of them with several shards.

mod creation;
mod golden;
mod lasting;
mod making;
mod rescue;
mod reshape;
