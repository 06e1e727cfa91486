//! An array of the kernel's: what mdadm is told, and the settings of array and members.
//!
//! Invariant: the plan is values ([`kernel_steps`]) that one thin function carries out; every
//! setting gets its old value back, the array is stopped and its members' superblocks are erased,
//! which held nothing before.

use std::path::{Path, PathBuf};

use md::{Geometry, GeometrySpec, Layout, Level};

use super::expr::{KernelExpr, Knobs};
use super::plan::Stripes;
use super::set_up::set_knob;
use super::steps::{Step, Undo};

/// The shape of a kernel's array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelArray {
    /// Its level.
    pub level: Level,
    /// Its layout, if not md's default.
    pub layout: Option<Layout>,
    /// Its chunk, in bytes; 0 where the level has none.
    pub chunk_bytes: u64,
    /// Members.
    pub disks: usize,
}

impl KernelArray {
    /// What a file system on it may know.
    pub(super) fn stripes(&self) -> Result<Option<Stripes>, String> {
        let geometry = Geometry::new(&GeometrySpec {
            level: self.level,
            layout: self.layout.unwrap_or(Layout::default_for(self.level)),
            chunk_sectors: self.chunk_bytes / md::SECTOR_BYTES,
            member_sectors: vec![1 << 30; self.disks],
        });
        geometry.map(|geometry| Stripes::of(&geometry)).map_err(|error| error.to_string())
    }
}

/// Makes the array as `device`. Refuses another number of members.
///
/// # Errors
/// One line.
pub fn kernel_steps(
    kernel: &KernelExpr,
    array: &KernelArray,
    device: &Path,
) -> Result<Vec<Step>, String> {
    let given = kernel.devices.len();
    if given != array.disks {
        return Err(format!("kernel: {given} device(s) are given, the array has {}", array.disks));
    }
    let mut args: Vec<String> = ["--create", "--run", "--metadata=1.2"].map(String::from).into();
    args.push(format!("--level={}", array.level.to_string().trim_start_matches("raid")));
    args.push(format!("--raid-devices={}", array.disks));
    args.extend(array.layout.map(|layout| format!("--layout={layout}")));
    if array.level.has_chunks() {
        args.push(format!("--chunk={}K", array.chunk_bytes / 1024));
    }
    let redundant = array.level.has_parity() || matches!(array.level, Level::Raid1 | Level::Raid10);
    // A bitmap is a decision of its own; mdadm would add one to large arrays only.
    if redundant {
        args.push("--bitmap=none".into());
    }
    args.extend(kernel.assume_clean.then(|| "--assume-clean".into()));
    args.push(device.display().to_string());
    args.extend(kernel.devices.iter().map(|path| path.display().to_string()));
    let mut steps = vec![Step::run("mdadm", args)];
    if redundant && !kernel.assume_clean {
        // What is measured during a resync is the resync. `--wait` ends at once without one, and
        // not well: so the array is asked.
        steps.push(Step::run("sh", ["-c".to_string(), wait_for_resync(device)]));
    }
    Ok(steps)
}

fn wait_for_resync(device: &Path) -> String {
    format!("mdadm --wait {} || true", device.display())
}

/// How the array goes, last first.
pub(super) fn undo_steps(kernel: &KernelExpr, device: &Path) -> Vec<Step> {
    let mut erase = vec!["--zero-superblock".to_string()];
    erase.extend(kernel.devices.iter().map(|path| path.display().to_string()));
    let stop = ["--stop".to_string(), device.display().to_string()];
    vec![Step::run("mdadm", erase), Step::run("mdadm", stop)]
}

/// Settings of a block device, by their names in sysfs.
pub(super) fn queue_settings(knobs: &Knobs) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    let kib = knobs.read_ahead_bytes.map(|bytes| (bytes / 1024).to_string());
    settings.extend(kib.map(|kib| ("queue/read_ahead_kb", kib)));
    settings.extend(knobs.scheduler.clone().map(|name| ("queue/scheduler", name)));
    settings
}

