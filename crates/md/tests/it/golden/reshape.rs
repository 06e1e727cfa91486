//! Golden arrays that were stopped in mid-reshape: two geometries, read through `Reshaping`.
//!
//! The position, the direction and the new data offsets come from `mdadm --examine`, which
//! `case.json` keeps; nothing here parses a superblock.

use super::array::Array;
use super::case::{self, Case};
use raidlab_md::geometry::{DataStarts, Generation, ReshapeSpec, Reshaping};
use raidlab_md::{Geometry, GeometrySpec, MemberIdx, Sector};
use std::path::Path;

/// Whether the case is one of these.
pub fn is_reshape(directory: &Path) -> bool {
    let json = case::json(directory);
    json["feature_map"].as_u64().is_some_and(|bits| bits & 4 != 0)
}

/// Reads it whole and with every set of members that both geometries can do without. Returns how
/// many sets that were.
pub fn check(directory: &Path, images: &[Vec<u8>]) -> usize {
    let (reshaping, old, new) = load(directory, images);
    let arrays = [Array::new(&old), Array::new(&new)];
    let contents = read(&reshaping, &arrays, &vec![true; reshaping.members()]);
    assert_eq!(contents.len() as u64, reshaping.array_sectors() * 512);
    assert_eq!(super::array::sha256(&contents), old.sha256_of_contents, "{}", old.name);
    let losses = bearable_losses(&reshaping);
    for present in &losses {
        let again = read(&reshaping, &arrays, present);
        assert!(again == contents, "{}: contents differ with members {present:?}", old.name);
    }
    losses.len()
}

pub fn read(reshaping: &Reshaping, arrays: &[Array<'_>; 2], present: &[bool]) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut at = Sector::ZERO;
    while at.0 < reshaping.array_sectors() {
        let (generation, together) = reshaping.locate(at);
        let bytes = arrays[usize::from(generation == Generation::New)].read_run(at, present);
        let run = (bytes.len() as u64 / 512).min(together);
        contents.extend_from_slice(&bytes[..run as usize * 512]);
        at += run;
    }
    contents
}

fn bearable_losses(reshaping: &Reshaping) -> Vec<Vec<bool>> {
    let slots = reshaping.members();
    (0_u32..(1 << slots) - 1)
        .map(|mask| (0..slots).map(|slot| mask >> slot & 1 == 1).collect::<Vec<bool>>())
        .filter(|present| {
            reshaping.enough(|member| if present[member.index()] { u64::MAX } else { 0 })
        })
        .collect()
}

/// The mapping, and the members' data areas as each geometry sees them.
fn load(directory: &Path, images: &[Vec<u8>]) -> (Reshaping, Case, Case) {
    let whole = Case::load(directory, images);
    let text = case::json(directory)["mdadm_examine"].as_str().unwrap().to_string();
    let position = number(&text, "Reshape pos'n").unwrap() as u64 * 2;
    let delta = number(&text, "Delta Devices").unwrap_or(0);
    let shift = number(&text, "New Offset").map_or(0, |new| {
        new - number(&text, "Data Offset").expect("a data offset beside the new one")
    });
    let new_slots = case::json(directory)["raid_disks"].as_u64().unwrap() as usize;
    let old_slots = (new_slots as i64 - delta) as usize;
    let images = case::by_slot(directory, images, old_slots.max(new_slots));
    let chunk_sectors =
        number(&text, "New Chunksize").map_or(whole.spec.chunk_sectors, |kib| kib as u64 * 2);
    let old =
        GeometrySpec { member_sectors: vec![whole.used_sectors; old_slots], ..whole.spec.clone() };
    let new = GeometrySpec {
        member_sectors: vec![whole.used_sectors; new_slots],
        chunk_sectors,
        ..whole.spec.clone()
    };
    let starts = |old: u64| DataStarts { old, new: (old as i64 + shift) as u64 };
    let data_starts =
        images.iter().map(|image| image.as_ref().map(|(_, start)| starts(*start))).collect();
    let position = Sector(position);
    let backwards = delta < 0;
    let spec = ReshapeSpec { old, new, position, backwards, data_starts };
    let reshaping = Reshaping::new(&spec).unwrap();
    assert!(reshaping.position_fits(), "{}: the kernel wrote this position", whole.name);
    let view = |spec: &GeometrySpec, generation| {
        let area = |slot: usize| {
            let start = reshaping.data_start(generation, MemberIdx(slot as u16))? as usize * 512;
            let image = &images[slot].as_ref()?.0;
            Some(image[start..start + whole.used_sectors as usize * 512].to_vec())
        };
        Case {
            name: whole.name.clone(),
            array_bytes: Geometry::new(spec).unwrap().array_sectors() * 512,
            spec: spec.clone(),
            slots: (0..spec.member_sectors.len()).map(area).collect(),
            sha256_of_contents: whole.sha256_of_contents.clone(),
            used_sectors: whole.used_sectors,
        }
    };
    let views = (view(&spec.old, Generation::Old), view(&spec.new, Generation::New));
    (reshaping, views.0, views.1)
}

/// The number behind a label of `mdadm --examine`, of the first member.
fn number(text: &str, label: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(label))?;
    let value = line.split(" : ").nth(1)?.split_whitespace().next()?;
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
    Some(digits.parse().unwrap_or_else(|_| panic!("{label}: {value}")))
}
