//! Runs a scenario: one life of an array after the other, each ended by a power cut or a stop, with
//! a check of what is left; at the end the array is started, resynced, stopped and compared.
//!
//! Invariant: a finding is a panic. Every choice that the scenario leaves open comes from its seed
//! and the number of the action, so that a shorter scenario makes the same choices elsewhere.

use engine::{
    Control, DEFAULT_CHECKPOINT_NANOS, DEFAULT_SAFE_MODE_NANOS, HostOp, IntentMap, MemberError,
    MetadataInput, RequestError, ShardConfig, Sharding,
};
use md::geometry::Copy;
use md::{Geometry, Kind, MemberIdx, Sector, StripeNo};
use testkit::{Rng, mix};

use crate::assembly::{self, Refusal};
use crate::marks::{Mark, Marks};
use crate::member::{Lie, SECTOR};
use crate::model::Model;
use crate::mutant::Mutant;
use crate::scenario::{Action, Extent, Scenario};
use crate::world::{ControlPlane, Delays, World};
use crate::wreck::{Context, Wreck};

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Power cuts.
    pub crashes: u64,
    /// Starts of an array.
    pub generations: u64,
    /// Host requests.
    pub requests: u64,
    /// Operations of members, with those of the metadata.
    pub operations: u64,
    /// Faults that were given.
    pub faults: u64,
    /// Starts that were refused as they should be.
    pub refusals: u64,
    /// Runs that ended at a named exemption.
    pub exemptions: u64,
    /// Runs that ended after more members had been lost than the array could live without.
    pub destroyed: u64,
    /// States of the engine that were reached.
    pub marks: Marks,
    /// What happened, in lines, if it is to be kept.
    pub trace: Option<Vec<String>>,
}

impl Tally {
    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        self.crashes += other.crashes;
        self.generations += other.generations;
        self.requests += other.requests;
        self.operations += other.operations;
        self.faults += other.faults;
        self.refusals += other.refusals;
        self.exemptions += other.exemptions;
        self.destroyed += other.destroyed;
        self.marks.add(&other.marks);
    }
}

/// Between two lives: what is on the devices, and what is known of it.
pub(crate) struct Remains {
    geometry: Geometry,
    map: IntentMap,
    has_bitmap: bool,
    images: Vec<Vec<u8>>,
    data_offsets: Vec<u64>,
    legal: Model,
    /// See [`Context::began_out_of_sync`].
    began_out_of_sync: bool,
    /// Members that are lost, or must be taken for lost.
    lost: Vec<usize>,
    /// Those of them whose loss is on record.
    recorded: Vec<usize>,
    /// Event count of the freshest superblock.
    events: u64,
    next_tag: u64,
    mutant: Option<Mutant>,
}

/// A life of the array.
pub(crate) struct Life {
    pub(crate) world: World,
    rest: Remains,
    depth: usize,
    troubled: bool,
    /// A resync is to be done.
    out_of_sync: bool,
    /// More members are lost than the array can live without.
    is_destroyed: bool,
    /// The superblocks are longer than an atomic write.
    superblocks_tear: bool,
    /// Members that were missing at the start.
    missing: Vec<usize>,
}

/// Runs a scenario.
///
/// # Panics
/// When something is not as it should be, with what it is.
pub fn run(scenario: &Scenario) -> Tally {
    let mut tally = Tally::default();
    run_into(scenario, None, &mut tally);
    tally
}