/// Carries it out.
pub(super) fn set_up_kernel(
    kernel: &KernelExpr,
    array: &KernelArray,
    undo: &mut Undo,
) -> Result<PathBuf, String> {
    let device = free_md_device();
    let members = Knobs { read_ahead_bytes: None, ..kernel.knobs.clone() };
    for path in &kernel.devices {
        for (name, value) in queue_settings(&members) {
            set_knob(path, name, &value, undo)?;
        }
        if let Some(depth) = kernel.knobs.queue_depth {
            set_knob(path, "device/queue_depth", &depth.to_string(), undo)?;
        }
    }
    let steps = kernel_steps(kernel, array, &device)?;
    undo_steps(kernel, &device).into_iter().for_each(|step| undo.push(step));
    steps.iter().try_for_each(|step| step.perform().map(drop))?;
    let own = Knobs { scheduler: None, ..kernel.knobs.clone() };
    for (name, value) in queue_settings(&own) {
        set_knob(&device, name, &value, undo)?;
    }
    if let Some(pages) = kernel.knobs.stripe_cache_pages {
        set_knob(&device, "md/stripe_cache_size", &pages.to_string(), undo)?;
    }
    Ok(device)
}

/// A number that no array has.
fn free_md_device() -> PathBuf {
    let free = |number: &u32| !Path::new(&format!("/sys/block/md{number}")).exists();
    let number = (200..256).find(free).unwrap_or(255);
    format!("/dev/md{number}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::PlaceExpr;

    fn steps(text: &str, array: &KernelArray) -> Result<Vec<String>, String> {
        let Ok(PlaceExpr::Kernel(kernel)) = text.parse() else { panic!("{text}") };
        let device = Path::new("/dev/md200");
        let mut steps = kernel_steps(&kernel, array, device)?;
        steps.extend(undo_steps(&kernel, device).into_iter().rev());
        Ok(steps.iter().map(ToString::to_string).collect())
    }

    const RAID5: KernelArray =
        KernelArray { level: Level::Raid5, layout: None, chunk_bytes: 65_536, disks: 3 };

    #[test]
    fn mdadm_is_told_everything_and_undone_in_order() {
        assert_eq!(
            steps("kernel:/dev/sdb+/dev/sdc+/dev/sdd", &RAID5).expect("a plan"),
            [
                "mdadm --create --run --metadata=1.2 --level=5 --raid-devices=3 --chunk=64K \
                 --bitmap=none /dev/md200 /dev/sdb /dev/sdc /dev/sdd",
                "sh -c mdadm --wait /dev/md200 || true",
                "mdadm --stop /dev/md200",
                "mdadm --zero-superblock /dev/sdb /dev/sdc /dev/sdd",
            ]
        );
        let clean = steps("kernel:/dev/sdb+/dev/sdc+/dev/sdd,assume-clean", &RAID5);
        let clean = clean.expect("a plan");
        assert!(clean[0].contains(" --assume-clean /dev/md200 ") && clean.len() == 3, "{clean:?}");
        let mirror = KernelArray { level: Level::Raid1, chunk_bytes: 0, disks: 2, layout: None };
        let plan = steps("kernel:/dev/sdb+/dev/sdc", &mirror).expect("a plan");
        assert!(plan[1].contains("--wait") && !plan[0].contains("--chunk"), "{plan:?}");
        let raid0 = KernelArray { level: Level::Raid0, disks: 2, ..RAID5 };
        let plan = steps("kernel:/dev/sdb+/dev/sdc", &raid0).expect("a plan");
        assert!(plan[0].contains("--level=0 ") && !plan[0].contains("bitmap"), "{plan:?}");
    }

    #[test]
    fn settings_have_their_names_in_sysfs() {
        let text = "kernel:/dev/sdb,read-ahead=4M,scheduler=none";
        let Ok(PlaceExpr::Kernel(kernel)) = text.parse() else { panic!("{text}") };
        let expected =
            [("queue/read_ahead_kb", "4096".to_string()), ("queue/scheduler", "none".to_string())];
        assert_eq!(queue_settings(&kernel.knobs), expected);
    }

    #[test]
    fn another_number_of_members_is_refused() {
        let error = steps("kernel:/dev/sdb+/dev/sdc", &RAID5).expect_err("refused");
        assert_eq!(error, "kernel: 2 device(s) are given, the array has 3");
    }
}
