//! The array in its own threads, as application programs use it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use md::{Level, MemberIdx};
use raidlab_array::{
    Array, ArrayError, Completer, CompletionQueue, DriverOptions, Event, Fault, HostOp, MemberSpec,
    RequestError, RequestResult,
};
use testkit::{Rng, print_replay, seeds};

use crate::common::store::{Kind, Store};
use crate::common::{self, SECTOR, faulty, mem, mems, spec};

fn options(leases: usize) -> DriverOptions {
    DriverOptions { leases, lease_bytes: 64 << 10, ..DriverOptions::default() }
}

fn raid5() -> Array {
    common::shards::start(spec(Level::Raid5, 16, mems(4, 4096)), &options(16)).expect("an array")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Answers(std::sync::mpsc::Sender<(u64, RequestResult)>);

impl CompletionQueue for Answers {
    fn complete(&self, user_data: u64, result: RequestResult) {
        let _ = self.0.send((user_data, result));
    }
}

#[test]
fn requests_end_in_their_queue_by_their_number() {
    let array = raid5();
    let (answer, answers) = std::sync::mpsc::channel();
    let queue = Arc::new(Answers(answer));
    let to = |number| Completer::new(queue.clone(), number);
    let mut lease = array.lease(8192);
    lease.bytes_mut().fill(7);
    array.submit(HostOp::Write { fua: true }, 4096, 0, Some(lease), to(1));
    let next = || answers.recv_timeout(Duration::from_secs(10)).expect("an answer");
    let (number, result) = next();
    assert_eq!((number, result.expect("written").expect("its lease").len()), (1, 8192));
    array.submit(HostOp::WriteZeroes, 4096, 4096, None, to(2));
    assert!(matches!(next(), (2, Ok(None))));
    let lease = array.lease(8192);
    array.submit(HostOp::Read, 4096, 0, Some(lease), to(3));
    let (_, result) = next();
    let lease = result.expect("read").expect("its lease");
    assert!(lease.bytes()[..4096].iter().all(|byte| *byte == 0));
    assert!(lease.bytes()[4096..].iter().all(|byte| *byte == 7));
    array.submit(HostOp::Flush, 0, 0, None, to(4));
    assert!(matches!(next(), (4, Ok(None))));
    // What is refused ends there, too.
    array.submit(HostOp::Read, 100, 0, Some(lease), to(5));
    assert!(matches!(next(), (5, Err(ArrayError::Range { offset: 100, .. }))));
    array.submit(HostOp::Discard, array.len_bytes(), 4096, None, to(6));
    assert!(matches!(next(), (6, Err(ArrayError::Range { len: 4096, .. }))));
    // Without a lease, too: cut down to whole sectors it would be another range.
    array.submit(HostOp::WriteZeroes, 100, 512, None, to(7));
    assert!(matches!(next(), (7, Err(ArrayError::Range { offset: 100, .. }))));
}

#[test]
fn blocking_calls_of_any_length() {
    let array = raid5();
    let mut data = vec![0; 1 << 20];
    Rng::new(1).fill(&mut data);
    // Longer than a lease, which is 64 KiB.
    array.write_at(&data, 1024).expect("written");
    let mut back = vec![0; 1 << 20];
    array.read_at(&mut back, 1024).expect("read");
    assert!(back == data);
    array.write_zeroes(1024, 512 << 10).expect("zeroed");
    array.read_at(&mut back, 1024).expect("read");
    assert!(back[..512 << 10].iter().all(|byte| *byte == 0));
    assert!(back[512 << 10..] == data[512 << 10..]);
    array.discard(0, array.len_bytes()).expect("discarded");
    array.stop().expect("flushed");
}

#[test]
fn futures_of_any_executor() {
    let array = raid5();
    block_on(async {
        let mut lease = array.lease(4096);
        lease.bytes_mut().fill(9);
        let lease = array.write_fua(lease, 8192).await.expect("written");
        assert_eq!(lease.len(), 4096, "the lease comes back");
        let reads: Vec<_> = (0..8).map(|_| array.read(array.lease(4096), 8192)).collect();
        for read in reads {
            assert_eq!(read.await.expect("read").bytes(), [9; 4096]);
        }
        let wrong = array.read(lease, 1).await;
        assert!(matches!(wrong, Err(ArrayError::Range { offset: 1, .. })));
    });
}

#[test]
fn a_sleeping_array_wakes_for_a_request() {
    let array = raid5();
    let start = Instant::now();
    for at in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        array.write_at(&[1; 512], at * 512).expect("written");
        std::thread::sleep(Duration::from_millis(2));
        assert!(array.failed().is_empty());
    }
    // Unheard, each of them would wait for the thread's second to be over.
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[test]
fn unaligned_or_outside_requests_are_refused() {
    let array = raid5();
    let end = array.len_bytes();
    let mut buf = [0; 1024];
    for (offset, len) in [(1, 512), (0, 511), (end, 512), (end - 512, 1024), (u64::MAX - 511, 512)]
    {
        let range = |result| matches!(result, Err(ArrayError::Range { .. }));
        assert!(range(array.read_at(&mut buf[..len], offset)), "{len} at {offset}");
        assert!(range(array.write_at(&buf[..len], offset)), "{len} at {offset}");
        assert!(range(array.write_zeroes(offset, len as u64)), "{len} at {offset}");
        assert!(range(array.discard(offset, len as u64)), "{len} at {offset}");
        let result = array.read(array.lease(len), offset).wait();
        let text = result.expect_err("a refusal").to_string();
        assert!(text.starts_with(&format!("{len} bytes at {offset}")), "{text}");
    }
    array.read_at(&mut buf, end - 1024).expect("the last bytes");
}

#[test]
fn nothing_can_be_read_anywhere() {
    let array = raid5();
    for offset in [0, 512, array.len_bytes()] {
        array.read_at(&mut [], offset).expect("nothing");
        array.write_at(&[], offset).expect("nothing");
        array.write_zeroes(offset, 0).expect("nothing");
        array.discard(offset, 0).expect("nothing");
        assert!(array.read(array.lease(0), offset).wait().expect("nothing").is_empty());
        assert!(array.write(array.lease(0), offset).wait().expect("nothing").is_empty());
    }
}

#[test]
fn a_request_longer_than_the_engine_takes_is_refused() {
    let options = DriverOptions { leases: 2, lease_bytes: 17 << 20, ..DriverOptions::default() };
    let array = common::shards::start(spec(Level::Raid0, 128, mems(2, 1 << 16)), &options)
        .expect("an array");
    let result = array.read(array.lease(17 << 20), 0).wait();
    assert_eq!(result.err(), Some(ArrayError::Request(RequestError::Invalid)));
    array.read_at(&mut vec![0; 17 << 20], 0).expect("in parts");
}

#[test]
#[should_panic(expected = "of another array")]
fn a_lease_of_another_array_is_refused() {
    let (one, other) = (raid5(), raid5());
    drop(one.read(other.lease(4096), 0));
}

#[test]
fn leases_that_are_all_out_are_waited_for() {
    for seed in seeds(2) {
        print_replay!("leases_that_are_all_out_are_waited_for", seed);
        let array = common::shards::start(spec(Level::Raid1, 0, mems(2, 4096)), &options(3));
        let array = array.expect("an array");
        std::thread::scope(|scope| {
            for thread in 0..16u64 {
                let array = &array;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 100 + thread);
                    for _ in 0..100 {
                        // Every thread has its own place.
                        let at = thread * 100 * 512;
                        let mut data = vec![0; (1 + rng.below(100) as usize) * SECTOR];
                        rng.fill(&mut data);
                        array.write_at(&data, at).expect("written");
                        let mut back = vec![0; data.len()];
                        array.read_at(&mut back, at).expect("read");
                        assert!(back == data);
                    }
                });
            }
        });
        let all: Vec<_> = std::iter::from_fn(|| array.try_lease(512)).collect();
        assert_eq!(all.len(), 3, "every lease is back");
    }
}

