//! The bad-block log's decisions, step by step and against a model of a member's medium.

use std::num::NonZeroU16;
use std::ops::Range;

use md::Sector;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::{Area, BadBlockArea};
use raidlab_engine::{
    BadBlockChange, BadBlockLog, BadBlockStep, IoError, LogWrite, MemberError, MemberOp,
};
use testkit::{Rng, for_seeds};

/// First sector of the data area on the device.
const DATA_OFFSET: u64 = 2048;

/// The log's area; units are single sectors.
const PLACE: BadBlockArea =
    BadBlockArea { area: Area { sector: 16, sectors: 1 }, shift: 0, in_use: true };

fn log_of(ranges: &[Range<u64>]) -> BadBlockLog {
    let mut bad = BadBlocks::new();
    bad.extend(ranges.iter().map(|range| DATA_OFFSET + range.start..DATA_OFFSET + range.end));
    BadBlockLog::new(bad, PLACE, DATA_OFFSET)
}

fn change_of(log: &BadBlockLog, op: MemberOp, fua: bool, sectors: Range<u64>) -> BadBlockChange {
    let length = sectors.end - sectors.start;
    let begun = log.begin(op, fua, Sector(sectors.start), length);
    begun.expect("not refused").expect("a change")
}

fn is_refused(log: &BadBlockLog, sectors: Range<u64>) -> bool {
    let length = sectors.end - sectors.start;
    match log.begin(MemberOp::Read, false, Sector(sectors.start), length) {
        Err(error) => error == MemberError::BadBlock,
        Ok(change) => {
            assert!(change.is_none(), "a read changes nothing");
            false
        }
    }
}

/// The ranges of a log to be written, in sectors of the data area.
fn listed(write: &LogWrite) -> Vec<Range<u64>> {
    assert_eq!(write.sector, PLACE.area.sector);
    let bad = BadBlocks::decode(&write.bytes, PLACE.shift).expect("a log");
    assert_eq!(write.ranges(), bad.ranges().len());
    let in_data = |range: &Range<u64>| range.start - DATA_OFFSET..range.end - DATA_OFFSET;
    bad.ranges().iter().map(in_data).collect()
}

fn completed(step: BadBlockStep) -> Result<(), IoError> {
    match step {
        BadBlockStep::Complete(result) => result,
        BadBlockStep::Write(write) => panic!("writes {write:?}"),
    }
}

fn written(step: BadBlockStep) -> LogWrite {
    match step {
        BadBlockStep::Write(write) => write,
        BadBlockStep::Complete(result) => panic!("completes with {result:?}"),
    }
}

fn write_error(kind: MemberError) -> IoError {
    IoError { kind, op: MemberOp::Write, errno: NonZeroU16::new(28), sectors: 8, sector: Sector(0) }
}

#[test]
fn a_write_makes_sectors_good_and_the_next_flush_records_it() {
    let mut log = log_of(&[64..72, 80..88]);
    assert!(is_refused(&log, 71..72) && is_refused(&log, 0..65) && !is_refused(&log, 72..80));
    // Nothing has changed: a flush has nothing to record, and a discard never has.
    let begun = |op| log.begin(op, false, Sector(64), 8).expect("not refused").is_none();
    assert!(begun(MemberOp::Flush) && begun(MemberOp::Discard));

    let change = change_of(&log, MemberOp::Write, false, 60..68);
    assert!(is_refused(&log, 64..68), "the write has not completed");
    assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    assert!(!is_refused(&log, 64..68) && is_refused(&log, 68..69));

    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    // Completed after the flush began: the flush does not cover it.
    let change = change_of(&log, MemberOp::WriteZeroes, false, 80..88);
    assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    let write = written(log.done(flush, Ok(())));
    assert_eq!(listed(&write), [68..72, 80..88]);
    assert_eq!(log.log_written(write, Ok(())), Ok(()));

    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    let write = written(log.done(flush, Ok(())));
    assert_eq!(listed(&write), std::slice::from_ref(&(68..72)));
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    assert!(log.begin(MemberOp::Flush, false, Sector(0), 0).expect("passed on").is_none());
}

#[test]
fn a_fua_write_records_its_own_sectors_alone_before_it_completes() {
    let mut log = log_of(&[64..72, 80..88]);
    let volatile = change_of(&log, MemberOp::Write, false, 80..84);
    assert_eq!(completed(log.done(volatile, Ok(()))), Ok(()));
    let fua = change_of(&log, MemberOp::Write, true, 64..72);
    let write = written(log.done(fua, Ok(())));
    assert_eq!(listed(&write), std::slice::from_ref(&(80..88)));
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    // Not listed on disk any more.
    let fua = change_of(&log, MemberOp::Write, true, 60..90);
    let write = written(log.done(fua, Ok(())));
    assert_eq!(listed(&write), [0..0; 0]);
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    let fua = change_of(&log, MemberOp::Write, true, 60..90);
    assert_eq!(completed(log.done(fua, Ok(()))), Ok(()));
    assert!(log.is_empty());
}

