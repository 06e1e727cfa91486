//! What is planned, written to sparse files, in the words of `mdadm --examine`.
//!
//! Skipped where there is no mdadm. It reads the files as they are: no root, no kernel. Of a bitmap
//! it says where it is; its header is compared with the golden arrays'.

use raidlab_md::create::{BitmapOption, Device, Plan, Request, plan};
use raidlab_md::ondisk::superblock::Policy;
use raidlab_md::ondisk::{Timestamp, Uuid, Version, Write};
use raidlab_md::{Layout, Level};
use std::io::{Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const GIB: u64 = 1 << 21;

fn mdadm(arguments: &[&str], file: &Path) -> Option<String> {
    let paths = ["mdadm", "/sbin/mdadm", "/usr/sbin/mdadm"];
    // runs: mdadm
    let run = |path: &&str| Command::new(path).args(arguments).arg(file).output().ok();
    let output = paths.iter().find_map(run)?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The value behind a label.
fn value<'a>(text: &'a str, label: &str) -> &'a str {
    let line = text.lines().find(|line| line.trim_start().starts_with(label));
    let line = line.unwrap_or_else(|| panic!("no '{label}' in:\n{text}"));
    line.split_once(" : ").expect("a value").1.trim()
}

fn write_out(directory: &Path, name: &str, request: &Request, plan: &Plan) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (place, superblock) in plan.places.iter().zip(&plan.superblocks) {
        let path = directory.join(format!("{name}-{}", place.device));
        let mut file = std::fs::File::create(&path).unwrap();
        let sectors = request.devices[place.device].as_ref().unwrap().sectors;
        file.set_len(sectors * 512).unwrap();
        let mut put = |sector: u64, bytes: &[u8]| {
            file.seek(SeekFrom::Start(sector * 512)).unwrap();
            file.write_all(bytes).unwrap();
        };
        for write in plan.preparations(place) {
            match write {
                Write::Zeroes(_) => {}
                Write::Bytes { sector, bytes } => put(sector, &bytes),
            }
        }
        put(superblock.sector(), &superblock.encode(512));
        paths.push(path);
    }
    paths
}

fn request(level: Level, version: Version, count: usize, sectors: u64) -> Request {
    let device = |number: usize| Device {
        label: format!("disk{number}"),
        sectors,
        logical_block: 512,
        uuid: Uuid([number as u8 + 0x10; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    let mut request = Request::new(level, (0..count).map(device).collect(), Uuid([7; 16]), now);
    request.version = version;
    request.name = "planned".into();
    request
}

#[test]
fn mdadm_reads_what_is_planned() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mdadm");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    if mdadm(&["--version"], &directory).is_none() {
        println!("skipped: mdadm is not installed");
        return;
    }
    let internal = BitmapOption::Internal { chunk_bytes: None };
    let layout = |level, name: &str| Some(Layout::parse(level, name).unwrap());
    use Level::*;
    use Version::*;
    let mut requests = vec![
        ("r5", request(Raid5, V1_2, 4, GIB)),
        ("r5-bitmap", Request { bitmap: internal, ..request(Raid5, V1_2, 4, 10 * GIB) }),
        ("r5-ppl", Request { policy: Some(Policy::Ppl), ..request(Raid5, V1_2, 3, GIB) }),
        ("r5-large", request(Raid5, V1_2, 6, 3_907_029_168)),
        ("r6-10", Request { bitmap: internal, ..request(Raid6, V1_0, 5, GIB) }),
        ("r6-11", request(Raid6, V1_1, 5, GIB)),
        ("r1-090", request(Raid1, V0_90, 2, GIB)),
        ("r1-10-bitmap", Request { bitmap: internal, ..request(Raid1, V1_0, 2, GIB) }),
        ("r10", Request { layout: layout(Raid10, "f2"), ..request(Raid10, V1_2, 5, GIB) }),
        ("r0", request(Raid0, V1_2, 3, GIB)),
        ("linear", request(Linear, V1_0, 3, GIB)),
    ];
    let mut spare = request(Raid4, V1_2, 5, GIB);
    spare.raid_devices = 3;
    requests.push(("r4-spares", spare));
    let mut checked = 0;
    for (name, request) in &requests {
        let plan = plan(request).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (nth, path) in write_out(&directory, name, request, &plan).iter().enumerate() {
            let text = mdadm(&["--examine"], path).unwrap();
            check(name, request, &plan, nth, &text);
            checked += 1;
        }
    }
    println!("mdadm reads {checked} members of {} planned arrays", requests.len());
    std::fs::remove_dir_all(&directory).unwrap();
}

fn check(name: &str, request: &Request, plan: &Plan, nth: usize, text: &str) {
    let place = &plan.places[nth];
    assert!(value(text, "Checksum").ends_with("- correct"), "{name}: {text}");
    assert_eq!(value(text, "Raid Level"), request.level.to_string(), "{name}");
    assert_eq!(value(text, "Raid Devices"), request.raid_devices.to_string(), "{name}");
    // mdadm doubles the KiB of 1.x in words of its own; the number in front is KiB.
    if plan.used_sectors > 0 {
        let kib: u64 = value(text, "Array Size").split(' ').next().unwrap().parse().unwrap();
        // mdadm computes the array of RAID 10 without its rounding.
        let expected = plan.geometry.array_sectors() / 2;
        let close = request.level == Level::Raid10 && kib.abs_diff(expected) < 1024;
        assert!(kib == expected || close, "{name}: {kib} KiB, not {expected}\n{text}");
    }
    if request.version == Version::V0_90 {
        return;
    }
    let clean = plan.resync_offset.is_none();
    assert_eq!(value(text, "State"), if clean { "clean" } else { "active" }, "{name}");
    assert_eq!(value(text, "Super Offset"), format!("{} sectors", place.super_sector), "{name}");
    if place.data_offset > 0 {
        assert_eq!(value(text, "Data Offset"), format!("{} sectors", place.data_offset), "{name}");
    }
    let relative = |sector: u64| sector as i64 - place.super_sector as i64;
    let log = place.bad_blocks.unwrap();
    assert_eq!(
        value(text, "Bad Block Log"),
        format!("512 entries available at offset {} sectors", relative(log.sector)),
        "{name}"
    );
    if let Some(area) = place.bitmap {
        let offset = relative(area.sector);
        assert_eq!(value(text, "Internal Bitmap"), format!("{offset} sectors from superblock"));
    }
    if let Some(area) = place.ppl {
        let offset = relative(area.sector);
        let expected =
            format!("{} sectors at offset {offset} sectors from superblock", area.sectors);
        assert_eq!(value(text, "PPL"), expected);
    }
    let role = match place.role {
        raidlab_md::ondisk::Role::Slot(slot) => format!("Active device {slot}"),
        _ => "spare".to_string(),
    };
    assert_eq!(value(text, "Device Role"), role, "{name}");
    let state = value(text, "Array State");
    assert!(state.starts_with(&"A".repeat(request.raid_devices)), "{name}: {state}");
}
