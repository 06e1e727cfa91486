//! Random requests against a plain model: every level and layout, chunk sizes, lost members, media
//! errors, members without space, deep queues, little memory.
//!
//! Every case is a function of its seed. `RAIDLAB_TEST=all` runs many more seeds, `RAIDLAB_SEED=n`
//! exactly one.

use engine::{Control, HostOp, MemberSet, RequestError, ShardConfig, Sharding};
use md::{
    FarSets, Geometry, Kind, Layout, Level, MemberIdx, Raid0Layout, Raid5Layout, Raid6Layout,
    Raid10Layout, Sector,
};
use testkit::{Rng, for_seeds};

use raidlab_sim::world::{self, World};

/// Level, layout, member sizes in chunks.
type Shape = (Level, Layout, Vec<u64>);

const ROWS: u64 = 9;

fn striped_shapes() -> Vec<Shape> {
    let raid0 = |layout, sizes: &[u64]| (Level::Raid0, Layout::Raid0(layout), sizes.to_vec());
    vec![
        (Level::Linear, Layout::None, vec![7, 3, 11]),
        raid0(Raid0Layout::Original, &[9; 4]),
        raid0(Raid0Layout::Unrecorded, &[9; 3]),
        raid0(Raid0Layout::Original, &[4, 9, 7]),
        raid0(Raid0Layout::Alternate, &[4, 9, 7, 9]),
    ]
}

fn mirrored_shapes() -> Vec<Shape> {
    let raid10 =
        |layout, members: usize| (Level::Raid10, Layout::Raid10(layout), vec![12; members]);
    let both = Raid10Layout { near: 2, far: 2, offset: false, far_sets: FarSets::None };
    vec![
        (Level::Raid1, Layout::None, vec![20; 2]),
        (Level::Raid1, Layout::None, vec![20; 3]),
        raid10(Raid10Layout::near(2), 4),
        raid10(Raid10Layout::near(2), 5),
        raid10(Raid10Layout::near(3), 4),
        raid10(Raid10Layout::far(2), 4),
        raid10(Raid10Layout::far(2), 3),
        raid10(Raid10Layout::offset(2), 4),
        raid10(Raid10Layout::offset(2), 5),
        raid10(both, 4),
        raid10(both, 5),
    ]
}

fn one_parity_shapes() -> Vec<Shape> {
    let mut shapes: Vec<Shape> = vec![
        (Level::Raid4, Layout::None, vec![ROWS; 4]),
        (Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), vec![ROWS; 2]),
        (Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), vec![ROWS; 6]),
    ];
    for layout in Raid5Layout::all() {
        shapes.push((Level::Raid5, Layout::Raid5(layout), vec![ROWS; 3]));
        shapes.push((Level::Raid5, Layout::Raid5(layout), vec![ROWS; 5]));
    }
    shapes
}

fn two_parity_shapes() -> Vec<Shape> {
    let of = |layout, members| (Level::Raid6, Layout::Raid6(layout), vec![ROWS; members]);
    Raid6Layout::all().flat_map(|layout| [of(layout, 4), of(layout, 6)]).collect()
}

/// What goes wrong besides lost members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Sectors that cannot be read.
    Media,
    /// Members that find no space and have written nothing: a failed write costs only what it
    /// covers.
    NoSpace,
    /// All of it, and writes that are cut short: a failed write may cost its rows.
    Everything,
}

