//! The journal of RAID 4, 5 and 6.

use super::golden;
use super::memory::{Memory, sha256, spec};
use raidlab_md::ondisk::journal::{
    BLOCK_BYTES, IgnoredBecause, Journal, JournalRefused, MetaBlock, Payload, Replay,
    block_checksum, journal_seed,
};
use raidlab_md::ondisk::{Role, Uuid};
use raidlab_md::{Geometry, Level, MemberIdx, Sector};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use testkit::{Rng, for_seeds};

pub fn uuid() -> Uuid {
    "ddd74eca:58855cd5:8b112f79:98b6b9b8".parse().unwrap()
}

/// Reads from a ring in memory that begins at sector `first`.
pub fn from(ring: &[u8], first: u64) -> impl FnMut(u64, &mut [u8]) -> Result<(), Infallible> + '_ {
    move |sector, buffer| {
        let start = (sector - first) as usize * 512;
        buffer.copy_from_slice(&ring[start..start + buffer.len()]);
        Ok(())
    }
}

/// The two meta blocks at positions 14488 and 14504 of the golden journal: the used bytes.
const WITH_DATA: [u8; 52] = [
    0x09, 0xc5, 0x33, 0x64, 0xa8, 0x2e, 0x89, 0x33, 0x01, 0x00, 0x00, 0x00, 0x34, 0x00, 0x00, 0x00,
    0x58, 0xc7, 0xff, 0xa1, 0x00, 0x00, 0x00, 0x00, 0x98, 0x38, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x18, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x2b, 0x1b, 0x8f, 0x91,
];
const EMPTY: [u8; 32] = [
    0x09, 0xc5, 0x33, 0x64, 0x2e, 0x7e, 0x17, 0x5e, 0x01, 0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00,
    0x59, 0xc7, 0xff, 0xa1, 0x00, 0x00, 0x00, 0x00, 0xa8, 0x38, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

#[test]
fn meta_blocks_are_these_bytes_both_ways() {
    let seed = journal_seed(uuid());
    let data = Payload::Data { at: Sector(536), checksums: vec![0x918f_1b2b] };
    let with_data = MetaBlock { seq: 2717894488, position: 14488, payloads: vec![data] };
    let empty = MetaBlock::empty(2717894489, 14504);
    for (block, literal) in [(with_data, &WITH_DATA[..]), (empty, &EMPTY[..])] {
        let mut bytes = literal.to_vec();
        bytes.resize(BLOCK_BYTES, 0);
        assert_eq!(MetaBlock::decode(&bytes, seed), Ok(block.clone()));
        assert_eq!(block.encode(seed), bytes);
        assert_eq!(block.meta_size(), literal.len());
        assert_eq!(MetaBlock::decode(&bytes, seed ^ 1).unwrap_err().field, "checksum");
    }
}

fn random_payload(rng: &mut Rng) -> Payload {
    let checksums =
        |rng: &mut Rng, most| (0..=rng.below(most)).map(|_| rng.draw() as u32).collect();
    let at = Sector(rng.draw() >> rng.below(64));
    match rng.below(3) {
        0 => Payload::Data { at, checksums: checksums(rng, 40) },
        1 => Payload::Parity { at, checksums: checksums(rng, 2) },
        _ => Payload::Flush { rows: (0..rng.below(9)).map(|_| Sector(rng.draw())).collect() },
    }
}

#[test]
fn any_meta_block_is_read_as_it_was_written() {
    for_seeds!("any_meta_block_is_read_as_it_was_written", 300, |seed| {
        let rng = &mut Rng::new(seed);
        let mut block = MetaBlock::empty(rng.draw(), rng.draw());
        for _ in 0..rng.below(60) {
            let payload = random_payload(rng);
            if block.meta_size() + payload.bytes() <= BLOCK_BYTES {
                block.payloads.push(payload);
            }
        }
        let seed = rng.draw() as u32;
        assert_eq!(MetaBlock::decode(&block.encode(seed), seed), Ok(block));
    });
}

/// Puts a right checksum on a changed meta block.
pub fn mend(bytes: &mut [u8], seed: u32) {
    bytes[4..8].fill(0);
    let checksum = block_checksum(seed, &bytes[..BLOCK_BYTES]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn what_is_no_meta_block() {
    let payloads = vec![
        Payload::Data { at: Sector(8), checksums: vec![1] },
        Payload::Flush { rows: vec![Sector(8)] },
    ];
    let right = MetaBlock { seq: 1, position: 0, payloads }.encode(5);
    type Change = fn(&mut Vec<u8>);
    let wrong: [(Change, &str, usize); 15] = [
        (|b| b.truncate(4095), "payloads", 32),
        (|b| b.fill(0), "magic", 0),
        (|b| b[8] = 2, "version", 8),
        (|b| b[12] = 31, "meta_size", 12),
        (|b| b[13] = 0x10, "meta_size", 12),
        (|b| b[15] = 0xff, "meta_size", 12),
        (|b| b[32] = 3, "type", 32),
        (|b| b[33] = 1, "type", 32),
        (|b| b[34] = 1, "flags", 34),
        (|b| b[36] = 0, "size", 36),
        (|b| b[36] = 9, "size", 36),
        (|b| b[39] = 0x80, "size", 36),
        (|b| b[56] = 12, "size", 56),
        (|b| b[56] = 16, "size", 56),
        (|b| b[12] = 55, "type", 52),
    ];
    for (change, field, offset) in wrong {
        let mut bytes = right.clone();
        change(&mut bytes);
        if bytes.len() == BLOCK_BYTES {
            mend(&mut bytes, 5);
        }
        let error = MetaBlock::decode(&bytes, 5).unwrap_err();
        assert_eq!((error.structure, error.field, error.offset), ("journal", field, offset));
    }
}

/// The golden journal holds one data-and-parity set of four rows, then three blocks of data.
#[test]
fn the_kernels_journal_is_walked_to_its_end() {
    let ring = golden::piece("raid5-3d-journal-wb-dirty");
    let geometry = spec(Level::Raid5, 2, 3, 128, 112);
    let journal = Journal::new(&geometry, uuid(), 30720).unwrap();
    let Ok(replay) = journal.replay(14384, from(&ring, 14384));
    assert_eq!((replay.meta_blocks, replay.ignored.len()), (7, 0));
    assert_eq!((replay.end, replay.next_seq), (14560, Some(2717894494)));
    assert_eq!((replay.stop.field, replay.stop.offset), ("magic", 0));
    let newest: Vec<_> =
        replay.newest.iter().map(|data| (data.at.0, data.journal_sector)).collect();
    assert_eq!(newest, [(536, 14496), (9656, 14520), (22616, 14544)]);
    assert_eq!(replay.newest_at(Sector(9656)), Some(14520));
    assert_eq!(replay.newest_at(Sector(9664)), None);
    // Row 111, left-symmetric on three: P on slot 2, data 0 on slot 0, data 1 on slot 1.
    let writes: Vec<_> = replay
        .writes
        .iter()
        .map(|write| (write.member.0, write.sector.0, write.journal_sector))
        .collect();
    let place =
        |slot: u16, row: u64| (slot, 14208 + row * 8, 14392 + row * 24 + u64::from(slot) * 8);
    let expected: Vec<_> =
        (0..3).flat_map(|slot| (0..4).map(move |row| place(slot, row))).collect();
    assert_eq!(writes, expected);
    assert_eq!(replay.write_at(MemberIdx(2), Sector(14216)), Some(14432));
    assert_eq!(replay.write_at(MemberIdx(2), Sector(14240)), None);
    let after = replay.after(1);
    assert_eq!((after.seq, after.position, after.payloads.len()), (2717904494, 14560, 0));
    assert_eq!(journal.start(14384), 14384);
    assert_eq!((journal.start(30720), journal.start(12), journal.start(u64::MAX)), (0, 0, 0));
}

/// Contents as a reader through the journal sees them.
fn contents(memory: &Memory<'_>, ring: &[u8], replay: &Replay, lost: Option<MemberIdx>) -> Vec<u8> {
    let block = |sector: u64| &ring[sector as usize * 512..sector as usize * 512 + BLOCK_BYTES];
    let mut members = memory.clone();
    for write in &replay.writes {
        members.put(write.member, write.sector.0, block(write.journal_sector));
    }
    let mut contents = members.contents(lost);
    for newest in &replay.newest {
        let at = newest.at.bytes() as usize;
        contents[at..at + BLOCK_BYTES].copy_from_slice(block(newest.journal_sector));
    }
    contents
}

/// Does what a writer does: writes to the members, then newest data with new parity.
fn carry_out(memory: &mut Memory<'_>, ring: &[u8], replay: &Replay) {
    let block = |sector: u64| &ring[sector as usize * 512..sector as usize * 512 + BLOCK_BYTES];
    for write in &replay.writes {
        memory.put(write.member, write.sector.0, block(write.journal_sector));
    }
    for newest in &replay.newest {
        let (member, sector) = memory.place(newest.at);
        memory.put(member, sector, block(newest.journal_sector));
    }
    for newest in &replay.newest {
        let (_, sector) = memory.place(newest.at);
        let stripe = memory.parity.locate(newest.at).stripe;
        memory.make_parity(stripe, sector, 8);
    }
}

#[test]
fn the_corpus_has_the_contents_that_the_kernel_saw() {
    for name in ["raid5-3d-journal", "raid5-3d-journal-wb-dirty"] {
        let Some(case) = golden::case(name) else { return };
        let mut memory = Memory::new(&case.geometry);
        for (slot, member) in case.slots().iter().enumerate() {
            let used = memory.slots[slot].len();
            memory.slots[slot].copy_from_slice(&member.data()[..used]);
        }
        let device = case.members.iter().find(|m| m.metadata.role == Role::Journal).unwrap();
        let metadata = &device.metadata;
        let journal =
            Journal::new(&case.geometry, metadata.set_uuid, metadata.data_sectors).unwrap();
        let ring = device.data();
        let Ok(replay) = journal.replay(metadata.journal_tail.unwrap(), from(ring, 0));
        let expected = case.json["sha256_of_array_contents"].as_str().unwrap();
        for lost in [None, Some(0), Some(1), Some(2)] {
            let seen = contents(&memory, ring, &replay, lost.map(MemberIdx));
            assert_eq!(sha256(&seen), expected, "{name} without {lost:?}");
        }
        let before = memory.contents(None);
        carry_out(&mut memory, ring, &replay);
        assert_eq!(sha256(&memory.contents(None)), expected, "{name}");
        assert_eq!(memory.wrong_row(), None, "{name}");
        let dirty = name.ends_with("wb-dirty");
        assert_eq!(before == memory.contents(None), !dirty, "{name}: is the journal needed?");
        assert_eq!(replay.newest.len(), if dirty { 3 } else { 0 }, "{name}");
    }
}

/// An array with a journal, and what it should say.
struct Writer<'a> {
    /// What has arrived on the members.
    image: Memory<'a>,
    /// What the members will have when all that has parity in the journal has arrived.
    truth: Memory<'a>,
    ring: Vec<u8>,
    journal: Journal<'a>,
    at: u64,
    seq: u64,
    contents: Vec<u8>,
    /// Data that has no parity in the journal yet, by array sector.
    cached: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Writer<'a> {
    fn new(rng: &mut Rng, geometry: &'a Geometry) -> Writer<'a> {
        let mut image = Memory::new(geometry);
        for slot in 0..geometry.members() {
            image.slots[slot] = rng.bytes(image.slots[slot].len());
        }
        image.make_all_parity();
        let journal = Journal::new(geometry, uuid(), 8 * 400 + rng.below(8)).unwrap();
        Writer {
            contents: image.contents(None),
            truth: image.clone(),
            image,
            ring: rng.bytes(journal.ring_sectors() as usize * 512),
            at: rng.below(400) * 8,
            seq: if rng.one_in(4) { u64::MAX - 2 } else { rng.draw() },
            journal,
            cached: BTreeMap::new(),
        }
    }

    /// Appends a meta block with these payloads and their blocks.
    fn append(&mut self, payloads: Vec<Payload>, blocks: &[Vec<u8>]) {
        let meta = MetaBlock { seq: self.seq, position: self.at, payloads };
        assert_eq!(meta.payload_blocks(), blocks.len() as u64);
        let meta = meta.encode(self.journal.seed());
        for block in std::iter::once(&meta).chain(blocks) {
            let start = self.at as usize * 512;
            self.ring[start..start + BLOCK_BYTES].copy_from_slice(block);
            self.at = self.journal.advance(self.at, 1);
        }
        self.seq = self.seq.wrapping_add(1);
    }

    fn sum(&self, block: &[u8]) -> u32 {
        block_checksum(self.journal.seed(), block)
    }

    /// New contents of a block of the array.
    fn new_data(&mut self, rng: &mut Rng, at: Sector) -> (Payload, Vec<u8>) {
        let block = rng.bytes(BLOCK_BYTES);
        self.contents[at.bytes() as usize..][..BLOCK_BYTES].copy_from_slice(&block);
        (Payload::Data { at, checksums: vec![self.sum(&block)] }, block)
    }

    fn random_block(&self, rng: &mut Rng) -> Sector {
        Sector(rng.below((self.contents.len() / BLOCK_BYTES) as u64) * 8)
    }

    /// Write-back: data alone, perhaps of two rows in one meta block.
    fn cache(&mut self, rng: &mut Rng) {
        let (mut payloads, mut blocks) = (Vec::new(), Vec::new());
        for _ in 0..=rng.below(2) {
            let at = self.random_block(rng);
            let (payload, block) = self.new_data(rng, at);
            self.cached.insert(at.0, block.clone());
            payloads.push(payload);
            blocks.push(block);
        }
        self.append(payloads, &blocks);
    }

    /// A row gets its parity, with all that is cached of it, and new data if asked. Then all of it
    /// arrives on the members, or nothing, or some; what has arrived may be flushed.
    fn write_row(&mut self, rng: &mut Rng, new_data: bool) {
        let parity = self.truth.parity;
        let at = match self.cached.keys().next() {
            Some(&at) if !new_data => Sector(at),
            _ => self.random_block(rng),
        };
        let pos = parity.locate(at);
        let sector = parity.member_sector(pos.stripe, pos.offset);
        let (mut payloads, mut blocks) = (Vec::new(), Vec::new());
        for index in 0..parity.data_disks() as u16 {
            let at = parity.array_sector(pos.stripe, index, pos.offset);
            let (member, sector) = self.truth.place(at);
            if let Some(block) = self.cached.remove(&at.0) {
                self.truth.put(member, sector, &block);
            }
            if new_data && rng.one_in(2) {
                let (payload, block) = self.new_data(rng, at);
                self.truth.put(member, sector, &block);
                payloads.push(payload);
                blocks.push(block);
            }
        }
        self.truth.make_parity(pos.stripe, sector.0, 8);
        let row = parity.row(pos.stripe);
        let parities = [Some(row.p), row.q].into_iter().flatten();
        let parities: Vec<Vec<u8>> =
            parities.map(|member| self.truth.at(member, sector.0, 8).to_vec()).collect();
        let checksums = parities.iter().map(|block| self.sum(block)).collect();
        payloads.push(Payload::Parity { at: sector, checksums });
        blocks.extend(parities);
        self.append(payloads, &blocks);
        let arrives = rng.below(3);
        for member in (0..self.image.slots.len() as u16).map(MemberIdx) {
            if arrives == 0 || arrives == 1 && rng.one_in(2) {
                let block = self.truth.at(member, sector.0, 8).to_vec();
                self.image.put(member, sector.0, &block);
            }
        }
        if arrives == 0 && rng.one_in(2) {
            self.append(vec![Payload::Flush { rows: vec![sector] }], &[]);
        }
    }
}

#[test]
fn a_crash_at_any_time_loses_nothing() {
    for_seeds!("a_crash_at_any_time_loses_nothing", 100, |seed| {
        let rng = &mut Rng::new(seed);
        let geometry = match rng.below(3) {
            0 => spec(Level::Raid4, 0, 3, 8, 4),
            1 => spec(Level::Raid5, rng.below(6) as i32, 4, 16, 3),
            _ => spec(Level::Raid6, rng.below(6) as i32, 5, 8, 4),
        };
        let mut writer = Writer::new(rng, &geometry);
        let tail = writer.at;
        for _ in 0..rng.below(35) {
            match rng.below(3) {
                0 => writer.cache(rng),
                1 => writer.write_row(rng, true),
                _ => writer.write_row(rng, false),
            }
        }
        let Ok(replay) = writer.journal.replay(tail, from(&writer.ring, 0));
        assert_eq!((replay.end, replay.ignored.len()), (writer.at, 0));
        let wrote = replay.meta_blocks > 0;
        assert_eq!(replay.next_seq, wrote.then_some(writer.seq));
        let cached: BTreeSet<u64> = replay.newest.iter().map(|newest| newest.at.0).collect();
        assert!(cached.iter().eq(writer.cached.keys()));
        for lost in [None, Some(MemberIdx(rng.below(geometry.members() as u64) as u16))] {
            let seen = contents(&writer.image, &writer.ring, &replay, lost);
            assert!(seen == writer.contents, "contents without {lost:?}");
        }
        carry_out(&mut writer.image, &writer.ring, &replay);
        assert_eq!(writer.image.wrong_row(), None);
        assert!(writer.image.contents(None) == writer.contents);
        // The journal that follows is empty.
        let after = replay.after(1);
        let start = after.position as usize * 512;
        let bytes = after.encode(writer.journal.seed());
        writer.ring[start..start + BLOCK_BYTES].copy_from_slice(&bytes);
        let Ok(again) = writer.journal.replay(after.position, from(&writer.ring, 0));
        assert_eq!((again.meta_blocks, again.writes.len(), again.newest.len()), (1, 0, 0));
    });
}

/// A journal of 4 blocks a chunk on 3 members, with these meta blocks from position 0 on.
fn replay_of(metas: &[(Vec<Payload>, Vec<Vec<u8>>)], blocks: usize) -> Replay {
    let geometry = spec(Level::Raid5, 0, 3, 32, 4);
    let journal = Journal::new(&geometry, uuid(), blocks as u64 * 8).unwrap();
    let mut ring = Vec::new();
    for (seq, (payloads, blocks)) in metas.iter().enumerate() {
        let position = ring.len() as u64 / 512;
        let meta = MetaBlock { seq: seq as u64, position, payloads: payloads.clone() };
        ring.extend(meta.encode(journal.seed()));
        blocks.iter().for_each(|block| ring.extend(block));
    }
    ring.resize(blocks * BLOCK_BYTES, 0);
    let Ok(replay) = journal.replay(0, from(&ring, 0));
    replay
}

fn data(at: u64, fill: u8) -> (Payload, Vec<u8>) {
    let block = vec![fill; BLOCK_BYTES];
    let checksums = vec![block_checksum(journal_seed(uuid()), &block)];
    (Payload::Data { at: Sector(at), checksums }, block)
}

fn parity(at: u64, fill: u8) -> (Payload, Vec<u8>) {
    let block = vec![fill; BLOCK_BYTES];
    let checksums = vec![block_checksum(journal_seed(uuid()), &block)];
    (Payload::Parity { at: Sector(at), checksums }, block)
}

fn one(payloads: &[(Payload, Vec<u8>)]) -> (Vec<Payload>, Vec<Vec<u8>>) {
    payloads.iter().cloned().unzip()
}

#[test]
fn sets_flushes_and_newest_data() {
    let flush = |row| (vec![Payload::Flush { rows: vec![Sector(row)] }], Vec::new());
    let writes = |replay: &Replay| -> Vec<(u16, u64, u64)> {
        let write = |write: &raidlab_md::ondisk::journal::MemberWrite| {
            (write.member.0, write.sector.0, write.journal_sector)
        };
        replay.writes.iter().map(write).collect()
    };
    let newest = |replay: &Replay| -> Vec<(u64, u64)> {
        replay.newest.iter().map(|data| (data.at.0, data.journal_sector)).collect()
    };
    // Row 0 of blocks: data 0 at array sector 0 on slot 0, data 1 at 32 on slot 1, P on slot 2.
    // A set over two meta blocks.
    let replay = replay_of(&[one(&[data(0, 1)]), one(&[data(32, 2), parity(0, 3)])], 16);
    assert_eq!(writes(&replay), [(0, 0, 8), (1, 0, 24), (2, 0, 32)]);
    assert_eq!(newest(&replay), []);
    // Data behind parity begins anew; the set before it is written.
    let replay = replay_of(&[one(&[data(0, 1), parity(0, 3)]), one(&[data(32, 2)])], 16);
    assert_eq!(writes(&replay), [(0, 0, 8), (2, 0, 16)]);
    assert_eq!(newest(&replay), [(32, 32)]);
    // Of two sets the newer block counts.
    let set = one(&[data(0, 1), parity(0, 3)]);
    let replay = replay_of(&[set.clone(), set.clone()], 16);
    assert_eq!(writes(&replay), [(0, 0, 32), (2, 0, 40)]);
    // Twice the same data alone: the newer.
    let replay = replay_of(&[one(&[data(0, 1)]), one(&[data(0, 2)])], 16);
    assert_eq!((writes(&replay), newest(&replay)), (vec![], vec![(0, 24)]));
    // Flushed rows are forgotten, others are not.
    let replay = replay_of(&[one(&[data(0, 1), data(8, 1)]), flush(0), flush(16)], 16);
    assert_eq!((writes(&replay), newest(&replay)), (vec![], vec![(8, 16)]));
    // Also a set that had been replaced: it must not come over the newer one.
    let replay = replay_of(&[set.clone(), set.clone(), flush(0)], 16);
    assert_eq!((writes(&replay), newest(&replay)), (vec![], vec![]));
    // Parity alone means nothing.
    let replay = replay_of(&[one(&[parity(0, 3)])], 16);
    assert_eq!((replay.meta_blocks, writes(&replay), newest(&replay)), (1, vec![], vec![]));
    // Two blocks of data in one payload.
    let (mut two, mut blocks) = one(&[data(24, 1), data(32, 2)]);
    let Payload::Data { checksums: second, .. } = two.pop().unwrap() else { panic!() };
    let Payload::Data { checksums, .. } = &mut two[0] else { panic!() };
    checksums.extend(second);
    let replay = replay_of(&[(two, std::mem::take(&mut blocks))], 16);
    assert_eq!(newest(&replay), [(24, 8), (32, 16)]);
}

#[test]
fn what_is_ignored_and_where_a_walk_ends() {
    // DeviceLayout that the array does not have: 32 sectors a chunk, 4 rows, 256 array sectors.
    let good = one(&[data(0, 1)]);
    for (payload, at) in [
        (data(256, 1), 256),
        (data(u64::MAX - 7, 1), u64::MAX - 7),
        (data(4, 1), 4),
        (parity(128, 1), 128),
    ] {
        let replay = replay_of(&[good.clone(), one(&[payload]), good.clone()], 16);
        let [ignored] = &replay.ignored[..] else { panic!("{:?}", replay.ignored) };
        assert_eq!((ignored.seq, ignored.position), (1, 16));
        assert_eq!(ignored.problem, IgnoredBecause::Location { at: Sector(at) });
        assert_eq!((replay.meta_blocks, replay.newest.len()), (3, 1));
        assert_eq!(replay.newest[0].journal_sector, 40, "the walk continues after it");
    }
    // Two parities on raid5.
    let (mut double, mut blocks) = one(&[parity(0, 1)]);
    let Payload::Parity { checksums, .. } = &mut double[0] else { panic!() };
    checksums.push(checksums[0]);
    blocks.push(blocks[0].clone());
    assert_eq!(replay_of(&[(double, blocks)], 16).ignored.len(), 1);
    // A block with another checksum.
    let mut torn = good.clone();
    torn.1[0][100] ^= 1;
    let replay = replay_of(&[torn, good.clone()], 16);
    assert_eq!(replay.ignored[0].problem, IgnoredBecause::Checksum { position: 8 });
    assert_eq!((replay.meta_blocks, replay.newest[0].journal_sector), (2, 24));
    // A ring that is full ends the walk, and a meta block that claims more than is left.
    let replay = replay_of(&[good.clone(), good.clone()], 4);
    assert_eq!((replay.meta_blocks, replay.end, replay.stop.field), (2, 0, "meta_size"));
    let replay = replay_of(&[good.clone(), one(&[data(0, 1), data(8, 1)])], 5);
    assert_eq!((replay.meta_blocks, replay.end), (2, 0));
    let (payloads, _) = one(&[data(0, 1), data(8, 1), data(16, 1)]);
    let replay = replay_of(&[good, (payloads, Vec::new())], 5);
    assert_eq!((replay.meta_blocks, replay.end, replay.stop.field), (1, 16, "meta_size"));
    // Nothing at all.
    let replay = replay_of(&[], 4);
    assert_eq!((replay.meta_blocks, replay.next_seq, replay.stop.field), (0, None, "magic"));
    assert_eq!(replay.after(77), MetaBlock::empty(77, 0));
}

#[test]
fn positions_and_sequences_must_continue() {
    let geometry = spec(Level::Raid5, 0, 3, 32, 4);
    let journal = Journal::new(&geometry, uuid(), 64).unwrap();
    let walk = |first: MetaBlock, second: MetaBlock| {
        let mut ring = [first.encode(journal.seed()), second.encode(journal.seed())].concat();
        ring.resize(64 * 512, 0);
        let Ok(replay) = journal.replay(0, from(&ring, 0));
        (replay.meta_blocks, replay.stop.field)
    };
    let empty = MetaBlock::empty;
    assert_eq!(walk(empty(5, 0), empty(6, 8)), (2, "magic"));
    assert_eq!(walk(empty(u64::MAX, 0), empty(0, 8)), (2, "magic"));
    assert_eq!(walk(empty(5, 0), empty(5, 8)), (1, "seq"));
    assert_eq!(walk(empty(5, 0), empty(7, 8)), (1, "seq"));
    assert_eq!(walk(empty(5, 0), empty(6, 16)), (1, "position"));
    assert_eq!(walk(empty(5, 8), empty(6, 8)), (0, "position"));
}

#[test]
fn arrays_and_devices_without_a_journal() {
    let raid0 = spec(Level::Raid0, 1, 2, 32, 4);
    let error = Journal::new(&raid0, uuid(), 64).unwrap_err();
    assert_eq!(error, JournalRefused::Level(Level::Raid0));
    let raid6 = spec(Level::Raid6, 0, 4, 32, 4);
    let error = Journal::new(&raid6, uuid(), 15).unwrap_err();
    assert_eq!(error.to_string(), "journal: only 15 sectors");
    assert_eq!(Journal::new(&raid6, uuid(), 23).unwrap().ring_sectors(), 16);
}
