//! The same arrays planned again from the mdadm command that made them: everything must be where
//! mdadm put it, and what is planned must assemble.

use super::case;
use raidlab_md::assemble::{self, Candidate, Options, Verdict};
use raidlab_md::create::{BitmapOption, Device, Plan, Request, plan};
use raidlab_md::ondisk::superblock::{Policy, READ_BYTES, Superblock, detect};
use raidlab_md::ondisk::{MemberMetadata, Uuid, Version};
use raidlab_md::{Layout, Level};
use std::path::Path;

/// Whether the case could be compared. A journal cannot be created here.
pub fn check(directory: &Path, images: &[Vec<u8>]) -> bool {
    let json = case::json(directory);
    let name = json["case"].as_str().unwrap();
    let command = json["create"].as_str().unwrap();
    let on_disk: Vec<MemberMetadata> = images.iter().map(|image| metadata(image)).collect();
    let Some((request, disks)) = parse(command, images, &on_disk[0]) else {
        println!("skipped: {name}: planning it again, journals are not created");
        return false;
    };
    let planned = plan(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(planned.places.len(), disks.len());
    for ((place, superblock), &disk) in planned.places.iter().zip(&planned.superblocks).zip(&disks)
    {
        let (made, found) = (superblock.metadata(), &on_disk[disk]);
        assert_eq!(place.data_offset, found.data_offset, "{name} disk{disk}: data offset");
        assert_eq!(place.data_sectors, found.data_sectors, "{name} disk{disk}: data size");
        assert_eq!(place.super_sector, found.super_sector, "{name} disk{disk}: superblock");
        assert_eq!(made.bad_blocks.map(|log| log.area), found.bad_blocks.map(|log| log.area));
        assert_eq!(made.ppl, found.ppl, "{name} disk{disk}: partial parity log");
        let bitmap = |one: &MemberMetadata| one.bitmap.map(|area| area.sector);
        assert_eq!(bitmap(&made), bitmap(found), "{name} disk{disk}: bitmap");
        let same = |one: &MemberMetadata| {
            let (name, version) = (one.name.clone(), one.version);
            let flags = (one.write_mostly, one.failfast);
            (name, version, one.level, one.chunk_sectors, one.used_sectors, flags)
        };
        assert_eq!(same(&made), same(found), "{name} disk{disk}");
        // Some were given other layouts and members after they were made.
        if !name.contains("imp") && !name.contains("n2f2") {
            assert_eq!(made.layout, found.layout, "{name} disk{disk}: layout");
        }
        if !name.contains("reshape") {
            assert_eq!(made.raid_disks, found.raid_disks, "{name} disk{disk}: slots");
            assert_eq!(made.role, found.role, "{name} disk{disk}: role");
        }
    }
    check_bitmap(name, &planned, images, &on_disk);
    check_assembles(name, &request, &planned);
    true
}

fn metadata(image: &[u8]) -> MemberMetadata {
    superblock(image, image.len() as u64 / 512).0.metadata()
}

fn superblock(
    image: &[u8],
    sectors: u64,
) -> (Superblock, raidlab_md::ondisk::superblock::Checksum) {
    let detection = detect(sectors, |place| -> Result<&[u8], String> {
        let start = place.sector as usize * 512;
        Ok(&image[start..(start + READ_BYTES).min(image.len())])
    });
    let (superblock, checksum) = detection.superblock().expect("there is a superblock");
    (superblock.clone(), checksum)
}

/// The header that mdadm and the kernel wrote, as far as it does not count.
fn check_bitmap(name: &str, planned: &Plan, images: &[Vec<u8>], on_disk: &[MemberMetadata]) {
    let (Some(bitmap), Some(area)) = (&planned.bitmap, on_disk[0].bitmap) else {
        assert!(planned.bitmap.is_none() && on_disk[0].bitmap.is_none(), "{name}");
        return;
    };
    let start = area.sector as usize * 512;
    let found = raidlab_md::ondisk::bitmap::BitmapHeader::decode(&images[0][start..]).unwrap();
    let part = |header: &raidlab_md::ondisk::bitmap::BitmapHeader| {
        let sizes = (header.sync_size, header.chunk_bytes);
        (header.version, header.uuid, sizes, header.daemon_sleep_s, header.write_behind)
    };
    assert_eq!(part(&bitmap.header), part(&found), "{name}: bitmap header");
    assert_eq!(bitmap.count(), bitmap.shape().bits(), "{name}: all bits are set at first");
}

/// Written to empty devices, what is planned is an array that starts.
fn check_assembles(name: &str, request: &Request, planned: &Plan) {
    let mut candidates = Vec::new();
    for (place, superblock) in planned.places.iter().zip(&planned.superblocks) {
        let device = request.devices[place.device].as_ref().unwrap();
        let mut image = vec![0; device.sectors as usize * 512];
        let bytes = superblock.encode(512);
        let start = superblock.sector() as usize * 512;
        image[start..start + bytes.len()].copy_from_slice(&bytes);
        let (found, checksum) = self::superblock(&image, device.sectors);
        assert_eq!(&found, superblock, "{name}: comes back");
        let candidate = Candidate::new(&device.label, device.sectors, 512, &found, checksum);
        assert_eq!(candidate.kernel_refuses, Vec::<String>::new(), "{name}");
        candidates.push(candidate);
    }
    let found = assemble::assemble(&candidates, &Options::default());
    let array = &found.arrays[0];
    let missing = request.devices.iter().filter(|device| device.is_none()).count();
    match &array.read_write.verdict {
        Verdict::Run => assert_eq!(missing, 0, "{name}"),
        Verdict::RunDegraded { missing: slots } => assert_eq!(slots.len(), missing, "{name}"),
        verdict => panic!("{name}: {verdict:?}"),
    }
    assert_eq!(array.other_verdicts, [], "{name}: the kernel and mdadm agree");
    let shape = array.shape.as_ref().unwrap();
    assert_eq!(shape.array_sectors(), planned.geometry.array_sectors(), "{name}");
    let from = array.read_write.repairs.resync.map(|resync| resync.from);
    assert_eq!(from, planned.resync_offset, "{name}: first resync");
}

/// The request of an mdadm command, and which disk of the case each of its devices is.
fn parse(
    command: &str,
    images: &[Vec<u8>],
    found: &MemberMetadata,
) -> Option<(Request, Vec<usize>)> {
    let level = option(command, "--level").unwrap();
    let level: Level = level.parse().unwrap();
    let mut request = Request::new(level, Vec::new(), found.set_uuid, found.created);
    let mut disks = Vec::new();
    let (mut write_mostly, mut failfast) = (false, false);
    let words: Vec<&str> = command.split("mdadm ").nth(1).unwrap().split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        match *word {
            "--write-journal" => return None,
            "--write-mostly" => write_mostly = true,
            "--failfast" => failfast = true,
            "--assume-clean" => request.assume_clean = true,
            "-c" => request.chunk_sectors = Some(words[index + 1].parse::<u64>().unwrap() * 2),
            "missing" => request.devices.push(None),
            device if device.starts_with("/dev/vd") => {
                let disk = usize::from(device.as_bytes()[7] - b'b');
                disks.push(disk);
                request.devices.push(Some(Device {
                    label: device.to_string(),
                    sectors: images[disk].len() as u64 / 512,
                    logical_block: 512,
                    uuid: Uuid([disk as u8 + 1; 16]),
                    data_offset: None,
                    write_mostly,
                    failfast,
                }));
            }
            _ => {}
        }
    }
    request.raid_devices = option(command, "--raid-devices").unwrap().parse().unwrap();
    request.name = option(command, "--name").unwrap_or_default().to_string();
    request.homehost = option(command, "--homehost").map(str::to_string);
    let kib = |text: &str| text.trim_end_matches('K').parse::<u64>().unwrap() * 1024;
    if option(command, "--bitmap").is_some() {
        let chunk_bytes = option(command, "--bitmap-chunk").map(kib);
        request.bitmap = BitmapOption::Internal { chunk_bytes };
    }
    request.write_behind = option(command, "--write-behind").map(|text| text.parse().unwrap());
    request.used_sectors = option(command, "--size").map(|text| kib(text) / 512);
    request.layout = option(command, "--layout").map(|text| Layout::parse(level, text).unwrap());
    if option(command, "--consistency-policy").is_some() {
        assert!(command.contains("--consistency-policy=ppl"));
        request.policy = Some(Policy::Ppl);
    }
    if let Some(text) = option(command, "--metadata") {
        request.version = Version::ALL.into_iter().find(|version| version.name() == text).unwrap();
    }
    Some((request, disks))
}

fn option<'a>(command: &'a str, name: &str) -> Option<&'a str> {
    command.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}
