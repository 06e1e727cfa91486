//! Reads a golden array through its geometry, with whichever members are there.
//!
//! Invariant: a byte of a member that is not `present` is never looked at.

use super::case::Case;
use super::gf;
use raidlab_md::geometry::{Copy, Mirrored, Parity};
use raidlab_md::{Geometry, Kind, MemberIdx, RowRole, Sector, StripeNo};
use sha2::{Digest, Sha256};

pub struct Array<'a> {
    case: &'a Case,
    geometry: Geometry,
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<'a> Array<'a> {
    pub fn new(case: &'a Case) -> Array<'a> {
        let geometry = Geometry::new(&case.spec)
            .unwrap_or_else(|error| panic!("{}: refused: {error}", case.name));
        assert_eq!(geometry.array_sectors() * 512, case.array_bytes, "{}: size", case.name);
        for (slot, data) in case.slots.iter().enumerate() {
            let used = geometry.member_used_sectors(MemberIdx(slot as u16));
            assert!(data.as_ref().is_none_or(|data| used * 512 <= data.len() as u64));
        }
        Array { case, geometry }
    }

    /// Which slots have a member.
    pub fn present(&self) -> Vec<bool> {
        self.case.slots.iter().map(Option::is_some).collect()
    }

    /// Every smaller set of members that is still enough.
    pub fn bearable_losses(&self) -> Vec<Vec<bool>> {
        let all = self.present();
        (0_u32..1 << all.len())
            .map(|mask| (0..all.len()).map(|slot| mask >> slot & 1 == 1).collect::<Vec<bool>>())
            .filter(|some| *some != all && some.iter().zip(&all).all(|(&some, &all)| !some || all))
            .filter(|some| self.geometry.enough(|member| some[member.index()]))
            .collect()
    }

    /// The contents, from the members that are present.
    pub fn read(&self, present: &[bool]) -> Vec<u8> {
        let sectors = self.geometry.array_sectors();
        let mut contents = Vec::with_capacity(sectors as usize * 512);
        let mut at = Sector::ZERO;
        while at.0 < sectors {
            let run = self.read_run(at, present);
            at += run.len() as u64 / 512;
            contents.extend(run);
        }
        assert_eq!(at.0, sectors, "the runs end where the array ends");
        contents
    }

    /// The contents from one sector on, as far as they lie together.
    pub fn read_run(&self, at: Sector, present: &[bool]) -> Vec<u8> {
        match self.geometry.kind() {
            Kind::Striped(striped) => {
                let extent = striped.locate(at);
                self.bytes(extent.member, extent.sector, extent.sectors).to_vec()
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                let run = mirrored.locate(at, &mut copies);
                let readable = copies
                    .iter()
                    .find(|copy| present[copy.member.index()])
                    .expect("there is a copy");
                self.bytes(readable.member, readable.sector, run).to_vec()
            }
            Kind::Parity(parity) => {
                let pos = parity.locate(at);
                let mut data = self.data_chunk(parity, pos.stripe, pos.index, present);
                data.drain(..pos.offset as usize * 512);
                data
            }
        }
    }

    fn bytes(&self, member: MemberIdx, sector: Sector, sectors: u64) -> &[u8] {
        let data = self.case.slots[member.index()].as_ref().expect("the slot has a member");
        &data[sector.bytes() as usize..(sector + sectors).bytes() as usize]
    }

    fn chunk(&self, parity: &Parity, member: MemberIdx, stripe: StripeNo) -> &[u8] {
        self.bytes(member, parity.member_sector(stripe, 0), parity.chunk_sectors())
    }

    /// A data chunk, recovered where its member is lost.
    fn data_chunk(
        &self,
        parity: &Parity,
        stripe: StripeNo,
        index: u16,
        present: &[bool],
    ) -> Vec<u8> {
        let row = parity.row(stripe);
        let here = |member: MemberIdx| present[member.index()];
        let wanted = usize::from(index);
        if here(row.data[wanted]) {
            return self.chunk(parity, row.data[wanted], stripe).to_vec();
        }
        let other = (0..row.data.len()).find(|&i| i != wanted && !here(row.data[i]));
        // Syndromes of what is there: P ^ (data present) = XOR of the lost chunks; the same for Q.
        let syndrome = |parity_member: MemberIdx, weighted: bool| {
            let mut sum = self.chunk(parity, parity_member, stripe).to_vec();
            for (i, &member) in row.data.iter().enumerate().filter(|(_, m)| here(**m)) {
                let factor = if weighted { gf::power(row.exponent[i]) } else { 1 };
                gf::add_scaled(&mut sum, factor, self.chunk(parity, member, stripe));
            }
            sum
        };
        let factor = gf::power(row.exponent[wanted]);
        match (other, here(row.p)) {
            // D_x = P'
            (None, true) => syndrome(row.p, false),
            // D_x = Q' / g^x
            (None, false) => {
                let mut data = vec![0; parity.chunk_sectors() as usize * 512];
                gf::add_scaled(&mut data, gf::inverse(factor), &syndrome(row.q.unwrap(), true));
                data
            }
            // D_x = (Q' + g^y P') / (g^x + g^y)
            (Some(other), true) => {
                let other = gf::power(row.exponent[other]);
                let mut sum = syndrome(row.q.unwrap(), true);
                gf::add_scaled(&mut sum, other, &syndrome(row.p, false));
                let mut data = vec![0; sum.len()];
                gf::add_scaled(&mut data, gf::inverse(factor ^ other), &sum);
                data
            }
            (Some(_), false) => panic!("three chunks of a row are lost"),
        }
    }

    /// P and Q of every row, or that the copies of every sector are equal. Rows or copies with a
    /// lost member are passed over.
    pub fn check_redundancy(&self) {
        match self.geometry.kind() {
            Kind::Striped(_) => {}
            Kind::Mirrored(mirrored) => self.check_copies(mirrored),
            Kind::Parity(parity) => {
                if self.present().iter().all(|&present| present) {
                    (0..parity.stripes()).for_each(|row| self.check_row(parity, StripeNo(row)));
                }
            }
        }
    }

    fn check_copies(&self, mirrored: &Mirrored) {
        let mut copies = vec![Copy::default(); mirrored.copies()];
        let mut at = Sector::ZERO;
        while at.0 < self.geometry.array_sectors() {
            let run = mirrored.locate(at, &mut copies);
            let first = self.bytes(copies[0].member, copies[0].sector, run);
            for copy in &copies {
                let other = self.bytes(copy.member, copy.sector, run);
                assert!(first == other, "{}: copies of sector {at} differ", self.case.name);
            }
            at += run;
        }
    }

    fn check_row(&self, parity: &Parity, stripe: StripeNo) {
        let row = parity.row(stripe);
        let mut p = vec![0; parity.chunk_sectors() as usize * 512];
        let mut q = p.clone();
        for (member, role) in row.role.iter().enumerate() {
            let RowRole::Data(index) = *role else { continue };
            let data = self.chunk(parity, MemberIdx(member as u16), stripe);
            gf::add_scaled(&mut p, 1, data);
            gf::add_scaled(&mut q, gf::power(row.exponent[usize::from(index)]), data);
        }
        assert!(p == self.chunk(parity, row.p, stripe), "{}: P of row {stripe}", self.case.name);
        if let Some(member) = row.q {
            let stored = self.chunk(parity, member, stripe);
            assert!(q == stored, "{}: Q of row {stripe}", self.case.name);
        }
    }
}
