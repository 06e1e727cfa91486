//! Background work of an array of md that was made for a measurement: a rebuild, a check or a
//! resync, begun, held and followed in sysfs, at the pace that md gives it.
//!
//! ```text
//!   prepare: a member is out, or no redundancy is trusted -> resume -> tend: pass after pass
//!                                                         -> hold   -> finish, and a check
//! ```
//!
//! Invariant: only members of that array are failed, removed or added. Called by `background`.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use spec::rng::SplitMix64;
use spec::workload::BackgroundWork;

use super::error::{ProvisionError, SyncError};
use super::steps::Step;
use super::sysfs::{in_sysfs, restored, setting};

/// How often md is looked at while it works.
const LOOK: Duration = Duration::from_millis(50);
/// md begins within this time, or not at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Written at a time.
const NOISE_BYTES: usize = 1 << 20;
/// Above every disk, KiB/s: what remains is done at full speed.
const UNLIMITED_KIB: u32 = 100_000_000;

/// An array of md, and the member that it can lose next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdArray {
    /// `/dev/md200`.
    pub device: PathBuf,
    /// The member that a rebuild is of; `None`: the array can lose none.
    pub spare: Option<PathBuf>,
}

/// Background work of an array of md, pass after pass.
#[derive(Debug)]
pub struct MdSync {
    array: MdArray,
    work: BackgroundWork,
    /// Passes that have ended.
    passes: u64,
    /// A pass is under way, or held.
    begun: bool,
    looked: Instant,
    /// Bytes of each member that were passed when it was last looked at.
    passed: Cell<u64>,
    /// Begins the next pass, beside what is measured.
    beginning: Option<JoinHandle<Result<(), ProvisionError>>>,
    /// Why it stopped.
    problem: Option<ProvisionError>,
}

impl MdSync {
    /// Puts the array into the state in which the work runs, and holds the work.
    ///
    /// # Errors
    /// The step that failed.
    pub fn prepare(array: MdArray, work: BackgroundWork) -> Result<MdSync, ProvisionError> {
        array.make_due(work)?;
        Ok(MdSync {
            array,
            work,
            passes: 0,
            begun: work == BackgroundWork::Resync,
            looked: Instant::now(),
            passed: Cell::new(0),
            beginning: None,
            problem: None,
        })
    }

    /// Lets the work begin, or continue where it was held; a check begins anew.
    ///
    /// # Errors
    /// The step that failed.
    pub fn resume(&mut self) -> Result<(), ProvisionError> {
        match (self.work, std::mem::replace(&mut self.begun, true)) {
            (BackgroundWork::Scrub, _) | (_, false) => self.array.begin(self.work),
            (_, true) => self.array.act("idle"),
        }
    }

    /// Holds the work.
    ///
    /// # Errors
    /// The step that failed.
    pub fn hold(&mut self) -> Result<(), ProvisionError> {
        self.changed()?;
        self.array.act("frozen")
    }

    /// Begins another pass if the last one has ended; looks at md now and then. What fails,
    /// [`MdSync::finish`] returns.
    pub fn tend(&mut self) {
        if self.looked.elapsed() < LOOK || self.problem.is_some() {
            return;
        }
        self.looked = Instant::now();
        if self.beginning.as_ref().is_some_and(|beginning| !beginning.is_finished()) {
            return;
        }
        if let Err(problem) = self.changed() {
            self.problem = Some(problem);
        } else if self.begun && self.array.action() == "idle" && !self.array.is_due(self.work) {
            self.passes += 1;
            let (array, work) = (self.array.clone(), self.work);
            // mdadm takes its time, which is none of the workload's.
            let begin = move || array.make_due(work).and_then(|()| array.begin(work));
            self.beginning = Some(std::thread::spawn(begin));
        }
    }

    /// Waits until a pass that begins has begun.
    fn changed(&mut self) -> Result<(), ProvisionError> {
        match self.beginning.take() {
            Some(beginning) => beginning.join().expect("it does not panic"),
            None => Ok(()),
        }
    }

    /// Bytes of each member that the work has passed so far.
    pub fn member_bytes(&self) -> u64 {
        let member = self.array.kib_of_member();
        let text = std::fs::read_to_string("/proc/mdstat").unwrap_or_default();
        // Positions are those of the array where each has copies on some of the members.
        let kib = position(&text, &self.array.name())
            .map_or(0, |(done, all)| (done as u128 * member as u128 / all as u128) as u64);
        // Between two passes there is no position.
        self.passed.set(self.passed.get().max((self.passes * member + kib) * 1024));
        self.passed.get()
    }

