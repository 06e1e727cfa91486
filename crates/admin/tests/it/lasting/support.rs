//! The arrays of these tests: members in files, created, started, and read by the rescue reader.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{Array, Driver, DriverOptions, Event};
use engine::MemberError;
use host::{Access, Device, DeviceOptions, Disk, Location};
use md::assemble::{Candidate, Options, assemble};
use md::create::Request;
use md::{Level, MemberIdx};
use raidlab_admin::rescue::{Piece, StreamOptions, prepare, stream};
use raidlab_admin::{CreateOptions, Opened, StartError, StartOptions, start_shards};
use testkit::{Rng, shards};

use crate::creation;

pub const SECTORS: u64 = 16 << 11;

pub struct Members {
    pub dir: tempfile::TempDir,
    pub count: usize,
}

impl Members {
    pub fn new(count: usize) -> Members {
        let dir = tempfile::tempdir().unwrap();
        let members = Members { dir, count };
        for number in 0..count {
            let file = std::fs::File::create(members.path(number)).unwrap();
            file.set_len(SECTORS * 512).unwrap();
        }
        members
    }

    pub fn path(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("m{number}"))
    }

    pub fn device(&self, number: usize, access: Access) -> Arc<Device> {
        let location = Location::whole(self.path(number));
        Arc::new(Device::open(&location, DeviceOptions { access, direct: false }).unwrap())
    }

    pub fn devices(&self, access: Access) -> Vec<Arc<Device>> {
        (0..self.count).map(|number| self.device(number, access)).collect()
    }

    pub fn opened(&self, access: Access) -> Vec<Opened> {
        self.devices(access).into_iter().map(|d| Opened::device(d).expect("superblock")).collect()
    }

    /// With chunks of 64 KiB, in sync.
    pub fn create_clean(&self, level: Level) {
        self.create(level, |request| request.assume_clean = true);
    }

    /// With chunks of 64 KiB, if `change` leaves them so.
    pub fn create(&self, level: Level, change: impl FnOnce(&mut Request)) -> Vec<String> {
        let disks: Vec<Arc<dyn Disk>> =
            self.devices(Access::ReadWrite).into_iter().map(|d| d as Arc<dyn Disk>).collect();
        let mut request = creation::request(level, &disks, 7);
        request.name = "lasting".into();
        request.chunk_sectors = level.has_chunks().then_some(128);
        change(&mut request);
        let plan = md::create::plan(&request).unwrap();
        let disks: Vec<_> = disks.into_iter().map(Some).collect();
        raidlab_admin::create(&plan, &disks, CreateOptions { force: true }).unwrap()
    }

    pub fn hashes(&self) -> Vec<Vec<u8>> {
        (0..self.count).map(|number| std::fs::read(self.path(number)).unwrap()).collect()
    }
}

pub fn decide(opened: &[Opened], options: &Options) -> md::assemble::Array {
    let candidates: Vec<Candidate> = opened.iter().map(Opened::candidate).collect();
    let mut found = assemble(&candidates, options);
    assert_eq!(found.arrays.len(), 1);
    found.arrays.remove(0)
}

pub fn started(opened: &[Opened], options: &Options) -> Result<Vec<Driver>, StartError> {
    started_as(opened, options, small())
}

/// Few host buffers: a ring that is used much pins all of them, which are 256 MiB otherwise.
pub fn small() -> DriverOptions {
    DriverOptions { leases: 16, ..DriverOptions::default() }
}

pub fn started_as(
    opened: &[Opened],
    options: &Options,
    driver: DriverOptions,
) -> Result<Vec<Driver>, StartError> {
    let (shards, shard_unit_sectors) = (shards(), 64);
    let driver = DriverOptions { shards, shard_unit_sectors, ..driver };
    let how = StartOptions { driver, ..StartOptions::default() };
    start_shards(&decide(opened, options), opened, &how)
}

pub fn run(opened: &[Opened]) -> Array {
    Array::run_shards(started(opened, &Options::default()).unwrap()).unwrap()
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    Rng::new(seed).bytes(len)
}

/// The contents by the rescue reader, which shares nothing with the engine but the mapping.
pub fn contents(members: &Members, without: &[usize]) -> Vec<u8> {
    let opened = members.opened(Access::ReadOnly);
    let kept: Vec<Opened> = (opened.into_iter().enumerate())
        .filter(|(number, _)| !without.contains(number))
        .map(|(_, opened)| opened)
        .collect();
    let array = decide(&kept, &Options::default());
    assert!(array.read_only.verdict.runs(), "{:?}", array.read_only.verdict);
    let candidates: Vec<Candidate> = kept.iter().map(Opened::candidate).collect();
    let disks: Vec<_> = kept.iter().map(|opened| opened.disk.clone()).collect();
    let kernels = parity::Kernels::best();
    let prepared = prepare(&array, &array.read_only, &candidates, &disks, kernels).unwrap();
    let (view, mut bytes) = (&prepared.view, Vec::new());
    stream(view, 0..view.sectors(), StreamOptions::default(), |piece| {
        match piece {
            Piece::Data { bytes: part, lost, .. } => {
                assert_eq!(lost, []);
                bytes.extend_from_slice(part);
            }
            Piece::Hole { sectors, .. } => bytes.resize(bytes.len() + sectors as usize * 512, 0),
        }
        Ok::<(), ()>(())
    })
    .unwrap();
    bytes
}

pub fn wait_for(array: &Array, what: &str, is_so: impl Fn(&engine::MetadataStatus) -> bool) {
    let start = Instant::now();
    while !is_so(&array.metadata().unwrap()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", array.metadata());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// mdadm finds nothing wrong with a member's superblock, where it is installed.
pub fn mdadm_agrees(members: &Members, context: &str) {
    for number in 0..members.count {
        let mut examine = std::process::Command::new("mdadm");
        let Ok(output) = examine.arg("--examine").arg(members.path(number)).output() else {
            println!("mdadm skipped: it is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(" - correct"), "{context}: {text}");
        assert!(text.contains("State : clean"), "{context}: {text}");
    }
}

/// Members that have failed since the last call, and the kinds of their errors.
pub fn failures(array: &Array) -> Vec<(MemberIdx, Option<MemberError>)> {
    let failures = array.take_events().into_iter().filter_map(|event| match event {
        Event::MemberFailed { member, error } => Some((member, error.map(|error| error.kind))),
        _ => None,
    });
    failures.collect()
}