#[test]
fn an_operation_that_failed_changes_nothing() {
    let mut log = log_of(std::slice::from_ref(&(64..72)));
    let error = Err(write_error(MemberError::Gone));
    for fua in [false, true] {
        let change = change_of(&log, MemberOp::Write, fua, 64..72);
        assert_eq!(completed(log.done(change, error)), error);
        assert!(is_refused(&log, 64..72));
    }
    let change = change_of(&log, MemberOp::Write, false, 64..72);
    assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    assert_eq!(completed(log.done(flush, error)), error);
    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    assert_eq!(listed(&written(log.done(flush, Ok(())))), [0..0; 0]);
}

#[test]
fn a_log_that_cannot_be_written_fails_the_operation_and_is_written_again() {
    for fua in [false, true] {
        let mut log = log_of(&[64..72, 80..88]);
        let mut change = change_of(&log, MemberOp::Write, fua, 64..72);
        if !fua {
            assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
            change = change_of(&log, MemberOp::Flush, false, 0..0);
        }
        let write = written(log.done(change, Ok(())));
        let error = write_error(MemberError::NoSpace);
        let expected = IoError::of_metadata(MemberError::NoSpace, error.errno);
        assert_eq!(log.log_written(write, Err(error)), Err(expected));
        assert!(!is_refused(&log, 64..72), "the data were written");
        let flush = change_of(&log, MemberOp::Flush, false, 0..0);
        let write = written(log.done(flush, Ok(())));
        assert_eq!(listed(&write), std::slice::from_ref(&(80..88)));
    }
}

#[test]
fn a_log_without_room_stays_as_it_is_until_a_later_one_fits() {
    // 64 entries fit; a write in the middle of one needs a 65th.
    let ranges: Vec<_> = (0..64).map(|number| 100 * number..100 * number + 9).collect();
    let mut log = log_of(&ranges);
    let fua = change_of(&log, MemberOp::Write, true, 4..5);
    assert_eq!(completed(log.done(fua, Ok(()))), Ok(()));
    assert!(!is_refused(&log, 4..5) && is_refused(&log, 5..6));
    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    assert_eq!(completed(log.done(flush, Ok(()))), Ok(()));
    assert!(log.begin(MemberOp::Flush, false, Sector(0), 0).expect("passed on").is_none());
    let change = change_of(&log, MemberOp::Write, false, 0..4);
    assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    let write = written(log.done(flush, Ok(())));
    assert_eq!(listed(&write)[..2], [5..9, 100..109]);
}

#[test]
fn a_flush_that_is_overtaken_by_a_later_one_writes_nothing() {
    let mut log = log_of(&[64..72, 80..88]);
    let change = change_of(&log, MemberOp::Write, false, 64..72);
    assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    let early = change_of(&log, MemberOp::Flush, false, 0..0);
    let change = change_of(&log, MemberOp::Write, false, 80..88);
    assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    let late = change_of(&log, MemberOp::Flush, false, 0..0);
    let write = written(log.done(late, Ok(())));
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    assert_eq!(completed(log.done(early, Ok(()))), Ok(()));
}

#[test]
#[should_panic(expected = "a log write is in flight")]
fn two_log_writes_are_never_in_flight() {
    let mut log = log_of(&[64..72, 80..88]);
    let one = change_of(&log, MemberOp::Write, true, 64..72);
    let two = change_of(&log, MemberOp::Write, true, 80..88);
    let _write = written(log.done(one, Ok(())));
    let _ = log.done(two, Ok(()));
}

// ---- against a model

/// Sectors of the model's member.
const SECTORS: u64 = 320;

/// What has happened to a sector since the start.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Contents {
    /// Unreadable, as listed at the start.
    Bad,
    /// A write has completed; a crash may bring the bad sector back.
    Volatile,
    /// A flush or FUA has made the write durable.
    Good,
}

struct Pending {
    op: MemberOp,
    fua: bool,
    sectors: Range<u64>,
    change: Option<BadBlockChange>,
    /// Of a flush: the sectors whose writes had completed when it began.
    covers: Vec<u64>,
}

