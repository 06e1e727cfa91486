//! The partial parity log.

use super::golden;
use super::memory::{Memory, parity, spec, xor};
use raidlab_md::ondisk::Uuid;
use raidlab_md::ondisk::ppl::{
    MemberLog, PplEntry, PplHeader, PplLog, PplMismatch, PplRecovery, PplStop, PplVerdict,
    find_newest, partial_parity_checksum, place_log, plan_recovery,
};
use raidlab_md::{Geometry, Level, MemberIdx, Sector};
use std::convert::Infallible;
use std::ops::Range;
use testkit::{Rng, for_seeds};

pub fn uuid() -> Uuid {
    "9b8ba412:a8766a76:277a4342:2f4da949".parse().unwrap()
}

/// Reads from an area in memory.
pub fn from(area: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<(), Infallible> + '_ {
    move |sector, buffer| {
        let start = sector as usize * 512;
        buffer.copy_from_slice(&area[start..start + buffer.len()]);
        Ok(())
    }
}

fn load(member: u16, area: &[u8]) -> MemberLog {
    let sectors = area.len() as u64 / 512;
    let Ok(log) = MemberLog::load(MemberIdx(member), uuid(), sectors, from(area));
    log
}

/// A log: header, and partial parities behind it.
fn log(generation: u64, entries: &[(PplEntry, Vec<u8>)]) -> Vec<u8> {
    let header = PplHeader {
        signature: PplHeader::signature_of(uuid()),
        generation,
        entries: entries.iter().map(|(entry, _)| *entry).collect(),
    };
    let mut bytes = header.encode();
    entries.iter().for_each(|(_, partial)| bytes.extend(partial));
    bytes
}

