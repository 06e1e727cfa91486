//! Several shards of one array, behaviour by behaviour.

use engine::{Control, ControlEvent, HostOp, MemberSet, RequestError, ShardConfig, Sharding};
use md::{Layout, Level, MemberIdx};

use raidlab_sim::world::{self, World};

const CHUNK: u64 = 16;
/// Minimum unit in sectors: two rows of RAID 5 on four members.
const UNIT: u64 = 64;
const WRITE: HostOp = HostOp::Write { fua: false };

/// A world of `shards` shards with small units.
fn world(level: Level, members: usize, shards: u16) -> World {
    let layout = Layout::default_for(level);
    let geometry = world::geometry(level, layout, CHUNK, &vec![12 * CHUNK; members]);
    let sharding = Sharding::with_least_unit(&geometry, shards, UNIT);
    let config = ShardConfig { sharding, max_requests: 1 << 12, ..ShardConfig::new(geometry) };
    World::new(config, 3)
}

/// Where shard `number` of `world` has its first sector.
fn start_of(world: &World, number: u16) -> u64 {
    let shards = 1 + world.others.len() as u16;
    let sharding = Sharding::with_least_unit(world.geometry(), shards, UNIT);
    (0..).find(|at| sharding.shard_of(md::Sector(*at)) == number).expect("it owns something")
}

fn fill(world: &mut World) {
    let size = world.geometry().array_sectors();
    assert_eq!(world.run(WRITE, 0, size), Ok(()));
}

fn read_all(world: &mut World) -> Result<(), RequestError> {
    let size = world.geometry().array_sectors();
    world.run(HostOp::Read, 0, size)
}

fn dropped(world: &World, shard: u16) -> MemberSet {
    world.shard_of(shard).status().failed
}

#[test]
fn a_shard_refuses_requests_that_it_does_not_own_completely() {
    let mut world = world(Level::Raid5, 4, 2);
    fill(&mut world);
    let unit = start_of(&world, 1);
    let mut ask = |shard: u16, op, at, sectors: u64| {
        use engine::{BufSlice, Effect, Effects, Input, Request};
        let buf = BufSlice { region: 1, len: (sectors * md::SECTOR_BYTES) as u32, offset: 0 };
        let request = Request { tag: 1, op, at: md::Sector(at), sectors, buf };
        let (mut out, mut inputs) = (Effects::new(), vec![Input::Request(request)]);
        let shard = match shard {
            0 => &mut world.shard,
            other => &mut world.others[usize::from(other) - 1],
        };
        shard.handle(1 << 50, &mut inputs, &mut out);
        let refused = |effect: &Effect| {
            matches!(effect, Effect::Complete { result: Err(RequestError::Invalid), .. })
        };
        out.list.iter().any(refused)
    };
    assert!(ask(0, HostOp::Read, unit, 8), "the other's");
    assert!(ask(1, HostOp::Read, 0, 8), "the other's");
    assert!(ask(0, HostOp::Read, unit - 8, 16), "half of it is the other's");
    assert!(ask(1, HostOp::Flush, 0, 0), "flushes are shard 0's");
    assert!(ask(0, HostOp::Resync, 2 * CHUNK, 8), "positions of the other's rows");
    assert!(!ask(0, HostOp::Read, unit - 8, 8));
    assert!(!ask(1, HostOp::Read, unit, 8));
    assert!(!ask(1, HostOp::Resync, 2 * CHUNK, 2 * CHUNK));
}

#[test]
fn a_flush_covers_all_shards_and_flushes_each_member_once() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid10, 4), (Level::Raid0, 3)] {
        let mut world = world(level, members, 3);
        fill(&mut world);
        assert_eq!(world.run(HostOp::Flush, 0, 0), Ok(()));
        for (at, member) in world.members.iter().enumerate() {
            assert_eq!((at, member.counts.flushes), (at, 1), "{level}");
            assert!(member.unflushed.is_empty());
        }
        // Only what the last shard writes now.
        let at = start_of(&world, 2);
        assert_eq!(world.run(WRITE, at, 8), Ok(()));
        assert_eq!(world.run(HostOp::Flush, 0, 0), Ok(()));
        let again = world.members.iter().filter(|member| member.counts.flushes == 2).count();
        assert_eq!(again, if level == Level::Raid0 { 1 } else { 2 }, "{level}");
    }
}

#[test]
fn flushes_that_come_together_share_rounds() {
    let mut world = world(Level::Raid5, 4, 3);
    fill(&mut world);
    for _ in 0..10 {
        world.submit(HostOp::Flush, 0, 0);
    }
    world.quiesce();
    let flushes: Vec<u64> = world.members.iter().map(|member| member.counts.flushes).collect();
    assert_eq!(flushes, [1; 4], "the second round finds nothing written");
}

#[test]
fn a_member_that_one_shard_drops_is_dropped_by_all() {
    for shards in [2, 3] {
        let mut world = world(Level::Raid5, 4, shards);
        fill(&mut world);
        world.members[2].gone_at = Some(world.now);
        let last = shards - 1;
        let at = start_of(&world, last);
        // Held back until the others have dropped the member.
        assert_eq!(world.run(WRITE, at, 3 * CHUNK), Ok(()));
        for shard in 0..shards {
            assert_eq!(dropped(&world, shard), MemberSet::one(2), "shard {shard}");
        }
        world.quiesce();
        assert_eq!(read_all(&mut world), Ok(()));
        fill(&mut world);
        assert_eq!(read_all(&mut world), Ok(()));
    }
}

