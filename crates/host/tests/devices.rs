//! Persistent members: opened, locked, and left unchanged.

use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use raidlab_host::sys::LoopDevice;

use raidlab_host::{
    Access, Device, DeviceError, DeviceOptions, DeviceProblem, Disk, Location, MemberName,
    OverlayProblem, RescueMap, open_overlay, overlay_id, packed_as, signatures,
};

fn file(dir: &Path, name: &str, sectors: u64) -> Location {
    let path = dir.join(name);
    std::fs::write(&path, testkit::Rng::new(1).bytes(sectors as usize * 512)).unwrap();
    Location::whole(path)
}

fn open(location: &Location, access: Access) -> Result<Device, DeviceError> {
    Device::open(location, DeviceOptions { access, direct: false })
}

fn part(location: &Location, offset: u64, size: Option<u64>) -> Location {
    Location { offset, size, ..location.clone() }
}

#[test]
fn a_part_of_an_image_is_a_member_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let image = file(dir.path(), "disk", 64);
    let first = open(&part(&image, 4096, Some(8192)), Access::ReadWrite).unwrap();
    let second = open(&part(&image, 12288, None), Access::ReadWrite).unwrap();
    assert_eq!((first.sectors(), second.sectors()), (16, 40));
    first.write(15, &[7; 512]).unwrap();
    second.write(0, &[9; 512]).unwrap();
    let bytes = std::fs::read(&image.path).unwrap();
    assert_eq!(bytes[11776..12288], [7; 512]);
    assert_eq!(bytes[12288..12800], [9; 512]);
    let error = first.write(15, &[0; 1024]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    let mut back = [0; 512];
    assert_eq!(first.read(16, &mut back).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    // A third one that would overlap the first is refused, whatever its name.
    let error = open(&part(&image, 11776, Some(512)), Access::ReadWrite).unwrap_err();
    assert!(matches!(error.problem, DeviceProblem::Locked { .. }), "{error}");
    assert!(error.to_string().contains("disk@11776+512"), "{error}");
    for (offset, size) in [(64 * 512 + 512, None), (0, Some(65 * 512)), (512, Some(64 * 512))] {
        let error = open(&part(&image, offset, size), Access::ReadOnly).unwrap_err();
        assert!(matches!(error.problem, DeviceProblem::Window { bytes: 32768, .. }), "{error}");
    }
    let error = open(&part(&image, 64 * 512, None), Access::ReadOnly).unwrap_err();
    assert!(matches!(error.problem, DeviceProblem::Empty), "{error}");
}

#[test]
fn an_image_is_made_once_and_its_space_reserved_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::whole(dir.path().join("image"));
    let made = Device::make(&location, 8 << 20).unwrap();
    assert_eq!(made.sectors(), 8 << 11);
    let error = Device::make(&location, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("image: cannot make it: File exists"), "{error}");
    let metadata = || std::fs::metadata(&location.path).unwrap();
    assert_eq!((metadata().len(), metadata().blocks()), (8 << 20, 0), "a hole");
    let error = open(&location, Access::ReadWrite).unwrap_err();
    assert!(matches!(error.problem, DeviceProblem::Locked { .. }), "{error}");
    drop(made);
    let device = open(&location, Access::ReadWrite).unwrap();
    device.write(100, &[3; 512]).unwrap();
    assert!(!device.preallocate(|| false).unwrap(), "stopped");
    assert!(metadata().blocks() < 8 << 11, "{} sectors", metadata().blocks());
    assert!(device.preallocate(|| true).unwrap());
    assert_eq!(metadata().len(), 8 << 20);
    assert!(metadata().blocks() >= (8 << 20) / 512, "{} sectors", metadata().blocks());
    let mut bytes = [0; 512];
    device.read(100, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 512]);
    drop(device);
    assert!(open(&location, Access::ReadOnly).unwrap().preallocate(|| true).is_err());
    let error = Device::make(&Location::whole(dir.path().join("huge")), u64::MAX).unwrap_err();
    assert!(error.to_string().contains("cannot make it"), "{error}");
    assert!(!dir.path().join("huge").exists(), "nothing is left behind");
}

