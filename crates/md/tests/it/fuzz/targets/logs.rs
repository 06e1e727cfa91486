//! Bitmap, bad-block log, partial parity log and journal: round trips, and that whatever they ask
//! for is inside of the array and of the area it comes from.

use super::{Target, Verdict};
use raidlab_md::ondisk::bad_blocks::BadBlocks;
use raidlab_md::ondisk::bitmap::{BITMAP_FIELDS, Bitmap, BitmapHeader, Resync, StartState};
use raidlab_md::ondisk::journal::{Journal, MetaBlock, Replay};
use raidlab_md::ondisk::ppl::{MemberLog, PplHeader, PplRecovery, plan_recovery};
use raidlab_md::ondisk::reshape_backup::{BACKUP_FIELDS, ReshapeBackup};
use raidlab_md::ondisk::{DecodeError, Field, Uuid};
use raidlab_md::{Geometry, GeometrySpec, Kind, Layout, Level, MemberIdx};
use std::convert::Infallible;

pub const BITMAP: Target = Target {
    name: "bitmap",
    fields: BITMAP_FIELDS,
    bytes_max: 8192,
    repair: |_| {},
    check: check_bitmap,
};

pub const BAD_BLOCKS: Target = Target {
    name: "bad-blocks",
    fields: &[field(0, 8), field(8, 8), field(16, 8), field(24, 8), field(1, 2), field(9, 2)],
    bytes_max: 4608,
    repair: |_| {},
    check: check_bad_blocks,
};

pub const RESHAPE_BACKUP: Target = Target {
    name: "reshape-backup",
    fields: BACKUP_FIELDS,
    bytes_max: 1024,
    repair: repair_reshape_backup,
    check: check_reshape_backup,
};

pub const PPL: Target = Target {
    name: "ppl",
    // Signature, generation, count, and the first two entries.
    fields: &[
        field(512, 4),
        field(520, 8),
        field(528, 4),
        field(536, 8),
        field(544, 4),
        field(548, 4),
        field(552, 4),
        field(560, 8),
        field(568, 4),
        field(572, 4),
        field(576, 4),
    ],
    bytes_max: 32768,
    repair: repair_ppl,
    check: check_ppl,
};

pub const JOURNAL: Target = Target {
    name: "journal",
    // Of the first meta block: size, sequence, position, and three payloads of one block.
    fields: &[
        field(12, 4),
        field(16, 8),
        field(24, 8),
        field(32, 2),
        field(36, 4),
        field(40, 8),
        field(52, 2),
        field(56, 4),
        field(60, 8),
        field(72, 2),
        field(76, 4),
        field(80, 8),
    ],
    bytes_max: 65536,
    repair: repair_journal,
    check: check_journal,
};

const fn field(offset: usize, size: usize) -> Field {
    Field { name: "field", offset, size }
}

/// The array of raid5-4d-ppl.
const PPL_ARRAY: Uuid = Uuid([
    0x9b, 0x8b, 0xa4, 0x12, 0xa8, 0x76, 0x6a, 0x76, 0x27, 0x7a, 0x43, 0x42, 0x2f, 0x4d, 0xa9, 0x49,
]);
/// The array of raid5-3d-journal-wb-dirty.
const JOURNAL_ARRAY: Uuid = Uuid([
    0xdd, 0xd7, 0x4e, 0xca, 0x58, 0x85, 0x5c, 0xd5, 0x8b, 0x11, 0x2f, 0x79, 0x98, 0xb6, 0xb9, 0xb8,
]);

/// CRC32C without inversions, a second time: a table of the update by one byte.
fn raw(seed: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut register = index as u32;
            let mut bit = 0;
            while bit < 8 {
                register = (register >> 1) ^ if register & 1 == 1 { 0x82f6_3b78 } else { 0 };
                bit += 1;
            }
            table[index] = register;
            index += 1;
        }
        table
    };
    let step =
        |register: u32, byte: &u8| TABLE[usize::from(register as u8 ^ byte)] ^ (register >> 8);
    bytes.iter().fold(seed, step)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Reads an area that begins at sector `first`; what is not there is zero.
