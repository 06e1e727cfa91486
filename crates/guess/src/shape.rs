//! A geometry without members: level, layout, slots, chunk. Where an array address lies on slots.
//!
//! Invariant: the mapping is [`md::Geometry`]'s and no other.

use std::sync::Arc;

use md::geometry::Copy;
use md::{Geometry, GeometrySpec, Kind, Layout, Level, SECTOR_BYTES, Sector};

/// Level, layout, slots, chunk and the sizes that the mapping depends on.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub level: Level,
    pub layout: Layout,
    pub slots: usize,
    /// In bytes; 0 without chunks.
    pub chunk: u64,
    /// Bytes of each slot's data area, where they differ and matter: linear, unequal RAID 0.
    pub sizes: Option<Vec<u64>>,
    /// RAID 10 far: bytes from one copy to the next.
    pub stride: Option<u64>,
    geometry: Arc<Geometry>,
}

/// What a slot holds of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The data, or a copy of it.
    Data,
    /// P of its row.
    P,
    /// Q of its row; whether the data counts in it with a factor of one.
    Q { plain: bool },
}

/// A place that depends on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub slot: usize,
    /// Bytes from the start of the slot's data area.
    pub at: u64,
    pub role: Role,
}

impl Shape {
    /// The shape over data areas of `size` bytes; `None` if md has no such array.
    pub fn new(level: Level, layout: Layout, slots: usize, chunk: u64, size: u64) -> Option<Shape> {
        Shape::with(level, layout, slots, chunk, vec![size; slots], false)
    }

    /// A shape whose slots differ in size.
    pub fn unequal(level: Level, layout: Layout, chunk: u64, sizes: Vec<u64>) -> Option<Shape> {
        Shape::with(level, layout, sizes.len(), chunk, sizes, true)
    }

    fn with(
        level: Level,
        layout: Layout,
        slots: usize,
        chunk: u64,
        sizes: Vec<u64>,
        unequal: bool,
    ) -> Option<Shape> {
        let member_sectors = sizes.iter().map(|size| size / SECTOR_BYTES).collect();
        let chunk_sectors = chunk / SECTOR_BYTES;
        let spec = GeometrySpec { level, layout, chunk_sectors, member_sectors };
        let geometry = Arc::new(Geometry::new(&spec).ok()?);
        let far = match layout {
            Layout::Raid10(it) if it.far > 1 && !it.offset => u64::from(it.far),
            _ => 0,
        };
        let used = geometry.member_used_sectors(md::MemberIdx(0)) * SECTOR_BYTES;
        let stride = used.checked_div(far);
        let sizes = unequal.then_some(sizes);
        Some(Shape { level, layout, slots, chunk, sizes, stride, geometry })
    }

    /// The same with data areas of another size.
    pub fn resized(&self, size: u64) -> Option<Shape> {
        if self.sizes.is_some() {
            return Some(self.clone());
        }
        Shape::new(self.level, self.layout, self.slots, self.chunk, size)
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> u64 {
        self.geometry.array_sectors() * SECTOR_BYTES
    }

    /// The mapping.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// How many slots may be without a member; RAID 0 may miss one, for a part of the contents.
    pub fn tolerates(&self) -> usize {
        match (self.level, self.layout) {
            (Level::Linear, _) => 0,
            (Level::Raid0, _) => usize::from(self.slots > 2),
            (Level::Raid10, Layout::Raid10(layout)) => self.slots - self.slots / layout.copies(),
            _ => self.geometry.tolerates(),
        }
    }

    /// Whether all data can be read with these slots.
    pub fn enough(&self, present: impl Fn(usize) -> bool) -> bool {
        self.geometry.enough(|slot| present(slot.index()))
    }

    /// Whether it has redundancy.
    pub fn redundant(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    /// Bytes from `address` on that stay in one chunk; 0 beyond the end.
    pub fn run(&self, address: u64) -> u64 {
        let left = self.bytes().saturating_sub(address);
        match self.geometry.kind() {
            Kind::Striped(striped) if left > 0 => {
                let extent = striped.locate(Sector(address / SECTOR_BYTES));
                extent.sectors * SECTOR_BYTES - address % SECTOR_BYTES
            }
            _ if self.chunk > 0 => left.min(self.chunk - address % self.chunk),
            _ => left,
        }
    }

    /// The places of an address: see [`places`].
    pub fn places(&self, address: u64, into: &mut Vec<Place>) {
        places(&self.geometry, address, into);
    }
}

/// The places of an address: the data and its copies, then P and Q. Empty beyond the end.
pub(crate) fn places(geometry: &Geometry, address: u64, into: &mut Vec<Place>) {
    into.clear();
    let (sector, rest) = (Sector(address / SECTOR_BYTES), address % SECTOR_BYTES);
    if sector.0 >= geometry.array_sectors() {
        return;
    }
    let bytes = |sector: Sector| sector.0 * SECTOR_BYTES + rest;
    match geometry.kind() {
        Kind::Striped(striped) => {
            let extent = striped.locate(sector);
            let (slot, at) = (extent.member.index(), bytes(extent.sector));
            into.push(Place { slot, at, role: Role::Data });
        }
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            mirrored.locate(sector, &mut copies);
            into.extend(copies.iter().map(|copy| {
                let (slot, at) = (copy.member.index(), bytes(copy.sector));
                Place { slot, at, role: Role::Data }
            }));
        }
        Kind::Parity(parity) => {
            let found = parity.locate(sector);
            let at = bytes(parity.member_sector(found.stripe, found.offset));
            let row = parity.row(found.stripe);
            let index = usize::from(found.index);
            let place = |slot: md::MemberIdx, role| Place { slot: slot.index(), at, role };
            into.push(place(row.data[index], Role::Data));
            into.push(place(row.p, Role::P));
            if let Some(q) = row.q {
                into.push(place(q, Role::Q { plain: row.exponent[index] == 0 }));
            }
        }
    }
}
