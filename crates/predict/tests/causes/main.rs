//! Every cause, injected into figures of a healthy array, and something close to it that must not
//! fire.

mod background;
mod cases;
mod missing;

use md::Level;
use raidlab_predict::calibrate::SharedBus;
use raidlab_predict::diagnose::{
    Case, Cause, IoLimit, Layer, NarrowLink, Network, Probe, ProbeFigures, RandomRates, Traffic,
    Verdict, diagnose,
};
use raidlab_predict::fitted::Fitted;
use raidlab_predict::law::{Access, Array, Kernel, Media, Single, Source, Work, WriteBack};

use cases::{busy, reading, scaled, seeking, sick, sync, threads, writing};

#[test]
fn healthy_arrays_are_not_accused() {
    let fitted = Fitted::built_in();
    for (name, case) in [("reads", reading()), ("writes", writing()), ("seeks", seeking())] {
        let found = diagnose(&case, &fitted);
        let fine = matches!(found.verdict, Verdict::Members | Verdict::AsExpected);
        assert!(fine, "{name}: {found:#?}");
        assert_eq!(found.next_probe, None, "{name}");
    }
}

#[test]
fn every_cause_is_named_where_it_is_and_not_where_it_is_not() {
    let fitted = Fitted::built_in();
    let mut failures = Vec::new();
    let all = sick();
    for (index, (cause, injected, healthy)) in all.iter().enumerate() {
        let found = diagnose(&injected(), &fitted);
        if found.cause() != Some(*cause) {
            failures.push(format!("{index} {cause:?} injected: {found:#?}"));
        }
        let found = diagnose(&healthy(), &fitted);
        if found.cause().is_some() {
            failures.push(format!("{index} {cause:?} not injected: {found:#?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Members) {
        assert!(all.iter().any(|(one, ..)| *one == cause), "{cause:?} has no test");
    }
}

/// Four members of 100 MB/s that are no disks with platters, read at 110 MB/s: their gaps and
/// channels say nothing.
#[test]
fn what_does_not_rotate_has_no_gaps_and_no_channel() {
    let fitted = Fitted::built_in();
    for media in [Media::Flash, Media::Unknown] {
        let mut case = reading();
        case.machine.media = media;
        (case.ours, case.sample, case.measured) = (true, None, 330.0);
        case.array = Array::new(Level::Raid5, 4, 64.0);
        case.probes.alone_mb_per_s = Some(vec![100.0; 4]);
        case.probes.together_mb_per_s = Some(vec![100.0; 4]);
        case.probes.seeks = Some(vec![RandomRates { q1: 300.0, q4: 900.0, q32: 900.0 }; 4]);
        case.probes.seeks_together = Some(vec![300.0; 4]);
        case.probes.gap_ms = Some(9.0);
        let found = diagnose(&case, &fitted);
        assert!(found.cause().is_none(), "{media:?} {found:#?}");
        assert_ne!(found.verdict, Verdict::Above, "{media:?} {found:#?}");
        assert_eq!(found.expected.is_err(), media == Media::Unknown, "{found:#?}");
    }
}

#[test]
fn a_ceiling_that_the_figure_exceeds_is_no_expectation() {
    let mut case = reading();
    case.sample = None;
    case.probes.gap_ms = Some(40.0);
    case.probes.buses = Some(vec![raidlab_predict::calibrate::SharedBus {
        disks: (0..6).collect(),
        mb_per_s: 200.0,
    }]);
    let found = diagnose(&case, &Fitted::built_in());
    let expected = found.expected.expect("a law");
    assert!(expected.high > case.measured && found.verdict != Verdict::Above, "{expected:?}");
    let below = found.ceilings.iter().find(|line| line.rate * 1.15 < case.measured);
    assert_eq!(below, None);
}

#[test]
fn synced_writes_within_the_interval_are_healthy() {
    let mut case = reading();
    case.array = Array::new(Level::Raid1, 2, 64.0);
    case.access = Access::new(Work::SyncWrite, WriteBack::Extents);
    case.request_kib = Some(4.0);
    (case.probes.sync_ms, case.measured) = (Some(18.0), 38.0);
    case.state.bitmap = Some(false);
    let sample = case.sample.as_mut().expect("a sample");
    sample.array = Traffic { writes: 38.0, write_mb: 0.2, queue: Some(0.95), ..Traffic::default() };
    sample.members.truncate(2);
    for member in &mut sample.members {
        member.traffic = Traffic { writes: 38.0, busy: Some(0.5), ..Traffic::default() };
    }
    let found = diagnose(&case, &Fitted::built_in());
    assert_eq!(found.cause(), None, "{found:#?}");
    let expected = found.expected.expect("a law");
    assert!((expected.low..expected.high).contains(&38.0), "{expected:?}");
}

#[test]
fn an_internal_bitmap_leaves_no_expectation_of_small_writes() {
    let mut case = reading();
    (case.access, case.sample) = (Access::new(Work::RandomWrite, WriteBack::Raw), None);
    case.measured = 90.0;
    let found = diagnose(&case, &Fitted::built_in());
    assert_eq!(found.expected, Err(raidlab_predict::law::WhyNot::Bitmap));
    case.state.bitmap = Some(false);
    assert!(diagnose(&case, &Fitted::built_in()).expected.is_ok());
}

#[test]
fn probes_are_named_one_after_another_until_they_decide() {
    let fitted = Fitted::built_in();
    let whole = scaled(reading(), 0.55);
    let mut case = Case { probes: ProbeFigures::default(), ..whole.clone() };
    let mut order = Vec::new();
    while let Some(probe) = diagnose(&case, &fitted).next_probe {
        order.push(probe);
        let known = whole.probes.clone();
        let probes = &mut case.probes;
        match probe {
            Probe::Alone => probes.alone_mb_per_s = known.alone_mb_per_s,
            Probe::Together => {
                probes.buses = Some(vec![SharedBus { disks: (0..6).collect(), mb_per_s: 385.0 }]);
            }
            Probe::Seeks => probes.seeks = known.seeks,
            Probe::SeeksTogether => probes.seeks_together = known.seeks_together,
            Probe::Transfer => probes.transfer = known.transfer,
            Probe::Gap => probes.gap_ms = known.gap_ms,
        }
        assert!(order.len() < 8, "{order:?}");
    }
    assert_eq!(order[..2], [Probe::Alone, Probe::Together], "{order:?}");
    assert!(order.contains(&Probe::SeeksTogether), "{order:?}");
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Bus));
}

#[test]
fn without_an_explanation_nothing_is_named() {
    let fitted = Fitted::built_in();
    let mut case = scaled(reading(), 0.3);
    case.sample = None;
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::Unexplained, "{found:#?}");
    // Writes: what a scratch area would show is named.
    let mut case = scaled(writing(), 0.3);
    case.sample = None;
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::Unexplained, "{found:#?}");
    assert!(found.needs_writes);
    // Without any figure of the members there is no number, and the first probe is named.
    let mut case = reading();
    (case.sample, case.probes) = (None, ProbeFigures::default());
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::Unknown, "{found:#?}");
    assert_eq!(found.next_probe, Some(Probe::Alone));
    assert!(found.expected.is_err());
}

