//! Clean stops, losses, crashes, resyncs and overlays.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{Array, BackgroundWork, DriverOptions};
use host::{Access, Device, DeviceOptions, Disk, Location, open_overlay};
use md::assemble::{Options, Verdict};
use md::create::BitmapOption;
use md::ondisk::Version;
use md::ondisk::superblock::Policy;
use md::{Layout, Level, MemberIdx};
use raidlab_admin::{CreateFailed, CreateOptions, Opened, StartOptions, create, start_shards};
use testkit::shards;

use super::support::{
    Members, SECTORS, contents, decide, mdadm_agrees, pattern, run, started, started_as, wait_for,
};
use crate::creation;

fn shapes() -> Vec<(Level, Version, BitmapOption, Option<Policy>, usize)> {
    use BitmapOption::{Internal, None as NoBitmap};
    let internal = || Internal { chunk_bytes: Some(65536) };
    vec![
        (Level::Raid0, Version::V1_2, NoBitmap, None, 3),
        (Level::Raid1, Version::V1_0, NoBitmap, None, 2),
        (Level::Raid1, Version::V0_90, internal(), None, 2),
        (Level::Raid4, Version::V1_1, NoBitmap, None, 4),
        (Level::Raid5, Version::V1_2, NoBitmap, None, 3),
        (Level::Raid5, Version::V1_2, internal(), None, 4),
        (Level::Raid5, Version::V1_2, NoBitmap, Some(Policy::Ppl), 4),
        (Level::Raid6, Version::V1_2, internal(), None, 5),
        (Level::Raid6, Version::V0_90, NoBitmap, None, 4),
        (Level::Raid10, Version::V1_2, internal(), None, 4),
    ]
}

#[test]
fn written_data_are_there_after_a_clean_stop_and_after_a_loss() {
    for (level, version, bitmap, policy, count) in shapes() {
        let context = format!("{level} {version} {bitmap:?} {policy:?}");
        let members = Members::new(count);
        members.create(level, |request| {
            request.version = version;
            request.bitmap = bitmap;
            request.policy = policy;
            if version == Version::V0_90 {
                request.name = String::new();
            }
        });
        let opened = members.opened(Access::ReadWrite);
        let array = run(&opened);
        let mut expected = vec![0; array.len_bytes() as usize];
        for (at, len) in [(0, 1 << 20), (3 << 20, 4096), (5 << 20, 3 << 20)] {
            let data = pattern(at as u64 + 0x9e37_79b9, len);
            array.write_at(&data, at as u64).unwrap();
            expected[at..at + len].copy_from_slice(&data);
        }
        if level != Level::Raid0 {
            wait_for(&array, &context, |status| status.resync_offset.is_none());
        }
        array.stop().unwrap();
        drop(opened);
        let opened = members.opened(Access::ReadOnly);
        let array = decide(&opened, &Options::default());
        assert_eq!(array.read_write.verdict, Verdict::Run, "{context}");
        let metadata: Vec<_> = opened.iter().map(|o| o.superblock.metadata()).collect();
        for (opened, metadata) in opened.iter().zip(&metadata) {
            assert!(opened.checksum.is_correct(), "{context}");
            assert_eq!(metadata.resync_offset, None, "{context}: clean");
        }
        assert!(metadata.iter().all(|m| m.events == metadata[0].events), "{context}: one count");
        drop(opened);
        assert!(contents(&members, &[]) == expected, "{context}");
        if level != Level::Raid0 {
            for lost in 0..count {
                assert!(contents(&members, &[lost]) == expected, "{context} without {lost}");
            }
        }
        mdadm_agrees(&members, &context);
    }
}

#[test]
fn a_resync_comes_on_also_where_hosts_have_all_there_is() {
    for level in [Level::Raid1, Level::Raid5] {
        let members = Members::new(3);
        members.create(level, |_| {});
        let opened = members.opened(Access::ReadWrite);
        let driver = DriverOptions { max_requests: 1, leases: 1, ..DriverOptions::default() };
        let shards = started_as(&opened, &Options::default(), driver).unwrap();
        let array = Array::run_shards(shards).unwrap();
        let lease = array.lease(4096);
        wait_for(&array, "resync", |status| status.resync_offset.is_none());
        let lease = array.write(lease, 0).wait().unwrap();
        drop(lease);
        array.stop().unwrap();
    }
}

