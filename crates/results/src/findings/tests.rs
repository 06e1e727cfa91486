//! Each rule on a record made by hand that must give it and on one that must not.

use spec::case::Knobs;
use spec::workload::Kind;

use super::*;
use crate::record::{MemberLoad, Place, StripeCacheUse, SyncRun, ThreadTime};

fn moved(read_bytes: u64, written_bytes: u64) -> MemberTraffic {
    MemberTraffic { read_bytes, written_bytes, reads: 10_000, writes: 10_000 }
}

/// Four members, 100 MB read in a second, evenly, in deep queues; nothing to find.
fn quiet(level: &str, workload: &str) -> Cell {
    let written = match level {
        "raid1" => 100_000_000,
        "raid6" => 50_000_000,
        _ => 33_000_000,
    };
    let share = if workload.ends_with("write") { moved(0, written) } else { moved(25_000_000, 0) };
    Cell::default().with(|it| {
        it.case.target = "engine".into();
        it.case.level = level.into();
        it.case.disks = 4;
        it.case.chunk_kib = Some(64);
        it.case.workload = workload.into();
        it.case.block_kib = 1024.0;
        it.case.depth = 4;
        it.case.jobs = 1;
        it.measured.samples = vec![Sample { seconds: 1.0, bytes: 100_000_000, ops: 100 }];
        it.measured.cpu_process_s = Some(0.2);
        it.measured.per_member = vec![share; 4];
        it.measured.member_load = vec![MemberLoad { busy: Some(0.97), in_flight: Some(3.0) }; 4];
        it.derived.bound_share = Some(0.97);
    })
}

/// What is found but for the distance from the bound, which has a test of its own.
fn names(cell: &Cell) -> Vec<String> {
    let names = find(cell).into_iter().map(|finding| finding.name);
    names.filter(|name| !name.ends_with("-the-bound")).collect()
}

/// That `gives` has exactly this finding, well formed, and `gives_not` has none at all.
fn check(name: &str, gives: &Cell, gives_not: &Cell) -> Finding {
    let found = find(gives);
    assert_eq!(names(gives), [name], "{found:?}");
    assert_eq!(names(gives_not), [""; 0], "{name} without evidence: {:?}", find(gives_not));
    let finding = found[0].clone();
    println!("{name}: {}; try {:?}", finding.text, finding.command);
    assert!(!finding.evidence.is_empty() && finding.evidence.values().all(|v| v.is_finite()));
    assert!(finding.text.chars().any(|c| c.is_ascii_digit()), "numbers: {}", finding.text);
    finding
}

#[test]
fn an_ordinary_cell_gives_nothing() {
    for level in ["single", "linear", "raid0", "raid1", "raid4", "raid5", "raid6", "raid10"] {
        for workload in Kind::ALL.map(Kind::name) {
            assert_eq!(names(&quiet(level, workload)), [""; 0], "{level} {workload}");
        }
    }
    assert_eq!(find(&Cell::default()), [], "nothing is known of it");
}

#[test]
fn page_cache() {
    let mut cell = quiet("raid0", "seq-read");
    let place = Place { memory_bytes: Some(8 << 30), ..Place::default() };
    (cell.case.place, cell.case.file_bytes) = (Some(place), Some(1 << 30));
    let none = cell.clone();
    cell.measured.per_member = vec![moved(1_000_000, 0); 4];
    let found = check("page-cache", &cell, &none);
    assert_eq!(found.evidence["member_bytes_per_user_byte"], 0.04);
    assert!(found.command.unwrap().contains("16 GiB"));
    // A record with the cache named, and without members.
    let mut said = none.clone();
    (said.measured.cached, said.measured.per_member, said.measured.member_load) =
        (Some("the page cache".into()), Vec::new(), Vec::new());
    assert_eq!(names(&said), ["page-cache"]);
    // A mirror writes more than all of it.
    let mut mirror =
        quiet("raid1", "seq-write").with(|it| it.measured.cached = Some("page cache".into()));
    let all = find(&mirror)[0].text.clone();
    assert!(all.contains("for each byte 4.00 reached") && !all.contains("only"), "{all}");
    mirror.measured.per_member.fill(moved(0, 42_000_000));
    let found = &find(&mirror)[0].text;
    assert!(found.starts_with("only 42 % of the bytes that had to reach"), "{found}");
    // 1.69 of 2 copies: the rest is still in a cache, though more than all of it was written.
    mirror.measured.cached = None;
    (mirror.case.disks, mirror.measured.per_member) = (2, vec![moved(0, 78_000_000); 2]);
    mirror.measured.member_load.truncate(2);
    assert_eq!(names(&mirror), ["page-cache"]);
    let degraded = mirror.with(|it| {
        it.case.degraded = 1;
        it.measured.per_member = vec![moved(0, 99_000_000), moved(0, 0)];
    });
    assert_eq!(names(&degraded), [""; 0]);
}

