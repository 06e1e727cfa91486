//! RAID 4, 5 and 6, one behaviour at a time.

use std::ops::Range;

use engine::{
    Control, ControlEvent, HostOp, MemberError, MemberOp, MemberSet, RequestError, ShardConfig,
};
use md::{Layout, Level, MemberIdx, Raid5Layout, Raid6Layout};

use raidlab_sim::member::Counts;
use raidlab_sim::world::{self, Delays, Logged, What, World, io_error};

const WRITE: HostOp = HostOp::Write { fua: false };

/// RAID 5 over `members`, left-symmetric: row 0 has its data on members 0, 1, 2... and P on the
/// last.
fn raid5(members: usize, chunk: u64, rows: u64) -> ShardConfig {
    let layout = Layout::Raid5(Raid5Layout::LeftSymmetric);
    let sizes = vec![rows * chunk; members];
    ShardConfig::new(world::geometry(Level::Raid5, layout, chunk, &sizes))
}

/// RAID 6 over `members` with P and Q always on the last two.
fn raid6(members: usize, chunk: u64, rows: u64) -> ShardConfig {
    let layout = Layout::Raid6(Raid6Layout::ParityLast);
    let sizes = vec![rows * chunk; members];
    ShardConfig::new(world::geometry(Level::Raid6, layout, chunk, &sizes))
}

fn world(config: ShardConfig) -> World {
    let mut world = World::new(config, 7);
    world.delays = Delays::EVEN;
    world.keep_log = true;
    world
}

fn total(world: &World) -> Counts {
    let mut sum = Counts::default();
    for counts in world.members.iter().map(|member| member.counts) {
        sum.reads += counts.reads;
        sum.read_sectors += counts.read_sectors;
        sum.writes += counts.writes;
        sum.write_sectors += counts.write_sectors;
        sum.flushes += counts.flushes;
        sum.discards += counts.discards;
        sum.zeroes += counts.zeroes;
    }
    sum
}

fn forget(world: &mut World) {
    world.log.clear();
    world.events.clear();
    world.members.iter_mut().for_each(|member| member.counts = Counts::default());
}

/// Fills the array with data, in large requests.
fn fill(world: &mut World) {
    let size = world.geometry().array_sectors();
    let step = world.geometry().stripe_sectors();
    for at in (0..size).step_by(step as usize) {
        world.run(WRITE, at, step.min(size - at)).expect("a healthy array takes writes");
    }
    world.quiesce();
    forget(world);
}

/// Keeps `depth` requests of a sequential stream in flight.
fn stream(world: &mut World, op: HostOp, start: u64, sectors: u64, count: u64, depth: usize) {
    for number in 0..count {
        while world.outstanding() >= depth {
            assert!(world.step());
        }
        world.submit(op, start + number * sectors, sectors);
    }
    world.quiesce();
}

fn check(world: &mut World) {
    let failed = world.shard.status().failed;
    world.model.check_members(&world.geometry().clone(), &world.members, &|m| failed.contains(m));
}

fn io(world: &World, what: What) -> Vec<&Logged> {
    world.log.iter().filter(|logged| logged.what == what).collect()
}

fn corrected(world: &World) -> Vec<(u16, Range<u64>)> {
    let events = world.events.iter().filter_map(|event| match event {
        ControlEvent::Corrected { member, sector, sectors } => {
            Some((member.0, sector.0..sector.0 + sectors))
        }
        _ => None,
    });
    events.collect()
}

#[test]
fn a_full_stripe_write_reads_nothing() {
    for config in [raid5(6, 128, 8), raid6(6, 128, 8), raid5(3, 1024, 4)] {
        let mut world = world(config);
        let width = world.geometry().stripe_sectors();
        world.run(WRITE, width, width).expect("healthy");
        world.run(WRITE, 3 * width, width).expect("healthy");
        world.quiesce();
        assert_eq!(total(&world).reads, 0);
        let members = world.geometry().members() as u64;
        let chunk = world.geometry().chunk_sectors();
        assert_eq!(total(&world).write_sectors, 2 * members * chunk);
        check(&mut world);
    }
}

