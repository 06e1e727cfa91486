//! The write-intent bitmap.

use super::golden;
use super::memory::spec;
use raidlab_md::ondisk::bitmap::{
    Bitmap, BitmapHeader, BitmapKind, BitmapPlacement, BitmapProblem, BitmapShape, LocklessStates,
    PAGE_BYTES, PlacementError, Resync, StartState, WhyEverything, room_sectors, sync_sectors,
    touched_by_write, uuid_on_disk,
};
use raidlab_md::ondisk::{Uuid, Version};
use raidlab_md::{Geometry, GeometrySpec, Layout, Level, Sector};
use std::ops::Range;
use testkit::{Rng, for_seeds};

/// The start of a bitmap that the kernel wrote (raid5-3d-bitmap-dirty).
const LITERAL: [u8; 60] = [
    0x62, 0x69, 0x74, 0x6d, 0x04, 0x00, 0x00, 0x00, 0x51, 0x0d, 0xb9, 0x17, 0xe9, 0xed, 0xed, 0xa4,
    0xe1, 0x52, 0x2d, 0xae, 0x86, 0xa9, 0xf9, 0x90, 0x13, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x12, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x38, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x05, 0x00, 0x00, 0x00,
];

fn uuid() -> Uuid {
    "510db917:e9ededa4:e1522dae:86a9f990".parse().unwrap()
}

/// What the literal says.
fn header() -> BitmapHeader {
    BitmapHeader { events_cleared: 18, ..BitmapHeader::new(uuid(), 19, 14336, 65536) }
}

fn mirror(members: usize, sectors: u64) -> Geometry {
    Geometry::new(&GeometrySpec {
        level: Level::Raid1,
        layout: Layout::None,
        chunk_sectors: 0,
        member_sectors: vec![sectors; members],
    })
    .unwrap()
}

#[test]
fn the_header_is_these_bytes_both_ways() {
    let mut bytes = [0; 256];
    bytes[..LITERAL.len()].copy_from_slice(&LITERAL);
    assert_eq!(BitmapHeader::decode(&bytes), Ok(header()));
    assert_eq!(header().encode(), bytes);
    assert_eq!(header().check(uuid()), Ok(()));
}

#[test]
fn what_the_kernel_wrote_is_read_and_written_the_same() {
    let raid5 = spec(Level::Raid5, 2, 3, 128, 112);
    let raid10 = spec(Level::Raid10, 0x102, 4, 128, 112);
    let raid1 = mirror(2, 16256);
    // 4 KiB blocks of the array that were written before the power cut, and the bits of them.
    let cases = [
        ("raid5-3d-bitmap-dirty", &raid5, vec![67, 1207, 2827], vec![2, 37, 88]),
        ("raid10-4d-n2-bitmap-dirty", &raid10, vec![67, 1207, 2827], vec![4, 75, 176]),
        ("raid1-2d-v10-bitmap-dirty", &raid1, vec![67, 1207, 1507], vec![4, 75, 94]),
        ("raid5-3d-bitmap-clean", &raid5, vec![], vec![]),
    ];
    for (name, geometry, blocks, bits) in cases {
        let page = golden::piece(name);
        let sync = sync_sectors(geometry).unwrap();
        let mut bitmap = Bitmap::decode(&page, sync).unwrap();
        assert_eq!(bitmap.header.check(bitmap.header.uuid), Ok(()), "{name}");
        assert_eq!(bitmap.header.sync_size, sync, "{name}");
        assert_eq!(bitmap.shape().pages(), 1, "{name}");
        assert!(bitmap.encode_page(0) == page[..], "{name}: bytes");
        let set: Vec<u64> = (0..bitmap.shape().bits()).filter(|&bit| bitmap.get(bit)).collect();
        assert_eq!(set, bits, "{name}");
        for block in blocks {
            let touched = touched_by_write(geometry, Sector(block * 8), 8).unwrap();
            for bit in bitmap.shape().bits_of(touched) {
                assert!(bitmap.clear(bit), "{name}: block {block}");
            }
        }
        assert_eq!(bitmap.count(), 0, "{name}");
    }
}

