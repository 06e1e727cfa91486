//! What no source can be read of while a member is filled: it is in the member's bad-block log, and
//! nothing else is.

use std::ops::Range;

use engine::{BadBlockLog, Control, ControlEvent, HostOp, RequestError, ShardConfig};
use md::geometry::Copy;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::{Area, BadBlockArea};
use md::{Kind, Layout, Level, MemberIdx, Raid5Layout, Raid6Layout, Raid10Layout, Sector};

use raidlab_sim::member::{Member, SECTOR};
use raidlab_sim::world::{self, Delays, World};

const WRITE: HostOp = HostOp::Write { fua: false };
const CHUNK: u64 = 64;
const USED: u64 = 4 * CHUNK;
const DATA_OFFSET: u64 = 64;
/// A granule that no source can be read of, and one that enough can be read of.
const LOST: Range<u64> = 16..24;
const POOR: Range<u64> = 40..48;

/// An array, and the members that are being rebuilt.
struct Shape {
    level: Level,
    layout: Layout,
    members: usize,
    filled: &'static [u16],
}

const fn shape(level: Level, layout: Layout, members: usize, filled: &'static [u16]) -> Shape {
    Shape { level, layout, members, filled }
}

/// Each kind of level; member 1 has data at the begin of each.
fn shapes() -> Vec<Shape> {
    let raid5 = Layout::Raid5(Raid5Layout::LeftSymmetric);
    let raid6 = Layout::Raid6(Raid6Layout::ParityLast);
    let raid10 = Layout::Raid10;
    vec![
        shape(Level::Raid1, Layout::None, 2, &[1]),
        shape(Level::Raid1, Layout::None, 3, &[1]),
        shape(Level::Raid1, Layout::None, 4, &[1, 3]),
        shape(Level::Raid10, raid10(Raid10Layout::near(2)), 4, &[1]),
        shape(Level::Raid10, raid10(Raid10Layout::near(3)), 5, &[1]),
        shape(Level::Raid10, raid10(Raid10Layout::far(2)), 3, &[1]),
        shape(Level::Raid10, raid10(Raid10Layout::offset(2)), 4, &[1]),
        shape(Level::Raid4, Layout::None, 3, &[1]),
        shape(Level::Raid5, raid5, 4, &[1]),
        shape(Level::Raid6, raid6, 6, &[1]),
        shape(Level::Raid6, raid6, 6, &[1, 2]),
        // Q, and data.
        shape(Level::Raid6, raid6, 6, &[1, 5]),
    ]
}

fn new_log() -> BadBlockLog {
    let area = Area { sector: 8, sectors: 8 };
    BadBlockLog::new(BadBlocks::new(), BadBlockArea { area, shift: 0, in_use: false }, DATA_OFFSET)
}

impl Shape {
    /// Filled with data, except the members that are being rebuilt. These have bad-block logs.
    fn world(&self, seed: u64) -> World {
        let chunk = if self.level == Level::Raid1 { 0 } else { CHUNK };
        let geometry = world::geometry(self.level, self.layout, chunk, &vec![USED; self.members]);
        let all = |at: &u16| (MemberIdx(*at), std::iter::once(0..USED).collect());
        let rebuilding = self.filled.iter().map(all).collect();
        let config = ShardConfig { rebuilding, ..ShardConfig::new(geometry) };
        let device = |_| {
            let image = vec![0; (DATA_OFFSET + USED) as usize * SECTOR];
            Member::of_device(image, DATA_OFFSET, USED)
        };
        let members = (0..self.members).map(device).collect();
        let mut world = World::of_members(config.clone(), members, seed);
        let size = world.geometry().array_sectors();
        for at in (0..size).step_by(CHUNK as usize) {
            world.run(WRITE, at, CHUNK.min(size - at)).expect("the others take writes");
        }
        world.quiesce();
        // From new: no block is in memory.
        let (members, model) = (std::mem::take(&mut world.members), world.model.clone());
        let mut world = World::of_members(config, members, seed + 1);
        world.model = model;
        world.delays = Delays::SPREAD;
        world.next_tag = 1 << 20;
        for at in self.filled {
            let member = &mut world.members[usize::from(*at)];
            member.data_mut().fill(0xa5);
            member.log = Some(new_log());
        }
        world.model.tolerated.push(RequestError::Io);
        world
    }

