//! How fast the engine is on memory members: a first look, before `raidlab bench --members mem`.

use std::time::Instant;

use array::{ArraySpec, Completion, Driver, DriverOptions, HostOp, Lease, MemMember, MemberSpec};
use md::{Layout, Level, Sector};

fn spec(level: Level, members: Vec<MemberSpec>) -> ArraySpec {
    ArraySpec {
        level,
        layout: Layout::default_for(level),
        chunk_sectors: 128,
        members,
        stripe_cache_bytes: 32 << 20,
        queue_depth: usize::MAX,
    }
}

fn memory(members: usize) -> Vec<MemberSpec> {
    let member = |_| MemMember::new((256 << 20) / 512).expect("memory");
    (0..members).map(|at| MemberSpec::ready(member(at))).collect()
}

fn driver(spec: ArraySpec, lease_bytes: usize) -> Driver {
    let options = DriverOptions { leases: 64, lease_bytes, ..DriverOptions::default() };
    Driver::new(spec, &options).expect("a valid array")
}

fn run(name: &str, driver: &mut Driver, write: bool, random: bool, bytes: usize, depth: usize) {
    let sectors = (bytes / 512) as u64;
    let blocks = driver.facts().sectors / sectors;
    let mut leases: Vec<Lease> =
        (0..depth).map(|_| driver.leases().take(bytes).expect("enough leases")).collect();
    let (mut state, mut next, mut ops) = (1u64, 0, 0u64);
    let mut completed: Vec<Completion> = Vec::new();
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 1.0 {
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
    let seconds = start.elapsed().as_secs_f64();
    while leases.len() < depth {
        driver.poll(&mut completed);
        leases.extend(completed.drain(..).filter_map(|end| end.lease));
    }
    let rate = ops as f64 / seconds;
    let moved = rate * bytes as f64 / 1e9;
    let counters = driver.leaf_counters();
    let reads: u64 = counters.iter().map(|c| c.reads).sum();
    println!("{name:32} {:9.0} op/s {moved:6.2} GB/s   {reads} member reads", rate);
}

fn main() {
    for (level, members) in
        [(Level::Raid5, 6), (Level::Raid6, 6), (Level::Raid0, 6), (Level::Raid1, 2)]
    {
        let stripe = if members == 6 && level != Level::Raid0 {
            (members - if level == Level::Raid6 { 2 } else { 1 }) * 65536
        } else {
            1 << 20
        };
        let mut d = driver(spec(level, memory(members)), 1 << 20);
        run("  (first touch)", &mut d, true, false, stripe, 16);
        run(&format!("{level} seq write {}K x16", stripe / 1024), &mut d, true, false, stripe, 16);
        run(&format!("{level} seq write 64K x32"), &mut d, true, false, 65536, 32);
        run(&format!("{level} rand write 4K x32"), &mut d, true, true, 4096, 32);
        run(&format!("{level} seq read 1M x16"), &mut d, false, false, 1 << 20, 16);
        run(&format!("{level} rand read 4K x32"), &mut d, false, true, 4096, 32);
        if level == Level::Raid5 {
            d.fail_member(md::MemberIdx(1));
            run("  degraded seq read 1M x16", &mut d, false, false, 1 << 20, 16);
            run("  degraded rand read 4K x32", &mut d, false, true, 4096, 32);
            run("  degraded rand write 4K x32", &mut d, true, true, 4096, 32);
        }
    }
    let inner = || MemberSpec::Array(spec(Level::Raid5, memory(3)));
    let mut d = driver(spec(Level::Raid0, vec![inner(), inner()]), 1 << 20);
    run("  (first touch)", &mut d, true, false, 1 << 20, 16);
    run("raid50 seq write 1M x16", &mut d, true, false, 1 << 20, 16);
    run("raid50 seq write 64K x32", &mut d, true, false, 65536, 32);
    run("raid50 rand write 4K x32", &mut d, true, true, 4096, 32);
    run("raid50 rand read 4K x32", &mut d, false, true, 4096, 32);
}
