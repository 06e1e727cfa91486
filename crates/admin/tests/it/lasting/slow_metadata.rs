//! Devices whose metadata writes take long, or never return.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use array::{
    Array, ArrayError, Completer, CompletionQueue, DriverOptions, Event, HostOp, RequestResult,
};
use engine::{MemberError, MemberOp};
use host::{Access, Device, Disk, DiskLayer};
use md::assemble::Options;
use md::create::BitmapOption;
use md::{Level, MemberIdx};
use raidlab_admin::{Opened, StartOptions};

use super::support::{Members, decide, failures, run, small};

/// Longest wait for a step of a test; on failure the gates are opened, so that the test ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// A device whose `sync` blocks while it is closed.
struct Gate {
    device: Arc<Device>,
    panics: AtomicBool,
    closed: Mutex<bool>,
    changed: Condvar,
    /// Calls of `sync` that are blocked.
    blocked: AtomicUsize,
}

impl Gate {
    fn new(device: Arc<Device>) -> Arc<Gate> {
        let (closed, changed) = (Mutex::new(false), Condvar::new());
        let (panics, blocked) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Gate { device, panics, closed, changed, blocked })
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) > 0
    }
}

impl DiskLayer for Gate {
    fn below(&self) -> &dyn Disk {
        &*self.device
    }

    fn sync(&self) -> std::io::Result<()> {
        assert!(!self.panics.load(Ordering::SeqCst), "the test asks for a panic");
        let mut closed = self.closed.lock().unwrap();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        while *closed {
            closed = self.changed.wait(closed).unwrap();
        }
        self.blocked.fetch_sub(1, Ordering::SeqCst);
        drop(closed);
        self.device.sync()
    }
}

struct Gated {
    _members: Members,
    gates: Vec<Arc<Gate>>,
    array: Arc<Array>,
}

/// A new array over gates, which are open.
fn members(level: Level, count: usize, bitmap: BitmapOption) -> (Members, Vec<Arc<Gate>>) {
    let members = Members::new(count);
    members.create(level, |request| {
        request.assume_clean = true;
        request.bitmap = bitmap;
    });
    let devices = members.devices(Access::ReadWrite);
    devices.iter().for_each(clear_bitmap);
    (members, devices.into_iter().map(Gate::new).collect())
}

fn opened(gates: &[Arc<Gate>]) -> Vec<Opened> {
    gates.iter().map(|gate| Opened::disk(gate.clone()).expect("superblock")).collect()
}

/// Sends on how a request ended.
struct Ended(mpsc::Sender<Result<(), ArrayError>>);

impl CompletionQueue for Ended {
    fn complete(&self, _: u64, result: RequestResult) {
        let _ = self.0.send(result.map(drop));
    }
}

impl Gated {
    fn start(level: Level, count: usize, bitmap: BitmapOption) -> Gated {
        let (members, gates) = members(level, count, bitmap);
        let array = Arc::new(run(&opened(&gates)));
        Gated { _members: members, gates, array }
    }

    /// Opens all gates when the test ends, also by a panic: the array could not be dropped.
    fn guard(&self) -> impl Drop + use<> {
        struct Open(Vec<Arc<Gate>>);
        impl Drop for Open {
            fn drop(&mut self) {
                self.0.iter().for_each(|gate| gate.set(false));
            }
        }
        Open(self.gates.clone())
    }

    fn write_to(&self, offset: u64) -> mpsc::Receiver<Result<(), ArrayError>> {
        let (done, ended) = mpsc::channel();
        let to = Completer::new(Arc::new(Ended(done)), 0);
        let lease = self.array.lease(4096);
        self.array.submit(HostOp::Write { fua: false }, offset, 0, Some(lease), to);
        ended
    }

    fn stop(self) {
        let array = Arc::into_inner(self.array).expect("no thread uses it any more");
        array.stop().unwrap();
    }
}

/// Clears the bitmap of a new member, where all bits are set: its data are in sync.
fn clear_bitmap(device: &Arc<Device>) {
    let opened = Opened::device(device.clone()).expect("superblock");
    let Some(area) = opened.superblock.metadata().bitmap else { return };
    let mut page = vec![0; 4096];
    device.read(area.sector, &mut page).unwrap();
    page[256..].fill(0);
    device.write(area.sector, &page).unwrap();
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The result of a call on another thread, which may block for ever.
fn within<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || drop(done.send(call())));
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} does not complete"))
}

