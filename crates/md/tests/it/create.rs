//! Planning new arrays: mdadm's numbers, and what cannot be had.

use raidlab_md::create::{BitmapOption, CreateError, Device, Plan, Request, plan};
use raidlab_md::ondisk::superblock::{Policy, Superblock};
use raidlab_md::ondisk::{Role, Timestamp, Uuid, Version, Write};
use raidlab_md::{Layout, Level};

const MIB: u64 = 2048;
const GIB: u64 = 1024 * MIB;

fn disk(number: usize, sectors: u64) -> Device {
    Device {
        label: format!("disk{number}"),
        sectors,
        logical_block: 512,
        uuid: Uuid([number as u8 + 1; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    }
}

fn request(level: Level, sizes: &[u64]) -> Request {
    let devices = sizes.iter().enumerate().map(|(number, &sectors)| disk(number, sectors));
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    Request::new(level, devices.collect(), Uuid([7; 16]), now)
}

fn made(request: &Request) -> Plan {
    plan(request).unwrap_or_else(|error| panic!("{error}"))
}

/// Everything of a device is on it, and nothing overlaps.
fn check_places(request: &Request, plan: &Plan) {
    for (place, superblock) in plan.places.iter().zip(&plan.superblocks) {
        let device = request.devices[place.device].as_ref().unwrap();
        let super_sectors = superblock.encode(device.logical_block as usize).len() as u64 / 512;
        let data = match plan.used_sectors {
            0 => place.data_sectors,
            used => used,
        };
        assert!(data <= place.data_sectors);
        let mut ranges = vec![
            (place.data_offset, place.data_sectors, "data"),
            (place.super_sector, super_sectors, "superblock"),
        ];
        let areas =
            [(place.bitmap, "bitmap"), (place.bad_blocks, "bad blocks"), (place.ppl, "ppl")];
        ranges.extend(
            areas
                .iter()
                .filter_map(|(area, name)| area.map(|area| (area.sector, area.sectors, *name))),
        );
        ranges.sort();
        for pair in ranges.windows(2) {
            let end = pair[0].0 + pair[0].1;
            assert!(end <= pair[1].0, "{} over {}: {place:?}", pair[0].2, pair[1].2);
        }
        let last = ranges.last().unwrap();
        assert!(last.0 + last.1 <= device.sectors, "{} beyond the end: {place:?}", last.2);
        // And what is written is where the places are.
        for write in plan.preparations(place) {
            let (sector, sectors) = match &write {
                Write::Zeroes(area) => (area.sector, area.sectors),
                Write::Bytes { sector, bytes } => (*sector, bytes.len() as u64 / 512),
            };
            let inside = areas.iter().filter_map(|(area, _)| *area).any(|area| {
                area.sector <= sector && sector + sectors <= area.sector + area.sectors
            });
            assert!(inside, "{write:?}");
        }
    }
}

#[test]
fn six_disks_of_two_terabytes_make_a_raid5_of_ten() {
    // 2 000 398 934 016 bytes, as all disks of 2 TB have.
    let request = request(Level::Raid5, &[3_907_029_168; 6]);
    let plan = made(&request);
    check_places(&request, &plan);
    let place = &plan.places[0];
    assert_eq!((place.data_offset, place.super_sector), (264_192, 8));
    assert_eq!(place.data_sectors, 3_906_764_976);
    // Rounded down to whole chunks of 512 KiB.
    assert_eq!(plan.used_sectors, 3_906_764_800);
    assert_eq!(plan.geometry.array_sectors(), 3_906_764_800 * 5);
    // Large: a bitmap, 64 MiB a bit, in 8 sectors of the 128 KiB that are kept for it.
    assert_eq!(plan.policy, Some(Policy::Bitmap));
    let bitmap = plan.bitmap.as_ref().unwrap();
    assert_eq!(bitmap.header.chunk_bytes, 64 << 20);
    assert_eq!(bitmap.shape().bits(), 29807);
    assert_eq!(place.bitmap.map(|area| (area.sector, area.sectors)), Some((16, 8)));
    assert_eq!(place.bad_blocks.map(|area| area.sector), Some(24));
    assert_eq!(plan.warnings, ["A write-intent bitmap is created, as the array is large."]);
    // Without one: where it would have been stays free.
    let plan = made(&Request { bitmap: BitmapOption::None, ..request.clone() });
    assert_eq!(plan.policy, Some(Policy::Resync));
    assert_eq!(plan.places[0].bad_blocks.map(|area| area.sector), Some(8 + 8 + 256));
    assert_eq!(plan.places[0].data_offset, 264_192);
}

#[test]
fn eleven_members_and_a_spare_with_chunks_of_32_kib() {
    let mut request = request(Level::Raid5, &[100 * GIB; 12]);
    request.raid_devices = 11;
    request.chunk_sectors = Some(64);
    request.name = "shelf".into();
    request.homehost = Some("box".into());
    let plan = made(&request);
    check_places(&request, &plan);
    assert_eq!(plan.places[0].data_offset, 133_120);
    let free = 100 * GIB - 133_120;
    assert_eq!(plan.used_sectors, free);
    assert_eq!(plan.geometry.array_sectors(), free * 10);
    assert_eq!(plan.geometry.stripe_sectors(), 640);
    assert_eq!(plan.policy, Some(Policy::Resync), "not more than 100 GiB of each member");
    assert_eq!(plan.resync_offset, Some(0));
    let metadata: Vec<_> = plan.superblocks.iter().map(Superblock::metadata).collect();
    assert_eq!((metadata[0].name.as_str(), metadata[0].events), ("box:shelf", 1));
    assert_eq!(metadata[11].role, Role::Spare);
    assert_eq!(metadata[11].roles[..12], metadata[0].roles[..12]);
    assert_eq!((metadata[0].roles[10], metadata[0].roles[11]), (Role::Slot(10), Role::Spare));
    assert_eq!(metadata[0].roles.len(), 128);
    let numbers: Vec<u32> = metadata.iter().map(|one| one.dev_number).collect();
    assert_eq!(numbers, (0..12).collect::<Vec<u32>>());
}

/// Linux 6.19 records a logical block size in an array whose count is 0, and older kernels refuse
/// it from then on.
#[test]
fn no_new_array_is_taken_for_just_created_by_newer_kernels() {
    for version in Version::ALL {
        let mut request = request(Level::Raid1, &[GIB; 2]);
        request.version = version;
        request.bitmap = BitmapOption::Internal { chunk_bytes: None };
        let plan = made(&request);
        for superblock in &plan.superblocks {
            assert_eq!(superblock.metadata().events, 1, "{version}");
            let Superblock::V1(superblock) = superblock else { continue };
            assert_eq!(superblock.logical_block_size, 0, "{version}");
        }
        assert_eq!(plan.bitmap.expect("a bitmap").header.events, 1, "{version}");
    }
}

#[test]
fn every_combination_that_is_accepted_has_its_places_apart() {
    let sizes = [4 * MIB, 8 * MIB, 8 * MIB + 7, GIB, 10 * GIB, 9 * GIB + 13, 300 * GIB, 20 << 31];
    let (mut accepted, mut refused) = (0, 0);
    for level in Level::ALL {
        for version in Version::ALL {
            for &size in &sizes {
                for chunk_sectors in [None, Some(8), Some(128), Some(2048)] {
                    for bitmap in [
                        BitmapOption::Auto,
                        BitmapOption::None,
                        BitmapOption::Internal { chunk_bytes: None },
                    ] {
                        for policy in [None, Some(Policy::Ppl)] {
                            for used_sectors in [None, Some(MIB)] {
                                let mut request = request(level, &[size, size + 256, size, size]);
                                request.version = version;
                                request.chunk_sectors = chunk_sectors;
                                request.bitmap = bitmap;
                                request.policy = policy;
                                request.used_sectors = used_sectors;
                                match plan(&request) {
                                    Ok(plan) => {
                                        accepted += 1;
                                        check_places(&request, &plan);
                                    }
                                    Err(error) => {
                                        refused += 1;
                                        assert!(error.to_string().contains(": "), "{error}");
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(accepted > 3000 && refused > 1000, "{accepted} accepted, {refused} refused");
}

#[test]
fn missing_members_leave_nothing_to_resync_or_one_to_rebuild() {
    let first = |level: Level, count: usize, missing: &[usize], assume_clean: bool| {
        let mut request = request(level, &vec![GIB; count]);
        missing.iter().for_each(|&slot| request.devices[slot] = None);
        request.assume_clean = assume_clean;
        let plan = made(&request);
        check_places(&request, &plan);
        let rebuilt = plan.superblocks.iter().map(Superblock::metadata);
        let rebuilt: Vec<u32> = rebuilt
            .filter(|one| one.recovery_offset == Some(0))
            .map(|one| one.dev_number)
            .collect();
        (plan.resync_offset, rebuilt)
    };
    assert_eq!(first(Level::Raid5, 3, &[], false), (Some(0), vec![]));
    assert_eq!(first(Level::Raid5, 3, &[], true), (None, vec![]));
    assert_eq!(first(Level::Raid5, 3, &[1], false), (None, vec![]));
    assert_eq!(first(Level::Raid6, 5, &[1, 4], false), (None, vec![]));
    // Dirty and degraded could not be started again: as mdadm, rebuild one.
    assert_eq!(first(Level::Raid6, 5, &[4], false), (None, vec![3]));
    assert_eq!(first(Level::Raid6, 5, &[4], true), (None, vec![]));
    assert_eq!(first(Level::Raid10, 4, &[1], false), (Some(0), vec![]));
    assert_eq!(first(Level::Raid0, 2, &[], false), (None, vec![]));
}

#[test]
fn sizes_that_differ_by_more_than_one_percent_are_reported() {
    let warnings = |sizes: &[u64]| made(&request(Level::Raid1, sizes)).warnings;
    assert_eq!(warnings(&[10 * GIB, 10 * GIB + GIB / 20]), Vec::<String>::new());
    assert_eq!(
        warnings(&[10 * GIB, 10 * GIB + GIB / 5]),
        ["The largest device (disk1) exceeds the size (10476544 KiB) by more than 1 %."]
    );
    assert_eq!(made(&request(Level::Raid0, &[GIB, 5 * GIB])).warnings, Vec::<String>::new());
}

#[test]
fn what_is_written_before_the_superblocks_is_the_bitmap_and_empty_logs() {
    let mut request = request(Level::Raid5, &[GIB; 3]);
    request.policy = Some(Policy::Ppl);
    let plan = made(&request);
    let writes = plan.preparations(&plan.places[1]);
    let Write::Bytes { sector, bytes } = &writes[0] else { panic!("{writes:?}") };
    assert_eq!((*sector, bytes.len()), (8 + 8 + 2048, 4096));
    assert!(bytes.iter().all(|&byte| byte == 0xff), "an empty bad-block log");
    let Write::Zeroes(area) = &writes[1] else { panic!("{writes:?}") };
    assert_eq!((area.sector, area.sectors), (24, 2040));
    let Write::Bytes { sector, bytes } = &writes[2] else { panic!("{writes:?}") };
    let header = raidlab_md::ondisk::ppl::PplHeader::decode(bytes).unwrap();
    assert_eq!((*sector, header.entries.len()), (16, 0));
    assert_eq!(writes.len(), 3);
}

#[test]
fn metadata_0_90_has_its_limits() {
    let mut v0 = request(Level::Raid1, &[GIB; 2]);
    v0.version = Version::V0_90;
    let plan_v0 = made(&v0);
    check_places(&v0, &plan_v0);
    let metadata = plan_v0.superblocks[1].metadata();
    assert_eq!((metadata.role, metadata.events), (Role::Slot(1), 1));
    assert_eq!(metadata.resync_offset, Some(0));
    let refusal = |change: &dyn Fn(&mut Request)| {
        let mut request = v0.clone();
        change(&mut request);
        plan(&request).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&|request| {
            request.devices = (0..28).map(|number| Some(disk(number, GIB))).collect();
            request.raid_devices = 28;
        }),
        "devices: 28 given, metadata 0.90 describes at most 27"
    );
    assert_eq!(
        refusal(&|request| {
            request.devices.iter_mut().flatten().for_each(|disk| disk.sectors = 5 << 31);
        }),
        "size: 10737418112 sectors of each member, metadata 0.90 counts to 4 TiB"
    );
    assert!(
        refusal(&|request| {
            request.level = Level::Raid0;
            request.devices = [GIB, 2 * GIB, 3 * GIB, 3 * GIB]
                .iter()
                .map(|&sectors| Some(disk(0, sectors)))
                .collect();
            request.raid_devices = 4;
        })
        .starts_with("layout: not recorded")
    );
}

#[test]
fn refusals_name_the_option_or_the_device() {
    let of = |level, count: usize, change: &dyn Fn(&mut Request)| {
        let mut request = request(level, &vec![GIB; count]);
        change(&mut request);
        plan(&request).unwrap_err().to_string()
    };
    use Level::*;
    let none = |_: &mut Request| {};
    let internal = BitmapOption::Internal { chunk_bytes: None };
    #[rustfmt::skip]
    let table: Vec<(String, &str)> = vec![
        (of(Raid5, 3, &|r| r.raid_devices = 4),
         "devices: 3 given for 4 slots; a slot may be 'missing'"),
        (of(Raid1, 1, &none), "raid-devices: 1 is unusual for raid1; force it if it is meant"),
        (of(Raid5, 1, &none), "members: raid5 needs at least 2, given 1"),
        (of(Raid6, 3, &none), "members: raid6 needs at least 4, given 3"),
        (of(Raid0, 3, &|r| r.raid_devices = 2),
         "devices: raid0 has no redundancy and so no spares"),
        (of(Linear, 2, &|r| r.devices[1] = None),
         "devices: linear has no redundancy and so no missing members"),
        (of(Raid5, 4, &|r| { r.devices[1] = None; r.devices[2] = None; }),
         "devices: 2 of 4 members do not make a raid5: too many are missing"),
        (of(Raid1, 2, &|r| r.devices = vec![None, None]),
         "devices: 0 of 2 members do not make a raid1: too many are missing"),
        (of(Raid1, 3, &|r| { r.raid_devices = 2; r.devices[2] = None; }),
         "devices: a spare cannot be missing"),
        (of(Raid5, 3, &|r| r.chunk_sectors = Some(24)),
         "chunk: 24 sectors for raid5: not a power of two"),
        (of(Raid1, 2, &|r| r.used_sectors = Some(2 * GIB)),
         "size: 4194304 sectors (2.00 GiB), but disk0 has room for 2093056 (1022.00 MiB)"),
        (of(Raid1, 2, &|r| r.devices[1] = Some(disk(1, 2048))),
         "disk1: 2048 sectors (1.00 MiB), needs at least 4224 (2.06 MiB)"),
        (of(Raid1, 2, &|r| r.data_offset = Some(8)),
         "data-offset: 8 sectors, but the metadata before it needs 16"),
        (of(Raid1, 2, &|r| { r.data_offset = Some(16); r.bitmap = internal }),
         "data-offset: 16 sectors, but the metadata before it needs 24"),
        (of(Raid5, 3, &|r| r.policy = Some(Policy::Journal)),
         "consistency-policy: a journal cannot be created here, only assembled"),
        (of(Raid6, 4, &|r| r.policy = Some(Policy::Ppl)),
         "consistency-policy: a partial parity log is for raid5 only"),
        (of(Raid0, 2, &|r| r.bitmap = internal),
         "bitmap: a level without redundancy has nothing to keep consistent"),
        (of(Raid5, 3, &|r| { r.policy = Some(Policy::Ppl); r.bitmap = internal }),
         "bitmap: the consistency policy that is requested excludes one"),
        (of(Raid1, 2, &|r| r.bitmap = BitmapOption::Internal { chunk_bytes: Some(1000) }),
         "bitmap chunk: 1000 bytes, not a power of two from 65536 to 2147483648"),
        (of(Raid1, 2, &|r| r.write_behind = Some(16384)),
         "write-behind: must be from 1 to 16383"),
        (of(Raid1, 2, &|r| r.name = "x".repeat(32)),
         "name: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is longer than 31 bytes or has a character of \
          no name"),
    ];
    for (text, expected) in table {
        assert_eq!(text, expected);
    }
    let mut single = request(Level::Raid1, &[GIB]);
    single.force = true;
    assert_eq!(made(&single).geometry.members(), 1);
}

#[test]
fn a_data_offset_that_was_asked_for_may_crowd_out_the_bad_block_log() {
    let internal = BitmapOption::Internal { chunk_bytes: None };
    // Data offset, bitmap, where the log is then.
    let table = [
        (16, BitmapOption::None, None),
        (24, BitmapOption::None, Some(16)),
        (32, BitmapOption::None, Some(24)),
        (4096, BitmapOption::None, Some(24)),
        (24, internal, None),
        (32, internal, Some(24)),
    ];
    for (data_offset, bitmap, log) in table {
        let mut request = request(Level::Raid1, &[GIB; 2]);
        (request.data_offset, request.bitmap) = (Some(data_offset), bitmap);
        let plan = made(&request);
        check_places(&request, &plan);
        assert_eq!(plan.places[0].bad_blocks.map(|area| area.sector), log, "{data_offset}");
        assert_eq!(plan.superblocks[0].metadata().bad_blocks.map(|log| log.area.sector), log);
        assert_eq!(plan.warnings.len(), usize::from(log.is_none()));
    }
}

#[test]
fn names_and_requests_are_mdadms() {
    let name = |name: &str, host: Option<&str>| {
        let mut request = request(Level::Raid1, &[GIB; 2]);
        request.name = name.into();
        request.homehost = host.map(str::to_string);
        made(&request).superblocks[0].metadata().name
    };
    assert_eq!(name("data", None), "data");
    assert_eq!(name("data", Some("box")), "box:data");
    assert_eq!(name(&"x".repeat(27), Some("box")), format!("box:{}", "x".repeat(27)));
    assert_eq!(name(&"x".repeat(28), Some("box")), "x".repeat(28), "no room for the host");
    // RAID 10 stores what the kernel makes of the size.
    let mut raid10 = request(Level::Raid10, &[14336 + 2048; 5]);
    raid10.layout = Some(Layout::parse(Level::Raid10, "f3").unwrap());
    raid10.chunk_sectors = Some(128);
    assert_eq!(made(&raid10).used_sectors, 14208);
    // One offset for each member.
    let mut variable = request(Level::Raid1, &[GIB, 2 * GIB]);
    variable.devices[1].as_mut().unwrap().data_offset = Some(8192);
    let plan = made(&variable);
    assert_eq!((plan.places[0].data_offset, plan.places[1].data_offset), (4096, 8192));
    let mut request = request(Level::Raid5, &[GIB; 3]);
    request.version = Version::V0_90;
    request.data_offset = Some(8);
    assert!(matches!(plan_error(&request), CreateError::Conflict { option: "data-offset", .. }));
}

fn plan_error(request: &Request) -> CreateError {
    plan(request).unwrap_err()
}
