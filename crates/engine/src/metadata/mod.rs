//! The metadata manager: one per array, and the only writer of its metadata.
//!
//! ```text
//! shards --Intent, Released, MemberFailed--> metadata manager --WriteMeta, Flush--> members
//!        <--Granted, Recorded, FailMember---        <--MetaDone----------
//! ```
//! The shards (the data path, one per thread) announce writes and failures; the metadata manager
//! decides which metadata must be durable first, and answers when they are. See
//! `docs/design/0005-metadata-manager.md` for the guarantees and the write order.

mod bits;
mod event_counts;
mod job;
mod manager;
mod start;
mod times;
mod types;

pub use manager::MetadataManager;
pub use times::UpdateTimes;
pub use types::{
    BITMAP_PAGE_BYTES, BitmapHeader, BitmapPage, DEFAULT_BITS_AHEAD_NANOS,
    DEFAULT_CHECKPOINT_NANOS, DeviceCondition, DeviceNumber, DeviceStatus, JoinRefusal,
    ManagedBitmap, ManagedDevice, MetaToken, MetadataConfig, MetadataEffect, MetadataInput,
    MetadataMode, MetadataStatus, ReadOnlyReason, Record, RemoveRefusal, ReplaceRefusal,
};