#[test]
fn a_file_that_is_removed_while_it_is_waited_for_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::whole(dir.path().join("image"));
    let made = Device::make(&location, 1 << 20).unwrap();
    let waiting = {
        let location = location.clone();
        std::thread::spawn(move || open(&location, Access::ReadWrite))
    };
    // It has the file open, and tries to lock it.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(made.remove().unwrap());
    drop(made);
    let error = waiting.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("image: "), "{error}");
}

#[test]
fn a_file_is_not_removed_from_under_another_user_or_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = Device::make(&part(&Location::whole(&image), 0, Some(512 << 10)), 1 << 20).unwrap();
    let whole = Location::whole(&image);
    let other = open(&part(&whole, 512 << 10, None), Access::ReadWrite).unwrap();
    assert!(!made.remove().unwrap() && image.exists());
    drop(other);
    std::fs::rename(&image, dir.path().join("elsewhere")).unwrap();
    std::fs::write(&image, "theirs").unwrap();
    assert!(!made.remove().unwrap() && image.exists());
    std::fs::rename(dir.path().join("elsewhere"), &image).unwrap();
    assert!(made.remove().unwrap() && !image.exists());
}

#[test]
fn one_writes_or_several_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = file(dir.path(), "disk", 8);
    let reader = open(&image, Access::ReadOnly).unwrap();
    drop(open(&image, Access::ReadOnly).expect("readers share"));
    let error = open(&image, Access::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("another process has it open"), "{error}");
    drop(reader);
    let writer = open(&image, Access::ReadWrite).unwrap();
    let error = open(&image, Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("another process writes to it"), "{error}");
    drop(writer);
    open(&image, Access::ReadOnly).unwrap();
}

#[test]
fn a_hole_that_is_written_to_is_none_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::whole(dir.path().join("image"));
    std::fs::File::create(&location.path).unwrap().set_len(1 << 20).unwrap();
    let device = open(&location, Access::ReadWrite).unwrap();
    if device.hole_end(0) != 2048 {
        return println!("skipped: files have no holes here");
    }
    device.write(64, &[1; 512]).unwrap();
    assert!((56..=64).contains(&device.hole_end(0)), "{}", device.hole_end(0));
    assert_eq!(device.hole_end(64), 64);
    assert_eq!(device.hole_end(1024), 2048);
}

#[test]
fn read_only_devices_are_read_only_for_the_kernel_too() {
    let dir = tempfile::tempdir().unwrap();
    let image = file(dir.path(), "disk", 64);
    let before = (std::fs::read(&image.path).unwrap(), std::fs::metadata(&image.path).unwrap());
    for direct in [false, true] {
        let options = DeviceOptions { access: Access::ReadOnly, direct };
        let device = Device::open(&image, options).unwrap();
        let mut bytes = vec![0; 3 * 512];
        device.read(5, &mut bytes).unwrap();
        assert_eq!(bytes, before.0[5 * 512..8 * 512]);
        let error = device.write(0, &[0; 512]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        assert!(device.write_zeroes(0..8).is_err());
        assert_eq!(access_modes_of(&image.path), ["O_RDONLY"]);
    }
    let after = std::fs::metadata(&image.path).unwrap();
    assert_eq!(std::fs::read(&image.path).unwrap(), before.0);
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.1.mtime(), before.1.mtime_nsec()));
}

/// A device that is not written to until this is dropped: it stays so when it has another file.
struct Protected<'a>(&'a Path);

impl Protected<'_> {
    fn new(device: &Path) -> Protected<'_> {
        Protected::set(device, "--setro");
        Protected(device)
    }

    fn set(device: &Path, how: &str) {
        let ran = Command::new("blockdev").arg(how).arg(device).status();
        assert!(ran.expect("util-linux is there").success(), "{how}");
    }
}

impl Drop for Protected<'_> {
    fn drop(&mut self) {
        Protected::set(self.0, "--setrw");
    }
}

