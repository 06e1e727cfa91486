//! Short requests that their callers run themselves while the array's thread sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use md::{Level, MemberIdx};
use raidlab_array::{
    Array, ArrayError, Completer, CompletionQueue, DriverOptions, Fault, HostOp, Lease, MemberSpec,
    RequestResult,
};
use testkit::{Rng, print_replay, seeds};

use crate::common::{faulty, mem, mems, spec};

const BLOCK: usize = 4096;
const LONG: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

fn start(level: Level, members: Vec<MemberSpec>) -> Array {
    let options = DriverOptions { leases: 32, lease_bytes: 128 << 10, ..DriverOptions::default() };
    Array::start(spec(level, 16, members), &options).expect("an array")
}

/// Results, each with the thread on which it came.
struct Answers(mpsc::Sender<(Result<Lease, ArrayError>, ThreadId)>);

impl CompletionQueue for Answers {
    fn complete(&self, _: u64, result: RequestResult) {
        let lease = result.map(|lease| lease.expect("its lease"));
        let _ = self.0.send((lease, std::thread::current().id()));
    }
}

/// The outcome of a request, and whether it was there when `request` returned.
fn request(array: &Array, op: HostOp, at: u64, lease: Lease) -> (Result<Lease, ArrayError>, bool) {
    let (answer, answers) = mpsc::channel();
    let to = Completer::new(Arc::new(Answers(answer)), 0);
    array.submit(op, at, 0, Some(lease), to);
    let (at_once, outcome) = match answers.try_recv() {
        Ok(outcome) => (true, outcome),
        Err(_) => (false, answers.recv_timeout(PATIENCE).expect("an answer")),
    };
    let here = std::thread::current().id();
    assert!(at_once || outcome.1 != here, "this thread was not in a call");
    (outcome.0, outcome.1 == here)
}

/// Whether a request of that length is ever run by its caller, in as many tries.
fn is_run_by_its_caller(array: &Array, bytes: usize, tries: u32) -> bool {
    (0..tries).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        let (outcome, ran_here) = request(array, HostOp::Read, 0, array.lease(bytes));
        outcome.expect("read");
        ran_here
    })
}

#[test]
fn a_caller_runs_its_short_request_while_the_thread_sleeps() {
    let array = start(Level::Raid5, mems(4, 4096));
    assert!(is_run_by_its_caller(&array, BLOCK, 5000), "in five seconds the thread never slept");
    assert!(!is_run_by_its_caller(&array, LONG, 50), "parity is for the array's thread");
    // Writes that wait become whole stripes.
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(1));
        let write = HostOp::Write { fua: false };
        let (outcome, ran_here) = request(&array, write, 0, array.lease(BLOCK));
        outcome.expect("written");
        assert!(!ran_here);
    }
    let nested = || MemberSpec::Array(spec(Level::Raid5, 16, mems(3, 4096)));
    let array = start(Level::Raid0, vec![nested(), nested()]);
    assert!(is_run_by_its_caller(&array, BLOCK, 5000), "in five seconds the thread never slept");
    assert!(!is_run_by_its_caller(&array, LONG, 50), "there is parity below");
    let array = start(Level::Raid0, mems(4, 4096));
    assert!(is_run_by_its_caller(&array, LONG, 5000), "it is one copy");
    array.stop().expect("stopped");
}

/// Every thread writes and reads its own part, in requests that are run by either.
#[test]
fn callers_and_the_thread_take_turns() {
    for seed in seeds(3) {
        print_replay!("callers_and_the_thread_take_turns", seed);
        let array =
            start([Level::Raid0, Level::Raid1, Level::Raid6][seed as usize % 3], mems(5, 8192));
        let redundant = array.geometry().level() != Level::Raid0;
        let part = array.len_bytes() / 4 / BLOCK as u64;
        let ran_here = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (array, ran_here) = (&array, &ran_here);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 100 + thread);
                    for round in 0..400 {
                        let blocks = if rng.below(4) == 0 { 16 } else { 1 + rng.below(4) };
                        let at = (thread * part + rng.below(part - 16)) * BLOCK as u64;
                        let mut lease = array.lease(blocks as usize * BLOCK);
                        rng.fill(lease.bytes_mut());
                        let written = lease.bytes().to_vec();
                        let fua = rng.below(8) == 0;
                        let (outcome, here) = request(array, HostOp::Write { fua }, at, lease);
                        let mut lease = outcome.expect("written");
                        lease.bytes_mut().fill(0);
                        let (outcome, also) = request(array, HostOp::Read, at, lease);
                        assert!(outcome.expect("read").bytes() == written, "{round}: at {at}");
                        ran_here.fetch_add(u64::from(here) + u64::from(also), Ordering::Relaxed);
                        if redundant && thread == 0 && round == 200 {
                            array.fail_member(MemberIdx(1));
                        }
                    }
                });
            }
        });
        assert_eq!(array.failed().len(), usize::from(redundant));
        println!("run by their callers: {} of 3200", ran_here.load(Ordering::Relaxed));
        array.stop().expect("stopped");
    }
}

/// The caller begins the request and leaves; the thread, which slept for a second, ends it.
#[test]
fn a_request_that_its_caller_cannot_end_is_ended_by_the_thread() {
    let delay = Fault::Delay { nanos: 2_000_000 };
    let members = vec![faulty(4096, vec![delay.clone()]), faulty(4096, vec![delay]), mem(4096)];
    let array = start(Level::Raid5, members);
    let begun = Instant::now();
    for round in 0..40_u64 {
        let mut lease = array.lease(BLOCK);
        lease.bytes_mut().fill(round as u8);
        let at = round * 3 * BLOCK as u64;
        let (outcome, _) = request(&array, HostOp::Write { fua: false }, at, lease);
        let (outcome, _) = request(&array, HostOp::Read, at, outcome.expect("written"));
        assert!(outcome.expect("read").bytes().iter().all(|byte| *byte == round as u8));
        std::thread::sleep(Duration::from_millis(1));
    }
    // One that waited for the thread's sleep to end would take half a second on average.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// Each end of a request submits the next one.
struct Chain {
    array: Array,
    left: AtomicU64,
    end: mpsc::Sender<()>,
    itself: Mutex<Option<Arc<Chain>>>,
}

impl Chain {
    fn next(self: &Arc<Chain>, lease: Lease) {
        self.array.submit(HostOp::Read, 0, 0, Some(lease), Completer::new(self.clone(), 0));
    }
}

impl CompletionQueue for Chain {
    fn complete(&self, _: u64, result: RequestResult) {
        let lease = result.expect("read").expect("its lease");
        let mut itself = self.itself.lock().expect("no panic while it is locked");
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 | 1 => {
                *itself = None;
                let _ = self.end.send(());
            }
            _ => {
                let again = itself.clone().expect("it is not over");
                drop(itself);
                again.next(lease);
            }
        }
    }
}

#[test]
fn queues_that_submit_requests_do_not_nest() {
    let (end, ended) = mpsc::channel();
    let array = start(Level::Raid0, mems(2, 4096));
    let (left, itself) = (AtomicU64::new(200_000), Mutex::default());
    let chain = Arc::new(Chain { array, left, end, itself });
    *chain.itself.lock().expect("no panic while it is locked") = Some(chain.clone());
    // A stack that would not hold them.
    let first = chain.clone();
    let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
        first.next(first.array.lease(BLOCK));
        first
    });
    let first = thread.expect("a thread").join().expect("it does not overflow");
    ended.recv_timeout(PATIENCE).expect("the last");
    // The array ends here, not in a callback.
    while Arc::strong_count(&first) > 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
}
