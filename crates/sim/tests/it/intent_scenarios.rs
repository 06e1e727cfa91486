//! Intents and resyncs as one shard serves them, one behaviour at a time. The tests answer in the
//! metadata manager's place.

use engine::{
    Control, ControlEvent, HostOp, IntentMap, MemberError, MemberSet, RequestError, ShardConfig,
};
use md::{Layout, Level, MemberIdx, Raid5Layout, Raid6Layout, Raid10Layout};

use raidlab_sim::world::{self, Delays, What, World};

const WRITE: HostOp = HostOp::Write { fua: false };

fn array(level: Level, members: usize) -> ShardConfig {
    let (layout, chunk) = match level {
        Level::Raid5 => (Layout::Raid5(Raid5Layout::LeftSymmetric), 16),
        Level::Raid6 => (Layout::Raid6(Raid6Layout::LeftSymmetric), 16),
        Level::Raid10 => (Layout::Raid10(Raid10Layout::near(2)), 16),
        _ => (Layout::None, 0),
    };
    let geometry = world::geometry(level, layout, chunk, &vec![256; members]);
    let intents = IntentMap::bitmap(&geometry, 16);
    ShardConfig { intents, safe_mode_nanos: 1_000_000, ..ShardConfig::new(geometry) }
}

fn world(config: ShardConfig) -> World {
    let mut world = World::new(config, 5);
    world.delays = Delays::EVEN;
    world.keep_log = true;
    world
}

fn grant(world: &mut World, first_bit: u32, bits: u32) {
    world.control(Control::Granted { first_bit, bits });
}

fn drain(world: &mut World) {
    while world.step() {}
}

fn intents(world: &World) -> Vec<(u32, u32)> {
    let intent = |event: &ControlEvent| match event {
        ControlEvent::Intent { first_bit, bits } => Some((*first_bit, *bits)),
        _ => None,
    };
    world.events.iter().filter_map(intent).collect()
}

/// Which members serve reads of 8 sectors there, many concurrently so that the load is shared.
fn readers(world: &mut World, at: u64) -> Vec<usize> {
    world.log.clear();
    let reads: Vec<_> = (0..16).map(|_| world.submit(HostOp::Read, at, 8)).collect();
    world.quiesce();
    assert!(reads.into_iter().all(|read| world.result(read) == Some(Ok(()))));
    let mut members: Vec<usize> = world.log.iter().map(|logged| logged.member.into()).collect();
    members.sort_unstable();
    members.dedup();
    members
}

fn check(world: &mut World) {
    let failed = world.shard.status().failed;
    world.model.check_members(&world.geometry().clone(), &world.members, &|m| failed.contains(m));
}

#[test]
fn a_write_waits_for_its_intents_and_nothing_else_does() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
        let mut world = world(array(level, 4));
        let write = world.submit(WRITE, 0, 8);
        assert_eq!((intents(&world), world.shard.status().waiting_for_intents), (vec![(0, 1)], 1));
        assert_eq!(world.run(HostOp::Read, 0, 8), Ok(()));
        assert_eq!(world.run(HostOp::Flush, 0, 0), Ok(()));
        assert_eq!(world.run(HostOp::Discard, 0, 8), Ok(()), "which does nothing here");
        drain(&mut world);
        assert!(world.log.iter().all(|logged| logged.what == What::Read));
        assert_eq!(world.result(write), None);
        grant(&mut world, 0, 1);
        assert_eq!(world.run(WRITE, 0, 8), Ok(()));
        assert_eq!(world.result(write), Some(Ok(())));
        assert_eq!(intents(&world).len(), 1, "granted is granted");
        world.quiesce();
        let released = ControlEvent::Released { first_bit: 0, bits: 1 };
        assert_eq!(world.events.last(), Some(&released));
        check(&mut world);
    }
}

