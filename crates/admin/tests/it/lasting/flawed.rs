//! Members whose writes fail: in their metadata or in their data, for ever or for now.

use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use array::{Array, ArrayError, Event, RequestError};
use engine::{MemberError, MemberOp};
use host::{Access, Device, Disk, DiskLayer};
use md::assemble::{Options, Verdict};
use md::create::BitmapOption;
use md::{Level, MemberIdx};
use raidlab_admin::Opened;
use rustix::io::Errno;

use super::support::{Members, SECTORS, contents, decide, failures, run, wait_for};

/// A device of which a test can make a range unwritable.
pub struct Flawed {
    pub device: Arc<Device>,
    /// First sector, the one behind the last, and the error.
    pub flaw: Mutex<Option<(u64, u64, Errno)>>,
    /// The next sync fails; the one after it ends well, as the kernel has it.
    pub sync_fails: AtomicBool,
    pub logical_block: u32,
    /// All that was written in front of the data, in order: first sector and bytes.
    pub metadata: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Flawed {
    pub fn new(device: Arc<Device>) -> Flawed {
        let (flaw, sync_fails) = (Mutex::new(None), AtomicBool::new(false));
        let (logical_block, metadata) = (device.logical_block(), Mutex::default());
        Flawed { device, flaw, sync_fails, logical_block, metadata }
    }

    pub fn mend(&self) {
        *self.flaw.lock().unwrap() = None;
    }

    pub fn check(&self, range: Range<u64>) -> std::io::Result<()> {
        match *self.flaw.lock().unwrap() {
            Some((start, end, error)) if range.start < end && start < range.end => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }
}

impl DiskLayer for Flawed {
    fn below(&self) -> &dyn Disk {
        &*self.device
    }

    fn logical_block(&self) -> u32 {
        self.logical_block
    }

    fn write(&self, sector: u64, buf: &[u8]) -> std::io::Result<()> {
        self.check(sector..sector + buf.len() as u64 / 512)?;
        if sector < 128 {
            self.metadata.lock().unwrap().push((sector, buf.to_vec()));
        }
        self.device.write(sector, buf)
    }

    fn write_zeroes(&self, range: Range<u64>) -> std::io::Result<()> {
        self.check(range.clone())?;
        self.device.write_zeroes(range)
    }

    fn sync(&self) -> std::io::Result<()> {
        if self.sync_fails.swap(false, Ordering::SeqCst) {
            return Err(Errno::IO.into());
        }
        self.device.sync()
    }
}

/// An array of which member 1 is flawed in its metadata or in its data.
pub fn flawed(members: &Members, data: bool, error: Errno) -> (Array, Arc<Flawed>) {
    let mut opened = members.opened(Access::ReadWrite);
    let device = opened[1].device.clone().expect("a device");
    let flawed = Arc::new(Flawed::new(device));
    opened[1] = Opened::disk(flawed.clone()).expect("superblock");
    let data_offset = opened[1].superblock.metadata().data_offset;
    let range = if data { (data_offset, SECTORS) } else { (0, data_offset) };
    *flawed.flaw.lock().unwrap() = Some((range.0, range.1, error));
    (run(&opened), flawed)
}

#[test]
fn a_member_that_fails_a_write_is_named_with_sector_and_errno() {
    let members = Members::new(3);
    members.create_clean(Level::Raid5);
    let opened = members.opened(Access::ReadWrite);
    let data_offset = opened[1].superblock.metadata().data_offset;
    drop(opened);
    let (array, flawed) = flawed(&members, true, Errno::NODEV);
    (0..8).for_each(|chunk| array.write_at(&[1; 4096], chunk << 16).unwrap());
    let [Event::MemberFailed { member: MemberIdx(1), error: Some(error) }] =
        array.take_events()[..]
    else {
        panic!("one member has failed");
    };
    assert_eq!((error.op, error.sectors), (MemberOp::Write, 8));
    assert_eq!((error.kind, error.errno), (MemberError::Gone, NonZeroU16::new(19)));
    let expected = format!(
        "{} (device 1) is out of service: write of 8 sectors at sector {}: ENODEV (No such \
         device).",
        flawed.name(),
        error.sector.0 + data_offset
    );
    let notes = array.take_notes();
    assert!(notes.contains(&expected), "{notes:?}");
    array.stop().unwrap();
}

#[test]
fn a_member_that_is_lost_by_its_metadata_is_an_event_and_a_note() {
    let members = Members::new(3);
    members.create_clean(Level::Raid5);
    let (array, _) = flawed(&members, false, Errno::IO);
    array.write_at(&[1; 8192], 0).unwrap();
    assert_eq!(failures(&array), [(MemberIdx(1), Some(MemberError::Medium))]);
    let notes = array.take_notes();
    assert!(
        notes.len() == 2 && notes[0].contains("m1: its metadata cannot be written"),
        "{notes:?}"
    );
    let why = "m1 (device 1) is out of service: metadata write: EIO (Input/output error).";
    assert!(notes[1].ends_with(why), "{notes:?}");
    // A member dropped by a shard is reported once, too.
    drop(array);
    let members = Members::new(3);
    members.create_clean(Level::Raid5);
    let array = run(&members.opened(Access::ReadWrite));
    array.fail_member(MemberIdx(2));
    array.write_at(&[1; 8192], 0).unwrap();
    let failed = Event::MemberFailed { member: MemberIdx(2), error: None };
    assert_eq!(array.take_events(), [failed]);
    array.stop().unwrap();
}

#[test]
fn a_member_without_room_for_metadata_costs_a_write_and_not_its_place() {
    for bitmap in [BitmapOption::None, BitmapOption::Internal { chunk_bytes: Some(65536) }] {
        let members = Members::new(3);
        members.create(Level::Raid5, |request| {
            request.assume_clean = true;
            request.bitmap = bitmap;
        });
        let (array, flawed) = flawed(&members, false, Errno::NOSPC);
        let full = ArrayError::Request(RequestError::NoSpace);
        for _ in 0..3 {
            assert_eq!(array.write_at(&[1; 8192], 0), Err(full.clone()));
        }
        let mut bytes = [1; 8192];
        array.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes, array.failed().len()), ([0; 8192], 0));
        flawed.mend();
        array.write_at(&[2; 8192], 0).unwrap();
        array.stop().unwrap();
        drop(flawed);
        let opened = members.opened(Access::ReadOnly);
        assert_eq!(decide(&opened, &Options::default()).read_write.verdict, Verdict::Run);
        assert!(opened.iter().all(|o| o.superblock.metadata().resync_offset.is_none()), "clean");
        assert!(contents(&members, &[2])[..8192] == [2; 8192]);
    }
}