fn from(bytes: &[u8], first: u64) -> impl FnMut(u64, &mut [u8]) -> Result<(), Infallible> + '_ {
    move |sector, buffer| {
        buffer.fill(0);
        let start = sector.checked_sub(first).and_then(|sector| sector.checked_mul(512));
        let start = start.and_then(|start| usize::try_from(start).ok());
        if let Some(bytes) = start.and_then(|start| bytes.get(start..)) {
            let there = bytes.len().min(buffer.len());
            buffer[..there].copy_from_slice(&bytes[..there]);
        }
        Ok(())
    }
}

fn array(level: Level, members: usize, chunk_sectors: u64) -> Geometry {
    Geometry::new(&GeometrySpec {
        level,
        layout: Layout::from_number(level, 2).unwrap(),
        chunk_sectors,
        member_sectors: vec![12800; members],
    })
    .unwrap()
}

fn refused(error: &DecodeError) -> Verdict {
    assert!(!error.to_string().is_empty());
    Verdict::Refused
}

fn check_bitmap(bytes: &[u8]) -> Verdict {
    let header = match BitmapHeader::decode(bytes) {
        Ok(header) => header,
        Err(error) => return refused(&error),
    };
    assert_eq!(BitmapHeader::decode(&header.encode()).as_ref(), Ok(&header));
    if let Err(problem) = header.check(Uuid([9; 16])) {
        assert!(!problem.to_string().is_empty());
    }
    let decoded = Bitmap::decode(bytes, header.sync_size).or_else(|_| Bitmap::decode(bytes, 14336));
    let bitmap = match decoded {
        Ok(bitmap) => bitmap,
        Err(error) => return refused(&error),
    };
    let shape = bitmap.shape();
    let file: Vec<u8> = (0..shape.pages()).flat_map(|page| bitmap.encode_page(page)).collect();
    assert_eq!(Bitmap::decode(&file, shape.sync_sectors()).as_ref(), Ok(&bitmap));
    let bits = (256..bytes.len().min(shape.file_bytes() as usize)).take(shape.bits() as usize / 8);
    bits.for_each(|at| assert_eq!(file[at], bytes[at], "the bits it came from"));
    assert_eq!(bitmap.runs().map(|run| run.end - run.start).sum::<u64>(), bitmap.count());
    for complete in [false, true] {
        for resync_offset in [None, Some(0), Some(header.sync_size), Some(u64::MAX - 1)] {
            let state = StartState { events: header.events, resync_offset, complete };
            let Resync::Ranges(ranges) = bitmap.resync(state) else { continue };
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            assert!(ranges.iter().all(|range| range.start < range.end));
            assert!(ranges.last().is_none_or(|last| last.end <= shape.sync_sectors()));
        }
    }
    Verdict::Decoded
}

