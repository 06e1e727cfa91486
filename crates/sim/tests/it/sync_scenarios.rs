//! Out-of-sync rows, and writes that fail half-way: wrong data are never read with success.

use engine::{Control, ControlEvent, HostOp, MemberError, MemberSet, RequestError, ShardConfig};
use md::{Geometry, Layout, Level, MemberIdx, Parity, Raid5Layout, Raid6Layout, RowRole, StripeNo};

use raidlab_sim::world::{self, Delays, What, World};

const WRITE: HostOp = HostOp::Write { fua: false };
const CHUNK: u64 = 32;
const ROWS: u64 = 6;

fn shapes() -> Vec<(Level, Layout, usize)> {
    let raid5 = Raid5Layout::all().map(|layout| (Level::Raid5, Layout::Raid5(layout), 5));
    let raid6 = Raid6Layout::all().map(|layout| (Level::Raid6, Layout::Raid6(layout), 7));
    let small = [
        (Level::Raid4, Layout::None, 5),
        (Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 3),
        (Level::Raid6, Layout::Raid6(Raid6Layout::LeftSymmetric), 4),
    ];
    raid5.chain(raid6).chain(small).collect()
}

fn geometry((level, layout, members): (Level, Layout, usize)) -> Geometry {
    world::geometry(level, layout, CHUNK, &vec![ROWS * CHUNK; members])
}

fn parity(geometry: &Geometry) -> &Parity {
    let md::Kind::Parity(parity) = geometry.kind() else { panic!("a level with parity") };
    parity
}

/// An array whose disks held something before it was created: nothing of it is in sync, and the
/// model has no expected contents.
fn used_disks(geometry: Geometry) -> World {
    let out_of_sync = std::iter::once(0..ROWS * CHUNK).collect();
    let mut world = world(ShardConfig { out_of_sync, ..ShardConfig::new(geometry.clone()) });
    for stripe in 0..ROWS {
        let row = parity(&geometry).row(StripeNo(stripe));
        let from = (stripe * CHUNK) as usize * raidlab_sim::member::SECTOR;
        let to = from + CHUNK as usize * raidlab_sim::member::SECTOR;
        for member in [Some(row.p), row.q].into_iter().flatten() {
            world.members[member.index()].data_mut()[from..to].fill(0x5a ^ member.0 as u8);
        }
    }
    world
}

fn world(config: ShardConfig) -> World {
    let mut world = World::new(config, 11);
    world.delays = Delays::EVEN;
    world.keep_log = true;
    world
}

fn fill(world: &mut World) {
    let size = world.geometry().array_sectors();
    let step = world.geometry().stripe_sectors();
    for at in (0..size).step_by(step as usize) {
        world.run(WRITE, at, step).expect("a healthy array takes writes");
    }
    world.quiesce();
    world.log.clear();
    world.events.clear();
}

/// Array sector of the first sector of a block of a row.
fn block(geometry: &Geometry, stripe: u64, index: u16) -> u64 {
    parity(geometry).array_sector(StripeNo(stripe), index, 0).0
}

fn writes(world: &World) -> usize {
    world.log.iter().filter(|logged| matches!(logged.what, What::Write { .. })).count()
}

