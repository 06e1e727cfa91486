//! Scrubs: what was corrupted behind the back of the array is found and named, and repaired to the
//! old contents where that can be proven, while a host goes on.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use md::{Layout, Level, Raid10Layout};
use raidlab_array::{Fault, HostOp, MemberSpec, Mismatch, MismatchKind, Pace, ScrubMode};
use testkit::Rng;

use crate::common::store::{self, Kind, Store};
use crate::common::{self, SECTOR, Shards, host, options, spec};

const SECTORS: u64 = 512;
const CHUNK: u64 = 16;

/// An array on files, and what a host has written to all of it.
struct Filled {
    store: Store,
    members: u64,
    driver: Shards,
    contents: Vec<u8>,
    rng: Rng,
}

impl Filled {
    fn new(level: Level, layout: Option<Layout>, members: u64) -> Filled {
        let store = Store::new(Kind::Buffered).expect("files");
        let member = |at: u64| {
            let file = store::file(&store.path(&at.to_string()), SECTORS, false);
            MemberSpec::ready(file)
        };
        let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
        let mut spec = spec(level, chunk, (0..members).map(member).collect());
        spec.layout = layout.unwrap_or(spec.layout);
        let mut driver = Shards::new(spec, &options()).expect("a valid array");
        let size = driver.info().sectors as usize * SECTOR;
        let mut rng = Rng::new(u64::from(level.number() as u32) << 8 | members);
        let contents: Vec<u8> = (0..size).map(|_| rng.draw() as u8).collect();
        driver.take_events();
        let mut filled = Filled { store, members, driver, contents, rng };
        for at in (0..size).step_by(256 * SECTOR) {
            let end = (at + 256 * SECTOR).min(size);
            let data = filled.contents[at..end].to_vec();
            host::write(&mut filled.driver, (at / SECTOR) as u64, &data);
        }
        filled
    }

    /// Inverts bytes of a sector of a member; returns the sector as it was.
    fn corrupt(&mut self, member: u64, sector: u64) -> Vec<u8> {
        let before = self.sector(member, sector);
        let mut after = before.clone();
        let from = self.rng.below(SECTOR as u64 - 1) as usize;
        let to = from + self.rng.within(1, (SECTOR - from) as u64) as usize;
        after[from..to].iter_mut().for_each(|byte| *byte = !*byte);
        let file = std::fs::OpenOptions::new().write(true).open(self.path(member)).expect("a file");
        file.write_all_at(&after, sector * SECTOR as u64).expect("written");
        before
    }

    fn path(&self, member: u64) -> std::path::PathBuf {
        self.store.path(&member.to_string())
    }

    fn sector(&self, member: u64, sector: u64) -> Vec<u8> {
        let file = std::fs::File::open(self.path(member)).expect("a file");
        let mut bytes = vec![0; SECTOR];
        file.read_exact_at(&mut bytes, sector * SECTOR as u64).expect("its sector");
        bytes
    }

    /// Runs a scrub beside reads that are compared.
    fn scrub(&mut self, mode: ScrubMode) -> Vec<Mismatch> {
        scrub_beside(&mut self.driver, mode, &self.contents, &mut self.rng)
    }

    fn span(&self) -> u64 {
        match self.driver.geometry().level() {
            Level::Raid1 | Level::Raid10 => self.driver.info().sectors / self.members,
            _ => SECTORS,
        }
    }
}

fn scrub_beside(
    driver: &mut Shards,
    mode: ScrubMode,
    contents: &[u8],
    rng: &mut Rng,
) -> Vec<Mismatch> {
    assert!(driver.start_scrub(mode, 0));
    let mut found = Vec::new();
    let mut completions = Vec::new();
    let size = contents.len() / SECTOR;
    loop {
        driver.poll(&mut completions);
        assert!(completions.is_empty(), "a scrub is not the host's");
        found.extend(driver.take_mismatches());
        let status = driver.scrub().expect("it was started");
        if status.is_done {
            assert_eq!((status.error, status.checked), (None, status.span));
            return found;
        }
        // Nothing in the first eighth is corrupted: a write would mend it.
        let at = rng.below((size as u64).div_ceil(8)) as usize;
        host::write(driver, at as u64, &contents[at * SECTOR..(at + 1) * SECTOR]);
        driver.wait(Duration::from_millis(1), None);
    }
}

