//! Background work of an array of md that was made for a measurement: a rebuild, a check or a
//! resync, begun, held and followed in sysfs, at the pace that md gives it.
//!
//! ```text
//!   prepare: a member is out, or no redundancy is trusted -> resume -> tend: pass after pass
//!                                                         -> hold   -> finish, and a check
//! ```
//!
//! Invariant: only members of that array are failed, removed or added. Called by `background`.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spec::rng::SplitMix64;
use spec::workload::BackgroundWork;

use super::error::{ProvisionError, SyncError};
use super::steps::Step;
use super::sysfs::{in_sysfs, setting};

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
    /// Why it could not go on.
    problem: Option<ProvisionError>,
}

impl MdSync {
    /// Puts the array into the state in which the work runs, and holds the work.
    ///
    /// # Errors
    /// The step that failed.
    pub fn prepare(array: MdArray, work: BackgroundWork) -> Result<MdSync, ProvisionError> {
        let sync =
            MdSync { array, work, passes: 0, begun: false, looked: Instant::now(), problem: None };
        match work {
            BackgroundWork::Rebuild => {
                sync.take_out()?;
                // A block that is not rebuilt is wrong.
                sync.array.spare.as_deref().map_or(Ok(()), write_noise)?;
            }
            BackgroundWork::Resync => {
                sync.act("frozen")?;
                sync.set("md/resync_start", "0")?;
                return Ok(MdSync { begun: true, ..sync });
            }
            BackgroundWork::Scrub => {}
        }
        Ok(sync)
    }

    /// Lets the work begin, or go on where it was held.
    ///
    /// # Errors
    /// The step that failed.
    pub fn resume(&mut self) -> Result<(), ProvisionError> {
        match (self.work, self.begun) {
            // md begins a check anew.
            (BackgroundWork::Scrub, _) | (_, false) => self.begin(),
            (_, true) => self.act("idle"),
        }
    }

    /// Holds the work.
    ///
    /// # Errors
    /// The step that failed.
    pub fn hold(&mut self) -> Result<(), ProvisionError> {
        self.act("frozen")
    }

    /// Begins another pass if the last one has ended; looks at md now and then. What fails,
    /// [`MdSync::finish`] returns.
    pub fn tend(&mut self) {
        if self.looked.elapsed() < LOOK || self.problem.is_some() {
            return;
        }
        self.looked = Instant::now();
        if self.begun && self.action() == "idle" && !self.is_due() {
            self.problem = self.next_pass().err();
        }
    }

    fn next_pass(&mut self) -> Result<(), ProvisionError> {
        self.passes += 1;
        match self.work {
            BackgroundWork::Rebuild => self.take_out()?,
            BackgroundWork::Resync => {
                self.act("frozen")?;
                self.set("md/resync_start", "0")?;
            }
            BackgroundWork::Scrub => {}
        }
        self.begin()
    }

    /// Bytes of each member that the work has passed so far.
    pub fn member_bytes(&self) -> u64 {
        let member = self.kib_of_member();
        let kib = match std::fs::read_to_string("/proc/mdstat") {
            // Positions are those of the array where each has copies on some of the members.
            Ok(text) => position(&text, &self.name())
                .map_or(0, |(done, all)| (done as u128 * member as u128 / all as u128) as u64),
            Err(_) => 0,
        };
        (self.passes * member + kib) * 1024
    }

