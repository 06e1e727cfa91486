//! Figures of healthy arrays, and of arrays with each cause in turn.

use md::Level;
use raidlab_predict::calibrate::SharedBus;
use raidlab_predict::diagnose::{
    Case, Cause, CpuSample, IoLimit, MemberSample, NarrowLink, Network, ProbeFigures, RandomRates,
    Sample, State, Sync, Thread, Traffic, Transfer,
};
use raidlab_predict::law::{Access, Array, Bus, Kernel, Machine, Media, Single, Work, WriteBack};

/// RAID 5 of six disks that do 150 MB/s and 80 to 200 random reads each, probed; reads in order.
pub fn reading() -> Case {
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

/// Background work, of which it is not known where it is.
pub fn sync(action: &str, mb_per_s: Option<f64>) -> Sync {
    Sync { action: action.into(), mb_per_s, ..Sync::default() }
}

/// The same array, written in order.
pub fn writing() -> Case {
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
pub fn seeking() -> Case {
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

pub fn scaled(mut case: Case, share: f64) -> Case {
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

pub fn busy(case: &mut Case, busy: f64, queue: f64) {
    for member in &mut case.sample.as_mut().expect("a sample").members {
        member.traffic.busy = Some(busy);
        member.traffic.queue = Some(queue);
    }
}

pub fn threads(case: &mut Case, threads: &[(&str, f64, bool)]) {
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

pub type Change = fn() -> Case;

#[expect(clippy::too_many_lines, reason = "a table: two cases of each cause")]
pub fn sick() -> Vec<(Cause, Change, Change)> {
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
                case.measured = 78_000.0;
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
                let mut case = scaled(writing(), 0.2);
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
                case.state.sync = Some(sync("check", Some(60.0)));
                case
            },
            || {
                let mut case = reading();
                case.state.sync = Some(sync("idle", None));
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
            Cause::SyncSpeedMin,
            || {
                let mut case = reading();
                case.access = Access::new(Work::Resync, WriteBack::Raw);
                case.measured = 1.0;
                let sample = case.sample.as_mut().expect("a sample");
                (sample.array.reads, sample.array.read_mb) = (12.0, 0.1);
                busy(&mut case, 0.1, 0.1);
                case
            },
            || {
                // Nothing holds it back: the members are at work.
                let mut case = reading();
                case.access = Access::new(Work::Resync, WriteBack::Raw);
                case.measured = 125.0;
                case
            },
        ),
        (
            Cause::IoLimit,
            || {
                let mut case = scaled(reading(), 100.0 / 690.0);
                case.state.io_limits = IoLimit::parse("9:0 rbps=104857600").into_iter().collect();
                case
            },
            || {
                // It is of writes.
                let mut case = reading();
                case.state.io_limits = IoLimit::parse("9:0 wbps=104857600").into_iter().collect();
                case
            },
        ),
        (
            Cause::Flusher,
            || {
                let mut case = scaled(writing(), 0.1);
                threads(&mut case, &[("kworker/u16:2+flush-9:0", 0.99, true)]);
                case
            },
            || {
                let mut case = writing();
                threads(&mut case, &[("kworker/u16:2+flush-9:0", 0.6, true)]);
                case
            },
        ),
        (
            Cause::Encryption,
            || {
                let mut case = scaled(writing(), 0.4);
                threads(&mut case, &[("kworker/u16:2+kcryptd/253:0", 0.99, true)]);
                case
            },
            || {
                let mut case = writing();
                threads(&mut case, &[("kworker/u16:2+kcryptd/253:0", 0.7, true)]);
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
                let mut case = scaled(seeking(), 0.6);
                case.array.missing = 1;
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