/// Without figures of the members, as right after `raidlab diagnose md0 --seconds 5`.
fn unprobed(mut case: Case) -> Case {
    case.probes = ProbeFigures::default();
    case
}

/// A load that is a share of what the array can do, and so keeps nothing waiting.
fn light(mut case: Case, share: f64, queue: f64) -> Case {
    case = scaled(case, share);
    let array = &mut case.sample.as_mut().expect("a sample").array;
    (array.queue, array.busy) = (Some(queue), Some(queue.min(1.0)));
    busy(&mut case, queue / 4.0, queue / 4.0);
    case
}

fn flushes(case: &mut Case, array: Option<f64>, members: f64) {
    let sample = case.sample.as_mut().expect("a sample");
    sample.array.flushes = array;
    sample.members.iter_mut().for_each(|one| one.traffic.flushes = Some(members));
}

#[test]
fn a_light_load_is_no_bottleneck() {
    let fitted = Fitted::built_in();
    // 20 random reads a second; the depth is what was counted.
    let mut few = light(seeking(), 20.0 / 850.0, 0.2);
    few.access.depth = 1.0;
    // A player of media: 5 MB/s through the page cache, with little read-ahead.
    let mut player = light(reading(), 5.0 / 690.0, 0.04);
    player.machine.read_ahead_kib = Some(512.0);
    player.request_kib = Some(128.0);
    let mut small = light(reading(), 0.05, 0.3);
    (small.access.direct, small.request_kib) = (true, Some(4.0));
    // The kernel counts busy time by whole ticks: small requests fill it.
    let mut ticks = light(seeking(), 0.1, 0.3);
    ticks.sample.as_mut().expect("a sample").array.busy = Some(1.0);
    let mut uncounted = light(seeking(), 0.1, 0.3);
    uncounted.sample.as_mut().expect("a sample").array.busy = None;
    let writes = light(writing(), 0.1, 0.2);
    let mut failed = light(reading(), 0.1, 0.2);
    failed.array.missing = 1;
    let all = [
        ("few", few),
        ("player", player),
        ("small", small),
        ("ticks", ticks),
        ("uncounted", uncounted),
        ("writes", writes),
        ("failed", failed),
    ];
    for (name, case) in all {
        for (name, case) in [(name, case.clone()), ("unprobed", unprobed(case))] {
            let found = diagnose(&case, &fitted);
            assert_eq!(found.verdict, Verdict::NotLoaded, "{name}: {found:#?}");
            assert_eq!((found.next_probe, found.needs_writes), (None, false), "{name}");
            let idle = [Cause::ReadAhead, Cause::QueueDepth, Cause::SmallRequests];
            assert!(!found.signs.iter().any(|sign| idle.contains(&sign.cause)), "{name}");
        }
    }
    // What is in front of the array leaves it idle, and limits.
    let mut network = light(reading(), 112.0 / 690.0, 0.3);
    network.state.network_mb_per_s = Some(117.0);
    assert_eq!(diagnose(&network, &fitted).cause(), Some(Cause::Network));
    let mut program = light(reading(), 0.3, 0.4);
    threads(&mut program, &[("dd", 0.99, false)]);
    assert_eq!(diagnose(&program, &fitted).cause(), Some(Cause::ProgramCpu));
    // One request at a time: the program computes while the array waits.
    let mut turns = light(seeking(), 0.18, 0.7);
    (turns.access.depth, turns.measured) = (1.0, 82.0);
    threads(&mut turns, &[("dd", 0.3, false)]);
    assert_eq!(diagnose(&turns, &fitted).cause(), Some(Cause::QueueDepth));
}

