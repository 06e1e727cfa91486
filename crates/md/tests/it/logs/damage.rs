//! Small damage: which of it is noticed, and which does no harm.
//!
//! Log headers, partial parity, meta blocks and the blocks behind them have checksums: every
//! changed byte is noticed. The bitmap and the bad-block log have none: what a change does there
//! is said below, field by field.

use super::{golden, journal, ppl};
use raidlab_md::ondisk::bitmap::{BITMAP_FIELDS, Bitmap, Resync, StartState, WhyEverything};
use raidlab_md::ondisk::journal::{IgnoredBecause, Journal, MetaBlock};
use raidlab_md::ondisk::ppl::{MemberLog, PplHeader};
use raidlab_md::ondisk::{Field, bad_blocks::BadBlocks};
use raidlab_md::{Level, MemberIdx};

/// Every bit of these bytes, flipped one at a time.
fn flips(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    (0..bytes.len() * 8).map(|bit| {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        (bit / 8, changed)
    })
}

#[derive(Debug, PartialEq)]
enum Noticed {
    /// The header is refused.
    Refused,
    /// The bitmap counts as stale: all is resynced.
    Stale,
    /// The same ranges are resynced.
    Harmless,
    /// Other ranges are.
    Unnoticed,
}

fn judge(page: &[u8], state: StartState, before: &Resync, right: &Bitmap) -> Noticed {
    let Ok(bitmap) = Bitmap::decode(page, right.shape().sync_sectors()) else {
        return Noticed::Refused;
    };
    if bitmap.header.check(right.header.uuid).is_err() {
        return Noticed::Refused;
    }
    match bitmap.resync(state) {
        Resync::Everything(WhyEverything::UnknownBitOrder | WhyEverything::Stale) => Noticed::Stale,
        after if after == *before => Noticed::Harmless,
        _ => Noticed::Unnoticed,
    }
}

/// The one field that could do harm is `chunksize`: another one moves all bits. A power of two has
/// one bit set, so no single flip makes another power of two of it.
#[test]
fn a_flipped_bit_of_a_bitmaps_header_is_noticed_or_does_no_harm() {
    let page = golden::piece("raid5-3d-bitmap-dirty");
    let right = Bitmap::decode(&page, 14336).unwrap();
    let state = StartState { events: 19, resync_offset: Some(0), complete: true };
    let before = right.resync(state);
    let allowed = |field: &Field| -> &[Noticed] {
        match field.name {
            "magic" | "uuid" | "chunksize" => &[Noticed::Refused],
            // 4 becomes 5, which without nodes is the same.
            "version" => &[Noticed::Refused, Noticed::Harmless],
            // Newer than the superblocks is accepted, older is stale.
            "events" => &[Noticed::Stale, Noticed::Harmless],
            "state" => &[Noticed::Stale, Noticed::Harmless],
            // Used in a degraded array only, see below.
            "events_cleared" => &[Noticed::Harmless],
            "daemon_sleep" => &[Noticed::Harmless],
            "write_behind" => &[Noticed::Harmless, Noticed::Refused],
            "sync_size" | "sectors_reserved" | "nodes" | "cluster_name" | "pad" => {
                &[Noticed::Harmless]
            }
            name => panic!("{name}: not judged"),
        }
    };
    for (byte, changed) in flips(&page[..256]) {
        let field = BITMAP_FIELDS.iter().find(|f| (f.offset..f.offset + f.size).contains(&byte));
        let field = field.unwrap();
        let page = [&changed, &page[256..]].concat();
        let verdict = judge(&page, state, &before, &right);
        assert!(allowed(field).contains(&verdict), "{} at {byte}: {verdict:?}", field.name);
    }
}

/// A bit that appears costs a needless resync. A bit that disappears is lost: nothing tells. So all
/// members' copies are united before they are believed.
#[test]
fn a_flipped_bit_of_a_bitmap_is_made_good_by_another_copy() {
    let page = golden::piece("raid5-3d-bitmap-dirty");
    let right = Bitmap::decode(&page, 14336).unwrap();
    let mut lost = 0;
    for (byte, changed) in flips(&page[..512]) {
        if byte < 256 {
            continue;
        }
        let page = [&changed, &page[512..]].concat();
        let mut bitmap = Bitmap::decode(&page, 14336).unwrap();
        lost += u64::from(bitmap.count() < right.count());
        bitmap.unite(&right);
        let extra = bitmap.count() - right.count();
        assert!(extra <= 1, "{byte}");
        assert!(right.runs().flatten().all(|bit| bitmap.get(bit)), "{byte}");
    }
    assert_eq!(lost, 3);
}