/// Reads and writes together are what a mixed load moved.
#[test]
fn a_mixed_load_on_members_without_a_cache_is_not_a_caches() {
    for level in ["single", "raid0", "raid5"] {
        let mut cell = quiet(level, "rand-mixed");
        cell.measured.per_member = vec![moved(8_000_000, 17_500_000); 4];
        assert_eq!(names(&cell), [""; 0], "{level}");
        cell.measured.per_member = vec![moved(8_000_000, 7_000_000); 4];
        assert_eq!(names(&cell), ["page-cache"], "{level}");
    }
}

/// A thread that used more than all of the time was measured at another time.
#[test]
fn a_threads_time_from_another_stretch_is_no_limit() {
    let mut cell = quiet("raid0", "rand-read").with(|it| it.derived.bound_share = None);
    (cell.measured.member_load, cell.measured.cpu_process_s) = (Vec::new(), Some(0.2));
    let thread = |seconds| vec![ThreadTime { name: "raidlab".into(), seconds }];
    cell.measured.cpu_threads = thread(1.6);
    assert_eq!(names(&cell), [""; 0]);
    cell.measured.cpu_threads = thread(0.96);
    assert_eq!(names(&cell), ["cpu-bound"]);
}

#[test]
fn resync_running() {
    let mut cell = quiet("raid5", "seq-read");
    let idle = SyncRun { action: "idle".into(), ..SyncRun::default() };
    let none = cell.clone().with(|it| it.measured.sync = Some(idle));
    let sync = SyncRun { action: "recover".into(), begin: Some(0.1), end: Some(0.2) };
    cell.measured.sync = Some(sync);
    let found = check("resync-running", &cell, &none);
    let beside = cell.clone().with(|it| it.case.background = Some("rebuild".into()));
    assert!(!names(&beside).contains(&"resync-running".to_string()), "{:?}", names(&beside));
    assert!(found.text.contains("from 10.0 to 20.0 %"), "{}", found.text);
    assert!(found.text.starts_with("a rebuild of the array"), "{}", found.text);
    assert_eq!((found.evidence["begin_share"], found.evidence["end_share"]), (0.1, 0.2));
    cell.measured.sync = Some(SyncRun { action: "check".into(), begin: Some(0.1), end: Some(0.1) });
    assert!(find(&cell)[0].text.contains("at 10.0 % or a little more"), "{:?}", find(&cell));
}

#[test]
fn shared_spindle_and_shared_channel() {
    let mut cell = quiet("raid0", "seq-read").with(|it| {
        it.derived.mb_per_s = 100.0;
        it.derived.bound_mb_per_s = Some(105.0);
        it.derived.unshared_bound_mb_per_s = Some(320.0);
    });
    let idle = cell.clone().with(|it| {
        it.derived.mb_per_s = 30.0;
        it.case.members_per_spindle = Some(2);
    });
    cell.case.members_per_spindle = Some(2);
    let found = check("shared-spindle", &cell, &idle);
    assert_eq!(found.evidence["unshared_bound_mb_per_s"], 320.0);
    assert_eq!(found.command.as_deref(), Some("--spindle 1"));
    cell.case.members_per_spindle = None;
    cell.case.disks_per_channel = Some(2);
    let enough = cell.clone().with(|it| it.derived.unshared_bound_mb_per_s = Some(110.0));
    let found = check("shared-channel", &cell, &enough);
    assert_eq!(found.evidence["sharing"], 2.0);
    // Two to a channel, but all on one disk.
    cell.case.members_per_spindle = Some(4);
    assert_eq!(names(&cell), ["shared-spindle"]);
}

