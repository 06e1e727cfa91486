//! A deterministic executor for the engine: members and buffers in memory, a virtual clock, seeded
//! delays and faults, and a model of what every sector may hold.
//!
//! Invariant: an effect is performed only when its time has come, so that the order in which
//! concurrent effects take place is the executor's choice. Whatever the engine may not do panics.

pub mod job;
pub mod kept;
pub mod loans;
pub mod member;
pub mod model;
pub mod shards;

use std::ops::Range;

use engine::{
    BufSlice, Compute, Control, ControlEvent, Effect, Effects, HostOp, Input, IoError, MemberError,
    MemberOp, REGION_ZERO, Request, RequestError, Shard, ShardConfig,
};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Sector};
use parity::{Block, Change, Kernels};
use testkit::Rng;

use job::{Job, Work};
use kept::Kept;
use loans::Loans;
use member::{Member, SECTOR};
use model::Model;
use shards::Between;

/// Scratch memory is region 0, that of the other shards is numbered from `FIRST_OTHER_SCRATCH`;
/// every request's buffer has a region of its own.
const FIRST_HOST_REGION: u16 = 1;
const FIRST_OTHER_SCRATCH: u16 = 60_000;

/// Steps without an end are a deadlock or a livelock.
const MAX_STEPS: u64 = 2_000_000;

pub fn geometry(level: Level, layout: Layout, chunk_sectors: u64, sizes: &[u64]) -> Geometry {
    let member_sectors = sizes.to_vec();
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors })
        .expect("a test's geometry is sound")
}

/// A request between submission and completion.
pub struct Live {
    pub tag: u64,
    pub op: HostOp,
    pub at: u64,
    pub sectors: u64,
    base: u64,
    bytes: Vec<u8>,
    /// Its parts, one for each shard that it touches, that have not ended.
    open: usize,
    error: Option<RequestError>,
    /// Member writes completed when it was submitted.
    writes_before: u64,
}

/// How long effects take, in nanoseconds: low and high.
#[derive(Clone, Copy)]
pub struct Delays {
    pub io: (u64, u64),
    pub compute: (u64, u64),
    pub record: (u64, u64),
}

impl Delays {
    pub const SPREAD: Delays =
        Delays { io: (1_000, 200_000), compute: (500, 30_000), record: (10_000, 500_000) };
    pub const EVEN: Delays =
        Delays { io: (50_000, 60_000), compute: (1_000, 2_000), record: (90_000, 100_000) };
}

pub struct World {
    /// Shard 0.
    pub shard: Shard,
    /// The others, from shard 1 on, and what goes between all of them.
    pub others: Vec<Shard>,
    between: Between,
    pub members: Vec<Member>,
    pub model: Model,
    pub now: u64,
    pub delays: Delays,
    pub rng: Rng,
    /// Regions from [`FIRST_HOST_REGION`] on.
    live: Vec<Option<Live>>,
    /// By shard.
    scratch: Vec<Vec<u8>>,
    loans: Loans,
    jobs: Vec<Job>,
    controls: Vec<(u64, u16, Control)>,
    /// By shard, as the inputs.
    timers: Vec<Option<u64>>,
    inputs: Vec<Vec<Input>>,
    effects: Effects,
    /// Member writes completed so far.
    writes_done: u64,
    /// Shard and epoch.
    unrecorded: Vec<(u16, u64)>,
    /// Members that each shard has reported as dropped.
    announced: Vec<(u16, u16)>,
    /// Of the next request; never used twice.
    pub next_tag: u64,
    steps: u64,
    pub ended: Vec<(u64, Result<(), RequestError>)>,
    pub events: Vec<ControlEvent>,
    pub log: Vec<Logged>,
    pub keep_log: bool,
    kernels: Kernels,
    /// The array's metadata and its metadata manager, where the test has one.
    pub kept: Option<Kept>,
}

