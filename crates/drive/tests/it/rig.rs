//! What holds for every rig: conservation, order, determinism, durability, buses, channels,
//! fairness.

use proptest::prelude::*;
use raidlab_drive::{BusId, Completion, DriveId, Nanos, Op, OpKind, Placement, Profile, Rig};

use crate::closed_loop::{MIB, mix, random};

const MEMBER: u64 = 64 * MIB;
const EDGE: Placement = Placement::Window { at: 0.0 };

fn add(rig: &mut Rig, name: &str, placement: Placement, bus: Option<BusId>) -> DriveId {
    rig.add_drive(Profile::named(name).unwrap(), placement, MEMBER, bus)
}

/// Runs until nothing is in flight.
fn drain(rig: &mut Rig) -> Vec<Completion> {
    let mut done = Vec::new();
    while let Some(at) = rig.next_event() {
        rig.advance(at, &mut done);
    }
    done
}

/// One operation alone, from `now`; what it took.
fn alone(rig: &mut Rig, now: Nanos, drive: DriveId, op: Op) -> Nanos {
    rig.submit(now, drive, 0, op);
    let done = drain(rig);
    assert_eq!(done.len(), 1);
    done[0].service
}

/// Time since the last submission, drive, operation.
type Step = (Nanos, usize, Op);

fn steps(drives: usize) -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        4 => Just(OpKind::Read),
        4 => Just(OpKind::Write { fua: false }),
        1 => Just(OpKind::Write { fua: true }),
        1 => Just(OpKind::Flush),
        1 => Just(OpKind::Discard),
    ];
    let near = 0..64u64;
    let at = prop_oneof![near, 0..MEMBER / 4096];
    let pages = prop_oneof![8 => 0..40u64, 1 => 0..600u64];
    let gap = prop_oneof![3 => Just(0), 3 => 0..200_000u64, 1 => 0..50_000_000u64];
    let step = (gap, 0..drives, kind, at, pages).prop_map(|(gap, drive, kind, at, pages)| {
        let at_bytes = at * 4096;
        (gap, drive, Op { kind, at_bytes, bytes: (pages * 4096).min(MEMBER - at_bytes) })
    });
    proptest::collection::vec(step, 1..200)
}

/// One drive of every profile, all but the last behind a bus; `windows` places them. Drives 0 and 1
/// are on one channel.
fn mixed_rig(windows: bool) -> (Rig, Vec<DriveId>) {
    let mut rig = Rig::new();
    let bus = rig.add_bus(133_000_000);
    let names: Vec<_> = Profile::names().collect();
    let drives = names.iter().enumerate().map(|(n, name)| {
        let placement = if windows { Placement::Window { at: 0.9 } } else { Placement::Stretch };
        add(&mut rig, name, placement, (n + 1 < names.len()).then_some(bus))
    });
    let drives: Vec<_> = drives.collect();
    let channel = rig.add_channel();
    rig.put_on_channel(drives[0], channel);
    rig.put_on_channel(drives[1], channel);
    (rig, drives)
}

