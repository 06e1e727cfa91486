//! An array of the kernel: the options of mdadm, and the settings of array and members.
//!
//! Invariant: the plan is values ([`kernel_steps`]) that one thin function performs; every setting
//! is restored, the array is stopped, and the superblocks are erased from its members, which were
//! empty before.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use md::{Geometry, GeometrySpec, Layout, Level};
use spec::matrix::tolerated_losses;
use spec::target::{BlockDeviceSettings, KernelExpr, MdKnob};

use super::error::{ProvisionError, SyncError};
use super::md_sync::MdArray;
use super::plan::Stripes;
use super::steps::Step;
use super::sysfs::{apply_setting, in_sysfs, setting};
use super::undo::Undo;

/// The geometry of a kernel array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelArray {
    /// Its level.
    pub level: Level,
    /// Its layout, if not md's default.
    pub layout: Option<Layout>,
    /// Its chunk, in bytes; 0 where the level has none.
    pub chunk_bytes: u64,
    /// Number of members.
    pub disks: usize,
    /// The members, if they are arrays themselves.
    pub inner: Vec<KernelArray>,
    /// Bytes of each member that are enough; `None`: all. Levels without redundancy use all of
    /// their members.
    pub member_bytes: Option<u64>,
    /// Members that fail before it is used.
    pub degraded: u32,
}

impl KernelArray {
    /// Number of devices of the array and the arrays in it.
    pub fn leaves(&self) -> usize {
        match self.inner.is_empty() {
            true => self.disks,
            false => self.inner.iter().map(KernelArray::leaves).sum(),
        }
    }

    /// Whether md has an attribute for it, or for an array in it.
    fn has(&self, knob: MdKnob) -> bool {
        let own = if knob.needs_parity() { self.level.has_parity() } else { self.is_redundant() };
        own || self.inner.iter().any(|inner| inner.has(knob))
    }

    /// Members are no smaller than the devices where that much does not fit.
    pub(super) fn limit(&mut self, fits: &dyn Fn(&u64) -> bool) {
        self.member_bytes = self.member_bytes.filter(fits);
        self.inner.iter_mut().for_each(|inner| inner.limit(fits));
    }

    /// Whether it has parity or copies to resync.
    fn is_redundant(&self) -> bool {
        self.level.has_parity() || matches!(self.level, Level::Raid1 | Level::Raid10)
    }

    /// Stripe geometry for a file system on it.
    pub(super) fn stripes(&self) -> Result<Option<Stripes>, md::GeometryError> {
        self.geometry().map(|geometry| Stripes::of(&geometry))
    }

    fn geometry(&self) -> Result<Geometry, md::GeometryError> {
        Geometry::new(&GeometrySpec {
            level: self.level,
            layout: self.layout.unwrap_or(Layout::default_for(self.level)),
            chunk_sectors: self.chunk_bytes / md::SECTOR_BYTES,
            member_sectors: vec![1 << 30; self.disks],
        })
    }

    /// The step that fails the first members that it can lose, if any are to fail.
    fn failing(&self, kernel: &KernelExpr, device: &Path) -> Result<Option<Step>, ProvisionError> {
        if self.degraded == 0 {
            return Ok(None);
        }
        let mut args = vec!["--fail".to_string(), device.display().to_string()];
        let gone = self.lost(kernel, self.degraded)?;
        args.extend(gone.map(|path| path.display().to_string()));
        Ok(Some(Step::run("mdadm", args)))
    }

    /// The first `count` members that it can lose together.
    fn lost<'k>(
        &self,
        kernel: &'k KernelExpr,
        count: u32,
    ) -> Result<impl Iterator<Item = &'k PathBuf>, ProvisionError> {
        let gone = tolerated_losses(&self.geometry()?, count, &|_| false)?;
        Ok(gone.into_iter().filter_map(|slot| kernel.devices.get(usize::from(slot.0))))
    }

    /// The array as background work sees it.
    pub(super) fn for_sync(&self, kernel: &KernelExpr, device: &Path) -> MdArray {
        let spare = self.lost(kernel, self.degraded + 1).ok().and_then(Iterator::last).cloned();
        MdArray { device: device.to_path_buf(), spare }
    }
}

