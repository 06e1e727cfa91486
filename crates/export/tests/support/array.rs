//! Arrays in memory that the tests serve.

use array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, Member, MemberSpec};
use md::{Layout, Level};

/// A RAID 5 of three members of this size, with this many buffers.
pub fn raid5(member_sectors: u64, chunk_sectors: u64, leases: usize) -> Array {
    in_memory(Level::Raid5, member_sectors, chunk_sectors, leases)
}

/// The same of another level.
pub fn in_memory(level: Level, member_sectors: u64, chunk_sectors: u64, leases: usize) -> Array {
    let member = |_| {
        let member: Box<dyn Member> = Box::new(MemMember::new(member_sectors).expect("memory"));
        MemberSpec::Ready(member)
    };
    let spec = ArraySpec {
        level,
        layout: Layout::default_for(level),
        chunk_sectors,
        members: (0..3).map(member).collect(),
        data_plane: DataPlaneConfig { stripe_cache_bytes: 8 << 20, ..DataPlaneConfig::default() },
    };
    Array::start(spec, &DriverOptions { leases, ..DriverOptions::default() }).expect("it starts")
}
