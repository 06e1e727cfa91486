//! The catalogue's rows, names as people write them, and texts of smartctl's.

use super::*;
use crate::law::{Source, Work};

#[test]
fn every_row_is_a_disk_with_names_of_its_own() {
    let all = catalogue();
    assert!(all.len() >= 8);
    let mut names = Vec::new();
    let mut prefixes = Vec::new();
    for disk in all {
        assert!((1.0..1e6).contains(&disk.capacity_gb), "{disk:?}");
        assert!(!disk.source.is_empty() && !disk.confidence.is_empty(), "{disk:?}");
        assert!(!disk.model_prefixes.is_empty(), "{disk:?}");
        assert_eq!(disk.kind == DiskKind::Hdd, disk.rpm.is_some(), "{disk:?}");
        assert!(disk.errors_per_bit.is_none_or(|rate| (1e-19..=1e-13).contains(&rate)), "{disk:?}");
        let is_of_flash = !matches!(
            disk.recording,
            None | Some(Recording::Conventional | Recording::Shingled | Recording::HostManaged)
        );
        assert!(disk.recording.is_none() || is_of_flash == disk.kind.is_flash(), "{disk:?}");
        let mut own: Vec<Vec<String>> =
            std::iter::once(&disk.name).chain(&disk.aliases).map(|name| words(name)).collect();
        own.sort();
        own.dedup();
        names.extend(own);
        let mut own: Vec<String> = disk.model_prefixes.iter().map(|it| plain(it)).collect();
        own.sort();
        own.dedup();
        prefixes.extend(own);
    }
    let count = names.len();
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|two| two[0] == two[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
    names.dedup();
    assert_eq!(names.len(), count);
    prefixes.sort();
    // Sorted, a beginning of another stands before it.
    let twice: Vec<_> = prefixes.windows(2).filter(|two| two[1].starts_with(&two[0])).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_disk_has_a_sheet_and_a_profile_unless_md_cannot_use_it() {
    for disk in catalogue() {
        let sheet = disk.sheet(32.0);
        if disk.recording == Some(Recording::HostManaged) {
            assert_eq!(sheet, Err(Unmodelled::HostManaged), "{}", disk.name);
            continue;
        }
        let sheet = sheet.unwrap_or_else(|error| panic!("{}: {error}", disk.name));
        assert_eq!(sheet.bytes, disk.bytes());
        assert_eq!(sheet.media.is_flash(), disk.kind.is_flash(), "{}", disk.name);
        assert_eq!(sheet.is_shingled, disk.is_shingled(), "{}", disk.name);
        if let Some(read) = disk.read_mb_per_s {
            assert!((sheet.read / read - 1.0).abs() < 1e-6, "{}: {}", disk.name, sheet.read);
        }
    }
}

#[test]
fn disks_are_found_as_people_write_them() {
    let (newest, older) =
        ("Seagate IronWolf 8 TB (ST8000VN002)", "Seagate IronWolf 8 TB (ST8000VN004)");
    for (text, name) in [
        ("Seagate IronWolf 8 TB", newest),
        ("seagate ironwolf 8tb", newest),
        ("SEAGATE IRONWOLF  8 TB", newest),
        ("ironwolf 8 tb", newest),
        ("ST8000VN002", newest),
        ("ST8000VN004", older),
        ("ST8000VN004-2M2101", older),
        ("870 evo 1tb", "Samsung 870 EVO 1 TB"),
    ] {
        assert_eq!(find(text).map(|disk| disk.name.as_str()), Ok(name), "{text}");
    }
    let Err(NoDisk::Several(names)) = find("8 TB") else { panic!("many disks have 8 TB") };
    assert!(names.len() > 1, "{names:?}");
    let Err(NoDisk::Unknown(near)) = find("IronWolf 9 TB") else { panic!("no such disk") };
    assert!(near.iter().all(|name| name.contains("IronWolf")), "{near:?}");
    for text in ["", "  ", "*", "no such disk"] {
        assert!(matches!(find(text), Err(NoDisk::Unknown(_))), "{text}");
    }
    assert_eq!(matching("").len(), catalogue().len());
    assert!(matching("ironwolf").iter().all(|disk| disk.name.contains("IronWolf")));
    assert!(matching("nosuchword").is_empty());
}

const SATA: &str = "\
smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0] (local build)
=== START OF INFORMATION SECTION ===
Model Family:     Seagate IronWolf
Device Model:     ST8000VN004-2M2101
Serial Number:    WSD00001
User Capacity:    8,001,563,222,016 bytes [8.00 TB]
Sector Sizes:     512 bytes logical, 4096 bytes physical
Rotation Rate:    7200 rpm
Form Factor:      3.5 inches
SATA Version is:  SATA 3.3, 6.0 Gb/s (current: 6.0 Gb/s)
";

const SAS: &str = "\
=== START OF INFORMATION SECTION ===
Vendor:               SEAGATE
Product:              ST9999XX0001
User Capacity:        4,000,787,030,016 bytes [4.00 TB]
Rotation Rate:        7200 rpm
Form Factor:          3.5 inches
Serial number:        ZAD00002
Transport protocol:   SAS (SPL-4)
";

const NVME: &str = "\
=== START OF INFORMATION SECTION ===
Model Number:                       Samsung SSD 980 PRO 1TB
Serial Number:                      S5GX00003
Total NVM Capacity:                 1,000,204,886,016 [1.00 TB]
Namespace 1 Size/Capacity:          1,000,204,886,016 [1.00 TB]
";

#[test]
fn smartctl_is_read_in_all_its_forms() {
    let all = parse_smartctl(&[SATA, SAS, NVME].concat()).expect("three disks");
    let names: Vec<&str> = all.iter().map(|seen| seen.disk.name.as_str()).collect();
    assert_eq!(
        names,
        ["Seagate IronWolf 8 TB (ST8000VN004)", "ST9999XX0001", "Samsung 980 PRO 1 TB"]
    );
    assert_eq!(all.iter().map(|seen| seen.is_known).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(all[0].disk.bytes(), 8_001_563_222_016);
    let sas = &all[1].disk;
    assert_eq!((sas.kind, sas.rpm, sas.bytes()), (DiskKind::Hdd, Some(7200.0), 4_000_787_030_016));
    assert_eq!(sas.form_factor.as_deref(), Some("3.5 inches"));
    assert_eq!(all[2].disk.kind, DiskKind::Nvme);
    let json = r#"{"device": {"protocol": "ATA"}, "model_name": "ST8000VN004-2M2101",
        "serial_number": "A", "user_capacity": {"bytes": 8001563222016}, "rotation_rate": 7200}
        {"device": {"protocol": "NVMe"}, "model_name": "Unheard of 2TB", "serial_number": "B",
        "nvme_total_capacity": 2000398934016}
        {"device": {"protocol": "SCSI"}, "scsi_vendor": "ACME", "scsi_product": "FLASH1",
        "rotation_rate": 0, "user_capacity": {"bytes": 960197124096}}"#;
    let all = parse_smartctl(json).expect("three disks");
    let kinds: Vec<DiskKind> = all.iter().map(|seen| seen.disk.kind).collect();
    assert_eq!(kinds, [DiskKind::Hdd, DiskKind::Nvme, DiskKind::SasSsd]);
    assert_eq!(all[1].disk.bytes(), 2_000_398_934_016);
    for seen in all {
        seen.disk.sheet(32.0).expect("a class stands in for what the text does not say");
    }
}

#[test]
fn platters_that_trim_are_shingled() {
    let text = SAS.replace("ST9999XX0001", "ACME 4T") + "TRIM Command: Available\n";
    assert!(parse_smartctl(&text).expect("a disk")[0].disk.is_shingled());
    let flash = text.replace("7200 rpm", "Solid State Device");
    assert!(!parse_smartctl(&flash).expect("a disk")[0].disk.is_shingled());
}

#[test]
fn a_link_below_its_best_caps_what_a_disk_reads() {
    let read = |text: &str| {
        let seen = parse_smartctl(text).expect("a disk");
        let sheet = seen[0].disk.sheet(32.0).expect("a class");
        let read = sheet.single.get(Work::Read).expect("a rate");
        (read.rate, read.source)
    };
    let linked =
        |now: &str| format!("{SATA}SATA Version is: SATA 3.1, 6.0 Gb/s (current: {now})\n");
    assert_eq!(read(&linked("1.5 Gb/s")), (150.0, Source::Sheet));
    assert_eq!(read(&linked("6.0 Gb/s")), read(SATA));
    let json = r#"{"device": {"protocol": "ATA"}, "model_name": "ST8000VN004-2M2101",
        "user_capacity": {"bytes": 8001563222016}, "rotation_rate": 7200, "interface_speed":
        {"current": {"units_per_second": 15, "bits_per_unit": 100000000}}}"#;
    assert_eq!(read(json).0, 150.0);
}

#[test]
fn figures_of_a_class_are_assumed() {
    let of = |text: &str| {
        let seen = parse_smartctl(text).expect("a disk");
        let single = seen[0].disk.sheet(32.0).expect("a class").single;
        let known = Work::ALL.iter().filter_map(|work| single.get(*work));
        known.map(|one| one.source).collect::<Vec<_>>()
    };
    assert!(of(SAS).iter().all(|source| *source == Source::Assumed));
    assert!(of(SATA).iter().all(|source| *source == Source::Sheet));
}

#[test]
fn what_is_no_disk_is_refused() {
    for text in ["", "{", "[]", "{}", "[1, null]", "hello: world", "Device Model:\n", "\u{0}\u{7f}"]
    {
        assert_eq!(parse_smartctl(text), Err(SmartctlError::None), "{text:?}");
    }
    let twice = [SATA, SATA].concat();
    assert_eq!(parse_smartctl(&twice), Err(SmartctlError::Twice("WSD00001".into())));
    let none = "Device Model: ACME 1\nUser Capacity: 12 bytes\n";
    assert_eq!(parse_smartctl(none), Err(SmartctlError::NoCapacity("ACME 1".into())));
    // A disk of the catalogue has its capacity from there.
    let known = parse_smartctl("Device Model: ST8000VN004-2M2101\n").expect("a disk");
    assert_eq!(known[0].disk.bytes(), 8_000_000_000_000);
}
