//! ext2, ext3 and ext4.

mod check;
mod group;
mod inode;
mod known;
mod predict;
pub mod superblock;

pub use inode::may_be as may_be_inode;
pub use known::Ext;
pub use superblock::Superblock;
