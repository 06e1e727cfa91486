//! What arrays say of holes: never a hole where something else than zeroes could be read.

use ::host::{Access, Device, DeviceOptions, Disk, Location};
use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_array::{
    ArrayExtent, DriverOptions, FileMember, HostOp, MemMember, Member, MemberSpec, Pace,
};
use testkit::Rng;

use crate::common::{SECTOR, Shards, host, options, spec};

const SECTORS: u64 = 1024;
const CHUNK: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Mem,
    /// Sparse files, through the page cache and past it.
    Sparse {
        direct: bool,
    },
}

/// Empty members; `None` where files have no holes.
fn members(kind: Kind, count: usize, directory: &tempfile::TempDir) -> Option<Vec<MemberSpec>> {
    let member = |number: usize| -> Option<Box<dyn Member>> {
        let Kind::Sparse { direct } = kind else {
            return Some(Box::new(MemMember::new(SECTORS).expect("memory")));
        };
        let path = directory.path().join(format!("m{number}"));
        let file = std::fs::File::create(&path).expect("a file");
        // The array is behind something else.
        file.set_len((SECTORS + 8) * 512).expect("its length");
        let options = DeviceOptions { access: Access::ReadWrite, direct };
        let device = Device::open(&Location::whole(path), options).expect("it opens");
        let has_holes = device.hole_end(0) == SECTORS + 8;
        has_holes.then(|| Box::new(FileMember::of_device(&device, 8..SECTORS + 8)) as Box<_>)
    };
    (0..count).map(|number| Some(MemberSpec::Ready(member(number)?))).collect()
}

/// Holes of the whole array: they are zeroes in `contents`, and when they are read.
fn holes(driver: &mut Shards, contents: &[u8], context: &str) -> u64 {
    let sectors = driver.info().sectors;
    let (mut at, mut holes) = (0, 0);
    while at < sectors {
        let extents = driver.allocation(at..sectors);
        assert!(!extents.is_empty(), "{context}: nothing at {at}");
        for ArrayExtent { sectors, is_hole } in extents {
            assert!(sectors > 0, "{context}: an empty extent at {at}");
            if is_hole {
                holes += sectors;
                for from in (at..at + sectors).step_by(1024) {
                    let len = 1024.min(at + sectors - from);
                    let bytes = from as usize * SECTOR..(from + len) as usize * SECTOR;
                    let zeroes = vec![0; bytes.len()];
                    assert!(contents[bytes] == zeroes, "{context}: {from} was written");
                    assert!(host::read(driver, from, len) == zeroes, "{context}: {from}");
                }
            }
            at += sectors;
        }
        assert!(at <= sectors, "{context}: beyond the end");
    }
    holes
}