/// Steps that create the array as `device`. A wrong number of members is refused.
///
/// # Errors
/// [`ProvisionError::DeviceCount`].
pub fn kernel_steps(
    kernel: &KernelExpr,
    array: &KernelArray,
    device: &Path,
) -> Result<Vec<Step>, ProvisionError> {
    let given = kernel.devices.len();
    if given != array.disks {
        return Err(ProvisionError::DeviceCount { given, wanted: array.disks });
    }
    if kernel.bitmap && !array.is_redundant() {
        return Err(ProvisionError::NoBitmap(array.level));
    }
    let mut args: Vec<String> = ["--create", "--run", "--metadata=1.2"].map(String::from).into();
    args.push(format!("--level={}", array.level.to_string().trim_start_matches("raid")));
    args.push(format!("--raid-devices={}", array.disks));
    args.extend(array.layout.map(|layout| format!("--layout={layout}")));
    if array.level.has_chunks() {
        args.push(format!("--chunk={}K", array.chunk_bytes / 1024));
    }
    // No bitmap by default; mdadm would add one to large arrays only.
    if array.is_redundant() {
        args.push(format!("--bitmap={}", if kernel.bitmap { "internal" } else { "none" }));
        let chunk = kernel.bitmap_chunk_bytes.filter(|_| kernel.bitmap);
        args.extend(chunk.map(|bytes| format!("--bitmap-chunk={}K", bytes / 1024)));
    }
    if let Some(bytes) = array.member_bytes.filter(|_| array.is_redundant()) {
        args.push(format!("--size={}K", bytes / 1024));
    }
    args.extend(kernel.assume_clean.then(|| "--assume-clean".into()));
    args.push(device.display().to_string());
    args.extend(kernel.devices.iter().map(|path| path.display().to_string()));
    Ok(vec![Step::run("mdadm", args)])
}

/// Refuses an array where this kernel has no md, before anything is measured: mdadm fails then, and
/// leaves the node of its device. A kernel with md loads the module of a level when an array of it
/// is made; whether it has that one, mdadm will tell.
///
/// # Errors
/// [`ProvisionError::NoMd`].
pub(super) fn kernel_has_md_for(level: Level) -> Result<(), ProvisionError> {
    if Path::new("/proc/mdstat").exists() {
        return Ok(());
    }
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["-n", "-q", &format!("md-{level}")]).stdin(Stdio::null());
    match modprobe.output().map(|output| output.status.success()) {
        Ok(false) => Err(ProvisionError::NoMd(level)),
        _ => Ok(()),
    }
}

/// Steps that remove the array, in reverse order.
pub(super) fn undo_steps(kernel: &KernelExpr, device: &Path) -> [Step; 2] {
    let mut erase = vec!["--zero-superblock".to_string()];
    erase.extend(kernel.devices.iter().map(|path| path.display().to_string()));
    let stop = ["--stop".to_string(), device.display().to_string()];
    [Step::run("mdadm", erase), Step::run("mdadm", stop)]
}

/// Settings of a block device, by the names of their sysfs attributes.
pub(super) fn queue_settings(knobs: &BlockDeviceSettings) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    let kib = knobs.read_ahead_bytes.map(|bytes| (bytes / 1024).to_string());
    settings.extend(kib.map(|kib| ("queue/read_ahead_kb", kib)));
    settings.extend(knobs.scheduler.clone().map(|name| ("queue/scheduler", name)));
    settings
}

/// Creates the array and waits for its resync. `stop` is polled during the resync.
pub(super) fn set_up_kernel(
    kernel: &KernelExpr,
    array: &KernelArray,
    stop: &dyn Fn() -> bool,
    undo: &mut Undo,
) -> Result<PathBuf, ProvisionError> {
    let members = BlockDeviceSettings { read_ahead_bytes: None, ..kernel.knobs.clone() };
    for path in &kernel.devices {
        for (name, value) in queue_settings(&members) {
            apply_setting(path, name, &value, undo)?;
        }
        if let Some(depth) = kernel.knobs.queue_depth {
            apply_setting(path, "device/queue_depth", &depth.to_string(), undo)?;
        }
    }
    if let Some(knob) = kernel.knobs.md.keys().find(|knob| !array.has(**knob)) {
        return Err(ProvisionError::NoSuchKnob { knob: knob.word(), level: array.level });
    }
    let (of_members, device) = assemble(kernel, array, stop, undo)?;
    if let Some(fail) = array.failing(&of_members, &device)? {
        fail.perform()?;
    }
    let own = BlockDeviceSettings { scheduler: None, ..kernel.knobs.clone() };
    for (name, value) in queue_settings(&own) {
        apply_setting(&device, name, &value, undo)?;
    }
    Ok(device)
}

