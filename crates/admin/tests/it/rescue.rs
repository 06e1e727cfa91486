//! Rescue: arrays filled through the engine are read back from their remaining members.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::{
    ArraySpec, DataPlaneConfig, Driver, DriverOptions, FileMember, FileOptions, HostOp, MemberSpec,
};
use host::{Access, Device, DeviceOptions, Disk, Location, MemberName, RescueMap, Unread};
use md::{Geometry, GeometrySpec, Layout, Level, Raid5Layout, Raid6Layout, Sector};
use raidlab_admin::rescue::{
    OutOfDateSource, Part, Piece, ReadableArray, Source, StreamError, StreamOptions, gaps, stream,
};

const MEMBER_SECTORS: u64 = 1024 + 40;
const CHUNK: u64 = 32;

struct Filled {
    dir: tempfile::TempDir,
    spec: GeometrySpec,
    contents: Vec<u8>,
}

/// An array in files, with contents that never repeat; the engine wrote it.
fn filled(level: Level, layout: Layout, members: usize) -> Filled {
    let dir = tempfile::tempdir().unwrap();
    let path = |slot: usize| dir.path().join(format!("m{slot}"));
    let specs = (0..members).map(|slot| {
        let options = FileOptions { sectors: MEMBER_SECTORS, direct: false };
        MemberSpec::ready(FileMember::open(&path(slot), options).unwrap())
    });
    let spec = ArraySpec {
        level,
        layout,
        chunk_sectors: CHUNK,
        members: specs.collect(),
        data_plane: DataPlaneConfig { stripe_cache_bytes: 8 << 20, ..DataPlaneConfig::default() },
    };
    let mut driver = Driver::new(spec, &DriverOptions::default()).unwrap();
    let sectors = driver.geometry().array_sectors();
    let contents = testkit::Rng::new(1).bytes(sectors as usize * 512);
    let mut at = 0;
    for part in contents.chunks(1 << 20) {
        let mut lease = driver.leases().take(part.len()).unwrap();
        lease.bytes_mut().copy_from_slice(part);
        let sectors = part.len() as u64 / 512;
        driver.submit(HostOp::Write { fua: false }, Sector(at), sectors, Some(lease), 0).unwrap();
        let mut out = Vec::new();
        while out.is_empty() {
            driver.wait(std::time::Duration::from_secs(1), None);
            driver.poll(&mut out);
        }
        out[0].result.unwrap();
        at += sectors;
    }
    let member_sectors = vec![MEMBER_SECTORS; members];
    let spec = GeometrySpec { level, layout, chunk_sectors: CHUNK, member_sectors };
    Filled { dir, spec, contents }
}

fn open(path: &Path) -> Arc<dyn Disk> {
    let options = DeviceOptions { access: Access::ReadOnly, direct: false };
    Arc::new(Device::open(&Location::whole(path), options).unwrap())
}

impl Filled {
    fn path(&self, slot: usize) -> PathBuf {
        self.dir.path().join(format!("m{slot}"))
    }

    fn members(&self) -> usize {
        self.spec.member_sectors.len()
    }

    fn sources(&self) -> Vec<Vec<Source>> {
        (0..self.members()).map(|slot| vec![Source::whole(open(&self.path(slot)), 0)]).collect()
    }

    fn view(&self, slots: Vec<Vec<Source>>) -> ReadableArray {
        let geometry = Geometry::new(&self.spec).unwrap();
        let array = 0..geometry.array_sectors();
        ReadableArray::new(vec![Part { array, geometry, slots }], parity::Kernels::best())
    }

    /// Everything, through the stream, in pieces of an odd length.
    fn read_all(&self, view: &ReadableArray) -> (Vec<u8>, Vec<Range<u64>>) {
        let (mut bytes, mut lost) = (Vec::new(), Vec::new());
        let options = StreamOptions { pieces: 3, piece_bytes: 72 << 10 };
        let end = stream(view, 0..view.sectors(), options, |piece| {
            match piece {
                Piece::Data { at, bytes: part, lost: more } => {
                    assert_eq!(at * 512, bytes.len() as u64);
                    bytes.extend_from_slice(part);
                    lost.extend_from_slice(more);
                }
                Piece::Hole { at, sectors } => {
                    assert_eq!(at * 512, bytes.len() as u64);
                    bytes.resize(bytes.len() + sectors as usize * 512, 0);
                }
            }
            Ok::<(), ()>(())
        });
        end.unwrap();
        (bytes, lost)
    }
}

