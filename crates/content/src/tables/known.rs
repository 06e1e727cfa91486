//! A table that was found: who it is, where it must stand, and the regions that it names.

use super::{gpt, lvm, mbr};
use crate::bytes::{Bytes, take};
use crate::field::le64;
use crate::kind::Kind;
use crate::prediction::{Prediction, PredictionKind};

/// A part of what a table divides: a partition, a segment of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Byte address from the start of what the table divides.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Its name: `p1`, `vg/lv`.
    pub name: String,
}

/// A table, or a copy or part of it, at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub table: Table,
    /// The address that it states.
    pub address: u64,
    pub checksum: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub kind: Kind,
    pub uuid: Option<String>,
    /// Bytes of what it divides.
    pub bytes: u64,
    /// Bytes of a sector.
    pub sector: u32,
    pub regions: Vec<Region>,
    header: Header,
}

/// What tells one table from another.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Header {
    Gpt(gpt::Header),
    Mbr(mbr::Mbr),
    /// With the label, once it was seen.
    Lvm(Option<lvm::Label>),
}

impl Table {
    /// Whether another one is a copy or a version of it.
    pub fn is(&self, other: &Table) -> bool {
        match (&self.header, &other.header) {
            (Header::Gpt(one), Header::Gpt(two)) => one.guid == two.guid,
            (Header::Mbr(one), Header::Mbr(two)) => one == two,
            (Header::Lvm(_), Header::Lvm(_)) => self.uuid == other.uuid,
            _ => false,
        }
    }

    /// A physical volume of LVM by what the metadata of its group say of it.
    pub fn physical_volume(uuid: &str, bytes: u64, regions: Vec<Region>) -> Table {
        Table {
            kind: Kind::LvmPhysicalVolume,
            uuid: Some(uuid.to_string()),
            bytes,
            sector: 512,
            regions,
            header: Header::Lvm(None),
        }
    }

    /// Takes what a copy says more.
    pub fn renew(&mut self, other: Table) {
        if let (Header::Lvm(label), Header::Lvm(other_label)) = (&mut self.header, other.header)
            && other_label.is_some()
        {
            *label = other_label;
            self.bytes = other.bytes;
        }
        if other.regions.len() > self.regions.len() {
            self.regions = other.regions;
        }
    }

    /// Whether another one says more.
    pub fn lacks(&self, other: &Table) -> bool {
        let has_no_label = matches!(self.header, Header::Lvm(None));
        other.regions.len() > self.regions.len()
            || has_no_label && matches!(other.header, Header::Lvm(Some(_)))
    }

    /// Of LVM, the byte addresses at which metadata areas begin.
    pub fn metadata_areas(&self) -> Vec<u64> {
        match &self.header {
            Header::Lvm(Some(label)) => label.areas.iter().map(|area| area.0).collect(),
            _ => Vec::new(),
        }
    }

    /// Reads the regions through a hypothesis; true if there are more.
    pub fn learn_through(&mut self, through: &dyn Bytes) -> bool {
        let before = self.regions.len();
        if let Header::Gpt(header) = &self.header {
            let at = header.entries_at.checked_mul(self.sector.into());
            let len = gpt::entries_bytes(header);
            let entries = at.zip(len).and_then(|(at, len)| take(through, at, len));
            let regions = entries.and_then(|entries| gpt_regions(header, &entries, self.sector));
            self.regions = regions.unwrap_or(std::mem::take(&mut self.regions));
        }
        self.regions.len() > before
    }

    /// The table and its copy.
    pub fn predictions(&self) -> Vec<Prediction> {
        let places = match &self.header {
            Header::Gpt(header) => vec![header.block, header.other],
            Header::Mbr(_) => vec![0],
            Header::Lvm(label) => label.iter().map(|label| label.sector).collect(),
        };
        let one = |block: u64| {
            let (own, sector) = (self.clone(), self.sector);
            let address = block.checked_mul(sector.into())?;
            let holds = move |bytes: &[u8]| {
                decode(bytes).is_some_and(|found| {
                    own.is(&found.table) && found.address / u64::from(found.table.sector) == block
                })
            };
            Some(Prediction::new(PredictionKind::Header, address, 512, holds))
        };
        places.into_iter().filter_map(one).collect()
    }
}