    /// Makes a sector of as many sources of this range of member 1 unreadable as can be without
    /// (`spares` = 1) or with (0) its loss.
    fn spoil(&self, world: &mut World, range: &Range<u64>, spares: usize) {
        let sector = range.start + 3;
        let geometry = world.geometry().clone();
        let is_filled = |member: &MemberIdx| self.filled.contains(&member.0);
        let sources: Vec<(MemberIdx, u64)> = match geometry.kind() {
            Kind::Mirrored(mirrored) => {
                let at = mirrored.array_sector_of(MemberIdx(1), Sector(sector)).expect("used");
                let mut copies = vec![Copy::default(); mirrored.copies()];
                mirrored.locate(at, &mut copies);
                let sources = copies.iter().filter(|copy| !is_filled(&copy.member));
                let sources: Vec<_> = sources.map(|it| (it.member, it.sector.0)).collect();
                sources[spares..].to_vec()
            }
            _ => {
                let parities = if self.level == Level::Raid6 { 2 } else { 1 };
                let bad = parities + 1 - self.filled.len() - spares;
                let members = (0..self.members as u16).map(MemberIdx);
                let sources = members.filter(|member| !is_filled(member));
                sources.map(|member| (member, sector)).take(bad).collect()
            }
        };
        for (member, sector) in sources {
            world.members[member.index()].bad.insert(sector);
        }
    }

    fn rebuild(world: &mut World) -> Result<(), RequestError> {
        let span = match world.geometry().kind() {
            Kind::Parity(_) => USED,
            _ => world.geometry().array_sectors(),
        };
        let result = world.run(HostOp::Rebuild, 0, span);
        world.quiesce();
        result
    }

    fn in_sync(&self, world: &mut World) {
        for at in self.filled {
            world.control(Control::EndRebuild(MemberIdx(*at)));
        }
        world.quiesce();
        assert!(world.shard.status().lacking.is_empty());
    }
}

fn listed(world: &World, member: u16) -> Vec<Range<u64>> {
    let log = world.members[usize::from(member)].log.as_ref();
    log.map(|log| log.listed().collect()).unwrap_or_default()
}

/// The first array sector of a range of member 1.
fn array_sector(world: &World, range: &Range<u64>) -> u64 {
    match world.geometry().kind() {
        Kind::Mirrored(mirrored) => {
            mirrored.array_sector_of(MemberIdx(1), Sector(range.start)).expect("used").0
        }
        // Its second block.
        _ => CHUNK + range.start,
    }
}

#[test]
fn an_entry_is_exactly_where_no_source_can_be_read() {
    for (number, shape) in shapes().iter().enumerate() {
        let name = format!("{:?} of {}, {:?}", shape.level, shape.members, shape.filled);
        let mut world = shape.world(number as u64);
        shape.spoil(&mut world, &LOST, 0);
        shape.spoil(&mut world, &POOR, 1);
        assert_eq!(Shape::rebuild(&mut world), Ok(()), "{name}");
        for at in shape.filled {
            assert_eq!(listed(&world, *at), [LOST], "{name}: {at}");
        }
        let added = world.events.iter().filter_map(|event| match event {
            ControlEvent::BadBlocksAdded { member, sector, sectors } => {
                Some((member.0, sector.0..sector.0 + sectors))
            }
            _ => None,
        });
        let mut added: Vec<_> = added.collect();
        added.sort_unstable_by_key(|(member, _)| *member);
        let expected: Vec<_> = shape.filled.iter().map(|at| (*at, LOST)).collect();
        assert_eq!(added, expected, "{name}");
        shape.in_sync(&mut world);
        // Whatever else the row has lost cannot be read either.
        let at = array_sector(&world, &LOST);
        let size = world.geometry().array_sectors();
        let is_lost = |world: &World, from: u64| match world.geometry().kind() {
            Kind::Parity(_) => {
                let (block, offset) = ((from / CHUNK) as usize, from % CHUNK);
                let has_row = from < world.geometry().stripe_sectors() && offset == LOST.start;
                let is_filled = shape.filled.contains(&(block as u16));
                has_row && (is_filled || world.members[block].bad.range(LOST).next().is_some())
            }
            _ => from == at,
        };
        for from in (0..size).step_by(8) {
            let is_lost = is_lost(&world, from);
            let result = world.run(HostOp::Read, from, 8);
            assert_eq!(result.is_err(), is_lost, "{name}: sector {from} reads {result:?}");
        }
        // A write of what the row needs takes the entries out.
        let row = world.geometry().stripe_sectors().max(CHUNK);
        world.run(WRITE, at / row * row, row).expect("a write of whole rows");
        for member in shape.filled {
            assert_eq!(listed(&world, *member), [0..0; 0], "{name}");
        }
        world.quiesce();
        for from in (0..size).step_by(8) {
            assert_eq!(world.run(HostOp::Read, from, 8), Ok(()), "{name}: sector {from}");
        }
        world.model.check_members(&world.geometry().clone(), &world.members, &|_| false);
    }
}

