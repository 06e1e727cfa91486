//! Machines, and what a seed makes sick of them.

use drive::Profile;
use md::Level;
use predict::diagnose::Cause;
use testkit::Rng;

use crate::hidden::{between, drive_of, with};

/// What is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sickness {
    /// Nothing.
    None,
    /// A bus that all share, PCI or lanes of PCIe: much less than the members' sum.
    Bus,
    /// A bus that two of them share.
    BusOfTwo,
    /// Two disks on each channel.
    Channel,
    /// A member that is slower in order.
    SlowMember,
    /// A member that seeks more slowly.
    SlowSeeks,
    /// A link without DMA.
    DmaOff,
    /// The network that the figure went through.
    Network,
    /// The program's CPU time.
    ProgramCpu,
    /// CPU time of parity.
    RaidThread,
    /// Read-ahead of less than a row.
    ReadAhead,
    /// A stripe cache of a few pages.
    StripeCache,
    /// Parts of rows.
    PartialStripes,
    /// 4 KiB in order, one at a time.
    SmallRequests,
    /// One random read at a time.
    QueueDepth,
    /// All requests to the chunks of one member.
    Unbalanced,
    /// A check or a resync.
    Background,
    /// Bits before random writes.
    Bitmap,
    /// Write caches off.
    WriteCacheOff,
    /// A member is missing.
    Degraded,
}

/// All of them.
pub const SICK: [Sickness; 19] = [
    Sickness::Bus,
    Sickness::BusOfTwo,
    Sickness::Channel,
    Sickness::SlowMember,
    Sickness::SlowSeeks,
    Sickness::DmaOff,
    Sickness::Network,
    Sickness::ProgramCpu,
    Sickness::RaidThread,
    Sickness::ReadAhead,
    Sickness::StripeCache,
    Sickness::PartialStripes,
    Sickness::SmallRequests,
    Sickness::QueueDepth,
    Sickness::Unbalanced,
    Sickness::Background,
    Sickness::Bitmap,
    Sickness::WriteCacheOff,
    Sickness::Degraded,
];

/// Those of flash: it has no cables with two disks, no platters that a write waits for, and no
/// transfers without DMA.
pub fn sick_flash() -> Vec<Sickness> {
    let not_of_flash = [Sickness::Channel, Sickness::DmaOff, Sickness::WriteCacheOff];
    SICK.into_iter().filter(|sickness| !not_of_flash.contains(sickness)).collect()
}

/// What the disks of a set of machines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// A quarter is flash, where what makes them sick permits it.
    Mixed,
    /// All of them are.
    Flash,
}

impl Sickness {
    /// What a diagnosis should name.
    pub fn cause(self) -> Option<Cause> {
        Some(match self {
            Sickness::None => return None,
            Sickness::Bus | Sickness::BusOfTwo => Cause::Bus,
            Sickness::Channel => Cause::Channel,
            Sickness::SlowMember | Sickness::SlowSeeks => Cause::SlowMember,
            Sickness::DmaOff => Cause::DmaOff,
            Sickness::Network => Cause::Network,
            Sickness::ProgramCpu => Cause::ProgramCpu,
            Sickness::RaidThread => Cause::RaidThread,
            Sickness::ReadAhead => Cause::ReadAhead,
            Sickness::StripeCache => Cause::StripeCache,
            Sickness::PartialStripes => Cause::PartialStripes,
            Sickness::SmallRequests => Cause::SmallRequests,
            Sickness::QueueDepth => Cause::QueueDepth,
            Sickness::Unbalanced => Cause::Unbalanced,
            Sickness::Background => Cause::Background,
            Sickness::Bitmap => Cause::Bitmap,
            Sickness::WriteCacheOff => Cause::WriteCacheOff,
            Sickness::Degraded => Cause::Degraded,
        })
    }
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    SeqRead,
    SeqWrite,
    StreamsWrite,
    RandRead,
    RandWrite,
}

impl Kind {
    pub fn is_random(self) -> bool {
        matches!(self, Kind::RandRead | Kind::RandWrite)
    }
}