#[test]
fn read_only_refuses_waiting_writes_and_completes_those_in_flight() {
    let mut world = world(array(Level::Raid5, 3));
    world.model.tolerated.push(RequestError::ReadOnly);
    let begun = world.submit(WRITE, 0, 8);
    grant(&mut world, 0, 1);
    let parked = world.submit(WRITE, 64, 8);
    world.control(Control::ReadOnly);
    assert_eq!(world.result(parked), Some(Err(RequestError::ReadOnly)));
    assert_eq!(world.run(WRITE, 0, 8), Err(RequestError::ReadOnly));
    world.quiesce();
    assert_eq!(world.result(begun), Some(Ok(())));
    assert_eq!(world.run(HostOp::Read, 0, 8), Ok(()));
    let released = ControlEvent::Released { first_bit: 0, bits: 1 };
    assert!(world.events.contains(&released), "given back without delay");
    assert!(!world.events.iter().any(|e| matches!(e, ControlEvent::OutOfSync { .. })));
    check(&mut world);
}

#[test]
fn a_read_only_array_repairs_nothing() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut world = world(array(level, 3));
        world.control(Control::ReadOnly);
        world.members.iter_mut().take(1).for_each(|member| member.bad.extend(0..8));
        assert_eq!(world.run(HostOp::Read, 0, 8), Ok(()));
        assert_eq!(world.run(HostOp::Read, 8, 8), Ok(()));
        world.quiesce();
        assert!(world.log.iter().all(|logged| logged.what == What::Read), "{level:?}");
    }
}

#[test]
fn writes_that_rely_on_a_loss_that_cannot_be_recorded_fail() {
    let mut world = world(array(Level::Raid1, 2));
    world.model.tolerated.push(RequestError::Io);
    world.delays.record = (1 << 40, 1 << 40);
    world.members[1].gone_at = Some(1);
    let write = world.submit(WRITE, 0, 8);
    grant(&mut world, 0, 1);
    let before_the_answer = world.now + (1 << 30);
    while world.next_event().is_some_and(|at| at < before_the_answer) {
        world.step();
    }
    assert_eq!(world.result(write), None);
    world.control(Control::NotRecorded { epoch: 1 });
    assert_eq!(world.result(write), Some(Err(RequestError::Io)));
}

#[test]
fn a_write_that_fails_half_way_is_reported_and_reads_use_one_copy() {
    let mut world = world(array(Level::Raid1, 2));
    world.model.tolerated.push(RequestError::NoSpace);
    world.members[1].full = 64..72;
    world.submit(WRITE, 64, 8);
    grant(&mut world, 4, 1);
    world.quiesce();
    let gone_wrong = ControlEvent::OutOfSync { first_bit: 4, bits: 1 };
    let released = ControlEvent::Released { first_bit: 4, bits: 1 };
    let at = |event| world.events.iter().position(|e| *e == event).expect("it is said");
    assert!(at(gone_wrong) < at(released));
    assert_eq!(readers(&mut world, 64), [0], "copies differ there");
    assert_eq!(readers(&mut world, 0), [0, 1]);
    world.members[1].full = 0..0;
    assert_eq!(world.run(HostOp::Resync, 64, 8), Ok(()));
    world.control(Control::InSyncBelow { position: u64::MAX, reports: 1 });
    check(&mut world);
}

#[test]
fn a_raise_that_crosses_a_report_raises_nothing() {
    let mut world = world(ShardConfig { in_sync_below: 128, ..array(Level::Raid1, 2) });
    world.model.tolerated.push(RequestError::NoSpace);
    world.members[1].full = 64..72;
    world.submit(WRITE, 64, 8);
    grant(&mut world, 4, 1);
    world.quiesce();
    world.members[1].full = 0..0;
    // The resync has ended, according to a metadata manager without the event of the write.
    world.control(Control::InSyncBelow { position: u64::MAX, reports: 0 });
    assert_eq!((readers(&mut world, 64), readers(&mut world, 200)), (vec![0], vec![0]));
    assert_eq!(readers(&mut world, 32), [0, 1]);
    // Lower is always heeded.
    world.control(Control::InSyncBelow { position: 32, reports: 0 });
    assert_eq!(readers(&mut world, 32), [0]);
    assert_eq!(world.run(HostOp::Resync, 64, 8), Ok(()));
    world.control(Control::InSyncBelow { position: u64::MAX, reports: 1 });
    assert_eq!(readers(&mut world, 64), [0, 1], "both serve again");
    check(&mut world);
}