/// Creates the arrays inside, then the array, and waits for their resync. Returns its members, too.
fn assemble(
    kernel: &KernelExpr,
    array: &KernelArray,
    stop: &dyn Fn() -> bool,
    undo: &mut Undo,
) -> Result<(KernelExpr, PathBuf), ProvisionError> {
    let mut of_members = kernel.clone();
    if !array.inner.is_empty() {
        of_members.devices.clear();
        let mut left = &kernel.devices[..];
        for inner in &array.inner {
            let (devices, rest) = left.split_at(inner.leaves().min(left.len()));
            left = rest;
            let bitmap = kernel.bitmap && inner.is_redundant();
            let part = KernelExpr { devices: devices.to_vec(), bitmap, ..kernel.clone() };
            of_members.devices.push(assemble(&part, inner, stop, undo)?.1);
        }
    }
    // Where its level has any: the arrays inside may have one.
    of_members.bitmap &= array.inner.is_empty() || array.is_redundant();
    let device = make(&of_members, array, undo)?;
    if array.is_redundant() && !kernel.assume_clean {
        // During a resync a measurement would measure the resync.
        let look = |name: &str| setting(&device, name);
        let waited = wait_in_sync(&look, stop, IDLE_PATIENCE);
        waited.map_err(|problem| ProvisionError::Sync { device: device.clone(), problem })?;
    }
    for (knob, value) in &kernel.knobs.md {
        // Of arrays in one another, those have it that can.
        if in_sysfs(&device, knob.attribute()).is_ok_and(|path| path.exists()) {
            apply_setting(&device, knob.attribute(), &value.to_string(), undo)?;
        }
    }
    Ok((of_members, device))
}

/// Creates the array under the first free number.
fn make(
    kernel: &KernelExpr,
    array: &KernelArray,
    undo: &mut Undo,
) -> Result<PathBuf, ProvisionError> {
    let create = |device: &Path| kernel_steps(kernel, array, device);
    // Refused before any undo step is registered.
    create(Path::new("/dev/md"))?;
    let [erase, _] = undo_steps(kernel, Path::new("/dev/md"));
    undo.push(erase);
    let attempt = |device: &Path| {
        let [_, stop_array] = undo_steps(kernel, device);
        let (own, ours) = (device.to_path_buf(), kernel.devices.clone());
        // mdadm removes an array that the kernel does not start, but not its superblocks; and if
        // another process took the number first, the array belongs to that process.
        undo.push_call(stop_array.to_string(), move || match is_made_of(&own, &ours) {
            true => Ok(stop_array.perform().map(drop)?),
            false => Ok(()),
        });
        create(device)?.iter().try_for_each(|step| Ok(step.perform().map(drop)?))
    };
    let found = |device: &Path| {
        if !has_members(device) {
            FoundMembers::None
        } else if is_made_of(device, &kernel.devices) {
            FoundMembers::Ours
        } else {
            FoundMembers::Foreign
        }
    };
    under_a_free_number(Path::new("/sys/block"), attempt, found)
}

/// Members of an array that could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundMembers {
    Ours,
    /// There are none, or there is no array.
    None,
    Foreign,
}

/// Tries one number after the other, as long as another process takes the number in between. A free
/// number cannot be reserved for mdadm.
fn under_a_free_number(
    blocks: &Path,
    mut attempt: impl FnMut(&Path) -> Result<(), ProvisionError>,
    found: impl Fn(&Path) -> FoundMembers,
) -> Result<PathBuf, ProvisionError> {
    let mut from = FIRST_NUMBER;
    let mut empty = false;
    loop {
        let number = free_number(blocks, from)?;
        let device = PathBuf::from(format!("/dev/md{number}"));
        match attempt(&device) {
            Ok(()) => return Ok(device),
            Err(problem) => match found(&device) {
                FoundMembers::Foreign => from = number + 1,
                // Another process is about to add members; or mdadm has left the array empty, and
                // then the next number fails, too.
                FoundMembers::None if !empty && is_taken(blocks, number) => {
                    (empty, from) = (true, number + 1);
                }
                _ => return Err(problem),
            },
        }
    }
}

