//! How fast one core rebuilds a member of arrays in memory: bytes of the new member per second, the
//! median of several rounds, and in each round how fast the same core copies memory.
//!
//! ```text
//! cargo run --release -p raidlab-array --example rebuild_rate [MIB_PER_MEMBER [ROUNDS]]
//! ```

use std::time::{Duration, Instant};

use md::{Layout, Level, MemberIdx, Sector};
use raidlab_array::{
    ArraySpec, DataPlaneConfig, Driver, DriverOptions, HostOp, MemMember, Member, MemberSpec,
};

const MEMBERS: usize = 6;
const CHUNK_SECTORS: u64 = 128;
const SECTOR: usize = 512;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let sectors = arguments.next().unwrap_or(256) << 11;
    let rounds = arguments.next().unwrap_or(7) as usize;
    println!("{MEMBERS} members of {} MiB, chunk 64 KiB, one core, {rounds} rounds", sectors >> 11);
    println!("level          rebuild GB/s (of new members)   copy GB/s");
    for (level, lost) in [
        (Level::Raid5, 1),
        (Level::Raid6, 1),
        (Level::Raid6, 2),
        (Level::Raid1, 1),
        (Level::Raid10, 1),
    ] {
        let member = || MemMember::new(sectors).expect("memory");
        let spec = ArraySpec {
            level,
            layout: Layout::default_for(level),
            chunk_sectors: if level == Level::Raid1 { 0 } else { CHUNK_SECTORS },
            members: (0..MEMBERS).map(|_| MemberSpec::ready(member())).collect(),
            data_plane: DataPlaneConfig::default(),
        };
        let mut driver = Driver::new(spec, &DriverOptions::default()).expect("a valid array");
        fill(&mut driver);
        let (mut rates, mut copies) = (Vec::new(), Vec::new());
        let used = driver.geometry().member_used_sectors(MemberIdx(0));
        let bytes = lost * used * SECTOR as u64;
        for _ in 0..rounds {
            let new = (0..lost).map(|_| touched(member())).collect();
            rates.push(bytes as f64 / 1e9 / rebuild(&mut driver, new).as_secs_f64());
            copies.push(copy_rate());
        }
        let name = format!("{level}, {lost}");
        println!("{name:<14} {:>30.2} {:>11.2}", median(&mut rates), median(&mut copies));
    }
}

/// A member whose memory the system has given already, with other contents.
fn touched(member: MemMember) -> Box<dyn Member> {
    let spec = ArraySpec {
        level: Level::Linear,
        layout: Layout::None,
        chunk_sectors: 0,
        members: vec![MemberSpec::ready(member)],
        data_plane: DataPlaneConfig::default(),
    };
    let mut driver = Driver::new(spec, &DriverOptions::default()).expect("a valid array");
    fill(&mut driver);
    let leaf = driver.into_leaves().pop().expect("one member");
    leaf.member.expect("it is there")
}

/// Replaces the first members, and waits until the new ones are in sync.
fn rebuild(driver: &mut Driver, new: Vec<Box<dyn Member>>) -> Duration {
    let mut completions = Vec::new();
    for slot in 0..new.len() as u16 {
        driver.fail_member(MemberIdx(slot));
    }
    driver.poll(&mut completions);
    assert_eq!(driver.failed().len(), new.len(), "they are out of service");
    let start = Instant::now();
    for (slot, member) in (0..).zip(new) {
        driver.add_member(MemberIdx(slot), member).expect("the slot is empty");
    }
    loop {
        driver.poll(&mut completions);
        if driver.lacking().is_empty() {
            break;
        }
        driver.wait(Duration::from_secs(1), None);
    }
    start.elapsed()
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
