//! btrfs.

mod chunks;
mod known;
mod node;
mod predict;
pub mod superblock;

pub use known::Btrfs;
pub use superblock::Superblock;