#[test]
fn a_resync_without_space_says_why_and_resumes_when_there_is_room() {
    for level in [Level::Raid1, Level::Raid5] {
        let members = Members::new(if level == Level::Raid1 { 2 } else { 3 });
        members.create(level, |_| {});
        let file = std::fs::OpenOptions::new().write(true).open(members.path(0)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x33; 1 << 19], 10 << 20).unwrap();
        let (array, flawed) = flawed(&members, true, Errno::NOSPC);
        let stalls = |status: &engine::MetadataStatus| status.resync_stalled.is_some();
        wait_for(&array, "stall", stalls);
        let status = array.metadata().unwrap();
        assert!(status.resync_offset.is_some(), "{status:?}");
        let notes = array.take_notes();
        let stalled = |note: &&String| note.contains("resync is stalled: no space left");
        assert_eq!(notes.iter().filter(stalled).count(), 1, "{notes:?}");
        flawed.mend();
        wait_for(&array, "room", |status| status.resync_offset.is_none());
        assert_eq!(array.metadata().unwrap().resync_stalled, None);
        array.stop().unwrap();
        drop(flawed);
        let all = contents(&members, &[]);
        for lost in 0..members.count {
            assert!(contents(&members, &[lost]) == all, "{level} without {lost}");
        }
    }
}

#[test]
fn a_flush_that_fails_on_the_last_member_leaves_the_array_unclean() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    let (array, flawed) = flawed(&members, false, Errno::IO);
    flawed.mend();
    array.fail_member(MemberIdx(0));
    array.write_at(&[1; 8192], 0).unwrap();
    flawed.sync_fails.store(true, Ordering::SeqCst);
    assert_eq!(array.flush(), Err(ArrayError::Request(RequestError::Io)));
    array.flush().unwrap();
    assert_eq!(array.stop(), Err(ArrayError::Unclean));
    drop(flawed);
    let opened = members.opened(Access::ReadOnly);
    assert_eq!(opened[1].superblock.state().resync_offset, Some(0), "in sync nowhere");
}

testkit::repeat_in_shards! {
    a_member_that_fails_a_write_is_named_with_sector_and_errno,
    a_member_that_is_lost_by_its_metadata_is_an_event_and_a_note,
    a_member_without_room_for_metadata_costs_a_write_and_not_its_place,
    a_resync_without_space_says_why_and_resumes_when_there_is_room,
    a_flush_that_fails_on_the_last_member_leaves_the_array_unclean,
}