/// Fields 512 to 608 of a header that the kernel wrote: generation 24, three entries.
const LITERAL: [u8; 96] = [
    0xc5, 0x79, 0x34, 0xd0, 0x00, 0x00, 0x00, 0x00, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x03, 0x00, 0x00, 0x00, 0x1b, 0xcd, 0xaf, 0xb3, 0x80, 0x3d, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x80, 0x43, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x00, 0x00, 0x00, 0xf0, 0x00, 0x00,
    0x02, 0x00, 0x00, 0x00, 0xae, 0x3c, 0x89, 0xf3, 0xf8, 0x43, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x30, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

#[test]
fn the_header_is_these_bytes_both_ways() {
    let entry = |data_sector, pp_bytes, data_bytes, checksum| PplEntry {
        data_sector,
        pp_bytes,
        data_bytes,
        parity_slot: 2,
        checksum,
    };
    let header = PplHeader {
        signature: 0xd034_79c5,
        generation: 24,
        entries: vec![
            entry(15744, 0, 196608, 0),
            entry(17280, 61440, 61440, 0xf389_3cae),
            entry(17400, 0, 12288, 0),
        ],
    };
    assert_eq!(PplHeader::signature_of(uuid()), header.signature);
    let mut bytes = vec![0xff; 512];
    bytes.extend(LITERAL);
    bytes.resize(4096, 0);
    assert_eq!(PplHeader::decode(&bytes), Ok(header.clone()));
    assert_eq!(header.encode(), bytes);
    assert_eq!(header.partial_parity_sectors(), 120);
    let empty = PplHeader::empty(uuid());
    assert_eq!(PplHeader::decode(&empty.encode()), Ok(empty));
}

#[test]
fn what_is_no_header() {
    let right = log(1, &[]);
    for (change, field, offset) in [
        ((|bytes| bytes.truncate(4095)) as fn(&mut Vec<u8>), "pad", 4088),
        (|bytes| bytes.fill(0), "checksum", 532),
        (|bytes| bytes[4095] ^= 1, "checksum", 532),
        (
            |bytes| {
                // 149 entries under a right checksum.
                let header = PplHeader { entries: vec![PplEntry::default(); 148], ..empty() };
                *bytes = header.encode();
                bytes[528] = 149;
                let before =
                    partial_parity_checksum(&[&bytes[..532], &[0; 4], &bytes[536..]].concat());
                bytes[532..536].copy_from_slice(&before.to_le_bytes());
            },
            "entries_count",
            528,
        ),
    ] {
        let mut bytes = right.clone();
        change(&mut bytes);
        let error = PplHeader::decode(&bytes).unwrap_err();
        assert_eq!((error.structure, error.field, error.offset), ("ppl", field, offset));
    }
}

fn empty() -> PplHeader {
    PplHeader::empty(uuid())
}

#[test]
fn the_kernels_ring_is_walked_to_its_newest_log() {
    let area = golden::piece("raid5-4d-ppl-disk2");
    let Ok(search) = find_newest(uuid(), 2048, from(&area));
    let newest = search.newest.unwrap();
    assert_eq!((newest.sector, newest.header.generation, search.logs), (744, 49, 14));
    let (at, PplStop::NoHeader(error)) = search.stop else { panic!("{:?}", search.stop) };
    assert_eq!((at, error.field), (752, "checksum"));
    // Each log in turn is the newest if the area ends behind it; all partial parity is intact.
    let mut generations = Vec::new();
    let mut entries = 0;
    let mut end = 8;
    while end <= 752 {
        let log = load(2, &area[..end * 512]);
        let newest = log.newest.unwrap();
        if newest.end() != end as u64 {
            // Its partial parity is cut off.
            end = newest.end() as usize;
            continue;
        }
        assert_eq!(log.intact, vec![true; newest.header.entries.len()]);
        entries += newest.header.entries.iter().filter(|entry| entry.pp_bytes > 0).count();
        generations.push(newest.header.generation);
        end += 8;
    }
    assert_eq!(generations, [3, 4, 11, 12, 20, 21, 24, 28, 31, 32, 39, 42, 43, 49]);
    assert_eq!(entries, 10);
    // Another array's.
    let Ok(search) = find_newest(Uuid([1; 16]), 2048, from(&area));
    let (0, PplStop::NoHeader(error)) = search.stop else { panic!("{:?}", search.stop) };
    assert_eq!((search.newest, error.field), (None, "signature"));
}

#[test]
fn the_walk_stops_at_what_is_older_and_at_the_end() {
    let partial = vec![5; 1024];
    let entry = PplEntry { pp_bytes: 1024, ..PplEntry::default() };
    let area = [log(7, &[(entry, partial)]), log(7, &[]), log(6, &[])].concat();
    let Ok(search) = find_newest(uuid(), area.len() as u64 / 512, from(&area));
    assert_eq!(search.newest.unwrap().sector, 10);
    assert_eq!(search.stop, (18, PplStop::Older { generation: 6 }));
    let Ok(search) = find_newest(uuid(), 25, from(&area));
    assert_eq!((search.newest.unwrap().sector, search.stop), (10, (18, PplStop::End)));
    let Ok(search) = find_newest(uuid(), 7, from(&area));
    assert_eq!((search.newest, search.stop), (None, (0, PplStop::End)));
}

#[test]
fn where_the_next_log_goes() {
    for (area, multiple, previous, partial, expected) in [
        (2048, true, 0, 256, Some(0)),
        (2048, true, 1784, 256, Some(1784)),
        (2048, true, 1785, 256, Some(0)),
        // Not where md would not look for it.
        (2048, true, 2040, 0, Some(0)),
        (2048, true, 2039, 0, Some(2039)),
        (2048, true, u64::MAX - 9, 0, Some(0)),
        (64, false, 16, 8, Some(0)),
        (64, false, 0, 57, None),
        (8, false, 0, 0, None),
    ] {
        assert_eq!(place_log(area, multiple, previous, partial), expected);
    }
}

/// XOR of the data that is not written, for sectors of a row; `written` by data index.
fn partial_parity(
    memory: &Memory<'_>,
    at: Sector,
    sector: u64,
    sectors: u64,
    written: &[usize],
) -> Vec<u8> {
    let row = memory.parity.row(memory.parity.locate(at).stripe);
    let mut sum = vec![0; sectors as usize * 512];
    for (index, &member) in row.data.iter().enumerate() {
        if !written.contains(&index) {
            xor(&mut sum, memory.at(member, sector, sectors));
        }
    }
    sum
}

/// Does the steps on the members.
fn recover(memory: &mut Memory<'_>, plan: &PplRecovery, areas: &[Vec<u8>]) {
    for step in &plan.steps {
        let sectors = step.sectors.end - step.sectors.start;
        let mut p = match step.partial_parity {
            None => vec![0; sectors as usize * 512],
            Some(at) => {
                let area = &areas[step.parity.index()];
                area[at as usize * 512..(at + sectors) as usize * 512].to_vec()
            }
        };
        for &member in &step.data {
            xor(&mut p, memory.at(member, step.sectors.start, sectors));
        }
        memory.put(step.parity, step.sectors.start, &p);
    }
}

/// A write within one row: array sectors, the data indices it touches at each row sector.
struct Write {
    at: Sector,
    entry: PplEntry,
    partial: Vec<u8>,
    /// Member sectors and the members written there.
    touched: Vec<(u64, MemberIdx)>,
}

/// The same rows of `chunks` consecutive chunks, or any range of the row's array sectors with
/// partial parity as long as a chunk.
fn random_write(rng: &mut Rng, memory: &Memory<'_>) -> Write {
    let chunk = memory.parity.chunk_sectors();
    let disks = memory.parity.data_disks() as u64;
    let stripe = raidlab_md::StripeNo(rng.below(memory.parity.stripes()));
    let row = memory.parity.row(stripe);
    let index = rng.below(disks);
    let offset = rng.below(chunk);
    let base = memory.parity.member_sector(stripe, 0).0;
    let in_chunks = |range: Range<u64>, chunks: Range<u64>| {
        chunks
            .flat_map(|chunk| range.clone().map(move |sector| (sector, chunk)))
            .map(|(sector, chunk)| (base + sector, row.data[chunk as usize]))
            .collect::<Vec<_>>()
    };
    let mut entry = PplEntry { parity_slot: row.p.0.into(), ..PplEntry::default() };
    let (at, partial, touched) = if rng.one_in(3) {
        // From `offset` in chunk `index` for any length, partial parity once around the chunk.
        let start = index * chunk + offset;
        let length = rng.below(disks * chunk - start) + 1;
        let at = memory.parity.array_sector(stripe, index as u16, offset);
        let mut partial = vec![0; chunk as usize * 512];
        let mut touched = Vec::new();
        for sector in 0..chunk {
            let written: Vec<usize> = (0..disks)
                .filter(|index| (start..start + length).contains(&(index * chunk + sector)))
                .map(|index| index as usize)
                .collect();
            let place = ((sector + chunk - offset) % chunk) as usize * 512;
            let bytes = partial_parity(memory, at, base + sector, 1, &written);
            partial[place..place + 512].copy_from_slice(&bytes);
            touched.extend(written.iter().map(|&index| (base + sector, row.data[index])));
        }
        entry.data_bytes = length as u32 * 512;
        (at, partial, touched)
    } else {
        let length = rng.below(chunk - offset) + 1;
        let chunks = rng.below(disks - index) + 1;
        let full = chunks == disks;
        let at = memory.parity.array_sector(stripe, index as u16, offset);
        let written: Vec<usize> = (index..index + chunks).map(|index| index as usize).collect();
        let partial = match full {
            true => Vec::new(),
            false => partial_parity(memory, at, base + offset, length, &written),
        };
        entry.data_bytes = (length * chunks) as u32 * 512;
        (at, partial, in_chunks(offset..offset + length, index..index + chunks))
    };
    entry.data_sector = at.0;
    entry.pp_bytes = partial.len() as u32;
    entry.checksum = partial_parity_checksum(&partial);
    Write { at, entry, partial, touched }
}

/// The write hole: any part of the data and of the parity arrives. Afterwards parity is right, and
/// what was not written can be had without its member, as it was.
#[test]
fn parity_is_right_after_any_torn_write() {
    for_seeds!("parity_is_right_after_any_torn_write", 300, |seed| {
        let rng = &mut Rng::new(seed);
        let members = 3 + rng.below(3) as usize;
        let layout = rng.below(6) as i32;
        let geometry = spec(Level::Raid5, layout, members, 8 << rng.below(2), 5);
        let mut memory = Memory::new(&geometry);
        for slot in 0..members {
            memory.slots[slot] = rng.bytes(memory.slots[slot].len());
        }
        memory.make_all_parity();
        // One write under way in some of the rows; each is logged on its parity's member.
        let mut logs: Vec<Vec<(PplEntry, Vec<u8>)>> = vec![Vec::new(); members];
        let mut rows = Vec::new();
        let before = memory.clone();
        let mut touched = Vec::new();
        for _ in 0..4 {
            let write = random_write(rng, &before);
            let stripe = memory.parity.locate(write.at).stripe;
            if rows.contains(&stripe) {
                continue;
            }
            rows.push(stripe);
            let torn = rng.below(4);
            for &(sector, member) in &write.touched {
                let new = rng.bytes(512);
                if torn == 0 || rng.below(4) < torn {
                    memory.put(member, sector, &new);
                }
            }
            for sector in write.touched.iter().map(|(sector, _)| *sector) {
                if rng.one_in(2) {
                    memory.make_parity(stripe, sector, 1);
                }
            }
            touched.extend(write.touched);
            let p = memory.parity.row(stripe).p.index();
            logs[p].push((write.entry, write.partial));
        }
        let areas: Vec<Vec<u8>> = logs.iter().map(|entries| log(rng.below(9), entries)).collect();
        let loaded: Vec<MemberLog> =
            (0..members).map(|slot| load(slot as u16, &areas[slot])).collect();
        let whole = |_| u64::MAX;
        let plan = plan_recovery(&geometry, &loaded, Some(0), whole).unwrap();
        assert_eq!((&plan.mismatches, &plan.skipped), (&vec![], &vec![]));
        assert_eq!((plan.verdict, plan.recovered_entries), (PplVerdict::Clean, rows.len()));
        let crashed = memory.clone();
        recover(&mut memory, &plan, &areas);
        assert_eq!(memory.wrong_row(), None);
        assert!(memory.contents(None) == crashed.contents(None), "only parity was written");
        // Once more, after a crash in the midst of it.
        recover(&mut memory, &plan, &areas);
        assert_eq!(memory.wrong_row(), None);

        // The same with a member missing: what was not being written is as before.
        let lost = MemberIdx(rng.below(members as u64) as u16);
        let mut degraded = crashed.clone();
        degraded.slots[lost.index()].fill(0xee);
        let present: Vec<MemberLog> = loaded.into_iter().filter(|log| log.member != lost).collect();
        let there = |member| if member == lost { 0 } else { u64::MAX };
        let plan = plan_recovery(&geometry, &present, Some(0), there).unwrap();
        assert!(plan.mismatches.is_empty());
        recover(&mut degraded, &plan, &areas);
        let contents = degraded.contents(Some(lost));
        let expected = before.contents(None);
        for at in (0..geometry.array_sectors()).map(Sector) {
            let (member, sector) = memory.place(at);
            let bytes = at.bytes() as usize..at.bytes() as usize + 512;
            if member == lost && !touched.contains(&(sector, member)) {
                assert!(contents[bytes.clone()] == expected[bytes], "array sector {at}");
            }
        }
    });
}

#[test]
fn a_member_that_is_being_rebuilt_counts_as_far_as_it_got() {
    // raid5 la on 3: row 0 is D0 D1 P, 16 sectors each.
    let geometry = spec(Level::Raid5, 0, 3, 16, 4);
    let partial = vec![0; 8 * 512];
    let entry = PplEntry {
        data_sector: 4,
        pp_bytes: 8 * 512,
        data_bytes: 8 * 512,
        parity_slot: 2,
        checksum: partial_parity_checksum(&partial),
    };
    let area = log(1, &[(entry, partial)]);
    let logs = [load(2, &area)];
    for (in_sync, step, skipped) in [
        (0, None, Some(4..12)),
        (4, None, Some(4..12)),
        (7, Some(4..7), Some(7..12)),
        (12, Some(4..12), None),
    ] {
        let readable = |member: MemberIdx| if member.0 == 0 { in_sync } else { u64::MAX };
        let plan = plan_recovery(&geometry, &logs, Some(0), readable).unwrap();
        let steps: Vec<_> = plan.steps.iter().map(|step| step.sectors.clone()).collect();
        let left: Vec<_> = plan.skipped.iter().map(|skip| skip.sectors.clone()).collect();
        assert_eq!(steps, step.into_iter().collect::<Vec<_>>());
        assert_eq!(left, skipped.into_iter().collect::<Vec<_>>());
        assert!(plan.skipped.iter().all(|skip| skip.missing == MemberIdx(0) && skip.entry == 0));
        for step in &plan.steps {
            assert_eq!((step.data.as_slice(), step.parity), (&[MemberIdx(0)][..], MemberIdx(2)));
            assert_eq!(step.partial_parity, Some(8));
        }
        // md counts it as recovered all the same.
        assert_eq!((plan.recovered_entries, plan.verdict), (1, PplVerdict::Clean));
    }
}

#[test]
fn verdicts() {
    let geometry = spec(Level::Raid5, 0, 3, 16, 4);
    let full = PplEntry { data_bytes: 2 * 16 * 512, parity_slot: 2, ..PplEntry::default() };
    let logged = load(2, &log(3, &[(full, Vec::new())]));
    let idle = |member| load(member, &log(2, &[]));
    let none = load(1, &[0; 8192]);
    let plan = |logs: &[MemberLog], resync_offset| {
        plan_recovery(&geometry, logs, resync_offset, |_| u64::MAX).unwrap()
    };
    let good = [idle(0), idle(1), logged.clone()];
    assert_eq!(plan(&good, Some(0)).verdict, PplVerdict::Clean);
    assert_eq!(plan(&good, Some(0)).steps.len(), 1);
    // A resync had begun: parity further on was never right.
    assert_eq!(plan(&good, Some(8)).verdict, PplVerdict::Resync);
    assert_eq!(plan(&good, Some(8)).steps.len(), 1);
    let clean = plan(&good, None);
    assert_eq!((clean.verdict, clean.steps.len()), (PplVerdict::WasClean, 0));
    // Nothing to recover proves nothing to md.
    assert_eq!(plan(&[idle(0), idle(1), idle(2)], Some(0)).verdict, PplVerdict::Resync);
    let bad = plan(&[idle(0), none, logged], Some(0));
    assert_eq!((bad.verdict, bad.steps.len()), (PplVerdict::Resync, 1));
    let [mismatch @ PplMismatch::NoLog { member: MemberIdx(1), .. }] = &bad.mismatches[..] else {
        panic!("{:?}", bad.mismatches)
    };
    assert!(mismatch.to_string().starts_with("member 1: no partial parity log: ppl, field checks"));
    let raid6 = spec(Level::Raid6, 0, 4, 16, 4);
    let refused = plan_recovery(&raid6, &good, None, |_| 0).unwrap_err();
    assert_eq!(refused.to_string(), "partial parity log: raid5 only, the array is raid6");
}

#[test]
fn entries_that_make_no_sense_are_mismatches() {
    // raid5 la on 3 members, 16 sectors a chunk, 4 rows: 32 sectors a row, parity on 2, 1, 0, 2.
    let geometry = spec(Level::Raid5, 0, 3, 16, 4);
    let right = PplEntry {
        data_sector: 4,
        pp_bytes: 8 * 512,
        data_bytes: 8 * 512,
        parity_slot: 2,
        checksum: 0,
    };
    let plan_of = |entry: PplEntry| {
        let header = PplHeader { entries: vec![entry], ..empty() };
        let newest = Ok(PplLog { sector: 0, header });
        let logs = [MemberLog { member: MemberIdx(2), newest, intact: vec![true] }];
        plan_recovery(&geometry, &logs, Some(0), |_| u64::MAX).unwrap()
    };
    assert_eq!(plan_of(right).mismatches, []);
    let sector = |sectors: u32| sectors * 512;
    type Change = fn(&mut PplEntry);
    let wrong: [(Change, &str); 14] = [
        (|e| e.data_sector = 128, "its data is outside of the array"),
        (|e| e.data_sector = u64::MAX, "its data is outside of the array"),
        (|e| e.data_sector = 36, "the parity of its row is on another member"),
        (|e| e.parity_slot = 1, "the parity of its row is on another member"),
        (|e| e.parity_slot = 2 + 65536, "the parity of its row is on another member"),
        (|e| e.data_bytes += 1, "a size is not in whole sectors"),
        (|e| e.data_bytes = 0, "its sizes do not divide"),
        (|e| e.data_bytes = 12 * 512, "its sizes do not divide"),
        (|e| (e.pp_bytes, e.data_bytes) = (0, 512), "its sizes do not divide"),
        (|e| e.data_bytes = 24 * 512, "its data leaves the row"),
        (|e| e.data_sector = 9, "its data leaves the row"),
        (|e| (e.data_sector, e.data_bytes) = (20, 16 * 512), "its data leaves the row"),
        (|e| (e.pp_bytes, e.data_bytes) = (16 * 512, 29 * 512), "its data leaves the row"),
        (|e| e.pp_bytes = 17 * 512, "its partial parity is longer than a chunk"),
    ];
    assert_eq!(sector(8), right.pp_bytes);
    for (change, expected) in wrong {
        let mut entry = right;
        change(&mut entry);
        let plan = plan_of(entry);
        let [PplMismatch::Entry { problem, entry: 0, member: MemberIdx(2) }] = plan.mismatches[..]
        else {
            panic!("{entry:?}: {:?}", plan.mismatches)
        };
        assert_eq!(problem, expected, "{entry:?}");
        assert_eq!((plan.steps.len(), plan.verdict), (0, PplVerdict::Resync));
    }
}

#[test]
fn any_entry_gives_steps_inside_of_its_row_or_a_mismatch() {
    for_seeds!("any_entry_gives_steps_inside_of_its_row_or_a_mismatch", 2000, |seed| {
        let rng = &mut Rng::new(seed);
        let geometry = spec(Level::Raid5, rng.below(6) as i32, 3 + rng.below(3) as usize, 16, 6);
        let near = |rng: &mut Rng, bound: u64| match rng.below(8) {
            0 => rng.draw() as u32,
            1 => rng.below(bound * 600) as u32,
            _ => rng.below(bound) as u32 * 512,
        };
        let entry = PplEntry {
            data_sector: if rng.one_in(9) {
                rng.draw()
            } else {
                rng.below(geometry.array_sectors())
            },
            pp_bytes: near(rng, 20),
            data_bytes: near(rng, 70),
            parity_slot: 0,
            checksum: 0,
        };
        for slot in 0..geometry.members() as u16 {
            check_steps(&geometry, slot, PplEntry { parity_slot: slot.into(), ..entry });
        }
    });
}

fn check_steps(geometry: &Geometry, slot: u16, entry: PplEntry) {
    let header = PplHeader { entries: vec![entry], ..empty() };
    let newest = Ok(PplLog { sector: 0, header });
    let logs = [MemberLog { member: MemberIdx(slot), newest, intact: vec![true] }];
    let plan = plan_recovery(geometry, &logs, Some(0), |_| u64::MAX).unwrap();
    assert_eq!(plan.steps.is_empty(), plan.recovered_entries == 0);
    for step in &plan.steps {
        let parity = parity(geometry);
        let start = parity.member_sector(step.stripe, 0).0;
        assert!(step.sectors.start >= start && step.sectors.end <= start + 16, "{step:?}");
        assert!(!step.sectors.is_empty() && !step.data.is_empty(), "{step:?}");
        assert_eq!(parity.row(step.stripe).p, step.parity);
        assert!(step.data.iter().all(|member| *member != step.parity));
        if let Some(at) = step.partial_parity {
            let end = at + (step.sectors.end - step.sectors.start);
            assert!(at >= 8 && end <= 8 + entry.sectors(), "{entry:?} {step:?}");
        }
    }
}

/// The array was stopped cleanly, so parity is right, and its newest logs must say the same.
#[test]
fn the_kernels_newest_logs_restore_the_parity_that_it_wrote() {
    let Some(case) = golden::case("raid5-4d-ppl") else { return };
    let slots = case.slots();
    let mut memory = Memory::new(&case.geometry);
    let used = memory.slots[0].len();
    let mut areas = Vec::new();
    let mut logs = Vec::new();
    for (slot, member) in slots.iter().enumerate() {
        memory.slots[slot].copy_from_slice(&member.data()[..used]);
        let ppl = member.metadata.ppl.expect("a partial parity log");
        assert!(ppl.multiple);
        let area = member.sectors(ppl.area.sector, ppl.area.sectors).to_vec();
        let uuid = member.metadata.set_uuid;
        let Ok(log) = MemberLog::load(MemberIdx(slot as u16), uuid, ppl.area.sectors, from(&area));
        logs.push(log);
        areas.push(area);
    }
    assert_eq!(memory.wrong_row(), None);
    let clean = plan_recovery(&case.geometry, &logs, None, |_| u64::MAX).unwrap();
    assert_eq!(
        (clean.verdict, clean.steps.len(), clean.mismatches.len()),
        (PplVerdict::WasClean, 0, 0)
    );
    let plan = plan_recovery(&case.geometry, &logs, Some(0), |_| u64::MAX).unwrap();
    assert_eq!((plan.verdict, plan.mismatches.len()), (PplVerdict::Clean, 0));
    assert!(plan.steps.iter().any(|step| step.partial_parity.is_some()));
    assert!(plan.steps.iter().any(|step| step.partial_parity.is_none()));
    for step in &plan.steps {
        let sectors = step.sectors.end - step.sectors.start;
        let junk = vec![0x5a; sectors as usize * 512];
        memory.put(step.parity, step.sectors.start, &junk);
    }
    assert!(memory.wrong_row().is_some());
    recover(&mut memory, &plan, &areas);
    assert_eq!(memory.wrong_row(), None);
    println!("{} steps from {} entries", plan.steps.len(), plan.recovered_entries);
}

#[test]
fn a_damaged_log_behind_another_was_being_written() {
    let area = [log(7, &[]), log(8, &[]), vec![0; 8192]].concat();
    let newest = |area: &[u8]| load(0, area).newest;
    assert_eq!(newest(&area).unwrap().header.generation, 8);
    let at = 4096;
    // In the padding, the signature, the generation, the checksum: it was a header of this array.
    for place in [3, 513, 521, 532, 4000] {
        let mut damaged = area.clone();
        damaged[at + place] ^= 1;
        assert_eq!(newest(&damaged).unwrap().header.generation, 7, "byte {place}");
        // Without one before it.
        let Err(stop) = newest(&damaged[at..]) else { panic!("byte {place}: it is believed") };
        let PplStop::Broken(error) = &stop else { panic!("byte {place}: {stop:?}") };
        assert_eq!(error.field, "checksum", "byte {place}");
        let mismatch = PplMismatch::NoLog { member: MemberIdx(0), stop };
        assert!(mismatch.is_torn());
        let text = mismatch.to_string();
        assert!(text.contains("its newest partial parity log is damaged"), "{text}");
    }
    // Partial parity of an earlier round is no header, whatever it is.
    for left_over in [0x00, 0xff, 0x5a] {
        let mut area = area.clone();
        area[8192..8192 + 4096].fill(left_over);
        assert_eq!(newest(&area).unwrap().header.generation, 8, "{left_over:#x}");
    }
}