#[test]
fn a_sample_of_another_time_says_nothing_of_the_load() {
    let fitted = Fitted::built_in();
    // A figure of yesterday; nothing runs now.
    let mut case = unprobed(light(reading(), 0.0, 0.0));
    case.measured = 300.0;
    (case.machine.read_ahead_kib, case.request_kib) = (Some(512.0), Some(128.0));
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::Unknown, "{found:#?}");
    assert_eq!(found.signs, []);
    // Nor does a program that is busy now.
    let idle = case.clone();
    threads(&mut case, &[("make", 1.0, false)]);
    assert_eq!(diagnose(&case, &fitted).signs, []);
    case = idle;
    case.state.sync = Some(sync("check", None));
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Background));
}

#[test]
fn flushes_that_md_does_not_count_are_no_bitmap() {
    let fitted = Fitted::built_in();
    // Random writes of RAID 5: data and parity of each, 100 a second, each with a flush.
    let mut case = unprobed(scaled(writing(), 0.3));
    let sample = case.sample.as_mut().expect("a sample");
    (sample.array.writes, sample.array.write_mb) = (100.0, 0.4);
    sample.members.iter_mut().for_each(|one| one.traffic.writes = 33.0);
    flushes(&mut case, None, 100.0);
    let found = diagnose(&case, &fitted);
    assert_eq!(found.cause(), Some(Cause::Flush), "{found:#?}");
    assert!(!found.because.iter().any(|words| words.contains("orders")), "{found:#?}");
    // Each write has one of the bitmap before it, on all members.
    let sample = case.sample.as_mut().expect("a sample");
    sample.members.iter_mut().for_each(|one| one.traffic.writes = 133.0);
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Bitmap));
    // Flushes of members are unknown, as those of partitions.
    case.sample.as_mut().expect("a sample").members[1].traffic.flushes = None;
    let found = diagnose(&case, &fitted);
    assert!(!found.signs.iter().any(|sign| sign.cause == Cause::Bitmap), "{found:#?}");
}

#[test]
fn disks_that_keep_their_cache_without_power_have_no_cache_off() {
    let fitted = Fitted::built_in();
    let mut flash = scaled(writing(), 0.7);
    flash.machine.media = Media::Flash;
    flash.state.write_cache = Some(false);
    flash.probes.write_mb_per_s = Some(120.0);
    flash.probes.alone_mb_per_s = Some(vec![500.0; 6]);
    // A controller with a battery: the disks do what they can.
    let mut controller = writing();
    controller.state.write_cache = Some(false);
    controller.probes.write_mb_per_s = Some(125.0);
    controller.probes.alone_mb_per_s = Some(vec![190.0; 6]);
    for (name, case) in [("flash", flash), ("controller", controller)] {
        let found = diagnose(&case, &fitted);
        assert_ne!(found.cause(), Some(Cause::WriteCacheOff), "{name}: {found:#?}");
    }
}

#[test]
fn a_link_is_narrow_where_its_members_fill_it() {
    let fitted = Fitted::built_in();
    // A controller x8 in a slot x4: 6 disks are far from its 3400 MB/s.
    for (mb_per_s, members, named) in [(3400.0, 6, false), (720.0, 6, true), (720.0, 1, false)] {
        let mut case = reading();
        let words = "sda: PCIe x4 of x8".to_string();
        case.state.narrow_links = vec![NarrowLink { words, mb_per_s, members }];
        let found = diagnose(&case, &fitted);
        assert_eq!(found.cause() == Some(Cause::Link), named, "{found:#?}");
        assert_eq!(found.signs.iter().any(|sign| sign.cause == Cause::Link), named);
    }
}