/// Polling interval during a resync.
const LOOK: Duration = Duration::from_millis(50);

/// How long an array that is not in sync may stay idle.
const IDLE_PATIENCE: Duration = Duration::from_secs(10);

/// Waits until all members are in sync. `mdadm --wait` does not report a resync that has not
/// started, and keeps waiting for hours after Ctrl-C. `look` returns the current value of an
/// attribute of the array.
///
/// # Errors
/// The array was stopped, or is not in sync and idle for `patience`, or `stop` returned `true`.
fn wait_in_sync(
    look: &dyn Fn(&str) -> Option<String>,
    stop: &dyn Fn() -> bool,
    patience: Duration,
) -> Result<(), SyncError> {
    let mut at_work = Instant::now();
    loop {
        // A stopped array may keep its name, as a device without members.
        if look("md/array_state").is_none_or(|state| state == "clear" || state == "inactive") {
            return Err(SyncError::ArrayStopped);
        }
        let said = ["md/sync_action", "md/degraded", "md/resync_start"]
            .map(|name| look(name).unwrap_or_default());
        let [action, degraded, resync_start] = said;
        if is_in_sync(&action, &degraded, &resync_start) {
            return Ok(());
        }
        if stop() {
            return Err(SyncError::Interrupted);
        }
        // Not "frozen", which lasts until it is changed explicitly.
        if matches!(action.as_str(), "resync" | "recover" | "reshape") {
            at_work = Instant::now();
        }
        if at_work.elapsed() > patience {
            return Err(SyncError::Idle { action, degraded, resync_start });
        }
        std::thread::sleep(LOOK);
    }
}

/// No resync or rebuild is running or pending: a pending one shows as idle for a moment, but then a
/// member is missing, or `resync_start` gives its start.
fn is_in_sync(action: &str, degraded: &str, resync_start: &str) -> bool {
    (action, degraded, resync_start) == ("idle", "0", "none")
}

/// Minor numbers of our arrays: above those usually given by hand, below those that mdadm assigns.
const FIRST_NUMBER: u32 = 200;
const NUMBERS_END: u32 = 256;

/// The first number from `from` on that no array has.
fn free_number(blocks: &Path, from: u32) -> Result<u32, ProvisionError> {
    (from..NUMBERS_END)
        .find(|number| !is_taken(blocks, *number))
        .ok_or(ProvisionError::NoFreeNumber)
}

fn is_taken(blocks: &Path, number: u32) -> bool {
    blocks.join(format!("md{number}")).exists()
}

/// Whether `device` is an array with members.
fn has_members(device: &Path) -> bool {
    let slaves = in_sysfs(device, "slaves").and_then(std::fs::read_dir);
    slaves.is_ok_and(|mut slaves| slaves.next().is_some())
}

/// Whether `device` is an array of these members only.
fn is_made_of(device: &Path, members: &[PathBuf]) -> bool {
    let name = |path: &PathBuf| Some(in_sysfs(path, "").ok()?.file_name()?.to_owned());
    let ours: Vec<OsString> = members.iter().filter_map(name).collect();
    in_sysfs(device, "slaves").is_ok_and(|slaves| are_all_ours(&slaves, &ours))
}

/// An array without members is not ours, either: another process is about to create one.
fn are_all_ours(slaves: &Path, ours: &[OsString]) -> bool {
    let entries = std::fs::read_dir(slaves).into_iter().flatten();
    let below: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
    !below.is_empty() && below.iter().all(|name| ours.contains(name))
}

#[cfg(test)]
mod tests {
    use spec::target::TargetExpr;

    use super::*;

    fn steps(text: &str, array: &KernelArray) -> Result<Vec<String>, ProvisionError> {
        let Ok(TargetExpr::Kernel(kernel)) = text.parse() else { panic!("{text}") };
        let device = Path::new("/dev/md200");
        let mut steps = kernel_steps(&kernel, array, device)?;
        steps.extend(undo_steps(&kernel, device).into_iter().rev());
        Ok(steps.iter().map(ToString::to_string).collect())
    }

