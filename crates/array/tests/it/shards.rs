//! Several shards on one array: behaviour that a single shard does not have.

use std::future::Future as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use md::{Level, MemberIdx, Sector};
use raidlab_array::{
    Array, ArraySpec, BuildError, Completion, Driver, DriverOptions, Event, Fault, FaultControl,
    FaultMember, HostOp, MemberSpec, PaceControl, PacedMember, RequestError,
};
use testkit::{Rng, print_replay, seeds};

use crate::common::store::{Kind, Store};
use crate::common::{SECTOR, boxed_mem, mem, mems, spec};

const WRITE: HostOp = HostOp::Write { fua: false };

fn options(shards: u16) -> DriverOptions {
    let shard_unit_sectors = 64;
    DriverOptions { shards, shard_unit_sectors, leases: 64, ..DriverOptions::default() }
}

fn start(spec: ArraySpec, shards: u16) -> Array {
    Array::start(spec, &options(shards)).expect("an array")
}

fn pattern(seed: u64, sectors: usize) -> Vec<u8> {
    let mut bytes = vec![0; sectors * SECTOR];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

#[test]
fn requests_that_span_shards_come_back_whole() {
    for (level, members) in
        [(Level::Linear, 2), (Level::Raid0, 3), (Level::Raid1, 2), (Level::Raid10, 4)]
            .into_iter()
            .chain([(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)])
    {
        let chunk = if matches!(level, Level::Raid1 | Level::Linear) { 0 } else { 16 };
        let array = start(spec(level, chunk, mems(members, 2048)), 3);
        let sectors = (array.len_bytes() / SECTOR as u64) as usize;
        let all = pattern(7, sectors);
        array.write_at(&all, 0).expect("written");
        let mut back = vec![0; all.len()];
        array.read_at(&mut back, 0).expect("read");
        assert!(back == all, "{level}");
        // Zeroes over several units, and what lies beside them.
        array.write_zeroes(8 * 512, 512 * 600).expect("zeroed");
        array.read_at(&mut back, 0).expect("read");
        assert!(back[8 * 512..608 * 512].iter().all(|byte| *byte == 0), "{level}");
        assert!(back[..8 * 512] == all[..8 * 512] && back[608 * 512..] == all[608 * 512..]);
        array.stop().expect("stopped");
    }
}

#[test]
fn threads_that_write_across_shards_read_their_data_back() {
    for seed in seeds(4) {
        print_replay!("threads_that_write_across_shards_read_their_data_back", seed);
        let array = Arc::new(start(spec(Level::Raid5, 16, mems(5, 8192)), 3));
        let share = array.len_bytes() / SECTOR as u64 / 4;
        let writers = (0..4).map(|writer| {
            let array = array.clone();
            std::thread::spawn(move || {
                let mut rng = Rng::new(seed * 10 + writer);
                let mut model = vec![0; share as usize * SECTOR];
                for round in 0..150 {
                    let sectors = 1 + rng.below(300);
                    let at = rng.below(share - sectors);
                    let bytes = at as usize * SECTOR..(at + sectors) as usize * SECTOR;
                    let place = (writer * share + at) * SECTOR as u64;
                    if rng.one_in(2) {
                        rng.fill(&mut model[bytes.clone()]);
                        array.write_at(&model[bytes], place).expect("written");
                    } else {
                        let mut back = vec![1; bytes.len()];
                        array.read_at(&mut back, place).expect("read");
                        assert!(back == model[bytes], "{sectors} sectors at {place}");
                    }
                    if round == 70 && writer == 0 {
                        array.fail_member(MemberIdx(2));
                    }
                    if rng.one_in(30) {
                        array.flush().expect("flushed");
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        let events = array.take_events();
        let failed = Event::MemberFailed { member: MemberIdx(2), error: None };
        assert_eq!(events, [failed], "reported once");
    }
}

#[test]
fn a_flush_flushes_every_written_member_once() {
    let array = start(spec(Level::Raid5, 16, mems(4, 2048)), 3);
    array.write_at(&pattern(1, 2048), 0).expect("written");
    array.flush().expect("flushed");
    array.flush().expect("nothing to flush");
    let flushes: Vec<u64> = array.leaf_counters().iter().map(|leaf| leaf.flushes).collect();
    assert_eq!(flushes, [1; 4]);
}

#[test]
fn a_member_that_dies_under_one_shard_is_lost_to_all() {
    let control = FaultControl::default();
    control.set_on(false);
    let gone = FaultMember::switched(boxed_mem(2048), vec![Fault::Gone { after: 0 }], &control);
    let members = vec![mem(2048), mem(2048), MemberSpec::ready(gone)];
    let mut shards = Driver::shards(spec(Level::Raid5, 16, members), &options(3)).expect("shards");
    control.set_on(true);
    let bytes = pattern(3, 8);
    let mut lease = shards[1].leases().take(bytes.len()).expect("a lease");
    lease.bytes_mut().copy_from_slice(&bytes);
    // In shard 0's part, by way of shard 1.
    shards[1].submit(WRITE, Sector(16), 8, Some(lease), 9).expect("room");
    let (mut done, begin) = (Vec::new(), Instant::now());
    while done.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it never ends");
        shards.iter_mut().for_each(|shard| shard.poll(&mut done));
    }
    assert_eq!((done[0].tag, done[0].result), (9, Ok(())));
    for shard in &shards {
        assert!(shard.failed().contains(2), "acknowledged when all have dropped it");
    }
}

#[test]
fn an_array_that_loses_too_much_fails_unservable_requests() {
    let control = FaultControl::default();
    control.set_on(false);
    let dying = || {
        let fault = Fault::Gone { after: 0 };
        MemberSpec::ready(FaultMember::switched(boxed_mem(2048), vec![fault], &control))
    };
    let array = start(spec(Level::Raid5, 16, vec![dying(), dying(), mem(2048), mem(2048)]), 3);
    array.write_at(&pattern(5, 4096), 0).expect("written");
    control.set_on(true);
    let mut results = Vec::new();
    for at in (0..4096).step_by(16) {
        results.push(array.write_at(&[9; 16 * SECTOR], at * SECTOR as u64));
    }
    let io = Err(raidlab_array::ArrayError::Request(RequestError::Io));
    assert!(results.iter().all(|result| *result == Ok(()) || *result == io));
    assert!(results.contains(&io), "two members are gone");
    // Acknowledged data are there; reads that need both lost members get an error.
    for (at, result) in (0..4096u64).step_by(16).zip(results) {
        let mut back = vec![0; 16 * SECTOR];
        let read = array.read_at(&mut back, at * SECTOR as u64);
        if result == Ok(()) && read == Ok(()) {
            assert!(back.iter().all(|byte| *byte == 9), "sector {at}");
        }
    }
    drop(array);
}

#[test]
fn shards_share_a_drive_and_its_pace() {
    let control = PaceControl::default();
    let profile = drive::Profile::named("hdd-2007").expect("a profile");
    let paced = || {
        let whole = drive::Placement::Window { at: 0.0 };
        let inner = boxed_mem(1 << 16);
        MemberSpec::ready(PacedMember::new(inner, &control, profile, whole, None))
    };
    let array = start(spec(Level::Raid0, 128, vec![paced(), paced()]), 2);
    let bytes = pattern(8, 1 << 14);
    let begin = Instant::now();
    for round in 0..4 {
        array.write_at(&bytes, round * bytes.len() as u64).expect("written");
    }
    let mut back = vec![0; bytes.len()];
    array.read_at(&mut back, 0).expect("read");
    assert!(back == bytes);
    assert!(begin.elapsed() > Duration::from_millis(10), "{:?}", begin.elapsed());
}

#[test]
fn leaves_come_back_from_all_shards() {
    let mut shards =
        Driver::shards(spec(Level::Raid1, 0, mems(2, 512)), &options(3)).expect("shards");
    shards[2].fail_member(MemberIdx(1));
    let mut none = Vec::new();
    for _ in 0..3 {
        shards.iter_mut().for_each(|shard| shard.poll(&mut none));
    }
    let events: Vec<Event> = shards.iter_mut().flat_map(Driver::take_events).collect();
    let failed = Event::MemberFailed { member: MemberIdx(1), error: None };
    assert_eq!(events, [failed], "reported, whichever shard got the command");
    let leaves = Driver::shards_into_leaves(shards);
    assert_eq!(leaves.iter().map(|leaf| leaf.in_service).collect::<Vec<_>>(), [true, false]);
    assert!(leaves.iter().all(|leaf| leaf.member.is_some()));
}

#[test]
fn invalid_requests_are_refused_as_a_whole() {
    let mut shards =
        Driver::shards(spec(Level::Raid0, 16, mems(2, 512)), &options(2)).expect("shards");
    let mut done = Vec::new();
    for (at, sectors) in [(1024, 8), (1000, 200), (u64::MAX - 4, 8)] {
        shards[1].submit(HostOp::WriteZeroes, Sector(at), sectors, None, 4).expect("room");
        shards.iter_mut().for_each(|shard| shard.poll(&mut done));
        let end = done.pop().expect("it completes immediately");
        assert_eq!(end.result, Err(RequestError::Invalid), "{sectors} at {at}");
    }
    let inner = spec(Level::Raid0, 16, mems(2, 512));
    let nested = spec(Level::Raid1, 0, vec![MemberSpec::Array(inner), mem(512)]);
    let error = Driver::shards(nested, &options(2)).err().expect("refused");
    assert!(matches!(error, BuildError::NestedShards { shards: 2 }), "{error}");
    assert_eq!(
        error.to_string(),
        "an array with nested arrays runs in one shard only; 2 were requested"
    );
}

/// Polls the remaining shards until `count` requests have completed.
fn ends(shards: &mut [Option<Driver>], count: usize) -> Vec<Completion> {
    let (mut done, begin) = (Vec::new(), Instant::now());
    while done.len() < count {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} of {count} end", done.len());
        shards.iter_mut().flatten().for_each(|shard| shard.poll(&mut done));
    }
    done
}

/// Submits requests to one shard that mostly belong to others; returns their number.
fn ask(shard: &mut Driver, op: HostOp, count: u64) -> usize {
    for tag in 0..count {
        let lease = match op {
            HostOp::Flush => None,
            _ => Some(shard.leases().take(100 * SECTOR).expect("a lease")),
        };
        let sectors = if lease.is_some() { 100 } else { 0 };
        shard.submit(op, Sector(tag * 104), sectors, lease, tag).expect("room");
    }
    count as usize
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn shards_that_go_leave_errors_and_no_questions() {
    for (order, (polls, files)) in
        ORDERS.iter().flat_map(|order| [(0, false), (1, false), (2, true)].map(|how| (order, how)))
    {
        let mut store = Store::new(Kind::Direct).expect("a store");
        let members = match files {
            true => (0..4).map(|_| MemberSpec::Ready(store.member(4096))).collect(),
            false => mems(4, 4096),
        };
        let shards = Driver::shards(spec(Level::Raid5, 16, members), &options(3)).expect("shards");
        let pool = shards[0].leases().clone();
        let mut shards: Vec<Option<Driver>> = shards.into_iter().map(Some).collect();
        let mut open = [0; 3];
        let mut done = Vec::new();
        for (shard, open) in shards.iter_mut().zip(&mut open) {
            *open += ask(shard.as_mut().expect("there"), WRITE, 6);
        }
        for _ in 0..polls {
            for (shard, open) in shards.iter_mut().zip(&mut open) {
                shard.as_mut().expect("there").poll(&mut done);
                *open -= done.drain(..).count();
            }
        }
        let at_work = open != [0; 3];
        for gone in *order {
            shards[gone] = None;
            open[gone] = 0;
            let ended = ends(&mut shards, open.iter().sum());
            assert!(ended.iter().all(|end| end.lease.is_some()), "buffers come back");
            // The remaining shards complete later requests.
            let mut more = 0;
            for shard in shards.iter_mut().flatten() {
                more += ask(shard, HostOp::Read, 4) + ask(shard, HostOp::Flush, 1);
            }
            let ended = ends(&mut shards, more);
            let failed = ended.iter().filter(|end| end.result == Err(RequestError::Io)).count();
            assert!(failed == more || !at_work && failed > 0 || more == 0, "{order:?} {polls}");
            open = [0; 3];
        }
        let back: Vec<_> = std::iter::from_fn(|| pool.take(SECTOR)).collect();
        assert_eq!(back.len(), options(3).leases, "{order:?} {polls} {files}");
    }
}

#[test]
fn a_shard_that_needs_no_other_continues_without_it() {
    for gone in 0..3 {
        let shards = Driver::shards(spec(Level::Raid5, 16, mems(4, 4096)), &options(3));
        let mut shards: Vec<Option<Driver>> =
            shards.expect("shards").into_iter().map(Some).collect();
        let open = shards.iter_mut().flatten().map(|shard| ask(shard, WRITE, 6)).sum();
        assert!(ends(&mut shards, open).iter().all(|end| end.result == Ok(())));
        shards[gone] = None;
        for shard in (0..3).filter(|shard| *shard != gone) {
            let driver = shards[shard].as_mut().expect("there");
            let lease = driver.leases().take(8 * SECTOR).expect("a lease");
            // A unit is 96 sectors.
            driver.submit(WRITE, Sector(96 * shard as u64), 8, Some(lease), 1).expect("room");
            assert_eq!(ends(&mut shards, 1)[0].result, Ok(()));
        }
    }
}

/// A waker that panics.
struct Bomb;

impl std::task::Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("the caller's waker panics in the array's thread, as this test wants");
    }
}

#[test]
fn a_thread_that_panics_leaves_errors_to_all() {
    for victim in 0..3 {
        let (answer, answered) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let array = Arc::new(start(spec(Level::Raid5, 16, mems(4, 8192)), 3));
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let array = array.clone();
                    std::thread::spawn(move || {
                        let place = |at: u64| (writer * 8 + at % 8) * 300 * SECTOR as u64;
                        let write = |at| array.write_at(&[3; 300 * SECTOR], place(at));
                        (0u64..).find_map(|at| write(at).err()).expect("it ends")
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            let waker = std::task::Waker::from(Arc::new(Bomb));
            let mut context = std::task::Context::from_waker(&waker);
            loop {
                // In the victim's first unit, which no writer touches.
                let mut pending = array.read(array.lease(8 * SECTOR), (12000 + 96 * victim) * 512);
                if std::pin::Pin::new(&mut pending).poll(&mut context).is_pending() {
                    break;
                }
            }
            let stopped = |error| {
                error == raidlab_array::ArrayError::Stopped
                    || error == raidlab_array::ArrayError::Request(RequestError::Io)
            };
            assert!(writers.into_iter().all(|writer| stopped(writer.join().expect("a writer"))));
            assert!(stopped(
                array
                    .read_at(&mut [0; 4096], 0)
                    .err()
                    .unwrap_or(raidlab_array::ArrayError::Stopped)
            ));
            assert!(stopped(array.flush().expect_err("a shard is gone")));
            let all: Vec<_> = (0..64).map(|_| array.lease(512)).collect();
            drop(all);
            let array = Arc::into_inner(array).expect("the writers have ended");
            assert!(stopped(array.stop().expect_err("a shard is gone")));
            answer.send(()).expect("the receiver waits");
        });
        answered.recv_timeout(Duration::from_secs(60)).expect("everything ends");
    }
}
