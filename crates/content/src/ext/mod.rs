//! ext2, ext3 and ext4.

pub mod superblock;

pub use superblock::Superblock;
