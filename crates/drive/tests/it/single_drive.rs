//! What one drive does alone, against the published and data-sheet figures that its profile answers
//! to. All in virtual time.

use raidlab_drive::{Op, OpKind, Placement, Profile};

use crate::closed_loop::{Loop, MIB, Measured, mix, random};

fn window(at: f64) -> Loop<'static> {
    let profile = Profile::named("hdd-2007").unwrap();
    let placement = Placement::Window { at };
    Loop { profile, placement, member: 4 << 30, depth: 4, delay: 0, warm_up: 40, ops: 600 }
}

fn stretched(profile: &str) -> Loop<'static> {
    let profile = Profile::named(profile).unwrap();
    let (placement, member) = (Placement::Stretch, 64 << 30);
    Loop { profile, placement, member, depth: 1, delay: 0, warm_up: 200, ops: 2000 }
}

fn read_mib(n: u64) -> Op {
    Op::read(n * MIB, MIB)
}

#[track_caller]
fn near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() <= 0.05, "{value:.1} is not {expected} within 5 %");
}

#[track_caller]
fn within(value: f64, range: std::ops::RangeInclusive<f64>) {
    assert!(range.contains(&value), "{value:.1} is not within {range:?}");
}

#[test]
fn sequential_read_runs_at_media_rate_along_the_stroke() {
    near(window(0.0).run(read_mib).mb_per_s, 82.0);
    near(window(0.5).run(read_mib).mb_per_s, 65.7);
    near(window(0.95).run(read_mib).mb_per_s, 44.0);
}

#[test]
fn a_late_caller_loses_no_rotation() {
    for (bytes, delay) in [(MIB, 50_000), (MIB, 500_000), (128 << 10, 300_000)] {
        let late = Loop { depth: 1, delay, ..window(0.0) };
        let read = late.run(|n| Op::read(n * bytes, bytes)).mb_per_s;
        assert!(read >= 78.0, "read {read}, {bytes} bytes, {delay} ns late");
        let late = Loop { ops: 5000, ..late };
        let write = late.run(|n| Op::write(n * bytes % (4 << 30), bytes)).mb_per_s;
        assert!(write >= 78.0, "write {write}, {bytes} bytes, {delay} ns late");
    }
}

#[test]
fn sequential_write_runs_at_media_rate_once_the_cache_is_full() {
    let write = |n: u64| Op::write(n * MIB, MIB);
    near(window(0.0).run(write).mb_per_s, 82.0);
    let first = Loop { warm_up: 1, ops: 10, depth: 1, ..window(0.0) }.run(write);
    within(first.mb_per_s, 250.0..=300.0);
}

#[test]
fn skipping_a_chunk_costs_its_passage_or_less() {
    for chunk in [64 << 10, 256 << 10, MIB] {
        // Four of five: what a member of a five-disk RAID 5 sees of a sequential read.
        let skip = |n: u64| Op::read((n / 4 * 5 + n % 4) * chunk, chunk);
        let skipping = Loop { ops: 1500, ..window(0.0) }.run(skip).mb_per_s;
        // A gap longer than a turn is jumped: 1 MiB is 1.5 turns, and costs half a turn.
        within(skipping, 0.78 * 83.0..=0.94 * 83.0);
    }
}

#[test]
fn random_reads_over_the_stroke_follow_the_data_sheet_and_ncq_doubles_them() {
    let member = 64 << 30;
    let run =
        |depth| stretched("hdd-2007").at(depth).run(|n| Op::read(random(n, member), 4096)).iops;
    within(run(1), 75.0..=80.0);
    within(run(32), 150.0..=190.0);
    within(run(4), 95.0..=120.0);
    let small = Loop { member: 128 * MIB, ..stretched("hdd-2007") };
    within(small.run(|n| Op::read(random(n, 128 * MIB), 4096)).iops, 75.0..=80.0);
}

/// Nothing that reorders one and not the other: in a window without long seeks, all that is to be
/// gained is rotation, and it is gained by queued reads and by cached writes.
#[test]
fn reads_and_cached_writes_gain_alike_from_the_order_of_a_drive() {
    let member = 128 * MIB;
    for placement in [Placement::Window { at: 0.0 }, Placement::Stretch] {
        let run = Loop { member, placement, depth: 32, ops: 2000, ..window(0.0) };
        let read = run.run(|n| Op::read(random(n, member), 4096)).iops;
        let write = run.run(|n| Op::write(random(n, member), 4096)).iops;
        let ratio = read / write;
        assert!((0.85..=1.45).contains(&ratio), "{placement:?}: {read:.0} against {write:.0}");
    }
}