#[test]
fn shared_bus() {
    let mut cell = quiet("raid0", "seq-read");
    let none = cell.clone().with(|it| it.case.bus_mb_per_s = Some(200.0));
    cell.case.bus_mb_per_s = Some(110.0);
    let found = check("shared-bus", &cell, &none);
    assert_eq!(found.evidence["members_mb_per_s"], 100.0);
    assert_eq!(found.command.as_deref(), Some("--bus 220MB/s, or members on another bus"));
    // Two of the four members are behind a bus of their own, which they fill.
    let mut cell = quiet("raid0", "seq-read");
    let none = cell.clone().with(|it| it.case.buses = Some("80MB/s*2".into()));
    cell.case.buses = Some("none*2+55MB/s*2".into());
    let found = check("shared-bus", &cell, &none);
    assert_eq!((found.evidence["members_mb_per_s"], found.evidence["members"]), (50.0, 2.0));
    assert!(found.text.starts_with("2 members moved 50"), "{}", found.text);
}

#[test]
fn one_slow_member() {
    let mut cell = quiet("raid0", "seq-read");
    let none = cell.clone();
    for at in [0, 1, 3] {
        cell.measured.member_load[at].busy = Some(0.5);
    }
    let found = check("one-slow-member", &cell, &none);
    assert_eq!((found.evidence["member"], found.evidence["others_busy"]), (2.0, 0.5));
    assert!((found.evidence["time_per_byte_ratio"] - 1.94).abs() < 1e-9);
    assert!(found.text.ends_with("unless all are alike and one lags behind"), "{}", found.text);
    let random = cell.clone().with(|it| it.case.workload = "rand-read".into());
    let of_random = find(&random).remove(0);
    assert!(of_random.text.ends_with("wait for it"), "{}", of_random.text);
    // Drives of one model are alike: a member that lags in a stream keeps lagging.
    let alike = |members: &str| cell.clone().with(|it| it.case.members = members.into());
    assert_eq!(names(&alike("paced:hdd-2007:mem")), [""; 0]);
    let mixed = "paced:hdd-2007:mem*3+paced:hdd-2007@1.0:mem";
    assert_eq!(names(&alike(mixed)), ["one-slow-member"]);
    // All slower than one is not one slower than all.
    cell.measured.member_load = none.measured.member_load.clone();
    cell.measured.member_load[1].busy = Some(0.5);
    assert_eq!(names(&cell), [""; 0]);
    // Two that are behind are not one.
    cell.measured.member_load = none.measured.member_load.clone();
    (cell.measured.member_load[0].busy, cell.measured.member_load[1].busy) = (Some(0.4), Some(0.4));
    assert_eq!(names(&cell), [""; 0]);
    // A counter that advances by ticks: a copy that moved little has a busy time of 0.
    cell.measured.member_load = none.measured.member_load.clone();
    (0..4).filter(|at| *at != 2).for_each(|at| cell.measured.member_load[at].busy = Some(0.0));
    assert_eq!(names(&cell), [""; 0]);
    // Without busy times no member is slow.
    cell.measured.member_load = vec![MemberLoad::default(); 4];
    assert_eq!(names(&cell), [""; 0]);
}

#[test]
fn unbalanced_members() {
    let mut cell = quiet("raid4", "rand-write");
    (cell.measured.member_load, cell.case.block_kib) = (Vec::new(), 4.0);
    let none = cell.clone();
    cell.measured.per_member[3] = moved(0, 99_000_000);
    let found = check("unbalanced-members", &cell, &none);
    assert_eq!(found.evidence["busiest_over_idlest"], 3.0);
    assert_eq!(found.command.as_deref(), Some("--level raid5"));
    // By chance: 25 operations a member.
    cell.measured.per_member.iter_mut().for_each(|member| (member.reads, member.writes) = (0, 25));
    cell.measured.per_member[3].written_bytes = 60_000_000;
    assert_eq!(names(&cell), [""; 0]);
    // A mirror that serves one stream from one copy.
    let mut mirror = quiet("raid1", "seq-read");
    mirror.measured.per_member[1..].fill(moved(0, 0));
    mirror.measured.per_member[0].read_bytes = 100_000_000;
    mirror.measured.member_load[1..].fill(MemberLoad { busy: Some(0.0), in_flight: Some(0.0) });
    assert_eq!(names(&mirror), ["unbalanced-members"]);
    assert_eq!(find(&mirror)[0].command.as_deref(), Some("--jobs 4"));
    // The workload was served from a cache: a megabyte on one member is no imbalance.
    let mut cached = mirror.clone();
    cached.measured.per_member[0].read_bytes = 1_000_000;
    assert_eq!(names(&cached), ["page-cache"]);
    // A member that is missing moves nothing.
    let mut degraded = quiet("raid6", "seq-read");
    degraded.measured.per_member = vec![moved(34_000_000, 0); 4];
    (degraded.case.degraded, degraded.measured.per_member[0]) = (1, moved(0, 0));
    assert_eq!(names(&degraded), [""; 0]);
}