#[test]
fn a_stop_says_when_the_metadata_cannot_be_made_clean() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let members = Members::new(2);
    // Files that can be made to refuse writes while they are open.
    let files: Vec<_> = (0..2)
        .map(|number| {
            let file = memfd_create("member", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, SECTORS * 512).unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            std::fs::remove_file(members.path(number)).unwrap();
            let path = format!("/proc/self/fd/{fd}");
            std::os::unix::fs::symlink(path, members.path(number)).unwrap();
            file
        })
        .collect();
    members.create_clean(Level::Raid1);
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    array.write_at(&[1; 4096], 0).unwrap();
    array.flush().unwrap();
    files.iter().for_each(|file| fcntl_add_seals(file, SealFlags::WRITE).unwrap());
    assert_eq!(array.stop(), Err(array::ArrayError::Unclean));
}

#[test]
fn a_start_without_writes_leaves_no_trace() {
    let members = Members::new(3);
    members.create_clean(Level::Raid5);
    let before = members.hashes();
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    let mut bytes = vec![1; 8192];
    array.read_at(&mut bytes, 4096).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    array.stop().unwrap();
    assert!(members.hashes() == before);
}

#[test]
fn an_examination_older_than_a_write_does_not_start_the_array() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    let opened = members.opened(Access::ReadWrite);
    let decision = decide(&opened, &Options::default());
    let start = || start_shards(&decision, &opened, &StartOptions::default());
    // As often as one likes while nothing is written.
    for _ in 0..2 {
        let array = Array::run_shards(start().unwrap()).unwrap();
        array.read_at(&mut [0; 4096], 0).unwrap();
        array.stop().unwrap();
    }
    let array = Array::run_shards(start().unwrap()).unwrap();
    array.write_at(&[1; 4096], 0).unwrap();
    array.fail_member(MemberIdx(0));
    array.write_at(&[2; 4096], 0).unwrap();
    array.stop().unwrap();
    let before = members.hashes();
    let error = start().err().expect("member 0 is stale").to_string();
    assert!(error.contains("m0: its superblock has changed since it was examined"), "{error}");
    assert!(members.hashes() == before, "nothing was written");
    // Examined again, it is what it was.
    drop(opened);
    let array = run(&members.opened(Access::ReadWrite));
    let mut bytes = [0; 4096];
    array.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [2; 4096]);
    array.stop().unwrap();
}

#[test]
fn a_member_without_its_superblock_is_not_started_from_an_earlier_examination() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    let opened = members.opened(Access::ReadWrite);
    let sector = opened[1].superblock.sector();
    opened[1].disk.write(sector, &[0; 4096]).unwrap();
    let error = started(&opened, &Options::default()).err().expect("it is gone").to_string();
    assert!(error.contains("m1: its superblock has changed"), "{error}");
}

#[test]
fn a_killed_array_is_dirty_and_is_resynced_when_it_starts_again() {
    for bitmap in [BitmapOption::None, BitmapOption::Internal { chunk_bytes: Some(65536) }] {
        let members = Members::new(3);
        members.create(Level::Raid5, |request| {
            request.assume_clean = true;
            request.bitmap = bitmap;
        });
        // The child is killed in the middle of its work. It has as many shards.
        let (_, inside) = module_path!().split_once("::").expect("a module of a crate");
        let inside = if shards() > 1 { format!("{inside}::in_shards") } else { inside.into() };
        let child = format!("{inside}::child_that_is_killed");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &child, "--nocapture"])
            .env("RAIDLAB_TEST_MEMBERS", members.dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let sign = members.dir.path().join("written");
        let start = Instant::now();
        while !sign.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "the child writes nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        // While it lives, no other process can open its members.
        let location = Location::whole(members.path(1));
        let options = DeviceOptions { access: Access::ReadWrite, direct: false };
        let error = Device::open(&location, options).unwrap_err();
        assert!(error.to_string().contains("another process has it open"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = members.opened(Access::ReadWrite);
        let array = decide(&opened, &Options::default());
        for opened in &opened {
            assert_eq!(opened.superblock.metadata().resync_offset, Some(0), "dirty");
        }
        let resync = array.read_write.repairs.resync.expect("a resync");
        assert_eq!(resync.by_bitmap, bitmap != BitmapOption::None);
        // Dirty and degraded is not started, unless forced.
        let two = [opened[0].clone(), opened[2].clone()];
        let error = started(&two, &Options::default()).err().unwrap();
        assert!(error.to_string().contains("may be wrong"), "{error}");
        let array = run(&opened);
        wait_for(&array, "resync", |status| status.resync_offset.is_none());
        let mut bytes = vec![0; 4096];
        array.read_at(&mut bytes, 1 << 20).unwrap();
        assert!(bytes == vec![0x77; 4096], "what was flushed is there");
        array.stop().unwrap();
        drop((opened, two));
        let all = contents(&members, &[]);
        for lost in 0..3 {
            assert!(contents(&members, &[lost]) == all, "parity is right without {lost}");
        }
    }
}

#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os("RAIDLAB_TEST_MEMBERS") else { return };
    let dir = Path::new(&dir);
    let opened: Vec<Opened> = (0..3)
        .map(|number| {
            let location = Location::whole(dir.join(format!("m{number}")));
            let options = DeviceOptions { access: Access::ReadWrite, direct: false };
            Opened::device(Arc::new(Device::open(&location, options).unwrap())).unwrap()
        })
        .collect();
    let array = run(&opened);
    array.write_at(&[0x77; 4096], 1 << 20).unwrap();
    array.flush().unwrap();
    std::fs::write(dir.join("written"), "").unwrap();
    for round in 0_u64.. {
        array.write_at(&[round as u8; 4096], (2 << 20) + round % 500 * 4096).unwrap();
    }
}

