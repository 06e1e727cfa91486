//! Member files that are cut short, and disks that are pulled.

use std::sync::Arc;

use array::{Array, ArrayError, RequestError};
use engine::MemberError;
use host::{Access, Device, DeviceOptions, Location};
use md::ondisk::Version;
use md::{Level, MemberIdx};
use raidlab_admin::Opened;
use testkit::Loop;

use super::support::{Members, failures, pattern, run};

/// One of the blocks that `Written` keeps account of, in bytes.
const BLOCK: u64 = 16 << 10;

/// What was written over and over, at random, with the seed of each block.
struct Written {
    seeds: Vec<u64>,
    rng: u64,
}

impl Written {
    fn all_of(array: &Array) -> Written {
        let blocks = array.len_bytes() / BLOCK;
        let mut written = Written { seeds: vec![0; blocks as usize], rng: 1 };
        for at in 0..blocks {
            written.write(array, at).unwrap();
        }
        array.flush().unwrap();
        written
    }

    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    fn write(&mut self, array: &Array, at: u64) -> Result<(), ArrayError> {
        let seed = self.random();
        array.write_at(&pattern(seed, BLOCK as usize), at * BLOCK)?;
        self.seeds[at as usize] = seed;
        Ok(())
    }

    fn write_some(&mut self, array: &Array, count: usize) {
        for _ in 0..count {
            let at = self.random() % self.seeds.len() as u64;
            self.write(array, at).unwrap();
        }
    }

    fn check(&self, array: &Array) {
        let mut bytes = vec![0; BLOCK as usize];
        for (at, seed) in (0..).zip(&self.seeds) {
            array.read_at(&mut bytes, at * BLOCK).unwrap();
            assert!(bytes == pattern(*seed, BLOCK as usize), "block {at}");
        }
    }
}

#[test]
fn a_member_file_that_is_cut_short_is_gone_and_nothing_is_written_behind_the_cut() {
    for (level, count, version, direct) in [
        (Level::Raid5, 4, Version::V1_2, false),
        (Level::Raid5, 4, Version::V1_0, true),
        (Level::Raid1, 2, Version::V1_2, true),
        (Level::Raid1, 2, Version::V1_0, false),
    ] {
        let members = Members::new(count);
        members.create(level, |request| {
            request.assume_clean = true;
            request.version = version;
        });
        let opened: Vec<Opened> = (0..count)
            .map(|number| {
                let options = DeviceOptions { access: Access::ReadWrite, direct };
                let device = Device::open(&Location::whole(members.path(number)), options).unwrap();
                Opened::device(Arc::new(device)).expect("superblock")
            })
            .collect();
        let array = run(&opened);
        let mut written = Written::all_of(&array);
        let cut = 6 << 20;
        let file = std::fs::File::options().write(true).open(members.path(1)).unwrap();
        file.set_len(cut).unwrap();
        let context = format!("{level:?} {version:?} {direct}");
        // The last block comes first: the file would be as long as before.
        written.write(&array, array.len_bytes() / BLOCK - 1).unwrap();
        written.write_some(&array, 300);
        written.check(&array);
        assert_eq!(failures(&array), [(MemberIdx(1), Some(MemberError::Gone))], "{context}");
        array.stop().unwrap();
        assert_eq!(file.metadata().unwrap().len(), cut, "{context}");
        drop(opened);
    }
}

#[test]
fn a_cut_that_reads_meet_first_is_no_bad_sector() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    let written = Written::all_of(&array);
    let file = std::fs::File::options().write(true).open(members.path(0)).unwrap();
    file.set_len(6 << 20).unwrap();
    for _ in 0..3 {
        written.check(&array);
    }
    assert_eq!(failures(&array), [(MemberIdx(0), Some(MemberError::Gone))]);
    array.stop().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 6 << 20);
}

#[test]
fn without_redundancy_a_cut_is_an_error_and_the_file_stays_as_short() {
    let members = Members::new(2);
    members.create(Level::Raid0, |_| {});
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    let last = array.len_bytes() - 4096;
    array.write_at(&[1; 4096], last).unwrap();
    let files = [0, 1].map(|number| {
        let file = std::fs::File::options().write(true).open(members.path(number)).unwrap();
        file.set_len(6 << 20).unwrap();
        file
    });
    for at in [last, last - (64 << 10), last] {
        let error = array.write_at(&[2; 4096], at).unwrap_err();
        assert!(matches!(error, ArrayError::Request(RequestError::Io)), "{error:?}");
    }
    assert!(array.read_at(&mut [0; 4096], last).is_err());
    assert!(files.iter().all(|file| file.metadata().unwrap().len() == 6 << 20));
}

#[test]
fn a_disk_that_is_pulled_is_gone_and_costs_no_request() {
    for (level, count) in [(Level::Raid5, 4), (Level::Raid1, 2)] {
        for direct in [false, true] {
            let members = Members::new(count);
            members.create_clean(level);
            let loops: Option<Vec<Loop>> =
                (0..count).map(|number| Loop::over(members.path(number))).collect();
            let Some(loops) = loops else { return };
            let opened: Vec<Opened> = (loops.iter())
                .map(|device| {
                    let options = DeviceOptions { access: Access::ReadWrite, direct };
                    let device = Device::open(&Location::whole(&device.0), options).unwrap();
                    Opened::device(Arc::new(device)).expect("superblock")
                })
                .collect();
            let array = run(&opened);
            let mut written = Written::all_of(&array);
            // What a pulled disk looks like: its capacity is 0.
            let file = std::fs::File::options().write(true).open(members.path(1)).unwrap();
            file.set_len(0).unwrap();
            loops[1].set_capacity();
            written.write_some(&array, 300);
            written.check(&array);
            array.flush().unwrap();
            let failed = [(MemberIdx(1), Some(MemberError::Gone))];
            assert_eq!(failures(&array), failed, "{level:?} {direct}");
            array.stop().unwrap();
        }
    }
}

testkit::repeat_in_shards! {
    a_member_file_that_is_cut_short_is_gone_and_nothing_is_written_behind_the_cut,
    a_cut_that_reads_meet_first_is_no_bad_sector,
    without_redundancy_a_cut_is_an_error_and_the_file_stays_as_short,
    a_disk_that_is_pulled_is_gone_and_costs_no_request,
}
