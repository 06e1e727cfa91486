//! NTFS.

pub mod boot;
pub mod record;

pub use boot::Boot;