#[test]
fn a_write_ahead_of_the_first_resync_survives_the_loss_of_its_member() {
    for shape in shapes() {
        let geometry = geometry(shape);
        for index in [0, parity(&geometry).data_disks() as u16 - 1] {
            for fail_second in [false, true] {
                let mut world = used_disks(geometry.clone());
                // Data blocks hold zeroes, as the model has it; parity is not their sum.
                let at = block(&geometry, 2, index) + 3;
                world.run(WRITE, at, 8).expect("not in sync, but complete");
                world.run(WRITE, at + 2, 3).expect("and once more");
                let row = parity(&geometry).row(StripeNo(2));
                let member = row.data[usize::from(index)];
                world.control(Control::FailMember(member));
                if fail_second && shape.0 == Level::Raid6 {
                    world.control(Control::FailMember(row.p));
                }
                world.quiesce();
                assert_eq!(world.run(HostOp::Read, at, 8), Ok(()), "{shape:?} {index}");
                world.model.tolerated.push(RequestError::Io);
                // What was not written is not known, whatever parity seems to say.
                let other = block(&geometry, 3, 0);
                let holder = parity(&geometry).row(StripeNo(3)).data[0];
                let expected = match world.is_failed(holder.0) {
                    true => Err(RequestError::Io),
                    false => Ok(()),
                };
                assert_eq!(world.run(HostOp::Read, other, 8), expected, "{shape:?} {index}");
            }
        }
    }
}

#[test]
fn written_blocks_are_served_beside_unknown_ones() {
    let mut world =
        used_disks(geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 5)));
    // Two blocks of a granule and one of another, on member 0.
    world.run(WRITE, 2, 2).expect("healthy");
    world.run(WRITE, 16, 8).expect("healthy");
    world.control(Control::FailMember(MemberIdx(0)));
    world.quiesce();
    world.model.tolerated.push(RequestError::Io);
    for (at, sectors, known) in
        [(2, 2, true), (1, 1, false), (4, 1, false), (0, 8, false), (16, 8, true), (15, 2, false)]
    {
        let expected = if known { Ok(()) } else { Err(RequestError::Io) };
        assert_eq!(world.run(HostOp::Read, at, sectors), expected, "{sectors} from {at}");
    }
    // Written anew, it is known again.
    world.run(WRITE, 0, 16).expect("degraded");
    assert_eq!(world.run(HostOp::Read, 0, 24), Ok(()));
}

#[test]
fn a_bad_sector_in_a_row_that_is_not_in_sync_is_an_error_and_stays_one() {
    for shape in shapes() {
        let geometry = geometry(shape);
        let mut world = used_disks(geometry.clone());
        let member = parity(&geometry).row(StripeNo(1)).data[0];
        let at = block(&geometry, 1, 0);
        world.members[member.index()].bad.extend(CHUNK..CHUNK + 8);
        world.model.tolerated.push(RequestError::Io);
        assert_eq!(world.run(HostOp::Read, at, CHUNK), Err(RequestError::Io), "{shape:?}");
        assert_eq!(world.run(HostOp::Read, at + 8, CHUNK - 8), Ok(()), "{shape:?}");
        assert_eq!(writes(&world), 0, "nothing is written back");
        assert!(world.shard.status().failed.is_empty());
        assert_eq!(world.run(HostOp::Resync, CHUNK, CHUNK), Err(RequestError::Io));
        world.run(WRITE, at, 8).expect("its contents are known now");
        assert_eq!(world.run(HostOp::Read, at, CHUNK), Ok(()), "{shape:?}");
        assert_eq!(world.run(HostOp::Resync, CHUNK, CHUNK), Ok(()));
    }
}

#[test]
fn ranges_that_a_resync_has_passed_are_recovered_again() {
    for shape in shapes() {
        let geometry = geometry(shape);
        let mut world = used_disks(geometry.clone());
        for stripe in 0..ROWS / 2 {
            world.run(HostOp::Resync, stripe * CHUNK, CHUNK).expect("complete");
        }
        world.control(Control::InSyncBelow { position: ROWS / 2 * CHUNK, reports: 0 });
        world.control(Control::FailMember(MemberIdx(1)));
        world.quiesce();
        let half = block(&geometry, ROWS / 2, 0);
        assert_eq!(world.run(HostOp::Read, 0, half), Ok(()), "{shape:?}");
        world.model.tolerated.push(RequestError::Io);
        let rest = geometry.array_sectors() - half;
        let has_data =
            |stripe| matches!(parity(&geometry).row(StripeNo(stripe)).role[1], RowRole::Data(_));
        let expected = match (ROWS / 2..ROWS).any(has_data) {
            true => Err(RequestError::Io),
            false => Ok(()),
        };
        assert_eq!(world.run(HostOp::Read, half, rest), expected, "{shape:?}");
    }
}