#[test]
fn the_corpus_has_its_bitmaps_where_the_superblocks_say() {
    for name in ["raid5-3d-bitmap-dirty", "raid10-4d-n2-bitmap-dirty", "raid1-2d-v10-bitmap-dirty"]
    {
        let Some(case) = golden::case(name) else { return };
        for member in &case.members {
            let metadata = &member.metadata;
            let area = metadata.bitmap.expect("a bitmap");
            let sync = sync_sectors(&case.geometry).unwrap();
            let bitmap = Bitmap::decode(member.sectors(area.sector, 8), sync).unwrap();
            let uuid = uuid_on_disk(metadata.set_uuid, metadata.version);
            assert_eq!(bitmap.header.check(uuid), Ok(()), "{name}");
            // Dirty, complete, not stale: the three bits and nothing else.
            let state = StartState {
                events: metadata.events,
                resync_offset: metadata.resync_offset,
                complete: true,
            };
            assert_eq!(state.resync_offset, Some(0), "{name}");
            let Resync::Ranges(ranges) = bitmap.resync(state) else { panic!("{name}: all") };
            assert_eq!(ranges.len(), 3, "{name}");
            assert_eq!(ranges.iter().map(|range| range.end - range.start).sum::<u64>(), 384);
        }
    }
}

#[test]
fn states_of_a_lockless_bitmap_are_counted() {
    let mut header = header();
    (header.version, header.chunk_bytes, header.sync_size) = (6, 65536, 128 * 9 + 1);
    let mut file = header.encode().to_vec();
    file.resize(1024, 0xee);
    file.extend([0, 1, 1, 2, 3, 3, 3, 4, 0, 7, 0xee]);
    assert_eq!(LocklessStates::file_bytes(&header), Ok(1024 + 10));
    let counted = LocklessStates::count(&file).unwrap();
    let (unwritten, clean, dirty, need_sync, syncing, other) = (2, 2, 1, 3, 1, 1);
    assert_eq!(counted, LocklessStates { unwritten, clean, dirty, need_sync, syncing, other });
    assert_eq!(counted.chunks(), 10);
    assert!(LocklessStates::count(&file[..1033]).is_err(), "one is missing");
    file[4] = 4;
    assert!(LocklessStates::count(&file).is_err(), "another version");
}

#[test]
fn versions_and_what_md_refuses() {
    let with = |change: &dyn Fn(&mut BitmapHeader)| {
        let mut header = header();
        change(&mut header);
        let decoded = BitmapHeader::decode(&header.encode()).unwrap();
        assert_eq!(decoded, header);
        decoded
    };
    type Change = fn(&mut BitmapHeader);
    let other = Uuid([7; 16]);
    let refused: [(Change, BitmapProblem, &str); 8] = [
        (|h| h.version = 2, BitmapProblem::Version(2), "bitmap, field version at byte 4: 2"),
        (|h| h.version = 6, BitmapProblem::Version(6), "field version at byte 4: 6, lockless"),
        (|h| h.chunk_bytes = 0, BitmapProblem::ChunkTooSmall(0), "field chunksize at byte 52"),
        (|h| h.chunk_bytes = 256, BitmapProblem::ChunkTooSmall(256), "256 bytes, less than 512"),
        (|h| h.chunk_bytes = 65537, BitmapProblem::ChunkNotPowerOfTwo(65537), "power of two"),
        (|h| h.daemon_sleep_s = 0, BitmapProblem::DaemonSleep, "daemon_sleep at byte 56"),
        (|h| h.write_behind = 16384, BitmapProblem::WriteBehind(16384), "16384, more than 16383"),
        (
            |h| h.uuid = Uuid([7; 16]),
            BitmapProblem::Uuid { found: other, expected: uuid() },
            "field uuid at byte 8: 07070707:",
        ),
    ];
    for (change, problem, text) in refused {
        assert_eq!(with(&change).check(uuid()), Err(problem));
        assert!(problem.to_string().contains(text), "{problem}");
    }
    let accepted: [(Change, BitmapKind); 4] = [
        (|h| h.version = 3, BitmapKind::HostEndian),
        (|h| h.version = 5, BitmapKind::Plain),
        (|h| (h.version, h.nodes) = (5, 4), BitmapKind::Clustered),
        (|h| (h.write_behind, h.chunk_bytes) = (16383, 512), BitmapKind::Plain),
    ];
    for (change, kind) in accepted {
        let header = with(&change);
        assert_eq!((header.check(uuid()), header.kind()), (Ok(()), Some(kind)));
        let readable = Bitmap::new(header, 14336, false).is_ok();
        assert_eq!(readable, kind != BitmapKind::Clustered);
    }
    assert_eq!(with(&|h| h.version = 6).kind(), Some(BitmapKind::Lockless));
    let zeroed = BitmapHeader::decode(&[0; 256]).unwrap_err();
    assert_eq!((zeroed.field, zeroed.offset), ("magic", 0));
    assert!(BitmapHeader::decode(&header().encode()[..255]).is_err());
    let file = Bitmap::new(header(), 14336, true).unwrap().encode_page(0);
    let short = Bitmap::decode(&file[..256 + 13], 14336).unwrap_err();
    assert_eq!((short.field, short.offset), ("bits", 256));
    assert!(Bitmap::decode(&file[..256 + 14], 14336).is_ok());
    // A header with an absurd size is refused, not allocated.
    assert!(Bitmap::decode(&file, 1 << 54).is_err());
}

