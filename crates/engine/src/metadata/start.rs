//! The metadata manager's configuration for a start that md's assembly decided.
//!
//! Invariant: pure; nothing is decided here. Called by `admin`, and by simulations of a start.

use md::SECTOR_BYTES;
use md::assemble::{StartBitmap, StartDevice, StartPlan, StartState};

use super::types::{
    DEFAULT_BITS_AHEAD_NANOS, DEFAULT_CHECKPOINT_NANOS, DeviceNumber, ManagedBitmap, ManagedDevice,
    MetadataConfig,
};

impl MetadataConfig {
    /// For the start of an array by this plan, in `shards` shards. `resync_offset`: where
    /// redundancy is in doubt from, after the replay of logs; `bad_blocks`: the candidates whose
    /// list of bad blocks is not empty; `bitmap`: the bitmap of [`StartPlan::bitmap`] with its
    /// bits.
    pub fn of_start(
        plan: &StartPlan<'_>,
        resync_offset: Option<u64>,
        bad_blocks: &[usize],
        bitmap: Option<(&StartBitmap, Vec<u8>)>,
        shards: u16,
    ) -> MetadataConfig {
        let StartState { found, state, superblocks_in_turn } =
            plan.state(resync_offset, bad_blocks);
        let devices = plan.devices().into_iter().map(|device| {
            let StartDevice { number, slot, replaces, events, is_spare, .. } = device;
            ManagedDevice { number: DeviceNumber(number), slot, replaces, events, is_spare }
        });
        let bitmap = bitmap.map(|(StartBitmap { header, stale, .. }, bits)| ManagedBitmap {
            chunk_sectors: u64::from(header.chunk_bytes) / SECTOR_BYTES,
            daemon_sleep_nanos: u64::from(header.daemon_sleep_s) * 1_000_000_000,
            events_cleared: header.events_cleared,
            bits,
            stale: *stale,
        });
        MetadataConfig {
            geometry: plan.geometry().clone(),
            shards,
            devices: devices.collect(),
            state,
            found,
            bitmap,
            superblocks_in_turn,
            checkpoint_nanos: DEFAULT_CHECKPOINT_NANOS,
            bits_ahead_nanos: DEFAULT_BITS_AHEAD_NANOS,
        }
    }
}