#[test]
fn a_write_that_fails_half_way_puts_its_row_out_of_sync_until_it_is_written_or_resynced() {
    for mend in [HostOp::Resync, WRITE] {
        let geometry = geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 5));
        let mut world = world(ShardConfig::new(geometry));
        fill(&mut world);
        world.model.tolerated.push(RequestError::NoSpace);
        // Row 0: data on members 0 to 3, P on the last.
        world.members[4].full = 0..8;
        assert_eq!(world.run(WRITE, 0, 8), Err(RequestError::NoSpace));
        world.members[4].full = 0..0;
        world.members[1].bad.extend([3, 11]);
        world.model.tolerated.push(RequestError::Io);
        assert_eq!(world.run(HostOp::Read, CHUNK, 8), Err(RequestError::Io));
        assert_eq!(world.run(HostOp::Read, CHUNK + 8, 8), Ok(()), "in sync: repaired");
        world.members[1].bad.clear();
        world.run(mend, 0, 8).expect("there is space again");
        world.members[1].bad.extend([3]);
        assert_eq!(world.run(HostOp::Read, CHUNK, 8), Ok(()), "{mend:?}");
    }
}

/// RAID 5 of four, member 0 lost: row 0 has its data on members 0 to 2 and P on member 3.
fn degraded() -> World {
    let geometry = geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 4));
    let mut world = world(ShardConfig::new(geometry));
    fill(&mut world);
    world.control(Control::FailMember(MemberIdx(0)));
    world.quiesce();
    world.events.clear();
    world.model.tolerated.push(RequestError::NoSpace);
    world
}

#[test]
fn a_full_member_of_a_degraded_array_costs_nothing_but_the_request() {
    for (member, shortages, short) in [
        (1, None, 0),
        (3, None, 0),
        (1, Some(1), 0),
        (3, Some(1), 0),
        // A part of the range was written.
        (1, Some(1), 5),
        (3, Some(1), 5),
    ] {
        let mut world = degraded();
        let target = &mut world.members[member];
        (target.full, target.shortages, target.short) = (0..CHUNK, shortages, short);
        let what = (member, shortages, short);
        assert_eq!(world.run(WRITE, CHUNK, 16), Err(RequestError::NoSpace), "{what:?}");
        assert_eq!(world.run(HostOp::Read, 0, 3 * CHUNK), Ok(()), "{what:?}");
        assert!(world.events.is_empty(), "{what:?}: {:?}", world.events);
        world.members[member].full = 0..0;
        world.run(WRITE, CHUNK, 16).expect("there is space again");
        assert_eq!(world.run(HostOp::Read, 0, 3 * CHUNK), Ok(()));
    }
}

#[test]
fn blocks_that_cannot_be_rolled_back_are_reported_as_lost() {
    for (error, short) in [(Some(MemberError::Medium), 0), (None, 3)] {
        let mut world = degraded();
        world.model.tolerated.push(RequestError::Io);
        let target = &mut world.members[3];
        match error {
            Some(error) => target.write_error = Some((0, error)),
            None => (target.full, target.short) = (0..CHUNK, short),
        }
        assert!(world.run(WRITE, CHUNK + 8, 8).is_err());
        assert_eq!(world.run(HostOp::Read, 8, 8), Err(RequestError::Io), "depends on P");
        assert_eq!(world.run(HostOp::Read, 0, 8), Ok(()));
        assert_eq!(world.run(HostOp::Read, 16, 2 * CHUNK), Ok(()));
        // In memory until it has been covered anew.
        let target = &mut world.members[3];
        (target.write_error, target.full) = (None, 0..0);
        assert_eq!(world.run(HostOp::Read, 8, 8), Err(RequestError::Io));
        world.run(WRITE, 8, 8).expect("generates P from what is known");
        assert_eq!(world.run(HostOp::Read, 0, 3 * CHUNK), Ok(()));
    }
}

