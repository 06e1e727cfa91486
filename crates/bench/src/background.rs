//! Background work beside a block workload: a rebuild, a scrub or a resync of the target's array,
//! begun anew for as long as it is measured.
//!
//! ```text
//! | the workload alone | the work alone | both | the work to its end | everything compared |
//! a member is missing (rebuild), or redundancy is not trusted (resync), from the beginning
//! ```
//! Invariant: what was rebuilt or resynced is compared afterwards: redundancy by a check, and all
//! data. Called by `blocks`.

use std::time::Duration;

use array::{
    ArraySpec, BackgroundWork, Completion, DataPlaneConfig, Driver, DriverOptions, Event, HostOp,
    Member, MemberSpec, Pace, ScrubMode,
};
use md::{Layout, Level, MemberIdx, Sector};
use results::record::{Cell, ForegroundAlone};
use spec::matrix::tolerated_losses;
use spec::rng::SplitMix64;
use spec::workload::{self, Background, Kind, Spec};

use crate::background_run::{BackgroundRun, EngineRun, RANGE_BYTES};
use crate::error::RunError;
use crate::measurement::Measurement;
use crate::provision::MdSync;
use crate::runner::{self, Running, Timing};
use crate::target::Target;
use crate::target_error::{RunnerError, TargetError};

/// Hosts are idle for the engine when they have rested so long; a little more.
const REST: Duration = Duration::from_millis(100);
/// Polls in which all shards drop a member that was failed.
const MEMBER_ROUNDS: usize = 20;
const BULK_SECTORS: u64 = 2048;

/// What was measured before both run.
#[derive(Default)]
pub struct Before {
    alone: Option<Measurement>,
    idle: Option<Measurement>,
}

impl Before {
    /// Puts what was measured into a cell, which has the workload beside the work.
    pub fn put_into(&self, cell: &mut Cell, background: &Background, beside: &Measurement) {
        cell.case.background = Some(background.work.name().into());
        cell.case.foreground_percent = Some(background.foreground_percent);
        cell.derived.bound_mb_per_s = None;
        cell.derived.bound_share = None;
        cell.derived.bound_note = Some("no bound: background work shares the members".into());
        let Some(idle) = &self.idle else {
            // Its own samples are those of the work.
            cell.measured.background_idle_mb_per_s = Some(cell.derived.mb_per_s);
            cell.case.foreground_percent = None;
            return;
        };
        let figures = |measured: &Measurement| {
            let mut cell = Cell::default();
            cell.measured.samples.clone_from(&measured.samples);
            cell.summarise();
            cell
        };
        cell.measured.background_idle_mb_per_s = Some(figures(idle).derived.mb_per_s);
        cell.measured.background_mb_per_s = beside.background_mb_per_s;
        if let Some(alone) = &self.alone {
            let of_alone = figures(alone);
            let rate = of_alone.derived.mb_per_s;
            cell.derived.foreground_share = (rate > 0.0).then(|| cell.derived.mb_per_s / rate);
            cell.measured.foreground_alone = Some(ForegroundAlone {
                mb_per_s: rate,
                iops: of_alone.derived.iops,
                latency_us: alone.latency.latency(),
            });
        }
    }
}

impl Target {
    /// Puts the array into the state in which background work runs: a member is lost, or redundancy
    /// is not trusted. The work itself begins with `Target::before_background`.
    ///
    /// # Errors
    /// A member cannot be made, or spared.
    pub fn prepare_background(&mut self, background: &Background) -> Result<(), RunError> {
        if let Some(md) = self.md.clone() {
            self.background_at_rest =
                Some(BackgroundRun::Md(MdSync::prepare(md, background.work)?));
            return Ok(());
        }
        Ok(self.prepare_engine(background)?)
    }

