//! The status of a served array, and the orders that it takes: one form, for the library, the page,
//! the control socket and the command line. The document of the socket (OpenAPI) follows from these
//! types. A field that a server of another version lacks has its default.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A device of the array, or a slot without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Member {
    /// As it was named; null: the slot has no device.
    pub path: Option<String>,
    /// Its slot; null: spare, or out of service.
    pub slot: Option<u16>,
    /// `in_sync`, `rebuilding`, `spare`, `faulty`, `missing`; `unknown`: no superblock says it.
    #[schemars(extend("enum" = ["in_sync", "rebuilding", "spare", "faulty", "missing", "unknown"]))]
    pub state: String,
    /// Its number in the superblocks.
    pub number: Option<u32>,
    /// It replaces the slot's member when it is in sync.
    pub replaces: bool,
}

/// Background work that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sync {
    /// `resync`, `recover`, `check`, `repair`.
    #[schemars(extend("enum" = ["resync", "recover", "check", "repair"]))]
    pub action: String,
    /// `running`, `paused`, `waiting`, `cancelled`, `stalled`.
    #[schemars(extend("enum" = ["running", "paused", "waiting", "cancelled", "stalled"]))]
    pub state: String,
    /// Why it is stalled.
    pub error: Option<String>,
    /// Sectors that are done: of a member for rebuilds and on levels with parity, else of the
    /// array.
    pub done_sectors: u64,
    /// All of them.
    pub of_sectors: u64,
    /// KiB per second over the last seconds; null: nothing was done in them.
    pub speed_kib_s: Option<u64>,
    /// Seconds that it takes at this rate.
    pub eta_s: Option<u64>,
}

/// A way in which the array is accessible.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Export {
    /// `nbd`, `fuse`, `ublk`, `vhost-user`.
    #[schemars(extend("enum" = ["nbd", "fuse", "ublk", "vhost-user"]))]
    pub kind: String,
    /// Where: a socket or a file.
    pub address: String,
}

/// How fast background work runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pace {
    /// The foreground's share of the time while hosts use the array, in percent.
    #[schemars(range(min = 0.0, max = 99.0))]
    pub foreground_share: f64,
    /// md's `speed_limit_min`, in KiB per second.
    pub speed_limit_min_kib_s: u64,
    /// md's `speed_limit_max`, in KiB per second; null: no limit.
    pub speed_limit_max_kib_s: Option<u64>,
}

/// The state of a served array.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its UUID; null: it has no metadata.
    pub uuid: Option<String>,
    /// The version of its metadata; null: none.
    pub metadata: Option<String>,
    /// The level, in md's word: `raid5`.
    pub level: String,
    /// The layout, in md's word.
    pub layout: Option<String>,
    /// The chunk in KiB; null: the level has none.
    pub chunk_kib: Option<u64>,
    /// Size of the array in sectors.
    pub array_sectors: u64,
    /// Number of slots.
    pub raid_devices: u16,
    /// In mdadm's words: `clean`, `active`, `degraded`, `read-only`, `broken`.
    pub state: String,
    /// Number of slots without a member in sync.
    pub degraded: u16,
    /// Why nothing is written; null: writes are permitted.
    pub read_only: Option<String>,
    /// By slot, then spares, then devices out of service.
    pub members: Vec<Member>,
    /// Background work that runs, or is first in line; null: none.
    pub sync: Option<Sync>,
    /// Background work behind it.
    pub waiting: Vec<Sync>,
    /// md's `mismatch_cnt`: 8 sectors for each page of a row that the last scrub found to differ;
    /// null: RAID 1 and 10, or nothing was scrubbed.
    pub mismatch_cnt: Option<u64>,
    /// Sectors that the last scrub found to differ; null: nothing was scrubbed.
    pub mismatch_sectors: Option<u64>,
    /// Event count of the superblocks.
    pub events: Option<u64>,
    /// Bits of the write-intent bitmap that may be set.
    pub bitmap_bits_set: Option<u64>,
    /// Memory for data, buffers and stripes, in bytes: it grows with load; null: not of an array
    /// that runs.
    pub memory_bytes: Option<u64>,
    /// What it may grow to, in bytes (`--memory`).
    pub memory_max_bytes: Option<u64>,
    /// How fast background work runs; null where there is none.
    pub pace: Option<Pace>,
    /// How it is accessible.
    pub exports: Vec<Export>,
    /// What else is to be known of it, a sentence each.
    pub notes: Vec<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it happened, in seconds since 1970.
    pub time: u64,
    /// The name of `mdadm --monitor`: `Fail`, `SpareActive`, `RebuildFinished`.
    pub event: String,
    /// The device that it concerned when it happened.
    pub device: Option<String>,
    /// The same as a sentence.
    pub text: String,
}

/// An order that concerns a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfDevice {
    /// As it was named, or the number of its slot.
    pub device: String,
}

/// A device that is to join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// An absolute path.
    pub device: String,
    /// Also if it holds data.
    #[serde(default)]
    pub overwrite: bool,
    /// Read only where no other copy can serve.
    #[serde(default)]
    pub write_mostly: bool,
    /// Taken out of service by a bad block.
    #[serde(default)]
    pub failfast: bool,
}

/// A member that is to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    /// The member, or the number of its slot.
    pub device: String,
    /// An absolute path; null: a spare of the array.
    #[serde(default)]
    pub with: Option<String>,
    /// Also if the new device holds data.
    #[serde(default)]
    pub overwrite: bool,
}

/// What a scrub is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubAction {
    /// Compare.
    Check,
    /// Compare, and repair what is proven wrong.
    Repair,
    /// Hold background work.
    Pause,
    /// Resume it.
    Resume,
    /// End the scrub.
    Stop,
}

/// An order about scrubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrub {
    /// What to do.
    pub action: ScrubAction,
}

/// Settings to change; what is left out stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The foreground's share of the time while hosts use the array, in percent, 0 to 99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 99.0))]
    pub foreground_share: Option<f64>,
    /// md's `speed_limit_min`, in KiB per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_limit_min_kib_s: Option<u64>,
    /// md's `speed_limit_max`, in KiB per second; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_limit_max_kib_s: Option<u64>,
}

/// An order was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// What was done, as a sentence.
    pub done: String,
}

/// How a server has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The same as a sentence.
    pub done: String,
    /// The array was flushed, and marked clean on enough members; what is served read-only is.
    pub clean: bool,
    /// Why it is not, unless only a resync has not ended, which continues at the next start.
    pub problem: Option<String>,
}

/// An order was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Why.
    pub error: String,
}