/// A member in memory: its sectors, its log on disk, and the operations in flight.
struct Model {
    sectors: Vec<Contents>,
    on_disk: BadBlocks,
    log: BadBlockLog,
    in_flight: Vec<Pending>,
    rng: Rng,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut rng = Rng::new(seed);
        let mut bad = BadBlocks::new();
        // Some logs are so full that a split range has no room.
        let ranges: Vec<Range<u64>> = match rng.one_in(4) {
            true => (0..64).map(|number| 5 * number..5 * number + 4).collect(),
            false => {
                let starts: Vec<u64> = (0..=rng.below(20)).map(|_| rng.below(SECTORS)).collect();
                starts.iter().map(|&at| at..(at + 1 + rng.below(9)).min(SECTORS)).collect()
            }
        };
        bad.extend(ranges.iter().map(|range| DATA_OFFSET + range.start..DATA_OFFSET + range.end));
        let is_bad = |at: u64| bad.overlaps(DATA_OFFSET + at..DATA_OFFSET + at + 1);
        let contents = |at| if is_bad(at) { Contents::Bad } else { Contents::Good };
        let sectors = (0..SECTORS).map(contents).collect();
        let log = BadBlockLog::new(bad.clone(), PLACE, DATA_OFFSET);
        Model { sectors, on_disk: bad, log, in_flight: Vec::new(), rng }
    }

    fn begin(&mut self) {
        let start = self.rng.below(SECTORS);
        let mut sectors = start..(start + 1 + self.rng.below(8)).min(SECTORS);
        let ops = [MemberOp::Read, MemberOp::Write, MemberOp::WriteZeroes, MemberOp::Discard];
        let mut op = self.rng.pick(&ops);
        if self.rng.one_in(6) {
            (op, sectors) = (MemberOp::Flush, 0..0);
        }
        let fua = op == MemberOp::Write && self.rng.one_in(4);
        let length = sectors.end - sectors.start;
        let is_bad = |at: u64| self.sectors[at as usize] == Contents::Bad;
        let expected = op == MemberOp::Read && sectors.clone().any(is_bad);
        match self.log.begin(op, fua, Sector(sectors.start), length) {
            Err(error) => {
                assert!(expected, "a good sector of {sectors:?} is refused to {op}");
                assert_eq!(error, MemberError::BadBlock);
            }
            Ok(change) => {
                assert!(!expected, "a listed sector of {sectors:?} is read");
                let was_written = |at: &u64| self.sectors[*at as usize] >= Contents::Volatile;
                let covers = (0..SECTORS).filter(was_written).collect();
                self.in_flight.push(Pending { op, fua, sectors, change, covers });
            }
        }
    }

    fn end(&mut self, may_fail: bool) {
        if self.in_flight.is_empty() {
            return;
        }
        let number = self.rng.below(self.in_flight.len() as u64) as usize;
        let Pending { op, fua, sectors, change, covers } = self.in_flight.swap_remove(number);
        let is_ok = !may_fail || !self.rng.one_in(8);
        if is_ok {
            let (raised, to) = match op {
                MemberOp::Flush => (covers, Contents::Good),
                _ if fua => (sectors.collect(), Contents::Good),
                MemberOp::Write | MemberOp::WriteZeroes => (sectors.collect(), Contents::Volatile),
                _ => (Vec::new(), Contents::Volatile),
            };
            for at in raised {
                let contents = &mut self.sectors[at as usize];
                *contents = if *contents < to { to } else { *contents };
            }
        }
        let Some(change) = change else { return };
        let result = if is_ok { Ok(()) } else { Err(write_error(MemberError::Gone)) };
        match self.log.done(change, result) {
            BadBlockStep::Complete(completed) => assert_eq!(completed, result),
            BadBlockStep::Write(write) => {
                assert!(is_ok, "a failed operation changes no log");
                let fails = may_fail && self.rng.one_in(4);
                // A failed write may have reached the disk all the same.
                if !fails || self.rng.one_in(2) {
                    self.on_disk = BadBlocks::decode(&write.bytes, PLACE.shift).expect("a log");
                    self.check_disk();
                }
                let error = IoError::of_metadata(MemberError::Other, None);
                let result = if fails { Err(error) } else { Ok(()) };
                assert_eq!(self.log.log_written(write, result), result);
            }
        }
    }

    /// A crash now loses all volatile writes: each sector that may be bad then must be listed.
    fn check_disk(&self) {
        for (at, contents) in (DATA_OFFSET..).zip(&self.sectors) {
            let is_listed = self.on_disk.overlaps(at..at + 1);
            assert!(is_listed || *contents == Contents::Good, "sector {at} is not listed");
        }
    }

    /// All operations end, and a flush succeeds: the log on disk is exact, if there is room for it.
    fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            self.end(false);
        }
        let covers = (0..SECTORS).collect();
        let change = self.log.begin(MemberOp::Flush, false, Sector(0), 0).expect("not refused");
        let pending = Pending { op: MemberOp::Flush, fua: false, sectors: 0..0, change, covers };
        let was_bad: Vec<bool> = self.sectors.iter().map(|at| *at == Contents::Bad).collect();
        self.in_flight.push(pending);
        self.end(false);
        let mut bad = BadBlocks::new();
        for (at, _) in (DATA_OFFSET..).zip(was_bad).filter(|(_, is_bad)| *is_bad) {
            bad.insert(at..at + 1);
        }
        if bad.encode(PLACE.area.sectors, PLACE.shift).is_ok() {
            assert_eq!(self.on_disk, bad);
        }
    }
}

