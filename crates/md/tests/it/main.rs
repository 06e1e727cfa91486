//! The tests of md from outside, in one binary: it is built and linked once.

mod assemble;
mod create;
mod format_tables;
mod fuzz;
mod golden;
mod logs;
mod mdadm;
mod member_ranges;
mod nested;
mod refusals;
mod reshape;
mod reshape_of_linux;
mod small_spaces;
mod superblock;
mod vectors;
