//! XFS.

mod check;
mod headers;
mod inode;
mod known;
mod predict;
pub mod superblock;
mod tree;

pub use known::Xfs;
pub use superblock::Superblock;