#[test]
fn read_modify_write() {
    let mut cell = quiet("raid5", "rand-write");
    cell.case.block_kib = 4.0;
    let none = cell.clone();
    cell.measured.per_member = vec![moved(50_000_000, 50_000_000); 4];
    let found = check("read-modify-write", &cell, &none);
    assert_eq!(found.evidence["read_bytes_per_user_byte"], 2.0);
    assert_eq!(found.evidence["stripe_kib"], 192.0);
    assert_eq!(found.command.as_deref(), Some("--level raid10"));
    let sequential = cell.clone().with(|it| it.case.workload = "seq-write".into());
    assert_eq!(find(&sequential)[0].command.as_deref(), Some("--block 192K"));
    // A rewrite reads what it writes over, and that says nothing about the array.
    let rewrite = cell.clone().with(|it| it.case.workload = "seq-rewrite".into());
    assert_eq!(names(&rewrite), [""; 0]);
    // Reads of a resync are not a read-modify-write of the workload.
    let resync = SyncRun { action: "resync".into(), ..SyncRun::default() };
    assert_eq!(names(&cell.with(|it| it.measured.sync = Some(resync))), ["resync-running"]);
}

#[test]
fn stripe_cache_growing() {
    let mut cell = quiet("raid5", "seq-write");
    let cache = |end, active| {
        Some(StripeCacheUse { entries_begin: 256, entries_end: end, active_max: Some(active) })
    };
    let none = cell.clone().with(|it| it.measured.stripe_cache = cache(256, 100));
    cell.measured.stripe_cache = cache(1024, 100);
    let found = check("stripe-cache-growing", &cell, &none);
    assert_eq!((found.evidence["entries_begin"], found.evidence["entries_end"]), (256.0, 1024.0));
    cell.measured.stripe_cache = cache(256, 250);
    assert!(find(&cell)[0].text.contains("250 of the 256"), "{:?}", find(&cell));
    // What Linux 6.12 shows of a cache that it lets grow: more in use than there are.
    cell.measured.stripe_cache = cache(256, 300);
    let found = &find(&cell)[0];
    assert!(found.text.starts_with("300 entries") && found.text.contains("keeps 256"), "{found:?}");
    assert!(found.command.as_deref().is_some_and(|command| command.starts_with("echo 1024 ")));
}

#[test]
fn queue_never_deeper_than_one() {
    let mut cell = quiet("raid0", "rand-read");
    (cell.case.block_kib, cell.derived.bound_share) = (4.0, Some(0.3));
    cell.measured.member_load.fill(MemberLoad { busy: Some(0.25), in_flight: Some(0.25) });
    let none = cell.clone().with(|it| it.case.depth = 32);
    cell.case.depth = 1;
    let found = check("queue-never-deeper-than-one", &cell, &none);
    assert_eq!((found.evidence["in_flight"], found.evidence["members"]), (1.0, 4.0));
    // Below a program there may be a cache that writes deeper: only a count tells.
    cell.case.place = Some(Place::default());
    assert_eq!(names(&cell), ["queue-never-deeper-than-one"]);
    cell.measured.member_load[0].in_flight = Some(4.0);
    assert_eq!(names(&cell), [""; 0]);
    cell.measured.member_load.clear();
    assert_eq!(names(&cell), [""; 0]);
}

#[test]
fn queue_too_shallow_for_the_members() {
    let mut cell = quiet("raid0", "rand-read");
    (cell.case.disks, cell.measured.per_member) = (12, vec![moved(8_000_000, 0); 12]);
    cell.measured.member_load = vec![MemberLoad { busy: Some(0.3), in_flight: Some(0.33) }; 12];
    let busy = MemberLoad { busy: Some(0.95), in_flight: Some(0.33) };
    let none = cell.clone().with(|it| it.measured.member_load = vec![busy; 12]);
    let found = check("queue-too-shallow", &cell, &none);
    assert!((found.evidence["members_with_one"] - 3.53).abs() < 0.01, "{found:?}");
    assert_eq!(found.command.as_deref(), Some("--depth 96"));
    assert_eq!(names(&cell.clone().with(|it| it.case.depth = 64)), [""; 0]);
    assert_eq!(
        names(&cell.with(|it| it.measured.member_load = Vec::new())),
        [""; 0],
        "no counts, no finding"
    );
}

