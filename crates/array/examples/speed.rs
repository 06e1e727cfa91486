//! How fast the engine is on memory members, seen from the driver: for profiles and for comparing
//! two versions of the code. `raidlab bench --members mem` is the measurement; it also checks data.
//!
//! ```text
//! speed [--only TEXT] [--seconds S] [--member-mib N] [--members mem|null]
//! taskset -c 1 perf record -g target/release/examples/speed --only 'raid5 rand write'
//! ```
//! Each line gives requests per second, and CPU nanoseconds per request: where other work shares
//! the machine, the second is what can be compared. Members of the kind `null` move no bytes: what
//! is left is the engine, the driver and the parity. The contents are zeroes. Instructions per
//! request, however busy the machine is, are counted by `cargo xtask gate`.

use std::time::Instant;

use md::{Layout, Level, MemberIdx, Sector};
use raidlab_array::{
    ArraySpec, Completion, DataPlaneConfig, Driver, DriverOptions, HostOp, Lease, MemMember,
    MemberSpec, NullMember,
};

const MAX_REQUEST_BYTES: usize = 1280 << 10;

struct Options {
    only: String,
    seconds: f64,
    member_mib: u64,
    null: bool,
}

impl Options {
    fn parse() -> Options {
        let mut options =
            Options { only: String::new(), seconds: 1.0, member_mib: 896, null: false };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().unwrap_or_else(|| panic!("{flag}: a value is missing"));
            match flag.as_str() {
                "--only" => options.only = value,
                "--seconds" => options.seconds = value.parse().expect("--seconds: a number"),
                "--member-mib" => options.member_mib = value.parse().expect("--member-mib: MiB"),
                "--members" => options.null = value == "null",
                _ => panic!("{flag}: what is that?"),
            }
        }
        options
    }
}

#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    write: bool,
    random: bool,
    bytes: usize,
    depth: usize,
}

const fn workload(
    name: &'static str,
    write: bool,
    random: bool,
    kib: usize,
    depth: usize,
) -> Workload {
    Workload { name, write, random, bytes: kib << 10, depth }
}

const RANDOM: [Workload; 4] = [
    workload("rand read 4K x32", false, true, 4, 32),
    workload("rand write 4K x32", true, true, 4, 32),
    workload("rand read 4K x1", false, true, 4, 1),
    workload("rand write 4K x1", true, true, 4, 1),
];
const READ: Workload = workload("seq read 1M x16", false, false, 1024, 16);
const SMALL: Workload = workload("seq write 64K x32", true, false, 64, 32);

fn spec(level: Level, members: Vec<MemberSpec>) -> ArraySpec {
    ArraySpec {
        level,
        layout: Layout::default_for(level),
        chunk_sectors: if level == Level::Raid1 { 0 } else { 128 },
        members,
        data_plane: DataPlaneConfig { stripe_cache_bytes: 32 << 20, ..DataPlaneConfig::default() },
    }
}

fn members(count: usize, options: &Options) -> Vec<MemberSpec> {
    let sectors = (options.member_mib << 20) / 512;
    let member = |_| match options.null {
        true => MemberSpec::ready(NullMember::new(sectors)),
        false => MemberSpec::ready(MemMember::new(sectors).expect("memory")),
    };
    (0..count).map(member).collect()
}

fn driver(spec: ArraySpec) -> Driver {
    let options =
        DriverOptions { leases: 64, lease_bytes: MAX_REQUEST_BYTES, ..DriverOptions::default() };
    Driver::new(spec, &options).expect("a valid array")
}

/// Nanoseconds that this thread has been on a CPU.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Duration of a workload.
#[derive(Clone, Copy)]
enum Until {
    Seconds(f64),
    /// Once over the whole array.
    Covered,
}

fn run(driver: &mut Driver, workload: Workload, until: Until) -> (u64, f64, u64) {
    let Workload { write, random, bytes, depth, .. } = workload;
    let sectors = (bytes / 512) as u64;
    let blocks = driver.info().sectors / sectors;
    let mut leases: Vec<Lease> =
        (0..depth).map(|_| driver.leases().take(bytes).expect("enough leases")).collect();
    let (mut state, mut next, mut ops) = (1u64, 0, 0u64);
    let mut completed: Vec<Completion> = Vec::new();
    let (start, cpu) = (Instant::now(), cpu_nanos());
    let goes_on = |next| match until {
        Until::Seconds(seconds) => start.elapsed().as_secs_f64() < seconds,
        Until::Covered => next < blocks,
    };
    while goes_on(next) {
        for _ in 0..16 {
            while let Some(lease) = leases.pop() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let block = if random { (state >> 33) % blocks } else { next % blocks };
                next += 1;
                let op = if write { HostOp::Write { fua: false } } else { HostOp::Read };
                driver.submit(op, Sector(block * sectors), sectors, Some(lease), 0).expect("room");
            }
            driver.poll(&mut completed);
            for end in completed.drain(..) {
                end.result.expect("memory does not fail");
                leases.extend(end.lease);
                ops += 1;
            }
        }
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_nanos() - cpu);
    while leases.len() < depth {
        driver.poll(&mut completed);
        leases.extend(completed.drain(..).filter_map(|end| end.lease));
    }
    (ops, seconds, cpu)
}

fn measure(options: &Options, name: &str, driver: &mut Driver, workload: Workload) {
    let name = format!("{name} {}", workload.name);
    if !name.contains(&options.only) {
        return;
    }
    // Warm: the first touch of buffers, the lists that grow.
    run(driver, workload, Until::Seconds(options.seconds / 4.0));
    let before: u64 = driver.leaf_counters().iter().map(|leaf| leaf.reads).sum();
    let (ops, seconds, cpu) = run(driver, workload, Until::Seconds(options.seconds));
    let reads: u64 = driver.leaf_counters().iter().map(|leaf| leaf.reads).sum();
    let (rate, busy) = (ops as f64 / seconds, cpu as f64 / ops as f64);
    let moved = workload.bytes as f64;
    eprintln!("{ops} requests");
    println!(
        "{name:36} {rate:9.0} /s {:6.2} GB/s | CPU {busy:8.0} ns, {:6.2} GB/s | {:.2} reads each",
        rate * moved / 1e9,
        moved / busy,
        (reads - before) as f64 / ops as f64
    );
}

fn main() {
    let options = Options::parse();
    let all = [Level::Raid5, Level::Raid6, Level::Raid0, Level::Raid1, Level::Raid10];
    for level in all {
        // Filling takes longer than measuring.
        let wanted = options.only.split(' ').next().and_then(|word| word.parse::<Level>().ok());
        if wanted.is_some_and(|wanted| wanted != level) {
            continue;
        }
        let count = if level == Level::Raid1 { 2 } else { 6 };
        let mut d = driver(spec(level, members(count, &options)));
        let stripe = (d.geometry().stripe_sectors() as usize * 512).max(64 << 10);
        let rows = MAX_REQUEST_BYTES / stripe;
        let full = workload("seq write, full stripes x16", true, false, (rows * stripe) >> 10, 16);
        if !options.null {
            // The first touch of every page.
            run(&mut d, full, Until::Covered);
            eprintln!("{level}: filled");
        }
        let name = level.to_string();
        for workload in RANDOM.into_iter().chain([full, SMALL, READ]) {
            measure(&options, &name, &mut d, workload);
        }
        if matches!(level, Level::Raid5 | Level::Raid6) {
            d.fail_member(MemberIdx(1));
            let name = format!("{level} degraded");
            for workload in RANDOM.into_iter().take(2).chain([full, READ]) {
                measure(&options, &name, &mut d, workload);
            }
        }
    }
}
