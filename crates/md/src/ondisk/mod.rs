//! Linux md's on-disk structures: bytes to plain values and back.
//!
//! `docs/format` is normative for every offset; a test compares its tables with the constants here.
//! Each structure has field ranges, a decoder that takes any bytes and never panics, a plain value,
//! and an encoder; nothing here reads or writes a member.

pub mod bad_blocks;
pub mod bitmap;
mod crc;
mod error;
mod field;
pub mod journal;
mod metadata;
pub mod ppl;
pub mod reshape_backup;
pub mod superblock;
mod update;
mod uuid;

pub use error::DecodeError;
pub use field::Field;
pub(crate) use field::fields;
pub use metadata::{
    Area, BadBlockArea, ForeignVolume, MemberMetadata, PplArea, ReshapeState, Role, Timestamp,
    Version,
};
pub use update::{MetadataEncoder, UpdateError, Write};
pub use uuid::Uuid;