/// Submits all steps and drains. `lazy` fetches completions only at the end of time.
fn perform(steps: &[Step], windows: bool, lazy: bool) -> Vec<Completion> {
    let (mut rig, drives) = mixed_rig(windows);
    let (mut done, mut now) = (Vec::new(), 0);
    for (tag, &(gap, drive, op)) in steps.iter().enumerate() {
        let until = now + gap;
        while let Some(at) = rig.next_event().filter(|&at| !lazy && at <= until) {
            assert!(at >= now, "an event in the past");
            now = at;
            let fresh = done.len();
            rig.advance(now, &mut done);
            assert!(done[fresh..].iter().all(|done| done.at <= now));
        }
        now = until;
        rig.submit(now, drives[drive], tag as u64, op);
    }
    if lazy {
        rig.advance(Nanos::MAX / 2, &mut done);
        assert_eq!(rig.next_event(), None);
    } else {
        done.extend(drain(&mut rig));
    }
    assert!(drives.iter().all(|&drive| rig.in_flight(drive) == 0));
    done
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn every_operation_completes_once_in_time_order_and_always_alike(
        steps in steps(4),
        windows in any::<bool>(),
    ) {
        let done = perform(&steps, windows, false);
        prop_assert!(done.is_sorted_by_key(|done| done.at));
        let mut tags: Vec<_> = done.iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..steps.len() as u64).collect::<Vec<_>>());
        let mut submitted = 0;
        let times: Vec<_> = steps.iter().map(|(gap, ..)| { submitted += gap; submitted }).collect();
        for done in &done {
            prop_assert_eq!(done.at - done.service, times[done.tag as usize]);
            prop_assert!(done.service > 0);
        }
        // The same again, and the same when the caller comes late for its completions.
        prop_assert_eq!(&perform(&steps, windows, false), &done);
        prop_assert_eq!(&perform(&steps, windows, true), &done);
    }

    #[test]
    fn a_flush_completes_after_every_earlier_operation_of_its_drive(steps in steps(3)) {
        let done = perform(&steps, true, false);
        let at = |tag: usize| done.iter().find(|done| done.tag == tag as u64).unwrap().at;
        for (flush, &(_, drive, op)) in steps.iter().enumerate() {
            // The first three profiles are SATA, which drains the queue.
            for tag in (0..steps.len()).filter(|&tag| op.kind == OpKind::Flush && tag != flush) {
                if steps[tag].1 == drive {
                    prop_assert_eq!(at(tag) < at(flush), tag < flush, "{} {}", tag, flush);
                }
            }
        }
    }
}

#[test]
fn a_flush_waits_for_the_medium_and_a_clean_cache_does_not() {
    let mut rig = Rig::new();
    let drive = add(&mut rig, "hdd-2007", Placement::Stretch, None);
    let mut now = 0;
    for n in 0..20 {
        rig.submit(now, drive, n, Op::write(random(n, MEMBER), 4096));
        now += 1_000_000;
    }
    let acknowledged = drain(&mut rig);
    assert!(acknowledged.iter().all(|done| done.service < 300_000), "written to the cache");
    let flush = alone(&mut rig, now, drive, Op::flush());
    assert!(flush > 12 * 5_000_000, "most of twenty places are still to be written: {flush}");
    now += flush;
    let again = alone(&mut rig, now, drive, Op::flush());
    assert!(again < 200_000, "{again}");
}

#[test]
fn a_solid_drive_flushes_what_it_has_just_acknowledged() {
    for (name, least) in [("sata-ssd", 900_000), ("nvme-ssd", 700_000)] {
        let mut rig = Rig::new();
        let drive = add(&mut rig, name, EDGE, None);
        assert!(alone(&mut rig, 0, drive, Op::flush()) < 20_000, "clean");
        let write = alone(&mut rig, 1_000_000, drive, Op::write(0, 4096));
        let flush = alone(&mut rig, 1_000_000 + write, drive, Op::flush());
        assert!(flush > least, "{name}: {flush}");
        assert!(alone(&mut rig, 50_000_000, drive, Op::flush()) < 20_000, "clean again");
    }
}

#[test]
fn forced_writes_pay_for_the_medium_and_leave_the_cache_clean() {
    let mut rig = Rig::new();
    let drive = add(&mut rig, "hdd-2007", EDGE, None);
    let fua = Op { kind: OpKind::Write { fua: true }, ..Op::write(MIB, 4096) };
    let mut total = 0;
    for n in 0..10 {
        total += alone(&mut rig, n * 100_000_000, drive, fua);
    }
    assert!(total > 10 * 2_000_000, "{total}");
    assert!(alone(&mut rig, 2_000_000_000, drive, Op::flush()) < 200_000);
    // It also supersedes what was dirty in its place.
    let now = 3_000_000_000;
    rig.submit(now, drive, 1, Op::write(MIB, 4096));
    rig.submit(now, drive, 2, fua);
    drain(&mut rig);
    let later = now + 1_000_000_000;
    assert!(alone(&mut rig, later, drive, Op::flush()) < 200_000);
}

