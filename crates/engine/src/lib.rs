//! The RAID engine: sans-io decision logic.
//!
//! Its terms are sectors, members and buffer slices; it never accesses bytes, clocks, threads or
//! files. One call, [`Shard::handle`], takes a batch of inputs and returns a batch of [`Effects`];
//! an executor (real members, a simulator, a timing model) performs them and reports completions as
//! inputs.
//!
//! *Invariant*: the engine acknowledges a write only when every copy, or the data and the parity
//! that make it recoverable, has been reported written. The engine holds no acknowledged data.
//!
//! Where to start reading: `shard` passes a request to one of two implementations below it,
//! `non_parity` (linear, RAID 0, 1, 10: locked array ranges) or `stripe` (RAID 4, 5, 6: locked
//! ranges of chunk rows with a plan for the parity). A write first needs its `intent`; the
//! `metadata` manager, one per array, decides which metadata must be written before it is granted.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod background;
mod background_loop;
mod background_run;
mod bad_block_log;
mod config;
mod effect;
mod failure_coordinator;
mod input;
mod intent_map;
mod lengths;
mod metadata;
mod mismatch;
mod pacer;
mod set;
mod shard;
mod sharding;
mod slab;
mod token;
mod walk;

pub use background::{
    BackgroundProgress, BackgroundState, BackgroundStatus, BackgroundWork, RateMeter,
};
pub use background_loop::{BackgroundEffect, BackgroundLoop, BackgroundRange, RESYNC_PARTS};
pub use background_run::BackgroundRun;
pub use bad_block_log::{BadBlockChange, BadBlockLog, BadBlockStep, LogWrite};
pub use config::{
    ConfigError, DEFAULT_MAX_REQUESTS, DEFAULT_SAFE_MODE_NANOS, DEFAULT_STRIPE_CACHE_BYTES,
    MAX_MERGE_WAIT_NANOS, ShardConfig,
};
pub use effect::{Compute, ControlEvent, Delta, Effect, Effects, Source};
pub use failure_coordinator::FailureCoordinator;
pub use input::{
    BufSlice, Control, HostOp, Input, IoError, MemberError, MemberFlags, MemberOp, REGION_ZERO,
    Request, RequestError,
};
pub use intent_map::{IntentMap, MAX_INTENT_BITS};
pub use lengths::{GRANULE_SECTORS, MAX_DISCARD_SECTORS, MAX_REQUEST_SECTORS, MAX_SPAN_SECTORS};
pub use metadata::{
    BITMAP_PAGE_BYTES, BitmapHeader, BitmapPage, DEFAULT_BITS_AHEAD_NANOS,
    DEFAULT_CHECKPOINT_NANOS, DeviceCondition, DeviceNumber, DeviceStatus, JoinRefusal,
    ManagedBitmap, ManagedDevice, MetaToken, MetadataConfig, MetadataEffect, MetadataInput,
    MetadataManager, MetadataMode, MetadataStatus, ReadOnlyReason, Record, RemoveRefusal,
    ReplaceRefusal, UpdateTimes,
};
pub use mismatch::{Mismatch, MismatchKind, ScrubMode, Verdict};
pub use pacer::{Pace, Pacer, SLICE_NANOS};
pub use set::{MAX_MEMBERS, MemberSet};
pub use shard::{Shard, Status};
pub use sharding::{MIN_UNIT_SECTORS, ShardPart, Sharding};
pub use token::Token;
pub use walk::{DEFAULT_RESYNC_STEP, Walk};
