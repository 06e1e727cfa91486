//! Every cause, injected into figures of a healthy array, and something close to it that must not
//! fire.

use calibrate::SharedBus;
use diagnose::{
    Case, Cause, CpuSample, MemberSample, NarrowLink, Network, Probe, ProbeFigures, RandomRates,
    Sample, State, Sync, Thread, Traffic, Transfer, Verdict, diagnose,
};
use md::Level;
use predict::fit::Fitted;
use predict::law::{Access, Array, Bus, Kernel, Machine, Media, Single, Work, WriteBack};

/// RAID 5 of six disks that do 150 MB/s and 80 to 200 random reads each, probed; reads in order.
fn reading() -> Case {
    let members = 6;
    let mut machine = Machine::new(Media::Rotating { rpm: 7200.0 });
    machine.kernel = Some(Kernel(6, 1, 0));
    let member = |index: usize| MemberSample {
        name: format!("sd{index}"),
        traffic: Traffic {
            reads: 900.0,
            read_mb: 115.0,
            queue: Some(2.0),
            busy: Some(0.95),
            flushes: Some(0.0),
            ..Traffic::default()
        },
    };
    let array = Traffic {
        reads: 690.0,
        read_mb: 690.0,
        queue: Some(12.0),
        busy: Some(1.0),
        flushes: Some(0.0),
        ..Traffic::default()
    };
    let thread = |name: &str, cpus: f64, kernel: bool| Thread {
        name: name.into(),
        cpus,
        kernel,
        io: Some(!kernel),
    };
    Case {
        md: Some("md0".into()),
        ours: false,
        array: Array::new(Level::Raid5, members, 512.0),
        machine,
        access: Access::new(Work::Read, WriteBack::Extents),
        depth_is_unknown: false,
        request_kib: None,
        single: Single::default(),
        measured: 690.0,
        state: State { bitmap: Some(true), write_cache: Some(true), ..State::default() },
        sample: Some(Sample {
            array,
            members: (0..6).map(member).collect(),
            cpu: Some(CpuSample {
                busy: 0.2,
                cpus: 4,
                threads: vec![thread("dd", 0.4, false), thread("md0_raid5", 0.1, true)],
            }),
            network: None,
        }),
        probes: ProbeFigures {
            alone_mb_per_s: Some(vec![150.0, 151.0, 149.0, 152.0, 150.0, 148.0]),
            together_mb_per_s: Some(vec![150.0; 6]),
            buses: Some(Vec::new()),
            seeks: Some(vec![RandomRates { q1: 80.0, q4: 120.0, q32: 200.0 }; 6]),
            seeks_together: Some(vec![118.0; 6]),
            transfer: Some(vec![Transfer { request_us: 120.0, mb_per_s: 260.0 }; 6]),
            gap_ms: Some(0.1),
            cpu_us_per_kib: Some(0.3),
            cpu_us_per_request: Some(8.0),
            ..ProbeFigures::default()
        },
    }
}

/// The same array, written in order.
fn writing() -> Case {
    let mut case = reading();
    case.access = Access::new(Work::Write, WriteBack::Extents);
    case.measured = 600.0;
    let sample = case.sample.as_mut().expect("a sample");
    sample.array =
        Traffic { reads: 0.0, read_mb: 0.0, writes: 600.0, write_mb: 600.0, ..sample.array };
    for member in &mut sample.members {
        let (writes, write_mb) = (300.0, 120.0);
        member.traffic = Traffic { reads: 0.0, read_mb: 0.0, writes, write_mb, ..member.traffic };
    }
    case
}

/// The same array, 4 KiB read anywhere at a depth of 64.
fn seeking() -> Case {
    let mut case = reading();
    case.access = Access { depth: 64.0, ..Access::new(Work::RandomRead, WriteBack::Raw) };
    case.request_kib = Some(4.0);
    case.measured = 850.0;
    let sample = case.sample.as_mut().expect("a sample");
    sample.array = Traffic { reads: 850.0, read_mb: 3.5, queue: Some(64.0), ..sample.array };
    for member in &mut sample.members {
        let (reads, read_mb, queue) = (142.0, 0.58, Some(10.6));
        member.traffic = Traffic { reads, read_mb, queue, ..member.traffic };
    }
    case
}