#[test]
fn aligned_sequential_writes_at_depth_32_cause_no_reads() {
    // However slow the members are.
    let slow = Delays { io: (4_000_000, 9_000_000), ..Delays::EVEN };
    let fast = Delays { io: (4_000, 9_000), ..Delays::EVEN };
    for delays in [Delays::EVEN, Delays::SPREAD, slow, fast] {
        let mut world = world(raid5(6, 128, 220));
        world.delays = delays;
        world.keep_log = false;
        // The first write is not known to belong to a stream: its row is not written as a whole.
        stream(&mut world, WRITE, 0, 128, 1000, 32);
        let first_row = total(&world).reads;
        assert!(first_row <= 3, "{first_row} reads for the first row");
        // Data and one parity in five, nothing else.
        let written = total(&world).write_sectors;
        assert!(written <= 1000 * 128 * 6 / 5 + 128, "{written} sectors");
        check(&mut world);
    }
}

#[test]
fn waiting_for_neighbours_is_bounded() {
    // No other operation is in flight: the clock alone.
    let mut world = world(raid5(6, 128, 8));
    world.run(WRITE, 0, 8).expect("healthy");
    world.quiesce();
    world.log.clear();
    world.queue(WRITE, 8, 8);
    world.queue(WRITE, 16, 8);
    world.hand_over();
    let submitted = world.now;
    assert!(world.log.is_empty(), "both wait");
    world.quiesce();
    let waited = world.log[0].issued - submitted;
    assert!((1..=50_000).contains(&waited), "{waited} ns");
    // A write is at work: until it ends, and the clock.
    world.log.clear();
    let first = world.submit(WRITE, 2560, 8);
    world.submit(WRITE, 2568, 8);
    while world.result(first).is_none() {
        assert!(world.step());
    }
    let ended = world.now;
    world.quiesce();
    let second = world.log.iter().filter(|logged| logged.sectors.start % 128 == 8);
    let issued = second.map(|logged| logged.issued).min().expect("it was written");
    assert!(issued <= ended + 50_000, "{} ns", issued - ended);
    check(&mut world);
}

#[test]
fn only_a_stream_with_more_than_one_write_outstanding_waits() {
    let mut world = world(raid5(6, 128, 8));
    for number in 0..20 {
        // A stream, but alone.
        world.submit(WRITE, number * 8, 8);
        let issued = world.log.last().expect("something was issued").issued;
        assert_eq!(issued, world.now, "write {number} does not wait");
        let reads_waiting = world.log.len();
        assert!(reads_waiting > 0);
        world.quiesce();
        world.log.clear();
    }
    // Many, but no stream.
    for number in 0..16u64 {
        world.submit(WRITE, 8 + number * 13 % 16 * 40, 8);
        let issued = world.log.last().expect("something was issued").issued;
        assert_eq!(issued, world.now, "write {number} does not wait");
        world.log.clear();
    }
    world.quiesce();
    check(&mut world);
}

#[test]
fn a_write_takes_the_way_with_the_fewest_reads() {
    for (config, parities) in [(raid5(6, 8, 8), 1), (raid6(8, 8, 8), 2), (raid5(3, 8, 8), 1)] {
        let mut world = world(config);
        fill(&mut world);
        let data = world.geometry().data_members() as u64;
        for chunks in 1..=data {
            forget(&mut world);
            world.run(WRITE, 2 * data * 8, chunks * 8).expect("healthy");
            world.quiesce();
            let expected = (chunks + parities).min(data - chunks);
            assert_eq!(total(&world).reads, expected, "{chunks} of {data} chunks");
        }
        check(&mut world);
    }
}

#[test]
fn sequential_small_writes_at_depth_1_find_parity_in_the_cache() {
    for chunk in [128, 1024] {
        let mut world = world(raid5(6, chunk, 4));
        fill(&mut world);
        let writes = 2 * 5 * chunk / 8;
        stream(&mut world, WRITE, 0, 8, writes, 1);
        let reads = total(&world).reads;
        assert!(reads * 10 <= writes * 13, "chunk {chunk}: {reads} reads for {writes} writes");
        check(&mut world);
    }
}

#[test]
fn a_bad_block_is_reconstructed_served_and_written_back_alone() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    world.members[1].bad.extend([43]);
    world.run(HostOp::Read, 0, 384).expect("one bad block is no matter");
    world.quiesce();
    assert_eq!(corrected(&world), [(1, 40..48)]);
    let writes = io(&world, What::Write { fua: false });
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].member, writes[0].sectors.clone()), (1, 40..48));
    assert!(world.members[1].bad.is_empty());
    forget(&mut world);
    world.run(HostOp::Read, 0, 384).expect("repaired");
    assert_eq!(total(&world).reads, 3);
    check(&mut world);
}

