//! The bad-block log.

use super::golden;
use raidlab_md::ondisk::bad_blocks::{BadBlocks, BadBlocksError, ENTRIES_MAX};
use testkit::{Rng, for_seeds};

fn set(ranges: &[(u64, u64)]) -> BadBlocks {
    let mut bad = BadBlocks::new();
    bad.extend(ranges.iter().map(|&(start, length)| start..start + length));
    bad
}

/// 2048+16, 5000+3, and 9000+600 as 9000+512 and 9512+88: the kernel's own way of cutting.
const LITERAL: [u8; 40] = [
    0x10, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0x03, 0x20, 0x4e, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0x00, 0xa2, 0x8c, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0x58, 0xa0, 0x94, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];

#[test]
fn the_log_is_these_bytes_both_ways() {
    let bad = set(&[(2048, 16), (5000, 3), (9000, 600)]);
    let log = bad.encode(8, 0).unwrap();
    assert_eq!(log.len(), 4096);
    assert_eq!(log[..40], LITERAL);
    assert!(log[40..].iter().all(|&byte| byte == 0xff));
    assert_eq!(BadBlocks::decode(&log, 0), Ok(bad.clone()));
    assert_eq!(BadBlocks::decode(&LITERAL, 0), Ok(bad.clone()));
    // Without the end mark, the log's end ends it.
    assert_eq!(BadBlocks::decode(&LITERAL[..32], 0), Ok(bad));
}

/// md sets the feature bit, and with it the log, only when it writes entries; an empty log may hold
/// anything. The corpus shows zeroes, which would be refused.
#[test]
fn a_log_that_is_not_in_use_is_not_to_be_read() {
    let Some(case) = golden::case("raid1-2d-badblocks") else { return };
    for member in &case.members {
        let log = member.metadata.bad_blocks.expect("room for a log");
        assert_eq!((log.area.sectors, log.shift), (8, 0));
        let bytes = member.sectors(log.area.sector, log.area.sectors);
        if log.in_use {
            let expected = set(&[(2048, 16), (5000, 3), (9000, 600)]);
            assert_eq!(BadBlocks::decode(bytes, log.shift), Ok(expected));
        } else {
            assert!(bytes.iter().all(|&byte| byte == 0));
            assert!(BadBlocks::decode(bytes, log.shift).is_err());
        }
    }
}

#[test]
fn entries_may_be_unsorted_and_overlap() {
    let entry = |start: u64, length: u64| (start << 10 | length).to_le_bytes();
    let log: Vec<u8> =
        [entry(100, 1023), entry(10, 5), entry(12, 3), entry(15, 1), entry(1100, 100)].concat();
    assert_eq!(BadBlocks::decode(&log, 0), Ok(set(&[(10, 6), (100, 1100)])));
    assert_eq!(BadBlocks::decode(&log, 3), Ok(set(&[(80, 48), (800, 8800)])));
}

#[test]
fn what_md_refuses() {
    let entry = |start: u64, length: u64| (start << 10 | length).to_le_bytes();
    for (log, shift, offset, text) in [
        (vec![0; 4096], 0, 0, "0x0 has length 0"),
        ([entry(1, 1), entry(7, 0)].concat(), 0, 8, "0x1c00 has length 0"),
        (vec![0xff; 4104], 0, 0, "4104 bytes of log"),
        (vec![0xff; 512], 64, 0, "units of 2^64 sectors"),
        (entry(1 << 53, 1).to_vec(), 12, 0, "beyond any device"),
        (entry(1, 1).to_vec(), 63, 0, "beyond any device"),
    ] {
        let error = BadBlocks::decode(&log, shift).unwrap_err();
        assert_eq!((error.structure, error.field, error.offset), ("bad-blocks", "entry", offset));
        assert!(error.problem.contains(text), "{error}");
    }
    assert_eq!(BadBlocks::decode(&[0xff; 4096], 63), Ok(BadBlocks::new()));
    assert_eq!(BadBlocks::decode(&[], 0), Ok(BadBlocks::new()));
}

