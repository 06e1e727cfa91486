//! Counts allocations: a warm array allocates nothing per request, with one shard or two. One
//! thread drives the shards in turn and counts its allocations.

use md::{Level, MemberIdx, Sector};
use raidlab_array::{Completion, Driver, DriverOptions, HostOp, Lease};
use testkit::Rng;

use crate::common::{SECTOR, mems, spec};

const DEPTH: u64 = 16;
const CHUNK: u64 = 16;

const ROUND: u64 = 4_000;
const MAX_ROUNDS: usize = 60;

#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// 4 KiB anywhere.
    Random(HostOp),
    /// Whole stripes, one after the other.
    Stripes(HostOp),
}

struct Bench {
    shards: Vec<Driver>,
    done: Vec<Completion>,
    stripe: u64,
    sectors: u64,
    next: u64,
    rng: Rng,
}

impl Bench {
    fn new(level: Level, shards: u16) -> Bench {
        let spec = spec(level, if level == Level::Raid1 { 0 } else { CHUNK }, mems(6, 4096));
        let options = DriverOptions {
            shards,
            shard_unit_sectors: 256,
            leases: 64,
            lease_bytes: 64 << 10,
            ..DriverOptions::default()
        };
        let shards = Driver::shards(spec, &options).expect("shards");
        let (stripe, sectors) =
            (shards[0].geometry().stripe_sectors().max(8), shards[0].info().sectors);
        let (done, rng) = (Vec::new(), Rng::new(5));
        Bench { shards, done, stripe, sectors, next: 0, rng }
    }

    fn submit(&mut self, pattern: Pattern, shard: usize, mut lease: Lease) {
        let (op, at, sectors) = match pattern {
            Pattern::Random(op) => (op, self.rng.below(self.sectors / 8) * 8, 8),
            Pattern::Stripes(op) => {
                self.next = (self.next + 1) % (self.sectors / self.stripe);
                (op, self.next * self.stripe, self.stripe)
            }
        };
        lease.set_len(sectors as usize * SECTOR);
        self.shards[shard]
            .submit(op, Sector(at), sectors, Some(lease), shard as u64)
            .expect("room");
    }

    /// Keeps `DEPTH` requests in flight in every shard until `count` have ended.
    fn run(&mut self, pattern: Pattern, count: u64) {
        for shard in 0..self.shards.len() {
            for _ in 0..DEPTH {
                let lease = self.shards[0].leases().take(4096).expect("a lease");
                self.submit(pattern, shard, lease);
            }
        }
        let (mut ended, mut out) = (0, DEPTH * self.shards.len() as u64);
        while out > 0 {
            for shard in 0..self.shards.len() {
                let mut done = std::mem::take(&mut self.done);
                self.shards[shard].poll(&mut done);
                for Completion { result, lease, .. } in done.drain(..) {
                    assert_eq!(result, Ok(()));
                    (ended, out) = (ended + 1, out - 1);
                    if ended + out < count {
                        self.submit(pattern, shard, lease.expect("its lease"));
                        out += 1;
                    }
                }
                self.done = done;
            }
        }
    }
}

/// Until [`ROUND`] requests are served without an allocation. Lists grow to the longest that they
/// ever have to be, and rarely then: what is allocated per request, or per hundred, never ends.
fn warm_up(bench: &mut Bench, pattern: Pattern, what: &str) {
    let mut counts = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let measured = allocation_counter::measure(|| bench.run(pattern, ROUND));
        counts.push(measured.count_total);
        if measured.count_total == 0 {
            return println!("{what}: warm after {counts:?}");
        }
    }
    panic!("{what}: {counts:?} allocations in rounds of {ROUND} requests");
}

#[test]
fn nothing_is_allocated_per_request_once_warm() {
    let (read, write) = (HostOp::Read, HostOp::Write { fua: false });
    let all = [Pattern::Random(read), Pattern::Random(write)]
        .into_iter()
        .chain([Pattern::Stripes(read), Pattern::Stripes(write)]);
    for shards in [1, 2] {
        for level in [Level::Raid5, Level::Raid6, Level::Raid0, Level::Raid1, Level::Raid10] {
            let mut bench = Bench::new(level, shards);
            for degraded in [false, true] {
                if degraded && level == Level::Raid0 {
                    continue;
                }
                if degraded {
                    bench.shards[0].fail_member(MemberIdx(1));
                }
                for pattern in all.clone() {
                    let what = format!("{level} {pattern:?} degraded {degraded} shards {shards}");
                    warm_up(&mut bench, pattern, &what);
                }
            }
        }
    }
}