#[test]
fn threads_of_other_work_are_not_this_workloads() {
    let fitted = Fitted::built_in();
    let of = |set: &[(&str, f64, bool)], io: Option<bool>| {
        let mut case = unprobed(scaled(writing(), 0.6));
        threads(&mut case, set);
        let cpu = case.sample.as_mut().expect("a sample").cpu.as_mut().expect("CPUs");
        cpu.threads.iter_mut().filter(|one| !one.kernel).for_each(|one| one.io = io);
        diagnose(&case, &fitted)
    };
    // The thread of another array; a program that reads and writes nothing.
    assert_eq!(of(&[("md1_raid5", 0.98, true)], None).cause(), None);
    assert_eq!(of(&[("python", 0.99, false)], Some(false)).cause(), None);
    // Workers hide no thread.
    let both = [("kworker", 1.4, true), ("md0_raid5", 0.95, true)];
    assert_eq!(of(&both, None).cause(), Some(Cause::RaidThread));
    // The array's own comes before what may be anything.
    let both = [("python", 1.0, false), ("md0_raid5", 0.95, true)];
    assert_eq!(of(&both, None).cause(), Some(Cause::RaidThread));
    assert_eq!(of(&[("python", 0.99, false)], None).cause(), Some(Cause::ProgramCpu));
    // A ceiling that is near comes before a program of which that is unknown.
    let mut case = scaled(reading(), 0.55);
    case.probes.buses = Some(vec![SharedBus { disks: (0..6).collect(), mb_per_s: 380.0 }]);
    threads(&mut case, &[("python", 0.99, false)]);
    let cpu = case.sample.as_mut().expect("a sample").cpu.as_mut().expect("CPUs");
    cpu.threads[0].io = None;
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Bus));
}

/// What a member reads with its share of the queue, times their number: the probes of one disk with
/// that queue were taken for those with the whole, and lowered once more.
#[test]
fn members_read_at_random_what_each_reads_with_its_share_of_the_queue() {
    for depth in [8.0, 32.0] {
        let mut case = seeking();
        case.access.depth = depth;
        let rates = case.probes.seeks.as_ref().expect("seeks")[0];
        let found = diagnose(&case, &Fitted::built_in());
        let members = found.ceilings.iter().find(|line| line.cause == Cause::Members);
        let share = members.expect("a ceiling").rate / (6.0 * rates.at((depth / 6.0).max(1.0)));
        assert!((0.75..1.15).contains(&share), "{depth}: {share}");
    }
}

#[test]
fn a_depth_that_is_not_stated_is_no_sign() {
    let fitted = Fitted::built_in();
    let mut case = seeking();
    (case.access.depth, case.measured, case.sample) = (1.0, 85.0, None);
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::QueueDepth));
    case.depth_is_unknown = true;
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::Unknown, "{found:#?}");
    assert!(!found.ceilings.iter().any(|line| line.cause == Cause::QueueDepth));
    // Nor is it one request at a time, of which all members would be far more than expected.
    case.measured = 1150.0;
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::Members);
}

#[test]
fn a_network_limits_what_goes_through_it() {
    let fitted = Fitted::built_in();
    let of = |figure: f64, carried: f64| {
        let mut case = scaled(reading(), figure / 690.0);
        case.sample.as_mut().expect("a sample").network =
            Some(Network { mb_per_s: carried, limit_mb_per_s: Some(117.0) });
        diagnose(&case, &fitted)
    };
    assert_eq!(of(112.0, 116.0).cause(), Some(Cause::Network));
    // The workload is a local one: the interface is idle, or carries little.
    for carried in [0.0, 3.0, 50.0] {
        let found = of(112.0, carried);
        assert_ne!(found.cause(), Some(Cause::Network), "{found:#?}");
        assert!(!found.ceilings.iter().any(|line| line.cause == Cause::Network));
    }
    // Other traffic has most of the link.
    let found = of(40.0, 116.0);
    assert_eq!(found.cause(), Some(Cause::Network));
    assert!(found.because[0].contains("other traffic"), "{found:#?}");
}

