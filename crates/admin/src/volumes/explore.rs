//! All volumes on arrays, with their names: the arrays themselves, partitions, logical volumes, and
//! partitions in these.
//!
//! Invariant: groups of volumes are looked for on groups at most [`ROUNDS`] times: whatever the
//! contents are, this ends.

use std::sync::Arc;

use super::finder::{Finder, Place};
use super::groups::groups;
use super::names::{Draft, Preferred, Root, unique};
use super::view::Layer;
use super::volume::{Access, ArrayBelow, Kind, Volume, Volumes};
use crate::rescue::ReadableArray;

/// Logical volumes may hold disks of virtual machines with physical volumes in their partitions.
const ROUNDS: usize = 3;
/// An array before its volumes are known.
pub(super) struct Below {
    pub(super) preferred: Preferred,
    pub(super) array: ArrayBelow,
}

/// Finds the volumes on arrays.
pub(super) fn explore(
    below: Vec<Below>,
    arrays: Arc<Vec<Option<ReadableArray>>>,
    mut notes: Vec<String>,
) -> Volumes {
    let mut finder = Finder { arrays, drafts: Vec::new(), physical: Vec::new() };
    for index in 0..finder.arrays.len() {
        let Some(array) = &finder.arrays[index] else { continue };
        let layer = Layer::Array { index, sectors: array.sectors() };
        let place = Place { root: Root::Array(index), rest: String::new(), under: index };
        let whole = finder.volume(&layer, Kind::Whole, Access::Readable);
        finder.add_with_table(layer, place, whole);
    }
    let mut names: Vec<Preferred> = below.iter().map(|it| it.preferred.clone()).collect();
    let mut group_names = Vec::new();
    for _ in 0..ROUNDS {
        let physical = std::mem::take(&mut finder.physical);
        for group in groups(physical, &mut notes) {
            let index = group_names.len();
            group_names.push(Preferred::group(&group.newest.name, &group.newest.uuid));
            group.add_volumes(index, &mut finder);
        }
    }
    let physical = finder.physical.len();
    if physical > 0 {
        notes.push(format!("{physical} LVM physical volume(s) lie too deep in others"));
    }
    names.extend(group_names);
    finished(finder, below, &names, notes)
}

/// Gives all volumes their names, and forgets what the search has read.
fn finished(finder: Finder, below: Vec<Below>, names: &[Preferred], notes: Vec<String>) -> Volumes {
    let names = unique(names);
    let of_root = |root| match root {
        Root::Array(index) => &names[index],
        Root::Group(index) => &names[below.len() + index],
    };
    let mut of_arrays: Vec<Vec<Volume>> = below.iter().map(|_| Vec::new()).collect();
    for Draft { root, rest, under, mut volume } in finder.drafts {
        volume.name = format!("{}{rest}", of_root(root));
        of_arrays[under].push(volume);
    }
    let arrays = below.into_iter().zip(of_arrays).enumerate();
    let arrays = arrays.map(|(index, (below, volumes))| {
        let mut array = below.array;
        array.name = names[index].clone();
        array.volumes = volumes;
        array
    });
    let arrays = arrays.collect();
    finder.arrays.iter().flatten().for_each(ReadableArray::forget_findings);
    Volumes { arrays, notes, views: finder.arrays }
}
