//! Members at the pace of modelled drives. In real time: upper bounds always hold, lower bounds get
//! several attempts, because a busy machine can only be slower.

#[path = "it/common/mod.rs"]
#[allow(dead_code, reason = "these tests need a part of it")]
mod common;

use std::time::{Duration, Instant};

use drive::{BusId, Op, OpKind, Placement, Profile, Rig};
use md::{Layout, Level, Raid10Layout, Sector};
use raidlab_array::{Completion, Fault, FaultMember, HostOp, MemberSpec, PaceControl, PacedMember};
use testkit::{Rng, print_replay, seeds};

use crate::common::host::{self, Host};
use crate::common::{SECTOR, Shards, boxed_mem, driver, spec};

const OUTER: Placement = Placement::Window { at: 0.0 };

fn profile(name: &str) -> &'static Profile {
    Profile::named(name).expect("a built-in profile")
}

fn hdd(control: &PaceControl, sectors: u64, placement: Placement) -> MemberSpec {
    behind(control, sectors, placement, None)
}

fn behind(
    control: &PaceControl,
    sectors: u64,
    placement: Placement,
    bus: Option<BusId>,
) -> MemberSpec {
    let inner = boxed_mem(sectors);
    MemberSpec::ready(PacedMember::new(inner, control, profile("hdd-2007"), placement, bus))
}

/// Bytes per second of sequential reads of 256 KiB, two at a time.
fn read_rate(driver: &mut Shards, time: Duration) -> f64 {
    const SECTORS: u64 = 512;
    let mut leases: Vec<_> = (0..2).map(|_| driver.leases().take(256 << 10)).collect();
    let (mut at, mut bytes) = (0, 0);
    let mut done: Vec<Completion> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        while let Some(lease) = leases.pop() {
            driver.submit(HostOp::Read, Sector(at), SECTORS, lease, 0).expect("room");
            at = (at + SECTORS) % (driver.info().sectors / SECTORS * SECTORS);
        }
        driver.poll(&mut done);
        for end in done.drain(..) {
            bytes += 256 << 10;
            leases.push(end.lease);
        }
        driver.wait(Duration::from_millis(100), None);
    }
    let rate = f64::from(bytes) / start.elapsed().as_secs_f64();
    host::drain_until(driver, &mut done, |done| done.len() + leases.len() == 2);
    rate
}

/// The best of several attempts; every one must keep to the drive's bound. A machine that is busy
/// with something else gets a while to have a free moment.
fn rate_of(make: impl Fn(&PaceControl) -> Shards, expected: f64) {
    let (mut best, start) = (0f64, Instant::now());
    for attempt in 0.. {
        if attempt > 0 && start.elapsed() > Duration::from_secs(60) {
            break;
        }
        let rate = read_rate(&mut make(&PaceControl::default()), Duration::from_millis(400));
        assert!(rate < expected * 1.1, "{rate:.0} is faster than the drive, {expected:.0}");
        best = best.max(rate);
        if best > expected * 0.9 {
            return;
        }
    }
    panic!("{best:.0} bytes/s at best, {expected:.0} expected");
}

const SECTORS: u64 = (128 << 20) / 512;

fn one(control: &PaceControl, placement: Placement) -> Shards {
    driver(spec(Level::Linear, 0, vec![hdd(control, SECTORS, placement)]))
}

#[test]
fn a_drive_of_2007_reads_as_fast_as_its_outer_and_inner_tracks() {
    rate_of(|control| one(control, OUTER), 82e6);
    rate_of(|control| one(control, Placement::Window { at: 0.95 }), 41e6);
}

#[test]
fn a_shared_bus_bounds_two_drives() {
    let two = |control: &PaceControl, bus| {
        let members = (0..2).map(|_| behind(control, SECTORS, OUTER, bus)).collect();
        driver(spec(Level::Raid0, 128, members))
    };
    rate_of(|control| two(control, Some(control.add_bus(60_000_000))), 60e6);
}

/// RAID 0 of two members of 128 MiB: halves of one disk, or disks of their own on one channel.
fn wired(control: &PaceControl, one_disk: bool, model: &str) -> Shards {
    let (bytes, channel) = (SECTORS * SECTOR as u64, control.add_channel());
    let add = |bytes| {
        let cable = (!one_disk).then_some(channel);
        control.add_disk(profile(model), Placement::Stretch, bytes, None, cable)
    };
    let whole = one_disk.then(|| add(2 * bytes));
    let members = (0..2).map(|n| {
        let (disk, at) = whole.map_or_else(|| (add(bytes), 0), |disk| (disk, n * bytes));
        MemberSpec::ready(PacedMember::part(boxed_mem(SECTORS), control, disk, at))
    });
    driver(spec(Level::Raid0, 128, members.collect()))
}

