//! Linear, RAID 0, 1 and 10, and behaviour common to all levels, one at a time.

use engine::{
    ConfigError, ControlEvent, HostOp, MAX_REQUEST_SECTORS, MemberError, MemberSet, RequestError,
    Shard, ShardConfig,
};
use md::{Layout, Level, MemberIdx, Raid0Layout, Raid5Layout, Raid10Layout};

use raidlab_sim::member::Counts;
use raidlab_sim::world::{self, Delays, What, World};

const WRITE: HostOp = HostOp::Write { fua: false };

fn raid1(members: usize, sectors: u64) -> ShardConfig {
    let sizes = vec![sectors; members];
    ShardConfig::new(world::geometry(Level::Raid1, Layout::None, 0, &sizes))
}

fn raid10(layout: Raid10Layout, members: usize, chunk: u64, rows: u64) -> ShardConfig {
    let sizes = vec![chunk * rows; members];
    ShardConfig::new(world::geometry(Level::Raid10, Layout::Raid10(layout), chunk, &sizes))
}

fn raid0(members: usize, chunk: u64, rows: u64) -> ShardConfig {
    let (layout, sizes) = (Layout::Raid0(Raid0Layout::Original), vec![chunk * rows; members]);
    ShardConfig::new(world::geometry(Level::Raid0, layout, chunk, &sizes))
}

fn world(config: ShardConfig) -> World {
    let mut world = World::new(config, 11);
    world.delays = Delays::EVEN;
    world.keep_log = true;
    world
}

fn fill(world: &mut World) {
    let size = world.geometry().array_sectors();
    for at in (0..size).step_by(1024) {
        world.run(WRITE, at, 1024.min(size - at)).expect("a healthy array takes writes");
    }
    world.quiesce();
    forget(world);
}

fn forget(world: &mut World) {
    world.log.clear();
    world.events.clear();
    world.members.iter_mut().for_each(|member| member.counts = Counts::default());
}

fn reads(world: &World) -> Vec<u64> {
    world.members.iter().map(|member| member.counts.reads).collect()
}

fn check(world: &mut World) {
    let failed = world.shard.status().failed;
    world.model.check_members(&world.geometry().clone(), &world.members, &|m| failed.contains(m));
}

#[test]
fn a_sequential_stream_stays_on_one_mirror() {
    let mut world = world(raid1(2, 16384));
    for at in (0..16384).step_by(64) {
        // With more in flight an idle member reads on, where a jump costs as little as here.
        while world.outstanding() >= 2 {
            world.step();
        }
        world.submit(HostOp::Read, at, 64);
    }
    world.quiesce();
    let reads = reads(&world);
    // The first request is not known to be one of a stream yet.
    assert!(reads.iter().any(|count| *count <= 1), "{reads:?}");
}

#[test]
fn random_reads_go_to_the_least_busy_mirror() {
    let mut world = world(raid1(3, 16384));
    for number in 0..300u64 {
        while world.outstanding() >= 12 {
            world.step();
        }
        world.submit(HostOp::Read, number * 7919 % 16000, 8);
    }
    world.quiesce();
    for count in reads(&world) {
        assert!((80..=120).contains(&count), "{:?}", reads(&world));
    }
}

#[test]
fn a_far_stream_reads_from_all_members_in_their_first_half() {
    let mut world = world(raid10(Raid10Layout::far(2), 4, 128, 32));
    let size = world.geometry().array_sectors();
    for at in (0..size).step_by(128) {
        while world.outstanding() >= 8 {
            world.step();
        }
        world.submit(HostOp::Read, at, 128);
    }
    world.quiesce();
    let counts = reads(&world);
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    assert!(world.log.iter().all(|logged| logged.sectors.end <= 16 * 128));
}

#[test]
fn the_chunks_of_a_large_write_are_joined_on_every_member() {
    for layout in [Raid10Layout::far(2), Raid10Layout::near(2), Raid10Layout::offset(2)] {
        let mut world = world(raid10(layout, 4, 16, 64));
        world.run(WRITE, 0, 16 * 32).expect("healthy");
        let most = if layout.far > 1 && !layout.offset { 2 } else { 1 };
        for member in 0..4 {
            let writes = world.log.iter().filter(|logged| logged.member == member).count();
            assert!(writes <= most + 1, "{layout}: {writes} writes to member {member}");
        }
        check(&mut world);
    }
}

