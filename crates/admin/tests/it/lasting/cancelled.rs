//! Background work that is cancelled, on devices with metadata: the superblocks record how far it
//! has come, and it begins again by order, or at the next start.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{BackgroundState, BackgroundWork, Driver, DriverOptions, Pace};
use engine::MetadataStatus;
use host::{Access, Device, DeviceOptions, Location};
use md::assemble::Options;
use md::ondisk::MemberMetadata;
use md::{Level, MemberIdx};
use raidlab_admin::{Opened, StartOptions, start_rebuilding};

use super::support::{Members, SECTORS, contents, decide, pattern, small};

const PATIENCE: Duration = Duration::from_secs(60);
/// A range or two at a time, far below a sixteenth of a member.
const SLOW: Pace = Pace { foreground_share: 0, least_kib_per_s: 0, most_kib_per_s: Some(2048) };

fn started(members: &Members, pace: Pace) -> Driver {
    let opened = members.opened(Access::ReadWrite);
    let array = decide(&opened, &Options::default());
    let driver = DriverOptions { pace, ..small() };
    let options = StartOptions { driver, ..StartOptions::default() };
    let (mut shards, _) = start_rebuilding(&array, &opened, &[], false, &options).expect("started");
    shards.pop().expect("one shard")
}

fn poll_until(driver: &mut Driver, what: &str, is_so: impl Fn(&Driver) -> bool) {
    let (start, mut done) = (Instant::now(), Vec::new());
    while !is_so(driver) {
        assert!(start.elapsed() < PATIENCE, "{what}: {:?}", driver.metadata());
        driver.poll(&mut done);
        driver.wait(Duration::from_millis(2), None);
    }
}

fn status(driver: &Driver) -> MetadataStatus {
    driver.metadata().expect("it has metadata")
}

/// Cancels the only work, and waits until it is at rest and its position is in all superblocks of
/// which `recorded` gives one.
fn cancel(
    driver: &mut Driver,
    members: &Members,
    work: BackgroundWork,
    recorded: impl Fn(&MemberMetadata) -> Option<u64>,
) -> u64 {
    poll_until(driver, "it begins", |driver| driver.background_done(work) > 0);
    driver.cancel_background(work);
    poll_until(driver, "it is at rest", |driver| {
        let all = driver.background();
        all.len() == 1 && all[0].work == work && all[0].state == BackgroundState::Cancelled
    });
    let position = driver.background()[0].progress.position;
    poll_until(driver, "it is recorded", |_| {
        let all = (0..members.count).filter_map(|at| superblock(members, at));
        all.filter_map(|own| recorded(&own)).any(|recorded| recorded == position)
    });
    position
}

/// What the superblock of a member that is in use says; `None`: it is being written.
fn superblock(members: &Members, at: usize) -> Option<MemberMetadata> {
    let mut head = vec![0; 64 << 10];
    let member = std::fs::File::open(members.path(at)).expect("a file");
    member.read_exact_at(&mut head, 0).expect("read");
    let copy = members.dir.path().join("copy");
    std::fs::write(&copy, &head).expect("written");
    let file = std::fs::OpenOptions::new().write(true).open(&copy).expect("a file");
    file.set_len(SECTORS * 512).expect("enlarged");
    let options = DeviceOptions { access: Access::ReadOnly, direct: false };
    let copy = Device::open(&Location::whole(copy), options).expect("a device");
    let opened = Opened::device(Arc::new(copy))?;
    opened.checksum.is_correct().then(|| opened.superblock.metadata())
}

#[test]
fn a_resync_that_is_cancelled_is_recorded_and_begins_again() {
    let members = Members::new(3);
    members.create(Level::Raid5, |_| {});
    let mut driver = started(&members, SLOW);
    let work = BackgroundWork::Resync;
    let position = cancel(&mut driver, &members, work, |own| own.resync_offset);
    let far = SECTORS / 16;
    assert!(0 < position && position < far, "{position}: recorded without being cancelled");
    assert!(!driver.is_resyncing());
    // As after a crash: nothing but what is recorded is there.
    drop(driver);
    let mut driver = started(&members, SLOW);
    assert_eq!(status(&driver).resync_offset, Some(position));
    let further = cancel(&mut driver, &members, work, |own| own.resync_offset);
    assert!(further > position);
    driver.set_pace(Pace::default());
    assert!(driver.begin_background(work));
    poll_until(&mut driver, "the resync ends", |driver| status(driver).resync_offset.is_none());
    assert!(driver.stop());
}

#[test]
fn a_rebuild_that_is_cancelled_is_recorded_and_holds_no_other_work() {
    for level in [Level::Raid1, Level::Raid5] {
        let count = if level == Level::Raid1 { 2 } else { 3 };
        let members = Members::new(count + 1);
        members.create(level, |request| {
            request.raid_devices = count;
            request.assume_clean = true;
        });
        let array = array::Array::run(started(&members, Pace::default())).expect("a thread");
        let data = pattern(3, array.len_bytes() as usize);
        array.write_at(&data, 0).expect("written");
        array.stop().expect("stopped clean");
        let mut driver = started(&members, SLOW);
        driver.fail_member(MemberIdx(0));
        let work = BackgroundWork::Rebuild;
        let position = cancel(&mut driver, &members, work, |own| own.recovery_offset);
        assert!(0 < position && position < SECTORS / 16, "{level}: {position}");
        assert!(!driver.has_rebuilds_to_do() && driver.lacking().contains(0), "{level}");
        drop(driver);
        // The member that has failed is left out, as its superblock says.
        let mut driver = started(&members, SLOW);
        assert_eq!(status(&driver).rebuild_sectors.1, 0, "{level}: counted from the start");
        let further = cancel(&mut driver, &members, work, |own| own.recovery_offset);
        assert!(further > position, "{level}: {further} and {position}");
        driver.set_pace(Pace::default());
        assert!(driver.begin_background(work));
        poll_until(&mut driver, "it is rebuilt", |driver| driver.lacking().is_empty());
        assert!(driver.stop(), "{level}");
        drop(driver);
        assert!(contents(&members, &[0, 1]) == data, "{level}");
    }
}