#[test]
fn a_disk_of_the_class_over_the_whole_stroke() {
    let member = 64 << 30;
    let read =
        |depth| stretched("hdd-2007").at(depth).run(|n| Op::read(random(n, member), 4096)).iops;
    near(read(1), 78.0);
    near(read(16), 155.0);
    near(read(32), 175.0);
    near(stretched("hdd-2007").at(16).run(|n| Op::write(random(n, member), 4096)).iops, 170.0);
}

/// What a new drive does, what it does when its cache is full, and when it is full itself.
#[test]
fn a_solid_drive_falls_from_burst_to_direct_writes_to_garbage_collection() {
    for (name, burst, direct, steady) in
        [("sata-ssd", 500.0, 300.0, 6e3..=12e3), ("nvme-ssd", 2500.0, 1200.0, 20e3..=45e3)]
    {
        let member = 256 * MIB;
        let placement = Placement::Stretch;
        let base = Loop { member, placement, depth: 32, warm_up: 2, ..stretched(name) };
        let write = |n: u64| Op::write(n * 65_536 % member, 65_536);
        // The DRAM cache takes as much again; a scaled SLC cache is a few MiB.
        let cache = if name == "sata-ssd" { 3 } else { 10 } * MIB / 65_536;
        let first = Loop { warm_up: 0, ops: cache, ..base }.run(write).mb_per_s;
        assert!(first > 0.9 * burst, "{name}: {first:.0} MB/s at first");
        let second = Loop { warm_up: 2000, ops: 1500, ..base }.run(write).mb_per_s;
        near(second, direct);
        let pages = member / 4096;
        let random = |n: u64| Op::write(random(n, member), 4096);
        let at_first = Loop { warm_up: pages / 4, ops: pages / 8, ..base }.run(random).iops;
        let at_last = Loop { warm_up: 4 * pages, ops: pages, ..base }.run(random).iops;
        within(at_last, steady);
        assert!(at_first > 4.0 * at_last, "{name}: {at_first:.0} and {at_last:.0}/s");
    }
}

#[test]
fn a_solid_drive_that_rests_has_its_slc_cache_back() {
    let profile = Profile::named("sata-ssd").unwrap();
    let member = 256 * MIB;
    let mut rig = raidlab_drive::Rig::new();
    let id = rig.add_drive(profile, Placement::Stretch, member, None);
    let mut done = Vec::new();
    let mut write_all = |rig: &mut raidlab_drive::Rig, from: u64| {
        for n in 0..member / MIB {
            rig.submit(from, id, n, Op::write(n * MIB, MIB));
        }
        while let Some(next) = rig.next_event() {
            rig.advance(next, &mut done);
        }
        let first = done.iter().find(|done| done.tag == 33).expect("it ends").at;
        let last = done.iter().map(|done| done.at).max().expect("all end");
        done.clear();
        (first - from, last)
    };
    let (fresh, end) = write_all(&mut rig, 0);
    let (tired, end) = write_all(&mut rig, end + 1_000);
    let (rested, _) = write_all(&mut rig, end + 10_000_000_000);
    assert!(tired > fresh && rested < tired, "{fresh} {tired} {rested}");
}

#[test]
fn random_reads_in_a_small_window_are_bound_by_rotation() {
    let member = 128 * MIB;
    let small = Loop { member, depth: 1, ops: 2000, ..window(0.0) };
    within(small.run(|n| Op::read(random(n, member), 4096)).iops, 170.0..=210.0);
}

#[test]
fn random_writes_gain_from_the_elevator() {
    let member = 64 << 30;
    let write = |n| Op::write(random(n, member), 4096);
    let cached = stretched("hdd-2007").run(write).iops;
    within(cached, 110.0..=180.0);
    let fua = |n| Op { kind: OpKind::Write { fua: true }, ..write(n) };
    within(stretched("hdd-2007").run(fua).iops, 70.0..=80.0);
}

#[test]
fn many_files_at_once_give_about_the_published_figure() {
    // Published: 34 MB/s for 200 files of 40 MB read concurrently on one disk, with the kernel's
    // default read-ahead of 128 KiB.
    let file = 40_000_000 / 4096 * 4096;
    let at = |n: u64| n % 200 * file + n / 200 * 131_072 % (39 << 20);
    let many = Loop { member: 16 << 30, depth: 31, warm_up: 400, ops: 3000, ..window(0.0) };
    within(many.run(|n| Op::read(at(n), 131_072)).mb_per_s, 30.0..=40.0);
}