#[test]
fn a_mirrors_bad_block_is_served_by_the_other_and_written_back() {
    let mut world = world(raid1(2, 4096));
    fill(&mut world);
    // Both mirrors are bad, at different granules.
    world.members[0].bad.extend([100]);
    world.members[1].bad.extend([110]);
    world.run(HostOp::Read, 0, 256).expect("no granule is lost");
    world.quiesce();
    world.run(HostOp::Read, 0, 256).expect("no granule is lost");
    for member in [0, 1] {
        world.members[member].bad.extend([100 + 8 * member as u64]);
    }
    forget(&mut world);
    world.run(HostOp::Read, 0, 256).expect("no granule is lost");
    world.quiesce();
    for event in &world.events {
        let ControlEvent::Corrected { member, sector, sectors } = event else {
            panic!("{event:?}: bad blocks fail no member");
        };
        let expected = if member.0 == 0 { 96 } else { 104 };
        assert_eq!((sector.0, *sectors), (expected, 8));
    }
    assert!(!world.events.is_empty());
    check(&mut world);
}

#[test]
fn a_bad_block_on_every_mirror_fails_the_read_and_no_member() {
    let mut world = world(raid1(2, 4096));
    fill(&mut world);
    world.members[0].bad.extend([100]);
    world.members[1].bad.extend([101]);
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(HostOp::Read, 0, 256), Err(RequestError::Io));
    world.run(HostOp::Read, 0, 96).expect("the rest is readable");
    assert!(world.shard.status().failed.is_empty());
}

#[test]
fn a_write_error_drops_a_mirror_but_not_the_last() {
    let mut world = world(raid1(2, 4096));
    fill(&mut world);
    world.members[0].write_error = Some((0, MemberError::Timeout));
    world.run(WRITE, 0, 64).expect("the other has it");
    assert!(world.is_failed(0));
    world.members[1].write_error = Some((0, MemberError::Timeout));
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(WRITE, 0, 64), Err(RequestError::Io));
    assert!(!world.is_failed(1));
    world.members[1].gone_at = Some(1);
    assert_eq!(world.run(HostOp::Read, 0, 64), Err(RequestError::Io));
    assert_eq!(world.shard.status().epoch, 1);
}

#[test]
fn writes_are_held_back_until_the_failure_is_recorded() {
    let mut world = world(raid1(2, 4096));
    world.delays.record = (5_000_000, 5_000_000);
    world.members[0].gone_at = Some(world.now);
    let start = world.now;
    let write = world.submit(WRITE, 0, 8);
    while world.events.is_empty() {
        world.step();
    }
    let (other, flush) = (world.submit(WRITE, 64, 8), world.submit(HostOp::Flush, 0, 0));
    let read = world.submit(HostOp::Read, 64, 8);
    while world.result(write).is_none() {
        assert!(world.step());
        let held = world.result(other).is_none() && world.result(flush).is_none();
        assert!(held || world.now >= start + 5_000_000);
    }
    assert!(world.now >= start + 5_000_000 && world.result(read).is_some());
    world.quiesce();
    assert!(world.result(flush) == Some(Ok(())) && world.result(other) == Some(Ok(())));
}

#[test]
fn a_full_backing_store_fails_the_request_and_no_member() {
    let mut world = world(raid1(2, 4096));
    world.members[1].full = 8..16;
    world.model.tolerated.push(RequestError::NoSpace);
    assert_eq!(world.run(WRITE, 0, 16), Err(RequestError::NoSpace));
    world.run(WRITE, 16, 16).expect("there is space");
    assert!(world.events.is_empty());
}

#[test]
fn flushes_go_to_the_members_that_were_written() {
    let mut world = world(raid0(4, 16, 64));
    world.run(HostOp::Flush, 0, 0).expect("nothing to do");
    assert!(world.log.is_empty());
    world.run(WRITE, 0, 32).expect("healthy");
    let first = world.submit(HostOp::Flush, 0, 0);
    // During the round: they wait for the next one, together.
    let later: Vec<u64> = (0..5).map(|_| world.submit(HostOp::Flush, 0, 0)).collect();
    world.quiesce();
    assert_eq!(world.result(first), Some(Ok(())));
    assert!(later.iter().all(|tag| world.result(*tag) == Some(Ok(()))));
    let flushed = |world: &World| -> Vec<u16> {
        world.log.iter().filter(|l| l.what == What::Flush).map(|l| l.member).collect()
    };
    assert_eq!(flushed(&world), [0, 1], "a second round finds nothing written");
    world.log.clear();
    world.run(HostOp::Write { fua: true }, 32, 16).expect("healthy");
    assert!(world.log.iter().all(|logged| logged.what == What::Write { fua: true }));
}

#[test]
fn a_member_that_goes_during_a_flush_is_dropped() {
    let mut world = world(raid1(2, 4096));
    world.run(WRITE, 0, 8).expect("healthy");
    world.members[1].gone_at = Some(world.now);
    world.run(HostOp::Flush, 0, 0).expect("the other is durable");
    assert!(world.is_failed(1));
    world.members[0].gone_at = Some(world.now);
    world.members[0].unflushed.clear();
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(WRITE, 0, 8), Err(RequestError::Io));
    assert!(!world.is_failed(0));
}