/// How it is run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub kind: Kind,
    /// Bytes of a request.
    pub block: u64,
    /// Requests of the program at a time.
    pub depth: usize,
    /// Streams that are written in turn.
    pub streams: usize,
    /// Random requests begin at multiples of it.
    pub stride: Option<u64>,
    /// Through the page cache: its read-ahead, KiB.
    pub read_ahead_kib: Option<u64>,
}

/// What is above the array.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub us_per_request: f64,
    pub us_per_kib: f64,
    pub parity_us_per_kib: f64,
    pub network_mb_per_s: Option<f64>,
}

/// Work beside the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    Check,
    Resync,
}

/// A machine. What `diagnose` gets of it: level, chunk, number of members, the settings
/// `stripe_cache`, `read_ahead_kib`, `bitmap` and `missing`, the workload's block and depth.
#[derive(Clone)]
pub struct Machine {
    pub class: &'static str,
    pub sickness: Sickness,
    pub level: Level,
    pub chunk_kib: u64,
    /// Pages of each member.
    pub stripe_cache: u64,
    pub disks: Vec<Profile>,
    pub buses: Vec<(u64, Vec<usize>)>,
    pub channels: Vec<Vec<usize>>,
    pub load: Load,
    pub host: Host,
    pub bitmap: bool,
    pub background: Option<Background>,
    pub missing: bool,
}

const ROTATING: [&str; 5] = ["hdd-2007", "hdd-2009", "hdd-2016", "hdd-2018", "hdd-2020"];
const OLD: [&str; 3] = ["hdd-1999", "hdd-2002", "hdd-2007"];
const SOLID: [&str; 4] = ["sata-ssd", "sata-ssd-2021", "sata-ssd-plp", "nvme-ssd"];
const FLASH: [&str; 7] = [
    "sata-ssd",
    "sata-ssd-2021",
    "sata-ssd-plp",
    "nvme-ssd",
    "nvme-ssd-2019",
    "nvme-ssd-2020",
    "nvme-ssd-plp",
];
const STRIPED: [Level; 4] = [Level::Raid0, Level::Raid10, Level::Raid5, Level::Raid6];
const PARITY: [Level; 2] = [Level::Raid5, Level::Raid6];