fn scaled(mut case: Case, share: f64) -> Case {
    case.measured *= share;
    let sample = case.sample.as_mut().expect("a sample");
    let scale = |traffic: &mut Traffic| {
        for rate in
            [&mut traffic.reads, &mut traffic.writes, &mut traffic.read_mb, &mut traffic.write_mb]
        {
            *rate *= share;
        }
    };
    scale(&mut sample.array);
    sample.members.iter_mut().for_each(|member| scale(&mut member.traffic));
    case
}

fn busy(case: &mut Case, busy: f64, queue: f64) {
    for member in &mut case.sample.as_mut().expect("a sample").members {
        member.traffic.busy = Some(busy);
        member.traffic.queue = Some(queue);
    }
}

fn threads(case: &mut Case, threads: &[(&str, f64, bool)]) {
    let cpu = case.sample.as_mut().expect("a sample").cpu.as_mut().expect("CPUs");
    cpu.threads = threads
        .iter()
        .map(|(name, cpus, kernel)| Thread {
            name: (*name).into(),
            cpus: *cpus,
            kernel: *kernel,
            io: Some(!*kernel),
        })
        .collect();
}

type Change = fn() -> Case;

fn sick() -> Vec<(Cause, Change, Change)> {
    vec![
        (
            Cause::Bus,
            || {
                let mut case = scaled(reading(), 0.55);
                let bus = SharedBus { disks: (0..6).collect(), mb_per_s: 380.0 };
                case.probes.buses = Some(vec![bus]);
                case
            },
            || {
                let mut case = reading();
                let bus = SharedBus { disks: (0..6).collect(), mb_per_s: 860.0 };
                case.probes.buses = Some(vec![bus]);
                case
            },
        ),
        (
            // Of the facts: PCIe 1.0 x1.
            Cause::Bus,
            || {
                let mut case = scaled(reading(), 190.0 / 690.0);
                case.probes.buses = None;
                case.machine.buses = vec![Bus { mb_per_s: 193.0, members: None }];
                case
            },
            || {
                let mut case = reading();
                case.probes.buses = None;
                case.machine.buses = vec![Bus { mb_per_s: 1580.0, members: None }];
                case
            },
        ),
        (
            Cause::Channel,
            || {
                let mut case = scaled(reading(), 0.6);
                let bus = SharedBus { disks: vec![0, 1], mb_per_s: 150.0 };
                case.probes.buses = Some(vec![bus]);
                case.probes.seeks_together = Some(vec![62.0, 63.0, 118.0, 119.0, 118.0, 117.0]);
                case
            },
            || {
                let mut case = reading();
                case.probes.seeks_together = Some(vec![100.0; 6]);
                case
            },
        ),
        (
            Cause::DmaOff,
            || {
                let mut case = scaled(reading(), 0.04);
                case.probes.alone_mb_per_s = Some(vec![5.5; 6]);
                case.probes.transfer = Some(vec![Transfer { request_us: 900.0, mb_per_s: 5.6 }; 6]);
                case
            },
            || {
                // An old disk whose link is as fast as such links are.
                let mut case = scaled(reading(), 0.12);
                case.probes.alone_mb_per_s = Some(vec![18.0; 6]);
                case.probes.transfer =
                    Some(vec![Transfer { request_us: 300.0, mb_per_s: 30.0 }; 6]);
                case
            },
        ),
        (
            Cause::Network,
            || {
                let mut case = scaled(reading(), 112.0 / 690.0);
                case.state.network_mb_per_s = Some(117.0);
                case
            },
            || {
                let mut case = reading();
                case.sample.as_mut().expect("a sample").network =
                    Some(Network { mb_per_s: 715.0, limit_mb_per_s: Some(1170.0) });
                case
            },
        ),
        (
            Cause::ProgramCpu,
            || {
                let mut case = scaled(reading(), 0.6);
                threads(&mut case, &[("dd", 0.99, false)]);
                case
            },
            || {
                let mut case = reading();
                threads(&mut case, &[("dd", 0.85, false)]);
                case
            },
        ),
        (
            Cause::Cpu,
            || {
                let mut case = scaled(reading(), 0.5);
                case.probes.cpu_us_per_kib = Some(2.9);
                case.sample.as_mut().expect("a sample").cpu = None;
                case
            },
            || {
                let mut case = reading();
                case.probes.cpu_us_per_kib = Some(1.0);
                case.sample.as_mut().expect("a sample").cpu = None;
                case
            },
        ),
        (
            Cause::AllCpus,
            || {
                let mut case = scaled(reading(), 0.6);
                case.sample.as_mut().expect("a sample").cpu.as_mut().expect("CPUs").busy = 0.98;
                case
            },
            || {
                let mut case = reading();
                case.sample.as_mut().expect("a sample").cpu.as_mut().expect("CPUs").busy = 0.85;
                case
            },
        ),
        (
            Cause::RaidThread,
            || {
                let mut case = scaled(writing(), 0.6);
                threads(&mut case, &[("md0_raid5", 0.98, true), ("fio", 0.3, false)]);
                case
            },
            || {
                // Workers of the kernel together are no thread.
                let mut case = writing();
                threads(&mut case, &[("kworker", 1.4, true), ("md0_raid5", 0.7, true)]);
                case
            },
        ),
        (
            Cause::RequestCpu,
            || {
                let mut case = seeking();
                case.machine.media = Media::Flash;
                case.access.depth = 256.0;
                case.probes.seeks = Some(vec![RandomRates { q1: 9e3, q4: 3e4, q32: 9e4 }; 6]);
                case.probes.cpu_us_per_request = Some(12.0);
                case.measured = 66_000.0;
                case.sample = None;
                case
            },
            || {
                let mut case = seeking();
                case.machine.media = Media::Flash;
                case.access.depth = 256.0;
                case.access.jobs = 16.0;
                case.probes.seeks = Some(vec![RandomRates { q1: 9e3, q4: 3e4, q32: 9e4 }; 6]);
                case.probes.cpu_us_per_request = Some(12.0);
                case.measured = 500_000.0;
                case.sample = None;
                case
            },
        ),
        (
            Cause::Lock,
            || {
                let mut case = seeking();
                case.array.level = Level::Raid1;
                case.machine.media = Media::Flash;
                (case.access.depth, case.access.jobs) = (512.0, 32.0);
                case.probes.seeks = Some(vec![RandomRates { q1: 9e3, q4: 1e5, q32: 4e5 }; 6]);
                case.measured = 765e3;
                case.sample = None;
                case
            },
            || {
                let mut case = seeking();
                case.array.level = Level::Raid1;
                case.machine.media = Media::Flash;
                (case.access.depth, case.access.jobs) = (512.0, 32.0);
                case.probes.seeks = Some(vec![RandomRates { q1: 9e3, q4: 3e4, q32: 9e4 }; 6]);
                case.measured = 510e3;
                case.sample = None;
                case
            },
        ),
        (
            Cause::ReadAhead,
            || {
                let mut case = scaled(reading(), 0.45);
                case.machine.read_ahead_kib = Some(512.0);
                case.measured = 290.0;
                case
            },
            || {
                let mut case = reading();
                case.machine.read_ahead_kib = Some(5120.0);
                case
            },
        ),
        (
            // Reads before 2.6.20 pass through it.
            Cause::StripeCache,
            || {
                let mut case = scaled(reading(), 0.4);
                case.machine.kernel = Some(Kernel(2, 6, 18));
                (case.machine.stripe_cache, case.measured) = (256.0, 300.0);
                case
            },
            || {
                let mut case = reading();
                case.machine.stripe_cache = 256.0;
                case
            },
        ),
        (
            Cause::StripeCache,
            || {
                let mut case = scaled(writing(), 0.4);
                (case.machine.stripe_cache, case.machine.kernel) = (32.0, Some(Kernel(3, 2, 0)));
                case.sample.as_mut().expect("a sample").array.queue = Some(8.0);
                busy(&mut case, 0.6, 0.8);
                case
            },
            || {
                let mut case = scaled(writing(), 0.8);
                case.machine.stripe_cache = 8192.0;
                case
            },
        ),
        (
            Cause::PartialStripes,
            || {
                let mut case = scaled(writing(), 0.4);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    (member.traffic.reads, member.traffic.read_mb) = (150.0, 40.0);
                }
                case
            },
            || {
                // The first and the last row of each file.
                let mut case = scaled(writing(), 0.8);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    (member.traffic.reads, member.traffic.read_mb) = (10.0, 3.0);
                }
                case
            },
        ),
        (
            Cause::SmallRequests,
            || {
                let mut case = scaled(reading(), 0.1);
                (case.access.direct, case.access.depth) = (true, 1.0);
                case.request_kib = Some(4.0);
                busy(&mut case, 0.15, 0.15);
                case
            },
            || {
                // Small, and many of them.
                let mut case = reading();
                (case.access.direct, case.access.depth) = (true, 1024.0);
                case.request_kib = Some(4.0);
                case
            },
        ),
        (
            Cause::QueueDepth,
            || {
                let mut case = scaled(seeking(), 0.18);
                (case.access.depth, case.measured) = (1.0, 82.0);
                case.sample.as_mut().expect("a sample").array.queue = Some(1.0);
                busy(&mut case, 0.17, 0.17);
                case
            },
            seeking,
        ),
        (
            Cause::SlowMember,
            || {
                let mut case = scaled(reading(), 0.5);
                case.probes.alone_mb_per_s = Some(vec![150.0, 151.0, 75.0, 152.0, 150.0, 148.0]);
                case.measured = 345.0;
                case
            },
            || {
                let mut case = reading();
                case.probes.alone_mb_per_s = Some(vec![150.0, 151.0, 141.0, 152.0, 150.0, 148.0]);
                case
            },
        ),
        (
            // By its waits, where nothing was probed.
            Cause::SlowMember,
            || {
                let mut case = scaled(seeking(), 0.5);
                case.probes.seeks = None;
                let slow = &mut case.sample.as_mut().expect("a sample").members[3].traffic;
                slow.queue = Some(50.0);
                case
            },
            || {
                // Two of them: they share something.
                let mut case = scaled(seeking(), 0.7);
                for member in [1, 2] {
                    let slow = &mut case.sample.as_mut().expect("a sample").members[member];
                    slow.traffic.queue = Some(30.0);
                }
                case
            },
        ),
        (
            Cause::Unbalanced,
            || {
                let mut case = scaled(seeking(), 0.3);
                for (at, member) in
                    case.sample.as_mut().expect("a sample").members.iter_mut().enumerate()
                {
                    member.traffic.reads = if at == 2 { 190.0 } else { 13.0 };
                }
                case
            },
            || {
                let mut case = seeking();
                case.sample.as_mut().expect("a sample").members[2].traffic.reads = 170.0;
                case
            },
        ),
        (
            Cause::Bitmap,
            || {
                let mut case = scaled(writing(), 0.3);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    member.traffic.flushes = Some(120.0);
                }
                case
            },
            || {
                // What the workload orders itself.
                let mut case = writing();
                let sample = case.sample.as_mut().expect("a sample");
                sample.array.flushes = Some(300.0);
                for member in &mut sample.members {
                    member.traffic.flushes = Some(310.0);
                }
                case
            },
        ),
        (
            Cause::Flush,
            || {
                let mut case = scaled(writing(), 0.3);
                case.state.bitmap = Some(false);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    member.traffic.flushes = Some(120.0);
                }
                case
            },
            || {
                let mut case = scaled(writing(), 0.8);
                case.state.bitmap = Some(false);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    member.traffic.flushes = Some(5.0);
                }
                case
            },
        ),
        (
            Cause::Background,
            || {
                let mut case = scaled(reading(), 0.5);
                case.state.sync = Some(Sync { action: "check".into(), mb_per_s: Some(60.0) });
                case
            },
            || {
                let mut case = reading();
                case.state.sync = Some(Sync { action: "idle".into(), mb_per_s: None });
                case
            },
        ),
        (
            // By what the members do beyond the workload.
            Cause::Background,
            || {
                let mut case = scaled(reading(), 0.5);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    member.traffic.read_mb += 55.0;
                }
                case
            },
            || {
                // Read-ahead that was not needed.
                let mut case = scaled(reading(), 0.85);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    member.traffic.read_mb *= 1.1;
                }
                case
            },
        ),
        (
            Cause::PlugLimit,
            || {
                let mut case = reading();
                case.array.members = 24;
                case.access = Access::new(Work::Resync, WriteBack::Raw);
                (case.machine.kernel, case.measured) = (Some(Kernel(4, 4, 0)), 55.0);
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    (member.traffic.reads, member.traffic.read_mb) = (13_400.0, 55.0);
                }
                case
            },
            || {
                let mut case = reading();
                case.array.members = 24;
                case.access = Access::new(Work::Resync, WriteBack::Raw);
                (case.machine.kernel, case.measured) = (Some(Kernel(6, 1, 0)), 132.0);
                case
            },
        ),
        (
            Cause::SyncSpeed,
            || {
                let mut case = reading();
                case.access = Access::new(Work::Resync, WriteBack::Raw);
                (case.machine.sync_speed_max, case.measured) = (50.0, 49.0);
                case
            },
            || {
                let mut case = reading();
                case.access = Access::new(Work::Resync, WriteBack::Raw);
                case.measured = 132.0;
                case
            },
        ),
        (
            Cause::WriteCacheOff,
            || {
                let mut case = scaled(writing(), 0.2);
                case.probes.write_mb_per_s = Some(32.0);
                case.probes.cached_write_us = Some(8200.0);
                case
            },
            || {
                let mut case = writing();
                case.probes.write_mb_per_s = Some(146.0);
                case.probes.cached_write_us = Some(90.0);
                case
            },
        ),
        (
            Cause::Gap,
            || {
                let mut case = scaled(reading(), 0.6);
                case.array.chunk_kib = 64.0;
                case.probes.gap_ms = Some(2.3);
                case.measured = 111.0;
                case
            },
            || {
                let mut case = reading();
                case.probes.gap_ms = Some(0.4);
                case
            },
        ),
        (
            Cause::Degraded,
            || {
                let mut case = scaled(reading(), 0.6);
                case.array.missing = 1;
                for member in &mut case.sample.as_mut().expect("a sample").members {
                    member.traffic.read_mb *= 1.3;
                }
                case
            },
            || {
                // As fast as with all of them.
                let mut case = reading();
                case.array.missing = 1;
                case
            },
        ),
        (
            Cause::Link,
            || {
                let mut case = reading();
                case.state.narrow_links = vec![NarrowLink {
                    words: "nvme1n1: PCIe x1 of x4".into(),
                    mb_per_s: 120.0,
                    members: 1,
                }];
                case
            },
            reading,
        ),
    ]
}