    /// Brings the work to its end at full speed, a rebuild onto noise, then compares copies or
    /// parity. Returns the sectors that differ; 0 when it was stopped.
    ///
    /// # Errors
    /// The step that failed, also while it was measured; or md does nothing.
    pub fn finish(mut self, stop: &dyn Fn() -> bool) -> Result<u64, ProvisionError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        self.changed()?;
        let array = &self.array;
        let limits = ["md/sync_speed_max", "md/sync_speed_min"];
        let before = limits.map(|name| (name, restored(&array.text(name))));
        limits.iter().try_for_each(|name| array.set(name, &UNLIMITED_KIB.to_string()))?;
        let ended = array.to_its_end(self.work, stop);
        // Of the next cell on this array.
        let back = before.iter().rev().try_for_each(|(name, value)| array.set(name, value));
        ended.and_then(|found| back.map(|()| found))
    }
}

impl MdArray {
    /// How long the bits of its bitmap take to be cleared after the last write: the daemon needs
    /// two of its intervals, and begins one at any time. `None`: it has no bitmap.
    pub fn bitmap_clears_within(&self) -> Option<Duration> {
        setting(&self.device, "md/bitmap/location").filter(|location| location != "none")?;
        let interval: f64 = setting(&self.device, "md/bitmap/time_base")?.parse().ok()?;
        Duration::try_from_secs_f64(interval * 3.0).ok()
    }

    /// Makes the work due: a member is out, or redundancy is not trusted.
    fn make_due(&self, work: BackgroundWork) -> Result<(), ProvisionError> {
        match work {
            BackgroundWork::Rebuild => self.take_out(),
            BackgroundWork::Resync => {
                self.act("frozen")?;
                self.set("md/resync_start", "0")
            }
            BackgroundWork::Scrub => Ok(()),
        }
    }

    fn begin(&self, work: BackgroundWork) -> Result<(), ProvisionError> {
        match work {
            BackgroundWork::Scrub => {
                // Otherwise a check that was interrupted continues where it was.
                self.set("md/sync_min", "0")?;
                self.act("check")
            }
            BackgroundWork::Resync => self.act("idle"),
            BackgroundWork::Rebuild => {
                self.act("idle")?;
                let Some(spare) = &self.spare else { return Ok(()) };
                // Otherwise mdadm takes it for a member that comes back.
                mdadm(["--zero-superblock".into(), spare.display().to_string()])?;
                self.manage("--add", spare)
            }
        }
    }

