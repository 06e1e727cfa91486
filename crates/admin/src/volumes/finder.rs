//! Finds what lies at a place: its content, its partitions, whether it is a physical volume.
//!
//! Invariant: a table is looked for on an array and on a logical volume, never in a partition.
//! Called by `explore` and `groups`.

use std::sync::Arc;

use content::lvm::{self, VolumeGroup};
use content::{Checksum, Identified, Kind as Format, identify};
use host::partition_tables;
use md::{SECTOR_BYTES, show_size};

use super::names::{Draft, Root};
use super::view::{Layer, VolumeView};
use super::volume::{Access, Kind, Volume};
use crate::rescue::{Contents, Readable, ReadableArray};

/// Of a table, more partitions than these are not listed.
const PARTITIONS_MAX: usize = 256;

/// What has been found so far.
pub(super) struct Finder {
    pub(super) arrays: Arc<Vec<Option<ReadableArray>>>,
    pub(super) drafts: Vec<Draft>,
    /// Physical volumes that no group has been made of.
    pub(super) physical: Vec<Physical>,
}

/// The place of a volume: its name without the first part, and where it is listed.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) root: Root,
    pub(super) rest: String,
    pub(super) under: usize,
}

/// A physical volume that was found.
pub(super) struct Physical {
    pub(super) uuid: String,
    pub(super) layer: Arc<Layer>,
    /// The array that it lies on, or that it is listed with.
    pub(super) under: usize,
    /// Its copies of the metadata.
    pub(super) copies: Vec<VolumeGroup>,
    /// Why others of its copies are not used.
    pub(super) problems: Vec<String>,
}

impl Finder {
    pub(super) fn view(&self, layer: &Layer) -> VolumeView {
        VolumeView { arrays: self.arrays.clone(), layer: layer.clone() }
    }

    /// A volume without its name, with what is at its start.
    pub(super) fn volume(&self, layer: &Layer, kind: Kind, access: Access) -> Volume {
        let view = self.view(layer);
        let content = match access {
            Access::No(_) => None,
            Access::Readable | Access::InPart(_) => identify(&Contents(&view)),
        };
        let sectors = layer.sectors();
        let content_doubts = content.iter().flat_map(|it| doubts_of(it, sectors));
        let note = match &content {
            Some(content) => note_of(content.kind),
            None if access == Access::Readable => unreadable_start(&view),
            None => None,
        };
        Volume {
            name: String::new(),
            kind,
            offset: single_run(layer),
            sectors,
            doubts: content_doubts.collect(),
            content,
            access,
            note,
            part_of: None,
            on: layer.arrays(),
            layer: Some(layer.clone()),
        }
    }

    /// Adds a volume and its partitions.
    pub(super) fn add_with_table(&mut self, layer: Layer, place: Place, volume: Volume) {
        let view = self.view(&layer);
        let of = Arc::new(layer);
        let is_in_use = volume.content.as_ref().is_some_and(|content| !is_table(content.kind));
        self.add(&of, &place, volume);
        // A table without block size may be read in two ways: the one in which more is found.
        let tables = partition_tables(&Contents(&view)).into_iter().map(|table| {
            let partitions = table.partitions.into_iter().take(PARTITIONS_MAX);
            let each = partitions.map(|partition| {
                let range = partition.sectors.clone();
                let sectors = range.end - range.start;
                let layer = Layer::Part { of: of.clone(), first: range.start, sectors };
                let mut volume = self.volume(&layer, Kind::Partition, Access::Readable);
                if partition.is_cut() {
                    let given = show_size(partition.ends - range.start);
                    let has = show_size(sectors);
                    volume.doubts.push(format!(
                        "its partition table says that it has {given}, what it is on ends after \
                         {has} of it"
                    ));
                }
                (partition.number, layer, volume)
            });
            each.collect::<Vec<_>>()
        });
        let known = |table: &Vec<(u32, Layer, Volume)>| {
            table.iter().filter(|(_, _, volume)| volume.content.is_some()).count()
        };
        let mut tables: Vec<_> = tables.collect();
        // The first of those with the same number.
        tables.reverse();
        let Some(table) = tables.into_iter().max_by_key(known) else { return };
        // The table of before the file system was made, or no table at all.
        if is_in_use && known(&table) == 0 {
            return;
        }
        for (number, layer, mut volume) in table {
            let rest = format!("{}/p{number}", place.rest);
            if is_in_use && volume.note.is_none() {
                let what = "the table may be of before: what it divides begins with a file system";
                volume.note = Some(what.into());
            }
            self.add(&Arc::new(layer), &Place { rest, ..place }, volume);
        }
    }

    fn add(&mut self, layer: &Arc<Layer>, place: &Place, volume: Volume) {
        let kind = volume.content.as_ref().map(|content| content.kind);
        if kind == Some(Format::LvmPhysicalVolume) {
            self.physical.extend(physical(&self.view(layer), layer, place));
        }
        let Place { root, rest, under } = place.clone();
        self.drafts.push(Draft { root, rest, under, volume });
    }
}

/// What a physical volume says.
fn physical(view: &VolumeView, layer: &Arc<Layer>, place: &Place) -> Option<Physical> {
    let bytes = Contents(view);
    let label = lvm::label(&bytes)?;
    let (texts, errors) = lvm::texts(&bytes, &label);
    let mut problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let mut copies = Vec::new();
    for text in texts {
        match lvm::decode(&text) {
            Ok(group) => copies.push(group),
            Err(error) => problems.push(error.to_string()),
        }
    }
    let (layer, under) = (layer.clone(), place.under);
    Some(Physical { uuid: label.uuid, layer, under, copies, problems })
}

fn is_table(kind: Format) -> bool {
    matches!(kind, Format::Gpt | Format::Mbr)
}

/// The sector of the array at which a layer begins, if it is one run there.
pub(super) fn single_run(layer: &Layer) -> Option<u64> {
    if layer.sectors() == 0 {
        return None;
    }
    let run = layer.locate(0);
    let (_, sector) = run.at.filter(|_| run.sectors == layer.sectors())?;
    Some(sector)
}

fn doubts_of(content: &Identified, sectors: u64) -> Vec<String> {
    let kind = content.kind;
    let mut doubts = Vec::new();
    if content.bytes.is_some_and(|bytes| bytes > sectors * SECTOR_BYTES) {
        let needs = show_size(content.bytes.unwrap_or(0).div_ceil(SECTOR_BYTES));
        let has = show_size(sectors);
        doubts.push(format!("its {kind} says that it has {needs}, the volume has {has}"));
    }
    if content.checksum == Checksum::Bad {
        doubts.push(format!("the checksum of its {kind} superblock is wrong"));
    }
    doubts
}

fn note_of(kind: Format) -> Option<String> {
    let note = match kind {
        _ if kind.is_encrypted() => "encrypted: a dump of it is, too, and is opened with its key",
        Format::MdMember => "a member of another array: dump it, and name the dump as a member",
        _ => return None,
    };
    Some(note.to_string())
}

/// Bytes in which everything that is recognised shows itself.
const START_BYTES: usize = 128 << 10;

fn unreadable_start(view: &VolumeView) -> Option<String> {
    let bytes = (view.sectors() * SECTOR_BYTES).min(START_BYTES as u64) as usize;
    let lost = !view.read(0, &mut vec![0; bytes]).is_empty();
    lost.then(|| "what is in it is not known: its start cannot be read".to_string())
}
