//! Partition tables and LVM's label: what divides a device for others.

pub mod gpt;
pub mod lvm;
pub mod mbr;