/// Makes everything but the data (parity levels) or the first copy (mirrors) wrong.
fn spoil(world: &mut World, members: &[usize]) {
    members.iter().for_each(|at| world.members[*at].data_mut().fill(0x77));
}

#[test]
fn resync_makes_copies_equal_without_intents() {
    for (level, others) in [(Level::Raid1, [1, 2, 3].as_slice()), (Level::Raid10, &[1, 3])] {
        let mut world = world(ShardConfig { in_sync_below: 0, ..array(level, 4) });
        spoil(&mut world, others);
        let size = world.geometry().array_sectors();
        assert_eq!(world.run(HostOp::Read, 0, 64), Ok(()), "from the first copy");
        for at in (0..size).step_by(128) {
            assert_eq!(world.run(HostOp::Resync, at, 128.min(size - at)), Ok(()));
        }
        assert!(intents(&world).is_empty());
        check(&mut world);
    }
}

#[test]
fn resync_of_a_mirror_reads_around_a_bad_block_and_repairs_it() {
    let mut world = world(ShardConfig { in_sync_below: 0, ..array(Level::Raid1, 3) });
    spoil(&mut world, &[2]);
    world.members[0].bad.extend(40..48);
    assert_eq!(world.run(HostOp::Resync, 0, 256), Ok(()));
    assert!(world.members[0].bad.is_empty());
    check(&mut world);
}

#[test]
fn resync_of_a_mirror_reports_unreadable_blocks_and_syncs_the_rest() {
    let mut world = world(ShardConfig { in_sync_below: 0, ..array(Level::Raid1, 2) });
    world.model.tolerated.push(RequestError::Io);
    spoil(&mut world, &[1]);
    world.members.iter_mut().for_each(|member| member.bad.extend(40..48));
    assert_eq!(world.run(HostOp::Resync, 0, 256), Err(RequestError::Io));
    let same = |at: usize| {
        let range = at * 512..(at + 8) * 512;
        world.members[0].data()[range.clone()] == world.members[1].data()[range]
    };
    assert!((0..256).step_by(8).all(|at| same(at) == (at != 40)));
}

#[test]
fn resync_makes_parity_true() {
    for (level, members) in [(Level::Raid5, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut world = world(ShardConfig { intents: None, ..array(level, members) });
        let size = world.geometry().array_sectors();
        for at in (0..size).step_by(64) {
            world.run(WRITE, at, 64.min(size - at)).expect("healthy");
        }
        let parity = match world.geometry().clone().kind() {
            md::Kind::Parity(parity) => parity.clone(),
            _ => unreachable!("a parity level"),
        };
        for stripe in 0..parity.stripes() {
            let row = parity.row(md::StripeNo(stripe));
            let from = stripe as usize * 16 * 512;
            for member in [Some(row.p), row.q].into_iter().flatten() {
                world.members[member.index()].data_mut()[from..from + 16 * 512].fill(0x77);
            }
        }
        world.log.clear();
        assert_eq!(world.run(HostOp::Resync, 0, 100), Ok(()));
        assert_eq!(world.run(HostOp::Resync, 100, 156), Ok(()));
        check(&mut world);
        world.model.tolerated.push(RequestError::Invalid);
        assert_eq!(world.run(HostOp::Resync, 0, 300), Err(RequestError::Invalid), "outside");
    }
}

/// Parity that agrees is not written: a resync after a crash reads on.
#[test]
fn a_resync_writes_only_parity_that_differs() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut world = world(ShardConfig { intents: None, ..array(level, members) });
        world.log.clear();
        assert_eq!(world.run(HostOp::Resync, 0, 256), Ok(()));
        let writes =
            |world: &World| world.log.iter().filter(|logged| logged.what != What::Read).count();
        assert_eq!(writes(&world), 0, "{level}: zeroes agree");
        let parity = match world.geometry().clone().kind() {
            md::Kind::Parity(parity) => parity.clone(),
            _ => unreachable!("a parity level"),
        };
        let rows = parity.stripes() as usize;
        assert!(rows >= 16, "{rows}");
        // P of the last row only: it is written alone, and what follows it need not be.
        let p = parity.row(md::StripeNo(rows as u64 - 1)).p.index();
        world.members[p].data_mut()[(rows - 1) * 16 * 512 + 100] ^= 1;
        world.log.clear();
        assert_eq!(world.run(HostOp::Resync, 0, 256), Ok(()));
        let parities = 1 + usize::from(level == Level::Raid6);
        assert_eq!(writes(&world), parities, "{level}");
        check(&mut world);
        // All of P: after one that differs, those that follow are not read first.
        for stripe in 0..rows {
            let p = parity.row(md::StripeNo(stripe as u64)).p.index();
            world.members[p].data_mut()[stripe * 16 * 512..][..512].fill(0x77);
        }
        world.log.clear();
        assert_eq!(world.run(HostOp::Resync, 0, 256), Ok(()));
        assert_eq!(writes(&world), rows * parities, "{level}");
        check(&mut world);
    }
}