/// Closed loops of sequential 256 KiB reads, four deep, on every drive, for two seconds: bytes per
/// drive.
fn stream_all(rig: &mut Rig, drives: &[DriveId]) -> Vec<u64> {
    let (mut bytes, mut next) = (vec![0; drives.len()], vec![0; drives.len()]);
    let mut done = Vec::new();
    let submit = |rig: &mut Rig, now, n: usize, next: &mut Vec<u64>| {
        rig.submit(now, drives[n], 0, Op::read((next[n] % (MEMBER >> 18)) << 18, 256 << 10));
        next[n] += 1;
    };
    for n in 0..drives.len() * 4 {
        submit(rig, 0, n % drives.len(), &mut next);
    }
    while let Some(now) = rig.next_event().filter(|&at| at < 2_000_000_000) {
        rig.advance(now, &mut done);
        for done in done.drain(..) {
            bytes[done.drive.index()] += 256 << 10;
            submit(rig, done.at, done.drive.index(), &mut next);
        }
    }
    bytes
}

#[test]
fn a_bus_is_a_plateau_shared_fairly() {
    let run = |count: usize| {
        let mut rig = Rig::new();
        let bus = rig.add_bus(133_000_000);
        let drives: Vec<_> =
            (0..count).map(|_| add(&mut rig, "hdd-2007", EDGE, Some(bus))).collect();
        stream_all(&mut rig, &drives)
    };
    let rate = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 / 2e6;
    let one = rate(&run(1));
    assert!((one / 82.0 - 1.0).abs() < 0.05, "{one}");
    for count in [2, 4, 6] {
        let bytes = run(count);
        let total = rate(&bytes);
        assert!(total <= 133.3 && total > 130.0, "{count} drives: {total}");
        let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        assert!(*least as f64 > 0.9 * *most as f64, "{bytes:?}");
    }
}

#[test]
fn buses_are_independent() {
    let mut rig = Rig::new();
    let buses = [rig.add_bus(133_000_000), rig.add_bus(133_000_000)];
    let drives: Vec<_> =
        (0..4).map(|n| add(&mut rig, "hdd-2007", EDGE, Some(buses[n % 2]))).collect();
    let total = stream_all(&mut rig, &drives).iter().sum::<u64>() as f64 / 2e6;
    assert!(total > 250.0, "{total}");
}

/// Operations per second of all drives together, each with `depth` random reads under way.
fn random_reads(rig: &mut Rig, drives: &[DriveId], depth: u64) -> Vec<u64> {
    let (mut done, mut next, mut count) = (Vec::new(), 0, vec![0; drives.len()]);
    let mut submit = |rig: &mut Rig, at, drive: usize| {
        next += 1;
        rig.submit(at, drives[drive], next, Op::read(random(next, MEMBER), 4096));
    };
    for drive in 0..drives.len() {
        (0..depth).for_each(|_| submit(rig, 0, drive));
    }
    while let Some(now) = rig.next_event().filter(|&at| at < 10_000_000_000) {
        rig.advance(now, &mut done);
        for done in done.drain(..) {
            count[done.drive.index()] += 1;
            submit(rig, done.at, done.drive.index());
        }
    }
    count
}

#[test]
fn what_waits_and_continues_is_one_command() {
    let time = |gap: u64| {
        let mut rig = Rig::new();
        // No queue in the drive: one command, and the others wait in the host.
        let drive = add(&mut rig, "hdd-2002", EDGE, None);
        for number in 0..32 {
            rig.submit(0, drive, number, Op::read(number * (4096 + gap), 4096));
        }
        assert_eq!(rig.in_flight(drive), 32);
        let done = drain(&mut rig);
        let tags: Vec<u64> = done.iter().map(|one| one.tag).collect();
        assert_eq!(tags, (0..32).collect::<Vec<_>>());
        assert_eq!(rig.in_flight(drive), 0);
        assert!(done.iter().all(|one| one.service == one.at), "all were submitted at 0");
        done[31].at
    };
    let (merged, apart) = (time(0), time(512));
    // 30 commands less, each with its overhead.
    assert!(apart > merged + 3_000_000, "{merged} and {apart} ns");
}

