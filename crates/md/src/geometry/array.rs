//! The geometry of one array: sizes, and the placement of its kind.
//!
//! Invariant: made once from a checked spec, never changed; a reshape has two. Everything that maps
//! an array sector starts here: `match geometry.kind()`.

use super::mirrored::Mirrored;
use super::parity::Parity;
use super::spec::{GeometryError, GeometrySpec};
use super::striped::Striped;
use crate::layout::Layout;
use crate::level::Level;
use crate::units::MemberIdx;

/// An array's mapping and sizes.
#[derive(Clone, Debug)]
pub struct Geometry {
    level: Level,
    layout: Layout,
    chunk_sectors: u64,
    members: usize,
    kind: Kind,
}

/// The placement of a level.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Linear, RAID 0.
    Striped(Striped),
    /// RAID 1, RAID 10.
    Mirrored(Mirrored),
    /// RAID 4, 5, 6.
    Parity(Parity),
}

impl Geometry {
    /// The geometry of a spec.
    ///
    /// Fewest members: linear, RAID 0 and 1: 1 (mdadm requires `--force`); RAID 4 and 5: 2; RAID 6:
    /// 4; RAID 10: its copies. Most: [`super::MAX_MEMBERS`], with parity
    /// [`super::MAX_PARITY_MEMBERS`].
    ///
    /// # Errors
    /// The first thing in the spec that makes it no array, or an unsafe one.
    pub fn new(spec: &GeometrySpec) -> Result<Geometry, GeometryError> {
        spec.check()?;
        let kind = match spec.level {
            Level::Linear | Level::Raid0 => Kind::Striped(Striped::new(spec)?),
            Level::Raid1 | Level::Raid10 => Kind::Mirrored(Mirrored::new(spec)?),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Kind::Parity(Parity::new(spec)?),
        };
        Ok(Geometry {
            level: spec.level,
            layout: spec.layout,
            chunk_sectors: if spec.level.has_chunks() { spec.chunk_sectors } else { 0 },
            members: spec.member_sectors.len(),
            kind,
        })
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The layout, as given.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Sectors per chunk; 0 for linear and RAID 1, which have none.
    pub fn chunk_sectors(&self) -> u64 {
        self.chunk_sectors
    }

    /// Slots of the array (md: `raid_disks`).
    pub fn members(&self) -> usize {
        self.members
    }

    /// Sectors that the array offers.
    pub fn array_sectors(&self) -> u64 {
        match &self.kind {
            Kind::Striped(striped) => striped.array_sectors(),
            Kind::Mirrored(mirrored) => mirrored.array_sectors(),
            Kind::Parity(parity) => parity.array_sectors(),
        }
    }

    /// Sectors of a member's data area that the array uses, from its start. The same for all
    /// members except in linear and RAID 0.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn member_used_sectors(&self, member: MemberIdx) -> u64 {
        assert!(member.index() < self.members, "member {member} is outside of the array");
        match &self.kind {
            Kind::Striped(striped) => striped.used(member),
            Kind::Mirrored(mirrored) => mirrored.used(),
            Kind::Parity(parity) => parity.used(),
        }
    }

    /// Members' worth of data in a row: linear and RAID 0 all, RAID 1 one, RAID 4 and 5 all but
    /// one, RAID 6 all but two, RAID 10 members / copies rounded down (at least 1).
    pub fn data_members(&self) -> usize {
        match &self.kind {
            Kind::Striped(_) => self.members,
            Kind::Mirrored(mirrored) => self.members / mirrored.copies(),
            Kind::Parity(parity) => parity.data_disks(),
        }
    }

    /// How many members may be lost, whichever they are, with all data still served. RAID 10 often
    /// survives more; ask [`Geometry::enough`].
    pub fn tolerates(&self) -> usize {
        match &self.kind {
            Kind::Striped(_) => 0,
            Kind::Mirrored(mirrored) => mirrored.copies() - 1,
            Kind::Parity(parity) => self.members - parity.data_disks(),
        }
    }

    /// Sectors of a full stripe, chunk x data members: the write size that wastes least. 0 for
    /// linear and RAID 1, which have no stripes. RAID 0 over unequal members: of its first zone.
    pub fn stripe_sectors(&self) -> u64 {
        self.chunk_sectors * self.data_members() as u64
    }

    /// The placement.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether all data can be served when only the members that `present` says are there.
    pub fn enough(&self, present: impl Fn(MemberIdx) -> bool) -> bool {
        let missing = || (0..self.members).filter(|&slot| !present(MemberIdx(slot as u16))).count();
        match &self.kind {
            Kind::Striped(_) => missing() == 0,
            Kind::Mirrored(mirrored) => mirrored.enough(&present),
            Kind::Parity(_) => missing() <= self.tolerates(),
        }
    }
}
