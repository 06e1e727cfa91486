//! The request for a new array, as the tests of this crate make it.

use std::sync::Arc;

use host::Disk;
use md::Level;
use md::create::{Device, Request};
use md::ondisk::{Timestamp, Uuid};

/// An array on these disks, named by their labels. `uuid`: a byte that all of its UUID has.
pub fn request(level: Level, disks: &[Arc<dyn Disk>], uuid: u8) -> Request {
    let device = |(number, disk): (usize, &Arc<dyn Disk>)| Device {
        label: disk.name(),
        sectors: disk.sectors(),
        logical_block: 512,
        uuid: Uuid([number as u8 + 1; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let devices = disks.iter().enumerate().map(device).collect();
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    Request::new(level, devices, Uuid([uuid; 16]), now)
}