/// One case, all of it drawn from the seed.
fn run_case(shapes: &[Shape], trouble: Trouble, seed: u64) {
    let mut rng = Rng::new(seed);
    // The shape from the seed itself, so that consecutive seeds go through all of them.
    let (level, layout, sizes) = &shapes[(seed % shapes.len() as u64) as usize];
    let mut chunks = vec![8, 16, 128, 256];
    if seed.is_multiple_of(11) {
        chunks.push(512);
    }
    if *level == Level::Raid0 {
        chunks.extend([24, 72]);
    }
    let chunk = rng.pick(&chunks);
    let uneven = matches!(level, Level::Linear | Level::Raid1) && rng.one_in(2);
    let sizes: Vec<u64> = sizes.iter().map(|s| s * chunk + u64::from(uneven) * 5).collect();
    let unit = if *level == Level::Linear { 0 } else { chunk };
    let geometry = world::geometry(*level, *layout, unit, &sizes);
    let doomed = pick_doomed(&geometry, &mut rng);
    // Some are missing from the start, the others will fail on the way.
    // Where only space is short they are missing from the start: rows that a failed write has left
    // out of sync while all members were there cannot be recovered later.
    let missing: MemberSet =
        doomed.iter().filter(|_| trouble == Trouble::NoSpace || rng.one_in(2)).collect();
    let least = ShardConfig::least_stripe_cache_bytes(&geometry);
    let (shards, least_unit) = (rng.pick(&[1, 2, 3]), rng.pick(&[1, 64, 512]));
    let config = ShardConfig {
        // Small units, so that requests span shards.
        sharding: Sharding::with_least_unit(&geometry, shards, least_unit),
        missing,
        logical_block: rng.pick(&[512, 512, 4096]),
        stripe_cache_bytes: rng.pick(&[least, 2 * least, 16 * least]),
        discard_zeroes: rng.one_in(2),
        merge_wait_nanos: rng.pick(&[0, 50_000, 50_000]),
        // Of the longest requests, every granule may be a part.
        max_requests: if shards == 1 { 128 } else { 1 << 14 },
        ..ShardConfig::new(geometry.clone())
    };
    let mut case = Case {
        trouble,
        block: u64::from(config.logical_block) / md::SECTOR_BYTES,
        depth: rng.pick(&[1, 2, 8, 32, 100]),
        world: World::new(config, rng.draw()),
        streams: (0..3).map(|_| rng.draw()).collect(),
        geometry,
        doomed,
        rng,
    };
    if trouble != Trouble::Media {
        let model = &mut case.world.model;
        model.tolerated = vec![RequestError::NoSpace, RequestError::Io];
        model.may_be_lost = Some(vec![false; case.geometry.array_sectors() as usize]);
        let mixed = trouble == Trouble::Everything || case.doomed.is_empty();
        model.rows_at_stake = mixed.then(|| case.geometry.stripe_sectors());
    }
    case.run();
}

/// Members that are lost or will be; the array can live without them.
fn pick_doomed(geometry: &Geometry, rng: &mut Rng) -> MemberSet {
    let mut doomed = MemberSet::EMPTY;
    let most = rng.below(3).min(geometry.members() as u64 - 1);
    for _ in 0..most {
        let one = rng.below(geometry.members() as u64) as u16;
        let mut more = doomed;
        more.insert(one);
        if geometry.enough(|member| !more.contains(member.0)) {
            doomed = more;
        }
    }
    doomed
}

struct Case {
    trouble: Trouble,
    world: World,
    geometry: Geometry,
    rng: Rng,
    /// Logical block in sectors.
    block: u64,
    depth: usize,
    doomed: MemberSet,
    streams: Vec<u64>,
}

impl Case {
    fn run(&mut self) {
        for round in 0..3 {
            if round > 0 && self.trouble != Trouble::NoSpace {
                self.inject();
            }
            if self.trouble != Trouble::Media {
                self.run_out_of_space();
            }
            self.round();
            self.check();
        }
        self.lose_more();
    }

    /// Members whose backing store is full in places, for a while or for the round.
    fn run_out_of_space(&mut self) {
        let members = self.geometry.members() as u64;
        for (at, member) in self.world.members.iter_mut().enumerate() {
            member.full = 0..0;
            if !self.rng.one_in(3) {
                continue;
            }
            let used = self.geometry.member_used_sectors(MemberIdx(at as u16));
            let start = if self.rng.one_in(2) { 0 } else { self.rng.below(used) };
            member.full = start..start + self.rng.within(1, used);
            member.shortages = self.rng.one_in(3).then(|| self.rng.within(1, 2 * members) as u32);
            let short = self.trouble == Trouble::Everything && self.rng.one_in(2);
            member.short = if short { self.rng.within(1, 12) } else { 0 };
        }
    }

