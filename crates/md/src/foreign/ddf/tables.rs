//! The metadata of one disk: the anchor in its last sector, and the two copies that it points to.
//!
//! ```text
//!   data | secondary header, sections | primary header, sections | ... | anchor |
//! ```
//!
//! Invariant: the copy that is used is the newest whole one; what is wrong with the other one is
//! said.

use super::format::HEADER_BYTES;
use super::sections::{Copy, Header};
use crate::foreign::Unusable;
use crate::units::SECTOR_BYTES;

/// Longest section that is read: 8 MiB; mdadm's and controllers' have some hundred sectors.
const SECTION_SECTORS_MAX: u64 = 16384;

/// Sectors before the end where an anchor may be: the last one, and 128 KiB before that on disks
/// whose controller keeps more behind it.
const ANCHORS: [u64; 2] = [1, 257];

/// The metadata of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The anchor's sector.
    pub sector: u64,
    /// First sector of the metadata: what lies below it is free for data.
    pub first_sector: u64,
    /// The copy that is used.
    pub copy: Copy,
    /// Sector of the header of that copy.
    pub copy_sector: u64,
    /// Whether all its CRCs are right.
    pub checksum_ok: bool,
    /// What is wrong with the other copy, or with the anchor: clauses.
    pub problems: Vec<String>,
}

/// Reads the metadata of a disk, if they are there: `read` fills whole sectors.
///
/// # Errors
/// The anchor is there, and neither copy can be read.
pub fn read<E: std::fmt::Display>(
    device_sectors: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Option<Result<Tables, Unusable>> {
    let mut found = None;
    for before in ANCHORS {
        let Some(sector) = device_sectors.checked_sub(before) else { continue };
        let mut bytes = vec![0; HEADER_BYTES];
        if read(sector, &mut bytes).is_err() {
            continue;
        }
        let Ok((anchor, crc)) = Header::decode(&bytes) else { continue };
        let problem = crc.err().map(|error| format!("its anchor: {error}"));
        let tables = copies(device_sectors, sector, &anchor, problem, &mut read);
        let is_fine = tables.is_ok();
        found = Some(tables);
        if is_fine {
            break;
        }
    }
    if found.is_some() {
        return found;
    }
    let large = device_sectors.checked_sub(8)?;
    let mut bytes = vec![0; HEADER_BYTES];
    let there = read(large, &mut bytes).is_ok() && Header::decode(&bytes).is_ok();
    there.then_some(Err(Unusable::LargeBlocks))
}

/// Reads both copies and chooses one.
fn copies<E: std::fmt::Display>(
    device_sectors: u64,
    sector: u64,
    anchor: &Header,
    problem: Option<String>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Tables, Unusable> {
    let mut problems: Vec<String> = problem.into_iter().collect();
    let mut there: Vec<(u64, Copy)> = Vec::new();
    for (name, kind, at) in [("primary", 1, anchor.primary), ("secondary", 2, anchor.secondary)] {
        if at == u64::MAX {
            continue;
        }
        match copy(device_sectors, at, read) {
            Ok(copy) if copy.header.kind != kind => {
                problems.push(format!("its {name} copy is of type {}", copy.header.kind));
            }
            Ok(copy) if copy.header.guid != anchor.guid => {
                problems.push(format!("its {name} copy is of another container"));
            }
            Ok(copy) => {
                let wrong = copy.wrong.iter();
                problems.extend(wrong.map(|wrong| format!("its {name} copy: {wrong}")));
                there.push((at, copy));
            }
            Err(why) => problems.push(format!("its {name} copy: {why}")),
        }
    }
    if let [(_, one), (_, other)] = there.as_slice() {
        let (first, second) = (one.header.sequence, other.header.sequence);
        let same = one.disks == other.disks
            && one.virtuals == other.virtuals
            && one.configs == other.configs
            && one.own == other.own;
        if first != second {
            problems.push(format!("its copies have the sequence numbers {first} and {second}"));
        } else if !same {
            problems.push("its two copies differ".into());
        }
    }
    // Whole before damaged, closed before open, newer before older, the first of two equal ones.
    let best = there.iter().enumerate().max_by_key(|(place, (_, copy))| {
        let header = &copy.header;
        let is_closed = matches!(header.open, 0 | 0xff);
        (copy.wrong.is_empty(), is_closed, header.sequence, std::cmp::Reverse(*place))
    });
    let Some((place, _)) = best else { return Err(Unusable::NoCopy(problems)) };
    let first_sector = there.iter().map(|(at, _)| *at).chain([anchor.workspace, sector]);
    let first_sector = first_sector.min().unwrap_or(sector);
    let (copy_sector, copy) = there.swap_remove(place);
    let checksum_ok = copy.wrong.is_empty();
    Ok(Tables { sector, first_sector, copy_sector, checksum_ok, problems, copy })
}

/// Reads the copy whose header is at `at`.
fn copy<E: std::fmt::Display>(
    device_sectors: u64,
    at: u64,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Copy, Unusable> {
    let mut sectors = |from: u64, count: u64| {
        let end = from.checked_add(count).filter(|&end| end <= device_sectors);
        if count == 0 || count > SECTION_SECTORS_MAX || end.is_none() {
            return Err(Unusable::Outside { from, sectors: count });
        }
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        let failed = |error: E| Unusable::Read { sector: from, error: error.to_string() };
        read(from, &mut bytes).map_err(failed)?;
        Ok(bytes)
    };
    let (header, crc) = Header::decode(&sectors(at, 1)?)?;
    // Nothing can be found by a header that is damaged.
    crc?;
    let mut section =
        |(offset, count): (u32, u32)| sectors(at.saturating_add(offset.into()), count.into());
    let (disks, virtuals) = (section(header.disks)?, section(header.virtuals)?);
    let (configs, own) = (section(header.configs)?, section(header.own)?);
    Ok(Copy::decode(header, [&disks, &virtuals, &configs, &own])?)
}