#[test]
fn a_member_that_fails_is_recorded_and_stale_from_then_on() {
    let members = Members::new(4);
    members.create_clean(Level::Raid5);
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    array.write_at(&[1; 8192], 0).unwrap();
    array.fail_member(MemberIdx(1));
    array.write_at(&[2; 8192], 4096).unwrap();
    array.stop().unwrap();
    drop(opened);
    let opened = members.opened(Access::ReadWrite);
    let found = decide(&opened, &Options::default());
    let missing = vec![MemberIdx(1)];
    assert_eq!(found.read_write.verdict, Verdict::RunDegraded { missing });
    let events: Vec<_> = opened.iter().map(|o| o.superblock.metadata().events).collect();
    assert!(events[0] >= events[1] + 2, "{events:?}: a difference of 1 would not count");
    let array = run(&opened);
    let mut bytes = vec![0; 12288];
    array.read_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..] == [2; 8192]);
    array.write_at(&[3; 4096], 8 << 20).unwrap();
    array.stop().unwrap();
    drop(opened);
    assert!(contents(&members, &[1])[8 << 20..(8 << 20) + 4096] == [3; 4096]);
}

#[test]
fn over_an_overlay_everything_works_and_the_members_stay() {
    let members = Members::new(3);
    members.create(Level::Raid5, |request| {
        request.layout = Some(Layout::default_for(Level::Raid5));
    });
    let before = members.hashes();
    let path = members.dir.path().join("overlay");
    let open = || -> Vec<Opened> {
        let bases: Vec<_> =
            members.devices(Access::ReadOnly).into_iter().map(|d| d as Arc<dyn Disk>).collect();
        let disks = open_overlay(&path, &bases, Access::ReadWrite).unwrap();
        disks.into_iter().map(|disk| Opened::disk(Arc::new(disk)).unwrap()).collect()
    };
    let data = pattern(0xdead_beef, 3 << 20);
    let opened = open();
    let array = run(&opened);
    array.write_at(&data, 1 << 20).unwrap();
    wait_for(&array, "resync", |status| status.resync_offset.is_none());
    array.stop().unwrap();
    drop(opened);
    assert!(members.hashes() == before, "the members are untouched");
    // Again, without one member: what was written is in the overlay.
    let opened = open();
    let array = run(&opened[1..]);
    let mut bytes = vec![0; 3 << 20];
    array.read_at(&mut bytes, 1 << 20).unwrap();
    assert!(bytes == data);
    array.stop().unwrap();
    assert!(members.hashes() == before, "the members are untouched");
}