/// A flip adds, removes or moves bad sectors, or is refused as an entry of length 0; behind the
/// last entry it makes a new one. None is noticed otherwise: the log has no checksum.
#[test]
fn a_flipped_bit_of_a_bad_block_log_never_panics() {
    let mut right = BadBlocks::new();
    right.extend([2048..2064, 5000..5003]);
    let log = right.encode(8, 0).unwrap();
    let (mut refused, mut other) = (0, 0);
    for (byte, changed) in flips(&log) {
        match BadBlocks::decode(&changed, 0) {
            Err(_) => refused += 1,
            // Behind the end mark nothing is read.
            Ok(bad) if byte >= 24 => assert_eq!(bad, right),
            Ok(bad) => other += u32::from(bad != right),
        }
    }
    // 16 has one bit that makes 0; 3 has two bits.
    assert_eq!((refused, other), (1, 3 * 64 - 1));
}

#[test]
fn every_flipped_bit_of_a_ppl_header_is_noticed() {
    let area = golden::piece("raid5-4d-ppl-disk2");
    for sector in [0, 48, 744] {
        let header = &area[sector * 512..sector * 512 + 4096];
        assert!(PplHeader::decode(header).is_ok());
        for (byte, changed) in flips(header) {
            assert!(PplHeader::decode(&changed).is_err(), "{sector} {byte}");
        }
    }
}

#[test]
fn every_changed_byte_of_partial_parity_is_noticed() {
    let area = &golden::piece("raid5-4d-ppl-disk2")[..728 * 512];
    let load = |area: &[u8]| {
        let Ok(log) = MemberLog::load(MemberIdx(2), ppl::uuid(), 728, ppl::from(area));
        log
    };
    let right = load(area);
    assert_eq!((right.newest.as_ref().unwrap().sector, right.intact.len()), (704, 1));
    let mut changed = area.to_vec();
    for byte in 712 * 512..728 * 512 {
        changed[byte] ^= 1 << (byte % 8);
        let log = load(&changed);
        assert_eq!((&log.newest, &log.intact[..]), (&right.newest, &[false][..]), "{byte}");
        changed[byte] = area[byte];
    }
}

#[test]
fn every_changed_byte_of_a_journal_is_noticed() {
    let ring = golden::piece("raid5-3d-journal-wb-dirty");
    let geometry = super::memory::spec(Level::Raid5, 2, 3, 128, 112);
    let journal = Journal::new(&geometry, journal::uuid(), 30720).unwrap();
    let walk = |ring: &[u8]| {
        let Ok(replay) = journal.replay(14384, journal::from(ring, 14384));
        replay
    };
    let right = walk(&ring);
    // Positions of the meta blocks, from the tail on, in blocks.
    let metas = [0, 13, 15, 16, 18, 19, 21];
    for (index, &block) in metas.iter().enumerate() {
        let bytes = &ring[block * 4096..(block + 1) * 4096];
        assert!(MetaBlock::decode(bytes, journal.seed()).is_ok());
        let mut changed = ring.clone();
        for byte in 0..4096 {
            changed[block * 4096 + byte] ^= 1 << (byte % 8);
            let bytes = &changed[block * 4096..(block + 1) * 4096];
            assert!(MetaBlock::decode(bytes, journal.seed()).is_err(), "{block} {byte}");
            if byte % 512 == 8 {
                // The walk ends there, and what was before it holds.
                assert_eq!(walk(&changed).meta_blocks, index as u64);
            }
            changed[block * 4096 + byte] = ring[block * 4096 + byte];
        }
    }
    let mut changed = ring.clone();
    for block in (0..22).filter(|block| !metas.contains(block)) {
        for byte in (0..4096).step_by(257) {
            let at = block * 4096 + byte;
            changed[at] ^= 1 << (byte % 8);
            let replay = walk(&changed);
            let position = 14384 + block as u64 * 8;
            assert_eq!(replay.ignored.len(), 1, "{at}");
            assert_eq!(replay.ignored[0].problem, IgnoredBecause::Checksum { position });
            assert_eq!(replay.meta_blocks, right.meta_blocks);
            let places = replay.writes.iter().map(|write| write.journal_sector);
            let mut places = places.chain(replay.newest.iter().map(|newest| newest.journal_sector));
            assert!(places.all(|place| place != position), "{at}");
            changed[at] = ring[at];
        }
    }
}