#[test]
fn a_bad_block_is_written_back_alone_in_a_degraded_array_too() {
    // The lost block's row goes through one long operation, whose repair must not be as long.
    let mut world = world(ShardConfig { missing: MemberSet::one(0), ..raid6(6, 128, 4) });
    fill(&mut world);
    world.members[2].bad.extend([16]);
    world.run(HostOp::Read, 0, 512).expect("one lost, one bad");
    world.quiesce();
    assert_eq!(corrected(&world), [(2, 16..24)]);
    check(&mut world);
}

#[test]
fn ranges_that_a_direct_read_missed_are_read_again_beside_degraded_pieces() {
    // One request: row 0 by recovery, row 1 directly, with a bad block there.
    let mut world = world(ShardConfig { missing: MemberSet::one(0), ..raid6(6, 8, 4) });
    fill(&mut world);
    world.members[1].bad.extend([8]);
    // Row 0: all four blocks; row 1 begins with the lost block, so read rows 0 and the end of it.
    world.run(HostOp::Read, 8, 24 + 8 + 8).expect("served");
    world.members[1].bad.extend([8]);
    world.members[2].bad.extend([0]);
    for at in 0..64 {
        world.run(HostOp::Read, at, 64 - at).expect("served");
        world.members[1].bad.extend([8]);
        world.members[2].flaky.extend([0, 16]);
    }
    world.quiesce();
    check(&mut world);
}

#[test]
fn bad_blocks_of_different_granules_of_one_row_are_all_served() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    // One operation would meet three bad members.
    for (member, sector) in [(0, 0), (1, 8), (2, 16), (3, 24)] {
        world.members[member].bad.extend([sector]);
    }
    world.run(HostOp::Read, 0, 384).expect("one per granule");
    world.quiesce();
    let mut granules = corrected(&world);
    granules.sort_by_key(|(member, _)| *member);
    assert_eq!(granules, [(0, 0..8), (1, 8..16), (2, 16..24)]);
    // And for a write that needs them.
    for (member, sector) in [(1, 8), (2, 16), (3, 24)] {
        world.members[member].bad.extend([sector]);
    }
    world.run(WRITE, 3, 60).expect("one per granule");
    world.quiesce();
    check(&mut world);
}

#[test]
fn a_request_of_one_granules_length_over_two_bad_ones_is_served() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    world.members[0].bad.extend([7]);
    world.members[1].bad.extend([8]);
    world.run(WRITE, 4, 8).expect("each granule has one bad block");
    world.run(HostOp::Read, 4, 8).expect("written");
    world.members[0].bad.extend([7]);
    world.members[1].bad.extend([8]);
    world.run(HostOp::Read, 4, 8).expect("each granule has one bad block");
    check(&mut world);
}

#[test]
fn too_many_bad_blocks_fail_only_requests_that_read_them() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    world.members[0].bad.extend([0]);
    world.members[1].bad.extend([0]);
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(HostOp::Read, 0, 8), Err(RequestError::Io));
    assert_eq!(world.run(HostOp::Read, 64, 128), Err(RequestError::Io));
    world.model.tolerated.clear();
    world.run(HostOp::Read, 8, 120).expect("other granules are whole");
    world.run(HostOp::Read, 256, 8).expect("the third block is readable");
    assert!(world.shard.status().failed.is_empty(), "bad blocks fail no member");
    // Degraded: neighbours in one operation do not share the loss.
    let degraded = ShardConfig { missing: MemberSet::one(0), ..raid5(4, 128, 4) };
    let mut world = self::world(degraded);
    fill(&mut world);
    world.members[1].bad.extend([0]);
    world.model.tolerated.push(RequestError::Io);
    let bad = world.queue(HostOp::Read, 120, 16);
    let good = world.queue(HostOp::Read, 250, 16);
    world.hand_over();
    world.quiesce();
    assert_eq!(world.result(bad), Some(Err(RequestError::Io)));
    assert_eq!(world.result(good), Some(Ok(())));
}