#[test]
fn a_device_with_data_is_refused() {
    let members = Members::new(2);
    let disks = || -> Vec<Option<Arc<dyn Disk>>> {
        let devices = members.devices(Access::ReadWrite).into_iter();
        devices.map(|device| Some(device as Arc<dyn Disk>)).collect()
    };
    let named = disks().into_iter().flatten().collect::<Vec<_>>();
    let request = creation::request(Level::Raid1, &named, 9);
    drop(named);
    let plan = md::create::plan(&request).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(members.path(1)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"XFSB", 0).unwrap();
    let before = members.hashes();
    let error = create(&plan, &disks(), CreateOptions::default()).unwrap_err();
    let CreateFailed::Holds(what) = &error else { panic!("{error}") };
    assert!(what.len() == 1 && what[0].ends_with("m1 holds XFS."), "{what:?}");
    assert!(members.hashes() == before, "nothing was written");
    let seen = create(&plan, &disks(), CreateOptions { force: true }).unwrap();
    assert_eq!(seen, *what);
    // Now they are an array.
    let error = create(&plan, &disks(), CreateOptions::default()).unwrap_err();
    assert!(error.to_string().contains("m0 is a member of md array 09090909"), "{error}");
}

#[test]
fn devices_opened_read_only_are_not_started() {
    let members = Members::new(2);
    members.create(Level::Raid1, |_| {});
    let before = members.hashes();
    let error = started(&members.opened(Access::ReadOnly), &Options::default()).err().unwrap();
    assert!(error.to_string().ends_with("was opened read-only."), "{error}");
    assert!(members.hashes() == before);
}

/// Array bytes that lie on a member in the first rows of RAID 5, left-symmetric, of `members` with
/// chunks of 64 KiB: a list of (offset of the chunk, member).
fn chunks(members: usize, rows: u64) -> Vec<(u64, u16)> {
    let layout = Layout::Raid5(md::Raid5Layout::LeftSymmetric);
    let member_sectors = vec![rows * 128; members];
    let spec = md::GeometrySpec { level: Level::Raid5, layout, chunk_sectors: 128, member_sectors };
    let geometry = md::Geometry::new(&spec).unwrap();
    let md::Kind::Parity(parity) = geometry.kind() else { unreachable!("RAID 5") };
    let chunk = |number: u64| {
        let place = parity.locate(md::Sector(number * 128));
        (number << 16, parity.row(place.stripe).data[usize::from(place.index)].0)
    };
    (0..rows * (members as u64 - 1)).map(chunk).collect()
}

#[test]
fn on_used_disks_only_data_written_ahead_of_the_resync_survive_a_loss() {
    let members = Members::new(5);
    for number in 0..5 {
        std::fs::write(members.path(number), pattern(number as u64 + 3, SECTORS as usize * 512))
            .unwrap();
    }
    members.create(Level::Raid5, |_| {});
    let opened = members.opened(Access::ReadWrite);
    let mut shards = started(&opened, &Options::default()).unwrap();
    shards[0].pause_background(BackgroundWork::Resync, true);
    let array = Array::run_shards(shards).unwrap();
    for lost in 0..4u16 {
        let on_lost = chunks(5, 8).into_iter().filter(|(_, member)| *member == lost);
        for (offset, _) in on_lost {
            array.write_at(&pattern(offset + 7, 4096), offset + 8192).unwrap();
        }
    }
    array.flush().unwrap();
    array.fail_member(MemberIdx(2));
    while array.failed().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = vec![0; 4096];
    for (offset, member) in chunks(5, 8).into_iter().filter(|(_, member)| *member < 4) {
        array.read_at(&mut bytes, offset + 8192).unwrap();
        assert_eq!(bytes, pattern(offset + 7, 4096), "chunk at {offset} on member {member}");
        let beside = array.read_at(&mut bytes, offset + 32768);
        assert_eq!(beside.is_err(), member == 2, "chunk at {offset} on member {member}");
    }
    array.stop().unwrap();
}

testkit::repeat_in_shards! {
    written_data_are_there_after_a_clean_stop_and_after_a_loss,
    a_resync_comes_on_also_where_hosts_have_all_there_is,
    a_stop_says_when_the_metadata_cannot_be_made_clean,
    a_start_without_writes_leaves_no_trace,
    an_examination_older_than_a_write_does_not_start_the_array,
    a_member_without_its_superblock_is_not_started_from_an_earlier_examination,
    a_killed_array_is_dirty_and_is_resynced_when_it_starts_again,
    child_that_is_killed,
    a_member_that_fails_is_recorded_and_stale_from_then_on,
    over_an_overlay_everything_works_and_the_members_stay,
    a_device_with_data_is_refused,
    devices_opened_read_only_are_not_started,
    on_used_disks_only_data_written_ahead_of_the_resync_survive_a_loss,
}
