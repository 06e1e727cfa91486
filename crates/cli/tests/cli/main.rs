//! The program from outside: what it prints, writes and returns, and what it leaves behind.
//!
//! Nothing here asserts a speed, but that a bus slows paced members down.

mod across_hosts;
mod activated;
mod buying;
mod calibrate;
mod compatibility;
mod copies;
mod corpus;
mod create;
mod detail;
mod devices;
mod diagnose;
mod documents;
mod dump;
mod examine;
mod file_systems;
mod findings;
mod foreign;
mod fronts;
mod guess;
mod help;
mod kernels;
mod killed_servers;
mod latencies;
#[path = "../shared/lvm.rs"]
mod lvm;
mod matrix;
mod misuse;
mod model_time;
mod moments;
mod orders;
mod outputs;
mod own_disks;
mod partitions;
mod placed;
mod places;
mod predict;
mod programs;
mod reading_verbs;
mod rebuild;
mod reference;
mod reshape;
mod results;
mod resumed;
mod safety;
mod scrub;
mod serve;
mod shown;
mod signals;
mod support;
#[path = "../shared/tables.rs"]
mod tables;
mod traffic;
mod two_arrays;
mod two_places;
mod volumes;
mod watch;
mod whole_disks;
mod zero_superblock;