    fn round(&mut self) {
        for _ in 0..self.rng.within(20, 60) {
            while self.world.outstanding() >= self.depth {
                assert!(self.world.step(), "nothing is in flight, but the queue is full");
            }
            assert!(self.world.room() > 0);
            let burst = if self.rng.one_in(3) { self.rng.within(1, 8) } else { 1 };
            for _ in 0..burst.min((self.depth - self.world.outstanding()) as u64) {
                let (op, at, sectors) = self.request();
                self.world.queue(op, at, sectors);
            }
            self.world.hand_over();
            for _ in 0..self.rng.below(4) {
                self.world.step();
            }
        }
        self.world.quiesce();
    }

    fn request(&mut self) -> (HostOp, u64, u64) {
        let size = self.geometry.array_sectors() / self.block * self.block;
        let width = self.geometry.stripe_sectors().max(64);
        if self.rng.one_in(40) {
            return (HostOp::Flush, 0, 0);
        }
        let most = match self.rng.below(8) {
            0 => 3 * width,
            1..=3 => width.min(256),
            _ => 64,
        };
        let step = if self.rng.one_in(3) { self.block } else { 8 };
        let mut sectors = (self.rng.within(1, most) / step).max(1) * step;
        let op = match self.rng.below(20) {
            0 => HostOp::Discard,
            1 => HostOp::WriteZeroes,
            2..=8 => HostOp::Read,
            9 => HostOp::Write { fua: true },
            _ => HostOp::Write { fua: false },
        };
        if matches!(op, HostOp::Discard | HostOp::WriteZeroes) && self.rng.one_in(2) {
            // Whole rows.
            let row = self.rng.below(size.div_ceil(width)) * width;
            let rows = width * self.rng.within(1, 2);
            return (op, row.min(size - self.block), rows.min(size - row.min(size - self.block)));
        }
        let at = if self.rng.one_in(2) {
            let stream = self.rng.below(self.streams.len() as u64) as usize;
            let at = self.streams[stream] % size / self.block * self.block;
            sectors = if stream == 0 { 8.max(self.block) } else { sectors };
            self.streams[stream] = at + sectors;
            at
        } else if self.rng.one_in(4) {
            // A hot spot: overlaps.
            self.rng.below(size.min(64)) / step * step
        } else {
            self.rng.below(size) / step * step
        };
        let at = at.min(size - self.block);
        (op, at, sectors.min(size - at).min(engine::MAX_REQUEST_SECTORS))
    }

    /// Bad blocks where the array can bear them, and the failures of the doomed.
    fn inject(&mut self) {
        if matches!(self.geometry.kind(), Kind::Striped(_)) {
            return;
        }
        let members = self.geometry.members() as u64;
        for _ in 0..self.rng.below(40) {
            let member = self.rng.below(members) as u16;
            let used = self.geometry.member_used_sectors(MemberIdx(member));
            // Crowded at the start, so that they meet.
            let span = if self.rng.one_in(2) { used } else { used.min(128) };
            let granule = self.rng.below(span.div_ceil(8)) * 8..0;
            let granule = granule.start..(granule.start + 8).min(used);
            if self.doomed.contains(member) || !self.bears(member, granule.clone()) {
                continue;
            }
            let target = &mut self.world.members[usize::from(member)];
            match self.rng.below(3) {
                0 => target.flaky.extend(granule),
                1 => target.bad.extend(granule),
                _ => {
                    target.bad.extend([granule.start + self.rng.below(granule.end - granule.start)])
                }
            }
        }
        let now = self.world.now;
        for member in self.doomed.iter() {
            let at = now + self.rng.below(3_000_000);
            let target = &mut self.world.members[usize::from(member)];
            match self.rng.below(3) {
                0 if target.gone_at.is_none() => target.gone_at = Some(at),
                1 => target.write_error = Some((at, engine::MemberError::Medium)),
                _ => {}
            }
        }
    }