#[test]
fn a_hole_reads_as_zeroes_on_every_level_whole_degraded_and_being_rebuilt() {
    let far = Layout::Raid10(Raid10Layout::far(2));
    let shapes = [
        (Level::Linear, None, 2),
        (Level::Raid0, None, 3),
        (Level::Raid1, None, 2),
        (Level::Raid4, None, 3),
        (Level::Raid5, None, 4),
        (Level::Raid6, None, 5),
        (Level::Raid10, None, 4),
        (Level::Raid10, Some(far), 3),
    ];
    let kinds = [Kind::Mem, Kind::Sparse { direct: false }, Kind::Sparse { direct: true }];
    for (number, (level, layout, count)) in shapes.into_iter().enumerate() {
        for kind in kinds {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
            let Some(members) = members(kind, count, &directory) else {
                println!("{kind:?} skipped: files have no holes here");
                continue;
            };
            let chunk = if matches!(level, Level::Raid1 | Level::Linear) { 0 } else { CHUNK };
            let mut spec = spec(level, chunk, members);
            spec.layout = layout.unwrap_or(spec.layout);
            // Slow enough to be looked at in the middle.
            let pace = Pace { most_kib_per_s: Some(1000), ..Pace::default() };
            let options = DriverOptions { pace, ..options() };
            let mut driver = Shards::new(spec, &options).expect("a valid array");
            let sectors = driver.info().sectors;
            let context = format!("{level} {layout:?} {kind:?}");
            let mut contents = vec![0; sectors as usize * SECTOR];
            assert_eq!(holes(&mut driver, &contents, &context), sectors, "{context}: nothing yet");

            let mut rng = Rng::new(number as u64);
            let mut change = |driver: &mut Shards, contents: &mut [u8]| {
                let at = rng.below(sectors / 8 - 4) * 8;
                let len = 8 * (1 + rng.below(4));
                let bytes = at as usize * SECTOR..(at + len) as usize * SECTOR;
                match rng.below(4) {
                    0 => {
                        let zeroed = host::call(driver, HostOp::WriteZeroes, at, len, None).0;
                        assert_eq!(zeroed, Ok(()));
                        contents[bytes].fill(0);
                    }
                    1 if driver.info().discard_zeroes => {
                        assert_eq!(host::call(driver, HostOp::Discard, at, len, None).0, Ok(()));
                        contents[bytes].fill(0);
                    }
                    _ => {
                        contents[bytes.clone()].fill(1 + rng.below(255) as u8);
                        host::write(driver, at, &contents[bytes]);
                    }
                }
            };
            for _ in 0..8 {
                change(&mut driver, &mut contents);
                holes(&mut driver, &contents, &context);
            }
            let few = holes(&mut driver, &contents, &context);
            assert!(few < sectors && (few > 0 || kind == Kind::Mem), "{context}: {few}");
            if driver.geometry().tolerates() == 0 {
                continue;
            }
            driver.fail_member(MemberIdx(1));
            for _ in 0..4 {
                holes(&mut driver, &contents, &context);
                change(&mut driver, &mut contents);
            }
            // What comes is full of something else, until it is rebuilt.
            let mut used = MemMember::new(SECTORS).expect("memory");
            let new = used.share().expect("memory has many handles");
            fill(&mut used);
            driver.add_member(MemberIdx(1), new).expect("the slot is empty");
            for _ in 0..4 {
                holes(&mut driver, &contents, &context);
                change(&mut driver, &mut contents);
            }
        }
    }
}

/// Fills a member, through an array of it alone.
fn fill(member: &mut MemMember) {
    let same = member.share().expect("memory has many handles");
    let mut driver = Shards::new(spec(Level::Linear, 0, vec![MemberSpec::Ready(same)]), &options())
        .expect("a valid array");
    host::write(&mut driver, 0, &[0x5a; SECTORS as usize * SECTOR]);
}

#[test]
fn memory_that_was_never_written_is_a_hole_to_the_granule() {
    let mut driver = Shards::new(
        spec(Level::Linear, 0, vec![MemberSpec::ready(MemMember::new(4096).unwrap())]),
        &options(),
    )
    .expect("a valid array");
    host::write(&mut driver, 1000, &[1; 8 * SECTOR]);
    let extent = |sectors, is_hole| ArrayExtent { sectors, is_hole };
    // 896 = 7 * 128.
    let expected = [extent(896, true), extent(128, false), extent(3072, true)];
    assert_eq!(driver.allocation(0..4096), expected);
    assert_eq!(driver.allocation(1000..1001), [extent(1, false)]);
    assert_eq!(driver.allocation(890..900), [extent(6, true), extent(4, false)]);
    let (result, _) = host::call(&mut driver, HostOp::WriteZeroes, 2048, 100, None);
    assert_eq!(result, Ok(()));
    assert_eq!(driver.allocation(0..4096), expected, "zeroes are no data");
}

testkit::repeat_in_shards! {
    a_hole_reads_as_zeroes_on_every_level_whole_degraded_and_being_rebuilt,
    memory_that_was_never_written_is_a_hole_to_the_granule,
}