#[test]
fn a_plugged_batch_is_merged_for_a_drive_with_a_queue() {
    let time = |plugged: bool| {
        let mut rig = Rig::new();
        let drive = add(&mut rig, "hdd-2007", EDGE, None);
        for number in 0..16 {
            let op = Op::write(number * 4096, 4096);
            match plugged {
                true => rig.plug(0, drive, number, op),
                false => rig.submit(0, drive, number, op),
            }
        }
        assert_eq!(rig.next_event().is_none(), plugged, "it waits for the rest of the batch");
        rig.unplug(0, drive);
        drain(&mut rig).iter().map(|done| done.at).max().expect("16")
    };
    // One command in place of 16, whose overheads are 100 us each.
    assert!(time(false) > time(true) + 1_000_000);
}

#[test]
fn reads_and_writes_are_not_merged_and_a_merged_command_is_no_longer_than_the_limit() {
    let mut rig = Rig::new();
    let drive = add(&mut rig, "hdd-2002", EDGE, None);
    let ops = [
        Op::read(8 * MIB, 4096),
        Op::read(0, 4096),
        Op::write(4096, 4096),
        Op { kind: OpKind::Write { fua: true }, at_bytes: 8192, bytes: 4096 },
        Op::read(MIB, 128 << 10),
        Op::read(MIB + (128 << 10), 4096),
    ];
    for (tag, op) in ops.into_iter().enumerate() {
        rig.submit(0, drive, tag as u64, op);
    }
    let done = drain(&mut rig);
    let mut times: Vec<Nanos> = done.iter().map(|one| one.at).collect();
    times.dedup();
    assert_eq!(times.len(), ops.len(), "each its own command: {done:?}");
}

#[test]
fn drives_on_one_channel_seek_one_after_the_other() {
    let run = |drives: usize, channels: usize| {
        let mut rig = Rig::new();
        let cables: Vec<_> = (0..channels).map(|_| rig.add_channel()).collect();
        let drives: Vec<_> = (0..drives)
            .map(|n| {
                let drive = add(&mut rig, "hdd-2002", Placement::Stretch, None);
                rig.put_on_channel(drive, cables[n % channels]);
                drive
            })
            .collect();
        random_reads(&mut rig, &drives, 4)
    };
    let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
    let one = sum(&run(1, 1));
    let apart = sum(&run(2, 2));
    assert!((apart / one - 2.0).abs() < 0.1, "{one} {apart}");
    for count in [2, 3] {
        let together = run(count, 1);
        assert!((sum(&together) / one - 1.0).abs() < 0.1, "{one} {together:?}");
        let (least, most) = (together.iter().min().unwrap(), together.iter().max().unwrap());
        assert!(most - least <= 1, "they take turns: {together:?}");
    }
    // A drive alone on its channel is as one without: it has no queue in any case.
    let mut rig = Rig::new();
    let free = add(&mut rig, "hdd-2002", Placement::Stretch, None);
    assert_eq!(sum(&random_reads(&mut rig, &[free], 4)), one);
}

#[test]
fn a_channel_undoes_a_drives_queue() {
    let run = |channel: bool| {
        let mut rig = Rig::new();
        let drive = add(&mut rig, "hdd-2007", Placement::Stretch, None);
        if channel {
            let channel = rig.add_channel();
            rig.put_on_channel(drive, channel);
        }
        random_reads(&mut rig, &[drive], 16)[0] as f64
    };
    let (free, bound) = (run(false), run(true));
    assert!(free > 1.5 * bound, "{free} with its queue, {bound} without");
}

#[test]
fn parts_of_one_disk_pay_for_the_way_between_them() {
    // Four streams, once on drives of their own and once on quarters of one drive.
    let mut apart = Rig::new();
    let drives: Vec<_> = (0..4).map(|_| add(&mut apart, "hdd-2007", EDGE, None)).collect();
    let apart = stream_all(&mut apart, &drives).iter().sum::<u64>() as f64 / 2e6;
    let mut rig = Rig::new();
    let profile = Profile::named("hdd-2007").unwrap();
    let disk = rig.add_drive(profile, Placement::Stretch, 4 * MEMBER, None);
    let (mut done, mut at, mut bytes) = (Vec::new(), [0u64; 4], 0u64);
    let mut submit = |rig: &mut Rig, now, part: u64| {
        let place = part * MEMBER + at[part as usize] % MEMBER;
        at[part as usize] += 256 << 10;
        rig.submit(now, disk, part, Op::read(place, 256 << 10));
    };
    (0..4).for_each(|part| submit(&mut rig, 0, part));
    while let Some(now) = rig.next_event().filter(|&at| at < 2_000_000_000) {
        rig.advance(now, &mut done);
        for done in done.drain(..) {
            bytes += 256 << 10;
            submit(&mut rig, done.at, done.tag);
        }
    }
    let shared = bytes as f64 / 2e6;
    assert!(shared < apart / 5.0, "{shared} MB/s on one disk, {apart} on four");
}