#[test]
fn one_command_at_a_time_for_each_member() {
    let none = quiet("raid5", "rand-read").with(|it| it.case.depth = 32);
    let cell =
        none.clone().with(|it| it.case.knobs = Knobs { queue_depth: Some(1), ..Knobs::default() });
    let found = check("one-command-each", &cell, &none);
    assert_eq!(found.command.as_deref(), Some("--queue-depth 32"));
    // A sequential stream needs no choice, nor do as many requests as members.
    assert_eq!(names(&cell.clone().with(|it| it.case.workload = "seq-read".into())), [""; 0]);
    assert_eq!(names(&cell.with(|it| it.case.depth = 4)), [""; 0]);
    let drive = |queue_depth| crate::record::DriveFacts { queue_depth, ..Default::default() };
    let below = |queue_depth| {
        none.clone().with(|it| {
            it.case.place = Some(Place { drives: vec![drive(queue_depth); 4], ..Place::default() })
        })
    };
    assert_eq!(names(&below(Some(1))), ["one-command-each"]);
    assert_eq!(names(&below(Some(31))), [""; 0]);
    assert_eq!(names(&below(None)), [""; 0]);
}

#[test]
fn one_member_that_answers_late_is_the_tail() {
    let latency = |p50, p99| crate::record::Latency { p50, p99, p999: p99, max: p99 };
    let mut cell = quiet("raid5", "rand-read");
    (cell.case.members, cell.derived.bound_share) = ("mem*3+fault:delay=20ms:mem".into(), None);
    cell.measured.latency_us = Some(latency(14.5, 26_000.0));
    cell.measured.member_load = vec![MemberLoad::default(); 4];
    let none = cell.clone();
    // 20,000 operations in a second, 25 ms each.
    cell.measured.member_load[3].in_flight = Some(500.0);
    let found = check("one-slow-member", &cell, &none);
    assert_eq!((found.evidence["member"], found.evidence["member_us"]), (3.0, 25_000.0));
    assert!(found.text.contains("member 3 took 25"), "{}", found.text);
    // The same of files, whose others are known too.
    cell.measured.member_load[..3].fill(MemberLoad { busy: None, in_flight: Some(4.0) });
    assert_eq!(names(&cell), ["one-slow-member"]);
    cell.measured.member_load[2].in_flight = Some(400.0);
    assert_eq!(names(&cell), [""; 0], "two are late");
    cell.measured.member_load[2].in_flight = Some(4.0);
    assert_eq!(
        names(&cell.clone().with(|it| it.measured.latency_us = Some(latency(20_000.0, 26_000.0)))),
        [""; 0]
    );
    // A member with all the parity has more to do.
    let mut parity = cell.clone();
    parity.measured.per_member[3].reads = 90_000;
    assert!(!names(&parity).contains(&"one-slow-member".to_string()));
}

#[test]
fn a_stated_load_that_is_not_met() {
    let mut met = quiet("raid0", "rand-read").with(|it| it.case.rate_iops = Some(100));
    (met.measured.arrivals, met.measured.waiting, met.derived.iops) = (Some(104), Some(0), 100.0);
    // What is in flight at the end has arrived, too.
    let behind = met.clone().with(|it| {
        it.measured.arrivals = Some(200);
        it.measured.waiting = Some(96);
    });
    let behind = behind.with(|it| it.case.rate_iops = Some(200));
    let found = check("stated-load-not-met", &behind, &met);
    assert_eq!((found.evidence["load_share"], found.evidence["waiting"]), (0.5, 96.0));
    assert_eq!(found.command.as_deref(), Some("--rate-iops 80"));
    // A queue that grows is no load that is met, however many requests may be in flight.
    let deep = behind.with(|it| {
        it.case.depth = 256;
        it.measured.waiting = Some(0);
    });
    assert_eq!(deep.meets_load(), Some(false));
    // Between requests that arrive slowly the members are idle: nothing is too shallow.
    let idle = vec![MemberLoad { busy: Some(0.2), in_flight: Some(0.2) }; 4];
    let slow = met.with(|it| {
        it.case.depth = 1;
        it.measured.member_load = idle;
        it.derived.bound_share = None;
    });
    assert_eq!(find(&slow), []);
    let closed = slow.with(|it| {
        it.case.rate_iops = None;
        it.measured.arrivals = None;
    });
    assert_eq!(names(&closed), ["queue-never-deeper-than-one"]);
}

