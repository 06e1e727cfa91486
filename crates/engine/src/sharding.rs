//! Which shard owns which part of the array.
//!
//! ```text
//! array     | unit 0 | unit 1 | unit 2 | unit 3 | unit 4 |         3 shards
//! shard         0        1        2        0        1
//! its own       0        0        0        1        1              units, counted by the shard
//! ```
//! Invariant: a function of the geometry and the number of shards alone, so that every caller gets
//! the same result. A unit has whole stripes (if the level has any) of at least 4 MiB: all copies
//! of a block, and all blocks that share parity, belong to one shard.
//!
//! Called by the code that submits requests to shards, and by the shard itself, which detects
//! streams by the position of requests in its own part.

use std::ops::Range;

use md::{Geometry, SECTOR_BYTES, Sector};

use crate::HostOp;

/// Minimum size of a unit: 4 MiB of the array.
pub const MIN_UNIT_SECTORS: u64 = (4 << 20) / SECTOR_BYTES;

/// Division of an array among shards; see the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    shards: u16,
    unit_sectors: u64,
}

/// A part of a request that one shard owns completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPart {
    /// Number of the owning shard.
    pub shard: u16,
    /// First array sector.
    pub at: Sector,
    /// Length in sectors.
    pub sectors: u64,
}

impl Sharding {
    /// Divides an array among `shards` shards.
    ///
    /// # Panics
    /// Without a shard.
    pub fn new(geometry: &Geometry, shards: u16) -> Sharding {
        Sharding::with_least_unit(geometry, shards, MIN_UNIT_SECTORS)
    }

    /// With units of at least `least_sectors` sectors: small units let a test have many of them.
    ///
    /// # Panics
    /// Without a shard.
    pub fn with_least_unit(geometry: &Geometry, shards: u16, least_sectors: u64) -> Sharding {
        assert!(shards > 0, "an array has at least one shard");
        let stripe = geometry.stripe_sectors().max(1);
        // Also whole granules, so that no logical block is cut.
        let common = crate::GRANULE_SECTORS >> stripe.trailing_zeros().min(3);
        let whole = stripe * common;
        Sharding { shards, unit_sectors: least_sectors.max(1).next_multiple_of(whole) }
    }

    /// The longest request of this kind, in sectors. Where there are several shards, a long discard
    /// is no better than several: it is cut at the units anyway.
    pub fn max_sectors(&self, op: HostOp) -> u64 {
        match self.shards {
            1 => op.max_sectors(),
            _ => crate::MAX_REQUEST_SECTORS,
        }
    }

    /// Number of shards.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Size of a unit in sectors.
    pub fn unit_sectors(&self) -> u64 {
        self.unit_sectors
    }

    /// The shard that owns an array sector.
    pub fn shard_of(&self, at: Sector) -> u16 {
        if self.shards == 1 {
            return 0;
        }
        (at.0 / self.unit_sectors % u64::from(self.shards)) as u16
    }

    /// Position of a range in the own part of `shard` (see [`Sharding::local`]); `None` if the
    /// shard does not own all of it, or it crosses a unit boundary.
    #[inline]
    pub fn own(&self, shard: u16, at: Sector, sectors: u64) -> Option<Sector> {
        if self.shards == 1 {
            return Some(at);
        }
        let unit = at.0 / self.unit_sectors;
        let inside = at.0 - unit * self.unit_sectors;
        let shards = u64::from(self.shards);
        let own = sectors <= self.unit_sectors - inside && unit % shards == u64::from(shard);
        own.then(|| Sector(unit / shards * self.unit_sectors + inside))
    }

    /// The first part of a range: up to its end, or to the start of another shard's unit.
    pub fn first_part(&self, at: Sector, sectors: u64) -> ShardPart {
        let left =
            if self.shards == 1 { sectors } else { self.unit_sectors - at.0 % self.unit_sectors };
        ShardPart { shard: self.shard_of(at), at, sectors: sectors.min(left) }
    }

    /// The parts of a range, in order; an empty range has none.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = ShardPart> + use<> {
        let sharding = *self;
        let mut at = range.start;
        std::iter::from_fn(move || {
            let part = (at < range.end).then(|| sharding.first_part(Sector(at), range.end - at))?;
            at += part.sectors;
            Some(part)
        })
    }

    /// Position of an array sector in its shard's own part, without the units of other shards. A
    /// stream through the array is a stream here.
    pub fn local(&self, at: Sector) -> Sector {
        if self.shards == 1 {
            return at;
        }
        let round = self.unit_sectors * u64::from(self.shards);
        Sector(at.0 / round * self.unit_sectors + at.0 % self.unit_sectors)
    }
}