#[test]
fn a_set_that_does_not_fit_is_refused() {
    let many = |count: u64| set(&(0..count).map(|i| (i * 2, 1)).collect::<Vec<_>>());
    assert!(many(512).encode(8, 0).is_ok());
    let full = BadBlocksError::Full { entries: 513, room: ENTRIES_MAX };
    assert_eq!(many(513).encode(8, 0), Err(full));
    assert_eq!(many(65).encode(1, 0), Err(BadBlocksError::Full { entries: 65, room: 64 }));
    // Half a page of entries of 512 sectors.
    assert!(set(&[(0, 512 * 512)]).encode(8, 0).is_ok());
    assert!(set(&[(0, 512 * 512 + 1)]).encode(8, 0).is_err());
    assert!(set(&[(0, 1 << 60)]).encode(8, 0).is_err());
    let beyond = set(&[((1 << 54) - 1, 1)]);
    assert_eq!(beyond.encode(8, 0), Err(BadBlocksError::Beyond { sector: 1 << 54 }));
    assert!(set(&[((1 << 54) - 2, 1)]).encode(8, 0).is_ok());
    assert_eq!(many(1).encode(0, 0), Err(BadBlocksError::Full { entries: 1, room: 0 }));
    assert_eq!(many(0).encode(0, 0), Ok(Vec::new()));
}

#[test]
fn the_set_agrees_with_a_flag_for_each_sector() {
    for_seeds!("the_set_agrees_with_a_flag_for_each_sector", 300, |seed| {
        let rng = &mut Rng::new(seed);
        const SECTORS: u64 = 3000;
        let mut bad = BadBlocks::new();
        let mut flags = vec![false; SECTORS as usize];
        for _ in 0..rng.below(60) {
            let start = rng.below(SECTORS);
            let bound = rng.pick(&[2, 20, 1500]);
            let range = start..(start + rng.below(bound)).min(SECTORS);
            let part = range.start as usize..range.end as usize;
            let overlapping = flags[part.clone()].iter().any(|&flag| flag);
            assert_eq!(bad.overlaps(range.clone()), overlapping, "{range:?} of {bad:?}");
            let within: Vec<u64> = bad.within(range.clone()).flatten().collect();
            let expected = range.clone().filter(|&sector| flags[sector as usize]);
            assert!(within.iter().copied().eq(expected), "{range:?} of {bad:?}");
            let value = !rng.one_in(3);
            let changes = flags[part.clone()].iter().any(|&flag| flag != value);
            let changed = match value {
                true => bad.insert(range.clone()),
                false => bad.remove(range.clone()),
            };
            assert_eq!(changed, changes, "{value} {range:?}");
            flags[part].fill(value);
            let sectors: Vec<u64> = bad.ranges().iter().cloned().flatten().collect();
            let expected = (0..SECTORS).filter(|&sector| flags[sector as usize]);
            assert!(sectors.iter().copied().eq(expected), "{bad:?}");
            assert_eq!(bad.sectors(), sectors.len() as u64);
            assert!(bad.ranges().windows(2).all(|pair| pair[0].end < pair[1].start), "{bad:?}");
            assert!(bad.ranges().iter().all(|range| !range.is_empty()), "{bad:?}");
        }
        assert_eq!(BadBlocks::decode(&bad.encode(8, 0).unwrap(), 0), Ok(bad.clone()));
        // In larger units: all of the units that it touches, and no more.
        let shift = rng.below(6) as u8;
        let coarse = BadBlocks::decode(&bad.encode(8, shift).unwrap(), shift).unwrap();
        let unit = 1 << shift;
        for sector in 0..SECTORS.next_multiple_of(unit) {
            let start = sector / unit * unit;
            assert_eq!(
                coarse.overlaps(sector..sector + 1),
                bad.overlaps(start..start + unit),
                "{sector} {shift}"
            );
        }
    });
}
