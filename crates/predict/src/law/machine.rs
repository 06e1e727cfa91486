//! The machine below an array: kernel, media, buses, caches, CPU.

use super::kernel::Kernel;

/// What the members are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Media {
    /// Platters that turn so fast.
    Rotating {
        /// Revolutions per minute.
        rpm: f64,
    },
    /// Flash: skipping a chunk costs nothing.
    Flash,
    /// Nothing says what they are: exports, files in memory.
    Unknown,
}

impl Media {
    /// Time of a revolution, s; 0 of what is not known to turn.
    pub fn revolution(self) -> f64 {
        match self {
            Media::Rotating { rpm } => 60.0 / rpm,
            Media::Flash | Media::Unknown => 0.0,
        }
    }

    /// Whether it is flash.
    pub fn is_flash(self) -> bool {
        self == Media::Flash
    }

    /// Whether it has platters.
    pub fn rotates(self) -> bool {
        matches!(self, Media::Rotating { .. })
    }
}

/// A path that several members share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bus {
    /// What it carries, MB/s.
    pub mb_per_s: f64,
    /// Members of the array on it; `None`: all of them.
    pub members: Option<u32>,
}

/// The hardware and the settings of md.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The kernel; `None`: unknown, taken as one with aligned reads.
    pub kernel: Option<Kernel>,
    /// The members.
    pub media: Media,
    /// Paths that members share.
    pub buses: Vec<Bus>,
    /// Read-ahead of the array, KiB; `None`: md's default of two rows or more.
    pub read_ahead_kib: Option<f64>,
    /// `stripe_cache_size`, pages per member.
    pub stripe_cache: f64,
    /// `group_thread_cnt`: threads beside raid5d.
    pub group_threads: f64,
    /// CPU time per KiB read, microseconds, of the program and the kernel.
    pub cpu_read_us_per_kib: Option<f64>,
    /// The same of writes.
    pub cpu_write_us_per_kib: Option<f64>,
    /// CPU time of a small request without md, microseconds.
    pub request_us: Option<f64>,
    /// Stall when a row's parity is passed over, ms per row, from a gap probe.
    pub gap_ms: Option<f64>,
    /// Processes of the seeks workload.
    pub seekers: f64,
    /// Sequential rate of the slowest member, MB/s, where members differ.
    pub slowest_mb_per_s: Option<f64>,
    /// The members are shingled: what a write costs depends on what was written before.
    pub is_shingled: bool,
    /// The array has an internal bitmap; `None`: not stated, taken as without.
    pub bitmap: Option<bool>,
    /// KiB of a member, of RAID 10 of the array, for each of its bits.
    pub bitmap_chunk_kib: f64,
    /// What the array has of a member, bytes; `None`: unknown, taken as 1 TB.
    pub member_bytes: Option<f64>,
    /// A deep stream of RAID 1 is read from all copies, as raidlab's engine does; md stays on one.
    pub reads_all_copies: bool,
    /// `sync_speed_max`, MB/s as md counts ([`Array::counted_by_md`](super::Array::counted_by_md)).
    pub sync_speed_max: f64,
}

/// md's own `sync_speed_max`: 200,000 KiB/s.
pub const SYNC_SPEED_MAX: f64 = 204.8;

/// What mdadm chooses at the least: 64 MiB.
pub const BITMAP_CHUNK_KIB: f64 = 65_536.0;

impl Machine {
    /// A machine of which only the media is known.
    pub fn new(media: Media) -> Machine {
        Machine {
            kernel: None,
            media,
            buses: Vec::new(),
            read_ahead_kib: None,
            stripe_cache: 256.0,
            group_threads: 0.0,
            cpu_read_us_per_kib: None,
            cpu_write_us_per_kib: None,
            request_us: None,
            gap_ms: None,
            seekers: 3.0,
            slowest_mb_per_s: None,
            is_shingled: false,
            bitmap: None,
            bitmap_chunk_kib: BITMAP_CHUNK_KIB,
            member_bytes: None,
            reads_all_copies: false,
            sync_speed_max: SYNC_SPEED_MAX,
        }
    }

    /// Whether the kernel is at least that; unknown kernels count as of 2.6.20 to 2.6.38.
    pub(super) fn is_at_least(&self, major: u32, minor: u32, patch: u32) -> bool {
        self.kernel.unwrap_or(Kernel(2, 6, 32)) >= Kernel(major, minor, patch)
    }
}