#[test]
fn the_uuid_of_0_90_is_stored_in_words() {
    let shown: Uuid = "00112233:44556677:8899aabb:ccddeeff".parse().unwrap();
    let stored: Uuid = "33221100:77665544:bbaa9988:ffeeddcc".parse().unwrap();
    assert_eq!(uuid_on_disk(shown, Version::V0_90), stored);
    assert_eq!(uuid_on_disk(shown, Version::V1_0), shown);
}

fn only(range: Range<u64>) -> Resync {
    Resync::Ranges(std::iter::once(range).collect())
}

#[test]
fn what_is_resynced_at_start() {
    // 64 KiB bits: 128 sectors each; set are 2, 37, 38 of 112.
    let mut bitmap = Bitmap::new(header(), 14336, false).unwrap();
    for bit in [2, 37, 38] {
        assert!(bitmap.set(bit));
        assert!(!bitmap.set(bit));
    }
    let start = |events, resync_offset, complete| StartState { events, resync_offset, complete };
    let all = Resync::Ranges(vec![256..384, 4736..4992]);
    let none = Resync::Ranges(Vec::new());
    let table = [
        // After a crash, all set bits; the resync may have got somewhere.
        (start(19, Some(0), true), all.clone()),
        (start(19, Some(384), true), all.clone()),
        (start(19, Some(385), true), only(4736..4992)),
        (start(19, Some(4864), true), only(4736..4992)),
        (start(19, Some(4865), true), only(4864..4992)),
        (start(19, Some(14336), true), none.clone()),
        // Clean and complete: nothing.
        (start(19, None, true), none.clone()),
        // Degraded: bits wait for the missing member, unless nothing happened since clearing.
        (start(19, None, false), all.clone()),
        (start(19, Some(14336), false), all.clone()),
        (start(18, None, false), none),
        (start(18, Some(385), false), only(4736..4992)),
        // The superblocks went on alone.
        (start(20, None, true), Resync::Everything(WhyEverything::Stale)),
        (start(20, Some(0), false), Resync::Everything(WhyEverything::Stale)),
    ];
    for (state, expected) in table {
        assert_eq!(bitmap.resync(state), expected, "{state:?}");
    }
    let dirty = start(19, Some(0), true);
    bitmap.header.state = 2;
    assert_eq!(bitmap.resync(dirty), Resync::Everything(WhyEverything::Stale));
    bitmap.header = BitmapHeader { version: 3, ..header() };
    assert_eq!(bitmap.resync(dirty), Resync::Everything(WhyEverything::UnknownBitOrder));
    assert_eq!(bitmap.resync(start(19, None, true)), Resync::Ranges(Vec::new()));
    assert!(bitmap.header.covers_since(18) && !bitmap.header.covers_since(17));
}