    fn prepare_engine(&mut self, background: &Background) -> Result<(), TargetError> {
        let share = u16::from(background.foreground_percent) * 10;
        self.shards[0].set_pace(Pace { foreground_share: share, ..Pace::default() });
        let degraded = self.failed().len();
        let mut run = EngineRun {
            work: match background.work {
                workload::BackgroundWork::Rebuild => BackgroundWork::Rebuild,
                workload::BackgroundWork::Scrub => BackgroundWork::Check,
                workload::BackgroundWork::Resync => BackgroundWork::Resync,
            },
            joining: None,
            is_joining: false,
            of_member: 1.0,
            degraded,
        };
        match background.work {
            workload::BackgroundWork::Rebuild => {
                let failed = self.failed();
                let gone = tolerated_losses(self.geometry(), 1, &|slot| failed.contains(&slot))?[0];
                self.take_out(&[gone]);
                run.joining = Some((gone, self.new_member(usize::from(gone.0))?));
            }
            workload::BackgroundWork::Resync => {
                let has_begun = self.shards[0].start_resync();
                assert!(has_begun, "the plan has only complete arrays with redundancy");
                self.shards[0].pause_background(BackgroundWork::Resync, true);
            }
            workload::BackgroundWork::Scrub => {}
        }
        if run.work != BackgroundWork::Rebuild && !self.geometry().level().has_parity() {
            let used = self.geometry().member_used_sectors(MemberIdx(0));
            let copies = match self.geometry().kind() {
                md::Kind::Mirrored(mirrored) => mirrored.copies() as u64,
                _ => 1,
            };
            let members = self.geometry().members() as u64;
            // Positions are those of the array: each has copies on some of the members.
            let all = (used * members / copies).max(1);
            run.of_member = used as f64 / all as f64;
        }
        self.background_at_rest = Some(BackgroundRun::Engine(run));
        Ok(())
    }