/// Runs a scenario, with a planted bug or without, and counts what it has seen, also when it
/// panics.
///
/// # Panics
/// See [`run`].
pub fn run_into(scenario: &Scenario, mutant: Option<Mutant>, tally: &mut Tally) {
    let mut rng = Rng::new(scenario.seed);
    let remains = Remains { mutant, ..Remains::created(scenario, &mut rng) };
    let Some(mut life) = remains.start(scenario, scenario.shards, 0, &mut rng, tally) else {
        panic!("a new array is refused");
    };
    for (number, action) in (1..).zip(&scenario.actions) {
        // A shorter scenario makes the same choices from here on, if the action is the same.
        let choice = mix(scenario.seed ^ number << 32 ^ mix(action_key(action)));
        let mut rng = Rng::new(choice);
        life.world.rng = Rng::new(rng.draw());
        tally.note(|| format!("{action}"));
        let (shards, without) = match *action {
            Action::Cut(shards, without) => (shards, without),
            Action::Stop(shards) => {
                life.stop();
                (shards, 0)
            }
            _ => {
                life.act(*action, &mut rng, tally);
                continue;
            }
        };
        let Some(remains) = life.cut(&mut rng, tally) else { return };
        let Some(next) = remains.start(scenario, shards.clamp(1, 8), without, &mut rng, tally)
        else {
            return;
        };
        life = next;
    }
    let Some(remains) = life.cut(&mut rng, tally) else { return };
    remains.recover(scenario, &mut rng, tally);
}

