//! How fast one core scrubs arrays in memory: bytes of members per second, the median of several
//! rounds, and in each round how fast the same core copies memory.
//!
//! ```text
//! cargo run --release -p raidlab-array --example scrub_rate [MIB_PER_MEMBER [ROUNDS]]
//! ```

use std::time::{Duration, Instant};

use md::{Layout, Level, Sector};
use raidlab_array::{
    ArraySpec, DataPlaneConfig, Driver, DriverOptions, HostOp, MemMember, MemberSpec, ScrubMode,
};

const MEMBERS: usize = 6;
const CHUNK_SECTORS: u64 = 128;
const SECTOR: usize = 512;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let sectors = arguments.next().unwrap_or(256) << 11;
    let rounds = arguments.next().unwrap_or(7) as usize;
    println!("{MEMBERS} members of {} MiB, chunk 64 KiB, one core, {rounds} rounds", sectors >> 11);
    println!("level   scrub GB/s (all members)   copy GB/s   scrub/copy");
    for level in [Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid10] {
        let member = || MemberSpec::ready(MemMember::new(sectors).expect("memory"));
        let spec = ArraySpec {
            level,
            layout: Layout::default_for(level),
            chunk_sectors: if level == Level::Raid1 { 0 } else { CHUNK_SECTORS },
            members: (0..MEMBERS).map(|_| member()).collect(),
            data_plane: DataPlaneConfig::default(),
        };
        let mut driver = Driver::new(spec, &DriverOptions::default()).expect("a valid array");
        fill(&mut driver);
        let (mut rates, mut copies) = (Vec::new(), Vec::new());
        let bytes = match level {
            // Every copy of every sector.
            Level::Raid1 => driver.info().sectors * MEMBERS as u64,
            Level::Raid10 => driver.info().sectors * 2,
            _ => sectors / CHUNK_SECTORS * CHUNK_SECTORS * MEMBERS as u64,
        } * SECTOR as u64;
        for _ in 0..rounds {
            rates.push(bytes as f64 / 1e9 / scrub(&mut driver).as_secs_f64());
            copies.push(copy_rate());
        }
        let (rate, copy) = (median(&mut rates), median(&mut copies));
        println!("{level:<7} {rate:>24.2} {copy:>11.2} {:>12.2}", rate / copy);
    }
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Writes other bytes to every sector.
fn fill(driver: &mut Driver) {
    let size = driver.info().sectors;
    let mut completions = Vec::new();
    for at in (0..size).step_by(2048) {
        let sectors = 2048.min(size - at);
        let mut lease = driver.leases().take(sectors as usize * SECTOR).expect("a buffer");
        for (word, number) in lease.bytes_mut().chunks_exact_mut(8).zip(at << 6..) {
            let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&(value ^ value >> 29).to_le_bytes());
        }
        let op = HostOp::Write { fua: false };
        driver.submit(op, Sector(at), sectors, Some(lease), 0).expect("room");
        loop {
            driver.poll(&mut completions);
            if !completions.is_empty() {
                break;
            }
            driver.wait(Duration::from_secs(1), None);
        }
        assert_eq!(completions.pop().expect("one").result, Ok(()));
    }
}

fn scrub(driver: &mut Driver) -> Duration {
    let start = Instant::now();
    assert!(driver.start_scrub(ScrubMode::Check, 0));
    let mut completions = Vec::new();
    loop {
        driver.poll(&mut completions);
        let status = driver.scrub().expect("it was started");
        if status.is_done {
            assert_eq!((status.error, status.checked), (None, status.span));
            assert!(driver.take_mismatches().is_empty(), "nothing was corrupted");
            return start.elapsed();
        }
        driver.wait(Duration::from_secs(1), None);
    }
}

/// From memory that no cache holds, in pieces of a chunk.
fn copy_rate() -> f64 {
    let from = vec![1_u8; 512 << 20];
    let mut to = vec![0_u8; 64 << 10];
    let start = Instant::now();
    for piece in from.chunks_exact(to.len()) {
        to.copy_from_slice(piece);
        std::hint::black_box(&mut to);
    }
    from.len() as f64 / 1e9 / start.elapsed().as_secs_f64()
}