#[cfg(test)]
mod tests {
    use md::{GeometrySpec, Layout, Level};

    use super::*;

    fn sharding(level: Level, members: usize, chunk_sectors: u64, shards: u16) -> Sharding {
        let geometry = Geometry::new(&GeometrySpec {
            level,
            layout: Layout::default_for(level),
            chunk_sectors,
            member_sectors: vec![1 << 20; members],
        });
        Sharding::new(&geometry.expect("an array"), shards)
    }

    #[test]
    fn a_unit_is_whole_stripes_of_4_mib_at_least() {
        for (level, members, chunk) in [
            (Level::Raid5, 6, 128),
            (Level::Raid6, 7, 1024),
            (Level::Raid4, 3, 8),
            (Level::Raid0, 6, 24),
            (Level::Raid10, 5, 128),
            (Level::Raid1, 2, 0),
            (Level::Raid5, 12, 65536),
        ] {
            let geometry = Geometry::new(&GeometrySpec {
                level,
                layout: Layout::default_for(level),
                chunk_sectors: chunk,
                member_sectors: vec![1 << 20; members],
            });
            let stripe = geometry.expect("an array").stripe_sectors().max(1);
            let unit = sharding(level, members, chunk, 3).unit_sectors();
            assert!(unit >= MIN_UNIT_SECTORS && unit.is_multiple_of(stripe), "{level}: {unit}");
        }
    }

    #[test]
    fn parts_cover_a_range_once_and_each_is_its_shards() {
        let sharding = sharding(Level::Raid5, 6, 128, 3);
        let unit = sharding.unit_sectors();
        for (start, end) in [(0, 1), (0, unit), (5, unit + 5), (unit - 8, 4 * unit + 8), (7, 7)] {
            let mut at = start;
            for part in sharding.parts(start..end) {
                assert_eq!(part.at.0, at);
                assert!(part.sectors > 0);
                for sector in [at, at + part.sectors - 1] {
                    assert_eq!(sharding.shard_of(Sector(sector)), part.shard);
                }
                at += part.sectors;
                let more = at < end;
                assert!(!more || sharding.shard_of(Sector(at)) != part.shard);
            }
            assert_eq!(at, end);
        }
    }

    #[test]
    fn own_ranges_agree_with_parts_and_local() {
        let sharding = sharding(Level::Raid5, 6, 128, 3);
        let unit = sharding.unit_sectors();
        for at in [0, 8, unit - 8, unit, 2 * unit + 8, 3 * unit, 7 * unit - 1] {
            for sectors in [1, 8, 16, unit] {
                let part = sharding.first_part(Sector(at), sectors);
                for shard in 0..3 {
                    let own = part.shard == shard && part.sectors == sectors;
                    let local = own.then(|| sharding.local(Sector(at)));
                    assert_eq!(sharding.own(shard, Sector(at), sectors), local, "{at} {sectors}");
                }
            }
        }
        assert_eq!(
            self::sharding(Level::Raid0, 2, 8, 1).own(0, Sector(77), 1 << 30),
            Some(Sector(77))
        );
    }

    #[test]
    fn units_cut_no_granule() {
        for (members, chunk) in [(3, 4), (3, 1), (2, 24), (5, 6)] {
            let geometry = Geometry::new(&GeometrySpec {
                level: Level::Raid0,
                layout: Layout::default_for(Level::Raid0),
                chunk_sectors: chunk,
                member_sectors: vec![1 << 10; members],
            });
            let Ok(geometry) = geometry else { continue };
            let unit = Sharding::with_least_unit(&geometry, 2, 1).unit_sectors();
            assert!(unit.is_multiple_of(8) && unit.is_multiple_of(geometry.stripe_sectors()));
        }
    }

    #[test]
    fn a_stream_stays_one_in_each_shards_own_part() {
        for shards in [1, 2, 5] {
            let sharding = sharding(Level::Raid6, 6, 128, shards);
            let mut next = vec![0; usize::from(shards)];
            for part in sharding.parts(0..20 * sharding.unit_sectors()) {
                let next = &mut next[usize::from(part.shard)];
                assert_eq!(sharding.local(part.at).0, *next);
                *next += part.sectors;
            }
        }
    }

    #[test]
    fn one_shard_owns_everything() {
        let sharding = sharding(Level::Raid0, 2, 128, 1);
        let parts: Vec<ShardPart> = sharding.parts(3..1 << 21).collect();
        assert_eq!(parts, [ShardPart { shard: 0, at: Sector(3), sectors: (1 << 21) - 3 }]);
    }
}