#[test]
fn a_loop_device_is_what_its_file_is_and_is_not_written_to_where_it_is_protected() {
    let dir = tempfile::tempdir().unwrap();
    let image = file(dir.path(), "disk.img", 2048);
    let backing = std::fs::File::options().read(true).write(true).open(&image.path).unwrap();
    let device = match LoopDevice::attach(&backing, 4096) {
        Ok(device) => device,
        Err(error) => return println!("skipped: no loop device can be attached here: {error}"),
    };
    let location = Location::whole(device.path());
    // A map beside its file has positions that may not be those of the device.
    let map = "# Mapfile. Created by GNU ddrescue version 1.27\n0 +\n0 4096 -\n";
    std::fs::write(dir.path().join("disk.map"), map).unwrap();
    let name = MemberName::parse(device.path().as_ref()).unwrap();
    let error = RescueMap::of(&name).expect_err("it is not to be left out").to_string();
    assert!(error.contains("disk.map") && error.contains(":map=none"), "{error}");
    assert!(open(&location, Access::ReadWrite).is_ok());
    let _protected = Protected::new(device.path());
    let error = open(&location, Access::ReadWrite).expect_err("it is read-only").to_string();
    assert!(error.contains("write-protected"), "{error}");
    assert!(open(&location, Access::ReadOnly).is_ok());
}

/// How this process has the file open, as the kernel tells it.
fn access_modes_of(path: &Path) -> Vec<&'static str> {
    let path = path.canonicalize().unwrap();
    let mut modes = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
            modes.push(["O_RDONLY", "O_WRONLY", "O_RDWR"][flags as usize & 3]);
        }
    }
    modes
}

#[test]
fn unusable_members_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| Location::whole(dir.path().join(name));
    let error = open(&at("nothing"), Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("nothing: cannot stat it: No such file"), "{error}");
    let error = open(&Location::whole(dir.path()), Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("it is a directory"), "{error}");
    let error = open(&Location::whole("/dev/null"), Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("it is a character device"), "{error}");
    std::fs::write(at("short").path, [0; 511]).unwrap();
    let error = open(&at("short"), Access::ReadOnly).unwrap_err();
    assert!(matches!(error.problem, DeviceProblem::Empty), "{error}");
    for (name, start, says) in [
        ("a.zst", &b"\x28\xb5\x2f\xfd"[..], "zstd -d"),
        ("a.gz", b"\x1f\x8b\x08", "gunzip"),
        ("a.xz", b"\xfd7zXZ\0", "unxz"),
        ("a.qcow2", b"QFI\xfb", "qemu-img convert"),
    ] {
        let mut bytes = [0; 4096];
        bytes[..start.len()].copy_from_slice(start);
        std::fs::write(at(name).path, bytes).unwrap();
        let device = open(&at(name), Access::ReadOnly).unwrap();
        assert!(packed_as(&device).unwrap().contains(says), "{name}");
    }
    let plain = file(dir.path(), "plain", 8);
    assert_eq!(packed_as(&open(&plain, Access::ReadOnly).unwrap()), None);
}

#[test]
fn odd_sectors_go_through_direct_devices_too() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let image = file(dir.path(), "disk", 64);
    let options = DeviceOptions { access: Access::ReadWrite, direct: true };
    let device = Device::open(&image, options).unwrap();
    if !device.is_direct() {
        println!("skipped: no direct I/O on the file system of the source tree");
        return;
    }
    let mut expected = std::fs::read(&image.path).unwrap();
    // An address that no direct I/O accepts.
    let bytes = [0x5a; 3 * 512 + 1];
    device.write(7, &bytes[1..]).unwrap();
    device.write_zeroes(20..23).unwrap();
    device.sync().unwrap();
    expected[7 * 512..10 * 512].fill(0x5a);
    expected[20 * 512..23 * 512].fill(0);
    let mut back = vec![0; 64 * 512 + 1];
    device.read(0, &mut back[1..]).unwrap();
    assert!(back[1..] == expected);
    drop(device);
    assert!(std::fs::read(&image.path).unwrap() == expected);
}

fn disks(locations: &[Location]) -> Vec<Arc<dyn Disk>> {
    let disk = |location| Arc::new(open(location, Access::ReadOnly).unwrap()) as Arc<dyn Disk>;
    locations.iter().map(disk).collect()
}

