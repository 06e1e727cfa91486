//! LVM2's metadata: a group that the real tools made, and whatever else they may be.

use std::ops::Range;

use proptest::prelude::*;
use raidlab_content::lvm::{Mapping, VolumeGroup, decode, label, texts};
use raidlab_content::{Bytes, Unreadable};

const TEXT: &[u8] = include_bytes!("../corpus/lvm/box.text");
const HEADS: [&[u8]; 3] = [
    include_bytes!("../corpus/lvm/pv0.head"),
    include_bytes!("../corpus/lvm/pv1.head"),
    include_bytes!("../corpus/lvm/pv2.head"),
];
const AREA: u64 = 4096;

/// A device of zeroes but for its first bytes and a text.
struct Device {
    head: Vec<u8>,
    text_at: u64,
    text: Vec<u8>,
    size: u64,
}

impl Device {
    fn golden(index: usize) -> Device {
        let head = HEADS[index].to_vec();
        let offset = &head[AREA as usize + 40..][..8];
        let offset = u64::from_le_bytes(offset.try_into().expect("eight"));
        Device { head, text_at: AREA + offset, text: TEXT.to_vec(), size: 64 << 20 }
    }
}

impl Bytes for Device {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        if at.checked_add(into.len() as u64).is_none_or(|end| end > self.size) {
            return Err(Unreadable);
        }
        for (at, byte) in (at..).zip(into) {
            let of = |start: u64, bytes: &[u8]| {
                let index = usize::try_from(at.checked_sub(start)?).ok()?;
                bytes.get(index).copied()
            };
            *byte = of(0, &self.head).or_else(|| of(self.text_at, &self.text)).unwrap_or(0);
        }
        Ok(())
    }
}

fn golden() -> VolumeGroup {
    decode(&TEXT[..TEXT.len() - 1]).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs (physical volume, first extent, extents) of a mapping, with LVM's numbers.
fn runs(mapping: &Mapping) -> Vec<(usize, u64, u64)> {
    let extent = 2048;
    let run = |(physical, range): (usize, Range<u64>)| {
        (physical, (range.start - extent) / extent, (range.end - range.start) / extent)
    };
    mapping.areas().map(run).collect()
}

#[test]
fn a_group_of_the_real_tools_is_what_lvs_says() {
    let group = golden();
    assert_eq!((group.name.as_str(), group.seqno, group.extent_sectors), ("box", 15, 2048));
    assert_eq!(group.uuid, "dXKAAL-jeUA-XmAL-EhbA-Jtrh-8uiJ-zQkCRF");
    let physical = group.physical.iter().map(|it| (it.device.as_deref(), it.extents));
    let devices = ["/dev/sdd", "/dev/sde", "/dev/sdf"];
    assert!(physical.eq(devices.map(|device| (Some(device), 63))));
    let said = group.logical.iter().map(|it| {
        let part_of = it.part_of.as_deref().unwrap_or("-");
        let mapping = match &it.mapping {
            Ok(mapping) => format!("{:?}", runs(mapping)),
            Err(why) => why.to_string(),
        };
        format!("{} {} {} {part_of} {mapping}", it.name, it.sectors / 2048, it.is_visible)
    });
    let mut said: Vec<String> = said.collect();
    said.sort();
    let wanted = [
        "before 2 true - a snapshot of root: it holds only what has changed since",
        "linear 70 true - [(0, 0, 10), (0, 14, 49), (1, 4, 11)]",
        "lvol0_pmspare 2 false - [(1, 26, 2)]",
        "mirror 2 true - mirrored by LVM, not read here; its parts: mirror_mimage_0, \
         mirror_mimage_1",
        "mirror_mimage_0 2 false mirror [(1, 24, 2)]",
        "mirror_mimage_1 2 false mirror [(2, 7, 2)]",
        "pool 4 true - a pool of thin volumes, not read here: pool_tmeta, pool_tdata",
        "pool_tdata 4 false pool [(1, 28, 4)]",
        "pool_tmeta 2 false pool [(2, 9, 2)]",
        "raid 2 true - a RAID of LVM (raid1), not read here; its parts: raid_rmeta_0, \
         raid_rimage_0, raid_rmeta_1, raid_rimage_1",
        "raid_rimage_0 2 false raid [(1, 22, 2)]",
        "raid_rimage_1 2 false raid [(2, 5, 2)]",
        "raid_rmeta_0 1 false raid [(1, 21, 1)]",
        "raid_rmeta_1 1 false raid [(2, 4, 1)]",
        "root 4 true - [(1, 15, 4)]",
        "striped 12 true - [(0, 10, 4), (1, 0, 4), (2, 0, 4)]",
        "thin 100 true - a thin volume of the pool pool: not read here",
    ];
    assert_eq!(said, wanted);
    let striped = group.logical.iter().find(|it| it.name == "striped").expect("it is there");
    let striped = striped.mapping.as_ref().expect("it is mapped");
    let at = striped.locate(4 * 128 + 5);
    assert_eq!((at.physical, at.sector, at.sectors), (1, 2048 + 128 + 5, 123));
    holds(&group);
}

#[test]
fn labels_and_areas_of_the_real_tools_are_read() {
    let group = golden();
    let mut uuids: Vec<&str> = group.physical.iter().map(|it| it.uuid.as_str()).collect();
    for index in 0..HEADS.len() {
        let device = Device::golden(index);
        let label = label(&device).expect("a label");
        uuids.retain(|uuid| *uuid != label.uuid);
        assert_eq!(label.areas, [(AREA, (1 << 20) - AREA)]);
        let (texts, errors) = texts(&device, &label);
        assert_eq!((texts, errors), (vec![TEXT[..TEXT.len() - 1].to_vec()], vec![]));
    }
    assert!(uuids.is_empty(), "each label is another's: {uuids:?}");
}

/// LVM's checksum, by the definition.
fn checksum(bytes: &[u8]) -> u32 {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |at| u32::from(byte >> at & 1)));
    bits.fold(0xf597_a6cf, |crc: u32, bit| {
        let odd = (crc ^ bit) & 1 == 1;
        (crc >> 1) ^ if odd { 0xedb8_8320 } else { 0 }
    })
}