#[test]
fn no_listed_sector_is_read_and_the_log_on_disk_lists_all_that_a_crash_leaves_bad() {
    let name = "no_listed_sector_is_read_and_the_log_on_disk_lists_all_that_a_crash_leaves_bad";
    for_seeds!(name, 400, |seed| {
        let mut model = Model::new(seed);
        for _ in 0..300 {
            if model.rng.one_in(2) { model.begin() } else { model.end(true) }
        }
        model.settle();
    });
}

#[test]
fn an_entry_that_is_added_is_listed_when_it_is_durable_and_a_write_takes_it_out() {
    let mut log = log_of(std::slice::from_ref(&(64..72)));
    let write = log.add(Sector(80), 8).expect("room");
    assert_eq!(listed(&write), [64..72, 80..88]);
    assert!(!is_refused(&log, 80..88), "not durable yet");
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    assert!(is_refused(&log, 87..88));
    assert_eq!(log.listed().collect::<Vec<_>>(), [64..72, 80..88]);
    let fua = change_of(&log, MemberOp::Write, true, 80..84);
    let write = written(log.done(fua, Ok(())));
    assert_eq!(listed(&write), [64..72, 84..88]);
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    // A log that cannot be written has no new entry.
    let write = log.add(Sector(100), 8).expect("room");
    let error = write_error(MemberError::Gone);
    assert!(log.log_written(write, Err(error)).is_err());
    assert!(!is_refused(&log, 100..108));
    let write = log.add(Sector(200), 8).expect("room");
    assert_eq!(listed(&write), [64..72, 84..88, 200..208]);
}

#[test]
fn a_flush_does_not_take_out_what_was_added_after_it_began() {
    let mut log = log_of(&[64..72, 80..88]);
    for sectors in [64..72, 80..88] {
        let change = change_of(&log, MemberOp::Write, false, sectors);
        assert_eq!(completed(log.done(change, Ok(()))), Ok(()));
    }
    let flush = change_of(&log, MemberOp::Flush, false, 0..0);
    let write = log.add(Sector(64), 4).expect("room");
    assert_eq!(listed(&write), [64..72, 80..88], "what was written is not durable yet");
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    let write = written(log.done(flush, Ok(())));
    assert_eq!(listed(&write), std::slice::from_ref(&(64..68)));
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    assert!(is_refused(&log, 67..68) && !is_refused(&log, 68..72));
}

#[test]
fn a_log_without_room_refuses_an_entry_and_never_lists_more_than_it() {
    let many: Vec<Range<u64>> = (0..64).map(|at| at * 16..at * 16 + 8).collect();
    let mut log = log_of(&many);
    assert_eq!(log.add(Sector(2000), 8).err(), Some(MemberError::NoSpace), "64 entries fit");
    // What adjoins an entry needs none of its own.
    let write = log.add(Sector(8), 8).expect("between two");
    assert_eq!(log.log_written(write, Ok(())), Ok(()));
    assert!(is_refused(&log, 0..1) && is_refused(&log, 8..16) && !is_refused(&log, 2000..2008));
    // Units of 16 sectors.
    let coarse = BadBlockArea { shift: 4, ..PLACE };
    let mut log = BadBlockLog::new(BadBlocks::new(), coarse, DATA_OFFSET);
    assert_eq!(log.add(Sector(16), 8).err(), Some(MemberError::NoSpace));
    assert!(log.add(Sector(16), 16).is_ok());
    let none = BadBlockArea { area: Area { sector: 0, sectors: 0 }, ..PLACE };
    let mut log = BadBlockLog::new(BadBlocks::new(), none, DATA_OFFSET);
    assert_eq!(log.add(Sector(16), 8).err(), Some(MemberError::NoSpace));
}