#[test]
#[should_panic(expected = "a drive has one cable")]
fn a_drive_is_on_one_channel() {
    let mut rig = Rig::new();
    let drive = add(&mut rig, "hdd-2002", EDGE, None);
    let channels = [rig.add_channel(), rig.add_channel()];
    channels.into_iter().for_each(|channel| rig.put_on_channel(drive, channel));
}

const VICTIM: u64 = u64::MAX;

/// Keeps `depth` operations of `hog` in flight; the service time of the last of the victims.
fn starve(hog: impl Fn(u64) -> Op, depth: u64, victims: &[Op]) -> Nanos {
    let mut rig = Rig::new();
    let drive =
        rig.add_drive(Profile::named("hdd-2007").unwrap(), Placement::Stretch, 4 << 30, None);
    let mut done = Vec::new();
    for n in 0..depth {
        rig.submit(0, drive, n, hog(n));
    }
    for &op in victims {
        rig.submit(0, drive, VICTIM, op);
    }
    let mut left = victims.len();
    let mut next = depth;
    loop {
        let now = rig.next_event().expect("the hogs continue");
        assert!(now < 10_000_000_000, "starved");
        rig.advance(now, &mut done);
        for done in done.drain(..) {
            if done.tag == VICTIM {
                left -= 1;
                if left == 0 {
                    return done.service;
                }
                continue;
            }
            rig.submit(done.at, drive, next, hog(next));
            next += 1;
        }
    }
}

#[test]
fn no_operation_starves() {
    let far = Op::read(4095 * MIB, 4096);
    let cluster = starve(|n| Op::read(mix(n) % 256 * 4096, 4096), 30, &[far]);
    assert!(cluster < 700_000_000, "a cluster elsewhere: {cluster}");
    let stream = starve(|n| Op::read(n % 3072 * MIB, MIB), 8, &[far]);
    assert!(stream < 700_000_000, "a stream elsewhere: {stream}");
    let writers = starve(|n| Op::write(random(n, 4 << 30), 4096), 30, &[far]);
    assert!(writers < 700_000_000, "writers: {writers}");
    let readers = starve(|n| Op::read(random(n, 4 << 30), 4096), 30, &[Op::write(5 * MIB, 4096)]);
    assert!(readers < 700_000_000, "readers: {readers}");
    // More writes than the cache has extents: the last wait for destaging while reads continue.
    let scattered: Vec<_> = (0..72).map(|n| Op::write(random(n, 4 << 30), 4096)).collect();
    let writes = starve(|n| Op::read(random(n, 4 << 30), 4096), 20, &scattered);
    assert!(writes < 3_000_000_000, "writes among readers: {writes}");
    let flush = starve(|n| Op::read(random(n, 4 << 30), 4096), 30, &[Op::flush()]);
    assert!(flush < 1_000_000_000, "a flush: {flush}");
}

#[test]
fn spindles_are_not_in_step() {
    let mut rig = Rig::new();
    let drives: Vec<_> = (0..3).map(|_| add(&mut rig, "hdd-2007", EDGE, None)).collect();
    for &drive in &drives {
        rig.submit(0, drive, 0, Op::read(32 * MIB, 4096));
    }
    let done = drain(&mut rig);
    assert!(done[0].at != done[1].at && done[1].at != done[2].at);
}

#[test]
#[should_panic(expected = "leaves a member")]
fn an_operation_beyond_the_member_is_a_bug_of_the_caller() {
    let mut rig = Rig::new();
    let drive = add(&mut rig, "nvme-ssd", EDGE, None);
    rig.submit(0, drive, 0, Op::read(MEMBER - 4096, 8192));
}
