//! A parity array in memory, as plain as it gets: the members' data areas, and reading through
//! parity. RAID 6 is written with Q, and read through P only.

use raidlab_md::{
    Geometry, GeometrySpec, Kind, Layout, Level, MemberIdx, Parity, Sector, StripeNo,
};
use sha2::{Digest, Sha256};

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn spec(level: Level, layout: i32, members: usize, chunk: u64, rows: u64) -> Geometry {
    let spec = GeometrySpec {
        level,
        layout: Layout::from_number(level, layout).unwrap(),
        chunk_sectors: chunk,
        member_sectors: vec![chunk * rows; members],
    };
    Geometry::new(&spec).unwrap()
}

pub fn parity(geometry: &Geometry) -> &Parity {
    let Kind::Parity(parity) = geometry.kind() else { panic!("{}", geometry.level()) };
    parity
}

pub fn xor(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    into.iter_mut().zip(from).for_each(|(into, from)| *into ^= from);
}

/// x times the power of 2, in GF(2^8) with 0x11d.
fn times_power(mut x: u8, exponent: u8) -> u8 {
    for _ in 0..exponent {
        x = x << 1 ^ if x & 0x80 != 0 { 0x1d } else { 0 };
    }
    x
}

#[derive(Clone)]
pub struct Memory<'a> {
    pub parity: &'a Parity,
    /// The data area of each slot.
    pub slots: Vec<Vec<u8>>,
}

impl<'a> Memory<'a> {
    pub fn new(geometry: &'a Geometry) -> Memory<'a> {
        let parity = parity(geometry);
        let bytes = geometry.member_used_sectors(MemberIdx(0)) as usize * 512;
        Memory { parity, slots: vec![vec![0; bytes]; geometry.members()] }
    }

    pub fn at(&self, member: MemberIdx, sector: u64, sectors: u64) -> &[u8] {
        &self.slots[member.index()][sector as usize * 512..(sector + sectors) as usize * 512]
    }

    pub fn put(&mut self, member: MemberIdx, sector: u64, bytes: &[u8]) {
        let start = sector as usize * 512;
        self.slots[member.index()][start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// What P of some sectors of a row should be.
    pub fn p_of(&self, stripe: StripeNo, sector: u64, sectors: u64) -> Vec<u8> {
        let mut p = vec![0; sectors as usize * 512];
        for &member in &self.parity.row(stripe).data {
            xor(&mut p, self.at(member, sector, sectors));
        }
        p
    }

    /// What Q should be.
    pub fn q_of(&self, stripe: StripeNo, sector: u64, sectors: u64) -> Vec<u8> {
        let row = self.parity.row(stripe);
        let mut q = vec![0; sectors as usize * 512];
        for (&member, &exponent) in row.data.iter().zip(&row.exponent) {
            let bytes = self.at(member, sector, sectors);
            q.iter_mut().zip(bytes).for_each(|(q, &byte)| *q ^= times_power(byte, exponent));
        }
        q
    }

    /// Makes P and Q of some sectors of a row right.
    pub fn make_parity(&mut self, stripe: StripeNo, sector: u64, sectors: u64) {
        let row = self.parity.row(stripe);
        let p = self.p_of(stripe, sector, sectors);
        self.put(row.p, sector, &p);
        if let Some(member) = row.q {
            let q = self.q_of(stripe, sector, sectors);
            self.put(member, sector, &q);
        }
    }

    pub fn make_all_parity(&mut self) {
        let chunk = self.parity.chunk_sectors();
        for stripe in 0..self.parity.stripes() {
            self.make_parity(StripeNo(stripe), stripe * chunk, chunk);
        }
    }

    /// The first row whose parity is wrong.
    pub fn wrong_row(&self) -> Option<StripeNo> {
        let chunk = self.parity.chunk_sectors();
        (0..self.parity.stripes()).map(StripeNo).find(|&stripe| {
            let row = self.parity.row(stripe);
            let sector = stripe.0 * chunk;
            let q_wrong = row.q.is_some_and(|member| {
                self.q_of(stripe, sector, chunk) != self.at(member, sector, chunk)
            });
            q_wrong || self.p_of(stripe, sector, chunk) != self.at(row.p, sector, chunk)
        })
    }

    /// The array's contents, without the bytes of `lost`.
    pub fn contents(&self, lost: Option<MemberIdx>) -> Vec<u8> {
        let chunk = self.parity.chunk_sectors();
        let mut contents = Vec::new();
        for stripe in 0..self.parity.stripes() {
            let row = self.parity.row(StripeNo(stripe));
            for &member in &row.data {
                if Some(member) != lost {
                    contents.extend_from_slice(self.at(member, stripe * chunk, chunk));
                    continue;
                }
                let mut bytes = self.at(row.p, stripe * chunk, chunk).to_vec();
                for &other in row.data.iter().filter(|other| **other != member) {
                    xor(&mut bytes, self.at(other, stripe * chunk, chunk));
                }
                contents.extend(bytes);
            }
        }
        contents
    }

    /// The member and its sector of an array sector.
    pub fn place(&self, at: Sector) -> (MemberIdx, u64) {
        let pos = self.parity.locate(at);
        let member = self.parity.row(pos.stripe).data[usize::from(pos.index)];
        (member, self.parity.member_sector(pos.stripe, pos.offset).0)
    }
}