#[test]
fn halves_of_one_disk_pay_for_the_way_between_them() {
    // A visit of 512 KiB, then half of the stroke and half a turn: some 25 MB/s. Halves that lay on
    // the same place, or on disks of their own, would be faster than one disk.
    for _ in 0..2 {
        let control = PaceControl::default();
        let rate = read_rate(&mut wired(&control, true, "hdd-2007"), Duration::from_millis(400));
        assert!(rate < 50e6, "{rate:.0} bytes/s");
    }
}

#[test]
fn two_disks_on_one_channel_are_bounded_by_it() {
    // Both read ahead, so the cable carries without a break, but no more than 66 MB/s.
    let control = PaceControl::default();
    let rate = read_rate(&mut wired(&control, false, "hdd-2002"), Duration::from_millis(400));
    assert!(rate < 66e6, "{rate:.0} bytes/s");
}

#[test]
fn with_the_pace_off_data_is_filled_in_at_full_speed() {
    let control = PaceControl::default();
    control.set_on(false);
    let mut driver = one(&control, OUTER);
    let start = Instant::now();
    let data = vec![1; 1 << 20];
    for at in 0..64 {
        host::write(&mut driver, at * 2048, &data);
    }
    assert!(start.elapsed() < Duration::from_millis(500), "at the drive's pace it takes 800 ms");
    control.set_on(true);
    let start = Instant::now();
    for at in 0..8 {
        assert_eq!(host::read(&mut driver, at * 2048, 2048), data);
    }
    assert!(start.elapsed() > Duration::from_millis(90), "8 MiB at 82 MB/s");
}

#[test]
fn nothing_completes_before_its_model_time() {
    for name in ["nvme-ssd", "sata-ssd"] {
        let size = 1 << 20;
        for (kind, sectors) in [(OpKind::Read, 8), (OpKind::Write { fua: true }, 8)] {
            let mut rig = Rig::new();
            let drive = rig.add_drive(profile(name), OUTER, size * 512, None);
            let (mut modelled, mut done) = (0, Vec::new());
            let control = PaceControl::default();
            let paced = PacedMember::new(boxed_mem(size), &control, profile(name), OUTER, None);
            let mut driver = driver(spec(Level::Linear, 0, vec![MemberSpec::ready(paced)]));
            for at in 0..20 {
                let op = Op { kind, at_bytes: at * 65536, bytes: sectors * 512 };
                rig.submit(modelled, drive, 0, op);
                while done.is_empty() {
                    modelled = rig.next_event().expect("an operation is in flight");
                    rig.advance(modelled, &mut done);
                }
                let service = Duration::from_nanos(done.remove(0).service);
                let start = Instant::now();
                let data = vec![0; sectors as usize * SECTOR];
                match kind {
                    OpKind::Read => drop(host::read(&mut driver, at * 128, sectors)),
                    _ => {
                        let op = HostOp::Write { fua: true };
                        let (result, _) =
                            host::call(&mut driver, op, at * 128, sectors, Some(&data));
                        assert_eq!(result, Ok(()));
                    }
                }
                let took = start.elapsed();
                assert!(took >= service, "{name} {kind:?}: {took:?}, modelled {service:?}");
            }
        }
    }
}

/// The end of a long wait for disk heads is not polled for. (The last 20 us of short operations are
/// polled, some hundred times each.)
#[test]
fn waiting_for_heads_is_sleeping() {
    const READS: u64 = 20;
    ::host::sys::wait_precisely();
    let mut driver = one(&PaceControl::default(), Placement::Stretch);
    let (mut done, mut turns) = (Vec::new(), 0);
    for read in 0..READS {
        let (at, lease) = (read * 7919 % (SECTORS / 8) * 8, driver.leases().take(4096));
        driver.submit(HostOp::Read, Sector(at), 8, lease, 0).expect("room");
        driver.poll(&mut done);
        while done.drain(..).count() == 0 {
            driver.wait(Duration::from_millis(100), None);
            driver.poll(&mut done);
            turns += 1;
        }
    }
    assert!(turns < 10 * READS, "{turns} turns for {READS} reads");
}

