//! LVM's metadata areas in windows: where the logical volumes of a group begin.
//!
//! An area states its address, but not of which physical volume; the text in it names all of the
//! group.

use crate::bytes::{Bytes, Unreadable};
use crate::field::le64;
use crate::lvm::{self, Label, VolumeGroup, is_plain_name};
use crate::tables::{Region, Table};

const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";

/// A metadata area with its newest text.
pub struct Area {
    /// The address that it states, in its physical volume.
    pub address: u64,
    /// The physical volumes of the group, each with the logical volumes that begin on it.
    pub tables: Vec<Table>,
}

/// Decodes the area whose header begins at the start of `rest`. `None` also if its text is not in
/// the window.
pub fn decode(rest: &[u8]) -> Option<Area> {
    if rest.get(4..20) != Some(MAGIC) {
        return None;
    }
    let address = le64(rest, 24);
    let tables = read(&Shifted { window: rest, at: address }, address)?;
    Some(Area { address, tables })
}

/// Reads the areas of a physical volume through a hypothesis; true if there are more regions.
pub fn learn_through(table: &mut Table, through: &dyn Bytes) -> bool {
    let before = table.regions.len();
    for address in table.metadata_areas() {
        let tables = read(through, address).unwrap_or_default();
        for found in tables.into_iter().filter(|found| table.is(found)).collect::<Vec<_>>() {
            table.renew(found);
        }
    }
    table.regions.len() > before
}

fn read(device: &dyn Bytes, address: u64) -> Option<Vec<Table>> {
    let label = Label { uuid: String::new(), areas: vec![(address, 0)] };
    let (texts, _) = lvm::texts(device, &label);
    let group = lvm::decode(texts.first()?).ok()?;
    let tables = (0..group.physical.len()).map(|index| table(&group, index));
    Some(tables.collect())
}

fn table(group: &VolumeGroup, index: usize) -> Table {
    let physical = &group.physical[index];
    let sectors = physical.extents.saturating_mul(group.extent_sectors);
    let end = physical.first_sector.saturating_add(sectors);
    Table::physical_volume(&physical.uuid, end.saturating_mul(512), regions(group, index))
}

/// The logical volumes that begin on a physical volume.
fn regions(group: &VolumeGroup, index: usize) -> Vec<Region> {
    let begins = |volume: &lvm::LogicalVolume| {
        let mapping = volume.mapping.as_ref().ok().filter(|mapping| mapping.sectors() > 0)?;
        let first = mapping.locate(0);
        let named = |name: &str| if is_plain_name(name) { name.to_string() } else { "?".into() };
        (first.physical == index).then_some(())?;
        Some(Region {
            start: first.sector.checked_mul(512)?,
            bytes: first.sectors.checked_mul(512)?,
            name: format!("{}/{}", named(&group.name), named(&volume.name)),
        })
    };
    group.logical.iter().filter_map(begins).collect()
}

/// A window as a part of a device of which the rest is not there.
struct Shifted<'a> {
    window: &'a [u8],
    at: u64,
}

impl Bytes for Shifted<'_> {
    fn size(&self) -> u64 {
        u64::MAX
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.window.read(at.checked_sub(self.at).ok_or(Unreadable)?, into)
    }
}