#[test]
fn figures_of_one_disk_are_not_those_of_all() {
    let fitted = Fitted::built_in();
    // One with half the rate holds six at three times what the others do with their share, 153/s.
    let mut case = scaled(seeking(), 0.54);
    case.sample = None;
    case.probes.seeks.as_mut().expect("seeks").truncate(1);
    assert_eq!(diagnose(&case, &fitted).next_probe, Some(Probe::Seeks));
    case.probes.seeks = Some(vec![RandomRates { q1: 80.0, q4: 120.0, q32: 200.0 }; 6]);
    case.probes.seeks.as_mut().expect("seeks")[2] = RandomRates { q1: 40.0, q4: 60.0, q32: 100.0 };
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::SlowMember));
    // Of an array with a missing member, those that are there.
    let mut case = reading();
    case.array.missing = 1;
    case.probes.alone_mb_per_s.as_mut().expect("rates").truncate(5);
    assert_eq!(diagnose(&case, &fitted).next_probe, None);
}

/// A rebuild of the same array, at a rate of each member, beside so many requests a second.
fn rebuilding(mb_per_s: f64, requests: f64) -> Case {
    let mut case = reading();
    case.access = Access::new(Work::Resync, WriteBack::Raw);
    case.measured = mb_per_s;
    case.state.sync = Some(sync("recover", Some(mb_per_s)));
    let sample = case.sample.as_mut().expect("a sample");
    sample.array = Traffic {
        reads: requests,
        read_mb: requests * 0.008,
        queue: Some(0.1),
        busy: Some(0.1),
        ..Traffic::default()
    };
    for member in &mut sample.members {
        member.traffic.read_mb = mb_per_s;
    }
    busy(&mut case, (mb_per_s / 150.0).min(1.0), 0.2);
    case
}

#[test]
fn md_holds_background_work_at_its_minimum_and_its_maximum() {
    let fitted = Fitted::built_in();
    let cause = |case: &Case| diagnose(case, &fitted).cause();
    assert_eq!(cause(&rebuilding(1.0, 12.0)), Some(Cause::SyncSpeedMin));
    // Held back for a part of the time; at a minimum that was raised.
    assert_eq!(cause(&rebuilding(40.0, 3.0)), Some(Cause::SyncSpeedMin));
    let mut raised = rebuilding(52.0, 300.0);
    raised.state.sync_speed_min = Some(51.2);
    assert_eq!(cause(&raised), Some(Cause::SyncSpeedMin));
    // The members are at work: they are what is slow, or what is full.
    let mut full = rebuilding(40.0, 3.0);
    busy(&mut full, 0.98, 3.0);
    assert_eq!(cause(&full), None);
    // Below the minimum md holds nothing back.
    assert_eq!(cause(&rebuilding(0.2, 12.0)), None);
    // At the maximum, whatever else runs; and above it, it is none.
    let mut most = rebuilding(50.0, 12.0);
    most.machine.sync_speed_max = 51.2;
    assert_eq!(cause(&most), Some(Cause::SyncSpeed));
    let mut above = rebuilding(130.0, 0.0);
    above.machine.sync_speed_max = 51.2;
    let found = diagnose(&above, &fitted);
    assert_eq!(found.verdict, Verdict::Members, "{found:#?}");
    assert!(!found.ceilings.iter().any(|line| line.cause == Cause::SyncSpeed), "{found:#?}");
    // Without a sample it is likely, and provisional; the probe that makes sure is named.
    let bare = unprobed(Case { sample: None, ..rebuilding(4.0, 0.0) });
    let mut bare = Case { single: Single::default(), ..bare };
    bare.single.offer(Work::Read, 150.0, raidlab_predict::law::Source::Sheet);
    let found = diagnose(&bare, &fitted);
    assert_eq!(found.cause(), Some(Cause::SyncSpeedMin), "{found:#?}");
    assert_eq!(found.next_probe, Some(Probe::Alone));
    bare.probes.alone_mb_per_s = Some(vec![150.0, 151.0, 4.4, 152.0, 150.0, 148.0]);
    assert_eq!(cause(&bare), Some(Cause::SlowMember));
    // Our engine has a pace of its own.
    let mut ours = rebuilding(1.0, 12.0);
    ours.ours = true;
    assert_eq!(cause(&ours), None);
}

