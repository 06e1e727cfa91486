//! Prints what one drive of every profile does alone, in virtual time.
//!
//! `cargo run --release -p raidlab-drive --example measure`

#[path = "../tests/it/closed_loop.rs"]
mod closed_loop;

use closed_loop::{Loop, MIB, Measured, mix, random};
use raidlab_drive::{Kind, Op, OpKind, Placement, Profile};

fn main() {
    for name in Profile::names() {
        let profile = Profile::named(name).expect("it is built in");
        println!("\n{name}: {}", profile.description());
        println!("  {:<44} {:>9} {:>10} {:>11}", "", "IO/s", "MB/s", "service us");
        sequential(profile);
        random_io(profile);
        if profile.kind() == Kind::Rotating {
            streams(profile);
        }
    }
}

fn row(name: &str, measured: Measured) {
    let Measured { iops, mb_per_s, service_us } = measured;
    println!("  {name:<44} {iops:>9.1} {mb_per_s:>10.1} {service_us:>11.1}");
}

fn sequential(profile: &Profile) {
    let member = 16 << 30;
    let at = |at| Placement::Window { at };
    let base =
        Loop { profile, placement: at(0.0), member, depth: 4, delay: 0, warm_up: 64, ops: 2000 };
    let read = |n: u64| Op::read(n * MIB % member, MIB);
    let write = |n: u64| Op::write(n * MIB % member, MIB);
    for place in [0.0, 0.5, 0.95] {
        let row_name = format!("sequential read 1 MiB depth 4 @{place}");
        row(&row_name, Loop { placement: at(place), ..base }.run(read));
    }
    row(
        "sequential read 1 MiB depth 1, 50 us late",
        Loop { depth: 1, delay: 50_000, ..base }.run(read),
    );
    let small = Loop { depth: 1, delay: 50_000, ops: 20_000, ..base };
    row("sequential read 128 KiB depth 1, 300 us late", {
        Loop { delay: 300_000, ..small }.run(|n| Op::read(n * 131_072 % member, 131_072))
    });
    row("sequential read 4 KiB depth 1, 50 us late", small.run(|n| Op::read(n * 4096, 4096)));
    row("read 4 of 5 chunks of 64 KiB, depth 4", {
        Loop { ops: 20_000, ..base }
            .run(|n| Op::read((n / 4 * 5 + n % 4) * 65_536 % member, 65_536))
    });
    row("read every other chunk of 256 KiB, depth 4", {
        Loop { ops: 4_000, ..base }.run(|n| Op::read(n * 2 * 262_144 % member, 262_144))
    });
    row("sequential write 1 MiB depth 4", base.run(write));
    row(
        "sequential write 1 MiB depth 1, 50 us late",
        Loop { depth: 1, delay: 50_000, ..base }.run(write),
    );
    row("sequential write 4 KiB depth 32", {
        Loop { depth: 32, warm_up: 8192, ops: 20_000, ..base }.run(|n| Op::write(n * 4096, 4096))
    });
    row("sequential FUA write 64 KiB depth 1", {
        let fua =
            |n: u64| Op { kind: OpKind::Write { fua: true }, ..Op::write(n * 65_536, 65_536) };
        Loop { depth: 1, ops: 500, ..base }.run(fua)
    });
    row("write 4 KiB + flush, depth 1 (pairs)", {
        let pairs = |n: u64| if n % 2 == 1 { Op::flush() } else { Op::write(n * 4096, 4096) };
        Loop { depth: 1, ops: 1000, ..base }.run(pairs)
    });
}

fn random_io(profile: &Profile) {
    let small = 128 * MIB;
    let large = 64 << 30;
    let stretch = Placement::Stretch;
    let base = Loop {
        profile,
        placement: stretch,
        member: large,
        depth: 1,
        delay: 0,
        warm_up: 500,
        ops: 4000,
    };
    for depth in [1, 4, 32, 128] {
        let measured = Loop { depth, ..base }.run(|n| Op::read(random(n, large), 4096));
        row(&format!("random read 4 KiB stretch depth {depth}"), measured);
    }
    let member = small;
    row("random read 4 KiB stretch 128 MiB depth 1", {
        Loop { member, ..base }.run(|n| Op::read(random(n, small), 4096))
    });
    row("random read 4 KiB stretch 128 MiB depth 32", {
        Loop { member, depth: 32, ..base }.run(|n| Op::read(random(n, small), 4096))
    });
    let window = Loop { placement: Placement::Window { at: 0.0 }, member, ..base };
    for depth in [1, 32] {
        let measured = Loop { depth, ..window }.run(|n| Op::read(random(n, small), 4096));
        row(&format!("random read 4 KiB window 128 MiB depth {depth}"), measured);
    }
    row(
        "random read 64 KiB stretch depth 1",
        base.run(|n| Op::read(random(n, large - 65_536), 65_536)),
    );
    for depth in [1, 32] {
        let measured = Loop { depth, ..base }.run(|n| Op::write(random(n, large), 4096));
        row(&format!("random write 4 KiB stretch depth {depth}"), measured);
    }
    row("random write 4 KiB window 128 MiB depth 32", {
        Loop { depth: 32, ..window }.run(|n| Op::write(random(n, small), 4096))
    });
    row("random FUA write 4 KiB stretch depth 1", {
        let fua = OpKind::Write { fua: true };
        base.run(|n| Op { kind: fua, ..Op::write(random(n, large), 4096) })
    });
    row("random half read, half write 4 KiB, depth 32", {
        let half = |n: u64| match mix(n) % 2 {
            0 => Op::read(random(n, large), 4096),
            _ => Op::write(random(n, large), 4096),
        };
        Loop { depth: 32, ..base }.run(half)
    });
}

/// Concurrent sequential readers or writers, each with one request outstanding.
fn streams(profile: &Profile) {
    let member = 16 << 30;
    let placement = Placement::Window { at: 0.0 };
    for (streams, bytes) in
        [(2, 131_072), (4, 131_072), (8, 131_072), (200, 131_072), (200, 262_144), (200, 524_288)]
    {
        let depth = streams.min(31);
        let base = Loop { profile, placement, member, depth, delay: 0, warm_up: 500, ops: 4000 };
        // Request n belongs to stream n mod streams; files of 40 MB lie one after another.
        let at = |n: u64| n % streams * 40_000_000 / 4096 * 4096 + n / streams * bytes % 40_000_000;
        row(
            &format!("{streams} streams read {} KiB, depth {depth}", bytes / 1024),
            base.run(|n| Op::read(at(n), bytes)),
        );
    }
    let base = Loop { profile, placement, member, depth: 2, delay: 0, warm_up: 500, ops: 4000 };
    row("copy: one reads, one writes, 256 KiB", {
        let half = member / 2;
        let copy = |n: u64| match n % 2 {
            0 => Op::read(n / 2 * 262_144, 262_144),
            _ => Op::write(half + n / 2 * 262_144, 262_144),
        };
        base.run(copy)
    });
}