fn shapes() -> Vec<(Level, Layout, usize)> {
    let raid6 = Layout::Raid6;
    vec![
        (Level::Linear, Layout::default_for(Level::Linear), 3),
        (Level::Raid0, Layout::default_for(Level::Raid0), 3),
        (Level::Raid1, Layout::default_for(Level::Raid1), 3),
        (Level::Raid4, Layout::default_for(Level::Raid4), 4),
        (Level::Raid5, Layout::default_for(Level::Raid5), 4),
        (Level::Raid5, Layout::Raid5(Raid5Layout::RightAsymmetric), 3),
        (Level::Raid6, raid6(Raid6Layout::LeftSymmetric), 5),
        (Level::Raid6, raid6(Raid6Layout::LeftAsymmetric), 6),
        (Level::Raid6, raid6(Raid6Layout::DdfNContinue), 5),
        (Level::Raid10, Layout::default_for(Level::Raid10), 4),
        (Level::Raid10, Layout::from_number(Level::Raid10, 0x201).unwrap(), 3),
    ]
}

#[test]
fn every_bearable_loss_is_read_around() {
    for (level, layout, members) in shapes() {
        let array = filled(level, layout, members);
        let geometry = Geometry::new(&array.spec).unwrap();
        let mut bearable = 0;
        for mask in 0_u32..1 << members {
            let mut slots = array.sources();
            for slot in (0..members).filter(|slot| mask >> slot & 1 == 0) {
                slots[slot].clear();
            }
            let enough = geometry.enough(|member| mask >> member.0 & 1 == 1);
            let (bytes, lost) = array.read_all(&array.view(slots));
            if enough {
                bearable += 1;
                assert!(lost.is_empty(), "{level} {layout}: {mask:b} lost {lost:?}");
                assert!(bytes == array.contents, "{level} {layout}: {mask:b}");
            } else {
                assert_honest(&array, &bytes, &lost);
                assert!(!lost.is_empty(), "{level} {layout}: {mask:b} lacks nothing");
            }
        }
        assert!(bearable > 0);
    }
}

/// What is not called lost is right, and what is lost is zero.
fn assert_honest(array: &Filled, bytes: &[u8], lost: &[Range<u64>]) {
    assert_eq!(bytes.len(), array.contents.len());
    let mut expected = array.contents.clone();
    for range in lost {
        assert!(range.start < range.end);
        expected[range.start as usize * 512..range.end as usize * 512].fill(0);
    }
    assert!(bytes == expected, "what is not lost is right");
}

#[test]
fn bad_blocks_cost_nothing_while_they_are_apart() {
    let array = filled(Level::Raid5, Layout::default_for(Level::Raid5), 4);
    let mut slots = array.sources();
    // Each member has bad sectors of its own, at different offsets of the same rows.
    for (slot, sources) in slots.iter_mut().enumerate() {
        let bad = (0..1024 / CHUNK).map(|row| {
            let at = row * CHUNK + slot as u64 * 8;
            at + 1..at + 8
        });
        sources[0].bad = bad.collect();
    }
    let (bytes, lost) = array.read_all(&array.view(slots));
    assert_eq!(lost, []);
    assert!(bytes == array.contents);
}

#[test]
fn two_bad_blocks_of_a_row_lose_exactly_the_unreadable_sectors() {
    let array = filled(Level::Raid5, Layout::default_for(Level::Raid5), 4);
    let geometry = Geometry::new(&array.spec).unwrap();
    let md::Kind::Parity(rows) = geometry.kind() else { unreachable!() };
    let row = rows.row(md::StripeNo(5));
    let mut slots = array.sources();
    // Data 0 lacks sectors 3..9 of row 5, data 2 lacks 6..20: together they lack 6..9.
    let bad =
        |offsets: Range<u64>| std::iter::once(5 * CHUNK + offsets.start..5 * CHUNK + offsets.end);
    slots[row.data[0].index()][0].bad = bad(3..9).collect();
    slots[row.data[2].index()][0].bad = bad(6..20).collect();
    let (bytes, lost) = array.read_all(&array.view(slots));
    let sector = |index, offset| rows.array_sector(md::StripeNo(5), index, offset).0;
    assert_eq!(lost, [sector(0, 6)..sector(0, 9), sector(2, 6)..sector(2, 9)]);
    assert_honest(&array, &bytes, &lost);
}