#[test]
fn lost_data_is_recovered_from_q_where_p_is_unreadable() {
    // Member 0 is lost, P (member 4) has a bad block: writing block 1 must recover block 0 from Q.
    let mut world = world(ShardConfig { missing: MemberSet::one(0), ..raid6(6, 8, 4) });
    fill(&mut world);
    world.members[4].bad.extend([0]);
    world.run(WRITE, 8, 8).expect("Q is there");
    world.quiesce();
    check(&mut world);
    world.run(HostOp::Read, 0, 32).expect("served");
}

#[test]
fn a_write_error_drops_the_member_and_is_acknowledged_when_recorded() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    world.members[2].write_error = Some((0, MemberError::Medium));
    let tag = world.submit(WRITE, 0, 384);
    while world.result(tag).is_none() {
        assert!(world.step());
    }
    let error = io_error(MemberError::Medium, MemberOp::Write, &(0..128));
    let failed = ControlEvent::MemberFailed { member: MemberIdx(2), error: Some(error), epoch: 1 };
    assert_eq!(world.events, [failed]);
    assert!(world.is_failed(2));
    // Without a further failure nothing is held back.
    world.run(WRITE, 100, 500).expect("degraded");
    world.run(HostOp::Read, 0, 900).expect("degraded");
    world.quiesce();
    check(&mut world);
}

#[test]
fn the_last_working_member_stays_and_the_request_fails() {
    let mut world = world(ShardConfig { missing: MemberSet::one(0), ..raid5(4, 128, 4) });
    fill(&mut world);
    world.members[2].write_error = Some((0, MemberError::Medium));
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(WRITE, 0, 384), Err(RequestError::Io));
    assert!(!world.is_failed(2));
    world.members[2].write_error = None;
    world.run(WRITE, 0, 384).expect("it works again");
    check(&mut world);
}

#[test]
fn a_full_member_fails_the_request_and_no_member() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    world.members[1].full = 0..128;
    world.model.tolerated.push(RequestError::NoSpace);
    assert_eq!(world.run(WRITE, 0, 384), Err(RequestError::NoSpace));
    assert!(world.shard.status().failed.is_empty() && world.events.is_empty());
    world.members[1].full = 0..0;
    world.run(WRITE, 0, 384).expect("there is space again");
    check(&mut world);
}

#[test]
fn degraded_sequential_reads_read_no_block_twice() {
    for chunk in [8, 128, 1024] {
        let config = raid5(6, chunk, 4 * 1024 / chunk);
        let mut world = world(ShardConfig { missing: MemberSet::one(2), ..config });
        fill(&mut world);
        let mut at = 0;
        let size = world.geometry().array_sectors();
        while at < size {
            forget(&mut world);
            let sectors = 2048.min(size - at);
            world.run(HostOp::Read, at, sectors).expect("degraded");
            let reads = io(&world, What::Read);
            for (number, read) in reads.iter().enumerate() {
                let again = reads[number + 1..].iter().any(|other| {
                    other.member == read.member
                        && other.sectors.start < read.sectors.end
                        && read.sectors.start < other.sectors.end
                });
                assert!(!again, "{read:?} is read twice (chunk {chunk})");
            }
            at += sectors;
        }
    }
}

#[test]
fn a_lost_member_fails_no_write_and_no_read() {
    let mut world = world(raid6(6, 128, 16));
    fill(&mut world);
    world.members[3].gone_at = Some(world.now + 300_000);
    world.members[0].gone_at = Some(world.now + 900_000);
    stream(&mut world, WRITE, 0, 96, 80, 8);
    stream(&mut world, HostOp::Read, 0, 96, 80, 8);
    assert!(world.is_failed(3) && world.is_failed(0));
    check(&mut world);
}

#[test]
fn whole_rows_of_zeroes_carry_no_data() {
    let config = ShardConfig { discard_zeroes: true, ..raid5(4, 1024, 4) };
    let mut world = world(config);
    fill(&mut world);
    world.run(HostOp::WriteZeroes, 3072, 2 * 3072).expect("healthy");
    assert_eq!((total(&world).reads, total(&world).writes, total(&world).zeroes), (0, 0, 4));
    world.run(HostOp::Discard, 0, 3072 + 5).expect("healthy");
    assert_eq!((total(&world).reads, total(&world).discards), (0, 4), "partial rows are left");
    world.run(HostOp::WriteZeroes, 9216, 500).expect("healthy");
    check(&mut world);
    // Where zeroes are not guaranteed, discards do nothing.
    let mut world = self::world(raid5(4, 128, 4));
    world.run(HostOp::Discard, 0, 384 * 4).expect("succeeds");
    assert!(world.log.is_empty());
}