#[test]
fn a_corrupted_block_is_repaired_to_the_old_contents_where_redundancy_proves_it() {
    let far = |copies| Some(Layout::Raid10(Raid10Layout::far(copies)));
    let near = |copies| Some(Layout::Raid10(Raid10Layout::near(copies)));
    for (level, layout, members) in [
        (Level::Raid6, None, 4),
        (Level::Raid6, None, 6),
        (Level::Raid1, None, 3),
        (Level::Raid1, None, 5),
        (Level::Raid10, near(3), 5),
        (Level::Raid10, far(3), 4),
    ] {
        let mut array = Filled::new(level, layout, members);
        for member in 0..members {
            // Far from what the host writes to, as long as the scrub runs.
            let sector = array.span() - 1 - array.rng.below(array.span() / 4);
            let before = array.corrupt(member, sector);
            let checked = array.scrub(ScrubMode::Check);
            let [found] = checked[..] else { panic!("{level} {checked:?}") };
            assert_eq!(found.member.map(|member| u64::from(member.0)), Some(member));
            assert_eq!((found.member_sector.0, found.sectors, found.repaired), (sector, 1, false));
            assert_ne!(array.sector(member, sector), before, "a check changes nothing");
            let repaired = array.scrub(ScrubMode::Repair);
            assert_eq!(repaired, [Mismatch { repaired: true, ..found }]);
            assert_eq!(array.sector(member, sector), before);
            assert_eq!(array.scrub(ScrubMode::Repair), []);
        }
        let size = array.driver.info().sectors;
        for at in (0..size).step_by(256) {
            let sectors = 256.min(size - at);
            let right = &array.contents[at as usize * SECTOR..(at + sectors) as usize * SECTOR];
            assert!(host::read(&mut array.driver, at, sectors) == right, "{level} at {at}");
        }
    }
}

#[test]
fn a_corrupted_block_is_found_and_left_where_nothing_proves_which_one_is_wrong() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 3), (Level::Raid1, 2)] {
        let mut array = Filled::new(level, None, members);
        for member in 0..members {
            let sector = array.span() - 1 - array.rng.below(array.span() / 4);
            let before = array.corrupt(member, sector);
            let corrupted = array.sector(member, sector);
            let found = array.scrub(ScrubMode::Repair);
            let [found] = found[..] else { panic!("{level} {found:?}") };
            assert_eq!((found.member, found.repaired), (None, false));
            assert_eq!((found.member_sector.0, found.sectors), (sector, 1));
            let kind = if members == 2 { MismatchKind::Copy } else { MismatchKind::Unknown };
            assert_eq!(found.kind, kind);
            assert_eq!(array.sector(member, sector), corrupted, "left as it is");
            // Data win, or the first copy does: everything agrees afterwards.
            let found = array.scrub(ScrubMode::RepairOrResync);
            assert!(matches!(found[..], [Mismatch { repaired: true, member: None, .. }]));
            assert_eq!(array.scrub(ScrubMode::Check), []);
            // For the next member.
            let file = std::fs::OpenOptions::new().write(true).open(array.path(member));
            let file = file.expect("a file");
            file.write_all_at(&before, sector * SECTOR as u64).expect("written");
            array.scrub(ScrubMode::RepairOrResync);
        }
    }
}

#[test]
fn two_corrupted_blocks_of_a_raid_6_row_are_not_taken_for_one() {
    let mut array = Filled::new(Level::Raid6, None, 6);
    for sector in [300, 301, 310] {
        let before = [2, 4].map(|member| array.corrupt(member, sector));
        let corrupted = [2, 4].map(|member| array.sector(member, sector));
        let found = array.scrub(ScrubMode::Repair);
        for mismatch in &found {
            assert_eq!((mismatch.kind, mismatch.repaired), (MismatchKind::Unknown, false));
        }
        assert_eq!(found.iter().map(|found| found.sectors).sum::<u64>(), 1);
        assert_eq!([2, 4].map(|member| array.sector(member, sector)), corrupted);
        for (member, before) in [2, 4].into_iter().zip(before) {
            let file = std::fs::OpenOptions::new().write(true).open(array.path(member));
            file.expect("a file").write_all_at(&before, sector * SECTOR as u64).expect("written");
        }
    }
}

#[test]
fn what_is_proven_beside_what_is_not_is_repaired_alone() {
    // In one page: P, Q, and two data blocks of a row; copies 1 and 2, and all three.
    let mut array = Filled::new(Level::Raid6, None, 5);
    let row = match array.driver.geometry().kind() {
        md::Kind::Parity(parity) => parity.row(md::StripeNo(20)).clone(),
        _ => unreachable!("RAID 6"),
    };
    let (p, q) = (u64::from(row.p.0), u64::from(row.q.expect("RAID 6").0));
    let data: Vec<u64> = row.data.iter().map(|member| u64::from(member.0)).collect();
    let first = 20 * CHUNK;
    for (member, sector) in [(p, 0), (q, 1), (data[0], 2), (data[1], 2)] {
        array.corrupt(member, first + sector);
    }
    check_mixed(&mut array, first, MismatchKind::Unknown);

    let mut array = Filled::new(Level::Raid1, None, 3);
    let first = 160;
    for (member, sector) in [(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)] {
        array.corrupt(member, first + sector);
    }
    check_mixed(&mut array, first, MismatchKind::Copy);
}