#[test]
fn reads_complete_while_metadata_are_written() {
    let gated = Gated::start(Level::Raid5, 3, BitmapOption::None);
    let open = gated.guard();
    gated.gates.iter().for_each(|gate| gate.set(true));
    let written = gated.write_to(0);
    until("a metadata write", || gated.gates.iter().any(|gate| gate.is_blocked()));
    for at in 0..8 {
        let array = gated.array.clone();
        let read = within("a read", move || array.read_at(&mut [0; 4096], at * 32768));
        read.unwrap();
    }
    // The records of different devices are written side by side.
    until("the other metadata writes", || gated.gates.iter().all(|gate| gate.is_blocked()));
    assert!(written.try_recv().is_err(), "a write waits for its intent");
    drop(open);
    written.recv_timeout(PATIENCE).expect("it ends").unwrap();
    gated.stop();
}

#[test]
fn a_device_that_hangs_stops_only_what_depends_on_its_metadata_until_it_is_failed() {
    let bitmap = BitmapOption::Internal { chunk_bytes: Some(65536) };
    let gated = Gated::start(Level::Raid1, 2, bitmap);
    let open = gated.guard();
    // Writes without a pause keep their intent.
    let (ending, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writer = {
        let (array, ending, count) = (gated.array.clone(), ending.clone(), count.clone());
        std::thread::spawn(move || {
            while !ending.load(Ordering::SeqCst) {
                array.write_at(&[7; 4096], 0).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    until("a write", || count.load(Ordering::SeqCst) > 0);
    gated.gates[1].set(true);
    let written = gated.write_to(4 << 20);
    until("a metadata write", || gated.gates[1].is_blocked());
    let before = count.load(Ordering::SeqCst);
    until("writes with an intent", || count.load(Ordering::SeqCst) > before + 10);
    let array = gated.array.clone();
    within("a read", move || array.read_at(&mut [0; 4096], 4 << 20)).unwrap();
    assert!(written.try_recv().is_err(), "its bit is not on device 1");
    let array = gated.array.clone();
    within("the failure of the device", move || array.fail_member(MemberIdx(1)));
    written.recv_timeout(PATIENCE).expect("it needs the device no longer").unwrap();
    ending.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    // A stop waits for the operation in flight.
    drop(open);
    let events = gated.array.take_events();
    assert_eq!(events, [Event::MemberFailed { member: MemberIdx(1), error: None }]);
    gated.stop();
}

#[test]
fn a_device_whose_metadata_write_does_not_complete_in_time_fails_and_is_left_behind() {
    let (_members, gates) = members(Level::Raid1, 2, BitmapOption::None);
    let opened = opened(&gates);
    let array = decide(&opened, &Options::default());
    let limit = Duration::from_secs(1);
    let driver = DriverOptions { member_timeout: Some(limit), ..small() };
    let options = StartOptions { driver, ..StartOptions::default() };
    let mut driver = raidlab_admin::start(&array, &opened, &options).unwrap();
    gates[1].set(true);
    let (start, mut done) = (Instant::now(), Vec::new());
    let lease = driver.leases().take(4096);
    driver.submit(HostOp::Write { fua: false }, md::Sector(0), 8, lease, 1).unwrap();
    while done.is_empty() {
        assert!(start.elapsed() < PATIENCE, "the write never completes");
        driver.poll(&mut done);
        driver.wait(Duration::from_millis(10), None);
    }
    assert_eq!(done[0].result, Ok(()));
    assert!(start.elapsed() >= limit && gates[1].is_blocked());
    let events = driver.take_events();
    let [Event::MemberFailed { member: MemberIdx(1), error: Some(error) }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((error.kind, error.op), (MemberError::Timeout, MemberOp::Metadata));
    let notes = driver.take_notes();
    let named = |note: &String| note.contains("metadata write: no completion within 1 s");
    assert!(notes.iter().any(named), "{notes:?}");
    assert!(driver.stop(), "the other member has all that it needs");
    let start = Instant::now();
    drop(driver);
    assert!(start.elapsed() < PATIENCE && gates[1].is_blocked(), "nothing waits for the device");
    gates[1].set(false);
}

/// A driver on the clock of the test, with a write whose intent is not durable before the gates of
/// these devices are open.
fn waiting_for(gates: &[Arc<Gate>], closed: std::ops::Range<usize>) -> array::Driver {
    let opened = opened(gates);
    let array = decide(&opened, &Options::default());
    let mut driver = raidlab_admin::start(&array, &opened, &StartOptions::default()).unwrap();
    gates[closed.clone()].iter().for_each(|gate| gate.set(true));
    let lease = driver.leases().take(4096);
    driver.submit(HostOp::Write { fua: false }, md::Sector(0), 8, lease, 1).unwrap();
    driver.poll(&mut Vec::new());
    until("the metadata writes", || gates[closed.clone()].iter().all(|gate| gate.is_blocked()));
    driver
}

/// Polls until the write has ended, without letting the driver's clock run.
fn ends_well(driver: &mut array::Driver) {
    let (start, mut done) = (Instant::now(), Vec::new());
    while done.is_empty() {
        assert!(start.elapsed() < PATIENCE, "the write never completes");
        driver.poll(&mut done);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(done[0].result, Ok(()));
    assert_eq!(driver.take_events(), []);
}

/// The driver's thread does not run for this long.
fn pass(time: Duration) {
    assert!(host::sys::skip_to(None, host::sys::clock_nanos() + time.as_nanos() as u64));
}

#[test]
fn time_in_which_the_process_was_stopped_is_not_that_of_a_metadata_write() {
    let _clock = host::sys::ModelClock::start();
    for closed in [1..2, 0..2] {
        let (_members, gates) = members(Level::Raid1, 2, BitmapOption::None);
        let mut driver = waiting_for(&gates, closed);
        pass(Duration::from_secs(35));
        driver.poll(&mut Vec::new());
        assert_eq!(driver.take_events(), [], "the thread had no time to report it");
        gates.iter().for_each(|gate| gate.set(false));
        ends_well(&mut driver);
    }
}

#[test]
fn metadata_writes_that_are_all_late_have_a_second_more_and_no_longer() {
    let _clock = host::sys::ModelClock::start();
    let half_seconds = |driver: &mut array::Driver, count: u32| {
        for _ in 0..count {
            pass(Duration::from_millis(500));
            driver.poll(&mut Vec::new());
        }
        driver.take_events()
    };
    let (_members, gates) = members(Level::Raid1, 2, BitmapOption::None);
    let mut driver = waiting_for(&gates, 0..2);
    assert_eq!(half_seconds(&mut driver, 61), []);
    gates.iter().for_each(|gate| gate.set(false));
    ends_well(&mut driver);
    drop(driver);

    // One of two fails after 30 s (or as both, where the other one takes as long in real time), two
    // after 31.
    for (closed, count) in [(1..2, 60), (0..2, 62)] {
        let (_members, gates) = members(Level::Raid1, 2, BitmapOption::None);
        let mut driver = waiting_for(&gates, closed);
        assert_eq!(half_seconds(&mut driver, count - 1), []);
        let events = half_seconds(&mut driver, 64 - count);
        let timed_out = |event: &Event| {
            let Event::MemberFailed { error: Some(error), .. } = event else { return false };
            error.kind == MemberError::Timeout
        };
        assert!(events.iter().any(timed_out), "{events:?}");
        gates.iter().for_each(|gate| gate.set(false));
    }
}

#[test]
fn a_panic_in_a_metadata_write_fails_the_device() {
    let gated = Gated::start(Level::Raid1, 2, BitmapOption::None);
    gated.gates[1].panics.store(true, Ordering::SeqCst);
    gated.array.write_at(&[1; 4096], 0).unwrap();
    assert_eq!(failures(&gated.array), [(MemberIdx(1), Some(MemberError::Gone))]);
    gated.stop();
}

#[test]
fn a_driver_without_a_thread_is_woken_by_metadata_writes_and_waits_for_them_when_dropped() {
    let (_members, gates) = members(Level::Raid5, 3, BitmapOption::None);
    let opened = opened(&gates);
    let array = decide(&opened, &Options::default());
    let mut driver = raidlab_admin::start(&array, &opened, &StartOptions::default()).unwrap();
    let (start, mut done) = (Instant::now(), Vec::new());
    let lease = driver.leases().take(4096);
    driver.submit(HostOp::Write { fua: false }, md::Sector(0), 8, lease, 1).unwrap();
    while done.is_empty() {
        driver.poll(&mut done);
        driver.wait(3 * PATIENCE, None);
    }
    assert!(start.elapsed() < PATIENCE, "nothing else wakes it");
    // The array is marked clean after a pause: that is in flight when the driver is dropped.
    gates.iter().for_each(|gate| gate.set(true));
    while !gates.iter().all(|gate| gate.is_blocked()) {
        driver.poll(&mut done);
        driver.wait(Duration::from_millis(10), None);
        assert!(start.elapsed() < 2 * PATIENCE, "metadata writes");
    }
    let dropping = std::thread::spawn(move || drop(driver));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!dropping.is_finished(), "a late write could hit an array that runs again");
    gates.iter().for_each(|gate| gate.set(false));
    dropping.join().unwrap();
}

testkit::repeat_in_shards! {
    reads_complete_while_metadata_are_written,
    a_device_that_hangs_stops_only_what_depends_on_its_metadata_until_it_is_failed,
    a_device_whose_metadata_write_does_not_complete_in_time_fails_and_is_left_behind,
    time_in_which_the_process_was_stopped_is_not_that_of_a_metadata_write,
    metadata_writes_that_are_all_late_have_a_second_more_and_no_longer,
    a_panic_in_a_metadata_write_fails_the_device,
    a_driver_without_a_thread_is_woken_by_metadata_writes_and_waits_for_them_when_dropped,
}
