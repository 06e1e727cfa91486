//! How a shard is set up, and the bounds of its queues.

use std::ops::Range;

use md::Geometry;

use crate::{IntentMap, MemberSet, Sharding};

/// Ranges are locked, merged and repaired in units of 4 KiB.
pub const GRANULE_SECTORS: u64 = 8;

/// The longest request: 16 MiB. Fronts split what is longer.
pub const MAX_REQUEST_SECTORS: u64 = 32_768;

/// The longest range inside a chunk row that one stripe operation works on: 128 KiB.
pub const MAX_SPAN_SECTORS: u64 = 256;

/// The longest time that a write of a detected stream waits for its neighbours, once the writes
/// that were at work when it came have ended: 50 us.
pub const MAX_MERGE_WAIT_NANOS: u64 = 50_000;

/// Requests that a shard admits at once unless told otherwise.
pub const DEFAULT_MAX_REQUESTS: usize = 1024;

/// Memory for stripe work unless told otherwise: 32 MiB.
pub const DEFAULT_STRIPE_CACHE_BYTES: u64 = 32 << 20;

/// How long an intent must be unused before a shard gives it back, unless told otherwise: 200 ms,
/// md's `safe_mode_delay`.
pub const DEFAULT_SAFE_MODE_NANOS: u64 = 200_000_000;

/// What a shard is made from.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The array.
    pub geometry: Geometry,
    /// How the array is divided; the same for all of its shards.
    pub sharding: Sharding,
    /// Which of the shards this is. Shard 0 also takes the array's flushes.
    pub number: u16,
    /// Members that are not there.
    pub missing: MemberSet,
    /// The largest member's logical block, in bytes: a power of two from 512 to 4096.
    pub logical_block: u32,
    /// Bound on requests in the shard.
    pub max_requests: usize,
    /// Bound on the memory of stripe work (old data, parity, cache), in bytes. Unused by levels
    /// without parity.
    pub stripe_cache_bytes: u64,
    /// The executor's number for the region that holds the stripe memory.
    pub scratch_region: u16,
    /// Whether every member guarantees zeroes after a discard. Without it, discards succeed and do
    /// nothing.
    pub discard_zeroes: bool,
    /// How long a write of a detected stream may wait for its neighbours, once the writes that were
    /// at work when it came have ended; at most [`MAX_MERGE_WAIT_NANOS`]. 0 turns all waiting off.
    pub merge_wait_nanos: u64,
    /// Writes must ask for these intents before they start; `None`: the array has no metadata that
    /// could tell of them. From [`crate::MetadataManager::intent_map`].
    pub intents: Option<IntentMap>,
    /// How long an intent must be unused before it is given back.
    pub safe_mode_nanos: u64,
    /// Copies are alike only below this position (see [`IntentMap`]); above it, reads take the one
    /// that a resync would take. From [`crate::MetadataManager::in_sync_below`].
    pub in_sync_below: u64,
    /// Where parity does not agree with the data when the array starts: ascending ranges of
    /// positions, for RAID 4, 5 and 6. What is lost there cannot be recovered before it has been
    /// written or resynced. From [`crate::MetadataManager::out_of_sync`].
    pub out_of_sync: Vec<Range<u64>>,
}

/// Why a shard cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// More members than the engine can address.
    TooManyMembers {
        /// How many were given.
        given: usize,
    },
    /// The members that are there cannot serve the array's data.
    TooFewMembers {
        /// How many are missing.
        missing: usize,
    },
    /// The stripe cache cannot hold the work of a single stripe.
    StripeCacheTooSmall {
        /// What was given, in bytes.
        given: u64,
        /// What the array needs at least, in bytes.
        least: u64,
    },
    /// The logical block is not a power of two from 512 to 4096.
    LogicalBlock {
        /// What was given, in bytes.
        given: u32,
    },
    /// There is no shard of this number.
    NoSuchShard {
        /// The number.
        given: u16,
        /// How many shards there are.
        shards: u16,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::TooManyMembers { given } => {
                write!(f, "{given} members: an array can have at most {}", crate::MAX_MEMBERS)
            }
            ConfigError::TooFewMembers { missing } => {
                write!(f, "with {missing} missing member(s) the array cannot serve its data")
            }
            ConfigError::StripeCacheTooSmall { given, least } => write!(
                f,
                "stripe cache of {given} bytes is too small: one stripe of this array needs {least}"
            ),
            ConfigError::NoSuchShard { given, shards } => {
                write!(f, "shard {given}: the array is divided into {shards}, numbered from 0")
            }
            ConfigError::LogicalBlock { given } => {
                write!(
                    f,
                    "logical block of {given} bytes: a power of two from 512 to 4096 is needed"
                )
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl ShardConfig {
    /// The only shard of a complete, healthy array with the default bounds; region 0 is the stripe
    /// memory.
    pub fn new(geometry: Geometry) -> ShardConfig {
        ShardConfig {
            sharding: Sharding::new(&geometry, 1),
            number: 0,
            geometry,
            missing: MemberSet::EMPTY,
            logical_block: 512,
            max_requests: DEFAULT_MAX_REQUESTS,
            stripe_cache_bytes: DEFAULT_STRIPE_CACHE_BYTES,
            scratch_region: 0,
            discard_zeroes: false,
            merge_wait_nanos: MAX_MERGE_WAIT_NANOS,
            intents: None,
            safe_mode_nanos: DEFAULT_SAFE_MODE_NANOS,
            in_sync_below: u64::MAX,
            out_of_sync: Vec::new(),
        }
    }

    /// The least stripe memory with which any single stripe operation can run.
    pub fn least_stripe_cache_bytes(geometry: &Geometry) -> u64 {
        let span = MAX_SPAN_SECTORS.min(geometry.chunk_sectors().max(1));
        let block = (span * md::SECTOR_BYTES).next_power_of_two().max(4096);
        // Old data and parity of every member; a power of two because of the buddy allocator.
        (geometry.members() as u64 * block).next_power_of_two()
    }
}
