//! the metadata manager of an array's metadata: one per array, the only one that writes any.
//!
//! ```text
//! shards --Intent, Released, MemberFailed--> metadata manager --WriteMeta, Flush--> members
//!        <--Granted, Recorded, FailMember---        <--MetaDone----------
//! ```
//! The shards (the data path, one per thread) say what they are about to do; the metadata manager decides
//! what must be on the members first, and answers when it is. See `docs/design/0005-metadata manager.md` for
//! the promises and their order.

mod bits;
mod job;
mod manager;
mod types;

pub use manager::MetadataManager;
pub use types::{
    BITMAP_PAGE_BYTES, BitmapHeader, BitmapPage, DEFAULT_CHECKPOINT_NANOS, DeviceNumber,
    ManagedBitmap, ManagedDevice, MetaToken, MetadataConfig, MetadataEffect, MetadataInput,
    MetadataMode, MetadataStatus, ReadOnlyReason, Record,
};
