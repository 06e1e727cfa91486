//! The metadata manager in the tests' executor: metadata on every member, the effects of a power
//! cut on them, and the resync loop.
//!
//! Invariant: a record is on a device only when its time has come, and a power cut leaves of those
//! in flight the old one or the new one, sector by sector.

use std::collections::BTreeMap;

use engine::{
    BitmapHeader, ControlEvent, DEFAULT_RESYNC_STEP, HostOp, IoError, MemberError, MetaToken,
    MetadataEffect, MetadataInput, MetadataManager, Record, RequestError, ResyncEffect, ResyncLoop,
};
use md::Sector;
use md::ondisk::superblock::ArrayState;
use testkit::Rng;

use super::job::Work;
use super::member::SECTOR;
use super::model::Model;
use super::{Live, World};

/// The metadata of one device.
#[derive(Clone)]
pub struct Disk {
    /// `None`: torn.
    pub superblock: Option<ArrayState>,
    pub pages: BTreeMap<u32, (Option<BitmapHeader>, Vec<u8>)>,
}

struct MetaJob {
    ready_at: u64,
    token: MetaToken,
    device: usize,
    /// `None`: a flush.
    record: Option<Record>,
    covers: u64,
}

pub struct Kept {
    pub manager: MetadataManager,
    pub disks: Vec<Disk>,
    /// Superblocks are longer than a sector: a power cut may tear them.
    pub torn: bool,
    /// Devices whose metadata operations never complete: a power cut leaves any part of them.
    pub hanging: Vec<usize>,
    pub others: Vec<MetadataEffect>,
    /// What may be on the members after a power cut.
    pub durable: Model,
    resync: ResyncLoop,
    inputs: Vec<MetadataInput>,
    jobs: Vec<MetaJob>,
    timer: Option<u64>,
    /// Acknowledged writes, and those that a flush in flight covers: (flush, how many).
    acknowledged: Vec<(u64, u64, u64)>,
    flushes: Vec<(u64, usize)>,
    /// Ranges of the resync in flight: (tag, position).
    resyncing: Vec<(u64, Sector)>,
}

impl Kept {
    /// `unit`: positions that belong to one shard.
    pub fn new(manager: MetadataManager, disks: Vec<Disk>, durable: Model, unit: u64) -> Kept {
        Kept {
            manager,
            disks,
            torn: false,
            hanging: Vec::new(),
            others: Vec::new(),
            durable,
            resync: ResyncLoop::new(DEFAULT_RESYNC_STEP, unit),
            inputs: Vec::new(),
            jobs: Vec::new(),
            timer: None,
            acknowledged: Vec::new(),
            flushes: Vec::new(),
            resyncing: Vec::new(),
        }
    }

    pub fn tell(&mut self, input: MetadataInput) {
        self.inputs.push(input);
    }

    pub(super) fn event(&mut self, shard: u16, event: ControlEvent) {
        self.inputs.push(MetadataInput::FromShard { shard, event });
    }

    pub(super) fn submitted(&mut self, tag: u64, op: HostOp, at: u64, sectors: u64) {
        if op == HostOp::Flush {
            self.flushes.push((tag, self.acknowledged.len()));
        } else if op != HostOp::Read {
            self.durable.submit(tag, op, at, sectors);
        }
    }

    pub(super) fn completed(&mut self, now: u64, live: &Live, result: Result<(), RequestError>) {
        let Live { tag, op, at, sectors, .. } = *live;
        match op {
            HostOp::Flush => {
                let mine = self.flushes.iter().position(|(flush, _)| *flush == tag);
                let (_, covers) = self.flushes.remove(mine.expect("submitted before"));
                for (tag, at, sectors) in self.acknowledged[..covers].iter().copied() {
                    if result.is_ok() {
                        self.durable.settle(tag, at, sectors);
                    }
                }
            }
            HostOp::Write { fua: true } if result.is_ok() => {
                self.durable.settle(tag, at, sectors);
            }
            HostOp::Write { .. } | HostOp::WriteZeroes if result.is_ok() => {
                self.acknowledged.push((tag, at, sectors));
            }
            HostOp::Resync => self.resynced(now, tag, result),
            _ => {}
        }
    }