#[test]
fn a_member_counts_only_as_far_as_it_is_in_sync() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        let array = filled(level, Layout::default_for(level), members);
        // Everything behind the checkpoint is rubbish.
        let stale = std::fs::OpenOptions::new().write(true).open(array.path(1)).unwrap();
        let in_sync = 100;
        let rubbish = vec![0x55; (MEMBER_SECTORS - in_sync) as usize * 512];
        std::os::unix::fs::FileExt::write_all_at(&stale, &rubbish, in_sync * 512).unwrap();
        let mut slots = array.sources();
        slots[1][0].in_sync = in_sync;
        let (bytes, lost) = array.read_all(&array.view(slots));
        assert_eq!(lost, [], "{level}");
        assert!(bytes == array.contents, "{level}");
        // What it has is needed when its partner is lost, and what it has not is lost then.
        let mut slots = array.sources();
        slots[1][0].in_sync = in_sync;
        slots[0].clear();
        let (bytes, lost) = array.read_all(&array.view(slots));
        assert_honest(&array, &bytes, &lost);
        assert!(lost.iter().all(|range| range.start >= in_sync), "{level}: {lost:?}");
        assert!(!lost.is_empty(), "{level}");
    }
}

#[test]
fn a_replacement_helps_where_the_original_fails() {
    let array = filled(Level::Raid0, Layout::default_for(Level::Raid0), 3);
    let copy = array.dir.path().join("replacement");
    std::fs::copy(array.path(2), &copy).unwrap();
    let mut slots = array.sources();
    slots[2][0].bad = [10..20, 700..900].into();
    slots[2].push(Source { in_sync: 800, ..Source::whole(open(&copy), 0) });
    let (bytes, lost) = array.read_all(&array.view(slots));
    assert_honest(&array, &bytes, &lost);
    let sectors: u64 = lost.iter().map(|range| range.end - range.start).sum();
    assert_eq!(sectors, 100, "sectors 800 to 900 of one member: {lost:?}");
}

#[test]
fn a_truncated_member_loses_only_the_missing_range() {
    let array = filled(Level::Raid0, Layout::default_for(Level::Raid0), 2);
    let file = std::fs::OpenOptions::new().write(true).open(array.path(0)).unwrap();
    file.set_len(100 * 512).unwrap();
    let view = array.view(array.sources());
    let (bytes, lost) = array.read_all(&view);
    assert_honest(&array, &bytes, &lost);
    let sectors: u64 = lost.iter().map(|range| range.end - range.start).sum();
    assert_eq!(sectors, 1024 + 32 - 100);
    let (failures, more) = view.failures();
    assert!(more == 0 && failures.iter().all(|failure| failure.name.ends_with("/m0")));
    assert!(failures[0].error.contains("do not exist"), "{failures:?}");
}

#[test]
fn holes_are_zeroes_also_where_a_member_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let sectors = 1 << 20;
    let path = |slot: usize| dir.path().join(format!("m{slot}"));
    for slot in 0..4 {
        let file = std::fs::File::create(path(slot)).unwrap();
        file.set_len(sectors * 512).unwrap();
    }
    // One written chunk: data 1 of row 77, and the P that belongs to it.
    let spec = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk_sectors: 128,
        member_sectors: vec![sectors; 4],
    };
    let geometry = Geometry::new(&spec).unwrap();
    let md::Kind::Parity(rows) = geometry.kind() else { unreachable!() };
    let row = rows.row(md::StripeNo(77));
    let chunk: Vec<u8> = (0..65536_u32).map(|byte| (byte % 251) as u8).collect();
    for slot in [row.data[1].index(), row.p.index()] {
        let file = std::fs::OpenOptions::new().write(true).open(path(slot)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &chunk, 77 * 65536).unwrap();
    }
    let written = rows.array_sector(md::StripeNo(77), 1, 0).0;
    for missing in [None, Some(row.data[1].index()), Some(row.data[0].index())] {
        let source = |slot| match missing == Some(slot) {
            true => vec![],
            false => vec![Source::whole(open(&path(slot)), 0)],
        };
        let slots = (0..4).map(source).collect();
        let part = Part { array: 0..geometry.array_sectors(), geometry: geometry.clone(), slots };
        let view = ReadableArray::new(vec![part], parity::Kernels::best());
        let (mut data, mut next) = (0, 0);
        stream(&view, 0..view.sectors(), StreamOptions::default(), |piece| {
            match piece {
                Piece::Hole { at, sectors } => {
                    assert_eq!(at, next);
                    assert!(written + 128 <= at || at + sectors <= written, "a hole over data");
                    next += sectors;
                }
                Piece::Data { at, bytes, lost } => {
                    assert_eq!((at, lost), (next, &[][..]));
                    for (sector, bytes) in (at..).zip(bytes.chunks(512)) {
                        let expected = match sector.checked_sub(written).filter(|at| *at < 128) {
                            Some(at) => &chunk[at as usize * 512..][..512],
                            None => &[0; 512],
                        };
                        assert!(bytes == expected, "sector {sector}, without {missing:?}");
                    }
                    data += bytes.len();
                    next += bytes.len() as u64 / 512;
                }
            }
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(next, view.sectors());
        assert!((65536..8 << 20).contains(&data), "{data} bytes were read of 1.5 GiB of holes");
    }
}

#[test]
fn a_consumer_can_stop() {
    let array = filled(Level::Raid1, Layout::default_for(Level::Raid1), 2);
    let view = array.view(array.sources());
    let mut seen = 0;
    let options = StreamOptions { pieces: 4, piece_bytes: 4096 };
    let result = stream(&view, 8..view.sectors(), options, |piece| {
        let Piece::Data { at, .. } = piece else { panic!("nothing is a hole") };
        assert_eq!(at, 8 + seen * 8);
        seen += 1;
        if seen == 5 { Err("enough") } else { Ok(()) }
    });
    assert!(matches!(result, Err(StreamError::Consumer("enough"))));
}

/// Changes what a member has at a sector.
fn spoil(array: &Filled, slot: usize, sector: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(array.path(slot)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x55; 512], sector * 512).unwrap();
}

