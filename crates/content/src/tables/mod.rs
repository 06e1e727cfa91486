//! Partition tables and LVM's label: what divides a device for others.

pub mod gpt;
mod known;
pub mod lvm;
pub mod mbr;

pub use known::{Found, Region, Table, decode};