#[test]
fn kernel_threads_are_known_by_the_device_in_their_names() {
    let fitted = Fitted::built_in();
    let of = |name: &str, md: Option<&str>, layers: &[&str]| {
        let mut case = light(writing(), 0.02, 0.15);
        case.md = md.map(str::to_string);
        case.state.layers = layers
            .iter()
            .map(|number| Layer { name: "dm-0".into(), number: (*number).into(), is_crypt: false })
            .collect();
        threads(&mut case, &[(name, 1.0, true)]);
        diagnose(&case, &fitted).cause()
    };
    for (name, md, layers, cause) in [
        ("kworker/u16:2+flush-9:127", None, &[][..], Some(Cause::Flusher)),
        ("kworker/u16:2+flush-9:127", Some("md127"), &[], Some(Cause::Flusher)),
        ("kworker/u16:2+flush-253:0", None, &[], Some(Cause::Flusher)),
        ("kworker/u16:2+flush-259:0", None, &[], None),
        ("flush-9:0", Some("md0"), &[], Some(Cause::Flusher)),
        ("kworker/u16:2+flush-9:1", Some("md0"), &[], None),
        ("kworker/u16:2+flush-8:0", Some("md0"), &[], None),
        ("kworker/u16:2+flush-253:3", Some("md0"), &["253:3"], Some(Cause::Flusher)),
        ("kworker/u16:2+flush-253:4", Some("md0"), &["253:3"], None),
        ("kworker/u8:1+kcryptd/253:0", Some("md0"), &[], Some(Cause::Encryption)),
        ("dmcrypt_write/253:0", Some("md0"), &[], Some(Cause::Encryption)),
        ("kworker/0:1+xfs-conv/md0", Some("md0"), &[], Some(Cause::Cpu)),
        ("kworker/0:1+xfs-conv/md1", Some("md0"), &[], None),
        ("jbd2/md0-8", Some("md0"), &[], Some(Cause::Cpu)),
        ("kworker/0:1+events", Some("md0"), &[], None),
        ("kworker/u16:2", Some("md0"), &[], None),
        ("ksoftirqd/1", Some("md0"), &[], None),
    ] {
        assert_eq!(of(name, md, layers), cause, "{name} {md:?}");
    }
    // They have all CPUs together.
    let mut case = scaled(writing(), 0.6);
    let each: [(&str, f64, bool); 4] = [("kworker/u8:1+kcryptd/253:0", 0.8, true); 4];
    threads(&mut case, &each);
    case.sample.as_mut().expect("a sample").cpu.as_mut().expect("CPUs").busy = 0.97;
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Encryption));
}

#[test]
fn a_control_group_limits_in_front_of_the_array() {
    let fitted = Fitted::built_in();
    let limit = IoLimit::parse("9:0 rbps=104857600 wbps=max riops=max wiops=200").expect("a limit");
    assert_eq!((limit.read_mb, limit.writes), (Some(104.8576), Some(200.0)));
    assert_eq!(IoLimit::parse("9:0 rbps=max wbps=max riops=max wiops=max"), None);
    let mut case = light(reading(), 104.0 / 690.0, 0.2);
    case.state.io_limits = vec![limit.clone()];
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::IoLimit));
    // Far below it, and above it: of another group.
    let mut less = light(reading(), 0.05, 0.2);
    less.state.io_limits = vec![limit.clone()];
    assert_eq!(diagnose(&less, &fitted).verdict, Verdict::NotLoaded);
    // Six members of 20 MB/s each.
    let mut case = scaled(reading(), 118.0 / 690.0);
    let member = IoLimit { read_mb: Some(20.0), is_of_a_member: true, ..limit };
    case.state.io_limits = vec![member];
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::IoLimit));
}

#[test]
fn what_is_left_is_named_where_nothing_was_counted() {
    let fitted = Fitted::built_in();
    // Pieces through dm-crypt, before the stripe cache grew by itself.
    let mut case = scaled(writing(), 0.2);
    (case.sample, case.machine.kernel) = (None, Some(Kernel(3, 2, 0)));
    let found = diagnose(&case, &fitted);
    assert_eq!(found.cause(), Some(Cause::StripeCache), "{found:#?}");
    assert!(found.is_provisional && found.needs_writes, "{found:#?}");
    assert!(found.because[0].contains("256 unless it was changed"), "{found:#?}");
    case.state.stripe_cache_is_stated = true;
    assert!(diagnose(&case, &fitted).because[0].contains("is 256, 1024 KiB"));
    case.machine.stripe_cache = 8192.0;
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::Unexplained);
    // What was not stated is known only of a kernel that is.
    let mut case = scaled(writing(), 0.2);
    (case.sample, case.machine.kernel) = (None, None);
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::Unexplained);
    case.state.stripe_cache_is_stated = true;
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::StripeCache));
    // Shingles cost what was written before.
    case.machine.is_shingled = true;
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::Unexplained);
    assert!(found.because[0].starts_with("the members are shingled"), "{found:#?}");
    // Millions of requests take many CPUs.
    let mut case = seeking();
    (case.machine.media, case.sample) = (Media::Flash, None);
    (case.array, case.access.jobs) = (Array::new(Level::Raid0, 8, 512.0), 64.0);
    case.access.depth = 2048.0;
    case.probes.seeks = Some(vec![RandomRates { q1: 12e3, q4: 48e3, q32: 880e3 }; 8]);
    case.probes.cpu_us_per_request = None;
    case.measured = 3.8e6;
    let found = diagnose(&case, &fitted);
    assert_eq!(found.cause(), Some(Cause::RequestCpu), "{found:#?}");
    case.state.cpus = Some(128.0);
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::Unexplained);
}