    fn resynced(&mut self, now: u64, tag: u64, result: Result<(), RequestError>) {
        let mine = self.resyncing.iter().position(|(resync, _)| *resync == tag);
        let (_, at) = self.resyncing.swap_remove(mine.expect("submitted before"));
        let mut effects = Vec::new();
        self.resync.done(now, at, result, &mut effects);
        self.report(effects);
    }

    fn report(&mut self, effects: Vec<ResyncEffect>) {
        for effect in effects {
            if let ResyncEffect::Report(input) = effect {
                self.inputs.push(input);
            }
        }
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        let retry = self.resync.deadline();
        let moving = self.jobs.iter().filter(|job| !self.hanging.contains(&job.device));
        moving.map(|job| job.ready_at).chain(self.timer).chain(retry).min()
    }

    /// What a power cut leaves of the metadata.
    pub fn cut(&self, rng: &mut Rng) -> Vec<Disk> {
        let mut disks = self.disks.clone();
        for job in &self.jobs {
            let disk = &mut disks[job.device];
            match &job.record {
                Some(Record::Superblock(state)) => match rng.below(3) {
                    0 => {}
                    1 if self.torn => disk.superblock = None,
                    _ => disk.superblock = Some((**state).clone()),
                },
                Some(Record::Bitmap(page)) => {
                    let old = disk.pages.entry(page.page).or_default();
                    // The first sector of page 0 is half header.
                    let skew = if page.page == 0 { 256 } else { 0 };
                    old.1.resize(page.bits.len(), 0);
                    for first in (0..page.bits.len() + skew).step_by(SECTOR) {
                        if rng.one_in(2) {
                            continue;
                        }
                        if first == 0 {
                            old.0 = page.header.or(old.0);
                        }
                        let end = (first + SECTOR).saturating_sub(skew).min(page.bits.len());
                        let part = first.saturating_sub(skew)..end;
                        old.1[part.clone()].copy_from_slice(&page.bits[part]);
                    }
                }
                _ => {}
            }
        }
        disks
    }
}

impl World {
    /// Runs the metadata manager on its inputs.
    pub(super) fn run_manager(&mut self) {
        loop {
            let Some(kept) = &mut self.kept else { return };
            if kept.inputs.is_empty() {
                return;
            }
            let mut out = Vec::new();
            kept.manager.handle(self.now, &mut kept.inputs, &mut out);
            for effect in out {
                self.perform_effect(effect);
            }
            self.feed_resync();
        }
    }

    fn perform_effect(&mut self, effect: MetadataEffect) {
        let (now, covers) = (self.now, self.writes_done);
        let delay = self.delay(self.delays.io);
        let kept = self.kept.as_mut().expect("it has just acted");
        let ready_at = now + delay;
        match effect {
            MetadataEffect::WriteMeta { token, device, record } => {
                let device = device.0 as usize;
                let record = Some(record);
                kept.jobs.push(MetaJob { ready_at, token, device, record, covers });
            }
            MetadataEffect::Flush { token, device } => {
                let device = device.0 as usize;
                kept.jobs.push(MetaJob { ready_at, token, device, record: None, covers });
            }
            MetadataEffect::ToShard { control, shard } => {
                self.send_control(shard, control);
            }
            MetadataEffect::SetTimer { at } => kept.timer = Some(at),
            MetadataEffect::ResyncNeeded => kept.resync.needed(),
            other => {
                match other {
                    MetadataEffect::BecameReadOnly { .. } => kept.resync.became_read_only(),
                    MetadataEffect::Stopped { .. } => kept.resync.stopped(),
                    _ => {}
                }
                kept.others.push(other);
            }
        }
    }

    /// Sends the next ranges of the resync.
    pub fn feed_resync(&mut self) {
        let mut room = self.room().min(2);
        let Some(kept) = &mut self.kept else { return };
        kept.resync.tick(self.now);
        let (mut ranges, mut effects) = (Vec::new(), Vec::new());
        while room > 0
            && let Some(range) = kept.resync.next_range(&mut kept.manager, &mut effects)
        {
            ranges.push(range);
            room -= 1;
        }
        kept.report(effects);
        for (at, sectors) in ranges {
            let tag = self.queue(HostOp::Resync, at.0, sectors);
            let kept = self.kept.as_mut().expect("still there");
            kept.resyncing.push((tag, at));
        }
    }