/// Two sectors from `first` on can be repaired, the third one cannot.
fn check_mixed(array: &mut Filled, first: u64, kind: MismatchKind) {
    let sectors = |found: &[Mismatch]| {
        let one = |found: &Mismatch| (found.member_sector.0 - first, found.repaired);
        found.iter().map(one).collect::<Vec<_>>()
    };
    let found = array.scrub(ScrubMode::Repair);
    assert_eq!(sectors(&found), [(0, true), (1, true), (2, false)], "{found:?}");
    let found = array.scrub(ScrubMode::Check);
    assert_eq!(sectors(&found), [(2, false)]);
    assert_eq!((found[0].kind, found[0].member), (kind, None));
}

#[test]
fn a_block_that_cannot_be_read_is_recovered_by_a_check() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid1, 2)] {
        let bad = vec![Fault::ReadError { range: 40 * SECTOR as u64..41 * SECTOR as u64 }];
        let mut specs = vec![common::faulty(SECTORS, bad)];
        specs.extend(common::mems(members - 1, SECTORS));
        let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
        let mut driver = common::driver(spec(level, chunk, specs));
        let zeroes = vec![0; driver.info().sectors as usize * SECTOR / 2];
        let found =
            scrub_beside(&mut driver, ScrubMode::Check, &zeroes[..SECTOR], &mut Rng::new(1));
        assert_eq!(found, []);
        let events = driver.take_events();
        assert!(
            matches!(events[..], [raidlab_array::Event::Corrected { .. }]),
            "{level} {events:?}"
        );
        assert_eq!(host::call(&mut driver, HostOp::Read, 0, 256, None).0, Ok(()));
        assert!(driver.take_events().is_empty(), "it can be read again");
    }
}

#[test]
fn a_scrub_that_is_stopped_goes_on_where_it_was() {
    let mut array = Filled::new(Level::Raid5, None, 3);
    let mut completions = Vec::new();
    assert!(array.driver.start_scrub(ScrubMode::Check, 0));
    array.driver.poll(&mut completions);
    assert!(!array.driver.start_scrub(ScrubMode::Check, 0), "one is running");
    array.driver.stop_scrub();
    let status = loop {
        let status = array.driver.scrub().expect("it was started");
        if status.is_done {
            break status;
        }
        array.driver.poll(&mut completions);
        array.driver.wait(Duration::from_millis(1), None);
    };
    assert_eq!(status.checked, status.position);
    assert!(array.driver.start_scrub(ScrubMode::Check, status.position));
    while !array.driver.scrub().expect("it was started").is_done {
        array.driver.poll(&mut completions);
        array.driver.wait(Duration::from_millis(1), None);
    }
    let rest = array.driver.scrub().expect("it was started");
    assert_eq!(status.checked + rest.checked, SECTORS);
}

#[test]
fn beside_hosts_a_scrub_of_members_in_memory_rests_too() {
    let mut driver = common::driver(spec(Level::Raid5, CHUNK, common::mems(3, 64 * SECTORS)));
    driver.set_pace(Pace { foreground_share: 990, least_kib_per_s: 0, most_kib_per_s: None });
    // Hosts use the array.
    assert_eq!(host::call(&mut driver, HostOp::Read, 0, 8, None).0, Ok(()));
    assert!(driver.start_scrub(ScrubMode::Check, 0));
    for _ in 0..100 {
        assert_eq!(host::call(&mut driver, HostOp::Read, 0, 8, None).0, Ok(()));
    }
    let status = driver.scrub().expect("it was started");
    assert!(!status.is_done && status.checked > 0, "{status:?}");
}

#[test]
fn a_level_without_redundancy_has_nothing_to_scrub() {
    let mut driver = common::driver(spec(Level::Raid0, CHUNK, common::mems(2, SECTORS)));
    assert!(!driver.start_scrub(ScrubMode::Check, 0));
    assert_eq!(driver.scrub(), None);
    let mut driver = common::driver(spec(Level::Raid1, 0, common::mems(1, SECTORS)));
    assert!(!driver.start_scrub(ScrubMode::Check, 0), "one copy");
}

testkit::repeat_in_shards! {
    a_corrupted_block_is_repaired_to_the_old_contents_where_redundancy_proves_it,
    a_corrupted_block_is_found_and_left_where_nothing_proves_which_one_is_wrong,
    two_corrupted_blocks_of_a_raid_6_row_are_not_taken_for_one,
    what_is_proven_beside_what_is_not_is_repaired_alone,
    a_block_that_cannot_be_read_is_recovered_by_a_check,
    a_scrub_that_is_stopped_goes_on_where_it_was,
    beside_hosts_a_scrub_of_members_in_memory_rests_too,
    a_level_without_redundancy_has_nothing_to_scrub,
}