#[test]
fn what_nothing_with_platters_does_is_flash() {
    let fitted = Fitted::built_in();
    let assumed = |change: fn(&mut Case)| {
        let mut case = reading();
        (case.state.media_is_assumed, case.machine.gap_ms) = (true, Some(9.0));
        case.probes = ProbeFigures { gap_ms: Some(9.0), ..ProbeFigures::default() };
        (case.sample, case.measured) = (None, 900.0);
        case.single.offer(Work::Read, 200.0, raidlab_predict::law::Source::Measured);
        change(&mut case);
        diagnose(&case, &fitted)
    };
    let platters = assumed(|_| {});
    assert!(platters.assumed.as_ref().is_some_and(|words| words.contains("7200 rpm")));
    let stated = assumed(|case| case.state.media_is_assumed = false);
    assert_eq!(stated.assumed, None);
    let (one, other) = (platters.expected.expect("a law"), stated.expected.expect("a law"));
    assert!(one.high / one.low > 1.2 * (other.high / other.low), "{one:?} {other:?}");
    let all: [fn(&mut Case); 4] = [
        |case| {
            let seeks = RandomRates { q1: 9e3, q4: 3e4, q32: 9e4 };
            case.probes.seeks = Some(vec![seeks; 6]);
        },
        |case| {
            case.sample = reading().sample;
            for member in &mut case.sample.as_mut().expect("a sample").members {
                member.name = format!("nvme{}n1", member.name);
            }
        },
        |case| case.single.offer(Work::RandomRead, 9e4, raidlab_predict::law::Source::Measured),
        |case| case.probes.alone_mb_per_s = Some(vec![540.0; 6]),
    ];
    for change in all {
        let found = assumed(change);
        assert!(found.assumed.as_ref().is_some_and(|words| words.contains("flash")), "{found:#?}");
        assert!(!found.ceilings.iter().any(|line| line.cause == Cause::Gap), "{found:#?}");
    }
}

/// Parity of one thread is 1100 MB/s where it was seen; what does more has more.
#[test]
fn a_ceiling_of_the_law_that_the_figure_exceeds_is_no_expectation() {
    let fitted = Fitted::built_in();
    let mut case = writing();
    (case.machine.media, case.sample) = (Media::Flash, None);
    case.probes.alone_mb_per_s = Some(vec![3000.0; 6]);
    case.probes.write_mb_per_s = Some(500.0);
    case.measured = 2000.0;
    let found = diagnose(&case, &fitted);
    assert_eq!(found.verdict, Verdict::AsExpected, "{found:#?}");
    assert!(found.expected.is_ok_and(|expected| expected.value > 2000.0));
    assert!(!found.ceilings.iter().any(|line| line.cause == Cause::RaidThread));
    case.measured = 1050.0;
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::RaidThread));
    // Another engine has no thread of md.
    case.ours = true;
    assert_ne!(diagnose(&case, &fitted).cause(), Some(Cause::RaidThread));
}

#[test]
fn members_that_the_others_wait_for_are_named() {
    let fitted = Fitted::built_in();
    // One is slower alone, and a mirror reads from half of the members: no ceiling is near.
    let mut case = scaled(reading(), 0.3);
    case.probes.alone_mb_per_s = Some(vec![150.0, 151.0, 75.0, 152.0, 150.0, 148.0]);
    busy(&mut case, 0.4, 0.5);
    let slow = |case: &mut Case, member: usize, share: f64, queue: f64| {
        let traffic = &mut case.sample.as_mut().expect("a sample").members[member].traffic;
        (traffic.busy, traffic.queue) = (Some(share), Some(queue));
    };
    slow(&mut case, 2, 0.99, 0.9);
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::SlowMember));
    busy(&mut case, 0.8, 0.8);
    assert_eq!(diagnose(&case, &fitted).cause(), None);
    // Two on a bus of their own.
    let mut case = scaled(writing(), 0.6);
    busy(&mut case, 0.4, 0.5);
    let disks = vec![1, 2];
    case.probes.buses = Some(vec![SharedBus { disks, mb_per_s: 230.0 }]);
    assert_eq!(diagnose(&case, &fitted).cause(), None);
    slow(&mut case, 1, 0.98, 1.0);
    slow(&mut case, 2, 0.97, 1.0);
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Bus));
}

