//! The same arrays from their superblocks alone: found, judged by the assembly, and read as its
//! read-only plan says.

use super::array::{self, Array};
use super::case::{self, Case};
use super::reshape;
use raidlab_md::assemble::{self, Candidate, MemberState, Options, Plan, Shape, Verdict};
use raidlab_md::geometry::Generation;
use raidlab_md::ondisk::superblock::{READ_BYTES, detect};
use raidlab_md::{Geometry, GeometrySpec, MemberIdx};
use serde_json::Value;
use std::path::Path;

pub fn check(directory: &Path, images: &[Vec<u8>]) {
    let json = case::json(directory);
    let name = json["case"].as_str().unwrap();
    let members = json["members"].as_array().unwrap();
    let candidates: Vec<Candidate> = members
        .iter()
        .zip(images)
        .map(|(member, image)| candidate(member["file"].as_str().unwrap(), image))
        .collect();
    let found = assemble::assemble(&candidates, &Options::default());
    assert_eq!((found.arrays.len(), found.floating_spares.len()), (1, 0), "{name}");
    let array = &found.arrays[0];
    // What tells moments with one event count apart: Linux writes one time to all members.
    for one in &candidates {
        for other in &candidates {
            let [one, other] = [&one.metadata, &other.metadata];
            let is_same = one.events != other.events || one.updated == other.updated;
            assert!(is_same, "{name}: {} and {}", one.updated, other.updated);
        }
    }
    assert_eq!(array.contradictions, [""; 0], "{name}");
    for (member, json) in array.members.iter().zip(members) {
        check_state(name, &member.state, json);
    }
    let is_reshape = matches!(array.shape, Ok(Shape::Reshaping(_)));
    assert_eq!(is_reshape, reshape::is_reshape(directory), "{name}");
    let refused = matches!(array.read_write.verdict, Verdict::Refused { .. });
    assert!(array.read_write.verdict.runs() || refused && is_reshape, "{name}: {array:?}");
    assert!(array.read_only.verdict.runs(), "{name}: {:?}", array.read_only.verdict);
    let slots = &array.read_only.slots;
    let missing = slots.iter().filter(|slot| slot.is_none()).count();
    let complete = array.read_only.verdict == Verdict::Run;
    assert_eq!(complete, missing == 0, "{name}: {:?}", array.read_only.verdict);

    let contents = read(name, array.shape.as_ref().unwrap(), &array.read_only, images);
    let expected = ["sha256_without_journal_replay", "sha256_of_array_contents"]
        .into_iter()
        .find_map(|key| json[key].as_str())
        .unwrap();
    assert_eq!(array::sha256(&contents), expected, "{name}: contents, as assembled");
}

fn candidate(file: &str, image: &[u8]) -> Candidate {
    let sectors = image.len() as u64 / 512;
    let detection = detect(sectors, |place| -> Result<&[u8], String> {
        let start = place.sector as usize * 512;
        Ok(&image[start..(start + READ_BYTES).min(image.len())])
    });
    let (superblock, checksum) = detection.superblock().expect("there is a superblock");
    Candidate::new(file, sectors, 512, superblock, checksum)
}

fn check_state(name: &str, state: &MemberState, json: &Value) {
    let slot = json["slot"].as_u64().map(|slot| MemberIdx(slot as u16));
    let fits = match (json["state"].as_str().unwrap(), state) {
        ("active", MemberState::Active(own)) => Some(*own) == slot,
        ("replacement", MemberState::Replacement { slot: own, .. }) => Some(*own) == slot,
        ("stale", MemberState::Stale { slot: own, .. }) => *own == slot,
        ("spare", MemberState::Spare) | ("journal", MemberState::Journal) => true,
        _ => false,
    };
    assert!(fits, "{name}: {state:?} for {json}");
}

/// What the plan serves.
fn read(name: &str, shape: &Shape, plan: &Plan, images: &[Vec<u8>]) -> Vec<u8> {
    let present: Vec<bool> = plan.slots.iter().map(Option::is_some).collect();
    let view = |geometry: &Geometry, new: bool| {
        let area = |slot: usize| {
            let source = plan.slots[slot].as_ref()?;
            let start = if new { source.new_data_offset } else { source.data_offset } as usize;
            let used = geometry.member_used_sectors(MemberIdx(slot as u16)) as usize;
            Some(images[source.candidate][start * 512..(start + used) * 512].to_vec())
        };
        let member = |slot| geometry.member_used_sectors(MemberIdx(slot as u16));
        Case {
            name: name.to_string(),
            spec: GeometrySpec {
                level: geometry.level(),
                layout: geometry.layout(),
                chunk_sectors: geometry.chunk_sectors(),
                member_sectors: (0..geometry.members()).map(member).collect(),
            },
            array_bytes: geometry.array_sectors() * 512,
            sha256_of_contents: String::new(),
            slots: (0..geometry.members()).map(area).collect(),
            used_sectors: 0,
        }
    };
    match shape {
        Shape::Settled(geometry) => Array::new(&view(geometry, false)).read(&present),
        Shape::Reshaping(reshaping) => {
            let old = view(reshaping.geometry(Generation::Old), false);
            let new = view(reshaping.geometry(Generation::New), true);
            reshape::read(reshaping, &[Array::new(&old), Array::new(&new)], &present)
        }
    }
}