#[test]
fn busy_machine() {
    let none = quiet("raid0", "rand-read").with(|it| it.measured.others_cpus = Some(0.05));
    let busy = none.clone().with(|it| it.measured.others_cpus = Some(1.5));
    let found = check("busy-machine", &busy, &none);
    assert!(found.text.starts_with("other processes used 1.50 CPUs on average"), "{found:?}");
    let series = crate::record::Series { stolen_cpus: vec![0.5; 4], ..Default::default() };
    let stolen = none.with(|it| it.measured.series = Some(series));
    assert!(find(&stolen)[0].text.starts_with("other virtual machines took 0.5"), "{stolen:?}");
}

#[test]
fn what_is_far_from_its_bound_has_a_reason_or_is_said_to_have_none() {
    let at = |share| {
        quiet("raid0", "rand-read").with(|it| {
            it.derived.bound_share = Some(share);
            it.derived.bound_mb_per_s = Some(100.0);
        })
    };
    let all = |cell: &Cell| -> Vec<String> {
        find(cell).into_iter().map(|finding| finding.name).collect()
    };
    for share in [0.86, 1.0, 1.09] {
        assert_eq!(all(&at(share)), [""; 0], "{share}");
    }
    assert_eq!(all(&at(0.6)), ["below-the-bound"]);
    let text = &find(&at(0.6))[0].text;
    assert!(text.contains("60 %") && text.contains("busy 97 %"), "{text}");
    assert_eq!(all(&at(3.2)), ["above-the-bound"]);
    // Another finding is the reason.
    let shared = at(0.6).with(|it| it.measured.others_cpus = Some(1.0));
    assert_eq!(all(&shared), ["busy-machine"]);
    let cached = at(3.2).with(|it| it.measured.cached = Some("page cache".into()));
    assert_eq!(all(&cached), ["page-cache"]);
}

#[test]
fn read_ahead_too_small() {
    let mut cell = quiet("raid5", "seq-read");
    (cell.case.block_kib, cell.case.depth, cell.derived.bound_share) = (16.0, 2, Some(0.4));
    cell.measured.member_load.fill(MemberLoad { busy: Some(0.4), in_flight: Some(1.0) });
    let none = cell.clone().with(|it| it.case.read_ahead_kib = Some(1024));
    let found = check("read-ahead-too-small", &cell, &none);
    assert_eq!((found.evidence["window_kib"], found.evidence["stripe_kib"]), (32.0, 192.0));
    assert_eq!(found.command.as_deref(), Some("--read-ahead 384K"));
    // Below a file system the device's read-ahead counts, and only where members had time.
    cell.case.place = Some(Place { read_ahead_kib: Some(128), ..Place::default() });
    cell.derived.bound_share = None;
    assert_eq!(find(&cell)[0].command.as_deref(), Some("blockdev --setra 768 /dev/mdX"));
    // What is requested at once is read at once.
    let whole = cell.clone().with(|it| it.case.block_kib = 1024.0);
    assert!(names(&whole).iter().all(|name| name != "read-ahead-too-small"));
    // A block device is read with direct I/O, without read-ahead.
    let large = Place { read_ahead_kib: Some(4096), ..Place::default() };
    let device = cell.clone().with(|it| {
        it.case.target = "device".into();
        it.case.place = Some(large);
    });
    let found = &find(&device)[0];
    assert_eq!((found.name.as_str(), found.evidence["window_kib"]), ("read-ahead-too-small", 32.0));
    assert_eq!(found.command, None);
    let one = device.with(|it| it.case.depth = 1);
    let found = find(&one);
    assert!(found.iter().any(|f| f.name == "queue-never-deeper-than-one"), "{found:?}");
    cell.measured.member_load.fill(MemberLoad { busy: Some(0.99), in_flight: Some(1.0) });
    assert_eq!(names(&cell), [""; 0]);
}