#[test]
fn which_sectors_a_write_touches() {
    let raid5 = spec(Level::Raid5, 2, 4, 128, 8);
    let raid6 = spec(Level::Raid6, 2, 4, 128, 8);
    let raid10 = spec(Level::Raid10, 0x102, 3, 128, 8);
    let raid1 = mirror(2, 1000);
    let raid0 = spec(Level::Raid0, 1, 2, 128, 8);
    let table = [
        // A row of raid5 on four members is 384 sectors of the array.
        (&raid5, 0, 1, Some(0..128)),
        (&raid5, 383, 1, Some(0..128)),
        (&raid5, 383, 2, Some(0..256)),
        (&raid5, 384, 768, Some(128..384)),
        (&raid5, 3071, 1, Some(896..1024)),
        (&raid6, 255, 2, Some(0..256)),
        (&raid10, 300, 200, Some(300..500)),
        (&raid1, 999, 1, Some(999..1000)),
        (&raid0, 0, 1, None),
    ];
    for (geometry, at, sectors, expected) in table {
        let touched = touched_by_write(geometry, Sector(at), sectors);
        assert_eq!(touched, expected, "{} {at} {sectors}", geometry.level());
    }
    let covered =
        [(&raid5, Some(1024)), (&raid10, Some(1536)), (&raid1, Some(1000)), (&raid0, None)];
    for (geometry, sectors) in covered {
        assert_eq!(sync_sectors(geometry), sectors, "{}", geometry.level());
    }
}

#[test]
fn bits_pages_and_sectors_agree_with_counting() {
    for_seeds!("bits_pages_and_sectors_agree_with_counting", 40, |seed| {
        let rng = &mut Rng::new(seed);
        let chunk_bytes = 512 << rng.below(4);
        let chunk = u64::from(chunk_bytes) / 512;
        let sync = rng.below(80_000) + 1;
        let header = BitmapHeader::new(uuid(), rng.draw(), sync, chunk_bytes);
        let mut bitmap = Bitmap::new(header, sync, false).unwrap();
        let shape = bitmap.shape();
        let mut model = vec![false; sync.div_ceil(chunk) as usize];
        assert_eq!(shape.bits(), model.len() as u64);
        for _ in 0..rng.below(40) {
            let start = rng.below(sync);
            let range = start..(start + rng.below(3000)).min(sync + 10);
            let value = !rng.one_in(3);
            let bits = shape.bits_of(range.clone());
            for bit in 0..model.len() as u64 {
                let sectors = shape.sectors_of(bit..bit + 1);
                let overlaps = sectors.start < range.end && range.start < sectors.end;
                assert_eq!(overlaps && !range.is_empty(), bits.contains(&bit), "{range:?} {bit}");
            }
            for bit in bits {
                let changed = if value { bitmap.set(bit) } else { bitmap.clear(bit) };
                assert_eq!(changed, model[bit as usize] != value);
                model[bit as usize] = value;
            }
        }
        let set = |bit: &u64| model[*bit as usize];
        let bits = || 0..model.len() as u64;
        assert!(bitmap.runs().flatten().eq(bits().filter(set)));
        assert!(bitmap.runs().all(|run| run.end == shape.bits() || !set(&run.end)));
        assert_eq!(bitmap.count(), bits().filter(set).count() as u64);
        // Pages make the file, and the file the bitmap.
        let file: Vec<u8> = (0..shape.pages()).flat_map(|page| bitmap.encode_page(page)).collect();
        for bit in bits() {
            let byte = 256 + bit as usize / 8;
            assert_eq!(file[byte] >> (bit % 8) & 1 == 1, model[bit as usize]);
            assert_eq!(shape.page_of(bit) as usize, byte / PAGE_BYTES);
            assert!(shape.bits_in(shape.page_of(bit)).contains(&bit));
        }
        let in_pages: u64 =
            (0..shape.pages()).map(|page| shape.bits_in(page)).map(|b| b.end - b.start).sum();
        assert_eq!(in_pages, shape.bits());
        assert_eq!(shape.pages_of(bits()), 0..shape.pages());
        let needed = shape.file_bytes() as usize;
        assert_eq!(Bitmap::decode(&file, sync).as_ref(), Ok(&bitmap));
        assert_eq!(Bitmap::decode(&file[..needed], sync).as_ref(), Ok(&bitmap));
        let last = shape.pages() - 1;
        let written: usize = (0..=last).map(|page| shape.write_bytes(page, 512)).sum();
        assert!(written >= needed && written < needed + 512 && written.is_multiple_of(512));
        assert_eq!(shape.write_bytes(last, 4096), 4096);
    });
}