/// A member I/O as it was issued.
#[derive(Clone, Debug)]
pub struct Logged {
    pub issued: u64,
    pub member: u16,
    pub sectors: Range<u64>,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read,
    Write { fua: bool },
    Flush,
    Discard,
    WriteZeroes,
}

impl World {
    /// All shards of the array that the configuration is of.
    pub fn new(config: ShardConfig, seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let geometry = config.geometry.clone();
        let shards = config.sharding.shards();
        let scratch = || (0..config.stripe_cache_bytes).map(|at| 0xa5 ^ at as u8).collect();
        let scratch = (0..shards).map(|_| scratch()).collect();
        let discard_zeroes = config.discard_zeroes;
        let missing = config.missing;
        let between = Between::new(&config);
        let shard = |number: u16| {
            let scratch_region = if number == 0 { 0 } else { FIRST_OTHER_SCRATCH + number };
            let config = ShardConfig { number, scratch_region, ..config.clone() };
            Shard::new(config).expect("a test's configuration is sound")
        };
        let (shard, others) = (shard(0), (1..shards).map(shard).collect());
        let members = (0..geometry.members()).map(|at| {
            let sectors = geometry.member_used_sectors(MemberIdx(at as u16));
            let gone_at = missing.contains(at as u16).then_some(0);
            let bytes = vec![0; sectors as usize * SECTOR];
            Member { bytes, gone_at, ..Member::default() }
        });
        World {
            members: members.collect(),
            model: Model::new(geometry.array_sectors(), discard_zeroes),
            shard,
            others,
            between,
            now: 1 + rng.below(1 << 40),
            delays: Delays::SPREAD,
            rng,
            live: Vec::new(),
            scratch,
            loans: Loans::default(),
            jobs: Vec::new(),
            controls: Vec::new(),
            timers: vec![None; usize::from(shards)],
            inputs: vec![Vec::new(); usize::from(shards)],
            effects: Effects::new(),
            writes_done: 0,
            unrecorded: Vec::new(),
            announced: Vec::new(),
            next_tag: 1,
            steps: 0,
            ended: Vec::new(),
            events: Vec::new(),
            log: Vec::new(),
            keep_log: false,
            kernels: Kernels::best(),
            kept: None,
        }
    }

    pub fn geometry(&self) -> &Geometry {
        self.shard.geometry()
    }

    pub fn outstanding(&self) -> usize {
        self.live.iter().flatten().count()
    }

    pub fn is_failed(&self, member: u16) -> bool {
        self.shard.status().failed.contains(member)
    }

    pub fn shard_of(&self, number: u16) -> &Shard {
        number.checked_sub(1).map_or(&self.shard, |at| &self.others[usize::from(at)])
    }

    fn shard_mut(&mut self, number: u16) -> &mut Shard {
        match number.checked_sub(1) {
            None => &mut self.shard,
            Some(at) => &mut self.others[usize::from(at)],
        }
    }

    fn numbers(&self) -> Range<u16> {
        0..1 + self.others.len() as u16
    }

    /// Requests that every shard has room for.
    pub fn room(&self) -> usize {
        self.numbers().map(|number| self.shard_of(number).room()).min().expect("a shard")
    }

    /// Hands a request to the engine; its completion will be checked against the model.
    pub fn submit(&mut self, op: HostOp, at: u64, sectors: u64) -> u64 {
        let tag = self.queue(op, at, sectors);
        self.hand_over();
        tag
    }