fn check_bad_blocks(bytes: &[u8]) -> Verdict {
    let mut verdict = Verdict::Refused;
    for shift in [0, 3, 40, 63, 64] {
        let bad = match BadBlocks::decode(bytes, shift) {
            Ok(bad) => bad,
            Err(error) => {
                refused(&error);
                continue;
            }
        };
        verdict = Verdict::Decoded;
        assert!(bad.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
        assert!(bad.ranges().iter().all(|range| range.start < range.end));
        let ranges = || bad.ranges().iter();
        assert!(ranges().all(|range| bad.overlaps(range.start..range.start + 1)));
        assert!(ranges().all(|range| !bad.overlaps(range.end..range.end.saturating_add(1))));
        for unit in [shift, 0, 5] {
            match bad.encode(8, unit) {
                Err(error) => assert!(!error.to_string().is_empty()),
                // A unit that is written may end beyond what can be said in sectors.
                Ok(log) => {
                    let Ok(again) = BadBlocks::decode(&log, unit) else { continue };
                    let whole = |range: &std::ops::Range<u64>| {
                        again.within(range.clone()).eq([range.clone()])
                    };
                    assert!(ranges().all(whole), "all that was bad is");
                    assert!(unit > shift || again == bad, "and nothing else");
                }
            }
        }
    }
    verdict
}

fn repair_ppl(bytes: &mut [u8]) {
    let mut at = 0;
    while at + 4096 <= bytes.len() {
        let count = number::<4>(bytes, at + 528).min(148) as usize;
        let mut partial = at + 4096;
        for entry in (0..count).map(|index| at + 536 + 24 * index) {
            let length = number::<4>(bytes, entry + 8) as usize;
            if let Some(parity) = bytes.get(partial..partial + length) {
                let checksum = !raw(!0, parity);
                bytes[entry + 20..entry + 24].copy_from_slice(&checksum.to_le_bytes());
            }
            partial += length / 512 * 512;
        }
        bytes[at + 532..at + 536].fill(0);
        let checksum = !raw(!0, &bytes[at..at + 4096]);
        bytes[at + 532..at + 536].copy_from_slice(&checksum.to_le_bytes());
        at = partial;
    }
}

fn check_ppl(bytes: &[u8]) -> Verdict {
    let sectors = bytes.len() as u64 / 512;
    let Ok(log) = MemberLog::load(MemberIdx(2), PPL_ARRAY, sectors, from(bytes, 0));
    for (level, members, chunk) in
        [(Level::Raid5, 4, 128), (Level::Raid5, 3, 8), (Level::Raid6, 4, 128)]
    {
        let geometry = array(level, members, chunk);
        for in_sync in [0, 6000, u64::MAX] {
            for resync_offset in [None, Some(0), Some(100)] {
                let readable = |member: MemberIdx| if member.0 == 1 { in_sync } else { u64::MAX };
                let logs = std::slice::from_ref(&log);
                let plan = plan_recovery(&geometry, logs, resync_offset, readable);
                assert_eq!(plan.is_ok(), level == Level::Raid5);
                if let Ok(plan) = plan {
                    check_plan(&geometry, &plan, &log, sectors);
                }
            }
        }
    }
    match &log.newest {
        Ok(newest) => {
            let encoded = newest.header.encode();
            assert_eq!(PplHeader::decode(&encoded).as_ref(), Ok(&newest.header));
            assert_eq!(log.intact.len(), newest.header.entries.len());
            Verdict::Decoded
        }
        Err(_) => Verdict::Refused,
    }
}

fn check_plan(geometry: &Geometry, plan: &PplRecovery, log: &MemberLog, area_sectors: u64) {
    let Kind::Parity(parity) = geometry.kind() else { unreachable!() };
    let entries = log.newest.as_ref().map_or(0, |log| log.header.entries.len());
    assert!(plan.recovered_entries + plan.mismatches.len() <= entries.max(1));
    let missing: Vec<_> = plan.skipped.iter().map(|skip| (&skip.sectors, skip.missing.0)).collect();
    assert!(missing.iter().all(|(sectors, member)| !sectors.is_empty() && *member == 1));
    for mismatch in &plan.mismatches {
        assert!(!mismatch.to_string().is_empty());
    }
    for step in &plan.steps {
        let row = parity.row(step.stripe);
        let first = parity.member_sector(step.stripe, 0).0;
        let range = &step.sectors;
        assert!(range.start < range.end && range.start >= first);
        assert!(range.end <= first + parity.chunk_sectors() && step.stripe.0 < parity.stripes());
        assert_eq!((step.parity, row.p), (MemberIdx(2), MemberIdx(2)));
        assert!(!step.data.is_empty() && step.data.iter().all(|member| row.data.contains(member)));
        if let Some(at) = step.partial_parity {
            assert!(at >= 8 && at + (range.end - range.start) <= area_sectors);
        } else {
            assert_eq!(step.data.len(), row.data.len());
        }
    }
}

/// Where an input of the journal begins: its first meta block says it.
fn first_position(bytes: &[u8]) -> Option<u64> {
    (bytes.len() >= 32).then(|| number::<8>(bytes, 24)).filter(|at| at % 8 == 0 && *at < 1 << 40)
}

fn repair_journal(bytes: &mut [u8]) {
    let seed = raw(!0, &JOURNAL_ARRAY.0);
    let mut at = 0;
    while at + 4096 <= bytes.len() && number::<4>(bytes, at) == 0x6433_c509 {
        let size = (number::<4>(bytes, at + 12) as usize).min(4096);
        let mut payload = 32;
        let mut block = at + 4096;
        while payload + 16 <= size {
            let length = number::<4>(bytes, at + payload + 4) as usize;
            if number::<2>(bytes, at + payload) == 2 {
                payload = (payload + 8).saturating_add(length);
                continue;
            }
            payload += 16;
            for _ in 0..(length / 8).min(4096) {
                if payload + 4 <= size && block + 4096 <= bytes.len() {
                    let checksum = raw(seed, &bytes[block..block + 4096]);
                    let place = at + payload..at + payload + 4;
                    bytes[place].copy_from_slice(&checksum.to_le_bytes());
                }
                payload += 4;
                block += 4096;
            }
        }
        bytes[at + 4..at + 8].fill(0);
        let checksum = raw(seed, &bytes[at..at + 4096]);
        bytes[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        at = block;
    }
}

fn check_journal(bytes: &[u8]) -> Verdict {
    let first = first_position(bytes).unwrap_or(0);
    let mut verdict = Verdict::Refused;
    for (level, members, chunk) in
        [(Level::Raid5, 3, 128), (Level::Raid6, 5, 8), (Level::Raid4, 3, 16)]
    {
        let geometry = array(level, members, chunk);
        let sectors = first + bytes.len() as u64 / 512 + 8;
        let Ok(journal) = Journal::new(&geometry, JOURNAL_ARRAY, sectors) else { continue };
        if let Ok(meta) = MetaBlock::decode(bytes, journal.seed()) {
            let encoded = meta.encode(journal.seed());
            assert_eq!(MetaBlock::decode(&encoded, journal.seed()), Ok(meta));
        }
        let Ok(replay) = journal.replay(first, from(bytes, first));
        check_replay(&geometry, &journal, &replay);
        if replay.meta_blocks > 0 {
            verdict = Verdict::Decoded;
        }
    }
    verdict
}

fn check_replay(geometry: &Geometry, journal: &Journal<'_>, replay: &Replay) {
    let in_ring = |at: u64| at.is_multiple_of(8) && at < journal.ring_sectors();
    assert!(in_ring(replay.end) && !replay.stop.to_string().is_empty());
    assert!(replay.meta_blocks <= journal.ring_sectors() / 8);
    assert!(replay.ignored.len() as u64 <= replay.meta_blocks);
    let place = |at: &raidlab_md::ondisk::journal::MemberWrite| (at.member, at.sector);
    assert!(replay.writes.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])));
    assert!(replay.newest.windows(2).all(|pair| pair[0].at < pair[1].at));
    for write in &replay.writes {
        let used = geometry.member_used_sectors(write.member);
        assert!(write.sector.0 % 8 == 0 && write.sector.0 < used && in_ring(write.journal_sector));
    }
    for newest in &replay.newest {
        let sectors = geometry.array_sectors();
        assert!(newest.at.0 % 8 == 0 && newest.at.0 < sectors && in_ring(newest.journal_sector));
    }
}

/// Its sums, of the first byte alone; the second one with two copies.
fn repair_reshape_backup(bytes: &mut [u8]) {
    let has_two = bytes.get(15) == Some(&b'2');
    for at in [64, 96] {
        if bytes.len() >= at + 4 && (at == 64 || has_two) {
            let first = u32::from(bytes[0]);
            let sum = (0..at).fold(0_u32, |sum, _| (sum << 3).wrapping_add(first));
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn check_reshape_backup(bytes: &[u8]) -> Verdict {
    let Ok(backup) = ReshapeBackup::decode(bytes) else { return Verdict::Refused };
    assert_eq!(ReshapeBackup::decode(&backup.encode()).as_ref(), Ok(&backup));
    for copy in &backup.copies {
        assert!(copy.array.start <= copy.array.end);
        assert!(copy.at.checked_add(copy.array.end - copy.array.start).is_some());
    }
    Verdict::Decoded
}