#[test]
fn a_range_that_one_member_lost_comes_back_from_another() {
    let mut one = Bitmap::new(header(), 14336, false).unwrap();
    let mut other = one.clone();
    one.set(3);
    other.set(3);
    other.set(111);
    one.unite(&other);
    assert_eq!(one, other);
}

#[test]
fn the_largest_shapes_do_not_overflow() {
    let shape = BitmapShape::new(1 << 54, 512).unwrap();
    assert_eq!(shape.bits(), 1 << 54);
    assert_eq!(shape.sectors_of(0..u64::MAX), 0..1 << 54);
    assert_eq!(shape.bits_of(5..u64::MAX), 5..1 << 54);
    assert_eq!(shape.bits_of(u64::MAX..u64::MAX), 0..0);
    let coarse = BitmapShape::new(u64::MAX, 1 << 31).unwrap();
    assert_eq!(coarse.sectors_of(coarse.bits() - 1..coarse.bits()).end, u64::MAX);
}

#[test]
fn where_a_new_bitmap_goes() {
    const GIB: u64 = 1 << 21;
    for (sectors, room) in [
        (0, 0),
        (127, 0),
        (128, 8),
        (8 * GIB + 8, 8),
        (8 * GIB + 9, 128),
        (200 * GIB + 127, 128),
        (200 * GIB + 128, 256),
        (1 << 54, 256),
    ] {
        assert_eq!(room_sectors(sectors), room, "{sectors}");
    }
    let place = |version, used, chunk| BitmapPlacement::new(version, used, used, chunk);
    // As the arrays of the corpus were made.
    let made = place(Version::V1_2, 14336, Some(65536)).unwrap();
    assert_eq!(made, BitmapPlacement { offset: 8, room_sectors: 8, chunk_bytes: 65536 });
    let made = place(Version::V1_0, 16256, Some(65536)).unwrap();
    assert_eq!(made, BitmapPlacement { offset: -16, room_sectors: 8, chunk_bytes: 65536 });
    // 64 MiB unless that does not fit: 20 TiB are 327680 bits of 64 MiB in 128 KiB.
    let chunk = |version, used| place(version, used, None).unwrap().chunk_bytes;
    assert_eq!(chunk(Version::V1_2, 20 << 31), 64 << 20);
    assert_eq!(chunk(Version::V1_2, 100 << 31), 128 << 20);
    assert_eq!(chunk(Version::V0_90, 14336), 64 << 20);
    // 30720 bits fit into 4 KiB, so 120 MiB of 4 KiB each.
    assert_eq!(place(Version::V1_1, 30720 * 8, Some(4096)).unwrap().chunk_bytes, 4096);
    for (used, requested, least) in [
        (30720 * 8 + 1, 4096, 8192),
        (14336, 2048, 4096),
        (14336, 65537, 4096),
        (14336, 1 << 32, 4096),
    ] {
        let error = place(Version::V1_2, used, Some(requested)).unwrap_err();
        assert_eq!(error, PlacementError::Chunk { requested, least });
    }
    let error = place(Version::V1_2, 100, None).unwrap_err();
    assert_eq!(error, PlacementError::NoRoom { used_sectors: 100 });
    assert!(place(Version::V0_90, 1 << 54, None).is_err());
    // Whatever is made fits its room, and 1.0's ends before the bad-block log.
    for_seeds!("where_a_new_bitmap_goes", 200, |seed| {
        let rng = &mut Rng::new(seed);
        let used = rng.draw() >> rng.below(40) >> 12 | 128;
        let version = rng.pick(&Version::ALL);
        let Ok(made) = place(version, used, None) else { return };
        let shape = BitmapShape::new(used, made.chunk_bytes).unwrap();
        assert!(shape.file_bytes() <= made.room_sectors * 512, "{used} {version} {made:?}");
        if version == Version::V1_0 {
            assert!(shape.file_bytes() as i64 <= (-8 - made.offset) * 512);
        }
    });
}
