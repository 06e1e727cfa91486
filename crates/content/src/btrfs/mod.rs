//! btrfs.

pub mod superblock;

pub use superblock::Superblock;