/// A number that an action has wherever it stands.
fn action_key(action: &Action) -> u64 {
    action.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Errors that requests may end with: where blocks are bad or space is short, and where what is
/// lost was not in sync.
fn tolerated(troubled: bool, lost_out_of_sync: bool) -> Vec<RequestError> {
    match (troubled, lost_out_of_sync) {
        (true, _) => vec![RequestError::Io, RequestError::NoSpace],
        (false, true) => vec![RequestError::Io],
        (false, false) => Vec::new(),
    }
}

impl Remains {
    fn created(scenario: &Scenario, rng: &mut Rng) -> Remains {
        let array = &scenario.array;
        let (geometry, mut images) = array.create().expect("an array that can be created");
        let map = match array.bitmap_chunk {
            Some(bytes) => IntentMap::bitmap(&geometry, u64::from(bytes) / md::SECTOR_BYTES)
                .expect("a level with redundancy"),
            None => IntentMap::whole_array(&geometry),
        };
        let all: Vec<Option<&[u8]>> = images.iter().map(|image| Some(&image[..])).collect();
        let found = assembly::examine(&all);
        let data_offsets: Vec<u64> = found.iter().map(|it| it.metadata.data_offset).collect();
        let mut legal = Model::new(geometry.array_sectors(), false);
        let began_out_of_sync = array.begins.is_out_of_sync();
        if began_out_of_sync {
            spoil(&geometry, &data_offsets, &mut images, rng);
            // The copy that is read may be lost or bad: then another one, which differs, is what
            // there is.
            if matches!(geometry.kind(), Kind::Mirrored(_)) && (scenario.troubled || rng.one_in(2))
            {
                legal.begin_with_anything();
            }
        }
        Remains {
            geometry,
            map,
            has_bitmap: array.bitmap_chunk.is_some(),
            images,
            data_offsets,
            legal,
            began_out_of_sync,
            lost: Vec::new(),
            recorded: Vec::new(),
            events: 0,
            next_tag: 1,
            mutant: None,
        }
    }

    fn wreck(&self) -> Wreck<'_> {
        let context = Context {
            geometry: &self.geometry,
            map: &self.map,
            has_bitmap: self.has_bitmap,
            legal: &self.legal,
            began_out_of_sync: self.began_out_of_sync,
            lost: &self.recorded,
        };
        let images = self.images.iter().map(|image| &image[..]).collect();
        Wreck::new(images, &self.data_offsets, context)
    }

    /// Starts the array, without the members in the bit mask. `None`: it is refused, as it should
    /// be.
    fn start(
        mut self,
        scenario: &Scenario,
        shards: u16,
        without: u16,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Option<Life> {
        let views = self.wreck().views();
        let is_dirty = views.iter().any(|view| view.freshest.resync_offset.is_some());
        let accepted = views[0].accepted.clone();
        let absent = self.absent(&accepted, without, is_dirty);
        let present: Vec<usize> =
            accepted.iter().copied().filter(|at| !absent.contains(at)).collect();
        let images = self.images.iter().enumerate();
        let images: Vec<Option<&[u8]>> =
            images.map(|(at, image)| (!absent.contains(&at)).then_some(&image[..])).collect();
        let checkpoint = rng.pick(&[100_000, 5_000_000, DEFAULT_CHECKPOINT_NANOS]);
        let started = match assembly::start(&images, shards, checkpoint) {
            Ok(started) => started,
            Err(refusal) => {
                // Dirty and degraded: refused without force, as by md. Copies that may differ, and
                // the superblock of the first one is torn: refused, since the others may never have
                // been synced.
                let torn = !self.wreck().torn().is_empty();
                let may = is_dirty && (lacks_data(&self.geometry, &present) || torn);
                assert!(may, "the array is refused: {refusal:?}; accepted: {accepted:?}");
                assert!(matches!(refusal, Refusal::Start(_)), "{refusal:?}");
                tally.refusals += 1;
                tally.marks.reach(Mark::StartRefused);
                return None;
            }
        };
        tally.generations += 1;
        self.mark_start(&started, &absent, is_dirty, &mut tally.marks);
        let serving: Vec<usize> =
            (0..images.len()).filter(|at| !started.missing.contains(*at as u16)).collect();
        tally.note(|| format!("starts with members {serving:?} in {shards} shard(s)"));
        if absent.is_empty() {
            assert_eq!(serving, accepted, "the start takes other members than the assembly");
        }
        let missing: Vec<usize> =
            (0..self.images.len()).filter(|at| !serving.contains(at)).collect();
        for at in &missing {
            if !self.lost.contains(at) {
                self.lost.push(*at);
            }
        }
        Some(self.live(scenario, started, missing, shards, rng))
    }

    fn mark_start(
        &self,
        started: &assembly::Start,
        absent: &[usize],
        is_dirty: bool,
        marks: &mut Marks,
    ) {
        marks.reach(match (is_dirty, started.missing.is_empty()) {
            (false, true) => Mark::StartClean,
            (true, true) => Mark::StartDirty,
            (false, false) => Mark::StartDegraded,
            (true, false) => Mark::StartDirtyDegraded,
        });
        if started.has_stale_bitmap {
            marks.reach(Mark::StartStaleBitmap);
        }
        if !self.wreck().torn().is_empty() {
            marks.reach(Mark::StartTorn);
        }
        if started.missing.iter().any(|at| !absent.contains(&usize::from(at))) {
            marks.reach(Mark::StaleMemberBack);
        }
    }

    /// The members of a bit mask that the array can start without.
    fn absent(&self, accepted: &[usize], without: u16, is_dirty: bool) -> Vec<usize> {
        let mut absent: Vec<usize> = Vec::new();
        for at in (0..self.images.len()).filter(|at| without >> at & 1 == 1) {
            let left: Vec<usize> = accepted
                .iter()
                .copied()
                .filter(|other| *other != at && !absent.contains(other))
                .collect();
            let enough = self.geometry.enough(|member| left.contains(&member.index()));
            // A dirty array that lacks data is refused; copies that differ are alike in that each
            // of them may be the truth only where the model has it so.
            let risky = is_dirty && lacks_data(&self.geometry, &left)
                || self.differs() && matches!(self.geometry.kind(), Kind::Mirrored(_));
            // Without the freshest one, the others may be taken for fresh: two histories.
            if enough && !risky && !self.is_freshest(at, accepted) {
                absent.push(at);
            }
        }
        absent
    }

    /// Whether copies may differ so that the model does not allow each of them.
    fn differs(&self) -> bool {
        self.began_out_of_sync && !self.legal.allows_anything()
    }

    /// Whether the device's superblock is fresher than all others that are accepted.
    fn is_freshest(&self, at: usize, accepted: &[usize]) -> bool {
        let all: Vec<Option<&[u8]>> = self.images.iter().map(|image| Some(&image[..])).collect();
        let found = assembly::examine(&all);
        let events = |at: usize| {
            let found = found.iter().find(|found| found.device == at);
            found.map_or(0, |found| found.metadata.events)
        };
        accepted.iter().all(|other| *other == at || events(*other) < events(at))
    }

    fn live(
        self,
        scenario: &Scenario,
        started: assembly::Start,
        missing: Vec<usize>,
        shards: u16,
        rng: &mut Rng,
    ) -> Life {
        let assembly::Start { manager, geometry, missing: without, encoders, members, .. } =
            started;
        let superblocks_tear = encoders
            .iter()
            .flatten()
            .any(|encoder| encoder.superblock.encode(SECTOR).len() > SECTOR);
        let least = ShardConfig::least_stripe_cache_bytes(&geometry);
        let config = ShardConfig {
            missing: without,
            // Small units, so that requests span shards.
            sharding: Sharding::with_least_unit(&geometry, shards, rng.pick(&[1, 64])),
            stripe_cache_bytes: rng.pick(&[least, 2 * least, 8 * least]),
            discard_zeroes: rng.one_in(2),
            max_requests: if shards == 1 { 64 } else { 1 << 10 },
            intents: manager.intent_map(),
            safe_mode_nanos: rng.pick(&[100_000, 1_000_000, DEFAULT_SAFE_MODE_NANOS]),
            in_sync_below: manager.in_sync_below(),
            out_of_sync: manager.out_of_sync(),
            merge_wait_nanos: rng.pick(&[0, 50_000]),
            ..ShardConfig::new(geometry)
        };
        let out_of_sync = manager.status().resync_offset.is_some();
        let discard_zeroes = config.discard_zeroes;
        let mut world = World::of_members(config, members, rng.draw());
        world.delays = rng.pick(&[Delays::SPREAD, Delays::SPREAD, Delays::EVEN]);
        for member in world.members.iter_mut().filter(|member| member.gone_at.is_none()) {
            member.begin_cache();
        }
        world.next_tag = self.next_tag;
        world.mutant = self.mutant;
        world.model = self.legal.next_life(discard_zeroes);
        world.model.tolerated = tolerated(scenario.troubled, out_of_sync && !missing.is_empty());
        let durable = self.legal.next_life(discard_zeroes);
        let unit = world.resync_unit();
        world.control_plane = Some(ControlPlane::new(manager, encoders, durable, unit));
        if out_of_sync {
            world.feed_resync();
            world.hand_over();
        }
        Life {
            world,
            rest: self,
            depth: usize::from(scenario.depth.max(1)),
            troubled: scenario.troubled,
            out_of_sync,
            is_destroyed: false,
            superblocks_tear,
            missing,
        }
    }

    /// Starts the array once more, lets the engine resync it, stops it, and checks that nothing is
    /// marked or different any more.
    pub(crate) fn recover(self, scenario: &Scenario, rng: &mut Rng, tally: &mut Tally) {
        let shards = rng.pick(&[1, 2, 3]);
        let Some(mut life) = self.start(scenario, shards, 0, rng, tally) else { return };
        life.finish();
        let Some(mut after) = life.cut(rng, tally) else { return };
        after.began_out_of_sync = false;
        after.wreck().check();
        let all: Vec<Option<&[u8]>> = after.images.iter().map(|image| Some(&image[..])).collect();
        // Where nothing is left to be in sync with, no resync is needed, whatever the superblocks
        // say.
        let array = assembly::assembled(&assembly::examine(&all)).expect("it was started");
        let resync = array.read_write.repairs.resync;
        assert_eq!(resync, None, "the resync has passed everything, and one is still needed");
    }
}

impl Life {
    /// The first life of a new array.
    pub(crate) fn of_new_array(scenario: &Scenario, rng: &mut Rng, tally: &mut Tally) -> Life {
        let remains = Remains::created(scenario, rng);
        let life = remains.start(scenario, scenario.shards, 0, rng, tally);
        life.expect("a new array starts")
    }

    /// Stopped, and started again.
    pub(crate) fn restart(mut self, scenario: &Scenario, rng: &mut Rng) -> Life {
        self.stop();
        let tally = &mut Tally::default();
        let remains = self.cut(rng, tally).expect("it was stopped");
        remains.start(scenario, scenario.shards, 0, rng, tally).expect("it was stopped clean")
    }

    /// Whether as many requests as the scenario permits are in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.world.host_requests() >= self.depth
    }

    /// A number that changes with what the array may hold after a power cut.
    pub(crate) fn model_version(&self) -> u64 {
        (self.world.completed.len() as u64) << 32 | self.world.next_tag
    }

    pub(crate) fn act(&mut self, action: Action, rng: &mut Rng, tally: &mut Tally) {
        let zeroes = Extent(0, 0);
        match action {
            Action::Read(extent) => self.request(HostOp::Read, extent),
            Action::Write(extent) => self.request(HostOp::Write { fua: false }, extent),
            Action::WriteFua(extent) => self.request(HostOp::Write { fua: true }, extent),
            Action::WriteZeroes(extent) => self.request(HostOp::WriteZeroes, extent),
            Action::Discard(extent) => self.request(HostOp::Discard, extent),
            Action::Flush => self.request(HostOp::Flush, zeroes),
            Action::Step(count) => {
                for _ in 0..count {
                    self.world.step();
                }
            }
            Action::Idle(nanos) => {
                let until = self.world.now + nanos;
                while self.world.next_event().is_some_and(|at| at <= until) {
                    self.world.step();
                }
                self.world.now = self.world.now.max(until);
            }
            Action::ReadAll => self.read_all(),
            Action::Cut(..) | Action::Stop(_) => unreachable!("they end the life"),
            fault => tally.faults += u64::from(self.fault(fault, rng)),
        }
    }

    fn request(&mut self, op: HostOp, Extent(at, sectors): Extent) {
        while self.world.outstanding() >= self.depth || self.world.room() == 0 {
            assert!(self.world.step(), "nothing is in flight, but the queue is full");
        }
        let size = self.world.geometry().array_sectors();
        if op == HostOp::Flush {
            self.world.submit(op, 0, 0);
        } else if sectors > 0 && at < size {
            self.world.submit(op, at, sectors.min(size - at));
        }
    }

    /// Everything is read once, and compared with the model.
    fn read_all(&mut self) {
        let size = self.world.geometry().array_sectors();
        for at in (0..size).step_by(64) {
            self.request(HostOp::Read, Extent(at, 64));
        }
    }

    /// Gives a fault. Whether it was possible.
    fn fault(&mut self, action: Action, rng: &mut Rng) -> bool {
        let members = self.world.members.len();
        let (Action::Lose(member, _)
        | Action::Hang(member, _)
        | Action::Fail(member)
        | Action::Bad(member, _)
        | Action::Full(member, ..)
        | Action::MetadataFull(member)
        | Action::Space(member)
        | Action::FlushError(member)
        | Action::Flaky(member, _)
        | Action::ReadTimeout(member)
        | Action::WriteError(member)
        | Action::WriteTimeout(member)
        | Action::FlushLies(member)
        | Action::Misdirect(member)
        | Action::CorruptReads(member)
        | Action::Destroy(member, _)
        | Action::Slow(member, _)) = action
        else {
            unreachable!("no fault")
        };
        let at = usize::from(member) % members;
        let needs_trouble = matches!(
            action,
            Action::Bad(..) | Action::Flaky(..) | Action::Full(..) | Action::MetadataFull(_)
        );
        let loses = matches!(
            action,
            Action::ReadTimeout(_) | Action::WriteError(_) | Action::WriteTimeout(_)
        );
        if loses {
            if !self.may_lose(at) {
                return false;
            }
            self.lose(at);
        }
        if needs_trouble && !self.troubled {
            return false;
        }
        let now = self.world.now;
        match action {
            Action::Lose(_, after) | Action::Hang(_, after) => {
                if !self.may_lose(at) {
                    return false;
                }
                self.lose(at);
                self.world.members[at].gone_at = Some(now + after);
                // Superblocks that are written in turn wait for one that hangs.
                if matches!(action, Action::Hang(..)) && !self.superblocks_tear {
                    self.world.hang_metadata(at, now + after);
                }
            }
            Action::Fail(_) => {
                if !self.may_lose(at) {
                    return false;
                }
                self.lose(at);
                self.world.control(Control::FailMember(MemberIdx(at as u16)));
            }
            Action::Bad(_, Extent(from, sectors)) => {
                let used = self.world.members[at].data_sectors();
                let bad = from.min(used)..(from + sectors).min(used);
                self.world.members[at].bad.extend(bad);
            }
            Action::Flaky(_, Extent(from, sectors)) => {
                let used = self.world.members[at].data_sectors();
                let flaky = from.min(used)..(from + sectors).min(used);
                self.world.members[at].flaky.extend(flaky);
            }
            Action::ReadTimeout(_) => self.world.members[at].reads_time_out = true,
            Action::WriteError(_) => {
                self.world.members[at].write_error = Some((now, MemberError::Medium));
            }
            Action::WriteTimeout(_) => {
                self.world.members[at].write_error = Some((now, MemberError::Timeout));
            }
            Action::FlushLies(_) => self.lie(at, Lie::Flush),
            Action::Misdirect(_) => self.lie(at, Lie::Misdirected),
            Action::CorruptReads(_) => self.lie(at, Lie::Corrupt),
            Action::Full(_, Extent(from, sectors), short) => {
                let member = &mut self.world.members[at];
                member.full = from..from.saturating_add(sectors);
                member.short = u64::from(short);
                member.shortages = rng.one_in(3).then(|| rng.within(1, 8) as u32);
            }
            Action::MetadataFull(_) => self.world.members[at].metadata_full = true,
            Action::Space(_) => {
                let member = &mut self.world.members[at];
                member.full = 0..0;
                member.metadata_full = false;
            }
            Action::FlushError(_) => {
                // A member that must stay: what it has acknowledged may be lost.
                let is_fatal = !self.may_lose(at);
                if is_fatal && !self.control_plane().hanging.is_empty() {
                    return false;
                }
                if is_fatal {
                    self.destroy();
                } else {
                    self.lose(at);
                }
                self.world.members[at].flush_fails = true;
            }
            Action::Destroy(_, after) => {
                // Who waits for one that hangs waits without an end, if it cannot be dropped.
                if !self.control_plane().hanging.is_empty() {
                    return false;
                }
                self.destroy();
                self.world.members[at].gone_at.get_or_insert(now + after);
            }
            Action::Slow(_, times) => {
                self.world.members[at].slowness = u64::from(times.clamp(1, 1000));
            }
            _ => unreachable!("no fault"),
        }
        true
    }

    /// Whether the array can live without this member, too. Copies that differ are alike in that
    /// each of them may be the truth only where the model has it so.
    fn may_lose(&self, at: usize) -> bool {
        let rest = &self.rest;
        if matches!(rest.geometry.kind(), Kind::Mirrored(_)) && rest.differs() {
            return false;
        }
        !self.is_destroyed
            && !rest.lost.contains(&at)
            && rest
                .geometry
                .enough(|other| other.index() != at && !rest.lost.contains(&other.index()))
    }

    /// From now on nothing that was acknowledged is promised: but every request ends, and nothing
    /// wrong is read.
    fn destroy(&mut self) {
        self.is_destroyed = true;
        let errors = [RequestError::Io, RequestError::NoSpace, RequestError::ReadOnly];
        self.world.model.tolerated.extend(errors);
    }

    fn lie(&mut self, at: usize, lie: Lie) {
        self.destroy();
        self.world.model.is_unchecked = true;
        self.world.members[at].lie = Some(lie);
    }

    fn lose(&mut self, at: usize) {
        self.rest.lost.push(at);
        if self.out_of_sync {
            self.world.model.tolerated.extend(tolerated(self.troubled, true));
        }
    }

    /// Heals what can be healed.
    fn heal(&mut self) {
        for member in &mut self.world.members {
            member.bad.clear();
            member.flaky.clear();
            member.full = 0..0;
            member.metadata_full = false;
            member.slowness = 0;
        }
    }

    /// Lets the requests of hosts come to an end, and stops the array: also in the middle of a
    /// resync, or of one that is stalled for good.
    fn stop(&mut self) {
        self.heal();
        while self.world.host_requests() > 0 {
            assert!(self.world.step(), "a request never completes");
        }
        // Ranges of a resync are given up.
        self.world.model.tolerated.push(RequestError::ReadOnly);
        self.world.control_plane().input(MetadataInput::Stop);
        self.world.hand_over();
        while self.world.control_plane().stopped().is_none() {
            assert!(self.world.step(), "the array never stops");
        }
    }

    /// Lets everything come to an end, and stops the array.
    fn finish(&mut self) {
        self.heal();
        self.world.quiesce();
        self.stop();
        self.world.quiesce();
        assert_eq!(self.world.control_plane().stopped(), Some(true), "the array stops clean");
    }

    /// The power fails. `None`: at a named exemption.
    fn cut(self, rng: &mut Rng, tally: &mut Tally) -> Option<Remains> {
        tally.crashes += 1;
        tally.requests += self.world.completed.len() as u64;
        tally.operations += self.world.operations_done();
        tally.marks.add(&self.world.marks);
        tally.marks.add(&self.control_plane().marks);
        if self.is_destroyed {
            tally.destroyed += 1;
            return None;
        }
        let images = self.world.images_after_cut(rng);
        tally.note(|| format!("power cut leaves\n{}", assembly::describe(&images)));
        let remains = self.remains_of(images);
        tally.exemptions += u64::from(remains.is_none());
        remains
    }

    fn control_plane(&self) -> &ControlPlane {
        self.world.control_plane.as_ref().expect("it has metadata")
    }

    /// Checks what a power cut leaves on the devices; returns its event count. `None`: a named
    /// exemption.
    pub(crate) fn check_images(&self, images: &[Vec<u8>]) -> Option<u64> {
        let image = |at: usize| match self.missing.contains(&at) {
            true => &self.rest.images[at][..],
            false => &images[at][..],
        };
        let images = (0..images.len()).map(image).collect();
        let recorded = self.recorded();
        let context = Context {
            geometry: &self.rest.geometry,
            map: &self.rest.map,
            has_bitmap: self.rest.has_bitmap,
            legal: &self.control_plane().durable,
            began_out_of_sync: self.rest.began_out_of_sync,
            lost: &recorded,
        };
        let wreck = Wreck::new(images, &self.rest.data_offsets, context);
        let torn = wreck.torn();
        assert!(torn.len() <= 1, "superblocks are torn on several devices: {torn:?}");
        let left = |member: MemberIdx| {
            let at = member.index();
            !torn.contains(&at) && !self.rest.lost.contains(&at)
        };
        if !torn.is_empty() && !self.rest.geometry.enough(left) {
            // Writing superblocks in turn loses one at most, and here that is one too many, as in
            // md.
            return None;
        }
        wreck.check();
        let (events, before) = (wreck.events(), self.rest.events);
        // An array that becomes clean takes the last step back, as md does.
        assert!(events + 1 >= before, "events go back from {before} to {events}");
        Some(events)
    }

    /// Members whose loss is on record.
    fn recorded(&self) -> Vec<usize> {
        let mut recorded = self.rest.recorded.clone();
        for lost in self.world.recorded_losses() {
            if !recorded.contains(&lost) {
                recorded.push(lost);
            }
        }
        recorded
    }

    /// What is known of the array if the power cut leaves these images, after every check. `None`:
    /// a named exemption.
    pub(crate) fn remains_of(&self, mut images: Vec<Vec<u8>>) -> Option<Remains> {
        let events = self.check_images(&images)?;
        for at in &self.missing {
            images[*at].clone_from(&self.rest.images[*at]);
        }
        Some(Remains {
            geometry: self.rest.geometry.clone(),
            map: self.rest.map,
            has_bitmap: self.rest.has_bitmap,
            images,
            data_offsets: self.rest.data_offsets.clone(),
            legal: self.control_plane().durable.clone(),
            began_out_of_sync: self.rest.began_out_of_sync,
            lost: self.rest.lost.clone(),
            recorded: self.recorded(),
            events,
            next_tag: self.world.next_tag,
            mutant: self.rest.mutant,
        })
    }
}