/// Beside them no other operation touches these rows: the world asserts that of every operation.
#[test]
fn a_discard_of_rows_waits_for_work_on_them_and_holds_back_what_comes_later() {
    for config in [raid5(4, 128, 32), raid6(6, 128, 32)] {
        let mut world = world(ShardConfig { discard_zeroes: true, ..config });
        fill(&mut world);
        let row = world.geometry().stripe_sectors();
        for at in [0, 7, 13] {
            world.submit(WRITE, at * row + 8, 16);
        }
        world.submit(HostOp::Discard, row, 20 * row);
        world.submit(WRITE, 7 * row + 8, 16);
        world.submit(HostOp::WriteZeroes, 10 * row + 5, 15 * row);
        world.submit(WRITE, 13 * row, row);
        world.submit(WRITE, 30 * row, row);
        world.submit(HostOp::Read, 0, 32 * row);
        world.quiesce();
        let members = world.geometry().members() as u64;
        let counts = total(&world);
        assert_eq!((counts.discards, io(&world, What::Discard).len() as u64), (members, members));
        check(&mut world);
    }
}

#[test]
fn a_discard_of_rows_survives_a_member_that_fails_and_fails_when_one_is_too_many() {
    let mut world = world(ShardConfig { discard_zeroes: true, ..raid5(4, 128, 32) });
    fill(&mut world);
    let row = world.geometry().stripe_sectors();
    world.members[2].gone_at = Some(world.now);
    world.run(HostOp::Discard, 0, 8 * row).expect("one member may fail");
    assert!(world.is_failed(2));
    check(&mut world);
    world.members[0].gone_at = Some(world.now);
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(HostOp::Discard, 8 * row, 8 * row), Err(RequestError::Io));
    // Parity and data may be of different ages there.
    assert_eq!(world.run(HostOp::Read, 8 * row, row), Err(RequestError::Io));
}

#[test]
fn fua_reaches_data_and_parity() {
    let mut world = world(raid6(6, 128, 4));
    fill(&mut world);
    world.run(HostOp::Write { fua: true }, 0, 16).expect("healthy");
    assert_eq!(io(&world, What::Write { fua: true }).len(), 3);
    assert_eq!(io(&world, What::Write { fua: false }).len(), 0);
}

#[test]
fn the_least_memory_is_enough_for_any_load() {
    for config in [raid5(5, 256, 8), raid6(6, 1024, 4), raid6(4, 8, 64)] {
        let least = ShardConfig::least_stripe_cache_bytes(&config.geometry);
        let missing = MemberSet::one(1);
        let mut world = world(ShardConfig { stripe_cache_bytes: least, missing, ..config });
        let size = world.geometry().array_sectors();
        for number in 0..200u64 {
            let sectors = 1 + number * 37 % 300;
            let at = number * 7919 % (size - sectors);
            let op = if number % 3 == 0 { HostOp::Read } else { WRITE };
            world.submit(op, at, sectors);
        }
        world.quiesce();
        check(&mut world);
    }
}

#[test]
fn overlapping_writes_happen_in_the_order_of_submission() {
    let mut world = world(raid5(4, 128, 4));
    for number in 0..100u64 {
        world.queue(WRITE, number * 3 % 40, 20 + number % 400);
    }
    world.hand_over();
    world.quiesce();
    check(&mut world);
}

#[test]
fn a_member_failed_on_request_is_reconstructed_around() {
    let mut world = world(raid5(4, 128, 4));
    fill(&mut world);
    stream(&mut world, WRITE, 0, 64, 4, 4);
    world.submit(WRITE, 700, 300);
    world.control(Control::FailMember(MemberIdx(1)));
    world.submit(HostOp::Read, 0, 1000);
    world.quiesce();
    let event = ControlEvent::MemberFailed { member: MemberIdx(1), error: None, epoch: 1 };
    assert!(world.events.contains(&event));
    check(&mut world);
}