    /// Whether every block that would miss this range could still be had from the others.
    fn bears(&self, member: u16, range: std::ops::Range<u64>) -> bool {
        let is_out = |other: MemberIdx, range: std::ops::Range<u64>| {
            let target = &self.world.members[other.index()];
            self.doomed.contains(other.0)
                || target.bad.range(range.clone()).next().is_some()
                || target.flaky.range(range).next().is_some()
        };
        match self.geometry.kind() {
            Kind::Striped(_) => false,
            Kind::Parity(_) => {
                let others = (0..self.geometry.members() as u16).filter(|other| *other != member);
                let out = others.filter(|other| is_out(MemberIdx(*other), range.clone())).count();
                out < self.geometry.tolerates()
            }
            Kind::Mirrored(mirrored) => {
                let Some(at) = mirrored.array_sector_of(MemberIdx(member), Sector(range.start))
                else {
                    return false;
                };
                let mut copies = vec![md::geometry::Copy::default(); mirrored.copies()];
                mirrored.locate(at, &mut copies);
                let length = range.end - range.start;
                copies
                    .iter()
                    .filter(|copy| copy.member.0 != member)
                    .any(|copy| !is_out(copy.member, copy.sector.0..copy.sector.0 + length))
            }
        }
    }

    fn check(&mut self) {
        let failed = self.world.shard.status().failed;
        assert!(
            failed.minus(self.doomed).is_empty(),
            "{failed:?} failed, doomed: {:?}",
            self.doomed
        );
        // What a failed write has left half-way is no longer in sync.
        if self.trouble == Trouble::Media {
            let world = &self.world;
            world.model.check_members(&self.geometry, &world.members, &|m| failed.contains(m));
        }
        self.read_all();
    }

    fn read_all(&mut self) {
        let size = self.geometry.array_sectors() / self.block * self.block;
        let mut at = 0;
        while at < size {
            let step = self.rng.within(1, 512).next_multiple_of(self.block);
            let sectors = step.min(size - at);
            self.world.submit(HostOp::Read, at, sectors);
            at += sectors;
            if self.world.outstanding() >= self.depth {
                self.world.quiesce();
            }
        }
        self.world.quiesce();
    }

    /// Fails as many members as redundancy permits, with all media repaired, and reads everything
    /// again.
    fn lose_more(&mut self) {
        for member in &mut self.world.members {
            member.bad.clear();
            member.flaky.clear();
            member.full = 0..0;
        }
        if self.trouble != Trouble::Media {
            return self.read_all();
        }
        let mut order: Vec<u16> = (0..self.geometry.members() as u16).collect();
        self.rng.shuffle(&mut order);
        // First those that would fail sooner or later.
        order.sort_by_key(|member| !self.doomed.contains(*member));
        for member in order {
            self.world.control(Control::FailMember(MemberIdx(member)));
        }
        self.world.quiesce();
        if !matches!(self.geometry.kind(), Kind::Striped(_)) {
            assert!(self.world.shard.status().failed.len() >= self.geometry.tolerates());
        }
        self.read_all();
        self.doomed = self.world.shard.status().failed;
        self.round();
        self.check();
    }
}

/// Runs `count` seeds of a family, or the one that the environment names.
fn run_family(name: &str, shapes: &[Shape], trouble: Trouble, count: u64) {
    for_seeds!(name, count, |seed| run_case(shapes, trouble, seed));
}

#[test]
fn striped_arrays_keep_written_data() {
    run_family("striped_arrays_keep_written_data", &striped_shapes(), Trouble::Media, 40);
}

#[test]
fn mirrored_arrays_keep_written_data() {
    run_family("mirrored_arrays_keep_written_data", &mirrored_shapes(), Trouble::Media, 66);
}

#[test]
fn arrays_with_one_parity_keep_written_data() {
    run_family(
        "arrays_with_one_parity_keep_written_data",
        &one_parity_shapes(),
        Trouble::Media,
        60,
    );
}

#[test]
fn arrays_with_two_parities_keep_written_data() {
    run_family(
        "arrays_with_two_parities_keep_written_data",
        &two_parity_shapes(),
        Trouble::Media,
        84,
    );
}

#[test]
fn parity_without_space_loses_only_the_range_of_the_failed_write() {
    let shapes = [one_parity_shapes(), two_parity_shapes()].concat();
    let name = "parity_without_space_loses_only_the_range_of_the_failed_write";
    run_family(name, &shapes, Trouble::NoSpace, 60);
}

#[test]
fn parity_with_every_trouble_returns_nothing_wrong() {
    let shapes = [one_parity_shapes(), two_parity_shapes()].concat();
    let name = "parity_with_every_trouble_returns_nothing_wrong";
    run_family(name, &shapes, Trouble::Everything, 60);
}
