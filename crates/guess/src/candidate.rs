//! A geometry with members: what would read the array.
//!
//! Invariant: two candidates are *the same* only if they read the same bytes of the same members
//! for every sampled address; names, and the order inside of a mirror, do not matter.

use md::{Level, SECTOR_BYTES};

use crate::shape::{Place, Role, Shape};
use crate::source::Pages;

/// A geometry with a member for each slot.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub shape: Shape,
    /// The member of each slot.
    pub order: Vec<Option<usize>>,
    /// Where each slot's data area begins on its member, in bytes.
    pub offsets: Vec<u64>,
    /// Members of `order` that must not be read: out of date.
    pub exclude: Vec<usize>,
    /// Where in the array the file system begins that it was found by.
    pub base: u64,
    /// The weight of the witnesses that it explains.
    pub weight: f64,
    /// Strong witnesses explained as data.
    pub direct: usize,
    /// Witnesses explained as copies on P or Q.
    pub parity_copies: usize,
    /// Strong witnesses in the right row on another data member.
    pub contradictions: usize,
    /// Strong witnesses in all; of those that have two addresses, only what is explained.
    pub witnesses: usize,
}

/// What is read for an address.
#[derive(Debug, PartialEq, Eq)]
enum Reads {
    /// One of these ranges of members.
    Any(Vec<(usize, u64)>),
    /// All of these together, each with its part in the sum.
    Sum(Vec<(usize, u64, u16)>),
    Nothing,
}

impl Candidate {
    /// The member that a slot is read from.
    pub fn member(&self, slot: usize) -> Option<usize> {
        self.order[slot].filter(|member| !self.exclude.contains(member))
    }

    /// Slots that are not read.
    pub fn missing(&self) -> usize {
        (0..self.order.len()).filter(|&slot| self.member(slot).is_none()).count()
    }

    /// Whether all data can be read.
    pub fn is_whole(&self) -> bool {
        self.shape.enough(|slot| self.member(slot).is_some())
    }

    /// The same without a member.
    pub fn without(&self, member: usize) -> Candidate {
        let mut other = self.clone();
        other.exclude.push(member);
        other
    }

    /// The same array with the data areas that its members have room for.
    pub fn fitted(mut self, pages: &Pages) -> Option<Candidate> {
        let chunk = self.shape.chunk.max(SECTOR_BYTES);
        let areas = self.order.iter().zip(&self.offsets);
        let areas = areas.filter_map(|(member, &offset)| {
            Some(pages.size((*member)?).saturating_sub(offset) / chunk * chunk)
        });
        let size = areas.min()?;
        if let Some(sizes) = &self.shape.sizes {
            let fits =
                self.order.iter().zip(&self.offsets).zip(sizes).all(|((member, &at), size)| {
                    member.is_none_or(|member| at + size <= pages.size(member))
                });
            return fits.then_some(self);
        }
        let size = match self.shape.stride {
            // The stride was found from the contents; the members only must have room for it.
            Some(stride) => {
                let far = self.shape.geometry().member_used_sectors(md::MemberIdx(0))
                    * SECTOR_BYTES
                    / stride;
                (stride * far <= size).then_some(stride * far)?
            }
            None => size,
        };
        self.shape = self.shape.resized(size)?;
        Some(self)
    }

    /// How plain its name is; the plainest of equal candidates is named.
    pub fn plainness(&self) -> (usize, usize, usize, usize) {
        let level = match self.shape.level {
            Level::Raid1 => 0,
            Level::Raid0 => 1,
            Level::Raid5 => 2,
            Level::Raid6 => 3,
            Level::Raid10 => 4,
            Level::Raid4 => 5,
            Level::Linear => 6,
        };
        let usual = self.shape.layout != md::Layout::default_for(self.shape.level);
        (self.missing(), usize::from(usual) * usize::from(level == 3), level, self.order.len())
    }

    fn reads(&self, address: u64, places: &mut Vec<Place>) -> Reads {
        self.shape.places(address, places);
        let read =
            |place: &Place| Some((self.member(place.slot)?, self.offsets[place.slot] + place.at));
        let data = places.iter().filter(|place| place.role == Role::Data);
        let mut direct: Vec<(usize, u64)> = data.filter_map(read).collect();
        if !direct.is_empty() {
            direct.sort_unstable();
            return Reads::Any(direct);
        }
        let md::Kind::Parity(parity) = self.shape.geometry().kind() else {
            return Reads::Nothing;
        };
        let Some(first) = places.first() else { return Reads::Nothing };
        let row = parity.row(parity.row_of(md::Sector(first.at / SECTOR_BYTES)).0);
        let there = |slot: usize| self.member(slot).is_some();
        let lost: Vec<usize> =
            (0..row.data.len()).filter(|&index| !there(row.data[index].index())).collect();
        let has_q = row.q.is_some_and(|q| there(q.index()));
        let by_p = lost.len() == 1 && there(row.p.index());
        let by_q = has_q && (lost.len() == 1 || lost.len() == 2 && there(row.p.index()));
        if !by_p && !by_q {
            return Reads::Nothing;
        }
        // The parts of the sum: 1 by P; by Q the exponents, and those of what is lost.
        let sum = (0..self.order.len()).filter_map(|slot| {
            let part = match row.role[slot] {
                md::RowRole::Q if by_p => return None,
                md::RowRole::P if !by_p && lost.len() == 1 => return None,
                _ if by_p => 1,
                md::RowRole::Data(index) => 2 + u16::from(row.exponent[usize::from(index)]),
                md::RowRole::P => 300,
                md::RowRole::Q => 301,
            };
            let member = self.member(slot)?;
            Some((member, self.offsets[slot] + first.at, part))
        });
        let mut sum: Vec<_> = sum.collect();
        if !by_p {
            let wanted = first.slot;
            let exponents = lost.iter().map(|&index| {
                let own = u16::from(row.data[index].index() == wanted);
                (usize::MAX, u64::from(row.exponent[index]), own)
            });
            sum.extend(exponents);
        }
        sum.sort_unstable();
        Reads::Sum(sum)
    }

    /// Whether both read the same bytes for `samples`, addresses in the file system.
    pub fn same(&self, other: &Candidate, samples: &[u64]) -> bool {
        let (mut of_self, mut of_other) = (Vec::new(), Vec::new());
        samples.iter().all(|&sample| {
            let one = self.reads(self.base + sample, &mut of_self);
            let two = other.reads(other.base + sample, &mut of_other);
            match (one, two) {
                (Reads::Any(one), Reads::Any(two)) => one.iter().any(|it| two.contains(it)),
                (one, two) => one == two,
            }
        })
    }
}

/// Addresses at which candidates are compared, in a file system of `size` bytes.
pub(crate) fn samples(size: u64) -> Vec<u64> {
    let blocks = (size / 4096).max(1);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let random = (0..700).map(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 16) % blocks * 4096
    });
    let first = (0..64).map(|step| step * (32 << 10)).filter(|&at| at < size);
    random.chain(first).collect()
}