#[test]
fn a_lost_block_that_a_failed_write_covers_is_never_a_mixture() {
    let mut world = degraded();
    world.model.tolerated.push(RequestError::Io);
    world.members[3].full = 0..CHUNK;
    // Blocks 0 and 1 are written, 2 is read: only P has block 0.
    assert_eq!(world.run(WRITE, 0, 2 * CHUNK), Err(RequestError::NoSpace));
    assert_eq!(world.run(HostOp::Read, 0, CHUNK), Err(RequestError::Io));
    assert_eq!(world.run(HostOp::Read, CHUNK, 2 * CHUNK), Ok(()));
    world.members[3].full = 0..0;
    world.run(WRITE, 0, 2 * CHUNK).expect("there is space again");
    assert_eq!(world.run(HostOp::Read, 0, 3 * CHUNK), Ok(()));
}

#[test]
fn a_raid_6_without_two_members_rolls_back_a_failed_write() {
    // Data on members 0 to 3, P and Q on the last two.
    let geometry = geometry((Level::Raid6, Layout::Raid6(Raid6Layout::ParityLast), 6));
    for (first, second) in [(0, 3), (0, 4), (0, 5)] {
        for full in (1..6u16).filter(|member| *member != second) {
            let mut world = world(ShardConfig {
                missing: MemberSet::EMPTY,
                ..ShardConfig::new(geometry.clone())
            });
            fill(&mut world);
            world.control(Control::FailMember(MemberIdx(first)));
            world.control(Control::FailMember(MemberIdx(second)));
            world.quiesce();
            world.model.tolerated.push(RequestError::NoSpace);
            world.members[usize::from(full)].full = 0..8;
            // Blocks 1 to 3, not block 0, which is lost.
            let written = world.run(WRITE, CHUNK, 3 * CHUNK);
            assert_eq!(written, Err(RequestError::NoSpace), "{first} {second} {full}");
            let read = world.run(HostOp::Read, 0, CHUNK);
            assert_eq!(read, Ok(()), "{first} {second} {full}");
        }
    }
}

#[test]
fn a_rolled_back_range_is_not_reported_as_out_of_sync() {
    for (short, reported) in [(0, false), (4, true)] {
        let geometry = geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 4));
        let mut world = world(ShardConfig {
            intents: Some(engine::IntentMap::whole_array(&geometry)),
            missing: MemberSet::one(0),
            ..ShardConfig::new(geometry)
        });
        world.model.tolerated.push(RequestError::NoSpace);
        (world.members[3].full, world.members[3].short) = (0..CHUNK, short);
        let write = world.submit(WRITE, CHUNK, 16);
        world.control(Control::Granted { first_bit: 0, bits: 1 });
        world.quiesce();
        assert_eq!(world.result(write), Some(Err(RequestError::NoSpace)));
        let out_of_sync = ControlEvent::OutOfSync { first_bit: 0, bits: 1 };
        assert_eq!(world.events.contains(&out_of_sync), reported, "{short}");
    }
}

#[test]
fn a_lost_block_that_memory_still_holds_does_not_depend_on_it() {
    let geometry = geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 3));
    let row = parity(&geometry).row(StripeNo(3)).clone();
    let (first, second) = (block(&geometry, 3, 0), block(&geometry, 3, 1));
    for full in [row.data[0], row.p] {
        let mut world = world(ShardConfig::new(geometry.clone()));
        fill(&mut world);
        // A stream whose last write has read the second block of its row, and keeps it.
        for at in (0..=first).step_by(CHUNK as usize) {
            world.run(WRITE, at, CHUNK).expect("healthy");
        }
        world.control(Control::FailMember(row.data[1]));
        world.quiesce();
        world.model.tolerated.push(RequestError::NoSpace);
        world.members[full.index()].full = 0..ROWS * CHUNK;
        assert_eq!(world.run(WRITE, first, CHUNK), Err(RequestError::NoSpace), "{full:?}");
        assert_eq!(world.run(HostOp::Read, second, CHUNK), Ok(()), "{full:?}");
    }
}

