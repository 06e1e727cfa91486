//! One golden array: what `case.json` says, and the members' data areas.
//!
//! Invariant: a slot is filled only by the member whose state is active; spares, journals, stale
//! members and unfinished replacements are not data.

use raidlab_md::{GeometrySpec, Layout, Level};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

pub struct Case {
    pub name: String,
    pub spec: GeometrySpec,
    pub array_bytes: u64,
    pub sha256_of_contents: String,
    /// The data area of each slot's active member, if there is one.
    pub slots: Vec<Option<Vec<u8>>>,
    /// What the superblock calls `size`; 0 for linear and RAID 0.
    pub used_sectors: u64,
}

impl Case {
    pub fn load(directory: &Path, images: &[Vec<u8>]) -> Case {
        let json = json(directory);
        let name = text_of(&json, "case");
        let level: Level = text_of(&json, "level").parse().unwrap();
        let members = number_of(&json, "raid_disks") as usize;
        let slots_of_images = by_slot(directory, images, members);
        let mut slots = vec![None; members];
        let mut sizes = vec![0; members];
        for member in active(&json).filter(|member| slot_of(member) < members) {
            let slot = slot_of(member);
            let (image, start) = slots_of_images[slot].as_ref().unwrap();
            sizes[slot] = number_of(member, "data_size_sectors");
            let start = *start as usize * 512;
            slots[slot] = Some(image[start..start + sizes[slot] as usize * 512].to_vec());
        }
        let (used_sectors, member_sectors) = match level {
            Level::Linear | Level::Raid0 => (0, sizes),
            _ => (used_sectors(&json), vec![used_sectors(&json); members]),
        };
        let layout = Layout::from_number(level, number_of(&json, "layout") as i32).unwrap();
        // Journals hide some of the contents; the members alone have these.
        let sha256 = ["sha256_without_journal_replay", "sha256_of_array_contents"]
            .into_iter()
            .find_map(|key| json[key].as_str())
            .unwrap();
        let chunk_sectors = number_of(&json, "chunk_kib") * 2;
        Case {
            spec: GeometrySpec { level, layout, chunk_sectors, member_sectors },
            array_bytes: number_of(&json, "array_size_bytes"),
            sha256_of_contents: sha256.to_string(),
            slots,
            used_sectors,
            name,
        }
    }
}

/// What is in a case's `case.json`.
pub fn json(directory: &Path) -> Value {
    let text = std::fs::read_to_string(directory.join("case.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The images of all members, in the order of `case.json`.
pub fn images(directory: &Path) -> Vec<Vec<u8>> {
    let json = json(directory);
    let load = |member: &Value| {
        let image = decompress(&directory.join(text_of(member, "file")));
        assert_eq!(image.len() as u64, number_of(member, "size"), "{}", text_of(&json, "case"));
        image
    };
    json["members"].as_array().unwrap().iter().map(load).collect()
}

/// The image and the data offset in sectors of each slot's active member.
pub fn by_slot<'a>(
    directory: &Path,
    images: &'a [Vec<u8>],
    slots: usize,
) -> Vec<Option<(&'a Vec<u8>, u64)>> {
    let json = json(directory);
    let mut found = vec![None; slots];
    for (member, image) in json["members"].as_array().unwrap().iter().zip(images) {
        if member["state"] != "active" || slot_of(member) >= slots {
            continue;
        }
        let slot = slot_of(member);
        assert!(found[slot].is_none(), "{}: two members for slot {slot}", directory.display());
        found[slot] = Some((image, number_of(member, "data_offset_sectors")));
    }
    found
}

fn active(json: &Value) -> impl Iterator<Item = &Value> {
    json["members"].as_array().unwrap().iter().filter(|member| member["state"] == "active")
}

fn slot_of(member: &Value) -> usize {
    number_of(member, "slot") as usize
}

/// What mdadm calls "Used Dev Size", the superblock's `size`; RAID 1 arrays are that long.
fn used_sectors(json: &Value) -> u64 {
    let detail = text_of(json, "mdadm_detail");
    let line = detail.lines().find(|line| line.trim_start().starts_with("Used Dev Size"));
    let kib = line.unwrap().split_whitespace().nth(4).unwrap();
    kib.parse::<u64>().unwrap() * 2
}

fn text_of(json: &Value, key: &str) -> String {
    json[key].as_str().unwrap_or_else(|| panic!("{key} is no text")).to_string()
}

fn number_of(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("{key} is no number"))
}

fn decompress(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice()).unwrap();
    let mut image = Vec::new();
    decoder.read_to_end(&mut image).unwrap();
    image
}