    /// Adds a request to the next batch.
    pub fn queue(&mut self, op: HostOp, at: u64, sectors: u64) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let slot = self.live.iter().position(Option::is_none).unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() - 1
        });
        let memory = op == HostOp::Resync && !matches!(self.geometry().kind(), md::Kind::Parity(_));
        let has_data = matches!(op, HostOp::Read | HostOp::Write { .. }) || memory;
        let mut bytes = vec![0xee; if has_data { sectors as usize * SECTOR } else { 0 }];
        if matches!(op, HostOp::Write { .. }) {
            model::fill(tag, at, &mut bytes);
        }
        let (base, writes_before) = (self.rng.below(64) * 4096, self.writes_done);
        let buf = BufSlice {
            region: FIRST_HOST_REGION + slot as u16,
            len: bytes.len() as u32,
            offset: base,
        };
        self.model.submit(tag, op, at, sectors);
        if let Some(kept) = &mut self.kept {
            kept.submitted(tag, op, at, sectors);
        }
        let parts = self.between.parts(op, at, sectors);
        let open = parts.len();
        self.live[slot] =
            Some(Live { tag, op, at, sectors, base, bytes, open, error: None, writes_before });
        for part in parts {
            let skip = (part.at.0 - at) * SECTOR as u64;
            let len = part.sectors.saturating_mul(SECTOR as u64).min(buf.len.into()) as u32;
            let buf = BufSlice { offset: buf.offset + skip, len, ..buf };
            let request = Request { tag, op, at: part.at, sectors: part.sectors, buf };
            self.inputs[usize::from(part.shard)].push(Input::Request(request));
        }
        tag
    }

    /// Gives the engine all inputs that have gathered, as one batch.
    pub fn hand_over(&mut self) {
        for number in self.numbers() {
            let mut inputs = std::mem::take(&mut self.inputs[usize::from(number)]);
            if inputs.is_empty() && number > 0 {
                continue;
            }
            let mut effects = std::mem::take(&mut self.effects);
            let now = self.now;
            let shard = self.shard_mut(number);
            shard.handle(now, &mut inputs, &mut effects);
            while shard.has_more() {
                shard.handle(now, &mut inputs, &mut effects);
            }
            for effect in &effects.list {
                self.take_effect(number, effect, &effects);
            }
            effects.clear();
            self.effects = effects;
            self.inputs[usize::from(number)] = inputs;
        }
        self.run_manager();
    }

    /// A command for shard 0; the other shards get the resulting commands.
    pub fn control(&mut self, control: Control) {
        self.control_of(0, control);
    }

    pub fn control_of(&mut self, shard: u16, control: Control) {
        self.inputs[usize::from(shard)].push(Input::Control(control));
        self.hand_over();
    }

    /// From now on the metadata operations of a member hang, until an administrator fails it at
    /// time `until`; and beyond that.
    pub fn hang_metadata(&mut self, member: usize, until: u64) {
        self.kept.as_mut().expect("a manager").hanging.push(member);
        self.controls.push((until, 0, Control::FailMember(MemberIdx(member as u16))));
    }

    fn take_effect(&mut self, shard: u16, effect: &Effect, out: &Effects) {
        match effect {
            Effect::SetTimer { at } => self.timers[usize::from(shard)] = Some(*at),
            Effect::Complete { tag, result } => self.part_done(shard, *tag, *result),
            Effect::Control(event) => {
                if let ControlEvent::MemberFailed { member, epoch, .. } = event {
                    self.unrecorded.push((shard, *epoch));
                    self.announced.push((shard, member.0));
                }
                self.events.push(*event);
                self.control_event(shard, *event);
            }
            other => self.start(self.job_of(shard, other, out)),
        }
    }

    fn job_of(&self, shard: u16, effect: &Effect, out: &Effects) -> Job {
        let place = |member: &MemberIdx, sector: &Sector, sectors: u64| {
            Some((member.0, sector.0..sector.0 + sectors))
        };
        let length =
            |slices: &[BufSlice]| slices.iter().map(|s| u64::from(s.len) / SECTOR as u64).sum();
        let (token, place, work) = match effect {
            Effect::Read { token, member, sector, slices, in_place_ok: loan } => {
                let (slices, loan) = (out.slices(slices).to_vec(), *loan);
                (token, place(member, sector, length(&slices)), Work::Read { slices, loan })
            }
            Effect::Write { token, member, sector, slices, fua } => {
                let slices = out.slices(slices).to_vec();
                let place = place(member, sector, length(&slices));
                (token, place, Work::Write { slices, fua: *fua })
            }
            Effect::Flush { token, member } => {
                let covers = self.writes_done;
                (token, place(member, &Sector(0), 0), Work::Flush { covers })
            }
            Effect::Discard { token, member, sector, sectors } => {
                (token, place(member, sector, *sectors), Work::Discard)
            }
            Effect::WriteZeroes { token, member, sector, sectors } => {
                (token, place(member, sector, *sectors), Work::WriteZeroes)
            }
            Effect::Compute { token, job } => (token, None, work_of(job, out)),
            other => unreachable!("{other:?} is no job"),
        };
        Job { ready_at: 0, shard, token: *token, place, work }
    }

    /// Puts a job in flight, after every check that can be made now.
    fn start(&mut self, mut job: Job) {
        if let Some((member, sectors)) = &job.place {
            assert!(!self.is_failed_before(&job), "a failed member is used: {job:?}");
            let size = (self.members[usize::from(*member)].bytes.len() / SECTOR) as u64;
            assert!(sectors.end <= size, "outside of the member: {job:?}");
            if self.keep_log {
                self.log.push(Logged {
                    issued: self.now,
                    member: *member,
                    sectors: sectors.clone(),
                    what: what_of(&job.work),
                });
            }
        }
        job.assert_sound();
        self.assert_owned(&job);
        for other in &self.jobs {
            job.assert_compatible(other);
        }
        let span = if job.place.is_some() { self.delays.io } else { self.delays.compute };
        job.ready_at = self.now + self.delay(span);
        self.jobs.push(job);
    }

    /// Whether the job goes to a member that was out of service before this batch began.
    fn is_failed_before(&self, job: &Job) -> bool {
        let Some((member, _)) = &job.place else { return false };
        let announced = self.announced.contains(&(job.shard, *member));
        announced || self.members[usize::from(*member)].gone_at == Some(0)
    }

    /// Host buffers belong to requests in flight, and those of writes are never written to.
    fn assert_owned(&self, job: &Job) {
        let (reads, writes) = job.slices();
        let outs = writes.iter().map(|slice| (slice, true));
        for (slice, written) in reads.iter().map(|slice| (slice, false)).chain(outs) {
            match slice.region {
                REGION_ZERO => {}
                region if scratch_of(region).is_some() => {
                    let shard = scratch_of(region).expect("just seen");
                    let end = slice.offset + u64::from(slice.len);
                    let len = self.scratch[shard].len() as u64;
                    assert!(end <= len, "outside of the scratch: {job:?}");
                    assert_eq!(shard, usize::from(job.shard), "another's scratch: {job:?}");
                }
                region => {
                    let slot = usize::from(region - FIRST_HOST_REGION);
                    let live = self.live[slot].as_ref();
                    let live = live.unwrap_or_else(|| panic!("buffer without an owner: {job:?}"));
                    let end = slice.offset + u64::from(slice.len);
                    let inside =
                        slice.offset >= live.base && end <= live.base + live.bytes.len() as u64;
                    assert!(inside, "outside of the request's buffer: {job:?}");
                    let filled = matches!(live.op, HostOp::Read | HostOp::Resync);
                    assert!(!written || filled, "a host's data changed: {job:?}");
                }
            }
        }
    }

    fn part_done(&mut self, shard: u16, tag: u64, result: Result<(), RequestError>) {
        let live = self.live.iter_mut().flatten().find(|live| live.tag == tag);
        let live = live.unwrap_or_else(|| panic!("request {tag} completes twice"));
        if live.op != HostOp::Read && result.is_ok() {
            let open = self.unrecorded.iter().any(|(of, _)| *of == shard);
            assert!(!open, "acknowledged before a failure was recorded");
        }
        live.open -= 1;
        if let Err(error) = result {
            live.error.get_or_insert(error);
        }
        if live.open == 0 {
            let result = live.error.map_or(Ok(()), Err);
            self.complete(tag, result);
        }
    }

    fn complete(&mut self, tag: u64, result: Result<(), RequestError>) {
        let slot = self.live.iter().position(|live| live.as_ref().is_some_and(|l| l.tag == tag));
        let slot = slot.unwrap_or_else(|| panic!("request {tag} completes twice"));
        let region = FIRST_HOST_REGION + slot as u16;
        for job in &self.jobs {
            let (reads, writes) = job.slices();
            let late = reads.iter().chain(&writes).any(|slice| slice.region == region);
            assert!(!late, "request {tag} completes while its buffer is in use: {job:?}");
        }
        let live = self.live[slot].take().expect("found above");
        if live.op == HostOp::Flush && result.is_ok() {
            self.assert_durable(live.writes_before);
        }
        let reads = |member: &Member| {
            !member.is_gone(self.now) && member.bad.is_empty() && member.flaky.is_empty()
        };
        self.model.is_whole =
            self.shard.status().failed.is_empty() && self.members.iter().all(reads);
        self.model.complete(&live, &live.bytes, result);
        if let Some(kept) = &mut self.kept {
            kept.completed(self.now, &live, result);
        }
        self.ended.push((tag, result));
    }

    /// Every member write that had completed before the flush was submitted is durable.
    fn assert_durable(&self, before: u64) {
        let failed = self.shard.status().failed;
        for (at, member) in self.members.iter().enumerate() {
            let volatile = member.unflushed.iter().find(|number| **number <= before);
            let ok = volatile.is_none() || failed.contains(at as u16);
            assert!(ok, "a flush ended, but member {at} holds an older volatile write");
        }
    }

    fn delay(&mut self, (low, high): (u64, u64)) -> u64 {
        self.rng.within(low, high)
    }

    /// Time of the next event, if anything is in flight.
    pub fn next_event(&self) -> Option<u64> {
        let jobs = self.jobs.iter().map(|job| job.ready_at);
        let controls = self.controls.iter().map(|(at, ..)| *at);
        let timers = self.timers.iter().flatten().copied();
        let kept = self.kept.as_ref().and_then(Kept::next_event);
        let messages = self.between.next_event();
        jobs.chain(controls).chain(timers).chain(kept).chain(messages).min()
    }

    /// Lets the next thing happen. `false`: there is nothing.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.steps += 1;
        assert!(self.steps < MAX_STEPS, "no end after {MAX_STEPS} steps: a livelock?");
        self.now = self.now.max(next);
        // Now and then several completions come in one batch.
        let until = self.now + if self.rng.one_in(4) { 5_000 } else { 0 };
        let mut due: Vec<Job> = Vec::new();
        self.jobs.retain(|job| {
            if job.ready_at <= until {
                due.push(job.clone());
            }
            job.ready_at > until
        });
        self.now = due.iter().map(|job| job.ready_at).max().unwrap_or(next).max(self.now);
        self.rng.shuffle(&mut due);
        for job in due {
            let input = self.perform(&job);
            self.inputs[usize::from(job.shard)].push(input);
        }
        self.deliver();
        let now = self.now;
        let Self { controls, inputs, unrecorded, .. } = self;
        controls.retain(|(at, shard, control)| {
            if *at <= now {
                inputs[usize::from(*shard)].push(Input::Control(*control));
                if let Control::Recorded { epoch } = control {
                    unrecorded.retain(|(of, open)| of != shard || open > epoch);
                }
            }
            *at > now
        });
        for (timer, inputs) in self.timers.iter_mut().zip(&mut self.inputs) {
            if timer.is_some_and(|at| at <= now) {
                *timer = None;
                inputs.push(Input::Timer);
            }
        }
        self.perform_kept();
        self.hand_over();
        true
    }

    /// Runs until nothing is in flight; everything must have completed by then.
    pub fn quiesce(&mut self) {
        while self.step() {}
        let stuck: Vec<u64> = self.live.iter().flatten().map(|live| live.tag).collect();
        assert!(stuck.is_empty(), "requests {stuck:?} never complete: {:?}", self.shard.status());
        for number in self.numbers() {
            let status = self.shard_of(number).status();
            assert_eq!((status.requests, status.stripe_operations), (0, 0));
        }
    }

    /// Submits one request, waits for it, and returns its result.
    pub fn run(&mut self, op: HostOp, at: u64, sectors: u64) -> Result<(), RequestError> {
        let tag = self.submit(op, at, sectors);
        loop {
            if let Some(result) = self.result(tag) {
                return result;
            }
            assert!(self.step(), "request {tag} never completes");
        }
    }

    pub fn result(&self, tag: u64) -> Option<Result<(), RequestError>> {
        self.ended.iter().rev().find(|(ended, _)| *ended == tag).map(|(_, result)| *result)
    }

    fn perform(&mut self, job: &Job) -> Input {
        let Some((member, sectors)) = job.place.clone() else {
            self.fetch_loans(job);
            self.compute(&job.work);
            self.end_loans(job);
            return Input::ComputeDone { token: job.token };
        };
        let place = sectors.clone();
        let result = self.perform_io(usize::from(member), sectors, job);
        let result = result.map_err(|kind| {
            let op = match &job.work {
                Work::Read { .. } => MemberOp::Read,
                Work::Flush { .. } => MemberOp::Flush,
                Work::Discard => MemberOp::Discard,
                Work::WriteZeroes => MemberOp::WriteZeroes,
                _ => MemberOp::Write,
            };
            io_error(kind, op, &place)
        });
        Input::IoDone { token: job.token, result }
    }

    fn perform_io(
        &mut self,
        member: usize,
        sectors: Range<u64>,
        job: &Job,
    ) -> Result<(), MemberError> {
        let work = &job.work;
        let now = self.now;
        let length = sectors.end - sectors.start;
        if let Work::Read { slices, loan } = work {
            self.members[member].counts.reads += 1;
            self.members[member].counts.read_sectors += length;
            let fault = self.members[member].read_fault(now, sectors.clone());
            slices.iter().for_each(|slice| self.loans.forget(slice));
            let bytes = match fault {
                None if *loan => self.loans.note(job, member, slices, sectors.start),
                None => self.members[member].view(sectors).to_vec(),
                Some(_) => vec![0xbd; length as usize * SECTOR],
            };
            let mut from = 0;
            for slice in slices {
                let len = slice.len as usize;
                self.bytes_mut(slice).copy_from_slice(&bytes[from..from + len]);
                from += len;
            }
            return fault.map_or(Ok(()), Err);
        }
        if let Work::Flush { covers } = work {
            let member = &mut self.members[member];
            member.counts.flushes += 1;
            if member.is_gone(now) {
                return Err(MemberError::Gone);
            }
            member.unflushed.retain(|number| number > covers);
            if let Some(platter) = &mut member.platter {
                platter.flushed(*covers);
            }
            return Ok(());
        }
        let bytes = match work {
            Work::Write { slices, .. } => {
                slices.iter().flat_map(|slice| self.bytes(slice).to_vec()).collect()
            }
            _ => vec![0; length as usize * SECTOR],
        };
        let target = &mut self.members[member];
        match work {
            Work::Discard => target.counts.discards += 1,
            Work::WriteZeroes => target.counts.zeroes += 1,
            _ => target.counts.writes += 1,
        }
        target.counts.write_sectors += length;
        if let Some(error) = target.write_fault(now, &sectors) {
            // Of a bad medium or a timeout, too, a part may have been written.
            let part = match error {
                MemberError::ShortWrite => target.short.min(length),
                MemberError::Medium | MemberError::Timeout => self.rng.below(length + 1),
                _ => 0,
            };
            if part > 0 {
                let (first, len) = (sectors.start, part as usize * SECTOR);
                target.rewrite(first..first + part).copy_from_slice(&bytes[..len]);
                self.writes_done += 1;
                target.unflushed.push(self.writes_done);
                if let Some(platter) = &mut target.platter {
                    platter.written(self.writes_done, first, &bytes[..len], false);
                }
            }
            return Err(error);
        }
        target.rewrite(sectors.clone()).copy_from_slice(&bytes);
        self.writes_done += 1;
        let fua = matches!(work, Work::Write { fua: true, .. });
        if let Some(platter) = &mut target.platter {
            platter.written(self.writes_done, sectors.start, &bytes, fua);
        }
        if !fua {
            target.unflushed.push(self.writes_done);
        }
        Ok(())
    }

    /// Gives a computation what members hold at this moment of what it was lent.
    fn fetch_loans(&mut self, job: &Job) {
        let (reads, writes) = job.slices();
        for slice in reads.iter().chain(&writes) {
            for (part, member, from) in self.loans.within(job, slice) {
                let from = from as usize;
                let bytes = self.members[member].bytes[from..from + part.len as usize].to_vec();
                self.bytes_mut(&part).copy_from_slice(&bytes);
            }
        }
    }

    /// What was lent is not there any more; results are.
    fn end_loans(&mut self, job: &Job) {
        let (reads, writes) = job.slices();
        writes.iter().for_each(|slice| self.loans.forget(slice));
        for slice in &reads {
            for (part, ..) in self.loans.within(job, slice) {
                self.bytes_mut(&part).fill(loans::POISON);
            }
        }
    }

    fn compute(&mut self, work: &Work) {
        let kernels = self.kernels;
        match work {
            Work::Generate { p, q, sources } => {
                let held = self.held(sources);
                let (blocks, plain) = (blocks(&held), plain(&held));
                if let Some(p) = p {
                    kernels.xor_gen(self.bytes_mut(p), &plain);
                }
                if let Some(q) = q {
                    kernels.q_gen(self.bytes_mut(q), &blocks);
                }
            }
            Work::Update { p, q, deltas } => {
                for delta in deltas {
                    let (old, new) =
                        (self.bytes(&delta.old).to_vec(), self.bytes(&delta.new).to_vec());
                    let change = Change { exponent: delta.exponent, old: &old, new: &new };
                    if let Some(p) = p {
                        kernels.p_update(self.bytes_mut(p), &[change]);
                    }
                    if let Some(q) = q {
                        kernels.q_update(self.bytes_mut(q), &[change]);
                    }
                }
            }
            Work::FromP { dst, p, sources } => {
                let held = self.held(sources);
                let p = self.bytes(p).to_vec();
                kernels.recover_d_p(self.bytes_mut(dst), &plain(&held), &p);
            }
            Work::FromQ { dst, q, sources } => {
                let held = self.held(sources);
                let q = self.bytes(q).to_vec();
                let target = self.bytes_mut(&dst.slice);
                kernels.recover_d_q(target, dst.exponent, &blocks(&held), &q);
            }
            Work::Two { x, y, p, q, sources } => {
                let held = self.held(sources);
                let (p, q) = (self.bytes(p).to_vec(), self.bytes(q).to_vec());
                let mut dst_x = vec![0; p.len()];
                let mut dst_y = vec![0; p.len()];
                let (ex, ey) = (x.exponent, y.exponent);
                kernels.recover_dd(&mut dst_x, ex, &mut dst_y, ey, &blocks(&held), &p, &q);
                self.bytes_mut(&x.slice).copy_from_slice(&dst_x);
                self.bytes_mut(&y.slice).copy_from_slice(&dst_y);
            }
            other => unreachable!("{other:?} is no computation"),
        }
    }

    fn held(&self, sources: &[engine::Source]) -> Vec<(u8, Vec<u8>)> {
        sources.iter().map(|s| (s.exponent, self.bytes(&s.slice).to_vec())).collect()
    }

    fn bytes(&self, slice: &BufSlice) -> &[u8] {
        static ZEROES: [u8; engine::MAX_SPAN_SECTORS as usize * SECTOR] =
            [0; engine::MAX_SPAN_SECTORS as usize * SECTOR];
        let len = slice.len as usize;
        if slice.region == REGION_ZERO {
            return &ZEROES[..len];
        }
        match scratch_of(slice.region) {
            Some(shard) => &self.scratch[shard][slice.offset as usize..slice.offset as usize + len],
            None => {
                let region = slice.region;
                let slot = usize::from(region - FIRST_HOST_REGION);
                let live = self.live[slot].as_ref().expect("checked when the job began");
                let from = (slice.offset - live.base) as usize;
                &live.bytes[from..from + len]
            }
        }
    }

    fn bytes_mut(&mut self, slice: &BufSlice) -> &mut [u8] {
        let len = slice.len as usize;
        match scratch_of(slice.region) {
            Some(shard) => {
                &mut self.scratch[shard][slice.offset as usize..slice.offset as usize + len]
            }
            None => {
                let region = slice.region;
                let slot = usize::from(region - FIRST_HOST_REGION);
                let live = self.live[slot].as_mut().expect("checked when the job began");
                let from = (slice.offset - live.base) as usize;
                &mut live.bytes[from..from + len]
            }
        }
    }
}