#[test]
fn one_flush_of_a_bitmap_may_be_of_several_writes() {
    let fitted = Fitted::built_in();
    let mut case = unprobed(scaled(writing(), 0.3));
    case.access = Access::new(Work::RandomWrite, WriteBack::Raw);
    (case.array, case.machine.media) = (Array::new(Level::Raid10, 6, 512.0), Media::Flash);
    case.request_kib = Some(4.0);
    let sample = case.sample.as_mut().expect("a sample");
    (sample.array.writes, sample.array.write_mb) = (30e3, 123.0);
    for member in &mut sample.members {
        (member.traffic.writes, member.traffic.write_mb) = (16e3, 66.0);
    }
    case.measured = 30e3;
    flushes(&mut case, None, 6000.0);
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Bitmap));
    flushes(&mut case, None, 600.0);
    assert_ne!(diagnose(&case, &fitted).cause(), Some(Cause::Bitmap));
}

#[test]
fn a_thread_that_is_full_is_provisional_where_writes_are_unknown() {
    let fitted = Fitted::built_in();
    let mut case = scaled(writing(), 0.9);
    case.machine.media = Media::Flash;
    threads(&mut case, &[("md0_raid5", 0.98, true)]);
    let found = diagnose(&case, &fitted);
    assert_eq!((found.cause(), found.needs_writes), (Some(Cause::RaidThread), true));
    // The members do no more.
    case.probes.write_mb_per_s = Some(120.0);
    let found = diagnose(&case, &fitted);
    assert_eq!((found.cause(), found.needs_writes), (None, false), "{found:#?}");
    // A ceiling of one thread is none where the sample shows that it has time to spare.
    let mut case = scaled(reading(), 0.5);
    case.probes.cpu_us_per_kib = Some(2.9);
    threads(&mut case, &[("dd", 0.4, false)]);
    assert_ne!(diagnose(&case, &fitted).cause(), Some(Cause::Cpu));
}

#[test]
fn commits_that_the_workload_waits_for_are_no_want_of_requests() {
    let fitted = Fitted::built_in();
    let mut case = scaled(writing(), 0.05);
    case.request_kib = Some(16.0);
    let array = &mut case.sample.as_mut().expect("a sample").array;
    (array.writes, array.queue, array.busy) = (60.0, Some(0.9), Some(0.9));
    busy(&mut case, 0.4, 0.4);
    // Of an array of which flushes are counted, and of md, whose are not.
    flushes(&mut case, Some(60.0), 60.0);
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Flush));
    case.state.bitmap = Some(false);
    flushes(&mut case, None, 60.0);
    let array = &mut case.sample.as_mut().expect("a sample").array;
    (array.queue, array.busy) = (Some(0.3), Some(0.3));
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Flush));
    // A commit every five seconds is no load.
    flushes(&mut case, None, 0.4);
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::NotLoaded);
}

/// Writes of a mirror of two, of which the second is busy for nearly all of the time.
fn a_slow_half(queue: f64, single: Option<f64>) -> Case {
    let mut case = reading();
    case.array = Array::new(Level::Raid1, 2, 512.0);
    case.access = Access::new(Work::RandomWrite, WriteBack::Raw);
    (case.measured, case.depth_is_unknown) = (29.3, true);
    (case.probes, case.single) = (ProbeFigures::default(), Single::default());
    if let Some(rate) = single {
        case.single.offer(Work::RandomWrite, rate, Source::Measured);
    }
    let sample = case.sample.as_mut().expect("a sample");
    (sample.cpu, sample.members) = (None, sample.members[..2].to_vec());
    sample.array = Traffic { writes: 29.3, write_mb: 0.16, ..Traffic::default() };
    for (member, busy, queue) in [(0, 0.07, 0.09), (1, 0.93, queue)] {
        let (busy, queue) = (Some(busy), Some(queue));
        let (writes, write_mb) = (38.7, 0.17);
        sample.members[member].traffic =
            Traffic { writes, write_mb, busy, queue, ..Traffic::default() };
    }
    case
}

#[test]
fn the_slow_half_of_a_mirror_is_named_and_not_the_queue() {
    let fitted = Fitted::built_in();
    for single in [None, Some(300.0), Some(20_000.0)] {
        let found = diagnose(&a_slow_half(1.08, single), &fitted);
        assert_eq!(found.cause(), Some(Cause::SlowMember), "{found:#?}");
        assert_eq!(found.because, ["a request to sd1 takes 27.9 ms, to the other 2.3 ms"]);
    }
    // Of the same service, nothing is slow; nor are requests few where a member is always busy.
    let mut case = a_slow_half(0.2, Some(300.0));
    case.sample.as_mut().expect("a sample").array.queue = Some(2.0);
    let found = diagnose(&case, &fitted);
    assert!(found.signs.is_empty(), "{found:#?}");
}