#[test]
fn many_threads_and_a_failing_member() {
    let mut store = Store::new(Kind::Direct).expect("a store");
    let members = (0..4).map(|_| MemberSpec::Ready(store.member(4096))).collect();
    let array =
        common::shards::start(spec(Level::Raid5, 16, members), &options(32)).expect("an array");
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let array = &array;
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut model = vec![0; 200 * SECTOR];
                for round in 0..60 {
                    if thread == 0 && round == 30 {
                        array.fail_member(MemberIdx(2));
                        assert!(array.failed().contains(2), "as soon as it was ordered");
                    }
                    let from = rng.below(190) as usize * SECTOR;
                    let to = from + (1 + rng.below(10) as usize) * SECTOR;
                    rng.fill(&mut model[from..to]);
                    let at = thread * 200 * 512;
                    array.write_at(&model[from..to], at + from as u64).expect("written");
                    if rng.one_in(10) {
                        array.flush().expect("flushed");
                    }
                    let mut back = vec![0; model.len()];
                    array.read_at(&mut back, at).expect("read");
                    assert!(back == model, "thread {thread}, round {round}");
                }
            });
        }
    });
    let failed = Event::MemberFailed { member: MemberIdx(2), error: None };
    assert_eq!(array.take_events(), [failed]);
    assert_eq!(array.take_events(), []);
    array.stop().expect("flushed");
}

#[test]
fn requests_in_flight_complete_when_the_array_is_dropped() {
    let slow = || faulty(4096, vec![Fault::Delay { nanos: 5_000_000 }]);
    let array = common::shards::start(spec(Level::Raid0, 8, vec![slow(), slow()]), &options(16));
    let array = array.expect("an array");
    let writes: Vec<_> = (0..16).map(|at| array.write(array.lease(512), at * 512)).collect();
    let forgotten = array.flush();
    drop(array);
    for write in writes {
        write.wait().expect("ended well");
    }
    forgotten.expect("flushed");
}