    /// Brings the work to its end at full speed, then compares copies or parity. Returns the
    /// sectors that differ.
    ///
    /// # Errors
    /// The step that failed, also while it was measured; or md does nothing.
    pub fn finish(mut self, stop: &dyn Fn() -> bool) -> Result<u64, ProvisionError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        for limit in ["md/sync_speed_max", "md/sync_speed_min"] {
            self.set(limit, &UNLIMITED_KIB.to_string())?;
        }
        if self.action() == "frozen" || !self.begun {
            self.resume()?;
        }
        self.await_idle(stop)?;
        if self.work != BackgroundWork::Scrub {
            self.act("check")?;
            self.await_idle(stop)?;
        }
        let found = setting(&self.array.device, "md/mismatch_cnt");
        Ok(found.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    fn begin(&mut self) -> Result<(), ProvisionError> {
        self.begun = true;
        match self.work {
            BackgroundWork::Scrub => self.act("check"),
            BackgroundWork::Resync => self.act("idle"),
            BackgroundWork::Rebuild => {
                self.act("idle")?;
                let Some(spare) = self.array.spare.clone() else { return Ok(()) };
                // Otherwise mdadm takes it for a member that comes back.
                self.mdadm(["--zero-superblock".into(), spare.display().to_string()])?;
                self.manage("--add", &spare)
            }
        }
    }

    fn take_out(&self) -> Result<(), ProvisionError> {
        let Some(spare) = &self.array.spare else { return Ok(()) };
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
        self.mdadm([path(&self.array.device), what.into(), path(member)])
    }

    // runs: mdadm
    fn mdadm(&self, args: impl IntoIterator<Item = String>) -> Result<(), ProvisionError> {
        Ok(Step::run("mdadm", args).perform().map(drop)?)
    }

    fn act(&self, action: &str) -> Result<(), ProvisionError> {
        self.set("md/sync_action", action)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), ProvisionError> {
        let path = in_sysfs(&self.array.device, name)
            .map_err(|source| ProvisionError::Io { path: self.array.device.clone(), source })?;
        Ok(Step::Set { path, value: value.into() }.perform().map(drop)?)
    }

    fn action(&self) -> String {
        setting(&self.array.device, "md/sync_action").unwrap_or_default()
    }

    /// Waits until md is idle, which it is for a moment before it begins.
    fn await_idle(&self, stop: &dyn Fn() -> bool) -> Result<(), ProvisionError> {
        let mut idle_since = Instant::now();
        loop {
            let action = self.action();
            if action == "idle" && !self.is_due() || stop() {
                return Ok(());
            }
            if action != "idle" {
                idle_since = Instant::now();
            }
            if idle_since.elapsed() > PATIENCE {
                let (device, degraded) = (self.array.device.clone(), self.text("md/degraded"));
                let resync_start = self.text("md/resync_start");
                let problem = SyncError::Idle { action, degraded, resync_start };
                return Err(ProvisionError::Sync { device, problem });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether md, while it is idle, has something left to do.
    fn is_due(&self) -> bool {
        match self.work {
            BackgroundWork::Rebuild => self.text("md/degraded") != "0" && self.is_joining(),
            BackgroundWork::Resync => self.text("md/resync_start") != "none",
            BackgroundWork::Scrub => false,
        }
    }

    /// Whether the member of the rebuild is in the array and not in sync.
    fn is_joining(&self) -> bool {
        let name = self.array.spare.as_ref().and_then(|path| path.file_name());
        let state = name.map(|name| format!("md/dev-{}/state", name.to_string_lossy()));
        state.is_some_and(|state| !self.text(&state).contains("in_sync"))
    }

    fn text(&self, name: &str) -> String {
        setting(&self.array.device, name).unwrap_or_default()
    }

    fn kib_of_member(&self) -> u64 {
        self.text("md/component_size").parse().unwrap_or(0)
    }

    fn name(&self) -> String {
        let name = self.array.device.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Writes noise to all of a device.
fn write_noise(path: &Path) -> Result<(), ProvisionError> {
    let failed = |source| ProvisionError::Io { path: path.to_path_buf(), source };
    let write = || {
        let mut device = File::options().write(true).open(path)?;
        let end = device.seek(SeekFrom::End(0))?;
        device.rewind()?;
        let mut noise = SplitMix64(0x5ca8_b1e5);
        let mut block = vec![0; NOISE_BYTES];
        let mut left = end;
        while left > 0 {
            block.chunks_exact_mut(8).for_each(|word| {
                word.copy_from_slice(&noise.draw().to_le_bytes());
            });
            let length = left.min(NOISE_BYTES as u64);
            device.write_all(&block[..length as usize])?;
            left -= length;
        }
        device.sync_all()
    };
    write().map_err(failed)
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
