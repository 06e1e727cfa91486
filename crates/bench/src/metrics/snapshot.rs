//! One reading of everything that is watched, and where it is read.
//!
//! Invariant: counters of one snapshot were read within a moment of each other, `at` in the middle.
//! Called from `live` and `recorder`.

use std::fs;
use std::path::{Path, PathBuf};

use super::array::{self, ArrayState};
use super::disk::{self, Disk};
use super::error::ReadError;
use super::machine::{self, MachineCounters};

/// The directories that stand for `/proc` and `/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl Roots {
    /// `/proc` and `/sys` below this directory.
    pub fn below(root: &Path) -> Roots {
        Roots { proc: root.join("proc"), sys: root.join("sys") }
    }
}

/// One reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When, nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Every block device that counts.
    pub disks: Vec<Disk>,
    /// The machine; `None` where the system does not say.
    pub machine: Option<MachineCounters>,
}

impl Snapshot {
    /// Reads disks and machine.
    ///
    /// # Errors
    /// The file that cannot be read or understood.
    pub fn take(roots: &Roots) -> Result<Snapshot, ReadError> {
        let disks = read_disks(roots)?;
        let at_ns = host::sys::clock_nanos();
        Ok(Snapshot { at_ns, disks, machine: read_machine(roots)? })
    }

    /// The disk of this name.
    pub fn disk(&self, name: &str) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.name == name)
    }
}

/// Every block device that counts.
pub(super) fn read_disks(roots: &Roots) -> Result<Vec<Disk>, ReadError> {
    let path = roots.proc.join("diskstats");
    match fs::read_to_string(&path) {
        Ok(text) => disk::parse(&text).map_err(|problem| ReadError::Format { path, problem }),
        Err(source) => Err(ReadError::Io { path, source }),
    }
}

/// The machine's counters; `None` where there is no such file, or nothing is counted in it.
pub(super) fn read_machine(roots: &Roots) -> Result<Option<MachineCounters>, ReadError> {
    let path = roots.proc.join("stat");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    machine::parse(&text).map_err(|problem| ReadError::Format { path, problem })
}

/// The disks under a block device, by its number, and the array of md that it is, or that the
/// volume lies on whose only disk it is: members in slot order then, without spares. Otherwise the
/// disk itself (that of a partition). Empty where there is no block device of that number, as below
/// file systems in memory.
pub fn below(roots: &Roots, device: u64) -> (Vec<String>, Option<String>) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = roots.sys.join(format!("dev/block/{major}:{minor}"));
    let Some(own) = disk_name(&link) else { return (Vec::new(), None) };
    let mut name = own.clone();
    for _ in 0..DEEPEST {
        if let Some(found) = array::read(&roots.sys, &name) {
            let members = found.members.into_iter().filter(|member| member.slot.is_some());
            return (members.map(|member| member.name).collect(), Some(name));
        }
        let [only] = &array::slaves(&roots.sys, &name)[..] else { break };
        let Some(next) = whole_disk(roots, only) else { break };
        name = next;
    }
    (vec![own], None)
}

/// Limit of stacked volumes.
const DEEPEST: usize = 8;

/// The disk that a block device is, or that a partition is on; `None`: no such block device.
pub fn whole_disk(roots: &Roots, name: &str) -> Option<String> {
    // In sysfs the slashes of names like cciss/c0d0 are exclamation marks.
    disk_name(&roots.sys.join("class/block").join(name.replace('/', "!")))
}

/// The name of a disk, or of that of a partition, by its directory in sysfs or a link to it.
fn disk_name(link: &Path) -> Option<String> {
    let mut path = fs::canonicalize(link).ok()?;
    if path.join("partition").exists() {
        path.pop();
    }
    Some(path.file_name()?.to_string_lossy().replace('!', "/"))
}

/// The array of this name as it is now.
pub fn described(roots: &Roots, array: &str) -> Option<ArrayState> {
    array::read(&roots.sys, array)
}

/// All arrays that run.
pub(super) fn arrays(roots: &Roots) -> Vec<ArrayState> {
    array::all(&roots.sys)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::metrics::recorder::tests::Dir;

    #[test]
    fn below_a_device_are_the_members_that_serve_it() {
        let dir = Dir::with_array("below");
        dir.write("sys/block/md0/slaves/sdc/size", "2048\n");
        dir.write("sys/block/md0/md/dev-sdc/slot", "none\n");
        dir.write("sys/block/md0/md0p1/partition", "1\n");
        dir.write("sys/block/dm-0/slaves/md0p1/size", "2048\n");
        dir.write("sys/block/dm-1/slaves/sda/size", "2048\n");
        dir.write("sys/block/dm-2/slaves/sda/size", "2048\n");
        dir.write("sys/block/dm-2/slaves/sdc/size", "2048\n");
        let link = |target: &str, name: &str| {
            let path = dir.0.join("sys").join(name);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            symlink(dir.0.join("sys").join(target), path).expect("linked");
        };
        link("block/md0/md0p1", "class/block/md0p1");
        link("block/sda", "class/block/sda");
        let devices = ["sda", "md0", "md0/md0p1", "dm-0", "dm-1", "dm-2"];
        for (minor, name) in (0..).zip(devices) {
            link(&format!("block/{name}"), &format!("dev/block/8:{minor}"));
        }
        let below = |minor| {
            let (disks, array) = super::below(&Roots::below(&dir.0), rustix::fs::makedev(8, minor));
            (disks.join(" "), array.unwrap_or_default())
        };
        let words = |disks: &str, array: &str| (disks.to_string(), array.to_string());
        assert_eq!(below(0), words("sda", ""));
        assert_eq!(below(1), words("sdb sda", "md0"), "in slot order, without the spare");
        assert_eq!(below(2), words("sdb sda", "md0"), "a partition of it");
        assert_eq!(below(3), words("sdb sda", "md0"), "a volume on a partition of it");
        assert_eq!(below(4), words("dm-1", ""), "a volume on a disk counts for itself");
        assert_eq!(below(5), words("dm-2", ""));
        assert_eq!(below(6), words("", ""), "nothing there");
        let state = described(&Roots::below(&dir.0), "md0").expect("an array");
        assert_eq!(
            (state.layout, state.chunk_bytes, state.slots),
            (Some(2), Some(65_536), Some(3)),
            "what is, not what a reshape makes of it"
        );
    }
}
