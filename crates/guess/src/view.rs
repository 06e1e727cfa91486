//! Reads an array as a candidate maps it, from the members that it uses; what is lost is recovered.
//!
//! Invariant: bytes that cannot be read or recovered are an error, never zeroes.

use content::{Bytes, Unreadable};
use md::geometry::{Parity, Row};
use md::{Kind, SECTOR_BYTES, Sector};
use parity::{Block, Kernels};

use crate::candidate::Candidate;
use crate::shape::{Place, Role};
use crate::source::{ByteRange, Pages};

/// An array as a candidate reads it.
pub(crate) struct View<'a> {
    candidate: &'a Candidate,
    pages: &'a Pages<'a>,
    /// Every place that is read in parity levels is recovered from the others instead: what the
    /// redundancy says of the data.
    kernels: Kernels,
}

impl<'a> View<'a> {
    pub fn new(candidate: &'a Candidate, pages: &'a Pages<'a>) -> View<'a> {
        View { candidate, pages, kernels: Kernels::best() }
    }

    fn slot(&self, slot: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        let member = self.candidate.member(slot)?;
        self.pages.take(member, self.candidate.offsets[slot] + at, len)
    }

    /// One piece, inside of a chunk.
    fn piece(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut places = Vec::new();
        self.candidate.shape.places(address, &mut places);
        let mut data = places.iter().filter(|place| place.role == Role::Data);
        if let Some(bytes) = data.find_map(|place| self.slot(place.slot, place.at, len)) {
            return Some(bytes);
        }
        let Kind::Parity(parity) = self.candidate.shape.geometry().kind() else { return None };
        self.recovered(parity, places.first()?, len)
    }

    /// Data from the rest of its row.
    fn recovered(&self, parity: &Parity, place: &Place, len: usize) -> Option<Vec<u8>> {
        let (stripe, _) = parity.row_of(Sector(place.at / SECTOR_BYTES));
        let row = parity.row(stripe);
        let md::RowRole::Data(index) = row.role[place.slot] else { return None };
        let read = |slot: usize| self.slot(slot, place.at, len);
        let data: Vec<Option<Vec<u8>>> = (0..row.data.len())
            .map(
                |other| {
                    if other == usize::from(index) { None } else { read(row.data[other].index()) }
                },
            )
            .collect();
        let lost: Vec<usize> = (0..data.len()).filter(|&at| data[at].is_none()).collect();
        let p = if lost.len() <= 2 { read(row.p.index()) } else { None };
        let mut bytes = vec![0; len];
        if let (1, Some(p)) = (lost.len(), &p) {
            let others: Vec<&[u8]> = data.iter().flatten().map(Vec::as_slice).collect();
            self.kernels.recover_d_p(&mut bytes, &others, p);
            return Some(bytes);
        }
        let q = read(row.q?.index())?;
        let others = blocks(row, &data);
        let exponent = row.exponent[usize::from(index)];
        match (lost.as_slice(), p) {
            ([_], _) => self.kernels.recover_d_q(&mut bytes, exponent, &others, &q),
            (&[one, two], Some(p)) => {
                let other = if one == usize::from(index) { two } else { one };
                let mut unused = vec![0; len];
                let other = row.exponent[other];
                self.kernels.recover_dd(&mut bytes, exponent, &mut unused, other, &others, &p, &q);
            }
            _ => return None,
        }
        Some(bytes)
    }

    /// Starts reading what these addresses need, together.
    pub fn prefetch(&self, wanted: impl Iterator<Item = (u64, usize)>) {
        let mut ranges = Vec::new();
        let mut places = Vec::new();
        for (address, len) in wanted {
            let mut at = address;
            let end = address.saturating_add(len as u64);
            while at < end {
                let run = self.candidate.shape.run(at).min(end - at);
                if run == 0 {
                    break;
                }
                self.candidate.shape.places(at, &mut places);
                self.ranges(&places, run as usize, &mut ranges);
                at += run;
            }
        }
        self.pages.prefetch(&ranges);
    }

    fn ranges(&self, places: &[Place], len: usize, into: &mut Vec<ByteRange>) {
        let candidate = self.candidate;
        let direct = places.iter().find_map(|place| {
            let member = candidate.member(place.slot).filter(|_| place.role == Role::Data)?;
            Some(ByteRange { member, at: candidate.offsets[place.slot] + place.at, len })
        });
        if let Some(range) = direct {
            into.push(range);
        } else if let Some(first) = places.first() {
            into.extend((0..candidate.order.len()).filter_map(|slot| {
                let at = candidate.offsets[slot] + first.at;
                Some(ByteRange { member: candidate.member(slot)?, at, len })
            }));
        }
    }
}

/// The data blocks that are there, in the order of their exponents.
pub(crate) fn blocks<'a>(row: &Row, data: &'a [Option<Vec<u8>>]) -> Vec<Block<'a>> {
    let by_exponent = row.by_exponent.iter().filter_map(|&index| {
        let bytes = data[usize::from(index)].as_deref()?;
        Some(Block { exponent: row.exponent[usize::from(index)], bytes })
    });
    by_exponent.collect()
}

impl Bytes for View<'_> {
    fn size(&self) -> u64 {
        self.candidate.shape.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let end = at.checked_add(into.len() as u64).ok_or(Unreadable)?;
        if end > self.size() {
            return Err(Unreadable);
        }
        let mut from = at;
        while from < end {
            let len = self.candidate.shape.run(from).min(end - from) as usize;
            let bytes = self.piece(from, len).ok_or(Unreadable)?;
            let to = (from - at) as usize;
            into[to..to + len].copy_from_slice(&bytes);
            from += len as u64;
        }
        Ok(())
    }
}