#[test]
fn redundancy_that_does_not_agree_is_found_where_it_is() {
    for (level, layout, members) in shapes() {
        if matches!(level, Level::Linear | Level::Raid0) {
            continue;
        }
        let array = filled(level, layout, members);
        let sectors = array.contents.len() as u64 / 512;
        let differing = |slots: Vec<Vec<Source>>, below| {
            let view = array.view(slots).compared(below);
            assert!(view.has_redundancy(), "{level}");
            assert_eq!(array.read_all(&view).1, []);
            view.comparison()
        };
        let compared = differing(array.sources(), u64::MAX);
        assert_eq!(
            (compared.differing.as_slice(), compared.more),
            (&[][..], 0),
            "{level} {layout}"
        );
        assert!(compared.sectors >= sectors, "{level} {layout}: {compared:?}");
        for slot in 0..members {
            spoil(&array, slot, 200);
            let compared = differing(array.sources(), u64::MAX);
            let found: u64 = compared.differing.iter().map(|range| range.end - range.start).sum();
            assert!((1..=8 * members as u64).contains(&found), "{level} {layout}: {compared:?}");
            // Where redundancy was never made, nothing is compared.
            assert_eq!(differing(array.sources(), 4).differing, [], "{level} {layout}");
            let mut slots = array.sources();
            slots[(slot + 1) % members].clear();
            if level == Level::Raid6 || level == Level::Raid1 {
                let compared = differing(slots, u64::MAX);
                assert!(!compared.differing.is_empty(), "{level} {layout} degraded, {slot}");
            }
            // As it was.
            let good = filled(level, layout, members);
            std::fs::copy(good.path(slot), array.path(slot)).unwrap();
        }
    }
}

/// A disk of which some sectors cannot be read.
struct Scarred {
    inner: Arc<dyn Disk>,
    hole: Range<u64>,
}

