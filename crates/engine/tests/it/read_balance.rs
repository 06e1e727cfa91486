//! Which copy a read goes to: by how long members take, by what md's flags say. In model time:
//! every member serves one operation after the other.

use std::collections::VecDeque;

use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Raid10Layout, Sector};
use raidlab_engine::{
    BufSlice, Control, ControlEvent, Effect, Effects, HostOp, Input, IoError, MemberError,
    MemberFlags, MemberOp, MemberSet, Request, Shard, ShardConfig, Token,
};
use testkit::Rng;

const SECTORS: u64 = 1 << 21;
const MS: u64 = 1_000_000;

#[derive(Clone, Copy)]
enum Speed {
    /// Every operation takes so long.
    Fixed(u64),
    /// Half a turn at most, and a seek by distance: of 12 ms over all of it.
    Disk,
    /// A disk whose answers come so much later.
    Late(u64),
}

struct Member {
    speed: Speed,
    head: u64,
    /// First sector, length, whether it is a read.
    queue: VecDeque<(Token, u64, u64, bool)>,
    /// When the first of the queue ends.
    ends_at: u64,
    reads: u64,
    bad: bool,
}

struct Mirror {
    shard: Shard,
    now: u64,
    members: Vec<Member>,
    failed: Vec<u16>,
    writes: u64,
    rng: Rng,
}

fn mirror(layout: Layout, speeds: &[Speed], change: impl FnOnce(&mut ShardConfig)) -> Mirror {
    let level = if layout == Layout::None { Level::Raid1 } else { Level::Raid10 };
    let chunk_sectors = if level.has_chunks() { 128 } else { 0 };
    let member_sectors = vec![SECTORS; speeds.len()];
    let spec = GeometrySpec { level, layout, chunk_sectors, member_sectors };
    let mut config = ShardConfig::new(Geometry::new(&spec).expect("sound"));
    change(&mut config);
    let member = |speed: &Speed| Member {
        speed: *speed,
        head: 0,
        queue: VecDeque::new(),
        ends_at: 0,
        reads: 0,
        bad: false,
    };
    Mirror {
        shard: Shard::new(config).expect("sound"),
        now: MS,
        members: speeds.iter().map(member).collect(),
        failed: Vec::new(),
        writes: 0,
        rng: Rng::new(7),
    }
}

impl Mirror {
    fn takes(&mut self, member: usize) -> u64 {
        let turn = self.rng.below(8 * MS);
        let Member { speed, head, queue, .. } = &self.members[member];
        let (_, sector, sectors, _) = queue[0];
        let transfer = sectors * 512 * 1000 / 80;
        let disk = match *head == sector {
            true => transfer,
            false => transfer + turn + head.abs_diff(sector) * 12 * MS / SECTORS,
        };
        match speed {
            Speed::Fixed(nanos) => *nanos,
            Speed::Disk => disk,
            Speed::Late(more) => disk + more,
        }
    }

    /// Passes inputs on; returns how many requests have ended.
    fn turn(&mut self, mut inputs: Vec<Input>) -> usize {
        let (mut out, mut ended) = (Effects::new(), 0);
        self.shard.handle(self.now, &mut inputs, &mut out);
        for effect in &out.list {
            let (token, member, sector, slices, is_read) = match effect {
                Effect::Read { token, member, sector, slices, .. } => {
                    self.members[member.index()].reads += 1;
                    (*token, member.index(), sector.0, slices, true)
                }
                Effect::Write { token, member, sector, slices, .. } => {
                    self.writes += 1;
                    (*token, member.index(), sector.0, slices, false)
                }
                Effect::Complete { result, .. } => {
                    assert_eq!(*result, Ok(()));
                    ended += 1;
                    continue;
                }
                Effect::Control(ControlEvent::MemberFailed { member, .. }) => {
                    self.failed.push(member.0);
                    continue;
                }
                Effect::Control(
                    ControlEvent::Corrected { .. } | ControlEvent::RebuildBegan { .. },
                )
                | Effect::Abandon { .. } => {
                    continue;
                }
                other => panic!("unexpected {other:?}"),
            };
            let bytes: u64 = out.slices(slices).iter().map(|slice| u64::from(slice.len)).sum();
            self.members[member].queue.push_back((token, sector, bytes / 512, is_read));
            if self.members[member].queue.len() == 1 {
                self.members[member].ends_at = self.now + self.takes(member);
            }
        }
        ended
    }

