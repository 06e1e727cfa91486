//! Reads a stopped array from its member images, by the kernel's facts and `md::Geometry` alone.
//!
//! Invariant: no superblock is looked at, so that a wrong codec cannot hide a wrong mapping or be
//! hidden by one. Every member must be there; recovery is the subject of other tests.

use std::fs;
use std::path::PathBuf;

use md::geometry::Copy;
use md::{Geometry, Kind, MemberIdx, Sector};
use sha2::{Digest as _, Sha256};

use crate::guest::Facts;

/// A stopped array.
pub struct Stopped {
    geometry: Geometry,
    /// Data areas by slot.
    data: Vec<Vec<u8>>,
}

impl Stopped {
    /// Takes the data areas out of the images; `disks` are those of the job.
    pub fn open(facts: &Facts, disks: &[PathBuf]) -> Stopped {
        let geometry = facts.geometry();
        assert_eq!(geometry.array_sectors(), facts.array_sectors(), "the size of the array");
        let data = |slot| {
            let member = facts.member(slot).unwrap_or_else(|| panic!("slot {slot} is empty"));
            let image = fs::read(&disks[member.disk]).expect("an image is read");
            let start = (member.data_offset * 512) as usize;
            image[start..][..(member.data_sectors * 512) as usize].to_vec()
        };
        let data = (0..geometry.members()).map(data).collect();
        Stopped { geometry, data }
    }

    /// The contents. Copies are compared on the way.
    pub fn contents(&self) -> Vec<u8> {
        let sectors = self.geometry.array_sectors();
        let mut contents = Vec::with_capacity((sectors * 512) as usize);
        let mut copies = vec![Copy::default(); self.geometry.members()];
        let mut at = Sector::ZERO;
        while at.0 < sectors {
            let run = match self.geometry.kind() {
                Kind::Striped(striped) => {
                    let extent = striped.locate(at);
                    contents.extend(self.bytes(extent.member, extent.sector, extent.sectors));
                    extent.sectors
                }
                Kind::Mirrored(mirrored) => {
                    let run = mirrored.locate(at, &mut copies);
                    let mut all = copies[..mirrored.copies()]
                        .iter()
                        .map(|copy| self.bytes(copy.member, copy.sector, run));
                    let first = all.next().expect("an array has a copy");
                    assert!(all.all(|other| other == first), "copies of {at:?} differ");
                    contents.extend(first);
                    run
                }
                Kind::Parity(parity) => {
                    let place = parity.locate(at);
                    let run = parity.chunk_sectors() - place.offset;
                    let member = parity.row(place.stripe).data[usize::from(place.index)];
                    let sector = parity.member_sector(place.stripe, place.offset);
                    contents.extend(self.bytes(member, sector, run));
                    run
                }
            };
            at += run;
        }
        assert_eq!(at.0, sectors, "the runs end where the array ends");
        contents
    }

    fn bytes(&self, member: MemberIdx, sector: Sector, sectors: u64) -> &[u8] {
        let data = &self.data[member.index()];
        &data[sector.bytes() as usize..(sector + sectors).bytes() as usize]
    }
}

/// In hexadecimal, as sha256sum prints it.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