impl Machine {
    /// The machine of a seed; and the same one without what makes it sick. Of a healthy one:
    /// without any limits but those of its disks.
    pub fn new(seed: u64, sickness: Sickness, fleet: Fleet) -> (Machine, Machine) {
        let rng = &mut Rng::new(seed ^ 0x51c4);
        use Sickness as S;
        let class = match sickness {
            _ if fleet == Fleet::Flash => rng.pick(&FLASH),
            S::DmaOff => rng.pick(&OLD),
            S::StripeCache | S::Channel | S::SlowSeeks | S::Bitmap | S::WriteCacheOff => {
                rng.pick(&ROTATING)
            }
            _ if rng.one_in(4) => rng.pick(&SOLID),
            _ => rng.pick(&ROTATING),
        };
        let (profile, _) = drive_of(class, rng);
        let solid = profile.kind() == drive::Kind::Solid;
        let level = match sickness {
            S::RaidThread | S::StripeCache | S::PartialStripes => rng.pick(&PARITY),
            S::Degraded => rng.pick(&PARITY),
            S::Background => rng.pick(&[Level::Raid5, Level::Raid6, Level::Raid10]),
            _ => rng.pick(&STRIPED),
        };
        // An even number, for RAID 10.
        let count = 4 + 2 * rng.index(2);
        let chunk_kib = rng.pick(&[128, 256, 512]);
        let kind = match sickness {
            S::SlowSeeks | S::QueueDepth | S::Unbalanced => Kind::RandRead,
            S::Bitmap => Kind::RandWrite,
            S::WriteCacheOff => rng.pick(&[Kind::RandWrite, Kind::SeqWrite]),
            S::RaidThread => Kind::SeqWrite,
            S::PartialStripes => Kind::StreamsWrite,
            S::StripeCache => Kind::RandWrite,
            S::ReadAhead | S::SmallRequests | S::Degraded => Kind::SeqRead,
            S::None => rng.pick(&[
                Kind::SeqRead,
                Kind::SeqRead,
                Kind::SeqWrite,
                Kind::RandRead,
                Kind::RandWrite,
            ]),
            S::Background => rng.pick(&[Kind::SeqRead, Kind::RandRead]),
            _ => rng.pick(&[Kind::SeqRead, Kind::SeqRead, Kind::SeqWrite]),
        };
        let mut load = match kind {
            Kind::SeqRead | Kind::SeqWrite | Kind::StreamsWrite => Load {
                kind,
                block: 1 << 20,
                depth: 16,
                streams: 1,
                stride: None,
                read_ahead_kib: None,
            },
            Kind::RandRead | Kind::RandWrite => Load {
                kind,
                block: 4096,
                depth: [32, 64][rng.index(2)],
                streams: 1,
                stride: None,
                read_ahead_kib: None,
            },
        };
        // Half of the healthy readers go through the page cache, with read-ahead enough.
        if kind == Kind::SeqRead && rng.one_in(2) && sickness != S::SmallRequests {
            let row = chunk_kib * count as u64;
            load = buffered(load, 4 * row);
        }
        let mut machine = Machine {
            class,
            sickness,
            level,
            chunk_kib,
            stripe_cache: 8192,
            disks: vec![profile.clone(); count],
            buses: Vec::new(),
            channels: Vec::new(),
            load,
            host: Host {
                us_per_request: between(rng, 2.0, 8.0),
                us_per_kib: between(rng, 0.02, 0.1),
                parity_us_per_kib: between(rng, 0.05, 0.15),
                network_mb_per_s: None,
            },
            bitmap: rng.one_in(2) && !kind.is_random(),
            background: None,
            missing: false,
        };
        // Buses and networks that do not limit.
        let rate = rate_of(&profile);
        let sum = rate * count as f64;
        if sickness == S::None && rng.one_in(3) {
            let bus = (sum * between(rng, 1.5, 3.0) * 1e6) as u64;
            machine.buses = vec![(bus, (0..count).collect())];
        }
        if sickness == S::None && rng.one_in(4) {
            machine.host.network_mb_per_s = Some(sum * between(rng, 1.5, 3.0));
        }
        match sickness {
            S::StripeCache => machine.load.block = rng.pick(&[32, 64, 128]) << 10,
            S::Bitmap => machine.load.depth = 1 + rng.index(8),
            S::WriteCacheOff => machine.load.depth = if kind.is_random() { 4 } else { 1 },
            _ => {}
        }
        let mut healthy = machine.clone();
        if sickness == S::None {
            healthy.buses = Vec::new();
            let none = Host {
                us_per_request: 0.0,
                us_per_kib: 0.0,
                parity_us_per_kib: 0.0,
                network_mb_per_s: None,
            };
            (healthy.host, healthy.bitmap) = (none, false);
        }
        machine.make_sick(rng, rate, class, solid);
        (machine, healthy)
    }