/// Whose scratch a region is, if it is one.
fn scratch_of(region: u16) -> Option<usize> {
    match region {
        0 => Some(0),
        REGION_ZERO => None,
        other => other.checked_sub(FIRST_OTHER_SCRATCH).map(usize::from),
    }
}

fn blocks(held: &[(u8, Vec<u8>)]) -> Vec<Block<'_>> {
    held.iter().map(|(exponent, bytes)| Block { exponent: *exponent, bytes }).collect()
}

fn plain(held: &[(u8, Vec<u8>)]) -> Vec<&[u8]> {
    held.iter().map(|(_, bytes)| bytes.as_slice()).collect()
}

fn what_of(work: &Work) -> What {
    match work {
        Work::Read { .. } => What::Read,
        Work::Write { fua, .. } => What::Write { fua: *fua },
        Work::Flush { .. } => What::Flush,
        Work::Discard => What::Discard,
        Work::WriteZeroes => What::WriteZeroes,
        other => unreachable!("{other:?} goes to no member"),
    }
}

fn work_of(job: &Compute, out: &Effects) -> Work {
    match job {
        Compute::Generate { p, q, sources } => {
            Work::Generate { p: *p, q: *q, sources: out.sources(sources).to_vec() }
        }
        Compute::Update { p, q, deltas } => {
            Work::Update { p: *p, q: *q, deltas: out.deltas(deltas).to_vec() }
        }
        Compute::RecoverFromP { dst, p, sources } => {
            Work::FromP { dst: *dst, p: *p, sources: out.sources(sources).to_vec() }
        }
        Compute::RecoverFromQ { dst, q, sources } => {
            Work::FromQ { dst: *dst, q: *q, sources: out.sources(sources).to_vec() }
        }
        Compute::RecoverTwo { x, y, p, q, sources } => {
            let sources = out.sources(sources).to_vec();
            Work::Two { x: *x, y: *y, p: *p, q: *q, sources }
        }
    }
}

/// The error of an operation that has no error number.
pub fn io_error(kind: MemberError, op: MemberOp, sectors: &Range<u64>) -> IoError {
    let length = (sectors.end - sectors.start) as u32;
    IoError { kind, op, errno: None, sectors: length, sector: Sector(sectors.start) }
}