#[test]
fn without_room_in_a_log_the_range_stays_out_of_sync() {
    for (number, shape) in shapes().iter().enumerate() {
        let mut world = shape.world(number as u64);
        let last = *shape.filled.last().expect("one");
        world.members[usize::from(last)].log = None;
        shape.spoil(&mut world, &LOST, 0);
        assert_eq!(Shape::rebuild(&mut world), Err(RequestError::Io));
        assert!(world.events.iter().all(|it| !matches!(it, ControlEvent::BadBlocksAdded { .. })));
        assert!(!world.is_failed(last), "a log without room costs no member");
        // All else has been rebuilt: that alone is tried again.
        world.members[usize::from(last)].log = Some(new_log());
        let writes: u64 = world.members.iter().map(|member| member.counts.writes).sum();
        assert_eq!(Shape::rebuild(&mut world), Ok(()));
        let again: u64 = world.members.iter().map(|member| member.counts.writes).sum();
        assert_eq!(again, writes, "what is rebuilt is not written again");
        assert_eq!(listed(&world, last), [LOST]);
    }
}

#[test]
fn a_source_that_does_not_answer_leaves_no_entry() {
    for (number, shape) in shapes().iter().enumerate() {
        let mut world = shape.world(number as u64);
        shape.spoil(&mut world, &LOST, 0);
        // The array cannot run without these.
        let others = (0..shape.members).filter(|at| !shape.filled.contains(&(*at as u16)));
        for at in others {
            world.members[at].reads_time_out = true;
        }
        assert_eq!(Shape::rebuild(&mut world), Err(RequestError::Io));
        for at in shape.filled {
            assert_eq!(listed(&world, *at), [0..0; 0]);
        }
        assert!(world.events.iter().all(|it| !matches!(it, ControlEvent::BadBlocksAdded { .. })));
    }
}

#[test]
fn what_is_in_another_members_log_is_no_source() {
    for (number, shape) in shapes().iter().enumerate() {
        let mut world = shape.world(number as u64);
        shape.spoil(&mut world, &LOST, 0);
        for member in &mut world.members {
            let mut log = new_log();
            for sector in std::mem::take(&mut member.bad) {
                let write = log.add(Sector(sector), 1).expect("room");
                log.log_written(write, Ok(())).expect("written");
            }
            member.log = Some(log);
        }
        assert_eq!(Shape::rebuild(&mut world), Ok(()));
        for at in shape.filled {
            assert_eq!(listed(&world, *at), [LOST]);
        }
    }
}

#[test]
fn a_write_to_a_member_that_is_still_filled_takes_its_entries_out() {
    for (number, shape) in shapes().iter().enumerate() {
        let mut world = shape.world(number as u64);
        shape.spoil(&mut world, &LOST, 0);
        assert_eq!(Shape::rebuild(&mut world), Ok(()));
        let at = array_sector(&world, &LOST);
        let row = world.geometry().stripe_sectors().max(CHUNK);
        world.run(WRITE, at / row * row, row).expect("a write of whole rows");
        world.quiesce();
        for member in shape.filled {
            assert_eq!(listed(&world, *member), [0..0; 0]);
        }
        shape.in_sync(&mut world);
        assert_eq!(world.run(HostOp::Read, at, 8), Ok(()));
        world.model.check_members(&world.geometry().clone(), &world.members, &|_| false);
    }
}