#[test]
fn a_request_without_a_waiter_returns_its_lease() {
    let array = raid5();
    for at in 0..100 {
        let lease = array.lease(512);
        drop(array.write(lease, at * 512));
    }
    array.flush().expect("flushed");
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut all = Vec::new();
    while all.len() < 16 && Instant::now() < deadline {
        all.extend(array.try_lease(512));
    }
    assert_eq!(all.len(), 16);
}

#[test]
fn stopping_flushes_written_data() {
    let array = raid5();
    array.write_at(&[1; 4096], 0).expect("written");
    let before: u64 = array.leaf_counters().iter().map(|leaf| leaf.flushes).sum();
    array.flush().expect("flushed");
    let after: u64 = array.leaf_counters().iter().map(|leaf| leaf.flushes).sum();
    assert!(before == 0 && after > 0, "counters are those of now: {before}, {after}");
    array.stop().expect("flushed");
    // A flush that fails is the answer of `stop`.
    let dying = vec![faulty(4096, vec![Fault::Gone { after: 1 }])];
    let array =
        common::shards::start(spec(Level::Linear, 0, dying), &options(4)).expect("an array");
    array.write_at(&[1; 512], 0).expect("written");
    assert_eq!(array.stop(), Err(ArrayError::Request(RequestError::Io)));
}

#[test]
fn an_error_of_the_array_reaches_the_caller() {
    let bad = vec![Fault::ReadError { range: 0..4096 }, Fault::WriteError { range: 8192..8193 }];
    let members = vec![faulty(4096, bad)];
    let array =
        common::shards::start(spec(Level::Linear, 0, members), &options(4)).expect("an array");
    let io = Err(ArrayError::Request(RequestError::Io));
    assert_eq!(array.read_at(&mut [0; 512], 512), io);
    assert_eq!(array.write_at(&[0; 512], 8192), io);
    assert_eq!(array.write_zeroes(8192, 512), io);
    array.read_at(&mut [0; 512], 4096).expect("the rest is fine");
}

#[test]
fn impossible_arrays_are_refused_in_one_line() {
    let refusal = |level, chunk, members| {
        let error = common::shards::start(spec(level, chunk, members), &options(4)).err();
        let text = error.expect("a refusal").to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let missing = |count| (0..count).map(|_| MemberSpec::Missing { sectors: 4096 });
    assert!(refusal(Level::Raid5, 128, mems(1, 4096)).contains("at least"));
    assert!(refusal(Level::Raid5, 100, mems(3, 4096)).contains("chunk"));
    let members = missing(2).chain([mem(4096)]).collect();
    assert!(refusal(Level::Raid5, 128, members).contains("2 missing"));
    let members = missing(300).collect();
    assert!(refusal(Level::Raid1, 0, members).contains("300 members"));
    assert!(refusal(Level::Raid0, 128, missing(3).collect()).contains("missing"));
    let inner = MemberSpec::Array(spec(Level::Raid5, 128, mems(1, 4096)));
    assert!(refusal(Level::Raid1, 0, vec![inner]).contains("at least"));
}

#[test]
fn the_widest_array_works() {
    for level in [Level::Raid6, Level::Raid1, Level::Raid0] {
        let mut members = mems(255, 64);
        if level != Level::Raid0 {
            members[254] = MemberSpec::Missing { sectors: 64 };
            members[3] = MemberSpec::Missing { sectors: 64 };
        }
        let array = common::shards::start(spec(level, 8, members), &options(4)).expect("an array");
        let mut data = vec![0; (array.len_bytes() as usize).min(1 << 20)];
        Rng::new(7).fill(&mut data);
        array.write_at(&data, 0).expect("written");
        let mut back = vec![0; data.len()];
        array.read_at(&mut back, 0).expect("read");
        assert!(back == data, "{level}");
        assert_eq!(array.leaf_counters().len(), 255);
    }
}

testkit::repeat_in_shards! {
    requests_end_in_their_queue_by_their_number,
    blocking_calls_of_any_length,
    futures_of_any_executor,
    a_sleeping_array_wakes_for_a_request,
    unaligned_or_outside_requests_are_refused,
    nothing_can_be_read_anywhere,
    a_request_longer_than_the_engine_takes_is_refused,
    #[should_panic(expected = "of another array")] a_lease_of_another_array_is_refused,
    leases_that_are_all_out_are_waited_for,
    many_threads_and_a_failing_member,
    requests_in_flight_complete_when_the_array_is_dropped,
    a_request_without_a_waiter_returns_its_lease,
    stopping_flushes_written_data,
    an_error_of_the_array_reaches_the_caller,
    impossible_arrays_are_refused_in_one_line,
    the_widest_array_works,
}
