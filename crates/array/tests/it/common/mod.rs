//! What the tests of this crate share: random numbers, members on every store, a driver's host, and
//! the plain model that it is compared with.

pub mod host;
pub mod shards;
pub mod store;

use md::{Layout, Level};
use raidlab_array::{
    ArraySpec, DataPlaneConfig, DriverOptions, FaultMember, MemMember, Member, MemberSpec,
};

pub use shards::Shards;

pub const SECTOR: usize = 512;

/// An array of the level's default layout.
pub fn spec(level: Level, chunk_sectors: u64, members: Vec<MemberSpec>) -> ArraySpec {
    ArraySpec {
        level,
        layout: Layout::default_for(level),
        chunk_sectors,
        members,
        data_plane: DataPlaneConfig { stripe_cache_bytes: 1 << 20, ..DataPlaneConfig::default() },
    }
}

pub fn mem(sectors: u64) -> MemberSpec {
    MemberSpec::ready(MemMember::new(sectors).expect("memory"))
}

pub fn mems(count: usize, sectors: u64) -> Vec<MemberSpec> {
    (0..count).map(|_| mem(sectors)).collect()
}

pub fn faulty(sectors: u64, faults: Vec<raidlab_array::Fault>) -> MemberSpec {
    MemberSpec::ready(FaultMember::new(boxed_mem(sectors), faults))
}

pub fn boxed_mem(sectors: u64) -> Box<dyn Member> {
    Box::new(MemMember::new(sectors).expect("memory"))
}

/// Few and small buffers, so that they run out.
pub fn options() -> DriverOptions {
    DriverOptions { leases: 64, lease_bytes: 1 << 20, ..DriverOptions::default() }
}

pub fn driver(spec: ArraySpec) -> Shards {
    Shards::new(spec, &options()).expect("a valid array")
}
