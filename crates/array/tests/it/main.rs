//! The tests of arrays from outside, in one binary: it is built and linked once. Modules called
//! `in_shards` repeat some of them with several shards. Beside it: `idle` and `paced`, which
//! measure the process and the clock, so that nothing may run at the same time.

mod allocation;
mod allocations;
mod api;
mod background;
mod callers;
mod common;
mod counters;
mod deadlines;
mod disassembled;
mod exports;
mod faults;
mod files;
mod lent;
mod nested_deadlines;
mod populated;
mod random;
mod rebuild;
mod scrub;
mod shards;
mod stopped;
