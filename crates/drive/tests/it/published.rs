//! What the models give beside published figures of single disks, and the page that shows both:
//! `docs/bench/drives.md` holds the figures, their sources and how far the model may be off.

use std::fmt::Write as _;

use raidlab_drive::{Confidence, Kind, Op, Placement, Profile};

use crate::closed_loop::{Loop, MIB, random};

const PAGE: &str = include_str!("../../../../docs/bench/drives.md");

/// The cells of the rows below a table's heading that begins with `| {first} |`.
fn rows(first: &str) -> Vec<Vec<&'static str>> {
    let heading = format!("| {first} |");
    let lines = PAGE.lines().skip_while(|line| !line.starts_with(&heading)).skip(2);
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What a row of the page says is measured.
fn measure(name: &str, what: &str) -> f64 {
    let profile = Profile::named(name).unwrap_or_else(|| panic!("no profile {name}"));
    let solid = profile.kind() == Kind::Solid;
    let at = |at| Placement::Window { at };
    let (depth, delay) = (4, 0);
    let member = 4 << 30;
    let line = Loop { profile, placement: at(0.0), member, depth, delay, warm_up: 1000, ops: 1000 };
    let read = |n: u64| Op::read(n * MIB % member, MIB);
    let write = |n: u64| Op::write(n * MIB % member, MIB);
    let (blocks, space) = match solid {
        true => (Loop { warm_up: 60_000, ops: 40_000, ..line }, member),
        false => {
            let member = 64 << 30;
            let placement = Placement::Stretch;
            (Loop { placement, member, warm_up: 400, ops: 3000, ..line }, member)
        }
    };
    let full = Loop { placement: Placement::Stretch, member: 256 * MIB, depth: 32, ..line };
    let read_block = |n: u64| Op::read(random(n, space), 4096);
    let write_block = |n: u64| Op::write(random(n, space), 4096);
    let flushed = |bytes: u64| {
        let pairs = move |n: u64| match n % 2 {
            0 => Op::write(n * bytes, bytes),
            _ => Op::flush(),
        };
        Loop { depth: 1, warm_up: 100, ops: 1000, ..line }.run(pairs).iops / 2.0
    };
    match what {
        "sequential read, outer edge, MB/s" | "sequential read, MB/s" => line.run(read).mb_per_s,
        "sequential read, inner edge, MB/s" => {
            Loop { placement: at(1.0), ..line }.run(read).mb_per_s
        }
        "sequential write, MB/s" => line.at(8).run(write).mb_per_s,
        "sequential write past the SLC cache, MB/s" => {
            let write = |n: u64| Op::write(n * 65_536 % full.member, 65_536);
            Loop { warm_up: 2000, ops: 1500, ..full }.run(write).mb_per_s
        }
        "4 KiB random writes per second, media cache full" => {
            Loop { warm_up: 4000, ops: 300, ..blocks }.run(write_block).iops
        }
        "4 KiB random writes per second, drive full" => {
            let pages = full.member / 4096;
            let write = |n: u64| Op::write(random(n, full.member), 4096);
            Loop { warm_up: 4 * pages, ops: pages, ..full }.run(write).iops
        }
        "4 KiB writes with a flush each, per second" => flushed(4096),
        "16 KiB write and its flush, us" => 1e6 / flushed(16_384),
        _ => {
            let (kind, depth) = what.rsplit_once(" at depth ").unwrap_or_else(|| panic!("{what}"));
            let blocks = blocks.at(depth.parse().expect("a depth"));
            match kind {
                "4 KiB random reads per second" => blocks.run(read_block).iops,
                "4 KiB random writes per second" => {
                    let warm_up = if solid { 150_000 } else { blocks.warm_up };
                    Loop { warm_up, ..blocks }.run(write_block).iops
                }
                _ => panic!("{what}: nothing measures this"),
            }
        }
    }
}