impl World {
    /// Operations of members so far.
    fn operations_done(&self) -> u64 {
        let counts = self.members.iter().map(|member| member.counts);
        let data: u64 =
            counts.map(|it| it.reads + it.writes + it.flushes + it.discards + it.zeroes).sum();
        data + self.control_plane.as_ref().map_or(0, ControlPlane::operations_issued)
    }

    /// What a power cut leaves on the devices: all that is durable, any part of what is in their
    /// caches, and any sectors of what is on its way.
    pub fn images_after_cut(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let mut images: Vec<Vec<u8>> = Vec::with_capacity(self.members.len());
        for member in &self.members {
            images.push(match &member.cache {
                Some(cache) => cache.cut(rng),
                None => member.image().to_vec(),
            });
        }
        let mut apply = |device: usize, first: u64, bytes: &[u8]| {
            for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
                if rng.one_in(2) {
                    let at = sector as usize * SECTOR;
                    images[device][at..at + SECTOR].copy_from_slice(bytes);
                }
            }
        };
        for (device, first, bytes) in self.writes_in_flight() {
            apply(device, first, &bytes);
        }
        let control_plane = self.control_plane.iter();
        for (device, first, bytes) in control_plane.flat_map(ControlPlane::writes_in_flight) {
            apply(device, first, bytes);
        }
        images
    }
}