    /// Measures the workload without the work, and the work without the workload; then both are
    /// ready to run.
    ///
    /// # Errors
    /// As of a run, and when the drives are not at rest.
    pub(crate) fn before_background(
        &mut self,
        spec: &Spec,
        timing: Timing,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(Running<'_>),
    ) -> Result<Result<Before, RunnerError>, RunError> {
        let random = !spec.kind.is_sequential() && spec.kind != Kind::None;
        let mut before = Before::default();
        let own = Timing { check_later: true, ..timing };
        if spec.kind != Kind::None {
            self.renew_drives(random)?;
            match runner::run(self, *spec, own, stop, progress) {
                Ok(alone) => before.alone = Some(alone),
                Err(error) => return Ok(Err(error)),
            }
            self.renew_drives(random)?;
            self.resume_background()?;
            let nothing = Spec { kind: Kind::None, block_bytes: RANGE_BYTES, depth: 0, ..*spec };
            let nothing = Spec { jobs: 1, read_ahead_bytes: 0, rate: None, ..nothing };
            let warm_up = own.warm_up.max(REST);
            match runner::run(self, nothing, Timing { warm_up, ..own }, stop, progress) {
                Ok(idle) => before.idle = Some(idle),
                Err(error) => return Ok(Err(error)),
            }
            self.pause_background()?;
        }
        Ok(Ok(before))
    }

    /// Lets the work run from now on.
    ///
    /// # Errors
    /// Of md.
    pub(crate) fn resume_background(&mut self) -> Result<(), RunError> {
        if let Some(mut run) = self.background_at_rest.take() {
            match &mut run {
                BackgroundRun::Engine(run) => self.shards[0].pause_background(run.work, false),
                BackgroundRun::Md(sync) => sync.resume()?,
            }
            self.background = Some(run);
        }
        Ok(())
    }

    fn pause_background(&mut self) -> Result<(), RunError> {
        if let Some(mut run) = self.background.take() {
            match &mut run {
                BackgroundRun::Engine(run) => self.shards[0].pause_background(run.work, true),
                BackgroundRun::Md(sync) => sync.hold()?,
            }
            self.background_at_rest = Some(run);
        }
        Ok(())
    }

    /// Brings the work to its end at full speed, and compares: what a scrub has found, redundancy,
    /// all data. Adds what is wrong to the measurement.
    ///
    /// # Errors
    /// Of md.
    pub(crate) fn end_background(
        &mut self,
        measured: &mut Measurement,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        match self.background.take().or(self.background_at_rest.take()) {
            Some(BackgroundRun::Engine(run)) => self.end_of_engine(run, measured, stop),
            Some(BackgroundRun::Md(sync)) => {
                measured.mismatch_sectors = sync.finish(stop)?;
                measured.errors.add(&self.check_all(stop));
                measured.checked = !stop();
            }
            None => {}
        }
        Ok(())
    }

    fn end_of_engine(
        &mut self,
        mut run: EngineRun,
        measured: &mut Measurement,
        stop: &dyn Fn() -> bool,
    ) {
        self.shards[0].pause_background(run.work, false);
        self.set_paced(false);
        let slot = run.joining.as_ref().map(|(slot, _)| *slot);
        let is_ours = |event: &Event| match event {
            Event::MemberFailed { member, error: None } => Some(*member) == slot,
            Event::MemberInSync { .. } => true,
            _ => false,
        };
        // What was begun last: a member that leaves may still be in service.
        (0..MEMBER_ROUNDS).for_each(|_| self.poll_all());
        self.poll_until(stop, |target| target.shards[0].background().is_empty());
        let degraded = run.degraded;
        while let Some(slot) = slot
            && self.lacking() != degraded
            && !stop()
        {
            if self.failed().contains(&slot.0) {
                run.tend(&mut self.shards[0]);
            }
            self.poll_all();
        }
        let mut wrong: u64 = self.take_mismatches();
        if !stop() && self.lacking() == 0 && self.keeps_data() && run.work != BackgroundWork::Check
        {
            self.shards[0].start_scrub(ScrubMode::Check, 0);
            self.poll_until(stop, |target| target.shards[0].background().is_empty());
            wrong += self.take_mismatches();
        }
        self.set_paced(true);
        if self.keeps_data() {
            measured.mismatch_sectors = wrong;
            measured.errors.add(&self.check_all(stop));
            measured.checked = !stop();
        }
        measured.events.extend(self.take_events());
        measured.events.retain(|event| !is_ours(event));
    }

    fn take_mismatches(&mut self) -> u64 {
        let found = self.shards.iter_mut().flat_map(Driver::take_mismatches);
        found.map(|found| found.what.sectors).sum()
    }

    /// Members that are not in sync everywhere.
    fn lacking(&self) -> usize {
        self.shards.iter().map(|shard| shard.lacking().len()).max().unwrap_or(0)
    }

    fn poll_until(&mut self, stop: &dyn Fn() -> bool, is_so: impl Fn(&Target) -> bool) {
        while !is_so(self) && !stop() {
            self.poll_all();
        }
    }

    fn poll_all(&mut self) {
        let mut none = Vec::new();
        let limit = Duration::from_millis(1);
        self.shards.iter_mut().for_each(|shard| shard.poll(&mut none));
        self.shards.iter_mut().for_each(|shard| shard.wait(limit, None));
    }

    /// A new member for a slot, of the kind of the one before it and in its place on the modelled
    /// drive, without its faults. It holds noise: a block that is not rebuilt is wrong.
    fn new_member(&mut self, slot: usize) -> Result<Box<dyn Member>, TargetError> {
        let member = self.make_leaf(slot)?;
        self.set_paced(false);
        let scrambled = scramble(member);
        self.set_paced(true);
        scrambled
    }
}

/// Writes noise to all of a member.
fn scramble(member: Box<dyn Member>) -> Result<Box<dyn Member>, TargetError> {
    let spec = ArraySpec {
        level: Level::Linear,
        layout: Layout::None,
        chunk_sectors: 0,
        members: vec![MemberSpec::Ready(member)],
        data_plane: DataPlaneConfig::default(),
    };
    let options = DriverOptions { leases: 1, ..DriverOptions::default() };
    let mut driver = Driver::new(spec, &options)?;
    let (sectors, mut done) = (driver.info().sectors, Vec::<Completion>::new());
    let mut noise = SplitMix64(0x5ca8_b1e5);
    for at in (0..sectors).step_by(BULK_SECTORS as usize) {
        let count = BULK_SECTORS.min(sectors - at);
        let bytes = (count * md::SECTOR_BYTES) as usize;
        let mut lease = driver.leases().take(bytes).expect("one at a time");
        for word in lease.bytes_mut().chunks_exact_mut(8) {
            word.copy_from_slice(&noise.draw().to_le_bytes());
        }
        let op = HostOp::Write { fua: false };
        let submitted = driver.submit(op, Sector(at), count, Some(lease), 0);
        assert!(submitted.is_ok(), "nothing else is in flight");
        while done.is_empty() {
            driver.poll(&mut done);
            if done.is_empty() {
                driver.wait(Duration::from_millis(100), None);
            }
        }
        done.pop().expect("it has ended").result.map_err(TargetError::Fill)?;
    }
    let leaf = driver.into_leaves().pop().expect("one member");
    leaf.member.ok_or(TargetError::MemberCount)
}

#[cfg(test)]
mod tests {
    use md::nested::ArrayExpr;
    use results::record::Record;
    use spec::case::{ArrayConfig, Knobs, RunConfig};
    use spec::matrix::{ArrayPlan, Plan};
    use spec::members::MemberSet;

    use super::*;
    use crate::blocks;