    /// Runs `count` reads of 4 KiB at random places, or of 64 KiB in a stream, `depth` at a time.
    /// Returns how long that took.
    fn reads(&mut self, count: usize, depth: usize, is_stream: bool) -> u64 {
        let (began, size) = (self.now, self.shard.geometry().array_sectors());
        let (mut sent, mut ended, mut next) = (0, 0, 0);
        while ended < count {
            let mut inputs = Vec::new();
            while sent < count && sent - ended < depth {
                let sectors = if is_stream { 128 } else { 8 };
                let at = match is_stream {
                    true => next,
                    false => self.rng.below(size / 8) * 8,
                };
                next = (at + sectors) % (size / 128 * 128);
                let buf = BufSlice { region: 0, len: sectors as u32 * 512, offset: 0 };
                let (op, at) = (HostOp::Read, Sector(at));
                inputs.push(Input::Request(Request { tag: 0, op, at, sectors, buf }));
                sent += 1;
            }
            ended += self.turn(inputs);
            ended += self.next_done();
        }
        self.now - began
    }

    /// The next operation of a member ends; returns how many requests have ended with it.
    fn next_done(&mut self) -> usize {
        let busy = (0..self.members.len()).filter(|at| !self.members[*at].queue.is_empty());
        let Some(first) = busy.min_by_key(|at| self.members[*at].ends_at) else { return 0 };
        let member = &mut self.members[first];
        self.now = member.ends_at;
        let (token, sector, sectors, is_read) = member.queue.pop_front().expect("it is busy");
        member.head = sector + sectors;
        let result = match member.bad && is_read {
            true => Err(IoError {
                kind: MemberError::Medium,
                op: MemberOp::Read,
                errno: None,
                sectors: sectors as u32,
                sector: Sector(sector),
            }),
            false => Ok(()),
        };
        if !self.members[first].queue.is_empty() {
            self.members[first].ends_at = self.now + self.takes(first);
        }
        self.turn(vec![Input::IoDone { token, result }])
    }

    /// The share of reads that a member got since the last call.
    fn share(&mut self, member: usize) -> f64 {
        let reads: Vec<u64> =
            self.members.iter_mut().map(|member| std::mem::take(&mut member.reads)).collect();
        reads[member] as f64 / reads.iter().sum::<u64>() as f64
    }
}

fn layouts() -> [Layout; 4] {
    let raid10 = [Raid10Layout::near(2), Raid10Layout::far(2), Raid10Layout::offset(2)];
    let [near, far, offset] = raid10.map(Layout::Raid10);
    [Layout::None, near, far, offset]
}

#[test]
fn a_slow_member_gets_few_reads_and_costs_little() {
    let slow_ones = [
        ("a disk beside a solid-state drive", Speed::Fixed(MS / 10), Speed::Disk),
        ("a disk that answers late", Speed::Disk, Speed::Late(100 * MS)),
    ];
    for (layout, (what, fast, slow)) in
        layouts().iter().flat_map(|layout| slow_ones.map(|slow| (layout, slow)))
    {
        for (depth, is_stream) in [(1, false), (4, false), (32, false), (1, true), (4, true)] {
            let case = format!("{what}, {layout}, depth {depth}, stream: {is_stream}");
            let mut alone = mirror(*layout, &[fast, slow], |config| {
                config.missing = MemberSet::one(1);
            });
            let alone = alone.reads(4000, depth, is_stream);
            let mut both = mirror(*layout, &[fast, slow], |_| {});
            both.reads(200, depth, is_stream);
            both.share(1);
            let took = both.reads(4000, depth, is_stream);
            let share = both.share(1);
            println!(
                "{case}: {share:.3} of the reads, {:.2} x the time",
                took as f64 / alone as f64
            );
            assert!(share < 0.1, "{case}: {share}");
            assert!(took < alone + alone / 5, "{case}: {took} and {alone} ns");
        }
    }
}

#[test]
fn equal_disks_share_random_reads_and_streams_stay_on_one() {
    for layout in layouts() {
        for depth in [1, 4, 32] {
            let mut disks = mirror(layout, &[Speed::Disk; 2], |_| {});
            disks.reads(4000, depth, false);
            let share = disks.share(1);
            assert!((0.3..0.7).contains(&share), "{layout}, depth {depth}: {share}");
        }
    }
    let mut disks = mirror(Layout::None, &[Speed::Disk; 2], |_| {});
    disks.reads(4000, 2, true);
    let (share, other) = (disks.share(0), disks.members[0].reads);
    // One read finds out how long the other member takes.
    assert!(share.min(1.0 - share) <= 1.0 / 4000.0, "{share} {other}");
}

#[test]
fn a_member_that_has_recovered_is_read_again() {
    let mut disks = mirror(Layout::None, &[Speed::Disk, Speed::Late(50 * MS)], |_| {});
    disks.reads(1000, 4, false);
    disks.share(1);
    disks.members[1].speed = Speed::Disk;
    // Some 20 s.
    disks.reads(4000, 4, false);
    disks.share(1);
    disks.reads(1000, 4, false);
    let share = disks.share(1);
    assert!((0.3..0.7).contains(&share), "{share}");
}