#[test]
fn an_overlay_keeps_writes_and_leaves_the_members_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    // Sizes that are no whole blocks.
    let members = [file(dir.path(), "a", 2003), file(dir.path(), "b", 2003)];
    std::fs::write(&members[1].path, vec![3; 2003 * 512]).unwrap();
    let before: Vec<_> = members.iter().map(|m| std::fs::read(&m.path).unwrap()).collect();
    let path = dir.path().join("overlay");
    let mut expected = before.clone();
    let mut seed = 12345_u64;
    for round in 0..6 {
        // The members in another order, too: they are recognised.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let bases = disks(&[members[order[0]].clone(), members[order[1]].clone()]);
        let overlay = open_overlay(&path, &bases, Access::ReadWrite).unwrap();
        for (disk, member) in overlay.iter().zip(order) {
            assert_eq!(disk.sectors(), 2003);
            check(disk, &expected[member]);
        }
        for step in 0..200 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let which = (seed >> 60) as usize & 1;
            let at = (seed >> 20) % 2003;
            let len = ((seed >> 40) % 40 + 1).min(2003 - at);
            let bytes = vec![(seed >> 50) as u8; (len * 512) as usize];
            let range = at as usize * 512..(at + len) as usize * 512;
            if step % 10 == 0 {
                overlay[which].write_zeroes(at..at + len).unwrap();
                expected[order[which]][range].fill(0);
            } else {
                overlay[which].write(at, &bytes).unwrap();
                expected[order[which]][range].copy_from_slice(&bytes);
            }
        }
        for (disk, member) in overlay.iter().zip(order) {
            check(disk, &expected[member]);
        }
        overlay[0].sync().unwrap();
    }
    let after: Vec<_> = members.iter().map(|m| std::fs::read(&m.path).unwrap()).collect();
    assert!(after == before, "the members are untouched");
    // To read only, without one member.
    let overlay = open_overlay(&path, &disks(&members[1..]), Access::ReadOnly).unwrap();
    check(&overlay[0], &expected[1]);
    let error = overlay[0].write(0, &[0; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn what_was_cut_off_a_file_is_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::whole(dir.path().join("a"));
    let sparse = std::fs::File::create(&location.path).unwrap();
    sparse.set_len(4096 * 512).unwrap();
    let open = |access| Device::open(&location, DeviceOptions { access, direct: false }).unwrap();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let device = open(access);
        if device.hole_end(8) != 4096 {
            return println!("skipped: files have no holes here");
        }
        sparse.set_len(1000 * 512).unwrap();
        // Where a hole was found before, and where none was looked for.
        for sector in [8, 9, 2000] {
            assert_eq!(device.hole_end(sector), sector, "{access:?}: {sector}");
        }
        assert!(device.read(2000, &mut [0; 512]).is_err());
        assert_eq!(raidlab_host::hole_end(&sparse, 2000 * 512, 1000 * 512), 2000 * 512);
        drop(device);
        sparse.set_len(4096 * 512).unwrap();
    }
}

#[test]
fn an_overlay_has_an_identity_of_its_own_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let bases = disks(&[file(dir.path(), "a", 2048)]);
    let path = |name: &str| dir.path().join(name);
    let make = || drop(open_overlay(&path("over"), &bases, Access::ReadWrite).unwrap());
    make();
    let first = overlay_id(&path("over")).unwrap();
    std::fs::rename(path("over"), path("moved")).unwrap();
    assert_eq!(overlay_id(&path("moved")).unwrap(), first);
    make();
    assert_ne!(overlay_id(&path("over")).unwrap(), first, "a new one by the old name");
    assert_eq!(overlay_id(&path("a")).unwrap_err().kind(), ErrorKind::InvalidData);
}

/// Reads all of it, in ranges of several lengths.
fn check(disk: &dyn Disk, expected: &[u8]) {
    let (mut at, mut step) = (0, 1);
    while at < disk.sectors() {
        let len = step.min(disk.sectors() - at);
        let mut bytes = vec![0xee; (len * 512) as usize];
        disk.read(at, &mut bytes).unwrap();
        assert!(bytes == expected[at as usize * 512..][..bytes.len()], "sectors {at}+{len}");
        at += len;
        step = step % 61 + 7;
    }
}