    fn run(array: &str, members: &str, cells: Vec<Spec>, cores: Option<u32>) -> Record {
        let expr: ArrayExpr = array.parse().expect("an expression");
        let set: MemberSet = members.parse().expect("a set");
        let array = ArrayConfig {
            chunk_bytes: 64 << 10,
            knobs: Knobs { stripe_cache_bytes: Some(1 << 20), ..Knobs::default() },
            ..ArrayConfig::new(expr, &set, 8 << 20).expect("an array")
        };
        let plan = Plan { arrays: vec![ArrayPlan { array, cells }], left_out: Vec::new() };
        let sample = Duration::from_millis(40);
        let run = RunConfig { cores, runs: 2, sample, ..RunConfig::quick() };
        let (record, ended) = blocks::run(&plan, &run, &|| false, &mut |_| {});
        ended.expect("it runs");
        record
    }

    fn spec(kind: Kind, work: workload::BackgroundWork) -> Spec {
        Spec {
            kind,
            block_bytes: if kind == Kind::None { RANGE_BYTES } else { 4096 },
            depth: if kind == Kind::None { 0 } else { 4 },
            jobs: 1,
            read_ahead_bytes: 0,
            read_percent: None,
            rate: None,
            background: Some(Background { work, foreground_percent: 50 }),
        }
    }

    #[test]
    fn every_work_runs_beside_every_workload_and_leaves_the_array_whole() {
        let two = crate::runner::allowed_cpus().expect("the system says").len() >= 2;
        for (array, cores) in
            [("raid5(4)", None), ("raid6(5)", Some(2)), ("raid1(3)", None), ("raid10,f2(4)", None)]
        {
            let cores = cores.filter(|_| two);
            let works = workload::BackgroundWork::ALL;
            let kinds = match array {
                "raid5(4)" => &[Kind::None, Kind::RandRead, Kind::RandWrite][..],
                _ => &[Kind::RandWrite],
            };
            let cells = works.iter().flat_map(|work| kinds.iter().map(|kind| spec(*kind, *work)));
            let record = run(array, "mem", cells.collect(), cores);
            assert_eq!(record.cells.len(), 3 * kinds.len());
            for cell in &record.cells {
                let what =
                    format!("{array}: {:?} {}", cell.case.background, cell.case.workload.text());
                assert_eq!(
                    cell.measured.verified,
                    Some(true),
                    "{what}: {:?}",
                    cell.derived.warnings
                );
                let idle = cell.measured.background_idle_mb_per_s.expect("it was measured");
                assert!(idle > 0.0, "{what}");
                if cell.case.workload == spec::workload::AccessKind::None {
                    assert_eq!(
                        (cell.derived.mb_per_s, cell.derived.foreground_share),
                        (idle, None),
                        "{what}"
                    );
                    assert_eq!(cell.measured.foreground_alone, None);
                    continue;
                }
                assert!(
                    cell.derived.mb_per_s > 0.0 && cell.derived.foreground_share > Some(0.0),
                    "{what}"
                );
                assert!(cell.measured.background_mb_per_s > Some(0.0), "{what}");
                let alone = cell.measured.foreground_alone.as_ref().expect("measured");
                assert!(alone.iops > 0.0 && alone.latency_us.is_some(), "{what}");
                assert!(
                    !cell.derived.warnings.iter().any(|text| text.contains("failed")),
                    "{what}"
                );
            }
        }
    }

    #[test]
    fn two_lost_members_of_raid_6_and_one_of_them_rebuilt() {
        let cells = vec![spec(Kind::RandRead, workload::BackgroundWork::Rebuild)];
        let expr: ArrayExpr = "raid6(5)".parse().expect("an expression");
        let array = ArrayConfig {
            degraded: 1,
            ..ArrayConfig::new(expr, &"mem".parse().expect("a set"), 8 << 20).expect("an array")
        };
        let plan = Plan { arrays: vec![ArrayPlan { array, cells }], left_out: Vec::new() };
        let run = RunConfig { sample: Duration::from_millis(50), ..RunConfig::quick() };
        let (record, ended) = blocks::run(&plan, &run, &|| false, &mut |_| {});
        ended.expect("it runs");
        assert_eq!(
            record.cells[0].measured.verified,
            Some(true),
            "{:?}",
            record.cells[0].derived.warnings
        );
    }

    #[test]
    fn what_a_scrub_finds_is_wrong_data() {
        let cells = vec![spec(Kind::None, workload::BackgroundWork::Scrub)];
        let record = run("raid6(4)", "mem*3+fault:flip@1M:mem", cells, None);
        let cell = &record.cells[0];
        assert_eq!(cell.measured.verified, Some(false));
        assert!(
            cell.derived.warnings[0].contains("sector(s) of redundancy"),
            "{:?}",
            cell.derived.warnings
        );
    }
}