/// A figure of the page: `94 003`, or `12 to 58`, its ends.
fn figure(text: &str) -> (f64, f64) {
    let number = |text: &str| -> f64 {
        text.replace([' ', ','], "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
    };
    let (low, high) = text.split_once(" to ").unwrap_or((text, text));
    (number(low), number(high))
}

#[test]
fn models_are_as_near_to_published_figures_as_the_page_says() {
    let rows = rows("measured on");
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for row in rows {
        let [_, profile, what, published, model, within, source] = row[..] else {
            panic!("{row:?} has not seven cells")
        };
        assert!(source.len() > 8, "{row:?} names no source");
        let found = measure(profile.trim_matches('`'), what);
        let (low, high) = figure(published);
        let (shown, _) = figure(model);
        assert!((found / shown - 1.0).abs() < 0.01, "{profile}, {what}: {found:.1}, not {shown}");
        let off = (low / found).max(found / high).max(1.0) - 1.0;
        let (within, _) = figure(within.trim_end_matches(" %"));
        assert!(off <= within / 100.0, "{profile}, {what}: {found:.1}, published {published}");
    }
}

/// The numbers that are not assumed, as the page lists them.
#[test]
fn the_page_lists_every_number_that_has_a_source() {
    let mut expected = String::new();
    for name in Profile::names() {
        for number in Profile::named(name).expect("built in").numbers() {
            let confidence = match number.confidence {
                Confidence::SourceRead => "source read",
                Confidence::Derived => "derived",
                Confidence::Unverified => "unverified",
                Confidence::Mixed => "mixed",
                Confidence::Assumed => continue,
            };
            let (field, value, source) = (&number.field, number.value, &number.source);
            let _ =
                writeln!(expected, "| `{name}` | `{field}` | {value} | {confidence} | {source} |");
        }
    }
    assert!(
        PAGE.contains(&expected),
        "the table of numbers in docs/bench/drives.md is:\n{expected}"
    );
}

#[test]
fn random_reads_gain_from_every_doubling_of_the_queue() {
    for name in ["hdd-2016", "hdd-2018", "hdd-2020"] {
        let reads = [1, 2, 4, 8, 16, 31]
            .map(|depth| measure(name, &format!("4 KiB random reads per second at depth {depth}")));
        assert!(reads.is_sorted(), "{name}: {reads:?}");
        assert!((1.6..2.4).contains(&(reads[5] / reads[0])), "{name}: {reads:?}");
    }
}

/// The rate falls with the radius, as the root of the share that is left.
#[test]
fn a_helium_disk_is_slower_from_zone_to_zone() {
    for name in ["hdd-2016", "hdd-2018", "hdd-2020"] {
        let profile = Profile::named(name).expect("built in");
        let rates = [0.0, 0.25, 0.5, 0.75, 1.0].map(|at| profile.media_rate_at(at));
        assert!(rates.windows(2).all(|pair| pair[0] > 1.1 * pair[1]), "{name}: {rates:?}");
        let inner = measure(name, "sequential read, inner edge, MB/s");
        assert!((inner / rates[4] * 1e6 - 1.0).abs() < 0.02, "{name}: {inner}");
    }
}

/// A flush costs a program where the cache is volatile, and a command where it is not.
#[test]
fn power_loss_protection_makes_flushes_cheap() {
    let synced = |name| measure(name, "4 KiB writes with a flush each, per second");
    for (volatile, protected) in
        [("sata-ssd-2021", "sata-ssd-plp"), ("nvme-ssd-2020", "nvme-ssd-plp")]
    {
        let (slow, fast) = (synced(volatile), synced(protected));
        assert!(slow < 1100.0 && fast > 10.0 * slow, "{volatile} {slow:.0}, {protected} {fast:.0}");
    }
    let text = include_str!("../../profiles/sata-ssd-plp.toml");
    let volatile =
        text.replace("power_loss_protection = { value = 1", "power_loss_protection = { value = 0");
    let volatile = Profile::parse(&volatile).expect("a profile");
    let left_out = text.lines().filter(|line| !line.starts_with("power_loss"));
    let left_out = left_out.map(|line| format!("{line}\n")).collect::<String>();
    let left_out = Profile::parse(&left_out).expect("a profile without the field");
    let fua = |profile: &Profile| {
        let (placement, member) = (Placement::Window { at: 0.0 }, 1 << 30);
        let run = Loop { profile, placement, member, depth: 1, delay: 0, warm_up: 10, ops: 100 };
        let op = |n: u64| Op {
            kind: raidlab_drive::OpKind::Write { fua: true },
            ..Op::write(n * 4096, 4096)
        };
        run.run(op).service_us
    };
    assert_eq!(fua(&volatile), fua(&left_out), "a drive without the field has none");
    assert!(fua(&volatile) > 1000.0);
    let protected = fua(Profile::named("sata-ssd-plp").expect("built in"));
    assert!(protected < 60.0, "FUA costs nothing: {protected}");
}

/// Fast until the media cache is full, then a band is cleaned for about every block; streams are
/// written in place, and rest empties the cache.
#[test]
fn a_shingled_disk_is_fast_first_and_slow_for_random_writes() {
    let profile = Profile::named("hdd-smr").expect("built in");
    let (placement, member) = (Placement::Stretch, 8 << 30);
    let run = Loop { profile, placement, member, depth: 4, delay: 0, warm_up: 0, ops: 200 };
    let write = |n: u64| Op::write(random(n, member), 4096);
    let (first, later) =
        (run.run(write).iops, Loop { warm_up: 600, ops: 100, ..run }.run(write).iops);
    assert!(first > 200.0 && later < 6.0, "{first:.0}/s, then {later:.1}/s");
    let streamed = measure("hdd-smr", "sequential write, MB/s");
    assert!((streamed / 190.0 - 1.0).abs() < 0.03, "{streamed:.0} MB/s in order");

    let mut rig = raidlab_drive::Rig::new();
    let id = rig.add_drive(profile, placement, member, None);
    let mut burst = |from: u64, blocks: u64| {
        let mut done = Vec::new();
        for n in 0..blocks {
            rig.submit(from, id, n, write(n));
        }
        while rig.in_flight(id) > 0 {
            let next = rig.next_event().expect("operations are in flight");
            rig.advance(next, &mut done);
        }
        done.last().expect("operations").at
    };
    let full = burst(0, 400);
    let tired = burst(full, 100) - full;
    let hour = 3_600_000_000_000;
    let rested = burst(full + tired + hour, 100) - (full + tired + hour);
    assert!(tired > 20 * rested, "{tired} ns, and {rested} ns after an hour");
}
