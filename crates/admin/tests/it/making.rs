//! Creating an array on devices of which one fails: the changes made by then are reported.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use host::{Disk, DiskLayer};
use md::Level;
use md::create::{BitmapOption, Plan, plan};
use raidlab_admin::{Change, CreateFailed, CreateOptions, create, refuse_what_is_there};

use crate::creation;

const SECTORS: u64 = 16 << 11;

/// A disk in memory that fails all writes after a number of them.
struct Failing {
    name: String,
    bytes: Mutex<Vec<u8>>,
    writes_left: AtomicUsize,
}

impl Failing {
    fn write_at(&self, range: Range<u64>, bytes: Option<&[u8]>) -> io::Result<()> {
        let left = self.writes_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("broken"));
        }
        self.writes_left.store(left - 1, Ordering::Relaxed);
        let range = range.start as usize * 512..range.end as usize * 512;
        let mut all = self.bytes.lock().unwrap();
        match bytes {
            Some(bytes) => all[range].copy_from_slice(bytes),
            None => all[range].fill(0),
        }
        Ok(())
    }
}

impl Disk for Failing {
    fn sectors(&self) -> u64 {
        SECTORS
    }

    fn logical_block(&self) -> u32 {
        512
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = sector as usize * 512;
        buf.copy_from_slice(&self.bytes.lock().unwrap()[start..start + buf.len()]);
        Ok(())
    }

    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()> {
        self.write_at(sector..sector + buf.len() as u64 / 512, Some(buf))
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        self.write_at(range, None)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn hole_end(&self, sector: u64) -> u64 {
        sector
    }
}

fn disk(name: &str) -> Arc<Failing> {
    let bytes = Mutex::new(vec![0; SECTORS as usize * 512]);
    Arc::new(Failing { name: name.into(), bytes, writes_left: AtomicUsize::new(usize::MAX) })
}

fn plan_of(disks: &[Arc<Failing>], uuid: u8) -> Plan {
    let disks: Vec<_> = disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let mut request = creation::request(Level::Raid5, &disks, uuid);
    request.bitmap = BitmapOption::Internal { chunk_bytes: None };
    plan(&request).unwrap()
}

fn made(disks: &[Arc<Failing>], uuid: u8) -> Result<Vec<String>, CreateFailed> {
    let all: Vec<_> = disks.iter().map(|disk| Some(disk.clone() as Arc<dyn Disk>)).collect();
    create(&plan_of(disks, uuid), &all, CreateOptions { force: true })
}

/// Lets the disk in the middle fail after each number of writes in turn: exactly the changed disks
/// are named.
#[test]
fn every_failure_reports_earlier_changes() {
    let mut kinds = Vec::new();
    for writes in 0.. {
        let disks = ["a", "b", "c"].map(disk);
        made(&disks, 7).unwrap();
        let before = disks.clone().map(|disk| disk.bytes.lock().unwrap().clone());
        disks[1].writes_left.store(writes, Ordering::Relaxed);
        let error = match made(&disks, 8) {
            Ok(seen) => {
                assert_eq!(seen.len(), 3, "{seen:?}");
                break;
            }
            Err(error) => error,
        };
        let text = error.to_string();
        let CreateFailed::Device { name, changed, .. } = error else { panic!("{text}") };
        assert_eq!(name, "b", "{text}");
        assert!(text.starts_with("b: cannot ") && text.contains("changed already: a ("), "{text}");
        for (disk, before) in disks.iter().zip(before) {
            let reported = changed.iter().find(|(name, _)| *name == disk.name);
            let same = *disk.bytes.lock().unwrap() == before;
            // The one that failed may have been changed; all others are reported exactly.
            assert!(reported.is_some() || same, "{} after {writes} writes: {text}", disk.name);
            assert!(disk.name == "b" || reported.is_some() != same, "{}: {text}", disk.name);
        }
        kinds.push(changed[0].1);
    }
    kinds.dedup();
    assert_eq!(kinds, [Change::Erased, Change::Prepared, Change::Member]);
}

#[test]
fn a_disk_of_old_bytes_is_taken_and_a_file_is_not() {
    struct Block(Arc<Failing>);
    impl DiskLayer for Block {
        fn below(&self) -> &dyn Disk {
            &*self.0
        }

        fn is_block_device(&self) -> bool {
            true
        }
    }
    let disks = ["a", "b", "c"].map(disk);
    disks[2].write(20_000, &[5; 512]).unwrap();
    let plan = plan_of(&disks, 7);
    let options = CreateOptions::default();
    let files: Vec<_> = disks.iter().map(|disk| Some(disk.clone() as Arc<dyn Disk>)).collect();
    let error = refuse_what_is_there(&plan, &files, options).unwrap_err().to_string();
    assert_eq!(error, "c holds data of unknown type (at byte 10240000: 05 05 05 05 05 05 05 05).");
    let block = |disk: &Arc<Failing>| Some(Arc::new(Block(disk.clone())) as Arc<dyn Disk>);
    let devices: Vec<_> = disks.iter().map(block).collect();
    assert_eq!(refuse_what_is_there(&plan, &devices, options).unwrap(), [""; 0]);
}