#[test]
fn resync_without_all_data_is_refused_and_with_less_parity_is_done() {
    // Row 0 of left-symmetric RAID 6 on five: Q on member 0, data on 1 to 3, P on 4.
    for (lost, wrong, result) in
        [(1, None, Err(RequestError::Io)), (4, Some(0), Ok(())), (0, Some(4), Ok(()))]
    {
        let missing = MemberSet::one(lost);
        let out_of_sync = std::iter::once(0..256).collect();
        let config = ShardConfig { missing, intents: None, out_of_sync, ..array(Level::Raid6, 5) };
        let mut world = world(config);
        world.model.tolerated.push(RequestError::Io);
        if let Some(wrong) = wrong {
            world.members[wrong as usize].data_mut()[..16 * 512].fill(0x77);
        }
        assert_eq!(world.run(HostOp::Resync, 0, 16), result, "without member {lost}");
        check(&mut world);
    }
}

#[test]
fn resync_of_parity_reports_an_unreadable_block_and_syncs_the_rest() {
    let out_of_sync = std::iter::once(0..256).collect();
    let config = ShardConfig { intents: None, out_of_sync, ..array(Level::Raid5, 3) };
    let mut world = world(config);
    world.model.tolerated.push(RequestError::Io);
    // Row 0: data on members 0 and 1, P on member 2.
    world.members[2].data_mut()[..16 * 512].fill(0x77);
    world.members[0].bad.insert(3);
    assert_eq!(world.run(HostOp::Resync, 0, 16), Err(RequestError::Io));
    assert!(world.members[2].data()[..8 * 512].iter().all(|byte| *byte == 0x77));
    assert!(world.members[2].data()[8 * 512..16 * 512].iter().all(|byte| *byte == 0));
}

#[test]
fn a_resync_and_writes_to_the_same_rows_take_turns() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid10] {
        let mut world = world(ShardConfig { intents: None, ..array(level, 4) });
        world.delays = Delays::SPREAD;
        for round in 0..40 {
            world.submit(WRITE, round * 5 % 200, 17);
            world.submit(HostOp::Resync, round * 8 % 192, 64);
            world.submit(HostOp::Read, round * 3 % 200, 9);
            world.step();
        }
        world.quiesce();
        check(&mut world);
    }
}

#[test]
fn a_member_that_fails_during_a_resync_drops_out() {
    for level in [Level::Raid1, Level::Raid6] {
        let mut world = world(ShardConfig { intents: None, ..array(level, 4) });
        world.members[3].write_error = Some((0, MemberError::Timeout));
        // A copy, or P of the first row: what agrees is not written.
        world.members[3].data_mut()[..16 * 512].fill(0x77);
        assert_eq!(world.run(HostOp::Resync, 0, 256), Ok(()));
        assert!(world.is_failed(3));
        check(&mut world);
        world.control(Control::FailMember(MemberIdx(2)));
        world.quiesce();
    }
}