/// Has shard 0 lose member 0 and shard 1 member 1, before either gets the other's event, each by a
/// write. Returns the writes' tags.
fn lose_two_concurrently(world: &mut World) -> [u64; 2] {
    let [a, b] = [0, 1].map(|shard| start_of(world, shard));
    for (shard, at) in [(0, a), (1, b)] {
        let control = Control::FailMember(MemberIdx(shard));
        world.queue(WRITE, at, 8);
        world.control_of(shard, control);
    }
    assert_eq!(dropped(world, 0), MemberSet::one(0));
    assert_eq!(dropped(world, 1), MemberSet::one(1));
    [a, b].map(|at| world.submit(WRITE, at + 8, 8))
}

#[test]
fn two_shards_that_drop_more_than_the_array_can_lose_acknowledge_nothing_they_cannot_keep() {
    for level in [Level::Raid5, Level::Raid1] {
        let mut world = world(level, if level == Level::Raid1 { 2 } else { 4 }, 2);
        fill(&mut world);
        world.model.tolerated = vec![RequestError::Io];
        let [a, b] = lose_two_concurrently(&mut world);
        world.quiesce();
        // The first reported member is lost; the shard that lost the other one is apart.
        let results = [a, b].map(|tag| world.result(tag).expect("ended"));
        let apart = results.iter().position(|result| result.is_err()).expect("one is") as u16;
        assert_eq!(results[usize::from(1 - apart)], Ok(()), "{level}");
        // Each stays with what it has: everything that was acknowledged can be read.
        assert_eq!(dropped(&world, apart), MemberSet::one(apart));
        assert_eq!(dropped(&world, 1 - apart), MemberSet::one(1 - apart));
        assert_eq!(read_all(&mut world), Ok(()), "{level}");
        let [own, other] = [apart, 1 - apart].map(|shard| start_of(&world, shard));
        assert_eq!(world.run(WRITE, own, 8), Err(RequestError::Io), "{level}");
        assert_eq!(world.run(WRITE, other, 8), Ok(()), "{level}");
        assert_eq!(world.run(HostOp::Flush, 0, 0), Err(RequestError::Io), "{level}");
        assert_eq!(read_all(&mut world), Ok(()), "{level}");
        // Now both are really gone: what needs them fails, what does not is served.
        world.members[0].gone_at = Some(world.now);
        world.members[1].gone_at = Some(world.now);
        assert_eq!(read_all(&mut world), Err(RequestError::Io), "{level}");
        if level == Level::Raid5 {
            let size = world.geometry().array_sectors();
            let served = (0..size).step_by(8).filter(|at| {
                let mut served = false;
                served |= world.run(HostOp::Read, *at, 8).is_ok();
                served
            });
            let served = served.count() as u64;
            assert!(served > 0 && served < size / 8, "{served} of {}", size / 8);
        }
    }
}

#[test]
fn a_raid_6_loses_two_concurrently_and_continues() {
    let mut world = world(Level::Raid6, 5, 2);
    fill(&mut world);
    let [a, b] = lose_two_concurrently(&mut world);
    world.quiesce();
    assert_eq!([a, b].map(|tag| world.result(tag)), [Some(Ok(())); 2]);
    let both = MemberSet::range(0, 2);
    assert_eq!([dropped(&world, 0), dropped(&world, 1)], [both; 2]);
    fill(&mut world);
    assert_eq!(read_all(&mut world), Ok(()));
    assert_eq!(world.run(HostOp::Flush, 0, 0), Ok(()));
}

#[test]
fn a_failure_is_reported_once_by_every_shard() {
    let mut world = world(Level::Raid5, 4, 3);
    world.control_of(1, Control::FailMember(MemberIdx(3)));
    world.quiesce();
    let reports = world
        .events
        .iter()
        .filter(|event| matches!(event, ControlEvent::MemberFailed { member: MemberIdx(3), .. }));
    assert_eq!(reports.count(), 3);
}

/// What does not fit into the CPU's caches is begun step by step, and without any more inputs all
/// of it is begun in the end.
#[test]
fn a_large_batch_is_begun_in_steps() {
    use engine::{BufSlice, Effect, Effects, Input, Request, Shard};
    let layout = Layout::default_for(Level::Raid5);
    let geometry = world::geometry(Level::Raid5, layout, CHUNK, &[256 * CHUNK; 4]);
    let width = geometry.stripe_sectors();
    let mut shard = Shard::new(ShardConfig::new(geometry)).expect("a shard");
    // Not neighbours, so that none waits for another.
    let request = |row: u64| {
        let buf = BufSlice { region: 1, len: (width * md::SECTOR_BYTES) as u32, offset: 0 };
        let at = md::Sector(2 * row * width);
        Input::Request(Request { tag: row, op: WRITE, at, sectors: width, buf })
    };
    let (rows, row_bytes) = (64, 4 * CHUNK * md::SECTOR_BYTES);
    let (mut out, mut inputs) = (Effects::new(), (0..rows).map(request).collect::<Vec<_>>());
    let (mut steps, mut begun) = (0, 0);
    while steps == 0 || shard.has_more() {
        shard.handle(1, &mut inputs, &mut out);
        let jobs = out.list.iter().filter(|e| matches!(e, Effect::Compute { .. })).count() as u64;
        assert!(jobs > 0 && jobs * row_bytes < (256 << 10) + row_bytes, "{jobs} in one batch");
        begun += jobs;
        steps += 1;
        out.clear();
    }
    assert!(begun == rows && steps > 1, "{begun} rows in {steps} steps");
}