#[test]
fn the_pace_can_change_while_operations_are_in_flight() {
    for seed in seeds(6) {
        print_replay!("the_pace_can_change_while_operations_are_in_flight", seed);
        let mut rng = Rng::new(seed);
        let control = PaceControl::default();
        let name = rng.pick(&["nvme-ssd", "sata-ssd"]);
        let members = (0..4).map(|_| {
            let inner = boxed_mem(512);
            MemberSpec::ready(PacedMember::new(inner, &control, profile(name), OUTER, None))
        });
        // Far copies: a request may have two operations of one member with one token.
        let level = rng.pick(&[Level::Raid10, Level::Raid5]);
        let mut spec = spec(level, 8, members.collect());
        if level == Level::Raid10 {
            spec.layout = Layout::Raid10(Raid10Layout::far(2));
        }
        spec.data_plane.queue_depth = rng.pick(&[2, usize::MAX]);
        let mut driver = driver(spec);
        let mut host = Host::new(&mut driver, 16);
        for round in 0..12 {
            control.set_on(round % 2 == 0);
            host.run(&mut rng, 10);
        }
        host.check_all();
    }
}

#[test]
fn the_switch_is_safe_from_another_thread() {
    let control = PaceControl::default();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut on = false;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                control.set_on(on);
                on = !on;
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let inner = boxed_mem(2048);
        let paced = PacedMember::new(inner, &control, profile("nvme-ssd"), OUTER, None);
        let mut driver = driver(spec(Level::Linear, 0, vec![MemberSpec::ready(paced)]));
        let mut host = Host::new(&mut driver, 16);
        host.run(&mut Rng::new(1), 400);
        host.check_all();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_request_may_have_two_operations_of_one_member() {
    let control = PaceControl::default();
    let mut far = spec(
        Level::Raid10,
        8,
        (0..2)
            .map(|_| {
                let inner = boxed_mem(1024);
                MemberSpec::ready(PacedMember::new(
                    inner,
                    &control,
                    profile("nvme-ssd"),
                    OUTER,
                    None,
                ))
            })
            .collect(),
    );
    far.layout = Layout::Raid10(Raid10Layout::far(2));
    let mut driver = driver(far);
    let sectors = driver.info().sectors;
    let mut data = vec![0; sectors as usize * SECTOR];
    Rng::new(2).fill(&mut data);
    host::write(&mut driver, 0, &data);
    assert!(host::read(&mut driver, 0, sectors) == data);
}

#[test]
fn operations_delayed_by_the_backing_store_are_counted() {
    for (delay, late) in [(0, 0), (20_000_000, 8)] {
        let faults = if delay > 0 { vec![Fault::Delay { nanos: delay }] } else { Vec::new() };
        let inner = Box::new(FaultMember::new(boxed_mem(1024), faults));
        let control = PaceControl::default();
        let paced = PacedMember::new(inner, &control, profile("nvme-ssd"), OUTER, None);
        let mut driver = driver(spec(Level::Linear, 0, vec![MemberSpec::ready(paced)]));
        for at in 0..8 {
            host::read(&mut driver, at * 8, 8);
        }
        let counters = driver.leaf_counters();
        assert_eq!((counters[0].reads, counters[0].late), (8, late));
    }
}

#[test]
fn two_drivers_share_a_bus() {
    let control = PaceControl::default();
    let bus = control.add_bus(40_000_000);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let run = || {
            let member = behind(&control, SECTORS, OUTER, Some(bus));
            let mut driver = driver(spec(Level::Linear, 0, vec![member]));
            scope.spawn(move || read_rate(&mut driver, Duration::from_millis(500)))
        };
        let both = [run(), run()];
        both.map(|thread| thread.join().expect("a rate")).to_vec()
    });
    assert!(rates.iter().sum::<f64>() < 44e6, "{rates:?}");
    assert!(rates.iter().all(|rate| *rate > 1e6), "no drive is starved: {rates:?}");
}

#[test]
fn a_mirror_of_a_disk_and_a_solid_state_drive_reads_from_the_fast_one() {
    let control = PaceControl::default();
    let member = |name: &str| {
        let inner = boxed_mem(SECTORS);
        MemberSpec::ready(PacedMember::new(inner, &control, profile(name), OUTER, None))
    };
    let mut driver = driver(spec(Level::Raid1, 0, vec![member("hdd-2007"), member("nvme-ssd")]));
    let mut rng = Rng::new(3);
    let mut reads = |driver: &mut Shards, count: u64| {
        for _ in 0..count {
            host::read(driver, rng.below(SECTORS / 8) * 8, 8);
        }
        driver.leaf_counters()
    };
    let before = reads(&mut driver, 60);
    let now = reads(&mut driver, 1000);
    let slow = now[0].since(&before[0]).reads;
    assert!(slow < 100, "{slow} of 1000 reads of the disk");
}