    fn to_its_end(
        &self,
        work: BackgroundWork,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, ProvisionError> {
        self.act("idle")?;
        self.await_idle(work, stop)?;
        if work == BackgroundWork::Rebuild && !stop() {
            // A block that is not rebuilt is wrong.
            let bytes = self.bytes_of_spare();
            if self.is_member() {
                self.take_out()?;
            }
            self.spare.as_deref().map_or(Ok(()), |spare| write_noise(spare, bytes, stop))?;
            self.begin(work)?;
            self.await_idle(work, stop)?;
        }
        if stop() {
            return Ok(0);
        }
        self.begin(BackgroundWork::Scrub)?;
        self.await_idle(BackgroundWork::Scrub, stop)?;
        let found = self.text("md/mismatch_cnt").parse();
        found.or_else(|_| if stop() { Ok(0) } else { Err(self.lacks("md/mismatch_cnt")) })
    }

    fn take_out(&self) -> Result<(), ProvisionError> {
        let Some(spare) = &self.spare else { return Ok(()) };
        self.manage("--fail", spare)?;
        // md lets go of it once its requests have ended.
        let begin = Instant::now();
        loop {
            match self.manage("--remove", spare) {
                Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                ended => return ended,
            }
        }
    }

    fn manage(&self, what: &str, member: &Path) -> Result<(), ProvisionError> {
        let path = |path: &Path| path.display().to_string();
        mdadm([path(&self.device), what.into(), path(member)])
    }

    fn act(&self, action: &str) -> Result<(), ProvisionError> {
        self.set("md/sync_action", action)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), ProvisionError> {
        let path = in_sysfs(&self.device, name)
            .map_err(|source| ProvisionError::Io { path: self.device.clone(), source })?;
        Ok(Step::Set { path, value: value.into() }.perform().map(drop)?)
    }

    fn action(&self) -> String {
        self.text("md/sync_action")
    }

    /// Waits until md is idle, which it is for a moment before it begins.
    fn await_idle(
        &self,
        work: BackgroundWork,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), ProvisionError> {
        let mut idle_since = Instant::now();
        loop {
            let action = self.action();
            if action == "idle" && !self.is_due(work) || stop() {
                return Ok(());
            }
            if action != "idle" {
                idle_since = Instant::now();
            }
            if idle_since.elapsed() > PATIENCE {
                let (device, degraded) = (self.device.clone(), self.text("md/degraded"));
                let resync_start = self.text("md/resync_start");
                let problem = SyncError::Idle { action, degraded, resync_start };
                return Err(ProvisionError::Sync { device, problem });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether md, while it is idle, has something left to do.
    fn is_due(&self, work: BackgroundWork) -> bool {
        match work {
            BackgroundWork::Rebuild => {
                self.of_spare("state").is_none_or(|state| !state.contains("in_sync"))
            }
            BackgroundWork::Resync => self.text("md/resync_start") != "none",
            BackgroundWork::Scrub => false,
        }
    }

    fn is_member(&self) -> bool {
        self.of_spare("state").is_some()
    }

    /// Bytes of the member of a rebuild, up to the end of what md uses of it.
    fn bytes_of_spare(&self) -> u64 {
        let offset: u64 = self.of_spare("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
        offset * md::SECTOR_BYTES + self.kib_of_member() * 1024
    }

    /// What md says of the member of the rebuild; `None`: it is not in the array.
    fn of_spare(&self, what: &str) -> Option<String> {
        // By the kernel's name: the path may be another one.
        let name = in_sysfs(self.spare.as_deref()?, "").ok()?;
        let name = name.file_name()?.to_string_lossy().into_owned();
        setting(&self.device, &format!("md/dev-{name}/{what}"))
    }

    fn text(&self, name: &str) -> String {
        setting(&self.device, name).unwrap_or_default()
    }

    fn kib_of_member(&self) -> u64 {
        self.text("md/component_size").parse().unwrap_or(0)
    }

    fn name(&self) -> String {
        let name = self.device.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn lacks(&self, name: &str) -> ProvisionError {
        ProvisionError::NoSetting { device: self.device.clone(), name: name.into() }
    }
}

// runs: mdadm
fn mdadm(args: impl IntoIterator<Item = String>) -> Result<(), ProvisionError> {
    Ok(Step::run("mdadm", args).perform().map(drop)?)
}

/// Writes noise to the first bytes of a device.
fn write_noise(path: &Path, bytes: u64, stop: &dyn Fn() -> bool) -> Result<(), ProvisionError> {
    let write = || {
        let mut device = File::options().write(true).open(path)?;
        let mut noise = SplitMix64(0x5ca8_b1e5);
        let mut block = vec![0; NOISE_BYTES];
        let mut left = bytes;
        while left > 0 && !stop() {
            block.chunks_exact_mut(8).for_each(|word| {
                word.copy_from_slice(&noise.draw().to_le_bytes());
            });
            let length = left.min(NOISE_BYTES as u64);
            device.write_all(&block[..length as usize])?;
            left -= length;
        }
        device.sync_all()
    };
    write().map_err(|source| ProvisionError::Io { path: path.to_path_buf(), source })
}

/// How far md is with the array of this name, and of how much, as /proc/mdstat shows it:
/// `recovery =  6.3% (8320/130944) finish=0.2min speed=8320K/sec`.
fn position(mdstat: &str, name: &str) -> Option<(u64, u64)> {
    let mut lines = mdstat.lines().skip_while(|line| line.split(' ').next() != Some(name));
    lines.next()?;
    let mut own = lines.take_while(|line| line.starts_with([' ', '\t']));
    own.find_map(|line| {
        let (_, rest) = line.split_once("% (")?;
        let (done, all) = rest.split_once(')')?.0.split_once('/')?;
        let (done, all) = (done.parse().ok()?, all.parse().ok()?);
        (all > 0).then_some((done, all))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_that_of_the_named_array() {
        let text = "Personalities : [raid6] [raid5] [raid4] [raid1]\n\
            md201 : active raid1 vdf[1] vde[0]\n      130944 blocks super 1.2 [2/2] [UU]\n      \n\
            md200 : active raid5 vdd[4] vdc[2] vdb[1] vda[0]\n\
            \x20     392832 blocks super 1.2 level 5, 64k chunk, algorithm 2 [4/3] [UUU_]\n\
            \x20     [=>...................]  recovery =  6.3% (8320/130944) finish=0.2min \
            speed=8320K/sec\n      \nunused devices: <none>\n";
        assert_eq!(position(text, "md200"), Some((8320, 130_944)));
        assert_eq!(position(text, "md201"), None, "it is in sync");
        assert_eq!(position(text, "md20"), None, "no such array");
        assert_eq!(position("md0 : active raid1\n   resync=DELAYED\n", "md0"), None);
        assert_eq!(position("md0 : active raid1\n   resync = 0.0% (0/0)\n", "md0"), None);
    }
}