impl Disk for Scarred {
    fn sectors(&self) -> u64 {
        self.inner.sectors()
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn name(&self) -> String {
        self.inner.name()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read(&self, sector: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let end = sector + buf.len() as u64 / 512;
        match sector < self.hole.end && end > self.hole.start {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => self.inner.read(sector, buf),
        }
    }
    fn write(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        unreachable!("nothing is written")
    }
    fn write_zeroes(&self, _: Range<u64>) -> std::io::Result<()> {
        unreachable!("nothing is written")
    }
    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn hole_end(&self, sector: u64) -> u64 {
        sector
    }
}

#[test]
fn one_hole_of_a_member_is_one_range() {
    for compares in [false, true] {
        let array = filled(Level::Raid5, Layout::default_for(Level::Raid5), 4);
        let mut slots = array.sources();
        let inner = slots[1][0].disk.clone();
        slots[1][0].disk = Arc::new(Scarred { inner, hole: 101..903 });
        let view = array.view(slots);
        let view = if compares { view.compared(u64::MAX) } else { view };
        let (bytes, lost) = array.read_all(&view);
        assert!(lost.is_empty() && bytes == array.contents);
        let (failures, more) = view.failures();
        // Without a comparison the chunks of parity are not read.
        let expected = if compares { 1 } else { 7 };
        assert!(more == 0 && failures.len() <= expected, "{failures:?}");
        assert_eq!((failures[0].sectors.start, failures.last().unwrap().sectors.end), (101, 903));
    }
}

/// Opens each member as a copy that lacks these sectors.
fn copies(array: &Filled, lacks: &[Vec<Range<u64>>]) -> (Vec<Vec<Source>>, Vec<(String, Unread)>) {
    let mut known = Vec::new();
    let sources = (0..array.members()).map(|slot| {
        let (mut text, mut at) = ("0 +\n".to_string(), 0);
        let mut block = |from: u64, to: u64, status: char| {
            if from < to {
                text += &format!("{} {} {status}\n", from * 512, (to - from) * 512);
            }
        };
        for lack in &lacks[slot] {
            block(at, lack.start, '+');
            block(lack.start, lack.end, '-');
            at = lack.end;
        }
        block(at, MEMBER_SECTORS, '+');
        let (path, map) = (array.path(slot), array.dir.path().join(format!("map{slot}")));
        std::fs::write(&map, text).unwrap();
        let name = format!("{}:map={}", path.display(), map.display());
        let name = MemberName::parse(name.as_ref()).unwrap();
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let map = RescueMap::of(&name).unwrap();
        let device = Device::open_copy(&name.location, map, options).unwrap();
        known.push((device.name(), device.unread().unwrap().clone()));
        vec![Source::whole(Arc::new(device), 0)]
    });
    (sources.collect(), known)
}

#[test]
fn what_the_maps_leave_is_what_is_read_and_what_is_wanted_brings_it_back() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let (mut with_losses, mut recovered) = (0, 0);
    for (level, layout, members) in shapes() {
        let array = filled(level, layout, members);
        for _ in 0..4 {
            let draw = |_| {
                let mut at = 0;
                let ranges = (0..6).map(|_| {
                    let start = at + 1 + below(200);
                    at = (start + 1 + below(90)).min(MEMBER_SECTORS);
                    start.min(at)..at
                });
                ranges.filter(|range| !range.is_empty()).collect::<Vec<_>>()
            };
            let mut lacks: Vec<Vec<Range<u64>>> = (0..members).map(draw).collect();
            let (sources, known) = copies(&array, &lacks);
            let view = array.view(sources).compared(u64::MAX);
            let left = gaps(&view, &known);
            let (bytes, lost) = array.read_all(&view);
            assert_honest(&array, &bytes, &lost);
            assert_eq!(view.comparison().differing, [], "{level} {layout}");
            let sectors: u64 = lost.iter().map(|range| range.end - range.start).sum();
            assert_eq!(left.lost_sectors, sectors, "{level} {layout} {lacks:?}");
            assert_eq!(left.drawn.contains('!'), sectors > 0, "{left:?}");
            with_losses += u32::from(sectors > 0);
            recovered += left.recovered_sectors;
            // What is wanted was not read; when it is read, everything is there.
            for (slot, copy) in left.copies.iter().enumerate() {
                for wanted in &copy.needed {
                    let is_in =
                        |lack: &Range<u64>| lack.start <= wanted.start && wanted.end <= lack.end;
                    assert!(lacks[slot].iter().any(is_in), "{wanted:?} of {:?}", lacks[slot]);
                }
                let rest = lacks[slot].iter().flat_map(|lack| {
                    copy.needed.iter().fold(vec![lack.clone()], |left, wanted| {
                        let cut = |it: Range<u64>| {
                            [it.start..it.end.min(wanted.start), it.start.max(wanted.end)..it.end]
                        };
                        left.into_iter().flat_map(cut).filter(|it| it.start < it.end).collect()
                    })
                });
                lacks[slot] = rest.collect();
            }
            let (sources, known) = copies(&array, &lacks);
            let view = array.view(sources);
            let (bytes, lost) = array.read_all(&view);
            assert!(lost.is_empty() && bytes == array.contents, "{level} {layout}: {lost:?}");
            let left = gaps(&view, &known);
            assert_eq!((left.lost_sectors, left.drawn.contains('!')), (0, false));
        }
    }
    assert!(with_losses > 20 && recovered > 1000, "{with_losses} {recovered}");
}

/// A disk of which every read of some ranges fails, and which counts the reads.
struct Counted {
    scarred: Scarred,
    reads: std::sync::atomic::AtomicU64,
}

impl host::DiskLayer for Counted {
    fn below(&self) -> &dyn Disk {
        &self.scarred
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.scarred.read(sector, buf)
    }
}

#[test]
fn a_member_that_fails_much_is_skipped_where_others_can_serve() {
    for (level, layout, members) in shapes().into_iter().filter(|it| it.0 != Level::Linear) {
        let array = filled(level, layout, members);
        let mut reads = Vec::new();
        for is_skipping in [false, true] {
            let mut slots = array.sources();
            let scarred = Scarred { inner: slots[0][0].disk.clone(), hole: 32..MEMBER_SECTORS };
            let counted = Arc::new(Counted { scarred, reads: Default::default() });
            slots[0] = vec![Source::whole(counted.clone(), 0)];
            let view = array.view(slots);
            view.set_skipping(is_skipping);
            let (bytes, lost) = array.read_all(&view);
            assert_honest(&array, &bytes, &lost);
            if level != Level::Raid0 {
                assert!(lost.is_empty() && bytes == array.contents, "{level} {layout}");
            }
            // What was skipped is read.
            view.set_skipping(false);
            let before = lost.len();
            let (_, lost) = array.read_all(&view);
            assert!(lost.len() <= before || level == Level::Raid0, "{level} {layout}");
            reads.push(counted.reads.load(std::sync::atomic::Ordering::Relaxed));
            if is_skipping {
                assert!(view.skipped() > 0, "{level} {layout}");
            }
        }
    }
}

#[test]
fn of_members_that_are_out_of_date_those_serve_that_redundancy_confirms() {
    let array = filled(Level::Raid6, Layout::Raid6(Raid6Layout::LeftAsymmetric), 6);
    // Three are gone; an older one of each is there, of which the youngest is wrong in places.
    for sector in [7, 40, 333, 700] {
        spoil(&array, 2, sector);
    }
    let gone = || {
        let mut slots = array.sources();
        slots[2..5].iter_mut().for_each(Vec::clear);
        array.view(slots)
    };
    let source = |slot: usize| OutOfDateSource {
        source: Source::whole(open(&array.path(slot)), 0),
        slot,
        what: format!("m{slot}"),
    };
    let sum = |view: &ReadableArray| -> u64 {
        let found = view.out_of_date();
        found.iter().map(|it| it.sectors.end - it.sectors.start).sum()
    };
    // Without consent nothing is read from them, and it is known how much it would be.
    let view = gone().with_out_of_date(vec![vec![source(2), source(3), source(4)]]);
    let (_, lost) = array.read_all(&view);
    let all: u64 = lost.iter().map(|range| range.end - range.start).sum();
    assert!(all > 0);
    assert_eq!((view.may_be_stale(), sum(&view)), (false, 2 * all), "two of them agree");
    let view = view.with_stale_ranges();
    let (bytes, lost) = array.read_all(&view);
    assert_eq!((lost, view.may_be_stale()), (vec![], true));
    assert!(bytes == array.contents, "the wrong one was used");
    // One alone has what it has, right or wrong; what its slot does not need is right.
    let view = gone().with_out_of_date(vec![vec![source(3)]]).with_stale_ranges();
    let (bytes, lost) = array.read_all(&view);
    assert!(lost.is_empty() && bytes == array.contents);
    assert_eq!(sum(&view), all);
    // Two that do not agree: the youngest.
    let view = gone().with_out_of_date(vec![vec![source(2)]]).with_stale_ranges();
    let (bytes, lost) = array.read_all(&view);
    assert!(lost.is_empty() && bytes != array.contents);
    // Only the blocks that it holds are taken from it.
    let mut half = source(3);
    half.source = Source::new(open(&array.path(3)), 0, 512, &[]);
    let view = gone().with_out_of_date(vec![vec![half]]).with_stale_ranges();
    let (bytes, lost) = array.read_all(&view);
    let is_lost = |sector: u64| lost.iter().any(|range| range.contains(&sector));
    for (sector, bytes) in (0..).zip(bytes.chunks(512)) {
        let expected = &array.contents[sector as usize * 512..][..512];
        assert!(is_lost(sector) || bytes == expected, "sector {sector}");
    }
    assert!(!lost.is_empty());
}
