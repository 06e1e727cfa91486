//! NTFS.

pub mod boot;
mod known;
mod predict;
pub mod record;
mod runs;

pub use boot::Boot;
pub use known::Ntfs;