#[test]
fn a_write_mostly_member_is_read_where_no_other_can_serve() {
    for layout in layouts() {
        let speeds = [Speed::Fixed(MS), Speed::Fixed(MS / 100)];
        let mut mostly = mirror(layout, &speeds, |config| config.write_mostly.insert(1));
        mostly.reads(500, 8, false);
        mostly.reads(500, 2, true);
        assert_eq!(mostly.share(1), 0.0, "{layout}");
        // Repaired from it: the other one has a bad block everywhere.
        mostly.members[0].bad = true;
        mostly.reads(1, 1, false);
        assert_eq!((mostly.members[1].reads, mostly.writes), (1, 1), "{layout}");
        let mut alone = mirror(layout, &speeds, |config| {
            config.write_mostly.insert(1);
            config.missing.insert(0);
        });
        alone.reads(100, 2, false);
        assert_eq!(alone.share(1), 1.0, "{layout}");
    }
}

/// md completes a write behind a write-mostly member, whose copy then lags.
#[test]
fn where_copies_may_differ_a_write_mostly_one_is_neither_served_nor_kept() {
    for layout in layouts() {
        let mut mostly = mirror(layout, &[Speed::Fixed(MS); 2], |config| {
            config.write_mostly.insert(0);
            config.in_sync_below = 0;
        });
        mostly.reads(100, 4, false);
        assert_eq!(mostly.share(0), 0.0, "{layout}");
        // Flags of a running array say nothing of what was written before.
        let (member, flags) = (MemberIdx(0), MemberFlags::default());
        mostly.turn(vec![Input::Control(Control::SetFlags { member, flags })]);
        for op in [HostOp::Read, HostOp::Resync] {
            let buf = BufSlice { region: 0, len: 128 * 512, offset: 0 };
            let request = Request { tag: 0, op, at: Sector(0), sectors: 128, buf };
            let mut ended = mostly.turn(vec![Input::Request(request)]);
            while ended == 0 {
                ended = mostly.next_done();
            }
            assert_eq!(mostly.share(1), 1.0, "{layout}, {op:?}");
        }
        assert_eq!(mostly.writes, 1, "{layout}");
    }
}

/// Another member 1 joins, with these flags, and is in sync.
fn joined(layout: Layout, flags: MemberFlags) -> Mirror {
    let mut both = mirror(layout, &[Speed::Fixed(MS); 2], |config| {
        config.missing.insert(1);
        config.write_mostly.insert(1);
        config.failfast.insert(1);
    });
    let member = MemberIdx(1);
    for control in [
        Control::BeginRebuild(member),
        Control::SetFlags { member, flags },
        Control::EndRebuild(member),
    ] {
        both.turn(vec![Input::Control(control)]);
    }
    both
}

#[test]
fn a_member_that_joins_has_its_own_flags_and_not_those_of_the_former_one() {
    for layout in layouts() {
        let mut plain = joined(layout, MemberFlags::default());
        plain.reads(500, 8, false);
        assert!(plain.share(1) > 0.1, "{layout}");
        plain.members[1].bad = true;
        plain.reads(20, 8, false);
        assert!(plain.failed.is_empty() && plain.writes > 0, "{layout}: it is repaired");

        let flags = MemberFlags { write_mostly: true, failfast: false };
        let mut mostly = joined(layout, flags);
        mostly.reads(500, 8, false);
        assert_eq!(mostly.share(1), 0.0, "{layout}");
        // Of a place that has not the slot.
        let (member, flags) = (MemberIdx(2 + 1), MemberFlags::default());
        mostly.turn(vec![Input::Control(Control::SetFlags { member, flags })]);
        mostly.reads(500, 8, false);
        assert_eq!(mostly.share(1), 0.0, "{layout}");

        let mut fast = joined(layout, MemberFlags { write_mostly: false, failfast: true });
        fast.members[1].bad = true;
        fast.reads(20, 8, false);
        assert_eq!((&fast.failed[..], fast.writes), (&[1][..], 0), "{layout}: not repaired");
    }
}

#[test]
fn a_bad_block_fails_a_failfast_member_unless_it_is_the_last() {
    for layout in layouts() {
        let mut fast = mirror(layout, &[Speed::Fixed(MS); 2], |config| config.failfast.insert(0));
        fast.members[0].bad = true;
        fast.reads(8, 1, false);
        assert_eq!((&fast.failed[..], fast.writes), (&[0][..], 0), "{layout}: not repaired");
        // Where it has no flag, it is repaired, whichever copy it has.
        for bad in 0..2 {
            let mut ordinary = mirror(layout, &[Speed::Fixed(MS); 2], |_| {});
            ordinary.members[bad].bad = true;
            ordinary.reads(20, 8, false);
            assert!(ordinary.failed.is_empty() && ordinary.writes > 0, "{layout}: {bad}");
        }
    }
}