#[test]
fn few_streams_share_the_head_and_none_starves() {
    for streams in [2, 4] {
        let bytes = 131_072;
        let at = |n: u64| n % streams * (1 << 30) + n / streams * bytes;
        let few = Loop { depth: streams, ops: 3000, ..window(0.0) };
        let Measured { mb_per_s, service_us, .. } = few.run(|n| Op::read(at(n), bytes));
        within(mb_per_s, 40.0..=70.0);
        assert!(service_us < 20_000.0, "{service_us}");
    }
}

#[test]
fn reads_of_dirty_data_come_from_the_cache() {
    let pairs = |n: u64| match n % 2 {
        0 => Op::write(random(n, 4 << 30), 4096),
        _ => Op::read(random(n - 1, 4 << 30), 4096),
    };
    let few = Loop { depth: 1, warm_up: 0, ops: 20, ..window(0.0) };
    assert!(few.run(pairs).service_us < 200.0);
}

#[test]
fn the_drive_of_2009_is_faster_in_line_and_not_at_random() {
    let profile = Profile::named("hdd-2009").unwrap();
    let rate = Loop { profile, ..window(0.0) }.run(read_mib).mb_per_s;
    near(rate, 125.0);
    within(stretched("hdd-2009").run(|n| Op::read(random(n, 64 << 30), 4096)).iops, 74.0..=82.0);
}

/// (profile, read MB/s, write MB/s, read us, write us, read IOPS, write IOPS)
const SOLID: [(&str, f64, f64, f64, f64, f64, f64); 2] = [
    ("sata-ssd", 540.0, 500.0, 90.0, 45.0, 95e3, 80e3),
    ("nvme-ssd", 3200.0, 2500.0, 80.0, 20.0, 500e3, 400e3),
];

#[test]
fn solid_drives_follow_their_data_sheets() {
    for (name, read_rate, write_rate, read_us, write_us, read_iops, write_iops) in SOLID {
        let member = 4 << 30;
        let placement = Placement::Window { at: 0.0 };
        let base = Loop { member, placement, warm_up: 1000, ..stretched(name) };
        near(base.at(8).run(|n| read_mib(n % 4096)).mb_per_s, read_rate);
        near(base.at(8).run(|n| Op::write(n * MIB % member, MIB)).mb_per_s, write_rate);
        near(base.run(|n| Op::read(random(n, member), 4096)).service_us, read_us);
        let first = Loop { warm_up: 0, ops: 100, ..base };
        near(first.run(|n| Op::write(random(n, member), 4096)).service_us, write_us);
        let many = Loop { warm_up: 60_000, ops: 40_000, ..base.at(256) };
        near(many.run(|n| Op::read(random(n, member), 4096)).iops, read_iops);
        let many = Loop { warm_up: 150_000, ..many };
        near(many.run(|n| Op::write(random(n, member), 4096)).iops, write_iops);
    }
}

#[test]
fn bounds_of_the_profile_agree_with_the_model() {
    for at in [0.0, 0.5, 0.95] {
        let run = Loop { member: 600 * MIB, ops: 500, ..window(at) };
        let bound = run.profile.sequential_bytes_per_s(run.placement, run.member) / 1e6;
        let measured = run.run(|n| read_mib(n % 600)).mb_per_s;
        assert!((measured / bound - 1.0).abs() < 0.01, "{measured} {bound}");
    }
    let run = Loop { placement: Placement::Stretch, member: 512 * MIB, ops: 400, ..window(0.0) };
    let bound = run.profile.sequential_bytes_per_s(run.placement, run.member) / 1e6;
    near(run.run(|n| read_mib(n % 512)).mb_per_s, bound);
    let edge = run.profile.media_rate_at(0.0);
    assert!((edge / 83e6 - 1.0).abs() < 1e-9 && run.profile.media_rate_at(1.0) < 42.1e6);
}

#[test]
fn mixed_reads_and_writes_both_proceed() {
    let member = 64 << 30;
    let mixed = |n: u64| match mix(n) % 2 {
        0 => Op::read(random(n, member), 4096),
        _ => Op::write(random(n, member), 4096),
    };
    within(stretched("hdd-2007").at(16).run(mixed).iops, 90.0..=180.0);
}