/// Decodes the table that begins at the start of `rest`; what follows it may name its regions.
pub fn decode(rest: &[u8]) -> Option<Found> {
    if rest.starts_with(b"EFI PART") {
        return gpt(rest);
    }
    if rest.starts_with(b"LABELONE") {
        let label = lvm::Label::decode(rest)?;
        let address = label.sector.checked_mul(512).filter(|_| label.sector < 4)?;
        let table = Table {
            kind: Kind::LvmPhysicalVolume,
            uuid: Some(label.uuid()),
            bytes: label.bytes,
            sector: 512,
            regions: Vec::new(),
            header: Header::Lvm(Some(label)),
        };
        return Some(Found { table, address, checksum: true });
    }
    if rest.get(510..512) == Some(&[0x55, 0xaa]) {
        let mbr = mbr::Mbr::decode(rest)?;
        return (!mbr.is_protective()).then(|| mbr_found(mbr));
    }
    None
}

fn mbr_found(mbr: mbr::Mbr) -> Found {
    let region = |partition: &mbr::Partition| Region {
        start: u64::from(partition.start) * 512,
        bytes: u64::from(partition.sectors) * 512,
        name: format!("p{}", partition.number),
    };
    let regions: Vec<Region> = mbr.partitions.iter().map(region).collect();
    let table = Table {
        kind: Kind::Mbr,
        uuid: (mbr.serial != 0).then(|| format!("{:08x}", mbr.serial)),
        bytes: regions.iter().map(|region| region.start + region.bytes).max().unwrap_or(0),
        sector: 512,
        regions,
        header: Header::Mbr(mbr),
    };
    Found { table, address: 0, checksum: false }
}

fn gpt(rest: &[u8]) -> Option<Found> {
    let header = gpt::Header::decode(rest)?;
    let last = header.block.max(header.other);
    // Of the first one, the entries follow, in the next block. Blocks are of 512 bytes unless they
    // are found where they would be with 4096.
    let entries = |sector: usize| {
        let behind = usize::try_from(header.entries_at.checked_sub(header.block)?).ok()?;
        let at = behind.checked_mul(sector)?;
        let len = gpt::entries_bytes(&header)?;
        gpt_regions(&header, rest.get(at..)?.get(..len)?, sector as u32)
    };
    let (sector, regions) = match (entries(512), entries(4096)) {
        (Some(regions), _) => (512, regions),
        (None, Some(regions)) => (4096, regions),
        (None, None) => (512, gpt_first_entries(&header, rest)),
    };
    let address = header.block.checked_mul(sector)?;
    let bytes = last.checked_add(1)?.checked_mul(sector)?;
    let table = Table {
        kind: Kind::Gpt,
        uuid: header.uuid(),
        bytes,
        sector: sector as u32,
        regions,
        header: Header::Gpt(header),
    };
    Some(Found { table, address, checksum: true })
}

/// Regions of all entries, if their checksum holds.
fn gpt_regions(header: &gpt::Header, entries: &[u8], sector: u32) -> Option<Vec<Region>> {
    if crc32fast::hash(entries) != header.entries_crc {
        return None;
    }
    Some(regions_of(header, entries, sector))
}

/// Regions of the entries in the first sectors behind a header whose other entries are elsewhere.
fn gpt_first_entries(header: &gpt::Header, rest: &[u8]) -> Vec<Region> {
    // Less than 4 KiB, the smallest chunk, with what comes before the header.
    match rest.get(512..3072) {
        Some(entries) if header.block == 1 && header.entries_at == 2 => {
            regions_of(header, entries, 512)
        }
        _ => Vec::new(),
    }
}

fn regions_of(header: &gpt::Header, entries: &[u8], sector: u32) -> Vec<Region> {
    let size = header.entry_bytes as usize;
    if size < 128 {
        return Vec::new();
    }
    let count = (header.entries as usize).min(gpt::ENTRIES_MAX);
    let entries = (1..).zip(entries.chunks_exact(size).take(count));
    let region = |(number, entry): (u32, &[u8])| {
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        let is_used = entry[..16] != [0; 16] && first <= last && last <= header.last_usable;
        let sector = u64::from(sector);
        let bytes = (last.wrapping_sub(first).wrapping_add(1)).checked_mul(sector)?;
        let start = first.checked_mul(sector)?;
        is_used.then(|| Region { start, bytes, name: format!("p{number}") })
    };
    entries.filter_map(region).collect()
}