#[test]
fn after_a_flush_that_failed_on_a_member_that_must_stay_nothing_is_recovered() {
    let mut world = degraded();
    assert_eq!(world.run(HostOp::Read, 0, 3 * CHUNK), Ok(()));
    world.control(Control::NotDurable);
    world.model.tolerated.push(RequestError::Io);
    assert_eq!(world.run(HostOp::Read, 0, CHUNK), Err(RequestError::Io), "lost");
    assert_eq!(world.run(HostOp::Read, CHUNK, 2 * CHUNK), Ok(()));
    world.run(WRITE, 0, CHUNK).expect("generated from what the members hold");
    assert_eq!(world.run(HostOp::Read, 0, 3 * CHUNK), Ok(()));
}

#[test]
fn a_write_that_fails_half_way_without_parity_leaves_nothing_out_of_sync() {
    let geometry = geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 4));
    let mut world = world(ShardConfig {
        intents: Some(engine::IntentMap::whole_array(&geometry)),
        // P of row 0.
        missing: MemberSet::one(3),
        ..ShardConfig::new(geometry)
    });
    world.model.tolerated.push(RequestError::NoSpace);
    world.members[1].full = 0..CHUNK;
    let write = world.submit(WRITE, 0, 2 * CHUNK);
    world.control(Control::Granted { first_bit: 0, bits: 1 });
    world.quiesce();
    assert_eq!(world.result(write), Some(Err(RequestError::NoSpace)));
    let said = world.events.iter().any(|event| matches!(event, ControlEvent::OutOfSync { .. }));
    assert!(!said, "{:?}", world.events);
}

#[test]
fn a_member_lost_during_the_reads_of_a_write_costs_nothing_when_the_write_fails() {
    let geometry = geometry((Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 3));
    let row = parity(&geometry).row(StripeNo(0)).clone();
    for full in [row.data[0], row.p] {
        let mut world = world(ShardConfig::new(geometry.clone()));
        fill(&mut world);
        world.model.tolerated.push(RequestError::NoSpace);
        world.members[full.index()].full = 0..CHUNK;
        // Reads the second block, to generate P.
        let write = world.submit(WRITE, 0, CHUNK);
        world.control(Control::FailMember(row.data[1]));
        world.quiesce();
        assert_eq!(world.result(write), Some(Err(RequestError::NoSpace)), "{full:?}");
        assert_eq!(world.run(HostOp::Read, CHUNK, CHUNK), Ok(()), "{full:?}");
    }
}

/// After a start by force, Q is regenerated to match P, which defines the lost block.
#[test]
fn a_failed_resync_leaves_the_blocks_that_it_recovered_from_unchanged() {
    let geometry = geometry((Level::Raid6, Layout::Raid6(Raid6Layout::ParityLast), 6));
    let mut world =
        world(ShardConfig { missing: MemberSet::EMPTY, ..ShardConfig::new(geometry.clone()) });
    fill(&mut world);
    world.control(Control::FailMember(MemberIdx(0)));
    world.quiesce();
    world.model.tolerated.push(RequestError::NoSpace);
    world.members[4].full = 0..CHUNK;
    world.members[5].full = 0..CHUNK;
    world.members[5].shortages = Some(0);
    world.log.clear();
    assert_eq!(world.run(HostOp::Resync, 0, CHUNK), Err(RequestError::NoSpace));
    assert_eq!(writes(&world), 2, "P and Q, and nothing is put back");
    assert_eq!(world.run(HostOp::Read, 0, CHUNK), Ok(()));
}