    const RAID5: KernelArray = KernelArray {
        level: Level::Raid5,
        layout: None,
        chunk_bytes: 65_536,
        disks: 3,
        inner: Vec::new(),
        member_bytes: None,
        degraded: 0,
    };

    #[test]
    fn mdadm_gets_all_options_and_is_undone_in_order() {
        assert_eq!(
            steps("md:/dev/sdb+/dev/sdc+/dev/sdd", &RAID5).expect("a plan"),
            [
                "mdadm --create --run --metadata=1.2 --level=5 --raid-devices=3 --chunk=64K \
                 --bitmap=none /dev/md200 /dev/sdb /dev/sdc /dev/sdd",
                "mdadm --stop /dev/md200",
                "mdadm --zero-superblock /dev/sdb /dev/sdc /dev/sdd",
            ]
        );
        let clean = steps("md:/dev/sdb+/dev/sdc+/dev/sdd,assume-clean", &RAID5);
        let clean = clean.expect("a plan");
        assert!(clean[0].contains(" --assume-clean /dev/md200 "), "{clean:?}");
        let mirror = KernelArray {
            level: Level::Raid1,
            chunk_bytes: 0,
            disks: 2,
            layout: None,
            inner: Vec::new(),
            member_bytes: Some(1 << 30),
            degraded: 0,
        };
        let plan = steps("md:/dev/sdb+/dev/sdc", &mirror).expect("a plan");
        assert!(!plan[0].contains("--chunk") && mirror.is_redundant(), "{plan:?}");
        let raid0 = KernelArray { level: Level::Raid0, disks: 2, ..RAID5 };
        let plan = steps("md:/dev/sdb+/dev/sdc", &raid0).expect("a plan");
        assert!(plan[0].contains("--level=0 ") && !plan[0].contains("bitmap"), "{plan:?}");
        assert!(!raid0.is_redundant());
    }

    #[test]
    fn settings_have_their_names_in_sysfs() {
        let text = "md:/dev/sdb,read-ahead=4M,scheduler=none";
        let Ok(TargetExpr::Kernel(kernel)) = text.parse() else { panic!("{text}") };
        let expected =
            [("queue/read_ahead_kb", "4096".to_string()), ("queue/scheduler", "none".to_string())];
        assert_eq!(queue_settings(&kernel.knobs), expected);
    }

    #[test]
    fn an_array_is_in_sync_when_nothing_runs_and_nothing_is_due() {
        assert!(is_in_sync("idle", "0", "none"));
        for (action, degraded, resync_start) in [
            ("resync", "0", "0"),
            ("idle", "0", "0"),
            ("idle", "1", "none"),
            ("recover", "1", "none"),
            ("", "", ""),
        ] {
            let said = format!("{action}, {degraded}, {resync_start}");
            assert!(!is_in_sync(action, degraded, resync_start), "{said}");
        }
    }

