//! Superblocks that the kernel wrote: decoded, compared with `case.json`, encoded again, and made
//! anew from the state that they tell of.

use super::corpus::{self, Case, Member};
use raidlab_md::ondisk::superblock::{Checksum, Detection, Refusal, Superblock, detect};
use raidlab_md::ondisk::{Role, Version};
use serde_json::Value;
use std::path::Path;

/// What is on an image, read as a device would be.
pub fn detect_on(image: &[u8]) -> Detection {
    detect(image.len() as u64 / 512, |candidate| {
        let start = candidate.sector as usize * 512;
        image.get(start..start + 4096).ok_or("beyond the end")
    })
}

fn number(json: &Value, key: &str) -> Option<u64> {
    json[key].as_u64()
}

fn check_facts(case: &Case, member: &Member, superblock: &Superblock) {
    let (name, json, metadata) = (&member.name, &member.json, superblock.metadata());
    assert_eq!(metadata.version.name(), case.json["metadata"].as_str().unwrap(), "{name}");
    assert_eq!(Some(metadata.events), number(json, "events"), "{name}: events");
    assert_eq!(Some(metadata.data_offset), number(json, "data_offset_sectors"), "{name}");
    assert_eq!(Some(metadata.data_sectors), number(json, "data_size_sectors"), "{name}");
    assert_eq!(Some(metadata.super_sector), number(json, "super_offset_sectors"), "{name}");
    assert_eq!(Some(metadata.dev_number.into()), number(json, "dev_number"), "{name}");
    assert_eq!(Some(metadata.raid_disks.into()), number(&case.json, "raid_disks"), "{name}");
    let role = match (json["state"].as_str().unwrap(), number(json, "slot")) {
        ("journal", _) => Role::Journal,
        (_, Some(slot)) => Role::Slot(slot as u16),
        (_, None) => Role::Spare,
    };
    assert_eq!(metadata.role, role, "{name}: role");
    assert_eq!(metadata.role, metadata.roles[metadata.dev_number as usize], "{name}");
    let level: raidlab_md::Level = case.json["level"].as_str().unwrap().parse().unwrap();
    assert_eq!(metadata.level, level.number(), "{name}: level");
    check_examined(case, member, superblock);
}

/// What `mdadm --examine` printed of this member.
fn check_examined(case: &Case, member: &Member, superblock: &Superblock) {
    let metadata = superblock.metadata();
    let text = case.json["mdadm_examine"].as_str().unwrap();
    let index = case.members.iter().position(|other| other.name == member.name).unwrap();
    let section = text.split("Magic : a92b4efc").nth(index + 1).unwrap();
    let line = |key: &str| {
        let line = section.lines().find(|line| line.trim_start().starts_with(key));
        line.and_then(|line| line.split_once(" : ")).map(|(_, value)| value.trim())
    };
    let name = &member.name;
    let uuid = line("Array UUID").or(line("UUID")).unwrap();
    assert_eq!(metadata.set_uuid.to_string(), uuid.split(' ').next().unwrap(), "{name}");
    if let Some(uuid) = line("Device UUID") {
        assert_eq!(metadata.device_uuid.unwrap().to_string(), uuid, "{name}");
    }
    if let Some(value) = line("Name") {
        assert_eq!(value.split("  (").next().unwrap(), metadata.name, "{name}");
    }
    let clean = metadata.resync_offset.is_none();
    let state = line("State").unwrap();
    assert_eq!(state.split(' ').next().unwrap() == "clean", clean, "{name}: {state}");
    if let Some(value) = line("Recovery Offset") {
        let sectors = value.split(' ').next().unwrap().parse().ok();
        assert_eq!(metadata.recovery_offset, sectors, "{name}: recovery offset");
    } else {
        assert_eq!(metadata.recovery_offset, None, "{name}: recovery offset");
    }
    if let Some(value) = line("Internal Bitmap") {
        let offset: i64 = value.split(' ').next().unwrap().parse().unwrap();
        let bitmap = metadata.bitmap.unwrap();
        assert_eq!(bitmap.sector, metadata.super_sector.checked_add_signed(offset).unwrap());
        assert!(bitmap.sectors >= 8, "{name}: {bitmap:?}");
    }
    if let Some(value) = line("Bad Block Log") {
        let offset: i64 =
            value.split("offset ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let log = metadata.bad_blocks.unwrap().area;
        assert_eq!(log.sector, metadata.super_sector.checked_add_signed(offset).unwrap());
        assert_eq!(log.sectors, 8, "{name}");
    }
}

fn check_member(case: &Case, member: &Member, tally: &mut Tally) {
    let name = &member.name;
    let found = detect_on(&member.image);
    let (superblock, checksum) = found.superblock().unwrap_or_else(|| panic!("{name}: {found:?}"));
    assert!(matches!(checksum, Checksum::Correct { .. }), "{name}: {checksum:?}");
    assert_eq!(found.others().count(), 0, "{name}");
    check_facts(case, member, superblock);

    let start = superblock.sector() as usize * 512;
    for block in [512, 4096] {
        let bytes = superblock.encode(block);
        assert_eq!(bytes.len() % block, 0, "{name}");
        assert!(bytes == member.image[start..start + bytes.len()], "{name}: encoded differs");
    }
    let sectors = member.image.len() as u64 / 512;
    let refusals = superblock.kernel_refusals(checksum, sectors, 512);
    assert_eq!(refusals, Vec::<Refusal>::new(), "{name}");

    // The kernel made these bytes from what it knew; so do we.
    let dev_number = superblock.metadata().dev_number as usize;
    let again = superblock.with_state(&superblock.state(), dev_number).unwrap();
    assert_eq!(again, *superblock, "{name}: made anew from its state");
    tally.members += 1;
    let version = Version::ALL.iter().position(|&version| version == superblock.version());
    tally.by_version[version.unwrap()] += 1;
}

#[derive(Default)]
struct Tally {
    cases: usize,
    members: usize,
    by_version: [usize; 4],
}

fn run(corpus: &Path) -> Tally {
    let mut tally = Tally::default();
    corpus::for_each_case(corpus, |case| {
        case.members.iter().for_each(|member| check_member(case, member, &mut tally));
        tally.cases += 1;
        assert!(!case.name.is_empty());
    });
    println!(
        "{} arrays, {} superblocks (0.90, 1.0, 1.1, 1.2: {:?}) decoded, compared, encoded, remade",
        tally.cases, tally.members, tally.by_version
    );
    tally
}

#[test]
fn superblocks_of_the_slice_survive() {
    let tally = run(&corpus::slice());
    assert_eq!((tally.cases, tally.members), (12, 37));
}

#[test]
fn superblocks_of_the_whole_corpus_survive() {
    let Some(corpus) = corpus::whole() else {
        println!("skipped: no corpus beside the project, and RAIDLAB_MD_CORPUS names none");
        return;
    };
    let tally = run(&corpus);
    assert!(tally.by_version.iter().all(|&members| members > 0), "{:?}", tally.by_version);
}