/// What an area with another header says, its checksum mended.
fn with_header(at: usize, bytes: &[u8]) -> String {
    let mut device = Device::golden(0);
    let header = &mut device.head[AREA as usize..];
    header[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = checksum(&header[4..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    let (texts, errors) = texts(&device, &label(&device).expect("a label"));
    assert!(texts.is_empty());
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn areas_that_cannot_be_are_refused_by_name() {
    let long = |number: u64| number.to_le_bytes();
    let at = "LVM metadata area at byte 4096: ";
    assert_eq!(with_header(4, b"X"), format!("{at}header: not LVM's magic"));
    assert_eq!(with_header(20, &[2]), format!("{at}header: an unknown version"));
    assert_eq!(with_header(24, &long(512)), format!("{at}header: it is of another place"));
    let end = format!("{at}header: the area ends beyond the device");
    assert_eq!(with_header(32, &long(u64::MAX)), end);
    assert_eq!(with_header(32, &long(64 << 20)), end);
    let outside = format!("{at}text: it lies outside of the area");
    assert_eq!(with_header(40, &long(1 << 20)), outside);
    assert_eq!(with_header(40, &long(511)), outside);
    assert_eq!(with_header(48, &long(1 << 30)), outside);
    assert_eq!(with_header(48, &long(0)), outside);
    assert!(with_header(48, &long(6647)).starts_with(&format!("{at}text: checksum eee3cc97, ")));
    // Marked as not used; empty.
    assert_eq!(with_header(60, &[1]), "");
    assert_eq!(with_header(40, &long(0)), "");
    let mut device = Device::golden(0);
    device.head[AREA as usize + 300] ^= 1;
    let errors = texts(&device, &label(&device).expect("a label")).1;
    assert!(errors[0].to_string().starts_with(&format!("{at}header: checksum ")), "{errors:?}");
    // A text of a GiB, for which there is room.
    let mut device = Device::golden(0);
    device.size = 4 << 30;
    let header = &mut device.head[AREA as usize..];
    header[32..40].copy_from_slice(&long(2 << 30));
    header[48..56].copy_from_slice(&long(1 << 30));
    let sum = checksum(&header[4..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    let errors = texts(&device, &label(&device).expect("a label")).1;
    assert_eq!(errors[0].to_string(), format!("{at}text: longer than 16 MiB"));
}

/// The mapping of `linear` in a text with something else in it, or why there is none.
fn changed(from: &str, to: &str) -> String {
    let text = String::from_utf8(TEXT[..TEXT.len() - 1].to_vec()).expect("UTF-8");
    assert!(text.contains(from), "{from}");
    match decode(text.replacen(from, to, 1).as_bytes()) {
        Err(error) => error.to_string(),
        Ok(group) => {
            holds(&group);
            let linear = group.logical.iter().find(|it| it.name == "linear").expect("it is there");
            linear.mapping.as_ref().map_or_else(ToString::to_string, |it| format!("{:?}", runs(it)))
        }
    }
}

#[test]
fn volumes_that_cannot_be_say_why() {
    let wrong = |why: &str| format!("its metadata are wrong: {why}");
    let gaps = wrong("its segments overlap, or leave gaps");
    assert_eq!(changed("start_extent = 10", "start_extent = 9"), gaps);
    assert_eq!(changed("start_extent = 10", "start_extent = 11"), gaps);
    assert_eq!(changed("extent_count = 10", "extent_count = 0"), wrong("a segment is empty"));
    let max = u64::MAX.to_string();
    assert_eq!(
        changed("extent_count = 10", &format!("extent_count = {max}")),
        wrong("a segment ends beyond 2^64 sectors")
    );
    assert_eq!(
        changed("extent_count = 10", "extent_count = \"x\""),
        wrong("a segment has no start or no length")
    );
    let beyond = wrong("a stripe ends beyond its physical volume");
    assert_eq!(changed("\"pv0\", 14", "\"pv0\", 15"), beyond);
    assert_eq!(changed("\"pv0\", 14", &format!("\"pv0\", {max}")), beyond);
    assert_eq!(
        changed("\"pv0\", 14", "\"pv7\", 14"),
        wrong("a stripe is on no physical volume of the group")
    );
    assert_eq!(
        changed("\"pv0\", 14", "\"root\", 14"),
        "a part of it lies on the logical volume root, not read here"
    );
    assert_eq!(
        changed("\"pv0\", 14", "\"pv1\", 1"),
        "the metadata are wrong: it shares extents with pool_tdata"
    );
    assert_eq!(
        changed("stripe_count = 1\n", "stripe_count = 2\n"),
        wrong("the number of stripes is not that of their places")
    );
    assert_eq!(
        changed("\"pv0\", 14", "\"pv0\", 14, \"pv1\", 50"),
        wrong("the number of stripes is not that of their places")
    );
    assert_eq!(
        changed("extent_size = 2048", "extent_size = 0"),
        "LVM metadata: box: extent_size: missing, or out of range"
    );
    assert_eq!(changed("pv1 {", "pv0 {"), "LVM metadata: box: physical_volumes: two have one name");
    assert_eq!(
        changed("id = \"dXKAAL-", "id = \"../../"),
        "LVM metadata: box: id: missing, or not a UUID"
    );
    assert_eq!(
        changed("pe_count = 63", ""),
        "LVM metadata: pv0: pe_count: missing, or not a number"
    );
    assert_eq!(changed("box {", "box = {"), "LVM metadata: line 1: no value where one must be");
    // Of a type with more in it.
    assert_eq!(
        changed("type = \"striped\"", "type = \"striped+NEWER\""),
        "a volume of the type striped+NEWER, not read here"
    );
}

#[test]
fn a_snapshot_that_is_being_merged_leaves_its_origin_unread() {
    let text = String::from_utf8(TEXT[..TEXT.len() - 1].to_vec()).expect("UTF-8");
    let group = decode(text.replace("cow_store", "merging_store").as_bytes()).expect("a group");
    let root = group.logical.iter().find(|it| it.name == "root").expect("it is there");
    let why = root.mapping.as_ref().expect_err("it is not mapped").to_string();
    assert_eq!(why, "the snapshot before is being merged into it: some blocks are there");
}

/// What must be true of any group that was decoded.
fn holds(group: &VolumeGroup) {
    let mut areas = Vec::new();
    for mapping in group.logical.iter().filter_map(|it| it.mapping.as_ref().ok()) {
        let mut sum = 0;
        for (physical, range) in mapping.areas() {
            let volume = &group.physical[physical];
            let end = volume.extents.checked_mul(group.extent_sectors);
            let end = end.and_then(|sectors| sectors.checked_add(volume.first_sector));
            assert!(range.start >= volume.first_sector && range.start < range.end);
            assert!(end.is_none_or(|end| range.end <= end));
            sum += range.end - range.start;
            areas.push((physical, range.start, range.end));
        }
        assert_eq!(sum, mapping.sectors());
        // Through all of it, in at most some thousand steps.
        let step = mapping.sectors() / 2000;
        let mut at = 0;
        while at < mapping.sectors() {
            let run = mapping.locate(at);
            assert!(run.sectors > 0 && run.sectors <= mapping.sectors() - at);
            let back = mapping.found_in(run.physical, &(run.sector..run.sector + 1));
            assert_eq!(back, std::slice::from_ref(&(at..at + 1)));
            at += run.sectors.max(step);
        }
    }
    areas.sort_unstable();
    for pair in areas.windows(2) {
        let [(one, _, end), (other, start, _)] = pair else { continue };
        assert!(one != other || end <= start, "{pair:?}");
    }
}

/// A number in the text, by its place, replaced.
fn with_number(text: &str, place: usize, number: u64) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let starts =
        text.char_indices().filter(|(at, c)| is_digit(*c) && text[..*at].ends_with([' ', '\t']));
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    let start = starts[place % starts.len()];
    let length = text[start..].chars().take_while(|c| is_digit(*c)).count();
    format!("{}{number}{}", &text[..start], &text[start + length..])
}

proptest! {
    /// Numbers changed anywhere: no panic, no mapping that is not one.
    #[test]
    fn any_numbers_give_mappings_that_hold(
        changes in prop::collection::vec(
            (any::<usize>(), prop_oneof![0u64..80, any::<u64>(), Just(u64::MAX)]),
            1..4,
        ),
    ) {
        let mut text = String::from_utf8(TEXT[..TEXT.len() - 1].to_vec()).expect("UTF-8");
        for (place, number) in changes {
            text = with_number(&text, place, number);
        }
        if let Ok(group) = decode(text.as_bytes()) {
            holds(&group);
        }
    }

    /// Bytes changed, cut out and doubled anywhere.
    #[test]
    fn any_text_is_survived(
        changes in prop::collection::vec((any::<usize>(), any::<u8>(), 0usize..40), 1..6),
    ) {
        let mut text = TEXT.to_vec();
        for (at, byte, length) in changes {
            let at = at % text.len();
            let end = (at + length).min(text.len());
            match byte % 3 {
                0 => drop(text.drain(at..end)),
                1 => {
                    let part = text[at..end].to_vec();
                    text.splice(at..at, part);
                }
                _ => text[at] = byte,
            }
            text.push(b'\n');
        }
        if let Ok(group) = decode(&text) {
            holds(&group);
        }
    }

    /// Labels and headers of any numbers, their checksums mended.
    #[test]
    fn any_label_and_any_header_are_survived(
        changes in prop::collection::vec((0usize..200, any::<u64>()), 0..3),
        in_label: bool,
    ) {
        let mut device = Device::golden(0);
        let start = if in_label { 512 } else { AREA as usize };
        for (at, number) in changes {
            device.head[start + at..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let label_sum = checksum(&device.head[532..1024]);
        device.head[528..532].copy_from_slice(&label_sum.to_le_bytes());
        let area = AREA as usize;
        let sum = checksum(&device.head[area + 4..area + 512]);
        device.head[area..area + 4].copy_from_slice(&sum.to_le_bytes());
        if let Some(label) = label(&device) {
            let (found, errors) = texts(&device, &label);
            prop_assert!(found.len() + errors.len() <= label.areas.len());
        }
    }
}