    fn make_sick(&mut self, rng: &mut Rng, rate: f64, class: &str, solid: bool) {
        use Sickness as S;
        let count = self.disks.len();
        // What the array's bytes cost each member.
        let data = match (self.level, self.load.kind) {
            (Level::Raid5, _) => count as f64 - 1.0,
            (Level::Raid6, _) => count as f64 - 2.0,
            (Level::Raid10, Kind::SeqWrite | Kind::SeqRead) => count as f64 / 2.0,
            _ => count as f64,
        };
        match self.sickness {
            S::None => {}
            S::Bus => {
                let bus = rate * count as f64 * between(rng, 0.2, 0.6) * 1e6;
                self.buses = vec![(bus as u64, (0..count).collect())];
            }
            S::BusOfTwo => {
                let first = rng.index(count - 1);
                let bus = 2.0 * rate * between(rng, 0.3, 0.65) * 1e6;
                self.buses = vec![(bus as u64, vec![first, first + 1])];
            }
            S::Channel => {
                self.channels = (0..count / 2).map(|at| vec![2 * at, 2 * at + 1]).collect();
            }
            S::SlowMember => {
                let share = between(rng, 0.3, 0.65);
                let slow = slower(&self.disks[0], class, share, solid);
                self.disks[rng.index(count)] = slow;
            }
            S::SlowSeeks => {
                let factor = between(rng, 2.5, 4.0);
                let fields = match solid {
                    true => &["read_page_us", "command_overhead_us"][..],
                    false => &["seek_track_ms", "seek_average_ms", "seek_full_ms"],
                };
                let at = rng.index(count);
                self.disks[at] = with(&self.disks[at], class, |field, value| {
                    if fields.contains(&field) { value * factor } else { value }
                });
            }
            S::DmaOff => {
                let link = between(rng, 2.5, 8.0);
                let all = rng.one_in(2);
                let only = rng.index(count);
                for (at, disk) in self.disks.iter_mut().enumerate() {
                    if all || at == only {
                        *disk =
                            with(
                                disk,
                                class,
                                |field, value| {
                                    if field == "link_mb_per_s" { link } else { value }
                                },
                            );
                    }
                }
            }
            S::Network => {
                self.host.network_mb_per_s = Some(rate * data * between(rng, 0.15, 0.6));
            }
            S::ProgramCpu => {
                let limit = rate * data * between(rng, 0.2, 0.6);
                self.host.us_per_kib = 1024.0 / limit;
            }
            S::RaidThread => {
                let limit = rate * data * between(rng, 0.2, 0.6);
                self.host.parity_us_per_kib = 1024.0 / limit;
            }
            S::ReadAhead => {
                // Less than half of the members in two windows.
                let reached = between(rng, 1.0, count as f64 * 0.45);
                let kib = (self.chunk_kib as f64 * reached / 2.0) as u64 / 4 * 4;
                self.load = buffered(self.load, kib);
            }
            S::StripeCache => self.stripe_cache = rng.within(17, 64),
            S::PartialStripes => {
                self.load.block = rng.pick(&[16 << 10, 32 << 10, 64 << 10]);
                self.load.streams = rng.pick(&[64, 256]);
                self.load.depth = 32;
                self.stripe_cache = 256;
            }
            S::SmallRequests => (self.load.block, self.load.depth) = (4096, 1),
            S::QueueDepth => self.load.depth = 1 + rng.index(2),
            S::Unbalanced => {
                let chunks = match self.level {
                    Level::Raid5 | Level::Raid6 => data as u64 * count as u64,
                    _ => count as u64,
                };
                self.load.stride = Some(self.chunk_kib * 1024 * chunks);
            }
            S::Background => {
                let resync = rng.one_in(2) && self.level != Level::Raid10;
                self.background = Some(if resync { Background::Resync } else { Background::Check });
            }
            S::Bitmap => self.bitmap = true,
            S::WriteCacheOff => {
                for disk in &mut self.disks {
                    *disk = with(disk, class, |field, value| match field {
                        "write_cache_kib" => 4.0,
                        "write_cache_extents" => 1.0,
                        _ => value,
                    });
                }
            }
            S::Degraded => self.missing = true,
        }
    }

    /// Seconds of warm-up, and of the sample.
    pub fn seconds(&self) -> (f64, f64) {
        let solid = self.disks[0].kind() == drive::Kind::Solid;
        match (solid, self.load.kind.is_random()) {
            (true, false) => (0.3, 0.5),
            (true, true) => (0.2, 0.3),
            (false, false) => (1.0, 2.0),
            (false, true) => (4.0, 6.0),
        }
    }
}

/// Through the page cache: two windows of read-ahead are in flight, in requests of at most 128 KiB.
fn buffered(load: Load, read_ahead_kib: u64) -> Load {
    let block = (read_ahead_kib * 1024).min(128 << 10);
    let depth = (2 * read_ahead_kib * 1024 / block).clamp(2, 240) as usize;
    Load { block, depth, read_ahead_kib: Some(read_ahead_kib), ..load }
}

fn rate_of(profile: &Profile) -> f64 {
    let number = |field: &str| {
        profile.numbers().iter().find(|number| number.field == field).map(|number| number.value)
    };
    let rate = number("media_outer_mb_per_s").or(number("read_mb_per_s")).expect("a rate");
    rate.min(profile.link_bytes_per_s() as f64 / 1e6)
}

fn slower(profile: &Profile, class: &str, share: f64, solid: bool) -> Profile {
    let rate = rate_of(profile) * share;
    with(profile, class, |field, value| match field {
        "media_outer_mb_per_s" | "media_inner_mb_per_s" => value * share,
        "read_mb_per_s" | "write_mb_per_s" | "direct_write_mb_per_s" if solid => {
            (value * share).min(rate)
        }
        _ => value,
    })
}