#[test]
fn after_a_crash_an_overlay_has_the_synced_data() {
    let dir = tempfile::tempdir().unwrap();
    let members = [file(dir.path(), "a", 4096)];
    let before = std::fs::read(&members[0].path).unwrap();
    let path = dir.path().join("overlay");
    let overlay = open_overlay(&path, &disks(&members), Access::ReadWrite).unwrap();
    overlay[0].write(16, &[1; 4096]).unwrap();
    overlay[0].sync().unwrap();
    let synced = dir.path().join("synced");
    std::fs::copy(&path, &synced).unwrap();
    // More blocks than one group has, none of them synced: as the process leaves it when killed.
    for block in 0..300 {
        overlay[0].write(1024 + block * 8, &[2; 4096]).unwrap();
    }
    let crashed = dir.path().join("crashed");
    std::fs::copy(&path, &crashed).unwrap();
    drop(overlay);
    let mut expected = before.clone();
    expected[16 * 512..24 * 512].fill(1);
    for copy in [&synced, &crashed] {
        let overlay = open_overlay(copy, &disks(&members), Access::ReadWrite).unwrap();
        assert_eq!(overlay[0].blocks(), 1);
        check(&overlay[0], &expected);
        // What comes next must not bring back what was lost.
        overlay[0].write(2000, &[5; 512]).unwrap();
        overlay[0].sync().unwrap();
        let mut expected = expected.clone();
        expected[2000 * 512..2001 * 512].fill(5);
        drop(overlay);
        let overlay = open_overlay(copy, &disks(&members), Access::ReadOnly).unwrap();
        check(&overlay[0], &expected);
    }
    // Dropped in peace, nothing is lost.
    expected[1024 * 512..(1024 + 2400) * 512].fill(2);
    let overlay = open_overlay(&path, &disks(&members), Access::ReadOnly).unwrap();
    assert_eq!(overlay[0].blocks(), 301);
    check(&overlay[0], &expected);
    // A damaged entry is one block less, not a wrong one.
    let damaged = std::fs::OpenOptions::new().write(true).open(&crashed).unwrap();
    damaged.write_all_at(&[0xff], 65536 + 16 + 3).unwrap();
    let overlay = open_overlay(&crashed, &disks(&members), Access::ReadOnly).unwrap();
    let mut bytes = vec![0; 4096];
    overlay[0].read(16, &mut bytes).unwrap();
    assert_eq!(bytes, before[16 * 512..24 * 512]);
}

#[test]
fn an_overlay_refuses_members_that_have_changed() {
    let dir = tempfile::tempdir().unwrap();
    let members = [file(dir.path(), "a", 4096), file(dir.path(), "b", 1024)];
    let path = dir.path().join("overlay");
    let overlay = open_overlay(&path, &disks(&members), Access::ReadWrite).unwrap();
    let again = open_overlay(&path, &disks(&members), Access::ReadWrite).err().unwrap();
    assert!(matches!(again.problem, OverlayProblem::Locked), "{again}");
    drop(overlay);
    let other = [file(dir.path(), "c", 512)];
    let error = open_overlay(&path, &disks(&other), Access::ReadWrite).err().unwrap();
    assert!(error.to_string().ends_with("c is not one that the overlay was made over"), "{error}");
    let changed = std::fs::OpenOptions::new().write(true).open(&members[0].path).unwrap();
    changed.write_all_at(&[1], 4096).unwrap();
    let error = open_overlay(&path, &disks(&members), Access::ReadOnly).err().unwrap();
    assert!(error.to_string().contains("a has been written to since"), "{error}");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = open_overlay(&path, &disks(&members), Access::ReadOnly).err().unwrap();
    assert!(error.to_string().contains("header is damaged"), "{error}");
    let error = open_overlay(&other[0].path, &disks(&members), Access::ReadOnly).err().unwrap();
    assert!(error.to_string().contains("it is not an overlay"), "{error}");
}