#[test]
fn healthy_arrays_are_not_accused() {
    let fitted = Fitted::published();
    for (name, case) in [("reads", reading()), ("writes", writing()), ("seeks", seeking())] {
        let found = diagnose(&case, &fitted);
        let fine = matches!(found.verdict, Verdict::Members | Verdict::AsExpected);
        assert!(fine, "{name}: {found:#?}");
        assert_eq!(found.next_probe, None, "{name}");
    }
}

#[test]
fn every_cause_is_named_where_it_is_and_not_where_it_is_not() {
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    case.probes.buses =
        Some(vec![calibrate::SharedBus { disks: (0..6).collect(), mb_per_s: 200.0 }]);
    let found = diagnose(&case, &Fitted::published());
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
    let found = diagnose(&case, &Fitted::published());
    assert_eq!(found.cause(), None, "{found:#?}");
    let expected = found.expected.expect("a law");
    assert!((expected.low..expected.high).contains(&38.0), "{expected:?}");
}

#[test]
fn an_internal_bitmap_leaves_no_expectation_of_small_writes() {
    let mut case = reading();
    (case.access, case.sample) = (Access::new(Work::RandomWrite, WriteBack::Raw), None);
    case.measured = 90.0;
    let found = diagnose(&case, &Fitted::published());
    assert_eq!(found.expected, Err(predict::law::WhyNot::Bitmap));
    case.state.bitmap = Some(false);
    assert!(diagnose(&case, &Fitted::published()).expected.is_ok());
}

#[test]
fn probes_are_named_one_after_another_until_they_decide() {
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    case.state.sync = Some(Sync { action: "check".into(), mb_per_s: None });
    assert_eq!(diagnose(&case, &fitted).cause(), Some(Cause::Background));
}

#[test]
fn flushes_that_md_does_not_count_are_no_bitmap() {
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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

#[test]
fn a_depth_that_is_not_stated_is_no_sign() {
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
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
    let fitted = Fitted::published();
    let mut case = scaled(seeking(), 0.5);
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