/// Whether some row of an array with parity lacks a data block.
fn lacks_data(geometry: &Geometry, accepted: &[usize]) -> bool {
    let Kind::Parity(parity) = geometry.kind() else { return false };
    let rows = (0..parity.stripes()).map(|stripe| parity.row(StripeNo(stripe)));
    rows.flat_map(|row| &row.data).any(|member| !accepted.contains(&member.index()))
}

/// Makes all redundancy wrong: every copy but the first, and all parity.
fn spoil(geometry: &Geometry, data_offsets: &[u64], images: &mut [Vec<u8>], rng: &mut Rng) {
    let mut spoil = |member: MemberIdx, at: u64| {
        let from = (data_offsets[member.index()] + at) as usize * SECTOR;
        images[member.index()][from..from + SECTOR].fill(1 + rng.below(255) as u8);
    };
    match geometry.kind() {
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            for at in 0..geometry.array_sectors() {
                mirrored.locate(Sector(at), &mut copies);
                copies[1..].iter().for_each(|copy| spoil(copy.member, copy.sector.0));
            }
        }
        Kind::Parity(parity) => {
            for stripe in 0..parity.stripes() {
                let row = parity.row(StripeNo(stripe)).clone();
                for offset in 0..parity.chunk_sectors() {
                    let at = parity.member_sector(StripeNo(stripe), offset).0;
                    [Some(row.p), row.q].into_iter().flatten().for_each(|m| spoil(m, at));
                }
            }
        }
        Kind::Striped(_) => {}
    }
}
