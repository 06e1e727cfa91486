//! Metadata of other formats: whatever they say becomes a decision of the assembly, and what is
//! read then lies in front of the metadata.

use super::{Target, Verdict};
use raidlab_md::assemble::{Options, assemble};
use raidlab_md::foreign::{ForeignMember, Metadata, candidates, ddf, imsm};
use raidlab_md::ondisk::Field;
use std::convert::Infallible;

/// The metadata as they lie in memory.
pub const IMSM: Target = Target {
    name: "imsm",
    // Sizes and counts, then the first volume and its map behind four disks.
    fields: &[
        field(36, 4),
        field(44, 4),
        field(56, 1),
        field(57, 1),
        field(72, 4),
        field(216 + 16, 4),
        field(216 + 24, 4),
        field(VOLUME + 16, 8),
        field(VOLUME + 88, 1),
        field(VOLUME + 89, 1),
        field(VOLUME + 90, 1),
        field(MAP, 4),
        field(MAP + 4, 4),
        field(MAP + 8, 4),
        field(MAP + 12, 2),
        field(MAP + 14, 1),
        field(MAP + 15, 1),
        field(MAP + 16, 1),
        field(MAP + 17, 1),
        field(MAP + 20, 8),
        field(MAP + 48, 4),
        field(MAP + 52, 4),
    ],
    bytes_max: 16384,
    repair: repair_imsm,
    check: check_imsm,
};

const VOLUME: usize = 216 + 4 * 48;
const MAP: usize = VOLUME + 112;

/// A whole small disk.
pub const DDF: Target = Target {
    name: "ddf",
    // Of the header at its start: places of the sections; of the configuration record.
    fields: &[
        field(40, 4),
        field(48, 1),
        field(134, 2),
        field(136, 2),
        field(200, 8),
        field(208, 8),
        field(216, 8),
        field(224, 8),
        field(CONFIG + 64, 2),
        field(CONFIG + 66, 1),
        field(CONFIG + 67, 1),
        field(CONFIG + 68, 1),
        field(CONFIG + 69, 1),
        field(CONFIG + 70, 1),
        field(CONFIG + 71, 1),
        field(CONFIG + 72, 8),
        field(CONFIG + 80, 8),
        field(CONFIG + 512, 4),
        field(512 + 64 + 24, 4),
        field(512 + 64 + 30, 2),
        field(1024 + 64 + 32, 2),
    ],
    bytes_max: 16384,
    repair: repair_ddf,
    check: check_ddf,
};

/// Where its records are: behind the header and two lists.
const CONFIG: usize = 3 * 512;

const fn field(offset: usize, size: usize) -> Field {
    Field { name: "field", offset, size }
}

fn repair_imsm(bytes: &mut [u8]) {
    let Some(size) = bytes.get(36..40) else { return };
    let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
    let Some(all) = bytes.get_mut(..size).filter(|all| all.len() >= 216) else { return };
    all[32..36].fill(0);
    let words = all.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4")));
    let sum = words.fold(0_u32, u32::wrapping_add);
    all[32..36].copy_from_slice(&sum.to_le_bytes());
}

fn check_imsm(bytes: &[u8]) -> Verdict {
    // The disk ends with one more block behind the anchor.
    let sector = 1 << 20;
    let Ok(table) = imsm::decode(bytes, 512, sector) else { return Verdict::Refused };
    assert!(table.bytes.len() <= bytes.len());
    let serials: Vec<String> = table.disks.iter().map(|disk| disk.serial.clone()).collect();
    let metadata = Metadata::Imsm(table);
    // One that knows which disk it is, one that does not.
    let members = serials.iter().map(Some).chain([None]).take(6);
    let members = members.map(|serial| ForeignMember {
        label: "disk",
        device_sectors: sector + 2,
        metadata: &metadata,
        serial: serial.map(String::as_str),
        file_name: None,
    });
    decide(&members.collect::<Vec<_>>());
    Verdict::Decoded
}

fn repair_ddf(bytes: &mut [u8]) {
    let sectors = bytes.len() / 512;
    let mut crc = |start: usize, length: usize| {
        let Some(part) = bytes.get_mut(start..start + length) else { return };
        part[4..8].fill(0xff);
        let mut hash = crc32fast::Hasher::new_with_initial(!0);
        hash.update(part);
        part[4..8].copy_from_slice(&(!hash.finalize()).to_be_bytes());
    };
    if sectors >= 7 {
        [(0, 512), (512, 512), (1024, 512), (CONFIG, 1024), (5 * 512, 512)]
            .into_iter()
            .for_each(|(start, length)| crc(start, length));
        crc((sectors - 1) * 512, 512);
    }
}

fn check_ddf(bytes: &[u8]) -> Verdict {
    let read = |sector: u64, to: &mut [u8]| -> Result<(), Infallible> {
        let start = sector as usize * 512;
        to.copy_from_slice(&bytes[start..start + to.len()]);
        Ok(())
    };
    let sectors = bytes.len() as u64 / 512;
    let Some(Ok(tables)) = ddf::read(sectors, read) else { return Verdict::Refused };
    assert!(tables.first_sector <= tables.sector && tables.sector < sectors);
    for config in &tables.copy.configs {
        assert!(config.elements.len() * 12 <= bytes.len());
        assert!(!ddf::level_name(config).is_empty());
    }
    let metadata = Metadata::Ddf(tables);
    let member = ForeignMember {
        label: "disk",
        device_sectors: 1 << 20,
        metadata: &metadata,
        serial: None,
        file_name: None,
    };
    decide(&[member.clone(), member]);
    Verdict::Decoded
}

/// What is served, if anything is: in front of the metadata, and no more than there is.
fn decide(members: &[ForeignMember<'_>]) {
    let found: Vec<_> = candidates(members).into_iter().map(|(_, candidate)| candidate).collect();
    let force = Options { force: true, ..Options::default() };
    for options in [Options::default(), force] {
        for array in assemble(&found, &options).arrays {
            assert!(!array.read_write.verdict.runs(), "another format's array is never run");
            let Ok(shape) = &array.shape else { continue };
            assert!(array.array_sectors <= shape.array_sectors());
            for source in array.read_only.slots.iter().flatten() {
                let metadata = &found[source.candidate].metadata;
                let used = metadata.used_sectors.max(1);
                assert!(
                    source.data_offset + used.min(metadata.data_sectors) <= metadata.super_sector
                );
            }
        }
    }
}
