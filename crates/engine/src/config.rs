//! Configuration of a shard, and its defaults.

use std::ops::Range;

use md::{Geometry, MemberIdx};

use crate::{IntentMap, MAX_SPAN_SECTORS, MemberSet, Sharding};

/// Longest time that a write of a detected stream waits for adjacent writes, once the writes in
/// flight at its arrival have completed: 50 us.
pub const MAX_MERGE_WAIT_NANOS: u64 = 50_000;

/// Default of [`ShardConfig::max_requests`].
pub const DEFAULT_MAX_REQUESTS: usize = 1024;

/// Default memory for stripe work: 32 MiB.
pub const DEFAULT_STRIPE_CACHE_BYTES: u64 = 32 << 20;

/// Default time that an intent must be unused before a shard releases it: 200 ms, md's
/// `safe_mode_delay`.
pub const DEFAULT_SAFE_MODE_NANOS: u64 = 200_000_000;

/// Configuration of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The array's geometry.
    pub geometry: Geometry,
    /// How the array is divided; the same for all of its shards.
    pub sharding: Sharding,
    /// The number of this shard. Shard 0 also handles the array's flushes.
    pub number: u16,
    /// Missing members.
    pub missing: MemberSet,
    /// The largest member's logical block, in bytes: a power of two from 512 to 4096.
    pub logical_block: u32,
    /// Maximum of requests in the shard.
    pub max_requests: usize,
    /// Bound on the memory of stripe work (old data, parity, cache), in bytes. Unused by levels
    /// without parity.
    pub stripe_cache_bytes: u64,
    /// The part of it that may be used from the start: see [`crate::Shard::grow_stripe_memory`].
    /// At least [`ShardConfig::least_stripe_cache_bytes`] are.
    pub stripe_bytes_at_first: u64,
    /// The executor's number for the region of the stripe memory.
    pub scratch_region: u16,
    /// Whether every member guarantees zeroes after a discard. Without it, discards succeed without
    /// effect.
    pub discard_zeroes: bool,
    /// How long a write of a detected stream may wait for adjacent writes, once the writes in
    /// flight at its arrival have completed; at most [`MAX_MERGE_WAIT_NANOS`]. 0 disables waiting.
    pub merge_wait_nanos: u64,
    /// Intents that writes must acquire before they start; `None`: the array has no metadata to
    /// record them. From [`crate::MetadataManager::intent_map`].
    pub intents: Option<IntentMap>,
    /// How long an intent must be unused before it is released.
    pub safe_mode_nanos: u64,
    /// Copies are in sync only below this position (see [`IntentMap`]); above it, reads use the
    /// copy that a resync reads. From [`crate::MetadataManager::in_sync_below`].
    pub in_sync_below: u64,
    /// Ranges that are out of sync when the array starts (parity does not match the data):
    /// ascending ranges of positions, for RAID 4, 5 and 6. Lost blocks there cannot be recovered
    /// until they have been written or resynced. From [`crate::MetadataManager::out_of_sync`].
    pub out_of_sync: Vec<Range<u64>>,
    /// Members that were missing when the array was started by force: their blocks are what parity
    /// makes of them, also in `out_of_sync`, unless another block of the row is lost, too. From
    /// [`crate::MetadataManager::missing_by_force`].
    pub missing_by_force: MemberSet,
    /// Members whose copies are not read while another one in sync can serve (RAID 1 and 10), as
    /// md's write-mostly devices. A member that joins later has flags of its own:
    /// [`crate::Control::SetFlags`].
    pub write_mostly: MemberSet,
    /// Members that a bad block takes out of service, unless they are the last with the data
    /// (RAID 1 and 10): the read goes to another copy, and nothing is written back. As md's
    /// failfast devices, of which a failed read is not repaired either.
    pub failfast: MemberSet,
    /// Members that are being rebuilt, with the ranges of their data areas that are out of sync.
    /// From [`crate::MetadataManager::rebuilding`].
    pub rebuilding: Vec<(MemberIdx, Vec<Range<u64>>)>,
    /// Slots whose members are being replaced, with the ranges that the replacements lack: devices
    /// at the second places (see [`crate::Effect`]). From [`crate::MetadataManager::replacing`].
    pub replacing: Vec<(MemberIdx, Vec<Range<u64>>)>,
    /// Size of the smallest partial parity area of a member in sectors: writes are logged. RAID 5
    /// in one shard only. The areas hold no logs when the first write is granted.
    pub partial_parity_log: Option<u64>,
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// More members than the engine can address.
    TooManyMembers {
        /// Number of members given.
        given: usize,
    },
    /// The present members cannot serve the array's data.
    TooFewMembers {
        /// Number of missing members.
        missing: usize,
    },
    /// The stripe cache cannot hold the work of a single stripe.
    StripeCacheTooSmall {
        /// The given size in bytes.
        given: u64,
        /// The smallest size for this array in bytes.
        least: u64,
    },
    /// The logical block is not a power of two from 512 to 4096.
    LogicalBlock {
        /// The given size in bytes.
        given: u32,
    },
    /// A partial parity log with another level than RAID 5, in several shards, with a member that
    /// is being replaced, or in an area that cannot hold the work of a single stripe.
    PartialParityLog,
    /// There is no shard with this number.
    NoSuchShard {
        /// The given number.
        given: u16,
        /// Number of shards.
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
            ConfigError::PartialParityLog => f.write_str(
                "a partial parity log needs RAID 5, a single shard, no replacement of a member, \
                 and room for a log",
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
    /// The only shard of a complete, healthy array with default bounds; region 0 is the stripe
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
            stripe_bytes_at_first: u64::MAX,
            scratch_region: 0,
            discard_zeroes: false,
            merge_wait_nanos: MAX_MERGE_WAIT_NANOS,
            intents: None,
            safe_mode_nanos: DEFAULT_SAFE_MODE_NANOS,
            in_sync_below: u64::MAX,
            out_of_sync: Vec::new(),
            missing_by_force: MemberSet::EMPTY,
            write_mostly: MemberSet::EMPTY,
            failfast: MemberSet::EMPTY,
            rebuilding: Vec::new(),
            replacing: Vec::new(),
            partial_parity_log: None,
        }
    }

    /// The part of the stripe memory that may be used from the start, in bytes.
    pub fn usable_stripe_bytes(&self) -> u64 {
        let least = ShardConfig::least_stripe_cache_bytes(&self.geometry);
        self.stripe_bytes_at_first.max(least).min(self.stripe_cache_bytes)
    }

    /// The smallest stripe memory with which every stripe operation can run.
    pub fn least_stripe_cache_bytes(geometry: &Geometry) -> u64 {
        let span = MAX_SPAN_SECTORS.min(geometry.chunk_sectors().max(1));
        let block = (span * md::SECTOR_BYTES).next_power_of_two().max(4096);
        // Old data and parity of every member, and partial parity; a power of two because of the
        // buddy allocator.
        let partial = u64::from(geometry.level() == md::Level::Raid5);
        ((geometry.members() as u64 + partial) * block).next_power_of_two()
    }
}