#[test]
fn generator_bound_and_cpu_bound() {
    let mut cell = quiet("raid0", "rand-read");
    (cell.measured.member_load, cell.derived.bound_share, cell.measured.cpu_process_s) =
        (Vec::new(), None, Some(0.99));
    cell.measured.samples[0].ops = 1_000_000;
    cell.measured.generator_ns_per_op = Some(100.0);
    let busy = cell.clone();
    let waiting = cell.clone().with(|it| it.measured.cpu_process_s = Some(0.5));
    let found = check("cpu-bound", &busy, &waiting);
    assert_eq!(found.evidence["cpu_share"], 0.99);
    cell.measured.generator_ns_per_op = Some(800.0);
    let found = check("generator-bound", &cell, &waiting);
    assert!((found.evidence["generator_share"] - 0.8).abs() < 1e-9);
    // Members at their limit are the limit, however the host waits for them.
    let full = vec![MemberLoad { busy: Some(0.99), in_flight: Some(1.0) }; 4];
    assert_eq!(names(&busy.clone().with(|it| it.measured.member_load = full)), [""; 0]);
    // Several cores: one thread that is full is enough, half the process is not.
    let thread = |seconds| vec![ThreadTime { name: "md0_raid5".into(), seconds }];
    let two = busy.with(|it| {
        it.case.cores = Some(2);
        it.measured.cpu_threads = thread(0.5);
    });
    assert_eq!(names(&two), [""; 0]);
    let found = find(&two.clone().with(|it| it.measured.cpu_threads = thread(0.95)));
    assert!(found[0].text.starts_with("thread md0_raid5 used 95 %"), "{found:?}");
    assert_eq!(found[0].command.as_deref(), Some("--cores 4"));
    // On a file system the array's own thread is the limit; more generators do not help.
    let place = Some(Place::default());
    let placed = two.clone().with(|it| {
        it.case.place = place;
        it.case.cores = None;
        it.measured.cpu_process_s = Some(1.2);
    });
    assert_eq!(names(&placed), [""; 0], "two threads, at 60 % each");
    let fuse = ThreadTime { name: "raidlab-fuse".into(), seconds: 0.95 };
    let found = find(&placed.clone().with(|it| it.measured.cpu_threads = vec![fuse]));
    assert!(found[0].text.starts_with("thread raidlab-fuse used 95 %"), "{found:?}");
    assert_eq!(found[0].command, None);
    let lane = ThreadTime { name: "lane-0".into(), seconds: 0.95 };
    let found = find(&placed.with(|it| it.measured.cpu_threads = vec![lane]));
    assert_eq!(found[0].command.as_deref(), Some("--cores 2"));
    // Two workers at half a CPU each are no limit; a saturated one is.
    let program = two.with(|it| {
        it.case.program = Some("dd".into());
        it.case.cores = None;
    });
    let halves = program.clone().with(|it| it.measured.cpu_process_s = Some(1.0));
    assert_eq!(names(&halves), [""; 0]);
    let full = find(&program.with(|it| {
        it.measured.cpu_threads = thread(0.95);
        it.measured.cpu_process_s = None;
    }));
    assert_eq!((full[0].name.as_str(), full[0].command.as_deref()), ("cpu-bound", None));
}

#[test]
fn members_that_a_stream_of_raid_10_reads_follow_from_its_layout() {
    let table = [
        ("n2", Some(10)),
        ("n3", Some(7)),
        ("n10", Some(2)),
        ("f2", Some(20)),
        ("o2", Some(10)),
        ("n2f2", Some(10)),
        ("N2", None),
        ("d4", None),
        ("left-symmetric", None),
    ];
    for (layout, members) in table {
        let cell = quiet("raid10", "seq-read").with(|it| {
            it.case.disks = 20;
            it.case.layout = Some(layout.into());
        });
        assert_eq!(data_members(&cell), members, "{layout}");
    }
    assert_eq!(data_members(&quiet("raidz2", "seq-read")), None);
}

#[test]
fn a_record_with_a_finding_can_be_read_again() {
    let evidence = [("ratio", f64::INFINITY), ("share", f64::NAN), ("busy", 0.5)];
    let found = finding("one-slow-member", "member 2 was busy".into(), &evidence, None);
    let text = serde_json::to_string(&found).expect("written");
    let read: Finding = serde_json::from_str(&text).expect("read");
    assert_eq!(read, found);
    assert_eq!(read.evidence.keys().collect::<Vec<_>>(), ["busy"]);
}