    /// Performs the metadata operations whose time has come.
    pub(super) fn perform_kept(&mut self) {
        let now = self.now;
        let Some(kept) = &mut self.kept else { return };
        if kept.timer.is_some_and(|at| at <= now) {
            kept.timer = None;
            kept.inputs.push(MetadataInput::Timer);
        }
        if kept.resync.deadline().is_some_and(|at| at <= now) {
            self.feed_resync();
        }
        let Some(kept) = &mut self.kept else { return };
        let Kept { jobs, hanging, .. } = kept;
        let is_due = |job: &mut MetaJob| job.ready_at <= now && !hanging.contains(&job.device);
        let mut due: Vec<MetaJob> = jobs.extract_if(.., is_due).collect();
        self.rng.shuffle(&mut due);
        for job in due {
            let result = self.perform_meta(&job);
            let kept = self.kept.as_mut().expect("still there");
            let result = result.map_err(|kind| IoError::of_metadata(kind, None));
            kept.inputs.push(MetadataInput::MetaDone { token: job.token, result });
        }
    }

    fn perform_meta(&mut self, job: &MetaJob) -> Result<(), MemberError> {
        let member = &mut self.members[job.device];
        if member.is_gone(self.now) {
            return Err(MemberError::Gone);
        }
        if member.metadata_full && job.record.is_some() {
            return Err(MemberError::NoSpace);
        }
        let disk = &mut self.kept.as_mut().expect("still there").disks[job.device];
        match &job.record {
            None => {
                member.unflushed.retain(|number| *number > job.covers);
                if let Some(platter) = &mut member.platter {
                    platter.flushed(job.covers);
                }
            }
            Some(Record::Superblock(state)) => disk.superblock = Some((**state).clone()),
            Some(Record::Bitmap(page)) => {
                let old = disk.pages.entry(page.page).or_default();
                old.0 = page.header.or(old.0);
                old.1.clone_from(&page.bits);
            }
            Some(Record::EmptyPpl) => {}
        }
        Ok(())
    }

    /// What a power cut leaves on the members: all that is durable, any part of what is in their
    /// caches, and any sectors of what is on its way.
    pub fn cut_members(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let mut images: Vec<Vec<u8>> = Vec::new();
        for member in &self.members {
            let platter = member.platter.as_ref().expect("the test keeps account of it");
            let mut bytes = platter.bytes.clone();
            let keep = rng.below(4);
            for (_, sector, new) in &platter.cache {
                if rng.below(4) < keep {
                    let at = *sector as usize * SECTOR;
                    bytes[at..at + SECTOR].copy_from_slice(new);
                }
            }
            images.push(bytes);
        }
        for job in &self.jobs {
            let Some((member, sectors)) = job.place.clone() else { continue };
            let at = usize::from(member);
            if self.members[at].is_gone(self.now) {
                continue;
            }
            let new: Vec<u8> = match &job.work {
                Work::Write { slices, .. } => {
                    slices.iter().flat_map(|slice| self.bytes(slice).to_vec()).collect()
                }
                Work::Discard | Work::WriteZeroes => {
                    vec![0; (sectors.end - sectors.start) as usize * SECTOR]
                }
                _ => continue,
            };
            for (sector, new) in sectors.zip(new.chunks_exact(SECTOR)) {
                if rng.one_in(2) {
                    let from = sector as usize * SECTOR;
                    images[at][from..from + SECTOR].copy_from_slice(new);
                }
            }
        }
        images
    }

    /// Whether the metadata manager has reported the array as stopped.
    pub fn has_stopped(&self) -> Option<bool> {
        let others = &self.kept.as_ref().expect("a test with a manager").others;
        others.iter().find_map(|effect| match effect {
            MetadataEffect::Stopped { clean } => Some(*clean),
            _ => None,
        })
    }
}