#[test]
fn room_counts_down_and_comes_back() {
    let mut world = world(ShardConfig { max_requests: 5, ..raid0(2, 16, 64) });
    for left in (0..5).rev() {
        world.submit(WRITE, 0, 8);
        assert_eq!(world.shard.room(), left);
    }
    world.quiesce();
    assert_eq!(world.shard.room(), 5);
}

#[test]
#[should_panic(expected = "more requests than `room` allows")]
fn more_than_room_is_a_bug_of_the_caller() {
    let mut world = world(ShardConfig { max_requests: 1, ..raid0(2, 16, 64) });
    world.submit(WRITE, 0, 8);
    world.submit(WRITE, 0, 8);
}

#[test]
fn requests_outside_or_misaligned_are_invalid() {
    let raid5 = world::geometry(
        Level::Raid5,
        Layout::Raid5(Raid5Layout::LeftSymmetric),
        16384,
        &[32768; 3],
    );
    for config in [raid1(2, 65536), ShardConfig::new(raid5)] {
        let mut world = world(ShardConfig { logical_block: 4096, ..config });
        world.model.tolerated.push(RequestError::Invalid);
        let size = world.geometry().array_sectors();
        let read = HostOp::Read;
        for (op, at, sectors) in [
            (read, size, 8),
            (read, size - 8, 16),
            (WRITE, 4, 8),
            (WRITE, 0, 4),
            (HostOp::Discard, u64::MAX - 7, 8),
            (HostOp::WriteZeroes, 0, u64::MAX - 7),
            (HostOp::WriteZeroes, 0, MAX_REQUEST_SECTORS + 8),
        ] {
            let result = world.run(op, at, sectors);
            assert_eq!(result, Err(RequestError::Invalid), "{op:?} {at} {sectors}");
        }
        assert!(world.log.is_empty());
        world.run(WRITE, 0, 0).expect("nothing is written");
        world.run(WRITE, 0, MAX_REQUEST_SECTORS).expect("the longest");
        world.run(read, size - 8, 8).expect("the last block");
        world.quiesce();
    }
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let refused = |config| Shard::new(config).err().expect("refused");
    let base = raid1(2, 4096);
    let both: MemberSet = MemberSet::range(0, 2);
    let error = refused(ShardConfig { missing: both, ..base.clone() });
    assert_eq!(error, ConfigError::TooFewMembers { missing: 2 });
    let error = refused(ShardConfig { logical_block: 520, ..base });
    assert_eq!(error, ConfigError::LogicalBlock { given: 520 });
    let error = refused(raid1(256, 4096));
    assert_eq!(error, ConfigError::TooManyMembers { given: 256 });
    let layout = Layout::Raid5(Raid5Layout::LeftSymmetric);
    let raid5 = ShardConfig::new(world::geometry(Level::Raid5, layout, 128, &[1280; 3]));
    let least = ShardConfig::least_stripe_cache_bytes(&raid5.geometry);
    let error = refused(ShardConfig { stripe_cache_bytes: least - 1, ..raid5 });
    assert_eq!(error, ConfigError::StripeCacheTooSmall { given: least - 1, least });
}

#[test]
fn without_redundancy_an_error_is_the_hosts() {
    let mut world = world(raid0(3, 16, 64));
    fill(&mut world);
    world.members[1].bad.extend([3]);
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(HostOp::Read, 0, 48), Err(RequestError::Io));
    world.run(HostOp::Read, 0, 16).expect("another member");
    world.members[1].write_error = Some((0, MemberError::Gone));
    assert_eq!(world.run(WRITE, 16, 8), Err(RequestError::Io));
    assert!(world.shard.status().failed.is_empty() && world.events.is_empty());
}

#[test]
fn the_largest_arrays_are_served() {
    let raid6 = Layout::default_for(Level::Raid6);
    for (level, layout) in [(Level::Raid6, raid6), (Level::Raid1, Layout::None)] {
        let geometry = world::geometry(level, layout, 8, &[16; 255]);
        let missing = [0, 254].into_iter().collect();
        let mut world = world(ShardConfig { missing, ..ShardConfig::new(geometry) });
        let size = world.geometry().array_sectors();
        world.run(WRITE, 0, size).expect("two are missing");
        world.run(WRITE, size - 12, 9).expect("two are missing");
        world.run(HostOp::Read, 0, size).expect("two are missing");
        world.quiesce();
        check(&mut world);
        assert_eq!(world.shard.geometry().members(), 255);
        assert!(!world.is_failed(MemberIdx(1).0));
    }
}