#[test]
fn existing_contents_of_a_device_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let seen = |name: &str| {
        let device = open(&Location::whole(dir.path().join(name)), Access::ReadOnly).unwrap();
        signatures(&device).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let with = |name: &str, at: u64, bytes: &[u8]| {
        let path = dir.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    with("zero", 0, &[0]);
    assert_eq!(seen("zero"), [""; 0]);
    for (name, at, magic, what) in [
        ("xfs", 0, &b"XFSB"[..], "XFS"),
        ("btrfs", 65600, b"_BHRfS_M", "Btrfs"),
        ("swap", 4086, b"SWAPSPACE2", "swap"),
        ("lvm", 536, b"LVM2 001", "LVM physical volume"),
        ("luks1", 0, b"LUKS\xba\xbe\0\x01", "LUKS volume"),
        ("luks2", 0, b"LUKS\xba\xbe\0\x02", "LUKS 2 volume"),
        ("gpt", 512, b"EFI PART", "GPT partition table"),
        ("gpt-end", (1 << 20) - 512, b"EFI PART", "backup of a GPT partition table"),
        ("ntfs", 3, b"NTFS    ", "NTFS"),
        ("ddf", (1 << 20) - 512, b"\xde\x11\xde\x11", "BIOS RAID (DDF)"),
        ("zfs", (128 << 10) + 4096, b"\x0c\xb1\xba\0\0\0\0\0", "ZFS pool member"),
        ("ext2", 1080, b"\x53\xef", "ext2"),
    ] {
        with(name, at, magic);
        assert_eq!(seen(name), [what], "{name}");
    }
    // One Linux partition of 1 MiB at sector 2048.
    let mut record = [0; 512];
    record[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    with("mbr", 0, &record);
    assert_eq!(seen("mbr"), ["MBR partition table '1 partition(s)'"]);
    record[446..462].fill(0);
    with("boot", 0, &record);
    assert_eq!(seen("boot"), [""; 0], "a boot record without partitions");
    for (tool, arguments, what) in [
        ("mkfs.ext4", &["-q", "-F", "-L", "home"][..], "ext4 'home'"),
        ("mkfs.ext3", &["-q", "-F", "-L", "home"], "ext3 'home'"),
        ("mkfs.vfat", &["-n", "BOOT"], "FAT 'BOOT'"),
        ("mkswap", &["-q", "-L", "sleep"], "swap 'sleep'"),
    ] {
        with(tool, 0, &[0]);
        let path = dir.path().join(tool);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(16 << 20).unwrap();
        // runs: mkfs.ext4, mkfs.ext3, mkfs.vfat, mkswap
        match std::process::Command::new(tool).args(arguments).arg(&path).output() {
            Ok(output) => {
                assert!(output.status.success(), "{tool}: {output:?}");
                assert_eq!(seen(tool), [what], "{tool}");
            }
            Err(_) => println!("{tool} skipped: it is not installed"),
        }
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_the_overlay_sound() {
    let dir = tempfile::tempdir().unwrap();
    let members = [file(dir.path(), "a", 4096)];
    let path = dir.path().join("overlay");
    let overlay = open_overlay(&path, &disks(&members), Access::ReadWrite).unwrap();
    overlay[0].write(0, &[1; 4096]).unwrap();
    overlay[0].sync().unwrap();
    drop(overlay);
    // No file of the child may grow beyond 64 KiB + 16 KiB (160 sectors): a full disk. The signal
    // that comes with it is ignored from before the child begins.
    let child = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 160; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_fills_the_disk", "--nocapture"])
        .env("RAIDLAB_TEST_OVERLAY", &path)
        .env("RAIDLAB_TEST_MEMBER", &members[0].path)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let overlay = open_overlay(&path, &disks(&members), Access::ReadOnly).unwrap();
    assert_eq!(overlay[0].blocks(), 3, "two more had room");
    let mut bytes = vec![0; 512];
    overlay[0].read(1600, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 512]);
}

#[test]
fn child_that_fills_the_disk() {
    let Some(path) = std::env::var_os("RAIDLAB_TEST_OVERLAY") else { return };
    let member = Location::whole(std::env::var_os("RAIDLAB_TEST_MEMBER").unwrap());
    let overlay = open_overlay(Path::new(&path), &disks(&[member]), Access::ReadWrite).unwrap();
    let mut failed = None;
    for block in 200.. {
        if let Err(error) = overlay[0].write(block * 8, &[9; 4096]) {
            failed = Some((block, error));
            break;
        }
    }
    let (block, error) = failed.unwrap();
    assert_eq!((block, error.kind()), (202, ErrorKind::FileTooLarge), "{error}");
    overlay[0].sync().unwrap();
}

#[test]
fn what_is_written_to_can_be_looked_at_without_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let image = file(dir.path(), "disk", 16);
    let looked = Device::look(&image, None).unwrap();
    assert_eq!(looked.in_use(), None);
    drop(looked);
    let writer = open(&image, Access::ReadWrite).unwrap();
    let looked = Device::look(&image, None).unwrap();
    assert!(looked.in_use().is_some() && looked.is_read_only());
    // A part of it, too; and the writer loses nothing by it.
    let inside = looked.open_part(&part(&image, 4096, None)).unwrap();
    assert!(inside.in_use().is_some());
    drop((looked, inside));
    open(&image, Access::ReadOnly).unwrap_err();
    drop(writer);
    open(&image, Access::ReadWrite).unwrap();
}