    /// Waits for an array with these attributes. The patience ends at the third poll; the tenth
    /// poll stops it. Returns the number of polls of `stop`.
    fn waited(shown: &[(&str, &str)]) -> (Result<(), SyncError>, u32) {
        let asked = std::cell::Cell::new(0);
        let look = |name: &str| {
            let found = shown.iter().find(|(setting, _)| *setting == name);
            found.map(|(_, value)| value.to_string())
        };
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() == 10
        };
        (wait_in_sync(&look, &stop, LOOK), asked.get())
    }

    fn at_work(action: &'static str) -> [(&'static str, &'static str); 4] {
        [
            ("md/array_state", "clean"),
            ("md/sync_action", action),
            ("md/degraded", "0"),
            ("md/resync_start", "128"),
        ]
    }

    #[test]
    fn an_array_that_goes_away_is_not_waited_for() {
        let cleared = [("md/array_state", "clear"), ("md/sync_action", "idle")];
        for shown in [&[][..], &cleared] {
            let (ended, looks) = waited(shown);
            let problem = ended.expect_err("it has gone");
            assert_eq!(problem, SyncError::ArrayStopped);
            assert_eq!(looks, 0, "immediately");
        }
    }

    #[test]
    fn only_what_brings_members_up_to_date_is_waited_for() {
        for action in ["idle", "frozen", ""] {
            let problem = waited(&at_work(action)).0.expect_err(action);
            assert!(matches!(problem, SyncError::Idle { .. }), "{action}: {problem}");
        }
        let problem = waited(&at_work("resync")).0.expect_err("stopped");
        assert_eq!(problem, SyncError::Interrupted);
    }

    #[test]
    fn a_number_is_free_or_there_is_none() {
        let blocks = tempfile::tempdir().expect("a directory");
        let taken = |number: u32| {
            std::fs::create_dir(blocks.path().join(format!("md{number}"))).expect("made");
        };
        assert_eq!(free_number(blocks.path(), 200).expect("one"), 200);
        taken(200);
        taken(202);
        assert_eq!(free_number(blocks.path(), 200).expect("one"), 201);
        (201..256).filter(|number| *number != 202).for_each(taken);
        let refused = free_number(blocks.path(), 200).expect_err("all are taken");
        assert!(matches!(refused, ProvisionError::NoFreeNumber), "{refused}");
    }

    /// The device of an error of these tests.
    fn refused_device(error: ProvisionError) -> PathBuf {
        let ProvisionError::NoBlockDevice(device) = error else { panic!("{error}") };
        device
    }

    #[test]
    fn a_number_taken_by_another_is_skipped_and_other_errors_are_returned() {
        let blocks = tempfile::tempdir().expect("a directory");
        let attempts = |anothers: &[&str]| {
            let mut tried = Vec::new();
            let attempt = |device: &Path| {
                tried.push(device.display().to_string());
                match device.ends_with("md202") {
                    true => Ok(()),
                    false => Err(ProvisionError::NoBlockDevice(device.into())),
                }
            };
            let found = |device: &Path| match anothers.iter().any(|name| device.ends_with(name)) {
                true => FoundMembers::Foreign,
                false => FoundMembers::None,
            };
            let ended = under_a_free_number(blocks.path(), attempt, found);
            (ended.map_err(refused_device), tried)
        };
        let (ended, tried) = attempts(&["md200", "md201"]);
        assert_eq!(ended, Ok("/dev/md202".into()));
        assert_eq!(tried, ["/dev/md200", "/dev/md201", "/dev/md202"]);
        assert_eq!(attempts(&["md200"]).0, Err("/dev/md201".into()));
        assert_eq!(attempts(&[]).1, ["/dev/md200"]);
    }

    /// An array exists for a moment before it has members.
    #[test]
    fn a_number_that_was_taken_without_members_is_passed_over_once() {
        let attempts = |left: &[&str], found: FoundMembers| {
            let blocks = tempfile::tempdir().expect("a directory");
            let mut tried = 0;
            let attempt = |device: &Path| {
                tried += 1;
                if !left.iter().any(|name| device.ends_with(name)) {
                    return Ok(());
                }
                let name = device.file_name().expect("a name");
                std::fs::create_dir(blocks.path().join(name)).expect("made");
                Err(ProvisionError::NoBlockDevice(device.into()))
            };
            let ended = under_a_free_number(blocks.path(), attempt, |_| found);
            (ended.map_err(refused_device), tried)
        };
        assert_eq!(attempts(&["md200"], FoundMembers::None), (Ok("/dev/md201".into()), 2));
        let all = ["md200", "md201", "md202"];
        assert_eq!(attempts(&all, FoundMembers::None), (Err("/dev/md201".into()), 2));
        // mdadm could not start the array that it has assembled.
        assert_eq!(attempts(&all, FoundMembers::Ours), (Err("/dev/md200".into()), 1));
    }

    #[test]
    fn only_an_array_of_our_members_is_ours() {
        let slaves = tempfile::tempdir().expect("a directory");
        let ours = ["sdb", "sdc"].map(OsString::from);
        assert!(!are_all_ours(&slaves.path().join("none"), &ours), "no such array");
        assert!(!are_all_ours(slaves.path(), &ours), "it has no members yet");
        std::fs::create_dir(slaves.path().join("sdb")).expect("made");
        assert!(are_all_ours(slaves.path(), &ours), "one may be missing");
        std::fs::create_dir(slaves.path().join("sdd")).expect("made");
        assert!(!are_all_ours(slaves.path(), &ours), "one member is foreign");
    }

    #[test]
    fn another_number_of_members_is_refused() {
        let error = steps("md:/dev/sdb+/dev/sdc", &RAID5).expect_err("refused");
        assert_eq!(error.to_string(), "md: 2 device(s) are given, the array has 3");
    }
}
